"""Paths and edges leave as vector layers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import shapely
import xarray as xr

import orograph as og

geopandas = pytest.importorskip("geopandas", reason="GeoPandas is not installed: orograph[vector]")
pytest.importorskip("pyogrio", reason="pyogrio is not installed: orograph[vector]")

FAR = [(500_290, 4_999_910), (500_100, 4_999_950)]


@pytest.fixture
def friction() -> xr.DataArray:
    cells = np.random.default_rng(4).integers(1, 9, (10, 30)).astype(float)
    axes = {"y": 5_000_000 - 10.0 * np.arange(10), "x": 500_000 + 10.0 * np.arange(30)}
    return xr.DataArray(cells, axes, ("y", "x"), "friction").rio.write_crs("EPSG:32633")


@pytest.fixture
def paths(friction: xr.DataArray) -> og.LeastCostPaths:
    start = [(500_000, 5_000_000)]
    result = og.cost_distance(friction, start, outputs=("cost", "back_direction"))
    return og.least_cost_path(result, FAR)


@pytest.mark.parametrize("suffix", ["gpkg", "geojson", "shp", "fgb"])
def test_paths_are_written_and_read_back(
    paths: og.LeastCostPaths, suffix: str, tmp_path: Path
) -> None:
    out = tmp_path / f"paths.{suffix}"
    assert paths.to_file(out) == out
    found = geopandas.read_file(out)
    if suffix == "geojson":
        found = found.to_crs("EPSG:32633")
    assert found.crs == "EPSG:32633"
    assert found["cost"].tolist() == [path.cost for path in paths]
    assert found["length"].tolist() == pytest.approx([path.length for path in paths])
    for line, path in zip(found.geometry, paths, strict=True):
        within = 1e-3 if suffix == "geojson" else 0.0
        np.testing.assert_allclose(shapely.get_coordinates(line), path.coordinates, 0, within)
    with pytest.raises(og.StoreExistsError, match="pass overwrite=True"):
        paths.to_file(out)
    og.LeastCostPaths(paths[:1]).to_file(out, overwrite=True)
    assert len(geopandas.read_file(out)) == 1


def test_paths_as_a_frame_and_as_geojson(paths: og.LeastCostPaths, friction: xr.DataArray) -> None:
    frame = paths.to_geodataframe()
    assert frame.crs == "EPSG:32633"
    assert frame.columns.tolist() == ["path", "cost", "length", "geometry"]
    assert len(paths[0].to_geodataframe()) == 1
    spoken = geopandas.GeoDataFrame.from_features(paths)
    assert spoken["cost"].tolist() == frame["cost"].tolist()
    assert shapely.geometry.shape(paths[0].__geo_interface__["geometry"]) == paths[0].geometry
    # and back in: from anywhere on the paths
    there = (og.rasterize(paths, friction) >= 0).values
    back = (og.rasterize(frame.to_crs("EPSG:3035"), friction) >= 0).values
    assert all(cells[tuple(path.cells.T)].all() for cells in (there, back) for path in paths)
    # a diagonal step leads through the corner of two further cells: PROJ may round it into either
    corners = {
        (int(row), int(column))
        for path in paths
        for (y, x), (v, u) in pairwise(path.cells)
        if y != v and x != u
        for row, column in ((y, u), (v, x))
    }
    assert {tuple(cell) for cell in np.argwhere(back != there).tolist()} <= corners
    cost = og.cost_distance(friction, paths)["cost"]
    assert all((cost.values[tuple(path.cells.T)] == 0).all() for path in paths)
    assert np.array_equal(og.cost_distance(friction, list(paths))["cost"], cost)


def test_what_cannot_be_written_is_refused(paths: og.LeastCostPaths, tmp_path: Path) -> None:
    with pytest.raises(og.InputError, match=r"paths.txt ends in none of the vector formats"):
        paths.to_file(tmp_path / "paths.txt")
    with pytest.raises(og.InputError, match=r"folder .*nowhere does not exist"):
        paths.to_file(tmp_path / "nowhere" / "paths.gpkg")


def test_edges_of_a_forest_are_lines(friction: xr.DataArray, tmp_path: Path) -> None:
    forest = og.minimum_spanning_forest(friction, out=tmp_path / "forest.zarr", tile=8)
    lines = og.forest_lines(forest)
    assert len(lines) == forest.attrs["edge_count"] == 299
    frame = lines.to_geodataframe()
    assert frame.crs == "EPSG:32633"
    assert frame.length.max() == pytest.approx(10 * np.sqrt(2))
    assert shapely.union_all(frame.geometry).geom_type == "MultiLineString"
    assert len(set(frame.geometry.iloc[:50])) == 50
    part = og.forest_lines(tmp_path / "forest.zarr", window=(3, 5, 3, 5))
    inside = frame[frame.within(shapely.box(500_045, 4_999_945, 500_095, 4_999_975))]
    assert 5 < len(part) == len(inside)
    assert {line.wkt for line in part.geometry} == {line.wkt for line in inside.geometry}
    assert og.forest_lines(forest["edges"]).geometry.tolist() == lines.geometry.tolist()
    for window in ((0, 0, 11, 1), (0, 0, 0, 1), (0.5, 0, 1, 1), (-1, 0, 1, 1)):
        with pytest.raises(og.InputError, match="window: "):
            og.forest_lines(forest, window)
    with pytest.raises(og.InputError, match="edges are float64"):
        og.forest_lines(friction)
