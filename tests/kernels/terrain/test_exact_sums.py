"""Sums of heights times areas are exact, and volumes are rounded once."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orograph.kernels.forest.order_keys import order_keys
from orograph.kernels.terrain import exact_sums
from orograph.kernels.terrain.exact_sums import Areas, Sums

DTYPES = ("uint8", "int64", "uint64", "float32", "float64")


def heights(rng: np.random.Generator, dtype: np.dtype[Any], count: int, spread: int) -> np.ndarray:
    """Heights of both signs, of exponents that lie up to ``spread`` apart, zeros among them."""
    if dtype.kind in "iu":
        bits = rng.integers(0, 2**64, count, np.uint64)
        words = (bits >> rng.integers(0, 60, count).astype(np.uint64)).astype(dtype)
        return np.asarray(words)
    info = np.finfo(dtype)
    low = info.minexp - info.nmant
    start = rng.integers(low, max(info.maxexp - spread, low + 1))
    exponent = np.minimum(start + rng.integers(0, spread + 1, count), info.maxexp - 1)
    values = np.ldexp(1 + rng.random(count), exponent).astype(dtype)
    values[rng.random(count) < 0.1] = 0
    return values * rng.choice([-1, 1], count).astype(dtype)


@settings(deadline=None, max_examples=150, derandomize=True, database=None)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from(DTYPES), st.sampled_from([0, 3, 60, 2200]),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_volumes_are_those_of_fractions(
    seed: int, name: str, spread: int, weighted: bool, counted: bool
) -> None:
    rng, dtype = np.random.default_rng(seed), np.dtype(name)
    cells = heights(rng, dtype, 40, spread)
    number = rng.integers(-1, 5, cells.size)
    count = rng.integers(1, 2**20, cells.size) if counted else np.ones(cells.size, np.int64)
    row = rng.integers(0, 7, cells.size)
    sizes = rng.random(7) * 2.0 ** rng.integers(-30, 30, 7) if weighted else np.ones(7)
    level = np.array([cells[number == d].max(initial=cells.min()) for d in range(5)])

    kind, keys = exact_sums.kind_of(dtype), order_keys(cells)
    low, high = exact_sums.find_exponents(order_keys(np.append(cells, level)), kind)
    area = Areas.of(sizes) if weighted else None
    areas, bits = Sums(0, np.empty((5, 0), np.int64)), int(count.sum()).bit_length() + 64
    if area is not None:
        low, high = low + int(area.exponent.min()), high + int(area.exponent.max())
        areas = Sums.zeros(5, int(area.exponent.min()), int(area.exponent.max()), bits)
        bits += 53
    if low > high:
        low = high = 0
    held, sums = np.zeros(5, np.int64), Sums.zeros(5, low, high, bits)
    exact_sums.add_cells(
        number, keys, kind, held, areas, sums, count if counted else None, area, row
    )
    exact_sums.normalise(areas)
    exact_sums.normalise(sums)
    found = exact_sums.round_volumes(np.arange(5), order_keys(level), kind, held, areas, sums)

    for d in range(5):
        mine = np.flatnonzero(number == d)
        each = [(Fraction(float(sizes[row[i]])) * int(count[i]), exact(cells[i])) for i in mine]
        assert held[d] == count[mine].sum()
        if weighted:
            rounded = exact_sums.round_sums(areas)[d]
            assert rounded == float(sum((a for a, _ in each), Fraction(0)))
        assert found[d] == nearest(sum((a * (exact(level[d]) - z) for a, z in each), Fraction(0)))


def exact(value: Any) -> Fraction:
    return Fraction(int(value) if value.dtype.kind in "iu" else float(value))


def nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


@pytest.mark.parametrize(
    "value",
    [
        0, 1, 2**53 + 1, 2**53 + 3, 2**64 - 1, 2**96 + 2**43, 2**96 + 2**43 + 1,
        Fraction(1, 2**1074), Fraction(1, 2**1075), Fraction(3, 2**1075), Fraction(3, 2**1076),
        Fraction(2**53 - 1, 2**1075), 2**1024 - 2**971, 2**1024 - 2**970, 2**1024 - 2**970 - 1,
    ],
)  # fmt: skip
def test_sums_are_rounded_to_the_nearest_of_two_to_the_even_one(value: Fraction | int) -> None:
    low = -34
    whole = int(value * 2 ** (-32 * low))
    words = [whole >> 32 * i & 0xFFFFFFFF for i in range(68)]
    found = exact_sums.round_sums(Sums(low, np.array([words])))
    assert found[0] == nearest(Fraction(value))
