"""Components of graphs in which one tree soon holds most vertices, and of others, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from oracle_graph import least_matrix
from scipy.sparse import csgraph

from orograph.kernels.graph import components
from orograph.tiles.graph.graph import make_graph


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("edges", "way"),
    [(2000, "join_others"), (1000, "join_others"), (500, "join_rows"), (0, "join_rows")],
)
def test_components_are_named_by_their_first_vertex(
    edges: int, way: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 1000
    rng = np.random.default_rng(seed)
    tail, head = rng.integers(0, n, (2, edges))
    graph = make_graph(tail, head, np.ones(edges, int), np.arange(n), directed=False)
    called = []
    for name in ("join_others", "join_rows"):
        join = getattr(components, name)
        monkeypatch.setattr(
            components, name, lambda *a, join=join, name=name: called.append(name) or join(*a)
        )
    found = components.graph_components(graph.rows)
    assert called == [way]
    rows = graph.rows
    matrix = least_matrix(n, graph.tails, rows.indices, rows.weight)
    _, labels = csgraph.connected_components(matrix, directed=False)
    _, first = np.unique(labels, return_index=True)
    np.testing.assert_array_equal(found, first[labels])


@pytest.mark.diagonal
@pytest.mark.parametrize("edges", [0, 300, 500, 1000, 4000])
@pytest.mark.parametrize("parts", [1, 2, 7, 200])
def test_components_of_a_part_are_joined_by_its_own_edges(edges: int, parts: int) -> None:
    n = 200
    rng = np.random.default_rng(edges + parts)
    tail, head = rng.integers(0, n, (2, edges))
    ones = np.ones(edges, int)
    graph = make_graph(tail, head, ones, np.arange(n), directed=False, parts=parts)
    indptr, indices, weight = graph.rows
    matrix = least_matrix(n, graph.tails, indices, weight)
    for first, last in zip(graph.bounds, graph.bounds[1:], strict=False):
        heads = indices[indptr[first] : indptr[last]]
        position = graph.position[first:last]
        starts = indptr[first : last + 1] - indptr[first]
        member, firsts, sizes, leaving = components.part_components(starts, heads, first, position)
        own = matrix[first:last, first:last]
        count, labels = csgraph.connected_components(own, directed=False)
        assert firsts.size == count
        expected = np.full(count, n)
        np.minimum.at(expected, labels, position)
        np.testing.assert_array_equal(firsts[member], expected[labels])
        np.testing.assert_array_equal(sizes[member], np.bincount(labels)[labels])
        outside = (heads < first) | (heads >= last)
        ends = graph.tails[indptr[first] : indptr[last]], heads
        np.testing.assert_array_equal(leaving, [column[outside] for column in ends])


def test_places_are_numbered_by_the_first_of_their_component() -> None:
    first = np.array([0, 1, 0, 3, 1, 1, 3, 7])
    components.number_places(first)
    np.testing.assert_array_equal(first, [1, 2, 1, 3, 2, 2, 3, 4])
