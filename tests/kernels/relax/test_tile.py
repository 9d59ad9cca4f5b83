"""The shortest-path kernel: Dijkstra's values to the bit, however the work is cut up."""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Callable, Container, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

from orograph.kernels.relax.models import BARRIER, BY_FRICTION, CostModel, edge_lengths
from orograph.kernels.relax.tile import TileState, limit_of, relax, seed, tile_state, wake
from orograph.kernels.vectors.exponential import exponential
from orograph.kernels.vectors.lanes import LANES

Array = np.ndarray[Any, Any]
KING = [(-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]
KNIGHT = [(a * s, b * t) for a, b in ((1, 2), (2, 1)) for s in (1, -1) for t in (1, -1)]
MOVES = {4: KING[:4], 8: KING, 16: KING + KNIGHT}
WALK = (0.72, 6.0, 1.9998, -1.9998, -0.2125, 1.0)


def reach_of(connectivity: int) -> int:
    return 2 if connectivity == 16 else 1


def barrier_of(dtype: Any) -> Any:
    return BARRIER if np.dtype(dtype).kind == "i" else np.nan


def unreached_of(dtype: Any) -> Any:
    return BARRIER if np.dtype(dtype).kind == "i" else np.inf


def pad(raster: Array, reach: int, value: Any) -> Array:
    return np.pad(raster, reach, constant_values=value)


# An oracle that shares nothing with the kernel but the formulas


def length_of(lengths: Array, y: int, dy: int, dx: int) -> Any:
    """Length of a step in a grid whose padded rows are the rows of ``lengths``."""
    kind = {(0, 1): 0, (1, 0): 1, (1, 1): 2, (2, 1): 3, (1, 2): 4}[abs(dy), abs(dx)]
    return lengths[kind, max(y, y + dy)]


def step_cost(
    y: int,
    x: int,
    dy: int,
    dx: int,
    model: CostModel,
    f: Array | None,
    z: Array | None,
    length: Any,
) -> Any:
    """Cost of a step between cells, NaN where one is barred; in the rasters' own arithmetic."""
    knight = abs(dy) + abs(dx) == 3
    mean = 1.0
    if f is not None:
        total = f[y, x] + f[y + dy, x + dx]
        if knight and abs(dy) == 2:
            total = (f[y + dy // 2, x] + f[y + dy // 2, x + dx]) + total
        elif knight:
            total = (f[y, x + dx // 2] + f[y + dy, x + dx // 2]) + total
        if model.name == "friction":
            return total * (type(total)(0.25 if knight else 0.5) * length)
        mean = float(total) * (0.25 if knight else 0.5)
    assert z is not None
    if model.name == "absolute_difference":
        if knight and abs(dy) == 2:
            passed = z[y + dy // 2, x], z[y + dy // 2, x + dx]
        elif knight:
            passed = z[y, x + dx // 2], z[y + dy, x + dx // 2]
        else:
            passed = ()
        if not all(abs(height) < 2**60 for height in passed):
            return math.nan
        return abs(z[y + dy, x + dx] - z[y, x])
    rise = float(z[y + dy, x + dx]) - float(z[y, x])
    if model.reverse:
        rise = -rise
    length = float(length)
    if model.name == "tobler":
        (pace,) = model.coefficients or (0.6,)
        return length * pace * math.exp(3.5 * abs(rise / length + 0.05)) * mean
    a, b, c, d, slope_factor, weight = model.coefficients or WALK
    slope = rise / length
    rise *= b if slope >= 0 else (d if slope < slope_factor else c)
    return rise + length * a + weight * mean * length


def oracle(
    shape: tuple[int, int],
    sources: dict[tuple[int, int], float],
    dtype: Any,
    *,
    friction: Array | None = None,
    elevation: Array | None = None,
    lengths: Array | None = None,
    model: CostModel = BY_FRICTION,
    connectivity: int = 8,
    max_cost: float = math.inf,
) -> Array:
    """Dijkstra with a binary heap, rounded to the dtype at every addition."""
    kind = np.dtype(dtype).type
    reach = reach_of(connectivity)
    if lengths is None:
        lengths = edge_lengths(shape[0] + 2 * reach)
    lengths = lengths.astype(dtype)
    f, z = (None if r is None else r.astype(dtype) for r in (friction, elevation))
    dist: dict[tuple[int, int], Any] = {}
    heap = [(kind(v), cell) for cell, v in sources.items() if v <= max_cost]
    heapq.heapify(heap)
    barred = np.zeros(shape, bool)
    for raster in (f, z):
        if raster is not None:
            barred |= raster >= BARRIER if raster.dtype.kind == "i" else ~np.isfinite(raster)
    while heap:
        here, (y, x) = heapq.heappop(heap)
        if (y, x) in dist:
            continue
        dist[y, x] = here
        if barred[y, x]:
            continue
        for dy, dx in MOVES[connectivity]:
            v, w = y + dy, x + dx
            if not (0 <= v < shape[0] and 0 <= w < shape[1]) or barred[v, w] or (v, w) in dist:
                continue
            cost = step_cost(y, x, dy, dx, model, f, z, length_of(lengths, y + reach, dy, dx))
            there = here + kind(cost) if not np.isnan(cost) else np.inf
            if there <= max_cost and there < np.inf:
                heapq.heappush(heap, (there, (v, w)))
    result = np.full(shape, unreached_of(dtype), dtype)
    for cell, value in dist.items():
        result[cell] = value
    return result


def solve(
    shape: tuple[int, int],
    sources: dict[tuple[int, int], float],
    dtype: Any = np.float64,
    *,
    friction: Array | None = None,
    elevation: Array | None = None,
    connectivity: int = 8,
    bounds: Callable[[float], float] = lambda pending: math.inf,
    **options: Any,
) -> Array:
    """The kernel on one tile, in one call or in steps."""
    reach = reach_of(connectivity)
    rasters = {
        name: pad(raster.astype(dtype), reach, barrier_of(dtype))
        for name, raster in (("friction", friction), ("elevation", elevation))
        if raster is not None
    }
    dist = np.full((shape[0] + 2 * reach, shape[1] + 2 * reach), unreached_of(dtype), dtype)
    state = tile_state(dist, connectivity=connectivity, **rasters, **options)
    sow(state, sources)
    while state.pending < math.inf:
        bound = bounds(state.pending)
        stats = relax(state, bound)
        assert stats.pending >= bound or stats.pending == math.inf
    inside = dist[reach:-reach, reach:-reach]
    halo = np.ones(dist.shape, bool)
    halo[reach:-reach, reach:-reach] = False
    assert (dist[halo] == state.unreached).all()
    return inside


def sow(state: TileState, sources: dict[tuple[int, int], float]) -> None:
    if sources:
        rows, columns = np.array(list(sources)).T
        seed(state, rows, columns, np.array(list(sources.values()), state.dist.dtype))


def solve_tiled(
    shape: tuple[int, int],
    sources: dict[tuple[int, int], float],
    tile: tuple[int, int],
    dtype: Any = np.float64,
    *,
    friction: Array | None = None,
    elevation: Array | None = None,
    lengths: Array | None = None,
    connectivity: int = 8,
    step: float = math.inf,
    **options: Any,
) -> Array:
    """Tiles that see one another's values only through halos, by the simplest possible driver."""
    r = reach_of(connectivity)
    full = {
        name: pad(raster.astype(dtype), r, barrier_of(dtype))
        for name, raster in (("friction", friction), ("elevation", elevation))
        if raster is not None
    }
    if lengths is None:
        lengths = edge_lengths(shape[0] + 2 * r)
    whole = np.full((shape[0] + 2 * r, shape[1] + 2 * r), unreached_of(dtype), dtype)
    states = {}
    for top in range(0, shape[0], tile[0]):
        for left in range(0, shape[1], tile[1]):
            h, w = min(tile[0], shape[0] - top), min(tile[1], shape[1] - left)
            part = np.s_[top : top + h + 2 * r, left : left + w + 2 * r]
            states[top, left] = state = tile_state(
                whole[part].copy(),
                lengths=lengths[:, part[0]],
                connectivity=connectivity,
                **{name: raster[part].copy() for name, raster in full.items()},
                **options,
            )
            sow(
                state,
                {
                    (y - top, x - left): v
                    for (y, x), v in sources.items()
                    if top <= y < top + h and left <= x < left + w
                },
            )
    for _ in range(100_000):
        least = min(state.pending for state in states.values())
        bound = max(least + step, math.nextafter(least, math.inf))
        for (top, left), state in states.items():
            if state.pending >= bound:
                continue
            h, w = state.dist.shape
            before = state.dist.copy()
            stats = relax(state, bound)
            changed = (before != state.dist)[r:-r, r:-r]
            for side, cells in enumerate(np.s_[:r, -r:, (..., np.s_[:r]), (..., np.s_[-r:])]):
                assert stats.sides >> side & 1 or not changed[cells].any()
            whole[top + r : top + h - r, left + r : left + w - r] = state.dist[r:-r, r:-r]
        for (top, left), state in states.items():
            h, w = state.dist.shape
            inner = state.dist[r:-r, r:-r].copy()
            state.dist[...] = whole[top : top + h, left : left + w]
            state.dist[r:-r, r:-r] = inner
            wake(state)
        if all(state.pending == math.inf for state in states.values()):
            return whole[r:-r, r:-r]
    raise AssertionError("the tiles do not come to rest")


# Grids


def random_friction(shape: tuple[int, int], seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(1, 10, shape)


def terrain(shape: tuple[int, int], seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    steps = [np.kron(rng.normal(size=(9, 9)), np.ones((1 << k, 1 << k))) for k in range(6)]
    rows, columns = shape
    return np.array(sum(3.0**k * s[:rows, :columns] for k, s in enumerate(steps) if k > 2)) + (
        rng.normal(size=shape)
    )


def obstacles(shape: tuple[int, int]) -> Array:
    friction = random_friction(shape, 1)
    friction[np.random.default_rng(2).random(shape) < 0.35] = np.nan
    friction[shape[0] // 2, shape[1] // 2] = 1
    return friction


def serpentine(rows: int = 120, columns: int = 8) -> Array:
    friction = np.ones((rows, columns))
    for i, row in enumerate(range(1, rows, 2)):
        friction[row] = np.inf
        friction[row, -1 if i % 2 == 0 else 0] = 1
    return friction


def plateaus(shape: tuple[int, int]) -> Array:
    friction = np.round(random_friction(shape, 3) - 5).clip(0)
    friction[:, 5:20] = 0
    return friction


SHAPE = (43, 37)
GRIDS = {
    "random": random_friction(SHAPE),
    "steep": np.exp(terrain((40, 40)) / 40),
    "obstacles": obstacles(SHAPE),
    "serpentine": serpentine(),
    "free plateaus": plateaus(SHAPE),
    "large blanks": np.where(terrain((40, 40), 4) > 0, random_friction((40, 40)), np.inf),
    "one row": random_friction((1, 100)),
    "one column": random_friction((100, 1)),
    "one cell": np.ones((1, 1)),
}


@pytest.fixture(params=GRIDS, scope="module")
def grid(request: pytest.FixtureRequest) -> Array:
    return GRIDS[request.param]


def once(*values: Iterable[Any], of: Container[tuple[int, ...]]) -> list[Any]:
    """All combinations of values, those long that are not at the places ``of``."""
    places = product(*(range(len(list(part))) for part in values))
    return [
        pytest.param(*combination, marks=[] if place in of else pytest.mark.long)
        for place, combination in zip(places, product(*values), strict=True)
    ]


def middle(shape: tuple[int, ...]) -> dict[tuple[int, int], float]:
    return {(shape[0] // 2, shape[1] // 2): 0.0}


@pytest.mark.diagonal
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("connectivity", [4, 8, 16])
def test_friction_is_dijkstra_to_the_bit(grid: Array, connectivity: int, dtype: Any) -> None:
    sources = middle(grid.shape) if np.isfinite(grid).all() else {(0, 0): 0.0, (3, 3): 0.5}
    arguments = {"friction": grid, "connectivity": connectivity}
    expected = oracle(grid.shape, sources, dtype, **arguments)
    assert_array_equal(solve(grid.shape, sources, dtype, **arguments), expected)


def test_friction_is_scipy_to_the_bit() -> None:
    friction = obstacles((150, 130))
    rows, columns = friction.shape
    cells = np.arange(friction.size).reshape(friction.shape)
    u, v, w = [], [], []
    for dy, dx in [(0, 1), (1, 0), (1, 1), (1, -1)]:
        a = np.s_[: rows - dy, max(0, -dx) : columns - max(0, dx)]
        b = np.s_[dy:, max(0, dx) : columns - max(0, -dx)]
        cost = (friction[a] + friction[b]) * (0.5 * math.hypot(dy, dx))
        there = np.isfinite(cost)
        u.append(cells[a][there])
        v.append(cells[b][there])
        w.append(cost[there])
    graph = coo_array(
        (np.concatenate(w), (np.concatenate(u), np.concatenate(v))), (friction.size, friction.size)
    )
    source = cells[75, 65]
    expected = dijkstra(graph.tocsr(), directed=False, indices=source).reshape(friction.shape)
    assert 0.5 < np.isfinite(expected).mean() < 0.7
    assert_array_equal(solve(friction.shape, middle(friction.shape), friction=friction), expected)


def test_serpentine_reaches_every_cell() -> None:
    walls = serpentine()
    assert np.isfinite(walls).sum() == 540
    result = solve_tiled(walls.shape, {(0, 0): 0.0}, (60, 8), friction=walls)
    assert np.isfinite(result).sum() == 540
    assert_array_equal(result, solve(walls.shape, {(0, 0): 0.0}, friction=walls))


@pytest.mark.parametrize(
    ("dtype", "connectivity"),
    once([np.float64, np.float32, np.int64], [4, 8, 16], of=((0, 2), (1, 0), (2, 1))),
)
def test_absolute_difference_with_flat_ground(connectivity: int, dtype: Any) -> None:
    heights = np.round(terrain((60, 40)) / 4).clip(0)  # a third of it at sea level
    assert (heights == 0).mean() > 0.3
    heights[10:30, 7] = BARRIER if dtype is np.int64 else np.nan
    arguments = {
        "elevation": heights,
        "model": CostModel("absolute_difference"),
        "connectivity": connectivity,
    }
    sources = {(0, 0): 2, (59, 39): 0}
    expected = oracle(heights.shape, sources, dtype, **arguments)
    assert_array_equal(solve(heights.shape, sources, dtype, **arguments), expected)


@pytest.mark.parametrize("connectivity", [4, 16])
def test_tiles_of_integers_hold_the_half_or_the_quarter_of_friction(connectivity: int) -> None:
    friction = np.random.default_rng(0).integers(0, 2**45, (40, 50))
    friction[5:35, 20] = BARRIER
    lengths = np.ones((5, 40 + 2 * reach_of(connectivity)))
    lengths[3:] = 3
    found = solve(
        friction.shape,
        middle(friction.shape),
        np.int64,
        friction=friction,
        lengths=lengths,
        connectivity=connectivity,
    )
    unit = 4 if connectivity == 16 else 2

    def cost(y: int, x: int, dy: int, dx: int) -> int:
        cells = {(y, x), (y + dy, x + dx)}
        if abs(dy) == 2:
            cells |= {(y + dy // 2, x), (y + dy // 2, x + dx)}
        if abs(dx) == 2:
            cells |= {(y, x + dx // 2), (y + dy, x + dx // 2)}
        if any(friction[c] == BARRIER for c in cells):
            return BARRIER
        mean = sum(unit * int(friction[c]) for c in cells) // len(cells)
        return mean * (3 if len(cells) == 4 else 1)

    # each value must be the least over its neighbours: the fixpoint, in Python's integers
    for (y, x), value in np.ndenumerate(found):
        best = 0 if (y, x) in middle(friction.shape) else BARRIER
        for dy, dx in MOVES[connectivity]:
            if 0 <= y + dy < 40 and 0 <= x + dx < 50:
                best = min(best, int(found[y + dy, x + dx]) + cost(y + dy, x + dx, -dy, -dx))
        assert value == best
    assert (found[friction == BARRIER] == BARRIER).all()


SLOPES = {
    "tobler": CostModel("tobler"),
    "tobler, slower": CostModel("tobler", coefficients=(1.5,)),
    "walk": CostModel("walk"),
    "walk, lambda 0.3": CostModel("walk", coefficients=(0.5, 4.0, 1.5, -3.0, -0.3, 0.3)),
}


@pytest.mark.parametrize(
    ("name", "connectivity", "with_friction"),
    once(SLOPES, [4, 8, 16], [False, True], of=((0, 1, 0), (1, 0, 1), (2, 2, 0), (3, 1, 1))),
)
def test_slopes_in_both_directions(name: str, connectivity: int, with_friction: bool) -> None:
    heights = terrain((40, 36), 5)
    heights[10:30, 14] = np.nan
    friction = random_friction(heights.shape) if with_friction else None
    if friction is not None:
        friction[3, :20] = np.inf
    fields = []
    for reverse in (False, True):
        arguments = {
            "friction": friction,
            "elevation": heights,
            "model": SLOPES[name]._replace(reverse=reverse),
            "connectivity": connectivity,
            "lengths": edge_lengths(40 + 2 * reach_of(connectivity), 10.0, 12.0),
        }
        sources = middle(heights.shape)
        expected = oracle(heights.shape, sources, np.float64, **arguments)
        found = solve(heights.shape, sources, **arguments)
        assert_allclose(found, expected, rtol=1e-13)
        single = solve(heights.shape, sources, np.float32, **arguments)
        assert_allclose(single, expected, rtol=1e-5)
        tiled = solve_tiled(heights.shape, sources, (17, 20), np.float32, **arguments)
        assert_array_equal(tiled, single)
        fields.append(found)
    assert np.isfinite(fields[0]).mean() > 0.9
    assert not np.allclose(*fields)
    # there from here costs what here to there costs
    far = (2, 3)
    arguments["model"] = SLOPES[name]
    back = solve(heights.shape, {far: 0.0}, **arguments)
    assert_allclose(back[20, 18], fields[1][far], rtol=1e-12)


@pytest.mark.parametrize("name", ["tobler", "walk"])
def test_weights_are_those_of_the_block_whoever_had_their_place_before(name: str) -> None:
    heights = np.random.default_rng(5).uniform(0, 3, (20, 330))  # 42 blocks of 8 in a row
    arguments = {"elevation": heights, "model": SLOPES[name]}
    sources = {(0, 0): 0.0, (9, 64): 0.0, (19, 128): 0.0, (5, 320): 0.0}
    expected = solve(heights.shape, sources, **arguments)
    assert_array_equal(solve(heights.shape, sources, block=8, **arguments), expected)


@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("case", ["tobler", "walk, lengths by row", "whole numbers"])
def test_rows_weighed_alone_are_those_of_the_whole_block(case: str, connectivity: int) -> None:
    values = np.random.default_rng(8).integers(1, 30, (132, 141))
    arguments: dict[str, Any] = {"connectivity": connectivity}
    dtype = np.float64
    if case == "whole numbers":
        arguments["friction"], dtype = values, np.int64
        arguments["lengths"] = np.full((5, 134), 2.0)
    else:
        arguments |= {"elevation": values / 10, "model": SLOPES[case.split(",")[0]]}
        if "lengths" in case:
            arguments["lengths"] = geographic(132, 1)
    sources = {(60, 70): 0}
    expected = solve(values.shape, sources, dtype, **arguments)  # weights of all blocks are kept
    assert_array_equal(solve(values.shape, sources, dtype, block=8, **arguments), expected)


def geographic(rows: int, reach: int) -> Array:
    """Lengths that differ from row to row, and between the classes, beyond any symmetry."""
    return np.random.default_rng(9).uniform(0.5, 2, (5, rows + 2 * reach))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("connectivity", [4, 8, 16])
def test_lengths_by_row(connectivity: int, dtype: Any) -> None:
    friction = obstacles((80, 50))
    arguments = {
        "friction": friction,
        "connectivity": connectivity,
        "lengths": geographic(80, reach_of(connectivity)),
    }
    sources = middle(friction.shape)
    expected = oracle(friction.shape, sources, dtype, **arguments)
    assert_array_equal(solve(friction.shape, sources, dtype, **arguments), expected)
    assert_array_equal(solve(friction.shape, sources, dtype, block=7, **arguments), expected)
    tiled = solve_tiled(friction.shape, sources, (33, 50), dtype, **arguments)
    assert_array_equal(tiled, expected)


@pytest.mark.diagonal
@pytest.mark.parametrize("connectivity", [8, 16])
@pytest.mark.parametrize("block", [2, 3, 8, 21, 32])
def test_blocks_change_no_bit(grid: Array, block: int, connectivity: int) -> None:
    arguments = {"friction": grid, "connectivity": connectivity}
    whole = solve(grid.shape, {(0, 0): 0.0}, **arguments)
    assert_array_equal(solve(grid.shape, {(0, 0): 0.0}, block=block, **arguments), whole)


@pytest.mark.diagonal
@pytest.mark.parametrize("step", [0.01, 3.0, 50.0])
def test_bounds_change_no_bit(grid: Array, step: float) -> None:
    whole = solve(grid.shape, {(0, 0): 0.0}, friction=grid)
    stepped = solve(
        grid.shape, {(0, 0): 0.0}, friction=grid, bounds=lambda pending: pending + step, block=8
    )
    assert_array_equal(stepped, whole)


def test_values_below_bound_and_pending_are_final() -> None:
    friction = pad(random_friction((100, 100)), 1, np.nan)
    final = solve((100, 100), {(0, 0): 0.0}, friction=friction[1:-1, 1:-1])
    dist = np.full(friction.shape, np.inf)
    state = tile_state(dist, friction=friction, block=10)
    seed(state, [0], [0])
    for bound in (1.0, 20.0, 100.0, 200.0):
        stats = relax(state, bound)
        assert bound <= stats.pending == state.pending
        known = dist[1:-1, 1:-1] < stats.pending
        assert 0 < known.sum() < known.size
        assert_array_equal(dist[1:-1, 1:-1][known], final[known])
        assert known.sum() == (final < stats.pending).sum()
        assert relax(state, bound).visits == 0
    assert relax(state).pending == math.inf
    assert_array_equal(dist[1:-1, 1:-1], final)


@pytest.mark.diagonal
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("connectivity", [8, 16])
@pytest.mark.parametrize("max_cost", [0.0, 30.0, 81.3])
def test_max_cost_is_exact(max_cost: float, connectivity: int, dtype: Any) -> None:
    friction = obstacles(SHAPE)
    arguments = {"friction": friction, "connectivity": connectivity}
    sources = {(35, 22): 0.0, (3, 3): 40.0}
    whole = solve(SHAPE, sources, dtype, **arguments)
    expected = np.where(whole.astype(np.float64) <= max_cost, whole, np.inf)
    assert_array_equal(solve(SHAPE, sources, dtype, max_cost=max_cost, **arguments), expected)
    tiled = solve_tiled(SHAPE, sources, (20, 31), dtype, max_cost=max_cost, **arguments)
    assert_array_equal(tiled, expected)
    # a limit that is some cell's value to the bit lets the cell in, one next to it below does not
    exact = float(np.sort(whole[np.isfinite(whole)])[500])
    for limit in (exact, math.nextafter(exact, 0.0)):
        limited = solve(SHAPE, sources, dtype, max_cost=limit, **arguments)
        expected = np.where(whole.astype(np.float64) <= limit, whole, np.inf)
        assert_array_equal(limited, expected)
        assert (limited[np.isfinite(limited)].max() == exact) == (limit == exact)


def test_many_sources_and_unreachable_ground() -> None:
    friction = obstacles((90, 90))
    friction[:, 45] = np.nan
    rng = np.random.default_rng(0)
    cells = rng.integers(0, (90, 45), (300, 2))
    sources = {(int(y), int(x)): float(v) for (y, x), v in zip(cells, rng.uniform(0, 9, 300))}
    found = solve(friction.shape, sources, friction=friction)
    assert_array_equal(found, oracle(friction.shape, sources, np.float64, friction=friction))
    assert np.isinf(found[:, 45:]).all()


def test_a_source_on_a_barrier_goes_nowhere() -> None:
    friction = np.ones((40, 40))
    friction[20, 20] = np.nan
    found = solve(friction.shape, {(20, 20): 1.0}, friction=friction)
    assert found[20, 20] == 1
    assert np.isfinite(found).sum() == 1


@pytest.mark.diagonal
@pytest.mark.parametrize("connectivity", [4, 8, 16])
@pytest.mark.parametrize("tile", [(35, 23), (35, 45), (33, 44), (7, 5), (1, 45), (70, 1)])
def test_tiles_change_no_bit(tile: tuple[int, int], connectivity: int) -> None:
    friction = obstacles(SHAPE)
    arguments = {"friction": friction, "connectivity": connectivity}
    whole = solve(SHAPE, middle(SHAPE), **arguments)
    assert_array_equal(solve_tiled(SHAPE, middle(SHAPE), tile, **arguments), whole)
    stepped = solve_tiled(SHAPE, middle(SHAPE), tile, step=20.0, **arguments)
    assert_array_equal(stepped, whole)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_cut_gives_the_same_bits(data: st.DataObject) -> None:
    draw = data.draw
    shape = draw(st.tuples(st.integers(1, 50), st.integers(1, 50)), "shape")
    # no more than 8 tiles down or across: the driver is simple, not fast
    tile = tuple(draw(st.integers(-(-n // 8), 60), "tile") for n in shape)
    connectivity = draw(st.sampled_from([4, 8, 16]), "connectivity")
    dtype = draw(st.sampled_from([np.float64, np.float32]), "dtype")
    rng = np.random.default_rng(draw(st.integers(0, 2**32), "seed"))
    friction = rng.uniform(0, 5, shape)
    friction[rng.random(shape) < draw(st.sampled_from([0.0, 0.3]), "free")] = 0
    friction[rng.random(shape) < draw(st.sampled_from([0.0, 0.4]), "nodata")] = np.nan
    cells = draw(st.integers(1, 4), "sources")
    sources = {
        (int(rng.integers(shape[0])), int(rng.integers(shape[1]))): float(rng.integers(4))
        for _ in range(cells)
    }
    step = draw(st.sampled_from([0.5, 10.0, math.inf]), "step")
    max_cost = draw(st.sampled_from([math.inf, 12.5]), "max_cost")
    block = draw(st.integers(2, LANES), "block")
    name = draw(st.sampled_from(["friction", "absolute_difference", "walk"]), "model")
    raster = {"friction": friction} if name == "friction" else {"elevation": friction}
    arguments = dict(
        model=CostModel(name, reverse=draw(st.booleans(), "reverse")),
        connectivity=connectivity,
        max_cost=max_cost,
        lengths=draw(st.sampled_from([geographic(shape[0], reach_of(connectivity)), None])),
        **raster,
    )
    whole = solve(shape, sources, dtype, **arguments)
    expected = oracle(shape, sources, dtype, **arguments)
    if name == "walk":
        assert_allclose(whole, expected, rtol=1e-12 if dtype is np.float64 else 1e-5)
    else:
        assert_array_equal(whole, expected)
    cut = solve_tiled(shape, sources, tile, dtype, step=step, block=block, **arguments)
    assert_array_equal(cut, whole)


def test_wake_finds_the_least_value_and_only_where_asked() -> None:
    friction = np.full((42, 52), 2.0)
    dist = np.full(friction.shape, np.inf)
    state = tile_state(dist, friction=friction, block=10)
    assert wake(state) == math.inf
    dist[0, 30] = 5.0  # beyond the northern side
    dist[25, 0] = 9.0  # beyond the western side
    assert wake(state, sides=1 << 1 | 1 << 3) == math.inf
    assert wake(state, sides=1 << 2) == 11.0
    assert (state.keys < np.inf).sum() == 1
    assert state.keys[2, 0] == 11.0
    assert wake(state) == 7.0
    assert state.keys[0, 2] == 7.0
    stats = relax(state)
    assert stats.sides == 15
    assert wake(state) == math.inf
    friction[1:-1, 1:-1] = np.nan
    dist[1:-1, 1:-1] = np.inf
    assert wake(state) == math.inf


def test_a_corner_of_the_halo_wakes_the_corner_block() -> None:
    for corner, block in {
        (0, 0): (0, 0),
        (0, -1): (0, 3),
        (-1, 0): (3, 0),
        (-1, -1): (3, 3),
    }.items():
        dist = np.full((42, 42), np.inf)
        state = tile_state(dist, friction=np.ones((42, 42)), block=10)
        dist[corner] = 1.0
        assert wake(state) == 1.0 + math.sqrt(2.0)
        assert_array_equal(np.argwhere(state.keys < np.inf), [block])
        relax(state)
        inner = {0: 1, -1: -2}
        assert dist[inner[corner[0]], inner[corner[1]]] == 1.0 + math.sqrt(2.0)


def test_bounds_are_not_rounded_to_the_key() -> None:
    dist = np.full((6, 6), np.inf, np.float32)
    state = tile_state(dist, friction=np.ones((6, 6), np.float32))
    seed(state, [0], [0], 1e10)
    assert relax(state, 1e10 + 0.5).visits == 1
    assert state.pending == math.inf


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_bounds_are_of_the_tile_s_dtype(dtype: Any) -> None:
    """A bound of another dtype would have the kernels compiled once more."""
    dist = np.full((6, 6), unreached_of(dtype), dtype)
    state = tile_state(dist, friction=np.ones((6, 6), dtype), connectivity=4)
    for bound in (0.5, 7, 2**53 + 1, 2**70, math.inf):
        limit = limit_of(bound, state)
        assert type(limit) is dtype
        assert limit >= min(bound, state.unreached)
    assert dtype is not np.int64 or limit_of(2**53 + 1, state) == 2**53 + 1


def test_values_above_max_cost_wake_nobody_for_ever() -> None:
    # each block finds values above the limit again at every visit, and two visit each other
    for block in range(2, LANES):
        for connectivity in (4, 8, 16):
            friction = random_friction((50, 47), block)
            arguments = {"friction": friction, "connectivity": connectivity, "block": block}
            whole = solve(friction.shape, {(0, 0): 0.0}, max_cost=12.5, **arguments)
            arguments["max_cost"] = 12.5
            cut = solve_tiled(friction.shape, {(0, 0): 0.0}, (24, 20), **arguments)
            assert_array_equal(cut, whole)


def test_stats_count_the_work() -> None:
    dist = np.full((66, 66), np.inf)
    state = tile_state(dist, friction=pad(np.ones((64, 64)), 1, np.nan))
    seed(state, [10], [10])
    stats = relax(state, 1.0)
    assert stats.visits == 1
    assert stats.settled == 32 * 32 - 1  # all of one block but its source
    assert stats.pending == 22.0  # one step east or south of the block
    assert stats.sides == 0b0101
    assert relax(state).sides == 0b1111


@pytest.mark.parametrize("shape", [(1, 3000), (3000, 1)])
def test_a_line_is_passed_along_once_and_back(shape: tuple[int, int]) -> None:
    dist = np.full((shape[0] + 2, shape[1] + 2), np.inf)
    state = tile_state(dist, friction=pad(random_friction(shape), 1, np.nan))
    seed(state, [0, shape[0] - 1], [0, shape[1] - 1], [0.0, 3.0])
    stats = relax(state, 1.0)
    assert stats.pending == math.inf
    assert stats.settled == stats.found == 3000 - 2
    assert stats.rows == 2 * (3000 + 1)
    assert relax(state).visits == 0


def test_exponential_is_within_an_ulp_or_so() -> None:
    x = np.linspace(0.0, 700.0, 200_001)
    mine = np.array([exponential(v) for v in x])
    assert_allclose(mine, np.exp(x), rtol=4e-16)
    assert exponential(0.0) == 1.0
    assert exponential(800.0) == math.inf
    assert math.isnan(exponential(math.nan))


# Others' results


def read(path: Path) -> Array:
    with rasterio.open(path) as file:
        band = file.read(1).astype(np.float64)
        if file.nodata is not None:
            band[band == file.nodata] = np.nan
    return band


def test_grass_rcost_over_resistances(shared_data: Path) -> None:
    friction = read(shared_data / "friction" / "lm_resistances.tif")
    cores = read(shared_data / "reference" / "lm_cores_rasterised.tif")
    expected = read(shared_data / "reference" / "lm_cwd_from_core1.tif")
    sources = {(int(y), int(x)): 0.0 for y, x in np.argwhere(cores == 1)}
    found = solve(friction.shape, sources, friction=friction)
    reached = np.isfinite(expected)
    assert reached.sum() > 300_000
    assert_allclose(found[reached], expected[reached], rtol=1e-12)


START = (597420.5, 150805.5)


def fort_bragg(folder: Path) -> tuple[Array, dict[tuple[int, int], float]]:
    path = folder / "friction" / "nc_fortbragg_mannings.tif"
    with rasterio.open(path) as file:
        assert file.res == (1.0, 1.0)
        row, column = file.index(*START)
    return read(path), {(row, column): 0.0}


@pytest.mark.parametrize(("name", "connectivity"), [("8nbr", 8), ("knight", 16)])
def test_grass_rcost(shared_data: Path, name: str, connectivity: int) -> None:
    friction, sources = fort_bragg(shared_data)
    expected = read(shared_data / "reference" / f"nc_fortbragg_rcost_{name}.tif")
    found = solve(friction.shape, sources, friction=friction, connectivity=connectivity)
    reached = np.isfinite(expected)
    assert reached.sum() > 190_000
    assert_allclose(found[reached], expected[reached], rtol=1e-12)


def test_grass_rwalk(shared_data: Path) -> None:
    friction, sources = fort_bragg(shared_data)
    heights = read(shared_data / "dem" / "nc_fortbragg_2016.tif")
    expected = read(shared_data / "reference" / "nc_fortbragg_rwalk_8nbr.tif")
    found = solve(
        friction.shape, sources, friction=friction, elevation=heights, model=CostModel("walk")
    )
    reached = np.isfinite(expected)
    assert reached.sum() > 190_000
    assert_allclose(found[reached], expected[reached], rtol=1e-12)


def test_esri_worked_example(shared_data: Path) -> None:
    example = json.loads((shared_data / "reference" / "esri_cost_distance_6x6.json").read_text())
    friction = np.array(example["cost"], float)
    friction[friction == example["cost_nodata"]] = np.nan
    sources = {(int(y), int(x)): 0.0 for y, x in np.argwhere(np.array(example["sources"]) > 0)}
    expected = np.array(example["cost_distance"])
    expected[np.isnan(friction)] = np.inf
    assert_allclose(solve((6, 6), sources, friction=friction), expected, rtol=1e-9)


# What is refused


def bad_state(**changes: Any) -> TileState:
    arguments: dict[str, Any] = {
        "dist": np.full((12, 12), np.inf),
        "friction": np.ones((12, 12)),
        "connectivity": 8,
    }
    return tile_state(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"connectivity": 6}, "connectivity=6; must be 4, 8 or 16"),
        ({"dist": np.full((12, 12), 1, np.int32)}, "dist is int32"),
        ({"dist": np.full((2, 12), np.inf)}, "at least one cell"),
        ({"lengths": np.zeros((5, 12))}, "lengths go from 0.0 to 0.0"),
        (
            {"model": CostModel("tobler", coefficients=(0.0,)), "elevation": np.ones((12, 12))},
            "pace 0.0",
        ),
        ({"block": 0}, "block=0; must be 1 to 32"),
        ({"block": 33}, "block=33; must be 1 to 32"),
        ({"block": 1, "connectivity": 16}, "block=1; must be 2 to 32"),
        ({"model": CostModel("swim")}, "model 'swim'; must be one of friction"),
        ({"model": CostModel("tobler")}, "the model tobler needs elevation"),
        ({"friction": None}, "the model friction needs friction"),
        ({"friction": np.ones((12, 13))}, r"friction is float64 of shape \(12, 13\)"),
        ({"friction": np.ones((12, 12), "f4")}, "must be as dist: float64"),
        ({"friction": np.ones((12, 24))[:, ::2]}, "friction is not in C order"),
        ({"lengths": np.ones((5, 10))}, r"lengths has shape \(5, 10\); must be \(5, 12\)"),
        (
            {"model": CostModel("walk", coefficients=(1.0,)), "elevation": np.ones((12, 12))},
            "1 coefficients for walk; must be 6",
        ),
        (
            {
                "model": CostModel("walk", coefficients=(0.1, *WALK[1:])),
                "elevation": np.ones((12, 12)),
            },
            "can make a step's cost negative",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_arguments_are_named(changes: dict[str, Any], message: str) -> None:
    bad_state()
    with pytest.raises(ValueError, match=message):
        bad_state(**changes)


def test_integers_need_whole_lengths_and_symmetric_costs() -> None:
    whole = np.full((12, 12), BARRIER)
    with pytest.raises(ValueError, match="whole numbers"):
        tile_state(whole, friction=whole)
    with pytest.raises(ValueError, match="needs a float dist"):
        tile_state(whole, elevation=whole, model=CostModel("tobler"))


def test_bad_sources_are_named() -> None:
    state = bad_state()
    with pytest.raises(ValueError, match=r"source 1 at \(3, 10\) lies outside the tile of 10 x 10"):
        seed(state, [0, 3], [0, 10])
    with pytest.raises(ValueError, match=r"source 1 starts at -1\.0; must be 0 or more"):
        seed(state, [0, 3], [0, 9], [0.0, -1.0])
    with pytest.raises(ValueError, match="source 0 starts at nan"):
        seed(state, [0], [0], math.nan)
    assert state.pending == math.inf
