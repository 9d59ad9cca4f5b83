"""Negative cycles of a graph: Bellman-Ford with a queue, checking the predecessors.

All vertices that are looked at begin with cost 0. A cycle among the predecessors is a negative one,
and if there is one, it appears after n rounds at the latest; each n lowered vertices the
predecessors are searched for one. Cherkassky, Goldberg (1999), doi:10.1007/s101070050058.

Arrays as in `orograph.kernels.graph.near_far`. Serial, so the same cycle is found each time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.tiles.arrays import Array


@compiled
def _on_cycle(tail_of, seen):
    """Return a vertex on a cycle of the predecessors, or -1."""
    # Each walk up the predecessors marks its vertices with its start. A walk that meets its own
    # mark has found a cycle; an earlier walk's mark leads to where that walk ended without one.
    seen[:] = -1
    for start in range(tail_of.size):
        vertex = start
        while vertex >= 0 and seen[vertex] < 0:
            seen[vertex] = start
            vertex = tail_of[vertex]
        if vertex >= 0 and seen[vertex] == start:
            return vertex
    return -1


@compiled
def _search(indptr, indices, weight, looked_at, cost, tail_of):
    n = cost.size
    # One place stays free, so that a full ring differs from an empty one.
    ring = np.empty(n + 1, np.int64)
    queued = np.zeros(n, np.uint8)
    seen = np.empty(n, np.int64)
    begin, end = 0, 0
    for vertex in range(n):
        if looked_at[vertex]:
            ring[end] = vertex
            end += 1
            queued[vertex] = 1
    lowered = 0
    while begin != end:
        tail = ring[begin]
        begin = begin + 1 if begin < n else 0
        queued[tail] = 0
        for arc in range(indptr[tail], indptr[tail + 1]):
            head = np.int64(indices[arc])
            total = cost[tail] + weight[arc]
            if looked_at[head] and total < cost[head]:
                cost[head] = total
                tail_of[head] = tail
                if queued[head] == 0:
                    queued[head] = 1
                    ring[end] = head
                    end = end + 1 if end < n else 0
                lowered += 1
                # The search for a cycle takes O(n), as long as what has been lowered since the last
                # one.
                if lowered == n:
                    lowered = 0
                    vertex = _on_cycle(tail_of, seen)
                    if vertex >= 0:
                        return vertex
    return -1


def negative_cycle(
    rows: tuple[Array, Array, Array], looked_at: npt.NDArray[np.bool_], dtype: np.dtype[Any]
) -> tuple[list[int], float] | None:
    """Return the vertices of a cycle of negative length, in order, and its length; None: none.

    Parameters
    ----------
    rows : indptr (n + 1,), indices (arcs,), weight (arcs,)
    looked_at : (n,) bool
        Only cycles among these vertices count.
    dtype : dtype
        In which costs are added: int64 or float64. In float64 rounding can lower costs along a
        cycle whose length is not negative; the exact length is returned for it too.
    """
    n, (indptr, indices, weight) = looked_at.size, rows
    tail_of = np.full(n, -1, np.int64)
    vertex = _search(*rows, looked_at, np.zeros(n, dtype), tail_of)
    if vertex < 0:
        return None
    # Of parallel arcs the lightest counts.
    cycle = _round(tail_of, vertex)
    weights = []
    for tail, head in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        arcs = slice(indptr[tail], indptr[tail + 1])
        weights.append(least_weight(indices[arcs], weight[arcs], head))
    return cycle, sum_of(weights, dtype)


def least_weight(heads: Array, weights: Array, head: int) -> Any:
    """Return the weight of the shortest of a vertex's arcs that leads to ``head``."""
    return weights[heads == head].min().item()


def cycle_among(tail_of: Array) -> list[int]:
    """Return the vertices of a cycle among predecessors, in order; empty if there is none."""
    vertex = _on_cycle(tail_of, np.empty(tail_of.size, np.int64))
    return [] if vertex < 0 else _round(tail_of, vertex)


def sum_of(weights: list[Any], dtype: np.dtype[Any]) -> float:
    """Return the exact length of a cycle, rounded once."""
    return sum(weights) if dtype.kind == "i" else math.fsum(weights)


def _round(tail_of: Array, vertex: int) -> list[int]:
    """Return a cycle among predecessors, in order, that ends in a vertex on it."""
    cycle = []
    head = vertex
    while True:
        head = int(tail_of[head])
        cycle.append(head)
        if head == vertex:
            break
    # The predecessors were followed against the arcs.
    cycle.reverse()
    return cycle
