"""Copy rasters of any size into stores."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from orograph.tiles.arguments import check_flag
from orograph.tiles.convert.overlap import refuse_overlap
from orograph.tiles.errors import own_errors
from orograph.tiles.extensions import check_extension
from orograph.tiles.grid.window import Window
from orograph.tiles.object_options import takes_storage_options
from orograph.tiles.open_storage import open_storage
from orograph.tiles.raster.marks import LeastValues
from orograph.tiles.raster.raster import CHOICE, FileRaster, Raster, RasterLike, open_raster
from orograph.tiles.raster.unchanged import unchanged
from orograph.tiles.storage import Location, Storage
from orograph.tiles.store.create import Layout, Variable, create_store
from orograph.tiles.store.dataset import open as open_dataset
from orograph.tiles.store.publish import check_target, partial_storage, staged_store
from orograph.tiles.store.sink import StoreSink
from orograph.tiles.warn import warn_user

if TYPE_CHECKING:
    import xarray as xr

NAME = "elevation"
# Bytes. A row of shards up to this size is read as a whole, whatever the layout of the source.
BAND_BYTES = 2**27


@own_errors
@takes_storage_options
def ingest(
    source: RasterLike,
    store: Location,
    *,
    tile: int = 1024,
    shard: int | None = None,
    nodata: float | None = None,
    band: int | None = None,
    variable: str | None = None,
    overwrite: bool = False,
    takeover: bool = False,
    storage_options: Mapping[str, str | bool] | None = None,
) -> xr.DataArray:
    """Copy a raster into a store.

    Parameters
    ----------
    source : DataArray, array, masked array, or path
        Anything `open_raster` accepts.
    store : path or Storage
        The store to write. Until it is complete, it is in ``<store>.partial``.
    tile : int
        Side of a tile in cells.
    shard : int, optional
        Side of a shard in cells, ``tile`` times a power of two; by default about 4096.
    nodata : number, optional
        Nodata value; overrides that of the source.
    band : int, optional
        Number of the band, from 1, if there are several.
    variable : str, optional
        Name of the variable, if there are several.
    overwrite : bool
        Replace an existing store of that name once the new one is complete.
    takeover : bool
        Take over from another writer that is working on the store; that writer ends with an error.
    storage_options : dict, optional
        Options of addresses in object stores, as for a run.

    Returns
    -------
    DataArray
        The stored raster, lazy, with the name of the source's variable, or ``elevation``.

    Raises
    ------
    InputError
        If the source cannot be used, or source and store overlap.
    StoreExistsError
        If the store exists and ``overwrite`` is false, something else exists at its path, or
        another writer is working on it.
    RunError
        If another writer has taken over, or the source has changed in the meantime.
    StorageFullError
        If there is no space left.

    Notes
    -----
    Values are not rounded, scaled or filled. bool becomes uint8 and float16 becomes float32. Cells
    with the nodata value of the source keep it, and it is recorded as ``_FillValue``; NaN cells
    stay NaN in addition. Only masked cells are set to the nodata value (NaN for floats without
    one). If no nodata value is known and the least value lies far below all others, as -9999 or
    -32768 do, a warning names it.

    Memory: two shards. If the source is stored in strips as wide as the grid, or if a row of shards
    is small (at most 128 MiB), two rows of shards. Each cell is decoded once, except in blocks of
    the source that overlap two of the windows that are read.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> stored = og.ingest(np.arange(12.0).reshape(3, 4), "dem.zarr", tile=2)
    >>> stored.name, stored.shape, stored.dtype
    ('elevation', (3, 4), dtype('float64'))
    """
    overwrite = check_flag("overwrite", overwrite)
    target = open_storage(store, "store")
    check_extension("store", target)
    raster = open_raster(source, band=band, nodata=nodata, variable=variable, offers=CHOICE)
    check_target(target, overwrite)
    refuse_overlap(raster, target, source)
    refuse_overlap(raster, partial_storage(target), source)
    values = LeastValues()
    look = values.add if raster.nodata is None else None
    copy_raster(raster, target, tile, shard, overwrite, takeover, look)
    doubt = values.doubt("source", offered=True)
    if doubt is not None:
        warn_user(doubt)
    return open_dataset(target)[raster.name or NAME]


def copy_raster(
    raster: Raster,
    target: Storage,
    tile: int,
    shard: int | None = None,
    overwrite: bool = False,
    takeover: bool = False,
    look: Callable[[NDArray[Any]], None] | None = None,
) -> None:
    """Copy a raster into a store, as `ingest` does; call ``look`` with each window of cells."""
    layout = Layout.default(raster.shape, raster.dtype, tile, shard)
    with staged_store(target, overwrite, takeover) as staged:
        write_raster(raster, staged, layout, look)


def write_raster(
    raster: Raster,
    storage: Storage,
    layout: Layout,
    look: Callable[[NDArray[Any]], None] | None = None,
) -> None:
    """Write a raster as an unfinished store; call ``look`` with each window of cells."""
    name = raster.name or NAME
    stored = Variable(name, raster.dtype, raster.nodata, raster.attrs)
    create_store(storage, raster.shape, layout, [stored], raster.georeference)
    sink = StoreSink(storage)
    with unchanged(raster):
        for window, cells in _read_ahead(raster, layout):
            if look is not None:
                look(cells)
            for part in layout.windows(window.shape):
                place = Window(window.y + part.y, window.x + part.x, part.height, part.width)
                sink.write(name, place, cells[part.slices])


def _read_windows(raster: Raster, layout: Layout) -> Iterator[Window]:
    """Yield the windows to copy: single shards, or whole rows of shards."""
    height, width = raster.shape
    small = layout.shard * width * raster.bytes_per_cell <= BAND_BYTES
    # A strip as wide as the grid is decoded whole for any part of it, so whole rows are read.
    striped = isinstance(raster, FileRaster) and raster.block[1] >= width
    across = width if small or striped else layout.shard
    for y in range(0, height, layout.shard):
        for x in range(0, width, across):
            yield Window(y, x, layout.shard, across).clip(raster.shape)


def _read_ahead(raster: Raster, layout: Layout) -> Iterator[tuple[Window, NDArray[Any]]]:
    """Yield windows with their cells, reading the next one in a thread meanwhile."""
    pending: deque[tuple[Window, Future[NDArray[Any]]]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="orograph-ingest") as reader:
        try:
            for window in _read_windows(raster, layout):
                pending.append((window, reader.submit(raster.read, window)))
                # The window before is handed on while this one is read: two are in memory.
                if len(pending) > 1:
                    first, cells = pending.popleft()
                    yield first, cells.result()
                    del cells
            while pending:
                first, cells = pending.popleft()
                yield first, cells.result()
        finally:
            # If the writer has failed, windows that are not begun need not be read.
            for _, cells in pending:
                cells.cancel()
