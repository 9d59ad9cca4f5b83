"""Where the tasks of a dynamic run are done: by the workers of a cluster, or by threads."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol, cast

from orograph.execution.run import cluster_failures
from orograph.settings import config
from orograph.tiles.errors import Cancelled

if TYPE_CHECKING:
    from distributed import Client

POLL_SECONDS = 0.5
SECONDS_A_MESSAGE = 0.001


class Executor(Protocol):
    """Homes (workers or threads) to which tasks can be given."""

    shared: bool
    """Do all homes have one memory, so that any of them can do any task?"""

    def serves(self, home: Any, number: int) -> bool:
        """Does what is known by a number belong to a home?"""

    def share(self, home: Any, count: int) -> int:
        """How many of ``count`` pieces of its work a home should take at a time."""

    def idle(self) -> list[Any]:
        """The homes that have room for a task, once for each room, the idle ones first."""

    def submit(self, home: Any, stage: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Start a task, at ``home`` if that can be; a future with ``result()``."""

    def next_done(self, cancelled: Event) -> list[tuple[Any, Any]]:
        """Wait until some tasks are done; their futures and results."""

    def everywhere(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function once in every process that may have done tasks."""


@contextmanager
def executor(client: Client | None, problem: str, token: str) -> Iterator[Executor]:
    """The workers of a client, or threads of this process."""
    if client is not None:
        workers = _Cluster(client, problem, token)
        try:
            yield workers
        finally:
            workers.close()
        return
    count = config.get("threads") or os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(count, f"orograph-{problem}") as pool:
        yield _Threads(pool, count)


class _Threads:
    """Threads share their memory, so what belongs to one belongs to all."""

    shared = True

    def __init__(self, pool: concurrent.futures.ThreadPoolExecutor, count: int) -> None:
        self._pool = pool
        self._count = count
        self._running: dict[Any, Any] = {}

    def serves(self, home: Any, number: int) -> bool:
        return True

    def share(self, home: Any, count: int) -> int:
        return -(-count // self._count)

    def idle(self) -> list[Any]:
        busy = set(self._running.values())
        return [home for home in range(self._count) if home not in busy]

    def submit(self, home: Any, stage: str, function: Callable[..., Any], *arguments: Any) -> Any:
        future = self._pool.submit(function, *arguments)
        self._running[future] = home
        return future

    def next_done(self, cancelled: Event) -> list[tuple[Any, Any]]:
        done = concurrent.futures.wait(
            self._running, return_when=concurrent.futures.FIRST_COMPLETED
        ).done
        for future in done:
            del self._running[future]
        return [(future, future.result()) for future in done]

    def everywhere(self, function: Callable[..., Any], *arguments: Any) -> None:
        function(*arguments)


@dataclass
class _Call:
    """A task under way: its future, where it was sent, and how to send it again."""

    future: Any
    home: str
    stage: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class _Cluster:
    """Tasks go to the worker that is the home of their data; if it dies, to another."""

    shared = False

    def __init__(self, client: Client, problem: str, token: str) -> None:
        self._client = client
        self._name = f"{problem}-{{}}-{token}"
        self._numbers = itertools.count()
        self._running: dict[int, _Call] = {}
        self._threads: dict[str, int] = {}
        self._homes = self._workers()
        self._heard = time.monotonic()
        self._patience = 20.0
        # A client gathers what it has to say for 10 ms, which is longer than many a visit takes.
        self._messages = cast("Any", client.scheduler_comm)
        self._usual_interval = self._messages.interval
        self._messages.interval = min(SECONDS_A_MESSAGE, self._usual_interval)

    def _workers(self) -> list[str]:
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        self._threads = {address: worker["nthreads"] for address, worker in workers.items()}
        return sorted(workers)

    def serves(self, home: Any, number: int) -> bool:
        return bool(self._homes[number % len(self._homes)] == home)

    def share(self, home: Any, count: int) -> int:
        return -(-count // self._threads.get(home, 1))

    def idle(self) -> list[Any]:
        if not self._homes:
            self._homes = self._workers()
        load = Counter(call.home for call in self._running.values())
        # one more than a worker can do at a time: it need not wait for the driver between them
        rooms = [
            (number, home)
            for home in self._homes
            for number in range(load[home], self._threads[home] + 1)
        ]
        return [home for _, home in sorted(rooms)]

    def submit(self, home: Any, stage: str, function: Callable[..., Any], *arguments: Any) -> Any:
        ticket = next(self._numbers)
        future = self._send(home, stage, ticket, function, arguments)
        self._running[ticket] = _Call(future, home, stage, function, arguments)
        return ticket

    def _send(
        self, home: str, stage: str, number: int, function: Callable[..., Any], arguments: Any
    ) -> Any:
        with cluster_failures():
            return self._client.submit(
                function,
                *arguments,
                key=(self._name.format(stage), number),
                workers=[home],
                allow_other_workers=True,
                pure=False,
            )

    def next_done(self, cancelled: Event) -> list[tuple[Any, Any]]:
        from distributed import wait

        with cluster_failures():
            while True:
                if cancelled.is_set():
                    raise Cancelled("the run was cancelled")
                if not self._running:
                    time.sleep(POLL_SECONDS)  # there is no worker now; one may come
                    return []
                futures = [call.future for call in self._running.values()]
                with suppress(TimeoutError), self._client.as_current():
                    wait(futures, timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")
                done = [t for t, call in self._running.items() if call.future.done()]
                results = [(ticket, self._running[ticket].future.result()) for ticket in done]
                for ticket in done:
                    del self._running[ticket]
                self._homes = self._workers()
                self._send_again()
                if done:
                    self._heard = time.monotonic()
                    return results

    def _send_again(self) -> None:
        """Give the tasks of workers that are gone to others.

        Dask would do so itself, but a task whose worker dies twice can be left waiting for an
        address that nobody has any more.
        """
        silent = time.monotonic() - self._heard > self._patience
        if silent:
            # nothing for long: whatever the scheduler believes, a second copy does no harm
            self._heard, self._patience = time.monotonic(), 2 * self._patience
        for call in self._running.values():
            if self._homes and (silent or call.home not in self._homes):
                call.future.release()
                call.home = self._homes[hash(call.home) % len(self._homes)]
                number = next(self._numbers)
                call.future = self._send(
                    call.home, call.stage, number, call.function, call.arguments
                )

    def everywhere(self, function: Callable[..., Any], *arguments: Any) -> None:
        if self._client.status == "running":
            self._client.run(function, *arguments, on_error="ignore")

    def close(self) -> None:
        """Let go of what is still running."""
        for call in self._running.values():
            call.future.release()
        self._running.clear()
        self._messages.interval = self._usual_interval
