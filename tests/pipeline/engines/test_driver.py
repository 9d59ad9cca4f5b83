"""What idle workers do while the front goes on: write what is final, and read what comes next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from distributed import Client

import orograph as og
from orograph.engines.frontier import driver
from orograph.engines.frontier.bucket_width import BucketWidth
from orograph.engines.tile_states import StateCache, Tile, TileStates
from orograph.run.cluster import executors
from orograph.run.cluster.worker_loads import Rooms

FRICTION = np.random.default_rng(7).uniform(1, 9, (64, 256)).astype(np.float32)
STRIP, SQUARE = FRICTION[:16], FRICTION[:, :64]
Submit = Callable[..., Any]


@pytest.fixture(params=["threads", "cluster"])
def client(request: pytest.FixtureRequest) -> Iterator[Client | None]:
    with (
        og.config.set(threads=2, field=0),
        workers() if request.param == "cluster" else nothing() as connected,
    ):
        yield connected


def workers() -> Any:
    return og.cluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None)


@contextmanager
def nothing() -> Iterator[None]:
    yield None


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stages of tasks in the order in which they are given to workers."""
    given: list[str] = []

    def noted(submit: Submit) -> Submit:
        def note(self: Any, worker: Any, stage: str, *rest: Any) -> Any:
            given.append(stage)
            return submit(self, worker, stage, *rest)

        return note

    for kind in (executors._Threads, executors._Cluster):
        monkeypatch.setattr(kind, "submit", noted(kind.submit))
    return given


