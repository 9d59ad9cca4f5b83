"""Compute the lengths of steps between cells: planar, in cells, or geodesic."""

from __future__ import annotations

import math
import sys

import numpy as np
import numpy.typing as npt

from orograph.tiles.arguments import as_plain, is_number, shown
from orograph.tiles.errors import InputError
from orograph.tiles.grid.georeference import Georeference, parse_wkt
from orograph.tiles.grid.units import ellipsoid_of
from orograph.tiles.warn import warn_user

LARGEST = sys.float_info.max


def step_lengths(
    place: Georeference,
    shape: tuple[int, int],
    cell_size: float | tuple[float, float] | None = None,
    *,
    slopes_only: bool = False,
    wraps: bool = False,
) -> npt.NDArray[np.float64]:
    """Return the lengths of a grid's steps by kind (such as diagonal) and row.

    Parameters
    ----------
    place
        Georeference of the grid; if it has no coordinates, the side of a cell is 1.
    shape
        Rows and columns.
    cell_size
        Side of a cell, or its (y, x) sides; overrides the coordinates.
    slopes_only
        Whether lengths are only compared with each other, so that no map projection needs a
        warning.
    wraps
        Whether the columns go around the globe, so that their number tells how wide they are.

    Returns
    -------
    (5, 1) or (5, rows + 2) float64
        In column i: 0 east-west in row i; 1 north-south, 2 diagonal and 4 knight's move of two
        columns between rows i - 1 and i; 3 knight's move of two rows between rows i - 2 and i.
        One column if all rows have equal lengths. The unit is that of `Georeference.length_unit`;
        on geographic grids the lengths are geodesics on the ellipsoid of the CRS, in metres.

    Raises
    ------
    InputError
        If cells differ in size, coordinates are degrees without a CRS, or ``cell_size`` is not one
        or two positive numbers.
    """
    if cell_size is not None:
        plain = as_plain(cell_size)
        given = [as_plain(side) for side in (plain if isinstance(plain, list | tuple) else [plain])]
        sides = [side for side in given if is_number(side) and 0 < side <= LARGEST]
        if len(sides) != len(given) or len(sides) not in (1, 2):
            raise InputError(
                f"cell_size: {shown(cell_size)}; give one side, or two: (y, x), each positive and "
                "finite"
            )
        return _planar(float(sides[0]), float(sides[-1]))
    if place.y is None or place.x is None:
        return _planar(1.0, 1.0)
    if place.crs_wkt is None and place.in_degrees:
        raise InputError(
            f"coordinates {place.y_name}, {place.x_name} look like degrees, but there is no CRS: "
            "set one with rio.write_crs('EPSG:4326'), or pass cell_size="
        )
    size = place.side_lengths
    if size is None:
        raise InputError("coordinates are not evenly spaced; pass cell_size=")
    if not place.is_geographic:
        if not slopes_only:
            warn_of_web_mercator(place)
        return _planar(*size)
    # A coordinate may lie beyond the pole by rounding.
    beyond = np.abs(place.y) > 90 + 1e-3 * size[0]
    if beyond.any():
        at = int(beyond.argmax())
        raise InputError(
            f"coordinate {place.y_name}: {place.y[at]:g} at row {at}, but the CRS is geographic, "
            "with latitudes from -90 to 90; set the CRS that the coordinates are in, or pass "
            "cell_size="
        )
    return _geodesic(place, place.y, size[0], 360 / shape[1] if wraps else size[1])


def length_over_pole(place: Georeference, row: int) -> float:
    """Return the length of a step from a row over the pole that it touches, in metres.

    Twice the geodesic from the centre of the row to the pole.
    """
    assert place.crs_wkt is not None
    assert place.y is not None
    globe = ellipsoid_of(parse_wkt(place.crs_wkt))
    return 2 * float(globe.inv(0.0, abs(float(place.y[row])), 0.0, 90.0)[2])


def _planar(dy: float, dx: float) -> npt.NDArray[np.float64]:
    kinds = (dx, dy, math.hypot(dx, dy), math.hypot(dx, 2 * dy), math.hypot(2 * dx, dy))
    return np.array(kinds, np.float64)[:, None]


def warn_of_web_mercator(place: Georeference) -> None:
    """Warn if lengths and areas of a grid are those of a web map, far longer than on the ground."""
    if place.crs_wkt is None or "Pseudo-Mercator" not in place.crs_wkt:
        return
    crs = parse_wkt(place.crs_wkt)
    if crs.to_epsg() == 3857 or "Pseudo-Mercator" in crs.name:
        warn_user(
            f"the CRS is {crs.name}, whose lengths are those of a web map: twice as long as on the "
            "ground at 60 degrees of latitude; reproject the raster, such as to "
            "rio.estimate_utm_crs()"
        )


def _geodesic(
    place: Georeference, y: npt.NDArray[np.float64], dy: float, dx: float
) -> npt.NDArray[np.float64]:
    assert place.crs_wkt is not None
    name, globe = place.y_name, ellipsoid_of(parse_wkt(place.crs_wkt))
    # rows from north to south, so that the bits do not depend on which of two rows comes first
    turned = y.size > 1 and y[0] < y[1]
    rows, step = (y[::-1], -dy) if turned else (y, -dy if y.size > 1 else dy)
    # A step between rows is kept at the later one. So steps that lead out of the grid, from its
    # last two rows, need two rows more.
    latitudes = np.concatenate([rows, [rows[-1] + step, rows[-1] + 2 * step]]).clip(-90, 90)
    before, two_before = latitudes - step, latitudes - 2 * step

    def distance(from_latitude: npt.NDArray[np.float64], columns: int) -> npt.NDArray[np.float64]:
        zero = np.zeros(latitudes.size)
        length = globe.inv(zero, from_latitude.clip(-90, 90), zero + columns * dx, latitudes)[2]
        return np.asarray(length, np.float64)

    lengths = np.stack(
        [
            distance(latitudes, 1),
            distance(before, 0),
            distance(before, 1),
            distance(two_before, 1),
            distance(before, 2),
        ]
    )
    if turned:  # an edge between rows is kept at the later one; those out of the grid do not count
        at_row = y.size - 1 - np.arange(y.size + 2)
        lengths = np.stack([lengths[k, at_row + gap] for k, gap in enumerate((0, 1, 1, 2, 1))])
    pole = lengths[0, : y.size] == 0
    if pole.any():
        at = int(pole.argmax())
        raise InputError(
            f"coordinate {name}: {y[at]:g} at row {at} is a pole, where cells have no width; leave "
            "that row out, or pass cell_size="
        )
    lengths[lengths == 0] = 1.0  # of steps out of the grid: beyond a pole there is no latitude
    return lengths
