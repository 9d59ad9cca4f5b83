"""Padding a tile's costs before relaxation and reading out its result, in one pass each.

*Before*: cells of a raster are brought to the dtype of distances and given a halo; where there is
nothing (nodata, or beyond the grid) stands a barrier, NaN in floats and ``BARRIER`` in integers.
*After*: distances become what is written, in their own memory, and cells are counted.

The former is NumPy's work, in bands of rows that fit the cache, so that nothing is compiled for
each dtype of rasters; the latter compiled code's: half the time where distances are missing. Fresh
memory takes longer to get than to fill, so none is taken for what can lie where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.border import inner_of
from orograph.kernels.relax.models import BARRIER
from orograph.tiles.arrays import Array, empty

if TYPE_CHECKING:
    from orograph.kernels.relax.tile import TileState

CELLS_A_BAND = 2**17


class ReadOut(NamedTuple):
    """The result of a tile."""

    values: Array
    """(h, w): distances, divided, and a blank where there is none; maybe in the tile's memory."""
    reached: int
    """Cells that have one."""
    cut_off: int
    """Cells that have none, though one may pass."""
    barriers: int
    """Cells that nothing may pass."""


def barrier_of(dtype: np.dtype[Any]) -> Any:
    """Return the value that marks an impassable cell."""
    return dtype.type(BARRIER if dtype.kind == "i" else np.nan)


def pad_costs(
    cells: Array,
    nodata: float | None,
    shape: tuple[int, int],
    corner: tuple[int, int],
    dtype: np.dtype[Any],
    mask: bool = False,
    unit: int = 1,
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
    unit : int
        Integer costs, which are multiples of it, are divided by it; see `friction_unit`.

    Returns
    -------
    array of ``shape`` and ``dtype``
    """
    padded = np.empty(shape, dtype)
    barrier = barrier_of(dtype)
    (top, left), (height, width) = corner, cells.shape
    bottom, right = top + height, left + width
    for beyond in (padded[:top], padded[bottom:], padded[:, :left], padded[:, right:]):
        beyond[...] = barrier
    inside = padded[top:bottom, left:right]
    stated, nothing = _nodata(cells, nodata)
    # Numbers that are not finite have no value as integers, but a barrier replaces whatever they
    # become.
    with np.errstate(all="ignore"):
        for band in _bands(cells.shape):
            known = cells[band]
            there = np.isfinite(known)
            if stated:
                there &= known != nothing
            if mask:
                there &= known != 0
            costs: Array = there.astype(dtype) if mask else known.astype(dtype)
            if unit > 1:
                costs //= unit
            if not there.all():
                _blank_out(costs, there, barrier)
            inside[band] = costs
    return padded


def _within(cells: Array, most: float) -> bool:
    """Return whether all cells are from 0 to ``most``, or NaN but not all of them."""
    least, greatest = np.fmin.reduce(cells, None), np.fmax.reduce(cells, None)
    return bool(least >= 0 and float(greatest) <= most)


def first_outside(cells: Array, nodata: float | None, most: float) -> int:
    """Row-major index of the first cell below 0 or above ``most``, or -1.

    NaN, infinity and nodata are neither.
    """
    if _within(cells, most):  # at once: threads wait for one another between bands
        return -1
    stated, nothing = _nodata(cells, nodata)
    for band in _bands(cells.shape):
        known = cells[band]
        if _within(known, most):
            continue
        outside = known < 0
        if not float(np.fmax.reduce(known, None)) <= most:
            outside |= known.astype(np.float64) > most
        outside &= np.isfinite(known)
        if stated:
            outside &= known != nothing
        if outside.any():
            return int(band.start * cells.shape[1] + outside.argmax())
    return -1


def read_out(
    state: TileState, dtype: np.dtype[Any], blank: float, per: int = 1, complete: bool = False
) -> ReadOut:
    """Return the result of a converged tile and counts of its cells; end the tile.

    The result lies where the distances were, if it is of their dtype.

    Parameters
    ----------
    state : TileState
    dtype : dtype
        Of the result.
    blank : number
        Blank value of cells without a distance.
    per : int
        Integer distances are divided by it.
    complete : bool
        Whether it is known that all cells have a distance, and none is a barrier.
    """
    inner = inner_of(state.dist, state.rules.reach)
    counts = inner.size, 0, 0
    if not complete:
        rasters = [r for r in (state.friction, state.elevation) if r.size]
        # The division below turns blank * per into the blank. With one raster alone the kernel
        # reads it twice.
        counts = _blank_out_unreached(
            *(state.dist, rasters[0], rasters[-1], state.rules.reach, state.unreached),
            *(state.dist.dtype.type(blank * per), state.rules.integer),
        )
    if per == 1:
        return ReadOut(inner.astype(dtype, copy=False), *counts)
    values = empty(inner.shape, dtype)
    np.floor_divide(inner, per, out=values, casting="unsafe")
    return ReadOut(values, *counts)


@compiled
def _blank_out_unreached(
    dist: Any, one: Any, other: Any, reach: int, unreached: Any, blank: Any, integer: bool
) -> tuple[int, int, int]:
    """Write a blank to cells without a distance; count cells reached, cut off, and barriers."""
    reached = 0
    cut_off = 0
    barriers = 0
    for y in range(reach, dist.shape[0] - reach):
        row = dist[y]
        first = one[y]
        second = other[y]
        for x in range(reach, dist.shape[1] - reach):
            value = row[x]
            there = value < unreached
            row[x] = value if there else blank
            a = first[x]
            b = second[x]
            passable = a < BARRIER and b < BARRIER if integer else np.isfinite(a) and np.isfinite(b)
            reached += there
            barriers += not passable
            cut_off += passable and not there
    return reached, cut_off, barriers


def _bands(shape: tuple[int, ...]) -> Iterator[slice]:
    """Yield the rows of a raster, some at a time."""
    rows = max(CELLS_A_BAND // max(shape[1], 1), 1)
    for start in range(0, shape[0], rows):
        yield slice(start, start + rows)


def _blank_out(values: Array, there: npt.NDArray[np.bool_], blank: Any) -> None:
    """Set missing values to a blank through their bits, in half the time of a mask."""
    word = np.dtype(f"i{values.itemsize}")
    # All bits where there is a cell, none elsewhere: minus 1 and 0.
    keep = (-there.view(np.int8)).astype(word)
    bits = values.view(word)
    bits &= keep
    bits |= ~keep & blank.view(word)


def _nodata(cells: Array, nodata: float | None) -> tuple[bool, Any]:
    """Return whether there is a nodata value, and its value in the dtype of the cells."""
    # Cells that are NaN are barriers anyway, so a nodata value of NaN needs no comparison.
    stated = nodata is not None and not np.isnan(nodata)
    return stated, cells.dtype.type(nodata if stated else 0)
