"""The choice of the backend for a question to a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from orograph.execution.backends import choose_backend
from orograph.execution.options import RunSpec, where_to_work
from orograph.execution.settings import setting
from orograph.graphs.device.rows import is_on_gpu, on_gpu
from orograph.kernels.backends import may_use_numba
from orograph.kernels.device import memory_reported, shared_device
from orograph.tiles.graph.graph import Graph

ARC_BYTES, VERTEX_BYTES = 60, 100
"""What a question takes at most on a GPU, with what is kept there."""


class Least(NamedTuple):
    """Arcs of the smallest graph for which a GPU is the faster."""

    uploaded: int
    """If the rows have to be copied there first."""
    held: int
    """If they are there."""


LEAST = {
    "graph_paths": Least(2**18, 2**17),
    "graph_hops": Least(2**19, 2**19),
    "graph_components": Least(2**20, 2**19),
    "graph_forest": Least(2**16, 2**15),
}
"""Measured on an H100, beside one core: see docs/performance.md."""
OF_PARTS = {
    "graph_paths": "near_far",
    "graph_hops": "near_far",
    "graph_components": "graph_parts",
    "graph_forest": "graph_parts",
}
"""What workers do with a part at a time."""


def choose_for_graph(stage: str, graph: Graph, spec: RunSpec) -> str:
    """Return the backend that answers a question to a graph, as `choose_backend` does.

    Workers take a graph in parts by the CPU. ``"auto"`` takes a GPU only if its memory holds the
    graph and it is the faster: by the number of arcs, and by whether a question before has left the
    rows there.
    """
    if graph.part_count > 1 and where_to_work((), spec) is not None:
        return choose_backend(OF_PARTS[stage], (), spec)
    chosen = choose_backend(stage, (), spec)
    if (spec.backend or setting("backend")) != "auto" or may_use_numba(chosen):
        return chosen
    held = is_on_gpu(graph)
    least = LEAST[stage].held if held else LEAST[stage].uploaded
    needed = ARC_BYTES * graph.arc_count + VERTEX_BYTES * graph.vertex_count
    fits = held or needed <= shared_device().free_bytes()
    if graph.arc_count >= least and fits:
        return chosen
    return choose_backend(stage, (), replace(spec, backend="numba"))


def need_both_ways(graph: Graph, operation: str, backend: str) -> None:
    """Raise InputError if any edge of a graph lacks a reverse of equal weight.

    On a GPU this is found from the rows there, and only if not by `Graph.need_both_ways`.
    """
    with memory_reported():
        reversible = not may_use_numba(backend) and on_gpu(graph).reversible
    if not reversible:
        graph.need_both_ways(operation)
