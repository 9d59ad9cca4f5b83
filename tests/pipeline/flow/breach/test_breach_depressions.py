"""Trenches lead from pits to lower ground, and are the same for any tiling."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import oracle_breach as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra
from terrain_cases import Case, cases, fractal, properties

import orograph as og

LENGTHS = st.sampled_from([1, 2, 3, 5, 64])
DEPTHS = st.sampled_from([math.inf, 0, 2, 40.5])


@settings(properties, max_examples=120)
@given(cases(), LENGTHS, DEPTHS)
def test_any_tiling_gives_the_surface_of_plain_loops(case: Case, length: int, depth: float) -> None:
    how = {"max_length": length, "max_depth": depth, "nodata": case.nodata, **case.cut}
    heights = case.elevation[case.valid]
    if heights.dtype.kind != "f" and (abs(heights.astype(float)) > 2**53).any():
        with pytest.raises(og.InputError, match=r"elevation: -?\d+ at row"):
            og.breach_depressions(case.elevation, **how)
        return
    found = og.breach_depressions(case.elevation, **how)["breached"]
    assert found.dtype == np.float64
    expected = oracle.breach(case.elevation, case.valid, length, depth)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.diagonal
@pytest.mark.parametrize("length", [3, 20])
@pytest.mark.parametrize("kind", ["float32", "float64", "int16"])
def test_rough_terrain_in_many_tiles_and_in_one(kind: str, length: int) -> None:
    heights = rough(70).astype(kind)
    valid = np.ones(heights.shape, bool)
    expected = oracle.breach(heights, valid, length, math.inf)
    assert (expected < heights).any()
    for cut in ({}, {"tile": 16}, {"tile": 8, "shard": 32}):
        found = og.breach_depressions(heights, max_length=length, **cut)["breached"]
        np.testing.assert_array_equal(found, expected)


def rough(side: int, seed: int = 3) -> np.ndarray:
    """Heights with a pit in every few dozen cells, some in no window with lower ground."""
    noise = np.random.default_rng(seed).normal(0, 6, (side, side))
    return fractal(side, seed) + noise + 100


def sinks(surface: np.ndarray) -> np.ndarray:
    flow = og.flow_direction(surface, depressions="keep")["direction"].values
    return np.asarray(flow == 0)


@pytest.mark.diagonal
@pytest.mark.parametrize("kind", ["float64", "float32", "int16", "uint8"])
@pytest.mark.parametrize("length", [1, 4, 64])
def test_trenches_make_no_new_pits(kind: str, length: int) -> None:
    for seed in range(4):
        heights = (rough(90, seed) / 4).astype(kind)
        found = og.breach_depressions(heights, max_length=length)["breached"].values
        before, after = sinks(heights), sinks(found)
        assert not (after & ~before).any()
        np.testing.assert_array_equal(found[after], heights[after])
        assert after.sum() < before.sum()


@pytest.mark.parametrize("seed", range(4))
def test_a_trench_is_the_cheapest(seed: int) -> None:
    """Against Dijkstra's algorithm of SciPy, where there is one pit."""
    rng = np.random.default_rng(seed)
    heights = og.fill_depressions(rng.integers(20, 60, (30, 34)))["filled"].values
    pit = 14, 15
    heights[pit] = 3
    heights[5, 30] = 1  # it drains nothing but the trench
    heights[4, 31] = heights[3, 32] = heights[2, 33] = 0
    found = og.breach_depressions(heights, max_depth=1000)["breached"].values
    dug = float((heights - heights[pit])[(found < heights)].sum())
    assert dug == _least_cost(heights, pit)


