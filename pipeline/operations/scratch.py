"""Results in temporary stores, which are read in pieces and then removed."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.storage import Storage


class ScratchResult:
    """Rasters in a temporary store, which is removed with this object.

    Parameters
    ----------
    store : Storage
        The finished store.
    remove : callable
        Removes it.
    """

    def __init__(self, store: Storage, remove: Callable[[], None]) -> None:
        self.store = store
        weakref.finalize(self, remove)

    def read(self, variable: str, window: Window) -> npt.NDArray[Any]:
        """Return the cells of a raster in a window."""
        raster = open_raster(str(self.store), variable=variable)
        cells: npt.NDArray[Any] = raster.read(window)
        return cells
