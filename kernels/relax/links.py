"""Links within a tile: steps between cells that need not be neighbours.

The grid's steps and the links are brought to their fixpoints in turn, until neither lowers the
other: the grid by `orograph.kernels.relax.tile`, links by Dijkstra's algorithm from the cells whose
costs have fallen since the last time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.graph.dijkstra import dijkstra
from orograph.tiles.arrays import Array


@compiled
def _number_cells(tail, head, used, number):
    """Number the cells at ends of links in their order; return how many there are.

    ``used``, zeros before, then holds the numbers of such cells, and ``number`` their cells.
    """
    for link in range(tail.size):
        used[tail[link]] = 1
        used[head[link]] = 1
    count = 0
    # In the order of cells, whatever the order of links, so that the numbers are reproducible.
    for cell in range(used.size):
        if used[cell]:
            used[cell] = count
            number[count] = cell
            count += 1
    return count


@compiled
def _sort_by_tail(tail, head, cost, used, count, starts, heads, costs):
    """Sort links by their tails' numbers, stably; ``starts``, zeros before, ends with a spare."""
    for link in range(tail.size):
        # Counting sort, with counts stored two places ahead: after the prefix sums place i + 1 is
        # where row i begins, and after its links are written where it ends, that is, where row i +
        # 1 begins.
        starts[used[tail[link]] + 2] += 1
    for i in range(count):
        starts[i + 2] += starts[i + 1]
    for link in range(tail.size):
        row = used[tail[link]] + 1
        heads[starts[row]] = used[head[link]]
        costs[starts[row]] = cost[link]
        starts[row] += 1


class InnerLinks:
    """Links between cells of a tile.

    Parameters
    ----------
    tail, head : (n, 2) int64
        Rows and columns of the cells that they join, counted from the tile's first cell.
    cost : (n,)
        Not negative.
    shape : (int, int)
        Rows and columns of the tile.
    """

    def __init__(self, tail: Array, head: Array, cost: Array, shape: tuple[int, int]) -> None:
        height, width = shape
        flat = [np.ascontiguousarray(cells[:, 0] * width + cells[:, 1]) for cells in (tail, head)]
        number = np.empty(min(2 * cost.size, height * width), np.int64)
        starts = np.zeros(number.size + 2, np.int64)
        heads, costs = np.empty(cost.size, np.int64), np.empty_like(cost)
        used = np.zeros(height * width if cost.size else 0, np.int32)
        count = _number_cells(flat[0], flat[1], used, number)
        _sort_by_tail(flat[0], flat[1], cost, used, count, starts, heads, costs)
        self.cells: tuple[Array, Array] = np.divmod(number[:count], width)
        """Rows and columns of the cells that links join."""
        self._rows = starts[: count + 1], heads, costs

    def lower(self, known: Array, before: Array | None, unreached: Any, limit: Any) -> Array:
        """Return the costs of `cells` lowered along links.

        Parameters
        ----------
        known : (n,)
            Costs of `cells`.
        before : (n,), optional
            What the last call returned, if there was one for the same tile.
        unreached, limit
            The cost of a cell that has none, and the greatest one allowed.
        """
        if before is None or (known > before).any():  # of a tile restored, maybe
            before = np.full_like(known, unreached)
        # along links from all others costs have been spread before
        starts = np.flatnonzero(known < before)
        cost = known.copy()
        if starts.size:
            dijkstra(*self._rows, starts, cost.dtype.type(limit), cost)
        return cost
