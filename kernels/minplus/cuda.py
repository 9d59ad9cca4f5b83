"""Min-plus products and closures on a GPU: the host's side of minplus.cu."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.device import Buffer, Device, blocks_for, current_device
from orograph.kernels.minplus.closure import LARGE_STEP, STEP
from orograph.kernels.minplus.lanes import BARRIER
from orograph.kernels.minplus.product import check_element, check_matrix

Array = npt.NDArray[Any]

SOURCE = "minplus/minplus.cu"
ELEMENTS = {"float32": 0, "float64": 1, "int64": 2}
THREADS = 256
TILE_COLUMNS = 128
# Rows of a thread block's tile, by bytes per element; half as many with predecessors.
TILE_ROWS = {4: 128, 8: 64}


class Part(NamedTuple):
    """A part of a matrix on the device: its flat buffer, first element and row length."""

    buffer: Buffer
    at: int
    stride: int

    def moved(self, rows: int, columns: int) -> Part:
        """Return the part that starts this many rows and columns later."""
        return Part(self.buffer, self.at + rows * self.stride + columns, self.stride)


def _launch(
    device: Device, dtype: Any, kernel: str, grid: tuple[int, ...], *arguments: Any
) -> None:
    defines = {"ELEMENT": ELEMENTS[np.dtype(dtype).name]}
    flat: list[Any] = []
    for argument in arguments:
        if isinstance(argument, Part):
            flat += [argument.buffer, np.int64(argument.at), np.int64(argument.stride)]
        else:
            flat.append(argument)
    device.launch(SOURCE, kernel, grid, (THREADS,), flat, defines=defines)


def product_on_device(
    device: Device,
    c: Part,
    a: Part,
    b: Part,
    shape: tuple[int, int, int],
    stop: Buffer,
    before: Part | None = None,
    before_b: Part | None = None,
) -> None:
    """Lower a part of a matrix by a product; asynchronous.

    Parameters
    ----------
    c, a, b : Part
        C shares no memory with A or B.
    shape : (rows, columns, depth)
    stop : (1,) int32 on the device
        The kernel returns at once unless it holds -1.
    before, before_b : Part, optional
        Predecessors of C and of B, int32.
    """
    rows, columns, depth = shape
    if rows == 0 or columns == 0 or depth == 0:
        return
    dtype = c.buffer.dtype
    tall = TILE_ROWS[dtype.itemsize] // (1 if before is None else 2)
    grid = (-(-columns // TILE_COLUMNS), -(-rows // tall))
    sizes = np.int32(rows), np.int32(columns), np.int32(depth)
    if before is None or before_b is None:
        _launch(device, dtype, "lower_product", grid, c, a, b, *sizes, stop)
    else:
        kernel = "lower_product_traced"
        _launch(device, dtype, kernel, grid, c, a, b, *sizes, stop, before, before_b)


class _Closure:
    """The closure of a matrix on the device, in the steps of closure.py."""

    def __init__(
        self, device: Device, a: Buffer, n: int, before: Buffer | None, tolerance: float
    ) -> None:
        empty = device.array_module.empty
        self.device = device
        self.dtype = a.dtype
        self.n = n
        self.a = Part(a, 0, n)
        self.before = None if before is None else Part(before, 0, n)
        self.tolerance = self.dtype.type(tolerance)
        self.stop = device.upload(np.full(1, -1, np.int32))
        width = min(n, LARGE_STEP if n > 2 * LARGE_STEP else STEP)
        # a copy of the rows or the columns of a step
        self.panel = empty(width * n, self.dtype)
        self.traces = empty(1 if before is None else width * n, np.int32)

    def run(self) -> None:
        """Launch the steps of `orograph.kernels.minplus.closure.close`."""
        n = self.n
        large = LARGE_STEP if n > 2 * LARGE_STEP else n
        for first in range(0, n, large):
            size = min(large, n - first)
            for k in range(0, size, STEP):
                m = min(STEP, size - k)
                self._close_diagonal(first + k, m)
                self._pass_through(first, size, first + k, m)
            if size < n:
                self._pass_through(0, n, first, size)

    def _close_diagonal(self, k: int, m: int) -> None:
        before = self.before or Part(self.traces, 0, 1)
        traced = np.int32(self.before is not None)
        if self.before is not None:
            before = before.moved(k, k)
        number = np.int32(k)
        arguments = (np.int32(m), self.tolerance, number, self.stop, before, traced)
        _launch(self.device, self.dtype, "close_diagonal", (1,), self.a.moved(k, k), *arguments)

    def _pass_through(self, first: int, size: int, k: int, m: int) -> None:
        """Lower paths between ``size`` vertices by paths through m of them, which are closed."""
        last, end = first + size, k + m
        sides = [(first, k - first), (end, last - end)]
        diagonal = self.a.moved(k, k)
        before = self.before
        traces = None if before is None else Part(self.traces, 0, size)
        if before is not None and traces is not None:
            self._copy("copy_predecessors", traces, before.moved(k, first), m, size)
        for x, w in sides:
            panel = Part(self.panel, 0, max(w, 1))
            self._copy("copy_part", panel, self.a.moved(k, x), m, w)
            self._product(k, x, m, w, diagonal, panel, m, traces, x - first)
        if before is not None and traces is not None:
            self._copy("copy_predecessors", traces, before.moved(k, first), m, size)
        for y, h in sides:
            panel = Part(self.panel, 0, m)
            self._copy("copy_part", panel, self.a.moved(y, k), h, m)
            self._product(y, k, h, m, panel, diagonal, m, traces, k - first)
        for y, h in sides:
            for x, w in sides:
                column, row = self.a.moved(y, k), self.a.moved(k, x)
                self._product(y, x, h, w, column, row, m, traces, x - first)

    def _product(
        self, y: int, x: int, h: int, w: int, a: Part, b: Part, m: int, traces: Part | None, at: int
    ) -> None:
        before = None if self.before is None else self.before.moved(y, x)
        before_b = None if traces is None else traces.moved(0, at)
        c = self.a.moved(y, x)
        product_on_device(self.device, c, a, b, (h, w, m), self.stop, before, before_b)

    def _copy(self, kernel: str, target: Part, source: Part, rows: int, columns: int) -> None:
        if rows and columns:
            grid = (min(blocks_for(rows * columns, THREADS)[0], 4096),)
            sizes = np.int32(rows), np.int32(columns)
            _launch(self.device, self.dtype, kernel, grid, target, source, *sizes)


def close_on_device(
    device: Device, a: Buffer, n: int, before: Buffer | None = None, tolerance: float = 0.0
) -> Buffer:
    """Replace a flat n x n matrix on the device by its closure; asynchronous.

    Returns
    -------
    (1,) int32 on the device
        A vertex on a negative cycle, or -1.
    """
    closure = _Closure(device, a, n, before, tolerance)
    closure.run()
    return closure.stop


def minplus(
    a: Array,
    b: Array,
    out: Array | None = None,
    *,
    before_b: Array | None = None,
    before: Array | None = None,
    signed: bool | None = None,
    device: Device | None = None,
) -> Array:
    """Return what `orograph.kernels.minplus.product.minplus` does; ``signed`` has no effect."""
    device = device or current_device()
    check_element(a.dtype)
    n, m, depth = a.shape[0], b.shape[1], b.shape[0]
    if out is None:
        out = np.full((n, m), BARRIER if a.dtype.kind == "i" else np.inf, a.dtype)
    for name, array, shape in (("a", a, (n, depth)), ("b", b, (depth, m)), ("out", out, (n, m))):
        check_matrix(name, array, a.dtype, shape)
    first, second, c = (device.upload(array.reshape(-1)) for array in (a, b, out))
    p = q = None
    if before is not None and before_b is not None:
        check_matrix("before_b", before_b, np.int32, (depth, m))
        check_matrix("before", before, np.int32, (n, m))
        p = Part(device.upload(before.reshape(-1)), 0, m)
        q = Part(device.upload(before_b.reshape(-1)), 0, m)
    stop = device.upload(np.full(1, -1, np.int32))
    parts = Part(c, 0, m), Part(first, 0, depth), Part(second, 0, m)
    product_on_device(device, *parts, (n, m, depth), stop, p, q)
    out[...] = device.download(c).reshape(n, m)
    if before is not None and p is not None:
        before[...] = device.download(p.buffer).reshape(n, m)
    return out


def floyd_warshall_block(
    a: Array,
    *,
    before: Array | None = None,
    tolerance: float = 0.0,
    device: Device | None = None,
) -> int | None:
    """Do what `orograph.kernels.minplus.closure.floyd_warshall_block` does, on a GPU."""
    device = device or current_device()
    check_element(a.dtype)
    n = a.shape[0]
    check_matrix("a", a, a.dtype, (n, n))
    p = None
    if before is not None:
        check_matrix("before", before, np.int32, (n, n))
        p = device.upload(before.reshape(-1))
    matrix = device.upload(a.reshape(-1))
    stop = close_on_device(device, matrix, n, p, tolerance)
    a[...] = device.download(matrix).reshape(n, n)
    if before is not None and p is not None:
        before[...] = device.download(p).reshape(n, n)
    bad = int(device.download(stop)[0])
    return None if bad < 0 else bad
