"""Executors of tasks that are created during a run: cluster workers, or threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import logging
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol, cast

import dask

from orograph.arguments.settings import thread_count
from orograph.run.cluster.clusters import Restrictions
from orograph.run.cluster.compute import KILLS_ITS_WORKERS, cluster_failures
from orograph.run.cluster.more_workers import STAGE, MoreWorkers
from orograph.run.cluster.run_order import Turn
from orograph.run.cluster.task_graph import Layers
from orograph.run.cluster.worker_loads import Rooms, Worker
from orograph.run.cluster.workers import make_roll_call
from orograph.tiles.errors import Cancelled, RunError

if TYPE_CHECKING:
    from distributed import Client, Future

LOG = logging.getLogger(__name__)
POLL_SECONDS = 0.5
SECONDS_A_MESSAGE = 0.001
SECONDS_TO_FORGET = 10.0
PATIENCE = 20.0


Ticket = Hashable
"""Name of a submitted task: a number, or a future."""


class Executor(Protocol):
    """Interface to submit tasks to cluster workers or to threads."""

    shared: bool
    """Whether all workers share one memory, so that any of them can do any task."""
    rooms: Rooms
    """Workers, with the numbers of tasks that each has and can take."""
    useful: int
    """Number of threads that could be at work at once; an adaptive cluster grows to as many."""

    def part(self, worker: Worker) -> tuple[int, int]:
        """Return ``(which, count)``: the worker owns data of ``number % count == which``."""

    def share(self, worker: Worker, count: int) -> int:
        """Return how many of ``count`` work items a worker should take in one task.

        None stands for work that any worker may take.
        """

    def threads(self, tasks: int) -> int:
        """Return how many threads each of ``tasks`` concurrent tasks may use."""

    def idle(self) -> Iterator[Worker]:
        """Yield the workers that can take a task, once for each free slot, the idle ones first."""

    def submit(
        self, worker: Worker, stage: str, function: Callable[..., Any], *arguments: object
    ) -> Ticket:
        """Start a task, preferably on ``worker``; return the ticket that `next_done` reports."""

    def next_done(self, cancelled: Event) -> list[tuple[Ticket, Any]]:
        """Wait until at least one task is done; return pairs of ticket and result."""

    def everywhere(self, function: Callable[..., Any], *arguments: object) -> None:
        """Call a function once in every process that may have executed tasks."""

    def tell(self, topic: str, message: Callable[[], Any]) -> None:
        """Send the scheduler, if there is one, an event; does not wait."""


@contextmanager
def executor(
    client: Client | None, problem: str, token: str, turn: Turn | None = None
) -> Iterator[Executor]:
    """Yield an executor on a client's cluster, or on threads of this process without a client.

    Without a ``turn`` the run stays where it begins among others, so that its tasks come first.
    """
    if client is not None:
        workers = _Cluster(client, problem, token, turn or Turn(token))
        try:
            yield workers
        finally:
            workers.close()
        return
    count = thread_count()
    # One thread more, for the task that is added while another writes (`_Threads.idle`).
    with concurrent.futures.ThreadPoolExecutor(count + 1, f"orograph-{problem}") as pool:
        yield _Threads(pool, count)


class _Threads:
    """Executor on threads of this process, which share memory: any may do any task."""

    shared = True

    def __init__(self, pool: concurrent.futures.ThreadPoolExecutor, count: int) -> None:
        self._pool = pool
        self._count = self.useful = count
        self._running: dict[concurrent.futures.Future[Any], tuple[Worker, str]] = {}
        self.rooms = Rooms(dict.fromkeys(range(count), 1))

    def part(self, worker: Worker) -> tuple[int, int]:
        return 0, 1

    def share(self, worker: Worker, count: int) -> int:
        return -(-count // self._count)

    def threads(self, tasks: int) -> int:
        return max(self._count // tasks, 1)

    def idle(self) -> Iterator[Worker]:
        # a thread that writes waits for the disk for a part of its time
        writing = any(stage == "write" for _, stage in self._running.values())
        self.rooms.update(dict.fromkeys(range(self._count + writing), 1))
        return self.rooms.idle()

    def submit(
        self, worker: Worker, stage: str, function: Callable[..., Any], *arguments: object
    ) -> Ticket:
        future = self._pool.submit(function, *arguments)
        self._running[future] = worker, stage
        self.rooms.add(worker)
        return future

    def next_done(self, cancelled: Event) -> list[tuple[Ticket, Any]]:
        # No timeout, and ``cancelled`` is not looked at: tasks of an engine have the event, by the
        # context of their run, and raise.
        done = concurrent.futures.wait(
            self._running, return_when=concurrent.futures.FIRST_COMPLETED
        ).done
        for future in done:
            self.rooms.add(self._running.pop(future)[0], -1)
        return [(future, future.result()) for future in done]

    def everywhere(self, function: Callable[..., Any], *arguments: object) -> None:
        function(*arguments)

    def tell(self, topic: str, message: Callable[[], Any]) -> None:
        pass


@dataclass
class _Task:
    """A submitted task: its worker, and the function and arguments to submit it again."""

    worker: Worker
    stage: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    copies: dict[int, Any] = field(default_factory=dict)
    """Futures of the task's copies by their numbers; the first that is done counts."""
    losses: int = 0
    """Number of workers that were lost while they had the task."""


