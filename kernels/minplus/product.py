"""The min-plus product C = min(C, A (+) B).

*Method.* C[i, j] = min(C[i, j], min over k of A[i, k] + B[k, j]) is computed like a matrix product.
B is packed into panels of two vectors' width and A into panels of a few rows, so that the innermost
loop reads both sequentially. This loop keeps a tile of C in registers (12 x 2 vectors of 64 bytes
with AVX-512, 6 x 2 of 32 bytes without): Goto and van de Geijn, "Anatomy of high-performance matrix
multiplication", doi:10.1145/1356052.1356053. The innermost loop is LLVM vector code, one addition
and one minimum per sum.

*Why it is deterministic.* Each sum is rounded once and their minimum is taken, so the bits of a
product do not depend on tile sizes. NaN (infinity minus infinity) is not less than any number, so
it changes nothing. -0.0 in A or B counts as 0.0. C holds no NaN.

*Arrays.* float64, float32 or int64. A missing path is infinity, or in integers ``BARRIER`` (2**60)
or more. Packing raises barriers to 2**61, so a barrier plus a weight between -2**59 and 2**59 stays
a barrier. Offsets have 64 bits.

*Predecessors.* ``before[i, j]`` is the vertex before j on the path from i. Of equal sums the one
with the least k is taken, and an equal sum never replaces a known path.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import uint64

from orograph.kernels.compiled import compiled
from orograph.kernels.minplus.lanes import (
    BARRIER,
    TILE_ROWS,
    TRACED_ROWS,
    VECTOR_BYTES,
    infinity,
    lift,
    lower_signed,
    lower_traced,
    lower_unsigned,
    noinline,
)
from orograph.tiles.arrays import Array

DEPTH = 512  # values of k in a panel
ROWS = 96  # of A that are packed at once, to stay in the L2 cache
COLUMNS = 1024  # of B that are packed at once
NO_VERTEX = -9999  # as in SciPy


@compiled
def _pack_rows(a, start, stride, rows, depth, out, tall):
    """Pack ``rows`` x ``depth`` of A into panels of ``tall`` rows, padded with infinity."""
    noinline()
    at = 0
    # Panel by panel, and in a panel step by step, in the order in which the innermost loop reads.
    for first in range(0, rows, tall):
        for r in range(tall):
            source = start + (first + r) * stride
            if first + r < rows:
                for k in range(depth):
                    out[uint64(at + k * tall + r)] = lift(a[uint64(source + k)])
            else:
                for k in range(depth):
                    out[uint64(at + k * tall + r)] = infinity(a)
        at += depth * tall


@compiled
def _pack_columns(b, start, stride, depth, columns, out, wide):
    """Pack ``depth`` x ``columns`` of B into panels of ``wide`` columns, padded with infinity."""
    noinline()
    at = 0
    for first in range(0, columns, wide):
        full = min(wide, columns - first)
        for k in range(depth):
            source = start + k * stride + first
            for j in range(full):
                out[uint64(at + j)] = lift(b[uint64(source + j)])
            for j in range(full, wide):
                out[uint64(at + j)] = infinity(b)
            at += wide


@compiled
def copy_part(target, t_at, t_stride, source, s_at, s_stride, rows, columns):
    """Copy a part of a matrix, given by flat array, offset and stride."""
    noinline()
    for i in range(rows):
        for j in range(columns):
            target[uint64(t_at + i * t_stride + j)] = source[uint64(s_at + i * s_stride + j)]


@compiled
def _lower_block(c, at, stride, rows, columns, a, b, steps, corner, signed, above):
    """Lower a block of C by packed panels.

    ``above``: first row minus first column of the block; tiles above the diagonal are left out.
    """
    noinline()
    wide = 2 * VECTOR_BYTES // c.itemsize
    tall = TILE_ROWS
    for x in range(0, columns, wide):
        for y in range(0, rows, tall):
            if above + y + tall <= x:
                continue
            h = min(tall, rows - y)
            w = min(wide, columns - x)
            start = at + y * stride + x
            # A tile that reaches over the edge is lowered in a copy, so that the innermost loop
            # always has a whole one.
            whole = h == tall and w == wide
            if not whole:
                copy_part(corner, 0, wide, c, start, stride, h, w)
            tile = c if whole else corner
            first = start if whole else 0
            step = stride if whole else wide
            if signed:
                lower_signed(a, y * steps, b, x * steps, steps, tile, first, step, 0)
            else:
                lower_unsigned(a, y * steps, b, x * steps, steps, tile, first, step, 0)
            if not whole:
                copy_part(c, start, stride, corner, 0, wide, h, w)


@compiled
def product(
    c, c_at, c_stride, a, a_at, a_stride, b, b_at, b_stride, rows, columns, depth, signed, lower
):
    """Lower a part of a matrix by a product; matrices are flat arrays, offsets and strides.

    ``signed``: A or B may hold negative floats. ``lower``: leave out tiles of C that lie above its
    diagonal. C may be B itself if ``depth`` is at most ``DEPTH``, and A itself if
    ``columns`` is also at most ``COLUMNS``: the operands have been packed before they are replaced.
    """
    noinline()
    if rows == 0 or columns == 0 or depth == 0:
        return
    wide = 2 * VECTOR_BYTES // c.itemsize
    tall = TILE_ROWS
    # Loops after Goto: a panel of B stays in a larger cache while blocks of A, packed into a
    # smaller one, pass by it.
    deep = min(DEPTH, depth)
    high = min(ROWS, -(-rows // tall) * tall)
    broad = min(COLUMNS, -(-columns // wide) * wide)
    packed_a = np.empty(high * deep, c.dtype)
    packed_b = np.empty(broad * deep, c.dtype)
    corner = np.empty(tall * wide, c.dtype)
    for k in range(0, depth, deep):
        steps = min(deep, depth - k)
        for x in range(0, columns, broad):
            w = min(broad, columns - x)
            _pack_columns(b, b_at + k * b_stride + x, b_stride, steps, w, packed_b, wide)
            for y in range(0, rows, high):
                h = min(high, rows - y)
                above = y - x if lower else columns
                if above + h <= 0:
                    continue
                _pack_rows(a, a_at + y * a_stride + k, a_stride, h, steps, packed_a, tall)
                at = c_at + y * c_stride + x
                _lower_block(
                    c, at, c_stride, h, w, packed_a, packed_b, steps, corner, signed, above
                )


@compiled
def _lower_block_traced(
    c,
    c_at,
    c_stride,
    p,
    p_at,
    p_stride,
    q,
    q_at,
    q_stride,
    rows,
    columns,
    a,
    b,
    steps,
    corner,
    which,
):
    """Lower a block of C and set its predecessors (p) from those of B (q)."""
    noinline()
    wide = 2 * VECTOR_BYTES // c.itemsize
    tall = TRACED_ROWS
    for x in range(0, columns, wide):
        for y in range(0, rows, tall):
            h = min(tall, rows - y)
            w = min(wide, columns - x)
            start = c_at + y * c_stride + x
            whole = h == tall and w == wide
            if not whole:
                copy_part(corner, 0, wide, c, start, c_stride, h, w)
            tile = c if whole else corner
            first = start if whole else 0
            step = c_stride if whole else wide
            lower_traced(a, y * steps, b, x * steps, steps, tile, first, step, which)
            if not whole:
                copy_part(c, start, c_stride, corner, 0, wide, h, w)
            for i in range(h):
                target = p_at + (y + i) * p_stride + x
                for j in range(w):
                    # The last step that lowered the element, or -1; the path from there ends as
                    # that of B does.
                    k = which[uint64(i * wide + j)]
                    if k >= 0:
                        p[uint64(target + j)] = q[uint64(q_at + k * q_stride + x + j)]


@compiled
def product_traced(
    c,
    c_at,
    c_stride,
    a,
    a_at,
    a_stride,
    b,
    b_at,
    b_stride,
    rows,
    columns,
    depth,
    p,
    p_at,
    p_stride,
    q,
    q_at,
    q_stride,
):
    """Lower a part of a matrix as `product` does, and set predecessors: p of C, from q of B.

    C may be A or B as in `product`; p must share no memory with q.
    """
    noinline()
    if rows == 0 or columns == 0 or depth == 0:
        return
    wide = 2 * VECTOR_BYTES // c.itemsize
    tall = TRACED_ROWS
    deep = min(DEPTH, depth)
    high = min(ROWS, -(-rows // tall) * tall)
    broad = min(COLUMNS, -(-columns // wide) * wide)
    packed_a = np.empty(high * deep, c.dtype)
    packed_b = np.empty(broad * deep, c.dtype)
    corner = np.empty(tall * wide, c.dtype)
    found = np.empty(tall * wide, np.int32)
    for k in range(0, depth, deep):
        steps = min(deep, depth - k)
        for x in range(0, columns, broad):
            w = min(broad, columns - x)
            _pack_columns(b, b_at + k * b_stride + x, b_stride, steps, w, packed_b, wide)
            for y in range(0, rows, high):
                h = min(high, rows - y)
                _pack_rows(a, a_at + y * a_stride + k, a_stride, h, steps, packed_a, tall)
                at = c_at + y * c_stride + x
                to = p_at + y * p_stride + x
                source = q_at + k * q_stride + x
                _lower_block_traced(
                    c,
                    at,
                    c_stride,
                    p,
                    to,
                    p_stride,
                    q,
                    source,
                    q_stride,
                    h,
                    w,
                    packed_a,
                    packed_b,
                    steps,
                    corner,
                    found,
                )


def check_matrix(name: str, array: Array, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless an array has this dtype, this shape and C order."""
    if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(
            f"{name} is {array.dtype} of shape {array.shape}; "
            f"must be {np.dtype(dtype)} of shape {shape}, in C order"
        )


