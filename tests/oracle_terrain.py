"""Independent answers to what the terrain says: filling, flooding, passes, peaks.

Written from the contracts alone, cell by cell. `flood` is a priority flood over all cells, which
knows neither basins nor tiles.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from oracle_forest import valid_cells

STEPS = ((0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))

Cell = tuple[int, int]


def difference(upper: Any, lower: Any) -> float:
    """How far one height is above another, rounded once."""
    return float(upper.item() - lower.item())


def neighbours(cell: Cell, shape: tuple[int, int], connectivity: int) -> Iterator[Cell]:
    """The neighbours of a cell that lie in the grid."""
    for dy, dx in STEPS[:connectivity]:
        y, x = cell[0] + dy, cell[1] + dx
        if 0 <= y < shape[0] and 0 <= x < shape[1]:
            yield y, x


def edge_cells(valid: np.ndarray, connectivity: int) -> list[Cell]:
    """The valid cells at the edge of the grid or beside cells that are not valid."""
    return [
        cell
        for cell in map(tuple, np.argwhere(valid).tolist())
        if sum(valid[n] for n in neighbours(cell, valid.shape, connectivity)) < connectivity
    ]


def flood(
    elevation: np.ndarray,
    sources: Iterable[Cell] | None = None,
    connectivity: int = 8,
    nodata: float | int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The level of the water at each cell, and which cells it reaches.

    Water comes from the sources, by default from the edge and from nodata. Cells that it does not
    reach stay as they are.
    """
    valid = valid_cells(elevation, nodata)
    starts = edge_cells(valid, connectivity) if sources is None else list(sources)
    level, reached = elevation.copy(), np.zeros(elevation.shape, bool)
    queue = [(elevation[cell], cell) for cell in starts]
    heapq.heapify(queue)
    while queue:
        height, cell = heapq.heappop(queue)
        if reached[cell]:
            continue
        reached[cell] = True
        level[cell] = height if height > elevation[cell] else elevation[cell]
        for n in neighbours(cell, elevation.shape, connectivity):
            if valid[n] and not reached[n]:
                heapq.heappush(queue, (max(height, elevation[n]), n))
    return level, reached


def depressions(
    elevation: np.ndarray, filled: np.ndarray, connectivity: int = 8
) -> tuple[np.ndarray, dict[int, float]]:
    """The number of the depression of each raised cell, and the depth of each by its number."""
    shape, width = elevation.shape, elevation.shape[1]
    number, depth = np.zeros(shape, np.int64), {}
    for cell in map(tuple, np.argwhere(filled > elevation).tolist()):
        if number[cell]:
            continue
        part, stack = {cell}, [cell]
        while stack:
            for n in neighbours(stack.pop(), shape, connectivity):
                if n not in part and elevation[n] < filled[cell] == filled[n]:
                    part.add(n)
                    stack.append(n)
        lowest = min(part, key=lambda c: (elevation[c], c))
        here = tuple(np.array(sorted(part)).T)
        number[here] = lowest[0] * width + lowest[1] + 1
        depth[int(number[cell])] = difference(filled[cell], elevation[lowest])
    return number, depth


def passes(
    elevation: np.ndarray,
    start: Cell,
    connectivity: int = 8,
    nodata: float | int | None = None,
) -> dict[Cell, Cell]:
    """For each cell that can be reached the pass on the way to it.

    A path is as high as the highest of its cells, by (height, row, column); the pass is that of the
    lowest path. Dijkstra's algorithm with the greatest in place of the sum.
    """
    valid = valid_cells(elevation, nodata)
    found: dict[Cell, Cell] = {}
    queue = [(elevation[start] + 0, start, start)]  # -0.0 is 0.0
    while queue:
        height, highest, cell = heapq.heappop(queue)
        if cell in found:
            continue
        found[cell] = highest
        for n in neighbours(cell, elevation.shape, connectivity):
            if valid[n] and n not in found:
                heapq.heappush(queue, (*max((height, highest), (elevation[n] + 0, n)), n))
    return found


