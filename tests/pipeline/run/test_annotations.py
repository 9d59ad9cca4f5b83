"""Dask's annotations say which workers do the tasks of a run, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr
from distributed import Client, SpecCluster, Worker
from distributed.scheduler import Scheduler
from watched_raster import wait_until

import orograph as og

HEIGHTS = np.random.default_rng(0).random((64, 64))
OPERATIONS: dict[str, Callable[..., Any]] = {
    "sweep": og.minimum_spanning_forest.submit,
    "frontier": lambda raster, **o: og.cost_distance.submit(raster, [(0, 0)], **o),
    "stages": og.flow_direction.submit,
}
ABLE = "able"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers, of which one has two of the resource MAPS."""
    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", "dashboard": False}}
    options = {"nthreads": 2, "host": "127.0.0.1", "dashboard": False}
    workers = {
        ABLE: {"cls": Worker, "options": {**options, "resources": {"MAPS": 2}}},
        "other": {"cls": Worker, "options": options},
    }
    with SpecCluster(workers, scheduler) as cluster, Client(cluster) as client:
        client.wait_for_workers(2)
        yield client


def tasks_done(client: Client) -> dict[str, int]:
    """How many tasks each worker has done, by its name."""

    def count(dask_worker: Any) -> tuple[str, int]:
        return dask_worker.name, dask_worker.state.executed_count

    return dict(client.run(count).values())


WHERE: list[dict[str, Any]] = [
    {"resources": {"MAPS": 1}},
    {"workers": [ABLE]},
    {"workers": ABLE, "retries": 2},
]


@pytest.mark.parametrize(
    ("name", "where"),
    [
        pytest.param(name, where, marks=[] if name == "sweep" or not n else pytest.mark.long)
        for n, where in enumerate(WHERE)
        for name in OPERATIONS
    ],
    ids=str,
)
def test_only_workers_that_may_do_the_tasks(
    name: str, where: dict[str, Any], client: Client, tmp_path: Path
) -> None:
    options = {"tile": 8, "shard": 16, "client": client}
    expected = OPERATIONS[name](HEIGHTS, tile=8).result()
    before = tasks_done(client)
    with dask.annotate(**where):
        run = OPERATIONS[name](HEIGHTS, out=tmp_path / "out.zarr", **options)
    found = run.result(timeout=300)  # the annotations of its beginning count
    done = tasks_done(client)
    assert done[ABLE] - before[ABLE] >= 16
    assert done["other"] == before["other"]
    xr.testing.assert_identical(found.load(), expected)


def test_a_run_that_no_worker_may_do_says_so(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orograph.run.monitor.PATIENCE", 0.0)

    def waiting() -> og.Run[Any]:
        with dask.annotate(resources={"MAPS": 3}):
            run = og.minimum_spanning_forest.submit(
                HEIGHTS, out=tmp_path / "out.zarr", client=client, backend="numba"
            )
        wait_until(lambda: bool(run.progress().waiting), lambda: run.status == "running")
        return run

    with pytest.warns(RuntimeWarning, match=r"none of the workers \(2\) has the resources"):
        run = waiting()
    run.cancel()
    with pytest.raises(og.Cancelled):
        run.result(timeout=60)


def test_tasks_of_a_higher_priority_come_first(client: Client, tmp_path: Path) -> None:
    """A run of a high priority ends before one that was begun earlier."""
    runs, ended = {}, []
    heights = np.tile(HEIGHTS, (2, 2))
    for name, priority in (("low", -5), ("high", 5)):
        with dask.annotate(priority=priority, workers=[ABLE]):
            runs[name] = og.minimum_spanning_forest.submit(
                heights, tile=8, shard=8, out=tmp_path / f"{name}.zarr", client=client
            )

    def all_ended() -> bool:
        for name, run in runs.items():
            if run.status != "running" and name not in ended:
                ended.append(name)
        return len(ended) == len(runs)

    wait_until(all_ended, lambda: True)
    assert [run.status for run in runs.values()] == ["finished"] * 2
    assert ended == ["high", "low"]
