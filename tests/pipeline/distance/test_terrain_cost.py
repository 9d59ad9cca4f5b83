"""Lengths along the ground and factors of slope: against Dijkstra with weights made by NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import orograph as og
from orograph.cli.main import main
from orograph.kernels.relax.models.factors import (
    INVERSE,
    IRMISCHER_CLARKE,
    SECANT,
    TOBLER,
    degrees_of,
    lay_out_factors,
    slope_factor,
    slope_factors,
)
from orograph.kernels.relax.models.factors import (
    TABLE as BY_TABLE,
)

SHAPE = (17, 22)
SIDE = 30.0
ALL = ("cost", "back_direction", "allocation")
MOVES = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx]
TABLE = {-40: 2.0, -10: 0.8, 0: 1.0, 25: 3.0, 35: 9.0}
Factor = Callable[[np.ndarray], np.ndarray]


def rasters(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Friction, heights and other heights, with some nodata."""
    rng = np.random.default_rng(seed)
    friction = rng.uniform(1, 5, SHAPE)
    heights, others = np.cumsum(rng.normal(0, 7, (2, *SHAPE)), axis=2)
    friction[rng.random(SHAPE) < 0.05] = np.nan
    heights[rng.random(SHAPE) < 0.05] = np.nan
    friction[3, 4] = heights[3, 4] = 2
    return friction, heights, others


def least(
    friction: np.ndarray, surface: np.ndarray, heights: np.ndarray, factor: Factor, sign: int = 1
) -> np.ndarray:
    """Costs from (3, 4), or to it: each step is an edge of a graph, whose weight NumPy computes."""
    y, x = np.indices(SHAPE)
    number = y * SHAPE[1] + x
    tails, heads, weights = [], [], []
    for dy, dx in MOVES:
        inside = (y + dy >= 0) & (y + dy < SHAPE[0]) & (x + dx >= 0) & (x + dx < SHAPE[1])
        u = y[inside], x[inside]
        v = u[0] + dy, u[1] + dx
        run = SIDE * math.hypot(dy, dx)
        slope = np.degrees(np.arctan2(sign * (heights[v] - heights[u]), run))
        length = np.hypot(run, surface[v] - surface[u])
        with np.errstate(all="ignore"):
            cost = (friction[u] + friction[v]) / 2 * length * factor(slope) + 0 * slope
        there = np.isfinite(cost)
        tails.append(number[u][there])
        heads.append(number[v][there])
        weights.append(cost[there])
    ends = np.concatenate(tails), np.concatenate(heads)
    graph = csr_array((np.concatenate(weights), ends), shape=(number.size, number.size))
    found = dijkstra(graph, indices=number[3, 4]).reshape(SHAPE)
    return np.where(np.isfinite(found), found, np.nan)


def within(low: float, high: float, function: Factor) -> Factor:
    return lambda slope: np.where((slope >= low) & (slope <= high), function(slope), np.nan)


def tabled(table: dict[int, float]) -> Factor:
    angles, values = list(table), list(table.values())
    return within(angles[0], angles[-1], lambda slope: np.interp(slope, angles, values))


def of_tangent(function: Factor) -> Factor:
    return lambda slope: function(np.tan(np.radians(slope)))


