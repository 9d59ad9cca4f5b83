"""Bring layers to longitude and latitude, cut where they cross the 180th meridian.

Longitudes are first made continuous along a line or ring: by those of a geographic source, which
may lie beyond 180 degrees, otherwise by steps of less than half a turn. Then the line or area is
cut at odd multiples of 180 degrees (RFC 7946, section 3.1.9). An area around a pole goes round the
globe, and is closed along the latitude of the pole.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from orograph.tiles.arrays import Reals
from orograph.tiles.grid.crs import CRSLike, parse_crs, reproject
from orograph.tiles.vector.turns import split_turns

TURN = 360.0
LONGEST_STEP = 90.0
"""Degrees of longitude that a segment may span before it is divided in two."""
MOST_DIVISIONS = 8
"""Greatest number of divisions; through a pole one part always spans half a turn."""
POINT, LINE, AREA = 0, 1, 2
"""Dimensions of geometries."""

Chart = Callable[[Reals], Reals]
"""Function that maps points, shape (n, 2), in degrees."""


def in_degrees(geometry: Any, given: CRSLike, crs: CRSLike, name: str) -> Any:
    """Reproject an array of geometries to a geographic CRS, longitudes from -180 to 180 degrees.

    Lines and areas that cross the 180th meridian become multilines and multipolygons. Outer rings
    run counterclockwise, holes clockwise. ``given`` is their CRS, ``name`` that of the argument,
    for messages.
    """
    import shapely

    source = parse_crs(given, name)
    chart = _chart(given, crs, name)
    points, number = shapely.get_coordinates(geometry, return_index=True)
    moved = chart(points)
    step = np.abs(np.diff(moved[:, 0])) > LONGEST_STEP
    step &= (number[1:] == number[:-1]) & (not source.is_geographic)
    # Geometries with a long step, or with longitudes beyond 180 degrees, may cross the meridian.
    crossing = np.unique([*number[1:][step], *number[np.abs(moved[:, 0]) > TURN / 2]])
    found = shapely.set_coordinates(geometry.copy(), moved)
    for at in crossing.astype(int).tolist():
        found[at] = _cut(geometry[at], chart, bool(source.is_geographic))
    return shapely.orient_polygons(found)


def _chart(given: CRSLike, crs: CRSLike, name: str) -> Chart:
    """Return the function that places points of a CRS in degrees.

    Longitudes are next to those of a geographic CRS, otherwise from -180 to 180.
    """
    source = parse_crs(given, name)

    def place(points: Reals) -> Reals:
        moved = reproject(points, given, crs, name, whose="")
        if not source.is_geographic or moved is points:
            return moved
        own = np.degrees(points[:, 0] * source.axis_info[0].unit_conversion_factor)
        # The transformation may bring a longitude to another turn than that of the source.
        turns = np.round((own - moved[:, 0]) / TURN)
        return np.stack([moved[:, 0] + TURN * turns, moved[:, 1]], axis=1)

    return place


def _cut(geometry: Any, chart: Chart, continuous: bool) -> Any:
    """Return a geometry in degrees, cut at the 180th meridian.

    ``continuous`` tells that the chart never jumps between the ends of a segment.
    """
    import shapely

    parts: list[Any] = []
    for part in shapely.get_parts(geometry):
        dimension = shapely.get_dimensions(part)
        if part.geom_type.startswith(("Multi", "GeometryCollection")):
            parts += shapely.get_parts(_cut(part, chart, continuous)).tolist()
        elif dimension == POINT:
            longitude, latitude = chart(shapely.get_coordinates(part))[0]
            parts.append(shapely.Point((longitude + TURN / 2) % TURN - TURN / 2, latitude))
        elif dimension == LINE:
            line = _continuous(shapely.get_coordinates(part), chart, continuous)
            parts += [shapely.LineString(piece) for piece in split_turns(line, -TURN / 2, TURN)]
        else:
            area = _area(part.exterior, chart, continuous)
            for hole in part.interiors:
                area = area.difference(_area(hole, chart, continuous))
            parts += shapely.get_parts(area).tolist()
    if len(parts) == 1 and not geometry.geom_type.startswith(("Multi", "GeometryCollection")):
        return parts[0]
    made = {
        POINT: shapely.MultiPoint,
        LINE: shapely.MultiLineString,
        AREA: shapely.MultiPolygon,
    }
    kinds = {int(shapely.get_dimensions(part)) for part in parts}
    return made[kinds.pop()](parts) if len(kinds) == 1 else shapely.GeometryCollection(parts)


def _continuous(points: Reals, chart: Chart, continuous: bool) -> Reals:
    """Return a line in degrees whose longitudes do not jump; long segments are divided."""
    moved = chart(points)
    if continuous:
        return moved
    for _ in range(MOST_DIVISIONS):
        longitude = moved[:, 0]
        # far apart, or on two sides of the 180th meridian, as the place in the middle tells
        far = np.flatnonzero(np.abs(np.diff(longitude)) > LONGEST_STEP)
        between = (points[far] + points[far + 1]) / 2
        middle = chart(between)[:, 0]
        steps = middle - longitude[far], longitude[far + 1] - middle
        long = (np.abs((np.stack(steps) + TURN / 2) % TURN - TURN / 2) > LONGEST_STEP / 2).any(
            axis=0
        )
        if not long.any():
            break
        points = np.insert(points, far[long] + 1, between[long], axis=0)
        moved = chart(points)
    return np.stack([np.unwrap(moved[:, 0], period=TURN), moved[:, 1]], axis=1)


def _area(ring: Any, chart: Chart, continuous: bool) -> Any:
    """Return the area within a ring in degrees, cut and put between -180 and 180."""
    import shapely

    line = _continuous(shapely.get_coordinates(ring), chart, continuous)
    first, last = line[0, 0], line[-1, 0]
    if abs(last - first) > TURN / 2:  # around the pole of its hemisphere
        pole = math.copysign(90.0, float(line[:, 1].mean()))
        line = np.concatenate([line, [[last, pole], [first, pole], line[0]]])
    area = shapely.make_valid(shapely.Polygon(line))
    west, _, east, _ = area.bounds
    pieces = []
    for turn in range(math.floor((west + TURN / 2) / TURN), math.ceil((east + TURN / 2) / TURN)):
        left = TURN * turn - TURN / 2
        piece = area.intersection(shapely.box(left, -TURN, left + TURN, TURN))
        piece = shapely.transform(piece, lambda points, by=TURN * turn: points - [by, 0.0])
        pieces += [p for p in shapely.get_parts(piece) if shapely.get_dimensions(p) == AREA]
    return shapely.union_all(pieces)
