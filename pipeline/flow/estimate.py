"""Estimate tasks, memory and disk of the flow operations; see `Operation.plan`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from orograph.distance.estimate import estimate_frontier
from orograph.operations.plan import (
    Grid,
    Plan,
    limit_of_process,
    limit_of_worker,
)
from orograph.terrain.estimate import estimate_fill
from orograph.tiles.arguments import check_choice

HOPS, PADDED = 4, 2
"""Bytes of a cell in the state of a tile: its hops, and what its heights have beside."""
DECODED, AMOUNT, MARKS = 3, 16, 5
"""Bytes of a cell of a tile that is accumulated: its step, in three forms; two words; marks."""
LABEL = 4
"""Bytes of the number of a path's end."""
HEIGHT = 9
"""Bytes of a height and of a mark of a stream."""
LENGTH, MARK = 8, 2
"""Bytes of the length of a path, and of marks of a stream and of what it reaches."""
BORDER_BYTES = 160
"""Of a border cell: paths and amounts, of a node and of its children."""


def estimate_direction(
    grid: Grid,
    *,
    workers: int,
    threads: int = 0,
    memory_limit: int | str | None = None,
    depressions: str = "fill",
    pits: int | None = None,
) -> Plan:
    """Return the plan of `flow_direction`: of filling depressions and of resolving flats."""
    check_choice("depressions", depressions, ("fill", "keep"))
    size = grid.dtype.itemsize
    limit = limit_of_process(memory_limit) if threads else limit_of_worker(memory_limit)
    state = size + HOPS + PADDED
    plan = estimate_frontier("flow_direction", grid, state, size, 1, limit, workers, threads)
    if depressions == "keep":
        return plan
    filling = estimate_fill(grid, workers=workers, pits=pits)
    return replace(
        plan,
        tasks=plan.tasks + filling.tasks,
        memory_per_worker=max(plan.memory_per_worker, filling.memory_per_worker),
        memory_client=max(plan.memory_client, filling.memory_client),
        bytes_read=filling.bytes_read + plan.bytes_read,
        bytes_checkpoints=plan.bytes_checkpoints
        + filling.bytes_checkpoints
        + filling.bytes_written,
    )


def estimate_accumulation(grid: Grid, *, workers: int) -> Plan:
    """Return the plan of `flow_accumulation`."""
    return _estimate_sweep("flow_accumulation", grid, workers, AMOUNT + MARKS, 8)


def estimate_watersheds(grid: Grid, *, workers: int) -> Plan:
    """Return the plan of `watersheds`, including the saved labels of each shard."""
    plan = _estimate_sweep("watersheds", grid, workers, 2 * LABEL, 8)
    return replace(
        plan,
        memory_per_worker=plan.memory_per_worker + grid.shard_cells * LABEL,
        bytes_checkpoints=plan.bytes_checkpoints + grid.cells * LABEL,
    )


def estimate_drainage(grid: Grid, *, workers: int) -> Plan:
    """Return the plan of `height_above_drainage`, whose rasters are read twice.

    Directions and streams are planned for with a byte a cell.
    """
    directions = replace(grid, dtype=np.dtype(np.uint8))
    plan = estimate_watersheds(directions, workers=workers)
    others = grid.dtype.itemsize + 1
    return replace(
        plan,
        operation="height_above_drainage",
        memory_per_worker=plan.memory_per_worker + grid.tile_cells * (others + HEIGHT),
        bytes_read=2 * (plan.bytes_read + grid.cells * others),
    )


def estimate_distance(grid: Grid, *, workers: int) -> Plan:
    """Return the plan of `flow_distance`, with a raster of streams of the directions' dtype."""
    size = grid.dtype.itemsize
    plan = _estimate_sweep("flow_distance", grid, workers, LENGTH + MARK + size, 8)
    return replace(plan, bytes_read=plan.bytes_read + grid.cells * size)


def _estimate_sweep(operation: str, grid: Grid, workers: int, state: int, written: int) -> Plan:
    """Return the plan of a sweep with ``state`` and ``written`` bytes for each cell.

    The steps of a shard are saved for the way down.
    """
    return grid.plan_sweep(
        operation,
        workers=workers,
        memory=grid.tile_cells * (grid.dtype.itemsize + DECODED + state + written)
        + grid.shard_cells * (1 + 2 * written),
        written=written,
        checkpoints=grid.cells,
        border=(BORDER_BYTES, BORDER_BYTES),
    )
