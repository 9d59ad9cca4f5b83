"""forest.cu on a GPU; run by gpu.py."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import cupy
import numpy as np
from device_time import TimedDevice, milliseconds, report
from terrain import fractal, noise

from orograph.kernels.forest import cuda as forest_cuda
from orograph.kernels.forest import tile as forest

INSIDE = (False, False, False, False)
ALL_OPEN = (True, True, True, True)
# dtype, weight, neighbours, sides that touch another tile
CASES = (
    ("float32", "max", 8, INSIDE),
    ("float32", "max", 8, ALL_OPEN),
    ("float32", "max", 4, INSIDE),
    ("int16", "max", 8, INSIDE),
    ("float64", "max", 8, INSIDE),
    ("float32", "mean", 8, INSIDE),
    ("float32", "absolute_difference", 8, INSIDE),
)


def surfaces(side: int) -> Iterator[tuple[str, np.ndarray]]:
    """Heights from 0 to 1000, from easy to nasty."""
    terrain = fractal(side)
    yield "terrain", terrain
    yield "noise", noise(side)
    yield "steps of a tenth", np.floor(terrain / 100)
    yield "all equal", np.zeros((side, side), np.float32)
    holes = terrain.copy()
    holes[np.random.default_rng(0).random(holes.shape) < 0.3] = np.nan
    yield "terrain with holes", holes
    y, x = np.indices((side, side), np.float32, sparse=True)
    yield "a slope", (y * 2 + x).astype(np.float32)


def typed(heights: np.ndarray, dtype: str) -> np.ndarray:
    """Heights in a dtype: integers count thirtieths, and the greatest is NaN's place."""
    if np.dtype(dtype).kind == "f":
        return heights.astype(dtype)
    return np.nan_to_num(heights * 30, nan=32_000).astype(dtype)


def same(values: np.ndarray, what: str, *options: Any) -> None:
    """Raise unless the GPU's result is the Numba kernel's."""
    expected = forest.tile_forest(values, None, *options)
    found = forest_cuda.tile_forest(values, None, *options)
    for name, one, other in zip(expected._fields, expected, found):
        if isinstance(one, np.ndarray):
            alike = one.dtype == other.dtype and np.array_equal(one, other)
        else:
            alike = one == other
        if not alike:
            raise AssertionError(f"{what} {values.shape} {values.dtype}, {options}: other {name}")
    edges, left = int(np.bitwise_count(found.mask).sum()), found.first.size
    print(f"{what} {values.shape} {values.dtype}, {options}: {edges} and {left}, as Numba")


def bits(side: int) -> None:
    """Everything about a tile against the Numba kernel."""
    for what, heights in surfaces(side):
        for dtype, weight, connectivity, sides in CASES:
            same(typed(heights, dtype), what, sides, weight, connectivity)
    for shape in ((side - 1, side // 2 + 1), (3, side * 8 + 5), (side * 8 + 5, 1)):
        same(np.resize(noise(side), shape), "noise", ALL_OPEN)
    whole = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, (side, side), endpoint=True)
    same(whole, "all of int64", ALL_OPEN)
    whole[0, 0] = 2**63 - 1
    same(whole, "the greatest int64", INSIDE)


def speed(side: int) -> None:
    """The device alone: heights to mask, sum and tentative edges."""
    device = TimedDevice()
    for what, heights in surfaces(side):
        for case in CASES if what in ("terrain", "noise") else CASES[:1]:
            dtype, weight, connectivity, sides = case
            values = device.upload(typed(heights, dtype))
            call = partial(forest_cuda.forest_on_device, values, None, sides, weight, connectivity)
            place = "inside" if sides == ALL_OPEN else "alone"
            report(
                f"{what} {dtype} {weight}, {connectivity} neighbours, a tile {place}",
                milliseconds(partial(call, device=device)),
                values.size,
                values.itemsize + 0.5,
            )
            with device.by_kernel("  kernels"):
                call(device=device)
            del values, call


def run(side: int) -> None:
    """A tile from and to the host, on both backends."""
    for what, heights in surfaces(side):
        spent = {}
        for backend, function in (
            ("numba", forest.tile_forest),
            ("cuda", forest_cuda.tile_forest),
        ):
            function(heights, None, ALL_OPEN)
            begin = time.perf_counter()
            function(heights, None, ALL_OPEN)
            spent[backend] = time.perf_counter() - begin
        rates = (f"{backend} {heights.size / t / 1e6:.0f}" for backend, t in spent.items())
        print(f"{what}, from and to the host, Mcell/s: {', '.join(rates)}", flush=True)
    cupy.get_default_memory_pool().free_all_blocks()
