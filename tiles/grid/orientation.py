"""Orientation of a grid: which way its rows and columns run on the compass.

Directions are compass directions, and ties are broken in compass order, or from the north-west
cell. So an operation whose result depends on these has the same result on each of the four ways to
store a raster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.tiles.grid.quadtree import Place, Sides
from orograph.tiles.grid.window import Window


class Orientation(NamedTuple):
    """Signs of the rows and columns of a grid; that of a north-up grid by default.

    A *turned* array is one whose first row is the northernmost and whose first column is the
    westernmost. To turn it twice gives the array itself.
    """

    south: int = 1
    """1 if each row lies south of the one before it, -1 if north of it."""
    east: int = 1
    """1 if each column lies east of the one before it, -1 if west of it."""

    def turn(self, cells: Any) -> Any:
        """Return an array (y, x) turned, as a view; where north is up, itself."""
        return cells if self == NORTH_UP else cells[:: self.south, :: self.east]

    def turn_window(self, window: Window, shape: tuple[int, int]) -> Window:
        """Return the window of the same cells in the turned grid of a ``shape``."""
        y, x = window.y, window.x
        if self.south < 0:
            y = shape[0] - y - window.height
        if self.east < 0:
            x = shape[1] - x - window.width
        return Window(y, x, *window.shape)

    def turn_place(self, place: Place) -> Place:
        """Return the place of the same cells in the turned grid."""
        north, south, west, east = astuple(place.sides)
        rows = (north, south) if self.south > 0 else (south, north)
        columns = (west, east) if self.east > 0 else (east, west)
        window = self.turn_window(place.window, place.grid)
        return replace(place, window=window, sides=Sides(*rows, *columns))

    def turn_cells(self, cells: Any, shape: tuple[int, int]) -> Any:
        """Return the row-major indices of cells in the turned grid; negative ones stay."""
        if self == NORTH_UP:
            return cells
        y, x = np.divmod(cells, shape[1])
        y = y if self.south > 0 else shape[0] - 1 - y
        x = x if self.east > 0 else shape[1] - 1 - x
        # Negative indices stand for no cell.
        return np.where(np.less(cells, 0), cells, y * shape[1] + x)

    def order(self, steps: Sequence[tuple[int, int]]) -> npt.NDArray[np.int64]:
        """Return which of some steps (rows, columns) leads to where each does when north is up.

        The order is its own inverse.
        """
        places = [steps.index((self.south * dy, self.east * dx)) for dy, dx in steps]
        return np.array(places, np.int64)


NORTH_UP = Orientation()
