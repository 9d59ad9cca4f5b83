"""The driver's queues: they say what a look at all tiles would, and take no time for it."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator

import numpy as np
import pytest

from orograph.engines.frontier.queues import Shares
from orograph.engines.frontier.tile_keys import TileKeys, owner_of_shard

LARGE = 1000  # tiles a side
SECONDS = 5.0  # of CPU: one look at all tiles of the large grid takes 10 to 30 ms


def tiles_of(tiles: TileKeys) -> Iterator[tuple[int, int]]:
    return ((i, j) for i, j in np.ndindex(tiles.keys.shape))


def owned(tiles: TileKeys, part: int) -> list[tuple[int, int]]:
    return [t for t in tiles_of(tiles) if tiles.owner_of_tile(t) % tiles.parts == part]


def final_shards(tiles: TileKeys, front: float) -> set[tuple[int, int]]:
    found = set()
    for shard in np.ndindex(tiles.written.shape):
        own = [t for t in tiles_of(tiles) if tiles.shard_of(t) == shard]
        still = all(tiles.keys[t] == math.inf and not tiles.away[t] for t in own)
        if still and not tiles.written[shard] and all(tiles.final_at[t] <= front for t in own):
            found.add(shard)
    return found


def drain(tiles: TileKeys, part: int, bound: float) -> list[tuple[int, int]]:
    """All tiles of a part in the window, in their order; they stay where they are."""
    queue, found = tiles.waiting[part], dict[tuple[int, int], None]()
    while (tile := queue.pop(bound)) is not None:
        found[tile] = None
    for tile in found:
        queue.push(float(tiles.keys[tile]), tile)
    return list(found)


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("seed", range(5))
def test_the_queues_say_what_a_look_at_all_tiles_would(seed: int, level: int) -> None:
    chance = random.Random(seed)
    tiles = TileKeys((5, 7), level)
    every = list(tiles_of(tiles))
    given, front = 0, 0.0
    for _ in range(600):
        front = tiles.front() if tiles.front() < math.inf else front
        tile, key = chance.choice(every), front + chance.randrange(20)
        what = chance.random()
        if what < 0.2:
            if not tiles.written[tiles.shard_of(tile)]:
                tiles.lower(tile, key)
        elif what < 0.6:
            tile = min(every, key=lambda t: (tiles.keys[t], t))
            if not tiles.away[tile] and tiles.keys[tile] < math.inf:
                tiles.take_out(tile)
        elif what < 0.95:
            for tile in [t for t in every if tiles.away[t] and chance.random() < 0.8]:
                tiles.opened[tile] = True
                tiles.final_at[tile] = tiles.flying[tile] + chance.randrange(20)
                tiles.put_back(tile, chance.choice([math.inf, math.inf, key]))
        else:
            tiles.divide(chance.randint(1, 4))
        assert tiles.front() == min(tiles.keys.min(), tiles.flying.min())
        if tiles.front() == math.inf:
            continue
        front, bound = tiles.front(), key + 5
        tiles.wake(bound)
        for part in range(tiles.parts):
            mine = [t for t in owned(tiles, part) if not tiles.away[t]]
            ready = [t for t in mine if tiles.keys[t] <= bound]
            assert drain(tiles, part, bound) == sorted(ready, key=lambda t: (tiles.keys[t], t))
            unread = [tiles.keys[t] for t in mine if not tiles.opened[t]]
            assert tiles.unread[part].least() == min(unread, default=math.inf)
            assert part in tiles.awake or not ready
            if chance.random() < 0.5 and not ready:
                tiles.sleep(part)
        if what > 0.9:
            expected, found = final_shards(tiles, front), set()
            for part in range(tiles.parts):
                while (shard := tiles.final[part].pop()) is not None:
                    found.add(shard)
                    tiles.written[shard] = True
            assert found == expected
            given += len(found)
    assert given


def test_a_step_takes_no_longer_on_a_large_grid() -> None:
    tiles = TileKeys((LARGE, LARGE), 0)
    tiles.divide(64)
    tiles.lower((LARGE // 2, LARGE // 2), 0.0)
    begin = time.process_time()
    for _ in range(200):
        front = tiles.front()
        tiles.wake(front + 1)
        for part in tuple(tiles.awake):
            if (tile := tiles.waiting[part].pop(front + 1)) is None:
                tiles.sleep(part)
                continue
            tiles.take_out(tile)
            for step in ((0, 1), (1, 0), (0, -1), (-1, 0)):
                other = tile[0] + step[0], tile[1] + step[1]
                if not tiles.opened[other]:
                    tiles.lower(other, front + 1)
            tiles.opened[tile], tiles.final_at[tile] = True, front
            tiles.put_back(tile, math.inf)
    assert tiles.opened.sum() > 1000
    assert time.process_time() - begin < SECONDS


def test_what_is_to_be_given_out_once_goes_to_its_owners() -> None:
    """All tiles of a large grid; the number of owners changes on the way."""
    every = [(i, j) for i, j in np.ndindex(300, 300)]
    todo, found = Shares(owner_of_shard, every), []
    begin = time.process_time()
    while todo:
        parts = 64 if len(found) < 40_000 else 1000
        for part in range(parts):
            taken = todo.take(part, parts, 50)
            assert all(owner_of_shard(tile) % parts == part for tile in taken)
            found += taken
    assert sorted(found) == every
    assert time.process_time() - begin < SECONDS


def test_the_last_of_others_are_taken_by_who_has_none() -> None:
    todo = Shares(lambda tile: tile[1], [(0, 0), (0, 2), (1, 1)])
    assert todo.count(0, 2) == 2
    assert [todo.take(1, 2, 9, of_others=True) for _ in range(2)] == [[(1, 1)], [(0, 0), (0, 2)]]
    assert not todo
