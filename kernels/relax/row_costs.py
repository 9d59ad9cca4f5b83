"""Costs of the edges of a row of a block, in vectors.

The expressions of models.py in the order written: the same bits as `edge`.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.edge_costs import (
    VECTORS,
    add_penalty,
    is_steep,
    weigh_in_vectors,
    weigh_row,
    weigh_slopes,
)
from orograph.kernels.relax.models import ABSOLUTE_DIFFERENCE, FRICTION
from orograph.kernels.relax.models.model import SCRATCH
from orograph.kernels.vectors.lanes import (
    BACKWARD,
    BACKWARD_TRANSPOSED,
    ELEVATION,
    FORWARD,
    FORWARD_TRANSPOSED,
    FRICTION_PLANE,
    FURTHER_PLANES,
    HALO,
    LANES,
    LENGTHS,
    PLANE,
    STEP_DX,
    STEP_DY,
    STRIDE,
    TRANSPOSED_LENGTHS,
    at,
    lanes,
    transpose_tile,
    weigh_differences,
    weigh_sums,
)

YES, NO = np.int64(1), np.int64(0)
ROW_SCRATCH = 1 + SCRATCH
"""Numbers of scratch for a cell of a row: its mean, and those of a model."""

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
            # A row of the transposed plane is a column of the raster, so lane x lies x rows further
            # down. Lanes beyond the raster's last row belong to no cell, and any length will do.
            for x in range(STRIDE):
                ws[start + x] = lengths[min(row + x + ahead, lengths.size - 1)]
        else:
            # The lanes beyond both ends too: corners are weighed with them.
            for x in range(-HALO, STRIDE - HALO):
                ws[start + x] = lengths[row]


@compiled
def _weigh_friction(out, u, v, length, integer, barrier):
    for x in range(out.size):
        out[x] = (u[x] + v[x]) * length[x]
    # NaN and infinity pass through the sum of floats. With a barrier of integers the product may
    # wrap around, so it is overwritten; the sum itself, of at most four barriers, does not.
    if integer:
        for x in range(out.size):
            if u[x] + v[x] >= barrier:
                out[x] = barrier


@compiled
def _weigh_knight(out, u, v, m, n, length, integer, barrier):
    for x in range(out.size):
        out[x] = ((m[x] + n[x]) + (u[x] + v[x])) * length[x]
    # As in `_weigh_friction`: only the product may wrap around.
    if integer:
        for x in range(out.size):
            if (m[x] + n[x]) + (u[x] + v[x]) >= barrier:
                out[x] = barrier


@compiled
def _bar_knight(out, m, n, integer, barrier):
    """Block knight's moves that pass between cells of which one is a barrier."""
    if integer:
        for x in range(out.size):
            if m[x] >= barrier or n[x] >= barrier:
                out[x] = barrier
    else:
        for x in range(out.size):
            # 0 for a finite height, NaN for NaN and infinity.
            out[x] += (m[x] - m[x]) + (n[x] - n[x])


@compiled
def _weigh_difference(out, u, v, integer, barrier):
    for x in range(out.size):
        out[x] = abs(v[x] - u[x])
    if integer:
        for x in range(out.size):
            if u[x] >= barrier or v[x] >= barrier:
                out[x] = barrier


