"""Factors of the angle between steps and a direction: against Dijkstra, and by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from cuda_on_cpu.emulator import Emulator
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import orograph as og
from orograph.cli.main import main
from orograph.distance.problem import Distance
from orograph.kernels.relax.models.factors import (
    NEXT,
    horizontal_factor,
    horizontal_factors,
    lay_out_factors,
)
from orograph.run.session import StoredSession

SHAPE = (17, 22)
SIDE = 30.0
ALL = ("cost", "back_direction", "allocation")
MOVES = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx]
Array = np.ndarray[Any, Any]
Factor = Callable[[Array], Array]


def rasters(seed: int = 0) -> tuple[Array, Array, Array]:
    """Friction, heights and directions, with some nodata, and some cells without a direction."""
    rng = np.random.default_rng(seed)
    friction = rng.uniform(1, 5, SHAPE)
    heights = np.cumsum(rng.normal(0, 7, SHAPE), axis=1)
    wind = rng.uniform(60, 210, SHAPE)
    wind[rng.random(SHAPE) < 0.2] = -1
    for raster in (friction, heights, wind):
        raster[rng.random(SHAPE) < 0.04] = np.nan
    friction[3, 4] = heights[3, 4] = 2
    wind[3, 4] = -1
    return friction, heights, wind


def least(
    friction: Array, heights: Array, wind: Array, factor: Factor, *, sign: int = 1, north: int = 1
) -> Array:
    """Costs from (3, 4), or to it: each step is an edge of a graph, whose weight NumPy computes."""
    y, x = np.indices(SHAPE)
    number = y * SHAPE[1] + x
    tails, heads, weights = [], [], []
    for dy, dx in MOVES:
        inside = (y + dy >= 0) & (y + dy < SHAPE[0]) & (x + dx >= 0) & (x + dx < SHAPE[1])
        u = y[inside], x[inside]
        v = u[0] + dy, u[1] + dx
        run = SIDE * math.hypot(dy, dx)
        heading = math.degrees(math.atan2(sign * dx, -sign * dy * north))
        ends = []
        for cell in (u, v):
            turn = np.abs((heading - wind[cell] + 180) % 360 - 180)
            with np.errstate(all="ignore"):
                ends.append(friction[cell] * np.where(wind[cell] < 0, 1.0, factor(turn)))
        cost = (ends[0] + ends[1]) / 2 * np.hypot(run, heights[v] - heights[u])
        cost = cost + 0 * wind[u] + 0 * wind[v]
        there = np.isfinite(cost)
        tails.append(number[u][there])
        heads.append(number[v][there])
        weights.append(cost[there])
    ends_of = np.concatenate(tails), np.concatenate(heads)
    graph = csr_array((np.concatenate(weights), ends_of), shape=(number.size, number.size))
    found = dijkstra(graph, indices=number[3, 4]).reshape(SHAPE)
    return np.where(np.isfinite(found), found, np.nan)


TABLE = {0: 0.5, 30: 0.75, 100: 2.0, 150: 9.0}
CASES: dict[str, tuple[dict[str, Any], Factor]] = {
    "binary": ({"horizontal_factor": "binary"}, lambda t: np.where(t < 45, 1.0, np.nan)),
    "a wider binary": (
        {"horizontal_factor": "binary", "horizontal_coefficients": {"cut_angle": 120}},
        lambda t: np.where(t < 120, 1.0, np.nan),
    ),
    "forward": (
        {"horizontal_factor": "forward"},
        lambda t: np.where(t < 45, 0.5, np.where(t < 90, 1.0, np.nan)),
    ),
    "linear": ({"horizontal_factor": "linear"}, lambda t: 0.5 + t / 90),
    "inverse linear": (
        {"horizontal_factor": "inverse_linear"},
        lambda t: np.where(2 - t / 90 > 0, 1 / (2 - t / 90), np.nan),
    ),
    "a table": (
        {"horizontal_factor": TABLE},
        lambda t: np.where(t <= 150, np.interp(t, list(TABLE), list(TABLE.values())), np.nan),
    ),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("travel", ["from", "to"])
@pytest.mark.parametrize("case", CASES)
def test_costs_are_those_of_dijkstra(case: str, travel: str) -> None:
    given, factor = CASES[case]
    friction, heights, wind = rasters()
    cost = og.TerrainCost(surface=heights, horizontal_raster=wind, **given)
    found = og.cost_distance(friction, [(4, 3)], cost=cost, cell_size=SIDE, travel=travel, tile=8)
    expected = least(friction, heights, wind, factor, sign=1 if travel == "from" else -1)
    assert np.isfinite(expected).sum() > 10
    np.testing.assert_allclose(found["cost"], expected, rtol=1e-12)


def test_the_north_is_where_coordinates_say() -> None:
    friction, heights, wind = rasters(1)
    place = {"y": 30.0 * np.arange(SHAPE[0]), "x": 30.0 * np.arange(SHAPE[1])}  # row 0 in the south
    ground = xr.DataArray(friction, place, ("y", "x")).rio.write_crs("EPSG:32633")
    cost = og.TerrainCost(
        surface=ground.copy(data=heights),
        horizontal_raster=ground.copy(data=wind),
        horizontal_factor="linear",
    )
    found = og.cost_distance(ground, [(120.0, 90.0)], cost=cost)
    expected = least(friction, heights, wind, CASES["linear"][1], north=-1)
    np.testing.assert_allclose(found["cost"], expected, rtol=1e-12)
    degrees = ground.rio.write_crs("EPSG:4326", inplace=False)
    degrees = degrees.assign_coords(y=degrees.y / 100, x=degrees.x / 100)
    cost = og.TerrainCost(horizontal_raster=degrees.copy(data=wind))
    with pytest.raises(og.InputError, match=r"horizontal_raster: .* are degrees; bring"):
        og.cost_distance(degrees, [(1.2, 0.9)], cost=cost)


@pytest.mark.parametrize("in_coordinates", [False, True])
def test_diagonal_headings_follow_the_sides_of_cells(in_coordinates: bool) -> None:
    # cells four times as high as wide: the diagonal leads 14 degrees from north, not 45
    tall = math.hypot(2.0, 0.5)
    cost = og.TerrainCost(
        horizontal_raster=np.zeros((2, 2)), horizontal_factor={0: 1, 20: 1, 21: 100, 180: 100}
    )
    place = {"y": [7.0, 5.0], "x": [3.0, 3.5]} if in_coordinates else None
    level = xr.DataArray(np.ones((2, 2)), place, ("y", "x"))
    given = {} if in_coordinates else {"cell_size": (2, 0.5)}
    start = (3.0, 5.0) if in_coordinates else (0, 1)
    found = og.cost_distance(level, [start], cost=cost, **given)["cost"]
    np.testing.assert_allclose(found, [[2.0, tall], [0.0, 50.0]], rtol=1e-12)
    cells = og.cost_distance(level, [start], cost=cost, cell_size=1)["cost"]  # 45 degrees
    np.testing.assert_allclose(cells, [[1.0, 101.0], [0.0, 100.0]], rtol=1e-12)


@pytest.mark.parametrize("connectivity", [4, 8, 16])
def test_any_tiling_and_a_gpu_give_the_same_bits(connectivity: int, emulated_gpu: Emulator) -> None:
    friction, heights, wind = rasters(2)
    cost = og.TerrainCost(
        surface=heights,
        vertical_factor={-60: 2.0, 0: 1.0, 60: 5.0},
        horizontal_raster=wind,
        horizontal_factor=TABLE if connectivity == 8 else "forward",
    )
    how: dict[str, Any] = {"cost": cost, "cell_size": SIDE, "connectivity": connectivity}
    how["backend"] = "numba"
    whole = og.cost_distance(friction, [(4, 3)], outputs=ALL, tile=64, **how)
    for more in ({"tile": 3}, {"tile": 8}, {"tile": 64, "backend": "cuda"}):
        assert emulated_gpu.launches == 0
        found = og.cost_distance(friction, [(4, 3)], outputs=ALL, **{**how, **more})
        for name in ALL:
            np.testing.assert_array_equal(found[name].values, whole[name].values, name)
    assert emulated_gpu.launches > 0
    single = og.cost_distance(friction, [(4, 3)], **{**how, "dtype": "float32", "backend": "cuda"})
    np.testing.assert_allclose(single["cost"], whole["cost"], rtol=1e-5)


def test_factors_by_hand() -> None:
    """The values that Esri's documentation gives for its functions and their defaults."""

    def of(name: Any, turn: float, **coefficients: float) -> float:
        cost = og.TerrainCost(
            horizontal_raster=np.ones((1, 1)),
            horizontal_factor=name,
            horizontal_coefficients=coefficients or None,
        )
        pairs = [(0.0, turn), (350.0, turn - 10), (turn, 0.0), (10.0, 10 - turn)]
        p = lay_out_factors(*cost.coefficients[:4], *cost.horizontal)
        values = [
            horizontal_factor(direction, heading, p, int(p[NEXT])) for direction, heading in pairs
        ]
        np.testing.assert_allclose(values, values[0])
        return float(values[0])

    assert of("binary", 0) == of("binary", 44.9) == 1
    assert np.isnan([of("binary", 45), of("binary", 180)]).all()
    assert of("forward", 0) == of("forward", 44) == 0.5
    assert of("forward", 45) == of("forward", 89) == 1
    assert np.isnan([of("forward", 90), of("forward", 180)]).all()
    assert of("forward", 60, side_value=3, zero_factor=2) == 3
    assert [of("linear", t) for t in (0, 90, 180)] == [0.5, 1.5, 2.5]
    assert math.isnan(of("linear", 91, cut_angle=90))
    assert [of("inverse_linear", t) for t in (0, 90)] == [0.5, 1.0]
    assert math.isnan(of("inverse_linear", 180))
    assert of(TABLE, 65) == 1.375
    assert math.isnan(of(TABLE, 151))


