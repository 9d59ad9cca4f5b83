"""Differences of heights, some given by their keys: exact integers where heights are integers.

Integers above 2**53 must not become float64 before they are subtracted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.forest.order_keys import decode_keys
from orograph.tiles.arrays import Array, Keys


def subtract_keys(upper: Keys, lower: Keys, dtype: np.dtype[Any]) -> Array:
    """Return the height differences ``upper`` minus ``lower``.

    uint64 for heights of an integer dtype, whose keys are as far apart as the heights; else
    float64, infinite if the difference overflows.

    Examples
    --------
    >>> from orograph.kernels.forest.order_keys import order_keys
    >>> keys = order_keys(np.array([-3, 2**60, 2**60 + 1]))
    >>> subtract_keys(keys[1:], keys[:-1], np.dtype(np.int64))
    array([1152921504606846979,                   1], dtype=uint64)
    """
    if dtype.kind in "iu":
        return upper - lower
    with np.errstate(over="ignore"):
        return decode_keys(upper, dtype).astype(np.float64) - decode_keys(lower, dtype)


def subtract_heights(upper: Array, lower: Array) -> npt.NDArray[np.float64]:
    """Return how far some heights are above lower ones of the same dtype, rounded once."""
    if upper.dtype.kind in "iu" and upper.itemsize == 8:
        # without a sign, since they may be greater than the greatest integer with one
        return (upper.view(np.uint64) - lower.view(np.uint64)).astype(np.float64)
    with np.errstate(over="ignore"):
        difference: npt.NDArray[np.float64] = upper.astype(np.float64) - lower.astype(np.float64)
    return difference


def within_bounds(
    differences: Array, least: float = 0, most: float = math.inf
) -> npt.NDArray[np.bool_]:
    """Return which differences are from ``least`` to ``most``, comparing integers exactly."""
    if differences.dtype.kind == "u":
        least = math.ceil(least) if math.isfinite(least) else least
        most = math.floor(most) if math.isfinite(most) else most
    within: npt.NDArray[np.bool_] = (differences >= least) & (differences <= most)
    return within
