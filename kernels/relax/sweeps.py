"""Solve a block of a tile to its fixed point by sweeps over rows of vectors.

A block is copied into a workspace in cache (laid out as lanes.py says). Each sweep carries
values down, up, right or left across the whole block, a row at a time in vector registers; for
right and left the block is transposed. Only rows behind a lowered row are swept again, so a wave in
a narrow corridor and a second visit for one better corner are cheap. Then the values on the block's
border are held against what the neighbours know. Zhao, "A fast sweeping method for Eikonal
equations", doi:10.1090/S0025-5718-04-01678-3.

Masks of rows and lanes are int64; bit HALO is row 0. Values only fall, each to a sum along a real
path, so sweeps end, and their order changes no bit.

Numba compiles a function anew for each constant among its arguments: YES, NO and what goes through
`np.int64` are none for it, which halves the time of compiling, while LLVM still sees them.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.models import Rules
from orograph.kernels.relax.row_costs import (
    NO,
    ROW_SCRATCH,
    YES,
    fill_lengths,
    is_quick,
    weigh_block,
    weigh_rows,
)
from orograph.kernels.vectors.lanes import (
    BACKWARD,
    BACKWARD_TRANSPOSED,
    DISTANCE,
    ELEVATION,
    FORWARD,
    FORWARD_TRANSPOSED,
    FRICTION_PLANE,
    FURTHER_PLANES,
    HALO,
    KEPT,
    LANES,
    LENGTHS,
    PLANE,
    PLANES,
    STEP_DX,
    STEP_DY,
    STRIDE,
    WEIGHT_PLANES,
    address,
    at,
    borrowed,
    highest_bit,
    lower_backward,
    lower_forward,
    lowest_bit,
    probe_backward,
    probe_forward,
    transpose,
)
from orograph.tiles.arrays import Array

NORTH, SOUTH, WEST, EAST, NORTH_WEST, NORTH_EAST, SOUTH_WEST, SOUTH_EAST = range(8)


def make_workspace(like: Array, rules: Rules) -> tuple[Array, Array, Array]:
    """Return the arrays of a thread: planes of a block, scratch, and ids of kept weights.

    Weights that take long to make are kept for ``KEPT`` x ``KEPT`` blocks, each in planes of its
    own: a block is visited some times within a while. The memory is untouched until it is needed.
    The last planes are for blocks of which some rows alone are weighed.
    """
    kept = 1 if is_quick(rules) else KEPT**2 + 1
    # Each further place for weights takes one set of planes. The further rasters stand behind all
    # of these.
    size = (PLANES + (kept - 1) * WEIGHT_PLANES) * PLANE + STRIDE
    if rules.further:
        size = (FURTHER_PLANES + 2 * rules.further) * PLANE + STRIDE
    # weights off the ends of a row are read, not made: they must be no less than 0
    ws = _lay_out(np.zeros(size + 64, like.dtype), rules)
    return ws, np.empty(ROW_SCRATCH * LANES), np.full(kept, -1)


@compiled
def _lay_out(buffer, rules):
    """Planes of a block, at a cache line; distances unreached."""
    # ``make_workspace`` has asked for 64 elements more, so that the planes can begin at a cache
    # line.
    start = (-address(buffer) % 64) // buffer.itemsize
    ws = buffer[start : start + buffer.size - 64]
    ws[: 2 * PLANE] = rules.unreached
    ws[2 * PLANE : LENGTHS * PLANE] = rules.barrier
    if rules.further:
        ws[FURTHER_PLANES * PLANE :] = rules.barrier
    if rules.uniform:
        fill_lengths(ws, NO, np.int64(0), rules)
        fill_lengths(ws, YES, np.int64(0), rules)
    return ws


@compiled
def _load(ws, plane, raster, top, left, height, width, reach, nothing):
    """Copy a block and its halo into a plane and its transposed one; elsewhere ``nothing``.

    The halo's corners go into the plane, not the transposed one: each edge into the block needs to
    be in one. A block of fewer than LANES rows or columns has its halo where transposing passes, so
    distances have it in both. Only the block's own cells must be lowered: so the costs beyond the
    last column in the plane and beyond the last row in the transposed one are ``nothing``; a
    knight's move past a corner needs the former, and `weigh_block` bars the edges instead.
    """
    for i in range(-reach, height + reach):
        y = top + reach + i
        start = at(plane, i)
        # The padding on both sides of the row, which weights of the corners and shifted lanes read.
        for x in range(reach):
            ws[start - 1 - x] = nothing
            ws[start + LANES + x] = nothing
        for x in range(width, LANES):
            ws[start + x] = nothing
        # Columns of the halo are the transposed plane's business. The plane itself gets them in the
        # halo's own rows (the corners), and in all rows where a knight's move may pass a corner.
        begin = 0
        end = min(width + reach, LANES) if plane == DISTANCE else width
        if i < 0 or i >= height or (reach == 2 and plane != DISTANCE):
            begin = -reach
            end = width + reach
        target = start + begin
        source = left + reach + begin
        for x in range(end - begin):
            ws[uint64(target + x)] = raster[uint64(y), uint64(source + x)]
    for i in range(height + reach, LANES):
        start = at(plane, i)
        ws[start : start + LANES] = nothing
    # All of the plane is transposed; then the halo's columns, its rows before the first and behind
    # the last, are read from the raster.
    transpose(ws, plane, plane + 1, np.int64(-1), np.int64(-1))
    if plane != DISTANCE:
        for j in range(width if height < LANES else 0):
            start = at(plane + 1, j)
            ws[start + height : start + LANES] = nothing
    for side in range(2):
        for q in range(reach):
            j = width + q if side else -1 - q
            start = at(plane + 1, j)
            column = left + reach + j
            end = min(height + reach, LANES) if plane == DISTANCE else height
            for y in range(end):
                ws[uint64(start + y)] = raster[uint64(top + reach + y), uint64(column)]
            ws[start + end : start + LANES] = nothing


@compiled
def _load_further(ws, shape, box, rules, by_step, by_row, extra):
    """Copy the further rasters of a block, as `_load` does."""
    if by_step is None and by_row is None and extra is None:
        return
    top, left, height, width = box
    size = shape[0] * shape[1]
    for k in range(rules.further):
        # Raster k counted from the end of the coefficients.
        last = rules.coefficients.size - (rules.further - k - 1) * size
        cells = rules.coefficients[last - size : last].reshape(shape)
        _load(
            *(ws, np.int64(FURTHER_PLANES + 2 * k), cells),
            *(top, left, height, width, rules.reach, rules.barrier),
        )


@compiled
def _store(ws, dist, top, left, width, changed, reach, limit, unreached):
    """Write the changed rows of a block back, but for values above the limit.

    Returns the number of cells lowered, of those how many held nothing before, the rows they are in
    as a mask, and of the columns those among the first and last ``reach``, where neighbours look.
    (A value above the limit is found anew by each visit. Were it counted as a change, two blocks
    could wake each other for ever.)
    """
    settled = 0
    found = 0
    rows = np.int64(0)
    columns = np.int64(0)
    while changed:
        i = lowest_bit(changed) - HALO
        changed &= changed - 1
        start = at(DISTANCE, i)
        y = top + i
        # The columns are noted first: writing the row back takes away what they are compared with.
        for q in range(2 * reach):
            x = q if q < reach else width - 1 - (q - reach)
            if 0 <= x < width and ws[start + x] < dist[y, left + x] and ws[start + x] <= limit:
                columns |= np.int64(1) << (x + HALO)
        count = 0
        for x in range(width):
            new = ws[uint64(start + x)]
            old = dist[uint64(y), uint64(left + x)]
            lower = new < old and new <= limit
            count += 1 if lower else 0
            found += 1 if lower and old >= unreached else 0
            dist[uint64(y), uint64(left + x)] = new if lower else old
        if count:
            rows |= np.int64(1) << (i + HALO)
            settled += count
    return settled, found, rows, columns


@compiled(single_call=True)
def _sweep(ws, transposed, backward, dirty, count, ready, scratch, rules, place):
    """Carry values from the dirty rows across the block.

    Returns the rows lowered (as a mask, bit HALO is row 0), the lanes lowered, the rows whose
    weights are ready, and the number of rows worked on.
    """
    plane = DISTANCE + transposed
    weights = FORWARD_TRANSPOSED if transposed else FORWARD
    if backward and not rules.symmetric:
        weights = BACKWARD_TRANSPOSED if transposed else BACKWARD
    weights += place[2]
    inside = ((np.int64(1) << count) - 1) << HALO
    rows = np.int64(0)
    lanes = np.int64(0)
    work = 0
    # A dirty row can lower the row behind it, with knight's moves the second one too. Rows of the
    # halo, outside the mask, are never lowered.
    pending = dirty >> 1 if backward else dirty << 1
    if rules.reach == 2:
        pending |= dirty >> 2 if backward else dirty << 2
    pending &= inside
    while pending:
        if backward:
            # The row nearest to where the sweep begins comes first, so a value crosses the whole
            # block in one sweep. An edge is kept at its later row: going back, at those behind this
            # one.
            row = highest_bit(pending) - HALO
            for q in range(1, rules.reach + 1):
                if not (ready >> (row + q + HALO)) & 1:
                    ready = weigh_rows(ws, transposed, row + q, count, ready, place, scratch, rules)
            lowered = lower_backward(
                ws,
                rules.steps,
                at(plane, row),
                at(plane, row + 1),
                at(weights, row + 1),
                rules.unreached,
            )
        else:
            row = lowest_bit(pending) - HALO
            if not (ready >> (row + HALO)) & 1:
                ready = weigh_rows(ws, transposed, row, count, ready, place, scratch, rules)
            lowered = lower_forward(
                ws,
                rules.steps,
                at(plane, row),
                at(plane, row - 1),
                at(weights, row),
                rules.unreached,
            )
        bit = np.int64(1) << (row + HALO)
        pending ^= bit
        work += 1
        if lowered:
            rows |= bit
            lanes |= lowered
            # What was lowered may lower the rows behind it.
            next_rows = bit >> 1 if backward else bit << 1
            if rules.reach == 2:
                next_rows |= bit >> 2 if backward else bit << 2
            pending |= next_rows & inside
    return rows, lanes, ready, work


@compiled
def _probe_far(ws, transposed, forward, target, edge_row, source, nothing):
    """Return the least value by which a row lowers a row two rows away (knight's moves)."""
    plane = DISTANCE + (1 if transposed else 0)
    best = nothing
    # The two edges that go two rows back; the others go one row back, as `probe_forward` has it.
    for k in range(5, 7):
        weights = at(edge_row[0] + k, edge_row[1])
        for x in range(LANES):
            # kept at the later row, whose lane is x when going forward
            other = x + (STEP_DX[k] if forward else -STEP_DX[k])
            # Sources off the ends of the row are cells of other blocks.
            if 0 <= other < LANES:
                value = ws[at(plane, source) + other] + ws[weights + (x if forward else other)]
                if value < ws[at(plane, target) + x] and value < best:
                    best = value
    return best


@compiled
def _probe_corner(ws, south, east, height, width, kept, rules):
    """Return the least value by which the block lowers the halo beyond one of its corners."""
    weights = FORWARD
    if not (south or rules.symmetric):
        weights = BACKWARD
    weights += kept
    best = rules.unreached
    for ty in range(rules.reach):
        row = height + ty if south else -1 - ty
        for tx in range(rules.reach):
            lane = width + tx if east else -1 - tx
            # Edge 0 goes straight back, so it never leads to a corner.
            for k in range(1, rules.steps):
                y = row - STEP_DY[k] if south else row + STEP_DY[k]
                x = lane + STEP_DX[k] if south else lane - STEP_DX[k]
                if 0 <= y < height and 0 <= x < width:
                    w = at(weights + k, row) + lane if south else at(weights + k, y) + x
                    value = ws[at(DISTANCE, y) + x] + ws[w]
                    if value < ws[at(DISTANCE, row) + lane] and value < best:
                        best = value
    return best


@compiled
def _spare_corner(ws, first, width, reach):
    """Exclude cells beyond the last column of a narrow block from `_probe_side`."""
    for row in range(first, first + reach):
        # No sum lowers a distance of 0.
        start = at(DISTANCE, row)
        ws[start + width : start + LANES] = 0


@compiled
def _probe_side(ws, transposed, forward, count, kept, rules):
    """Return the least value by which the block lowers the halo along one of its sides.

    Every visit has swept inwards from all four sides, so the weights are there.
    """
    plane = DISTANCE + (1 if transposed else 0)
    weights = kept + (FORWARD_TRANSPOSED if transposed else FORWARD)
    nothing = rules.unreached
    if forward:
        best = probe_forward(
            ws, rules.steps, at(plane, count), at(plane, count - 1), at(weights, count), nothing
        )
        if rules.reach == 2:
            row = count + 1
            best = min(best, _probe_far(ws, transposed, YES, row, (weights, row), row - 2, nothing))
        return best
    if not rules.symmetric:
        weights = kept + (BACKWARD_TRANSPOSED if transposed else BACKWARD)
    best = probe_backward(ws, rules.steps, at(plane, -1), at(plane, 0), at(weights, 0), nothing)
    if rules.reach == 2:
        row = np.int64(-2)
        best = min(best, _probe_far(ws, transposed, NO, row, (weights, row + 2), row + 2, nothing))
    return best


@compiled(single_call=True)
def _sweep_block(ws, scratch, top, height, width, kept, weighed, fresh, rules, tally):
    """Sweep a block to its fixpoint; which of its rows and columns were lowered or are fresh.

    Rows are swept first, then columns, which are the rows of the transposed plane. What begins with
    ``other`` is of the plane that is swept next.
    """
    place = (top + rules.reach, width, kept)
    one = np.int64(1)
    outer = (one << HALO) - 1
    transposed = np.int64(0)
    count, other_count = height, width
    inside, other_inside = ((one << height) - 1) << HALO, ((one << width) - 1) << HALO
    # dirty rows, from which sweeps go ahead and back
    ahead, back = outer, outer << (height + HALO)
    other_ahead, other_back = outer, outer << (width + HALO)
    changed = other_changed = np.int64(0)
    if fresh:
        changed, other_changed = inside, other_inside
        ahead |= inside
        back |= inside
        other_ahead |= other_inside
        other_back |= other_inside
    ready = other_ready = np.int64(-1 if weighed else 0)
    while ahead | back | other_ahead | other_back:
        # Both planes together make a set of four sweeps, counted at its beginning.
        tally[1] += 1 - transposed
        rows = lanes = again = np.int64(0)
        # The sweep back starts from the rows that the sweep ahead has lowered, too. Afterwards only
        # the rows that the sweep back itself has lowered have yet to be swept ahead from.
        for backward in range(2):
            dirty = back | rows if backward else ahead
            if dirty:
                again, more, ready, work = _sweep(
                    ws, transposed, backward, dirty, count, ready, scratch, rules, place
                )
                rows |= again
                lanes |= more
                tally[2] += work
        ahead, back = again, np.int64(0)
        if rows:
            transpose(ws, DISTANCE + transposed, DISTANCE + 1 - transposed, rows >> HALO, lanes)
            # Lowered lanes are lowered rows of the transposed plane, from which it has to sweep
            # both ways.
            lanes = (lanes << HALO) & other_inside
            changed |= rows
            other_changed |= lanes
            other_ahead |= lanes
            other_back |= lanes
        transposed = 1 - transposed
        count, other_count = other_count, count
        inside, other_inside = other_inside, inside
        ahead, other_ahead = other_ahead, ahead
        back, other_back = other_back, back
        ready, other_ready = other_ready, ready
        changed, other_changed = other_changed, changed
    if transposed:
        return other_changed, changed
    return changed, other_changed


@compiled
def _probe_border(ws, changed_rows, changed_columns, height, width, kept, rules, keys):
    """Set keys[0:8] to the least values that can lower cells of the blocks around this one."""
    keys[:] = rules.unreached
    reach = rules.reach
    edge_rows = (np.int64(1) << reach) - 1
    if changed_rows & (edge_rows << HALO):
        keys[NORTH_WEST] = _probe_corner(ws, NO, NO, height, width, kept, rules)
        keys[NORTH_EAST] = _probe_corner(ws, NO, YES, height, width, kept, rules)
        # The corners come first, because their distances are overwritten to exclude them from the
        # side.
        _spare_corner(ws, -reach, width, reach)
        keys[NORTH] = _probe_side(ws, NO, NO, height, kept, rules)
    if changed_rows & (edge_rows << (HALO + height - reach)):
        keys[SOUTH_WEST] = _probe_corner(ws, YES, NO, height, width, kept, rules)
        keys[SOUTH_EAST] = _probe_corner(ws, YES, YES, height, width, kept, rules)
        _spare_corner(ws, height, width, reach)
        keys[SOUTH] = _probe_side(ws, NO, YES, height, kept, rules)
    if changed_columns & (edge_rows << HALO):
        keys[WEST] = _probe_side(ws, YES, NO, width, kept, rules)
    if changed_columns & (edge_rows << (HALO + width - reach)):
        keys[EAST] = _probe_side(ws, YES, YES, width, kept, rules)


@compiled(single_call=True)
def solve_block(workspace, number, rasters, box, fresh, rules, keys, tally):
    """Solve a block to its fixed point; keys[0:8] are the least values for the blocks around it.

    number : of the block, and of where its weights are kept. rasters : padded distances, friction
    and elevation of the tile. box : top, left, height and width of the block in it. fresh : whether
    cells were lowered before. tally : as in RelaxStats, from visits on.

    Returns which of the block's own rows and lanes changed, as masks.
    """
    ws, scratch, weighed = borrowed(workspace)
    rules = borrowed(rules)
    dist, friction, elevation = borrowed(rasters)
    top, left, height, width = box
    reach = rules.reach
    block, place = number
    whole = not is_quick(rules)
    _load(ws, np.int64(DISTANCE), dist, top, left, height, width, reach, rules.unreached)
    # Where weights are kept, the costs are not needed again. Quick rules keep no weights: their one
    # place says whose costs were loaded last.
    if weighed[place] != block:
        # of a block that has been visited before, a few rows are swept as a rule
        seen = ws[at(DISTANCE, height >> 1) + (width >> 1)] < rules.unreached
        if whole and seen and reach == 1:
            whole = False
            place = weighed.size - 1
        else:
            weighed[place] = block
        if rules.has_friction:
            _load(
                *(ws, np.int64(FRICTION_PLANE), friction),
                *(top, left, height, width, reach, rules.barrier),
            )
        if rules.has_elevation:
            _load(
                *(ws, np.int64(ELEVATION), elevation),
                *(top, left, height, width, reach, rules.barrier),
            )
        if rules.further:
            by_model = rules.by_step, rules.by_row
            _load_further(ws, dist.shape, box, rules, *by_model, rules.extra)
        if not rules.uniform:
            fill_lengths(ws, YES, top + reach, rules)
        if whole:
            weigh_block(ws, top + reach, height, width, place * WEIGHT_PLANES, scratch, rules)
    kept = place * WEIGHT_PLANES
    swept = _sweep_block(ws, scratch, top, height, width, kept, whole, fresh, rules, tally)
    settled, found, rows, columns = _store(
        ws, dist, top + reach, left + reach, width, swept[0], reach, rules.limit, rules.unreached
    )
    tally[3] += settled
    tally[4] += found
    if fresh:
        # Seeds were in the distances before the block was loaded, so `_store` did not see them
        # fall.
        rows, columns = swept
    _probe_border(ws, rows, columns, height, width, kept, rules, keys)
    return rows, columns
