"""The hierarchy of depressions is that of waters that rise cell by cell, whatever the tiling."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import oracle_terrain as oracle
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from terrain_cases import Case, cases, fractal, properties

import orograph as og
from orograph.components.table import cell_areas
from orograph.tiles.grid.cf import georeference_of


def exactly(value: Any) -> Fraction:
    return Fraction(value.item())


def volume_of(found: oracle.Depression, elevation: np.ndarray) -> float:
    level = exactly(found.level)
    try:
        return float(sum(level - exactly(elevation[cell]) for cell in found.cells))
    except OverflowError:
        return math.inf


def assert_is(table: xr.Dataset, expected: list[oracle.Depression], elevation: np.ndarray) -> None:
    width = elevation.shape[1]
    numbers = {found.cells: number for number, found in enumerate(expected)}
    assert table.sizes["depression"] == len(expected)
    for number, found in enumerate(expected):
        row = {name: column.values[number] for name, column in table.data_vars.items()}
        lowest = min(found.cells, key=lambda cell: (elevation[cell] + 0, cell))
        assert (row["pit_y"], row["pit_x"]) == lowest
        assert row["pit"] == lowest[0] * width + lowest[1] + 1
        assert row["elevation"] == elevation[lowest]
        assert row["spill_elevation"] == found.level
        assert (row["spill_y"], row["spill_x"]) == found.spill
        assert row["depth"] == oracle.difference(found.level, elevation[lowest])
        assert row["cells"] == row["area"] == len(found.cells)
        assert row["volume"] == volume_of(found, elevation)
        around = [other for other in expected if other.cells > found.cells]
        parent = min(around, key=lambda other: len(other.cells), default=None)
        assert row["parent"] == (-1 if parent is None else numbers[parent.cells])
        into = -1 if found.into is None else numbers.get(found.into, -1)
        assert row["spills_into"] == into


@properties
@given(cases(16))
def test_any_tiling_gives_the_hierarchy_of_rising_waters(case: Case) -> None:
    table = og.depressions(case.elevation, **case.how, **case.cut)
    assert_is(table, oracle.hierarchy(case.elevation, **case.how), case.elevation)


@properties
@given(cases(16), st.sampled_from([0, 1, 3, 20]), st.sampled_from([0, 1, 2, 6]))
def test_small_depressions_are_left_out(case: Case, depth: float, area: float) -> None:
    table = og.depressions(case.elevation, min_depth=depth, min_area=area, **case.how, **case.cut)
    expected = [
        found
        for found in oracle.hierarchy(case.elevation, **case.how)
        if len(found.cells) >= area
        and oracle.difference(found.level, min(case.elevation[c] for c in found.cells)) >= depth
    ]
    assert_is(table, expected, case.elevation)


def test_outermost_depressions_are_those_that_are_filled(tmp_path: Path) -> None:
    heights = fractal(120)
    heights[20:30, 40:60] = np.nan
    axes = {"y": 1000.0 - 10 * np.arange(120), "x": 5.0 + 20 * np.arange(120)}
    raster = xr.DataArray(heights, axes, ("y", "x")).rio.write_crs(32633)
    og.ingest(raster, tmp_path / "dem.zarr", tile=16, shard=32)
    with og.cluster(n_workers=2, dashboard_address=None) as client:
        table = og.depressions(tmp_path / "dem.zarr", client=client, out=tmp_path / "d.zarr").load()
    xr.testing.assert_identical(table.drop_attrs(), og.depressions(raster).drop_attrs())
    filled = og.fill_depressions(heights, outputs=["depth", "depression"])
    outermost = table.isel(depression=table["parent"].values < 0)
    assert outermost.sizes["depression"] > 10
    numbers, count = np.unique(filled["depression"], return_counts=True)
    np.testing.assert_array_equal(outermost["pit"], numbers[1:])
    np.testing.assert_array_equal(outermost["cells"], count[1:])
    np.testing.assert_array_equal(outermost["area"], 200.0 * count[1:])
    depth = np.bincount(
        filled["depression"].values.ravel(), filled["depth"].fillna(0).values.ravel()
    )
    np.testing.assert_allclose(outermost["volume"], 200 * depth[numbers[1:]])
    assert table.attrs["area_unit"] == "m2"
    feet = raster.rio.write_crs(2227, inplace=False)
    np.testing.assert_allclose(og.depressions(feet)["area"], table["area"] * (1200 / 3937) ** 2)
    uneven = raster.assign_coords(x=np.cumsum(1.0 + np.arange(120) % 2))
    counted = og.depressions(uneven)
    assert counted.attrs["area_unit"] == "cell"
    np.testing.assert_array_equal(counted["area"], table["cells"])


@properties
@given(cases(14), st.sampled_from([-0.25, 0.25]))
def test_cells_in_degrees_have_the_area_of_their_row(case: Case, step: float) -> None:
    height, width = case.elevation.shape
    if min(height, width) < 2:
        return
    axes = {"y": 60 + step * np.arange(height), "x": 7 + 0.5 * np.arange(width)}
    raster = xr.DataArray(case.elevation, axes, ("y", "x")).rio.write_crs(4326)
    table = og.depressions(raster, **case.how, **case.cut)
    assert table.attrs["area_unit"] == "m2"
    areas, _ = cell_areas(georeference_of(raster), height)
    y, x = np.divmod(table["pit"].values - 1, width)
    elevation = case.elevation
    if step > 0:  # of equal heights the northernmost is the lowest
        y, areas, elevation = height - 1 - y, areas[::-1], elevation[::-1]
    expected = oracle.hierarchy(elevation, **case.how)
    assert table.sizes["depression"] == len(expected)
    order = np.lexsort((np.arange(y.size), y * width + x))
    for number, found in zip(order, expected, strict=True):
        level = exactly(found.level)
        cells = [(exactly(areas[y]), exactly(elevation[y, x])) for y, x in found.cells]
        assert table["area"].values[number] == float(sum(area for area, _ in cells))
        if np.isfinite(table["volume"].values[number]):
            volume = sum(area * (level - z) for area, z in cells)
            assert table["volume"].values[number] == float(volume)


@properties
@given(cases(16))
def test_labels_are_of_the_smallest_depression(case: Case) -> None:
    found = og.depressions(case.elevation, labels=True, **case.how, **case.cut)
    expected = np.zeros(case.elevation.shape, np.int64)
    size = np.full(case.elevation.shape, case.elevation.size + 1)
    for number, depression in enumerate(oracle.hierarchy(case.elevation, **case.how)):
        cells = tuple(np.array(sorted(depression.cells)).T)
        smaller = len(depression.cells) < size[cells]
        cells = tuple(axis[smaller] for axis in cells)
        size[cells] = len(depression.cells)
        expected[cells] = found["pit"].values[number]
    np.testing.assert_array_equal(found["labels"], expected)
    for number in range(found.sizes["depression"]):
        row = found.isel(depression=number)
        held = np.isin(found["labels"].values, _pits_within(found, number))
        assert (held & (case.elevation < row["spill_elevation"].values)).sum() == row["cells"]


def _pits_within(table: xr.Dataset, number: int) -> list[int]:
    within = {number}
    parents = table["parent"].values.tolist()
    for _ in parents:
        within |= {child for child, parent in enumerate(parents) if parent in within}
    return [int(table["pit"].values[child]) for child in within]


def test_labels_and_table_stand_in_one_store(tmp_path: Path) -> None:
    heights = fractal(60)
    axes = {"y": 1000.0 - 10 * np.arange(60), "x": 5.0 + 10 * np.arange(60)}
    raster = xr.DataArray(heights, axes, ("y", "x")).rio.write_crs(32633)
    expected = og.depressions(raster, labels=True, tile=16)
    found = og.depressions(raster, labels=True, out=tmp_path / "d.zarr", tile=16)
    xr.testing.assert_identical(found.load(), expected)
    np.testing.assert_array_equal(found["x"], raster["x"])
    assert found.rio.crs.to_epsg() == 32633
    assert set(np.unique(found["labels"])) - {0} <= set(found["pit"].values.tolist())


@pytest.mark.parametrize("base", [0, 2**53, 2**60, -(2**62), 2**63], ids=str)
def test_volumes_do_not_depend_on_where_zero_lies(base: int) -> None:
    heights = np.full((5, 5), 9, np.int64 if base < 2**63 else np.uint64)
    heights[2, 2:] = 2, 5, 7
    found = og.depressions(heights + heights.dtype.type(base))
    assert found["volume"].values.tolist() == [7]
    assert found["depth"].values.tolist() == [5]
    assert og.depressions(heights + heights.dtype.type(base), min_depth=6).sizes["depression"] == 0


def test_depths_beyond_2_to_the_53_are_compared_exactly() -> None:
    heights = np.full((3, 3), 2**53 + 1)
    heights[1, 1] = 0
    assert og.depressions(heights, min_depth=2**53).sizes["depression"] == 1
    assert og.depressions(heights, min_depth=2**53 + 2).sizes["depression"] == 0


def test_flat_and_empty_ground_has_no_depression() -> None:
    for heights in (np.zeros((5, 7)), np.full((5, 7), np.nan), np.ones((1, 9))):
        assert og.depressions(heights, tile=2).sizes["depression"] == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"connectivity": 6}, "connectivity: 6 is unknown"),
        ({"min_depth": -1}, "min_depth: -1; it must be a number, at least 0"),
        ({"min_area": np.nan}, "min_area: nan"),
        ({"min_area": "large"}, "min_area: 'large'"),
        ({"labels": 1}, "labels: 1; it must be True or False"),
    ],
)
def test_what_has_no_depressions_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(og.InputError, match=says):
        og.depressions(np.eye(3), **options)


def test_a_plan_grows_with_the_number_of_pits() -> None:
    few, many = (og.depressions.plan(og.RasterSpec((4096, 4096)), pits=n) for n in (10, 10**6))
    assert many.memory_client - few.memory_client == many.memory_table - few.memory_table > 10**8
    labelled = og.depressions.plan(og.RasterSpec((4096, 4096)), pits=10, labels=True)
    assert labelled.bytes_written - few.bytes_written == 8 * 4096**2
    assert labelled.memory_per_worker > few.memory_per_worker
