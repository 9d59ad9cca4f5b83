"""Merging of the boundary matrices of two neighbouring blocks that share no cell.

The edges across the seam extend the paths of the first block to the second block's cells at the
seam, by a few sums per element. These cells are then the line that paths pass through, as in
elimination.py, which defines the order of the cells and the elements of the matrices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from orograph.kernels.boundary.dissection import Rectangle, border_numbers, merged_border
from orograph.kernels.boundary.elimination import (
    BlockCosts,
    check_block,
    gather_half,
    pass_line,
)
from orograph.kernels.compiled import compiled
from orograph.kernels.minplus.lanes import BARRIER
from orograph.kernels.relax.edge_costs import edge
from orograph.tiles.arrays import Array, Indices


class Seam(NamedTuple):
    """The edges between two blocks that share no cell."""

    ends: Indices
    """(k, 2): border cell of the first block, border cell of the second block."""
    there: Array
    """(k,): cost from the first to the second."""
    back: Array
    """(k,): cost from the second to the first."""


@compiled(error_model="numpy")
def _weigh_edges(friction, elevation, rules, edges, cost, there, back):
    """Write the costs of edges both ways; edges: first end, counted with the halo, and step."""
    for e in range(edges.shape[0]):
        y, x, dy, dx = edges[e, 0], edges[e, 1], edges[e, 2], edges[e, 3]
        edge(friction, elevation, y, x, dy, dx, rules, cost)
        there[e] = cost[0] if cost[0] < rules.unreached else rules.unreached
        edge(friction, elevation, y + dy, x + dx, -dy, -dx, rules, cost)
        back[e] = cost[0] if cost[0] < rules.unreached else rules.unreached


def seam_edges(costs: BlockCosts, first: Rectangle, second: Rectangle) -> Seam:
    """Return the edges between two blocks of a raster that share no cell."""
    a = border_numbers(check_block(costs, first))
    b = border_numbers(check_block(costs, second))
    moves = [(0, 1), (1, 0), (0, -1), (-1, 0)]
    if costs.rules.steps > 1:
        moves += [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    near = [
        (i, b[y + dy, x + dx], y + 1, x + 1, dy, dx)
        for (y, x), i in a.items()
        for dy, dx in moves
        if (y + dy, x + dx) in b
    ]
    table = np.array(near, np.int64).reshape(-1, 6)
    there, back = np.empty((2, len(table)), costs.dtype)
    cost = np.empty(1, costs.dtype)
    _weigh_edges(
        costs.friction, costs.elevation, costs.rules, table[:, 2:].copy(), cost, there, back
    )
    if costs.links is not None:
        cells, steps = table[:, 2:4] - 1, table[:, 4:]
        there = costs.links.lowered(cells, steps, there)
        back = costs.links.lowered(cells + steps, -steps, back)
    return Seam(table[:, :2], there, back)


@compiled
def _merge(
    a, na, b, nb, runs, more, ends, line_of, line_cells, there, back, n, symmetric, unreached
):
    """Return the merged matrix, flat; ``line_cells``: border cells of B that are the line."""
    m = line_cells.size
    out = np.full(n * n, unreached, a.dtype)
    left = np.full(n * m, unreached, a.dtype)
    right = np.full(m * n, unreached, a.dtype)
    gather_half(out, n, left, right, a, na, runs, np.empty(0, np.int64), symmetric)
    gather_half(out, n, left, right, b, nb, more, line_cells, symmetric)
    for r in range(0, runs.size, 3):
        # From A's part of the border to the line, and back: a path in A, then an edge over the
        # seam.
        p0, a0, rows = runs[r], runs[r + 1], runs[r + 2]
        for e in range(ends.size):
            s = line_of[e]
            for p in range(rows):
                value = a[(a0 + p) * na + ends[e]] + there[e]
                if value < left[(p0 + p) * m + s]:
                    left[(p0 + p) * m + s] = value
                value = back[e] + a[ends[e] * na + a0 + p]
                if value < right[s * n + p0 + p]:
                    right[s * n + p0 + p] = value
    # Between cells of the line: a path in B, or over the seam, along A, and over the seam again.
    line = np.empty(m * m, a.dtype)
    for s in range(m):
        for t in range(m):
            line[s * m + t] = b[line_cells[s] * nb + line_cells[t]]
    # along A's side of the seam: from the line to A's cells at the seam, and back to the line
    across = np.full(m * ends.size, unreached, a.dtype)
    for e in range(ends.size):
        for f in range(ends.size):
            value = back[e] + a[ends[e] * na + ends[f]]
            if value < across[line_of[e] * ends.size + f]:
                across[line_of[e] * ends.size + f] = value
    for s in range(m):
        for f in range(ends.size):
            value = across[s * ends.size + f] + there[f]
            if value < line[s * m + line_of[f]]:
                line[s * m + line_of[f]] = value
    pass_line(out, n, line, m, left, right, np.empty(m * n, a.dtype), symmetric)
    return out


def merge_boundaries(
    a: Array,
    b: Array,
    seam: Seam,
    kept: tuple[Indices, Indices],
    size: int,
    *,
    symmetric: bool,
) -> Array:
    """Return the boundary matrix of the union of two blocks that share no cell.

    Parameters
    ----------
    a, b : (n, n) and (m, m), C order
        The matrices of the blocks.
    seam : Seam
        The edges between them.
    kept : two (k, 3) int64
        Runs of border cells of the union, for ``a`` and for ``b``: first number in the result,
        first number in ``a`` (or ``b``), and length. From `merged_border`.
    size : int
        Number of border cells of the union.
    symmetric : bool
        Whether the matrices are symmetric and the seam's costs equal in both directions.

    Returns
    -------
    (size, size)

    Raises
    ------
    ValueError
        If a matrix is not square, or dtypes or memory order are wrong.
    """
    for name, matrix in (("a", a), ("b", b)):
        square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
        if not square or matrix.dtype != a.dtype or not matrix.flags.c_contiguous:
            raise ValueError(
                f"{name} is {matrix.dtype} of shape {matrix.shape}; "
                f"must be a square of {a.dtype} in C order"
            )
    unreached = a.dtype.type(BARRIER if a.dtype.kind == "i" else np.inf)
    # B's ends of the edges are the line; several edges may end in one cell.
    line_cells, line_of = np.unique(seam.ends[:, 1], return_inverse=True)
    flat = _merge(
        a.reshape(-1),
        len(a),
        b.reshape(-1),
        len(b),
        kept[0].reshape(-1),
        kept[1].reshape(-1),
        np.ascontiguousarray(seam.ends[:, 0]),
        line_of.reshape(-1),
        line_cells,
        seam.there,
        seam.back,
        size,
        symmetric,
        unreached,
    )
    joined: Array = flat.reshape(size, size)
    return joined


def merge_blocks(
    costs: BlockCosts, first: tuple[Rectangle, Array], second: tuple[Rectangle, Array]
) -> tuple[Rectangle, Array]:
    """Return the union of two neighbouring blocks of a raster, a rectangle, and its matrix.

    Parameters
    ----------
    costs : BlockCosts
        The raster; only cells at the seam are read.
    first, second : (Rectangle, (n, n))
        Each block and its matrix; the second lies east or south of the first.

    Returns
    -------
    (Rectangle, (m, m))

    Raises
    ------
    ValueError
        If the union is not a rectangle.
    """
    whole, kept, size = merged_border(first[0], second[0])
    seam = seam_edges(costs, first[0], second[0])
    matrix = merge_boundaries(first[1], second[1], seam, kept, size, symmetric=costs.symmetric)
    return whole, matrix
