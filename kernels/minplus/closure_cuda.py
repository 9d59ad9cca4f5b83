"""Closures of matrices on GPUs, by minplus.cu, in the steps of closure.py.

The rows of a matrix lie on one device or on several. Of each step of vertices one device holds the
rows: it closes their square, lowers the rest of these rows and sends them to the others. Then each
device lowers its own columns of the step, and last all else that it holds. Results have the bits of
one device, and of closure.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from orograph.kernels.device import Buffer, Device, blocks_for, current_device
from orograph.kernels.minplus.closure import LARGE_STEP, STEP
from orograph.kernels.minplus.cuda import THREADS, Part, launch, product_on_device
from orograph.kernels.minplus.product import NO_VERTEX, check_element, check_matrix, has_signs
from orograph.tiles.arrays import Array


class HeldRows(NamedTuple):
    """Rows of a matrix on a device."""

    device: Device
    first: int
    last: int
    a: Buffer
    """((last - first) * n,)"""
    before: Buffer | None
    """The predecessors, int32, if they are asked for."""


class _Lowering:
    """Lowers the rows that one device holds."""

    def __init__(self, held: HeldRows, n: int, widest: int, tolerance: float, signed: bool) -> None:
        device, empty = held.device, held.device.array_module.empty
        self.device, self.n = device, n
        self.first, self.last = held.first, held.last
        # so that parts are found by their rows in the whole matrix
        self.a = Part(held.a, -held.first * n, n)
        self.before = None if held.before is None else Part(held.before, -held.first * n, n)
        self.tolerance = held.a.dtype.type(tolerance)
        self.stop = device.upload(np.full(1, -1, np.int32))
        # a copy of the rows or the columns of a step
        self.panel = empty(widest * max(n, held.last - held.first), held.a.dtype)
        self.traces = empty(1 if held.before is None else widest * n, np.int32)
        self._product_on_device = partial(product_on_device, device, signed=signed)
        self._launch = partial(launch, device, held.a.dtype, signed=signed)

    def close_square(self, first: int, size: int) -> None:
        """Launch the steps of `orograph.kernels.minplus.closure.close` on a square."""
        large = LARGE_STEP if size > 2 * LARGE_STEP else size
        last = first + size
        for begin in range(first, last, large):
            end = min(begin + large, last)
            for k in range(begin, end, STEP):
                m = min(STEP, end - k)
                self._close_diagonal(k, m)
                self._pass_through(begin, end, k, m)
            if size > large:
                self._pass_through(first, last, begin, end - begin)

    def clear_diagonal(self, k: int, m: int) -> None:
        """Set distances of vertices to themselves to 0 where rounding made them negative."""
        for part, value in ((self.a, 0), (self.before, NO_VERTEX)):
            if part is not None:
                begin = part.moved(k, k).at
                part.buffer[begin : begin + m * (self.n + 1) : self.n + 1] = value

    def lower_rows(self, first: int, last: int, k: int, m: int) -> None:
        """Lower rows k to k + m, between columns ``first`` and ``last``, by their closed square."""
        traces = None
        if self.before is not None:
            traces = Part(self.traces, 0, last - first)
            self._copy("copy_predecessors", traces, self.before.moved(k, first), m, last - first)
        for x, w in _sides(first, last, k, m):
            panel = Part(self.panel, 0, max(w, 1))
            self._copy("copy_part", panel, self.a.moved(k, x), m, w)
            before_b = None if traces is None else traces.moved(0, x - first)
            self._product(k, x, (m, w, m), self.a.moved(k, k), panel, before_b)

    def lower_others(
        self, first: int, last: int, k: int, m: int, row: Part, row_before: Part | None
    ) -> None:
        """Lower all other rows, in the square from ``first`` to ``last``, by rows k to k + m.

        ``row``, ``row_before``: those rows from column 0 on, here or sent by another device.
        """
        here = max(first, self.first), min(last, self.last)
        # The device that holds these rows has lowered them already.
        own = k >= self.first and k < self.last
        rows = _sides(*here, k, m) if own else [(here[0], here[1] - here[0])]
        for y, h in rows:
            # First the columns of the step, from a copy of them, by the closed square; then all
            # else by these columns. So no product changes its own operands.
            panel = Part(self.panel, 0, m)
            self._copy("copy_part", panel, self.a.moved(y, k), h, m)
            before_b = None if row_before is None else row_before.moved(0, k)
            self._product(y, k, (h, m, m), panel, row.moved(0, k), before_b)
        for y, h in rows:
            for x, w in _sides(first, last, k, m):
                before_b = None if row_before is None else row_before.moved(0, x)
                self._product(y, x, (h, w, m), self.a.moved(y, k), row.moved(0, x), before_b)

    def row(self, k: int) -> tuple[Part, Part | None]:
        """Return row k, and its predecessors, from column 0 on."""
        return self.a.moved(k, 0), None if self.before is None else self.before.moved(k, 0)

    def _pass_through(self, first: int, last: int, k: int, m: int) -> None:
        self.lower_rows(first, last, k, m)
        self.lower_others(first, last, k, m, *self.row(k))

    def _close_diagonal(self, k: int, m: int) -> None:
        before = Part(self.traces, 0, 1) if self.before is None else self.before.moved(k, k)
        arguments = (np.int32(m), self.tolerance, np.int32(k), self.stop, before)
        traced = np.int32(self.before is not None)
        self._launch("close_diagonal", (1,), self.a.moved(k, k), *arguments, traced)

    def _product(
        self, y: int, x: int, shape: tuple[int, int, int], a: Part, b: Part, before_b: Part | None
    ) -> None:
        before = None if self.before is None else self.before.moved(y, x)
        self._product_on_device(self.a.moved(y, x), a, b, shape, self.stop, before, before_b)

    def _copy(self, kernel: str, target: Part, source: Part, rows: int, columns: int) -> None:
        if rows and columns:
            grid = (min(blocks_for(rows * columns, THREADS)[0], 4096),)
            self._launch(kernel, grid, target, source, np.int32(rows), np.int32(columns))


def _sides(first: int, last: int, k: int, m: int) -> list[tuple[int, int]]:
    """Return the begin and the length of what lies before and behind a step."""
    return [(first, k - first), (k + m, last - k - m)]


def close_on_device(
    device: Device,
    a: Buffer,
    n: int,
    before: Buffer | None = None,
    tolerance: float = 0.0,
    *,
    signed: bool = True,
) -> Buffer:
    """Replace a flat n x n matrix on the device by its closure; asynchronous.

    ``signed``: whether it may hold a float with its sign bit set.

    Returns
    -------
    (1,) int32 on the device
        A vertex on a negative cycle, or -1.
    """
    widest = min(n, LARGE_STEP if n > 2 * LARGE_STEP else STEP)
    lowering = _Lowering(HeldRows(device, 0, n, a, before), n, widest, tolerance, signed)
    lowering.close_square(0, n)
    return lowering.stop


def close_rows(
    held: Sequence[HeldRows],
    n: int,
    side: int,
    tolerance: float,
    signed: bool,
    next_step: Callable[[], None] = lambda: None,
) -> int | None:
    """Replace a matrix by its closure, in the steps of tiles of ``side`` rows; wait for the end.

    Parameters
    ----------
    held : sequence of HeldRows
        The rows of the matrix in order, each a multiple of ``side`` rows but the last.
    side : int
        The results have the bits of `floyd_warshall_block` on each tile of the diagonal and
        `minplus` on the others, phase by phase.
    next_step : callable
        Called before the launches of each step.

    Returns
    -------
    int or None
        A vertex on a negative cycle, or None.
    """
    work = []
    for part in held:
        with part.device.active():
            work.append(_Lowering(part, n, min(side, n), tolerance, signed))
    received = [_space_for_rows(part, side * n) if len(held) > 1 else () for part in held]
    for k in range(0, n, side):
        next_step()
        m = min(side, n - k)
        owner = next(lowering for lowering in work if lowering.first <= k < lowering.last)
        with owner.device.active():
            owner.close_square(k, m)
            owner.clear_diagonal(k, m)
            owner.lower_rows(0, n, k, m)
        # Launches do not wait: each device goes on as soon as the rows have arrived.
        for lowering, space in zip(work, received, strict=True):
            row, row_before = owner.row(k)
            if lowering is not owner:
                row, row_before = _send(owner, lowering, space, (row, row_before), m * n)
            with lowering.device.active():
                lowering.lower_others(0, n, k, m, row, row_before)
    found = []
    for lowering in work:
        with lowering.device.active():
            found.append(int(lowering.device.download(lowering.stop)[0]))
    return min((vertex for vertex in found if vertex >= 0), default=None)


def _space_for_rows(held: HeldRows, size: int) -> tuple[Buffer, ...]:
    """Return buffers for rows, and their predecessors, that come from other devices."""
    empty = held.device.array_module.empty
    with held.device.active():
        buffers = [empty(size, held.a.dtype)]
        return (*buffers, empty(size, np.int32)) if held.before is not None else tuple(buffers)


def _send(
    owner: _Lowering,
    other: _Lowering,
    space: tuple[Buffer, ...],
    rows: tuple[Part, Part | None],
    size: int,
) -> tuple[Part, Part | None]:
    """Send rows to another device; return them there."""
    sent = []
    for part, buffer in zip(rows, space):
        if part is not None:
            source = part.buffer[part.at : part.at + size]
            owner.device.send(source, other.device, buffer[:size])
            sent.append(Part(buffer, 0, other.n))
    return sent[0], sent[1] if len(sent) > 1 else None


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
    stop = close_on_device(device, matrix, n, p, tolerance, signed=has_signs(a))
    a[...] = device.download(matrix).reshape(n, n)
    if before is not None and p is not None:
        before[...] = device.download(p).reshape(n, n)
    bad = int(device.download(stop)[0])
    return None if bad < 0 else bad
