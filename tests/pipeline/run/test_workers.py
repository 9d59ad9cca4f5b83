"""Workers that die, do not come or are paused: what a run does, and what it says."""

from __future__ import annotations

import math
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import xarray as xr
from dask import config
from dask.utils import key_split
from distributed import Client, LocalCluster, SchedulerPlugin
from distributed.core import Status
from verbs import call
from watched_raster import (
    LastWords,
    WatchedRaster,
    keys_held,
    mortal_cluster,
    wait_until,
)

import orograph as og
from orograph.distance.problem import Distance
from orograph.engines import tile_states
from orograph.engines.frontier import driver
from orograph.engines.frontier.worker import visit_tiles
from orograph.index.distance_index import DistanceIndex
from orograph.run import monitor, session
from orograph.run.cluster import executors, first_worker, more_workers
from orograph.run.cluster import workers as execution_workers
from orograph.run.cluster.executors import executor
from orograph.run.cluster.workers import ask_workers, check_workers, make_roll_call

TOKEN = "0123456789abcdef" * 2
SHAPE, TILE = (150, 170), 10
TILES = 15 * 17
STALLED = 300  # seconds in which nothing has come of a run of some seconds, on a busy machine
ALL = ("cost", "back_direction", "allocation")
rng = np.random.default_rng(17)
FRICTION = rng.integers(1, 10, SHAPE).astype(np.float32)
FRICTION[rng.random(SHAPE) < 0.1] = np.nan
SMALL = np.random.default_rng(2).integers(1, 9, (24, 24)).astype(np.float32)
SOURCES = [(0.0, 0.0), (169.0, 149.0)]
FRICTION[0, 0] = FRICTION[149, 169] = 1.0


# --- workers that die ------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[1, 2], ids=["1 worker", "2 workers"])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with mortal_cluster(request.param) as local:
        yield local


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as connected:
        connected.wait_for_workers(len(cluster.workers), timeout=500)
        yield connected


@pytest.fixture(scope="module")
def expected() -> xr.Dataset:
    return og.cost_distance(FRICTION, SOURCES, tile=170, outputs=ALL)


@pytest.fixture(scope="module")
def friction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("input") / "friction.zarr"
    og.ingest(FRICTION, path, tile=TILE)
    return path


def test_a_task_whose_worker_dies_when_it_is_done_is_done_again(
    client: Client, tmp_path: Path
) -> None:
    """The task is done, its result is asked for, and with the worker the result is gone."""
    with executor(client, "cost-distance", TOKEN) as homes:
        home, *_ = homes.idle()
        ticket = homes.submit(home, "visit", LastWords, tmp_path / "asked")
        done: list[Any] = []
        with ThreadPoolExecutor(1) as pool:
            while not done:
                done = pool.submit(homes.next_done, Event()).result(timeout=500)
    assert done == [(ticket, "told")]
    assert (tmp_path / "asked").exists()


def test_a_task_that_always_kills_its_worker_is_an_error_and_no_loop(
    client: Client, friction: Path, tmp_path: Path
) -> None:
    deadly = WatchedRaster(friction, tmp_path / "diary.txt", deadly=True)
    run = og.cost_distance.submit(deadly, SOURCES, out=tmp_path / "c", client=client)
    with pytest.raises(og.RunError, match=r"killed its workers.*resume=True"):
        run.result(timeout=500)


