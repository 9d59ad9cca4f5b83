"""Operations on graphs in memory, against SciPy and networkx, and what they refuse."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_graph import as_floats, kruskal, least_matrix, random_edges
from scipy import sparse
from scipy.sparse import csgraph
from verbs import call

import orograph as og
from orograph.tiles.graph.graph import Graph, make_graph

N = 60


def graph_of(edges: Any, directed: bool = True, n: int = N) -> Graph:
    return make_graph(*edges, np.arange(n), directed=directed)


def tree_is_right(graph: Graph, edges: Any, cost: Any, before: Any, source: int) -> None:
    """Every predecessor lies on an edge that attains the cost, and leads to the source."""
    weights: dict[tuple[int, int], set[float]] = {}
    for u, v, w in zip(*(column.tolist() for column in edges), strict=True):
        weights.setdefault((u, v), set()).add(w)
    for vertex in range(cost.size):
        if before[vertex] == -9999:
            assert vertex == source or cost[vertex] == np.inf
            continue
        steps, at = 0, vertex
        while at != source:
            tail = int(before[at])
            assert any(cost[tail] + w == cost[at] for w in weights[tail, at])
            at, steps = tail, steps + 1
            assert steps < cost.size


# Cycles of length 0 of negative floats are rounded to less: they are refused, see below.
@pytest.mark.parametrize(
    ("floats", "negative"),
    [(False, False), (True, False), (False, True)],
    ids=["integers", "floats", "negative"],
)
def test_shortest_paths(floats: bool, negative: bool) -> None:
    for seed in range(5):
        edges = random_edges(seed, floats=floats, negative=negative)
        graph = graph_of(edges)
        found = og.shortest_paths(graph, [0, 7], predecessors=True, backend="numba")
        assert found.attrs["method"] == ("bellman-ford" if negative else "delta-stepping")
        expected = csgraph.bellman_ford(least_matrix(N, *edges), indices=[0, 7])
        cost = found["cost"].values
        assert cost.dtype == (np.float64 if floats else np.int64)
        plain = as_floats(found["cost"])
        np.testing.assert_allclose(plain, expected, rtol=1e-14 if floats else 0)
        for row, source in enumerate((0, 7)):
            tree_is_right(graph, edges, plain[row], found["predecessor"].values[row], source)


@settings(max_examples=60, deadline=None)
@given(
    edges=st.lists(
        st.tuples(st.integers(0, 11), st.integers(0, 11), st.integers(0, 4)), max_size=40
    ),
    source=st.integers(0, 11),
    most=st.integers(0, 12),
    directed=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_any_graph_in_any_order(
    edges: list[tuple[int, int, int]], source: int, most: int, directed: bool, seed: int
) -> None:
    table = np.array(edges, np.int64).reshape(-1, 3).T
    where = np.random.default_rng(seed).random((2, 12))
    ids = np.arange(12)
    graphs = [
        make_graph(*table, ids, directed=directed),
        make_graph(*table, ids, directed=directed, coordinates=tuple(where)),
    ]
    both = table if directed else np.concatenate([table, table[[1, 0, 2]]], axis=1)
    expected = csgraph.dijkstra(least_matrix(12, *both), indices=source)
    expected[expected > most] = np.inf
    trees = []
    for graph in graphs:
        found = og.shortest_paths(graph, source, max_cost=most, predecessors=True)
        np.testing.assert_array_equal(as_floats(found["cost"][0]), expected)
        trees.append(found["predecessor"].values[0].tolist())
    assert trees[0] == trees[1]


def test_a_negative_cycle_is_named() -> None:
    ring = nx.DiGraph()
    ring.add_weighted_edges_from([("a", "b", 1), ("b", "c", -3), ("c", "b", 2), ("d", "a", 1)])
    graph = og.read_graph(ring)
    with pytest.raises(og.NegativeCycle, match="b -> c -> b has length -1"):
        og.shortest_paths(graph, "a")
    ring.remove_edge("a", "b")  # no path leads to it
    assert og.shortest_paths(og.read_graph(ring), "d")["cost"].sel(vertex="a").item() == 1


def test_the_length_of_a_negative_cycle_is_that_of_its_shortest_edges() -> None:
    lengths = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 5))
        tail, head, weight = *rng.integers(0, n, (2, 14)), rng.integers(-3, 6, 14)
        least: dict[tuple[int, int], int] = {}
        for u, v, w in zip(tail, head, weight, strict=True):
            least[u, v] = min(least.get((u, v), 9), w)
        try:
            og.shortest_paths(graph_of((tail, head, weight), n=n), 0)
        except og.NegativeCycle as found:
            steps = zip(found.cycle, [*found.cycle[1:], found.cycle[0]], strict=True)
            lengths.append((found.length, sum(least[step] for step in steps)))
    assert len(lengths) > 20
    assert all(length == expected < 0 for length, expected in lengths)


def test_cycles_that_rounding_makes_negative_are_refused() -> None:
    edges = np.array([[0, 1], [1, 2], [2, 0]]).T
    weight = np.array([0.1, 0.7, -0.8])  # sum to more than 0, and rounded to less
    with pytest.raises((og.InputError, og.NegativeCycle), match="cycle"):
        og.shortest_paths(graph_of((*edges, weight - [0, 0, 1e-16]), n=3), 0)


@pytest.mark.parametrize("seed", range(6))
def test_forest_components_and_hops(seed: int) -> None:
    tail, head, weight = random_edges(seed, m=70 if seed % 2 else 200, floats=seed > 3)
    graph = graph_of((tail, head, weight), directed=False)
    forest = og.minimum_spanning_forest(graph)
    expected = kruskal(N, tail, head, weight)
    assert np.flatnonzero(forest["in_forest"].values).tolist() == sorted(expected)
    known = nx.MultiGraph()
    known.add_nodes_from(range(N))
    known.add_edges_from(zip(tail.tolist(), head.tolist(), strict=True))
    trees = nx.number_connected_components(known)
    assert forest.attrs["tree_count"] == trees
    assert forest.attrs["edge_count"] == N - trees
    assert forest.attrs["total_weight"] == math.fsum(weight[expected])

    labels = csgraph.connected_components(least_matrix(N, tail, head, weight), directed=False)[1]
    _, first = np.unique(labels, return_index=True)
    rank = np.empty(first.size, int)
    rank[np.argsort(first)] = np.arange(1, first.size + 1)
    found = og.connected_components(graph, backend="numba")
    np.testing.assert_array_equal(found["labels"].values, rank[labels])
    assert found.attrs["component_count"] == trees
    np.testing.assert_array_equal(found["component_size"].values, np.bincount(rank[labels])[1:])

    hops = og.hop_distance(graph, [0, 9], predecessors=True, backend="numba")
    lengths = nx.multi_source_dijkstra_path_length(nx.Graph(known), [0, 9], weight=lambda *_: 1)
    assert hops["hops"].values.tolist() == [lengths.get(v, -1) for v in range(N)]
    for vertex, before in enumerate(hops["predecessor"].values.tolist()):
        nearer = [u for u in known[vertex] if lengths.get(u, -9) == lengths.get(vertex, -1) - 1]
        assert before == min(nearer, default=-9999)
    near = og.hop_distance(graph, [0, 9], max_hops=1)["hops"].values
    assert near.tolist() == [lengths[v] if lengths.get(v, 9) <= 1 else -1 for v in range(N)]


@pytest.mark.parametrize("directed", [True, False])
def test_is_connected(directed: bool) -> None:
    for seed in range(4):
        edges = random_edges(seed, m=100)
        graph = graph_of(edges, directed)
        known: Any = nx.DiGraph() if directed else nx.Graph()
        known.add_nodes_from(range(N))
        known.add_edges_from(zip(edges[0].tolist(), edges[1].tolist(), strict=True))
        s, t = np.random.default_rng(seed).integers(0, N, (2, 80))
        reach = og.is_connected(graph, s, t)
        lengths = dict(nx.all_pairs_shortest_path_length(known))
        expected = [lengths[a].get(b, -1) for a, b in zip(s.tolist(), t.tolist(), strict=True)]
        assert reach.hops is not None
        assert reach.hops.tolist() == expected
        assert reach.connected.tolist() == [hops >= 0 for hops in expected]
        assert reach.paths is not None
        for a, b, path in zip(s, t, reach.paths, strict=True):
            if path is not None:
                assert path.cells[0] == a
                assert path.cells[-1] == b
                assert nx.is_path(known, path.cells.tolist())
                assert len(path.cells) == path.cost + 1
    assert bool(og.is_connected(graph, 0, 0))


def test_published_totals(shared_data: Path) -> None:
    rome = og.read_graph(shared_data / "graphs/rome99.gr", directed=False)
    forest = og.minimum_spanning_forest(rome)
    # its description counts 4444 lines and 22 trees
    assert forest.attrs["total_weight"] == 1215457
    assert forest.attrs["tree_count"] == 22
    assert og.connected_components(rome).attrs["component_count"] == 22


@pytest.mark.long
def test_new_york(shared_data: Path) -> None:
    graph = og.read_graph(shared_data / "graphs/USA-road-d.NY.gr.xz")
    forest = og.minimum_spanning_forest(graph)
    assert (forest.attrs["total_weight"], forest.attrs["tree_count"]) == (261159288, 1)
    rows = graph.rows
    matrix = least_matrix(graph.vertex_count, graph.tails, rows.indices, rows.weight)
    start = int(graph.stored[0])
    expected = csgraph.dijkstra(matrix, indices=start)[graph.stored]
    hops = csgraph.dijkstra(matrix, indices=start, unweighted=True)[graph.stored]
    cost = og.shortest_paths(graph, 1)["cost"].values[0]
    np.testing.assert_array_equal(cost, expected)
    np.testing.assert_array_equal(og.hop_distance(graph, 1)["hops"].values, hops)


def test_results_are_written_and_opened(tmp_path: Path) -> None:
    edges = random_edges(5)
    ids = np.arange(100, 160)
    graph = make_graph(*edges, ids, directed=False)
    runs = {
        "paths": lambda **o: call(og.shortest_paths, graph, [100, 101], predecessors=True, **o),
        "forest": lambda **o: call(og.minimum_spanning_forest, graph, **o),
        "labels": lambda **o: call(og.connected_components, graph, **o),
        "hops": lambda **o: call(og.hop_distance, graph, 100, predecessors=True, **o),
    }
    for name, operation in runs.items():
        here = operation()
        there = operation(out=tmp_path / f"{name}.zarr").load()
        assert here.identical(there) or here.equals(there), name
        assert og.open(tmp_path / f"{name}.zarr").load().equals(here)
        assert operation(verb="submit").result().equals(here)
        with pytest.raises(og.StoreExistsError):
            operation(out=tmp_path / f"{name}.zarr")
    assert here["vertex"].values.tolist() == ids.tolist()


def test_a_way_without_coordinates_is_shown_by_its_vertices() -> None:
    ends = np.array([0, 1]), np.array([1, 2]), np.array([1, 1])
    (way,) = og.is_connected(make_graph(*ends, np.array([7, 8, 9]), directed=False), 7, 9).paths
    assert repr(way) == "<orograph.LeastCostPath: 3 vertices of a graph, from 7 to 9>"
    assert "<td style='text-align:left'>9</td>" in way._repr_html_()


NEGATIVE = (np.array([0, 1]), np.array([1, 2]), np.array([4, -2]))


def test_refused() -> None:
    graph = graph_of(NEGATIVE, n=3)
    plain: Any = np.ones((3, 3))
    cases: list[tuple[Any, str]] = [
        (lambda: og.shortest_paths(plain, 0), "graph: ndarray is not a graph; make one with"),
        (lambda: og.shortest_paths(graph, 2**40), f"sources: {2**40} is none of the graph's 3 v"),
        (lambda: og.shortest_paths(graph, []), "sources: empty"),
        (lambda: og.shortest_paths(graph, 0, max_cost=-1), "max_cost: -1; it must be"),
        (lambda: og.minimum_spanning_forest(graph), r"edge 0 \(0 to 1, weight 4\) or the one back"),
        (lambda: og.connected_components(graph), "read the graph with directed=False"),
        (lambda: og.connected_components(graph, tile=3), "tile: of no use for a graph"),
        (lambda: og.connected_components(graph, connectivity=4), "connectivity: of no use for a g"),
        (lambda: og.hop_distance(plain, [(0, 0)], predecessors=True), "predecessors: of no use"),
        (lambda: og.hop_distance(graph, 0, snap=True), "snap: of no use for a graph"),
        (lambda: og.is_connected(graph, [0, 1, 2], [1, 2]), "s, t: 3 and 2 vertices"),
        (
            lambda: og.shortest_paths(graph_of((*NEGATIVE[:2], np.array([2**58] * 2)), n=9), 0),
            "may pass 1.15292e[+]18",
        ),
    ]
    for case, message in cases:
        with pytest.raises(og.InputError, match=message):
            case()


def test_sparse_zeros_are_edges() -> None:
    matrix = sparse.coo_array((np.array([0.0, 2.0]), ([0, 1], [1, 2])), shape=(3, 3))
    cost = og.shortest_paths(og.read_graph(matrix, directed=True), 0)["cost"].values
    assert cost.tolist() == [[0, 0, 2]]
