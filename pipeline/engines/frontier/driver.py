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
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from orograph.engines.executors import Executor, executor
from orograph.engines.frontier.bucket_width import BucketWidth
from orograph.engines.frontier.links import LinkBoard
from orograph.engines.frontier.protocol import Border, Request, Table, Tabulated, Visit
from orograph.engines.frontier.worker import (
    TILES_A_TASK,
    FrontierTasks,
    finish_shard,
    visit_tiles,
)
from orograph.engines.tile_states import Tile, forget
from orograph.execution.run import Progress
from orograph.tiles.errors import InputError, RunError
from orograph.tiles.grid.neighbours import NEIGHBOURS, OPPOSITE
from orograph.tiles.grid.quadtree import Node, morton_decode, morton_encode

if TYPE_CHECKING:
    from distributed import Client

Array = npt.NDArray[Any]

SECONDS_BETWEEN_CHECKPOINTS = 10.0


@dataclass(frozen=True)
class FrontierProgress(Progress):
    """How far a run is: converged tiles of all tiles that have been reached, and the front."""

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
        return {"tile_visits": self._driver.visits, "cells_settled": self._driver.settled}

    @cached_property
    def _driver(self) -> _Driver:
        return _Driver(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_driver"}


class _Driver:
    """The keys and borders of all tiles, and what is under way."""

    def __init__(self, run: Frontier) -> None:
        self.problem, self.context, self.tree = run.problem, run.context, run.context.quadtree
        rows, columns = (-(-n // self.tree.tile) for n in self.tree.shape)
        self.keys = np.full((rows, columns), math.inf)
        self.away = np.zeros((rows, columns), bool)  # tiles that a worker may be visiting
        self.flying = np.full((rows, columns), math.inf)  # and their keys
        self.reached = np.zeros((rows, columns), np.int64)
        self.final_at = np.full((rows, columns), math.inf)  # see `Visit`
        self.opened = np.zeros((rows, columns), bool)  # by a visit of this session
        self.level = run.context.shard_level
        shards = [-(-n // (1 << self.level)) for n in (rows, columns)]
        self.written = np.zeros(shards, bool)  # or being written
        self.sums: dict[str, float] = {}
        self.borders: dict[Tile, Border] = {}
        links = self.problem.links
        self.links = (
            None if links is None else LinkBoard(links, self.problem.link_blank, self.tree.tile)
        )
        self.window = run.bucket_width
        self.settled = self.visits = 0

    def settle(self, workers: Executor, handle: Any, cancelled: Event) -> None:
        """Empty the queue."""
        saved = self.context.checkpoints.load("frontier", self.tree.root)
        if saved is not None:
            self.keys, self.reached, self.borders, self.window, self.settled = saved[:5]
            self.visits, values = saved[5:]
            if self.links is not None:
                self.links.values = values
        elif (starts := self.problem.starts(self.tree.tile)) is None:
            self._look_everywhere(workers, handle, cancelled)
            if not np.isfinite(self.keys).any():
                raise InputError(
                    f"sources: {self.problem.name} starts nowhere: no cell of the raster of "
                    "sources is a source on a passable cell; check its values, nodata and "
                    "target_values"
                )
        else:
            for tile, key in starts.items():
                self.keys[tile] = key
        if self.keys.size == 1:
            self.window.bucket_width = math.inf
        last_save = time.monotonic()
        pending: dict[Any, tuple[Any, list[Tile]]] = {}
        while True:
            for worker in workers.idle():
                tiles = self._choose(workers, worker)
                busy = any(worker == other for other, _ in pending.values())
                if tiles:
                    bound = self.window.above(self._front())
                    tiles += self._beside(tiles, workers)
                    requests = self._take_out(tiles)
                    waiting = int(((self.keys <= bound) & np.isfinite(self.keys)).sum())
                    threads = workers.threads(len(pending) + 1 + waiting)
                    arguments = handle, requests, bound, threads
                    future = workers.submit(worker, "visit", visit_tiles, *arguments)
                    pending[future] = worker, tiles
                    self.window.tasks += not workers.shared
                elif pending and not busy:
                    self.window.starved += bool(np.isfinite(self.keys).any())
                    if (node := self._final_shard(workers, worker)) is not None:
                        pending[self._write(workers, worker, handle, node)] = worker, []
                    elif tiles := self._ahead(workers, worker):
                        requests = [replace(r, key=-math.inf) for r in self._take_out(tiles)]
                        future = workers.submit(worker, "look", visit_tiles, handle, requests, -1.0)
                        pending[future] = worker, tiles
            if not pending:
                if not np.isfinite(self.keys).any():
                    self._save()
                    return
                if workers.idle():
                    raise RunError(f"{self.problem.name}: there is work, but none was taken up")
            for future, found in workers.next_done(cancelled):
                tiles = pending.pop(future)[1]
                for tile in tiles:
                    self._take_back(tile, found.get(tile))
                if not tiles:
                    self._add(found)
            self.window.adapt()
            if time.monotonic() - last_save > SECONDS_BETWEEN_CHECKPOINTS:
                self._save()
                last_save = time.monotonic()

    def _look_everywhere(self, workers: Executor, handle: Any, cancelled: Event) -> None:
        """Visit every tile without improving anything, to learn what starts where."""
        todo = [(i, j) for i, j in np.ndindex(self.keys.shape)]
        under_way = 0
        while todo or under_way:
            for worker in workers.idle():
                mine = [t for t in todo if workers.owns(worker, self._owner_of_tile(*t))]
                mine = mine[: min(workers.share(worker, len(mine)), TILES_A_TASK)]
                if mine:
                    todo = [t for t in todo if t not in set(mine)]
                    requests = [self._request(tile, -math.inf) for tile in mine]
                    workers.submit(worker, "look", visit_tiles, handle, requests, -1.0)
                    under_way += 1
            for _, visits in workers.next_done(cancelled):
                under_way -= 1
                for tile, visit in visits.items():
                    self.keys[tile] = visit.pending

    def write(self, workers: Executor, handle: Any, cancelled: Event) -> dict[str, Any]:
        """Write all shards, each where most of its states are."""
        todo = [n for n in self.tree.nodes(self.level) if not self.written[morton_decode(n.z)]]
        under_way = 0
        while todo or under_way:
            for worker in workers.idle() if todo else ():
                near = (n for n in todo if workers.owns(worker, self._owner_of(n)))
                node = next(near, todo[0])
                todo.remove(node)
                self._write(workers, worker, handle, node)
                under_way += 1
                if not todo:
                    break
            for _, counts in workers.next_done(cancelled):
                under_way -= 1
                self._add(counts)
        shards = self.tree.count(self.level)
        if self.context.checkpoints.count("done", self.level) != shards:
            raise RunError(f"{self.problem.name}: not all of {shards} shards were written")
        return self.problem.attributes(self.sums)

    def _write(self, workers: Executor, worker: Any, handle: Any, node: Node) -> Any:
        """Start to write a shard, and return what the executor calls the task."""
        tiles = [morton_decode(tile.z) for tile in self.tree.nodes(0, within=node)]
        requests = [self._request(tile, math.inf) for tile in tiles]
        self.written[morton_decode(node.z)] = True
        return workers.submit(worker, "write", finish_shard, handle, node, requests)

    def _add(self, counts: dict[str, float]) -> None:
        """Take note of the counts of a shard that has been written."""
        for name, count in counts.items():
            self.sums[name] = self.sums.get(name, 0) + count

    def _final_shard(self, workers: Executor, worker: Any) -> Node | None:
        """Return a shard of a worker that nothing can improve any more, and that is not written.

        Whatever improves a tile enters it by its border, and not below the front.
        """
        final = (self.keys == math.inf) & ~self.away & (self.final_at <= self._front())
        for axis, count in enumerate(final.shape):
            final = np.logical_and.reduceat(final, range(0, count, 1 << self.level), axis)
        for i, j in np.argwhere(final & ~self.written).tolist():
            node = Node(self.level, morton_encode(i, j))
            if workers.owns(worker, self._owner_of(node)):
                return node
        return None

    def _ahead(self, workers: Executor, worker: Any) -> list[Tile]:
        """Return the tile of a worker to read next, beyond the window: the front will come there.

        Its first visit need not wait for its cells then.
        """
        unread = np.where(self.opened | self.away, math.inf, self.keys)
        for number in np.argsort(unread, axis=None)[: np.isfinite(unread).sum()]:
            i, j = np.unravel_index(int(number), unread.shape)
            if workers.owns(worker, self._owner_of_tile(int(i), int(j))):
                return [(int(i), int(j))]
        return []

    def progress(self) -> Progress:
        active = int((np.isfinite(self.keys) | np.isfinite(self.flying)).sum())
        reached = int((self.reached > 0).sum())
        done = max(reached - active, 0)
        return FrontierProgress(done, self.keys.size, self._front(), active)

    def _front(self) -> float:
        """Return the least value that is still open: all below it are final."""
        return float(min(self.keys.min(), self.flying.min()))

    def _choose(self, workers: Executor, worker: Any) -> list[Tile]:
        """Return the tiles of a worker that lie in the window, least key first."""
        if self.window.bucket_width == 0.0:
            # nothing is known of this surface yet: one tile, to the end, will show
            if self.away.any() or not np.isfinite(self.keys).any():
                return []
            i, j = np.unravel_index(int(self.keys.argmin()), self.keys.shape)
            return [(int(i), int(j))]
        bound = self.window.above(self._front())
        tiles = np.argwhere((self.keys <= bound) & np.isfinite(self.keys) & ~self.away)
        order = np.argsort(self.keys[tuple(tiles.T)], kind="stable")
        mine = [
            (i, j)
            for i, j in tiles[order].tolist()
            if workers.owns(worker, self._owner_of_tile(i, j))
        ]
        return mine[: min(workers.share(worker, len(mine)), TILES_A_TASK)]

    def _beside(self, tiles: list[Tile], workers: Executor) -> list[Tile]:
        """Return tiles of the same shards that these may wake: the front is in them or yet to come.

        Threads have no need of them, as any thread may visit any tile at once.
        """
        if workers.shared or not self.window.bucket_width:
            return []
        level = self.level
        ahead = ~self.away & (np.isfinite(self.keys) | (self.reached == 0))
        found = dict.fromkeys(tiles)
        for row, column in {(i >> level, j >> level) for i, j in tiles}:
            corner = row << level, column << level
            part = ahead[tuple(slice(n, n + (1 << level)) for n in corner)]
            found |= dict.fromkeys(
                (corner[0] + i, corner[1] + j) for i, j in np.argwhere(part).tolist()
            )
        return list(found)[len(tiles) : TILES_A_TASK]

    def _owner_of_tile(self, row: int, column: int) -> int:
        place = morton_encode(row >> self.level, column >> self.level)
        return self._owner_of(Node(self.level, place))

    def _owner_of(self, node: Node) -> int:
        """Return a number for a shard such that those along any front have different owners."""
        row, column = morton_decode(node.z)
        # primes beyond any number of workers: rows and columns count, whatever that number is
        return row * 7919 + column * 104729

    def _take_out(self, tiles: list[Tile]) -> list[Request]:
        """Return what a worker must know of tiles that it is to visit; they are away from now."""
        requests = [self._request(tile, float(self.keys[tile])) for tile in tiles]
        for tile in tiles:
            self.away[tile] = True
            self.flying[tile], self.keys[tile] = self.keys[tile], math.inf
        return requests

    def _request(self, tile: Tile, key: float) -> Request:
        """Return what a worker must know of a tile to visit it."""
        i, j = tile
        halo = [
            None if (border := self.borders.get((i + di, j + dj))) is None else border[OPPOSITE[k]]
            for k, (di, dj) in enumerate(NEIGHBOURS)
        ]
        sent = list(self.borders.get(tile, [None] * 8))
        links = None if self.links is None else self.links.border(tile)
        return Request(tile, key, halo, sent, links)

    def _take_back(self, tile: Tile, visit: Visit | None) -> None:
        """Take note of a tile that has come back from a task, visited or not."""
        key, self.flying[tile], self.away[tile] = float(self.flying[tile]), math.inf, False
        if visit is None:
            self.keys[tile] = min(self.keys[tile], key)
            return
        first_time = visit.reached - int(self.reached[tile])
        self.window.count(key, visit, first_time)
        self.visits += visit.times
        self.settled += visit.settled
        self.reached[tile], self.final_at[tile] = visit.reached, visit.final_at
        self.opened[tile] = True
        self.keys[tile] = min(self.keys[tile], visit.pending)
        if self.links is not None and visit.links is not None:
            self.links.take(tile, visit.links, self.keys)
        border = self.borders.setdefault(tile, [None] * 8)
        rows, columns = self.keys.shape
        for k, (di, dj) in enumerate(NEIGHBOURS):
            if visit.border[k] is not None:
                border[k] = visit.border[k]
            i, j = tile[0] + di, tile[1] + dj
            if not (0 <= i < rows and 0 <= j < columns):
                continue
            # what the visit did not know of a final tile, it may take for improvable
            if not self.written[i >> self.level, j >> self.level]:
                self.keys[i, j] = min(self.keys[i, j], visit.outward[k])

    def _save(self) -> None:
        keys = np.minimum(self.keys, self.flying)
        entry: tuple[Any, ...] = keys, self.reached, self.borders, self.window
        entry += self.settled, self.visits, None if self.links is None else self.links.values
        self.context.checkpoints.save("frontier", self.tree.root, entry)
