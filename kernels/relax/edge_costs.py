"""What an edge costs: the models of the shortest-path kernel, one edge or a row of them.

Every expression is evaluated in the order written, without fused multiply-add, so that any backend
that keeps the order gets the same bits. ``u`` is where the step starts, ``v`` where it ends; an
edge into or out of a cell whose costs are NaN or infinite (integers: BARRIER and more) is never
taken.

- ``friction``: (f[u] + f[v]) * (length / 2). A knight's move counts the two cells it passes
  between as well, as GRASS r.cost does: ((f[m] + f[n]) + (f[u] + f[v])) * (length / 4). In
  integers the factor is the length itself: twice (four times) the cost, so that it stays whole.
- ``absolute_difference``: |z[v] - z[u]|, whatever the length; a knight's move is barred where one
  of the two cells it passes between is.
- ``tobler``: seconds for metres; length * pace * exp(3.5 * |slope + 0.05|) * mean friction, slope
  positive uphill. pace 0.6 s/m is 6 km/h (Tobler 1993, NCGIA Technical Report 93-1).
- ``walk``: GRASS r.walk, rise + length * a + lambda * mean friction * length, where rise is dz * b
  uphill, dz * c downhill, dz * d on slopes below slope_factor (Aitken 1977, Langmuir 1984).

The last two depend on the direction of travel and are computed in float64, then rounded to the
state's dtype. Their exponential is our own, from additions and multiplications alone (at most
2 ulp off), since no two mathematics libraries agree on the last bit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.lanes import (
    HALO,
    LANES,
    STEPS,
    STRIDE,
    at,
    lanes,
    weigh_differences,
    weigh_sums,
)

FRICTION, ABSOLUTE_DIFFERENCE, TOBLER, WALK = range(4)
MODELS = ("friction", "absolute_difference", "tobler", "walk")
DEFAULTS = {"tobler": (0.6,), "walk": (0.72, 6.0, 1.9998, -1.9998, -0.2125, 1.0)}
BARRIER = 2**60  # integers: "unreachable" and "impassable"; four of them still fit int64

# Planes of the workspace. A twin (transposed) follows its plane.
DISTANCE, FRICTION_PLANE, ELEVATION, LENGTHS, WEIGHTS = 0, 2, 4, 6, 7
FORWARD, BACKWARD, FORWARD_TWIN, BACKWARD_TWIN = WEIGHTS, WEIGHTS + 7, WEIGHTS + 14, WEIGHTS + 21
PLANES = WEIGHTS + 28
TWIN_LENGTHS = 8  # row of the LENGTHS plane where the twin's lengths start

# error_model="numpy" below: a test for division by zero in a loop keeps it from being vectorised.

# The edges of relax_lanes.STEPS[16]; CLASS: row of the length table, for a plane and for its twin.
STEP_DY = np.array([1, 1, 1, 1, 1, 2, 2])
STEP_DX = np.array([0, -1, 1, -2, 2, -1, 1])
EAST_WEST, NORTH_SOUTH, DIAGONAL, TWO_ROWS, TWO_COLUMNS = range(5)
_CLASS = np.array([[1, 2, 2, 4, 4, 3, 3], [0, 2, 2, 3, 3, 4, 4]])


class CostModel(NamedTuple):
    """What a step costs; formulas and sources at the top of this file."""

    name: str = "friction"
    """``"friction"``, ``"absolute_difference"``, ``"tobler"`` or ``"walk"``."""
    reverse: bool = False
    """Count each step in the other direction: cost *to* the sources instead of *from* them."""
    coefficients: tuple[float, ...] = ()
    """tobler: (seconds per metre at best,); walk: (a, b, c, d, slope_factor, lambda)."""


BY_FRICTION = CostModel()


class Rules(NamedTuple):
    """How a tile's edges cost, as compiled code wants it."""

    model: int
    steps: int
    """Edges of a row to the rows before it: 1, 3 or 7 for 4, 8 or 16 neighbours."""
    reach: int
    """Width of the halo: 1, or 2 for 16 neighbours."""
    reverse: bool
    symmetric: bool
    integer: bool
    uniform: bool
    """Whether all rows have the same lengths."""
    has_friction: bool
    has_elevation: bool
    barrier: Any
    unreached: Any
    limit: Any
    """Greatest distance of interest."""
    factors: Any
    """(5, padded rows): lengths, or their half (knight's moves: quarter) for ``friction``."""
    coefficients: Any


