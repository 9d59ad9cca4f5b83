"""Open stores as lazy xarray Datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from orograph.tiles.arguments import shown
from orograph.tiles.errors import InputError, own_errors
from orograph.tiles.format.dense import DenseArray
from orograph.tiles.format.metadata import read_metadata
from orograph.tiles.object_options import takes_storage_options
from orograph.tiles.open_storage import open_storage
from orograph.tiles.storage import Location
from orograph.tiles.store.raster import StoreRaster

if TYPE_CHECKING:
    import xarray as xr


@own_errors
@takes_storage_options
def open(
    path: Location,
    chunks: str = "shard",
    *,
    storage_options: Mapping[str, str | bool] | None = None,
) -> xr.Dataset:
    """Open a store as a lazy Dataset.

    Cells are read through `StoreRaster`, so the error for a damaged tile names the tile. Values are
    neither masked nor scaled: dtypes are those of the store, and the nodata value is the attribute
    ``_FillValue``, which ``rio.nodata`` reads.

    Parameters
    ----------
    path : path
        The store.
    chunks : {"shard", "tile"}
        Whether a Dask chunk is a shard or a tile.
    storage_options : dict, optional
        Options of an address in an object store, as for a run; the opened Dataset keeps them.

    Returns
    -------
    Dataset
        The store's rasters, coordinates and attributes.

    Raises
    ------
    InputError
        If there is no finished store.
    DamagedStoreError
        If its metadata or coordinates are damaged, or an array is missing.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> stored = og.ingest(np.eye(3), "eye.zarr")
    >>> list(og.open("eye.zarr").data_vars)
    ['elevation']
    """
    import xarray as xr

    from orograph.tiles.store.lazy import lazy_column, lazy_variable

    if not isinstance(chunks, str) or chunks not in ("shard", "tile"):
        raise InputError(
            f"chunks={shown(chunks)}: it must be 'shard' or 'tile'; rechunk afterwards"
        )
    storage = open_storage(path)
    metadata = read_metadata(storage)
    arrays: dict[str, xr.Variable] = {}
    coords: dict[str, xr.Variable] = {}
    for name in metadata.rasters:
        raster = StoreRaster(storage, name, metadata=metadata)
        arrays[name] = lazy_variable(raster, chunks)
        coords = coords or raster.georeference.coords()
    for name in metadata.tables:
        arrays[name] = lazy_column(DenseArray(storage, metadata.members[name]))
    dataset = xr.Dataset(arrays, coords, metadata.attributes)
    dataset.encoding["source"] = str(storage)
    return dataset
