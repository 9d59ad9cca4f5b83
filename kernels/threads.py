"""Number of threads that a kernel may use besides its caller's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_threads: ContextVar[int] = ContextVar("orograph_threads", default=1)


def threads_of_visit() -> int:
    """Return how many threads a kernel called here may use, the caller's among them."""
    return _threads.get()


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Let kernels called within this context use ``count`` threads."""
    token = _threads.set(count)
    try:
        yield
    finally:
        _threads.reset(token)
