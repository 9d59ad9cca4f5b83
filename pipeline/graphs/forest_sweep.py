"""Minimum spanning forest of a graph in parts, by the quadtree sweep.

A part decides the edges that it can (`orograph.kernels.forest.contract`) and hands up the others
between its border vertices, from which arcs lead to other parts; a node does the same with what its
children hand up and the edges between them. On the way down travels a boolean an edge handed up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from orograph.engines.quadtree_pass import QuadtreePass
from orograph.engines.sweep_problems import Table
from orograph.graphs.columns import GraphTable
from orograph.graphs.parts import Arcs, Part, join_arcs, span
from orograph.kernels.forest.contract import IN, UP, contract
from orograph.kernels.forest.exact_sum import exact_float, exact_sum
from orograph.kernels.graph.near_far import arcs_outside
from orograph.kernels.stages import kernel
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.format.codec import stored
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.store.create import Variable


@stored("graph-forest-summary")
class Summary:
    """Undecided edges between a node's border vertices, and its leaving arcs, for its parent."""

    border: Integers
    """Vertices of the node from which arcs leave it, ascending."""
    edges: Arcs
    """Undecided edges between border vertices."""
    leaving: Arcs
    edge_count: int
    total: int


@stored("graph-forest-state")
class State:
    """Saved state of a node: the edges it considered, decided, and passed up."""

    edge: Integers
    """Numbers of the edges that the node considered."""
    decided_in: npt.NDArray[np.bool_]
    passed_up: Integers
    """Indices in ``edge`` of the edges that were passed up to the parent."""
    edges_per_child: tuple[int, ...]
    """Number of edges that came from each child; the rest are the node's own."""


@dataclass(frozen=True)
class GraphForest:
    """Minimum spanning forest of a graph as a problem of the quadtree sweep."""

    bounds: tuple[int, ...]
    edge_count: int
    backend: str

    name = "graph-forest"
    weighted = True
    outputs: ClassVar[tuple[Variable, ...]] = ()
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {"in_forest": ("edge",)}

    def table_maker(self, run: QuadtreePass) -> GraphTable:
        """Return the builder of the result table, which adds vertex ids."""
        return GraphTable(run)

    def leaf(self, place: Place, part: Part) -> tuple[Summary, State]:
        """Decide the edges within a part; pass up the undecided ones."""
        first, last = span(self.bounds, place.window)
        size = last - first
        outside = arcs_outside(part.indptr, part.heads, first)
        tails = np.searchsorted(part.indptr, outside.astype(part.indptr.dtype), side="right") - 1
        border = np.zeros(size, np.bool_)
        border[tails] = True
        arcs, within, open_ends = kernel("part_forest", self.backend)(
            part.indptr, part.heads, part.weight, part.edge, first, border
        )
        # Edges that are in the forest whatever the other parts hold. The others are contracted to
        # the border.
        sure = arcs[~open_ends]
        edges = _arcs(part, arcs[open_ends], within[open_ends])
        summary, state = _decide(
            size, (edges.tail - first, edges.head - first), np.flatnonzero(border), edges,
            _arcs(part, outside, tails), (), sure.size, _exact(part.weight[sure]),
        )  # fmt: skip
        edge = np.append(state.edge, part.edge[sure].astype(np.int64))
        decided = np.append(state.decided_in, np.ones(sure.size, np.bool_))
        return summary, State(edge, decided, state.passed_up, ())

    def merge(
        self, place: Place, children: Sequence[tuple[Place, Summary]]
    ) -> tuple[Summary, State]:
        """Decide edges between the children; pass up the undecided ones."""
        first, last = span(self.bounds, place.window)
        summaries = [summary for _, summary in children]
        arcs = join_arcs([summary.leaving for summary in summaries])
        inside = (arcs.head >= first) & (arcs.head < last)
        # Each edge between children comes from both: it is taken once.
        between = arcs.take(inside & (arcs.tail < arcs.head))
        edges = join_arcs([*(summary.edges for summary in summaries), between])
        vertices = np.concatenate([summary.border for summary in summaries])
        leaving = arcs.take(~inside)
        ends = np.searchsorted(vertices, edges.tail), np.searchsorted(vertices, edges.head)
        return _decide(
            vertices.size,
            ends,
            np.searchsorted(vertices, np.unique(leaving.tail)),
            edges,
            leaving,
            tuple(summary.edges.edge.size for summary in summaries),
            sum(summary.edge_count for summary in summaries),
            sum(summary.total for summary in summaries),
        )

    def root(self, summary: Summary) -> tuple[Any, dict[str, Any]]:
        """Return an empty message, as all edges are decided, and the result attributes."""
        vertices = self.bounds[-1]
        attributes = {
            "total_weight": exact_float(summary.total),
            "vertex_count": vertices,
            "edge_count": summary.edge_count,
            "tree_count": vertices - summary.edge_count,
        }
        return np.empty(0, np.bool_), attributes

    def down(
        self, place: Place, saved: State, message: npt.NDArray[np.bool_], children: Sequence[Place]
    ) -> list[Any]:
        """Return for each child which of the edges it passed up are in the forest."""
        # Edges stand child by child; what is left at the end are the node's own.
        *of_children, _ = np.split(_kept(saved, message), np.cumsum(saved.edges_per_child))
        return of_children

    def finish(
        self, place: Place, saved: State, message: npt.NDArray[np.bool_]
    ) -> dict[str, Array]:
        """Return no rasters."""
        return {}

    def rows_of_tile(self, place: Place, saved: State, message: npt.NDArray[np.bool_]) -> Table:
        """Return the numbers of the forest edges within a part."""
        return {"edge": saved.edge[_kept(saved, message)]}

    def rows_of_node(self, place: Place, saved: State, message: npt.NDArray[np.bool_]) -> Table:
        """Return the numbers of the forest edges between a node's children."""
        own = sum(saved.edges_per_child)
        return {"edge": saved.edge[own:][_kept(saved, message)[own:]]}

    def join_rows(
        self, tables: Iterable[Table], column: str, rows: range | None = None, before: int = 0
    ) -> Array:
        """Return for each edge of the graph whether it is in the forest."""
        in_forest = np.zeros(self.edge_count, np.bool_)
        for table in tables:
            in_forest[table["edge"]] = True
        return in_forest


