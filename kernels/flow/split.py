"""Flow that splits: portions of a cell's water to several lower neighbours, and their sums.

Heights are of a surface without depressions, numbers its D8 steps. A cell with a lower neighbour
splits its water; one in a flat gives it all to its D8 neighbour, which has the same height and is
nearer to a cell that drains. So water never comes back, and the cells can be done one after the
other: each once all that flow into it are known, its sum in the fixed order of its neighbours.
Whether a neighbour receives water is told by heights, never by a slope or portion, which may
underflow.

MULTIPLE, in proportion to the slopes to all lower neighbours: T. G. Freeman, "Calculating
catchment area with divergent flow based on a regular grid", doi:10.1016/0098-3004(91)90048-I, with
exponent 1.
INFINITE, to the two neighbours beside the steepest descent over eight triangular facets, in
proportion to the angles between: D. G. Tarboton, "A new method for the determination of flow
directions and upslope areas in grid digital elevation models", doi:10.1029/96WR03137. Of equal
slopes the first facet counts, counterclockwise from east.

Arrays of a tile with a ring of r cells have (h + 2 r) x (w + 2 r) elements:

heights : float64, r = 2; infinite on nodata and beyond the grid.
numbers : uint8, r = 2, as `orograph.kernels.flow.codes` has them.
reciprocals : (h + 2 or 1, 8) float64, of the lengths of the eight steps in each row with a ring of
    one, or in all.
kinds : uint8, r = 1. A step from 0 to 7, to which all flows; `SINK` and `MISSING`; `MULTIPLE`; or
    `INFINITE` plus the number of the facet.
shares : float64, r = 1; the sum of the slopes, or the portion of the facet's second neighbour.
receivers : uint8, r = 1; a bit for each step that water of the cell takes.
sums : float64, r = 1; NaN where not known.
waiting : uint8, r = 1; how many cells of unknown sums flow into a cell.

The angle is computed from sums, products, quotients and roots alone, which are rounded correctly
everywhere: so portions have the same bits on any machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from orograph.kernels.compiled import compiled
from orograph.kernels.flow.codes import MISSING, SINK, STEPS

Array = NDArray[Any]
Integers = NDArray[np.int64]

MULTIPLE, INFINITE = 32, 64
METHODS = {"mfd": MULTIPLE, "dinf": INFINITE}
_ROWS, _COLUMNS = np.array(STEPS).T.copy()
# of each facet the step along a side of the cell and the diagonal one, as Tarboton numbers them
_SIDE = np.array([0, 2, 2, 4, 4, 6, 6, 0])
_CORNER = np.array([1, 1, 3, 3, 5, 5, 7, 7])
_SERIES = 1 / np.arange(23.0, 0, -2)


@compiled
def arctan(x: float) -> float:
    """Return the arctangent of a number from 0 on, to some units in the last place."""
    inverse = x > 1
    if inverse:
        x = 1 / x
    # halve the angle twice: at most tan(pi / 16), where the series is short
    for _ in range(2):
        x = x / (1 + np.sqrt(1 + x * x))
    square = x * x
    series = 0.0
    for n in range(_SERIES.size):
        series = _SERIES[n] - square * series
    angle = 4 * (x * series)
    return np.pi / 2 - angle if inverse else angle


@compiled
def _steepest_facet(own, around, row):
    """Return the steepest facet of a cell, and of its direction and its width the tangents.

    The first is infinite where water goes to the corner alone, or beyond.
    """
    best, facet, tangent, widest = -1.0, 0, 0.0, 1.0
    for number in range(8):
        side, corner = _SIDE[number], _CORNER[number]
        first, second = around[side], around[corner]
        if not (first < own or second < own):
            continue
        # of the step from the end of the one to the end of the other
        beside = row[2 if side % 4 == 0 else 0]
        most = row[side] / beside
        slope, turn = (own - second) * row[corner], np.inf
        if first < own:
            down, across = (own - first) * row[side], (first - second) * beside
            if second >= first:
                slope, turn = down, 0.0
            elif across < down * most:
                slope, turn = np.sqrt(down * down + across * across), across / down
        if slope > best:
            best, facet, tangent, widest = slope, number, turn, most
    return facet, tangent, widest


@compiled
def split(
    heights: Array,
    numbers: Array,
    reciprocals: Array,
    method: int,
    kinds: Array,
    shares: Array,
    receivers: Array,
) -> None:
    """Write how the water of each cell of a tile and of the ring around it splits."""
    height, width = kinds.shape
    across = width + 2
    flat, codes = heights.reshape(-1), numbers.reshape(-1)
    steps, around = _ROWS * across + _COLUMNS, np.empty(8)
    known_width, known_angle = 1.0, arctan(1.0)
    for y in range(height):
        row = reciprocals[y if reciprocals.shape[0] > 1 else 0]
        for x in range(width):
            i = (y + 1) * across + x + 1
            code, own = codes[i], flat[i]
            kinds[y, x], shares[y, x], receivers[y, x] = code, 0.0, 0
            if code >= SINK:
                continue
            receivers[y, x] = 1 << code
            for k in range(8):
                around[k] = flat[i + steps[k]]
            if not around[code] < own:
                continue
            if method == MULTIPLE:
                total, lower = 0.0, 0
                for k in range(8):
                    if around[k] < own:
                        total += (own - around[k]) * row[k]
                        lower |= 1 << k
                if 0 < total < np.inf:
                    kinds[y, x], shares[y, x], receivers[y, x] = MULTIPLE, total, lower
                continue
            facet, tangent, widest = _steepest_facet(own, around, row)
            share = 1.0
            if tangent < np.inf:
                if widest != known_width:
                    known_width, known_angle = widest, arctan(widest)
                share = arctan(tangent) / known_angle
            kinds[y, x], shares[y, x] = INFINITE + facet, share
            receivers[y, x] = (share < 1) << _SIDE[facet] | (share > 0) << _CORNER[facet]


@compiled(inline=True)
def _portion(heights, reciprocals, kinds, shares, n, step):
    """Return the portion of a cell's water that takes a step, which is one of its receivers."""
    kind = kinds[n]
    if kind < SINK:
        return 1.0
    if kind >= INFINITE:
        return 1 - shares[n] if step == _SIDE[kind - INFINITE] else shares[n]
    across = heights.shape[1] - 2
    y, x = n // across, n % across
    drop = heights[y + 1, x + 1] - heights[y + 1 + _ROWS[step], x + 1 + _COLUMNS[step]]
    return drop * reciprocals[y if reciprocals.shape[0] > 1 else 0, step] / shares[n]


