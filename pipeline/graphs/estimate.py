"""Estimate tasks, memory and disk of graph operations; see `Operation.plan`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from orograph.graphs.device.choice import LEAST, bytes_on_gpu, is_faster_in_parts
from orograph.plans.grid import Gpus, Grid, memory_of_tasks
from orograph.plans.plan import (
    CLIENT_BYTES,
    GPU_CONTEXT_BYTES,
    GPU_WORKER_BYTES,
    WORKER_BYTES,
    Plan,
)
from orograph.tiles.arguments import check_flag
from orograph.tiles.graph.graph import Graph, VerticesLike
from orograph.tiles.store.create import Layout
from orograph.tiles.system import cores

ROWS = "indptr", "indices", "weight"
SWEPT_ARC = 100
"""Bytes that a task of the sweep takes for an arc of its part, in columns of 64 bits."""


@dataclass(frozen=True)
class GraphPlan(Plan):
    """Plan of a run on a graph; ``shape`` is (vertices, 1), ``tiles`` counts parts.

    Attributes
    ----------
    arcs
        Arcs of the graph: an undirected edge is two.
    """

    arcs: int = 0

    def _head(self) -> list[str]:
        """Return the first lines of the printed plan: operation, vertices, arcs and parts."""
        return [
            f"{self.operation} of {self.shape[0]} vertices and {self.arcs} arcs",
            f"  {self.tiles} part{'s' * (self.tiles > 1)}",
        ]


def estimate_paths(
    graph: Graph,
    *,
    workers: int,
    sources: VerticesLike | None = None,
    predecessors: bool = False,
    gpus: Gpus | None = None,
) -> GraphPlan:
    """Return the plan of `shortest_paths`, from one source if none are given."""
    graph = graph.joined()
    plan = _paths(graph, workers, sources, predecessors)
    return _with_gpus(plan, "open_part", graph, gpus)


def _paths(
    graph: Graph, workers: int, sources: VerticesLike | None, predecessors: bool
) -> GraphPlan:
    """Return the plan of `shortest_paths` on CPUs."""
    count = 1 if sources is None else graph.vertices(sources, "sources").size
    traced = check_flag("predecessors", predecessors)
    n = graph.vertex_count
    arcs = _bytes(graph, *ROWS)
    if graph.part_count > 1 and not traced:
        return _by_parts("shortest_paths", graph, workers, count, 8 * count * n)
    if graph.part_count > 1:
        return _a_part_at_a_time("shortest_paths", graph, workers, count, 8 + 8 * traced)
    searches = min(cores(), count)
    # cost, place in a heap or in two lists, and what has gone into the result twice
    own = arcs + 25 * n * searches + 2 * count * n * 8 * (1 + traced)
    return _in_this_process("shortest_paths", graph, workers, own, count * n * 8 * (1 + traced))


def estimate_hops(
    graph: Graph, *, workers: int, predecessors: bool = False, gpus: Gpus | None = None
) -> GraphPlan:
    """Return the plan of `hop_distance` on a graph."""
    graph = graph.joined()
    return _with_gpus(_hops(graph, workers, predecessors), "graph_hops", graph, gpus)


def _hops(graph: Graph, workers: int, predecessors: bool) -> GraphPlan:
    """Return the plan of `hop_distance` on CPUs."""
    traced = check_flag("predecessors", predecessors)
    written = graph.vertex_count * (4 + 8 * traced)
    if graph.part_count > 1 and not traced:
        return _by_parts("hop_distance", graph, workers, 1, written)
    if graph.part_count > 1:
        return _a_part_at_a_time("hop_distance", graph, workers, 1, 4 + 8 * traced)
    own = _bytes(graph, *ROWS) + 2 * written + 12 * graph.vertex_count
    return _in_this_process("hop_distance", graph, workers, own, written)


def estimate_connected(graph: Graph, *, workers: int, gpus: Gpus | None = None) -> GraphPlan:
    """Return the plan of `is_connected` on a graph; on a GPU, with ``backend="cuda"``."""
    rows = _bytes(graph, *ROWS) * (2 if graph.directed else 1) + 12 * graph.arc_count
    own = rows + 16 * graph.vertex_count
    plan = _in_this_process("is_connected", graph, workers, own, 0)
    return plan if gpus is None else replace(plan, memory_gpu=_gpu_bytes(graph))


def estimate_components(
    graph: Graph, *, workers: int, threads: int = 0, gpus: Gpus | None = None
) -> GraphPlan:
    """Return the plan of `connected_components` on a graph."""
    graph = graph.joined()
    n = graph.vertex_count
    own = _bytes(graph, *ROWS) + _both_ways(graph) + 40 * n
    plan = _swept("connected_components", graph, workers, threads, own, 8 * n)
    return _with_gpus(plan, "graph_components", graph, gpus)


def estimate_forest(
    graph: Graph, *, workers: int, threads: int = 0, gpus: Gpus | None = None
) -> GraphPlan:
    """Return the plan of `minimum_spanning_forest` on a graph."""
    graph = graph.joined()
    own = _bytes(graph, *ROWS, "edge") + _both_ways(graph)
    own += 8 * graph.arc_count + 32 * graph.vertex_count + 2 * graph.edge_count
    plan = _swept("minimum_spanning_forest", graph, workers, threads, own, graph.edge_count)
    return _with_gpus(plan, "graph_forest", graph, gpus)


def _with_gpus(plan: GraphPlan, stage: str, graph: Graph, gpus: Gpus | None) -> GraphPlan:
    """Return a plan with the GPU memory that a run takes where it chooses a GPU."""
    if gpus is None:
        return plan
    if graph.part_count > 1 and gpus.worker_memory:
        faster, workers = is_faster_in_parts(graph), min(plan.workers, graph.part_count)
    else:
        fits = bytes_on_gpu(graph) <= gpus.free
        faster, workers = fits and graph.arc_count >= LEAST[stage].uploaded, 1
    if not faster:
        return plan
    worker = plan.memory_per_worker + GPU_WORKER_BYTES - WORKER_BYTES
    return replace(plan, memory_gpu=_gpu_bytes(graph, workers), memory_per_worker=worker)


def _gpu_bytes(graph: Graph, workers: int = 1) -> int:
    """Return the bytes of each GPU that take a graph together."""
    return GPU_CONTEXT_BYTES + -(-bytes_on_gpu(graph) // workers)


def _bytes(graph: Graph, *names: str) -> int:
    """Return the total bytes of some arrays of a graph, in memory or stored."""
    arrays = (graph.arrays[name] for name in names)
    return sum(int(np.prod(array.shape)) * array.dtype.itemsize for array in arrays)


def _both_ways(graph: Graph) -> int:
    """Return the bytes needed to check that each edge of a directed graph has its reverse."""
    return 40 * graph.arc_count if graph.directed else 0


def _in_this_process(
    operation: str, graph: Graph, workers: int, own: int, written: int
) -> GraphPlan:
    """Return the plan of an operation that this process does without workers."""
    places = 16 * graph.vertex_count  # where each vertex stands, and where it is stored
    return _plan(operation, graph, workers, 1, WORKER_BYTES, own + places, written, 0)


def _by_parts(operation: str, graph: Graph, workers: int, sources: int, written: int) -> GraphPlan:
    """Return the plan of delta-stepping over parts, each worker holding at least one."""
    n, parts = graph.vertex_count, graph.part_count
    per_worker = WORKER_BYTES + (SWEPT_ARC * graph.arc_count + 24 * sources * n) // parts
    # costs as parts and as one, and what goes along links: of all arcs at the most
    client = 24 * sources * n + (56 + 8 * sources) * graph.arc_count
    states = 16 * sources * n  # of parts that a worker has no room for, and as they are handed over
    return _plan(operation, graph, workers, 2 * parts, per_worker, client, written, states)


def _a_part_at_a_time(
    operation: str, graph: Graph, workers: int, sources: int, written: int
) -> GraphPlan:
    """Return the plan of a search that this process does with a part at a time.

    ``written`` are bytes a vertex and source. A stored graph takes more, as far as there is room.
    """
    n, parts = graph.vertex_count, graph.part_count
    part = -(-_bytes(graph, *ROWS) // parts)
    # costs, what waits, hops and what waits for them, and what has gone into the result twice
    own = part + (32 + 2 * written) * sources * n
    return _in_this_process(operation, graph, workers, own, written * sources * n)


def _swept(
    operation: str, graph: Graph, workers: int, threads: int, own: int, written: int
) -> GraphPlan:
    """Return the plan of a sweep over parts, or of one in-memory step for a single part.

    ``threads`` are those of one process, and count without workers.
    """
    if graph.part_count == 1:
        return _in_this_process(operation, graph, workers, own, written)
    on_cluster = 0 if threads else workers
    grid = Grid((1, graph.part_count), np.dtype(np.int64), Layout(1, 1), on_cluster)
    tasks = grid.tasks_of_sweep
    per_worker = WORKER_BYTES + SWEPT_ARC * -(-graph.arc_count // graph.part_count)
    # saved states, and the summaries that join at a node, of all arcs at the most
    states = 40 * graph.arc_count
    client = memory_of_tasks(tasks, workers) + 2 * written + _both_ways(graph)
    return _plan(operation, graph, workers, tasks, per_worker, client, written, states)


def _plan(
    operation: str,
    graph: Graph,
    workers: int,
    tasks: int,
    per_worker: int,
    client: int,
    written: int,
    checkpoints: int,
) -> GraphPlan:
    vertices = int(np.diff(graph.bounds).max(initial=0))
    return GraphPlan(
        operation=operation,
        shape=(graph.vertex_count, 1),
        tile=vertices,
        shard=vertices,
        tiles=graph.part_count,
        tasks=tasks,
        memory_per_worker=per_worker,
        memory_client=CLIENT_BYTES + client,
        bytes_read=_bytes(graph, *ROWS, "edge", "position"),
        bytes_written=written,
        bytes_checkpoints=checkpoints,
        workers=workers,
        arcs=graph.arc_count,
    )
