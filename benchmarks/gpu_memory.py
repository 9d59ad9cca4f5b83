"""Memory of a GPU and of its worker in whole runs, Zarr to Zarr, beside the plan; run by gpu.py.

Each operation has a fresh worker and runs twice on it. Of the worker the greatest resident set
counts, which has page-locked memory among it; of the GPU what arrays take at the most. More than
that is taken of the GPU, as CuPy keeps what it may use again: that is told beside it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from threading import Thread
from typing import Any

from gpu_pipeline import TILE, inputs, operations

import orograph as og

MIB = 2**20
SECONDS_A_SAMPLE = 0.005
PLANNED: dict[str, tuple[Any, dict[str, Any]]] = {
    "forest, terrain": (og.minimum_spanning_forest, {}),
    "forest, noise": (og.minimum_spanning_forest, {}),
    "filling, terrain": (og.fill_depressions, {}),
    "components": (og.connected_components, {}),
    "hops": (og.hop_distance, {}),
    "cost distance, slopes": (og.cost_distance, {"dtype": "float32"}),
}


def begin_sampling(dask_worker: Any) -> None:
    """Begin to sample the memory of a worker, in a thread of it."""
    import cupy
    import psutil

    process, pool = psutil.Process(), cupy.get_default_memory_pool()
    peaks = dask_worker.memory_peaks = {"resident": 0, "arrays": 0, "taken": 0}
    dask_worker.samples = True

    def sample() -> None:
        while dask_worker.samples:
            free, total = cupy.cuda.runtime.memGetInfo()
            now = process.memory_info().rss, pool.used_bytes(), total - free
            for name, value in zip(peaks, now, strict=True):
                peaks[name] = max(peaks[name], value)
            time.sleep(SECONDS_A_SAMPLE)

    Thread(target=sample, daemon=True).start()


def end_sampling(dask_worker: Any) -> dict[str, int]:
    """Return the peaks in bytes, and sample no more."""
    dask_worker.samples = False
    peaks: dict[str, int] = dask_worker.memory_peaks
    return peaks


def total_memory() -> int:
    """Bytes of a worker's GPU."""
    import cupy

    return int(cupy.cuda.runtime.memGetInfo()[1])


def run(side: int) -> None:
    """Peaks of each operation beside its plan, in MiB."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = inputs(folder, side, TILE)
        for what, (source, _, operation) in operations(side).items():
            with og.cluster(1, dashboard_address=None) as client:
                (total,) = client.run(total_memory).values()
                planned, how = PLANNED[what]
                plan = planned.plan(stores[source], workers=1, gpu_memory=total, **how)
                client.run(begin_sampling)
                for _ in range(2):
                    operation(
                        stores[source], out=folder / "result.zarr", overwrite=True, client=client
                    )
                (peaks,) = client.run(end_sampling).values()
            resident, arrays, taken = (peaks[each] / MIB for each in peaks)
            print(
                f"{what} {side} x {side}, {plan.threads_per_worker} threads, tiles of {plan.tile}: "
                f"worker {resident:.0f} of {plan.memory_per_worker / MIB:.0f} MiB planned; GPU "
                f"{arrays:.0f} for arrays, {taken:.0f} taken, {plan.memory_gpu / MIB:.0f} planned",
                flush=True,
            )
