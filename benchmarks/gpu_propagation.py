"""propagate.cu on a GPU; run by gpu.py. Tables of an index over a raster of half the side."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from device_time import TimedDevice

import orograph as og
from orograph.index.device import BlocksOnDevice

POINTS = 256
REPEAT = 3


def same(what: str, one: np.ndarray, other: np.ndarray) -> None:
    """Raise unless two arrays have one type and the same bits."""
    if one.dtype != other.dtype or one.tobytes() != other.tobytes():
        raise AssertionError(f"{what}: {(one != other).sum()} entries differ")


def some_points(side: int, count: int) -> np.ndarray:
    """Points anywhere."""
    return np.random.default_rng(1).integers(0, side, (count, 2)).astype("float64")


def bits(side: int) -> None:
    """Tables of small indices, with gaps, by every dtype and both kinds of costs."""
    side = min(side // 8, 512)
    rng = np.random.default_rng(0)
    friction = rng.integers(1, 11, (side, side)).astype("float64")
    friction[rng.random(friction.shape) < 0.1] = np.nan
    points = some_points(side, 80)
    with tempfile.TemporaryDirectory() as folder:
        for number, options in enumerate(
            (
                {"dtype": "float64"},
                {"dtype": "float32"},
                {"dtype": "int64", "connectivity": 4},
                {"cost": "tobler"},
            )
        ):
            raster = 2 * friction if options.get("dtype") == "int64" else friction
            store = Path(folder, str(number))
            index = og.DistanceIndex.build(raster, store, block=32, levels=1, **options)
            on_gpu = og.DistanceIndex.open(store, backend="cuda")
            for ends in ((points,), (points[:3], points), (points[:2],)):
                given = *ends, *([None] if len(ends) == 1 else [])
                tables = [some.distance_matrix(*given, snap=True) for some in (index, on_gpu)]
                same(f"{options}", tables[1].values, tables[0].values)
            print(f"{options}: tables over {side}² cells, the bits of Numba's", flush=True)


def seconds(call: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def run(side: int) -> None:
    """A table of many points over independent friction, on the CPU and on the GPU."""
    side //= 2
    friction = np.random.default_rng(0).integers(1, 11, (side, side)).astype("float64")
    points = some_points(side, POINTS)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "index")
        spent = seconds(lambda: og.DistanceIndex.build(friction, store, backend="numba"))
        print(f"an index over {side}² cells: {spent:.1f} s, {os.cpu_count()} cores", flush=True)
        found = {}
        for backend in ("numba", "cuda"):
            index = og.DistanceIndex.open(store, backend=backend)
            index.distance_matrix(points[:2])
            first = seconds(lambda index=index: index.distance_matrix(points))
            again = [
                seconds(lambda index=index: index.distance_matrix(points)) for _ in range(REPEAT)
            ]
            found[backend] = index.distance_matrix(points).values, statistics.median(again)
            print(
                f"table of {POINTS} points, {backend}: first {first:.3f} s, again "
                f"{found[backend][1]:.3f} s ({min(again):.3f} to {max(again):.3f}), "
                f"{index.touched.visits} visits",
                flush=True,
            )
        same("tables", found["cuda"][0], found["numba"][0])
        ratio = found["numba"][1] / found["cuda"][1]
        print(f"the GPU is {ratio:.1f} times as fast, with the same bits", flush=True)
        device = TimedDevice()
        index._on_device = BlocksOnDevice(index._blocks, device)
        index.distance_matrix(points)  # uploads
        with device.by_kernel(f"table of {POINTS} points"):
            index.distance_matrix(points)
        far = [(0.0, 0.0), (side - 1.0, side - 1.0)]
        for backend in ("numba", "cuda"):
            index = og.DistanceIndex.open(store, backend=backend)
            index.distance_matrix(far)
            spent = statistics.median(
                seconds(lambda index=index: index.distance_matrix(far)) for _ in range(REPEAT)
            )
            print(f"a far pair, {backend}: {spent * 1e3:.0f} ms", flush=True)
