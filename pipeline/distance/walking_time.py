"""The operation `walking_time`: walking times over an elevation model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from orograph.arguments.sources import SourceSpec
from orograph.arguments.steps import DTYPES, SlopeOptions, SlopeSpec, StepSpec
from orograph.distance.cost_distance import DistanceOptions, DistanceSpec, distance_job
from orograph.distance.costs.surface import SLOPES, in_metres, model_of, open_surface
from orograph.operations.operation import operation
from orograph.results.costs import TIME
from orograph.run.options import RunSpec
from orograph.tiles.arguments import check_choice

if TYPE_CHECKING:
    import xarray as xr

    from orograph.arguments.sources import SourcesLike
    from orograph.run.job import Job
    from orograph.tiles.raster.raster import RasterLike


class WalkingOptions(SlopeOptions, DistanceOptions, total=False):
    """Keywords of walking times."""


@operation()
def walking_time(
    elevation: RasterLike,
    sources: SourcesLike,
    *,
    model: str = "tobler",
    rasters: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = ("time",),
    **options: Unpack[WalkingOptions],
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
    model : str
        Tobler's hiking function (``"tobler"``) or GRASS r.walk by Naismith and Langmuir
        (``"walk"``). Both return seconds: heights and lengths become metres first. Coordinates
        whose unit is not known count as metres.
    rasters : mapping of str to raster, optional
        Further rasters, by name, for a model of your own, such as ``{"wind": wind}``; the models
        above do not need any.
    dtype : {"float64", "float32"}
        Dtype of the times; each step is computed in float64 and rounded to it.
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
    name = check_choice("model", model, SLOPES)
    steps, slopes, spec = StepSpec.of(options), SlopeSpec.of(options), RunSpec.of(options)
    surface = open_surface(
        elevation,
        model_of(name, slopes),
        spec.choice,
        slopes.friction,
        rasters,
        barriers=steps.barriers,
    )
    asked = DistanceSpec(
        steps, SourceSpec.of(options), spec, outputs, variable=TIME, dtypes=DTYPES[:2]
    )
    return distance_job(in_metres(surface, slopes.elevation_unit), sources, asked)
