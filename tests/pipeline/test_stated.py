"""What rasters, layers and graphs say of themselves is taken as said, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pandas as pd
import pytest
import rioxarray  # noqa: F401  (registers `.rio`)
import xarray as xr
from pyproj import Transformer
from shapely import LineString, Point

import orograph as og

UTM = "EPSG:32633"


def raster(values: Any, crs: str = UTM, side: float = 30.0, **attrs: Any) -> xr.DataArray:
    """Return a raster whose coordinates begin at 500 km and 5000 km."""
    values = np.asarray(values)
    y = 5e6 - side * (np.arange(values.shape[0]) + 0.5)
    x = 5e5 + side * (np.arange(values.shape[1]) + 0.5)
    made = xr.DataArray(values, {"y": y, "x": x}, ("y", "x"), attrs=attrs)
    return made.rio.write_crs(crs)


HEIGHTS = 100 + np.random.default_rng(1).random((12, 14)).round(4) * 9
AT = [(500045.0, 4999955.0)]


@pytest.mark.parametrize("units", ["yard", "fathom", "ft (US)", "0.1 m", "hPa", "survey feet"])
def test_a_unit_of_heights_that_is_not_known_is_refused(units: str) -> None:
    with pytest.raises(og.InputError, match="elevation_unit="):
        og.walking_time(raster(HEIGHTS, units=units), AT)
    terrain = og.TerrainCost(surface=raster(HEIGHTS, units=units))
    with pytest.raises(og.InputError, match=r"surface: .* elevation_unit="):
        og.cost_distance(raster(np.ones_like(HEIGHTS)), AT, cost=terrain)
    given = og.walking_time(raster(HEIGHTS, units=units), AT, elevation_unit="m")
    xr.testing.assert_equal(given, og.walking_time(raster(HEIGHTS), AT))


@pytest.mark.parametrize(("units", "metres"), [("dm", 0.1), ("decimetre", 0.1), ("1", 1), ("", 1)])
def test_other_units_of_heights_are_converted(units: str, metres: float) -> None:
    found = og.walking_time(raster(HEIGHTS, units=units), AT)["time"]
    np.testing.assert_array_equal(found, og.walking_time(raster(HEIGHTS * metres), AT)["time"])


@pytest.mark.parametrize(
    ("crs", "units", "said"),
    [
        (UTM, ("degrees_north", "degrees_east"), "not a length as their CRS"),
        (UTM, ("hm", "hm"), "'hm'"),
        (UTM, ("furlong", "furlong"), "'furlong'"),
        (UTM, ("m", "km"), "km and m .*bring both to one unit"),
        ("EPSG:4326", ("radian", "radian"), "'radian'.*degrees"),
        ("EPSG:4326", ("m", "m"), "'m'.*degrees"),
        ("EPSG:4807", ("", ""), "'grad'.*degrees"),
    ],
)
@pytest.mark.parametrize("kind", ["DataArray", ".nc", ".zarr"])
def test_units_of_coordinates_that_contradict_the_crs_are_refused(
    crs: str, units: tuple[str, str], said: str, kind: str, tmp_path: Path
) -> None:
    made = raster(HEIGHTS, UTM).rename("z")
    if not crs.endswith(UTM):
        made = made.assign_coords(y=45 + np.arange(12.0) / 100, x=9 + np.arange(14.0) / 100)
        made = made.rio.write_crs(crs)
    for name, unit in zip(("y", "x"), units, strict=True):
        made[name].attrs = {"units": unit} if unit else {}
    given: Any = made
    if kind == ".nc":
        given = tmp_path / "z.nc"
        made.to_netcdf(given)
    elif kind == ".zarr":
        given = tmp_path / "z.zarr"
        made.to_zarr(given, consolidated=False)
    with pytest.raises(og.InputError, match=said):
        og.cost_distance(given, [(9.05, 45.05)])


def test_one_coordinate_tells_the_unit_of_both() -> None:
    made = raster(np.ones((5, 6)), side=1.0)
    made["x"].attrs = {"units": "km"}
    made["y"].attrs = {}
    result = og.cost_distance(made, [(500000.5, 4999999.5)])
    assert result.attrs["length_unit"] == "km"
    areas = og.component_table(og.connected_components(made), made)
    assert areas["area"].tolist() == [30e6]


@pytest.mark.parametrize("kind", [".csv", ".gpkg", ".geojson"])
def test_all_places_of_a_table_are_in_the_crs_of_its_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"peaks{kind}"
    peaks = og.peaks(raster(HEIGHTS))
    og.peaks(raster(HEIGHTS), out=path, crs="EPSG:4326")
    found = pd.read_csv(path) if kind == ".csv" else geopandas.read_file(path)
    to_degrees = Transformer.from_crs(UTM, "EPSG:4326", always_xy=True).transform
    for prefix in ("", "col_"):
        known = np.isfinite(peaks[f"{prefix}x"].values)
        x, y = to_degrees(*(peaks[f"{prefix}{axis}"].values[known] for axis in "xy"))
        np.testing.assert_allclose(found[f"{prefix}x"].to_numpy()[known], x, atol=1e-9)
        np.testing.assert_allclose(found[f"{prefix}y"].to_numpy()[known], y, atol=1e-9)


@pytest.mark.parametrize("least", [-9999, -10000, -1e10, -3.4028231e38])
@pytest.mark.parametrize(
    "call",
    [
        lambda z: og.flow_accumulation(z, method="d8"),
        lambda z: og.flow_accumulation(z, method="mfd"),
        lambda z: og.cost_distance(z, AT, cost="absolute_difference"),
        lambda z: og.fill_depressions(z),
    ],
)
def test_a_least_height_far_below_all_others_is_told(least: float, call: Any) -> None:
    heights = HEIGHTS.copy()
    heights[3, 4:6] = least
    with pytest.warns(RuntimeWarning, match="stands for nodata, say so: nodata="):
        call(raster(heights))


def test_a_sea_floor_is_not_taken_for_nodata() -> None:
    og.fill_depressions(raster(np.linspace(-8000, 3000, 168).reshape(12, 14)))


@pytest.mark.parametrize("kind", [".tif", ".zarr"])
@pytest.mark.parametrize(
    "call", [lambda flow, none: og.flow_distance(flow, none),
             lambda flow, none: og.height_above_drainage(raster(HEIGHTS), flow, none)]
)  # fmt: skip
def test_files_without_a_stream_are_told(kind: str, call: Any, tmp_path: Path) -> None:
    none = tmp_path / f"none{kind}"
    og.to_file(raster(np.zeros(HEIGHTS.shape, "u1")).rename("streams"), none)
    with pytest.warns(RuntimeWarning, match="no cell is a stream"):
        call(og.flow_direction(raster(HEIGHTS)), none)


def test_outlets_everywhere_are_told() -> None:
    with pytest.warns(RuntimeWarning, match="all cells are outlets"):
        og.fill_depressions(raster(HEIGHTS), outlets=raster(np.ones(HEIGHTS.shape, "u1")))


def test_results_declare_nodata_of_their_dtype(tmp_path: Path) -> None:
    cost = og.cost_distance(raster(np.ones((6, 7))), AT)
    corridor = og.corridor(cost, cost)
    assert np.isnan(corridor.rio.nodata)
    assert np.isnan(corridor.encoding["_FillValue"])
    like = raster(HEIGHTS)
    areas = geopandas.GeoDataFrame(geometry=[Point(500100, 4999900).buffer(90)], crs=UTM)
    mask = (og.rasterize(areas, like=like) == 1).astype("uint8")
    og.to_file(mask.rename("mask"), tmp_path / "mask.nc")


def test_a_network_keeps_the_names_of_its_regions() -> None:
    towns = geopandas.GeoDataFrame(
        {"name": ["Zell", "Au"]}, geometry=[Point(500045, 4999955), Point(500345, 4999715)], crs=UTM
    )
    links = og.region_network(raster(np.ones(HEIGHTS.shape)), towns, label="name")
    assert [links.columns[end].tolist() for end in ("from", "to")] == [["Zell"], ["Au"]]


@pytest.mark.parametrize("how", [{"unit": "min"}, {"unit": "h"}, {"cost": "length"}])
@pytest.mark.parametrize("stored", [False, True])
def test_links_in_another_unit_than_a_walk_are_refused(
    how: dict[str, Any], stored: bool, tmp_path: Path
) -> None:
    heights = raster(np.zeros(HEIGHTS.shape))
    lines = geopandas.GeoDataFrame(
        geometry=[LineString([(500045, 4999955), (500345, 4999955)])], crs=UTM
    )
    where = {"store": tmp_path / "roads.zarr"} if stored else {}
    links = og.roads(lines, like=heights, speed=36, **how, **where)
    with pytest.raises(og.InputError, match="the times of a walk in seconds"):
        og.walking_time(heights, AT, links=links)
    og.cost_distance(raster(np.ones(HEIGHTS.shape)), AT, links=links)
    og.walking_time(heights, AT, links=og.roads(lines, like=heights, speed=36))


def test_units_of_depressions_and_of_round_distances() -> None:
    found = og.depressions(raster(HEIGHTS, units="m"))
    assert found["area"].attrs["units"] == "m2"
    assert found["volume"].attrs["units"] == "m3"
    assert og.depressions(raster(HEIGHTS, units="ft"))["volume"].attrs["units"] == "m2 ft"
    friction = raster(np.ones(HEIGHTS.shape))
    assert og.cost_distance(friction, AT, cost="eikonal").attrs["length_unit"] == "m"


def test_feet_become_metres() -> None:
    found = og.convert_units(raster(HEIGHTS, units="US survey feet"), "m")
    np.testing.assert_allclose(found, HEIGHTS * 1200 / 3937)


@pytest.mark.parametrize("call", [og.component_table, lambda d: og.corridor(d, d)])
def test_several_bands_are_refused(call: Any) -> None:
    bands = xr.concat([raster(HEIGHTS).rename("cost")] * 2, "band")
    with pytest.raises(og.InputError, match=r"2 bands; give one, such as by .isel\(band=0\)"):
        call(bands)


@pytest.mark.parametrize(
    ("dtype", "written", "cell"),
    [("f4", -3.402823e38, -3.4028235e38), ("f8", -1e35, float(np.float32(-1e35)))],
)
@pytest.mark.parametrize("lazy", [False, True])
def test_nodata_in_other_digits_is_nodata_after_xarray_has_opened_it(
    dtype: str, written: float, cell: float, lazy: bool, tmp_path: Path
) -> None:
    heights = HEIGHTS.astype(dtype)
    heights[2:4, 5] = cell
    made = raster(heights).rename("z")
    made.encoding["_FillValue"] = np.dtype(dtype).type(written)
    made.to_netcdf(tmp_path / "z.nc")
    with xr.open_dataset(
        tmp_path / "z.nc", decode_coords="all", chunks={} if lazy else None
    ) as opened:
        given = opened["z"] if lazy else opened["z"].load()
        filled = og.fill_depressions(given, outputs=("filled", "depth"))
        assert np.isnan(filled["filled"].values[2:4, 5]).all()
        assert filled["depth"].max() < 10


def test_a_least_height_of_a_foreign_store_is_told(tmp_path: Path) -> None:
    heights = HEIGHTS.copy()
    heights[3, 4:6] = -9999
    raster(heights).to_dataset(name="z").to_zarr(tmp_path / "z.zarr", consolidated=False)
    with pytest.warns(RuntimeWarning, match="stands for nodata"):
        og.fill_depressions(tmp_path / "z.zarr")
