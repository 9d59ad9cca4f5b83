"""Priority queues of tiles, divided among the workers that own them: a step costs O(log tiles).

An entry is never searched for: one that no longer holds is dropped when it comes to the top.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable

Tile = tuple[int, int]


class TileQueue:
    """Tiles by their keys; ``holds`` says whether an entry still does."""

    def __init__(self, holds: Callable[[float, Tile], bool]) -> None:
        self._holds = holds
        self._heap: list[tuple[float, Tile]] = []

    def __len__(self) -> int:
        """Return the number of entries, those among them that no longer hold."""
        return len(self._heap)

    def push(self, key: float, tile: Tile) -> None:
        """Add a tile; it may be there more than once."""
        heapq.heappush(self._heap, (key, tile))

    def least(self) -> float:
        """Return the least key, infinity if there is none."""
        while self._heap and not self._holds(*self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def pop(self, bound: float = math.inf) -> Tile | None:
        """Remove and return the tile of the least key, if that is not above a bound."""
        if self.least() > bound or not self._heap:
            return None
        return heapq.heappop(self._heap)[1]


class DividedQueue:
    """A `TileQueue` for each part of the tiles; a tile belongs to part ``number(tile) % parts``."""

    def __init__(self, number: Callable[[Tile], int], holds: Callable[[float, Tile], bool]) -> None:
        self._number, self._holds = number, holds
        self._parts = [TileQueue(holds)]

    def divide(self, parts: int) -> None:
        """Divide the tiles into another number of parts."""
        before, self._parts = self._parts, [TileQueue(self._holds) for _ in range(parts)]
        for queue in before:
            for key, tile in queue._heap:
                self.push(key, tile)

    def push(self, key: float, tile: Tile) -> int:
        """Add a tile, and return the part that it belongs to."""
        part = self._number(tile) % len(self._parts)
        self._parts[part].push(key, tile)
        return part

    def __getitem__(self, part: int) -> TileQueue:
        return self._parts[part]


class Shares:
    """Tiles that are to be given out once each, to their owners."""

    def __init__(self, number: Callable[[Tile], int], tiles: Iterable[Tile]) -> None:
        self._number = number
        # the next ones last, so that taking them moves no others
        self._parts = {0: list(tiles)[::-1]}
        self._count = 1

    def __bool__(self) -> bool:
        return any(self._parts.values())

    def count(self, part: int, parts: int) -> int:
        """Return how many tiles a part has, of so many parts."""
        self._divide(parts)
        return len(self._parts.get(part, ()))

    def take(self, part: int, parts: int, most: int, *, of_others: bool = False) -> list[Tile]:
        """Remove and return some tiles of one part.

        Parameters
        ----------
        part, parts : int
            Which part of how many.
        most : int
            How many tiles at the most.
        of_others : bool
            Whether to take those of another part once this one has none.
        """
        self._divide(parts)
        if of_others and self._parts and part not in self._parts:
            part = next(iter(self._parts))
        left = self._parts.get(part, [])
        first = max(len(left) - most, 0)
        taken = left[first:][::-1]
        del left[first:]
        if not left:
            self._parts.pop(part, None)
        return taken

    def _divide(self, parts: int) -> None:
        """Divide what is left into so many parts."""
        if parts == self._count:
            return
        tiles = sorted((t for some in self._parts.values() for t in some), reverse=True)
        self._parts, self._count = {}, parts
        for tile in tiles:
            self._parts.setdefault(self._number(tile) % parts, []).append(tile)
