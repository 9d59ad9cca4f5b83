"""Minimum spanning forest of a graph in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.graphs.columns import Columns
from orograph.graphs.device.choice import choose_for_graph, in_parts, need_both_ways
from orograph.graphs.device.rows import on_gpu
from orograph.graphs.forest_sweep import GraphForest
from orograph.graphs.job import GraphJob, graph_job, sweep_job
from orograph.kernels.backends import may_use_numba
from orograph.kernels.device import memory_reported
from orograph.kernels.forest.exact_sum import exact_float, exact_sum
from orograph.kernels.graph.forest import mark_edges, spanning_forest
from orograph.run.options import RunSpec
from orograph.tiles.graph.graph import Graph


def forest_job(graph: Graph, spec: RunSpec) -> GraphJob:
    """Return the job that marks which edges are in the minimum spanning forest of a graph.

    Edges are ordered by weight, then by their number in the source, so the forest is unique.
    """
    graph = graph.joined()
    chosen = choose_for_graph("graph_forest", graph, spec)
    of_parts = (graph.part_count > 1 and may_use_numba(chosen)) or in_parts(graph, spec, chosen)
    need_both_ways(graph, "a minimum spanning forest", "numba" if of_parts else chosen)

    if of_parts:
        problem = GraphForest(graph.bounds, graph.edge_count, chosen)
        return sweep_job(graph.with_both_ways(), problem, {}, spec)

    def solve(backend: str) -> tuple[dict[str, Any], Columns]:
        if not may_use_numba(backend):
            with memory_reported():
                in_forest, weights = on_gpu(graph).forest(graph.edge_count)
        else:
            arcs = spanning_forest(*graph.rows, graph.edge_both_ways)
            in_forest = np.zeros(graph.edge_count, np.bool_)
            mark_edges(graph.edge_both_ways, arcs, in_forest)
            weights = graph.rows.weight.take(arcs)
        attributes = forest_attributes(graph, weights.size, total_weight(weights))
        return attributes, {"in_forest": (("edge",), in_forest)}

    return graph_job(graph, "graph-forest", {}, chosen, spec, solve)


def forest_attributes(graph: Graph, edges: int, total: float) -> dict[str, Any]:
    """Return the result attributes: total weight, and numbers of vertices, edges and trees."""
    return {
        "total_weight": total,
        "vertex_count": graph.vertex_count,
        "edge_count": edges,
        "tree_count": graph.vertex_count - edges,
    }


def total_weight(weight: npt.NDArray[Any]) -> float:
    """Return the exact sum of weights as a float, rounded once."""
    if weight.dtype.kind == "f":
        return exact_float(exact_sum(weight))
    if weight.itemsize < 8:
        return float(weight.sum(dtype=np.int64))
    # In two halves, whose sums fit into 64 bits.
    high, low = weight.astype(np.int64) >> 30, weight & (2**30 - 1)
    return float((int(high.sum()) << 30) + int(low.sum(dtype=np.int64)))
