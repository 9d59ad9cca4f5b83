"""Factors of slope, by which the models of terrain multiply the cost of a step.

A factor is a function of the angle of the slope in degrees, positive uphill, between the first and
the last angle of a table; beyond them, and where it is not above 0 as a divisor, it is NaN, so that
no step leads there. Coefficients p: kind, power downhill, power uphill, rows of the table, its
angles, then its values. Kinds:

- 0: 1 for every slope, without a table.
- 1: the table, interpolated linearly.
- 2: 1 / the table.
- 3: the secant of the slope, to a power; of negative ones its reciprocal, the cosine.
- 4: Tobler's hiking function, seconds a metre (Tobler 1993): 0.6 * exp(3.5 * |slope + 0.05|).
- 5: Irmischer and Clarke's, seconds a metre on paths (doi:10.1080/15230406.2017.1292150):
  1 / (0.11 + exp(-(100 * slope + 5)**2 / 1800)).

A horizontal factor is a function of the angle between a step and a direction, 0 to 180 degrees, of
the kinds 1 and 2, or 6: the value of the last row whose angle is not greater.

Angles come from additions, multiplications and a division, since no two mathematics libraries agree
on the last bit: within 1e-15 of the arctangent, and exact at 0, 45 and 90 degrees. The slope is
brought to within tan(22.5 degrees) of 0 by arctan s = 45 degrees + arctan((s - 1) / (s + 1)), or
90 degrees - arctan(1 / s); the polynomial interpolates (arctan(r) / r - 1) / r**2 at Chebyshev
nodes. Nothing branches on the slope, so that LLVM makes vectors of the loops over a row of steps.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.vectors.exponential import exponential

CONSTANT, TABLE, INVERSE, SECANT, TOBLER, IRMISCHER_CLARKE, STEPS = range(7)
ANGLES = 4  # where they begin in p


@compiled(error_model="numpy")
def degrees_of(slope):
    """Return the angle of a slope in degrees."""
    size = abs(slope)
    steep = size > 2.414213562373095
    middle = (size > 0.41421356237309503) & (not steep)
    over = -1.0 if steep else (size - 1.0 if middle else size)
    under = size if steep else (size + 1.0 if middle else 1.0)
    base = 90.0 if steep else (45.0 if middle else 0.0)
    r = over / under
    z = r * r
    series = -0.01917688711906226 * z + 0.03923165829558719
    series = series * z - 0.0508544973794026
    series = series * z + 0.0585814891280221
    series = series * z - 0.06664511447381948
    series = series * z + 0.07692183190826087
    series = series * z - 0.09090904578123903
    series = series * z + 0.11111111015256361
    series = series * z - 0.14285714284666542
    series = series * z + 0.1999999999999552
    series = series * z - 0.3333333333333333
    angle = base + (r + r * (z * series)) * 57.29577951308232
    return -angle if slope < 0.0 else angle


@compiled(error_model="numpy")
def slope_factor(slope, p):
    """Return the factor of a slope; NaN where no step leads."""
    kind = int(p[0])
    if kind == CONSTANT:
        return 1.0
    rows = int(p[3])
    last = ANGLES + rows - 1
    angle = degrees_of(slope)
    if not (angle >= p[ANGLES] and angle <= p[last]):
        return np.nan
    if kind == SECANT:
        secant = np.sqrt(1.0 + slope * slope)
        power = int(p[1]) if slope < 0.0 else int(p[2])
        found = 1.0
        for _ in range(abs(power)):
            found *= secant
        return 1.0 / found if power < 0 else found
    if kind == TOBLER:
        return 0.6 * exponential(3.5 * abs(slope + 0.05))
    if kind == IRMISCHER_CLARKE:
        percent = 100.0 * slope + 5.0
        return 1.0 / (0.11 + exponential(max(-(percent * percent) / 1800.0, -700.0)))
    found = interpolated(angle, p, ANGLES, rows)
    if kind == TABLE:
        return found
    return 1.0 / found if found > 0.0 else np.nan


@compiled(error_model="numpy")
def slope_factors(slopes, p, scratch):
    """Replace the slopes of a row by their factors, with the bits of `slope_factor`.

    ``slopes`` and ``scratch`` are float64 arrays of shape (n,); ``scratch`` is overwritten.
    """
    kind = int(p[0])
    count = slopes.size
    if kind == CONSTANT:
        slopes[:] = 1.0
        return
    if kind != TABLE and kind != INVERSE:
        for x in range(count):
            slopes[x] = slope_factor(slopes[x], p)
        return
    rows = int(p[3])
    low = scratch.view(np.int64)
    for x in range(count):
        slopes[x] = degrees_of(slopes[x])
        low[x] = ANGLES
    size = rows - 1
    while size > 1:
        half = size // 2
        for x in range(count):
            probe = low[x] + half
            low[x] = probe if p[np.uint64(probe)] <= slopes[x] else low[x]
        size -= half
    first = p[ANGLES]
    last = p[ANGLES + rows - 1]
    for x in range(count):
        angle = slopes[x]
        k = np.uint64(low[x])
        value = np.uint64(low[x] + rows)
        one = np.uint64(1)
        share = (angle - p[k]) / (p[k + one] - p[k])
        found = p[value] + share * (p[value + one] - p[value])
        slopes[x] = found if (angle >= first) & (angle <= last) else np.nan
    if kind == INVERSE:
        for x in range(count):
            slopes[x] = 1.0 / slopes[x] if slopes[x] > 0.0 else np.nan


@compiled(error_model="numpy")
def interpolated(angle, p, first, rows):
    """Interpolate a table, whose angles start at ``first``, at an angle."""
    low = first
    high = first + rows - 1
    while high - low > 1:
        middle = (low + high) // 2
        if p[middle] <= angle:
            low = middle
        else:
            high = middle
    share = (angle - p[low]) / (p[high] - p[low])
    return p[low + rows] + share * (p[high + rows] - p[low + rows])


@compiled(error_model="numpy")
def horizontal_factor(direction, heading, p, first):
    """Return the factor of a heading, given the direction in a cell; NaN where no step leads.

    Both in degrees; a negative direction is none. The coefficients are from ``first`` on: kind,
    rows of the table, its angles, then its values.
    """
    if direction < 0.0:
        return 1.0
    turn = abs(heading - direction)
    turn -= 360.0 * np.floor(turn / 360.0)
    if turn > 180.0:
        turn = 360.0 - turn
    kind = int(p[first])
    rows = int(p[first + 1])
    angles = first + 2
    if not (turn >= p[angles] and turn <= p[angles + rows - 1]):
        return np.nan
    if kind == STEPS:
        found = np.nan
        for row in range(rows):
            if p[angles + row] <= turn:
                found = p[angles + rows + row]
        return found
    found = interpolated(turn, p, angles, rows)
    if kind == TABLE:
        return found
    return 1.0 / found if found > 0.0 else np.nan


def check_factors(*p: float) -> None:
    """Raise ValueError for coefficients that the factor does not have."""
    kind, _, _, rows, *table = p
    if kind == CONSTANT:
        return
    angles, values = table[: int(rows)], table[int(rows) :]
    if len(values) != rows or rows < 2:
        raise ValueError(f"{len(table)} numbers for a table of {rows:g} rows")
    if any(a >= b for a, b in pairwise(angles)):
        raise ValueError("the angles of the table do not increase; sort it, each angle once")
    if kind == TABLE and min(values) < 0:
        raise ValueError(f"a factor of {min(values):g}; it must be 0 or more at all angles")
