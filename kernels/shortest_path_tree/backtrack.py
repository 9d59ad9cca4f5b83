"""Backtrack from a cell to a source, or to the edge of the tile: along directions or down a field.

`follow` takes back directions that are written down. Serial; ends because the number of steps left
falls by one at each (`orograph.kernels.shortest_path_tree.tile`), and at the latest after as many
steps as there are cells.

`descend` takes a field of hop distances: of the neighbours that are one hop nearer the first, east
first, then clockwise on the compass; so the path depends on the distances alone. Serial; ends
because the distance falls at each step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.shortest_path_tree.tile import BY_LINK, CODES, NO_DIRECTION
from orograph.tiles.arrays import Integers
from orograph.tiles.grid.orientation import Orientation

SOURCE, LEFT, LOST, LINKED = 0, 1, 2, 3

_STEPS = np.zeros((256, 2), np.int64)
for (_dy, _dx), _code in CODES.items():
    _STEPS[_code] = _dy, _dx

# east first, then clockwise: the order of Esri's codes
_MOVES = {
    8: np.array([move for move, code in CODES.items() if code <= 8], np.int64),
    4: np.array([move for move, code in CODES.items() if code in (1, 3, 5, 7)], np.int64),
}


@compiled
def _follow(codes: Any, steps: Any, row: int, column: int, cells: Any, end: Any) -> int:
    """Write the cells passed; end: how it ended, and the cell outside the window."""
    height, width = codes.shape
    count = 0
    while 0 <= row < height and 0 <= column < width:
        # As many steps as cells, and no end: the directions form a cycle.
        if count == cells.shape[0]:
            end[0] = LOST
            return count
        cells[count, 0] = row
        cells[count, 1] = column
        count += 1
        code = codes[row, column]
        if code == 0 or code == NO_DIRECTION:
            end[0] = SOURCE if code == 0 else LOST
            return count
        if code == BY_LINK:
            end[0] = LINKED
            return count
        row += steps[code, 0]
        column += steps[code, 1]
    end[0], end[1], end[2] = LEFT, row, column
    return count


def follow(
    codes: npt.NDArray[np.uint8], row: int, column: int
) -> tuple[npt.NDArray[np.int64], int, tuple[int, int]]:
    """Return the cells passed along back directions through a window, and how that ended.

    Parameters
    ----------
    codes : (h, w) uint8
        Back directions, see `orograph.kernels.shortest_path_tree.tile.back_directions`.
    row, column : int
        Where to begin, inside the window.

    Returns
    -------
    cells : (n, 2) int64
        Rows and columns passed, the first included.
    how : int
        ``SOURCE``: the last cell is a source. ``LEFT``: the way goes on outside, at the third
        result. ``LOST``: a direction is missing, or the directions form a cycle.
        ``LINKED``: a link leads on from the last cell.
    outside : (int, int)
        The next cell, outside the window.
    """
    cells = np.empty((codes.size, 2), np.int64)
    end = np.zeros(3, np.int64)
    count = _follow(codes, _STEPS, row, column, cells, end)
    return cells[:count].copy(), int(end[0]), (int(end[1]), int(end[2]))


@compiled
def _count_all(codes, steps, ends, counts, how):
    """Follow several paths to where they end; set how many cells they pass, and how they ended."""
    height, width = codes.shape
    for path in range(counts.size):
        row, column = ends[path]
        count = 0
        how[path] = LEFT
        while 0 <= row < height and 0 <= column < width:
            code = codes[row, column]
            # As many steps as cells, and no end: the directions form a cycle.
            if count == codes.size or code == NO_DIRECTION:
                how[path] = LOST
                break
            count += 1
            if code == 0 or code == BY_LINK:
                how[path] = SOURCE if code == 0 else LINKED
                break
            row += steps[code, 0]
            column += steps[code, 1]
        counts[path] = count
        ends[path, 0] = row
        ends[path, 1] = column


@compiled
def _write_all(codes, steps, starts, counts, cells):
    """Write the cells of several paths, one after the other."""
    place = 0
    for path in range(counts.size):
        row, column = starts[path]
        for _ in range(counts[path]):
            cells[place, 0] = row
            cells[place, 1] = column
            place += 1
            code = codes[row, column]
            row += steps[code, 0]
            column += steps[code, 1]


def follow_all(
    codes: npt.NDArray[np.uint8], starts: Integers
) -> tuple[Integers, Integers, Integers, Integers]:
    """Return the cells passed by several paths through a window, one after the other.

    Parameters
    ----------
    codes : (h, w) uint8
        As for `follow`.
    starts : (n, 2) int64
        Where to begin, inside the window.

    Returns
    -------
    cells : (m, 2) int64
    counts : (n,) int64
        How many of the cells each path passes.
    how : (n,) int64
        How each has ended, as for `follow`; a path that is ``LOST`` may have no cells.
    ends : (n, 2) int64
        The last cell, or the next one outside the window.
    """
    ends = starts.copy()
    counts, how = np.empty((2, len(starts)), np.int64)
    _count_all(codes, _STEPS, ends, counts, how)
    cells = np.empty((counts.sum(), 2), np.int64)
    _write_all(codes, _STEPS, starts, counts, cells)
    return cells, counts, how, ends


@compiled
def _descend(dist, moves, per_hop, row, column, cells):
    """Write the cells of a descent; return their number, and the next cell outside the tile."""
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
    dist: npt.NDArray[Any],
    per_hop: int,
    connectivity: int,
    row: int,
    column: int,
    orientation: Orientation,
) -> tuple[npt.NDArray[np.int64], tuple[int, int]]:
    """Return the cells passed down a field of distances through a tile, and where that ended.

    Parameters
    ----------
    dist : (h + 2, w + 2) int64
        Distances with a halo of one cell that shows what the neighbouring tiles know.
    per_hop : int
        What a step adds to the distance.
    connectivity : {8, 4}
    row, column : int
        Where to begin, counted from the tile's first cell (the halo is not counted).
    orientation : Orientation
        That of the grid.

    Returns
    -------
    cells : (n, 2) int64
        Rows and columns passed inside the tile, the first included.
    last : (int, int)
        The cell at which the walk has ended, equal to the last of ``cells`` where its distance is
        0 or nothing around it is a hop nearer; else the next cell, in the halo.
    """
    # Each step takes off one hop.
    longest = int(dist[row + 1, column + 1]) // per_hop + 1
    cells = np.empty((min(longest, dist.size), 2), np.int64)
    # Signs by axis turn compass directions into steps by rows and columns.
    moves = _MOVES[connectivity] * np.array(orientation)
    count, y, x = _descend(dist, moves, per_hop, row, column, cells)
    return cells[:count].copy(), (int(y), int(x))
