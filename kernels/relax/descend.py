"""Walk down a field of hop distances, a hop at a time, until its start or the tile's edge is met.

Of the neighbours that are one hop nearer the first is taken, east first, then clockwise; so the
way depends on the distances alone. Serial; ends because the distance falls at each step. Twin of
`orograph.kernels.relax.backtrack`, which follows directions that somebody has written down.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.shortest_path_tree import CODES

# east first, then clockwise: the order of Esri's codes
_MOVES = {
    8: np.array([move for move, code in CODES.items() if code <= 8], np.int64),
    4: np.array([move for move, code in CODES.items() if code in (1, 3, 5, 7)], np.int64),
}


@compiled
def _descend(dist, moves, per_hop, row, column, cells):
    """Write the cells passed; their number, and the cell where the way goes on outside."""
    height = dist.shape[0] - 2
    width = dist.shape[1] - 2
    count = 0
    while 0 <= row < height and 0 <= column < width and count < cells.shape[0]:
        cells[count, 0] = row
        cells[count, 1] = column
        count += 1
        wanted = dist[row + 1, column + 1] - per_hop
        if wanted < 0:
            return count, row, column
        found = False
        for m in range(moves.shape[0]):
            y = row + moves[m, 0]
            x = column + moves[m, 1]
            if dist[y + 1, x + 1] == wanted:
                row = y
                column = x
                found = True
                break
        if not found:
            return count, row, column
    return count, row, column


def descend(
    dist: npt.NDArray[Any], per_hop: int, connectivity: int, row: int, column: int
) -> tuple[npt.NDArray[np.int64], tuple[int, int]]:
    """Walk down a field of distances through a tile.

    Parameters
    ----------
    dist : (h + 2, w + 2) int64
        Distances with a halo of one cell that shows what the neighbouring tiles know.
    per_hop : int
        What a step adds to the distance.
    connectivity : {8, 4}
    row, column : int
        Where to begin, counted from the tile's first cell (the halo is not counted).

    Returns
    -------
    cells : (n, 2) int64
        Rows and columns passed inside the tile, the first included.
    last : (int, int)
        The cell at which the walk has ended, equal to the last of ``cells`` where its distance is
        0 or nothing around it is a hop nearer; else the next cell, in the halo.
    """
    longest = int(dist[row + 1, column + 1]) // per_hop + 1
    cells = np.empty((min(longest, dist.size), 2), np.int64)
    count, y, x = _descend(dist, _MOVES[connectivity], per_hop, row, column, cells)
    return cells[:count].copy(), (int(y), int(x))
