"""Graphs of every family and real ones: the answers of SciPy and igraph, whole and in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle_graph import FAMILIES, as_floats, least_matrix
from scipy.sparse import csgraph

import orograph as og
from orograph.tiles.graph import graph as graph_module
from orograph.tiles.graph.files import read_dimacs
from orograph.tiles.graph.graph import make_graph

Edges = tuple[int, Any, Any, Any]
Answers = dict[str, Any]
"""Costs and hops from a vertex, components, and the edges of the forest, of one program."""


def weighted(family: str, side: int, seed: int) -> Edges:
    """Return a graph with weights of which many are equal, 0 among them; half its edges twice."""
    n, *ends = FAMILIES[family](side, seed)
    rng = np.random.default_rng(seed)
    twice = rng.random(ends[0].size) < 0.5
    tail, head = (np.append(a, b[twice]) for a, b in (ends, ends[::-1]))
    return n, tail, head, rng.integers(0, 100, tail.size)


def first_of(labels: Any) -> Any:
    """Return for each vertex the first of its component."""
    _, first, of_vertex = np.unique(labels, return_index=True, return_inverse=True)
    return first[of_vertex]


def by_scipy(edges: Edges, start: int, directed: bool) -> Answers:
    n, tail, head, weight = edges
    both = (tail, head), (head, tail)
    ends = both[0] if directed else [np.concatenate(pair) for pair in zip(*both, strict=True)]
    matrix = least_matrix(n, *ends, weight if directed else np.append(weight, weight))
    found = {
        "cost": csgraph.dijkstra(matrix, indices=start),
        "hops": csgraph.dijkstra(matrix, indices=start, unweighted=True),
    }
    if not directed:
        order = np.argsort(weight, kind="stable")
        rank = np.empty(order.size, np.int64)
        rank[order] = np.arange(1, order.size + 1)  # SciPy takes 0 for no edge
        least = least_matrix(n, np.minimum(tail, head), np.maximum(tail, head), rank)
        tree = csgraph.minimum_spanning_tree(least).data.astype(np.int64)
        found["forest"] = np.sort(order[tree - 1])
        found["components"] = first_of(csgraph.connected_components(matrix, False)[1])
    return found


def by_igraph(edges: Edges, start: int, directed: bool) -> Answers:
    igraph = pytest.importorskip("igraph", reason="no igraph: pip install igraph")
    n, tail, head, weight = edges
    graph = igraph.Graph(n=n, edges=np.stack([tail, head], 1), directed=directed)
    found = {
        "cost": np.array(graph.distances(start, weights=weight.tolist())[0]),
        "hops": np.array(graph.distances(start)[0]),
    }
    if not directed:
        order = np.argsort(weight, kind="stable")
        rank = np.empty(order.size, np.int64)
        rank[order] = np.arange(order.size)
        kept = graph.spanning_tree(weights=rank.tolist(), return_tree=False)
        found["forest"] = np.sort(np.array(kept, np.int64))
        found["components"] = first_of(graph.connected_components().membership)
    return found


OTHERS = {"SciPy": by_scipy, "igraph": by_igraph}


def by_us(edges: Edges, start: int, directed: bool, parts: int) -> Answers:
    n, *columns = edges
    graph = make_graph(*columns, np.arange(n), directed=directed, parts=parts)
    hops = og.hop_distance(graph, start)["hops"].values
    found = {
        "cost": as_floats(og.shortest_paths(graph, start)["cost"][0]),
        "hops": np.where(hops < 0, np.inf, hops),
    }
    if not directed:
        forest = og.minimum_spanning_forest(graph)
        labels = og.connected_components(graph)["labels"].values
        found["forest"] = np.flatnonzero(forest["in_forest"].values)
        found["components"] = first_of(labels)
        assert (np.diff(np.unique(labels, return_index=True)[1]) > 0).all()  # by first vertex
        trees = n - found["forest"].size
        assert forest.attrs["total_weight"] == edges[3][found["forest"]].sum()
        assert (forest.attrs["tree_count"], forest.attrs["edge_count"]) == (trees, n - trees)
        assert labels.max(initial=0) == trees
    return found


def compare(edges: Edges, start: int, directed: bool, program: str, parts: int) -> Answers:
    found = by_us(edges, start, directed, parts)
    expected = OTHERS[program](edges, start, directed)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    return found


@pytest.fixture(autouse=True)
def _small_graphs_stay_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "JOINED_ARCS", 0)


@pytest.mark.diagonal
@pytest.mark.parametrize("program", OTHERS)
@pytest.mark.parametrize("directed", [False, True], ids=["edges", "arcs"])
@pytest.mark.parametrize("family", FAMILIES)
def test_families_of_graphs(family: str, directed: bool, program: str) -> None:
    edges = weighted(family, 24, 3)
    for parts in (1, 5):
        found = compare(edges, 17, directed, program, parts)
        assert np.isfinite(found["cost"]).sum() > 100


@pytest.mark.long
@pytest.mark.parametrize("program", OTHERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_large_graphs_of_each_family(family: str, program: str) -> None:
    for directed in (False, True):
        for parts in (1, 8):
            compare(weighted(family, 400, 5), 77, directed, program, parts)


def read(path: Path) -> Edges:
    """Return a graph of a file; edges of one without weights get some."""
    edges = read_dimacs(path)
    weight = edges.weight
    if (weight == 1).all():
        weight = np.random.default_rng(7).integers(0, 1000, weight.size)
    return edges.n, edges.tail, edges.head, weight


@pytest.mark.parametrize("program", OTHERS)
@pytest.mark.parametrize("directed", [False, True], ids=["edges", "arcs"])
def test_roads_of_rome(directed: bool, program: str, shared_data: Path) -> None:
    edges = read(shared_data / "graphs/rome99.gr")
    for parts in (1, 16):
        compare(edges, 0, directed, program, parts)


@pytest.mark.long
@pytest.mark.parametrize("program", OTHERS)
@pytest.mark.parametrize("directed", [False, True], ids=["edges", "arcs"])
@pytest.mark.parametrize("name", ["USA-road-d.NY.gr.xz", "pace16_BAY.gr.xz"])
def test_road_networks(name: str, directed: bool, program: str, shared_data: Path) -> None:
    """New York and the Bay Area; the Northwest is not among the data."""
    edges = read(shared_data / "graphs" / name)
    for parts in (1, 16):
        compare(edges, 0, directed, program, parts)
