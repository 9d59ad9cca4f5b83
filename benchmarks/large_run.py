"""The largest grid of Gerritsen's thesis, 70520 x 50220 cells, from Zarr to Zarr on two workers.

    python benchmarks/large_run.py FOLDER forest|distance

The terrain is mirrored copies of 4096 x 4096 fractal cells. It is made in FOLDER, where it stays,
and takes 8 GB; costs take up to 28 GB. The distance is by friction, the heights, from a cell in
the middle.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from terrain import fractal, mirrored_store
from whole_run import measure

import orograph as og

SHAPE = (50220, 70520)
MIB = 2**20


def main(folder: str, *names: str) -> None:
    """Measure and print."""
    place = Path(folder)
    place.mkdir(exist_ok=True)
    dem = str(mirrored_store(place / "dem.zarr", fractal(4096), SHAPE))
    operations = {
        "forest": (og.minimum_spanning_forest, (dem,)),
        "distance": (og.cost_distance, (dem, [(35000.0, 25000.0)])),
    }
    with og.cluster(n_workers=2, memory_limit="6GiB") as client:
        for name in names:
            operation, arguments = operations[name]
            out = place / f"{name}.zarr"
            found = measure(operation, *arguments, client=client, out=str(out))
            memory = found.report["memory"]
            print(
                f"{name}: {found.clock:.1f} s, {found.cpu:.1f} s of processors, worker "
                f"{memory['worker'] / MIB:.0f} MiB, client {memory['client'] / MIB:.0f} MiB, "
                f"{found.report['bytes']:,} bytes, load {found.load:.1f}"
            )
            shutil.rmtree(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
