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
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np

from orograph.engines.frontier import tile_map
from orograph.engines.frontier.borders import Borders
from orograph.engines.frontier.bucket_width import BucketWidth
from orograph.engines.frontier.driver_state import DriverState
from orograph.engines.frontier.journal import Journal
from orograph.engines.frontier.links import LinkBoard
from orograph.engines.frontier.protocol import Request, Table, Tabulated, Visit
from orograph.engines.frontier.queues import Shares
from orograph.engines.frontier.tile_keys import TileKeys
from orograph.engines.frontier.worker import (
    TILES_A_TASK,
    FrontierTasks,
    Written,
    finish_shards,
    visit_tiles,
    written_counts,
)
from orograph.engines.tile_states import Tile, forget
from orograph.run.cluster.executors import Executor, Ticket, executor
from orograph.run.cluster.run_order import Turn
from orograph.run.feedback import Progress
from orograph.run.monitor import begin_phase
from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError, RunError
from orograph.tiles.grid.neighbours import NEIGHBOURS
from orograph.tiles.grid.quadtree import Node, morton_decode, morton_encode

if TYPE_CHECKING:
    from distributed import Client

    from orograph.run.cluster.worker_loads import Worker
    from orograph.run.shared_data import Handle


MOST_UNWRITTEN = 8
"""Number of final shards of a worker above which a task writes several."""
SECONDS_BETWEEN_MAPS = 1.0
FEW_TILES = 16
"""Number of tiles on GPUs up to which each visit relaxes its tile to the end.

Such tiles are as large as a GPU's memory allows: to relax one again takes less than a task does.
"""
MANY_WORKERS = 100
"""Number of workers above which no tile is read ahead, and no shard written alone.

The scheduler takes a millisecond for a task, and does one at a time.
"""


@dataclass(frozen=True)
class FrontierProgress(Progress):
    """Progress of a frontier run: converged tiles, unconverged tiles, and the least open key."""

    key: float = math.nan
    """Least key of the open tiles, the front: all values below it are final."""
    active: int = 0
    """Number of tiles that have not converged."""

    def _amount(self) -> str:
        return f"{self.done} of {self.total} tiles, front at {self.key:g}, {self.active} active"


@dataclass(frozen=True)
class Frontier(FrontierTasks):
    """Engine that visits the tiles of a problem in order of cost until none can change."""

    def run(self, client: Client | None, handle: Handle, cancelled: Event) -> dict[str, Any]:
        """Visit tiles until all have converged, write the result, and return its attributes."""
        driver = self._driver
        with executor(client, self.problem.name, self.context.token, driver.turn) as workers:
            try:
                begin_phase(self.problem.name)
                driver.settle(workers, handle, cancelled)
                begin_phase(f"{self.problem.name}: last shards")
                return driver.write(workers, handle, cancelled)
            finally:
                workers.everywhere(forget, self.context.token)

    def table(self) -> dict[str, tuple[tuple[str, ...], list[Array]]]:
        """Return the table columns of a `Tabulated` problem, an empty dict for other problems."""
        problem = self.problem
        if not isinstance(problem, Tabulated):
            return {}
        columns = {
            name: (dims, problem.join_rows(self._rows(), name))
            for name, dims in problem.columns.items()
        }
        complete = problem.complete(columns, self.rasters)
        return {name: (dims, [values]) for name, (dims, values) in complete.items()}

    def _rows(self) -> Iterator[Table]:
        """Yield the table rows saved for each shard, one tile's table at a time."""
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
        """Initial bucket width of the run."""
        return self.problem.bucket_width(self.context.quadtree.tile)

    def progress(self) -> Progress:
        """Return how many tiles have converged, and up to which cost values are final."""
        return self._driver.progress()

    def statistics(self) -> dict[str, int]:
        """Return the number of tile visits, and of cells lowered, summed over visits."""
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
    """A submitted task: its worker, the tiles it may visit and the shards it writes."""

    worker: Worker
    tiles: list[Tile]
    """Tiles that the task may visit."""
    shards: list[Tile]
    """Shards that the task writes."""


