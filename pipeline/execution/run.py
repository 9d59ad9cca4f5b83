"""A run: work going on in the background, to be watched, waited for or cancelled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Event, Thread
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from orograph.execution.feedback import (
    SECONDS_OF_SILENCE,
    compilations,
    in_notebook,
    show_live,
    show_progress,
    shows_progress,
)
from orograph.execution.watch import Watch
from orograph.plotting import html
from orograph.settings import thread_count
from orograph.tiles.arguments import check_number
from orograph.tiles.errors import Cancelled, RunError

if TYPE_CHECKING:
    from distributed import Client

    from orograph.execution.job import Engine

T = TypeVar("T")
POLL_SECONDS = 0.5
KILLS_ITS_WORKERS = (
    "a task has killed its workers again and again ({}); most often they run out of memory: give "
    "them more or take smaller tiles, then resume=True continues the run"
)


@dataclass(frozen=True)
class Progress:
    """Progress of a run, in tasks that leave something behind.

    Attributes
    ----------
    done, total
        Those that are done, and all of them.
    waiting
        Why nothing goes on: no worker of the cluster works, or kernels are compiled; else nothing.

    Examples
    --------
    >>> import orograph as og
    >>> print(og.Progress(3, 12))
    3 of 12 tasks
    """

    done: int
    total: int
    waiting: str = field(default="", kw_only=True)

    def __str__(self) -> str:
        return f"{self._amount()}; waiting: {self.waiting}" if self.waiting else self._amount()

    def _amount(self) -> str:
        return f"{self.done} of {self.total} tasks"


class Run(Generic[T]):
    """A run that goes on in the background; returned by ``.submit`` of every operation.

    ``T`` is what the operation returns when it waits.

    Parameters
    ----------
    work
        Does it all; called in a thread of its own.
    engine
        Gives the engine that is at work, or None before there is one.
    cancelled
        The event by which the work learns that it is to stop.
    client
        The Dask client that runs the tasks, or None for threads of this process.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> run = og.minimum_spanning_forest.submit(np.eye(4))
    >>> run.result().attrs["edge_count"], run.status
    (15, 'finished')
    """

    def __init__(
        self,
        work: Callable[[], T],
        engine: Callable[[], Engine | None],
        cancelled: Event,
        client: Client | None,
    ) -> None:
        self._work = work
        self._engine = engine
        self._cancelled = cancelled
        self._client = client
        self._watch = Watch(client)
        self._result: T | None = None
        self._error: BaseException | None = None
        self._latest = Progress(0, 0)
        self._ended = Event()
        self._began, self._seconds = time.monotonic(), 0.0
        compilations()
        Thread(target=self._do, name="orograph-run", daemon=True).start()

    def _do(self) -> None:
        try:
            with self._watch:
                self._result = self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._seconds = time.monotonic() - self._began
            self._ended.set()

    @property
    def status(self) -> str:
        """``"running"``, ``"finished"``, ``"failed"`` or ``"cancelled"``."""
        if not self._ended.is_set():
            return "running"
        if self._error is None:
            return "finished"
        return "cancelled" if isinstance(self._error, Cancelled) else "failed"

    def progress(self) -> Progress:
        """Tasks done and all tasks; what an earlier run left counts as done.

        If no worker of the cluster works, because there is none or all are paused, it says so; that
        is a warning too.
        """
        if not self._ended.is_set():
            now = self._now()
            # while the run tidies up, what it counts is going away
            if now.total != self._latest.total or now.done >= self._latest.done:
                self._latest = now
        elif self._error is None:
            total = self._latest.total or self._now().total
            self._latest = Progress(total, total)
        waiting = self._watch.trouble
        if not waiting and not self._latest.done and compilations().running:
            waiting = "kernels are compiled, once"
        return replace(self._latest, waiting="" if self._ended.is_set() else waiting)

    def _now(self) -> Progress:
        engine = self._engine()
        return Progress(0, 0) if engine is None else engine.progress()

    def statistics(self) -> dict[str, int]:
        """Return counts of the work done, where they depend on the order of execution.

        For distances ``tile_visits``, and ``cells_settled``, each cell counted once a visit that
        lowers it. The result does not depend on these, and so does not name them.
        """
        engine = self._engine()
        return {} if engine is None else engine.statistics()

    @property
    def dashboard_link(self) -> str | None:
        """Address of Dask's dashboard, or None if the run has no cluster."""
        return None if self._client is None else self._client.dashboard_link

    def result(self, timeout: float | None = None) -> T:
        """Wait for the run and return its result.

        On a terminal and in a notebook a bar shows how far it is, if it takes more than two seconds
        and the setting ``progress`` is not False.

        Parameters
        ----------
        timeout
            Seconds to wait at most; None waits for ever.

        Raises
        ------
        TimeoutError
            If the run is still going on after ``timeout``; it is not stopped by that.
        InputError
            If ``timeout`` is not a number of seconds.
        Cancelled
            If the run was cancelled.
        Exception
            Whatever made the run fail.
        """
        if timeout is not None:
            timeout = check_number("timeout", timeout, 0, TIMEOUT_MAX, "seconds, or None for ever")
        try:
            if timeout is None and not self._ended.wait(SECONDS_OF_SILENCE) and shows_progress():
                show_progress(self.progress, self._ended)
            ended = self._ended.wait(timeout)
        except KeyboardInterrupt:
            self.cancel()
            raise
        if not ended:
            raise TimeoutError(f"the run is not finished after {timeout} s ({self.progress()})")
        if self._error is not None:
            raise self._error
        return cast("T", self._result)

    def cancel(self) -> None:
        """Stop the run; what it has written stays, and ``resume=True`` goes on from there."""
        self._cancelled.set()

    def __repr__(self) -> str:
        return f"<orograph.Run: {self.status}, {self.progress()}>"

    def _ipython_display_(self) -> None:
        if in_notebook():
            show_live(self._repr_html_, self._ended)
        else:
            print(repr(self))

    def _repr_html_(self) -> str:
        progress = self.progress()
        seconds = self._seconds or time.monotonic() - self._began
        rows: dict[str, Any] = {"status": self.status, "seconds": f"{seconds:.1f}"}
        if progress.waiting:
            rows["waiting"] = progress.waiting
        if progress.done:
            rows["tasks a second"] = f"{progress.done / seconds:.3g}"
        rows |= self.statistics()
        address = self.dashboard_link
        above = (
            "<br>"
            + html.bar(progress.done, progress.total)
            + (html.link(address) if address else "")
        )
        return html.table("Run", rows, above)


