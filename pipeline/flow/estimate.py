"""Estimate tasks, memory and disk of the flow operations; see `Operation.plan`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from orograph.distance.estimate import estimate_frontier
from orograph.flow.breach.breach_depressions import DEFAULT_LENGTH, check_limits
from orograph.flow.breach.estimate import estimate_breach, estimate_map
from orograph.flow.routing import DEPRESSIONS, FLATS, of_heights
from orograph.kernels.flow.split import METHODS
from orograph.plans.grid import Grid, limit_of_process, limit_of_worker
from orograph.plans.plan import WORKER_BYTES, Plan
from orograph.terrain.estimate import estimate_fill
from orograph.tiles.arguments import check_choice
from orograph.tiles.raster.raster import RasterLike, open_raster

HOPS, PADDED, LISTED = 4, 2, 2
"""Bytes of a cell in the state of a tile: its hops, and what its heights have beside; and of the
list of cells in flats, eight of each, where these are a quarter of all."""
DECODED, AMOUNT, MARKS = 3, 16, 5
"""Bytes of a cell of a tile that is accumulated: its step, in three forms; two words; marks."""
LABEL = 4
"""Bytes of the number of a path's end."""
HEIGHT = 9
"""Bytes of a height and of a mark of a stream."""
LENGTH, MARK = 8, 2
"""Bytes of the length of a path, and of marks of a stream and of what it reaches."""
SPLIT = 8 + 1 + 1 + 1 + 8 + 8 + 8 + 1 + 8
"""Bytes of a cell of a tile whose water splits: see `orograph.flow.split.State`."""
STEP_AND_ANGLE = 1 + 8 + 1 + 2 + 4
"""Bytes of a cell whose angle is found: its code, height and step, marks, and the angle."""
STREAMS, PIECE, VERTEX, WRITTEN = 0.1, 64, 120, 24
"""Share of cells that are streams; bytes of a stream cell in a piece, the table and the store."""
BORDER_BYTES = 160
"""Bytes of a border cell: paths and amounts, of a node and of its children."""


def estimate_direction(
    grid: Grid,
    *,
    workers: int,
    threads: int = 0,
    memory_limit: int | str | None = None,
    method: str = "d8",
    depressions: str = "fill",
    max_length: int | None = None,
    flats: str = "nearest",
    pits: int | None = None,
) -> Plan:
    """Return the plan of `flow_direction`: of filling depressions and of resolving flats.

    Trenches leave fewer pits, which a plan does not know.
    """
    check_choice("method", method, ("d8", "dinf"))
    check_choice("depressions", depressions, DEPRESSIONS)
    check_choice("flats", flats, FLATS)
    reach, _ = check_limits(DEFAULT_LENGTH if max_length is None else max_length)
    given = grid
    if depressions == "breach":
        # The breached surface, on which all later stages work, is float64.
        grid = replace(grid, dtype=np.dtype(np.float64))
    size = grid.dtype.itemsize
    limit = limit_of_process(memory_limit) if threads else limit_of_worker(memory_limit)
    state, how = size + HOPS + PADDED + LISTED, (limit, workers, threads)
    if flats == "gradient":  # a stage more writes hops, which the last one reads
        both = size + HOPS
        hops = estimate_frontier("flow_direction", grid, state, size, HOPS, *how)
        plan = estimate_frontier("flow_direction", grid, state + HOPS, both, 1, *how)
        plan = one_after_another(plan, hops)
    else:
        plan = estimate_frontier("flow_direction", grid, state, size, 1, *how)
    if method == "dinf":
        last = estimate_map(
            "flow_direction",
            grid,
            workers=workers,
            threads=threads,
            halo=1,
            read=size + 1,
            state=size + STEP_AND_ANGLE,
            written=4,
        )
        plan = one_after_another(last, plan)
    if depressions == "keep":
        return plan
    filling = estimate_fill(grid, workers=workers, pits=pits)
    plan = one_after_another(plan, _with_threads(filling, threads))
    if depressions == "fill":
        return plan
    return one_after_another(
        plan, estimate_breach(given, workers=workers, threads=threads, max_length=reach)
    )


