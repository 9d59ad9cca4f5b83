"""forest.cu and spread.cu of graphs on a GPU; run by gpu.py.

Lattices some of whose edges are missing, with random weights, stand for planar graphs and road
networks; the side is twice that of the largest. The New York of a folder of data, ../shared/data or
that of ORO_TEST_DATA, is searched too.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import cupy
import numpy as np
from device_time import TimedDevice, milliseconds

import orograph as og
from orograph.kernels.graph import forest, forest_cuda, hops, near_far, spread, spread_cuda
from orograph.tiles.graph.graph import Graph, make_graph
from orograph.tiles.graph.read import read_graph

ROADS = 512
"""Side of a lattice as large as New York."""
NEW_YORK = "graphs/USA-road-d.NY.gr.xz"


class Rows(NamedTuple):
    """Rows of an undirected graph, and the number of each arc's edge."""

    indptr: np.ndarray
    indices: np.ndarray
    weight: np.ndarray
    edge: np.ndarray


def lattice(side: int, kept: float, dtype: str = "int32") -> Rows:
    """Return a square lattice of which this share of edges is there."""
    rng = np.random.default_rng(side)
    right, down = rng.random((2, side, side), np.float32) < kept
    right[:, -1] = down[-1] = False
    numbers = np.cumsum([right, down], dtype=np.uint32).reshape(2, side, side) - 1
    weights = rng.integers(1, 10_000, int(numbers[1, -1, -1]) + 1).astype(dtype)
    weights = weights / 7 if dtype == "float64" else weights
    up, left = np.roll(down, 1, axis=0), np.roll(right, 1, axis=1)
    there = np.stack([up, left, right, down], axis=-1)
    edge = [np.roll(numbers[1], 1, 0), np.roll(numbers[0], 1, 1), *numbers]
    edge = np.stack(edge, axis=-1)[there]
    vertex = np.arange(side * side, dtype=np.int32).reshape(side, side, 1)
    heads = (vertex + np.array([-side, -1, 1, side], np.int32))[there].astype(np.uint32)
    indptr = np.zeros(side * side + 1, np.uint32)
    np.cumsum(there.sum(axis=-1), out=indptr[1:])
    return Rows(indptr, heads, weights[edge], edge)


def new_york() -> Iterator[tuple[str, Graph]]:
    """Yield the graph, if it is at hand."""
    default = Path(__file__).parents[1] / ".." / "shared" / "data"
    path = Path(os.environ.get("ORO_TEST_DATA", default)) / NEW_YORK
    if path.is_file():
        yield "New York", read_graph(path)


def costs(rows: Rows, start: int) -> np.ndarray:
    """Return the costs before a search."""
    dtype = np.dtype(np.float64 if rows.weight.dtype.kind == "f" else np.int64)
    cost = np.full(rows.indptr.size - 1, spread.unreached(dtype))
    cost[start] = 0
    return cost


def same(what: str, found: np.ndarray, expected: np.ndarray) -> None:
    """Raise unless two arrays have the same bits."""
    if found.tobytes() != expected.tobytes():
        raise AssertionError(f"{what}: {(found != expected).sum()} entries differ")


def bits(side: int) -> None:
    """Forests, costs and hops against the Numba kernels."""
    for dtype in ("int32", "int64", "float64"):
        rows = lattice(side // 4, 0.75, dtype)
        expected = np.sort(rows.edge[forest.spanning_forest(*rows)])
        same("forest", np.sort(rows.edge[forest_cuda.spanning_forest(*rows)]), expected)
        start = np.array([rows.indptr.size // 2])
        cost, found = costs(rows, start[0]), costs(rows, start[0])
        nothing, width = spread.unreached(cost.dtype), cost.dtype.type(3 * rows.weight.mean())
        far = np.full(cost.size + 1, start[0], rows.indices.dtype)
        near_far.near_far(*rows[:3], far, 1, width, nothing, nothing, nothing, cost)
        if not spread_cuda.spread(rows[:3], start, found, "active", cost.size):
            raise AssertionError("the search does not end")
        same("costs", found, cost)
        levels = hops.graph_hops(rows[:3], start, cost.size)
        same("hops", spread_cuda.graph_hops(rows[:3], start, cost.size), levels)
        print(f"{dtype}: forest, costs and hops of {cost.size} vertices, the bits of Numba")


def wall(call: Callable[[], Any], repeat: int = 7) -> list[float]:
    """Return the milliseconds of each call but the first, sorted; the device is done then."""
    spent = []
    for _ in range(repeat + 1):
        begin = time.perf_counter()
        call()
        cupy.cuda.Device().synchronize()
        spent.append(1e3 * (time.perf_counter() - begin))
    return sorted(spent[1:])


def speed(side: int) -> None:
    """Forests of what the device holds; whole searches, with the copies there and back."""
    device = TimedDevice()
    for kept in (1.0, 0.75):
        rows = lattice(side // 2, kept)
        n = rows.indptr.size - 1
        on_device = [device.upload(part) for part in rows]
        call = partial(forest_cuda.forest_on_device, device, *on_device)
        spent = statistics.median(milliseconds(call, repeat=5))
        what = f"forest, {n} vertices, {rows.indices.size // 2} edges"
        print(f"{what}: {spent:.2f} ms, {n / spent / 1e6:.2f} Gvertex/s", flush=True)
        with device.by_kernel(what):
            call()
        del on_device
    searched = [(f"roads, {ROADS**2} vertices", lattice(ROADS, 0.75))]
    searched += [(f"roads, {(side // 4) ** 2} vertices", lattice(side // 4, 0.75))]
    for name, graph in new_york():
        searched.append((name, Rows(*graph.rows, graph.edge_both_ways)))
    for name, rows in searched:
        start = np.array([rows.indptr.size // 2])

        def search(rows: Rows = rows, start: np.ndarray = start) -> None:
            spread_cuda.spread(rows[:3], start, costs(rows, start[0]), "active", 2**30)

        spent = wall(search)
        print(
            f"shortest paths, {name}: {statistics.median(spent):.2f} ms ({spent[0]:.2f}-"
            f"{spent[-1]:.2f}), copies and all",
            flush=True,
        )
        with device.by_kernel(name):
            spread_cuda.spread(
                rows[:3], start, costs(rows, start[0]), "active", 2**30, device=device
            )


def run(side: int) -> None:
    """Operations on a graph in memory, on the GPU and on the CPU."""
    rows = lattice(ROADS, 0.75)
    tails = np.repeat(np.arange(rows.indptr.size - 1), np.diff(rows.indptr.astype(np.int64)))
    one = tails < rows.indices
    ends = tails[one], rows.indices[one].astype(np.int64)
    y, x = (part.ravel() for part in np.indices((ROADS, ROADS)))
    graph = make_graph(
        *ends, rows.weight[one], np.arange(y.size), directed=False, coordinates=(x, y)
    )
    for name, network in (("roads", graph), *new_york()):
        first = network.ids[0].item()
        for what, call in {
            "shortest paths": partial(og.shortest_paths, network, first),
            "hops": partial(og.hop_distance, network, first),
            "forest": partial(og.minimum_spanning_forest, network),
            "components": partial(og.connected_components, network),
        }.items():
            cuda, numba = (
                statistics.median(wall(partial(call, backend=backend)))
                for backend in ("cuda", "numba")
            )
            print(
                f"{what}, {name}, {network.vertex_count} vertices: CUDA {cuda:.2f} ms, "
                f"Numba {numba:.2f} ms",
                flush=True,
            )
