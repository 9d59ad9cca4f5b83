"""Shortest paths of a graph by delta-stepping with two lists, near and far, a part at a time.

Vertices whose cost is below a bound are *near*: they are relaxed in the order in which they came,
again if they are lowered again. All others that have been lowered wait in the list *far*. When no
vertex is near, the bound rises above the least cost in that list, and what is now below it is near:
one pass over the list, which also finds the least cost of the rest. A vertex stands at most once in
each list, so both have room for all. Costs only fall, and the last ones are the least sums over all
paths, whatever the order of the work.

A vertex is put into a list by a write that is always done and a length that grows or not, and rows
are fetched some vertices ahead: road networks leave the processor little to guess.

The costs of all vertices of the graph are held at once, the arcs of one part only; a whole graph is
one part. A visit brings a part to its fixpoint up to a bound. A vertex of another part that it
lowers is *pending*: it waits to be relaxed when its own part is visited.

Weights must not be negative. Arrays:

- ``indptr`` (own + 1,), ``indices`` and ``weight`` (arcs,), of any integers and reals: the rows of
  the part; ``indptr`` counts from the first arc of the graph, heads are vertices of the graph;
- ``cost`` (n,) int64 or float64;
- ``bounds`` (parts + 1,): the first vertex of each part, and their number;
- ``pending`` (n,): from the first vertex of each part on, those of its vertices that wait, its list
  far;
- ``count`` (parts,): how many these are;
- ``key`` (parts,): a cost that none of them is below, or more than any cost;
- ``listed`` (n,) uint8: the lists that a vertex is in, and whether it has been relaxed; 0 at first.

Vertex numbers are those of ``indices``: they end at 2**32 in 32 bits. Serial, no atomics.

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
from orograph.tiles.arrays import Array, Integers

NEAR, FAR, DONE = 1, 2, 4
"""Bits of ``listed``."""
AHEAD, COST_AHEAD = 12, 4
"""Numbers of vertices by which a row, and the costs of its end heads, are prefetched ahead."""


@compiled
def hand_over(vertex, value, bounds, pending, count, key, listed):
    """Let a vertex wait in its part."""
    # The part whose first vertex is the last one not beyond this vertex.
    part = np.searchsorted(bounds, np.int64(vertex), side="right") - 1
    key[part] = min(key[part], value)
    if listed[vertex] & FAR == 0:
        listed[vertex] |= FAR
        pending[bounds[part] + count[part]] = vertex
        count[part] += 1


@compiled
def paths_in_part(
    part: Any,
    indptr: Any,
    indices: Any,
    weight: Any,
    bounds: Any,
    width: Any,
    upto: Any,
    most: Any,
    nothing: Any,
    cost: Any,
    pending: Any,
    count: Any,
    key: Any,
    listed: Any,
) -> Any:
    """Lower costs by delta-stepping in a part, up to `upto`; return how many vertices it relaxed.

    The second number is how many of these were relaxed for the first time.
    """
    base, first = np.int64(indptr[0]), bounds[part]
    own = np.uint64(bounds[part + 1] - first)
    # The part's share of ``pending`` serves as the list far, in place.
    far = pending[first : bounds[part + 1]]
    waiting = count[part]
    near = np.zeros(own + np.uint64(1 + AHEAD), np.uint32)  # from 0 in the part
    least = nothing
    for i in range(waiting):
        least = min(least, cost[far[i]])
    relaxed, fresh = 0, 0
    # All vertices with costs below ``below`` have been relaxed at these costs.
    below = least
    while waiting and least <= upto:
        bound = max(below, least) + width
        begin, end = np.uint64(0), np.uint64(0)  # where the ring is in the cache
        rest = nothing
        kept = 0
        for i in range(waiting):
            vertex = far[i]
            known = cost[vertex]
            if known < below:  # it has been relaxed since it was listed
                listed[vertex] &= DONE
            # The second comparison takes the least cost even where adding the width is lost in
            # rounding.
            elif known < bound or known <= least:
                listed[vertex] ^= NEAR | FAR
                near[end] = vertex - first
                end = end + np.uint64(1) if end < own else np.uint64(0)
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
            tail = np.uint64(near[begin])
            # Old or blank places of the ring name some vertex too, whose row is fetched for
            # nothing.
            row = np.uint64(indptr[np.uint64(near[begin + np.uint64(AHEAD)])] - base)
            prefetch(indices, row)
            prefetch(weight, row)
            if indices.size:
                soon = np.uint64(near[begin + np.uint64(COST_AHEAD)])
                past: Any = max(np.int64(indptr[soon + np.uint64(1)]) - base, 1)
                last = past - 1
                row_of_soon: Any = min(np.int64(indptr[soon]) - base, last)
                prefetch(cost, indices[np.uint64(row_of_soon)])
                prefetch(cost, indices[np.uint64(last)])
            begin = begin + np.uint64(1) if begin < own else np.uint64(0)
            vertex = tail + np.uint64(first)
            lists = listed[vertex]
            listed[vertex] = (lists & FAR) | DONE
            fresh += 1 - (lists >> 2)
            relaxed += 1
            known = cost[vertex]
            for arc in range(
                np.uint64(indptr[tail] - base), np.uint64(indptr[tail + np.uint64(1)] - base)
            ):
                head = indices[arc]
                total = known + weight[arc]
                if total <= most and total < cost[head]:  # the likely one first
                    cost[head] = total
                    # Without a sign: a head before the part becomes a number beyond it, so one
                    # comparison will do.
                    inside = np.uint64(head) - np.uint64(first)
                    if inside >= own:
                        hand_over(head, total, bounds, pending, count, key, listed)
                        continue
                    lists = listed[head]
                    if total < bound:
                        # NEAR and FAR are bits: the length grows by 1 unless the vertex is already
                        # in the list. The ring wraps around after its last place.
                        near[end] = inside
                        end += np.uint64(1 - (lists & NEAR))
                        end = end if end <= own else np.uint64(0)
                        listed[head] = lists | NEAR
                        prefetch(indptr, inside)
                    else:
                        # There is room: the vertices that this bucket began with have left the
                        # list, and none of them comes back to it before the bucket ends.
                        far[waiting] = head
                        waiting += 1 - (lists >> 1 & 1)
                        listed[head] = lists | FAR
                        least = min(least, total)
    kept = 0
    for i in range(waiting):
        # Those that were lowered below the last bound after they were listed have been relaxed.
        if cost[far[i]] >= below:
            far[kept] = far[i]
            kept += 1
        else:
            listed[far[i]] &= DONE
    count[part] = kept
    key[part] = least if kept else nothing
    return relaxed, fresh


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


class Search:
    """State of one search: the costs of the vertices, and the vertices that wait to be relaxed."""

    def __init__(
        self, bounds: Integers, starts: Integers, found: Array, nothing: Any, word: np.dtype[Any]
    ) -> None:
        self.bounds, self.found, self.nothing = bounds, found, nothing
        self.pending = np.empty(found.size, word)
        self.count = np.zeros(bounds.size - 1, np.int64)
        self.key = np.full(bounds.size - 1, nothing)
        self.listed = np.zeros(found.size, np.uint8)
        found[starts] = 0
        self.wait(np.unique(starts))
        self.key[self.count > 0] = 0

    def wait(self, vertices: Integers) -> None:
        """Let vertices wait, ascending, and no others."""
        self.listed[:] = 0
        self.listed[vertices] = FAR
        ends = np.searchsorted(vertices, self.bounds)
        self.count[:] = np.diff(ends)
        for first, begin, end in zip(self.bounds[:-1], ends[:-1], ends[1:], strict=True):
            self.pending[first : first + end - begin] = vertices[begin:end]

    def lower(self, vertices: Integers, costs: Array) -> None:
        """Lower vertices of the first part to costs, which are less, and let them wait."""
        # The same vertex may come with several costs.
        np.minimum.at(self.found, vertices, costs)
        self.key[0] = costs.min(initial=self.key[0])
        fresh = np.unique(vertices[self.listed[vertices] & FAR == 0])
        self.listed[fresh] |= FAR
        self.pending[self.count[0] : self.count[0] + fresh.size] = fresh
        self.count[0] += fresh.size

    @property
    def board(self) -> tuple[Array, Array, Array, Array, Array]:
        """The last arrays that kernels take."""
        return self.found, self.pending, self.count, self.key, self.listed


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
        self._nothing, n = unreached(dtype), rows[0].size - 1
        # Vertices without arcs are a part of their own, which others search.
        bounds = np.array([0, own, n])
        self.cost: Array = np.full((len(sources), n), self._nothing)
        """The costs from each source, (sources, n)."""
        self._searches = [
            Search(bounds, starts, cost, self._nothing, np.dtype(np.uint32))
            for starts, cost in zip(sources, self.cost, strict=True)
        ]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        lists = (array for search in self._searches for array in (search.pending, search.listed))
        return sum(array.nbytes for array in (*self._rows, self.cost, *lists))

    def go_on(self, number: int, vertices: Array, costs: Array, upto: Any) -> tuple[int, Any]:
        """Lower vertices to costs, if these are less, and search until none up to ``upto`` waits.

        ``number`` is that of the search. Returns how many vertices were relaxed, and a cost below
        which none waits.
        """
        search, relaxed = self._searches[number], 0
        lower = costs < search.found[vertices]
        search.lower(vertices[lower], costs[lower])
        if search.key[0] <= upto:
            limits = self._width, upto, self._most, self._nothing
            relaxed, _ = paths_in_part(0, *self._rows, search.bounds, *limits, *search.board)
        return relaxed, search.key[0]

    def beyond(self) -> Array:
        """Return the costs of the vertices without arcs, (sources, n - own)."""
        return self.cost[:, self._own :]

    def reached(self) -> int:
        """Return how many of the vertices with arcs have costs, from all sources together."""
        return int(np.count_nonzero(self.cost[:, : self._own] < self._nothing))

    def save(self) -> tuple[Array, list[Array]]:
        """Return all costs, and for each source the vertices that wait to be relaxed."""
        return self.cost, [search.pending[: search.count[0]] for search in self._searches]

    def restore(self, cost: Array, waiting: Sequence[Array]) -> None:
        """Continue from what another part has saved."""
        self.cost[:] = cost
        for search, vertices in zip(self._searches, waiting, strict=True):
            search.wait(np.sort(vertices))
            search.key[0] = search.found[vertices].min(initial=self._nothing)
