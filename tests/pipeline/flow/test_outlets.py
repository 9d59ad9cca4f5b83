"""Water leaves where it is told to, beside the edge of the grid or in its place; D8 and D4."""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from cuda_on_cpu.emulator import Emulator

import orograph as og

Cells = np.ndarray[Any, Any]
STEPS = ((0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1), (1, 0), (1, 1))
"""Steps (rows, columns) of TauDEM's codes, from 1."""
SEEDS = [*range(6), *(pytest.param(n, marks=pytest.mark.long) for n in range(6, 120))]


def around(
    heights: Cells, cell: tuple[int, int], connectivity: int
) -> list[tuple[int, tuple[int, int], bool]]:
    """Return code, cell and whether it has a height, of the neighbours of a cell."""
    found = []
    for code, (dy, dx) in enumerate(STEPS, 1):
        if connectivity == 4 and dy and dx:
            continue
        y, x = cell[0] + dy, cell[1] + dx
        inside = 0 <= y < heights.shape[0] and 0 <= x < heights.shape[1]
        found.append((code, (y, x), inside and bool(np.isfinite(heights[y, x]))))
    return found


def filled_from(heights: Cells, starts: list[tuple[int, int]], connectivity: int) -> Cells:
    """Return levels by a priority flood from some cells; NaN where none is reached."""
    level = np.full(heights.shape, np.nan)
    queue = [(float(heights[cell]), cell) for cell in starts]
    heapq.heapify(queue)
    while queue:
        height, cell = heapq.heappop(queue)
        if np.isnan(level[cell]):
            level[cell] = height
            for _, other, there in around(heights, cell, connectivity):
                if there and np.isnan(level[other]):
                    heapq.heappush(queue, (max(height, float(heights[other])), other))
    return level


