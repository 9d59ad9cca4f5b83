"""Change the metadata of a finished store as someone would who knows of its checksum."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orograph.tiles.format.metadata import checksum_of


def reseal(store: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Let ``change`` alter the metadata of a group, and make all of the store agree with them."""
    document = json.loads((store / "zarr.json").read_text())
    change(document)
    try:
        document["attributes"]["orograph"]["checksum"] = checksum_of(document)
        members = dict(document["consolidated_metadata"]["metadata"])
    except (KeyError, TypeError, ValueError, AttributeError):
        members = {}  # what there was to agree with is gone
    (store / "zarr.json").write_text(json.dumps(document))
    for name, member in members.items():
        if (store / name / "zarr.json").exists():
            (store / name / "zarr.json").write_text(json.dumps(member))
