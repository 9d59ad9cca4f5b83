"""The driver's borders: what is sent to whom, what is saved, and what is forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import orograph as og
from orograph.engines.frontier.borders import Borders, pack_strips
from orograph.engines.frontier.tile_keys import TileKeys
from orograph.run.cluster import executors
from orograph.tiles.grid.quadtree import Quadtree

FRICTION = np.random.default_rng(2).uniform(1, 9, (64, 64)).astype(np.float32)


def sent(borders: Borders, tile: tuple[int, int], worker: str) -> list[int]:
    """The numbers of the strips that a request has, eight around the tile and eight of its own."""
    halo, own, names = borders.request(tile, worker)
    assert all(names) == (tile == (1, 1))  # the others are at the end of the grid
    return [n for n, strip in enumerate([*halo, *own]) if strip is not None]


def test_a_worker_is_sent_what_it_has_not() -> None:
    borders = Borders(TileKeys(Quadtree((3, 3), 1), 0))
    strips = [np.zeros(4)] * 8
    for tile in np.ndindex(3, 3):
        borders.take(tile, strips, attempt=1)
    every = list(range(16))
    assert sent(borders, (1, 1), "one") == every
    assert sent(borders, (1, 1), "one") == []
    assert sent(borders, (0, 0), "one") != []  # of another tile
    # another worker improves the tile to the north, where it faces this one and elsewhere
    borders.take((0, 1), strips, attempt=2)
    assert len(sent(borders, (1, 1), "one")) == 1
    # the worker itself improves the tile
    borders.take((1, 1), [*strips[:3], *[None] * 5], attempt=3)
    borders.came_back({(1, 1): [*strips[:3], *[None] * 5]}, [(1, 1)], 3)
    assert sent(borders, (1, 1), "one") == []
    # the same, but another process has done it
    borders.take((1, 1), [*strips[:3], *[None] * 5], attempt=4)
    assert sent(borders, (1, 1), "one") == [8, 9, 10]
    assert sent(borders, (1, 1), "two") == every
    borders.send_all((1, 1))
    assert sent(borders, (1, 1), "two") == every


def test_most_strips_are_where_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = here = 0
    submit = executors._Cluster.submit

    def counted(self: Any, worker: Any, stage: str, function: Any, *arguments: Any) -> Any:
        nonlocal there, here
        for request in arguments[1] if stage == "visit" else ():
            strips = [*request.halo, *request.sent]
            named = sum(name != 0 for name in request.names)
            here += sum(strip is not None for strip in strips)
            there += named - sum(strip is not None for strip in strips)
        return submit(self, worker, stage, function, *arguments)

    monkeypatch.setattr(executors._Cluster, "submit", counted)
    with (
        og.config.set(field=0),
        og.cluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as client,
    ):
        found = og.cost_distance(
            FRICTION, [(5.0, 5.0)], tile=8, shard=16, out=tmp_path / "c.zarr", client=client
        )
    np.testing.assert_array_equal(
        found["cost"], og.cost_distance(FRICTION, [(5.0, 5.0)], tile=64)["cost"], strict=True
    )
    assert there > here > 0


@pytest.mark.parametrize("changed", [False, True], ids=["all", "what has changed"])
def test_borders_come_back_as_they_were(changed: bool) -> None:
    """Of arrays of two kinds; what has not changed is there from before."""
    rng = np.random.default_rng(3)
    tiles = TileKeys(Quadtree((3, 4), 1), 0)
    borders, again = Borders(tiles), Borders(tiles)
    for count in (20, 5):
        borders.changed.clear()
        for _ in range(count):
            tile = int(rng.integers(3)), int(rng.integers(4))
            kinds = [rng.random((1, 5)), rng.integers(0, 9, (2, 1, 3)).astype(np.int32), None]
            borders.take(tile, [kinds[k] for k in rng.integers(0, 3, 8)])
        again.unpack(pack_strips(borders.strips(changed=changed)))
    for tile in np.ndindex(3, 4):
        for one, other in zip(borders.of(tile), again.of(tile), strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_array_equal(one, other, strict=True)


def test_borders_in_the_midst_of_written_shards_are_forgotten() -> None:
    tiles = TileKeys(Quadtree((6, 6), 1), 1)
    borders = Borders(tiles)
    for tile in np.ndindex(6, 6):
        borders.take(tile, [np.zeros(3)] * 8)
    for number, shard in enumerate(np.ndindex(3, 3)):
        assert number < 4 or tiles.done.any()
        tiles.done[shard] = True
        borders.forget(shard)
        kept = {t for t in np.ndindex(6, 6) if borders.of(t)[0] is not None}
        for tile in np.ndindex(6, 6):
            i, j = tiles.shard_of(tile)
            around = tiles.done[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2]
            assert (tile in kept) == (not around.all())
