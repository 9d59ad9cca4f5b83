"""Four equal distances at once on two workers: when each of them ends.

    python benchmarks/equal_runs.py [SIDE] [ROUNDS]

The source is in the middle of random frictions. One run is made alone before.
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import orograph as og

RUNS = 4


def main(side: int = 8192, rounds: int = 3) -> None:
    with tempfile.TemporaryDirectory() as place, og.cluster(2, dashboard_address=None) as client:
        folder, source = Path(place), [(side // 2, side // 2)]
        steps = np.random.default_rng(3).integers(-1, 2, (side, side))
        friction = (np.cumsum(steps, axis=1) % 50 + 1).astype(np.int32)
        store = og.ingest(friction, folder / "friction.zarr", tile=512)
        og.cost_distance(store, source, out=folder / "alone.zarr", client=client)
        for _ in range(rounds):
            began = time.perf_counter()
            runs = [
                og.cost_distance.submit(
                    store, source, out=folder / f"{number}.zarr", overwrite=True, client=client
                )
                for number in range(RUNS)
            ]

            def end(run: og.Run[object], began: float = began) -> float:
                run.result()
                return time.perf_counter() - began

            with ThreadPoolExecutor(RUNS) as pool:
                ends = list(pool.map(end, runs))
            order = "in order" if ends == sorted(ends) else "not in order"
            apart = (max(ends) - min(ends)) / max(ends)
            print(", ".join(f"{seconds:.2f} s" for seconds in ends), f"{apart:.1%} apart, {order}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
