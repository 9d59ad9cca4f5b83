"""Order of cells by (key, row-major index), as a radix sort of digits of 11 bits.

Digits in which no two words differ are passed over: keys of one tile share most of their bits, and
cells that come in row-major order need no sort by index at all. Stable, serial, deterministic.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orograph.kernels.bits import trailing_zeros
from orograph.kernels.compiled import compiled

Indices = npt.NDArray[np.int64]

_BITS = 11


@compiled
def _sort_by(words, order):
    """Return an order sorted stably by its words, which are unsigned; overwrites both."""
    differ = np.uint64(0)
    for word in words:
        differ |= word ^ words[0]
    if differ == 0:
        return order
    bins, done = np.empty(1 << _BITS, np.int64), 0
    mask = np.uint64((1 << _BITS) - 1)
    spare_words, spare = np.empty_like(words), np.empty_like(order)
    while done < 64 and differ >> np.uint64(done):
        done += trailing_zeros(differ >> np.uint64(done))
        shift = np.uint64(done)
        bins[:] = 0
        for word in words:
            bins[(word >> shift) & mask] += 1
        start = 0
        for digit in range(bins.size):
            start, bins[digit] = start + bins[digit], start
        for i in range(order.size):
            digit = (words[i] >> shift) & mask
            to = bins[digit]
            bins[digit] = to + 1
            spare_words[to], spare[to] = words[i], order[i]
        words, spare_words, order, spare = spare_words, words, spare, order
        done += _BITS
    return order


def order_cells(key: npt.NDArray[np.uint64], cell: Indices) -> Indices:
    """Return the order of cells from the lowest up: by key, of equal keys by index.

    As ``np.lexsort((cell, key))``; cells of one key and index stay in their order.

    Examples
    --------
    >>> order_cells(np.array([7, 5, 7, 5], np.uint64), np.array([9, -1, 3, 4]))
    array([1, 3, 2, 0])
    """
    order = np.arange(key.size)
    if (cell[1:] < cell[:-1]).any():
        # so that negative numbers come first
        order = _sort_by(cell.view(np.uint64) ^ np.uint64(1 << 63), order)
        key = key[order]
    ordered: Indices = _sort_by(key.copy(), order)
    return ordered


def compile_kernels() -> None:
    """Compile, or load from the cache."""
    order_cells(np.arange(2, dtype=np.uint64), np.arange(2)[::-1].copy())
