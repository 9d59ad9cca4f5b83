"""Trace paths straight down the gradient of a field of distances."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.points import coordinates_of
from orograph.tiles.raster.raster import Raster

READ_SIDE = 512
KEPT = 16


class FieldReader:
    """Reader of a field of distances that keeps the last windows it has read."""

    def __init__(self, field: Raster) -> None:
        self._field, self._orientation = field, field.georeference.orientation
        self._side = field.tile or READ_SIDE
        self._kept: dict[tuple[int, int], tuple[Window, npt.NDArray[np.float64]]] = {}

    def trace(self, row: int, column: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the cells of the path from a cell to its source, and the line through them.

        The line begins and ends at centres of cells. In each it leads straight down the gradient
        that the cell's distance was computed from, so it leaves over a side to a lower neighbour.
        Its points are rows and columns, whole at centres. Of equal descents along an axis it takes
        that to the south or east. Ends: distances fall from cell to cell.
        """
        cells, line = [(row, column)], [(float(row), float(column))]
        y, x = 0.0, 0.0  # from the centre of the cell
        while True:
            around = self._around(row, column)
            south, east = self._orientation
            down, dy = _descent(around[1, 1], around[1 + south, 1], around[1 - south, 1])
            right, dx = _descent(around[1, 1], around[1, 1 + east], around[1, 1 - east])
            dy, dx = dy * south, dx * east
            if not (dy or dx):
                line.append((float(row), float(column)))
                return np.array(cells, np.int64), np.array(line)
            # The line runs along (down, right) until it meets a side of the cell. Both distances
            # are in multiples of that vector; where they are equal it leaves by the column.
            until_y = (0.5 - dy * y) / down if dy else math.inf
            until_x = (0.5 - dx * x) / right if dx else math.inf
            step = min(until_y, until_x)
            y, x = y + step * down * dy, x + step * right * dx
            line.append((row + y, column + x))
            if until_x <= until_y:
                column, x = column + dx, -0.5 * dx
            else:
                # It enters the next cell on the opposite side.
                row, y = row + dy, -0.5 * dy
            cells.append((row, column))

    def _around(self, row: int, column: int) -> npt.NDArray[np.float64]:
        """Return the distances of a cell and the eight around it; NaN beyond the grid."""
        name = row // self._side, column // self._side
        if name not in self._kept:
            if len(self._kept) >= KEPT:
                self._kept.pop(next(iter(self._kept)))
            # Windows overlap by a cell, so that each has all eight neighbours of its own cells.
            wide = self._side + 2
            at = Window(name[0] * self._side - 1, name[1] * self._side - 1, wide, wide)
            inside = at.clip(self._field.shape)
            padded = np.full(at.shape, np.nan)
            padded[inside.within(at)] = self._field.read(inside)
            self._kept[name] = at, padded
        at, padded = self._kept[name]
        y, x = row - at.y, column - at.x
        return padded[y - 1 : y + 2, x - 1 : x + 2]


def _descent(here: float, ahead: float, behind: float) -> tuple[float, int]:
    """Return how far the distance falls along an axis, and which way: 1, -1, or 0 for neither."""
    falls = here - ahead, here - behind
    # Beyond the grid and at barriers the distance is NaN, which compares false: no descent.
    best = max((fall for fall in falls if fall > 0), default=0.0)
    return best, 0 if not best else (1 if falls[0] == best else -1)


def line_on_map(line: npt.NDArray[np.float64], place: Georeference) -> npt.NDArray[np.float64]:
    """Return map coordinates (x, y) of points given by rows and columns."""
    low = np.floor(line).astype(np.int64)
    size = [None if axis is None else axis.size for axis in (place.y, place.x)]
    # Centres need not be evenly spaced, so points are interpolated between the centres around them.
    # In the last row or column the share of the next one is 0.
    high = np.stack(
        [part if n is None else part.clip(max=n - 1) for part, n in zip((low + 1).T, size)], axis=1
    )
    first, last = (coordinates_of(at[:, 0], at[:, 1], place) for at in (low, high))
    points: npt.NDArray[np.float64] = first + (line - low)[:, ::-1] * (last - first)
    return points
