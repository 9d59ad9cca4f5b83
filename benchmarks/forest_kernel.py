"""The forest kernel on one core, beside SciPy's minimum_spanning_tree on the same graph.

    python benchmarks/forest_kernel.py --size 2048 --repeat 5

Runs are interleaved; figures are medians of the processor's time, with the fastest and slowest
run. SciPy's time is the call alone, not the building of its graph. SciPy drops edges of weight
zero, so its weights are shifted by one. Other dtypes and weights are timed without SciPy.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from record import Record, add_option
from scipy.sparse import csr_array
from scipy.sparse.csgraph import minimum_spanning_tree
from terrain import fractal, noise

from orograph.kernels.forest.tile import tile_forest

INSIDE = (False, False, False, False)
ALL_OPEN = (True, True, True, True)
STEPS = ((0, 1), (1, -1), (1, 0), (1, 1))


def scipy_graph(heights: np.ndarray) -> csr_array:
    """The 8-neighbour graph, weight max of the two ends plus one."""
    h, w = heights.shape
    cell = np.arange(heights.size, dtype=np.int32).reshape(h, w)
    first, second, weight = [], [], []
    for dy, dx in STEPS:
        near = (slice(0, h - dy), slice(max(-dx, 0), w - max(dx, 0)))
        far = (slice(dy, h), slice(max(dx, 0), w + min(dx, 0)))
        first.append(cell[near].ravel())
        second.append(cell[far].ravel())
        weight.append(np.maximum(heights[near], heights[far]).ravel().astype(np.float64) + 1)
    ends = (np.concatenate(first), np.concatenate(second))
    return csr_array((np.concatenate(weight), ends), shape=(cell.size, cell.size))


def time_interleaved(
    calls: Mapping[str, Callable[[], object]], repeat: int
) -> dict[str, tuple[float, float, float]]:
    """Median, least and greatest seconds of the processor, the calls in turn after a rehearsal."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeat + 1):
        for name, call in calls.items():
            start = time.process_time()
            call()
            if turn:
                spent[name].append(time.process_time() - start)
    return {name: (statistics.median(s), min(s), max(s)) for name, s in spent.items()}


def report(name: str, cells: int, seconds: tuple[float, float, float]) -> list[float]:
    """Print one line, million cells a second, and return them."""
    median, least, greatest = speeds = [cells / s / 1e6 for s in seconds]
    print(f"{name:44s} {median:7.1f} Mcell/s  ({greatest:.1f} to {least:.1f})", flush=True)
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=5)
    add_option(parser)
    options = parser.parse_args()
    record = Record(options.record)
    for name, heights in {"terrain": fractal(options.size), "noise": noise(options.size)}.items():
        graph = scipy_graph(heights)
        tree = minimum_spanning_tree(graph)
        total = tile_forest(heights, None, INSIDE).total / 2**1074
        expected = float(tree.sum()) - tree.nnz
        assert abs(total - expected) < 1e-9 * abs(expected), (total, expected)
        spent = time_interleaved(
            {
                "one tile": partial(tile_forest, heights, None, INSIDE),
                "a tile among others": partial(tile_forest, heights, None, ALL_OPEN),
                "scipy minimum_spanning_tree": partial(minimum_spanning_tree, graph),
            },
            options.repeat,
        )
        for what, seconds in spent.items():
            speeds = report(f"{name} float32 max, {what}", heights.size, seconds)
            who = {"one tile": "orograph", "scipy minimum_spanning_tree": "SciPy"}.get(what)
            if who is not None:
                what_of = f"forest of a tile, {name} {options.size}²"
                record.add(what_of, who, "Mcell/s", speeds, peer=who == "SciPy")
        ratio = spent["scipy minimum_spanning_tree"][0] / spent["one tile"][0]
        print(f"{name}: {ratio:.1f} times as fast as SciPy", flush=True)
        del graph, tree
        variants = [("float64", "max"), ("int16", "max"), ("int32", "max")]
        variants += [("float32", "mean"), ("float32", "absolute_difference")]
        grids = {d: (heights * (30 if d[0] == "i" else 1)).astype(d) for d, _ in variants}
        calls = {f"{d} {w}": partial(tile_forest, grids[d], None, INSIDE, w) for d, w in variants}
        for what, seconds in time_interleaved(calls, options.repeat).items():
            report(f"{name} {what}", heights.size, seconds)
        four = {"4 neighbours": partial(tile_forest, heights, None, INSIDE, "max", 4)}
        for what, seconds in time_interleaved(four, options.repeat).items():
            report(f"{name} float32 max, {what}", heights.size, seconds)
    record.write()


if __name__ == "__main__":
    main()
