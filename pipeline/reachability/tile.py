"""Hops from two ends at once, tile by tile: what a worker does for `orograph.reachability.search`.

A tile holds two fields of hops, one from each end, each of them that of
`orograph.distance.hop_distance`. A visit works them out as far as it is told, and tells the least
sum of the two, the length of a real way, with the first cell midway on it. A visit may also walk
back from a cell to one of the ends, as far as the tile goes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.distance.hop_distance import PER_HOP, Hops
from orograph.distance.problem import State, inner_of
from orograph.engines.frontier.bucket_width import CELLS_A_VISIT
from orograph.engines.frontier.driver import Border, Frontier, Visit
from orograph.execution.jobs import load
from orograph.kernels.relax.descend import descend
from orograph.tiles.errors import RunError
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window

Array = npt.NDArray[Any]
Tile = tuple[int, int]


@dataclass(frozen=True)
class Trace:
    """A walk back to one end, from a cell of the grid."""

    end: int
    row: int
    column: int


@dataclass(frozen=True)
class VisitRequest:
    """A tile to be visited, and for each end what its neighbours know and what they were told."""

    tile: Tile
    halo: tuple[Border, Border]
    sent: tuple[Border, Border]
    levels: tuple[float, float]
    """Hops up to which each field is worked out."""
    trace: Trace | None = None


@dataclass(frozen=True)
class BidirectionalVisit:
    """What a visit has found."""

    visits: tuple[Visit, Visit]
    least: float
    """Hops of the shortest way through the tile that is known; infinite if there is none."""
    midway: int
    """Row-major index in the grid of the tile's first cell midway on such a way, or -1."""
    cells: Array | None = None
    """The cells that a trace has passed, rows and columns."""
    ahead: tuple[int, int] | None = None
    """Where the trace goes on, in another tile; None if it has ended."""


@dataclass(frozen=True)
class EndPair:
    """Hops from two ends at once, as a problem of the frontier engine that writes nothing."""

    hops: tuple[Hops, Hops]

    name = "st-connected"
    backend = "numba"
    outputs = ()
    reach = 1
    cells_a_visit = CELLS_A_VISIT

    def starts(self, tile: int) -> dict[Tile, float]:
        """The tiles of the two ends."""
        return {tile: key for end in self.hops for tile, key in (end.starts(tile) or {}).items()}

    def check(self, cells: Sequence[Array], frame: Window) -> None:
        """Whatever a mask holds is passable or not."""

    def open(self, place: Place, cells: Sequence[Array], frame: Window) -> tuple[State, State]:
        """A tile that nothing has reached but the ends in it."""
        first, second = (problem.open(place, cells, frame) for problem in self.hops)
        second.tile.friction = first.tile.friction
        return first, second

    def visit(self, state: tuple[State, State], halo: Any, sent: Any, bound: Any) -> Any:
        """Work out both fields as far as the `Call` in ``bound`` says; what the tile knows then."""
        call: VisitRequest = bound
        visits = tuple(
            problem.visit(field, halo[end], sent[end], PER_HOP * call.levels[end])
            for end, (problem, field) in enumerate(zip(self.hops, state, strict=True))
        )
        first, second = visits
        if call.trace is not None:
            return BidirectionalVisit((first, second), math.inf, -1, *self._walk(state, call.trace))
        least, midway = math.inf, -1
        if first.reached and second.reached:
            least, midway = self._meet(state)
        return BidirectionalVisit((first, second), least, midway)

    def _meet(self, state: tuple[State, State]) -> tuple[float, int]:
        """The least sum of the two fields and the first cell midway that has it."""
        first, second = (inner_of(field.tile.dist, self.reach) for field in state)
        unreached = state[0].tile.unreached  # their sum stays below 2**63
        total = first + second
        least = int(total.min())
        if least >= unreached:
            return math.inf, -1
        hops = least // PER_HOP
        midway = np.flatnonzero((total == least) & (first == PER_HOP * (hops // 2)))
        if not midway.size:
            return hops, -1
        place = state[0].place
        row, column = divmod(int(midway[0]), place.window.width)
        return hops, (place.window.y + row) * place.grid[1] + place.window.x + column

    def _walk(
        self, state: tuple[State, State], trace: Trace
    ) -> tuple[Array, tuple[int, int] | None]:
        field = state[trace.end]
        window, dist = field.place.window, field.tile.dist
        corner = np.array([window.y, window.x])
        row, column = trace.row - window.y, trace.column - window.x
        cells, last = descend(dist, PER_HOP, self.hops[0].connectivity, row, column)
        y, x = cells[-1].tolist()
        if last != (y, x):
            return cells + corner, (last[0] + window.y, last[1] + window.x)
        if dist[y + 1, x + 1]:
            raise RunError(
                f"{self.name}: no cell around row {y + window.y}, column {x + window.x} is a hop "
                "nearer; this is a fault of orograph, please report it"
            )
        return cells + corner, None

    def pack(self, state: tuple[State, State]) -> Any:
        """Both fields."""
        return [problem.pack(field) for problem, field in zip(self.hops, state, strict=True)]

    def unpack(self, state: tuple[State, State], packed: Any) -> None:
        """Put both fields back."""
        for problem, field, kept in zip(self.hops, state, packed, strict=True):
            problem.unpack(field, kept)

    def size(self, state: tuple[State, State]) -> int:
        """Bytes of both fields, and of the mask that they share."""
        first, second = (self.hops[end].size(state[end]) for end in (0, 1))
        return first + second - int(state[0].tile.friction.nbytes)

    def memory(self) -> int | None:
        """As much as is usual."""
        return None

    def finish(self, state: Any) -> tuple[dict[str, Array], dict[str, float]]:
        """Nothing is written."""
        return {}, {}

    def attributes(self, counts: dict[str, float]) -> dict[str, Any]:
        """There is no raster that could have any."""
        return {}


@dataclass(frozen=True)
class Meeting(Frontier):
    """The search between two ends: the tiles and states of a frontier, under its own driver."""

    def visit_requests(self, calls: Sequence[VisitRequest]) -> list[BidirectionalVisit]:
        """Visit tiles one after the other."""
        found = []
        for call in calls:
            both: Any = call.halo, call.sent, call
            visit: Any = self._visit(call.tile, *both)
            found.append(visit)
        return found


def visit_requests(handle: Any, calls: Sequence[VisitRequest]) -> Any:
    """The task that visits tiles."""
    return load(handle).visit_requests(calls)
