"""Who serves each cell, and by which way: allocation and back directions of solved distances.

An edge u -> v is *tight* if ``dist[u] + cost(u, v)`` is ``dist[v]`` to the bit. Along tight edges
every cell takes the least pair (label, hops): the smaller source label wins, and of the ways from
that source the one of fewest steps. A step always adds a hop, so the pairs of a cell and of the
one it came from differ, and following them back ends at a source, on flat ground of cost zero too,
where "any neighbour that fits" can go round in circles.

*Method.* `tight_steps` marks the tight edges, each weighed once, a row of cells at a time. Cells
whose pairs are new then pass them on in the order of pairs, from two queues that are in that order:
the cells given, sorted, and the cells lowered, first in, first out, since a step adds one hop. So a
cell is lowered at most once a call. The least fixpoint is unique: tiles and their order do not
change it. Serial. The edge costs are those of `orograph.kernels.relax.tile`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.lanes import MOVES, STEP_DX, STEP_DY, lowest_bit, prefetch_line
from orograph.kernels.relax.models import (
    DIAGONAL,
    EAST_WEST,
    NORTH_SOUTH,
    TWO_COLUMNS,
    TWO_ROWS,
)
from orograph.kernels.relax.row_costs import weigh_edges
from orograph.kernels.relax.tile import TileState

NOBODY = np.int64(2**62)
NO_DIRECTION = 255
BY_LINK = 17
AHEAD = 16  # cells of the queue whose surroundings are on their way into the cache

# Esri's codes: 1 east, then clockwise; knight's moves 9 to 16, clockwise from east-south-east
CODES = {
    (0, 1): 1, (1, 1): 2, (1, 0): 3, (1, -1): 4, (0, -1): 5, (-1, -1): 6, (-1, 0): 7, (-1, 1): 8,
    (1, 2): 9, (2, 1): 10, (2, -1): 11, (1, -2): 12,
    (-1, -2): 13, (-2, -1): 14, (-2, 1): 15, (-1, 2): 16,
}  # fmt: skip

# Of an edge to the west, and of those to the rows before: a row of the length table
_KIND = np.array(
    [EAST_WEST, NORTH_SOUTH, DIAGONAL, DIAGONAL, TWO_COLUMNS, TWO_COLUMNS, TWO_ROWS, TWO_ROWS]
)
# The steps from a cell by the directions of their codes
_BY_CODE = np.argsort([CODES[int(dy), int(dx)] for dy, dx in MOVES])
_CODE = np.array([CODES[int(dy), int(dx)] for dy, dx in MOVES], np.uint8)


@compiled
def _mark(dist, friction, elevation, rules, onward):
    """Set bit m of a cell where its step by MOVES[m] attains the distance it leads to."""
    height, width = dist.shape
    f = friction.reshape(-1)
    z = elevation.reshape(-1)
    costs = np.empty((2, width), dist.dtype)
    mean = np.empty(width)
    length = np.empty(width, dist.dtype)
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
                *(there, here, f, at, z, at, width, dy, dx),
                *(length[:count], mean[:count], rules),
            )
            v = dist[y, left : left + count]
            u = dist[y - dy, left + dx : left + dx + count]
            from_u = onward[y - dy, left + dx : left + dx + count]
            from_v = onward[y, left : left + count]
            for x in range(count):
                if u[x] + ahead[x] == v[x] and v[x] < rules.unreached:
                    from_u[x] |= np.uint16(1 << (2 * edge))
            for x in range(count):
                if v[x] + back[x] == u[x] and u[x] < rules.unreached:
                    from_v[x] |= np.uint16(2 << (2 * edge))


@compiled
def _spread(onward, reach, pairs, cells, queue):
    """Carry pairs along tight edges until nothing changes; the number of cells improved."""
    height, width = onward.shape
    flat = pairs.reshape(-1, 2)
    steps_of = onward.reshape(-1)
    both_of = pairs.reshape(-1)
    given = 0
    head = 0
    tail = 0
    while given < cells.size or head < tail:
        take = head == tail
        if not take and given < cells.size:
            a, b = cells[given], queue[head]
            take = flat[a, 0] < flat[b, 0] or (flat[a, 0] == flat[b, 0] and flat[a, 1] < flat[b, 1])
        if take:
            cell = cells[given]
            given += 1
        else:
            cell = queue[head]
            head += 1
            if head + AHEAD < tail:
                # cells of a front are far from one another in memory
                next_cell = queue[head + AHEAD]
                prefetch_line(steps_of, next_cell)
                for row in range(-1, 2):
                    prefetch_line(both_of, 2 * (next_cell + row * width))
        y = cell // width
        x = cell - y * width
        label = pairs[y, x, 0]
        hop = pairs[y, x, 1] + 1
        steps = np.int64(onward[y, x])
        while steps:
            m = lowest_bit(steps)
            steps &= steps - 1
            v = y + MOVES[m, 0]
            u = x + MOVES[m, 1]
            if v < reach or v >= height - reach or u < reach or u >= width - reach:
                continue
            own = pairs[v, u]
            if label < own[0] or (label == own[0] and hop < own[1]):
                own[0] = label
                own[1] = hop
                queue[tail] = v * width + u
                tail += 1
    return tail


@compiled
def _directions(onward, reach, pairs, codes):
    """For each reached cell the least code by which it may have been reached; sources 0."""
    height, width = codes.shape
    inward = np.empty(width, np.uint16)  # bit q: a step arrives from where code number q leads
    for y in range(height):
        inward[:] = 0
        for q in range(_BY_CODE.size):
            m = _BY_CODE[q]
            if max(abs(MOVES[m, 0]), abs(MOVES[m, 1])) > reach:
                continue  # there are no such steps, and it would be beyond the halo
            left = reach + MOVES[m, 1]
            onward_there = onward[y + reach + MOVES[m, 0], left : left + width]
            for x in range(width):
                inward[x] |= np.uint16(((onward_there[x] >> np.uint16(m ^ 1)) & 1) << q)
        for x in range(width):
            label = pairs[y + reach, x + reach, 0]
            hop = pairs[y + reach, x + reach, 1]
            code = np.uint8(0 if hop == 0 else NO_DIRECTION)
            steps = np.int64(0 if hop == 0 or label == NOBODY else inward[x])
            while steps:
                q = lowest_bit(steps)
                steps &= steps - 1
                m = _BY_CODE[q]
                # the cell that the step came from lies where the step back leads to
                there = pairs[y + reach + MOVES[m, 0], x + reach + MOVES[m, 1]]
                if there[0] == label and there[1] + 1 == hop:
                    code = _CODE[m]
                    break
            codes[y, x] = code


def tight_steps(state: TileState) -> npt.NDArray[np.uint16]:
    """Return for each cell the steps that attain the distance where they lead: bit m, `MOVES`[m].

    Parameters
    ----------
    state : TileState
        A tile whose distances, those of the halo too, are final.

    Returns
    -------
    (h + 2 r, w + 2 r) uint16
        One bit for each of up to 16 neighbours.
    """
    onward = np.zeros(state.dist.shape, np.uint16)
    _mark(state.dist, state.friction, state.elevation, state.rules, onward)
    return onward


def spread_labels(
    onward: npt.NDArray[np.uint16],
    reach: int,
    pairs: npt.NDArray[np.int64],
    changed: npt.NDArray[np.bool_],
) -> int:
    """Bring a tile's pairs (label, hops) to their fixpoint.

    Parameters
    ----------
    onward : (h + 2 r, w + 2 r) uint16
        The tight steps of the tile.
    reach : int
        r.
    pairs : (h + 2 r, w + 2 r, 2) int64
        Labels and hops known so far; ``NOBODY`` where there is none. Changed in place.
    changed : (h + 2 r, w + 2 r) bool
        Cells (of the halo too) whose pairs are new; all False afterwards.

    Returns
    -------
    int
        How many cells were improved.
    """
    cells = np.flatnonzero(changed)
    changed.reshape(-1)[cells] = False
    labels, hops = pairs.reshape(-1, 2)[cells].T
    cells = cells[np.lexsort((hops, labels))]
    queue = np.empty(changed.size, np.int64)
    return int(_spread(onward, reach, pairs, cells, queue))


def back_directions(
    onward: npt.NDArray[np.uint16], reach: int, pairs: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    """The direction of the first step back to the source, for a tile at rest.

    Parameters
    ----------
    onward, reach, pairs
        As `spread_labels` leaves them.

    Returns
    -------
    (h, w) uint8
        Esri's codes: 0 source, 1 east, then clockwise to 8 north-east; with 16 neighbours 9
        (two columns east, one row south), then clockwise to 16. ``NO_DIRECTION`` where nothing
        has reached.
    """
    codes = np.empty(tuple(n - 2 * reach for n in onward.shape), np.uint8)
    _directions(onward, reach, pairs, codes)
    return codes


__all__: list[Any] = [
    "BY_LINK",
    "CODES",
    "NOBODY",
    "NO_DIRECTION",
    "back_directions",
    "spread_labels",
    "tight_steps",
]
