"""The closure of a matrix under min-plus products: the least path lengths of a dense graph.

The blocked Floyd-Warshall algorithm proceeds along the diagonal in steps of ``STEP`` vertices:
Venkataraman et al., "A blocked all-pairs shortest-paths algorithm", doi:10.1145/996546.996553. Sums
associate in the order of the steps: float results agree within rounding with those of other block
sizes, integers exactly. product.py defines the elements of matrices.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from orograph.kernels.compiled import compiled
from orograph.kernels.minplus.lanes import infinity, lift, noinline
from orograph.kernels.minplus.product import (
    check_element,
    check_matrix,
    copy_part,
    has_signs,
    product,
    product_traced,
)
from orograph.tiles.arrays import Array

STEP, LARGE_STEP = 64, 256  # vertices of a step; large matrices take both, nested

# If ``before`` is None, Numba compiles the functions below without predecessors.


@compiled
def _close_small(a, at, stride, n, tolerance, before, b_at, b_stride):
    """Run the Floyd-Warshall algorithm; return the first vertex on a negative cycle, or -1."""
    noinline()
    pivot = np.empty(n, a.dtype)
    for k in range(n):
        through = at + k * stride
        # A negative distance to itself is a negative cycle, unless rounding alone can have made it.
        if a[through + k] < 0:
            if a[through + k] < -tolerance:
                return k
            a[through + k] = 0
        for j in range(n):
            # The pivot's row is copied and lifted once; it does not change in its own turn.
            pivot[uint64(j)] = lift(a[uint64(through + j)])
        for i in range(n):
            row = at + i * stride
            first = lift(a[row + k])
            # No path leads from i by way of k.
            if i == k or first >= infinity(a):
                continue
            if before is not None:
                for j in range(n):
                    total = first + pivot[uint64(j)]
                    if total < a[uint64(row + j)]:
                        a[uint64(row + j)] = total
                        # The last step of a path by way of k is that of the path from k.
                        last = before[uint64(b_at + k * b_stride + j)]
                        before[uint64(b_at + i * b_stride + j)] = last
            else:
                for j in range(n):
                    total = first + pivot[uint64(j)]
                    old = a[uint64(row + j)]
                    a[uint64(row + j)] = total if total < old else old
    return -1


@compiled
def _pass_through(a, at, stride, n, k, m, signed, before, b_at, b_stride, panel):
    """Lower an n x n matrix by paths through the m vertices from k on, which are closed."""
    noinline()
    end = k + m
    # the rows of these vertices, then their columns, then all other parts; a part (y, x, h, w) is
    # lowered by the product of the columns of these vertices and their rows
    for turn in range(8):
        y, h = k, m
        if turn >= 2:
            second = turn & 1 if turn < 4 else turn & 2
            y, h = (end, n - end) if second else (0, k)
        x, w = k, m
        if turn < 2 or turn >= 4:
            x, w = (end, n - end) if turn & 1 else (0, k)
        c_at = at + y * stride + x
        x_at = at + y * stride + k
        y_at = at + k * stride + x
        if before is not None:
            # Predecessors of these vertices' rows are copied: once before their rows are lowered,
            # and again with what that has changed.
            if turn == 0 or turn == 2:
                copy_part(panel, 0, n, before, b_at + k * b_stride, b_stride, m, n)
            p_at = b_at + y * b_stride + x
            product_traced(
                a, c_at, stride, a, x_at, stride, a, y_at, stride, h, w, m,
                before, p_at, b_stride, panel, x, n,
            )  # fmt: skip
        else:
            # False, but no literal, for which Numba would compile another version of `product`
            whole = turn < 0
            product(a, c_at, stride, a, x_at, stride, a, y_at, stride, h, w, m, signed, whole)


@compiled
def close(a, at, stride, n, signed, tolerance, before, b_at, b_stride):
    """Replace a flat n x n matrix by its closure; return a vertex on a negative cycle, or -1.

    ``before``: predecessors, or None. A negative diagonal element of magnitude ``tolerance`` or
    less counts as a rounded zero.
    """
    noinline()
    # Two levels of blocks: within a large one the square alone is brought to its closure, and then
    # all of the matrix is lowered by it.
    large = LARGE_STEP if n > 2 * LARGE_STEP else n
    panel = None if before is None else np.empty(large * n, np.int32)
    for first in range(0, n, large):
        size = min(large, n - first)
        d = at + first * (stride + 1)
        p = b_at + first * (b_stride + 1)
        for k in range(0, size, STEP):
            m = min(STEP, size - k)
            d_k = d + k * (stride + 1)
            p_k = p + k * (b_stride + 1)
            bad = _close_small(a, d_k, stride, m, tolerance, before, p_k, b_stride)
            if bad >= 0:
                return first + k + bad
            _pass_through(a, d, stride, size, k, m, signed, before, p, b_stride, panel)
        if size < n:
            _pass_through(a, at, stride, n, first, size, signed, before, b_at, b_stride, panel)
    return -1


def floyd_warshall_block(
    a: Array, *, before: Array | None = None, tolerance: float = 0.0
) -> int | None:
    """Replace a matrix of edge lengths by the least path lengths; return a vertex or None.

    Parameters
    ----------
    a : (n, n) float64, float32 or int64, C order
        Lengths; infinity (integers: ``BARRIER``) where there is no edge. The diagonal is 0, or the
        length of a loop if that is negative.
    before : (n, n) int32, optional
        Predecessors, updated in place: initially i where there is an edge from i to j, else -9999.
    tolerance : float
        A cycle whose length is ``-tolerance`` or more and below 0 counts as one of length 0.

    Returns
    -------
    int or None
        A vertex on a cycle of negative length, at which the computation stopped, or None.

    Raises
    ------
    ValueError
        If shapes, dtypes or memory order are wrong.
    """
    check_element(a.dtype)
    n = a.shape[0]
    check_matrix("a", a, a.dtype, (n, n))
    if before is not None:
        check_matrix("before", before, np.int32, (n, n))
    p = None if before is None else before.reshape(-1)
    limit = a.dtype.type(tolerance)
    bad = close(a.reshape(-1), 0, n, n, has_signs(a), limit, p, 0, n)
    return None if bad < 0 else int(bad)
