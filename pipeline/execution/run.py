"""A run: work in the background that can be watched, awaited and cancelled."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from itertools import chain
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Event, Thread
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from dask.base import get_annotations

from orograph.execution.feedback import (
    SECONDS_OF_SILENCE,
    compilations,
    in_notebook,
    show_live,
    show_progress,
    shows_progress,
)
from orograph.execution.settings import thread_count
from orograph.execution.watch import Watch
from orograph.results import html
from orograph.tiles.arguments import check_number
from orograph.tiles.errors import Cancelled, RunError
from orograph.tiles.store.create import Columns, ColumnsInTurns

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
logging.getLogger("orograph").addHandler(logging.NullHandler())  # nothing, unless one asks for it
ResultTable = Columns | ColumnsInTurns
POLL_SECONDS = 0.5
# so little that all tasks of a run lie between two whole priorities
PRIORITY_OF_A_TASK = 2.0**-40
# under way for each thread of a cluster, so that all have work while the next graph comes
TASKS_A_THREAD = 4
KILLS_ITS_WORKERS = (
    "a task has killed its workers again and again ({}); most often they run out of memory: give "
    "them more or take smaller tiles, then resume=True continues the run"
)


@dataclass(frozen=True)
class Progress:
    """Progress of a run, as the number of tasks done and in total.

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


