"""Some rows of the all-pairs matrix, by one search from each source."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event
from typing import Any

import numpy as np

from orograph.graphs.columns import Columns
from orograph.graphs.dense_paths.edge_matrix import open_edges
from orograph.graphs.job import GraphJob, graph_job
from orograph.graphs.part_search import PartReader
from orograph.graphs.shortest_paths import PathSearch, choose_method, limit_of
from orograph.run.backends import choose_backend
from orograph.run.options import RunSpec
from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError
from orograph.tiles.graph.graph import VerticesLike, make_graph


@dataclass(frozen=True)
class RowsOfPairs:
    """Arguments of `all_pairs` for the rows of some sources."""

    graph: Any
    labels: Array | None
    dtype: str
    no_edge: float
    traced: bool
    method: str
    negative_cycles: str

    def job(self, sources: VerticesLike, spec: RunSpec) -> GraphJob:
        """Return the job that searches from each source."""
        if self.negative_cycles != "raise":
            raise InputError("negative_cycles: 'mask' is for all rows; leave sources= away")
        if self.method != "auto":
            raise InputError(f"method: {self.method!r} is for all rows; leave sources= away")
        if self.dtype == "float32":
            raise InputError("dtype: 'float32' is for all rows; use 'float64' with sources=")
        edges = open_edges(self.graph, self.dtype, self.no_edge).as_sparse().tocoo()
        n = edges.shape[0]
        ids = np.arange(n) if self.labels is None else self.labels
        weight = edges.data.astype(self.dtype)
        tail, head = edges.row.astype(np.int64), edges.col.astype(np.int64)
        graph = make_graph(tail, head, weight, ids, directed=True)
        starts = graph.vertices(sources, "sources")
        method = choose_method(graph)
        chosen = choose_backend("open_part", (), spec)
        search = PathSearch(graph, method, limit_of(graph, np.inf), self.traced)

        def solve(backend: str) -> tuple[dict[str, Any], Columns]:
            attributes, columns = search.solve(starts, backend, PartReader(graph, Event()))
            _, ids = columns.pop("vertex")
            # The names that `all_pairs` has for the columns of `shortest_paths`.
            columns = {name: (_target(dims), values) for name, (dims, values) in columns.items()}
            columns["distance"] = columns.pop("cost")
            columns["target"] = ("target",), ids
            if self.traced:
                dims, before = columns["predecessor"]
                columns["predecessor"] = dims, before.astype(np.int32)
            return {**attributes, "vertices": n, "edges": edges.nnz}, columns

        parameters = {"sources": starts.tolist(), "predecessors": self.traced, "method": method}
        return graph_job(graph, "rows-of-pairs", parameters, chosen, spec, solve)


def _target(dims: tuple[str, ...]) -> tuple[str, ...]:
    return tuple("target" if name == "vertex" else name for name in dims)
