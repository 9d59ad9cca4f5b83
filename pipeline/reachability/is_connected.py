"""The operation `is_connected`: whether cells are connected, and along which shortest paths.

A single pair is searched by a bidirectional search (`orograph.reachability.tile`). For many pairs,
one pass over the raster first excludes those whose ends lie in different components.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np
import numpy.typing as npt

from orograph.arguments.settings import setting
from orograph.distance.paths import line_of_path
from orograph.graphs.job import WholeGraph
from orograph.kernels.backends import may_use_numba
from orograph.operations.operation import operation
from orograph.reachability.pairs import EndSets, Query, connected_pairs, hops_on, search_all
from orograph.reachability.search import SearchResult
from orograph.results.paths import LeastCostPath
from orograph.run.backends import choose_backend
from orograph.run.context import RunContext
from orograph.run.feedback import Progress
from orograph.run.job import Job, UnstoredJob, goes_around, layout_of
from orograph.run.options import RunSpec, SearchOptions
from orograph.run.run import Engine
from orograph.tiles import html
from orograph.tiles.arguments import check_choice, check_flag
from orograph.tiles.errors import InputError
from orograph.tiles.graph.graph import Graph, VerticesLike
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.mask import MaskRaster
from orograph.tiles.raster.points import (
    PointsLike,
    as_points,
    cells_of,
    coordinates_of,
    is_point,
)
from orograph.tiles.raster.raster import Raster, RasterLike
from orograph.tiles.raster.snapping import (
    SnapLike,
    SnapRadius,
    distances_moved,
    parse_snap,
    snap_to_valid,
)
from orograph.tiles.raster.wrap import poles_of, turn_of
from orograph.tiles.store.create import Layout
from orograph.tiles.vector.burn import burn
from orograph.tiles.vector.layer import VectorLayer, read_layer
from orograph.tiles.vector.turns import Turn, over_poles, unwound

if TYPE_CHECKING:
    from distributed import Client

    from orograph.run.shared_data import Handle

Cells = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Reach:
    """Result of `is_connected`; its truth value tells whether a single pair is connected.

    Attributes
    ----------
    connected
        Whether each pair is connected, shape (n,), bool.
    hops
        Least number of steps of each pair, int64, -1 if not connected; None if not requested.
    paths
        Path of each pair from ``s`` to ``t``, whose ``cost`` is the number of steps, or None if not
        connected; None instead of the list if not requested.
    tiles
        Number of tiles searched for each pair, int64; 0 if its ends were known to lie in different
        components, or in the same component and nothing else was requested.
    snap_distances
        How far both points of each pair lie from the cells they were moved to, float64, shape
        (n, 2), in metres, or in the unit of the coordinates if that is not known; 0 where they were
        not moved. None without ``snap``.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> reach = og.is_connected(np.array([[1, 0, 1], [1, 1, 1]]), (0, 0), (2, 0), connectivity=4)
    >>> bool(reach), reach.hops.tolist(), reach.paths[0].cells.tolist()
    (True, [4], [[0, 0], [1, 0], [1, 1], [1, 2], [0, 2]])
    """

    connected: npt.NDArray[np.bool_]
    hops: npt.NDArray[np.int64] | None
    paths: list[LeastCostPath | None] | None
    tiles: npt.NDArray[np.int64]
    snap_distances: npt.NDArray[np.float64] | None = field(default_factory=lambda: None)

    def _repr_html_(self) -> str:
        rows = {"pairs": self.connected.size, "connected": int(self.connected.sum())}
        if self.hops is not None and self.connected.any():
            known = self.hops[self.connected]
            rows |= {"fewest hops": int(known.min()), "most hops": int(known.max())}
        return html.table("Reach", rows)

    def __bool__(self) -> bool:
        if self.connected.size != 1:
            raise InputError(
                f"{self.connected.size} pairs are not simply true or false; use .connected.all() "
                "or .connected.any()"
            )
        return bool(self.connected[0])


@operation(
    "orograph.reachability.estimate:estimate_reach", "orograph.graphs.estimate:estimate_connected"
)
def is_connected(
    mask: RasterLike | Graph,
    s: PointsLike | VerticesLike,
    t: PointsLike | VerticesLike,
    *,
    connectivity: int = 8,
    hops: bool = True,
    path: bool = True,
    snap: SnapLike = False,
    poles: bool = False,
    **options: Unpack[SearchOptions],
) -> Job[Reach]:
    """Return whether cells are connected, and a shortest path and its number of steps.

    Parameters
    ----------
    mask : raster or Graph
        Passable cells: those that are not 0 or nodata; shape (y, x). Accepts the same rasters as
        `minimum_spanning_forest`.
    s, t : points or vector layer
        Start and end, as points or a vector layer: a point (x, y) in map coordinates, or points,
        shape (n, 2), or a vector layer, which is transformed to the CRS of the mask. A line, an
        area or a multipoint counts as one end: a path may begin or end at any passable cell of it,
        as burnt by `rasterize`. One end may be paired with many.
    connectivity
    hops : bool
        Also find the least number of steps; without it, the search stops as soon as the ends are
        known to be connected.
    path : bool
        Also find a path of that length; ignored without ``hops``.
    snap : bool, int or str
        Move points that are not on passable cells to the nearest passable cell: True within 10
        cells, or within a number of cells, or within a length such as ``"300 m"``.
    poles : bool
        As for `cost_distance`.
    **options

    Returns
    -------
    Reach
        ``connected``, ``hops``, ``paths``, ``tiles`` and ``snap_distances``, with one entry for
        each pair. For a `Graph`, ``s`` and ``t`` are ids of vertices, the ``cells`` of a path are
        such ids, and ``tiles`` counts its parts.

    Raises
    ------
    InputError
        If an argument is invalid, or points lie outside the grid or on impassable cells; the first
        of them are listed.
    BackendError
        If the backend has no kernel for this search.

    Notes
    -----
    The backend ``"auto"`` is the CPU here. With ``"cuda"`` a GPU searches a graph, which it keeps,
    from both ends.

    A single pair is searched by a bidirectional search, tile by tile, until the results of both
    directions prove the least number of steps; only the tiles that they touch are read. If the ends
    are not connected, the search ends when the smaller side is exhausted. For more than one pair,
    one pass over the raster, which writes nothing, first finds the components of the ends. Then
    only connected pairs are searched, each in one task. For many ends around one start,
    `hop_distance` does less work.

    Among the shortest paths the same one is always chosen, whatever the tiling and the number of
    workers: the path through the first cell, row by row from the north-west, of those midway
    (``hops // 2`` steps from ``s``). From that cell to both ends, each step goes to the first
    neighbour that is one step nearer, east first, then clockwise; over a pole only if none is.

    References
    ----------
    I. Pohl, "Bi-directional search", Machine Intelligence 6 (1971), 127-140.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> maze = np.array([[1, 0, 1, 0], [1, 0, 1, 0], [1, 1, 1, 0], [0, 0, 0, 1]], bool)
    >>> reach = og.is_connected(maze, (0, 0), [(2, 0), (3, 3)], connectivity=4)
    >>> reach.connected.tolist(), reach.hops.tolist()
    ([True, False], [6, -1])
    >>> reach.paths[0].coordinates.tolist()
    [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [1.0, 2.0], [2.0, 2.0], [2.0, 1.0], [2.0, 0.0]]
    """
    connectivity = check_choice("connectivity", connectivity, (4, 8))
    hops, path = check_flag("hops", hops), check_flag("path", path)
    spec = RunSpec(**options)
    if isinstance(mask, Graph):
        spec.refuse_of_rasters(snap=bool(snap), connectivity=connectivity != 8, poles=poles)
        ends_of_graph = cast("VerticesLike", s), cast("VerticesLike", t)
        return _graph_job(mask, *ends_of_graph, hops, path, spec)
    raster = spec.open(mask, "mask")
    # few cells of a tile are near the fronts: too few for a GPU, unless one says so
    on_cpu = may_use_numba(spec.backend or setting("backend"))
    stage = "bidirectional_search" if on_cpu else "open_tile"
    chosen = choose_backend(stage, (raster,), spec)
    ends, moved = _ends(raster, cast("PointsLike", s), cast("PointsLike", t), snap)
    layout = layout_of(raster, spec)
    wanted = hops, hops and path
    wraps = goes_around(raster, spec, layout.tile)
    joined = poles_of(raster, poles, wraps)
    links = hops_on(MaskRaster(raster), connectivity, joined).links

    def make_engine(rasters: tuple[Raster, ...], context: RunContext, backend: str) -> _PairSearch:
        query = Query(
            MaskRaster(rasters[0]),
            ends,
            connectivity,
            *wanted,
            context,
            backend=backend,
            links=links,
        )
        turn = turn_of(raster) if context.quadtree.wraps else None
        return _PairSearch(query, raster.georeference, moved, turn)

    def result(engine: _PairSearch, attributes: dict[str, Any]) -> Reach:
        return engine.reach()

    of_grid = (raster,), raster.shape, layout, chosen
    searches = "is-connected", make_engine, result
    closed: dict[str, Any] = {"wraps": wraps, "poles": joined}
    return UnstoredJob(*of_grid, *searches, spec=spec, reads_all=False, **closed)


def _graph_job(
    graph: Graph,
    s: VerticesLike,
    t: VerticesLike,
    hops: bool,
    path: bool,
    spec: RunSpec,
) -> Job[Reach]:
    """Return the job that searches between pairs of vertices of a graph, in this process."""
    from orograph.graphs.hops import pairs_of, ways_between

    # few vertices are near the fronts: too few for a GPU, unless one says so
    on_cpu = may_use_numba(spec.backend or setting("backend"))
    chosen = "numba" if on_cpu else choose_backend("graph_between", (), spec)
    pairs = pairs_of(graph, s, t)

    def search(backend: str) -> Reach:
        ways = ways_between(graph, pairs, backend)
        counts = np.array([-1 if way is None else int(way.cost) for way in ways], np.int64)
        searched = np.full(counts.size, graph.part_count)
        paths = ways if hops and path else None
        return Reach(counts >= 0, counts if hops else None, paths, searched)

    def make_engine(rasters: tuple[Raster, ...], context: RunContext, backend: str) -> WholeGraph:
        return WholeGraph(lambda cancelled: ({"reach": search(backend)}, {}))

    def result(engine: WholeGraph, attributes: dict[str, Any]) -> Reach:
        found: Reach = attributes["reach"]
        return found

    alone = (), (1, 1), Layout(1, 1), chosen
    return UnstoredJob(*alone, "is-connected", make_engine, result, spec=spec)


@dataclass
class _PairSearch(Engine):
    """Engine that searches for all pairs, and holds the results found so far."""

    query: Query
    georeference: Georeference
    moved: npt.NDArray[np.float64] | None
    turn: Turn | None
    """Western end and width of a grid that wraps, see `turn_of`; None where it does not."""
    found: dict[int, SearchResult] = field(default_factory=dict)
    connected: npt.NDArray[np.bool_] | None = None

    def run(self, client: Client | None, handle: Handle, cancelled: Event) -> dict[str, Any]:
        """Search for all pairs; return no attributes."""
        try:
            self._search(client, cancelled)
        except BaseException:
            cancelled.set()  # other threads need not go on
            raise
        return {}

    def _search(self, client: Client | None, cancelled: Event) -> None:
        query = self.query
        # A single pair is searched at once. Of several, those in different components need no
        # search, and would take the longest: each would fill a whole component.
        connected = np.ones(len(query.ends), np.bool_)
        if len(query.ends) > 1:
            connected = connected_pairs(query, client, cancelled)
        self.connected = connected
        if len(query.ends) == 1 or query.hops:
            search_all(query, np.flatnonzero(connected), client, cancelled, self.found)

    def reach(self) -> Reach:
        """Build the `Reach` of all pairs from the results found."""
        assert self.connected is not None
        query, count = self.query, len(self.query.ends)
        hops, tiles = np.full(count, -1, np.int64), np.zeros(count, np.int64)
        paths: list[LeastCostPath | None] = [None] * count
        for pair, message in self.found.items():
            hops[pair], tiles[pair] = message.hops, message.tiles
            if message.cells is not None:
                rows, columns = message.cells.T
                coordinates = coordinates_of(rows, columns, self.georeference)
                line = unwound(coordinates, self.turn)
                if query.links is not None:
                    over = over_poles(line, message.cells, query.mask.shape[1])
                    line = line_of_path(line, {}, over)
                crs, steps = self.georeference.map_crs, float(message.hops)
                paths[pair] = LeastCostPath(
                    message.cells, coordinates, steps, crs, line, turn=self.turn
                )
        connected = self.connected & (hops >= 0) if self.found else self.connected
        return Reach(
            connected,
            hops if query.hops else None,
            paths if query.path else None,
            tiles,
            self.moved,
        )

    def progress(self) -> Progress:
        """Return the number of finished pairs, and of all pairs."""
        known = 0 if self.connected is None else int((~self.connected).sum())
        return Progress(known + len(self.found), len(self.query.ends))

    def statistics(self) -> dict[str, int]:
        """Return the number of tiles visited by all searches."""
        return {"tiles_searched": sum(message.tiles for message in tuple(self.found.values()))}


def _ends(
    raster: Raster, s: PointsLike, t: PointsLike, snap: SnapLike
) -> tuple[EndSets, npt.NDArray[np.float64] | None]:
    """Return the cells of both ends of each pair, and how far these were moved if they may be."""
    mask, radius = MaskRaster(raster), parse_snap(snap, raster.georeference)
    sets, moved = zip(
        *(_sets(mask, given, name, radius) for name, given in (("s", s), ("t", t))), strict=True
    )
    counts = [len(cells) for cells in sets]
    if 1 not in counts and counts[0] != counts[1]:
        raise InputError(
            f"s, t: {counts[0]} and {counts[1]} points; give as many of each, or one of one"
        )
    # Sets of cells are numbered s first, then t, one after the other.
    first = np.cumsum([0, *(len(cells) for some in sets for cells in some)])
    numbers = (np.arange(counts[0]), np.arange(counts[1]) + counts[0])
    # A single end is paired with each of the others.
    pairs = np.stack([np.broadcast_to(n, max(counts)) for n in numbers], axis=1)
    ends = EndSets(np.concatenate([cells for some in sets for cells in some]), first, pairs)
    return ends, np.concatenate(moved)[pairs] if radius else None


def _sets(
    mask: MaskRaster, given: PointsLike, name: str, radius: SnapRadius
) -> tuple[list[Cells], npt.NDArray[np.float64]]:
    """Return the cells of each point or geometry, rows and columns, and how far it was moved."""
    layer = read_layer(given, name)
    if layer is not None and not all(map(is_point, layer.geometry)):
        found = _cells_of_geometries(mask, layer, name)
        return found, np.zeros(len(found))
    place = mask.georeference
    points = as_points(given if layer is None else layer, name, place)
    cells = cells_of(points, place, mask.shape, name)
    on_cells = snap_to_valid(*cells, mask, points, radius, name, "cells that are not passable")
    moved = distances_moved(points, *on_cells, np.stack(cells), place)
    return list(np.stack(on_cells, axis=1)[:, None]), moved


def _cells_of_geometries(mask: MaskRaster, layer: VectorLayer, name: str) -> list[Cells]:
    """Return the passable cells that each geometry covers."""
    place = mask.georeference
    spans = burn(layer.on_grid(place, name), place, mask.shape, False, name)
    sets: list[list[Cells]] = [[] for _ in layer.geometry]
    # By rows, so that each tile is read while it is in the cache.
    for row, start, stop, number in np.stack(spans, axis=1)[np.argsort(spans.row)].tolist():
        (there,) = np.nonzero(mask.read(Window(row, start, 1, stop - start))[0])
        sets[number].append(np.stack([np.full(there.size, row), there + start], axis=1))
    found = [np.unique(np.concatenate(parts), axis=0) for parts in sets]
    for number, cells in enumerate(found):
        if not cells.size:
            raise InputError(
                f"{name}: geometry {number} covers no passable cell; move it, or leave it out"
            )
    return found