def compute(tasks: dict[Any, Any], keys: list[Any], client: Client | None, cancelled: Event) -> Any:
    """Do all ``tasks``, in their order where there is a choice; return the result of ``keys[0]``.

    Raises
    ------
    Cancelled
        If ``cancelled`` is set before the end.
    RunError
        If the cluster fails; tasks' own exceptions come through as they are.
    """
    if client is None:
        return _on_threads(tasks, keys, cancelled)
    with cluster_failures():
        return _on_cluster(tasks, keys, client, cancelled)


def _on_threads(tasks: dict[Any, Any], keys: list[Any], cancelled: Event) -> Any:
    from dask.threaded import get

    with ThreadPoolExecutor(thread_count(), "orograph") as pool:
        try:
            return get(tasks, keys, pool=pool)[0]
        except BaseException:
            cancelled.set()  # the other threads need not go on
            raise


def _on_cluster(tasks: dict[Any, Any], keys: list[Any], client: Client, cancelled: Event) -> Any:
    from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

    # Dask's own order is depth first too, but against z-order, and lets messages pile up
    order = {key: -number for number, key in enumerate(tasks)}
    layer = MaterializedLayer(tasks, annotations={"priority": order.__getitem__})
    graph = HighLevelGraph({"orograph": layer}, {"orograph": set()})
    futures = client.get(graph, keys, sync=False)
    try:
        _await_all(futures, cancelled)
        return futures[0].result()
    finally:
        for future in futures:
            future.release()


def _await_all(futures: list[Any], cancelled: Event) -> None:
    """Wait until all futures are finished; raise as soon as one has failed.

    One callback a future: `distributed.wait` leaves one asyncio task a future behind, each time it
    ends by its timeout.
    """
    waiting = futures
    while waiting:
        ended: SimpleQueue[Any] = SimpleQueue()
        for future in waiting:
            future.add_done_callback(ended.put)
        missing = len(waiting)
        while missing:
            try:
                some = [ended.get(timeout=POLL_SECONDS)]
                missing -= 1
            except Empty:
                some = futures  # a client that has been closed calls no callback
            for future in some:
                if future.status in ("error", "cancelled"):
                    future.result()
            if cancelled.is_set():
                raise Cancelled("the run was cancelled")
        # "lost" is none of our business: Dask does the task again
        waiting = [future for future in futures if not future.done()]


@contextmanager
def cluster_failures() -> Iterator[None]:
    """Turn the ways in which a cluster fails into `RunError`, with the next step."""
    import asyncio
    import concurrent.futures

    from distributed.client import ClosedClientError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    try:
        yield
    except KilledWorker as error:
        raise RunError(KILLS_ITS_WORKERS.format(error)) from error
    except (
        asyncio.CancelledError,
        concurrent.futures.CancelledError,
        ClosedClientError,
        CommClosedError,
    ) as error:
        raise RunError(
            f"the cluster is gone or has dropped the run's tasks ({error}); start one, then "
            "resume=True continues the run"
        ) from error