def edge_lengths(rows: int, dx: float = 1.0, dy: float = 1.0) -> npt.NDArray[np.float64]:
    """Lengths of the steps in a planar grid.

    Parameters
    ----------
    rows : int
        Rows of the padded arrays.
    dx, dy : float
        Size of a cell.

    Returns
    -------
    (5, rows) float64
        At padded row i: 0 east-west in row i; 1 north-south, 2 diagonal and 4 knight's move of two
        columns between rows i - 1 and i; 3 knight's move of two rows between i - 2 and i.
        Geographic grids fill such a table row by row with geodesic lengths.
    """
    kinds = (dx, dy, math.hypot(dx, dy), math.hypot(dx, 2 * dy), math.hypot(2 * dx, dy))
    return np.repeat(np.array(kinds, np.float64)[:, None], rows, axis=1)


def cost_rules(
    dtype: np.dtype[Any],
    lengths: npt.NDArray[Any],
    model: CostModel,
    connectivity: int,
    max_cost: float,
    given: set[str],
) -> Rules:
    """Check a cost model and put it the way compiled code wants it.

    Parameters
    ----------
    dtype : float64, float32 or int64
    lengths : (5, padded rows)
        See `edge_lengths`.
    model, connectivity, max_cost
        See `orograph.kernels.relax.tile.tile_state`.
    given : set
        Which of ``"friction"`` and ``"elevation"`` there is.

    Raises
    ------
    ValueError
        If the model, its coefficients, the lengths or the rasters do not fit together.
    """
    if connectivity not in STEPS:
        raise ValueError(f"connectivity={connectivity}; must be 4, 8 or 16")
    if dtype not in (np.float64, np.float32, np.int64):
        raise ValueError(f"dist is {dtype}; must be float64, float32 or int64")
    if model.name not in MODELS:
        raise ValueError(f"model {model.name!r}; must be one of {', '.join(MODELS)}")
    code = MODELS.index(model.name)
    needed = "friction" if code == FRICTION else "elevation"
    if needed not in given:
        raise ValueError(f"the model {model.name} needs {needed}")
    integer = dtype.kind == "i"
    symmetric = code in (FRICTION, ABSOLUTE_DIFFERENCE)
    if integer and not symmetric:
        raise ValueError(f"the model {model.name} needs a float dist; it is {dtype}")
    usual = DEFAULTS.get(model.name, ())
    coefficients = model.coefficients or usual
    if len(coefficients) != len(usual):
        raise ValueError(f"{len(coefficients)} coefficients for {model.name}; must be {len(usual)}")
    if code == TOBLER and not coefficients[0] > 0:
        raise ValueError(f"tobler pace {coefficients[0]}; must be above 0 s/m")
    if code == WALK:
        a, b, c, d, slope_factor, weight = coefficients
        if not (min(a + min(0.0, c * slope_factor), b, -d, weight) >= 0 and slope_factor <= 0):
            raise ValueError(
                f"walk coefficients {coefficients} can make a step's cost negative: "
                "a + c * slope_factor, b, -d, -slope_factor and lambda must not be below 0"
            )
    if lengths.ndim != 2 or lengths.shape[0] != 5:
        raise ValueError(f"lengths has shape {lengths.shape}; must be (5, padded rows)")
    used = lengths[: {4: 2, 8: 3, 16: 5}[connectivity]]
    factors = lengths.astype(dtype)
    if not (np.isfinite(used) & (used > 0)).all():
        raise ValueError(f"lengths go from {used.min()} to {used.max()}; must be above 0, finite")
    if integer and code == FRICTION and (factors[: len(used)] != used).any():
        raise ValueError("lengths must be whole numbers where dist is int64; round them before")
    if code == FRICTION and not integer:
        factors[:TWO_ROWS] *= dtype.type(0.5)
        factors[TWO_ROWS:] *= dtype.type(0.25)
    limit = dtype.type(min(max_cost, BARRIER - 1) if integer else max_cost)
    if float(limit) > max_cost:  # rounded up
        limit = np.nextafter(limit, dtype.type(-np.inf))
    return Rules(
        model=code,
        steps=len(STEPS[connectivity]),
        reach=2 if connectivity == 16 else 1,
        reverse=bool(model.reverse),
        symmetric=symmetric,
        integer=integer,
        uniform=bool((factors == factors[:, :1]).all()),
        has_friction="friction" in given and code != ABSOLUTE_DIFFERENCE,
        has_elevation=code != FRICTION,
        barrier=dtype.type(BARRIER if integer else np.nan),
        unreached=dtype.type(BARRIER if integer else np.inf),
        limit=limit,
        factors=factors,
        coefficients=np.array(coefficients, np.float64),
    )


