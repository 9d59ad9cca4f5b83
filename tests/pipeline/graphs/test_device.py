"""Graphs on a GPU, which the emulator stands for: what is kept, uploaded in pieces, and chosen."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator
from oracle_graph import random_edges

import orograph as og
from orograph.graphs.device import choice, rows
from orograph.kernels.graph import near_far_cuda
from orograph.run.options import RunSpec
from orograph.tiles.graph import graph as graph_module
from orograph.tiles.graph.graph import Graph, make_graph
from orograph.tiles.graph.store import write_graph
from orograph.tiles.open_storage import open_storage

N = 60


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, emulated_gpu: Emulator) -> Emulator:
    """Let few threads wait for work, and graphs be in parts."""
    monkeypatch.setattr(near_far_cuda, "THREADS", 32)
    monkeypatch.setattr(graph_module, "JOINED_ARCS", 0)
    return emulated_gpu


def graph_of(directed: bool, parts: int = 1, floats: bool = False) -> Graph:
    """Return a random graph; a directed one has each edge both ways."""
    tail, head, weight = random_edges(4, N, 250, floats=floats)
    if directed:
        tail, head = np.append(tail, head), np.append(head, tail)
        weight = np.append(weight, weight)
    return make_graph(tail, head, weight, np.arange(N), directed=directed, parts=parts)


QUESTIONS: dict[str, Any] = {
    "paths": lambda graph, backend: og.shortest_paths(graph, [1, 2], backend=backend),
    "hops": lambda graph, backend: og.hop_distance(graph, [1, 5], backend=backend),
    "components": lambda graph, backend: og.connected_components(graph, backend=backend),
    "forest": lambda graph, backend: og.minimum_spanning_forest(graph, backend=backend),
}


@pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])
def test_is_connected_finds_the_same_paths(
    directed: bool, tmp_path: Path, emulated_gpu: Emulator
) -> None:
    tail, head, weight = random_edges(6, N, 90)
    graph = make_graph(tail, head, weight, np.arange(N) * 3, directed=directed, parts=3)
    stored = write_graph(graph, open_storage(tmp_path / "graph"))
    ends = [0, 3, 9, 30, 60], [120, 90, 9, 66, 12]
    expected = og.is_connected(graph, *ends, backend="numba")
    found = og.is_connected(stored, *ends, backend="cuda")
    assert emulated_gpu.launches
    np.testing.assert_array_equal(found.hops, expected.hops)
    for one, other in zip(found.paths, expected.paths, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_array_equal(one.cells, other.cells)
    assert {-1, 0} < set(found.hops.tolist())


@pytest.mark.diagonal
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])
def test_a_stored_graph_in_parts_is_uploaded_in_pieces(
    directed: bool, question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "PIECE", 37)
    expected = QUESTIONS[question](graph_of(directed, floats=True), "numba")
    graph = write_graph(graph_of(directed, 3, floats=True), open_storage(tmp_path / "graph"))
    found = QUESTIONS[question](graph, "cuda")
    assert found.equals(expected)
    assert "rows" not in graph.__dict__


def test_an_edge_without_a_reverse_is_found() -> None:
    graph = make_graph(
        np.array([0, 1, 1]), np.array([1, 0, 2]), np.ones(3), np.arange(3), directed=True
    )
    assert not rows.on_gpu(graph).reversible
    with pytest.raises(og.InputError, match=r"edge 2 \(1 to 2, weight 1\.0\)"):
        og.connected_components(graph, backend="cuda")
    # parallel edges that cross: not seen from the order of the arcs, but each has its reverse
    crossed = make_graph(
        np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]), np.array([2, 5, 5, 2]), np.arange(2),
        directed=True,
    )  # fmt: skip
    found = og.minimum_spanning_forest(crossed, backend="cuda")
    assert found.equals(og.minimum_spanning_forest(crossed, backend="numba"))


@pytest.mark.parametrize("memory", [2**40, 8000, 0], ids=["at once", "by two", "one by one"])
def test_many_sources(memory: int, small: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, sources = graph_of(True, floats=True), [5, 1, 9, 9, 30, 2, 3, 44, 59]
    expected = og.shortest_paths(graph, sources, max_cost=1.0, backend="numba")
    monkeypatch.setattr(small, "free_bytes", lambda: memory)
    assert og.shortest_paths(graph, sources, max_cost=1.0, backend="cuda").equals(expected)
    assert np.isinf(expected["cost"]).any()


def test_negative_weights() -> None:
    tail, head, weight = random_edges(4, N, 250, negative=True)
    graph = make_graph(tail, head, weight, np.arange(N), directed=True)
    assert weight.min() < 0
    found, expected = (
        og.shortest_paths(graph, [1, 2], predecessors=True, backend=backend)
        for backend in ("cuda", "numba")
    )
    assert found.equals(expected)
    ring = np.arange(5)
    cycle = make_graph(ring, np.roll(ring, -1), np.array([1, 1, 1, 1, -5]), ring, directed=True)
    with pytest.raises(og.NegativeCycle):
        og.shortest_paths(cycle, 0, backend="cuda")


@pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])
def test_incoming_rows_are_those_of_the_host(directed: bool) -> None:
    tail, head, weight = random_edges(4, N, 250)
    graph = make_graph(tail, head, weight, np.arange(N), directed=directed)
    found = rows.on_gpu(graph).incoming
    for part, expected in zip(
        (found.indptr, found.indices, found.weight), graph.incoming, strict=True
    ):
        np.testing.assert_array_equal(part, expected)


def test_a_graph_stays_while_it_exists() -> None:
    graph = graph_of(False)
    held = rows.on_gpu(graph)
    og.hop_distance(graph, 1, backend="cuda")
    links = held.links
    og.shortest_paths(graph, 1, backend="cuda")
    assert rows.on_gpu(graph) is held
    assert held.rows.indices is links.indices
    assert held.links is links
    left = weakref.ref(held)
    del graph, held, links
    gc.collect()
    assert left() is None


def test_auto_takes_what_is_faster(small: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, stage = graph_of(False), "open_part"
    arcs = graph.arc_count

    def chosen(backend: str | None = None, **options: Any) -> str:
        return choice.choose_for_graph(stage, graph, RunSpec(backend=backend, **options))

    for least, expected in ((arcs + 1, "numba"), (arcs, "cuda")):
        monkeypatch.setitem(choice.LEAST, stage, choice.Least(least, 2**40))
        assert chosen() == chosen("auto") == expected
        assert chosen("cuda") == "cuda"
        assert chosen("numba") == "numba"
    monkeypatch.setattr(small, "free_bytes", lambda: 1000)
    assert chosen() == "numba"
    rows.on_gpu(graph)
    for least, expected in ((arcs + 1, "numba"), (arcs, "cuda")):
        monkeypatch.setitem(choice.LEAST, stage, choice.Least(2**40, least))
        assert chosen() == expected
