"""Make the jobs of the terrain operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from orograph.engines.quadtree_pass import QuadtreePass, join_on_gpus
from orograph.execution.options import RunSpec
from orograph.kernels.terrain import basins, merge_tree, order
from orograph.operations.job import RasterJob, raster_job, units_of
from orograph.tiles.raster.raster import Raster

if TYPE_CHECKING:
    pass


def compile_kernels(dtype: np.dtype[Any]) -> None:
    """Compile the merge tree kernels for heights of this dtype, or load them from the cache."""
    basins.compile_kernels(dtype)
    merge_tree.compile_kernels()
    order.compile_kernels()


def terrain_job(
    problem: Any,
    rasters: tuple[Raster, ...],
    parameters: Mapping[str, Any],
    spec: RunSpec,
    compile_for: Callable[[np.dtype[Any]], None] = compile_kernels,
    *,
    heights: Sequence[str],
    notes: Mapping[str, Any] | None = None,
) -> RasterJob:
    """Return the job of a terrain problem, to be solved by the quadtree sweep.

    ``parameters`` are what decides the result beside the rasters, their nodata and neighbours.
    ``compile_for`` compiles what tiles of a dtype need. ``heights`` are the output rasters and
    columns that have the units of the elevation. ``notes`` as of `raster_job`.
    """
    decisive = {
        "connectivity": problem.connectivity,
        "nodata": repr(problem.nodata),
        **parameters,
    }
    warm_up = partial(compile_for, rasters[0].dtype)
    larger = join_on_gpus if spec.tile is None else None
    units = units_of(rasters[0], *heights)
    return raster_job(
        *(QuadtreePass, problem, rasters, decisive, warm_up, spec),
        join_tiles=larger,
        units=units,
        notes=notes,
    )
