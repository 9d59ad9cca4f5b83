"""Border cells of quadtree nodes, and the edges between sibling nodes.

A cell is identified by its row-major index in the frame of its node, that is, in the node's window.
Ascending order is therefore row-major order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.tiles.arrays import Indices
from orograph.tiles.grid.quadtree import Place, Sides
from orograph.tiles.grid.window import Window

EAST, SOUTH_WEST, SOUTH, SOUTH_EAST, OVER_POLE = 0, 1, 2, 3, 4
DIRECTION_STEPS = ((0, 1), (1, -1), (1, 0), (1, 1))


def border_cells(height: int, width: int, sides: Sides) -> Indices:
    """Return the row-major indices of a window's cells along the given sides, ascending.

    ``sides`` are those on which the grid continues.

    Examples
    --------
    >>> border_cells(3, 3, Sides(north=False, south=True, west=False, east=True))
    array([2, 5, 6, 7, 8])
    """
    first = 1 if sides.north else 0
    last = height - 1 if sides.south else height
    # Rows that lie along the north or south side are left out here, and added whole below. Of the
    # other rows the ends are border cells; in a single column both ends are one cell.
    middle = np.arange(first, max(first, last), dtype=np.int64) * width
    columns = [c for c, there in ((0, sides.west), (width - 1, sides.east)) if there]
    parts = [(middle[:, None] + np.unique(np.array(columns, np.int64))).ravel()]
    row = np.arange(width, dtype=np.int64)
    if sides.north:
        parts.insert(0, row)
    # A single row along both sides has been added already.
    if sides.south and not (sides.north and height == 1):
        parts.append((height - 1) * width + row)
    return np.concatenate(parts)


def join_borders(window: Window, children: Sequence[Place]) -> tuple[Indices, list[Indices]]:
    """Concatenate the border cells of all children of a node, and locate each child's cells.

    Returns
    -------
    cells : int64 array
        In the frame of the node's ``window``, ascending.
    positions : list of int64 arrays
        For each child, the positions in ``cells`` of its own border cells, in their order.
    """
    # a row of the node holds cells of a western and an eastern child, in this order
    counts = [_cells_a_row(child.window.shape, child.sides) for child in children]
    row_counts, lefts, rows = np.zeros(window.height, np.int64), [], []
    for child, count in zip(children, counts, strict=True):
        top = child.window.y - window.y
        rows.append(slice(top, top + count.size))
        lefts.append(row_counts[rows[-1]].copy())
        row_counts[rows[-1]] += count
    starts = np.cumsum(row_counts) - row_counts
    cells, positions = np.empty(row_counts.sum(), np.int64), []
    for child, count, left, row in zip(children, counts, lefts, rows, strict=True):
        # Border cells of a child are numbered through all its rows. `ahead` moves those of each row
        # to where the row begins in `cells`, after the cells of the western child.
        ahead = starts[row] + left + count - np.cumsum(count)
        position = np.arange(count.sum()) + np.repeat(ahead, count)
        corner = row.start * window.width + child.window.x - window.x
        # From an index in the child's frame to one in the node's: the child's corner, and for each
        # row the columns that the node has more.
        longer = np.arange(count.size) * (window.width - child.window.width) + corner
        cells[position] = border_cells(*child.window.shape, child.sides) + np.repeat(longer, count)
        positions.append(position)
    return cells, positions


def _cells_a_row(shape: tuple[int, int], sides: Sides) -> Indices:
    """Return the number of border cells in each row of a window; as `border_cells`."""
    height, width = shape
    counts = np.full(height, min(sides.west + sides.east, width), np.int64)
    if sides.north:
        counts[0] = width
    if sides.south:
        counts[-1] = width
    return counts


def split_of(children: Sequence[Place]) -> tuple[int, int]:
    """Return the row and column of a node at which its lower and right children begin."""
    return children[0].window.shape


def seam_edges(
    height: int,
    width: int,
    split: tuple[int, int],
    connectivity: int,
    *,
    wraps: bool = False,
    closes: bool = False,
) -> tuple[Indices, Indices, npt.NDArray[np.uint8]]:
    """Return the edges of a node whose ends lie in two different children.

    Parameters
    ----------
    height, width
        Size of the node in cells.
    split
        Row and column where the lower and right children begin; ``height`` or ``width`` if there
        are none.
    connectivity
        4 or 8.
    wraps
        Whether the last column has the first as its eastern neighbour.
    closes
        Whether these edges are still to be added, or those in each of the children are known.

    Returns
    -------
    first, second : int64 arrays
        The two ends of each edge, in the node's frame, ``first < second`` but where the edge leads
        from the last column to the first.
    direction : uint8 array
        From ``first`` to ``second``: 0 east, 1 south-west, 2 south, 3 south-east.
    """
    parts: list[tuple[Indices, int]] = [(np.empty(0, np.int64), EAST)]
    row, column = split
    if column < width:
        y = np.arange(height, dtype=np.int64)
        left = y * width + column - 1
        parts.append((left, EAST))
        if connectivity == 8:
            # South-west edges begin in the column after the seam.
            parts += [(left[:-1], SOUTH_EAST), (left[:-1] + 1, SOUTH_WEST)]
    if row < height:
        x = np.arange(width, dtype=np.int64)
        above = (row - 1) * width + x
        parts.append((above, SOUTH))
        if connectivity == 8:
            # The two diagonals where seams cross are edges of the other seam already; at the ends
            # there are none, unless the children already go around.
            around = wraps and not closes
            parts.append((above[around | (x < width - 1) & (x != column - 1)], SOUTH_EAST))
            parts.append((above[around | (x > 0) & (x != column)], SOUTH_WEST))
    if closes:
        east = np.arange(1, height + 1, dtype=np.int64) * width - 1
        parts.append((east, EAST))
        if connectivity == 8:
            west = east[:-1] + 1 - width
            parts += [(east[:-1], SOUTH_EAST), (west, SOUTH_WEST)]
    steps = [dy * width + dx for dy, dx in DIRECTION_STEPS]
    first = np.concatenate([cells for cells, _ in parts])
    second = np.concatenate([cells + steps[d] for cells, d in parts])
    direction = np.concatenate([np.full(len(cells), d, np.uint8) for cells, d in parts])
    if wraps:
        dy, dx = np.array(DIRECTION_STEPS).T[:, direction]
        second = (first // width + dy) * width + (first + dx) % width
    return first, second, direction


class Joined(NamedTuple):
    """The border cells of a node's children, and the edges between different children."""

    cells: Indices
    """Border cells of all children, in the frame of the node, ascending."""
    positions: list[Indices]
    """Indices in ``cells`` of each child's border cells, in the child's order."""
    values: npt.NDArray[Any]
    """Value of each of ``cells`` in its child."""
    border: Indices
    """Indices in ``cells`` of the node's own border cells, in their order."""
    a: Indices
    """Index in ``cells`` of the first end of each edge between children."""
    b: Indices
    """Index in ``cells`` of the second end of each edge between children."""
    direction: npt.NDArray[np.uint8]
    """Direction of each edge, from its first end to its second; see `seam_edges`. 4: over a
    pole."""


