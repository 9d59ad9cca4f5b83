"""Tasks that are lost with their workers at any moment, in one process: the same bits."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from threading import Event
from typing import Any

import numpy as np
import pytest

import orograph as og
from orograph.distance.allocation import AllocationProblem
from orograph.distance.problem import Distance
from orograph.engines.frontier import driver
from orograph.engines.tile_states import StateCache, TileStates
from orograph.run.cluster.worker_loads import Rooms

LATER = range(50, 250, 50)
LIVES = 3  # a task is lost so often at most
here = threading.local()


class Lost(BaseException):
    """A task is gone."""


@dataclass
class MortalWorkers:
    """Workers of one thread and of a cache of their own, which lose tasks at random.

    Half of the time they die of it, and of these half are replaced by workers of other names. Else
    only the result is lost, and the states remain.
    """

    chance: random.Random
    count: int
    kills: float
    """The share of tasks that are lost, between two visits or at the end."""
    lost: int = 0
    caches: dict[int, dict[str, StateCache]] = field(default_factory=dict)
    shared = False

    def __post_init__(self) -> None:
        self.pools = [ThreadPoolExecutor(1) for _ in range(self.count)]
        self.names = tuple(range(self.count))
        self.rooms = Rooms(dict.fromkeys(self.names, 2))
        self.dead: SimpleQueue[int] = SimpleQueue()
        self.arrived: SimpleQueue[Any] = SimpleQueue()
        self.sent = 0

    def share(self, worker: int | None, count: int) -> int:
        return count if worker is not None else -(-count // self.count)

    def threads(self, tasks: int) -> int:
        return 1

    def idle(self) -> Iterator[int]:
        return self.rooms.idle()

    def submit(self, worker: int, stage: str, function: Any, *arguments: Any) -> int:
        self.sent += 1
        self.rooms.add(worker)
        lives = 0 if stage == "write" else LIVES
        task = self.sent, worker, function, arguments
        self.pools[worker % self.count].submit(self.attempt, worker, lives, *task)
        return self.sent

    def attempt(
        self, at: int, lives: int, ticket: int, owner: int, function: Any, arguments: Any
    ) -> None:
        """Do a task at a worker; if it is lost, once more at any."""
        here.caches = self.caches.setdefault(at, {})
        is_lost = lives > 0 and self.chance.random() < self.kills
        here.visits = self.chance.randrange(6) if is_lost else None
        try:
            result = function(*map(as_sent, arguments))
            if is_lost:
                raise Lost
        except Lost:
            self.lost += 1
            if self.chance.random() < 0.5:
                del self.caches[at]
                self.dead.put(at)
            other = self.chance.choice(self.names)
            again = ticket, owner, function, arguments
            self.pools[other % self.count].submit(self.attempt, other, lives - 1, *again)
        except BaseException as error:
            self.arrived.put((ticket, owner, error))
        else:
            self.arrived.put((ticket, owner, result))

    def next_done(self, cancelled: Event) -> list[tuple[int, Any]]:
        while not self.dead.empty():
            gone = self.dead.get()
            if gone in self.names and self.chance.random() < 0.5:
                self.names = (*set(self.names).difference([gone]), gone + self.count)
                self.rooms.update(dict.fromkeys(self.names, 2))
        ticket, owner, result = self.arrived.get()
        self.rooms.add(owner, -1)
        if isinstance(result, BaseException):
            raise result
        return [(ticket, result)]

    def everywhere(self, function: Callable[..., Any], *arguments: Any) -> None:
        function(*arguments)

    def tell(self, topic: str, message: Callable[[], Any]) -> None:
        """Send nothing: there is no scheduler."""


def as_sent(argument: Any) -> Any:
    """A copy, as over a network, of what a task changes: an attempt leaves nothing to the next."""
    if not isinstance(argument, list):
        return argument
    return [replace(r, halo=list(r.halo), sent=list(r.sent)) for r in argument]


@contextmanager
def mortal_workers(monkeypatch: pytest.MonkeyPatch, seed: int) -> Iterator[MortalWorkers]:
    """Workers that do all tasks of frontier runs."""
    chance = random.Random(seed)
    workers = MortalWorkers(chance, chance.randint(2, 4), chance.uniform(0.2, 0.6))

    def mortal(visit: Callable[..., Any]) -> Callable[..., Any]:
        def visit_or_die(*arguments: Any) -> Any:
            left = getattr(here, "visits", None)
            if left is not None:
                here.visits = left - 1
                if left == 0:
                    raise Lost
            return visit(*arguments)

        return visit_or_die

    @contextmanager
    def executor(*arguments: Any) -> Iterator[MortalWorkers]:
        yield workers

    def own_cache(states: TileStates) -> StateCache:
        cache: StateCache = here.caches.setdefault(states.context.token, StateCache(2**40))
        return cache

    with monkeypatch.context() as patch:
        for problem in (Distance, AllocationProblem):
            patch.setattr(problem, "visit", mortal(problem.visit))
        patch.setattr(TileStates, "cache", property(own_cache))
        patch.setattr(driver, "executor", executor)
        # so few count as many: tasks of several tiles, and of shards of several visits
        patch.setattr(driver, "MANY_WORKERS", chance.choice([1, driver.MANY_WORKERS]))
        yield workers
    for pool in workers.pools:
        pool.shutdown()


def case(seed: int) -> tuple[np.ndarray, list[tuple[float, float]], dict[str, Any], dict[str, int]]:
    """A surface with barriers and plains, sources, options, and tiles."""
    rng = np.random.default_rng(seed)
    dtype = str(rng.choice(["float32", "float64", "int64"]))
    shape = rng.integers(20, 90, 2)
    friction = rng.integers(rng.integers(0, 2), 9, shape) * 1.0
    barriers = rng.random(shape) < rng.choice([0.0, 0.1, 0.3])
    count = rng.integers(1, 4)
    sources = np.column_stack([rng.integers(0, n, count) for n in shape[::-1]])
    barriers[tuple(sources.T[::-1])] = False
    friction *= 2 if dtype == "int64" else rng.uniform(0.5, 1.5, shape)
    friction[barriers] = -9
    friction = friction.astype(np.int16 if dtype == "int64" else np.float32)
    connectivity = 4 if dtype == "int64" else int(rng.choice([4, 8, 16]))
    options = {"dtype": dtype, "connectivity": connectivity, "nodata": -9}
    options["outputs"] = ("cost", "allocation") if rng.integers(2) else ("cost",)
    tile = int(rng.choice([4, 8, 16]))
    tiles = {"tile": tile, "shard": tile * int(rng.choice([1, 2]))}
    return friction, [(float(x), float(y)) for x, y in sources], options, tiles


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.long) for n in LATER)])
def test_tasks_that_are_lost_at_any_moment_change_no_bit(
    monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    lost = 0
    for seed in range(first, first + (LATER.step if first else 3)):
        friction, sources, options, tiles = case(seed)
        with og.config.set(threads=2, field=0):
            with mortal_workers(monkeypatch, seed) as workers:
                found = og.cost_distance(friction, sources, **tiles, **options)
            expected = og.cost_distance(friction, sources, tile=128, **options)
        for name in options["outputs"]:
            np.testing.assert_array_equal(found[name], expected[name], strict=True)
        lost += workers.lost
    assert lost > 0
