"""Tricella, Parallel Dijkstra for all pairs (2023): speed-ups over the sequential algorithm.

His graphs are adjacency matrices whose density is not printed; a tenth of the edges is there. What
is printed are speed-ups alone, so ours stand beside them, and the seconds below.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import orograph as og
from papers.rows import NEEDS_GPU, NEEDS_TIME, ONE_CORE, Paper, Spent, timed

PRINTED = {
    256: (0.58, 0.48),
    512: (1.26, 0.36),
    1024: (2.18, 0.16),
    2048: (2.22, ""),
    4096: (1.47, ""),
}
TABLE = "§4.1"


def lengths(n: int) -> np.ndarray:
    """Return an adjacency matrix, a tenth full."""
    rng = np.random.default_rng(0)
    return np.where(rng.random((n, n)) < 0.1, rng.integers(1, 100, (n, n)), 0)


def on_workers(paper: Paper, matrix: np.ndarray, count: int) -> Spent:
    """Return the seconds of Dijkstra's algorithm from all vertices, on workers, written to disk."""
    out = paper.folder / "orograph-tricella.zarr"
    with (
        og.cluster(n_workers=count, dashboard_address=None) as client,
        og.config.set(progress=False),
    ):
        call = partial(
            og.all_pairs, matrix, method="dijkstra", out=out, overwrite=True, client=client
        )
        return timed(call, 3, workers=True)


def repeat(paper: Paper) -> None:
    """Repeat the table of speed-ups."""
    for n, (partitioned, parallel) in PRINTED.items():
        matrix = lengths(n)
        what = "all pairs by Dijkstra"
        if n > 2048 and not paper.full:
            paper.absent(TABLE, what, size=n, why=NEEDS_TIME)
            paper.absent(
                TABLE,
                "speed-up, source-partitioned",
                size=n,
                unit="times",
                printed=partitioned,
                by="GTX 1050",
                why=NEEDS_TIME,
            )
        else:
            alone, two = (on_workers(paper, matrix, count) for count in (1, 2))
            paper.add(TABLE, what, alone, size=n, who="one worker", note="sequential: SciPy's")
            paper.add(
                TABLE,
                what,
                two,
                size=n,
                who="two workers",
                note="source-partitioned: each worker takes rows of the result",
            )
            gain = min(alone.clock) / min(two.clock)
            paper.number(
                TABLE,
                "speed-up, source-partitioned",
                gain,
                size=n,
                who="two workers",
                unit="times",
                printed=partitioned,
                by="GTX 1050",
                note="by the clock, the best of three; his has a thread a vertex",
            )
        with og.config.set(threads=1, progress=False):
            found = timed(
                partial(og.all_pairs, matrix, method="floyd-warshall"), 3 if n < 2048 else 1
            )
        paper.add(
            TABLE,
            "all pairs by Floyd and Warshall",
            found,
            size=n,
            who=ONE_CORE,
            note="what orograph takes for such a graph",
        )
        paper.absent(
            TABLE,
            "speed-up, source-parallel",
            size=n,
            unit="times",
            printed=parallel or "none: above its cap of 1024",
            by="GTX 1050",
            why=NEEDS_GPU,
            command="python benchmarks/gpu.py minplus --only speed",
        )
