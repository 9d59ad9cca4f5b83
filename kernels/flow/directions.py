"""Directions of steepest descent (D8); in flats, towards the nearest cell that drains.

A cell's water takes the step of the steepest descent, of equal ones the first in a given order of
`STEPS`, which is that of the compass. Where no neighbour is lower, it leaves the grid, or flows
into nodata, by the first step that leads there. Where there is no such step either, it takes the
first step to a neighbour of the same height that is nearer, by a hop, to one that drains: so paths
over a flat do not turn back, and none is a circle. What reaches no such cell is a pit.

With gradients it takes the step to a cell that drains, or else to that where twice the hops to one
that drains less the hops from higher ground are least. Hops of both kinds differ by one at the most
between neighbours, so the one that is a hop nearer has less, and no path is a circle. Barnes,
Lehman and Mulla add the greatest hops from higher ground in the flat, the same for all its cells.

surface : (h + 2, w + 2), heights as `comparable` returns them; the greatest beyond the grid and on
    nodata.
valid : (h + 2, w + 2) uint8; 1 where there is a cell.
numbers : (h, w) uint8, as `orograph.kernels.flow.codes` has them.
order : int64; the numbers of steps, the first that counts first: all eight, or the four along rows
    and columns.
stride : 1 for all of `STEPS`, 2 for the four along rows and columns.
hops : (h + 2, w + 2) int32 or int64; 0 where a cell drains, -1 on nodata, which may be as high as
    cells in a flat, and greatest where nothing is known.
away : (h + 2, w + 2) int32 or int64; hops from higher ground, 1 beside it; 0 elsewhere.

Slopes are float64: the drop, exact for integers until it is rounded once, times the reciprocal of
the length. Which neighbour is lower is told by the heights, never by a slope, which may underflow.
Hops are integers, and each cell gets the least in the order of a queue, so that nothing depends on
the order of work.

References
----------
R. Barnes, C. Lehman, D. Mulla, "An efficient assignment of drainage direction over flat surfaces in
raster digital elevation models", doi:10.1016/j.cageo.2013.01.009.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.flow.codes import LEAVES, MISSING, SINK, STEPS
from orograph.kernels.forest.order_keys import order_keys
from orograph.tiles.arrays import Array, Integers

_ROWS, _COLUMNS = np.array(STEPS).T.copy()
# Strides of the loops over neighbours, constants so that LLVM unrolls these. For literal ints Numba
# would compile the functions called with them once for each value.
_EIGHT, _FOUR = np.int64(1), np.int64(2)


def comparable(heights: Array) -> Array:
    """Return 64-bit integers as uint64 in the same order, other heights as they are."""
    return order_keys(heights) if heights.dtype.kind in "iu" and heights.itemsize == 8 else heights


@compiled
def _descend(own, other, zero, reciprocal, number, best, found):
    """Take a step from the cells of a row where its slope is greater than the best.

    ``zero`` has the dtype in which heights are subtracted.
    """
    for x in range(own.size):
        slope = float((own[x] + zero) - (other[x] + zero)) * reciprocal
        better = (other[x] < own[x]) & (slope > best[x])
        best[x] = slope if better else best[x]
        found[x] = number if better else found[x]


def step_down(
    surface: Array, valid: Array, reciprocals: Array, numbers: Array, order: Integers
) -> int:
    """Write the steps of cells that drain by themselves; return how many others there are."""
    # Adding it to smaller types widens them before heights are subtracted.
    zero = np.uint64(0) if surface.dtype == np.uint64 else np.float64(0)
    flat: int = _step_down(surface, zero, valid, reciprocals, numbers, order)
    return flat


@compiled
def _step_down(surface, zero, valid, reciprocals, numbers, order):
    height, width = numbers.shape
    best = np.empty(width)
    found = np.empty(width, np.int64)
    flat = 0
    for y in range(height):
        # Below every slope downhill, even one that underflows to 0.
        best[:] = -1.0
        found[:] = SINK
        own = surface[y + 1, 1 : width + 1]
        row = reciprocals[min(y, reciprocals.shape[0] - 1)]
        for number in order:
            x = 1 + _COLUMNS[number]
            other = surface[y + 1 + _ROWS[number], x : x + width]
            _descend(own, other, zero, row[number], number, best, found)
        for x in range(width):
            number = found[x]
            if valid[y + 1, x + 1] == 0:
                number = MISSING
            elif number == SINK:
                # Backwards, so that the first such step in the order is the one that stays.
                for k in order[::-1]:
                    if valid[y + 1 + _ROWS[k], x + 1 + _COLUMNS[k]] == 0:
                        number = LEAVES + k
                flat += number == SINK
            numbers[y, x] = number
    return flat


@compiled
def start_hops(surface: Array, numbers: Array, hops: Array, undrained: Array, stride: int) -> int:
    """Write the hops of cells that drain, list the others; return how many lie beside the first.

    Those come first in the list.
    """
    height, width = numbers.shape
    far = np.iinfo(hops.dtype).max
    count = 0
    for y in range(height):
        for x in range(width):
            number = numbers[y, x]
            hops[y + 1, x + 1] = -1 if number == MISSING else 0
            if number == SINK:
                hops[y + 1, x + 1] = far
                undrained[count] = (y + 1) * (width + 2) + x + 1
                count += 1
    flat_hops, heights = hops.reshape(-1), surface.reshape(-1)
    first = 0
    for n in range(count):
        i = undrained[n]
        if stride == 1:
            drains = _drains_into_neighbour(heights, flat_hops, i, width + 2, _EIGHT)
        else:
            drains = _drains_into_neighbour(heights, flat_hops, i, width + 2, _FOUR)
        if drains:
            flat_hops[i] = 1
            # Exchanged with the first of the others, so the list begins with those that have hops.
            undrained[n] = undrained[first]
            undrained[first] = i
            first += 1
    return first


@compiled(inline=True)
def _drains_into_neighbour(heights, hops, i, width, stride):
    """Return whether a neighbour of the same height drains by itself."""
    for k in range(0, 8, stride):
        j = i + _ROWS[k] * width + _COLUMNS[k]
        if hops[j] == 0 and heights[j] == heights[i]:
            return True
    return False


@compiled
def start_away(
    surface: Array, valid: Array, numbers: Array, hops: Array, undrained: Array, stride: int
) -> int:
    """Write 1 where a cell that does not drain lies below a neighbour; return how many do.

    Those come first in the list of all cells that do not drain.
    """
    height, width = numbers.shape
    far = np.iinfo(hops.dtype).max
    count, first = 0, 0
    for y in range(height):
        for x in range(width):
            number = numbers[y, x]
            hops[y + 1, x + 1] = -1 if number == MISSING else 0
            if number != SINK:
                continue
            cell = (y + 1) * (width + 2) + x + 1
            hops[y + 1, x + 1] = far
            undrained[count] = cell
            if stride == 1:
                below = _lies_below_neighbour(surface, valid, y + 1, x + 1, _EIGHT)
            else:
                below = _lies_below_neighbour(surface, valid, y + 1, x + 1, _FOUR)
            if below:
                hops[y + 1, x + 1] = 1
                # As in `start_hops`: those that have hops come first.
                undrained[count] = undrained[first]
                undrained[first] = cell
                first += 1
            count += 1
    return first


@compiled(inline=True)
def _lies_below_neighbour(surface, valid, y, x, stride):
    """Return whether a neighbour is higher."""
    for k in range(0, 8, stride):
        i, j = y + _ROWS[k], x + _COLUMNS[k]
        if valid[i, j] and surface[i, j] > surface[y, x]:
            return True
    return False


@compiled(inline=True)
def _spread_from(heights, hops, i, height, width, queue, end, stride):
    """Carry the hops of a cell to its neighbours of the same height; append these to the queue."""
    row = i // width
    column = i - row * width
    for k in range(0, 8, stride):
        y, x = row + _ROWS[k], column + _COLUMNS[k]
        if 0 < y < height - 1 and 0 < x < width - 1:
            j = y * width + x
            if hops[j] > hops[i] + 1 and heights[j] == heights[i]:
                hops[j] = hops[i] + 1
                queue[end] = j
                end += 1
    return end


@compiled
def enter_hops(surface: Array, hops: Array, arrived: Array, queue: Array, stride: int) -> int:
    """Carry hops from cells of the halo, the least first; return how many cells they improve."""
    heights, flat = surface.reshape(-1), hops.reshape(-1)
    end: Any = np.int64(0)
    for i in arrived:
        end = _spread_from(heights, flat, i, hops.shape[0], hops.shape[1], queue, end, stride)
    return int(end)


@compiled
def spread_hops(
    surface: Array,
    hops: Array,
    seeds: Array,
    values: Array,
    queue: Array,
    bound: float,
    stride: int,
) -> tuple[int, int, int, int]:
    """Propagate hops over flats up to a bound; return the number of settled cells, and the rest.

    Parameters
    ----------
    seeds, values
        Cells whose hops are known, row-major in ``surface``, and these, ascending.
    queue
        Room for the cells that have no neighbour that drains.
    bound
        Hops beyond it are left.
    stride
        1 for all neighbours, 2 for the four beside a cell.

    Returns
    -------
    settled, first, start, end : int
        Left are ``seeds[first:]`` and ``queue[start:end]``.
    """
    height, width = hops.shape
    flat, heights = hops.reshape(-1), surface.reshape(-1)
    first, start, settled = 0, 0, 0
    end: Any = np.int64(0)
    while first < seeds.size or start < end:
        # Both lists ascend, the queue because it grows by one hop at a time: the lesser of their
        # first entries is the least of all, as in Dijkstra's algorithm, without a heap.
        if start == end or (first < seeds.size and values[first] <= flat[queue[start]]):
            i = seeds[first]
            value = values[first]
            if value > bound:
                break
            first += 1
            if flat[i] < value:  # another path was shorter
                continue
        else:
            i = queue[start]
            value = flat[i]
            if value > bound:
                break
            start += 1
        settled += 1
        if stride == 1:
            end = _spread_from(heights, flat, i, height, width, queue, end, _EIGHT)
        else:
            end = _spread_from(heights, flat, i, height, width, queue, end, _FOUR)
    return settled, first, start, end


@compiled
def step_along_flats(surface: Array, hops: Array, numbers: Array, order: Integers) -> None:
    """Write the steps of cells in flats that are connected to a cell that drains."""
    height, width = numbers.shape
    far = np.iinfo(hops.dtype).max
    for y in range(height):
        for x in range(width):
            own = hops[y + 1, x + 1]
            if numbers[y, x] == SINK and own < far:
                for k in order:
                    i, j = y + 1 + _ROWS[k], x + 1 + _COLUMNS[k]
                    if hops[i, j] == own - 1 and surface[i, j] == surface[y + 1, x + 1]:
                        numbers[y, x] = k
                        break


@compiled
def step_down_gradients(
    surface: Array, hops: Array, away: Array, numbers: Array, order: Integers
) -> None:
    """Write the steps of cells in flats away from higher ground and towards cells that drain."""
    height, width = numbers.shape
    far = np.iinfo(hops.dtype).max
    for y in range(height):
        for x in range(width):
            if numbers[y, x] != SINK or hops[y + 1, x + 1] == far:
                continue
            least = np.int64(far)
            for k in order:
                i, j = y + 1 + _ROWS[k], x + 1 + _COLUMNS[k]
                other = hops[i, j]
                if other < 0 or other == far or surface[i, j] != surface[y + 1, x + 1]:
                    continue
                # A neighbour of the same height that drains is taken at once.
                if other == 0:
                    numbers[y, x] = k
                    break
                mask = 2 * np.int64(other) - away[i, j]
                if mask < least:
                    least = mask
                    numbers[y, x] = k


def compile_kernels(dtype: np.dtype[Any]) -> None:
    """Compile, or load from the cache, the functions for tiles of this dtype."""
    surface = comparable(np.ones((4, 4), dtype))
    numbers = np.empty((2, 2), np.uint8)
    hops = np.zeros(surface.shape, np.int32)
    cells = np.empty(4, np.int64)
    order = np.arange(8)
    step_down(surface, np.ones(surface.shape, np.uint8), np.ones((1, 8)), numbers, order)
    start_hops(surface, numbers, hops, cells, 1)
    enter_hops(surface, hops, cells[:0], cells, 1)
    spread_hops(surface, hops, cells[:0], cells[:0], cells, np.inf, 1)
    step_along_flats(surface, hops, numbers, order)
    start_away(surface, np.ones(surface.shape, np.uint8), numbers, hops, cells, 1)
    step_down_gradients(surface, hops, hops, numbers, order)
