"""Inputs are never written: refusing an output that would lie in an input, or around it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from orograph.tiles.errors import InputError
from orograph.tiles.raster.raster import FileRaster, Raster, StoreRaster
from orograph.tiles.store.storage import LocalStorage, Location, Storage, open_storage


def refuse_overlap(raster: Raster, target: Location, source: Any = None) -> None:
    """Refuse a target that lies in a file or folder that a raster is read from, or around it.

    Parameters
    ----------
    raster
        The input.
    target
        What would be written.
    source
        What the raster was opened from, where that says more.

    Raises
    ------
    InputError
        If they overlap.
    """
    storage = open_storage(target)
    for place in _places_of(raster, source):
        if place.exists() and storage.overlaps(place):
            raise InputError(
                f"{storage}: the source {place} lies there or around it, and sources are never "
                "written; choose a path outside of it"
            )


def _places_of(raster: Raster, source: Any) -> Iterator[Storage]:
    """Stores, files and folders that the source is known to be read from."""
    if isinstance(source, str | os.PathLike):
        yield LocalStorage(source)
    stated = getattr(source, "encoding", {}).get("source")
    if isinstance(stated, str):
        yield LocalStorage(stated)
    if isinstance(raster, StoreRaster):
        yield raster.storage
    if isinstance(raster, FileRaster):
        yield from (LocalStorage(name) for name in raster.files)
