"""Measure the extent of a bounded search, in one pass over its window."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.tiles.arrays import Array

COUNT, TOP, BOTTOM, LEFT, RIGHT, PEOPLE = range(6)


class Extent(NamedTuple):
    """Numbers of cells and people within reach, and their box."""

    cells: int
    top: int
    bottom: int
    left: int
    right: int
    people: int
    farthest: float


def measure_reach(
    dist: Array, nothing: float, people: Array, nodata: float | None, units: float
) -> Extent:
    """Return the number of cells and people within reach, its box, and the greatest distance.

    Parameters
    ----------
    dist : (h, w) float64, float32 or int64
        Distances; ``nothing`` and more are beyond reach.
    people : (h, w) of any real dtype, or (0, 0)
        People in the cells, with NaN, infinity or ``nodata`` where there are none; or no counts.
    units : float
        Of which one of the people is made; the number of people is in these, each cell's rounded
        to the nearest. Sums are below 2**63.
    """
    found = np.empty(6, np.int64)
    farthest = _measure(dist, nothing, people, np.nan if nodata is None else nodata, units, found)
    cells, top, bottom, left, right, total = found.tolist()
    return Extent(cells, top, bottom, left, right, total, farthest)


@compiled
def _measure(dist, nothing, people, nodata, units, found):
    """Set what `measure_reach` returns, and return the greatest distance."""
    height, width = dist.shape
    found[:] = 0
    found[TOP], found[LEFT] = height, width
    found[BOTTOM] = found[RIGHT] = -1
    farthest = 0.0
    for y in range(height):
        for x in range(width):
            cost = dist[y, x]
            if not cost < nothing:
                continue
            found[COUNT] += 1
            found[TOP] = min(found[TOP], y)
            found[BOTTOM] = y
            found[LEFT] = min(found[LEFT], x)
            found[RIGHT] = max(found[RIGHT], x)
            farthest = max(farthest, float(cost))
            if people.size:
                here = float(people[y, x])
                if np.isfinite(here) and here != nodata:
                    found[PEOPLE] += np.int64(np.rint(here * units))
    return farthest
