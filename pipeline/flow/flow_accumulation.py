"""The operation `flow_accumulation`: amounts of water that drain through each cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Unpack

from orograph.arguments.grids import check_same_grid
from orograph.arguments.routing import RoutingSpec
from orograph.components.table import cell_areas
from orograph.flow.accumulation import MOST, Accumulation, WeightedAccumulation
from orograph.flow.flow_problem import codes_of
from orograph.flow.routing import FlowOfHeights
from orograph.flow.routing_options import FlowOptions, read_routing
from orograph.flow.split import SplitAccumulation
from orograph.kernels.flow.split import METHODS
from orograph.operations.operation import operation
from orograph.run.job import raster_job
from orograph.run.options import RunSpec
from orograph.tiles.arguments import check_choice
from orograph.tiles.arrays import Reals
from orograph.tiles.errors import InputError
from orograph.tiles.raster.marks import warn_of_nodata
from orograph.tiles.raster.raster import Raster, RasterLike, open_raster

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job


@operation(counts=("pits",))
def flow_accumulation(
    direction: RasterLike,
    *,
    method: str | None = None,
    weights: RasterLike | None = None,
    codes: str | None = None,
    **options: Unpack[FlowOptions],
) -> Job[xr.Dataset]:
    """Return the number of cells, or the weight, that drains through each cell of a raster of any
    size.

    Parameters
    ----------
    direction : raster
        Flow directions, shape (y, x), from `flow_direction` or another program: those of the
        compass, in whichever order the raster stores rows and columns. Heights, if ``method`` is
        given.
    method : {"d8", "dinf", "mfd"}, optional
        How water flows over heights; by default the raster holds directions. ``"d8"``: to one
        neighbour, by the directions of `flow_direction`. ``"dinf"`` (D-infinity): to the two
        neighbours on either side of the steepest descent over eight facets. ``"mfd"`` (multiple
        flow directions): to all lower neighbours, in proportion to the slopes. All parameters about
        how water flows over heights, from ``depressions`` on, need it.
    weights : raster or "area", optional
        Amount that falls on each cell, 0 or more: a raster of the same grid, or the area of the
        cell. By default each cell counts as 1.
    codes : {"taudem", "esri", "grass", "ldd"}, optional
        Direction codes, see `flow_direction`. Not needed for directions made by `flow_direction`.
        The nodata code among them is always nodata.
    **options

    Returns
    -------
    xarray.Dataset
        ``accumulation``, which includes the cell itself: int64, -1 on nodata, for cells and integer
        weights; float64, NaN on nodata, for areas, for other weights and where water splits. Areas
        are in m² if the CRS gives the length of a unit; on geographic grids they are those of WGS
        84. Coordinates and CRS are those of the raster.

    Raises
    ------
    InputError
        If an argument is invalid, a code is not one of ``codes``, directions form a cycle, or a
        weight is negative, nodata or so large that sums could overflow.
    StoreExistsError, BackendError

    Notes
    -----
    Sums are exact: weights that are not integers are rounded to multiples of 2**-62, added as
    integers, and rounded once more at the end. Where water splits, each cell is summed once, in a
    fixed order of its neighbours, when everything that flows into it is known; across flats water
    flows as with "d8". So any tiling gives the same bits.

    References
    ----------
    R. Barnes, "Parallel non-divergent flow accumulation for trillion cell digital elevation models
    on desktops or clusters", doi:10.1016/j.envsoft.2017.02.022. D. G. Tarboton, "A new method for
    the determination of flow directions and upslope areas in grid digital elevation models",
    doi:10.1029/96WR03137. T. G. Freeman, "Calculating catchment area with divergent flow based on
    a regular grid", doi:10.1016/0098-3004(91)90048-I.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> valley = np.array([[9, 9, 9, 9], [8, 5, 4, 2], [9, 9, 9, 9]])
    >>> og.flow_accumulation(og.flow_direction(valley))["accumulation"].values
    array([[ 1,  1,  1,  1],
           [ 1,  6,  9, 12],
           [ 1,  1,  1,  1]])
    >>> bool((og.flow_accumulation(valley, method="d8")["accumulation"] == 12).any())
    True
    """
    spec, given = RunSpec.of(options), RoutingSpec.of(options)
    raster = spec.open(direction, "direction")
    falling = read_falling(weights, raster, "direction")
    if method is None:
        given.refuse()
        code = codes_of(raster, codes)
        return raster_job(falling.problem(code), (raster, *falling.rasters), spec)
    _check_heights(raster, method, codes)
    warn_of_nodata(raster, "direction", offered=True)
    routing, more, notes = read_routing(given, raster, spec.wrap, method)
    flow: Accumulation | SplitAccumulation = falling.problem("taudem")
    if method in METHODS:
        flow = SplitAccumulation(
            raster.shape,
            raster.nodata,
            routing.directions.reciprocals,
            method,
            falling.areas,
            falling.unit,
            (raster, *falling.rasters)[-1].nodata,
            raster.georeference.orientation,
        )
    problem = FlowOfHeights(routing, flow, bool(falling.rasters))
    return raster_job(problem, (raster, *falling.rasters, *more), spec, notes=notes)


class Falling(NamedTuple):
    """Amounts that fall on the cells of a grid."""

    grid: Raster
    areas: Reals | None
    """Areas of a cell of each row; None: cells are counted, or a raster has the amounts."""
    unit: str
    rasters: tuple[Raster, ...]
    """The raster of amounts, if there is one."""

    def problem(self, codes: str) -> Accumulation:
        """Return the problem that accumulates them along directions in these codes."""
        orientation = self.grid.georeference.orientation
        if not self.rasters:
            return Accumulation(codes, self.areas, self.unit, orientation=orientation)
        (amounts,) = self.rasters
        most = MOST // (self.grid.shape[0] * self.grid.shape[1])
        return WeightedAccumulation(
            *(codes, None, self.unit, str(amounts.dtype), amounts.nodata, most),
            orientation=orientation,
        )


def read_falling(weights: RasterLike | None, grid: Raster, argument: str) -> Falling:
    """Return the amounts that fall on a grid, the argument of that name."""
    if weights is None:
        return Falling(grid, None, "cells", ())
    if isinstance(weights, str) and weights == "area":
        areas, unit = cell_areas(grid.georeference, grid.shape[0], argument)
        cells = grid.shape[0] * grid.shape[1]
        # All water may meet in one cell: the sum over the grid must stay below 2**62.
        if areas.max() > MOST // cells:
            raise InputError(
                f"{argument}: cells of up to {areas.max():.4g} {unit}, of which {cells} could add "
                "up to more than 2**62; give coordinates in a larger unit"
            )
        return Falling(grid, areas, unit, ())
    amounts = open_raster(weights, argument="weights")
    check_same_grid("weights", amounts, grid)
    return Falling(grid, None, str(amounts.attrs.get("units", "1")), (amounts,))


def _check_heights(raster: Raster, method: str, codes: str | None) -> None:
    """Raise InputError if a method is given for directions, or codes for heights."""
    check_choice("method", method, ("d8", *METHODS))
    if codes is not None:
        raise InputError(
            "codes: heights have none; leave them out, or method= if the raster holds directions"
        )
    if "flow_codes" in raster.attrs or "flow_method" in raster.attrs:
        raise InputError(
            "method: the raster holds directions, as its attributes say; pass heights, or leave it "
            "out where the directions are those of D8"
        )
