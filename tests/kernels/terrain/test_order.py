"""Cells are ordered by key, then by index, whatever bits their keys share."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from orograph.kernels.forest.order_keys import order_keys
from orograph.kernels.terrain.order import order_cells

DTYPES = st.sampled_from([np.uint8, np.int64, np.uint64, np.float32, np.float64])


@settings(deadline=None)  # the first call compiles
@given(st.integers(0, 2**32 - 1), st.integers(0, 300), DTYPES, st.booleans())
def test_cells_are_ordered_as_lexsort_does(
    seed: int, count: int, dtype: type, ascending: bool
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2**63, count).view(np.int64)
    key = order_keys((values >> rng.integers(0, 62)).astype(dtype))
    cell = rng.integers(-3, 2 ** rng.integers(1, 40), count)
    if ascending:
        cell.sort()
    given_to_it = key.copy(), cell.copy()
    np.testing.assert_array_equal(order_cells(key, cell), np.lexsort((cell, key)))
    np.testing.assert_array_equal(key, given_to_it[0])
    np.testing.assert_array_equal(cell, given_to_it[1])


def test_equal_cells_stay_in_their_order() -> None:
    key, cell = np.full(4, 9, np.uint64), np.array([5, 2, 5, 2])
    assert order_cells(key, cell).tolist() == [1, 3, 0, 2]
    assert order_cells(key[:0], cell[:0]).size == 0
    ends = np.array([2**64 - 1, 0, 2**63], np.uint64)
    assert order_cells(ends, cell[:3]).tolist() == [1, 2, 0]
