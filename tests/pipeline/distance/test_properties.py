"""The bits of a cost distance do not depend on tiles, threads, workers, storage or misfortune.

Every expected value is the independent oracle's (`oracle_distance`). Costs here are such that
every way to write a step's cost rounds alike: whole frictions and heights, mostly.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dask
import numpy as np
import oracle_distance as oracle
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from any_model import distance
from distributed import Client, get_task_stream
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from watched_raster import (
    Gate,
    WatchedRaster,
    called,
    kill_session,
    mortal_cluster,
    wait_until,
)

import orograph as og
from orograph.engines import tile_states
from orograph.engines.frontier import driver

ALL = ("cost", "back_direction", "allocation")
CONNECTIVITY = pytest.mark.parametrize("connectivity", [4, 8, 16], ids=lambda n: f"{n} nbrs")
ours = settings(
    deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)


def points(sources: Sequence[oracle.Source]) -> list[tuple[float, float]]:
    return [(x, y) for y, x, _, _ in sources]


def at(*cells: tuple[int, int]) -> list[oracle.Source]:
    return [(y, x, label, 0.0) for label, (y, x) in enumerate(cells)]


def raster_of(sources: Sequence[oracle.Source], shape: tuple[int, int]) -> np.ndarray:
    raster = np.zeros(shape, np.int32)
    for y, x, label, _ in sources:
        raster[y, x] = label
    return raster


def assert_is(
    result: xr.Dataset,
    steps: list[oracle.Steps],
    sources: Sequence[oracle.Source],
    max_cost: float = np.inf,
) -> None:
    """Cost, allocation and the way back from every cell, to the bit."""
    cost, code = result["cost"].values, result["back_direction"].values
    shape = cost.shape
    assert code.dtype == np.uint8
    assert result["allocation"].dtype == np.int64
    assert result["allocation"].attrs["_FillValue"] == -1
    if cost.dtype == np.float64:
        expected = oracle.cost_distance(steps, shape, sources, max_cost=max_cost)
        np.testing.assert_array_equal(cost, expected.cost)
    else:
        known = oracle.heap_distance(steps, shape, sources, cost.dtype.type)
        known[known > max_cost] = -1
        if cost.dtype.kind == "f":
            known[known < 0] = np.nan
        np.testing.assert_array_equal(cost, known)
        floats = np.where(known < 0, np.nan, known) if known.dtype.kind == "i" else known
        expected = oracle.cost_distance(steps, shape, sources, cost=floats)
    served = expected.hops >= 0
    np.testing.assert_array_equal(result["allocation"].values, expected.allocation)
    np.testing.assert_array_equal(code == oracle.UNREACHED, ~served)
    root, hops, total = oracle.follow(code, steps, np.where(code == 0, cost, cost.dtype.type(0)))
    np.testing.assert_array_equal(hops[served.ravel()], expected.hops[served])
    np.testing.assert_array_equal(total[served.ravel()], cost[served])
    starts = {(y * shape[1] + x, label, initial) for y, x, label, initial in sources}
    width_of = cost.ravel()[root]
    ends = zip(*(a[served.ravel()].tolist() for a in (root, expected.allocation.ravel(), width_of)))
    assert set(ends) <= starts, "a way back ends at no source, or at another's"
    assert result.attrs["reached_cells"] == served.sum()


def assert_same(result: xr.Dataset, other: xr.Dataset) -> None:
    assert set(result.data_vars) == set(other.data_vars)
    for name in result.data_vars:
        one, two = result[name].values, other[name].values
        assert one.dtype == two.dtype
        assert one.tobytes() == two.tobytes() or np.array_equal(one, two, equal_nan=True), name
    counts = ("reached_cells", "unreached_cells", "nodata_cells")
    assert [result.attrs[c] for c in counts] == [other.attrs[c] for c in counts]


# --- the oracle itself ---------------------------------------------------------------------


@CONNECTIVITY
def test_the_oracle_agrees_with_a_heap_and_with_one_dijkstra_a_source(connectivity: int) -> None:
    """Whole frictions and 4 neighbours add without rounding: ask plainly who is nearest."""
    rng = np.random.default_rng(20)
    for case in range(30):
        shape = tuple(rng.integers(1, 9, 2).tolist())
        grid = rng.integers(0, 4, shape).astype(float)
        grid[rng.random(shape) < 0.2] = np.nan
        cells = np.argwhere(np.isfinite(grid))
        if not len(cells):
            continue
        places = cells[rng.integers(0, len(cells), 4)].tolist()
        sources = [(y, x, 1 + k % 3, float(rng.integers(0, 3))) for k, (y, x) in enumerate(places)]
        cost = ["friction", "absolute_difference"][case % 2]
        rasters = {"friction": grid} if cost == "friction" else {"elevation": grid}
        steps = oracle.list_steps(
            **{"friction": None, **rasters}, cost=cost, connectivity=connectivity
        )
        message = oracle.cost_distance(steps, shape, sources)
        heap = oracle.heap_distance(steps, shape, sources)
        np.testing.assert_array_equal(np.nan_to_num(message.cost, nan=-1), heap)
        if connectivity == 4 or cost == "absolute_difference":
            alone = np.stack([oracle.heap_distance(steps, shape, [s]) for s in sources])
            near = np.where(
                alone == message.cost, np.array([s[2] for s in sources])[:, None, None], 9
            )
            np.testing.assert_array_equal(message.allocation, np.where(heap < 0, -1, near.min(0)))


# --- grids drawn by Hypothesis ---------------------------------------------------------------


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of `og.cost_distance`, the oracle's steps and sources."""
    shape = draw(
        st.tuples(st.integers(1, 26), st.integers(1, 26))
        | st.tuples(st.just(1), st.integers(1, 40))
        | st.tuples(st.integers(1, 40), st.just(1))
    )
    cost = draw(st.sampled_from(["friction", "friction", "absolute_difference", "walk"]))
    connectivity = draw(st.sampled_from([4, 8, 16]))
    travel = draw(st.sampled_from(["from", "to"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    palette = 2.0 * np.array(draw(st.lists(st.integers(0, 10), min_size=1, max_size=5)))
    gaps = draw(st.sampled_from([0.0, 0.1, 0.35, 0.6]))

    def raster() -> np.ndarray:
        grid = palette[rng.integers(0, palette.size, shape)]
        grid[rng.random(shape) < gaps] = np.nan
        return grid

    rasters = {
        "friction": None if cost == "absolute_difference" else raster(),
        "elevation": None if cost == "friction" else raster(),
    }
    for grid in rasters.values():
        if grid is not None:
            grid[0, 0] = palette[0]  # a source needs a cell
    cells = np.argwhere(oracle.valid_cells(*rasters.values()))
    count = draw(st.integers(1, 5))
    places = cells[rng.integers(0, len(cells), count)].tolist()
    kind = draw(st.sampled_from(["points", "points that cost", "raster"]))
    sources: list[oracle.Source]
    if kind == "raster":
        unique = {(y, x): int(rng.integers(1, 4)) for y, x in places}
        sources = [(y, x, label, 0.0) for (y, x), label in unique.items()]
        sent: dict[str, Any] = {"sources": raster_of(sources, shape)}
    else:
        start = rng.integers(0, 30, count) if kind == "points that cost" else np.zeros(count)
        sources = [(y, x, k, float(start[k])) for k, (y, x) in enumerate(places)]
        sent = {"sources": points(sources), "initial_cost": start.astype(float).tolist()}
    dtype = "float64"
    if cost == "friction":
        dtype = draw(st.sampled_from(["float64", "float64", "float32"]))
        if connectivity == 4:
            dtype = draw(st.sampled_from(["float64", "float32", "int64"]))
    if dtype == "int64" and kind == "points that cost":
        sent["initial_cost"], sources = 0, [(y, x, k, 0.0) for y, x, k, _ in sources]
    sides = draw(st.sampled_from([(1.0, 1.0), (3.0, 4.0), (4.0, 3.0)]))
    how = {"cost": cost, "connectivity": connectivity, "travel": travel, "dtype": dtype}
    steps = oracle.list_steps(**rasters, **how, lengths=oracle.planar(sides))
    max_cost = draw(st.sampled_from([np.inf, np.inf, 0.0, 12.0, 60.0]))
    if dtype == "int64":
        max_cost = np.inf
    sent |= {**rasters, **how, "cell_size": sides, "max_cost": max_cost, "outputs": ALL}
    return {"told": sent, "steps": steps, "sources": sources, "shape": shape}


@pytest.mark.filterwarnings("ignore:.*all cells are sources")
@given(st.data())
@settings(ours, max_examples=200)
def test_any_tiling_of_any_grid_gives_the_oracles_distance(data: st.DataObject) -> None:
    problem = data.draw(problems(), label="problem")
    sent = problem["told"]
    side = max(problem["shape"])
    # a tile of 1 is drawn too; on the largest grids it is 2 or more, to keep the suite short
    least = 1 + int((problem["shape"][0] * problem["shape"][1] / 200) ** 0.5)
    tile = data.draw(st.integers(min(least, side), side), label="tile")
    field = data.draw(st.sampled_from([0, tile, 2 * tile, 5 * tile, 2048]), label="field")
    with og.config.set(field=field):
        result = distance(**sent, tile=tile)
    assert_is(result, problem["steps"], problem["sources"], sent["max_cost"])
    assert_same(distance(**sent, tile=side), result)


@given(problems(), st.integers(3, 20), st.sampled_from([1, 2]), st.sampled_from([0, 8, 2048]))
@settings(ours, max_examples=10)
def test_any_tiling_on_disk_gives_the_oracles_distance(
    tmp_path_factory: pytest.TempPathFactory,
    problem: dict[str, Any],
    tile: int,
    threads: int,
    field: int,
) -> None:
    out = tmp_path_factory.mktemp("drawn") / "cost.zarr"
    sent = problem["told"]
    with og.config.set(threads=threads, field=field):
        result = distance(**sent, tile=tile, out=out)
    assert_is(result, problem["steps"], problem["sources"], sent["max_cost"])
    stored = og.open(out)
    assert_same(stored.rename({"time": "cost"}) if "time" in stored else stored, result)


# --- grids worth naming ------------------------------------------------------------------------


def serpentine(height: int, width: int, every: int = 2, thick: int = 1) -> np.ndarray:
    """Walls across, each open at one end, now left, now right."""
    grid = np.ones((height, width))
    for number, top in enumerate(range(every - thick, height, every)):
        grid[top : top + thick] = np.nan
        end = slice(-1, None) if number % 2 == 0 else slice(0, 1)
        grid[top : top + thick, end] = 1
    return grid


def obstacles(shape: tuple[int, int], share: float = 0.35) -> np.ndarray:
    rng = np.random.default_rng(11)
    grid = rng.integers(1, 10, shape).astype(float)
    grid[rng.random(shape) < share] = np.nan
    grid[0, 0] = grid[-1, -1] = 1
    return grid


def spiral(side: int) -> np.ndarray:
    """A corridor one cell wide that winds inwards, behind walls one cell thick."""
    grid = np.full((side, side), np.nan)
    y, x, dy, dx = 0, 0, 0, 1
    grid[0, 0] = 1
    while True:
        turns = 0
        while turns < 2:
            a, b, c, d = y + dy, x + dx, y + 2 * dy, x + 2 * dx
            free = 0 <= a < side and 0 <= b < side and np.isnan(grid[a, b])
            if free and (not (0 <= c < side and 0 <= d < side) or np.isnan(grid[c, d])):
                break
            dy, dx, turns = dx, -dy, turns + 1
        if turns == 2:
            return grid
        y, x = y + dy, x + dx
        grid[y, x] = 1


NAMED = {
    "a serpentine across": (serpentine(120, 8), (60, 7, 3, 120), at((0, 0))),
    "a serpentine along": (serpentine(8, 120).copy(), (60, 11, 120), at((0, 0))),
    "a serpentine that crosses the seam at every turn": (
        np.ascontiguousarray(serpentine(8, 120).T),
        (60, 7, 120),
        at((0, 0)),
    ),
    "a serpentine of thick walls": (serpentine(64, 50, 8, 2), (13, 32), at((60, 49))),
    "a spiral": (spiral(41), (5, 16, 41), at((0, 0))),
    "random obstacles": (obstacles((90, 83)), (1, 9, 30, 31), at((0, 0), (89, 82))),
    "zeros everywhere": (np.zeros((33, 35)), (4, 16, 35), at((3, 3), (30, 20), (3, 33))),
    "zeros and ones": (
        np.random.default_rng(5).integers(0, 2, (18, 17)).astype(float),
        (1, 7, 15),
        at((11, 12), (2, 16)),
    ),
    "cheap roads through dear land": (
        np.where(np.add.outer(np.arange(50), np.arange(47)) % 13 == 0, 1.0, 1000.0),
        (5, 17, 49),
        at((25, 25), (0, 0)),
    ),
    "frictions of very different size": (
        10.0 ** np.random.default_rng(6).integers(0, 16, (40, 41)),
        (6, 19, 41),
        at((1, 1), (38, 40)),
    ),
    "one row": (np.arange(70.0)[None] % 7, (1, 8, 70), at((0, 35), (0, 1))),
    "one column": (np.arange(70.0)[:, None] % 7, (1, 8, 70), at((35, 0), (1, 0))),
    "a single cell": (np.ones((1, 1)), (1, 5), at((0, 0))),
    "a source in a closed room": (
        np.pad(np.pad(np.ones((5, 5)), 1, constant_values=np.nan), 6, constant_values=2.0),
        (3, 8),
        at((9, 9)),
    ),
}


@pytest.mark.diagonal
@CONNECTIVITY
@pytest.mark.parametrize("case", NAMED)
def test_every_tile_size_gives_the_distance_over(case: str, connectivity: int) -> None:
    grid, tiles, sources = NAMED[case]
    how = {"connectivity": connectivity, "outputs": ALL}
    whole = og.cost_distance(grid, points(sources), tile=max(grid.shape), **how)
    steps = oracle.list_steps(grid, connectivity=connectivity)
    assert_is(whole, steps, sources)
    for tile in tiles:
        if grid.size < 2500 or tile > 1:
            assert_same(og.cost_distance(grid, points(sources), tile=tile, **how), whole)


def test_all_540_cells_of_a_serpentine_in_two_tiles_are_reached() -> None:
    """xarray-spatial 0.10 gives up after 229 of them."""
    grid = serpentine(120, 8)
    result = og.cost_distance(grid, [(0, 0)], connectivity=4, tile=60, outputs=ALL)
    assert np.isfinite(grid).sum() == 540
    assert result.attrs["reached_cells"] == 540
    assert result.attrs["unreached_cells"] == 0
    assert sorted(result["cost"].values[np.isfinite(grid)].tolist()) == list(range(540))


def test_a_maze_of_four_million_cells_is_followed_to_its_end() -> None:
    grid = serpentine(2000, 2000, 16, 2).astype(np.float32)
    results = [
        og.cost_distance(grid, [(0, 0)], connectivity=8, tile=tile, outputs=("cost",))
        for tile in (2000, 500)
    ]
    assert results[0].attrs["reached_cells"] == np.isfinite(grid).sum()
    assert_same(*results)
    # at least there and back again between the walls, by way of each opening
    assert 124 * 1998 < float(results[0]["cost"].max()) < 126 * 2020


@pytest.mark.diagonal
@CONNECTIVITY
@pytest.mark.parametrize("tile", [5, 12, 40])
def test_flat_ground_has_no_cycles(tile: int, connectivity: int) -> None:
    """Every step between equal heights costs nothing, so any of them would seem to lead back."""
    heights = np.repeat(np.repeat(np.arange(20.0).reshape(4, 5) % 3, 10, 0), 7, 1)
    sources = at((39, 34), (0, 0), (0, 5), (20, 20))
    for elevation in (heights, np.full((40, 35), 7.0)):
        result = og.cost_distance(
            elevation,
            points(sources),
            cost="absolute_difference",
            connectivity=connectivity,
            tile=tile,
            outputs=ALL,
        )
        steps = oracle.list_steps(
            None, elevation, cost="absolute_difference", connectivity=connectivity
        )
        assert_is(result, steps, sources)
    assert not result["cost"].values.any()
    assert (result["allocation"].values == 0).all(), "the smallest label is as near as any"


@pytest.mark.parametrize("tile", [1, 3, 5, 8, 21])
def test_of_sources_equally_near_the_smaller_label_serves(tile: int) -> None:
    labels = np.zeros((9, 21), int)
    labels[4, 0], labels[4, 20], labels[0, 10] = 7, 3, 5
    result = og.cost_distance(np.ones((9, 21)), labels, connectivity=4, tile=tile, outputs=ALL)
    y, x = np.indices(labels.shape)
    away = {7: abs(y - 4) + x, 3: abs(y - 4) + 20 - x, 5: y + abs(x - 10)}
    ordered = np.stack([away[label] for label in (3, 5, 7)])
    np.testing.assert_array_equal(result["cost"].values, ordered.min(0))
    np.testing.assert_array_equal(
        result["allocation"].values, np.array([3, 5, 7])[ordered.argmin(0)]
    )
    assert ((ordered == ordered.min(0)).sum(0) > 1).sum() > 9, "no ties: this would prove nothing"


def test_negative_and_large_labels_are_ordered_as_numbers() -> None:
    labels = np.zeros((1, 9), np.int64)
    labels[0, 0], labels[0, 4], labels[0, 8] = 2**53 + 1, -5, 2
    result = og.cost_distance(np.ones((1, 9)), labels, tile=2, outputs=ALL)
    expected = [2**53 + 1, 2**53 + 1, -5, -5, -5, -5, -5, 2, 2]
    assert result["allocation"].values[0].tolist() == expected


@pytest.mark.parametrize("tile", [2, 5, 12])
def test_of_points_on_one_cell_the_cheapest_and_then_the_first_serves(tile: int) -> None:
    sources = [(3, 3, 0, 4.0), (3, 3, 1, 1.0), (3, 3, 2, 1.0), (9, 9, 3, 0.0), (9, 9, 4, 0.0)]
    grid = np.ones((12, 12))
    result = og.cost_distance(
        grid,
        points(sources),
        initial_cost=[s[3] for s in sources],
        connectivity=4,
        tile=tile,
        outputs=ALL,
    )
    assert_is(result, oracle.list_steps(grid, connectivity=4), sources)
    assert set(np.unique(result["allocation"].values)) == {1, 3}


@pytest.mark.parametrize("tile", [3, 20])
def test_a_source_dearer_than_the_way_to_it_is_passed_over(tile: int) -> None:
    sources = [(2, 2, 0, 0.0), (2, 9, 1, 7.0), (2, 17, 2, 30.0)]
    grid = np.ones((5, 20))
    result = og.cost_distance(
        grid, points(sources), initial_cost=[0, 7, 30], connectivity=4, tile=tile, outputs=ALL
    )
    assert_is(result, oracle.list_steps(grid, connectivity=4), sources)
    assert (result["allocation"].values == 0).all(), "label 1 is as near as 0 and not smaller"
    one = og.cost_distance(grid, [(2, 2)], initial_cost=2.5, connectivity=4, tile=tile)
    assert float(one["cost"][2, 2]) == 2.5
    assert float(one["cost"][2, 4]) == 4.5


def test_source_values_choose_among_the_labels() -> None:
    grid = obstacles((30, 31), 0.1)
    labels = np.where(np.isnan(grid), 0, np.random.default_rng(2).integers(0, 40, grid.shape))
    labels[labels > 6] = 0
    for chosen in ([2], [5, 3], [1, 2, 3, 4, 5, 6]):
        sources = [
            (y, x, int(labels[y, x]), 0.0) for y, x in np.argwhere(np.isin(labels, chosen)).tolist()
        ]
        result = og.cost_distance(grid, labels, source_values=chosen, tile=8, outputs=ALL)
        assert_is(result, oracle.list_steps(grid), sources)
        if len(chosen) == 6:
            assert_same(og.cost_distance(grid, labels, tile=11, outputs=ALL), result)


@pytest.fixture(scope="module", params=[7, 13, 60])
def free(request: pytest.FixtureRequest) -> tuple[np.ndarray, int, xr.Dataset]:
    """A grid, a tile, and the distances by such tiles without a limit."""
    grid, tile = obstacles((60, 55)), request.param
    return grid, tile, og.cost_distance(grid, [(0, 0), (54, 59)], tile=tile, outputs=ALL)


@pytest.mark.diagonal
@pytest.mark.parametrize("share", [0.0, 0.05, 0.4, 0.99, 1.0])
@pytest.mark.parametrize("off", [0.0, 0.01], ids=["on a cell's cost", "beside it"])
def test_max_cost_is_exact(
    share: float, off: float, free: tuple[np.ndarray, int, xr.Dataset]
) -> None:
    """Cells as far as that or nearer are as without it, bit by bit; no other is reached."""
    grid, tile, whole = free
    how = {"outputs": ALL, "tile": tile}
    cost = whole["cost"].values
    attained = np.sort(cost[np.isfinite(cost)])
    max_cost = float(attained[int(share * (attained.size - 1))]) + off
    near = cost <= max_cost
    bounded = og.cost_distance(grid, [(0, 0), (54, 59)], max_cost=max_cost, **how)
    for name, nothing in (("cost", np.nan), ("back_direction", 255), ("allocation", -1)):
        np.testing.assert_array_equal(
            bounded[name].values, np.where(near, whole[name].values, nothing)
        )
    assert bounded.attrs["reached_cells"] == near.sum()
    assert bounded.attrs["unreached_cells"] == (np.isfinite(grid) & ~near).sum()


@pytest.mark.parametrize("cost", ["walk", "tobler"])
def test_to_is_from_over_the_graph_with_every_step_turned_round(cost: str) -> None:
    elevation = np.random.default_rng(4).integers(0, 9, (40, 37)) * 0.25
    ways = {}
    for travel in ("from", "to"):
        results = [
            og.walking_time(
                elevation,
                [(5, 5), (30, 30)],
                model=cost,
                travel=travel,
                tile=tile,
                outputs=("time", *ALL[1:]),
            )
            for tile in (40, 9)
        ]
        assert_same(*results)
        ways[travel] = results[0]["time"].values
        steps = oracle.list_steps(None, elevation, cost=cost, travel=travel)
        expected = oracle.cost_distance(steps, elevation.shape, at((5, 5), (30, 30)))
        np.testing.assert_allclose(ways[travel], expected.cost, rtol=1e-12)
    assert (ways["from"] != ways["to"]).any()


def located(grid: np.ndarray, y: np.ndarray, x: np.ndarray, crs: str) -> xr.DataArray:
    return xr.DataArray(grid, dims=("y", "x"), coords={"y": y, "x": x}).rio.write_crs(crs)


@CONNECTIVITY
def test_cells_that_are_not_square_are_as_long_as_their_coordinates_say(connectivity: int) -> None:
    grid = obstacles((40, 37), 0.1)
    raster = located(grid, 900 - 30.0 * np.arange(40), 500 + 12.5 * np.arange(37), "EPSG:32611")
    result = og.cost_distance(raster, [(500, 900)], connectivity=connectivity, tile=9, outputs=ALL)
    steps = oracle.list_steps(grid, connectivity=connectivity, lengths=oracle.planar((30.0, 12.5)))
    expected = oracle.cost_distance(steps, grid.shape, at((0, 0)))
    np.testing.assert_allclose(result["cost"].values, expected.cost, rtol=1e-12)
    np.testing.assert_array_equal(result["y"], raster["y"])
    assert result["cost"].rio.crs.to_epsg() == 32611
    upside_down = og.cost_distance(
        raster[::-1], [(500, 900)], connectivity=connectivity, tile=9, outputs=ALL
    )
    np.testing.assert_allclose(upside_down["cost"].values[::-1], expected.cost, rtol=1e-12)
    sent = og.cost_distance(
        grid, [(0, 0)], cell_size=(30, 12.5), connectivity=connectivity, tile=13, outputs=ALL
    )
    assert_same(sent.drop_vars(set(sent.coords)), result.drop_vars(set(result.coords)))


@pytest.mark.diagonal
@CONNECTIVITY
@pytest.mark.parametrize("south", [-1, 1], ids=["north", "south"])
def test_degrees_are_metres_along_the_ellipsoid(connectivity: int, south: int) -> None:
    """From 60 degrees to past 69 a degree of longitude shrinks by a third."""
    grid = obstacles((40, 30), 0.1)
    latitudes = south * -(69.75 - 0.25 * np.arange(40))
    raster = located(grid, latitudes, -10 + 0.5 * np.arange(30), "EPSG:4326")
    source = [(-10, float(latitudes[0]))]
    results = [
        og.cost_distance(raster, source, connectivity=connectivity, tile=tile, outputs=ALL)
        for tile in (40, 7)
    ]
    assert_same(*results)
    steps = oracle.list_steps(
        grid, connectivity=connectivity, lengths=oracle.geodesic(latitudes, 0.5)
    )
    expected = oracle.cost_distance(steps, grid.shape, at((0, 0)))
    np.testing.assert_allclose(results[0]["cost"].values, expected.cost, rtol=1e-9)


@CONNECTIVITY
def test_float32_rounds_at_each_addition(connectivity: int) -> None:
    """Frictions of many bits: the sums differ from those of float64, and not by order of work."""
    rng = np.random.default_rng(12)
    grid = (rng.random((30, 33)) * 10).astype(np.float32)
    grid[rng.random(grid.shape) < 0.2] = np.nan
    grid[0, 0] = 1
    how = {"connectivity": connectivity, "dtype": "float32", "outputs": ALL}
    whole = og.cost_distance(grid, [(0, 0)], tile=33, **how)
    assert whole["cost"].dtype == np.float32
    for tile in (2, 7, 16):
        assert_same(og.cost_distance(grid, [(0, 0)], tile=tile, **how), whole)
    steps = oracle.list_steps(grid, connectivity=connectivity, dtype="float32")
    heap = oracle.heap_distance(steps, grid.shape, at((0, 0)), np.float32)
    cost = np.nan_to_num(whole["cost"].values, nan=-1)
    if connectivity == 16:  # means of four may be added in another order
        np.testing.assert_allclose(cost, heap, rtol=1e-5)
    else:
        assert_is(whole, steps, at((0, 0)))
    double = og.cost_distance(grid, [(0, 0)], connectivity=connectivity, tile=9)["cost"].values
    np.testing.assert_allclose(whole["cost"].values, double, rtol=1e-5)
    assert (whole["cost"].values != double).any()


def test_integers_are_exact_where_floats_are_not() -> None:
    # even, and the mean of two of them often odd: no step is a float64
    grid = 2 * (np.random.default_rng(1).integers(2**53, 2**54, (9, 11)) | 1)
    results = [
        og.cost_distance(
            grid, [(0, 0)], dtype="int64", cell_size=1, connectivity=4, tile=tile, outputs=ALL
        )
        for tile in (11, 2)
    ]
    assert_same(*results)
    cost = results[0]["cost"].values
    assert cost.dtype == np.int64
    # by hand: Bellman and Ford, in Python's integers
    cells = grid.tolist()
    best = {(0, 0): 0}
    for _ in range(grid.size):
        for (y, x), c in list(best.items()):
            for v, u in ((y, x + 1), (y + 1, x), (y, x - 1), (y - 1, x)):
                if 0 <= v < 9 and 0 <= u < 11:
                    step = (cells[y][x] + cells[v][u]) // 2
                    best[v, u] = min(best.get((v, u), 2**63), c + step)
    assert {k: int(cost[k]) for k in best} == best
    walled = np.where(np.arange(11) == 5, -1, np.full((9, 1), 2))
    beyond = og.cost_distance(
        walled, [(0, 0)], nodata=-1, dtype="int64", cell_size=1, connectivity=4, tile=3
    )
    assert (beyond["cost"].values[:, 5:] == -1).all()


def test_heights_in_integers_differ_by_integers() -> None:
    elevation = np.random.default_rng(1).integers(0, 50, (20, 21))
    results = [
        og.cost_distance(
            elevation,
            [(3, 3)],
            cost="absolute_difference",
            dtype=dtype,
            tile=6,
            cell_size=1,
        )["cost"].values
        for dtype in ("int64", "float64")
    ]
    np.testing.assert_array_equal(*results)


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        pytest.param(
            *(shape, tile),
            id=f"{tile}-{name}",
            # a thousand tiles, of which the other grids have some hundred
            marks=pytest.mark.long if shape == (33, 34) and tile < 4 else [],
        )
        for name, shape in {
            "1 and 2 cells": (33, 34),
            "1 and 2 cells, small": (17, 18),
            "3 and 0": (35, 16),
        }.items()
        for tile in (1, 2, 3, 4, 16)
    ],
)
def test_knights_cross_tiles_of_a_cell_or_two(shape: tuple[int, int], tile: int) -> None:
    """The last row and column of tiles are thinner than a knight's move is long."""
    grid = obstacles(shape, 0.15)
    sources = at((0, 0), (shape[0] - 1, shape[1] - 1))
    result = og.cost_distance(grid, points(sources), connectivity=16, tile=tile, outputs=ALL)
    assert_is(result, oracle.list_steps(grid, connectivity=16), sources)
    assert (result["back_direction"].values[result["allocation"].values >= 0] > 8).any()


KNIGHTS = {
    "friction": {"friction": np.ones((6, 7))},
    "height differences": {"elevation": np.ones((6, 7)), "cost": "absolute_difference"},
    "walking": {"elevation": np.ones((6, 7)), "cost": "walk"},
    "walking over friction": {
        "friction": np.ones((6, 7)),
        "elevation": np.ones((6, 7)),
        "cost": "walk",
    },
    "Tobler": {"elevation": np.ones((6, 7)), "cost": "tobler"},
}


@pytest.mark.parametrize(
    ("case", "barrier"),
    [(case, name) for case, sent in KNIGHTS.items() for name in ("friction", "elevation")
     if name in sent],
)  # fmt: skip
def test_a_knight_does_not_jump_over_a_wall(case: str, barrier: str) -> None:
    """A wall one cell thick: GRASS' mean of four cells is nodata if any of them is."""
    sent = {key: v.copy() if isinstance(v, np.ndarray) else v for key, v in KNIGHTS[case].items()}
    sent[barrier][:, 3] = np.nan
    result = distance(**sent, sources=[(0, 0)], connectivity=16, tile=3, outputs=ALL)
    beyond = np.isfinite(result["cost"].values[:, 4:])
    assert not beyond.any(), f"{beyond.sum()} of 18 cells beyond the wall are reached"
    assert result.attrs["unreached_cells"] == 18


def test_reached_and_unreached_are_told_apart_in_the_attributes() -> None:
    grid = obstacles((30, 30), 0.5)
    result = og.cost_distance(grid, [(0, 0)], connectivity=4, tile=8)
    reached = np.isfinite(result["cost"].values)
    assert list(result.data_vars) == ["cost"]
    assert result.attrs["reached_cells"] == reached.sum()
    assert result.attrs["unreached_cells"] == (np.isfinite(grid) & ~reached).sum()
    assert result.attrs["nodata_cells"] == np.isnan(grid).sum()


def test_the_input_is_left_as_it_was() -> None:
    grid, labels = obstacles((30, 30)), np.eye(30, dtype=int)
    labels[np.isnan(grid)] = 0
    before = grid.tobytes(), labels.tobytes()
    og.cost_distance(grid, labels, tile=7, outputs=ALL)
    assert (grid.tobytes(), labels.tobytes()) == before


# --- threads, disk, workers ----------------------------------------------------------------------

LARGE = obstacles((150, 170))
LARGE_SOURCES = at((0, 0), (149, 169), (149, 169))


@pytest.fixture(scope="module")
def expected() -> xr.Dataset:
    result = og.cost_distance(LARGE, points(LARGE_SOURCES), tile=170, outputs=ALL)
    assert_is(result, oracle.list_steps(LARGE), LARGE_SOURCES)
    return result


@pytest.mark.diagonal
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("tile", [14, 50, 101])
@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "on disk"])
def test_any_number_of_threads_gives_the_same_bits(
    tmp_path: Path, expected: xr.Dataset, threads: int, tile: int, stored: bool
) -> None:
    out = tmp_path / "cost.zarr" if stored else None
    with og.config.set(threads=threads):
        result = og.cost_distance(LARGE, points(LARGE_SOURCES), tile=tile, outputs=ALL, out=out)
    assert_same(result, expected)
    if out:
        assert_same(og.open(out), expected)


