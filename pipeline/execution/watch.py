"""Watch during a run whether any worker of its cluster can work."""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from orograph.execution.clusters import Restrictions

if TYPE_CHECKING:
    from distributed import Client

LOG = logging.getLogger(__name__)
SECONDS_BETWEEN_LOOKS = 2.0
PATIENCE = 10.0
SOME = 8
"""Workers that are looked at first: if one of them works, the others need not be."""


class Watch:
    """Context manager that warns when no worker of a cluster can work.

    It warns once; ``trouble`` is kept up to date. Without a client it
    does nothing.
    """

    trouble = ""
    """Why the run waits, or nothing."""

    def __init__(self, client: Client | None) -> None:
        self._client = client
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
        well, warned = time.monotonic(), False
        while True:
            with suppress(OSError, RuntimeWarning):  # to some, warnings are errors
                scheduler = cast("Any", client.scheduler)
                some = await scheduler.identity(n_workers=-1 if needed else SOME)
                trouble = trouble_of(some["workers"], needed)
                if trouble and some["n_workers"] > SOME and not needed:
                    every = await scheduler.identity(n_workers=-1)
                    trouble = trouble_of(every["workers"])
                if not trouble:
                    well = time.monotonic()
                waiting = time.monotonic() - well > PATIENCE
                self.trouble = trouble if waiting else ""
                if waiting and not warned:
                    warned = True
                    text = f"orograph waits: {trouble}"
                    LOG.warning("waits: %s", trouble)
                    # of a registry of its own: the next run that waits is to say so too
                    warnings.warn_explicit(text, RuntimeWarning, __file__, 1, registry={})
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)


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
    states = [
        worker["status"]
        for worker in workers.values()
        if all(worker["resources"].get(name, 0) >= n for name, n in (needed or {}).items())
    ]
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
