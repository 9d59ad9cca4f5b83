"""A run that can be watched, held in the middle and killed: gated rasters and sinks, sessions.

Also a program, ``INPUT OUT DIARY WORKERS READING WRITING``: such a run in a process of its own,
with the folders of its gates.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dask
import psutil
from distributed import LocalCluster
from programs import start_program

import orograph as og
from orograph.run import session
from orograph.tiles.format.frames import CellTarget
from orograph.tiles.graph.graph import Graph, Rows
from orograph.tiles.grid.window import Window
from orograph.tiles.store.raster import StoreRaster
from orograph.tiles.store.sink import ShardWriter, StoreSink

TILE = 8
SHARD = 16


class Gate:
    """Holds whoever comes to it, in whatever process, so that a run stays where a test wants it.

    A test that fails must open it too: the fixture ``gate`` does.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._arrivals, self._shut = self.folder / "arrivals", self.folder / "shut"

    def shut(self, after: int = 0) -> None:
        """Let ``after`` through in all, and hold the others."""
        new = self._shut.with_suffix(".new")
        new.write_text(str(after))
        new.replace(self._shut)

    def open(self) -> None:
        """Hold nobody."""
        self._shut.unlink(missing_ok=True)

    def enter(self) -> None:
        """Wait until the gate lets this one through."""
        with open(self._arrivals, "ab", buffering=0) as arrivals:
            arrivals.write(b".")
            number = arrivals.tell()
        while number > self._allowed():
            time.sleep(0.002)

    def held(self) -> int:
        """How many wait, those among them that have been killed while they did."""
        return max(0, self.arrived() - self._allowed())

    def arrived(self) -> int:
        """How many have come so far."""
        return self._arrivals.stat().st_size if self._arrivals.exists() else 0

    def until(self, met: Callable[[], object]) -> Callable[[], bool]:
        """For `wait_until`: let one through after the other until something is met."""

        def met_or_one_more() -> bool:
            if met():
                return True
            if self.held():
                self.shut(after=self._allowed() + 1)
            return False

        return met_or_one_more

    def _allowed(self) -> int:
        try:
            return int(self._shut.read_text())
        except FileNotFoundError:
            return sys.maxsize


class WatchedRaster(StoreRaster):
    """Appends a line to ``diary`` for every window read, in whatever process, then waits.

    ``deadly``: it kills the process that reads, unless that has made it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        diary: Path,
        seconds: float = 0.0,
        deadly: bool = False,
        gate: Gate | None = None,
    ) -> None:
        super().__init__(path)
        self.diary, self.seconds, self.deadly, self.gate = diary, seconds, deadly, gate
        self.spared = os.getpid()

    def _read(self, window: Window, target: CellTarget | None) -> Any:
        with open(self.diary, "ab", buffering=0) as diary:
            diary.write(f"{window.y} {window.x}\n".encode())
        if self.deadly and os.getpid() != self.spared:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.seconds)
        if self.gate is not None:
            self.gate.enter()
        return super()._read(window, target)


@dataclass(frozen=True, eq=False, repr=False)
class GatedGraph(Graph):
    """Passes a gate before every part that is read."""

    gate: Gate | None = None

    def part_rows(self, part: int, weighted: bool = True) -> Rows:
        if self.gate is not None:
            self.gate.enter()
        return super().part_rows(part, weighted)


class GatedSink(StoreSink):
    """Passes a gate before every shard."""

    def __init__(self, gate: Gate, path: str | os.PathLike[str], arrays: Any = None) -> None:
        super().__init__(path, arrays)
        object.__setattr__(self, "gate", gate)

    def writer(self, variable: str, window: Window) -> ShardWriter:
        self.gate.enter()  # type: ignore[attr-defined]
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

    A LocalCluster gives up a worker that has not come again fifteen seconds after it was killed,
    which it does not on a busy machine; here it waits.
    When it is closed a LocalCluster stumbles over a worker whose end it has heard of before its
    beginning; by then everything has ended.
    """
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}):
        cluster = LocalCluster(
            n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None
        )
        try:
            yield cluster
        finally:
            with suppress(KeyError):
                cluster.close()


def wait_until(
    met: Callable[[], object],
    alive: Callable[[], bool] = lambda: True,
    seconds: float = math.inf,
) -> None:
    """Wait for something while what brings it about is alive.

    However busy the machine is, this waits: pytest's own timeout guards against hanging.
    ``seconds`` is for tests of stalls: after so long without it there is one.
    """
    limit = time.monotonic() + seconds
    while True:
        begin, living = time.monotonic(), alive()
        if met():
            return
        now = time.monotonic()
        assert living, "it ended too early"
        assert now < limit, f"it stalled: not there after {seconds:g} s"
        time.sleep(max(0.002, 2 * (now - begin)))  # to look may take longer than what is awaited


def called(gate: Gate, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a function returns that starts a run; what it reads itself comes through the gate."""
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(function, *arguments, **options)
        wait_until(gate.until(call.done))
        return call.result()


def kill_session(
    program: str,
    arguments: Sequence[object],
    gate: Gate,
    ready: Callable[[], object],
    workers: int,
    *,
    alone: bool = False,
) -> None:
    """Start a program, and kill it with its workers, or ``alone``, when it has come so far.

    It goes through ``gate``, which is shut, and so cannot come further before it is killed.
    """
    file = Path("session.py")
    process = start_program(program, file, gate.folder, gate.folder / "printed.txt", *arguments)
    assert process.pid is not None
    try:
        wait_until(gate.until(ready), process.is_alive)
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= workers
        if alone:
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
        gate.open()
        psutil.wait_procs(children)  # pytest's timeout, if workers outlive their session
    finally:
        if process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)
            process.join()


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


def main(source: str, out: str, diary: str, workers: int, reading: str, writing: str) -> None:
    """Make the forest, as far as the gates let it."""
    session.StoreSink = partial(GatedSink, Gate(writing))  # type: ignore[misc, assignment]
    started = og.cluster(n_workers=workers, dashboard_address=None) if workers else nullcontext()
    with started as client, og.config.set(threads=2):
        og.minimum_spanning_forest(
            WatchedRaster(source, Path(diary), gate=Gate(reading)),
            tile=TILE,
            shard=SHARD,
            out=out,
            client=client,
        )


if __name__ == "__main__":
    # by its proper name, so that workers find the classes where they expect them
    from watched_raster import main as run

    run(*sys.argv[1:4], int(sys.argv[4]), *sys.argv[5:])
