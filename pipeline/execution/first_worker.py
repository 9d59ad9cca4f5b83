"""The backend of a run that begins on a cluster without workers: the first that comes tells."""

from __future__ import annotations

import time
from threading import Event
from typing import TYPE_CHECKING

from dask.base import tokenize

from orograph.engines.executors import executor
from orograph.kernels.backends import backend_of_workers, missing_gpu

if TYPE_CHECKING:
    from distributed import Client


def decide_backend(client: Client, cancelled: Event) -> str:
    """Return the backend that the workers will use: that of the first ones to arrive.

    Raises
    ------
    BackendError
        If some of them have a GPU and others have none.
    Cancelled
        If ``cancelled`` is set before there is one.
    """
    messages: list[tuple[int, str | None]] = []
    with executor(client, "backend", tokenize("backend", time.time_ns())) as workers:
        workers.submit(workers.idle()[0], "ask", missing_gpu)
        while not messages:
            messages = workers.next_done(cancelled)
    reasons = {"the first": messages[0][1], **client.run(missing_gpu, on_error="ignore")}
    return backend_of_workers("auto", reasons)
