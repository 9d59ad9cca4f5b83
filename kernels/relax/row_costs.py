"""What the edges of a row of a block cost, in vectors.

The expressions of models.py in the order written: the same bits as `edge`.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.edge_costs import weigh_slopes
from orograph.kernels.relax.lanes import (
    BACKWARD,
    BACKWARD_TRANSPOSED,
    ELEVATION,
    FORWARD,
    FORWARD_TRANSPOSED,
    FRICTION_PLANE,
    HALO,
    LANES,
    LENGTHS,
    STEP_DX,
    STEP_DY,
    STRIDE,
    TRANSPOSED_LENGTHS,
    at,
    lanes,
    weigh_differences,
    weigh_sums,
)
from orograph.kernels.relax.models import ABSOLUTE_DIFFERENCE, FRICTION

# Row of the length table, for the edges of a plane and of its transposed plane.
_CLASS = np.array([[1, 2, 2, 4, 4, 3, 3], [0, 2, 2, 3, 3, 4, 4]])


@compiled
def fill_lengths(ws, transposed, row, rules):
    """Lay out the lengths of a row's edges by lane (transposed: of a block's, from its row 0)."""
    kinds = _CLASS[1 if transposed else 0]
    for k in range(rules.steps):
        start = at(LENGTHS, k + (TRANSPOSED_LENGTHS if transposed else 0))
        lengths = rules.factors[kinds[k]]
        if transposed and not rules.uniform:
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
def _weigh_lanes(ws, transposed, row, low, high, mean, rules):
    count = high - low
    f = at(FRICTION_PLANE + (1 if transposed else 0), row) + low
    z = at(ELEVATION + (1 if transposed else 0), row) + low
    ahead = FORWARD_TRANSPOSED if transposed else FORWARD
    back = ahead
    if not rules.symmetric:
        back = BACKWARD_TRANSPOSED if transposed else BACKWARD
        if rules.reverse:
            ahead, back = back, ahead
    for k in range(rules.steps):
        dy = STEP_DY[k]
        dx = STEP_DX[k]
        step = dx - dy * STRIDE
        length = lanes(ws, at(LENGTHS, k + (TRANSPOSED_LENGTHS if transposed else 0)) + low, count)
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
        if mean is not None:  # or Numba leaves this out
            if not rules.has_friction:
                mean[:] = 1.0
            elif k < 3:
                for x in range(count):
                    mean[x] = np.float64(fu[x] + fv[x]) * 0.5
            else:
                for x in range(count):
                    mean[x] = np.float64((fm[x] + fn[x]) + (fu[x] + fv[x])) * 0.25
            zu, zv = lanes(ws, z + step, count), lanes(ws, z, count)
            weigh_slopes(out, 1.0, zu, zv, mean, length, rules.model, rules.coefficients)
            if not rules.symmetric:
                other = lanes(ws, at(back + k, row) + low, count)
                weigh_slopes(other, -1.0, zu, zv, mean, length, rules.model, rules.coefficients)


@compiled
def weigh_rows(ws, transposed, row, count, ready, place, mean, rules):
    """Weigh the edges of the eight rows around a row; the rows that are ready now, as a mask.

    The block has ``count`` rows; ``place`` is which row of the padded rasters its row 0 is, and its
    width. From rows below the block its corners can be reached. ``mean`` is scratch, float64, LANES
    long, or None for models that are not computed in float64. Eight at a time, as a call costs as
    much as some rows do.
    """
    top, width = place
    first = row & ~7
    last = min(first + 8, count + rules.reach)
    plain = rules.model == FRICTION or rules.model == ABSOLUTE_DIFFERENCE
    quick = plain and rules.steps < 7 and not rules.integer
    weights = FORWARD_TRANSPOSED if transposed else FORWARD
    lengths = TRANSPOSED_LENGTHS if transposed else 0
    f = FRICTION_PLANE + (1 if transposed else 0)
    z = ELEVATION + (1 if transposed else 0)
    # constants for LLVM, and none for Numba: see sweeps.py
    west, east = np.int64(0), np.int64(LANES)
    for row in range(first, last):
        if not (transposed or rules.uniform):
            fill_lengths(ws, transposed, top + row, rules)
        if quick:
            for k in range(rules.steps):
                out = at(weights + k, row)
                if rules.model == FRICTION:
                    length = at(LENGTHS, lengths + k)
                    weigh_sums(ws, out, at(f, row - 1) + STEP_DX[k], at(f, row), length)
                else:
                    weigh_differences(ws, out, at(z, row - 1) + STEP_DX[k], at(z, row), out)
        else:
            _weigh_lanes(ws, transposed, row, west, east, mean, rules)
        if row >= count and not transposed:
            _weigh_lanes(ws, transposed, row, -rules.reach, west, mean, rules)
            _weigh_lanes(ws, transposed, row, east, east + rules.reach, mean, rules)
        if rules.reach == 2 and width < LANES and not transposed:
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
