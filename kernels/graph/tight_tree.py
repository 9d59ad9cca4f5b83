"""Shortest-path trees of a graph from its costs: breadth-first search along tight arcs.

An arc is *tight* if the cost of its tail and its weight sum to the cost of its head. Of the tight
arcs that enter a vertex those come into question that begin one hop nearer to the start, counted in
tight arcs; of these the tail that comes first in the source is the predecessor. So the tree has no
cycles, not even where arcs weigh 0, and depends on nothing but the graph and its costs.

Arrays as in `orograph.kernels.graph.near_far`. Serial.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled


@compiled
def tight_tree(
    indptr: Any,
    indices: Any,
    weight: Any,
    position: Any,
    start: Any,
    nothing: Any,
    cost: Any,
    before: Any,
) -> None:
    """Write the place in the source of each vertex's predecessor; vertices without one stay."""
    n = cost.size
    one = indices.dtype.type(1)
    queue = np.empty(n, indices.dtype)
    hops = np.full(n, -1, np.int64)
    queue[0] = start
    hops[start] = 0
    begin, end = 0, 1
    while begin < end:
        tail = queue[begin]
        begin += 1
        for arc in range(indptr[tail], indptr[tail + one]):
            head = indices[arc]
            # A sum that equals the cost of unreached vertices is that of no path.
            if cost[tail] + weight[arc] != cost[head] or cost[head] == nothing:
                continue
            # The queue is in the order of hops, so a vertex is at its least number of hops when it
            # is first met. Later tails at the same distance only compete by their place in the
            # source.
            if hops[head] < 0:
                hops[head] = hops[tail] + 1
                before[head] = position[tail]
                queue[end] = head
                end += 1
            elif hops[head] == hops[tail] + 1 and position[tail] < before[head]:
                before[head] = position[tail]
