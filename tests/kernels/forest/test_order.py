"""Keys, weights and totals: the order of edges and the sums of their weights."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from orograph.kernels.forest import cuda, tile
from orograph.kernels.forest.exact_sum import exact_float, exact_sum
from orograph.kernels.forest.order import edge_keys, key_weights
from orograph.kernels.forest.order_keys import decode_keys, key_values, order_keys
from orograph.kernels.forest.weights import lacking_on_gpu, number_of
from orograph.tiles.errors import InputError
from orograph.tiles.nodata import valid_cells

DTYPES = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8"]


def pairs(dtype: str) -> st.SearchStrategy[np.ndarray]:
    finite = {"allow_nan": False, "allow_infinity": False} if dtype[0] == "f" else {}
    return hnp.arrays(dtype, 2, elements=hnp.from_dtype(np.dtype(dtype), **finite))


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_keys_order_as_values_do(dtype: str, data: st.DataObject) -> None:
    values = data.draw(pairs(dtype))
    keys = order_keys(values)
    assert (keys[0] < keys[1]) == (values[0] < values[1])
    assert (keys[0] == keys[1]) == (values[0] == values[1])


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_keys_give_their_values_back(dtype: str, data: st.DataObject) -> None:
    values = data.draw(pairs(dtype))
    assert (key_values(order_keys(values), dtype) == values.astype(np.float64)).all()
    decoded = decode_keys(order_keys(values), dtype)
    assert decoded.dtype == values.dtype
    assert (decoded == values).all()


def test_negative_zero_is_zero() -> None:
    keys = order_keys(np.array([-0.0, 0.0], np.float32))
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("values", "nodata", "valid"),
    [
        pytest.param(np.array([1, 2], "u1"), None, [True, True], id="integers are all valid"),
        pytest.param(np.array([1, 2], "i8"), 2, [True, False], id="an integer may mean nodata"),
        pytest.param(
            np.array([np.nan, np.inf, -np.inf, 0], "f4"), None, [False, False, False, True],
            id="what is not finite is nodata",
        ),
        pytest.param(
            np.array([-3.4e38, 0], "f4"), float(np.float32(-3.4e38)), [False, True],
            id="a float32 nodata value is compared as float32",
        ),
    ],
)  # fmt: skip
def test_valid_cells(values: np.ndarray, nodata: float | None, valid: list[bool]) -> None:
    assert valid_cells(values, nodata).tolist() == valid


def test_max_orders_by_the_higher_cell_then_by_the_lower() -> None:
    major, minor = edge_keys("max", np.array([5, 1, 5], "i2"), np.array([2, 5, 3], "i2"))
    assert major[0] == major[1] == major[2]
    assert minor[1] < minor[0] < minor[2]
    assert key_weights("max", major, "i2").tolist() == [5.0, 5.0, 5.0]


def test_differences_of_unsigned_integers_do_not_wrap() -> None:
    major, _ = edge_keys("absolute_difference", np.array([0], "u1"), np.array([255], "u1"))
    assert key_weights("absolute_difference", major, "u1").tolist() == [255.0]


def test_means_of_integers_are_not_truncated() -> None:
    major, _ = edge_keys("mean", np.array([255], "u1"), np.array([254], "u1"))
    assert key_weights("mean", major, "u1").tolist() == [254.5]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), max_size=30))
def test_totals_are_the_exact_sum_rounded_once(values: list[float]) -> None:
    total = exact_sum(np.array(values, np.float64))
    assert Fraction(total, 2**1074) == sum(map(Fraction, values), Fraction(0))
    try:
        expected = math.fsum(values)
    except OverflowError:
        return
    assert exact_float(total) == expected


@pytest.mark.parametrize("sign", [1, -1])
def test_a_total_beyond_float64_is_infinite(sign: int) -> None:
    largest = sign * np.finfo(np.float64).max
    assert exact_float(exact_sum(np.full(1000, largest))) == sign * math.inf


@given(st.lists(st.floats(-1e6, 1e6), max_size=30), st.integers(0, 30))
def test_totals_do_not_depend_on_how_terms_are_grouped(values: list[float], cut: int) -> None:
    whole = np.array(values, np.float64)
    assert exact_sum(whole) == exact_sum(whole[:cut]) + exact_sum(whole[cut:])


def test_an_unknown_weight_is_refused_wherever_it_is_named() -> None:
    heights, sides = np.ones((2, 2)), (False,) * 4
    for call in (
        lambda: edge_keys("median", heights, heights),
        lambda: key_weights("median", np.zeros(1, np.uint64), "f8"),
        lambda: number_of("median"),
        lambda: lacking_on_gpu("median"),
        lambda: tile.tile_forest(heights, None, sides, "median"),
        lambda: cuda.tile_forest(heights, None, sides, "median", device=Emulator()),
        lambda: cuda.forest_on_device(heights, None, sides, "median", device=Emulator()),
    ):
        with pytest.raises(InputError, match=r"'median' is unknown; choose one of max, absolute"):
            call()
