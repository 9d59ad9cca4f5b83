"""Name the cell whose value an operation cannot use."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from orograph.tiles.arguments import as_text
from orograph.tiles.arrays import Array, Integers
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


def whole_labels(
    labels: Array, valid: Array, frame: Window, argument: str, otherwise: str = ""
) -> Integers:
    """Return labels that are floats or uint64 as int64; raise InputError unless they are whole.

    ``otherwise`` goes on with what else can be done.
    """
    labels = np.where(valid, labels, 0)
    wrong = (labels != np.rint(labels)) | (np.abs(labels) >= 2.0**62)
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        raise InputError(
            f"{argument}: {as_text(labels[row, column])} at row {frame.y + row}, column "
            f"{frame.x + column}; {argument} must be whole numbers below 2**62: round them first, "
            f"{argument}.round() in Python or gdal_calc --calc='rint(A)' in a shell{otherwise}"
        )
    return labels.astype(np.int64)
