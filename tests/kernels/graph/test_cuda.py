"""Shortest paths, hops and components by the CUDA kernels, in the emulator, against Numba's."""

from __future__ import annotations

from threading import Event
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator, find_compiler, in_one_order, in_orders
from graph_cases import KINDS, cost_from, graph_of
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_graph import random_edges

import orograph as og
from orograph.graphs.part_search import PartReader, signed_costs
from orograph.kernels.device_rows import DeviceRows, upload_rows
from orograph.kernels.graph import (
    components_cuda,
    forest_cuda,
    hops,
    near_far,
    near_far_cuda,
    spread_cuda,
)
from orograph.kernels.graph.components import graph_components, number_components
from orograph.kernels.graph.forest import spanning_forest
from orograph.kernels.graph.spread import unreached
from orograph.tiles.graph.graph import Graph, make_graph

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: install g++")


def paths_of_numba(rows: Any, start: int, width: Any, most: Any) -> Any:
    nothing = np.empty(0, np.int64)
    part = near_far.HostPart(
        rows, rows.indptr.size - 1, [np.array([start])], width.dtype, width, width.dtype.type(most)
    )
    part.go_on(0, nothing, nothing.astype(width.dtype), width.dtype.type(most))
    return part.cost[0]


def paths_of_cuda(device: Emulator, rows: Any, start: int, width: Any, most: Any) -> Any:
    held, zero = upload_rows(device, *rows), np.zeros(1, width.dtype)
    return device.download(near_far_cuda.search(held, np.array([start]), zero, width, most))


def signed_costs_of(graph: Graph, start: int) -> Any:
    dtype = cost_from(graph, start).dtype
    return signed_costs(PartReader(graph, Event()), start, dtype, lambda *cycle: None)


SIGNED = {"integers": False, "floats": True}


def signed_graph(floats: bool, seed: int, n: int, m: int) -> Graph:
    tail, head, weight = random_edges(seed, n, m, negative=True)
    return make_graph(tail, head, weight / 4 if floats else weight, np.arange(n), directed=True)


@pytest.mark.parametrize(
    ("floats", "emulator"), in_orders(SIGNED, {"floats"}), indirect=["emulator"]
)
def test_negative_weights(floats: bool, emulator: Emulator) -> None:
    for seed, n, m in ((0, 60, 300), (2, 300, 700)):
        graph = signed_graph(floats, seed, n, m)
        start = np.array([3])
        found, expected = cost_from(graph, 3), signed_costs_of(graph, 3)
        while not spread_cuda.spread(upload_rows(emulator, *graph.rows), start, found, n):
            pass
        np.testing.assert_array_equal(found.view(np.int64), expected.view(np.int64))
        assert (expected != unreached(expected.dtype)).sum() > n // 2
        assert graph.rows.weight.min() < 0


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let fewer threads wait for work: in the emulator they take turns."""
    monkeypatch.setattr(near_far_cuda, "THREADS", 64)


WARPS = {f"{kind}-{n}": (kind, n) for kind in ("int32", "int64", "float64") for n in (1, 4, 32)}


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("case", "emulator"),
    in_orders(WARPS, {"float64-1", "float64-4", "float64-32"}),
    indirect=["emulator"],
)
def test_costs_from_one_vertex(
    case: tuple[str, int], emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In narrow and wide buckets, with arcs that weigh 0 and vertices beyond the most."""
    kind, lanes = case
    monkeypatch.setattr(near_far_cuda, "lanes_for", lambda n, degree: lanes)
    monkeypatch.setattr(near_far_cuda, "THREADS", 64 if lanes == 1 else 32)
    for seed, n, m in ((0, 60, 300), (1, 120, 250), (2, 9, 200)):
        graph = graph_of(kind, seed, n, m, directed=seed != 1)
        dtype = cost_from(graph, 0).dtype
        none = unreached(dtype)
        everywhere = paths_of_numba(graph.rows, 3, dtype.type(graph.mean_weight), none)
        middle = np.median(everywhere[everywhere != none])
        for width, most in ((graph.mean_weight / 2, none), (9 * graph.mean_weight, middle)):
            arguments = graph.rows, 3, dtype.type(width), dtype.type(most)
            found = paths_of_cuda(emulator, *arguments)
            expected = paths_of_numba(*arguments)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found.view(np.int64), expected.view(np.int64))
            assert (expected != none).any()
            assert (expected[everywhere > most] == none).all()


