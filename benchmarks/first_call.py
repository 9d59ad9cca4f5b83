"""The first call after an installation, and the first of a later process: seconds of each.

    python benchmarks/first_call.py                        # plan, forest, components, distances
    python benchmarks/first_call.py cost_distance --repeat 3

Each call is made in a process of its own: cold with an empty cache of compiled kernels, then warm
with the cache that the cold one left. Seconds of `import orograph` are not counted, but printed
beside. CPU seconds depend less on what else the machine does. Medians are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

CALLS = {
    "plan": "og.cost_distance.plan(cells)",
    "plan of components": "og.connected_components.plan(cells > 1.5)",
    "plan of filling": "og.fill_depressions.plan(cells)",
    "plan of an index": "og.DistanceIndex.build.plan(cells)",
    "forest": "og.minimum_spanning_forest(cells)",
    "components": "og.connected_components(cells > 1.5)",
    "cost_distance": "og.cost_distance(cells, [(5, 5)])",
    "walking time": "og.walking_time(cells, [(5, 5)])",
    "hop_distance": "og.hop_distance(cells, [(5, 5)])",
    "fill_depressions": "og.fill_depressions(cells)",
    "is_connected": "og.is_connected(cells, (5, 5), (250, 250))",
    "is_connected, pairs": "og.is_connected(cells, [(5, 5)] * 8, [(250, 250)] * 8)",
}
CODE = """
import json, time
def now():
    return time.perf_counter(), time.process_time()
start = now()
import numpy as np
import orograph as og
cells = (1 + np.random.default_rng(0).random((300, 300))).astype(np.float32)
loaded = now()
{call}
done = now()
print(json.dumps([*(b - a for a, b in zip(loaded, done)), loaded[1] - start[1]]))
"""


def seconds(call: str, folder: str) -> list[float]:
    """Return wall and CPU seconds of a call in a new process, and CPU seconds of the import."""
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(call=call)],
        env={**os.environ, "NUMBA_CACHE_DIR": folder, "OROGRAPH_PROGRESS": "False"},
        stdout=subprocess.PIPE,
        check=True,
    )
    times: list[float] = json.loads(done.stdout)
    return times


def main() -> None:
    """Time each call, cold and warm."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("calls", nargs="*", metavar="call", help=f"of {', '.join(CALLS)}")
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    print(f"{'':20}{'cold':>16}{'warm':>16}{'import':>8}")
    print(f"{'':20}" + 2 * f"{'wall':>8}{'CPU':>8}" + f"{'CPU':>8}")
    for name in options.calls or CALLS:
        cold, warm = [], []
        for _ in range(options.repeat):
            with tempfile.TemporaryDirectory() as folder:
                cold.append(seconds(CALLS[name], folder))
                warm.append(seconds(CALLS[name], folder))
        columns = [*[*zip(*cold)][:2], *zip(*warm)]
        print(f"{name:20}" + "".join(f"{statistics.median(c):8.2f}" for c in columns), flush=True)


if __name__ == "__main__":
    main()