def _least_cost(heights: np.ndarray, pit: tuple[int, int]) -> float:
    """The least sum of heights above a pit on a way to the edge, or to lower ground."""
    number = np.arange(heights.size).reshape(heights.shape)
    above = np.maximum(heights - heights[pit], 0).ravel() + 2.0**-20  # 0 would be no edge
    pairs = []
    for dy, dx in oracle.STEPS:
        a = number[max(-dy, 0) : len(heights) - max(dy, 0), max(-dx, 0) : 34 - max(dx, 0)]
        b = number[max(dy, 0) : len(heights) + min(dy, 0), max(dx, 0) : 34 + min(dx, 0)]
        pairs.append(np.stack([a.ravel(), b.ravel()]))
    start, end = np.concatenate(pairs, axis=1)
    graph = coo_array((above[end], (start, end)), (heights.size, heights.size)).tocsr()
    costs = dijkstra(graph, indices=number[pit])
    ends = heights < heights[pit]
    ends[0] = ends[-1] = ends[:, 0] = ends[:, -1] = True
    return float(np.floor(costs[ends.ravel()].min()))


def test_a_trench_falls_evenly_to_lower_ground() -> None:
    heights = np.full((11, 11), 90)
    heights[5, 2:9] = [10, 20, 15, 30, 12, 11, 2]
    found = og.breach_depressions(heights)["breached"].values
    np.testing.assert_allclose(found[5, 2:9], [10, 9 - 1 / 3, 8 - 2 / 3, 6, 4 + 2 / 3, 10 / 3, 2])


def test_a_trench_that_leaves_falls_by_the_least_step() -> None:
    heights = np.full((9, 9), 90.0)
    heights[4, 4] = 10
    found = og.breach_depressions(heights)["breached"].values
    levels = [10.0]
    for _ in range(4):
        levels.append(math.nextafter(levels[-1], 0))
    np.testing.assert_array_equal(np.diag(found)[:5], levels[::-1])
    assert (found != heights).sum() == 4
    heights[3, 6] = np.nan
    found = og.breach_depressions(heights)["breached"].values
    assert (found < heights).sum() == 1
    assert found[3, 5] == levels[1]


def test_limits_of_length_and_depth() -> None:
    heights = np.full((15, 40), 90)
    heights[7, 5], heights[7, 30] = 10, 2
    heights[7, 6:30] = 12
    dug = {n: og.breach_depressions(heights, max_length=n)["breached"].values for n in (24, 25)}
    # the way along the valley costs 48, the way out of the grid 80 a cell
    assert dug[24][7, 20] == 12
    assert dug[25][7, 20] < 10
    heights[7, 15] = 20
    heights[6, 15] = 21
    for depth, place in ((8, None), (10, (7, 15)), (11, (7, 15))):
        found = og.breach_depressions(heights, max_depth=depth)["breached"].values
        assert (found < heights).any() == (place is not None)
        assert place is None or found[place] < 10
    heights[7, 15] = 22
    found = og.breach_depressions(heights, max_depth=11)["breached"].values
    assert found[6, 15] < 10
    assert found[7, 15] == 22


def test_a_flat_has_one_trench_and_none_if_it_drains() -> None:
    heights = np.full((12, 30), 50)
    heights[6, 3:20] = heights[4:6, 3] = heights[3:6, 19] = 10  # like a U, with two upper ends
    heights[:4, 22] = 1
    found = og.breach_depressions(heights)["breached"].values
    assert sorted(np.argwhere(found < heights)[:, 1].tolist()) == [20, 21]
    heights[7:, 20] = 9
    np.testing.assert_array_equal(og.breach_depressions(heights)["breached"], heights)


@pytest.mark.parametrize("field", [0, 64])
def test_a_store_and_an_array_are_breached_alike(field: int, tmp_path: Path) -> None:
    heights = rough(150).astype(np.float32)
    heights[40:50, 60:80] = np.nan
    og.ingest(heights, tmp_path / "dem.zarr", tile=16, shard=32)
    with og.config.set(field=field):
        stored = og.breach_depressions(tmp_path / "dem.zarr", out=tmp_path / "breached.zarr")
    expected = og.breach_depressions(heights)
    np.testing.assert_array_equal(stored["breached"], expected["breached"])
    assert stored.attrs == expected.attrs
    np.testing.assert_array_equal(np.isnan(stored["breached"]), np.isnan(heights))


