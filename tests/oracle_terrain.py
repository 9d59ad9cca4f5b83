"""Independent answers to what the terrain says: filling, flooding, passes, peaks.

Written from the contracts alone, cell by cell. `flood` is a priority flood over all cells, which
knows neither basins nor tiles.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

import numpy as np
from oracle_forest import valid_cells

STEPS = ((0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))

Cell = tuple[int, int]


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
        depth[int(number[cell])] = float(filled[cell]) - float(elevation[lowest])
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
