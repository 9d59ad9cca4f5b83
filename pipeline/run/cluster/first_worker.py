"""Choose the backend of a run on a cluster without workers: ask the first that joins."""

from __future__ import annotations

import time
from threading import Event
from typing import TYPE_CHECKING

from dask.base import tokenize

from orograph.kernels.backends import backend_of_workers, missing_gpu
from orograph.run.cluster.workers import ask_workers

if TYPE_CHECKING:
    from distributed import Client

    from orograph.run.cluster.executors import Ticket


def decide_backend(client: Client, cancelled: Event) -> str:
    """Wait for the first worker of a cluster and return the backend all its workers can use.

    Raises
    ------
    BackendError
        If some of them have a GPU and others have none.
    Cancelled
        If ``cancelled`` is set before there is one.
    """
    from orograph.run.cluster.executors import executor  # of clusters alone

    messages: list[tuple[Ticket, str | None]] = []
    with executor(client, "backend", tokenize("backend", time.time_ns())) as workers:
        # A cluster without workers has one slot, for whichever comes first.
        workers.submit(next(workers.idle()), "ask", missing_gpu)
        while not messages:
            messages = workers.next_done(cancelled)
    reasons = {"the first": messages[0][1], **ask_workers(client, missing_gpu)}
    return backend_of_workers("auto", reasons)
