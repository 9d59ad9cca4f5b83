"""The operation `walking_time`: walking times over an elevation model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from orograph.distance.arguments import DTYPES, SLOPES, model_coefficients, open_surface
from orograph.distance.cost_distance import distance_job
from orograph.execution.options import RunOptions, RunSpec
from orograph.kernels.relax.models import CostModel, lacking_on_gpu
from orograph.operations.operation import operation
from orograph.tiles.arguments import check_choice, check_dtype
from orograph.tiles.graph.graph import Graph

if TYPE_CHECKING:
    import xarray as xr

    from orograph.operations.job import Job


@operation("orograph.distance.estimate:estimate_walking_time")
def walking_time(
    elevation: Any,
    sources: Any,
    *,
    friction: Any = None,
    model: str = "tobler",
    rasters: Mapping[str, Any] | None = None,
    coefficients: Mapping[str, float] | None = None,
    barriers: Any = None,
    links: Graph | None = None,
    direction: str = "from",
    connectivity: int = 8,
    max_cost: float = math.inf,
    cell_size: float | tuple[float, float] | None = None,
    target_values: Sequence[float] | None = None,
    label: str | None = None,
    all_touched: bool = False,
    initial_cost: float | Sequence[float] | Mapping[int, float] = 0.0,
    source_cost: Mapping[str, float | str | Sequence[float] | Mapping[int, float]] | None = None,
    snap: bool | int = False,
    outside: str = "error",
    dtype: str = "float64",
    outputs: Sequence[str] = ("cost",),
    nodata: float | int | None = None,
    band: int | None = None,
    variable: str | None = None,
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return the least walking time to each cell from any of the sources.

    Exact and unbounded, as `cost_distance`. A step's cost depends on its slope, so that uphill and
    downhill differ.

    Parameters
    ----------
    elevation : raster
        Heights, shape (y, x), in the unit of the coordinates; nodata cells are barriers.
    sources : raster, points or vector layer
        As for `cost_distance`.
    friction : raster, optional
        What walking costs more in each cell, shape (y, x), not negative; nodata cells are barriers.
        ``"tobler"`` multiplies the time of a step by the mean friction of its two cells;
        ``"walk"`` adds their mean times ``lambda`` times the length. Without it 1 and 0.
    model : str
        ``"tobler"``: Tobler's hiking function. ``"walk"``: GRASS r.walk (Naismith, Langmuir). Both
        give seconds, where elevation and lengths are metres.
    rasters : mapping of str to raster, optional
        Further rasters that a model of your own needs, by name, such as ``{"wind": wind}``; none
        of the above needs any.
    coefficients : mapping of str to float, optional
        Of ``"tobler"``: ``pace``, seconds a metre at best. Of ``"walk"``: ``a``, ``b``, ``c``,
        ``d``, ``slope_factor``, ``lambda``, as in GRASS. Those not given have their usual values.
    direction : {"from", "to"}
        Time ``"from"`` the sources, or ``"to"`` them.
    dtype : {"float64", "float32"}
        Type of the times; each step is computed in float64 and rounded to it.
    barriers, links, connectivity, max_cost, cell_size
        As for `cost_distance`.
    target_values, label, all_touched, initial_cost, source_cost, snap, outside
        As for `cost_distance`.
    outputs : sequence of {"cost", "back_direction", "allocation"}
        As for `cost_distance`.
    nodata : float or int, optional
        The value of elevation's nodata cells, in place of what the raster itself says.
    band, variable : int and str, optional
        Which raster of elevation, if it holds several: the number of its band, from 1, or its name.
    **options
        Options of the run, see `RunOptions`.

    Returns
    -------
    xarray.Dataset
        As of `cost_distance`: ``cost`` (y, x) holds the times, in seconds. A further attribute is
        ``coefficients``.

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
    >>> down = og.walking_time(slope, [(0, 0)], cell_size=100, direction="to")
    >>> up["cost"].values.round(1), down["cost"].values.round(1)
    (array([[  0. , 101.4, 202.9]]), array([[  0. ,  71.5, 142.9]]))
    """
    model = check_choice("model", model, SLOPES)
    return distance_job(
        open_surface(
            elevation, model, nodata, band, variable, friction, rasters, barriers=barriers
        ),
        CostModel(model, False, model_coefficients(model, coefficients)),
        sources,
        RunSpec(**options),
        dtype=check_dtype("dtype", dtype, DTYPES[:2]),
        lacking=lacking_on_gpu(model).replace("cost=", "model="),
        links=links,
        direction=direction,
        connectivity=connectivity,
        max_cost=max_cost,
        cell_size=cell_size,
        target_values=target_values,
        label=label,
        all_touched=all_touched,
        initial_cost=initial_cost,
        source_cost=source_cost,
        snap=snap,
        outside=outside,
        outputs=outputs,
    )
