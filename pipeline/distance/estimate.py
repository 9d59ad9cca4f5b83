"""Estimate tasks, memory and disk of the distance operations; see `Operation.plan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from orograph.arguments.source_costs import count_runs
from orograph.arguments.sources import SourcesLike, read_columns
from orograph.costs.terrain_cost import TerrainCost
from orograph.distance.arguments import COSTS, DTYPES, SLOPES
from orograph.eikonal.job import EIKONAL
from orograph.engines.frontier.field import join_tiles
from orograph.execution.checkpoints import MemoryCheckpoints
from orograph.execution.context import RunContext
from orograph.kernels.relax.models import MODELS
from orograph.plans.grid import Grid, limit_of_process, limit_of_worker
from orograph.plans.plan import CLIENT_BYTES, WORKER_BYTES, Plan
from orograph.tiles.arguments import check_choice, check_dtype, check_outputs
from orograph.tiles.store.decoded_cache import LIMIT_BYTES

OUTPUT_BYTES = {"back_direction": 1, "allocation": 8}
ALLOCATION_BYTES = 5  # of a cell in its state beside the distance: marks, steps
FURTHER_BYTES = 8  # of a further raster's cell, beside the coefficients of the cost model
EIKONAL_BYTES = 8 + 8 + 1 + 24  # value, cost, whether it waits; and its place in the heap
ALLOCATION_OF_RUN = 8  # of a run whose back directions are wanted
PAIR_BYTES = 8  # of its label and hops, in the memory of its costs if these have as many


def estimate_cost(
    grid: Grid,
    *,
    workers: int,
    threads: int = 0,
    memory_limit: int | str | None = None,
    cost: str | TerrainCost = "friction",
    dtype: str = "float64",
    outputs: str | Sequence[str] = ("cost",),
    sources: SourcesLike | None = None,
    source_cost: object = None,
    label: str | None = None,
) -> Plan:
    """Return the plan of `cost_distance`."""
    if isinstance(cost, TerrainCost):
        model = cost.model
    else:
        model = check_choice("cost", cost, (*COSTS, EIKONAL))
    itemsize = np.dtype(check_dtype("dtype", dtype, DTYPES)).itemsize
    limit = _limit(memory_limit, threads)
    if model == EIKONAL:
        check_outputs(outputs, ("cost",))
        name, state = "cost_distance", EIKONAL_BYTES
        return estimate_frontier(name, grid, state, itemsize, itemsize, limit, workers, threads)
    strengths = sources, source_cost, label
    return _estimate_model(
        "cost_distance", model, grid, itemsize, outputs, limit, workers, threads, strengths
    )


def estimate_walking_time(
    grid: Grid,
    *,
    workers: int,
    threads: int = 0,
    memory_limit: int | str | None = None,
    model: str = "tobler",
    dtype: str = "float64",
    outputs: str | Sequence[str] = ("cost",),
    sources: SourcesLike | None = None,
    source_cost: object = None,
    label: str | None = None,
) -> Plan:
    """Return the plan of `walking_time`."""
    model = check_choice("model", model, SLOPES)
    itemsize = np.dtype(check_dtype("dtype", dtype, DTYPES[:2])).itemsize
    limit = _limit(memory_limit, threads)
    strengths = sources, source_cost, label
    return _estimate_model(
        "walking_time", model, grid, itemsize, outputs, limit, workers, threads, strengths
    )


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
) -> Plan:
    """Return the plan of distances by a cost model, with ``itemsize`` bytes for each cost.

    ``strengths`` are the arguments ``sources``, ``source_cost`` and ``label``.
    """
    wanted = {"cost", *check_outputs(outputs, ("cost", *OUTPUT_BYTES))}
    row = MODELS[model]
    planes = 2 if row.neutral_friction is not None else 1
    state = (1 + planes) * itemsize + len(row.further) * FURTHER_BYTES
    if len(wanted) > 1:
        state += ALLOCATION_BYTES + (0 if itemsize == PAIR_BYTES else PAIR_BYTES)
    written = sum(OUTPUT_BYTES.get(name, itemsize) for name in wanted)
    plan = estimate_frontier(operation, grid, state, itemsize, written, limit, workers, threads)
    sources, source_cost, label = strengths
    if source_cost is None:
        return plan
    runs = count_runs(read_columns(sources, label, source_cost, "sources")[1])
    # each run and each merge of two writes a set of rasters, of which the last is the result
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
) -> Plan:
    """Return the plan of `hop_distance`; hops have 4 bytes a cell."""
    limit = _limit(memory_limit, threads)
    return estimate_frontier("hop_distance", grid, 16, 4, 4, limit, workers, threads)


def _limit(memory_limit: int | str | None, threads: int) -> int:
    """Return the memory limit of the process that keeps tiles: the worker, or this process."""
    return limit_of_process(memory_limit) if threads else limit_of_worker(memory_limit)


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
    use, and puts what is more on disk: more memory saves reading and is not needed. Tiles are
    joined as workers join them, or ``threads`` of one process where there are none.
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
    kept = min(limit // 2, states)
    reading = 2 * grid.dtype.itemsize + 24
    # of one process, which does one task more while a shard is written
    at_once = min(threads + 1, tree.count(0))
    working = tile_cells * (reading + state) * at_once
    working += grid.shard_cells * 3 * itemsize * min(at_once, grid.shards)
    if kept == states:
        # that of the tile that is visited is among them, and writing gives back more than it takes
        working = tile_cells * reading * min(max(threads, 1), tree.count(0))
    return Plan(
        operation=operation,
        shape=grid.shape,
        tile=tree.tile,
        shard=grid.layout.shard,
        tiles=tree.count(0),
        tasks=2 * grid.shards,
        memory_per_worker=WORKER_BYTES
        + min(LIMIT_BYTES, grid.cells * grid.dtype.itemsize)
        + working
        + kept,
        memory_client=CLIENT_BYTES + 2 * borders,
        bytes_read=grid.cells * grid.dtype.itemsize,
        bytes_written=grid.cells * written,
        bytes_checkpoints=grid.cells * 8 + borders,
        workers=workers,
        memory_kept=kept,
    )
