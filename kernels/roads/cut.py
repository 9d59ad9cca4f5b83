"""Cut lines at the borders of cells and at the points that they share.

Each segment is followed from border to border, as by Amanatides and Woo ("A Fast Voxel Traversal
Algorithm for Ray Tracing", Eurographics 1987, doi:10.2312/egtp.19871000). What lies between two
borders, or between a border and a node, is a piece; lines without access between their ends are
cut at their nodes alone, and their pieces are called stretches.

Points are numbered: nodes first, then ports, where a line crosses a border. A port belongs to one
crossing of one line; so lines that cross one another without a common node are not joined.

The cell of a piece is that of the middle between two crossings, which no rounding of a crossing
moves to another cell. Serial, no atomics.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.tiles.arrays import Array

MANY = -1
"""The cell of a stretch that passes several cells."""
OUTSIDE = -2
_NONE = -3
_TINY = 1e-12
"""The share of a segment below which what lies between two crossings is not a piece: a corner."""


class Pieces(NamedTuple):
    """Pieces of lines, and the ports at which they were cut."""

    start: Array
    end: Array
    """(n,) int64: nodes and ports at which pieces begin and end."""
    cell: Array
    """(n,) int64: numbers of cells, row by row, or `MANY`."""
    length: Array
    """(n,) float64."""
    line: Array
    """(n,) int64."""
    port: Array
    """(p, 2) float64: columns and rows of the ports, with whole numbers at borders."""

    def some(self, which: Array) -> Pieces:
        """Return some of the pieces, with all ports."""
        of_pieces = self.start, self.end, self.cell, self.length, self.line
        start, end, cell, length, line = (values[which] for values in of_pieces)
        return Pieces(start, end, cell, length, line, self.port)


@compiled(error_model="numpy")
def _first_crossing(begin, end, most):
    """Return the first border between two coordinates, the step to the next, and their number."""
    # Borders strictly between both ends, as far as they lie within the grid.
    low, high = min(begin, end), max(begin, end)
    first = max(np.floor(low) + 1, 0.0)
    last = min(np.ceil(high) - 1, float(most))
    count = np.int64(max(last - first + 1, 0.0))
    if end > begin:
        return first, 1.0, count
    return last, -1.0, count


@compiled(error_model="numpy")
def _cell(column, row, height, width):
    """Return the number of the cell of a point, or `OUTSIDE`."""
    if not (0 <= column < width and 0 <= row < height):
        return np.int64(OUTSIDE)
    return np.int64(row) * width + np.int64(column)


@compiled(error_model="numpy")
def _put(start, end, cell, length, line, at, begun, ended, where, total, number):
    """Write a piece unless it lies outside or the arrays are full; return the number of pieces."""
    if where == OUTSIDE:
        return at
    if at < start.size:
        start[at], end[at], cell[at] = begun, ended, where
        length[at], line[at] = total, number
    return at + 1


@compiled(error_model="numpy")
def walk_lines(
    column, row, size, first, node, nodes, whole, height, width,
    start, end, cell, length, line, port,
):  # fmt: skip
    """Cut lines into pieces; return how many pieces and ports there are.

    Parameters
    ----------
    column, row : (n,) float64
        Points of the lines, one line after the other; cell (i, j) is [i, i + 1) x [j, j + 1).
    size : (n,) float64
        Length from each point to the next.
    first : (m + 1,) int64
        The first point of each line.
    node : (n,) int64
        Node at each point, -1 where there is none; ends of lines are nodes.
    nodes : int
        How many nodes there are.
    whole : (m,) bool
        Lines that are cut at nodes alone.
    start, end, cell, length, line, port
        As of `Pieces`; empty to count alone.
    """
    pieces = ports = 0
    for number in range(first.size - 1):
        here, begun, total = np.int64(_NONE), node[first[number]], 0.0
        for i in range(first[number], first[number + 1] - 1):
            u, v = column[i], row[i]
            du, dv = column[i + 1] - u, row[i + 1] - v
            at_u, step_u, left_u = _first_crossing(u, column[i + 1], width)
            at_v, step_v, left_v = _first_crossing(v, row[i + 1], height)
            t = 0.0
            while t < 1.0 and (du != 0 or dv != 0):
                t_u = (at_u - u) / du if left_u else 1.0
                t_v = (at_v - v) / dv if left_v else 1.0
                to = min(t_u, t_v, 1.0)
                # At a corner the line crosses both borders at once.
                if left_u and t_u <= to:
                    at_u, left_u = at_u + step_u, left_u - 1
                if left_v and t_v <= to:
                    at_v, left_v = at_v + step_v, left_v - 1
                # A corner that rounding has torn apart. The parameter t stays, so what lies between
                # counts as part of the next piece.
                if to - t <= _TINY:
                    if to < 1.0:
                        continue
                    total += size[i] * (to - t)
                    break
                middle = (t + to) / 2
                found = _cell(u + middle * du, v + middle * dv, height, width)
                if here == _NONE:
                    here = found
                elif found != here and whole[number]:
                    here = np.int64(OUTSIDE if OUTSIDE in (found, here) else MANY)
                elif found != here:
                    if ports < port.shape[0]:
                        port[ports, 0], port[ports, 1] = u + t * du, v + t * dv
                    pieces = _put(
                        start, end, cell, length, line,
                        pieces, begun, nodes + ports, here, total, number,
                    )  # fmt: skip
                    here, begun, total, ports = found, nodes + ports, 0.0, ports + 1
                total += size[i] * (to - t)
                t = to
            if node[i + 1] >= 0:
                if here != _NONE:
                    pieces = _put(
                        start, end, cell, length, line,
                        pieces, begun, node[i + 1], here, total, number,
                    )  # fmt: skip
                here, begun, total = np.int64(_NONE), node[i + 1], 0.0
    return pieces, ports


def cut_lines(
    points: Array,
    size: Array,
    first: Array,
    node: Array,
    nodes: int,
    whole: Array,
    shape: tuple[int, int],
) -> Pieces:
    """Cut lines at borders of cells and at nodes; `points` are columns and rows, (n, 2)."""
    columns, rows = np.ascontiguousarray(points.T)
    given = columns, rows, size, first, node, nodes, whole, *shape

    def room(pieces: int, ports: int) -> Pieces:
        whole_numbers = [np.empty(pieces, np.int64) for _ in range(4)]
        start, end, cell, line = whole_numbers
        return Pieces(start, end, cell, np.empty(pieces), line, np.empty((ports, 2)))

    # Counted without room first, then written.
    found = room(*walk_lines(*given, *room(0, 0)))
    walk_lines(*given, *found)
    return found
