"""Shortest paths of a graph by the algorithm of Bellman and Ford, in three ways.

A round lowers costs along arcs; costs only fall, and when a round lowers nothing they are the least
sums over all walks, whatever the way and the order.

- *output*: for each vertex the least sum over the arcs that enter it (pull);
- *input*: the sum along each arc, then the least of each vertex's sums (segmented minimum);
- *active*: only the arcs that leave vertices lowered in the last round (push). With all weights 1
  this is breadth-first search.

A GPU does each with a thread an output, an arc or an arc of an active vertex (spread.cu); here a
loop takes the place of the threads. Arrays as in `orograph.kernels.graph.near_far`, rows of arcs
that enter a vertex for *output* and *input*. Weights may be negative; a cycle of negative length
lowers costs for ever, so rounds are limited, and `orograph.kernels.graph.negative_cycle` looks for
one. Serial, no atomics.

Bellman (1958), doi:10.1090/qam/102435; the three ways: T. Malison, "GPU parallelization of graph
algorithms", 2012, sections 5.2 to 5.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.prefetch import prefetch
from orograph.tiles.arrays import Array

AHEAD = 32
"""Number of places by which a cost is prefetched ahead of its turn."""
STRATEGIES = ("active", "output", "input")


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


@compiled
def push(indptr, indices, weight, cost, active, count, following, queued):
    """Relax the arcs of the active vertices; return how many vertices were lowered.

    They are written to `following`; `queued` is 1 for them, and was 0 for all.
    """
    one = indices.dtype.type(1)
    lowered = 0
    for i in range(count):
        tail = active[i]
        known = cost[tail]
        for arc in range(indptr[tail], indptr[tail + one]):
            head = indices[arc]
            total = known + weight[arc]
            if total < cost[head]:
                cost[head] = total
                if queued[head] == 0:
                    queued[head] = 1
                    following[lowered] = head
                    lowered += 1
    # Clear the marks of this round only, in as many steps as it has lowered vertices.
    for i in range(lowered):
        queued[following[i]] = 0
    return lowered


def spread(
    rows: tuple[Array, Array, Array], starts: Array, cost: Array, strategy: str, rounds: int
) -> bool:
    """Lower the costs to the least from any start; return whether they are the least.

    Parameters
    ----------
    rows : indptr (n + 1,), indices (arcs,), weight (arcs,)
        The arcs that leave each vertex for ``"active"``, else those that enter it.
    starts : (k,)
        Vertices that have a cost.
    cost : (n,) int64 or float64
        All others have the greatest cost there is, ``2**60`` or infinity.
    strategy : {"active", "output", "input"}
    rounds : int
        How many at most.
    """
    nothing = unreached(cost.dtype)
    indptr, indices, weight = rows
    if strategy == "active":
        active, following = np.empty((2, cost.size), indices.dtype)
        queued = np.zeros(cost.size, np.uint8)
        count = starts.size
        active[:count] = starts
        while count and rounds:
            count = push(indptr, indices, weight, cost, active, count, following, queued)
            active, following = following, active
            rounds -= 1
        return count == 0
    sums = np.empty(indices.size, cost.dtype) if strategy == "input" else None
    for _ in range(rounds):
        if sums is None:
            lowered = pull(indptr, indices, weight, nothing, cost)
        else:
            add_weights(indices, weight, nothing, cost, sums)
            lowered = take_least(indptr, sums, cost)
        if not lowered:
            return True
    return False


@compiled
def order_costs(cost: Any, stored: Any, nothing: Any, fill: Any, ordered: Any) -> None:
    """Write the cost of the vertex that is stored for each place, and `fill` for `nothing`."""
    last = ordered.size - 1
    for place in range(ordered.size):
        prefetch(cost, stored[min(place + AHEAD, last)])
        known = cost[stored[place]]
        ordered[place] = fill if known == nothing else known


def unreached(dtype: np.dtype[Any]) -> Any:
    """Return the cost that stands for none: infinity, or 2**60 in integers."""
    return np.int64(2**60) if dtype.kind == "i" else np.float64(np.inf)
