"""The store of a distance index: an ordinary store whose table holds a matrix a block.

Beside the rasters of costs (as they are walked on: barriers are nodata) there are

- ``matrices`` (block, entry): for each block, row by row over the grid, its boundary matrix (its
  lower half where costs are the same both ways), then what the steps out of each border cell cost
  in the eight directions of `orograph.kernels.boundary.propagate.MOVES`; one object a block. If
  entries are left out (``sparsify``), those kept of a block stand one behind the other in the
  matrix's place, zeros behind them, and behind the steps a bit for each entry: see
  `orograph.kernels.boundary.sparsify`.
- ``lengths`` (kind, row): of steps; see `orograph.tiles.grid.lengths`.

An update writes its objects into a folder beside them, then says that they are all there, and only
then gives them their names. So a killed update has not begun, or is ended by whoever opens the
index next.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
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
    parse_form,
    split_record,
)
from orograph.tiles.errors import DamagedChunkError, InputError, report_full_storage
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.integrity.dense import DenseArray
from orograph.tiles.integrity.metadata import (
    GROUP,
    StoreMetadata,
    check_format,
    damaged,
    read_document,
    read_metadata,
    write_group_metadata,
)
from orograph.tiles.raster.raster import StoreRaster
from orograph.tiles.store.create import Variable, create_dense, create_store, list_table
from orograph.tiles.store.storage import Location, Storage, open_storage

Array = npt.NDArray[Any]

HEADER = "distance_index"
PENDING = ".update"
COMMITTED = "committed.json"


class IndexStore:
    """An index on disk, whole or being written."""

    def __init__(self, place: Location, form: Form, unfinished: bool = False) -> None:
        self.storage = open_storage(place)
        self.form = form
        self._unfinished = unfinished

    @classmethod
    def create(
        cls, path: Location, form: Form, lengths: Array, place: Georeference, run: str
    ) -> IndexStore:
        """Lay out an empty one."""
        dtype = np.dtype(form.dtype)
        variables = [Variable(name, dtype, form.barrier) for name in form.rasters]
        header = {HEADER: json.dumps(asdict(form))}
        storage = open_storage(path)
        create_store(storage, form.shape, form.layout, variables, place, header, run)
        about = "boundary distances of blocks, and steps out of them"
        with report_full_storage(str(storage)):
            create_dense(
                storage,
                "matrices",
                (form.count, form.record),
                dtype,
                (1, form.record),
                ("block", "entry"),
                {"long_name": about},
                level=1,
            )
            table = create_dense(
                storage,
                "lengths",
                lengths.shape,
                np.dtype(np.float64),
                lengths.shape,
                ("kind", "row"),
                {"long_name": "lengths of steps"},
            )
            table[...] = lengths
            storage.sync("lengths/c/0/0")
        list_table(storage, ["matrices", "lengths"])
        return cls(storage, form, unfinished=True)

    @classmethod
    def open(cls, place: Location) -> IndexStore:
        """One that is whole; an update that was killed while it gave names is ended first."""
        storage = open_storage(place)
        metadata = read_metadata(storage)
        if HEADER not in metadata.attributes:
            raise InputError(
                f"{storage} is a store, but holds no distance index; make one with "
                "DistanceIndex.build(friction, store)"
            )
        form = _form(storage, GROUP, metadata.attributes[HEADER])
        _check_arrays(metadata, form)
        store = cls(storage, form)
        store.settle()
        return store

    @cached_property
    def lengths(self) -> Array:
        """Of steps."""
        metadata = read_metadata(self.storage, unfinished=self._unfinished)
        array = DenseArray(self.storage, metadata.member("lengths"))
        return array.read(0, array.member.shape[0])

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
        self.storage.put(f"{PENDING}/{_key(block)}" if pending else _key(block), content)

    def intact(self, block: int) -> bool:
        """Return whether a block has been written, and can be read back."""
        if self.storage.state(_key(block)) is None:
            return False
        try:
            self._record(block)
        except DamagedChunkError:
            return False
        return True

    def sync(self, blocks: Iterable[int]) -> None:
        """Return when blocks would survive a crash of the machine."""
        self.storage.sync(*map(_key, blocks))

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

    def begin(self) -> None:
        """Make room for an update, which puts its objects below `PENDING`, by their later keys."""
        self.storage.delete_all(PENDING)

    def commit(self, form: Form) -> None:
        """Give what is pending its names: from here on nothing can undo it."""
        committed = f"{PENDING}/{COMMITTED}"
        self.storage.sync(*_with_prefixes(key for key, _ in self.storage.objects(PENDING)))
        self.storage.put(committed, json.dumps(asdict(form)).encode())
        self.storage.sync(committed, PENDING)
        self.settle()
        self.form = form

    def settle(self) -> None:
        """End an update that has been committed, or forget one that has not."""
        committed = f"{PENDING}/{COMMITTED}"
        try:
            header = self.storage.get(committed).decode(errors="replace")
        except FileNotFoundError:
            # there is none, or another process is at work on it; the next update clears it
            return
        form = _form(self.storage, committed, header)
        moved = []
        for key in sorted(key for key, _ in self.storage.objects(PENDING)):
            if key != committed:
                moved.append(key.removeprefix(f"{PENDING}/"))
                self.storage.move(key, moved[-1])
        document = read_document(self.storage, GROUP)
        document["attributes"][HEADER] = header
        write_group_metadata(self.storage, document)
        self.storage.sync(*_with_prefixes([GROUP, *moved]))
        self.form = form
        self.storage.delete_all(PENDING)


def _form(storage: Storage, key: str, stated: Any) -> Form:
    """Return the form of an index that a file states; DamagedStoreError if it states none."""
    try:
        fields = json.loads(stated)
        found = fields.get("format") if isinstance(fields, dict) else None
        check_format(f"the distance index {storage}", found, READABLE, "build it again")
        return parse_form(fields)
    except InputError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise damaged(storage, key, f"{HEADER}: {error}") from None


def _check_arrays(metadata: StoreMetadata, form: Form) -> None:
    """Raise DamagedStoreError unless the arrays of a store are those of an index of this form."""
    arrays = dict.fromkeys(form.rasters, (form.shape, form.dtype))
    arrays["matrices"] = (form.count, form.record), form.dtype
    # of five kinds of steps, in all rows or in each
    one_row = metadata.member("lengths").shape == (5, 1)
    arrays["lengths"] = (5, 1 if one_row else form.shape[0] + 2), "float64"
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
    """Return keys and all their prefixes, whose names change with the objects."""
    found = {""}
    for key in keys:
        while key:
            found.add(key)
            key = key.rpartition("/")[0]
    return found


def _key(block: int) -> str:
    """Where the object of a block is."""
    return f"matrices/c/{block}/0"
