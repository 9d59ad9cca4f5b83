"""The engine, on a problem that is no forest: `toy_problems.Prefix`."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import dask
import dask.order
import dask.threaded
import numpy as np
import pytest
from distributed import Client, LocalCluster, Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin
from toy_problems import BASE, NODATA, PRIME, Idle, NoSink, Prefix
from traps import PICKLED_ENTRY

from orograph.engines import sweep_graphs
from orograph.engines.quadtree_pass import QuadtreePass
from orograph.engines.sweep_graphs import levels_above
from orograph.run.checkpoints import CheckpointStore, MemoryCheckpoints, StoredCheckpoints
from orograph.run.context import RunContext
from orograph.run.shared_data import shared
from orograph.tiles.errors import RunError
from orograph.tiles.grid.quadtree import Node, Place, Quadtree, Sides, morton_decode
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import ArrayRaster
from orograph.tiles.store.create import Layout, create_store
from orograph.tiles.store.raster import StoreRaster
from orograph.tiles.store.sink import ArraySink, StoreSink

TOKEN = "0123456789abcdef" * 2


def expected(cells: np.ndarray, tile: int) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """The same without a tree: one loop over the tiles, sorted by their interleaved digits."""

    def code(corner: tuple[int, int]) -> str:
        row, column = (f"{c // tile:032b}" for c in corner)
        return "".join(x + y for y, x in zip(row, column, strict=True))

    height, width = cells.shape
    corners = [(y, x) for y in range(0, height, tile) for x in range(0, width, tile)]
    rank, digest = np.full(cells.shape, -1), np.full(cells.shape, -1)
    length = total = 0
    for top, left in sorted(corners, key=code):
        for y in range(top, min(top + tile, height)):
            for x in range(left, min(left + tile, width)):
                if cells[y, x] != NODATA:
                    rank[y, x] = length
                    length, total = length + 1, (total * BASE + int(cells[y, x])) % PRIME
                    digest[y, x] = total
    return {"rank": rank, "digest": digest}, {"length": length, "digest": total}


def grid(shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 1000, shape)
    return np.where(rng.random(shape) < 0.2, NODATA, cells)


def prefix_pass(
    cells: np.ndarray, tile: int, level: int, checkpoints: CheckpointStore, **parts: Any
) -> tuple[QuadtreePass, dict[str, np.ndarray]]:
    arrays = {v.name: np.full(cells.shape, -7, v.dtype) for v in Prefix.outputs}
    raster = parts.pop("raster", None) or ArrayRaster(cells, cells.dtype)
    problem = parts.pop("problem", Prefix())
    tree = parts.pop("tree", None) or Quadtree(cells.shape, tile)
    sink = parts.pop("sink", None) or ArraySink(arrays)
    context = RunContext(tree, level, checkpoints, sink, TOKEN, **parts)
    return QuadtreePass(problem, (raster,), context), arrays


def made(folder: Path) -> Path:
    """A checkpoint store makes no folder: a task that has lost its run must not bring it back."""
    folder.mkdir(exist_ok=True)
    return folder


def execute(run: QuadtreePass, get: Callable[..., Any] = dask.get) -> dict[str, Any]:
    tasks, root, writes = run.graph(run)
    (_, attributes), *_ = get(tasks, [root, *writes])
    return attributes


CASES = [
    pytest.param(shape, tile, id=f"{shape[0]} by {shape[1]} in tiles of {tile}")
    for shape, tile in [
        ((1, 1), 1),
        ((1, 1), 9),
        ((1, 13), 2),
        ((17, 1), 3),
        ((8, 8), 1),
        ((9, 9), 3),
        ((16, 16), 4),
        ((5, 31), 4),
        ((33, 6), 5),
        ((21, 34), 4),
        ((40, 40), 64),
        ((15, 9), 1),
    ]
]


@pytest.mark.diagonal
@pytest.mark.parametrize(("shape", "tile"), CASES)
@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_every_tile_is_told_what_comes_before_it(
    shape: tuple[int, int], tile: int, kind: str, tmp_path: Path
) -> None:
    cells = grid(shape)
    arrays, attributes = expected(cells, tile)
    for level in range(Quadtree(shape, tile).root.level + 1):
        for get in (dask.get, dask.threaded.get):
            folder = tmp_path / f"{level}-{get.__module__}"
            checkpoints = (
                MemoryCheckpoints() if kind == "memory" else StoredCheckpoints(made(folder))
            )
            run, found = prefix_pass(cells, tile, level, checkpoints)
            assert execute(run, get) == attributes
            for name, array in arrays.items():
                np.testing.assert_array_equal(found[name], array)
            assert run.progress().done == run.progress().total


@dataclass(frozen=True)
class Bands:
    """Binary tree over bands of ``rows`` rows."""

    shape: tuple[int, int]
    rows: int

    @property
    def root(self) -> Node:
        return Node((-(-self.shape[0] // self.rows) - 1).bit_length(), 0)

    def window(self, node: Node) -> Window:
        row, _ = morton_decode(node.z)
        height = self.rows << node.level
        return Window(row * height, 0, height, self.shape[1]).clip(self.shape)

    def place(self, node: Node) -> Place:
        window = self.window(node)
        south = window.y + window.height < self.shape[0]
        return Place(node, window, Sides(window.y > 0, south, False, False), self.shape)

    def children(self, node: Node) -> list[Node]:
        below = [Node(node.level - 1, 4 * node.z + i) for i in (0, 1)]
        return [child for child in below if self.window(child).size]

    def nodes(self, level: int, within: Node | None = None) -> Iterator[Node]:
        top = within or self.root
        if top.level == level:
            yield top
            return
        for child in self.children(top):
            yield from self.nodes(level, child)

    def count(self, level: int) -> int:
        return len(list(self.nodes(level)))


@pytest.mark.parametrize(("height", "rows"), [(1, 1), (13, 1), (16, 4), (21, 2)])
def test_any_tree_will_do(height: int, rows: int) -> None:
    cells = grid((height, 6))
    arrays, attributes = expected(cells, 64)  # in one piece: row by row
    tree = Bands(cells.shape, rows)
    for level in range(tree.root.level + 1):
        run, found = prefix_pass(cells, 1, level, MemoryCheckpoints(), tree=tree)
        assert execute(run) == attributes
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
        assert run.progress().done == run.progress().total


@dataclass(frozen=True, eq=False)
class CountingRaster(ArrayRaster):
    """Remembers every window that was read."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "windows", [])

    def read(self, window: Window) -> np.ndarray:
        self.windows.append(window)  # type: ignore[attr-defined]
        return super().read(window)


