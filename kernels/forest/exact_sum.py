"""Exact sums of edge weights, in units of 2**-1074, of which each finite float64 is a multiple.

Of a forest's mask, a weight that fits is added as two 64-bit integers. Any other weight is split
into the upper and lower part of its mantissa and added to the bins of its sign and exponent.
Integer sums do not depend on the order of the terms, so the total is the same for every tiling. It
is rounded once.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.forest.keys import decode_row, weigh_row
from orograph.tiles.arrays import Array

UNIT_EXPONENT = -1074
PIECE = 8192  # cells whose exact sum fits int64: 2**13 of them, 8 times 2**46 each
LOWER = 2.0**40  # ratio of the units of the first and the second sum


@compiled
def add_row(values, count, scale, sums, bins):
    """Add values * count exactly: to sums in units of 1 / scale and 2**-40 / scale, else to bins.

    scale is 0, or a factor that makes the magnitude of all values less than 2**46. bins (2, 2,
    2048) hold the lower and upper parts of mantissas, by sign, part and exponent. A piece of a row
    adds at most 2**62 to a number.
    """
    n = values.size
    for start in range(0, n, PIECE):
        end = min(start + PIECE, n)
        if scale > 0:
            first = 0
            second = 0
            lost = 0
            v, c = values[start:end], count[start:end]
            for x in range(end - start):
                t = v[x] * scale
                whole = np.int64(t)
                t = (t - whole) * LOWER
                rest = np.int64(t)
                times = np.int64(c[x])
                first += whole * times
                second += rest * times
                lost |= np.int64((t != rest) & (times > 0))
            # No bit is below the unit of the second sum: both halves are added, in words of 32
            # bits, so that sums over many rows do not overflow.
            if lost == 0:
                sums[0] += first >> 32
                sums[1] += first & 0xFFFFFFFF
                sums[2] += second >> 32
                sums[3] += second & 0xFFFFFFFF
                continue
        for x in range(start, end):
            times = np.int64(count[x])
            if times > 0:
                word = np.float64(values[x]).view(np.uint64)
                sign = np.int64(word >> np.uint64(63))
                exponent = np.int64((word >> np.uint64(52)) & np.uint64(2047))
                mantissa = np.int64(word & np.uint64(0xFFFFFFFFFFFFF))
                if exponent > 0:
                    mantissa |= np.int64(1) << np.int64(52)
                bins[sign, 0, exponent] += (mantissa & 0x3FFFFFF) * times
                bins[sign, 1, exponent] += (mantissa >> 26) * times


@compiled
def sum_highest(keys, mask, kind, bias, gap, scale, sums, bins, padded, values):
    """Sum the edge weights of a mask: a cell counts once per edge of which it is the greater end.

    ``padded``: (3, w + 2) uint8, zeros; ``values``: (w,) float64, need not be set.
    """
    h, w = mask.shape
    count = padded[2, 1 : w + 1]
    for y in range(h):
        above, row = padded[(y + 1) % 2], padded[y % 2]
        for x in range(w):  # assigning slices compiles for seconds: their error message
            row[x + 1] = mask[y, x]
        u0, u1, u2 = keys[y, 0:w], keys[y, 1 : w + 1], keys[y, 2 : w + 2]
        c0, c1, c2 = keys[y + 1, 0:w], keys[y + 1, 1 : w + 1], keys[y + 1, 2 : w + 2]
        d0, d1, d2 = keys[y + 2, 0:w], keys[y + 2, 1 : w + 1], keys[y + 2, 2 : w + 2]
        m1, m0 = row[1 : w + 1], row[0:w]
        a0, a1, a2 = above[0:w], above[1 : w + 1], above[2 : w + 2]
        for x in range(w):
            k = c1[x]
            m = m1[x]
            n = np.uint8((m & 1) & np.uint8(k >= c2[x]))
            n += np.uint8((m >> 1 & 1) & np.uint8(k >= d0[x]))
            n += np.uint8((m >> 2 & 1) & np.uint8(k >= d1[x]))
            n += np.uint8((m >> 3) & np.uint8(k >= d2[x]))
            n += np.uint8((m0[x] & 1) & np.uint8(k > c0[x]))
            n += np.uint8((a2[x] >> 1 & 1) & np.uint8(k > u2[x]))
            n += np.uint8((a1[x] >> 2 & 1) & np.uint8(k > u1[x]))
            n += np.uint8((a0[x] >> 3) & np.uint8(k > u0[x]))
            count[x] = n
        decode_row(c1, kind, bias, gap, values)
        # Nodata decodes to an arbitrary value; NaN * 0 is NaN, so it is replaced by 0.
        for x in range(w):
            values[x] = values[x] if count[x] > 0 else 0.0
        add_row(values, count, scale, sums, bins)


@compiled
def sum_rows(heights, mask, mode, scale, sums, bins):
    """Sum the weights of the mask's edges."""
    h, w = mask.shape
    rows = np.empty((4, w + 2))
    count = np.empty(w, np.uint8)
    for y in range(h):
        weigh_row(heights, y + 1, w, mode, True, rows)
        for d in range(4):
            row = rows[d, 1 : w + 1]
            for x in range(w):
                count[x] = (mask[y, x] >> d) & 1
                row[x] = row[x] if count[x] > 0 else 0.0
            add_row(row, count, scale, sums, bins)


def power_below(greatest: float) -> float:
    """Return a power of two that scales magnitudes up to ``greatest`` to below 2**46, or 0."""
    exponent = 46 - math.frexp(greatest)[1]
    return 2.0 ** min(exponent, 1000) if exponent >= 0 else 0.0


def fold_sum(scale: float, sums: Array, bins: Array) -> int:
    """Return the sum accumulated by add_row in units of 2**-1074; scale: a power of two or 0."""
    total = 0
    used = np.flatnonzero(bins)
    for place, part in zip(used.tolist(), bins.reshape(-1)[used].tolist()):
        rows, exponent = divmod(place, bins.shape[2])
        part <<= max(exponent - 1, 0) + 26 * (rows % 2)
        total += -part if rows > 1 else part
    if scale:
        s = [int(part) for part in sums]
        small = (((s[0] << 32) + s[1]) << 40) + (s[2] << 32) + s[3]
        total += small << (1074 - 40 - (math.frexp(scale)[1] - 1))
    return total


def exact_sum(values: npt.NDArray[np.float64]) -> int:
    """Return the exact sum of finite ``values``, in units of 2**-1074.

    Examples
    --------
    >>> exact_float(exact_sum(np.array([1e16, 1.0, -1e16])))
    1.0
    """
    fraction, exponent = np.frexp(values)
    mantissa = np.ldexp(fraction, 53).astype(np.int64)
    total = 0
    for step in set(exponent.tolist()):
        part = mantissa[exponent == step]
        # two parts of 27 bits: their sums stay far below 2**63
        whole = (int((part >> 26).sum()) << 26) + int((part & ((1 << 26) - 1)).sum())
        shift = step - 53 - UNIT_EXPONENT
        total += whole << shift if shift >= 0 else whole >> -shift
    return total


def exact_float(total: int) -> float:
    """Return the float64 nearest to a sum in units of 2**-1074; infinity if it overflows."""
    try:
        return total / (1 << -UNIT_EXPONENT)
    except OverflowError:
        return math.inf if total > 0 else -math.inf
