"""Penalties for crossing barriers, several barriers, and the greatest slope, by plain loops."""

from __future__ import annotations

import heapq
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from cuda_on_cpu.emulator import Emulator
from distributed import Client
from oracle_distance import CODES, STEPS, middle_cells
from shapely import LineString, box

import orograph as og
from orograph.cli.main import main

Barrier = tuple[np.ndarray, float]
CASES = [
    *range(5),  # one of each model
    *(pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 200)),
]


def cost_of_step(case: dict[str, Any], cells: list[tuple[int, int]], rise: float) -> float:
    """Cost of a step without penalties, given its two ends and the cells between them."""
    (y, x), (v, u) = cells[0], cells[-1]
    length = math.hypot(v - y, u - x)
    friction = [case["friction"][cell] for cell in cells]
    if case["model"] == "absolute_difference":
        return abs(rise)
    mean = sum(friction) / len(friction)
    if case["model"] == "terrain":
        return math.sqrt(length * length + rise * rise) * mean
    if case["model"] == "tobler":
        return 0.6 * math.exp(3.5 * abs(rise / length + 0.05)) * length * mean
    return mean * length


def in_barrier(barrier: np.ndarray, cells: list[tuple[int, int]]) -> list[bool]:
    """Whether a barrier holds where a step starts, passes between cells, and ends."""
    own = [bool(barrier[cell]) for cell in cells]
    return own if len(own) == 2 else [own[0], own[1] or own[2], own[3]]


def least_costs(case: dict[str, Any]) -> np.ndarray:
    """Dijkstra over all steps, one by one."""
    heights, friction = case["heights"], case["friction"]
    walled = np.logical_or.reduce([np.isnan(friction), *(wall for wall in case["walls"])])
    found = np.full(friction.shape, np.inf)
    found[case["source"]] = 0
    heap = [(0.0, case["source"])]
    while heap:
        cost, (y, x) = heapq.heappop(heap)
        if cost > found[y, x]:
            continue
        for code in CODES[case["connectivity"]]:
            dy, dx = STEPS[code]
            between = [(y + my, x + mx) for my, mx in middle_cells(dy, dx)]
            cells = [(y, x), *between, (y + dy, x + dx)]
            if not all(0 <= v < found.shape[0] and 0 <= u < found.shape[1] for v, u in cells):
                continue
            if any(walled[cell] for cell in cells):
                continue
            rise = heights[cells[-1]] - heights[y, x]
            steep = math.degrees(math.atan2(abs(rise), math.hypot(dy, dx)))
            if case["max_slope"] is not None and steep > case["max_slope"]:
                continue
            along = -rise if case["travel"] == "to" else rise
            step = cost_of_step(case, cells, along)
            for barrier, penalty in case["crossed"]:
                marks = in_barrier(barrier, cells)
                step += sum(a != b for a, b in itertools.pairwise(marks)) * penalty / 2
            if cost + step < found[cells[-1]]:
                found[cells[-1]] = cost + step
                heapq.heappush(heap, (cost + step, cells[-1]))
    return np.where(np.isfinite(found), found, np.nan)


