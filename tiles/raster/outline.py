"""The outline of a raster: what a plan needs of it, without its cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.tiles.errors import RunError
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.interface import Raster


@dataclass(frozen=True, eq=False)
class RasterOutline:
    """Raster that is planned for: all of its cells are valid, and one where they are read."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    nodata: float | int | None = None
    georeference: Georeference = field(default_factory=Georeference)
    name: str | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    tile: int | None = None
    shard: int | None = None

    @classmethod
    def of(cls, raster: Raster) -> RasterOutline:
        """Return the outline of a raster."""
        return cls(
            raster.shape,
            np.dtype(raster.dtype),
            raster.nodata,
            raster.georeference,
            raster.name,
            raster.attrs,
            raster.tile,
            raster.shard,
        )

    @property
    def bytes_per_cell(self) -> int:
        """Bytes of a cell."""
        return int(self.dtype.itemsize)

    def read(self, window: Window) -> npt.NDArray[Any]:
        """Return valid cells for ``window``."""
        return np.full((window.height, window.width), 2 if self.nodata == 1 else 1, self.dtype)

    def fingerprint(self) -> str:
        """Raise RunError, because an outline does not have cells."""
        raise RunError("a raster to plan for has no cells; run the operation on the raster itself")
