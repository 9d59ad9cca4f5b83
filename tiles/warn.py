"""Warnings that point to the line of the user's that caused them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SILENT = ContextVar("silent", default=False)
_TOLD: ContextVar[set[str] | None] = ContextVar("told", default=None)
"""Warnings that the present call of a public function has issued; None outside of such calls."""


@contextmanager
def warning_once() -> Iterator[bool]:
    """Issue each warning only once within the outermost such context; return whether it is that."""
    token = _TOLD.set(set()) if _TOLD.get() is None else None
    try:
        yield token is not None
    finally:
        if token is not None:
            _TOLD.reset(token)


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
    told = _TOLD.get()
    if _SILENT.get() or (told is not None and text in told):
        return
    if told is not None:
        told.add(text)
    depth, frame = 1, sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "orograph":
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    warnings.warn(text, kind, stacklevel=depth)
