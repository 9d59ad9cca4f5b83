"""Min-plus products on a GPU: the host's side of minplus.cu."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from orograph.kernels.device import Buffer, Device, current_device
from orograph.kernels.minplus.lanes import BARRIER
from orograph.kernels.minplus.product import check_element, check_matrix, has_signs
from orograph.tiles.arrays import Array

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


def launch(
    device: Device, dtype: Any, kernel: str, grid: tuple[int, ...], *arguments: Any, signed: bool
) -> None:
    """Launch a kernel of minplus.cu; a `Part` stands for a buffer, an offset and a stride.

    ``signed``: whether a float may have its sign bit set.
    """
    defines = {"ELEMENT": ELEMENTS[np.dtype(dtype).name]}
    # Only single precision has a quicker comparison for floats without a sign.
    if defines["ELEMENT"] == 0 and not signed:
        defines["SIGNED"] = 0
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
    *,
    signed: bool = True,
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
    signed : bool
        Whether an element of A or B may be a float with its sign bit set.
    """
    rows, columns, depth = shape
    if rows == 0 or columns == 0 or depth == 0:
        return
    dtype = c.buffer.dtype
    tall = TILE_ROWS[dtype.itemsize] // (1 if before is None else 2)
    grid = (-(-columns // TILE_COLUMNS), -(-rows // tall))
    sizes = np.int32(rows), np.int32(columns), np.int32(depth)
    if before is None or before_b is None:
        launch(device, dtype, "lower_product", grid, c, a, b, *sizes, stop, signed=signed)
    else:
        arguments = c, a, b, *sizes, stop, before, before_b
        launch(device, dtype, "lower_product_traced", grid, *arguments, signed=signed)


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
    """Run `orograph.kernels.minplus.product.minplus` on a GPU."""
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
    signed = has_signs(a, b) if signed is None else signed
    product_on_device(device, *parts, (n, m, depth), stop, p, q, signed=signed)
    out[...] = device.download(c).reshape(n, m)
    if before is not None and p is not None:
        before[...] = device.download(p.buffer).reshape(n, m)
    return out
