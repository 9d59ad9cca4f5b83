"""Estimate tasks, memory and disk of `polygonize` and `isochrones`; see `Operation.plan`."""

from __future__ import annotations

from dataclasses import replace

from orograph.engines.map_overlap import part_side
from orograph.operations.plan import Grid, Plan

CELL, CORNER = 30, 200
"""Bytes of a cell of a part, and of a corner of the result on the client."""
CORNERS = 0.1
"""Corners of polygons for each cell of the grid, of maps whose areas are not single cells."""
VALUE, PIECE, VERTEX, VERTICES = 8 + 2, 40, 400, 0.02
"""Bytes of a cell of a part, of a piece of a line, and of a vertex on the client; vertices for each
cell of a smooth field with some ten levels."""


def estimate_polygonize(grid: Grid, *, workers: int) -> Plan:
    """Return the plan of `polygonize`, with a corner to ten cells."""
    side = part_side(grid.layout.tile, grid.layout.shard) + 2
    corners = round(grid.cells * CORNERS)
    plan = grid.plan_sweep(
        "polygonize",
        workers=workers,
        memory=side**2 * (CELL + grid.dtype.itemsize),
        written=0,
        checkpoints=corners * 16,
        border=(0, 0),
    )
    return replace(plan, tasks=grid.shards, memory_client=plan.memory_client + corners * CORNER)


def estimate_isochrones(grid: Grid, *, workers: int) -> Plan:
    """Return the plan of `isochrones`, with a vertex to fifty cells."""
    side = part_side(grid.layout.tile, grid.layout.shard) + 2
    vertices = round(grid.cells * VERTICES)
    plan = grid.plan_sweep(
        "isochrones",
        workers=workers,
        memory=side**2 * (VALUE + grid.dtype.itemsize),
        written=0,
        checkpoints=vertices * PIECE,
        border=(0, 0),
    )
    return replace(plan, tasks=grid.shards, memory_client=plan.memory_client + vertices * VERTEX)
