"""Breadth-first search in a graph: from the nearest of some vertices, and between two vertices.

Between two vertices two searches go towards each other, level by level, the one whose next level
has fewer arcs first, until they meet (Pohl, "Bi-directional search", 1971). The number of hops is
exact: after each whole level the two radii are known to be less than it, or to sum to it.

Arrays as in `orograph.kernels.graph.near_far`. Levels are int32 (n < 2**31) or int64. Serial.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.prefetch import prefetch
from orograph.tiles.arrays import Array

HOPS_AHEAD = 24
"""Number of vertices by which a row is prefetched ahead of its turn; its `indptr`, twice that."""


@compiled
def level_hops(indptr, indices, starts, most, hops):
    """Write the least number of hops from any start, up to `most`; the others stay -1.

    The processor would often guess wrong whether a vertex is new and where a row ends. So each head
    is put into the queue, which then grows or not, and arcs are taken by four, some of them twice
    where a row has fewer. What a vertex needs is in no order in memory: it is fetched long before.
    """
    one, two = indices.dtype.type(1), indices.dtype.type(2)
    # One place more than vertices, since a head is written before it is known to be new. The zeros
    # behind stand for vertex 0, whose row prefetches far ahead may fetch for nothing.
    queue = np.zeros(hops.size + 1 + 2 * HOPS_AHEAD, indices.dtype)
    unseen = np.ones(hops.size, np.uint8)
    begin, end = 0, 0
    for vertex in starts:
        if unseen[vertex]:
            unseen[vertex] = 0
            queue[end] = vertex
            end += 1
    level = hops.dtype.type(0)
    while begin < end and level < most:
        stop = end
        for i in range(begin, stop):
            tail = queue[i]
            hops[tail] = level
            prefetch(indptr, queue[i + 2 * HOPS_AHEAD])
            prefetch(indices, indptr[queue[i + HOPS_AHEAD]])
            arc = indptr[tail]
            past = indptr[tail + one]
            # Three arcs from the front of what is left of the row and one from its back. The minima
            # keep within the row; an arc that is taken twice is not new the second time.
            while arc < past:
                last = past - one
                head = indices[arc]
                queue[end] = head
                end += unseen[head]
                unseen[head] = 0
                head = indices[min(arc + one, last)]
                queue[end] = head
                end += unseen[head]
                unseen[head] = 0
                head = indices[min(arc + two, last)]
                queue[end] = head
                end += unseen[head]
                unseen[head] = 0
                head = indices[last]
                queue[end] = head
                end += unseen[head]
                unseen[head] = 0
                arc += two + one
                past -= one
        # What has been appended is the next level.
        begin = stop
        level += hops.dtype.type(1)
    # The last level is not expanded; its vertices have not been given their hops yet.
    for i in range(begin, end):
        hops[queue[i]] = level


@compiled
def level_predecessors(indptr: Any, indices: Any, position: Any, hops: Any, before: Any) -> None:
    """Write the place in the source of the first vertex from which each is one hop away."""
    one = indices.dtype.type(1)
    for vertex in range(hops.size):
        tail = indices.dtype.type(vertex)
        if hops[tail] < 0:
            continue
        for arc in range(indptr[tail], indptr[tail + one]):
            head = indices[arc]
            # Of all tails one hop nearer, the first in the source.
            if hops[head] == hops[tail] + 1 and (before[head] < 0 or position[tail] < before[head]):
                before[head] = position[tail]


@compiled
def _next_level(indptr, indices, hops, others, queue, begin, end, level):
    """Settle the vertices one hop beyond a level; return where they end and whether any met."""
    one = indices.dtype.type(1)
    met = False
    last = end
    for i in range(begin, end):
        tail = queue[i]
        for arc in range(indptr[tail], indptr[tail + one]):
            head = indices[arc]
            if hops[head] < 0:
                hops[head] = level
                queue[last] = head
                last += 1
                # The other search has been here. The level is finished all the same: of several
                # such vertices the first in the source counts.
                met |= others[head] >= 0
    return last, met


@compiled
def _arcs_of(indptr, queue, begin, end):
    one = queue.dtype.type(1)
    count = 0
    # Signed before they are subtracted: in Numba a signed and an unsigned integer of 64 bits add up
    # to a float.
    for i in range(begin, end):
        count += np.int64(indptr[queue[i] + one]) - np.int64(indptr[queue[i]])
    return count


@compiled
def _nearer(indptr, indices, position, hops, vertex):
    """Return the neighbour one hop nearer to a start that comes first in the source."""
    found = vertex
    for arc in range(indptr[vertex], indptr[vertex + 1]):
        other = np.int64(indices[arc])
        nearer = hops[other] >= 0 and hops[other] == hops[vertex] - 1
        if nearer and (found == vertex or position[other] < position[found]):
            found = other
    return found


@compiled
def between(
    indptr: Any,
    indices: Any,
    back_indptr: Any,
    back_indices: Any,
    position: Any,
    s: Any,
    t: Any,
    hops_s: Any,
    hops_t: Any,
    queue_s: Any,
    queue_t: Any,
) -> Any:
    """Return a shortest path from s to t, both included; empty if there is none.

    `hops_s` and `hops_t` (n,) are -1, and are again at the end; the queues (n,) are scratch. Of the
    vertices where the searches meet, and of the neighbours on the way back from there, the way
    takes the one that comes first in the source.
    """
    hops_s[s], queue_s[0], hops_t[t], queue_t[0] = 0, s, 0, t
    begin_s, end_s, begin_t, end_t = 0, 1, 0, 1
    level_s, level_t = 0, 0
    met = s == t
    while not met and begin_s < end_s and begin_t < end_t:
        arcs_s = _arcs_of(indptr, queue_s, begin_s, end_s)
        arcs_t = _arcs_of(back_indptr, queue_t, begin_t, end_t)
        if arcs_s <= arcs_t:
            level_s += 1
            last, met = _next_level(
                indptr, indices, hops_s, hops_t, queue_s, begin_s, end_s, level_s
            )
            begin_s, end_s = end_s, last
        else:
            level_t += 1
            last, met = _next_level(
                back_indptr, back_indices, hops_t, hops_s, queue_t, begin_t, end_t, level_t
            )
            begin_t, end_t = end_t, last
    way = np.empty(level_s + level_t + 1 if met else 0, np.int64)
    if met:
        # Each shortest path has one vertex at this distance from s. It is among those of the last
        # level of s, and at the radius of t from the other end.
        middle = np.int64(-1)
        for i in range(begin_s, end_s):
            vertex = np.int64(queue_s[i])
            if hops_t[vertex] == level_t and (middle < 0 or position[vertex] < position[middle]):
                middle = vertex
        way[level_s] = middle
        for i in range(level_s):
            at = level_s - i
            way[at - 1] = _nearer(back_indptr, back_indices, position, hops_s, way[at])
        for i in range(level_t):
            at = level_s + i
            way[at + 1] = _nearer(indptr, indices, position, hops_t, way[at])
    # Only vertices that were reached are reset, so that resetting costs no more than the search.
    for i in range(end_s):
        hops_s[queue_s[i]] = -1
    for i in range(end_t):
        hops_t[queue_t[i]] = -1
    return way


def graph_between(
    rows: tuple[Array, Array, Array],
    incoming: tuple[Array, Array, Array],
    position: Array,
    pairs: Array,
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield a shortest path for each pair of vertices (k, 2), both included; empty without one.

    `position` (n,) is the place of each vertex in the source, which decides between paths.
    """
    n, (indptr, indices, _), (back_indptr, back_indices, _) = position.size, rows, incoming
    hops_s, hops_t = np.full((2, n), -1, np.int32 if n < 2**31 else np.int64)
    queues = np.empty((2, n), indices.dtype)
    for s, t in pairs:
        yield between(
            indptr, indices, back_indptr, back_indices, position, s, t, hops_s, hops_t, *queues
        )


def graph_hops(rows: tuple[Array, Array, Array], starts: Array, most: int) -> Array:
    """Return the least number of hops from any start, (n,) int32 or int64; -1 beyond `most`."""
    indptr, indices, _ = rows
    n = indptr.size - 1
    hops = np.full(n, -1, np.int32 if n < 2**31 else np.int64)
    level_hops(indptr, indices, starts, min(most, n), hops)
    return hops
