"""Order of cells by (key, row-major index), as a radix sort of digits of 11 bits.

Digits in which no two words differ are passed over: keys of one tile share most of their bits, and
cells that come in row-major order need no sort by index at all. Where what differs leaves room in a
word for the place of its cell, as it does for heights of 32 bits, half as much is moved. Stable,
serial, deterministic.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orograph.kernels.bits import trailing_zeros
from orograph.kernels.compiled import compiled
from orograph.tiles.arrays import Indices

_BITS = 11


@compiled(inline=True)
def _start_bins(words, shift, mask, bins):
    """Write to ``bins`` where the words with each digit begin once they are sorted by it."""
    bins[:] = 0
    for word in words:
        bins[(word >> shift) & mask] += 1
    start = 0
    for digit in range(bins.size):
        # Counts become the places where digits begin: an exclusive prefix sum.
        start, bins[digit] = start + bins[digit], start


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
        # Bits in which no two words differ do not count, so a digit begins at the next one that
        # does.
        done += trailing_zeros(differ >> np.uint64(done))
        shift = np.uint64(done)
        _start_bins(words, shift, mask, bins)
        for i in range(order.size):
            digit = (words[i] >> shift) & mask
            to = bins[digit]
            bins[digit] = to + 1
            spare_words[to], spare[to] = words[i], order[i]
        words, spare_words, order, spare = spare_words, words, spare, order
        done += _BITS
    return order


@compiled
def _sort_packed(words, places):
    """Return words sorted by what they hold above ``places`` bits; overwrites them."""
    most = np.uint64(0)
    for word in words:
        most |= word
    bins, mask = np.empty(1 << _BITS, np.int64), np.uint64((1 << _BITS) - 1)
    spare, done = np.empty_like(words), places
    while done < 64 and most >> np.uint64(done):
        shift = np.uint64(done)
        _start_bins(words, shift, mask, bins)
        for word in words:
            digit = (word >> shift) & mask
            spare[bins[digit]] = word
            bins[digit] += 1
        words, spare = spare, words
        done += _BITS
    return words


@compiled
def _pack(words, places):
    """Write what differs of words above the place of each; return whether there was room."""
    low, high, differ = words[0], words[0], np.uint64(0)
    for word in words:
        low, high = min(low, word), max(high, word)
        differ |= word ^ words[0]
    # All words end in the same bits, so differences from the least one end in as many zeros.
    common = np.uint64(trailing_zeros(differ)) if differ else np.uint64(0)
    if ((high - low) >> common) >> np.uint64(64 - places):
        return False
    for i in range(words.size):
        words[i] = ((words[i] - low) >> common) << np.uint64(places) | np.uint64(i)
    return True


def order_cells(key: npt.NDArray[np.uint64], cell: Indices) -> Indices:
    """Return the order of cells from the lowest up: by key, of equal keys by index.

    As ``np.lexsort((cell, key))``; cells of one key and index stay in their order.

    Examples
    --------
    >>> order_cells(np.array([7, 5, 7, 5], np.uint64), np.array([9, -1, 3, 4]))
    array([1, 3, 2, 0])
    """
    if (cell[1:] >= cell[:-1]).all():
        return _order_of(key.copy())
    # Sorted by the lesser key first, then stably by the greater one.
    order = order_indices(cell)
    return order[_order_of(key[order])]


def order_indices(cell: Indices) -> Indices:
    """Return the order of row-major indices, negative numbers first; stable."""
    return _order_of(cell.view(np.uint64) ^ np.uint64(1 << 63))


def _order_of(words: npt.NDArray[np.uint64]) -> Indices:
    """Return the order of words, of equal ones in their order; overwrites them."""
    places = words.size.bit_length()
    if not words.size or not _pack(words, places):
        ordered: Indices = _sort_by(words, np.arange(words.size))
        return ordered
    packed: npt.NDArray[np.uint64] = _sort_packed(words, places)
    return (packed & np.uint64((1 << places) - 1)).view(np.int64)


def compile_kernels() -> None:
    """Compile, or load from the cache."""
    for key in (np.arange(2, dtype=np.uint64), np.array([0, 2**64 - 1], np.uint64)):
        order_cells(key, np.arange(2)[::-1].copy())
