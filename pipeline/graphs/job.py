"""Jobs of graph operations, and the engine for a graph in a single part.

Results are columns a vertex, an edge or a source, in the order of the graph's source, under the
ids that the source gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary
from zlib import crc32

import numpy as np
import pandas as pd
import xarray as xr
from xarray.indexes import PandasIndex

from orograph.engines.frontier.driver import Frontier
from orograph.engines.quadtree_pass import QuadtreePass
from orograph.graphs.columns import Columns
from orograph.graphs.parts import GraphParts
from orograph.graphs.unreached import fill_of_column
from orograph.run.context import RunContext
from orograph.run.feedback import Progress
from orograph.run.job import DatasetJob, whole_columns
from orograph.run.options import RunSpec
from orograph.run.run import Engine, ResultTable
from orograph.tiles.arrays import Array
from orograph.tiles.convert.overlap import refuse_overlap
from orograph.tiles.errors import InputError
from orograph.tiles.graph.graph import JOINED_ARCS, Graph
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.raster.raster import Raster
from orograph.tiles.store.create import Layout, Variable
from orograph.tiles.store.sink import ArraySink

if TYPE_CHECKING:
    from distributed import Client

    from orograph.run.shared_data import Handle
    from orograph.tiles.storage import Storage

PIECE = 2**24


@dataclass(frozen=True)
class GraphJob(DatasetJob):
    """Job of one operation on a graph, made by `graph_job`, `sweep_job` or `parts_job`."""

    graph: Graph
    operation: str
    parameters: Mapping[str, Any]
    make_engine: Callable[[Graph, RunContext, str], Engine]

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """No rasters: the result consists of columns."""
        return ()

    @property
    def georeference(self) -> Georeference:
        """An empty georeference: a graph has no grid."""
        return Georeference()

    @property
    def is_brief(self) -> bool:
        """Whether all searches together look at as few arcs as a graph that needs no parts."""
        searches = max(len(self.parameters.get("sources", ())), 1)
        return self.graph.arc_count * searches <= JOINED_ARCS

    def identity(self) -> dict[str, Any]:
        """Return the operation's name, its parameters and a checksum of the graph."""
        arrays = self.graph.arrays.values()
        # Labels that are Python objects have no bytes that would be the same in another process.
        sums = [_checksum(values) if values.dtype.kind != "O" else 0 for values in arrays]
        return {
            "operation": self.operation,
            **self.parameters,
            "graph": [*sums, self.graph.directed, list(self.graph.bounds)],
        }

    def warm_up(self) -> None:
        """Do nothing: kernels are compiled when the first part needs them."""

    def engine(self, rasters: tuple[Raster, ...], context: RunContext, backend: str) -> Engine:
        """Return the engine of the operation."""
        return self.make_engine(self.graph, context, backend)

    def column_attributes(self, name: str) -> dict[str, Any]:
        """Return the ``_FillValue`` attribute of a column, if it needs one."""
        fill = fill_of_column(self.graph, name)
        return {} if fill is None else {"_FillValue": fill}

    def collect(self, engine: Engine, sink: ArraySink, attributes: dict[str, Any]) -> xr.Dataset:
        """Build a dataset of the result columns, indexed by vertex ids."""
        variables = {
            name: (dims, column, self.column_attributes(name))
            for name, (dims, column) in whole_columns(engine.table()).items()
        }
        labels = self.graph.ids
        named: dict[str, Array] = {}
        for name in ("vertex", "source", "target"):
            if name in variables:
                _, named[name], _ = variables.pop(name)
                if labels.dtype.kind not in "iu":  # they are places so far
                    named[name] = labels[named[name]]
        known = {name: variables.pop(name) for name in self.graph.coordinates if name in variables}
        indexes = {
            name: _vertex_index(self.graph, labels) if name == "vertex" else _index(labels, name)
            for name, labels in named.items()
        }
        for index in indexes.values():
            known |= index.create_variables()
        return xr.Dataset(variables, xr.Coordinates(known, indexes), attributes)

    def open(self, out: Storage) -> xr.Dataset:
        """Open the stored result lazily, with ``x`` and ``y`` as coordinates."""
        found = super().open(out)
        return found.set_coords([name for name in ("x", "y") if name in found])


