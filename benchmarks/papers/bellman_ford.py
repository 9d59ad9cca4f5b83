"""Shortest paths of a graph by the algorithm of Bellman and Ford, over all vertices or all arcs.

A round lowers costs along arcs; costs only fall, and when a round lowers nothing they are the least
sums over all walks, whatever the way and the order.

- *output*: for each vertex the least sum over the arcs that enter it (pull);
- *input*: the sum along each arc, then the least of each vertex's sums (segmented minimum).

A GPU does each with a thread per output or arc (bellman_ford.cu); here a loop takes the place of
the threads. Rows are those of arcs that enter a vertex: ``indptr`` (n + 1,), ``indices``, which are
tails, and ``weight`` (arcs,). No cycle may be negative. Serial, no atomics.

Bellman (1958), doi:10.1090/qam/102435; the ways: T. Malison, "GPU parallelization of graph
algorithms", 2012, sections 5.2 to 5.4.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.graph.spread import unreached
from orograph.tiles.arrays import Array

STRATEGIES = ("output", "input")


@compiled
def pull(indptr, tails, weight, nothing, cost):
    """Lower each vertex by the arcs that enter it; return whether any was lowered."""
    lowered = False
    for vertex in range(cost.size):
        least = cost[vertex]
        for arc in range(indptr[vertex], indptr[vertex + 1]):
            known = cost[tails[arc]]
            # Without the first comparison a negative weight would make a path of the cost that
            # stands for none. Costs lowered earlier in the round are used at once; the least sums
            # are the same.
            if known != nothing and known + weight[arc] < least:
                least = known + weight[arc]
        if least < cost[vertex]:
            cost[vertex] = least
            lowered = True
    return lowered


@compiled
def add_weights(tails, weight, nothing, cost, sums):
    """Write the sum of each arc's weight and the cost of its tail."""
    for arc in range(tails.size):
        known = cost[tails[arc]]
        # Likewise: what stands for no path takes no weight.
        sums[arc] = known if known == nothing else known + weight[arc]


@compiled
def take_least(indptr, sums, cost):
    """Lower each vertex to the least of its arcs' sums; return whether any was lowered."""
    lowered = False
    for vertex in range(cost.size):
        for arc in range(indptr[vertex], indptr[vertex + 1]):
            if sums[arc] < cost[vertex]:
                cost[vertex] = sums[arc]
                lowered = True
    return lowered


def bellman_ford(rows: tuple[Array, Array, Array], cost: Array, strategy: str) -> None:
    """Lower costs to the least from any vertex that has one.

    Parameters
    ----------
    rows : indptr (n + 1,), indices (arcs,), weight (arcs,)
        The arcs that enter each vertex.
    cost : (n,) int64 or float64
        The greatest cost there is, ``2**60`` or infinity, for vertices without one.
    strategy : {"output", "input"}
    """
    nothing = unreached(cost.dtype)
    indptr, indices, weight = rows
    sums = np.empty(indices.size, cost.dtype)
    lowered = True
    while lowered:
        if strategy == "output":
            lowered = pull(indptr, indices, weight, nothing, cost)
        else:
            add_weights(indices, weight, nothing, cost, sums)
            lowered = take_least(indptr, sums, cost)
