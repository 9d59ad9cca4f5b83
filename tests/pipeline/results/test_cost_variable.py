"""Results whose costs are named ``cost`` or ``time``: whatever takes one takes the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import orograph as og
from orograph.results.costs import cost_variable, costs_of

BOTH = ("time", "back_direction")
START, END = (0, 0), (1100, 800)
RECORDED = np.datetime64("2024-05-01", "ns")


def heights() -> xr.DataArray:
    """Return heights with a time at which they were recorded."""
    cells = np.random.default_rng(4).integers(0, 50, (9, 12)).astype(float)
    axes = {"y": 100.0 * np.arange(9), "x": 100.0 * np.arange(12)}
    return xr.DataArray(cells, axes, ("y", "x"), "elevation").assign_coords(time=RECORDED)


def walk(point: tuple[int, int] = START, **options: Any) -> xr.Dataset:
    return og.walking_time(heights(), [point], outputs=BOTH, **options)


def as_cost(result: xr.Dataset) -> xr.Dataset:
    """Return a result whose costs are named ``cost``, beside a coordinate ``time``."""
    return result.rename(time="cost").assign_coords(time=RECORDED)


TAKERS: dict[str, Callable[[xr.Dataset, Path], Any]] = {
    "least_cost_path": lambda r, _: og.least_cost_path(r, [END])[0].coordinates,
    "corridor": lambda r, _: og.corridor(r, walk(END, travel="to")),
    "isochrones": lambda r, _: og.isochrones(r, [60, 600]).columns["upper"],
    "isochrones of a file": lambda r, folder: og.isochrones(
        og.to_file(r, folder / "r.nc") or folder / "r.nc", [60, 600]
    ).columns["upper"],
    "convert_units": lambda r, _: costs_of(og.convert_units(r, "h")),
    "max_cost in units": lambda r, _: og.convert_units(r, "h").attrs["max_cost"],
    "path_mask": lambda r, _: og.path_mask(og.least_cost_path(r, [END]), like=r),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_costs_have_either_name(taker: str, tmp_path: Path) -> None:
    result = walk(max_cost=90_000)
    assert (cost_variable(result), cost_variable(as_cost(result))) == ("time", "cost")
    take = TAKERS[taker]
    (tmp_path / "cost").mkdir()
    found, expected = take(as_cost(result), tmp_path / "cost"), take(result, tmp_path)
    np.testing.assert_array_equal(found, expected)


def test_a_picture_marks_the_sources_of_either() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    for result in (walk(), as_cost(walk())):
        axes = og.plot(result)
        assert axes.get_title() == "time from the nearest source"
        assert [line.get_xydata().tolist() for line in axes.lines] == [[list(START)]]
    pyplot.close("all")


def test_a_coordinate_is_no_variable_of_costs() -> None:
    assert cost_variable(xr.Dataset(coords={"time": [1, 2]})) is None
    result = walk().drop_vars("time").assign_coords(time=RECORDED)
    with pytest.raises(og.InputError, match="result: it has no cost; compute it with the outputs"):
        og.least_cost_path(result, [END])
    with pytest.raises(og.InputError, match=r"b: .* give what cost_distance returns"):
        og.corridor(walk(), result)


def test_an_array_of_times_may_have_the_time_of_its_data() -> None:
    result = walk()
    arrays = [result[name].assign_attrs(result.attrs | result[name].attrs) for name in BOTH]
    arrays[0] = arrays[0].assign_coords(time=RECORDED)
    (path,) = og.least_cost_path(arrays, [END])
    assert path.cost == result["time"].values[8, 11]


def test_netcdf_keeps_seconds(tmp_path: Path) -> None:
    """xarray makes time differences of variables in some units of time."""
    result = walk(out=tmp_path / "walk.nc")
    with xr.open_dataset(tmp_path / "walk.nc") as found:
        np.testing.assert_array_equal(found["time"], result["time"])
        assert found["time"].dtype == np.float64
