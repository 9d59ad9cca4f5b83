"""Boundary distances against SciPy's Dijkstra on explicit graphs."""

from __future__ import annotations

import numpy as np
import pytest
from boundary_cases import (
    MODELS,
    all_pairs,
    assert_same,
    costs_of,
    expected_matrix,
    rasters,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_boundary import boundary_by_dijkstra

from orograph.kernels.boundary.dissection import (
    FORWARD,
    LEAF,
    Rectangle,
    border_cells,
    elimination_plan,
)
from orograph.kernels.boundary.elimination import (
    block_costs,
    boundary_matrix,
    step_weights,
)
from orograph.kernels.boundary.interior import interior_distances
from orograph.kernels.boundary.merge import merge_blocks
from orograph.kernels.relax.edge_costs import edge
from orograph.kernels.relax.models import CostModel


@pytest.mark.parametrize("side", range(1, 18))
def test_every_side(side: int) -> None:
    rng = np.random.default_rng(side)
    for dtype in ("float64", "float32", "int64"):
        for shape in ((side, side), (side, 2 * side + 1), (5, side)):
            friction, elevation = rasters(rng, shape, dtype, gaps=0.15)
            costs = costs_of(friction, elevation, dtype, "friction", four=False)
            found = all_pairs(friction, elevation, dtype, "friction", four=False)
            assert_same(boundary_matrix(costs), expected_matrix(found, shape))


@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    dtype=st.sampled_from(("float64", "float32", "int64")),
    model=st.sampled_from(MODELS),
    four=st.booleans(),
    gaps=st.sampled_from((0.0, 0.1, 0.45)),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_any_block(
    shape: tuple[int, int], dtype: str, model: str, four: bool, gaps: float, seed: int
) -> None:
    if model in ("tobler", "walk"):
        dtype = "float64"
    friction, elevation = rasters(np.random.default_rng(seed), shape, dtype, gaps)
    costs = costs_of(friction, elevation, dtype, model, four)
    found = all_pairs(friction, elevation, dtype, model, four)
    expected = expected_matrix(found, shape)
    mine = boundary_matrix(costs)
    assert_same(mine, expected)
    assert_same(boundary_by_dijkstra(costs), expected)
    if costs.rules.symmetric:
        np.testing.assert_array_equal(mine, mine.T)
    # what a row of it, the paths from one cell, gives to all cells
    filled = interior_distances(costs, mine[0])
    assert_same(filled.ravel(), found[0])


@pytest.mark.parametrize(
    ("dtype", "model"),
    [(dtype, model) for dtype in ("float64", "float32", "int64") for model in MODELS
     if dtype != "int64" or model not in ("tobler", "walk")],
)  # fmt: skip
def test_planes_hold_what_edge_says(dtype: str, model: str) -> None:
    friction, elevation = rasters(np.random.default_rng(7), (9, 11), dtype, gaps=0.2)
    costs = costs_of(friction, elevation, dtype, model, four=False)
    weights = step_weights(costs, Rectangle(1, 2, 7, 8))
    cost = np.empty(1, dtype)
    inputs = (costs.friction, costs.elevation)
    for d, (dy, dx) in enumerate(FORWARD):
        for y in range(7):
            for x in range(8):
                ends = [(2 + y, 3 + x, dy, dx), (2 + y + dy, 3 + x + dx, -dy, -dx)]
                for plane, end in zip((d, 4 + d), ends):
                    if not (0 <= y + dy < 7 and 0 <= x + dx < 8) or plane >= len(weights):
                        continue
                    edge(*inputs, *end, costs.rules, cost)
                    barred = not cost[0] < costs.rules.unreached
                    said = costs.rules.unreached if barred else cost[0]
                    assert weights[plane, y, x] == said, (plane, y, x)


@given(
    shape=st.tuples(st.integers(2, 24), st.integers(2, 24)),
    cut=st.floats(0, 1),
    across=st.booleans(),
    dtype=st.sampled_from(("float64", "int64")),
    model=st.sampled_from(MODELS),
    four=st.booleans(),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40, deadline=None)
def test_two_blocks_make_one(
    shape: tuple[int, int],
    cut: float,
    across: bool,
    dtype: str,
    model: str,
    four: bool,
    seed: int,
) -> None:
    dtype = "float64" if model in ("tobler", "walk") else dtype
    friction, elevation = rasters(np.random.default_rng(seed), shape, dtype, gaps=0.2)
    costs = costs_of(friction, elevation, dtype, model, four)
    h, w = shape
    if across:
        at = 1 + int(cut * (h - 2))
        blocks = [Rectangle(0, 0, at, w), Rectangle(at, 0, h - at, w)]
    else:
        at = 1 + int(cut * (w - 2))
        blocks = [Rectangle(0, 0, h, at), Rectangle(0, at, h, w - at)]
    one, two = ((block, boundary_matrix(costs, block)) for block in blocks)
    whole, merged = merge_blocks(costs, one, two)
    assert whole == Rectangle(0, 0, h, w)
    found = all_pairs(friction, elevation, dtype, model, four)
    assert_same(merged, expected_matrix(found, shape))


def test_four_blocks_make_one_up_the_quadtree() -> None:
    shape = (30, 37)
    friction, elevation = rasters(np.random.default_rng(1), shape, "int64", gaps=0.25)
    costs = costs_of(friction, elevation, "int64", "friction", four=False)
    quarters = [
        Rectangle(y, x, h, w) for y, h in ((0, 16), (16, 14)) for x, w in ((0, 16), (16, 21))
    ]
    a, b, c, d = ((block, boundary_matrix(costs, block)) for block in quarters)
    whole, merged = merge_blocks(costs, merge_blocks(costs, a, b), merge_blocks(costs, c, d))
    np.testing.assert_array_equal(merged, boundary_matrix(costs, whole))


def test_a_block_knows_only_its_own_cells() -> None:
    """A short way round outside the block is no path of it."""
    friction = np.ones((9, 9))
    friction[3:6, 4] = np.nan
    costs = costs_of(friction, friction, "float64", "friction", four=False)
    block = Rectangle(3, 2, 3, 5)
    matrix = boundary_matrix(costs, block)
    left = border_cells(3, 5)[:, 1] < 2
    right = border_cells(3, 5)[:, 1] > 2
    assert np.isinf(matrix[np.ix_(left, right)]).all()
    np.testing.assert_array_equal(matrix, boundary_by_dijkstra(costs, block))


def test_a_block_of_barriers() -> None:
    nothing = np.full((6, 6), np.nan)
    matrix = boundary_matrix(costs_of(nothing, nothing, "float64", "friction", four=False))
    np.testing.assert_array_equal(matrix, np.where(np.eye(20, dtype=bool), 0, np.inf))


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (300, 2), (64, 64), (65, 127)])
def test_plan_covers_every_cell_with_leaves(shape: tuple[int, int]) -> None:
    plan = elimination_plan(*shape)
    covered = np.zeros(shape, int)
    for kind, y, x in plan.nodes:
        h, w, first = plan.shapes[kind, :3]
        if first < 0:
            assert h * w <= LEAF
            covered[y : y + h, x : x + w] += 1
    assert (covered >= 1).all()
    assert tuple(plan.shapes[plan.nodes[-1, 0], :2]) == shape


