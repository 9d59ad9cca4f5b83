"""Nested dissection of a block of cells: the order of its border cells and the elimination plan.

Border cells are ordered clockwise from the block's north-west cell: the first row eastwards, the
last column southwards, the last row westwards, the first column northwards, each cell once. A block
of one row is ordered eastwards, a block of one column southwards.

The plan cuts a block across its longer side along a separator, a line of cells that belongs to both
halves, down to leaves of at most ``LEAF`` cells. Parts of equal shape share their tables, so a plan
has few shapes and many parts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from orograph.tiles.arrays import Indices

LEAF = 16
FORWARD = ((0, 1), (1, -1), (1, 0), (1, 1))
# Columns of a plan's shapes.
HEIGHT, WIDTH, FIRST, SECOND, BORDER, LINE, TABLES = range(7)


class Rectangle(NamedTuple):
    """A block of cells: its first cell and its size."""

    top: int
    left: int
    height: int
    width: int


@lru_cache(maxsize=256)
def border_cells(height: int, width: int) -> Indices:
    """Return rows and columns of a block's border cells, (n, 2), clockwise from the north-west."""
    if height == 1 or width == 1:
        cells = [(y, x) for y in range(height) for x in range(width)]
    else:
        cells = [(0, x) for x in range(width)]
        cells += [(y, width - 1) for y in range(1, height)]
        cells += [(height - 1, x) for x in range(width - 2, -1, -1)]
        cells += [(y, 0) for y in range(height - 2, 0, -1)]
    found = np.array(cells, np.int64)
    found.setflags(write=False)
    return found


def border_numbers(block: Rectangle) -> dict[tuple[int, int], int]:
    """Return the number of each border cell, by its row and column in the whole grid."""
    cells = border_cells(block.height, block.width).tolist()
    return {(block.top + y, block.left + x): number for number, (y, x) in enumerate(cells)}


class EliminationPlan(NamedTuple):
    """The nested dissection of blocks of one shape."""

    shapes: Indices
    """(k, 7), one shape per row: ``HEIGHT``, ``WIDTH``, the shapes of the ``FIRST`` and ``SECOND``
    half (-1 in a leaf), the number of ``BORDER`` cells, the number of cells of the ``LINE`` between
    the halves, and the start of its ``TABLES``."""
    tables: Indices
    """Tables of a leaf: the number of edges, and for each edge the numbers of its ends (border
    cells first), row and column of the first end, and the move in ``FORWARD``. Tables of any other
    part: the number of runs of border cells that are also border cells of the first half, and each
    run as in `runs_of`; the same for the second half; then the number of each cell of the line in
    the first half, and in the second half."""
    nodes: Indices
    """(n, 3), one part per row: shape and first cell. Halves come before the part they make up."""
    kept: int
    """Elements of the largest stack of matrices of halves that are not yet joined."""
    line: int
    """Cells of the longest line."""
    border: int
    """Border cells of the part with the longest border."""


@lru_cache(maxsize=64)
def elimination_plan(height: int, width: int) -> EliminationPlan:
    """Return the plan for blocks of ``height`` x ``width`` cells."""
    shapes: list[list[int]] = []
    tables: list[int] = []
    known: dict[tuple[int, int], int] = {}

    def shape(h: int, w: int) -> int:
        if (h, w) not in known:
            own, row = _describe(h, w, shape)
            row[TABLES] = len(tables)
            tables.extend(own)
            shapes.append(row)
            known[h, w] = len(shapes) - 1
        return known[h, w]

    nodes: list[tuple[int, int, int]] = []

    def visit(number: int, y: int, x: int) -> int:
        """List a part after its descendants; return the elements of the stack that they need."""
        h, w, first, second, border, _, _ = shapes[number]
        # The second half is solved while the matrix of the first one waits on the stack.
        need = border * border
        if first >= 0:
            down, right = h - shapes[second][HEIGHT], w - shapes[second][WIDTH]
            waiting = shapes[first][BORDER] ** 2
            need = max(need, visit(first, y, x), waiting + visit(second, y + down, x + right))
        nodes.append((number, y, x))
        return need

    kept = visit(shape(height, width), 0, 0)
    table = np.array(shapes, np.int64)
    return EliminationPlan(
        shapes=table,
        tables=np.array(tables, np.int64),
        nodes=np.array(nodes, np.int64),
        kept=kept,
        line=int(table[:, LINE].max()),
        border=int(table[:, BORDER].max()),
    )


