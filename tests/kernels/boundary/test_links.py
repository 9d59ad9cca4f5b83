"""Boundary matrices of rasters with links, against SciPy on all their steps and links."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from boundary_cases import Array, all_pairs, assert_same, costs_of, rasters
from hypothesis import given, settings
from hypothesis import strategies as st

from orograph.kernels.boundary.blocks import block_matrix
from orograph.kernels.boundary.dissection import Rectangle
from orograph.kernels.boundary.elimination import BlockCosts
from orograph.kernels.boundary.interior import interior_distances
from orograph.kernels.boundary.links import BlockLinks, block_links
from orograph.kernels.boundary.propagate import leaving_costs, unreached
from orograph.kernels.boundary.terminals import with_terminals


def random_links(
    rng: np.random.Generator, friction: Array, count: int, both_ways: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Array]:
    """Cells of tails and heads, (n, 2) each, and whole costs; half of them join cells nearby."""
    valid = np.argwhere(~np.isnan(friction.astype(float)))
    tail = valid[rng.integers(0, len(valid), count)]
    near = tail + rng.integers(-1, 2, tail.shape)
    near = np.clip(near, 0, np.array(friction.shape) - 1)
    far = valid[rng.integers(0, len(valid), count)]
    takes_near = rng.random(count) < 0.5
    takes_near &= ~np.isnan(friction.astype(float)[tuple(near.T)])
    head = np.where(takes_near[:, None], near, far)
    cost = rng.integers(1, 60, count)
    differ = (tail != head).any(axis=1)
    tail, head, cost = tail[differ], head[differ], cost[differ]
    if both_ways:
        tail, head, cost = (
            np.concatenate([tail, head]),
            np.concatenate([head, tail]),
            cost.repeat(1),
        )
        cost = np.concatenate([cost, cost])
    return tail, head, cost


@given(
    shape=st.tuples(st.integers(1, 17), st.integers(1, 17)),
    dtype=st.sampled_from(("float64", "float32", "int64")),
    model=st.sampled_from(("friction", "absolute_difference", "tobler")),
    four=st.booleans(),
    both_ways=st.booleans(),
    count=st.sampled_from((1, 5, 40)),
    block=st.sampled_from((3, 8, 32)),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_any_block(
    shape: tuple[int, int],
    dtype: str,
    model: str,
    four: bool,
    both_ways: bool,
    count: int,
    block: int,
    seed: int,
) -> None:
    dtype = "float64" if model == "tobler" else dtype
    rng = np.random.default_rng(seed)
    friction, elevation = rasters(rng, shape, dtype, 0.1)
    if np.isnan(friction).all():
        return
    tail, head, cost = random_links(rng, friction, count, both_ways)
    flat = [cells[:, 0] * shape[1] + cells[:, 1] for cells in (tail, head)]
    found = all_pairs(friction, elevation, dtype, model, four, (*flat, cost))

    def with_links(tail: Array, head: Array, back: bool) -> BlockCosts:
        costs = costs_of(friction, elevation, dtype, model, four)
        rules = costs.rules
        if back:
            rules = rules._replace(reverse=not rules.reverse)
        own = block_links(
            tail, head, cost.astype(dtype), shape, steps=rules.steps, symmetric=both_ways
        )
        return costs._replace(links=own, rules=rules)

    costs = with_links(tail, head, False)
    matrix = block_matrix(costs, Rectangle(0, 0, *shape), block)
    back = None if costs.symmetric else with_links(head, tail, True)
    mine = with_terminals(matrix, costs, back)
    ends = costs.ends[:, 0] * shape[1] + costs.ends[:, 1]
    assert_same(mine, found[np.ix_(ends, ends)])
    # what a row of it, the paths from one cell, gives to all cells
    chosen = int(rng.integers(len(mine)))
    assert_same(interior_distances(costs, mine[chosen]).ravel(), found[ends[chosen]])


def test_links_to_neighbours_beyond_the_border_lower_the_steps_out_of_a_block() -> None:
    friction = np.full((3, 4), 10.0)
    costs = costs_of(friction, friction, "float64", "friction", four=False)
    cells = np.array([[0, 3], [0, 3], [2, 0], [1, 1], [0, 0]])
    beyond = np.array([[0, 4], [-1, 4], [3, -1], [1, 2], [0, 9]])
    own = block_links(
        cells, beyond, np.array([1.0, 2.0, 3.0, 4.0, 5.0]), (3, 4), steps=2, symmetric=False
    )
    costs = costs._replace(links=own, friction=np.full((5, 6), 10.0))
    without, leaving = leaving_costs(costs._replace(links=None)), leaving_costs(costs)
    differ = leaving != without
    assert sorted(leaving[differ].tolist()) == [1.0, 2.0, 3.0]
    assert (leaving[leaving == unreached("float64")] == without[leaving == np.inf]).all()
    assert own.terminals.tolist() == [[0, 0]]


def test_of_links_between_two_cells_the_cheapest_counts() -> None:
    cells = np.array([[0, 0], [0, 0], [0, 1]])
    own = block_links(
        cells, cells[[2, 2, 0]], np.array([7, 3, 9]), (1, 2), steps=1, symmetric=False
    )
    assert isinstance(own, BlockLinks)
    there = own.lowered(cells, np.array([[0, 1], [0, 1], [0, -1]]), np.array([5, 1, 99]))
    assert there.tolist() == [3, 1, 9]
