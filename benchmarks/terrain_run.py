"""Readings of the terrain on one core, beside a peer, in one run.

    python benchmarks/terrain_run.py --side 2048
    pip install pyflwdir; python benchmarks/terrain_run.py --operations fill

The peer of filling is scikit-image's `reconstruction` by erosion, and pyflwdir's
`fill_depressions` if it is installed. Both hold the raster in memory, as does this run of ours, in
tiles of 1024 by one thread. Calls are interleaved after a rehearsal, answers compared; figures are
medians of the processor's time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from skimage.morphology import reconstruction
from terrain import Heights, fractal, noise

import orograph as og

Call = Callable[[Heights], Any]


def fill(heights: Heights) -> Heights:
    """Filled by orograph."""
    filled: Heights = og.fill_depressions(heights, tile=1024)["filled"].values
    return filled


def reconstruct(heights: Heights) -> Heights:
    """Filled by scikit-image."""
    seed = np.full_like(heights, heights.max())
    seed[[0, -1]], seed[:, [0, -1]] = heights[[0, -1]], heights[:, [0, -1]]
    filled: Heights = reconstruction(seed, heights, method="erosion", footprint=np.ones((3, 3)))
    return filled


def peers() -> dict[str, dict[str, Call]]:
    """For each operation, ours and those of others that are installed."""
    filling: dict[str, Call] = {"orograph": fill, "scikit-image": reconstruct}
    try:
        from pyflwdir.dem import fill_depressions
    except ImportError:
        print("pyflwdir is not installed: `pip install pyflwdir` to compare", flush=True)
    else:
        filling["pyflwdir"] = lambda heights: fill_depressions(heights, nodata=-9999.0)[0]
    return {"fill": filling}


def main() -> None:
    calls = peers()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--side", type=int, default=2048)
    parser.add_argument("--operations", nargs="+", choices=calls, default=list(calls))
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    og.config.set(threads=1)
    for surface, make in (("terrain", fractal), ("noise", noise)):
        heights = make(options.side)
        for operation in options.operations:
            spent: dict[str, list[float]] = {who: [] for who in calls[operation]}
            for turn in range(options.repeat + 1):
                answers = []
                for who, call in calls[operation].items():
                    start = time.process_time()
                    answers.append(call(heights))
                    if turn:
                        spent[who].append(time.process_time() - start)
                for answer in answers[1:]:
                    np.testing.assert_array_equal(answers[0], answer)
            ours = statistics.median(spent["orograph"])
            for who, times in spent.items():
                took = statistics.median(times)
                print(
                    f"{operation} {surface} {options.side}^2, {who:12s}"
                    f"{heights.size / took / 1e6:8.1f} Mcell/s, orograph {took / ours:.1f} times",
                    flush=True,
                )


if __name__ == "__main__":
    main()