def test_border_cells_go_clockwise() -> None:
    clockwise = [(0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0)]
    assert [tuple(cell) for cell in border_cells(3, 3)] == clockwise
    assert [tuple(cell) for cell in border_cells(1, 3)] == [(0, 0), (0, 1), (0, 2)]
    assert [tuple(cell) for cell in border_cells(3, 1)] == [(0, 0), (1, 0), (2, 0)]
    assert [tuple(cell) for cell in border_cells(2, 2)] == [(0, 0), (0, 1), (1, 1), (1, 0)]


def test_what_does_not_fit_is_refused() -> None:
    raster = np.ones((5, 5))
    with pytest.raises(ValueError, match=r"connectivity=16.*passes over"):
        block_costs(raster, connectivity=16)
    with pytest.raises(ValueError, match="neither friction nor elevation"):
        block_costs()
    with pytest.raises(ValueError, match="elevation is float32"):
        block_costs(raster, raster.astype("float32"), model=CostModel("tobler"))
    with pytest.raises(ValueError, match="needs elevation"):
        block_costs(raster, model=CostModel("walk"))
    with pytest.raises(ValueError, match="within a halo of 1"):
        block_costs(np.ones((2, 5)))
    with pytest.raises(ValueError, match="lies outside the raster of 3 x 3"):
        boundary_matrix(block_costs(raster), Rectangle(1, 1, 3, 1))
    costs = block_costs(raster)
    left, low = Rectangle(0, 0, 3, 1), Rectangle(0, 1, 2, 2)
    with pytest.raises(ValueError, match="does not continue"):
        merge_blocks(
            costs, (left, boundary_matrix(costs, left)), (low, boundary_matrix(costs, low))
        )
    with pytest.raises(ValueError, match=r"border has shape \(3,\); must be \(8,\)"):
        interior_distances(costs, np.zeros(3))
