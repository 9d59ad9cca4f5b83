"""Start distances by the eikonal equation, from checked rasters and sources."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from orograph.arguments.sources import SourcesLike, SourceSpec, parse_sources
from orograph.arguments.steps import DTYPES, StepSpec
from orograph.distance.costs.surface import Surface, check_starts
from orograph.distance.eikonal.problem import Eikonal
from orograph.run.job import raster_job
from orograph.run.options import RunSpec
from orograph.tiles.arguments import as_text, check_choice, check_dtype
from orograph.tiles.errors import InputError
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import ArrayRaster

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job

EIKONAL = "eikonal"


def _refuse(steps: StepSpec, given: SourceSpec, outputs: tuple[str, ...]) -> None:
    """Raise InputError for arguments that distances in the plane do not have."""
    connectivity = check_choice("connectivity", steps.connectivity, (4, 8, 16))
    refused = {
        "connectivity": connectivity != 8 and connectivity,
        "links": steps.links is not None and "a graph",
        "poles": steps.poles is not False and steps.poles,
        "outputs": outputs != ("cost",) and outputs,
        "source_cost": given.source_cost is not None and given.source_cost,
    }
    for name, value in refused.items():
        if value is not False:
            words = value if name == "links" else repr(value)
            raise InputError(
                f"{name}: {words} with cost='eikonal', which is without neighbours, links, back "
                "directions and strengths of sources; leave it out"
            )


def square_side(lengths: npt.NDArray[np.float64]) -> float:
    """Return the side of a grid's cells; raise InputError unless all are the same square."""
    if lengths.shape[1] > 1:
        raise InputError(
            "cell_size: cells of degrees are not squares, and cost='eikonal' needs squares; bring "
            "the raster to a CRS in metres first, or pass cell_size="
        )
    dx, dy = lengths[:2, 0].tolist()
    # Sides computed from coordinates may differ by rounding.
    if abs(dx - dy) > 1e-6 * dx:
        raise InputError(
            f"cell_size: cells of {as_text(dy)} by {as_text(dx)} with cost='eikonal', which needs "
            "squares; bring the raster to square cells first, or pass cell_size="
        )
    return float(dx)


def eikonal_job(
    surface: Surface,
    sources: SourcesLike,
    steps: StepSpec,
    given: SourceSpec,
    outputs: tuple[str, ...],
    spec: RunSpec,
) -> Job[xr.Dataset]:
    """Return the job of distances by the eikonal equation; the arguments are of `cost_distance`."""
    _refuse(steps, given, outputs)
    dtype = np.dtype(check_dtype("dtype", steps.dtype, DTYPES))
    if dtype.kind == "i":
        raise InputError(
            f"dtype: {dtype.name!r} with cost='eikonal'; use a float, its costs are roots"
        )
    side = square_side(surface.lengths(steps.cell_size))
    starts = check_starts(given.initial_cost, dtype)
    origin = parse_sources(
        sources,
        surface.valid,
        replace(given, initial_cost=starts),
        barriers=surface.impassable,
    )
    cells, source_raster, targets = origin.cells, origin.raster, origin.targets
    if source_raster is not None and starts != 0.0:
        raise InputError(
            "initial_cost: with cost='eikonal' it is for points; leave it out with a raster, lines "
            "or areas"
        )
    inputs = surface.inputs
    if source_raster is not None:
        inputs["sources"] = source_raster
    rasters = tuple(inputs.values())
    nodata = {name: raster.nodata for name, raster in inputs.items()}
    unit = surface.first.georeference.length_unit
    problem = Eikonal(
        *(nodata, side, dtype, steps.max_cost, cells, targets), length_unit=unit and unit.name
    )
    if isinstance(rasters[0], ArrayRaster):
        whole = Window(0, 0, *rasters[0].shape)
        problem.check([rasters[0].read(whole)], whole)
    return raster_job(problem, rasters, spec, notes=origin.notes)
