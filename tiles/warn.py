"""Warnings that point to the line of the user's that caused them."""

from __future__ import annotations

import sys
import warnings


def warn_user(text: str, kind: type[Warning] = RuntimeWarning) -> None:
    """Issue a warning from the innermost frame that is not of this package."""
    depth, frame = 1, sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "orograph":
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    warnings.warn(text, kind, stacklevel=depth)
