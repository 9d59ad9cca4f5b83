"""The grid that an estimate is given: shape, tiles and shards of a run, and what sweeps take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from orograph.engines.sweep_graphs import level_of_tasks, levels_above
from orograph.execution.clusters import (
    current_client,
    memory_of_machine,
    memory_of_worker,
)
from orograph.execution.options import run_layout
from orograph.execution.settings import setting
from orograph.plans.plan import (
    CLIENT_BYTES,
    TASK_BYTES,
    TASKS_KNOWN,
    TASKS_OF_WORKER,
    WORKER_BYTES,
    Plan,
    RasterSpec,
    bytes_of,
)
from orograph.tiles.arguments import shown
from orograph.tiles.errors import InputError
from orograph.tiles.grid.quadtree import Quadtree
from orograph.tiles.raster.raster import Raster, RasterLike, StoreRaster, open_raster
from orograph.tiles.store.create import Layout
from orograph.tiles.store.shard import AHEAD_BYTES


@dataclass(frozen=True)
class Grid:
    """Shape, dtype and tiling of a raster that is planned for."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    layout: Layout
    workers: int = 0
    """Workers of one thread each; 0: threads of this process."""
    ahead: int = 0  # bytes of a shard that a sweep reads before it needs them, at the most

    @property
    def cells(self) -> int:
        """Cells of the grid."""
        return self.shape[0] * self.shape[1]

    @property
    def tile_cells(self) -> int:
        """Cells of the largest tile."""
        return min(self.layout.tile, self.shape[0]) * min(self.layout.tile, self.shape[1])

    @property
    def shard_cells(self) -> int:
        """Cells of the largest shard."""
        return min(self.layout.shard, self.shape[0]) * min(self.layout.shard, self.shape[1])

    @property
    def tree(self) -> Quadtree:
        """Quadtree over the tiles."""
        return Quadtree(self.shape, self.layout.tile)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return self.tree.count(self.shard_level)

    @property
    def shard_level(self) -> int:
        """Level of the quadtree whose nodes are shards."""
        return (self.layout.shard // self.layout.tile).bit_length() - 1

    @property
    def tasks_of_sweep(self) -> int:
        """Number of tasks of an upward and a downward sweep over the quadtree."""
        tree, lowest = self.tree, self.shard_level
        if self.workers:
            lowest = level_of_tasks(tree, lowest, self.workers)
        above = levels_above(tree, lowest, 0 if self.workers else 1)
        return 2 * sum(map(tree.count, (lowest, *above))) + 1

    def plan_sweep(
        self,
        operation: str,
        *,
        workers: int,
        memory: int,
        written: int,
        checkpoints: int,
        border: tuple[int, int],
        reads: int = 1,
    ) -> Plan:
        """Return the plan of a sweep that does not produce a table.

        ``memory`` and ``checkpoints`` are the bytes of a worker and of its checkpoints, not
        counting those of borders; ``border`` is the bytes of a border cell in both; ``written`` is
        the bytes of a cell of the result; ``reads`` is how often each cell is read.
        """
        (in_memory, saved), tasks = border, self.tasks_of_sweep
        ahead = min(self.ahead, self.shard_cells * self.dtype.itemsize)
        return Plan(
            operation=operation,
            shape=self.shape,
            tile=self.layout.tile,
            shard=self.layout.shard,
            tiles=self.tree.count(0),
            tasks=tasks,
            memory_per_worker=WORKER_BYTES + memory + ahead + 4 * sum(self.shape) * in_memory,
            memory_client=CLIENT_BYTES + memory_of_tasks(tasks, workers),
            bytes_read=reads * self.cells * self.dtype.itemsize,
            bytes_written=self.cells * written,
            bytes_checkpoints=checkpoints + 4 * self.shards * self.layout.shard * saved,
            workers=workers,
        )


def open_grid(
    raster: RasterLike | RasterSpec,
    tile: int | None = None,
    shard: int | None = None,
    argument: str = "raster",
    workers: int = 0,
    band: int | None = None,
    variable: str | None = None,
) -> Grid:
    """Return the grid of a raster or `RasterSpec`, with the tile and shard sides of its run."""
    if isinstance(raster, RasterSpec):
        spec: RasterSpec | Raster = raster
    else:
        spec = open_raster(raster, band=band, variable=variable, argument=argument)
        tile = spec.tile if tile is None else tile
    layout = run_layout(spec.shape, setting("tile") if tile is None else tile, shard)
    ahead = AHEAD_BYTES * (isinstance(spec, StoreRaster) and spec.storage.etags)
    return Grid(spec.shape, np.dtype(spec.dtype), layout, workers, ahead)


def memory_of_tasks(tasks: int, workers: int) -> int:
    """Return the bytes of scheduler memory for the tasks of a sweep or an index build."""
    return min(tasks, TASKS_KNOWN + TASKS_OF_WORKER * workers) * TASK_BYTES


def limit_of_worker(memory_limit: int | str | None) -> int:
    """Return the memory limit of a worker in bytes, by default that of the cluster."""
    return memory_of_worker(current_client()) if memory_limit is None else bytes_of(memory_limit)


def limit_of_process(memory_limit: int | str | None) -> int:
    """Return the memory of the machine in bytes; refuse a limit, which only applies to workers."""
    if memory_limit is not None:
        raise InputError(
            f"memory_limit: {shown(memory_limit)} is what a worker may use, and workers=0; leave "
            "it out, or give a number of workers"
        )
    return memory_of_machine()
