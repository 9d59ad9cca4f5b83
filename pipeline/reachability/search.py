"""Bidirectional breadth-first search over tiles, from both ends until they meet.

A tile holds two fields of hops, one from each end. The driver lets one end at a time go on, the
one that has settled fewer cells, to a level up to which all tiles are relaxed; so of each field all
values up to its level are final. Every visit returns the least sum of the two fields in its tile,
the length of a real way.

*Why it is exact.* Let all values up to a from one end and up to b from the other be final, and let
the shortest way have D <= a + b + 1 hops. If D <= a + b, one of its cells holds both its true
values, so the least sum known is D. So a least sum of at most a + b + 1 is D: were D less, it would
be at most a + b, and known. An end whose queue is empty has reached all that it can: with no sum
known, there is no way.

*Which way.* Through the northernmost cell, and of several the westernmost, of those D // 2 hops
from the first end and D - D // 2 from the other; from it back to both ends by `descend` of
`orograph.kernels.shortest_path_tree.backtrack`. All of this follows from final values, so the way
does not depend on tiles or on the order of work.

Source: I. Pohl, "Bi-directional search", Machine Intelligence 6 (1971), 127-140; here by tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np

from orograph.distance.hops import PER_HOP
from orograph.engines.frontier.links import LinkBoard
from orograph.engines.frontier.protocol import Border
from orograph.reachability.tile import (
    BidirectionalTasks,
    BidirectionalVisit,
    Trace,
    VisitRequest,
    visit_tiles,
)
from orograph.run.cluster.executors import Executor, Ticket
from orograph.run.cluster.worker_loads import Rooms, Worker
from orograph.tiles.arrays import Array
from orograph.tiles.grid.neighbours import NEIGHBOURS, OPPOSITE

if TYPE_CHECKING:
    from orograph.run.shared_data import Handle

Tile = tuple[int, int]


@dataclass(frozen=True)
class SearchResult:
    """Result of a search for one pair: hops, path and number of tiles visited."""

    hops: int
    """Least number of steps, -1 without a path; of some path if the least was not requested."""
    cells: Array | None
    """Rows and columns of the path, from first to second end; None if missing or not requested."""
    tiles: int
    """Number of tiles that were visited."""


class Search:
    """Driver of a bidirectional search: keys and borders of tiles, and the levels reached."""

    def __init__(
        self, run: BidirectionalTasks, workers: Executor, handle: Handle, cancelled: Event
    ) -> None:
        self._run, self._workers, self._handle = run, workers, handle
        self._cancelled = cancelled
        self._tile, self._beside = run.context.quadtree.tile, run.context.quadtree.beside
        # tiles that have not converged: for each end the hops at which something can improve them
        self._keys: dict[Tile, list[float]] = {}
        self._borders: dict[Tile, tuple[Border, Border]] = {}
        self._links = [
            None if field.links is None else LinkBoard(field.links, field.link_blank, self._tile)
            for field in run.problem.hops
        ]
        self._reached: dict[Tile, list[int]] = {}
        self._midway: dict[Tile, tuple[float, int]] = {}
        self._settled = [0, 0]
        self._levels: list[float] = [-1.0, -1.0]
        self._least = math.inf
        self._stride = float(max(self._tile // 4, 1))
        # a round that settles fewer cells a visit than this is too short to be worth its visits
        self._cells_a_visit = run.problem.cells_a_visit

    def find(self, hops: bool, path: bool) -> SearchResult:
        """Search until the shortest path is proved, or that there is none; return the result.

        ``hops``: how far it is, not only whether there is a way. ``path``: by which way.
        """
        for end, field in enumerate(self._run.problem.hops):
            for tile, key in (field.starts(self._tile) or {}).items():
                self._lower(tile, end, key)
        # A path of at most one hop more than both levels together would have been seen, so one that
        # short is proved to be a shortest one. Without ``hops`` any path will do.
        while self._least > sum(self._levels) + 1 and (hops or math.isinf(self._least)):
            # The end that has settled fewer cells goes on, so a small component ends the search
            # early.
            end = int(self._settled[1] < self._settled[0])
            self._advance(end, self._levels[end] + self._stride)
            for other in (0, 1):
                # Nothing is left to improve: this end has found all cells that it can reach.
                if all(math.isinf(keys[other]) for keys in self._keys.values()):
                    self._levels[other] = math.inf
            if math.inf in self._levels and math.isinf(self._least):
                return SearchResult(-1, None, len(self._borders))
        length = int(self._least)
        cells = self._trace(length) if path else None
        return SearchResult(length, cells, len(self._borders))

    def _advance(self, end: int, level: float, *, beyond_proof: bool = False) -> None:
        """Extend the search from one end up to ``level``, or as far as a proof needs."""
        start = self._levels[end]
        visits = settled = again = 0
        away: dict[Any, list[Tile]] = {}
        while True:
            if not beyond_proof:
                # With the other end's level this one proves the path that is known; more would be
                # wasted.
                level = min(level, max(start, self._least - 1 - self._levels[1 - end]))
            levels = (level, self._levels[1]) if end == 0 else (self._levels[0], level)
            busy = {tile for tiles in away.values() for tile in tiles}
            for worker in self._workers.idle():
                # A tile is visited by one task at a time.
                ready = [t for t, k in self._keys.items() if k[end] <= level and t not in busy]
                part, parts = self._workers.part(worker)
                # The worker that keeps the tile's state, as long as workers neither come nor go.
                mine = [t for t in sorted(ready) if _owner(t) % parts == part]
                mine = mine[: self._workers.share(worker, len(mine))]
                if mine:
                    requests = [self._request(tile, levels) for tile in mine]
                    ticket = self._workers.submit(
                        worker, "visit", visit_tiles, self._handle, requests
                    )
                    away[ticket] = mine
                    busy.update(mine)
                    for tile in mine:
                        # What arrives during the visit makes a new key, and so another visit.
                        del self._keys[tile]
            if not away and not any(keys[end] <= level for keys in self._keys.values()):
                break
            for ticket, found in self._workers.next_done(self._cancelled):
                for tile, met in zip(away.pop(ticket), found, strict=True):
                    new, more = self._take_in(tile, met)
                    visits, settled, again = visits + 1, settled + more, again + more - new
        self._levels[end] = level
        self._adapt(visits, settled, again)

    def _adapt(self, visits: int, settled: int, again: int) -> None:
        """Adapt how far each round goes: farther if visits do little, less if work is repeated."""
        if again > max(visits * self._cells_a_visit, settled // 4):
            self._stride = max(self._stride / 2, 1.0)
        elif visits * self._cells_a_visit > 2 * again:
            # what is done beyond the meeting is lost: in proportion to what had to be done
            known = sum(level for level in self._levels if math.isfinite(level))
            self._stride = max(min(2 * self._stride, known // 4), self._tile // 4, 1.0)

    def _take_in(self, tile: Tile, met: BidirectionalVisit) -> tuple[int, int]:
        """Update keys and borders from a visit; return cells newly reached, and cells settled."""
        borders = self._borders.setdefault(tile, ([None] * 8, [None] * 8))
        reached = self._reached.setdefault(tile, [0, 0])
        new = settled = 0
        for end, visit in enumerate(met.visits):
            # Fields count `PER_HOP` for a hop, keys are hops.
            self._lower(tile, end, visit.pending / PER_HOP)
            new += max(visit.reached - reached[end], 0)
            settled += visit.settled
            self._settled[end] += visit.settled
            reached[end] = visit.reached
            for k, step in enumerate(NEIGHBOURS):
                if visit.border[k] is not None:
                    borders[end][k] = visit.border[k]
                self._lower(self._beside(tile, step), end, visit.outward[k] / PER_HOP)
            board = self._links[end]
            if board is not None and visit.links is not None:
                for other, key in board.take(tile, visit.links).items():
                    self._lower(other, end, key / PER_HOP)
        self._midway[tile] = met.least, met.midway
        self._least = min(self._least, met.least)
        return new, settled

    def _lower(self, tile: Tile, end: int, hops: float) -> None:
        if math.isfinite(hops):
            keys = self._keys.setdefault(tile, [math.inf, math.inf])
            keys[end] = min(keys[end], hops)

    def _request(
        self, tile: Tile, levels: Sequence[float], trace: Trace | None = None
    ) -> VisitRequest:
        nothing: tuple[Border, Border] = ([None] * 8, [None] * 8)
        around = [self._borders.get(self._beside(tile, step), nothing) for step in NEIGHBOURS]
        first, second = (
            [borders[end][OPPOSITE[k]] for k, borders in enumerate(around)] for end in (0, 1)
        )
        sent = self._borders.get(tile, nothing)
        one, other = (None if board is None else board.border(tile) for board in self._links)
        return VisitRequest(
            tile, (first, second), sent, (levels[0], levels[1]), (one, other), trace
        )

    def _trace(self, length: int) -> Array:
        """Return the cells of the path, from the first end to the second."""
        # Both fields must be final up to the middle of the path, at which the walks back begin; a
        # search that was stopped early may not have come so far.
        lengths = (length // 2, length - length // 2)
        for end, part in enumerate(lengths):
            if self._levels[end] < part:
                self._advance(end, float(part), beyond_proof=True)
        # The first cell midway in the whole grid, whatever the tiling and the order of visits.
        index = min(at for least, at in self._midway.values() if least == length and at >= 0)
        shape = self._run.context.quadtree.shape
        cell = int(self._run.problem.orientation.turn_cells(index, shape))
        middle = divmod(cell, shape[1])
        first, second = (self._walk_back(end, middle) for end in (0, 1))
        # Both walks begin with the middle cell.
        return np.concatenate([first[::-1], second[1:]])

    def _walk_back(self, end: int, cell: tuple[int, int]) -> Array:
        parts: list[Array] = []
        ahead: tuple[int, int] | None = cell
        while ahead is not None:
            tile = ahead[0] // self._tile, ahead[1] // self._tile
            request = self._request(tile, self._levels, Trace(end, *ahead))
            (met,) = self._at_owner(tile, visit_tiles, self._handle, [request])
            # A visit to trace relaxes the tile as well: what it changed must not be lost.
            self._take_in(tile, met)
            parts.append(met.cells)
            ahead = met.ahead
        return np.concatenate(parts)

    def _at_owner(self, tile: Tile, function: Callable[..., Any], *arguments: object) -> Any:
        """Execute one task on the worker that holds a tile's state, and return its result."""
        ticket = None
        while True:
            for worker in self._workers.idle() if ticket is None else ():
                part, parts = self._workers.part(worker)
                if _owner(tile) % parts == part:
                    ticket = self._workers.submit(worker, "trace", function, *arguments)
                    break
            for done, result in self._workers.next_done(self._cancelled):
                if done == ticket:
                    return result


