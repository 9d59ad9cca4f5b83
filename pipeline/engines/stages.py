"""Run the engines of several problems in turn, each on rasters that those before it wrote.

The rasters between two stages are kept in memory, or beside the checkpoints until the result is
finished. All stages belong to one run: it is planned, cancelled and resumed as a whole.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from orograph.run.checkpoints import StoredCheckpoints
from orograph.run.context import RunContext, written_raster
from orograph.run.feedback import Progress
from orograph.run.problem import ProblemFacts
from orograph.run.run import Engine, ResultTable
from orograph.tiles.errors import DamagedStoreError, InputError
from orograph.tiles.format.metadata import read_metadata
from orograph.tiles.raster.raster import Raster
from orograph.tiles.storage import Storage
from orograph.tiles.store.create import Layout, Variable, create_store
from orograph.tiles.store.sink import ArraySink, Sink, StoreSink

if TYPE_CHECKING:
    from distributed import Client

    from orograph.run.shared_data import Handle

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """A problem that a run solves after others, or before them."""

    problem: Any
    reads: tuple[str, ...]
    """Names of the stage's rasters: inputs of the run, or rasters that earlier stages write."""
    name: str = ""
    """Name of its checkpoints and its task names; empty for one stage, which has the run's own."""
    between: bool = False
    """Whether the stage writes only for later stages; otherwise it writes the result."""
    prefix: str = ""
    """Prefix of the stage's rasters for later stages, where other stages write the same names."""

    @property
    def written(self) -> dict[str, Variable]:
        """The rasters that it writes, by the names by which later stages read them."""
        return {self.prefix + variable.name: variable for variable in self.problem.outputs}