@pytest.mark.diagonal
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", ["int32", "int64", "float64"])
def test_costs_from_many_vertices(kind: str, emulator: Emulator) -> None:
    for seed, n, m in ((0, 60, 300), (1, 120, 200), (2, 9, 900)):
        graph = graph_of(kind, seed, n, m)
        dtype = cost_from(graph, 0).dtype
        none, starts = unreached(dtype), np.array([3, 5, 3, 8])
        held = upload_rows(emulator, *graph.rows)
        everywhere = paths_of_numba(graph.rows, 3, dtype.type(graph.mean_weight), none)
        middle = np.median(everywhere[everywhere != none])
        for width, most in ((graph.mean_weight / 2, none), (9 * graph.mean_weight, middle)):
            arguments = dtype.type(width), dtype.type(most)
            found = emulator.download(near_far_cuda.search_many(held, starts, *arguments))
            expected = [paths_of_numba(graph.rows, start, *arguments) for start in starts]
            assert found.dtype == dtype
            np.testing.assert_array_equal(found.view(np.int64), np.stack(expected).view(np.int64))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("emulator", in_one_order(), indirect=True)
def test_a_vertex_of_many_arcs_is_divided(emulator: Emulator) -> None:
    """It has forty times the arcs that a group takes at once."""
    n = 1300
    rim = np.arange(1, n)
    tail, head = np.append(np.zeros(n - 1, np.int64), rim[:-1]), np.append(rim, rim[1:])
    weight = np.append(np.full(n - 1, 7), np.full(n - 2, 2))
    graph = make_graph(tail, head, weight, np.arange(n), directed=True)
    start = int(graph.stored[0])
    found = paths_of_cuda(emulator, graph.rows, start, np.int64(3), 2**60)
    expected = paths_of_numba(graph.rows, start, np.int64(3), 2**60)
    np.testing.assert_array_equal(found, expected)
    assert expected.max() == 7


def test_rounds_are_limited(emulator: Emulator) -> None:
    ring = np.arange(5)
    graph = make_graph(ring, np.roll(ring, -1), np.array([1, 1, 1, 1, -5]), ring, directed=True)
    cost = cost_from(graph, 0)
    assert not spread_cuda.spread(upload_rows(emulator, *graph.rows), np.array([0]), cost, 20)
    assert cost.min() < 0


@pytest.mark.parametrize("emulator", in_one_order(), indirect=True)
def test_words_of_64_bits(emulator: Emulator) -> None:
    graph = signed_graph(False, 4, 60, 300)
    indptr, indices, weight = graph.rows
    costs = [cost_from(graph, 3) for _ in range(2)]
    words = [emulator.upload(part.astype(np.uint64)) for part in (indptr, indices)]
    wide = DeviceRows(emulator, *words, emulator.upload(weight))
    for rows, cost in zip((wide, upload_rows(emulator, *graph.rows)), costs, strict=True):
        assert spread_cuda.spread(rows, np.array([3]), cost, 60)
    np.testing.assert_array_equal(*costs)


MOST_HOPS = {"none": 0, "two": 2, "all": 10**6}


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("most", "emulator"), in_orders(MOST_HOPS, {"all"}), indirect=["emulator"])
def test_hops(most: int, emulator: Emulator) -> None:
    graph = graph_of("int32", 2, 400, 700)
    starts = np.array([5, 9, 5])
    found = near_far_cuda.graph_hops(graph.rows, starts, most, device=emulator)
    expected = hops.graph_hops(graph.rows, starts, most)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def path_of_numba(graph: Graph, s: int, t: int) -> Any:
    ends = np.array([[s, t]])
    return next(hops.graph_between(graph.rows, graph.incoming, graph.position, ends))


