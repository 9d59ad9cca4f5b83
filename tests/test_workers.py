"""Workers that die, do not come or are paused: what a run does, and what it says."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from watched_raster import (
    LastWords,
    WatchedRaster,
    mortal_cluster,
    wait_until,
)

import orograph as og
from orograph.engines.executors import executor

TOKEN = "0123456789abcdef" * 2
SHAPE, TILE = (150, 170), 10
TILES = 15 * 17
ALL = ("cost", "back_direction", "allocation")
rng = np.random.default_rng(17)
FRICTION = rng.integers(1, 10, SHAPE).astype(np.float32)
FRICTION[rng.random(SHAPE) < 0.1] = np.nan
SMALL = np.random.default_rng(2).integers(1, 9, (24, 24)).astype(np.float32)
SOURCES = [(0.0, 0.0), (169.0, 149.0)]
FRICTION[0, 0] = FRICTION[149, 169] = 1.0


# --- workers that die ------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[1, 2], ids=["1 worker", "2 workers"])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Processes that are forked from one that has imported all: another is soon there."""
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context()  # sets a list of its own the first time
        imported = [
            "distributed",
            "pandas",
            "orograph.engines.frontier.driver",
            "orograph.distance.cost_distance",
        ]
        multiprocessing.get_context("forkserver").set_forkserver_preload(imported)
        with mortal_cluster(request.param) as local:
            yield local


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as connected:
        connected.wait_for_workers(len(cluster.workers), timeout=60)
        yield connected


@pytest.fixture(scope="module")
def expected() -> xr.Dataset:
    return og.cost_distance(FRICTION, SOURCES, tile=170, outputs=ALL)


@pytest.fixture(scope="module")
def friction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("input") / "friction.zarr"
    og.ingest(FRICTION, path, tile=TILE)
    return path


def test_a_task_whose_worker_dies_when_it_is_done_is_done_again(
    client: Client, tmp_path: Path
) -> None:
    """The task is done, its result is asked for, and with the worker the result is gone."""
    with executor(client, "cost-distance", TOKEN) as homes:
        home, *_ = homes.idle()
        ticket = homes.submit(home, "visit", LastWords, tmp_path / "asked")
        done: list[Any] = []
        with ThreadPoolExecutor(1) as pool:
            while not done:
                done = pool.submit(homes.next_done, Event()).result(timeout=60)
    assert done == [(ticket, "told")]
    assert (tmp_path / "asked").exists()


def test_a_task_that_always_kills_its_worker_is_an_error_and_no_loop(
    client: Client, friction: Path, tmp_path: Path
) -> None:
    deadly = WatchedRaster(friction, tmp_path / "diary.txt", deadly=True)
    run = og.cost_distance(deadly, SOURCES, out=tmp_path / "c", client=client, wait=False)
    with pytest.raises(og.RunError, match=r"killed its workers.*resume=True"):
        run.result(timeout=500)


@pytest.mark.parametrize("rounds", [2, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.timeout(7200)
def test_three_kills_stall_no_cost_distance_and_change_no_bit(
    client: Client,
    cluster: LocalCluster,
    friction: Path,
    tmp_path: Path,
    expected: xr.Dataset,
    rounds: int,
) -> None:
    """Each round at three other places of the front; each time the nanny starts another worker."""
    where, killed = np.random.default_rng(rounds), set[int]()
    for number in range(rounds):
        run = og.cost_distance(
            friction, SOURCES, outputs=ALL, out=tmp_path / f"{number}.zarr", client=client,
            wait=False,
        )  # fmt: skip
        for share in sorted(where.uniform(0, 0.8, 3)):
            wait_until(
                lambda share=share, run=run: run.progress().done >= share * TILES,
                lambda run=run: run.status == "running" or run.result() is None,
            )
            wait_until(lambda: victims(cluster) - killed)
            victim = min(victims(cluster) - killed)
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)
        result = run.result(timeout=300)
        for name in ALL:
            np.testing.assert_array_equal(result[name].values, expected[name].values)
        print(f"round {number + 1}: {len(killed)} kills, the same bits", flush=True)
    assert len(killed) == 3 * rounds


def victims(cluster: LocalCluster) -> set[int]:
    """The workers' processes."""
    return {nanny.pid for nanny in cluster.workers.values() if nanny.pid is not None}
