"""Nibble packing: masks of four bits per cell, stored with two cells per byte.

A tile's edges are saved in this form for the downward pass. It takes half the memory of the mask,
and packing is faster than any compressor. NumPy does it, two cells as a number of 16 bits; on a GPU
a kernel of ``forest.cu`` packs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orograph.tiles.arrays import Array, Indices, empty

Mask = npt.NDArray[np.uint8]

# Pairs packed and unpacked at a time. What is packed fits into a cache. But each operation gives up
# Python's lock and waits for it, while other threads do the same: with 2**16 pairs that took most
# of the time to unpack, and packing was a quarter of the times that a tile of 1024 x 1024 cells
# gave up the lock.
STEP, LONG_STEP = 2**19, 2**21


def pack_nibbles(mask: Mask) -> Mask:
    """Return a mask packed with two cells per byte.

    Parameters
    ----------
    mask : array of uint8, C order
        Only the lower four bits of its cells are kept.

    Returns
    -------
    (ceil(cells / 2),) uint8
        The first cell of each pair is in the lower four bits.
    """
    cells = mask.reshape(-1)
    packed = np.empty(-(-cells.size // 2), np.uint8)
    pairs = cells[: cells.size // 2 * 2].view("<u2")
    for at in range(0, pairs.size, STEP):
        some = pairs[at : at + STEP]
        # The first cell is the low byte of a pair: its nibble stays, that of the second moves down
        # beside it.
        np.copyto(packed[at : at + some.size], some & 15 | some >> 4 & 240, casting="unsafe")
    packed[pairs.size :] = cells[2 * pairs.size :] & 15
    return packed


def unpack_nibbles(packed: Mask, mask: Mask) -> None:
    """Unpack into ``mask``, an array of the shape that was packed."""
    cells = mask.reshape(-1)
    pairs = cells[: cells.size // 2 * 2].view("<u2")
    for at in range(0, pairs.size, LONG_STEP):
        both = packed[at : min(at + LONG_STEP, pairs.size)].astype("<u2")
        # The upper nibble moves to the second byte; what else the shift leaves is masked out.
        shifted = both << 4
        both |= shifted
        np.bitwise_and(both, 0x0F0F, out=pairs[at : at + both.size])
    cells[2 * pairs.size :] = packed[pairs.size :] & 15


def draw_edges(
    packed: npt.NDArray[np.uint8],
    shape: tuple[int, int],
    first: Indices,
    bits: npt.NDArray[np.uint8],
) -> Array:
    """Return a mask unpacked from two cells a byte, with further bits set.

    Parameters
    ----------
    packed : (ceil(h * w / 2),) uint8
        As `pack_nibbles` returns it.
    shape : (int, int)
        Rows and columns of the mask, h and w.
    first : (k,) integers
        Cells, counted in C order, in which bits are set; one may be there several times.
    bits : (k,) uint8
        Those bits.

    Returns
    -------
    (h, w) uint8, in the memory of the backend
    """
    mask = empty(shape, np.uint8)
    unpack_nibbles(packed, mask)
    np.bitwise_or.at(mask.ravel(), first, bits)
    return mask


def count_bits(mask: Mask) -> int:
    """Return the number of bits set in a mask."""
    cells = mask.reshape(-1)
    words = cells[: cells.size // 8 * 8].view(np.uint64)
    rest = cells[8 * words.size :]
    return sum(int(np.bitwise_count(part).sum(dtype=np.int64)) for part in (words, rest))
