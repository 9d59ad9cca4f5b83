"""Kill a distance when it has done a part of its work, resume it, and print what came of it.

A script: ``kill_distances.py FOLDER SHARE...``. Work is CPU time, up to the last visit of a tile
for the cost: an allocation follows, in which nothing is killed. Buckets are narrow beside the
grid, as they are on one of many large tiles. The runs are forked from a process that has compiled
everything, and send themselves SIGKILL. Shards are single tiles.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from crash_everywhere import forked, warm_up

import orograph as og
from orograph.distance.problem import Distance
from orograph.engines.frontier import journal
from orograph.engines.frontier.bucket_width import BucketWidth
from orograph.engines.frontier.driver_state import DriverState

SIDE, TILE = 1536, 128
TILES = (SIDE // TILE) ** 2
SOURCES = [(3.0, 5.0), (900.0, 700.0)]
FRICTION = np.random.default_rng(5).uniform(1, 9, (SIDE, SIDE)).astype(np.float32)
FRICTION[::7, 10::40] = np.nan

Tiles = list[list[int]]
"""Row and column of each."""


def distance(
    store: Path, out: Path, outputs: tuple[str, ...], *, most: float = np.inf, resume: bool = False
) -> dict[str, Any]:
    """Compute a distance; return the digest of the result and what the run did for the cost.

    That is the tiles it opened, the written ones that the journal named to it, and its CPU time at
    the last visit of a tile. After ``most`` seconds of CPU the process is killed at the next visit.
    """
    begin, visit, opening = time.process_time(), Distance.visit, Distance.open
    opened: Tiles = []
    journaled: Tiles = []
    visited = 0.0

    def visit_or_die(self: Distance, *arguments: Any, **options: Any) -> Any:
        nonlocal visited
        visited = time.process_time() - begin
        if visited > most:
            os.kill(os.getpid(), signal.SIGKILL)
        return visit(self, *arguments, **options)

    def open_noted(self: Distance, place: Any, *arguments: Any) -> Any:
        window = place.window
        if window.shape == (TILE, TILE):  # kernels are compiled with a smaller one
            opened.append([window.y // TILE, window.x // TILE])
        return opening(self, place, *arguments)

    def restore_noted(self: DriverState, entries: Any) -> None:
        restore(self, entries)
        journaled.extend(done_in(self))

    Distance.visit, Distance.open = visit_or_die, open_noted  # type: ignore[method-assign]
    restore = DriverState.restore
    DriverState.restore = restore_noted  # type: ignore[method-assign]
    with og.config.set(threads=2, field=0):
        found = og.cost_distance(
            store, SOURCES, out=out, outputs=outputs, shard=TILE, resume=resume
        )
    digest = hashlib.sha256(b"".join(found[name].values.tobytes() for name in outputs))
    what = {"opened": opened, "journaled": journaled, "visited": visited}
    return {"digest": digest.hexdigest(), **what}


def done_in(state: DriverState) -> Tiles:
    """Return the tiles that a driver knows to be written."""
    tiles: Tiles = np.argwhere(state.tiles.done).tolist()
    return tiles


def note_entries(log: Path) -> None:
    """Append to a file, for each entry of the journal, what it is to name when it is begun."""
    entry = DriverState.entry

    def noted(self: DriverState, *, first: bool) -> Any:
        with log.open("a") as file:
            file.write(json.dumps(done_in(self)) + "\n")
        return entry(self, first=first)

    DriverState.entry = noted  # type: ignore[method-assign]


def killed_at(
    seconds: float, store: Path, out: Path, outputs: tuple[str, ...], log: Path
) -> dict[str, Any] | None:
    """Kill a distance and resume it; return what both did, or None if it ended before.

    The second to last entry is on disk when the last is begun, and the last may be.
    """

    def killed() -> dict[str, Any]:
        note_entries(log)
        return distance(store, out, outputs, most=seconds)

    log.write_text("")
    if (end := forked(killed)) is not None:
        assert isinstance(end, dict), end
        return None
    entries = [[], *map(json.loads, log.read_text().splitlines())]
    partial = out.with_name("cost.zarr.partial")
    written = [p for p in partial.glob("*/checkpoints/done-*/*") if p.name.isdigit()]
    resumed = forked(lambda: distance(store, out, outputs, resume=True))
    assert isinstance(resumed, dict), resumed
    return {"entries": entries[-2:], "written": len(written), **resumed}


def main(folder: Path, shares: list[float]) -> None:
    """Kill and resume runs of the cost and, every other time, of the allocation too."""
    journal.SECONDS_BETWEEN_ENTRIES = 0.0
    journal.SHARE = math.inf  # the next entry is begun when the last is written
    BucketWidth.adapt = lambda self: None  # type: ignore[method-assign]
    warm_up()
    store, out = folder / "friction.zarr", folder / "cost.zarr"
    og.ingest(FRICTION, store, tile=TILE, shard=TILE)
    found = []
    both = ("cost",), ("cost", "allocation")
    fresh = []
    for outputs in both:
        fresh.append(forked(lambda outputs=outputs: distance(store, out, outputs)))
        shutil.rmtree(out)
    for number, share in enumerate(shares):
        outputs, expected = both[number % 2], fresh[number % 2]
        row = killed_at(share * expected["visited"], store, out, outputs, folder / "entries.txt")
        shutil.rmtree(out)
        if row is not None:
            found.append({**row, "same_bits": row["digest"] == expected["digest"]})
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), list(map(float, sys.argv[2:])))
