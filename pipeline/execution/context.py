"""What all tasks of one run share, whatever they compute."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from threading import Event

from dask.base import tokenize

from orograph.execution.checkpoints import CheckpointStore
from orograph.tiles.errors import Cancelled
from orograph.tiles.grid.quadtree import Quadtree
from orograph.tiles.store.sink import Sink


@dataclass(frozen=True)
class RunContext:
    """Where a run's work is cut, kept and written."""

    tree: Quadtree
    """How the work is divided."""
    shard_level: int
    """Level of the tree whose nodes are shards: one task reads one, and one task writes one."""
    checkpoints: CheckpointStore
    """What tasks keep for later tasks, and for a run that is resumed."""
    sink: Sink
    """Where results are written."""
    token: str
    """32 hexadecimal digits, new in every run: part of the names of all its tasks."""
    cancelled: Event | None = field(default=None, compare=False)
    """Set when the run is to stop; None on the workers of a cluster."""

    def part(self, name: str) -> RunContext:
        """Return the context of a part of the run: checkpoints and a token of its own."""
        return replace(
            self, checkpoints=self.checkpoints.part(name), token=tokenize(self.token, name)
        )

    def stop_if_cancelled(self) -> None:
        """Raise `Cancelled` if the run is to stop."""
        if self.cancelled is not None and self.cancelled.is_set():
            raise Cancelled("the run was cancelled")
