"""Cache of decoded tiles of which only a part was needed, since other parts soon will be.

A tile with its halo needs a row, a column or a corner of each neighbour, which must be decoded
whole: nine tiles for one. The cache keeps the sides of every tile that was decoded for a part of
it, and the whole tile if it is small. Its keys contain the state of the shard, so tiles of a shard
that has been replaced are never returned.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any

from numpy.typing import NDArray

from orograph.tiles.grid.window import Window
from orograph.tiles.storage import State

LIMIT_BYTES = 64 * 2**20  # per process, whatever the size of the raster
SIDE = 2  # cells: no edge of a graph is longer, in rows or columns

Cells = NDArray[Any]


class ArrayCache:
    """Least recently used cache of arrays, limited in bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._arrays: OrderedDict[Hashable, Cells] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable) -> Cells | None:
        """Return the array of a key, which must not be changed, or None."""
        if key in self._arrays:
            self._arrays.move_to_end(key)
        return self._arrays.get(key)

    def put(self, key: Hashable, cells: Cells) -> None:
        """Add an array, unless it is larger than the cache; drop the least recently used."""
        if key in self._arrays or cells.nbytes > self.limit:
            return
        self._arrays[key] = cells
        self._bytes += cells.nbytes
        while self._bytes > self.limit:
            self._bytes -= self._arrays.popitem(last=False)[1].nbytes


class DecodedTileCache:
    """Cache of decoded tiles, and of the border rows and columns of more tiles.

    Parameters
    ----------
    limit : int
        Bytes; three quarters are for tiles, each at most a sixteenth of the limit, and one quarter
        for sides.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tiles = ArrayCache(limit - limit // 4)
        self._sides = ArrayCache(limit // 4)
        self._lock = Lock()

    def get(self, state: State, begin: int, side: int, part: Window) -> Cells | None:
        """Return cached cells of a tile, which must not be changed, or None.

        None if they are not in the cache.
        """
        with self._lock:
            cells = self._tiles.get((state, begin))
            if cells is not None:
                return cells[part.slices]
            for number, window in enumerate(_sides(side)):
                if _contains(window, part):
                    cells = self._sides.get((state, begin, number))
                    if cells is not None:
                        return cells[part.within(window)]
        return None

    def put(self, state: State, begin: int, cells: Cells) -> None:
        """Add a tile, or only its border if it is large; it must not be changed later."""
        with self._lock:
            for number, window in enumerate(_sides(len(cells))):
                # Copies: a view of a side would keep the whole tile in memory.
                self._sides.put((state, begin, number), cells[window.slices].copy())
            if 16 * cells.nbytes <= self._limit:
                self._tiles.put((state, begin), cells)


def _sides(side: int) -> tuple[Window, ...]:
    """Return the windows of the first and last rows, and the first and last columns, of a tile."""
    width = min(SIDE, side)
    far = side - width
    return (
        Window(0, 0, width, side),
        Window(far, 0, width, side),
        Window(0, 0, side, width),
        Window(0, far, side, width),
    )


def _contains(outer: Window, inner: Window) -> bool:
    return (
        outer.y <= inner.y
        and outer.x <= inner.x
        and inner.y + inner.height <= outer.y + outer.height
        and inner.x + inner.width <= outer.x + outer.width
    )


TILE_CACHE = DecodedTileCache(LIMIT_BYTES)
