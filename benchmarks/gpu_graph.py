"""Kernels for graphs on a GPU, and papers/bellman_ford.cu; run by gpu.py.

New York of a folder of data (../shared/data, or that of ORO_TEST_DATA), a Kronecker graph of 2**20
vertices and 16 edges a vertex, a random one of 2**22 and 4, and a square lattice of twice the side,
2**24 vertices by default, whose edges have random weights. Peers were measured on these four.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import cupy
import numpy as np
from device_time import TimedDevice, milliseconds
from papers import bellman_ford_cuda
from papers.bellman_ford import STRATEGIES

import orograph as og
from orograph.graphs.device import rows as device_rows
from orograph.graphs.shortest_paths import WIDTH
from orograph.kernels.device_rows import DeviceRows
from orograph.kernels.graph import (
    components,
    components_cuda,
    forest,
    forest_cuda,
    hops,
    near_far,
    near_far_cuda,
)
from orograph.tiles.graph.graph import Graph
from orograph.tiles.graph.read import read_graph

NEW_YORK = "graphs/USA-road-d.NY.gr.xz"
WEIGHTS = 10_000
NO_COST = 2**60


class Network(NamedTuple):
    """Rows of an undirected graph on the device, and the number of each arc's edge."""

    rows: DeviceRows
    edge: cupy.ndarray
    start: int

    def on_host(self) -> tuple[np.ndarray, ...]:
        """Return indptr, indices, weight and edge."""
        parts = self.rows.indptr, self.rows.indices, self.rows.weight, self.edge
        return tuple(part.get() for part in parts)

    def as_graph(self) -> Graph:
        """Return the graph in memory, with vertices stored as they are."""
        arrays = dict(zip(("indptr", "indices", "weight", "edge"), self.on_host(), strict=True))
        arrays["position"] = arrays["ids"] = np.arange(self.rows.n)
        return Graph(arrays, False, int(self.edge.max()) + 1, (0, self.rows.n))


def network(tail: cupy.ndarray, head: cupy.ndarray, n: int, start: int | None) -> Network:
    """Return the graph of edges between n vertices, with random weights; loops are left out."""
    different = tail != head
    tail, head = tail[different].astype(cupy.uint64), head[different].astype(cupy.uint64)
    arcs = cupy.concatenate([tail << np.uint64(32) | head, head << np.uint64(32) | tail])
    weight = cupy.random.default_rng(1).integers(1, WEIGHTS, tail.size).astype(cupy.int32)
    order = cupy.argsort(arcs)
    arcs = arcs[order]
    edge = (order % tail.size).astype(cupy.uint32)
    indptr = cupy.searchsorted(arcs, cupy.arange(n + 1, dtype=cupy.uint64) << np.uint64(32))
    heads = (arcs & np.uint64(2**32 - 1)).astype(cupy.uint32)
    if start is None:
        start = int(cupy.diff(indptr).argmax())
    rows = DeviceRows(TimedDevice(), indptr.astype(cupy.uint32), heads, weight[edge])
    return Network(rows, edge, start)


