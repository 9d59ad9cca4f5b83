"""Cost of a single step by each model of models.py, evaluated in the order written.

A model whose cost depends on the slope is a function of it and a branch of `slope_cost`.

The exponential is our own, from additions and multiplications alone, and at most 2 ulp off.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.lanes import LANES, Rows
from orograph.kernels.relax.models import (
    ABSOLUTE_DIFFERENCE,
    DIAGONAL,
    EAST_WEST,
    FRICTION,
    NORTH_SOUTH,
    TOBLER,
    TWO_COLUMNS,
    TWO_ROWS,
)

# 1 / 13!, 1 / 12!, ..., 1 / 1!, 1 / 0!
_TAYLOR = [1.0 / math.factorial(n) for n in range(13, -1, -1)]


def splat(kind: Any, value: Any) -> Any:
    """Return a constant of a scalar type, or the same in each lane of a vector."""
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


def _emit_exponential(builder: Any, x: list[Any]) -> list[Any]:
    """Emit exp of numbers, or of vectors, which are worked on in turn: each step needs the last."""
    kind = x[0].type
    whole: Any = ir.IntType(64)
    if isinstance(kind, ir.VectorType):
        whole = ir.VectorType(whole, kind.count)

    def each(step: Any, *values: Any) -> list[Any]:
        return [step(*both) for both in zip(*values, strict=True)]

    def scaled(values: list[Any], factor: float) -> list[Any]:
        return [builder.fmul(value, splat(kind, factor)) for value in values]

    shift = splat(kind, 6755399441055744.0)  # 1.5 * 2**52: rounds to an integer
    shifted = [builder.fadd(v, shift) for v in scaled(x, 1.4426950408889634)]
    n = [builder.fsub(v, shift) for v in shifted]
    r = each(builder.fsub, x, scaled(n, 6.93147180369123816490e-01))
    r = each(builder.fsub, r, scaled(n, 1.90821492927058770002e-10))
    p = [splat(kind, _TAYLOR[0]) for _ in x]
    for term in _TAYLOR[1:]:
        p = [builder.fadd(v, splat(kind, term)) for v in each(builder.fmul, p, r)]
    one, mantissa = splat(whole, 0x3FF << 52), splat(whole, 52)
    bits = [builder.shl(builder.bitcast(v, whole), mantissa) for v in shifted]
    power = [builder.bitcast(builder.add(v, one), kind) for v in bits]  # 2**n
    above = [builder.fcmp_ordered(">", v, splat(kind, 708.0)) for v in x]
    infinite = [splat(kind, math.inf)] * len(x)
    return each(builder.select, above, infinite, each(builder.fmul, p, power))


@intrinsic
def _exponential(typingctx, x):
    def codegen(context, builder, signature, args):
        return _emit_exponential(builder, [args[0]])[0]

    return types.float64(types.float64), codegen


@compiled(error_model="numpy")
def exponential(x):
    """exp(x) for -700 <= x <= 708, in float64; infinite above, NaN for NaN."""
    return _exponential(np.float64(x))


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
    """Return the cost of a step by a model that depends on its rise; ``p``: coefficients."""
    if model == TOBLER:
        return tobler(dz, length, friction, p[0])
    return walk(dz, length, friction, p[0], p[1], p[2], p[3], p[4], p[5])


def _emit_tobler(builder: Any, steps: list[Any], length: Any, friction: Any, p: list[Any]) -> Any:
    number, scaled, steep = length.type, builder.fmul(length, p[0]), []
    for _, slope in steps:
        sum_ = builder.fadd(slope, splat(number, 0.05))
        down = builder.fcmp_ordered("<", sum_, splat(number, 0.0))
        size = builder.select(down, builder.fneg(sum_), sum_)
        steep.append(builder.fmul(splat(number, 3.5), size))
    found = _emit_exponential(builder, steep)
    return [builder.fmul(builder.fmul(scaled, value), friction) for value in found]


def _emit_walk(builder: Any, steps: list[Any], length: Any, friction: Any, p: list[Any]) -> Any:
    a, b, c, d, slope_factor, weight = p
    along, found = builder.fmul(builder.fmul(weight, friction), length), []
    for dz, slope in steps:
        steep = builder.fcmp_ordered("<", slope, slope_factor)
        down = builder.select(steep, builder.fmul(dz, d), builder.fmul(dz, c))
        up = builder.fcmp_ordered(">=", slope, splat(slope.type, 0.0))
        rise = builder.select(up, builder.fmul(dz, b), down)
        found.append(builder.fadd(builder.fadd(rise, builder.fmul(length, a)), along))
    return found


def _weigh_both_ways(emit: Any, count: int) -> Any:
    """Make an intrinsic: LANES edges between rows u and v by a formula of ``count`` coefficients.

    Both ways at once, in vectors: the bits of the formula above.
    """

    @intrinsic
    def weigh(typingctx, ahead, back, u, v, mean, length, p, start):
        def codegen(context, builder, signature, args):
            arrays = zip(signature.args[:7], args[:7], strict=True)
            rows = [Rows(context, builder, kind, array) for kind, array in arrays]
            ahead, back, u, v, means, length, coefficients = rows
            if not u.real:
                return context.get_dummy_value()  # such costs are not whole numbers
            start, width = args[7], means.width
            number, zero = means.type, ir.Constant(start.type, 0)
            values = []
            for i in range(count):
                single = builder.bitcast(coefficients.load(zero, i, 1), number.element)
                undefined = ir.Constant(number, ir.Undefined)
                first = builder.insert_element(undefined, single, ir.Constant(ir.IntType(32), 0))
                values.append(means.shuffle(first, undefined, [0] * width))
            for lane in range(0, LANES, width):
                loaded = [row.load(start, lane, width) for row in (u, v, length)]
                if u.size < means.size:
                    loaded = [builder.fpext(value, number) for value in loaded]
                low, high, along = loaded
                dz = builder.fsub(high, low)
                slope = builder.fdiv(dz, along)
                steps = [(dz, slope), (builder.fneg(dz), builder.fneg(slope))]
                friction = means.load(start, lane)
                found = emit(builder, steps, along, friction, values)
                for out, cost in zip((ahead, back), found, strict=True):
                    if u.size < means.size:
                        cost = builder.fptrunc(cost, ir.VectorType(u.type.element, width))
                    out.store(cost, start, lane)
            return context.get_dummy_value()

        return types.void(ahead, back, u, v, mean, length, p, types.int64), codegen

    return weigh


weigh_tobler = _weigh_both_ways(_emit_tobler, 1)
weigh_walk = _weigh_both_ways(_emit_walk, 6)


@compiled(error_model="numpy")
def weigh_slopes(out, sign, u, v, mean, length, model, p):
    """Weigh one direction of a row's edges by `slope_cost` (LLVM gives up on both at once)."""
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
            cost[0] += (zm - zm) + (zn - zn)  # NaN where either is not a cell
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
