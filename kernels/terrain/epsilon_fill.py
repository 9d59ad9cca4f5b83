"""Filling that drains: each cell that is raised lies a step above a neighbour.

A cell where water may leave keeps its height. Any other has the greater of its own height and of
the least height around it raised by a step, as in a priority flood that adds a step to each cell it
floods. What a height is raised to never falls where that height rises, so there is one such
surface, whatever the order of cells.

A cell that stands no lower than a reached neighbour raised by a step keeps its height, whatever
else is found. So from each reached cell all that rises is reached at once. Only cells that are
raised need an order: the neighbours that raise them come from a heap, which knows the place of each
cell, or from a queue if they were raised themselves, which happens in the order of heights. Serial;
ends because heights only fall, each to one that follows from a path.

Without a step heights rise by the spacing of floats, at 1 where they are nearer to 0. Otherwise the
sum is rounded once, to the dtype of the heights.

filled : (h + 2, w + 2) float32 or float64, with a halo; infinite where nothing is known.
heights : (h + 2, w + 2), of the same dtype; NaN on nodata and in the halo.

References
----------
R. Barnes, C. Lehman, D. Mulla, "Priority-flood: An optimal depression-filling and
watershed-labeling algorithm for digital elevation models", doi:10.1016/j.cageo.2013.04.024
(Priority-Flood+Epsilon).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.flow.codes import STEPS
from orograph.kernels.graph.dijkstra import leave_waiting, rise, sink
from orograph.tiles.arrays import Array

_ROWS, _COLUMNS = np.array(STEPS).T.copy()


@compiled
def _raise(height, step, one, room):
    """Return a height raised by a step, or by the spacing of floats if the step is 0.

    ``one`` is 1 in the dtype of heights. What is written to ``room``, of one number, is rounded to
    that dtype.
    """
    if step == 0:
        room[0] = height + np.spacing(max(abs(height), one))
        return room[0]
    low = np.float64(height)
    total = low + step
    room[0] = total
    # What the sum has lost by rounding (Knuth). It matters where the sum lies midway between two
    # float32, of which the nearer to the true sum is taken.
    high = total - low
    lost = (low - (total - high)) + (step - high)
    beyond = total - np.float64(room[0])
    if lost != 0 and beyond != 0 and (lost > 0) == (beyond > 0):
        other = np.nextafter(room[0], room.dtype.type(np.copysign(np.inf, beyond)))
        if np.float64(other) - total == beyond:
            room[0] = other
    return room[0]


@compiled
def epsilon_fill(
    filled: Array,
    heights: Array,
    waiting: Array,
    fixed: Array,
    step: float,
    neighbours: int,
    bound: float,
) -> tuple[float, int]:
    """Lower the filled heights of a tile, least first, up to a bound.

    Parameters
    ----------
    filled, heights
        The first is changed in place; its halo is only read.
    waiting : (h + 2, w + 2) bool
        Cells whose neighbours are to be lowered; changed in place.
    fixed : (h + 2, w + 2) or (0, 0) uint8
        Numbers of the only steps by which water leaves some cells; 8 for other cells.
    step : float
        By how much a height rises; 0: by the spacing of floats.
    neighbours : {4, 8}
    bound : float
        Neighbours of cells above it stay waiting, but for those that keep their height.

    Returns
    -------
    pending : float
        Least height of a cell that is waiting, or less; infinite if none is.
    settled : int
        How often cells got a height that is final, as far as the halo is.
    """
    spacing = 8 // neighbours
    offsets = (_ROWS * filled.shape[1] + _COLUMNS)[::spacing]
    flat, wait = filled.reshape(-1), waiting.reshape(-1)
    own, only = heights.reshape(-1), fixed.reshape(-1)
    heap = np.empty(flat.size, np.int64)
    key = np.empty(flat.size, flat.dtype)
    place = np.full(flat.size, -1, np.int64)
    # Cells that were raised, and cells that keep their height.
    queue, kept = np.empty(flat.size, np.int64), np.empty(flat.size, np.int64)
    one, room = flat.dtype.type(1), np.empty(1, flat.dtype)
    first = last = bottom = top = size = settled = 0
    # Cells of the halo wait as others do, but are never lowered.
    for cell in range(flat.size):
        if wait[cell]:
            wait[cell] = False
            if flat[cell] == own[cell]:
                kept[top] = cell
                top += 1
            else:
                rise(heap, key, place, size, cell, flat[cell])
                size += 1
    while True:
        in_order = bottom == top
        if bottom < top:
            cell = kept[bottom]
            bottom += 1
        elif first < last and (size == 0 or flat[queue[first]] <= key[0]):
            cell = queue[first]
            if flat[cell] > bound:
                break
            first += 1
        elif size and key[0] <= bound:
            cell = heap[0]
            size -= 1
            place[cell] = -1
            if size:
                sink(heap, key, place, size, heap[size], key[size])
        else:
            break
        if in_order:
            bottom = top = 0
        raised = _raise(flat[cell], step, one, room)
        lowers = False
        for k in range(offsets.size):
            there = cell + offsets[k]
            # A step from the halo may lead out of the array, or to the halo at the other side.
            if not 0 <= there < flat.size:
                continue
            height = own[there]
            # False for cells that keep their height, and for NaN: nodata and the halo.
            if not height < flat[there]:
                continue
            # Water of a cell with a fixed step comes by that alone, against the step from here.
            if only.size and only[there] != 8 and only[there] != (k * spacing + 4) % 8:
                continue
            if raised <= height:
                flat[there] = height
                wait[there] = False
                kept[top] = there
                top += 1
                settled += 1
            elif in_order and (raised < flat[there] or (raised == flat[there] and wait[there])):
                # No cell that comes later is lower, so this is the least that it can have.
                flat[there] = raised
                wait[there] = False
                queue[last] = there
                last += 1
                settled += 1
            elif raised < flat[there]:
                # It waits until all that is lower has come, and so does the cell that raises it.
                flat[there] = raised
                wait[there] = lowers = True
        if lowers:
            at = place[cell]
            if at < 0:
                at = size
                size += 1
            rise(heap, key, place, at, cell, flat[cell])
    for i in range(first, last):
        wait[queue[i]] = True
    pending = np.float64(flat[queue[first]]) if first < last else np.inf
    # What is left is above the bound, and waits for the next call.
    return min(pending, leave_waiting(wait, heap, key, size)), settled


@compiled
def first_level(filled: Array, drains: Array, neighbours: int) -> Any:
    """Return the first cell from which water cannot go on, row-major in the tile, or -1.

    Water of a reached cell leaves there, or goes on to a lower neighbour. One that is not reached
    has no reached neighbour, but where heights overflow, and where its only step leads to another
    that is not: ``drains`` is true of cells with a fixed step too.
    """
    height, width = drains.shape
    for y in range(height):
        for x in range(width):
            least = filled.dtype.type(np.inf)
            for k in range(0, 8, 8 // neighbours):
                least = min(least, filled[y + 1 + _ROWS[k], x + 1 + _COLUMNS[k]])
            own = filled[y + 1, x + 1]
            stays = own <= least if own < np.inf else least < np.inf
            if stays and not drains[y, x]:
                return y * width + x
    return -1
