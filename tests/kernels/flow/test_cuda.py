"""Directions and sums of flow by flow.cu, in the emulator, against the Numba kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr
from cuda_on_cpu.emulator import ORDERS, Emulator, find_compiler
from hypothesis import given, settings
from hypothesis import strategies as st

import orograph as og
from orograph.kernels.flow import accumulate as host
from orograph.kernels.flow import cuda
from orograph.kernels.flow.codes import ENCODINGS, MISSING, OUT, SINK, STEPS, leave_at_border
from orograph.kernels.flow.directions import comparable, step_down
from orograph.tiles.grid.border import border_cells
from orograph.tiles.grid.orientation import NORTH_UP, Orientation
from orograph.tiles.grid.quadtree import Sides

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler; install g++")
DTYPES = ("int8", "int16", "int64", "uint64", "float32", "float64")
SHAPES = [(1, 1), (1, 9), (7, 1), (33, 40)]


def steps_of(
    surface: Array,
    valid: Array,
    rows: int,
    device: Emulator,
    orientation: Orientation = NORTH_UP,
) -> Array:
    """The steps of a tile by both backends, compared."""
    height, width = surface.shape[0] - 2, surface.shape[1] - 2
    lengths = np.linspace(0.1, 3, 8 * (height if rows > 1 else 1)).reshape(-1, 8)
    found, expected = np.empty((2, height, width), np.uint8)
    order = orientation.order(STEPS)
    flats = step_down(surface, valid, 1 / lengths, expected, order)
    assert cuda.step_down(surface, valid, 1 / lengths, found, order, device=device) == flats
    np.testing.assert_array_equal(found, expected)
    return found


@pytest.mark.diagonal
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_are_those_of_the_numba_kernel(dtype: str, order: str) -> None:
    rng, device = np.random.default_rng(2), Emulator(order, 1)
    for height, width in SHAPES:
        for spread in (3, 100):
            heights = rng.integers(0, spread, (height + 2, width + 2)).astype(dtype)
            if dtype.startswith("float"):
                heights *= np.finfo(dtype).tiny / 8  # subnormal, so that slopes underflow
            if dtype == "uint64":
                heights += np.uint64(2**63)
            valid = (rng.random(heights.shape) < 0.9).astype(np.uint8)
            heights = comparable(heights)
            top = np.inf if heights.dtype.kind == "f" else np.iinfo(heights.dtype).max
            heights[valid == 0] = top
            for rows in (1, 2):
                steps_of(heights, valid, rows, device)


@pytest.mark.parametrize("orientation", [(1, -1), (-1, 1), (-1, -1)])
def test_the_first_of_equal_steps_is_that_of_the_compass(orientation: tuple[int, int]) -> None:
    rng, facing = np.random.default_rng(3), Orientation(*orientation)
    heights = rng.integers(0, 3, (23, 31)).astype(np.float32)
    valid = (rng.random(heights.shape) < 0.9).astype(np.uint8)
    heights[valid == 0] = np.inf
    found = steps_of(heights, valid, 1, Emulator("forward", 1), facing)
    # lengths differ by step: of the turned tile those of the same steps on the compass
    lengths = np.linspace(0.1, 3, 8)[None, facing.order(STEPS)]
    turned = np.empty(found.shape, np.uint8)
    cells = (np.ascontiguousarray(facing.turn(array)) for array in (heights, valid))
    step_down(*cells, 1 / lengths, turned, np.arange(8))
    codes = ENCODINGS["grass"].table(facing)[found]
    np.testing.assert_array_equal(facing.turn(codes), ENCODINGS["grass"].table()[turned])
    assert np.unique(codes).size > 12


def forest(shape: tuple[int, int], seed: int, long: bool) -> Array:
    """Steps without circles: down a random surface, or along a serpentine."""
    height, width = shape
    if long:
        y, x = np.mgrid[:height, :width]
        surface = -(y * width + np.where(y % 2, width - 1 - x, x)).astype(float)
    else:
        surface = np.random.default_rng(seed).random(shape)
    padded = np.pad(surface, 1, constant_values=np.inf)
    numbers = np.empty(shape, np.uint8)
    valid = np.pad(np.ones(shape, np.uint8), 1)
    step_down(padded, valid, np.ones((1, 8)), numbers, np.arange(8))
    numbers[numbers > SINK] = SINK
    return leave_at_border(numbers)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([*SHAPES, (1, 300), (40, 41)]),
    st.integers(0, 99),
    st.booleans(),
    st.booleans(),
    st.sampled_from(ORDERS),
)
def test_sums_and_ends_are_those_of_the_numba_kernels(
    shape: tuple[int, int], seed: int, long: bool, whole: bool, order: str
) -> None:
    numbers, device = forest(shape, seed, long), Emulator(order, seed)
    rng = np.random.default_rng(seed)
    high = rng.integers(0, 2**40, numbers.size)
    low = np.empty(0, np.int64) if whole else rng.integers(0, 2**62, numbers.size)
    expected, found = (high.copy(), low.copy()), (high.copy(), low.copy())
    assert host.accumulate(numbers, *expected) == -1
    assert cuda.accumulate(numbers, *found, device=device) == -1
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    border = border_cells(*shape, Sides(north=True, south=False, west=True, east=True))
    entering = rng.integers(0, 99, rng.choice([0, border.size]))
    for count in (numbers.size, border.size):
        counts = [np.zeros(count, np.int64) for _ in range(2)]
        assert host.count_cells(numbers, border, entering, counts[0]) == -1
        assert cuda.count_cells(numbers, border, entering, counts[1], device=device) == -1
        np.testing.assert_array_equal(*counts)
    cells = np.arange(numbers.size)
    np.testing.assert_array_equal(
        cuda.exits_of(numbers, cells, device=device), host.exits_of(numbers, cells)
    )


@pytest.mark.parametrize("order", ORDERS)
def test_circles_are_found(order: str) -> None:
    rng = np.random.default_rng(4)
    for _ in range(10):
        numbers = rng.integers(0, len(STEPS), (9, 8)).astype(np.uint8)
        numbers[rng.random(numbers.shape) < 0.2] = MISSING
        numbers = leave_at_border(numbers)
        numbers[3, 3], numbers[3, 4] = 0, 4  # east, and west again
        assert (numbers != OUT).any()
        high, nothing = np.ones(numbers.size, np.int64), np.empty(0, np.int64)
        expected = host.find_circle(numbers)
        assert cuda.accumulate(numbers, high, nothing, device=Emulator(order, 1)) == expected >= 0
        circle = cuda.count_cells(numbers, nothing, nothing, high, device=Emulator(order, 1))
        assert circle == expected


def test_a_full_word_of_fractions_is_carried() -> None:
    numbers = np.full((1, 4000), 0, np.uint8)
    numbers[0, -1] = SINK
    high, low = np.zeros(4000, np.int64), np.full(4000, 2**62 - 1)
    expected = high.copy(), low.copy()
    host.accumulate(numbers, *expected)
    cuda.accumulate(numbers, high, low, device=Emulator("random", 1))
    np.testing.assert_array_equal(high, expected[0])
    np.testing.assert_array_equal(low, expected[1])


RUNS: dict[str, Callable[..., xr.Dataset]] = {
    "directions": og.flow_direction,
    "pits": lambda heights, **o: og.flow_direction(heights, depressions="keep", **o),
    "cells": lambda heights, **o: og.flow_accumulation(heights, method="d8", **o),
    "weights": lambda heights, **o: og.flow_accumulation(
        heights, method="d8", weights=np.abs(np.nan_to_num(heights)), **o
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_a_gpu_has_the_result_of_one_on_a_cpu(name: str, emulated_gpu: Emulator) -> None:
    heights = np.random.default_rng(1).normal(0, 9, (70, 60)).cumsum(0).cumsum(1).round()
    heights = heights.astype(np.float32)
    heights[30:40, 20:50] = np.nan
    theirs = RUNS[name](heights, tile=32, backend="numba")
    assert emulated_gpu.launches == 0
    ours = RUNS[name](heights, tile=32, backend="cuda")
    assert emulated_gpu.launches > 0
    xr.testing.assert_identical(ours, theirs)