class _Driver:
    """Scheduler of a run: keeps all tile keys and borders, and gives tasks to workers."""

    def __init__(self, run: Frontier) -> None:
        self.problem, self.context, self.tree = run.problem, run.context, run.context.quadtree
        self.tiles = TileKeys(self.tree, run.context.shard_level)
        # The arrays of `TileKeys` themselves, which are changed in place.
        self.keys, self.away = self.tiles.keys, self.tiles.away
        self.reached = np.zeros(self.keys.shape, np.int64)
        self.borders = Borders(self.tiles)
        links = self.problem.links
        self.links = (
            None if links is None else LinkBoard(links, self.problem.link_blank, self.tree.tile)
        )
        self.state = DriverState(
            self.tiles, self.borders, self.links, run.bucket_width, self.reached
        )
        self.sums: dict[str, float] = {}
        self._refused: list[tuple[tuple[int, int], str]] = []
        # a cell is reached, and written
        cells = 2 * math.prod(self.tree.shape)
        self.turn = Turn(self.context.token, self.context.begun, cells)
        self._cells_of_shard = self.tree.tile**2 << 2 * self.tiles.level
        self._journal: Journal | None = None
        self._pending: dict[Ticket, _Task] = {}
        self._load: Counter[Worker] = Counter()
        self._writing: Counter[Worker] = Counter()
        self._owners: set[Worker] = set()
        """Workers that own tiles."""
        self._rooms_version = 0
        self._shown = -math.inf
        """Time at which the dashboard was last sent the states of tiles."""
        self._visiting = 0
        """Number of tiles in all submitted tasks."""
        self._laden: dict[Worker, None] = {}
        """Workers that can take no more tasks, and have more tiles in the bucket."""

    def settle(self, workers: Executor, handle: Handle, cancelled: Event) -> None:
        """Submit visits until all tiles have converged, saving the driver's state now and then."""
        if self.context.checkpoints.lasting:
            self._journal = Journal(self.context.checkpoints, self.tree.root)
        try:
            self._start(workers, handle, cancelled)
            while self._pending or self.tiles.front() < math.inf:
                self._give_work(workers, handle)
                # Owners sleep until the bucket reaches their least key. If keys are left and no
                # task is under way, all owners are looked at once more before this counts as a
                # fault.
                if not self._pending:
                    self.tiles.awake.update(self._owners)
                    self._give_work(workers, handle)
                if not self._pending and any(True for _ in workers.idle()):
                    raise RunError(f"{self.problem.name}: there is work, but none was taken up")
                for ticket, found in workers.next_done(cancelled):
                    self._take_result(workers, ticket, found)
                self.state.window.adapt()
                self._show(workers)
                if self._journal is not None and self._journal.due():
                    self._save()
            self._save()
        finally:
            if self._journal is not None:
                self._journal.close()

    def _show(self, workers: Executor, *, at_once: bool = False) -> None:
        """Send the states of tiles to the dashboard, now and then unless ``at_once``."""
        now = time.monotonic()
        if at_once or now - self._shown >= SECONDS_BETWEEN_MAPS:
            self._shown = now
            made = partial(tile_map.message, self.problem.name, self.context.token, self.tiles)
            workers.tell(tile_map.TOPIC, made)

    def _start(self, workers: Executor, handle: Handle, cancelled: Event) -> None:
        """Queue the tiles to visit first: from saved state, else those with sources."""
        if not self._resume(workers, handle, cancelled):
            starts = self.problem.starts(self.tree.tile)
            if starts is None:
                self._look_everywhere(workers, handle, cancelled)
            for tile, key in (starts or {}).items():
                self.tiles.lower(tile, key)
            nowhere = starts is None and self.tiles.front() == math.inf
            if nowhere and not self.problem.may_start_nowhere:
                raise InputError(
                    f"sources: {self.problem.name} starts nowhere: no cell of the raster of "
                    "sources is a source on a passable cell; check its values, nodata and "
                    "source_values"
                )
        # links lead anywhere: what is relaxed to the end in a part of a graph is relaxed again
        is_few = self.context.gpus and self.links is None
        if self.keys.size <= (FEW_TILES if is_few else 1):
            self.state.window.bucket_width = math.inf

    def _take_result(self, workers: Executor, ticket: Ticket, found: Any) -> None:
        """Update tiles, borders and shards from the result of a finished task."""
        task = self._pending.pop(ticket)
        self._visiting -= len(task.tiles)
        self._load[task.worker] -= 1
        # The worker has a free slot again.
        self.tiles.awake.add(task.worker)
        for tile in task.tiles:
            self._take_back(tile, found.get(tile))
        if not workers.shared and task.tiles:
            # The worker now holds the strips that its visits made. A visit of None means that it
            # lacked strips which it was taken to have: all are sent with the next request.
            made = {tile: visit for tile, visit in found.items() if visit is not None}
            borders = {tile: visit.border for tile, visit in made.items()}
            for attempt in {visit.attempt for visit in made.values()}:
                self.borders.came_back(borders, task.tiles, attempt)
            for tile in found.keys() - made.keys():
                self.borders.send_all(tile)
        if task.shards:
            self._writing[task.worker] -= 1
            self.state.finish(self._take_written(task.shards, found))

    def _give_work(self, workers: Executor, handle: Handle) -> None:
        """Submit tasks to the workers that have free slots.

        Workers of a cluster are looked at if their own tiles have changed. Tiles without an owner
        go to workers that can take more, idle ones first; then come tiles that busy workers have
        read.
        """
        # Workers have come or gone. The shards of those that are gone become free.
        if self._rooms_version != workers.rooms.version:
            self._rooms_version = workers.rooms.version
            for worker in [worker for worker in self._owners if worker not in workers.rooms]:
                self._owners.discard(worker)
                self._laden.pop(worker, None)
                self.tiles.give_up(worker)
        front = self.tiles.front()
        bound = self.state.window.above(front)
        self.tiles.wake(bound)
        # The set is replaced before tasks are given, so that an owner woken meanwhile is looked at
        # in the next step.
        awake, self.tiles.awake = self.tiles.awake, set()
        spare = [
            worker
            for worker in awake & self._owners
            if self._give_own(workers, worker, bound, handle)
        ]
        many = len(workers.rooms) > MANY_WORKERS
        for worker in workers.idle() if self._is_open(bound) else ():
            # Workers come in the order of their tasks: from here on all have one.
            if many and self._load[worker]:
                break
            if not self._give_task(workers, worker, None, bound, handle):
                break
        for worker in workers.idle() if self._laden else ():
            if self._load[worker] or not self._hand_over(workers, worker, bound, handle):
                break
        for worker in spare:
            # Reading ahead and writing come last, and only where a worker has nothing else to do.
            if not self._load[worker]:
                self._give_spare_task(workers, worker, worker, handle)
        for worker in workers.idle() if not many or self.tiles.final[None] else ():
            if not self._give_spare_task(workers, worker, None, handle):
                break
        workers.useful = self._visiting + self.tiles.ready(bound)
        # Workers without a task, though there are open tiles: a wider bucket would give them work.
        if front < math.inf and self._pending:
            self.state.window.starved += workers.rooms.unused()

    def _is_open(self, bound: float) -> bool:
        """Return whether there may be tiles or final shards that any worker may take."""
        # A width of 0 is not known yet. Then `_choose` takes the least tile, whoever owns it.
        is_known = self.state.window.bucket_width > 0
        return not is_known or bool(self.tiles.ready(bound) or self.tiles.final[None])

    def _give_own(self, workers: Executor, worker: Worker, bound: float, handle: Handle) -> bool:
        """Submit tasks on a worker's own tiles; return whether it still has free slots."""
        waiting, final = self.tiles.waiting[worker], self.tiles.final[worker]
        while (is_ready := waiting.least() <= bound) or final:
            if not workers.rooms.left(worker):
                if is_ready:
                    self._laden[worker] = None
                return False
            if not self._give_task(workers, worker, worker, bound, handle):
                break
        self._laden.pop(worker, None)
        self.tiles.sleep(worker)
        return True

    def _give_task(
        self, workers: Executor, worker: Worker, owner: Worker, bound: float, handle: Handle
    ) -> bool:
        """Submit a task on ``owner``'s tiles in the bucket; return whether there was one."""
        if shards := self._final_shards(workers, worker, owner):
            self._start_writing(workers, worker, shards, handle)
            return True
        tiles, waiting = self._choose(workers, worker, owner, bound)
        if tiles:
            self._start_visits(workers, worker, tiles, bound, waiting, handle)
        return bool(tiles)

    def _give_spare_task(
        self, workers: Executor, worker: Worker, owner: Worker, handle: Handle
    ) -> bool:
        """Let an idle worker write final shards or read a tile ahead; return whether it could."""
        if not self._pending or self._load[worker]:
            return False
        if len(self.tiles.final[owner]) >= self._fewest_shards(workers) and (
            shards := self._pop_final(owner, self._fewest_shards(workers))
        ):
            self._start_writing(workers, worker, shards, handle)
            return True
        if len(workers.rooms) > MANY_WORKERS or (tile := self.tiles.unread[owner].pop()) is None:
            return False
        # its first visit need not wait for its cells when the front comes there
        taken = self._take_out([tile], None if workers.shared else worker)
        # As in `_look_everywhere`: the tile is opened, and nothing is relaxed.
        requests = [replace(request, key=-math.inf) for request in taken]
        ticket = workers.submit(worker, "look", visit_tiles, handle, requests, -1.0)
        self._add_task(ticket, workers, _Task(worker, [tile], []))
        self.state.window.starved += 1
        return True

    def _start_visits(
        self,
        workers: Executor,
        worker: Worker,
        tiles: list[Tile],
        bound: float,
        waiting: int,
        handle: Handle,
    ) -> None:
        """Submit a task that visits tiles; ``waiting`` is the number of tiles left for others."""
        tiles = tiles + self._beside(tiles, workers)
        requests = self._take_out(tiles, None if workers.shared else worker)
        # Threads to which no tile is left help in the visits of others.
        threads = workers.threads(len(self._pending) + 1 + waiting)
        ticket = workers.submit(worker, "visit", visit_tiles, handle, requests, bound, threads)
        self._add_task(ticket, workers, _Task(worker, tiles, []))
        self.state.window.tasks += not workers.shared

    def _start_writing(
        self, workers: Executor, worker: Worker, shards: list[Tile], handle: Handle
    ) -> None:
        """Submit a task that writes final shards."""
        ticket = self._write(workers, worker, handle, shards)
        self._writing[worker] += 1
        self._add_task(ticket, workers, _Task(worker, [], shards))

    def _add_task(self, ticket: Ticket, workers: Executor, task: _Task) -> None:
        """Record a submitted task; on a cluster its worker becomes the owner of its tiles."""
        self._pending[ticket] = task
        self._visiting += len(task.tiles)
        self._load[task.worker] += 1
        if not workers.shared and task.worker is not None:
            self._owners.add(task.worker)
            for shard in {self.tiles.shard_of(tile) for tile in task.tiles}:
                self.tiles.give(shard, task.worker)

    def _hand_over(self, workers: Executor, worker: Worker, bound: float, handle: Handle) -> bool:
        """Give an idle worker an unreached tile from a worker that has too much to do."""
        while self._laden:
            other = next(iter(self._laden))
            tile = self.tiles.waiting[other].pop(bound)
            if tile is not None and not self.tiles.is_reached(self.tiles.shard_of(tile)):
                self._start_visits(workers, worker, [tile], bound, 0, handle)
                return True
            # The tile's shard is reached, so it stays with the worker that has its states.
            if tile is not None:
                self.tiles.push(tile)
            del self._laden[other]
        return False

    def _fewest_shards(self, workers: Executor) -> int:
        """Return how many final shards justify a task of their own: more with many workers."""
        return 1 if workers.shared else 1 + len(workers.rooms) // MANY_WORKERS

    def _final_shards(self, workers: Executor, worker: Worker, owner: Worker) -> list[Tile]:
        """Remove and return the final shards that a worker should write before more visits.

        A worker writes where the front need not wait for it, since what is not written is lost
        with the processes. Of threads one does, and half of the others where more than one shard
        waits.
        """
        left = len(self.tiles.final[owner])
        if workers.shared:
            writing = self._writing.total()
            count = int(writing < 1 + min(left // 2, workers.threads(1) // 2))
        elif not self._load[worker] or self._writing[worker] or left < self._fewest_shards(workers):
            return []
        else:
            # At most as many shards as hold the tiles of one task: a shard has 4**level tiles.
            count = min(left - MOST_UNWRITTEN, TILES_A_TASK >> 2 * self.tiles.level)
            count = max(count, self._fewest_shards(workers))
        return self._pop_final(owner, count)

    def _pop_final(self, owner: Worker, count: int) -> list[Tile]:
        """Remove and return at most ``count`` final shards of an owner."""
        shards = (self.tiles.final[owner].pop() for _ in range(count))
        # A shard may stand in its queue several times. All of these entries hold until it is marked
        # as written.
        return list(dict.fromkeys(shard for shard in shards if shard is not None))

    def _look_everywhere(self, workers: Executor, handle: Handle, cancelled: Event) -> None:
        """Open every tile without relaxing it, to find the tiles that contain sources."""
        todo = list(np.ndindex(self.tiles.written.shape))[::-1]
        if not workers.shared:
            random.Random(0).shuffle(todo)  # so that those along any front have different owners
        under_way = 0
        while todo or under_way:
            for worker in workers.idle() if todo else ():
                if not todo:
                    break
                tiles: list[Tile] = []
                count = workers.share(None, len(todo) << 2 * self.tiles.level)
                while todo and len(tiles) < min(count, TILES_A_TASK):
                    shard = todo.pop()
                    tiles += self.tiles.tiles_of(shard)
                    if not workers.shared and worker is not None:
                        self._owners.add(worker)
                        self.tiles.give(shard, worker)
                # A key of minus infinity lies below the bound of -1, so each tile is opened. No
                # cost lies below that bound, so nothing is relaxed.
                requests = [self._request(tile, -math.inf) for tile in tiles]
                workers.submit(worker, "look", visit_tiles, handle, requests, -1.0)
                under_way += 1
            for _, visits in workers.next_done(cancelled):
                under_way -= 1
                for tile, visit in visits.items():
                    self.tiles.opened[tile] = True
                    self.tiles.lower(tile, visit.pending)

    def write(self, workers: Executor, handle: Handle, cancelled: Event) -> dict[str, Any]:
        """Write all shards on the workers that hold their states; return the result attributes."""
        every = (morton_decode(node.z) for node in self.tree.nodes(self.tiles.level))
        left = (shard for shard in every if not self.tiles.written[shard])
        todo = Shares(self.tiles.owner_of, left)
        under_way: dict[Ticket, list[Tile]] = {}
        while todo or under_way:
            # one that takes another's has to read and visit the tiles again: first their owners
            for of_others in (False, True):
                for worker in workers.idle() if todo else ():
                    # Half of the shards beyond `MOST_UNWRITTEN`, so that tasks get smaller towards
                    # the end. A shard with more tiles than a task may have is written alone.
                    many = (todo.count(worker, of_others) - MOST_UNWRITTEN) // 2
                    many = max(many, self._fewest_shards(workers))
                    many = min(many, TILES_A_TASK >> 2 * self.tiles.level) or 1
                    shards = todo.take(worker, 1 if workers.shared else many, of_others)
                    if shards:
                        ticket = self._write(workers, worker, handle, shards)
                        under_way[ticket] = shards
            for ticket, found in workers.next_done(cancelled):
                shards = under_way.pop(ticket)
                # Shards for which the worker lacked strips are handed out again.
                todo.add(set(shards) - set(self._take_written(shards, found)))
            self._show(workers, at_once=not (todo or under_way))
        if self._refused:  # once all tiles are known, so that it is the same cell on any tiling
            raise RunError(min(self._refused)[1])
        count = self.tree.count(self.tiles.level)
        if self.context.checkpoints.count("done", self.tiles.level) != count:
            raise RunError(f"{self.problem.name}: not all of {count} shards were written")
        return self.problem.attributes(self.sums)

    def _write(
        self, workers: Executor, worker: Worker, handle: Handle, shards: list[Tile]
    ) -> Ticket:
        """Submit a task that writes shards, and return its ticket."""
        nodes = tuple(Node(self.tiles.level, morton_encode(*shard)) for shard in shards)
        tiles = (tile for node in nodes for tile in self.tree.nodes(0, within=node))
        at = None if workers.shared else worker
        requests = [self._request(morton_decode(tile.z), math.inf, at) for tile in tiles]
        for shard in shards:
            # Marked when the task is sent, so that no other task gets the shard and no visit lowers
            # its keys. `_take_written` undoes it for shards that the worker could not write.
            self.tiles.written[shard] = True
        ticket = workers.submit(worker, "write", finish_shards, handle, nodes, requests)
        self.turn.done += len(shards) * self._cells_of_shard
        return ticket

    def _take_written(self, shards: list[Tile], found: Written) -> list[Tile]:
        """Record the result of a writing task; return the shards that it has written.

        A worker that had not all strips of the others is sent all.
        """
        self._add(found.counts)
        self._refused += found.refused
        missing = {morton_decode(node.z) for node in found.missing}
        for shard in missing:
            for tile in self.tiles.tiles_of(shard):
                self.borders.send_all(tile)
            self.tiles.written[shard] = False
            self.tiles.close(shard)
        self.turn.done -= len(missing) * self._cells_of_shard
        return [shard for shard in shards if shard not in missing]

    def _add(self, counts: dict[str, float]) -> None:
        """Add the counts of written shards to the totals of the run."""
        for name, count in counts.items():
            self.sums[name] = self.sums.get(name, 0) + count

    def progress(self) -> Progress:
        """Return how many tiles have converged, and up to which cost values are final."""
        # called by other threads, so the queues are not asked
        least = np.minimum(self.keys, self.tiles.flying)
        active = int(np.isfinite(least).sum())
        reached = int((self.reached > 0).sum())
        done = max(reached - active, 0)
        return FrontierProgress(done, self.keys.size, float(least.min()), active)

    def _choose(
        self, workers: Executor, worker: Worker, owner: Worker, bound: float
    ) -> tuple[list[Tile], int]:
        """Return tiles in the bucket for a worker to visit, least key first, and how many remain.

        They lie in the window, and either the worker owns them or no worker does.
        """
        if self.state.window.bucket_width == 0.0:
            # nothing is known of this surface yet: one tile, to the end, will show
            if self.tiles.front() == math.inf or self.away.any():
                return [], 0
            i, j = np.unravel_index(int(self.keys.argmin()), self.keys.shape)
            return [(int(i), int(j))], int((self.keys < math.inf).sum()) - 1
        left = self.tiles.ready(bound)
        several = self._tiles_a_task(workers, left)
        if owner is None:
            if left < several and self._pending:
                return [], left  # more are to come
            # Each thread gets its share of what is ready, within what a task may have.
            count = min(max(workers.share(None, left), several), TILES_A_TASK)
            return self._pop_ready(bound, count), left - count
        queue, found = self.tiles.waiting[owner], dict[Tile, None]()
        # The worker's tiles of the bucket, until there are enough for a full task for each of its
        # threads. Those beyond the share of one thread are put back.
        while workers.share(worker, len(found)) < TILES_A_TASK:
            if (tile := queue.pop(bound)) is None:
                break
            found[tile] = None
        tiles = list(found)
        count = workers.share(worker, len(tiles))
        for tile in tiles[count:]:
            self.tiles.push(tile)
        chosen = tiles[:count]
        # Too few for a task on a large cluster: tiles that no worker owns fill it up.
        if chosen and len(chosen) < several:
            chosen += self._pop_ready(bound, several - len(chosen))
        return chosen, len(tiles[count:])

    def _pop_ready(self, bound: float, count: int) -> list[Tile]:
        """Remove and return at most ``count`` tiles in the bucket that no worker owns."""
        ready = (self.tiles.pop_ready(bound) for _ in range(count))
        return [tile for tile in ready if tile is not None]

    def _tiles_a_task(self, workers: Executor, ready: int) -> int:
        """Return how many tiles a task should have at least; more with many workers.

        Of many workers some are better idle than all waiting for the scheduler. With t seconds a
        visit and s a task, n tiles of the front can be visited at a rate of n/(t*b) in tasks of b,
        and the scheduler lets b/s be visited: so b grows with the root of n*s/t.
        """
        most = min(len(workers.rooms), ready + self._visiting)
        return 1 if workers.shared else max(round(math.sqrt(most / MANY_WORKERS)), 1)

    def _beside(self, tiles: list[Tile], workers: Executor) -> list[Tile]:
        """Return further tiles of the same shards that visits to ``tiles`` may affect.

        Threads have no need of them, as any thread may visit any tile at once.
        """
        if workers.shared or not self.tiles.level or not self.state.window.bucket_width:
            return []
        found = dict.fromkeys(tiles)
        for shard in {self.tiles.shard_of(tile) for tile in tiles}:
            block = self.tiles.block(shard)
            # Tiles that are queued, and those that nothing has reached. Converged ones are seldom
            # woken again.
            ahead = np.isfinite(self.keys[block]) | (self.reached[block] == 0)
            first, left = block[0].start, block[1].start
            found |= dict.fromkeys(
                (first + i, left + j) for i, j in np.argwhere(ahead & ~self.away[block]).tolist()
            )
        return list(found)[len(tiles) : TILES_A_TASK]

    def _take_out(self, tiles: list[Tile], worker: Worker = None) -> list[Request]:
        """Mark tiles as in flight, and return the requests to visit them."""
        # Before the tiles are taken out, which sets their keys to infinity.
        requests = [self._request(tile, float(self.keys[tile]), worker) for tile in tiles]
        for tile in tiles:
            self.tiles.take_out(tile)
        return requests

    def _request(self, tile: Tile, key: float, worker: Worker = None) -> Request:
        """Return the request to visit a tile: its halo, its last sent border and its links.

        A worker that is named is sent only the strips that it has not.
        """
        links = None if self.links is None else self.links.border(tile)
        if worker is None:
            return Request(tile, key, self.borders.around(tile), self.borders.of(tile), links)
        halo, sent, names = self.borders.request(tile, worker)
        return Request(tile, key, halo, sent, links, names)

    def _take_back(self, tile: Tile, visit: Visit | None) -> None:
        """Update the driver from the visit to a tile, or requeue a tile that was not visited."""
        key = float(self.tiles.flying[tile])
        if visit is None:
            self.tiles.put_back(tile, key)
            return
        first_time = visit.reached - int(self.reached[tile])
        self.state.window.count(key, visit, first_time)
        self.state.visits += visit.times
        self.state.settled += visit.settled
        self.turn.done += first_time
        self.reached[tile], self.tiles.final_at[tile] = visit.reached, visit.final_at
        self.tiles.opened[tile] = True
        self.borders.take(tile, visit.border, visit.attempt)
        rows, columns = self.keys.shape
        for k, step in enumerate(NEIGHBOURS):
            if visit.outward[k] == math.inf:
                continue
            i, j = self.tree.beside(tile, step)
            # what the visit did not know of a final tile, it may take for improvable
            inside = 0 <= i < rows and 0 <= j < columns
            if inside and not self.tiles.written[self.tiles.shard_of((i, j))]:
                self.tiles.lower((i, j), visit.outward[k])
        if self.links is not None and visit.links is not None:
            for other, least in self.links.take(tile, visit.links).items():
                self.tiles.lower(other, least)
        self.tiles.put_back(tile, visit.pending)

    def _save(self) -> None:
        """Start to save to the journal what has changed since the last entry."""
        if self._journal is not None:
            # The driver's thread makes the snapshot, as it alone changes the state. The journal's
            # thread packs and writes it. There are eight strips a tile.
            first = self._journal.begins(len(self.borders.changed), 8 * len(self.borders))
            self._journal.write(self.state.entry(first=first), first=first)

    def _resume(self, workers: Executor, handle: Handle, cancelled: Event) -> bool:
        """Restore the state an earlier session saved; return whether any of it was usable.

        Borders in the midst of written shards are gone. So nothing is of use if one of these is
        damaged now.
        """
        entries = [] if self._journal is None else list(self._journal.entries())
        # Written shards are verified before anything is restored: if one is damaged, the run begins
        # at its sources.
        done = {(i, j) for entry in entries for i, j in entry["done"].tolist()}
        if not entries or not self._count_written(sorted(done), workers, handle, cancelled):
            return False
        self.state.restore(entries)
        return True

    def _count_written(
        self, shards: list[Tile], workers: Executor, handle: Handle, cancelled: Event
    ) -> bool:
        """Add the counts of shards written earlier; return whether all of them are intact."""
        todo, under_way, found = shards[::-1], 0, []
        while todo or under_way:
            for worker in workers.idle():
                if not todo:
                    break
                node = Node(self.tiles.level, morton_encode(*todo.pop()))
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
