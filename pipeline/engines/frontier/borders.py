"""The last border of every tile that the driver may still have to hand on."""

from __future__ import annotations

import itertools
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

    def take(self, tile: Tile, border: Border) -> None:
        """Take note of the parts of a border that have changed."""
        known = self._borders.setdefault(tile, [None] * 8)
        for k, strip in enumerate(border):
            if strip is not None:
                known[k] = strip
                self.changed.add((*tile, k))

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
                self._borders.pop(tile, None)

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
        for (i, j, k), strip in _strips(packed):
            self._borders.setdefault((i, j), [None] * 8)[k] = strip


def _strips(packed: Iterable[Any]) -> Iterator[tuple[Strip, Array]]:
    for places, shapes, values in packed:
        end = 0
        for (i, j, k), shape in zip(places.tolist(), shapes.tolist(), strict=True):
            start, end = end, end + int(np.prod(shape))
            yield (i, j, k), values[start:end].reshape(shape).copy()
