"""The forest of a graph in which all components lead along one chain, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree

from orograph.kernels.graph.forest import spanning_forest
from orograph.tiles.graph.graph import make_graph


@pytest.mark.parametrize("step", [1, -1], ids=["rising", "falling"])
def test_a_long_chain_is_gone_along_once(step: int) -> None:
    """With falling weights each vertex leads to the next: from each to the end took minutes."""
    n = 400_000
    rng = np.random.default_rng(0)
    tail = np.r_[np.arange(n - 1), rng.integers(0, n, 1000)]
    head = np.r_[np.arange(1, n), rng.integers(0, n, 1000)]
    apart = abs(tail - head) > 0
    weight = np.r_[np.arange(1, n)[::step], np.arange(n, n + 1000)]
    tail, head, weight = tail[apart], head[apart], weight[apart]
    graph = make_graph(tail, head, weight, np.arange(n), directed=False)
    chosen = spanning_forest(*graph.rows, graph.edge_both_ways)
    edges = np.sort(graph.edge_both_ways[chosen])
    expected = minimum_spanning_tree(coo_array((weight, (tail, head)), (n, n)).tocsr())
    assert weight[edges].sum() == expected.sum()
    np.testing.assert_array_equal(edges, np.arange(n - 1))
