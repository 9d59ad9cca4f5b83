"""The operation `fill_depressions`: raise depressions to the level where they spill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from orograph.arguments.sources import SourcesLike, SourceSpec, parse_sources
from orograph.operations.operation import operation
from orograph.run.job import raster_job, units_of
from orograph.run.options import RunOptions, RunSpec
from orograph.terrain.epsilon_fill import EpsilonFill
from orograph.terrain.water import Marks, Outlets, WaterLevel
from orograph.tiles.arguments import check_choice, check_number, check_outputs, refuse_arguments
from orograph.tiles.grid.orientation import NORTH_UP
from orograph.tiles.nodata import UNUSED_LABEL
from orograph.tiles.raster.raster import Raster, RasterLike
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job


OUTPUTS = ("filled", "depth", "depression")


@operation(counts=("pits",))
def fill_depressions(
    elevation: RasterLike,
    *,
    outlets: SourcesLike | None = None,
    connectivity: int = 8,
    max_depth: float | None = None,
    gradient: bool | float = False,
    outputs: str | Sequence[str] = ("filled",),
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return an elevation raster of any size with its depressions filled to their spill levels.

    Each path from a cell to an outlet has a highest cell. The cell is raised to the height of the
    lowest of these, so that from every cell a path leads to an outlet without rising; with
    ``gradient``, to a step above a neighbour, so that the path falls.

    Parameters
    ----------
    elevation
    outlets : raster or points, optional
        Where water leaves; by default at the edge of the raster and next to nodata. Otherwise only
        where a raster of the same grid is not 0 or nodata, or at points (x, y), given like the
        sources of `cost_distance`.
    connectivity
    max_depth : float, optional
        Depressions that are deeper, from their lowest cell to their spill level, are not filled.
    gradient : bool or float, optional
        Fill to a surface that drains: from each cell a path leads to an outlet that falls at every
        step. A cell is raised to the given step above its lowest neighbour, in the unit of
        heights, or with True by the spacing of floats, the least there is; see Notes.
    outputs : sequence of {"filled", "depth", "depression"}
        Variables of the result.
    **options

    Returns
    -------
    xarray.Dataset
        ``filled``, with the dtype of the elevation; integers become float64 with ``gradient``.
        ``depth``, float64: by how much cells were
        raised; NaN on nodata. ``depression``, int64: where cells were raised, the row-major index
        of the lowest cell of their depression, from 1; 0 elsewhere. Coordinates and CRS are those
        of the input.

    Raises
    ------
    InputError
        If an argument is invalid, or an outlet lies outside the grid or on nodata; with
        ``gradient``, at the cell where the dtype has no number a step above a height.
    StoreExistsError, BackendError

    Notes
    -----
    The result is exact: a filled cell has the height of one of the raster's cells, so any priority
    flood gives the same result, and any tiling the same bits. Cells from which no path leads to an
    outlet are not changed; by default there are none. Among equally low cells, the first
    from the north-west is the lowest of its depression. Each cell is read twice and written once.

    With ``gradient`` the result is the least surface F with F = z where water leaves, and else
    F(c) = max(z(c), min over the neighbours n of up(F(n))), where up(x) is x + step rounded once to
    the dtype, or x + the spacing of its floats at max(abs(x), 1). There is one, so any tiling gives
    the same bits, and filling it again changes nothing. It is computed on CPUs, outwards from the
    outlets as distances are: tiles are visited until none can lower another.

    References
    ----------
    R. Barnes, C. Lehman, D. Mulla, "Priority-flood: An optimal depression-filling and
    watershed-labeling algorithm for digital elevation models", doi:10.1016/j.cageo.2013.04.024, for
    ``gradient``.

    R. Barnes, "Parallel priority-flood depression filling for trillion cell digital elevation
    models on desktops or clusters", doi:10.1016/j.cageo.2016.07.001.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> bowl = np.array([[9, 9, 9, 9], [9, 2, 5, 7], [9, 9, 9, 9]])
    >>> og.fill_depressions(bowl)["filled"].values
    array([[9, 9, 9, 9],
           [9, 7, 7, 7],
           [9, 9, 9, 9]])
    >>> filled = og.fill_depressions(bowl, outputs=["depth", "depression"])
    >>> filled["depth"].values[1], filled["depression"].values[1]
    (array([0., 5., 2., 0.]), array([0, 6, 6, 0]))
    >>> og.fill_depressions(bowl, gradient=0.25)["filled"].values[1]
    array([9.  , 7.5 , 7.25, 7.  ])
    """
    connectivity = check_choice("connectivity", connectivity, (4, 8))
    wanted = check_outputs(outputs, OUTPUTS)
    deepest = np.inf if max_depth is None else check_number("max_depth", max_depth, 0)
    spec = RunSpec(**options)
    raster = spec.open(elevation, "elevation")
    points, marked, targets = None, None, None
    if outlets is not None:
        origin = parse_sources(outlets, raster, SourceSpec(), name="outlets", skips=False)
        points, marked, targets = origin.cells, origin.raster, origin.targets
    rasters = (raster,) if marked is None else (raster, marked)
    marks = () if marked is None else (Marks(marked.nodata, targets),)
    if gradient is not False:
        refuse_arguments(
            "gradient=", max_depth=max_depth is not None, outputs="depression" in wanted
        )
        smallest, largest = np.finfo(np.float64).tiny, np.finfo(np.float64).max
        words = "a step in the unit of heights, or True for the least there is"
        step = (
            0.0
            if gradient is True
            else check_number("gradient", gradient, smallest, largest, words)
        )
        dtype = raster.dtype if raster.dtype.kind == "f" else np.dtype(np.float64)
        flood = EpsilonFill(
            *(raster.shape, raster.nodata, dtype, connectivity, step),
            None if outlets is None else Outlets(points, marks, closed=True),
            tuple(v for v in _variables(raster, dtype) if v.name in wanted),
        )
        return raster_job(flood, rasters, spec, units=units_of(raster, "filled", "depth"))
    problem = WaterLevel(
        raster.nodata,
        connectivity,
        "fill-depressions",
        tuple(variable for variable in _variables(raster, raster.dtype) if variable.name in wanted),
        points,
        marks,
        outlets is None,
        deepest,
        # levels depend on no order of cells, which cell is the lowest of a depression does
        orientation=raster.georeference.orientation if "depression" in wanted else NORTH_UP,
    )
    return raster_job(problem, rasters, spec, units=units_of(raster, "filled", "depth"))


def _variables(raster: Raster, dtype: np.dtype[Any]) -> tuple[Variable, ...]:
    """Return the output variables that `fill_depressions` can write; ``dtype`` is of heights."""
    gap = raster.nodata
    if dtype.kind == "f" and (gap is None or dtype != raster.dtype):
        gap = np.nan
    return (
        Variable("filled", dtype, gap, {"long_name": "elevation without depressions"}),
        Variable("depth", np.dtype(np.float64), np.nan, {"long_name": "depth of the filling"}),
        Variable(
            "depression",
            np.dtype(np.int64),
            None,
            {"long_name": "depression, by its lowest cell"} | UNUSED_LABEL,
        ),
    )
