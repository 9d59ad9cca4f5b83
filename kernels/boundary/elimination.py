"""Boundary matrices: distances between all border cells of a block, by paths inside the block.

``M[i, j]`` is the least cost of a path inside the block from border cell i to border cell j, 0 on
the diagonal; dissection.py defines the order of the border cells.

*Method.* Nested dissection: a block is cut into two halves along a separator, a line of cells that
belongs to both halves. The cuts end at leaves of a few cells, which the Floyd-Warshall algorithm
solves. Two halves with matrices A and B are joined by eliminating the line S. A path between the
remaining cells lies in A, lies in B, or passes through S, so M = min(A, B, [A; B] (+) S* (+)
[A, B]), where S* is the closure of min(A, B) on the line. minplus/product.py computes every
product. George, "Nested dissection of a regular finite element mesh", doi:10.1137/0710032; in this
algebra Carre, doi:10.1093/imamat/7.3.273. It takes about 37 s sums per cell for blocks of side s if
costs are symmetric (half of the last product is left out), and less than twice that if they are
not.

*Why it is exact and deterministic.* The order of the eliminations depends on the block's shape
alone, and sums associate in this order. Floats agree with those of other methods within rounding,
integers exactly. Costs are not negative.

*Arrays.* Rasters have a halo of one cell, as in relax/tile.py; coordinates of blocks do not count
it. Matrices are float64, float32 or int64, with infinity (int64: ``BARRIER``) where there is no
path.
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
from orograph.kernels.boundary.links import BlockLinks
from orograph.kernels.compiled import compiled
from orograph.kernels.minplus.closure import close
from orograph.kernels.minplus.lanes import noinline
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
from orograph.tiles.arrays import Array, Indices


class BlockCosts(NamedTuple):
    """Rasters with a halo of one cell, the cost rules of steps between their cells, and links."""

    friction: Array
    elevation: Array
    rules: Rules
    links: BlockLinks | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns without the halo."""
        raster = self.friction if self.rules.has_friction else self.elevation
        return raster.shape[0] - 2, raster.shape[1] - 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the costs."""
        return self.friction.dtype

    @property
    def symmetric(self) -> bool:
        """Whether all steps and links cost the same in both directions."""
        return self.rules.symmetric and (self.links is None or self.links.symmetric)

    @property
    def ends(self) -> Indices:
        """The border cells, in the order of `border_cells`, and then the terminals of links."""
        border = border_cells(*self.shape)
        return border if self.links is None else np.concatenate([border, self.links.terminals])


def block_costs(
    friction: Array | None = None,
    elevation: Array | None = None,
    *,
    lengths: npt.NDArray[Any] | None = None,
    model: CostModel = BY_FRICTION,
    connectivity: int = 8,
) -> BlockCosts:
    """Return rasters and a cost model, checked for the functions of this package.

    Parameters
    ----------
    friction, elevation : (h + 2, w + 2) float64, float32 or int64, C order
        The rasters of the model, with a halo of one cell: the neighbours' values, or barriers.
        NaN or infinity (int64: ``BARRIER``) is a barrier; friction is not negative. Matrices have
        the same dtype.
    lengths : (5, h + 2), optional
        From `orograph.kernels.relax.models.edge_lengths`; default: cells of size 1.
    model : CostModel
    connectivity : {8, 4}

    Raises
    ------
    ValueError
        If shapes, dtypes, memory order or coefficients are wrong, or for 16 neighbours: their steps
        can jump over a block's border, which is then no separator.
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
    """Return the block, by default the whole raster; raise ValueError if it lies outside."""
    height, width = costs.shape
    whole = Rectangle(0, 0, height, width)
    block = whole if block is None else Rectangle(*block)
    inside = block.top >= 0 and block.left >= 0 and min(block.height, block.width) >= 1
    if not inside or block.top + block.height > height or block.left + block.width > width:
        raise ValueError(f"{block} lies outside the raster of {height} x {width} cells")
    return block


