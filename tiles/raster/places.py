"""Rasters that are computed: where cells are, by which a cost knows headings, and level ground."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.tiles.grid.window import Window
from orograph.tiles.raster.mask import MaskRaster


@dataclass(frozen=True, eq=False)
class PlaceRaster(MaskRaster):
    """The column of each cell of a raster, and 8 times its row, both modulo 8."""

    nodata = None  # type: ignore[assignment]
    endless = True
    """Whether it can be read beyond its grid, where places go on."""

    def read(self, window: Window) -> npt.NDArray[Any]:
        """Return the places of the cells of ``window``, uint8."""
        # A step crosses two rows or columns at most, so places modulo 8 tell which step leads from
        # one cell to another, in a byte for each cell.
        rows = np.arange(window.y, window.y + window.height) % 8 * 8
        columns = np.arange(window.x, window.x + window.width) % 8
        places: npt.NDArray[Any] = rows.astype(np.uint8)[:, None] + columns.astype(np.uint8)
        return places

    def fingerprint(self) -> str:
        """Return an identifier of the content."""
        return "places"


@dataclass(frozen=True, eq=False)
class LevelRaster(PlaceRaster):
    """A height of 0 in each cell of a raster."""

    def read(self, window: Window) -> npt.NDArray[Any]:
        """Return the heights of ``window``, uint8."""
        return np.zeros((window.height, window.width), np.uint8)

    def fingerprint(self) -> str:
        """Return an identifier of the content."""
        return "level"
