"""Given streams: water follows lines to their ends, and leaves them there alone."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from distributed import Client
from shapely import LineString, MultiLineString, Point
from terrain_cases import fractal

import orograph as og

Cells = np.ndarray[Any, Any]
STEPS = ((0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1), (1, 0), (1, 1))
"""Steps (rows, columns) of TauDEM's codes, from 1."""
SEEDS = [*range(8), *(pytest.param(n, marks=pytest.mark.long) for n in range(8, 160))]
pytestmark = pytest.mark.filterwarnings("ignore:streams. ")


def drawn_downstream(random: Any, shape: tuple[int, int]) -> list[list[tuple[int, int]]]:
    """Draw paths over neighbouring cells that never lead back to one another's beginnings."""
    rank = random.permutation(shape[0] * shape[1]).reshape(shape)
    paths = []
    for _ in range(int(random.integers(1, 6))):
        cell = tuple(int(random.integers(n)) for n in shape)
        path = [cell]
        for _ in range(int(random.integers(1, 12))):
            others = [
                (cell[0] + dy, cell[1] + dx)
                for dy, dx in STEPS
                if 0 <= cell[0] + dy < shape[0] and 0 <= cell[1] + dx < shape[1]
            ]
            lower = [other for other in others if rank[other] < rank[cell]]
            if not lower:
                break
            cell = lower[int(random.integers(len(lower)))]
            path.append(cell)
        if len(path) > 1:
            paths.append(path)
    return paths


def next_cells(paths: list[list[tuple[int, int]]], valid: Cells) -> dict[Any, Any]:
    """The next cell of each cell of lines, None where all end; the first line decides."""
    follows: dict[Any, Any] = {}
    for path in paths:
        for cell, other in itertools.pairwise(path):
            if valid[cell] and follows.get(cell) is None:
                follows[cell] = other
        if valid[path[-1]]:
            follows.setdefault(path[-1], None)
    return follows


def least_upstream(heights: Cells, follows: dict[Any, Any]) -> dict[Any, float]:
    """The least height of all cells that lead to each, by a plain walk from every cell."""
    least = {cell: float(heights[cell]) for cell in follows}
    for start in follows:
        cell, low = start, float(heights[start])
        while cell in follows:
            low = min(low, float(heights[cell]))
            least[cell] = min(least[cell], low)
            cell = follows[cell]
    return least


@pytest.mark.parametrize("seed", SEEDS)
def test_water_follows_lines_and_always_leaves(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(4, 16, 2).tolist())
    heights = random.random(shape) * 9 if seed % 2 else random.integers(0, 5, shape) * 1.0
    heights[random.random(shape) < random.choice([0, 0.08])] = np.nan
    valid = np.isfinite(heights)
    paths = drawn_downstream(random, shape)
    if not paths or not valid.any():
        pytest.skip("nothing is drawn")
    lines = [LineString([(x, y) for y, x in path]) for path in paths]
    burn = float(random.choice([0, 0.5, 20]))
    given: dict[str, Any] = {"streams": lines, "burn": burn}
    if not any(cell in next_cells(paths, valid) for path in paths for cell in path):
        pytest.skip("all lines lie on nodata")
    tile = int(random.integers(1, 9))
    found = og.flow_direction(heights, tile=tile, **given)
    codes = found["direction"].values
    np.testing.assert_array_equal(codes, og.flow_direction(heights, **given)["direction"])
    follows = next_cells(paths, valid)
    for (y, x), other in follows.items():
        if other is not None:
            dy, dx = STEPS[codes[y, x] - 1]
            assert (y + dy, x + dx) == other
    least = least_upstream(heights, follows)
    rises = {cell: heights[cell] - low for cell, low in least.items() if heights[cell] - low > burn}
    assert (found.attrs["stream_rises"] > 0) == bool(rises)
    assert found.attrs["sink_count"] == 0
    # no walk is a circle, and each ends beyond the grid or on nodata
    for start in map(tuple, np.argwhere(valid).tolist()):
        cell = start
        for _ in range(heights.size):
            dy, dx = STEPS[codes[cell] - 1]
            cell = cell[0] + dy, cell[1] + dx
            if not (0 <= cell[0] < shape[0] and 0 <= cell[1] < shape[1] and valid[cell]):
                break
        else:
            pytest.fail("water goes in a circle")
    # The surface: heights are lowered along lines, then filled from outlets with a step, where
    # water of a cell of a line comes from the next one alone.
    low = heights.copy()
    for cell, value in least.items():
        low[cell] = value - burn
    surface = filled(low, follows)
    for start in map(tuple, np.argwhere(valid).tolist()):
        if follows.get(start) is not None:
            continue
        best, steepest = 0.0, 0
        for code, (dy, dx) in enumerate(STEPS, 1):
            y, x = start[0] + dy, start[1] + dx
            if 0 <= y < shape[0] and 0 <= x < shape[1] and valid[y, x]:
                slope = (surface[start] - surface[y, x]) * (1 / np.hypot(dy, dx))
                if slope > best:
                    best, steepest = slope, code
        assert steepest in (0, codes[start])
    sums = og.flow_accumulation(heights, method="d8", **given)["accumulation"]
    np.testing.assert_array_equal(sums, og.flow_accumulation(found)["accumulation"])


