"""Keys of the tiles, and for which workers there may be something to do.

The driver asks for the least key of all tiles, and for the tiles of a worker that lie in the
window, are yet to be read, or are final. Each stands in a queue, so that no step looks at all
tiles; and a worker for which nothing has changed since it got no task need not be looked at.
"""

from __future__ import annotations

import heapq
import math

import numpy as np

from orograph.engines.frontier.queues import DividedQueue, Tile, TileQueue


class TileKeys:
    """The driver's record of each tile, apart from its border.

    Tiles are divided into as many parts as there are owners; see `Executor.part`.

    Parameters
    ----------
    shape : tuple of int
        Rows and columns of tiles.
    level : int
        Of the quadtree, where the shards are.
    """

    def __init__(self, shape: tuple[int, int], level: int) -> None:
        self.level = level
        self.keys = np.full(shape, math.inf)
        """The least value by which something can improve each tile."""
        self.away = np.zeros(shape, bool)
        """Tiles that a worker may be visiting."""
        self.flying = np.full(shape, math.inf)
        """And the keys that they were taken out with."""
        self.final_at = np.full(shape, math.inf)
        """See `Visit`."""
        self.opened = np.zeros(shape, bool)
        """Tiles that were visited in this session."""
        self.written = np.zeros([-(-n // (1 << level)) for n in shape], bool)
        """Shards that are written, or being written."""
        self.done = np.zeros_like(self.written)
        """Shards of which it is known that they are written."""
        self._open = TileQueue(lambda key, tile: key in (self.keys[tile], self.flying[tile]))
        self.waiting = DividedQueue(self.owner_of_tile, self._waits)
        """Tiles that are not away."""
        self.unread = DividedQueue(
            self.owner_of_tile, lambda key, tile: self._waits(key, tile) and not self.opened[tile]
        )
        """Those of them that were not visited in this session."""
        self._converged = TileQueue(self._converges)
        self.final = DividedQueue(owner_of_shard, self._converges)
        """Shards that nothing can improve any more, and that are not written."""
        self.changed: set[Tile] = set()
        """Tiles of which this has changed since it was last cleared."""
        self.parts = 1
        self.awake = {0}
        """Parts for whose owners there may be something to do."""
        self._asleep: list[tuple[float, int]] = []
        self._wake_at: dict[int, float] = {}

    def owner_of_tile(self, tile: Tile) -> int:
        """Return the number of the shard of a tile."""
        return owner_of_shard(self.shard_of(tile))

    def shard_of(self, tile: Tile) -> Tile:
        """Return row and column of the shard of a tile."""
        return tile[0] >> self.level, tile[1] >> self.level

    def block(self, shard: Tile) -> tuple[slice, slice]:
        """Return the rows and columns of tiles of a shard."""
        rows, columns = (slice(n << self.level, (n + 1) << self.level) for n in shard)
        return rows, columns

    def front(self) -> float:
        """Return the least value that is still open: all below it are final."""
        return self._open.least()

    def lower(self, tile: Tile, key: float) -> None:
        """Lower the key of a tile, if it is above ``key``."""
        if key < self.keys[tile]:
            self.keys[tile] = key
            self.changed.add(tile)
            self._queue(tile, key)

    def take_out(self, tile: Tile) -> None:
        """Take note that a tile is visited."""
        self.away[tile] = True
        self.flying[tile], self.keys[tile] = self.keys[tile], math.inf

    def put_back(self, tile: Tile, pending: float) -> None:
        """Take note that a tile is no longer visited; by ``pending`` it can still be improved."""
        self.flying[tile], self.away[tile] = math.inf, False
        self.changed.add(tile)
        self.keys[tile] = key = min(float(self.keys[tile]), pending)
        if key < math.inf:
            self._queue(tile, key)
            return
        self.close(self.shard_of(tile))

    def close(self, shard: Tile) -> None:
        """Take note of a shard if all its tiles have converged."""
        if not math.isnan(final_at := self._final_at(shard)):
            self._converged.push(final_at, shard)

    def divide(self, parts: int) -> None:
        """Divide the tiles into parts for so many owners."""
        if parts == self.parts:
            return
        self.parts, self.awake = parts, set(range(parts))
        self._asleep, self._wake_at = [], {}
        for queue in (self.waiting, self.unread, self.final):
            queue.divide(parts)

    def sleep(self, part: int) -> None:
        """Take note that there is nothing to do for the owner of a part, as things are."""
        self.awake.discard(part)
        key = self.waiting[part].least()
        if key < self._wake_at.get(part, math.inf):
            self._wake_at[part] = key
            heapq.heappush(self._asleep, (key, part))

    def wake(self, bound: float) -> None:
        """Wake the owners of tiles in the window, and of shards that the front has left."""
        front = self.front()
        while (shard := self._converged.pop(front)) is not None:
            self.awake.add(self.final.push(self._final_at(shard), shard))
        while self._asleep and self._asleep[0][0] <= bound:
            key, part = heapq.heappop(self._asleep)
            if self._wake_at.get(part) == key:
                del self._wake_at[part]
            self.awake.add(part)

    def _queue(self, tile: Tile, key: float) -> None:
        self._open.push(key, tile)
        self.awake.add(self.waiting.push(key, tile))
        if not self.opened[tile]:
            self.unread.push(key, tile)

    def _waits(self, key: float, tile: Tile) -> bool:
        return bool(key == self.keys[tile] and not self.away[tile])

    def _converges(self, key: float, shard: Tile) -> bool:
        return key == self._final_at(shard)

    def _final_at(self, shard: Tile) -> float:
        """Return the key that the front must reach for a shard to be final; NaN if open or written.

        Whatever improves a tile enters it by its border, and not below the front.
        """
        block = self.block(shard)
        if self.written[shard] or self.away[block].any() or self.keys[block].min() < math.inf:
            return math.nan
        return float(self.final_at[block].max())


def owner_of_shard(shard: Tile) -> int:
    """Return a number for a shard such that those along any front have different owners."""
    # primes beyond any number of workers: rows and columns count, whatever that number is
    return shard[0] * 7919 + shard[1] * 104729
