"""Watch a run: its phases, its memory, and whether any worker of its cluster can work."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from orograph.run.cluster.clusters import Restrictions

if TYPE_CHECKING:
    from distributed import Client

LOG = logging.getLogger(__name__)
SECONDS_BETWEEN_LOOKS = 2.0
PATIENCE = 10.0
SECONDS_PAUSED = 60.0
"""Seconds for which all workers may be paused, with nothing at work, before a run fails."""
DEAD_END = (
    "all workers ({}) have been paused for {:g} s, and none has a task at work: their memory is "
    "full, though what the run keeps was put on disk; give them more memory or take smaller tiles, "
    "then resume=True continues the run"
)
SOME = 8
"""Number of workers that are checked first: if one of them works, the others need not be."""


Planned = Callable[[int, int], dict[str, int] | None]
# Weakly: a thread that begins during a run, such as that of Zarr, keeps the context, and would keep
# the inputs of the run, with the files that xarray holds open for them.
_CURRENT: ContextVar[weakref.ref[Record] | None] = ContextVar("record", default=None)


def unplanned(workers: int, gpu_memory: int) -> None:
    """Return None: nothing is known of a plan."""


class Record:
    """Phases and memory of a run, kept while it goes on.

    Parameters
    ----------
    planned
        Returns the bytes that the client and each worker take by the plan of the run; called with 1
        for a cluster, with 0 for threads of this process, and with ``gpu_memory``.

    Attributes
    ----------
    worker_memory
        The most bytes that a worker has been seen to hold.
    gpu_memory
        Bytes that tiles may use on each GPU; 0 on CPUs, and until the run has begun.
    dead_end
        Why the run cannot go on, so that it was stopped; or nothing.
    """

    def __init__(self, planned: Planned = unplanned) -> None:
        self._planned = cache(planned)
        self.worker_memory = 0
        self.gpu_memory = 0
        self.dead_end = ""
        self._seconds: dict[str, float] = {}
        self._current, self._since = "", 0.0

    @property
    def current(self) -> str:
        """Name of the phase that is under way, or nothing."""
        return self._current

    def begin(self, name: str) -> None:
        """Begin a phase, and end the one before; an empty name ends the run."""
        now = time.monotonic()
        if self._current:
            self._seconds[self._current] += now - self._since
        self._current, self._since = name, now
        if name:
            self._seconds.setdefault(name, 0.0)
            LOG.info("phase: %s", name)

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each phase so far; may be called from any thread."""
        found, current, since = dict(self._seconds), self._current, self._since
        if current in found:
            found[current] += time.monotonic() - since
        return {name: round(seconds, 3) for name, seconds in found.items()}

    def peaks(self) -> dict[str, Any]:
        """Return the peak memory of this process, and of the worker with the most, in bytes."""
        own = None
        with suppress(ImportError):  # on Windows
            import resource

            # in kilobytes, but on macOS, which has bytes
            unit = 1 if sys.platform == "darwin" else 1024
            own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        return {"client": own, "worker": self.worker_memory}

    def memory(self, workers: int) -> dict[str, Any]:
        """Return the peaks and, as ``planned``, those of the plan, which may take memory itself."""
        return {**self.peaks(), "planned": self.planned(workers)}

    def planned(self, workers: int) -> dict[str, int] | None:
        """Return the bytes of the plan: of the client and a worker, and what the latter keeps."""
        return self._planned(workers, self.gpu_memory)


@contextmanager
def recorded(record: Record) -> Iterator[None]:
    """Keep in ``record`` what `begin_phase` names, in this thread, until the context is left."""
    token = _CURRENT.set(weakref.ref(record))
    try:
        yield
    finally:
        _CURRENT.reset(token)
        record.begin("")


def begin_phase(name: str) -> None:
    """Begin a phase of the run that this thread drives, if it drives one."""
    reference = _CURRENT.get()
    if reference is not None and (record := reference()) is not None:
        record.begin(name)


