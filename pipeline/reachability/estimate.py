"""Estimate tasks, memory and disk of `is_connected`; see `Operation.plan`."""

from __future__ import annotations

from orograph.components.components import Components
from orograph.plans.formulas import Request, plan_problem
from orograph.plans.grid import Gpus, Grid, limit_of_worker, room_to_keep
from orograph.plans.plan import (
    CLIENT_BYTES,
    GPU_CONTEXT_BYTES,
    GPU_WORKER_BYTES,
    WORKER_BYTES,
    Plan,
)
from orograph.reachability.pairs import PAIRS_A_TASK
from orograph.tiles.arguments import check_choice
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.raster.points import PointsLike, as_points
from orograph.tiles.store.decoded_cache import LIMIT_BYTES
from orograph.tiles.vector.layer import read_layer

STATE_BYTES = 24  # of a cell: two fields of hops, and the mask that they share
GPU_BYTES = 48  # of a cell, also where it is worked on


def estimate_reach(
    grid: Grid,
    *,
    workers: int,
    s: PointsLike | None = None,
    t: PointsLike | None = None,
    memory_limit: int | str | None = None,
    connectivity: int = 8,
    gpus: Gpus | None = None,
) -> Plan:
    """Return an upper bound of the plan of `is_connected`: each search visits all tiles.

    Of more than one pair components are found first, by CPUs, which write nothing. GPUs are those
    of a run with ``backend="cuda"``, and keep the states of tiles.
    """
    limit = limit_of_worker(memory_limit)
    connectivity = check_choice("connectivity", connectivity, (4, 8))
    pairs = max(_count("s", s), _count("t", t))
    borders = grid.tree.count(0) * 2 * 4 * grid.layout.tile * 8
    states = grid.cells
    # The tiles of a single search are divided among workers; of several pairs each worker searches
    # whole grids.
    if pairs == 1:
        states = min(states, -(-grid.shards // workers) * grid.shard_cells)
    idle, threads, on_gpu = WORKER_BYTES, 1, 0
    if gpus is not None:
        idle, threads = GPU_WORKER_BYTES, gpus.threads
        on_gpu = GPU_CONTEXT_BYTES + min(gpus.memory, states * GPU_BYTES)
    worker = (
        idle
        + min(LIMIT_BYTES, grid.cells * grid.dtype.itemsize)
        + threads * grid.tile_cells * (2 * grid.dtype.itemsize + 48)
    )
    kept = 0 if gpus else min(room_to_keep(limit, worker), states * STATE_BYTES)
    worker += kept
    client, tasks = CLIENT_BYTES + 2 * borders, 2 * grid.shards
    read, checkpoints = grid.cells * grid.dtype.itemsize, grid.cells * 16
    if pairs > 1:
        components = Components(0, connectivity, 1, output_names=())
        first = plan_problem(components, [grid.dtype], grid, Request(workers))
        of_first = idle + threads * (first.memory_per_worker - WORKER_BYTES)
        worker, client = max(worker, of_first), max(client, first.memory_client)
        tasks = first.tasks + -(-pairs // min(PAIRS_A_TASK, -(-pairs // (4 * workers))))
        # Read once for the components and once for the searches.
        read, checkpoints = 2 * read, checkpoints * workers + first.bytes_checkpoints
    return Plan(
        operation="is_connected",
        shape=grid.shape,
        tile=grid.layout.tile,
        shard=grid.layout.shard,
        tiles=grid.tree.count(0),
        tasks=tasks,
        memory_per_worker=worker,
        memory_client=client,
        bytes_read=read,
        bytes_written=0,
        bytes_checkpoints=checkpoints,
        workers=workers,
        memory_kept=kept,
        memory_gpu=on_gpu,
        threads_per_worker=threads,
    )


def _count(name: str, ends: PointsLike | None) -> int:
    """Return the number of points or geometries given as ends; 1 if none are given."""
    if ends is None:
        return 1
    layer = read_layer(ends, name)
    return len(as_points(ends, name, Georeference()) if layer is None else layer.geometry)
