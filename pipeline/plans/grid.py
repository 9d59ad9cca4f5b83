"""The grid that is planned for: shape, tiles and shards of a run, and the GPUs that do it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from orograph.arguments.settings import setting, thread_count
from orograph.engines.quadtree_pass import join_on_gpus
from orograph.engines.sweep_graphs import level_of_tasks, levels_above
from orograph.kernels.device import SHARE_OF_TILES
from orograph.plans.plan import (
    GPU_CONTEXT_BYTES,
    TASK_BYTES,
    TASKS_KNOWN,
    TASKS_OF_WORKER,
    RasterSpec,
    bytes_of,
    size_of,
)
from orograph.run.checkpoints import MemoryCheckpoints
from orograph.run.cluster.clusters import (
    current_client,
    memory_of_machine,
    memory_of_worker,
    pause_share,
    threads_a_gpu,
)
from orograph.run.context import RunContext
from orograph.run.options import run_layout
from orograph.tiles.arguments import shown
from orograph.tiles.errors import InputError
from orograph.tiles.grid.quadtree import Quadtree
from orograph.tiles.raster.raster import Raster, RasterLike, StoreRaster, open_raster
from orograph.tiles.store.create import Layout
from orograph.tiles.store.shard import AHEAD_BYTES


@dataclass(frozen=True)
class Gpus:
    """GPUs that are planned for, one for each worker or one for this process."""

    count: int
    memory: int
    """Number of bytes that tiles may use on each GPU."""
    free: int
    """Number of bytes that are free on each GPU before a run."""
    threads: int
    """Number of threads of each process with a GPU."""
    worker_memory: int
    """Number of bytes that a worker may use; 0: this process works, without workers."""

    @classmethod
    def of(cls, memory: int | str, workers: int) -> Gpus:
        """Return the GPUs of workers that `orograph.cluster` would start on this machine.

        ``memory`` is the whole memory of each GPU.

        Raises
        ------
        InputError
            If ``memory`` is not a size, or less than CUDA takes.
        """
        total = bytes_of("gpu_memory", memory)
        free = total - GPU_CONTEXT_BYTES
        if free <= 0:
            raise InputError(
                f"gpu_memory: {shown(memory)}; CUDA itself takes {size_of(GPU_CONTEXT_BYTES)}; "
                "give more"
            )
        of_tiles = int(SHARE_OF_TILES * free)
        if not workers:
            return cls(1, of_tiles, free, thread_count(), 0)
        client = current_client()
        limit = memory_of_worker(client) if client else memory_of_machine() // workers
        return cls(workers, of_tiles, free, threads_a_gpu(workers, total), limit)

    def context(self, tree: Quadtree, shard_level: int) -> RunContext:
        """Return the context of a run on these GPUs, as far as joining tiles depends on it."""
        nothing: Any = None  # no run, so no result: it would lie in a store
        # Threads of this process and those of a cluster are told apart by which of two fields has
        # them.
        alone = not self.worker_memory
        return RunContext(
            *(tree, shard_level, MemoryCheckpoints(), nothing, "", self.threads * alone),
            gpus=self.count,
            gpu_memory=self.memory,
            cluster_threads=self.count * self.threads * (not alone),
            worker_memory=self.worker_memory,
        )


@dataclass(frozen=True)
class Grid:
    """Shape, dtype and tiling of a raster that is planned for."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    layout: Layout
    workers: int = 0
    """Number of workers, of one thread each; 0: threads of this process."""
    ahead: int = 0  # bytes of a shard that a sweep reads before it needs them, at the most
    joins: bool = True
    """Whether a sweep may join tiles: the plan's argument ``tile`` is not given."""
    gpus: Gpus | None = None
    """GPUs that sweep over the grid; None: CPUs do."""
    wraps: bool = False
    """Whether the last column lies beside the first."""
    poles: tuple[bool, bool] = (False, False)
    """Whether cells of the first and of the last row are neighbours over a pole."""
    joined: int = 0
    """Level of the quadtree whose nodes GPUs take as tiles; 0: the tiles themselves."""

    def swept_by(self, gpus: Gpus | None) -> Grid:
        """Return the grid with the tiles that a sweep takes on GPUs, or on CPUs."""
        if gpus is None:
            return self
        context = gpus.context(self.tree, self.shard_level)
        tree = (join_on_gpus(context) if self.joins else context).quadtree
        joined = (tree.tile // self.layout.tile).bit_length() - 1
        return replace(self, gpus=gpus, joined=joined)

    @property
    def tile(self) -> int:
        """Side of a tile of the run."""
        return self.layout.tile << self.joined

    @property
    def shard(self) -> int:
        """Side of what one task writes at least: a shard, or a tile that is larger."""
        return max(self.layout.shard, self.tile)

    @property
    def cells(self) -> int:
        """Cells of the grid."""
        return self.shape[0] * self.shape[1]

    @property
    def tile_cells(self) -> int:
        """Cells of the largest tile."""
        return min(self.tile, self.shape[0]) * min(self.tile, self.shape[1])

    @property
    def shard_cells(self) -> int:
        """Cells of the largest shard."""
        return min(self.shard, self.shape[0]) * min(self.shard, self.shape[1])

    @property
    def tree(self) -> Quadtree:
        """Quadtree over the tiles."""
        return Quadtree(self.shape, self.tile, self.wraps, self.poles)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return self.tree.count(self.shard_level)

    @property
    def shard_level(self) -> int:
        """Level of the quadtree whose nodes are shards."""
        return (self.shard // self.tile).bit_length() - 1

    @property
    def tasks_of_sweep(self) -> int:
        """Number of tasks of an upward and a downward sweep over the quadtree."""
        tree, lowest = self.tree, self.shard_level
        if self.workers:
            threads = self.gpus.threads if self.gpus else 1
            lowest = level_of_tasks(tree, lowest, threads * self.workers)
        above = levels_above(tree, lowest, 0 if self.workers else 1)
        # Each node once on the way up and once on the way down, and the root's own task.
        return 2 * sum(map(tree.count, (lowest, *above))) + 1


def open_grid(
    raster: RasterLike | RasterSpec,
    tile: int | None = None,
    shard: int | None = None,
    argument: str = "raster",
    workers: int = 0,
) -> Grid:
    """Return the grid of a raster or `RasterSpec`, with the tile and shard sides of its run."""
    # A tile that was asked for is kept as it is.
    joins = tile is None
    if isinstance(raster, RasterSpec):
        spec: RasterSpec | Raster = raster
    else:
        spec = open_raster(raster, argument=argument)
        tile = spec.tile if tile is None else tile
    layout = run_layout(spec.shape, setting("tile") if tile is None else tile, shard)
    ahead = AHEAD_BYTES * (isinstance(spec, StoreRaster) and spec.storage.etags)
    return Grid(spec.shape, np.dtype(spec.dtype), layout, workers, ahead, joins)


def whole_gpu_memory(of_tiles: int) -> int:
    """Return the bytes of a GPU whose tiles may use ``of_tiles`` bytes when all else is free."""
    return math.ceil(of_tiles / SHARE_OF_TILES) + GPU_CONTEXT_BYTES


def memory_of_tasks(tasks: int, workers: int) -> int:
    """Return the bytes of scheduler memory for the tasks of a sweep or an index build."""
    return min(tasks, TASKS_KNOWN + TASKS_OF_WORKER * workers) * TASK_BYTES


def limit_of_worker(memory_limit: int | str | None) -> int:
    """Return the memory limit of a worker in bytes, by default that of the cluster."""
    if memory_limit is None:
        return memory_of_worker(current_client())
    return bytes_of("memory_limit", memory_limit)


def room_to_keep(limit: int, needed: int) -> int:
    """Return the bytes that a worker keeps by choice, of a limit of which it needs some.

    That is half of its limit, or what it does not need of the share at which Dask pauses it; see
    `orograph.engines.tile_states.room_for_states`.
    """
    return max(min(limit // 2, int(pause_share() * limit) - needed), 0)


def limit_of_process(memory_limit: int | str | None) -> int:
    """Return the memory of the machine in bytes; refuse a limit, which only applies to workers."""
    if memory_limit is not None:
        raise InputError(
            f"memory_limit: {shown(memory_limit)} is what a worker may use, and workers=0; leave "
            "it out, or give a number of workers"
        )
    return memory_of_machine()
