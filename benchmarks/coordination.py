"""Cost of coordination: the driver of the frontier engine, and sweeps whose tasks do nothing.

    python benchmarks/coordination.py driver --side 64 --workers 8 64 256 1000
    python benchmarks/coordination.py driver --side 490 --sources corner --visits 1.5
    python benchmarks/coordination.py sweep --sides 32 64 128 [--single]
    python benchmarks/coordination.py scaling --workers 1 4
    python benchmarks/coordination.py sleep --workers 1 2 4

``driver`` runs the real driver on a virtual clock. Its own CPU time is measured and counts; what
workers, client, scheduler and disk would do is computed. Costs grow with the distance from the
nearest source; a tile is visited so many times as the front crosses it. A task costs the client and
the scheduler a time of their own and one for each byte, a state that moves to another worker costs
its bytes; a thread of the driver saves beside it. Efficiency is the work of all workers by the time
that they had.

``sweep`` runs the quadtree sweep on a scheduler and workers that are processes of their own, with a
problem whose functions do nothing: what the scheduler and this process, the client, take is the
cost of coordination. A task has several shards where the grid is large, or with ``--single`` one.
Checkpoints are real. Of memory the growth of resident bytes is told, up to the peak. ``scaling``
tells how many times as fast several workers are as one, with a problem that sleeps.

``sleep`` runs a distance from the middle on a cluster of this machine, whose visits and writes of
tiles sleep, so that workers need no cores: told is how many times as fast several are.
"""

from __future__ import annotations

import argparse
import heapq
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil
from distributed import Client

import orograph as og
from orograph.engines.frontier import bucket_width, journal
from orograph.engines.frontier import driver as frontier
from orograph.engines.frontier.bucket_width import BucketWidth
from orograph.engines.frontier.protocol import Visit
from orograph.engines.frontier.worker import TILES_A_TASK, Written
from orograph.engines.quadtree_pass import QuadtreePass
from orograph.kernels.backends import get_backend
from orograph.run.checkpoints import StoredCheckpoints
from orograph.run.cluster.worker_loads import Rooms
from orograph.run.context import RunContext
from orograph.run.shared_data import shared
from orograph.tiles.grid.neighbours import NEIGHBOURS
from orograph.tiles.grid.quadtree import Place, Quadtree
from orograph.tiles.store.create import Variable

CELLS = 2048  # a side of a tile, which is a shard
STATE = 8 * CELLS**2
TILE = 256  # of the runs whose kernels sleep
SIDE, CORNER = (np.broadcast_to(np.float32(0), shape) for shape in ((1, CELLS), (1, 1)))
BORDER = [CORNER if dy and dx else SIDE for dy, dx in NEIGHBOURS]
SETTLED_AGAIN = 0.1  # of the cells that a visit settles
NETWORK = 200e6  # of a state that is spilled by one worker and read by another
CLIENT_A_BYTE, SCHEDULER_A_BYTE = 6.5e-9, 8.6e-9
SOURCES = ("corner", "middle", "ten")


