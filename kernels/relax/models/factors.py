"""Factors of slope and of direction, by which the models of terrain multiply the cost of a step.

A factor is a function of the angle of the slope in degrees, positive uphill, between the first and
the last angle of a table; beyond them, and where it is not above 0 as a divisor, it is NaN, so that
no step leads there. Coefficients: kind, power downhill, power uphill, rows of the table, its
angles, then its values. Kinds:

- 0: 1 for every slope, without a table.
- 1: the table, interpolated linearly.
- 2: 1 / the table.
- 3: the secant of the slope, to a power; of negative ones its reciprocal, the cosine.
- 4: Tobler's hiking function, seconds a metre (Tobler 1993): 0.6 * exp(3.5 * |slope + 0.05|).
- 5: Irmischer and Clarke's, seconds a metre on paths (doi:10.1080/15230406.2017.1292150):
  1 / (0.11 + exp(-(100 * slope + 5)**2 / 1800)).

A horizontal factor is a function of the angle between a step and a direction, 0 to 180 degrees, of
the kinds 1 and 2, or 6: the value of the last row whose angle is not greater. Coefficients: kind,
rows of the table, its angles, then its values.

Compiled code takes them laid out as p: kind, power downhill, power uphill, where the next factor
begins, then the table as in `orograph.kernels.vectors.tables`.

Angles come from additions, multiplications and a division, since no two mathematics libraries agree
on the last bit: within 1e-15 of the arctangent, and exact at 0, 45 and 90 degrees. The slope s is
brought to within tan(22.5 degrees) of 0 by arctan s = 45 degrees + arctan((s - 1) / (s + 1)), or
90 degrees - arctan(1 / s), without another division than that of a rise by a length; the polynomial
interpolates (arctan(r) / r - 1) / r**2 at Chebyshev nodes. Nothing branches on the slope, so that
LLVM makes vectors of the loops over a row of steps.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.models.model import Model
from orograph.kernels.vectors.exponential import exponential
from orograph.kernels.vectors.lanes import lanes
from orograph.kernels.vectors.tables import lay_out_table, look_up, look_up_row
from orograph.tiles.arrays import Reals

CONSTANT, TABLE, INVERSE, SECANT, TOBLER, IRMISCHER_CLARKE, STEPS = range(7)
ANGLES = 4  # where they begin in the coefficients
NEXT, OF_TABLE = 3, 4  # places in p, from that of the factor on


@lru_cache
def lay_out_factors(*coefficients: float) -> Reals:
    """Return coefficients as compiled code takes them.

    They are those of a factor of slope. Those of a horizontal factor may follow, and then others,
    which stay as they are.
    """
    rows = int(coefficients[3])
    slope = _lay_out(0, coefficients[:3], rows, coefficients[ANGLES : ANGLES + 2 * rows])
    others = coefficients[ANGLES + 2 * rows :]
    if len(others) < 2:
        return slope
    kind, rows = others[0], int(others[1])
    horizontal = _lay_out(slope.size, (kind, 0.0, 0.0), rows, others[2 : 2 + 2 * rows])
    return np.concatenate([slope, horizontal, others[2 + 2 * rows :]])


def _lay_out(at: int, first: Any, rows: int, table: Any) -> Reals:
    """Return one factor, which will begin at place ``at``."""
    found = np.empty(0)
    if rows:
        knots, values = np.reshape(table, (2, rows)).astype(np.float64)
        found = lay_out_table(knots, values, at + OF_TABLE, first[0] == STEPS)
    return np.concatenate([first, [at + OF_TABLE + found.size], found])


@compiled(error_model="numpy")
def degrees_of(rise, length):
    """Return the angle in degrees of a slope, a rise over a length."""
    # 2.414 and 0.414 are the tangents of 67.5 and 22.5 degrees, between which the head's three
    # ranges meet. Numerator and denominator are chosen first, so that one division serves all of
    # them.
    size = abs(rise)
    steep = size > length * 2.414213562373095
    middle = (size > length * 0.41421356237309503) & (not steep)
    over = -length if steep else (size - length if middle else size)
    under = size if steep else (size + length if middle else length)
    base = 90.0 if steep else (45.0 if middle else 0.0)
    r = over / under
    # Estrin's scheme: pairs of terms do not wait for one another, as those of Horner's would.
    z = r * r
    z2 = z * z
    z4 = z2 * z2
    low = (0.11111111015256361 * z - 0.14285714284666542) * z2
    low += 0.1999999999999552 * z - 0.3333333333333333
    mean = (0.0585814891280221 * z - 0.06664511447381948) * z2
    mean += 0.07692183190826087 * z - 0.09090904578123903
    high = -0.01917688711906226 * z2 + (0.03923165829558719 * z - 0.0508544973794026)
    series = (high * z4 + mean) * z4 + low
    angle = base + (r + r * (z * series)) * 57.29577951308232
    return -angle if rise < 0.0 else angle


@compiled(error_model="numpy")
def _hiking(slope):
    return 0.6 * exponential(3.5 * abs(slope + 0.05))


@compiled(error_model="numpy")
def _hiking_on_paths(slope):
    percent = 100.0 * slope + 5.0
    # `exponential` is made for numbers from -700 on. What lies below vanishes beside 0.11.
    power = -(percent * percent) / 1800.0
    return 1.0 / (0.11 + exponential(-700.0 if power < -700.0 else power))


@compiled(error_model="numpy")
def _reciprocal(value):
    return 1.0 / value if value > 0.0 else np.nan


@compiled(error_model="numpy")
def slope_factor(rise, length, p):
    """Return the factor of a slope, a rise over a length; NaN where no step leads."""
    kind = int(p[0])
    if kind == CONSTANT:
        return 1.0
    angle = degrees_of(rise, length)
    if kind in (TABLE, INVERSE):
        found = look_up(angle, p, OF_TABLE)
        return found if kind == TABLE else _reciprocal(found)
    # Functions also have a first and a last angle, stored where a table has its own.
    if not (angle >= p[OF_TABLE] and angle <= p[OF_TABLE + 1]):
        return np.nan
    slope = rise / length
    if kind == TOBLER:
        return _hiking(slope)
    if kind == IRMISCHER_CLARKE:
        return _hiking_on_paths(slope)
    secant = np.sqrt(1.0 + slope * slope)
    power = int(p[1]) if angle < 0.0 else int(p[2])
    # Repeated multiplication, because powers of the libraries differ in the last bit.
    found = 1.0
    for _ in range(abs(power)):
        found *= secant
    return 1.0 / found if power < 0 else found


@compiled(error_model="numpy", single_call=True)
def slope_factors(ahead, back, u, v, length, p, scratch):
    """Set the factors of a row of steps from heights u to v, and back, as `slope_factor` does.

    ``ahead`` and ``back`` are float64 arrays of shape (n,), ``scratch`` of (2 n,).
    """
    kind = int(p[0])
    count = ahead.size
    if kind == CONSTANT:
        ahead[:] = 1.0
        back[:] = 1.0
        return
    angles, slopes = lanes(scratch, 0, count), lanes(scratch, count, count)
    for x in range(count):
        angles[x] = degrees_of(np.float64(v[x]) - np.float64(u[x]), np.float64(length[x]))
    # The way back has the opposite angle, so one row of angles serves both.
    if kind in (TABLE, INVERSE):
        look_up_row(ahead, angles, 1.0, p, OF_TABLE)
        look_up_row(back, angles, -1.0, p, OF_TABLE)
        if kind == INVERSE:
            for x in range(count):
                ahead[x] = _reciprocal(ahead[x])
                back[x] = _reciprocal(back[x])
        return
    for x in range(count):
        slopes[x] = (np.float64(v[x]) - np.float64(u[x])) / np.float64(length[x])
        ahead[x] = angles[x]
        back[x] = -angles[x]
    _compute_factors(ahead, slopes, 1.0, kind, p)
    _compute_factors(back, slopes, -1.0, kind, p)


@compiled(error_model="numpy")
def _compute_factors(angles, slopes, sign, kind, p):
    """Replace the angles of a row by their factors, which a function gives and not a table.

    ``sign`` times ``slopes`` are their tangents.
    """
    first, last = p[OF_TABLE], p[OF_TABLE + 1]
    count = angles.size
    for x in range(count):
        # From here on NaN marks the steps that do not exist. Adding the angle minus itself, 0 or
        # NaN, carries it along without a branch.
        angles[x] = angles[x] if (angles[x] >= first) & (angles[x] <= last) else np.nan
    if kind == TOBLER:
        for x in range(count):
            angles[x] = _hiking(sign * slopes[x]) + (angles[x] - angles[x])
        return
    if kind == IRMISCHER_CLARKE:
        for x in range(count):
            angles[x] = _hiking_on_paths(sign * slopes[x]) + (angles[x] - angles[x])
        return
    # the sign tells uphill and downhill, as long as powers differ
    down, up = int(p[1]), int(p[2])
    for x in range(count):
        # The running product keeps the sign of the angle, which says which of the two powers it
        # takes.
        sized = -1.0 if angles[x] < 0.0 else 1.0
        angles[x] = sized + (angles[x] - angles[x])
    for k in range(max(abs(down), abs(up))):
        for x in range(count):
            secant = np.sqrt(1.0 + slopes[x] * slopes[x])
            angles[x] *= secant if k < (abs(down) if angles[x] < 0.0 else abs(up)) else 1.0
    for x in range(count):
        found = abs(angles[x])
        angles[x] = 1.0 / found if (down if angles[x] < 0.0 else up) < 0 else found


@compiled(error_model="numpy")
def horizontal_factor(direction, heading, p, at):
    """Return the factor of a heading, given the direction in a cell; NaN where no step leads.

    Both in degrees; a negative direction is none. The factor is at place ``at`` of p.
    """
    found = look_up(_turn(heading - direction), p, at + OF_TABLE)
    found = _reciprocal(found) if int(p[at]) == INVERSE else found
    return 1.0 if direction < 0.0 else found


@compiled(error_model="numpy")
def _turn(angle):
    """Return the angle between two headings, 0 to 180 degrees, given their difference."""
    # The nearest multiple of 360 is taken off, which leaves at most 180 but for rounding.
    rest = abs(angle - 360.0 * np.rint(angle * (1.0 / 360.0)))
    return 360.0 - rest if rest > 180.0 else rest


@compiled(error_model="numpy")
def horizontal_factors(found, directions, heading, p, at):
    """Set the factors of a heading in a row of cells, as `horizontal_factor` does.

    ``found`` is a float64 array of the row's length.
    """
    count = found.size
    for x in range(count):
        found[x] = _turn(heading - np.float64(directions[x]))
    look_up_row(found, found, 1.0, p, at + OF_TABLE)
    if int(p[at]) == INVERSE:
        for x in range(count):
            found[x] = _reciprocal(found[x])
    for x in range(count):
        found[x] = 1.0 if directions[x] < 0.0 else found[x]


@compiled(error_model="numpy", single_call=True)
def weigh_ground(ahead, back, u, v, low, high, length, p, means, scratch):
    """Weigh a row of steps: lengths along the ground, times factors of slope, times means.

    Parameters
    ----------
    ahead, back : (n,)
        Costs of the steps from u to v, and back.
    u, v : (n,)
        Heights for slopes.
    low, high : (n,)
        Heights for lengths.
    length : (n,)
    p : (...) float64
    means : two (n,) float64
        By which the costs ahead and back are multiplied.
    scratch : (4 n,) float64
    """
    count = ahead.size
    uphill, downhill = lanes(scratch, 0, count), lanes(scratch, count, count)
    slope_factors(uphill, downhill, u, v, length, p, lanes(scratch, 2 * count, 2 * count))
    there, again = means
    for x in range(count):
        rise = np.float64(high[x]) - np.float64(low[x])
        along = np.float64(length[x])
        along = np.sqrt(along * along + rise * rise)
        ahead[x] = (along * uphill[x]) * there[x]
        back[x] = (along * downhill[x]) * again[x]


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


def model_of_factors(**own: Any) -> Model:
    """Return the definition of a model that multiplies by a factor of slope, given what is its own.

    It takes the coefficients of the factor, and is chosen by a value such as `TerrainCost`.
    """
    return Model(
        symmetric=False,
        integers=False,
        by_name=False,
        bars=True,
        neutral_friction=1.0,
        coefficients={"kind": 0.0, "down": 0.0, "up": 0.0, "rows": 0.0},
        table="factors",
        lay_out=lay_out_factors,
        **own,
    )
