"""Whole operations, Zarr to Zarr, on a LocalCUDACluster; run by gpu.py.

The bits are those of a cluster of CPU workers. The speed is beside what the same workers take to
read the same input and to write the same result, and nothing else: medians, and the worst beside
the best. The first run of each, in which kernels are compiled, is told by itself.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import worker_profile
from distributed import Client, LocalCluster
from terrain import fractal, mirrored_store, noise

import orograph as og
from orograph.kernels.backends import get_backend
from orograph.tiles.format.metadata import REPORT
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import StoreRaster
from orograph.tiles.store.create import Layout, Variable, create_store
from orograph.tiles.store.sink import StoreSink

PATCH = 4096
COUNTS = ("_cells", "_count")  # attributes of results that end so
TILE = 4096
REPEATS = 5
FLOOR_REPEATS = 3

Operation = Callable[..., Any]


def operations(side: int) -> dict[str, tuple[str, str, Operation]]:
    """Name: input, variable of the result, and the call."""
    centre = [(side // 2, side // 2)]
    several = [*centre, (side // 3, side // 3), (side // 5, side // 2)]  # some may be ponds
    return {
        "forest, terrain": ("terrain", "edges", og.minimum_spanning_forest),
        "forest, noise": ("noise", "edges", og.minimum_spanning_forest),
        "filling, terrain": ("terrain", "filled", og.fill_depressions),
        "components": ("classes", "labels", og.connected_components),
        "hops": (
            "classes",
            "hops",
            lambda mask, **how: og.hop_distance(mask, several, snap=True, **how),
        ),
        "cost distance, slopes": (
            "slopes",
            "cost",
            lambda friction, **how: og.cost_distance(friction, centre, dtype="float32", **how),
        ),
    }


def inputs(folder: Path, side: int, tile: int) -> dict[str, Path]:
    """Stores of the rasters."""
    heights = fractal(PATCH)
    rise = np.hypot(*np.gradient(heights.astype(np.float64)))
    patches = {
        "terrain": heights,
        "noise": noise(PATCH),
        "slopes": (1 + 20 * rise / rise.mean()).astype(np.float32),
        "classes": (noise(PATCH, 1) < 600).astype(np.float32),
    }
    return {
        name: mirrored_store(folder / f"{name}-{side}.zarr", patch, side, tile)
        for name, patch in patches.items()
    }


@contextmanager
def cpu_cluster() -> Iterator[Client]:
    """Workers without a GPU."""
    with (
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def bits(side: int) -> None:
    """Every operation's result on GPU workers and on CPU workers, byte by byte."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = inputs(folder, side, min(TILE, side // 4))
        with og.cluster(dashboard_address=None) as gpus, cpu_cluster() as cpus:
            print(f"workers with a GPU: {len(gpus.scheduler_info()['workers'])}")
            for what, (source, variable, operation) in operations(side).items():
                found = operation(
                    stores[source], out=folder / "gpu.zarr", overwrite=True, client=gpus
                )
                expected = operation(
                    stores[source],
                    out=folder / "cpu.zarr",
                    overwrite=True,
                    client=cpus,
                    backend="numba",
                )
                one, other = found[variable].values, expected[variable].values
                if one.dtype != other.dtype or one.tobytes() != other.tobytes():
                    raise AssertionError(f"{what}: {(one != other).sum()} cells differ")
                counted = found.attrs, expected.attrs
                ours, theirs = ({k: a[k] for k in a if k.endswith(COUNTS)} for a in counted)
                if ours != theirs:
                    raise AssertionError(f"{what}: counted {ours}, expected {theirs}")
                print(f"{what} {side} x {side}: the bits of the CPU workers, {ours}", flush=True)


def run(side: int) -> None:
    """Seconds of whole runs, beside reading and writing alone, and where their threads spend them.

    Those are of one more run each, whose workers count.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = inputs(folder, side, TILE)
        with og.cluster(dashboard_address=None) as client:
            threads = list(client.nthreads().values())
            for what, (source, variable, operation) in operations(side).items():
                out = folder / "result.zarr"

                call = partial(operation, stores[source], out=out, overwrite=True, client=client)
                spent = [seconds(call) for _ in range(1 + REPEATS)]
                median = statistics.median(spent[1:])
                print(
                    f"{what} {side} x {side}, {len(threads)} workers of {threads[0]} threads: "
                    f"{_shown(spent[1:])} ({side**2 / median / 1e6:.0f} Mcell/s; "
                    f"first {spent[0]:.2f} s)",
                    flush=True,
                )
                with worker_profile.installed(client):
                    begin = time.time()
                    counted = seconds(call)
                    lines = worker_profile.spent(client, begin)
                phases = json.loads((out / REPORT).read_text())["phases"]
                print(f"    one run, counted: {counted:.2f} s; phases: {phases}")
                for line in lines:
                    print(f"        {line}", flush=True)
                for each in (4, threads[0]):
                    alone = reading_and_writing(
                        client, stores[source], out, variable, folder, each * len(threads)
                    )
                    print(
                        f"    reading and writing alone, {each} threads a worker: {_shown(alone)}, "
                        f"{statistics.median(alone) / median:.2f} of the run",
                        flush=True,
                    )


def seconds(call: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _shown(seconds: list[float]) -> str:
    """The median of some seconds, with the best and the worst."""
    median = statistics.median(seconds)
    return f"median {median:.2f} s of {len(seconds)}, {min(seconds):.2f} to {max(seconds):.2f}"


def reading_and_writing(
    client: Client, source: Path, result: Path, variable: str, folder: Path, threads: int
) -> list[float]:
    """Seconds that threads of workers take to read the input and to write the result.

    The shards are dealt out to as many tasks as there are threads. Once a repeat.
    """
    raster, message = StoreRaster(source), StoreRaster(result, variable)
    layout = Layout.default(message.shape, message.dtype, TILE)
    copy = folder / "copy.zarr"
    shutil.rmtree(copy, ignore_errors=True)
    by_bits = '"bitshuffle"' in (result / variable / "zarr.json").read_text()
    create_store(copy, message.shape, layout, [Variable(variable, message.dtype, by_bits=by_bits)])
    windows = list(layout.windows(message.shape))
    shares = [windows[number::threads] for number in range(min(threads, len(windows)))]

    def work(function: Callable[..., None], *arguments: Any) -> float:
        given = shares, *([argument] * len(shares) for argument in arguments)
        return seconds(lambda: client.gather(client.map(function, *given, pure=False)))

    spent = []
    for _ in range(FLOOR_REPEATS):
        reading = work(read, raster)
        rereading = work(read, message)
        copying = work(rewrite, message, StoreSink(copy), variable)
        spent.append(reading + copying - rereading)
    return spent


def read(share: list[Window], raster: StoreRaster) -> None:
    """Read shards."""
    with get_backend("cuda").array_memory():
        for window in share:
            raster.read(window)


def rewrite(share: list[Window], raster: StoreRaster, sink: StoreSink, variable: str) -> None:
    """Read shards and write them."""
    with get_backend("cuda").array_memory():
        for window in share:
            sink.write(variable, window, raster.read(window))
