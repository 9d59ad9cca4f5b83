"""Look whether all cells of a raster are marked, or none, and whether a least value is nodata."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from orograph.tiles.arguments import as_text
from orograph.tiles.arrays import Array
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.array import ArrayRaster, LazyRaster
from orograph.tiles.raster.file import FileRaster
from orograph.tiles.raster.interface import Raster
from orograph.tiles.warn import warn_user

SIDE = 1024
MOST = 2**24
"""Cells in memory that are looked at; of more, some rows."""
FEWEST, GREATEST = 16, 30_000
"""Other values that are needed, and the greatest height or depth on Earth, also in feet."""
_NINES = re.compile(r"-9{3,}(\.9+)?")
_LOWEST = {-32768.0, -32767.0, -2147483648.0, -2147483647.0, -1e30, -1e32, -1e35, -1e38}
_LOWEST |= {float(np.finfo(kind).min) for kind in (np.float32, np.float64)}


def _marked(cells: Array, nodata: float | int | None) -> npt.NDArray[np.bool_]:
    """Return the cells that are not 0 or nodata."""
    marked: npt.NDArray[np.bool_] = (cells != 0) & valid_cells(cells, nodata)
    return marked


def may_hold_mark(raster: Raster) -> bool:
    """Return False if a raster in memory has no cell that is not 0 or nodata."""
    if not isinstance(raster, ArrayRaster):
        return True
    return bool(_marked(raster.read(Window(0, 0, *raster.shape)), raster.nodata).any())


def marks_all(
    raster: Raster,
    ground: Raster,
    marked: Callable[[Array, float | int | None], npt.NDArray[np.bool_]] = _marked,
) -> bool:
    """Return whether all cells of ``ground`` that are valid, two or more, are marked in a raster.

    The rasters are read window by window up to the first cell that is not; those that Dask computes
    are not read.
    """
    if isinstance(raster, LazyRaster) or isinstance(ground, LazyRaster):
        return False
    count = 0
    for window in _windows(raster.shape, raster.tile or SIDE):
        found = marked(raster.read(window), raster.nodata)
        if found.all():
            count += found.size
            continue
        valid = valid_cells(ground.read(window), ground.nodata)
        if (valid & ~found).any():
            return False
        count += int(np.count_nonzero(valid))
    return count > 1


def _windows(shape: tuple[int, int], side: int) -> Iterator[Window]:
    for y in range(0, shape[0], side):
        for x in range(0, shape[1], side):
            yield Window(y, x, side, side).clip(shape)


def warn_of_nodata(raster: Raster, argument: str, offered: bool) -> None:
    """Warn if the least height is a number that stands for nodata, far below all others.

    It is one of those that programs use (-9999, -32768, the lowest float32), and lies farther below
    the next height than all others span: so no sea floor is taken for it. Of a raster in memory all
    cells or many rows are looked at, of a file its corners and its middle. ``offered`` tells
    whether the user could have given ``nodata=``.
    """
    if isinstance(raster, ArrayRaster):
        places = [Window(0, 0, *raster.shape)]
    elif isinstance(raster, FileRaster):
        shares = ((0, 0), (0, 2), (2, 0), (2, 2), (1, 1))
        starts = [
            [max(n - SIDE // 8, 0) * part // 2 for n, part in zip(raster.shape, share)]
            for share in shares
        ]
        places = [Window(y, x, SIDE // 8, SIDE // 8).clip(raster.shape) for y, x in starts]
    else:
        return
    parts = [raster.read(window) for window in dict.fromkeys(places)]
    parts = [part[:: 1 + part.size // MOST] for part in parts]
    least = min(float(np.fmin.reduce(part, axis=None)) for part in parts)
    if not (least in _LOWEST or _NINES.fullmatch(f"{least:.10g}")):
        return
    cells = np.concatenate([part[valid_cells(part, raster.nodata)] for part in parts])
    others = cells[cells > least].astype(np.float64)
    count = cells.size - others.size
    if not count or np.unique(others).size < FEWEST or np.abs(others).max() > GREATEST:
        return
    if others.min() - least <= np.ptp(others):
        return
    option = f"nodata={as_text(least)}, or " if offered else ""
    warn_user(
        f"{argument}: the least value is {as_text(least)}, in {count} of {cells.size} cells, and "
        f"the others are {as_text(others.min())} to {as_text(others.max())}; if it stands for "
        f"nodata, say so: {option}rio.write_nodata({as_text(least)})"
    )
