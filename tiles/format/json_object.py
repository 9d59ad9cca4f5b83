"""Parse JSON objects of stores, raising ValueError for any malformed content."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np

MOST_LEVELS = 100
"""Greatest depth to which an object may be nested: far below the depth to which Python's functions
recurse, which differs by version."""


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
    # Level by level: a recursive check could itself exceed Python's limit of recursion.
    level: list[Any] = [document]
    for _ in range(MOST_LEVELS):
        inner = [value for outer in level for value in _values(outer)]
        level = [value for value in inner if isinstance(value, dict | list)]
        if not level:
            return document
    raise ValueError(f"it is nested too deeply, in more than {MOST_LEVELS} levels")


def _values(outer: object) -> Any:
    return outer.values() if isinstance(outer, dict) else outer


def field(document: Mapping[str, Any], name: str, *kinds: type) -> Any:
    """Return a field of a JSON object; raise ValueError if it has another type than expected."""
    if name not in document:
        raise ValueError(f"{name} is missing")
    value = document[name]
    if type(value) not in kinds:
        raise ValueError(f"{name} is {reprlib.repr(value)}")
    return value


def whole_numbers(document: Mapping[str, Any], name: str, least: int, most: int) -> tuple[int, ...]:
    """Return a field as a tuple of integers from ``least`` to ``most``."""
    values = field(document, name, list)
    if not all(type(value) is int and least <= value <= most for value in values):
        raise ValueError(f"{name} is {reprlib.repr(values)}, not numbers from {least} to {most}")
    return tuple(values)


def jsonable(value: object) -> Any:
    """Convert a value to types that JSON supports."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
