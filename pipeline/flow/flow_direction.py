"""The operation `flow_direction`: D8 directions in which water flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from orograph.arguments.routing import RoutingSpec
from orograph.flow.angles import Angles
from orograph.flow.directions import Directions
from orograph.flow.routing import FlowOfHeights
from orograph.flow.routing_options import FlowOptions, read_routing
from orograph.kernels.flow.codes import ENCODINGS
from orograph.operations.operation import operation
from orograph.run.job import raster_job
from orograph.run.options import RunSpec
from orograph.tiles.arguments import check_choice
from orograph.tiles.errors import InputError
from orograph.tiles.raster.raster import RasterLike

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job


@operation(counts=("pits",))
def flow_direction(
    elevation: RasterLike,
    *,
    method: str = "d8",
    codes: str | None = None,
    **options: Unpack[FlowOptions],
) -> Job[xr.Dataset]:
    """Return the flow direction of each cell of a raster of any size.

    With D8, water flows to the neighbour with the steepest descent. With D-infinity, it flows at an
    angle, down the steepest of the eight triangles between a cell and its neighbours. If no
    neighbour is lower, water leaves the grid or flows into nodata if the cell lies next to one of
    these; in a flat it flows towards a cell of the flat that drains.

    Parameters
    ----------
    elevation
    method : {"d8", "dinf"}
        One of eight steps (``"d8"``), or an angle (``"dinf"``, D-infinity).
    codes : {"taudem", "esri", "grass", "ldd"}, optional
        Codes of D8 directions, see Notes: "taudem" by default.
    **options

    Returns
    -------
    xarray.Dataset
        ``direction``. For D8: uint8 (int8 for "grass"), with the attribute ``sink_count``, the
        number of cells where water ends within the grid. For D-infinity: float32, angles in radians
        counterclockwise from east, -1 where water ends within the grid and NaN on nodata.
        Coordinates and CRS are those of the elevation.

    Raises
    ------
    InputError
        If an argument is invalid, the coordinates do not determine the size of cells, or lines of
        ``streams`` lead in a loop.
    StoreExistsError, BackendError

    Notes
    -----
    Directions are those of the compass, whether y grows or falls with the rows, and x with the
    columns; without coordinates the first row lies in the north. Codes for directions, for cells
    whose water leaves the grid or flows into nodata, for pits and for nodata:

    ========  ===  ===  ===  ===  ===  ===  ===  ===  =======================  ===  ======
    codes     E    NE   N    NW   W    SW   S    SE   leaving                  pit  nodata
    ========  ===  ===  ===  ===  ===  ===  ===  ===  =======================  ===  ======
    taudem    1    2    3    4    5    6    7    8    the code of that step    0    255
    esri      1    128  64   32   16   8    4    2    the code of that step    0    255
    grass     8    1    2    3    4    5    6    7    the code, negative        0    -128
    ldd       6    9    8    7    4    1    2    3    5                        5    255
    ========  ===  ===  ===  ===  ===  ===  ===  ===  =======================  ===  ======

    The slope is the drop times the reciprocal of the length, in float64. Ties are broken in the
    order E, NE, N, NW, W, SW, S, SE: between equal slopes, between steps that leave the grid, and
    between neighbours in a flat that are equally near to a cell that drains. The same order breaks
    ties where flats have gradients: there water flows to a cell that drains, or to the neighbour
    with the smallest gradient, which is twice the number of steps to a cell that drains minus the
    number of steps from the nearest cell below higher ground. No path is a cycle. Any tiling gives
    the same result. Each height is read twice, or three times with gradients. The filled surface is
    kept in memory, or next to the result until that is finished, and so is the breached surface.

    Along lines each cell that a line passes has the step to the next one; where a cell has two,
    that of the line which stands first in the layer. Its height becomes the least of all cells that
    lead to it along lines, itself included, minus ``burn``. Then depressions are filled to a
    surface that falls along lines, and across flats by the spacing of floats: from cells of lines
    it spills at their ends alone. Lines whose ends lie within the grid and on no other line, and
    lines that rise by more than ``burn``, are told in a warning and counted in the attributes
    ``stream_gaps`` and ``stream_rises``. Lines need ``depressions="fill"``.

    The angles of D-infinity are those by which `flow_accumulation` splits water with the same
    method. In flats, where water leaves the grid, and where it flows into nodata, the angle is that
    of the D8 step.

    References
    ----------
    J. F. O'Callaghan, D. M. Mark, "The extraction of drainage networks from digital elevation
    data", doi:10.1016/S0734-189X(84)80011-0.

    R. Barnes, C. Lehman, D. Mulla, "An efficient assignment of drainage direction over flat
    surfaces in raster digital elevation models", doi:10.1016/j.cageo.2013.01.009.

    D. G. Tarboton, "A new method for the determination of flow directions and upslope areas in grid
    digital elevation models", doi:10.1029/96WR03137.

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
    check_choice("method", method, ("d8", "dinf"))
    if codes is not None:
        check_choice("codes", codes, tuple(ENCODINGS))
        if method != "d8":
            raise InputError("codes: angles have none; leave them out, or choose method='d8'")
    spec, given = RunSpec.of(options), RoutingSpec.of(options)
    raster = spec.open(elevation, "elevation")
    # D-infinity finds its angles from D8 steps in TauDEM's codes.
    routing, more, notes = read_routing(given, raster, spec.wrap, method, codes or "taudem")
    flow: Directions | Angles = routing.directions
    if method == "dinf":
        flow = Angles(raster.nodata, flow.reciprocals, flow.orientation)
    return raster_job(FlowOfHeights(routing, flow), (raster, *more), spec, notes=notes)
