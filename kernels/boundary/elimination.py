"""Boundary distances: from every border cell of a block to every other, by paths inside the block.

``M[i, j]`` is the least cost of a path inside the block from border cell i to border cell j, 0 on
the diagonal; dissection.py says how border cells are counted.

*Method.* Nested dissection: a block is halved along a line of cells that both halves keep, down to
leaves of a few cells, where Floyd and Warshall's loops do all pairs. Two halves with matrices A and
B are joined by eliminating the line S: a path between cells that stay is one of A or one of B, or
it goes through S, so M = min(A, B, [A; B] (+) S* (+) [A, B]), where S* closes min(A, B) on the
line. Every product is one of minplus.py. George, "Nested dissection of a regular finite element
mesh", doi:10.1137/0710032; in this algebra Carre, doi:10.1093/imamat/7.3.273. About 37 s sums a
cell for blocks of side s where costs are symmetric (half of the last product is left out), less
than twice that where not.

*Why it is exact and deterministic.* The order of the eliminations depends on the block's shape
alone. Sums associate as it falls: floats agree with those of other methods within rounding,
integers exactly. Costs are not negative.

*Arrays.* Rasters have a halo of one cell, as relax.py has them, and blocks are counted without it.
Matrices are float64, float32 or int64, with infinity (int64: ``BARRIER``) where there is no path.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import uint64

from orograph.kernels.boundary.dissection import (
    BORDER,
    FIRST,
    FORWARD,
    HEIGHT,
    LEAF,
    LINE,
    SECOND,
    TABLES,
    WIDTH,
    Rectangle,
    border_cells,
    elimination_plan,
)
from orograph.kernels.compiled import compiled
from orograph.kernels.minplus.closure import close
from orograph.kernels.minplus.lanes import stand_apart
from orograph.kernels.minplus.product import product
from orograph.kernels.relax.edge_costs import edge
from orograph.kernels.relax.models import (
    BY_FRICTION,
    DIAGONAL,
    EAST_WEST,
    FRICTION,
    NORTH_SOUTH,
    CostModel,
    Rules,
    cost_rules,
    edge_lengths,
)

Array = npt.NDArray[Any]


class BlockCosts(NamedTuple):
    """Rasters with a halo of one cell, and what a step in them costs."""

    friction: Array
    elevation: Array
    rules: Rules

    @property
    def shape(self) -> tuple[int, int]:
        """Cells, the halo not counted."""
        raster = self.friction if self.rules.has_friction else self.elevation
        return raster.shape[0] - 2, raster.shape[1] - 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the costs."""
        return self.friction.dtype


def block_costs(
    friction: Array | None = None,
    elevation: Array | None = None,
    *,
    lengths: npt.NDArray[Any] | None = None,
    model: CostModel = BY_FRICTION,
    connectivity: int = 8,
) -> BlockCosts:
    """Check rasters and a cost model, for all functions here.

    Parameters
    ----------
    friction, elevation : (h + 2, w + 2) float64, float32 or int64, C order
        What the model asks for, with a halo of one cell: the neighbours' values, or barriers.
        NaN or infinity (int64: ``BARRIER``) is a barrier; friction is not negative. Matrices have
        the same dtype.
    lengths : (5, h + 2), optional
        As `orograph.kernels.relax.models.edge_lengths` gives it; default: cells of size 1.
    model : CostModel
    connectivity : {8, 4}

    Raises
    ------
    ValueError
        If shapes, dtypes, memory order or coefficients do not fit, or for 16 neighbours: their
        steps pass over a block's border, which then does not cut it off.
    """
    if connectivity == 16:
        raise ValueError(
            "connectivity=16: a knight's move passes over a block's border; use 4 or 8, or "
            "relax the whole raster"
        )
    given = {"friction": friction, "elevation": elevation}
    present = {name: raster for name, raster in given.items() if raster is not None}
    if not present:
        raise ValueError("neither friction nor elevation is given")
    like = next(iter(present.values()))
    lengths = edge_lengths(like.shape[0]) if lengths is None else lengths
    rules = cost_rules(like.dtype, lengths, model, connectivity, math.inf, set(present))
    for name, raster in present.items():
        if raster.ndim != 2 or min(raster.shape) < 3:
            raise ValueError(f"{name} has shape {raster.shape}; needs a cell within a halo of 1")
        if raster.shape != like.shape or raster.dtype != like.dtype:
            raise ValueError(
                f"{name} is {raster.dtype} of shape {raster.shape}; "
                f"must be {like.dtype} of shape {like.shape} as the other raster"
            )
        if not raster.flags.c_contiguous:
            raise ValueError(f"{name} is not in C order; pass numpy.ascontiguousarray of it")
    if lengths.shape[1] != like.shape[0]:
        raise ValueError(f"lengths has shape {lengths.shape}; must be {(5, like.shape[0])}")
    empty = np.empty((0, 0), like.dtype)
    return BlockCosts(
        present["friction"] if rules.has_friction else empty,
        present["elevation"] if rules.has_elevation else empty,
        rules,
    )


