"""A forest from and to an object store that delays every request, beside the same from disk.

    python benchmarks/object_store.py --side 8192 --delay 0.02

A server of S3 (`s3_server.py`) in a process of its own answers on the loopback address. It takes
part of the processors' time, which is printed, so the same runs are made without a delay. Prints
the medians of interleaved runs, and how many requests the last of each made.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
from record import Record, add_option
from terrain import fractal, mirrored_store

import orograph as og
from orograph.tiles.open_storage import open_storage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--side", type=int, default=8192)
    parser.add_argument("--tile", type=int, default=1024)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--delay", type=float, default=0.02, help="seconds of each request")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    add_option(parser)
    options = parser.parse_args()
    record = Record(options.record)
    server = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("s3_server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    url, bucket = server.stdout.readline().strip(), "s3://bucket"
    os.environ.update(
        AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY="test",
        AWS_REGION="us-east-1",
        AWS_ENDPOINT_URL=url,
    )
    tell, answer = server.stdin, server.stdout

    def set_delay(seconds: float) -> tuple[int, int]:
        """Set the delay; return how many requests there have been since, and serial ones."""
        print(seconds, file=tell, flush=True)
        requests, serial = answer.readline().split()
        return int(requests), int(serial)

    try:
        _compare(options, bucket, record, set_delay, psutil.Process(server.pid))
    finally:
        server.communicate()


def _compare(
    options: argparse.Namespace,
    bucket: str,
    record: Record,
    set_delay: Callable[[float], tuple[int, int]],
    server: psutil.Process,
) -> None:
    """Run a forest from disk to disk and from the bucket to the bucket, in turns."""
    local = options.folder / f"orograph-terrain-{options.side}-{options.tile}.zarr"
    mirrored_store(local, fractal(min(options.side, 4096)), options.side, options.tile)
    source, target = open_storage(local), open_storage(f"{bucket}/dem.zarr")
    for key, _ in source.objects():
        target.put(key, source.get(key))
    there = f"{bucket}/dem.zarr", f"{bucket}/forest.zarr"
    late = f"object store, {options.delay * 1e3:g} ms a request"
    places = {
        "disk": (str(local), str(options.folder / "orograph-forest.zarr"), 0.0),
        "object store": (*there, 0.0),
        late: (*there, options.delay),
    }
    seconds: dict[str, list[float]] = {name: [] for name in places}
    of_server: dict[str, float] = {}
    requests: dict[str, tuple[int, int]] = {}
    size = {"n_workers": options.workers, "threads_per_worker": options.threads}
    with og.cluster(dashboard_address=None, **size) as client:
        for _ in range(options.repeat + 1):  # the first compiles
            for name, (dem, out, delay) in places.items():
                set_delay(delay)
                start, before = time.perf_counter(), sum(server.cpu_times()[:2])
                og.minimum_spanning_forest(dem, out=out, overwrite=True, client=client)
                seconds[name].append(time.perf_counter() - start)
                of_server[name] = sum(server.cpu_times()[:2]) - before
                requests[name] = set_delay(delay)
    set_delay(0.0)
    edges = [og.open(places[name][1])["edges"].values for name in ("disk", late)]
    np.testing.assert_array_equal(*edges)
    medians = {name: statistics.median(runs[1:]) for name, runs in seconds.items()}
    what = f"forest of {options.side} x {options.side}"
    for name, runs in seconds.items():
        ratio = medians[name] / medians["disk"]
        print(
            f"{what}, {name}: {medians[name]:.2f} s, {ratio:.2f} times as long as from disk; "
            f"{requests[name][0]} requests, {requests[name][1]} of them one after the other; "
            f"{of_server[name]:.2f} s of a processor by the server"
        )
        record.add(what, name, "s", runs[1:])
    record.write()


if __name__ == "__main__":
    main()
