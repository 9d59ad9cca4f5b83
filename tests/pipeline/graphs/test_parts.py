"""Graphs in parts: any number of parts, on disk, on a cluster and after a kill gives the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_graph import random_edges

import orograph as og
from orograph.graphs import part_paths
from orograph.graphs.forest_sweep import GraphForest
from orograph.tiles.graph.graph import Graph, make_graph
from orograph.tiles.graph.store import write_graph

OPERATIONS: dict[str, Callable[..., Any]] = {
    "forest": og.minimum_spanning_forest,
    "components": og.connected_components,
}


def graph_of(parts: int, seed: int = 0, m: int = 200, floats: bool = False) -> Graph:
    edges = random_edges(seed, m=m, floats=floats)
    return make_graph(*edges, np.arange(60), directed=False, parts=parts)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    m=st.integers(0, 150),
    parts=st.integers(2, 60),
    floats=st.booleans(),
    name=st.sampled_from(sorted(OPERATIONS)),
)
def test_any_number_of_parts_gives_the_same(
    seed: int, m: int, parts: int, floats: bool, name: str
) -> None:
    whole, cut = (OPERATIONS[name](graph_of(k, seed, m, floats)) for k in (1, parts))
    assert cut.identical(whole)


@pytest.mark.parametrize("name", OPERATIONS)
def test_directed_graphs_that_lead_both_ways(name: str, tmp_path: Path) -> None:
    tail, head, weight = random_edges(3)
    both = np.append(tail, head), np.append(head, tail), np.append(weight, weight)
    whole = make_graph(*both, np.arange(60), directed=True)
    cut = make_graph(*both, np.arange(60), directed=True, parts=5)
    expected = OPERATIONS[name](whole)
    assert OPERATIONS[name](cut).identical(expected)
    assert expected.attrs.get("edge_count", 1) < 120


@pytest.mark.parametrize("name", ["a.zarr", "a.zarr/out.zarr"])
@pytest.mark.parametrize(
    "run",
    [
        og.minimum_spanning_forest,
        og.all_pairs,
        lambda graph, **options: og.shortest_paths(graph, 0, **options),
    ],
    ids=["forest", "all pairs", "shortest paths"],
)
def test_a_stored_graph_that_is_read_is_not_written(
    run: Callable[..., Any], name: str, tmp_path: Path
) -> None:
    graph = write_graph(graph_of(3), tmp_path / "a.zarr")
    with pytest.raises(og.InputError, match=r"source .*a\.zarr lies there or around it"):
        run(graph, out=tmp_path / name, overwrite=True)


@pytest.mark.parametrize("name", OPERATIONS)
def test_on_disk_and_on_a_cluster(name: str, tmp_path: Path) -> None:
    graph = write_graph(graph_of(7), tmp_path / "a.zarr")
    expected = OPERATIONS[name](graph_of(1))
    assert OPERATIONS[name](graph, out=tmp_path / "b.zarr").load().equals(expected)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        found = OPERATIONS[name](graph, out=tmp_path / "c.zarr", client=client)
        assert found.load().equals(expected)


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, out = graph_of(16), tmp_path / "a.zarr"
    merge, calls = GraphForest.merge, 0

    def fail_at_the_third(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise RuntimeError("stopped here")
        return merge(*arguments)

    monkeypatch.setattr(GraphForest, "merge", fail_at_the_third)
    with pytest.raises(RuntimeError, match="stopped here"):
        og.minimum_spanning_forest(graph, out=out)
    monkeypatch.undo()
    leaves: list[Any] = []
    leaf = GraphForest.leaf
    monkeypatch.setattr(GraphForest, "leaf", lambda *a: leaves.append(a) or leaf(*a))
    found = og.minimum_spanning_forest(graph, out=out, resume=True).load()
    assert found.equals(og.minimum_spanning_forest(graph_of(1)))
    assert len(leaves) < 16


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    m=st.integers(0, 300),
    parts=st.integers(2, 60),
    floats=st.booleans(),
    most=st.sampled_from([np.inf, 0, 7]),
)
def test_shortest_paths_in_any_number_of_parts(
    seed: int, m: int, parts: int, floats: bool, most: float
) -> None:
    whole, cut = (
        og.shortest_paths(graph_of(k, seed, m, floats), [3, 8], max_cost=most, backend="numba")
        for k in (1, parts)
    )
    assert cut.identical(whole)


def test_shortest_paths_read_parts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = write_graph(graph_of(9), tmp_path / "a.zarr")
    monkeypatch.setattr(part_paths, "parts_at_once", lambda graph: 2)
    found = og.shortest_paths(graph, 3, backend="numba")
    assert "rows" not in vars(graph)
    assert found.equals(og.shortest_paths(graph_of(1), 3))
    assert og.shortest_paths(graph, 3, predecessors=True)["cost"].equals(found["cost"])


def test_hooks_are_for_one_part() -> None:
    with pytest.raises(og.InputError, match="method: 'compress' is for a graph in one part"):
        og.connected_components(graph_of(3), method="compress")
