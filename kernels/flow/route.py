"""Flow between tiles: paths over the border cells of a node's children.

A border cell leads to the border cell where its path leaves the child, or ends inside. One where a
path leaves leads on to a border cell of another child, or out of the node. So the cells where paths
leave form a forest, in which amounts go down in one pass by the numbers of cells that still lead to
each, and labels go up in the reverse order.

All arrays have an entry for each border cell of the children, int64.

exits : the cell where a path from here leaves the child, -1 where it ends inside.
onward : of a cell where paths leave the child: the cell to which they lead, `OUTSIDE` where that is
    out of the node; of all others -1.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.flow.accumulate import accumulate, exits_of, from_fixed, hand_on, to_fixed
from orograph.kernels.flow.codes import ENCODINGS, SINK, decode
from orograph.tiles.arrays import Integers, Reals

OUTSIDE = -2


@compiled
def _order_leaving(exits, onward, waiting, order):
    count = onward.size
    for i in range(count):
        if onward[i] >= 0 and exits[onward[i]] >= 0:
            waiting[exits[onward[i]]] += 1
    done = 0
    for first in range(count):
        if onward[first] == -1 or waiting[first] != 0:
            continue
        # Kahn's algorithm, which goes on with the cell that it has freed instead of keeping a
        # queue. Cells on a circle are never freed.
        i = first
        while i >= 0 and waiting[i] == 0:
            waiting[i] = -1
            order[done] = i
            done += 1
            i = exits[onward[i]] if onward[i] >= 0 else -1
            if i >= 0:
                waiting[i] -= 1
    return done


def order_leaving(exits: Integers, onward: Integers) -> tuple[Integers, int]:
    """Return the cells where paths leave a child in topological order, upstream cells first.

    And a cell on a circle, or -1: the first of them.
    """
    waiting, order = np.zeros((2, onward.size), np.int64)
    done = _order_leaving(exits, onward, waiting, order)
    circle = np.flatnonzero((waiting >= 0) & (onward != -1))
    return order[:done].copy(), int(circle[0]) if circle.size else -1


@compiled
def route(
    order: Integers,
    exits: Integers,
    onward: Integers,
    high: Integers,
    low: Integers,
    high_in: Integers,
    low_in: Integers,
) -> None:
    """Route the amounts that leave each child through the other children.

    high, low : what leaves at each cell of what fell on its child alone; becomes all that leaves.
    high_in, low_in : what enters at each cell from outside of the node; becomes all that enters.
    """
    for i in range(exits.size):
        # What enters from outside leaves its child as well; then cells in order pass on all they
        # have.
        if exits[i] >= 0:
            hand_on(high_in, low_in, i, high, low, exits[i])
    for i in order:
        target = onward[i]
        if target >= 0:
            hand_on(high, low, i, high_in, low_in, target)
            if exits[target] >= 0:
                hand_on(high, low, i, high, low, exits[target])


@compiled
def follow(
    order: Integers,
    exits: Integers,
    onward: Integers,
    ends: Integers,
    last: Integers,
    label: Integers,
) -> None:
    """Follow the path from each cell where paths leave a child to its end.

    ends : the label of the end of the path from each cell that does not leave its child.
    last : becomes the cell where the path leaves the node, -1 where it ends inside.
    label : has the label of what leaves the node at each cell; becomes that of the path's end.
    """
    for i in order[::-1]:
        # Downstream cells first, so that each finds the answer where its path goes on.
        target = onward[i]
        if target < 0:
            last[i] = i
        elif exits[target] < 0:
            last[i] = -1
            label[i] = ends[target]
        else:
            last[i] = last[exits[target]]
            label[i] = label[exits[target]]


@compiled
def carry_least(order: Integers, onward: Integers, least: Reals) -> None:
    """Lower each value to the least of all that lead to it; ``onward`` is the cell after each."""
    for i in order:
        if onward[i] >= 0:
            least[onward[i]] = min(least[onward[i]], least[i])


def compile_kernels() -> None:
    """Compile, or load from the cache, the functions for tiles and nodes."""
    numbers = np.full((2, 2), SINK, np.uint8)
    high, one = np.ones(4, np.int64), np.zeros(1, np.int64)
    decode(np.zeros((2, 2), np.uint8), ENCODINGS["taudem"], None)
    to_fixed(np.ones(4), high, high.copy())
    from_fixed(numbers.reshape(-1), high, high.copy(), np.ones(4))
    for low in (high.copy(), high[:0]):
        accumulate(numbers, high, low)
        route(one, one, one, high, low, high, low)
    exits_of(numbers, np.zeros(1, np.int64))
    order_leaving(one, one - 2)
    follow(one, one, one - 2, one, one, one)
