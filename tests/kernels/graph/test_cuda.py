"""Shortest paths, hops and components by the CUDA kernels, in the emulator, against Numba's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator, find_compiler
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_graph import random_edges

import orograph as og
from orograph.kernels.graph import components_cuda, forest_cuda, hops, spread, spread_cuda
from orograph.kernels.graph.components import graph_components
from orograph.kernels.graph.forest import spanning_forest
from orograph.kernels.graph.spread import STRATEGIES, unreached
from orograph.tiles.graph.graph import Graph, make_graph

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: install g++")
KINDS = {
    "int32": {},
    "int64": {},
    "float64": {"floats": True},
    "negative": {"negative": True},
}


def graph_of(kind: str, seed: int, n: int = 60, m: int = 300, directed: bool = True) -> Graph:
    tail, head, weight = random_edges(seed, n, m, **KINDS[kind])
    weight = weight * 2**40 if kind == "int64" else weight
    return make_graph(tail, head, weight, np.arange(n), directed=directed)


def cost_from(graph: Graph, start: int) -> Any:
    dtype = np.dtype(np.float64 if graph.rows.weight.dtype.kind == "f" else np.int64)
    cost = np.full(graph.vertex_count, unreached(dtype))
    cost[start] = 0
    return cost


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", KINDS)
def test_costs_have_the_bits_of_numba(kind: str, strategy: str, emulator: Emulator) -> None:
    for seed, n, m in ((0, 60, 300), (1, 700, 1500)):
        graph = graph_of(kind, seed, n, m)
        rows = graph.rows if strategy == "active" else graph.incoming
        start = np.array([3])
        found, expected = cost_from(graph, 3), cost_from(graph, 3)
        assert spread.spread(rows, start, expected, strategy, n)
        while not spread_cuda.spread(rows, start, found, strategy, n, device=emulator):
            pass
        np.testing.assert_array_equal(found.view(np.int64), expected.view(np.int64))
        assert (expected != unreached(expected.dtype)).sum() > n // 2


@pytest.mark.parametrize("kind", ["int32", "int64", "float64"])
def test_parts_and_lists_of_arcs_give_the_same_bits(
    kind: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long strip, so that several parts hold it, with some arcs far ahead and back."""
    rng = np.random.default_rng(3)
    n = 2600
    tail = np.concatenate([np.arange(n - 1), rng.integers(0, n, 900)])
    head = np.concatenate([np.arange(1, n), rng.integers(0, n, 900)])
    weight = rng.integers(0, 9, tail.size) * (0.37 if kind == "float64" else 1)
    weight = weight * 2**40 if kind == "int64" else weight
    graph = make_graph(tail, head, weight, np.arange(n), directed=False)
    expected = cost_from(graph, 3)
    spread.spread(graph.rows, np.array([3]), expected, "active", n)
    levels = hops.graph_hops(graph.rows, np.array([3]), n)
    monkeypatch.setattr(spread_cuda, "PART", 512)
    monkeypatch.setattr(spread_cuda, "PART_THREADS", 128)
    for degree in (spread_cuda.MOST_DEGREE, 0):
        monkeypatch.setattr(spread_cuda, "MOST_DEGREE", degree)
        found = cost_from(graph, 3)
        assert spread_cuda.spread(graph.rows, np.array([3]), found, "active", n, device=emulator)
        np.testing.assert_array_equal(found.view(np.int64), expected.view(np.int64))
        found = spread_cuda.graph_hops(graph.rows, np.array([3]), n, device=emulator)
        np.testing.assert_array_equal(found, levels)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rounds_are_limited(strategy: str, emulator: Emulator) -> None:
    ring = np.arange(5)
    graph = make_graph(ring, np.roll(ring, -1), np.array([1, 1, 1, 1, -5]), ring, directed=True)
    rows = graph.rows if strategy == "active" else graph.incoming
    cost = cost_from(graph, 0)
    assert not spread_cuda.spread(rows, np.array([0]), cost, strategy, 20, device=emulator)
    assert cost.min() < 0


def test_words_of_64_bits(emulator: Emulator) -> None:
    graph = graph_of("int32", 4)
    indptr, indices, weight = graph.rows
    wide = indptr.astype(np.int64), indices.astype(np.int64), weight
    costs = [cost_from(graph, 3) for _ in range(2)]
    for rows, cost in zip((wide, graph.rows), costs, strict=True):
        assert spread_cuda.spread(rows, np.array([3]), cost, "active", 60, device=emulator)
    np.testing.assert_array_equal(*costs)