@pytest.fixture(scope="module", params=[1, 2], ids=["1 worker", "2 workers"])
def client(request: pytest.FixtureRequest, clients: Callable[[int], Client]) -> Client:
    return clients(request.param)


@pytest.mark.parametrize(
    ("client", "tile"),
    [
        pytest.param(1, 47, id="1 worker-47", marks=pytest.mark.long),
        pytest.param(2, 12, id="2 workers-12"),
        pytest.param(1, 12, id="1 worker-12", marks=pytest.mark.long),
        pytest.param(2, 47, id="2 workers-47", marks=pytest.mark.long),
    ],
    indirect=["client"],
)
def test_any_number_of_workers_gives_the_same_bits(
    client: Client, tmp_path: Path, expected: xr.Dataset, tile: int
) -> None:
    og.ingest(LARGE, tmp_path / "friction.zarr", tile=tile)
    out = tmp_path / "cost.zarr"
    with get_task_stream(client) as stream:
        result = og.cost_distance(
            tmp_path / "friction.zarr",
            points(LARGE_SOURCES),
            out=out,
            outputs=ALL,
            client=client,
            shard=8 * tile,
        )
    assert_same(result, expected)
    assert_same(og.open(out), expected)
    workers = set(client.scheduler_info(n_workers=-1)["workers"])
    if tile == 12:
        assert {task["worker"] for task in stream.data} == workers, "a worker had no part in it"


