"""Run several engines in turn, each on rasters that those before it wrote.

The rasters between two stages are kept in memory, or beside the checkpoints until the result is
finished. All stages belong to one run: it is planned, cancelled and resumed as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np

from orograph.execution.checkpoints import StoredCheckpoints
from orograph.execution.context import RunContext, written_raster
from orograph.execution.feedback import Progress
from orograph.execution.run import Engine, ResultTable
from orograph.tiles.errors import DamagedStoreError, InputError
from orograph.tiles.format.metadata import read_metadata
from orograph.tiles.raster.raster import Raster
from orograph.tiles.storage import Storage
from orograph.tiles.store.create import Layout, Variable, create_store
from orograph.tiles.store.sink import ArraySink, Sink, StoreSink

if TYPE_CHECKING:
    from distributed import Client

    from orograph.execution.jobs import Handle

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """An engine that a run uses after others, or before them."""

    reads: tuple[str, ...]
    """Names of the stage's rasters: inputs of the run, or variables that earlier stages write."""
    engine: Callable[[tuple[Raster, ...], RunContext], Engine]
    writes: Variable | None = None
    """Raster that the stage writes for later ones; None for the last, which writes the result."""
    beside: tuple[Variable, ...] = ()
    """Further rasters that the stage writes for later stages."""
    prefix: str = ""
    """Prefix of the stage's rasters for later stages, where other stages write the same names."""

    @property
    def name(self) -> str:
        """The name of the raster it writes, by which its checkpoints go too."""
        return "result" if self.writes is None else self.prefix + self.writes.name

    @property
    def rasters(self) -> tuple[Variable, ...]:
        """The rasters that it writes for later stages."""
        return () if self.writes is None else (self.writes, *self.beside)

    @property
    def named(self) -> dict[str, Variable]:
        """The rasters by the names by which later stages read them."""
        return {self.prefix + variable.name: variable for variable in self.rasters}


class Stages:
    """Engine that runs stages in turn; ``stages[number]`` is the engine of one.

    Workers of a cluster get a copy of it, in which they make the engines whose tasks they do.
    """

    def __init__(
        self, stages: Sequence[Stage], inputs: Mapping[str, Raster], context: RunContext
    ) -> None:
        self._stages, self._inputs, self._context = stages, inputs, context
        self._contexts: dict[str, RunContext] = {}
        self._engines: dict[int, Engine] = {}
        self._at_work = 0

    def __getitem__(self, number: int) -> Engine:
        if number not in self._engines:
            stage = self._stages[number]
            rasters = tuple(self._raster(name) for name in stage.reads)
            self._engines[number] = stage.engine(rasters, self._context_of(stage))
        return self._engines[number]

    def _raster(self, name: str) -> Raster:
        """Return an input, or the raster that a stage has written."""
        for stage in self._stages:
            if name in stage.named:
                return written_raster(self._context_of(stage).sink, stage.named[name])
        return self._inputs[name]

    def _context_of(self, stage: Stage) -> RunContext:
        """Return the context of a stage, with the rasters for later stages as its output."""
        if stage.writes is None:
            return self._context
        if stage.name not in self._contexts:
            part = self._context.part(stage.name)
            sink: Sink
            if isinstance(part.checkpoints, StoredCheckpoints):
                sink = StoreSink(part.checkpoints.storage.child(f"{stage.name}.zarr"))
            else:
                shape = part.quadtree.shape
                sink = ArraySink({v.name: np.empty(shape, v.dtype) for v in stage.rasters})
            self._contexts[stage.name] = replace(part, sink=sink)
        return self._contexts[stage.name]

    def run(self, client: Client | None, handle: Handle, cancelled: Event) -> dict[str, Any]:
        """Run all stages; return the attributes of the result, which the last one knows."""
        attributes: dict[str, Any] = {}
        for number, stage in enumerate(self._stages):
            context = self._context_of(stage)
            if stage.writes is not None and isinstance(context.sink, StoreSink):
                _make_room(context.sink.storage, context, stage.rasters)
            engine = self[number]
            self._at_work = number
            LOG.info("stage %s of %s begins: %s", number + 1, len(self._stages), stage.name)
            attributes = self.attributes_after(
                attributes, engine.run(client, (handle, number), cancelled)
            )
            self._let_go(number)
        return attributes

    def attributes_after(self, known: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes after a stage that found some, given those before it."""
        return found

    def _let_go(self, number: int) -> None:
        """Forget what no stage after this one needs, above all rasters in memory."""
        if number + 1 < len(self._stages):
            self._engines.pop(number)
        needed = {name for stage in self._stages[number + 1 :] for name in stage.reads}
        for stage in self._stages:
            if not needed.intersection(stage.named):
                self._contexts.pop(stage.name, None)

    def table(self) -> ResultTable:
        """Return the table of the last stage."""
        return self[len(self._stages) - 1].table()

    def statistics(self) -> dict[str, int]:
        """Return the statistics of the stage at work."""
        at_work = self._engines.get(self._at_work)
        return {} if at_work is None else at_work.statistics()

    def progress(self) -> Progress:
        """Return the progress of the stage at work."""
        at_work = self._engines.get(self._at_work)
        return Progress(0, 0) if at_work is None else at_work.progress()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engines": {}}


def _make_room(storage: Storage, context: RunContext, variables: Sequence[Variable]) -> None:
    """Create the empty store of a stage's rasters, unless an earlier session has."""
    try:
        read_metadata(storage, unfinished=True)
    except (DamagedStoreError, InputError):
        storage.delete_all()
        side = context.quadtree.tile
        layout = Layout(side, side << context.shard_level)
        create_store(storage, context.quadtree.shape, layout, variables)
