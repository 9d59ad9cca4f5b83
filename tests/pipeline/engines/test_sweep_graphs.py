"""The graphs of a large sweep: bounded, so that neither Dask's order nor the scheduler grows."""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr
from dask._task_spec import Task
from dask.order import order
from distributed import Client, LocalCluster, Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin
from toy_problems import Idle, NoSink, Prefix

import orograph as og
from orograph.engines import sweep_graphs
from orograph.engines.quadtree_pass import QuadtreePass
from orograph.engines.sweep_graphs import level_of_tasks, separate_graphs
from orograph.plans.plan import TASKS_KNOWN
from orograph.run.checkpoints import CheckpointStore, MemoryCheckpoints, StoredCheckpoints
from orograph.run.cluster.compute import Graph
from orograph.run.context import RunContext
from orograph.run.shared_data import shared
from orograph.tiles.errors import Cancelled, RunError
from orograph.tiles.grid.quadtree import Place, Quadtree
from orograph.tiles.grid.window import Window
from orograph.tiles.local_storage import LocalStorage
from orograph.tiles.raster.array import ArrayRaster
from orograph.tiles.store.create import Layout, create_store
from orograph.tiles.store.raster import StoreRaster
from orograph.tiles.store.sink import ArraySink, StoreSink

TOKEN = "0123456789abcdef" * 2
PREFIX = Prefix()
CELLS = np.random.default_rng(0).integers(0, 1000, (40, 53))


def prefix_pass(
    checkpoints: CheckpointStore,
    sink: Any,
    problem: Any = PREFIX,
    tile: int = 4,
    level: int = 0,
    cluster_threads: int = 0,
) -> QuadtreePass:
    tree = Quadtree(CELLS.shape, tile)
    raster = ArrayRaster(CELLS, CELLS.dtype)
    threads = 0 if cluster_threads else 1
    context = RunContext(
        tree, level, checkpoints, sink, TOKEN, threads, cluster_threads=cluster_threads
    )
    return QuadtreePass(problem, (raster,), context)


def arrays() -> dict[str, np.ndarray]:
    return {v.name: np.full(CELLS.shape, -7, v.dtype) for v in Prefix.outputs}


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    """The whole run as one graph; `test_quadtree_pass` compares that with a plain loop."""
    found = arrays()
    run = prefix_pass(MemoryCheckpoints(), ArraySink(found))
    assert len(all_graphs(run)) == 1
    run.run(None, run, Event())
    return found


@pytest.fixture
def small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_graphs, "FEW_TASKS", 0)
    monkeypatch.setattr(sweep_graphs, "TASKS_A_GRAPH", 4)
    monkeypatch.setattr(sweep_graphs, "LEAST_TASKS_A_THREAD", 0)
    monkeypatch.setattr(sweep_graphs, "SHARDS_A_TASK", 1)


ONE, SOME = 140, 12
"""Threads of a cluster with which a task of `CELLS` has one shard, and up to 16."""


@pytest.fixture
def large_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_graphs, "FEW_TASKS", 0)
    monkeypatch.setattr(sweep_graphs, "TASKS_A_GRAPH", 4)
    monkeypatch.setattr(sweep_graphs, "LEAST_TASKS_A_THREAD", 1)


def idle(side: int, checkpoints: CheckpointStore, token: str = TOKEN) -> QuadtreePass:
    raster = ArrayRaster(np.zeros((side, side), np.uint8), np.dtype(np.uint8))
    tree = Quadtree((side, side), 1)
    return QuadtreePass(Idle(), (raster,), RunContext(tree, 0, checkpoints, NoSink(), token))


def all_graphs(run: QuadtreePass) -> list[Graph]:
    graphs = run.sweep_graphs(run)
    return [*chain.from_iterable(graphs.stages()), *graphs.last_stage()]


def pairs(tasks: dict[Any, Any]) -> int:
    """How many tasks of a graph hang on how many others: so many entries has `dask.order`."""
    above: dict[Any, set[Any]] = {}
    for key, task in tasks.items():  # they are in an order of execution
        direct = task.dependencies & tasks.keys()
        above[key] = direct.union(*(above[other] for other in direct))
    return sum(map(len, above.values()))


