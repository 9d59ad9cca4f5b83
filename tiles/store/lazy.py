"""Rasters and tables of a store as lazy xarray variables.

This module imports xarray, which is slow; import it inside functions.
"""

from __future__ import annotations

import hashlib
from typing import Any

import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from orograph.tiles.format.dense import DenseArray
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import fill_value_in_xarray
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
        # xarray passes on integers and slices only, since the array claims basic indexing.
        starts: list[int] = []
        sizes: list[int] = []
        inside: list[int | slice] = []
        for item, length in zip(key, self.shape, strict=True):
            if isinstance(item, slice):
                picked = range(*item.indices(length))
                if not picked:
                    # A window has at least one cell: one is read, and an empty slice taken of it.
                    starts.append(0)
                    sizes.append(1)
                    inside.append(slice(0, 0))
                    continue
                low, high = min(picked[0], picked[-1]), max(picked[0], picked[-1]) + 1
                # The window begins and ends with cells that are picked, so a step of either sign
                # meets them.
                inside.append(slice(None, None, picked.step))
            else:
                low = int(item) % length
                high = low + 1
                inside.append(0)
            starts.append(low)
            sizes.append(high - low)
        window = Window(starts[0], starts[1], sizes[0], sizes[1])
        return self.raster.read(window)[tuple(inside)]


class ColumnArray(BackendArray):
    """Column of a store's table, indexed like an array."""

    def __init__(self, column: DenseArray) -> None:
        self.column = column
        self.shape = column.member.shape
        self.dtype = column.member.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._read
        )

    def _read(self, key: tuple[int | slice, ...]) -> NDArray[Any]:
        """Read all rows between the first and the last, and return the indexed ones."""
        rows, *rest = key
        if not isinstance(rows, slice):
            rows = int(rows) % self.shape[0]
            return self.column.read(rows, rows + 1)[(0, *rest)]
        picked = range(*rows.indices(self.shape[0]))
        if not picked:
            return self.column.read(0, 0)[(slice(0), *rest)]
        low, high = min(picked[0], picked[-1]), max(picked[0], picked[-1]) + 1
        return self.column.read(low, high)[(slice(None, None, picked.step), *rest)]


def lazy_column(column: DenseArray) -> xr.Variable:
    """Return a column of a store's table as a Dask-backed Variable, chunked as it is stored."""
    member, storage = column.member, column.storage
    data = indexing.LazilyIndexedArray(ColumnArray(column))
    stamp = repr((str(storage), member.name, storage.state("zarr.json")))
    digest = hashlib.blake2b(stamp.encode(), digest_size=16).hexdigest()
    return xr.Variable(member.dimensions, data, dict(member.attributes)).chunk(
        dict(zip(member.dimensions, member.chunk, strict=True)), name=f"store-table-{digest}"
    )


def lazy_variable(raster: StoreRaster, chunks: str) -> xr.Variable:
    """Return a raster of a store as a Dask-backed Variable, chunked by shards or tiles.

    The name of the Dask array identifies its cells; every array derived from it has another name.
    """
    place = raster.georeference
    fill, encoding = fill_value_in_xarray(raster.nodata, raster.dtype)
    attributes = {**raster.attrs, **fill}
    encoding |= {"source": raster.path, "storage": raster.storage, **place.encoding}
    names = place.y_name, place.x_name
    data = indexing.LazilyIndexedArray(StoreArray(raster))
    side = raster.shard if chunks == "shard" else raster.tile
    return xr.Variable(names, data, attributes, encoding).chunk(
        dict.fromkeys(names, side), name=lazy_name(raster, chunks)
    )


def lazy_name(raster: StoreRaster, chunks: str) -> str:
    """Return the name of the Dask array of `lazy_variable`."""
    stamp = repr((raster.path, raster.variable, raster.states()))
    return f"store-{chunks}-{hashlib.blake2b(stamp.encode(), digest_size=16).hexdigest()}"