def filled(heights: Cells, follows: dict[Any, Any]) -> Cells:
    """The least surface from which water leaves, by rounds over all cells until none changes."""
    height, width = heights.shape
    surface = np.full(heights.shape, np.inf)
    changed = True
    while changed:
        changed = False
        for y, x in np.argwhere(np.isfinite(heights)).tolist():
            target = follows.get((y, x))
            others = [(y + dy, x + dx) for dy, dx in STEPS] if target is None else [target]
            level = np.inf
            for i, j in others:
                if 0 <= i < height and 0 <= j < width and np.isfinite(heights[i, j]):
                    below = surface[i, j]
                    if np.isfinite(below):
                        level = min(level, below + np.spacing(max(abs(below), 1)))
                else:
                    level = -np.inf
            new = max(heights[y, x], level)
            if new < surface[y, x]:
                surface[y, x], changed = new, True
    return surface


@pytest.mark.parametrize("turn", [(1, -1), (-1, 1), (-1, -1)])
def test_rows_and_columns_may_be_stored_in_any_order(turn: tuple[int, int]) -> None:
    random = np.random.default_rng(3)
    y, x = 100.0 - 10 * np.arange(9), 500 + 10.0 * np.arange(12)
    dem = xr.DataArray(random.random((9, 12)), {"y": y, "x": x}, ("y", "x"))
    line = [LineString([(x[1], y[1]), (x[5], y[5]), (x[5], y[8]), (x[5], y[8] - 9)])]
    given: dict[str, Any] = {"streams": line, "burn": 1}
    expected = og.flow_direction(dem, **given)["direction"]
    found = og.flow_direction(dem[:: turn[0], :: turn[1]], **given)["direction"]
    xr.testing.assert_equal(found.sortby("y", ascending=False).sortby("x"), expected)
    assert expected.values[1:5, 1:5].diagonal().tolist() == [8] * 4
    assert expected.values[5:, 5].tolist() == [7] * 4


@pytest.mark.parametrize("seed", range(4))
def test_a_line_goes_on_over_the_seam(seed: int) -> None:
    heights = np.random.default_rng(seed).random((6, 9))
    line = LineString([(7, 2), (12, 2), (12, 5.6)])
    codes = og.flow_direction(heights, streams=line, burn=1, wrap=True, tile=4)["direction"].values
    assert codes[2, [7, 8, 0, 1, 2]].tolist() == [1] * 5
    assert codes[2:, 3].tolist() == [7] * 4
    rolled = og.flow_direction(
        np.roll(heights, 1, 1), streams=LineString([(8, 2), (13, 2), (13, 5.6)]), burn=1, wrap=True
    )["direction"].values
    np.testing.assert_array_equal(np.roll(codes, 1, 1), rolled)


