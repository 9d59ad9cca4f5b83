"""Run one problem for each strength of sources, and take the least of them as they end.

A source that wins a cell need not win the cells beyond it, where another whose costs grow more
slowly may. So each strength has a run of its own. After each its rasters are merged with those of
the runs before it, so that no more than three sets of rasters are kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

from orograph.engines.stages import Stage, Stages
from orograph.execution.context import RunContext
from orograph.execution.run import Engine, ResultTable
from orograph.operations.job import RasterJob, raster_job
from orograph.source_runs.attributes import COSTS_ADD_UP, SOURCE_RUNS
from orograph.source_runs.growth import Growth
from orograph.source_runs.least import LeastEngine, LeastOfRuns
from orograph.tiles.errors import InputError
from orograph.tiles.raster.raster import Raster
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    from distributed import Client

    from orograph.execution.jobs import Handle


@dataclass(frozen=True)
class OneRun:
    """The run from the sources of one strength, and the growth of its costs."""

    make_engine: Callable[..., Engine]
    problem: Any
    join_tiles: Callable[[RunContext], RunContext] | None
    growth: Growth

    @classmethod
    def of_job(cls, job: RasterJob, growth: Growth) -> OneRun:
        """Return the run of a job, without its rasters, which tasks need not have."""
        return cls(job.make_engine, job.problem, job.join_tiles, growth)

    def engine(self, backend: str, rasters: tuple[Raster, ...], context: RunContext) -> Engine:
        """Return the engine of the run."""
        problem = self.problem
        if problem.backend != backend:
            problem = replace(problem, backend=backend)
        context = context if self.join_tiles is None else self.join_tiles(context)
        return self.make_engine(problem=problem, rasters=rasters, context=context)


@dataclass(frozen=True)
class StrongSources:
    """Distances from sources of several strengths, as a problem of `run_each`."""

    name = "cost-distance"

    runs: tuple[OneRun, ...]
    inputs: tuple[str, ...]
    """Names of the input rasters."""
    wanted: tuple[str, ...]
    """Names of the outputs beside the costs; the runs may have more."""
    known_attributes: Mapping[str, Any]
    """Dataset attributes that the arguments determine, before the run."""
    backend: str
    table: Mapping[str, Any] = field(default_factory=dict)
    """Table of links, the same in every run, by column."""

    @property
    def written(self) -> tuple[Variable, ...]:
        """The rasters of each run."""
        written: tuple[Variable, ...] = self.runs[0].problem.outputs
        return written

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The rasters of the result."""
        costs, *others = self.written
        return (costs, *(variable for variable in others if variable.name in self.wanted))

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table."""
        return tuple(self.table)


class RunsInTurn(Stages):
    """Engine that runs each strength in turn, and merges its result with those before it."""

    def __init__(
        self,
        stages: Sequence[Stage],
        inputs: Mapping[str, Raster],
        context: RunContext,
        known: Mapping[str, Any],
        columns: Mapping[str, Any],
    ) -> None:
        super().__init__(stages, inputs, context)
        self._known, self._columns, self._started = dict(known), columns, False

    def run(self, client: Client | None, handle: Handle, cancelled: Event) -> dict[str, Any]:
        """Run all; raise InputError if none has a source, or all begin above their maximum."""
        attributes = super().run(client, handle, cancelled)
        if not self._started:
            raise InputError(
                "sources: none is on a passable cell at an initial cost within its maximum; check "
                "the values of their raster, nodata, source_values and source_cost"
            )
        return attributes

    def attributes_after(self, known: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
        """Return the numbers of cells: of the last run, or of what is merged."""
        # Statistics of a run, else of a merge, which counts reached cells alone.
        if "unreached_cells" in found:
            self._started |= found["reached_cells"] > 0
        else:
            passable = known["reached_cells"] + known["unreached_cells"]
            found = {**known, **found, "unreached_cells": passable - found["reached_cells"]}
        return {**found, **self._known}

    def table(self) -> ResultTable:
        """Return the table of links."""
        return self._columns


def run_each(
    problem: StrongSources, rasters: tuple[Raster, ...], context: RunContext
) -> RunsInTurn:
    """Return the engine of all runs."""
    written, stages, before = problem.written, [], ""
    cost, *beside = written
    for number, run in enumerate(problem.runs):
        own, last = f"run-{number}-", number == len(problem.runs) - 1
        stages.append(
            Stage(problem.inputs, partial(run.engine, problem.backend), cost, tuple(beside), own)
        )
        sets: list[tuple[str, Growth | None]] = [(own, run.growth)]
        if before:
            # What earlier runs left has grown already.
            sets.insert(0, (before, None))
        outputs = problem.outputs if last else written
        least = LeastOfRuns(written, tuple(growth for _, growth in sets), outputs)
        reads = tuple(prefix + v.name for prefix, _ in sets for v in written)
        before = f"least-{number}-"
        merge = partial(LeastEngine, least)
        # The last merge writes the result; those before write rasters that the next merge reads.
        if last:
            stages.append(Stage(reads, merge))
        else:
            stages.append(Stage(reads, merge, cost, tuple(beside), before))
    inputs = dict(zip(problem.inputs, rasters, strict=True))
    return RunsInTurn(stages, inputs, context, problem.known_attributes, problem.table)


def job_of_runs(
    jobs: Sequence[RasterJob],
    growths: Sequence[Growth],
    inputs: tuple[str, ...],
    wanted: tuple[str, ...],
    problem: Any,
    table: Mapping[str, Any],
) -> RasterJob:
    """Return the job that runs several and takes the least of what accumulates.

    Parameters
    ----------
    jobs, growths
        One of each for each strength.
    inputs
        Names of their rasters, which all of them read.
    wanted
        Names of the outputs.
    problem
        That of the distances, before its sources were divided.
    table
        Of links.
    """
    described = list(zip(jobs, growths, strict=True))
    runs = tuple(OneRun.of_job(job, growth) for job, growth in described)
    known = {**problem.known_attributes, SOURCE_RUNS: len(runs)}
    # `corridor` refuses such results: the costs of two paths are no longer that of both together.
    if not all(growth.multiplier == 1 and growth.rate == 0 for growth in growths):
        known[COSTS_ADD_UP] = "no"
    whole = StrongSources(runs, inputs, wanted, known, problem.backend, table)
    parameters = {
        "runs": [[dict(job.parameters), repr(growth)] for job, growth in described],
        "outputs": list(wanted),
    }
    first = jobs[0]
    return raster_job(
        run_each,
        whole,
        first.rasters,
        parameters,
        first.compile_kernels,
        first.spec,
        problem.halo_width,
        notes=first.notes,
    )
