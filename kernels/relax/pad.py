"""A tile's costs before it is relaxed, and its result after: one pass over the cells each.

*Before*: cells of a raster are brought to the dtype of distances and given a halo; where there is
nothing (nodata, or beyond the grid) stands a barrier, NaN in floats and ``BARRIER`` in integers.
*After*: distances become what is written, and cells are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.models import BARRIER
from orograph.tiles.memory import empty

if TYPE_CHECKING:
    from orograph.kernels.relax.tile import TileState

Array = npt.NDArray[Any]


class ReadOut(NamedTuple):
    """The result of a tile."""

    values: Array
    """(h, w): distances, divided, and a blank where there is none."""
    reached: int
    """Cells that have one."""
    cut_off: int
    """Cells that have none, though one may pass."""
    barriers: int
    """Cells that nothing may pass."""


def barrier_of(dtype: np.dtype[Any]) -> Any:
    """What stands for a cell that nothing may pass."""
    return dtype.type(BARRIER if dtype.kind == "i" else np.nan)


def pad_costs(
    cells: Array,
    nodata: float | None,
    shape: tuple[int, int],
    corner: tuple[int, int],
    dtype: np.dtype[Any],
    mask: bool = False,
) -> Array:
    """Costs with their halo.

    Parameters
    ----------
    cells : (h, w), C order, any real dtype
        Known cells; not finite ones, and those equal to ``nodata``, are barriers.
    nodata : scalar, optional
    shape : (int, int)
        Of the result.
    corner : (int, int)
        Where the first of the cells lies in it.
    dtype : float64, float32 or int64
    mask : bool
        Cells only say whether one may pass: a barrier where they are 0, else a cost of one.

    Returns
    -------
    array of ``shape`` and ``dtype``
    """
    padded = np.empty(shape, dtype)
    _pad(cells, *_nodata(cells, nodata), barrier_of(dtype), *corner, mask, padded)
    return padded


@compiled
def _pad(
    cells: Any,
    stated: bool,
    nodata: Any,
    barrier: Any,
    top: int,
    left: int,
    mask: bool,
    padded: Any,
) -> None:
    height, width = cells.shape
    for y in range(padded.shape[0]):
        row = padded[y]
        if y < top or y >= top + height:
            row[:] = barrier
            continue
        row[:left] = barrier
        row[left + width :] = barrier
        inside = row[left : left + width]
        known = cells[y - top]
        for x in range(width):
            value = known[x]
            there = np.isfinite(value) and not (stated and value == nodata)
            if not there or (mask and value == 0):
                inside[x] = barrier
            elif mask:
                inside[x] = 1
            else:
                inside[x] = value


def first_outside(cells: Array, nodata: float | None, most: float) -> int:
    """Row-major index of the first cell below 0 or above ``most``, or -1.

    NaN and nodata are neither; infinities are nodata only where nodata is infinite.
    """
    return int(_first_outside(cells, *_nodata(cells, nodata), most))


@compiled
def _first_outside(cells: Any, stated: bool, nodata: Any, most: float) -> Any:
    for y in range(cells.shape[0]):
        row = cells[y]
        found = False
        for x in range(row.size):
            value = row[x]
            found |= (value < 0 or value > most) and not (stated and value == nodata)
        if found:
            for x in range(row.size):
                value = row[x]
                if (value < 0 or value > most) and not (stated and value == nodata):
                    return y * row.size + x
    return -1


def read_out(state: TileState, dtype: np.dtype[Any], blank: float, per: int = 1) -> ReadOut:
    """Return what is written of a converged tile, and how many cells are what.

    Parameters
    ----------
    state : TileState
    dtype : dtype
        Of the result.
    blank : number
        What stands where there is no distance.
    per : int
        Integer distances are divided by it.
    """
    reach = state.rules.reach
    shape = tuple(n - 2 * reach for n in state.dist.shape)
    values = empty(shape, dtype)
    rasters = [r for r in (state.friction, state.elevation) if r.size]
    counts = _read_out(
        *(state.dist, rasters[0], rasters[-1], reach, state.unreached, values),
        *(dtype.type(blank), per, state.rules.integer),
    )
    return ReadOut(values, *counts)


@compiled
def _read_out(
    dist: Any,
    one: Any,
    other: Any,
    reach: int,
    unreached: Any,
    values: Any,
    blank: Any,
    per: int,
    integer: bool,
) -> tuple[int, int, int]:
    reached = 0
    cut_off = 0
    barriers = 0
    for y in range(values.shape[0]):
        row = dist[y + reach]
        first = one[y + reach]
        second = other[y + reach]
        out = values[y]
        for x in range(values.shape[1]):
            value = row[x + reach]
            there = value < unreached
            if per > 1:
                out[x] = value // per if there else blank
            else:
                out[x] = value if there else blank
            a = first[x + reach]
            b = second[x + reach]
            passable = a < BARRIER and b < BARRIER if integer else np.isfinite(a) and np.isfinite(b)
            reached += there
            barriers += not passable
            cut_off += passable and not there
    return reached, cut_off, barriers


def _nodata(cells: Array, nodata: float | None) -> tuple[bool, Any]:
    """Whether a value stands for nodata, and which, in the dtype of the cells."""
    stated = nodata is not None and not np.isnan(nodata)
    return stated, cells.dtype.type(nodata if stated else 0)
