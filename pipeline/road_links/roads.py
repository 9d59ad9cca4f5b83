"""The function `roads`, which converts lines to links between the cells of a raster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.roads.cut import MANY, Pieces, cut_lines
from orograph.road_links.lines import Lines, grid_of, place_lines, read_roads
from orograph.road_links.network import (
    Arcs,
    PieceEnds,
    Vertices,
    crossings,
    find_ends,
    find_vertices,
    inside_cells,
    join,
    leave_out,
)
from orograph.road_links.tags import (
    BACKWARD,
    BOTH,
    ENDS,
    EVERYWHERE,
    access_of,
    directions_of,
    speeds_of,
    warn_of_left_out,
)
from orograph.tiles.arguments import check_choice
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.errors import InputError, own_errors
from orograph.tiles.extensions import check_extension
from orograph.tiles.graph.graph import Graph, make_graph
from orograph.tiles.graph.store import write_graph
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.open_storage import open_storage
from orograph.tiles.raster.raster import Raster, RasterLike, open_raster
from orograph.tiles.vector.layer import VectorLayer, VectorLike

COSTS = ("time", "length")
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_READ_SIDE = 512

Mask = npt.NDArray[np.bool_]


class Rules(NamedTuple):
    """Rules of each line: cost per unit of length, open directions, access."""

    pace: npt.NDArray[np.float64]
    direction: npt.NDArray[np.int8]
    access: Array


@own_errors
def roads(
    lines: VectorLike,
    *,
    like: RasterLike,
    speed: float | str | Mapping[str, float | None] | None = None,
    oneway: bool | str | None = None,
    access: str | None = None,
    cost: str = "time",
    unit: str = "s",
    store: str | Path | None = None,
) -> Graph:
    """Return roads as a graph between the cells of a raster, for use as ``links`` of distances.

    Parameters
    ----------
    lines : vector layer of lines
        Roads: a GeoDataFrame, a GeoSeries, shapely geometries, any object with
        ``__geo_interface__``, the path of a vector file, or the path of an extract of OpenStreetMap
        (``.osm``, ``.osm.pbf``), from which the ways with a tag ``highway`` are read. They are
        transformed to the CRS of the raster.
    like : raster
        Friction or elevation on which distances are computed. Travellers can enter and leave roads
        only in its valid cells.
    speed : float, str or mapping, optional
        Speed in km/h: one number, the name of a column, or a mapping from the classes of the column
        ``highway`` to speeds, in which None leaves lines out. By default the classes for cars have
        the speeds of OSRM's car profile, see Notes, and other lines are left out. Only needed if
        ``cost`` is ``"time"``.
    oneway : bool or str, optional
        Whether lines are one-way, in the order of their points, or the name of a column with the
        values of OpenStreetMap: yes, no, -1, reversible (taken as both directions). By default the
        column ``oneway``, if there is one; where it has no value, roundabouts (``junction``) and
        motorways are one-way.
    access : {"everywhere", "ends", "junctions"} or str, optional
        Where travellers can enter and leave a line, or the name of a column of these words.

        - ``"everywhere"``: in every cell that it passes.
        - ``"ends"``: at its two ends, and where it shares a point with a line that has access
          everywhere.
        - ``"junctions"``: only where it shares a point with a line that has access everywhere, and
          where it ends without any other line.

        By default ``"junctions"`` for bridges, tunnels and motorways by their tags ``bridge``,
        ``tunnel`` and ``highway``, and ``"everywhere"`` for all other lines.
    cost : {"time", "length"}
        Meaning of the weights: travel times, or lengths. Lengths are in the unit in which steps are
        measured: metres on geographic rasters, else units of the CRS.
    unit : {"s", "min", "h"}
        Unit of travel times. `walking_time` needs seconds; `cost_distance` needs the time unit of
        the friction, which is a time per length.
    store : path, optional
        Zarr group to write; the graph is then read from there when needed.

    Returns
    -------
    Graph
        Undirected if no line is one-way, else directed. Vertices are the places of access, with
        their coordinates in the CRS of the raster; weights are float64.

    Raises
    ------
    InputError
        If an argument is invalid, a line does not have a speed, the raster has a CRS but the layer
        does not, or no line passes a valid cell of the raster.
    StoreExistsError
        If something already exists at ``store``.

    Notes
    -----
    Lines are connected where they share a point, at ends or in between. Lines that cross without a
    shared point are only connected through cells in which travellers can leave one and enter the
    other. Entering and leaving costs nothing, and all roads with access in the same cell count as
    adjacent.

    In each cell, connected roads have one vertex. If a single road passes, it is the middle of that
    road. Otherwise it is the shared point or line end where most pieces meet; among several, the
    one nearest to the mean of all of them and of the points at the border. The cost of an edge is
    the cost along the road from vertex to vertex. So following a road costs what its whole length
    costs. Where roads meet, and at both ends of a ride, the cost is accurate to the size of a cell.
    One-way roads are one-way from cell to cell; within a cell directions do not matter.

    Parts outside the raster are left out; a warning tells how many lines lie outside altogether,
    and of which classes. If a line with access at ends or junctions leaves the raster between two
    points of access, the part between these points is left out. Roads continue
    through nodata cells, but travellers cannot enter or leave them there.

    Lengths are planar, or geodesic on the ellipsoid of the CRS on geographic rasters. Speeds by
    class in km/h: motorway 90, trunk 85, primary 65, secondary 55, tertiary 40, unclassified and
    residential 25, living_street 10, service 15; links of motorways 45, of trunks 40, of primaries
    30, of secondaries 25, of tertiaries 20.

    References
    ----------
    D. Luxen and C. Vetter, "Real-time routing with OpenStreetMap data", ACM SIGSPATIAL 2011,
    doi:10.1145/2093973.2094062.

    J. Amanatides and A. Woo, "A Fast Voxel Traversal Algorithm for Ray Tracing", Eurographics 1987,
    doi:10.2312/egtp.19871000.

    Examples
    --------
    A road at 36 km/h, 10 metres a second, over ground that takes 2 seconds a metre:

    >>> import numpy as np
    >>> import orograph as og
    >>> from shapely import LineString
    >>> friction = np.full((2, 4), 2.0)
    >>> road = og.roads([LineString([(0, 0), (3, 0)])], like=friction, speed=36)
    >>> road
    <Graph: 4 vertices, 3 undirected edges, 1 part>
    >>> og.cost_distance(friction, [(0, 0)], links=road)["cost"].values.round(2)
    array([[0.  , 0.1, 0.2, 0.3],
           [2.  , 2.1, 2.2, 2.3]])
    """
    cost, unit = check_choice("cost", cost, COSTS), check_choice("unit", unit, tuple(UNITS))
    target = None if store is None else open_storage(store, "store")
    if target is not None:
        check_extension("store", target)
    raster = open_raster(like, argument="like")
    layer = read_roads(lines)
    pace = np.ones(len(layer))
    if cost == "time" or speed is not None:
        speeds = speeds_of(layer, speed)
        # An infinite speed marks lines that are left out.
        layer, speeds = _without(layer, np.isfinite(speeds)), speeds[np.isfinite(speeds)]
        # From km/h to seconds a metre, and from these to the unit asked for.
        pace = 3.6 / speeds / UNITS[unit] if cost == "time" else np.ones(speeds.size)
    rules = Rules(pace, directions_of(layer, oneway), access_of(layer, access))
    length = raster.georeference.length_unit
    unit_of_weights = unit if cost == "time" else length and length.name
    graph = _graph(place_lines(layer, raster, cost == "time"), rules, raster, layer)
    graph = replace(graph, unit=unit_of_weights)
    return graph if target is None else write_graph(graph, target)


def _without(layer: VectorLayer, kept: Mask) -> VectorLayer:
    """Return a layer with only the lines that are kept."""
    if kept.all():
        return layer
    columns = {name: np.asarray(values)[kept] for name, values in layer.columns.items()}
    return VectorLayer(layer.geometry[kept], columns, layer.crs, layer.bare)


def _graph(lines: Lines, rules: Rules, raster: Raster, layer: VectorLayer) -> Graph:
    """Return the graph of the lines of a layer."""
    directed = bool((rules.direction != BOTH).any())
    may_leave = _nodes_with_access(lines, rules.access)
    given = lines.points, lines.size, lines.first, lines.node, lines.nodes
    cut = cut_lines(*given, rules.access != EVERYWHERE, raster.shape)
    if not cut.cell.size:
        raise InputError(
            "lines: no line passes the raster; is the layer of this area, and its CRS right?"
        )
    outside = np.bincount(cut.line, minlength=len(layer)) == 0
    why = "as they lie outside of the raster, or leave it between two points of access"
    warn_of_left_out(layer, outside, why)
    # A short bridge within a cell is a road like any other, if one may leave it at both ends.
    # Points from ``lines.nodes`` on are ports at borders of cells; the index is clipped for these.
    enclosed = may_leave[np.minimum(cut.start, lines.nodes - 1)]
    enclosed &= may_leave[np.minimum(cut.end, lines.nodes - 1)]
    on_ground = (rules.access[cut.line] == EVERYWHERE) | ((cut.cell != MANY) & enclosed)
    pieces, stretches = cut.some(on_ground), cut.some(~on_ground)
    where = np.concatenate([lines.where, cut.port])
    weight = pieces.length * rules.pace[pieces.line]
    ends = find_ends(pieces, rules.direction[pieces.line], where)
    vertices = find_vertices(ends, weight, lines.nodes)
    arcs = crossings(ends, vertices, directed)
    cells, points = vertices.cell, vertices.where
    if stretches.cell.size:
        added, nodes = _stretches(stretches, rules, ends, vertices, may_leave, directed)
        arcs = join([arcs, added])
        cells = np.concatenate([cells, _cells_of(lines.where[nodes], raster.shape)])
        joined = np.isin(
            nodes, ends.point
        )  # one gets off at the vertex of the road that they share
        cells[vertices.cell.size :][joined | ~may_leave[nodes]] = -1
        points = np.concatenate([points, lines.where[nodes]])
    access = _valid(raster, cells)
    if not access.any():
        raise InputError(
            "lines: they pass nodata cells of the raster alone, where one gets neither on nor "
            "off; is it the raster over which distances are computed?"
        )
    arcs = leave_out(arcs, access, directed)
    number = np.cumsum(access) - 1
    place = grid_of(raster.georeference)
    x, y = place.to_map(inside_cells(points[access], cells[access], raster.shape[1])).T
    return make_graph(
        number[arcs.tail],
        number[arcs.head],
        arcs.cost,
        np.arange(int(access.sum())),
        directed=directed,
        coordinates=(np.ascontiguousarray(x), np.ascontiguousarray(y)),
    )


def _nodes_with_access(lines: Lines, access: Array) -> Mask:
    """Return the nodes where lines without access in between can be left."""
    # Each occurrence of a node in a line.
    point = np.flatnonzero(lines.node >= 0)
    node = lines.node[point]
    line = np.searchsorted(lines.first, point, side="right") - 1
    at_end = (point == lines.first[line]) | (point == lines.first[line + 1] - 1)
    # a line in passing meets a node with two sides
    sides = np.bincount(node, np.where(at_end, 1, 2), lines.nodes)
    found = sides == 1
    # Besides dead ends, nodes on a line that can be left anywhere, and ends of lines with access at
    # their ends.
    found[node[access[line] == EVERYWHERE]] = True
    found[node[at_end & (access[line] == ENDS)]] = True
    return np.asarray(found)


def _stretches(
    stretches: Pieces,
    rules: Rules,
    ends: PieceEnds,
    vertices: Vertices,
    may_leave: Mask,
    directed: bool,
) -> tuple[Arcs, Integers]:
    """Return the arcs of stretches without access in between, and their nodes.

    The nodes are additional vertices, numbered after those of cells. Arcs of length 0 or more join
    them to the vertices of roads that they share with other lines.
    """
    count = vertices.cell.size
    # Nodes of stretches are vertices of their own, numbered after those of cells.
    nodes, number = np.unique(np.append(stretches.start, stretches.end), return_inverse=True)
    start, end = np.split(number + count, 2)
    weight = stretches.length * rules.pace[stretches.line]
    direction = rules.direction[stretches.line]
    forward, backward = direction != BACKWARD, direction == BOTH
    found = [Arcs(start[forward], end[forward], weight[forward])]
    against = direction == BACKWARD
    found.append(Arcs(end[against], start[against], weight[against]))
    # Where a stretch meets roads on the ground, arcs join its node to the vertices of their cells.
    shared = np.flatnonzero(np.isin(ends.point, nodes[may_leave[nodes]]))
    node = np.searchsorted(nodes, ends.point[shared]) + count
    on_road, way = vertices.of_end[shared], vertices.distance[shared]
    found.append(Arcs(node, on_road, way))
    if directed:
        found.append(Arcs(end[backward], start[backward], weight[backward]))
        found.append(Arcs(on_road, node, way))
    return join(found), nodes


def _cells_of(where: Array, shape: tuple[int, int]) -> Integers:
    """Return the numbers of the cells of columns and rows, -1 outside."""
    height, width = shape
    column, row = np.floor(where).astype(np.int64).T
    outside = (column < 0) | (row < 0) | (column >= width) | (row >= height)
    return np.where(outside, -1, row * width + column)


def _valid(raster: Raster, cells: Integers) -> Mask:
    """Return whether each numbered cell is valid in a raster; -1 is not."""
    side = raster.tile or _READ_SIDE
    rows, columns = np.divmod(cells, raster.shape[1])
    across = -(-raster.shape[1] // side)
    # Cells by tiles, so that each tile is read once; those outside (-1) come first and are passed.
    tile = np.where(cells < 0, -1, rows // side * across + columns // side)
    order = np.argsort(tile, kind="stable")
    found = np.zeros(cells.size, np.bool_)
    begins = np.flatnonzero(np.diff(tile[order], prepend=-2))
    for begin, stop in zip(begins, np.append(begins[1:], order.size), strict=True):
        inside = order[begin:stop]
        if tile[inside[0]] < 0:
            continue
        y, x = (int(n) * side for n in divmod(tile[inside[0]], across))
        window = Window(y, x, side, side).clip(raster.shape)
        valid = valid_cells(raster.read(window), raster.nodata)
        found[inside] = valid[rows[inside] - y, columns[inside] - x]
    return found
