"""All pairs of a dense graph, beside SciPy's floyd_warshall, in one run.

    python benchmarks/all_pairs.py --vertices 2048 4096 --repeat 3

Random lengths, an edge in every second place. Ours runs on threads of this process, one a core;
SciPy on one. Ours is the median of some runs, with the fastest and slowest, before and after
SciPy's single one.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from record import Record, add_option
from scipy.sparse.csgraph import floyd_warshall

import orograph as og


def timed(call: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def compare(n: int, repeat: int, dtype: str, predecessors: bool, record: Record) -> None:
    rng = np.random.default_rng(0)
    graph = rng.random((n, n)) + 1e-3
    graph[rng.random((n, n)) < 0.5] = np.inf
    np.fill_diagonal(graph, 0)
    ours = partial(og.all_pairs, graph, predecessors=predecessors, dtype=dtype)
    ours()
    spent = [timed(ours)[0] for _ in range(repeat)]
    theirs, expected = timed(partial(floyd_warshall, graph, return_predecessors=predecessors))
    for _ in range(repeat):
        seconds, result = timed(ours)
        spent.append(seconds)
    expected = expected[0] if predecessors else expected
    off = np.abs(result.distance.values / np.where(expected, expected, 1) - (expected != 0)).max()
    middle = statistics.median(spent)
    what = f"all pairs of a dense graph of {n} vertices{', predecessors' * predecessors}"
    record.add(what, "orograph", "s", spent)
    record.add(what, "SciPy floyd_warshall", "s", [theirs], peer=True)
    print(
        f"{n} vertices, {dtype}{', predecessors' if predecessors else ''}: SciPy {theirs:.2f} s, "
        f"orograph {middle:.2f} s ({min(spent):.2f} to {max(spent):.2f}), "
        f"{theirs / middle:.1f} times as fast; greatest relative difference {off:.1e}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--vertices", type=int, nargs="+", default=[2048, 4096])
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--predecessors", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    add_option(parser)
    options = parser.parse_args()
    record = Record(options.record)
    for n in options.vertices:
        compare(n, options.repeat, options.dtype, options.predecessors, record)
    record.write()


if __name__ == "__main__":
    main()
