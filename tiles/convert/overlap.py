"""Check that an output does not overlap an input."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from orograph.tiles.errors import InputError
from orograph.tiles.format.dense import StoredColumn
from orograph.tiles.raster.raster import FileRaster, Raster, StoreRaster
from orograph.tiles.storage import LocalStorage, Location, Storage, open_storage


def refuse_overlap(raster: Raster | None, target: Location, source: Any = None) -> None:
    """Raise InputError if a target contains, or lies in, a file or folder of a raster.

    Parameters
    ----------
    raster
        The input; None if it is not a raster.
    target
        Location that would be written.
    source
        Object from which the input was opened; it may state further locations.

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


def _places_of(raster: Raster | None, source: Any) -> Iterator[Storage]:
    """Yield the stores, files and folders that a source is read from."""
    stated = getattr(source, "encoding", {}).get("source")
    for address in (source, stated):
        if isinstance(address, str | os.PathLike):
            with suppress(InputError):  # a URL of elsewhere
                yield open_storage(address)
    arrays = getattr(source, "arrays", {})  # of a stored graph
    yield from {array.storage for array in arrays.values() if isinstance(array, StoredColumn)}
    root = getattr(getattr(source, "store", None), "root", None)
    if isinstance(root, os.PathLike):  # of a Zarr array
        yield LocalStorage(root).child(getattr(source, "path", ""))
    if isinstance(raster, StoreRaster):
        yield raster.storage
    if isinstance(raster, FileRaster):
        yield from (LocalStorage(name) for name in raster.files)