@pytest.mark.diagonal
@pytest.mark.parametrize("barriers", [False, True], ids=["open ground", "barriers"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_shards_that_are_final_are_written_while_the_front_goes_on(
    client: Client | None, stages: list[str], tmp_path: Path, dtype: str, barriers: bool
) -> None:
    strip = 2 * STRIP.round().astype(np.int16) if dtype == "int64" else STRIP.copy()
    if barriers:
        strip[1:15:2, ::4] = strip[1:, 15] = -9
    options = {"nodata": -9, "dtype": dtype, "connectivity": 4, "cell_size": 1}
    out = tmp_path / "c.zarr"
    found = og.cost_distance(
        strip, [(0.0, 0.0)], tile=16, shard=16, out=out, client=client, **options
    )
    last_visit = len(stages) - 1 - stages[::-1].index("visit")
    assert "write" in stages[:last_visit]  # how many depends on the disk
    assert stages.count("write") == 16
    expected = og.cost_distance(strip, [(0.0, 0.0)], tile=256, **options)
    np.testing.assert_array_equal(found["cost"], expected["cost"], strict=True)
    assert found.attrs["reached_cells"] == (strip > 0).sum()
    assert og.verify(out).ok


def test_a_tile_is_read_before_the_front_comes_to_it(
    client: Client | None, stages: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With narrow buckets its key is known long before it lies in one, and nothing is final."""
    monkeypatch.setattr(BucketWidth, "adapt", lambda self: None)
    monkeypatch.setattr(BucketWidth, "above", lambda self, front: front + 1e-3)
    found = og.cost_distance(
        SQUARE, [(8.0, 8.0)], tile=16, shard=16, out=tmp_path / "c.zarr", client=client
    )
    assert 0 < stages.count("look") <= 15  # each once, and not the first
    expected = og.cost_distance(SQUARE, [(8.0, 8.0)], tile=64)
    np.testing.assert_array_equal(found["cost"], expected["cost"], strict=True)


@pytest.mark.parametrize("grids", [3, pytest.param(10, marks=pytest.mark.long)])
@pytest.mark.parametrize("connectivity", [4, 8, 16])
def test_what_is_written_early_has_the_same_bits(connectivity: int, grids: int) -> None:
    """Barriers, plains of cost zero and several sources, over tiles of all sizes."""
    rng = np.random.default_rng(connectivity)
    for _ in range(grids):
        shape = rng.integers(20, 70, 2)
        friction = rng.integers(0, 4, shape) * rng.choice([1.0, 0.25])
        friction[rng.random(shape) < rng.choice([0.0, 0.0, 0.2])] = np.nan
        sources = np.column_stack([rng.integers(0, n, 2) for n in shape[::-1]]).astype(float)
        friction[tuple(sources.astype(int).T[::-1])] = 1.0
        tile = int(rng.choice([4, 8, 16]))
        shard = tile * int(rng.choice([1, 2]))
        with og.config.set(threads=3, field=0):
            found = og.cost_distance(
                friction, sources, tile=tile, shard=shard, connectivity=connectivity
            )
        expected = og.cost_distance(friction, sources, tile=128, connectivity=connectivity)
        np.testing.assert_array_equal(found["cost"], expected["cost"], strict=True)


class SlowAndQuick:
    """Two workers of which one does a task only when the other has none."""

    shared = False

    def __init__(self) -> None:
        self.rooms = Rooms({"slow": 2, "quick": 2})
        self.tasks: dict[str, list[Any]] = {"slow": [], "quick": []}
        self.caches: dict[str, StateCache] = {}
        self.at = ""
        self.read: dict[Tile, str] = {}
        self.handed: list[Tile] = []

    def share(self, worker: str | None, count: int) -> int:
        return min(count, 16 if worker is None else 1)

    def threads(self, tasks: int) -> int:
        return 1

    def idle(self) -> Iterator[str]:
        return self.rooms.idle()

    def submit(self, worker: str, stage: str, function: Any, *arguments: Any) -> object:
        self.rooms.add(worker)
        requests = arguments[-1] if stage == "write" else arguments[1]
        for tile in [request.tile for request in requests]:
            if stage == "look":
                self.read[tile] = worker
            elif stage == "visit" and self.read.get(tile, worker) != worker:
                self.handed.append(tile)
        ticket = object()
        self.tasks[worker].append((ticket, function, arguments))
        return ticket

    def next_done(self, cancelled: Event) -> list[tuple[Any, Any]]:
        worker = "quick" if self.tasks["quick"] else "slow"
        ticket, function, arguments = self.tasks[worker].pop(0)
        self.rooms.add(worker, -1)
        self.at = worker
        return [(ticket, function(*arguments))]

    def everywhere(self, function: Any, *arguments: Any) -> None:
        function(*arguments)

    def tell(self, topic: str, message: Any) -> None:
        """Send nothing: there is no scheduler."""


@pytest.mark.parametrize("shard", [8, 16])
def test_an_idle_worker_is_given_tiles_that_a_busy_one_has_read(
    shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = SlowAndQuick()

    @contextmanager
    def executor(*arguments: Any) -> Iterator[SlowAndQuick]:
        yield workers

    def own_cache(states: TileStates) -> StateCache:
        return workers.caches.setdefault(workers.at, StateCache(2**40))

    sources = np.zeros(SQUARE.shape, np.uint8)
    sources[::8, ::8] = 1
    expected = og.cost_distance(SQUARE, sources, tile=64)
    monkeypatch.setattr(TileStates, "cache", property(own_cache))
    monkeypatch.setattr(driver, "executor", executor)
    found = og.cost_distance(SQUARE, sources, tile=8, shard=shard)
    assert set(workers.read.values()) == {"slow", "quick"}
    assert workers.handed
    np.testing.assert_array_equal(found["cost"], expected["cost"], strict=True)


def test_the_worker_that_has_visited_a_shard_writes_it_though_another_is_asked_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write, submit, writers = driver._Driver.write, executors._Cluster.submit, []

    def noted(self: Any, worker: Any, stage: str, *rest: Any) -> Any:
        if stage == "write":
            writers.append(worker)
        return submit(self, worker, stage, *rest)

    def written(self: Any, given: Any, *rest: Any) -> dict[str, Any]:
        owner, idle = self.tiles.owner_of((0, 0)), given.idle
        given.idle = lambda: iter(sorted(idle(), key=owner.__eq__))  # the others first
        found: dict[str, Any] = write(self, given, *rest)
        assert owner is not None
        assert writers == [owner]
        return found

    monkeypatch.setattr(driver._Driver, "write", written)
    monkeypatch.setattr(executors._Cluster, "submit", noted)
    with workers() as client:
        og.cost_distance(
            SQUARE, [(3.0, 4.0)], tile=64, shard=64, out=tmp_path / "c.zarr", client=client
        )
    assert writers
