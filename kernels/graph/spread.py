"""Shortest paths of a graph by the algorithm of Bellman and Ford, over arcs of active vertices.

A round lowers costs along the arcs that leave vertices lowered in the last round; costs only fall,
and when a round lowers nothing they are the least sums over all walks, whatever the order.

A GPU does it with a thread per arc of an active vertex (spread.cu); here a loop takes the place of
the threads. Arrays as in `orograph.kernels.graph.near_far`. Weights may be negative; a cycle of
negative length lowers costs for ever, so rounds are limited, and
`orograph.kernels.graph.negative_cycle` looks for one. Serial, no atomics.

Bellman (1958), doi:10.1090/qam/102435.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.prefetch import prefetch
from orograph.tiles.arrays import Array

AHEAD = 32
"""Number of places by which a cost is prefetched ahead of its turn."""


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


def spread(rows: tuple[Array, Array, Array], starts: Array, cost: Array, rounds: int) -> bool:
    """Lower the costs to the least from any start; return whether they are the least.

    Parameters
    ----------
    rows : indptr (n + 1,), indices (arcs,), weight (arcs,)
        The arcs that leave each vertex.
    starts : (k,)
        Vertices that have a cost.
    cost : (n,) int64 or float64
        All others have the greatest cost there is, ``2**60`` or infinity.
    rounds : int
        How many at most.
    """
    active, following = np.empty((2, cost.size), rows[1].dtype)
    queued = np.zeros(cost.size, np.uint8)
    count = starts.size
    active[:count] = starts
    while count and rounds:
        count = push(*rows, cost, active, count, following, queued)
        active, following = following, active
        rounds -= 1
    return count == 0


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
