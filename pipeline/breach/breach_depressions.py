"""The operation `breach_depressions`: dig trenches that drain depressions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Unpack

from orograph.breach.trenches import Trenches
from orograph.engines.map_overlap import MapOverlap
from orograph.execution.backends import choose_backend
from orograph.execution.options import RunOptions, RunSpec
from orograph.kernels.flow.breach import compile_kernels
from orograph.operations.job import raster_job
from orograph.operations.operation import operation
from orograph.tiles.arguments import check_integer, check_number
from orograph.tiles.raster.raster import open_raster

if TYPE_CHECKING:
    import xarray as xr

    from orograph.operations.job import Job

DEFAULT_LENGTH = 64
LONGEST = 1024
"""Of a trench in rows or columns: its window has the square of twice as many cells."""


@operation("orograph.breach.estimate:estimate_breach")
def breach_depressions(
    elevation: Any,
    *,
    max_length: int = DEFAULT_LENGTH,
    max_depth: float = math.inf,
    nodata: float | int | None = None,
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return the elevation with trenches dug from its pits to lower ground, at any size.

    A trench takes the way on which the least has to be dug: the least sum of the heights above the
    pit. Where none is short and shallow enough, the depression stays as it is, and can be filled.

    Parameters
    ----------
    elevation : raster
        Heights, shape (y, x), of any real dtype; as for `minimum_spanning_forest`. Integers are at
        most 2**53.
    max_length : int
        Cells, along a row or a column, from a pit to the farthest cells that its trench may reach;
        from 1 to 1024.
    max_depth : float
        Cells that are higher above the pit than this are not dug, in the units of the elevation.
    nodata : float or int, optional
        The value of cells without a height, in place of what the raster itself says. NaN and
        infinite cells have none either.
    **options
        Options of the run, see `RunOptions`.

    Returns
    -------
    xarray.Dataset
        ``breached``, float64; NaN on nodata. Coordinates and CRS are the elevation's.

    Raises
    ------
    InputError
        If an argument is invalid, or an integer is larger than float64 holds exactly.
    StoreExistsError, BackendError
        As for `minimum_spanning_forest`.

    Notes
    -----
    A pit is a cell without a lower neighbour, from which no way over cells of its height leads
    within ``max_length`` to lower ground, out of the grid or into nodata, or to a cell that comes
    before it by rows. Its trench ends at the first cell lower than the pit, or at the edge or
    beside nodata, where water leaves. Of equal sums the fewest steps count, then the first end by
    rows.

    A trench falls evenly from the pit to its end, and from cell to cell by the least step of
    float64 where it ends at the edge or beside nodata. Each is found on the elevation as it is, and
    the result is the minimum of the elevation and of all trenches. So no order of pits matters, any
    tiling gives the same bits, and no new pits come about. Each tile is read with
    ``2 * max_length + 1`` cells around it.

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
    raster = open_raster(elevation, nodata=nodata, argument="elevation")
    spec = RunSpec(**options)
    backend = choose_backend("dig_trenches", (raster,), spec)
    problem = Trenches(raster.nodata, *limits, backend)
    parameters = {"nodata": repr(raster.nodata), **problem.parameters}
    return raster_job(MapOverlap, problem, (raster,), parameters, compile_kernels, spec)


def check_limits(max_length: Any, max_depth: Any = math.inf) -> tuple[int, float]:
    """Return the limits of trenches, checked."""
    length = check_integer("max_length", max_length, 1, LONGEST, "cells")
    return length, float(check_number("max_depth", max_depth, 0))
