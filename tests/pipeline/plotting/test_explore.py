"""Results on a map that can be moved and zoomed: what stands in its page."""

from __future__ import annotations

import base64
import io
import json
import math
import re
from typing import Any

import folium
import geopandas
import matplotlib
import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import shapely
import xarray as xr
from matplotlib.image import imread
from shapely import LineString, Point

import orograph as og

matplotlib.use("agg")
START = [(500_000, 5_000_000)]


@pytest.fixture
def dem() -> xr.DataArray:
    cells = np.random.default_rng(4).integers(0, 3, (20, 30)).astype(float)
    axes = {"y": 5_000_000 - 100.0 * np.arange(20), "x": 500_000 + 100.0 * np.arange(30)}
    return xr.DataArray(cells, axes, ("y", "x"), "dem").rio.write_crs("EPSG:32633")


def page(m: Any) -> str:
    return str(m.get_root().render())


def images(m: Any) -> list[tuple[Any, Any]]:
    """Pixels and corners (south, west), (north, east) of the pictures in a page."""
    found = re.findall(
        r'L\.imageOverlay\(\s*"data:image/png;base64,([^"]+)",\s*(\[\[.*?\]\])', page(m)
    )
    return [
        (imread(io.BytesIO(base64.b64decode(data))), np.array(json.loads(corners)))
        for data, corners in found
    ]  # fmt: skip


def pixel(image: tuple[Any, Any], longitude: float, latitude: float) -> Any:
    """The pixel at a place, as a map in Web Mercator shows it."""
    pixels, ((south, west), (north, east)) = image

    def up(degrees: float) -> float:
        return math.asinh(math.tan(math.radians(degrees)))

    row = (up(north) - up(latitude)) / (up(north) - up(south)) * pixels.shape[0]
    column = (longitude - west) / (east - west) * pixels.shape[1]
    return pixels[int(row), int(column)]


def shapes(m: Any) -> list[Any]:
    """The geometries of all layers of shapes in a page."""
    found = re.findall(r"geo_json_\w+_add\((\{.*?\})\);", page(m))
    return [feature for text in found for feature in json.loads(text)["features"]]


def test_a_raster_is_a_picture_at_its_place(dem: xr.DataArray) -> None:
    cost = og.walking_time(dem, START)["time"]
    (image,) = images(og.explore(cost, tiles=None))
    frame = geopandas.GeoSeries(geopandas.points_from_xy(*(
        grid.ravel() for grid in np.meshgrid(cost["x"], cost["y"])
    )), crs=32633).to_crs(4326)  # fmt: skip
    colours = matplotlib.colormaps["viridis"](cost.values.ravel() / float(cost.max()))
    for place, colour in list(zip(frame, colours, strict=True))[::7]:
        np.testing.assert_allclose(pixel(image, place.x, place.y), colour, atol=0.01)
    west, south, east, north = frame.total_bounds
    (low, left), (high, right) = image[1]
    assert left < west < east < right
    assert low < south < north < high
    turned = dem.assign_coords(x=dem["x"] + 300_000)  # far from the middle of its zone
    assert (images(og.explore(turned))[0][0][..., 3] == 0).any()


def test_nothing_is_loaded_but_scripts_and_styles(dem: xr.DataArray) -> None:
    text = page(og.explore(dem, tiles=None))
    assert "tileLayer" not in text
    assert "fitBounds" in text
    assert "tileLayer" in page(og.explore(dem))


def test_values_have_a_colour_bar_with_units_and_classes_a_legend(dem: xr.DataArray) -> None:
    assert "time [s]" in page(og.explore(og.walking_time(dem, START)))
    directions = og.explore(og.flow_direction(dem))
    assert "south-east" in page(directions)
    depths = page(og.explore(og.fill_depressions(dem, outputs="depth")))
    domain = json.loads(re.findall(r"\.domain\((\[.*?\])\)", depths)[0])
    assert domain[0] == 0
    few = og.connected_components(dem > 0)["labels"]
    assert f"> {int(few.max())}</div>" in page(og.explore(few))
    assert "colours repeat" in page(og.explore(og.connected_components(dem, connectivity=4)))
    one = dem.copy(data=np.ones(dem.shape))
    assert images(og.explore(one))[0][0][..., 3].max() == 1


def test_the_hillshade_is_a_second_picture(dem: xr.DataArray) -> None:
    plain = images(og.explore(dem))
    result, relief = images(og.explore(dem, basemap=dem))
    np.testing.assert_array_equal(result[0], plain[0][0])
    assert 0 < relief[0][..., 3].mean() < 0.7


