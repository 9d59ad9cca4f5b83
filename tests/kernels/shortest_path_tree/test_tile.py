"""Pairs (label, hops) along the steps that attain distances, against plain loops."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from orograph.kernels.relax.edge_costs import edge
from orograph.kernels.relax.models import CostModel, edge_lengths
from orograph.kernels.relax.tile import TileState, relax, seed, tile_state
from orograph.kernels.shortest_path_tree.pair_code import NOBODY, PairCode
from orograph.kernels.shortest_path_tree.tile import (
    CODES,
    LEVEL,
    NO_DIRECTION,
    back_directions,
    labels_of,
    resolve_labels,
    spread_labels,
    tight_steps,
)
from orograph.kernels.vectors.lanes import MOVES
from orograph.tiles.errors import RunError
from orograph.tiles.grid.orientation import NORTH_UP, Orientation

SOURCES = ((3, 4, 7), (20, 40, 2), (29, 0, 5))


def solved(model: CostModel, connectivity: int, dtype: Any, least: int = 0) -> TileState:
    """A tile relaxed from three sources: plains of cost zero if ``least`` is, most if less."""
    rng = np.random.default_rng(0)
    reach = 2 if connectivity == 16 else 1
    shape = 30 + 2 * reach, 44 + 2 * reach
    outside = 2**60 if dtype is np.int64 else np.nan
    rasters = {}
    for name in ("friction", "elevation"):
        cells = rng.integers(least, 3 + least, (30, 44)).clip(0)
        raster = np.pad(cells.astype(dtype), reach, constant_values=outside)
        raster[8, 3:30] = outside
        rasters[name] = raster
    state = tile_state(
        np.full(shape, 2**60 if dtype is np.int64 else np.inf, dtype),
        model=model,
        connectivity=connectivity,
        lengths=edge_lengths(shape[0], 1, 1).round(),
        **rasters,
    )
    rows, columns, _ = np.array(SOURCES).T
    seed(state, rows, columns)
    relax(state)
    return state


@pytest.mark.parametrize(
    ("name", "connectivity", "dtype", "reverse", "least"),
    [
        ("friction", 8, np.float64, False, 0),
        ("friction", 8, np.float64, False, 1),
        ("friction", 8, np.float64, False, -1),
        ("absolute_difference", 16, np.int64, False, -1),
        ("friction", 4, np.int64, False, 1),
        ("friction", 16, np.float32, False, 0),
        ("friction", 4, np.int64, False, 0),
        ("absolute_difference", 16, np.float64, False, 0),
        ("tobler", 8, np.float32, True, 0),
        ("walk", 16, np.float64, True, 0),
        ("walk", 8, np.float64, False, 0),
    ],
)
def test_pairs_are_the_least_and_each_cell_is_improved_once(
    name: str, connectivity: int, dtype: Any, reverse: bool, least: int
) -> None:
    state = solved(CostModel(name, reverse), connectivity, dtype, least)
    reach, dist, rules = state.rules.reach, state.dist, state.rules
    moves = MOVES[: 2 * rules.steps + 2].tolist()
    tight = np.zeros(dist.shape, np.uint16)
    arriving = np.zeros(dist.shape, np.uint32)
    cost = np.empty(2, dist.dtype)
    for y, x in np.argwhere(dist < rules.unreached).tolist():
        for m, (dy, dx) in enumerate(moves):
            edge(state.friction, state.elevation, y, x, dy, dx, rules, cost)
            cost[1] = dist[y, x] + cost[0]
            if cost[1] == dist[y + dy, x + dx] < rules.unreached:
                tight[y, x] |= 1 << m
                arriving[y + dy, x + dx] |= 1 << CODES[-dy, -dx] - 1
                arriving[y + dy, x + dx] |= LEVEL if dist[y, x] == cost[1] else 0
    steps = tight_steps(state)
    assert_array_equal(steps, arriving)

    expected = np.full((*dist.shape, 2), NOBODY)
    changed = np.zeros(dist.shape, np.bool_)
    for row, column, label in SOURCES:
        expected[row + reach, column + reach] = label, 0
        changed[row + reach, column + reach] = True
    code = PairCode.of_tile(dist.size, np.array([2, 5, 7]))
    pairs = code.pairs(*np.moveaxis(expected, 2, 0))
    given, resolved, left = pairs.copy(), pairs.copy(), changed.copy()
    while True:
        before = expected.copy()
        for y, x in np.argwhere(expected[..., 0] < NOBODY).tolist():
            for m, (dy, dx) in enumerate(moves):
                if tight[y, x] >> m & 1:
                    label, hops = expected[y, x].tolist()
                    there = expected[y + dy, x + dx]
                    there[:] = min(there.tolist(), [label, hops + 1])
        if (before == expected).all():
            break
    improved = spread_labels(steps, reach, pairs, changed)
    assert_array_equal(np.stack(code.labels_and_hops(pairs), axis=2), expected)
    assert not changed.any()
    reached = int((pairs < NOBODY).sum())
    assert reached > 1000
    assert improved == (pairs != given).sum()

    first, found = resolve_labels(dist, steps, reach, resolved, left)
    assert found == (resolved < NOBODY).sum()
    plains = (arriving >= LEVEL).any()
    assert left.any() == plains
    assert (first == improved) == (not plains)
    assert first == 0 or least >= 0  # where most steps cost nothing, the queue does all
    spread_labels(steps, reach, resolved, left)
    assert_array_equal(resolved, pairs)
    assert not left.any()

    inner = slice(reach, -reach)
    for south, east in itertools.product((1, -1), repeat=2):
        directions = np.full(dist.shape, NO_DIRECTION)
        for y, x in np.argwhere(pairs < NOBODY).tolist():
            label, hops = expected[y, x].tolist()
            ways = [
                CODES[-dy * south, -dx * east]
                for m, (dy, dx) in enumerate(moves)
                if tight[y - dy, x - dx] >> m & 1
                and expected[y - dy, x - dx].tolist() == [label, hops - 1]
            ]
            directions[y, x] = min(ways) if hops else 0
        orientation = Orientation(south, east)
        found_directions = back_directions(steps, reach, pairs, code, False, orientation)
        assert_array_equal(found_directions, directions[inner, inner])
    labels = np.where(expected[..., 0] < NOBODY, expected[..., 0], -1)
    assert_array_equal(labels_of(pairs, reach, code, -1), labels[inner, inner])


def test_pairs_are_numbers_in_their_order_whatever_labels_come_later() -> None:
    code = PairCode.of_tile(10**6)
    pairs = np.full(4, NOBODY)
    known: list[tuple[int, int]] = []
    for label, hops in [(7, 3), (-(2**61), 999_999), (2**61, 0), (0, 5)]:
        code.admit(np.array([label, label]), pairs)
        pairs[len(known)] = code.pairs(np.array([label]), np.array([hops]))[0]
        known.append((label, hops))
        labels, steps = code.labels_and_hops(pairs)
        assert list(zip(labels.tolist(), steps.tolist(), strict=True))[: len(known)] == known
        assert labels[len(known) :].tolist() == [NOBODY] * (4 - len(known))
    assert np.argsort(pairs).tolist() == [1, 3, 0, 2]
    with pytest.raises(RunError, match=r"5 labels, and at most 4 can be told apart.*smaller tiles"):
        PairCode.of_tile(2**59 - 1, np.arange(5))


def test_no_step_is_longer_than_the_halo_is_wide() -> None:
    """Cells that only a link reaches have no direction, whatever lies beside the tile in memory."""
    every_step = np.full((10, 6), 0xFFFF, np.uint32)
    pairs = np.zeros((10, 6), np.int64)  # their hops are 0
    steps, near = every_step[2:8], pairs[2:8]
    steps[...] = 0
    near[...] = 1
    code = PairCode.of_tile(60, np.array([0]))
    assert (back_directions(steps, 1, near, code, True, NORTH_UP) == NO_DIRECTION).all()
