"""The store of a distance index: an ordinary store whose table holds a matrix a block.

Beside the rasters of costs (as they are walked on: barriers are nodata) there are

- ``matrices`` (block, entry): for each block, row by row over the grid, its boundary matrix (its
  lower half where costs are the same both ways), then what the steps out of each border cell cost
  in the eight directions of `orograph.kernels.wave.MOVES`; one object a block.
- ``lengths`` (kind, row): of steps; see `orograph.tiles.lengths`.

An update writes its objects into a folder beside them, then says that they are all there, and only
then gives them their names. So a killed update has not begun, or is ended by whoever opens the
index next.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
from numcodecs import blosc

from orograph.kernels.dissection import border_cells
from orograph.kernels.relax_costs import BARRIER, CostModel
from orograph.kernels.wave import MOVES, lower_half
from orograph.relaxation import Distance
from orograph.tiles.errors import DamagedChunkError, InputError, full_storage_reported
from orograph.tiles.georeference import Georeference
from orograph.tiles.grid import Window
from orograph.tiles.publish import MARK, group_attributes, replace_file
from orograph.tiles.raster import StoreRaster
from orograph.tiles.store import Layout, Variable, create_store

Array = npt.NDArray[Any]

FORMAT = 1
HEADER = "distance_index"
PENDING = ".update"
COMMITTED = "committed.json"


@dataclass(frozen=True)
class Form:
    """What an index is of, and how it is cut."""

    shape: tuple[int, int]
    block: int
    """Cells a side of the blocks that matrices are eliminated in."""
    levels: int
    """How often four of them are merged before they are stored."""
    cost: str
    coefficients: tuple[float, ...]
    connectivity: int
    dtype: str
    rasters: tuple[str, ...]
    """Which of friction and elevation costs come from."""
    fingerprint: str
    """Name of the input's cells."""
    format: int = FORMAT

    @property
    def side(self) -> int:
        """Cells a side of a stored block."""
        return self.block << self.levels

    @property
    def symmetric(self) -> bool:
        """Whether a path costs the same both ways."""
        return self.cost in ("friction", "absolute_difference")

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks down and across."""
        return -(-self.shape[0] // self.side), -(-self.shape[1] // self.side)

    @property
    def count(self) -> int:
        """Blocks."""
        return self.grid[0] * self.grid[1]

    @property
    def layout(self) -> Layout:
        """A tile of a raster is a block; a shard has up to 1024 cells a side."""
        shard = self.side
        while shard < min(1024, max(self.shape)) and shard < 16 * self.side:
            shard *= 2
        return Layout(self.side, shard)

    @property
    def barrier(self) -> float | int | None:
        """What barriers are in the stored rasters."""
        return BARRIER if np.dtype(self.dtype).kind == "i" else None

    def window(self, block: int) -> Window:
        """The cells of a block."""
        row, column = divmod(block, self.grid[1])
        return Window(row * self.side, column * self.side, self.side, self.side).clip(self.shape)

    def blocks_in(self, window: Window) -> list[int]:
        """The blocks that a window meets."""
        rows = range(window.y // self.side, -(-(window.y + window.height) // self.side))
        columns = range(window.x // self.side, -(-(window.x + window.width) // self.side))
        return [row * self.grid[1] + column for row in rows for column in columns]

    def block_of(self, rows: Array, columns: Array) -> Array:
        """The blocks that cells lie in."""
        blocks: Array = rows // self.side * self.grid[1] + columns // self.side
        return blocks

    def entries(self, cells: int) -> int:
        """How many numbers are stored of a matrix with so many rows."""
        return cells * (cells + 1) // 2 if self.symmetric else cells * cells

    @property
    def record(self) -> int:
        """Numbers stored of the largest block."""
        cells = len(border_cells(min(self.side, self.shape[0]), min(self.side, self.shape[1])))
        return self.entries(cells) + len(MOVES) * cells

    def problem(self, lengths: Array, *, reverse: bool = False) -> Distance:
        """Distances on the stored rasters."""
        return Distance(
            model=CostModel(self.cost, reverse, self.coefficients),
            dtype=np.dtype(self.dtype),
            connectivity=self.connectivity,
            max_cost=float("inf"),
            lengths=lengths,
            nodata=(self.barrier,) * len(self.rasters),
            has_friction="friction" in self.rasters,
            has_elevation="elevation" in self.rasters,
            sources=None,
            targets=None,
            cells=self.shape[0] * self.shape[1],
        )


class IndexStore:
    """An index on disk, whole or being written."""

    def __init__(self, path: str | os.PathLike[str], form: Form, unfinished: bool = False) -> None:
        self.path = Path(path).absolute()
        self.form = form
        self._unfinished = unfinished

    @classmethod
    def create(
        cls, path: Path, form: Form, lengths: Array, place: Georeference, run: str
    ) -> IndexStore:
        """Lay out an empty one."""
        import zarr
        from zarr.codecs import BloscCodec, Crc32cCodec

        dtype = np.dtype(form.dtype)
        variables = [Variable(name, dtype, form.barrier) for name in form.rasters]
        header = {HEADER: json.dumps(asdict(form))}
        create_store(path, form.shape, form.layout, variables, place, header, run)
        compress = BloscCodec(
            typesize=dtype.itemsize, cname="lz4", clevel=1, shuffle="shuffle", blocksize=0
        )
        with full_storage_reported(path):
            group = zarr.open_group(path, mode="r+", zarr_format=3)
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
        return cls(path, form, unfinished=True)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> IndexStore:
        """One that is whole; an update that was killed while it gave names is ended first."""
        path = Path(path)
        attributes = group_attributes(path)
        if attributes is None or HEADER not in attributes:
            StoreRaster(path)  # says what is wrong if it is no store at all
            raise InputError(
                f"{path} is a store, but holds no distance index; make one with "
                "DistanceIndex.build(friction, store)"
            )
        if not attributes.get(MARK, {}).get("complete"):
            raise InputError(f"{path} is unfinished; build the index again with overwrite=True")
        stated = json.loads(attributes[HEADER])
        if stated.get("format") != FORMAT:
            raise InputError(
                f"{path} holds a distance index of format {stated.get('format')}, this version "
                f"reads {FORMAT}; build it again"
            )
        lists = {key: tuple(value) for key, value in stated.items() if isinstance(value, list)}
        store = cls(path, Form(**{**stated, **lists}))
        store.settle()
        return store

    @cached_property
    def lengths(self) -> Array:
        """Of steps."""
        import zarr

        try:
            array: Any = zarr.open_array(self.path / "lengths", mode="r", zarr_format=3)
            return np.ascontiguousarray(array[...])
        except Exception as error:
            raise DamagedChunkError(
                f"{self.path}: lengths cannot be read: {error}; build the index again"
            ) from error

    @cached_property
    def rasters(self) -> tuple[StoreRaster, ...]:
        """What costs come from."""
        return tuple(
            StoreRaster(self.path, name, unfinished=self._unfinished) for name in self.form.rasters
        )

    def matrix_path(self, block: int) -> Path:
        """The object of a block."""
        return self.path / "matrices" / "c" / str(block) / "0"

    def write(self, block: int, matrix: Array, leaving: Array, target: Path | None = None) -> None:
        """Keep a block's matrix and what steps out of it cost."""
        form = self.form
        record = np.zeros(form.record, form.dtype)
        entries = form.entries(len(matrix))
        if form.symmetric:
            lower_half(matrix, record[:entries])
        else:
            record[:entries] = matrix.reshape(-1)
        record[entries : entries + leaving.size] = leaving.reshape(-1)
        pending = target is not None
        target = self.matrix_path(block) if target is None else target
        with full_storage_reported(target):
            if pending:
                target.parent.mkdir(parents=True, exist_ok=True)
            # else not its parents: if those are gone, so is the run
            target.parent.parent.mkdir(exist_ok=True)
            target.parent.mkdir(exist_ok=True)
            replace_file(target, encode_record(record))

    def has(self, block: int) -> bool:
        """Has a block been written?"""
        return self.matrix_path(block).is_file()

    def read(self, block: int) -> tuple[Array, Array, int]:
        """A block's matrix as it is stored, (8, n) costs of steps out of it, and bytes read."""
        form = self.form
        path = self.matrix_path(block)
        try:
            content = path.read_bytes()
            record = decode_record(content, form.record, np.dtype(form.dtype))
        except (OSError, ValueError, RuntimeError) as error:
            raise DamagedChunkError(
                f"{path}: the matrix of block {block} cannot be read: {error}; build the index "
                "again, or update a window inside the block"
            ) from error
        window = form.window(block)
        cells = len(border_cells(window.height, window.width))
        entries = form.entries(cells)
        leaving = record[entries : entries + len(MOVES) * cells].reshape(len(MOVES), cells)
        return record[:entries], leaving, len(content)

    def bytes(self) -> int:
        """Of all objects."""
        return sum(entry.stat().st_size for entry in self.path.rglob("*") if entry.is_file())

    # -- updates -----------------------------------------------------------------------------

    def pending(self) -> Path:
        """An empty folder in which an update puts its objects, by their later names."""
        folder = self.path / PENDING
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def commit(self, form: Form) -> None:
        """Give what is pending its names: from here on nothing can undo it."""
        folder = self.path / PENDING
        replace_file(folder / COMMITTED, json.dumps(asdict(form)).encode())
        self.settle()
        self.form = form

    def settle(self) -> None:
        """End an update that has been committed, or forget one that has not."""
        folder = self.path / PENDING
        if not folder.exists():
            return
        try:
            header = (folder / COMMITTED).read_text()
        except FileNotFoundError:
            # another process may be at work on it; the next update clears it
            return
        for entry in sorted(folder.rglob("*")):
            if entry.is_file() and entry.name != COMMITTED:
                final = self.path / entry.relative_to(folder)
                final.parent.mkdir(parents=True, exist_ok=True)
                os.replace(entry, final)
        document = json.loads((self.path / "zarr.json").read_bytes())
        document["attributes"][HEADER] = header
        replace_file(self.path / "zarr.json", json.dumps(document, indent=2).encode())
        stated = json.loads(header)
        lists = {key: tuple(value) for key, value in stated.items() if isinstance(value, list)}
        self.form = Form(**{**stated, **lists})
        shutil.rmtree(folder, ignore_errors=True)


def encode_record(record: Array) -> bytes:
    """A block's object: Blosc (lz4 behind a shuffle) and crc32c, as its metadata say."""
    # Blosc takes less than 2 GiB; Form.record is kept below by what block and levels may be
    blosc.use_threads = False
    packed: bytes = blosc.compress(record, b"lz4", 1, blosc.SHUFFLE, 0)
    return packed + int(google_crc32c.value(packed)).to_bytes(4, "little")


def decode_record(content: bytes, entries: int, dtype: np.dtype[Any]) -> Array:
    """The numbers of an object.

    Raises
    ------
    ValueError
        If they are not those that were written.
    """
    blosc.use_threads = False
    if len(content) < 20:
        raise ValueError(f"{len(content)} bytes are too few")
    body = content[:-4]
    if int(google_crc32c.value(body)) != int.from_bytes(content[-4:], "little"):
        raise ValueError("its checksum does not match")
    if int.from_bytes(body[4:8], "little") != entries * dtype.itemsize:
        raise ValueError(f"it does not hold {entries} numbers")
    record = np.empty(entries, dtype)
    blosc.decompress(body, record)
    return record
