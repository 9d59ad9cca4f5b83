"""The operation `flow_direction`: D8 directions in which water flows."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from orograph.breach.breach_depressions import DEFAULT_LENGTH, check_limits
from orograph.breach.trenches import Trenches
from orograph.execution.backends import choose_backend
from orograph.execution.options import RunOptions, RunSpec
from orograph.flow.directions import Directions, reciprocals_of
from orograph.flow.routing import (
    compile_breaching,
    compile_routing,
    flow_engine,
    surface_then_flow,
)
from orograph.kernels.flow.codes import ENCODINGS
from orograph.kernels.flow.directions import compile_kernels
from orograph.operations.job import raster_job
from orograph.operations.operation import operation
from orograph.tiles.arguments import check_choice, refuse_arguments
from orograph.tiles.grid.lengths import step_lengths
from orograph.tiles.raster.raster import open_raster

if TYPE_CHECKING:
    import xarray as xr

    from orograph.operations.job import Job


@operation("orograph.flow.estimate:estimate_direction")
def flow_direction(
    elevation: Any,
    *,
    depressions: str = "fill",
    max_length: int | None = None,
    max_depth: float | None = None,
    flats: str = "nearest",
    encoding: str = "taudem",
    cell_size: float | tuple[float, float] | None = None,
    nodata: float | int | None = None,
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return the direction in which the water of each cell flows (D8), at any size.

    It flows to the neighbour of the steepest descent. Where no neighbour is lower it leaves the
    grid, or flows into nodata, if the cell lies beside one of these; in a flat it flows towards a
    cell of the flat that drains.

    Parameters
    ----------
    elevation : raster
        Heights, shape (y, x), of any real dtype; as for `minimum_spanning_forest`.
    depressions : {"fill", "breach", "keep"}
        Fill depressions first, so that all water leaves the grid or flows into nodata; or dig
        trenches from pits as `breach_depressions` does, and fill what is left; or keep depressions,
        so that water ends in pits too.
    max_length : int, optional
        Of trenches, in cells, as for `breach_depressions`: 64 by default.
    max_depth : float, optional
        Of trenches, as for `breach_depressions`: infinite by default.
    flats : {"nearest", "gradient"}
        The way over a flat: the fewest steps to a cell that drains; or away from higher ground and
        towards a cell that drains, so that ways meet in its middle.
    encoding : {"taudem", "esri", "grass", "ldd"}
        The codes of the directions, see Notes.
    cell_size : float or (float, float), optional
        Side of a cell, or its (y, x) sides, in place of what the coordinates say. On geographic
        grids steps have the lengths of geodesics.
    nodata : float or int, optional
        The value of cells without a height, in place of what the raster itself says. NaN and
        infinite cells have none either.
    **options
        Options of the run, see `RunOptions`.

    Returns
    -------
    xarray.Dataset
        ``direction``, uint8 (int8 for "grass"), and the attribute ``sink_count``, the number of
        cells where water ends within the grid. Coordinates and CRS are the elevation's.

    Raises
    ------
    InputError
        If an argument is invalid, or the coordinates do not tell the size of cells.
    StoreExistsError, BackendError
        As for `minimum_spanning_forest`.

    Notes
    -----
    Codes of the directions, of cells whose water leaves the grid or flows into nodata, of pits and
    of nodata:

    ========  ===  ===  ===  ===  ===  ===  ===  ===  =======================  ===  ======
    encoding  E    NE   N    NW   W    SW   S    SE   leaving                  pit  nodata
    ========  ===  ===  ===  ===  ===  ===  ===  ===  =======================  ===  ======
    taudem    1    2    3    4    5    6    7    8    the code of that step    0    255
    esri      1    128  64   32   16   8    4    2    the code of that step    0    255
    grass     8    1    2    3    4    5    6    7    the code, negative        0    -128
    ldd       6    9    8    7    4    1    2    3    5                        5    255
    ========  ===  ===  ===  ===  ===  ===  ===  ===  =======================  ===  ======

    The slope is the drop times the reciprocal of the length, in float64. Of equal slopes, of steps
    that leave the grid, and of neighbours in a flat that are as near to one that drains, the first
    in the order E, NE, N, NW, W, SW, S, SE counts, and so it does of equals where flats have
    gradients: there water flows to a cell that drains, or to the least of twice the steps to one
    less the steps from the nearest cell below higher ground. No path is a circle. Any tiling gives
    the same result. Each height is read twice, or once more for gradients; the filled surface is
    kept in memory, or beside the result until that is finished, and so is the breached one.

    References
    ----------
    J. F. O'Callaghan, D. M. Mark, "The extraction of drainage networks from digital elevation
    data", doi:10.1016/S0734-189X(84)80011-0.

    R. Barnes, C. Lehman, D. Mulla, "An efficient assignment of drainage direction over flat
    surfaces in raster digital elevation models", doi:10.1016/j.cageo.2013.01.009.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> valley = np.array([[9, 9, 9, 9], [9, 2, 5, 4], [9, 9, 9, 9]])
    >>> og.flow_direction(valley, depressions="keep")["direction"].values
    array([[8, 7, 6, 7],
           [1, 0, 5, 1],
           [2, 3, 4, 3]], dtype=uint8)
    """
    check_choice("depressions", depressions, ("fill", "breach", "keep"))
    limits = check_trenches(depressions, max_length, max_depth)
    check_choice("flats", flats, ("nearest", "gradient"))
    check_choice("encoding", encoding, tuple(ENCODINGS))
    raster = open_raster(elevation, nodata=nodata, argument="elevation")
    spec = RunSpec(**options)
    lengths = step_lengths(raster.georeference, raster.shape, cell_size)
    problem = Directions(
        raster.shape,
        raster.nodata,
        reciprocals_of(lengths),
        encoding,
        choose_backend("flow_directions", (raster,), spec),
        flats == "gradient",
    )
    parameters = {
        "nodata": repr(raster.nodata),
        "lengths": repr(lengths.tolist()),
        "depressions": depressions,
        "flats": flats,
        "encoding": encoding,
    }
    trenches = Trenches(raster.nodata, *limits) if depressions == "breach" else None
    if trenches is not None:
        parameters |= trenches.parameters
    fill = depressions != "keep"
    compiled = partial(_compile_kernels, raster.dtype, fill, trenches is not None)
    engine: Any = partial(surface_then_flow, trenches, fill)
    if not fill and not problem.gradients:
        engine = flow_engine
    return raster_job(engine, problem, (raster,), parameters, compiled, spec)


def _compile_kernels(dtype: np.dtype[Any], fill: bool, breach: bool) -> None:
    """Compile the kernels from an elevation of this dtype to its directions."""
    if breach:
        compile_breaching()
    elif fill:
        compile_routing(dtype)
    else:
        compile_kernels(dtype)


def check_trenches(depressions: str, max_length: Any, max_depth: Any) -> tuple[int, float]:
    """Return the limits of trenches, or refuse those that are given where none are dug."""
    limits = check_limits(
        DEFAULT_LENGTH if max_length is None else max_length,
        math.inf if max_depth is None else max_depth,
    )
    if depressions != "breach":
        refuse_arguments(
            f"depressions={depressions!r}",
            max_length=max_length is not None,
            max_depth=max_depth is not None,
        )
    return limits