def counted(cells: np.ndarray) -> tuple[CountingRaster, list[Window]]:
    raster = CountingRaster(cells, cells.dtype)
    return raster, raster.windows  # type: ignore[attr-defined]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_every_tile_is_read_once(level: int, tmp_path: Path) -> None:
    cells = grid((21, 34))
    raster, windows = counted(cells)
    run, _ = prefix_pass(cells, 4, level, StoredCheckpoints(made(tmp_path)), raster=raster)
    execute(run)
    tiles = [Window(y, x, 4, 4).clip(cells.shape) for y in range(0, 21, 4) for x in range(0, 34, 4)]
    assert Counter(windows) == Counter(tiles)


@pytest.mark.diagonal
@pytest.mark.parametrize(("shape", "tile"), CASES)
def test_the_graph_has_every_node_once(shape: tuple[int, int], tile: int) -> None:
    tree = Quadtree(shape, tile)
    for level in range(tree.root.level + 1):
        run, _ = prefix_pass(grid(shape), tile, level, MemoryCheckpoints())
        tasks, root, writes = run.graph(run)
        shards = {(level, node.z) for node in tree.nodes(level)}
        above = {
            (upper, node.z)
            for upper in levels_above(tree, level, 0)  # of few tasks the root's alone
            for node in tree.nodes(upper)
        }
        stages: dict[str, list[tuple[int, int]]] = {}
        for name, *node in tasks:
            stages.setdefault(name.removeprefix("prefix-").removesuffix(f"-{TOKEN}"), []).append(
                tuple(node)
            )
        assert {stage: set(nodes) for stage, nodes in stages.items()} == {
            stage: nodes
            for stage, nodes in {
                "tiles": shards,
                "merge": above,
                "root": {(tree.root.level, 0)},
                "split": above,
                "write": shards,
            }.items()
            if nodes
        }
        assert len(tasks) == 2 * len(shards) + 2 * len(above) + 1
        assert len(shards) == -(-shape[0] // (tile << level)) * -(-shape[1] // (tile << level))
        assert all(task.key == key for key, task in tasks.items())
        assert set().union(*(task.dependencies for task in tasks.values())) <= tasks.keys()
        assert [key[2] for key in writes] == sorted(key[2] for key in writes)
        assert {root, *writes} <= tasks.keys()


def entries(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


DAMAGE: dict[str, Callable[[Path], object]] = {
    "flipped": lambda p: p.write_bytes(p.read_bytes()[:-1] + bytes([p.read_bytes()[-1] ^ 1])),
    "truncated": lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]),
    "emptied": lambda p: p.write_bytes(b""),
    "deleted": lambda p: p.unlink(),
    "pickled": lambda p: p.write_bytes(PICKLED_ENTRY),
}


