"""The operation `shortest_paths`: least costs in a graph from several sources."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from orograph.graphs.columns import Columns, vertex_columns
from orograph.graphs.device.choice import choose_for_graph, in_parts
from orograph.graphs.device.rows import on_gpu
from orograph.graphs.job import check_graph, parts_job, search_job
from orograph.graphs.part_search import (
    PartReader,
    hop_levels,
    least_costs,
    predecessors_from_hops,
    signed_costs,
)
from orograph.graphs.path_frontier import PartPaths, PartRows, links_between
from orograph.graphs.unreached import NO_VERTEX, cost_fill
from orograph.kernels.backends import may_use_numba
from orograph.kernels.device import memory_reported
from orograph.kernels.graph.negative_cycle import negative_cycle
from orograph.kernels.graph.spread import order_costs, unreached
from orograph.kernels.graph.tight_tree import tight_tree
from orograph.kernels.stages import kernel
from orograph.operations.operation import operation
from orograph.run.backends import choose_backend
from orograph.run.options import GraphOptions, RunSpec
from orograph.tiles.arguments import check_flag, check_number
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.errors import InputError, NegativeCycle
from orograph.tiles.graph.graph import Graph, VerticesLike
from orograph.tiles.system import cores

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job


MOST_COST = 2**60
ROUNDS = 1024
"""Number of Bellman-Ford rounds after which a negative cycle is looked for."""
WIDTH = 4.0
"""Width of a bucket in mean weights; on road networks a flat optimum."""


@operation(estimate_graph="orograph.graphs.estimate:estimate_paths")
def shortest_paths(
    graph: Graph,
    sources: VerticesLike,
    *,
    max_cost: float = math.inf,
    predecessors: bool = False,
    **options: Unpack[GraphOptions],
) -> Job[xr.Dataset]:
    """Return the least cost of a path from each source to each vertex of a graph.

    Parameters
    ----------
    graph : Graph
        Graph, as returned by `read_graph`.
    sources : id or list of ids
        Vertices, by the ids of the graph's source.
    max_cost : float
        Vertices with a greater cost stay unreached.
    predecessors : bool
        Also return the previous vertex on each path.
    **options

    Returns
    -------
    xarray.Dataset
        ``cost`` (source, vertex): float64, infinity if there is no path; for integer weights int64,
        -1 (``_FillValue``) if there is none. If a weight is negative, -1 may be a cost, and
        ``_FillValue`` is 2**60. ``predecessor`` (source, vertex), int64: the position of the
        previous vertex along ``vertex``, -9999 (``_FillValue``) if there is none. Attribute
        ``method``: ``"delta-stepping"``, or ``"bellman-ford"`` if a weight is negative.

    Raises
    ------
    InputError
        If an argument cannot be used, or if costs may exceed the range of their dtype.
    NegativeCycle
        If a cycle of negative length can be reached; the error names it.
    StoreExistsError, BackendError

    Notes
    -----
    A cost is the minimum over all paths of the sum of weights, rounded from edge to edge. Among
    several predecessors, the one with the fewest edges to the source is chosen, then the first in
    the order of the graph's source.

    A graph in several parts is read a part at a time by this process, which holds about 16 bytes a
    vertex and source, and as many parts of a stored graph as fit into half of its memory. Several
    sources are worked on in threads. With ``out=`` or ``client``, searches without predecessors and
    negative weights run over parts in threads or on the workers and their GPUs, and can be resumed.
    Searches on a GPU of this process that holds the graph hold all arcs.

    References
    ----------
    Meyer and Sanders (2003), doi:10.1016/S0196-6774(03)00076-2; Bellman (1958),
    doi:10.1090/qam/102435.

    Examples
    --------
    >>> import networkx
    >>> import orograph as og
    >>> roads = networkx.Graph()
    >>> roads.add_weighted_edges_from([("a", "b", 4), ("a", "c", 1), ("c", "b", 2)])
    >>> paths = og.shortest_paths(og.read_graph(roads), "a", predecessors=True)
    >>> paths["cost"].sel(source="a", vertex="b").item()
    3
    >>> paths["predecessor"].values
    array([[-9999,     2,     0]])
    """
    graph = check_graph(graph).joined()
    predecessors = check_flag("predecessors", predecessors)
    max_cost = check_number("max_cost", max_cost, 0)
    starts = graph.vertices(sources, "sources")
    spec = RunSpec(**options)
    method = choose_method(graph)
    # Of this method alone "auto" weighs whether the graph is large enough for a GPU.
    if method == "delta-stepping":
        chosen = choose_for_graph("open_part", graph, spec)
    else:
        chosen = choose_backend("open_part", (), spec)
    search = PathSearch(graph, method, limit_of(graph, max_cost), predecessors)
    parameters = {
        "sources": starts.tolist(),
        "max_cost": repr(float(max_cost)),
        "predecessors": bool(predecessors),
    }

    def solve(backend: str, cancelled: Event) -> tuple[dict[str, Any], Columns]:
        return search.solve(starts, backend, PartReader(graph, cancelled))

    if method == "delta-stepping" and not predecessors and in_parts(graph, spec, chosen):
        problem = PartPaths(
            graph.bounds, tuple((start,) for start in starts.tolist()), cost_dtype(graph),
            bucket_width(graph), search.most, chosen, cost_fill(graph),
            links=links_between(graph),
        )  # fmt: skip
        rows: tuple[Any, ...] = (PartRows(graph),)
        return parts_job(graph, parameters, spec, problem, rows)
    return search_job(graph, "shortest-paths", parameters, chosen, spec, solve)


def choose_method(graph: Graph) -> str:
    """Return the method for the weights of a graph.

    Raises
    ------
    InputError
        If costs may exceed their dtype.
    """
    least, greatest = graph.weight_range
    _check_range(graph, max(-least, greatest))
    return "bellman-ford" if least < 0 else "delta-stepping"


@dataclass(frozen=True)
class PathSearch:
    """Shortest path searches from single sources in a graph in memory."""

    graph: Graph
    method: str
    most: Any
    """Greatest cost that counts; vertices beyond are unreached."""
    traced: bool

    def solve(
        self, starts: Integers, backend: str, reader: PartReader
    ) -> tuple[dict[str, Any], Columns]:
        """Search from each of several sources; return attributes and columns.

        A GPU takes the graph as a whole. Else all sources share the reads of parts; each has a
        thread of its own if there is one part.
        """
        graph, gpu = self.graph, not may_use_numba(backend)
        before = np.empty((starts.size, graph.vertex_count) if self.traced else (0, 0), np.int64)
        if gpu and self.method == "delta-stepping" and not self.traced:
            return self._columns(starts, self._on_gpu(starts), before)
        costs = np.empty((starts.size, graph.vertex_count), cost_dtype(graph))
        whole = gpu or graph.part_count == 1

        def finish(i: int, cost: Array) -> None:
            tree = None
            if self.traced:
                # From the costs alone, so the same whatever found them.
                tree = self._tree_of(cost, starts[i : i + 1], reader, whole)
            self._cut(cost, tree)
            self._order(cost, costs[i])
            if tree is not None:
                # All indices are valid. With "clip" NumPy writes to ``out`` without a buffer.
                np.take(tree, graph.stored, out=before[i], mode="clip")

        def one(i: int) -> None:
            finish(i, self._cost(starts[i : i + 1], backend, reader))

        if not whole:
            for i, cost in enumerate(self._costs_by_parts(starts, reader)):
                finish(i, cost)
        elif starts.size == 1:
            one(0)
        else:
            with ThreadPoolExecutor(min(cores(), starts.size)) as threads:
                list(threads.map(one, range(starts.size)))
        return self._columns(starts, costs, before)

    def _costs_by_parts(self, starts: Integers, reader: PartReader) -> list[Array]:
        """Return the cost of each stored vertex from each source, with a part at a time."""
        dtype = cost_dtype(self.graph)
        if self.method == "bellman-ford":
            refuse = partial(refuse_cycle, self.graph)
            return [signed_costs(reader, start, dtype, refuse) for start in starts.tolist()]
        return least_costs(reader, starts, dtype, bucket_width(self.graph), self.most)

    def _cost(self, starts: Integers, backend: str, reader: PartReader) -> Array:
        """Return the cost of each stored vertex from one source, with all arcs."""
        graph, numba = self.graph, may_use_numba(backend)
        if self.method == "delta-stepping" and numba:
            return self._costs_by_parts(starts, reader)[0]
        with memory_reported():
            held: Any = graph if numba else on_gpu(graph)
            if self.method == "delta-stepping":
                found = held.paths(int(starts[0]), bucket_width(graph), self.most)
                cost: Array = held.device.download(found)
                return cost
            nothing = unreached(cost_dtype(graph))
            cost = np.full(graph.vertex_count, nothing)
            cost[starts] = 0
            # A negative cycle is looked for after some rounds, since it would take all n. If there
            # is none, the search goes on from all that is reached.
            rounds = min(ROUNDS, cost.size)
            while not kernel("spread", backend)(held.rows, starts, cost, rounds):
                reached = cost != nothing
                cycle = negative_cycle(graph.rows, reached, cost.dtype)
                if cycle is not None:
                    refuse_cycle(graph, *cycle)
                starts, rounds = np.flatnonzero(reached), cost.size
        return cost

    def _tree_of(self, cost: Array, starts: Integers, reader: PartReader, whole: bool) -> Integers:
        """Return the place in the source of each stored vertex's predecessor."""
        graph = self.graph
        if not whole:
            # Hops along tight arcs, then of the tails one hop nearer the first in the source.
            levels = hop_levels(reader, starts, cost.size, cost)
            return predecessors_from_hops(reader, *levels, cost)
        before = np.full(cost.size, NO_VERTEX, np.int64)
        start = graph.rows.indices.dtype.type(starts[0])
        tight_tree(*graph.rows, graph.position, start, unreached(cost.dtype), cost, before)
        return before

    def _on_gpu(self, starts: npt.NDArray[np.int64]) -> Array:
        """Return the cost from each of several sources to each vertex, searched on a GPU."""
        graph = self.graph
        width, fill = bucket_width(graph), cost_fill(graph)
        found = []
        with memory_reported():
            held = on_gpu(graph)
            for costs in held.paths_from_many(starts, width, self.most):
                if fill is not None:
                    costs[costs == unreached(width.dtype)] = fill
                found.append(held.device.download(costs))
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _columns(
        self, starts: npt.NDArray[np.int64], costs: Array, before: Array
    ) -> tuple[dict[str, Any], Columns]:
        """Return the attributes and columns of the result."""
        columns: Columns = {
            **vertex_columns(self.graph, starts.tolist()),
            "cost": (("source", "vertex"), costs),
        }
        if self.traced:
            columns["predecessor"] = ("source", "vertex"), before
        return {"method": self.method}, columns

    def _order(self, cost: Array, ordered: Array) -> None:
        """Write costs in the order of the source, with the mark of the unreached."""
        nothing, fill = unreached(cost.dtype), cost_fill(self.graph)
        marked = nothing if fill is None else cost.dtype.type(fill)
        order_costs(cost, self.graph.stored, nothing, marked, ordered)

    def _cut(self, cost: Array, before: Array | None) -> None:
        """Mark vertices as unreached whose cost is above the greatest that counts."""
        if self.method == "bellman-ford":
            # This method has no bound while it searches: a later edge may be negative.
            far = cost > self.most
            cost[far] = unreached(cost.dtype)
            if before is not None:
                before[far] = NO_VERTEX