@pytest.mark.parametrize("most", [0, 2, 10**6])
def test_hops(most: int, emulator: Emulator) -> None:
    graph = graph_of("int32", 2, 400, 700)
    starts = np.array([5, 9, 5])
    found = spread_cuda.graph_hops(graph.rows, starts, most, device=emulator)
    expected = hops.graph_hops(graph.rows, starts, most)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_components(emulator: Emulator) -> None:
    graph = graph_of("int32", 2, 400, 300, directed=False)
    found = components_cuda.graph_components(graph.rows, device=emulator)
    np.testing.assert_array_equal(found, graph_components(graph.rows))


def forest_edges(graph: Graph, device: Emulator | None, wide: bool = False) -> Any:
    indptr, indices, weight = graph.rows
    rows = indptr, indices, weight, graph.edge_both_ways
    if device is None:
        return np.sort(graph.edge_both_ways[spanning_forest(*rows)])
    if wide:
        indptr, indices, edge = (part.astype(np.uint64) for part in (indptr, indices, rows[3]))
        arcs = forest_cuda.forest_on_device(device, indptr, indices, weight, edge)
    else:
        arcs = forest_cuda.spanning_forest(*rows, device=device)
        assert arcs.dtype == np.int64
    return np.sort(graph.edge_both_ways[arcs])


@pytest.mark.parametrize("kind", KINDS)
def test_forests_have_the_edges_of_numba(kind: str, emulator: Emulator) -> None:
    for seed, n, m in ((0, 60, 300), (1, 700, 1500), (2, 300, 200), (3, 1, 0)):
        graph = graph_of(kind, seed, n, m, directed=False)
        expected = forest_edges(graph, None)
        np.testing.assert_array_equal(forest_edges(graph, emulator), expected)
        np.testing.assert_array_equal(forest_edges(graph, emulator, wide=True), expected)


@needs_compiler
@settings(max_examples=30, deadline=None)
@given(
    edges=st.lists(
        st.tuples(st.integers(0, 11), st.integers(0, 11), st.sampled_from([-3, 0, 0.0, -0.0, 2])),
        max_size=40,
    ),
    floats=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_forest_of_any_graph_in_any_order(
    edges: list[tuple[int, int, float]], floats: bool, seed: int
) -> None:
    tail, head, weight = zip(*edges, strict=True) if edges else ((), (), ())
    ends = np.array(tail, np.int64), np.array(head, np.int64)
    weights = np.array(weight, np.float64 if floats else np.int64)
    graph = make_graph(*ends, weights, np.arange(12), directed=False)
    found = forest_edges(graph, Emulator("random", seed))
    np.testing.assert_array_equal(found, forest_edges(graph, None))


@needs_compiler
@settings(max_examples=30, deadline=None)
@given(
    edges=st.lists(
        st.tuples(st.integers(0, 11), st.integers(0, 11), st.integers(0, 4)), max_size=40
    ),
    start=st.integers(0, 11),
    strategy=st.sampled_from(STRATEGIES),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_graph_in_any_order(
    edges: list[tuple[int, int, int]], start: int, strategy: str, seed: int
) -> None:
    table = np.array(edges, np.int64).reshape(-1, 3).T
    graph = make_graph(*table, np.arange(12), directed=True)
    rows = graph.rows if strategy == "active" else graph.incoming
    costs = [cost_from(graph, start) for _ in range(2)]
    spread.spread(rows, np.array([start]), costs[0], strategy, 99)
    device = Emulator("random", seed)
    spread_cuda.spread(rows, np.array([start]), costs[1], strategy, 99, device=device)
    np.testing.assert_array_equal(*costs)


@pytest.mark.usefixtures("emulated_gpu")
def test_operations_take_the_backend() -> None:
    graph = graph_of("float64", 6, directed=False)
    for operation in (
        lambda b: og.shortest_paths(graph, [1, 2], predecessors=True, backend=b),
        lambda b: og.shortest_paths(graph, 1, strategy="input", backend=b),
        lambda b: og.hop_distance(graph, 1, predecessors=True, backend=b),
        lambda b: og.connected_components(graph, backend=b),
        lambda b: og.connected_components(graph, method="compress", backend=b),
        lambda b: og.minimum_spanning_forest(graph, backend=b),
    ):
        on_gpu, on_cpu = operation("cuda"), operation("numba")
        assert on_gpu.equals(on_cpu)
    with pytest.raises(og.BackendError, match="near_far has no CUDA kernel"):
        og.shortest_paths(graph, 1, method="delta-stepping", backend="cuda")
