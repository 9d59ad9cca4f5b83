"""Layers in longitude and latitude, cut where they cross the 180th meridian."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401
import shapely
import xarray as xr
from pyproj import Geod, Transformer

import orograph as og
from orograph.tiles.vector.degrees import in_degrees

GEOD = Geod(ellps="WGS84")


def placed(geometry: Any, crs: str) -> Any:
    """Return a geometry in degrees, which is valid and between -180 and 180."""
    (found,) = in_degrees(np.array([geometry], object), crs, "EPSG:4326", "x")
    assert shapely.is_valid(found)
    west, south, east, north = found.bounds
    assert -180 <= west <= east <= 180
    assert -90 <= south <= north <= 90
    for area in shapely.get_parts(found):
        if area.geom_type == "Polygon":
            assert shapely.is_ccw(area.exterior)
            assert not any(map(shapely.is_ccw, area.interiors))
    return found


@pytest.mark.parametrize("turn", [0, 360, -360])
def test_lines_are_cut_and_keep_their_direction(turn: float) -> None:
    line = np.array([(170.0 + turn, 0.0), (190.0 + turn, 10.0), (200.0 + turn, 0.0)])
    for points in (line, line[::-1]):
        found = placed(shapely.LineString(points), "EPSG:4326")
        assert found.geom_type == "MultiLineString"
        pieces = [[(170, 0), (180, 5)], [(-180, 5), (-170, 10), (-160, 0)]]
        if points is not line:
            pieces = [piece[::-1] for piece in pieces[::-1]]
        assert [list(piece.coords) for piece in found.geoms] == pieces


def test_what_does_not_cross_stays_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    shapes = [
        shapely.LineString(rng.uniform([-180, -90], [180, 90], (9, 2))),
        shapely.box(-180, -90, 180, 90),
        shapely.Point(180, 90),
        shapely.LineString([(180, 0), (180, 10)]),
    ]
    for shape in shapes:
        assert placed(shape, "EPSG:4326").equals_exact(shapely.orient_polygons(shape))


def test_areas_are_cut_with_their_holes() -> None:
    ring = shapely.box(170, -10, 190, 10).difference(shapely.box(175, -5, 185, 5))
    for crs in ("EPSG:4326", "EPSG:4267"):
        found = placed(ring, crs)
        assert found.geom_type == "MultiPolygon"
        assert len(found.geoms) == 2
        assert found.area == pytest.approx(ring.area)
    whole = placed(shapely.box(0, -90, 360, 90), "EPSG:4326")
    assert shapely.equals(whole, shapely.box(-180, -90, 180, 90))


@pytest.mark.parametrize(
    ("crs", "x", "y", "size"),
    [
        ("EPSG:3832", 3_300_000, 2_000_000, 900_000),  # over 180 degrees
        ("EPSG:32660", 700_000, 7_000_000, 100_000),
        ("EPSG:3413", -100_000, -150_000, 400_000),  # around a pole
        ("EPSG:3031", -100_000, -150_000, 400_000),
        ("EPSG:3413", 500_000, 500_000, 400_000),  # beside it
        ("EPSG:3413", -1_000_000, -1_000_000, 400_000),
        ("EPSG:3857", -20_037_508, -5e6, 40_075_016),  # around the globe
    ],
)
def test_areas_of_projections_keep_their_size(crs: str, x: float, y: float, size: float) -> None:
    """Straight lines of the projection bend, so there are many points on them."""
    area = shapely.box(x, y, x + size, y + (1e7 if size > 1e7 else size))
    hole = shapely.buffer(area.centroid, 60_000)
    dense = shapely.segmentize(area.difference(hole), 3000)
    move = Transformer.from_crs("EPSG:4326", crs, always_xy=True).transform
    found = placed(dense, crs)
    rng = np.random.default_rng(3)
    left, bottom, right, top = shapely.buffer(area, 30_000).bounds
    there = rng.uniform([left, bottom], [right, top], (2000, 2))
    far = shapely.distance(shapely.points(there), dense.boundary) > 2000
    inside = shapely.contains_xy(dense, *there.T)
    back = Transformer.from_crs(crs, "EPSG:4326", always_xy=True).transform(*there.T)
    beyond = np.abs(there[:, 0]) > 20_037_508 if crs == "EPSG:3857" else np.zeros(2000, bool)
    agree = shapely.contains_xy(found, *back) == inside
    assert agree[far & ~beyond].all()
    assert inside.any()
    assert np.isfinite(move(*found.representative_point().coords[0])).all()


def test_lines_of_projections_take_the_short_way() -> None:
    to_grid = Transformer.from_crs("EPSG:4326", "EPSG:3832", always_xy=True)
    points = np.stack(to_grid.transform([175, -175], [10, 20]), axis=1)
    found = placed(shapely.LineString(points), "EPSG:3832")
    pieces = [np.round(piece.coords, 9).tolist() for piece in found.geoms]
    assert pieces == [[[175, 10], [180, 15]], [[-180, 15], [-175, 20]]]


def test_points_and_collections() -> None:
    points = shapely.MultiPoint([(190, 1), (-190, 2), (5, 5), (180, 1)])
    assert [p.coords[0] for p in placed(points, "EPSG:4326").geoms][:3] == [
        *[(-170, 1), (170, 2), (5, 5)]
    ]
    mixed = shapely.GeometryCollection([shapely.LineString([(170, 0), (190, 0)]), points])
    assert len(placed(mixed, "EPSG:4326").geoms) == 6


def raster(crs: str, x: float, y: float, step: float) -> xr.DataArray:
    cells = np.random.default_rng(0).integers(0, 4, (20, 30))
    axes = {"y": y - step * np.arange(20), "x": x + step * np.arange(30)}
    return xr.DataArray(cells, axes, ("y", "x"), "labels").rio.write_crs(crs)


@pytest.mark.parametrize("suffix", ["geojson", "geojsonl"])
@pytest.mark.parametrize(
    "cells", [raster("EPSG:32660", 700_000, 5e6, 20_000), raster("EPSG:4326", 175, 46, 0.5)]
)
def test_geojson_is_as_its_standard_says(suffix: str, cells: xr.DataArray, tmp_path: Path) -> None:
    pytest.importorskip("pyogrio")
    areas = og.polygonize(cells)
    areas.to_file(tmp_path / f"x.{suffix}")
    text = (tmp_path / f"x.{suffix}").read_text()
    spoken = [json.loads(line) for line in text.splitlines()] if suffix[-1] == "l" else None
    features = spoken or json.loads(text)["features"]
    assert '"crs"' not in text
    found = [shapely.geometry.shape(feature["geometry"]) for feature in features]
    assert [feature["properties"]["label"] for feature in features] == areas.columns[
        "label"
    ].tolist()
    decimals = [len(digits) for digits in re.findall(r"-?\d+\.(\d+)", text)]
    assert max(decimals) <= 9
    bounds = np.array([shape.bounds for shape in found])
    assert bounds[:, 0].min() == -180
    assert bounds[:, 2].max() == 180
    for shape in found:
        assert shape.geom_type == "MultiPolygon"
        assert shape.is_valid
        assert all(shapely.is_ccw(part.exterior) for part in shape.geoms)
        assert not any(shapely.is_ccw(hole) for part in shape.geoms for hole in part.interiors)
    if cells.rio.crs == "EPSG:4326":
        assert sum(shape.area for shape in found) == pytest.approx(600 * 0.5**2)
    else:
        total = sum(abs(GEOD.geometry_area_perimeter(shape)[0]) for shape in found)
        assert total == pytest.approx(600 * 20_000**2, rel=0.02)