class Engine(Protocol):
    """Interface of the engine of a run: `QuadtreePass`, `Frontier`, or an operation's own."""

    def run(self, client: Client | None, handle: Any, cancelled: Event) -> dict[str, Any]:
        """Do all the work, writing the output rasters; return the attributes of the result."""

    def table(self) -> ResultTable:
        """Return the table columns of the result, in pieces."""

    def progress(self) -> Progress:
        """Return the progress of the work; may be called from any thread."""

    def statistics(self) -> dict[str, int]:
        """Return counts of the work done, where they depend on the order of execution."""


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
    describe
        Returns what is known of the work beforehand, for the report.

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
        describe: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._work = work
        self._describe = describe
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
        # with the annotations that Dask has where the run is begun
        whole = copy_context().run
        Thread(target=whole, args=(self._do,), name="orograph-run", daemon=True).start()

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
        """Return the tasks done and all tasks; what an earlier run saved counts as done.

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

    def report(self) -> dict[str, Any]:
        """Return what the run does and how far it is, in types that JSON has.

        Returns
        -------
        dict
            ``operation``, ``inputs``, ``parameters``, ``shape``, ``tile``, ``shard``, ``out``,
            ``workers``, ``backend`` and ``versions``: what was asked for. ``begun`` (UTC),
            ``seconds``, ``status``, ``tasks`` (``done`` and ``total``), ``waiting``, ``statistics``
            and ``resumed``: how far it is. ``error`` (``type`` and ``message``) and ``next``, what
            to do about it: None unless the run has failed or was cancelled. A run to ``out`` that
            ends so leaves its report in ``out.partial/report.json``.

        Examples
        --------
        >>> import numpy as np
        >>> import orograph as og
        >>> run = og.hop_distance.submit(np.ones((9, 9)), [(4, 4)])
        >>> _ = run.result()
        >>> report = run.report()
        >>> report["operation"], report["status"], report["shape"], report["error"]
        ('hop_distance', 'finished', [9, 9], None)
        """
        progress = self.progress()
        return {
            **self._describe(),
            "status": self.status,
            "seconds": round(self._seconds or time.monotonic() - self._began, 3),
            "tasks": {"done": progress.done, "total": progress.total},
            "waiting": progress.waiting,
            "statistics": self.statistics(),
        }

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


@dataclass(frozen=True)
class Graph:
    """Dask tasks submitted together, which may use results kept by earlier graphs."""

    tasks: dict[Any, Any]
    """In the order in which they are to be done, where there is a choice."""
    ends: Sequence[Any]
    """Keys of the tasks that must be done, and whose results nobody needs."""
    kept: Sequence[Any] = ()
    """Keys, of this graph or kept by the one before, whose results this and later graphs need."""

    @property
    def wanted(self) -> list[Any]:
        """Keys of this graph whose tasks the run waits for."""
        return [*self.ends, *(key for key in self.kept if key in self.tasks)]


def compute(tasks: dict[Any, Any], keys: list[Any], client: Client | None, cancelled: Event) -> Any:
    """Execute one graph of tasks and return the result of ``keys[0]``.

    Raises
    ------
    Cancelled
        If ``cancelled`` is set before the end.
    RunError
        If the cluster fails; tasks' own exceptions come through as they are.
    """
    graph = Graph(tasks, keys[1:], keys[:1])
    return compute_graphs([graph], keys[0], client, cancelled, len(tasks))


def compute_graphs(
    graphs: Iterable[Graph], key: Any, client: Client | None, cancelled: Event, size: int
) -> Any:
    """Execute many graphs of tasks in turn, and return the result of ``key``.

    On a cluster a few graphs are under way at a time, so that neither the scheduler nor this
    process holds more of a run than these. Threads do one after the other.

    Parameters
    ----------
    graphs
        Consumed one at a time, as the ones before are done.
    key
        A key that all graphs keep from the first on.
    client, cancelled
        As of `compute`, with the same exceptions.
    size
        About how many of its tasks workers can do at the same time: by it follows how many graphs
        keep all of them busy.
    """
    if client is None:
        return _on_threads(graphs, key, cancelled)
    with cluster_failures():
        return _on_cluster(graphs, key, client, cancelled, size)


def _on_threads(graphs: Iterable[Graph], key: Any, cancelled: Event) -> Any:
    from dask._task_spec import DataNode
    from dask.threaded import get

    kept: dict[Any, Any] = {}
    with ThreadPoolExecutor(thread_count(), "orograph") as pool:
        try:
            for graph in graphs:
                known = {name: DataNode(name, value) for name, value in kept.items()}
                wanted = graph.wanted
                kept |= zip(wanted, get(graph.tasks | known, wanted, pool=pool), strict=True)
                kept = {name: kept[name] for name in graph.kept}
        except BaseException:
            cancelled.set()  # the other threads need not go on
            raise
    return kept.get(key)


def _on_cluster(
    graphs: Iterable[Graph], key: Any, client: Client, cancelled: Event, size: int
) -> Any:
    under_way = _UnderWay(client, cancelled)
    try:
        for graph in graphs:
            under_way.submit(graph)
            while under_way.count > 1 and under_way.count * size > TASKS_A_THREAD * sum(
                client.nthreads().values()
            ):
                under_way.await_one()
        while under_way.count:
            under_way.await_one()
        return None if key is None else under_way.kept[key].result()
    finally:
        under_way.release()


class _UnderWay:
    """The graphs a cluster is executing, and the futures that later graphs need."""

    def __init__(self, client: Client, cancelled: Event) -> None:
        self.kept: dict[Any, Any] = {}
        self._client = client
        self._cancelled = cancelled
        self._graphs: dict[int, Graph] = {}
        self._futures: dict[int, list[Any]] = {}
        self._missing: dict[int, int] = {}
        self._ended: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._latest: Graph | None = None
        self._submitted = 0
        self._tasks = 0

    @property
    def count(self) -> int:
        """The number of graphs under way."""
        return len(self._graphs)

    def submit(self, graph: Graph) -> None:
        from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

        # Dask's own order is depth first too, but against z-order, and lets messages pile up
        wanted_priority = get_annotations().get("priority", 0)
        order = {
            key: (wanted_priority(key) if callable(wanted_priority) else wanted_priority)
            - number * PRIORITY_OF_A_TASK
            for number, key in enumerate(graph.tasks, self._tasks)
        }
        layer = MaterializedLayer(graph.tasks, annotations={"priority": order.__getitem__})
        whole = HighLevelGraph({"orograph": layer}, {"orograph": set()})
        wanted = graph.wanted
        futures = self._client.get(whole, wanted, sync=False)
        number = self._submitted
        self._graphs[number], self._futures[number] = graph, futures
        self.kept |= zip(wanted[len(graph.ends) :], futures[len(graph.ends) :], strict=True)
        self._latest = graph
        self._submitted += 1
        self._tasks += len(graph.tasks)
        self._call_back(number, futures)

    def _call_back(self, number: int, futures: list[Any]) -> None:
        """Let each finished future of a graph be put into the queue.

        One callback a future: `distributed.wait` leaves one asyncio task a future behind, each time
        it ends by its timeout.
        """
        self._missing[number] = len(futures)
        for future in futures:
            future.add_done_callback(lambda ended: self._ended.put((number, ended)))

    def await_one(self) -> None:
        """Wait until one graph is done; raise as soon as a task has failed."""
        while True:
            try:
                number, future = self._ended.get(timeout=POLL_SECONDS)
            except Empty:
                # a client that has been closed calls nobody back
                for futures in self._futures.values():
                    for future in futures:
                        _raise_failure(future)
            else:
                _raise_failure(future)
                self._missing[number] -= 1
                if not self._missing[number]:
                    # "lost" is none of our business: Dask does the task again
                    if waiting := [f for f in self._futures[number] if not f.done()]:
                        self._call_back(number, waiting)
                    else:
                        return self._finish(number)
            if self._cancelled.is_set():
                raise Cancelled("the run was cancelled")

    def _finish(self, number: int) -> None:
        """Release the futures of a finished graph that no other graph needs."""
        graph = self._graphs.pop(number)
        for _, future in zip(graph.ends, self._futures.pop(number), strict=False):
            future.release()
        # the next graph needs what the latest keeps, even if that is done
        users = [*self._graphs.values(), self._latest]
        needed = {key for user in users if user for key in user.kept}
        for key in self.kept.keys() - needed:
            self.kept.pop(key).release()

    def release(self) -> None:
        """Release all futures."""
        for future in (*chain.from_iterable(self._futures.values()), *self.kept.values()):
            future.release()


def _raise_failure(future: Any) -> None:
    if future.status in ("error", "cancelled"):
        future.result()


@contextmanager
def cluster_failures() -> Iterator[None]:
    """Convert Dask's errors for a failed cluster to `RunError`, with the next step."""
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
