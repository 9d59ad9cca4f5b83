"""Estimate tasks, memory and disk of the distance operations; see `Operation.plan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from orograph.arguments.source_costs import count_runs
from orograph.arguments.sources import SourcesLike, SourceSpec, read_columns
from orograph.arguments.steps import DTYPES
from orograph.distance.allocation_on_gpu import pair_bytes_a_cell
from orograph.distance.costs.surface import COSTS, SLOPES
from orograph.distance.costs.terrain_cost import TerrainCost
from orograph.distance.eikonal.job import EIKONAL
from orograph.distance.problem import gpu_bytes_a_cell
from orograph.engines.frontier.field import cells_on_gpu, join_tiles
from orograph.engines.parts import side_of_parts, threads_on
from orograph.engines.tile_states import bytes_at_work
from orograph.kernels.relax.models import MODELS
from orograph.plans.grid import Gpus, Grid, limit_of_process, limit_of_worker, room_to_keep
from orograph.plans.plan import (
    CLIENT_BYTES,
    GPU_CONTEXT_BYTES,
    GPU_WORKER_BYTES,
    WORKER_BYTES,
    Plan,
)
from orograph.results.costs import COST, TIME
from orograph.run.checkpoints import MemoryCheckpoints
from orograph.run.context import RunContext
from orograph.tiles.arguments import check_choice, check_dtype, check_outputs, shown
from orograph.tiles.errors import InputError
from orograph.tiles.grid.quadtree import Node
from orograph.tiles.store.decoded_cache import LIMIT_BYTES

OUTPUT_BYTES = {"back_direction": 1, "allocation": 8}
ALLOCATION_BYTES = 5  # of a cell in its state beside the distance: marks, steps
FURTHER_BYTES = 8  # of a further raster's cell, beside the coefficients of the cost model
EIKONAL_BYTES = 8 + 8 + 1 + 24  # value, cost, whether it waits; and its place in the heap
ALLOCATION_OF_RUN = 8  # of a run whose back directions are wanted
HOPS_BYTES = 8  # of a cell's hops on a GPU
PAIR_BYTES = 8  # of its label and hops, in the memory of its costs if these have as many


def estimate_cost(
    grid: Grid,
    *,
    workers: int,
    threads: int = 0,
    memory_limit: int | str | None = None,
    cost: str | TerrainCost = "friction",
    connectivity: int = 8,
    dtype: str = "float64",
    outputs: str | Sequence[str] = ("cost",),
    sources: SourcesLike | None = None,
    source_cost: object = None,
    label: str | None = None,
    gpus: Gpus | None = None,
) -> Plan:
    """Return the plan of `cost_distance`."""
    if isinstance(cost, TerrainCost):
        model = cost.model
    else:
        model = check_choice("cost", cost, (*COSTS, EIKONAL))
    itemsize = np.dtype(check_dtype("dtype", dtype, DTYPES)).itemsize
    limit = _limit(memory_limit, threads, gpus)
    if model == EIKONAL:
        check_outputs(outputs, ("cost",))
        if gpus is not None:
            raise InputError(f"gpu_memory: cost={EIKONAL!r} is computed on CPUs; leave it out")
        name, state = "cost_distance", EIKONAL_BYTES
        return estimate_frontier(name, grid, state, itemsize, itemsize, limit, workers, threads)
    strengths = sources, source_cost, label
    on_gpus = gpus, connectivity
    return _estimate_model(
        "cost_distance", model, grid, itemsize, outputs, limit, workers, threads, strengths, on_gpus
    )


def estimate_walking_time(
    grid: Grid,
    *,
    workers: int,
    threads: int = 0,
    memory_limit: int | str | None = None,
    model: str = "tobler",
    connectivity: int = 8,
    dtype: str = "float64",
    outputs: str | Sequence[str] = ("time",),
    sources: SourcesLike | None = None,
    source_cost: object = None,
    label: str | None = None,
    gpus: Gpus | None = None,
) -> Plan:
    """Return the plan of `walking_time`."""
    model = check_choice("model", model, SLOPES)
    itemsize = np.dtype(check_dtype("dtype", dtype, DTYPES[:2])).itemsize
    limit = _limit(memory_limit, threads, gpus)
    strengths = sources, source_cost, label
    on_gpus = gpus, connectivity
    return _estimate_model(
        "walking_time", model, grid, itemsize, outputs, limit, workers, threads, strengths, on_gpus,
        TIME,
    )  # fmt: skip


def _estimate_model(
    operation: str,
    model: str,
    grid: Grid,
    itemsize: int,
    outputs: str | Sequence[str],
    limit: int,
    workers: int,
    threads: int,
    strengths: tuple[Any, Any, str | None],
    on_gpus: tuple[Gpus | None, int],
    variable: str = COST,
) -> Plan:
    """Return the plan of distances by a cost model, with ``itemsize`` bytes for each cost.

    ``strengths`` are the arguments ``sources``, ``source_cost`` and ``label``; ``on_gpus`` are
    ``gpus`` and ``connectivity``; ``variable`` is the name of the costs.
    """
    wanted = {variable, *check_outputs(outputs, (variable, *OUTPUT_BYTES))}
    row = MODELS[model]
    # Such models have two rasters of costs: heights and friction.
    planes = 2 if row.neutral_friction is not None else 1
    state = (1 + planes) * itemsize + len(row.further) * FURTHER_BYTES
    if len(wanted) > 1:
        state += ALLOCATION_BYTES + (0 if itemsize == PAIR_BYTES else PAIR_BYTES)
    written = sum(OUTPUT_BYTES.get(name, itemsize) for name in wanted)
    gpus, connectivity = on_gpus
    check_choice("connectivity", connectivity, (4, 8, 16))
    if gpus is not None:
        a_cell = gpu_bytes_a_cell(model, itemsize, connectivity, planes)
        a_cell += pair_bytes_a_cell(itemsize) if len(wanted) > 1 else 0
        plan = _estimate_on_gpus(operation, grid, gpus, a_cell, written, workers)
    else:
        plan = estimate_frontier(operation, grid, state, itemsize, written, limit, workers, threads)
    sources, source_cost, label = strengths
    if source_cost is None:
        return plan
    given = SourceSpec(label=label, source_cost=source_cost)
    runs = count_runs(read_columns(sources, given, "sources")[1].source_cost)
    # Each run and each merge of two writes a set of rasters, of which the last is the result.
    # Runs that are compared by labels need an allocation, though it may not be wanted.
    beside = written + (ALLOCATION_OF_RUN if len(wanted) > 1 and "allocation" not in wanted else 0)
    return replace(
        plan,
        runs=runs,
        tasks=runs * (plan.tasks + grid.shards),
        bytes_read=runs * plan.bytes_read,
        bytes_checkpoints=runs * plan.bytes_checkpoints + (2 * runs - 1) * grid.cells * beside,
        # without a store on the way: the run, the least of those before it, and both merged
        memory_client=plan.memory_client + (3 * grid.cells * beside if threads else 0),
    )


def estimate_hops(
    grid: Grid,
    *,
    workers: int,
    threads: int = 0,
    memory_limit: int | str | None = None,
    gpus: Gpus | None = None,
) -> Plan:
    """Return the plan of `hop_distance`; hops have 4 bytes a cell."""
    limit = _limit(memory_limit, threads, gpus)
    if gpus is not None:
        a_cell = gpu_bytes_a_cell("friction", HOPS_BYTES, 8, 1)
        return _estimate_on_gpus("hop_distance", grid, gpus, a_cell, 4, workers)
    return estimate_frontier("hop_distance", grid, 16, 4, 4, limit, workers, threads)


def _limit(memory_limit: int | str | None, threads: int, gpus: Gpus | None) -> int:
    """Return the memory limit of the process that keeps tiles: the worker, or this process."""
    if gpus is not None and memory_limit is not None:
        raise InputError(
            f"memory_limit: {shown(memory_limit)}; on GPUs tiles are kept in their memory, which "
            "gpu_memory gives: leave it out"
        )
    return limit_of_process(memory_limit) if threads else limit_of_worker(memory_limit)


def _estimate_on_gpus(
    operation: str, grid: Grid, gpus: Gpus, a_cell: int, written: int, workers: int
) -> Plan:
    """Return the plan of a frontier run on GPUs, in the best case: each tile is visited once.

    ``a_cell`` is the bytes of GPU memory for a cell of a tile. Where tiles take more than they may,
    those that are not at work are on disk.
    """
    context = join_tiles(gpus.context(grid.tree, grid.shard_level), a_cell)
    tree, tile = context.quadtree, context.quadtree.window(Node(0, 0))
    count, tasks = tree.count(0), tree.count(context.shard_level)
    held = cells_on_gpu(tile) * a_cell * -(-count // gpus.count)
    # Four sides of each tile, in eight bytes a cell.
    borders = count * 4 * tree.tile * 8
    # one tile is read, and another is written, by as many threads as that takes
    side = side_of_parts(tile.size, grid.layout.tile)
    part = min(side, tile.height) * min(side, tile.width)
    parts = min(threads_on(gpus.threads * gpus.count), -(-tile.size // part))
    moved = grid.dtype.itemsize + written
    return Plan(
        operation=operation,
        shape=grid.shape,
        tile=tree.tile,
        shard=grid.layout.shard,
        tiles=count,
        tasks=2 * tasks,
        memory_per_worker=GPU_WORKER_BYTES + 2 * parts * part * moved,
        memory_client=CLIENT_BYTES + 2 * borders,
        bytes_read=grid.cells * grid.dtype.itemsize,
        bytes_written=grid.cells * written,
        bytes_checkpoints=grid.cells * 8 + borders,
        workers=workers,
        memory_gpu=GPU_CONTEXT_BYTES + min(held, gpus.memory),
        threads_per_worker=gpus.threads,
    )


def estimate_frontier(
    operation: str,
    grid: Grid,
    state: int,
    itemsize: int,
    written: int,
    limit: int,
    workers: int,
    threads: int,
) -> Plan:
    """Return the plan of a frontier run in the best case: each tile is visited once.

    A worker keeps the states of tiles, ``state`` bytes a cell, in up to half of the memory it may
    use, and in no more than the run leaves of what it may use before Dask pauses it. It puts what
    is more on disk: more memory saves reading and is not needed. Tiles are joined as workers join
    them, or ``threads`` of one process where there are none.
    """
    nothing: Any = None  # no run, so no result: it would lie in a store
    context = RunContext(
        *(grid.tree, grid.shard_level, MemoryCheckpoints(), nothing, "", threads),
        cluster_threads=0 if threads else workers,
        worker_memory=0 if threads else limit,
    )
    tree = join_tiles(context).quadtree
    tile_cells = min(tree.tile, grid.shape[0]) * min(tree.tile, grid.shape[1])
    borders = tree.count(0) * 4 * tree.tile * 8
    # a tile's home is that of its shard
    states = min(grid.cells, -(-grid.shards // workers) * grid.shard_cells) * state
    # of one process, which does one task more while a shard is written
    at_once = min(threads + 1, tree.count(0))
    read = grid.dtype.itemsize
    working = at_once * bytes_at_work(tile_cells, state, read, 0, 0)
    working += min(at_once, grid.shards) * bytes_at_work(0, 0, 0, grid.shard_cells, itemsize)
    idle = WORKER_BYTES + min(LIMIT_BYTES, grid.cells * grid.dtype.itemsize)
    kept = limit // 2 if threads else room_to_keep(limit, idle + working)
    if kept >= states:
        # that of the tile that is visited is among them, and writing gives back more than it takes
        kept = states
        working = min(max(threads, 1), tree.count(0)) * bytes_at_work(tile_cells, 0, read, 0, 0)
    return Plan(
        operation=operation,
        shape=grid.shape,
        tile=tree.tile,
        shard=grid.layout.shard,
        tiles=tree.count(0),
        tasks=2 * grid.shards,
        memory_per_worker=idle + working + kept,
        memory_client=CLIENT_BYTES + 2 * borders,
        bytes_read=grid.cells * grid.dtype.itemsize,
        bytes_written=grid.cells * written,
        bytes_checkpoints=grid.cells * 8 + borders,
        workers=workers,
        memory_kept=kept,
    )
