"""Ten everyday tasks, as an analyst does them: files and layers in, files and layers out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray
import shapely
import xarray as xr
from scipy import ndimage

import orograph as og
from orograph.cli.main import main

geopandas = pytest.importorskip("geopandas", reason="GeoPandas is not installed: orograph[vector]")
pytest.importorskip("pyogrio", reason="pyogrio is not installed: orograph[vector]")

BOTH = ("cost", "back_direction")


def opened(path: Path, rows: slice = slice(None), columns: slice = slice(None)) -> xr.DataArray:
    """A part of a real raster, its nodata NaN."""
    raster: Any = rioxarray.open_rasterio(path, masked=True)
    part: xr.DataArray = raster.squeeze("band", drop=True).isel(y=rows, x=columns).load()
    return part


@pytest.fixture
def resistance(shared_data: Path) -> xr.DataArray:
    """Every fourth cell of real resistances, so that a test takes no longer than need be."""
    each = slice(None, None, 4)
    part = opened(shared_data / "friction/lm_resistances.tif", each, each)
    return part.rio.write_transform(part.rio.transform(recalc=True))


@pytest.fixture
def cores(shared_data: Path) -> Any:
    return geopandas.read_file(shared_data / "friction/lm_cores.shp").to_crs("EPSG:4326")


def test_1_habitat_cores_to_paths_in_a_geopackage(
    resistance: xr.DataArray, cores: Any, tmp_path: Path
) -> None:
    """Polygons in degrees, with labels, over resistances in Albers."""
    first, *others = cores["core_id"].tolist()
    given = {"label": "core_id", "source_values": [first], "outputs": (*BOTH, "allocation")}
    result = og.cost_distance(resistance, cores, **given)
    assert set(np.unique(result["allocation"])) - {-1} == {first}
    ends = cores[cores["core_id"] != first]
    ends = ends.set_geometry(ends.to_crs(resistance.rio.crs).representative_point())
    paths = og.least_cost_path(result, ends, snap=True)
    paths.to_file(tmp_path / "corridors.gpkg")
    lines = geopandas.read_file(tmp_path / "corridors.gpkg")
    assert len(lines) == len(others)
    start = cores[cores["core_id"] == first].to_crs(lines.crs).geometry.iloc[0]
    assert (lines.distance(start) < 1600).all()  # within a cell: they end in the core
    assert (lines["cost"] > 0).all()
    assert np.allclose(lines.length, lines["length"])


def test_2_walking_times_over_a_terrain_in_degrees(shared_data: Path) -> None:
    dem = opened(shared_data / "dem/nc_eno.tif", slice(300, 400), slice(300, 420))
    x, y = float(dem.x[10]), float(dem.y[10])
    time = og.walking_time(dem, [(x, y)])["time"]
    assert time.attrs["units"] == "s"
    metres = 10.3 * 80  # cells of a third of an arc second, 80 of them southwards
    assert 0.6 * metres < float(time[90, 10]) < 3 * metres
    assert time.rio.crs == dem.rio.crs


def test_3_a_land_cover_to_areas(shared_data: Path) -> None:
    cover = opened(
        shared_data / "friction/nc_fortbragg_landcover.tif", slice(0, 150), slice(0, 150)
    )
    result = og.connected_components(cover, connectivity=4)
    table = og.component_table(result, cover)
    by_class = table.groupby("class")["area"].sum()
    for kind, area in by_class.items():
        assert area == pytest.approx(
            float((cover == kind).sum()) * abs(cover.rio.resolution()[0]) ** 2
        )
        assert (table["class"] == kind).sum() == ndimage.label(cover.values == kind)[1]
    assert table.attrs["area_unit"] == "m²"


def test_4_an_index_to_a_table_to_the_nearest(
    resistance: xr.DataArray, cores: Any, tmp_path: Path
) -> None:
    index = og.DistanceIndex.build(resistance, tmp_path / "i.zarr", block=32, levels=1)
    places = cores.set_geometry(cores.to_crs(resistance.rio.crs).representative_point())
    table = index.distance_matrix(places, snap=True)
    assert table.shape == (len(cores),) * 2
    near = index.nearest(places, 1, snap=True)
    expected = np.where(np.eye(len(cores), dtype=bool), np.inf, table).argmin(axis=1)
    assert np.array_equal(near["target"].values[:, 0], expected)
    alone = og.cost_distance(resistance, places[:1], snap=True)["cost"]
    assert float(table.max()) <= float(alone.max()) * 3
    assert index.path(places[:1], places[1:2], snap=True).cost == pytest.approx(float(table[0, 1]))


def test_5_a_terrain_to_edges_as_lines(shared_data: Path, tmp_path: Path) -> None:
    dem = opened(
        shared_data / "dem/california_clipped_500x500.tif", slice(200, 240), slice(200, 250)
    )
    lines = og.forest_lines(og.minimum_spanning_forest(dem))
    lines.to_file(tmp_path / "edges.gpkg")
    read = geopandas.read_file(tmp_path / "edges.gpkg")
    assert read.crs.equals(dem.rio.crs, ignore_axis_order=True)
    joined = shapely.line_merge(shapely.union_all(read.geometry))
    trees = shapely.get_num_geometries(shapely.unary_union(joined.buffer(1)))
    parts = og.connected_components(dem.notnull(), outputs=("labels", "component_size"))
    assert trees == int((parts["component_size"] > 1).sum())


def test_6_results_through_xarray_and_rioxarray_and_back(
    resistance: xr.DataArray, cores: Any, tmp_path: Path
) -> None:
    result = og.cost_distance(resistance, cores, outputs=BOTH)
    result.to_zarr(tmp_path / "r.zarr", consolidated=False)
    result.to_netcdf(tmp_path / "r.nc")
    box = cores.to_crs(resistance.rio.crs).total_bounds
    at = shapely.box(*box).centroid
    expected = og.least_cost_path(result, at, snap=True)
    with xr.open_zarr(tmp_path / "r.zarr", consolidated=False) as back:
        assert og.least_cost_path(back, at, snap=True) == expected
    with xr.open_dataset(tmp_path / "r.nc", decode_coords="all") as back:
        assert og.least_cost_path(back, at, snap=True) == expected
        clipped = back.rio.clip_box(*(box + np.repeat([-5000, 5000], 2)))
        (path,) = og.least_cost_path(clipped, at, snap=True)
        assert path.coordinates.tolist() == expected[0].coordinates.tolist()


def test_7_a_corridor_between_two_cores_in_a_geotiff(
    resistance: xr.DataArray, cores: Any, tmp_path: Path
) -> None:
    one, other = (og.cost_distance(resistance, cores[n : n + 1], outputs=BOTH) for n in (0, 1))
    corridor = og.corridor(one, other)
    og.to_geotiff(corridor, tmp_path / "corridor.tif")
    read = opened(tmp_path / "corridor.tif")
    assert float(read.min()) == float(corridor.min())
    inside = og.rasterize(cores[1:2], resistance) >= 0
    assert float(corridor.min()) == pytest.approx(float(one["cost"].where(inside).min()), rel=1e-12)


@pytest.mark.parametrize("connectivity", [4, 8, 16])
def test_8_a_river_is_a_barrier(resistance: xr.DataArray, connectivity: int) -> None:
    left, low, right, high = resistance.rio.bounds()
    bends = [(left, low), (left + (right - left) * 0.4, low + (high - low) * 0.35), (right, high)]
    river = geopandas.GeoSeries([shapely.LineString(bends)], crs=resistance.rio.crs)
    friction = resistance.where(og.rasterize(river, resistance) < 0)
    corner = [(float(resistance.x[-3]), float(resistance.y[-40]))]
    result = og.cost_distance(friction, corner, connectivity=connectivity, snap=100)
    y, x = np.nonzero(np.isfinite(result["cost"].values))
    north = shapely.Polygon([*bends, (left, high)])
    reached = shapely.points(resistance.x.values[x], resistance.y.values[y])
    assert len(reached) > 1000
    assert shapely.contains(north, reached).sum() in (0, len(reached))


def test_9_a_variable_of_a_climate_file_to_hops_and_back_to_netcdf(tmp_path: Path) -> None:
    lat, lon = 50 - 0.25 * np.arange(30), 5 + 0.25 * np.arange(40)
    sea = np.random.default_rng(3).random((30, 40)) > 0.2
    coords = {
        "lat": ("lat", lat, {"units": "degrees_north"}),
        "lon": ("lon", lon, {"units": "degrees_east"}),
    }
    dims = ("lat", "lon")
    both = xr.Dataset({"sea": (dims, sea.astype("i1")), "depth": (dims, sea * 1.0)}, coords)
    both.to_netcdf(tmp_path / "ocean.nc")
    result = og.hop_distance(tmp_path / "ocean.nc", [(5.0, 50.0)], variable="sea", snap=True)
    assert result["hops"].dims == dims
    labels, _ = ndimage.label(sea, np.ones((3, 3)))
    start = labels[result["hops"].values == 0]
    assert np.array_equal(result["hops"].values >= 0, labels == start[0])
    result.to_netcdf(tmp_path / "hops.nc")
    with xr.open_dataset(tmp_path / "hops.nc") as back:
        assert np.array_equal(back["hops"].isnull(), result["hops"] == -1)  # _FillValue
        assert np.array_equal(back["hops"].fillna(-1), result["hops"])
        assert np.array_equal(back["lat"], lat)


def test_10_the_same_from_the_shell(
    resistance: xr.DataArray,
    cores: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def orograph(*arguments: object) -> str:
        assert main([str(argument) for argument in arguments]) == 0
        return capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    resistance.rio.to_raster(tmp_path / "resistance.tif")
    cores.to_file(tmp_path / "cores.gpkg")
    ends = cores.set_geometry(cores.to_crs(resistance.rio.crs).representative_point())
    ends.to_file(tmp_path / "ends.gpkg")
    orograph("cost_distance", "resistance.tif", "cost.zarr", "--sources", "cores.gpkg", "--label",
             "core_id", "--source-values", 1, "--workers", 1)  # fmt: skip
    found = og.open(tmp_path / "cost.zarr")["cost"]
    expected = og.cost_distance(resistance, cores, label="core_id", source_values=[1])["cost"]
    assert np.array_equal(found, expected, equal_nan=True)
    said = orograph("least_cost_path", "cost.zarr", "--points", "ends.gpkg", "--out", "paths.gpkg",
                    "--snap", "300 m")  # fmt: skip
    assert f"paths.gpkg: {len(cores)} paths" in said
    assert len(geopandas.read_file(tmp_path / "paths.gpkg")) == len(cores)
    orograph("path", "cost.zarr", "--points", "ends.gpkg", "--out", "paths.csv", "--snap", 10)
    assert (tmp_path / "paths.csv").read_text().startswith("path,row,column,x,y\n0,")
