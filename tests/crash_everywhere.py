"""Kill a run before each single change it makes on disk, resume it, and print what came of it.

A script: ``crash_everywhere.py FOLDER STEP``, which kills at one of STEP changes. The runs are
forked from a process that has compiled everything; a run that is to die sends itself SIGKILL from
an audit hook, which Python calls before it opens a file for writing, makes, renames or removes one.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import xarray as xr

import orograph as og
from orograph.tiles import local_storage
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import open_raster

TILE = 4
CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir"}
GRID = np.random.default_rng(8).integers(0, 50, (7, 21)).astype(np.float32)

Mask = list[list[int]]


def forest(out: Path, weight: str = "max", **options: Any) -> Mask:
    """The forest's mask, by one thread and in shards of 2 x 2 tiles."""
    with og.config.set(threads=1):
        options = {"tile": TILE, "shard": 2 * TILE, "weight": weight, "out": out, **options}
        return stored(og.minimum_spanning_forest(GRID, **options))


def in_memory(weight: str) -> Any:
    return og.minimum_spanning_forest(GRID, weight=weight)


def warm_up() -> None:
    """Import what every child would import; Zarr's threads must not be there when it forks."""
    for name in ("distributed", "zarr.codecs", "rioxarray", "rasterio.shutil"):
        importlib.import_module(name)
    xr.backends.list_engines()


def stored(result: Any) -> Mask:
    mask: Mask = result["edges"].values.tolist()
    return mask


def found_at(out: Path) -> Mask:
    """The mask that a store or a GeoTIFF holds."""
    if out.suffix != ".tif":
        return stored(og.open(out))
    mask: Mask = open_raster(out).read(Window(0, 0, *GRID.shape)).tolist()
    return mask


def unfinished_at(out: Path) -> Path:
    """The folder in which a run that writes to ``out`` works."""
    name = f".{out.name}.zarr" if out.suffix == ".tif" else out.name
    return out.with_name(name + ".partial")


def tell_and_exit(sent: Any, pipe: int) -> NoReturn:
    """Write to a pipe and end a forked child, once what it deletes in a thread is deleted."""
    for thread in threading.enumerate():  # `os._exit` does not wait
        if thread.name == "orograph-delete":
            thread.join()
    with os.fdopen(pipe, "w") as file:
        json.dump(sent, file)
    os._exit(0)


def forked(work: Callable[[], Any], die_before: int | None = None) -> Any:
    """What ``work`` returns in a forked child; None if it was killed at change ``die_before``."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            if die_before is not None:
                die_before_change(die_before)
            sent = work()
        except BaseException:
            sent = f"raised {traceback.format_exc()}"
        tell_and_exit(sent, writer)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def on_each_change(do: Callable[[str], None]) -> None:
    """Call ``do`` with the path before each change on disk, for the rest of this process."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        path = str(arguments[0]) if arguments else ""
        if event == "open":
            if not arguments[2] & (os.O_WRONLY | os.O_RDWR) or os.getcwd() not in path:
                return
        # a name alone is one in a folder that is being removed
        elif event not in CHANGES or (os.path.isabs(path) and os.getcwd() not in path):
            return
        do(path)

    sys.addaudithook(hook)


def die_before_change(number: int) -> None:
    left = iter(range(number))

    def count(path: str) -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    on_each_change(count)


def changes_of(work: Callable[[], Any]) -> list[str]:
    changes: list[str] = []
    on_each_change(changes.append)
    work()
    return changes


def worth_a_kill(changes: list[str], out: Path, step: int) -> list[int]:
    """Every change of a whole folder or of what tells a run's state; of the others some."""
    places = (out.parent, unfinished_at(out))
    worth = [
        number
        for number, path in enumerate(changes)
        if Path(path).parent in places or number % 15 == 0
    ]
    return worth[::step]


def aftermath(out: Path, options: dict[str, Any], expected: Mask, before: Mask) -> list[str]:
    """Everything that is wrong after a crash."""
    wrong = []
    if out.exists() and found_at(out) not in (expected, before):
        wrong.append("what stands at out is neither the old nor the new result")
    options = {**options, "resume": True}
    try:
        mask = forest(out, **options)
    except og.StoreExistsError:
        # the result has got its name, and the run said so already: that is its end
        begun = unfinished_at(out) / "run.json"
        if begun.exists() or not out.exists() or found_at(out) != expected:
            wrong.append("resume=True is refused, though there is no result yet")
        mask = forest(out, **{**options, "overwrite": True})
    if mask != expected:
        wrong.append("resume=True returned another result")
    if found_at(out) != expected:
        wrong.append("resume=True stored another result")
    if debris := sorted(p.name for p in out.parent.iterdir() if p != out):
        wrong.append(f"left behind: {debris}")
    return wrong


def sweep(
    step: int, prepare: Callable[[Path], None], options: dict[str, Any], name: str = "out.zarr"
) -> dict[str, Any]:
    """Kill a run at one change after the other; list every way in which resuming it fails."""
    expected, before = stored(in_memory("max")), stored(in_memory("mean"))
    prepared, counting, folder = (Path.cwd() / name for name in ("prepared", "counting", "killed"))
    prepared.mkdir()
    prepare(prepared / name)
    shutil.copytree(prepared, counting)
    changes = forked(lambda: changes_of(lambda: forest(counting / name, **options)))
    wrong: list[str] = []
    killed = worth_a_kill(changes, counting / name, step)
    for number in killed:
        shutil.copytree(prepared, folder)
        out = folder / name
        if forked(lambda out=out: forest(out, **options), number) is not None:
            wrong.append(f"{number}: it was not killed")
        sent = forked(lambda out=out: aftermath(out, options, expected, before))
        wrong += [f"{number}: {t}" for t in (sent if isinstance(sent, list) else [sent])]
        shutil.rmtree(folder)
    shutil.rmtree(prepared)
    shutil.rmtree(counting)
    return {"killed": len(killed), "of": len(changes), "wrong": wrong}


def nothing(out: Path) -> None:
    """A run from nothing."""


def finished(out: Path) -> None:
    """A run that is to replace the finished result of another."""
    forked(lambda: forest(out, "mean"))


def unfinished(out: Path) -> None:
    """A run that is to start anew, where the same run was killed with shards written."""
    forked(lambda: forest(out), die_before=75)


SCENARIOS: dict[str, Any] = {
    "nothing": (nothing, {}),
    "GeoTIFF": (nothing, {}, "out.tif"),
    "finished": (finished, {"overwrite": True}),
    "unfinished": (unfinished, {"overwrite": True}),
}

if __name__ == "__main__":
    os.chdir(sys.argv[1])
    local_storage.SECONDS_TO_DELETE = 60.0  # what is left behind is looked for at once
    warm_up()
    step = int(sys.argv[2])
    print(json.dumps({name: sweep(step, *scenario) for name, scenario in SCENARIOS.items()}))
