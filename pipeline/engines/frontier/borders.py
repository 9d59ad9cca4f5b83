"""Store the latest border cells of every tile in the driver, and track which workers have them.

A worker keeps the strips that it was sent for a tile, and those that it has sent itself. So a strip
has a name, that of the attempt at a task that made it, and goes to a worker once. One that has not
what it is taken to have, since it died or since another has done its task, leaves the tile as it
was, and then is sent all.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from orograph.engines.frontier.tile_keys import TileKeys
from orograph.engines.tile_states import Tile
from orograph.tiles.arrays import Array
from orograph.tiles.grid.neighbours import NEIGHBOURS, OPPOSITE

if TYPE_CHECKING:
    from orograph.engines.frontier.protocol import Border
    from orograph.run.cluster.worker_loads import Worker

Strip = tuple[int, int, int]
"""Row and column of a tile, and the number of the neighbour that a part of its border faces."""
NOTHING: tuple[Border, list[int]] = ([None] * 8, [0] * 8)
"""Border of a tile that has sent none: its parts and their names."""
FACING = list(zip(NEIGHBOURS, OPPOSITE, strict=True))
"""Step to each neighbour, and the number of the part of its border that faces the tile."""


class Borders:
    """Latest border cells of each tile; dropped once a tile and its neighbours are written."""

    def __init__(self, tiles: TileKeys) -> None:
        self._tiles = tiles
        self._known: dict[Tile, tuple[Border, list[int]]] = {}
        """Strips of each tile and their names."""
        self._held: dict[Tile, tuple[Worker, list[int]]] = {}
        self.changed: set[Strip] = set()
        """Strips that have changed since this set was last cleared."""

    def __len__(self) -> int:
        return len(self._known)

    def of(self, tile: Tile) -> Border:
        """Return the latest border cells of a tile, one strip for each neighbour."""
        return list(self._known.get(tile, NOTHING)[0])

    def around(self, tile: Tile) -> Border:
        """Return the strips of the neighbours' border cells that face a tile."""
        return self._around(tile)[0]

    def request(self, tile: Tile, worker: Worker) -> tuple[Border, Border, list[int]]:
        """Return the strips around a tile, and its own, that a worker lacks; and all names."""
        halo, names = self._around(tile)
        own, own_names = self._known.get(tile, NOTHING)
        names += own_names
        holder, held = self._held.get(tile, (None, []))
        self._held[tile] = worker, names
        if holder == worker and held == names:
            # The names are copied, because `came_back` changes the list that is kept.
            return [None] * 8, [None] * 8, list(names)
        strips = [*halo, *own]
        if holder == worker:
            for n, name in enumerate(names):
                if held[n] == name:
                    strips[n] = None
        return strips[:8], strips[8:], list(names)

    def came_back(
        self, borders: Mapping[Tile, Border], tiles: Iterable[Tile], attempt: int
    ) -> None:
        """Record that the worker of a task now holds the border strips the task produced.

        Parameters
        ----------
        borders : mapping
            The parts of borders that have changed in it.
        tiles : iterable
            All tiles of its task.
        attempt : int
            Its name.
        """
        # The lists of names are changed in place, as the worker has changed its own: a strip
        # becomes part of the tile's border (8 + k), and of the halo of a neighbour in the same
        # task.
        held = {tile: self._held[tile][1] for tile in tiles if tile in self._held}
        for tile, border in borders.items():
            for k, step in enumerate(NEIGHBOURS):
                if border[k] is not None:
                    if tile in held:
                        held[tile][8 + k] = attempt
                    if (names := held.get(self._tiles.beside(tile, step))) is not None:
                        names[OPPOSITE[k]] = attempt

    def send_all(self, tile: Tile) -> None:
        """Forget which strips of a tile workers hold, so that all are sent next time."""
        self._held.pop(tile, None)

    def take(self, tile: Tile, border: Border, attempt: int = 0) -> None:
        """Store the changed strips of a tile's border, named by the task attempt that made them."""
        known, names = self._known.setdefault(tile, ([None] * 8, [0] * 8))
        for k, strip in enumerate(border):
            if strip is not None:
                known[k], names[k] = strip, attempt
                self.changed.add((*tile, k))

    def _around(self, tile: Tile) -> tuple[Border, list[int]]:
        """Return the strips of the neighbours that face a tile, and the names of the strips."""
        beside, get = self._tiles.beside, self._known.get
        strips, names = [], []
        for step, k in FACING:
            border, their_names = get(beside(tile, step), NOTHING)
            strips.append(border[k])
            names.append(their_names[k])
        return strips, names

    def forget(self, shard: Tile) -> None:
        """Drop the borders of tiles whose neighbourhood is written, after ``shard`` was written."""
        for step in itertools.product((-1, 0, 1), repeat=2):
            # Places beyond the grid hold no borders, so that dropping them does nothing.
            beside = self._tiles.shard_beside(shard, (step[0], step[1]))
            if not self._tiles.is_done_around(beside):
                continue
            rows, columns = self._tiles.block(beside)
            for tile in itertools.product(
                range(rows.start, rows.stop), range(columns.start, columns.stop)
            ):
                self._known.pop(tile, None)
                self._held.pop(tile, None)

    def strips(self, *, changed: bool) -> list[tuple[Strip, Array]]:
        """Return pairs of (tile row, column, side) and strip: all of them, or only changed ones."""
        places: Iterable[Strip] = self.changed
        if not changed:
            places = ((*tile, k) for tile in self._known for k in range(8))
        found = ((place, self._known.get(place[:2], NOTHING)[0][place[2]]) for place in places)
        return [(place, strip) for place, strip in found if strip is not None]

    def unpack(self, packed: Iterable[Any]) -> None:
        """Restore strips that `pack_strips` packed, replacing older ones."""
        # One new name for all: no worker holds these strips, so they are sent.
        name = secrets.randbits(62) + 1
        for (i, j, k), strip in _strips(packed):
            known, names = self._known.setdefault((i, j), ([None] * 8, [0] * 8))
            known[k], names[k] = strip, name


def pack_strips(strips: Iterable[tuple[Strip, Array]]) -> list[Any]:
    """Pack border strips with their places into a few large arrays, grouped by dtype."""
    kinds: dict[tuple[str, int], list[tuple[Strip, Array]]] = {}
    for place, strip in strips:
        kinds.setdefault((strip.dtype.str, strip.ndim), []).append((place, strip))
    return [
        [
            np.array([place for place, _ in some]),
            np.array([strip.shape for _, strip in some]),
            np.concatenate([strip.ravel() for _, strip in some]),
        ]
        for some in kinds.values()
    ]


def _strips(packed: Iterable[Any]) -> Iterator[tuple[Strip, Array]]:
    for places, shapes, values in packed:
        end = 0
        for (i, j, k), shape in zip(places.tolist(), shapes.tolist(), strict=True):
            start, end = end, end + int(np.prod(shape))
            # A view would keep the values of all strips in memory.
            yield (i, j, k), values[start:end].reshape(shape).copy()
