"""Exact sums of floats by group, which add up to the same bits in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orograph.tiles.arrays import Array, Integers, Reals

MANTISSA, LOW = 53, 26
"""Bits of the mantissa of a float64, and of its lower part."""
SPLIT = 2.0**27 + 1
"""Factor by which a float64 is split into two halves (Veltkamp)."""


@dataclass(frozen=True)
class GroupSums:
    """A whole number for each group, in units of a power of two."""

    numbers: tuple[int, ...]
    exponent: int = 0
    """The unit is two to the power of this."""

    def __add__(self, other: GroupSums) -> GroupSums:
        """Return the sums of both, group by group."""
        least = min(self.exponent, other.exponent)
        ours, theirs = (part.exponent - least for part in (self, other))
        pairs = zip(self.numbers, other.numbers, strict=True)
        return GroupSums(tuple((a << ours) + (b << theirs) for a, b in pairs), least)

    def joined(self, group: Sequence[int], count: int) -> GroupSums:
        """Return the sums of groups of groups."""
        numbers = [0] * count
        for own, number in zip(group, self.numbers, strict=True):
            numbers[own] += number
        return GroupSums(tuple(numbers), self.exponent)

    @classmethod
    def concatenated(cls, parts: Sequence[GroupSums]) -> GroupSums:
        """Return the sums of several sets of groups, one after the other."""
        least = min((part.exponent for part in parts), default=0)
        return cls(tuple(n << part.exponent - least for part in parts for n in part.numbers), least)

    def packed(self) -> tuple[Array, int]:
        """Return the numbers as bytes, a row each, and the exponent."""
        width = max((n.bit_length() for n in self.numbers), default=0) // 8 + 1
        text = b"".join(n.to_bytes(width, "little", signed=True) for n in self.numbers)
        return np.frombuffer(text, np.uint8).reshape(-1, width), self.exponent

    @classmethod
    def unpacked(cls, rows: Array, exponent: int) -> GroupSums:
        """Return the sums that were packed as bytes."""
        numbers = (int.from_bytes(row.tobytes(), "little", signed=True) for row in rows)
        return cls(tuple(numbers), exponent)


def sums_of(group: Integers, count: int, values: Reals) -> GroupSums:
    """Return the exact sums of finite float64 by group."""
    mantissa, exponent = np.frexp(values)
    return _sums(group, count, mantissa, exponent)


def sums_of_squares(group: Integers, count: int, values: Reals) -> GroupSums:
    """Return the exact sums of the squares of finite float64 by group."""
    mantissa, exponent = np.frexp(values)
    # A product of two mantissas is a float64 and what its rounding has lost (Dekker).
    square = mantissa * mantissa
    high = SPLIT * mantissa
    high -= high - mantissa
    low = mantissa - high
    lost = ((high * high - square) + 2 * high * low) + low * low
    parts = []
    for part in (square, lost):
        own, more = np.frexp(part)
        parts.append(_sums(group, count, own, 2 * exponent + more))
    return parts[0] + parts[1]


def _sums(group: Integers, count: int, mantissa: Reals, exponent: Integers) -> GroupSums:
    """Return the exact sums of ``mantissa * 2**exponent`` by group, of up to 2**26 values."""
    whole = np.ldexp(mantissa, MANTISSA).astype(np.int64)
    real = whole != 0
    group, whole, exponent = group[real], whole[real], exponent[real]
    if not whole.size:
        return GroupSums((0,) * count)
    least = int(exponent.min())
    numbers = [0] * count
    for power in np.unique(exponent).tolist():
        of = exponent == power
        # Sums of 26 bits each, and of the 27 above them, are exact in float64.
        parts = (whole[of] >> LOW, whole[of] & (1 << LOW) - 1)
        high, low = (np.bincount(group[of], part, count) for part in parts)
        some = np.flatnonzero((high != 0) | (low != 0))
        for n, a, b in zip(some.tolist(), high[some].tolist(), low[some].tolist(), strict=True):
            numbers[n] += (int(a) << LOW) + int(b) << power - least
    return GroupSums(tuple(numbers), least - MANTISSA)
