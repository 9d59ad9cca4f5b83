"""Estimate tasks, memory and disk of `breach_depressions`; see `Operation.plan`."""

from __future__ import annotations

from dataclasses import replace

from orograph.engines.map_overlap import part_side
from orograph.flow.breach.breach_depressions import DEFAULT_LENGTH, check_limits
from orograph.plans.grid import Grid, memory_of_tasks
from orograph.plans.plan import CLIENT_BYTES, Plan

SURFACE, BREACHED, WINDOW = 8 + 2 + 2, 8, 4 + 1 + 8 + 8
"""Bytes of a cell: in a part, with its marks and pits; in the result; in the window of a pit."""


def estimate_breach(
    grid: Grid, *, workers: int, threads: int = 0, max_length: int = DEFAULT_LENGTH
) -> Plan:
    """Return the plan of `breach_depressions`, whose tasks are one for each shard."""
    reach, _ = check_limits(max_length)
    size = grid.dtype.itemsize
    return estimate_map(
        "breach_depressions",
        grid,
        workers=workers,
        threads=threads,
        halo=2 * reach + 1,
        read=size,
        state=size + SURFACE,
        written=BREACHED,
        more=(2 * reach + 1) ** 2 * WINDOW,
    )


def estimate_map(
    operation: str,
    grid: Grid,
    *,
    workers: int,
    threads: int,
    halo: int,
    read: int,
    state: int,
    written: int,
    more: int = 0,
) -> Plan:
    """Return the plan of a problem of `MapOverlap`.

    ``read``, ``state`` and ``written`` are bytes of a cell of its rasters, of a part and of the
    result; ``more`` are bytes of a task that do not depend on its cells.
    """
    side = part_side(grid.layout.tile, grid.layout.shard)
    rows, columns = (_with_halos(length, side, halo) for length in grid.shape)
    # A part with its halo, which ends at the edges of the grid.
    largest = [min(side + 2 * halo, length) for length in grid.shape]
    memory = largest[0] * largest[1] * state + grid.shard_cells * 2 * written + more
    plan = grid.plan_sweep(
        operation,
        workers=workers,
        memory=memory * max(threads, 1),
        written=written,
        checkpoints=0,
        border=(0, 0),
    )
    return replace(
        plan,
        tasks=grid.shards,
        memory_client=CLIENT_BYTES + memory_of_tasks(grid.shards, workers),
        bytes_read=rows * columns * read,
    )


def _with_halos(length: int, side: int, halo: int) -> int:
    """Return how many rows or columns are read: those of all parts, with their halos."""
    starts = range(0, length, side)
    return sum(min(start + side + halo, length) - max(start - halo, 0) for start in starts)
