"""The context that all tasks of a run share: tree of tiles, checkpoints, output, resources."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from threading import Event

from dask.base import tokenize

from orograph.run.checkpoints import CheckpointStore
from orograph.tiles.errors import Cancelled
from orograph.tiles.grid.quadtree import Node, Quadtree, Tree
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import ArrayRaster, Raster, StoreRaster
from orograph.tiles.store.create import Variable
from orograph.tiles.store.sink import ArraySink, Sink, StoreSink


@dataclass(frozen=True)
class RunContext:
    """Division of a run's work into tiles and tasks, its checkpoints and its output."""

    tree: Tree
    """Tree whose leaves are the tiles."""
    shard_level: int
    """Level of the tree whose nodes are shards: they are written whole."""
    checkpoints: CheckpointStore
    """Store of what later tasks, and a run that is resumed, need again."""
    sink: Sink
    """Output of the run."""
    token: str
    """Identifier of the run, 32 hexadecimal digits: part of the names of all its tasks."""
    threads: int = 0
    """Threads of this process that do the work; 0: the workers of a cluster."""
    cancelled: Event | None = field(default=None, compare=False)
    """Event that is set when the run is to stop; None on the workers of a cluster."""
    gpus: int = 0
    """Number of GPUs that do the work; 0: the run is on CPUs."""
    gpu_memory: int = 0
    """Bytes that tiles may take on each GPU."""
    cluster_threads: int = 0
    """Number of threads of the cluster's workers; 0: no cluster, or an empty one."""
    worker_memory: int = 0
    """Bytes that a worker of the cluster may use; 0: there is no cluster."""
    begun: float = 0.0
    """Time at which the run was submitted, in seconds since 1970."""
    shard: int = 0
    """Side of a shard in cells, where a tile is larger than a shard; 0: see ``shard_level``."""
    tile_given: bool = False
    """Whether the caller chose the side of the tiles; sweeps then keep it."""

    @property
    def quadtree(self) -> Quadtree:
        """The tree of tiles as a `Quadtree`, for runs on a grid."""
        assert isinstance(self.tree, Quadtree)
        return self.tree

    def part(self, name: str) -> RunContext:
        """Return the context of a stage of the run, with its own checkpoints and token."""
        return replace(
            self, checkpoints=self.checkpoints.part(name), token=tokenize(self.token, name)
        )

    def join_tiles(self, level_of: Callable[[RunContext], int]) -> RunContext:
        """Return this context with the tiles of each node at a level joined into one.

        ``level_of`` chooses the level. A run that is resumed keeps the tiles that it had, whatever
        works on it now.
        """
        tree, saved = self.quadtree, self.checkpoints.load("field", self.tree.root)
        level: int = level_of(self) if saved is None else saved
        if saved is None:
            self.checkpoints.save("field", tree.root, level)
        if level == 0:
            return self
        return replace(
            self,
            tree=replace(tree, tile=tree.tile << level),
            shard_level=max(self.shard_level - level, 0),
            shard=tree.tile << self.shard_level if level > self.shard_level else 0,
        )

    def shards(self, node: Node) -> list[Window]:
        """Return the windows of the shards in a node of ``shard_level``."""
        whole = self.tree.window(node)
        if not self.shard:
            return [whole]
        return [
            Window(y, x, self.shard, self.shard).clip(self.quadtree.shape)
            for y in range(whole.y, whole.y + whole.height, self.shard)
            for x in range(whole.x, whole.x + whole.width, self.shard)
        ]

    def stop_if_cancelled(self) -> None:
        """Raise `Cancelled` if the run was cancelled."""
        if self.cancelled is not None and self.cancelled.is_set():
            raise Cancelled("the run was cancelled")


@contextmanager
def located(window: Window) -> Iterator[None]:
    """Add a note to an error that leaves the context: which cells, and on which worker."""
    try:
        yield
    except Cancelled:
        raise
    except Exception as error:
        # The innermost context has the smallest window, and adds the only note.
        if not hasattr(error, "__notes__"):
            rows = f"rows {window.y} to {window.y + window.height - 1}"
            columns = f"columns {window.x} to {window.x + window.width - 1}"
            error.add_note(f"in {rows} and {columns}{_worker()}")
        raise


def _worker() -> str:
    """Return words for the worker whose task runs in this thread, or nothing."""
    if "distributed" in sys.modules:  # slow to import, and there in every worker
        from distributed import get_worker

        with suppress(ValueError):
            return f", on the worker {get_worker().address}"
    return ""


def written_raster(sink: Sink, variable: Variable) -> Raster:
    """Open an output raster of one stage of a run for the next stage to read."""
    if isinstance(sink, ArraySink):
        return ArrayRaster(sink.arrays[variable.name], variable.dtype, variable.fill_value)
    assert isinstance(sink, StoreSink)
    return StoreRaster(sink.storage, variable.name, unfinished=True)