@compiled(error_model="numpy", inline=True)
def weigh_edges(
    ahead,
    back,
    f,
    at_f,
    z,
    at_z,
    at_further,
    plane,
    stride,
    dy,
    dx,
    length,
    scratch,
    rules,
    by_step,
    by_row,
):
    """Weigh the edges between cells in a row and those ``dy`` rows before it, ``dx`` lanes on.

    ``ahead``: what the steps to the row cost, ``back``: those from it, the same array where it is
    symmetric. ``f``, ``z``: flat rasters with rows of ``stride``, in which the cells are from
    ``at_f`` and ``at_z`` on. Further rasters are in ``z`` as well: the cells of the first one are
    from ``at_further`` on, those of each other ``plane`` behind. ``scratch``: float64,
    `ROW_SCRATCH` for a cell. All else that is for a cell has one length. ``by_step``, ``by_row``:
    those of the rules; Numba compiles nothing that is only for another kind of model.
    `add_extra` adds what the rules have beside the model.
    """
    count = ahead.size
    step = dx - dy * stride
    half = -1 if dx < 0 else 1
    # a knight's move passes between these
    m = -stride if dy == 2 else half - stride
    n = dx - stride if dy == 2 else half
    far = dy == 2 or abs(dx) == 2
    zu, zv = lanes(z, at_z + step, count), lanes(z, at_z, count)
    if rules.model == ABSOLUTE_DIFFERENCE:
        _weigh_difference(ahead, zu, zv, rules.integer, rules.barrier)
        if far:
            zm, zn = lanes(z, at_z + m, count), lanes(z, at_z + n, count)
            _bar_knight(ahead, zm, zn, rules.integer, rules.barrier)
        return
    fu, fv = lanes(f, at_f + step, count), lanes(f, at_f, count)
    fm, fn = lanes(f, at_f + m, count), lanes(f, at_f + n, count)
    if rules.model == FRICTION:
        if far:
            _weigh_knight(ahead, fu, fv, fm, fn, length, rules.integer, rules.barrier)
        else:
            _weigh_friction(ahead, fu, fv, length, rules.integer, rules.barrier)
        return
    # The types of both are known when Numba compiles: for a model without a formula it drops what
    # follows.
    if by_step is None and by_row is None:
        return
    # The frictions are added in the raster's own type and widened before they are multiplied, in
    # the same order as in `edge`: so both give the same bits.
    mean = lanes(scratch, 0, count)
    if not rules.has_friction:
        mean[:] = 1.0
    elif far:
        for x in range(count):
            mean[x] = np.float64((fm[x] + fn[x]) + (fu[x] + fv[x])) * 0.25
    else:
        for x in range(count):
            mean[x] = np.float64(fu[x] + fv[x]) * 0.5
    if by_row is not None:
        model, p, rest = (
            rules.model,
            rules.coefficients,
            lanes(scratch, count, scratch.size - count),
        )
        v = at_further
        weigh_row(model, ahead, back, zu, zv, length, mean, p, z, v + step, v, plane, rest)
        return
    # Whole vectors first, where the model has that form; then what is left, one edge after another.
    done = 0
    if VECTORS >> rules.model & 1:
        while done + LANES <= count:
            weigh_in_vectors(
                *(rules.model, ahead, back, zu, zv, mean, length, rules.coefficients, done)
            )
            done += LANES
    if done < count:
        out, other = lanes(ahead, done, count - done), lanes(back, done, count - done)
        low, high = lanes(zu, done, count - done), lanes(zv, done, count - done)
        along, mean = lanes(length, done, count - done), mean[done:]
        # Steps ahead start at u and end at v, those back the other way round, with the opposite
        # rise.
        v = at_further + done
        u = v + step
        model, p = rules.model, rules.coefficients
        weigh_slopes(out, 1.0, low, high, mean, along, model, p, z, u, v, plane)
        if not rules.symmetric:
            weigh_slopes(other, -1.0, low, high, mean, along, model, p, z, v, u, plane)


@compiled(error_model="numpy")
def add_extra(ahead, back, z, at_z, at_crossed, stride, dy, dx, length, rules, extra):
    """Add penalties to the costs of a row's edges, and bar those that are too steep.

    Arguments as for `weigh_edges`. If ``extra``, from the rules, is None, nothing is compiled.
    """
    if extra is None:
        return
    count = ahead.size
    step = dx - dy * stride
    half = -1 if dx < 0 else 1
    m = -stride if dy == 2 else half - stride
    n = dx - stride if dy == 2 else half
    far = dy == 2 or abs(dx) == 2
    for both in range(1 if rules.symmetric else 2):
        out = back if both else ahead
        if extra.size > 1:
            for x in range(count):
                v = at_crossed + x
                add_penalty(out, x, z, v + step, v, v + m, v + n, far, rules, extra)
        if extra[0] < np.inf:
            for x in range(count):
                rise = np.float64(z[at_z + x]) - np.float64(z[at_z + step + x])
                if is_steep(rise, np.float64(length[x]), extra):
                    out[x] = rules.barrier


