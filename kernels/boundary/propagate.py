"""Distances over the borders of blocks: what one visit of a block does, for many sources at once.

*Method.* A block holds the values of its border cells for some sources. A visit carries those that
are new through the block, which is a min-plus product with its boundary matrix, and then along the
edges to neighbouring blocks. Values only fall, and costs are not negative, so visits come to an
end whatever their order; then every value is the least over all paths.

*Layout.* Sources go in lanes of `tile_columns` (two vectors). A matrix lies in panels of
``TILE_ROWS`` cells that paths lead to, so that the innermost loop (minplus_lanes.py) reads it from
end to end and nothing is packed at a visit: it is read once for all lanes. Only runs of new values
are multiplied: a front comes in over a part of the border.

*Limits.* A value at or above a source's bound is not passed on: with costs that are not negative it
lowers nothing below the bound.

*Arrays.* ``held``: (lanes, cells rounded up to whole panels, sources a lane); ``fresh``: (lanes,
cells), 1 where a value is new. float64, float32 or int64, with infinity (int64: ``BARRIER``) where
there is no path.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import uint64

from orograph.kernels.boundary.dissection import FORWARD, Indices, border_cells
from orograph.kernels.boundary.elimination import BlockCosts
from orograph.kernels.compiled import compiled
from orograph.kernels.minplus.lanes import (
    BARRIER,
    TILE_ROWS,
    lower_unsigned,
    nothing,
    packed,
    stand_apart,
    tile_columns,
)
from orograph.kernels.relax.edge_costs import edge

MOVES = (*FORWARD, *((-dy, -dx) for dy, dx in FORWARD))
GAP = 8  # old values between two runs of new ones that cost less than another run

Array = npt.NDArray[Any]


def unreached(dtype: npt.DTypeLike) -> Any:
    """What stands where there is no path."""
    kind: Any = np.dtype(dtype)
    return kind.type(BARRIER if kind.kind == "i" else np.inf)


def whole_panels(cells: int) -> int:
    """Cells rounded up to whole panels."""
    return -(-cells // TILE_ROWS) * TILE_ROWS


@compiled
def _half(matrix, out):
    n = matrix.shape[0]
    at = 0
    for i in range(n):
        for j in range(i + 1):
            out[uint64(at + j)] = matrix[i, uint64(j)]
        at += i + 1


def lower_half(matrix: Array, out: Array) -> None:
    """Write what is on and below a symmetric matrix's diagonal, row by row."""
    _half(matrix, out)


@compiled
def _lay_panels(stored, n, symmetric, out):
    """Panels from a stored matrix: element (panel, k, r) leads from k to cell r of the panel."""
    stand_apart()
    tall = TILE_ROWS
    for first in range(0, n, tall):
        panel = first * n
        rows = min(tall, n - first)
        for r in range(tall):
            j = first + r
            if r >= rows:
                for k in range(n):
                    out[uint64(panel + k * tall + r)] = nothing(stored)
            elif symmetric:
                row = j * (j + 1) // 2
                for k in range(j + 1):
                    out[uint64(panel + k * tall + r)] = packed(stored[uint64(row + k)])
            else:
                for k in range(n):
                    out[uint64(panel + k * tall + r)] = packed(stored[uint64(k * n + j)])
        if symmetric:
            # above the diagonal: row k holds the panel's cells one behind the other
            for k in range(first + 1, n):
                row = k * (k + 1) // 2 + first
                for r in range(min(rows, k - first)):
                    out[uint64(panel + k * tall + r)] = packed(stored[uint64(row + r)])


def lay_panels(stored: Array, cells: int, symmetric: bool) -> Array:
    """A boundary matrix as visits read it.

    Parameters
    ----------
    stored : flat
        The matrix row by row, or its `lower_half`.
    cells : int
        Its rows.
    symmetric : bool
        Whether only the lower half is stored.
    """
    out = np.empty(whole_panels(cells) * cells, stored.dtype)
    _lay_panels(stored, cells, symmetric, out)
    return out


@compiled
def _visit(panels, n, held, fresh, gap):
    """Carry new values through a block: ``held`` (lanes, cells in whole panels, columns)."""
    stand_apart()
    lanes, tall_n, wide = held.shape
    flat = held.reshape(-1)
    before = np.empty(lanes * n * wide, held.dtype)
    runs = np.empty((lanes, n + 1, 2), np.int64)
    count = np.zeros(lanes, np.int64)
    for p in range(lanes):
        for k in range(n):
            if fresh[p, k]:
                fresh[p, k] = 0
                last = count[p] - 1
                if last >= 0 and k - runs[p, last, 1] <= gap:
                    runs[p, last, 1] = k + 1
                else:
                    runs[p, count[p], 0] = k
                    runs[p, count[p], 1] = k + 1
                    count[p] += 1
        for run in range(count[p]):
            start = p * tall_n * wide
            for i in range(runs[p, run, 0] * wide, runs[p, run, 1] * wide):
                before[uint64(p * n * wide + i)] = packed(flat[uint64(start + i)])
    tall = TILE_ROWS
    for first in range(0, tall_n, tall):
        for p in range(lanes):
            tile = (p * tall_n + first) * wide
            for run in range(count[p]):
                k = runs[p, run, 0]
                steps = runs[p, run, 1] - k
                lower_unsigned(
                    panels, first * n + k * tall, before, (p * n + k) * wide, steps,
                    flat, tile, wide, 0,
                )  # fmt: skip


