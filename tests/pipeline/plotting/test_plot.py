"""Every kind of result can be drawn, with title, units, legend and scale bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import geopandas
import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from shapely import Point, box

import orograph as og

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed: orograph[plot]")
matplotlib.use("agg")


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
        "cost [s]",
    ),
    "hops": (
        lambda dem: og.hop_distance(dem, START, snap=True),
        "steps from the nearest source, -1 where there is no way",
        "hops",
    ),
    "components": (
        lambda dem: og.connected_components(dem, connectivity=4),
        "connected components, numbered by their first cell in row-major order",
        " in all",
    ),
    "directions": (
        lambda dem: og.cost_distance(dem, START, outputs=("cost", "back_direction"))[
            "back_direction"
        ],
        "direction of the step back towards the source, Esri codes",
        "south-east",
    ),
    "a filling": (
        lambda dem: og.fill_depressions(dem, outputs=("depth", "filled", "depression")),
        "elevation without depressions",
        "filled",
    ),
    "numbered depressions": (
        lambda dem: og.fill_depressions(dem, outputs="depression"),
        "row-major index of the depression's lowest cell",
        " in all",
    ),
    "a flood": (
        lambda dem: og.flood_level(dem, START),
        "level at which water from the sources",
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
        "row-major index of the lowest cell",
        " in all",
    ),
    "forest": (og.minimum_spanning_forest, "edges of the minimum spanning forest from this", ""),
}


def texts(axes: Any) -> list[str]:
    found = axes.figure.findobj(matplotlib.text.Text)
    return [text.get_text() for text in found]


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_of(kind: str, dem: xr.DataArray) -> None:
    make, title, legend = KINDS[kind]
    axes = og.plot(make(dem))
    assert axes.get_title().startswith(title)
    assert axes.get_xlabel() == "x [m]"
    assert any(legend in text for text in texts(axes))
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


def bars(axes: Any) -> list[str]:
    """Return the texts of the scale bars that lie within the picture."""
    axes.figure.canvas.draw()
    frame = axes.get_window_extent()
    found = [a for a in axes.artists if type(a).__name__ == "AnchoredSizeBar"]
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


def test_rasters_of_another_crs_are_refused(dem: xr.DataArray, axes: Any) -> None:
    og.plot(dem, ax=axes)
    with pytest.raises(og.InputError, match="its CRS is WGS 84 / UTM zone 32N, but that of the ax"):
        og.plot(dem.rio.write_crs("EPSG:32632"), ax=axes)
    with pytest.raises(og.InputError, match="its CRS is unknown, but that of the axes is WGS 84"):
        og.plot(np.ones((3, 4)), ax=axes)
    axes.clear()  # nothing is left of it
    og.plot(dem.rio.write_crs("EPSG:32632"), ax=axes)
    assert bars(axes) == ["500 m"]


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
    cost = og.walking_time(source, START, out=place)["cost"]
    same = [cost, cost.isel(x=slice(20)), cost.compute(), cost.to_dataset()]
    for array in same if out != "cost.zarr" else [*same, place]:
        assert "cost [s]" in texts(og.plot(array))
    hours = cost / 3600
    assert "cost" in texts(og.plot(hours))
    assert "cost [s]" not in texts(og.plot(hours))
    assert "cost [h]" in texts(og.plot(hours.assign_attrs(units="h")))
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
        run: ("status", "finished", "<progress", "tile_visits"),
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
