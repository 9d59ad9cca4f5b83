"""Hops, costs by negative weights, and predecessors in a graph that is read a part at a time.

Hops are levels of a breadth-first search. With negative weights vertices are relaxed in the order
in which they were lowered (Bellman, Ford, Moore). Both visit parts as
`orograph.kernels.graph.near_far` does, where the arrays are explained; a vertex of ``listed`` is
FAR or nothing. Serial, no atomics.

Bellman (1958), doi:10.1090/qam/102435.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.graph.hops import HOPS_AHEAD
from orograph.kernels.graph.near_far import FAR, hand_over
from orograph.kernels.prefetch import prefetch


@compiled
def _by_level(far, waiting, hops, upto, listed):
    """Take the vertices up to a level from a part's list; return them in the order of levels.

    Returns them, where those of each level begin, the first of these levels, and how many stay.
    """
    low, high, taken = np.int64(upto) + 1, np.int64(-1), 0
    for i in range(waiting):
        level = np.int64(hops[far[i]])
        if level <= upto:
            low, high, taken = min(low, level), max(high, level), taken + 1
    # A counting sort. Counts stand two places further on, so that while vertices are put, place
    # level + 1 becomes the end of the level, which is the beginning of the next.
    starts = np.zeros(max(high - low, 0) + 3, np.int64)
    for i in range(waiting):
        level = np.int64(hops[far[i]])
        if level <= upto:
            starts[level - low + 2] += 1
    for i in range(2, starts.size):
        starts[i] += starts[i - 1]
    ready = np.empty(taken, far.dtype)
    kept = 0
    for i in range(waiting):
        vertex = far[i]
        level = np.int64(hops[vertex])
        if level <= upto:
            ready[starts[level - low + 1]] = vertex
            starts[level - low + 1] += 1
            listed[vertex] = 0
        else:
            far[kept] = vertex
            kept += 1
    return ready, starts, low, kept


@compiled
def hops_in_part(
    part: Any,
    indptr: Any,
    indices: Any,
    bounds: Any,
    upto: Any,
    most: Any,
    nothing: Any,
    hops: Any,
    pending: Any,
    count: Any,
    key: Any,
    listed: Any,
    weight: Any,
    cost: Any,
) -> Any:
    """Lower hops in a part by breadth-first search from its pending vertices up to level `upto`.

    Levels are unsigned, and `nothing` is the greatest. With ``weight`` and ``cost``, which are both
    None or not, only tight arcs count. Returns how many vertices were looked at, and how many were
    reached for the first time. Rows within the part are taken as by
    `orograph.kernels.graph.hops.level_hops`, without branches.
    """
    base, first, past = np.int64(indptr[0]), bounds[part], bounds[part + 1]
    far = pending[first:past]
    ready, starts, low, kept = _by_level(far, count[part], hops, upto, listed)
    # A vertex may be in the queue twice: from the list, and because it has been lowered meanwhile.
    # The blanks are the part's first vertex, so that prefetches ahead stay within its rows.
    queue = np.zeros(past - first + ready.size + 1 + 2 * HOPS_AHEAD, indices.dtype)
    queue[:] = first
    begin, end = 0, 0
    looked_at, fresh = 0, 0
    level: Any = low
    run = 0
    one, two, three = np.int64(1), np.int64(2), np.int64(3)
    other: Any
    # A level consists of what the level before has found and of what waited in the list.
    while level <= upto and (begin < end or run + 2 < starts.size):
        if run + 2 < starts.size:
            for i in range(starts[run], starts[run + 1]):
                if np.int64(hops[ready[i]]) == level:  # else it has been lowered meanwhile
                    queue[end] = ready[i]
                    end += 1
            run += 1
        stop = end
        looked_at += stop - begin
        following = hops.dtype.type(level + 1)
        for i in range(begin, stop):
            vertex = queue[i]
            tail = np.int64(vertex) - first
            prefetch(indptr, np.int64(queue[i + 2 * HOPS_AHEAD]) - first)
            prefetch(indices, np.int64(indptr[np.int64(queue[i + HOPS_AHEAD]) - first]) - base)
            arc: Any = np.int64(indptr[tail]) - base
            end_of_row: Any = np.int64(indptr[tail + 1]) - base
            if arc == end_of_row or level >= most:
                continue
            # Heads ascend in a row, so its first and last tell whether all lie in the part.
            if weight is None and indices[arc] >= first and indices[end_of_row - 1] < past:
                while arc < end_of_row:
                    last = end_of_row - one
                    for other in (arc, min(arc + one, last), min(arc + two, last), last):
                        head = indices[other]
                        known = hops[head]
                        queue[end] = head
                        end += known > following
                        fresh += known == nothing
                        # At once, so that an arc that is taken twice does not count twice.
                        hops[head] = min(known, following)
                    arc += three
                    end_of_row -= one
                continue
            for other in range(arc, end_of_row):
                head = indices[other]
                known = hops[head]
                if known <= following:
                    continue
                if weight is not None and cost[vertex] + weight[other] != cost[head]:
                    continue
                fresh += known == nothing
                hops[head] = following
                if first <= head < past:
                    queue[end] = head
                    end += 1
                else:
                    hand_over(head, following, bounds, pending, count, key, listed)
        begin = stop
        level += 1
    waiting = 0
    least = nothing
    # Vertices beyond the bound go on waiting: those of the list that were not lowered below it, and
    # those of the level that was found last.
    for i in range(kept):
        vertex = far[i]
        if hops[vertex] > upto:
            far[waiting] = vertex
            waiting += 1
            least = min(least, hops[vertex])
        else:
            listed[vertex] = 0
    for i in range(begin, end):
        vertex = queue[i]
        if listed[vertex] == 0:
            listed[vertex] = FAR
            far[waiting] = vertex
            waiting += 1
        least = min(least, hops[vertex])
    count[part] = waiting
    key[part] = least
    return looked_at, fresh


@compiled
def relax_in_part(
    part: Any,
    indptr: Any,
    indices: Any,
    weight: Any,
    bounds: Any,
    floor: Any,
    budget: Any,
    cost: Any,
    pending: Any,
    count: Any,
    listed: Any,
    tail_of: Any,
) -> Any:
    """Lower costs in a part, negative weights included, until none changes or enough have.

    Vertices are relaxed in the order in which they were lowered. ``tail_of`` (n,), or None, is the
    predecessor of each vertex. Returns how many times a vertex was lowered: `budget` or more if
    that is why it ended; and the greatest integer if it met a cost below `floor`.
    """
    base, first = np.int64(indptr[0]), bounds[part]
    # Unsigned indices: Numba looks whether others are negative.
    zero, one = np.uint64(0), np.uint64(1)
    own = np.uint64(bounds[part + 1] - first)
    far = pending[first : bounds[part + 1]]
    # `hand_over` keeps keys, which have no meaning where weights may be negative.
    unkeyed = np.zeros(count.size, np.int64)
    ring = np.empty(own + one, np.uint32)  # one place stays free
    begin, end = zero, np.uint64(count[part])
    for i in range(count[part]):
        ring[i] = far[i] - first
    lowered: Any = 0
    while begin != end and lowered < budget:
        tail = np.uint64(ring[begin])
        vertex = tail + np.uint64(first)
        known = cost[vertex]
        # No path without a cycle costs so little.
        if known < floor:
            lowered = np.iinfo(np.int64).max
            break
        begin = begin + one if begin < own else zero
        listed[vertex] = 0
        for arc in range(np.uint64(indptr[tail] - base), np.uint64(indptr[tail + one] - base)):
            head = indices[arc]
            total = known + weight[arc]
            if total < cost[head]:
                cost[head] = total
                lowered += 1
                if tail_of is not None:
                    tail_of[head] = vertex
                # A head before the part becomes a number beyond it.
                inside = np.uint64(head) - np.uint64(first)
                if inside >= own:
                    hand_over(head, 0, bounds, pending, count, unkeyed, listed)
                    continue
                # Written always; the ring grows unless the vertex is in it.
                ring[end] = inside
                end += np.uint64(1 - (listed[head] >> 1))
                end = end if end <= own else zero
                listed[head] = FAR
    waiting = 0
    # What has not been relaxed within the budget waits for the next visit.
    while begin != end:
        far[waiting] = ring[begin] + first
        waiting += 1
        begin = begin + one if begin < own else zero
    count[part] = waiting
    return lowered


@compiled
def predecessors_in_part(
    indptr: Any,
    indices: Any,
    first: Any,
    position: Any,
    nothing: Any,
    hops: Any,
    before: Any,
    weight: Any,
    cost: Any,
) -> None:
    """Write the place in the source of the first vertex from which each is one hop away.

    Only the arcs of a part that begins with vertex `first` are looked at; `before` is negative
    where none has been found. With ``weight`` and ``cost`` only tight arcs count.
    """
    base = np.int64(indptr[0])
    for tail in range(indptr.size - 1):
        vertex = first + tail
        if hops[vertex] == nothing:
            continue
        place = position[vertex]
        following = hops.dtype.type(np.int64(hops[vertex]) + 1)
        for arc in range(np.int64(indptr[tail]) - base, np.int64(indptr[tail + 1]) - base):
            head = indices[arc]
            if hops[head] != following:
                continue
            if weight is not None and cost[vertex] + weight[arc] != cost[head]:
                continue
            if before[head] < 0 or place < before[head]:
                before[head] = place
