"""The priority queue over tiles: the engine for problems whose order of work depends on the data.

Every tile has a key, the least value by which something can still improve it. The driver keeps
the keys; tiles whose key lies within ``delta`` of the least are visited, several a task, and a
visit stops at that bound, leaving the rest of its own queue pending (delta-stepping over tiles).
A visit gives back the tile's border where it has changed and by which value each neighbour may be
improved by that. No keys left and nothing under way *is* the proof that all tiles are at rest.

What a tile has learned, its state, stays with the worker that is its home, and is no more than a
cache. Values only ever improve and each is that of a real path, so any older state is a valid
start, and a tile whose state is lost is rebuilt from its sources and its neighbours' borders. So a
worker may die at any moment, states may be spilled to disk or dropped, and the fixpoint is the
same to the bit. Only borders travel, and the driver keeps the last one of every tile.

References
----------
U. Meyer, P. Sanders, "Delta-stepping: a parallelizable shortest path algorithm", J. Algorithms
49 (2003), doi:10.1016/S0196-6774(03)00076-2.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from orograph.engines.executors import Executor, executor
from orograph.engines.frontier.bucket_width import BucketWidth
from orograph.engines.tile_states import StateCache, cache_of, forget
from orograph.execution.context import RunContext
from orograph.execution.jobs import load
from orograph.execution.run import Progress
from orograph.kernels.device import host_memory
from orograph.tiles.errors import InputError, RunError
from orograph.tiles.grid.quadtree import Node, Place, morton_decode, morton_encode
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import Raster
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    from distributed import Client

Array = npt.NDArray[Any]
Border = list[Any]
Tile = tuple[int, int]

# The eight neighbours, in the order of every list of borders and keys; OPPOSITE[k] looks back.
NEIGHBOURS = ((-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
OPPOSITE = (1, 0, 3, 2, 7, 6, 5, 4)

TILES_A_TASK = 64
SECONDS_BETWEEN_CHECKPOINTS = 10.0
CELLS_A_BAND = 2**22


@dataclass(frozen=True)
class Visit:
    """What a visit has done to a tile."""

    pending: float
    """Least value by which the tile itself can still be improved; infinite at rest."""
    outward: list[float]
    """For each neighbour the least value by which the new border may improve it, or infinity."""
    border: Border
    """For each neighbour the cells that face it, or None where they are as the driver has them."""
    settled: int
    """Cells improved in this visit."""
    reached: int
    """Cells of the tile that hold a value."""
    times: int = 1
    """How many visits this one stands for."""

    def after(self, earlier: Visit | None) -> Visit:
        """This visit and an earlier one of the same tile, as if they had been one."""
        if earlier is None:
            return self
        return Visit(
            self.pending,
            [min(pair) for pair in zip(self.outward, earlier.outward, strict=True)],
            [b if a is None else a for a, b in zip(self.border, earlier.border, strict=True)],
            self.settled + earlier.settled,
            self.reached,
            self.times + earlier.times,
        )


@dataclass(frozen=True)
class Request:
    """A tile that may be visited, and what the driver knows of it."""

    tile: Tile
    key: float
    """Least value by which something can improve it; infinite if only a neighbour may wake it."""
    halo: Border
    """What its neighbours have last told of the cells that face it."""
    sent: Border
    """Its own border, as its neighbours have it."""


class FrontierProblem(Protocol):
    """A problem whose tiles improve one another until all are at rest.

    States are the problem's own; borders are lists of eight arrays (or None: nothing reached), for
    each neighbour in the order of `NEIGHBOURS` the cells of the tile within ``reach`` that face
    it. All functions are deterministic; visits only ever improve values.
    """

    @property
    def name(self) -> str:
        """Lower-case words with hyphens; tasks are called by it."""

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The rasters that are written."""

    @property
    def backend(self) -> str:
        """What does the work of a visit: ``"numba"`` or ``"cuda"``."""

    @property
    def reach(self) -> int:
        """How many cells beyond its border a tile must see."""

    @property
    def cells_a_visit(self) -> int:
        """How many cells could be settled in the time that a visit takes beside its cells."""

    def starts(self, tile: int) -> dict[Tile, float] | None:
        """Tiles in which something starts and the least value there; None: look at each tile."""

    def check(self, cells: Sequence[Array], frame: Window) -> None:
        """Refuse cells that cannot be worked with by an `InputError` that names the first."""

    def open(self, place: Place, cells: Sequence[Array], frame: Window) -> Any:
        """The state of a tile before anything has reached it; ``frame`` is what ``cells`` show."""

    def visit(self, state: Any, halo: Border, sent: Border, bound: float) -> Visit:
        """Take in what neighbours know; improve the tile by all that is not above ``bound``.

        ``sent`` is the tile's own border as the driver has it: what is new is new against that, so
        that a visit whose result was lost on the way may be done again.
        """

    def pack(self, state: Any) -> Any:
        """What of a state is worth keeping on disk."""

    def unpack(self, state: Any, packed: Any) -> None:
        """Put back into a newly opened state what was packed."""

    def size(self, state: Any) -> int:
        """Bytes a state takes in memory."""

    def memory(self) -> int | None:
        """Bytes that states may take in a process; None: half of what the worker may use."""

    def finish(self, state: Any) -> tuple[dict[str, Array], dict[str, float]]:
        """The outputs of a tile at rest, and counts of it that are summed over all tiles."""

    def attributes(self, counts: dict[str, float]) -> dict[str, Any]:
        """Attributes of the whole result from the summed counts."""


