"""Cache of tile states on a worker between visits; the least recently used go to disk.

A state that has to go is packed and spilled to the run's checkpoints; so a run needs no more memory
than it is given, and less of it only means more reading. States take what the run leaves of the
share of a worker's memory beyond which Dask pauses it; a worker that is paused all the same puts
all of them on disk, and keeps fewer from then on. Others are saved there now and then, so that not
all is lost if all processes are killed. A worker that is closed, but not killed, saves what it has
before it ends.

A state is no more than a cache. Values only ever improve and each is that of a real path, so any
older state is a valid start, and a tile whose state is lost is rebuilt from its sources and its
neighbours' borders. So a worker may die at any moment, states may be spilled or dropped, and the
fixpoint is the same to the bit.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields
from functools import partial
from threading import Condition, Lock
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import psutil

from orograph.engines.parts import parts_of, read_parts
from orograph.kernels.backends import get_backend
from orograph.run.cluster.workers import return_freed_memory
from orograph.run.context import RunContext
from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError, OrographError
from orograph.tiles.grid.quadtree import Node, Place, morton_encode
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.interface import Raster, read_frame
from orograph.tiles.store.decoded_cache import LIMIT_BYTES
from orograph.tiles.system import memory_limit

Tile = tuple[int, int]

LOG = logging.getLogger(__name__)
CELLS_A_BAND = 2**22
SAVING = 0.05
"""Fraction of the time of visits that may be spent on saving states."""
SECONDS_A_BYTE = 1e-9
"""Time to save a byte of a state; a guess until one has been saved."""
MOST_SECONDS_A_BYTE = 1e-8
"""Bound on the measured time to save a byte, so that one slow moment does not end saving."""
SECONDS_AT_END = 10.0
"""Time in which a worker that is closed may save states."""
SECONDS_BETWEEN_LOOKS = 0.5
"""Interval between checks of whether Dask has paused the worker."""
PLUGIN = "orograph-states"

State = TypeVar("State")
Packed = TypeVar("Packed")
"""Part of a state that is saved on disk."""


class TileProblem(Protocol[State, Packed]):
    """Interface of a problem that keeps a state for each tile."""

    @property
    def halo_width(self) -> int:
        """Width of the halo of a tile in cells."""

    @property
    def backend(self) -> str:
        """Backend that computes the tiles: ``"numba"`` or ``"cuda"``."""

    def check(self, cells: Sequence[Array], frame: Window) -> None:
        """Raise InputError naming the first cell whose value the problem cannot use."""

    @property
    def accept(self) -> Callable[[Sequence[Any], Window], bool] | None:
        """A function that says of cells on a GPU, in a window, whether `check` accepts them.

        It may be false for some that are accepted. None: there is none, and cells come from here.
        """

    def open(self, place: Place, cells: Sequence[Any], frame: Window) -> State:
        """Return the initial state of a tile; ``cells`` cover the window ``frame``.

        They may lie in the memory of the backend.
        """

    def pack(self, state: State) -> Packed:
        """Return the part of a state to save on disk."""

    def unpack(self, state: State, packed: Packed) -> None:
        """Restore a saved part into a newly opened state."""

    def size(self, state: State) -> int:
        """Return the bytes of memory that a state occupies."""

    def memory(self) -> int | None:
        """Return the bytes that all states may use; None: see `room_for_states`."""


class OnBackend(Protocol):
    """Anything computed by a backend."""

    @property
    def backend(self) -> str:
        """``"numba"`` or ``"cuda"``."""


class TileDefaults:
    """Default members of `TileProblem` for problems to inherit."""

    kept: ClassVar[tuple[str, ...]] = ()
    """Attributes of a state that are kept on disk; the others are made anew when it is opened."""

    @property
    def halo_width(self) -> int:
        """Width of the halo of a tile in cells."""
        return 1

    def check(self, cells: Sequence[Array], frame: Window) -> None:
        """Accept any cells."""

    @property
    def accept(self) -> Callable[[Sequence[Any], Window], bool] | None:
        """None: cells are checked by this process."""
        return None

    def pack(self, state: Any) -> Any:
        """Return the attributes named in ``kept`` as a tuple."""
        return tuple(getattr(state, name) for name in self.kept)

    def unpack(self, state: Any, packed: Any) -> None:
        """Restore the attributes named in ``kept``."""
        for name, value in zip(self.kept, packed, strict=True):
            setattr(state, name, value)

    def size(self, state: Any) -> int:
        """Return the bytes of all arrays of a state, which is a dataclass."""
        return _bytes_of(getattr(state, part.name) for part in fields(state))

    def memory(self: OnBackend) -> int | None:
        """Return the bytes that all states may use: on a GPU, part of its memory."""
        return get_backend(self.backend).tile_memory_limit()


def _bytes_of(values: Iterable[Any]) -> int:
    """Return the total bytes of arrays, including those in nested lists and tuples."""
    return sum(
        _bytes_of(value) if isinstance(value, list | tuple) else int(getattr(value, "nbytes", 0))
        for value in values
    )


class StateCache:
    """Least-recently-used cache of tile states, limited in bytes; None: not limited yet."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._caches = 1
        self._states: OrderedDict[Tile, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._rooms: dict[Tile, int] = {}
        self._lock = Lock()
        self._freed = Condition(self._lock)
        self.strips: dict[Tile, list[tuple[int, Any]]] = {}
        """Strips around each tile and its own, as they were last sent, with their names."""
        self._unsaved: Counter[Tile] = Counter()
        self._seconds_left = 0.0
        self._seconds_a_byte = SECONDS_A_BYTE
        self.save: Callable[[Tile, object], None] | None = None
        """Function that saves a state; None before there is one."""

    def divide(self, caches: int) -> None:
        """Leave this cache its part of the bytes that so many may use together."""
        self._caches = caches
        if self.limit is not None:
            self.set_limit(self.limit)

    def set_limit(self, limit: int) -> None:
        """Set the bytes that this cache, and those beside it, may use."""
        self.limit = limit // self._caches

    def take(self, tile: Tile) -> Any:
        """Remove and return the state of a tile; None if it is not there."""
        with self._lock:
            state, size = self._states.pop(tile, (None, 0))
            self._bytes -= size
        return state

    def put(
        self, tile: Tile, state: object, size: int, spill: Callable[[Tile, object], None]
    ) -> None:
        """Add a state; call ``spill`` with the oldest states that no longer fit."""
        with self._lock:
            self._states[tile] = state, size
            self._bytes += size
        self._spill_surplus(spill)

    @contextmanager
    def room(self, tile: Tile, size: int, spill: Callable[[Tile, object], None]) -> Iterator[None]:
        """Context of work on a tile that takes ``size`` bytes, its state among them.

        It begins when those at work leave as many, or there are none, and states that no longer fit
        have been given to ``spill``.
        """
        with self._freed:
            self._freed.wait_for(lambda: self._has_room(size))
            self._rooms[tile] = size
        try:
            self._spill_surplus(spill)
            yield
        finally:
            with self._freed:
                del self._rooms[tile]
                self._freed.notify_all()

    def _has_room(self, size: int) -> bool:
        at_work = sum(self._rooms.values())
        return not at_work or self.limit is None or at_work + size <= self.limit

    def _spill_surplus(self, spill: Callable[[Tile, object], None]) -> None:
        """Call ``spill`` with the oldest states that do not fit beside the tiles at work."""
        out = []
        with self._lock:
            # the room of a tile at work is for its state too
            taken = self._bytes + sum(
                room - self._states.get(tile, (None, 0))[1] for tile, room in self._rooms.items()
            )
            for tile in [tile for tile in self._states if tile not in self._rooms]:
                if self.limit is None or taken <= self.limit:
                    break
                state, size = self._states.pop(tile)
                self._bytes -= size
                taken -= size
                out.append((tile, state))
        # Outside the lock: writing takes long, and other threads need the cache meanwhile. A state
        # that alone exceeds the limit is among them.
        while out:
            spill(*out.pop(0))

    def save_some(
        self,
        settled: Mapping[Tile, int],
        seconds: float,
        least: Callable[[Tile], int],
    ) -> None:
        """Save recently visited states, spending at most the share `SAVING` of visit time.

        Those that have changed most come first. A state that takes longer than is left waits: one
        tile that is all of a grid, on a GPU, is settled in less time than saving it takes.

        Parameters
        ----------
        settled : mapping
            Cells settled in each tile; nobody else visits these meanwhile.
        seconds : float
            Time that the visits took.
        least : callable
            Cells that must have been settled in a tile since it was saved.
        """
        with self._lock:
            self._unsaved.update(settled)
            self._seconds_left += SAVING * seconds
            tiles = sorted(settled, key=lambda tile: -self._unsaved[tile])
        for tile in tiles:
            with self._lock:
                _, size = self._states.get(tile, (None, 0))
                expected = size * self._seconds_a_byte
                # Those that follow have changed less.
                if self._unsaved[tile] < least(tile) or self._seconds_left <= expected:
                    return
            taken = self._save(tile)
            with self._lock:
                self._seconds_left -= taken

    def save_all(self, deadline: float) -> None:
        """Save all states that changed since their last save, until ``deadline``.

        Those that have changed most come first. Visits that go on meanwhile do no harm: what they
        have taken out is not saved.
        """
        with self._lock:
            tiles = self._unsaved.most_common()
        for tile, _ in tiles:
            if time.monotonic() >= deadline:
                return
            self._save(tile)

    def put_aside(self) -> None:
        """Save all states and drop them; keep half as many bytes of them from now on."""
        with self._lock:
            if not self._states or self.save is None:
                return
            self.limit = self._bytes // 2
            tiles = list(self._states)
        for tile in tiles:
            state = self.take(tile)
            if state is not None:
                self.save(tile, state)

    def _save(self, tile: Tile) -> float:
        """Save the state of a tile if it is cached; return the seconds it took."""
        with self._lock:
            state, size = self._states.pop(tile, (None, 0))
            self._unsaved.pop(tile, None)
        if state is None or self.save is None:
            return 0.0
        # While it is saved, the state is out of the cache, so that no visit changes it. Its bytes
        # stay counted, since it comes back.
        begin = time.perf_counter()
        self.save(tile, state)
        taken = time.perf_counter() - begin
        with self._lock:
            self._states[tile] = state, size
            if size:
                self._seconds_a_byte = min(taken / size, MOST_SECONDS_A_BYTE)
        return taken


@dataclass(frozen=True)
class TileStates:
    """Access to the tile states of a run: from the cache, from disk, or newly opened."""

    problem: TileProblem[Any, Any]
    rasters: tuple[Raster, ...]
    context: RunContext

    def room(self, tile: Tile, gpu_bytes: int) -> AbstractContextManager[None]:
        """Return a context of work on a tile, given the bytes of a GPU that it takes; 0 on CPUs.

        What takes the tile has to let go of it within.
        """
        return self.cache.room(tile, gpu_bytes, self._spill) if gpu_bytes else nullcontext()

    def take(self, tile: Tile) -> Any:
        """Remove the state of a tile from the cache, or load or create it, and return it."""
        state = self.cache.take(tile)
        if state is not None:
            return state
        place, halo = self.place(tile), self.problem.halo_width
        window = place.window
        frame = self.context.quadtree.frame(window, halo)
        try:
            cells = self._read(window, frame)
        except InputError as error:
            raise first_refusal(self._check, self.context.quadtree.shape, frame) or error from None
        state = self.problem.open(place, cells, frame)
        packed = self.context.checkpoints.load("state", place.node)
        if packed is not None:
            self.problem.unpack(state, packed)
        return state

    def _read(self, window: Window, frame: Window) -> list[Any]:
        """Read and check the cells of a window with halo; on a GPU, large ones in parts."""
        backend = get_backend(self.problem.backend)
        if devices := backend.devices():
            stored = next((raster.tile for raster in self.rasters if raster.tile), None)
            parts = parts_of(window, frame, stored)
            if len(parts) > 1:
                problem = self.problem
                checks = problem.check, problem.accept
                return read_parts(devices[0], backend, self.rasters, parts, frame, *checks)
        found = {raster: read_frame(raster, frame) for raster in self.rasters}  # each once
        cells = [found[raster] for raster in self.rasters]
        self.problem.check(cells, frame)
        return cells

    def keep(self, tile: Tile, state: object) -> None:
        """Return a state to the cache; move the states that no longer fit to disk."""
        cache, size = self.cache, self.problem.size(state)
        # The first state in this process: only now is it known how large states are.
        if cache.save is None:
            cache.save = partial(self._spill, compressed=False)
            if cache.limit is None:
                cache.set_limit(room_for_states(size, self._working(size)))
            attend_worker()
        cache.put(tile, state, size, self._spill)

    def _working(self, size: int) -> int:
        """Return the bytes to work on a tile whose state has ``size`` bytes, and to write it."""
        tree = self.context.quadtree
        tile, shard = (tree.window(Node(level, 0)).size for level in (0, self.context.shard_level))
        itemsize = sum(raster.bytes_per_cell for raster in self.rasters)
        written = sum(np.dtype(v.dtype).itemsize for v in getattr(self.problem, "outputs", ()))
        # The cache of decoded tiles grows to its limit, or until it holds all rasters.
        return min(LIMIT_BYTES, tree.window(tree.root).size * itemsize) + bytes_at_work(
            tile, size / tile, itemsize, shard, written
        )

    def save_some(self, settled: Mapping[Tile, int], seconds: float) -> None:
        """Save states of visited tiles, spending at most the share `SAVING` of visit time.

        ``settled`` gives the cells that were settled in each. Nobody else may visit them meanwhile.
        """
        if self.context.checkpoints.lasting:
            half = {tile: self.place(tile).window.size // 2 for tile in settled}
            self.cache.save_some(settled, seconds, half.__getitem__)

    def drop(self, tile: Tile) -> None:
        """Delete the saved state of a tile from disk."""
        self.context.checkpoints.drop("state", self.place(tile).node)

    def place(self, tile: Tile) -> Place:
        """Return the tree node and grid window of a tile."""
        return self.context.tree.place(Node(0, morton_encode(*tile)))

    @property
    def cache(self) -> StateCache:
        """The state cache of this run in this process."""
        return cache_of(self.context.token, self.problem.memory)

    def _spill(self, tile: Tile, state: object, *, compressed: bool = True) -> None:
        LOG.debug("the state of tile %s is put on disk, to make room", tile)
        packed, node = self.problem.pack(state), self.place(tile).node
        self.context.checkpoints.save("state", node, packed, compressed=compressed)

    def _check(self, window: Window) -> None:
        """Raise InputError if the cells of a window cannot be used."""
        self.problem.check([read_frame(raster, window) for raster in self.rasters], window)


def first_refusal(
    check: Callable[[Window], Any], shape: tuple[int, int], where: Window
) -> InputError | None:
    """Return the error of the first invalid cell in row order, whichever tile found one.

    ``check`` refuses windows that have a fault, such as ``where``.
    """
    rows = max(1, CELLS_A_BAND // shape[1])
    for y in range(0, where.y + where.height, rows):
        try:
            check(Window(y, 0, rows, shape[1]).clip(shape))
        except InputError as error:
            return error
    return None


_caches: dict[str, StateCache] = {}
_lock = Lock()


def cache_of(token: str, limit: Callable[[], int | None] = lambda: None) -> StateCache:
    """Return the state cache of a run in this process, creating it with ``limit()`` bytes."""
    with _lock:
        if token not in _caches:
            _caches[token] = StateCache(limit())
        return _caches[token]


def forget(token: str) -> None:
    """Delete the state cache of a run in this process."""
    with _lock:
        _caches.pop(token, None)


def attend_worker() -> None:
    """Register a plugin that saves states when this Dask worker is paused, or closes."""
    if "distributed" not in sys.modules:  # slow to import, and there in every worker
        return
    from distributed import Status, Worker, WorkerPlugin, get_worker

    class SaveStates(WorkerPlugin):
        """Dask plugin that puts tile states on disk when the worker is paused, or closes."""

        async def setup(self, worker: Worker) -> None:
            self._looking = asyncio.create_task(self._look(worker))

        async def _look(self, worker: Worker) -> None:
            while True:
                # In a thread, since saving takes long and the event loop has to answer the
                # scheduler.
                if worker.status is Status.paused:
                    await asyncio.to_thread(put_all_aside)
                await asyncio.sleep(SECONDS_BETWEEN_LOOKS)

        async def teardown(self, worker: Worker) -> None:
            self._looking.cancel()
            await asyncio.to_thread(save_all_states)

    with suppress(ValueError):  # not in a worker
        worker: Any = get_worker()
        if PLUGIN not in worker.plugins:
            # This is a thread of a task: plugins are added by the worker's event loop.
            worker.loop.add_callback(worker.plugin_add, SaveStates(), PLUGIN)


def put_all_aside() -> None:
    """Put the tile states of all runs in this process on disk, and return their memory."""
    with _lock:
        caches = list(_caches.values())
    for cache in caches:
        with suppress(OSError, OrographError):  # of a run that has ended the folder is gone
            cache.put_aside()
    return_freed_memory()


def save_all_states() -> None:
    """Save the tile states of all runs in this process, within `SECONDS_AT_END`."""
    deadline = time.monotonic() + SECONDS_AT_END
    with _lock:
        caches = list(_caches.values())
    for cache in caches:
        with suppress(OSError, OrographError):  # of a run that has ended the folder is gone
            cache.save_all(deadline)


def bytes_at_work(tile: int, state: float, itemsize: int, shard: int, written: int) -> int:
    """Return the bytes a worker needs to work on a tile and to write a shard.

    ``tile`` and ``shard`` are their cells; ``state``, ``itemsize`` and ``written`` are the bytes of
    a cell in a state, in the rasters that are read, and in those that are written.
    """
    return int(tile * (2 * itemsize + 24 + state) + shard * 3 * written)


def room_for_states(size: int, working: int) -> int:
    """Return the bytes that the states of a run may use in this process.

    They are half of the memory limit of the worker, or less: what its process holds now, with a
    state of ``size`` bytes, and the ``working`` bytes of each of its threads must not pass the
    share at which Dask pauses it. Without a limit, half of the memory of this process.
    """
    if "distributed" in sys.modules:  # slow to import, and there in every worker
        from distributed import get_worker

        with suppress(ValueError):  # not in a worker
            worker: Any = get_worker()
            manager = worker.memory_manager
            if limit := manager.memory_limit:
                return_freed_memory()
                # Without the freed memory that malloc kept, and without the first state, which is
                # in the cache.
                held = psutil.Process().memory_info().rss - size
                left = (manager.memory_pause_fraction or 1.0) * limit - held
                room = left - worker.state.nthreads * working
                return int(min(max(room, 0), limit / 2))
    return memory_limit() // 2