def test_water_of_four_neighbours_follows_a_line_by_its_edges() -> None:
    heights = np.random.default_rng(3).random((6, 6))
    codes = og.flow_direction(
        heights, streams=LineString([(0, 0), (4, 4), (4, 5.7)]), connectivity=4
    )["direction"].values
    cell, path = (0, 0), []
    while cell[0] < 6:
        path.append(cell)
        dy, dx = STEPS[codes[cell] - 1]
        cell = cell[0] + dy, cell[1] + dx
    assert path == [*((n // 2, (n + 1) // 2) for n in range(9)), (5, 4)]


def test_cells_of_a_raster_are_lowered_and_nothing_else() -> None:
    heights = np.random.default_rng(5).integers(0, 90, (20, 24)).astype(np.int16)
    mask = (np.random.default_rng(6).random((20, 24)) < 0.2).astype(np.uint8)
    lowered = heights - 7.5 * mask
    for given in ({}, {"depressions": "keep"}, {"depressions": "breach"}, {"flats": "gradient"}):
        found = og.flow_direction(heights, streams=mask, burn=7.5, tile=8, **given)
        expected = og.flow_direction(lowered, **given)
        np.testing.assert_array_equal(found["direction"], expected["direction"])
        sums = og.flow_accumulation(heights, method="d8", streams=mask, burn=7.5, **given)
        np.testing.assert_array_equal(
            sums["accumulation"], og.flow_accumulation(expected)["accumulation"]
        )
    angles = og.flow_direction(heights, streams=mask, burn=7.5, method="dinf")
    np.testing.assert_array_equal(
        angles["direction"], og.flow_direction(lowered, method="dinf")["direction"]
    )
    weights = np.random.default_rng(7).random((20, 24))
    given = {"method": "mfd", "weights": weights}
    sums = og.flow_accumulation(heights, streams=mask, burn=7.5, **given)
    np.testing.assert_array_equal(
        sums["accumulation"],
        og.flow_accumulation(lowered, **given)["accumulation"],
    )


def test_water_of_a_line_ends_at_an_outlet_on_it() -> None:
    heights = np.random.default_rng(3).random((7, 9))
    line = LineString([(1, 3), (7, 3)])
    found = og.flow_direction(
        heights, streams=line, outlets=[(4, 3), (7, 3)], edges="closed", tile=3
    )
    codes = found["direction"].values
    assert codes[3, 1:8].tolist() == [1, 1, 1, 0, 1, 1, 0]
    assert found.attrs["sink_count"] == 2
    assert found.attrs["stream_gaps"] == 0


def test_ground_that_no_outlet_drains_has_no_circle_along_a_line() -> None:
    heights = np.full((3, 9), 5.0)
    heights[:, 4] = np.nan
    found = og.flow_direction(
        heights, streams=LineString([(5, 1), (7, 1)]), outlets=[(0, 0)], edges="closed"
    )["direction"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        og.flow_accumulation(found)


def test_what_ends_within_the_grid_or_rises_is_told() -> None:
    heights = np.array([[9.0, 9, 9, 9, 9], [9, 5, 7, 9, 9], [9, 9, 9, 9, 9]])
    line = LineString([(1, 1), (2, 1)])
    with pytest.warns(RuntimeWarning, match="no other line: 1, that of line 0 at row 1, column 2"):
        found = og.flow_direction(heights, streams=[line], burn=2)
    assert found.attrs["stream_gaps"] == 1
    assert found.attrs["stream_rises"] == 0
    with pytest.warns(RuntimeWarning, match=r"more than burn=1\.5: 1, line 0 by 2; are they"):
        found = og.flow_direction(heights, streams=[line], burn=1.5)
    assert found.attrs["stream_rises"] == 1


def test_the_line_that_stands_first_decides_and_layers_are_read_from_files(tmp_path: Path) -> None:
    heights = np.ones((5, 5))
    east, south = LineString([(0, 2), (4.6, 2)]), LineString([(2, 0), (2, 4.6)])
    assert og.flow_direction(heights, streams=[east, south])["direction"].values[2, 2] == 1
    both = og.flow_direction(heights, streams=[south, east])["direction"].values
    assert both[2, 2] == 7
    geopandas = pytest.importorskip("geopandas")
    with pytest.warns(UserWarning, match="'crs' was not provided"):
        geopandas.GeoSeries([south, east]).to_file(tmp_path / "lines.gpkg")
    found = og.flow_direction(heights, streams=tmp_path / "lines.gpkg")["direction"]
    np.testing.assert_array_equal(found, both)
    parts = MultiLineString([south, east])
    assert og.flow_direction(heights, streams=parts)["direction"].values[2, 4] == 1


def test_going_back_the_way_a_line_came_is_no_loop() -> None:
    line = LineString([(0, 1), (3, 1), (2, 1), (2, 2.6)])
    codes = og.flow_direction(np.ones((3, 5)), streams=line)["direction"].values
    assert codes[1, :4].tolist() == [1, 1, 7, 5]


RING = [(1, 1), (3, 1), (3, 3), (1, 3), (1, 1)]
POINT = [Point(1, 1)]
HEIGHTS = np.arange(36.0).reshape(6, 6)
LINE = LineString([(0, 1), (5, 1)])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"streams": LineString(RING)},
            "line 0 comes back to row 1, column 1 in a loop of 8",
        ),
        (
            {"streams": [LineString(RING[:3]), LineString(RING[2:])]},
            r"streams: line \d leads in a loop through row \d, column \d; lines must",
        ),
        ({"streams": POINT}, "streams: a Point among them; give lines"),
        ({"streams": HEIGHTS > 7}, "burn: a raster of streams only lowers heights"),
        ({"streams": HEIGHTS[:3], "burn": 1}, "streams: "),
        ({"streams": LINE, "burn": -1}, "burn: -1; it must be a number, at least 0"),
        ({"burn": 1}, "burn: of no use for heights without streams="),
        ({"streams": LINE, "depressions": "keep"}, "depressions: of no use for lines as streams="),
        ({"streams": LINE, "flats": "gradient"}, "flats: of no use for lines as streams="),
        ({"streams": LINE, "method": "dinf"}, "method: of no use for lines as streams="),
        ({"streams": LineString([(90, 0), (99, 0)])}, "streams: geometry 0, .* outside the grid"),
        ({"streams": "none.gpkg"}, "streams: "),
    ],
)
def test_what_is_no_stream_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(og.InputError, match=message):
        og.flow_direction(HEIGHTS, **given)