def _decide(
    size: int, ends: tuple[Integers, Integers], of_border: Integers, edges: Arcs, leaving: Arcs,
    of_children: tuple[int, ...], edge_count: int, total: int,
) -> tuple[Summary, State]:  # fmt: skip
    """Contract the undecided edges of a node to its border vertices, deciding the others.

    ``ends`` of the edges and ``of_border`` count the node's vertices from 0, of which there are
    ``size``.
    """
    border = np.unique(leaving.tail)
    number = np.full(size, -1, np.int64)
    number[of_border] = np.arange(border.size)
    first, second = ends
    # The total order of edges: by weight, then by number.
    order = np.lexsort((edges.edge, edges.weight))
    fate, joined = contract(first, second, order, number)
    up, decided = np.flatnonzero(fate == UP), fate == IN
    passed = Arcs(border[joined[up, 0]], border[joined[up, 1]], edges.weight[up], edges.edge[up])
    count = edge_count + int(np.count_nonzero(decided))
    summary = Summary(border, passed, leaving, count, total + _exact(edges.weight[decided]))
    return summary, State(edges.edge, decided, up, of_children)


def _arcs(part: Part, arcs: Integers, tails: Array) -> Arcs:
    """Return some arcs of a part as columns, given their tails from 0 in the part."""
    heads, edge = part.heads[arcs].astype(np.int64), part.edge[arcs].astype(np.int64)
    return Arcs(tails.astype(np.int64) + part.first, heads, part.weight[arcs], edge)


def _kept(saved: State, message: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return a mask of a node's edges in the forest, given the decisions on those passed up."""
    kept = saved.decided_in.copy()
    kept[saved.passed_up] = message
    return kept


def _exact(weight: Array) -> int:
    """Return the exact sum of weights as an integer multiple of 2**-1074."""
    if weight.dtype.kind == "f":
        return exact_sum(weight)
    if weight.itemsize < 8:
        return int(weight.sum(dtype=np.int64)) << 1074
    # In two halves, whose sums fit into 64 bits.
    high, low = weight.astype(np.int64) >> 30, weight & (2**30 - 1)
    return ((int(high.sum()) << 30) + int(low.sum(dtype=np.int64))) << 1074
