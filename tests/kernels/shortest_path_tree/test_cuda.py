"""Steps that attain distances, pairs, directions and labels on a GPU: those of the Numba twin."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator
from numpy.testing import assert_array_equal

from orograph.kernels.relax.models import BARRIER, CostModel, edge_lengths
from orograph.kernels.relax.tile import TileState, relax, seed, tile_state
from orograph.kernels.shortest_path_tree import tile as twin
from orograph.kernels.shortest_path_tree.cuda import (
    back_directions,
    labels_of,
    open_pairs,
    set_distances,
    tight_steps,
)
from orograph.kernels.shortest_path_tree.pair_code import PairCode
from orograph.tiles.grid.orientation import Orientation

SHAPE = 41, 70  # blocks that are not whole
SOURCES = np.array([(3, 4, 2), (20, 60, 1), (39, 0, 0), (30, 30, 1)])  # row, column, rank
HOP_BITS = 12
LABELS = np.array([-(2**62), 5, 2**62 - 1])


def solved(name: str, connectivity: int, dtype: str, reverse: bool, by_row: bool) -> TileState:
    """A tile relaxed from the sources, with plains of cost zero, obstacles and many ties."""
    rng = np.random.default_rng(0)
    reach = 2 if connectivity == 16 else 1
    integer = dtype == "int64"
    outside: Any = BARRIER if integer else np.nan
    rasters = {}
    for raster in ("friction", "elevation"):
        cells = rng.integers(0, 3, SHAPE).astype(dtype)
        cells[10, 3:50] = outside
        rasters[raster] = np.pad(cells, reach, constant_values=outside)
    shape = rasters["friction"].shape
    lengths = edge_lengths(shape[0], 1, 1).round()
    if by_row:
        lengths = lengths * (1 + np.arange(shape[0]) / 50)
    state = tile_state(
        np.full(shape, BARRIER if integer else np.inf, dtype),
        model=CostModel(name, reverse),
        connectivity=connectivity,
        lengths=lengths,
        **rasters,
    )
    seed(state, SOURCES[:, 0], SOURCES[:, 1])
    relax(state)
    return state


@pytest.mark.parametrize(
    ("name", "connectivity", "dtype", "reverse", "by_row"),
    [
        ("friction", 8, "float64", False, True),
        ("friction", 4, "int64", False, False),
        ("friction", 16, "float32", False, False),
        ("absolute_difference", 16, "int64", False, False),
        ("tobler", 8, "float32", True, True),
        ("walk", 16, "float64", True, False),
    ],
)
def test_a_tile_has_the_bits_of_the_twin(
    name: str, connectivity: int, dtype: str, reverse: bool, by_row: bool, emulated_gpu: Emulator
) -> None:
    state = solved(name, connectivity, dtype, reverse, by_row)
    reach, reached = state.rules.reach, state.dist < state.unreached
    state.dist[0] = np.where(reached[1], state.dist[1], state.dist[0])  # what a neighbour sent
    inner = np.s_[reach:-reach, reach:-reach]
    steps = twin.tight_steps(state)
    assert_array_equal(tight_steps(state)[inner], steps[inner])
    assert np.unique(steps).size > 25

    rows, columns, ranks = SOURCES.T
    code = PairCode(HOP_BITS, np.arange(3))
    pairs = np.full(state.dist.shape, twin.NOBODY)
    changed = np.zeros(state.dist.shape, np.bool_)
    pairs[inner][rows, columns] = code.pairs(ranks, 0)
    changed[inner][rows, columns] = True
    twin.spread_labels(steps, reach, pairs, changed)
    own, hops = (part[inner] for part in code.labels_and_hops(pairs))
    tile = open_pairs(state)
    tile.seed(rows, columns, code.pairs(ranks, 0))
    tile.relax()
    labelled = own < twin.NOBODY
    expected = np.where(labelled, (own << HOP_BITS) + hops, BARRIER)
    assert_array_equal(tile.state.dist[inner], expected)

    for orientation in itertools.starmap(Orientation, itertools.product((1, -1), repeat=2)):
        codes = twin.back_directions(steps, reach, pairs, code, False, orientation)
        assert_array_equal(back_directions(tile.state, code, orientation), codes, strict=True)
    own[~labelled] = -1
    assert_array_equal(labels_of(tile.state, code, -1), own, strict=True)
    found = labels_of(tile.state, PairCode(HOP_BITS, None, -7), -1)
    assert_array_equal(found, np.where(own < 0, -1, own - 7))
    found = labels_of(tile.state, PairCode(HOP_BITS, LABELS), -1)
    assert_array_equal(found, np.where(own < 0, -1, LABELS[own]))
    assert 0 < np.count_nonzero(own < 0) < own.size / 2


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_known_distances_are_set_where_there_are_any(dtype: str) -> None:
    nothing: Any = -1 if dtype == "int64" else np.nan
    far: Any = BARRIER if dtype == "int64" else np.inf
    dist = np.full((3, 4), far, dtype)
    known = np.array([[1, nothing], [0, 5]], dtype)
    set_distances(dist, known, (1, 2), device=Emulator())
    assert_array_equal(dist, np.array([[far] * 4, [far, far, 1, far], [far, far, 0, 5]], dtype))
