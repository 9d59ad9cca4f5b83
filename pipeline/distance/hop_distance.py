"""The operation `hop_distance`: breadth-first search levels over passable cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack, cast

from orograph.arguments.barriers import BARRIERS, BarriersLike, parse_barriers
from orograph.arguments.sources import PlaceOptions, SourcesLike, SourceSpec, parse_sources
from orograph.distance.hops import Hops
from orograph.distance.poles import over_poles
from orograph.operations.operation import operation
from orograph.run.job import raster_job
from orograph.run.options import RunOptions, RunSpec
from orograph.tiles.arguments import check_choice, check_flag, check_integer, refuse_arguments
from orograph.tiles.graph.graph import Graph, VerticesLike
from orograph.tiles.raster.mask import MaskRaster, ValidRaster
from orograph.tiles.raster.raster import Raster, RasterLike
from orograph.tiles.raster.wrap import poles_of, wraps_of

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job


MOST_HOPS = 2**52  # exact in float64, and more than any grid has cells


class HopOptions(PlaceOptions, RunOptions, total=False):
    """Keywords of distances in steps."""

    outside: str


@operation(estimate_graph="orograph.graphs.estimate:estimate_hops")
def hop_distance(
    mask: RasterLike | Graph,
    sources: SourcesLike | VerticesLike,
    *,
    barriers: BarriersLike | None = None,
    connectivity: int = 8,
    max_hops: int | None = None,
    poles: bool = False,
    predecessors: bool = False,
    **options: Unpack[HopOptions],
) -> Job[xr.Dataset]:
    """Return the least number of steps from any source to each passable cell.

    Parameters
    ----------
    mask : raster or Graph
        Passable cells: those that are not 0 or nodata; shape (y, x).
    sources : raster, points or vector layer
        As for `cost_distance`.
    barriers : raster, vector layer or list, optional
        As for `cost_distance`, but without penalties.
    connectivity
    max_hops : int, optional
        Cells at more steps stay unreached.
    poles : bool
        As for `cost_distance`.
    predecessors : bool
        For graphs only: also return the previous vertex on a shortest path; among several, the
        first in the order of the source.
    **options

    Returns
    -------
    xarray.Dataset
        ``hops`` (y, x), int32 (int64 for grids of 2**31 cells and more), -1 (``_FillValue``) where
        unreached. Attributes ``reached_cells``, ``unreached_cells``, ``impassable_cells``. For a
        `Graph`: ``hops`` (vertex) and ``predecessor`` (vertex), positions along ``vertex`` or
        -9999; sources are ids of vertices.

    Raises
    ------
    InputError, StoreExistsError, BackendError

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> maze = np.array([[1, 0, 1], [1, 0, 1], [1, 1, 1]], bool)
    >>> og.hop_distance(maze, [(0, 0)], connectivity=4)["hops"].values
    array([[ 0, -1,  6],
           [ 1, -1,  5],
           [ 2,  3,  4]], dtype=int32)
    """
    connectivity = check_choice("connectivity", connectivity, (4, 8))
    if max_hops is not None:
        max_hops = check_integer("max_hops", max_hops, 0, MOST_HOPS)
    given, spec = SourceSpec.of(options), RunSpec.of(options)
    if isinstance(mask, Graph):
        from orograph.graphs.hops import hops_job

        spec.refuse_of_rasters(
            **given.changed(),
            barriers=barriers is not None,
            connectivity=connectivity != 8,
            poles=poles,
        )
        return hops_job(mask, cast("VerticesLike", sources), max_hops, predecessors, spec)
    refuse_arguments("a raster", predecessors=check_flag("predecessors", predecessors))
    raster = spec.open(mask, "mask")
    barred = parse_barriers(barriers, raster, no_penalties="hops are counted, not costs").barred
    passable: Raster = MaskRaster(raster)
    named = {"friction": raster}
    if barred is not None:
        passable = ValidRaster(passable, (), barred)
        named[BARRIERS] = barred
    origin = parse_sources(
        cast("SourcesLike", sources), passable, given, barriers="cells that are not passable"
    )
    cells, source_raster, targets = origin.cells, origin.raster, origin.targets
    if source_raster is not None:
        named["sources"] = source_raster
    rasters = tuple(named.values())
    problem = Hops.on_mask(
        raster.shape,
        {name: r.nodata for name, r in named.items()},
        connectivity,
        max_hops,
        sources=cells,
        targets=targets,
    )
    joined = poles_of(raster, poles, wraps_of(raster, spec.wrap))
    problem = over_poles(problem, rasters, joined)
    return raster_job(problem, rasters, spec, notes=origin.notes, poles=joined)
