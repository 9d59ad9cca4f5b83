"""Kill a sweep over joined tiles before some of its changes on disk, and resume it.

A script: ``kill_joined_tiles.py FOLDER OPERATION SHARE...``, which kills at shares of all changes
in the folder of the run after it has noted which tiles it joins, and prints what came of it. The
GPU for which tiles are joined is emulated. Every other run is resumed by the CPU, which would not
have joined them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from crash_everywhere import changes_of, forked, unfinished_at, warm_up
from cuda_on_cpu.emulator import Emulator

import orograph as og
from orograph.engines import quadtree_pass
from orograph.engines.quadtree_pass import QuadtreePass
from orograph.kernels import backends, device

TILE, JOINED = 8, 16
SHAPE = 50, 60
TILES = -(-SHAPE[0] // JOINED) * -(-SHAPE[1] // JOINED)
CELLS = np.random.default_rng(5).integers(0, 60, SHAPE).astype(np.float32)
CELLS[20:40, 30:44] = np.nan
OPERATIONS = {
    "forest": (og.minimum_spanning_forest, "edges"),
    "components": (og.connected_components, "labels"),
}


def run(name: str, source: Any, **options: Any) -> dict[str, Any]:
    """Return the digest of a result, and the sides of the tiles that were summarised for it."""
    sides: list[int] = []
    climb = QuadtreePass._climb

    def noted(self: QuadtreePass, node: Any) -> Any:
        sides.append(self.context.quadtree.tile)
        return climb(self, node)

    QuadtreePass._climb = noted  # type: ignore[method-assign]
    operation, variable = OPERATIONS[name]
    with og.config.set(threads=1):  # changes come in one order
        values = operation(source, **options)[variable].values
    return {"digest": hashlib.sha256(values.tobytes()).hexdigest(), "sides": sides}


def find_emulated_gpu() -> None:
    """Let this process and its children find a GPU for which few cells make several tiles."""
    # imported later, these would keep the function that stands in for `missing_gpu`
    for name in ("run.backends", "run.cluster.clusters", "run.cluster.first_worker"):
        import_module(f"orograph.{name}")
    gpu: Any = Emulator("random", seed=1)
    device._gpu = lambda: gpu
    backends.missing_gpu = lambda: None
    quadtree_pass.SMALL_ON_GPUS = 0


def saved(out: Path, kind: str) -> int:
    """Return how many tiles have a checkpoint of a kind."""
    found = unfinished_at(out).glob(f"*/checkpoints/{kind}-0/*")
    return sum(path.name.isdigit() for path in found)


def main(folder: Path, name: str, shares: list[float]) -> None:
    """Kill and resume an operation on a store of more tiles than are swept over."""
    warm_up()
    find_emulated_gpu()
    store, out = folder / "cells.zarr", folder / "out.zarr"
    og.ingest(CELLS, store, tile=TILE, shard=TILE)

    def on(backend: str, **options: Any) -> dict[str, Any]:
        return run(name, store, out=out, shard=TILE, backend=backend, **options)

    expected = forked(lambda: run(name, CELLS, backend="numba"))
    changes = forked(lambda: changes_of(lambda: on("cuda")))
    work = [n for n, path in enumerate(changes) if unfinished_at(out) in Path(path).parents]
    joined = max(n for n in work if "/checkpoints/field-" in changes[n])
    moments = [n for n in work if n > joined]
    found = []
    for number, share in enumerate(shares):
        shutil.rmtree(out)
        end = forked(lambda: on("cuda"), die_before=moments[int(share * len(moments))])
        row = {"killed": end is None, "summarised": saved(out, "summary")}
        row["written"] = saved(out, "done")
        backend = ("cuda", "numba")[number % 2]
        resumed = forked(lambda: on(backend, resume=True))  # noqa: B023
        assert isinstance(resumed, dict), resumed
        row["same_bits"] = resumed["digest"] == expected["digest"]
        found.append({**row, "sides": resumed["sides"]})
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], list(map(float, sys.argv[3:])))
