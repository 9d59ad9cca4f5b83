"""Parameters of a distance index, and the encoding of its blocks."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.boundary.dissection import border_cells
from orograph.kernels.boundary.propagate import MOVES, copy_lower_triangle, unreached
from orograph.kernels.boundary.sparsify import entries_of, recover, sparsify_matrix
from orograph.kernels.relax.models import BARRIER, MODELS
from orograph.tiles.arrays import Array
from orograph.tiles.format.codec import (
    SHUFFLE,
    compress,
    decompress,
    with_checksum,
    without_checksum,
)
from orograph.tiles.grid.quadtree import Quadtree
from orograph.tiles.grid.window import LONGEST_SIDE, Window
from orograph.tiles.store.create import Layout

FORMAT = 1
MOST_CELLS_A_SIDE = 1024  # of a stored block
DTYPES = ("float64", "float32", "int64")


@dataclass(frozen=True)
class Form:
    """Parameters of a distance index: grid, blocks, cost model and dtype."""

    shape: tuple[int, int]
    block: int
    """Side in cells of the blocks whose matrices are eliminated first."""
    levels: int
    """Number of times that four blocks are merged into one before they are stored."""
    cost: str
    coefficients: tuple[float, ...]
    connectivity: int
    dtype: str
    rasters: tuple[str, ...]
    """Names of the rasters that costs come from: friction, elevation or both."""
    fingerprint: str
    """Fingerprint of the input's cells."""
    format: int = FORMAT
    sparsify: bool = field(kw_only=True)
    """Whether matrix entries that are sums of two others are left out."""
    links: int = field(kw_only=True, default=0)
    """Number of rows of the table of links; 0 for an index without links."""
    terminals: int = field(kw_only=True, default=0)
    """Greatest number of link ends in a block for which its matrix may have rows."""
    directed: bool = field(kw_only=True, default=False)
    """Whether links may lead one way only."""
    wraps: bool = field(kw_only=True, default=False)
    """Whether the last column lies beside the first."""
    max_slope: float | None = field(kw_only=True, default=None)
    """Greatest slope of a step, as rise by length; None: there is none."""

    @property
    def tree(self) -> Quadtree:
        """Quadtree over the blocks."""
        return Quadtree(self.shape, self.side, self.wraps)

    @property
    def side(self) -> int:
        """Side of a stored block in cells."""
        return self.block << self.levels

    @property
    def symmetric(self) -> bool:
        """Whether costs are the same in both directions, so that half of a matrix is stored."""
        return MODELS[self.cost].symmetric and not self.directed

    @property
    def grid(self) -> tuple[int, int]:
        """Numbers of block rows and block columns."""
        return -(-self.shape[0] // self.side), -(-self.shape[1] // self.side)

    @property
    def count(self) -> int:
        """Number of blocks."""
        return self.grid[0] * self.grid[1]

    @property
    def layout(self) -> Layout:
        """Layout of the stored rasters: a tile is a block, shards have up to 1024 cells a side."""
        shard = self.side
        while shard < min(1024, max(self.shape)) and shard < 16 * self.side:
            shard *= 2
        return Layout(self.side, shard)

    @property
    def barrier(self) -> float | int | None:
        """Value that marks barriers in the stored rasters; None: NaN."""
        return BARRIER if np.dtype(self.dtype).kind == "i" else None

    def window(self, block: int) -> Window:
        """Return the window of a block in the grid."""
        row, column = divmod(block, self.grid[1])
        return Window(row * self.side, column * self.side, self.side, self.side).clip(self.shape)

    def cells(self, block: int) -> int:
        """Return the number of border cells of a block."""
        window = self.window(block)
        return len(border_cells(window.height, window.width))

    def blocks_in(self, window: Window) -> list[int]:
        """Return the numbers of the blocks that a window overlaps."""
        rows = range(window.y // self.side, -(-(window.y + window.height) // self.side))
        # Columns may go on beyond those of a grid that wraps.
        columns = np.arange(window.x, window.x + window.width) % self.shape[1]
        across = np.unique(columns // self.side).tolist()
        return [row * self.grid[1] + column for row in rows for column in across]

    def block_of(self, rows: Array, columns: Array) -> Array:
        """Return the number of the block that contains each cell."""
        blocks: Array = rows // self.side * self.grid[1] + columns // self.side
        return blocks

    def entries(self, cells: int) -> int:
        """Return the number of matrix entries stored for ``cells`` border cells and terminals."""
        return entries_of(cells, self.symmetric)

    def marks(self, cells: int) -> int:
        """Return the size of the bit mask of stored entries, counted in numbers of ``dtype``."""
        if not self.sparsify:
            return 0
        return -(-self.entries(cells) // (8 * np.dtype(self.dtype).itemsize))

    def numbers(self, height: int, width: int) -> int:
        """Return how many numbers a block of a given size stores at most, with all its parts."""
        cells = len(border_cells(height, width)) + self.terminals
        return self.entries(cells) + len(MOVES) * cells + self.marks(cells)

    @property
    def record(self) -> int:
        """Numbers stored for each block: those that the largest block needs."""
        return self.numbers(min(self.side, self.shape[0]), min(self.side, self.shape[1]))

    @property
    def bytes_uncompressed(self) -> int:
        """Size of all blocks and rasters in bytes before compression.

        With links: as if each block had the most terminals.
        """
        # whole blocks along each axis, and what is left of the last
        sizes = [((self.side, n // self.side), (n % self.side, 1)) for n in self.shape]
        numbers = sum(
            self.numbers(height, width) * down * across
            for height, down in sizes[0]
            for width, across in sizes[1]
            if height and width and down and across
        )
        cells = self.shape[0] * self.shape[1]
        of_links = self.links * (5 * 8 + np.dtype(self.dtype).itemsize)
        return (numbers + cells * len(self.rasters)) * np.dtype(self.dtype).itemsize + of_links


def parse_form(stated: Mapping[str, Any]) -> Form:
    """Return the parameters of an index from JSON fields; raise if they are invalid.

    Raises
    ------
    TypeError, ValueError
        If they state none.
    """
    lists = {key: tuple(value) for key, value in stated.items() if isinstance(value, list)}
    form = Form(**{**stated, **lists})
    model = MODELS.get(form.cost)
    sides = form.shape if isinstance(form.shape, tuple) else ()
    rasters = form.rasters if isinstance(form.rasters, tuple) else ()
    whole = (form.block, form.levels, form.connectivity, form.links, form.terminals, *sides)
    if not (
        model is not None
        # Not `isinstance`, by which True would be a number.
        and all(type(number) is int for number in whole)
        and (len(sides), len(rasters)) == (2, len(set(rasters)))
        and all(1 <= side <= LONGEST_SIDE for side in sides)
        and (form.block >= 1 and 0 <= form.levels <= 10 and form.side <= MOST_CELLS_A_SIDE)
        and (form.connectivity in (4, 8) and form.dtype in DTYPES)
        and set(model.needs) <= set(rasters) <= set(model.takes)
        and isinstance(form.coefficients, tuple)
        and all(type(c) is float and math.isfinite(c) for c in form.coefficients)
        and len(form.coefficients) == len(model.coefficients)
        and isinstance(form.fingerprint, str)
        and isinstance(form.sparsify, bool)
        and (form.links >= 0 and form.terminals >= 0 and isinstance(form.directed, bool))
        and isinstance(form.wraps, bool)
        and (form.max_slope is None or (type(form.max_slope) is float and form.max_slope >= 0))
    ):
        raise ValueError(f"{reprlib.repr(dict(stated))} is the form of no index")
    if model.check:
        model.check(*form.coefficients)
    return form


def encode_block(form: Form, matrix: Array, leaving: Array) -> bytes:
    """Encode a block's matrix and the costs of steps out of it as compressed bytes."""
    # Records are all as long as that of the largest block; what is left over stays 0.
    record = np.zeros(form.record, form.dtype)
    entries = form.entries(len(matrix))
    if form.sparsify:
        kept, marks = sparsify_matrix(matrix, symmetric=form.symmetric)
        record[: len(kept)] = kept
        marks_of(form, record, len(matrix))[...] = marks
    elif form.symmetric:
        copy_lower_triangle(matrix, record[:entries])
    else:
        record[:entries] = matrix.reshape(-1)
    steps = record[entries : entries + len(MOVES) * len(matrix)].reshape(len(MOVES), -1)
    steps[...] = unreached(leaving.dtype)
    steps[:, : leaving.shape[1]] = leaving
    return encode_record(record)


def split_record(form: Form, record: Array, cells: int) -> tuple[Array, Array]:
    """Split a block's numbers into its matrix and the (8, n) costs of steps out of it.

    ``cells`` counts the border cells and the terminals.
    """
    entries = form.entries(cells)
    matrix, leaving = record[:entries], record[entries : entries + len(MOVES) * cells]
    if form.sparsify:
        marks = marks_of(form, record, cells)
        matrix = recover(matrix, marks, cells, symmetric=form.symmetric)
    return matrix, leaving.reshape(len(MOVES), cells)


def marks_of(form: Form, record: Array, cells: int) -> npt.NDArray[np.uint8]:
    """Return a view of the bits in a block's numbers that mark which entries are stored."""
    entries = form.entries(cells)
    start = entries + len(MOVES) * cells
    bits = record[start : start + form.marks(cells)].view(np.uint8)
    return bits[: -(-entries // 8)]


def encode_record(record: Array, level: int = 1) -> bytes:
    """Compress numbers with Blosc (lz4, shuffled) and append a crc32c checksum."""
    # Blosc takes less than 2 GiB; Form.record is kept below by what block and levels may be
    return b"".join(map(bytes, with_checksum(compress(record, level, SHUFFLE))))


def decode_record(content: bytes, entries: int, dtype: np.dtype[Any]) -> Array:
    """Verify and decompress the numbers that `encode_record` has compressed.

    Raises
    ------
    ValueError
        If they are not those that were written.
    """
    frame = without_checksum(np.frombuffer(content, np.uint8), "the object")
    record = np.empty(entries, dtype)
    decompress(frame, record)
    return record