@intrinsic
def _as_integer(typingctx, value):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def _as_float(typingctx, value):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@compiled(error_model="numpy")
def exponential(x):
    """exp(x) for -700 <= x <= 708, in float64; infinite above, NaN for NaN."""
    shifted = x * 1.4426950408889634 + 6755399441055744.0  # 1.5 * 2**52: rounds to an integer
    n = shifted - 6755399441055744.0
    r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    power = _as_float((_as_integer(shifted) << 52) + 4607182418800017408)  # 2**n
    return np.inf if x > 708.0 else p * power


@compiled(error_model="numpy")
def _tobler(dz, length, friction, pace):
    slope = dz / length
    return ((length * pace) * exponential(3.5 * abs(slope + 0.05))) * friction


@compiled(error_model="numpy")
def _walk(dz, length, friction, a, b, c, d, slope_factor, weight):
    slope = dz / length
    rise = dz * b if slope >= 0.0 else (dz * d if slope < slope_factor else dz * c)
    return (rise + length * a) + (weight * friction) * length


@compiled(error_model="numpy")
def edge(friction, elevation, y, x, dy, dx, rules, cost):
    """Put into cost[0] what the step from (y, x), an index into padded rasters, by (dy, dx) costs.

    The same bits as ``weigh_rows``: an array takes the result, so that it is rounded to its dtype.
    """
    far = abs(dy) + abs(dx) == 3
    if dy == 0:
        kind = EAST_WEST
    elif dx == 0:
        kind = NORTH_SOUTH
    elif far:
        kind = TWO_ROWS if abs(dy) == 2 else TWO_COLUMNS
    else:
        kind = DIAGONAL
    length = rules.factors[kind, max(y, y + dy)]
    if rules.model == ABSOLUTE_DIFFERENCE:
        zu = elevation[y, x]
        zv = elevation[y + dy, x + dx]
        cost[0] = abs(zv - zu)
        zm = zu
        zn = zv
        if far and abs(dy) == 2:
            zm = elevation[y + dy // 2, x]
            zn = elevation[y + dy // 2, x + dx]
        elif far:
            zm = elevation[y, x + dx // 2]
            zn = elevation[y + dy, x + dx // 2]
        if rules.integer:
            if max(max(zu, zv), max(zm, zn)) >= rules.barrier:
                cost[0] = rules.barrier
        else:
            cost[0] += (zm - zm) + (zn - zn)  # NaN where either is no cell
        return
    mean = 1.0
    if rules.has_friction:
        total = friction[y, x] + friction[y + dy, x + dx]
        if far:
            if abs(dy) == 2:
                between = friction[y + dy // 2, x] + friction[y + dy // 2, x + dx]
            else:
                between = friction[y, x + dx // 2] + friction[y + dy, x + dx // 2]
            total = between + total
        if rules.model == FRICTION:
            cost[0] = total * length
            if rules.integer and total >= rules.barrier:
                cost[0] = rules.barrier
            return
        mean = np.float64(total) * (0.25 if far else 0.5)
    dz = np.float64(elevation[y + dy, x + dx]) - np.float64(elevation[y, x])
    if rules.reverse:
        dz = -dz
    p = rules.coefficients
    if rules.model == TOBLER:
        cost[0] = _tobler(dz, np.float64(length), mean, p[0])
    else:
        cost[0] = _walk(dz, np.float64(length), mean, p[0], p[1], p[2], p[3], p[4], p[5])


@compiled
def fill_lengths(ws, twin, row, rules):
    """Lay out the lengths of a row's edges lane by lane (twin: of a block's, from its row 0)."""
    kinds = _CLASS[1 if twin else 0]
    for k in range(rules.steps):
        start = at(LENGTHS, k + (TWIN_LENGTHS if twin else 0))
        lengths = rules.factors[kinds[k]]
        if twin and not rules.uniform:
            # an edge up to two lanes ahead is kept at its later row of the raster
            ahead = max(0, STEP_DX[k])
            for x in range(STRIDE):
                ws[start + x] = lengths[min(row + x + ahead, lengths.size - 1)]
        else:
            for x in range(-HALO, STRIDE - HALO):
                ws[start + x] = lengths[row]


@compiled
def _weigh_friction(out, u, v, length, integer, barrier):
    for x in range(out.size):
        out[x] = (u[x] + v[x]) * length[x]
    if integer:
        for x in range(out.size):
            if u[x] + v[x] >= barrier:
                out[x] = barrier


@compiled
def _weigh_knight(out, u, v, m, n, length, integer, barrier):
    for x in range(out.size):
        out[x] = ((m[x] + n[x]) + (u[x] + v[x])) * length[x]
    if integer:
        for x in range(out.size):
            if (m[x] + n[x]) + (u[x] + v[x]) >= barrier:
                out[x] = barrier


@compiled
def _bar_knight(out, m, n, integer, barrier):
    """A knight's move is barred by either of the two cells it passes between."""
    if integer:
        for x in range(out.size):
            if m[x] >= barrier or n[x] >= barrier:
                out[x] = barrier
    else:
        for x in range(out.size):
            out[x] += (m[x] - m[x]) + (n[x] - n[x])


@compiled
def _weigh_difference(out, u, v, integer, barrier):
    for x in range(out.size):
        out[x] = abs(v[x] - u[x])
    if integer:
        for x in range(out.size):
            if u[x] >= barrier or v[x] >= barrier:
                out[x] = barrier


@compiled(error_model="numpy")
def _weigh_slope(out, sign, u, v, mean, length, model, p):
    """One direction of an edge whose cost depends on the slope (LLVM gives up on both at once)."""
    if model == TOBLER:
        pace = p[0]
        for x in range(out.size):
            dz = sign * (np.float64(v[x]) - np.float64(u[x]))
            out[x] = _tobler(dz, np.float64(length[x]), mean[x], pace)
    else:
        a, b, c, d, slope_factor, weight = p[0], p[1], p[2], p[3], p[4], p[5]
        for x in range(out.size):
            dz = sign * (np.float64(v[x]) - np.float64(u[x]))
            along = np.float64(length[x])
            out[x] = _walk(dz, along, mean[x], a, b, c, d, slope_factor, weight)


@compiled(error_model="numpy")
def _weigh_lanes(ws, twin, row, low, high, mean, rules):
    count = high - low
    f = at(FRICTION_PLANE + (1 if twin else 0), row) + low
    z = at(ELEVATION + (1 if twin else 0), row) + low
    ahead = FORWARD_TWIN if twin else FORWARD
    back = ahead
    if not rules.symmetric:
        back = BACKWARD_TWIN if twin else BACKWARD
        if rules.reverse:
            ahead, back = back, ahead
    for k in range(rules.steps):
        dy = STEP_DY[k]
        dx = STEP_DX[k]
        step = dx - dy * STRIDE
        length = lanes(ws, at(LENGTHS, k + (TWIN_LENGTHS if twin else 0)) + low, count)
        out = lanes(ws, at(ahead + k, row) + low, count)
        if rules.model == ABSOLUTE_DIFFERENCE:
            zu, zv = lanes(ws, z + step, count), lanes(ws, z, count)
            _weigh_difference(out, zu, zv, rules.integer, rules.barrier)
            if k >= 3:
                half = -1 if dx < 0 else 1
                zm = lanes(ws, z - STRIDE if dy == 2 else z - STRIDE + half, count)
                zn = lanes(ws, z - STRIDE + dx if dy == 2 else z + half, count)
                _bar_knight(out, zm, zn, rules.integer, rules.barrier)
            continue
        fu, fv = lanes(ws, f + step, count), lanes(ws, f, count)
        half = -1 if dx < 0 else 1
        fm = lanes(ws, f - STRIDE if dy == 2 else f - STRIDE + half, count)
        fn = lanes(ws, f - STRIDE + dx if dy == 2 else f + half, count)
        if rules.model == FRICTION:
            if k < 3:
                _weigh_friction(out, fu, fv, length, rules.integer, rules.barrier)
            else:
                _weigh_knight(out, fu, fv, fm, fn, length, rules.integer, rules.barrier)
            continue
        if not rules.has_friction:
            mean[:] = 1.0
        elif k < 3:
            for x in range(count):
                mean[x] = np.float64(fu[x] + fv[x]) * 0.5
        else:
            for x in range(count):
                mean[x] = np.float64((fm[x] + fn[x]) + (fu[x] + fv[x])) * 0.25
        zu, zv = lanes(ws, z + step, count), lanes(ws, z, count)
        other = lanes(ws, at(back + k, row) + low, count)
        _weigh_slope(out, 1.0, zu, zv, mean, length, rules.model, rules.coefficients)
        _weigh_slope(other, -1.0, zu, zv, mean, length, rules.model, rules.coefficients)


@compiled
def weigh_rows(ws, twin, row, count, ready, place, mean, rules):
    """Weigh the edges of the eight rows around a row; the rows that are ready now, as a mask.

    The block has ``count`` rows; ``place`` is which row of the padded rasters its row 0 is, and its
    width. From rows below the block its corners can be reached. ``mean`` is scratch, float64, LANES
    long. Eight at a time, as a call costs as much as some rows do.
    """
    top, width = place
    first = row & ~7
    last = min(first + 8, count + rules.reach)
    quick = rules.symmetric and rules.steps < 7 and not rules.integer
    weights = FORWARD_TWIN if twin else FORWARD
    lengths = TWIN_LENGTHS if twin else 0
    f = FRICTION_PLANE + (1 if twin else 0)
    z = ELEVATION + (1 if twin else 0)
    for row in range(first, last):
        if not (twin or rules.uniform):
            fill_lengths(ws, False, top + row, rules)
        if quick:
            for k in range(rules.steps):
                out = at(weights + k, row)
                if rules.model == FRICTION:
                    length = at(LENGTHS, lengths + k)
                    weigh_sums(ws, out, at(f, row - 1) + STEP_DX[k], at(f, row), length)
                else:
                    weigh_differences(ws, out, at(z, row - 1) + STEP_DX[k], at(z, row), out)
        else:
            _weigh_lanes(ws, twin, row, 0, LANES, mean, rules)
        if row >= count and not twin:
            _weigh_lanes(ws, twin, row, -rules.reach, 0, mean, rules)
            _weigh_lanes(ws, twin, row, LANES, LANES + rules.reach, mean, rules)
        if rules.reach == 2 and width < LANES and not twin:
            _bar_beyond(ws, row, count, width, rules)
    return ready | (((np.int64(1) << (last - first)) - 1) << (first + HALO))


@compiled
def _bar_beyond(ws, row, count, width, rules):
    """Bar a row's edges that touch a cell beyond the last column, but in the halo's own rows."""
    for k in range(rules.steps):
        other_inside = 0 <= row - STEP_DY[k] < count
        for x in range(width - 2, LANES):
            there = x + STEP_DX[k]
            if (x >= width and row < count) or (there >= width and other_inside):
                ws[at(FORWARD + k, row) + x] = rules.barrier
                if not rules.symmetric:
                    ws[at(BACKWARD + k, row) + x] = rules.barrier
