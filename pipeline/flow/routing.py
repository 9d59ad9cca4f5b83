"""Stages of runs on an elevation: it is breached or filled, directions follow, then what flows."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from orograph.breach.trenches import Trenches
from orograph.engines import quadtree_pass
from orograph.engines.frontier.driver import Frontier
from orograph.engines.frontier.field import join_tiles
from orograph.engines.map_overlap import MapOverlap
from orograph.engines.quadtree_pass import QuadtreePass
from orograph.engines.stages import Stage, Stages
from orograph.execution.context import RunContext
from orograph.flow.accumulation import Accumulation
from orograph.flow.directions import Directions, HopsFromHigher
from orograph.flow.reading import FlowSweep
from orograph.flow.split import SplitAccumulation
from orograph.kernels.flow.breach import compile_kernels as compile_trenches
from orograph.kernels.flow.directions import compile_kernels
from orograph.terrain.run import compile_kernels as compile_filling
from orograph.terrain.water import WaterLevel
from orograph.tiles.raster.raster import Raster
from orograph.tiles.store.create import Variable

ELEVATION, FILLED, WEIGHTS = "elevation", "filled", "weights"


def surface_then_flow(
    trenches: Trenches | None,
    fill: bool,
    problem: Directions,
    rasters: tuple[Raster, ...],
    context: RunContext,
) -> Stages:
    """Return the engine of flow directions on a surface that is made first.

    ``trenches`` are dug if there are any; then depressions are filled, if ``fill`` says so; and
    flats get gradients, if the problem needs these.
    """
    (elevation,) = rasters
    stages, surface, dtype = [], ELEVATION, elevation.dtype
    if trenches is not None:
        (breached,) = trenches.outputs
        stages.append(Stage((surface,), partial(MapOverlap, trenches), breached))
        surface, dtype = breached.name, breached.dtype
        # it has NaN where there is no cell, and may have heights that were nodata
        problem = replace(problem, nodata=np.nan)
    if fill:
        stages.append(filling(problem, dtype, surface))
        surface = FILLED
    reads: tuple[str, ...] = (surface,)
    if problem.gradients:
        fields = {f.name: getattr(problem, f.name) for f in dataclasses.fields(problem)}
        hops = HopsFromHigher(**fields)
        (away,) = hops.outputs
        stages.append(Stage(reads, partial(flow_engine, hops), away))
        reads = surface, away.name
    stages.append(Stage(reads, partial(flow_engine, problem)))
    return Stages(stages, {ELEVATION: elevation}, context)


def routing(problem: Directions, elevation: Raster) -> tuple[Stage, Stage]:
    """Return the stages that write the filled surface and the directions on it."""
    (direction,) = problem.outputs
    flow = Stage((FILLED,), partial(flow_engine, problem), direction)
    return filling(problem, elevation.dtype), flow


def filling(problem: Directions, dtype: np.dtype[Any], surface: str = ELEVATION) -> Stage:
    """Return the stage that writes the filled surface for a problem of directions."""
    filled = Variable(FILLED, dtype, problem.nodata)
    level = WaterLevel(
        problem.nodata, 8, problem.backend, "fill-depressions", (filled,), nodata_drains=True
    )
    return Stage((surface,), partial(QuadtreePass, level), filled)


def flow_engine(
    problem: Directions | SplitAccumulation, rasters: tuple[Raster, ...], context: RunContext
) -> Frontier:
    """Return the engine of flow directions, or of water that splits, on a surface as it is.

    Tiles are joined as for CPUs: on a GPU steps down are found, but flats are crossed on the host.
    """
    return Frontier(problem, rasters, join_tiles(replace(context, gpus=0)))


def flow_then_accumulate(
    directions: Directions,
    join: bool,
    problem: Accumulation | SplitAccumulation,
    rasters: tuple[Raster, ...],
    context: RunContext,
) -> Stages:
    """Return the engine that accumulates along the directions of an elevation.

    ``rasters`` are the elevation and, if it has any, the weights; ``join`` tells whether the last
    stage may take larger tiles than the store's.
    """
    stages = routing(replace(directions, backend=problem.backend), rasters[0])
    inputs = dict(zip((ELEVATION, WEIGHTS), rasters, strict=False))
    reads = (stages[-1].name, *(name for name in inputs if name != ELEVATION))
    if isinstance(problem, SplitAccumulation):
        last = Stage((FILLED, *reads), partial(flow_engine, problem))
    else:
        last = Stage(reads, partial(_accumulate, problem, join))
    return Stages((*stages, last), inputs, context)


def _accumulate(
    problem: Accumulation, join: bool, rasters: tuple[Raster, ...], context: RunContext
) -> FlowSweep:
    """Return the engine of the last stage."""
    return FlowSweep(problem, rasters, quadtree_pass.join_tiles(context) if join else context)


def compile_routing(dtype: np.dtype[Any]) -> None:
    """Compile the kernels from an elevation of this dtype to its directions."""
    compile_filling(dtype)
    compile_kernels(dtype)


def compile_breaching() -> None:
    """Compile the kernels from an elevation to the directions on its breached surface."""
    compile_trenches()
    compile_routing(np.dtype(np.float64))
