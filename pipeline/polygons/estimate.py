"""Estimate tasks, memory and disk of `polygonize` and `isochrones`; see `Operation.plan`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from orograph.engines.map_overlap import part_side
from orograph.plans.grid import Grid
from orograph.plans.plan import Plan

CELL, CORNER = 30, 200
"""Bytes of a cell of a part, and of a corner of the result on the client."""
CORNERS = 0.1
"""Corners of polygons for each cell of the grid, of maps whose areas are not single cells."""
VALUE, PIECE, VERTEX, VERTICES = 8 + 2, 40, 400, 0.02
"""Bytes of a cell of a part, of a piece of a line, and of a vertex on the client; vertices for each
cell of a smooth field with some ten levels."""


def estimate_polygonize(grid: Grid, *, workers: int) -> Plan:
    """Return the plan of `polygonize`, with a corner to ten cells."""
    corners = round(grid.cells * CORNERS)
    cell = CELL + (np.dtype(np.int64).itemsize if grid.dtype.kind == "f" else 0)
    return _estimate("polygonize", grid, workers, cell, corners * 16, corners * CORNER)


def estimate_isochrones(grid: Grid, *, workers: int) -> Plan:
    """Return the plan of `isochrones`, with a vertex to fifty cells."""
    vertices = round(grid.cells * VERTICES)
    return _estimate("isochrones", grid, workers, VALUE, vertices * PIECE, vertices * VERTEX)


def _estimate(
    operation: str, grid: Grid, workers: int, cell: int, checkpoints: int, client: int
) -> Plan:
    """Return the plan of tracing with ``cell`` bytes of a cell, and ``client`` of the layer."""
    side = part_side(grid.layout.tile, grid.layout.shard) + 2
    plan = grid.plan_sweep(
        operation,
        workers=workers,
        memory=side**2 * (cell + grid.dtype.itemsize),
        written=0,
        checkpoints=checkpoints,
        border=(0, 0),
    )
    return replace(plan, tasks=grid.shards, memory_client=plan.memory_client + client)