def visit(panels: Array, cells: int, held: Array, fresh: Array) -> None:
    """Lower a block's values by paths inside it from those that are new; then none is.

    Parameters
    ----------
    panels : flat
        From `lay_panels`.
    cells : int
        Border cells of the block.
    held : (lanes, cells in whole panels, columns)
        Lowered in place.
    fresh : (lanes, cells) uint8
        Which are new; set to 0.
    """
    _visit(panels, cells, held, fresh, GAP)


@compiled
def _pass_on(held, ends, costs, first, last, bound, other, fresh):
    """Lower another block's values along edges; the least of what was lowered."""
    stand_apart()
    lanes, _, wide = held.shape
    # by column, so that all columns of a lane are done by vectors
    least = np.full(wide, nothing(costs))
    lowered = np.empty(wide, held.dtype)
    for p in range(lanes):
        limit = bound[p]
        for e in range(first, last):
            cost = costs[uint64(e)]
            here = held[p, ends[uint64(e), 0]]
            there = other[p, ends[uint64(e), 1]]
            for r in range(wide):
                value = here[uint64(r)] + cost
                old = there[uint64(r)]
                better = (value < old) & (value < limit[uint64(r)])
                there[uint64(r)] = value if better else old
                lowered[uint64(r)] = value if better else nothing(costs)
            new = False
            for r in range(wide):
                low = lowered[uint64(r)]
                new |= low < nothing(costs)
                least[uint64(r)] = low if low < least[uint64(r)] else least[uint64(r)]
            if new:
                fresh[p, ends[uint64(e), 1]] = 1
    return least.min()


def pass_on(
    held: Array,
    edges: tuple[Indices, Array],
    part: slice,
    bound: Array,
    other: Array,
    fresh: Array,
) -> float:
    """Carry values along the edges to another block.

    Parameters
    ----------
    held : (lanes, cells in whole panels, columns)
        Values here.
    edges : (e, 2) int64 and (e,)
        Where each begins here and ends there, and what it costs.
    part : slice
        Which of them lead to that block.
    bound : (lanes, columns)
        Values as high or higher are not passed on; at most `unreached`.
    other, fresh
        Values there, lowered in place, and which are new.

    Returns
    -------
    float
        The least value that was lowered; `unreached` or more if none was.
    """
    return float(_pass_on(held, *edges, part.start, part.stop, bound, other, fresh))


@compiled
def _arrive(held, rest, out):
    stand_apart()
    lanes, _, wide = held.shape
    for p in range(lanes):
        least = out[p]
        for j in range(rest.size):
            here = held[p, uint64(j)]
            for r in range(wide):
                value = here[uint64(r)] + rest[uint64(j)]
                old = least[uint64(r)]
                least[uint64(r)] = value if value < old else old


def arrive(held: Array, rest: Array, out: Array) -> None:
    """Lower (lanes, columns) costs of a cell by what its way from the border, ``rest``, costs."""
    _arrive(held, rest, out)


def new_values(lanes: int, cells: int, dtype: npt.DTypeLike) -> tuple[Array, Array]:
    """A block that nothing has reached: ``held`` and ``fresh``."""
    shape = (lanes, whole_panels(cells), tile_columns(dtype))
    return np.full(shape, unreached(dtype), dtype), np.zeros((lanes, cells), np.uint8)


@compiled(error_model="numpy")
def _weigh_leaving(friction, elevation, rules, cells, moves, cost, out):
    for d in range(moves.shape[0]):
        dy, dx = moves[d, 0], moves[d, 1]
        if rules.steps == 1 and dy and dx:
            continue
        for i in range(cells.shape[0]):
            edge(friction, elevation, cells[i, 0] + 1, cells[i, 1] + 1, dy, dx, rules, cost)
            if cost[0] < rules.unreached:
                out[d, i] = cost[0]


def leaving_costs(costs: BlockCosts) -> Array:
    """What the steps out of a raster's border cells into its halo cost.

    Returns
    -------
    (8, n)
        By `MOVES` and border cell; `unreached` where a step stays inside, or is barred.
    """
    height, width = costs.shape
    cells = border_cells(height, width)
    out = np.full((len(MOVES), len(cells)), unreached(costs.dtype), costs.dtype)
    moves = np.array(MOVES, np.int64)
    cost = np.empty(1, costs.dtype)
    _weigh_leaving(costs.friction, costs.elevation, costs.rules, cells, moves, cost, out)
    end = cells[None] + moves[:, None]
    out[((end >= 0) & (end < (height, width))).all(axis=2)] = unreached(costs.dtype)
    return out
