"""Turns of the runs that share a cluster, so that equal runs end together and in their order."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dask.base import get_annotations

from orograph.run.cluster.compute import PRIORITY_OF_A_TASK

if TYPE_CHECKING:
    from orograph.run.cluster.workers import Turns

CELLS_A_TASK = 2**20
"""Number of cells that count as one task, beside runs that submit all their tasks at once."""
LEAD = 0.05
"""Lead of a run over the next, as a fraction of its work, so that it ends first."""
MOST_LEADS = 5


@dataclass
class Turn:
    """Progress of a run, from which the priority of its next task follows.

    As in start-time fair queueing, the run that has done least comes next. One that begins is put
    where the last of the others is: else they would all wait until it had done as much as they.

    References
    ----------
    P. Goyal, H. M. Vin, H. Cheng, "Start-time fair queueing: a scheduling algorithm for integrated
    services packet switching networks", SIGCOMM 1996, doi:10.1145/248156.248171.
    """

    token: str
    """Token of the run."""
    begun: float = 0.0
    """Time at which the run was submitted, in seconds since 1970."""
    cells: int = 0
    """Number of cells that the run has to reach and to write."""
    done: int = field(default=0, init=False)
    """Number of cells that the run has reached and written so far."""
    ended: bool = field(default=False, init=False)
    start: float | None = field(default=None, init=False)
    """Progress of the last of the other runs when this one began; None until it is known."""
    others: int = field(default=0, init=False)
    """Number of other runs on the cluster."""
    earlier: int = field(default=0, init=False)
    """Number of other runs that were submitted earlier."""

    def entry(self) -> tuple[str, float, float | None]:
        """Return the token, the time of submission and the progress, for the scheduler.

        The progress is infinity at the end, and None before it is known where the others are.
        """
        if self.ended:
            return self.token, self.begun, math.inf
        return self.token, self.begun, None if self.start is None else self._now()

    def look(self, turns: Turns) -> None:
        """Take notice of where all runs are."""
        # The scheduler has put the run beside the others, once, when it first heard of it.
        if self.start is None and not self.ended:
            _, self.start = turns[self.token]
        others = [begun for token, (begun, _) in turns.items() if token != self.token]
        self.others = len(others)
        self.earlier = sum(begun < self.begun for begun in others)

    def priority(self) -> float:
        """Return the priority of the next task, a little below that of Dask's annotation."""
        wanted = get_annotations().get("priority", 0)
        behind = LEAD * min(self.earlier, MOST_LEADS) * self.cells / CELLS_A_TASK
        return float(wanted) - (1 + self._now() + behind) * PRIORITY_OF_A_TASK

    def _now(self) -> float:
        return (self.start or 0.0) + self.done / CELLS_A_TASK
