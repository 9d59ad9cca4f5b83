"""What runs of the frontier engine will take: distances, hops."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from orograph.engines.frontier.field import level_on_workers
from orograph.planning.plan import CLIENT_BYTES, WORKER_BYTES, Plan, limit_of_worker, open_grid
from orograph.tiles.grid.quadtree import Node
from orograph.tiles.store.decoded_cache import LIMIT_BYTES

STATE_BYTES = 16  # of a cell in the state of a tile: its distance, and its friction as one


def estimate_cost(
    raster: Any,
    *,
    dtype: npt.DTypeLike | None,
    tile: int | None,
    workers: int,
    memory_limit: int | str | None = None,
) -> Plan:
    """Return what `cost_distance` will take; costs have 8 bytes a cell."""
    return _estimate("cost_distance", 8, raster, dtype, tile, workers, memory_limit)


def estimate_hops(
    raster: Any,
    *,
    dtype: npt.DTypeLike | None,
    tile: int | None,
    workers: int,
    memory_limit: int | str | None = None,
) -> Plan:
    """Return what `hop_distance` will take; hops have 4 bytes a cell."""
    return _estimate("hop_distance", 4, raster, dtype, tile, workers, memory_limit)


def _estimate(
    operation: str,
    itemsize: int,
    raster: Any,
    dtype: npt.DTypeLike | None,
    tile: int | None,
    workers: int,
    memory_limit: int | str | None,
) -> Plan:
    """Return what the frontier takes at the least: each tile visited once, by a task a shard.

    Tiles are joined as workers of a cluster join them.

    A worker keeps the states of tiles in up to half of the memory it may use, and puts what is
    more on disk: more memory saves reading and is not needed.
    """
    limit = limit_of_worker(memory_limit)
    grid = open_grid(raster, dtype, tile)
    borders = grid.tree.count(0) * 4 * grid.layout.tile * 8
    # a tile's home is that of its shard
    states = min(grid.cells, -(-grid.shards // workers) * grid.shard_cells) * STATE_BYTES
    kept = min(limit // 2, states)
    reading = 2 * grid.dtype.itemsize + 48
    level = level_on_workers(grid.tree, grid.shard_level, workers, limit)
    tile_cells = grid.tree.window(Node(level, 0)).size
    working = tile_cells * reading + grid.shard_cells * 3 * itemsize
    if kept == states:
        # that of the tile that is visited is among them, and writing gives back more than it takes
        working = tile_cells * (reading - STATE_BYTES)
    return Plan(
        operation=operation,
        shape=grid.shape,
        tile=grid.layout.tile,
        shard=grid.layout.shard,
        tiles=grid.tree.count(0),
        tasks=2 * grid.shards,
        memory_per_worker=WORKER_BYTES
        + min(LIMIT_BYTES, grid.cells * grid.dtype.itemsize)
        + working
        + kept,
        memory_client=CLIENT_BYTES + 2 * borders,
        bytes_read=grid.cells * grid.dtype.itemsize,
        bytes_written=grid.cells * itemsize,
        bytes_checkpoints=grid.cells * 8 + borders,
        workers=workers,
        bytes_on_disk=None,
        memory_kept=kept,
    )
