"""An independent answer to "how many steps apart are these cells, and by which way?".

Written from the contract alone: levels by SciPy's breadth-first search over the whole grid, and the
one way that is promised by looking at both whole fields of levels, in plain Python.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array, csgraph

Cell = tuple[int, int]

# east first, then clockwise
AROUND = {
    8: ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)),
    4: ((0, 1), (1, 0), (0, -1), (-1, 0)),
}


def levels(mask: np.ndarray, start: Cell, connectivity: int) -> np.ndarray:
    """Breadth-first levels from a cell (row, column), -1 where there is no way."""
    height, width = mask.shape
    cell = np.arange(mask.size).reshape(mask.shape)
    ends = []
    for dy, dx in AROUND[connectivity]:
        here = np.s_[max(-dy, 0) : height - max(dy, 0), max(-dx, 0) : width - max(dx, 0)]
        there = np.s_[max(dy, 0) : height + min(dy, 0), max(dx, 0) : width + min(dx, 0)]
        joined = (mask[here] != 0) & (mask[there] != 0)
        ends.append((cell[here][joined], cell[there][joined]))
    a, b = (np.concatenate(e) for e in zip(*ends))
    graph = coo_array((np.ones(a.size, np.int8), (a, b)), shape=(mask.size, mask.size)).tocsr()
    hops = csgraph.dijkstra(graph, indices=int(cell[start]), unweighted=True)
    return np.where(np.isfinite(hops), hops, -1).astype(np.int64).reshape(mask.shape)


def way(mask: np.ndarray, s: Cell, t: Cell, connectivity: int) -> list[list[int]] | None:
    """The cells of the promised way from s to t; None if there is none."""
    fields = [levels(mask, end, connectivity) for end in (s, t)]
    length = fields[0][t]
    if length < 0:
        return None
    midway = (fields[0] == length // 2) & (fields[1] == length - length // 2)
    middle = tuple(np.argwhere(midway)[0].tolist())
    halves = []
    for field in fields:
        cells = [middle]
        while field[cells[-1]]:
            y, x = cells[-1]
            around = ((y + dy, x + dx) for dy, dx in AROUND[connectivity])
            inside = (c for c in around if 0 <= c[0] < mask.shape[0] and 0 <= c[1] < mask.shape[1])
            cells.append(next(c for c in inside if field[c] == field[y, x] - 1))
        halves.append(cells)
    return [list(cell) for cell in halves[0][::-1] + halves[1][1:]]