def check_block(costs: BlockCosts, block: Rectangle | None) -> Rectangle:
    """The block, by default the whole raster, if it lies in it."""
    height, width = costs.shape
    whole = Rectangle(0, 0, height, width)
    block = whole if block is None else Rectangle(*block)
    inside = block.top >= 0 and block.left >= 0 and min(block.height, block.width) >= 1
    if not inside or block.top + block.height > height or block.left + block.width > width:
        raise ValueError(f"{block} lies outside the raster of {height} x {width} cells")
    return block


@compiled(error_model="numpy")
def _weigh_steps(friction, elevation, rules, top, left, height, width, dy, dx, weights):
    """What the step by (dy, dx) costs from each cell of a block; first cell, halo counted.

    ``unreached`` where it is barred. What `edge` says; friction's own expression stands here again
    because it then takes vectors, and a call of `edge` costs as much as fifty of them.
    """
    stand_apart()
    cost = np.empty(1, weights.dtype)
    if rules.model == FRICTION:
        kind = EAST_WEST if dy == 0 else (NORTH_SOUTH if dx == 0 else DIAGONAL)
        for y in range(height):
            u = friction[top + y, left : left + width]
            v = friction[top + y + dy, left + dx : left + dx + width]
            length = rules.factors[kind, max(top + y, top + y + dy)]
            row = weights[y]
            for x in range(width):
                total = u[x] + v[x]
                value = total * length
                # NaN, and what is too much
                barred = total >= rules.barrier if rules.integer else not value < rules.unreached
                row[x] = rules.unreached if barred else value
        return
    for y in range(height):
        for x in range(width):
            edge(friction, elevation, top + y, left + x, dy, dx, rules, cost)
            barred = not cost[0] < rules.unreached
            weights[uint64(y), uint64(x)] = rules.unreached if barred else cost[0]


@compiled
def _solve_leaf(weights, y, x, table, edges, count, whole, pivot, unreached, symmetric, four):
    """All pairs of a leaf's cells; rows of ``whole`` have room for ``LEAF`` cells."""
    stand_apart()
    for i in range(LEAF * LEAF):
        whole[i] = unreached
    for i in range(count):
        whole[i * LEAF + i] = 0
    for e in range(0, 5 * edges, 5):
        i, j, v, u, d = table[e], table[e + 1], y + table[e + 2], x + table[e + 3], table[e + 4]
        if four and (d & 1):
            continue
        whole[uint64(i * LEAF + j)] = weights[uint64(d), uint64(v), uint64(u)]
        if not symmetric:
            d += 4
        whole[uint64(j * LEAF + i)] = weights[uint64(d), uint64(v), uint64(u)]
    for k in range(count):
        for j in range(LEAF):
            pivot[j] = whole[k * LEAF + j]
        for i in range(count):
            first = whole[uint64(i * LEAF + k)]
            if i != k and first < unreached:
                for j in range(LEAF):
                    total = first + pivot[uint64(j)]
                    old = whole[uint64(i * LEAF + j)]
                    whole[uint64(i * LEAF + j)] = total if total < old else old


@compiled
def copy_part(out, n, left, right, half, size, runs, line, below):
    """Take from a half (size x size) what joining needs: see `pass_line`.

    ``runs`` are those of the half in the whole's border, ``line`` the line's cells in it. What
    ``out`` holds is lowered. ``below``: it is symmetric, only what is below its diagonal counts.
    """
    stand_apart()
    m = line.size
    for r in range(0, runs.size, 3):
        p0, a0, rows = runs[r], runs[r + 1], runs[r + 2]
        for t in range(0, r + 3 if below else runs.size, 3):
            q0, b0, columns = runs[t], runs[t + 1], runs[t + 2]
            for i in range(rows):
                target = (p0 + i) * n + q0
                source = (a0 + i) * size + b0
                for j in range(columns):
                    value = half[uint64(source + j)]
                    old = out[uint64(target + j)]
                    out[uint64(target + j)] = value if value < old else old
        for i in range(rows):
            source = (a0 + i) * size
            for s in range(m):
                left[uint64((p0 + i) * m + s)] = half[uint64(source + line[uint64(s)])]
        for s in range(m):
            source = line[s] * size + a0
            for j in range(rows):
                right[uint64(s * n + p0 + j)] = half[uint64(source + j)]


@compiled
def pass_line(out, n, line, m, left, right, work, symmetric):
    """Let paths between n cells pass through a line of m: ``left`` n x m, ``right`` m x n."""
    stand_apart()
    # no constants: `product` would be compiled for them once more
    start, no = m - m, m < 0
    close(line, start, m, m, no, line[0] - line[0], None, start, start)
    # to the line and along it; the line's diagonal is 0, so no path to it is left out
    for i in range(m * n):
        work[uint64(i)] = right[uint64(i)]
    product(work, start, n, line, start, m, right, start, n, m, n, m, no, no)
    product(out, start, n, left, start, m, work, start, n, n, n, m, no, symmetric)
    if symmetric:
        for i in range(n):
            for j in range(i):
                out[uint64(j * n + i)] = out[uint64(i * n + j)]