@pytest.mark.parametrize("connectivity", [8, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_water_goes_down_the_filled_surface_to_where_it_may_leave(
    seed: int, connectivity: int
) -> None:
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(2, 14, 2).tolist())
    heights = random.random(shape) if seed % 2 else random.integers(0, 6, shape).astype(float)
    heights[random.random(shape) < 0.08] = np.nan
    heights[0, 0] = 1
    valid = np.argwhere(np.isfinite(heights))
    points = valid[random.integers(len(valid), size=2)]
    raster = (random.random(shape) < 0.05) & np.isfinite(heights)
    raster[tuple(points[0])] = True
    of_points, both = np.zeros(shape, bool), raster.copy()
    of_points[tuple(points.T)] = both[tuple(points.T)] = True
    places = points[:, ::-1].tolist()  # a list, as an array of the grid's shape is a raster
    given: dict[str, Any]
    given, ends = [
        ({"outlets": places}, of_points),
        ({"sinks": raster.astype("u1")}, raster),
        ({"outlets": places, "sinks": raster.astype("u1")}, both),
        ({}, np.zeros(shape, bool)),
    ][seed % 4]
    closed = bool(seed // 3 % 2) and bool(given)
    given |= {"edges": "closed" if closed else "open", "connectivity": connectivity}
    starts = list(map(tuple, np.argwhere(ends).tolist()))
    if not closed:
        edge = (tuple(c) for c in valid.tolist())
        starts += [
            c for c in edge if not all(there for *_, there in around(heights, c, connectivity))
        ]
    level = filled_from(heights, starts, connectivity)
    surface = np.where(np.isnan(level), heights, level)
    for flats in ("nearest", "gradient"):
        tile = int(random.integers(1, 7))
        codes = og.flow_direction(heights, flats=flats, tile=tile, **given)["direction"].values
        whole = og.flow_direction(heights, flats=flats, **given)["direction"].values
        np.testing.assert_array_equal(codes, whole)
        assert (codes[ends] == 0).all()
        for start in map(tuple, valid.tolist()):
            if np.isnan(level[start]) or ends[start]:
                continue
            best, steepest = 0.0, 0
            for code, other, there in around(heights, start, connectivity):
                slope = 0.0
                if there:
                    length = float(np.hypot(*STEPS[code - 1]))
                    slope = float((surface[start] - surface[other]) * (1 / length))
                if slope > best:
                    best, steepest = slope, code
            assert steepest in (0, codes[start])
            at = start
            for _ in range(heights.size):
                if codes[at] == 0:
                    assert ends[at]
                    break
                _, to, there = around(heights, at, 8)[codes[at] - 1]
                assert connectivity == 8 or codes[at] % 2 == 1
                if not there:
                    assert not closed
                    break
                assert surface[to] <= surface[at]
                at = to
            else:
                pytest.fail("water goes in a circle")
    direct = og.flow_accumulation(heights, method="d8", **given)["accumulation"]
    by_codes = og.flow_accumulation(og.flow_direction(heights, **given))["accumulation"]
    np.testing.assert_array_equal(direct, by_codes)
    ones = og.flow_accumulation(heights, method="d8", weights=np.ones(shape, int), **given)
    np.testing.assert_array_equal(ones["accumulation"], by_codes)
    assert int(by_codes.where(by_codes > 0).values[ends].sum()) <= len(valid)


def test_a_closed_basin_drains_into_its_lake(tmp_path: Path) -> None:
    y, x = np.mgrid[:40, :50]
    bowl = np.hypot(y - 20, x - 25).astype(np.float32)
    lake = bowl < 4
    og.ingest(bowl, tmp_path / "bowl.zarr", tile=16)
    og.ingest(lake.astype("u1"), tmp_path / "lake.zarr", tile=16)
    for given in ((bowl, lake), (tmp_path / "bowl.zarr", tmp_path / "lake.zarr")):
        heights, water = given
        found = og.flow_accumulation(heights, method="d8", outlets=water, edges="closed")
        assert found["accumulation"].values[lake].sum() == bowl.size
    flow = og.flow_direction(bowl, outlets=lake, edges="closed")
    assert flow.attrs["sink_count"] == lake.sum()


def test_water_wraps_around_to_its_outlet() -> None:
    heights = np.tile(np.abs(np.arange(12.0) - 5), (3, 1))
    given: dict[str, Any] = {"outlets": [(0, 1)], "edges": "closed", "depressions": "fill"}
    found = og.flow_accumulation(heights, method="d8", wrap=True, tile=4, **given)
    assert found["accumulation"].values[1, 0] == heights.size


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"edges": "closed"}, "pass outlets= or sinks= too"),
        ({"outlets": [(0, 0)], "method": "dinf"}, "outlets: of no use for method='dinf'"),
        ({"outlets": [(99, 99)]}, "outlets: "),
        ({"connectivity": 16}, "connectivity: "),
        ({"connectivity": 4, "method": "dinf"}, "connectivity: of no use for method='dinf'"),
        ({"connectivity": 4, "depressions": "breach"}, "depressions: of no use for connectivity=4"),
        ({"sinks": np.zeros((3, 3))}, "sinks: "),
    ],
)
def test_what_cannot_be_used_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(og.InputError, match=said):
        og.flow_direction(np.eye(4), **given)
    with pytest.raises(og.InputError, match=said):
        og.flow_accumulation(np.eye(4), **{"method": "d8", **given})


def test_directions_take_no_outlets() -> None:
    flow = og.flow_direction(np.random.default_rng(0).random((4, 5)))
    with pytest.raises(og.InputError, match=r"outlets: .*only heights need it"):
        og.flow_accumulation(flow, outlets=[(0, 0)])


def test_four_neighbours_in_all_orientations_and_around_the_globe() -> None:
    heights = np.random.default_rng(3).integers(0, 5, (13, 18)).astype(float)
    raster = xr.DataArray(heights, {"y": -np.arange(13.0), "x": np.arange(18.0)}, ("y", "x"))
    found = og.flow_direction(raster, connectivity=4)["direction"]
    for turned in (raster[::-1], raster[:, ::-1], raster[::-1, ::-1]):
        other = og.flow_direction(turned, connectivity=4, tile=5)["direction"]
        xr.testing.assert_equal(other.sortby("y", ascending=False).sortby("x"), found)
    around_it = og.flow_direction(heights, connectivity=4, wrap=True)["direction"].values
    rolled = og.flow_direction(np.roll(heights, 7, 1), connectivity=4, wrap=True, tile=4)
    np.testing.assert_array_equal(rolled["direction"], np.roll(around_it, 7, 1))


def test_a_gpu_takes_the_same_steps(emulated_gpu: Emulator) -> None:
    heights = np.random.default_rng(5).integers(0, 9, (20, 23)).astype(np.float32)
    given: dict[str, Any] = {"connectivity": 4, "outlets": [(3, 3)], "edges": "closed", "tile": 8}
    found = og.flow_direction(heights, backend="cuda", **given)
    assert emulated_gpu.launches
    assert found.equals(og.flow_direction(heights, backend="numba", **given))
