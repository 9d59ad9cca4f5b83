"""label.cu and papers/hook.cu on a GPU; run by gpu.py."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import cupy
import numpy as np
from device_time import TimedDevice, milliseconds, report
from papers import hook, hook_cuda
from scipy import ndimage

from orograph.kernels.label import cuda as label_cuda
from orograph.kernels.label import tile as label
from orograph.kernels.label.union_find import rem_components

BYTES = 5  # a cell: a class read, a label written


def spiral(side: int) -> np.ndarray:
    """One arm, one cell wide: nested squares, each opened and led to the next one."""
    y, x = np.indices((side, side), np.int32, sparse=True)
    ring = np.minimum(np.minimum(y, x), np.minimum(side - 1 - y, side - 1 - x))
    cells = (ring % 2 == 0).astype(np.uint8)
    k = np.arange(0, side // 2 - 3, 2)
    cells[k + 1, k] = 0
    cells[k + 2, k + 1] = 1
    return cells


def rasters(side: int) -> Iterator[tuple[str, np.ndarray]]:
    """Masks and classes, uint8, from easy to nasty."""
    rng = np.random.default_rng(0)
    field = rng.random((side, side), np.float32)
    for share in (60, 10, 30, 41, 90):
        yield f"noise {share} %", (field < share / 100).astype(np.uint8)
    yield "noise of 2 classes without background", rng.integers(1, 3, (side, side), np.uint8)
    yield "noise of 4 classes", rng.integers(0, 5, (side, side), np.uint8)
    waves = ndimage.gaussian_filter(field, 8)
    bounds = np.quantile(waves[:: max(1, side // 512)], [0.25, 0.5, 0.75])
    yield "blobs", (waves > bounds[1]).astype(np.uint8)
    yield "blobs of 4 classes", (np.digitize(waves, bounds) + 1).astype(np.uint8)
    yield "ones", np.ones((side, side), np.uint8)
    yield "spiral", spiral(side)
    snake = np.ones((side, side), np.uint8)
    snake[1::4, :-1] = 0
    snake[3::4, 1:] = 0
    yield "snake", snake
    comb = np.zeros((side, side), np.uint8)
    comb[:, ::2] = 1
    comb[-1] = 1
    yield "comb", comb
    yield "checkerboard", (np.add.outer(np.arange(side), np.arange(side)) % 2).astype(np.uint8)


def same(cells: np.ndarray, nodata: float | None, connectivity: int, what: str) -> None:
    """Raise unless the GPU's result is the Numba kernel's, twice."""
    expected = label.label_tile(cells, nodata, connectivity)
    for _ in range(2):
        found = label_cuda.label_tile(cells, nodata, connectivity)
        for name, one, other in zip(expected._fields, expected, found):
            if one.dtype != other.dtype or one.tobytes() != other.tobytes():
                wrong = int((one != other).sum()) if one.shape == other.shape else "other shape"
                raise AssertionError(f"{what}, {connectivity} neighbours, {name}: {wrong} differ")
    n = expected.first.size
    print(f"{what} {cells.shape} {cells.dtype}, {connectivity} neighbours: {n}, as Numba")


def bits(side: int) -> None:
    """Labels, firsts, sizes and boxes against the Numba kernel; components of graphs too."""
    for name, cells in rasters(side):
        for connectivity in (8, 4):
            same(cells, None, connectivity, name)
        if name == "noise of 4 classes":
            for dtype in ("int16", "float32", "float64"):
                same(cells.astype(dtype), 2, 8, name)
            for shape in ((side - 1, side // 2 + 1), (3, side * 8 + 5), (side * 8 + 5, 1)):
                same(np.resize(cells, shape), None, 8, name)
    rng = np.random.default_rng(1)
    n = side * side // 4
    for m in (n // 2, 3 * n):
        a, b = rng.integers(0, n, (2, m))
        expected = rem_components(n, a, b)
        for method in hook.METHODS:
            found = hook_cuda.components(n, a, b, method)
            if not np.array_equal(found, expected):
                raise AssertionError(f"graph of {n} vertices, {m} edges, {method}: another answer")
        print(f"graph of {n} vertices and {m} edges: the Numba kernel's result by every method")


def speed(side: int) -> None:
    """The device alone: labels, labels with sizes and boxes, and components of graphs."""
    device = TimedDevice()
    for name, cells in rasters(side):
        classes = device.upload(cells)
        limits = label.run_limits(cells.dtype, None)
        for connectivity in (8, 4):
            call = partial(label_cuda.label_buffers, device, classes, limits, connectivity)
            what = f"{name}, {connectivity} neighbours"
            found = call()
            count = int(found.counts[-1])
            report(f"{what}, {count} components", milliseconds(call), cells.size, BYTES)
            for part, function in (
                ("first cells", label_cuda.first_buffer),
                ("sizes and boxes", label_cuda.measure_buffers),
            ):
                spent = milliseconds(partial(function, device, found, count), repeat=5)
                report(f"  {part}", spent, cells.size, 2)
            with device.by_kernel("  kernels"):
                call()
            del found
    cells = next(rasters(side))[1]
    for dtype in ("uint16", "float32", "float64"):
        classes = device.upload(cells.astype(dtype).view(f"u{np.dtype(dtype).itemsize}"))
        call = partial(
            label_cuda.label_buffers, device, classes, label.run_limits(np.dtype(dtype), None), 8
        )
        report(f"noise 60 %, {dtype}", milliseconds(call), cells.size, classes.itemsize + 4)
    rng = np.random.default_rng(1)
    n = side * side // 4
    a, b = (cupy.asarray(rng.integers(0, n, n, np.uint32)) for _ in range(2))
    for method in hook.METHODS:
        call = partial(hook_cuda.join_components, device, n, a, b, method)
        spent = milliseconds(call, repeat=5)
        rate = n / spent[len(spent) // 2] / 1e6
        print(f"graph of {n} vertices and as many edges, {method}: {rate:.2f} Gedge/s")


def run(side: int) -> None:
    """A tile from and to the host, on both backends."""
    for name, cells in rasters(side):
        spent = {}
        for backend, function in (("numba", label.label_tile), ("cuda", label_cuda.label_tile)):
            function(cells, None)
            begin = time.perf_counter()
            function(cells, None)
            spent[backend] = time.perf_counter() - begin
        rates = (f"{backend} {cells.size / t / 1e6:.0f}" for backend, t in spent.items())
        print(f"{name}, from and to the host, Mcell/s: {', '.join(rates)}", flush=True)
