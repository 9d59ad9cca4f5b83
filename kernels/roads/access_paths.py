"""Shortest paths between vertices with access that lead through vertices without.

From each vertex with access that has an arc to one without, Dijkstra's algorithm goes on through
vertices without access alone; each vertex with access that it meets becomes the head of an arc. So
the vertices without access can be left out, and no distance between the others changes.

A cost is the left-to-right sum of weights along the path; of a vertex the least counts. Searches
begin in ascending order of vertices, and heads are written in the order in which they are met. The
heap has a unique order: cost, then vertex. Serial, no atomics.

Dijkstra (1959), doi:10.1007/BF01386390.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.tiles.arrays import Array


@compiled
def _search(indptr, indices, weight, access, source, best, touched):
    """Lower the costs of vertices reached from a source; return the number of vertices."""
    heap = [(0.0, source)]
    met = 0
    while heap:
        known, tail = heappop(heap)
        # An older entry of a vertex that has been lowered since.
        if tail != source and known > best[tail]:
            continue
        for arc in range(indptr[tail], indptr[tail + 1]):
            head = indices[arc]
            # arcs between vertices with access stay as they are
            if head == source or (tail == source and access[head]):
                continue
            total = known + weight[arc]
            if total < best[head]:
                if best[head] == np.inf:
                    touched[met] = head
                    met += 1
                best[head] = total
                if not access[head]:
                    heappush(heap, (total, head))
    return met


@compiled
def paths_through(
    indptr: Array, indices: Array, weight: Array, access: Array, most: int
) -> tuple[Array, Array, Array]:
    """Return tail, head and cost of the arcs that replace vertices without access.

    Parameters
    ----------
    indptr (n + 1,), indices (arcs,) int64, weight (arcs,) float64
        Outgoing arcs of each vertex.
    access : (n,) bool
    most : int
        How many arcs at most; the rest is left out, and the result has more than ``most`` rows.
    """
    n = access.size
    best = np.full(n, np.inf)
    touched = np.empty(n, np.int64)
    ends = np.empty((1024, 2), np.int64)
    cost = np.empty(1024)
    found = 0
    for source in range(n):
        if not access[source]:
            continue
        outward = False
        for arc in range(indptr[source], indptr[source + 1]):
            outward = outward or not access[indices[arc]]
        if not outward:
            continue
        met = _search(indptr, indices, weight, access, source, best, touched)
        for i in range(met):
            head = touched[i]
            if access[head] and found <= most:
                if found == cost.size:
                    ends = np.concatenate((ends, np.empty_like(ends)))
                    cost = np.concatenate((cost, np.empty_like(cost)))
                ends[found, 0], ends[found, 1], cost[found] = source, head, best[head]
                found += 1
            # Only what the search has touched is reset, so a search costs no more than it looks at.
            best[head] = np.inf
        if found > most:
            break
    return ends[:found, 0], ends[:found, 1], cost[:found]
