"""The interface of rasters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window


class Raster(Protocol):
    """Interface of a grid of cells that can be read window by window, in any process."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the cells, in native byte order."""

    @property
    def nodata(self) -> int | float | None:
        """Nodata value, or None; non-finite cells are nodata too."""

    @property
    def georeference(self) -> Georeference:
        """Coordinates and CRS."""

    @property
    def name(self) -> str | None:
        """Name of the variable, if it has one."""

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes that describe the values."""

    @property
    def tile(self) -> int | None:
        """Cells a side of a stored tile; None if not stored in tiles."""

    @property
    def shard(self) -> int | None:
        """Cells a side of a stored shard; None if not stored in shards."""

    @property
    def bytes_per_cell(self) -> int:
        """Bytes of a cell in memory."""

    def read(self, window: Window) -> NDArray[Any]:
        """Return the cells of ``window``, contiguous, of ``dtype``."""

    def fingerprint(self) -> str:
        """Return an identifier of the content, by which a resumed run checks its input."""


def is_inside(raster: Raster, frame: Window) -> bool:
    """Return whether a window, whose columns may go on beyond those of the raster, is read whole.

    Rasters that are ``endless`` can be read anywhere.
    """
    if getattr(raster, "endless", False):
        return True
    return frame.x >= 0 and frame.x + frame.width <= raster.shape[1]


def read_frame(raster: Raster, frame: Window) -> NDArray[Any]:
    """Return the cells of a window whose columns may go on beyond those of a grid that wraps."""
    if is_inside(raster, frame):
        return raster.read(frame)
    columns = (frame.x + np.arange(frame.width)) % raster.shape[1]
    # read in runs of columns that ascend
    ends = np.flatnonzero(np.diff(columns) < 0) + 1
    runs = [
        raster.read(Window(frame.y, int(run[0]), frame.height, run.size))
        for run in np.split(columns, ends)
    ]
    return np.concatenate(runs, axis=1)
