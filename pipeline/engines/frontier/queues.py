"""Priority queues of tiles, one for each worker; a step costs O(log tiles).

An entry is never searched for: one that no longer holds is dropped when it comes to the top.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orograph.run.cluster.worker_loads import Worker

Tile = tuple[int, int]


class TileQueue:
    """Heap of tiles by key; ``holds(key, tile)`` tells whether an entry is still valid."""

    def __init__(self, holds: Callable[[float, Tile], bool]) -> None:
        self._holds = holds
        self._heap: list[tuple[float, Tile]] = []

    def __len__(self) -> int:
        """Return the number of entries, including those that are no longer valid."""
        return len(self._heap)

    def push(self, key: float, tile: Tile) -> None:
        """Add a tile; it may be queued several times."""
        heapq.heappush(self._heap, (key, tile))

    def least(self) -> float:
        """Return the least valid key, or infinity if the queue is empty."""
        while self._heap and not self._holds(*self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def pop(self, bound: float = math.inf) -> Tile | None:
        """Remove and return the tile of the least key, or None if that is above ``bound``."""
        if self.least() > bound or not self._heap:
            return None
        return heapq.heappop(self._heap)[1]


class OwnedQueues:
    """One `TileQueue` for each worker that owns tiles, and one under None for unowned tiles."""

    def __init__(
        self, owner: Callable[[Tile], Worker], holds: Callable[[float, Tile], bool]
    ) -> None:
        self._owner, self._holds = owner, holds
        self._queues: dict[Worker, TileQueue] = {}

    def push(self, key: float, tile: Tile) -> Worker:
        """Add a tile to its owner's queue, and return the owner."""
        owner = self._owner(tile)
        self[owner].push(key, tile)
        return owner

    def dissolve(self, owner: Worker) -> None:
        """Delete a worker's queue, moving its tiles to the queues of their current owners."""
        if (queue := self._queues.pop(owner, None)) is not None:
            for key, tile in queue._heap:
                self.push(key, tile)

    def __getitem__(self, owner: Worker) -> TileQueue:
        if owner not in self._queues:
            # Whether the worker still owns the tile is asked when the entry comes to the top, so
            # that a change of owner need not search the heap.
            self._queues[owner] = TileQueue(
                lambda key, tile: self._owner(tile) == owner and self._holds(key, tile)
            )
        return self._queues[owner]


class Shares:
    """Shards still to be written, handed out once each, to their owners first."""

    def __init__(self, owner: Callable[[Tile], Worker], shards: Iterable[Tile]) -> None:
        self._owner = owner
        self._shards: dict[Worker, list[Tile]] = {}
        # the next ones last, so that taking them moves no others
        self.add(list(shards)[::-1])

    def __bool__(self) -> bool:
        return bool(self._shards)

    def add(self, shards: Iterable[Tile]) -> None:
        """Put shards back, to be handed out next."""
        for shard in shards:
            self._shards.setdefault(self._owner(shard), []).append(shard)

    def count(self, worker: Worker, of_others: bool) -> int:
        """Return how many shards are left in the group that `take` would use for a worker."""
        return len(self._shards.get(self._whose(worker, of_others), ()))

    def take(self, worker: Worker, most: int, of_others: bool) -> list[Tile]:
        """Remove and return up to ``most`` shards: own, else unowned, else maybe of another."""
        owner = self._whose(worker, of_others)
        left = self._shards.get(owner, [])
        first = max(len(left) - most, 0)
        taken = left[first:][::-1]
        del left[first:]
        if not left:
            self._shards.pop(owner, None)
        return taken

    def _whose(self, worker: Worker, of_others: bool) -> Worker:
        """Return the owner whose shards a worker should take next."""
        owners = (owner for owner in (worker, None) if owner in self._shards)
        return next(owners, next(iter(self._shards), None) if of_others else None)
