"""basins.cu on a GPU; run by gpu.py."""

from __future__ import annotations

import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from device_time import TimedDevice, milliseconds, report
from gpu_forest import surfaces, typed
from terrain import fractal, mirrored_store, noise

import orograph as og
from orograph.kernels.backends import get_backend
from orograph.kernels.forest import cuda as forest_cuda
from orograph.kernels.terrain import basins
from orograph.kernels.terrain import cuda as basins_cuda

PATCH, TILE, THREADS, REPEATS = 4096, 4096, 8, 3
# dtype, neighbours, whether from high to low
CASES = (("float32", 8, False), ("float32", 4, True), ("int16", 8, False), ("float64", 8, False))


def same(values: np.ndarray, what: str, *options: Any) -> None:
    """Raise unless the GPU's result is the Numba kernels'."""
    expected = basins.tile_basins(values, None, *options)
    found = basins_cuda.tile_basins(values, None, *options)
    for name, one, other in zip(expected._fields, expected, found):
        if one.dtype != other.dtype or not np.array_equal(one, other):
            raise AssertionError(f"{what} {values.shape} {values.dtype}, {options}: other {name}")
    levels = np.resize(values, found.pits.size + 1)
    raised = basins_cuda.raise_cells(values, found.labels, levels).get()
    if raised.tobytes() != basins.raise_cells(values, expected.labels, levels).tobytes():
        raise AssertionError(f"{what} {values.shape} {values.dtype}, {options}: other heights")
    count, edges = found.pits.size, found.cell.size
    print(f"{what} {values.shape} {values.dtype}, {options}: {count} and {edges}, as Numba")


def bits(side: int) -> None:
    """Labels, pits, edges and raised cells against the Numba kernels."""
    for what, heights in surfaces(side):
        for dtype, *options in CASES:
            same(typed(heights, dtype), what, *options)
    for shape in ((side - 1, side // 2 + 1), (3, side * 8 + 5), (side * 8 + 5, 1)):
        same(np.resize(noise(side), shape), "noise", 8)
    whole = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, (side, side), endpoint=True)
    same(whole, "all of int64", 8, True)


def speed(side: int) -> None:
    """The device alone, beside the forest: heights to labels, pits and edges."""
    device = TimedDevice()
    for what, heights in surfaces(side):
        values = device.upload(heights)
        call = partial(basins_cuda.basins_on_device, values, None, 8, device=device)
        report(f"{what}, basins", milliseconds(call), values.size, values.itemsize + 2)
        with device.by_kernel("  kernels"):
            found = call()
        print(f"  {found.pits.size} basins, {found.cell.size} edges")
        inside = (False,) * 4
        span = partial(forest_cuda.forest_on_device, values, None, inside, device=device)
        report(f"{what}, forest", milliseconds(span), values.size, values.itemsize + 1)
        del values, call, span, found


def run(side: int) -> None:
    """Tiles from and to the host, and whole runs from store to store beside the forest's."""
    for what, heights in (("terrain", fractal(PATCH)), ("noise", noise(PATCH))):
        for backend, module in (("numba", basins), ("cuda", basins_cuda)):
            for _ in range(2):
                begin = time.perf_counter()
                tile = module.tile_basins(heights, None, 8)
                found = time.perf_counter()
                levels = np.resize(heights, tile.pits.size + 1)
                get_backend(backend).to_host(module.raise_cells(heights, tile.labels, levels))
                end = time.perf_counter()
            print(
                f"{what} {PATCH}^2, {backend}, from and to the host: basins "
                f"{(found - begin) * 1e3:.1f} ms, raised {(end - found) * 1e3:.1f} ms",
                flush=True,
            )
        with tempfile.TemporaryDirectory() as folder, og.config.set(threads=THREADS):
            store = mirrored_store(Path(folder, "heights.zarr"), heights, side, TILE)
            spent: dict[str, list[float]] = {}
            for turn in range(REPEATS + 1):
                for operation in (og.fill_depressions, og.minimum_spanning_forest):
                    for backend in ("cuda", "numba"):
                        begin = time.perf_counter()
                        out = Path(folder, "out.zarr")
                        operation(store, out=out, overwrite=True, backend=backend)
                        if turn:
                            took = time.perf_counter() - begin
                            spent.setdefault(f"{operation.__name__}, {backend}", []).append(took)
            for name, times in spent.items():
                median = statistics.median(times)
                print(
                    f"{what} {side}^2 from store to store, {THREADS} threads, {name}: "
                    f"{median:.2f} s, {side**2 / median / 1e6:.0f} Mcell/s",
                    flush=True,
                )
    cupy.get_default_memory_pool().free_all_blocks()
