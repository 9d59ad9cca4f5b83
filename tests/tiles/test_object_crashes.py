"""Runs to an object store, killed once in place of every request that changes the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pytest

import orograph as og
from orograph.tiles.errors import StoreExistsError
from orograph.tiles.object_storage import ObjectStorage
from orograph.tiles.store import lease

GRID = np.random.default_rng(5).integers(1, 9, (8, 7)).astype(np.float32)
OPTIONS: dict[str, Any] = {"tile": 4, "shard": 4}
POINTS = [(0, 0), (6, 7), (5, 2)]


class Killed(BaseException):
    """The process was killed."""


@dataclass
class Changes:
    """Requests that change the store: how many there were, and in place of which one to die."""

    made: int = 0
    die_before: int | None = None

    def change(self) -> None:
        """Count a request that is about to be made; of a process that was killed none is."""
        if self.made == self.die_before:
            raise Killed
        self.made += 1

    @contextmanager
    def killed(self, number: int) -> Iterator[None]:
        """Die in place of a change within this context."""
        self.made, self.die_before = 0, number
        try:
            yield
        finally:
            self.die_before = None


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Changes:
    """Count and stop the requests of all object stores, deletions one key at a time."""
    counted, put, delete, move = (
        Changes(),
        *(getattr(ObjectStorage, name) for name in ("_put", "_delete", "move")),
    )

    def counted_put(self: ObjectStorage, path: str, *rest: Any) -> None:
        # the time of a heartbeat is not that of a kill
        if not (path.endswith(".lease") and rest[1:] and isinstance(rest[1], dict)):
            counted.change()
        put(self, path, *rest)

    def counted_delete(self: ObjectStorage, paths: list[str]) -> None:
        for path in paths:
            counted.change()
            delete(self, [path])

    def counted_move(self: ObjectStorage, key: str, target: str) -> None:
        counted.change()
        move(self, key, target)

    # an emptied lease, of which the process is dead, is not waited for so long
    monkeypatch.setattr(lease, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(ObjectStorage, "_put", counted_put)
    monkeypatch.setattr(ObjectStorage, "_delete", counted_delete)
    monkeypatch.setattr(ObjectStorage, "move", counted_move)
    return counted


@pytest.fixture(params=["object_memory", "s3"])
def bucket(request: pytest.FixtureRequest) -> str:
    """Address of an empty bucket."""
    address: str = request.getfixturevalue(request.param)
    return address


def raster_of(name: str) -> Callable[[str], Any]:
    return lambda out: og.open(out)[name].values


PROBLEMS: dict[str, tuple[Callable[..., Any], Callable[[str], Any]]] = {
    "forest": (
        lambda out, cells, **more: og.minimum_spanning_forest(cells, out=out, **OPTIONS, **more),
        raster_of("edges"),
    ),
    "distance": (
        lambda out, cells, **more: og.cost_distance(cells, POINTS, out=out, **OPTIONS, **more),
        raster_of("cost"),
    ),
    "components": (
        lambda out, cells, **more: og.connected_components(cells > 4, out=out, **OPTIONS, **more),
        raster_of("labels"),
    ),
    "index": (
        lambda out, cells, **more: og.DistanceIndex.build(cells, out, block=4, levels=0, **more),
        lambda out: og.DistanceIndex.open(out).distance_matrix(POINTS).values,
    ),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("step", [20, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("problem", "replaced"),
    [*((name, False) for name in PROBLEMS), ("forest", True)],
)
def test_a_run_is_resumed_wherever_it_is_killed(
    bucket: str, problem: str, replaced: bool, step: int, changes: Changes
) -> None:
    """A result under its name is whole at every change, and one that is replaced is never lost.

    In steps of twenty, runs in memory and on a server are killed at different changes.
    """
    write, read = PROBLEMS[problem]
    other = GRID[::-1].copy()
    for cells, name in ((GRID, "new"), (other, "old")):
        write(f"{bucket}/{name}.zarr", cells)
    expected, before = read(f"{bucket}/new.zarr"), read(f"{bucket}/old.zarr")
    assert expected.tobytes() != before.tobytes()
    for number in count(step // 2 if bucket.startswith("s3:") else 0, step):
        out = f"{bucket}/{number}/out.zarr"
        if replaced:
            write(out, other)
        try:
            with changes.killed(number):
                write(out, GRID, overwrite=replaced)
        except Killed:
            pass
        else:
            break
        there = ObjectStorage(out).state("zarr.json") is not None
        assert there or not replaced, f"change {number}: the old store is lost"
        if there:
            whole = (expected, before) if replaced else (expected,)
            assert read(out).tobytes() in [one.tobytes() for one in whole], f"change {number}"
        try:
            write(out, GRID, resume=True, overwrite=replaced)
        except StoreExistsError:  # the run was over but for what it deletes
            assert there
            assert read(out).tobytes() == expected.tobytes()
            write(out, GRID, overwrite=True)
        assert read(out).tobytes() == expected.tobytes(), f"change {number}"
        place = ObjectStorage(out[: -len("/out.zarr")])
        left = [meta["path"] for meta in place._list(place._path(""))]
        versions = {path.split("/out.zarr/")[1].split("/")[0] for path in left}
        assert versions == {"zarr.json", ObjectStorage(out)._version()}, f"change {number}"
    assert number > 20
