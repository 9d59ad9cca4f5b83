"""Points and other geometries are read from CSV files, as they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import shapely
import xarray as xr

import orograph as og
from orograph.tiles.vector.layer import read_layer

pytest.importorskip("pyogrio", reason="pyogrio is not installed: orograph[vector]")


def test_own_peaks_are_sources(tmp_path: Path) -> None:
    heights = np.random.default_rng(0).random((20, 20))
    peaks = og.peaks(heights, min_prominence=0.4)
    og.peaks(heights, min_prominence=0.4, out=tmp_path / "peaks.csv")
    own = np.stack([peaks["x"], peaks["y"]], axis=1)
    for path in (tmp_path / "peaks.csv", str(tmp_path / "peaks.csv")):
        found = og.cost_distance(np.ones((20, 20)), path)
        np.testing.assert_array_equal(
            found["cost"], og.cost_distance(np.ones((20, 20)), own)["cost"]
        )


@pytest.mark.parametrize("kind", ["points", "areas"])
def test_layers_read_back_to_the_bit(kind: str, tmp_path: Path) -> None:
    places = np.random.default_rng(1).random((500, 2)) * 1e6
    shapes = shapely.points(places)
    if kind == "areas":
        shapes = shapely.box(*places.T, *(places.T + 3))
    columns = {
        "number": np.arange(500),
        "share": places[:, 0] / 7,
        "name": np.array(["a", "NA"] * 250),
    }
    og.VectorLayer(shapes, columns, None).to_file(tmp_path / "a.csv")
    layer = read_layer(tmp_path / "a.csv", "points")
    assert layer is not None
    assert layer.bare
    if kind == "points":
        np.testing.assert_array_equal(layer.points()[0], places)
    else:
        assert shapely.equals_exact(layer.geometry, shapes, tolerance=1e-9).all()
    assert list(layer.columns) == list(columns)
    for name, column in columns.items():
        np.testing.assert_array_equal(layer.columns[name], column)


def raster() -> xr.DataArray:
    axes = {"y": 45.3 - 0.1 * np.arange(4), "x": 9.0 + 0.1 * np.arange(5)}
    return xr.DataArray(np.ones((4, 5)), axes, ("y", "x")).rio.write_crs(4326)


@pytest.mark.parametrize(
    ("text", "crs"),
    [
        ("x,y\n9.2,45.1\n", "EPSG:4326"),
        ("id;Y;X\n7;45.1;9.2\n", "EPSG:4326"),
        ("9.2,45.1\n", "EPSG:4326"),
        ("lat,lon\n45.1,9.2\n", "EPSG:4326"),
        ("lat,lon\n45.1,9.2\n", "EPSG:32632"),
        ("Longitude,Latitude,x\n9.2,45.1,3\n", "EPSG:32632"),
        ("WKT\nPOINT (9.2 45.1)\n", "EPSG:4326"),
    ],
)
def test_columns_of_coordinates(text: str, crs: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    grid: Any = raster()
    if crs != "EPSG:4326":
        grid = grid.rio.reproject(crs, nodata=np.nan).fillna(1)
    found = og.cost_distance(grid, tmp_path / "a.csv")["cost"]
    at = found.where(found == 0, drop=True)
    place = at.rio.reproject(4326) if crs != "EPSG:4326" else at
    np.testing.assert_allclose([place.x.mean(), place.y.mean()], [9.2, 45.1], atol=0.06)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", "a.csv has the columns a, b; name those of points x and y"),
        ("x,y\n9.2,45.1\n,45\n", "geometry 1 is missing"),
        ("x,y\n", "the layer is empty"),
        ("1,2,3\n4,5,6\n", "has the columns field_1, field_2, field_3; name those of points"),
    ],
)
def test_what_holds_no_points_is_refused(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    for call in (og.cost_distance, og.flood_level):
        with pytest.raises(og.InputError, match=f"sources: .*{says}"):
            call(raster(), tmp_path / "a.csv")
