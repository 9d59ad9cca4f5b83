"""Jobs of operations on graphs, and the engine for a graph in one part.

Results are columns a vertex, an edge or a source, in the order of the graph's source, under the
ids that the source gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from xarray.indexes import PandasIndex

from orograph.engines.quadtree_pass import QuadtreePass
from orograph.execution.context import RunContext
from orograph.execution.job import DatasetJob, Engine, Table
from orograph.execution.options import RunSpec
from orograph.execution.run import Progress
from orograph.graphs.parts import GraphParts
from orograph.graphs.unreached import fill_of_column
from orograph.kernels.backends import get_backend
from orograph.tiles.convert.overlap import refuse_overlap
from orograph.tiles.errors import InputError
from orograph.tiles.graph.graph import Graph
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.raster.raster import Raster
from orograph.tiles.store.create import Layout, Variable
from orograph.tiles.store.sink import ArraySink

if TYPE_CHECKING:
    from distributed import Client

Array = npt.NDArray[Any]
Columns = dict[str, tuple[tuple[str, ...], Array]]
"""Dimensions and values of each column of a result."""

PIECE = 2**24


@dataclass(frozen=True)
class GraphJob(DatasetJob):
    """One operation on a graph; see `graph_job`."""

    graph: Graph
    operation: str
    parameters: Mapping[str, Any]
    make_engine: Callable[[Graph, RunContext, str], Engine]

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Return nothing: there are no rasters."""
        return ()

    @property
    def georeference(self) -> Georeference:
        """Return an empty georeference: a graph has no grid."""
        return Georeference()

    def identity(self) -> dict[str, Any]:
        """Return the operation, its parameters and a checksum of the graph."""
        arrays = self.graph.arrays.values()
        sums = [_checksum(values) if values.dtype.kind != "O" else 0 for values in arrays]
        return {
            "operation": self.operation,
            **self.parameters,
            "graph": [*sums, self.graph.directed, list(self.graph.bounds)],
        }

    def warm_up(self) -> None:
        """Leave it to the first part."""

    def engine(self, rasters: tuple[Raster, ...], context: RunContext, backend: str) -> Engine:
        """Return the engine of the operation."""
        return self.make_engine(self.graph, context, backend)

    def column_attributes(self, name: str) -> dict[str, Any]:
        """Return the value that stands for "no path" in a column, if it needs one."""
        fill = fill_of_column(self.graph, name)
        return {} if fill is None else {"_FillValue": fill}

    def collect(self, engine: Engine, sink: ArraySink, attributes: dict[str, Any]) -> xr.Dataset:
        """Return the columns as a dataset."""
        variables = {
            name: (
                dims,
                pieces[0] if len(pieces) == 1 else np.concatenate(pieces),
                self.column_attributes(name),
            )
            for name, (dims, pieces) in (
                (name, (dims, list(column))) for name, (dims, column) in engine.table().items()
            )
        }
        labels = self.graph.ids
        named: dict[str, Array] = {}
        for name in ("vertex", "source", "target"):
            if name in variables:
                _, named[name], _ = variables.pop(name)
                if labels.dtype.kind not in "iu":  # they are places so far
                    named[name] = labels[named[name]]
        known = {name: variables.pop(name) for name in self.graph.coordinates if name in variables}
        return xr.Dataset(variables, _coordinates(named, known), attributes)

    def open(self, out: Any) -> xr.Dataset:
        """Open the dataset lazily."""
        found = super().open(out)
        return found.set_coords([name for name in ("x", "y") if name in found])