@compiled
def _weigh_lanes(ws, transposed, row, low, high, kept, scratch, steps, rules):
    """Weigh the first ``steps`` edges of some lanes of a row."""
    count = high - low
    f = at(FRICTION_PLANE + (1 if transposed else 0), row) + low
    z = at(ELEVATION + (1 if transposed else 0), row) + low
    further = at(FURTHER_PLANES + (1 if transposed else 0), row) + low
    ahead = kept + (FORWARD_TRANSPOSED if transposed else FORWARD)
    back = ahead
    if not rules.symmetric:
        back = kept + (BACKWARD_TRANSPOSED if transposed else BACKWARD)
        # Distances to the sources add what the opposite step costs.
        if rules.reverse:
            ahead, back = back, ahead
    lengths = TRANSPOSED_LENGTHS if transposed else 0
    for k in range(steps):
        length = lanes(ws, at(LENGTHS, k + lengths) + low, count)
        out = lanes(ws, at(ahead + k, row) + low, count)
        other = lanes(ws, at(back + k, row) + low, count)
        dy, dx = STEP_DY[k], STEP_DX[k]
        weigh_edges(
            # Each plane of the workspace is followed by its transposed plane, so the further
            # rasters lie two planes apart.
            *(out, other, ws, f, ws, z, further, 2 * PLANE, STRIDE, dy, dx),
            *(length, scratch, rules, rules.by_step, rules.by_row),
        )
    # Numba knows this when it compiles, and drops the call with its counts of references.
    if rules.extra is not None:
        _add_extra_of_lanes(ws, transposed, row, low, high, kept, steps, rules, rules.extra)


@compiled
def _add_extra_of_lanes(ws, transposed, row, low, high, kept, steps, rules, extra):
    """Add what is extra to the edges that `_weigh_lanes` has weighed."""
    if extra is None:
        return
    side = 1 if transposed else 0
    ahead = kept + (FORWARD_TRANSPOSED if transposed else FORWARD)
    back = kept + (BACKWARD_TRANSPOSED if transposed else BACKWARD)
    z = at(ELEVATION + side, row) + low
    crossed = at(FURTHER_PLANES + 2 * (rules.further - 1) + side, row) + low
    lengths = TRANSPOSED_LENGTHS if transposed else 0
    for k in range(steps):
        length = lanes(ws, at(LENGTHS, k + lengths) + low, high - low)
        out = lanes(ws, at(ahead + k, row) + low, high - low)
        other = lanes(ws, at(back + k, row) + low, high - low)
        dy, dx = STEP_DY[k], STEP_DX[k]
        add_extra(out, other, ws, z, crossed, STRIDE, dy, dx, length, rules, extra)


@compiled
def is_quick(rules):
    """Whether each visit recomputes the weights, which takes no longer than reading them."""
    plain = rules.model == FRICTION or rules.model == ABSOLUTE_DIFFERENCE
    return plain and rules.steps < 7 and not rules.integer and rules.extra is None


@compiled
def weigh_rows(ws, transposed, row, count, ready, place, scratch, rules):
    """Weigh the edges of a row; the rows that are ready now, as a mask.

    The block has ``count`` rows; ``place`` is which row of the padded rasters its row 0 is, its
    width, and where its weights are kept. From rows below the block its corners can be reached. For
    rules that are quick the eight rows around it, as a call costs as much as some rows do.
    """
    top = place[0]
    if not is_quick(rules):
        if not (transposed or rules.uniform):
            fill_lengths(ws, transposed, top + row, rules)
        west, east = np.int64(0), np.int64(LANES)
        _weigh_lanes(
            ws, transposed, row, west, east, place[2], scratch, np.int64(rules.steps), rules
        )
        # Rows below the block are halo. Edges lead from it to their cells, to those beyond its
        # first and last column too.
        if row >= count and not transposed:
            _weigh_corners(ws, row, place[2], scratch, rules)
        return ready | (np.int64(1) << (row + HALO))
    # The aligned group of eight rows, as far as it holds rows of the block and the halo below it.
    first = row & ~7
    last = min(first + 8, count + rules.reach)
    weights = FORWARD_TRANSPOSED if transposed else FORWARD
    lengths = TRANSPOSED_LENGTHS if transposed else 0
    f = FRICTION_PLANE + (1 if transposed else 0)
    z = ELEVATION + (1 if transposed else 0)
    for row in range(first, last):
        if not (transposed or rules.uniform):
            fill_lengths(ws, transposed, top + row, rules)
        for k in range(rules.steps):
            # Quick rules have at most three edges a row, all of which lead to the row before.
            out = at(weights + k, row)
            if rules.model == FRICTION:
                length = at(LENGTHS, lengths + k)
                weigh_sums(ws, out, at(f, row - 1) + STEP_DX[k], at(f, row), length)
            else:
                weigh_differences(ws, out, at(z, row - 1) + STEP_DX[k], at(z, row), out)
        if row >= count and not transposed:
            _weigh_corners(ws, row, np.int64(0), scratch, rules)
    # Bits HALO + first to HALO + last - 1.
    return ready | (((np.int64(1) << (last - first)) - 1) << (first + HALO))


