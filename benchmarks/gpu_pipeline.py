"""Whole operations, Zarr to Zarr, on a LocalCUDACluster; run by gpu.py.

The bits are those of a cluster of CPU workers. The speed is beside what the same workers take to
read the same input and to write the same result, and nothing else: medians, and the worst beside
the best. The first run of each, in which kernels are compiled, is told by itself.
"""

from __future__ import annotations

import shutil
import statistics
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
from orograph.kernels.backends import get_backend
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import StoreRaster
from orograph.tiles.store.create import Layout, Variable, create_store
from orograph.tiles.store.sink import StoreSink

PATCH = 4096
COUNTS = ("_cells", "_count")  # attributes of results that end so
TILE = 4096
REPEATS = 5

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
    """Seconds of whole runs, beside reading and writing alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = inputs(folder, side, TILE)
        with og.cluster(dashboard_address=None) as client:
            workers = len(client.scheduler_info()["workers"])
            for what, (source, variable, operation) in operations(side).items():
                out = folder / "result.zarr"
                spent = []
                for _ in range(1 + REPEATS):
                    begin = time.perf_counter()
                    operation(stores[source], out=out, overwrite=True, client=client)
                    spent.append(time.perf_counter() - begin)
                median = statistics.median(spent[1:])
                print(
                    f"{what} {side} x {side}, {workers} workers: {_shown(spent[1:])} "
                    f"({side**2 / median / 1e6:.0f} Mcell/s; first {spent[0]:.2f} s)",
                    flush=True,
                )
                for memory in ("numba", "cuda"):
                    alone = reading_and_writing(
                        client, stores[source], out, variable, folder, memory
                    )
                    kind = "page-locked memory" if memory == "cuda" else "new memory a tile"
                    print(
                        f"    reading and writing alone, {kind}: {_shown(alone)}, "
                        f"{statistics.median(alone) / median:.2f} of the run",
                        flush=True,
                    )


def _shown(seconds: list[float]) -> str:
    """The median of some seconds, with the best and the worst."""
    median = statistics.median(seconds)
    return f"median {median:.2f} s of {len(seconds)}, {min(seconds):.2f} to {max(seconds):.2f}"


def reading_and_writing(
    client: Client, source: Path, result: Path, variable: str, folder: Path, memory: str
) -> list[float]:
    """Seconds that the workers take to read the input and to write the result, once a repeat.

    ``memory``: arrays of tiles as a run of that backend has them.
    """
    raster, message = StoreRaster(source), StoreRaster(result, variable)
    layout = Layout.default(message.shape, message.dtype, TILE)
    copy = folder / "copy.zarr"
    shutil.rmtree(copy, ignore_errors=True)
    create_store(copy, message.shape, layout, [Variable(variable, message.dtype)])
    windows = list(layout.windows(message.shape))

    def seconds(function: Callable[..., None], *arguments: Any) -> float:
        begin = time.perf_counter()
        client.gather(
            client.map(function, windows, *([a] * len(windows) for a in arguments), pure=False)
        )
        return time.perf_counter() - begin

    spent = []
    for _ in range(1 + REPEATS):
        reading = seconds(read, memory, raster)
        rereading = seconds(read, memory, message)
        copying = seconds(rewrite, memory, message, StoreSink(copy), variable)
        spent.append(reading + copying - rereading)
    return spent[1:]


def read(window: Window, memory: str, raster: StoreRaster) -> None:
    """Read a shard."""
    with get_backend(memory).array_memory():
        raster.read(window)


def rewrite(
    window: Window, memory: str, raster: StoreRaster, sink: StoreSink, variable: str
) -> None:
    """Read a shard and write it."""
    with get_backend(memory).array_memory():
        sink.write(variable, window, raster.read(window))
