"""Parts of tiles decoded lately, for readers that come back for another part of them.

Whoever reads a tile with a halo needs a row or a corner of each neighbour, and has to decode them
whole: nine tiles for one. So the sides of every tile that was decoded for a part of it are kept,
and the tile itself if it is small. An entry is known by its object as it was when it was opened: a
shard that is replaced is another one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any

from numpy.typing import NDArray

from orograph.tiles.grid.window import Window
from orograph.tiles.store.storage import State

LIMIT_BYTES = 64 * 2**20  # of a process, whatever the raster's size
SIDE = 2  # cells: no edge of a graph goes farther

Cells = NDArray[Any]


class _ArrayCache:
    """Arrays up to a number of bytes, the least recently used out first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._arrays: OrderedDict[Hashable, Cells] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable) -> Cells | None:
        if key in self._arrays:
            self._arrays.move_to_end(key)
        return self._arrays.get(key)

    def put(self, key: Hashable, cells: Cells) -> None:
        if key in self._arrays or cells.nbytes > self.limit:
            return
        self._arrays[key] = cells
        self._bytes += cells.nbytes
        while self._bytes > self.limit:
            self._bytes -= self._arrays.popitem(last=False)[1].nbytes


class DecodedTileCache:
    """Square tiles, and the sides of many more, up to a number of bytes.

    Parameters
    ----------
    limit : int
        Bytes; three quarters are for tiles, which must not be larger than a sixteenth of it, and
        one for sides.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tiles = _ArrayCache(limit - limit // 4)
        self._sides = _ArrayCache(limit // 4)
        self._lock = Lock()

    def get(self, state: State, begin: int, side: int, part: Window) -> Cells | None:
        """Cells of the tile whose bytes begin there in an object, if kept; not to be written to."""
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
        """Keep a tile or its sides; nobody may write to it from now on."""
        with self._lock:
            for number, window in enumerate(_sides(len(cells))):
                self._sides.put((state, begin, number), cells[window.slices].copy())
            if 16 * cells.nbytes <= self._limit:
                self._tiles.put((state, begin), cells)


def _sides(side: int) -> tuple[Window, ...]:
    """The first and last rows of a tile, and its first and last columns."""
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
