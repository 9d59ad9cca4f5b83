"""Jobs of operations that read flow directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from orograph.engines.quadtree_pass import join_tiles
from orograph.execution.options import RunSpec
from orograph.flow.reading import FlowProblem, FlowSweep, codes_of
from orograph.operations.job import RasterJob, raster_job
from orograph.tiles.raster.raster import Raster, RasterLike, open_raster


def open_directions(
    spec: RunSpec | None, direction: RasterLike, codes: str | None
) -> tuple[Raster, str]:
    """Return a raster of directions and the name of their codes, given or in its attributes.

    ``spec`` is that of a run whose first raster they are, else None.
    """
    choice = {} if spec is None else spec.choice
    raster = open_raster(direction, argument="direction", **choice)
    return raster, codes_of(raster, codes)


def flow_job(
    problem: FlowProblem,
    rasters: tuple[Raster, ...],
    parameters: Mapping[str, Any],
    compile_kernels: Callable[[], None],
    spec: RunSpec,
    engine: type[FlowSweep] = FlowSweep,
    units: Mapping[str, str] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> RasterJob:
    """Return the job of a sweep over directions, in larger tiles where ``spec`` names none.

    ``parameters`` are what beside the codes and nodata values decides the result; ``units`` and
    ``notes`` as of `raster_job`.
    """
    known = {"codes": problem.codes, "nodata": repr([r.nodata for r in rasters])}
    larger = join_tiles if spec.tile is None else None
    whole = {**known, **parameters}
    sweep = partial(engine, orientation=rasters[0].georeference.orientation)
    return raster_job(
        *(sweep, problem, rasters, whole, compile_kernels, spec),
        join_tiles=larger,
        units=units,
        notes=notes,
    )
