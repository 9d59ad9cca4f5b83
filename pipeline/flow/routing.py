"""Stages of runs on an elevation: it is breached or filled, directions follow, then what flows."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from orograph.breach.breach_depressions import DEFAULT_LENGTH, check_limits
from orograph.breach.trenches import Trenches
from orograph.engines import quadtree_pass
from orograph.engines.frontier.driver import Frontier
from orograph.engines.frontier.field import join_tiles
from orograph.engines.map_overlap import MapOverlap
from orograph.engines.quadtree_pass import QuadtreePass
from orograph.engines.stages import Stage, Stages
from orograph.execution.context import RunContext
from orograph.flow.accumulation import Accumulation
from orograph.flow.angles import Angles
from orograph.flow.directions import Directions, HopsFromHigher, reciprocals_of
from orograph.flow.reading import FlowSweep
from orograph.flow.split import SplitAccumulation
from orograph.kernels.flow.breach import compile_kernels as compile_trenches
from orograph.kernels.flow.directions import compile_kernels as compile_directions
from orograph.terrain.run import compile_kernels as compile_filling
from orograph.terrain.water import WaterLevel
from orograph.tiles.arguments import check_choice, refuse_arguments, shown
from orograph.tiles.errors import InputError
from orograph.tiles.grid.lengths import step_lengths
from orograph.tiles.grid.orientation import Orientation
from orograph.tiles.raster.raster import Raster
from orograph.tiles.store.create import Variable

ELEVATION, FILLED, WEIGHTS = "elevation", "filled", "weights"
DEPRESSIONS, FLATS = ("fill", "breach", "keep"), ("nearest", "gradient")


def of_heights(method: str | None, **arguments: object) -> dict[str, Any]:
    """Return the arguments that are not None; refuse them where there is no ``method``."""
    given = {name: value for name, value in arguments.items() if value is not None}
    if method is None:
        for name, value in given.items():
            raise InputError(
                f"{name}: {shown(value)}; only heights need it: pass it with method='d8'"
            )
    return given


@dataclass(frozen=True)
class Routing:
    """The way directions are found on an elevation: over which surface, and over flats."""

    directions: Directions
    trenches: Trenches | None
    """Trenches that are dug before directions are found."""
    fill: bool

    @classmethod
    def on(
        cls,
        elevation: Raster,
        *,
        depressions: str = "fill",
        max_length: int | None = None,
        max_depth: float | None = None,
        flats: str = "nearest",
        codes: str = "taudem",
        cell_size: float | tuple[float, float] | None = None,
        backend: str = "numba",
    ) -> Routing:
        """Return how directions are found, with all arguments checked."""
        check_choice("depressions", depressions, DEPRESSIONS)
        limits = check_limits(
            DEFAULT_LENGTH if max_length is None else max_length,
            math.inf if max_depth is None else max_depth,
        )
        if depressions != "breach":
            refuse_arguments(
                f"depressions={depressions!r}",
                max_length=max_length is not None,
                max_depth=max_depth is not None,
            )
        check_choice("flats", flats, FLATS)
        place = elevation.georeference
        reciprocals = reciprocals_of(
            step_lengths(place, elevation.shape, cell_size, slopes_only=True)
        )
        directions = Directions(
            *(elevation.shape, elevation.nodata, reciprocals, codes, backend),
            *(flats == "gradient", place.orientation),
        )
        trenches = None
        if depressions == "breach":
            trenches = Trenches(elevation.nodata, *limits, place.orientation, elevation.shape)
        # After trenches are dug, the depressions that no trench within the limits drains are
        # filled.
        return cls(directions, trenches, depressions != "keep")

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters that decide the directions beside the heights, in JSON types."""
        directions = self.directions
        return {
            "nodata": repr(directions.nodata),
            "lengths": repr(directions.reciprocals.tolist()),
            "fill": self.fill,
            "gradients": directions.gradients,
            **({} if self.trenches is None else self.trenches.parameters),
        }

    @property
    def surface(self) -> str:
        """Name of the raster on which directions are found."""
        if self.fill:
            return FILLED
        return ELEVATION if self.trenches is None else self.trenches.outputs[0].name

    @property
    def nodata(self) -> float | int | None:
        """The value of cells without a height on that surface."""
        # a breached one has NaN there, and may have heights that were nodata
        return self.directions.nodata if self.trenches is None else np.nan

    def stages(self, elevation: Raster, backend: str, join: bool, *, last: bool) -> list[Stage]:
        """Return the stages that find directions; whether theirs is the last of the run.

        ``backend`` is the one that was chosen when workers were known; ``join`` tells whether the
        surface may be filled over larger tiles than the store's.
        """
        stages, made, dtype = [], ELEVATION, elevation.dtype
        if self.trenches is not None:
            (breached,) = self.trenches.outputs
            stages.append(Stage((made,), partial(MapOverlap, self.trenches), breached))
            made, dtype = breached.name, breached.dtype
        problem = replace(self.directions, nodata=self.nodata, backend=backend)
        if self.fill:
            filled = Variable(FILLED, dtype, self.nodata)
            # D8 steps lead to eight neighbours, so depressions spill over eight, too.
            level = WaterLevel(
                *(self.nodata, 8, problem.backend, "fill-depressions", (filled,)),
                nodata_drains=True,
            )
            stages.append(Stage((made,), partial(_fill, level, join), filled))
        reads: tuple[str, ...] = (self.surface,)
        if problem.gradients:
            # Hops from higher ground need all that directions need.
            fields = {f.name: getattr(problem, f.name) for f in dataclasses.fields(problem)}
            hops = HopsFromHigher(**fields)
            (away,) = hops.outputs
            stages.append(Stage(reads, partial(flow_engine, hops), away))
            reads = *reads, away.name
        (direction,) = problem.outputs
        stages.append(Stage(reads, partial(flow_engine, problem), None if last else direction))
        return stages

    def compile_kernels(self, dtype: np.dtype[Any]) -> None:
        """Compile the kernels from an elevation of this dtype to its directions."""
        if self.trenches is not None:
            compile_trenches()
            dtype = np.dtype(np.float64)
        if self.fill:
            compile_filling(dtype)
        compile_directions(dtype)


