"""Memory that a session and its workers gain over many small calls of all operations.

    python benchmarks/growth.py --calls 1600 --since 200 --workers 1
    python benchmarks/growth.py --calls 400 --since 200 --objects

Resident memory of the client, which holds the scheduler too, and of the workers, in MB, every 100
calls, and what each has gained since call 200. With ``--objects`` the kinds of objects of which
each process has more than at call 200.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
from distributed import Client

import orograph as og

SIDE = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=1600)
    parser.add_argument("--since", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--objects", action="store_true")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        og.cluster(options.workers, dashboard_address=None) as client,
        og.config.set(progress=False),
    ):
        first: dict[str, float] = {}
        counts: list[Counter[str]] = []
        for number, (name, call) in enumerate(calls(Path(folder)), 1):
            call()
            if number % 100 == 0 or number in (options.since, options.calls):
                now = resident(client)
                print(number, name, {who: round(size) for who, size in now.items()}, flush=True)
            if number == options.since:
                first, counts = now, objects(client) if options.objects else []
            if number == options.calls:
                break
        print("gained", {who: round(size - first[who], 1) for who, size in now.items()})
        for before, after in zip(counts, objects(client), strict=False):
            print((after - before).most_common(25))


def calls(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield all operations in turns, without end, each with its name."""
    random = np.random.default_rng(1)
    dem, cost = folder / "dem.zarr", folder / "cost.zarr"
    og.ingest(random.random((SIDE, SIDE), np.float32) + 1, dem, tile=16, shard=32)
    edges = pd.DataFrame(random.integers(0, 50, (200, 2)), columns=["source", "target"])
    graph = og.read_graph(edges.assign(weight=1.0), directed=True)
    index = og.DistanceIndex.build(dem, folder / "index.zarr", block=16)
    points = [(3, 4), (50, 40)]
    new: dict[str, Any] = {"out": folder / "out.zarr", "overwrite": True}
    og.cost_distance(dem, points, outputs=["cost", "back_direction"], out=cost)
    operations: dict[str, Callable[[], Any]] = {
        "forest": lambda: og.minimum_spanning_forest(dem, **new),
        "components": lambda: og.connected_components(dem, **new),
        "cost": lambda: og.cost_distance(dem, points, **new)["cost"].values.sum(),
        "cost, in memory": lambda: og.cost_distance(dem, points),
        "hops": lambda: og.hop_distance(dem, points, **new),
        "filled": lambda: og.fill_depressions(dem, **new),
        "flood": lambda: og.flood_level(dem, points, **new),
        "pass": lambda: og.pass_elevation(dem, points),
        "peaks": lambda: og.peaks(dem, **new),
        "depressions": lambda: og.depressions(dem, **new),
        "connected": lambda: og.is_connected(dem, *points),
        "path": lambda: og.least_cost_path(cost, points[:1]),
        "graph": lambda: og.shortest_paths(graph, [0]),
        "all pairs": lambda: og.all_pairs(random.random((40, 40))),
        "index": lambda: og.DistanceIndex.build(dem, block=16, store=new["out"], overwrite=True),
        "query": lambda: index.distance_matrix(points),
        "ingest": lambda: og.ingest(dem, folder / "copy.zarr", tile=16, overwrite=True),
        "export": lambda: og.to_geotiff(dem, folder / "copy.tif", overwrite=True),
        "open": lambda: og.open(cost)["cost"].values.sum(),
    }
    return cycle(operations.items())


def resident(client: Client) -> dict[str, float]:
    """Return the resident memory of the client and of each worker, in MB."""
    found = {str(name): size for name, size in client.run(_resident).items()}
    workers = {f"worker {number}": size for number, size in enumerate(found.values())}
    return {"client": _resident(), **workers}


def _resident() -> float:
    return float(psutil.Process(os.getpid()).memory_info().rss / 1e6)


def objects(client: Client) -> list[Counter[str]]:
    """Return how many objects of each kind the client has, and each worker."""
    return [_objects(), *client.run(_objects).values()]


def _objects() -> Counter[str]:
    gc.collect()
    kinds = map(type, gc.get_objects())
    return Counter(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)


if __name__ == "__main__":
    main()
