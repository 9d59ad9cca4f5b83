"""Water that splits: against plain loops, and the same bits for any tiling."""

from __future__ import annotations

import math
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import oracle_flow as oracle
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from terrain_cases import Case, cases, fractal, properties

import orograph as og
from orograph.flow.split import SplitAccumulation
from orograph.kernels.flow.split import arctan

METHODS = ("dinf", "mfd")
SIZES = st.sampled_from([(1.0, 1.0), (30.0, 20.0)])
Cell = tuple[int, int]


def portions(
    surface: np.ndarray, valid: np.ndarray, method: str, size: tuple[float, float]
) -> dict[Cell, dict[Cell, float]]:
    """To which cells the water of each flows, by plain loops."""
    step, leaves = oracle.directions(surface, valid, size)
    found: dict[Cell, dict[Cell, float]] = {}
    for cell in (tuple(c) for c in np.argwhere(valid).tolist()):
        own = float(surface[cell])

        def at(dy: int, dx: int, cell: Cell = cell) -> float:
            y, x = cell[0] + dy, cell[1] + dx
            inside = 0 <= y < surface.shape[0] and 0 <= x < surface.shape[1]
            return float(surface[y, x]) if inside and valid[y, x] else math.nan

        lower = {s: own - at(*s) for s in oracle.STEPS if at(*s) < own}
        if not lower:
            steps = {} if step[cell] == 8 or leaves[cell] else {oracle.STEPS[step[cell]]: 1.0}
        elif method == "mfd":
            slopes = {
                s: drop / math.hypot(s[0] * size[0], s[1] * size[1]) for s, drop in lower.items()
            }
            steps = {s: slope / sum(slopes.values()) for s, slope in slopes.items()}
        else:
            steps = tarboton(own, at, size)
        found[cell] = {(cell[0] + dy, cell[1] + dx): p for (dy, dx), p in steps.items()}
    return found


