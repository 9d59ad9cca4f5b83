"""Measure the driver's time for a visited tile, without waiting for workers.

    python benchmarks/frontier_overhead.py --side 4096 --tile 64 --workers 2

Many small tiles and many sources, so that tasks hold up to 64 tiles.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import orograph as og
from orograph.engines.frontier import driver as frontier
from orograph.run.cluster import executors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--tile", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    friction = rng.uniform(1, 10, (options.side, options.side)).astype(np.float32)
    sources = rng.integers(0, options.side, (400, 2))
    spent = {"settle": 0.0, "waiting": 0.0, "tasks": 0}

    def timed(owner: Any, name: str, what: str) -> None:
        inner = getattr(owner, name)

        def outer(self: Any, *arguments: Any) -> Any:
            begin = time.perf_counter()
            try:
                return inner(self, *arguments)
            finally:
                spent[what] += time.perf_counter() - begin
                spent["tasks"] += what == "waiting"

        setattr(owner, name, outer)

    timed(frontier._Driver, "settle", "settle")
    timed(executors._Cluster, "next_done", "waiting")
    with (
        tempfile.TemporaryDirectory() as folder,
        og.cluster(n_workers=options.workers, dashboard_address=None) as client,
    ):
        store = Path(folder) / "friction.zarr"
        og.ingest(friction, store, tile=options.tile)
        for out in ("rehearsal.zarr", "cost.zarr"):
            spent.update(settle=0.0, waiting=0.0, tasks=0)
            run = og.cost_distance.submit(
                store, sources, out=Path(folder) / out, client=client, cell_size=1
            )
            run.result()
    visits = run.statistics()["tile_visits"]
    busy = spent["settle"] - spent["waiting"]
    print(
        f"{options.side}^2 in tiles of {options.tile}, {options.workers} workers: {visits} visits "
        f"in about {spent['tasks']} tasks, driver {busy / visits * 1e3:.3f} ms a visited tile "
        f"({busy:.2f} of {spent['settle']:.2f} s)"
    )


if __name__ == "__main__":
    main()
