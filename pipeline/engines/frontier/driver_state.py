"""The driver's state: its entries in the journal, and how it is restored from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.engines.frontier.borders import Borders, pack_strips
from orograph.engines.frontier.bucket_width import BucketWidth
from orograph.engines.frontier.links import LinkBoard
from orograph.engines.frontier.tile_keys import TileKeys
from orograph.engines.tile_states import Tile


@dataclass
class DriverState:
    """Tile keys, borders, links and work counts of a run, which the journal saves."""

    tiles: TileKeys
    borders: Borders
    links: LinkBoard | None
    window: BucketWidth
    reached: npt.NDArray[np.int64]
    """Number of cells of each tile that hold a value."""
    settled: int = 0
    visits: int = 0
    done: list[Tile] = field(default_factory=list)
    """Shards that were written since the last entry of the journal."""

    def finish(self, shards: Sequence[Tile]) -> None:
        """Mark shards as written, and drop the borders that are no longer needed."""
        self.done += shards
        for shard in shards:
            self.tiles.done[shard] = True
            self.borders.forget(shard)

    def entry(self, *, first: bool) -> Callable[[], dict[str, Any]]:
        """Snapshot the changes since the last entry; return a function that packs them.

        For the first entry they are all that is known.
        """
        tiles = self.tiles
        # A tile in flight is saved with the key that it had, since its visit may be lost.
        keys = np.minimum(tiles.keys, tiles.flying)
        places = np.array(list(tiles.changed), np.int64).reshape(-1, 2)
        done = np.array(self.done, np.int64).reshape(-1, 2)
        if first:
            places = np.argwhere((self.reached > 0) | (keys < math.inf))
            done = np.argwhere(tiles.done)
        where = tuple(places.T)
        entry = {
            "tiles": places,
            "tables": [keys[where], self.reached[where], tiles.final_at[where]],
            "done": done,
            "window": replace(self.window),
            "counts": [self.settled, self.visits],
            "links": None if self.links is None else [v.copy() for v in self.links.values],
        }
        strips = self.borders.strips(changed=not first)
        # The next entry holds changes against this one.
        tiles.changed.clear()
        self.borders.changed.clear()
        self.done.clear()
        return lambda: {**entry, "borders": pack_strips(strips)}

    def restore(self, entries: Sequence[dict[str, Any]]) -> None:
        """Restore the state from journal entries, the oldest first."""
        tiles, keys = self.tiles, np.full_like(self.tiles.keys, math.inf)
        for entry in entries:
            for shard in map(tuple, entry["done"].tolist()):
                tiles.written[shard] = tiles.done[shard] = True
            where = tuple(entry["tiles"].T)
            keys[where], self.reached[where], tiles.final_at[where] = entry["tables"]
            self.borders.unpack(entry["borders"])
        last = entries[-1]
        self.window, (self.settled, self.visits) = last["window"], last["counts"]
        if self.links is not None:
            self.links.values = last["links"]
        # Tiles are queued after all entries: from one to the next a key may have risen, and `lower`
        # ignores a greater one.
        for i, j in np.argwhere(keys < math.inf).tolist():
            tiles.lower((i, j), float(keys[i, j]))
        for shard in {tiles.shard_of((i, j)) for i, j in np.argwhere(self.reached > 0).tolist()}:
            tiles.close(shard)
