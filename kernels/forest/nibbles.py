"""Nibble packing: masks of four bits per cell, stored with two cells per byte.

A tile's edges are saved in this form for the downward pass. It takes half the memory of the mask,
and packing is faster than any compressor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled

Mask = npt.NDArray[np.uint8]


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
    packed = np.empty(-(-mask.size // 2), np.uint8)
    _pack(mask.reshape(-1), packed)
    return packed


def unpack_nibbles(packed: Mask, mask: Mask) -> None:
    """Unpack into ``mask``, an array of the shape that was packed."""
    _unpack(packed, mask.reshape(-1))


@compiled
def _pack(cells: Any, packed: Any) -> None:
    for i in range(cells.size // 2):
        packed[i] = cells[2 * i] & 15 | cells[2 * i + 1] << 4
    if cells.size % 2:
        packed[-1] = cells[-1] & 15


@compiled
def _unpack(packed: Any, cells: Any) -> None:
    for i in range(cells.size // 2):
        cells[2 * i] = packed[i] & 15
        cells[2 * i + 1] = packed[i] >> 4
    if cells.size % 2:
        cells[-1] = packed[-1] & 15


def compile_kernels() -> None:
    """Compile the functions, or load them from the cache."""
    unpack_nibbles(pack_nibbles(np.zeros(3, np.uint8)), np.zeros(3, np.uint8))