class _Cluster:
    """Executor on a Dask cluster: submits tasks to the owner of their data, or if lost to another.

    Nothing here waits for one future: a task whose worker is gone may never be done (see
    `_send_again`), and a result may be lost after its task was done. For each copy of a task a
    coroutine of the client fetches the result and puts it into a queue.
    """

    shared = False

    def __init__(self, client: Client, problem: str, token: str, turn: Turn) -> None:
        self._client = client
        self._turn = turn
        self._layers = Layers(problem, token)
        self._more = MoreWorkers(client, self._layers.name(STAGE))
        self.useful = 0
        self._numbers = itertools.count()
        self._running: dict[int, _Task] = {}
        self._arrived: SimpleQueue[tuple[int, int, Any, BaseException | None]] = SimpleQueue()
        self.rooms = Rooms()
        self._threads: dict[Worker, int] = {}
        self._all_threads = 0
        self._workers: list[str] = []
        self._places: dict[Worker, int] = {}
        self._roll_call = make_roll_call()
        self._restrictions = Restrictions.current()
        self._known: int | None = None
        self._look()
        self._heard = time.monotonic()
        self._patience = PATIENCE
        # A client gathers what it has to say for 10 ms, which is longer than many a visit takes.
        self._messages = cast("Any", client.scheduler_comm)
        self._usual_interval = self._messages.interval
        self._messages.interval = min(SECONDS_A_MESSAGE, self._usual_interval)

    def _look(self) -> None:
        """Update the list of workers, if it has changed, and the turns of the runs."""
        self._looked = time.monotonic()
        threads = None
        if self._client.status == "running":
            with suppress(OSError):  # a scheduler that is gone is noticed by what it does not do
                self._known, threads, turns = cast(
                    "Any",
                    self._client.run_on_scheduler(
                        self._roll_call, self._known, *self._restrictions, self._turn.entry()
                    ),
                )
                self._turn.look(turns)
        if threads is None:
            return
        self._threads = threads
        self._all_threads = sum(self._threads.values())
        self._workers = sorted(threads)
        self._places = {worker: place for place, worker in enumerate(self._workers)}
        # one more than a worker can do at a time: it need not wait for the driver between them
        self.rooms.update({worker: count + 1 for worker, count in threads.items()})

    def part(self, worker: Worker) -> tuple[int, int]:
        return self._places.get(worker, 0), max(len(self._workers), 1)

    def share(self, worker: Worker, count: int) -> int:
        # shorter tasks where other runs wait for their turn
        threads = self._all_threads if worker is None else self._threads.get(worker, 1)
        return -(-count // max(threads * (1 + self._turn.others), 1))

    def threads(self, tasks: int) -> int:
        return 1

    def idle(self) -> Iterator[Worker]:
        if not self._workers:
            # a task that waits for any worker makes a cluster that adapts start one
            return iter([] if self._running else [None])
        return self.rooms.idle()

    def submit(
        self, worker: Worker, stage: str, function: Callable[..., Any], *arguments: object
    ) -> Ticket:
        ticket = next(self._numbers)
        self._running[ticket] = _Task(worker, stage, function, arguments)
        self.rooms.add(worker)
        self._send(ticket)
        return ticket

    def _send(self, ticket: int) -> None:
        """Submit a copy of a task to its worker."""
        task, number = self._running[ticket], next(self._numbers)
        place: dict[str, Any] = {}
        if task.worker is not None:
            # where tasks are restricted, others than those of the roll call may not do them
            place = {
                "workers": [task.worker],
                "allow_other_workers": not any(self._restrictions),
            }
        with cluster_failures():
            # The number makes the key of each copy of a task new, so that Dask does the copy and
            # does not return the result of the first.
            future = self._client.submit(
                task.function,
                *task.arguments,
                key=(self._layers.name(task.stage), number),
                pure=False,
                priority=self._turn.priority(),
                **place,
            )
            task.copies[number] = future
            loop = cast("Any", self._client.loop).asyncio_loop
            asyncio.run_coroutine_threadsafe(self._deliver(ticket, number, future), loop)

    def tell(self, topic: str, message: Callable[[], Any]) -> None:
        # Both here and in `_send` the client's event loop runs in a thread of its own, and this one
        # does not wait for it.
        sending = cast("Any", self._client.scheduler).log_event(topic=topic, msg=message())
        asyncio.run_coroutine_threadsafe(sending, cast("Any", self._client.loop).asyncio_loop)

    async def _deliver(self, ticket: int, number: int, future: Future[Any]) -> None:
        """Await a copy of a task and put its result or exception into the queue of arrivals."""
        try:
            result, error = await future, None
        except (Exception, asyncio.CancelledError) as failure:
            result, error = None, failure
        self._arrived.put((ticket, number, result, error))

    def next_done(self, cancelled: Event) -> list[tuple[Ticket, Any]]:
        with cluster_failures():
            while True:
                if cancelled.is_set():
                    raise Cancelled("the run was cancelled")
                if time.monotonic() - self._looked > POLL_SECONDS:
                    self._look()
                    self._more.update(self.useful > self._all_threads > 0)
                    self._send_again()
                if results := self._fetch():
                    self._heard = time.monotonic()
                    return results
                if self._client.status in ("closing", "closed"):
                    raise concurrent.futures.CancelledError("the client is closed")
                if not self._running:
                    return []

    def _fetch(self) -> list[tuple[Ticket, Any]]:
        """Wait up to `POLL_SECONDS`; return the tickets and results of finished tasks."""
        results: list[tuple[Ticket, Any]] = []
        with suppress(Empty):
            # Wait for the first, then take all that has arrived; `get_nowait` ends the loop by
            # `Empty`.
            arrived = self._arrived.get(timeout=POLL_SECONDS)
            while True:
                ticket, number, result, error = arrived
                task = self._running.get(ticket)
                # Results and errors of copies that were given up, or of tasks that are done, are
                # ignored.
                if task is not None and number in task.copies:
                    if error is not None:
                        raise error
                    del self._running[ticket]
                    self.rooms.add(task.worker, -1)
                    self._release(task)
                    results.append((ticket, result))
                arrived = self._arrived.get_nowait()
        return results

    def _send_again(self) -> None:
        """Resubmit the tasks of lost or silent workers to other workers.

        Dask would do so itself, but a task whose worker dies twice, or after it was done, can be
        left waiting for an address that no longer exists.
        """
        silent = time.monotonic() - self._heard > self._patience
        if silent:
            # nothing for long: whatever the scheduler believes, a second copy does no harm
            self._heard, self._patience = time.monotonic(), 2 * self._patience
        for ticket, task in self._running.items():
            lost = task.worker is not None and task.worker not in self._workers
            if not self._workers or not (lost or silent):
                continue
            why = "its worker is gone" if lost else "nothing has been heard for long"
            LOG.warning("a task of %s is sent again: %s", task.stage, why)
            # The copies of a lost worker are given up. Those of a silent one stay: the first result
            # counts.
            if lost:
                self._release(task)
                task.losses += 1
                if task.losses > dask.config.get("distributed.scheduler.allowed-failures"):
                    raise RunError(
                        KILLS_ITS_WORKERS.format(f"{task.stage}: {task.losses} workers are gone")
                    )
            # to another worker than the one that was lost or silent, if there is one
            others = [w for w in self._workers if w != task.worker] or self._workers
            self.rooms.add(task.worker, -1)
            task.worker = others[ticket % len(others)]
            self.rooms.add(task.worker)
            self._send(ticket)

    def everywhere(self, function: Callable[..., Any], *arguments: object) -> None:
        if self._client.status == "running":
            with suppress(OSError):  # of a worker that does not respond, or a lost scheduler
                self._client.run(
                    function, *arguments, on_error="ignore", callback_timeout=SECONDS_TO_FORGET
                )

    def _release(self, task: _Task) -> None:
        for future in task.copies.values():
            future.release()
        task.copies.clear()

    def close(self) -> None:
        """Release the futures of all running tasks, and let other runs know of the end."""
        self._more.close()
        for task in self._running.values():
            self._release(task)
        self._running.clear()
        self._messages.interval = self._usual_interval
        self._turn.ended = True
        self._look()
