"""The operation `flood_level`: the level at which water from sources reaches each cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import numpy as np

from orograph.arguments.sources import SourcesLike, SourceSpec, parse_sources
from orograph.operations.operation import operation
from orograph.run.job import raster_job, units_of
from orograph.run.options import RunOptions, RunSpec
from orograph.terrain.water import Marks, WaterLevel
from orograph.tiles.arguments import check_choice
from orograph.tiles.raster.raster import RasterLike
from orograph.tiles.raster.snapping import SnapLike
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job


@operation(counts=("pits",))
def flood_level(
    elevation: RasterLike,
    sources: SourcesLike,
    *,
    connectivity: int = 8,
    snap: SnapLike = False,
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return the level at which rising water from the sources reaches each cell of a raster of any
    size.

    Each path between a cell and a source has a highest cell; the level is the height of the lowest
    of these. So a cell behind a dike is flooded when the water at the sources rises above the dike.

    Parameters
    ----------
    elevation
    sources : raster or points
        Where the water comes from: the cells of a raster of the same grid that are not 0 or nodata,
        or points (x, y), given like the sources of `cost_distance`.
    connectivity, snap
    **options

    Returns
    -------
    xarray.Dataset
        ``level``, with the dtype of the elevation. Cells without a height, and cells without a path
        to a source, are nodata: the elevation's nodata value, else NaN, else the greatest value of
        the integer dtype. Coordinates and CRS are those of the elevation.

    Raises
    ------
    InputError
        If an argument is invalid, or a source lies outside the grid or on nodata.
    StoreExistsError, BackendError

    Notes
    -----
    The result is exact: a level is the height of one of the raster's cells, and any tiling gives
    the same bits. `fill_depressions` gives the same result with its outlets as sources.

    References
    ----------
    R. Barnes, "Parallel priority-flood depression filling for trillion cell digital elevation
    models on desktops or clusters", doi:10.1016/j.cageo.2016.07.001.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> coast = np.array([[0, 3, 1, 1], [0, 4, 1, 6], [0, 5, 1, 2]])
    >>> og.flood_level(coast, (0, 0))["level"].values
    array([[0, 3, 3, 3],
           [0, 4, 3, 6],
           [0, 5, 3, 3]])
    """
    connectivity = check_choice("connectivity", connectivity, (4, 8))
    spec = RunSpec(**options)
    raster = spec.open(elevation, "elevation")
    origin = parse_sources(sources, raster, SourceSpec(snap=snap), skips=False)
    points, marked, targets = origin.cells, origin.raster, origin.targets
    rasters = (raster,) if marked is None else (raster, marked)
    dry = raster.nodata
    if dry is None:
        dry = np.nan if raster.dtype.kind == "f" else int(np.iinfo(raster.dtype).max)
    attributes = {"long_name": "flood level of the cell"}
    problem = WaterLevel(
        raster.nodata,
        connectivity,
        "flood-level",
        (Variable("level", raster.dtype, dry, attributes),),
        points,
        () if marked is None else (Marks(marked.nodata, targets),),
        dry=dry,
    )
    notes = {} if origin.moved is None else {"snap_distances": origin.moved.tolist()}
    return raster_job(problem, rasters, spec, notes=notes, units=units_of(raster, "level"))
