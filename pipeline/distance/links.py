"""Links over a raster: edges of a graph between cells, which shortest paths may use.

Within a tile the grid and the links are brought to their fixpoints in turn, until neither lowers
the other. What leaves a tile goes through the driver (`orograph.engines.frontier.links`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from orograph.engines.frontier.links import LinkBorder, LinkNews, Links
from orograph.kernels.relax.border import Border
from orograph.kernels.relax.links import InnerLinks
from orograph.kernels.relax.models import BARRIER
from orograph.kernels.relax.resident import Exchange, ResidentTile
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.errors import InputError
from orograph.tiles.graph.graph import Graph
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.points import cells_of, coordinates_of
from orograph.tiles.raster.raster import Raster
from orograph.tiles.raster.snapping import SnapLike, SnapRadius, parse_snap, snap_to_valid
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    from orograph.run.run import ResultTable


LINK_ENDS = "link_x", "link_y"
NO_LINK = -1
TOO_FAR = -1
"""Value sent along a link whose sum exceeds the greatest distance; distances are 0 or more."""
BACK_LINK = Variable(
    "back_link",
    np.dtype(np.int64),
    NO_LINK,
    {"long_name": "graph edge of the step back"},
)


def parse_links(
    graph: Graph | None,
    raster: Raster,
    dtype: np.dtype[Any],
    reverse: bool,
    snap: SnapLike | None,
    *,
    places: bool = False,
) -> Links | None:
    """Convert a graph to links between cells of a raster; None without a graph.

    Parameters
    ----------
    graph : Graph
        Its vertices lie at their coordinates; where there are none, their ids are numbers of cells
        in row-major order.
    raster
        Ends of links must be valid in it.
    reverse : bool
        Whether directed links are followed from head to tail.
    snap : bool, int, str or None
        Whether ends are moved to valid cells, as points are. None: they are taken as they are,
        valid or not, and no cell is read.
    places : bool
        Keep where vertices lie in their cells.

    Raises
    ------
    InputError
        If it is not a graph, a vertex lies in no valid cell, or a weight cannot be a cost.
    """
    if graph is None:
        return None
    check_links(graph)
    tail, head = graph.position[graph.tails], graph.position[graph.rows.indices]
    has_links = np.zeros(graph.vertex_count, np.bool_)
    has_links[tail] = has_links[head] = True
    used = np.flatnonzero(has_links)
    if not used.size:
        return None
    cells = np.zeros((graph.vertex_count, 2), np.int64)
    reach = None if snap is None else parse_snap(snap, raster.georeference)
    cells[used], at = _cells(graph, used, raster, reach)
    cost = _costs(graph, tail, head, dtype)
    if reverse:
        tail, head = head, tail
    # By the row of the tail, in which `Links` finds the links of a tile by bisection. Links from a
    # cell to itself shorten no path and are left out.
    order = np.lexsort((graph.edge, cells[tail, 0]))
    order = order[(cells[tail] != cells[head]).any(axis=1)[order]]
    edge = np.asarray(graph.edge, np.int64)[order]
    points = None
    if places and graph.coordinates:
        where = np.zeros((graph.vertex_count, 2))
        where[used] = at
        points = where[np.stack([tail[order], head[order]], axis=1)]
    return Links(cells[tail[order]], cells[head[order]], cost[order], edge, points)


def check_unit_of_links(graph: Graph | None, units: str) -> None:
    """Raise InputError if links are in another unit than costs in seconds.

    ``units`` are those of the costs, empty where these have none of their own.
    """
    known = None if graph is None else graph.unit
    if units == "s" and known not in (None, units):
        raise InputError(
            f"links: their weights are in {known!r}, and the times of a walk in seconds; make them "
            "with og.roads(..., unit='s')"
        )


def check_links(graph: object) -> None:
    """Raise InputError unless links are given as a graph."""
    if not isinstance(graph, Graph):
        raise InputError(
            f"links: {type(graph).__name__} is not a graph; make one with "
            "og.roads(lines, like=...) or og.read_graph"
        )


def _cells(
    graph: Graph, used: Integers, raster: Raster, snap: SnapRadius | None
) -> tuple[Integers, npt.NDArray[np.float64]]:
    """Return rows and columns of the cells in which vertices of a graph lie, and where they lie.

    Of vertices that are moved to another cell the latter is its centre.
    """
    ids, place, (height, width) = graph.ids[used], raster.georeference, raster.shape
    if graph.coordinates:
        points = np.stack([graph.coordinates[axis][used] for axis in "xy"], axis=1)
        rows, columns = cells_of(points, place, raster.shape, "links")
    else:
        wrong = np.zeros(ids.size, bool)
        if ids.dtype.kind in "iu":
            wrong = (ids < 0) | (ids >= height * width)
        if ids.dtype.kind not in "iu" or wrong.any():
            raise InputError(
                f"links: vertex {ids[int(wrong.argmax())]} is not a cell; the graph has no "
                f"coordinates, so its ids must be numbers of cells, 0 to {height * width - 1} row "
                "by row: read it with coordinates=, or number its vertices so"
            )
        rows, columns = np.divmod(ids.astype(np.int64), width)
        points = coordinates_of(rows, columns, place)
    cells = np.stack([rows, columns], axis=1)
    if snap is not None:
        cells = np.stack(snap_to_valid(rows, columns, raster, points, snap, "links"), axis=1)
        moved = ((cells[:, 0] != rows) | (cells[:, 1] != columns))[:, None]
        points = np.where(moved, coordinates_of(cells[:, 0], cells[:, 1], place), points)
    return cells, points


def _costs(graph: Graph, tail: Integers, head: Integers, dtype: np.dtype[Any]) -> Array:
    """Return the weights of a graph's arcs, checked, in the dtype of distances."""
    weight = graph.rows.weight
    most = BARRIER // 2 if dtype.kind == "i" else float(np.finfo(dtype).max) / 2
    wrong, must = ~((weight >= 0) & (weight <= most)), f"must be 0 or more, and at most {most:g}"
    if dtype.kind == "i" and not wrong.any():
        wrong, must = weight != np.rint(weight), "must be whole: use a float dtype"
    if wrong.any():
        # Arcs are stored in another order than the edges of the source: name the first wrong edge
        # there.
        arc = int(np.flatnonzero(wrong)[graph.edge[wrong].argmin()])
        ends = graph.ids[tail[arc]], graph.ids[head[arc]]
        raise InputError(
            f"links: edge {graph.edge[arc]} ({ends[0]} to {ends[1]}) has weight {weight[arc]}; in "
            f"{dtype} it {must}"
        )
    return weight.astype(dtype)


