"""Call an operation by one of its verbs, where a test names many operations in one table."""

from __future__ import annotations

from typing import Any

import orograph as og


def call(operation: og.Operation[..., Any], *args: Any, verb: str = "", **kwargs: Any) -> Any:
    """The result of a call, or of ``.submit``, ``.lazy`` or ``.plan``."""
    return (getattr(operation, verb) if verb else operation)(*args, **kwargs)
