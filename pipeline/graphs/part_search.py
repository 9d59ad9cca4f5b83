"""Searches in a graph by this process, which reads a part at a time; a whole graph is one part.

It holds the costs of all vertices of the graph, and the arcs of one part; of stored graphs it keeps
the parts that fit into half of its memory. A visit brings a part to its fixpoint up to a
bound (`orograph.kernels.graph.near_far`, `part_search`). The part with the least cost that waits is
next, and the bound lies above the least cost that waits in any other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.graphs.unreached import NO_VERTEX
from orograph.kernels.graph.near_far import Search, paths_in_part
from orograph.kernels.graph.negative_cycle import cycle_among, least_weight, sum_of
from orograph.kernels.graph.part_search import (
    hops_in_part,
    predecessors_in_part,
    relax_in_part,
)
from orograph.kernels.graph.spread import unreached
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.errors import Cancelled
from orograph.tiles.graph.graph import Graph, Rows
from orograph.tiles.system import cores, memory_limit

VISIT = 2000
"""Fixed cost of a visit, as the number of vertices that could be relaxed in the same time."""
ARCS_READ = 4
"""Arcs that are read from a store in the time in which one vertex is relaxed; a guess."""
LOWERED = 32
"""Number of times, per vertex, that costs are lowered before a negative cycle is looked for."""


class PartReader:
    """Reads rows of a graph's parts, and keeps those of a stored graph while there is room."""

    def __init__(self, graph: Graph, cancelled: Event, *, weighted: bool = True) -> None:
        self.graph = graph
        self.bounds = np.array(graph.bounds)
        self.arcs_read = 0
        """Arcs that have been read from a store so far."""
        self._weighted, self._cancelled = weighted, cancelled
        self._kept: OrderedDict[int, Rows] = OrderedDict()
        self._room = memory_limit() // 2

    def rows(self, part: int) -> Rows:
        """Return the rows of a part; ``indptr`` counts from the first arc of the graph."""
        if self._cancelled.is_set():
            raise Cancelled("the run was cancelled")
        if self.graph.part_count == 1:
            return self.graph.rows
        if part in self._kept:
            self._kept.move_to_end(part)
            return self._kept[part]
        arrays, (first, last) = self.graph.arrays, self.graph.bounds[part : part + 2]
        indptr = np.asarray(arrays["indptr"][first : last + 1])
        begin, end = int(indptr[0]), int(indptr[-1])
        # Without weights an empty slice, which reads nothing.
        weight = np.asarray(arrays["weight"][begin : end if self._weighted else begin])
        rows = Rows(indptr, np.asarray(arrays["indices"][begin:end]), weight)
        if isinstance(arrays["indices"], np.ndarray):
            return rows  # views
        self.arcs_read += end - begin
        self._room -= sum(array.nbytes for array in rows)
        self._kept[part] = rows
        # The part that was just read stays, whatever its size.
        while self._room < 0 and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._room += sum(array.nbytes for array in dropped)
        return rows

    def search(self, starts: Integers, nothing: Any, found: Array | None = None) -> Search:
        """Return a new search, in which the starts cost 0 and the others ``nothing``."""
        if found is None:
            found = np.full(self.graph.vertex_count, nothing)
        return Search(self.bounds, starts, found, nothing, self.graph.arrays["indices"].dtype)

    def heads(self) -> Iterator[tuple[int, tuple[Array, Array]]]:
        """Yield the first vertex, ``indptr`` and ``indices`` of each part."""
        for part, first in enumerate(self.graph.bounds[:-1]):
            indptr, indices, _ = self.rows(part)
            yield first, (indptr, indices)


@dataclass
class Slack:
    """Distance that a visit goes beyond the least cost that waits in another part.

    A wide one relaxes vertices that will be relaxed again, a narrow one visits parts for little: it
    is moved towards where both cost the same.
    """

    width: Any
    area: int
    """Number of vertices of a part; the width is re-evaluated after so much work."""
    visits: int = 0
    again: int = 0

    def count(self, arcs_read: int, relaxed: int, fresh: int) -> None:
        """Count the work of a visit."""
        self.visits += VISIT + arcs_read // ARCS_READ
        self.again += max(relaxed - fresh, 0)
        if self.visits + self.again < self.area:
            return
        if self.visits > 2 * self.again:
            self.width *= 2
        elif self.again > 2 * self.visits:
            self.width /= 2
        self.visits = self.again = 0


Visit = Callable[[int, Rows, Any, Search], tuple[int, int]]


def run_searches(
    reader: PartReader, searches: Sequence[Search], limit: Any, width: Any, visit: Visit
) -> None:
    """Visit parts until no vertex with a cost of at most ``limit`` waits.

    ``visit`` is called with a part, its rows, the bound and a search.
    """
    dtype, nothing = searches[0].key.dtype, searches[0].nothing
    slack = Slack(float(width), int(np.diff(reader.bounds).max()))
    highest = dtype.type(limit).item()
    with ThreadPoolExecutor(min(cores(), len(searches))) as threads:
        # One search needs no thread beside this one.
        each = map if len(searches) == 1 else threads.map
        while True:
            keys = np.minimum.reduce([search.key for search in searches])
            part = int(keys.argmin())
            least = keys[part].item()
            if least > highest or least == nothing:
                return
            # What waits in the other parts bounds the visit: it may still lower the vertices of
            # this one.
            keys[part] = nothing
            other = keys.min().item()
            upto: Any = (least if other == nothing else other) + slack.width
            # The bound may lie beyond the integers: it is cut to 2**62, then to ``highest``, which
            # the dtype holds.
            bound = dtype.type(min(upto if dtype.kind == "f" else int(min(upto, 2**62)), highest))
            if keys.size == 1:  # nothing comes back from elsewhere
                bound = dtype.type(highest)
            before = reader.arcs_read
            rows = reader.rows(part)
            # The rows of a part are read once for all searches that have something to do there.
            due = [search for search in searches if search.key[part] <= bound]
            work = list(each(partial(visit, part, rows, bound), due))
            slack.count(reader.arcs_read - before, *map(sum, zip(*work, strict=True)))


