"""The operation `all_pairs`: shortest path lengths between all pairs of vertices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from orograph.graphs.dense_paths.blocked import (
    METHODS,
    Blocks,
    Sources,
    Steps,
    from_sources,
    most_phases,
    write,
)
from orograph.graphs.dense_paths.edge_matrix import DTYPES, EdgeMatrix, open_edges
from orograph.graphs.dense_paths.graphs import labelled, refuse_large_table
from orograph.graphs.dense_paths.negative_cycle import (
    MaskedPairs,
    find_negative_cycle,
    without_negative_cycles,
)
from orograph.graphs.dense_paths.on_devices import divide_rows, solve_on_devices
from orograph.graphs.unreached import fill_of_integers
from orograph.kernels.backends import may_use_numba
from orograph.kernels.minplus.closure import floyd_warshall_block
from orograph.kernels.minplus.lanes import BARRIER
from orograph.kernels.minplus.product import NO_VERTEX, minplus
from orograph.operations.operation import operation
from orograph.run.backends import choose_backend
from orograph.run.context import RunContext
from orograph.run.feedback import Progress
from orograph.run.job import DatasetJob
from orograph.run.options import GraphOptions, RunSpec, stays_in_memory
from orograph.run.run import Engine
from orograph.tiles.arguments import check_choice, check_dtype, check_flag
from orograph.tiles.convert.overlap import refuse_overlap
from orograph.tiles.errors import InputError, NegativeCycle, RunError
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.raster.raster import Raster
from orograph.tiles.raster.unchanged import Version
from orograph.tiles.store.create import Layout, Variable
from orograph.tiles.store.sink import ArraySink

if TYPE_CHECKING:
    import xarray as xr
    from distributed import Client

    from orograph.run.job import Job
    from orograph.run.shared_data import Handle
    from orograph.tiles.graph.graph import Graph, VerticesLike
    from orograph.tiles.graph.read import GraphLike


DIJKSTRA = "dijkstra"
PLACE = Georeference(y_name="source", x_name="target")


@operation(*["orograph.graphs.dense_paths.estimate:estimate_all_pairs"] * 2)
def all_pairs(
    graph: npt.ArrayLike | GraphLike | Graph,
    *,
    predecessors: bool = False,
    method: str = "auto",
    dtype: str = "float64",
    no_edge: float = 0,
    sources: VerticesLike | None = None,
    negative_cycles: str = "raise",
    tile: int | None = None,
    **options: Unpack[GraphOptions],
) -> Job[xr.Dataset]:
    """Return the length of a shortest path from each vertex of a graph to every other vertex.

    Parameters
    ----------
    graph : array, sparse array, DataFrame, path, Graph or networkx graph
        Lengths of the edges, from row to column: a square NumPy, Dask or Zarr array or DataArray, a
        pandas DataFrame, the path of a Zarr array, or a SciPy sparse array. Or a graph, in any form
        that `read_graph` accepts or returns. In a dense array, infinity, NaN and ``no_edge`` mean
        that there is no edge. In a sparse array, entries that are not stored are not edges, and a
        stored 0 is an edge of length 0. Lengths may be negative. Of parallel edges the shortest
        counts.
    predecessors : bool
        Also return the previous vertex on each path.
    method : {"auto", "floyd-warshall", "squaring", "dijkstra"}
        Algorithm; ``auto`` chooses ``dijkstra`` for a graph with fewer than about one in a thousand
        of all possible edges, else ``floyd-warshall``. ``floyd-warshall`` and ``squaring``
        (repeated min-plus products) work on tiles of the matrix and take about n**3 and n**3
        log2(n) steps. ``dijkstra`` runs SciPy's algorithm from each vertex and does not accept
        negative lengths.
    dtype : {"float64", "float32", "int64"}
        Dtype in which lengths are added and returned. ``float32`` does not accept negative lengths.
    no_edge : float
        Value of the matrix that means that there is no edge; 0 by default, as in networkx and
        SciPy. With ``no_edge=np.inf``, zeros off the diagonal are edges of length 0.
    sources : ids, optional
        Return only the rows of these vertices, with one search from each of them
        (`shortest_paths`), by the method that ``auto`` chooses; in memory or written to ``out``.
    negative_cycles : {"raise", "mask"}
        Refuse a graph with a cycle of negative length, or set the distance of a pair to -infinity
        (-2**60 for integers) if a walk from one vertex to the other can pass through such a cycle;
        only for results in memory.
    tile : int, optional
        Side of a tile in rows and columns, at most 8192; by default an eighth of the matrix, from
        128 to 1024 (with ``dijkstra`` up to 256). A task holds three tiles; with ``dijkstra``, and
        to write predecessors, it holds as many rows as a tile has.
    **options

    Returns
    -------
    xarray.Dataset
        ``distance`` (source, target): infinity, or -1 (``_FillValue``) for integers, if there is no
        path. If a length is negative, -1 may be a distance, and ``_FillValue`` is 2**60.
        ``predecessor``, int32: -9999 if there is none, as in SciPy. Attributes: ``method``,
        ``tile``, ``vertices`` and ``edges``. For a result in memory, the labels of a data frame's
        rows or the ids of a graph's vertices are the coordinates ``source`` and ``target``.

    Raises
    ------
    InputError
        If the graph or an argument cannot be used, if lengths of paths may exceed the range of
        ``dtype``, or if the table does not fit into memory and there is no ``out``.
    NegativeCycle
        If the graph has a cycle of negative length; the error names it.
    StoreExistsError, BackendError

    Notes
    -----
    With ``out`` or ``client`` the tiles are on disk, and the matrix may be larger than memory.
    ``dijkstra`` does not have a CUDA kernel.

    The bits depend on the method and on ``tile`` (its boundaries determine the order of additions),
    but not on the number of workers or where tiles are kept. Integers do not depend on the tile
    either; floats with different tiles agree within rounding. In float64 a cycle counts as negative
    if its length is below ``-n**2 * 2**-52`` times the greatest length, because smaller values may
    be rounding errors.

    If there are several shortest paths, predecessors may follow any of them. They always lead to
    the source, even around cycles of length 0.

    References
    ----------
    Venkataraman, Sahni and Mukhopadhyaya (2003), doi:10.1145/996546.996553.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> lengths = np.array([[0, 4, 1], [0, 0, 0], [0, 2, 0]])
    >>> og.all_pairs(lengths).distance.values.tolist()
    [[0.0, 3.0, 1.0], [inf, 0.0, inf], [inf, 2.0, 0.0]]
    """
    method = check_choice("method", method, ("auto", *METHODS, DIJKSTRA))
    dtype = check_dtype("dtype", dtype, DTYPES)
    negative_cycles = check_choice("negative_cycles", negative_cycles, ("raise", "mask"))
    predecessors = check_flag("predecessors", predecessors)
    spec = RunSpec(tile=tile, **options)
    if spec.storage is not None:
        refuse_overlap(None, spec.storage, graph)
    graph, labels = labelled(graph)
    if sources is not None:
        from orograph.graphs.dense_paths.rows import RowsOfPairs

        rows = RowsOfPairs(graph, labels, dtype, no_edge, predecessors, method, negative_cycles)
        return rows.job(sources, spec)
    matrix = open_edges(graph, dtype, no_edge)
    if stays_in_memory((), spec):
        refuse_large_table(matrix, predecessors)
    masked = None
    if negative_cycles == "mask":
        if not stays_in_memory((), spec):
            raise InputError("negative_cycles: 'mask' is for results in memory; leave out= away")
        matrix, masked = without_negative_cycles(matrix)
    method = _choose(matrix, method)
    side = Layout(tile, tile).tile if tile is not None else usual_tile(matrix.n, method)
    side = min(side, matrix.n)
    stage = DIJKSTRA if method == DIJKSTRA else "minplus"
    chosen = choose_backend(stage, (), spec)
    shape = matrix.n, matrix.n
    layout = Layout(side, side)
    kept = matrix, method, predecessors, labels, masked
    return MatrixJob((), shape, layout, chosen, *kept, spec=spec)


def usual_tile(n: int, method: str) -> int:
    """Return the default tile side: an eighth of the matrix, 128 to 1024, in steps of 64.

    A task of Dijkstra's algorithm holds whole rows, so its tile is at most 256.
    """
    most = 256 if method == DIJKSTRA else 1024
    return max(128, min(most, -(-n // 512) * 64))


def few_edges(edges: int, n: int) -> bool:
    """Return whether a graph is sparse enough for Dijkstra to beat Floyd-Warshall."""
    return 1000 * (edges + n * math.log2(n + 1)) < n * n


def _choose(matrix: EdgeMatrix, method: str) -> str:
    stats, n = matrix.statistics, matrix.n
    if method == "auto":
        few = few_edges(stats.edges, n)
        # SciPy adds in float64, which holds all integers up to 2**53.
        exact = matrix.dtype.kind != "i" or n * stats.greatest < 2**53
        method = DIJKSTRA if few and stats.least >= 0 and exact else "floyd-warshall"
    if stats.least < 0 and method == DIJKSTRA:
        raise InputError(
            f"method: 'dijkstra' takes no negative lengths, and the least is {stats.least}; use "
            "'floyd-warshall'"
        )
    if stats.least < 0 and matrix.dtype == np.float32:
        raise InputError(
            f"dtype: float32 takes no negative lengths, and the least is {stats.least}: sums near "
            "0 would have no correct digit; use 'float64'"
        )
    if matrix.dtype.kind == "i":
        limit = 2**53 if method == DIJKSTRA else BARRIER // 2
        if n * stats.greatest >= limit:
            raise InputError(
                f"dtype: paths of {n} vertices and lengths up to {stats.greatest:.0f} may pass "
                f"{limit}, up to which {method} is exact in int64; use 'float64'"
            )
    elif n * stats.greatest > float(np.finfo(matrix.dtype).max):
        wider = " dtype='float64'," if matrix.dtype == np.float32 else ""
        raise InputError(
            f"graph: paths of {n} vertices and lengths up to {stats.greatest:g} may pass "
            f"{np.finfo(matrix.dtype).max:g}, the largest {matrix.dtype}; pass{wider} lengths in a "
            f"larger unit, or no_edge={stats.greatest:g} if that stands for no edge"
        )
    return method


@dataclass(frozen=True)
class MatrixJob(DatasetJob):
    """Job of all-pairs shortest paths of one graph."""

    matrix: EdgeMatrix
    method: str
    traced: bool
    labels: npt.NDArray[Any] | None = None
    masked: MaskedPairs | None = None
    georeference = PLACE

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The rasters of path lengths and, if requested, of predecessors."""
        attributes = {"long_name": "length of path"}
        distance = Variable("distance", self.matrix.dtype, self.fill, attributes)
        before = {"long_name": "vertex before the target"}
        predecessor = Variable("predecessor", np.dtype(np.int32), NO_VERTEX, before)
        return (distance, predecessor) if self.traced else (distance,)

    @property
    def fill(self) -> int | None:
        """Value that marks pairs without a path in integer results; None: infinity."""
        if self.matrix.dtype.kind != "i":
            return None
        return fill_of_integers(-1 if self.masked is not None else self.matrix.statistics.least)

    @property
    def known_attributes(self) -> dict[str, Any]:
        """The attributes of the result, all known before the run."""
        return {
            "method": self.method,
            "tile": self.layout.tile,
            "vertices": self.matrix.n,
            "edges": self.matrix.statistics.edges,
        }

    def identity(self) -> dict[str, Any]:
        """Return the method, the tiling and a checksum of the edges."""
        stats = self.matrix.statistics
        return {
            "operation": "all-pairs",
            **self.known_attributes,
            "dtype": str(self.matrix.dtype),
            "predecessors": self.traced,
            "input": [stats.least, stats.greatest, stats.checksum],
        }

    def collect(self, engine: Any, sink: ArraySink, attributes: dict[str, Any]) -> xr.Dataset:
        """Build the dataset, with masked pairs set to minus infinity."""
        if self.masked is not None:
            self.masked.apply(**sink.arrays)
        return super().collect(engine, sink, attributes)

    def dataset(
        self, arrays: Mapping[str, Any], columns: Mapping[str, Any], attributes: Mapping[str, Any]
    ) -> xr.Dataset:
        """Build the dataset, with the vertices' labels as coordinates."""
        found = super().dataset(arrays, columns, attributes)
        if self.labels is None:
            return found
        return found.assign_coords(source=self.labels, target=self.labels)

    @cached_property
    def first_versions(self) -> list[Version | None]:
        """Statistics and checksum of the edges when they were first read."""
        return [Version("graph", str(self.matrix.statistics))]

    def versions(self) -> list[Version | None]:
        """Read all edges again and return their current statistics and checksum."""
        # A copy, which has no statistics yet and reads all edges.
        return [Version("graph", str(replace(self.matrix).statistics))]

    def warm_up(self) -> None:
        """Compile the min-plus product and the Floyd-Warshall kernel."""
        if not may_use_numba(self.backend) or self.method == DIJKSTRA:
            return
        a = np.zeros((1, 1), self.matrix.dtype)
        before = np.zeros((1, 1), np.int32) if self.traced else None
        minplus(a, a.copy(), a.copy(), before_b=before, before=before)
        floyd_warshall_block(a, before=before)

    def engine(
        self, rasters: tuple[Raster, ...], context: RunContext, backend: str
    ) -> _MatrixEngine:
        """Return the engine that runs the chosen method."""
        stats, matrix, side = self.matrix.statistics, self.matrix, self.layout.tile
        work: Blocks | Sources
        if self.method == DIJKSTRA:
            nothing = math.inf if self.fill is None else self.fill
            work = Sources(matrix.n, side, matrix.dtype, nothing, self.traced, context)
        else:
            tolerance = 0.0
            if matrix.dtype.kind == "f" and stats.least < 0:
                tolerance = matrix.n**2 * 2.0**-52 * stats.greatest
            signed = stats.least < 0
            work = Blocks(
                matrix.n, side, self.traced, signed, tolerance, backend, context, self.fill
            )
        return _MatrixEngine(self, work)


