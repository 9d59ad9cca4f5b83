"""The driver's queues: they say what a look at all tiles would, and take no time for it."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator

import numpy as np
import pytest

from orograph.engines.frontier.queues import Shares
from orograph.engines.frontier.tile_keys import TileKeys
from orograph.tiles.grid.quadtree import Quadtree

LARGE = 1000  # tiles a side
OWNERS = [None, 0, 1, 2]
SECONDS = 5.0  # of CPU: one look at all tiles of the large grid takes 10 to 30 ms


def tiles_of(tiles: TileKeys) -> Iterator[tuple[int, int]]:
    return ((i, j) for i, j in np.ndindex(tiles.keys.shape))


def owned(tiles: TileKeys, owner: int | None) -> list[tuple[int, int]]:
    return [t for t in tiles_of(tiles) if tiles.owner_of_tile(t) == owner]


def final_shards(tiles: TileKeys, front: float) -> set[tuple[int, int]]:
    found = set()
    for shard in np.ndindex(tiles.written.shape):
        own = [t for t in tiles_of(tiles) if tiles.shard_of(t) == shard]
        still = all(tiles.keys[t] == math.inf and not tiles.away[t] for t in own)
        if still and not tiles.written[shard] and all(tiles.final_at[t] <= front for t in own):
            found.add(shard)
    return found


def drain(tiles: TileKeys, owner: int | None, bound: float) -> list[tuple[int, int]]:
    """All tiles of an owner in the window, in their order; they stay where they are."""
    queue, found = tiles.waiting[owner], dict[tuple[int, int], None]()
    if owner is None:
        count = tiles.ready(bound)
        while (tile := tiles.pop_ready(bound)) is not None:
            found[tile] = None
        assert count >= len(found)  # the bound may have been higher before
    else:
        while (tile := queue.pop(bound)) is not None:
            found[tile] = None
    for tile in found:
        tiles.push(tile)
    return list(found)


@pytest.mark.diagonal
@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("seed", range(5))
def test_the_queues_say_what_a_look_at_all_tiles_would(seed: int, level: int) -> None:
    chance = random.Random(seed)
    tiles = TileKeys(Quadtree((5, 7), 1), level)
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
        elif what < 0.9:
            for tile in [t for t in every if tiles.away[t] and chance.random() < 0.8]:
                tiles.opened[tile] = True
                tiles.final_at[tile] = tiles.flying[tile] + chance.randrange(20)
                tiles.put_back(tile, chance.choice([math.inf, math.inf, key]))
        else:
            tiles.give(tiles.shard_of(tile), chance.choice(OWNERS))
            if chance.random() < 0.1:
                gone = chance.randrange(3)
                tiles.give_up(gone)
                assert not owned(tiles, gone)
        assert tiles.front() == min(tiles.keys.min(), tiles.flying.min())
        if tiles.front() == math.inf:
            continue
        front, bound = tiles.front(), key + 5
        tiles.wake(bound)
        for owner in OWNERS:
            mine = [t for t in owned(tiles, owner) if not tiles.away[t]]
            ready = [t for t in mine if tiles.keys[t] <= bound]
            assert owner in tiles.awake or not ready or owner is None
            assert drain(tiles, owner, bound) == sorted(ready, key=lambda t: (tiles.keys[t], t))
            unread = [tiles.keys[t] for t in mine if not tiles.opened[t]]
            assert tiles.unread[owner].least() == min(unread, default=math.inf)
            if chance.random() < 0.5 and not ready and owner is not None:
                tiles.awake.discard(owner)
                tiles.sleep(owner)
        if what > 0.9:
            expected, found = final_shards(tiles, front), set()
            for owner in OWNERS:
                while (shard := tiles.final[owner].pop()) is not None:
                    found.add(shard)
                    tiles.written[shard] = True
            assert found == expected
            given += len(found)
    assert given


def test_a_step_takes_no_longer_on_a_large_grid() -> None:
    tiles = TileKeys(Quadtree((LARGE, LARGE), 1), 0)
    for shard in np.ndindex(LARGE, LARGE):
        if max(abs(shard[0] - LARGE // 2), abs(shard[1] - LARGE // 2)) < 30:
            tiles.give(shard, sum(shard) % 64)
    tiles.lower((LARGE // 2, LARGE // 2), 0.0)
    begin = time.process_time()
    for _ in range(200):
        front = tiles.front()
        tiles.wake(front + 1)
        for owner in tuple(tiles.awake):
            if (tile := tiles.waiting[owner].pop(front + 1)) is None:
                tiles.awake.discard(owner)
                tiles.sleep(owner)
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
    """All shards of a large grid, some of them twice."""
    every = [(i, j) for i, j in np.ndindex(300, 300)]
    todo, found = Shares(lambda shard: sum(shard) % 64, every), []
    again = {(0, n) for n in range(64)}
    begin = time.process_time()
    while todo:
        for worker in range(64):
            if todo.count(worker, True):
                taken = todo.take(worker, 50, True)
                assert all(sum(shard) % 64 == worker for shard in taken) or len(found) > 80_000
                found += taken
                failed = again.intersection(taken)
                again -= failed
                todo.add(failed)
    assert not again
    assert sorted(found) == sorted(every + [(0, n) for n in range(64)])
    assert time.process_time() - begin < SECONDS


def test_a_worker_that_has_none_takes_those_of_nobody_and_then_those_of_others() -> None:
    owners = {(0, 0): "one", (0, 1): None, (0, 2): "two", (0, 3): None}
    todo = Shares(owners.__getitem__, owners)
    assert todo.take("two", 9, True) == [(0, 2)]
    assert todo.take("two", 1, False) == [(0, 1)]
    assert todo.count("two", True) == 1
    assert todo.take("two", 9, True) == [(0, 3)]
    assert (todo.count("two", False), todo.take("two", 9, False)) == (0, [])
    assert todo.take("two", 9, True) == [(0, 0)]
    assert not todo
    assert todo.take("two", 9, True) == []
