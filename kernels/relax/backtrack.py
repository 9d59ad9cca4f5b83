"""Follow back directions from a cell until a source or the edge of the window is met.

Serial; ends because along back directions the number of steps left falls by one at each
(`orograph.kernels.relax.shortest_path_tree`), and at the latest after as many steps as there are
cells.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.shortest_path_tree import CODES, NO_DIRECTION

SOURCE, LEFT, LOST = 0, 1, 2

_STEPS = np.zeros((256, 2), np.int64)
for (_dy, _dx), _code in CODES.items():
    _STEPS[_code] = _dy, _dx


@compiled
def _follow(codes: Any, steps: Any, row: int, column: int, cells: Any, end: Any) -> int:
    """Write the cells passed; end: how it ended, and the cell outside the window."""
    height, width = codes.shape
    count = 0
    while 0 <= row < height and 0 <= column < width:
        if count == cells.shape[0]:
            end[0] = LOST
            return count
        cells[count, 0] = row
        cells[count, 1] = column
        count += 1
        code = codes[row, column]
        if code == 0 or code == NO_DIRECTION:
            end[0] = SOURCE if code == 0 else LOST
            return count
        row += steps[code, 0]
        column += steps[code, 1]
    end[0], end[1], end[2] = LEFT, row, column
    return count


def follow(
    codes: npt.NDArray[np.uint8], row: int, column: int
) -> tuple[npt.NDArray[np.int64], int, tuple[int, int]]:
    """Follow back directions through a window.

    Parameters
    ----------
    codes : (h, w) uint8
        Back directions, see `orograph.kernels.relax.shortest_path_tree.back_directions`.
    row, column : int
        Where to begin, inside the window.

    Returns
    -------
    cells : (n, 2) int64
        Rows and columns passed, the first included.
    how : int
        ``SOURCE``: the last cell is a source. ``LEFT``: the way goes on outside, at the third
        result. ``LOST``: there is no direction, or the directions go round in circles.
    outside : (int, int)
        The next cell, outside the window.
    """
    cells = np.empty((codes.size, 2), np.int64)
    end = np.zeros(3, np.int64)
    count = _follow(codes, _STEPS, row, column, cells, end)
    return cells[:count].copy(), int(end[0]), (int(end[1]), int(end[2]))
