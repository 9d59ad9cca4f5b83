"""Exact sums of float64 values, independent of the order of the terms.

Every finite float64 is an integer multiple of 2**-1074. The multiples are added as Python integers
without rounding, and the sum is rounded once at the end. A total is the same for every tiling.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

UNIT_EXPONENT = -1074


def exact_sum(values: npt.NDArray[np.float64]) -> int:
    """Return the exact sum of finite ``values``, in units of 2**-1074.

    Examples
    --------
    >>> exact_float(exact_sum(np.array([1e16, 1.0, -1e16])))
    1.0
    """
    fraction, exponent = np.frexp(values)
    mantissa = np.ldexp(fraction, 53).astype(np.int64)
    total = 0
    for step in set(exponent.tolist()):
        part = mantissa[exponent == step]
        # two parts of 27 bits: their sums stay far below 2**63
        whole = (int((part >> 26).sum()) << 26) + int((part & ((1 << 26) - 1)).sum())
        shift = step - 53 - UNIT_EXPONENT
        total += whole << shift if shift >= 0 else whole >> -shift
    return total


def exact_float(total: int) -> float:
    """Return the float64 nearest to a sum in units of 2**-1074; infinity if it overflows."""
    try:
        return total / (1 << -UNIT_EXPONENT)
    except OverflowError:
        return math.inf if total > 0 else -math.inf
