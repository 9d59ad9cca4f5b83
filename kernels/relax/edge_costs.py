"""Costs of single steps, as the cost models say, evaluated in the order written.

A model of slopes has its formula in a file of models/, which `slope_cost` calls by its number.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from orograph.kernels.compiled import compiled
from orograph.kernels.formulas import emit_call, typed_calls
from orograph.kernels.relax.models import (
    ABSOLUTE_DIFFERENCE,
    DIAGONAL,
    EAST_WEST,
    FRICTION,
    MODELS,
    NORTH_SOUTH,
    TWO_COLUMNS,
    TWO_ROWS,
)
from orograph.kernels.vectors.lanes import LANES, Rows

_ROWS = list(enumerate(MODELS.values()))
VECTORS = sum(1 << number for number, row in _ROWS if row.vectors is not None)
"""Bit by number: which models have a form in vectors."""


@intrinsic
def slope_cost(typingctx, model, dz, length, friction, p, further, u, v, stride, by_row):
    """Return the cost of a step by the formula of a model, given its number; NaN without one.

    ``further[u]`` and ``further[v]`` are the values of the first further raster where the step
    starts and ends; those of the next one lie ``stride`` behind. Only models of one kind are
    called: if ``by_row`` is None, models without a form for a row; otherwise models with one.
    """
    step = types.float64, types.float64, types.float64, p
    formulas = []
    for number, row in _ROWS:
        if row.formula is not None and (row.row is None) == isinstance(by_row, types.NoneType):
            # Formulas of models without further rasters have no arguments for the ends of the step.
            ends = [types.UniTuple(types.float64, len(row.further))] * 2 if row.further else []
            formulas.append((number, row.formula, (*step, *ends)))
    calls = typed_calls(typingctx, formulas)

    def codegen(context, builder, signature, args):
        cells = context.make_array(signature.args[5])(context, builder, args[5]).data

        def values(place, count):
            """Return the values of the further rasters at a cell."""
            found = []
            # The rasters lie ``stride`` one behind the other.
            for k in range(count):
                place = builder.add(place, args[8]) if k else place
                cell = builder.load(builder.gep(cells, [place]))
                found.append(context.cast(builder, cell, further.dtype, types.float64))
            return cgutils.pack_array(builder, found)

        def arguments(number):
            count = len(_ROWS[number][1].further)
            return *args[1:5], *((values(place, count) for place in args[6:8]) if count else ())

        return emit_call(context, builder, args[0], calls, arguments)

    return types.float64(model, *step, further, *[types.int64] * 3, by_row), codegen


@intrinsic
def weigh_in_vectors(typingctx, model, ahead, back, u, v, mean, length, p, start):
    """Weigh LANES edges between rows u and v by a model of `VECTORS`, by its number.

    Both ways at once, in vectors: the bits of the formula.
    """

    def codegen(context, builder, signature, args):
        code, rest = args[0], args[1:]
        arrays = zip(signature.args[1:8], rest[:7], strict=True)
        rows = [Rows(context, builder, kind, array) for kind, array in arrays]
        if rows[2].real:  # the costs of integers are not computed by formulas
            for number, row in _ROWS:
                if row.vectors is not None:
                    with builder.if_then(builder.icmp_signed("==", code, code.type(number))):
                        _emit_lanes(builder, rows, rest[7], row.vectors, row.count)
        return context.get_dummy_value()

    return types.void(model, ahead, back, u, v, mean, length, p, types.int64), codegen


def _emit_lanes(builder: Any, rows: list[Rows], start: Any, emit: Any, count: int) -> None:
    """Emit the edges between two rows by a formula of ``count`` coefficients.

    A formula is a chain in which each number needs the one before, so it is emitted for all edges
    in turns: the processor does not look far enough ahead to find those of the next vectors.
    """
    ahead, back, u, v, means, length, coefficients = rows
    width = means.width
    number, zero = means.type, ir.Constant(start.type, 0)
    # A coefficient is loaded as a vector of one lane, taken as a number, and copied to all lanes.
    values = [
        means.spread(builder.bitcast(coefficients.load(zero, i, 1), number.element))
        for i in range(count)
    ]
    places, steps = range(0, LANES, width), []
    for lane in places:
        loaded = [row.load(start, lane, width) for row in (u, v, length)]
        # Single precision is widened, computed in double precision and rounded once, as `edge`
        # does.
        if u.size < means.size:
            loaded = [builder.fpext(value, number) for value in loaded]
        low, high, along = loaded
        dz = builder.fsub(high, low)
        slope = builder.fdiv(dz, along)
        friction = means.load(start, lane)
        # Ahead and back alternate, in the order in which ``stored`` pairs them with their rows
        # below.
        steps.append((dz, slope, along, friction))
        steps.append((builder.fneg(dz), builder.fneg(slope), along, friction))
    stored = product(places, (ahead, back))
    for (lane, out), cost in zip(stored, emit(builder, steps, values), strict=True):
        if u.size < means.size:
            cost = builder.fptrunc(cost, ir.VectorType(u.type.element, width))
        out.store(cost, start, lane)


@intrinsic
def weigh_row(
    typingctx, model, ahead, back, u, v, length, friction, p, further, at_u, at_v, plane, scratch
):
    """Weigh both directions of a row's edges by a model that has a form for it, by its number."""
    places = [types.int64] * 3
    given = ahead, back, u, v, length, friction, p, further, *places, scratch
    # the costs of integers are not computed by formulas
    real = isinstance(ahead.dtype, types.Float)
    rows = [(number, row.row, given) for number, row in _ROWS if real and row.row is not None]
    calls = typed_calls(typingctx, rows)

    def codegen(context, builder, signature, args):
        emit_call(context, builder, args[0], calls, lambda _: args[1:])
        return context.get_dummy_value()

    return types.void(model, *given), codegen


