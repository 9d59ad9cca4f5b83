"""The Zarr store of a distance index: rasters of costs, and a boundary matrix for each block.

Beside the rasters of costs (as they are walked on: barriers are nodata) there are

- ``matrices`` (block, entry): for each block, row by row over the grid, its boundary matrix (its
  lower half where costs are the same both ways), then what the steps out of each border cell cost
  in the eight directions of `orograph.kernels.boundary.propagate.MOVES`; one object a block. If
  entries are left out (``sparsify``), those kept of a block stand one behind the other in the
  matrix's place, zeros behind them, and behind the steps a bit for each entry: see
  `orograph.kernels.boundary.sparsify`.
- ``lengths`` (kind, row): of steps; see `orograph.tiles.grid.lengths`.
- ``link_ends`` (link, column) and ``link_costs`` (link), if it has links: see
  `orograph.index.links`. A block's matrix then has rows for the ends of links in it, too.

An update holds the lease of the index. It writes its objects below a token of its own beside
them, then says that they are all there (`COMMITTED`), and only then gives them their names. So a
killed update has not begun, or is ended by whoever takes the lease next: an update, or who opens
the index. Whoever has the index open sees from the state of its metadata that it has changed.
"""

from __future__ import annotations

import json
import reprlib
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.distance.problem import Distance
from orograph.engines.frontier.links import Links
from orograph.index.costs import problem_of
from orograph.index.format import (
    FORMAT,
    Form,
    decode_record,
    encode_block,
    encode_record,
    marks_of,
    parse_form,
    split_record,
)
from orograph.index.links import COLUMNS, IndexLinks, as_tables, from_tables
from orograph.kernels.relax.models import MODELS
from orograph.tiles.arrays import Array
from orograph.tiles.errors import (
    DamagedChunkError,
    InputError,
    StoreExistsError,
    report_full_storage,
)
from orograph.tiles.files import is_token
from orograph.tiles.format.checksums import (
    CHECKSUMS,
    check_stated,
    checksum_of_end,
    decode_checksums,
    encode_checksums,
)
from orograph.tiles.format.dense import DenseArray
from orograph.tiles.format.metadata import (
    GROUP,
    MARK,
    REPORT,
    StoreMetadata,
    check_format,
    damaged,
    read_array,
    read_document,
    read_metadata,
    write_group_metadata,
)
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.open_storage import open_storage
from orograph.tiles.raster.raster import StoreRaster
from orograph.tiles.storage import Location, State, Storage
from orograph.tiles.store.create import Variable, create_dense, create_store, list_table
from orograph.tiles.store.lease import Lease
from orograph.tiles.store.shard import chunk_checksum, stored_format

HEADER = "distance_index"
LINK_TABLES = "link_ends", "link_costs"
PENDING = ".update"
COMMITTED = "committed.json"
SECONDS_TO_SETTLE = 60.0
"""Seconds to wait for the writer of a committed update to rename its objects."""


