"""The operation `fill_depressions`: raise depressions to the level where they spill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

import numpy as np

from orograph.arguments.sources import SourcesLike, SourceSpec, parse_sources
from orograph.operations.operation import operation
from orograph.run.job import raster_job, units_of
from orograph.run.options import RunOptions, RunSpec
from orograph.terrain.water import Marks, WaterLevel
from orograph.tiles.arguments import check_choice, check_number, check_outputs
from orograph.tiles.grid.orientation import NORTH_UP
from orograph.tiles.raster.raster import Raster, RasterLike
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job


OUTPUTS = ("filled", "depth", "depression")


@operation(counts=("pits",))
def fill_depressions(
    elevation: RasterLike,
    *,
    outlets: SourcesLike | None = None,
    connectivity: int = 8,
    max_depth: float | None = None,
    outputs: str | Sequence[str] = ("filled",),
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return an elevation raster of any size with its depressions filled to their spill levels.

    Each path from a cell to an outlet has a highest cell. The cell is raised to the height of the
    lowest of these, so that from every cell a path leads to an outlet without rising.

    Parameters
    ----------
    elevation
    outlets : raster or points, optional
        Where water leaves; by default at the edge of the raster and next to nodata. Otherwise only
        where a raster of the same grid is not 0 or nodata, or at points (x, y), given like the
        sources of `cost_distance`.
    connectivity
    max_depth : float, optional
        Depressions that are deeper, from their lowest cell to their spill level, are not filled.
    outputs : sequence of {"filled", "depth", "depression"}
        Variables of the result.
    **options

    Returns
    -------
    xarray.Dataset
        ``filled``, with the dtype of the elevation. ``depth``, float64: by how much cells were
        raised; NaN on nodata. ``depression``, int64: where cells were raised, the row-major index
        of the lowest cell of their depression, from 1; 0 elsewhere. Coordinates and CRS are those
        of the input.

    Raises
    ------
    InputError
        If an argument is invalid, or an outlet lies outside the grid or on nodata.
    StoreExistsError, BackendError

    Notes
    -----
    The result is exact: a filled cell has the height of one of the raster's cells, so any priority
    flood gives the same result, and any tiling the same bits. Cells from which no path leads to an
    outlet are not changed; by default there are none. Among equally low cells, the first
    from the north-west is the lowest of its depression. Each cell is read twice and written once.

    References
    ----------
    R. Barnes, "Parallel priority-flood depression filling for trillion cell digital elevation
    models on desktops or clusters", doi:10.1016/j.cageo.2016.07.001.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> bowl = np.array([[9, 9, 9, 9], [9, 2, 5, 7], [9, 9, 9, 9]])
    >>> og.fill_depressions(bowl)["filled"].values
    array([[9, 9, 9, 9],
           [9, 7, 7, 7],
           [9, 9, 9, 9]])
    >>> filled = og.fill_depressions(bowl, outputs=["depth", "depression"])
    >>> filled["depth"].values[1], filled["depression"].values[1]
    (array([0., 5., 2., 0.]), array([0, 6, 6, 0]))
    """
    connectivity = check_choice("connectivity", connectivity, (4, 8))
    wanted = check_outputs(outputs, OUTPUTS)
    deepest = np.inf if max_depth is None else check_number("max_depth", max_depth, 0)
    spec = RunSpec(**options)
    raster = spec.open(elevation, "elevation")
    points, marked, targets = None, None, None
    if outlets is not None:
        origin = parse_sources(outlets, raster, SourceSpec(), name="outlets", skips=False)
        points, marked, targets = origin.cells, origin.raster, origin.targets
    rasters = (raster,) if marked is None else (raster, marked)
    problem = WaterLevel(
        raster.nodata,
        connectivity,
        "fill-depressions",
        tuple(variable for variable in _variables(raster) if variable.name in wanted),
        points,
        () if marked is None else (Marks(marked.nodata, targets),),
        outlets is None,
        deepest,
        # levels depend on no order of cells, which cell is the lowest of a depression does
        orientation=raster.georeference.orientation if "depression" in wanted else NORTH_UP,
    )
    return raster_job(problem, rasters, spec, units=units_of(raster, "filled", "depth"))


def _variables(raster: Raster) -> tuple[Variable, ...]:
    """Return the output variables that `fill_depressions` can write."""
    gap = np.nan if raster.nodata is None and raster.dtype.kind == "f" else raster.nodata
    return (
        Variable("filled", raster.dtype, gap, {"long_name": "elevation without depressions"}),
        Variable("depth", np.dtype(np.float64), np.nan, {"long_name": "depth of the filling"}),
        Variable(
            "depression",
            np.dtype(np.int64),
            None,
            {"long_name": "depression, by its lowest cell"},
        ),
    )
