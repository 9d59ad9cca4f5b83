"""Estimate of what a run takes before it starts: tasks, memory, disk.

The formulas stand beside the problems, in functions that `ESTIMATES` names. Each takes what the
operation is given, or a shape, then ``dtype``, ``tile`` and ``workers``, and options of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.execution.clusters import current_client, memory_of_worker
from orograph.execution.feedback import compilations
from orograph.execution.options import run_layout
from orograph.plotting import html
from orograph.settings import check_settings, setting, thread_count
from orograph.tiles.arguments import check_choice, check_integer, shown
from orograph.tiles.errors import InputError
from orograph.tiles.graph.graph import Graph
from orograph.tiles.grid.quadtree import Quadtree
from orograph.tiles.raster.nodata import supported_dtype
from orograph.tiles.raster.raster import Raster, open_raster
from orograph.tiles.store.create import Layout

MIB = 2**20
MOST_WORKERS = 2**20
INDEX = "distance_index"
ESTIMATES = {
    "minimum_spanning_forest": "orograph.forest:estimate_forest",
    "cost_distance": "orograph.distance.estimate:estimate_cost",
    "hop_distance": "orograph.distance.estimate:estimate_hops",
    "connected_components": "orograph.planning.components:estimate_components",
    "st_connected": "orograph.reachability.estimate:estimate_reach",
    "fill_depressions": "orograph.terrain.estimate:estimate_fill",
    "flood_level": "orograph.terrain.estimate:estimate_flood",
    "depressions": "orograph.terrain.estimate:estimate_depressions",
    "peaks": "orograph.terrain.estimate:estimate_peaks",
    "pass_elevation": "orograph.terrain.estimate:estimate_passes",
    "all_pairs": "orograph.dense_paths.estimate:estimate_all_pairs",
    INDEX: "orograph.index.estimate:estimate_index",
}
ESTIMATES_OF_GRAPHS = {
    "shortest_paths": "orograph.graphs.estimate:estimate_paths",
    "minimum_spanning_forest": "orograph.graphs.estimate:estimate_forest",
    "connected_components": "orograph.graphs.estimate:estimate_components",
    "hop_distance": "orograph.graphs.estimate:estimate_hops",
    "st_connected": "orograph.graphs.estimate:estimate_connected",
}
COMMON = {"dtype", "tile", "workers", "threads"}

# Resident memory of processes that have imported all they need and done nothing yet, and what
# the scheduler holds for a task. Measured, see benchmarks/memory.py.
# The system maps some 40 MiB more or less of their libraries, as these lie in its file cache.
CLIENT_BYTES = 260 * MIB
WORKER_BYTES = 235 * MIB
TASK_BYTES = 20_000


@dataclass(frozen=True)
class Plan:
    """What a run will take.

    Attributes
    ----------
    operation
        Its name.
    shape, tile, shard
        The grid, and how it is cut: cells a side of a tile (an index: of a stored block) and of
        what one task does. Tiles are those of the run: distances join those of the store.
    tiles, tasks
        How many there are. Distances: tasks at the least, as their number depends on the data.
    memory_per_worker, memory_client, memory_total
        Peak resident bytes of a worker of one thread, of the process with client and scheduler,
        and of both together with ``workers`` workers. Without workers all is that of the client.
    memory_kept
        How much of ``memory_per_worker`` (of ``memory_client``, without workers) is tiles that a
        worker of a distance keeps by choice, up to half of what it may use. It needs no more than
        the rest: with less memory tiles are put on disk and read again.
    memory_table
        How much of ``memory_client`` is for the table of components, peaks or depressions, which is
        written when workers have let go of what they held.
    bytes_read, bytes_written, bytes_checkpoints
        Uncompressed bytes of the input, of the result and of the checkpoints; on disk they are
        less. Of an index ``bytes_written`` is exactly its ``bytes_uncompressed``.
    workers
        For how many workers ``memory_total`` is; 0: for threads of this process.
    bytes_on_disk
        What an index will take, compressed, estimated from parts of some of its blocks, usually to
        a few hundredths, within a tenth on all rasters tried; None where there is only a shape, and
        for all other operations.

    Examples
    --------
    >>> import orograph as og
    >>> og.plan("minimum_spanning_forest", (4096, 4096)).bytes_written // 2**20
    16
    """

    operation: str
    shape: tuple[int, int]
    tile: int
    shard: int
    tiles: int
    tasks: int
    memory_per_worker: int
    memory_client: int
    bytes_read: int
    bytes_written: int
    bytes_checkpoints: int
    workers: int
    bytes_on_disk: int | None
    memory_kept: int = 0
    memory_table: int = 0

    @property
    def bytes_per_cell(self) -> float:
        """Bytes of the result for each cell: on disk if that is known, else uncompressed."""
        count = self.bytes_written if self.bytes_on_disk is None else self.bytes_on_disk
        return count / (self.shape[0] * self.shape[1])

    @property
    def memory_total(self) -> int:
        """Peak resident bytes of client, scheduler and workers together."""
        at_work = self.memory_client - self.memory_table + self.workers * self.memory_per_worker
        return max(at_work, self.memory_client + self.workers * WORKER_BYTES)

    def _head(self) -> list[str]:
        """Return the lines that say what is worked on."""
        rows, columns = self.shape
        pieces = "blocks" if self.operation == INDEX else "tiles"
        return [
            f"{self.operation} of {rows} x {columns} cells",
            f"  {self.tiles} {pieces} of {self.tile} x {self.tile} cells, "
            f"written in shards of {self.shard} x {self.shard}",
        ]

    def __str__(self) -> str:
        kept = f" ({_size(self.memory_kept)} of it by choice)" if self.memory_kept else ""
        memory = f"{_size(self.memory_client)} in this process{kept}, without a cluster"
        if self.workers:
            memory = (
                f"{_size(self.memory_per_worker)} a worker{kept}, "
                f"{_size(self.memory_client)} client and scheduler, "
                f"{_size(self.memory_total)} with {self.workers} worker(s)"
            )
        lines = [
            *self._head(),
            f"  {self.tasks} task{'s' * (self.tasks != 1)}",
            f"  memory: {memory}",
            f"  disk, uncompressed: {_size(self.bytes_read)} read, "
            f"{_size(self.bytes_written)} written, "
            f"{_size(self.bytes_checkpoints)} of checkpoints on the way",
        ]
        if self.bytes_on_disk is not None:
            lines.append(
                f"  on disk: some {_size(self.bytes_on_disk)}, "
                f"{self.bytes_per_cell:.1f} bytes a cell"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        title, *lines = str(self).split("\n")
        return html.table(title, dict(_named(line.strip()) for line in lines))


def _named(line: str) -> tuple[str, str]:
    """Return a line of a plan as a name and a value."""
    name, colon, value = line.partition(": ")
    if colon:
        return name, value
    count, _, rest = line.partition(" ")
    return rest.partition(" ")[0], f"{count} {rest}"


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count = count / 1024  # type: ignore[assignment]
    return f"{count:.1f} GiB"


def plan(
    operation: str | Callable[..., Any],
    raster: Any,
    *,
    dtype: npt.DTypeLike | None = None,
    tile: int | None = None,
    workers: int = 1,
    **options: Any,
) -> Plan:
    """Tell what a run will take, before anything is started.

    Parameters
    ----------
    operation : str or callable
        The operation, or its name: ``"minimum_spanning_forest"``, ``"cost_distance"``,
        ``"hop_distance"``, ``"connected_components"``, ``"st_connected"``, ``"fill_depressions"``,
        ``"flood_level"``, ``"pass_elevation"``, ``"peaks"``, ``"depressions"``,
        ``"all_pairs"`` or ``"distance_index"`` (`DistanceIndex`); of a `Graph`
        ``"shortest_paths"``, ``"minimum_spanning_forest"``, ``"connected_components"``,
        ``"hop_distance"``, ``"st_connected"`` or ``"all_pairs"``.
    raster : raster, graph or tuple of int
        What the operation will be given, or only its shape (rows, columns). Of an index friction,
        or None for a cost that goes without.
    dtype : dtype, optional
        Type of the cells where only a shape is given; float32 by default. Of an index and of
        `all_pairs` the type of costs, float64 by default.
    tile : int, optional
        As the operation will be given it.
    workers : int
        Number of workers of one thread each; 0: no cluster, but as many threads of this process as
        ``config["threads"]`` says, which join tiles to relax distances.
    **options
        Components: ``outputs``, ``min_size`` and ``label_dtype`` (the ``dtype`` of labels), as of
        `connected_components`; ``components``, how many there will be; memory and the table grow
        with them. By default it is estimated from some patches of the raster, for ``connectivity``
        neighbours (8); of a shape alone as many as in white noise, one in ten cells.

        Distances: ``outputs``, ``cost`` (the model) and ``cost_dtype`` (the ``dtype`` of costs), as
        of `cost_distance`.

        Distances, hops and `st_connected`: ``memory_limit``, what a worker may use, in bytes or
        such as ``"4 GiB"``; by default the limit of the active cluster's workers, or of those that
        `cluster` would start here. Without workers it is the memory of the machine.

        `st_connected`: ``pairs``, how many there will be; by default one.

        What the terrain says (fillings, flood levels, passes, peaks, depressions):
        ``connectivity``, and ``pits``, how many cells have no lower neighbour (of peaks: no
        higher); by default counted in some patches of the raster; of a shape alone as many as in
        white noise. `fill_depressions`: ``outputs`` too; `depressions`: ``labels``.

        `all_pairs`, run with ``out`` or a cluster: ``method`` and ``predecessors``.

        An index: ``elevation``, ``cost``, ``coefficients``, ``connectivity``, ``block``,
        ``levels``, ``cell_size``, ``nodata`` and ``sparsify``, as of `DistanceIndex.build`.

        A `Graph`: of `shortest_paths` ``sources``, how many there will be, ``method`` and
        ``predecessors``; of `hop_distance` ``predecessors``; of `st_connected` ``pairs``.

    Returns
    -------
    Plan
        Printed, it reads as a short table.

    Raises
    ------
    InputError
        If the operation or an option is unknown, or the raster cannot be used.

    Notes
    -----
    Only rasters of an index, of components and of what the terrain says are read, and only a part
    of them. That takes a second or two. No kernel is compiled, but for an index from a raster with
    ``sparsify=True``.

    Examples
    --------
    >>> import orograph as og
    >>> p = og.plan("minimum_spanning_forest", (16384, 16384), dtype="float32", workers=2)
    >>> p.tiles, p.tasks, p.bytes_read // 2**20
    (256, 171, 1024)
    >>> index = og.plan(og.DistanceIndex, (4096, 4096), block=64, levels=2)
    >>> index.tiles, round(index.bytes_per_cell, 1)
    (256, 72.6)
    """
    name = _name_of(operation)
    name = check_choice("operation", name, tuple({**ESTIMATES, **ESTIMATES_OF_GRAPHS}))
    workers = check_integer("workers", workers, 0, MOST_WORKERS)
    check_settings()
    table = _table_for(name, raster)
    estimate = _estimate_of(name, table)
    known = _options_of(name, table)
    for option in options.keys() - set(known):
        others = [other for other in table if option in _options_of(other, table)]
        raise InputError(
            f"{option}: no option of a plan of {name}, which has {', '.join(known) or 'none'}"
            + "".join(f"; it is one of {other}" for other in others)
        )
    compilations()  # says so, if a plan needs kernels
    if table is ESTIMATES_OF_GRAPHS:
        for argument, value in (("dtype", dtype), ("tile", tile)):
            if value is not None:
                raise InputError(f"{argument}: {shown(value)}; a graph has its own: leave it out")
    else:
        options |= {"dtype": dtype, "tile": tile}
    if workers:
        return estimate(raster, workers=workers, **options)
    threads = thread_count()
    if "threads" in inspect.signature(estimate).parameters:
        return _of_this_process(estimate(raster, workers=1, threads=threads, **options), 1)
    return _of_this_process(estimate(raster, workers=1, **options), threads)


def _of_this_process(worker: Plan, threads: int) -> Plan:
    """Return the plan of a run without a cluster: threads that do what a worker would each.

    What they let go of stays with the process while the table is written.
    """
    at_work = threads * (worker.memory_per_worker - WORKER_BYTES - worker.memory_kept)
    client = worker.memory_client - CLIENT_BYTES
    return replace(
        worker,
        memory_per_worker=0,
        memory_client=WORKER_BYTES + client + at_work + worker.memory_kept,
        memory_table=0,
        workers=0,
    )


def _name_of(operation: Any) -> Any:
    """Return the name of a public function of ours; anything else as it is."""
    module = str(getattr(operation, "__module__", ""))
    if not (inspect.isroutine(operation) or isinstance(operation, type)) or (
        module.partition(".")[0] != "orograph"
    ):
        return operation
    name = operation.__qualname__
    return INDEX if name in ("DistanceIndex", "DistanceIndex.build") else name


def _table_for(name: str, raster: Any) -> dict[str, str]:
    """Return the estimates among which that of an operation on a raster or a graph is."""
    of_graph = isinstance(raster, Graph)
    if of_graph and name in ESTIMATES_OF_GRAPHS:
        return ESTIMATES_OF_GRAPHS
    if name not in ESTIMATES:
        raise InputError(
            f"graph: {type(raster).__name__} is no graph, and {name} takes nothing else; make one "
            "with orograph.read_graph"
        )
    if of_graph and name != "all_pairs":
        raise InputError(f"raster: a Graph, and {name} takes none; give a raster or its shape")
    return ESTIMATES


def _estimate_of(name: str, table: dict[str, str] = ESTIMATES) -> Callable[..., Plan]:
    module, _, function = table[name].partition(":")
    estimate: Callable[..., Plan] = getattr(import_module(module), function)
    return estimate


def _options_of(name: str, table: dict[str, str] = ESTIMATES) -> list[str]:
    """Return the names of the options that an operation's plan has of its own."""
    parameters = inspect.signature(_estimate_of(name, table)).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in COMMON]