class IndexStore:
    """The store of an index, finished or being built."""

    def __init__(self, place: Location, form: Form, unfinished: bool = False) -> None:
        self.storage = open_storage(place)
        self.form = form
        self._unfinished = unfinished
        self._token = ""
        self._seen: State | None = None
        self._checksums: npt.NDArray[np.uint32] | None = None

    @classmethod
    def create(
        cls,
        path: Location,
        form: Form,
        lengths: Array,
        links: Links | None,
        place: Georeference,
        run: str,
    ) -> IndexStore:
        """Create the empty store of an index."""
        dtype = np.dtype(form.dtype)
        variables = [Variable(name, dtype, form.barrier) for name in form.rasters]
        header = {HEADER: json.dumps(asdict(form))}
        storage = open_storage(path)
        create_store(storage, form.shape, form.layout, variables, place, header, run)
        about = "boundary distances of blocks"
        with report_full_storage(str(storage)):
            zarr_store = storage.zarr_store()
            create_dense(
                zarr_store,
                "matrices",
                (form.count, form.record),
                dtype,
                (1, form.record),
                ("block", "entry"),
                {"long_name": about},
                level=1,
            )
            tables: dict[str, tuple[Array, tuple[str, ...], str]]
            tables = {"lengths": (lengths, ("kind", "row"), "lengths of steps")}
            if links is not None:
                ends, costs = as_tables(links, form)
                tables[LINK_TABLES[0]] = ends, ("link", "column"), ", ".join(COLUMNS)
                tables[LINK_TABLES[1]] = costs, ("link",), "costs of links"
            for name, (values, dimensions, about) in tables.items():
                attrs = {"long_name": about}
                table = create_dense(
                    zarr_store, name, values.shape, values.dtype, values.shape, dimensions, attrs
                )
                table[...] = values
                storage.sync(_key_of_table(name, values))
        list_table(storage, ["matrices", *tables])
        return cls(storage, form, unfinished=True)

    @classmethod
    def open(cls, place: Location) -> IndexStore:
        """Open a finished index, first completing any update that was killed after its commit."""
        storage = open_storage(place)
        store = cls(storage, _read_index(storage)[1])
        store.refresh()
        return store

    def refresh(self) -> bool:
        """Read the metadata again if an update has changed them; return whether it has.

        An update that was killed while it gave names is ended first.

        Raises
        ------
        InputError
            If another index has taken the place of the one that was opened.
        StoreExistsError
            If a writer that is at work does not end giving names.
        """
        self._end_killed_update()
        # Before the metadata are read: if they change in between, the next look tells.
        seen = self.storage.state("zarr.json")
        if seen is not None and seen == self._seen:
            return False
        metadata, form = _read_index(self.storage)
        # An update changes the fingerprint alone.
        if replace(form, fingerprint=self.form.fingerprint) != self.form:
            raise InputError(
                f"{self.storage}: another index has been built there since it was opened; open it "
                "again"
            )
        self.form, self._seen = form, seen
        self._checksums = metadata.member("matrices").checksums
        # Cached properties that depend on what an update may change.
        for name in ("rasters", "lengths", "links", "problem", "backward"):
            self.__dict__.pop(name, None)
        return True

    def has_changed(self) -> bool:
        """Return whether the index may have been updated since the last `refresh`."""
        return self.storage.state("zarr.json") != self._seen or self.is_committed()

    @cached_property
    def lengths(self) -> Array:
        """Table of step lengths; see `orograph.tiles.grid.lengths`."""
        return self._table("lengths")

    @cached_property
    def links(self) -> IndexLinks | None:
        """Links of the index; None if it was built without."""
        if not self.form.links:
            return None
        return IndexLinks(from_tables(*map(self._table, LINK_TABLES)), self.form)

    @cached_property
    def problem(self) -> Distance:
        """The distance problem on the stored rasters and links."""
        problem = problem_of(self.form, self.lengths, self.links.links if self.links else None)
        place = self.rasters[0].georeference
        scale = place.metres if MODELS[self.form.cost].formula is not None else 1.0
        return replace(problem, length_unit=place.length_unit, length_scale=scale)

    @cached_property
    def backward(self) -> Distance:
        """The same with each step and each link the other way round."""
        return self.problem.backward

    def cells(self, block: int) -> int:
        """Return the number of border cells and terminals of a block."""
        return self.form.cells(block) + (self.links.count(block) if self.links else 0)

    def _table(self, name: str) -> Array:
        metadata = read_metadata(self.storage, unfinished=self._unfinished)
        array = DenseArray(self.storage, metadata.member(name))
        return array.read(0, array.member.shape[0])

    @cached_property
    def rasters(self) -> tuple[StoreRaster, ...]:
        """Stored rasters from which step costs are computed."""
        return tuple(
            StoreRaster(self.storage, name, unfinished=self._unfinished)
            for name in self.form.rasters
        )

    def write(self, block: int, matrix: Array, leaving: Array, pending: bool = False) -> None:
        """Write a block; with ``pending`` it takes effect only on `commit`."""
        content = encode_block(self.form, matrix, leaving)
        self.storage.put(self.pending(_key(block)) if pending else _key(block), content)

    def write_table(self, name: str, values: Array) -> None:
        """Write one of `LINK_TABLES` as part of the pending update."""
        content = encode_record(values.reshape(-1))
        self.storage.put(self.pending(_key_of_table(name, values)), content)

    def intact(self, block: int) -> bool:
        """Return whether a block has been written and matches its checksum."""
        if self.storage.state(_key(block)) is None:
            return False
        try:
            self._record(block)
        except DamagedChunkError:
            return False
        return True

    def sync(self, blocks: Iterable[int]) -> None:
        """Flush blocks to disk."""
        self.storage.sync(*map(_key, blocks))

    def read(self, block: int) -> tuple[Array, Array, int]:
        """Return a block's stored matrix, the (8, n) costs of steps out of it, and bytes read."""
        record, size = self._record(block)
        return *split_record(self.form, record, self.cells(block)), size

    def _record(self, block: int) -> tuple[Array, int]:
        """Read and verify a block; return its numbers and its size in bytes."""
        try:
            content = self.storage.get(_key(block))
            record = decode_record(content, self.form.record, np.dtype(self.form.dtype))
            # The metadata state checksums only once the index is complete.
            if self._checksums is not None:
                check_stated(
                    checksum_of_end(np.frombuffer(content, np.uint8)),
                    int(self._checksums[block, 0]),
                )
            return record, len(content)
        except (OSError, ValueError) as error:
            raise DamagedChunkError(
                f"{self.storage}/{_key(block)}: the matrix of block {block} cannot be read: "
                f"{error}; build the index again, or update a window inside the block"
            ) from error

    def left_out(self) -> float:
        """Return the share of matrix entries that are not stored; reads all blocks."""
        form = self.form
        kept = entries = 0
        for block in range(form.count if form.sparsify else 0):
            record, _ = self._record(block)
            cells = self.cells(block)
            kept += int(np.bitwise_count(marks_of(form, record, cells)).sum())
            entries += form.entries(cells)
        return 1 - kept / entries if entries else 0.0

    def bytes(self, prefix: str = "") -> int:
        """Return the total size of all objects below a key prefix in bytes, without the report."""
        found = self.storage.objects(prefix)
        return sum(state.size for key, state in found if key != REPORT)

    # -- updates -----------------------------------------------------------------------------

    def begin(self, token: str) -> None:
        """Begin an update under a token, deleting the remains of an uncommitted one."""
        self._token = token
        self.storage.delete_all(PENDING)

    def pending(self, key: str) -> str:
        """Return the temporary key of an object that an update writes, used until `commit`."""
        return f"{PENDING}/{self._token}/{key}"

    def is_committed(self) -> bool:
        """Return whether an update is committed, but its objects are not all renamed yet."""
        return self.storage.state(f"{PENDING}/{COMMITTED}") is not None

    def commit(self, form: Form, lease: Lease) -> None:
        """Commit the update: record that it is complete, then rename its objects."""
        committed = f"{PENDING}/{COMMITTED}"
        # Objects are on the device before the record that says that they are all there.
        pending = f"{PENDING}/{self._token}"
        keys = [key for key, _ in self.storage.objects(pending)]
        self.storage.sync(*_with_prefixes(keys))
        entry = {
            "token": self._token,
            "form": json.dumps(asdict(form)),
            CHECKSUMS: {k.removeprefix(f"{pending}/"): self._ending(pending, k) for k in keys},
        }
        lease.check()
        # The update has happened once this is written: whoever takes the lease next goes on from
        # here.
        self.storage.put(committed, json.dumps(entry).encode())
        self.storage.sync(committed, PENDING)
        self.settle(lease)
        self.refresh()

    def _ending(self, pending: str, key: str) -> int:
        """Return the checksum of a pending object."""
        name = key.removeprefix(f"{pending}/").partition("/")[0]
        return chunk_checksum(self.storage, key, stored_format(self.storage, name))

    def settle(self, lease: Lease) -> None:
        """Rename a committed update's objects to their final keys; the caller holds the lease."""
        token, header, checksums = self._committed()
        pending = f"{PENDING}/{token}"
        # All of this may be done again after a kill. Objects that have their keys are no longer
        # listed; the metadata follow when all have; and the record of the commit goes last.
        moved = []
        for key in sorted(key for key, _ in self.storage.objects(pending)):
            moved.append(key.removeprefix(f"{pending}/"))
            self.storage.move(key, moved[-1])
        document = read_document(self.storage, GROUP)
        document["attributes"][HEADER] = header
        _restate(self.storage, document, checksums)
        lease.check()
        # By the new state of this object readers see that the index has changed.
        write_group_metadata(self.storage, document)
        self.storage.sync(*_with_prefixes([GROUP, *moved]))
        self.storage.delete_all(PENDING)

    def _committed(self) -> tuple[str, str, dict[str, int]]:
        """Read the commit record of an update: its token, the new form, and checksums by key.

        The checksums are those at the ends of the objects that the update writes.
        """
        key = f"{PENDING}/{COMMITTED}"
        try:
            entry = json.loads(self.storage.get(key))
            token, header = entry["token"], entry["form"]
            checksums = entry.get(CHECKSUMS, {})
            if not is_token(token):  # else it might lead out of the folder
                raise ValueError(f"{token!r} is not a token")
            if not all(type(n) is int and 0 <= n < 2**32 for n in checksums.values()):
                raise ValueError(f"{CHECKSUMS} is {reprlib.repr(checksums)}")
        except (AttributeError, TypeError, ValueError, KeyError, RecursionError) as error:
            raise damaged(self.storage, key, str(error)) from None
        _form(self.storage, key, header)
        return token, header, checksums

    def _end_killed_update(self) -> None:
        """Complete a committed update, or wait until its writer has done so."""
        limit = time.monotonic() + SECONDS_TO_SETTLE
        while self.is_committed():
            try:
                with Lease(self.storage) as lease:
                    if self.is_committed():
                        self.settle(lease)
            except StoreExistsError:
                # The writer that holds the lease is about to end its update itself.
                if time.monotonic() > limit:
                    raise
                time.sleep(0.01)


