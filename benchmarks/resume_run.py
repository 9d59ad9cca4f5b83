"""Measure what resuming a distance takes after all its processes were killed.

    python benchmarks/resume_run.py --side 8192 --tile 512 --shard 1024 --shares 0.5 0.8
    python benchmarks/resume_run.py --workers 2

A session of its own computes the distance from a corner over random friction; another is killed
with its workers by SIGKILL once it has taken a share of the first one's CPU time, and a third goes
on from there. Shown is the CPU time of the third by that of a fresh run, the mean of those before
and after it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import psutil

import orograph as og


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--side", type=int, default=8192)
    parser.add_argument("--tile", type=int, default=512)
    parser.add_argument("--shard", type=int, default=1024)
    parser.add_argument("--workers", type=int, default=0, help="0: two threads of one process")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5, 0.8])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--session", help=argparse.SUPPRESS)
    parser.add_argument("--most", type=float, default=np.inf, help=argparse.SUPPRESS)
    options = parser.parse_args()
    store = options.folder / f"friction-{options.side}-{options.tile}-{options.shard}.zarr"
    if options.session:
        session(store, options)
        return
    if not store.exists():
        part = np.random.default_rng(0).uniform(1, 9, (1024, 1024)).astype(np.float32)
        rows = np.tile(part, (-(-options.side // 1024),) * 2)[: options.side, : options.side]
        og.ingest(rows, store, tile=options.tile, shard=options.shard)
    before = started("fresh", np.inf)
    for share in options.shares:
        killed = started("killed", share * before["seconds"])
        resumed = started("resumed", np.inf)
        after = started("fresh", np.inf)
        fresh = (before["seconds"] + after["seconds"]) / 2
        print(
            f"killed at {share:.0%} of the time with {killed['done']:.0%} of the tiles done: "
            f"resumed in {resumed['seconds'] / fresh:.0%} ({resumed['seconds']:.1f} of {fresh:.1f} "
            f"s of CPU), {'the same' if resumed['sum'] == after['sum'] else 'OTHER'} bits",
            flush=True,
        )
        before = after


def started(kind: str, most: float) -> dict[str, float]:
    """Return the figures that a session prints at its end."""
    done = subprocess.run(
        [sys.executable, __file__, *sys.argv[1:], "--session", kind, "--most", str(most)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        start_new_session=True,
    )
    said: dict[str, float] = json.loads(done.stdout)
    return said


def session(store: Path, options: argparse.Namespace) -> None:
    """Compute a distance, and kill this session once it has taken ``options.most`` of CPU."""
    out = options.folder / "distance.zarr"
    if options.session != "resumed":
        for path in (out, out.with_name("distance.zarr.partial")):
            shutil.rmtree(path, ignore_errors=True)
    workers = nullcontext()
    if options.workers:
        workers = og.cluster(n_workers=options.workers, dashboard_address=None)
    with workers as client, og.config.set(threads=2):
        begin = cpu_time()
        run = og.cost_distance.submit(
            store, [(0, 0)], out=out, tile=options.tile, shard=options.shard, cell_size=1,
            client=client, resume=options.session == "resumed",
        )  # fmt: skip
        while run.status == "running":
            if cpu_time() - begin > options.most:
                progress = run.progress()
                print(json.dumps({"done": progress.done / progress.total}), flush=True)
                os.killpg(0, signal.SIGKILL)
            time.sleep(0.02)
        cost = run.result()["cost"]
        seconds = cpu_time() - begin
    print(json.dumps({"seconds": seconds, "sum": float(cost.values.view(np.uint32).sum())}))


def cpu_time() -> float:
    """Return the seconds that this process and its workers have worked."""
    children = psutil.Process().children(recursive=True)
    return time.process_time() + sum(sum(child.cpu_times()[:2]) for child in children)


if __name__ == "__main__":
    main()
