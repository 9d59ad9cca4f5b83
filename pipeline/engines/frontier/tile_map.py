"""States of the tiles of a run, for the map on the dashboard."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from orograph.engines.frontier.tile_keys import TileKeys

State = int
STATES = ("waiting", "queued", "at work", "settled", "written", "failed")
WAITING, QUEUED, AT_WORK, SETTLED, WRITTEN, FAILED = range(6)
TOPIC = "orograph-tiles"
"""Topic of Dask's events under which maps are sent."""
MOST_TILES = 128
"""Greatest side of the map; of larger grids it shows some tiles, evenly spread."""


def states_of(tiles: TileKeys) -> npt.NDArray[np.uint8]:
    """Return the states of tiles as a matrix of at most `MOST_TILES` rows and columns."""
    step = -(-max(tiles.keys.shape) // MOST_TILES)
    some = np.s_[::step, ::step]
    opened, keys, away = tiles.opened[some], tiles.keys[some], tiles.away[some]
    states = np.where(opened, SETTLED, WAITING).astype(np.uint8)
    # Each state takes precedence over those above.
    states[keys < math.inf] = QUEUED
    states[away] = AT_WORK
    rows, columns = (np.arange(0, n, step) >> tiles.level for n in tiles.keys.shape)
    states[tiles.written[np.ix_(rows, columns)]] = WRITTEN
    return states


def message(name: str, token: str, tiles: TileKeys) -> dict[str, Any]:
    """Return the map of a run as a message to the scheduler."""
    states = states_of(tiles)
    return {"name": name, "token": token, "shape": states.shape, "states": states.tobytes()}
