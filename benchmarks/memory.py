"""Peak resident memory of a whole run, scheduler and workers together, beside what was planned.

    python benchmarks/memory.py --sides 8192 16384 --workers 2

Each side is run in a process of its own; memory is the greatest sum of the resident sets of that
process (client and scheduler) and its children (workers and their nanny), sampled all the time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
from terrain import fractal, mirrored_store, noise

import orograph as og


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sides", type=int, nargs="+", default=[8192, 16384])
    parser.add_argument("--surface", choices=("terrain", "noise"), default="terrain")
    parser.add_argument("--tile", type=int, default=1024)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.folder, options.workers)
        return
    patch = fractal(4096) if options.surface == "terrain" else noise(4096)
    for side in options.sides:
        name = f"orograph-{options.surface}-{side}-{options.tile}.zarr"
        store = mirrored_store(options.folder / name, patch, side, options.tile)
        command = [sys.executable, __file__, "--measure", store, "--folder", options.folder]
        command += ["--workers", options.workers]
        subprocess.run([str(part) for part in command], check=True)


def measure(store: Path, folder: Path, workers: int) -> None:
    """Run the forest of a store, watch the memory of this process and its children."""
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
        forest = og.minimum_spanning_forest(store, out=out, overwrite=True, client=client)
        seconds = time.perf_counter() - start
        stop.set()
        watcher.join()
    planned = og.plan("minimum_spanning_forest", store, workers=workers)
    shape = forest["edges"].shape
    print(
        f"{store.name}: {shape[0]} x {shape[1]}, {seconds:.1f} s, peak {peak / 2**20:.0f} MiB "
        f"(processes: {', '.join(f'{p / 2**20:.0f}' for p in peaks.values())}), "
        f"planned {planned.memory_total / 2**20:.0f} MiB, "
        f"planned / measured {planned.memory_total / peak:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
