"""Result columns of graph operations: vertex ids, coordinates and sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from orograph.engines.quadtree_pass import TableMaker
from orograph.run.run import ResultTable
from orograph.tiles.arrays import Array
from orograph.tiles.graph.graph import Graph

Columns = dict[str, tuple[tuple[str, ...], Array]]
"""Dimensions and values of each column of a result."""


def vertex_columns(graph: Graph, sources: Sequence[int] = ()) -> Columns:
    """Return result columns of a graph's vertex ids, coordinates, and source ids.

    ``sources`` are stored vertices. Labels that are not integers are left to `GraphJob.collect`: a
    store has their places instead.
    """
    ids = graph.ids if graph.ids.dtype.kind in "iu" else np.arange(graph.vertex_count)
    coordinates = {name: (("vertex",), values) for name, values in graph.coordinates.items()}
    columns: Columns = {"vertex": (("vertex",), ids), **coordinates}
    if len(sources):
        columns["source"] = ("source",), ids[graph.position[list(sources)]]
    return columns


class GraphTable(TableMaker):
    """Builder of the result table of a sweep over the parts of a graph."""

    def table(self) -> ResultTable:
        """Return the problem's columns, with vertex ids if any column is per vertex."""
        own = self.run.columns()
        if not any(dims == ("vertex",) for dims, _ in own.values()):
            return own
        parts: Any = self.run.rasters[0]
        named = vertex_columns(parts.graph)
        return {**{name: (dims, [values]) for name, (dims, values) in named.items()}, **own}