def test_four_times_the_shards_are_ordered_with_four_times_the_work() -> None:
    least, few, many = (idle(side, MemoryCheckpoints()) for side in (16, 32, 64))
    graphs = [all_graphs(run) for run in (few, many)]
    work = [sum(pairs(graph.tasks) for graph in some) for some in graphs]
    assert work[1] <= 4.5 * work[0]
    # the measure does show how the work grows if all is one graph
    assert pairs(few.graph(few)[0]) > 12 * pairs(least.graph(least)[0])
    largest = max((graph.tasks for graph in graphs[1]), key=len)
    assert len(largest) <= 400
    assert order(largest).keys() == largest.keys()


def test_all_shards_are_in_the_graphs_once_and_what_is_needed_is_kept() -> None:
    run = idle(32, MemoryCheckpoints())
    graphs = all_graphs(run)
    assert len(graphs) == 8
    keys = [key for graph in graphs for key in graph.tasks]
    assert len(set(keys)) == len(keys)
    assert set(run.graph(run)[0]) <= set(keys)
    kept: set[Any] = set()
    for graph in graphs:
        needed = set().union(*(task.dependencies for task in graph.tasks.values()))
        assert needed - graph.tasks.keys() <= kept & set(graph.kept)
        assert set(graph.kept) <= kept | graph.tasks.keys()
        kept = set(graph.kept)


@pytest.mark.parametrize("shape", [(31, 33), (33, 33), (50, 47), (3, 900), (66, 130)], ids=str)
def test_two_graphs_have_no_more_tasks_than_planned(shape: tuple[int, int]) -> None:
    raster = ArrayRaster(np.zeros(shape, np.uint8), np.dtype(np.uint8))
    context = RunContext(Quadtree(shape, 1), 0, MemoryCheckpoints(), NoSink(), TOKEN)
    graphs = all_graphs(QuadtreePass(Idle(), (raster,), context))
    sizes = sorted(len(graph.tasks) for graph in graphs)
    assert sum(sizes[-2:]) <= TASKS_KNOWN


def test_a_shard_is_little_more_than_two_tasks_of_a_large_grid() -> None:
    for side, threads, expected in ((15, 0, 8 / 3), (64, 0, 2.17), (64, 2, 8 / 3)):
        raster = ArrayRaster(np.zeros((side, side), np.uint8), np.dtype(np.uint8))
        tree = Quadtree((side, side), 1)
        context = RunContext(tree, 0, MemoryCheckpoints(), NoSink(), TOKEN, threads)
        run = QuadtreePass(Idle(), (raster,), replace(context, cluster_threads=side**2))
        count = sum(len(graph.tasks) for graph in all_graphs(run))
        assert count / side**2 == pytest.approx(expected, rel=0.05)


def test_separate_tasks_are_a_few_at_a_time_on_a_cluster() -> None:
    tasks = [Task(("shard", number), len, "") for number in range(600)]
    for on_threads, expected in ((False, [256, 256, 88]), (True, [600])):
        graphs = list(separate_graphs(iter(tasks), on_threads=on_threads))
        assert [len(graph.ends) for graph in graphs] == expected
        assert [key for graph in graphs for key in graph.tasks] == [task.key for task in tasks]
        assert all(list(graph.tasks) == graph.ends for graph in graphs)


@pytest.mark.usefixtures("small_graphs")
@pytest.mark.parametrize("level", [0, 1])
def test_threads_give_the_same_with_many_graphs(
    level: int, expected: dict[str, np.ndarray]
) -> None:
    found = arrays()
    run = prefix_pass(MemoryCheckpoints(), ArraySink(found), level=level)
    assert len(all_graphs(run)) > 2
    run.run(None, run, Event())
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
    assert run.progress().done == run.progress().total


@pytest.mark.parametrize(
    ("shape", "threads", "shards_a_task"),
    [
        pytest.param((1, 1), 1, 1, id="a single shard"),
        pytest.param((8, 8), 2, 1, id="too few for two threads"),
        pytest.param((8, 16), 2, 4, id="32 tasks for two threads"),
        pytest.param((22, 24), 2, 16, id="36 tasks for two threads"),
        pytest.param((128, 128), 2, 16, id="no more than 16"),
        pytest.param((128, 128), 64, 16, id="1024 tasks for 64 threads"),
        pytest.param((128, 128), 65, 4, id="more than 1024 for one thread more"),
        pytest.param((128, 128), 1000, 1, id="each thread its own 16 shards"),
        pytest.param((1, 1600), 2, 16, id="of a row as many"),
        pytest.param((60, 64), 0, 1, id="no worker yet"),
        pytest.param((64, 64), 0, 4, id="no worker yet, of a larger grid"),
    ],
)
def test_a_task_is_larger_than_a_shard_where_all_threads_have_many(
    shape: tuple[int, int], threads: int, shards_a_task: int
) -> None:
    tree = Quadtree((4 * shape[0], 4 * shape[1]), 2)
    level = level_of_tasks(tree, 1, threads)
    count = len(list(tree.nodes(level)))
    assert max(len(list(tree.nodes(1, node))) for node in tree.nodes(level)) == shards_a_task
    assert shards_a_task == 1 or count >= 16 * (threads or 64)


