"""The longest way of water to each cell is as long as its steps, for any tiling."""

from __future__ import annotations

import math

import numpy as np
import oracle_flow as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from terrain_cases import Case, cases, fractal, properties

import orograph as og


@settings(properties, max_examples=50)
@given(
    cases(),
    st.sampled_from([(1.0, 1.0), (30.0, 25.0), (2.0**-40, 2.0**-41), (1e290, 3e290)]),
    st.sampled_from(tuple(oracle.CODES)),
)
def test_any_tiling_gives_the_lengths_of_plain_loops(
    case: Case, size: tuple[float, float], encoding: str
) -> None:
    step, leaves = oracle.directions(case.elevation, case.valid)
    codes = oracle.encode(step, leaves, case.valid, encoding).astype(np.int16)
    found = og.upstream_length(codes, codes=encoding, cell_size=size, **case.cut)["length"]
    expected = longest(step, leaves, size)
    expected[~case.valid] = np.nan
    within = step.size * 2.0**-20 * min(1.0, max(size))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=within)
    whole = og.upstream_length(codes, codes=encoding, cell_size=size)["length"]
    np.testing.assert_array_equal(found, whole)


def longest(step: np.ndarray, leaves: np.ndarray, size: tuple[float, float]) -> np.ndarray:
    """Follow the water of each cell, and keep the longest way at each cell that it passes."""
    found = np.zeros(step.shape)
    for first in np.ndindex(step.shape):
        y, x = first
        gone = 0.0
        while step[y, x] < 8 and not leaves[y, x]:
            dy, dx = oracle.STEPS[step[y, x]]
            gone += math.hypot(dy * size[0], dx * size[1])
            y, x = y + dy, x + dx
            found[y, x] = max(found[y, x], gone)
    return found


def test_the_longest_way_is_that_of_the_farthest_cell() -> None:
    """Against `flow_distance`: of all cells of a watershed one is as far as its outlet says."""
    flow = og.flow_direction(fractal(120), tile=32)
    sheds = og.watersheds(flow)["watershed"].values
    distance = og.flow_distance(flow, tile=16)["distance"].values
    length = og.upstream_length(flow, tile=32)["length"].values
    farthest = np.zeros(sheds.max() + 1)
    np.maximum.at(farthest, sheds.ravel(), distance.ravel())
    ends = distance == 0
    np.testing.assert_array_equal(length[ends], farthest[sheds[ends]])


@pytest.mark.parametrize("tile", [1, 2, None])
def test_circles_are_refused(tile: int | None) -> None:
    codes = np.array([[1, 7], [3, 5]], np.uint8)
    with pytest.raises(og.InputError, match="direction: the water of row 0, column 0 comes back"):
        og.upstream_length(codes, codes="taudem", tile=tile)
