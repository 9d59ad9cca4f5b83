"""Who serves each cell, and by which way: allocation and back directions of solved distances.

An edge u -> v is *tight* if ``dist[u] + cost(u, v)`` is ``dist[v]`` to the bit. Along tight edges
every cell takes the least pair (label, hops): the smaller source label wins, and of the ways from
that source the one of fewest steps. A step always adds a hop, so the pairs of a cell and of the
one it came from differ, and following them back ends at a source, on flat ground of cost zero too,
where "any neighbour that fits" can go round in circles.

*Method.* Label-correcting with a first-in-first-out queue in which a cell stands once at a time; it
ends because pairs only fall and are bounded. The least fixpoint is unique, so queue order, tiles
and their order do not change it. Serial. The edge costs are those of `orograph.kernels.relax.tile`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.edge_costs import edge
from orograph.kernels.relax.lanes import MOVES
from orograph.kernels.relax.tile import TileState

NOBODY = np.int64(2**62)
NO_DIRECTION = 255
BY_LINK = 17

# Esri's codes: 1 east, then clockwise; knight's moves 9 to 16, clockwise from east-south-east
CODES = {
    (0, 1): 1, (1, 1): 2, (1, 0): 3, (1, -1): 4, (0, -1): 5, (-1, -1): 6, (-1, 0): 7, (-1, 1): 8,
    (1, 2): 9, (2, 1): 10, (2, -1): 11, (1, -2): 12,
    (-1, -2): 13, (-2, -1): 14, (-2, 1): 15, (-1, 2): 16,
}  # fmt: skip

_CODE = np.array([CODES[int(dy), int(dx)] for dy, dx in MOVES], np.uint8)


@compiled
def _spread(dist, friction, elevation, rules, labels, hops, queue, queued, count):
    """Carry pairs along tight edges until nothing changes; the number of cells improved."""
    reach = rules.reach
    height = dist.shape[0] - 2 * reach
    width = dist.shape[1] - 2 * reach
    stride = dist.shape[1]
    cost = np.empty(2, dist.dtype)
    head = 0
    improved = 0
    while count:
        cell = queue[head]
        head += 1
        if head == queue.size:
            head = 0
        count -= 1
        y = cell // stride
        x = cell - y * stride
        queued[y, x] = False
        label = labels[y, x]
        hop = hops[y, x] + 1
        start = dist[y, x]
        for m in range(2 * rules.steps + 2):
            v = y + MOVES[m, 0]
            u = x + MOVES[m, 1]
            if v < reach or v >= height + reach or u < reach or u >= width + reach:
                continue
            if label > labels[v, u] or (label == labels[v, u] and hop >= hops[v, u]):
                continue
            edge(friction, elevation, y, x, MOVES[m, 0], MOVES[m, 1], rules, cost)
            cost[1] = start + cost[0]
            if cost[1] == dist[v, u] and cost[1] < rules.unreached:
                labels[v, u] = label
                hops[v, u] = hop
                improved += 1
                if not queued[v, u]:
                    queued[v, u] = True
                    tail = head + count
                    queue[tail - queue.size if tail >= queue.size else tail] = v * stride + u
                    count += 1
    return improved


@compiled
def _directions(dist, friction, elevation, rules, labels, hops, codes):
    """For each reached cell the least code by which it may have been reached; sources 0."""
    reach = rules.reach
    cost = np.empty(2, dist.dtype)
    for y in range(reach, dist.shape[0] - reach):
        for x in range(reach, dist.shape[1] - reach):
            codes[y - reach, x - reach] = NO_DIRECTION
            if labels[y, x] == NOBODY:
                continue
            if hops[y, x] == 0:
                codes[y - reach, x - reach] = 0
                continue
            best = np.uint8(NO_DIRECTION)
            for m in range(2 * rules.steps + 2):
                # the cell that the step came from lies where the step back leads to
                v = y + MOVES[m, 0]
                u = x + MOVES[m, 1]
                if _CODE[m] > best or labels[v, u] != labels[y, x] or hops[v, u] + 1 != hops[y, x]:
                    continue
                edge(friction, elevation, v, u, -MOVES[m, 0], -MOVES[m, 1], rules, cost)
                cost[1] = dist[v, u] + cost[0]
                if cost[1] == dist[y, x]:
                    best = _CODE[m]
            codes[y - reach, x - reach] = best


def spread_labels(
    state: TileState,
    labels: npt.NDArray[np.int64],
    hops: npt.NDArray[np.int64],
    changed: npt.NDArray[np.bool_],
) -> int:
    """Bring a tile's pairs (label, hops) to their fixpoint.

    Parameters
    ----------
    state : TileState
        A tile whose distances, those of the halo too, are final.
    labels, hops : (h + 2 r, w + 2 r) int64
        Pairs known so far; ``NOBODY`` where there is none. Changed in place.
    changed : the same shape, bool
        Cells (of the halo too) whose pairs are new; all False afterwards.

    Returns
    -------
    int
        How often a cell was improved.
    """
    cells = np.flatnonzero(changed)
    queue = np.empty(changed.size, np.int64)
    queue[: cells.size] = cells
    return int(
        _spread(
            state.dist,
            state.friction,
            state.elevation,
            state.rules,
            labels,
            hops,
            queue,
            changed,
            cells.size,
        )
    )


def back_directions(
    state: TileState, labels: npt.NDArray[np.int64], hops: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    """The direction of the first step back to the source, for a tile at rest.

    Parameters
    ----------
    state, labels, hops
        As `spread_labels` leaves them.

    Returns
    -------
    (h, w) uint8
        Esri's codes: 0 source, 1 east, then clockwise to 8 north-east; with 16 neighbours 9
        (two columns east, one row south), then clockwise to 16. ``NO_DIRECTION`` where nothing
        has reached.
    """
    reach = state.rules.reach
    codes = np.empty(tuple(n - 2 * reach for n in state.dist.shape), np.uint8)
    _directions(state.dist, state.friction, state.elevation, state.rules, labels, hops, codes)
    return codes


__all__: list[Any] = [
    "BY_LINK",
    "CODES",
    "NOBODY",
    "NO_DIRECTION",
    "back_directions",
    "spread_labels",
]