class PowerCut(Exception):
    """Stops a run at a chosen moment."""


class FailingVault(StoredCheckpoints):
    """Fails when the given number of entries has been saved."""

    def __init__(self, folder: Path, saves: int) -> None:
        super().__init__(folder)
        self.saves = saves

    def save(self, kind: str, node: Node, entry: Any) -> None:
        if self.saves == 0:
            raise PowerCut
        self.saves -= 1
        super().save(kind, node, entry)


def saves_of_a_whole_run(cells: np.ndarray, folder: Path) -> int:
    checkpoints = FailingVault(made(folder), 10**6)
    execute(prefix_pass(cells, 4, 1, checkpoints)[0])
    return 10**6 - checkpoints.saves


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
def test_a_run_cut_off_at_any_save_goes_on_from_there(tmp_path: Path, step: int) -> None:
    cells = grid((21, 34), 3)
    arrays, attributes = expected(cells, 4)
    for cut in range(0, saves_of_a_whole_run(cells, tmp_path / "whole"), step):
        folder = tmp_path / str(cut)
        run, found = prefix_pass(cells, 4, 1, FailingVault(made(folder), cut))
        with pytest.raises(PowerCut):
            execute(run)
        kept = {path: path.stat().st_mtime_ns for path in entries(folder) if "summary" in str(path)}
        raster, second = counted(cells)
        sink = ArraySink(found)
        run, _ = prefix_pass(cells, 4, 1, StoredCheckpoints(made(folder)), raster=raster, sink=sink)
        assert execute(run) == attributes
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
        # what had its summary and saved state on disk is neither read nor written again
        shards_kept = {int(path.name) for path in kept if path.parent.name == "summary-1"}
        again = [node for node in run.tree.nodes(1) if node.z not in shards_kept]
        tiles = [run.tree.window(tile) for node in again for tile in run.tree.nodes(0, node)]
        assert Counter(second) == Counter(tiles)
        assert all(path.stat().st_mtime_ns == time for path, time in kept.items())


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("stage", "damage"),
    [
        pytest.param(
            *(stage, damage),
            marks=[] if stage == "up" or damage == "deleted" else pytest.mark.long,
        )
        for stage in ("up", "down")
        for damage in DAMAGE
    ],
)
def test_damage_to_any_checkpoint_is_made_good(stage: str, damage: str, tmp_path: Path) -> None:
    cells = grid((21, 34), 4)
    arrays, attributes = expected(cells, 4)
    whole = saves_of_a_whole_run(cells, tmp_path / "whole")
    shards = Quadtree(cells.shape, 4).count(1)
    cut = whole - shards - 1 if stage == "up" else whole - shards // 2

    def cut_off(folder: Path) -> dict[str, np.ndarray]:
        run, found = prefix_pass(cells, 4, 1, FailingVault(made(folder), cut))
        with pytest.raises(PowerCut):
            execute(run)
        return found

    cut_off(tmp_path / "look")
    victims = [p.relative_to(tmp_path / "look") for p in entries(tmp_path / "look")]
    assert len(victims) > 10
    for number, victim in enumerate([*victims[:: 1 if damage == "deleted" else 3], None]):
        folder = tmp_path / str(number)
        found = cut_off(folder)
        for path in [folder / victim] if victim else entries(folder):
            DAMAGE[damage](path)
        run, _ = prefix_pass(cells, 4, 1, StoredCheckpoints(made(folder)), sink=ArraySink(found))
        assert execute(run) == attributes, victim
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array, err_msg=str(victim))