def draw(seed: int) -> dict[str, Any]:
    """A random case; costs are multiples of 2**-6 where no root or exponential is taken."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 40, 2)) if seed % 7 == 0 else tuple(rng.integers(3, 25, 2))
    friction = rng.integers(1, 9, shape) * 4.0
    friction[rng.random(shape) < 0.1] = np.nan
    crossed = [
        (np.roll(np.eye(*shape, k=int(rng.integers(-3, 4))), 1, 0) + (rng.random(shape) < 0.1),
         float(rng.integers(0, 200) * 2))
        for _ in range(rng.integers(0, 4))
    ]  # fmt: skip
    walls = [rng.random(shape) < 0.1 for _ in range(rng.integers(0, 3))]
    source = int(rng.integers(shape[0])), int(rng.integers(shape[1]))
    friction[source] = 4
    for wall in walls:
        wall[source] = False
    model = ["friction", "terrain", "tobler", "absolute_difference", "int64"][seed % 5]
    steep = model in ("terrain", "tobler") and rng.random() < 0.7
    return {
        "friction": friction,
        "heights": np.cumsum(rng.integers(-2, 3, shape), axis=1) * 0.5,
        "crossed": crossed,
        "walls": walls,
        "source": source,
        "model": model,
        "connectivity": int(rng.choice([4] if model == "int64" else [4, 8, 16])),
        "travel": str(rng.choice(["from", "to"])),
        "max_slope": float(rng.choice([20, 45, 60])) if steep else None,
    }


def solve(case: dict[str, Any], **options: Any) -> xr.Dataset:
    """The same by orograph."""
    (y, x), model, slope = case["source"], case["model"], case["max_slope"]
    how: dict[str, Any] = {
        "barriers": [*case["walls"], *case["crossed"]] or None,
        "connectivity": case["connectivity"],
        "travel": case["travel"],
        "cell_size": 1,
        **options,
    }
    start = [(x, y)]
    if model == "tobler":
        how["outputs"] = [o.replace("cost", "time") for o in how.get("outputs", ("cost",))]
        friction = case["friction"]
        found = og.walking_time(case["heights"], start, friction=friction, max_slope=slope, **how)
        return found.rename(time="cost")
    if model == "absolute_difference":
        heights = np.where(np.isnan(case["friction"]), np.nan, case["heights"])
        return og.cost_distance(heights, start, cost=model, **how)
    if model == "terrain":
        how["cost"] = og.TerrainCost(surface=case["heights"], max_slope=slope)
    if model == "int64":
        how["dtype"] = "int64"
    return og.cost_distance(case["friction"], start, **how)


@pytest.mark.parametrize("seed", CASES)
def test_costs_are_those_of_plain_loops(seed: int) -> None:
    case = draw(seed)
    whole = solve(case, outputs=("cost", "back_direction"))
    found = np.where(whole["cost"] < 0, np.nan, whole["cost"])
    np.testing.assert_allclose(found, least_costs(case), rtol=1e-12)
    for tile in (3, 8):
        tiled = solve(case, outputs=("cost", "back_direction"), tile=tile)
        assert tiled.identical(whole)
    if case["model"] != "int64" and seed > 11:
        single = solve(case, dtype="float32", tile=5)
        np.testing.assert_allclose(single["cost"], least_costs(case), rtol=1e-5)


def test_a_gpu_gives_the_same_bits(emulated_gpu: Emulator) -> None:
    outputs = ("cost", "back_direction")
    for seed in (1, 2, 5, 7, 13, 29):
        case = draw(seed)
        expected = solve(case, outputs=outputs)
        found = solve(case, outputs=outputs, tile=6, backend="cuda")
        assert found.identical(expected), seed


def test_two_workers_and_files_give_the_same_bits(tmp_path: Path, client: Client) -> None:
    river = np.zeros((40, 60), np.uint8)
    river[:, 25:28] = 7
    wall = np.zeros((40, 60), np.uint8)
    wall[20] = 1
    wall[20, 40] = 0
    friction = np.random.default_rng(3).integers(1, 9, (40, 60)) * 4.0
    named = {}
    for name, cells in {"river": river, "wall": wall, "friction": friction}.items():
        og.ingest(xr.DataArray(cells, dims=("y", "x")), tmp_path / f"{name}.zarr")
        named[name] = tmp_path / f"{name}.zarr"
    expected = og.cost_distance(friction, [(2, 3)], barriers=[wall, (river, 50)], tile=7)
    barriers = [named["wall"], (named["river"], 50)]
    found = og.cost_distance(
        named["friction"],
        [(2, 3)],
        barriers=barriers,
        client=client,
        out=tmp_path / "cost.zarr",
        tile=7,
    )
    np.testing.assert_array_equal(found["cost"], expected["cost"])
    assert found.attrs["barrier_penalties"] == [50.0]


def test_a_bridge_or_a_detour_is_a_number() -> None:
    ground = np.ones((21, 41))
    river = LineString([(20, -1), (20, 15)])

    def cost(barriers: Any) -> float:
        result = og.cost_distance(ground, [(10, 3)], barriers=barriers, connectivity=4)
        return float(result["cost"][3, 30])

    assert cost(None) == 20
    around = cost(river)  # the river ends at row 15: 13 rows down and up again
    assert around == 20 + 2 * 13
    assert cost([(river, 6.0)]) == cost((river, 6.0)) == 26
    assert cost([(river, 30.0)]) == around
    assert cost([river, (river, 6.0)]) == around  # a wall, whatever it would cost to cross it
    assert cost([(river, math.inf)]) == around
    # Side by side both count, whose cells are one belt or overlap.
    road = LineString([(21, -1), (21, 20.4)])
    assert cost([(river, 6.0), (road, 2.0)]) == 28
    assert cost([(river, 6.0), (river, 2.0)]) == 28
    # One layer of two lines is one barrier, and one belt where they touch.
    assert cost([([river, road], 6.0)]) == 26
    # Into the middle of a belt half of it is paid.
    to_island = og.cost_distance(
        ground, [(10, 3)], barriers=[(box(18, -1, 22, 22), 8.0)], connectivity=4
    )
    assert to_island["cost"][3, 20] == 10 + 4


def test_penalties_with_paths_links_and_corridors() -> None:
    ground = np.ones((21, 41))
    river = LineString([(20, -1), (20, 22)])
    both = ("cost", "back_direction")
    crossed = og.cost_distance(ground, [(10, 3)], barriers=[(river, 6.0)], outputs=both)
    (path,) = og.least_cost_path(crossed, [(30, 3)])
    assert path.cost == 26
    there = og.cost_distance(ground, [(30, 3)], barriers=[(river, 6.0)])
    assert float(og.corridor(crossed, there).min()) == 26
    with pytest.raises(og.InputError, match="barrier_penalties"):
        og.corridor(crossed, og.cost_distance(ground, [(30, 3)]))
    # A bridge is a link, and costs its weight alone.
    ends = pd.DataFrame({"source": [3 * 41 + 19], "target": [3 * 41 + 21], "weight": [1.5]})
    bridge = og.read_graph(ends, directed=False)
    by_bridge = og.cost_distance(ground, [(10, 3)], barriers=[(river, 6.0)], links=bridge)
    assert float(by_bridge["cost"][3, 30]) == 9 + 1.5 + 9


def test_the_greatest_slope_of_an_index(tmp_path: Path) -> None:
    heights = np.zeros((40, 50))
    heights[:38, 10:12] = 0.5  # a wall that ends before the last rows
    points = [(3, 3), (45, 35), (20, 20)]
    how: dict[str, Any] = {"max_slope": 15, "cell_size": 1}
    index = og.DistanceIndex.build(heights, tmp_path / "i.zarr", cost="tobler", block=8, **how)
    index = og.DistanceIndex.open(tmp_path / "i.zarr")
    table = index.distance_matrix(points)
    free = og.DistanceIndex.build(
        heights, tmp_path / "f.zarr", cost="tobler", block=8, cell_size=1
    ).distance_matrix(points)
    for k, point in enumerate(points):
        times = og.walking_time(heights, [point], **how)["time"]
        expected = [times.values[y, x] for x, y in points]
        np.testing.assert_allclose(table[k], expected, rtol=1e-12)
    assert (table.values > free.values).any()
    path = index.path(points[0], points[1])
    np.testing.assert_allclose(path.cost, table[0, 1], rtol=1e-12)


def test_slopes_at_the_limit_are_kept() -> None:
    heights = np.array([[0.0, 1.0, 3.0]])
    for slope, last in ((45, math.nan), (63.5, 1.0), (90, 1.0), (None, 1.0)):
        cost = og.TerrainCost(surface=heights, max_slope=slope)
        found = og.cost_distance(np.ones((1, 3)), [(0, 0)], cost=cost, cell_size=1)["cost"]
        assert np.isfinite(found[0, 1])
        assert np.isfinite(found[0, 2]) == np.isfinite(last)
    assert "45 degrees" in og.TerrainCost(surface=heights, max_slope=45)._repr_html_()


REFUSED = {
    "penalty below 0": (
        lambda f, b: og.cost_distance(f, [(0, 0)], barriers=[(b, -1.0)]),
        "penalty",
    ),
    "penalty of text": (
        lambda f, b: og.cost_distance(f, [(0, 0)], barriers=[(b, "6")]),
        "barriers",
    ),
    "eikonal": (
        lambda f, b: og.cost_distance(f, [(0, 0)], barriers=[(b, 6.0)], cost="eikonal"),
        "eikonal",
    ),
    "hops": (lambda f, b: og.hop_distance(f, [(0, 0)], barriers=[(b, 6.0)]), "hops"),
    "index": (
        lambda f, b: og.DistanceIndex.build(f, "no.zarr", barriers=[(b, 6.0)]),
        "an index does not hold penalties",
    ),
    "odd in int64": (
        lambda f, b: og.cost_distance(
            f, [(0, 0)], barriers=[(b, 5)], dtype="int64", connectivity=4, cell_size=1
        ),
        "multiple of 2",
    ),
    "too great for float32": (
        lambda f, b: og.cost_distance(f, [(0, 0)], barriers=[(b, 1e38)], dtype="float32"),
        "float32",
    ),
    "25": (lambda f, b: og.cost_distance(f, [(0, 0)], barriers=[(b, 1)] * 25), "24 at most"),
    "slope without heights": (
        lambda f, b: og.TerrainCost(horizontal_raster=f, max_slope=30),
        "max_slope",
    ),
    "slope of friction": (
        lambda f, b: og.DistanceIndex.build(f, "no.zarr", max_slope=30),
        "has no slopes",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    call, words = REFUSED[case]
    with pytest.raises(og.InputError, match=words):
        call(np.full((3, 4), 4.0), np.eye(3, 4))


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = {"y": np.arange(10.0), "x": np.arange(12.0)}
    ground = xr.DataArray(np.full((10, 12), 4.0), place, name="ground")
    river = xr.zeros_like(ground).astype("u1")
    river[:, 5] = 1
    og.ingest(ground, "ground.zarr")
    og.ingest(river, "river.zarr")
    start = ["--point", "1", "1"]
    barriers = ["--barriers", "river.zarr=20"]
    assert main(["cost", "ground.zarr", "cost.zarr", *barriers, *start]) == 0
    expected = og.cost_distance(ground, [(1, 1)], barriers=[(river, 20)])
    found = og.open("cost.zarr")
    np.testing.assert_array_equal(found["cost"], expected["cost"])
    assert not main(["walk", "ground.zarr", "time.zarr", "--max-slope", "30", *start])
    assert og.open("time.zarr").attrs["max_slope"] == 30
    slope = ["--surface", "ground.zarr", "--max-slope", "30"]
    assert main(["cost", "ground.zarr", "c.zarr", *slope, *start]) == 0
    assert og.open("c.zarr").attrs["max_slope"] == 30