# -- what estimates have in common ----------------------------------------------------------------


@dataclass(frozen=True)
class Grid:
    """A raster, or what is known of one, and how a run will cut it."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    layout: Layout
    raster: Raster | None
    """None where there is only a shape."""

    @property
    def cells(self) -> int:
        """Of all the grid."""
        return self.shape[0] * self.shape[1]

    @property
    def tile_cells(self) -> int:
        """Of the largest tile."""
        return min(self.layout.tile, self.shape[0]) * min(self.layout.tile, self.shape[1])

    @property
    def shard_cells(self) -> int:
        """Of the largest shard."""
        return min(self.layout.shard, self.shape[0]) * min(self.layout.shard, self.shape[1])

    @property
    def tree(self) -> Quadtree:
        """Of its tiles."""
        return Quadtree(self.shape, self.layout.tile)

    @property
    def shards(self) -> int:
        """How many there are."""
        return self.tree.count(self.shard_level)

    @property
    def shard_level(self) -> int:
        """Level of the tree whose nodes are shards."""
        return (self.layout.shard // self.layout.tile).bit_length() - 1

    @property
    def tasks_of_sweep(self) -> int:
        """Tasks of an upward and a downward sweep over the quadtree."""
        tree = self.tree
        above = sum(tree.count(n) for n in range(self.shard_level + 1, tree.root.level + 1))
        return 2 * self.shards + 2 * above + 1


def open_grid(raster: Any, dtype: npt.DTypeLike | None, tile: int | None) -> Grid:
    """Return a raster, or the shape of one, as a run will cut it."""
    opened, cell = None, _cell_type(dtype)
    if isinstance(raster, tuple):
        shape = check_shape(raster)
    else:
        opened = open_raster(raster, argument="raster")
        shape, cell = opened.shape, opened.dtype
        tile = opened.tile if tile is None else tile
    layout = run_layout(shape, setting("tile") if tile is None else tile)
    return Grid(shape, cell, layout, opened)


def _cell_type(dtype: npt.DTypeLike | None) -> np.dtype[Any]:
    try:
        return supported_dtype(np.float32 if dtype is None else dtype, "dtype")
    except (TypeError, ValueError, SyntaxError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"dtype: {shown(dtype)} is none; give one such as 'float32'") from None


def check_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Refuse what is no shape of a grid."""
    try:
        rows, columns = (check_integer("side", side, 1) for side in shape)
    except ValueError:  # InputError is one
        raise InputError(
            f"raster: shape: {shown(shape)}; give rows and columns, at least 1 each"
        ) from None
    return rows, columns


def limit_of_worker(memory_limit: int | str | None) -> int:
    """Return the bytes that a worker may use: those that a user has named, or the usual ones."""
    return memory_of_worker(current_client()) if memory_limit is None else _bytes_of(memory_limit)


def limit_of_process(memory_limit: int | str | None) -> int:
    """Return the bytes that this process may use without a cluster: the memory of the machine."""
    import psutil

    if memory_limit is not None:
        raise InputError(
            f"memory_limit: {shown(memory_limit)} is what a worker may use, and workers=0; leave "
            "it out, or give a number of workers"
        )
    return int(psutil.virtual_memory().total)


def _bytes_of(memory_limit: int | str) -> int:
    """Bytes that a user has named."""
    from dask.utils import parse_bytes

    try:
        limit = parse_bytes(memory_limit or 0)
    except (ValueError, TypeError, AttributeError, OverflowError):
        limit = 0
    if isinstance(memory_limit, bool) or not 1 <= limit < 2**63:
        raise InputError(
            f"memory_limit: {shown(memory_limit)}; give bytes, at least 1, or a size such as "
            "'4 GiB'"
        )
    return limit