class StagedProblem(ProblemFacts, ABC):
    """Base class of problems that are solved in stages."""

    formula = "stages"
    sets_in_memory: ClassVar[int] = 0
    """Number of sets of rasters between stages that a run keeps in memory, if that is where."""
    main_stage: ClassVar[int] = -1
    """Number of the stage whose attributes and statistics are those of the run."""

    table_stage: ClassVar[int] = -1
    """Number of the stage from which the table of the run is made."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """Names of the rasters of the run, by which stages read them."""

    @property
    @abstractmethod
    def leading(self) -> Any:
        """Problem by whose facts the backend is chosen and the grid is cut."""

    @property
    def stage(self) -> str:
        """Stage of kernels by which the backend is chosen."""
        return str(self.leading.stage)

    @property
    def lacking(self) -> str:
        """Part of the leading problem that has no CUDA kernel; empty: none."""
        return str(self.leading.lacking)

    @property
    def planned_on_gpus(self) -> bool:  # type: ignore[override]
        """Whether what the leading problem takes of a GPU is known."""
        return bool(self.leading.planned_on_gpus)

    @property
    def may_wrap(self) -> bool:  # type: ignore[override]
        """Whether all stages go around."""
        return all(stage.problem.may_wrap for stage in self.stages())

    @property
    def runs(self) -> int:
        """Number of runs in turn for a plan: one, unless sources differ in strength."""
        return 1

    @property
    def least_tile(self) -> int:
        """Cells a side that a tile must have."""
        return int(self.leading.least_tile)

    @abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """Return the stages in turn."""

    def attributes_of(self, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the attributes of the result, given those of each stage."""
        return found[self.main_stage]

    def table_of(self, stages: Stages) -> ResultTable:
        """Return the table of the result."""
        return stages[self.table_stage % len(stages)].table()

    def engine(self, rasters: tuple[Raster, ...], context: RunContext) -> Stages:
        """Return the engine of all stages."""
        return Stages(self, dict(zip(self.inputs, rasters, strict=False)), context)

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels of all stages."""
        known = dict(zip(self.inputs, dtypes, strict=False))
        for stage in self.stages():
            stage.problem.compile_kernels([known[name] for name in stage.reads], several)
            known |= {name: np.dtype(v.dtype) for name, v in stage.written.items()}


class Stages:
    """Engine that runs stages in turn; ``stages[number]`` is the engine of one.

    Workers of a cluster get a copy of it, in which they make the engines whose tasks they do.
    """

    def __init__(
        self, problem: StagedProblem, inputs: Mapping[str, Raster], context: RunContext
    ) -> None:
        self.problem, self.inputs, self._context = problem, inputs, context
        self._stages = problem.stages()
        self._contexts: dict[str, RunContext] = {}
        self._engines: dict[int, Engine] = {}
        self._at_work = 0
        self._statistics: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._stages)

    def __getitem__(self, number: int) -> Engine:
        if number not in self._engines:
            stage = self._stages[number]
            rasters = tuple(self._raster(name) for name in stage.reads)
            self._engines[number] = stage.problem.engine(rasters, self._context_of(stage))
        return self._engines[number]

    def _raster(self, name: str) -> Raster:
        """Return an input, or the raster that a stage has written."""
        for stage in self._stages:
            if name in stage.written:
                return written_raster(self._context_of(stage).sink, stage.written[name])
        return self.inputs[name]

    def _context_of(self, stage: Stage) -> RunContext:
        """Return the context of a stage, with the rasters for later stages as its output."""
        if not stage.name:
            return self._context
        if stage.name not in self._contexts:
            part = self._context.part(stage.name)
            if stage.between:
                part = replace(part, sink=sink_between(stage.name, stage.problem.outputs, part))
            self._contexts[stage.name] = part
        return self._contexts[stage.name]

    def run(self, client: Client | None, handle: Handle, cancelled: Event) -> dict[str, Any]:
        """Run all stages; return the attributes of the result, as the problem tells them."""
        found = []
        main_stage = self.problem.main_stage % len(self)
        for number, stage in enumerate(self._stages):
            context = self._context_of(stage)
            if stage.between and isinstance(context.sink, StoreSink):
                make_room(context.sink.storage, context, stage.problem.outputs)
            engine = self[number]
            self._at_work = number
            LOG.info("stage %s of %s begins: %s", number + 1, len(self), stage.problem.name)
            found.append(engine.run(client, (handle, number), cancelled))
            if number <= main_stage:
                self._statistics = engine.statistics()
            self._let_go(number)
        return self.problem.attributes_of(found)

    def _let_go(self, number: int) -> None:
        """Forget what no stage after this one needs, above all rasters in memory."""
        kept = self.problem.table_stage % len(self)
        if number + 1 < len(self) and number != kept:
            self._engines.pop(number)
        needed = {name for stage in self._stages[number + 1 :] for name in stage.reads}
        for other, stage in enumerate(self._stages):
            if not needed.intersection(stage.written) and other != kept:
                self._contexts.pop(stage.name, None)

    def table(self) -> ResultTable:
        """Return the table of the result."""
        return self.problem.table_of(self)

    def statistics(self) -> dict[str, int]:
        """Return the statistics of the stage at work, or of the one that tells those of the run."""
        at_work = self._engines.get(self._at_work)
        if at_work is None or self._at_work > self.problem.main_stage % len(self):
            return self._statistics
        return at_work.statistics()

    def progress(self) -> Progress:
        """Return the progress of the stage at work."""
        at_work = self._engines.get(self._at_work)
        return Progress(0, 0) if at_work is None else at_work.progress()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engines": {}}


def sink_between(name: str, variables: Sequence[Variable], context: RunContext) -> Sink:
    """Return the output of a stage that later ones read: in memory, or beside its checkpoints."""
    if isinstance(context.checkpoints, StoredCheckpoints):
        return StoreSink(context.checkpoints.storage.child(f"{name}.zarr"))
    shape = context.quadtree.shape
    return ArraySink({v.name: np.empty(shape, v.dtype) for v in variables})


def make_room(storage: Storage, context: RunContext, variables: Sequence[Variable]) -> None:
    """Create the empty store of a stage's rasters, unless an earlier session has."""
    try:
        read_metadata(storage, unfinished=True)
    except (DamagedStoreError, InputError):
        storage.delete_all()
        side = context.quadtree.tile
        layout = Layout(side, side << context.shard_level)
        create_store(storage, context.quadtree.shape, layout, variables)
