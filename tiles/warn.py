"""Warnings that point to the line of the user's that caused them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SILENT = ContextVar("silent", default=False)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Issue no warning by `warn_user` within the context: of a call that has warned already."""
    token = _SILENT.set(True)
    try:
        yield
    finally:
        _SILENT.reset(token)


def warn_user(text: str, kind: type[Warning] = RuntimeWarning) -> None:
    """Issue a warning from the innermost frame that is not of this package."""
    if _SILENT.get():
        return
    depth, frame = 1, sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "orograph":
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    warnings.warn(text, kind, stacklevel=depth)