@compiled
def _eliminate(weights, unreached, symmetric, four, shapes, tables, nodes, room):
    """The boundary matrix of a block, flat; ``room``: what its `Plan` says of sizes."""
    kept, longest, most = room
    stack = np.empty(kept, weights.dtype)
    leaf = np.empty(LEAF * LEAF, weights.dtype)
    pivot = np.empty(LEAF, weights.dtype)
    out = np.empty(most * most, weights.dtype)
    line = np.empty(longest * longest, weights.dtype)
    to_line = np.empty(longest * most, weights.dtype)
    from_line = np.empty(longest * most, weights.dtype)
    work = np.empty(longest * most, weights.dtype)
    end = 0
    for node in range(nodes.shape[0]):
        shape = shapes[nodes[node, 0]]
        n = shape[BORDER]
        at = shape[TABLES]
        if shape[FIRST] < 0:
            count = shape[HEIGHT] * shape[WIDTH]
            y, x = nodes[node, 1], nodes[node, 2]
            _solve_leaf(
                weights, y, x, tables[at + 1 :], tables[at], count, leaf, pivot, unreached,
                symmetric, four,
            )  # fmt: skip
            for i in range(n):
                for j in range(n):
                    stack[end + i * n + j] = leaf[i * LEAF + j]
            end += n * n
            continue
        na = shapes[shape[FIRST], BORDER]
        nb = shapes[shape[SECOND], BORDER]
        m = shape[LINE]
        b = stack[end - nb * nb : end]
        a = stack[end - nb * nb - na * na : end - nb * nb]
        runs = tables[at + 1 : at + 1 + 3 * tables[at]]
        at += 1 + 3 * tables[at]
        more = tables[at + 1 : at + 1 + 3 * tables[at]]
        at += 1 + 3 * tables[at]
        sa = tables[at : at + m]
        sb = tables[at + m : at + 2 * m]
        for i in range(n * n):
            out[uint64(i)] = unreached
        copy_part(out, n, to_line, from_line, a, na, runs, sa, symmetric)
        copy_part(out, n, to_line, from_line, b, nb, more, sb, symmetric)
        for s in range(m):
            for t in range(m):
                line[s * m + t] = min(a[sa[s] * na + sa[t]], b[sb[s] * nb + sb[t]])
        pass_line(out, n, line, m, to_line, from_line, work, symmetric)
        end -= na * na + nb * nb
        for i in range(n * n):
            stack[uint64(end + i)] = out[uint64(i)]
        end += n * n
    return stack[:end].copy()


def step_weights(costs: BlockCosts, block: Rectangle) -> Array:
    """What steps from each cell cost: (4, h, w) by the moves ``FORWARD``, or (8, h, w).

    Where costs depend on the direction the last four planes hold the steps back *to* each cell.
    """
    shape = (4 if costs.rules.symmetric else 8, block.height, block.width)
    weights = np.full(shape, costs.rules.unreached, costs.dtype)
    for d, (dy, dx) in enumerate(FORWARD):
        if costs.rules.steps == 1 and dy and dx:
            continue
        # an array's first cell is where a step forward begins, or one back ends
        west = max(0, -dx)
        rows, columns = block.height - dy, block.width - abs(dx)
        if rows < 1 or columns < 1:
            continue
        y, x = block.top + 1, block.left + 1 + west
        raster = (costs.friction, costs.elevation, costs.rules)
        there = weights[d, :rows, west : west + columns]
        _weigh_steps(*raster, y, x, rows, columns, dy, dx, there)
        if not costs.rules.symmetric:
            back = weights[4 + d, :rows, west : west + columns]
            _weigh_steps(*raster, y + dy, x + dx, rows, columns, -dy, -dx, back)
    return weights


def boundary_matrix(costs: BlockCosts, block: Rectangle | None = None) -> Array:
    """Distances between the border cells of a block, by paths inside it.

    Parameters
    ----------
    costs : BlockCosts
        From `block_costs`.
    block : Rectangle, optional
        A part of the raster, of any size; default: the whole.

    Returns
    -------
    (n, n) of the rasters' dtype
        Row: where the path starts; column: where it ends. Cells as `border_cells` counts them.

    Raises
    ------
    ValueError
        If the block lies outside the raster.
    """
    block = check_block(costs, block)
    plan = elimination_plan(block.height, block.width)
    rules = costs.rules
    four = rules.steps == 1
    weights = step_weights(costs, block)
    room = (plan.kept, plan.line, plan.border)
    flat = _eliminate(
        weights, rules.unreached, rules.symmetric, four, plan.shapes, plan.tables, plan.nodes, room
    )
    n = len(border_cells(block.height, block.width))
    matrix: Array = flat.reshape(n, n)
    return matrix