@pytest.mark.parametrize("factor", ["forward", "inverse_linear", TABLE])
def test_a_row_of_factors_has_the_bits_of_single_ones(factor: Any) -> None:
    cost = og.TerrainCost(horizontal_raster=np.ones((1, 1)), horizontal_factor=factor)
    p = lay_out_factors(*cost.coefficients[:4], *cost.horizontal)
    at = int(p[NEXT])
    directions = np.random.default_rng(0).uniform(-90, 720, 300)
    directions[:8] = 0, 45, 90, 180, 360, 540, -1, np.nan
    found = np.empty(directions.size)
    for heading in (0.0, 45.0, 180.0, 337.5):
        horizontal_factors(found, directions, heading, p, at)
        expected = [horizontal_factor(direction, heading, p, at) for direction in directions]
        np.testing.assert_array_equal(found, expected)
        assert np.isfinite(found[directions >= 0]).any()


def test_wind_over_level_ground(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Against the wind a step costs 2.5 times its length, with it half."""
    friction, wind = np.ones((1, 5)), np.full((1, 5), 90.0)
    cost = og.TerrainCost(horizontal_raster=wind, horizontal_factor="linear")
    found = og.cost_distance(friction, [(2, 0)], cost=cost)["cost"].values[0]
    np.testing.assert_allclose(found, [5, 2.5, 0, 0.5, 1])
    wind[0, 3] = -1  # no wind: of the two halves of a step this one costs its length
    found = og.cost_distance(friction, [(2, 0)], cost=cost)["cost"].values[0]
    np.testing.assert_allclose(found, [5, 2.5, 0, 0.75, 1.5])
    og.ingest(friction, tmp_path / "friction.zarr")
    og.ingest(wind, tmp_path / "wind.zarr")
    words = ["cost_distance", tmp_path / "friction.zarr", tmp_path / "cost.zarr", "--point", 2, 0]
    words += ["--horizontal-raster", tmp_path / "wind.zarr", "--horizontal-factor", "linear"]
    words += ["--horizontal-coefficients", "zero_factor=1", "--outputs", "cost", "--workers", 1]
    assert main(list(map(str, words))) == 0
    capsys.readouterr()
    stored = og.open(tmp_path / "cost.zarr")["cost"].values[0]
    np.testing.assert_allclose(stored, [6, 3, 0, 1, 2])


def test_rasters_with_two_parts_are_prepared_once_and_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Heights are for lengths and for slopes; friction is felt at each end of a step."""
    padded: list[Any] = []
    pad = Distance._padded

    def watched(problem: Distance, cells: Any, *arguments: Any) -> Any:
        padded.append(cells)
        return pad(problem, cells, *arguments)

    def refuse(*arguments: Any) -> None:
        raise AssertionError("nothing is to be stored")

    monkeypatch.setattr(Distance, "_padded", watched)
    monkeypatch.setattr(StoredSession, "__init__", refuse)
    rng = np.random.default_rng(2)
    friction, heights, wind = rng.uniform(1, 2, (3, 9, 11)) * np.array([1, 1, 180])[:, None, None]
    cost = og.TerrainCost(surface=heights, horizontal_raster=wind, horizontal_factor=TABLE)
    og.cost_distance(friction, [(2, 3)], cost=cost)
    whole = [cells for cells in padded if cells.shape == friction.shape]
    assert len(whole) == 4  # friction, heights, wind, places
    other = og.TerrainCost(
        surface=heights, elevation=heights.copy(), horizontal_raster=wind, horizontal_factor=TABLE
    )
    for given in (friction, np.where(friction > 1.9, np.nan, friction)):
        given[3, 2] = 1
        found, expected = (og.cost_distance(given, [(2, 3)], cost=c) for c in (cost, other))
        np.testing.assert_array_equal(found["cost"], expected["cost"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"horizontal_factor": "linear"}, "horizontal_factor: 'linear' without a horizontal_raste"),
        ({"factor": "sideways"}, "horizontal_factor: 'sideways' is not a file; .* one of binary"),
        ({"factor": {0: 1, 190: 2}}, "horizontal_factor: 190 in its table; angles are 0 to 180"),
        ({"factor": {0: 1, 90: -2}}, "horizontal_factor: a factor of -2"),
        ({"factor": [(90, 1), (0, 2)]}, "horizontal_factor: the angles of the table do not incr"),
        ({"factor": {}}, "horizontal_factor: a table of 0 rows"),
        ({"factor": "linear", "coefficients": {"low_cut": 1}}, "low_cut unknown for the factor"),
        (
            {"factor": "linear", "coefficients": {"cut_angle": 200}},
            "200; .* at most 181",
        ),
        ({"factor": "linear", "coefficients": {"slope": -1}}, "a factor of -179.5 at 180 degrees"),
        ({"factor": TABLE, "coefficients": {"slope": 1}}, "they are for a factor with a name"),
    ],
)
def test_bad_factors_are_refused(given: dict[str, Any], words: str) -> None:
    named = {k if k.startswith("h") else f"horizontal_{k}": v for k, v in given.items()}
    wind = {} if "horizontal_factor" in given else {"horizontal_raster": np.ones((2, 2))}
    with pytest.raises(og.InputError, match=words):
        og.TerrainCost(surface=np.ones((2, 2)), **wind, **named)


def test_rasters_of_another_shape_are_refused() -> None:
    cost = og.TerrainCost(horizontal_raster=np.ones((2, 2)))
    with pytest.raises(og.InputError, match="horizontal_raster"):
        og.cost_distance(np.ones((3, 3)), [(0, 0)], cost=cost)
    with pytest.raises(og.InputError, match="surface: None, and so is elevation"):
        og.TerrainCost(horizontal_raster=np.ones((2, 2)), vertical_factor="linear")