def least_costs(
    reader: PartReader, starts: Integers, dtype: np.dtype[Any], width: Any, most: Any
) -> list[Array]:
    """Return the least cost of each stored vertex from each of several; no weight is negative."""
    nothing = unreached(dtype)
    searches = [reader.search(starts[i : i + 1], nothing) for i in range(starts.size)]

    def visit(part: int, rows: Rows, upto: Any, search: Search) -> tuple[int, int]:
        found: tuple[int, int] = paths_in_part(
            part, *rows, reader.bounds, width, upto, most, nothing, *search.board
        )
        return found

    # The slack begins with 16 buckets of delta-stepping.
    run_searches(reader, searches, most, 16 * width, visit)
    return [search.found for search in searches]


def hop_levels(
    reader: PartReader, starts: Integers, most: int, cost: Array | None = None
) -> tuple[Array, Any]:
    """Return the hops of each stored vertex from the nearest of some, and what stands for none.

    They are unsigned, and stand for none by the greatest: as a signed integer it is -1. With
    ``cost`` only tight arcs count: those that the least costs go along.
    """
    n = reader.graph.vertex_count
    nothing: Any = np.uint32(2**32 - 1) if n < 2**31 else np.uint64(2**64 - 1)
    search = reader.search(starts, nothing)

    def visit(part: int, rows: Rows, upto: Any, search: Search) -> tuple[int, int]:
        weight = None if cost is None else rows.weight
        found: tuple[int, int] = hops_in_part(
            part, rows.indptr, rows.indices, reader.bounds, np.int64(upto), np.int64(most),
            nothing, *search.board, weight, cost,
        )  # fmt: skip
        return found

    # Vertices at the greatest number of hops are reached and not relaxed. The slack begins with 64
    # hops.
    if most > 0:
        run_searches(reader, [search], most - 1, 64, visit)
    return search.found, nothing


def predecessors_from_hops(
    reader: PartReader, hops: Array, nothing: Any, cost: Array | None
) -> Integers:
    """Return the place in the source of each stored vertex's predecessor, given its hops."""
    before = np.full(hops.size, NO_VERTEX, np.int64)
    for part, first in enumerate(reader.graph.bounds[:-1]):
        rows = reader.rows(part)
        predecessors_in_part(
            rows.indptr, rows.indices, first, reader.graph.position, nothing, hops, before,
            None if cost is None else rows.weight, cost,
        )  # fmt: skip
    return before


def signed_costs(
    reader: PartReader,
    start: int,
    dtype: np.dtype[Any],
    refuse: Callable[[list[int], float], None],
) -> Array:
    """Return the least cost of each stored vertex from one; weights may be negative.

    ``refuse`` is called with a cycle of negative length that can be reached, and its length.
    """
    nothing = unreached(dtype)
    search = reader.search(np.array([start]), nothing)
    budget = LOWERED * reader.graph.vertex_count
    while not _relax(reader, search, budget, None):
        found = _negative_cycle(reader, search.found != nothing, dtype)
        if found is not None:
            refuse(*found)
        # There is none so far: the next look comes later each time.
        budget *= LOWERED
    return search.found


def _relax(reader: PartReader, search: Search, budget: int, tail_of: Array | None) -> bool:
    """Visit parts in turn until no vertex waits; return whether none does.

    It ends before if costs have been lowered ``budget`` times, or one is less than that of any path
    without cycles.
    """
    n, greatest = reader.graph.vertex_count, max(map(abs, reader.graph.weight_range))
    dtype = search.found.dtype
    floor = dtype.type(-n * greatest * (2 if dtype.kind == "f" else 1))  # floats are rounded
    part, parts = 0, reader.graph.part_count
    while search.count.any():
        if search.count[part]:
            board = search.found, search.pending, search.count, search.listed
            rows = reader.rows(part)
            budget -= relax_in_part(
                part, *rows, reader.bounds, floor, np.int64(budget), *board, tail_of
            )
            if budget <= 0:
                return False
        part = (part + 1) % parts
    return True


def _negative_cycle(
    reader: PartReader, looked_at: npt.NDArray[np.bool_], dtype: np.dtype[Any]
) -> tuple[list[int], float] | None:
    """Return a cycle of negative length among some vertices and its length; None: there is none.

    As `orograph.kernels.graph.negative_cycle`, with the rows of a part at a time.
    """
    n = looked_at.size
    lowest = -np.inf if dtype.kind == "f" else -(2**62)
    cost = np.where(looked_at, 0, lowest).astype(dtype)  # none lowers those not looked at
    # All vertices begin at 0 and wait, so a cycle is found wherever it lies.
    search = reader.search(np.flatnonzero(looked_at), unreached(dtype), cost)
    tail_of = np.full(n, -1, np.int64)
    while True:
        converged = _relax(reader, search, n, tail_of)
        cycle = cycle_among(tail_of)
        if cycle or converged:
            break
    if not cycle:
        return None
    weights = []
    for tail, head in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        part = int(np.searchsorted(reader.bounds, tail, side="right")) - 1
        rows, own = reader.rows(part), tail - int(reader.bounds[part])
        begin, end = (int(rows.indptr[i]) - int(rows.indptr[0]) for i in (own, own + 1))
        weights.append(least_weight(rows.indices[begin:end], rows.weight[begin:end], head))
    return cycle, sum_of(weights, dtype)
