"""Predecessor repair: finding predecessors that form a cycle, and replacing them.

If a graph has cycles of length 0, or of a length that rounds to 0, two vertices of such a cycle may
each be the other's predecessor, and both agree with the distances. This module finds the vertices
whose path of predecessors ends in a cycle and sets new predecessors for them. It runs Dijkstra's
algorithm from all other vertices on the reduced lengths d[u] + w(u, v) - d[v], which are 0 along
shortest paths, so that a vertex's predecessor is settled before the vertex. Of equal ones the first
counts; the work is serial and deterministic.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.tiles.arrays import Array

_UNKNOWN, _ON_PATH, _ACYCLIC, _CYCLIC = range(4)


@compiled
def _mark_cycles(before, cyclic):
    """Mark the vertices of each row whose predecessors end in a cycle; return their number."""
    rows, n = before.shape
    state = np.empty(n, np.uint8)
    path = np.empty(n, np.int64)
    count = 0
    for r in range(rows):
        for v in range(n):
            state[v] = _UNKNOWN
        for start in range(n):
            v = start
            steps = 0
            while v >= 0 and state[v] == _UNKNOWN:
                state[v] = _ON_PATH
                path[steps] = v
                steps += 1
                v = before[r, v]
            # The walk ended at a vertex without a predecessor, at one of an earlier walk, whose end
            # is known, or on itself, which is a cycle.
            end = _ACYCLIC if v < 0 or state[v] == _ACYCLIC else _CYCLIC
            for s in range(steps):
                state[path[s]] = end
        for v in range(n):
            cyclic[r, v] = state[v] == _CYCLIC
            count += state[v] == _CYCLIC
    return count


def mark_cycles(before: Array) -> npt.NDArray[np.bool_] | None:
    """Mark the vertices whose path of predecessors ends in a cycle.

    Parameters
    ----------
    before : (rows, n) int32
        Predecessors, one row per source; negative where there is none.

    Returns
    -------
    (rows, n) bool or None
        None if there is no cycle.
    """
    cyclic = np.empty(before.shape, np.bool_)
    return cyclic if _mark_cycles(before, cyclic) else None


@compiled
def _repair(distance, before, lost, lengths, unreached):
    """Settle the lost vertices, nearest first; ``lengths[u, i]``: edge from u to ``lost[i]``."""
    count = lost.size
    missing = np.zeros(distance.size, np.bool_)
    for i in range(count):
        missing[lost[i]] = True
    key = np.full(count, np.inf)
    last = np.full(count, -1, np.int64)
    settled = np.zeros(count, np.bool_)
    # All vertices that are not lost are settled at once, at reduced distance 0.
    for u in range(distance.size):
        if missing[u] or not distance[u] < unreached:
            continue
        for i in range(count):
            if lengths[u, i] < unreached:
                # Reduced lengths are not negative but for rounding.
                slack = max(0.0, float((distance[u] + lengths[u, i]) - distance[lost[i]]))
                if slack < key[i]:
                    key[i] = slack
                    last[i] = u
    # Dijkstra's algorithm without a heap: few vertices are lost.
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


def repair_row(
    distance: Array, before: Array, lost: Array, lengths: Array, unreached: float
) -> None:
    """Set predecessors of the lost vertices that lead back to the source, in place.

    Parameters
    ----------
    distance : (n,)
        Distances of all vertices from one source.
    before : (n,) int32
        Predecessors of the vertices, changed in place.
    lost : (k,) int64
        All vertices whose predecessors end in a cycle; each is reachable.
    lengths : (n, k)
        Lengths of the edges from each vertex to the lost vertices.
    unreached : number
        Length where there is no edge or no path.
    """
    _repair(distance, before, lost, lengths, distance.dtype.type(unreached))
