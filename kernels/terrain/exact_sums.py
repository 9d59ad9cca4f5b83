"""Exact sums of heights times areas, and volumes rounded once.

A sum is a row of *words*, int64: word ``i`` counts units of 2**(32 * (low + i)). A term is a
product of two integers below 2**64 and a power of two; each word gets 32 bits of it. So a word
takes terms of 2**31 cells before `normalise` must carry what is beyond 32 bits to the next. How
many words there are depends on the greatest and the least exponent: four for most terrain, without
areas.

Heights come as the keys of `orograph.kernels.forest.order_keys`. Those of integers are added
themselves, since only differences of heights count; those of floats are decoded. Serial; the sums
are exact, so their order does not matter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.bits import leading_zeros
from orograph.kernels.compiled import compiled
from orograph.tiles.arrays import Indices, Keys

_BITS = 32
_LOW = np.uint64(2**32 - 1)
_WORD = np.uint64(32)
_TOP = np.uint64(2**63)
_FRACTION = np.uint64(2**52 - 1)
_HIDDEN = np.uint64(2**52)
_ONE = np.uint64(1)
_ZERO = np.uint64(0)

INTEGERS, DOUBLES, SINGLES = 0, 1, 2


class Areas(NamedTuple):
    """Areas as integers times powers of two."""

    whole: Keys
    exponent: Indices

    @classmethod
    def of(cls, areas: npt.NDArray[np.float64]) -> Areas:
        """Return positive areas exactly."""
        mantissa, exponent = np.frexp(areas)
        return cls(np.ldexp(mantissa, 53).astype(np.uint64), exponent.astype(np.int64) - 53)


class Sums(NamedTuple):
    """Exact sums, a row of words each."""

    low: int
    """The words begin at 2**(32 * low)."""
    words: Indices
    """(n, k)"""

    @classmethod
    def zeros(cls, count: int, least: int, greatest: int, bits: int) -> Sums:
        """Return sums below 2**(bits + greatest), of terms with exponents from ``least`` up."""
        low = least // _BITS
        # the last word has a sign
        return cls(low, np.zeros((count, (greatest + bits + 1) // _BITS - low + 1), np.int64))


def kind_of(dtype: np.dtype[Any]) -> int:
    """Return how keys of a dtype are decoded."""
    return INTEGERS if dtype.kind in "iu" else DOUBLES if dtype.itemsize == 8 else SINGLES


@compiled
def _split(key, kind):
    """Return magnitude, exponent and whether it is negative."""
    if kind == 0:
        return key, 0, False
    negative = key < _TOP
    bits = (~key if negative else key) ^ _TOP  # without the sign
    field = np.int64(bits >> np.uint64(52))
    whole = bits & _FRACTION
    # Field 0 means subnormal numbers, which have no hidden bit and the exponent of field 1.
    if field:
        whole |= _HIDDEN
        field -= 1
    if kind == 2:  # 24 bits of the 53
        return whole >> np.uint64(29), field - 1045, negative
    return whole, field - 1074, negative


@compiled
def _find_magnitudes(keys, least, greatest):
    """Update the least and greatest key of non-zero magnitudes; return both."""
    for key in keys:
        magnitude = key if key >= _TOP else ~key
        if magnitude > _TOP:
            least, greatest = min(least, magnitude), max(greatest, magnitude)
    return least, greatest


@compiled
def _add_product(row, low, a, b, exponent, times):
    """Add a product of two unsigned integers and a small signed one to a row of words."""
    # The product of 128 bits by halves of 32; none of these sums exceeds 64 bits.
    a0, a1, b0, b1 = a & _LOW, a >> _WORD, b & _LOW, b >> _WORD
    middle = a1 * b0 + (a0 * b0 >> _WORD)
    other = a0 * b1 + (middle & _LOW)
    lower = a * b
    upper = a1 * b1 + (middle >> _WORD) + (other >> _WORD)
    at, shift = exponent // 32 - low, np.uint64(exponent % 32)
    carry = _ZERO
    while lower or upper or carry:
        # 32 bits of the product at a time, moved by less than a word; what is beyond is carried.
        part = (lower & _LOW) << shift | carry
        if part & _LOW:
            row[at] += np.int64(part & _LOW) * times
        carry = part >> _WORD
        lower = lower >> _WORD | (upper & _LOW) << _WORD
        upper >>= _WORD
        at += 1


@compiled
def _add_cells(number, key, count, row, kind, whole, exponent, cells, areas, low, sums, sum_low):
    """Add cells to the counts, areas and heights of depressions; without areas each counts 1."""
    weighted = whole.size > 0
    for i in range(number.size):
        d = number[i]
        if d < 0:
            continue
        times = count[i] if count.size else 1
        cells[d] += times
        height, power, negative = _split(key[i], kind)
        area = _ONE
        if weighted:
            area = whole[row[i]]
            power += exponent[row[i]]
            _add_product(areas[d], low, area, _ONE, exponent[row[i]], times)
        if height:
            _add_product(sums[d], sum_low, height, area, power, -times if negative else times)


@compiled
def _add_up(order, first, parent, cells, areas, sums):
    """Add nested depressions to those that contain them, in the order in which pits yield."""
    for v in order:
        for d in range(first[v], first[v + 1]):
            to = parent[d]
            if to < 0:
                continue
            cells[to] += cells[d]
            for i in range(areas.shape[1]):
                areas[to, i] += areas[d, i]
            for i in range(sums.shape[1]):
                sums[to, i] += sums[d, i]


@compiled
def _normalise(words):
    for row in words:
        for i in range(row.size - 1):
            # The shift rounds down, so a negative word borrows from the next and leaves 0 to 2**32
            # - 1.
            row[i + 1] += row[i] >> 32
            row[i] &= 0xFFFFFFFF


@compiled
def _round(row, low):
    """Round a non-negative sum of normalised words to the nearest float64."""
    top = row.size - 1
    while top >= 0 and row[top] == 0:
        top -= 1
    if top < 0:
        return 0.0
    length = 64 - np.int64(leading_zeros(np.uint64(row[top])))
    # 64 bits from the highest on, and whether there are others
    head = np.uint64(row[top]) << np.uint64(64 - length)
    rest = False
    for i in range(top - 1, -1, -1):
        place = 64 - length - 32 * (top - i)
        word = np.uint64(row[i])
        if place >= 0:
            head |= word << np.uint64(place)
        elif place > -32:
            head |= word >> np.uint64(-place)
            rest = rest or (word & ((_ONE << np.uint64(-place)) - _ONE)) != _ZERO
        else:
            rest = rest or word != _ZERO
    exponent = 32 * (low + top) + length - 1  # of the highest bit
    if exponent > 1023:
        return np.inf
    # A float keeps 53 bits of the 64, a subnormal one fewer the smaller it is.
    lost = 11 + max(-1022 - exponent, 0)
    if lost > 64:
        return 0.0
    if lost == 64:  # half of the least number, or more: at exactly a half it is rounded to 0
        kept = _ZERO
        half, below = True, (head << _ONE) != _ZERO
    else:
        kept = head >> np.uint64(lost)
        half = (head >> np.uint64(lost - 1) & _ONE) != _ZERO
        below = (head & ((_ONE << np.uint64(lost - 1)) - _ONE)) != _ZERO
    # Half to even: up if more than half is lost, or just half and the last bit is odd.
    if half and (below or rest or (kept & _ONE) != _ZERO):
        kept += _ONE
    if exponent >= -1022:
        # a carry beyond the fraction makes the exponent one greater, which may be infinity
        kept = (np.uint64(exponent + 1023) << np.uint64(52)) + (kept - _HIDDEN)
    return np.uint64(kept).view(np.float64)


@compiled
def _round_sums(words, low, out):
    for i in range(out.size):
        out[i] = _round(words[i], low)


@compiled
def _round_volumes(number, level, kind, cells, areas, low, sums, sum_low, out):
    """Write areas times levels, less the sums of heights, of some depressions."""
    work = np.empty((1, sums.shape[1] + 1), np.int64)
    total = work[0]
    for i in range(number.size):
        d = number[i]
        total[:] = 0
        for w in range(sums.shape[1]):
            total[w] = -sums[d, w]
        height, power, negative = _split(level[i], kind)
        sign = -1 if negative else 1
        if areas.shape[1]:
            for w in range(areas.shape[1]):
                # The level times each word of the area, at the power that the word stands for.
                area = np.uint64(areas[d, w])
                _add_product(total, sum_low, height, area, power + 32 * (low + w), sign)
        else:
            _add_product(total, sum_low, height, np.uint64(cells[d]), power, sign)
        _normalise(work)
        out[i] = _round(total, sum_low)


def find_exponents(keys: Keys, kind: int) -> tuple[int, int]:
    """Return the least and the greatest exponent of heights; of zeros alone (10000, -10000)."""
    if kind == INTEGERS:
        return 0, 0
    least, greatest = _find_magnitudes(keys, np.uint64(2**64 - 1), _ZERO)
    if greatest == 0:
        return 10000, -10000
    _, low, _ = _split(np.uint64(least), kind)
    _, high, _ = _split(np.uint64(greatest), kind)
    return int(low), int(high)


def add_cells(
    number: Indices,
    key: Keys,
    kind: int,
    cells: Indices,
    areas: Sums,
    sums: Sums,
    count: Indices | None = None,
    area: Areas | None = None,
    row: Indices | None = None,
) -> None:
    """Add cells to the sums of depressions, in place.

    Parameters
    ----------
    number : (k,) int64
        The depression of each height; negative: of none.
    key : (k,) uint64
        The heights.
    kind : int
        See `kind_of`.
    cells, areas, sums
        How many cells each depression has, their areas, and heights times areas.
    count : (k,) int64, optional
        How many cells have each height; otherwise one.
    area : Areas, optional
        The area of a cell of each row; otherwise 1, and ``areas`` has no words.
    row : (k,) int64, optional
        The rows of the cells.
    """
    none = np.empty(0, np.int64)
    whole, exponent = Areas(none.view(np.uint64), none) if area is None else area
    _add_cells(
        number, key, none if count is None else count, none if row is None else row, kind,
        whole, exponent, cells, areas.words, areas.low, sums.words, sums.low,
    )  # fmt: skip


def add_up(
    order: Indices, first: Indices, parent: Indices, cells: Indices, areas: Sums, sums: Sums
) -> None:
    """Add the sums of nested depressions to their containers and normalise the words, in place.

    ``order`` are the pits in the order in which they yield, ``first`` and ``parent`` as in
    `orograph.kernels.terrain.depressions.Depressions`.
    """
    _add_up(order, first, parent, cells, areas.words, sums.words)
    normalise(areas)
    normalise(sums)


def normalise(sums: Sums) -> None:
    """Carry the excess of each word beyond 32 bits to the next, in place; the last stays signed."""
    _normalise(sums.words)


def round_sums(sums: Sums) -> npt.NDArray[np.float64]:
    """Return normalised sums, none of them negative, as the nearest floats; infinity if too large.

    Examples
    --------
    >>> round_sums(Sums(-1, np.array([[2**31, 5]])))
    array([5.5])
    """
    out = np.empty(len(sums.words))
    _round_sums(sums.words, sums.low, out)
    return out


def round_volumes(
    number: Indices, level: Keys, kind: int, cells: Indices, areas: Sums, sums: Sums
) -> npt.NDArray[np.float64]:
    """Return the volumes below the levels of some depressions, exact and rounded once.

    ``level`` are keys of the levels of the depressions ``number``, whose exponents lie among those
    for which the sums were made. The sums are normalised.
    """
    out = np.empty(number.size)
    _round_volumes(number, level, kind, cells, areas.words, areas.low, sums.words, sums.low, out)
    return out


def compile_kernels() -> None:
    """Compile, or load from the cache."""
    one, key = np.zeros(1, np.int64), np.ones(1, np.uint64)
    find_exponents(key, DOUBLES)
    sums, area = Sums(0, np.zeros((1, 3), np.int64)), Areas(key, one)
    add_cells(one, key, INTEGERS, one.copy(), sums, sums, None, area, one)
    add_up(one, np.arange(2), one - 1, one.copy(), sums, sums)
    round_sums(sums)
    round_volumes(one, key, INTEGERS, one, sums, sums)
