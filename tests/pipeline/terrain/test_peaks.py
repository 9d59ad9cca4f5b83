"""Peaks, key cols and parents are those of a sweep of the cells from the top down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import oracle_terrain as oracle
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from terrain_cases import Case, cases, fractal, properties

import orograph as og


def assert_is(found: xr.Dataset, expected: list[oracle.Peak], elevation: np.ndarray) -> None:
    cells = [peak.cell for peak in expected]
    assert np.stack([found["y"], found["x"]], axis=1).tolist() == [list(cell) for cell in cells]
    assert found["elevation"].dtype == elevation.dtype
    for number, peak in enumerate(expected):
        at = found.isel(peak=number)
        assert at["elevation"] == elevation[peak.cell]
        if peak.col is None:
            assert np.isinf(at["prominence"])
            assert at["parent"] == -1
            assert np.isnan([at["col_y"], at["col_x"], at["col_elevation"]]).all()
        else:
            assert (at["col_y"], at["col_x"]) == peak.col
            assert at["col_elevation"] == float(elevation[peak.col])
            assert at["prominence"] == peak.prominence
            assert cells[int(at["parent"])] == peak.parent


@properties
@given(cases(), st.sampled_from([0, 1, 2, 5, 1e30]))
def test_any_tiling_gives_the_peaks_of_a_sweep_from_the_top(case: Case, least: float) -> None:
    found = og.peaks(case.elevation, min_prominence=least, **case.how, **case.cut)
    expected = [p for p in oracle.peaks(case.elevation, **case.how) if p.prominence >= least]
    assert_is(found, expected, case.elevation)


def test_peaks_of_a_stored_raster_with_coordinates(tmp_path: Path) -> None:
    heights = fractal(90)
    heights[30:60, 40] = np.nan
    axes = {"lat": 1000.0 - 10 * np.arange(90), "lon": 5.0 + 10 * np.arange(90)}
    raster = xr.DataArray(heights, axes, ("lat", "lon"))
    og.ingest(raster, tmp_path / "dem.zarr", tile=16, shard=32)
    with og.cluster(n_workers=2, dashboard_address=None) as client:
        found = og.peaks(tmp_path / "dem.zarr", client=client, out=tmp_path / "peaks.zarr").load()
    xr.testing.assert_identical(found.drop_attrs(), og.peaks(raster).drop_attrs())
    expected = oracle.peaks(heights)
    assert found.sizes["peak"] == len(expected) > 20
    for name in ("", "col_"):
        part = found if not name else found.isel(peak=found["parent"].values >= 0)
        at = raster.sel(lat=part[f"{name}y"], lon=part[f"{name}x"])
        np.testing.assert_array_equal(at, part[f"{name}elevation"])
    np.testing.assert_array_equal(found["prominence"], [peak.prominence for peak in expected])


def test_only_the_highest_has_no_parent() -> None:
    found = og.peaks(np.random.default_rng(1).random((50, 60)), tile=8)
    first = found["parent"].values < 0
    assert first.sum() == 1
    assert found["elevation"].values[first] == found["elevation"].values.max()
    parents = found.isel(peak=found["parent"].values[~first])
    assert (parents["elevation"].values > found["elevation"].values[~first]).all()
    assert (parents["prominence"].values > found["prominence"].values[~first]).all()


@pytest.mark.parametrize("base", [2**53, 2**60, -(2**60), 2**63], ids=str)
def test_heights_that_float64_cannot_hold_have_the_same_peaks(base: int) -> None:
    heights = np.array([[5, 2, 9, 4, 7]], np.int64 if base < 2**63 else np.uint64)
    found = og.peaks(heights + heights.dtype.type(base))
    assert found["x"].values.tolist() == [0, 2, 4]
    assert found["prominence"].values.tolist() == [3, np.inf, 3]
    np.testing.assert_array_equal(found["elevation"], heights[0, ::2] + heights.dtype.type(base))


def test_no_cell_no_peak() -> None:
    assert og.peaks(np.full((5, 7), np.nan), tile=2).sizes["peak"] == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"connectivity": 6}, "connectivity: 6 is unknown"),
        ({"min_prominence": -1}, "min_prominence: -1; it must be a number, at least 0"),
        ({"min_prominence": np.nan}, "min_prominence: nan"),
        ({"min_prominence": "high"}, "min_prominence: 'high'"),
    ],
)
def test_what_has_no_peaks_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(og.InputError, match=says):
        og.peaks(np.eye(3), **options)


def test_a_plan_grows_with_the_number_of_peaks() -> None:
    few, many = (og.peaks.plan(og.RasterSpec((4096, 4096)), pits=n) for n in (10, 10**6))
    assert many.memory_client - few.memory_client == many.memory_table - few.memory_table > 10**8
    assert many.bytes_written == 64 * 10**6
