"""Graphs in parts: any number of parts, on disk, on a cluster and after a kill gives the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_graph import random_edges
from verbs import call
from watched_raster import Gate, GatedGraph, mortal_cluster, wait_until

import orograph as og
from orograph.graphs.forest_sweep import GraphForest
from orograph.graphs.path_frontier import PartPaths
from orograph.run import session
from orograph.tiles.graph import graph as graph_module
from orograph.tiles.graph.graph import Graph, make_graph
from orograph.tiles.graph.store import write_graph


@pytest.fixture(autouse=True, scope="module")
def _small_graphs_stay_in_parts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_module, "JOINED_ARCS", 0)
        yield


OPERATIONS: dict[str, Callable[..., Any]] = {
    "forest": partial(call, og.minimum_spanning_forest),
    "components": partial(call, og.connected_components),
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


@pytest.mark.diagonal
@pytest.mark.parametrize("name", ["a.zarr", "a.zarr/out.zarr"])
@pytest.mark.parametrize(
    "run",
    [
        og.minimum_spanning_forest,
        og.all_pairs,
        lambda graph, **options: call(og.shortest_paths, graph, 0, **options),
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
        with pytest.MonkeyPatch.context() as patch:  # in memory there is no store to write
            patch.setattr(session, "add_table", None)
            assert OPERATIONS[name](graph, client=client).identical(expected)


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
    how = {"max_cost": most, "backend": "numba"}
    whole, cut = (
        og.shortest_paths(graph_of(k, seed, m, floats), [3, 8], **how) for k in (1, parts)
    )
    assert cut.identical(whole)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    m=st.integers(0, 150),
    parts=st.integers(2, 60),
    most=st.sampled_from([None, 0, 2]),
)
def test_hops_in_any_number_of_parts(seed: int, m: int, parts: int, most: int | None) -> None:
    whole, cut = (
        og.hop_distance(graph_of(k, seed, m), [3, 8, 3], max_hops=most, backend="numba")
        for k in (1, parts)
    )
    assert cut.identical(whole)


def test_shortest_paths_read_parts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = write_graph(graph_of(9), tmp_path / "a.zarr")
    spilled: list[Any] = []
    pack = PartPaths.pack
    monkeypatch.setattr(PartPaths, "memory", lambda problem: 0)
    monkeypatch.setattr(PartPaths, "pack", lambda *a: spilled.append(a) or pack(*a))
    out = tmp_path / "b.zarr"
    found = og.shortest_paths(graph, 3, backend="numba", out=out).load()
    assert "rows" not in vars(graph)
    assert len(spilled) >= 9
    assert found.equals(og.shortest_paths(graph_of(1), 3))


@pytest.mark.diagonal
@pytest.mark.parametrize("directed", [False, True], ids=["edges", "arcs"])
@pytest.mark.parametrize("weights", ["int32", "int64", "float64"])
def test_shortest_paths_over_workers(weights: str, directed: bool, tmp_path: Path) -> None:
    """Costs of int64 above 2**53: keys of parts, which are float64, are rounded."""
    tail, head, weight = random_edges(5, 400, 600, floats=weights == "float64")
    weight = weight * (2**48 + 1) if weights == "int64" else weight
    edges = tail, head, weight, np.arange(400)
    whole = og.shortest_paths(make_graph(*edges, directed=directed), [3, 8, 3])
    if weights == "int64":
        assert (whole["cost"] > 2**53).sum() > 50
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        for parts in (1, 4, 16):
            graph = write_graph(
                make_graph(*edges, directed=directed, parts=parts), tmp_path / f"{parts}.zarr"
            )
            out = tmp_path / f"paths-{parts}.zarr"
            found = og.shortest_paths(graph, [3, 8, 3], out=out, client=client)
            assert found.load().equals(whole)
            assert og.shortest_paths(graph, [3, 8, 3]).identical(whole)
        hops = og.hop_distance(graph, 3, out=tmp_path / "hops.zarr", client=client).load()
        assert hops.equals(og.hop_distance(make_graph(*edges, directed=directed), 3))


@pytest.mark.parametrize("operation", [og.shortest_paths, og.hop_distance])
def test_workers_may_come_after_a_run_has_begun(
    operation: Callable[..., Any], tmp_path: Path
) -> None:
    graph = write_graph(graph_of(4), tmp_path / "a.zarr")
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        run = operation.submit(graph, 3, out=tmp_path / "b.zarr", client=client)
        cluster.scale(1)
        assert run.result().load().equals(operation(graph_of(1), 3))


def test_paths_that_were_stopped_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, out = graph_of(16), tmp_path / "a.zarr"
    visit, calls = PartPaths.visit, 0

    def fail_at_the_ninth(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 9:
            raise RuntimeError("stopped here")
        return visit(*arguments)

    monkeypatch.setattr(PartPaths, "visit", fail_at_the_ninth)
    with pytest.raises(RuntimeError, match="stopped here"):
        og.shortest_paths(graph, 3, out=out)
    monkeypatch.undo()
    found = og.shortest_paths(graph, 3, out=out, resume=True).load()
    assert found.equals(og.shortest_paths(graph_of(1), 3))


@pytest.fixture(scope="module")
def mortal_client() -> Iterator[Client]:
    with mortal_cluster(2) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


@pytest.mark.parametrize(
    "name", ["forest", pytest.param("components", marks=pytest.mark.long), "paths"]
)
def test_a_killed_worker_changes_no_bit(
    name: str, mortal_client: Client, gate: Gate, tmp_path: Path
) -> None:
    """A cluster of real processes."""
    operations = {
        **OPERATIONS,
        "paths": lambda graph, **o: call(og.shortest_paths, graph, [3, 8], **o),
    }
    mortal_client.wait_for_workers(2)
    expected = operations[name](graph_of(1))
    graph = write_graph(graph_of(16), tmp_path / "a.zarr")
    gated = GatedGraph(graph.arrays, graph.directed, graph.edge_count, graph.bounds, gate)
    gate.shut(after=9)
    run = operations[name](gated, out=tmp_path / "b.zarr", client=mortal_client, verb="submit")
    reading = 1 if name == "paths" else 2  # in a sweep both workers are, and lose what they read
    wait_until(lambda: gate.held() >= reading, lambda: run.status == "running")
    os.kill(next(iter(mortal_client.run(os.getpid).values())), signal.SIGKILL)
    gate.open()
    assert run.result(timeout=600).load().equals(expected)
    assert gate.arrived() > 16  # what the killed worker had read is read again


PLANNED = {
    "forest": og.minimum_spanning_forest,
    "components": og.connected_components,
    "paths": og.shortest_paths,
    "hops": og.hop_distance,
}


def test_parts_of_few_arcs_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = write_graph(graph_of(7), tmp_path / "a.zarr")
    operations = {
        **OPERATIONS,
        "paths": lambda graph, **o: call(og.shortest_paths, graph, [3, 8], backend="numba", **o),
        "hops": lambda graph, **o: call(og.hop_distance, graph, 3, backend="numba", **o),
    }
    arcs = cut.arc_count
    for name, operation in operations.items():
        expected = operation(graph_of(1))
        for most, parts in ((arcs, 1), (arcs - 1, 7)):
            monkeypatch.setattr(graph_module, "JOINED_ARCS", most)
            run = operation(cut, out=tmp_path / f"{name}-{most}.zarr", verb="submit")
            assert run.result().load().equals(expected)
            assert (run.progress().total == 1) == (parts == 1), name
            assert PLANNED[name].plan(cut).tiles == parts
    assert cut.joined() is cut
    assert cut.part_count == 7
