"""The last border of every tile that the driver may still have to hand on.

A worker keeps the strips that it was sent for a tile, and those that it has sent itself. So a strip
has a name, that of the attempt at a task that made it, and goes to a worker once. One that has not
what it is taken to have, since it died or since another has done its task, leaves the tile as it
was, and then is sent all.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.engines.frontier.protocol import Border
from orograph.engines.frontier.tile_keys import TileKeys
from orograph.engines.tile_states import Tile
from orograph.tiles.grid.neighbours import NEIGHBOURS, OPPOSITE

Array = npt.NDArray[Any]
Strip = tuple[int, int, int]
"""Row and column of a tile, and the number of the neighbour that a part of its border faces."""


class Borders:
    """Borders by tile; those of written tiles are dropped once all their neighbours are written."""

    def __init__(self, tiles: TileKeys) -> None:
        self._tiles = tiles
        self._borders: dict[Tile, Border] = {}
        self._names: dict[Tile, list[int]] = {}
        self._held: dict[Tile, tuple[Any, list[int]]] = {}
        self.changed: set[Strip] = set()
        """Strips that have changed since this was last cleared."""

    def __len__(self) -> int:
        return len(self._borders)

    def of(self, tile: Tile) -> Border:
        """Return the border of a tile."""
        return list(self._borders.get(tile, [None] * 8))

    def around(self, tile: Tile) -> Border:
        """Return its neighbours' borders, where they face the tile."""
        return [
            None if (border := self._borders.get((tile[0] + di, tile[1] + dj))) is None
            else border[OPPOSITE[k]]
            for k, (di, dj) in enumerate(NEIGHBOURS)
        ]  # fmt: skip

    def request(self, tile: Tile, worker: Any) -> tuple[Border, Border, list[int]]:
        """Return the strips around a tile and its own that a worker has not, and all names."""
        strips = self.around(tile) + self.of(tile)
        names = self._names_of(tile)
        holder, held = self._held.get(tile, (None, []))
        if holder == worker:
            strips = [
                None if there == name else strip
                for strip, there, name in zip(strips, held, names, strict=True)
            ]
        self._held[tile] = worker, names
        return strips[:8], strips[8:], list(names)

    def came_back(self, tiles: Iterable[Tile], attempt: int) -> None:
        """Take note that the strips of an attempt are where its tiles are."""
        for tile in tiles:
            if tile in self._held:
                worker, held = self._held[tile]
                now = self._names_of(tile)
                new = [a if a == attempt else b for a, b in zip(now, held, strict=True)]
                self._held[tile] = worker, new

    def send_all(self, tile: Tile) -> None:
        """Take it that no worker has any strip of a tile."""
        self._held.pop(tile, None)

    def take(self, tile: Tile, border: Border, attempt: int = 0) -> None:
        """Take note of the parts of a border that have changed in an attempt."""
        known = self._borders.setdefault(tile, [None] * 8)
        names = self._names.setdefault(tile, [0] * 8)
        for k, strip in enumerate(border):
            if strip is not None:
                known[k], names[k] = strip, attempt
                self.changed.add((*tile, k))

    def _names_of(self, tile: Tile) -> list[int]:
        """Return the names of the strips around a tile, and of its own."""
        nothing = [0] * 8
        around = [
            self._names.get((tile[0] + di, tile[1] + dj), nothing)[OPPOSITE[k]]
            for k, (di, dj) in enumerate(NEIGHBOURS)
        ]
        return around + self._names.get(tile, nothing)

    def forget(self, shard: Tile) -> None:
        """Drop what nobody needs any more, since a shard has been written."""
        done = self._tiles.done
        for di, dj in itertools.product((-1, 0, 1), repeat=2):
            i, j = shard[0] + di, shard[1] + dj
            if not done[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2].all():
                continue
            rows, columns = self._tiles.block((i, j))
            for tile in itertools.product(
                range(rows.start, rows.stop), range(columns.start, columns.stop)
            ):
                for table in (self._borders, self._names, self._held):
                    table.pop(tile, None)

    def pack(self, *, changed: bool) -> list[Any]:
        """Return all strips, or those that have changed, as few large arrays."""
        strips: Iterable[Strip] = self.changed
        if not changed:
            strips = ((*tile, k) for tile in self._borders for k in range(8))
        kinds: dict[tuple[str, int], list[Strip]] = {}
        for i, j, k in strips:
            values = self._borders.get((i, j), [None] * 8)[k]
            if values is not None:
                kinds.setdefault((values.dtype.str, values.ndim), []).append((i, j, k))
        packed = []
        for places in kinds.values():
            values = [self._borders[i, j][k] for i, j, k in places]
            shapes = np.array([strip.shape for strip in values])
            packed.append([np.array(places), shapes, np.concatenate([v.ravel() for v in values])])
        return packed

    def unpack(self, packed: Iterable[Any]) -> None:
        """Put packed strips in the place of older ones."""
        name = secrets.randbits(62) + 1
        for (i, j, k), strip in _strips(packed):
            self._borders.setdefault((i, j), [None] * 8)[k] = strip
            self._names.setdefault((i, j), [0] * 8)[k] = name


def _strips(packed: Iterable[Any]) -> Iterator[tuple[Strip, Array]]:
    for places, shapes, values in packed:
        end = 0
        for (i, j, k), shape in zip(places.tolist(), shapes.tolist(), strict=True):
            start, end = end, end + int(np.prod(shape))
            yield (i, j, k), values[start:end].reshape(shape).copy()
