"""Adapt the bucket width of delta-stepping during a run.

A wide bucket settles cells that will be settled again; a narrow one visits tiles for little. Both
are counted in cells, a visit or the transfer of a task as the cells that a kernel could have
settled meanwhile, and the width is moved towards where they cost the same: by a factor that grows
with their ratio, so that a first guess that is far off does not last. Workers with nothing to do
widen it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from orograph.tiles.format.codec import stored

CELLS_A_TASK = 300_000  # client, scheduler and worker each spend some milliseconds on a task
STEP = 1.5
LARGEST_STEP = 8.0


class Work(Protocol):
    """The work of a visit; see `orograph.engines.frontier.protocol.Visit`."""

    @property
    def times(self) -> int: ...
    @property
    def settled(self) -> int: ...
    @property
    def outward(self) -> Sequence[float]: ...
    @property
    def links(self) -> Any: ...


@stored("delta", frozen=False)
class BucketWidth:
    """The current bucket width, and the work counted since it was last changed."""

    _area: int
    """Number of cells of a tile; the bucket width is re-evaluated after so much work."""
    _visit: int
    """Fixed cost of a visit, as the number of cells that could be settled in the same time."""
    bucket_width: float = 0.0
    starved: int = 0
    tasks: int = 0
    _visits: int = 0
    _settled: int = 0
    _first_time: int = 0

    def above(self, front: float) -> float:
        """Return the upper bound of the bucket whose least key is ``front``."""
        # the sum with a front below any number would be NaN
        return front + self.bucket_width if 0 < self.bucket_width < math.inf else math.inf

    def count(self, key: float, visit: Work, first_time: int) -> None:
        """Count the work of a visit; the first visits give the first estimate of the width."""
        self._visits += visit.times
        self._settled += visit.settled
        self._first_time += max(first_time, 0)
        if self.bucket_width == 0.0:
            # towards the farthest neighbour: the source may lie beside the others
            keys = [value for value in visit.outward if math.isfinite(value)]
            if not keys and visit.links is not None:
                keys = visit.links.keys[np.isfinite(visit.links.keys)].tolist()
            ways = [value - key for value in keys]
            self.bucket_width = max(ways, default=0.0) / 2

    def adapt(self) -> None:
        """Widen or narrow the buckets, once enough work has been counted."""
        visits = self._visits * self._visit + self.tasks * CELLS_A_TASK
        if not self.bucket_width or visits + self._settled < self._area:
            return
        again = self._settled - self._first_time
        # Three cases: too wide, as cells settled again cost more than visits and tasks; too
        # narrow, as these cost more than twice as much as those; or balanced, but with workers
        # that had nothing to do.
        if again > visits and again > self._first_time // 4:
            self.bucket_width /= _step(again, visits)
        elif visits > 2 * again:
            self.bucket_width *= _step(visits, 2 * again)
        elif self.starved > self._visits // 2:
            self.bucket_width *= STEP
        self.starved = self.tasks = self._visits = self._settled = self._first_time = 0


def _step(more: int, less: int) -> float:
    """Return the factor, 1.5 to 8, by which to change the width, from two costs to be balanced."""
    return min(max(math.sqrt(more / max(less, 1)), STEP), LARGEST_STEP)
