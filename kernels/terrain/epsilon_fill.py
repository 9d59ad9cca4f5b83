"""Filling that drains: each cell that is raised lies a step above a neighbour.

A cell where water may leave keeps its height. Any other has the greater of its own height and of
the least height around it raised by a step, as in a priority flood that adds a step to each cell it
floods. What a height is raised to never falls where that height rises, so there is one such
surface, whatever the order of cells. Here they are taken in the order of their heights, by a heap
that holds each cell once and knows its place. Serial; ends because heights only fall, each to one
that follows from a path.

Without a step heights rise by the spacing of floats, at 1 where they are nearer to 0. Otherwise the
sum is rounded once, to the dtype of the heights.

filled : (h + 2, w + 2) float32 or float64, with a halo; infinite where nothing is known.
heights : (h, w), of the same dtype; NaN on nodata.

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
from orograph.kernels.graph.dijkstra import leave_waiting, queue_waiting, rise, sink
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
    fixed : (h, w) or (0, 0) uint8
        Numbers of the only steps by which water leaves some cells; 8 for other cells.
    step : float
        By how much a height rises; 0: by the spacing of floats.
    neighbours : {4, 8}
    bound : float
        Neighbours of cells above it stay waiting.

    Returns
    -------
    pending : float
        Least height of a cell that is waiting; infinite if none is.
    settled : int
        How often cells were lowered.
    """
    height, width = heights.shape
    stride = width + 2
    flat, wait = filled.reshape(-1), waiting.reshape(-1)
    heap = np.empty(flat.size, np.int64)
    key = np.empty(flat.size, flat.dtype)
    place = np.full(flat.size, -1, np.int64)
    one, room = flat.dtype.type(1), np.empty(1, flat.dtype)
    # Cells of the halo wait as others do, but are never lowered.
    size = queue_waiting(flat, wait, heap, key, place)
    settled = 0
    while size and key[0] <= bound:
        cell = heap[0]
        size -= 1
        place[cell] = -1
        if size:
            sink(heap, key, place, size, heap[size], key[size])
        raised = _raise(flat[cell], step, one, room)
        y, x = cell // stride - 1, cell % stride - 1
        for k in range(0, 8, 8 // neighbours):
            i, j = y + _ROWS[k], x + _COLUMNS[k]
            if i < 0 or i >= height or j < 0 or j >= width:
                continue
            # Water of a cell with a fixed step comes by that alone, against the step from here.
            if fixed.size and fixed[i, j] != 8 and fixed[i, j] != (k + 4) % 8:
                continue
            there = cell + _ROWS[k] * stride + _COLUMNS[k]
            found = max(raised, heights[i, j])
            # Comparisons with NaN are false, so nodata stay as they are.
            if heights[i, j] <= found < flat[there]:
                flat[there] = found
                settled += 1
                if place[there] < 0:
                    rise(heap, key, place, size, there, found)
                    size += 1
                else:
                    rise(heap, key, place, place[there], there, found)
    # What is left in the heap is above the bound, and waits for the next call.
    return leave_waiting(wait, heap, key, size), settled


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
