"""By which value a tile may improve its neighbours: the edges from its border into the halo.

Only cells that hold less than what the neighbours have been told count. Serial, each edge looked
at once; the same bits as the sweeps, for it is the same `edge`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.edge_costs import edge
from orograph.kernels.relax.lanes import MOVES
from orograph.kernels.relax.tile import TileState

# neighbours: north, south, west, east, north-west, north-east, south-west, south-east
_NEIGHBOUR = np.array([[4, 0, 5], [2, -1, 3], [6, 1, 7]])


@compiled
def _part(i, length):
    return 0 if i < 0 else (2 if i >= length else 1)


@compiled
def _probe(dist, friction, elevation, rules, north, south, west, east, keys):
    reach = rules.reach
    height = dist.shape[0] - 2 * reach
    width = dist.shape[1] - 2 * reach
    cost = np.empty(2, dist.dtype)
    for y in range(height):
        whole = y < reach or y >= height - reach
        x = 0
        while x < width:
            if y < reach:
                sent = north[y, x]
            elif y >= height - reach:
                sent = south[y - (height - reach), x]
            elif x < reach:
                sent = west[y, x]
            else:
                sent = east[y, x - (width - reach)]
            start = dist[y + reach, x + reach]
            if start < sent:
                for m in range(2 * rules.steps + 2):
                    dy = MOVES[m, 0]
                    dx = MOVES[m, 1]
                    k = _NEIGHBOUR[_part(y + dy, height), _part(x + dx, width)]
                    if k < 0:
                        continue
                    edge(friction, elevation, y + reach, x + reach, dy, dx, rules, cost)
                    cost[1] = start + cost[0]
                    value = cost[1]
                    if value < dist[y + dy + reach, x + dx + reach] and value <= rules.limit:
                        keys[k] = min(keys[k], value)
            x += 1
            if not whole and x == reach and width - reach > reach:
                x = width - reach


def probe_border(state: TileState, sent: list[npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
    """The least value by which each neighbour may be improved by what is new on the border.

    Parameters
    ----------
    state : TileState
        A tile whose halo holds what is known of the neighbours.
    told : four arrays
        What the neighbours know of the border: north (r, w), south (r, w), west (h, r), east (h,
        r).

    Returns
    -------
    (8,) float64
        For the neighbours north, south, west, east, north-west, north-east, south-west and
        south-east; infinity where nothing can be improved.
    """
    keys = np.full(8, state.unreached, state.dist.dtype)
    north, south, west, east = sent
    _probe(state.dist, state.friction, state.elevation, state.rules, north, south, west, east, keys)
    out = keys.astype(np.float64)
    out[keys >= state.unreached] = np.inf
    return out


def halo_strips(dist: Any, reach: int) -> list[Any]:
    """The halo of a tile, as views: rows to the north and south, then west and east between them.

    Parameters
    ----------
    dist : (h + 2 r, w + 2 r)
    reach : int
        r.
    """
    inside = dist[reach:-reach]
    return [dist[:reach], dist[-reach:], inside[:, :reach], inside[:, -reach:]]