@compiled
def count_waiting(
    receivers: Array, kinds: Array, sums: Array, waiting: Array, queue: Integers
) -> int:
    """Count for each cell those of unknown sums that flow into it; return how many are ready.

    These are unknown and wait for none; ``queue``, of h * w, begins with them.
    """
    height, width = kinds.shape
    waiting[:] = 0
    for y in range(height):
        for x in range(width):
            if receivers[y, x] == 0 or not np.isnan(sums[y, x]):
                continue
            for k in range(8):
                v, u = y + _ROWS[k], x + _COLUMNS[k]
                if receivers[y, x] >> k & 1 and 0 <= v < height and 0 <= u < width:
                    waiting[v, u] += 1
    count = 0
    for y in range(1, height - 1):
        for x in range(1, width - 1):
            if waiting[y, x] == 0 and np.isnan(sums[y, x]) and kinds[y, x] != MISSING:
                queue[count] = y * width + x
                count += 1
    return count


@compiled(inline=True)
def _hand_on(receivers, waiting, i, height, width, queue, end):
    """Let the receivers of a cell wait for one less; append those that wait for none."""
    own, across = receivers.reshape(-1)[i], width
    still = waiting.reshape(-1)
    k = 0
    while own:
        if own & 1:
            v, u = i // across + _ROWS[k], i % across + _COLUMNS[k]
            if 0 < v < height - 1 and 0 < u < width - 1:
                j = v * across + u
                still[j] -= 1
                if still[j] == 0:
                    queue[end] = j
                    end += 1
        own >>= 1
        k += 1
    return end


@compiled
def take_in(receivers: Array, waiting: Array, arrived: Integers, queue: Integers, end: int) -> int:
    """Hand on that the sums of some cells of the ring are known; return the end of the queue."""
    height, width = receivers.shape
    for i in arrived:
        end = _hand_on(receivers, waiting, i, height, width, queue, end)
    return end


@compiled
def add_up(
    heights: Array,
    reciprocals: Array,
    kinds: Array,
    shares: Array,
    receivers: Array,
    weights: Array,
    sums: Array,
    waiting: Array,
    queue: Integers,
    end: int,
) -> int:
    """Add up what flows into the cells of a queue, and into those that are then ready.

    weights : (h, w) float64, what falls on each cell.
    Returns how many cells have become known.
    """
    height, width = kinds.shape
    flat_kinds, flat_shares, found = kinds.reshape(-1), shares.reshape(-1), sums.reshape(-1)
    given = receivers.reshape(-1)
    steps = _ROWS * width + _COLUMNS
    done = 0
    while end > 0:  # the last first: what a cell makes ready lies beside it
        end -= 1
        done += 1
        i = queue[end]
        total = weights[i // width - 1, i % width - 1]
        for k in range(8):
            n = i + steps[k]
            back = (k + 4) % 8
            if given[n] >> back & 1:
                total += _portion(heights, reciprocals, flat_kinds, flat_shares, n, back) * found[n]
        found[i] = total
        end = _hand_on(receivers, waiting, i, height, width, queue, end)
    return done


def compile_kernels() -> None:
    """Compile, or load from the cache, the functions for tiles."""
    heights = np.zeros((5, 5))
    numbers, reciprocals = np.full((5, 5), SINK, np.uint8), np.ones((1, 8))
    kinds, receivers, waiting = np.zeros((3, 3, 3), np.uint8)
    shares, sums = np.zeros((2, 3, 3))
    for method in METHODS.values():
        split(heights, numbers, reciprocals, method, kinds, shares, receivers)
    queue = np.empty(1, np.int64)
    end = count_waiting(receivers, kinds, sums, waiting, queue)
    end = take_in(receivers, waiting, queue[:0], queue, end)
    cells = heights, reciprocals, kinds, shares, receivers
    add_up(*cells, np.ones((1, 1)), sums, waiting, queue, end)