@dataclass(frozen=True)
class FrontierProgress(Progress):
    """How far a run is: tiles at rest of all tiles that have been reached, and the front."""

    key: float = math.nan
    """Where the front is: all values below it are final."""
    active: int = 0
    """Tiles that are not at rest."""

    def _amount(self) -> str:
        return f"{self.done} of {self.total} tiles, front at {self.key:g}, {self.active} active"


@dataclass(frozen=True)
class Frontier:
    """One run of a problem: what a worker must know to visit a tile."""

    problem: FrontierProblem
    rasters: tuple[Raster, ...]
    context: RunContext

    # -- on workers --------------------------------------------------------------------------

    def visit_tiles(self, requests: Sequence[Request], bound: float) -> dict[Tile, Visit]:
        """Visit tiles, least key first, and again those of them that they wake, up to the bound.

        So a front crosses a worker's own tiles without asking the driver. At most ``TILES_A_TASK``
        visits: other workers wait for what this one finds. Tiles that were not visited are not
        in the answer; their keys are as they were, but for what others' ``outward`` says.
        """
        area = {request.tile: request for request in requests}
        open_keys = {request.tile: request.key for request in requests}
        done: dict[Tile, Visit] = {}
        for _ in range(max(TILES_A_TASK, len(area))):
            tile = min(open_keys, key=lambda t: (open_keys[t], t))
            if open_keys[tile] > bound or open_keys[tile] == math.inf:
                break
            request = area[tile]
            visit = self._visit(tile, request.halo, request.sent, bound)
            open_keys[tile] = visit.pending
            done[tile] = visit.after(done.get(tile))
            for k, (di, dj) in enumerate(NEIGHBOURS):
                sent = visit.border[k]
                if sent is not None:
                    request.sent[k] = sent
                other = tile[0] + di, tile[1] + dj
                if other in area:
                    if sent is not None:
                        area[other].halo[OPPOSITE[k]] = sent
                    open_keys[other] = min(open_keys[other], visit.outward[k])
                    if other in done:
                        # what it had for this tile was taken in by this visit
                        done[other].outward[OPPOSITE[k]] = math.inf
        return done

    def finish_shard(self, node: Node, requests: Sequence[Request]) -> dict[str, float]:
        """Write a shard whose tiles are all at rest; sums of its tiles' counts."""
        whole = self.context.tree.window(node)
        known: dict[str, float] | None = self.context.checkpoints.load("done", node)
        outputs = self.problem.outputs
        if known is not None and all(self.context.sink.written(v.name, whole) for v in outputs):
            return known
        writers = {v.name: self.context.sink.writer(v.name, whole) for v in outputs}
        counts: dict[str, float] = {}
        for request in requests:
            tile = request.tile
            state = self._state(tile)
            visit = self.problem.visit(state, request.halo, request.sent, math.inf)
            if any(found is not None for found in visit.border):
                raise RunError(
                    f"{self.problem.name}: tile {tile} was not at rest when the queue was "
                    "empty; this is a fault of orograph, please report it"
                )
            blocks, own = self.problem.finish(state)
            for name, block in blocks.items():
                writers[name].put(self._place(tile).window, block)
            for name, count in own.items():
                counts[name] = counts.get(name, 0) + count
        for writer in writers.values():
            writer.close()
        self.context.checkpoints.save("done", node, counts)
        return counts

    def _visit(self, tile: Tile, halo: Border, border: Border, bound: float) -> Visit:
        self.context.stop_if_cancelled()
        state = self._state(tile)
        visit = self.problem.visit(state, halo, border, bound)
        self._states.put(tile, state, self.problem.size(state), self._spill)
        return visit

    def _state(self, tile: Tile) -> Any:
        state = self._states.take(tile)
        if state is not None:
            return state
        place = self._place(tile)
        window, reach = place.window, self.problem.reach
        frame = Window(
            window.y - reach, window.x - reach, window.height + 2 * reach, window.width + 2 * reach
        ).clip(self.context.tree.shape)
        cells = [raster.read(frame) for raster in self.rasters]
        try:
            self.problem.check(cells, frame)
        except InputError:
            self._check_from_the_first_row(frame)
            raise
        state = self.problem.open(place, cells, frame)
        packed = self.context.checkpoints.load("state", place.node)
        if packed is not None:
            self.problem.unpack(state, packed)
        return state

    @property
    def _states(self) -> StateCache:
        return cache_of(self.context.token, self.problem.memory)

    def _check_from_the_first_row(self, frame: Window) -> None:
        """Raise for the first cell of the grid: which tile finds a fault is chance."""
        rows, width = max(1, CELLS_A_BAND // self.context.tree.shape[1]), self.context.tree.shape[1]
        for y in range(0, frame.y + frame.height, rows):
            band = Window(y, 0, rows, width).clip(self.context.tree.shape)
            self.problem.check([raster.read(band) for raster in self.rasters], band)

    def _spill(self, tile: Tile, state: Any) -> None:
        self.context.checkpoints.save("state", self._place(tile).node, self.problem.pack(state))

    def _place(self, tile: Tile) -> Place:
        return self.context.tree.place(Node(0, morton_encode(*tile)))

    # -- in the driver -----------------------------------------------------------------------

    def run(self, client: Client | None, handle: Any, cancelled: Event) -> dict[str, Any]:
        """Visit tiles until all are at rest, then write; the attributes of the result."""
        driver = self._driver
        with executor(client, self.problem.name, self.context.token) as workers:
            try:
                driver.settle(workers, handle, cancelled)
                return driver.write(workers, handle, cancelled)
            finally:
                workers.everywhere(forget, self.context.token)

    def table(self) -> dict[str, tuple[tuple[str, ...], Array]]:
        """No problem of this engine makes a table."""
        return {}

    def progress(self) -> Progress:
        """Tiles at rest, and where the front is."""
        return self._driver.progress()

    def statistics(self) -> dict[str, int]:
        """How much work it was: visits of tiles, and cells lowered, each counted once a visit."""
        return {"tile_visits": self._driver.visits, "cells_settled": self._driver.settled}

    @cached_property
    def _driver(self) -> _Driver:
        return _Driver(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_driver"}


def visit_tiles(handle: Any, requests: Any, bound: float) -> Any:
    """The task that visits tiles."""
    run: Frontier = load(handle)
    with host_memory(run.problem.backend):
        return run.visit_tiles(requests, bound)


def finish_shard(handle: Any, node: Node, requests: Any) -> Any:
    """The task that writes a shard."""
    run: Frontier = load(handle)
    with host_memory(run.problem.backend):
        return run.finish_shard(node, requests)


class _Driver:
    """The keys and borders of all tiles, and what is under way."""

    def __init__(self, run: Frontier) -> None:
        self.frontier = run
        rows, columns = (-(-n // run.context.tree.tile) for n in run.context.tree.shape)
        self.keys = np.full((rows, columns), math.inf)
        self.away = np.zeros((rows, columns), bool)  # tiles that a worker may be visiting
        self.flying = np.full((rows, columns), math.inf)  # and their keys
        self.reached = np.zeros((rows, columns), np.int64)
        self.borders: dict[Tile, Border] = {}
        self.window = BucketWidth(run.context.tree.tile**2, run.problem.cells_a_visit)
        self.settled = self.visits = 0

    def settle(self, workers: Executor, handle: Any, cancelled: Event) -> None:
        """Empty the queue."""
        run = self.frontier
        saved = run.context.checkpoints.load("frontier", run.context.tree.root)
        if saved is not None:
            self.keys, self.reached, self.borders, self.window, self.settled, self.visits = saved
        elif (starts := run.problem.starts(run.context.tree.tile)) is None:
            self._look_everywhere(workers, handle, cancelled)
            if not np.isfinite(self.keys).any():
                raise InputError(
                    f"sources: {run.problem.name} starts nowhere: no cell of the raster of sources "
                    "is a source on a passable cell; check its values, nodata and target_values"
                )
        else:
            for tile, key in starts.items():
                self.keys[tile] = key
        if self.keys.size == 1:
            self.window.bucket_width = math.inf
        last_save = time.monotonic()
        pending: dict[Any, tuple[Any, list[Tile]]] = {}
        while True:
            for home in workers.idle():
                tiles = self._choose(workers, home)
                if tiles:
                    bound = self.window.above(self._front())
                    tiles += self._beside(tiles, workers)
                    requests = [self._request(t, float(self.keys[t])) for t in tiles]
                    for tile in tiles:
                        self.away[tile] = True
                        self.flying[tile], self.keys[tile] = self.keys[tile], math.inf
                    future = workers.submit(home, "visit", visit_tiles, handle, requests, bound)
                    pending[future] = home, tiles
                    self.window.tasks += not workers.shared
                elif pending and np.isfinite(self.keys).any():
                    self.window.starved += all(home != other for other, _ in pending.values())
            if not pending:
                if not np.isfinite(self.keys).any():
                    self._save()
                    return
                if workers.idle():
                    raise RunError(f"{run.problem.name}: there is work, but none was taken up")
            for future, visits in workers.next_done(cancelled):
                for tile in pending.pop(future)[1]:
                    self._take_back(tile, visits.get(tile))
            self.window.adapt()
            if time.monotonic() - last_save > SECONDS_BETWEEN_CHECKPOINTS:
                self._save()
                last_save = time.monotonic()

    def _look_everywhere(self, workers: Executor, handle: Any, cancelled: Event) -> None:
        """Visit every tile without improving anything, to learn what starts where."""
        todo = [(i, j) for i, j in np.ndindex(self.keys.shape)]
        under_way = 0
        while todo or under_way:
            for home in workers.idle():
                mine = [t for t in todo if workers.serves(home, self._home_of_tile(*t))]
                mine = mine[: min(workers.share(home, len(mine)), TILES_A_TASK)]
                if mine:
                    todo = [t for t in todo if t not in set(mine)]
                    requests = [self._request(tile, -math.inf) for tile in mine]
                    workers.submit(home, "look", visit_tiles, handle, requests, -1.0)
                    under_way += 1
            for _, visits in workers.next_done(cancelled):
                under_way -= 1
                for tile, visit in visits.items():
                    self.keys[tile] = visit.pending

    def write(self, workers: Executor, handle: Any, cancelled: Event) -> dict[str, Any]:
        """Write all shards, each where most of its states are."""
        frontier = self.frontier
        sums: dict[str, float] = {}
        todo = list(frontier.context.tree.nodes(frontier.context.shard_level))
        under_way = 0
        while todo or under_way:
            for home in workers.idle() if todo else ():
                near = (n for n in todo if workers.serves(home, self._home_of(n)))
                node = next(near, todo[0])
                todo.remove(node)
                tiles = [
                    morton_decode(tile.z) for tile in frontier.context.tree.nodes(0, within=node)
                ]
                requests = [self._request(tile, math.inf) for tile in tiles]
                workers.submit(home, "write", finish_shard, handle, node, requests)
                under_way += 1
                if not todo:
                    break
            for _, counts in workers.next_done(cancelled):
                under_way -= 1
                for name, count in counts.items():
                    sums[name] = sums.get(name, 0) + count
        shards = frontier.context.tree.count(frontier.context.shard_level)
        if frontier.context.checkpoints.count("done", frontier.context.shard_level) != shards:
            raise RunError(f"{frontier.problem.name}: not all of {shards} shards were written")
        return frontier.problem.attributes(sums)

    def progress(self) -> Progress:
        active = int((np.isfinite(self.keys) | np.isfinite(self.flying)).sum())
        reached = int((self.reached > 0).sum())
        done = max(reached - active, 0)
        return FrontierProgress(done, self.keys.size, self._front(), active)

    def _front(self) -> float:
        """The least value that is still open: all below it are final."""
        return float(min(self.keys.min(), self.flying.min()))

    def _choose(self, workers: Executor, home: Any) -> list[Tile]:
        """The tiles of a worker that lie in the window, least key first."""
        if self.window.bucket_width == 0.0:
            # nothing is known of this surface yet: one tile, to the end, will tell
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
            if workers.serves(home, self._home_of_tile(i, j))
        ]
        return mine[: min(workers.share(home, len(mine)), TILES_A_TASK)]

    def _beside(self, tiles: list[Tile], workers: Executor) -> list[Tile]:
        """Tiles of the same shards that these may wake: the front is in them or yet to come.

        Threads have no need of them, as any thread may visit any tile at once.
        """
        if workers.shared or not self.window.bucket_width:
            return []
        level = self.frontier.context.shard_level
        ahead = ~self.away & (np.isfinite(self.keys) | (self.reached == 0))
        found = dict.fromkeys(tiles)
        for row, column in {(i >> level, j >> level) for i, j in tiles}:
            corner = row << level, column << level
            part = ahead[tuple(slice(n, n + (1 << level)) for n in corner)]
            found |= dict.fromkeys(
                (corner[0] + i, corner[1] + j) for i, j in np.argwhere(part).tolist()
            )
        return list(found)[len(tiles) : TILES_A_TASK]

    def _home_of_tile(self, row: int, column: int) -> int:
        level = self.frontier.context.shard_level
        return self._home_of(Node(level, morton_encode(row >> level, column >> level)))

    def _home_of(self, node: Node) -> int:
        """A number that tells shards apart so that those along any front have different homes."""
        row, column = morton_decode(node.z)
        # primes beyond any number of workers: rows and columns count, whatever that number is
        return row * 7919 + column * 104729

    def _request(self, tile: Tile, key: float) -> Request:
        """What a worker must know of a tile to visit it."""
        i, j = tile
        halo = [
            None if (border := self.borders.get((i + di, j + dj))) is None else border[OPPOSITE[k]]
            for k, (di, dj) in enumerate(NEIGHBOURS)
        ]
        return Request(tile, key, halo, list(self.borders.get(tile, [None] * 8)))

    def _take_back(self, tile: Tile, visit: Visit | None) -> None:
        """A tile has come back from a task, visited or not."""
        key, self.flying[tile], self.away[tile] = float(self.flying[tile]), math.inf, False
        if visit is None:
            self.keys[tile] = min(self.keys[tile], key)
            return
        first_time = visit.reached - int(self.reached[tile])
        self.window.count(key, visit, first_time)
        self.visits += visit.times
        self.settled += visit.settled
        self.reached[tile] = visit.reached
        self.keys[tile] = min(self.keys[tile], visit.pending)
        border = self.borders.setdefault(tile, [None] * 8)
        rows, columns = self.keys.shape
        for k, (di, dj) in enumerate(NEIGHBOURS):
            if visit.border[k] is not None:
                border[k] = visit.border[k]
            i, j = tile[0] + di, tile[1] + dj
            if 0 <= i < rows and 0 <= j < columns:
                self.keys[i, j] = min(self.keys[i, j], visit.outward[k])

    def _save(self) -> None:
        keys = np.minimum(self.keys, self.flying)
        entry = keys, self.reached, self.borders, self.window, self.settled, self.visits
        self.frontier.context.checkpoints.save("frontier", self.frontier.context.tree.root, entry)
