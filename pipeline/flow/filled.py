"""Fill depressions as the first stage of `flow_direction`, storing the surface temporarily."""

from __future__ import annotations

from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np

from orograph.engines.frontier.driver import Frontier
from orograph.engines.frontier.field import join_tiles
from orograph.engines.quadtree_pass import QuadtreePass
from orograph.execution.checkpoints import StoredCheckpoints
from orograph.execution.context import RunContext, written_raster
from orograph.execution.run import Progress, ResultTable
from orograph.flow.directions import Directions
from orograph.terrain.water import WaterLevel
from orograph.tiles.errors import DamagedStoreError, InputError
from orograph.tiles.format.metadata import read_metadata
from orograph.tiles.raster.raster import Raster
from orograph.tiles.storage import Storage
from orograph.tiles.store.create import Layout, Variable, create_store
from orograph.tiles.store.sink import ArraySink, Sink, StoreSink

if TYPE_CHECKING:
    from distributed import Client

NAME = "filled"


class FillThenFlow:
    """Engine that fills depressions and then computes directions on the filled surface."""

    def __init__(
        self, problem: Directions, rasters: tuple[Raster, ...], context: RunContext
    ) -> None:
        (elevation,) = rasters
        part = context.part(NAME)
        self._problem, self._context, self._dtype = problem, context, elevation.dtype
        filled = Variable(NAME, elevation.dtype, problem.nodata)
        sink: Sink
        if isinstance(part.checkpoints, StoredCheckpoints):
            sink = StoreSink(part.checkpoints.storage.child(f"{NAME}.zarr"))
        else:
            sink = ArraySink({NAME: np.empty(elevation.shape, elevation.dtype)})
        self._variable = filled
        self.filling = QuadtreePass(
            WaterLevel(
                problem.nodata,
                8,
                problem.backend,
                "fill-depressions",
                (filled,),
                nodata_drains=True,
            ),
            rasters,
            replace(part, sink=sink),
        )
        self._directions: Frontier | None = None

    @property
    def directions(self) -> Frontier:
        """The second stage: flow directions on the surface the first stage wrote."""
        if self._directions is None:
            surface = written_raster(self.filling.context.sink, self._variable)
            context = join_tiles(self._context)
            self._directions = Frontier(self._problem, (surface,), context)
        return self._directions

    def run(self, client: Client | None, handle: Any, cancelled: Event) -> dict[str, Any]:
        """Run both stages; return the attributes of the result."""
        context = self.filling.context
        if isinstance(context.sink, StoreSink):
            side = context.quadtree.tile
            layout = Layout(side, side << context.shard_level)
            _make_room(context.sink.storage, context.quadtree.shape, layout, self._variable)
        self.filling.run(client, (handle, "filling"), cancelled)
        return self.directions.run(client, (handle, "directions"), cancelled)

    def table(self) -> ResultTable:
        """Return no columns: the result has no table."""
        return {}

    def statistics(self) -> dict[str, int]:
        """Return the statistics of the second stage, which resolves flats."""
        return self.directions.statistics()

    def progress(self) -> Progress:
        """Return the progress of the stage that is running."""
        return (self._directions or self.filling).progress()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_directions": None}


def _make_room(
    storage: Storage, shape: tuple[int, int], layout: Layout, variable: Variable
) -> None:
    """Create the empty store of the filled surface, unless an earlier session has."""
    try:
        read_metadata(storage, unfinished=True)
    except (DamagedStoreError, InputError):
        storage.delete_all()
        create_store(storage, shape, layout, [variable])


def flow_engine(problem: Directions, rasters: tuple[Raster, ...], context: RunContext) -> Frontier:
    """Return the engine of flow directions on a surface whose depressions are kept."""
    return Frontier(problem, rasters, join_tiles(context))