def test_a_task_done_twice_does_no_harm(tmp_path: Path) -> None:
    cells = grid((21, 34), 5)
    arrays, attributes = expected(cells, 4)
    run, found = prefix_pass(cells, 4, 1, StoredCheckpoints(made(tmp_path)))
    tasks, root, writes = run.graph(run)
    results: dict[Any, Any] = {}
    for key in dask.order.order(tasks):
        needed = {k: results[k] for k in tasks[key].dependencies}
        results[key] = tasks[key](needed)
        assert tasks[key](needed) == results[key]
    assert results[root][1] == attributes
    for key in [*tasks, *reversed(tasks)]:  # long after, and in any order
        tasks[key]({k: results[k] for k in tasks[key].dependencies})
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
    assert len(writes) == run.tree.count(1)


def test_a_result_with_a_shard_missing_is_refused(tmp_path: Path) -> None:
    class Forgetful(StoredCheckpoints):
        def save(self, kind: str, node: Node, entry: Any) -> None:
            if (kind, node) != ("done", Node(1, 2)):
                super().save(kind, node, entry)

    run, _ = prefix_pass(grid((16, 16)), 4, 1, Forgetful(tmp_path))
    with pytest.raises(RunError, match="3 of 4 shards"):
        run.run(None, run, Event())


def test_progress_counts_what_each_task_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_graphs, "FEW_TASKS", 0)  # else the root's task leaves several
    run, _ = prefix_pass(grid((21, 34)), 4, 1, StoredCheckpoints(made(tmp_path)))
    assert run.progress().done == 0
    tasks, *_ = run.graph(run)
    results: dict[Any, Any] = {}
    seen = [0]
    for key in dask.order.order(tasks):
        results[key] = tasks[key]({k: results[k] for k in tasks[key].dependencies})
        seen.append(run.progress().done)
    assert seen == sorted(seen)
    assert seen[-1] == run.progress().total
    assert max(np.diff(seen)) == 1


def most_held(run: QuadtreePass, workers: int, delay: int) -> int:
    """The most results a cluster holds on the way up or down, by the rules that Dask goes by.

    A task without dependencies waits at the scheduler until a worker has room for it; any other
    is sent to a worker once it can be done. A worker does what it has in order of priority, and
    what it sends or is sent takes ``delay``, in which a merge or a split could be done.
    """
    tasks, *_ = run.graph(run)
    rank = {key: number for number, key in enumerate(tasks)}
    lasts = {"tiles": 5, "write": 5}
    above: dict[Any, list[Any]] = {key: [] for key in tasks}
    for key, task in tasks.items():
        for below in task.dependencies:
            above[below].append(key)
    needed = {key: len(keys) for key, keys in above.items()}
    missing = {key: len(task.dependencies) for key, task in tasks.items()}
    queue = iter([key for key in tasks if not missing[key]])
    hands: list[list[tuple[int, Any]]] = [[] for _ in range(workers)]
    busy, sent = [False] * workers, [0] * workers
    events: list[tuple[int, int, str, int, Any]] = []
    held: set[Any] = set()
    most = number = 0

    def later(time: int, what: str, worker: int, key: Any) -> None:
        nonlocal number
        number += 1
        heapq.heappush(events, (time, number, what, worker, key))

    def send(time: int, worker: int, key: Any) -> None:
        sent[worker] += 1
        later(time + delay, "arrives", worker, key)

    for worker in 2 * list(range(workers)):
        send(0, worker, next(queue))
    while events:
        time, _, what, worker, key = heapq.heappop(events)
        stage = key[0].split("-")[1]
        if what == "known":
            sent[worker] -= 1
            if stage != "write":
                held.add(key)
                most = max(most, len(held))
            for below in tasks[key].dependencies:
                needed[below] -= 1
                if not needed[below]:
                    held.discard(below)
            for user in above[key]:
                missing[user] -= 1
                if not missing[user]:
                    send(time, int(np.argmin(sent)), user)
            if stage == "tiles" and (ahead := next(queue, None)):
                send(time, worker, ahead)
            continue
        if what == "arrives":
            heapq.heappush(hands[worker], (rank[key], key))
        else:
            busy[worker] = False
            later(time + delay, "known", worker, key)
        if hands[worker] and not busy[worker]:
            busy[worker] = True
            _, chosen = heapq.heappop(hands[worker])
            later(time + lasts.get(chosen[0].split("-")[1], 1), "done", worker, chosen)
    assert not any(missing.values())
    return most