def _restate(storage: Storage, document: dict[str, Any], checksums: dict[str, int]) -> None:
    """Replace checksums of chunks in a group's metadata document."""
    stated = document["attributes"][MARK].get(CHECKSUMS, {})
    for name, text in stated.items():
        all_of_it = decode_checksums(text, read_array(storage, name).grid)
        for key, checksum in checksums.items():
            own, _, place = key.partition("/c/")
            if own == name:
                all_of_it[tuple(map(int, place.split("/")))] = checksum
        stated[name] = encode_checksums(all_of_it)


def _read_index(storage: Storage) -> tuple[StoreMetadata, Form]:
    """Read the metadata and the form of the index in a storage.

    Raises
    ------
    InputError
        If there is no finished index.
    DamagedStoreError
        If its metadata are damaged.
    """
    metadata = read_metadata(storage)
    if HEADER not in metadata.attributes:
        raise InputError(
            f"{storage} is a store, but holds no distance index; make one with "
            "DistanceIndex.build(friction, store)"
        )
    form = _form(storage, GROUP, metadata.attributes[HEADER])
    _check_arrays(metadata, form)
    return metadata, form


def _form(storage: Storage, key: str, stated: str | bytes) -> Form:
    """Parse the form of an index from metadata; raise DamagedStoreError if it is invalid."""
    try:
        fields = json.loads(stated)
        found = fields.get("format") if isinstance(fields, dict) else None
        check_format(f"the distance index {storage}", found, FORMAT, "build it again")
        return parse_form(fields)
    except InputError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise damaged(storage, key, f"{HEADER}: {error}") from None


