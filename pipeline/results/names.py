"""Names of sources in results whose labels are numbers of names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def name_labels(attrs: Mapping[str, Any], labels: Iterable[Any]) -> list[str | None] | None:
    """Return the names of labels by the attribute ``source_names``; None without that attribute.

    The name of a label that has none, such as that of unreached cells, is None.
    """
    names = attrs.get("source_names")
    if names is None:
        return None
    if isinstance(names, str):  # NetCDF reads a list of one as text
        names = [names]
    return [names[int(label)] if 0 <= label < len(names) else None for label in labels]