@dataclass(frozen=True)
class Peak:
    """A peak, its key col and the peak to which it yields there; None if it is the highest."""

    cell: Cell
    prominence: float
    col: Cell | None = None
    parent: Cell | None = None


def peaks(
    elevation: np.ndarray, connectivity: int = 8, nodata: float | int | None = None
) -> list[Peak]:
    """The peaks in row-major order, by taking the cells from the highest down.

    Of equal heights the first cell is taken first. Where a cell joins several summits, all but the
    highest have their key col. What has no prominence is no peak.
    """
    valid = valid_cells(elevation, nodata)
    cells = map(tuple, np.argwhere(valid).tolist())
    order = sorted(cells, key=lambda cell: (-float(elevation[cell]), cell))
    if elevation.dtype.kind in "iu":
        order = sorted(order, key=lambda cell: (-int(elevation[cell]), cell))
    rank = {cell: number for number, cell in enumerate(order)}
    summit: dict[Cell, Cell] = {}
    members: dict[Cell, list[Cell]] = {}
    found = []
    for cell in order:
        near = {summit[n] for n in neighbours(cell, elevation.shape, connectivity) if n in summit}
        highest = min(near, key=rank.__getitem__, default=cell)
        for other in near - {highest}:
            prominence = difference(elevation[other], elevation[cell])
            if prominence > 0:
                found.append(Peak(other, prominence, cell, highest))
            for member in members[other]:
                summit[member] = highest
            members[highest] += members.pop(other)
        summit[cell] = highest
        members.setdefault(highest, []).append(cell)
    found += [Peak(cell, np.inf) for cell in members]
    return sorted(found, key=lambda peak: peak.cell)


@dataclass(frozen=True)
class Depression:
    """A depression at the level at which it is full."""

    cells: frozenset[Cell]
    level: Any
    spill: Cell
    into: frozenset[Cell] | None
    """The cells of what it spills into; None for the outside."""


@dataclass(eq=False)
class Water:
    """Connected cells up to the present height."""

    cells: set[Cell]
    drained: bool
    parts: list[frozenset[Cell]]
    """Its connected sets of cells below the present height."""


def hierarchy(
    elevation: np.ndarray, connectivity: int = 8, nodata: float | int | None = None
) -> list[Depression]:
    """All depressions, by taking the cells from the lowest up, of equal ones the first first.

    Where waters meet, or come to the edge, the parts of each that have not met others at this
    height before are full depressions.
    """
    valid = valid_cells(elevation, nodata)
    edge = set(edge_cells(valid, connectivity))
    height = {cell: elevation[cell].item() + 0 for cell in map(tuple, np.argwhere(valid).tolist())}
    water: dict[Cell, Water] = {}
    full: dict[frozenset[Cell], Depression] = {}

    def lowest(cells: Iterable[Cell]) -> tuple[Any, Cell]:
        return min((height[cell], cell) for cell in cells)

    level = None
    for cell in sorted(height, key=lambda cell: (height[cell], cell)):
        if height[cell] != level:
            level = height[cell]
            for each in set(water.values()):
                each.parts = [frozenset(each.cells)]
        near = {water[n] for n in neighbours(cell, elevation.shape, connectivity) if n in water}
        outside = cell in edge or any(each.drained for each in near)
        meeting = [each for each in near if each.parts and not each.drained]
        for each in meeting:
            others = [other for other in meeting if other is not each]
            into = None
            if not outside and others:
                nearest = min(others, key=lambda other: lowest(other.cells))
                deepest = lowest(nearest.cells)[1]
                (into,) = (part for part in nearest.parts if deepest in part)
            if outside or others:
                for part in each.parts:
                    full.setdefault(part, Depression(part, elevation[cell], cell, into))
        joined = Water(
            {cell}.union(*(each.cells for each in near)),
            outside,
            [part for each in near for part in each.parts],
        )
        water |= dict.fromkeys(joined.cells, joined)
    return sorted(full.values(), key=lambda found: (lowest(found.cells)[1], found.level))