@pytest.mark.diagonal
@pytest.mark.usefixtures("large_tasks")
@pytest.mark.parametrize("cluster_threads", [ONE, 35, SOME])
@pytest.mark.parametrize(("tile", "level"), [(4, 0), (2, 1), (1, 2)])
def test_tasks_of_any_size_give_the_same_and_leave_the_same(
    tile: int, level: int, cluster_threads: int, tmp_path: Path
) -> None:
    def entries(name: str, found: dict[str, np.ndarray], threads: int) -> dict[str, bytes]:
        folder = tmp_path / name
        folder.mkdir()
        how = StoredCheckpoints(folder), ArraySink(found), PREFIX, tile, level, threads
        run = prefix_pass(*how)
        assert run.task_level - level == {0: 0, ONE: 0, 35: 1, SOME: 2}[threads]
        run.run(None, run, Event())
        assert run.progress().done == run.progress().total
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}

    on_threads, found = arrays(), arrays()
    left = entries("cluster", found, cluster_threads)
    assert left == entries("threads", on_threads, 0)
    for name, array in on_threads.items():
        np.testing.assert_array_equal(found[name], array)


@dataclass(frozen=True)
class Hoarded(Prefix):
    """Watches that no cells of a shard are left when the next one is read or finished."""

    alive: list[Any] = field(default_factory=list, compare=False)
    most: list[int] = field(default_factory=lambda: [0], compare=False)

    def leaf(self, place: Place, cells: np.ndarray) -> Any:
        summary, saved = super().leaf(place, cells)
        self._watch(saved)
        return summary, saved

    def finish(self, place: Place, saved: np.ndarray, message: Any) -> dict[str, np.ndarray]:
        self._watch(saved)
        return super().finish(place, saved, message)

    def _watch(self, saved: np.ndarray) -> None:
        self.alive[:] = [seen for seen in self.alive if seen() is not None]
        self.alive.append(weakref.ref(saved))
        self.most[0] = max(self.most[0], len(self.alive))


@pytest.mark.usefixtures("large_tasks")
def test_a_task_holds_one_shard_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orograph.run.cluster.compute.thread_count", lambda: 1)
    problem = Hoarded()
    store = StoredCheckpoints(tmp_path)
    # of four tiles each
    run = prefix_pass(store, ArraySink(arrays()), problem, 2, 1, SOME)
    assert run.task_level == 3
    run.run(None, run, Event())
    assert problem.most == [4]


class Stopped(Exception):
    """Stands for a run that is killed."""


@dataclass(frozen=True)
class Mortal(Prefix):
    """Fails at a tile, on the way down if that is ``late``, or kills its process there, once."""

    victim: tuple[int, int] = (-1, -1)
    late: bool = False
    diary: Path | None = None

    def leaf(self, place: Place, cells: np.ndarray) -> Any:
        if not self.late:
            self._die(place)
        return super().leaf(place, cells)

    def finish(self, place: Place, saved: np.ndarray, message: Any) -> dict[str, np.ndarray]:
        if self.late:
            self._die(place)
        return super().finish(place, saved, message)

    def _die(self, place: Place) -> None:
        if (place.window.y, place.window.x) != self.victim:
            return
        if self.diary is None:
            raise Stopped
        if not self.diary.exists():
            self.diary.touch()
            os._exit(1)


@pytest.mark.diagonal
@pytest.mark.usefixtures("small_graphs")
@pytest.mark.parametrize("down", [False, True], ids=["on the way up", "on the way down"])
@pytest.mark.parametrize("victim", [(20, 32), (36, 52)], ids=str)
def test_a_run_goes_on_amid_its_graphs(
    victim: tuple[int, int], down: bool, expected: dict[str, np.ndarray], tmp_path: Path
) -> None:
    found = arrays()
    run = prefix_pass(StoredCheckpoints(tmp_path), ArraySink(found), Mortal(victim, down))
    with pytest.raises(Stopped):
        run.run(None, run, Event())
    run = prefix_pass(StoredCheckpoints(tmp_path), ArraySink(found))
    graphs = all_graphs(run)
    again = sum(key[0].split("-")[1] == "tiles" for graph in graphs for key in graph.tasks)
    assert again < run.tree.count(0)
    run.run(None, run, Event())
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