def join(
    place: Place, children: Sequence[Place], values: Sequence[npt.NDArray[Any]], connectivity: int
) -> Joined:
    """Return the border cells and values of a node's children, and the edges between them.

    Parameters
    ----------
    place
        The node.
    children
        Its children, in the order of the quadtree.
    values
        For each child, the values of its border cells; one dtype.
    connectivity
        4 or 8.
    """
    window = place.window
    cells, positions = join_borders(window, children)
    joined = np.empty(cells.size, values[0].dtype)
    for position, own in zip(positions, values, strict=True):
        joined[position] = own
    closes = place.wraps and children[0].sides.west
    first, second, direction = seam_edges(
        *window.shape, split_of(children), connectivity, wraps=place.wraps, closes=closes
    )
    # Edges over a pole join the two halves of a row.
    half = np.arange(window.width // 2, dtype=np.int64)
    for row, joins in zip((0, window.height - 1), place.poles, strict=True):
        if joins:
            first = np.concatenate([first, row * window.width + half])
            second = np.concatenate([second, row * window.width + half + half.size])
            direction = np.concatenate([direction, np.full(half.size, OVER_POLE, np.uint8)])
    # Ends of edges between children, and border cells of the node, are border cells of a child, so
    # all are in `cells`, which is ascending.
    border, a, b = (
        np.searchsorted(cells, part)
        for part in (border_cells(*window.shape, place.sides), first, second)
    )
    return Joined(cells, positions, joined, border, a, b, direction)
