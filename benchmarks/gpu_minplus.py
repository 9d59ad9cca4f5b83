"""minplus.cu on a GPU; run by gpu.py. The side is that of the square matrices."""

from __future__ import annotations

import statistics
import time
from functools import partial

import cupy
import numpy as np
from device_time import TimedDevice, milliseconds

import orograph as og
from orograph.kernels.device import CupyDevice
from orograph.kernels.minplus import closure as minplus_closure
from orograph.kernels.minplus import closure_cuda
from orograph.kernels.minplus import cuda as minplus_cuda
from orograph.kernels.minplus import product as minplus
from orograph.kernels.minplus.closure_cuda import HeldRows
from orograph.kernels.minplus.cuda import Part

DTYPES = ("float32", "float64", "int64")


def matrix(rows: int, columns: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Lengths, a fifth of them missing."""
    rng = np.random.default_rng(seed)
    cells = rng.integers(1, 1000, (rows, columns)).astype(dtype)
    if dtype != "int64":
        cells /= 7
    cells[rng.random((rows, columns)) < 0.2] = minplus.BARRIER if dtype == "int64" else np.inf
    return cells


def same(what: str, one: np.ndarray, other: np.ndarray) -> None:
    """Raise unless two arrays have one type and the same bits."""
    if one.dtype != other.dtype or one.tobytes() != other.tobytes():
        raise AssertionError(f"{what}: {(one != other).sum()} entries differ")


def bits(side: int) -> None:
    """Products and closures against the Numba kernel, with and without predecessors."""
    n = side // 4
    for dtype in DTYPES:
        for shape in ((n, n, n), (n - 1, n + 3, 65), (1, n, 300), (129, 1, n)):
            rows, columns, depth = shape
            a, b = matrix(rows, depth, dtype, 1), matrix(depth, columns, dtype, 2)
            c = matrix(rows, columns, dtype, 3)
            expected = minplus.minplus(a, b, c.copy())
            for signed in (False, True):
                found = minplus_cuda.minplus(a, b, c.copy(), signed=signed)
                same(f"{shape} {dtype}, signed {signed}", found, expected)
        closed = [matrix(n, n, dtype) for _ in range(2)]
        before = [np.tile(np.arange(n, dtype=np.int32)[:, None], n) for _ in range(2)]
        minplus_closure.floyd_warshall_block(closed[0], before=before[0])
        closure_cuda.floyd_warshall_block(closed[1], before=before[1])
        same(f"closure {n} {dtype}", closed[1], closed[0])
        same(f"predecessors {n} {dtype}", before[1], before[0])
        print(f"{dtype}: products and closure of {n}, the bits of the Numba kernel", flush=True)


def speed(side: int) -> None:
    """Products and closures on the device: additions a second."""
    device = TimedDevice()
    stop = device.upload(np.full(1, -1, np.int32))
    for dtype in DTYPES:
        a, b = (device.upload(matrix(side, side, dtype, seed).reshape(-1)) for seed in (1, 2))
        c = device.upload(matrix(side, side, dtype, 3).reshape(-1))
        parts = [Part(buffer, 0, side) for buffer in (c, a, b)]
        for signed in (False, True) if dtype == "float32" else (True,):
            call = partial(
                minplus_cuda.product_on_device, device, *parts, (side,) * 3, stop, signed=signed
            )
            spent = statistics.median(milliseconds(call, repeat=5))
            kind = ", some negative" if signed and dtype == "float32" else ""
            print(
                f"product {side} {dtype}{kind}: {spent:.1f} ms, {side**3 / spent / 1e9:.2f} Top/s",
                flush=True,
            )
        a = device.upload(matrix(side, side, dtype).reshape(-1))
        begin = time.perf_counter()
        stopped = closure_cuda.close_on_device(device, a, side, signed=False)
        device.download(stopped)
        spent = time.perf_counter() - begin
        print(f"closure {side} {dtype}: {spent * 1e3:.1f} ms, {side**3 / spent / 1e12:.2f} Top/s")
    rows_on_devices(2 * side, 1)
    count = cupy.cuda.runtime.getDeviceCount()
    if count > 1:
        spent = [rows_on_devices(4 * side, some) for some in (1, 2)]
        print(f"two GPUs: {spent[0] / spent[1]:.2f} times as fast as one", flush=True)


def rows_on_devices(n: int, count: int) -> float:
    """Return the seconds that the closure of random lengths takes, in tiles of 1024."""
    first = CupyDevice()
    devices = [first, *first.peers()][:count]
    held = []
    for i, device in enumerate(devices):
        begin, end = (n * part // count for part in (i, i + 1))
        with device.active():
            lengths = cupy.random.default_rng(i).random((end - begin) * n, np.float32)
            held.append(HeldRows(device, begin, end, lengths, None))
    begin = time.perf_counter()
    closure_cuda.close_rows(held, n, 1024, 0.0, signed=False)
    spent = time.perf_counter() - begin
    print(
        f"closure of {n}, tiles of 1024, float32, on {count} GPUs: {spent * 1e3:.0f} ms, "
        f"{n**3 / spent / 1e12:.2f} T sums/s",
        flush=True,
    )
    return spent


def run(side: int) -> None:
    """All pairs of a dense graph in memory, from call to result."""
    small = np.random.default_rng(0).random((3000, 3000))
    results = [
        og.all_pairs(small, predecessors=True, method="floyd-warshall", backend=backend)
        for backend in ("cuda", "numba")
    ]
    if not results[0].identical(results[1]):
        raise AssertionError("all pairs of 3000 vertices differ from those of the CPU")
    n = 2 * side
    lengths = np.random.default_rng(0).random((n, n), np.float32)
    for _ in range(2):
        begin = time.perf_counter()
        og.all_pairs(lengths, dtype="float32", method="floyd-warshall", backend="cuda")
        spent = time.perf_counter() - begin
        print(
            f"all pairs of {n}, float32, call to result: {spent:.2f} s, "
            f"{n**3 / spent / 1e12:.2f} T sums/s",
            flush=True,
        )
