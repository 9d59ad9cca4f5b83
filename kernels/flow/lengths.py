"""Lengths of the paths of all cells of a tile, and of paths between tiles.

Each path is followed twice, down to the first cell whose length is known: to add up its steps, and
to write at each cell what is left of their sum. Lengths are int64, in any unit, so sums do not
depend on an order; -1 stands for a path that reaches no end that counts.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.flow.accumulate import find_circle
from orograph.kernels.flow.codes import OUT, SINK, STEPS, steps_in_rows
from orograph.kernels.flow.route import compile_kernels as compile_paths
from orograph.tiles.arrays import Array, Integers

NONE = -1
"""The length of a path that reaches nothing."""
_UNKNOWN, _PASSED = -2, -3


@compiled
def _measure_paths(numbers, steps, lengths, width, found):
    """Write the length of each cell's path; return whether all paths end."""
    rows = lengths.shape[0] > 1
    for i in range(numbers.size):
        if numbers[i] < SINK:
            found[i] = _UNKNOWN
        elif numbers[i] != OUT:
            found[i] = 0 if numbers[i] == SINK else NONE
    for first in range(numbers.size):
        if found[first] != _UNKNOWN:
            continue
        i = first
        left = 0
        while found[i] == _UNKNOWN:
            found[i] = _PASSED
            left += lengths[i // width if rows else 0, numbers[i]]
            i += steps[numbers[i]]
        beyond = found[i]
        # Earlier walks have resolved their cells, so this cell is the walk's own: it goes round.
        if beyond == _PASSED:
            return False
        # The same path again: what is left of the sum loses a step at each cell.
        known = i
        i = first
        while i != known:
            found[i] = NONE if beyond == NONE else left + beyond
            left -= lengths[i // width if rows else 0, numbers[i]]
            i += steps[numbers[i]]
    return True


def measure_paths(numbers: Array, lengths: Integers, found: Integers) -> int:
    """Measure the path from each cell of a tile to its end; return a cell on a circle, or -1.

    Parameters
    ----------
    numbers : (h, w) uint8
        As `orograph.kernels.flow.codes` has them; no step leads out of the array. Paths reach
        `SINK`, but not nodata.
    lengths : (h or 1, 8) int64
        Of each step from the cells of each row.
    found : (h * w,) int64
        Has the length beyond each cell that is `OUT`; becomes the lengths of all paths.

    Returns
    -------
    int
        The first of the cells on circles, or -1. If there is one, lengths are not complete.
    """
    width = numbers.shape[1]
    if _measure_paths(numbers.reshape(-1), steps_in_rows(width), lengths, width, found):
        return -1
    return find_circle(numbers)


@compiled
def join_lengths(
    order: Integers, exits: Integers, onward: Integers, lengths: Integers, beyond: Integers
) -> None:
    """Find the remaining path length beyond each cell where paths leave a child.

    The first three are those of `orograph.kernels.flow.route`.

    lengths : of the path from each border cell to its end in its child, or to the first cell
        beyond.
    beyond : has the length of what leaves the node at each cell; becomes that of what leaves each
        child.
    """
    # Downstream cells first: what is beyond them is known when others need it.
    for i in order[::-1]:
        target = onward[i]
        if target >= 0:
            beyond[i] = lengths[target]
            if exits[target] >= 0:
                after = beyond[exits[target]]
                beyond[i] = NONE if after == NONE else lengths[target] + after


def compile_kernels() -> None:
    """Compile, or load from the cache, the functions for tiles and nodes."""
    compile_paths()
    one = np.zeros(1, np.int64)
    numbers = np.full((2, 2), SINK, np.uint8)
    measure_paths(numbers, np.ones((1, len(STEPS)), np.int64), np.empty(4, np.int64))
    join_lengths(one, one - 1, one - 2, one, one)
