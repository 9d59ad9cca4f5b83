"""Rasters whose cells are multiplied by a factor, such as heights in another unit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.mask import MaskRaster
from orograph.tiles.raster.raster import ArrayRaster, Raster


@dataclass(frozen=True, eq=False)
class ScaledRaster(MaskRaster):
    """The cells of a raster times a factor, float64, NaN where they are nodata."""

    factor: float

    dtype = np.dtype(np.float64)  # type: ignore[assignment]
    nodata = math.nan  # type: ignore[assignment]
    bytes_per_cell = 8

    def read(self, window: Window) -> npt.NDArray[Any]:
        """Return the multiplied cells of ``window``."""
        return _times(self.raster.read(window), self.raster.nodata, self.factor)

    def fingerprint(self) -> str:
        """Return an identifier of the content."""
        return f"{self.factor.hex()}-times-{self.raster.fingerprint()}"


def scaled(raster: Raster, factor: float) -> Raster:
    """Return a raster with all cells times ``factor``; the raster itself if that is 1."""
    if factor == 1:
        return raster
    if isinstance(raster, ArrayRaster):
        cells = _times(raster.cells, raster.nodata, factor)
        return replace(raster, cells=cells, dtype=cells.dtype, nodata=math.nan)
    return ScaledRaster(raster, factor)


def _times(
    cells: npt.NDArray[Any], nodata: float | int | None, factor: float
) -> npt.NDArray[np.float64]:
    multiplied = cells.astype(np.float64)
    multiplied *= factor
    multiplied[~valid_cells(cells, nodata)] = math.nan
    return multiplied