def find_directions(
    routing: Routing,
    join: bool,
    problem: Directions | Angles,
    rasters: tuple[Raster, ...],
    context: RunContext,
) -> Stages:
    """Return the engine of directions, or of the angles of those that split water in two.

    ``join`` is as in `Routing.stages`.
    """
    (elevation,) = rasters
    # Angles are a further stage, which reads the surface and its D8 steps.
    stages = routing.stages(elevation, problem.backend, join, last=isinstance(problem, Directions))
    if isinstance(problem, Angles):
        problem = replace(problem, nodata=routing.nodata)
        stages.append(Stage((routing.surface, stages[-1].name), partial(MapOverlap, problem)))
    return Stages(stages, {ELEVATION: elevation}, context)


def flow_engine(
    problem: Directions | SplitAccumulation, rasters: tuple[Raster, ...], context: RunContext
) -> Frontier:
    """Return the engine of flow directions, or of water that splits, on a surface as it is.

    Tiles are joined as for CPUs: on a GPU steps down are found, but flats are crossed on the host.
    """
    return Frontier(problem, rasters, join_tiles(replace(context, gpus=0)))


def flow_then_accumulate(
    routing: Routing,
    join: bool,
    problem: Accumulation | SplitAccumulation,
    rasters: tuple[Raster, ...],
    context: RunContext,
) -> Stages:
    """Return the engine that accumulates along the directions of an elevation.

    ``rasters`` are the elevation and, if it has any, the weights; ``join`` tells whether stages may
    take larger tiles than the store's.
    """
    stages = routing.stages(rasters[0], problem.backend, join, last=False)
    inputs = dict(zip((ELEVATION, WEIGHTS), rasters, strict=False))
    # Of the inputs only weights are read again; the elevation has become directions.
    reads = (stages[-1].name, *(name for name in inputs if name != ELEVATION))
    if isinstance(problem, SplitAccumulation):
        problem = replace(problem, nodata=routing.nodata)
        last = Stage((routing.surface, *reads), partial(flow_engine, problem))
    else:
        orientation = routing.directions.orientation
        last = Stage(reads, partial(_accumulate, problem, join, orientation))
    return Stages((*stages, last), inputs, context)


def _fill(
    problem: WaterLevel, join: bool, rasters: tuple[Raster, ...], context: RunContext
) -> QuadtreePass:
    """Return the engine of the stage that fills the surface."""
    return QuadtreePass(problem, rasters, quadtree_pass.join_on_gpus(context) if join else context)


def _accumulate(
    problem: Accumulation,
    join: bool,
    orientation: Orientation,
    rasters: tuple[Raster, ...],
    context: RunContext,
) -> FlowSweep:
    """Return the engine of the last stage."""
    context = quadtree_pass.join_tiles(context) if join else context
    return FlowSweep(problem, rasters, context, orientation=orientation)
