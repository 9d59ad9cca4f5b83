"""Distances of several kinds beside one another: processor time of one thread, in memory.

    python benchmarks/distances.py [SIDE] [ROUNDS]

The two calls of a line are made in turns, and medians of processor time are compared. Networks of
regions beside one cost distance with allocation from the same regions; factors of slope and walking
times beside one another on terrain and on noise; the eikonal equation beside scikit-fmm.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import skfmm
from terrain import fractal, noise

import orograph as og

Calls = tuple[Callable[[], Any], Callable[[], Any]]
REGIONS = (10, 100, 1000)
TOBLER_TABLE = {
    degrees: 3.6 / (6 * np.exp(-3.5 * abs(np.tan(np.radians(degrees)) + 0.05)))
    for degrees in range(-80, 81, 5)
}

WIND = {0: 0.6, 45: 0.8, 90: 1.0, 135: 1.5, 180: 2.5}


def seconds(call: Callable[[], Any]) -> float:
    """Return the processor time of a call, of all threads."""
    start = time.process_time()
    call()
    return time.process_time() - start


def networks(side: int) -> dict[str, Calls]:
    """Return networks of regions, each with the cost distance that it rests on."""
    friction = 1 + 9 * np.random.default_rng(0).random((side, side))
    calls: dict[str, Calls] = {}
    for count in REGIONS:
        points = np.random.default_rng(count).integers(0, side, (count, 2))
        calls[f"tree of {count} regions, cost distance with allocation"] = (
            lambda points=points: og.region_network(friction, points),
            lambda points=points: og.cost_distance(
                friction, points, outputs=("cost", "back_direction", "allocation")
            ),
        )
    return calls


def slopes(side: int) -> dict[str, Calls]:
    """Return factors of slope and of wind beside Tobler's function, on terrain and on noise."""
    calls: dict[str, Calls] = {}
    for terrain, relief in ((fractal, side / 4), (noise, 4)):
        heights = terrain(side)
        heights = (heights - heights.min()) / np.ptp(heights) * relief
        wind = np.random.default_rng(1).uniform(0, 360, heights.shape)
        slope = {"surface": heights, "vertical_factor": TOBLER_TABLE}
        costs = {
            "table of factors": slope,
            "table of factors, two rasters of heights": {**slope, "elevation": heights.copy()},
            "table of factors of wind": {
                "surface": heights,
                "horizontal_raster": wind,
                "horizontal_factor": WIND,
            },
        }
        ones, middle = np.ones_like(heights), [(side // 2, side // 2)]
        for name, given in costs.items():
            cost = og.TerrainCost(**given)
            calls[f"{terrain.__name__}: {name}, Tobler's walking time"] = (
                lambda cost=cost, ones=ones, middle=middle: og.cost_distance(
                    ones, middle, cost=cost, cell_size=1
                ),
                lambda heights=heights, middle=middle: og.walking_time(
                    heights, middle, cell_size=1
                ),
            )
    return calls


def eikonal(side: int) -> dict[str, Calls]:
    """Return the eikonal equation beside scikit-fmm."""
    speed = np.exp(np.random.default_rng(0).normal(size=(side, side)) / 2)
    start = np.ones((side, side))
    start[side // 2, side // 2] = -1
    return {
        "eikonal equation, scikit-fmm": (
            lambda: og.cost_distance(1 / speed, [(side // 2, side // 2)], cost="eikonal"),
            lambda: skfmm.travel_time(start, speed, order=1),
        )
    }


def main(side: int = 1024, rounds: int = 5) -> None:
    """Measure and print."""
    og.config.set(threads=1)
    for name, pair in {**networks(side), **slopes(side), **eikonal(side)}.items():
        for call in pair:
            call()
        times = [[seconds(call) for call in pair] for _ in range(rounds)]
        one, other = (statistics.median(t) * 1e9 / side**2 for t in zip(*times))
        print(f"{name}: {one:.0f} and {other:.0f} ns a cell, {one / other:.2f} times", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
