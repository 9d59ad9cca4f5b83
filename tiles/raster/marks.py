"""Look whether all cells of a raster are marked, or none, and whether a least value is nodata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import numpy.typing as npt

from orograph.tiles.arguments import as_text
from orograph.tiles.arrays import Array
from orograph.tiles.grid.window import Window, corners_and_middle
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.array import ArrayRaster, LazyRaster
from orograph.tiles.raster.file import FileRaster
from orograph.tiles.raster.interface import Raster
from orograph.tiles.raster.outline import RasterOutline
from orograph.tiles.warn import warn_user

SIDE = 1024
MOST = 2**24
"""Greatest number of cells in memory that are looked at; of more, some rows."""
SAMPLE = 2**16
"""Number of cells of a block in which different values are counted."""
FEWEST, GREATEST = 16, 30_000
"""Number of other values needed, and the greatest height or depth on Earth, also in feet."""
LAND = -500
"""Height below all land; a lower one may stand for nodata."""


def _marked(cells: Array, nodata: float | int | None) -> npt.NDArray[np.bool_]:
    """Return the cells that are not 0 or nodata."""
    marked: npt.NDArray[np.bool_] = (cells != 0) & valid_cells(cells, nodata)
    return marked


Check = Callable[[Mapping[Raster, Raster]], str | None]
"""Returns what to warn of in rasters; it is given what to read in place of some of them."""


def warn_once_read(check: Check, *rasters: Raster) -> None:
    """Warn of what a check finds in rasters: now, or of those that Dask computes with the result.

    Their blocks are computed once, by the run, which keeps a copy of them for the check.
    """
    for raster in rasters:
        if isinstance(raster, LazyRaster) and raster.is_computed:
            raster.checks.append(check)
            return
    text = check({})
    if text is not None:
        warn_user(text)


def holds_mark(raster: Raster) -> bool:
    """Return whether a raster has a cell that is not 0 or nodata; an outline may have one.

    It is read window by window up to the first one.
    """
    if isinstance(raster, RasterOutline):
        return True
    windows = _windows(raster.shape, raster.tile or SIDE)
    return any(_marked(raster.read(window), raster.nodata).any() for window in windows)


def marks_all(
    raster: Raster,
    ground: Raster,
    marked: Callable[[Array, float | int | None], npt.NDArray[np.bool_]] = _marked,
) -> bool:
    """Return whether all cells of ``ground`` that are valid, two or more, are marked in a raster.

    The rasters are read window by window up to the first cell that is not; outlines are not read.
    """
    if any(isinstance(one, RasterOutline) for one in (raster, ground)):
        return False
    count = 0
    for window in _windows(raster.shape, raster.tile or SIDE):
        found = marked(raster.read(window), raster.nodata)
        # Where all cells are marked, the ground need not be read.
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


class LeastValues:
    """The least value of cells that are added block by block, and the span of the others."""

    def __init__(self) -> None:
        self._size = 0
        self._counts: Counter[float] = Counter()
        self._others: set[float] = set()
        self._least, self._greatest = np.inf, -np.inf

    def add(self, cells: Array) -> None:
        """Add cells, of which those that are NaN do not count."""
        self._size += cells.size
        if not cells.size or np.isnan(least := float(np.fmin.reduce(cells, axis=None))):
            return
        # Each block may have another least value. Only those that may stand for nodata are set
        # apart.
        if least < LAND:
            others = cells[cells > least]
            self._counts[least] += int(np.count_nonzero(cells == least))
        else:
            others = cells
        if others.size:
            self._least = min(self._least, float(np.fmin.reduce(others, axis=None)))
            self._greatest = max(self._greatest, float(np.fmax.reduce(others, axis=None)))
            if len(self._others) < FEWEST:
                # A sample, as classes have fewer values however many cells are sorted.
                sample = others[:: 1 + others.size // SAMPLE]
                self._others |= set(np.unique(sample)[:FEWEST].tolist())

    def doubt(self, argument: str, offered: bool) -> str | None:
        """Return a warning if the least value stands for nodata, as `warn_of_nodata` describes."""
        if not self._counts or len(self._others) < FEWEST:
            return None
        # Of values that were set apart only the least of all may be nodata; others count as cells.
        least, *more = sorted(self._counts)
        low = min(self._least, *more, np.inf)
        high = max(self._greatest, *more, -np.inf)
        if max(abs(low), abs(high)) > GREATEST or low - least <= high - low:
            return None
        option = f"nodata={as_text(least)}, or " if offered else ""
        return (
            f"{argument}: the least value is {as_text(least)}, in {self._counts[least]} of "
            f"{self._size} cells, and the others are {as_text(low)} to {as_text(high)}; if it "
            f"stands for nodata, say so: {option}rio.write_nodata({as_text(least)})"
        )


def warn_of_nodata(raster: Raster, argument: str, offered: bool) -> None:
    """Warn if the least height is a number that stands for nodata, far below all others.

    It lies below all land, and farther below the next height than all others span: so no sea floor
    is taken for it. Of a raster in memory all cells or many rows are read, of a file, and of a copy
    of what Dask computes, the corners and the middle. A store is not read: ingesting it has told.
    ``offered`` tells whether the user could have given ``nodata=``.
    """
    if isinstance(raster, ArrayRaster | FileRaster | LazyRaster):
        warn_once_read(partial(_doubt_least, raster, argument, offered), raster)


def _doubt_least(
    raster: Raster, argument: str, offered: bool, copies: Mapping[Raster, Raster]
) -> str | None:
    places = corners_and_middle(raster.shape, SIDE // 8)
    if isinstance(raster, ArrayRaster):
        places = [Window(0, 0, *raster.shape)]
    values, source = LeastValues(), copies.get(raster, raster)
    for window in places:
        part = source.read(window)
        sample = part[:: 1 + part.size // MOST]
        values.add(sample[valid_cells(sample, raster.nodata)])
    return values.doubt(argument, offered)
