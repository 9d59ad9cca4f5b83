"""Hop counts in a graph from the nearest source, and shortest paths between pairs of vertices."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np

from orograph.graphs.columns import Columns, vertex_columns
from orograph.graphs.device.choice import choose_for_graph, in_parts
from orograph.graphs.device.rows import on_gpu
from orograph.graphs.job import GraphJob, parts_job, search_job
from orograph.graphs.part_search import PartReader, hop_levels, predecessors_from_hops
from orograph.graphs.path_frontier import PartHops, PartRows, links_between
from orograph.graphs.unreached import NO_HOPS, NO_VERTEX
from orograph.kernels.backends import may_use_numba
from orograph.kernels.device import memory_reported
from orograph.kernels.graph.hops import graph_between, graph_hops, level_predecessors
from orograph.results.paths import LeastCostPath
from orograph.run.options import RunSpec
from orograph.tiles.errors import InputError
from orograph.tiles.graph.graph import Graph, VerticesLike

if TYPE_CHECKING:
    from orograph.tiles.arrays import Integers


def hops_job(
    graph: Graph, sources: VerticesLike, most: int | None, traced: bool, spec: RunSpec
) -> GraphJob:
    """Return the job that counts hops from the nearest source, with predecessors if requested."""
    graph = graph.joined()
    starts = graph.vertices(sources, "sources")
    chosen = choose_for_graph("graph_hops", graph, spec)
    limit = graph.vertex_count if most is None else int(most)
    parameters = {"sources": starts.tolist(), "max_hops": limit, "predecessors": bool(traced)}

    def by_parts(reader: PartReader) -> tuple[Any, Any]:
        levels, nothing = hop_levels(reader, starts, limit)
        before = predecessors_from_hops(reader, levels, nothing, None) if traced else None
        return levels.view(f"i{levels.itemsize}"), before  # what stands for none becomes -1

    def in_one(backend: str) -> tuple[Any, Any]:
        if may_use_numba(backend):
            found = graph_hops(graph.rows, starts, limit)
        else:
            with memory_reported():
                held = on_gpu(graph)
                found = held.device.download(held.hops(starts, limit))
        if not traced:
            return found, None
        before = np.full(found.size, NO_VERTEX, np.int64)
        level_predecessors(*graph.rows[:2], graph.position, found, before)
        return found, before

    def solve(backend: str, cancelled: Event) -> tuple[dict[str, Any], Columns]:
        if graph.part_count > 1 and may_use_numba(backend):
            found, before = by_parts(PartReader(graph, cancelled, weighted=False))
        else:
            found, before = in_one(backend)
        hops = np.take(found, graph.stored, mode="clip")  # without a copy
        columns: Columns = {**vertex_columns(graph), "hops": (("vertex",), hops)}
        if before is not None:
            columns["predecessor"] = ("vertex",), before[graph.stored]
        reached = int(np.count_nonzero(found >= 0))
        return {"reached_vertices": reached, "unreached_vertices": found.size - reached}, columns

    if in_parts(graph, spec, chosen) and not traced:
        # Hops are costs of which each arc has 1, so buckets are as wide as that.
        one = np.int64(1)
        problem = PartHops(
            graph.bounds, (tuple(starts.tolist()),), np.dtype(np.int64), one,
            one * min(limit, graph.vertex_count), chosen, NO_HOPS, links=links_between(graph),
        )  # fmt: skip
        return parts_job(graph, parameters, spec, problem, (PartRows(graph, unweighted=True),))
    return search_job(graph, "graph-hops", parameters, chosen, spec, solve)


def pairs_of(graph: Graph, s: VerticesLike, t: VerticesLike) -> Integers:
    """Return pairs of vertex ids as an array (n, 2) of stored vertex numbers."""
    first, second = graph.vertices(s, "s"), graph.vertices(t, "t")
    if 1 not in (first.size, second.size) and first.size != second.size:
        raise InputError(
            f"s, t: {first.size} and {second.size} vertices; give as many of each, or one of one"
        )
    return np.stack(np.broadcast_arrays(first, second), axis=1)


def ways_between(graph: Graph, pairs: Integers, backend: str) -> list[LeastCostPath | None]:
    """Return a shortest path for each pair of stored vertices, or None if there is none.

    Its ``cells`` are ids, its ``coordinates`` those of the vertices, as far as they are known.
    """
    known = list(graph.coordinates.values())
    ways: list[LeastCostPath | None] = []
    if may_use_numba(backend):
        found = graph_between(graph.rows, graph.incoming, graph.position, pairs)
    else:
        found = on_gpu(graph).between(pairs)
    for way in found:
        places = graph.position[way]
        points = np.stack([axis[places] for axis in known], 1) if known else np.empty((way.size, 0))
        path = LeastCostPath(graph.ids[places], points, float(way.size - 1))
        ways.append(path if way.size else None)
    return ways
