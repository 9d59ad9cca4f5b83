"""Temporary stores: of results that are read in pieces, and of inputs that Dask computes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from orograph.run.cluster.compute import compute
from orograph.run.cluster.task_graph import Layers
from orograph.tiles.errors import Cancelled
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import LazyRaster, open_raster
from orograph.tiles.storage import Storage
from orograph.tiles.store.create import Layout, Variable, create_store
from orograph.tiles.store.sink import StoreSink

if TYPE_CHECKING:
    from distributed import Client

CELLS = "cells"


class ScratchResult:
    """Rasters in a temporary store, which is removed with this object.

    Parameters
    ----------
    store : Storage
        The finished store.
    remove : callable
        Removes it.
    """

    def __init__(self, store: Storage, remove: Callable[[], None]) -> None:
        self.store = store
        # When the last reference goes, and else at the end of the process.
        weakref.finalize(self, remove)

    def read(self, variable: str, window: Window) -> npt.NDArray[Any]:
        """Return the cells of a raster in a window."""
        raster = open_raster(str(self.store), variable=variable)
        cells: npt.NDArray[Any] = raster.read(window)
        return cells


def store_computed(
    rasters: Mapping[Storage, LazyRaster],
    layout: Layout,
    token: str,
    client: Client | None,
    cancelled: Event,
) -> None:
    """Let Dask compute rasters of its arrays once, all in one graph, into an unfinished store each.

    Tasks of a run read by tiles, with halos, and some twice: each read would compute anew all
    blocks that it meets, and all that these are made of.

    Parameters
    ----------
    rasters : mapping
        The rasters by the stores to make of them.
    layout : Layout
        Tiles and shards of the stores. A shard is written by one task.
    token : str
        As of `Layers`.
    client, cancelled
        As of `compute`, with the same exceptions.
    """
    from dask._task_spec import Task, TaskRef, convert_legacy_graph
    from dask.array.optimization import optimize
    from dask.core import flatten
    from dask.highlevelgraph import HighLevelGraph
    from dask.order import order

    side = (layout.shard,) * 2
    pieces = [raster.cells.data.rechunk(side, method="tasks") for raster in rasters.values()]
    # together: one by one Dask would fuse what several arrays are made of into each of them
    keys = list(flatten([array.__dask_keys__() for array in pieces]))
    whole = optimize(HighLevelGraph.merge(*(array.dask for array in pieces)), keys)
    tasks: dict[Any, Any] = convert_legacy_graph(dict(whole))
    layer = Layers("input", token).name("write")
    ends = []
    for number, (target, raster) in enumerate(rasters.items()):
        raster.blocks.clear()
        variable = Variable(CELLS, raster.dtype, raster.nodata, raster.attrs)
        create_store(target, raster.shape, layout, [variable], raster.georeference)
        sink = StoreSink(target)
        for place in layout.windows(raster.shape):
            row, column = place.y // layout.shard, place.x // layout.shard
            end = layer, number, row, column
            cells = TaskRef((pieces[number].name, row, column))
            how = raster.convert, sink, place, None if client else cancelled
            tasks[end] = Task(end, _write_shard, cells, *how)
            ends.append(end)
    # `compute` does tasks in the order of the dict: here that of Dask, which knows its own graphs.
    ranks = order(tasks)
    ordered = dict(sorted(tasks.items(), key=lambda task: ranks[task[0]]))
    compute(ordered, ends, client, cancelled)


def _write_shard(
    cells: Any,
    convert: Callable[[Any], npt.NDArray[Any]],
    sink: StoreSink,
    place: Window,
    cancelled: Event | None,
) -> None:
    """Write the computed cells of one shard."""
    if cancelled is not None and cancelled.is_set():
        raise Cancelled("the run was cancelled")
    sink.write(CELLS, place, convert(cells))
