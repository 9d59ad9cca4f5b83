"""Longest paths that come to each cell of a tile, and to each border cell between tiles.

Each cell hands on its length and that of its step once all that flow into it have: one pass in the
order of the numbers of cells that still flow into each. Lengths are int64, in any unit, so the
greatest of their sums does not depend on an order.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.flow.accumulate import find_circle
from orograph.kernels.flow.codes import MISSING, SINK, STEPS, steps_in_rows
from orograph.kernels.flow.lengths import compile_kernels as compile_lengths
from orograph.tiles.arrays import Array, Integers

_DONE = 255


@compiled
def _longest_paths(numbers, steps, lengths, width, waiting, found):
    """Lengthen the paths to each cell; return how many cells were done."""
    rows = lengths.shape[0] > 1
    for i in range(numbers.size):
        if numbers[i] < SINK:
            waiting[i + steps[numbers[i]]] += 1
    done = 0
    for first in range(numbers.size):
        # Kahn's algorithm, as in `orograph.kernels.flow.accumulate`.
        if waiting[first] != 0:
            continue
        i = first
        while True:
            waiting[i] = _DONE
            done += 1
            if numbers[i] >= SINK:
                break
            below = i + steps[numbers[i]]
            length = found[i] + lengths[i // width if rows else 0, numbers[i]]
            found[below] = max(found[below], length)
            waiting[below] -= 1
            if waiting[below] != 0:
                break
            i = below
    return done


def longest_paths(numbers: Array, lengths: Integers, found: Integers) -> int:
    """Find the length of the longest path to each cell of a tile; return a cell on a circle, or -1.

    Parameters
    ----------
    numbers : (h, w) uint8
        As `orograph.kernels.flow.codes` has them; no step leads out of the array.
    lengths : (h or 1, 8) int64
        Of each step from the cells of each row.
    found : (h * w,) int64
        Has the length of the longest path that enters the tile at each cell, 0 where none does;
        becomes that of the longest of all paths to the cell.
    """
    width = numbers.shape[1]
    flat, waiting = numbers.reshape(-1), np.zeros(numbers.size, np.uint8)
    done = _longest_paths(flat, steps_in_rows(width), lengths, width, waiting, found)
    return -1 if done == numbers.size else find_circle(numbers)


@compiled
def join_longest(
    order: Integers,
    exits: Integers,
    onward: Integers,
    lengths: Integers,
    leaving: Integers,
    entering: Integers,
    nothing: int,
) -> None:
    """Find the longest path that enters each child at each border cell, and that leaves it there.

    The first three are those of `orograph.kernels.flow.route`.

    lengths : of the path from each border cell to the first cell beyond its child.
    leaving : has the longest path of those that begin in the child and leave it at the cell, with
        its step beyond; becomes that of all paths.
    entering : has the longest path that enters the node at each cell; becomes that of all that
        enter the child there.
    nothing : value of what enters where no path does.
    """
    for i in range(exits.size):
        if exits[i] >= 0 and entering[i] > nothing:
            leaving[exits[i]] = max(leaving[exits[i]], entering[i] + lengths[i])
    for i in order:
        target = onward[i]
        if target >= 0:
            entering[target] = max(entering[target], leaving[i])
            if exits[target] >= 0:
                below = exits[target]
                leaving[below] = max(leaving[below], leaving[i] + lengths[target])


def compile_kernels() -> None:
    """Compile, or load from the cache, the functions for tiles and nodes."""
    compile_lengths()
    one = np.zeros(1, np.int64)
    numbers = np.full((2, 2), MISSING, np.uint8)
    longest_paths(numbers, np.ones((1, len(STEPS)), np.int64), np.zeros(4, np.int64))
    join_longest(one, one - 1, one - 2, one, one, one, 0)
