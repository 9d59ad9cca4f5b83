"""Cost of a path: the costs of its steps, added from its first cell on."""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.edge_costs import edge
from orograph.kernels.relax.tile import TileState
from orograph.tiles.arrays import Integers


@compiled
def _add_steps(friction, elevation, cells, rules, total, step):
    """Add the costs of the steps between cells, indices of padded rasters, to total[0]."""
    for place in range(1, cells.shape[0]):
        y, x = cells[place - 1, 0], cells[place - 1, 1]
        dy, dx = cells[place, 0] - y, cells[place, 1] - x
        edge(friction, elevation, y, x, dy, dx, rules, step)
        total[0] += step[0]  # an array rounds each sum to its dtype


def add_steps(state: TileState, cells: Integers, total: Any) -> Any:
    """Return a cost plus those of the steps of a path, added one by one in the dtype of distances.

    Parameters
    ----------
    state : TileState
        A tile, of which only the costs are read.
    cells : (n, 2) int64
        Rows and columns of the path's cells in the padded tile.
    total
        The cost at its first cell.
    """
    sums = np.full(1, total, state.dist.dtype)
    arrays = state.friction, state.elevation, np.ascontiguousarray(cells)
    _add_steps(*arrays, state.rules, sums, np.zeros_like(sums))
    return sums[0]