def _check_arrays(metadata: StoreMetadata, form: Form) -> None:
    """Raise DamagedStoreError unless the stored arrays have the shapes the form requires."""
    arrays: dict[str, tuple[tuple[int, ...], str]]
    arrays = dict.fromkeys(form.rasters, (form.shape, form.dtype))
    arrays["matrices"] = (form.count, form.record), form.dtype
    # of five kinds of steps, in all rows or in each
    one_row = metadata.member("lengths").shape == (5, 1)
    arrays["lengths"] = (5, 1 if one_row else form.shape[0] + 2), "float64"
    if form.links:
        ends, costs = LINK_TABLES
        arrays[ends] = (form.links, len(COLUMNS)), "int64"
        arrays[costs] = (form.links,), form.dtype
    for name, stated in arrays.items():
        member = metadata.member(name)
        if (member.shape, str(member.dtype)) != stated:
            raise damaged(
                metadata.storage,
                GROUP,
                f"{name} has {member.shape} values of {member.dtype}, and the index states "
                f"{stated[0]} of {stated[1]}",
            )
    if metadata.tile != form.side:
        raise damaged(metadata.storage, GROUP, f"tile is {metadata.tile}, and blocks {form.side}")


def _with_prefixes(keys: Iterable[str]) -> set[str]:
    """Return keys together with all their parent prefixes."""
    # The root too, which holds the names of the others.
    found = {""}
    for key in keys:
        while key:
            found.add(key)
            key = key.rpartition("/")[0]
    return found


def _key_of_table(name: str, values: Array) -> str:
    """Return the key of the one chunk of a table of an index."""
    return "/".join([name, "c", *["0"] * values.ndim])


def _key(block: int) -> str:
    """Return the key under which a block is stored."""
    return f"matrices/c/{block}/0"