def test_layers_and_paths_are_shapes_with_their_columns(dem: xr.DataArray) -> None:
    result = og.cost_distance(dem + 1, START, outputs=("cost", "back_direction"))
    paths = og.least_cost_path(result, [(502_900, 4_998_100)])
    m = og.explore(result)
    assert og.explore(paths, map=m) is m
    point, line = shapes(m)
    expected = geopandas.GeoSeries([Point(*START[0])], crs=32633).to_crs(4326)[0]
    np.testing.assert_allclose(point["geometry"]["coordinates"], expected.coords[0], atol=1e-9)
    moved = geopandas.GeoSeries([LineString(paths[0].coordinates)], crs=32633).to_crs(4326)[0]
    np.testing.assert_allclose(line["geometry"]["coordinates"], moved.coords, atol=1e-9)
    assert set(line["properties"]) == set(paths.layer.columns)
    lines = og.explore(paths[0], tiles=None)
    assert len(shapes(lines)) == 1
    edges = shapes(og.explore(og.minimum_spanning_forest(dem)))
    assert sum(len(part["geometry"]["coordinates"]) - 1 for part in edges) >= 599


def test_areas_have_the_colours_of_the_legend(dem: xr.DataArray) -> None:
    bands = og.isochrones(og.walking_time(dem, START), [600, 1200])
    m = og.explore(bands)
    assert len(shapes(m)) == 2
    for feature, name in zip(shapes(m), ("0 to 600 s", "600 to 1200 s"), strict=True):
        assert f"{feature['style']['fillColor']}'></span> {name}</div>" in page(m)


def test_tables_are_points_and_paths(dem: xr.DataArray) -> None:
    peaks = og.peaks(dem)
    found = shapes(og.explore(peaks))
    cols = int(np.isfinite(peaks["col_x"]).sum())
    assert len(found) == peaks.sizes["peak"] + cols
    passes = og.pass_elevation(dem, [*START, (502_500, 4_998_500)], paths=True)
    kinds = [shape["geometry"]["type"] for shape in shapes(og.explore(passes))]
    assert kinds.count("LineString") == int((passes["path_cells"] > 1).sum()) > 0


def test_the_poles_are_cut_off() -> None:
    axes = {"y": np.linspace(89.5, -89.5, 180), "x": np.linspace(-179.5, 179.5, 360)}
    world = xr.DataArray(np.ones((180, 360)), axes, ("y", "x"), "w").rio.write_crs(4326)
    ((_, corners),) = images(og.explore(world))
    np.testing.assert_allclose(corners, [(-85.0511, -180), (85.0511, 180)], atol=1e-3)


SCRIPT = "<img src=x onerror=alert(1)></script>`${alert(2)} \\` {{ 6 * 7 }} {% raw %} ' \" &amp;"


def named(dem: xr.DataArray, **attrs: object) -> xr.DataArray:
    return dem.assign_attrs(long_name=SCRIPT, units=SCRIPT, **attrs).rename(SCRIPT)


PAGES: dict[str, Any] = {
    "values of a layer": lambda dem: geopandas.GeoDataFrame(
        {"name": [SCRIPT, None]}, geometry=[Point(7.1, 45.9), Point(7.2, 45.8)], crs=4326
    ),
    "columns of a layer": lambda dem: geopandas.GeoDataFrame(
        {SCRIPT: [1]}, geometry=[Point(7.1, 45.9).buffer(1)], crs=4326
    ),
    "names of a raster": named,
    "names of classes": lambda dem: named(
        dem.astype("uint8"), flag_values=[0, 1, 2], flag_meanings=SCRIPT.replace(" ", "_") + " b c"
    ),
    "names of regions": lambda dem: named(og.connected_components(dem > 0)["labels"]),
    "names of a forest": lambda dem: og.minimum_spanning_forest(dem).assign_attrs(
        title=SCRIPT, long_name=SCRIPT
    ),
    "labels of areas": lambda dem: og.VectorLayer(
        np.array([Point(7.1, 45.9)]), {"band": np.array([SCRIPT])}, "EPSG:4326"
    ),
}


@pytest.mark.parametrize("what", PAGES)
def test_text_is_not_markup_or_code_of_the_page(dem: xr.DataArray, what: str) -> None:
    text = page(og.explore(PAGES[what](dem), sources=START, tiles=None))
    # a caption is set as the text of a node; folium writes all else into HTML
    text = re.sub(r"\.text\(.*?\);\n", "", text)
    text = re.sub(r"\\u00([0-9a-f]{2})", lambda code: chr(int(code[1], 16)), text)
    assert "alert" in text or "forest" in what
    for part in ("<img src", "</script>`", "`$", "${alert", "\\\\`", "{{", "{%"):
        assert part not in text
    assert "onerror=alert(1)></" not in text


