"""The closure of a matrix under min-plus products: the least sums along all paths of a dense graph.

Floyd and Warshall's algorithm goes through the diagonal in steps of ``STEP``: Venkataraman et al.,
"A blocked all-pairs shortest-paths algorithm", doi:10.1145/996546.996553. Sums associate as the
steps fall: float results agree within rounding with those of other block sizes, integers exactly.
minplus.py says what matrices hold.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from orograph.kernels.compiled import compiled
from orograph.kernels.minplus.lanes import nothing, packed, stand_apart
from orograph.kernels.minplus.product import (
    Array,
    check_element,
    check_matrix,
    copy_part,
    has_signs,
    product,
    product_traced,
)

STEP, STRIDE_OF_STEPS = 64, 256  # of small matrices, and of large ones

# Where ``before`` is None below, Numba leaves out what has to do with predecessors.


@compiled
def _close_small(a, at, stride, n, tolerance, before, b_at, b_stride):
    """Floyd and Warshall's three loops; the first vertex on a negative cycle, or -1."""
    stand_apart()
    pivot = np.empty(n, a.dtype)
    for k in range(n):
        through = at + k * stride
        if a[through + k] < 0:
            if a[through + k] < -tolerance:
                return k
            a[through + k] = 0
        for j in range(n):
            pivot[uint64(j)] = packed(a[uint64(through + j)])
        for i in range(n):
            row = at + i * stride
            first = packed(a[row + k])
            if i == k or first >= nothing(a):
                continue
            if before is not None:
                for j in range(n):
                    total = first + pivot[uint64(j)]
                    if total < a[uint64(row + j)]:
                        a[uint64(row + j)] = total
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
    """Let paths of an n x n matrix pass through the m vertices from k on, which are closed."""
    stand_apart()
    end = k + m
    # the rows of these vertices, then their columns, then all the rest: each part (top, left,
    # rows, columns) by the product of what is in its rows and what is in its columns
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
            if turn == 0 or turn == 2:
                copy_part(panel, 0, n, before, b_at + k * b_stride, b_stride, m, n)
            p_at = b_at + y * b_stride + x
            product_traced(
                a, c_at, stride, a, x_at, stride, a, y_at, stride, h, w, m,
                before, p_at, b_stride, panel, x, n,
            )  # fmt: skip
        else:
            whole = turn < 0  # no constant: `product` would be compiled for it once more
            product(a, c_at, stride, a, x_at, stride, a, y_at, stride, h, w, m, signed, whole)


@compiled
def close(a, at, stride, n, signed, tolerance, before, b_at, b_stride):
    """The least sums along all paths of an n x n matrix, in place, given flat.

    ``before``: predecessors, or None. Returns a vertex on a negative cycle, or -1. A negative
    diagonal element of no more than ``tolerance`` is taken for a zero that was rounded.
    """
    stand_apart()
    large = STRIDE_OF_STEPS if n > 2 * STRIDE_OF_STEPS else n
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
    """Replace a matrix of edge lengths by that of least path lengths, in place.

    Parameters
    ----------
    a : (n, n) float64, float32 or int64, C order
        Lengths; infinity (integers: ``BARRIER``) where there is no edge. The diagonal is 0, or the
        length of a loop if that is negative.
    before : (n, n) int32, optional
        Predecessors to keep in step: at first i where there is an edge from i to j, else -9999.
    tolerance : float
        A cycle that is longer than ``-tolerance`` counts as one of length 0.

    Returns
    -------
    int or None
        A vertex on a cycle of negative length, at which the work was given up, or None.

    Raises
    ------
    ValueError
        If shapes, dtypes or memory order do not fit.
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
