"""Rasters of a store as lazy xarray variables.

This module imports xarray, which is slow; import it inside functions.
"""

from __future__ import annotations

from typing import Any

import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from orograph.tiles.grid.georeference import GRID_MAPPING
from orograph.tiles.grid.window import Window
from orograph.tiles.store.raster import StoreRaster


class StoreArray(BackendArray):
    """Raster of a store, indexed like an array."""

    def __init__(self, raster: StoreRaster) -> None:
        self.raster = raster
        self.shape = raster.shape
        self.dtype = raster.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._read
        )

    def _read(self, key: tuple[int | slice, ...]) -> NDArray[Any]:
        """Read the bounding window of an index, and return the indexed cells."""
        starts: list[int] = []
        sizes: list[int] = []
        inside: list[int | slice] = []
        for item, length in zip(key, self.shape, strict=True):
            if isinstance(item, slice):
                picked = range(*item.indices(length))
                if not picked:
                    starts.append(0)
                    sizes.append(1)
                    inside.append(slice(0, 0))
                    continue
                low, high = min(picked[0], picked[-1]), max(picked[0], picked[-1]) + 1
                inside.append(slice(None, None, picked.step))
            else:
                low = int(item) % length
                high = low + 1
                inside.append(0)
            starts.append(low)
            sizes.append(high - low)
        window = Window(starts[0], starts[1], sizes[0], sizes[1])
        return self.raster.read(window)[tuple(inside)]


def lazy_variable(raster: StoreRaster, chunks: str) -> xr.Variable:
    """Return a raster of a store as a Dask-backed Variable, chunked by shards or tiles.

    The name of the Dask array identifies its cells; every array derived from it has another name.
    """
    place = raster.georeference
    attributes = dict(raster.attrs)
    if raster.nodata is not None:
        attributes["_FillValue"] = raster.dtype.type(raster.nodata)
    encoding: dict[str, Any] = {"source": raster.path}
    if place.grid_mapping_attributes():
        encoding["grid_mapping"] = GRID_MAPPING
    names = place.y_name, place.x_name
    data = indexing.LazilyIndexedArray(StoreArray(raster))
    side = raster.shard if chunks == "shard" else raster.tile
    return xr.Variable(names, data, attributes, encoding).chunk(
        dict.fromkeys(names, side), name=lazy_name(raster, chunks)
    )


def lazy_name(raster: StoreRaster, chunks: str) -> str:
    """Return the name of the Dask array of `lazy_variable`."""
    return f"store-{chunks}-{raster.fingerprint().removeprefix('store-')}"
