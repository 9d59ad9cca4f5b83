"""Check that an output does not overlap an input."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress

from orograph.tiles.errors import InputError
from orograph.tiles.format.dense import StoredColumn
from orograph.tiles.local_storage import LocalStorage
from orograph.tiles.open_storage import open_storage
from orograph.tiles.raster.from_zarr import folder_of
from orograph.tiles.raster.raster import FileRaster, Raster, StoreRaster
from orograph.tiles.storage import Location, Storage


def refuse_overlap(raster: Raster | None, target: Location, source: object = None) -> None:
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
        if storage.overlaps(place) and place.exists():
            raise InputError(
                f"{storage}: the source {place} lies there or around it, and sources are never "
                "written; choose a path outside of it"
            )


def _places_of(raster: Raster | None, source: object) -> Iterator[Storage]:
    """Yield the stores, files and folders that a source is read from."""
    # xarray keeps there what an object was opened from; `store.lazy` adds the storage.
    encoding = getattr(source, "encoding", {})
    if "storage" in encoding:
        yield encoding["storage"]
    for address in (source, None if "storage" in encoding else encoding.get("source")):
        if isinstance(address, str | os.PathLike):
            with suppress(InputError):  # a URL of elsewhere
                yield open_storage(address)
    arrays = getattr(source, "arrays", None)
    if isinstance(arrays, Mapping):  # of a stored graph
        yield from {array.storage for array in arrays.values() if isinstance(array, StoredColumn)}
    folder = folder_of(source)
    if folder is not None:
        yield LocalStorage(folder)
    if isinstance(raster, StoreRaster):
        yield raster.storage
    if isinstance(raster, FileRaster):
        yield from (LocalStorage(name) for name in raster.files)
