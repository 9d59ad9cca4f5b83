"""Sums of float64 that do not depend on the order of their terms.

Every finite float64 is a whole number of units of 2**-1074; such numbers are added as Python
integers, without rounding, and rounded once at the end. So a total is the same for every tiling.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

UNIT_EXPONENT = -1074


def exact_sum(values: npt.NDArray[np.float64]) -> int:
    """The exact sum of finite ``values``, in units of 2**-1074.

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
        # halves of 27 bits: their sums stay far below 2**63
        whole = (int((part >> 26).sum()) << 26) + int((part & ((1 << 26) - 1)).sum())
        shift = step - 53 - UNIT_EXPONENT
        total += whole << shift if shift >= 0 else whole >> -shift
    return total


def exact_float(total: int) -> float:
    """A sum in units of 2**-1074 as the nearest float64, infinite where that is none."""
    try:
        return total / (1 << -UNIT_EXPONENT)
    except OverflowError:
        return math.inf if total > 0 else -math.inf
