"""Shortest paths of a graph by delta-stepping with two lists, near and far.

Vertices whose cost is below a bound are *near*: they are relaxed in the order in which they came,
again if they are lowered again. All others that have been lowered wait in the list *far*. When no
vertex is near, the bound rises above the least cost in that list, and what is now below it is near:
one pass over the list, which also finds the least cost of the rest. A vertex stands at most once in
each list, so both have room for all. Costs only fall, and the last ones are the least sums over all
paths, whatever the order of the work.

A vertex is put into a list by a write that is always done and a length that grows or not, and rows
are fetched some vertices ahead: road networks leave the processor little to guess.

Weights must not be negative. Rows: ``indptr`` (n + 1,), ``indices`` and ``weight`` (arcs,), of any
integers and reals; ``cost`` (n,) int64 or float64. Vertex numbers are those of ``indices``: they
end at 2**32 in 32 bits. Serial, no atomics.

Meyer, Sanders (2003), doi:10.1016/S0196-6774(03)00076-2; two lists for buckets: Davidson, Baxter,
Garland, Owens (2014), doi:10.1109/IPDPS.2014.45.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.graph.spread import unreached
from orograph.kernels.prefetch import prefetch
from orograph.tiles.arrays import Array

NEAR, FAR = 1, 2
AHEAD, COST_AHEAD = 12, 4
"""Numbers of vertices by which a row, and the costs of its end heads, are prefetched ahead."""


@compiled
def near_far(
    indptr: Any,
    indices: Any,
    weight: Any,
    far: Any,
    waiting: Any,
    width: Any,
    upto: Any,
    most: Any,
    nothing: Any,
    cost: Any,
) -> Any:
    """Lower the costs to the least cost from any start; costs above `most` do not change.

    The first `waiting` of `far` (n + 1,), which is scratch, are the starts. They have their costs
    already, below the barrier `nothing`; all others that are not `nothing` have been relaxed.
    Returns how many vertices were relaxed, and how many wait in `far`: those above `upto`.
    """
    n = cost.size
    one = indices.dtype.type(1)
    listed = np.zeros(n, np.uint8)
    near = np.zeros(n + 1 + AHEAD, indices.dtype)  # a ring of n + 1: one place stays free
    starts, waiting = waiting, 0
    least = nothing
    # Drop starts that are named more than once. The list shrinks in place.
    for i in range(starts):
        vertex = far[i]
        if listed[vertex] == 0:
            listed[vertex] = FAR
            far[waiting] = vertex
            waiting += 1
            least = min(least, cost[vertex])
    relaxed = 0
    # All vertices with costs below ``below`` have been relaxed at these costs.
    below = least
    while waiting and least <= upto:
        bound = max(below, least) + width
        begin, end = 0, 0  # where the ring is in the cache
        rest = nothing
        kept = 0
        for i in range(waiting):
            vertex = far[i]
            known = cost[vertex]
            if known < below:  # it has been relaxed since it was listed
                listed[vertex] = 0
            # The second comparison takes the least cost even where adding the width is lost in
            # rounding.
            elif known < bound or known <= least:
                listed[vertex] = NEAR
                near[end] = vertex
                prefetch(indptr, vertex)
                end = end + 1 if end < n else 0
            else:
                far[kept] = vertex
                kept += 1
                rest = min(rest, known)
        waiting = kept
        least = rest
        # The noted least may belong to a vertex that has been relaxed since. Then nothing is near,
        # and the exact least of the rest decides in the next turn.
        if begin != end:
            below = bound
        while begin != end:
            tail = near[begin]
            # Old or blank places of the ring name some vertex too, whose row is fetched for
            # nothing.
            row = indptr[near[begin + AHEAD]]
            prefetch(indices, row)
            prefetch(weight, row)
            if indices.size:
                soon = near[begin + COST_AHEAD]
                first, last = indptr[soon], max(indptr[soon + one], one) - one
                prefetch(cost, indices[min(first, last)])  # an empty row may stand behind all arcs
                prefetch(cost, indices[last])
            begin = begin + 1 if begin < n else 0
            listed[tail] &= FAR
            relaxed += 1
            known = cost[tail]
            for arc in range(indptr[tail], indptr[tail + one]):
                head = indices[arc]
                total = known + weight[arc]
                if total <= most and total < cost[head]:  # the likely one first
                    cost[head] = total
                    lists = listed[head]
                    if total < bound:
                        # NEAR and FAR are bits: the length grows by 1 unless the vertex is already
                        # in the list. The ring wraps around after its last place.
                        near[end] = head
                        end += 1 - (lists & NEAR)
                        end = end if end <= n else 0
                        listed[head] = lists | NEAR
                        prefetch(indptr, head)
                    else:
                        # A vertex of this list that is lowered below the bound stays in it until
                        # the next pass drops it.
                        far[waiting] = head
                        waiting += 1 - (lists >> 1)
                        listed[head] = lists | FAR
                        least = min(least, total)
    kept = 0
    # Those that were lowered below the last bound after they were listed have been relaxed.
    for i in range(waiting):
        if cost[far[i]] >= below:
            far[kept] = far[i]
            kept += 1
    return relaxed, kept


def graph_paths(rows: tuple[Any, Any, Any], start: int, width: Any, most: Any) -> Any:
    """Return the least cost of each vertex from a start, (n,), of the dtype of `width`.

    What would be above `most` is none: infinity, or 2**60 in integers.
    """
    indptr, indices, weight = rows
    nothing = unreached(width.dtype)
    cost = np.full(indptr.size - 1, nothing)
    cost[start] = 0
    far = np.empty(cost.size + 1, indices.dtype)
    far[0] = start
    near_far(indptr, indices, weight, far, 1, width, most, most, nothing, cost)
    return cost


@compiled
def arcs_outside(indptr: Any, heads: Any, first: Any) -> Any:
    """Return the arcs of a part beginning with vertex `first` that lead to other parts.

    Heads ascend in a row, so only its ends are looked at.
    """
    n = indptr.size - 1
    low, high = heads.dtype.type(first), heads.dtype.type(first + n - 1)
    # The first pass counts, the second one writes.
    found = np.empty(0, np.int64)
    for writing in (False, True):
        count = 0
        for vertex in range(n):
            begin, end = np.int64(indptr[vertex]), np.int64(indptr[vertex + 1])
            while begin < end and heads[begin] < low:
                if writing:
                    found[count] = begin
                count += 1
                begin += 1
            past = end
            while begin < end and heads[end - 1] > high:
                end -= 1
            for arc in range(end, past):
                if writing:
                    found[count] = arc
                count += 1
        if not writing:
            found = np.empty(count, np.int64)
    return found


class HostPart:
    """Searches from several sources in a part of a graph, in this process's memory.

    Parameters
    ----------
    rows
        ``indptr`` (n + 1,), ``indices`` and ``weight`` (arcs,); weights are not negative.
    own : int
        Vertices of the part. Those behind have no arcs: links to other parts end there.
    sources : sequence of arrays of integers
        For each search the vertices that cost 0.
    dtype : int64 or float64
        Of costs.
    width, most : number of this dtype
        The width of buckets, and the greatest cost.
    """

    def __init__(
        self,
        rows: tuple[Array, Array, Array],
        own: int,
        sources: Sequence[Array],
        dtype: np.dtype[Any],
        width: Any,
        most: Any,
    ) -> None:
        self._rows, self._own, self._width, self._most = rows, own, width, most
        self._nothing = unreached(dtype)
        self.cost: Array = np.full((len(sources), rows[0].size - 1), self._nothing)
        """The costs from each source, (sources, n)."""
        self._waiting = [starts.astype(np.uint32) for starts in sources]
        for cost, starts in zip(self.cost, sources, strict=True):
            cost[starts] = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in (*self._rows, self.cost, *self._waiting))

    def go_on(self, number: int, vertices: Array, costs: Array, upto: Any) -> tuple[int, Any]:
        """Lower vertices to costs, if these are less, and search until none up to ``upto`` waits.

        ``number`` is that of the search. Returns how many vertices were relaxed, and a cost below
        which none waits.
        """
        cost = self.cost[number]
        lower = costs < cost[vertices]
        lowered = vertices[lower]
        # The same vertex may come with several costs.
        np.minimum.at(cost, lowered, costs[lower])
        waiting = np.union1d(self._waiting[number], lowered)
        relaxed = 0
        if cost[waiting].min(initial=self._nothing) <= upto and waiting.size:
            relaxed, waiting = self._relax(cost, waiting, upto)
            # Vertices of other parts have no arcs here; their costs are read by `beyond`.
            waiting = waiting[waiting < self._own]
        self._waiting[number] = waiting
        return relaxed, cost[waiting].min(initial=self._nothing)

    def _relax(self, cost: Array, waiting: Array, upto: Any) -> tuple[int, Array]:
        """Relax vertices up to a cost; return how many, and which remain."""
        far = np.empty(cost.size + 1, np.uint32)
        far[: waiting.size] = waiting
        relaxed, left = near_far(
            *self._rows, far, waiting.size, self._width, upto, self._most, self._nothing, cost
        )
        return relaxed, far[:left]

    def beyond(self) -> Array:
        """Return the costs of the vertices without arcs, (sources, n - own)."""
        return self.cost[:, self._own :]

    def reached(self) -> int:
        """Return how many of the vertices with arcs have costs, from all sources together."""
        return int(np.count_nonzero(self.cost[:, : self._own] < self._nothing))

    def save(self) -> tuple[Array, list[Array]]:
        """Return all costs, and for each source the vertices that wait to be relaxed."""
        return self.cost, self._waiting

    def restore(self, cost: Array, waiting: Sequence[Array]) -> None:
        """Continue from what another part has saved."""
        self.cost, self._waiting = cost, list(waiting)
