"""Graphs in parts on the GPUs of workers; run by gpu.py.

A worker for each GPU of this machine, the first alone, and CPU workers, take stored graphs part by
part; beside them stands one GPU that holds the whole graph. Graphs are those of gpu_graph.py.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from distributed import Client, LocalCluster
from gpu_graph import lattice, random_graph

import orograph as og
from orograph.tiles.graph import graph as graph_module
from orograph.tiles.graph.graph import Graph
from orograph.tiles.graph.store import write_graph

CPU_WORKERS = 4
QUESTIONS: dict[str, Callable[..., Any]] = {
    "forest": og.minimum_spanning_forest,
    "components": og.connected_components,
    "paths": lambda graph, **options: og.shortest_paths(graph, graph.vertex_count // 2, **options),
    "hops": lambda graph, **options: og.hop_distance(graph, graph.vertex_count // 2, **options),
}


def in_parts(graph: Graph, parts: int) -> Graph:
    """Return the graph in parts of as many vertices."""
    return replace(graph, bounds=tuple(np.linspace(0, graph.vertex_count, parts + 1, dtype=int)))


def graphs(side: int) -> Iterator[tuple[str, Graph]]:
    """Yield lattices, whose parts are strips, and a random graph, by name."""
    large = lattice(side // 2).as_graph()
    yield f"lattice {side // 2}^2", in_parts(large, 4)
    yield f"lattice {side // 2}^2", in_parts(large, 16)
    yield f"lattice {side // 4}^2", in_parts(lattice(side // 4).as_graph(), 16)
    yield "random 2^18", in_parts(random_graph(18, 4).as_graph(), 4)


def clusters(stack: ExitStack, kinds: tuple[str, ...]) -> Iterator[tuple[str, Client]]:
    """Yield clients of clusters by name."""
    count = cupy.cuda.runtime.getDeviceCount()
    if "gpu" in kinds:
        for number in range(1, count + 1):
            yield (
                f"{number} GPUs",
                stack.enter_context(og.cluster(n_workers=number, dashboard_address=None)),
            )
    if "cpu" in kinds:
        workers = stack.enter_context(
            LocalCluster(n_workers=CPU_WORKERS, threads_per_worker=1, dashboard_address=None)
        )
        yield (
            f"{CPU_WORKERS} cores",
            stack.enter_context(Client(workers, set_as_default=False)),
        )


def seconds(call: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """Return the median seconds of some calls after one that does not count, and a result."""
    spent, found = [], None
    for _ in range(repeat + 1):
        begin = time.perf_counter()
        found = call()
        spent.append(time.perf_counter() - begin)
    return statistics.median(spent[1:]), found


def bits(side: int) -> None:
    """Results of GPUs against those of one part by Numba."""
    graph_module.JOINED_ARCS = 0  # small graphs stay in parts
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        clients = list(clusters(stack, ("gpu",)))
        for k, (name, graph) in enumerate(graphs(max(side // 8, 64))):
            stored = write_graph(graph, Path(folder, f"{k}.zarr"))
            for what, ask in QUESTIONS.items():
                expected = ask(replace(graph, bounds=(0, graph.vertex_count)), backend="numba")
                for machine, client in clients:
                    found = ask(stored, backend="cuda", client=client)
                    if not found.equals(expected):
                        raise AssertionError(f"{what}, {name}, {machine}: not the bits of Numba")
            print(f"{name}, {graph.part_count} parts: the bits of Numba", flush=True)


def run(side: int) -> None:
    """Time questions to graphs in parts, on workers with GPUs and on cores."""
    graph_module.JOINED_ARCS = 0
    kinds = tuple(os.environ.get("ORO_BENCH_WORKERS", "gpu cpu").split())
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        clients = list(clusters(stack, kinds))
        for k, (name, graph) in enumerate(graphs(side)):
            stored = write_graph(graph, Path(folder, f"{k}.zarr"))
            for what, ask in QUESTIONS.items():
                took, expected = seconds(partial(ask, stored, backend="cuda"), 1)
                parts = [f"whole on a GPU {took:.3f} s"]
                for machine, client in clients:
                    backend = "cuda" if "GPU" in machine else "numba"
                    took, found = seconds(partial(ask, stored, backend=backend, client=client), 1)
                    parts.append(f"{machine} {took:.3f}")
                    if not found.equals(expected):
                        raise AssertionError(f"{what}, {name}, {machine}: another result")
                print(
                    f"{what}, {name}, {graph.vertex_count} vertices, {graph.arc_count} arcs, "
                    f"{graph.part_count} parts: {', '.join(parts)}",
                    flush=True,
                )
