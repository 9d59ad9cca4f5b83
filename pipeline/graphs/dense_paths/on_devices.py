"""All-pairs shortest paths of a graph that fits into the memory of this process's GPUs.

The matrix is uploaded once, closed there in the steps of the tiles, and downloaded once, so its
bits are those of the tasks of `orograph.graphs.dense_paths.blocked`. Several GPUs hold equal
shares of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from orograph.graphs.dense_paths.blocked import Blocks
from orograph.kernels.backends import get_backend
from orograph.kernels.device import Device
from orograph.kernels.minplus.closure_cuda import HeldRows, close_rows
from orograph.kernels.minplus.product import NO_VERTEX
from orograph.tiles.arrays import Array

if TYPE_CHECKING:
    from orograph.graphs.dense_paths.edge_matrix import EdgeMatrix


TILES_A_DEVICE = 8
"""Least number of rows of tiles for each of several devices; for fewer, one device is as quick."""
SHARE = 0.9
"""Fraction of a device's free memory that is used."""
STRIP = 2**20
"""Number of lengths that a thread uploads at once."""
WRITERS = 4
"""Number of threads that download and write rows of tiles; each holds one in locked memory."""


def divide_rows(blocks: Blocks, dtype: np.dtype[Any]) -> list[tuple[Device, int, int]]:
    """Divide the matrix rows among GPUs: (device, first, end) each; empty if they do not fit."""
    devices = get_backend(blocks.backend).devices()
    # First as few devices as have enough to do, then all, if the few do not hold the matrix.
    for count in (max(1, blocks.count // TILES_A_DEVICE), blocks.count) if devices else ():
        used = devices[:count]
        tiles = [i * blocks.count // len(used) for i in range(len(used) + 1)]
        cuts = [min(i * blocks.side, blocks.n) for i in tiles]
        # rows that are sent, copies of a step's rows or columns, and strips on their way from here
        rows = max(last - first for first, last in pairwise(cuts)) + 4 * blocks.side
        needed = rows * blocks.n * (dtype.itemsize + 4 * blocks.traced)
        if all(needed <= SHARE * device.free_bytes() for device in used):
            return list(zip(used, cuts, cuts[1:], strict=False))
    return []


def solve_on_devices(
    blocks: Blocks,
    matrix: EdgeMatrix,
    shares: Sequence[tuple[Device, int, int]],
    step_done: Callable[[], None],
) -> int | None:
    """Solve on GPUs and write the result; return a vertex on a negative cycle, or None."""
    with ThreadPoolExecutor(max(blocks.context.threads, 1)) as threads:
        held = [_hold(blocks, matrix, share, threads) for share in shares]

    def next_step() -> None:
        blocks.context.stop_if_cancelled()
        step_done()

    # Nothing is written before the matrix is closed, so a run that ends here has no result to
    # remove.
    bad = close_rows(held, blocks.n, blocks.side, blocks.tolerance, blocks.signed, next_step)
    if bad is not None:
        return bad

    def write(rows: HeldRows, i: int) -> None:
        blocks.context.stop_if_cancelled()
        with get_backend(blocks.backend).array_memory():
            tiles = _download(blocks, rows, i)
        blocks.write_row(i, tiles, lambda k, j: matrix.block(blocks.span(k), blocks.span(j)))

    with ThreadPoolExecutor(WRITERS) as threads:
        for rows in held:
            list(threads.map(partial(write, rows), _tiles_of(blocks, rows[1:3])))
    return None


def _tiles_of(blocks: Blocks, rows: tuple[int, int]) -> range:
    """Return the range of tile rows that a range of matrix rows covers."""
    return range(rows[0] // blocks.side, -(-rows[1] // blocks.side))


def _hold(
    blocks: Blocks,
    matrix: EdgeMatrix,
    share: tuple[Device, int, int],
    threads: ThreadPoolExecutor,
) -> HeldRows:
    """Upload a range of matrix rows to a GPU."""
    device, first, last = share
    n, xp = blocks.n, device.array_module
    with device.active():
        lengths = xp.empty((last - first, n), matrix.dtype)
        before = xp.empty(lengths.shape if blocks.traced else (0, 0), np.int32)

    def upload(begin: int) -> None:
        blocks.context.stop_if_cancelled()
        span = slice(begin, min(begin + strip, last))
        here = slice(span.start - first, span.stop - first)
        block = np.ascontiguousarray(matrix.block(span, slice(0, n)))
        with device.active():
            lengths[here] = device.upload(block)
            if blocks.traced:
                vertex = xp.arange(n, dtype=np.int32)
                tail = vertex[span, None]
                edge = matrix.reach(lengths[here]) & (tail != vertex)
                before[here] = xp.where(edge, tail, np.int32(NO_VERTEX))

    # strips so small that the memory for one is used again for the next
    strip = max(1, STRIP // n)
    list(threads.map(upload, range(first, last, strip)))
    known = before.reshape(-1) if blocks.traced else None
    return HeldRows(device, first, last, lengths.reshape(-1), known)


def _download(blocks: Blocks, rows: HeldRows, i: int) -> list[tuple[Array, Array | None]]:
    """Download one row of tiles from a GPU."""
    span, n, device = blocks.span(i), blocks.n, rows.device
    part = slice((span.start - rows.first) * n, (span.stop - rows.first) * n)
    with device.active():
        lengths = device.download(rows.a[part]).reshape(-1, n)
        before = None if rows.before is None else device.download(rows.before[part]).reshape(-1, n)
    spans = [blocks.span(j) for j in range(blocks.count)]
    return [(lengths[:, s], None if before is None else before[:, s]) for s in spans]
