"""What a run will take, told before it starts: tasks, memory, disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.launch import check_choice, run_layout
from orograph.settings import config
from orograph.tiles.decoded import LIMIT_BYTES
from orograph.tiles.errors import InputError
from orograph.tiles.quadtree import Quadtree
from orograph.tiles.raster import open_raster
from orograph.tiles.store import Layout

MIB = 2**20

# Resident memory of processes that have imported all they need and done nothing yet, and what
# the scheduler holds for a task. Measured, see benchmarks/memory.py.
CLIENT_BYTES = 240 * MIB
WORKER_BYTES = 215 * MIB
TASK_BYTES = 8_000


@dataclass(frozen=True)
class Plan:
    """What a run will take.

    Attributes
    ----------
    operation
        Its name.
    shape, tile, shard
        The grid, and how it is cut: cells a side of a tile and of what one task does.
    tiles, tasks
        How many there are. Distances: tasks at the least, as their number depends on the data.
    memory_per_worker, memory_client, memory_total
        Peak resident bytes of a worker of one thread, of the process with client and scheduler,
        and of both together with ``workers`` workers. Distances: what they need; what a worker
        may use beyond it is used to keep tiles, up to half of its limit.
    bytes_read, bytes_written, bytes_checkpoints
        Uncompressed bytes of the input, of the result and of the checkpoints; on disk they are
        less.
    workers
        For how many workers ``memory_total`` is.

    Examples
    --------
    >>> import orograph as og
    >>> og.plan("minimum_spanning_forest", (4096, 4096)).bytes_written // 2**20
    16
    """

    operation: str
    shape: tuple[int, int]
    tile: int
    shard: int
    tiles: int
    tasks: int
    memory_per_worker: int
    memory_client: int
    bytes_read: int
    bytes_written: int
    bytes_checkpoints: int
    workers: int

    @property
    def memory_total(self) -> int:
        """Peak resident bytes of client, scheduler and workers together."""
        return self.memory_client + self.workers * self.memory_per_worker

    def __str__(self) -> str:
        rows, columns = self.shape
        return "\n".join(
            (
                f"{self.operation} of {rows} x {columns} cells",
                f"  {self.tiles} tiles of {self.tile} x {self.tile} cells, "
                f"written in shards of {self.shard} x {self.shard}",
                f"  {self.tasks} tasks",
                f"  memory: {_size(self.memory_per_worker)} a worker, "
                f"{_size(self.memory_client)} client and scheduler, "
                f"{_size(self.memory_total)} with {self.workers} worker(s)",
                f"  disk, uncompressed: {_size(self.bytes_read)} read, "
                f"{_size(self.bytes_written)} written, "
                f"{_size(self.bytes_checkpoints)} of checkpoints on the way",
            )
        )


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count = count / 1024  # type: ignore[assignment]
    return f"{count:.1f} GiB"


def plan(
    operation: str,
    raster: Any,
    *,
    dtype: npt.DTypeLike | None = None,
    tile: int | None = None,
    workers: int = 1,
) -> Plan:
    """Tell what a run will take, before anything is started.

    Parameters
    ----------
    operation
        Name of the operation, such as ``"minimum_spanning_forest"``.
    raster
        What the operation will be given, or only its shape (rows, columns).
    dtype
        Type of the cells where only a shape is given; float32 by default.
    tile
        As the operation will be given it.
    workers
        Number of workers of one thread each.

    Returns
    -------
    Plan
        Printed, it reads as a short table.

    Raises
    ------
    InputError
        If the operation is unknown or the raster cannot be used.

    Examples
    --------
    >>> import orograph as og
    >>> p = og.plan("minimum_spanning_forest", (16384, 16384), dtype="float32", workers=2)
    >>> p.tiles, p.tasks, p.bytes_read // 2**20
    (256, 171, 1024)
    """
    check_choice("operation", operation, tuple(_OPERATIONS))
    if workers < 1:
        raise InputError(f"workers: {workers}; it must be at least 1")
    if isinstance(raster, tuple):
        shape, cell = raster, np.dtype(dtype or np.float32)
        if len(shape) != 2 or min(shape) < 1:
            raise InputError(f"shape: {shape}; give rows and columns, at least 1 each")
    else:
        opened = open_raster(raster)
        shape, cell, tile = opened.shape, opened.dtype, tile or opened.tile
    layout = run_layout(shape, tile or config.get("tile"))
    return _OPERATIONS[operation](shape, cell, layout, workers)


def _forest(shape: tuple[int, int], dtype: np.dtype[Any], layout: Layout, workers: int) -> Plan:
    tree = Quadtree(shape, layout.tile)
    level = (layout.shard // layout.tile).bit_length() - 1
    above = sum(tree.count(upper) for upper in range(level + 1, tree.root.level + 1))
    shards = tree.count(level)
    tasks = 2 * shards + 2 * above + 1
    tile_cells = min(layout.tile, shape[0]) * min(layout.tile, shape[1])
    shard_cells = min(layout.shard, shape[0]) * min(layout.shard, shape[1])
    border = 4 * (shape[0] + shape[1])
    # tiles at a ragged edge are decoded apart from the result, and kept for a while
    ragged = any(n % layout.tile for n in shape)
    kept = min(LIMIT_BYTES, shape[0] * shape[1] * dtype.itemsize) if ragged else 0
    worker = (
        WORKER_BYTES
        + kept
        + tile_cells * (2 * dtype.itemsize + 24)
        + shard_cells * 3
        + border * 160
    )
    return Plan(
        operation="minimum_spanning_forest",
        shape=shape,
        tile=layout.tile,
        shard=layout.shard,
        tiles=tree.count(0),
        tasks=tasks,
        memory_per_worker=worker,
        memory_client=CLIENT_BYTES + tasks * TASK_BYTES,
        bytes_read=shape[0] * shape[1] * dtype.itemsize,
        bytes_written=shape[0] * shape[1],
        bytes_checkpoints=shape[0] * shape[1] + 60 * shards * 4 * layout.shard,
        workers=workers,
    )


def _relaxation(
    operation: str,
    answer: int,
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    layout: Layout,
    workers: int,
) -> Plan:
    """What the frontier engine takes at the least: each tile visited once, by a task a shard.

    A worker keeps the states of tiles in up to half of the memory it may use, and puts what is
    more on disk: more memory saves reading and is not needed. ``answer`` is bytes a cell.
    """
    tree = Quadtree(shape, layout.tile)
    shards = tree.count((layout.shard // layout.tile).bit_length() - 1)
    tile_cells = min(layout.tile, shape[0]) * min(layout.tile, shape[1])
    shard_cells = min(layout.shard, shape[0]) * min(layout.shard, shape[1])
    cells = shape[0] * shape[1]
    rims = tree.count(0) * 4 * layout.tile * 8
    return Plan(
        operation=operation,
        shape=shape,
        tile=layout.tile,
        shard=layout.shard,
        tiles=tree.count(0),
        tasks=2 * shards,
        memory_per_worker=WORKER_BYTES
        + LIMIT_BYTES
        + tile_cells * (2 * dtype.itemsize + 48)
        + shard_cells * 3 * answer,
        memory_client=CLIENT_BYTES + 2 * rims,
        bytes_read=cells * dtype.itemsize,
        bytes_written=cells * answer,
        bytes_checkpoints=cells * 8 + rims,
        workers=workers,
    )


_OPERATIONS: dict[str, Callable[..., Plan]] = {
    "minimum_spanning_forest": _forest,
    "cost_distance": partial(_relaxation, "cost_distance", 8),
    "hop_distance": partial(_relaxation, "hop_distance", 4),
}
