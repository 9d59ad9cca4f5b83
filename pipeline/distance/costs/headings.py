"""Headings of the steps in a grid."""

from __future__ import annotations

import math

from orograph.tiles.errors import InputError
from orograph.tiles.grid.crs import parse_crs
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.lengths import step_lengths


def headings(
    place: Georeference, shape: tuple[int, int], cell_size: float | tuple[float, float] | None
) -> list[float]:
    """Return the headings of steps in a grid, in degrees clockwise from the north.

    They are in order of rows, then of columns, from -2 to 2 each. Without coordinates the first row
    is in the north. ``cell_size`` is the side of a cell, or its (y, x) sides, in place of those of
    the coordinates: the heading of a diagonal step depends on both.

    Raises
    ------
    InputError
        If coordinates are degrees, or do not give the size of cells.
    """
    eastward, southward = 1.0, 1.0
    if place.x is not None and place.y is not None:
        if place.crs_wkt is not None and parse_crs(place.crs_wkt, "friction").is_geographic:
            raise InputError(
                "horizontal_raster: the coordinates of friction are degrees; bring the rasters to "
                "a CRS in metres first"
            )
        if place.x.size > 1 and place.x[1] < place.x[0]:
            eastward = -1.0
        if place.y.size > 1 and place.y[1] > place.y[0]:
            southward = -1.0
    # On a projected grid all rows are alike: the first column has the sides of every cell.
    sides = step_lengths(place, shape, cell_size, slopes_only=True)
    across, along = sides[:2, 0].tolist()
    east, south = eastward * across, southward * along
    steps = [(dy, dx) for dy in range(-2, 3) for dx in range(-2, 3)]
    # East and north in this order give the angle clockwise from the north. The step (0, 0) gets an
    # angle as well; it is never taken.
    return [math.degrees(math.atan2(dx * east, -dy * south)) % 360 for dy, dx in steps]
