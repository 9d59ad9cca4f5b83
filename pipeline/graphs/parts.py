"""Parts of a graph read as tiles of a grid with one row, for the quadtree sweep.

So the tree over the parts is binary, and a node stands for a range of stored vertices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from orograph.tiles.arrays import Array, Columns, Integers
from orograph.tiles.format.codec import stored
from orograph.tiles.graph.graph import Graph
from orograph.tiles.grid.window import Window


class Part(NamedTuple):
    """The arcs that leave a range of stored vertices."""

    first: int
    indptr: Array
    """Index of the first arc of each vertex, counted from 0 in the part."""
    heads: Array
    """Head of each arc, as a stored vertex of the whole graph."""
    weight: Array
    """Weight of each arc, or empty."""
    edge: Array
    """Number of the edge of each arc, or empty."""
    position: Integers
    """Place in the source of each vertex of the part."""


@dataclass(frozen=True)
class GraphParts:
    """A graph read part by part, in place of a raster read tile by tile."""

    graph: Graph
    weighted: bool
    """Whether weights and numbers of edges are read; else they are empty."""

    def read(self, window: Window) -> Part:
        """Return the part of a graph that stands at a window's column."""
        arrays, bounds = self.graph.arrays, self.graph.bounds
        first, last = bounds[window.x], bounds[window.x + 1]
        rows = self.graph.part_rows(window.x, self.weighted)
        begin = int(arrays["indptr"][first])
        # `Graph.with_both_ways` gives both directions of an edge of a directed graph one number.
        numbers = arrays.get("edge_both_ways", arrays["edge"])
        edge = np.asarray(numbers[begin : begin + rows.weight.size])
        return Part(first, *rows, edge, np.asarray(arrays["position"][first:last]))


@stored("graph-arcs")
class Arcs(Columns):
    """Arcs of a graph as columns: tail, head, weight and edge number."""

    tail: Integers
    head: Integers
    weight: Array
    edge: Integers


def join_arcs(arcs: list[Arcs]) -> Arcs:
    """Concatenate several collections of arcs."""
    return Arcs.concatenate(arcs)


def span(graph_bounds: tuple[int, ...], window: Window) -> tuple[int, int]:
    """Return the range of stored vertices that a node covers: first, and one past the last."""
    return graph_bounds[window.x], graph_bounds[window.x + window.width]
