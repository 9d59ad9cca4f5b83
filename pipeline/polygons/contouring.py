"""Trace lines of equal cost and the bands between them part by part, and join them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.engines.sweep_problems import Table
from orograph.kernels.label.union_find import rem_components
from orograph.kernels.polygons.contours import (
    NO_BAND,
    compile_kernels,
    find_bands,
    follow,
    trace_contours,
)
from orograph.polygons.job import TracingProblem
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arrays import Array, Integers, Reals
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells

PIECES = ("lines", "of_lines", "outline", "of_outline")


@dataclass(frozen=True)
class Contours(TracingProblem):
    """Lines of equal cost and the outline, as a problem whose parts need a cell around them."""

    shape: tuple[int, int]
    nodata: float | int | None
    levels: tuple[float, ...]
    backend: str = "numba"

    name = "isochrones"
    stage = "trace_contours"
    halo = 1
    may_wrap = True

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk of a run, with a vertex to fifty cells.

        So many a smooth field has with some ten levels.
        """
        vertices = round(cells.grid * 0.02)
        return Bytes(cells.itemsize + 8 + 2, checkpoints=vertices * 40, table=vertices * 400)

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels for costs of a dtype."""
        compile_kernels(dtypes[0])

    def solve(
        self, window: Window, frame: Window, cells: Sequence[Array], check: Callable[[], None]
    ) -> Table:
        """Return the pieces of lines and of the outline in a part."""
        (given,) = cells
        ring = window.grow(1)
        inside = frame.within(ring)
        own = np.full(frame.shape, NO_BAND, np.uint8)
        find_bands(given, valid_cells(given, self.nodata), reachable(self.levels, given.dtype), own)
        bands = np.full(ring.shape, NO_BAND, np.uint8)
        values = np.zeros(ring.shape)
        bands[inside], values[inside] = own, given
        levels = np.array(self.levels)
        # Where the grid wraps, the columns of a frame go on beyond it.
        wraps = frame.x < 0 or frame.x + frame.width > self.shape[1]
        found = trace_contours(values, bands, levels, window.y, window.x, self.shape, wraps)
        return dict(zip(PIECES, found, strict=True))


def reachable(levels: Sequence[float], dtype: np.dtype[Any]) -> Array:
    """Return levels as numbers with which cells of a dtype are compared exactly.

    Of whole numbers these are the next ones above, without those that none reaches.
    """
    if dtype.kind == "f":
        return np.array(levels, np.float64)
    limits = np.iinfo(dtype) if dtype.kind in "iu" else np.iinfo(np.uint8)
    # -(-level // 1) rounds up: a whole number is at least a level if it is at least the next whole
    # one.
    whole = [max(-int(-level // 1), int(limits.min)) for level in levels]
    return np.array([n for n in whole if n <= limits.max], limits.dtype)


class Chains(NamedTuple):
    """Lines or rings of many levels or bands, as places on the grid."""

    rows: Reals
    """Rows of the chains' vertices, in cells from the grid's first edge."""
    columns: Reals
    corner: npt.NDArray[np.bool_]
    """Mask of the vertices that are corners of the outline or middles of its sides."""
    keys: Integers
    """Number of each vertex, as by `trace_contours`."""
    ends: Integers
    """Index after the last vertex of each chain."""
    number: Integers
    """Level of each line, or band of each ring."""


class Pieces:
    """All pieces of a raster's lines and outline."""

    def __init__(self, tables: Sequence[Table], shape: tuple[int, int], count: int) -> None:
        whole = {name: np.concatenate([t[name] for t in tables]) for name in PIECES}
        self.lines, self.of_lines, self.outline, self.of_outline = whole.values()
        self.shape, self.levels = shape, count

    def rings(self) -> Chains:
        """Return the boundaries of all bands, with the band on the left of each."""
        lines, outline = self.lines, self.outline
        kept = outline[:, 0] < self.levels  # nothing lies beyond the last level
        # a line bounds the band above it, and backwards the one below
        pieces = np.concatenate([lines + np.array([1, 0, 0]), lines[:, [0, 2, 1]], outline[kept]])
        offsets = [self.of_lines, self.of_lines[:, ::-1], self.of_outline[kept]]
        inner = pieces[:, 0] < self.levels
        return self._join(pieces[inner], np.concatenate(offsets)[inner], with_ends=False)

    def paths(self) -> Chains:
        """Return the lines of all levels, with greater costs on the left of each.

        Those that are closed end with their first vertex.
        """
        return self._join(self.lines, self.of_lines, with_ends=True)

    def _join(self, pieces: Integers, offsets: Reals, *, with_ends: bool) -> Chains:
        """Join pieces end to end; chains and their vertices are in an order of their own."""
        order = np.lexsort((pieces[:, 1], pieces[:, 0]))
        pieces, offsets = pieces[order], offsets[order]
        # of one number, by where they begin: so what follows is found by bisection
        key = np.unique(pieces[:, 1:])
        begin, end = np.searchsorted(key, pieces[:, 1:].T)
        first, last = pieces[:, 0] * key.size + begin, pieces[:, 0] * key.size + end
        onward = np.searchsorted(first, last)
        # Beyond the last piece; the comparison below then finds that it is not the next one.
        onward[onward == first.size] = 0
        onward[first[onward] != last] = -1
        listed, ends = np.empty((2, onward.size), np.int64)
        ends = ends[: follow(onward, listed, ends)].copy()
        sizes = np.diff(ends, prepend=0)
        heads = listed[ends - sizes]
        number = pieces[heads, 0]
        # By level or band, then by the place at which they begin, so that the parts do not matter.
        rank = np.lexsort((heads, number))
        # A piece gives its first vertex; the last vertex of a line is the end of its last piece.
        last = listed[ends - 1] if with_ends else listed[:0]
        places = np.concatenate([pieces[listed, 1], pieces[last, 2]])
        at = np.concatenate([offsets[listed, 0], offsets[last, 1]])
        chain = np.append(np.repeat(np.arange(sizes.size), sizes), np.arange(last.size))
        where = np.empty_like(rank)
        where[rank] = np.arange(rank.size)
        order = np.argsort(where[chain], kind="stable")
        sizes = np.bincount(where[chain], minlength=sizes.size)
        keys = places[order]
        return Chains(*self._positions(keys, at[order]), keys, np.cumsum(sizes), number[rank])

    def across_seam(self, lines: Chains) -> Integers:
        """Return for each line the first of those that are one with it across the seam."""
        chain = np.tile(np.arange(lines.ends.size), 2)
        at = np.concatenate([lines.ends - np.diff(lines.ends, prepend=0), lines.ends - 1])
        column, key = lines.columns[at], lines.keys[at]
        east, west = np.flatnonzero(column == self.shape[1]), np.flatnonzero(column == 0)
        # Along a row, the places on the two sides are twice as many apart as there are columns.
        around = 4 * self.shape[1] * self.levels
        _, one, other = np.intersect1d(key[east] - around, key[west], return_indices=True)
        return rem_components(lines.ends.size, chain[east[one]], chain[west[other]])

    def _positions(self, keys: Integers, offsets: Reals) -> tuple[Reals, Reals, Array]:
        """Return the rows and columns of vertices, and which are corners of the outline."""
        # The reverse of the numbering of crossings in `orograph.kernels.polygons.contours`.
        across = 2 * self.shape[1] + 3
        crossings = (2 * self.shape[0] + 1) * across * 2 * self.levels
        corner = keys >= crossings
        edge = np.where(corner, keys - crossings, keys // self.levels)
        place, down = np.divmod(edge, 2)
        row, column = np.divmod(place, across)
        column -= 1
        # between two centres an edge is as long as a cell, along a cell's edge half as long
        along = np.where(np.where(down == 1, column, row) % 2 == 1, offsets, offsets / 2)
        along[corner] = 0
        return row / 2 + along * (down == 1), column / 2 + along * (down == 0), corner
