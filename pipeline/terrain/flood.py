"""The operation `flood_level`: the level at which water from sources reaches each cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from orograph.arguments.sources import parse_sources
from orograph.execution.backends import choose_backend
from orograph.execution.options import RunOptions, RunSpec
from orograph.operations.operation import operation
from orograph.terrain.run import terrain_job
from orograph.terrain.water import WaterLevel
from orograph.tiles.arguments import check_choice
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    import xarray as xr

    from orograph.operations.job import Job


@operation("orograph.terrain.estimate:estimate_flood")
def flood_level(
    elevation: Any,
    sources: Any,
    *,
    connectivity: int = 8,
    snap: bool | int = False,
    nodata: float | int | None = None,
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return the level at which rising water from the sources reaches each cell, at any size.

    It is the least greatest height on any path between the cell and a source: a cell behind a dike
    is flooded when the water at the sources stands above its level.

    Parameters
    ----------
    elevation : raster
        Heights, shape (y, x), of any real dtype; as for `minimum_spanning_forest`.
    sources : raster or points
        Where the water comes from: a raster of the same grid, not 0 or nodata there, or points
        (x, y), as the sources of `cost_distance` are given.
    connectivity : {8, 4}
        8 or 4 neighbours.
    snap : bool or int
        Move points on nodata to the nearest cell with a height: True within 10 cells, or a number
        of cells.
    nodata : float or int, optional
        The value of cells without a height, in place of what the raster itself says. NaN and
        infinite cells have none either.
    **options
        Options of the run, see `RunOptions`.

    Returns
    -------
    xarray.Dataset
        ``level``, of the dtype of the elevation. Where there is no height, and where no path leads
        to a source, it is nodata: the elevation's nodata, else NaN, else the greatest value of the
        integer dtype. Coordinates and CRS are the elevation's.

    Raises
    ------
    InputError
        If an argument is invalid, or a source lies outside the grid or
        on nodata.
    StoreExistsError, BackendError
        As for `minimum_spanning_forest`.

    Notes
    -----
    Exact: a level is the height of one of the raster's cells, and any tiling gives the same bits.
    `fill_depressions` is the same with its outlets as sources.

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
    raster = open_raster(elevation, nodata=nodata, argument="elevation")
    origin = parse_sources(sources, raster, 0, snap, None)
    points, marked, targets = origin.cells, origin.raster, origin.targets
    rasters = (raster,) if marked is None else (raster, marked)
    spec = RunSpec(**options)
    dry = raster.nodata
    if dry is None:
        dry = np.nan if raster.dtype.kind == "f" else int(np.iinfo(raster.dtype).max)
    attributes = {"long_name": "level at which water from the sources reaches the cell"}
    problem = WaterLevel(
        raster.nodata,
        connectivity,
        choose_backend("tile_basins", rasters, spec),
        "flood-level",
        (Variable("level", raster.dtype, dry, attributes),),
        points,
        None if marked is None else marked.nodata,
        targets,
        dry=dry,
    )
    parameters = {"sources": repr(points and [points.rows.tolist(), points.columns.tolist()])}
    return terrain_job(problem, rasters, parameters, spec)