@dataclass
class WholeGraph:
    """The engine for a graph in one part: one function does it all, in this process."""

    solve: Callable[[], tuple[dict[str, Any], Columns]]
    columns: Columns = field(default_factory=dict)
    done: bool = False

    def run(self, client: Client | None, handle: Any, cancelled: Event) -> dict[str, Any]:
        """Run the operation; return the attributes of the result."""
        attributes, self.columns = self.solve()
        self.done = True
        return attributes

    def table(self) -> Table:
        """Return the columns, in one piece each."""
        return {name: (dims, [values]) for name, (dims, values) in self.columns.items()}

    def progress(self) -> Progress:
        """Return whether it is done."""
        return Progress(int(self.done), 1)

    def statistics(self) -> dict[str, int]:
        """Return nothing: how much work it was is known before."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {}  # no task has need of it


def _coordinates(named: Mapping[str, Array], others: Mapping[str, Any]) -> xr.Coordinates:
    """Return coordinates with an index of each of some dimensions, which are not copied."""
    variables, indexes = dict(others), {}
    for name, labels in named.items():
        view = labels.view()
        view.setflags(write=False)
        indexes[name] = PandasIndex(pd.Index(view, dtype=view.dtype, copy=False), name)
        variables |= indexes[name].create_variables()
    return xr.Coordinates(variables, indexes)


def _checksum(values: Any) -> int:
    """Return the checksum of an array in memory or stored, which is read a piece at a time."""
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
    """Return the job of an operation on a graph that one function does.

    ``solve`` is called with the backend and returns attributes and columns.
    """

    def make_engine(graph: Graph, context: RunContext, backend: str) -> Engine:
        return WholeGraph(lambda: solve(backend))

    return _job(graph, operation, parameters, backend, make_engine, spec)


def sweep_job(graph: Graph, problem: Any, parameters: Mapping[str, Any], spec: RunSpec) -> GraphJob:
    """Return the job of a problem of the quadtree sweep on the parts of a graph."""

    def make_engine(graph: Graph, context: RunContext, backend: str) -> Engine:
        parts: Any = GraphParts(graph)
        return GraphSweep(replace(problem, backend=backend), (parts,), context)

    return _job(graph, problem.name, parameters, problem.backend, make_engine, spec)


def parts_job(
    graph: Graph,
    parameters: Mapping[str, Any],
    spec: RunSpec,
    problem: Any,
    engine: Callable[..., Engine],
    rasters: tuple[Any, ...],
) -> GraphJob:
    """Return the job of a problem of the frontier engine on the parts of a graph.

    The parts form a grid of one column.
    """

    def make_engine(graph: Graph, context: RunContext, backend: str) -> Engine:
        return engine(problem, rasters, context)

    job = _job(graph, problem.name, parameters, problem.backend, make_engine, spec)
    return replace(job, shape=(graph.part_count, 1))


def _job(
    graph: Graph,
    operation: str,
    parameters: Mapping[str, Any],
    backend: str,
    make_engine: Any,
    spec: RunSpec,
) -> GraphJob:
    if spec.out is not None:
        refuse_overlap(None, spec.out, graph)
    of_parts = (1, graph.part_count), Layout(1, 1)
    return GraphJob((), *of_parts, backend, graph, operation, parameters, make_engine, spec=spec)


@dataclass(frozen=True)
class GraphSweep(QuadtreePass):
    """The quadtree sweep over the parts of a graph; all its results are columns."""

    def table(self) -> dict[str, tuple[tuple[str, ...], Iterable[Array]]]:
        """Return the columns of the problem, and the vertices if they have any."""
        own = super().table()
        if not any(dims == ("vertex",) for dims, _ in own.values()):
            return own
        parts: Any = self.rasters[0]
        named = vertex_columns(parts.graph)
        return {**{name: (dims, [values]) for name, (dims, values) in named.items()}, **own}


def vertex_columns(graph: Graph, sources: Sequence[int] = ()) -> Columns:
    """Return the ids of a graph's vertices, their coordinates where known, and ids of sources.

    ``sources`` are stored vertices. Labels that are not integers are left to `GraphJob.collect`: a
    store has their places instead.
    """
    ids = graph.ids if graph.ids.dtype.kind in "iu" else np.arange(graph.vertex_count)
    coordinates = {name: (("vertex",), values) for name, values in graph.coordinates.items()}
    columns: Columns = {"vertex": (("vertex",), ids), **coordinates}
    if len(sources):
        columns["source"] = ("source",), ids[graph.position[list(sources)]]
    return columns


def method_on(backend: str) -> str:
    """Return the method that suits a backend; it is undecided where workers are yet to come."""
    return "delta-stepping" if backend == "auto" else get_backend(backend).graph_method


def check_graph(graph: Any) -> Graph:
    """Return the graph; InputError if it is none."""
    if not isinstance(graph, Graph):
        raise InputError(
            f"graph: {type(graph).__name__} is no graph; make one with orograph.read_graph"
        )
    return graph
