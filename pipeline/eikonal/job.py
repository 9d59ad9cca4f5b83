"""Start distances by the eikonal equation, from checked rasters and sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from orograph.arguments.sources import SourcesLike, parse_sources
from orograph.eikonal.problem import Eikonal
from orograph.execution.options import RunSpec
from orograph.operations.job import raster_job
from orograph.tiles.arguments import as_text
from orograph.tiles.errors import InputError
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import ArrayRaster, Raster
from orograph.tiles.raster.snapping import SnapLike

if TYPE_CHECKING:
    import xarray as xr

    from orograph.operations.job import Job

EIKONAL = "eikonal"


def refuse_eikonal(**given: object) -> None:
    """Raise InputError for arguments that distances in the plane do not have."""
    usual = {"connectivity": 8, "links": None, "outputs": ("cost",), "source_cost": None}
    for name, value in given.items():
        if value is not usual[name] and value != usual[name]:
            shown = "a graph" if name == "links" else repr(value)
            raise InputError(
                f"{name}: {shown} with cost='eikonal', which is without neighbours, links, back "
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
    named: Mapping[str, Raster],
    valid: Raster,
    impassable: str,
    lengths: npt.NDArray[np.float64],
    sources: SourcesLike,
    spec: RunSpec,
    *,
    dtype: str,
    max_cost: float,
    source_values: Sequence[float] | None,
    label: str | None,
    all_touched: bool,
    initial_cost: float | Sequence[float] | Mapping[int, float],
    snap: SnapLike,
    outside: str,
) -> Job[xr.Dataset]:
    """Return the job of distances by the eikonal equation.

    ``named`` are friction and, if there are any, barriers; ``valid`` and ``impassable`` are as of a
    `Surface`. The others are as of `cost_distance`, checked.
    """
    if np.dtype(dtype).kind == "i":
        raise InputError(f"dtype: {dtype!r} with cost='eikonal'; use a float, its costs are roots")
    origin = parse_sources(
        sources,
        valid,
        initial_cost,
        snap,
        source_values,
        impassable,
        label=label,
        all_touched=all_touched,
        outside=outside,
    )
    cells, source_raster, targets = origin.cells, origin.raster, origin.targets
    if source_raster is not None and initial_cost != 0.0:
        raise InputError(
            "initial_cost: with cost='eikonal' it is for points; leave it out with a raster, lines "
            "or areas"
        )
    inputs = dict(named)
    if source_raster is not None:
        inputs["sources"] = source_raster
    rasters = tuple(inputs.values())
    nodata = {name: raster.nodata for name, raster in inputs.items()}
    of_result = np.dtype(dtype)
    side = square_side(lengths)
    problem = Eikonal(nodata, side, of_result, max_cost, cells, targets)
    if isinstance(rasters[0], ArrayRaster):
        whole = Window(0, 0, *rasters[0].shape)
        problem.check([rasters[0].read(whole)], whole)
    return raster_job(problem, rasters, spec, notes=origin.notes)
