"""Peak resident memory of a whole run, client, scheduler and workers together, beside the plan.

    python benchmarks/memory.py --shapes 8192 16384 --workers 2
    python benchmarks/memory.py --shapes 4096 8192 --operation connected_components --surface noise
    python benchmarks/memory.py --shapes 6144 200000x100 --operation cost_distance --workers 1

Components are those of a mask, by 4 neighbours: what is higher than the mean of a terrain, or four
cells in ten of white noise, of which there is one in ten cells; of a checkerboard; or of a raster
in which each cell is a class of its own. Distances start in the middle; the surface is friction, or
a mask without barriers. Each shape is run in a process of its own; memory is the greatest sum of
the resident sets of that process (client and scheduler) and its children (workers and their nanny),
sampled all the time. Without workers one thread of that process does it all.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from terrain import Heights, fractal, mirrored_store, noise

import orograph as og

OPERATIONS = (
    "minimum_spanning_forest", "connected_components", "cost_distance", "hop_distance",
    "fill_depressions", "peaks", "depressions",
)  # fmt: skip
SURFACES = ("terrain", "noise", "checkerboard", "classes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", type=shape_of, nargs="+", default=[(8192,) * 2, (16384,) * 2])
    parser.add_argument("--operation", choices=OPERATIONS, default=OPERATIONS[0])
    parser.add_argument("--surface", choices=SURFACES, default="terrain")
    parser.add_argument("--tile", type=int, default=1024)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.folder, options.workers, options.operation)
        return
    kind = options.surface
    if kind in ("terrain", "noise") and options.operation == "connected_components":
        kind += "-mask"
    patch = None
    for shape in options.shapes:
        name = f"orograph-{kind}-{shape[0]}x{shape[1]}-{options.tile}.zarr"
        store = options.folder / name
        if not store.exists():
            patch = patch_of(kind) if patch is None else patch
            mirrored_store(store, patch, shape, options.tile)
        command = [sys.executable, __file__, "--measure", store, "--folder", options.folder]
        command += ["--workers", options.workers, "--operation", options.operation]
        subprocess.run([str(part) for part in command], check=True)


def shape_of(text: str) -> tuple[int, int]:
    """Rows and columns: ``"8192"``, ``"200000x100"``."""
    rows, _, columns = text.partition("x")
    return int(rows), int(columns or rows)


def patch_of(kind: str) -> Heights:
    """The cells that a surface is paved with."""
    side = 4096
    if kind == "checkerboard":
        return (np.indices((side, side)).sum(axis=0) % 2).astype(np.float32)
    if kind == "classes":
        return np.arange(1, side * side + 1, dtype=np.float32).reshape(side, side)
    patch = fractal(side) if kind.startswith("terrain") else noise(side)
    if kind.endswith("mask"):
        patch = (patch > (patch.mean() if kind.startswith("terrain") else 600)).astype(np.float32)
    return patch


def measure(store: Path, folder: Path, workers: int, operation: str) -> None:
    """Run an operation on a store, watch the memory of this process and its children."""
    out = folder / "orograph-memory.zarr"
    options: dict[str, Any] = {"out": out, "overwrite": True}
    arguments: tuple[Any, ...] = (store,)
    shape = og.open(store)["elevation"].shape
    sent: dict[str, Any] = {}
    if operation == "connected_components":
        table = ("labels", "component_size", "component_box")
        sent = {"connectivity": 4, "outputs": table}
    options |= sent
    if operation.endswith("distance"):
        arguments = store, [(shape[1] // 2, shape[0] // 2)]
    with (
        og.config.set(threads=1),
        og.cluster(n_workers=workers, dashboard_address=None) if workers else nullcontext(),
        watched() as peaks,
    ):
        start = time.perf_counter()
        result = getattr(og, operation)(*arguments, **options)
        seconds = time.perf_counter() - start
    with og.config.set(threads=1):
        plan = getattr(og, operation).plan(store, workers=workers, **sent)
    each = ", ".join(f"{p / 2**20:.0f}" for who, p in peaks.items() if who)
    print(
        f"{operation} {store.name}, {workers} workers: {seconds:.1f} s, "
        f"planned {plan.memory_total / 2**20:.0f} MiB (client {plan.memory_client / 2**20:.0f}, "
        f"worker {plan.memory_per_worker / 2**20:.0f}), peak {peaks[0] / 2**20:.0f} MiB "
        f"(processes: {each}), peak / planned {peaks[0] / plan.memory_total:.2f}"
        + (f", {result.attrs['component_count']} components" if sent else ""),
        flush=True,
    )


@contextmanager
def watched() -> Iterator[dict[int, int]]:
    """Peaks of resident bytes by process, this one first; by 0 that of all together."""
    me = psutil.Process()
    peaks = {0: 0, me.pid: 0}
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            total = 0
            for process in [me, *me.children(recursive=True)]:
                try:
                    resident = process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
                total += resident
                peaks[process.pid] = max(peaks.get(process.pid, 0), resident)
            peaks[0] = max(peaks[0], total)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peaks
    finally:
        stop.set()
        watcher.join()


if __name__ == "__main__":
    main()