# --- nothing lost --------------------------------------------------------------------------------


TILE, SHARD = 10, 80
TILES = -(-150 // TILE) * -(-170 // TILE)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    og.ingest(LARGE, tmp_path / "friction.zarr", tile=TILE)
    return tmp_path / "friction.zarr"


def held_run(stored: Path, out: Path, gate: Gate, client: Client) -> og.Run[xr.Dataset]:
    """Submit the distance to all outputs, and return its run, whose reading the gate holds."""
    raster = WatchedRaster(stored, out.with_name("diary.txt"), gate=gate)
    how: dict[str, Any] = {"outputs": ALL, "out": out, "shard": SHARD, "client": client}
    run: og.Run[xr.Dataset] = called(
        gate, og.cost_distance.submit, raster, points(LARGE_SOURCES), **how
    )
    return run


@pytest.mark.long  # `test_three_kills_stall_no_cost_distance_and_change_no_bit` is a quick form
def test_workers_killed_in_the_middle_of_the_front_change_no_bit(
    stored: Path, tmp_path: Path, expected: xr.Dataset, gate: Gate
) -> None:
    """Five times, at several places of the front; each time the nanny starts another worker."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 20}),
        mortal_cluster(2) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        victims = set()
        run = held_run(stored, tmp_path / "cost.zarr", gate, client)
        for share in (0.01, 0.1, 0.3, 0.5, 0.8):
            wait_until(
                gate.until(lambda share=share: run.progress().done >= share * TILES),
                lambda: run.status == "running" or run.result() is None,
            )
            workers = [w for w in cluster.workers.values() if w.pid not in victims]
            victim = workers[len(victims) % len(workers)].pid
            os.kill(victim, signal.SIGKILL)
            victims.add(victim)
            client.wait_for_workers(2)
        assert run.status == "running", "it was over before the last was killed"
        gate.open()
        result = run.result()
        assert len(victims) == 5
        assert_same(result, expected)
        assert_same(og.open(tmp_path / "cost.zarr"), expected)


@pytest.mark.long
def test_a_worker_that_is_terminated_saves_its_states(
    stored: Path, tmp_path: Path, expected: xr.Dataset, gate: Gate
) -> None:
    """As SLURM and Kubernetes do: SIGTERM to the process of ``dask worker``; the run goes on."""
    out = tmp_path / "cost.zarr"
    with (
        mortal_cluster(1) as cluster,
        Client(cluster, set_as_default=False) as client,
        subprocess.Popen(
            [
                *(sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address),
                *("--nthreads", "1", "--no-dashboard", "--local-directory", str(tmp_path)),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.PIPE,
            text=True,
        ) as ended,
    ):
        try:
            client.wait_for_workers(2, timeout=300)
            client.run(save_nothing_before_the_end)
            run = held_run(stored, out, gate, client)
            wait_until(
                gate.until(lambda: run.progress().done >= 0.5 * TILES),
                lambda: run.status == "running" or run.result() is None,
            )
            assert not list(tmp_path.glob(SAVED))
            ended.send_signal(signal.SIGTERM)
            assert ended.wait(60) == 0, ended.stderr and ended.stderr.read()
            assert list(tmp_path.glob(SAVED))
        finally:
            gate.open()
            ended.kill()
        assert_same(run.result(), expected)
    assert_same(og.open(out), expected)


SAVED = "*.partial/**/state-0/*"


def save_nothing_before_the_end() -> None:
    """Let no worker save states while it works."""
    tile_states.SAVING = 1e-9


DRIVER = """
import sys
from contextlib import nullcontext
from pathlib import Path
import orograph as og
from watched_raster import Gate, WatchedRaster
if __name__ == "__main__":
    source, out, diary, gate, workers, shard = sys.argv[1:]
    started = nullcontext()
    if int(workers):
        started = og.cluster(n_workers=int(workers), dashboard_address=None)
    with started as client, og.config.set(threads=1):
        og.cost_distance(
            WatchedRaster(source, Path(diary), gate=Gate(gate)),
            [(0, 0), (169, 149), (169, 149)], out=out, client=client, shard=int(shard),
            outputs=("cost", "back_direction", "allocation"),
        )
"""


@pytest.mark.parametrize(
    ("share", "workers"),
    [
        pytest.param(0.6, 0, id="threads"),
        pytest.param(0.95, 2, id="cluster", marks=pytest.mark.long),
        *(
            pytest.param(share, workers, marks=pytest.mark.long)
            for share, workers in [(0.02, 0), (0.02, 2), (0.6, 2), (0.95, 0)]
        ),
    ],
)
def test_a_session_killed_is_resumed_to_the_same_bits(
    stored: Path, tmp_path: Path, expected: xr.Dataset, workers: int, share: float, gate: Gate
) -> None:
    out = tmp_path / "cost.zarr"
    arguments = [stored, out, tmp_path / "d.txt", gate.folder, workers, SHARD]
    kill_session(DRIVER, arguments, gate, lambda: gate.arrived() >= share * TILES, workers)
    assert not out.exists()
    assert out.with_name("cost.zarr.partial").exists()
    how: dict[str, Any] = {"outputs": ALL, "shard": SHARD, "out": out, "resume": True}
    result = og.cost_distance(stored, points(LARGE_SOURCES), **how)
    assert_same(result, expected)
    assert_same(og.open(out), expected)
    assert not out.with_name("cost.zarr.partial").exists()


def test_a_run_broken_off_before_it_saved_its_keys_finds_its_sources_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States on disk are further than the driver knows: all of them had converged."""
    friction = np.random.default_rng(9).integers(0, 9, (20, 30)).astype(float)
    sources = at((3, 4), (18, 25))
    sources = [(y, x, label + 1, cost) for y, x, label, cost in sources]
    arguments = friction, raster_of(sources, friction.shape)
    options = {"outputs": ALL, "tile": 8, "out": tmp_path / "c.zarr"}
    write = driver._Driver.write

    def broken_off(self: Any, *rest: Any) -> dict[str, Any]:
        if self.problem.name == "allocation":
            raise KeyboardInterrupt
        return write(self, *rest)

    with monkeypatch.context() as patch, og.config.set(field=0):
        patch.setattr(tile_states, "room_for_states", lambda *_: 0)
        patch.setattr(driver._Driver, "_save", lambda self: None)
        patch.setattr(driver._Driver, "write", broken_off)
        with pytest.raises(KeyboardInterrupt):
            og.cost_distance(*arguments, **options)
        patch.setattr(driver._Driver, "write", write)
        found = og.cost_distance(*arguments, **options, resume=True)
    assert_is(found, oracle.list_steps(friction), sources)
