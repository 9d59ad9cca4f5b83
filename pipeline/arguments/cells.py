"""Name the cell whose value an operation cannot use."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError
from orograph.tiles.grid.window import Window


def refuse_cell(name: str, cells: Array, at: int, window: Window, why: str) -> NoReturn:
    """Raise InputError for one of the cells of a window, by its row-major index in it.

    ``why`` goes on after the value of the cell and its place in the grid.
    """
    y, x = np.unravel_index(at, cells.shape)
    raise InputError(f"{name}: {cells[y, x]} at row {window.y + y}, column {window.x + x}{why}")
