"""Race writers for one target, and kill them at random instants; print what came of it.

A script: ``race_writers.py FOLDER RACES KILLS NAME...``. Writers are processes, forked from one
that has compiled everything; what is wrong afterwards is printed as JSON, by writer.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from crash_everywhere import tell_and_exit, warm_up

import orograph as og
from orograph.index.arguments import wanted_index
from orograph.index.build import warm_up as warm_up_index
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import open_raster

SIDE = 300
GRID = np.random.default_rng(8).integers(1, 50, (SIDE, SIDE)).astype(np.float32)
INDEX_SIDE = 96
WINDOW = (30, 30, 40, 40)
POINTS = [(3.0, 3.0), (50.0, 50.0), (90.0, 20.0)]
FIRST = 1


class Writer(ABC):
    """One kind of writer of ``folder/out``."""

    def __init__(self) -> None:
        self.expected: dict[int, Any] = {}

    @abstractmethod
    def write(self, folder: Path, number: int, **options: Any) -> None:
        """Write what the number says."""

    @abstractmethod
    def content(self, folder: Path) -> Any:
        """What there is, in JSON types that tell every number from the others."""

    def prepare(self, folder: Path) -> None:
        """Make what must be there before the first writes: mostly nothing."""
        assert not any(folder.iterdir())

    def again(self, folder: Path, number: int) -> None:
        """Write after a writer was killed."""
        self.write(folder, number)


class Ingest(Writer):
    """Copies a raster of one value into a store."""

    def write(self, folder: Path, number: int, **options: Any) -> None:
        og.ingest(np.full((SIDE, SIDE), number), folder / "out", tile=64, shard=64, overwrite=True)

    def content(self, folder: Path) -> Any:
        return np.unique(og.open(folder / "out")["elevation"]).tolist()


class Export(Writer):
    """Writes a raster of one value to a file."""

    def write(self, folder: Path, number: int, **options: Any) -> None:
        og.to_geotiff(np.full((900, 900), number), folder / "out", overwrite=True)

    def content(self, folder: Path) -> Any:
        return np.unique(open_raster(folder / "out").read(Window(0, 0, 900, 900))).tolist()


class Forest(Writer):
    """Makes the forest of a raster that the number decides."""

    def write(self, folder: Path, number: int, **options: Any) -> None:
        with og.config.set(threads=2):
            og.minimum_spanning_forest(
                GRID * (-1) ** number, tile=32, shard=64, out=folder / "out", overwrite=True,
                **options,
            )  # fmt: skip

    def again(self, folder: Path, number: int) -> None:
        self.write(folder, number, resume=True)

    def content(self, folder: Path) -> Any:
        edges = og.open(folder / "out")["edges"].values
        return [int(edges.sum()), int((edges * np.arange(SIDE)).sum())]


class Mixed(Forest):
    """Copies a raster of one value into a store, or makes a forest there, as the number decides."""

    def write(self, folder: Path, number: int, **options: Any) -> None:
        if number % 2:
            super().write(folder, number, **options)
        else:
            Ingest().write(folder, number)

    def content(self, folder: Path) -> Any:
        opened = og.open(folder / "out")
        if "edges" in opened:
            return super().content(folder)
        return Ingest().content(folder)


class Update(Writer):
    """Puts one value into a window of an index."""

    def prepare(self, folder: Path) -> None:
        og.DistanceIndex.build(
            GRID[:INDEX_SIDE, :INDEX_SIDE], folder / "out", block=8, levels=0, overwrite=True
        )

    def write(self, folder: Path, number: int, **options: Any) -> None:
        og.DistanceIndex.open(folder / "out").update(WINDOW, np.full((40, 40), 1.0 + number))

    def content(self, folder: Path) -> Any:
        index = og.DistanceIndex.open(folder / "out")
        stored = index._store.rasters[0].read(Window(*WINDOW))
        table = index.distance_matrix(POINTS).values.tolist()
        return [np.unique(stored).tolist(), table, float(index.query(POINTS)["cost"].sum())]


WRITERS: dict[str, Callable[[], Writer]] = {
    "ingest": Ingest,
    "export": Export,
    "run": Forest,
    "mixed": Mixed,
    "update": Update,
}


Pipe = tuple[int, int]


def start(work: Callable[[], Any], go: Pipe) -> tuple[int, int]:
    """Fork a child that works once ``go`` is closed; return its process and where it tells."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.close(go[1])
        try:
            os.read(go[0], 1)
            sent = {"ok": work()}
        except og.StoreExistsError as error:
            sent = {"refused": str(error)}
        except BaseException as error:
            sent = {"failed": repr(error)}
        tell_and_exit(sent, writer)
    os.close(writer)
    return child, reader