@compiled(error_model="numpy")
def _weigh_steps(
    friction, elevation, rules, top, left, height, width, dy, dx, weights, plane, west
):
    """Write the cost of the step by (dy, dx) from each cell of a block into a plane of weights.

    top, left : first cell of the block, counted with the halo; west : its column in the plane. A
    view of the plane in place of these would be of two types, contiguous and not. The cost is
    ``unreached`` for steps that are barred. The values are those of `edge`. The expression for
    friction is repeated here because LLVM vectorises it; a call of `edge` takes as long as fifty of
    its evaluations.
    """
    noinline()
    cost = np.empty(1, weights.dtype)
    if rules.model == FRICTION:
        kind = EAST_WEST if dy == 0 else (NORTH_SOUTH if dx == 0 else DIAGONAL)
        for y in range(height):
            u = friction[top + y, left : left + width]
            v = friction[top + y + dy, left + dx : left + dx + width]
            length = rules.factors[kind, max(top + y, top + y + dy)]
            row = weights[plane, y, west : west + width]
            for x in range(width):
                total = u[x] + v[x]
                value = total * length
                # barred if it is NaN or too large
                barred = total >= rules.barrier if rules.integer else not value < rules.unreached
                row[x] = rules.unreached if barred else value
        return
    for y in range(height):
        for x in range(width):
            edge(friction, elevation, top + y, left + x, dy, dx, rules, cost)
            barred = not cost[0] < rules.unreached
            weights[plane, y, uint64(west + x)] = rules.unreached if barred else cost[0]


@compiled
def _solve_leaf(weights, y, x, table, edges, count, whole, pivot, unreached, symmetric, four):
    """Write the distances of all pairs of a leaf's cells; rows of ``whole`` hold ``LEAF`` cells."""
    noinline()
    for i in range(LEAF * LEAF):
        whole[i] = unreached
    for i in range(count):
        whole[i * LEAF + i] = 0
    for e in range(0, 5 * edges, 5):
        i, j, v, u, d = table[e], table[e + 1], y + table[e + 2], x + table[e + 3], table[e + 4]
        # Moves 1 and 3 of ``FORWARD`` are diagonal.
        if four and (d & 1):
            continue
        whole[uint64(i * LEAF + j)] = weights[uint64(d), uint64(v), uint64(u)]
        if not symmetric:
            # The planes of reverse steps stand behind the four of forward steps.
            d += 4
        whole[uint64(j * LEAF + i)] = weights[uint64(d), uint64(v), uint64(u)]
    for k in range(count):
        # Floyd-Warshall. The pivot's row does not change in its own turn, as the diagonal is 0.
        # Rows are LEAF cells long, unreached beyond the last cell, so that loops over them have a
        # fixed length.
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
def gather_half(out, n, left, right, half, size, runs, line, below):
    """Copy from a half's matrix (size x size) the operands of `pass_line`.

    ``runs`` are the border cells of the half in the border of the whole, ``line`` the cells of the
    line in the half. ``out`` is lowered to the half's distances. ``below``: the matrix is symmetric
    and only the triangle below its diagonal is used.
    """
    noinline()
    m = line.size
    for r in range(0, runs.size, 3):
        p0, a0, rows = runs[r], runs[r + 1], runs[r + 2]
        # Runs up to the row's own: the triangle below the diagonal, rounded up to whole runs.
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
    """Lower n x n distances by paths through a line of m: ``left`` n x m, ``right`` m x n."""
    noinline()
    # not literals, for which Numba would compile another version of `product`
    start, no = m - m, m < 0
    close(line, start, m, m, no, line[0] - line[0], None, start, start)
    # from the line, also after a path along it; the line's diagonal is 0, so direct paths remain
    for i in range(m * n):
        work[uint64(i)] = right[uint64(i)]
    product(work, start, n, line, start, m, right, start, n, m, n, m, no, no)
    product(out, start, n, left, start, m, work, start, n, n, n, m, no, symmetric)
    if symmetric:
        for i in range(n):
            for j in range(i):
                out[uint64(j * n + i)] = out[uint64(i * n + j)]


