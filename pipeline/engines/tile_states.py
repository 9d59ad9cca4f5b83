"""The tile-state cache: what a worker knows of tiles between visits, least recently used out first.

A state that has to go is packed and spilled to the run's checkpoints; so a run needs no more memory
than it is given, and less of it only means more reading. Others are saved there now and then, so
that not all is lost if all processes are killed.

A state is no more than a cache. Values only ever improve and each is that of a real path, so any
older state is a valid start, and a tile whose state is lost is rebuilt from its sources and its
neighbours' borders. So a worker may die at any moment, states may be spilled or dropped, and the
fixpoint is the same to the bit.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Protocol

import numpy.typing as npt

from orograph.engines.parts import parts_of, read_parts
from orograph.execution.context import RunContext
from orograph.kernels.backends import get_backend
from orograph.tiles.errors import InputError
from orograph.tiles.grid.quadtree import Node, Place, morton_encode
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import Raster

Array = npt.NDArray[Any]
Tile = tuple[int, int]

CELLS_A_BAND = 2**22
SAVING = 0.05
"""Part of the time of visits that may be taken to save states."""


class TileProblem(Protocol):
    """Interface of a problem that keeps a state for each tile."""

    @property
    def halo_width(self) -> int:
        """Width of the halo of a tile in cells."""

    @property
    def backend(self) -> str:
        """Backend that computes the tiles: ``"numba"`` or ``"cuda"``."""

    def check(self, cells: Sequence[Array], frame: Window) -> None:
        """Refuse cells that cannot be worked with by an `InputError` that names the first."""

    def open(self, place: Place, cells: Sequence[Any], frame: Window) -> Any:
        """Return the state of a tile before anything has reached it; ``cells`` show ``frame``.

        They may lie in the memory of the backend.
        """

    def pack(self, state: Any) -> Any:
        """Return the part of a state that is kept on disk."""

    def unpack(self, state: Any, packed: Any) -> None:
        """Put back into a newly opened state what was packed."""

    def size(self, state: Any) -> int:
        """Return the bytes that a state takes in memory."""

    def memory(self) -> int | None:
        """Return the bytes that states may take; None: half of what the worker may use."""


class StateCache:
    """A cache of states by tile, up to a number of bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._states: OrderedDict[Tile, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()
        self.strips: dict[Tile, list[tuple[int, Any]]] = {}
        """The strips around each tile and its own, as they were last sent, with their names."""
        self._unsaved: Counter[Tile] = Counter()
        self._seconds_left = 0.0

    def take(self, tile: Tile) -> Any:
        """Remove and return the state of a tile; None if it is not there."""
        with self._lock:
            state, size = self._states.pop(tile, (None, 0))
            self._bytes -= size
        return state

    def put(self, tile: Tile, state: Any, size: int, spill: Callable[[Tile, Any], None]) -> None:
        """Keep a state; ``spill`` is called with those that have to go for it."""
        out = []
        with self._lock:
            self._states[tile] = state, size
            self._bytes += size
            while self._bytes > self.limit and self._states:
                oldest, (other, freed) = self._states.popitem(last=False)
                self._bytes -= freed
                out.append((oldest, other))
        for oldest, other in out:
            spill(oldest, other)

    def save_some(
        self,
        settled: Mapping[Tile, int],
        seconds: float,
        least: Callable[[Tile], int],
        save: Callable[[Tile, Any], None],
    ) -> None:
        """Save some of the states that were visited, at most `SAVING` of the time of all visits.

        Those that have changed most come first.

        Parameters
        ----------
        settled : mapping
            Cells settled in each tile; nobody else visits these meanwhile.
        seconds : float
            Time that the visits took.
        least : callable
            Cells that must have been settled in a tile since it was saved.
        save : callable
            Saves a state.
        """
        with self._lock:
            self._unsaved.update(settled)
            self._seconds_left += SAVING * seconds
            tiles = sorted(settled, key=lambda tile: -self._unsaved[tile])
        for tile in tiles:
            with self._lock:
                if self._unsaved[tile] < least(tile) or self._seconds_left <= 0:
                    return
                state, size = self._states.pop(tile, (None, 0))
                del self._unsaved[tile]
            if state is None:
                continue
            begin = time.perf_counter()
            save(tile, state)
            with self._lock:
                self._seconds_left -= time.perf_counter() - begin
                self._states[tile] = state, size


@dataclass(frozen=True)
class TileStates:
    """The states of a run's tiles in this process: cached, read from disk, or opened."""

    problem: TileProblem
    rasters: tuple[Raster, ...]
    context: RunContext

    def take(self, tile: Tile) -> Any:
        """Return the state of a tile, for this visit alone until it is kept."""
        state = self.cache.take(tile)
        if state is not None:
            return state
        place, halo = self.place(tile), self.problem.halo_width
        window = place.window
        frame = Window(
            window.y - halo, window.x - halo, window.height + 2 * halo, window.width + 2 * halo
        ).clip(self.context.quadtree.shape)
        try:
            cells = self._read(window, frame)
        except InputError as error:
            raise self._first_refusal(frame) or error from None
        state = self.problem.open(place, cells, frame)
        packed = self.context.checkpoints.load("state", place.node)
        if packed is not None:
            self.problem.unpack(state, packed)
        return state

    def _read(self, window: Window, frame: Window) -> list[Any]:
        """Return the cells of a frame, checked: in the memory of a GPU, if there are many."""
        backend = get_backend(self.problem.backend)
        if devices := backend.devices():
            stored = next((raster.tile for raster in self.rasters if raster.tile), None)
            parts = parts_of(window, frame, stored)
            if len(parts) > 1:
                rasters, check = self.rasters, self.problem.check
                return read_parts(devices[0], backend, rasters, parts, frame, check)
        cells = [raster.read(frame) for raster in self.rasters]
        self.problem.check(cells, frame)
        return cells

    def keep(self, tile: Tile, state: Any) -> None:
        """Put a state into the cache; spill the states that no longer fit."""
        self.cache.put(tile, state, self.problem.size(state), self._spill)

    def save_some(self, settled: Mapping[Tile, int], seconds: float) -> None:
        """Save states of tiles after visits that took some seconds, at most `SAVING` of the time.

        ``settled`` gives the cells that were settled in each. Nobody else may visit them meanwhile.
        """
        if self.context.checkpoints.lasting:
            half = {tile: self.place(tile).window.size // 2 for tile in settled}
            save = partial(self._spill, compressed=False)
            self.cache.save_some(settled, seconds, half.__getitem__, save)

    def drop(self, tile: Tile) -> None:
        """Forget the saved state of a tile."""
        self.context.checkpoints.drop("state", self.place(tile).node)

    def place(self, tile: Tile) -> Place:
        """Return the place of a tile in the grid."""
        return self.context.tree.place(Node(0, morton_encode(*tile)))

    @property
    def cache(self) -> StateCache:
        """The run's cache in this process."""
        return cache_of(self.context.token, self.problem.memory)

    def _spill(self, tile: Tile, state: Any, *, compressed: bool = True) -> None:
        packed, node = self.problem.pack(state), self.place(tile).node
        self.context.checkpoints.save("state", node, packed, compressed=compressed)

    def _first_refusal(self, frame: Window) -> InputError | None:
        """Return the error of the first cell of the grid: which tile finds a fault is chance."""
        shape = self.context.quadtree.shape
        rows = max(1, CELLS_A_BAND // shape[1])
        for y in range(0, frame.y + frame.height, rows):
            band = Window(y, 0, rows, shape[1]).clip(shape)
            try:
                self.problem.check([raster.read(band) for raster in self.rasters], band)
            except InputError as error:
                return error
        return None


_caches: dict[str, StateCache] = {}
_lock = Lock()


def cache_of(token: str, limit: Callable[[], int | None] = lambda: None) -> StateCache:
    """Return the cache of a run in this process; ``limit`` gives its bytes, None: the usual."""
    with _lock:
        if token not in _caches:
            own = limit()
            _caches[token] = StateCache(_limit() if own is None else own)
        return _caches[token]


def forget(token: str) -> None:
    """Drop the cache of a run."""
    with _lock:
        _caches.pop(token, None)


def _limit() -> int:
    """Return half the memory a worker may use, or half the machine's where there is no worker."""
    import psutil

    limit = None
    if "distributed" in sys.modules:  # slow to import, and there in every worker
        from distributed import get_worker

        with suppress(ValueError):
            limit = get_worker().memory_manager.memory_limit
    return int((limit or psutil.virtual_memory().total) * 0.5)
