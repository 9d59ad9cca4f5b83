"""How many components a raster has, told from some patches of it."""

from __future__ import annotations

import math

import numpy as np

from orograph.kernels.backends import kernel
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import Raster

PATCHES = 4  # in each direction
SIDE = 256  # cells


def estimate_components(raster: Raster, connectivity: int) -> int:
    """About as many connected components as a raster has, if its patches are like all of it.

    A component that touches the border of its patch may go on beyond it, and counts half, unless
    it is a single cell.
    """
    height, width = (min(SIDE, n) for n in raster.shape)
    rows, columns = (
        np.unique(np.linspace(0, n - side, PATCHES).astype(int)).tolist()
        for n, side in zip(raster.shape, (height, width), strict=True)
    )
    count = 0.0
    for y in rows:
        for x in columns:
            cells = raster.read(Window(y, x, height, width))
            tile = kernel("label_tile", "numba")(cells, raster.nodata, connectivity)
            edges = (
                (tile.labels[0], y > 0),
                (tile.labels[-1], y + height < raster.shape[0]),
                (tile.labels[:, 0], x > 0),
                (tile.labels[:, -1], x + width < raster.shape[1]),
            )
            touching = np.zeros(tile.size.size + 1, bool)
            for labels, goes_on in edges:
                touching[labels] |= goes_on
            count += tile.size.size - (touching[1:] & (tile.size > 1)).sum() / 2
    patches = len(rows) * len(columns)
    return math.ceil(count / (patches * height * width) * raster.shape[0] * raster.shape[1])
