"""Name the cell whose value an operation cannot use."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError
from orograph.tiles.grid.window import Window

EXACT = 2**53
"""Greatest integer up to which float64 represents every integer exactly."""


def refuse_cell(name: str, cells: Array, at: int, window: Window, why: str) -> NoReturn:
    """Raise InputError for one of the cells of a window, by its row-major index in it.

    ``why`` goes on after the value of the cell and its place in the grid.
    """
    y, x = np.unravel_index(at, cells.shape)
    raise InputError(f"{name}: {cells[y, x]} at row {window.y + y}, column {window.x + x}{why}")


def refuse_inexact(name: str, cells: Array, valid: Array, window: Window, why: str) -> None:
    """Raise InputError for the first whole number of a window that float64 does not hold.

    ``why`` says what float64 is needed for.
    """
    if cells.dtype.kind not in "iu" or cells.dtype.itemsize < 8:
        return
    beyond = valid & (cells > EXACT)
    if cells.dtype.kind == "i":
        beyond |= valid & (cells < -EXACT)
    if beyond.any():
        refuse_cell(
            *(name, cells, int(beyond.argmax()), window),
            f"; {why}, which holds whole numbers up to 2**53: subtract an offset, or declare it as "
            "nodata=",
        )