@pytest.mark.parametrize(
    ("cluster", "rounds"),
    [
        (2, 1),
        pytest.param(1, 1, marks=pytest.mark.long),
        pytest.param(1, 50, marks=pytest.mark.long),
        pytest.param(2, 50, marks=pytest.mark.long),
    ],
    indirect=["cluster"],
)
@pytest.mark.timeout(7200)
def test_three_kills_stall_no_cost_distance_and_change_no_bit(
    client: Client,
    cluster: LocalCluster,
    friction: Path,
    tmp_path: Path,
    expected: xr.Dataset,
    rounds: int,
) -> None:
    """Each round at three other places of the front; each time the nanny starts another worker."""
    where, killed = np.random.default_rng(rounds), set[int]()
    for number in range(rounds):
        run = og.cost_distance.submit(
            friction, SOURCES, outputs=ALL, out=tmp_path / f"{number}.zarr", client=client,
        )  # fmt: skip
        for share in sorted(where.uniform(0, 0.8, 3)):
            wait_until(
                lambda share=share, run=run: run.progress().done >= share * TILES,
                lambda run=run: run.status == "running" or run.result() is None,
                STALLED,
            )
            wait_until(lambda: victims(cluster) - killed, seconds=STALLED)
            victim = min(victims(cluster) - killed)
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)
        result = run.result(timeout=STALLED)
        for name in ALL:
            np.testing.assert_array_equal(result[name].values, expected[name].values)
        print(f"round {number + 1}: {len(killed)} kills, the same bits", flush=True)
    assert len(killed) == 3 * rounds


def victims(cluster: LocalCluster) -> set[int]:
    """The workers' processes."""
    return {nanny.pid for nanny in cluster.workers.values() if nanny.pid is not None}


def test_one_worker_that_hangs_stops_no_question_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_workers, "SECONDS_TO_ANSWER", 1.0)
    with mortal_cluster(2) as cluster, Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=500)
        pids = client.run(os.getpid)
        (_hung, pid), (well, _) = sorted(pids.items())
        os.kill(pid, signal.SIGSTOP)
        try:
            check_workers(client)
            assert ask_workers(client, os.getpid) == {well: pids[well]}
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: ask_workers(client, os.getpid) == pids, seconds=STALLED)


# --- workers that are not there, or do nothing -------------------------------------------------


@contextmanager
def in_process(n_workers: int) -> Iterator[tuple[LocalCluster, Client]]:
    """A cluster of threads of this process, which watches no memory."""
    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=False,
            dashboard_address=None,
            memory_limit=0,
        ) as local,
        Client(local, set_as_default=False) as connected,
    ):
        yield local, connected


