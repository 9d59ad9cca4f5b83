"""Shortest paths in one tile, to their fixpoint, from whatever its border has learned.

*Method.* The tile is cut into blocks; a heap keeps the least value by which something outside a
block can still lower a cell in it. The block with the least key is copied into cache and brought
to its own fixpoint by sweeps, each of which carries values down, up, right or left across the whole
block, a row at a time in vector registers (relax_lanes.py); for right and left the block is
transposed. Only rows behind a lowered row are swept again, so a wave in a narrow corridor and a
second visit for one better corner are cheap. Then the values on the block's border are held
against what the neighbours know, and give them new keys. Heap empty = fixpoint: nothing is capped.
Sweeps: Zhao, "A fast sweeping method for Eikonal equations", doi:10.1090/S0025-5718-04-01678-3;
blocks with a heap: Chacon and Vladimirsky, doi:10.1137/120866117.

*Why it is exact and deterministic.* Costs are not negative and rounding is monotone, so the least
left-to-right sum over all paths is a fixpoint that every order of lowering reaches, and each value
ever held is the sum along a real path. Blocks, bounds and tiles only change the order.

*Arrays.* ``dist`` and the rasters are padded by a halo of 1 cell (2 for 16 neighbours) that mirrors
neighbouring tiles: last known distances (or unreached), and costs (barrier outside the grid).
Offsets in the workspace are below 2**17; a tile may have any number of cells that fits memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import uint64

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.edge_costs import (
    BACKWARD,
    BACKWARD_TWIN,
    BY_FRICTION,
    DISTANCE,
    ELEVATION,
    FORWARD,
    FORWARD_TWIN,
    FRICTION_PLANE,
    LENGTHS,
    PLANES,
    STEP_DX,
    STEP_DY,
    CostModel,
    Rules,
    cost_rules,
    edge,
    edge_lengths,
    fill_lengths,
    weigh_rows,
)
from orograph.kernels.relax.lanes import (
    HALO,
    LANES,
    PLANE,
    STEPS,
    STRIDE,
    address,
    at,
    highest_bit,
    lower_backward,
    lower_forward,
    lowest_bit,
    probe_backward,
    probe_forward,
    transpose,
)

Array = npt.NDArray[Any]
NORTH, SOUTH, WEST, EAST, NORTH_WEST, NORTH_EAST, SOUTH_WEST, SOUTH_EAST = range(8)
_BY = np.array([-1, 1, 0, 0, -1, -1, 1, 1])
_BX = np.array([0, 0, -1, 1, -1, 1, -1, 1])
_MOVES = np.array(
    [(0, 1), (0, -1)] + [(s * dy, -s * dx) for dy, dx in STEPS[16] for s in (1, -1)], np.int64
)


@compiled
def _workspace(like, rules):
    """The planes of one block, at a cache line; distances unreached."""
    buffer = np.empty(PLANES * PLANE + STRIDE + 64, like.dtype)
    start = (-address(buffer) % 64) // buffer.itemsize
    ws = buffer[start : start + PLANES * PLANE + STRIDE]
    ws[: 2 * PLANE] = rules.unreached
    # edges off the ends of a row are read, not weighed: whatever is added to infinity lowers
    # nothing, but whole numbers need a barrier there
    ws[2 * PLANE : (PLANES if rules.integer else LENGTHS) * PLANE] = rules.barrier
    if rules.uniform:
        fill_lengths(ws, False, 0, rules)
        fill_lengths(ws, True, 0, rules)
    return ws


@compiled
def _load(ws, plane, raster, top, left, height, width, reach, nothing):
    """Copy a block and its halo into a plane and its twin; ``nothing`` where neither is.

    The halo's corners go into the plane, not the twin: each edge into the block needs to be in one.
    A block of fewer than LANES rows or columns has its halo where transposing passes, so distances
    have it in both. Only the block's own cells must be lowered: so the costs beyond the last column
    in the plane and beyond the last row in the twin are ``nothing``; a knight's move past a corner
    needs the former, and `weigh_rows` bars the edges instead.
    """
    for i in range(-reach, height + reach):
        y = top + reach + i
        start = at(plane, i)
        for x in range(reach):
            ws[start - 1 - x] = nothing
            ws[start + LANES + x] = nothing
        for x in range(width, LANES):
            ws[start + x] = nothing
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
    transpose(ws, plane, plane + 1, -1, -1)
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


@compiled
def _sweep(ws, twin, forward, dirty, count, ready, mean, rules, place):
    """Carry values from the dirty rows across the block.

    Returns the rows lowered (as a mask, bit HALO is row 0), the lanes lowered, the rows whose
    weights are ready, and the number of rows worked on.
    """
    plane = DISTANCE + (1 if twin else 0)
    weights = FORWARD_TWIN if twin else FORWARD
    if not (forward or rules.symmetric):
        weights = BACKWARD_TWIN if twin else BACKWARD
    inside = ((np.int64(1) << count) - 1) << HALO
    rows = np.int64(0)
    lanes = np.int64(0)
    work = 0
    pending = dirty << 1 if forward else dirty >> 1
    if rules.reach == 2:
        pending |= dirty << 2 if forward else dirty >> 2
    pending &= inside
    while pending:
        if forward:
            row = lowest_bit(pending) - HALO
            if not (ready >> (row + HALO)) & 1:
                ready = weigh_rows(ws, twin, row, count, ready, place, mean, rules)
            lowered = lower_forward(
                ws,
                rules.steps,
                at(plane, row),
                at(plane, row - 1),
                at(weights, row),
                rules.unreached,
            )
        else:
            row = highest_bit(pending) - HALO
            for q in range(1, rules.reach + 1):
                if not (ready >> (row + q + HALO)) & 1:
                    ready = weigh_rows(ws, twin, row + q, count, ready, place, mean, rules)
            lowered = lower_backward(
                ws,
                rules.steps,
                at(plane, row),
                at(plane, row + 1),
                at(weights, row + 1),
                rules.unreached,
            )
        bit = np.int64(1) << (row + HALO)
        pending ^= bit
        work += 1
        if lowered:
            rows |= bit
            lanes |= lowered
            next_rows = bit << 1 if forward else bit >> 1
            if rules.reach == 2:
                next_rows |= bit << 2 if forward else bit >> 2
            pending |= next_rows & inside
    return rows, lanes, ready, work


@compiled
def _probe_far(ws, twin, forward, target, edge_row, source, nothing):
    """The least value by which a row lowers one two rows away (knight's moves alone)."""
    plane = DISTANCE + (1 if twin else 0)
    best = nothing
    for k in range(5, 7):
        weights = at(edge_row[0] + k, edge_row[1])
        for x in range(LANES):
            # kept at the later row, whose lane is x when going forward
            other = x + (STEP_DX[k] if forward else -STEP_DX[k])
            if 0 <= other < LANES:
                value = ws[at(plane, source) + other] + ws[weights + (x if forward else other)]
                if value < ws[at(plane, target) + x] and value < best:
                    best = value
    return best


@compiled
def _probe_corner(ws, south, east, height, width, rules):
    """The least value by which the block lowers the halo beyond one of its corners."""
    weights = FORWARD
    if not (south or rules.symmetric):
        weights = BACKWARD
    best = rules.unreached
    for ty in range(rules.reach):
        row = height + ty if south else -1 - ty
        for tx in range(rules.reach):
            lane = width + tx if east else -1 - tx
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
    """Keep what lies beyond the last column of a narrow block out of `_probe_side`."""
    for row in range(first, first + reach):
        start = at(DISTANCE, row)
        ws[start + width : start + LANES] = 0


@compiled
def _probe_side(ws, twin, forward, count, rules):
    """The least value by which the block lowers the halo along one of its sides.

    Every visit has swept inwards from all four sides, so the weights are there.
    """
    plane = DISTANCE + (1 if twin else 0)
    weights = FORWARD_TWIN if twin else FORWARD
    nothing = rules.unreached
    if forward:
        best = probe_forward(
            ws, rules.steps, at(plane, count), at(plane, count - 1), at(weights, count), nothing
        )
        if rules.reach == 2:
            row = count + 1
            best = min(best, _probe_far(ws, twin, True, row, (weights, row), row - 2, nothing))
        return best
    if not rules.symmetric:
        weights = BACKWARD_TWIN if twin else BACKWARD
    best = probe_backward(ws, rules.steps, at(plane, -1), at(plane, 0), at(weights, 0), nothing)
    if rules.reach == 2:
        best = min(best, _probe_far(ws, twin, False, -2, (weights, 0), 0, nothing))
    return best


@compiled
def _visit(
    ws, mean, dist, friction, elevation, top, left, height, width, fresh, rules, keys, tally
):
    """Bring a block to its fixpoint; keys[0:8]: by what that can lower the blocks around it.

    Returns which of the block's own rows and lanes changed, as masks.
    """
    reach = rules.reach
    _load(ws, DISTANCE, dist, top, left, height, width, reach, rules.unreached)
    if rules.has_friction:
        _load(ws, FRICTION_PLANE, friction, top, left, height, width, reach, rules.barrier)
    if rules.has_elevation:
        _load(ws, ELEVATION, elevation, top, left, height, width, reach, rules.barrier)
    if not rules.uniform:
        fill_lengths(ws, True, top + reach, rules)
    place = (top + reach, width)
    one = np.int64(1)
    all_rows = ((one << height) - 1) << HALO
    all_columns = ((one << width) - 1) << HALO
    outer = (one << HALO) - 1
    down, up = outer, outer << (height + HALO)
    rightward, leftward = outer, outer << (width + HALO)
    changed_rows = np.int64(0)
    changed_columns = np.int64(0)
    if fresh:
        changed_rows, changed_columns = all_rows, all_columns
        down |= all_rows
        up |= all_rows
        rightward |= all_columns
        leftward |= all_columns
    ready = np.int64(0)
    ready_twin = np.int64(0)
    while down | up | rightward | leftward:
        tally[1] += 1
        rows = np.int64(0)
        columns = np.int64(0)
        if down:
            r, c, ready, work = _sweep(ws, False, True, down, height, ready, mean, rules, place)
            down = np.int64(0)
            up |= r
            rows |= r
            columns |= c
            tally[2] += work
        if up:
            r, c, ready, work = _sweep(ws, False, False, up, height, ready, mean, rules, place)
            up = np.int64(0)
            down = r
            rows |= r
            columns |= c
            tally[2] += work
        if rows:
            transpose(ws, DISTANCE, DISTANCE + 1, rows >> HALO, columns)
            columns = (columns << HALO) & all_columns
            changed_rows |= rows
            changed_columns |= columns
            rightward |= columns
            leftward |= columns
        rows = np.int64(0)
        columns = np.int64(0)
        if rightward:
            c, r, ready_twin, work = _sweep(
                ws, True, True, rightward, width, ready_twin, mean, rules, place
            )
            rightward = np.int64(0)
            leftward |= c
            columns |= c
            rows |= r
            tally[2] += work
        if leftward:
            c, r, ready_twin, work = _sweep(
                ws, True, False, leftward, width, ready_twin, mean, rules, place
            )
            leftward = np.int64(0)
            rightward = c
            columns |= c
            rows |= r
            tally[2] += work
        if columns:
            transpose(ws, DISTANCE + 1, DISTANCE, columns >> HALO, rows)
            rows = (rows << HALO) & all_rows
            changed_rows |= rows
            changed_columns |= columns
            down |= rows
            up |= rows
    settled, found, rows, columns = _store(
        ws,
        dist,
        top + reach,
        left + reach,
        width,
        changed_rows,
        reach,
        rules.limit,
        rules.unreached,
    )
    tally[3] += settled
    tally[4] += found
    if not fresh:
        changed_rows, changed_columns = rows, columns

    keys[:] = rules.unreached
    edge_rows = (one << reach) - 1
    if changed_rows & (edge_rows << HALO):
        keys[NORTH_WEST] = _probe_corner(ws, False, False, height, width, rules)
        keys[NORTH_EAST] = _probe_corner(ws, False, True, height, width, rules)
        _spare_corner(ws, -reach, width, reach)
        keys[NORTH] = _probe_side(ws, False, False, height, rules)
    if changed_rows & (edge_rows << (HALO + height - reach)):
        keys[SOUTH_WEST] = _probe_corner(ws, True, False, height, width, rules)
        keys[SOUTH_EAST] = _probe_corner(ws, True, True, height, width, rules)
        _spare_corner(ws, height, width, reach)
        keys[SOUTH] = _probe_side(ws, False, True, height, rules)
    if changed_columns & (edge_rows << HALO):
        keys[WEST] = _probe_side(ws, True, False, width, rules)
    if changed_columns & (edge_rows << (HALO + width - reach)):
        keys[EAST] = _probe_side(ws, True, True, width, rules)
    return changed_rows, changed_columns


@compiled
def _sift_up(heap, place, keys, i):
    block = heap[i]
    key = keys[block]
    while i > 0:
        parent = (i - 1) >> 1
        other = heap[parent]
        if keys[other] <= key:
            break
        heap[i] = other
        place[other] = i
        i = parent
    heap[i] = block
    place[block] = i


@compiled
def _pop(heap, place, keys, size):
    """Remove the block with the least key from a heap of ``size`` blocks."""
    top = heap[0]
    place[top] = -1
    last = heap[size - 1]
    size -= 1
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and keys[heap[child + 1]] < keys[heap[child]]:
            child += 1
        if keys[heap[child]] >= keys[last]:
            break
        heap[i] = heap[child]
        place[heap[i]] = i
        i = child
    if size:
        heap[i] = last
        place[last] = i
    return top


@compiled
def _relax(dist, friction, elevation, keys, fresh, block, rules, bound):
    """Visit blocks, least key first, until none is below the bound; tally of what was done."""
    rows, columns = keys.shape
    height = dist.shape[0] - 2 * rules.reach
    width = dist.shape[1] - 2 * rules.reach
    key = keys.reshape(-1)
    new_block = fresh.reshape(-1)
    heap = np.empty(key.size, np.int64)
    place = np.full(key.size, -1, np.int64)
    size = 0
    for b in range(key.size):
        if key[b] < bound:
            heap[size] = b
            _sift_up(heap, place, key, size)
            size += 1
    tally = np.zeros(6, np.int64)  # as in RelaxStats, from visits on
    if size == 0:
        return tally
    ws = _workspace(dist, rules)
    mean = np.empty(LANES)
    found = np.empty(8, dist.dtype)
    while size:
        b = _pop(heap, place, key, size)
        size -= 1
        key[b] = rules.unreached
        by = b // columns
        bx = b - by * columns
        top = by * block
        left = bx * block
        h = min(block, height - top)
        w = min(block, width - left)
        tally[0] += 1
        changed_rows, changed_columns = _visit(
            ws,
            mean,
            dist,
            friction,
            elevation,
            top,
            left,
            h,
            w,
            new_block[b],
            rules,
            found,
            tally,
        )
        new_block[b] = 0
        border = (np.int64(1) << rules.reach) - 1
        if top < rules.reach and changed_rows & (border << HALO):
            tally[5] |= 1 << NORTH
        if top + h > height - rules.reach and changed_rows >> (HALO + h - rules.reach):
            tally[5] |= 1 << SOUTH
        if left < rules.reach and changed_columns & (border << HALO):
            tally[5] |= 1 << WEST
        if left + w > width - rules.reach and changed_columns >> (HALO + w - rules.reach):
            tally[5] |= 1 << EAST
        for q in range(8):
            value = found[q]
            ny = by + _BY[q]
            nx = bx + _BX[q]
            if not (value <= rules.limit and value < rules.unreached):
                continue
            if not (0 <= ny < rows and 0 <= nx < columns):
                continue
            c = ny * columns + nx
            if value < key[c]:
                key[c] = value
                if value < bound:
                    if place[c] < 0:
                        place[c] = size
                        heap[size] = c
                        size += 1
                    _sift_up(heap, place, key, place[c])
    return tally


@compiled
def _seed(dist, keys, fresh, block, rows, columns, values, rules):
    for i in range(rows.size):
        value = values[i]
        y = rows[i] + rules.reach
        x = columns[i] + rules.reach
        if value < dist[y, x] and value <= rules.limit:
            dist[y, x] = value
            by = rows[i] // block
            bx = columns[i] // block
            fresh[by, bx] = 1
            keys[by, bx] = min(keys[by, bx], value)


@compiled
def _wake(dist, friction, elevation, keys, block, rules, sides):
    """Key the blocks that the halo beyond some sides can lower."""
    reach = rules.reach
    height = dist.shape[0] - 2 * reach
    width = dist.shape[1] - 2 * reach
    cost = np.empty(2, dist.dtype)
    for y in range(-reach, height + reach):
        row_side = 1 << NORTH if y < 0 else (1 << SOUTH if y >= height else 0)
        for i in range(width + 2 * reach if row_side else 2 * reach):
            x = i - reach if row_side or i < reach else width + i - reach
            side = row_side | (1 << WEST if x < 0 else (1 << EAST if x >= width else 0))
            if side & sides == 0:
                continue
            start = dist[y + reach, x + reach]
            if not start < rules.unreached:
                continue
            for m in range(2 * rules.steps + 2):
                dy = _MOVES[m, 0]
                dx = _MOVES[m, 1]
                inside = 0 <= y + dy < height and 0 <= x + dx < width
                if inside and start < dist[y + dy + reach, x + dx + reach]:
                    edge(friction, elevation, y + reach, x + reach, dy, dx, rules, cost)
                    cost[1] = start + cost[0]
                    value = cost[1]
                    if value < dist[y + dy + reach, x + dx + reach] and value <= rules.limit:
                        by = (y + dy) // block
                        bx = (x + dx) // block
                        keys[by, bx] = min(keys[by, bx], value)


class RelaxStats(NamedTuple):
    """What a call of `relax` did."""

    pending: float
    """Least value by which something can still improve; infinite at the fixpoint."""
    visits: int
    """Blocks visited."""
    sets: int
    """Sets of four sweeps."""
    rows: int
    """Rows (or columns) swept."""
    settled: int
    """Cells lowered, counted once a visit."""
    found: int
    """Of those, cells that held no value before."""
    sides: int
    """Sides whose border cells changed: bit 0 north, 1 south, 2 west, 3 east."""


@dataclass(slots=True)
class TileState:
    """A tile of a shortest-path problem: what must be kept between calls.

    Raises
    ------
    ValueError
        From `tile_state`, where shapes, dtypes or coefficients do not fit.
    """

    dist: Array
    """(h + 2 r, w + 2 r) float64, float32 or int64: distances; `unreached` where there is none."""
    keys: Array
    """(blocks down, blocks across), dist's dtype: least value that can lower a cell of a block."""
    fresh: npt.NDArray[np.uint8]
    """The same shape: 1 where cells were lowered by `seed` since the last visit."""
    friction: Array
    elevation: Array
    block: int
    rules: Rules

    @property
    def unreached(self) -> Any:
        """The distance of a cell that nothing has reached."""
        return self.rules.unreached

    @property
    def pending(self) -> float:
        """Least pending key; infinite where the tile is at rest."""
        least = self.keys.min()
        return float(least) if least < self.rules.unreached else math.inf


def tile_state(
    dist: Array,
    *,
    friction: Array | None = None,
    elevation: Array | None = None,
    lengths: npt.NDArray[Any] | None = None,
    model: CostModel = BY_FRICTION,
    connectivity: int = 8,
    max_cost: float = math.inf,
    block: int = LANES,
) -> TileState:
    """Set up a tile with every block at rest; `seed` and `wake` give it work.

    Parameters
    ----------
    dist : (h + 2 r, w + 2 r) float64, float32 or int64, C order
        Known distances, changed in place, with a halo of r cells: 1, or 2 for 16 neighbours.
        Unreached cells hold infinity (int64: ``BARRIER``, 2**60).
    friction, elevation : same shape and dtype
        What the model asks for, with the neighbours' values in the halo; ``tobler`` and ``walk``
        go without friction as well. NaN or infinity (int64: ``BARRIER``) is a barrier; friction is
        not negative.
    lengths : (5, h + 2 r), optional
        As `edge_lengths` gives it, whose default (cells of size 1) it takes. int64: whole numbers.
    model : CostModel
    connectivity : {8, 4, 16}
    max_cost : float
        Greatest distance of interest: cells farther away stay unreached.
    block : int
        Side of the blocks, r to 32 cells. Changes no value.

    Raises
    ------
    ValueError
        If shapes, dtypes, memory order or coefficients do not fit.
    """
    given = {"friction": friction, "elevation": elevation}
    rules = cost_rules(
        dist.dtype,
        edge_lengths(dist.shape[0]) if lengths is None else lengths,
        model,
        connectivity,
        max_cost,
        {name for name, raster in given.items() if raster is not None},
    )
    reach = rules.reach
    if dist.ndim != 2 or min(dist.shape) <= 2 * reach:
        raise ValueError(
            f"dist has shape {dist.shape}; needs at least one cell within a halo of {reach}"
        )
    if rules.factors.shape[1] != dist.shape[0]:
        raise ValueError(f"lengths has shape {rules.factors.shape}; must be {(5, dist.shape[0])}")
    if not reach <= block <= LANES:
        raise ValueError(f"block={block}; must be {reach} to {LANES}")
    arrays = {"dist": dist}
    for name, used in (("friction", rules.has_friction), ("elevation", rules.has_elevation)):
        raster = given[name]
        if raster is None or not used:
            arrays[name] = np.empty((0, 0), dist.dtype)
            continue
        if raster.shape != dist.shape or raster.dtype != dist.dtype:
            raise ValueError(
                f"{name} is {raster.dtype} of shape {raster.shape}; "
                f"must be as dist: {dist.dtype} of shape {dist.shape}"
            )
        arrays[name] = raster
    for name, array in arrays.items():
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} is not in C order; pass numpy.ascontiguousarray of it")
    inner = (dist.shape[0] - 2 * reach, dist.shape[1] - 2 * reach)
    blocks = (-(-inner[0] // block), -(-inner[1] // block))
    return TileState(
        dist=dist,
        keys=np.full(blocks, rules.unreached, dist.dtype),
        fresh=np.zeros(blocks, np.uint8),
        friction=arrays["friction"],
        elevation=arrays["elevation"],
        block=block,
        rules=rules,
    )


def seed(state: TileState, rows: Array, columns: Array, values: Array | float = 0.0) -> None:
    """Lower cells to given values: the sources, with their initial costs.

    Parameters
    ----------
    state : TileState
    rows, columns : (k,) integers
        Cells, counted from the tile's first cell (the halo is not counted).
    values : (k,) or a number
        Not negative. Values above what a cell holds, or above ``max_cost``, change nothing.

    Raises
    ------
    ValueError
        If a cell lies outside the tile or a value is negative or NaN.
    """
    rows, columns, values = checked_seeds(state, rows, columns, values)
    _seed(state.dist, state.keys, state.fresh, state.block, rows, columns, values, state.rules)


def checked_seeds(
    state: TileState, rows: Array, columns: Array, values: Array | float
) -> tuple[Array, Array, Array]:
    """Arguments of `seed` as arrays of one length; raises what it says."""
    rows, columns = np.atleast_1d(rows).astype(np.int64), np.atleast_1d(columns).astype(np.int64)
    values = np.broadcast_to(np.asarray(values, state.dist.dtype), rows.shape) + 0
    height, width = (n - 2 * state.rules.reach for n in state.dist.shape)
    outside = (rows < 0) | (rows >= height) | (columns < 0) | (columns >= width)
    if outside.any():
        i = int(outside.argmax())
        raise ValueError(
            f"source {i} at ({rows[i]}, {columns[i]}) lies outside the tile of {height} x {width}"
        )
    if not (values >= 0).all():
        i = int((~(values >= 0)).argmax())
        raise ValueError(f"source {i} starts at {values[i]}; must be 0 or more")
    return rows, columns, values


def wake(state: TileState, sides: int = 15) -> float:
    """Key the blocks that the halo can improve, after the caller has lowered values in it.

    Parameters
    ----------
    state : TileState
    sides : int
        Sides beyond which the halo was lowered: bit 0 north, 1 south, 2 west, 3 east. A corner of
        the halo belongs to both sides.

    Returns
    -------
    float
        Least pending key of the tile; infinite where it is at rest.
    """
    _wake(state.dist, state.friction, state.elevation, state.keys, state.block, state.rules, sides)
    return state.pending


def relax(state: TileState, bound: float = math.inf) -> RelaxStats:
    """Work on the tile until nothing below a bound can improve in it.

    Blocks are visited least key first, and each is brought to its own fixpoint, so some cells hold
    values above the bound already: sums along real paths, not yet the least. Values below
    ``min(bound, pending)`` are final as far as this tile knows.

    Parameters
    ----------
    state : TileState
        Changed in place.
    bound : float
        Blocks with a key below it are visited; infinity: to the fixpoint. A bound of
        ``pending + delta`` gets nowhere where ``delta`` is lost in rounding: take at least
        ``math.nextafter(pending, math.inf)``.

    Returns
    -------
    RelaxStats
    """
    limit = state.rules.unreached
    if bound < limit:
        limit = state.dist.dtype.type(math.ceil(bound) if state.rules.integer else bound)
        if float(limit) < bound:  # rounded down, maybe to the least key itself
            limit = np.nextafter(limit, state.rules.unreached)
    tally = _relax(
        state.dist,
        state.friction,
        state.elevation,
        state.keys,
        state.fresh,
        state.block,
        state.rules,
        limit,
    )
    return RelaxStats(state.pending, *(int(n) for n in tally))