CASES: dict[str, tuple[dict[str, Any], Factor]] = {
    "length alone": ({}, np.ones_like),
    "a table": ({"vertical_factor": TABLE}, tabled(TABLE)),
    "binary": ({"vertical_factor": "binary"}, within(-30, 30, np.ones_like)),
    "binary with cuts": (
        {
            "vertical_factor": "binary",
            "vertical_coefficients": {"zero_factor": 3, "low_cut": -20, "high_cut": 25},
        },
        within(-20, 25, lambda slope: np.full_like(slope, 3)),
    ),
    "linear": ({"vertical_factor": "linear"}, lambda slope: 1 + slope / 90),
    "symmetric linear": (
        {"vertical_factor": "symmetric_linear"},
        lambda slope: 1 + np.abs(slope) / 90,
    ),
    "inverse linear": (
        {"vertical_factor": "inverse_linear"},
        within(-45, 45, lambda slope: 1 / (1 - slope / 45)),
    ),
    "symmetric inverse linear": (
        {"vertical_factor": "symmetric_inverse_linear"},
        within(-45, 45, lambda slope: 1 / (1 - np.abs(slope) / 45)),
    ),
    "cos": ({"vertical_factor": "cos"}, lambda slope: np.cos(np.radians(slope))),
    "sec": (
        {"vertical_factor": "sec", "vertical_coefficients": {"sec_power": 3}},
        lambda slope: np.cos(np.radians(slope)) ** -3.0,
    ),
    "cos uphill": (
        {"vertical_factor": "sec_cos", "vertical_coefficients": {"cos_power": 2}},
        lambda slope: np.cos(np.radians(slope)) ** np.where(slope < 0, -1.0, 2.0),
    ),
    "sec uphill": (
        {"vertical_factor": "cos_sec", "vertical_coefficients": {"sec_power": 2}},
        lambda slope: np.cos(np.radians(slope)) ** np.where(slope < 0, 1.0, -2.0),
    ),
    "tobler": (
        {"vertical_factor": "tobler"},
        within(-70, 70, of_tangent(lambda s: 0.6 * np.exp(3.5 * np.abs(s + 0.05)))),
    ),
    "irmischer and clarke": (
        {"vertical_factor": "irmischer_clarke"},
        within(-70, 70, of_tangent(lambda s: 1 / (0.11 + np.exp(-((100 * s + 5) ** 2) / 1800)))),
    ),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("travel", ["from", "to"])
@pytest.mark.parametrize("case", CASES)
def test_costs_are_those_of_dijkstra(case: str, travel: str) -> None:
    given, factor = CASES[case]
    friction, heights, others = rasters()
    sign = 1 if travel == "from" else -1
    how: dict[str, Any] = {"cell_size": SIDE, "travel": travel, "tile": 8}
    for surface, elevation in ((heights, heights), (others, heights)):
        cost = og.TerrainCost(surface=surface, elevation=elevation, **given)
        found = og.cost_distance(friction, [(4, 3)], cost=cost, **how)["cost"]
        expected = least(friction, surface, elevation, factor, sign)
        np.testing.assert_allclose(found, expected, rtol=1e-11)
        assert np.isfinite(expected).sum() > 20


def test_surface_and_elevation_default_to_each_other() -> None:
    friction, heights, _ = rasters()
    costs = [
        og.TerrainCost(surface=heights, vertical_factor=TABLE),
        og.TerrainCost(elevation=heights, vertical_factor=TABLE),
        og.TerrainCost(surface=heights, elevation=heights, vertical_factor=TABLE),
        og.TerrainCost(surface=heights, elevation=heights.copy(), vertical_factor=TABLE),
    ]
    assert [cost.model for cost in costs] == ["terrain"] * 3 + ["terrain_surface"]
    found = [og.cost_distance(friction, [(4, 3)], cost=c, cell_size=SIDE)["cost"] for c in costs]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_tobler_over_an_even_surface_is_the_model_of_walking_time() -> None:
    """And a fine table of it is nearly so."""
    _, heights, _ = rasters()
    even = np.zeros(SHAPE)
    expected = og.walking_time(heights, [(4, 3)], cell_size=SIDE)["time"]
    name = og.TerrainCost(surface=even, elevation=heights, vertical_factor="tobler")
    angles = np.linspace(-70, 70, 5601)
    factors = 0.6 * np.exp(3.5 * np.abs(np.tan(np.radians(angles)) + 0.05))
    table = og.TerrainCost(
        surface=even, elevation=heights, vertical_factor=np.column_stack([angles, factors])
    )
    for cost, near in ((name, 1e-12), (table, 1e-5)):
        found = og.cost_distance(np.ones(SHAPE), [(4, 3)], cost=cost, cell_size=SIDE)["cost"]
        np.testing.assert_allclose(found, expected, rtol=near)


SOME_CASES = ["a table", "sec uphill", "irmischer and clarke"]
"""Each with one connectivity here, and with the others among the long proofs."""


@pytest.mark.parametrize(
    ("case", "connectivity"),
    [
        pytest.param(case, n, marks=[] if SOME_CASES.index(case) == k else pytest.mark.long)
        for case in SOME_CASES
        for k, n in enumerate((4, 8, 16))
    ],
)
def test_any_tiling_and_a_gpu_give_the_same_bits(
    case: str, connectivity: int, emulated_gpu: Emulator
) -> None:
    friction, heights, others = rasters(3)
    for surface in (None, others):
        cost = og.TerrainCost(surface=surface, elevation=heights, **CASES[case][0])
        how: dict[str, Any] = {"cost": cost, "cell_size": SIDE, "connectivity": connectivity}
        before = emulated_gpu.launches
        expected = og.cost_distance(friction, [(4, 3)], outputs=ALL, backend="numba", **how)
        for more in ({"tile": 2}, {"tile": 7}, {"backend": "cuda"}):
            assert emulated_gpu.launches == before
            given = {"backend": "numba", **how, **more}
            found = og.cost_distance(friction, [(4, 3)], outputs=ALL, **given)
            assert found.identical(expected)
        assert emulated_gpu.launches > before


def test_angles_are_those_of_the_arctangent() -> None:
    slopes = np.concatenate([np.linspace(-3, 3, 4001), np.tan(np.linspace(-1.57, 1.57, 999))])
    for length in (1.0, 30.0, 1e-3):
        found = np.array([degrees_of(slope * length, length) for slope in slopes])
        np.testing.assert_allclose(found, np.degrees(np.arctan(slopes)), rtol=4e-15, atol=1e-300)
        exact = [degrees_of(slope * length, length) for slope in (0.0, 1, -1, math.inf, -math.inf)]
        assert exact == [0.0, 45.0, -45.0, 90.0, -90.0]
    assert math.isnan(degrees_of(math.nan, 1.0))


@pytest.mark.diagonal
@pytest.mark.parametrize("kind", [BY_TABLE, INVERSE, SECANT, TOBLER, IRMISCHER_CLARKE])
@pytest.mark.parametrize("rows", [2, 3, 8, 37])
def test_a_row_of_factors_has_the_bits_of_single_ones(kind: int, rows: int) -> None:
    rng = np.random.default_rng(rows)
    angles = np.sort(rng.choice(np.arange(-80, 80), rows, replace=False))
    p = lay_out_factors(kind, 2, -1, rows, *angles.tolist(), *rng.integers(0, 3, rows).tolist())
    ends = [np.tan(np.radians(angles)), [0.0, -0.0, np.nan, np.inf, -np.inf]]
    rises = 3 * np.concatenate([rng.normal(size=300), *ends])
    ahead, back = np.empty((2, rises.size))
    level, length = np.zeros(rises.size), np.full(rises.size, 3.0)
    slope_factors(ahead, back, level, rises, length, p, np.empty(2 * rises.size))
    for found, sign in ((ahead, 1), (back, -1)):
        expected = np.array([slope_factor(sign * rise, 3.0, p) for rise in rises])
        np.testing.assert_array_equal(found, expected)
        assert np.isfinite(found).any()


def test_factors_by_hand() -> None:
    """Values of Esri's formulas at some slopes, and the ends, which belong to a table."""

    def at(degrees: float, factor: Any, **coefficients: float) -> float:
        cost = og.TerrainCost(
            surface=rasters()[1],
            vertical_factor=factor,
            vertical_coefficients=coefficients or None,
        )
        return slope_factor(
            math.tan(math.radians(degrees)), 1.0, lay_out_factors(*cost.coefficients)
        )

    assert at(0, "binary") == 1
    assert math.isnan(at(31, "binary"))
    assert at(45, "linear") == pytest.approx(1.5)
    assert at(-45, "linear") == pytest.approx(0.5)
    assert at(10, "linear", zero_factor=2, slope=0.1, low_cut=-20) == pytest.approx(3)
    assert at(-30, "symmetric_linear") == pytest.approx(1 + 1 / 3)
    assert at(30, "inverse_linear") == pytest.approx(3)
    assert at(-30, "inverse_linear") == pytest.approx(0.6)
    assert at(-30, "symmetric_inverse_linear") == pytest.approx(3)
    assert math.isnan(at(50, "inverse_linear"))
    assert at(60, "cos") == pytest.approx(0.5)
    assert at(60, "sec", sec_power=2) == pytest.approx(4)
    assert at(-60, "cos_sec") == pytest.approx(0.5)
    assert at(60, "cos_sec") == pytest.approx(2)
    assert at(45, [(-45, 7), (45, 5)]) == 5
    assert math.isnan(at(45.001, [(-45, 7), (45, 5)]))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no heights": ({"surface": None}, "surface: None, and so is elevation; give one"),
    "an unknown name": ({"vertical_factor": "steep"}, "vertical_factor: 'steep' is not a file"),
    "no table": ({"vertical_factor": 5}, "vertical_factor: 5; give a name, or pairs"),
    "no pairs": ({"vertical_factor": [1, 2]}, "vertical_factor: 1 in its table"),
    "an empty table": ({"vertical_factor": []}, "a table of 0 rows; it needs two"),
    "a table that does not increase": (
        {"vertical_factor": [(0, 1), (0, 2)]}, "vertical_factor: the angles of the table do not"),
    "a negative factor": ({"vertical_factor": {0: 1, 9: -1}}, "a factor of -1; it must be 0"),
    "a slope beyond the vertical": ({"vertical_factor": {0: 1, 99: 1}}, "99 in its table"),
    "a text in a table": ({"vertical_factor": {0: 1, 9: "x"}}, "'x' in its table"),
    "coefficients of a table": (
        {"vertical_factor": TABLE, "vertical_coefficients": {"slope": 1}}, "leave them out of a"),
    "an unknown coefficient": (
        {"vertical_factor": "cos", "vertical_coefficients": {"slope": 1}}, "slope unknown for the"),
    "a coefficient that is a text": (
        {"vertical_factor": "linear", "vertical_coefficients": {"slope": "1"}}, "slope: '1'"),
    "cuts the wrong way round": (
        {"vertical_factor": "binary", "vertical_coefficients": {"low_cut": 40}}, "low_cut 40 and"),
    "a power that is not whole": (
        {"vertical_factor": "cos", "vertical_coefficients": {"cos_power": 1.5}}, "a whole number"),
    "a line below 0": (
        {"vertical_factor": "linear", "vertical_coefficients": {"slope": 1}}, "factor of -89; it"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_factors_are_refused(case: str) -> None:
    given, message = BAD[case]
    with pytest.raises(og.InputError) as caught:
        og.TerrainCost(**{"surface": np.ones((3, 3)), **given})
    assert message in str(caught.value)


def test_other_calls_that_are_refused(tmp_path: Path) -> None:
    cost = og.TerrainCost(surface=np.ones((4, 3)))
    with pytest.raises(og.InputError, match="surface: 4 x 3 cells, but the first raster has 3 x 3"):
        og.cost_distance(np.ones((3, 3)), [(0, 0)], cost=cost)
    cost = og.TerrainCost(surface=np.ones((3, 3)))
    with pytest.raises(og.InputError, match="dtype: 'int64' with cost='terrain'"):
        og.cost_distance(np.ones((3, 3)), [(0, 0)], cost=cost, dtype="int64")
    with pytest.raises(og.InputError, match="cost: "):
        og.DistanceIndex.build(np.ones((3, 3)), tmp_path / "i.zarr", cost=cost)  # type: ignore[arg-type]
    with pytest.raises(og.InputError, match="model: 'terrain'"):
        og.walking_time(np.ones((3, 3)), [(0, 0)], model="terrain")


def test_the_command_and_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    friction, heights, _ = rasters()
    for name, cells in (("friction", friction), ("heights", heights)):
        og.ingest(cells, tmp_path / f"{name}.zarr")
    (tmp_path / "table.txt").write_text("# slope factor\n-40 2\n-10, 0.8\n0 1\n25 3\n35 9\n")
    expected = og.cost_distance(
        friction, [(4, 3)], cost=og.TerrainCost(surface=heights, vertical_factor=TABLE)
    )
    line = [
        *("cost", str(tmp_path / "friction.zarr"), str(tmp_path / "cost.zarr")),
        *("--point", "4", "3", "--surface", str(tmp_path / "heights.zarr")),
    ]
    assert main([*line, "--workers", "1", "--vertical-factor", str(tmp_path / "table.txt")]) == 0
    found = og.open(tmp_path / "cost.zarr")
    np.testing.assert_array_equal(found["cost"], expected["cost"])
    assert found.attrs["cost_model"] == "terrain"
    capsys.readouterr()
    for more, message in (
        (["--cost", "friction"], "--cost: friction with --surface"),
        (["--vertical-coefficients", "slope=1"], "they are for a factor with a name"),
        (["--vertical-factor", "steep"], "'steep' is not a file"),
    ):
        assert main([*line, "--overwrite", *more]) != 0
        assert message in capsys.readouterr().err
    plain = og.cost_distance.plan(friction)
    by_terrain = og.cost_distance.plan(friction, cost=og.TerrainCost(surface=heights))
    assert by_terrain.memory_per_worker > plain.memory_per_worker
