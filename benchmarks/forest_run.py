"""The whole forest, from Zarr to Zarr on a cluster, beside its kernel alone.

    python benchmarks/forest_run.py --side 8192 --workers 2

Prints cells a second of the run, of the kernel alone on one core and on all workers at once (cores
share caches and memory), interleaved, and what share of the latter the whole run reaches: reading,
summarising, merging, deciding and writing.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from record import Record, add_option
from terrain import fractal, mirrored_store, noise

import orograph as og
from orograph.kernels.forest.tile import tile_forest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--side", type=int, default=8192)
    parser.add_argument("--tile", type=int, default=1024)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    add_option(parser)
    options = parser.parse_args()
    record = Record(options.record)
    patches = {"terrain": fractal(min(options.side, 4096)), "noise": noise(4096)}
    with og.cluster(n_workers=options.workers, dashboard_address=None) as client:
        for name, patch in patches.items():
            store = options.folder / f"orograph-{name}-{options.side}-{options.tile}.zarr"
            mirrored_store(store, patch, options.side, options.tile)
            out = options.folder / "orograph-forest.zarr"
            runs, kernels, together = [], [], []
            workers = list(client.scheduler_info()["workers"])
            side = min(4096, options.side)
            pieces = np.ascontiguousarray(patch[: 2 * options.tile, :side])
            for _ in range(options.repeat + 1):
                start = time.perf_counter()
                forest = og.minimum_spanning_forest(store, out=out, overwrite=True, client=client)
                runs.append(options.side**2 / (time.perf_counter() - start) / 1e6)
                kernels.append(_kernel_speed(pieces, options.tile))
                at_once = [
                    client.submit(_kernel_speed, pieces, options.tile, workers=[w], pure=False)
                    for w in workers
                ]
                together.append(sum(client.gather(at_once)))
            # the first is a rehearsal: workers load their kernels in it
            what = f"whole forest, Zarr to Zarr, {name} {options.side}²"
            record.add(what, f"orograph, {options.workers} workers", "Mcell/s", runs[1:])
            run, kernel = statistics.median(runs[1:]), statistics.median(kernels[1:])
            both = statistics.median(together[1:])
            print(
                f"{name} {options.side}^2, tiles {options.tile}, {options.workers} workers: "
                f"run {run:.1f} Mcell/s (spread {min(runs[1:]):.1f}-{max(runs[1:]):.1f}), "
                f"kernel {kernel:.1f} Mcell/s on one core, {both:.1f} on all at once, "
                f"run / kernels at once {run / both:.2f}, "
                f"run / ({options.workers} x one) {run / kernel / options.workers:.2f}; "
                f"total weight {forest.attrs['total_weight']:.6g}",
                flush=True,
            )
    record.write()


def _kernel_speed(patch: np.ndarray, tile: int) -> float:
    """Mcell/s of the tile kernel over the tiles of the patch."""
    spent = cells = 0.0
    for y, x in np.ndindex(patch.shape[0] // tile, patch.shape[1] // tile):
        block = patch[y * tile : (y + 1) * tile, x * tile : (x + 1) * tile].copy()
        start = time.perf_counter()
        tile_forest(block, None, (True, True, True, True), "max", 8)
        spent += time.perf_counter() - start
        cells += block.size
    return cells / spent / 1e6


if __name__ == "__main__":
    main()