@dataclass(frozen=True)
class Noting(Prefix):
    """Notes the tiles that are read and finished."""

    read: list[tuple[int, int]] = field(default_factory=list, compare=False)
    finished: list[tuple[int, int]] = field(default_factory=list, compare=False)

    def leaf(self, place: Place, cells: np.ndarray) -> Any:
        self.read.append((place.window.y, place.window.x))
        return super().leaf(place, cells)

    def finish(self, place: Place, saved: np.ndarray, message: Any) -> dict[str, np.ndarray]:
        self.finished.append((place.window.y, place.window.x))
        return super().finish(place, saved, message)


@pytest.mark.diagonal
@pytest.mark.usefixtures("large_tasks")
@pytest.mark.parametrize("down", [False, True], ids=["on the way up", "on the way down"])
@pytest.mark.parametrize("victim", [(20, 32), (36, 52), (0, 4)], ids=str)
@pytest.mark.parametrize(
    ("before", "after"),
    [(SOME, SOME), (SOME, ONE), (ONE, SOME)],
    ids=["same cluster", "larger cluster", "smaller cluster"],
)
def test_a_killed_task_loses_only_shards_that_it_has_not_saved(
    before: int,
    after: int,
    victim: tuple[int, int],
    down: bool,
    expected: dict[str, np.ndarray],
    tmp_path: Path,
) -> None:
    sink = ArraySink(arrays())
    run = prefix_pass(
        StoredCheckpoints(tmp_path), sink, Mortal(victim, down), cluster_threads=before
    )
    with pytest.raises(Stopped):
        run.run(None, run, Event())
    kind, other = ("done-0", "read") if down else ("summary-0", "finished")
    saved = {int(path.name) for path in (tmp_path / kind).glob("*")}
    noted = Noting()
    run = prefix_pass(StoredCheckpoints(tmp_path), sink, noted, cluster_threads=after)
    run.run(None, run, Event())
    lost = [node for node in run.tree.nodes(0) if node.z not in saved]
    windows = [run.tree.window(node) for node in lost]
    again = noted.finished if down else noted.read
    assert sorted(again) == sorted((window.y, window.x) for window in windows)
    assert len(getattr(noted, other)) == (0 if down else 140)
    for name, array in expected.items():
        np.testing.assert_array_equal(sink.arrays[name], array)


