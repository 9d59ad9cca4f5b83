"""The states of tiles in a worker's memory: a cache with a limit, least recently used out first.

What is put out is packed and spilled by its owner; so a run needs no more memory than it is given,
and less of it only means more reading.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any

Tile = tuple[int, int]


class StateCache:
    """States by tile, up to a number of bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._states: OrderedDict[Tile, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def take(self, tile: Tile) -> Any:
        """The state of a tile, no longer in the cache; None if it is not there."""
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


_caches: dict[str, StateCache] = {}
_lock = Lock()


def cache_of(token: str, limit: Callable[[], int | None] = lambda: None) -> StateCache:
    """The cache of a run in this process; ``limit`` tells its bytes where it is not memory here."""
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
    """Half the memory a worker may use, or half the machine's where there is no worker."""
    import psutil
    from distributed import get_worker

    try:
        limit = get_worker().memory_manager.memory_limit
    except ValueError:
        limit = None
    return int((limit or psutil.virtual_memory().total) * 0.5)
