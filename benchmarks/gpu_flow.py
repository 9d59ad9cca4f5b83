"""flow.cu on a GPU; run by gpu.py."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from gpu_forest import surfaces, typed
from terrain import fractal, mirrored_store, noise

import orograph as og
from orograph.kernels.flow import accumulate as accumulate_on_cpu
from orograph.kernels.flow import cuda as flow_cuda
from orograph.kernels.flow import directions as directions_on_cpu
from orograph.kernels.flow.codes import SINK, STEPS, leave_at_border
from orograph.kernels.flow.directions import comparable

PATCH, TILE, THREADS, REPEATS = 2048, 2048, 8, 3
DTYPES = ("float32", "int16", "float64", "uint64")
ORDER = np.arange(len(STEPS))
Tile = tuple[np.ndarray, np.ndarray, np.ndarray]


def tile_of(heights: np.ndarray) -> Tile:
    """Heights with a ring beyond the grid, which cells there are, and reciprocal lengths."""
    heights = comparable(heights)
    top = np.inf if heights.dtype.kind == "f" else np.iinfo(heights.dtype).max
    valid = np.pad(np.ones(heights.shape, np.uint8), 1)
    return np.pad(heights, 1, constant_values=top), valid, np.array([[1, 2**-0.5] * 4])


def same(heights: np.ndarray, what: str) -> None:
    """Raise unless steps, sums and ends of paths are those of the Numba kernels."""
    tile = tile_of(heights)
    steps, found = np.empty((2, *heights.shape), np.uint8)
    directions_on_cpu.step_down(*tile, steps, ORDER)
    flow_cuda.step_down(*tile, found, ORDER)
    if not np.array_equal(steps, found):
        raise AssertionError(f"{what} {heights.shape} {heights.dtype}: other steps")
    steps[steps > SINK] = SINK
    numbers, rng = leave_at_border(steps), np.random.default_rng(0)
    for fractions in (0, numbers.size):
        high = rng.integers(0, 2**30, numbers.size)
        low = rng.integers(0, 2**62, fractions)
        pairs = []
        for module in (accumulate_on_cpu, flow_cuda):
            own = high.copy(), low.copy()
            module.accumulate(numbers, *own)
            pairs.append(own)
        if any(a.tobytes() != b.tobytes() for a, b in zip(*pairs, strict=True)):
            raise AssertionError(f"{what} {heights.shape} {heights.dtype}: other sums")
    cells = np.arange(0, numbers.size, 7)
    ends = accumulate_on_cpu.exits_of(numbers, cells)
    if not np.array_equal(flow_cuda.exits_of(numbers, cells), ends):
        raise AssertionError(f"{what} {heights.shape} {heights.dtype}: other ends of paths")
    print(f"{what} {heights.shape} {heights.dtype}: as Numba", flush=True)


def bits(side: int) -> None:
    """Steps, sums and ends of paths against the Numba kernels, and whole runs."""
    for what, heights in surfaces(side):
        for dtype in DTYPES:
            same(typed(heights, dtype), what)
    for shape in ((side - 1, side // 2 + 1), (3, side * 8 + 5), (side * 8 + 5, 1)):
        same(np.resize(noise(side), shape), "noise")
    for what, heights in surfaces(side):
        weights = np.random.default_rng(1).random(heights.shape)
        for more in ({}, {"weights": weights}):
            run = partial(og.flow_accumulation, heights, method="d8", tile=side // 4, **more)
            one, other = run(backend="numba"), run(backend="cuda")
            if one["accumulation"].values.tobytes() != other["accumulation"].values.tobytes():
                raise AssertionError(f"{what}: a run has other sums")
    print("runs: as Numba", flush=True)


def seconds(call: Callable[[], Any]) -> float:
    """The median of a few calls after the first."""
    spent = []
    for turn in range(REPEATS + 1):
        begin = time.perf_counter()
        call()
        if turn:
            spent.append(time.perf_counter() - begin)
    return statistics.median(spent)


def run(side: int) -> None:
    """Tiles from and to the host, and whole runs from store to store, beside the CPU's."""
    for what, heights in (("terrain", fractal(PATCH)), ("noise", noise(PATCH))):
        tile, steps = tile_of(heights), np.empty(heights.shape, np.uint8)
        directions_on_cpu.step_down(*tile, steps, ORDER)
        numbers = leave_at_border(np.minimum(steps, SINK))
        nothing = np.empty(0, np.int64)
        for name, down, sums in (
            ("numba", directions_on_cpu.step_down, accumulate_on_cpu.accumulate),
            ("cuda", flow_cuda.step_down, flow_cuda.accumulate),
        ):
            first = seconds(partial(down, *tile, steps))
            second = seconds(partial(_sums, sums, numbers, nothing))
            print(
                f"{what} {PATCH}^2, {name}, from and to the host: steps {first * 1e3:.1f} ms, "
                f"sums {second * 1e3:.1f} ms",
                flush=True,
            )
        with tempfile.TemporaryDirectory() as folder, og.config.set(threads=THREADS):
            store = mirrored_store(Path(folder, "heights.zarr"), heights, side, TILE)
            out = Path(folder, "out.zarr")
            for backend in ("cuda", "numba"):
                options = {"out": out, "overwrite": True, "backend": backend}
                took = seconds(partial(og.flow_accumulation, store, method="d8", **options))
                print(
                    f"{what} {side}^2 from store to store, {THREADS} threads, {backend}: "
                    f"{took:.2f} s, {side**2 / took / 1e6:.0f} Mcell/s",
                    flush=True,
                )
    cupy.get_default_memory_pool().free_all_blocks()


def _sums(accumulate: Callable[..., int], numbers: np.ndarray, nothing: np.ndarray) -> None:
    accumulate(numbers, np.ones(numbers.size, np.int64), nothing)
