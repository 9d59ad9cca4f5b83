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
givers : uint8, r = 1; a bit for each step towards a cell whose water it takes.
sums : float64, r = 1; NaN where not known.
waiting : uint8, r = 1; how many cells of unknown sums flow into a cell.

The angle is computed from sums, products, quotients and roots alone, which are rounded correctly
everywhere: so portions have the same bits on any machine.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.flow.codes import MISSING, SINK, STEPS
from orograph.tiles.arrays import Array, Integers

MULTIPLE, INFINITE = 32, 64
METHODS = {"mfd": MULTIPLE, "dinf": INFINITE}
_ROWS, _COLUMNS = np.array(STEPS).T.copy()
# of each facet the step along a side of the cell and the diagonal one, as Tarboton numbers them
_SIDE = np.array([0, 2, 2, 4, 4, 6, 6, 0])
_CORNER = np.array([1, 1, 3, 3, 5, 5, 7, 7])
_SIDES, _CORNERS = 1 << _SIDE, 1 << _CORNER
# where facets begin, at their sides; those of odd numbers go clockwise from there
_START = np.array([0, 0.5, 0.5, 1, 1, 1.5, 1.5, 2]) * np.pi
_FACET_OF_STEP = np.array([0, 0, 2, 2, 4, 4, 6, 6])
_SERIES = 1 / np.arange(23.0, 0, -2)
# of each set of steps the first, and how many they are
_LOWEST = np.array([0, *((n & -n).bit_length() - 1 for n in range(1, 256))])
_NUMBER = np.array([n.bit_count() for n in range(256)], np.uint8)


@compiled(inline=True, error_model="numpy")
def arctan(x: float) -> float:
    """Return the arctangent of a number from 0 on, to some units in the last place."""
    inverse = x > 1
    x = 1 / x if inverse else x
    # halve the angle twice: at most tan(pi / 16), where the series is short
    for _ in range(2):
        # tan(a / 2) = tan a / (1 + sqrt(1 + tan(a)**2)).
        x = x / (1 + np.sqrt(1 + x * x))
    square = x * x
    series = 0.0
    for n in range(_SERIES.size):
        # Horner's scheme for 1 - x**2 / 3 + x**4 / 5 - ..., from the last term on.
        series = _SERIES[n] - square * series
    angle = 4 * (x * series)
    return np.pi / 2 - angle if inverse else angle


@compiled(inline=True, error_model="numpy")
def _steeper(own, first, second, straight, slanting, beside, number, best):
    """Return the slope, number and tangent of a facet, or ``best`` if that is as steep.

    ``first`` and ``second`` are the heights beside it, along the side of the cell and at its
    corner; of the steps to these, and from the one to the other, the reciprocals follow. The
    tangent is that of the angle from the side: infinite where water goes to the corner alone.
    """
    falls, turns = (own - first) * straight, (first - second) * beside
    # Water goes along the side if the corner is not lower than the side's cell, within the facet if
    # the descent turns by less than its angle, else to the corner.
    lower = first < own
    level = lower & (second >= first)
    within = lower & (second < first) & (turns < falls * (straight / beside))
    slope = np.sqrt(falls * falls + turns * turns) if within else (own - second) * slanting
    slope = falls if level else slope
    tangent = turns / falls if within else (0.0 if level else np.inf)
    steeper = (lower | (second < own)) & (slope > best[0])
    return (
        slope if steeper else best[0],
        number if steeper else best[1],
        tangent if steeper else best[2],
    )


@compiled(error_model="numpy")
def _steepest_facets(above, here, below, row, facets, shares):
    """Write the steepest facet of each cell of a row, and the portion that goes to its corner.

    One loop without branches, which LLVM makes vectors of.
    """
    e, ne, n, nw, w, sw, s, se = row
    flat, steep = arctan(e / n), arctan(n / e)
    for x in range(shares.size):
        own, side, corner = here[x + 1], here[x + 2], above[x + 2]
        best = _steeper(own, side, corner, e, ne, n, 0.0, (-1.0, 0.0, 0.0))
        side = above[x + 1]
        best = _steeper(own, side, corner, n, ne, e, 1.0, best)
        corner = above[x]
        best = _steeper(own, side, corner, n, nw, w, 2.0, best)
        side = here[x]
        best = _steeper(own, side, corner, w, nw, n, 3.0, best)
        corner = below[x]
        best = _steeper(own, side, corner, w, sw, s, 4.0, best)
        side = below[x + 1]
        best = _steeper(own, side, corner, s, sw, w, 5.0, best)
        corner = below[x + 2]
        best = _steeper(own, side, corner, s, se, e, 6.0, best)
        best = _steeper(own, here[x + 2], corner, e, se, s, 7.0, best)
        # Facets whose side lies in the row have the angle between east and the diagonal, the others
        # the rest of the right angle.
        facet, angle = best[1], arctan(best[2])
        beside_row = (facet == 0) | (facet == 3) | (facet == 4) | (facet == 7)
        facets[x], shares[x] = facet, min(angle / (flat if beside_row else steep), 1.0)


