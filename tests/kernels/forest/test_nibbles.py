"""Masks of four bits, two cells a byte."""

from __future__ import annotations

import numpy as np
import pytest

from orograph.kernels.forest.nibbles import pack_nibbles, unpack_nibbles


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (5, 7), (16, 33), (64, 64)])
def test_what_is_packed_comes_back(shape: tuple[int, int]) -> None:
    mask = np.random.default_rng(1).integers(0, 16, shape).astype(np.uint8)
    packed = pack_nibbles(mask)
    cells = mask.ravel()
    assert packed.size == -(-mask.size // 2)
    np.testing.assert_array_equal(packed & 15, cells[::2])
    np.testing.assert_array_equal(packed[: mask.size // 2] >> 4, cells[1::2])
    found = np.full(shape, 255, np.uint8)
    unpack_nibbles(packed, found)
    np.testing.assert_array_equal(found, mask)