def refuse_cycle(graph: Graph, cycle: list[int], length: float) -> None:
    """Raise `NegativeCycle` for a cycle of stored vertices, which costs become ever less along."""
    places = graph.position[cycle]
    # From its first vertex in the source on, so the error is the same wherever the cycle was found.
    first = int(places.argmin())
    named = graph.ids[np.roll(places, -first)].tolist()
    if length >= 0:
        way = ", ".join(map(str, named[:10]))
        raise InputError(
            f"weight: the cycle {way} has length {length:g}, but rounding makes the path round it "
            "ever shorter; pass integers, in a smaller unit"
        )
    raise NegativeCycle(named, length)


def cost_dtype(graph: Graph) -> np.dtype[Any]:
    """Return the dtype of costs: float64, or int64 for integer weights."""
    return np.dtype(np.float64 if graph.arrays["weight"].dtype.kind == "f" else np.int64)


def bucket_width(graph: Graph) -> Any:
    """Return the bucket width of delta-stepping: four times the mean weight."""
    return cost_dtype(graph).type(WIDTH * graph.mean_weight)


def limit_of(graph: Graph, max_cost: float) -> Any:
    """Return ``max_cost`` in the dtype of costs; vertices beyond it stay unreached."""
    dtype = cost_dtype(graph)
    if dtype.kind == "f":
        return np.float64(max_cost)
    return np.int64(min(math.floor(min(max_cost, MOST_COST)), MOST_COST - 1))


def _check_range(graph: Graph, greatest: float) -> None:
    """Raise InputError if sums of weights may overflow the dtype of costs."""
    dtype, n = cost_dtype(graph), graph.vertex_count
    limit = MOST_COST if dtype.kind == "i" else float(np.finfo(np.float64).max)
    if n * greatest >= limit:
        raise InputError(
            f"weight: paths of {n} vertices and weights up to {greatest:g} may pass {limit:g}, up "
            f"to which costs are exact in {dtype}; pass weights in a larger unit"
        )
