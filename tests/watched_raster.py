"""A run that can be watched, caught in the middle and killed: slow rasters and sinks, sessions.

Also a script, ``watched_raster.py INPUT OUT DIARY WORKERS``: such a run in a process of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import psutil
from distributed import LocalCluster
from numpy.typing import NDArray

import orograph as og
from orograph.execution import launch
from orograph.tiles.grid.window import Window
from orograph.tiles.store.create import Layout
from orograph.tiles.store.raster import StoreRaster
from orograph.tiles.store.sink import ShardWriter, StoreSink

TILE = 8
SHARD = 16


class WatchedRaster(StoreRaster):
    """Appends a line to ``diary`` for every window read, in whatever process, then waits.

    ``deadly``: it kills the process that reads, unless that has made it.
    """

    def __init__(
        self, path: str | os.PathLike[str], diary: Path, seconds: float = 0.0, deadly: bool = False
    ) -> None:
        super().__init__(path)
        self.diary, self.seconds, self.deadly = diary, seconds, deadly
        self.spared = os.getpid()

    def read(self, window: Window) -> NDArray[Any]:
        with open(self.diary, "ab", buffering=0) as diary:
            diary.write(f"{window.y} {window.x}\n".encode())
        if self.deadly and os.getpid() != self.spared:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.seconds)
        return super().read(window)


class SlowSink(StoreSink):
    """Takes its time for every shard."""

    def writer(self, variable: str, window: Window) -> ShardWriter:
        time.sleep(0.03)
        return super().writer(variable, window)


class LastWords:
    """The result of a task whose worker dies when it is asked for it, if it is the first asked."""

    def __init__(self, asked: Path) -> None:
        self.asked = asked

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.asked.exists():
            self.asked.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return str, ("told",)


@contextmanager
def mortal_cluster(n_workers: int) -> Iterator[LocalCluster]:
    """Processes of one thread, to be killed.

    When it is closed a LocalCluster stumbles over a worker whose end it has heard of before its
    beginning; by then everything has ended.
    """
    cluster = LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None
    )
    try:
        yield cluster
    finally:
        with suppress(KeyError):
            cluster.close()


def wait_until(
    met: Callable[[], object], alive: Callable[[], bool] = lambda: True, seconds: float = 60
) -> None:
    """Wait for something, a minute at most, while what brings it about is alive."""
    limit = time.monotonic() + seconds
    while not met():
        assert alive(), "it ended too early"
        assert time.monotonic() < limit, f"it did not come so far within {seconds:g} s"
        time.sleep(0.002)


def kill_session(
    command: Sequence[object], ready: Callable[[], object], workers: int, *, alone: bool = False
) -> None:
    """Start a session, and kill it with its workers, or ``alone``, when it has come so far."""
    process = subprocess.Popen(
        list(map(str, command)),
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(ready, lambda: process.poll() is None)
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= workers
        if alone:
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        _, left = psutil.wait_procs(children, timeout=30)
        assert not left, "workers outlive their session"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def small_shards(shape: tuple[int, int], tile: int) -> Layout:
    """Shards of 2 x 2 tiles, in place of `launch.run_layout`: many shards on a small grid."""
    return Layout(tile, 2 * tile)


def read_tiles(diary: Path) -> Counter[tuple[int, int]]:
    """How often each tile, by its first cell, has been read."""
    lines = diary.read_text().splitlines() if diary.exists() else ()
    return Counter((int(y), int(x)) for y, x in map(str.split, lines))


def tasks_at_work(dask_worker: Any) -> int:
    """For `Client.run`: the scheduler forgets a cancelled task, the worker goes on with it."""
    return len(dask_worker.state.executing) + len(dask_worker.state.long_running)


def keys_held(dask_scheduler: Any) -> list[Any]:
    """For `Client.run_on_scheduler`: all tasks that it knows."""
    return list(dask_scheduler.tasks)


def main(source: str, out: str, diary: str, workers: int) -> None:
    """Make the forest, slowly."""
    launch.run_layout, launch.StoreSink = small_shards, SlowSink  # type: ignore[misc]
    started = og.cluster(n_workers=workers, dashboard_address=None) if workers else nullcontext()
    with started as client, og.config.set(threads=2):
        og.minimum_spanning_forest(
            WatchedRaster(source, Path(diary), 0.02), tile=TILE, out=out, client=client
        )


if __name__ == "__main__":
    # by its proper name, so that workers find the classes where they expect them
    from watched_raster import main as run

    run(*sys.argv[1:4], int(sys.argv[4]))
