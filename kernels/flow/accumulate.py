"""Accumulation within a tile: the amount that flows through each cell from the cells above it.

Each cell hands on what it has once all that flow into it have: one pass in the order of the
numbers of cells that still flow into each. What is accumulated are integers, so their order does
not matter. Numbers of real size are fixed-point numbers in two words of 64 bits: `high` whole
units and `low` units of 2**-62, below one unit.

Source: R. Barnes, "Parallel non-divergent flow accumulation for trillion cell digital elevation
models on desktops or clusters", doi:10.1016/j.envsoft.2017.02.022, for the summary of a tile by
where water leaves that enters at each cell of its border.

numbers : (h, w) uint8, as `orograph.kernels.flow.codes` has them; no step leads out of the array.
high, low : (h * w,) int64; low may be empty, and then there is none. Indices are int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.flow.codes import MISSING, SINK, steps_in_rows
from orograph.tiles.arrays import Array, Integers

BITS = 62
"""Binary digits of `low`."""
_DONE = 255
_FRACTION = 2**BITS - 1
_BEYOND_FLOAT = 2 ** (BITS - 53) - 1


@compiled(inline=True)
def hand_on(high, low, source, to_high, to_low, target):
    """Add the amount at one place to that at another, of other arrays or of the same."""
    to_high[target] += high[source]
    if low.size:
        # Both are below 2**62, so the sum has no sign bit; what is beyond 62 bits is one whole
        # unit.
        fraction = to_low[target] + low[source]
        to_high[target] += fraction >> BITS
        to_low[target] = fraction & _FRACTION


@compiled
def _accumulate(numbers, steps, waiting, high, low):
    """Accumulate in place; return how many cells were done."""
    for i in range(numbers.size):
        if numbers[i] < SINK:
            waiting[i + steps[numbers[i]]] += 1
    done = 0
    for first in range(numbers.size):
        # Kahn's algorithm, which follows the water as long as the cell below waits for nothing
        # else. At most eight cells flow into one, so counts fit uint8 beside the mark of what is
        # done.
        if waiting[first] != 0 or numbers[first] == MISSING:
            continue
        i = first
        while True:
            waiting[i] = _DONE
            done += 1
            if numbers[i] >= SINK:
                break
            below = i + steps[numbers[i]]
            hand_on(high, low, i, high, low, below)
            waiting[below] -= 1
            if waiting[below] != 0:
                break
            i = below
    return done


def accumulate(numbers: Array, high: Integers, low: Integers) -> int:
    """Accumulate in place; return the first cell that lies on a cycle, or -1."""
    waiting = np.zeros(numbers.size, np.uint8)
    flat = numbers.reshape(-1)
    done = _accumulate(flat, steps_in_rows(numbers.shape[1]), waiting, high, low)
    if done == numbers.size:
        return -1
    circle = np.flatnonzero((waiting != _DONE) & (flat != MISSING))
    return int(circle[0]) if circle.size else -1


def count_cells(numbers: Array, border: Integers, entering: Integers, found: Integers) -> int:
    """Count the cells whose water passes each cell; return as `accumulate`.

    Parameters
    ----------
    numbers : (h, w) uint8
    border : (n,) int64
        Cells at the border of the array, in row-major order.
    entering : (n,) or (0,) int64
        Number of cells whose water enters at each of them from outside; empty if none does.
    found : (h * w,) or (n,) int64
        Becomes the number at each cell, or only at the border.
    """
    counts = found if found.size == numbers.size else np.empty(numbers.size, np.int64)
    counts[:] = 1
    counts[border[: entering.size]] += entering
    circle = accumulate(numbers, counts, counts[:0])
    if counts is not found:
        found[:] = counts[border]
    return circle


def find_circle(numbers: Array) -> int:
    """Return the first cell that lies on a cycle, or -1."""
    return accumulate(numbers, np.ones(numbers.size, np.int64), np.empty(0, np.int64))


@compiled
def _exits_of(numbers, steps, border, seen, exits):
    """Find the last cell of the path from each of some cells."""
    for b in range(border.size):
        i = border[b]
        # Cells on the way are marked with the number of the path, by which a later one that runs
        # into them finds the same exit.
        while seen[i] == 0:
            seen[i] = b + 1
            if numbers[i] >= SINK:
                break
            i += steps[numbers[i]]
        # a path that was met before, or this one's end
        exits[b] = exits[seen[i] - 1] if seen[i] != b + 1 else i


def exits_of(numbers: Array, border: Integers) -> Integers:
    """Return the last cell of the path from each of some cells; the paths have no circles."""
    exits = np.empty(border.size, np.int64)
    seen = np.zeros(numbers.size if border.size else 0, np.int32)
    _exits_of(numbers.reshape(-1), steps_in_rows(numbers.shape[1]), border, seen, exits)
    return exits


@compiled(inline=True)
def _fits(value, nodata, has_nodata, most):
    return (value >= 0) & (value <= most) & ((value != nodata) | (not has_nodata))


@compiled
def first_unfit(numbers: Array, values: Array, nodata: Any, has_nodata: bool, most: Any) -> int:
    """Return the first cell with a direction whose value is nodata or not 0 to ``most``, or -1."""
    for y in range(numbers.shape[0]):
        unfit = False
        for x in range(numbers.shape[1]):
            # A row at a time, without a branch in its loop; only a row with such a cell is searched
            # again.
            fits = _fits(values[y, x], nodata, has_nodata, most)
            unfit |= (numbers[y, x] != MISSING) & (not fits)
        if unfit:
            for x in range(numbers.shape[1]):
                fits = _fits(values[y, x], nodata, has_nodata, most)
                if numbers[y, x] != MISSING and not fits:
                    first: int = y * numbers.shape[1] + x
                    return first
    return -1


@compiled
def to_fixed(values: Array, high: Integers, low: Integers) -> None:
    """Write floats from 0 to 2**62 as whole units and units of 2**-62, rounded half to even.

    It does not matter what is written for others: no water comes from there.
    """
    for i in range(values.size):
        value = float(values[i])
        # The fraction is exact. It is below 1 by at least 2**-53, so rounding it never makes a
        # whole unit.
        whole = np.floor(value)
        high[i] = np.int64(whole)
        low[i] = np.int64(np.rint((value - whole) * 2.0**BITS))


@compiled
def rounded(high, low):
    """Return a fixed-point number as a float, rounded once, half to even."""
    # Both terms are floats then, so only their sum is rounded; or there is one term alone.
    if high == 0 or (low & _BEYOND_FLOAT == 0 and high < 2**53):
        return high + low * 2.0**-BITS
    # the leading bits as an integer, its last one set if any beyond them is
    bits = 0
    while bits < BITS and high >> bits:
        bits += 1
    kept = (high << (BITS - bits)) | (low >> bits)
    kept |= (low & ((1 << bits) - 1)) != 0
    return float(kept) * 2.0 ** (bits - BITS)


@compiled
def from_fixed(numbers: Array, high: Integers, low: Integers, found: Array) -> None:
    """Write fixed-point numbers as floats, NaN on nodata."""
    for i in range(numbers.size):
        found[i] = np.nan if numbers[i] == MISSING else rounded(high[i], low[i])
