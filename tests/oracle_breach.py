"""Trenches by plain loops over the whole grid, a pit at a time: nothing of orograph's in it."""

from __future__ import annotations

import heapq
import math

import numpy as np

Cell = tuple[int, int]
STEPS = ((0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1), (1, 0), (1, 1))


def breach(
    elevation: np.ndarray,
    valid: np.ndarray,
    max_length: int,
    max_depth: float,
    outlets: np.ndarray | None = None,
    closed: bool = False,
) -> np.ndarray:
    """The surface with the trenches of all its pits, as float64; NaN where there is no cell.

    Water leaves at the outlets, and at the edge and into nodata unless these are closed.
    """
    ends = np.zeros(valid.shape, bool) if outlets is None else outlets.copy()
    for cell in np.argwhere(valid & (not closed)).tolist():
        beside = [(cell[0] + dy, cell[1] + dx) for dy, dx in STEPS]
        ends[tuple(cell)] |= not all(_inside(np.where(valid, 0.0, np.nan), c) for c in beside)
    surface = np.where(valid, elevation, 0).astype(float)
    surface[~valid] = np.nan
    breached = surface.copy()
    for cell in np.argwhere(valid).tolist():
        for place, level in trench(surface, ends, tuple(cell), max_length, max_depth):
            breached[place] = min(breached[place], level)
    return breached


def trench(
    surface: np.ndarray, ends: np.ndarray, pit: Cell, max_length: int, max_depth: float
) -> list[tuple[Cell, float]]:
    """The cells of a trench and its heights; none if the cell is no pit, or has no trench."""
    found = way(surface, ends, pit, max_length, max_depth)
    if found is None:
        return []
    path, leaves = found
    height = float(surface[pit])
    levels = []
    if leaves:
        for _ in path[1:]:
            height = max(math.nextafter(height, -math.inf), -np.finfo(float).max)
            levels.append(height)
        return list(zip(path[1:], levels, strict=True))
    end = float(surface[path[-1]])
    count = len(path) - 1
    levels = [max(height - (height - end) * (k / count), end) for k in range(1, count)]
    return list(zip(path[1:-1], levels, strict=True))


def way(
    surface: np.ndarray, ends: np.ndarray, pit: Cell, max_length: int, max_depth: float
) -> tuple[list[Cell], bool] | None:
    """The cells from a pit to the end of its trench, and whether it leaves the grid there."""
    height = float(surface[pit])
    came: dict[Cell, Cell | None] = {pit: None}
    queue: list[tuple[float, int, Cell]] = [(0.0, 0, pit)]
    while queue:
        cost, steps, cell = heapq.heappop(queue)
        beside = [(cell[0] + dy, cell[1] + dx) for dy, dx in STEPS]
        if ends[cell] or surface[cell] < height:
            if cost == 0:
                return None
            path: list[Cell] = []
            at: Cell | None = cell
            while at is not None:
                path.append(at)
                at = came[at]
            return path[::-1], not surface[cell] < height
        if cost == 0 and cell < pit:
            return None
        for other in beside:
            if not _inside(surface, other):
                continue
            far = max(abs(other[0] - pit[0]), abs(other[1] - pit[1]))
            rise = float(surface[other]) - height
            if other not in came and far <= max_length and rise <= max_depth:
                came[other] = cell
                heapq.heappush(queue, (cost + max(rise, 0.0), steps + 1, other))
    return None


def _inside(surface: np.ndarray, cell: Cell) -> bool:
    y, x = cell
    inside = 0 <= y < surface.shape[0] and 0 <= x < surface.shape[1]
    return inside and not math.isnan(surface[cell])
