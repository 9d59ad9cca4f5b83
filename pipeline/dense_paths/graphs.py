"""All pairs of what has labelled vertices: data frames, graphs; some rows; tables too large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import psutil
from scipy import sparse

from orograph.dense_paths.edge_matrix import EdgeMatrix, open_edges
from orograph.execution.backends import choose_backend
from orograph.execution.options import RunOptions, check_choice
from orograph.graphs.job import Columns, graph_run
from orograph.graphs.shortest_paths import METHODS, STAGES, PathSearch, choose_method, limit_of
from orograph.tiles.errors import InputError
from orograph.tiles.graph.graph import Graph, make_graph
from orograph.tiles.graph.read import read_graph

if TYPE_CHECKING:
    import xarray as xr

    from orograph.execution.run import Run

Array = npt.NDArray[Any]
GIB = 2**30
COPIES = 3
"""Tables that a run in memory holds at the same time: two generations of tiles, and the result."""


def labelled(graph: Any) -> tuple[Any, Array | None]:
    """Return a matrix of lengths and its vertices' labels, None if they are numbers from 0."""
    if hasattr(graph, "adjacency") and hasattr(graph, "is_directed"):
        graph = read_graph(graph)
    if isinstance(graph, Graph):
        place = graph.position[graph.tails], graph.position[graph.rows.indices]
        matrix = sparse.coo_array((graph.rows.weight, place), shape=(graph.vertex_count,) * 2)
        ids = graph.ids
        counted = ids.dtype.kind in "iu" and np.array_equal(ids, np.arange(ids.size))
        return matrix, None if counted else ids
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
    """Refuse a table that does not fit into memory.

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


@dataclass(frozen=True)
class RowsOfPairs:
    """The rows of some vertices."""

    graph: Any
    labels: Array | None
    dtype: str
    no_edge: float
    traced: bool
    method: str
    negative_cycles: str

    def run(self, sources: Any, options: RunOptions) -> Run[xr.Dataset]:
        """Start the searches from the sources."""
        if self.negative_cycles != "raise":
            raise InputError("negative_cycles: 'mask' is for all rows; leave sources= away")
        check_choice("method", self.method, METHODS)
        if self.dtype == "float32":
            raise InputError("dtype: 'float32' is for all rows; use 'float64' with sources=")
        edges = open_edges(self.graph, self.dtype, self.no_edge).as_sparse().tocoo()
        n = edges.shape[0]
        ids = np.arange(n) if self.labels is None else self.labels
        weight = edges.data.astype(self.dtype)
        tail, head = edges.row.astype(np.int64), edges.col.astype(np.int64)
        graph = make_graph(tail, head, weight, ids, directed=True)
        starts = graph.vertices(sources, "sources")
        method = choose_method(graph, self.method, options)
        chosen = choose_backend(STAGES[method], (), options)
        search = PathSearch(graph, method, "active", limit_of(graph, np.inf), self.traced)

        def solve(backend: str) -> tuple[dict[str, Any], Columns]:
            attributes, columns = search.from_all(starts, backend)
            _, ids = columns.pop("vertex")
            columns = {name: (_target(dims), values) for name, (dims, values) in columns.items()}
            columns["distance"] = columns.pop("cost")
            columns["target"] = ("target",), ids
            if self.traced:
                dims, before = columns["predecessor"]
                columns["predecessor"] = dims, before.astype(np.int32)
            return {**attributes, "vertices": n, "edges": edges.nnz}, columns

        parameters = {"sources": starts.tolist(), "predecessors": self.traced, "method": method}
        return graph_run(graph, "rows-of-pairs", parameters, chosen, options, solve)


def _target(dims: tuple[str, ...]) -> tuple[str, ...]:
    return tuple("target" if name == "vertex" else name for name in dims)
