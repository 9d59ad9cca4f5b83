"""Amounts of cells combined along the flow paths of a tile, from where paths end.

Each path is followed down to the first cell that is done, and back up again: a cell gets its own
amount combined with that of the cell below. Amounts are int64, which are added, or of which the
least is taken, so the result depends on no order. Serial; each cell is passed twice, and no path
is a circle.

amounts : (terms, n) int64, of the cells of a tile, or of the border cells of a node.
least : (terms,) bool; whether the least amount is taken, not the sum.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.flow.codes import SINK, steps_in_rows
from orograph.kernels.flow.route import compile_kernels as compile_paths
from orograph.tiles.arrays import Array, Integers

NOTHING = np.iinfo(np.int64).max
"""The least of no amounts."""


@compiled(inline=True)
def _combine(least, amounts, target, others, source):
    """Combine the amounts at one place with those at another."""
    for term in range(least.size):
        more = others[term, source]
        if least[term]:
            amounts[term, target] = min(amounts[term, target], more)
        else:
            amounts[term, target] += more


@compiled
def _descend(numbers, steps, least, amounts, path):
    """Combine in place the amounts of each cell with those of all cells below it."""
    done = np.zeros(numbers.size, np.bool_)
    for first in range(numbers.size):
        length = 0
        i = first
        while not done[i]:
            done[i] = True
            path[length] = i
            length += 1
            i += steps[numbers[i]]  # 0 at the end of a path, which is done
        for k in range(length - 1, -1, -1):
            i = path[k]
            if numbers[i] < SINK:
                _combine(least, amounts, i, amounts, i + steps[numbers[i]])


def descend(numbers: Array, least: Array, amounts: Integers) -> None:
    """Combine in place the amounts of each cell of a tile with those of all cells below it.

    ``numbers``, (h, w) uint8, are as `orograph.kernels.flow.codes` has them; no step leads out of
    the array, and none in a circle.
    """
    path = np.empty(numbers.size, np.int64)
    _descend(numbers.reshape(-1), steps_in_rows(numbers.shape[1]), least, amounts, path)


@compiled
def join_downstream(
    order: Integers,
    exits: Integers,
    onward: Integers,
    least: Array,
    amounts: Integers,
    beyond: Integers,
) -> None:
    """Find the amounts beyond each cell where paths leave a child; as `join_lengths` does.

    amounts : of the path from each border cell to its end in its child, or to the border.
    beyond : has the amounts beyond the node; becomes those beyond each child.
    """
    for i in order[::-1]:
        target = onward[i]
        if target >= 0:
            beyond[:, i] = amounts[:, target]
            if exits[target] >= 0:
                _combine(least, beyond, i, beyond, exits[target])


def compile_kernels() -> None:
    """Compile, or load from the cache, the functions for tiles and nodes."""
    compile_paths()
    one, least, amounts = np.zeros(1, np.int64), np.zeros(1, np.bool_), np.zeros((1, 4), np.int64)
    descend(np.full((2, 2), SINK, np.uint8), least, amounts)
    join_downstream(one, one - 1, one - 2, least, amounts, amounts.copy())