def _with_threads(plan: Plan, threads: int) -> Plan:
    """Return the plan of a sweep by several threads of one process."""
    more = max(threads - 1, 0) * (plan.memory_per_worker - WORKER_BYTES)
    return replace(plan, memory_per_worker=plan.memory_per_worker + more)


def one_after_another(last: Plan, before: Plan) -> Plan:
    """Return the plan of a run of two stages, of which the last reads what the first wrote."""
    return replace(
        last,
        tasks=last.tasks + before.tasks,
        memory_per_worker=max(last.memory_per_worker, before.memory_per_worker),
        memory_client=max(last.memory_client, before.memory_client),
        memory_kept=max(last.memory_kept, before.memory_kept),
        bytes_read=before.bytes_read + last.bytes_read,
        bytes_checkpoints=last.bytes_checkpoints + before.bytes_checkpoints + before.bytes_written,
    )


def estimate_accumulation(
    grid: Grid,
    *,
    workers: int,
    threads: int = 0,
    memory_limit: int | str | None = None,
    method: str | None = None,
    weights: RasterLike | None = None,
    depressions: str | None = None,
    max_length: int | None = None,
    flats: str | None = None,
) -> Plan:
    """Return the plan of `flow_accumulation`; ``weights`` other than areas are read twice."""
    limit_of_worker(memory_limit)  # refuse what is none in any case
    surface = of_heights(method, depressions=depressions, max_length=max_length, flats=flats)
    # Of heights an earlier stage makes codes of one byte, which the accumulation reads.
    codes = grid if method is None else replace(grid, dtype=np.dtype(np.uint8))
    plan = _estimate_sweep("flow_accumulation", codes, workers, AMOUNT + MARKS, 8)
    plan = _with_threads(plan, threads)
    if weights is not None and not (isinstance(weights, str) and weights == "area"):
        given = open_raster(weights, argument="weights").dtype.itemsize
        plan = replace(plan, bytes_read=plan.bytes_read + 2 * grid.cells * given)
    if method is None:
        return plan
    check_choice("method", method, ("d8", *METHODS))
    if method in METHODS:
        limit = limit_of_process(memory_limit) if threads else limit_of_worker(memory_limit)
        last = estimate_frontier("flow_accumulation", grid, SPLIT, 8, 8, limit, workers, threads)
        plan = replace(last, bytes_read=plan.bytes_read + last.bytes_read)
    flow = estimate_direction(
        grid, workers=workers, threads=threads, memory_limit=memory_limit, **surface
    )
    return one_after_another(plan, flow)


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


def estimate_distance(grid: Grid, *, workers: int, to: RasterLike | None = None) -> Plan:
    """Return the plan of `flow_distance`, with the raster of streams if there is one."""
    size = 0 if to is None else open_raster(to, argument="to").dtype.itemsize
    plan = _estimate_sweep("flow_distance", grid, workers, LENGTH + MARK + size, 8)
    return replace(plan, bytes_read=plan.bytes_read + grid.cells * size)


def estimate_streams(grid: Grid, *, workers: int, elevation: RasterLike | None = None) -> Plan:
    """Return the plan of `streams`, where at most a share of `STREAMS` of all cells are streams.

    The accumulation is planned for with eight bytes a cell.
    """
    others = (
        8 if elevation is None else 8 + open_raster(elevation, argument="elevation").dtype.itemsize
    )
    plan = _estimate_sweep("streams", grid, workers, 2 * others + 1 + round(STREAMS * PIECE), 9)
    cells = round(grid.cells * STREAMS)
    return replace(
        plan,
        memory_client=plan.memory_client + cells * VERTEX,
        memory_table=cells * VERTEX,
        bytes_read=plan.bytes_read + grid.cells * others,
        bytes_written=plan.bytes_written + cells * WRITTEN,
        bytes_checkpoints=plan.bytes_checkpoints + cells * PIECE,
    )


def estimate_upstream_length(grid: Grid, *, workers: int) -> Plan:
    """Return the plan of `upstream_length`."""
    return _estimate_sweep("upstream_length", grid, workers, LENGTH + MARK, 8)


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
