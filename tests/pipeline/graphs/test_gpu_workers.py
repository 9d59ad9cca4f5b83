"""Graphs in parts on workers that each have a GPU, which emulators stand for."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator
from distributed import Client, LocalCluster, get_worker
from oracle_graph import random_edges
from watched_raster import wait_until

import orograph as og
from orograph.graphs.device import choice
from orograph.kernels import device
from orograph.kernels.graph import near_far_cuda
from orograph.run import backends as execution_backends
from orograph.run.cluster import first_worker
from orograph.tiles.graph import graph as graph_module
from orograph.tiles.graph.graph import Graph, make_graph
from orograph.tiles.graph.store import write_graph

QUESTIONS: dict[str, Any] = {
    "paths": lambda graph, **options: og.shortest_paths(graph, [1, 2], **options),
    "hops": lambda graph, **options: og.hop_distance(graph, [1, 5], **options),
    "components": og.connected_components,
    "forest": og.minimum_spanning_forest,
}


def graph_of(parts: int, floats: bool = False) -> Graph:
    """A graph with loops, parallel edges and vertices without any."""
    tail, head, weight = random_edges(4, 60, 70, floats=floats)
    tail, head = np.append(tail, [7, 3, 3]), np.append(head, [7, 4, 4])
    weight = np.append(weight, weight[:3])
    return make_graph(tail, head, weight, np.arange(66), directed=False, parts=parts)


@pytest.fixture
def gpus(emulated_gpu: Emulator, monkeypatch: pytest.MonkeyPatch) -> dict[str, Emulator]:
    """The GPU of each worker, by its address."""
    monkeypatch.setattr(near_far_cuda, "THREADS", 32)
    monkeypatch.setattr(graph_module, "JOINED_ARCS", 0)
    found: dict[str, Emulator] = {}

    def of_this_worker() -> Emulator:
        try:
            worker = get_worker().address
        except ValueError:  # asked how much memory it has, outside a task
            return emulated_gpu
        return found.setdefault(worker, Emulator("random", len(found)))

    monkeypatch.setattr(device, "_gpu", of_this_worker)
    monkeypatch.setattr(execution_backends, "missing_gpu", lambda: None)
    return found


@pytest.fixture
def client() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.mark.diagonal
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("floats", [False, True], ids=["integers", "floats"])
def test_both_gpus_give_the_bits_of_one_part(
    question: str, floats: bool, gpus: dict[str, Emulator], client: Client, tmp_path: Path
) -> None:
    ask = QUESTIONS[question]
    expected = ask(graph_of(1, floats), backend="numba")
    graph = write_graph(graph_of(8, floats), tmp_path / "graph.zarr")
    found = ask(graph, backend="cuda", client=client, out=tmp_path / "out.zarr")
    assert found.load().equals(expected)
    assert min(gpu.launches for gpu in gpus.values()) > 0
    assert len(gpus) == 2
    assert ask(graph_of(3, floats), backend="cuda", client=client).equals(expected)


def test_auto_takes_gpus_for_large_parts(
    gpus: dict[str, Emulator], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of(2)
    expected = og.connected_components(graph_of(1), backend="numba")
    assert og.connected_components(graph, client=client).equals(expected)
    assert not gpus
    monkeypatch.setattr(choice, "LEAST_OF_PARTS", graph.arc_count // 2)
    assert og.connected_components(graph, client=client).equals(expected)
    assert gpus


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_graph_that_a_gpu_cannot_hold_is_taken_part_by_part(
    question: str, emulated_gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a search, states of parts are moved off the GPU for others."""
    monkeypatch.setattr(near_far_cuda, "THREADS", 32)
    monkeypatch.setattr(graph_module, "JOINED_ARCS", 0)
    monkeypatch.setattr(emulated_gpu, "free_bytes", lambda: 2**13)
    expected = QUESTIONS[question](graph_of(1), backend="numba")
    assert QUESTIONS[question](graph_of(20), backend="cuda").equals(expected)
    assert emulated_gpu.launches > 0


@pytest.mark.parametrize("question", ["hops", "forest"])
def test_workers_that_come_later_take_parts_on_their_gpus(
    question: str, gpus: dict[str, Emulator], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_worker, "missing_gpu", lambda: None)
    expected = QUESTIONS[question](graph_of(1), backend="numba")
    with (
        LocalCluster(
            n_workers=0, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(QUESTIONS[question], graph_of(3), client=client)
        wait_until(lambda: client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.tasks))
        cluster.scale(1)
        assert asked.result(500).equals(expected)
    assert gpus
