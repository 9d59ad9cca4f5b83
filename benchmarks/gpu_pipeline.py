"""Whole operations, Zarr to Zarr, on a LocalCUDACluster; run by gpu.py.

The bits are those of a cluster of CPU workers. The speed is beside what the same workers take to
read the same input and to write the same result, and nothing else.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster
from terrain import fractal, mirrored_store, noise

import orograph as og
from orograph.tiles.grid import Window
from orograph.tiles.raster import StoreRaster
from orograph.tiles.store import Layout, StoreSink, Variable, create_store

PATCH = 4096
TILE = 4096

Operation = Callable[..., Any]


def operations(side: int) -> dict[str, tuple[str, str, Operation]]:
    """Name: input, variable of the result, and the call."""
    centre = [(side // 2, side // 2)]
    return {
        "forest, terrain": ("terrain", "edges", og.minimum_spanning_forest),
        "forest, noise": ("noise", "edges", og.minimum_spanning_forest),
        "components": ("classes", "labels", og.connected_components),
        "hops": (
            "classes",
            "hops",
            lambda mask, **how: og.hop_distance(mask, centre, snap=True, **how),
        ),
        "cost distance, slopes": (
            "slopes",
            "cost",
            lambda friction, **how: og.cost_distance(friction, centre, dtype="float32", **how),
        ),
    }


def inputs(folder: Path, side: int) -> dict[str, Path]:
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
        name: mirrored_store(folder / f"{name}-{side}.zarr", patch, side, TILE)
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
        stores = inputs(folder, side)
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
                print(f"{what} {side} x {side}: the bits of the CPU workers", flush=True)


def run(side: int) -> None:
    """Seconds of whole runs, beside reading and writing alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = inputs(folder, side)
        with og.cluster(dashboard_address=None) as client:
            workers = len(client.scheduler_info()["workers"])
            for what, (source, variable, operation) in operations(side).items():
                out = folder / "result.zarr"
                spent = []
                for _ in range(3):
                    begin = time.perf_counter()
                    operation(stores[source], out=out, overwrite=True, client=client)
                    spent.append(time.perf_counter() - begin)
                alone = reading_and_writing(client, stores[source], out, variable, folder)
                best = min(spent[1:])
                print(
                    f"{what} {side} x {side}, {workers} workers: {best:.2f} s "
                    f"({side**2 / best / 1e6:.0f} Mcell/s; first {spent[0]:.2f} s); reading and "
                    f"writing alone {alone:.2f} s: {alone / best:.2f} of the run",
                    flush=True,
                )


def reading_and_writing(
    client: Client, source: Path, result: Path, variable: str, folder: Path
) -> float:
    """Seconds that the workers take to read the input and to write the result."""
    raster, answer = StoreRaster(source), StoreRaster(result, variable)
    layout = Layout.default(answer.shape, answer.dtype, TILE)
    copy = folder / "copy.zarr"
    shutil.rmtree(copy, ignore_errors=True)
    create_store(copy, answer.shape, layout, [Variable(variable, answer.dtype)])
    windows = list(layout.windows(answer.shape))

    def seconds(function: Callable[..., None], *arguments: Any) -> float:
        begin = time.perf_counter()
        client.gather(
            client.map(function, windows, *([a] * len(windows) for a in arguments), pure=False)
        )
        return time.perf_counter() - begin

    for _ in range(2):
        reading = seconds(read, raster)
        rereading = seconds(read, answer)
        copying = seconds(rewrite, answer, StoreSink(copy), variable)
    return reading + copying - rereading


def read(window: Window, raster: StoreRaster) -> None:
    """Read a shard."""
    raster.read(window)


def rewrite(window: Window, raster: StoreRaster, sink: StoreSink, variable: str) -> None:
    """Read a shard and write it."""
    sink.write(variable, window, raster.read(window))
