"""Tables that are interpolated: against NumPy, at their knots to the bit, and a row at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from orograph.kernels.vectors.tables import MOST, lay_out_table, look_up, look_up_row

AT = 3  # where the table begins
RNG = np.random.default_rng(0)
KNOTS: dict[str, Any] = {
    "two knots": [-45.0, 45.0],
    "even": np.arange(-80, 81, 5.0),
    "uneven": np.sort(RNG.uniform(-90, 90, 40)),
    "a step": [0.0, 10.0, 10 + 1e-7, 80.0],
    "many in a bucket": np.append(np.linspace(0, 1e-6, 9), [50.0, np.nextafter(50, 90), 90.0]),
    "more than buckets": np.linspace(-90, 90, 3 * MOST),
}


def numbers(knots: np.ndarray) -> np.ndarray:
    """Numbers within a table and beyond it, its knots, and what is next to them."""
    within = RNG.uniform(knots[0] - 1, knots[-1] + 1, 500)
    near = np.concatenate([np.nextafter(knots, -np.inf), np.nextafter(knots, np.inf)])
    return np.concatenate([within, near, [0.0, -0.0, np.nan, np.inf, -np.inf], knots])


@pytest.mark.parametrize("steps", [False, True], ids=["lines", "steps"])
@pytest.mark.parametrize("case", KNOTS)
def test_values_are_those_of_numpy(case: str, steps: bool) -> None:
    knots = np.array(KNOTS[case])
    values = RNG.integers(0, 4, knots.size) * RNG.random(knots.size)
    p = np.append([9.0] * AT, lay_out_table(knots, values, AT, steps))
    x = numbers(knots)
    found = np.array([look_up(number, p, AT) for number in x])
    inside = (x >= knots[0]) & (x <= knots[-1])
    assert np.isnan(found[~inside]).all()
    row = np.searchsorted(knots, x[inside], "right") - 1
    exact = values[row]
    if steps:
        np.testing.assert_array_equal(found[inside], exact)
    else:
        expected = np.interp(x[inside], knots, values)
        np.testing.assert_allclose(found[inside], expected, rtol=1e-13, atol=1e-15)
        assert found[inside].min() >= 0
    np.testing.assert_array_equal(found[-knots.size :], values)

    for sign in (1.0, -1.0):
        expected = [look_up(sign * number, p, AT) for number in x]
        rows = np.empty(x.size)
        look_up_row(rows, x, sign, p, AT)
        np.testing.assert_array_equal(rows, expected)
    in_place = x.copy()
    look_up_row(in_place, in_place, 1.0, p, AT)
    np.testing.assert_array_equal(in_place, found)
