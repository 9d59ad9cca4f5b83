"""Peak resident memory of a whole run, scheduler and workers together, beside what was planned.

    python benchmarks/memory.py --sides 8192 16384 --workers 2
    python benchmarks/memory.py --sides 4096 8192 --operation components --surface noise

Components are those of a mask, by 4 neighbours: what is higher than the mean of a terrain, or four
cells in ten of white noise, of which there is one in ten cells. Each side is run in a process of
its own; memory is the greatest sum of the resident sets of that process (client and scheduler) and
its children (workers and their nanny), sampled all the time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
from terrain import fractal, mirrored_store, noise

import orograph as og


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sides", type=int, nargs="+", default=[8192, 16384])
    parser.add_argument("--operation", choices=("forest", "components"), default="forest")
    parser.add_argument("--surface", choices=("terrain", "noise"), default="terrain")
    parser.add_argument("--tile", type=int, default=1024)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.folder, options.workers, options.operation)
        return
    patch = fractal(4096) if options.surface == "terrain" else noise(4096)
    kind = options.surface
    if options.operation == "components":
        patch = (patch > (patch.mean() if kind == "terrain" else 600)).astype(np.float32)
        kind += "-mask"
    for side in options.sides:
        name = f"orograph-{kind}-{side}-{options.tile}.zarr"
        store = mirrored_store(options.folder / name, patch, side, options.tile)
        command = [sys.executable, __file__, "--measure", store, "--folder", options.folder]
        command += ["--workers", options.workers, "--operation", options.operation]
        subprocess.run([str(part) for part in command], check=True)


def measure(store: Path, folder: Path, workers: int, operation: str) -> None:
    """Run an operation on a store, watch the memory of this process and its children."""
    peak = 0
    peaks: dict[int, int] = {}
    stop = threading.Event()

    def watch() -> None:
        nonlocal peak
        me = psutil.Process()
        while not stop.wait(0.02):
            total = 0
            for process in [me, *me.children(recursive=True)]:
                try:
                    resident = process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
                total += resident
                peaks[process.pid] = max(peaks.get(process.pid, 0), resident)
            peak = max(peak, total)

    with og.cluster(n_workers=workers, dashboard_address=None) as client:
        watcher = threading.Thread(target=watch)
        watcher.start()
        start = time.perf_counter()
        out = folder / "orograph-memory.zarr"
        if operation == "forest":
            result = og.minimum_spanning_forest(store, out=out, overwrite=True, client=client)
        else:
            result = og.connected_components(
                store, connectivity=4, out=out, overwrite=True, client=client
            )
        seconds = time.perf_counter() - start
        stop.set()
        watcher.join()
    rows, columns = result[next(iter(result.data_vars))].shape
    if operation == "forest":
        planned = og.plan("minimum_spanning_forest", store, workers=workers).memory_total
        says = f"planned {planned / 2**20:.0f} MiB, planned / measured {planned / peak:.2f}"
    else:
        says = f"{result.attrs['component_count']} components"
    print(
        f"{store.name}: {rows} x {columns}, {seconds:.1f} s, peak {peak / 2**20:.0f} MiB "
        f"(processes: {', '.join(f'{p / 2**20:.0f}' for p in peaks.values())}), {says}",
        flush=True,
    )


if __name__ == "__main__":
    main()