@compiled
def _split_in_two(flat, numbers, base, steps, row, kinds, shares, receivers, facets):
    """Split the water of the cells of a row between the two neighbours at the steepest descent."""
    width = kinds.size
    across = width + 2
    above, here, below = base - across - 1, base - 1, base + across - 1
    _steepest_facets(
        *(flat[above : above + across], flat[here : here + across], flat[below : below + across]),
        *((row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7]), facets, shares),
    )
    for x in range(width):
        i = base + x
        code = numbers[i]
        if code >= SINK:
            kinds[x], receivers[x] = code, 0
        elif flat[i + steps[code]] < flat[i]:
            facet = int(facets[x])
            kinds[x] = INFINITE + facet
            # A portion of 0 or 1 leaves one of the two without water.
            receivers[x] = (shares[x] < 1) * _SIDES[facet] | (shares[x] > 0) * _CORNERS[facet]
        else:
            kinds[x], receivers[x] = code, 1 << code


@compiled
def find_angles(heights: Array, numbers: Array, reciprocals: Array, angles: Array) -> None:
    """Write the angle of each cell's direction, counterclockwise from east, below 2 pi.

    heights, numbers : with a ring of one cell.
    reciprocals : (h or 1, 8), of the lengths of the steps in each row, or in all.
    angles : (h, w) float32; NaN on nodata, -1 where water ends. In a flat, and where water leaves
        the grid or flows into nodata, the angle is that of the D8 step.
    """
    height, width = angles.shape
    facets, shares = np.empty(width), np.empty(width)
    turn = np.float32(2 * np.pi)
    for y in range(height):
        row = reciprocals[y if reciprocals.shape[0] > 1 else 0]
        here = heights[y + 1]
        _steepest_facets(
            *(heights[y], here, heights[y + 2]),
            *((row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7]), facets, shares),
        )
        flat, steep = arctan(row[0] / row[2]), arctan(row[2] / row[0])
        for x in range(width):
            code = numbers[y + 1, x + 1]
            if code >= SINK:
                angles[y, x] = np.nan if code == MISSING else -1
                continue
            # of a D8 step: the first facet beside it, and all or nothing of its angle
            facet, share = _FACET_OF_STEP[code], code % 2 * 1.0
            if heights[y + 1 + _ROWS[code], x + 1 + _COLUMNS[code]] < here[x + 1]:
                facet, share = int(facets[x]), shares[x]
            angle = share * (flat if _SIDE[facet] % 4 == 0 else steep)
            own = np.float32(_START[facet] + (angle if facet % 2 == 0 else -angle))
            angles[y, x] = own if own < turn else 0


@compiled
def _split_to_all(flat, numbers, base, steps, row, kinds, shares, receivers):
    """Write how the water of the cells of a row splits to all lower neighbours."""
    for x in range(kinds.size):
        i = base + x
        code, own = numbers[i], flat[i]
        kinds[x], shares[x], receivers[x] = code, 0.0, 0
        if code >= SINK:
            continue
        receivers[x] = 1 << code
        if not flat[i + steps[code]] < own:
            continue
        total, lower = 0.0, 0
        for k in range(8):
            drop = own - flat[i + steps[k]]
            total += drop * row[k] if drop > 0 else 0.0
            lower |= (drop > 0) << k
        # If slopes underflow or overflow, there is nothing to divide by: all goes by the D8 step.
        if 0 < total < np.inf:
            kinds[x], shares[x], receivers[x] = MULTIPLE, total, lower


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
    flat, codes = heights.reshape(-1), numbers.reshape(-1)
    steps = _ROWS * (width + 2) + _COLUMNS
    facets = np.empty(width)
    for y in range(height):
        row = reciprocals[y if reciprocals.shape[0] > 1 else 0]
        base = (y + 1) * (width + 2) + 1
        out = kinds[y], shares[y], receivers[y]
        if method == MULTIPLE:
            _split_to_all(flat, codes, base, steps, row, *out)
        else:
            _split_in_two(flat, codes, base, steps, row, *out, facets)


@compiled
def _find_givers(receivers, givers):
    """Write for each cell within the ring which neighbours' water it takes, as a bit for each."""
    height, width = receivers.shape
    for y in range(1, height - 1):
        above, here, below, into = receivers[y - 1], receivers[y], receivers[y + 1], givers[y, 1:]
        for x in range(width - 2):
            # bit k of a cell if bit k + 4 of its neighbour says so
            upper = (above[x + 2] >> 5 & 1) << 1 | (above[x + 1] >> 6 & 1) << 2
            lower = (below[x] >> 1 & 1) << 5 | (below[x + 1] >> 2 & 1) << 6
            ends = here[x + 2] >> 4 & 1 | (here[x] & 1) << 4
            corners = (above[x] >> 7 & 1) << 3 | (below[x + 2] >> 3 & 1) << 7
            into[x] = upper | lower | ends | corners


