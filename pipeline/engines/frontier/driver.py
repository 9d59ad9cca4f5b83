"""Delta-stepping over tiles: the engine for problems whose order of work depends on the data.

Every tile has a key, the least value by which something can still improve it. The driver keeps
the keys; tiles whose key lies within the bucket width of the least are visited, several a task,
and a visit stops at that bound, leaving the rest of its own queue pending. A visit returns the
tile's border where it has changed and the least value by which that may improve each neighbour.
No keys left and no task under way *is* the proof that all tiles have converged.

The state of a tile stays with the worker that visits it, and is no more than a cache
(`orograph.engines.tile_states`). Only borders travel, and the driver keeps the last one of every
tile.

References
----------
U. Meyer, P. Sanders, "Delta-stepping: a parallelizable shortest path algorithm", J. Algorithms
49 (2003), doi:10.1016/S0196-6774(03)00076-2.

One idea, long: one class, whose methods share the keys, borders and tasks under way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from orograph.engines.executors import Executor, executor
from orograph.engines.frontier.borders import Borders
from orograph.engines.frontier.bucket_width import BucketWidth
from orograph.engines.frontier.driver_state import DriverState
from orograph.engines.frontier.journal import Journal
from orograph.engines.frontier.links import LinkBoard
from orograph.engines.frontier.protocol import Request, Table, Tabulated, Visit
from orograph.engines.frontier.queues import Shares
from orograph.engines.frontier.tile_keys import TileKeys, owner_of_shard
from orograph.engines.frontier.worker import (
    TILES_A_TASK,
    FrontierTasks,
    finish_shards,
    visit_tiles,
    written_counts,
)
from orograph.engines.tile_states import Tile, forget
from orograph.execution.run import Progress
from orograph.tiles.errors import InputError, RunError
from orograph.tiles.grid.neighbours import NEIGHBOURS
from orograph.tiles.grid.quadtree import Node, morton_decode, morton_encode

if TYPE_CHECKING:
    from distributed import Client

Array = npt.NDArray[Any]

MOST_UNWRITTEN = 8
"""Final shards of a worker beyond which it writes several in a task."""


@dataclass(frozen=True)
class FrontierProgress(Progress):
    """Progress of a frontier run: converged tiles, tiles reached, and the front."""

    key: float = math.nan
    """Where the front is: all values below it are final."""
    active: int = 0
    """Tiles that have not converged."""

    def _amount(self) -> str:
        return f"{self.done} of {self.total} tiles, front at {self.key:g}, {self.active} active"


@dataclass(frozen=True)
class Frontier(FrontierTasks):
    """One run of a problem: the engine."""

    def run(self, client: Client | None, handle: Any, cancelled: Event) -> dict[str, Any]:
        """Visit tiles until all have converged, then write; return the attributes of the result."""
        driver = self._driver
        with executor(client, self.problem.name, self.context.token) as workers:
            try:
                driver.settle(workers, handle, cancelled)
                return driver.write(workers, handle, cancelled)
            finally:
                workers.everywhere(forget, self.context.token)

    def table(self) -> dict[str, tuple[tuple[str, ...], list[Array]]]:
        """Return the columns of a `Tabulated` problem."""
        problem = self.problem
        if not isinstance(problem, Tabulated):
            return {}
        return {
            name: (dims, [problem.join_rows(self._rows(), name)])
            for name, dims in problem.columns.items()
        }

    def _rows(self) -> Iterator[Table]:
        """Yield the rows of all tiles."""
        for node in self.context.tree.nodes(self.context.shard_level):
            tables = self.context.checkpoints.load("rows", node)
            if tables is None:
                raise RunError(
                    f"{self.problem.name}: the rows of {node} have been lost since they were "
                    "saved; resume=True makes them again"
                )
            yield from tables

    @property
    def bucket_width(self) -> BucketWidth:
        """The width of the buckets, before anything is known."""
        return BucketWidth(self.context.quadtree.tile**2, self.problem.cells_a_visit)

    def progress(self) -> Progress:
        """Return how many tiles have converged, and where the front is."""
        return self._driver.progress()

    def statistics(self) -> dict[str, int]:
        """Return how much work it was: visits, and cells lowered, each counted once a visit."""
        return {
            "tile_visits": self._driver.state.visits,
            "cells_settled": self._driver.state.settled,
        }

    @cached_property
    def _driver(self) -> _Driver:
        return _Driver(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_driver"}


@dataclass(frozen=True)
class _Task:
    """A task under way."""

    worker: Any
    part: int
    """Of the tiles; see `Executor.part`."""
    tiles: list[Tile]
    """Those that it may visit."""
    shards: list[Tile]
    """Those that it writes."""


class _Driver:
    """The keys and borders of all tiles, and what is under way."""

    def __init__(self, run: Frontier) -> None:
        self.problem, self.context, self.tree = run.problem, run.context, run.context.quadtree
        rows, columns = (-(-n // self.tree.tile) for n in self.tree.shape)
        self.tiles = TileKeys((rows, columns), run.context.shard_level)
        self.keys, self.away = self.tiles.keys, self.tiles.away
        self.reached = np.zeros((rows, columns), np.int64)
        self.borders = Borders(self.tiles)
        links = self.problem.links
        self.links = (
            None if links is None else LinkBoard(links, self.problem.link_blank, self.tree.tile)
        )
        self.state = DriverState(
            self.tiles, self.borders, self.links, run.bucket_width, self.reached
        )
        self.sums: dict[str, float] = {}
        self._journal: Journal | None = None
        self._pending: dict[Any, _Task] = {}
        self._load: Counter[Any] = Counter()
        self._writing: Counter[int] = Counter()

    def settle(self, workers: Executor, handle: Any, cancelled: Event) -> None:
        """Empty the queue."""
        if self.context.checkpoints.lasting:
            self._journal = Journal(self.context.checkpoints, self.tree.root)
        try:
            self._start(workers, handle, cancelled)
            while self._pending or self.tiles.front() < math.inf:
                self._give_work(workers, handle)
                if not self._pending and workers.idle():
                    raise RunError(f"{self.problem.name}: there is work, but none was taken up")
                for ticket, found in workers.next_done(cancelled):
                    self._take_result(workers, ticket, found)
                self.state.window.adapt()
                if self._journal is not None and self._journal.due():
                    self._save()
            self._save()
        finally:
            if self._journal is not None:
                self._journal.close()

    def _start(self, workers: Executor, handle: Any, cancelled: Event) -> None:
        """Find out which tiles are to be visited first."""
        if not self._resume(workers, handle, cancelled):
            starts = self.problem.starts(self.tree.tile)
            if starts is None:
                self._look_everywhere(workers, handle, cancelled)
            for tile, key in (starts or {}).items():
                self.tiles.lower(tile, key)
            if starts is None and self.tiles.front() == math.inf:
                raise InputError(
                    f"sources: {self.problem.name} starts nowhere: no cell of the raster of "
                    "sources is a source on a passable cell; check its values, nodata and "
                    "target_values"
                )
        if self.keys.size == 1:
            self.state.window.bucket_width = math.inf

    def _take_result(self, workers: Executor, ticket: Any, found: Any) -> None:
        """Take note of what a task has found."""
        task = self._pending.pop(ticket)
        self._load[task.worker] -= 1
        self.tiles.awake.add(self._part_of(workers, task.worker))
        for tile in task.tiles:
            self._take_back(tile, found.get(tile))
        visits = [found[tile] for tile in task.tiles if tile in found]
        for attempt in {visit.attempt for visit in visits if visit is not None}:
            self.borders.came_back(task.tiles, attempt)
        for tile in task.tiles:
            if tile in found and found[tile] is None:
                self.borders.send_all(tile)
        if task.shards:
            self._writing[task.part] -= 1
            self._add(found)
            self.state.finish(task.shards)

    def _give_work(self, workers: Executor, handle: Any) -> None:
        """Give tasks to the workers that can take one, where there may be one for them."""
        front = self.tiles.front()
        bound = self.state.window.above(front)
        self.tiles.wake(bound)
        for worker in workers.idle():
            part = self._part_of(workers, worker)
            if part in self.tiles.awake or not self._pending or not self.state.window.bucket_width:
                if not self._give_task(workers, worker, part, bound, handle) and self._pending:
                    self.tiles.sleep(part)
            elif not self._load[worker]:
                self.state.window.starved += front < math.inf

    def _give_task(
        self, workers: Executor, worker: Any, part: int, bound: float, handle: Any
    ) -> bool:
        """Give a task to a worker; return whether there is one."""
        tiles: list[Tile] = []
        alone = not self._load[worker]
        shards = self._final_shards(workers, part, alone)
        if not shards:
            tiles, waiting = self._choose(workers, worker, part, bound)
        if tiles:
            tiles += self._beside(tiles, workers)
            requests = self._take_out(tiles, None if workers.shared else worker)
            threads = workers.threads(len(self._pending) + 1 + waiting)
            ticket = workers.submit(worker, "visit", visit_tiles, handle, requests, bound, threads)
            self.state.window.tasks += not workers.shared
        elif not shards and (not self._pending or not alone):
            return False
        else:
            self.state.window.starved += not shards and self.tiles.front() < math.inf
            if not shards and (shard := self.tiles.final[part].pop()) is not None:
                shards = [shard]
            if shards:
                ticket = self._write(workers, worker, handle, shards)
                self._writing[part] += 1
            elif (tile := self.tiles.unread[part].pop()) is not None:
                # its first visit need not wait for its cells when the front comes there
                tiles = [tile]
                taken = self._take_out(tiles, None if workers.shared else worker)
                requests = [replace(request, key=-math.inf) for request in taken]
                ticket = workers.submit(worker, "look", visit_tiles, handle, requests, -1.0)
            else:
                return False
        self._pending[ticket] = _Task(worker, part, tiles, shards)
        self._load[worker] += 1
        return True

    def _final_shards(self, workers: Executor, part: int, alone: bool) -> list[Tile]:
        """Return the shards that a worker is to write before it visits more.

        It does so where the front need not wait for it, since what is not written is lost with the
        processes. Of threads one does, and half of the others where more than one shard waits.
        """
        left, writing = len(self.tiles.final[part]), self._writing[part]
        if workers.shared:
            count = int(writing < 1 + min(left // 2, workers.threads(1) // 2))
        elif alone or writing:
            return []
        else:
            count = max(1, min(left - MOST_UNWRITTEN, TILES_A_TASK >> 2 * self.tiles.level))
        shards = (self.tiles.final[part].pop() for _ in range(count))
        return list(dict.fromkeys(shard for shard in shards if shard is not None))

    def _part_of(self, workers: Executor, worker: Any) -> int:
        """Return the part of the tiles that a worker owns; divide them anew if need be."""
        part, parts = workers.part(worker)
        self.tiles.divide(parts)
        return part

    def _look_everywhere(self, workers: Executor, handle: Any, cancelled: Event) -> None:
        """Visit every tile without improving anything, to learn what starts where."""
        todo = Shares(self.tiles.owner_of_tile, np.ndindex(self.keys.shape))
        under_way = 0
        while todo or under_way:
            for worker in workers.idle() if todo else ():
                part = workers.part(worker)
                count = workers.share(worker, todo.count(*part))
                if mine := todo.take(*part, min(count, TILES_A_TASK)):
                    requests = [self._request(tile, -math.inf) for tile in mine]
                    workers.submit(worker, "look", visit_tiles, handle, requests, -1.0)
                    under_way += 1
            for _, visits in workers.next_done(cancelled):
                under_way -= 1
                for tile, visit in visits.items():
                    self.tiles.lower(tile, visit.pending)

    def write(self, workers: Executor, handle: Any, cancelled: Event) -> dict[str, Any]:
        """Write all shards, each where most of its states are."""
        every = (morton_decode(node.z) for node in self.tree.nodes(self.tiles.level))
        todo = Shares(owner_of_shard, (shard for shard in every if not self.tiles.written[shard]))
        under_way = 0
        while todo or under_way:
            for worker in workers.idle() if todo else ():
                part = workers.part(worker)
                many = max(1, (todo.count(*part) - MOST_UNWRITTEN) // 2)
                many = min(many, TILES_A_TASK >> 2 * self.tiles.level) or 1
                shards = todo.take(*part, 1 if workers.shared else many, of_others=True)
                if shards:
                    self._write(workers, worker, handle, shards)
                    under_way += 1
            for _, counts in workers.next_done(cancelled):
                under_way -= 1
                self._add(counts)
        count = self.tree.count(self.tiles.level)
        if self.context.checkpoints.count("done", self.tiles.level) != count:
            raise RunError(f"{self.problem.name}: not all of {count} shards were written")
        return self.problem.attributes(self.sums)

    def _write(self, workers: Executor, worker: Any, handle: Any, shards: list[Tile]) -> Any:
        """Start to write shards, and return what the executor calls the task."""
        nodes = tuple(Node(self.tiles.level, morton_encode(*shard)) for shard in shards)
        tiles = (tile for node in nodes for tile in self.tree.nodes(0, within=node))
        requests = [self._request(morton_decode(tile.z), math.inf) for tile in tiles]
        for shard in shards:
            self.tiles.written[shard] = True
        return workers.submit(worker, "write", finish_shards, handle, nodes, requests)

    def _add(self, counts: dict[str, float]) -> None:
        """Take note of the counts of shards that have been written."""
        for name, count in counts.items():
            self.sums[name] = self.sums.get(name, 0) + count

    def progress(self) -> Progress:
        """Return how many tiles have converged, and where the front is."""
        # called by other threads, so the queues are not asked
        least = np.minimum(self.keys, self.tiles.flying)
        active = int(np.isfinite(least).sum())
        reached = int((self.reached > 0).sum())
        done = max(reached - active, 0)
        return FrontierProgress(done, self.keys.size, float(least.min()), active)

    def _choose(
        self, workers: Executor, worker: Any, part: int, bound: float
    ) -> tuple[list[Tile], int]:
        """Return the tiles of a worker to visit, least key first, and how many more there are.

        They lie in the window. Of those that are left for others not all are counted.
        """
        if self.state.window.bucket_width == 0.0:
            # nothing is known of this surface yet: one tile, to the end, will show
            if self.tiles.front() == math.inf or self.away.any():
                return [], 0
            i, j = np.unravel_index(int(self.keys.argmin()), self.keys.shape)
            return [(int(i), int(j))], int((self.keys < math.inf).sum()) - 1
        queue, found = self.tiles.waiting[part], dict[Tile, None]()
        while workers.share(worker, len(found)) < TILES_A_TASK:
            if (tile := queue.pop(bound)) is None:
                break
            found[tile] = None
        tiles = list(found)
        count = workers.share(worker, len(tiles))
        for tile in tiles[count:]:
            queue.push(float(self.keys[tile]), tile)
        return tiles[:count], len(tiles[count:])

    def _beside(self, tiles: list[Tile], workers: Executor) -> list[Tile]:
        """Return tiles of the same shards that these may wake: the front is in them or yet to come.

        Threads have no need of them, as any thread may visit any tile at once.
        """
        if workers.shared or not self.state.window.bucket_width:
            return []
        found = dict.fromkeys(tiles)
        for shard in {self.tiles.shard_of(tile) for tile in tiles}:
            block = self.tiles.block(shard)
            ahead = np.isfinite(self.keys[block]) | (self.reached[block] == 0)
            first, left = block[0].start, block[1].start
            found |= dict.fromkeys(
                (first + i, left + j) for i, j in np.argwhere(ahead & ~self.away[block]).tolist()
            )
        return list(found)[len(tiles) : TILES_A_TASK]

    def _take_out(self, tiles: list[Tile], worker: Any = None) -> list[Request]:
        """Return the requests to visit these tiles, and mark the tiles in flight."""
        requests = [self._request(tile, float(self.keys[tile]), worker) for tile in tiles]
        for tile in tiles:
            self.tiles.take_out(tile)
        return requests

    def _request(self, tile: Tile, key: float, worker: Any = None) -> Request:
        """Return the request to visit a tile: its halo, last sent border and links.

        A worker that is named is sent only the strips that it has not.
        """
        links = None if self.links is None else self.links.border(tile)
        if worker is None:
            return Request(tile, key, self.borders.around(tile), self.borders.of(tile), links)
        halo, sent, names = self.borders.request(tile, worker)
        return Request(tile, key, halo, sent, links, names)

    def _take_back(self, tile: Tile, visit: Visit | None) -> None:
        """Take note of a tile that has come back from a task, visited or not."""
        key = float(self.tiles.flying[tile])
        if visit is None:
            self.tiles.put_back(tile, key)
            return
        first_time = visit.reached - int(self.reached[tile])
        self.state.window.count(key, visit, first_time)
        self.state.visits += visit.times
        self.state.settled += visit.settled
        self.reached[tile], self.tiles.final_at[tile] = visit.reached, visit.final_at
        self.tiles.opened[tile] = True
        self.borders.take(tile, visit.border, visit.attempt)
        rows, columns = self.keys.shape
        for k, (di, dj) in enumerate(NEIGHBOURS):
            i, j = tile[0] + di, tile[1] + dj
            # what the visit did not know of a final tile, it may take for improvable
            inside = 0 <= i < rows and 0 <= j < columns
            if inside and not self.tiles.written[self.tiles.shard_of((i, j))]:
                self.tiles.lower((i, j), visit.outward[k])
        if self.links is not None and visit.links is not None:
            for other, least in self.links.take(tile, visit.links).items():
                self.tiles.lower(other, least)
        self.tiles.put_back(tile, visit.pending)

    def _save(self) -> None:
        """Begin to save what has changed since the last time."""
        if self._journal is not None:
            first = self._journal.begins(len(self.borders.changed), 8 * len(self.borders))
            self._journal.write(self.state.entry(first=first), first=first)

    def _resume(self, workers: Executor, handle: Any, cancelled: Event) -> bool:
        """Take up what an earlier session has saved; return whether there is anything of use.

        Borders in the midst of written shards are gone. So nothing is of use if one of these is
        damaged now.
        """
        entries = [] if self._journal is None else list(self._journal.entries())
        done = {(i, j) for entry in entries for i, j in entry["done"].tolist()}
        if not entries or not self._count_written(sorted(done), workers, handle, cancelled):
            return False
        self.state.restore(entries)
        return True

    def _count_written(
        self, shards: list[Tile], workers: Executor, handle: Any, cancelled: Event
    ) -> bool:
        """Add the counts of shards that an earlier session has written; are all of them intact?"""
        todo, under_way, found = Shares(owner_of_shard, shards), 0, []
        while todo or under_way:
            for worker in workers.idle() if todo else ():
                for shard in todo.take(*workers.part(worker), 1, of_others=True):
                    node = Node(self.tiles.level, morton_encode(*shard))
                    workers.submit(worker, "check", written_counts, handle, node)
                    under_way += 1
            for _, counts in workers.next_done(cancelled):
                under_way -= 1
                found.append(counts)
        intact = [counts for counts in found if counts is not None]
        if len(intact) == len(shards):
            for counts in intact:
                self._add(counts)
        return len(intact) == len(shards)
