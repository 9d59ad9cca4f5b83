"""Make a graph between cells of the pieces into which lines were cut.

In each cell the pieces that hang together have one vertex: the middle of a lone piece from border
to border, else the node at which most of them meet. An edge between two cells costs what the road
costs from vertex to vertex. A stretch without access in between joins its two nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from orograph.kernels.graph.dijkstra import dijkstra
from orograph.kernels.roads.access_paths import paths_through
from orograph.kernels.roads.cut import Pieces
from orograph.road_links.tags import BACKWARD, FORWARD
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.errors import InputError

Mask = npt.NDArray[np.bool_]

MOST_SHORTCUTS = 2**26
_MARGIN = 0.1  # vertices keep this share of a cell from its border


class Arcs(NamedTuple):
    """Arcs by their two ends."""

    tail: Integers
    head: Integers
    cost: npt.NDArray[np.float64]


@dataclass(frozen=True)
class PieceEnds:
    """The ends of pieces within cells: each point once for each cell whose pieces meet there."""

    of_start: Integers
    of_end: Integers
    """Number of the end at which each piece ends; ``of_start``: at which it starts."""
    point: Integers
    cell: Integers
    where: npt.NDArray[np.float64]
    """Columns and rows of the ends, shape (ends, 2)."""
    arrive: Mask
    leave: Mask
    """Whether a piece of the cell leads away from the point; ``arrive``: whether one leads to
    it."""


@dataclass(frozen=True)
class Vertices:
    """The vertices of pieces in cells, and how far the ends of pieces are from them."""

    of_end: Integers
    """Vertex of each end, shape (ends,)."""
    distance: npt.NDArray[np.float64]
    """Cost between each end and its vertex, whatever the direction, shape (ends,)."""
    cell: Integers
    where: npt.NDArray[np.float64]


def find_ends(pieces: Pieces, direction: Array, where: Array) -> PieceEnds:
    """Return the ends of pieces; ``where`` are the columns and rows of nodes, then of ports."""
    code, cells = pd.factorize(np.tile(pieces.cell, 2))
    point = np.concatenate([pieces.start, pieces.end])
    # One number for each point and cell; ``code`` numbers the cells that have pieces.
    end, key = pd.factorize(point * len(cells) + code)
    of_start, of_end = np.split(end, 2)
    point, code = np.divmod(key, len(cells))
    forward, backward = direction != BACKWARD, direction != FORWARD
    arrive, leave = np.zeros((2, point.size), np.bool_)
    # A piece that is open forward leads away from its start and to its end; backward, the reverse.
    arrive[of_end[forward]] = leave[of_start[forward]] = True
    arrive[of_start[backward]] = leave[of_end[backward]] = True
    return PieceEnds(of_start, of_end, point, cells[code], where[point], arrive, leave)


def find_vertices(ends: PieceEnds, cost: Array, nodes: int) -> Vertices:
    """Return the vertex of each group of pieces that hang together within a cell.

    Points from ``nodes`` on are ports.
    """
    from scipy import sparse  # slow to import

    n = ends.point.size
    joined = sparse.coo_array((np.ones(cost.size), (ends.of_start, ends.of_end)), shape=(n, n))
    count, group = sparse.csgraph.connected_components(joined, directed=False)
    degree = np.bincount(ends.of_start, minlength=n) + np.bincount(ends.of_end, minlength=n)
    size = np.bincount(group, minlength=count)
    middle = np.stack([np.bincount(group, w) / size for w in ends.where.T], axis=1)
    # rounded, so that points equally far stay so
    away = ((ends.where - middle[group]) ** 2).sum(axis=1).round(9)
    port = ends.point >= nodes
    # In each group first the end where most pieces meet, nodes before ports, then the nearest to
    # the middle of the group. The number of the point breaks ties.
    order = np.lexsort((ends.point, away, port, -degree, group))
    # The first end of each group.
    chosen = order[np.cumsum(size) - size]

    arcs = Arcs(ends.of_start, ends.of_end, cost)
    distance = np.full(n, np.inf)
    distance[chosen] = 0.0
    # Shortest paths from each vertex along the pieces of its group, in both directions.
    dijkstra(*_rows(_both_ways(arcs), n), chosen, np.inf, distance)
    cell, where = ends.cell[chosen], ends.where[chosen]
    # A piece from border to border meets no other in the cell: its vertex is its middle.
    lone = np.flatnonzero(port[ends.of_start] & port[ends.of_end])
    for side in (ends.of_start, ends.of_end):
        distance[side[lone]] = cost[lone] / 2
    where[group[ends.of_start[lone]]] = middle[group[ends.of_start[lone]]]
    return Vertices(group, distance, cell, where)


def crossings(ends: PieceEnds, vertices: Vertices, directed: bool) -> Arcs:
    """Return the arcs between the vertices of cells whose pieces meet at a point of a border."""
    order = np.argsort(ends.point, kind="stable")
    found = []
    for apart in (1, 2, 3):  # at most four cells meet at a point
        # Sorted by points, cells that meet at one are at most three places apart.
        one, other = order[:-apart], order[apart:]
        meet = ends.point[one] == ends.point[other]
        one, other = one[meet], other[meet]
        there, back = np.ones((2, one.size), np.bool_)
        if directed:
            there, back = (ends.arrive[a] & ends.leave[b] for a, b in ((one, other), (other, one)))
        cost = vertices.distance[one] + vertices.distance[other]
        a, b = vertices.of_end[one], vertices.of_end[other]
        found.append(Arcs(a[there], b[there], cost[there]))
        if directed:
            found.append(Arcs(b[back], a[back], cost[back]))
    return join(found)


def join(arcs: list[Arcs]) -> Arcs:
    """Return all arcs of several lists."""
    tail, head, cost = (np.concatenate(parts) for parts in zip(*arcs, strict=True))
    return Arcs(tail, head, cost)


def _some(arcs: Arcs, which: Mask) -> Arcs:
    return Arcs(arcs.tail[which], arcs.head[which], arcs.cost[which])


def leave_out(arcs: Arcs, access: Mask, directed: bool) -> Arcs:
    """Replace vertices without access by arcs between the others, of the same least costs.

    Raises
    ------
    InputError
        If these are too many arcs.
    """
    kept = access[arcs.tail] & access[arcs.head]
    rest = _some(arcs, ~kept)
    if not rest.tail.size:
        return arcs
    indptr, indices, cost = _rows(rest if directed else _both_ways(rest), access.size)
    tail, head, cost = paths_through(indptr, indices, cost, access, MOST_SHORTCUTS)
    if tail.size > MOST_SHORTCUTS:
        raise InputError(
            f"access: lines with access at their ends alone join more than {MOST_SHORTCUTS} pairs "
            "of points at which one gets on or off; pass access='everywhere' for some of them"
        )
    if not directed:
        # Undirected shortcuts were found from both ends.
        once = tail < head
        tail, head, cost = tail[once], head[once], cost[once]
    return join([_some(arcs, kept), Arcs(tail, head, cost)])


def inside_cells(where: Array, cell: Integers, width: int) -> Array:
    """Return columns and rows moved away from the borders of their cells."""
    rows, columns = np.divmod(cell, width)
    corner = np.stack([columns, rows], axis=1)
    return where.clip(corner + _MARGIN, corner + 1 - _MARGIN)


def _both_ways(arcs: Arcs) -> Arcs:
    return join([arcs, Arcs(arcs.head, arcs.tail, arcs.cost)])


def _rows(arcs: Arcs, n: int) -> tuple[Integers, Integers, Array]:
    """Return arcs as compressed sparse rows of n vertices; parallel ones stay."""
    order = np.argsort(arcs.tail, kind="stable")
    indptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(arcs.tail, minlength=n), out=indptr[1:])
    return indptr, arcs.head[order].astype(np.int64), arcs.cost[order]
