"""Lengths, areas and times mean what the CRS and the coordinates say, in every operation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import rasterio
import rioxarray
import shapely
import xarray as xr
from affine import Affine
from pyproj import Geod
from rasterio.rpc import RPC

import orograph as og

SHAPE = 9, 11
SIDE = 30.0  # of a cell, in metres
METRES = {"m": 1.0, "us-ft": 1200 / 3937, "ft": 0.3048, "km": 1000.0}
OTHER_UNITS = tuple(unit for unit in METRES if unit != "m")
HEIGHTS = np.random.default_rng(5).random(SHAPE) * 40
SOURCE = 4, 3  # row, column


def ground(unit: str = "m", cells: np.ndarray = HEIGHTS, **attrs: Any) -> xr.DataArray:
    """One piece of ground in a CRS of which the unit is given."""
    side = SIDE / METRES[unit]
    y = 4_000_000 / METRES[unit] - side * np.arange(SHAPE[0])
    x = 500_000 / METRES[unit] + side * np.arange(SHAPE[1])
    raster = xr.DataArray(cells, {"y": y, "x": x}, ("y", "x"), "z", attrs)
    raster = raster.rio.write_crs(f"+proj=utm +zone=11 +datum=WGS84 +units={unit}")
    # rows and columns exactly as wide: slopes that are equal in one unit are so in all
    corner = Affine(side, 0, x[0] - side / 2, 0, -side, y[0] + side / 2)
    return raster.rio.write_transform(corner)


def source(raster: xr.DataArray) -> list[tuple[float, float]]:
    """The point of which distances are measured."""
    return [(float(raster.x[SOURCE[1]]), float(raster.y[SOURCE[0]]))]


def index_times(z: xr.DataArray) -> Any:
    index = og.DistanceIndex.build(z, "memory://lengths.zarr", cost="tobler", overwrite=True,
                                   elevation_unit="m")  # fmt: skip
    return index.query(source(z))["cost"]


def path_length(z: xr.DataArray) -> Any:
    result = og.cost_distance(z * 0 + 1, source(z), outputs=("cost", "back_direction"))
    (path,) = og.least_cost_path(result, [(float(z.x[-1]), float(z.y[0]))])
    return path.length


def regions(z: xr.DataArray) -> xr.DataArray:
    found = z.copy(data=np.zeros(SHAPE, np.int32))
    found[0, 0], found[-1, -1], found[0, -1] = 1, 2, 3
    return found


IN_METRES: dict[str, Callable[[xr.DataArray], Any]] = {
    "walking_time": lambda z: og.walking_time(z, source(z), elevation_unit="m")["time"],
    "walking_time as r.walk": lambda z: og.walking_time(
        z, source(z), model="walk", elevation_unit="m"
    )["time"],
    "index of walking times": index_times,
    "flow_distance": lambda z: og.flow_distance(og.flow_direction(z))["distance"],
    "upstream_length": lambda z: og.upstream_length(og.flow_direction(z))["length"],
    "streams": lambda z: og.streams(
        *(lambda flow: (flow, og.flow_accumulation(flow), 3))(og.flow_direction(z))
    )["length"],
    "flow_accumulation of areas": lambda z: og.flow_accumulation(
        og.flow_direction(z), weights="area"
    )["accumulation"],
    "component_table": lambda z: og.component_table(og.connected_components((z > 20).astype("u1")))[
        "area"
    ],
    "depressions": lambda z: og.depressions(z)["area"],
    "least_cost_path": path_length,
    "region_network": lambda z: og.region_network(z * 0 + 1, regions(z)).columns["length"],
    "linkages": lambda z: og.linkages(z * 0 + 1, regions(z), threshold=0)["euclidean"],
}
UNITS = {
    "flow_distance": "m",
    "upstream_length": "m",
    "streams": "m",
    "walking_time": "s",
    "linkages": "m",
}


@pytest.mark.diagonal
@pytest.mark.parametrize("unit", OTHER_UNITS)
@pytest.mark.parametrize("name", IN_METRES)
def test_lengths_areas_and_times_do_not_depend_on_the_unit_of_the_crs(name: str, unit: str) -> None:
    measured, expected = IN_METRES[name](ground(unit)), IN_METRES[name](ground())
    np.testing.assert_allclose(np.asarray(measured), np.asarray(expected), rtol=1e-9)
    for result in (measured, expected):
        assert name not in UNITS or result.attrs["units"] == UNITS[name]


@pytest.mark.parametrize(
    ("crs", "stated", "volumes"),
    [
        ("m", None, "m3"),
        ("m", "metres", "m3"),
        ("m", "-", "m3"),
        ("m", "US survey feet", "m2 us-ft"),
        ("m", "K", "m2 K"),
        ("us-ft", None, None),
        ("us-ft", "m", "m3"),
        ("ft", "feet", "m2 ft"),
        ("degrees", None, "m3"),
        ("degrees", "ft", "m2 ft"),
        ("heights in feet", None, "m2 us-ft"),
        (None, None, None),
    ],
)
def test_volumes_say_their_unit(crs: str | None, stated: str | None, volumes: str | None) -> None:
    heights = ground(**({} if stated is None else {"units": stated}))
    if crs is None:
        heights = heights.drop_vars(["y", "x", "spatial_ref"]).drop_encoding()
    elif crs == "degrees":
        y, x = 46 - 0.01 * np.arange(SHAPE[0]), 7 + 0.01 * np.arange(SHAPE[1])
        heights = xr.DataArray(HEIGHTS, {"y": y, "x": x}, ("y", "x"), attrs=heights.attrs)
        heights = heights.rio.write_crs("EPSG:4326")
    elif crs == "heights in feet":
        heights = heights.drop_vars("spatial_ref").rio.write_crs("EPSG:32611+6360")
    elif crs != "m":
        heights = ground(crs, **heights.attrs)
    found = og.depressions(heights)
    assert found["volume"].attrs.get("units") == volumes
    assert found["area"].attrs.get("units") == (None if crs is None else "m2")


@pytest.mark.parametrize("unit", OTHER_UNITS)
def test_a_cost_distance_is_per_unit_of_the_crs_and_says_which(unit: str) -> None:
    result, expected = (og.cost_distance(z * 0 + 1, source(z)) for z in (ground(unit), ground()))
    costs = result["cost"].values * METRES[unit]
    np.testing.assert_allclose(costs, expected["cost"].values, rtol=1e-9)
    assert (result.attrs["length_unit"], expected.attrs["length_unit"]) == (unit, "m")
    assert result.attrs["cell_size"] == pytest.approx([SIDE / METRES[unit]] * 2)


@pytest.mark.parametrize("cost", ["friction", "tobler"])
@pytest.mark.parametrize("unit", METRES)
def test_answers_of_an_index_say_the_units_that_a_distance_says(unit: str, cost: str) -> None:
    z, heights = ground(unit), {} if cost == "friction" else {"elevation_unit": "m"}
    index = og.DistanceIndex.build(z, "memory://units.zarr", cost=cost, overwrite=True, **heights)
    whole = og.walking_time(z, source(z), **heights) if heights else og.cost_distance(z, source(z))
    field = index.query(source(z))
    for name in ("length_unit", "cell_size"):
        assert field.attrs[name] == whole.attrs[name]
    expected = whole["time" if heights else "cost"].attrs.get("units")
    for costs in (index.distance_matrix(source(z)), index.nearest([*source(z)] * 2)["cost"]):
        assert costs.attrs["length_unit"] == unit
        assert costs.attrs.get("units") == field["cost"].attrs.get("units") == expected


@pytest.mark.parametrize("unit", OTHER_UNITS)
@pytest.mark.parametrize("heights", ["surface", "elevation"])
def test_costs_over_terrain_convert_heights_to_the_unit_of_the_crs(unit: str, heights: str) -> None:
    found = []
    for z in (ground(unit), ground()):
        factor = {"vertical_factor": "tobler"} if heights == "elevation" else {}
        cost = og.TerrainCost(**{heights: z}, elevation_unit="m", **factor)
        found.append(og.cost_distance(z * 0 + 1, source(z), cost=cost)["cost"].values)
    np.testing.assert_allclose(found[0] * METRES[unit], found[1], rtol=1e-9)


def no_unit_needed(z: xr.DataArray) -> None:
    og.flow_direction(z)
    og.cost_distance(z, source(z))
    og.cost_distance(z, source(z), cost="absolute_difference")
    og.cost_distance(z, source(z), cost=og.TerrainCost(horizontal_raster=z))


@pytest.mark.parametrize("unit", OTHER_UNITS)
def test_heights_of_an_unknown_unit_are_refused_where_they_count(unit: str) -> None:
    z = ground(unit)
    no_unit_needed(z)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: og.walking_time(z, source(z)),
        lambda: og.cost_distance(z, source(z), cost=og.TerrainCost(surface=z)),
        lambda: og.cost_distance(z, source(z), cost=og.TerrainCost(elevation=z)),
        lambda: og.DistanceIndex.build(z, "memory://refused.zarr", cost="walk"),
    )
    for call in calls:
        with pytest.raises(og.InputError, match=f"lengths are in {unit}.*elevation_unit="):
            call()


def told_by_attribute(z: xr.DataArray) -> dict[str, Any]:
    return {"elevation": z.assign_attrs(units="US survey foot")}


def told_by_vertical_crs(z: xr.DataArray) -> dict[str, Any]:
    return {"elevation": z.rio.write_crs("EPSG:32611+6360")}  # NAVD88 height (ftUS)


def told_by_argument(z: xr.DataArray) -> dict[str, Any]:
    return {"elevation": z.assign_attrs(units="m"), "elevation_unit": "us-ft"}


@pytest.mark.parametrize("way", [told_by_attribute, told_by_vertical_crs, told_by_argument])
def test_the_unit_of_heights_is_known_by(way: Callable[[xr.DataArray], dict[str, Any]]) -> None:
    in_feet = ground(cells=HEIGHTS / METRES["us-ft"])
    times = og.walking_time(**way(in_feet), sources=source(in_feet))["time"].values
    np.testing.assert_allclose(times, og.walking_time(ground(), source(in_feet))["time"], rtol=1e-9)


@pytest.mark.parametrize("place", ["array", "tif", "nc", "zarr", "store"])
def test_a_unit_of_heights_is_read_by_every_reader(place: str, tmp_path: Path) -> None:
    z = ground(cells=HEIGHTS / METRES["us-ft"], units="us-ft")
    given: Any = z
    if place == "tif":
        given = og.to_geotiff(z, tmp_path / "z.tif")
    elif place == "nc":
        given = tmp_path / "z.nc"
        z.to_netcdf(given)
    elif place == "zarr":
        given = tmp_path / "z.zarr"
        z.to_zarr(given, consolidated=False)
    elif place == "store":
        og.ingest(z, tmp_path / "z.zarr")
        given = tmp_path / "z.zarr"
    times = og.walking_time(given, source(z))["time"].values
    np.testing.assert_allclose(times, og.walking_time(ground(), source(z))["time"], rtol=1e-9)


@pytest.mark.parametrize("place", ["array", "nc", "zarr", "store", "netcdf by GDAL"])
@pytest.mark.parametrize("unit", ["km", "US_survey_foot"])
def test_coordinates_may_be_in_another_unit_than_the_crs(
    unit: str, place: str, tmp_path: Path
) -> None:
    z = ground().astype(np.float32)
    metres = {"km": 1000.0, "US_survey_foot": METRES["us-ft"]}[unit]
    scaled = z.assign_coords(x=z.x / metres, y=z.y / metres)
    scaled.x.attrs |= {"units": unit, "standard_name": "projection_x_coordinate"}
    scaled.y.attrs |= {"units": unit, "standard_name": "projection_y_coordinate"}
    given: Any = scaled
    if place in ("nc", "netcdf by GDAL"):
        scaled.to_netcdf(tmp_path / "z.nc")
        given = tmp_path / "z.nc" if place == "nc" else f"NETCDF:{tmp_path / 'z.nc'}:z"
    elif place in ("zarr", "store"):
        given = tmp_path / "z.zarr"
        if place == "zarr":
            scaled.to_zarr(given, consolidated=False)
        else:
            og.ingest(scaled, given)
    result = og.walking_time(given, source(scaled))
    np.testing.assert_allclose(
        result["time"].values, og.walking_time(z, source(z))["time"].values, rtol=1e-5
    )
    np.testing.assert_allclose(result.x, scaled.x)  # as they were given


def test_radians_of_a_geostationary_view_are_scaled_by_the_height_of_the_satellite() -> None:
    height, step = 35_786_023.0, 28e-6
    axes = {
        "y": ("y", 0.05 - step * np.arange(4), {"units": "rad"}),
        "x": ("x", step * np.arange(5), {"units": "rad"}),
    }
    flat = xr.DataArray(np.zeros((4, 5)), axes, ("y", "x")).rio.write_crs(
        f"+proj=geos +h={height:.0f} +lon_0=-75 +sweep=x +ellps=GRS80"
    )
    flat.x.attrs["units"] = flat.y.attrs["units"] = "rad"
    times = og.walking_time(flat, [(0.0, 0.05)])["time"].values
    pace = 3.6 / (6 * math.exp(-3.5 * 0.05))
    assert times[0, 1] == pytest.approx(step * height * pace, rel=1e-9)


def test_degrees_are_measured_on_the_ellipsoid_of_the_crs() -> None:
    axes = {"lat": 20.0 - np.arange(3), "lon": 10.0 + np.arange(4)}
    mars = "+proj=longlat +a=3396190 +rf=169.894447223612"
    flat = xr.DataArray(np.ones((3, 4)), axes, ("lat", "lon"))
    for crs, globe in (
        ("EPSG:4326", (6378137, 298.257223563)),
        (mars, (3396190, 169.894447223612)),
    ):
        cost = og.cost_distance(flat.rio.write_crs(crs), [(10.0, 20.0)])["cost"].values
        length = Geod(a=globe[0], rf=globe[1]).inv(10, 20, 11, 20)[2]
        assert cost[0, 1] == pytest.approx(length, rel=1e-12)


def write(path: Path, **more: Any) -> Path:
    profile = {"driver": "GTiff", "height": 4, "width": 4, "count": 1, "dtype": "float32"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(path, "w", **profile, **more) as file:
            file.write(np.ones((4, 4), np.float32), 1)
    return path


def test_a_crs_without_a_geotransform_is_refused_by_its_reason(tmp_path: Path) -> None:
    corners = ((0, 0), (0, 4), (4, 0), (4, 4))
    gcps = [rasterio.control.GroundControlPoint(r, c, 7 + c / 9, 46 - r / 9) for r, c in corners]
    one = [1.0, *[0.0] * 19]
    rpcs = RPC(
        height_off=0, height_scale=500, lat_off=46, lat_scale=1, line_den_coeff=one,
        line_num_coeff=one, line_off=2, line_scale=2, long_off=7, long_scale=1, samp_den_coeff=one,
        samp_num_coeff=one, samp_off=2, samp_scale=2, err_bias=0, err_rand=0,
    )  # fmt: skip
    files = {
        "4 ground control points": write(tmp_path / "a.tif", gcps=gcps, crs="EPSG:4326"),
        "rational polynomial": write(tmp_path / "b.tif", rpcs=rpcs),
        "no geotransform": write(tmp_path / "c.tif", crs="EPSG:4326"),
    }
    for reason, path in files.items():
        for call in (lambda p: og.cost_distance(p, [(1, 1)]), og.fill_depressions):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
                with pytest.raises(og.InputError, match=reason):
                    call(path)
                if reason == "rational polynomial":  # rioxarray does not tell of them
                    continue
                with pytest.raises(og.InputError, match=r"it has a CRS, but no .*write_transform"):
                    call(rioxarray.open_rasterio(path) + 0.5)


@pytest.mark.parametrize("operation", [og.fill_depressions, og.flow_direction])
def test_a_crs_without_coordinates_is_refused(operation: Callable[..., Any]) -> None:
    raster = xr.DataArray(HEIGHTS, dims=("y", "x")).rio.write_crs("EPSG:32611")
    with pytest.raises(og.InputError, match=r"elevation: it has a CRS, but no coordinates"):
        operation(raster)
    placed = raster.rio.write_transform(Affine(30, 0, 500_000, 0, -30, 4_000_000))
    assert operation(placed).rio.crs == placed.rio.crs


@pytest.mark.parametrize("crs", ["EPSG:32611", None])
@pytest.mark.parametrize("first", [0.5, 7.5])
def test_coordinates_from_the_corner_of_a_crs_pass_from_step_to_step(
    crs: str | None, first: float
) -> None:
    """Rows grow northwards from 0.5, as rioxarray counts those of files without a place."""
    numbers = {"y": np.arange(9) + first, "x": np.arange(11) + first}
    raster = xr.DataArray(HEIGHTS, numbers, ("y", "x"))
    turned = raster.isel(y=slice(None, None, -1))
    if crs is not None:
        raster, turned = raster.rio.write_crs(crs), turned.rio.write_crs(crs)
    ours, theirs = (og.flow_direction(og.fill_depressions(z)["filled"]) for z in (raster, turned))
    assert ours.rio.crs == raster.rio.crs
    ours, theirs = (og.flow_accumulation(steps)["accumulation"] for steps in (ours, theirs))
    assert np.array_equal(ours, theirs[::-1])


WEB = {"y": 5_000_000 - 100.0 * np.arange(4), "x": 700_000 + 100.0 * np.arange(5)}
START, END, HOLE = [(700_000, 5_000_000)], [(700_300, 4_999_800)], [(700_400, 5_000_000)]
BY_LENGTH: dict[str, Any] = {"snap": "150 m"}


def web_map() -> xr.DataArray:
    heights = xr.DataArray(HEIGHTS[:4, :5], WEB, ("y", "x")).rio.write_crs("EPSG:3857")
    return heights.where(heights != heights[0, 4])


def web_paths() -> xr.Dataset:
    return og.cost_distance(web_map(), START, outputs=("cost", "back_direction"), cell_size=1)


def web_index(folder: Path) -> og.DistanceIndex:
    return og.DistanceIndex.build(web_map(), folder / "i.zarr", block=2, cell_size=1)


def web_roads(**options: Any) -> Any:
    return og.roads([shapely.LineString([START[0], END[0]])], like=web_map(), **options)


# Operations on a web map that measure lengths or areas, which a warning is due for.
MEASURES: dict[str, Callable[[xr.DataArray, Path], Any]] = {
    "cost_distance": lambda z, _: og.cost_distance(z, START),
    "eikonal": lambda z, _: og.cost_distance(z, START, cost="eikonal"),
    "walking_time": lambda z, _: og.walking_time(z, START),
    "DistanceIndex": lambda z, folder: og.DistanceIndex.build(z, folder / "i.zarr", block=2),
    "region_network": lambda z, _: og.region_network(z, START + END),
    "linkages": lambda z, _: og.linkages(z, START + END, threshold=0),
    "roads": lambda z, _: web_roads(cost="length"),
    "roads of times": lambda z, _: web_roads(speed=5),
    "component_table": lambda z, _: og.component_table(og.connected_components(z > 20)),
    "zonal": lambda z, _: og.zonal((z > 20).astype("u1"), z),
    "depressions": lambda z, _: og.depressions(z),
    "flow_distance": lambda z, _: og.flow_distance(og.flow_direction(z)),
    "upstream_length": lambda z, _: og.upstream_length(og.flow_direction(z)),
    "areas": lambda z, _: og.flow_accumulation(og.flow_direction(z), weights="area"),
    "shares of areas": lambda z, _: og.flow_accumulation(z, method="mfd", weights="area"),
    "upstream areas": lambda z, _: og.upstream(og.flow_direction(z), z, weights="area"),
    "drainage_network": lambda z, _: og.drainage_network(z, 2),
    # lengths of costs that are none, and of snapping, get one warning as well
    "cost_distance, snap": lambda z, _: og.cost_distance(z, HOLE, **BY_LENGTH),
    "cost_distance in cells, snap": lambda z, _: og.cost_distance(
        z, HOLE, cell_size=1, **BY_LENGTH
    ),
    "walking_time, snap": lambda z, _: og.walking_time(z, HOLE, **BY_LENGTH),
    "hop_distance, snap": lambda z, _: og.hop_distance(z, HOLE, **BY_LENGTH),
    "flood_level, snap": lambda z, _: og.flood_level(z, HOLE, **BY_LENGTH),
    "pass_elevation, snap": lambda z, _: og.pass_elevation(z, HOLE + START, **BY_LENGTH),
    "is_connected, snap": lambda z, _: og.is_connected(z, HOLE, START, **BY_LENGTH),
    "region_network, snap": lambda z, _: og.region_network(z, HOLE + START, **BY_LENGTH),
    "watersheds, snap": lambda z, _: og.watersheds(
        og.flow_direction(z), END, accumulation=z, **BY_LENGTH
    ),
    "least_cost_path, snap": lambda z, _: og.least_cost_path(web_paths(), HOLE, **BY_LENGTH),
    "query, snap": lambda z, folder: web_index(folder).query(HOLE, **BY_LENGTH),
    "distance_matrix, snap": lambda z, folder: web_index(folder).distance_matrix(
        HOLE, START, **BY_LENGTH
    ),
    "nearest, snap": lambda z, folder: web_index(folder).nearest(HOLE, targets=START, **BY_LENGTH),
    "links, snap": lambda z, _: og.cost_distance(z, START, links=web_links(), **BY_LENGTH),
}


def web_links() -> Any:
    edge = pandas.DataFrame({"source": [0], "target": [1], "weight": [1.0]})
    return og.read_graph(edge, coordinates=np.array(HOLE + END), directed=False)


@pytest.mark.parametrize("name", MEASURES)
def test_lengths_of_a_web_map_get_one_warning(name: str, tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="Pseudo-Mercator") as told:
        MEASURES[name](web_map(), tmp_path)
    assert len(told) == 1
    assert told[0].filename == __file__


def test_slopes_of_a_web_map_get_no_warning() -> None:
    og.flow_accumulation(og.flow_direction(web_map()))
    og.fill_depressions(web_map())
