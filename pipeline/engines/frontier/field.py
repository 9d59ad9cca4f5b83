"""Joining tiles into larger ones, where a GPU or the threads of one process do all the work.

A border between two tiles costs visits: a path that follows it wakes both in turn, and a visit ends
at the bound of a bucket though nothing beyond the border could improve the tile. In one memory such
borders are needless. So the tiles of a node of the quadtree become one tile of the run: as large as
`config["field"]` cells a side, or as many cells in a narrow grid, unless too few would be left for
the threads. Reading and writing still go by the tiles of the store. The result does not depend on
it.

The front of a tile must fill a GPU, so there tiles are joined up to `GPU_FIELD` times as many cells
a side, on workers of a cluster too, and over the shards of a store: a task then writes all that its
tile covers.
"""

from __future__ import annotations

from dataclasses import replace

from orograph.execution.context import RunContext
from orograph.settings import setting
from orograph.tiles.grid.quadtree import Node, Quadtree
from orograph.tiles.store.sink import ArraySink

GPU_FIELD = 4
TILES_AT_ONCE = 4  # at least; the threads of a worker read, compute and write different ones


def join_tiles(context: RunContext) -> RunContext:
    """Return the context of a run over larger tiles, or the same one.

    A run that is resumed keeps the tiles that it had, whatever works on it now.
    """
    tree, saved = context.quadtree, context.checkpoints.load("field", context.tree.root)
    level: int = _level(context, tree) if saved is None else saved
    if saved is None:
        context.checkpoints.save("field", tree.root, level)
    if level == 0:
        return context
    return replace(
        context,
        tree=Quadtree(tree.shape, tree.tile << level),
        shard_level=max(context.shard_level - level, 0),
        shard=tree.tile << context.shard_level if level > context.shard_level else 0,
    )


def _level(context: RunContext, tree: Quadtree) -> int:
    """Return the level of the nodes that become tiles."""
    at_once = max(2 * context.gpus, TILES_AT_ONCE) if context.gpus else context.threads
    if not at_once:
        return 0
    side = setting("field") * (GPU_FIELD if context.gpus else 1)
    # a shard is written by one task, from whole tiles; memory is written by any number of tasks
    in_memory = isinstance(context.sink, ArraySink)
    whole_grid = in_memory or context.gpus
    highest = tree.root.level if whole_grid else context.shard_level
    level = 0
    while level < highest:
        large = tree.window(Node(level + 1, 0)).size > side**2
        # a front crosses as many as the square root of all
        few = 4 * tree.count(level + 1) < at_once**2
        if large or few:
            break
        level += 1
    return level
