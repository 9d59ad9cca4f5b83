"""Names of sources in results whose labels are numbers of names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orograph.tiles.raster.tags import parse_tag


def name_labels(attrs: Mapping[str, Any], labels: Iterable[Any]) -> list[str | None] | None:
    """Return the names of labels by the attribute ``source_names``; None without that attribute.

    The name of a label that has none, such as that of unreached cells, is None.
    """
    names = attrs.get("source_names")
    if names is None:
        return None
    if isinstance(names, str):  # a tag holds a list as text; NetCDF reads a list of one as text
        listed = parse_tag(names)
        names = listed if isinstance(listed, list) else [names]
    # Labels of names are their positions in the list.
    return [names[int(label)] if 0 <= label < len(names) else None for label in labels]