def test_two_workers_and_a_store_give_the_same_bits(
    tmp_path: Path, clients: Callable[[int], Client]
) -> None:
    heights = fractal(120)
    given: dict[str, Any] = {"streams": LineString([(10, 10), (60, 90), (119.9, 100)]), "burn": 3}
    alone = og.flow_direction(heights, **given)
    out = tmp_path / "flow.zarr"
    og.flow_direction(heights, **given, out=out, tile=16, shard=32, client=clients(2))
    np.testing.assert_array_equal(og.open(out)["direction"], alone["direction"])
    assert og.flow_direction.plan(heights, **given).tasks > 0


@pytest.mark.parametrize("places", [[(0, 1.5), (3, 1.5)], [(0.5, 3), (0.5, 0)], [(0, 1), (1.5, 1)]])
@pytest.mark.parametrize("axis", ["y", "x"])
@pytest.mark.filterwarnings("ignore:streams. ends of lines")
def test_a_line_along_borders_of_cells_goes_by_the_compass(places: Any, axis: str) -> None:
    y, x = [3.0, 2, 1, 0], [0.0, 1, 2, 3]
    dem = xr.DataArray(np.full((4, 4), 5.0), {"y": y, "x": x}, ("y", "x"))
    given: dict[str, Any] = {"streams": [LineString(places)], "burn": 1}
    expected = og.flow_direction(dem, **given)["direction"]
    turned = dem.sortby(axis, ascending=axis == "y")
    found = og.flow_direction(turned, **given)["direction"]
    xr.testing.assert_equal(found.sortby("y", ascending=False).sortby("x"), expected)


def test_a_line_into_ground_that_no_outlet_drains_is_not_refused() -> None:
    outlets = np.array([[0, 0, 0, 1]], np.uint8)
    given: dict[str, Any] = {"edges": "closed", "outlets": outlets}
    line = LineString([(1, 0), (0, 0)])
    found = og.flow_direction(np.array([[5, 5, 9, 5.0]]), streams=line, tile=1, **given)
    assert found["direction"].values[0, 3] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        og.flow_accumulation(found)


def test_with_closed_edges_a_line_into_nodata_ends_before_it() -> None:
    heights = np.array([[4, np.nan, 5, 5], [5, 9, 9, 5.0]])
    outlets = np.zeros(heights.shape, np.uint8)
    outlets[1, 3] = 1
    line = LineString([(0, 0), (1, 0)])
    found = og.flow_direction(
        heights, streams=line, connectivity=4, edges="closed", outlets=outlets
    )
    assert found["direction"].values[0, 0] == 7
    assert found.attrs["sink_count"] == 1


def test_streams_are_lowered_by_a_finite_depth() -> None:
    with pytest.raises(og.InputError, match=r"burn: inf; it must be a number, at least 0, at most"):
        og.flow_direction(HEIGHTS, streams=HEIGHTS > 7, burn=np.inf)
