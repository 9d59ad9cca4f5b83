"""The store of a distance index: an ordinary store whose table holds a matrix a block.

Beside the rasters of costs (as they are walked on: barriers are nodata) there are

- ``matrices`` (block, entry): for each block, row by row over the grid, its boundary matrix (its
  lower half where costs are the same both ways), then what the steps out of each border cell cost
  in the eight directions of `orograph.kernels.boundary.propagate.MOVES`; one object a block. If
  entries are left out (``sparsify``), those kept of a block stand one behind the other in the
  matrix's place, zeros behind them, and behind the steps a bit for each entry: see
  `orograph.kernels.boundary.sparsify`.
- ``lengths`` (kind, row): of steps; see `orograph.tiles.grid.lengths`.

An update holds the lease of the index. It writes its objects below a token of its own beside
them, then says that they are all there (`COMMITTED`), and only then gives them their names. So a
killed update has not begun, or is ended by whoever takes the lease next: an update, or who opens
the index. Whoever has the index open sees from the state of its metadata that it has changed.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.index.format import (
    READABLE,
    Form,
    decode_record,
    encode_block,
    marks_of,
    split_record,
)
from orograph.tiles.errors import (
    DamagedChunkError,
    InputError,
    StoreExistsError,
    report_full_storage,
)
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.raster.raster import StoreRaster
from orograph.tiles.store.create import Variable, create_store
from orograph.tiles.store.lease import Lease
from orograph.tiles.store.publish import MARK, check_format, group_attributes
from orograph.tiles.store.storage import Location, State, Storage, open_storage

Array = npt.NDArray[Any]

HEADER = "distance_index"
PENDING = ".update"
COMMITTED = "committed.json"
SECONDS_TO_SETTLE = 60.0
"""How long to wait for a writer that gives its objects their names."""


class IndexStore:
    """An index on disk, whole or being written."""

    def __init__(self, place: Location, form: Form, unfinished: bool = False) -> None:
        self.storage = open_storage(place)
        self.form = form
        self._unfinished = unfinished
        self._token = ""
        self._seen: State | None = None

    @classmethod
    def create(
        cls, path: Location, form: Form, lengths: Array, place: Georeference, run: str
    ) -> IndexStore:
        """Lay out an empty one."""
        import zarr
        from zarr.codecs import BloscCodec, Crc32cCodec

        dtype = np.dtype(form.dtype)
        variables = [Variable(name, dtype, form.barrier) for name in form.rasters]
        header = {HEADER: json.dumps(asdict(form))}
        storage = open_storage(path)
        create_store(storage, form.shape, form.layout, variables, place, header, run)
        compress = BloscCodec(
            typesize=dtype.itemsize, cname="lz4", clevel=1, shuffle="shuffle", blocksize=0
        )
        with report_full_storage(str(storage)):
            group = zarr.open_group(storage.zarr_store(), mode="r+", zarr_format=3)
            group.create_array(
                "matrices",
                shape=(form.count, form.record),
                dtype=dtype,
                chunks=(1, form.record),
                compressors=[compress, Crc32cCodec()],
                fill_value=0,
                dimension_names=("block", "entry"),
                attributes={"long_name": "boundary distances of blocks, and steps out of them"},
            )
            table = group.create_array(
                "lengths",
                shape=lengths.shape,
                dtype=np.float64,
                chunks=lengths.shape,
                compressors=[Crc32cCodec()],
                fill_value=0,
                dimension_names=("kind", "row"),
                attributes={"long_name": "lengths of steps"},
            )
            table[...] = lengths
            mark: Any = group.attrs[MARK]
            group.attrs[MARK] = {**mark, "table": ["matrices", "lengths"]}
        return cls(storage, form, unfinished=True)

    @classmethod
    def open(cls, place: Location) -> IndexStore:
        """One that is whole; an update that was killed while it gave names is ended first."""
        storage = open_storage(place)
        store = cls(storage, _read_form(storage))
        store.refresh()
        return store

    def refresh(self) -> bool:
        """Read what has changed since this was opened or refreshed; return whether anything has.

        An update that was killed while it gave names is ended first.

        Raises
        ------
        InputError
            If another index has taken the place of the one that was opened.
        StoreExistsError
            If a writer that is at work does not end giving names.
        """
        self._end_killed_update()
        seen = self.storage.state("zarr.json")
        if seen is not None and seen == self._seen:
            return False
        form = _read_form(self.storage)
        if replace(form, fingerprint=self.form.fingerprint) != self.form:
            raise InputError(
                f"{self.storage}: another index has been built there since it was opened; open it "
                "again"
            )
        self.form, self._seen = form, seen
        for name in ("rasters", "lengths"):
            self.__dict__.pop(name, None)
        return True

    def has_changed(self) -> bool:
        """Return whether something may have changed since the last `refresh`."""
        return self.storage.state("zarr.json") != self._seen or self.is_committed()

    @cached_property
    def lengths(self) -> Array:
        """Of steps."""
        import zarr

        try:
            array: Any = zarr.open_array(
                self.storage.zarr_store(), path="lengths", mode="r", zarr_format=3
            )
            return np.ascontiguousarray(array[...])
        except Exception as error:
            raise DamagedChunkError(
                f"{self.storage}: lengths cannot be read: {error}; build the index again"
            ) from error

    @cached_property
    def rasters(self) -> tuple[StoreRaster, ...]:
        """What costs come from."""
        return tuple(
            StoreRaster(self.storage, name, unfinished=self._unfinished)
            for name in self.form.rasters
        )

    def write(self, block: int, matrix: Array, leaving: Array, pending: bool = False) -> None:
        """Keep a block's matrix and what steps out of it cost, ``pending`` until `commit`."""
        content = encode_block(self.form, matrix, leaving)
        self.storage.put(self.pending(_key(block)) if pending else _key(block), content)

    def has(self, block: int) -> bool:
        """Has a block been written?"""
        return self.storage.state(_key(block)) is not None

    def read(self, block: int) -> tuple[Array, Array, int]:
        """A block's matrix as it is stored, (8, n) costs of steps out of it, and bytes read."""
        record, size = self._record(block)
        return *split_record(self.form, record, self.form.cells(block)), size

    def _record(self, block: int) -> tuple[Array, int]:
        """The numbers of a block's object, and its bytes."""
        try:
            content = self.storage.get(_key(block))
            return decode_record(content, self.form.record, np.dtype(self.form.dtype)), len(content)
        except (OSError, ValueError) as error:
            raise DamagedChunkError(
                f"{self.storage}/{_key(block)}: the matrix of block {block} cannot be read: "
                f"{error}; build the index again, or update a window inside the block"
            ) from error

    def left_out(self) -> float:
        """Share of all entries that are not stored; all blocks are read for it."""
        form = self.form
        kept = entries = 0
        for block in range(form.count if form.sparsify else 0):
            record, _ = self._record(block)
            cells = form.cells(block)
            kept += int(np.bitwise_count(marks_of(form, record, cells)).sum())
            entries += form.entries(cells)
        return 1 - kept / entries if entries else 0.0

    def bytes(self, prefix: str = "") -> int:
        """Of all objects below a prefix."""
        return sum(state.size for _, state in self.storage.objects(prefix))

    # -- updates -----------------------------------------------------------------------------

    def begin(self, token: str) -> None:
        """Make room for an update, which puts its objects where `pending` tells."""
        self._token = token
        self.storage.delete_all(PENDING)

    def pending(self, key: str) -> str:
        """Where an object of an update is until it has its name."""
        return f"{PENDING}/{self._token}/{key}"

    def is_committed(self) -> bool:
        """Return whether an update is whole and has not got all its names."""
        return self.storage.state(f"{PENDING}/{COMMITTED}") is not None

    def commit(self, form: Form, lease: Lease) -> None:
        """Give what is pending its names: from here on nothing can undo it."""
        entry = {"token": self._token, "form": json.dumps(asdict(form))}
        lease.check()
        self.storage.put(f"{PENDING}/{COMMITTED}", json.dumps(entry).encode())
        self.settle(lease)
        self.refresh()

    def settle(self, lease: Lease) -> None:
        """Give the objects of a committed update their names; the lease of the index is held."""
        entry = json.loads(self.storage.get(f"{PENDING}/{COMMITTED}"))
        pending = f"{PENDING}/{entry['token']}"
        for key in sorted(key for key, _ in self.storage.objects(pending)):
            self.storage.move(key, key.removeprefix(f"{pending}/"))
        document = json.loads(self.storage.get("zarr.json"))
        document["attributes"][HEADER] = entry["form"]
        lease.check()
        self.storage.put("zarr.json", json.dumps(document, indent=2).encode())
        self.storage.delete_all(PENDING)

    def _end_killed_update(self) -> None:
        """End an update that has been committed, or wait until its writer has ended it."""
        limit = time.monotonic() + SECONDS_TO_SETTLE
        while self.is_committed():
            try:
                with Lease(self.storage) as lease:
                    if self.is_committed():
                        self.settle(lease)
            except StoreExistsError:
                if time.monotonic() > limit:
                    raise
                time.sleep(0.01)


def _read_form(storage: Storage) -> Form:
    """The form of the index in a storage.

    Raises
    ------
    InputError
        If there is no finished index.
    """
    attributes = group_attributes(storage)
    if attributes is None or HEADER not in attributes:
        StoreRaster(storage)  # says what is wrong if it is no store at all
        raise InputError(
            f"{storage} is a store, but holds no distance index; make one with "
            "DistanceIndex.build(friction, store)"
        )
    if not attributes.get(MARK, {}).get("complete"):
        raise InputError(f"{storage} is unfinished; build the index again with overwrite=True")
    stated = json.loads(attributes[HEADER])
    found = stated.get("format")
    check_format(f"the distance index {storage}", found, READABLE, "build it again")
    lists = {key: tuple(value) for key, value in stated.items() if isinstance(value, list)}
    return Form(**{**stated, **lists})


def _key(block: int) -> str:
    """Where the object of a block is."""
    return f"matrices/c/{block}/0"