class Surface:
    """The front over a grid of tiles: where it enters each, how far it goes, how many visits."""

    def __init__(self, side: int, sources: str, visits: float) -> None:
        middle = side * CELLS / 2
        points = {
            "corner": [(0.0, 0.0)],
            "middle": [(middle, middle)],
            "ten": np.random.default_rng(0).uniform(0, side * CELLS, (10, 2)),
        }[sources]
        first = np.arange(side) * float(CELLS)
        self.near = np.full((side, side), math.inf)
        corners = np.full((4, side, side), math.inf)
        self.starts: dict[tuple[int, int], float] = {}
        for y, x in points:
            dy, dx = (np.maximum(np.maximum(first - at, at - first - CELLS), 0) for at in (y, x))
            np.minimum(self.near, np.hypot(dy[:, None], dx[None]), out=self.near)
            for number, corner in enumerate(corners):
                edges = first + CELLS * (number // 2) - y, first + CELLS * (number % 2) - x
                np.minimum(corner, np.hypot(edges[0][:, None], edges[1][None]), out=corner)
            self.starts[int(y // CELLS), int(x // CELLS)] = 0.0
        self.far = np.maximum(corners.max(0), self.near)
        rows, columns = np.indices(self.near.shape)
        more = (rows + columns) % 2 < 2 * (visits % 1)
        self.visits = np.where(more, math.ceil(visits), math.floor(visits))

    def key(self, tile: tuple[int, int], visit: int) -> float:
        """Return the place of the front when a tile is visited for the given time."""
        near, count = float(self.near[tile]), int(self.visits[tile])
        return near + (float(self.far[tile]) - near) * visit / count if visit < count else math.inf


@dataclass
class Costs:
    """Seconds."""

    visits: float
    """Of all visits of a tile."""
    write: float
    read: float
    client: float
    """Of a task, beside its bytes."""
    scheduler: float


@dataclass
class Workers:
    """Simulated workers of one thread each, and a clock."""

    count: int
    surface: Surface
    costs: Costs
    budget: float
    """Seconds of CPU after which the driver is given up."""
    now: float = 0.0
    cpu: float = 0.0
    work: float = 0.0
    carried: float = 0.0
    """Bytes that went through the client."""
    saved: float = 0.0
    tasks: Counter[str] = field(default_factory=Counter)
    shared = False

    def __post_init__(self) -> None:
        self._free = [0.0] * self.count
        self.rooms = Rooms(dict.fromkeys(range(self.count), 2))
        self._scheduler = 0.0
        self._under_way: list[tuple[float, int, int, Any]] = []
        self._done_visits: Counter[tuple[int, int]] = Counter()
        self._at: dict[tuple[int, int], int] = {}
        self._shards = 0
        self._mark = time.thread_time()

    # --- what stands for the store of checkpoints

    def load(self, kind: str, node: Any) -> None:
        """Return nothing: no run came before."""

    def save(self, kind: str, node: Any, entry: Any) -> None:
        """Count the bytes of an entry; a thread writes it, beside the driver."""
        self.saved += bytes_of(entry)

    def count_of(self, kind: str, level: int) -> int:
        """Return how many shards have been written."""
        return self._shards

    # --- the executor

    def tell(self, topic: str, message: Any) -> None:
        """Ignore what the dashboard would show."""

    def share(self, worker: int | None, count: int) -> int:
        """Return all, or a part for each worker."""
        return count if worker is not None else -(-count // self.count)

    def threads(self, tasks: int) -> int:
        """Return one."""
        return 1

    def idle(self) -> Iterator[int]:
        """Yield the workers that can take a task, once for each, the idle ones first."""
        return self.rooms.idle()

    def submit(self, worker: int, stage: str, function: Any, *arguments: Any) -> int:
        """Compute what a task returns and when."""
        self._charge()
        ticket = self.tasks.total()
        self.tasks[stage] += 1
        work, result = (
            self._write(worker, arguments)
            if stage == "write"
            else (self._visit(worker, arguments[1], arguments[2]))
        )
        size = bytes_of(arguments[1:]) + bytes_of(result)
        self.carried += size
        self.now += self.costs.client + size * CLIENT_A_BYTE
        self._scheduler = max(self._scheduler, self.now) + self.costs.scheduler
        self._scheduler += size * SCHEDULER_A_BYTE
        self.rooms.add(worker)
        self._free[worker] = max(self._scheduler, self._free[worker]) + work
        self.work += work
        heapq.heappush(self._under_way, (self._free[worker], ticket, worker, result))
        self._mark = time.thread_time()
        return ticket

    def next_done(self, cancelled: Event) -> list[tuple[int, Any]]:
        """Go on to the time when a task is done."""
        self._charge()
        done = []
        if self._under_way:
            self.now = max(self.now, self._under_way[0][0])
        while self._under_way and self._under_way[0][0] <= self.now:
            _, ticket, worker, result = heapq.heappop(self._under_way)
            self.rooms.add(worker, -1)
            done.append((ticket, result))
        self._mark = time.thread_time()
        return done

    def _charge(self) -> None:
        """Count the CPU time of the driver since the simulation last had control."""
        spent = time.thread_time() - self._mark
        self.cpu += spent
        self.now += spent
        if self.cpu > self.budget:
            raise TimeoutError

    def _visit(self, worker: int, requests: Any, bound: float) -> tuple[float, Any]:
        keys = {request.tile: request.key for request in requests}
        found: dict[Any, Visit] = {}
        work = 0.0
        for _ in range(max(TILES_A_TASK, len(keys))):
            tile = min(keys, key=lambda t: (keys[t], t))
            if keys[tile] > bound or keys[tile] == math.inf:
                break
            work += self._open(worker, tile)
            visit = self._one_visit(tile, bound)
            work += self.costs.visits / int(self.surface.visits[tile]) * visit.times
            keys[tile] = visit.pending
            attempt = self.tasks.total()
            found[tile] = replace(visit.after(found.get(tile)), attempt=attempt)
            for (di, dj), key in zip(NEIGHBOURS, visit.outward, strict=True):
                other = tile[0] + di, tile[1] + dj
                if other in keys:
                    keys[other] = min(keys[other], key)
        return work, found

    def _open(self, worker: int, tile: tuple[int, int]) -> float:
        before, self._at[tile] = self._at.get(tile), worker
        moved = before not in (None, worker)
        return self.costs.read * (before != worker) + moved * STATE / NETWORK

    def _one_visit(self, tile: tuple[int, int], bound: float) -> Visit:
        surface, made = self.surface, self._done_visits[tile]
        count, cells = int(surface.visits[tile]), CELLS**2
        if bound < 0 or made == count:
            key, nothing = surface.key(tile, made), [math.inf] * 8
            far = float(surface.far[tile]) if made else math.inf
            return Visit(key, nothing, [None] * 8, 0, made * cells // count, 0, None, far)
        self._done_visits[tile] += 1
        outward = [math.inf] * 8
        side = surface.near.shape[0]
        for k, (di, dj) in enumerate(NEIGHBOURS):
            other = tile[0] + di, tile[1] + dj
            there = 0 <= other[0] < side and 0 <= other[1] < side
            if made == 0 and not (there and self._done_visits[other]):
                outside = float(surface.far[tile])
                outward[k] = float(surface.near[other]) if there else outside
        settled = int(cells / count * (1 + SETTLED_AGAIN))
        far, reached = float(surface.far[tile]), (made + 1) * cells // count
        return Visit(surface.key(tile, made + 1), outward, BORDER, settled, reached, 1, None, far)

    def _write(self, worker: int, arguments: Any) -> tuple[float, Any]:
        _, nodes, requests = arguments
        self._shards += len(nodes)
        work = self.costs.write * len(nodes)
        return work + sum(self._open(worker, request.tile) for request in requests), Written({}, [])


def bytes_of(entry: Any) -> float:
    """Return the bytes of all arrays in an entry."""
    if isinstance(entry, np.ndarray):
        return entry.nbytes
    if isinstance(entry, dict):
        return sum(map(bytes_of, entry.values()))
    if isinstance(entry, list | tuple):
        return sum(map(bytes_of, entry))
    inner = getattr(entry, "__dict__", None)
    return bytes_of(inner) if inner else 0


def simulate(side: int, workers: Workers) -> str:
    """Run the driver; return a line of what came of it."""
    surface = workers.surface
    tree = Quadtree((side * CELLS,) * 2, CELLS)
    store = SimpleNamespace(
        load=workers.load,
        save=workers.save,
        drop=workers.load,
        count=workers.count_of,
        lasting=True,
    )
    problem = SimpleNamespace(
        name="simulated", links=None, starts=lambda tile: surface.starts, attributes=dict
    )
    run = SimpleNamespace(
        problem=problem,
        context=SimpleNamespace(
            quadtree=tree, shard_level=0, checkpoints=store, token="", begun=0.0, gpus=0
        ),
        bucket_width=BucketWidth(CELLS**2, 1000),
    )
    driver = frontier._Driver(run)  # type: ignore[arg-type]
    end = ""
    with patch.object(journal, "time", SimpleNamespace(monotonic=lambda: workers.now)):
        try:
            driver.settle(workers, None, Event())
            driver.write(workers, None, Event())
        except TimeoutError:
            end = f", given up with {(driver.reached > 0).mean():.0%} of the tiles reached"
    tasks = workers.tasks.total()
    return (
        f"{side * side:7} tiles, {workers.count:4} workers: efficiency "
        f"{workers.work / workers.count / workers.now:.2f}, driver {workers.cpu / tasks * 1e3:.2f} "
        f"ms a task and {workers.cpu / side**2 * 1e3:.2f} a tile, {tasks / side**2:.2f} tasks and "
        f"{workers.carried / side**2 / 1e6:.2f} MB a tile, {workers.saved / 1e6:.0f} MB saved, "
        f"{workers.now:.0f} s{end}"
    )


def lines(options: argparse.Namespace) -> Iterator[str]:
    """Yield the figures of each case."""
    costs = Costs(options.visit, options.write, options.read, options.client, options.scheduler)
    for sources in options.sources:
        for visits in options.visits:
            yield f"source: {sources}, {visits:g} visits a tile"
            for count in options.workers:
                surface = Surface(options.side, sources, visits)
                yield simulate(options.side, Workers(count, surface, costs, options.budget))


@dataclass(frozen=True)
class Nothing:
    """A problem that does nothing, and notes when its first tile is read."""

    begun: Path
    name = "nothing"
    backend = "numba"
    outputs: tuple[Variable, ...] = ()

    def leaf(self, place: Place, *cells: Any) -> tuple[int, int]:
        """Return the number of tiles as summary."""
        if not self.begun.exists():
            self.begun.touch()
        return 1, 0

    def merge(self, place: Place, children: Sequence[tuple[Place, int]]) -> tuple[int, int]:
        """Return the number of tiles."""
        return sum(count for _, count in children), 0

    def root(self, summary: int) -> tuple[int, dict[str, Any]]:
        """Return the number of all tiles."""
        return 0, {"tiles": summary}

    def down(self, place: Place, saved: int, message: int, children: Sequence[Place]) -> list[int]:
        """Return the message for each child."""
        return [message] * len(children)

    def finish(self, place: Place, saved: int, message: int) -> dict[str, Any]:
        """Return no rasters."""
        return {}


@dataclass(frozen=True)
class Sleeping(Nothing):
    """A problem whose kernels sleep."""

    seconds: float = 0.0
    """For a tile on the way up, and as long on the way down."""

    def leaf(self, place: Place, *cells: Any) -> tuple[int, int]:
        """Return the number of tiles as summary."""
        time.sleep(self.seconds)
        return super().leaf(place, *cells)

    def finish(self, place: Place, saved: int, message: int) -> dict[str, Any]:
        """Return no rasters."""
        time.sleep(self.seconds)
        return {}


@contextmanager
def started(*command: str) -> Iterator[psutil.Process]:
    """Yield a process of Python, stopped at the end."""
    with subprocess.Popen([sys.executable, "-m", *command], stderr=subprocess.DEVNULL) as process:
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()


class Peak(Thread):
    """Looks at the resident bytes of a process until it is told to stop."""

    def __init__(self, process: psutil.Process) -> None:
        super().__init__(daemon=True)
        self._process, self._stop = process, Event()
        self._first = self._most = process.memory_info().rss
        self.start()

    def run(self) -> None:
        """Look ten times a second."""
        while not self._stop.wait(0.1):
            self._most = max(self._most, self._process.memory_info().rss)

    def growth(self) -> float:
        """Return the greatest growth, in MiB."""
        self._stop.set()
        return (self._most - self._first) / 2**20


def import_engine() -> None:
    """Import what tasks need, so that it does not count."""
    import_module("orograph.engines.quadtree_pass")


@contextmanager
def processes(workers: int) -> Iterator[tuple[Path, psutil.Process, Client]]:
    """Yield a folder, the process of a scheduler, and a client of it and of workers."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address = ("--scheduler-file", str(folder / "scheduler.json"))
        loopback = ("--host", "127.0.0.1", "--no-dashboard")
        scheduler = stack.enter_context(
            started("distributed.cli.dask_scheduler", *address, "--port", "0", *loopback)
        )
        some = ("--nworkers", str(workers), "--nthreads", "1", "--local-directory", str(folder))
        stack.enter_context(started("distributed.cli.dask_worker", *address, *some, *loopback))
        client = stack.enter_context(Client(scheduler_file=address[1], set_as_default=False))
        client.wait_for_workers(workers)
        client.run_on_scheduler(import_engine)
        client.run(import_engine)
        (folder / "checkpoints").mkdir()
        yield folder, scheduler, client


def pass_over(side: int, folder: Path, problem: Nothing, threads: int) -> QuadtreePass:
    """Return the sweep over ``side`` x ``side`` shards, on a cluster with ``threads`` threads."""
    context = RunContext(
        Quadtree((side, side), 1),
        0,
        StoredCheckpoints(folder / "checkpoints"),
        None,  # type: ignore[arg-type]
        f"{side:032x}",
        cluster_threads=threads,
    )
    return QuadtreePass(problem, (), context)


def sweep(side: int, workers: int, single: bool) -> str:
    """Sweep over ``side`` x ``side`` shards; return a line of what it took.

    ``single``: a task has one shard, as if there were more workers.
    """
    count = side * side
    with processes(workers) as (folder, scheduler, client):
        begun = folder / "begun"
        run = pass_over(side, folder, Nothing(begun), count if single else workers)
        tasks = run.tree.count(run.task_level)
        peaks = [Peak(scheduler), Peak(psutil.Process())]
        before, cpu, began = sum(scheduler.cpu_times()[:2]), time.process_time(), time.time()
        with shared(run, client) as handle:
            attributes = run.run(client, handle, Event())
        seconds, client_cpu = time.time() - began, time.process_time() - cpu
        scheduler_cpu = sum(scheduler.cpu_times()[:2]) - before
        assert attributes == {"tiles": count}
        first = begun.stat().st_mtime - began
        grown = [peak.growth() for peak in peaks]
    scheduled, asked = (
        f"{cpu / count * 1e3:.2f} ms a shard" for cpu in (scheduler_cpu, client_cpu)
    )
    return (
        f"{count:6} shards, {count / tasks:4.1f} a task: scheduler {scheduler_cpu:.1f} s, "
        f"{scheduled}, {grown[0]:.0f} MiB; client {client_cpu:.1f} s, {asked}, {grown[1]:.0f} MiB; "
        f"first tile after {first:.1f} s; {seconds:.0f} s in all"
    )


def scaling(side: int, counts: Sequence[int], kernel: float) -> Iterator[str]:
    """Yield how long a sweep over ``side`` x ``side`` shards takes numbers of workers.

    ``kernel`` seconds are slept for a shard, half of them on the way up.
    """
    alone = 0.0
    for workers in counts:
        with processes(workers) as (folder, _, client):
            problem = Sleeping(folder / "begun", seconds=kernel / 2)
            run = pass_over(side, folder, problem, workers)
            tasks = run.tree.count(run.task_level)
            began = time.monotonic()
            with shared(run, client) as handle:
                run.run(client, handle, Event())
            seconds = time.monotonic() - began
        alone = alone or seconds * workers
        yield (
            f"{side * side:6} shards, {side * side / tasks:4.1f} a task, {workers} workers: "
            f"{seconds:.1f} s, {alone / seconds:.2f} times one, "
            f"{side * side * kernel / workers / seconds:.2f} of the time asleep"
        )


def sleep_in_visits(visit: float, write: float) -> None:
    """Let the visits and writes of tiles sleep in this process, visits by the cells they settle."""
    problem = import_module("orograph.distance.problem").Distance
    visit_tile, finish_tile = problem.visit, problem.finish

    def sleep_and_visit(self: Any, state: Any, *args: Any) -> Visit:
        found: Visit = visit_tile(self, state, *args)
        time.sleep(visit * found.settled / state.place.window.size)
        return found

    def sleep_and_finish(self: Any, state: Any) -> Any:
        time.sleep(write)
        return finish_tile(self, state)

    problem.visit, problem.finish = sleep_and_visit, sleep_and_finish


def sleeping(options: argparse.Namespace) -> Iterator[str]:
    """Yield how long a distance takes on several workers whose visits sleep."""
    cells, scale = options.side * TILE, (CELLS // TILE) ** 2
    # a cell that takes so long to settle stands for many: so much less is a task worth in cells
    bucket_width.CELLS_A_TASK //= scale
    problem = import_module("orograph.distance.problem").Distance
    a_visit = get_backend("numba").cells_a_visit // scale
    problem.cells_a_visit = property(lambda self: a_visit)
    friction = np.random.default_rng(0).uniform(1, 2, (cells, cells)).astype(np.float32)
    first = 0.0
    for count in options.workers:
        with (
            tempfile.TemporaryDirectory() as folder,
            og.config.set(field=0),
            og.cluster(n_workers=count, dashboard_address=":0") as client,
        ):
            layout = {"tile": TILE, "shard": TILE}
            store = og.ingest(friction, Path(folder) / "friction.zarr", **layout)
            client.run(sleep_in_visits, options.visit, options.write)
            seconds = []
            for number in range(options.times):
                out, begin = Path(folder) / f"cost-{number}.zarr", time.perf_counter()
                run = og.cost_distance.submit(
                    store, [(cells / 2, cells / 2)], out=out, client=client, cell_size=1, **layout
                )
                run.result()
                seconds.append(time.perf_counter() - begin)
        median = float(np.median(seconds))
        first = first or median
        yield (
            f"{options.side**2} tiles, {count} workers: {median:.1f} s, {first / median:.2f} times "
            f"as fast as {options.workers[0]}; {run.statistics()['tile_visits']} visits, "
            f"{run.statistics()['cells_settled'] / cells**2:.2f} settled for each cell"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    driver = commands.add_parser("driver", help="the driver of a distance, workers simulated")
    driver.add_argument("--side", type=int, default=64, help="tiles")
    driver.add_argument("--workers", type=int, nargs="+", default=[8, 64, 256, 1000])
    driver.add_argument("--sources", choices=SOURCES, nargs="+", default=SOURCES)
    driver.add_argument("--visits", type=float, nargs="+", default=[1.5, 5], help="of a tile")
    driver.add_argument("--visit", type=float, default=0.25, help="seconds of all visits of a tile")
    driver.add_argument("--write", type=float, default=0.15, help="seconds to write a shard")
    driver.add_argument("--read", type=float, default=0.05, help="seconds to read a tile")
    driver.add_argument("--client", type=float, default=0.6e-3, help="seconds of client a task")
    driver.add_argument("--scheduler", type=float, default=1e-3, help="of scheduler a task")
    driver.add_argument("--budget", type=float, default=60, help="seconds of CPU of the driver")
    driver.set_defaults(lines=lines)
    swept = commands.add_parser("sweep", help="a quadtree sweep whose tasks do nothing")
    swept.add_argument("--sides", type=int, nargs="+", default=[32, 64, 128], help="shards")
    swept.add_argument("--workers", type=int, default=2)
    swept.add_argument("--single", action="store_true", help="one shard a task")
    swept.set_defaults(lines=lambda o: (sweep(side, o.workers, o.single) for side in o.sides))
    scaled = commands.add_parser("scaling", help="a quadtree sweep whose kernels sleep")
    scaled.add_argument("--side", type=int, default=16, help="shards")
    scaled.add_argument("--workers", type=int, nargs="+", default=[1, 4])
    scaled.add_argument("--kernel", type=float, default=0.2, help="seconds of a shard, both ways")
    scaled.set_defaults(lines=lambda o: scaling(o.side, o.workers, o.kernel))
    slept = commands.add_parser("sleep", help="a distance whose kernels sleep, on real workers")
    slept.add_argument("--side", type=int, default=16, help="tiles")
    slept.add_argument("--workers", type=int, nargs="+", default=[1, 4])
    slept.add_argument("--visit", type=float, default=0.2, help="seconds to settle a tile")
    slept.add_argument("--write", type=float, default=0.05, help="seconds to write a tile")
    slept.add_argument("--times", type=int, default=1, help="runs, of which the median is told")
    slept.set_defaults(lines=sleeping)
    options = parser.parse_args()
    for line in options.lines(options):
        print(line)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