def let(go: Pipe) -> None:
    """Let all children begin that were started with a pipe."""
    for file in go:
        os.close(file)


def end(child: int, reader: int) -> dict[str, Any]:
    """What a child told; nothing if it was killed."""
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(text) if text else {}
    return found


def alone(work: Callable[[], Any]) -> Any:
    """What work returns in a child; a failure is returned as text."""
    go = os.pipe()
    process = start(work, go)
    let(go)
    told = end(*process)
    return told.get("ok") if "ok" in told else str(told)


def debris(folder: Path) -> list[str]:
    return sorted({path.name for path in folder.iterdir()} - {"out"})


def race(writer: Writer, folder: Path, numbers: tuple[int, int]) -> tuple[int, list[str]]:
    """Let two write at once; return how many were refused, and what is wrong."""
    go = os.pipe()
    children = [start(lambda n=n: writer.write(folder, n), go) for n in numbers]  # type: ignore[misc]
    let(go)
    ends = [end(*child) for child in children]
    wrong, wrote = [], [number for number, told in zip(numbers, ends) if "ok" in told]
    for told, (other, _) in zip(ends, reversed(children)):
        if "ok" not in told and f"is being written by process {other} " not in told.get(
            "refused", ""
        ):
            wrong.append(f"a loser was told {told}")
    if not wrote:
        wrong.append("nobody wrote")
    if alone(lambda: writer.content(folder)) not in [writer.expected[number] for number in wrote]:
        wrong.append("the target is that of no winner")
    wrong += debris(folder)
    return len(numbers) - len(wrote), wrong


def kill(writer: Writer, folder: Path, number: int, seconds: float) -> tuple[bool, list[str]]:
    """Kill a writer after some seconds, write again; return whether it was, and what is wrong."""
    before = alone(lambda: writer.content(folder))
    go = os.pipe()
    child, reader = start(lambda: writer.write(folder, number), go)
    let(go)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    killed = not end(child, reader)
    wrong, expected = [], writer.expected[number]
    if alone(lambda: writer.content(folder)) not in (before, expected):
        wrong.append("after the kill it was neither the old nor the new")
    told = alone(lambda: writer.again(folder, number))
    if told is not None:
        wrong.append(f"writing again ended with {told}")
    if alone(lambda: writer.content(folder)) != expected:
        wrong.append("writing again wrote something else")
    return killed, wrong + debris(folder)


def trials(name: str, races: int, kills: int) -> dict[str, Any]:
    """All trials of one kind of writer."""
    writer, folder = WRITERS[name](), Path.cwd() / name
    folder.mkdir()
    alone(lambda: writer.prepare(folder))
    for number in (FIRST, 2, 3):
        alone(lambda number=number: writer.write(folder, number))
        writer.expected[number] = alone(lambda: writer.content(folder))
    began = time.monotonic()
    alone(lambda: writer.write(folder, FIRST))
    seconds = time.monotonic() - began
    found: dict[str, Any] = {"refused": 0, "killed": 0, "wrong": []}
    for trial in range(races):
        refused, wrong = race(writer, folder, (2, 3))
        found["refused"] += refused
        found["wrong"] += [f"race {trial}: {line}" for line in wrong]
    chance = random.Random(5)
    for trial in count():
        if found["killed"] == kills:  # some have ended before they are killed
            break
        killed, wrong = kill(writer, folder, 2 + trial % 2, chance.uniform(0, seconds))
        found["killed"] += killed
        found["wrong"] += [f"kill {trial}: {line}" for line in wrong]
        print(f"{name}: {found['killed']} killed of {trial + 1}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    warm_up()
    og.minimum_spanning_forest(GRID[:9, :9], tile=4)
    warm_up_index(wanted_index(GRID[:9, :9], block=4, levels=0).problem, False)
    print(json.dumps({name: trials(name, *map(int, sys.argv[2:4])) for name in sys.argv[4:]}))
