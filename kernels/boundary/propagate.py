"""Boundary propagation: distances over the borders of blocks, for many sources at once.

*Method.* A block holds the costs of its border cells from some sources. A visit relaxes the block:
it multiplies the costs that have arrived from outside by the boundary matrix (min-plus product) and
then relaxes the edges to neighbouring blocks. Costs only decrease and no step is negative, so the
visits end in any order.

*Layout.* A lane is 128 bytes of sources, whatever the CPU's vectors are. A matrix is stored in
panels of ``TILE_ROWS`` target cells; a visit packs nothing of it and reads it once for all lanes.
Only what has arrived is multiplied: a wavefront enters through a part of the border.

*Limits.* A cost at or above a source's bound is not propagated: no step is negative, so it cannot
lower any cost below the bound. Nor is one that exceeds what the cell is known to cost by more than
the roundings of a block's matrix (`rounding`): what it would lead to is known already.

*Why it is deterministic.* A walk enters a block, takes one entry of its matrix, and leaves over an
edge. The cost of a cell is the least over all such walks of the sums rounded from the source on.
Rounding is monotone, so the limits take no walk away that could matter, and the bits depend on the
matrices alone: not on the order of visits, nor on which sources go together, nor on the CPU's
vectors. A GPU finds the same (propagate/propagate.cu).

*Arrays.* ``held``: (lanes, cells rounded up to whole panels, sources per lane), costs by walks that
end with an entry of the matrix; ``arrived``: (lanes, cells, sources per lane), by walks that end
with an edge, and ``fresh``: (lanes, cells), 1 where one of them is new; ``lowered``: (lanes, cells
rounded up), 1 where a cost has been lowered by a visit. float64, float32 or int64, with infinity
(int64: ``BARRIER``) where there is no path.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import uint64

from orograph.kernels.boundary.dissection import FORWARD, border_cells
from orograph.kernels.boundary.elimination import BlockCosts
from orograph.kernels.compiled import compiled
from orograph.kernels.minplus.lanes import (
    BARRIER,
    TILE_ROWS,
    VECTOR_BYTES,
    infinity,
    lift,
    lower_listed,
    noinline,
)
from orograph.kernels.relax.edge_costs import edge
from orograph.tiles.arrays import Array, Indices

MOVES = (*FORWARD, *((-dy, -dx) for dy, dx in FORWARD))
LANE_BYTES = 128  # of the sources that share a lane: one tile or two of the innermost loop


class BlockParts(NamedTuple):
    """Input of a visit of a block."""

    stored: Array
    """Its matrix: row by row, or the lower triangle."""
    edges: Indices
    """(e, 3): where each edge out of it starts, the block in which it ends, and the cell there."""
    costs: Array
    """(e,)"""
    limits: tuple[Any, Any]
    """Bounds of the roundings of its matrix, relative and absolute, as `rounding` returns them."""


def unreached(dtype: npt.DTypeLike) -> Any:
    """Return the value of a cell without a path: infinity, or ``BARRIER`` for integers."""
    kind: Any = np.dtype(dtype)
    return kind.type(BARRIER if kind.kind == "i" else np.inf)


def lane_columns(dtype: npt.DTypeLike) -> int:
    """Return the number of sources in a lane."""
    return LANE_BYTES // np.dtype(dtype).itemsize


def whole_panels(cells: int) -> int:
    """Return the number of cells, rounded up to whole panels."""
    return -(-cells // TILE_ROWS) * TILE_ROWS


@compiled
def _copy_lower_triangle(matrix, out):
    n = matrix.shape[0]
    at = 0
    for i in range(n):
        # Unsigned indices, here and below: Numba then does not check whether they count from the
        # end.
        for j in range(i + 1):
            out[uint64(at + j)] = matrix[i, uint64(j)]
        at += i + 1


def copy_lower_triangle(matrix: Array, out: Array) -> None:
    """Copy the lower triangle of a symmetric matrix, with the diagonal, row by row."""
    _copy_lower_triangle(matrix, out)


@compiled
def _pack_panels(stored, n, symmetric, out):
    """Pack a stored matrix: element (panel, k, r) is the cost from k to cell r of the panel."""
    noinline()
    tall = TILE_ROWS
    for first in range(0, n, tall):
        panel = first * n
        rows = min(tall, n - first)
        for r in range(tall):
            j = first + r
            # The last panel is filled up with cells that nothing reaches.
            if r >= rows:
                for k in range(n):
                    out[uint64(panel + k * tall + r)] = infinity(stored)
            elif symmetric:
                row = j * (j + 1) // 2
                for k in range(j + 1):
                    out[uint64(panel + k * tall + r)] = lift(stored[uint64(row + k)])
            else:
                for k in range(n):
                    out[uint64(panel + k * tall + r)] = lift(stored[uint64(k * n + j)])
        if symmetric:
            # above the diagonal: the panel's cells are consecutive in row k
            for k in range(first + 1, n):
                row = k * (k + 1) // 2 + first
                for r in range(min(rows, k - first)):
                    out[uint64(panel + k * tall + r)] = lift(stored[uint64(row + r)])


def pack_panels(stored: Array, cells: int, symmetric: bool) -> Array:
    """Return a boundary matrix in panels, as `visit` reads it.

    Parameters
    ----------
    stored : flat
        The matrix row by row, or its lower triangle (see `copy_lower_triangle`).
    cells : int
        Number of rows of the matrix.
    symmetric : bool
        Whether only the lower triangle is stored.
    """
    out = np.empty(whole_panels(cells) * cells, stored.dtype)
    _pack_panels(stored, cells, symmetric, out)
    return out


@compiled
def _greatest(stored, least):
    found = least
    for i in range(stored.size):
        value = stored[uint64(i)]
        found = value if (value > found) & (value < infinity(stored)) else found
    return found


def rounding(stored: Array, height: int, width: int, terminals: int) -> tuple[Any, Any]:
    """Return how far the roundings of a block's matrix can carry: relative, and absolute.

    A cost that arrives at a cell known to cost ``c``, and is not below ``c + (c * relative +
    absolute)``, lowers no cost in the block.

    Parameters
    ----------
    stored : flat
        Entries of the matrix.
    height, width : int
        Size of the block.
    terminals : int
        Ends of links among its cells.
    """
    if stored.dtype.kind == "i":
        return stored.dtype.type(0), stored.dtype.type(0)
    # `depth` bounds the additions that an entry, a sum of sums, is made of. An elimination adds
    # at most twice for each cell of a line, the lines of all levels together are at most four
    # sides long, and a leaf has a few cells. Rows of terminals are sums along a path of cells.
    depth = height * width if terminals else 8 * (height + width)
    unit = np.finfo(stored.dtype).eps / 2
    # three entries are compared, M[k, j] with M[k, c] + M[c, j], and three more sums are rounded
    relative = stored.dtype.type((2 * (depth + 256) + 16) * unit)
    return relative, relative * _greatest(stored, stored.dtype.type(0))


@compiled
def _visit(panels, n, held, arrived, fresh, lowered):
    """Lower the costs of a block by paths from where new ones have arrived."""
    noinline()
    lanes, tall_n, wide = held.shape
    flat, changed, source = held.reshape(-1), lowered.reshape(-1), arrived.reshape(-1)
    count = 0
    for p in range(lanes):
        for k in range(n):
            count += fresh[p, k]
    # What has arrived is copied before it is multiplied: the listed cells of each lane one behind
    # the other, as `lower_listed` reads them.
    before = np.empty(count * wide, held.dtype)
    listed = np.empty(count, np.int64)
    starts = np.empty(lanes + 1, np.int64)
    at = 0
    for p in range(lanes):
        starts[p] = at
        for k in range(n):
            if fresh[p, k]:
                fresh[p, k] = 0
                listed[at] = k
                start = (p * n + k) * wide
                for i in range(wide):
                    before[uint64(at * wide + i)] = lift(source[uint64(start + i)])
                at += 1
    starts[lanes] = at
    tall = TILE_ROWS
    across = 2 * VECTOR_BYTES // held.itemsize
    for first in range(0, tall_n, tall):
        # Panels are the outer loop, so that each is read from memory once and from the cache for
        # all lanes.
        for p in range(lanes):
            start, depth = starts[p], starts[p + 1] - starts[p]
            if not depth:
                continue
            for x in range(0, wide, across):
                lower_listed(
                    panels, first * n, listed, start, before, start * wide + x, wide, depth,
                    tall * n, flat, (p * tall_n + first) * wide + x, wide,
                    changed, p * tall_n + first,
                )  # fmt: skip


def visit(panels: Array, cells: int, held: Array, arrived: Array, fresh: Array) -> Array:
    """Lower a block's costs by paths from where new ones have arrived; clear ``fresh``.

    Parameters
    ----------
    panels : flat
        Boundary matrix from `pack_panels`.
    cells : int
        Number of border cells of the block.
    held : (lanes, cells in whole panels, columns)
        Lowered in place.
    arrived : (lanes, cells, columns)
        Costs that have arrived.
    fresh : (lanes, cells) uint8
        Where they are new; set to 0.

    Returns
    -------
    (lanes, cells in whole panels) uint8
        Which costs were lowered for a source of the lane.
    """
    lowered = np.zeros(held.shape[:2], np.uint8)
    _visit(panels, cells, held, arrived, fresh, lowered)
    return lowered


@compiled
def _relax_edges(
    held, lowered, ends, costs, first, last, bound, relative, absolute, known, arrived, fresh
):
    """Lower what arrives at another block over edges; return the least cost that was lowered."""
    noinline()
    lanes, _, wide = held.shape
    # per column, so that the columns of a lane are processed as vectors
    least = np.full(wide, infinity(costs))
    below = np.empty(wide, held.dtype)
    for p in range(lanes):
        limit = bound[p]
        for e in range(first, last):
            # Costs that have not been lowered since were carried over this edge before.
            if not lowered[p, ends[uint64(e), 0]]:
                continue
            cost = costs[uint64(e)]
            here = held[p, ends[uint64(e), 0]]
            there = known[p, ends[uint64(e), 1]]
            new_there = arrived[p, ends[uint64(e), 1]]
            for r in range(wide):
                value = here[uint64(r)] + cost
                old = new_there[uint64(r)]
                own = there[uint64(r)]
                better = (
                    (value < old)
                    & (value < limit[uint64(r)])
                    & (value < own + (own * relative + absolute))
                )
                new_there[uint64(r)] = value if better else old
                below[uint64(r)] = value if better else infinity(costs)
            new = False
            for r in range(wide):
                low = below[uint64(r)]
                new |= low < infinity(costs)
                least[uint64(r)] = low if low < least[uint64(r)] else least[uint64(r)]
            if new:
                fresh[p, ends[uint64(e), 1]] = 1
    return least.min()


def relax_edges(
    held: Array,
    lowered: Array,
    edges: tuple[Indices, Array],
    part: slice,
    bound: Array,
    limits: tuple[Any, Any],
    known: Array,
    arrived: Array,
    fresh: Array,
) -> float:
    """Relax the edges to another block; return the least cost that has newly arrived there.

    Parameters
    ----------
    held : (lanes, cells in whole panels, columns)
        Costs in this block.
    lowered : (lanes, cells in whole panels) uint8
        Which of them may have been lowered since its edges were relaxed, as from `visit`.
    edges : (e, 2) int64 and (e,)
        Start in this block and end in the other block of each edge, and its cost.
    part : slice
        Which of the edges lead to the other block.
    bound : (lanes, columns)
        Costs at or above it are not propagated; at most `unreached`. It never rises.
    limits : (relative, absolute)
        Of the other block, from `rounding`, or greater.
    known : (lanes, cells in whole panels, columns)
        Costs in the other block.
    arrived, fresh
        Costs that have arrived there, lowered in place, and which of them are new.

    Returns
    -------
    float
        The least cost that has arrived; `unreached` or more if none has.
    """
    return float(
        _relax_edges(
            held, lowered, *edges, part.start, part.stop, bound, *limits, known, arrived, fresh
        )
    )


@compiled
def _relax_target(held, rest, out):
    noinline()
    lanes, _, wide = held.shape
    for p in range(lanes):
        least = out[p]
        for j in range(rest.size):
            here = held[p, uint64(j)]
            for r in range(wide):
                value = here[uint64(r)] + rest[uint64(j)]
                old = least[uint64(r)]
                least[uint64(r)] = value if value < old else old


def relax_target(held: Array, rest: Array, out: Array) -> None:
    """Lower the (lanes, columns) costs of a cell by paths from the border, of costs ``rest``."""
    _relax_target(held, rest, out)


def no_costs(lanes: int, cells: int, dtype: npt.DTypeLike) -> Array:
    """Return ``held`` of a block of which no cell is reached."""
    return np.full((lanes, whole_panels(cells), lane_columns(dtype)), unreached(dtype), dtype)


def no_arrivals(lanes: int, cells: int, dtype: npt.DTypeLike) -> tuple[Array, Array]:
    """Return ``arrived`` and ``fresh`` of a block at which no cost has arrived."""
    shape = lanes, cells
    arrived = np.full((*shape, lane_columns(dtype)), unreached(dtype), dtype)
    return arrived, np.zeros(shape, np.uint8)


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
    """Return the costs of the steps from a raster's border cells into its halo.

    Returns
    -------
    (8, n)
        By `MOVES` and border cell; `unreached` for a step that stays inside or is barred.
    """
    height, width = costs.shape
    cells = border_cells(height, width)
    out = np.full((len(MOVES), len(cells)), unreached(costs.dtype), costs.dtype)
    moves = np.array(MOVES, np.int64)
    cost = np.empty(1, costs.dtype)
    _weigh_leaving(costs.friction, costs.elevation, costs.rules, cells, moves, cost, out)
    if costs.links is not None:
        for d, move in enumerate(MOVES):
            out[d] = costs.links.lowered(cells, move, out[d])
    # Steps that stay inside are part of the matrix.
    end = cells[None] + moves[:, None]
    out[((end >= 0) & (end < (height, width))).all(axis=2)] = unreached(costs.dtype)
    return out
