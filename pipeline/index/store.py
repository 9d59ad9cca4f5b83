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
    split_record,
)
from orograph.tiles.errors import DamagedChunkError, InputError, report_full_storage
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.raster.raster import StoreRaster
from orograph.tiles.store.create import Variable, create_store
from orograph.tiles.store.publish import MARK, check_format, group_attributes
from orograph.tiles.store.storage import Location, open_storage

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
        store = cls(storage, Form(**{**stated, **lists}))
        store.settle()
        return store

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
        self.storage.put(f"{PENDING}/{_key(block)}" if pending else _key(block), content)

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

    def begin(self) -> None:
        """Make room for an update, which puts its objects below `PENDING`, by their later keys."""
        self.storage.delete_all(PENDING)

    def commit(self, form: Form) -> None:
        """Give what is pending its names: from here on nothing can undo it."""
        self.storage.put(f"{PENDING}/{COMMITTED}", json.dumps(asdict(form)).encode())
        self.settle()
        self.form = form

    def settle(self) -> None:
        """End an update that has been committed, or forget one that has not."""
        committed = f"{PENDING}/{COMMITTED}"
        try:
            header = self.storage.get(committed).decode()
        except FileNotFoundError:
            # there is none, or another process is at work on it; the next update clears it
            return
        for key in sorted(key for key, _ in self.storage.objects(PENDING)):
            if key != committed:
                self.storage.move(key, key.removeprefix(f"{PENDING}/"))
        document = json.loads(self.storage.get("zarr.json"))
        document["attributes"][HEADER] = header
        self.storage.put("zarr.json", json.dumps(document, indent=2).encode())
        stated = json.loads(header)
        lists = {key: tuple(value) for key, value in stated.items() if isinstance(value, list)}
        self.form = Form(**{**stated, **lists})
        self.storage.delete_all(PENDING)


def _key(block: int) -> str:
    """Where the object of a block is."""
    return f"matrices/c/{block}/0"
