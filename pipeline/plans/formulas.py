"""Plans of the problems of each engine, from the bytes that a problem states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from orograph.arguments.settings import thread_count
from orograph.engines.frontier.field import bytes_held
from orograph.engines.map_overlap import part_side
from orograph.engines.parts import side_of_parts, threads_on
from orograph.engines.quadtree_pass import GPU_BYTES_A_CELL
from orograph.engines.tile_states import bytes_at_work
from orograph.kernels.device import TILES_AT_ONCE
from orograph.plans.grid import (
    Gpus,
    Grid,
    limit_of_process,
    limit_of_worker,
    memory_of_tasks,
    room_to_keep,
)
from orograph.plans.plan import (
    CLIENT_BYTES,
    GPU_CONTEXT_BYTES,
    GPU_WORKER_BYTES,
    WORKER_BYTES,
    Plan,
)
from orograph.run.checkpoints import MemoryCheckpoints
from orograph.run.context import RunContext
from orograph.run.problem import CellCounts, bytes_written
from orograph.tiles.arguments import shown
from orograph.tiles.errors import InputError
from orograph.tiles.grid.quadtree import Node
from orograph.tiles.store.decoded_cache import LIMIT_BYTES


@dataclass(frozen=True)
class Request:
    """The resources that a run is planned for."""

    workers: int
    """Number of workers of a thread each; 0: threads of this process do the work."""
    memory_limit: int | str | None = None
    """Memory of a worker; None: that of the cluster."""
    gpus: Gpus | None = None
    counts: Mapping[str, int] | None = None
    """Numbers that the plan was given, such as that of pits."""

    @property
    def threads(self) -> int:
        """Number of threads of this process; 0 where workers do the work."""
        return 0 if self.workers else thread_count()

    @property
    def processes(self) -> int:
        """Number of processes that do the work."""
        return max(self.workers, 1)

    @property
    def limit(self) -> int:
        """Bytes that the process which keeps tiles may use: a worker, or this process."""
        if self.gpus is not None and self.memory_limit is not None:
            raise InputError(
                f"memory_limit: {shown(self.memory_limit)}; on GPUs tiles are kept in their "
                "memory, which gpu_memory gives: leave it out"
            )
        of = limit_of_process if self.threads else limit_of_worker
        return of(self.memory_limit)

    def cells(self, grid: Grid, dtypes: Sequence[np.dtype[Any]]) -> CellCounts:
        """Return the numbers of cells of a grid by which a problem tells what its run takes."""
        band = min(grid.shard, grid.shape[0]) * grid.shape[1]
        return CellCounts(
            *(grid.cells, grid.tile_cells, grid.shard_cells, band, tuple(dtypes)),
            on_gpu=self.gpus is not None,
            counts=self.counts or {},
        )


def plan_problem(
    problem: Any, dtypes: Sequence[np.dtype[Any]], grid: Grid, request: Request
) -> Plan:
    """Return the plan of a problem on rasters of these dtypes.

    Raises
    ------
    InputError
        If its run cannot have the resources, or has no use for them.
    """
    if request.gpus is not None and (not problem.planned_on_gpus or problem.lacking):
        raise InputError(f"gpu_memory: {problem.name} is planned for CPUs alone; leave it out")
    formula = FORMULAS[problem.formula]
    return formula(problem, dtypes, grid, request)


def keeps_tiles(problem: Any) -> bool:
    """Return whether a run keeps tiles as far as there is memory, so that a limit matters."""
    if problem.formula == "stages":
        return any(keeps_tiles(stage.problem) for stage in problem.stages())
    return bool(problem.formula == "frontier")


def counts_of(problem: Any) -> set[str]:
    """Return the names of the numbers on which the plan of a problem depends."""
    if problem.formula == "stages":
        return set().union(*(counts_of(stage.problem) for stage in problem.stages()))
    return set(problem.counted_for_plans)


def _of_sweep(problem: Any, dtypes: Sequence[np.dtype[Any]], grid: Grid, request: Request) -> Plan:
    """Return the plan of a sweep over the quadtree."""
    grid = grid.swept_by(request.gpus)
    cells = request.cells(grid, dtypes)
    needs = problem.bytes(cells)
    read = sum(dtype.itemsize for dtype in dtypes)
    tasks = grid.tasks_of_sweep
    memory = cells.tile * needs.cell + cells.shard * needs.shard_cell + needs.more
    memory += min(grid.ahead, cells.shard * cells.itemsize)
    idle, threads, on_gpu = WORKER_BYTES, 1, 0
    if request.gpus is not None:
        idle, threads = GPU_WORKER_BYTES, request.gpus.threads
        # a thread has one tile at a time
        at_once = min(threads, grid.tree.count(0))
        memory *= at_once
        on_gpu = GPU_CONTEXT_BYTES + at_once * cells.tile * GPU_BYTES_A_CELL
        on_gpu += min(at_once, TILES_AT_ONCE) * cells.tile * problem.gpu_bytes
    elif request.threads:
        memory *= request.threads
    in_memory, saved = needs.border
    return Plan(
        operation=problem.name,
        shape=grid.shape,
        tile=grid.tile,
        shard=grid.layout.shard,
        tiles=grid.tree.count(0),
        tasks=tasks,
        memory_per_worker=idle + memory + 4 * sum(grid.shape) * in_memory,
        memory_client=CLIENT_BYTES + memory_of_tasks(tasks, request.processes) + needs.table,
        memory_table=needs.table,
        bytes_read=cells.grid * read + needs.read_again,
        bytes_written=cells.grid * bytes_written(problem) + needs.columns,
        bytes_checkpoints=needs.checkpoints + 4 * grid.shards * grid.shard * saved,
        workers=request.workers,
        memory_gpu=on_gpu,
        threads_per_worker=threads,
    )


def _of_parts(problem: Any, dtypes: Sequence[np.dtype[Any]], grid: Grid, request: Request) -> Plan:
    """Return the plan of a problem whose parts are computed one by one, each with a halo."""
    cells = request.cells(grid, dtypes)
    needs = problem.bytes(cells)
    side = part_side(grid.layout.tile, grid.layout.shard)
    rows, columns = (_with_halos(length, side, problem.halo) for length in grid.shape)
    # A part with its halo, which ends at the edges of the grid.
    height, width = (min(side + 2 * problem.halo, length) for length in grid.shape)
    memory = height * width * needs.cell + cells.shard * needs.shard_cell + needs.more
    return Plan(
        operation=problem.name,
        shape=grid.shape,
        tile=grid.tile,
        shard=grid.layout.shard,
        tiles=grid.tree.count(0),
        tasks=grid.shards,
        memory_per_worker=WORKER_BYTES + memory * max(request.threads, 1),
        memory_client=CLIENT_BYTES + memory_of_tasks(grid.shards, request.processes) + needs.table,
        bytes_read=rows * columns * sum(dtype.itemsize for dtype in dtypes),
        bytes_written=cells.grid * bytes_written(problem),
        bytes_checkpoints=needs.checkpoints,
        workers=request.workers,
    )


def _with_halos(length: int, side: int, halo: int) -> int:
    """Return how many rows or columns are read: those of all parts, with their halos."""
    starts = range(0, length, side)
    if len(starts) <= 2:
        return sum(min(start + side + halo, length) - max(start - halo, 0) for start in starts)
    # all between the first and the last have both of their halos
    last = starts[-1]
    return (side + halo) + (len(starts) - 2) * (side + 2 * halo) + (length - last + halo)


def _of_frontier(
    problem: Any, dtypes: Sequence[np.dtype[Any]], grid: Grid, request: Request
) -> Plan:
    """Return the plan of a frontier run in the best case: each tile is visited once.

    A worker keeps the states of tiles in up to half of the memory it may use, and in no more than
    the run leaves of what it may use before Dask pauses it. It puts what is more on disk: more
    memory saves reading and is not needed. Tiles are joined as workers join them, or the threads of
    one process where there are none.
    """
    limit, threads, gpus = request.limit, request.threads, request.gpus
    if gpus is not None and not problem.tiled_for_cpus:
        return _on_gpus(problem, dtypes, grid, request, gpus)
    nothing: Any = None  # no run, so no result: it would lie in a store
    context = RunContext(
        *(grid.tree, grid.shard_level, MemoryCheckpoints(), nothing, "", threads),
        cluster_threads=request.workers,
        worker_memory=0 if threads else limit,
    )
    at_work, least, on_gpu = max(threads, 1), WORKER_BYTES, 0
    if gpus is not None:
        # CPUs do most of the work, on all threads of the process that has the GPU
        context = gpus.context(grid.tree, grid.shard_level)
        at_work, least, limit = gpus.threads, GPU_WORKER_BYTES, gpus.worker_memory or limit
    tree = problem.tiled(context).quadtree
    tile = tree.window(Node(0, 0)).size
    cells = replace(request.cells(grid, dtypes), tile=tile)
    needs = problem.bytes(cells)
    borders = tree.count(0) * 4 * tree.tile * 8
    # a tile's home is that of its shard
    of_worker = -(-grid.shards // request.processes) * cells.shard
    states = min(cells.grid, of_worker) * needs.cell
    # of one process, which does one task more while a shard is written
    at_once = min(at_work + bool(threads), tree.count(0))
    if gpus is not None:
        on_gpu = GPU_CONTEXT_BYTES + min(at_once, TILES_AT_ONCE) * tile * GPU_BYTES_A_CELL
    read = cells.itemsize
    working = at_once * bytes_at_work(tile, needs.cell, read, 0, 0)
    working += min(at_once, grid.shards) * bytes_at_work(0, 0, 0, cells.shard, needs.shard_cell)
    idle = least + min(LIMIT_BYTES, cells.grid * read)
    kept = limit // 2 if threads else room_to_keep(limit, idle + working)
    if kept >= states:
        # that of the tile that is visited is among them, and writing gives back more than it takes
        kept = states
        working = min(at_work, tree.count(0)) * bytes_at_work(tile, 0, read, 0, 0)
    return Plan(
        operation=problem.name,
        shape=grid.shape,
        tile=tree.tile,
        shard=grid.layout.shard,
        tiles=tree.count(0),
        tasks=2 * grid.shards,
        memory_per_worker=idle + working + kept,
        memory_client=CLIENT_BYTES + 2 * borders,
        bytes_read=cells.grid * read + needs.read_again,
        bytes_written=cells.grid * bytes_written(problem),
        bytes_checkpoints=cells.grid * 8 + borders,
        workers=request.workers,
        memory_kept=kept,
        memory_gpu=on_gpu,
        threads_per_worker=1 if gpus is None else at_work,
    )


def _on_gpus(
    problem: Any, dtypes: Sequence[np.dtype[Any]], grid: Grid, request: Request, gpus: Gpus
) -> Plan:
    """Return the plan of a frontier run on GPUs, in the best case: each tile is visited once.

    Where tiles take more than they may, those that are not at work are on disk.
    """
    context = problem.tiled(gpus.context(grid.tree, grid.shard_level))
    tree, tile = context.quadtree, context.quadtree.window(Node(0, 0))
    count = tree.count(0)
    held = bytes_held(context, problem.on_tiles(context).gpu_bytes)
    # Four sides of each tile, in eight bytes a cell.
    borders = count * 4 * tree.tile * 8
    # one tile is read, and another is written, by as many threads as that takes
    side = side_of_parts(tile.size, grid.layout.tile)
    part = min(side, tile.height) * min(side, tile.width)
    parts = min(threads_on(gpus.threads * gpus.count), -(-tile.size // part))
    written, read = bytes_written(problem), dtypes[0].itemsize
    return Plan(
        operation=problem.name,
        shape=grid.shape,
        tile=tree.tile,
        shard=grid.layout.shard,
        tiles=count,
        tasks=2 * tree.count(context.shard_level),
        memory_per_worker=GPU_WORKER_BYTES + 2 * parts * part * (read + written),
        memory_client=CLIENT_BYTES + 2 * borders,
        bytes_read=grid.cells * read,
        bytes_written=grid.cells * written,
        bytes_checkpoints=grid.cells * 8 + borders,
        workers=request.workers,
        memory_gpu=GPU_CONTEXT_BYTES + min(held, gpus.memory),
        threads_per_worker=gpus.threads,
    )


def _of_stages(problem: Any, dtypes: Sequence[np.dtype[Any]], grid: Grid, request: Request) -> Plan:
    """Return the plan of a problem in stages, each of which reads what others wrote."""
    known = dict(zip(problem.inputs, dtypes, strict=False))
    plans: list[Plan] = []
    between = written = 0
    for stage in problem.stages():
        own = [known[name] for name in stage.reads]
        # the first raster of a stage is that which its grid is of
        # a stage that CPUs do is planned for CPUs
        how = request if stage.problem.planned_on_gpus else replace(request, gpus=None)
        plan = plan_problem(stage.problem, own, replace(grid, dtype=own[0]), how)
        if request.gpus is not None and how is not request and request.workers:
            plan = _on_all_threads(plan, request.gpus.threads)
        plans.append(plan)
        between += plan.bytes_written if stage.between else 0
        written += 0 if stage.between else plan.bytes_written
        known |= {name: np.dtype(v.dtype) for name, v in stage.written.items()}

    def most(name: str) -> int:
        return max(int(getattr(plan, name)) for plan in plans)

    def total(name: str) -> int:
        return sum(int(getattr(plan, name)) for plan in plans)

    # without a store on the way
    held = problem.sets_in_memory * grid.cells * bytes_written(problem) if request.threads else 0
    return replace(
        plans[-1],
        tasks=total("tasks"),
        memory_per_worker=most("memory_per_worker"),
        memory_client=most("memory_client") + held,
        memory_kept=most("memory_kept"),
        memory_gpu=most("memory_gpu"),
        bytes_read=total("bytes_read"),
        bytes_written=written,
        bytes_checkpoints=total("bytes_checkpoints") + between,
        runs=problem.runs,
    )


def _on_all_threads(plan: Plan, threads: int) -> Plan:
    """Return the plan of a CPU worker of one thread for a GPU worker of several."""
    at_work = plan.memory_per_worker - WORKER_BYTES - plan.memory_kept
    memory = GPU_WORKER_BYTES + threads * at_work + plan.memory_kept
    return replace(plan, memory_per_worker=memory, threads_per_worker=threads)


def _of_searches(
    problem: Any, dtypes: Sequence[np.dtype[Any]], grid: Grid, request: Request
) -> Plan:
    """Return the plan of a problem of a search around each of some facilities."""
    cells = request.cells(grid, dtypes)
    needs = problem.bytes(cells)
    read = sum(dtype.itemsize for dtype in dtypes)
    held = min(LIMIT_BYTES, cells.grid * read) + needs.more * max(request.threads, 1)
    tasks = len(problem)
    return Plan(
        operation=problem.name,
        shape=grid.shape,
        tile=grid.tile,
        shard=grid.layout.shard,
        tiles=grid.tree.count(0),
        tasks=tasks,
        memory_per_worker=WORKER_BYTES + held,
        memory_client=CLIENT_BYTES
        + memory_of_tasks(tasks, request.processes)
        + cells.shard * 24
        + needs.table
        + cells.grid * needs.cell,
        memory_table=needs.table,
        bytes_read=2 * cells.grid * dtypes[-1].itemsize + needs.read_again,
        bytes_written=cells.grid * bytes_written(problem) + needs.columns,
        bytes_checkpoints=needs.checkpoints,
        workers=request.workers,
    )


FORMULAS = {
    "sweep": _of_sweep, "parts": _of_parts, "frontier": _of_frontier, "stages": _of_stages,
    "searches": _of_searches,
}  # fmt: skip