def _owner(tile: Tile) -> int:
    """Return a number by which tiles are assigned to workers, spreading each front over all."""
    return tile[0] * 7919 + tile[1] * 104729


class Here:
    """Executor that executes each task immediately, in the calling thread."""

    shared = True
    useful = 1

    def __init__(self) -> None:
        self.rooms = Rooms({0: 1})
        self._done: list[tuple[Ticket, Any]] = []
        self._count = 0

    def part(self, worker: Worker) -> tuple[int, int]:
        """Return (0, 1): the one worker owns everything."""
        return 0, 1

    def share(self, worker: Worker, count: int) -> int:
        """Return ``count``: the one worker takes all of the work."""
        return count

    def threads(self, tasks: int) -> int:
        """Return 1: only the calling thread works."""
        return 1

    def idle(self) -> Iterator[Worker]:
        """Yield the one worker, unless results wait to be fetched."""
        return iter([] if self._done else [0])

    def submit(
        self, worker: Worker, stage: str, function: Callable[..., Any], *arguments: object
    ) -> Ticket:
        """Execute a task and keep its result for `next_done`."""
        self._count += 1
        self._done.append((self._count, function(*arguments)))
        return self._count

    def next_done(self, cancelled: Event) -> list[tuple[Ticket, Any]]:
        """Return the tasks that have finished since the last call, with their results."""
        done, self._done = self._done, []
        return done

    def everywhere(self, function: Callable[..., Any], *arguments: object) -> None:
        """Call a function in this process."""
        function(*arguments)

    def tell(self, topic: str, message: Callable[[], Any]) -> None:
        """Do nothing: there is no scheduler."""