def test_falls_below_the_steps_of_float64() -> None:
    """Cells become equally high, and fillings and flats lead the water on."""
    heights = np.full((7, 9), 9.0)
    heights[3, 2], heights[3, 6] = np.nextafter(1.0, 2), 1.0
    found = og.breach_depressions(heights, max_length=4, max_depth=100)["breached"].values
    assert np.isfinite(found).all()
    flow = og.flow_direction(found)
    assert flow.attrs["sink_count"] == 0
    huge = np.full((7, 9), 1.7e308)
    huge[3, 2], huge[3, 6] = 0, -1.7e308
    expected = oracle.breach(huge, np.ones(huge.shape, bool), 64, math.inf)
    np.testing.assert_array_equal(og.breach_depressions(huge)["breached"], expected)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "length": ({"max_length": 0}, "max_length: 0; it must be a whole number of cells, 1 to 1024"),
    "depth": ({"max_depth": -1}, "max_depth: -1; it must be a number, at least 0"),
}


@pytest.mark.parametrize(("options", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_limits_that_are_none_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(og.InputError, match=says):
        og.breach_depressions(np.eye(3), **options)


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(n, marks=pytest.mark.long) for n in range(8, 120))]
)
def test_trenches_end_where_water_may_leave(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(2, 18, 2).tolist())
    heights = random.random(shape) if seed % 2 else random.integers(0, 9, shape).astype(float)
    heights[random.random(shape) < 0.06] = np.nan
    heights[0, 0] = 1
    valid = np.isfinite(heights)
    raster = (random.random(shape) < 0.06) & valid
    raster[0, 0] = True
    points = np.argwhere(valid)[random.integers(valid.sum(), size=2)]
    of_points = np.zeros(shape, bool)
    of_points[tuple(points.T)] = True
    places = points[:, ::-1].tolist()
    given: dict[str, Any]
    given, ends = [
        ({"outlets": places}, of_points),
        ({"sinks": raster.astype("u1")}, raster),
        ({"outlets": places, "sinks": raster.astype("u1")}, raster | of_points),
    ][seed % 3]
    closed, length = seed // 3 % 2 == 1, int(random.choice([1, 3, 64]))
    given |= {"edges": "closed" if closed else "open", "max_length": length}
    expected = oracle.breach(heights, valid, length, math.inf, ends, closed)
    for tile in (int(random.integers(1, 7)), 64):
        found = og.breach_depressions(heights, tile=tile, **given)["breached"]
        np.testing.assert_array_equal(found, expected)
    # directions are those on the surface with these trenches
    given["depressions"] = "breach"
    codes = og.flow_direction(heights, tile=int(random.integers(1, 7)), **given)["direction"]
    for name in ("depressions", "max_length"):
        del given[name]
    filled = og.flow_direction(expected, **given)["direction"]
    np.testing.assert_array_equal(codes, filled)


def test_trenches_lead_over_the_seam_to_an_outlet() -> None:
    # distinct heights, so that no tie goes by position
    heights = np.random.default_rng(3).permutation(20 * 31).reshape(20, 31).astype(float)
    heights = np.pad(heights, ((1, 1), (0, 0)), constant_values=1e4)
    for column in (0, 1, 30):
        outlet = [(column, 7)]
        given: dict[str, Any] = {"edges": "closed", "wrap": True, "max_length": 9, "tile": 8}
        found = og.breach_depressions(heights, outlets=outlet, **given)["breached"].values
        moved = np.roll(heights, 15 - column, axis=1)
        right = og.breach_depressions(moved, outlets=[(15, 7)], **given)["breached"].values
        np.testing.assert_array_equal(np.roll(found, 15 - column, axis=1), right)
        assert found[7, column] < heights[7, column]


def test_closed_edges_end_no_trench() -> None:
    heights = np.array([[9.0, 9, 9, 9, 9], [9, 1, 5, 3, 4], [9, 9, 9, 9, 9]])
    shut = og.breach_depressions(heights, outlets=[(1, 1)], edges="closed")["breached"]
    np.testing.assert_array_equal(shut.values[1], [9, 1, 2, 3, 4])
    leaves = og.breach_depressions(heights)["breached"].values
    assert leaves[1, 4] == math.nextafter(3, 0)
