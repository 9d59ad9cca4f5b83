"""Every kind of result can be drawn, with title, units, legend and scale bar."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import geopandas
import numpy as np
import pyproj
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from shapely import LineString, Point, box

import orograph as og

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed: orograph[plot]")
matplotlib.use("agg")
pytest.importorskip("matplotlib.pyplot")


@pytest.fixture
def dem() -> xr.DataArray:
    cells = np.random.default_rng(4).integers(0, 3, (20, 30)).astype(float)
    axes = {"y": 5_000_000 - 100.0 * np.arange(20), "x": 500_000 + 100.0 * np.arange(30)}
    return xr.DataArray(cells, axes, ("y", "x"), "dem").rio.write_crs("EPSG:32633")


START = [(500_000, 5_000_000)]
KINDS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "time": (
        lambda dem: og.walking_time(dem, START),
        "time from the nearest source",
        "time [s]",
    ),
    "hops": (
        lambda dem: og.hop_distance(dem, START, snap=True),
        "steps from the nearest source",
        "hops",
    ),
    "components": (
        lambda dem: og.connected_components(dem, connectivity=4),
        "connected component",
        "colours repeat",
    ),
    "an allocation": (
        lambda dem: (
            og.walking_time(dem, [*START, (502_500, 4_998_500)], outputs=("allocation",)).allocation
        ),
        "nearest source",
        "1",
    ),
    "flow": (og.flow_direction, "flow direction (taudem codes)", "south-east"),
    "angles of flow": (
        lambda dem: og.flow_direction(dem, method="dinf"),
        "flow angle from east",
        "direction [radian]",
    ),
    "accumulation": (
        lambda dem: og.flow_accumulation(og.flow_direction(dem)),
        "flow accumulation",
        "accumulation [cells]",
    ),
    "watersheds": (
        lambda dem: og.watersheds(og.flow_direction(dem)),
        "label of the watershed",
        "in all",
    ),
    "isochrones": (
        lambda dem: og.isochrones(og.walking_time(dem, START), [600, 30000]),
        "",
        "600 to 30000",
    ),
    "areas of labels": (
        lambda dem: og.polygonize(dem.astype(int)),
        "",
        "2",
    ),
    "directions": (
        lambda dem: og.cost_distance(dem, START, outputs=("cost", "back_direction"))[
            "back_direction"
        ],
        "back direction (Esri codes)",
        "south-east",
    ),
    "a filling": (
        lambda dem: og.fill_depressions(dem, outputs=("depth", "filled", "depression")),
        "elevation without depressions",
        "filled",
    ),
    "numbered depressions": (
        lambda dem: og.fill_depressions(dem, outputs="depression"),
        "depression, by its lowest cell",
        " in all",
    ),
    "a flood": (
        lambda dem: og.flood_level(dem, START),
        "flood level of the cell",
        "level",
    ),
    "peaks": (lambda dem: og.peaks(dem), "peaks and their key cols", "key col"),
    "passes": (
        lambda dem: og.pass_elevation(dem, [*START, (502_500, 4_998_500)], paths=True),
        "passes between points",
        "pass",
    ),
    "depressions": (lambda dem: og.depressions(dem), "depressions and where they", "spill"),
    "labels of depressions": (
        lambda dem: og.depressions(dem, labels=True),
        "smallest depression, by pit",
        " in all",
    ),
    "forest": (og.minimum_spanning_forest, "edges of the spanning forest", ""),
}


def test_points_that_are_their_own_targets_are_marked_once() -> None:
    axes = og.plot(og.pass_elevation(np.array([[0.0, 5, 0]]), [(0, 0), (2, 0)]))
    drawn = {str(line.get_label()): line.get_xydata() for line in axes.lines}
    assert drawn.keys() == {"point", "pass"}
    assert np.unique(drawn["point"], axis=0).tolist() == [[0, 0], [2, 0]]
    assert np.unique(drawn["pass"], axis=0).tolist() == [[1, 0]]


def texts(axes: Any) -> list[str]:
    found = axes.figure.findobj(matplotlib.text.Text)
    return [text.get_text() for text in found]


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_of(kind: str, dem: xr.DataArray) -> None:
    make, title, legend = KINDS[kind]
    axes = og.plot(make(dem))
    assert axes.get_title().startswith(title)
    assert axes.get_xlabel() == "x [m]"
    assert any(legend in text.replace("\n", " ") for text in texts(axes))
    assert "500 m" in texts(axes)
    assert not any("spatial_ref" in text for text in texts(axes))
    axes.figure.canvas.draw()
    matplotlib.pyplot.close(axes.figure)


def test_a_stored_table(dem: xr.DataArray, tmp_path: Path) -> None:
    expected = og.peaks(dem)
    og.peaks(dem, out=tmp_path / "peaks.zarr")
    (marks, cols) = og.plot(tmp_path / "peaks.zarr", ax=og.plot(dem)).lines[-2:]
    np.testing.assert_array_equal(marks.get_xydata(), np.stack([expected["x"], expected["y"]], 1))
    np.testing.assert_array_equal(cols.get_xdata(), expected["col_x"])


def test_paths_over_costs(dem: xr.DataArray) -> None:
    result = og.cost_distance(dem + 1, START, outputs=("cost", "back_direction"))
    axes = result.orograph.plot()
    before = len(axes.collections)
    paths = og.least_cost_path(result, [(502_900, 4_998_100)])
    assert og.plot(paths, ax=axes) is axes
    assert og.plot(paths[0], ax=axes) is axes
    assert len(axes.collections) == before + 2
    drawn = axes.collections[-1].get_segments()[0]
    assert np.array_equal(drawn, paths[0].coordinates)
    area = [Point(500_100, 4_999_000), box(500_000, 4_999_000, 500_500, 4_999_500)]
    layer = og.plot(area).collections[-1]
    assert not np.array_equal(layer.get_edgecolor(), axes.collections[-1].get_edgecolor())
    matplotlib.pyplot.close("all")


@pytest.fixture
def axes() -> Iterator[Any]:
    """Axes of the caller, as of a figure with several pictures."""
    yield matplotlib.pyplot.subplots(1, 2, layout="constrained")[1][0]
    matplotlib.pyplot.close("all")


def scale_bars(axes: Any) -> list[Any]:
    return [a for a in axes.artists if type(a).__name__ == "AnchoredSizeBar"]


def bars(axes: Any) -> list[str]:
    """Return the texts of the scale bars that lie within the picture."""
    axes.figure.canvas.draw()
    frame = axes.get_window_extent()
    found = scale_bars(axes)
    assert all(frame.contains(*a.get_window_extent().get_points().mean(0)) for a in found)
    return [a.txt_label.get_text() for a in found]


def test_given_axes_have_names_and_a_scale_bar_too(dem: xr.DataArray, axes: Any) -> None:
    assert og.plot(dem, ax=axes) is axes
    assert axes.get_xlabel() == "x [m]"
    assert axes.get_aspect() == 1
    assert bars(axes) == ["500 m"]
    og.plot(box(500_000, 4_999_000, 500_500, 4_999_500), ax=axes)
    assert bars(axes) == ["500 m"]
    og.plot(np.ones((20, 30)), ax=axes.figure.axes[1])
    assert bars(axes.figure.axes[1]) == ["5 cells"]
    assert axes.figure.axes[1].get_xlabel() == "x"


def test_layers_come_into_the_crs_of_the_axes(dem: xr.DataArray, axes: Any) -> None:
    points = [Point(500_100, 4_999_000), Point(502_900, 4_998_500)]
    huts = geopandas.GeoSeries(points, crs=32633).to_crs(4326)
    og.plot(dem, ax=axes)
    limits = axes.get_xlim(), axes.get_ylim()
    og.plot(huts, ax=axes)
    drawn = axes.lines[-1].get_xydata()
    np.testing.assert_allclose(drawn, [(p.x, p.y) for p in points], rtol=0, atol=1e-3)
    assert (axes.get_xlim(), axes.get_ylim()) == limits
    assert bars(axes) == ["500 m"]


def test_tables_come_into_the_crs_of_the_axes(dem: xr.DataArray, axes: Any) -> None:
    peaks = og.peaks(dem)
    frame = geopandas.GeoSeries(geopandas.points_from_xy(peaks.x, peaks.y), crs=32633)
    around = geopandas.GeoSeries([frame.union_all().envelope], crs=32633).to_crs(4326)
    og.plot(around, ax=axes)
    assert axes.get_xlabel() == "longitude [°]"
    og.plot(peaks, ax=axes)
    tops = next(line for line in axes.lines if line.get_label() == "peak").get_xydata()
    np.testing.assert_allclose(tops, frame.to_crs(4326).get_coordinates(), rtol=0, atol=1e-9)
    cols = next(line for line in axes.lines if line.get_label() == "key col").get_xydata()
    np.testing.assert_array_equal(np.isnan(cols[:, 0]), np.isnan(peaks["col_x"]))


def test_a_raster_with_a_crs_does_not_go_over_one_without(dem: xr.DataArray, axes: Any) -> None:
    og.plot(dem, ax=axes)
    with pytest.raises(og.InputError, match=r"its CRS is unknown, but that of the axes is WGS 84"):
        og.plot(np.ones((3, 4)), ax=axes)
    with pytest.raises(og.InputError, match=r"basemap: its CRS is unknown, but that of the axes"):
        og.plot(dem, basemap=np.ones((3, 4)))
    axes.clear()  # nothing is left of it
    og.plot(dem.rio.write_crs("EPSG:32632"), ax=axes)
    assert bars(axes) == ["500 m"]
    matplotlib.pyplot.close("all")


def test_rasters_come_into_the_crs_of_the_axes(dem: xr.DataArray, axes: Any) -> None:
    degrees = dem.rio.reproject(4326, nodata=np.nan)
    og.plot(degrees, ax=axes)
    limits = axes.get_xlim(), axes.get_ylim()
    og.plot(dem, ax=axes)
    assert (axes.get_xlim(), axes.get_ylim()) == limits
    assert axes.get_xlabel() == "longitude [°]"
    left, right, bottom, top = axes.images[-1].get_extent()
    corners = geopandas.GeoSeries([box(*dem.rio.bounds())], crs=32633).to_crs(4326).total_bounds
    np.testing.assert_allclose((left, bottom, right, top), corners, rtol=0, atol=1e-4)


def test_layers_come_into_the_crs_of_the_axes_as_they_are_drawn(dem: xr.DataArray) -> None:
    degrees = geopandas.GeoSeries([Point(500_100, 4_999_000)], crs=32633).to_crs(4326)
    axes = og.plot(dem, sources=degrees)
    marked = next(line for line in axes.lines if line.get_label() == "source")
    np.testing.assert_allclose(marked.get_xydata(), [(500_100, 4_999_000)], rtol=0, atol=1e-3)
    bare = og.plot(dem, sources=[(500_100, 4_999_000)]).lines[-1].get_xydata()
    np.testing.assert_array_equal(bare, [(500_100, 4_999_000)])
    area = og.plot(dem, sources=geopandas.GeoSeries([box(*dem.rio.bounds())], crs=32633))
    assert "source" in texts(area)
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize(
    ("outputs", "variable", "found"),
    [
        (("time", "back_direction"), "time", 2),
        (("time", "back_direction"), "back_direction", 2),
        (("allocation", "back_direction"), "allocation", 2),
        (("time",), "time", 2),
        (("allocation",), "allocation", 0),
    ],
)
def test_sources_are_marked(
    dem: xr.DataArray, outputs: tuple[str, ...], variable: str, found: int
) -> None:
    points = [START[0], (502_500, 4_998_500)]
    result = og.walking_time(dem, points, outputs=outputs)
    lines = og.plot(result, variable=variable).lines
    assert [line.get_xydata().tolist() for line in lines] == [[list(p) for p in points]][:found]
    matplotlib.pyplot.close("all")


def test_cells_that_cost_nothing_are_not_sources(dem: xr.DataArray) -> None:
    """They cost as much as the source beside them, which only the direction back tells apart."""
    free = dem.copy(data=np.zeros(dem.shape))
    result = og.cost_distance(free, START, outputs=("cost", "back_direction"))
    assert [line.get_xydata().tolist() for line in og.plot(result).lines] == [[list(START[0])]]
    assert not og.plot(result["cost"]).lines
    hops = og.plot(og.hop_distance(free + 1, START))
    assert [line.get_xydata().tolist() for line in hops.lines] == [[list(START[0])]]
    matplotlib.pyplot.close("all")


def test_relief_darkens_slopes_away_from_the_light(dem: xr.DataArray) -> None:
    rows, columns = np.indices(dem.shape)
    hill = dem.copy(data=-np.hypot(rows - 10.0, columns - 15.0))
    plain = og.plot(dem).images[0].get_array()
    axes = og.plot(dem, basemap=hill)
    ground, result = sorted(axes.images, key=lambda image: -image.get_zorder())
    shades = ground.get_array()
    assert shades[5, 10, 3] > 0.1  # towards the north-west
    assert shades[5, 10, 0] == 1
    assert shades[15, 20, 3] > 0.1
    assert shades[15, 20, 0] == 0
    np.testing.assert_array_equal(result.get_array(), plain)
    level = og.plot(dem, basemap=dem.copy(data=np.ones(dem.shape)))
    assert max(image.get_zorder() for image in level.images) == ground.get_zorder()
    assert level.images[0].get_array()[..., 3].max() < 1e-12
    over = og.plot(og.peaks(hill), basemap=hill.rio.reproject(4326, nodata=np.nan))
    assert over.get_xlabel() == "x [m]"
    matplotlib.pyplot.close("all")


def test_nothing_hides_a_legend(dem: xr.DataArray, axes: Any) -> None:
    """Colour bar, classes and marks each have their place around the picture."""
    og.plot(og.connected_components(dem > 0)["labels"], ax=axes)
    og.plot(dem, ax=axes)
    og.plot(og.peaks(dem), ax=axes)
    og.plot(og.least_cost_path(
        og.cost_distance(dem + 1, START, outputs=("cost", "back_direction")), [(502_500, 4_998_500)]
    ), ax=axes)  # fmt: skip
    figure = axes.figure
    figure.set_size_inches(10, 5)
    figure.canvas.draw()
    legends = list(axes.findobj(matplotlib.legend.Legend))
    boxes = [legend.get_window_extent() for legend in legends]
    boxes += [axes.get_window_extent(), axes.xaxis.label.get_window_extent()]
    assert len(legends) == 2
    names = {text.get_text() for legend in legends for text in legend.get_texts()}
    assert {"peak", "key col", "path"} <= names
    for number, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[number + 1 :])
        assert figure.bbox.contains(*one.min)
        assert figure.bbox.contains(*one.max)
    (bar,) = (found.get_tightbbox() for found in axes.child_axes)
    assert not any(bar.overlaps(one) for one in boxes)


def test_a_metre_is_as_long_to_the_east_as_to_the_north() -> None:
    axes = {"y": 60 - 0.01 * np.arange(20), "x": 7 + 0.01 * np.arange(30)}
    dem = xr.DataArray(np.ones((20, 30)), axes, ("y", "x"), "dem").rio.write_crs("EPSG:4326")
    assert og.plot(dem).get_aspect() == pytest.approx(2, rel=0.01)  # 1 / cos 60 degrees
    matplotlib.pyplot.close("all")


def test_small_depths_differ_visibly_from_none() -> None:
    surface = np.full((9, 9), 100.0)
    surface[4, 2], surface[4, 6] = 0.0, 99.0
    axes = og.plot(og.fill_depressions(surface, outputs="depth"))
    shades = axes.images[0].to_rgba(axes.images[0].get_array())
    assert shades[0, 0, 3] == 0
    assert shades[4, 6, 3] == 1
    at_root = matplotlib.colormaps["viridis_r"](0.1)  # a hundredth of the greatest depth
    np.testing.assert_allclose(shades[4, 6], at_root, atol=0.02)
    matplotlib.pyplot.close("all")


def test_lines_have_a_halo(dem: xr.DataArray) -> None:
    result = og.cost_distance(dem + 1, START, outputs=("cost", "back_direction"))
    axes = og.plot(result["back_direction"])
    og.plot(og.least_cost_path(result, [(502_900, 4_998_100)]), ax=axes)
    axes.figure.canvas.draw()
    image = np.asarray(axes.figure.canvas.buffer_rgba())[..., :3].astype(float) / 255
    line = np.abs(image - matplotlib.colors.to_rgb("#d1495b")).max(axis=-1) < 0.02
    left, low, right, high = axes.get_window_extent().extents.astype(int)
    inside = np.zeros(line.shape, bool)
    inside[line.shape[0] - high : line.shape[0] - low, left:right] = True
    rows, columns = np.nonzero(line & inside)
    near = np.stack([image[rows + y, columns + x].min(axis=-1) for y in range(-4, 5)
                     for x in range(-4, 5)])  # fmt: skip
    assert rows.size > 100
    assert np.mean(near.max(axis=0) > 0.75) > 0.95  # light beside nearly all of it
    matplotlib.pyplot.close("all")


def test_over_a_picture_of_others(dem: xr.DataArray, axes: Any) -> None:
    dem.plot(ax=axes, add_colorbar=False)
    named = axes.get_xlabel()
    og.plot(og.peaks(dem), ax=axes)
    assert axes.get_xlabel() == named
    assert bars(axes) == ["500 m"]


@pytest.mark.parametrize(
    ("stored", "out"), [(False, None), (True, None), (False, "cost.zarr"), (False, "cost.tif")]
)
def test_units_are_those_of_the_result_alone(
    stored: bool, out: str | None, dem: xr.DataArray, tmp_path: Path
) -> None:
    place = None if out is None else tmp_path / out
    og.ingest(dem, tmp_path / "dem.zarr")
    source = tmp_path / "dem.zarr" if stored else dem
    cost = og.walking_time(source, START, out=place)["time"]
    same = [cost, cost.isel(x=slice(20)), cost.compute(), cost.to_dataset()]
    for array in same if out != "cost.zarr" else [*same, place]:
        assert "time [s]" in texts(og.plot(array))
    half = cost / 2
    assert "time" in texts(og.plot(half))
    assert "time [s]" not in texts(og.plot(half))
    assert "time [h]" in texts(og.plot(og.convert_units(cost, "hours")))
    for wrong in (cost / 3600, cost / 60, og.convert_units(cost, "h") / 60):
        with pytest.raises(og.InputError, match=r"result: its units are .*og\.convert_units"):
            og.plot(wrong)
    assert "dem [m]" in texts(og.plot((dem + 1).rename("dem").assign_attrs(units="m")))
    matplotlib.pyplot.close("all")


def test_degrees_have_a_bar_in_kilometres() -> None:
    axes = {"y": 45 - 0.01 * np.arange(20), "x": 7 + 0.01 * np.arange(30)}
    dem = xr.DataArray(np.ones((20, 30)), axes, ("y", "x"), "dem").rio.write_crs("EPSG:4326")
    drawn = og.plot(dem)
    assert "5 km" in texts(drawn)  # a quarter of 0.3 degrees is 5.9 km here
    assert drawn.get_ylabel() == "latitude [°]"
    assert "5 cells" in texts(og.plot(np.ones((20, 30))))
    matplotlib.pyplot.close("all")


def test_what_cannot_be_drawn_is_refused(dem: xr.DataArray) -> None:
    both = xr.Dataset({"one": dem, "two": dem})
    with pytest.raises(og.InputError, match="variable: the result has one, two; name one of them"):
        og.plot(both)
    assert og.plot(both, variable="two").get_title() == "two"
    matplotlib.pyplot.close("all")


def test_notebooks_show_tables(dem: xr.DataArray, tmp_path: Any) -> None:
    run = og.cost_distance.submit(dem + 1, START, outputs=("cost", "back_direction"))
    (path,) = og.least_cost_path(run.result(), [(502_900, 4_998_100)])
    index = og.DistanceIndex.build(dem + 1, tmp_path / "i.zarr", block=8, levels=0)
    index.distance_matrix(START)
    says = {
        run: ("status", "finished", "<progress", "tile visits"),
        og.cost_distance.plan(og.RasterSpec((400, 300))): (
            "cost_distance of 400 x 300 cells",
            "memory",
            "task",
        ),
        index: ("20 x 30", "bytes", "last question"),
        path: (f"{path.cost:g}", "UTM zone 33N", "<polyline", "502900, 4998100"),
    }
    for thing, words in says.items():
        shown = thing._repr_html_()
        ElementTree.fromstring(shown.replace("<br>", ""))  # well formed
        assert all(word in shown for word in words), shown


@pytest.mark.parametrize("rows", [20, 6])
@pytest.mark.parametrize("basemap", [True, False], ids=["basemap", "alone"])
def test_a_wide_legend_lies_within_the_figure(dem: xr.DataArray, rows: int, basemap: bool) -> None:
    """Also next to a map that takes the whole width."""
    dem = dem[:rows, :20]
    bands = og.isochrones(og.walking_time(dem, START), [500, 1000, 40_000])
    figure = og.plot(bands, basemap=dem if basemap else None).figure
    figure.canvas.draw()
    (legend,) = figure.findobj(matplotlib.legend.Legend)
    assert figure.bbox.contains(*legend.get_window_extent().max)
    matplotlib.pyplot.close("all")


def test_legends_have_the_names_of_sources_and_the_unit_of_bands(dem: xr.DataArray) -> None:
    points = geopandas.GeoDataFrame(
        {"village": ["Elm", "Oak"]},
        geometry=[Point(500_000, 5_000_000), Point(502_500, 4_998_500)],
        crs=dem.rio.crs,
    )
    walk = og.walking_time(dem, points, label="village", outputs=("time", "allocation"))
    bands = og.isochrones(walk["time"], [0.1, 0.5], unit="h")
    areas = og.polygonize(walk["allocation"])
    for drawn, expected in (
        (walk["allocation"], ["Elm", "Oak"]),
        (areas, ["Elm", "Oak"]),
        (bands, ["0 to 0.1 h", "0.1 to 0.5 h"]),
    ):
        figure = og.plot(drawn).figure
        (legend,) = figure.findobj(matplotlib.legend.Legend)
        assert [text.get_text() for text in legend.get_texts()] == expected
        matplotlib.pyplot.close("all")


@pytest.mark.parametrize("crs", [3857, 32633, 2263, 3035])
def test_a_scale_bar_is_as_long_as_on_the_ground(crs: int) -> None:
    """Also in Web Mercator, where a unit of the axes is less than a metre."""
    centre = pyproj.Transformer.from_crs(4326, crs, always_xy=True)
    x, y = centre.transform(*((-73.9, 40.7) if crs == 2263 else (14, 55)))
    axes = {"y": y + 100 * np.arange(10.0, -11, -1), "x": x + 100 * np.arange(-20.0, 21)}
    drawn = og.plot(xr.DataArray(np.zeros((21, 41)), axes, ("y", "x")).rio.write_crs(crs))
    (bar,) = scale_bars(drawn)
    number, unit = bar.txt_label.get_text().split()
    width = bar.size_bar.get_children()[0].get_width()
    degrees = pyproj.Transformer.from_crs(crs, 4326, always_xy=True)
    ends = degrees.transform([x - width / 2, x + width / 2], [y, y])
    length = pyproj.Geod(ellps="WGS84").line_length(*ends)
    assert length == pytest.approx(float(number) * {"m": 1, "km": 1000}[unit], rel=1e-3)
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize("column", [0, -1], ids=["left", "right"])
def test_a_scale_bar_hides_no_sources(dem: xr.DataArray, column: int) -> None:
    corner = [(float(dem.x[column]), float(dem.y[-2]))]
    axes = og.plot(og.walking_time(dem, corner), sources=corner)
    axes.figure.canvas.draw()
    (bar,) = scale_bars(axes)
    assert not bar.get_window_extent().contains(*axes.transData.transform(corner[0]))
    matplotlib.pyplot.close("all")


def test_a_local_crs_has_the_scale_bar_of_its_unit(dem: xr.DataArray) -> None:
    """It has no ellipsoid, and no place on one."""
    local = 'ENGCRS["site",EDATUM["site"],CS[Cartesian,2],AXIS["x",east],AXIS["y",north],'
    drawn = og.plot(dem.rio.write_crs(pyproj.CRS(local + 'LENGTHUNIT["metre",1]]')))
    assert bars(drawn) == ["500 m"]
    matplotlib.pyplot.close("all")


def test_a_figure_that_is_closed_is_not_kept() -> None:
    result = og.cost_distance(np.ones((6, 7)), [(0, 0)], outputs=("cost", "back_direction"))
    axes = og.plot(result)
    og.plot(og.least_cost_path(result, [(6, 5)]), ax=axes)
    assert len([a for a in axes.artists if type(a).__name__ == "AnchoredSizeBar"]) == 1
    figure = weakref.ref(axes.figure)
    matplotlib.pyplot.close(axes.figure)
    del axes
    gc.collect()
    assert figure() is None


def test_paths_of_a_table_are_cut_at_the_seam_of_a_globe() -> None:
    heights = np.random.default_rng(1).random((5, 40))
    table = og.pass_elevation(heights, [(1, 2)], [(38, 2)], paths=True, wrap=True)
    lines = [line.get_xdata() for line in og.plot(table).lines if line.get_linestyle() != "None"]
    assert len(lines) == 2
    assert all(np.abs(np.diff(line)).max() <= 1 for line in lines)


def test_colours_are_chosen(dem: xr.DataArray) -> None:
    walk = og.walking_time(dem, START)
    axes = og.plot(walk, unit="min", cmap="magma", vmin=1, vmax=5, title="Minutes")
    (image,) = axes.images
    assert (image.cmap.name, *image.get_clim(), axes.get_title()) == ("magma", 1, 5, "Minutes")
    np.testing.assert_allclose(image.get_array(), walk["time"].values / 60)
    assert "time [min]" in texts(axes)
    (image,) = og.plot(walk, vmax=1e-3).images  # all values but those of the sources lie beyond
    assert image.get_clim() == (0, 1e-3)
    accumulation = og.flow_accumulation(dem, method="d8")
    assert og.plot(accumulation, vmin=10).images[0].get_clim()[0] == 10
    with pytest.raises(og.InputError, match=r"vmin: 0; it must be above 0"):
        og.plot(accumulation, vmin=0)
    with pytest.raises(og.InputError, match=r"vmin: 5; it must be below vmax, 5"):
        og.plot(dem, vmin=5, vmax=5)
    with pytest.raises(og.InputError, match=r"unit: 'km', but result is in 's'"):
        og.plot(walk, unit="km")
    with pytest.raises(og.InputError, match=r"vmax: not for direction, whose values are classes"):
        og.plot(og.flow_direction(dem), vmax=5)
    with pytest.raises(og.InputError, match="cmap: not for tables"):
        og.plot(og.peaks(dem), cmap="magma")
    with pytest.raises(og.InputError, match="column: not for rasters"):
        og.plot(dem, column="order")
    matplotlib.pyplot.close("all")


def test_layers_are_coloured_by_a_column() -> None:
    shapes = [LineString([(0, 0), (9, 9)]), Point(2, 5), box(4, 0, 8, 3), Point(9, 0)]
    columns = {"order": [1, 2, 3, np.nan], "kind": ["a", "b", "a", "c"]}
    layer = geopandas.GeoDataFrame(columns, geometry=shapes, crs=32633)
    axes = og.plot(layer, column="order", cmap="magma", vmax=3, vmin=0)
    ink = matplotlib.colormaps["magma"]
    area, line, points = axes.collections
    np.testing.assert_allclose(line.get_edgecolor()[0], ink(1 / 3))
    np.testing.assert_allclose(area.get_facecolor()[0], ink(1.0))
    np.testing.assert_allclose(points.get_facecolor()[0], ink(2 / 3))
    np.testing.assert_allclose(points.get_facecolor()[1, :3], 0.6)  # without a value
    assert "order" in texts(axes)
    axes = og.plot(layer, column="kind")
    assert {"kind", "a", "b", "c"} <= set(texts(axes))
    whole = layer.assign(order=[1, 2, 3, 3])
    axes = og.plot(whole, column="order", cmap="magma")
    np.testing.assert_allclose(axes.collections[1].get_edgecolor()[0], ink(0.0))
    assert {"1", "2", "3"} <= set(texts(axes))
    assert len(axes.collections[2].get_facecolor()) == 2
    og.plot(whole, column="order", vmax=9).figure.canvas.draw()
    with pytest.raises(og.InputError, match=r"column: 'Order'; the layer has order, kind"):
        og.plot(layer, column="Order")
    with pytest.raises(og.InputError, match=r"vmin: not for kind, whose values are classes"):
        og.plot(layer, column="kind", vmin=0)
    with pytest.raises(og.InputError, match=r"cmap: not for layers without column="):
        og.plot(layer, cmap="magma")
    matplotlib.pyplot.close("all")
