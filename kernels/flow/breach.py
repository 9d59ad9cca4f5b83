"""Trenches of least cost from pits to lower ground (breaching of depressions).

A pit is a cell without a lower neighbour that neither drains, as cells do where water may leave,
nor is as high as a neighbour before it in row-major order. Dijkstra's algorithm spreads from it
over a square window, on the surface as it was given. The cost of a way is the sum of the heights of
its cells above the pit. The first cell settled that is lower than the pit, or drains, is
the end of the trench. There is no trench if that costs nothing, since the pit then belongs to a
flat that drains; nor if a cell of the flat is reached that precedes the pit, since that cell's
trench will do.

The trench falls evenly from the pit to its end, or by the least step of float64 from cell to cell
if it ends at a cell that drains. The breached surface is the minimum of the surface and all
trenches, which depends on no order. Every cell of a trench has a lower neighbour in it: the next
one of the trench that is lowest there. Only where a fall has fewer float64 than steps may cells be
equally high.

surface : (h, w) float64, NaN where there is no cell; a cell that a window may hold has eight
    neighbours in the array.
pits : (n,) int64, row-major indices in ``surface``.
breached : (rows, columns) float64, a part of the grid, into which trenches are dug.

What it costs to enter a cell does not depend on the way to it, and cells are settled by ascending
cost. So the first neighbour that is settled gives a cell its least cost, and each is queued once.
Costs are summed along the way, in one order, and ties go by the number of steps, then by position
in the window: so floating-point sums are the same whatever part of the grid the arrays hold.

References
----------
J. B. Lindsay, "Efficient hybrid breaching-filling sink removal methods for flow path enforcement in
digital elevation models", doi:10.1002/hyp.10648.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from orograph.kernels.compiled import compiled
from orograph.kernels.flow.codes import STEPS
from orograph.tiles.arrays import Integers

Heights = NDArray[np.float64]
Mask = NDArray[np.bool_]
Cell = tuple[int, int]

_ROWS, _COLUMNS = np.array(STEPS).T.copy()
_LEAST = -np.finfo(np.float64).max
_BLOCK = 16
"""Cells a side of the blocks whose least heights are known."""
_NONE, _LOWER, _LEAVES = 0, 1, 2
"""Ends of a search: without a trench, at lower ground, or at a cell that drains."""


@compiled
def find_pits(
    surface: Heights, drains: Mask, pits: Integers, first: Cell, last: Cell, reach: int
) -> int:
    """List the pits of a surface that may drain within their window; return their number.

    Parameters
    ----------
    drains
        Cells where water may leave, of the shape of ``surface``.
    pits
        Room for the list. No two pits are neighbours: one of two by two cells is enough.
    first, last
        Row and column where the search for pits begins, and those before which it ends.
    reach
        Cells from a pit to the border of its window.
    """
    # A pit whose window has no lower cell and none that drains has no trench, and is not searched
    # from.
    least = _least_of_blocks(surface, drains)
    count = 0
    for y in range(first[0], last[0]):
        for x in range(first[1], last[1]):
            own = surface[y, x]
            if np.isnan(own) or drains[y, x]:
                continue
            lowest = True
            for k in range(8):
                other = surface[y + _ROWS[k], x + _COLUMNS[k]]
                # the second to the fifth step lead to cells before this one
                if other < own or (1 <= k <= 4 and other == own):
                    lowest = False
                    break
            if lowest and _may_drain(least, y, x, reach, own):
                pits[count] = y * surface.shape[1] + x
                count += 1
    return count


@compiled(single_call=True)
def _least_of_blocks(surface, drains):
    """Return the least height of each block; minus infinity if a cell drains in it."""
    height, width = surface.shape
    least = np.full((-(-height // _BLOCK), -(-width // _BLOCK)), np.inf)
    for y in range(height):
        for x in range(width):
            own = -np.inf if drains[y, x] else surface[y, x]
            if own < least[y // _BLOCK, x // _BLOCK]:
                least[y // _BLOCK, x // _BLOCK] = own
    return least


@compiled(single_call=True)
def _may_drain(least, y, x, reach, own):
    """Return whether a block that meets the window has a lower cell, or one that drains."""
    top, left = max(y - reach, 0) // _BLOCK, max(x - reach, 0) // _BLOCK
    bottom = min((y + reach) // _BLOCK, least.shape[0] - 1)
    right = min((x + reach) // _BLOCK, least.shape[1] - 1)
    for row in range(top, bottom + 1):
        for column in range(left, right + 1):
            if least[row, column] < own:
                return True
    return False


@compiled
def dig_trenches(
    surface: Heights,
    drains: Mask,
    pits: Integers,
    reach: int,
    deepest: float,
    breached: Heights,
    origin: Cell,
) -> int:
    """Dig the trenches of some pits into a part of the grid; return how many pits have one.

    Parameters
    ----------
    drains
        As for `find_pits`.
    reach
        Cells from a pit to the border of its window.
    deepest
        Cells that are higher above the pit are not dug.
    origin
        Row and column in ``surface`` of the first cell of ``breached``.
    """
    side = 2 * reach + 1
    seen = np.zeros(side * side, np.int32)
    back = np.empty(side * side, np.uint8)
    costs = np.empty(side * side)
    keys = np.empty(side * side, np.int64)
    count = 0
    for n in range(pits.size):
        y, x = pits[n] // surface.shape[1], pits[n] % surface.shape[1]
        ending, key = _search(surface, drains, y, x, reach, deepest, n + 1, seen, back, costs, keys)
        if ending != _NONE:
            count += 1
            _dig(surface, y, x, reach, ending, key, back, keys, breached, origin[0], origin[1])
    return count


@compiled(single_call=True)
def _search(surface, drains, y, x, reach, deepest, number, seen, back, costs, keys):
    """Return how the trench of a pit ends, and the key of its end: its steps and its cell.

    ``seen`` holds the number of the last pit that has queued a cell, ``back`` the step by which it
    was entered; ``costs`` and ``keys`` are a binary heap.
    """
    side = 2 * reach + 1
    pit = reach * side + reach
    own = surface[y, x]
    seen[pit] = number
    cost, key, queued = 0.0, pit, 0
    while True:
        # A key is the number of steps times the cells of the window, plus the cell: entries of
        # equal cost come by steps, then by position.
        cell, steps = key % (side * side), key // (side * side)
        row, column = y - reach + cell // side, x - reach + cell % side
        here = surface[row, column]
        if here < own:
            return (_LOWER if cost > 0 else _NONE), key
        if drains[row, column]:
            return (_LEAVES if cost > 0 else _NONE), key
        if cost == 0 and cell < pit:
            return _NONE, key
        for k in range(8):
            i, j = cell // side + _ROWS[k], cell % side + _COLUMNS[k]
            if i < 0 or j < 0 or i >= side or j >= side or seen[i * side + j] == number:
                continue
            rise = surface[y - reach + i, x - reach + j] - own
            if rise <= deepest:
                seen[i * side + j] = number
                back[i * side + j] = k
                further = (steps + 1) * side * side + i * side + j
                _push(costs, keys, queued, cost + max(rise, 0.0), further)
                queued += 1
        if queued == 0:
            return _NONE, key
        cost, key = costs[0], keys[0]
        queued -= 1
        _pop(costs, keys, queued)


@compiled(single_call=True)
def _push(costs, keys, count, cost, key):
    """Put an entry into a heap of ``count`` entries."""
    at = count
    while at > 0:
        above = (at - 1) // 2
        if costs[above] < cost or (costs[above] == cost and keys[above] < key):
            break
        costs[at], keys[at] = costs[above], keys[above]
        at = above
    costs[at], keys[at] = cost, key


@compiled(single_call=True)
def _pop(costs, keys, count):
    """Take the first entry out of a heap, which leaves ``count``."""
    cost, key = costs[count], keys[count]
    at = 0
    while 2 * at + 1 < count:
        below = 2 * at + 1
        other = below + 1
        if other < count and (
            costs[other] < costs[below]
            or (costs[other] == costs[below] and keys[other] < keys[below])
        ):
            below = other
        if cost < costs[below] or (cost == costs[below] and key < keys[below]):
            break
        costs[at], keys[at] = costs[below], keys[below]
        at = below
    costs[at], keys[at] = cost, key


@compiled(single_call=True)
def _dig(surface, y, x, reach, ending, key, back, path, breached, top, left):
    """Lower the cells of a trench that lie in ``breached`` to the heights of the trench.

    ``path`` is room for its cells.
    """
    side = 2 * reach + 1
    cell, length = key % (side * side), key // (side * side)
    own = surface[y, x]
    end = surface[y - reach + cell // side, x - reach + cell % side]
    # Back from the end to the pit, by the steps by which cells were entered.
    for k in range(length, 0, -1):
        path[k] = cell
        step = back[cell]
        cell -= _ROWS[step] * side + _COLUMNS[step]
    level = own
    # The end of a trench is lowered only if water leaves there; lower ground stays as it is.
    for k in range(1, length + 1 if ending == _LEAVES else length):
        if ending == _LEAVES:
            level = max(np.nextafter(level, -np.inf), _LEAST)
        else:
            level = max(own - (own - end) * (k / length), end)
        row = y - reach + path[k] // side - top
        column = x - reach + path[k] % side - left
        if 0 <= row < breached.shape[0] and 0 <= column < breached.shape[1]:
            breached[row, column] = min(breached[row, column], level)


def compile_kernels() -> None:
    """Compile, or load from the cache, the functions of this file."""
    surface = np.ones((5, 5))
    surface[2, 2] = 0
    pits = np.empty(9, np.int64)
    drains = np.zeros(surface.shape, np.bool_)
    count = find_pits(surface, drains, pits, (1, 1), (4, 4), 1)
    dig_trenches(surface, drains, pits[:count], 1, np.inf, np.ones((3, 3)), (1, 1))