def lattice(side: int) -> Network:
    """Return a square lattice; paths begin in its middle."""
    vertex = cupy.arange(side * side).reshape(side, side)
    tail = cupy.concatenate([vertex[:, :-1].ravel(), vertex[:-1].ravel()])
    head = cupy.concatenate([vertex[:, 1:].ravel(), vertex[1:].ravel()])
    return network(tail, head, side * side, side * side // 2 + side // 2)


def random_graph(scale: int, edges: int) -> Network:
    """Return a graph with this many edges a vertex between random vertices."""
    n = 2**scale
    ends = cupy.random.default_rng(scale).integers(0, n, (2, edges * n))
    return network(*ends, n, 0)


def kronecker(scale: int, edges: int) -> Network:
    """Return the graph of the Graph500 benchmark; paths begin at the vertex of most arcs."""
    n = 2**scale
    rng = cupy.random.default_rng(scale)
    tail, head = cupy.zeros((2, edges * n), cupy.int64)
    for bit in range(scale):
        first = rng.random(edges * n) > 0.76
        second = rng.random(edges * n) > cupy.where(first, 0.24 / 0.48, 0.57 / 0.76)
        tail |= first.astype(cupy.int64) << bit
        head |= second.astype(cupy.int64) << bit
    order = cupy.random.RandomState(scale).permutation(n)
    return network(order[tail], order[head], n, None)


def new_york() -> Iterator[Graph]:
    """Yield the graph, if it is at hand."""
    default = Path(__file__).parents[1] / ".." / "shared" / "data"
    path = Path(os.environ.get("ORO_TEST_DATA", default)) / NEW_YORK
    if path.is_file():
        yield read_graph(path)


def networks(side: int, scale: int = 22) -> Iterator[tuple[str, Network]]:
    """Yield the four graphs by name; the random one has 2**scale vertices."""
    for graph in new_york():
        rows = TimedDevice(), *(cupy.asarray(part) for part in graph.rows)
        edge = cupy.asarray(graph.edge_both_ways)
        yield "New York", Network(DeviceRows(*rows), edge, int(graph.stored[0]))
    yield f"Kronecker 2^{scale - 2}", kronecker(scale - 2, 16)
    yield f"random 2^{scale}", random_graph(scale, 4)
    yield f"lattice {side // 2}^2", lattice(side // 2)


def bucket_width(rows: DeviceRows) -> Any:
    """Return the width of buckets that the operation takes."""
    return np.int64(WIDTH * float(rows.weight.mean(dtype=np.float64)))


def same(what: str, found: np.ndarray, expected: np.ndarray) -> None:
    """Raise unless two arrays are equal."""
    if not np.array_equal(found, expected):
        raise AssertionError(f"{what}: {(found != expected).sum()} entries differ")


def bits(side: int) -> None:
    """Forests, components, costs and hops against the Numba kernels."""
    for name, graph in (*networks(side, 18), ("random 2^16", random_graph(16, 2))):
        indptr, indices, weight, edge = graph.on_host()
        for dtype in (np.int32, np.float64):
            weights = weight if dtype == np.int32 else weight / 7
            rows = replace(graph.rows, weight=cupy.asarray(weights))
            host = indptr, indices, weights
            arcs = forest_cuda.forest_on_device(rows, graph.edge).get()
            expected = forest.spanning_forest(*host, edge)
            same(f"{name}, forest", np.sort(edge[arcs]), np.sort(edge[expected]))
            kind = np.dtype(np.float64 if dtype == np.float64 else np.int64)
            width = kind.type(WIDTH * weights.mean())
            none = near_far.unreached(kind)
            zero = np.zeros(1, kind)
            found = near_far_cuda.search(rows, np.array([graph.start]), zero, width, none).get()
            part = near_far.HostPart(host, rows.n, [np.array([graph.start])], kind, width, none)
            part.go_on(0, zero[:0].astype(np.int64), zero[:0], none)
            expected = part.cost[0]
            same(f"{name}, costs", found.view(np.int64), expected.view(np.int64))
            if is_dense(graph):  # others take thousands of rounds
                for strategy in STRATEGIES:
                    found = bellman_ford(graph._replace(rows=rows), strategy)
                    same(f"{name}, {strategy}", found.view(np.int64), expected.view(np.int64))
        starts = np.array([graph.start])
        found = near_far_cuda.hops_on_device(rows, starts, rows.n).get()
        same(f"{name}, hops", found, hops.graph_hops(host, starts, rows.n))
        same(f"{name}, between two", between(graph), between_on_host(graph))
        root = components_cuda.components_on_device(rows).get()
        same(f"{name}, components", root, components.graph_components(host))
        print(f"{name}, {rows.n} vertices: the bits of Numba", flush=True)


def is_dense(graph: Network) -> bool:
    """Return whether paths of few edges lead everywhere."""
    return graph.rows.arcs > near_far_cuda.SPARSE * graph.rows.n


def bellman_ford(graph: Network, strategy: str) -> np.ndarray:
    """Return the cost of each vertex from the start; arcs that leave it mirror those that enter."""
    kind = np.dtype(np.float64 if graph.rows.weight.dtype.kind == "f" else np.int64)
    cost = np.full(graph.rows.n, near_far.unreached(kind))
    cost[graph.start] = 0
    bellman_ford_cuda.bellman_ford(graph.rows, cost, strategy)
    return cost


def between(graph: Network) -> np.ndarray:
    """Return the shortest path from the start to the last vertex, found on the device."""
    rows, position = graph.rows, cupy.arange(graph.rows.n, dtype=graph.rows.word)
    return near_far_cuda.between(rows, rows, position, graph.start, rows.n - 1)


def between_on_host(graph: Network) -> np.ndarray:
    """Return the same path, by Numba."""
    n, (indptr, indices, *_) = graph.rows.n, graph.on_host()
    seen, queues = np.full((2, n), -1, np.int32), np.empty((2, n), indices.dtype)
    both = indptr, indices, indptr, indices
    return hops.between(*both, np.arange(n), graph.start, n - 1, *seen, *queues)


def wall(call: Callable[[], Any], repeat: int = 7) -> list[float]:
    """Return the milliseconds of each call, the first first; the device is done then."""
    spent = []
    for _ in range(repeat + 1):
        begin = time.perf_counter()
        call()
        cupy.cuda.Device().synchronize()
        spent.append(1e3 * (time.perf_counter() - begin))
    return spent


def kernels_of(graph: Network) -> dict[str, Callable[[], Any]]:
    """Return the calls that answer each question on the device."""
    starts, zero = np.array([graph.start]), np.zeros(1, np.int64)
    width = bucket_width(graph.rows)
    calls: dict[str, Callable[[], Any]] = {
        "forest": partial(forest_cuda.forest_on_device, graph.rows, graph.edge),
        "components": partial(components_cuda.components_on_device, graph.rows),
        "paths": partial(near_far_cuda.search, graph.rows, starts, zero, width, NO_COST),
        "hops": partial(near_far_cuda.hops_on_device, graph.rows, starts, graph.rows.n),
        "between two": partial(between, graph),
    }
    if is_dense(graph):  # with copies of costs to the device and back
        for strategy in STRATEGIES:
            calls[f"Bellman-Ford by {strategy}"] = partial(bellman_ford, graph, strategy)
    return calls


def speed(side: int) -> None:
    """Questions to graphs that the device holds."""
    for name, graph in networks(side):
        for what, call in kernels_of(graph).items():
            spent = milliseconds(call, repeat=9)
            print(
                f"{what}, {name}, {graph.rows.n} vertices, {graph.rows.arcs} arcs: "
                f"{statistics.median(spent):.3f} ms ({spent[0]:.3f}-{spent[-1]:.3f})",
                flush=True,
            )
            with graph.rows.device.by_kernel(f"{what}, {name}"):
                call()


def run(side: int) -> None:
    """Operations on a graph in memory: on the GPU, first and later calls, on the CPU, and auto."""
    graphs: list[tuple[str, Graph]] = [("New York", graph) for graph in new_york()]
    graphs += [("Kronecker 2^18", kronecker(18, 16).as_graph())]
    for n in (64, 128, 256, 512, side // 8, side // 4, side // 2):
        graphs.append((f"lattice {n}^2", lattice(n).as_graph()))
    for name, graph in graphs:
        first = graph.ids[graph.vertex_count // 2].item()
        repeat = 7 if graph.vertex_count < 2**22 else 0
        for what, call in {
            "paths": partial(og.shortest_paths, graph, first),
            "hops": partial(og.hop_distance, graph, first),
            "components": partial(og.connected_components, graph),
            "forest": partial(og.minimum_spanning_forest, graph),
        }.items():

            def upload(call: Callable[..., Any] = call) -> None:
                device_rows.forget_all()
                call(backend="cuda")

            uploads = wall(upload, min(repeat, 3))[-1:]
            numba, cuda, auto = (
                statistics.median(wall(partial(call, backend=backend), many)[-max(many, 1) :])
                for backend, many in (("numba", repeat), ("cuda", 7), ("auto", max(repeat, 1)))
            )
            print(
                f"{what}, {name}, {graph.vertex_count} vertices, {graph.arc_count} arcs: CUDA with "
                f"upload {uploads[0]:.2f} ms, without {cuda:.2f}, Numba {numba:.2f}, auto "
                f"{auto:.2f}",
                flush=True,
            )
