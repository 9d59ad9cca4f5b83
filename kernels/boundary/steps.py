"""Elimination steps that solve all blocks of one shape together.

A step processes all parts of one shape, in all blocks. A part is a leaf, or is joined from two
halves that share a line of cells, as in the plan of dissection.py. A block whose longer side has
more than ``block`` cells is cut as a quadtree of such blocks is; its halves share no cell and are
merged. The shape of its parts identifies a step, and steps with smaller parts come first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.boundary.dissection import (
    BORDER,
    FIRST,
    HEIGHT,
    LINE,
    TABLES,
    WIDTH,
    EliminationPlan,
    Rectangle,
    border_numbers,
    elimination_plan,
    merged_border,
)
from orograph.tiles.arrays import Indices

Int32Array = npt.NDArray[np.int32]
Shape = tuple[int, int]

STRAIGHT = ((0, 1), (1, 0), (0, -1), (-1, 0))
DIAGONAL = ((1, 1), (1, -1), (-1, 1), (-1, -1))


def _empty() -> Int32Array:
    return np.empty(0, np.int32)


@dataclass(frozen=True, eq=False)
class Step:
    """The step of all parts of one shape in a block. Tables are int32."""

    shape: Shape
    border: int
    """Number of border cells of a part."""
    line: int
    """Number of cells of the line that is eliminated; 0 for leaves."""
    halves: tuple[int, int]
    """Indices of the steps of the halves; -1 for leaves."""
    nodes: Int32Array
    """(k, 4): row and column of each part in the block, and the indices of its halves among the
    parts of their steps."""
    inside: Int32Array = field(default_factory=_empty)
    """(2, border): number of each border cell in the first and in the second half, or -1."""
    line_in: Int32Array = field(default_factory=_empty)
    """(2, line): number of each cell of the line in the first and in the second half; at a seam
    (line,): in the second half."""
    begins: Int32Array = field(default_factory=_empty)
    """(line + 1,), at a seam: start of the edges of each cell of the line."""
    edges: Int32Array = field(default_factory=_empty)
    """(e, 5). Leaves: as in `orograph.kernels.boundary.dissection.EliminationPlan`. At a seam:
    border cell of the first half, its row and column there, and the step to the line."""

    @property
    def tables(self) -> tuple[Int32Array, ...]:
        """All tables of the step."""
        return self.nodes, self.inside, self.line_in, self.begins, self.edges

    @property
    def leaf(self) -> bool:
        """Whether the parts are leaves."""
        return self.halves[0] < 0

    @property
    def seam(self) -> bool:
        """Whether the halves share no cell."""
        return self.begins.size > 0

    @property
    def matrices(self) -> int:
        """Elements of the matrices of all parts of a block."""
        return len(self.nodes) * self.border**2

    @property
    def scratch(self) -> int:
        """Elements of temporary arrays of a block: paths to the line, from it and along it."""
        n, m = self.border, self.line
        return len(self.nodes) * (3 * n * m + m * m + (2 * len(self.edges) if self.seam else 0))


def peak_elements(steps: Sequence[Step]) -> int:
    """Return the peak number of elements per block, if matrices are freed after their last use."""
    last = last_uses(steps)
    held = most = 0
    for number, step in enumerate(steps):
        # A step's own matrices and scratch are there together with those of its halves.
        held += step.matrices
        most = max(most, held + step.scratch)
        held -= sum(steps[k].matrices for k in last[number])
    return most


def last_uses(steps: Sequence[Step]) -> list[list[int]]:
    """Return, for each step, the steps whose matrices are not needed after it."""
    final = {half: number for number, step in enumerate(steps) for half in step.halves if half >= 0}
    found: list[list[int]] = [[] for _ in steps]
    for half, number in final.items():
        found[number].append(half)
    return found


class _Builder:
    """Collects the parts of a block by their shapes."""

    def __init__(self, block: int, diagonals: bool) -> None:
        self.block = block
        self.moves = STRAIGHT + (DIAGONAL if diagonals else ())
        self.parts: dict[Shape, list[tuple[int, int, int, int]]] = defaultdict(list)
        self.known: dict[Shape, dict[str, Any]] = {}

    def add(
        self, shape: Shape, y: int, x: int, first: int = 0, second: int = 0
    ) -> tuple[Shape, int]:
        """Add a part; return its shape, and its index among the parts of that shape."""
        self.parts[shape].append((y, x, first, second))
        return shape, len(self.parts[shape]) - 1

    def solve(self, height: int, width: int, y: int, x: int) -> tuple[Shape, int]:
        """Add a block after the parts that it is joined from."""
        if max(height, width) <= self.block:
            return self.eliminate(elimination_plan(height, width), y, x)
        # The greatest block of the quadtree that is shorter than the longer side.
        half = self.block
        while 2 * half < max(height, width):
            half *= 2
        if height >= width:
            first, second = (0, 0, half, width), (half, 0, height - half, width)
        else:
            first, second = (0, 0, height, half), (0, half, height, width - half)
        one, two = (
            self.solve(part[2], part[3], y + part[0], x + part[1]) for part in (first, second)
        )
        shape = height, width
        if shape not in self.known:
            tables = self.seam_tables(Rectangle(*first), Rectangle(*second))
            self.known[shape] = {"halves": (one[0], two[0]), **tables}
        return self.add(shape, y, x, one[1], two[1])

    def eliminate(self, plan: EliminationPlan, y: int, x: int) -> tuple[Shape, int]:
        """Add the parts of a plan."""
        # Nodes come in postorder: the two halves of a part are the last that wait to be joined.
        waiting: list[tuple[Shape, int]] = []
        for number, down, right in plan.nodes.tolist():
            row = plan.shapes[number]
            shape = int(row[HEIGHT]), int(row[WIDTH])
            if row[FIRST] < 0:
                if shape not in self.known:
                    self.known[shape] = _leaf_tables(plan, row)
                waiting.append(self.add(shape, y + down, x + right))
                continue
            second, first = waiting.pop(), waiting.pop()
            if shape not in self.known:
                self.known[shape] = {"halves": (first[0], second[0]), **_line_tables(plan, row)}
            waiting.append(self.add(shape, y + down, x + right, first[1], second[1]))
        return waiting.pop()

    def seam_tables(self, first: Rectangle, second: Rectangle) -> dict[str, Any]:
        """Return the tables of the union of two blocks that share no cell."""
        _, kept, size = merged_border(first, second)
        a, b = border_numbers(first), border_numbers(second)
        ways = [
            (b[y + dy, x + dx], i, y, x, dy, dx)
            for (y, x), i in a.items()
            for dy, dx in self.moves
            if (y + dy, x + dx) in b
        ]
        # Grouped by the cell of the line in which they end, as compressed rows.
        edges = np.array(sorted(ways), np.int32)
        line, begins = np.unique(edges[:, 0], return_index=True)
        return {
            "border": size,
            "line": len(line),
            "inside": _inside(kept, size),
            "line_in": line,
            "begins": np.append(begins, len(edges)).astype(np.int32),
            "edges": np.ascontiguousarray(edges[:, 1:]),
        }


def _leaf_tables(plan: EliminationPlan, row: Indices) -> dict[str, Any]:
    at = row[TABLES]
    edges = plan.tables[at + 1 : at + 1 + 5 * plan.tables[at]].reshape(-1, 5)
    return {"halves": (), "border": int(row[BORDER]), "line": 0, "edges": edges.astype(np.int32)}


def _line_tables(plan: EliminationPlan, row: Indices) -> dict[str, Any]:
    at, n, m = row[TABLES], int(row[BORDER]), int(row[LINE])
    runs = []
    for _ in range(2):
        end = at + 1 + 3 * plan.tables[at]
        runs.append(plan.tables[at + 1 : end].reshape(-1, 3))
        at = end
    line_in = plan.tables[at : at + 2 * m].astype(np.int32)
    return {"border": n, "line": m, "inside": _inside(runs, n), "line_in": line_in}


def _inside(kept: Sequence[Indices], size: int) -> Int32Array:
    """Return the number of each border cell in the first and in the second half, or -1."""
    found = np.full((2, size), -1, np.int32)
    for half, runs in zip(found, kept, strict=True):
        for target, source, count in runs.tolist():
            half[target : target + count] = np.arange(source, source + count)
    return found


@lru_cache(maxsize=64)
def steps_of(
    height: int, width: int, block: int | None = None, diagonals: bool = True
) -> tuple[Step, ...]:
    """Return the steps for blocks of ``height`` x ``width`` cells; the last is the block's own.

    Parameters
    ----------
    height, width : int
    block : int, optional
        Largest side, in cells, of a block that is solved by elimination; default: no limit.
    diagonals : bool
        Whether cells have diagonal neighbours across a seam.
    """
    builder = _Builder(max(height, width) if block is None else block, diagonals)
    builder.solve(height, width, 0, 0)
    # A half has fewer cells than its whole, so it is solved before.
    order = sorted(builder.known, key=lambda shape: (shape[0] * shape[1], shape))
    number = {shape: n for n, shape in enumerate(order)}
    steps = []
    for shape in order:
        tables = dict(builder.known[shape])
        halves = [number[half] for half in tables.pop("halves")] or [-1, -1]
        nodes = np.array(builder.parts[shape], np.int32)
        steps.append(Step(shape=shape, halves=(halves[0], halves[1]), nodes=nodes, **tables))
    return tuple(steps)