@pytest.mark.parametrize("delay", [0, 1, 30], ids=["no delay", "some delay", "a slow scheduler"])
def test_few_results_are_held_however_many_shards(delay: int) -> None:
    cells = np.zeros((64, 64), np.uint8)
    raster = ArrayRaster(cells, cells.dtype)
    tree = Quadtree(cells.shape, 1)
    run = QuadtreePass(Idle(), (raster,), RunContext(tree, 0, MemoryCheckpoints(), NoSink(), TOKEN))
    # up to three siblings wait for the fourth on every level, for each of the workers
    assert most_held(run, 2, delay) <= 2 * 4 * 7
    assert most_held(run, 8, delay) <= 8 * 4 * 7


# --- on a cluster ---------------------------------------------------------------------------


class Watch(SchedulerPlugin):
    """What the scheduler holds, and in which order it gives work out."""

    name = "watch"

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.held: set[Any] = set()
        self.most = 0
        self.given_out: dict[str, list[tuple[str, int]]] = {}

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        stage = key[0].split("-")[1]
        if finish == "processing":
            on = self.scheduler.tasks[key].processing_on
            assert on is not None
            self.given_out.setdefault(stage, []).append((on.address, key[2]))
        if finish == "memory" and stage != "write":  # what a write returns is None
            self.held.add(key)
            self.most = max(self.most, len(self.held))
        if start == "memory":
            self.held.discard(key)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as local:
        yield local


def watched(cluster: LocalCluster, side: int, folder: Path) -> Watch:
    """Run an idle problem on ``side`` x ``side`` shards; what was seen."""
    cells = np.zeros((side, side), np.uint8)
    token = f"{side:032x}"
    tree = Quadtree(cells.shape, 1)
    raster = ArrayRaster(cells, cells.dtype)
    checkpoints = StoredCheckpoints(made(folder / "vault"))
    run = QuadtreePass(Idle(), (raster,), RunContext(tree, 0, checkpoints, NoSink(), token))
    watch = Watch(cluster.scheduler)
    with Client(cluster) as client:
        cluster.scheduler.add_plugin(watch)
        try:
            with shared(run, client) as handle:
                attributes = run.run(client, handle, Event())
        finally:
            cluster.scheduler.remove_plugin("watch")
    assert attributes == {"tiles": side * side}
    assert sorted(place for _, place in watch.given_out["tiles"]) == list(range(side * side))
    return watch


def longest_rise(numbers: Sequence[int]) -> int:
    """The length of the longest increasing subsequence."""
    least: list[int] = []  # with which a rise of each length can end
    for number in numbers:
        place = bisect_left(least, number)
        least[place : place + 1] = [number]
    return len(least)


def test_shards_are_taken_up_and_written_in_z_order(cluster: LocalCluster, tmp_path: Path) -> None:
    for attempt in range(3):
        watch = watched(cluster, 16, made(tmp_path / str(attempt)))
        # up to three siblings wait for the fourth on every level, for each of two workers
        if watch.most <= 8 * 5:
            break  # else one of them may have been kept from working by other processes
    given = watch.given_out
    for stage in ("tiles", "write"):
        order = [place for _, place in given[stage]]
        # the first tasks of a worker may be any: Dask spreads them before it looks at priorities
        assert longest_rise(order) >= 0.875 * len(order), (stage, order)
    assert watch.most <= 8 * 5
    assert watch.held == {key for key in watch.held if "root" in key[0]}


def test_a_run_on_a_cluster_gives_the_same(cluster: LocalCluster, tmp_path: Path) -> None:
    cells = grid((21, 34))
    raster = ArrayRaster(cells, cells.dtype)
    arrays, attributes = expected(cells, 4)
    out = tmp_path / "prefix.zarr"
    create_store(out, cells.shape, Layout(4, 8), Prefix.outputs)
    tree, checkpoints = Quadtree(cells.shape, 4), StoredCheckpoints(made(tmp_path / "vault"))
    context = RunContext(tree, 1, checkpoints, StoreSink(out), TOKEN)
    run = QuadtreePass(Prefix(), (raster,), context)
    with Client(cluster) as client, shared(run, client) as handle:
        assert run.run(client, handle, Event()) == attributes
    for name, array in arrays.items():
        found = StoreRaster(out, name, unfinished=True).read(Window(0, 0, 21, 34))
        np.testing.assert_array_equal(found, array)
