"""Runs from Zarr to Zarr on two workers and on two threads, in turns: processor time and clock.

    python benchmarks/cluster_run.py [SIDE] [ROUNDS]

Heights are a patch of fractal terrain, mirrored over the grid, and distances start in the middle.
The processor time of a cluster is that of workers, nannies, scheduler and client. Each run is made
once before, and then ROUNDS times; medians are told.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster
from terrain import fractal, mirrored_store
from whole_run import measure

import orograph as og
from orograph import Operation

PATCH = 4096
OPERATIONS: dict[str, tuple[Operation[Any], bool]] = {
    "forest": (og.minimum_spanning_forest, False),
    "components": (og.connected_components, False),
    "filling": (og.fill_depressions, False),
    "hops": (og.hop_distance, True),
    "distance": (og.cost_distance, True),
}
"""Each, and whether it takes sources."""

Seconds = tuple[float, float]
"""Of the processor, and by the clock."""


def on_threads(operation: Operation[Any], *arguments: Any, **options: Any) -> Seconds:
    """Return the seconds of a run on two threads."""
    with og.config.set(threads=2):
        spent, began = time.process_time(), time.perf_counter()
        operation(*arguments, overwrite=True, **options)
        return time.process_time() - spent, time.perf_counter() - began


def on_workers(
    client: Client, operation: Operation[Any], *arguments: Any, **options: Any
) -> Seconds:
    """Return the seconds of a run on a cluster."""
    found = measure(operation, *arguments, client=client, **options)
    return found.cpu, found.clock


def main(side: int = 8192, rounds: int = 3) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        heights = mirrored_store(Path(folder) / "heights.zarr", fractal(min(side, PATCH)), side)
        out = Path(folder) / "out.zarr"
        for name, (operation, has_sources) in OPERATIONS.items():
            sources = ([(side // 2, side // 2)],) if has_sources else ()
            ways = {"threads": on_threads, "workers": partial(on_workers, client)}
            seconds: dict[str, list[Seconds]] = {way: [] for way in ways}
            for _ in range(1 + rounds):
                for way, run in ways.items():
                    seconds[way].append(run(operation, heights, *sources, out=out))
            (cpu, clock), (cpu_of_two, clock_of_two) = (
                map(statistics.median, zip(*found[1:], strict=True)) for found in seconds.values()
            )
            print(
                f"{name}, {side}²: threads {cpu:.2f} s of the processor, {clock:.2f} s; workers "
                f"{cpu_of_two:.2f}, {clock_of_two:.2f}: {cpu_of_two / cpu:.2f} times the "
                f"processor, {clock / clock_of_two:.2f} of the speed",
                flush=True,
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
