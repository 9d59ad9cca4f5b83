"""Runs that share a cluster: which has done least comes next, and of equals the earlier."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from watched_raster import wait_until

import orograph as og
from orograph.engines.frontier import driver
from orograph.run.cluster import workers as execution_workers
from orograph.run.cluster.executors import Executor, executor
from orograph.run.cluster.run_order import CELLS_A_TASK, LEAD, MOST_LEADS, Turn
from orograph.run.cluster.workers import make_roll_call

STALLED = 300
GATE = Event()
ORDER: list[str] = []
EARLY, LATE = "a" * 32, "b" * 32


def one_worker() -> LocalCluster:
    return LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None, memory_limit=0
    )


def wait_at_the_gate() -> bool:
    return GATE.wait(STALLED)


def note(what: str) -> None:
    ORDER.append(what)


def fetch(workers: Executor, count: int) -> None:
    while count:
        count -= len(workers.next_done(Event()))


def test_the_run_that_has_done_less_comes_next_and_the_earlier_of_equals_first() -> None:
    GATE.clear()
    ORDER.clear()
    # half a task ahead
    cells = int(0.5 / LEAD * CELLS_A_TASK)
    early, late = Turn(EARLY, 1.0, cells), Turn(LATE, 2.0, cells)
    with (
        one_worker() as cluster,
        Client(cluster, set_as_default=False) as client,
        executor(client, "early", EARLY, early) as one,
        executor(client, "late", LATE, late) as other,
    ):
        busy = client.submit(wait_at_the_gate, priority=9)
        (worker,) = client.scheduler_info()["workers"]
        for number in range(3):
            early.done = late.done = number * CELLS_A_TASK
            other.submit(worker, "visit", note, f"late {number}")
            one.submit(worker, "visit", note, f"early {number}")
        with dask.annotate(priority=1):
            other.submit(worker, "visit", note, "urgent")
        wait_until(lambda: len(cluster.workers[0].state.tasks) == 8, seconds=STALLED)
        GATE.set()
        fetch(one, 3)
        fetch(other, 4)
        assert busy.result()
    equal = [f"{run} {number}" for number in range(3) for run in ("early", "late")]
    assert ["urgent", *equal] == ORDER


def test_a_task_is_shorter_where_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orograph.run.cluster.executors.POLL_SECONDS", 0.0)
    with one_worker() as cluster, Client(cluster, set_as_default=False) as client:
        (worker,) = client.scheduler_info()["workers"]
        with executor(client, "early", EARLY, Turn(EARLY)) as one:
            assert one.share(worker, 8) == 8
            with executor(client, "late", LATE, Turn(LATE)) as other:
                one.submit(worker, "visit", len, "any")
                fetch(one, 1)
                assert one.share(worker, 8) == other.share(worker, 8) == 4
            one.submit(worker, "visit", len, "any")
            fetch(one, 1)
            assert one.share(worker, 8) == 8


def test_a_run_begins_where_the_last_of_the_others_is() -> None:
    with one_worker() as cluster, Client(cluster, set_as_default=False) as client:
        call, at = make_roll_call(), ((), None)

        def look(turn: Turn) -> None:
            turn.look(client.run_on_scheduler(call, None, *at, turn.entry())[2])

        first = Turn(EARLY, 1.0, 10 * CELLS_A_TASK)
        look(first)
        first.done = 7 * CELLS_A_TASK
        look(first)
        assert first.entry() == (EARLY, 1.0, 7.0)
        second = Turn(LATE, 2.0, 10 * CELLS_A_TASK)
        look(second)
        assert second.entry() == (LATE, 2.0, 7.0)
        assert (second.others, second.earlier) == (1, 1)
        assert second.priority() < first.priority() < 0
        first.done += int(LEAD * first.cells)
        assert first.priority() == second.priority()
        first.ended = True
        look(first)
        look(second)
        assert second.entry() == (LATE, 2.0, 7.0), "it stays where it has begun"
        assert (second.others, second.earlier) == (0, 0)


@pytest.mark.parametrize("shape", [(64, 64), (64, 32)])
def test_a_distance_has_reached_and_written_all_its_cells(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    turns: list[Turn] = []

    def turn(*given: Any) -> Turn:
        turns.append(Turn(*given))
        return turns[-1]

    monkeypatch.setattr(driver, "Turn", turn)
    begun = time.time()
    friction = np.random.default_rng(4).integers(1, 9, shape).astype(np.float32)
    og.cost_distance(friction, [(5.0, 5.0)], tile=8, shard=16, out=tmp_path / "c.zarr")
    (own,) = turns
    assert own.done == own.cells == 2 * friction.size
    assert begun <= own.begun <= time.time()


def test_the_scheduler_forgets_runs_that_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with one_worker() as cluster, Client(cluster, set_as_default=False) as client:
        call, at = make_roll_call(), ((), None)
        assert client.run_on_scheduler(call, None, *at, (EARLY, 1.0, 3.0))[2] == {EARLY: (1.0, 3.0)}
        assert client.run_on_scheduler(call, None)[2] == {EARLY: (1.0, 3.0)}
        monkeypatch.setattr(execution_workers, "SECONDS_TO_FORGET_TURNS", -1.0)
        assert client.run_on_scheduler(make_roll_call(), None)[2] == {}


def test_a_run_is_behind_a_few_others_at_most() -> None:
    turn = Turn(LATE, 2.0, 10 * CELLS_A_TASK)
    turn.look({LATE: (2.0, 0.0), **dict.fromkeys("abcdefghijkl", (1.0, 0.0))})
    assert turn.earlier == 12
    first = Turn(EARLY)
    first.look({EARLY: (0.0, MOST_LEADS * LEAD * 10)})
    assert turn.priority() == first.priority()