@dataclass
class WholeGraph(Engine):
    """Engine for a graph that one function solves in this process."""

    solve: Callable[[Event], tuple[dict[str, Any], Columns]]
    columns: Columns = field(default_factory=dict)
    done: bool = False

    def run(self, client: Client | None, handle: Handle, cancelled: Event) -> dict[str, Any]:
        """Call the function; return the attributes of the result."""
        attributes, self.columns = self.solve(cancelled)
        self.done = True
        return attributes

    def table(self) -> ResultTable:
        """Return the result columns, in one piece each."""
        return {name: (dims, [values]) for name, (dims, values) in self.columns.items()}

    def progress(self) -> Progress:
        """Return 1 of 1 tasks once the function has returned, else 0."""
        return Progress(int(self.done), 1)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # no task has need of it


_INDEXES: WeakKeyDictionary[Graph, PandasIndex] = WeakKeyDictionary()
"""Indexes of vertices: what pandas prepares for the first look-up serves all results of a graph."""


def _vertex_index(graph: Graph, labels: Array) -> PandasIndex:
    """Return the index of a graph's vertices, which all its results share."""
    if graph not in _INDEXES:
        _INDEXES[graph] = _index(labels, "vertex")
    return _INDEXES[graph]


def _index(labels: Array, name: str) -> PandasIndex:
    """Return an index of the labels of a dimension, without copying them."""
    view = labels.view()
    view.setflags(write=False)
    return PandasIndex(pd.Index(view, dtype=view.dtype, copy=False), name)


def _checksum(values: Array) -> int:
    """Return the CRC-32 of an array in memory or stored, read in pieces."""
    total = 0
    for first in range(0, values.shape[0], PIECE):
        total = crc32(np.ascontiguousarray(values[first : first + PIECE]).data, total)
    return total


def graph_job(
    graph: Graph,
    operation: str,
    parameters: Mapping[str, Any],
    backend: str,
    spec: RunSpec,
    solve: Callable[[str], tuple[dict[str, Any], Columns]],
) -> GraphJob:
    """Return the job of a graph operation that a single function solves in memory.

    ``solve`` is called with the backend and returns attributes and columns.
    """

    def make_engine(graph: Graph, context: RunContext, backend: str) -> Engine:
        return WholeGraph(lambda cancelled: solve(backend))

    return _job(graph, operation, parameters, backend, make_engine, spec)


def search_job(
    graph: Graph,
    operation: str,
    parameters: Mapping[str, Any],
    backend: str,
    spec: RunSpec,
    solve: Callable[[str, Event], tuple[dict[str, Any], Columns]],
) -> GraphJob:
    """Do as `graph_job` where ``solve`` also takes the event that tells it to stop."""

    def make_engine(graph: Graph, context: RunContext, backend: str) -> Engine:
        return WholeGraph(lambda cancelled: solve(backend, cancelled))

    return _job(graph, operation, parameters, backend, make_engine, spec)


def sweep_job(graph: Graph, problem: Any, parameters: Mapping[str, Any], spec: RunSpec) -> GraphJob:
    """Return the job of a graph operation that the quadtree sweep solves part by part."""

    def make_engine(graph: Graph, context: RunContext, backend: str) -> Engine:
        parts: Any = GraphParts(graph, problem.weighted)
        return QuadtreePass(replace(problem, backend=backend), (parts,), context)

    return _job(graph, problem.name, parameters, problem.backend, make_engine, spec)


def parts_job(
    graph: Graph,
    parameters: Mapping[str, Any],
    spec: RunSpec,
    problem: Any,
    rasters: tuple[Any, ...],
) -> GraphJob:
    """Return the job of a graph operation that delta-stepping solves part by part.

    The parts form a grid of one column.
    """

    def make_engine(graph: Graph, context: RunContext, backend: str) -> Engine:
        return Frontier(replace(problem, backend=backend), rasters, context)

    job = _job(graph, problem.name, parameters, problem.backend, make_engine, spec)
    # `_job` takes the parts as one row, as the sweep does.
    return replace(job, shape=(graph.part_count, 1))


def _job(
    graph: Graph,
    operation: str,
    parameters: Mapping[str, Any],
    backend: str,
    make_engine: Callable[[Graph, RunContext, str], Engine],
    spec: RunSpec,
) -> GraphJob:
    if spec.storage is not None:
        refuse_overlap(None, spec.storage, graph)
    of_parts = (1, graph.part_count), Layout(1, 1)
    return GraphJob((), *of_parts, backend, graph, operation, parameters, make_engine, spec=spec)


def check_graph(graph: object) -> Graph:
    """Return the argument if it is a `Graph`, else raise InputError."""
    if not isinstance(graph, Graph):
        raise InputError(
            f"graph: {type(graph).__name__} is not a graph; make one with orograph.read_graph"
        )
    return graph