class Watch:
    """Context manager that warns when no worker of a cluster can work.

    It warns once; ``trouble`` is kept up to date, and so is the memory of workers in ``record``.
    When all have been paused for `SECONDS_PAUSED`, and none has a task at work, it calls ``stop``.
    Without a client it does nothing.
    """

    trouble = ""
    """Reason why the run waits; empty if it does not."""

    def __init__(
        self,
        client: Client | None,
        record: Record | None = None,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._client, self._record, self._stop = client, record or Record(), stop
        self._looking: Future[None] | None = None

    def __enter__(self) -> Watch:
        client = self._client
        if client is not None and client.status == "running":
            loop = cast("Any", client.loop).asyncio_loop
            needed = Restrictions.current().resources
            self._looking = asyncio.run_coroutine_threadsafe(self._look(client, needed), loop)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self, client: Client, needed: Mapping[str, float]) -> None:
        # When a worker could last work, and below when anything last was at work.
        well, warned = time.monotonic(), False
        moved = well
        while True:
            with suppress(OSError):
                scheduler = cast("Any", client.scheduler)
                # All workers of a large cluster are asked for only if none of the first can work,
                # or where tasks need resources that only some may have.
                some = await scheduler.identity(n_workers=-1 if needed else SOME)
                self._record.worker_memory = max(
                    self._record.worker_memory, *map(_memory_of, some["workers"].values()), 0
                )
                trouble = trouble_of(some["workers"], needed)
                if trouble and some["n_workers"] > SOME and not needed:
                    every = await scheduler.identity(n_workers=-1)
                    trouble = trouble_of(every["workers"])
                    some = every
                if not trouble:
                    well = time.monotonic()
                if not trouble or not is_at_rest(some["workers"], needed):
                    moved = time.monotonic()
                if time.monotonic() - moved > SECONDS_PAUSED and not self._record.dead_end:
                    count = some["n_workers"]
                    # The reason first: the session raises it in place of the Cancelled that
                    # ``stop`` brings about.
                    self._record.dead_end = DEAD_END.format(count, SECONDS_PAUSED)
                    self._stop()
                waiting = time.monotonic() - well > PATIENCE
                if waiting and not warned:
                    warned = True
                    text = f"orograph waits: {trouble}"
                    LOG.warning("waits: %s", trouble)
                    with suppress(RuntimeWarning):  # to some, warnings are errors
                        # of a registry of its own: the next run that waits is to say so too
                        warnings.warn_explicit(text, RuntimeWarning, __file__, 1, registry={})
                # after the warning: whoever sees that the run waits has been told why
                self.trouble = trouble if waiting else ""
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)


def is_at_rest(
    workers: Mapping[str, Mapping[str, Any]], needed: Mapping[str, float] | None = None
) -> bool:
    """Return whether all workers that can do a task are paused, with none at work.

    Examples
    --------
    >>> at_work = {"task_counts": {"executing": 1}}
    >>> [is_at_rest({"tcp://a": {"status": "paused", "metrics": m}}) for m in ({}, at_work)]
    [True, False]
    """
    able = _able(workers, needed)
    return bool(able) and all(
        worker["status"] == "paused"
        and not worker.get("metrics", {}).get("task_counts", {}).get("executing", 0)
        for worker in able
    )


def _able(
    workers: Mapping[str, Mapping[str, Any]], needed: Mapping[str, float] | None
) -> list[Mapping[str, Any]]:
    """Return the workers that have the resources that a task takes."""
    resources = (needed or {}).items()
    return [
        worker
        for worker in workers.values()
        if all(worker["resources"].get(name, 0) >= n for name, n in resources)
    ]


def _memory_of(worker: Mapping[str, Any]) -> int:
    """Return the bytes that a worker's process held when the scheduler last heard of it."""
    return int(worker.get("metrics", {}).get("memory", 0))


def trouble_of(
    workers: Mapping[str, Mapping[str, Any]], needed: Mapping[str, float] | None = None
) -> str:
    """Return why none of a scheduler's workers can work, or "" if one can.

    ``needed`` is what a task takes of the resources of a worker.

    Examples
    --------
    >>> trouble_of({"tcp://a": {"status": "running"}, "tcp://b": {"status": "paused"}})
    ''
    >>> trouble_of({"tcp://b": {"status": "paused"}})[:46]
    'all workers (1) are paused: their memory is fu'
    """
    states = [worker["status"] for worker in _able(workers, needed)]
    if "running" in states:
        return ""
    if "paused" in states:
        return (
            f"all workers ({len(states)}) are paused: their memory is full; give them more, or "
            "cancel the run and take smaller tiles"
        )
    if needed and workers:
        return (
            f"none of the workers ({len(workers)}) has the resources {dict(needed)} that the tasks "
            "are annotated with; start one that has, or cancel the run"
        )
    return (
        "the cluster has no worker; start one, or see why those that were asked for do not come, "
        "or cancel the run"
    )
