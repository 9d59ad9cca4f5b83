"""The choice of the backend for a question to a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from orograph.arguments.settings import setting
from orograph.graphs.device.rows import is_on_gpu, on_gpu
from orograph.kernels.backends import may_use_numba
from orograph.kernels.device import memory_reported, shared_device
from orograph.run.backends import choose_backend
from orograph.run.options import RunSpec, stays_in_memory, where_to_work
from orograph.tiles.graph.graph import Graph

ARC_BYTES, VERTEX_BYTES = 60, 100
"""Greatest number of bytes of an arc and of a vertex on a GPU during a query, with kept rows."""


class Least(NamedTuple):
    """Arcs of the smallest graph for which a GPU is the faster."""

    uploaded: int
    """Number of arcs from which a GPU is faster if the rows have to be copied there first."""
    held: int
    """Number of arcs from which a GPU is faster if the rows are there already."""


LEAST = {
    "open_part": Least(2**18, 2**17),
    "graph_hops": Least(2**19, 2**19),
    "graph_components": Least(2**20, 2**19),
    "graph_forest": Least(2**16, 2**15),
}
"""Least sizes for a GPU by stage, measured on an H100 against one core; see docs/performance.md."""
OF_PARTS = {
    "graph_hops": "open_part",
    "graph_components": "part_components",
    "graph_forest": "part_forest",
}
"""Stage that workers do with a part at a time, by the stage on a whole graph."""
LEAST_OF_PARTS = 2**20
"""Arcs per part from which GPUs of workers are mostly faster, measured against four cores."""


def choose_for_graph(stage: str, graph: Graph, spec: RunSpec) -> str:
    """Return the backend that answers a question to a graph, as `choose_backend` does.

    ``"auto"`` takes a GPU only if its memory holds the graph and it is the faster: by the number of
    arcs, and by whether a question before has left the rows there. Of workers, which take a part at
    a time, it takes the GPUs if parts are large enough.
    """
    on_workers = graph.part_count > 1 and where_to_work((), spec) is not None
    chosen = choose_backend(OF_PARTS.get(stage, stage) if on_workers else stage, (), spec)
    # A backend that was asked for is taken as it is.
    if (spec.backend or setting("backend")) != "auto" or may_use_numba(chosen):
        return chosen
    if on_workers:
        faster = is_faster_in_parts(graph)
    else:
        held = is_on_gpu(graph)
        least = LEAST[stage].held if held else LEAST[stage].uploaded
        faster = graph.arc_count >= least and fits_on_gpu(graph)
    return chosen if faster else choose_backend(stage, (), replace(spec, backend="numba"))


def is_faster_in_parts(graph: Graph) -> bool:
    """Return whether GPUs of workers, which take a part at a time, are faster than their CPUs."""
    return graph.arc_count >= LEAST_OF_PARTS * graph.part_count


def bytes_on_gpu(graph: Graph) -> int:
    """Return the bytes of GPU memory that a graph and a question to it take."""
    return ARC_BYTES * graph.arc_count + VERTEX_BYTES * graph.vertex_count


def fits_on_gpu(graph: Graph) -> bool:
    """Return whether the memory of this process's GPU holds a graph and what a question takes."""
    return is_on_gpu(graph) or bytes_on_gpu(graph) <= shared_device().free_bytes()


def in_parts(graph: Graph, spec: RunSpec, backend: str) -> bool:
    """Return whether an engine takes a graph a part at a time: on workers, or to a store.

    A GPU of this process takes a graph whole if its memory holds it.
    """
    if graph.part_count == 1:
        return False
    if where_to_work((), spec) is not None:
        return True
    if may_use_numba(backend):
        return not stays_in_memory((), spec)
    return not fits_on_gpu(graph)


def need_both_ways(graph: Graph, operation: str, backend: str) -> None:
    """Raise InputError if any edge of a graph lacks a reverse of equal weight.

    On a GPU this is found from the rows there, and only if not by `Graph.need_both_ways`.
    """
    with memory_reported():
        reversible = not may_use_numba(backend) and on_gpu(graph).reversible
    if not reversible:
        graph.need_both_ways(operation)
