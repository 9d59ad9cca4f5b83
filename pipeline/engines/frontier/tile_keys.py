"""Keys and owners of all tiles, and the workers for which there may be work.

The driver asks for the least key of all tiles, and for the tiles of a worker that lie in the
window, are yet to be read, or are final. Each stands in a queue, so that no step looks at all
tiles; and a worker for which nothing has changed since it got no task need not be looked at.

A worker owns the shards whose tiles it has visited, since it has their states. All others may be
taken by any worker, and so may those that their owner has read but nothing has reached yet.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from orograph.engines.frontier.queues import OwnedQueues, Tile, TileQueue
from orograph.tiles.grid.quadtree import Quadtree

if TYPE_CHECKING:
    from orograph.run.cluster.worker_loads import Worker


class TileKeys:
    """The driver's record of each tile: key, owner, whether it is in flight, final or written.

    Parameters
    ----------
    tree : Quadtree
        Its tiles, and which are neighbours.
    level : int
        Its level where the shards are.
    """

    def __init__(self, tree: Quadtree, level: int) -> None:
        shape, self.level = tree.tiles, level
        self.beside, self._wraps = tree.beside, tree.wraps
        self.keys = np.full(shape, math.inf)
        """Least value by which something can improve each tile."""
        self.away = np.zeros(shape, bool)
        """Mask of the tiles that a worker may be visiting."""
        self.flying = np.full(shape, math.inf)
        """Key that each tile had when a worker was sent to visit it; infinite for other tiles."""
        self.final_at = np.full(shape, math.inf)
        """Key at which each tile is final, from its last `Visit`."""
        self.opened = np.zeros(shape, bool)
        """Mask of the tiles that were visited in this session."""
        self.written = np.zeros([-(-n // (1 << level)) for n in shape], bool)
        """Mask of the shards that are written, or being written."""
        self.done = np.zeros_like(self.written)
        """Mask of the shards that are known to be written."""
        # A tile in flight counts with the key that it had: until the visit is back, it may improve
        # its neighbours from that key on.
        self._open = TileQueue(lambda key, tile: key in (self.keys[tile], self.flying[tile]))
        self._owners: dict[Tile, Worker] = {}
        self.waiting = OwnedQueues(self.owner_of_tile, self._waits)
        """Queues of the tiles that have a key and are not being visited, by owner."""
        self._near = TileQueue(lambda key, tile: tile in self._ready and self._waits(key, tile))
        self._ready: set[Tile] = set()
        """Waiting tiles in the bucket that nobody owns, which have a queue of their own."""
        self.unread = OwnedQueues(
            self.owner_of_tile, lambda key, tile: self._waits(key, tile) and not self.opened[tile]
        )
        """Queues of the waiting tiles that were not visited in this session, by owner."""
        self._converged = TileQueue(self._converges)
        self.final = OwnedQueues(self.owner_of, self._converges)
        """Queues of the shards that nothing can improve any more and that are not written, by
        owner."""
        self.changed: set[Tile] = set()
        """Tiles whose keys have changed since this set was last cleared."""
        self._bound = -math.inf
        self.awake: set[Worker] = set()
        """Workers that own tiles and may have something to do."""
        self._asleep: list[tuple[float, int, Worker]] = []
        self._wake_at: dict[Worker, float] = {}
        self._numbers = itertools.count()

    def owner_of(self, shard: Tile) -> Worker:
        """Return the worker that owns a shard, or None."""
        return self._owners.get(shard)

    def owner_of_tile(self, tile: Tile) -> Worker:
        """Return the worker that owns the shard of a tile, or None."""
        return self._owners.get((tile[0] >> self.level, tile[1] >> self.level))

    def give(self, shard: Tile, owner: Worker) -> None:
        """Set the worker that owns a shard; None makes it unowned."""
        before = self._owners.get(shard)
        if before == owner:
            return
        if owner is None:
            del self._owners[shard]
        else:
            self._owners[shard] = owner
        # Entries in the queues of the former owner hold no longer, so the tiles are queued for the
        # new one.
        for tile in self.tiles_of(shard):
            self._ready.discard(tile)
            if not self.away[tile] and (key := float(self.keys[tile])) < math.inf:
                self._offer(tile, key)
        self.close(shard)

    def give_up(self, owner: Worker) -> None:
        """Make all shards of a lost worker unowned."""
        # Owners are removed first, since `dissolve` moves tiles to the queue of the owner that they
        # have then.
        for shard in [shard for shard, other in self._owners.items() if other == owner]:
            del self._owners[shard]
        for queue in (self.waiting, self.unread, self.final):
            queue.dissolve(owner)
        self.awake.discard(owner)

    def shard_beside(self, shard: Tile, step: Tile) -> Tile:
        """Return the row and column of the shard a step away; beyond the grid there is none."""
        row, column = shard[0] + step[0], shard[1] + step[1]
        return row, column % self.done.shape[1] if self._wraps else column

    def is_done_around(self, shard: Tile) -> bool:
        """Return whether a shard and all shards beside it are known to be written."""
        (i, j), done = shard, self.done
        if self._wraps:
            columns = np.arange(j - 1, j + 2) % done.shape[1]
            return bool(done[max(i - 1, 0) : i + 2, columns].all())
        return bool(done[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2].all())

    def is_reached(self, shard: Tile) -> bool:
        """Return whether this session may have computed cells of a shard already."""
        block = self.block(shard)
        return bool(self.away[block].any() or (self.final_at[block] < math.inf).any())

    def shard_of(self, tile: Tile) -> Tile:
        """Return the row and column of the shard that contains a tile."""
        return tile[0] >> self.level, tile[1] >> self.level

    def block(self, shard: Tile) -> tuple[slice, slice]:
        """Return the slices of tile rows and columns that a shard covers."""
        rows, columns = (slice(n << self.level, (n + 1) << self.level) for n in shard)
        return rows, columns

    def tiles_of(self, shard: Tile) -> Iterator[Tile]:
        """Yield the tiles of a shard."""
        if not self.level:
            yield shard
            return
        rows, columns = (
            range(s.start, min(s.stop, n))
            for s, n in zip(self.block(shard), self.keys.shape, strict=True)
        )
        yield from itertools.product(rows, columns)

    def front(self) -> float:
        """Return the least key of all unconverged tiles; all values below it are final."""
        return self._open.least()

    def lower(self, tile: Tile, key: float) -> None:
        """Lower the key of a tile to ``key``, if it is above."""
        if key < self.keys[tile]:
            self.keys[tile] = key
            self.changed.add(tile)
            self._queue(tile, key)

    def take_out(self, tile: Tile) -> None:
        """Mark a tile as in flight: a worker may be visiting it."""
        self.away[tile] = True
        self._ready.discard(tile)
        self.flying[tile], self.keys[tile] = self.keys[tile], math.inf

    def put_back(self, tile: Tile, pending: float) -> None:
        """Mark a tile as no longer in flight, with ``pending`` as its remaining key."""
        self.flying[tile], self.away[tile] = math.inf, False
        self.changed.add(tile)
        # Neighbours may have lowered the key while the tile was in flight.
        self.keys[tile] = key = min(float(self.keys[tile]), pending)
        if key < math.inf:
            self._queue(tile, key)
            return
        self.close(self.shard_of(tile))

    def close(self, shard: Tile) -> None:
        """Queue a shard for writing if all its tiles have converged."""
        if not math.isnan(final_at := self._final_at(shard)):
            self._converged.push(final_at, shard)

    def ready(self, bound: float) -> int:
        """Return how many unowned tiles have a key of at most ``bound``."""
        while (tile := self.waiting[None].pop(bound)) is not None:
            self._ready.add(tile)
            self._near.push(float(self.keys[tile]), tile)
        return len(self._ready)

    def pop_ready(self, bound: float) -> Tile | None:
        """Remove and return the unowned tile of least key, or None if that is above ``bound``."""
        if (tile := self._near.pop(bound)) is not None:
            self._ready.discard(tile)
        return tile

    def push(self, tile: Tile) -> None:
        """Return a tile to its queue that was removed but not visited."""
        self._offer(tile, float(self.keys[tile]))

    def sleep(self, owner: Worker) -> None:
        """Stop checking an owner for work until its least key enters the bucket."""
        self._wake_later(owner, self.waiting[owner].least())

    def wake(self, bound: float) -> None:
        """Mark the owners that have tiles in the bucket, or shards that became final, as awake."""
        front, self._bound = self.front(), bound
        # A shard of converged tiles is final once the front has passed the key at which it is.
        while (shard := self._converged.pop(front)) is not None:
            self.awake.add(self.final.push(self._final_at(shard), shard))
        while self._asleep and self._asleep[0][0] <= bound:
            key, _, owner = heapq.heappop(self._asleep)
            # Only the last entry of an owner holds; those from before it was lowered are skipped.
            if self._wake_at.get(owner) == key:
                del self._wake_at[owner]
                self.awake.add(owner)

    def _queue(self, tile: Tile, key: float) -> None:
        self._open.push(key, tile)
        self._offer(tile, key)

    def _offer(self, tile: Tile, key: float) -> None:
        """Add a tile to its owner's queues, and wake the owner when the bucket reaches it."""
        owner = self.waiting.push(key, tile)
        if owner is not None:
            if key <= self._bound:
                self.awake.add(owner)
            else:
                self._wake_later(owner, key)
        if not self.opened[tile]:
            self.unread.push(key, tile)

    def _wake_later(self, owner: Worker, key: float) -> None:
        """Schedule an owner to be woken once the bucket reaches ``key``."""
        if key < self._wake_at.get(owner, math.inf):
            self._wake_at[owner] = key
            heapq.heappush(self._asleep, (key, next(self._numbers), owner))

    def _waits(self, key: float, tile: Tile) -> bool:
        return bool(key == self.keys[tile] and not self.away[tile])

    def _converges(self, key: float, shard: Tile) -> bool:
        # The key of an open shard is NaN, which equals nothing: its entries do not hold.
        return key == self._final_at(shard)

    def _final_at(self, shard: Tile) -> float:
        """Return the key at which a shard is final once the front gets there; NaN if open.

        Whatever improves a tile enters it by its border, and not below the front.
        """
        if self.written[shard]:
            return math.nan
        if not self.level:  # quicker than by blocks
            is_open = self.away[shard] or self.keys[shard] < math.inf
            return math.nan if is_open else float(self.final_at[shard])
        block = self.block(shard)
        if self.away[block].any() or self.keys[block].min() < math.inf:
            return math.nan
        return float(self.final_at[block].max())