class TileLinks:
    """The links with an end in a tile; rows and columns count from the tile's first cell."""

    def __init__(self, links: Links, window: Window) -> None:
        inside, leaving, arriving = links.of_tile(window)
        corner = window.y, window.x
        self.leaving, self.leaving_cost = links.tail[leaving] - corner, links.cost[leaving]
        self.arriving, self.arriving_edge = links.head[arriving] - corner, links.edge[arriving]
        self.inside = links.tail[inside] - corner, links.head[inside] - corner
        self.inside_cost, self.inside_edge = links.cost[inside], links.edge[inside]
        self._inner = InnerLinks(*self.inside, self.inside_cost, window.shape)
        self._corner, self._too_far = corner, np.zeros(len(self.arriving), np.bool_)
        self._spread: Array | None = None  # costs of the cells when they were spread last

    def spread(self, tile: ResidentTile) -> bool:
        """Lower costs along links within the tile; return whether any cost was lowered."""
        rows, columns = self._inner.cells
        if not rows.size:
            return False
        known = tile.values_at(rows, columns)
        nothing, limit = tile.state.unreached, tile.state.rules.limit
        cost = self._spread = self._inner.lower(known, self._spread, nothing, limit)
        lowered = cost < known
        tile.seed(rows[lowered], columns[lowered], cost[lowered])
        return bool(lowered.any())

    def outgoing(self, tile: ResidentTile) -> Array:
        """Return the cost at the far end of each leaving link: unreached, or `TOO_FAR`."""
        return _sums(tile, self.leaving, self.leaving_cost)

    def take(self, arriving: Array, tile: ResidentTile) -> None:
        """Lower the costs of cells to the values that arrive along links."""
        self._too_far = arriving == TOO_FAR
        reached = (arriving < tile.state.unreached) & ~self._too_far
        rows, columns = self.arriving[reached].T
        tile.seed(rows, columns, arriving[reached])

    def lost(self, tile: ResidentTile) -> tuple[int, int, int] | None:
        """Return row, column and edge of the first cell reached only by links that overflow."""
        tails, heads = self.inside
        inside = _sums(tile, tails, self.inside_cost) == TOO_FAR
        cells = np.concatenate([heads[inside], self.arriving[self._too_far]])
        edges = np.append(self.inside_edge[inside], self.arriving_edge[self._too_far])
        unreached = tile.values_at(*cells.T) >= tile.state.unreached
        lost = np.column_stack([cells + self._corner, edges])[unreached].tolist()
        return min(map(tuple, lost), default=None)


