"""What one step costs, as models.py says, evaluated in the order written.

A model whose cost depends on the slope is a function of it and a branch of `slope_cost`.

The exponential is our own, from additions and multiplications alone, and at most 2 ulp off.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.models import (
    ABSOLUTE_DIFFERENCE,
    DIAGONAL,
    EAST_WEST,
    FRICTION,
    NORTH_SOUTH,
    TOBLER,
    TWO_COLUMNS,
    TWO_ROWS,
    WALK,
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
def tobler(dz, length, friction, pace):
    slope = dz / length
    return ((length * pace) * exponential(3.5 * abs(slope + 0.05))) * friction


@compiled(error_model="numpy")
def walk(dz, length, friction, a, b, c, d, slope_factor, weight):
    slope = dz / length
    rise = dz * b if slope >= 0.0 else (dz * d if slope < slope_factor else dz * c)
    return (rise + length * a) + (weight * friction) * length


@compiled(error_model="numpy")
def slope_cost(model, dz, length, friction, p):
    """Return what a step costs by a model that depends on its rise; ``p``: coefficients."""
    if model == TOBLER:
        return tobler(dz, length, friction, p[0])
    return walk(dz, length, friction, p[0], p[1], p[2], p[3], p[4], p[5])


@compiled(error_model="numpy")
def weigh_slopes(out, sign, u, v, mean, length, model, p):
    """Weigh one direction of a row's edges by `slope_cost` (LLVM gives up on both at once).

    Models that have a loop of their own, with coefficients in registers, take vectors.
    """
    if model == TOBLER:
        pace = p[0]
        for x in range(out.size):
            dz = sign * (np.float64(v[x]) - np.float64(u[x]))
            out[x] = tobler(dz, np.float64(length[x]), mean[x], pace)
    elif model == WALK:
        a, b, c, d, slope_factor, weight = p[0], p[1], p[2], p[3], p[4], p[5]
        for x in range(out.size):
            dz = sign * (np.float64(v[x]) - np.float64(u[x]))
            along = np.float64(length[x])
            out[x] = walk(dz, along, mean[x], a, b, c, d, slope_factor, weight)
    else:
        for x in range(out.size):
            dz = sign * (np.float64(v[x]) - np.float64(u[x]))
            out[x] = slope_cost(model, dz, np.float64(length[x]), mean[x], p)


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
    cost[0] = slope_cost(rules.model, dz, np.float64(length), mean, rules.coefficients)
