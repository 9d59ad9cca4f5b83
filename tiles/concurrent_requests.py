"""Make requests that do not depend on one another at the same time.

A request to an object store takes some hundredths of a second, most of which is waiting. A file
system answers so soon that threads would cost more than they save.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Protocol, TypeVar

REQUESTS_AT_ONCE = 16
"""Greatest number of requests of one thread to an object store that wait together."""


class HasEtags(Protocol):
    """A storage; see `orograph.tiles.storage.Storage`."""

    @property
    def etags(self) -> bool:
        """Whether it answers requests slowly, as an object store does."""


T = TypeVar("T")
U = TypeVar("U")


def at_once(storage: HasEtags, *calls: Callable[[], Any]) -> list[Any]:
    """Call functions, at the same time if a storage answers slowly, and return their results.

    If several raise an exception, that of the first of them is raised, when all have ended.
    """
    return map_at_once(storage, lambda call: call(), calls)


def map_at_once(storage: HasEtags, function: Callable[[U], T], items: Iterable[U]) -> list[T]:
    """Return the values of a function for some items; see `at_once`."""
    items = list(items)
    if not storage.etags or len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(len(items), REQUESTS_AT_ONCE), "orograph-requests") as pool:
        # Threads do not inherit context variables, such as the options of the storage. A context
        # cannot be entered twice at a time, so each call gets a copy.
        futures = [pool.submit(copy_context().run, function, item) for item in items]
    return [future.result() for future in futures]