def links_of_tile(links: Links | None, window: Window) -> TileLinks | None:
    """Return the links with an end in a tile, or None if there are none."""
    if links is None or not any(numbers.size for numbers in links.of_tile(window)):
        return None
    return TileLinks(links, window)


def visit_with_links(
    tile: ResidentTile,
    own: TileLinks,
    border: LinkBorder,
    halo: Border,
    sent: Border,
    bound: float,
) -> tuple[Exchange, LinkNews | None]:
    """Relax a tile alternately along grid steps and links; return what changed."""
    (arriving,), (before,) = border.arriving, border.sent
    own.take(arriving, tile)
    own.spread(tile)
    settled = 0
    while True:
        found = tile.exchange(halo, sent, bound)
        settled += found.settled
        if not own.spread(tile):
            break
    outgoing, nothing = own.outgoing(tile), tile.state.unreached
    # `TOO_FAR` replaces only "nothing sent", and any cost replaces it. It has no key, as it
    # improves no cell; the tile of the head needs it to report an overflow (`TileLinks.lost`).
    known = np.where(before == TOO_FAR, nothing, before)
    lower = (outgoing < known) & (outgoing != TOO_FAR)
    new = lower | ((outgoing == TOO_FAR) & (before == nothing))
    news = None
    if new.any():
        keys = np.where(lower, outgoing, np.inf).astype(np.float64)
        news = LinkNews([np.where(new, outgoing, before)], keys)
    return found._replace(settled=settled), news


def _sums(tile: ResidentTile, tails: Integers, link_cost: Array) -> Array:
    """Return for each link the cost at its head, from the cost at its tail in the tile."""
    nothing = tile.state.unreached
    cost = tile.values_at(*tails.T)
    reached = cost < nothing
    with np.errstate(over="ignore"):  # infinity then
        cost[reached] += link_cost[reached]
    # Integers are below `BARRIER` before the sum, so it fits into int64 and is compared here.
    cost[reached & ((cost > tile.state.rules.limit) | (cost >= nothing))] = TOO_FAR
    cost[~reached] = nothing
    return cost


def link_table(links: Links, place: Georeference) -> ResultTable:
    """Return the coordinates of the two ends of each link, one row for each edge."""
    ends = np.full((2, int(links.edge.max(initial=-1)) + 1, 2), np.nan)
    made = links.edge >= 0  # of edges of the graph
    for side, cells in enumerate((links.tail, links.head)):
        points = coordinates_of(cells[:, 0], cells[:, 1], place)
        if links.points is not None:
            points = links.points[:, side]
        ends[:, links.edge[made], side] = points[made].T
    return {name: (("link", "end"), [values]) for name, values in zip(LINK_ENDS, ends, strict=True)}
