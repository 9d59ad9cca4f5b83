"""Shortest paths between all pairs of a graph's vertices, of any number and anywhere on disk."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from dask.base import tokenize

from orograph import __version__
from orograph.dense_paths.blocked import METHODS, Blocks, Sources, Steps, from_sources, write
from orograph.dense_paths.edge_matrix import DTYPES, EdgeMatrix, open_edges
from orograph.dense_paths.negative_cycle import find_negative_cycle
from orograph.execution import jobs
from orograph.execution.checkpoints import CheckpointStore, MemoryCheckpoints
from orograph.execution.clusters import current_client
from orograph.execution.launch import check_choice
from orograph.execution.run import Progress, Run
from orograph.execution.workspace import Workspace
from orograph.kernels.minplus.closure import floyd_warshall_block
from orograph.kernels.minplus.lanes import BARRIER
from orograph.kernels.minplus.product import NO_VERTEX, minplus
from orograph.settings import config
from orograph.tiles.errors import InputError, NegativeCycle, RunError
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.store.create import Layout, Variable, create_store, update_attributes
from orograph.tiles.store.dataset import open_dataset
from orograph.tiles.store.sink import ArraySink, Sink, StoreSink
from orograph.tiles.store.storage import Location, Storage

if TYPE_CHECKING:
    from distributed import Client

DIJKSTRA = "dijkstra"
PLACE = Georeference(y_name="source", x_name="target")


def all_pairs(
    graph: Any,
    *,
    predecessors: bool = False,
    method: str = "auto",
    dtype: str = "float64",
    no_edge: float = 0,
    tile: int | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    wait: bool = True,
    client: Client | None = None,
) -> xr.Dataset | Run:
    """The least length of a path from each vertex of a graph to each.

    Parameters
    ----------
    graph : array, sparse array, DataFrame or path
        Lengths of the edges, from row to column: a square NumPy, Dask or Zarr array or DataArray,
        a pandas DataFrame, the path of a Zarr array, or a SciPy sparse array. In a dense one
        infinity, NaN and ``no_edge`` mean that there is no edge; in a sparse one what is not
        stored is no edge, and a stored 0 is an edge of length 0. Lengths may be negative. Of
        parallel edges the shortest counts.
    predecessors : bool
        Return the vertex before the last on each path too.
    method : {"auto", "floyd-warshall", "squaring", "dijkstra"}
        ``floyd-warshall`` and ``squaring`` (repeated min-plus products) work on tiles of the
        matrix and take about n**3 and n**3 log2(n) steps; ``dijkstra`` runs SciPy's algorithm from
        each vertex and takes no negative lengths. ``auto`` takes ``dijkstra`` for a graph in which
        fewer than about one edge in a thousand is there, else ``floyd-warshall``.
    dtype : {"float64", "float32", "int64"}
        In which lengths are added and returned. ``float32`` takes no negative ones.
    no_edge : float
        A value of the matrix that means that there is no edge: 0, as in networkx and SciPy.
        ``no_edge=np.inf`` makes zeros off the diagonal edges of length 0.
    tile : int, optional
        Rows and columns of a tile, at most 8192; by default an eighth of the matrix, 128 to 1024
        (with ``dijkstra`` 256). A task holds three tiles; with ``dijkstra``, and to write
        predecessors, as many rows as a tile has.
    out, overwrite, resume, wait, client
        As of `cost_distance`: with ``out`` or ``client`` the tiles lie on disk, and the matrix may
        be larger than memory.

    Returns
    -------
    xarray.Dataset
        ``distance`` (source, target): infinity, or 2**60 in integers (``_FillValue``), where there
        is no path. ``predecessor``, int32: -9999 where there is none, as in SciPy. Attributes:
        ``method``, ``tile``, ``vertices`` and ``edges``. With ``wait=False`` a `Run`.

    Raises
    ------
    InputError
        If the graph or an argument cannot be used, or lengths of paths may pass what ``dtype``
        holds.
    NegativeCycle
        If a cycle of negative length is there; the error names it.

    Notes
    -----
    The bits depend on the method and on ``tile`` (sums associate as its boundaries fall), not on
    the number of workers or where tiles lie. Integers are the same whatever the tile; floats of
    different tiles agree within rounding. In float64 a cycle counts as negative if its length is
    below ``-n**2 * 2**-52`` times the greatest length: less may be rounding.

    Any of several shortest paths may be the one that predecessors tell. They come to the source
    always, even round cycles of length 0.

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
    check_choice("method", method, ("auto", *METHODS, DIJKSTRA))
    check_choice("dtype", dtype, DTYPES)
    if client is not None and not hasattr(client, "scheduler_info"):
        raise InputError(f"client: {client!r} is no Dask client; pass a distributed.Client")
    if resume and out is None:
        raise InputError("resume: a run without out= leaves nothing to go on with; pass out=")
    matrix = open_edges(graph, dtype, no_edge)
    method = _choose(matrix, method)
    side = Layout(tile, tile).tile if tile is not None else usual_tile(matrix.n, method)
    side = min(side, matrix.n)
    client = client or (current_client() if out is not None else None)
    task = _Task(matrix, side, method, predecessors)
    if out is None and client is None:
        work = task.in_memory
    else:
        folder, scratch = _folder(out)
        space = Workspace(folder, task.identity(), overwrite=overwrite, resume=resume)
        work = _on_disk(task, space, client, scratch)
    run = Run(work, lambda: task, task.cancelled, client)  # type: ignore[arg-type, return-value]
    return run.result() if wait else run


