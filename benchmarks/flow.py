"""Flow beside pyflwdir: cells a second of one thread, in memory, from terrain of 2048 x 2048 cells.

Run: ``python benchmarks/flow.py [SIDE] [ROUNDS]``. Both are called in turns, so that what else the
machine does slows both; medians of processor time. Directions come with filling on both sides;
accumulation and basins of both start from the same directions, of orograph, in an array.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyflwdir
from terrain import fractal, noise

import orograph as og


def seconds(call: Callable[[], Any]) -> float:
    """Return the processor time of a call, of all threads."""
    start = time.process_time()
    call()
    return time.process_time() - start


def cases(heights: Any) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Return the calls to measure, by name: one of orograph and one of pyflwdir."""
    codes = og.flow_direction(heights, codes="esri")["direction"]
    weights = np.random.default_rng(1).random(heights.shape)

    def network() -> Any:
        return pyflwdir.from_array(codes.values, ftype="d8", check_ftype=False)

    return {
        "directions from elevation": (
            lambda: og.flow_direction(heights),
            lambda: pyflwdir.dem.fill_depressions(heights),
        ),
        "filling with a gradient": (
            lambda: og.fill_depressions(heights, gradient=True),
            lambda: pyflwdir.dem.fill_depressions(heights),
        ),
        "accumulation of cells": (
            lambda: og.flow_accumulation(codes),
            lambda: network().upstream_area("cell"),
        ),
        "accumulation of weights": (
            lambda: og.flow_accumulation(codes, weights=weights),
            lambda: network().accuflux(weights),
        ),
        **(
            {"basins": (lambda: og.watersheds(codes), lambda: network().basins())}
            if hasattr(og, "watersheds")
            else {}
        ),
    }


def main(side: int = 2048, rounds: int = 5) -> None:
    """Measure and print."""
    og.config.set(threads=1)
    for terrain in (fractal, noise):
        for name, pair in cases(terrain(side)).items():
            for call in pair:
                call()
            times = [[seconds(call) for call in pair] for _ in range(rounds)]
            ours, theirs = (side**2 / statistics.median(t) / 1e6 for t in zip(*times))
            print(
                f"{terrain.__name__}: {name}: {ours:.1f} Mcell/s, pyflwdir {theirs:.2f}, "
                f"{ours / theirs:.1f} times as fast"
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