@pytest.mark.parametrize("lost", ["shard", "entry"])
def test_what_is_lost_before_the_end_is_noticed_without_a_look_at_each_shard(
    lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, folder = tmp_path / "prefix.zarr", tmp_path / "entries"
    folder.mkdir()
    create_store(out, CELLS.shape, Layout(4, 4), Prefix.outputs)
    run = prefix_pass(StoredCheckpoints(folder), StoreSink(out))
    run.run(None, run, Event())
    looks: list[str] = []
    monkeypatch.setattr(LocalStorage, "state", lambda _, key: looks.append(key))
    run._check_complete()
    assert len(looks) < 10
    (out / "rank" / "c" / "3" / "5" if lost == "shard" else folder / "done-0" / "9").unlink()
    with pytest.raises(RunError, match="139 of 140 shards"):
        run._check_complete()


# --- on a cluster ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as local:
        yield local


class Census(SchedulerPlugin):
    """The most tasks that the scheduler has known."""

    name = "census"

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.most = scheduler, 0

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        self.most = max(self.most, len(self.scheduler.tasks))


@pytest.mark.usefixtures("small_graphs")
def test_the_scheduler_never_knows_all_tasks(cluster: LocalCluster, tmp_path: Path) -> None:
    run = idle(16, StoredCheckpoints(tmp_path), "1" * 32)
    total = sum(len(graph.tasks) for graph in all_graphs(run))
    assert total > 2.2 * 256
    census = Census(cluster.scheduler)
    with Client(cluster) as client, shared(run, client) as handle:
        cluster.scheduler.add_plugin(census)
        attributes = run.run(client, handle, Event())
        cluster.scheduler.remove_plugin("census")
    assert attributes == {"tiles": 256}
    assert census.most < total / 6


@pytest.mark.diagonal
@pytest.mark.usefixtures("large_tasks")
@pytest.mark.parametrize("cluster_threads", [ONE, SOME], ids=["a shard a task", "some a task"])
@pytest.mark.parametrize("down", [False, True], ids=["on the way up", "on the way down"])
def test_a_worker_that_dies_amid_the_graphs_changes_nothing(
    down: bool,
    cluster_threads: int,
    cluster: LocalCluster,
    expected: dict[str, np.ndarray],
    tmp_path: Path,
) -> None:
    out = tmp_path / "prefix.zarr"
    create_store(out, CELLS.shape, Layout(4, 4), Prefix.outputs)
    (tmp_path / "entries").mkdir()
    problem = Mortal((20, 32), down, tmp_path / "died")
    run = prefix_pass(
        StoredCheckpoints(tmp_path / "entries"),
        StoreSink(out),
        problem,
        cluster_threads=cluster_threads,
    )
    with Client(cluster) as client, shared(run, client) as handle:
        run.run(client, handle, Event())
    assert problem.diary is not None
    assert problem.diary.exists()
    for name, array in expected.items():
        found = StoreRaster(out, name, unfinished=True).read(Window(0, 0, *CELLS.shape))
        np.testing.assert_array_equal(found, array)


@pytest.mark.usefixtures("small_graphs")
def test_a_run_is_cancelled_amid_its_graphs(cluster: LocalCluster, tmp_path: Path) -> None:
    run = idle(16, StoredCheckpoints(tmp_path), "2" * 32)
    cancelled = Event()
    census = Census(cluster.scheduler)

    class Stop(SchedulerPlugin):
        name = "stop"
        written = 0

        def transition(self, key: Any, start: str, finish: str, *args: Any, **kw: Any) -> None:
            self.written += finish == "memory" and "-write-" in key[0]
            if self.written == 40:
                cancelled.set()

    with Client(cluster) as client, shared(run, client) as handle:
        cluster.scheduler.add_plugin(census)
        cluster.scheduler.add_plugin(Stop())
        with pytest.raises(Cancelled):
            run.run(client, handle, cancelled)
        cluster.scheduler.remove_plugin("stop")
        cluster.scheduler.remove_plugin("census")
    assert 40 <= run.context.checkpoints.count("done", 0) < 256
    assert run.progress().done < run.progress().total


def test_shards_are_written_by_whichever_worker_is_free(tmp_path: Path) -> None:
    """It tells when Dask no longer heeds the mark by which these tasks wait at the scheduler."""

    class Writers(SchedulerPlugin):
        name = "writers"

        def transition(self, key: Any, start: str, finish: str, *args: Any, **kw: Any) -> None:
            if finish == "memory" and "-write-" in key[0]:
                written[kw["worker"]] += 1

    written: Counter[str] = Counter()
    run = idle(8, StoredCheckpoints(tmp_path), "3" * 32)
    two = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        LocalCluster(**two) as local,
        Client(local) as client,
        shared(run, client) as handle,
    ):
        local.scheduler.add_plugin(Writers())
        run.run(client, handle, Event())
    assert sum(written.values()) == 64
    assert len(written) == 2
    assert min(written.values()) > 16


OPERATIONS = {
    "forest": (og.minimum_spanning_forest, {}),
    "components": (og.connected_components, {"outputs": ("labels", "component_size")}),
    "depressions": (og.depressions, {}),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_results_and_tables_are_the_same_with_16_shards_a_task(name: str, tmp_path: Path) -> None:
    operation, options = OPERATIONS[name]
    cells = np.random.default_rng(1).integers(0, 9, (100, 104)).astype(np.float32)
    expected = operation(cells, **options)
    og.ingest(cells, tmp_path / "cells.zarr", tile=4, shard=8)
    one_thread = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with LocalCluster(**one_thread, dashboard_address=None) as local, Client(local) as client:
        census = Census(local.scheduler)
        local.scheduler.add_plugin(census)
        found = operation(
            tmp_path / "cells.zarr", **options, client=client, out=tmp_path / "out.zarr"
        )
    # 13 x 13 shards are 16 tasks
    assert census.most <= 2 * (16 + 4 + 1) + 1
    xr.testing.assert_identical(found.load().drop_attrs(), expected.drop_attrs())