def usual_tile(n: int, method: str) -> int:
    """Rows of a tile: an eighth of the matrix, 128 to 1024, in steps of 64.

    A task of Dijkstra holds whole rows, so it gets 256 at most.
    """
    most = 256 if method == DIJKSTRA else 1024
    return max(128, min(most, -(-n // 512) * 64))


def few_edges(edges: int, n: int) -> bool:
    """Return whether Dijkstra's algorithm is quicker, on n vertices with so many edges."""
    return 1000 * (edges + n * math.log2(n + 1)) < n * n


def _choose(matrix: EdgeMatrix, method: str) -> str:
    stats, n = matrix.statistics, matrix.n
    if method == "auto":
        few = few_edges(stats.edges, n)
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


@dataclass
class _Task:
    """All pairs of one graph: what is to be done, and how far it is."""

    matrix: EdgeMatrix
    side: int
    method: str
    traced: bool
    cancelled: Event = field(default_factory=Event)
    steps: Steps | None = None

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The rasters of the result."""
        fill = BARRIER if self.matrix.dtype.kind == "i" else None
        distance = Variable("distance", self.matrix.dtype, fill, {"long_name": "length of path"})
        before = {"long_name": "vertex before the target on the path from the source"}
        predecessor = Variable("predecessor", np.dtype(np.int32), NO_VERTEX, before)
        return (distance, predecessor) if self.traced else (distance,)

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the result."""
        return {
            "method": self.method,
            "tile": self.side,
            "vertices": self.matrix.n,
            "edges": self.matrix.statistics.edges,
        }

    def identity(self) -> dict[str, Any]:
        """What decides the result, in JSON types."""
        stats = self.matrix.statistics
        return {
            "operation": "all-pairs",
            **self.attributes,
            "dtype": str(self.matrix.dtype),
            "predecessors": self.traced,
            "input": [stats.least, stats.greatest, stats.checksum],
            "orograph": __version__,
        }

    def progress(self) -> Progress:
        """Phases that are done, and all of them."""
        if self.steps is None:
            return Progress(0, 0)
        return Progress(self.steps.done, self.steps.total)

    def statistics(self) -> dict[str, int]:
        """How much work it was: known before."""
        return {}

    def work(
        self, checkpoints: CheckpointStore, sink: Sink, client: Client | None, token: str
    ) -> None:
        """Do it all, into the sink."""
        self._warm_up()
        stats, matrix = self.matrix.statistics, self.matrix
        cancelled = None if client else self.cancelled
        if self.method == DIJKSTRA:
            nothing = float(BARRIER) if matrix.dtype.kind == "i" else math.inf
            work = Sources(
                matrix.n, self.side, matrix.dtype, nothing, self.traced, checkpoints, sink, token,
                cancelled,
            )  # fmt: skip
            work.begin(matrix)
            with jobs.shared(work, client) as handle:
                self.steps = Steps(work, handle, client, self.cancelled, total=1)
                from_sources(self.steps)
            return
        tolerance = 0.0
        if matrix.dtype.kind == "f" and stats.least < 0:
            tolerance = matrix.n**2 * 2.0**-52 * stats.greatest
        blocks = Blocks(
            matrix.n, self.side, self.traced, stats.least < 0, tolerance, checkpoints, sink,
            token, cancelled,
        )  # fmt: skip
        with jobs.shared(blocks, client) as handle:
            self.steps = Steps(blocks, handle, client, self.cancelled, total=blocks.count + 1)
            if blocks.whole_generation(blocks.count + 64) < 0:
                replace(blocks, cancelled=self.cancelled).begin(matrix)
            generation, bad = METHODS[self.method](self.steps)
            if bad is not None:
                found = find_negative_cycle(matrix, tolerance / (2 * matrix.n))
                if found is None:
                    raise RunError(
                        f"vertex {bad} is nearer to itself than 0, but no negative cycle was "
                        "found; this should not be: report it with the graph"
                    )
                raise NegativeCycle(*found)
            write(self.steps, generation)

    def in_memory(self) -> xr.Dataset:
        """On threads of this process, without a file."""
        n = self.matrix.n
        arrays = {v.name: np.empty((n, n), v.dtype) for v in self.outputs}
        token = tokenize("memory", time.time_ns())
        self.work(MemoryCheckpoints(), ArraySink(arrays), None, token)
        variables = {
            v.name: (
                ("source", "target"),
                arrays[v.name],
                {**v.attrs, **({} if v.fill_value is None else {"_FillValue": v.fill_value})},
            )
            for v in self.outputs
        }
        return xr.Dataset(variables, attrs=self.attributes)

    def _warm_up(self) -> None:
        """Compile the kernels before several threads or workers want them."""
        a = np.zeros((1, 1), self.matrix.dtype)
        before = np.zeros((1, 1), np.int32) if self.traced else None
        minplus(a, a.copy(), a.copy(), before_b=before, before=before)
        floyd_warshall_block(a, before=before)


def _folder(out: Location | None) -> tuple[Location, tempfile.TemporaryDirectory[str] | None]:
    if out is not None:
        return out, None
    scratch = tempfile.TemporaryDirectory(
        prefix="orograph-", dir=config.get("scratch") or None, ignore_cleanup_errors=True
    )
    return Path(scratch.name) / "result.zarr", scratch


def _on_disk(
    task: _Task,
    space: Workspace,
    client: Client | None,
    scratch: tempfile.TemporaryDirectory[str] | None,
) -> Callable[[], xr.Dataset]:
    """The work that goes through a workspace."""

    def create_result(result: Storage, run: str) -> None:
        n = task.matrix.n
        layout = Layout(task.side, task.side)
        create_store(result, (n, n), layout, task.outputs, PLACE, task.attributes, run)

    def work() -> xr.Dataset:
        if space.finished:
            space.clear()
            return open_dataset(space.out)
        checkpoints = space.open(create_result)
        token = tokenize(space.token, time.time_ns())
        task.work(checkpoints, StoreSink(space.result), client, token)
        update_attributes(space.result, None, task.attributes)
        space.publish()
        result = open_dataset(space.out)
        if scratch is not None:
            result = result.load()
            result.close()
            scratch.cleanup()
        return result

    return work
