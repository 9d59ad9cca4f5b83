"""A run as an object: watched, waited for, cancelled; in threads and on a cluster."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import oracle_forest as oracle
import pytest
import xarray as xr
from dask._task_spec import Task, TaskRef
from dask.system import CPU_COUNT
from distributed import Client, LocalCluster
from watched_raster import SHARD, TILE, Gate, WatchedRaster, wait_until

import orograph as og
from orograph.run.cluster.compute import compute
from orograph.run.feedback import Progress
from orograph.run.run import Run
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.array import ArrayRaster

GRID = np.random.default_rng(5).integers(0, 90, (70, 90)).astype(np.float32)
EXPECTED = oracle.minimum_spanning_forest(GRID).mask


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as local,
        Client(local, set_as_default=False) as connected,
    ):
        yield connected


@dataclass(frozen=True, eq=False, repr=False)
class GatedArray(ArrayRaster):
    """A raster in memory behind a gate."""

    gate: Gate | None = None

    def read(self, window: Window) -> np.ndarray:
        assert self.gate is not None
        self.gate.enter()
        return super().read(window)


Start = Callable[..., Run]


@pytest.fixture(params=["in memory", "threads", "cluster"])
def start(request: pytest.FixtureRequest, tmp_path: Path, gate: Gate) -> Start:
    """Starts a run that reads through the gate, the same one each time."""
    og.ingest(GRID, tmp_path / "dem.zarr", tile=TILE, shard=SHARD)
    options: dict[str, Any] = {"tile": TILE}
    if request.param != "in memory":
        options |= {"out": tmp_path / "forest.zarr", "shard": SHARD}
    if request.param == "cluster":
        options["client"] = request.getfixturevalue("client")

    def begin(**more: Any) -> Run:
        raster = (
            GatedArray(GRID, GRID.dtype, gate=gate)
            if request.param == "in memory"
            else WatchedRaster(tmp_path / "dem.zarr", tmp_path / "diary.txt", gate=gate)
        )
        with og.config.set(threads=2):
            run = og.minimum_spanning_forest.submit(raster, **options, **more)
        assert isinstance(run, Run)
        return run

    return begin


def going_on(run: Run) -> Callable[[], bool]:
    """For `wait_until`."""
    return lambda: run.status == "running"


def test_a_run_comes_back_at_once_and_gives_its_result(start: Start, gate: Gate) -> None:
    run = start()  # comes back, though nothing can be read yet
    assert run.status == "running"
    gate.open()
    result = run.result()
    assert run.status == "finished"
    assert isinstance(result, xr.Dataset)
    np.testing.assert_array_equal(result["edges"].values, EXPECTED)
    assert run.result() is result
    assert run.result(timeout=0) is result


def test_progress_only_grows_and_ends_at_its_total(start: Start, gate: Gate) -> None:
    run = start()
    seen = [run.progress()]

    def several_seen() -> bool:
        """In memory it is one task on the way up, and one down."""
        seen.append(run.progress())
        total = seen[-1].total
        return total > 0 and len({progress.done for progress in seen}) >= min(6, total - 1)

    wait_until(gate.until(several_seen), going_on(run))
    gate.open()
    while run.status == "running":
        seen.append(run.progress())
        time.sleep(0.001)
    run.result()
    seen.append(run.progress())
    done = [progress.done for progress in seen]
    assert done == sorted(done)
    assert len(set(done)) >= min(6, seen[-1].total)
    assert all(progress.done <= progress.total for progress in seen)
    assert {progress.total for progress in seen} <= {0, seen[-1].total}
    assert seen[-1].done == seen[-1].total > 0


def test_waiting_too_short_says_how_far_it_is_and_stops_nothing(start: Start, gate: Gate) -> None:
    run = start()
    with pytest.raises(
        TimeoutError, match=r"not finished after 0.1 s \((.+: )?\d+ of \d+ tasks.*\)"
    ):
        run.result(timeout=0.1)
    gate.open()
    np.testing.assert_array_equal(run.result()["edges"].values, EXPECTED)


def test_a_cancelled_run_ends_soon(start: Start, gate: Gate) -> None:
    run = start()
    wait_until(gate.until(lambda: gate.arrived() >= 40 and gate.held()), going_on(run))
    assert run.progress().done < run.progress().total
    assert run.status == "running"
    run.cancel()
    # no more is read than the shards, of four tiles, that are in hand
    gate.shut(after=gate.arrived() + 2 * 4)
    with pytest.raises(og.Cancelled, match="cancelled"):
        run.result()
    assert run.status == "cancelled"
    assert run.progress().done < run.progress().total
    run.cancel()  # again: nothing
    with pytest.raises(og.Cancelled):
        run.result()


def test_a_run_cancelled_before_it_has_begun_is_cancelled(start: Start, gate: Gate) -> None:
    run = start()
    run.cancel()
    gate.open()
    with pytest.raises(og.Cancelled):
        run.result()
    assert run.status == "cancelled"


def test_cancelling_a_finished_run_changes_nothing(start: Start, gate: Gate) -> None:
    gate.open()
    run = start()
    result = run.result()
    run.cancel()
    assert run.status == "finished"
    assert run.result() is result


def test_what_it_is_can_be_read_from_it(start: Start, gate: Gate) -> None:
    run = start()
    wait_until(lambda: run.progress().total, going_on(run))
    total = run.progress().total
    assert repr(run).startswith("<orograph.Run: running, ")
    assert str(Progress(3, 8)) == "3 of 8 tasks"
    gate.open()
    run.result()
    assert repr(run) == f"<orograph.Run: finished, {total} of {total} tasks>"


def test_a_run_on_a_cluster_can_be_watched_on_its_dashboard(
    client: Client, start: Start, gate: Gate
) -> None:
    gate.open()
    run = start()
    on_cluster = run.dashboard_link is not None
    assert run.dashboard_link in (None, client.dashboard_link)
    assert on_cluster == (run._client is client)
    run.result()


def test_a_client_works_that_is_not_the_default(client: Client, tmp_path: Path) -> None:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as other,
        Client(other) as default,
    ):
        out = tmp_path / "forest.zarr"
        result = og.minimum_spanning_forest(GRID, tile=TILE, shard=SHARD, out=out, client=client)
        np.testing.assert_array_equal(result["edges"].values, EXPECTED)
        assert not default.run_on_scheduler(lambda dask_scheduler: dask_scheduler.total_occupancy)
        assert not other.scheduler.task_groups


class Rotten(Exception):
    """Something that no one has foreseen."""


@dataclass(frozen=True, eq=False, repr=False)
class RottenArray(ArrayRaster):
    """Cannot be read in one place."""

    def read(self, window: Window) -> np.ndarray:
        if (window.y, window.x) == (40, 40):
            raise Rotten("row 40")
        return super().read(window)


def test_an_unforeseen_exception_is_the_cause_of_an_own_error() -> None:
    run = og.minimum_spanning_forest.submit(RottenArray(GRID, GRID.dtype), tile=TILE)
    for _ in range(2):
        with pytest.raises(og.RunError, match="Rotten: row 40") as caught:
            run.result()
        assert isinstance(caught.value.__cause__, Rotten)
    assert run.status == "failed"
    assert repr(run).startswith("<orograph.Run: failed, ")
    with pytest.raises(og.RunError, match="Rotten: row 40"):
        og.minimum_spanning_forest(RottenArray(GRID, GRID.dtype), tile=TILE)


def test_a_run_that_fails_stops_its_other_threads() -> None:
    before = set(threading.enumerate())
    with pytest.raises(og.RunError, match="Rotten"):
        og.minimum_spanning_forest(RottenArray(GRID, GRID.dtype), tile=TILE)
    assert set(threading.enumerate()) <= before


def test_runs_leave_no_threads_behind() -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        og.minimum_spanning_forest(GRID, tile=TILE)
    assert set(threading.enumerate()) <= before


@dataclass(frozen=True, eq=False, repr=False)
class CrowdedArray(ArrayRaster):
    """Notes which threads are at it, and gives nothing before there are so many."""

    expected: int = 0
    threads: set[int] = field(default_factory=set)

    def read(self, window: Window) -> np.ndarray:
        if threading.current_thread() is not threading.main_thread():  # takes the fingerprint
            self.threads.add(threading.get_ident())
            wait_until(lambda: len(self.threads) >= self.expected)
        return super().read(window)


@pytest.mark.parametrize("threads", [0, 1, 3], ids=["one a core", "1", "3"])
def test_a_run_takes_as_many_threads_as_it_is_told(threads: int, tmp_path: Path) -> None:
    raster = CrowdedArray(GRID, GRID.dtype, expected=threads or CPU_COUNT)
    with og.config.set(threads=threads):
        og.minimum_spanning_forest(raster, tile=4, shard=8, out=tmp_path / "forest.zarr")
    assert len(raster.threads) == raster.expected


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """Where tests run in the background, the shell has told Python to ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def main_thread_waits() -> bool:
    """Does it wait in `Run.result`?"""
    codes = set()
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        codes.add(frame.f_code)
        frame = frame.f_back
    return {Run.result.__code__, threading.Condition.wait.__code__} <= codes


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_stops_the_run(start: Start, gate: Gate) -> None:
    run = start()

    def press() -> None:
        wait_until(lambda: gate.held() and main_thread_waits(), going_on(run))
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        threading.Thread(target=press).start()
        run.result()
    gate.open()
    with pytest.raises(og.Cancelled):
        run.result()
    assert run.status == "cancelled"


