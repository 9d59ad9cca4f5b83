"""How many tasks workers have: the idle ones are found without a look at all."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from orograph.run.cluster.worker_loads import Rooms


@pytest.mark.parametrize("seed", range(5))
def test_the_workers_with_the_fewest_tasks_come_first(seed: int) -> None:
    chance = random.Random(seed)
    rooms, most, tasks = Rooms(), dict[str, int](), Counter[str]()
    names = [f"worker {n}" for n in range(6)]
    for _ in range(300):
        what = chance.random()
        if what < 0.1:
            most = {name: chance.randint(1, 3) for name in names if chance.random() < 0.7}
            version = rooms.version
            rooms.update(most)
            assert rooms.version > version
            rooms.update(most)
            assert rooms.version == version + 1
        elif what < 0.6:
            name = chance.choice(names)
            tasks[name] += 1
            rooms.add(name)
        elif name := next((n for n in names if tasks[n]), None):
            tasks[name] -= 1
            rooms.add(name, -1)
        assert len(rooms) == len(most)
        assert rooms.unused() == sum(not tasks[name] for name in most)
        expected = sorted((n, name) for name in most for n in range(tasks[name], most[name]))
        found = list(rooms.idle())
        assert Counter(found) == Counter(name for _, name in expected)
        for name in names:
            assert rooms.left(name) == max(most.get(name, 0) - tasks[name], 0)
            assert (name in rooms) == (name in most)
        loads = [tasks[name] for name in dict.fromkeys(found)]
        assert loads == sorted(loads)


def test_tasks_that_are_given_meanwhile_count() -> None:
    rooms = Rooms({"one": 2, "two": 2})
    given = []
    for worker in rooms.idle():
        given.append(worker)
        rooms.add(worker)
    assert given == ["one", "two", "one", "two"]
    assert not rooms.left("one")
