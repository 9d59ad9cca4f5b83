"""How a block of cells is halved again and again, and in what order its border cells are counted.

Clockwise from the block's north-west cell: the first row eastwards, the last column southwards, the
last row westwards, the first column northwards, each cell once; a block of one row goes eastwards,
one of one column southwards.

The plan of a nested dissection: a block is cut across its longer side along a line of cells that
both halves keep, down to leaves of at most ``LEAF`` cells. Halves of one shape share their tables,
so that a plan has a few shapes and many parts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]

LEAF = 16
FORWARD = ((0, 1), (1, -1), (1, 0), (1, 1))
# Columns of a plan's shapes.
HEIGHT, WIDTH, FIRST, SECOND, BORDER, LINE, TABLES = range(7)


class Rectangle(NamedTuple):
    """A block: its first cell, and its size."""

    top: int
    left: int
    height: int
    width: int


@lru_cache(maxsize=256)
def border_cells(height: int, width: int) -> Indices:
    """Rows and columns of a block's border cells, (n, 2), clockwise from its north-west cell."""
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


def numbered_border(block: Rectangle) -> dict[tuple[int, int], int]:
    """The number of each border cell, by its row and column in the whole grid."""
    cells = border_cells(block.height, block.width).tolist()
    return {(block.top + y, block.left + x): number for number, (y, x) in enumerate(cells)}


class Plan(NamedTuple):
    """How blocks of some shape are halved."""

    shapes: Indices
    """(k, 7), a shape a row: ``HEIGHT``, ``WIDTH``, the shapes of the ``FIRST`` and ``SECOND`` half
    (-1 in a leaf), how many ``BORDER`` cells it has and how many cells the ``LINE`` between its
    halves, and where its ``TABLES`` start."""
    tables: Indices
    """Of a leaf: how many edges it has, and for each the numbers of its ends (border cells first),
    row and column of the first end, and the move in ``FORWARD``. Else how many runs of border cells
    are border cells of the first half too, and each run as `runs_of` has it; the same for the
    second half; then the number of each cell of the line in the first half, and in the second."""
    nodes: Indices
    """(n, 3), a part a row: shape, and its first cell. Halves come before their whole."""
    kept: int
    """Elements of all matrices that wait at a time for their other half."""
    line: int
    """Cells of the longest line."""
    border: int
    """Border cells of the part that has most."""


@lru_cache(maxsize=64)
def elimination_plan(height: int, width: int) -> Plan:
    """The plan for blocks of ``height`` x ``width`` cells."""
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
        """List a part behind those below it; the elements kept meanwhile."""
        h, w, first, second, border, _, _ = shapes[number]
        need = border * border
        if first >= 0:
            down, right = h - shapes[second][HEIGHT], w - shapes[second][WIDTH]
            waiting = shapes[first][BORDER] ** 2
            need = max(need, visit(first, y, x), waiting + visit(second, y + down, x + right))
        nodes.append((number, y, x))
        return need

    kept = visit(shape(height, width), 0, 0)
    table = np.array(shapes, np.int64)
    return Plan(
        shapes=table,
        tables=np.array(tables, np.int64),
        nodes=np.array(nodes, np.int64),
        kept=kept,
        line=int(table[:, LINE].max()),
        border=int(table[:, BORDER].max()),
    )


def _describe(h: int, w: int, shape: Callable[[int, int], int]) -> tuple[list[int], list[int]]:
    """The tables of a shape and its row, which does not yet say where they start."""
    border = numbered_border(Rectangle(0, 0, h, w))
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
    down, right = (h // 2, 0) if h >= w else (0, w // 2)
    first = Rectangle(0, 0, down + 1 if down else h, right + 1 if right else w)
    second = Rectangle(down, right, h - down, w - right)
    a, b = numbered_border(first), numbered_border(second)
    line = [(down, x) for x in range(w)] if down else [(y, right) for y in range(h)]
    own = [n for half in (a, b) for n in _runs(border, half)]
    own += [half[cell] for half in (a, b) for cell in line]
    halves = [shape(half.height, half.width) for half in (first, second)]
    return own, [h, w, *halves, len(border), len(line), 0]


def runs_of(whole: dict[tuple[int, int], int], part: dict[tuple[int, int], int]) -> list[list[int]]:
    """The cells of ``part`` that are in ``whole``: runs of consecutive numbers in both.

    Each is its first number in the whole, its first number in the part, and its length.
    """
    found: list[list[int]] = []
    for cell, number in whole.items():
        here = part.get(cell)
        if here is None:
            continue
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
    """What two neighbouring blocks make together.

    Returns
    -------
    Rectangle
        Both.
    two (k, 3) int64
        The border cells of each that are border cells of both: see `runs_of`.
    int
        Border cells of both.

    Raises
    ------
    ValueError
        If they make no rectangle, the second lying east or south of the first.
    """
    beside = first.top == second.top and first.height == second.height
    above = first.left == second.left and first.width == second.width
    if beside and first.left + first.width == second.left:
        whole = Rectangle(first.top, first.left, first.height, first.width + second.width)
    elif above and first.top + first.height == second.top:
        whole = Rectangle(first.top, first.left, first.height + second.height, first.width)
    else:
        raise ValueError(f"{second} does not continue {first} eastwards or southwards")
    border = numbered_border(whole)
    kept = [np.array(runs_of(border, numbered_border(b)), np.int64) for b in (first, second)]
    return whole, (kept[0].reshape(-1, 3), kept[1].reshape(-1, 3)), len(border)
