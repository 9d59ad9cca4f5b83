"""Parse JSON objects of stores, raising ValueError for any malformed content."""

from __future__ import annotations

import json
import reprlib
from typing import Any

MOST_LEVELS = 100
"""How deeply an object may be nested: far below what Python's functions recurse through, the limits
of which differ by version."""


def parse_object(content: bytes) -> dict[str, Any]:
    """Parse a file's content as a JSON object.

    Raises
    ------
    ValueError
        If it is not JSON, not an object, or nested too deeply.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"it holds {reprlib.repr(document)}, no JSON object")
    level: list[Any] = [document]
    for _ in range(MOST_LEVELS):
        inner = [value for outer in level for value in _values(outer)]
        level = [value for value in inner if isinstance(value, dict | list)]
        if not level:
            return document
    raise ValueError(f"it is nested too deeply, in more than {MOST_LEVELS} levels")


def _values(outer: object) -> Any:
    return outer.values() if isinstance(outer, dict) else outer
