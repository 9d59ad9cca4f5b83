"""Estimate tasks, memory and disk of `connected_components`; see `Operation.plan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from orograph.plans.grid import Gpus, Grid
from orograph.plans.plan import Plan
from orograph.tiles.arguments import check_choice, check_dtype, check_integer, check_outputs
from orograph.tiles.grid.window import LONGEST_SIDE
from orograph.tiles.store.create import TABLE_ROWS

CELLS_A_COMPONENT = 10  # four cells in ten of white noise, by 4 neighbours
# of a component in memory of a worker, and in checkpoints: in saved states, in the table
COMPONENT_BYTES, PART_BYTES, ROW_BYTES = 130, 65, 48
COMPONENT_ALONE, PART_ALONE = 10, 10  # where it is not measured
COLUMN_BYTES = {"component_size": 8, "component_box": 4 * 8}


def estimate_components(
    grid: Grid,
    *,
    workers: int,
    components: int | None = None,
    connectivity: int = 8,
    min_size: int = 1,
    outputs: str | Sequence[str] = ("labels",),
    dtype: str = "int64",
    gpus: Gpus | None = None,
) -> Plan:
    """Return the plan of `connected_components`.

    Without a table components are not kept but numbered, and measured only where ``min_size`` asks.
    """
    wanted = {"labels", *check_outputs(outputs, ("labels", *COLUMN_BYTES))}
    label = np.dtype(check_dtype("dtype", dtype, ("int64", "int32"))).itemsize
    measured = check_integer("min_size", min_size, 1, LONGEST_SIDE**2, "cells") > 1
    with_table = len(wanted) > 1
    measured |= with_table
    check_choice("connectivity", connectivity, (4, 8))
    grid = grid.swept_by(gpus)
    cells = grid.cells
    count = -(-cells // CELLS_A_COMPONENT)
    if components is not None:
        count = check_integer("components", components, 0, cells)
    band_cells = min(grid.shard, grid.shape[0]) * grid.shape[1]
    # evenly spread; those of a row of shards are put in order by the client, and written by chunks
    of_shard, of_band = (-(-count * part // cells) for part in (grid.shard_cells, band_cells))
    table = of_band * 32 + of_shard * 65 + min(count, TABLE_ROWS) * 80 if with_table else 0
    in_memory = COMPONENT_BYTES if measured else COMPONENT_ALONE
    saved = PART_BYTES if measured else PART_ALONE
    in_tile, in_shard = 2 * grid.dtype.itemsize + 16, label + 5
    if gpus:  # where cells are decoded, and labels encoded
        in_tile, in_shard = grid.dtype.itemsize, label
    plan = grid.plan_sweep(
        "connected_components",
        workers=workers,
        memory=grid.tile_cells * in_tile + grid.shard_cells * in_shard + of_shard * in_memory,
        written=label,
        checkpoints=cells * 4 + count * (saved + with_table * ROW_BYTES),
        border=(200, 60),
    )
    return replace(
        plan,
        memory_client=plan.memory_client + table,
        memory_table=table,
        bytes_written=plan.bytes_written
        + count * sum(COLUMN_BYTES.get(name, 0) for name in wanted),
    )
