"""Find shortest paths that go no higher than the pass between their ends.

Of all cells those up to the pass, by (height, index in the turned grid), join its two sides at the
pass and nowhere else. So a shortest path through them crosses it. It is found by the bidirectional
search of `orograph.reachability.search`, which reads only the tiles that it touches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.forest.order_keys import order_keys
from orograph.reachability.pairs import Query
from orograph.tiles.arrays import Integers
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.mask import MaskRaster


@dataclass(frozen=True, eq=False)
class BelowRaster(MaskRaster):
    """Mask of the cells that are not higher than a given cell."""

    key: int
    cell: int
    """Row-major index of the bounding cell in the turned grid."""

    def read(self, window: Window) -> npt.NDArray[Any]:
        """Return the mask of ``window`` as uint8."""
        cells = self.raster.read(window)
        keys = order_keys(cells)
        rows = (np.arange(window.height) + window.y)[:, None] * self.shape[1]
        indices = rows + np.arange(window.width) + window.x
        indices = self.georeference.orientation.turn_cells(indices, self.shape)
        # The order of cells in the merge tree: of equal heights the first from the north-west is
        # lower.
        below = (keys < self.key) | ((keys == self.key) & (indices <= self.cell))
        mask: npt.NDArray[np.bool_] = below & valid_cells(cells, self.raster.nodata)
        return mask.astype(np.uint8)


@dataclass(frozen=True)
class PassQuery(Query):
    """Search for paths between pairs of points, each limited to cells up to its pass."""

    key: npt.NDArray[np.uint64]
    cell: Integers
    """Row-major index of the cell of each pair's pass."""

    def mask_of(self, pair: int) -> MaskRaster:
        """Return the mask of the cells that are not higher than the pass of a pair."""
        return BelowRaster(self.mask.raster, int(self.key[pair]), int(self.cell[pair]))
