"""Retry file operations that fail because a network file system is away for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import ParamSpec, TypeVar

from orograph.tiles.system import known_errors

T = TypeVar("T")
P = ParamSpec("P")
PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 3.7)
"""Seconds between attempts of an operation that failed for a reason that may pass: 10 in all."""
# of file systems over a network that are away for a while, mostly
_TRANSIENT = known_errors(
    *("ESTALE", "EIO", "EAGAIN", "EINTR", "ETIMEDOUT", "ECONNRESET", "ECONNABORTED", "ENOTCONN"),
    *("EHOSTDOWN", "EHOSTUNREACH", "ENETUNREACH", "EREMOTEIO"),
)


def patiently(
    do: Callable[[], T], mend: Callable[[], None] = lambda: None, *passing: type[Exception]
) -> T:
    """Call ``do`` and return its result, retrying after `PAUSES` on transient errors.

    Parameters
    ----------
    do
        What reads or writes; it can be repeated.
    mend
        Called before each repetition.
    passing
        Errors that may pass beside those of a file system that is away.
    """
    for pause in PAUSES:
        try:
            return do()
        except OSError as error:
            if error.errno not in _TRANSIENT and not isinstance(error, passing):
                raise
        time.sleep(pause)
        with suppress(OSError):
            mend()
    return do()


def patient(method: Callable[P, T]) -> Callable[P, T]:
    """Wrap a storage method so that it is retried on transient errors."""

    @wraps(method)
    def repeated(*args: P.args, **kwargs: P.kwargs) -> T:
        return patiently(lambda: method(*args, **kwargs))

    return repeated
