"""Check that friction and heights are valid and fit the dtype of distances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.arguments.cells import refuse_cell
from orograph.kernels.relax.models import BARRIER
from orograph.kernels.relax.pad import first_outside
from orograph.tiles.arrays import Array
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells


def longest_step(lengths: npt.NDArray[np.float64], connectivity: int) -> float:
    """Return the greatest step length in a table of step lengths."""
    return float(lengths[: {4: 2, 8: 3, 16: 5}[connectivity]].max())


def most_friction(cells: np.dtype[Any], dtype: np.dtype[Any], count: int, longest: float) -> float:
    """Return the greatest friction of cells of a dtype for distances of another.

    ``count`` is the number of cells of the grid: no path has more; ``longest`` is the length of
    its longest step.
    """
    if dtype.kind == "i":
        # the friction of four cells times the length of a step stays below
        most: float = BARRIER // (8 * math.ceil(longest))
    else:
        # So a path through all cells stays finite.
        most = float(np.finfo(dtype).max) / (8.0 * max(count, 1) * max(longest, 1.0))
    if cells.kind == "f":
        most = min(most, float(np.finfo(cells).max))
    return most


def check_friction(
    cells: Array,
    nodata: float | int | None,
    frame: Window,
    dtype: np.dtype[Any],
    count: int,
    longest: float,
    unit: int,
) -> None:
    """Raise InputError at the first cell whose friction is negative or too large.

    Refuse too, where distances are integers, what is not a multiple of ``unit``. The other
    arguments are those of `most_friction`.
    """
    most = most_friction(cells.dtype, dtype, count, longest)
    bad = first_outside(cells, nodata, most)
    if bad >= 0:
        must = (
            f"; it must be 0 or more, at most {most:g} in {dtype} where steps are up to "
            f"{longest:g} long: mark barriers as nodata, NaN or infinity"
        )
        refuse_cell("friction", cells, bad, frame, must)
    if dtype.kind == "i":
        check_multiples(cells, nodata, frame, "friction", unit)


def most_height(dtype: np.dtype[Any]) -> float:
    """Return the greatest height, above or below 0, for distances of a dtype."""
    return BARRIER // 8 if dtype.kind == "i" else float(np.finfo(dtype).max) / 8


def check_heights(
    cells: Array,
    nodata: float | int | None,
    frame: Window,
    dtype: np.dtype[Any],
    name: str = "elevation",
) -> None:
    """Raise InputError at the first cell whose height is too large for the dtype of distances."""
    if dtype.kind == "i":
        check_multiples(cells, nodata, frame, name, 1)
    most = most_height(dtype)
    limits = np.iinfo(cells.dtype) if cells.dtype.kind in "iu" else np.finfo(cells.dtype)
    if max(-float(limits.min), float(limits.max)) <= most:
        return
    # fmin and fmax pass over NaN; if all cells are NaN the comparison fails and the mask decides.
    if -most <= np.fmin.reduce(cells, None) and np.fmax.reduce(cells, None) <= most:
        return  # no temporary array in the usual case
    bad = valid_cells(cells, nodata) & ((cells > most) | (cells < -most))
    if bad.any():
        must = f"; it must be {-most:g} to {most:g} in {dtype}: mark other cells as nodata"
        refuse_cell(name, cells, int(bad.argmax()), frame, must)


def check_multiples(
    cells: Array, nodata: float | int | None, frame: Window, name: str, unit: int
) -> None:
    """Raise InputError at the first cell that is not a multiple of ``unit``, a power of two."""
    if cells.dtype.kind != "f":
        # ``unit`` is a power of two: its multiples have zeros in the bits below it, in two's
        # complement also the negative ones.
        if not int(np.bitwise_or.reduce(cells, axis=None)) & (unit - 1):
            return  # no temporary array in the usual case
        bad = cells & cells.dtype.type(unit - 1) != 0
    else:
        with np.errstate(invalid="ignore"):
            # Cells that are not finite are barriers, which need not be multiples.
            units = cells / cells.dtype.type(unit)  # exact: a power of two
            bad = np.isfinite(cells) & (units != np.rint(units))
    if nodata is not None and not math.isnan(nodata):
        bad &= cells != cells.dtype.type(nodata)
    if bad.any():
        must = "whole: use a float dtype"
        if unit > 1:
            must = (
                f"a multiple of {unit}, so that the mean of {unit} cells is whole: multiply whole "
                f"frictions by {unit}, and with them all costs, or use a float dtype"
            )
        must = f"; with dtype='int64' it must be {must}"
        refuse_cell(name, cells, int(bad.argmax()), frame, must)
