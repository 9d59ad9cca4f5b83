"""First-order distances of the eikonal equation in a tile, in integers.

With a and b the lesser neighbour along x and along y, the smaller of them first, and c the cost of
a cell's side, the value of a cell is a + c where b is c or more beyond a, else

    a + floor((d + floor(sqrt(2 c**2 - d**2))) / 2),    d = b - a.

It does not fall where a or b rises, and it is a function of integers; so every order of updates
ends at the same values, whatever the tiling. In floats it depends on the order. Since no value is
below those that it comes from, cells are taken in the order of their values, by a heap that holds
each cell once and knows its place. Serial; ends because values fall at each update and are whole.

Sethian, "A fast marching level set method for monotonically advancing fronts" (1996),
doi:10.1073/pnas.93.4.1591. Rouy and Tourin (1992), doi:10.1137/0729053.

Costs are below 2**31, so that 2 c**2 fits int64; places in the heap are int64.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.graph.dijkstra import leave_waiting, queue_waiting, rise, sink

FAR = 2**60
"""Value of cells that nothing has reached."""
MOST_COST = 2**31 - 1


@compiled
def floor_root(number):
    """Return the floor of the square root of a whole number."""
    # The number has up to 63 bits and a double 53, so the root may be off to either side.
    root = np.int64(np.sqrt(np.float64(number)))
    while root * root > number:
        root -= 1
    while (root + 1) * (root + 1) <= number:
        root += 1
    return root


@compiled
def update(a, b, cost):
    """Return the value of a cell from its lesser neighbours along both axes."""
    if b < a:
        a, b = b, a
    d = b - a
    if d >= cost:
        return a + cost
    return a + (d + floor_root(2 * cost * cost - d * d)) // 2


@compiled
def march(values, costs, waiting, bound, limit):
    """Lower the cells of a tile, in the order of their values, up to a bound.

    Parameters
    ----------
    values : (h + 2, w + 2) int64
        With the halo, which is read alone; changed in place.
    costs : (h, w) int64
        Costs of the cells' sides; 0: a barrier.
    waiting : (h + 2, w + 2) bool
        Cells whose neighbours are to be updated; changed in place.
    bound : float
        Neighbours of cells above it stay waiting.
    limit : int
        The greatest value of interest.

    Returns
    -------
    pending : float
        Least value of a cell that is waiting; infinite if none is.
    settled : int
        How often cells were lowered.
    """
    height, width = costs.shape
    stride = width + 2
    flat = values.reshape(-1)
    wait = waiting.reshape(-1)
    heap = np.empty(flat.size, np.int64)
    key = np.empty(flat.size, np.int64)
    place = np.full(flat.size, -1, np.int64)
    # Cells of the halo wait as others do; they are only never lowered.
    size = queue_waiting(flat, wait, heap, key, place)
    settled = 0
    while size and key[0] <= bound:
        cell = heap[0]
        size -= 1
        place[cell] = -1
        if size:
            sink(heap, key, place, size, heap[size], key[size])
        for k in range(4):
            there = cell + (1 if k == 0 else -1 if k == 1 else stride if k == 2 else -stride)
            if there < 0 or there >= flat.size:
                continue
            y = there // stride - 1
            x = there % stride - 1
            if y < 0 or y >= height or x < 0 or x >= width or costs[y, x] == 0:
                continue
            # No value is below those that it comes from, so this cell cannot lower that one.
            if flat[there] <= flat[cell]:
                continue
            along = min(flat[there - 1], flat[there + 1])
            across = min(flat[there - stride], flat[there + stride])
            found = update(along, across, costs[y, x])
            if found < flat[there] and found <= limit:
                flat[there] = found
                settled += 1
                if place[there] < 0:
                    rise(heap, key, place, size, there, found)
                    size += 1
                else:
                    rise(heap, key, place, place[there], there, found)
    # What is left in the heap is above the bound, and waits for the next call.
    return leave_waiting(wait, heap, key, size), settled
