"""Convert data frames and graphs with labelled vertices to matrices for `all_pairs`."""

from __future__ import annotations

from typing import Any

import numpy as np
import psutil

from orograph.graphs.dense_paths.edge_matrix import EdgeMatrix
from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError
from orograph.tiles.graph.graph import Graph
from orograph.tiles.graph.read import read_graph

GIB = 2**30
COPIES = 3
"""Number of tables that a run in memory holds at once: two generations of tiles, and the result."""


def labelled(graph: Any) -> tuple[Any, Array | None]:
    """Return a matrix of edge lengths, and vertex labels or None if they are 0 to n - 1."""
    # A graph of networkx, which is not imported for this.
    if hasattr(graph, "adjacency") and hasattr(graph, "is_directed"):
        graph = read_graph(graph)
    if isinstance(graph, Graph):
        from scipy import sparse  # slow to import

        place = graph.position[graph.tails], graph.position[graph.rows.indices]
        matrix = sparse.coo_array((graph.rows.weight, place), shape=(graph.vertex_count,) * 2)
        ids = graph.ids
        counted = ids.dtype.kind in "iu" and np.array_equal(ids, np.arange(ids.size))
        return matrix, None if counted else ids
    # A data frame of pandas or another library.
    if hasattr(graph, "to_numpy") and hasattr(graph, "columns"):
        names = np.asarray(graph.columns)
        if graph.shape[0] == graph.shape[1] and not np.array_equal(np.asarray(graph.index), names):
            raise InputError(
                f"graph: its rows are called {list(graph.index[:3])} ... and its columns "
                f"{list(names[:3])} ...; they stand for the same vertices: give them one order"
            )
        return graph, None if np.array_equal(names, np.arange(names.size)) else names
    return graph, None


def refuse_large_table(matrix: EdgeMatrix, traced: bool) -> None:
    """Raise InputError if the matrix of all pairs does not fit into memory.

    Raises
    ------
    InputError
        It tells the bytes.
    """
    table = matrix.n**2 * (matrix.dtype.itemsize + 4 * traced)
    free = psutil.virtual_memory().available
    if COPIES * table > free:
        raise InputError(
            f"graph: the table of {matrix.n} x {matrix.n} pairs has {table} bytes "
            f"({table / GIB:.1f} GiB), and a run in memory holds {COPIES} of it; {free} bytes are "
            "free: pass out= to keep it in tiles on disk, or sources= for some rows"
        )
