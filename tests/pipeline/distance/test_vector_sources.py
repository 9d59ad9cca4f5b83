"""Distances from vector layers of every kind, and what is said of those that do not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401  (the .rio accessor)
import shapely
import xarray as xr
from shapely import LineString, MultiPoint, Point, Polygon

import orograph as og

geopandas = pytest.importorskip("geopandas", reason="GeoPandas is not installed: orograph[vector]")
pyogrio = pytest.importorskip("pyogrio", reason="pyogrio is not installed: orograph[vector]")

UTM, OTHER = "EPSG:32633", "EPSG:3035"
BOTH = ("cost", "allocation")
SHAPE = (20, 30)


@pytest.fixture
def friction() -> xr.DataArray:
    cells = np.random.default_rng(4).integers(1, 9, SHAPE).astype(float)
    axes = {"y": 5_000_000 - 30.0 * np.arange(20), "x": 500_000 + 30.0 * np.arange(30)}
    return xr.DataArray(cells, axes, ("y", "x"), "friction").rio.write_crs(UTM)


def cell_box(x: int, y: int, width: int, height: int) -> Polygon:
    """The area of some cells of the grid above."""
    left, top = 500_000 - 15 + 30 * x, 5_000_000 + 15 - 30 * y
    return shapely.box(left, top - 30 * height, left + 30 * width, top)


@pytest.fixture
def cores() -> Any:
    areas = [cell_box(2, 3, 4, 2), cell_box(20, 10, 3, 5)]
    return geopandas.GeoDataFrame({"core_id": [41, 7]}, geometry=areas, crs=UTM)


def labelled(first: int = 0, second: int = 1) -> np.ndarray:
    """What the two cores cover."""
    cells = np.full(SHAPE, -1)
    cells[3:5, 2:6], cells[10:15, 20:23] = first, second
    return cells


FORMS: dict[str, Callable[[Any, Path], Any]] = {
    "a frame": lambda cores, folder: cores,
    "a frame in another CRS": lambda cores, folder: cores.to_crs(OTHER),
    "a series": lambda cores, folder: cores.geometry,
    "a list of geometries": lambda cores, folder: list(cores.geometry),
    "an array of geometries": lambda cores, folder: cores.geometry.to_numpy(),
    "GeoJSON": lambda cores, folder: json.loads(cores.to_json()),
    "a GeoPackage": lambda cores, folder: written(cores, folder / "cores.gpkg"),
    "a shapefile": lambda cores, folder: str(written(cores.to_crs(OTHER), folder / "cores.shp")),
    "a layer of ours": lambda cores, folder: og.VectorLayer(
        cores.geometry.to_numpy(), {"core_id": cores["core_id"].to_numpy()}, UTM
    ),
}


def written(frame: Any, path: Path) -> Path:
    frame.to_file(path)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_areas_as_sources(form: str, friction: xr.DataArray, cores: Any, tmp_path: Path) -> None:
    given = FORMS[form](cores, tmp_path)
    found = og.cost_distance(friction, given, outputs=BOTH)
    raster = friction.copy(data=labelled() + 1)
    expected = og.cost_distance(friction, raster, outputs=BOTH)
    assert np.array_equal(found["cost"], expected["cost"])
    assert np.array_equal(found["allocation"], expected["allocation"] - 1)
    if "series" not in form and "geometries" not in form:
        named = og.cost_distance(friction, given, label="core_id", outputs=BOTH)
        assert set(np.unique(named["allocation"])) == {7, 41}
        assert np.array_equal(named["allocation"] == 41, found["allocation"] == 0)


def test_lines_and_points_as_sources(friction: xr.DataArray, tmp_path: Path) -> None:
    road = LineString([(500_000, 5_000_000), (500_600, 4_999_500)])
    stops = MultiPoint([(500_090, 4_999_970), (500_300, 4_999_700)])
    layer = geopandas.GeoSeries([road, stops, Point(500_870, 4_999_430)], crs=UTM)
    burnt = og.rasterize(layer, friction)
    found = og.cost_distance(friction, layer, outputs=BOTH)
    assert np.array_equal(found["cost"] == 0, burnt >= 0)
    assert np.array_equal(found["allocation"].values[burnt >= 0], burnt.values[burnt >= 0])
    points = layer[1:].to_crs(OTHER)
    found = og.cost_distance(friction, points, outputs=BOTH, initial_cost=[5, 0])
    assert (found["cost"] == 5).sum() >= 2
    assert set(np.unique(found["allocation"])) == {0, 1}
    stored = og.cost_distance(friction, layer, out=tmp_path / "cost.zarr", tile=8)
    assert np.array_equal(stored["cost"], og.cost_distance(friction, layer)["cost"])


def test_hops_and_indices_from_areas(friction: xr.DataArray, cores: Any, tmp_path: Path) -> None:
    raster = friction.copy(data=labelled() + 1)
    mask = friction > 1
    found = og.hop_distance(mask, cores.to_crs(OTHER))["hops"]
    assert np.array_equal(found, og.hop_distance(mask, raster)["hops"])
    index = og.DistanceIndex.build(friction, tmp_path / "i.zarr", block=8, levels=0)
    assert np.array_equal(index.query(cores)["cost"], index.query(raster)["cost"])


def test_some_of_the_labels_are_sources(friction: xr.DataArray, cores: Any) -> None:
    one = og.cost_distance(friction, cores, label="core_id", source_values=[7], outputs=BOTH)
    assert set(np.unique(one["allocation"])) == {7}
    with pytest.raises(og.InputError, match=r"source_values: \[8.*which are \[7, 41\]"):
        og.cost_distance(friction, cores, label="core_id", source_values=[8])


def test_an_area_may_reach_into_nodata(friction: xr.DataArray, cores: Any) -> None:
    friction[3, 2] = np.nan
    assert np.isnan(og.cost_distance(friction, cores)["cost"].values[3, 2])


def bad_layers() -> dict[str, tuple[Callable[[Any], tuple[Any, dict[str, Any]]], str]]:
    def with_column(values: list[Any]) -> Callable[[Any], tuple[Any, dict[str, Any]]]:
        return lambda cores: (cores.assign(core_id=values), {"label": "core_id"})

    return {
        "an empty layer": (lambda cores: (cores[:0], {}), "sources: the layer is empty"),
        "no CRS": (
            lambda cores: (cores.set_crs(None, allow_override=True), {}),
            r"no CRS, but the raster's is WGS 84 / UTM zone 33N; set theirs",
        ),
        "outside": (
            lambda cores: (cores.translate(9000), {}),
            r"sources: geometry 0, a Polygon of x = 509045 to .* lies outside the grid "
            r"\(and 1 more\); leave it out",
        ),
        "a point outside": (
            lambda cores: ([Point(0, 0)], {}),
            r"point 0 \(x=0, y=0\) lies outside the grid",
        ),
        "smaller than a cell": (
            lambda cores: (cores.centroid.buffer(1), {}),
            "covers the centre of no cell .* all_touched=True",
        ),
        "no such column": (
            lambda cores: (cores, {"label": "core"}),
            "label: sources has no column 'core'; its columns are core_id",
        ),
        "a series has no columns": (
            lambda cores: (cores.geometry, {"label": "core"}),
            "has no column 'core'; its columns are none",
        ),
        "a column of fractions": (
            with_column([1.0, 2.5]),
            "label: core_id of geometry 1 is 2.5; labels must be whole numbers",
        ),
        "a column of large numbers": (
            with_column([1, 2**62]),
            f"core_id of geometry 1 is {2**62}; labels must be whole numbers below {2**62}",
        ),
        "a column with gaps": (with_column([np.nan, 2]), "core_id of geometry 0 is missing .nan."),
        "a column of words and numbers": (
            with_column(["a", 2]),
            "core_id of geometry 1 is 2, others are text",
        ),
        "the label of no source": (with_column([3, -1]), "core_id of geometry 1 is -1"),
        "a label of no layer": (
            lambda cores: ([(500_000, 5_000_000)], {"label": "core_id"}),
            "label: 'core_id'; it is a column of a vector layer",
        ),
        "starts of areas": (
            lambda cores: (cores, {"initial_cost": [1, 2]}),
            "initial_cost: a list is for points; with lines and areas",
        ),
        "starts of other labels": (
            lambda cores: (cores, {"label": "core_id", "initial_cost": {8: 1}}),
            "initial_cost: 8 is the label of no source; their labels are",
        ),
        "a path that does not exist": (
            lambda cores: ("cores.gpkg", {}),
            "'cores.gpkg' does not ex",
        ),
    }


@pytest.mark.parametrize("case", bad_layers())
def test_a_layer_is_refused_in_a_sentence(
    case: str, friction: xr.DataArray, cores: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    change, says = bad_layers()[case]
    if "smaller" in case:  # the centre of the first lies on a corner, that of the second does not
        cores = cores.translate(3, 3)
    given, options = change(cores)
    with pytest.raises(og.InputError, match=says) as caught:
        og.cost_distance(friction, given, **options)
    assert "\n" not in str(caught.value)


def test_files_of_several_layers_and_of_none(
    friction: xr.DataArray, cores: Any, tmp_path: Path
) -> None:
    path = tmp_path / "two.gpkg"
    cores.to_file(path, layer="one")
    cores.to_file(path, layer="two")
    with pytest.raises(og.InputError, match=r"two.gpkg has 2 layers \(one, two\); pass one"):
        og.cost_distance(friction, path)
    (tmp_path / "junk.geojson").write_text("{}")
    with pytest.raises(og.InputError, match=r"junk.geojson is not a vector file that can be read"):
        og.cost_distance(friction, tmp_path / "junk.geojson")


def test_points_are_taken_from_files(friction: xr.DataArray, cores: Any, tmp_path: Path) -> None:
    path = written(cores.set_geometry(cores.centroid).to_crs(OTHER), tmp_path / "points.gpkg")
    result = og.cost_distance(friction, path, outputs=("cost", "back_direction"))
    assert (result["cost"] == 0).sum() == 2
    assert [p.cost for p in og.least_cost_path(result, path)] == [0, 0]
    assert og.is_connected(friction, path, path).hops.tolist() == [0, 0]


# --- on real data ----------------------------------------------------------------------------


def test_real_cores_as_grass_has_them(shared_data: Path) -> None:
    """The cells that GRASS found for habitat cores, and its cost distance from one of them."""
    resistance = shared_data / "friction/lm_resistances.tif"
    shapes = shared_data / "friction/lm_cores.shp"
    cores = geopandas.read_file(shapes)
    column = next(c for c in cores.columns if c.lower() in ("core_id", "id", "hca_id"))
    burnt = og.rasterize(shapes, resistance, label=column)
    with rasterio.open(shared_data / "reference/lm_cores_rasterised.tif") as source:
        expected = source.read(1)
    assert np.count_nonzero((burnt.values > 0) != (expected > 0)) <= 0.001 * (expected > 0).sum()
    first = cores[cores[column] == 1].to_crs("EPSG:4326")
    cost = og.cost_distance(resistance, first, cell_size=1)["cost"].values
    with rasterio.open(shared_data / "reference/lm_cwd_from_core1.tif") as source:
        grass = source.read(1)
    known = np.isfinite(grass) & np.isfinite(cost)
    assert known.sum() > 100_000
    assert np.abs(cost - grass)[known].max() < 2100  # a cell more or less at the edge of the core
