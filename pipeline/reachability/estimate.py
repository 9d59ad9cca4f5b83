"""What searches between cells will take."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from orograph.planning.components import estimate_components
from orograph.planning.plan import CLIENT_BYTES, WORKER_BYTES, Plan, limit_of_worker, open_grid
from orograph.reachability.pairs import PAIRS_A_TASK
from orograph.tiles.arguments import check_choice, check_integer
from orograph.tiles.store.decoded_cache import LIMIT_BYTES

STATE_BYTES = 24  # of a cell: two fields of hops, and the mask that they share


def estimate_reach(
    raster: Any,
    *,
    dtype: npt.DTypeLike | None,
    tile: int | None,
    workers: int,
    memory_limit: int | str | None = None,
    pairs: int = 1,
    connectivity: int = 8,
) -> Plan:
    """Return what `st_connected` takes at the most: searches that touch each tile.

    Of more than one pair components are found first, which write nothing.
    """
    limit = limit_of_worker(memory_limit)
    grid = open_grid(raster, dtype, tile)
    connectivity = check_choice("connectivity", connectivity, (4, 8))
    pairs = check_integer("pairs", pairs, 1, grid.cells**2)
    borders = grid.tree.count(0) * 2 * 4 * grid.layout.tile * 8
    states = grid.cells
    if pairs == 1:
        states = min(states, -(-grid.shards // workers) * grid.shard_cells)
    kept = min(limit // 2, states * STATE_BYTES)
    worker = (
        WORKER_BYTES
        + min(LIMIT_BYTES, grid.cells * grid.dtype.itemsize)
        + grid.tile_cells * (2 * grid.dtype.itemsize + 48)
        + kept
    )
    client, tasks = CLIENT_BYTES + 2 * borders, 2 * grid.shards
    read, checkpoints = grid.cells * grid.dtype.itemsize, grid.cells * 16
    if pairs > 1:
        first = estimate_components(
            raster,
            dtype=dtype,
            tile=tile,
            workers=workers,
            connectivity=connectivity,
        )
        worker, client = max(worker, first.memory_per_worker), max(client, first.memory_client)
        tasks = first.tasks + -(-pairs // min(PAIRS_A_TASK, -(-pairs // (4 * workers))))
        read, checkpoints = 2 * read, checkpoints * workers + first.bytes_checkpoints
    return Plan(
        operation="st_connected",
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
        bytes_on_disk=None,
        memory_kept=kept,
    )