def test_what_has_no_place_on_a_map_is_refused(dem: xr.DataArray) -> None:
    with pytest.raises(og.InputError, match=r"result: it has no CRS, so it has no place on a map"):
        og.explore(np.ones((3, 4)))
    with pytest.raises(og.InputError, match=r"map: .*; it must be a folium.Map"):
        og.explore(dem, map=folium.FeatureGroup())


def test_an_accessor(dem: xr.DataArray) -> None:
    assert isinstance(og.walking_time(dem, START).orograph.explore(), folium.Map)
    assert isinstance(dem.orograph.explore(), folium.Map)


def test_no_shape_of_a_globe_leads_across_the_map() -> None:
    cells = np.random.default_rng(1).random((20, 60)) + 1
    x, y = -177 + 6.0 * np.arange(60), 57 - 6.0 * np.arange(20)
    degrees = xr.DataArray(cells, {"y": y, "x": x}, ("y", "x"), "h").rio.write_crs(4326)
    # the extent of EASE-Grid 2.0, which ends a little beyond 180 degrees
    metres = degrees.assign_coords(x=x * 17367530.45 / 180, y=y * 1e5).rio.write_crs(6933)
    for globe in (degrees, metres):
        ends = [(float(globe.x[n]), float(globe.y[8])) for n in (1, 57)]
        both = ("cost", "back_direction")
        cost = og.cost_distance(globe, ends[:1], outputs=both, wrap=True)
        for result in (
            og.least_cost_path(cost, ends[1:]),
            og.pass_elevation(globe, ends[:1], ends[1:], paths=True, wrap=True),
            og.isochrones(cost["cost"], [2e6], polygons=False),
            og.region_network(globe, ends, wrap=True),
        ):
            found = [f["geometry"] for f in shapes(og.explore(result))]
            lines = [g for g in found if "Line" in g["type"]]
            assert lines
            parts = shapely.get_parts([shapely.from_geojson(json.dumps(line)) for line in lines])
            assert len(parts) > 1
            for part in parts:
                step = np.abs(np.diff(shapely.get_coordinates(part)[:, 0]))
                assert step.max() <= 6 + 1e-6


@pytest.mark.parametrize("columns", [360, 20])
def test_a_raster_with_longitudes_beyond_180_degrees_is_a_whole_picture(columns: int) -> None:
    x = (0.5 if columns == 360 else 170.5) + np.arange(columns)
    cells = np.tile(x, (20, 1))
    raster = xr.DataArray(cells, {"y": 9.5 - np.arange(20), "x": x}, ("y", "x"), "w")
    (image,) = images(og.explore(raster.rio.write_crs(4326), tiles=None))
    corners = [(-10, x[0] - 0.5), (10, x[-1] + 0.5)]
    np.testing.assert_allclose(image[1], corners, atol=1e-6)
    colours = matplotlib.colormaps["viridis"]((x - x[0]) / (columns - 1))
    for longitude, colour in list(zip(x.tolist(), colours, strict=True))[:: columns // 10]:
        np.testing.assert_allclose(pixel(image, longitude, 0.5)[:3], colour[:3], atol=0.02)


def test_a_raster_in_metres_over_the_180th_meridian_is_one_narrow_picture() -> None:
    x, y = 100_500 + 1000.0 * np.arange(140), 59_500 - 1000.0 * np.arange(60)
    cells = np.tile(x, (60, 1))
    raster = xr.DataArray(cells, {"y": y, "x": x}, ("y", "x"), "w").rio.write_crs(32601)
    ends = [(float(x[5]), float(y[30])), (float(x[-5]), float(y[30]))]
    cost = og.cost_distance(raster, ends[:1], outputs=("cost", "back_direction"))
    page_of_cost = og.explore(cost, sources=ends[:1], tiles=None)
    (image,) = images(page_of_cost)
    (south, west), (north, east) = image[1]
    assert west == pytest.approx(179.41, abs=0.02)
    assert east == pytest.approx(180.67, abs=0.02)
    assert (south, north) == pytest.approx((0, 0.54), abs=0.02)
    assert pixel(image, 180.5, 0.25)[3] > 0
    (source,) = shapes(page_of_cost)
    assert west < source["geometry"]["coordinates"][0] < 180
    # what lies beyond the meridian is drawn there
    (source,) = shapes(og.explore(cost, sources=ends[1:], tiles=None))
    assert 180 < source["geometry"]["coordinates"][0] < east
    line = shapely.LineString(ends)
    (way,) = shapes(og.explore(cost, sources=geopandas.GeoSeries([line], crs=32601), tiles=None))
    bounds = shapely.from_geojson(json.dumps(way["geometry"])).bounds
    assert west < bounds[0] < bounds[2] < east
