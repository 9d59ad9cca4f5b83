"""Stages of runs on an elevation: it is breached or filled, directions follow, then what flows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from orograph.arguments.routing import RoutingSpec
from orograph.engines.stages import Stage, StagedProblem
from orograph.flow.accumulation import Accumulation
from orograph.flow.angles import Angles
from orograph.flow.breach.breach_depressions import DEFAULT_LENGTH, check_limits
from orograph.flow.breach.trenches import Trenches
from orograph.flow.directions import Directions, HopsFromHigher, reciprocals_of
from orograph.flow.given_streams import BURNED, STREAMS, BurnedStreams, GivenStreams
from orograph.flow.split import SplitAccumulation
from orograph.run.problem import on_backend
from orograph.terrain.epsilon_fill import EpsilonFill
from orograph.terrain.water import Outlets, WaterLevel
from orograph.tiles.arguments import refuse_arguments
from orograph.tiles.grid.lengths import step_lengths
from orograph.tiles.raster.raster import Raster
from orograph.tiles.store.create import Variable

ELEVATION, FILLED, WEIGHTS = "elevation", "filled", "weights"


@dataclass(frozen=True)
class Routing:
    """The way directions are found on an elevation: over which surface, and over flats."""

    directions: Directions
    trenches: Trenches | None
    """Trenches that are dug before directions are found."""
    fill: bool
    dtype: np.dtype[Any]
    """Dtype of the elevation."""
    marked: tuple[str, ...] = ()
    """Names of the rasters that mark where water leaves."""
    burned: BurnedStreams | None = None
    """Streams that are lowered before anything else."""

    @classmethod
    def on(
        cls,
        elevation: Raster,
        given: RoutingSpec,
        codes: str,
        wraps: bool,
        outlets: Outlets | None,
        marked: Sequence[str],
        streams: GivenStreams,
    ) -> Routing:
        """Return how directions are found, by keywords of which some are checked here."""
        limits = check_limits(
            DEFAULT_LENGTH if given.max_length is None else given.max_length,
            math.inf if given.max_depth is None else given.max_depth,
        )
        breaches = given.depressions == "breach"
        if not breaches:
            refuse_arguments(
                f"depressions={given.depressions!r}",
                max_length=given.max_length is not None,
                max_depth=given.max_depth is not None,
            )
        place = elevation.georeference
        reciprocals = reciprocals_of(
            step_lengths(place, elevation.shape, given.cell_size, slopes_only=True, wraps=wraps)
        )
        directions = Directions(
            *(elevation.shape, elevation.nodata, reciprocals, codes),
            gradients=given.flats == "gradient",
            orientation=place.orientation,
            connectivity=given.connectivity,
            outlets=outlets,
            fixed=streams.fixed,
        )
        trenches = None
        if breaches:
            refuse_arguments("connectivity=4", depressions=given.connectivity == 4)
            trenches = Trenches(
                elevation.nodata, *limits, place.orientation, elevation.shape, outlets
            )
        # After trenches are dug, the depressions that no trench within the limits drains are
        # filled.
        fill, dtype = given.depressions != "keep", elevation.dtype
        return cls(directions, trenches, fill, dtype, tuple(marked), streams.burned)

    @property
    def surface(self) -> str:
        """Name of the raster on which directions are found."""
        if self.fill:
            return FILLED
        dug = self.trenches or self.burned
        return ELEVATION if dug is None else dug.outputs[0].name

    @property
    def nodata(self) -> float | int | None:
        """The value of cells without a height on that surface."""
        # one that was dug has NaN there, and may have heights that were nodata
        dug = self.trenches or self.burned
        return self.directions.nodata if dug is None else np.nan

    def _filling(self, filled: Variable, backend: str) -> EpsilonFill | WaterLevel:
        """Return the problem that fills depressions."""
        connectivity, outlets = self.directions.connectivity, self.directions.outlets
        if self.directions.fixed is not None:
            # Water that has come to a line leaves it at its end alone. So the surface falls along
            # lines, and by a hair where it would be level.
            return EpsilonFill(
                *(self.directions.shape, self.nodata, np.dtype(filled.dtype), connectivity, 0.0),
                outlets,
                (filled,),
                fixed=self.directions.fixed,
            )
        # Depressions spill over the neighbours to which water may flow.
        level = WaterLevel(
            *(self.nodata, connectivity, "fill-depressions", (filled,)),
            nodata_drains=True,
            backend=backend,
        )
        if outlets is None:
            return level
        return replace(
            level,
            points=outlets.points,
            marked=outlets.marked,
            nodata_drains=not outlets.closed,
        )

    def stages(self, backend: str) -> list[Stage]:
        """Return the stages that find directions, the last of which writes them."""
        stages: list[Stage] = []
        made, dtype = ELEVATION, self.dtype
        reads: tuple[str, ...]
        if self.burned is not None:
            reads = (made,) if self.burned.marks is None else (made, STREAMS)
            made, dtype = BURNED, self.burned.outputs[0].dtype
            stages.append(Stage(self.burned, reads, made, between=True))
        if self.trenches is not None:
            (breached,) = self.trenches.outputs
            trenches = self.trenches
            if self.burned is not None:
                trenches = replace(trenches, nodata=np.nan)
            reads = (made, *self.marked)
            stages.append(Stage(trenches, reads, breached.name, between=True))
            made, dtype = breached.name, breached.dtype
        problem = replace(self.directions, nodata=self.nodata, backend=backend)
        if self.fill:
            filled = Variable(FILLED, dtype, self.nodata)
            stages.append(
                Stage(self._filling(filled, backend), (made, *self.marked), FILLED, between=True)
            )
        reads = (self.surface, *self.marked)
        if problem.gradients:
            # Hops from higher ground need all that directions need.
            fields = {f.name: getattr(problem, f.name) for f in dataclasses.fields(problem)}
            hops = HopsFromHigher(**fields)
            (away,) = hops.outputs
            stages.append(Stage(hops, reads, away.name, between=True))
            reads = self.surface, away.name, *self.marked
        stages.append(Stage(problem, reads))
        return stages


@dataclass(frozen=True)
class FlowOfHeights(StagedProblem):
    """Directions of flow on an elevation, and what follows from them, in stages."""

    routing: Routing
    flow: Directions | Angles | Accumulation | SplitAccumulation
    """Problem of the last stage: the directions themselves, or what reads them."""
    weighted: bool = False
    """Whether the last stage reads a raster of weights."""
    backend: str = "numba"

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the rasters of the run."""
        weights = (WEIGHTS,) if self.weighted else ()
        burned = self.routing.burned
        streams = (STREAMS,) if burned is not None and burned.marks is not None else ()
        return (ELEVATION, *weights, *self.routing.marked, *streams)

    @property
    def name(self) -> str:
        """Prefix of the names of tasks."""
        return self.flow.name

    @property
    def leading(self) -> Directions | Angles | Accumulation | SplitAccumulation:
        """The problem of the last stage."""
        return self.flow

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Rasters of the last stage."""
        return self.flow.outputs

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages that find directions, and the one that follows them."""
        found = self.routing.stages(self.backend)
        if isinstance(self.flow, Directions):
            return tuple(found)
        (direction,) = self.routing.directions.outputs
        found[-1] = replace(found[-1], name=direction.name, between=True)
        flow = on_backend(self.flow, self.backend)
        reads = [direction.name, *([WEIGHTS] if self.weighted else [])]
        # angles, and water that splits, depend on the heights of the surface too
        if not isinstance(flow, Accumulation):
            flow = replace(flow, nodata=self.routing.nodata)
            reads.insert(0, self.routing.surface)
        return *found, Stage(flow, tuple(reads))
