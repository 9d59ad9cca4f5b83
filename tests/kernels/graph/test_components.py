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
