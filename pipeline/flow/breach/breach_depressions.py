"""The operation `breach_depressions`: dig trenches that drain depressions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Unpack

from orograph.arguments.routing import OPEN, RoutingSpec
from orograph.flow.breach.trenches import Trenches
from orograph.operations.operation import operation
from orograph.run.job import raster_job, units_of
from orograph.run.options import RunOptions, RunSpec
from orograph.terrain.outlets import parse_outlets
from orograph.tiles.arguments import check_integer, check_number
from orograph.tiles.raster.raster import RasterLike

if TYPE_CHECKING:
    import xarray as xr

    from orograph.arguments.sources import SourcesLike
    from orograph.run.job import Job

DEFAULT_LENGTH = 64
LONGEST = 1024
"""Greatest length of a trench, in rows or columns; a window around a pit is twice as wide."""


@operation()
def breach_depressions(
    elevation: RasterLike,
    *,
    max_length: int = DEFAULT_LENGTH,
    max_depth: float = math.inf,
    outlets: SourcesLike | None = None,
    sinks: SourcesLike | None = None,
    edges: str = OPEN,
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return an elevation raster of any size with trenches dug from its pits to lower ground.

    A trench follows the path that requires the least digging, measured as the sum of the heights
    above the pit. If no path is short and shallow enough, the depression stays as it is; you can
    then fill it.

    Parameters
    ----------
    elevation : raster
        Heights, shape (y, x), of any real dtype; as for `minimum_spanning_forest`. Integers must
        not exceed 2**53.
    max_length : int
        Greatest distance from a pit to the cells of its trench, in rows or columns; from 1 to 1024.
    max_depth : float
        Cells higher than this above the pit are not dug, in the units of the elevation.
    outlets, sinks : raster, points or vector layer, optional
        Cells where water leaves, and pits that stay, as for `flow_direction`: trenches end there,
        and none starts there.
    edges : {"open", "closed"}
        Whether water also leaves at the edge of the raster and into nodata, as for
        `flow_direction`.
    **options

    Returns
    -------
    xarray.Dataset
        ``breached``, float64; NaN on nodata. Coordinates and CRS are those of the elevation.

    Raises
    ------
    InputError
        If an argument is invalid, an outlet lies outside the grid or on nodata, or an integer
        exceeds what float64 represents exactly.
    StoreExistsError, BackendError

    Notes
    -----
    A pit is a cell without a lower neighbour from which no path over cells of its own height leads,
    within ``max_length``, to lower ground, to where water leaves, or to a cell that comes before
    it. Its trench ends at the first cell lower than the pit, or where water leaves: at the edge,
    next to nodata, at an outlet or at a sink. Among equal sums, the fewest steps win, then the
    first end. Cells come row by row from the north-west, in whichever order the raster stores them.

    The floor of a trench falls evenly from the pit to its end. Where it ends at a cell that water
    leaves, it falls from cell to cell by the smallest step of float64. Each trench is found on the
    original elevation, and the result is the minimum of the elevation and all trenches. So the
    order of pits does not matter, any tiling gives the same bits, and no new pits arise. Each tile
    is read with ``2 * max_length + 1`` cells around it.

    References
    ----------
    J. B. Lindsay, "Efficient hybrid breaching-filling sink removal methods for flow path
    enforcement in digital elevation models", doi:10.1002/hyp.10648.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> dam = np.array([[9, 9, 9, 9, 9, 9], [9, 4, 6, 5, 1, 0], [9, 9, 9, 9, 9, 9]])
    >>> og.breach_depressions(dam)["breached"].values[1]
    array([9., 4., 3., 2., 1., 0.])
    """
    limits = check_limits(max_length, max_depth)
    spec = RunSpec(**options)
    raster = spec.open(elevation, "elevation")
    given = RoutingSpec(outlets=outlets, sinks=sinks, edges=edges)
    places, marked = parse_outlets(raster, given, "d8")
    orientation = raster.georeference.orientation
    problem = Trenches(raster.nodata, *limits, orientation, raster.shape, places)
    rasters = (raster, *marked.values())
    return raster_job(problem, rasters, spec, units=units_of(raster, "breached"))


def check_limits(max_length: object, max_depth: object = math.inf) -> tuple[int, float]:
    """Check the limits of trenches and return them."""
    length = check_integer("max_length", max_length, 1, LONGEST, "cells")
    return length, float(check_number("max_depth", max_depth, 0))