MATRIX = np.random.default_rng(3).random((40, 40))
OPERATIONS: dict[str, Callable[..., Any]] = {
    "cost": lambda **o: call(og.cost_distance, SMALL, [(0, 0)], outputs=ALL, tile=8, shard=16, **o),
    "hops": lambda **o: call(og.hop_distance, SMALL, [(0, 0)], tile=8, shard=16, **o),
    "forest": lambda **o: call(og.minimum_spanning_forest, SMALL, tile=8, shard=16, **o),
    "components": lambda **o: call(og.connected_components, SMALL, tile=8, shard=16, **o),
    "all pairs": lambda **o: call(og.all_pairs, MATRIX, tile=16, **o),
    "all pairs by squaring": lambda **o: call(
        og.all_pairs, MATRIX, tile=16, method="squaring", **o
    ),
    "all pairs by Dijkstra": lambda **o: call(
        og.all_pairs, MATRIX, tile=16, method="dijkstra", **o
    ),
    "is-connected": lambda out, **o: call(og.is_connected, SMALL, (0, 0), (20, 20), path=True, **o),
    "pairs": lambda out, **o: call(
        og.is_connected, SMALL, [(0, 0)] * 3, [(20, 20)] * 3, tile=8, shard=8, **o
    ),
}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said after ten seconds is said after none."""
    monkeypatch.setattr(monitor, "PATIENCE", 0.0)
    monkeypatch.setattr(monitor, "SECONDS_BETWEEN_LOOKS", 0.02)


def said(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(w.message) for w in caught if w.category is RuntimeWarning]


# one of each engine; all operations are run where the dashboard groups their tasks
ENGINES = ("cost", "forest", "all pairs", "is-connected")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "operation",
    [pytest.param(name, marks=() if name in ENGINES else pytest.mark.long) for name in OPERATIONS],
)
def test_a_run_that_has_no_worker_says_so_once_and_goes_on_when_one_comes(
    operation: str, tmp_path: Path
) -> None:
    with in_process(0) as (cluster, client), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = OPERATIONS[operation](out=tmp_path / "out", client=client, verb="submit")
        wait_until(lambda: "no worker" in str(run.progress()), lambda: run.status == "running")
        assert "waiting: the cluster has no worker; start one" in str(run.progress())
        cluster.scale(1)
        run.result(timeout=500)
        assert not run.progress().waiting
        assert [text[:42] for text in said(caught)] == [
            "orograph waits: the cluster has no worker;"
        ]


@pytest.mark.usefixtures("impatient")
def test_an_index_that_has_no_worker_says_so(tmp_path: Path) -> None:
    DistanceIndex.build(SMALL, tmp_path / "compiled", block=4)
    with (
        ThreadPoolExecutor(1) as pool,
        in_process(0) as (cluster, client),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        made = pool.submit(DistanceIndex.build, SMALL, tmp_path / "i", block=4, client=client)
        wait_until(lambda: said(caught))
        cluster.scale(1)
        index = made.result(500)
        assert len(said(caught)) == 1
        pool.submit(cluster.scale, 0).result(500)
        wait_until(lambda: not client.scheduler_info()["workers"])
        asked = pool.submit(index.distance_matrix, [(0.0, 0.0), (20.0, 20.0)])
        wait_until(lambda: len(said(caught)) == 2)
        cluster.scale(1)
        assert asked.result(500).values[0, 0] == 0


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("operation", ["cost", "forest"])
def test_a_run_whose_workers_are_all_paused_says_so_once(operation: str, tmp_path: Path) -> None:
    def become(status: Status, dask_worker: Any) -> None:
        dask_worker.status = status

    with in_process(2) as (_, client), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client.run(become, Status.paused)
        run = OPERATIONS[operation](out=tmp_path / "out", client=client, verb="submit")
        wait_until(lambda: "paused" in str(run.progress()), lambda: run.status == "running")
        assert "waiting: all workers (2) are paused: their memory is full" in str(run.progress())
        client.run(become, Status.running)
        run.result(timeout=500)
        assert not run.progress().waiting
        assert len(said(caught)) == 1


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("operation", ["cost", "forest", "all pairs"])
def test_a_run_whose_workers_stay_paused_ends_with_an_error_and_can_go_on(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def become(status: Status, dask_worker: Any) -> None:
        dask_worker.status = status

    monkeypatch.setattr(monitor, "SECONDS_PAUSED", 0.5)
    with in_process(2) as (_, client), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client.run(become, Status.paused)
        run = OPERATIONS[operation](out=tmp_path / "out", client=client, verb="submit")
        with pytest.raises(og.RunError, match=r"all workers \(2\) have been paused.*resume=True"):
            run.result(timeout=500)
        assert run.status == "failed"
        assert "paused" in run.report()["error"]["message"]
        client.run(become, Status.running)
        found = OPERATIONS[operation](out=tmp_path / "out", client=client, resume=True)
    assert not (tmp_path / "out.partial").exists()
    assert found is not None


def test_a_worker_that_dask_pauses_puts_tile_states_on_disk_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def become(status: Status, dask_worker: Any) -> None:
        dask_worker.status = status

    held, far = Event(), Event()
    visit = Distance.visit

    def hold(self: Any, state: Any, *arguments: Any) -> Any:
        if state.place.window.x >= 16:
            far.set()
            assert held.wait(STALLED)
        return visit(self, state, *arguments)

    monkeypatch.setattr(Distance, "visit", hold)
    monkeypatch.setattr(tile_states, "SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(tile_states, "_caches", {})  # none of other runs
    with in_process(1) as (_, client):
        run = OPERATIONS["cost"](out=tmp_path / "out", client=client, verb="submit")
        assert far.wait(STALLED)
        (cache,) = (c for c in tile_states._caches.values() if c._states)
        client.run(become, Status.paused)
        wait_until(lambda: not cache._states, lambda: run.status == "running")
        assert list(tmp_path.glob("out.partial/**/state-0/*"))
        client.run(become, Status.running)
        held.set()
        found = run.result(timeout=500)
    xr.testing.assert_identical(found.load(), OPERATIONS["cost"]())


@pytest.mark.parametrize("limit", ["100 MiB", "100 GiB"])
def test_workers_that_are_smaller_than_the_plan_are_told_at_the_start(
    limit: str, tmp_path: Path
) -> None:
    local = LocalCluster(
        n_workers=1, processes=False, dashboard_address=None, memory_limit=limit.replace(" ", "")
    )
    with (
        config.set({f"distributed.worker.memory.{what}": False for what in ("target", "spill")}),
        local,
        Client(local, set_as_default=False) as client,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        run = OPERATIONS["cost"](out=tmp_path / "out", client=client, verb="submit")
        told = [text for text in said(caught) if text.startswith("client: its smallest worker")]
        run.cancel()
        wait_until(lambda: run.status != "running")
    assert len(told) == (limit == "100 MiB")
    assert all("may use 100 MiB" in text and "smaller tile=" in text for text in told)


@pytest.mark.usefixtures("impatient")
def test_a_run_that_waits_for_its_first_worker_can_be_cancelled(tmp_path: Path) -> None:
    with in_process(0) as (_, client), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = OPERATIONS["cost"](out=tmp_path / "out", client=client, verb="submit")
        wait_until(lambda: "no worker" in str(run.progress()), lambda: run.status == "running")
        run.cancel()
        with pytest.raises(og.Cancelled):
            run.result(timeout=500)
        wait_until(lambda: not client.run_on_scheduler(keys_held))


@pytest.mark.parametrize(
    "operation",
    [
        *("cost", "is-connected", "forest"),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("hops", "pairs")),
    ],
)
def test_a_cluster_that_adapts_from_nothing_is_given_work(operation: str, tmp_path: Path) -> None:
    with in_process(0) as (cluster, client):
        cluster.adapt(minimum=0, maximum=2, interval="50ms")
        run = OPERATIONS[operation](out=tmp_path / "out", client=client, verb="submit")
        run.result(timeout=500)


SEVERAL_WORKERS = Event()


def visit_several_tiles_later(handle: Any, requests: Any, *arguments: Any) -> Any:
    """Visit tiles; several at a time only once there are several workers."""
    if len(requests) > 1:
        SEVERAL_WORKERS.wait()
    return visit_tiles(handle, requests, *arguments)


def test_a_cluster_that_adapts_grows_during_a_distance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(more_workers, "SECONDS_TO_BE_SURE", 0.0)
    monkeypatch.setattr(executors, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(executors, "PATIENCE", math.inf)  # nothing is sent again
    monkeypatch.setattr(driver, "visit_tiles", visit_several_tiles_later)
    friction = np.random.default_rng(4).random((96, 96)) + 1
    SEVERAL_WORKERS.clear()
    with in_process(0) as (cluster, client):
        cluster.adapt(minimum=0, maximum=2, interval="50ms")
        run = og.cost_distance.submit(
            friction, [(48, 48)], out=tmp_path / "out", tile=8, shard=16, client=client
        )
        try:
            wait_until(
                lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 2,
                lambda: run.status == "running",
            )
        finally:
            SEVERAL_WORKERS.set()
        run.result(timeout=500)
        wait_until(lambda: not client.run_on_scheduler(keys_held))
    alone = og.cost_distance(friction, [(48, 48)], tile=8)
    xr.testing.assert_identical(run.result().load(), alone.load())


@pytest.mark.parametrize(
    ("missing", "chosen"), [(None, "cuda"), ("there is none", "numba")], ids=["a GPU", "no GPU"]
)
def test_the_workers_that_come_decide_the_backend(
    missing: str | None, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_worker, "missing_gpu", lambda: missing)
    with in_process(0) as (cluster, client), ThreadPoolExecutor(1) as pool:
        decided = pool.submit(first_worker.decide_backend, client, Event())
        wait_until(lambda: client.run_on_scheduler(keys_held))
        cluster.scale(1)
        assert decided.result(500) == chosen


@pytest.mark.parametrize("operation", ["cost", "hops", "forest", "components"])
def test_a_run_takes_the_backend_of_the_workers_that_come(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class QueryContext(og.OrographError):
        """What is to be seen has been."""

    def engine(self: Any, client: Any, handle: Any, cancelled: Any) -> Any:
        raise QueryContext(self.problem.backend)

    for where in (
        "engines.frontier.driver.Frontier",
        "engines.quadtree_pass.QuadtreePass",
        "engines.stages.Stages",
    ):
        monkeypatch.setattr(f"orograph.{where}.run", engine)
    monkeypatch.setattr(session, "decide_backend", lambda *_: "cuda")
    with in_process(0) as (_, client), pytest.raises(QueryContext, match=r"^cuda$"):
        OPERATIONS[operation](out=tmp_path / "out", client=client)


def test_the_workers_are_told_only_when_they_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []
    with in_process(2) as (cluster, client):
        roll_call = make_roll_call()
        version, threads, _ = client.run_on_scheduler(roll_call, None)
        assert threads == dict.fromkeys(client.scheduler_info()["workers"], 1)
        assert client.run_on_scheduler(roll_call, version)[:2] == (version, None)
        monkeypatch.setattr(executors, "POLL_SECONDS", 0.0)
        info = client.scheduler_info
        with executor(client, "cost-distance", TOKEN) as workers:
            monkeypatch.setattr(client, "scheduler_info", lambda **_: asked.append(1) or info())
            for count in (2, 3, 1):
                cluster.scale(count)
                wait_until(lambda count=count: len(client.nthreads()) == count, seconds=STALLED)
                workers.submit(next(workers.idle()), "visit", len, "any")
                assert [found for _, found in workers.next_done(Event())] == [3]
                assert len(workers.rooms) == count
    assert not asked


# --- the names of tasks ------------------------------------------------------------------------


class Names(SchedulerPlugin):
    """Notes the key of every task."""

    def __init__(self) -> None:
        self.keys: set[Any] = set()

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        self.keys.add(key)


STAGES = {
    "cost": {
        "cost-distances-visit", "cost-distances-write", "allocation-visit", "allocation-write",
    },
    "hops": {"hop-distances-visit", "hop-distances-write"},
    "forest": {f"forest-{s}" for s in ("tiles", "merge", "root", "split", "write")},
    "components": {f"components-{s}" for s in ("tiles", "merge", "root", "split", "write")},
    "all pairs": {f"all-pairs-{s}" for s in ("diagonals", "panel", "rest", "write")},
    "all pairs by squaring": {f"all-pairs-{s}" for s in ("square", "sum-up", "write")},
    "all pairs by Dijkstra": {"all-pairs-sources"},
    "is-connected": {"is-connected-visit", "is-connected-trace"},
    "pairs": {
        "is-connected-search",
        *(f"is-connected-components-{s}" for s in ("tiles", "merge", "root", "split", "write")),
    },
    "sources in a raster": {
        "cost-distances-look", "cost-distances-visit", "cost-distances-write",
    },
    "an index": {"distance-index-shard", "distance-index-query"},
    "no worker yet": {
        "backend-ask", *(f"forest-{s}" for s in ("tiles", "merge", "root", "split", "write")),
    },
}  # fmt: skip


def an_index(out: Path, client: Client, verb: str) -> Any:
    DistanceIndex.build(SMALL, out, block=4, client=client)
    DistanceIndex.open(out, client=client).distance_matrix([(0.0, 0.0), (20.0, 20.0)])


OTHERS: dict[str, Callable[..., Any]] = {
    "sources in a raster": lambda **o: call(
        og.cost_distance, SMALL, np.eye(24, dtype=np.uint8), tile=8, shard=16, **o
    ),
    "an index": an_index,
    "no worker yet": OPERATIONS["forest"],
}


@pytest.mark.parametrize("operation", STAGES)
def test_the_dashboard_groups_the_tasks_of_every_operation_by_their_stages(
    operation: str, tmp_path: Path
) -> None:
    with in_process(int(operation != "no worker yet")) as (cluster, client):
        names = Names()
        cluster.scheduler.add_plugin(names)
        begin = {**OPERATIONS, **OTHERS}[operation]
        run = begin(out=tmp_path / "out", client=client, verb="submit")
        cluster.scale(1)
        if run is not None:
            run.result(timeout=500)
    assert {key_split(key) for key in names.keys} == STAGES[operation]
    for key in names.keys:
        words, _, token = key[0].rpartition("-")
        assert words == key_split(key)
        assert len(token) == 32
