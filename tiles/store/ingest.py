"""Making a store of a raster of any size, a part at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import FileRaster, Raster, open_raster
from orograph.tiles.store.create import Layout, StoreSink, Variable, create_store
from orograph.tiles.store.dataset import open_dataset
from orograph.tiles.store.overlap import refuse_overlap
from orograph.tiles.store.publish import check_target, discard, partial_storage, publish
from orograph.tiles.store.storage import Location, open_storage

if TYPE_CHECKING:
    import xarray as xr

NAME = "elevation"
# A row of shards no larger than this is read as a whole, whatever the source looks like.
BAND_BYTES = 2**27


def ingest(
    source: Any,
    store: Location,
    *,
    tile: int = 1024,
    shard: int | None = None,
    nodata: float | None = None,
    band: int | None = None,
    variable: str | None = None,
    overwrite: bool = False,
) -> xr.DataArray:
    """Copy a raster into a store.

    Parameters
    ----------
    source : DataArray, array, masked array, or path
        Anything `open_raster` takes.
    store : path or Storage
        The store to make. Until it is whole it is called ``<store>.partial``.
    tile : int
        Cells a side of a tile.
    shard : int, optional
        Cells a side of a shard, ``tile`` times a power of two; by default about 4096.
    nodata : number, optional
        The value of cells that are no vertices, in place of what the source says.
    band : int, optional
        Which band of several, counted from 1.
    variable : str, optional
        Which variable of several.
    overwrite : bool
        Replace a store of that name, when the new one is whole.

    Returns
    -------
    DataArray
        The stored raster, lazy, called as the source's variable or ``elevation``.

    Raises
    ------
    InputError
        If the source cannot be used, or the store would lie in it or it in the store.
    StoreExistsError
        If the store exists and ``overwrite`` is false, or something else is in its place.
    StorageFullError
        If there is no room.

    Notes
    -----
    Every value is kept as it is: nothing is rounded, scaled or filled. bool becomes uint8 and
    float16 becomes float32. A nodata value of the source stays in its cells and is recorded as
    ``_FillValue``; NaN stays NaN beside it. Only cells that a mask hides are given the nodata
    value (NaN for floats where there is none).

    Memory: two shards, or two rows of shards where the source is stored in strips that cross the
    whole grid, or the row is small (128 MiB). Each cell is decoded once, but for blocks of the
    source that lie across the edge of what is read at a time.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> stored = og.ingest(np.arange(12.0).reshape(3, 4), "dem.zarr", tile=2)
    >>> stored.name, stored.shape, stored.dtype
    ('elevation', (3, 4), dtype('float64'))
    """
    raster = open_raster(source, band=band, nodata=nodata, variable=variable)
    name = raster.name or NAME
    layout = Layout.default(raster.shape, raster.dtype, tile, shard)
    target = open_storage(store)
    check_target(target, overwrite)
    partial = partial_storage(target)
    refuse_overlap(raster, target, source)
    refuse_overlap(raster, partial, source)
    discard(partial)
    stored = Variable(name, raster.dtype, raster.nodata, raster.attrs)
    create_store(partial, raster.shape, layout, [stored], raster.georeference)
    sink = StoreSink(partial)
    for window, cells in _read_ahead(raster, layout):
        for part in layout.windows(window.shape):
            place = Window(window.y + part.y, window.x + part.x, part.height, part.width)
            sink.write(name, place, cells[part.slices])
    publish(partial, target, overwrite)
    return open_dataset(target)[name]


def _read_windows(raster: Raster, layout: Layout) -> Iterator[Window]:
    """What to read at a time: shards, or rows of shards."""
    height, width = raster.shape
    small = layout.shard * width * raster.bytes_per_cell <= BAND_BYTES
    striped = isinstance(raster, FileRaster) and raster.block[1] >= width
    across = width if small or striped else layout.shard
    for y in range(0, height, layout.shard):
        for x in range(0, width, across):
            yield Window(y, x, layout.shard, across).clip(raster.shape)


def _read_ahead(raster: Raster, layout: Layout) -> Iterator[tuple[Window, NDArray[Any]]]:
    """Windows and their cells; the next is decoded while the last is compressed."""
    pending: deque[tuple[Window, Future[NDArray[Any]]]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="orograph-ingest") as reader:
        try:
            for window in _read_windows(raster, layout):
                pending.append((window, reader.submit(raster.read, window)))
                if len(pending) > 1:
                    first, cells = pending.popleft()
                    yield first, cells.result()
                    del cells
            while pending:
                first, cells = pending.popleft()
                yield first, cells.result()
        finally:
            for _, cells in pending:
                cells.cancel()
