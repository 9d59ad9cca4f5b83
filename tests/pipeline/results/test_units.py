"""Results in other units: what is stored stays, values and attributes follow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import shapely
import xarray as xr

import orograph as og


def heights() -> xr.DataArray:
    cells = np.random.default_rng(3).integers(0, 90, (15, 20)).astype(np.float64)
    axes = {"y": 100.0 * np.arange(15), "x": 100.0 * np.arange(20)}
    return xr.DataArray(cells, axes, ("y", "x"), "elevation", {"units": "m"})


@pytest.mark.parametrize(("unit", "seconds"), [("s", 1), ("min", 60), ("h", 3600)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_times_are_divided_once(unit: str, seconds: int, dtype: str, tmp_path: Path) -> None:
    out = tmp_path / "walk.zarr"
    walk = og.walking_time(heights(), [(0, 0)], max_cost=900, dtype=dtype, out=out)
    before = walk.load().copy(deep=True)
    expected = before["time"].values / np.dtype(dtype).type(seconds)
    for found in (
        og.convert_units(walk, unit),
        og.convert_units(out, unit).load(),
        walk.orograph.convert_units(unit),
    ):
        assert found["time"].dtype == dtype
        assert np.array_equal(found["time"], expected, equal_nan=True)
        assert found["time"].attrs["units"] == unit
        assert found["time"].attrs["long_name"] == before["time"].attrs["long_name"]
        assert found.attrs["max_cost"] == pytest.approx(900 / seconds)
    assert np.isnan(expected).any()
    assert walk.identical(before)
    assert og.open(out)["time"].attrs["units"] == "s"
    alone = og.convert_units(walk["time"], unit)
    assert np.array_equal(alone, expected, equal_nan=True)
    assert alone.name == "time"


def test_a_stored_result_stays_lazy(tmp_path: Path) -> None:
    og.walking_time(heights(), [(0, 0)], out=tmp_path / "walk.zarr")
    assert og.convert_units(tmp_path / "walk.zarr", "h")["time"].chunks is not None


def test_there_and_back_is_the_same_to_rounding() -> None:
    walk = og.walking_time(heights(), [(0, 0)])
    back = og.convert_units(og.convert_units(walk, "h"), "s")
    np.testing.assert_allclose(back["time"], walk["time"], rtol=4e-16)


def test_lengths_and_integers_are_converted() -> None:
    cells = xr.DataArray([[1500, -1]], dims=("y", "x"), attrs={"units": "metre", "_FillValue": -1})
    found = og.convert_units(cells, "km")
    assert found.values[0, 0] == 1.5
    assert np.isnan(found.values[0, 1])
    assert found.attrs["units"] == "km"


@pytest.mark.parametrize(
    ("name", "short"),
    [("hours", "h"), ("hour", "h"), ("minutes", "min"), ("seconds", "s"), ("h", "h")],
)
def test_units_have_other_spellings(name: str, short: str) -> None:
    walk = og.walking_time(heights(), [(0, 0)])
    xr.testing.assert_identical(og.convert_units(walk, name), og.convert_units(walk, short))
    minutes = walk["time"].assign_attrs(units="minutes")
    assert og.convert_units(minutes, "h").max() == walk["time"].max() / 60
    areas = [og.isochrones(walk, [0.1], unit=unit).geometry[0].area for unit in (name, short)]
    assert areas[0] == areas[1]


@pytest.mark.parametrize("unit", ["km2", "km²", "km^2"])
def test_areas_are_converted(unit: str) -> None:
    area = xr.DataArray([2.5e6, 4e4], dims="row", attrs={"units": "m2"})
    found = og.convert_units(area, unit)
    np.testing.assert_array_equal(found, [2.5, 0.04])
    assert found.attrs["units"] == "km2"
    np.testing.assert_array_equal(og.convert_units(found, "ha"), [250, 4])


GRIDS = {"metres": 32632, "feet": 2229, "degrees": 4326}


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("form", ["array", "lazy", "GeoTIFF", "store"])
def test_times_that_no_walk_has_are_refused(grid: str, form: str, tmp_path: Path) -> None:
    """Of w / 3600 and w / 60, which keep the unit; not of walks, in whatever unit."""
    step = 0.001 if grid == "degrees" else 100.0
    ground = np.random.default_rng(3).random((60, 50)).cumsum(axis=0) * 10
    axes = {"y": 45.0 - step * np.arange(60), "x": 9.0 + step * np.arange(50)}
    dem = xr.DataArray(ground, axes, ("y", "x")).rio.write_crs(GRIDS[grid])
    feet = {"elevation_unit": "ft"} if grid == "feet" else {}
    walk = og.walking_time(dem, [(9.0 + 20 * step, 45.0 - 30 * step)], **feet)["time"]

    def given(cost: xr.DataArray) -> object:
        path = tmp_path / ("cost.tif" if form == "GeoTIFF" else "cost.zarr")
        if form in ("array", "lazy"):
            return cost if form == "array" else cost.chunk(x=20, y=20)
        if form == "GeoTIFF":
            og.to_geotiff(cost, path, overwrite=True)
        else:
            og.ingest(cost, path, tile=16, overwrite=True)
        return path

    for unit in ("s", "min", "h"):
        level = og.convert_units(walk, unit).median().item()
        og.isochrones(given(og.convert_units(walk, unit)), [level])
    with xr.set_options(keep_attrs=True):  # by default since xarray 2025.11
        divided = walk / 3600, walk / 60, og.convert_units(walk, "min") / 60
    for wrong in divided:
        with pytest.raises(
            og.InputError, match=r"cost: its units are .* km/h; .*og\.convert_units"
        ):
            og.isochrones(given(wrong), [0.5], unit="h")


def test_what_is_no_time_of_a_walk_is_taken() -> None:
    """Corridors are nearly flat, and differences may be less than 0."""
    ground = heights().rio.write_crs(32632)
    ways = ((0, "from"), (1900, "to"))
    results = [og.walking_time(ground, [(x, 0)], travel=way) for x, way in ways]
    walks = [result["time"] for result in results]
    og.isochrones(og.corridor(*results), [60])
    og.isochrones(walks[0] - walks[1], [60])
    flat = xr.zeros_like(walks[0])
    assert og.isochrones(flat, [60]).geometry[0].area == 300 * 1e4
    og.isochrones((walks[0] / 3600).drop_attrs(), [0.1])


@pytest.mark.parametrize("polygons", [True, False])
def test_isochrones_take_levels_in_hours(polygons: bool) -> None:
    time = og.walking_time(heights(), [(0, 0)])["time"]
    hours = [0.1, 0.25, 0.5]
    found = og.isochrones(time, hours, unit="h", polygons=polygons)
    expected = og.isochrones(time, [level * 3600 for level in hours], polygons=polygons)
    assert shapely.equals(found.geometry, expected.geometry).all()
    for name, values in found.columns.items():
        np.testing.assert_allclose(values, expected.columns[name] / 3600)
        assert found.units[name] == "h"
        assert expected.units[name] == "s"
        assert set(values) <= {0, *hours}
    assert found.to_geodataframe().attrs["units"] == dict.fromkeys(found.columns, "h")


def test_a_corridor_has_the_units_of_its_costs() -> None:
    there = og.walking_time(heights(), [(0, 0)])
    back = og.walking_time(heights(), [(1900, 1400)], travel="to")
    assert og.corridor(there, back).attrs["units"] == "s"
    both = [og.convert_units(result, "h") for result in (there, back)]
    np.testing.assert_allclose(og.corridor(*both), og.corridor(there, back) / 3600)
    assert og.corridor(*both).attrs["units"] == "h"
    with pytest.raises(og.InputError, match=r"units.*'s'.*'h'"):
        og.corridor(there, both[1])


def test_a_picture_says_the_unit() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    axes = og.plot(og.convert_units(og.walking_time(heights(), [(0, 0)]), "h"))
    labels = [other.get_ylabel() for other in (*axes.figure.axes, *axes.child_axes)]
    assert any("[h]" in label for label in labels)
    pyplot.close(axes.figure)


def test_what_has_no_such_unit_is_refused() -> None:
    walk = og.walking_time(heights(), [(0, 0)])
    with pytest.raises(og.InputError, match="result: it has time in s, of which nothing becomes"):
        og.convert_units(walk, "km")
    with pytest.raises(og.InputError, match="result: it has no units"):
        og.convert_units(og.cost_distance(heights(), [(0, 0)]), "h")
    with pytest.raises(og.InputError, match="unit: 'km', but result is in 's'"):
        og.convert_units(walk["time"], "km")
    with pytest.raises(og.InputError, match="unit: 'h', but cost does not say its units"):
        og.isochrones(np.ones((3, 3)), [1], unit="h")