def _describe(h: int, w: int, shape: Callable[[int, int], int]) -> tuple[list[int], list[int]]:
    """Return the tables of a shape, and its row, in which the start of the tables is still 0."""
    border = border_numbers(Rectangle(0, 0, h, w))
    if h * w <= LEAF:
        inner = [(y, x) for y in range(h) for x in range(w) if (y, x) not in border]
        number = {cell: n for n, cell in enumerate([*border, *inner])}
        edges = [
            (number[y, x], number[y + dy, x + dx], y, x, d)
            for y, x in number
            for d, (dy, dx) in enumerate(FORWARD)
            if (y + dy, x + dx) in number
        ]
        own = [len(edges), *(n for edge in edges for n in edge)]
        return own, [h, w, -1, -1, len(border), 0, 0]
    # Across the longer side. The line is the last row or column of the first half and the first one
    # of the second.
    down, right = (h // 2, 0) if h >= w else (0, w // 2)
    first = Rectangle(0, 0, down + 1 if down else h, right + 1 if right else w)
    second = Rectangle(down, right, h - down, w - right)
    a, b = border_numbers(first), border_numbers(second)
    line = [(down, x) for x in range(w)] if down else [(y, right) for y in range(h)]
    own = [n for half in (a, b) for n in _runs(border, half)]
    own += [half[cell] for half in (a, b) for cell in line]
    halves = [shape(half.height, half.width) for half in (first, second)]
    return own, [h, w, *halves, len(border), len(line), 0]


def runs_of(whole: dict[tuple[int, int], int], part: dict[tuple[int, int], int]) -> list[list[int]]:
    """Return the cells of ``part`` that are in ``whole``, as runs of numbers consecutive in both.

    A run is its first number in the whole, its first number in the part, and its length.
    """
    found: list[list[int]] = []
    for cell, number in whole.items():
        here = part.get(cell)
        if here is None:
            continue
        # The cell goes on with the last run if it comes next in both orders.
        if found and number == found[-1][0] + found[-1][2] and here == found[-1][1] + found[-1][2]:
            found[-1][2] += 1
        else:
            found.append([number, here, 1])
    return found


def _runs(whole: dict[tuple[int, int], int], part: dict[tuple[int, int], int]) -> list[int]:
    runs = runs_of(whole, part)
    return [len(runs), *(n for run in runs for n in run)]


def merged_border(
    first: Rectangle, second: Rectangle
) -> tuple[Rectangle, tuple[Indices, Indices], int]:
    """Return the union of two neighbouring blocks, and their border cells on its border.

    Returns
    -------
    Rectangle
        The union.
    two (k, 3) int64
        The border cells of each block that are border cells of the union: see `runs_of`.
    int
        Number of border cells of the union.

    Raises
    ------
    ValueError
        If the union is not a rectangle, or the second block is not east or south of the first.
    """
    beside = first.top == second.top and first.height == second.height
    above = first.left == second.left and first.width == second.width
    if beside and first.left + first.width == second.left:
        whole = Rectangle(first.top, first.left, first.height, first.width + second.width)
    elif above and first.top + first.height == second.top:
        whole = Rectangle(first.top, first.left, first.height + second.height, first.width)
    else:
        raise ValueError(f"{second} does not continue {first} eastwards or southwards")
    border = border_numbers(whole)
    kept = [np.array(runs_of(border, border_numbers(b)), np.int64) for b in (first, second)]
    return whole, (kept[0].reshape(-1, 3), kept[1].reshape(-1, 3)), len(border)
