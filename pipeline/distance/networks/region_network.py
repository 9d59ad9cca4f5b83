"""The operation `region_network`: least-cost links between regions."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from orograph.arguments.sources import PlaceOptions, SourceSpec
from orograph.arguments.steps import ReachOptions, StepSpec
from orograph.distance.cost_distance import OUTPUTS, DistanceSpec, distance_job
from orograph.distance.costs.surface import COSTS, open_surface
from orograph.distance.networks.network import WIDER, NetworkStages, RegionNetwork
from orograph.kernels.relax.models import MODELS, CostModel
from orograph.operations.operation import operation
from orograph.polygons.job import check_shapely
from orograph.run.job import layer_job
from orograph.run.options import LayerOptions, RunSpec
from orograph.tiles.arguments import check_choice
from orograph.tiles.vector.layer import VectorLayer

if TYPE_CHECKING:
    from orograph.arguments.sources import SourcesLike
    from orograph.run.job import Job
    from orograph.tiles.raster.raster import RasterLike

CONNECTIONS = ("mst", "neighbours", "neighbors")
SYMMETRIC = tuple(name for name in COSTS if MODELS[name].symmetric)
"""The models of `cost_distance` whose paths cost the same both ways."""


class NetworkOptions(PlaceOptions, ReachOptions, LayerOptions, total=False):
    pass


NetworkOptions.__doc__ = LayerOptions.__doc__  # of the layer that is written


@operation()
def region_network(
    friction: RasterLike,
    regions: SourcesLike,
    *,
    connections: str = "mst",
    cost: str = "friction",
    **options: Unpack[NetworkOptions],
) -> Job[VectorLayer]:
    """Return the cheapest network of links between regions, or the links between neighbouring
    regions.

    The network comes from a single run of `cost_distance`, however many regions there are; links
    between neighbours take ten to twenty more.

    Parameters
    ----------
    friction : raster
        As for `cost_distance`.
    regions : raster, points or vector layer
        Regions to connect, such as habitat cores, identified by their labels; given like the
        sources of `cost_distance`. A path within a region costs nothing.
    connections : {"mst", "neighbours", "neighbors"}
        The cheapest network (``"mst"``), or all links between neighbours (``"neighbours"``, or
        ``"neighbors"``). ``"mst"`` returns the minimum spanning tree of the least-cost distances
        between all regions; if paths do not connect all of them, one tree for each connected group.
        ``"neighbours"`` returns the least-cost path between every two regions whose zones touch;
        the zone of a region consists of the cells nearest to it.
    cost : {"friction", "absolute_difference"}
        Cost of a step, as for `cost_distance`: mean friction times length, or height difference.
    max_cost : float
        Links with a greater cost are left out; exact. For ``"mst"`` cells farther than half of it
        are not visited.
    **options

    Returns
    -------
    VectorLayer
        One line for each link, through the centres of its cells, from one region to another, in the
        CRS of the raster and in the order of the labels. Columns: ``from`` and ``to``, the labels,
        the smaller one first; ``cost``; ``length``, in metres, in units of the coordinates
        without a CRS, in cells without coordinates; ``from_row``, ``from_col``, ``to_row`` and
        ``to_col``: the cell where the link leaves the zone of the first region, and the one where
        it enters that of the other.

    Raises
    ------
    InputError
    RunError
        As for `cost_distance`, and if a link costs more than ``dtype`` holds.
    OrographError
        If Shapely is not installed.
    BackendError

    Notes
    -----
    After one cost distance with allocation, the cheapest path that crosses from one zone to another
    costs the distance of one cell, plus the step, plus the distance of the other cell. The minimum
    spanning tree of these links is also one of the distances between all pairs of regions
    (Mehlhorn). With ``"neighbours"``, the cheapest path between other regions may lead through
    further zones or regions. Runs of `cost_distance`, each from several regions and no farther than
    the dearest of their links, find it; each proves what it found. The plan tells the first run.

    Where a link crosses once, its cost is summed from the cell of the smaller label; along other
    links from the region of the smaller label. Among crossings with equal cost, the one
    whose cell in the zone of the smaller label comes first, row by row, is chosen, then the one
    whose other cell does. Among links with equal cost, the one with the smaller labels is chosen.
    The result has the same bits for every tile size, number of workers and backend.

    Regions connected by ground of zero cost, or points in one cell, are linked at cost 0. Their
    zones count as one zone, that of the smaller label. A region whose cells are all nodata does not
    have a link. The table and the lines are in memory.

    References
    ----------
    K. Mehlhorn, "A faster approximation algorithm for the Steiner problem in graphs", Information
    Processing Letters 27(3), 1988, doi:10.1016/0020-0190(88)90066-X.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> friction = np.array([[1.0, 1.0, 9.0, 1.0], [1.0, 9.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    >>> regions = np.array([[1, 0, 0, 2], [0, 0, 0, 0], [3, 0, 0, 0]])
    >>> links = og.region_network(friction, regions, connectivity=4)
    >>> links.to_geodataframe()[["from", "to", "cost", "geometry"]]
       from  to  cost                                   geometry
    0     1   3   2.0                 LINESTRING (0 0, 0 1, 0 2)
    1     2   3   5.0  LINESTRING (3 0, 3 1, 2 1, 2 2, 1 2, 0 2)
    """
    check_choice("connections", connections, CONNECTIONS)
    cost = check_choice("cost", cost, SYMMETRIC)
    check_shapely("region_network")
    spec, steps = RunSpec.of(options), StepSpec.of(options)
    most = steps.max_cost
    tree = connections == "mst"
    # At a crossing both distances are at most half of what the link costs, but for rounding. Zones
    # end farther away, and those that touch there may have a link that costs less.
    steps = replace(steps, max_cost=most / 2 * WIDER if tree else math.inf)
    surface = open_surface(friction, CostModel(cost), spec.choice, argument="friction")
    given = SourceSpec.of(options)
    asked = DistanceSpec(steps, given, spec, OUTPUTS, argument="regions", skips=False)
    distances = distance_job(surface, regions, asked)
    rasters = distances.rasters
    network = RegionNetwork(distances.problem, distances.shape, tree, most)

    names = distances.notes.get("source_names")

    def result(engine: NetworkStages, attributes: dict[str, Any]) -> VectorLayer:
        layer = engine.links.layer(rasters[0], engine.wraps)
        if names is None:
            return layer
        named = {end: np.array(names, object)[layer.columns[end]] for end in ("from", "to")}
        return replace(layer, columns={**layer.columns, **named})

    return layer_job(network, rasters, result, spec)
