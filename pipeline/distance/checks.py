"""Checks of what a distance is computed on: friction and heights that a dtype can hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.relax.models import BARRIER
from orograph.kernels.relax.pad import first_outside
from orograph.tiles.errors import InputError
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.nodata import valid_cells

Array = npt.NDArray[Any]


def longest_step(lengths: npt.NDArray[np.float64], connectivity: int) -> float:
    """Return the greatest length of a step, of a table of lengths."""
    return float(lengths[: {4: 2, 8: 3, 16: 5}[connectivity]].max())


def check_friction(
    cells: Array,
    nodata: float | int | None,
    frame: Window,
    dtype: np.dtype[Any],
    count: int,
    longest: float,
) -> None:
    """Refuse friction that is negative, infinite or too large to be summed, saying where.

    ``count`` is the number of cells of the grid: no path has more; ``longest`` is the length of
    its longest step.
    """
    if dtype.kind == "i":
        check_whole(cells, nodata, frame, "friction")
        # the friction of four cells times the length of a step stays below
        most: float = BARRIER // (8 * math.ceil(longest))
    else:
        most = float(np.finfo(dtype).max) / (8.0 * max(count, 1) * max(longest, 1.0))
    if cells.dtype.kind == "f":
        most = min(most, float(np.finfo(cells.dtype).max))
    bad = first_outside(cells, nodata, most)
    if bad >= 0:
        _refuse(
            bad,
            cells,
            frame,
            "friction",
            f"it must be 0 or more and finite, at most {most:g} in {dtype} where steps are up to "
            f"{longest:g} long: mark barriers as nodata (NaN)",
        )


def check_heights(
    cells: Array, nodata: float | int | None, frame: Window, dtype: np.dtype[Any]
) -> None:
    """Refuse heights whose differences the dtype of distances does not hold, saying where."""
    if dtype.kind == "i":
        check_whole(cells, nodata, frame, "elevation")
        most: float = BARRIER // 8
    else:
        most = float(np.finfo(dtype).max) / 8
    limits = np.iinfo(cells.dtype) if cells.dtype.kind in "iu" else np.finfo(cells.dtype)
    if max(-float(limits.min), float(limits.max)) <= most:
        return
    bad = valid_cells(cells, nodata) & ((cells > most) | (cells < -most))
    if bad.any():
        must = f"it must be {-most:g} to {most:g} in {dtype}: mark what is no height as nodata"
        _refuse(int(bad.argmax()), cells, frame, "elevation", must)


def check_whole(cells: Array, nodata: float | int | None, frame: Window, name: str) -> None:
    """Refuse fractions where distances are integers."""
    if cells.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            bad = np.isfinite(cells) & (cells != np.rint(cells))
        if nodata is not None and not math.isnan(nodata):
            bad &= cells != cells.dtype.type(nodata)
        if bad.any():
            _refuse(
                int(bad.argmax()),
                cells,
                frame,
                name,
                "with dtype='int64' it must be whole: use a float dtype",
            )


def _refuse(index: int, cells: Array, frame: Window, name: str, must: str) -> None:
    y, x = np.unravel_index(index, cells.shape)
    raise InputError(f"{name}: {cells[y, x]} at row {frame.y + y}, column {frame.x + x}; {must}")
