"""Join stored tiles into larger ones for computing: borders inside one memory only cost visits.

A border between two tiles costs visits: a path that follows it wakes both in turn, and a visit ends
at the bound of a bucket though nothing beyond the border could improve the tile. In one memory such
borders are needless. So the tiles of a node of the quadtree become one tile of the run: as large as
`config["field"]` cells a side, or as many cells in a narrow grid, unless too few would be left for
the threads. Reading and writing still go by the tiles of the store. The result does not depend on
it. In memory fields are `MEMORY_FIELD` times as large a side: no thread waits there until others
have read or written theirs.

Workers of a cluster own shards, so there tiles are joined within them, and only if a worker's
memory is large beside what it takes to read one: it keeps the states of others too.

The front of a tile must fill a GPU, and the larger the tile the better it does. So there tiles are
joined up to `GPU_FIELD` times as many cells a side, as far as the GPU's memory allows, on workers
of a cluster too, and over the shards of a store: a task then writes all that its tile covers. One
GPU takes the whole grid as one tile if that fits, even where there are more. Kernels keep costs of
slopes for whole blocks, and all rasters with a halo, so a strip takes the memory of many more cells
than it has.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from orograph.arguments.settings import setting
from orograph.kernels.vectors.lanes import LANES
from orograph.run.context import RunContext
from orograph.tiles.grid.quadtree import Node, Quadtree
from orograph.tiles.grid.window import Window
from orograph.tiles.store.sink import ArraySink

MEMORY_FIELD = 2
GPU_FIELD = 16
TILES_AT_ONCE = 8  # on GPUs that do not hold the grid: some are read while others are computed
MOST_PADDED = 2**31 - 1  # cells of a tile with its halo: CUDA kernels count in 32 bits
MOST_CELLS = 2**28  # of one of several tiles: few enough with their halo, were they one row
WIDEST_HALO = 2
GPU_BYTES_A_CELL = 64  # of a GPU's memory, unless a problem knows better
GpuBytes = Callable[[int], int]
"""Function that returns the peak bytes of GPU memory of a tile, given its number of cells."""
BYTES_A_CELL = 512  # of a worker's memory: about 64 to read a tile, and much else has to fit in


def usual_gpu_bytes(cells: int) -> int:
    """Return the peak bytes of GPU memory of a tile, unless a problem knows better."""
    return cells * GPU_BYTES_A_CELL


def join_tiles(context: RunContext, gpu_bytes: GpuBytes = usual_gpu_bytes) -> RunContext:
    """Return a run context with larger tiles where that is quicker, else the same context.

    A run that is resumed keeps the tiles that it had, whatever works on it now.

    Parameters
    ----------
    context : RunContext
    gpu_bytes : callable
        Returns the peak bytes of GPU memory of a tile, given its number of cells.
    """
    return context.join_tiles(partial(_level, gpu_bytes))


def bytes_held(context: RunContext, gpu_bytes: GpuBytes) -> int:
    """Return the bytes of all tiles that one GPU of a run works on."""
    tree = context.quadtree
    tile = cells_on_gpu(tree.window(Node(0, 0)))
    return gpu_bytes(tile) * -(-tree.count(0) // context.gpus)


def _level(gpu_bytes: GpuBytes, context: RunContext) -> int:
    """Return the quadtree level whose nodes become the tiles of the run."""
    tree = context.quadtree
    if context.gpus:
        return _level_on_gpus(tree, context.gpus, context.gpu_memory, gpu_bytes)
    if not context.threads:
        threads, memory = context.cluster_threads, context.worker_memory
        return level_on_workers(tree, context.shard_level, threads, memory)
    # a shard is written by one task, from whole tiles; memory is written by any number of tasks
    in_memory = isinstance(context.sink, ArraySink)
    highest = tree.root.level if in_memory else context.shard_level
    side = setting("field") * (MEMORY_FIELD if in_memory else 1)
    return _highest(tree, highest, side**2, context.threads)


def _level_on_gpus(tree: Quadtree, gpus: int, memory: int, gpu_bytes: GpuBytes) -> int:
    """Return the quadtree level of the tiles for GPUs of ``memory`` bytes each."""

    def fits(node: Window, share: int = 1) -> bool:
        return share * gpu_bytes(cells_on_gpu(node)) <= memory

    most, root = (setting("field") * GPU_FIELD) ** 2, tree.root
    height, width = (n + 2 * WIDEST_HALO for n in tree.shape)
    whole = tree.window(root)
    if whole.size <= most and fits(whole) and height * width <= MOST_PADDED:
        return root.level  # quicker than several GPUs that wait for one another's borders
    at_once = max(2 * gpus, TILES_AT_ONCE)
    few = partial(fits, share=TILES_AT_ONCE)
    return _highest(tree, root.level, min(most, MOST_CELLS), at_once, few)


def cells_on_gpu(window: Window) -> int:
    """Return the number of cells a tile has on a GPU, in whole blocks or with its halo."""
    height, width = (
        max(-(-n // LANES) * LANES, n + 2 * WIDEST_HALO) for n in (window.height, window.width)
    )
    return height * width


def level_on_workers(tree: Quadtree, shard_level: int, threads: int, memory: int) -> int:
    """Return the quadtree level of the tiles for the CPU workers of a cluster.

    ``threads`` are those of all workers, ``memory`` what each of them may use.
    """
    most = min(setting("field") ** 2, memory // BYTES_A_CELL)
    return _highest(tree, shard_level, most, threads)


def _highest(
    tree: Quadtree,
    highest: int,
    most: int,
    at_once: int,
    fits: Callable[[Window], bool] = lambda _: True,
) -> int:
    """Return the highest level of small enough nodes that still keeps all threads busy.

    ``most``: cells of a node; ``fits`` tells whether a GPU has room for it.
    """
    level = 0
    while level < highest:
        node = tree.window(Node(level + 1, 0))
        large = node.size > most or not fits(node)
        # a wavefront overlaps about sqrt(n) of n tiles
        few = 4 * tree.count(level + 1) < at_once**2
        if large or few:
            break
        level += 1
    return level