@compiled
def count_waiting(
    receivers: Array, kinds: Array, sums: Array, givers: Array, waiting: Array, queue: Integers
) -> int:
    """Find which cells flow into each, and count how many of these have unknown sums.

    Returns how many cells are ready, that is, unknown and waiting for none; ``queue``, of h * w,
    begins with them. Cells of the ring wait for ever.
    """
    height, width = kinds.shape
    # Counted are givers whose sums are not known. Afterwards all givers are written, since the sums
    # are over all of them.
    unknown = np.isnan(sums)
    _find_givers(np.where(unknown, receivers, np.uint8(0)), givers)
    # More than eight, the greatest number of givers: cells of the ring never become ready.
    waiting[:] = 255
    count = 0
    for y in range(1, height - 1):
        for x in range(1, width - 1):
            waiting[y, x] = _NUMBER[givers[y, x]]
            if waiting[y, x] == 0 and unknown[y, x] and kinds[y, x] != MISSING:
                queue[count] = y * width + x
                count += 1
    _find_givers(receivers, givers)
    return count


@compiled
def take_in(receivers: Array, waiting: Array, arrived: Integers, queue: Integers, end: int) -> int:
    """Mark the inflow from some cells of the ring as known; return the end of the queue."""
    height, width = receivers.shape
    for i in arrived:
        for k in range(8):
            v, u = i // width + _ROWS[k], i % width + _COLUMNS[k]
            inside = 0 < v < height - 1 and 0 < u < width - 1
            if inside and receivers[i // width, i % width] >> k & 1:
                waiting[v, u] -= 1
                if waiting[v, u] == 0:
                    queue[end] = v * width + u
                    end += 1
    return end


@compiled
def add_up(
    heights: Array,
    reciprocals: Array,
    kinds: Array,
    shares: Array,
    receivers: Array,
    givers: Array,
    weights: Array,
    sums: Array,
    waiting: Array,
    queue: Integers,
    end: int,
) -> int:
    """Sum the inflow of the cells in a queue, and of cells that become ready by it.

    weights : (h, w) float64, what falls on each cell.
    Returns how many cells have become known.
    """
    width = kinds.shape[1]
    surface, flat_kinds, flat_shares = heights.reshape(-1), kinds.reshape(-1), shares.reshape(-1)
    found, counts = sums.reshape(-1), waiting.reshape(-1)
    given, taken = receivers.reshape(-1), givers.reshape(-1)
    steps, wide = _ROWS * width + _COLUMNS, _ROWS * (width + 2) + _COLUMNS
    done = 0
    while end > 0:  # the last first: what a cell makes ready lies beside it
        end -= 1
        done += 1
        i = queue[end]
        y = i // width
        # The heights have a ring of two cells, all else has one of one cell.
        j = i + 2 * y + width + 3  # the same cell among the heights
        own = surface[j]
        # The weight, then the neighbours in ascending order of their steps: floats are added in one
        # order.
        total = weights[y - 1, i - y * width - 1]
        left = taken[i]
        while left:
            k = _LOWEST[left]
            left &= left - 1
            n, back = i + steps[k], (k + 4) % 8
            kind, portion = flat_kinds[n], 1.0
            if kind >= INFINITE:
                share = flat_shares[n]
                portion = 1 - share if back == _SIDE[kind - INFINITE] else share
            elif kind == MULTIPLE:
                row = y + _ROWS[k] if reciprocals.shape[0] > 1 else 0
                portion = (surface[j + wide[k]] - own) * reciprocals[row, back] / flat_shares[n]
            total += portion * found[n]
        found[i] = total
        left = given[i]
        while left:
            n = i + steps[_LOWEST[left]]
            left &= left - 1
            counts[n] -= 1
            if counts[n] == 0:
                queue[end] = n
                end += 1
    return done


def compile_kernels() -> None:
    """Compile, or load from the cache, the functions for tiles."""
    heights = np.zeros((5, 5))
    numbers, reciprocals = np.full((5, 5), SINK, np.uint8), np.ones((1, 8))
    kinds, receivers, givers, waiting = np.zeros((4, 3, 3), np.uint8)
    shares, sums = np.zeros((2, 3, 3))
    for method in METHODS.values():
        split(heights, numbers, reciprocals, method, kinds, shares, receivers)
    find_angles(shares, kinds, reciprocals, np.zeros((1, 1), np.float32))
    queue = np.empty(1, np.int64)
    end = count_waiting(receivers, kinds, sums, givers, waiting, queue)
    end = take_in(receivers, waiting, queue[:0], queue, end)
    cells = heights, reciprocals, kinds, shares, receivers, givers
    add_up(*cells, np.ones((1, 1)), sums, waiting, queue, end)