def test_waiting_for_a_cluster_piles_nothing_up(client: Client, tmp_path: Path) -> None:
    """A run polls twice a second: what a poll leaves behind would grow with the run's time."""
    begun, gate, key = tmp_path / "begun", tmp_path / "open", "gate-" + "0" * 32

    def hold() -> None:
        begun.touch()
        while not gate.exists():
            time.sleep(0.05)

    def wait_for_gate(_: Any) -> int:
        return 1

    tasks: dict[Any, Any] = {key: Task(key, hold)}
    keys = [(f"behind-{'0' * 32}", number) for number in range(100)]
    tasks |= {name: Task(name, wait_for_gate, TaskRef(key)) for name in keys}
    loop = client.loop.asyncio_loop  # type: ignore[attr-defined]

    def counted() -> int:
        return len(asyncio.all_tasks(loop))

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(compute, tasks, keys, client, threading.Event())
        wait_until(begun.exists)
        time.sleep(1)
        early = counted()
        time.sleep(3)
        late = counted()
        gate.touch()
        assert waiting.result(timeout=500) == 1
    assert late < early + 50


def test_what_is_cancelled_is_resumed(client: Client, tmp_path: Path, gate: Gate) -> None:
    og.ingest(GRID, tmp_path / "dem.zarr", tile=TILE, shard=SHARD)
    source = tmp_path / "dem.zarr"
    where: tuple[dict[str, Any], ...] = ({}, {"client": client})
    for stopped_in in where:
        for resumed_in in where:
            raster = WatchedRaster(source, tmp_path / "diary.txt", gate=gate)
            out = tmp_path / f"{bool(stopped_in)}-{bool(resumed_in)}.zarr"
            options = {"tile": TILE, "shard": SHARD, "out": out}
            gate.shut(after=gate.arrived())
            run = og.minimum_spanning_forest.submit(raster, **options, **stopped_in)
            wait_until(gate.until(lambda run=run: run.progress().done >= 10), going_on(run))
            run.cancel()
            gate.shut(after=gate.arrived() + 2 * 4)  # what is in hand
            with pytest.raises(og.Cancelled):
                run.result()
            gate.open()
            result = og.minimum_spanning_forest(raster, **options, **resumed_in, resume=True)
            np.testing.assert_array_equal(result["edges"].values, EXPECTED)


@pytest.mark.parametrize("kind", ["store", "GeoTIFF", "lazy array"])
def test_calls_leave_no_pools_of_threads(kind: str, tmp_path: Path) -> None:
    """Dask keeps for ever a pool that it has started for a thread."""
    dem = xr.DataArray(np.random.default_rng(0).random((40, 40)), dims=("y", "x"), name="dem")
    dem = dem.assign_coords(y=np.arange(40.0)[::-1], x=np.arange(40.0))
    source: Any = dem.chunk({"y": 20, "x": 20})
    if kind == "store":
        og.ingest(dem, source := tmp_path / "dem.zarr", tile=16)
    elif kind == "GeoTIFF":
        source = og.to_geotiff(dem, tmp_path / "dem.tif")

    def pools() -> int:
        gc.collect()
        # by their types: the class of a weak reference whose object has gone cannot be asked for
        return sum(issubclass(type(thing), Executor) for thing in gc.get_objects())

    og.fill_depressions(source)
    before = pools()
    for _ in range(3):
        og.fill_depressions(source)
    assert pools() <= before
