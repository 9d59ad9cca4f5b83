"""Sample patches of a raster, by which plans estimate counts without compiling kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import Raster

Array = npt.NDArray[Any]


def patches(raster: Raster, side: int, count: int) -> list[Window]:
    """Return windows of at most ``side`` cells a side, ``count`` across and down a raster."""
    height, width = (min(side, n) for n in raster.shape)
    rows, columns = (
        np.unique(np.linspace(0, n - part, count).astype(int)).tolist()
        for n, part in zip(raster.shape, (height, width), strict=True)
    )
    return [Window(y, x, height, width) for y in rows for x in columns]


def neighbour_pairs(cells: Array, connectivity: int) -> Iterator[tuple[Array, Array]]:
    """Yield for each direction two aligned views: cells, and their neighbours there."""
    yield cells[:, :-1], cells[:, 1:]
    yield cells[:-1], cells[1:]
    if connectivity == 8:
        yield cells[:-1, :-1], cells[1:, 1:]
        yield cells[:-1, 1:], cells[1:, :-1]