def tarboton(own: float, at: Any, size: tuple[float, float]) -> dict[Cell, float]:
    """The two steps of the steepest facet and their portions, by angles."""
    best, result = -1.0, {}
    for k in range(8):
        side, corner = oracle.STEPS[(k + 1) // 2 * 2 % 8], oracle.STEPS[k // 2 * 2 + 1]
        first, second = at(*side), at(*corner)
        along, across = (size[1], size[0]) if side[0] == 0 else (size[0], size[1])
        widest = math.atan2(across, along)
        if math.isnan(first) or math.isnan(second):
            options = [(0.0, (own - first) / along), (widest, (own - second) / math.hypot(*size))]
            options = [(angle, slope) for angle, slope in options if slope > 0]
        else:
            down, sideways = (own - first) / along, (first - second) / across
            angle = math.atan2(sideways, down)
            if angle < 0:
                options = [(0.0, down)]
            elif angle > widest:
                options = [(widest, (own - second) / math.hypot(*size))]
            else:
                options = [(angle, math.hypot(down, sideways))]
            options = [(angle, slope) for angle, slope in options if slope > 0]
        for angle, slope in options:
            if slope > best * (1 + 1e-12):
                share = angle / widest
                best, result = slope, {side: 1 - share, corner: share}
    return {step: portion for step, portion in result.items() if portion > 0}


def accumulate(flows: dict[Cell, dict[Cell, float]], weights: np.ndarray) -> np.ndarray:
    """Follow the water, cell by cell, each when all above it are done."""
    found = np.full(weights.shape, np.nan)
    waiting = dict.fromkeys(flows, 0)
    for targets in flows.values():
        for target in targets:
            waiting[target] += 1
    ready = [cell for cell, n in waiting.items() if not n]
    for cell in flows:
        found[cell] = weights[cell]
    while ready:
        cell = ready.pop()
        for target, portion in flows[cell].items():
            found[target] += portion * found[cell]
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    assert not any(waiting.values())
    return found


@pytest.mark.parametrize("method", METHODS)
@settings(properties, max_examples=40)
@given(cases(), SIZES, st.booleans())
def test_any_tiling_gives_the_sums_of_plain_loops(
    method: str, case: Case, size: tuple[float, float], weighted: bool
) -> None:
    rng = np.random.default_rng(case.elevation.size)
    # without equal slopes, of which rounding would choose
    heights = (
        case.elevation + rng.permutation(case.elevation.size).reshape(case.elevation.shape) / 1e3
    )
    heights[~case.valid] = np.nan
    weights = rng.random(heights.shape) if weighted else None
    options: dict[str, Any] = {"method": method, "weights": weights, "cell_size": size}
    found = og.flow_accumulation(heights, **options, **case.cut)["accumulation"].values
    whole = og.flow_accumulation(heights, **options)["accumulation"].values
    assert found.tobytes() == whole.tobytes()
    filled = og.fill_depressions(heights)["filled"].values
    flows = portions(filled, case.valid, method, size)
    expected = accumulate(flows, np.ones(heights.shape) if weights is None else weights)
    expected[~case.valid] = np.nan
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@settings(properties, max_examples=40)
@given(cases(), SIZES, st.sampled_from(["fill", "keep"]), st.booleans())
def test_any_tiling_gives_the_angles_of_plain_loops(
    case: Case, size: tuple[float, float], depressions: str, gradient: bool
) -> None:
    rng = np.random.default_rng(case.elevation.size)
    # small, so that slopes differ by more than rounding
    heights = np.where(case.valid, case.elevation, 0).astype(float) % 500
    heights += rng.permutation(heights.size).reshape(heights.shape) / 1e3
    heights[~case.valid] = np.nan
    flats = "gradient" if gradient else "nearest"
    options: dict[str, Any] = {"depressions": depressions, "flats": flats, "cell_size": size}
    found = og.flow_direction(heights, method="dinf", **options, **case.cut)["direction"].values
    surface = heights
    if depressions == "fill":
        surface = og.fill_depressions(surface)["filled"].values
    steps = og.flow_direction(heights, **options)["direction"].values
    expected = np.full(heights.shape, np.nan)
    for cell, targets in portions(surface, case.valid, "dinf", size).items():
        directions = [
            math.atan2((cell[0] - y) * size[0], (x - cell[1]) * size[1]) for y, x in targets
        ]
        if len(targets) < 2 and not any(surface[target] < surface[cell] for target in targets):
            dy, dx = oracle.STEPS[steps[cell] - 1] if steps[cell] else (0, 0)
            directions = [math.atan2(-dy * size[0], dx * size[1])]
        share = list(targets.values())[-1] if len(targets) == 2 else 0
        turn = math.remainder(directions[-1] - directions[0], 2 * math.pi)
        expected[cell] = (directions[0] + share * turn) % (2 * math.pi)
        expected[cell] = -1 if steps[cell] == 0 else expected[cell]
    assert (np.isnan(found) == np.isnan(expected)).all()
    assert ((found == -1) == (expected == -1)).all()
    off = np.mod(found - expected + math.pi, 2 * math.pi) - math.pi
    assert np.nanmax(np.abs(off), initial=0) < 1e-6
    assert np.nanmax(found, initial=0) < np.float32(2 * math.pi)


def test_angles_on_a_breached_surface_are_those_of_that_surface() -> None:
    heights = fractal(90)
    breached = og.breach_depressions(heights, max_length=9)["breached"]
    expected = og.flow_direction(breached, method="dinf")["direction"].values
    found = og.flow_direction(heights, method="dinf", depressions="breach", max_length=9, tile=16)[
        "direction"
    ].values
    np.testing.assert_array_equal(found, expected)


@pytest.mark.diagonal
@pytest.mark.parametrize("method", ["d8", *METHODS])
@pytest.mark.parametrize("depressions", ["breach", "keep"])
def test_one_run_is_as_several(method: str, depressions: str) -> None:
    heights = fractal(90)
    limits: dict[str, Any] = {"max_length": 9} if depressions == "breach" else {}
    options: dict[str, Any] = {
        "depressions": depressions,
        "flats": "gradient",
        "tile": 16,
        **limits,
    }
    found = og.flow_accumulation(heights, method=method, **options)["accumulation"].values
    if depressions == "breach":
        breached = og.breach_depressions(heights, **limits)["breached"]
        expected = og.flow_accumulation(breached, method=method, flats="gradient")
        np.testing.assert_array_equal(found, expected["accumulation"].values)
        return
    if method == "d8":
        flow = og.flow_direction(heights, **options)
        expected = og.flow_accumulation(flow)["accumulation"].values
        np.testing.assert_array_equal(found, expected)
        return
    flow = og.flow_direction(heights, **options)["direction"].values
    flows = portions(heights, np.ones(heights.shape, bool), method, (1.0, 1.0))
    for cell, targets in flows.items():  # over flats the gradient leads
        if targets and not any(heights[target] < heights[cell] for target in targets):
            dy, dx = oracle.STEPS[flow[cell] - 1]
            flows[cell] = {(cell[0] + dy, cell[1] + dx): 1.0}
    np.testing.assert_allclose(found, accumulate(flows, np.ones(heights.shape)), rtol=1e-9)


@pytest.mark.diagonal
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("noise", [False, True])
def test_what_leaves_is_what_fell(method: str, noise: bool) -> None:
    heights = fractal(80)
    if noise:
        heights = np.random.default_rng(2).integers(0, 4, heights.shape).astype(float)
    sums = og.flow_accumulation(heights, method=method, tile=32)["accumulation"].values
    filled = og.fill_depressions(heights)["filled"].values
    flows = portions(filled, np.ones(heights.shape, bool), method, (1.0, 1.0))
    leaving = math.fsum(sums[cell] for cell, targets in flows.items() if not targets)
    assert leaving == pytest.approx(heights.size, rel=1e-12)
    for tile in (7, 16, 64):
        other = og.flow_accumulation(heights, method=method, tile=tile)["accumulation"].values
        assert other.tobytes() == sums.tobytes()


@pytest.mark.parametrize("degrees", [0, 10, 26.565, 45, 70, 90])
def test_water_on_a_plane_goes_straight_down(degrees: float) -> None:
    """Tarboton's planes: two neighbours share by the angles between."""
    y, x = np.mgrid[0:15, 0:15]
    angle = math.radians(degrees)
    plane = -(x * math.cos(angle) - y * math.sin(angle)) * 0.25
    weights = np.zeros(plane.shape)
    weights[7, 7] = 1
    sums = og.flow_accumulation(plane, method="dinf", weights=weights)["accumulation"].values
    below = {(7, 8): 0.0, (6, 8): 45.0, (6, 7): 90.0}
    angle = float(og.flow_direction(plane, method="dinf")["direction"][7, 7])
    assert angle == pytest.approx(math.radians(degrees), abs=1e-6)
    for cell, its_angle in below.items():
        expected = max(0.0, 1 - abs(degrees - its_angle) / 45)
        assert sums[cell] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_all_water_of_a_serpentine_comes_out_at_its_end(method: str) -> None:
    surface = np.full((31, 40), np.nan)
    surface[::2] = 1
    surface[1::4, -1] = surface[3::4, 0] = 1
    way = og.hop_distance(np.isfinite(surface), [(0, 0)], connectivity=4)["hops"].values
    surface = np.where(way >= 0, 1e4 - way, np.nan)
    sums = og.flow_accumulation(surface, method=method, tile=8)["accumulation"].values
    (end,) = sums[way == way.max()]
    assert end == pytest.approx(np.isfinite(surface).sum(), rel=1e-12)


def test_a_run_that_fails_goes_on_from_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heights = fractal(100)
    options: dict[str, Any] = {"method": "dinf", "weights": heights, "tile": 16}
    expected = og.flow_accumulation(heights, **options)
    options |= {"shard": 32, "out": tmp_path / "sums.zarr"}
    whole, calls = SplitAccumulation.visit, count()

    def fail(*args: Any) -> Any:
        if next(calls) == 60:
            raise ZeroDivisionError
        return whole(*args)

    monkeypatch.setattr(SplitAccumulation, "visit", fail)
    with pytest.raises(og.RunError, match="ZeroDivisionError"):
        og.flow_accumulation(heights, **options)
    found = og.flow_accumulation(heights, **options, resume=True)
    xr.testing.assert_identical(found.load(), expected)


def test_a_cluster_has_the_same_bits(tmp_path: Path) -> None:
    heights = fractal(70)
    expected = og.flow_accumulation(heights, method="mfd", weights="area")
    with og.cluster(2, dashboard_address=None) as client:
        found = og.flow_accumulation(
            heights, method="mfd", weights="area", tile=16, shard=32,
            out=tmp_path / "sums.zarr", client=client,
        )  # fmt: skip
    xr.testing.assert_identical(found.load(), expected)


def test_the_arctangent_is_that_of_numpy() -> None:
    numbers = np.concatenate([np.linspace(1e-3, 5, 999), np.logspace(-300, 300, 601)])
    found = np.array([arctan(number) for number in numbers])
    np.testing.assert_allclose(found, np.arctan(numbers), rtol=1e-15)


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_weights_that_are_none_are_named(weight: float) -> None:
    weights = np.ones((5, 6))
    weights[3, 2] = weight
    with pytest.raises(og.InputError, match=f"weights: {weight} at row 3, column 2"):
        og.flow_accumulation(np.eye(5, 6), method="mfd", weights=weights, tile=2)
