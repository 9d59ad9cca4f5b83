"""The operation `flow_accumulation`: amounts of water that drain through each cell."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from orograph.arguments.grids import check_same_grid
from orograph.arguments.sources import SourcesLike
from orograph.components.table import cell_areas
from orograph.flow.accumulation import MOST, Accumulation, WeightedAccumulation
from orograph.flow.flow_problem import codes_of
from orograph.flow.given_streams import STREAMS, parse_streams
from orograph.flow.outlets import OPEN, leave_at, parse_outlets
from orograph.flow.routing import FlowOfHeights, Routing, of_heights
from orograph.flow.split import SplitAccumulation
from orograph.kernels.flow.split import METHODS
from orograph.operations.operation import operation
from orograph.run.job import raster_job
from orograph.run.options import RunOptions, RunSpec
from orograph.tiles.arguments import check_choice, refuse_arguments
from orograph.tiles.errors import InputError
from orograph.tiles.raster.marks import warn_of_nodata
from orograph.tiles.raster.raster import Raster, RasterLike, open_raster
from orograph.tiles.raster.wrap import wraps_of
from orograph.tiles.vector.layer import VectorLike

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job


WHERE: dict[str, Any] = {"outlets": None, "sinks": None, "edges": OPEN}
"""Arguments that tell where water leaves, and their defaults."""


@operation(counts=("pits",))
def flow_accumulation(
    direction: RasterLike,
    *,
    method: str | None = None,
    weights: RasterLike | None = None,
    depressions: str | None = None,
    max_length: int | None = None,
    max_depth: float | None = None,
    flats: str | None = None,
    codes: str | None = None,
    cell_size: float | tuple[float, float] | None = None,
    connectivity: int | None = None,
    outlets: SourcesLike | None = None,
    sinks: SourcesLike | None = None,
    edges: str | None = None,
    streams: RasterLike | VectorLike | None = None,
    burn: float | None = None,
    **options: Unpack[RunOptions],
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
        flow directions): to all lower neighbours, in proportion to the slopes.
    weights : raster or "area", optional
        Amount that falls on each cell, 0 or more: a raster of the same grid, or the area of the
        cell. By default each cell counts as 1.
    depressions : {"fill", "breach", "keep"}, optional
        How to treat depressions, as for `flow_direction`: "fill" by default. Only for heights, like
        all parameters that follow up to ``cell_size``, except ``codes``.
    max_length, max_depth : optional
        Limits of trenches, as for `breach_depressions`.
    flats : {"nearest", "gradient"}, optional
        Flow across flats, as for `flow_direction`: "nearest" by default.
    codes : {"taudem", "esri", "grass", "ldd"}, optional
        Direction codes, see `flow_direction`. Not needed for directions made by `flow_direction`.
        The nodata code among them is always nodata.
    cell_size : float or (float, float), optional
        As for `flow_direction`.
    connectivity, outlets, sinks, edges, streams, burn
        As for `flow_direction`, with ``method="d8"``.
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
    spec = RunSpec(**options)
    raster = spec.open(direction, "direction")
    given = of_heights(
        method,
        depressions=depressions,
        max_length=max_length,
        max_depth=max_depth,
        flats=flats,
        cell_size=cell_size,
        connectivity=connectivity,
        outlets=outlets,
        sinks=sinks,
        edges=edges,
        streams=streams,
        burn=burn,
    )
    if method is not None:
        warn_of_nodata(raster, "direction", offered=True)
    where = {name: given.pop(name, usual) for name, usual in WHERE.items()}
    if isinstance(method, str) and method != "d8":
        refuse_arguments(f"method={method!r}", connectivity=connectivity is not None)
    ends, marked = parse_outlets(raster, **where, method=method, depressions=depressions)
    given |= {"outlets": ends, "marked": tuple(marked)} if marked or ends else {}
    wraps = wraps_of(raster, spec.wrap)
    drawn = parse_streams(
        *(raster, given.pop(STREAMS, None), given.pop("burn", None), connectivity or 8, wraps),
        partial(leave_at, elevation=raster, outlets=ends, rasters=marked.values(), wraps=wraps),
        method=method != "d8",
        depressions=depressions not in (None, "fill"),
        flats=flats == "gradient",
    )
    if drawn.burned is not None:
        given[STREAMS] = drawn
    code, routing = _source_of_directions(raster, method, codes, given, wraps)
    rasters: tuple[Raster, ...] = (raster,)
    areas, unit, cells = None, "cells", raster.shape[0] * raster.shape[1]
    if isinstance(weights, str) and weights == "area":
        areas, unit = cell_areas(raster.georeference, raster.shape[0], "direction")
        # All water may meet in one cell: the sum over the grid must stay below 2**62.
        if areas.max() > MOST // cells:
            raise InputError(
                f"direction: cells of up to {areas.max():.4g} {unit}, of which {cells} could add "
                "up to more than 2**62; give coordinates in a larger unit"
            )
    elif weights is not None:
        falling = open_raster(weights, argument="weights")
        check_same_grid("weights", falling, raster)
        rasters = (raster, falling)
        unit = str(falling.attrs.get("units", "1"))
    orientation = raster.georeference.orientation
    with_weights = len(rasters) > 1
    if routing is not None and method in METHODS:
        flow: Accumulation | SplitAccumulation = SplitAccumulation(
            raster.shape,
            raster.nodata,
            routing.directions.reciprocals,
            str(method),
            areas,
            unit,
            rasters[-1].nodata,
            orientation,
        )
    elif with_weights:
        dtype, none = str(rasters[1].dtype), rasters[1].nodata
        of_weights = dtype, none, MOST // cells
        flow = WeightedAccumulation(code, None, unit, *of_weights, orientation=orientation)
    else:
        flow = Accumulation(code, areas, unit, orientation=orientation)
    problem = flow if routing is None else FlowOfHeights(routing, flow, with_weights)
    rasters = (*rasters, *marked.values(), *drawn.rasters)
    return raster_job(problem, rasters, spec, notes=drawn.notes)


def _source_of_directions(
    raster: Raster, method: str | None, codes: str | None, given: dict[str, Any], wraps: bool
) -> tuple[str, Routing | None]:
    """Return the name of the direction codes, and how to derive them from an elevation.

    ``given`` holds the arguments that determine the latter; ``wraps`` tells whether the grid does.
    """
    if method is None:
        return codes_of(raster, codes), None
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
    return "taudem", Routing.on(raster, **given, wraps=wraps)
