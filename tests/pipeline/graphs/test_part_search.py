"""Searches of this process in a graph in parts: the same bits as in one part, and one part read."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_graph import as_floats, grid_edges, least_matrix, random_edges
from scipy.sparse import csgraph

import orograph as og
from orograph.graphs import part_search
from orograph.tiles.errors import Cancelled
from orograph.tiles.graph import graph as graph_module
from orograph.tiles.graph.graph import Graph, make_graph
from orograph.tiles.graph.store import write_graph

N = 60


@pytest.fixture(autouse=True)
def _small_graphs_stay_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "JOINED_ARCS", 0)


def graph_of(edges: Any, parts: int, directed: bool = True, n: int = N) -> Graph:
    return make_graph(*edges, np.arange(n), directed=directed, parts=parts)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    m=st.integers(0, 300),
    parts=st.integers(2, N),
    directed=st.booleans(),
    floats=st.booleans(),
    most=st.sampled_from([np.inf, 0, 7]),
    traced=st.booleans(),
)
def test_paths_in_any_number_of_parts(
    seed: int,
    m: int,
    parts: int,
    directed: bool,
    floats: bool,
    most: float,
    traced: bool,
) -> None:
    edges = random_edges(seed, N, m, floats=floats)
    how = {"max_cost": most, "predecessors": traced, "backend": "numba"}
    whole, cut = (
        og.shortest_paths(graph_of(edges, k, directed), [3, 8, 3], **how) for k in (1, parts)
    )
    assert cut.identical(whole)
    both = edges if directed else [np.append(edges[i], edges[j]) for i, j in ((0, 1), (1, 0))]
    both = both if directed else [*both, np.append(edges[2], edges[2])]
    expected = csgraph.dijkstra(least_matrix(N, *both), indices=[3, 8, 3])
    expected[expected > most] = np.inf
    np.testing.assert_allclose(as_floats(cut["cost"]), expected, rtol=1e-14 if floats else 0)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    m=st.integers(0, 300),
    parts=st.integers(2, N),
    most=st.sampled_from([np.inf, 7]),
    traced=st.booleans(),
)
def test_negative_weights_in_any_number_of_parts(
    seed: int, m: int, parts: int, most: float, traced: bool
) -> None:
    edges = random_edges(seed, N, m, negative=True)
    how = {"max_cost": most, "predecessors": traced, "backend": "numba"}
    whole, cut = (og.shortest_paths(graph_of(edges, k), [3, 8], **how) for k in (1, parts))
    assert cut.identical(whole)
    expected = csgraph.bellman_ford(least_matrix(N, *edges), indices=[3, 8])
    expected[expected > most] = np.inf
    np.testing.assert_array_equal(as_floats(cut["cost"]), expected)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    m=st.integers(0, 300),
    parts=st.integers(2, N),
    directed=st.booleans(),
    most=st.sampled_from([None, 0, 1, 3]),
    traced=st.booleans(),
)
def test_hops_in_any_number_of_parts(
    seed: int, m: int, parts: int, directed: bool, most: int | None, traced: bool
) -> None:
    edges = random_edges(seed, N, m)
    how = {"max_hops": most, "predecessors": traced, "backend": "numba"}
    whole, cut = (og.hop_distance(graph_of(edges, k, directed), [3, 8], **how) for k in (1, parts))
    assert cut.identical(whole)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    parts=st.integers(2, N),
    lowered=st.sampled_from([1, 32]),
    floats=st.booleans(),
)
def test_negative_cycles_are_found_in_parts(
    seed: int, parts: int, lowered: int, floats: bool
) -> None:
    """Or the same costs, if no cycle can be reached."""
    rng = np.random.default_rng(seed)
    tail, head = rng.integers(0, N, (2, 90))
    weight = rng.integers(-3, 9, 90) * (0.5 if floats else 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_search, "LOWERED", lowered)
        cut = graph_of((tail, head, weight), parts)
        try:
            expected = og.shortest_paths(graph_of((tail, head, weight), 1), 3, backend="numba")
        except og.NegativeCycle:
            with pytest.raises(og.NegativeCycle) as caught:
                og.shortest_paths(cut, 3, backend="numba")
            least: dict[tuple[int, int], float] = {}
            for u, v, w in zip(tail.tolist(), head.tolist(), weight.tolist(), strict=True):
                least[u, v] = min(w, least.get((u, v), np.inf))
            cycle = caught.value.cycle
            steps = zip(cycle, [*cycle[1:], cycle[0]], strict=True)
            assert sum(least[step] for step in steps) == caught.value.length < 0
        else:
            assert og.shortest_paths(cut, 3, backend="numba").identical(expected)


def test_great_negative_weights_do_not_overflow() -> None:
    """A cycle in one part goes round as often as costs are lowered before it is looked for."""
    tail, head = np.array([0, 1, 2, 3]), np.array([1, 2, 1, 0])
    weight = np.array([1, -(2**55), 1, 1])
    with pytest.raises(og.NegativeCycle, match="1 -> 2 -> 1"):
        og.shortest_paths(graph_of((tail, head, weight), 2, n=8), 0, backend="numba")


@pytest.mark.parametrize(
    ("negative", "traced"),
    [(False, False), (True, False), (False, True)],
    ids=["costs", "negative weights", "predecessors"],
)
def test_a_part_is_held_at_a_time(
    negative: bool, traced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, *ends = grid_edges(24, 0)
    tail, head = np.append(*ends), np.append(*ends[::-1])
    weight = np.random.default_rng(1).integers(0, 9, tail.size)
    height = np.arange(n) if negative else np.zeros(n, int)  # so no cycle is negative
    edges = tail, head, weight + height[head] - height[tail]
    graph = write_graph(graph_of(edges, 9, True, n), tmp_path / "a.zarr")
    monkeypatch.setattr(part_search, "memory_limit", lambda: 0)
    held: list[int] = []
    rows = part_search.PartReader.rows

    def watched(reader: Any, part: int) -> Any:
        found = rows(reader, part)
        held.append(len(reader._kept))
        return found

    monkeypatch.setattr(part_search.PartReader, "rows", watched)
    found = og.shortest_paths(graph, [3, 90], predecessors=traced, backend="numba")
    assert max(held) == 1
    assert len(held) >= 9
    assert not {"rows", "incoming", "tails"} & set(vars(graph))
    whole = graph_of(edges, 1, True, n)
    assert found.identical(og.shortest_paths(whole, [3, 90], predecessors=traced))


def test_parts_of_a_store_are_kept_while_there_is_room(tmp_path: Path) -> None:
    n, tail, head = grid_edges(24, 0)
    edges = tail, head, np.random.default_rng(1).integers(0, 9, tail.size)
    graph = write_graph(graph_of(edges, 9, False, n), tmp_path / "a.zarr")
    reader = part_search.PartReader(graph, Event())
    whole = graph_of(edges, 1, False, n)
    levels, _ = part_search.hop_levels(reader, whole.vertices(0, "s"), n)
    assert reader.arcs_read == graph.arc_count  # each part once
    assert (levels[graph.stored] == og.hop_distance(whole, 0)["hops"].values).all()


def test_a_search_stops_when_it_is_cancelled() -> None:
    cancelled = Event()
    cancelled.set()
    graph = graph_of(random_edges(0), 3)
    with pytest.raises(Cancelled):
        part_search.hop_levels(part_search.PartReader(graph, cancelled), np.array([0]), N)
