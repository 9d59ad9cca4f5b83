"""The forest of a graph in which all components lead along one chain, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from oracle_graph import kruskal, random_edges
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from orograph.kernels.graph.forest import part_forest, spanning_forest
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


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("parts", [1, 3, 11, 60])
def test_the_forest_of_a_part_holds_what_is_in_that_of_the_graph(parts: int, seed: int) -> None:
    """With loops, parallel edges, equal weights and isolated vertices, against Kruskal."""
    n = 60
    tail, head, weight = random_edges(seed, m=[20, 60, 200, 400, 0][seed], floats=seed % 2 == 1)
    graph = make_graph(tail, head, weight, np.arange(n), directed=False, parts=parts)
    whole = set(kruskal(n, tail, head, weight))
    indptr = graph.rows.indptr
    sure = 0
    for first, last in zip(graph.bounds, graph.bounds[1:], strict=False):
        part = slice(indptr[first], indptr[last])
        heads, tails, edge = graph.rows.indices[part], graph.tails[part], graph.edge[part]
        inside = (heads >= first) & (heads < last)
        border = np.zeros(last - first, bool)
        border[tails[~inside].astype(np.int64) - first] = True
        arcs, within, undecided = part_forest(
            indptr[first : last + 1] - indptr[first], heads, graph.rows.weight[part], edge,
            first, border,
        )  # fmt: skip
        np.testing.assert_array_equal(within.astype(np.int64) + first, tails[arcs])
        found = set(edge[arcs].tolist())
        assert len(found) == arcs.size
        assert whole & set(edge[inside].tolist()) <= found
        assert set(edge[arcs[~undecided]].tolist()) <= whole
        ends = tails[inside].astype(np.int64) - first, heads[inside].astype(np.int64) - first
        matrix = coo_array((np.ones(ends[0].size), ends), (border.size, border.size))
        assert arcs.size == border.size - connected_components(matrix)[0]
        sure += int((~undecided).sum())
    if parts == 1:
        assert sure == len(whole)
