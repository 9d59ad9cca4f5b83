"""Distances from sources of several strengths: one run for each, of which the least is taken.

A source that wins a cell need not win the cells beyond it, where another whose costs grow more
slowly may. So each strength has a run of its own. After each its rasters are merged with those of
the runs before it, so that no more than three sets of rasters are kept in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from orograph.distance.strengths.attributes import COSTS_ADD_UP, SOURCE_RUNS
from orograph.distance.strengths.growth import Growth
from orograph.distance.strengths.least import LeastOfRuns
from orograph.engines.stages import Stage, StagedProblem, Stages
from orograph.run.problem import on_backend
from orograph.run.run import ResultTable
from orograph.tiles.errors import InputError
from orograph.tiles.store.create import Variable


@dataclass(frozen=True)
class StrongSources(StagedProblem):
    """Distances from sources of several strengths."""

    problems: tuple[Any, ...]
    """Distances, or distances and allocation, from the sources of each strength."""
    growths: tuple[Growth, ...]
    """Growth of the costs of each run along paths."""
    wanted: tuple[str, ...]
    """Names of the outputs beside the costs; the runs may have more."""
    arguments: Mapping[str, Any]
    """Dataset attributes that the arguments determine."""
    table: Mapping[str, Any] = field(default_factory=dict)
    """Table of links, the same in every run, by column."""
    backend: str = "numba"

    name = "cost-distance"
    sets_in_memory = 3  # the run, the least of those before it, and both merged

    @property
    def runs(self) -> int:
        """Number of runs in turn: one for each strength."""
        return len(self.problems)

    @property
    def leading(self) -> Any:
        """The problem of the first run, which differs from the others in its sources alone."""
        return self.problems[0]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the input rasters, which all runs read."""
        inputs: tuple[str, ...] = self.leading.inputs
        return inputs

    @property
    def known_attributes(self) -> dict[str, Any]:
        """Dataset attributes that are known before the run."""
        known = {**self.arguments, SOURCE_RUNS: len(self.problems)}
        # `corridor` refuses such results: costs of two paths are no longer that of both together.
        if not all(growth.multiplier == 1 and growth.rate == 0 for growth in self.growths):
            known[COSTS_ADD_UP] = "no"
        return known

    @property
    def written(self) -> tuple[Variable, ...]:
        """The rasters of each run."""
        written: tuple[Variable, ...] = self.problems[0].outputs
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

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels of the first run, which are those of all."""
        on_backend(self.problems[0], self.backend).compile_kernels(dtypes, several)

    def stages(self) -> tuple[Stage, ...]:
        """Return each run, and after each the merge with what was found before."""
        stages: list[Stage] = []
        before, written = "", self.written
        for number, (problem, growth) in enumerate(zip(self.problems, self.growths, strict=True)):
            own, last = f"run-{number}-", number == len(self.problems) - 1
            run = on_backend(problem, self.backend)
            stages.append(Stage(run, self.inputs, f"run-{number}", between=True, prefix=own))
            sets: list[tuple[str, Growth | None]] = [(own, growth)]
            if before:
                # What earlier runs left has grown already.
                sets.insert(0, (before, None))
            outputs = self.outputs if last else written
            least = LeastOfRuns(written, tuple(growth for _, growth in sets), outputs)
            reads = tuple(prefix + v.name for prefix, _ in sets for v in written)
            before = f"least-{number}-"
            # The last merge writes the result; those before write rasters that the next one reads.
            name = "result" if last else f"least-{number}"
            stages.append(Stage(least, reads, name, between=not last, prefix=before))
        return tuple(stages)

    def attributes_of(self, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the numbers of cells, of which those of merges are the reached ones alone.

        Raises
        ------
        InputError
            If no run has a source, or all begin above their maximum.
        """
        *runs, last = found
        if not any(run.get("reached_cells", 0) for run in runs[::2]):
            raise InputError(
                "sources: none is on a passable cell at an initial cost within its maximum; check "
                "the values of their raster, nodata, source_values and source_cost"
            )
        attributes = runs[-1]
        passable = attributes["reached_cells"] + attributes["unreached_cells"]
        unreached = passable - last["reached_cells"]
        return {**attributes, **last, "unreached_cells": unreached, **self.known_attributes}

    def table_of(self, stages: Stages) -> ResultTable:
        """Return the table of links."""
        return self.table
