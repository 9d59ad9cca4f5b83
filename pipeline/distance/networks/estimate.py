"""Estimate tasks, memory and disk of `region_network`; see `Operation.plan`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from orograph.arguments.steps import DTYPES
from orograph.distance.cost_distance import OUTPUTS
from orograph.distance.estimate import OUTPUT_BYTES, estimate_cost
from orograph.engines.map_overlap import part_side
from orograph.plans.grid import Grid
from orograph.plans.plan import WORKER_BYTES, Plan
from orograph.tiles.arguments import check_dtype

LABELS = 3 * 8
"""Bytes of a cell of a part for its label as read, decoded, and with its halo."""


def estimate_network(
    grid: Grid,
    *,
    workers: int,
    threads: int = 0,
    memory_limit: int | str | None = None,
    cost: str = "friction",
    dtype: str = "float64",
) -> Plan:
    """Return the plan of `region_network`: of distances with allocation, and of the crossings."""
    itemsize = np.dtype(check_dtype("dtype", dtype, DTYPES)).itemsize
    plan = estimate_cost(
        grid,
        workers=workers,
        threads=threads,
        memory_limit=memory_limit,
        cost=cost,
        dtype=dtype,
        outputs=OUTPUTS,
    )
    side = part_side(grid.layout.tile, grid.layout.shard) + 4
    crossing = side**2 * (2 * grid.dtype.itemsize + 4 * itemsize + LABELS) * max(threads, 1)
    between = itemsize + sum(OUTPUT_BYTES.values())
    return replace(
        plan,
        operation="region_network",
        tasks=plan.tasks + grid.shards,
        memory_per_worker=max(plan.memory_per_worker, WORKER_BYTES + crossing),
        bytes_written=0,
        bytes_checkpoints=plan.bytes_checkpoints + grid.cells * between,
    )
