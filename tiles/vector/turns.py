"""Lines on grids that wrap: make x continuous along them, and cut them at the seam."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.tiles.arrays import Integers, Reals

Turn = tuple[float, float]
"""The x at the western end of a grid that wraps, and the width of a whole turn."""


def stated_turn(attrs: Mapping[Any, Any]) -> Turn | None:
    """Return the turn that the attributes of a result state; None if its grid does not wrap."""
    if "turn" not in attrs:
        return None
    west, width = np.ravel(attrs["turn"]).tolist()
    return float(west), float(width)


def turns_of(x: npt.NDArray[Any], turn: float) -> Integers:
    """Return how often a line has gone around before each vertex, to the east, from its first."""
    step = np.diff(x)
    around = (2 * step < -turn).astype(np.int64) - (2 * step > turn)
    return np.concatenate([[0], np.cumsum(around)])


def unwound(points: Reals, turn: Turn | None) -> Reals:
    """Return a line that goes on beyond the seam where it crosses it; the same without a turn."""
    if turn is None:
        return points
    line = points.copy()
    line[:, 0] += turns_of(points[:, 0], turn[1]) * turn[1]
    return line


def over_poles(line: Reals, cells: Integers, columns: int) -> dict[int, Reals]:
    """Return the two points at which a path comes to a pole and leaves it, by place in the path.

    Parameters
    ----------
    line
        Longitude and latitude of the centres of its cells.
    cells
        Their rows and columns.
    columns
        Columns of the grid.
    """
    row, column = np.diff(cells, axis=0).T
    over = np.flatnonzero((row == 0) & (2 * np.abs(column) == columns))
    poles = np.copysign(90.0, line[over, 1])
    ends = [np.stack([line[over + n, 0], poles], axis=1) for n in (0, 1)]
    return dict(zip(over.tolist(), np.stack(ends, axis=1), strict=True))


def lines_of(points: Reals, counts: Integers, turn: Turn | None) -> npt.NDArray[Any]:
    """Return lines of some points each, those that cross a seam as lines of several parts."""
    import shapely

    number = np.repeat(np.arange(len(counts)), counts)
    lines = np.asarray(shapely.linestrings(points, indices=number), object)
    if turn is not None:
        far = 2 * np.abs(np.diff(points[:, 0])) > turn[1]
        ends = np.cumsum(counts)
        for n in np.unique(number[1:][far & (number[1:] == number[:-1])]).tolist():
            line = unwound(points[ends[n] - counts[n] : ends[n]], turn)
            lines[n] = shapely.MultiLineString(split_turns(line, *turn))
    return lines


def split_turns(line: Reals, west: float, turn: float) -> list[Reals]:
    """Return the pieces of a line between multiples of a turn, each moved to the first one.

    Parameters
    ----------
    line
        Points (x, y) of a line whose x does not jump.
    west
        The x where the first turn begins.
    turn
        Its width, such as 360 degrees of longitude.
    """
    longitude, latitude = line.T
    begin, end = longitude[:-1], longitude[1:]
    low, high = np.floor((longitude.min() - west) / turn), (longitude.max() - west) / turn
    after: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    share: list[Reals] = [np.empty(0)]
    meridian: list[Reals] = [np.empty(0)]
    for cut in np.arange(low, math.ceil(high) + 1) * turn + west:
        # A line that ends on the meridian does not cross it: it may turn back there.
        met = np.flatnonzero((begin - cut) * (end - cut) < 0)
        after.append(met)
        share.append((cut - begin[met]) / (end[met] - begin[met]))
        meridian.append(np.full(met.size, cut))
    at, part, cuts = np.concatenate(after), np.concatenate(share), np.concatenate(meridian)
    order = np.lexsort((part, at))
    at, part, cuts = at[order], part[order], cuts[order]
    crossed = latitude[at] + part * (latitude[at + 1] - latitude[at])
    line = np.insert(line, at + 1, np.stack([cuts, crossed], axis=1), axis=0)
    # Once cut, each segment lies in one turn, that of its middle. A piece ends where the turn
    # changes.
    turns = np.floor(((line[:-1, 0] + line[1:, 0]) / 2 - west) / turn)
    ends = np.flatnonzero(np.diff(turns)) + 1
    bounds = [0, *ends.tolist(), len(turns)]
    return [line[first : last + 1] - [turn * turns[first], 0.0] for first, last in pairwise(bounds)]