def path_of_cuda(graph: Graph, s: int, t: int, emulator: Emulator) -> Any:
    given = graph.rows, graph.incoming, graph.position, np.array([[s, t]])
    return next(near_far_cuda.graph_between(*given, device=emulator))


GRAPHS = {"directed": (True, 64), "undirected": (False, 2)}


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("case", "emulator"), in_orders(GRAPHS, {"undirected"}), indirect=["emulator"]
)
def test_paths_between_two_vertices(
    case: tuple[bool, int], emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sparse graphs have long paths and ends without one; dense ones many paths to choose from."""
    directed, first = case
    monkeypatch.setattr(near_far_cuda, "FIRST_HOPS", first)
    lengths = set()
    for seed, n, m in ((1, 60, 90), (3, 50, 400)):
        graph = graph_of("int32", seed, n, m, directed)
        for s, t in np.random.default_rng(seed).integers(0, n, (4, 2)).tolist():
            expected = path_of_numba(graph, s, t)
            np.testing.assert_array_equal(path_of_cuda(graph, s, t, emulator), expected)
            lengths.add(expected.size)
    assert len(lengths) > 2
    assert path_of_cuda(graph, 5, 5, emulator).tolist() == [5]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("emulator", in_one_order(), indirect=True)
def test_a_search_goes_on_alone_where_the_other_end_has_many_arcs(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain whose end has a hundred arcs: only the search from its start goes on."""
    monkeypatch.setattr(near_far_cuda, "FIRST_HOPS", 8)
    chain, rim = np.arange(13), np.arange(13, 113)
    tail, head = np.append(chain[:-1], np.full(100, 12)), np.append(chain[1:], rim)
    graph = make_graph(tail, head, np.ones(tail.size), np.arange(113), directed=False)
    s, t = graph.position.argsort()[[0, 12]].tolist()  # stored vertices, by their places
    found = path_of_cuda(graph, s, t, emulator)
    np.testing.assert_array_equal(found, path_of_numba(graph, s, t))
    assert found.size == 13


@pytest.mark.parametrize("emulator", in_one_order(), indirect=True)
def test_components(emulator: Emulator) -> None:
    for seed, n, m in ((2, 400, 300), (3, 700, 1500), (4, 300, 9000), (5, 1, 0)):
        graph = graph_of("int32", seed, n, m, directed=False)
        found = components_cuda.graph_components(graph.rows, device=emulator)
        np.testing.assert_array_equal(found, graph_components(graph.rows))


@pytest.mark.parametrize("emulator", in_one_order(), indirect=True)
def test_components_of_vertices_with_many_arcs(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two stars of a thousand arcs, of which no largest tree holds both, and vertices alone."""
    rim = np.arange(2, 2000)
    graph = make_graph(rim % 2, rim, np.ones(rim.size), np.arange(2100), directed=False)
    found = components_cuda.graph_components(graph.rows, device=emulator)
    np.testing.assert_array_equal(found, graph_components(graph.rows))
    assert np.unique(found).size == 102


@needs_compiler
@settings(max_examples=30, deadline=None)
@given(
    edges=st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=40),
    seed=st.integers(0, 2**32 - 1),
)
def test_components_of_any_graph_in_any_order(edges: list[tuple[int, int]], seed: int) -> None:
    tail, head = np.array(edges, np.int64).reshape(-1, 2).T
    graph = make_graph(tail, head, np.ones(tail.size), np.arange(20), directed=False)
    device = Emulator("random", seed)
    root = components_cuda.graph_components(graph.rows, device=device)
    np.testing.assert_array_equal(root, graph_components(graph.rows))
    words = device.upload(root), device.upload(graph.stored.astype(root.dtype))
    labels, sizes = components_cuda.number_on_device(device, *words)
    expected = np.empty(20, np.int64)
    np.testing.assert_array_equal(sizes, number_components(root, graph.stored, expected))
    np.testing.assert_array_equal(labels, expected)


def forest_edges(graph: Graph, device: Emulator | None, wide: bool = False) -> Any:
    indptr, indices, weight = graph.rows
    rows = indptr, indices, weight, graph.edge_both_ways
    if device is None:
        return np.sort(graph.edge_both_ways[spanning_forest(*rows)])
    if wide:
        words = [device.upload(part.astype(np.uint64)) for part in (indptr, indices, rows[3])]
        held = DeviceRows(device, *words[:2], device.upload(weight))
        arcs = device.download(forest_cuda.forest_on_device(held, words[2]))
    else:
        arcs = forest_cuda.spanning_forest(*rows, device=device)
        assert arcs.dtype == np.int64
    return np.sort(graph.edge_both_ways[arcs])


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("kind", "emulator"),
    in_orders(dict(zip(KINDS, KINDS)), {"float64"}),
    indirect=["emulator"],
)
def test_forests_have_the_edges_of_numba(kind: str, emulator: Emulator) -> None:
    for seed, n, m in ((0, 60, 300), (1, 700, 1500), (2, 300, 200), (3, 1, 0), (4, 90, 3000)):
        graph = graph_of(kind, seed, n, m, directed=False)
        expected = forest_edges(graph, None)
        np.testing.assert_array_equal(forest_edges(graph, emulator), expected)
        np.testing.assert_array_equal(forest_edges(graph, emulator, wide=True), expected)


@pytest.mark.diagonal
@pytest.mark.parametrize("short", [0, 40])
def test_rounds_of_long_lists(
    short: int, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One block does the last rounds alone, or none, and the host expects too few."""
    monkeypatch.setattr(forest_cuda, "SHORT", short)
    for kind, degree in (("int32", 5), ("float64", 20)):
        graph = graph_of(kind, 3, 400, 400 * degree, directed=False)
        np.testing.assert_array_equal(forest_edges(graph, emulator), forest_edges(graph, None))


@pytest.mark.parametrize("emulator", in_one_order(), indirect=True)
def test_forest_of_a_vertex_with_many_arcs(emulator: Emulator) -> None:
    rim = np.arange(1, 1600)
    ends = np.append(np.zeros(rim.size, np.int64), rim[:-1]), np.append(rim, rim[1:])
    weight = np.random.default_rng(3).integers(0, 50, ends[0].size)
    for weights in (weight, weight / 7):
        graph = make_graph(*ends, weights, np.arange(1600), directed=False)
        np.testing.assert_array_equal(forest_edges(graph, emulator), forest_edges(graph, None))


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
    seed=st.integers(0, 2**32 - 1),
)
def test_any_graph_in_any_order(edges: list[tuple[int, int, int]], start: int, seed: int) -> None:
    table = np.array(edges, np.int64).reshape(-1, 3).T
    graph = make_graph(*table, np.arange(12), directed=True)
    costs = [signed_costs_of(graph, start), cost_from(graph, start)]
    device = Emulator("random", seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near_far_cuda, "THREADS", 32)
        patch.setattr(near_far_cuda, "ROOM", 1)
        held, starts = upload_rows(device, *graph.rows), np.array([start])
        spread_cuda.spread(held, starts, costs[1], 99)
        np.testing.assert_array_equal(*costs)
        found = paths_of_cuda(device, graph.rows, start, np.int64(2), 2**60)
        np.testing.assert_array_equal(found, costs[0])
        found = near_far_cuda.search_many(held, starts, np.int64(2), 2**60)
        np.testing.assert_array_equal(found[0], costs[0])


@pytest.mark.usefixtures("emulated_gpu", "small_blocks")
def test_operations_take_the_backend() -> None:
    graph = graph_of("float64", 6, directed=False)
    for operation in (
        lambda b: og.shortest_paths(graph, [1, 2], predecessors=True, backend=b),
        lambda b: og.hop_distance(graph, 1, predecessors=True, backend=b),
        lambda b: og.connected_components(graph, backend=b),
        lambda b: og.minimum_spanning_forest(graph, backend=b),
    ):
        on_gpu, on_cpu = operation("cuda"), operation("numba")
        assert on_gpu.equals(on_cpu)
