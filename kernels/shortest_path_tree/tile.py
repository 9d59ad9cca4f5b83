"""Allocation and back directions from final distances.

An edge u -> v is *tight* if ``dist[u] + cost(u, v)`` is ``dist[v]`` to the bit. Along tight edges
every cell takes the least pair (label, hops): the smaller source label wins, and of the ways from
that source the one of fewest steps. A step always adds a hop, so the pairs of a cell and of the
one it came from differ, and following them back ends at a source, on flat ground of cost zero too,
where "any neighbour that fits" can go round in circles.

A pair is one number (`orograph.kernels.shortest_path_tree.pair_code`): a step adds 1, and less is
less.

*Method.* `tight_steps` marks the tight edges, each weighed once, a row of cells at a time. Those
along which the distance grows cannot go in circles: `resolve_labels` gives each cell the least pair
of the cells before it, once these have theirs. It walks back until it meets cells that have, and so
keeps to cells that lie together. What is left are steps of no cost, and pairs that come later from
other tiles or along links: then `spread_labels` has cells whose pairs are new pass them on in the
order of pairs, from two queues that are in that order: the cells given, sorted, and the cells
lowered, first in, first out, since a step adds one hop. So a cell is lowered at most once a call.
Where most steps cost nothing, it is left to carry all of them.
The least fixpoint is unique: tiles and their order do not change it. Serial. The edge costs are
those of `orograph.kernels.relax.tile`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.border import halo_strips
from orograph.kernels.relax.models import (
    DIAGONAL,
    EAST_WEST,
    NORTH_SOUTH,
    TWO_COLUMNS,
    TWO_ROWS,
)
from orograph.kernels.relax.row_costs import ROW_SCRATCH, add_extra, weigh_edges
from orograph.kernels.relax.tile import TileState
from orograph.kernels.shortest_path_tree.pair_code import NOBODY, PairCode
from orograph.kernels.vectors.lanes import MOVES, STEP_DX, STEP_DY, lowest_bit, prefetch_line
from orograph.tiles.arrays import Integers
from orograph.tiles.grid.orientation import Orientation

NO_DIRECTION = 255
BY_LINK = 17
AHEAD = 16  # cells of the queue whose surroundings are on their way into the cache

# Esri's codes where north is up: 1 east, then clockwise; knight's moves 9 to 16, clockwise from
# east-south-east
CODES = {
    (0, 1): 1, (1, 1): 2, (1, 0): 3, (1, -1): 4, (0, -1): 5, (-1, -1): 6, (-1, 0): 7, (-1, 1): 8,
    (1, 2): 9, (2, 1): 10, (2, -1): 11, (1, -2): 12,
    (-1, -2): 13, (-2, -1): 14, (-2, 1): 15, (-1, 2): 16,
}  # fmt: skip

# Of an edge to the west, and of those to the rows before: a row of the length table
_KIND = np.array(
    [EAST_WEST, NORTH_SOUTH, DIAGONAL, DIAGONAL, TWO_COLUMNS, TWO_COLUMNS, TWO_ROWS, TWO_ROWS]
)
# The steps from a cell by the directions of their codes, and for each step the bit of the direction
# that leads back
_BY_CODE = np.argsort([CODES[int(dy), int(dx)] for dy, dx in MOVES])
_BIT = np.array([CODES[int(-dy), int(-dx)] - 1 for dy, dx in MOVES])
ARRIVING = 0xFFFF  # bit q: a step arrives from where code number q leads
LEVEL, RESOLVED = 1 << 16, 1 << 17  # one of them costs nothing; the cell's pair is known


@compiled
def _mark(dist, friction, elevation, rules, steps):
    """Set the bit of each step that attains the distance of the cell where it arrives."""
    height, width = dist.shape
    f = friction.reshape(-1)
    z = elevation.reshape(-1)
    costs = np.empty((2, width), dist.dtype)
    scratch = np.empty(ROW_SCRATCH * width)
    length = np.empty(width, dist.dtype)
    after = z.size
    if rules.further:
        further = rules.coefficients[-rules.further * dist.size :]
        z = np.concatenate((z, further.astype(dist.dtype)))
    for y in range(height):
        for edge in range(rules.steps + 1):
            # to the cell itself (v) from one to the west, or in a row before (u)
            dy = STEP_DY[edge - 1] if edge else 0
            dx = STEP_DX[edge - 1] if edge else -1
            if y < dy:
                continue
            length[:] = rules.factors[_KIND[edge], y]
            left = max(0, -dx)
            count = width - abs(dx)
            ahead, back = costs[0, :count], costs[0 if rules.symmetric else 1, :count]
            there, here = (back, ahead) if rules.reverse else (ahead, back)
            at = y * width + left
            weigh_edges(
                *(there, here, f, at, z, at, after + at, dist.size, width, dy, dx),
                *(length[:count], scratch, rules, rules.by_step, rules.by_row),
            )
            crossed = after + at + (rules.further - 1) * dist.size
            along = length[:count]
            add_extra(there, here, z, at, crossed, width, dy, dx, along, rules, rules.extra)
            v = dist[y, left : left + count]
            u = dist[y - dy, left + dx : left + dx + count]
            into_u = steps[y - dy, left + dx : left + dx + count]
            into_v = steps[y, left : left + count]
            _mark_row(u, ahead, v, rules.unreached, np.uint32(1 << _BIT[2 * edge]), into_v)
            _mark_row(v, back, u, rules.unreached, np.uint32(1 << _BIT[2 * edge + 1]), into_u)


@compiled
def _mark_row(start, cost, end, unreached, bit, steps):
    level = np.uint32(bit | LEVEL)
    for x in range(steps.size):
        u = start[x]
        v = end[x]
        before = steps[x]
        tight = u + cost[x] == v and v < unreached
        # chosen, not branched to: in vectors
        more = np.uint32(before | (level if u == v else bit))
        steps[x] = more if tight else before


@compiled
def _resolve(dist, reach, steps, pairs, changed, start, stack):
    """Give each cell the least pair of its predecessors; return how many improved, and have one.

    Row ``start`` comes first, so that ways back are short. Cells that are to pass their pairs on
    along steps of no cost are marked as changed.
    """
    height, width = dist.shape
    step_of = steps.reshape(-1)
    dist_of = dist.reshape(-1)
    pair_of = pairs.reshape(-1)
    change_of = changed.reshape(-1)
    offset = np.empty(_BY_CODE.size, np.int64)
    for q in range(_BY_CODE.size):
        offset[q] = MOVES[_BY_CODE[q], 0] * width + MOVES[_BY_CODE[q], 1]
    improved = 0
    reached = 0
    level = False
    for row in range(reach, height - reach):
        # rows from the first down, then those above it, up
        y = row + start - reach
        if y >= height - reach:
            y = height - 1 - row
        for x in range(reach, width - reach):
            cell = y * width + x
            if np.int64(step_of[cell]) & RESOLVED:
                continue
            stack[0] = cell
            top = 0
            while top >= 0:
                cell = stack[top]
                word = np.int64(step_of[cell])
                if word & RESOLVED:
                    top -= 1
                    continue
                level |= word & LEVEL != 0
                own = pair_of[cell]
                least = own
                ways = word & ARRIVING
                while ways:
                    other = cell + offset[lowest_bit(ways)]
                    # A step that costs nothing could lead round in a circle: it is left to
                    # `spread_labels`.
                    if word & LEVEL and not dist_of[other] < dist_of[cell]:
                        ways &= ways - 1
                        continue
                    # Depth first: that cell is resolved before this one is looked at again.
                    if not np.int64(step_of[other]) & RESOLVED:
                        break
                    ways &= ways - 1
                    least = min(least, pair_of[other] + 1)
                if ways:
                    top += 1
                    stack[top] = other
                    continue
                top -= 1
                step_of[cell] = np.uint32(word | RESOLVED)
                reached += least != NOBODY
                if least < own:
                    pair_of[cell] = least
                    improved += 1
                # and those that wait for it alone
                while top >= 0:
                    cell = stack[top]
                    word = np.int64(step_of[cell])
                    ways = word & ARRIVING
                    # It has another predecessor, or a step that costs nothing: back to the general
                    # case.
                    if word & LEVEL or ways & (ways - 1):
                        break
                    top -= 1
                    step_of[cell] = np.uint32(word | RESOLVED)
                    own = pair_of[cell]
                    least = min(least + 1, own)
                    if least < own:
                        pair_of[cell] = least
                        improved += 1
                    reached += least != NOBODY
    if not level:
        return improved, reached
    for y in range(reach, height - reach):
        for x in range(reach, width - reach):
            cell = y * width + x
            ways = np.int64(step_of[cell])
            ways = ways & ARRIVING if ways & LEVEL else 0
            while ways:
                other = cell + offset[lowest_bit(ways)]
                ways &= ways - 1
                # The pair of ``other`` would improve the cell along a step of no cost.
                if pair_of[other] + 1 < pair_of[cell]:
                    change_of[other] = True
    return improved, reached


@compiled
def _mostly_level(steps):
    """Return whether steps of no cost arrive in most cells in which any do, by some rows."""
    level = 0
    cells = 0
    for y in range(8, steps.shape[0], 16):
        for x in range(steps.shape[1]):
            cells += steps[y, x] != 0
            level += (np.int64(steps[y, x]) & LEVEL) != 0
    return 2 * level > cells


@compiled
def _spread(steps, reach, pairs, cells, queue):
    """Carry pairs along tight edges until nothing changes; the number of cells improved."""
    height, width = steps.shape
    step_of = steps.reshape(-1)
    pair_of = pairs.reshape(-1)
    count = 8 if reach == 1 else 16
    offset = np.empty(count, np.int64)
    for m in range(count):
        offset[m] = MOVES[m, 0] * width + MOVES[m, 1]
    given = 0
    head = 0
    tail = 0
    while given < cells.size or head < tail:
        # Both lists are in the order of pairs: the lesser of their first entries is next.
        take = head == tail
        if not take and given < cells.size:
            take = pair_of[cells[given]] < pair_of[queue[head]]
        if take:
            cell = cells[given]
            given += 1
        else:
            cell = queue[head]
            head += 1
            if head + AHEAD < tail:
                # cells of a front are far from one another in memory
                next_cell = queue[head + AHEAD]
                for row in range(-1, 2):
                    prefetch_line(step_of, next_cell + row * width)
                    prefetch_line(pair_of, next_cell + row * width)
        pair = pair_of[cell] + 1
        if not take:
            # no step arrives in the halo; which cells are lowered, no branch could foretell
            lower = 0
            for m in range(count):
                other = cell + offset[m]
                on = (np.int64(step_of[other]) >> _BIT[m]) & (pair < pair_of[other])
                lower |= on << m
            while lower:
                other = cell + offset[lowest_bit(lower)]
                lower &= lower - 1
                pair_of[other] = pair
                queue[tail] = other
                tail += 1
            continue
        y = cell // width
        x = cell - y * width
        for m in range(count):
            v = y + MOVES[m, 0]
            u = x + MOVES[m, 1]
            # Cells that are given may lie in the halo, where steps could lead off the array.
            if v < reach or v >= height - reach or u < reach or u >= width - reach:
                continue
            other = v * width + u
            if not (np.int64(step_of[other]) >> _BIT[m]) & 1:
                continue
            if pair < pair_of[other]:
                pair_of[other] = pair
                queue[tail] = other
                tail += 1
    return tail


@compiled
def _directions(steps, reach, pairs, bits, linked, order, codes):
    """Set the least back direction code of each reached cell; sources get 0.

    ``order`` has the compass direction of each direction by rows and columns.
    """
    height, width = codes.shape
    stride = steps.shape[1]
    step_of = steps.reshape(-1)
    pair_of = pairs.reshape(-1)
    count = 8 if reach == 1 else 16
    offset = np.empty(count, np.int64)
    for q in range(count):
        offset[q] = MOVES[_BY_CODE[q], 0] * stride + MOVES[_BY_CODE[q], 1]
    for y in range(height):
        for x in range(width):
            cell = (y + reach) * stride + x + reach
            pair = pair_of[cell]
            # A source has its own label, and 0 hops.
            first = pair & ((np.int64(1) << bits) - 1) == 0 and pair != NOBODY
            code = 0 if first else NO_DIRECTION
            ways = np.int64(step_of[cell]) & ARRIVING
            if first or pair == NOBODY:
                ways = np.int64(0)
            elif ways and not (linked or ways & (ways - 1)):
                code = order[lowest_bit(ways)] + 1  # there is no other
                ways = np.int64(0)
            if ways:
                # the cell that a step came from lies where the step back leads to
                fit = 0
                for q in range(count):
                    fit |= np.int64(pair_of[cell + offset[q]] == pair - 1) << q
                # Of the steps that attain the distance, those that attain the pair as well.
                ways &= fit
                while ways:
                    code = min(code, order[lowest_bit(ways)] + 1)
                    ways &= ways - 1
            codes[y, x] = code


@compiled
def _put_labels(pairs, reach, bits, known, nobody):
    """Replace pairs by their labels."""
    height, width = pairs.shape
    for y in range(reach, height - reach):
        for x in range(reach, width - reach):
            pair = pairs[y, x]
            pairs[y, x] = nobody if pair == NOBODY else known[pair >> bits]


def tight_steps(state: TileState) -> npt.NDArray[np.uint32]:
    """Return for each cell the steps that attain its distance, by where they come from.

    Parameters
    ----------
    state : TileState
        A tile whose distances, those of the halo too, are final.

    Returns
    -------
    (h + 2 r, w + 2 r) uint32
        Bit q: a step arrives from where Esri's code q + 1 leads (see `CODES`); ``LEVEL``: one of
        them costs nothing, or too little to tell. 0 in the halo: that is the neighbours' business.
    """
    steps = np.zeros(state.dist.shape, np.uint32)
    _mark(state.dist, state.friction, state.elevation, state.rules, steps)
    for part in halo_strips(steps, state.rules.reach):
        part[...] = 0
    return steps


def resolve_labels(
    dist: npt.NDArray[Any],
    steps: npt.NDArray[np.uint32],
    reach: int,
    pairs: Integers,
    changed: npt.NDArray[np.bool_],
) -> tuple[int, int]:
    """Bring a tile's pairs (label, hops) to their fixpoint along steps that cost something, once.

    Nothing is done where most steps cost nothing: `spread_labels` would do all of it again.

    Parameters
    ----------
    dist : (h + 2 r, w + 2 r)
        The distances that `tight_steps` took.
    steps : (h + 2 r, w + 2 r) uint32
        What it returned. Changed in place: another call finds nothing to do.
    reach, pairs, changed
        As for `spread_labels`, except that cells that have to pass their pairs on along steps of no
        cost are True afterwards.

    Returns
    -------
    int, int
        How many cells were improved, and how many have a label.
    """
    if _mostly_level(steps):
        return 0, int(np.count_nonzero(pairs[reach:-reach, reach:-reach] < NOBODY))
    cells = np.flatnonzero(changed)
    changed.reshape(-1)[cells] = False
    start = reach
    if cells.size:
        nearest = cells[dist.reshape(-1)[cells].argmin()]
        start = min(max(int(nearest) // changed.shape[1], reach), changed.shape[0] - reach - 1)
    for part in halo_strips(steps, reach):
        part |= np.uint32(RESOLVED)  # its pairs are the neighbours' business
    stack = np.empty(changed.size, np.int64)
    improved, reached = _resolve(dist, reach, steps, pairs, changed, start, stack)
    return int(improved), int(reached)


def spread_labels(
    steps: npt.NDArray[np.uint32],
    reach: int,
    pairs: Integers,
    changed: npt.NDArray[np.bool_],
) -> int:
    """Bring a tile's pairs (label, hops) to their fixpoint.

    Parameters
    ----------
    steps : (h + 2 r, w + 2 r) uint32
        As `tight_steps` returns them.
    reach : int
        r.
    pairs : (h + 2 r, w + 2 r) int64
        The pairs known so far (`PairCode`); ``NOBODY`` where there is none. Changed in place.
    changed : (h + 2 r, w + 2 r) bool
        Cells (of the halo too) whose pairs are new; all False afterwards.

    Returns
    -------
    int
        How many cells were improved.
    """
    cells = np.flatnonzero(changed)
    changed.reshape(-1)[cells] = False
    cells = cells[np.argsort(pairs.reshape(-1)[cells], kind="stable")]
    queue = np.empty(changed.size, np.int64)
    return int(_spread(steps, reach, pairs, cells, queue))


def back_directions(
    steps: npt.NDArray[np.uint32],
    reach: int,
    pairs: Integers,
    code: PairCode,
    linked: bool,
    orientation: Orientation,
) -> npt.NDArray[np.uint8]:
    """Return the direction of the first step back to the source, for a tile that has converged.

    Parameters
    ----------
    steps, reach, pairs
        As `spread_labels` leaves them.
    code : PairCode
        That of the pairs.
    linked : bool
        Whether a pair may have come along a link, by no step.
    orientation : Orientation
        That of the grid; of several directions the least code counts.

    Returns
    -------
    (h, w) uint8
        Esri's codes: 0 source, 1 east, then clockwise to 8 north-east; with 16 neighbours 9
        (two cells east, one south), then clockwise to 16. ``NO_DIRECTION`` where nothing
        has reached.
    """
    codes = np.empty(tuple(n - 2 * reach for n in steps.shape), np.uint8)
    order = orientation.order(list(CODES))
    _directions(steps, reach, pairs, code.hop_bits, linked, order, codes)
    return codes


def labels_of(pairs: Integers, reach: int, code: PairCode, nobody: int) -> Integers:
    """Return the labels (h, w) of a converged tile, ``nobody`` where nothing has reached.

    They take the place of the pairs: new memory takes longer than what is put there.
    """
    _put_labels(pairs, reach, code.hop_bits, code.labels, nobody)
    return pairs[reach:-reach, reach:-reach]


__all__: list[Any] = [
    "BY_LINK",
    "CODES",
    "NOBODY",
    "NO_DIRECTION",
    "back_directions",
    "labels_of",
    "resolve_labels",
    "spread_labels",
    "tight_steps",
]
