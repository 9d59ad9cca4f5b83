"""Kill a distance when it has done a part of its work, resume it, and print what came of it.

A script: ``kill_distances.py FOLDER SHARE...``. Work is CPU time, up to the last visit of a tile
for the cost: an allocation follows, in which nothing is killed. Buckets are narrow beside the
grid, as they are on one of many large tiles. The runs are forked from a process that has compiled
everything, and send themselves SIGKILL.
"""

from __future__ import annotations

import hashlib
import json
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

SIDE, TILE = 1536, 128
TILES = (SIDE // TILE) ** 2
SOURCES = [(3.0, 5.0), (900.0, 700.0)]
FRICTION = np.random.default_rng(5).uniform(1, 9, (SIDE, SIDE)).astype(np.float32)
FRICTION[::7, 10::40] = np.nan


def distance(
    store: Path, out: Path, outputs: tuple[str, ...], *, most: float = np.inf, resume: bool = False
) -> list[Any]:
    """Return the digest of the result, the CPU time, how many tiles were opened, and until when.

    All are opened for the cost; the last of the four is the CPU time at the last visit of one.
    After ``most`` seconds of CPU the process is killed at the next visit.
    """
    begin, visit, opening = time.process_time(), Distance.visit, Distance.open
    opened, visited = set(), 0.0

    def visit_or_die(self: Distance, *arguments: Any, **options: Any) -> Any:
        nonlocal visited
        visited = time.process_time() - begin
        if visited > most:
            os.kill(os.getpid(), signal.SIGKILL)
        return visit(self, *arguments, **options)

    def open_noted(self: Distance, place: Any, *arguments: Any) -> Any:
        opened.add(place.node)
        return opening(self, place, *arguments)

    Distance.visit, Distance.open = visit_or_die, open_noted  # type: ignore[method-assign]
    with og.config.set(threads=2, field=0):
        found = og.cost_distance(
            store, SOURCES, out=out, outputs=outputs, shard=TILE, resume=resume
        )
        seconds = time.process_time() - begin
        digest = hashlib.sha256(b"".join(found[name].values.tobytes() for name in outputs))
        return [digest.hexdigest(), seconds, len(opened), visited]


def main(folder: Path, shares: list[float]) -> None:
    """Kill and resume runs of the cost and, every other time, of the allocation too."""
    journal.SECONDS_BETWEEN_ENTRIES = 0.0
    journal.SHARE = 1.0  # a slow disk does not put entries off
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
        outputs, (expected, work, _, visited) = both[number % 2], fresh[number % 2]
        end = forked(lambda: distance(store, out, outputs, most=share * visited))  # noqa: B023
        partial = out.with_name("cost.zarr.partial")
        written = len(list(partial.glob("*/checkpoints/done-*/*")))
        killed = end is None
        if killed:
            end = forked(lambda: distance(store, out, outputs, resume=True))  # noqa: B023
        assert isinstance(end, list), end
        bits, again, opened, _ = end
        shutil.rmtree(out)
        row = {"killed": killed, "same_bits": bits == expected, "written": written}
        found.append({"share": share, **row, "opened": opened, "work": again / work})
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), list(map(float, sys.argv[2:])))
