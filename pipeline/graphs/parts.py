"""Parts of a graph read as tiles of a grid with one row, for the quadtree sweep.

So the tree over the parts is binary, and a node stands for a range of stored vertices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.tiles.format.codec import stored
from orograph.tiles.graph.graph import Graph
from orograph.tiles.grid.window import Window

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]


class Part(NamedTuple):
    """The arcs that leave a range of stored vertices."""

    first: int
    tails: Integers
    """From 0 in the part."""
    heads: Integers
    """Stored vertices of the whole graph."""
    weight: Array
    edge: Integers
    position: Integers
    """The place in the source of each of its vertices."""


@dataclass(frozen=True)
class GraphParts:
    """A graph read part by part, in place of a raster read tile by tile."""

    graph: Graph

    def read(self, window: Window) -> Part:
        """Return the part of a graph that stands at a window's column."""
        arrays, bounds = self.graph.arrays, self.graph.bounds
        first, last = bounds[window.x], bounds[window.x + 1]
        indptr, indices, weight = self.graph.part_rows(window.x)
        begin = int(arrays["indptr"][first])
        numbers = arrays.get("edge_both_ways", arrays["edge"])[begin : begin + indices.size]
        return Part(
            first,
            np.repeat(np.arange(last - first), np.diff(indptr)),
            indices.astype(np.int64),
            weight,
            np.asarray(numbers).astype(np.int64),
            np.asarray(arrays["position"][first:last]),
        )


@stored("graph-arcs")
@dataclass(frozen=True)
class Arcs:
    """Arcs of a graph as columns: tail, head, weight and edge number."""

    tail: Integers
    head: Integers
    weight: Array
    edge: Integers

    def take(self, which: Any) -> Arcs:
        """Return the arcs at some indices."""
        return Arcs(self.tail[which], self.head[which], self.weight[which], self.edge[which])


def join_arcs(arcs: list[Arcs]) -> Arcs:
    """Concatenate several collections of arcs."""
    columns = ("tail", "head", "weight", "edge")
    return Arcs(*(np.concatenate([getattr(a, name) for a in arcs]) for name in columns))


def span(graph_bounds: tuple[int, ...], window: Window) -> tuple[int, int]:
    """Return the range of stored vertices that a node covers: first, and one past the last."""
    return graph_bounds[window.x], graph_bounds[window.x + window.width]
