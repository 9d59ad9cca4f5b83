"""Shortest paths of a graph by Dijkstra's algorithm, with a heap of four children a node.

The heap holds each vertex once and knows its place, so a lowered vertex rises where it stands.
Ties in the heap do not matter: costs are the least sums over all paths.

Weights must not be negative. Arrays as in `orograph.kernels.graph.near_far`. Serial.

Dijkstra (1959), doi:10.1007/BF01386390; Johnson, "Priority queues with update and finding minimum
spanning trees" (1975), doi:10.1016/0020-0190(75)90001-0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled


@compiled(inline=True)
def _put(heap, key, place, i, vertex, value):
    heap[i] = vertex
    key[i] = value
    place[vertex] = i


@compiled
def rise(heap, key, place, i, vertex, value):
    """Move a vertex up the heap from position i to its place."""
    while i > 0:
        above = (i - 1) >> 2
        if key[above] <= value:
            break
        _put(heap, key, place, i, heap[above], key[above])
        i = above
    _put(heap, key, place, i, vertex, value)


@compiled
def sink(heap, key, place, size, vertex, value):
    """Move a vertex down the heap from the top to its place."""
    i = 0
    while 4 * i + 1 < size:
        first = 4 * i + 1
        least = first
        for child in range(first + 1, min(first + 4, size)):
            if key[child] < key[least]:
                least = child
        if key[least] >= value:
            break
        _put(heap, key, place, i, heap[least], key[least])
        i = least
    _put(heap, key, place, i, vertex, value)


@compiled(inline=True)
def queue_waiting(values, waiting, heap, key, place):
    """Move all cells that wait into an empty heap, by their values; return how many there are."""
    size = 0
    for cell in range(values.size):
        if waiting[cell]:
            waiting[cell] = False
            rise(heap, key, place, size, cell, values[cell])
            size += 1
    return size


@compiled(inline=True)
def leave_waiting(waiting, heap, key, size):
    """Let the cells that are left in a heap wait; return the least of their values, or infinity."""
    least = np.inf
    for i in range(size):
        waiting[heap[i]] = True
        least = min(least, np.float64(key[i]))
    return least


@compiled
def dijkstra(indptr: Any, indices: Any, weight: Any, starts: Any, most: Any, cost: Any) -> None:
    """Lower the costs to the least from any start; what would be above `most` stays as it is.

    `starts` have their costs already; all others have a barrier, or costs that no arc which leaves
    them could lower another by.
    """
    n = cost.size
    one = indices.dtype.type(1)
    heap = np.empty(n, indices.dtype)
    key = np.empty(n, cost.dtype)
    place = np.full(n, -1, np.int64)
    size = 0
    for vertex in starts:
        # A start may be named more than once.
        if place[vertex] < 0:
            rise(heap, key, place, size, vertex, cost[vertex])
            size += 1
    while size:
        tail, known = heap[0], key[0]
        size -= 1
        if size:
            sink(heap, key, place, size, heap[size], key[size])
        for arc in range(indptr[tail], indptr[tail + one]):
            head = indices[arc]
            total = known + weight[arc]
            if total < cost[head] and total <= most:
                # Only vertices that are not settled come here: no sum is below a settled cost, as
                # weights are not negative. So ``place`` need not be reset when a vertex leaves the
                # heap.
                if place[head] < 0:
                    place[head] = size
                    size += 1
                cost[head] = total
                rise(heap, key, place, place[head], head, total)
