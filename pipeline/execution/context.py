"""Context that all tasks of a run share, whatever they compute."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from threading import Event

from dask.base import tokenize

from orograph.execution.checkpoints import CheckpointStore
from orograph.tiles.errors import Cancelled
from orograph.tiles.grid.quadtree import Node, Quadtree, Tree
from orograph.tiles.grid.window import Window
from orograph.tiles.store.sink import Sink


@dataclass(frozen=True)
class RunContext:
    """Division of the work of a run, its checkpoints and its output."""

    tree: Tree
    """Tree whose leaves are the tiles."""
    shard_level: int
    """Level of the tree whose nodes are shards: one task reads one, and one task writes one."""
    checkpoints: CheckpointStore
    """Store of what later tasks, and a run that is resumed, need again."""
    sink: Sink
    """Output of the run."""
    token: str
    """32 hexadecimal digits, new in every run: part of the names of all its tasks."""
    threads: int = 0
    """Threads of this process that do the work; 0: the workers of a cluster."""
    cancelled: Event | None = field(default=None, compare=False)
    """Set when the run is to stop; None on the workers of a cluster."""
    gpus: int = 0
    """GPUs that do the work; 0: the run is on CPUs."""
    gpu_memory: int = 0
    """Bytes that tiles may take on each of them."""
    cluster_threads: int = 0
    """Threads of all workers of the cluster that does the work; 0: no cluster, or an empty one."""
    worker_memory: int = 0
    """Bytes that a worker of the cluster may use; 0: there is no cluster."""
    shard: int = 0
    """Cells a side of a shard, where a tile is larger than one; 0: see ``shard_level``."""

    @property
    def quadtree(self) -> Quadtree:
        """The tree of a run over the tiles of a grid."""
        assert isinstance(self.tree, Quadtree)
        return self.tree

    def part(self, name: str) -> RunContext:
        """Return the context of a part of the run: checkpoints and a token of its own."""
        return replace(
            self, checkpoints=self.checkpoints.part(name), token=tokenize(self.token, name)
        )

    def shards(self, node: Node) -> list[Window]:
        """Return the shards of a node of ``shard_level``: itself, or those that its tile covers."""
        whole = self.tree.window(node)
        if not self.shard:
            return [whole]
        return [
            Window(y, x, self.shard, self.shard).clip(self.quadtree.shape)
            for y in range(whole.y, whole.y + whole.height, self.shard)
            for x in range(whole.x, whole.x + whole.width, self.shard)
        ]

    def stop_if_cancelled(self) -> None:
        """Raise `Cancelled` if the run is to stop."""
        if self.cancelled is not None and self.cancelled.is_set():
            raise Cancelled("the run was cancelled")
