"""Connected components of a graph in memory."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np

from orograph.graphs.columns import Columns, vertex_columns
from orograph.graphs.components_sweep import GraphComponents
from orograph.graphs.device.choice import choose_for_graph, in_parts, need_both_ways
from orograph.graphs.device.rows import on_gpu
from orograph.graphs.job import GraphJob, graph_job, search_job, sweep_job
from orograph.graphs.part_search import PartReader
from orograph.kernels.backends import may_use_numba
from orograph.kernels.device import memory_reported
from orograph.kernels.graph.components import graph_components, join_parts, number_components
from orograph.run.options import RunSpec
from orograph.tiles.graph.graph import Graph

if TYPE_CHECKING:
    from orograph.tiles.arrays import Array


def components_job(graph: Graph, spec: RunSpec) -> GraphJob:
    """Return the job that labels the connected components of a graph.

    It gives ``labels`` (vertex) and ``component_size`` (component). Components are
    numbered from 1 by their first vertex in the source.
    """
    graph = graph.joined()
    chosen = choose_for_graph("graph_components", graph, spec)
    engine = in_parts(graph, spec, chosen)
    need_both_ways(graph, "connected components", "numba" if engine else chosen)

    if engine or (graph.part_count > 1 and may_use_numba(chosen)):
        if engine:
            return sweep_job(graph, GraphComponents(graph.bounds, chosen), {}, spec)

        def join(backend: str, cancelled: Event) -> tuple[dict[str, Any], Columns]:
            reader = PartReader(graph, cancelled, weighted=False)
            root = np.empty(graph.vertex_count, graph.arrays["indices"].dtype)
            join_parts(reader.heads(), root)
            return number(graph, root)

        return search_job(graph, "graph-components", {}, chosen, spec, join)

    def solve(backend: str) -> tuple[dict[str, Any], Columns]:
        if not may_use_numba(backend):
            with memory_reported():
                return result(graph, *on_gpu(graph).components())
        return number(graph, graph_components(graph.rows))

    return graph_job(graph, "graph-components", {}, chosen, spec, solve)


def number(graph: Graph, root: Array) -> tuple[dict[str, Any], Columns]:
    """Number the components from 1; return result attributes and columns."""
    labels = np.empty(graph.vertex_count, np.int64)
    return result(graph, labels, number_components(root, graph.stored, labels))


def result(graph: Graph, labels: Any, size: Any) -> tuple[dict[str, Any], Columns]:
    """Return result attributes and columns of numbered components."""
    columns: Columns = {
        **vertex_columns(graph),
        "labels": (("vertex",), labels),
        "component_size": (("component",), size),
    }
    return {"component_count": size.size}, columns
