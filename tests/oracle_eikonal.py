"""Distances of the eikonal equation, by sweeps in Python's integers or in floats.

Written from the definition: with a and b the lesser neighbour along the axes, the value u of a
cell of cost c solves (u - a)**2 + (u - b)**2 = c**2, or is a + c where b is c or more beyond a.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

SCALE = 2**20
FAR = 2**60


def whole(a: int, b: int, c: int) -> int:
    """The value in whole numbers, of which Python has any: `math.isqrt` is exact."""
    a, b = min(a, b), max(a, b)
    return a + c if b - a >= c else a + (b - a + math.isqrt(2 * c * c - (b - a) ** 2)) // 2


def real(a: float, b: float, c: float) -> float:
    """The value in floats."""
    a, b = min(a, b), max(a, b)
    return a + c if b - a >= c else (a + b + math.sqrt(2 * c * c - (a - b) ** 2)) / 2


def solve(costs: np.ndarray, starts: dict[tuple[int, int], Any], update: Callable[..., Any]) -> Any:
    """The least solution, by sweeps in four directions until nothing changes; 0 is a barrier."""
    height, width = costs.shape
    far = FAR if update is whole else math.inf
    values = [[far] * (width + 2) for _ in range(height + 2)]
    for (y, x), value in starts.items():
        values[y + 1][x + 1] = min(value, values[y + 1][x + 1])
    known, changed = costs.tolist(), True
    while changed:
        changed = False
        for rows in (range(1, height + 1), range(height, 0, -1)):
            for columns in (range(1, width + 1), range(width, 0, -1)):
                for y in rows:
                    for x in columns:
                        c = known[y - 1][x - 1]
                        a = min(values[y][x - 1], values[y][x + 1])
                        b = min(values[y - 1][x], values[y + 1][x])
                        if not c or min(a, b) >= far:
                            continue
                        found = update(a, b, c)
                        if found < values[y][x]:
                            values[y][x], changed = found, True
    inner = np.array([row[1:-1] for row in values[1:-1]])
    return np.where(inner < far, inner.astype(float), np.nan)