def check_element(dtype: np.dtype[Any]) -> None:
    """Raise ValueError unless the elements are float64, float32 or int64."""
    if dtype not in (np.float64, np.float32, np.int64):
        raise ValueError(f"elements are {dtype}; must be float64, float32 or int64")


def has_signs(*arrays: Array) -> bool:
    """Return whether a float array has an element with its sign bit set; integers do not count."""
    return any(
        a.dtype.kind == "f" and a.size > 0 and bool(a.view(f"i{a.itemsize}").min() < 0)
        for a in arrays
    )


def minplus(
    a: Array,
    b: Array,
    out: Array | None = None,
    *,
    before_b: Array | None = None,
    before: Array | None = None,
    signed: bool | None = None,
) -> Array:
    """Return the min-plus product ``min(out[i, j], min over k of a[i, k] + b[k, j])``.

    Parameters
    ----------
    a : (n, k) float64, float32 or int64, C order
    b : (k, m) of the same dtype
        Infinity, or ``BARRIER`` in integers, where there is no path. Integers lie between -2**59
        and 2**59, or are barriers.
    out : (n, m) of the same dtype, optional
        Lowered in place; by default a new array of infinity. Shares no memory with a or b.
    before_b, before : (k, m) and (n, m) int32, optional
        Predecessors, if both are given: where an element of ``out`` is lowered through k,
        ``before[i, j]`` is set to ``before_b[k, j]``. Of equal sums the one with the least k is
        taken.
    signed : bool, optional
        Whether a or b may hold a float with its sign bit set; by default they are searched for one.
        Without any, the product is faster.

    Returns
    -------
    (n, m)
        ``out``.

    Raises
    ------
    ValueError
        If shapes, dtypes or memory order are wrong.

    Notes
    -----
    The bits depend on the values alone: each sum is rounded once.
    """
    check_element(a.dtype)
    n, m, depth = a.shape[0], b.shape[1], b.shape[0]
    if out is None:
        out = np.full((n, m), BARRIER if a.dtype.kind == "i" else np.inf, a.dtype)
    for name, array, shape in (("a", a, (n, depth)), ("b", b, (depth, m)), ("out", out, (n, m))):
        check_matrix(name, array, a.dtype, shape)
    c = (out.reshape(-1), 0, m, a.reshape(-1), 0, depth, b.reshape(-1), 0, m, n, m, depth)
    if before is None or before_b is None:
        product(*c, has_signs(a, b) if signed is None else signed, False)
        return out
    check_matrix("before_b", before_b, np.int32, (depth, m))
    check_matrix("before", before, np.int32, (n, m))
    p = (before.reshape(-1), 0, m, before_b.reshape(-1), 0, m)
    product_traced(*c, *p)
    return out
