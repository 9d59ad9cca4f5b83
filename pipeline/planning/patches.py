"""Patches of a raster in which a plan counts, by NumPy: to compile a kernel would take longer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import Raster

Array = npt.NDArray[Any]


def patches(raster: Raster, side: int, count: int) -> list[Window]:
    """Return windows of at most ``side`` cells a side, ``count`` a side, spread over a raster."""
    height, width = (min(side, n) for n in raster.shape)
    rows, columns = (
        np.unique(np.linspace(0, n - part, count).astype(int)).tolist()
        for n, part in zip(raster.shape, (height, width), strict=True)
    )
    return [Window(y, x, height, width) for y in rows for x in columns]


def neighbour_pairs(cells: Array, connectivity: int) -> Iterator[tuple[Array, Array]]:
    """Yield for each direction all cells that have a neighbour there, and the neighbours, later."""
    yield cells[:, :-1], cells[:, 1:]
    yield cells[:-1], cells[1:]
    if connectivity == 8:
        yield cells[:-1, :-1], cells[1:, 1:]
        yield cells[:-1, 1:], cells[1:, :-1]
