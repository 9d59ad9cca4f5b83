"""Predecessors that lead back to their source: finding those that do not, and mending them.

Where a graph has cycles of length 0, or of a length that rounding makes 0, two vertices on one may
each be named as the other's predecessor, each rightly by its length. Here the vertices whose way
back ends in a circle are found, and given predecessors anew: by a Dijkstra from all the others on
the lengths d[u] + w(u, v) - d[v], which are 0 along shortest paths, so that a vertex's predecessor
was settled before it. Among several the first counts; the work is serial and deterministic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled

Array = npt.NDArray[Any]

_UNKNOWN, _ON_THE_WAY, _GOOD, _CIRCLES = range(4)


@compiled
def _mark_circles(before, circles):
    """Mark the vertices of each row whose way back never ends."""
    rows, n = before.shape
    state = np.empty(n, np.uint8)
    way = np.empty(n, np.int64)
    count = 0
    for r in range(rows):
        for v in range(n):
            state[v] = _UNKNOWN
        for start in range(n):
            v = start
            steps = 0
            while v >= 0 and state[v] == _UNKNOWN:
                state[v] = _ON_THE_WAY
                way[steps] = v
                steps += 1
                v = before[r, v]
            end = _GOOD if v < 0 or state[v] == _GOOD else _CIRCLES
            for s in range(steps):
                state[way[s]] = end
        for v in range(n):
            circles[r, v] = state[v] == _CIRCLES
            count += state[v] == _CIRCLES
    return count


def mark_circles(before: Array) -> npt.NDArray[np.bool_] | None:
    """Where the way back to the source never ends.

    Parameters
    ----------
    before : (rows, n) int32
        For each source a row of predecessors; negative where there is none.

    Returns
    -------
    (rows, n) bool or None
        None: nowhere.
    """
    circles = np.empty(before.shape, np.bool_)
    return circles if _mark_circles(before, circles) else None


@compiled
def _mend(distance, before, lost, lengths, unreached):
    """Settle the lost vertices, nearest first; ``lengths[u, i]``: of the edge to ``lost[i]``."""
    count = lost.size
    missing = np.zeros(distance.size, np.bool_)
    for i in range(count):
        missing[lost[i]] = True
    key = np.full(count, np.inf)
    last = np.full(count, -1, np.int64)
    settled = np.zeros(count, np.bool_)
    for u in range(distance.size):
        if missing[u] or not distance[u] < unreached:
            continue
        for i in range(count):
            if lengths[u, i] < unreached:
                slack = max(0.0, float((distance[u] + lengths[u, i]) - distance[lost[i]]))
                if slack < key[i]:
                    key[i] = slack
                    last[i] = u
    for _ in range(count):
        nearest = -1
        for i in range(count):
            if not settled[i] and (nearest < 0 or key[i] < key[nearest]):
                nearest = i
        settled[nearest] = True
        u = lost[nearest]
        before[u] = last[nearest]
        for i in range(count):
            if not settled[i] and lengths[u, i] < unreached:
                slack = max(0.0, float((distance[u] + lengths[u, i]) - distance[lost[i]]))
                if key[nearest] + slack < key[i]:
                    key[i] = key[nearest] + slack
                    last[i] = u


def mend_row(distance: Array, before: Array, lost: Array, lengths: Array, unreached: float) -> None:
    """Give some vertices predecessors that lead back to the source, in place.

    Parameters
    ----------
    distance : (n,)
        Of all vertices from one source.
    before : (n,) int32
        Their predecessors, changed in place.
    lost : (k,) int64
        Vertices whose predecessors lead nowhere; all of them, and each within reach.
    lengths : (n, k)
        Of the edges from each vertex to these.
    unreached : number
        Where there is no edge, or no path.
    """
    _mend(distance, before, lost, lengths, distance.dtype.type(unreached))
