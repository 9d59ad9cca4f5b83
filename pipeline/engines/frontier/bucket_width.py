"""How far ahead of the front tiles are worked on: delta of delta-stepping, chosen as a run goes.

A wide window settles cells that will be settled again; a narrow one visits tiles for little. Both
are counted in cells, a visit or a task's way as what a kernel could have settled meanwhile, and
delta is moved towards where they cost the same. Workers with nothing to do widen it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orograph.tiles.store.codec import stored

if TYPE_CHECKING:
    from orograph.engines.frontier.protocol import Visit

CELLS_A_TASK = 100_000  # a task of a cluster is some milliseconds on its way
STEP = 1.5


@stored("delta")
@dataclass
class BucketWidth:
    """The width of the window, and what has been seen since it was last changed."""

    _area: int
    """Cells of a tile: after work worth so many cells delta is thought over."""
    _visit: int
    """How many cells could be settled in the time that a visit takes beside those it settles."""
    bucket_width: float = 0.0
    starved: int = 0
    tasks: int = 0
    _visits: int = 0
    _settled: int = 0
    _first_time: int = 0

    def above(self, front: float) -> float:
        """Return the upper bound of the bucket whose least key is ``front``."""
        return front + self.bucket_width if self.bucket_width else math.inf

    def count(self, key: float, visit: Visit, first_time: int) -> None:
        """Take a visit into account; the first ones give the first guess of delta."""
        self._visits += visit.times
        self._settled += visit.settled
        self._first_time += max(first_time, 0)
        if self.bucket_width == 0.0:
            ways = sorted(value - key for value in visit.outward if math.isfinite(value))
            if ways:
                self.bucket_width = ways[len(ways) // 2] / 2

    def adapt(self) -> None:
        """Widen or narrow the window, if enough has been seen."""
        visits = self._visits * self._visit + self.tasks * CELLS_A_TASK
        if not self.bucket_width or visits + self._settled < self._area:
            return
        again = self._settled - self._first_time
        if again > visits and again > self._first_time // 4:
            self.bucket_width /= STEP
        elif self.starved > self._visits // 2 or visits > 2 * again:
            self.bucket_width *= STEP
        self.starved = self.tasks = self._visits = self._settled = self._first_time = 0
