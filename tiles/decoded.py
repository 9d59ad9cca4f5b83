"""Parts of tiles decoded lately, for readers that come back for another part of them.

Whoever reads a tile with a halo needs a row or a corner of each neighbour, and has to decode them
whole: nine tiles for one. So the sides of every tile that was decoded for a part of it are kept,
and the tile itself if it is small. An entry is known by its file as it was when it was opened: a
shard that is replaced is another one.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from threading import Lock
from typing import Any

from numpy.typing import NDArray

from orograph.tiles.grid import Window

LIMIT_BYTES = 64 * 2**20  # of a process, whatever the raster's size
SIDE = 2  # cells: no edge of a graph goes farther

Cells = NDArray[Any]
FileState = tuple[int, int, int, int]


def file_state(file: int) -> FileState:
    """What tells an opened file from whatever had or will have its name."""
    status = os.fstat(file)
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


class DecodedTiles:
    """Parts of square tiles up to a number of bytes, the least recently used out first.

    Parameters
    ----------
    limit : int
        Bytes. Of a tile larger than a sixteenth of it only the sides are kept.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._parts: OrderedDict[tuple[FileState, int, Window], Cells] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, state: FileState, begin: int, side: int, part: Window) -> Cells | None:
        """Cells of the tile whose bytes begin there in a file, if kept; not to be written to."""
        with self._lock:
            for window in (Window(0, 0, side, side), *_sides(side)):
                key = state, begin, window
                if key in self._parts and _contains(window, part):
                    self._parts.move_to_end(key)
                    return self._parts[key][part.within(window)]
        return None

    def put(self, state: FileState, begin: int, cells: Cells) -> None:
        """Keep a tile or its sides; nobody may write to it from now on."""
        side = len(cells)
        if 16 * cells.nbytes <= self.limit:
            kept = [(Window(0, 0, side, side), cells)]
        else:
            kept = [(window, cells[window.slices].copy()) for window in _sides(side)]
        with self._lock:
            for window, part in kept:
                if (state, begin, window) not in self._parts and part.nbytes <= self.limit:
                    self._parts[state, begin, window] = part
                    self._bytes += part.nbytes
            while self._bytes > self.limit:
                _, oldest = self._parts.popitem(last=False)
                self._bytes -= oldest.nbytes


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


TILES = DecodedTiles(LIMIT_BYTES)
