"""Replacing a tile's labels by the final ones: one table look-up per cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled


def renumber(
    labels: npt.NDArray[np.integer[Any]], table: npt.NDArray[np.int64], out: npt.NDArray[np.int64]
) -> None:
    """Write ``table[labels]`` to ``out``, four times as fast as NumPy.

    Parameters
    ----------
    labels : (h, w) int32 or uint16, C order
        From 0 up to the length of the table, exclusive.
    table : (k,) int64
    out : (h, w) int64, C order
    """
    _look_up(labels.reshape(-1), table, out.reshape(-1))


@compiled
def _look_up(labels: Any, table: Any, out: Any) -> None:
    for i in range(labels.size):
        out[i] = table[labels[i]]


def compile_kernels() -> None:
    """Compile, or load from the cache, the functions for labels of either dtype."""
    for dtype in (np.int32, np.uint16):
        renumber(np.zeros(1, dtype), np.zeros(1, np.int64), np.zeros(1, np.int64))