@compiled(error_model="numpy")
def weigh_slopes(out, sign, u, v, mean, length, model, p, further, at_u, at_v, stride):
    """Weigh one direction of a row's edges by `slope_cost` (LLVM gives up on both at once).

    ``further``: flat further rasters; their values where steps start and end are from ``at_u`` and
    ``at_v`` on, those of the next raster ``stride`` behind.
    """
    for x in range(out.size):
        dz = sign * (np.float64(v[x]) - np.float64(u[x]))
        ends = at_u + x, at_v + x, stride
        out[x] = slope_cost(*(model, dz, np.float64(length[x]), mean[x], p, further), *ends, None)


@compiled(error_model="numpy")
def edge(friction, elevation, y, x, dy, dx, rules, cost):
    """Write to cost[0] the cost of the step by (dy, dx) from (y, x), indices of padded rasters.

    The same bits as ``weigh_rows``: an array takes the result, so that it is rounded to its dtype.
    """
    _edge_of_model(friction, elevation, y, x, dy, dx, rules, cost)
    _add_extra(friction, elevation, y, x, dy, dx, rules, cost, rules.extra)


@compiled
def _length(y, dy, dx, factors):
    """Return the entry of a length table for the step by (dy, dx) from a row."""
    if dy == 0:
        kind = EAST_WEST
    elif dx == 0:
        kind = NORTH_SOUTH
    elif abs(dy) + abs(dx) == 3:
        kind = TWO_ROWS if abs(dy) == 2 else TWO_COLUMNS
    else:
        kind = DIAGONAL
    # The table keeps an edge at the later of its two rows.
    return factors[kind, max(y, y + dy)]


@compiled(error_model="numpy")
def _edge_of_model(friction, elevation, y, x, dy, dx, rules, cost):
    """Write to cost[0] the cost of a step without what is extra."""
    far = abs(dy) + abs(dx) == 3
    length = _length(y, dy, dx, rules.factors)
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
                # dy // 2 and dx // 2 are whole: the longer leg of a knight's move is 2.
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
    _slope_edge(elevation, y, x, dy, dx, length, mean, rules, cost, rules.by_step, rules.by_row)


@compiled(error_model="numpy")
def _slope_edge(elevation, y, x, dy, dx, length, mean, rules, cost, by_step, by_row):
    """Write to cost[0] the cost of a step between two elevations."""
    if by_step is None and by_row is None:
        return
    dz = np.float64(elevation[y + dy, x + dx]) - np.float64(elevation[y, x])
    p = rules.coefficients
    # The further rasters are the end of the coefficients: where this cell lies in the first of
    # them.
    u = p.size - rules.further * elevation.size + y * elevation.shape[1] + x
    v = u + dy * elevation.shape[1] + dx
    if rules.reverse:
        dz = -dz
        u, v = v, u
    cost[0] = slope_cost(
        *(rules.model, dz, np.float64(length), mean, p, p, u, v, elevation.size, by_row)
    )


@compiled
def _add_extra(friction, elevation, y, x, dy, dx, rules, cost, extra):
    """Add penalties to the cost of a step, or bar it if it is too steep."""
    if extra is None:
        return
    if extra.size > 1:
        raster = friction if rules.has_friction else elevation
        width = raster.shape[1]
        u = rules.coefficients.size - raster.size + y * width + x
        far = abs(dy) + abs(dx) == 3
        # A knight's move passes between these.
        m, n = u, u
        if far:
            m += dy // 2 * width if abs(dy) == 2 else dx // 2
            n = m + (dx if abs(dy) == 2 else dy * width)
        v = u + dy * width + dx
        add_penalty(cost, 0, rules.coefficients, u, v, m, n, far, rules, extra)
    if extra[0] < np.inf:
        rise = np.float64(elevation[y + dy, x + dx]) - np.float64(elevation[y, x])
        if is_steep(rise, np.float64(_length(y, dy, dx, rules.factors)), extra):
            cost[0] = rules.barrier


@compiled
def is_steep(rise, length, extra):
    """Return whether a slope is greater than that of the rules; not so if it is not known."""
    return abs(rise) > extra[0] * length


@compiled(error_model="numpy")
def add_penalty(costs, i, crossed, u, v, m, n, far, rules, extra):
    """Add to costs[i] half a penalty for each barrier that a step enters or leaves.

    ``crossed`` has the barriers of cells as bits: of the step's ends at u and v and, of a step that
    is ``far``, of the two cells between them at m and n.
    """
    changed = _bits(crossed[u], rules) ^ _bits(crossed[v], rules)
    twice = np.int64(0)
    if far:
        between = _bits(crossed[m], rules) | _bits(crossed[n], rules)
        changed = _bits(crossed[u], rules) ^ between
        twice = between ^ _bits(crossed[v], rules)
    if changed | twice:
        total = 0.0
        for k in range(1, extra.size):
            total += ((changed >> (k - 1) & 1) + (twice >> (k - 1) & 1)) * extra[k]
        if rules.integer:
            costs[i] += np.int64(total)
        else:
            costs[i] = np.float64(costs[i]) + total


@compiled
def _bits(value, rules):
    """Return the barriers of a cell; none outside the grid."""
    return np.int64(value) if value < rules.unreached else np.int64(0)
