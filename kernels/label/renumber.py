"""Numbering a tile's components, and replacing its labels by the final ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled


@compiled
def number_rows(
    rows: Any, kept: Any, touching: Any, base: Any, labels: Any, owned: Any, table: Any
) -> None:
    """Number the components of a tile, which are in the order of their first cells.

    Parameters
    ----------
    rows : (h + 1,) int64
        Number of components that begin in a row above.
    kept : (n,) bool
        Those that are complete in the tile and have a number.
    touching : (k,) int64, ascending
        Those whose numbers are known from further up.
    base : (h,) int64
        Number of the first component that begins in each row.
    labels, owned : (k,) int64 and bool
        Numbers of those of ``touching``, or 0, and whether their first cell is in the tile.
    table : (n + 1,) int64, out
        The number of each label.
    """
    # ``touching`` ascends as the components do, so one pass meets each of them in turn.
    t = 0
    table[0] = 0
    for y in range(base.size):
        number = base[y]
        for c in range(rows[y], rows[y + 1]):
            if t < touching.size and touching[t] == c:
                table[c + 1] = labels[t]
                # A component that begins in the tile takes up a number of this row, although a node
                # further up has assigned it.
                number += owned[t] and labels[t] > 0
                t += 1
            elif kept[c]:
                table[c + 1] = number
                number += 1
            else:
                table[c + 1] = 0


@compiled
def renumber(labels: Any, table: Any, out: Any, pitch: Any) -> None:
    """Write ``table[labels]`` to ``out``, four times as fast as NumPy.

    Parameters
    ----------
    labels : (h, w) int32 or uint16, C order
        From 0 up to the length of the table, exclusive.
    table : (k,) int64
    out : int64 or int32, from the first cell of the first row on
        The next row begins ``pitch`` cells further.
    """
    h, w = labels.shape
    for y in range(h):
        for x in range(w):
            out[y * pitch + x] = table[labels[y, x]]


def compile_kernels(labels: npt.DTypeLike) -> None:
    """Compile, or load from the cache, the functions for final labels of this dtype."""
    one, none = np.zeros(1, np.int64), np.zeros(0, np.int64)
    flags = np.zeros(0, np.bool_)
    number_rows(np.zeros(2, np.int64), flags, none, one, none, flags, one)
    for dtype in (np.int32, np.uint16):
        renumber(np.zeros((1, 1), dtype), one, np.zeros(1, labels), 1)
