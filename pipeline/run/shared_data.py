"""Share a run's data with its tasks: tasks carry a short handle, and workers fetch the data once.

A run knows coordinates, rasters and parameters; sent along with every task it would be the larger
part of the traffic. So on a cluster the scheduler keeps it while it goes on, tasks carry its name,
and each worker asks for it once. It travels as tasks themselves do, and lies in no folder.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any

from orograph.run.cluster.compute import cluster_failures
from orograph.run.cluster.workers import Witness, keep_log_short, make_look, seen
from orograph.tiles.errors import RunError

if TYPE_CHECKING:
    from distributed import Client

Handle = object
"""Reference by which tasks find a run: its name on a cluster, the run itself on threads, or a pair
of a handle and a part of its run. Only `load` looks into it."""


@contextmanager
def shared(run: object, client: Client | None, witness: Witness | None = None) -> Iterator[Handle]:
    """Yield the handle by which tasks find the run, valid until the context is left.

    Workers that come later look for the ``witness`` before their first task.
    """
    if client is None:
        yield run
        return
    from distributed.protocol.serialize import to_serialize

    name = f"orograph-run-{uuid.uuid4().hex}"
    left = witness and [*witness.plain, dict(witness.options.items)]
    with cluster_failures():
        # in a list: within one process Dask unwraps only what lies in something
        client.set_metadata([name], [to_serialize(run)])
        client.set_metadata([f"{name}-witness"], left)
    try:
        yield name
    finally:
        if client.status == "running":
            with suppress(Exception):  # a scheduler that is gone keeps nothing
                client.run_on_scheduler(make_removal(), name, f"{name}-witness")


def make_removal() -> Callable[..., None]:
    """Return a function that removes entries of the scheduler's metadata.

    It is a function in a function for the reason that `make_look` gives.
    """

    def remove(*names: str, dask_scheduler: Any = None) -> None:
        for name in names:
            dask_scheduler.task_metadata.pop(name, None)

    return remove


def load(handle: Handle) -> Any:
    """Return the run that a handle stands for.

    A pair stands for a part of another handle's run: an attribute, or the item of a number.
    """
    if isinstance(handle, tuple):
        whole, part = load(handle[0]), handle[1]
        return whole[part] if isinstance(part, int) else getattr(whole, part)
    if not isinstance(handle, str):
        return handle
    with _ASKING:
        return _ask(handle)


_ASKING = Lock()
"""Lock held by the thread of a worker that fetches a run, so that it is fetched once."""


@lru_cache(maxsize=8)
def _ask(name: str) -> Any:
    """Fetch a run from the scheduler by its name, from within a task."""
    from distributed import get_worker
    from distributed.utils import sync

    worker = get_worker()
    keep_log_short()

    def ask(key: str) -> Any:
        return sync(worker.loop, worker.scheduler.get_metadata, keys=[key], default=None)

    witness = ask(f"{name}-witness")
    if witness is not None:
        *rest, options = witness
        plain = tuple(rest)
        host, trouble = ("", "") if plain in seen else make_look(options)(plain, worker)
        if trouble:
            raise RunError(f"the worker {worker.address} on {host} {trouble}")
    kept = ask(name)
    if kept is None:
        raise RunError("the run that this task belongs to has ended")
    return kept[0]