@compiled
def _weigh_corners(ws, row, kept, scratch, rules):
    """Weigh the edges of a row below the block to the cells beyond its ends."""
    # constants for LLVM, and none for Numba: see sweeps.py
    west, east = np.int64(0), np.int64(LANES)
    _weigh_lanes(ws, NO, row, -rules.reach, west, kept, scratch, rules.steps, rules)
    _weigh_lanes(ws, NO, row, east, east + rules.reach, kept, scratch, rules.steps, rules)


@compiled(single_call=True)
def weigh_block(ws, top, height, width, kept, scratch, rules):
    """Weigh all edges of a block, for rules that are not quick.

    ``top``: which row of the padded rasters is its row 0. ``kept``: by how many planes its weights
    come after the first ones. With 8 neighbours both planes have each diagonal edge, so it is
    weighed once.
    """
    west, east = np.int64(0), np.int64(LANES)
    for row in range(height + rules.reach):
        if not rules.uniform:
            fill_lengths(ws, NO, top + row, rules)
        _weigh_lanes(ws, NO, row, west, east, kept, scratch, rules.steps, rules)
        if row >= height:
            _weigh_corners(ws, row, kept, scratch, rules)
        if rules.reach == 2 and width < LANES:
            _bar_beyond(ws, row, height, width, kept, rules)
    # The diagonals of 8 neighbours are not weighed twice. In the transposed planes only those of
    # the first row and of the halo behind the last one are left, since their other ends are columns
    # of the halo.
    if rules.steps == 3:
        _transpose_diagonals(ws, height, width, kept, rules)
    for row in range(width + rules.reach):
        copied = rules.steps == 3 and 0 < row < width
        steps = np.int64(1) if copied else np.int64(rules.steps)
        _weigh_lanes(ws, YES, row, west, east, kept, scratch, steps, rules)


@compiled
def _transpose_diagonals(ws, height, width, kept, rules):
    """Copy the weights of diagonal edges between the columns of a block to the transposed planes.

    What goes down in one, and to the left, goes up in the other.
    """
    fore, back = kept + FORWARD, kept + (FORWARD if rules.symmetric else BACKWARD)
    fore_transposed = kept + FORWARD_TRANSPOSED
    back_transposed = kept + (FORWARD_TRANSPOSED if rules.symmetric else BACKWARD_TRANSPOSED)
    for both in range(1 if rules.symmetric else 2):
        if both:
            fore, back = back, fore
            fore_transposed = back_transposed
        for i in range(0, LANES, 8):
            for j in range(0, LANES, 8):
                # The edge to the upper left (k = 1) is its own mirror image. That to the upper
                # right (k = 2) becomes one to the lower left, which the transposed plane keeps at
                # its other end, a row later and a lane earlier.
                transpose_tile(ws, at(fore + 1, i) + j, at(fore_transposed + 1, j) + i)
                transpose_tile(ws, at(back + 2, i + 1) + j - 1, at(fore_transposed + 2, j) + i)
        for k in range(1, 3):
            # A low block has cells to lower only up to its last row. The other end of k = 2 is a
            # lane further on, so its bars begin a lane earlier.
            for row in range(width if height < LANES else 0):
                start = at(fore_transposed + k, row)
                ws[start + height + 1 - k : start + LANES] = rules.barrier


@compiled
def _bar_beyond(ws, row, count, width, kept, rules):
    """Bar a row's edges that touch a cell beyond the last column, but in the halo's own rows."""
    for k in range(rules.steps):
        other_inside = 0 <= row - STEP_DY[k] < count
        for x in range(width - 2, LANES):
            there = x + STEP_DX[k]
            if (x >= width and row < count) or (there >= width and other_inside):
                ws[at(kept + FORWARD + k, row) + x] = rules.barrier
                if not rules.symmetric:
                    ws[at(kept + BACKWARD + k, row) + x] = rules.barrier