class _MatrixEngine(Engine):
    """Engine of all-pairs shortest paths, which runs a method phase by phase."""

    def __init__(self, job: MatrixJob, work: Blocks | Sources) -> None:
        self.job = job
        self.work = work
        total = 1 if isinstance(work, Sources) else most_phases(work, job.method) + 1
        self._done: Callable[[], Progress] = lambda: Progress(0, total)

    def run(self, client: Client | None, handle: Handle, cancelled: Event) -> dict[str, Any]:
        """Run all phases and write the result; return its attributes."""
        work, matrix = self.work, self.job.matrix
        total = self._done().total
        steps = Steps(work, (handle, "work"), client, cancelled, total=total)
        self._done = lambda: Progress(steps.done, total)
        if isinstance(work, Sources):
            work.begin(matrix)
            from_sources(steps)
            return self.job.known_attributes
        # Squaring makes up to 64 generations, the other method one for each row of tiles.
        whole = work.whole_generation(work.count + 64) >= 0
        # What this process does itself looks at the event; the tasks of a cluster have none.
        here = replace(work, context=replace(work.context, cancelled=cancelled))
        shares = []
        # GPUs of this process, if they hold the matrix. A run that has saved tiles goes on with
        # these.
        if self.job.method == "floyd-warshall" and client is None and not whole:
            shares = divide_rows(here, matrix.dtype)
        if shares:
            bad = solve_on_devices(here, matrix, shares, steps.count_one)
        else:
            here.begin(matrix, whole)
            generation, bad = METHODS[self.job.method](steps)
        if bad is not None:
            # The methods know a vertex on a cycle. The error names the whole cycle, which a search
            # of its own finds.
            found = find_negative_cycle(matrix, work.tolerance / (2 * matrix.n))
            if found is None:
                raise RunError(
                    f"vertex {bad} is nearer to itself than 0, but no negative cycle was "
                    "found; this should not be: report it with the graph"
                )
            raise NegativeCycle(*found)
        if shares:
            steps.count_one()
        else:
            write(steps, generation)
        return self.job.known_attributes

    def progress(self) -> Progress:
        """Return the number of finished phases, and of all phases."""
        return self._done()

    def __getstate__(self) -> dict[str, Any]:
        # tasks find the edges among the checkpoints
        return {"work": self.work}
