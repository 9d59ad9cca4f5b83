"""The tile-state cache: states are opened once, spilled when there are too many, and come back."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import distributed
import numpy as np
import psutil
import pytest
from watched_raster import wait_until

import orograph as og
from orograph.distance.problem import Distance
from orograph.engines import tile_states
from orograph.engines.tile_states import StateCache, TileStates, forget
from orograph.run.checkpoints import MemoryCheckpoints
from orograph.run.context import RunContext
from orograph.tiles.errors import InputError
from orograph.tiles.grid.quadtree import Place, Quadtree
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import ArrayRaster
from orograph.tiles.store.sink import ArraySink

CELLS = np.arange(64.0).reshape(8, 8)


class Sums:
    """States are lists: what the tile and its halo add up to, and what was put in later."""

    halo_width = 1

    backend = "numba"

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.opened: list[Window] = []

    def check(self, cells: Sequence[np.ndarray], frame: Window) -> None:
        bad = np.argwhere(cells[0] < 0)
        if bad.size:
            raise InputError(f"row {bad[0, 0] + frame.y}, column {bad[0, 1] + frame.x}")

    def open(self, place: Place, cells: Sequence[np.ndarray], frame: Window) -> list[float]:
        self.opened.append(frame)
        return [float(cells[0].sum())]

    def pack(self, state: list[float]) -> Any:
        return state[1:]

    def unpack(self, state: list[float], packed: Any) -> None:
        state.extend(packed)

    def size(self, state: list[float]) -> int:
        return 8

    def memory(self) -> int | None:
        return self.limit


def states_of(problem: Sums, cells: np.ndarray = CELLS) -> TileStates:
    context = RunContext(
        Quadtree(cells.shape, 4), 0, MemoryCheckpoints(), ArraySink({}), "tile-states"
    )
    forget(context.token)
    return TileStates(problem, (ArrayRaster(cells, cells.dtype, None),), context)


def test_a_state_is_opened_with_its_halo_and_then_kept() -> None:
    problem = Sums(1000)
    states = states_of(problem)
    state = states.take((0, 1))
    assert problem.opened == [Window(0, 3, 5, 5)]
    assert state == [CELLS[0:5, 3:8].sum()]
    state.append(7.0)
    states.keep((0, 1), state)
    assert states.take((0, 1)) is state
    assert len(problem.opened) == 1
    assert states.take((0, 1)) == state[:1]  # it was out, and nothing of it is on disk


def test_states_that_do_not_fit_are_spilled_and_unpacked() -> None:
    problem = Sums(16)  # bytes of two states
    states = states_of(problem)
    for n, tile in enumerate([(0, 0), (0, 1), (1, 0)]):
        state = states.take(tile)
        state.append(float(n))
        states.keep(tile, state)
    assert len(problem.opened) == 3
    assert states.take((0, 0)) == [CELLS[:5, :5].sum(), 0.0]
    assert len(problem.opened) == 4
    assert states.take((1, 0))[1:] == [2.0]
    assert len(problem.opened) == 4


def test_the_first_bad_cell_of_the_grid_is_named_whichever_tile_is_opened() -> None:
    cells = CELLS.copy()
    cells[6, 6] = cells[1, 2] = -1
    with pytest.raises(InputError, match="row 1, column 2"):
        states_of(Sums(1000), cells).take((1, 1))


def test_a_worker_that_is_retired_saves_what_it_has_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tile_states, "SAVING", 0.0)
    friction = np.random.default_rng(4).uniform(1, 9, (96, 96)).astype(np.float32)
    visit, far = Distance.visit, Event()

    def slow(self: Any, state: Any, *arguments: Any) -> Any:
        if state.place.window.x >= 64:
            far.set()
            time.sleep(0.05)
        return visit(self, state, *arguments)

    monkeypatch.setattr(Distance, "visit", slow)
    with (
        og.config.set(field=0),
        og.cluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as client,
    ):
        run = og.cost_distance.submit(
            friction, [(0.0, 0.0)], tile=8, shard=32, out=tmp_path / "c.zarr", client=client
        )
        assert far.wait(300)
        assert not saved(tmp_path)
        gone = next(iter(client.nthreads()))
        client.retire_workers([gone], close_workers=True)
        wait_until(lambda: saved(tmp_path), lambda: run.status == "running")
        found = run.result(timeout=300)
    expected = og.cost_distance(friction, [(0.0, 0.0)], tile=96)
    np.testing.assert_array_equal(found["cost"], expected["cost"], strict=True)


def saved(folder: Path) -> list[Path]:
    """The saved states of unfinished runs."""
    return list(folder.glob("*.partial/**/state-0/*"))


def test_a_run_whose_folder_is_gone_keeps_no_other_from_being_saved() -> None:
    tokens, saved = ("ended", "at work"), []

    def refuse(tile: tuple[int, int], state: Any) -> None:
        raise FileNotFoundError(f"state of {tile}")

    try:
        for token, save in zip(tokens, (refuse, lambda tile, _: saved.append(tile)), strict=True):
            cache = tile_states.cache_of(token, lambda: 1000)
            cache.save = save
            cache.put((0, 1), object(), 1, refuse)
            cache.save_some({(0, 1): 1}, 0.0, lambda tile: 2)  # too little to be saved by itself
        tile_states.save_all_states()
    finally:
        for token in tokens:
            tile_states.forget(token)
    assert saved == [(0, 1)]


def test_a_state_waits_until_there_is_time_to_save_it() -> None:
    cache, saved = StateCache(10**9), []
    cache.save = lambda tile, state: saved.append(tile)
    seconds = 10**8 * tile_states.SECONDS_A_BYTE / tile_states.SAVING
    cache.put((0, 0), "large", 10**8, lambda tile, state: None)
    cache.save_some({(0, 0): 1}, 0.4 * seconds, lambda tile: 1)
    assert not saved
    cache.save_some({(0, 0): 1}, 0.7 * seconds, lambda tile: 1)
    assert saved == [(0, 0)]


def test_a_worker_that_ends_saves_no_longer_than_it_may() -> None:
    cache, times = StateCache(1000), []

    def save(tile: tuple[int, int], state: Any) -> None:
        times.append(tile)
        time.sleep(0.05)

    cache.save = save
    for n in range(10):
        cache.put((0, n), n, 1, save)
    cache.save_some({(0, n): n + 1 for n in range(9)}, 0.0, lambda tile: 1000)
    cache.save_all(time.monotonic() + 0.12)
    assert 1 <= len(times) <= 3
    assert times == [(0, 8), (0, 7), (0, 6)][: len(times)]
    cache.save_all(math.inf)
    assert sorted(times) == [(0, n) for n in range(9)]  # each once, and what was not visited never
    assert [cache.take((0, n)) for n in range(10)] == list(range(10))


def test_states_have_what_a_run_leaves_of_a_worker_before_dask_pauses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unit = 2**24

    def room(limit: int | None, size: int, working: int, **of_worker: Any) -> int:
        manager = SimpleNamespace(memory_limit=limit, memory_pause_fraction=of_worker["pause"])
        state = SimpleNamespace(nthreads=of_worker.get("threads", 1))
        worker = SimpleNamespace(memory_manager=manager, state=state)
        monkeypatch.setattr(distributed, "get_worker", lambda: worker)
        return tile_states.room_for_states(size, working)

    held = psutil.Process().memory_info().rss
    limit = 2 * held
    near = pytest.approx(0.8 * limit - held, abs=held / 8)
    assert room(limit, 0, 0, pause=0.8) == near
    assert room(limit, 0, 2 * unit, pause=0.8, threads=2) + 4 * unit == near
    assert room(limit, unit, 0, pause=0.8) - unit == near
    assert room(limit, 0, held, pause=0.8) == 0
    assert room(limit, 0, 0, pause=False) == pytest.approx(limit / 2, rel=0.1)
    assert room(16 * held, 0, 0, pause=0.8) == 8 * held  # no more than half
    assert room(None, 0, 0, pause=0.8) == tile_states.memory_limit() // 2


@pytest.mark.parametrize("known", [True, False], ids=["known before", "known later"])
def test_caches_beside_one_another_divide_their_memory(known: bool) -> None:
    cache = StateCache(100 if known else None)
    cache.divide(4)
    if not known:
        cache.set_limit(100)
    assert cache.limit == 25


def test_a_worker_that_is_paused_puts_its_states_aside_and_keeps_fewer() -> None:
    cache, saved = tile_states.cache_of("paused", lambda: 1000), []
    try:
        cache.save = lambda tile, state: saved.append(tile)
        for n in range(10):
            cache.put((0, n), n, 10, lambda tile, state: None)
        tile_states.put_all_aside()
        assert saved == [(0, n) for n in range(10)]
        assert cache.take((0, 0)) is None
        assert cache.limit == 50
        tile_states.put_all_aside()  # nothing is left: nothing happens
        assert cache.limit == 50
    finally:
        forget("paused")
