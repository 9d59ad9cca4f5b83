"""Shortest paths of a graph in parts, of which a few are in memory: delta-stepping over parts.

Every part has a key, the least cost of a vertex in it that has been lowered and not been relaxed
since. The part with the least key is visited: its vertices are relaxed, again if they are lowered
again, up to a bound one bucket above the key; what lies above, and what is lowered in other parts,
stays pending. When no part has a key, the costs are the least sums over all paths, whatever the
order of the visits and the bucket's width.

Weights must not be negative. Rows of the visited part: ``indptr`` (k + 1,), from 0; ``indices``
and ``weight`` (arcs,); ``first`` is its first vertex. ``cost`` and ``pending`` (n,), ``bounds``
(parts + 1,) and ``keys`` (parts,) are those of the whole graph. Serial.

Meyer, Sanders (2003), doi:10.1016/S0196-6774(03)00076-2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled


@compiled
def visit_part(
    indptr: Any,
    indices: Any,
    weight: Any,
    first: Any,
    part: Any,
    bound: Any,
    most: Any,
    nothing: Any,
    bounds: Any,
    keys: Any,
    pending: Any,
    cost: Any,
) -> None:
    """Relax the pending vertices of a part up to a bound; costs above `most` stay as they are."""
    count = indptr.size - 1
    ring = np.empty(count + 1, np.int64)
    begin, end = 0, 0
    for vertex in range(count):
        if pending[first + vertex] and cost[first + vertex] <= bound:
            ring[end] = vertex
            end += 1
    while begin != end:
        tail = ring[begin]
        begin = begin + 1 if begin < count else 0
        pending[first + tail] = False
        known = cost[first + tail]
        for arc in range(indptr[tail], indptr[tail + 1]):
            head = np.int64(indices[arc])
            total = known + weight[arc]
            if total >= cost[head] or total > most:
                continue
            inside = first <= head < first + count
            # a pending vertex at or below the bound stands in the ring already
            listed = pending[head] and cost[head] <= bound
            cost[head] = total
            pending[head] = True
            if not inside:
                other = np.searchsorted(bounds, head, side="right") - 1
                keys[other] = min(keys[other], total)
            elif total <= bound and not listed:
                ring[end] = head - first
                end = end + 1 if end < count else 0
    least = nothing
    for vertex in range(first, first + count):
        if pending[vertex]:
            least = min(least, cost[vertex])
    keys[part] = least
