"""The graphs of a large sweep: bounded, so that neither Dask's order nor the scheduler grows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from dask._task_spec import Task
from dask.order import order
from distributed import Client, LocalCluster, Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin
from toy_problems import Idle, NoSink, Prefix

from orograph.engines import sweep_graphs
from orograph.engines.quadtree_pass import QuadtreePass
from orograph.engines.sweep_graphs import separate_graphs
from orograph.execution.checkpoints import CheckpointStore, MemoryCheckpoints, StoredCheckpoints
from orograph.execution.context import RunContext
from orograph.execution.jobs import shared
from orograph.execution.run import Graph
from orograph.planning.plan import TASKS_KNOWN
from orograph.tiles.errors import Cancelled, RunError
from orograph.tiles.grid.quadtree import Place, Quadtree
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.array import ArrayRaster
from orograph.tiles.storage import LocalStorage
from orograph.tiles.store.create import Layout, create_store
from orograph.tiles.store.raster import StoreRaster
from orograph.tiles.store.sink import ArraySink, StoreSink

TOKEN = "0123456789abcdef" * 2
PREFIX = Prefix()
CELLS = np.random.default_rng(0).integers(0, 1000, (40, 53))


def prefix_pass(
    checkpoints: CheckpointStore, sink: Any, problem: Any = PREFIX, tile: int = 4, level: int = 0
) -> QuadtreePass:
    tree = Quadtree(CELLS.shape, tile)
    raster = ArrayRaster(CELLS, CELLS.dtype)
    context = RunContext(tree, level, checkpoints, sink, TOKEN, 1)
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
    monkeypatch.setattr(sweep_graphs, "SHARDS_A_GRAPH", 4)
    monkeypatch.setattr(sweep_graphs, "SHARDS_A_THREAD", 0)


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
    assert total > 2.6 * 256
    census = Census(cluster.scheduler)
    with Client(cluster) as client, shared(run, client) as handle:
        cluster.scheduler.add_plugin(census)
        attributes = run.run(client, handle, Event())
        cluster.scheduler.remove_plugin("census")
    assert attributes == {"tiles": 256}
    assert census.most < total / 6


@pytest.mark.usefixtures("small_graphs")
@pytest.mark.parametrize("down", [False, True], ids=["on the way up", "on the way down"])
def test_a_worker_that_dies_amid_the_graphs_changes_nothing(
    down: bool, cluster: LocalCluster, expected: dict[str, np.ndarray], tmp_path: Path
) -> None:
    out = tmp_path / "prefix.zarr"
    create_store(out, CELLS.shape, Layout(4, 4), Prefix.outputs)
    (tmp_path / "entries").mkdir()
    problem = Mortal((20, 32), down, tmp_path / "died")
    run = prefix_pass(StoredCheckpoints(tmp_path / "entries"), StoreSink(out), problem)
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
