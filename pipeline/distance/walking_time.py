"""The operation `walking_time`: walking times over an elevation model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from orograph.arguments.sources import OUTSIDE
from orograph.distance.arguments import (
    DTYPES,
    SLOPES,
    in_metres,
    model_coefficients,
    open_surface,
)
from orograph.distance.cost_distance import distance_job
from orograph.execution.options import RunOptions, RunSpec
from orograph.kernels.relax.models import CostModel
from orograph.operations.operation import operation
from orograph.results.costs import TIME
from orograph.tiles.arguments import check_choice, check_dtype
from orograph.tiles.graph.graph import Graph
from orograph.tiles.raster.snapping import SnapLike

if TYPE_CHECKING:
    import xarray as xr

    from orograph.arguments.barriers import BarriersLike
    from orograph.arguments.sources import SourcesLike
    from orograph.operations.job import Job
    from orograph.tiles.raster.raster import RasterLike


@operation("orograph.distance.estimate:estimate_walking_time")
def walking_time(
    elevation: RasterLike,
    sources: SourcesLike,
    *,
    elevation_unit: str | None = None,
    friction: RasterLike | None = None,
    model: str = "tobler",
    rasters: Mapping[str, Any] | None = None,
    coefficients: Mapping[str, float] | None = None,
    barriers: BarriersLike | None = None,
    links: Graph | None = None,
    travel: str = "from",
    connectivity: int = 8,
    max_cost: float = math.inf,
    cell_size: float | tuple[float, float] | None = None,
    source_values: Sequence[float] | None = None,
    label: str | None = None,
    all_touched: bool = False,
    initial_cost: float | Sequence[float] | Mapping[int, float] = 0.0,
    source_cost: Mapping[str, float | str | Sequence[float] | Mapping[int, float]] | None = None,
    snap: SnapLike = False,
    outside: str = "error",
    dtype: str = "float64",
    outputs: Sequence[str] = ("time",),
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return the least walking time to each cell from any of the sources.

    The result is exact and unbounded, as for `cost_distance`. The cost of a step depends on its
    slope, so uphill and downhill differ.

    Parameters
    ----------
    elevation : raster
        Heights, shape (y, x); nodata cells are barriers.
    sources : raster, points or vector layer
        As for `cost_distance`.
    elevation_unit : {"m", "ft", "us-ft"}, optional
        Unit of the heights: metres, international feet or US survey feet. By default that of the
        raster's attribute ``units`` or of a vertical CRS, else metres. It is required if none of
        these tells it and the CRS is neither in metres nor in degrees.
    friction : raster, optional
        Additional cost of walking in each cell, shape (y, x), not negative; nodata cells are
        barriers. ``"tobler"`` multiplies the time of a step by the mean friction of its two cells
        (default 1); ``"walk"`` adds their mean times ``lambda`` times the length (default 0).
    model : str
        Tobler's hiking function (``"tobler"``) or GRASS r.walk by Naismith and Langmuir
        (``"walk"``). Both return seconds: heights and lengths become metres first. Coordinates
        whose unit is not known count as metres.
    rasters : mapping of str to raster, optional
        Further rasters, by name, for a model of your own, such as ``{"wind": wind}``; the models
        above do not need any.
    coefficients : mapping of str to float, optional
        Coefficients of the model; missing ones have their usual values. For ``"tobler"``: ``pace``,
        seconds per metre at best. For ``"walk"``: ``a``, ``b``, ``c``, ``d``, ``slope_factor``,
        ``lambda``, as in GRASS.
    travel : {"from", "to"}
        Time ``"from"`` the sources, or ``"to"`` them.
    dtype : {"float64", "float32"}
        Dtype of the times; each step is computed in float64 and rounded to it.
    barriers, links, connectivity, max_cost, cell_size
        As for `cost_distance`.
    source_values, label, all_touched, initial_cost, source_cost, snap, outside
        As for `cost_distance`.
    outputs : sequence of {"time", "back_direction", "allocation"}
        Variables of the result; the time is always included.
    **options

    Returns
    -------
    xarray.Dataset
        As for `cost_distance`, with ``time`` (y, x), in seconds, in place of ``cost``. An
        additional attribute is ``coefficients``.

    Raises
    ------
    InputError, RunError, StoreExistsError, BackendError
        As for `cost_distance`.

    References
    ----------
    W. Tobler, "Three presentations on geographical analysis and modeling", NCGIA Technical Report
    93-1, 1993. GRASS GIS manual, r.walk.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> slope = np.array([[0.0, 10.0, 20.0]])
    >>> up = og.walking_time(slope, [(0, 0)], cell_size=100)
    >>> down = og.walking_time(slope, [(0, 0)], cell_size=100, travel="to")
    >>> up["time"].values.round(1), down["time"].values.round(1)
    (array([[  0. , 101.4, 202.9]]), array([[  0. ,  71.5, 142.9]]))
    """
    model = check_choice("model", model, SLOPES)
    spec = RunSpec(**options)
    surface = open_surface(elevation, model, spec.choice, friction, rasters, barriers=barriers)
    return distance_job(
        in_metres(surface, elevation_unit),
        CostModel(model, False, model_coefficients(model, coefficients)),
        sources,
        spec,
        dtype=check_dtype("dtype", dtype, DTYPES[:2]),
        links=links,
        travel=travel,
        connectivity=connectivity,
        max_cost=max_cost,
        cell_size=cell_size,
        source_values=source_values,
        label=label,
        all_touched=all_touched,
        initial_cost=initial_cost,
        source_cost=source_cost,
        snap=snap,
        outside=check_choice("outside", outside, OUTSIDE),
        outputs=outputs,
        variable=TIME,
    )