@compiled
def _eliminate(weights, unreached, symmetric, four, shapes, tables, nodes, sizes):
    """Return the boundary matrix of a block, flat; ``sizes``: (kept, line, border) of its plan."""
    kept, longest, most = sizes
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
        # Nodes come in postorder, so the matrices of the two halves are on top of the stack. They
        # are copied before the result takes their place.
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
        gather_half(out, n, to_line, from_line, a, na, runs, sa, symmetric)
        gather_half(out, n, to_line, from_line, b, nb, more, sb, symmetric)
        for s in range(m):
            for t in range(m):
                # Both halves hold the cells of the line; a path between two of them may lie in
                # either.
                line[s * m + t] = min(a[sa[s] * na + sa[t]], b[sb[s] * nb + sb[t]])
        pass_line(out, n, line, m, to_line, from_line, work, symmetric)
        end -= na * na + nb * nb
        for i in range(n * n):
            stack[uint64(end + i)] = out[uint64(i)]
        end += n * n
    return stack[:end].copy()


def step_weights(costs: BlockCosts, block: Rectangle) -> Array:
    """Return the costs of steps from each cell: (4, h, w) by the moves ``FORWARD``, or (8, h, w).

    If costs depend on the direction, the last four planes hold the costs of the reverse steps *to*
    each cell.
    """
    shape = (4 if costs.symmetric else 8, block.height, block.width)
    weights = np.full(shape, costs.rules.unreached, costs.dtype)
    for d, (dy, dx) in enumerate(FORWARD):
        if costs.rules.steps == 1 and dy and dx:
            continue
        # the first cell is the start of a forward step, or the end of a reverse step
        west = max(0, -dx)
        rows, columns = block.height - dy, block.width - abs(dx)
        if rows < 1 or columns < 1:
            continue
        y, x = block.top + 1, block.left + 1 + west
        raster = (costs.friction, costs.elevation, costs.rules)
        _weigh_steps(*raster, y, x, rows, columns, dy, dx, weights, d, west)
        if not costs.symmetric:
            back = *raster, y + dy, x + dx, rows, columns, -dy, -dx
            _weigh_steps(*back, weights, 4 + d, west)
    if costs.links is not None:
        _lower_to_links(weights, costs.links, block)
    return weights


def _lower_to_links(weights: Array, links: BlockLinks, block: Rectangle) -> None:
    """Lower the costs of steps in a block, as `step_weights` returns them, to those of links."""
    cells, moves = links.steps
    cells = cells - (block.top, block.left)
    ends = cells + moves
    inside = ((np.minimum(cells, ends) >= 0) & (np.maximum(cells, ends) < weights.shape[1:])).all(1)
    for d, move in enumerate(FORWARD):
        # of a reverse step the costs stand at its end
        for plane, chosen, at in ((d, moves == move, cells), (4 + d, -moves == move, ends)):
            if plane < len(weights):
                there = inside & chosen.all(axis=1)
                np.minimum.at(weights[plane], tuple(at[there].T), links.costs[there])


def boundary_matrix(costs: BlockCosts, block: Rectangle | None = None) -> Array:
    """Return the distances between the border cells of a block, by paths inside it.

    Parameters
    ----------
    costs : BlockCosts
        From `block_costs`.
    block : Rectangle, optional
        A part of the raster, of any size; default: the whole raster.

    Returns
    -------
    (n, n) of the rasters' dtype
        Row: start of the path; column: end of the path. Cells in the order of `border_cells`.

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
    sizes = (plan.kept, plan.line, plan.border)
    flat = _eliminate(
        weights, rules.unreached, costs.symmetric, four, plan.shapes, plan.tables, plan.nodes, sizes
    )
    n = len(border_cells(block.height, block.width))
    matrix: Array = flat.reshape(n, n)
    return matrix
