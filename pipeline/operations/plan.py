"""Estimate the tasks, memory and disk space of a run before it starts.

The formulas are next to the problems, in functions that each `Operation` names. Such a function
takes the raster or graph first (a `Grid` if its first parameter is called ``grid``), then
``workers``, then the arguments of the operation that affect the estimate, and finally arguments
that only a plan needs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from orograph.engines.sweep_graphs import level_of_tasks, levels_above
from orograph.execution.clusters import current_client, memory_of_machine, memory_of_worker
from orograph.execution.feedback import compilations
from orograph.execution.options import run_layout, too_many_shards
from orograph.execution.settings import check_settings, setting, thread_count
from orograph.tiles import html
from orograph.tiles.arguments import check_integer, shown
from orograph.tiles.errors import InputError
from orograph.tiles.graph.graph import Graph
from orograph.tiles.grid.quadtree import Quadtree
from orograph.tiles.nodata import supported_dtype
from orograph.tiles.raster.raster import Raster, RasterLike, StoreRaster, open_raster
from orograph.tiles.store.create import Layout
from orograph.tiles.store.shard import AHEAD_BYTES

if TYPE_CHECKING:
    from orograph.operations.operation import Operation

MIB = 2**20
MOST_WORKERS = 2**20
OF_GRIDS = ("tile", "shard")
OF_PLANS = (*OF_GRIDS, "storage_options")  # options of a run that its plan has too

# Resident memory of processes that have imported all they need and done nothing yet, and what
# the scheduler holds for a task. Measured, see benchmarks/memory.py.
# The system maps about 40 MiB more or less of their libraries, as these lie in its file cache.
# pandas imports pyarrow where that is installed, of which 31 to 85 MiB are mapped.
ARROW_BYTES = 60 * MIB if find_spec("pyarrow") else 0
CLIENT_BYTES = 285 * MIB + ARROW_BYTES
WORKER_BYTES = 270 * MIB + ARROW_BYTES
SCHEDULER_BYTES = 110 * MIB
TASK_BYTES = 20_000
# Of a large sweep it knows some graphs at a time: two, and more where there are many workers.
TASKS_KNOWN = 6000
TASKS_OF_WORKER = 22


@dataclass(frozen=True)
class Plan:
    """Tasks, memory and disk that a run on CPUs will need; GPUs take larger tiles.

    Attributes
    ----------
    operation
        Name of the operation.
    shape, tile, shard
        Shape of the grid, and the sides of a tile and of a shard in cells. For an index, ``tile``
        is the side of a stored block. Distances join tiles of the store; then it is the side of the
        joined tiles.
    tiles, tasks
        Number of tiles and of tasks. For distances, ``tasks`` is a lower bound, because their
        number depends on the data.
    memory_per_worker, memory_client, memory_total
        Peak resident bytes of a single-threaded worker, of the process with client and scheduler,
        and of both together with ``workers`` workers. Without workers, all of it is that of the
        client. ``memory_scheduler`` comes on top if the scheduler is a separate process.
    memory_kept
        The part of ``memory_per_worker`` (of ``memory_client``, without workers) that a worker of a
        distance uses to keep tiles by choice, up to half of what it may use. It only needs the
        rest: with less memory, tiles are written to disk and read again.
    memory_table
        The part of ``memory_client`` for the table of components, peaks or depressions, which is
        written after the workers have released their memory.
    bytes_read, bytes_written, bytes_checkpoints
        Uncompressed bytes of the input, the result and the checkpoints; compressed sizes are
        smaller. For an index, ``bytes_written`` is exactly its ``bytes_uncompressed``. The number
        of table rows is estimated from the number of pits or components in white noise unless it is
        given.
    workers
        Number of workers that ``memory_total`` is for; 0 means threads of this process.
    runs
        For distances: the number of consecutive runs, one for each strength of sources.

    Examples
    --------
    >>> import orograph as og
    >>> og.minimum_spanning_forest.plan(og.RasterSpec((4096, 4096))).bytes_written // 2**20
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
    memory_kept: int = 0
    memory_table: int = 0
    runs: int = 1

    @property
    def bytes_per_cell(self) -> float:
        """Uncompressed bytes of the result per cell."""
        return self.bytes_written / (self.shape[0] * self.shape[1])

    @property
    def memory_scheduler(self) -> int:
        """Peak resident bytes of a scheduler in a separate process; 0 without workers.

        The client still needs up to ``memory_client``. `orograph.cluster` runs both in one process.
        """
        if not self.workers:
            return 0
        beside = self.memory_client - self.memory_table - CLIENT_BYTES
        return SCHEDULER_BYTES + min(self.tasks * TASK_BYTES, beside)

    @property
    def memory_total(self) -> int:
        """Peak resident bytes of client, scheduler and workers together."""
        at_work = self.memory_client - self.memory_table + self.workers * self.memory_per_worker
        return max(at_work, self.memory_client + self.workers * WORKER_BYTES)

    def _head(self) -> list[str]:
        """Return the first lines of the printed plan: the operation, grid size and tiling."""
        rows, columns = self.shape
        pieces = "blocks" if self.operation == "DistanceIndex.build" else "tiles"
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
                f"{_size(self.memory_total)} with {self.workers} worker(s), "
                f"{_size(self.memory_scheduler)} more for a scheduler of its own process"
            )
        lines = [
            *self._head(),
            f"  {self.tasks} task{'s' * (self.tasks != 1)}"
            + (f" of {self.runs} runs" if self.runs > 1 else ""),
            f"  memory: {memory}",
            f"  disk, at most: {_size(self.bytes_read)} read, "
            f"{_size(self.bytes_written)} written ({self.bytes_per_cell:.1f} bytes a cell), "
            f"{_size(self.bytes_checkpoints)} of checkpoints on the way",
        ]
        if excess := too_many_shards(self.shape, self.shard, memory_of_machine()):
            lines.append(f"  warning: {excess}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        title, *lines = str(self).split("\n")
        return html.table(title, dict(_named(line.strip()) for line in lines))


def _named(line: str) -> tuple[str, str]:
    """Split a line of a printed plan into a name and a value."""
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


@dataclass(frozen=True)
class RasterSpec:
    """Shape and dtype of a raster to plan for; the raster need not exist yet.

    Parameters
    ----------
    shape : (int, int)
        Rows and columns.
    dtype : dtype
        Dtype of the cells; float32 by default.

    Raises
    ------
    InputError
        If a raster cannot have this shape or dtype.

    Examples
    --------
    >>> import orograph as og
    >>> plan = og.minimum_spanning_forest.plan(og.RasterSpec((16384, 16384)), workers=2)
    >>> plan.tiles, plan.tasks, plan.bytes_read // 2**20
    (256, 171, 1024)
    """

    shape: tuple[int, int]
    dtype: npt.DTypeLike | None = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", check_shape(self.shape))
        object.__setattr__(self, "dtype", _cell_type(self.dtype))

    def _repr_html_(self) -> str:
        cells = f"{self.shape[0]} x {self.shape[1]}"
        return html.table("Raster to plan for", {"cells": cells, "dtype": self.dtype})


def parameters_of_plan(operation: Operation[..., Any]) -> list[Parameter]:
    """Return the signature parameters of an operation's ``plan`` method.

    They are the parameters of the operation, of which only the first is required, without the run
    options that a plan does not depend on; then ``workers``; then additional parameters of its
    estimates.
    """
    own = [
        p.replace(default=None) if number and p.default is p.empty else p
        for number, p in enumerate(operation.own)
    ]
    names = [p.name for p in own]
    of_plans = [name for name in OF_PLANS if name in operation.options]
    more = [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in of_plans]
    more.append(Parameter("workers", Parameter.KEYWORD_ONLY, default=1))
    for estimate in filter(None, operation.estimates):
        more += [p for p in _parameters(estimate) if p.kind is p.KEYWORD_ONLY]
    for parameter in more:
        if parameter.name not in (*names, "threads"):
            names.append(parameter.name)
            own.append(parameter)
    return own[len(operation.given) :]


def make_plan(
    operation: Operation[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Plan:
    """Estimate the resources of an operation called with these arguments.

    Raises
    ------
    InputError
        If an argument that affects the plan cannot be used.
    """
    check_settings()
    workers = check_integer("workers", kwargs.get("workers", 1), 0, MOST_WORKERS)
    first, *_ = own = [p.name for p in operation.own]
    signature = inspect.Signature(operation.own)
    given = signature.bind_partial(*args, **{n: v for n, v in kwargs.items() if n in own}).arguments
    given |= {n: v for n, v in kwargs.items() if n not in own and n != "workers"}
    if first not in given:
        raise TypeError(f"{operation.__name__}.plan() missing its first argument: {first!r}")
    subject = given.pop(first)
    estimate = _estimate_for(operation, first, subject)
    parameters = {p.name: p for p in _parameters(estimate)}
    for name in given.keys() - parameters.keys() - set(own) - set(OF_GRIDS):
        raise InputError(f"{name}: not used by this plan of {operation.__name__}; leave it out")
    cuts = {name: given.pop(name, None) for name in OF_GRIDS if name not in parameters}
    if "grid" in parameters:
        which = {n: given[n] for n in ("band", "variable") if n in own and n in given}
        subject = open_grid(subject, **cuts, **which, argument=first, workers=workers)
    elif any(value is not None for value in cuts.values()):
        ((name, value), *_) = ((n, v) for n, v in cuts.items() if v is not None)
        raise InputError(f"{name}: {shown(value)}; {first} is not cut into tiles: leave it out")
    compilations()  # says so, if a plan needs kernels
    wanted = {name: value for name, value in given.items() if name in parameters}
    function = _imported(estimate)
    if workers:
        return function(subject, workers=workers, **wanted)
    threads = thread_count()
    if "threads" in parameters:
        return _of_this_process(function(subject, workers=1, threads=threads, **wanted), 1)
    return _of_this_process(function(subject, workers=1, **wanted), threads)


def _estimate_for(operation: Operation[..., Any], first: str, subject: object) -> str:
    """Return the name of the estimating function for a raster or for a graph."""
    of_raster, of_graph = operation.estimates
    if of_raster is None and of_graph is None:
        raise InputError(f"{operation.__name__} has no plan; call it on a part of the raster first")
    if isinstance(subject, Graph):
        if of_graph is None:
            raise InputError(f"{first}: expected a raster, got a Graph; give a raster")
        return of_graph
    if of_raster is None:
        raise InputError(
            f"{first}: expected a Graph, got {type(subject).__name__}; create one with "
            "orograph.read_graph"
        )
    return of_raster


def _imported(name: str) -> Callable[..., Plan]:
    """Import a function given as ``"module:function"``."""
    module, _, function = name.partition(":")
    found: Callable[..., Plan] = getattr(import_module(module), function)
    return found


def _parameters(name: str) -> list[Parameter]:
    """Return the signature parameters of an estimating function."""
    return list(inspect.signature(_imported(name)).parameters.values())


def _of_this_process(worker: Plan, threads: int) -> Plan:
    """Convert the plan of one worker into that of a run on threads of this process.

    Memory that the threads release stays with the process while the table is written.
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


# -- what estimates have in common ----------------------------------------------------------------


@dataclass(frozen=True)
class Grid:
    """Shape, dtype and tiling of a raster that is planned for."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    layout: Layout
    workers: int = 0
    """Workers of one thread each; 0: threads of this process."""
    ahead: int = 0  # bytes of a shard that a sweep reads before it needs them, at the most

    @property
    def cells(self) -> int:
        """Cells of the grid."""
        return self.shape[0] * self.shape[1]

    @property
    def tile_cells(self) -> int:
        """Cells of the largest tile."""
        return min(self.layout.tile, self.shape[0]) * min(self.layout.tile, self.shape[1])

    @property
    def shard_cells(self) -> int:
        """Cells of the largest shard."""
        return min(self.layout.shard, self.shape[0]) * min(self.layout.shard, self.shape[1])

    @property
    def tree(self) -> Quadtree:
        """Quadtree over the tiles."""
        return Quadtree(self.shape, self.layout.tile)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return self.tree.count(self.shard_level)

    @property
    def shard_level(self) -> int:
        """Level of the quadtree whose nodes are shards."""
        return (self.layout.shard // self.layout.tile).bit_length() - 1

    @property
    def tasks_of_sweep(self) -> int:
        """Number of tasks of an upward and a downward sweep over the quadtree."""
        tree, lowest = self.tree, self.shard_level
        if self.workers:
            lowest = level_of_tasks(tree, lowest, self.workers)
        above = levels_above(tree, lowest, 0 if self.workers else 1)
        return 2 * sum(map(tree.count, (lowest, *above))) + 1

    def plan_sweep(
        self,
        operation: str,
        *,
        workers: int,
        memory: int,
        written: int,
        checkpoints: int,
        border: tuple[int, int],
        reads: int = 1,
    ) -> Plan:
        """Return the plan of a sweep that does not produce a table.

        ``memory`` and ``checkpoints`` are the bytes of a worker and of its checkpoints, not
        counting those of borders; ``border`` is the bytes of a border cell in both; ``written`` is
        the bytes of a cell of the result; ``reads`` is how often each cell is read.
        """
        (in_memory, saved), tasks = border, self.tasks_of_sweep
        ahead = min(self.ahead, self.shard_cells * self.dtype.itemsize)
        return Plan(
            operation=operation,
            shape=self.shape,
            tile=self.layout.tile,
            shard=self.layout.shard,
            tiles=self.tree.count(0),
            tasks=tasks,
            memory_per_worker=WORKER_BYTES + memory + ahead + 4 * sum(self.shape) * in_memory,
            memory_client=CLIENT_BYTES + memory_of_tasks(tasks, workers),
            bytes_read=reads * self.cells * self.dtype.itemsize,
            bytes_written=self.cells * written,
            bytes_checkpoints=checkpoints + 4 * self.shards * self.layout.shard * saved,
            workers=workers,
        )


def open_grid(
    raster: RasterLike | RasterSpec,
    tile: int | None = None,
    shard: int | None = None,
    argument: str = "raster",
    workers: int = 0,
    band: int | None = None,
    variable: str | None = None,
) -> Grid:
    """Return the grid of a raster or `RasterSpec`, with the tile and shard sides of its run."""
    if isinstance(raster, RasterSpec):
        spec: RasterSpec | Raster = raster
    else:
        spec = open_raster(raster, band=band, variable=variable, argument=argument)
        tile = spec.tile if tile is None else tile
    layout = run_layout(spec.shape, setting("tile") if tile is None else tile, shard)
    ahead = AHEAD_BYTES * (isinstance(spec, StoreRaster) and spec.storage.etags)
    return Grid(spec.shape, np.dtype(spec.dtype), layout, workers, ahead)


def memory_of_tasks(tasks: int, workers: int) -> int:
    """Return the bytes of scheduler memory for the tasks of a sweep or an index build."""
    return min(tasks, TASKS_KNOWN + TASKS_OF_WORKER * workers) * TASK_BYTES


def _cell_type(dtype: npt.DTypeLike | None) -> np.dtype[Any]:
    try:
        return supported_dtype(np.float32 if dtype is None else dtype, "dtype")
    except (TypeError, ValueError, SyntaxError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"dtype: {shown(dtype)} is none; give one such as 'float32'") from None


def check_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return a shape as two integers, or raise InputError if it is invalid."""
    try:
        rows, columns = (check_integer("side", side, 1) for side in shape)
    except (TypeError, ValueError):  # InputError is one
        raise InputError(f"shape: {shown(shape)}; give rows and columns, at least 1 each") from None
    return rows, columns


def limit_of_worker(memory_limit: int | str | None) -> int:
    """Return the memory limit of a worker in bytes, by default that of the cluster."""
    return memory_of_worker(current_client()) if memory_limit is None else _bytes_of(memory_limit)


def limit_of_process(memory_limit: int | str | None) -> int:
    """Return the memory of the machine in bytes; refuse a limit, which only applies to workers."""
    if memory_limit is not None:
        raise InputError(
            f"memory_limit: {shown(memory_limit)} is what a worker may use, and workers=0; leave "
            "it out, or give a number of workers"
        )
    return memory_of_machine()


def _bytes_of(memory_limit: int | str) -> int:
    """Parse a memory limit such as ``"4 GiB"`` into bytes."""
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
