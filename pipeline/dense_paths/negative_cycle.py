"""Which cycle of a graph is negative: Bellman and Ford's rounds over blocks of its matrix.

All vertices begin with distance 0; each round every edge may lower its end. A cycle among the
predecessors that this leaves is a negative one, and if there is a negative cycle, one appears after
n rounds at the latest; mostly after a few. Cherkassky and Goldberg, "Negative-cycle detection
algorithms", doi:10.1007/s101070050058.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.dense_paths.edge_matrix import EdgeMatrix
from orograph.kernels.minplus.lanes import BARRIER

SIDE = 512


def find_negative_cycle(
    graph: EdgeMatrix, tolerance: float = 0.0
) -> tuple[list[int], float] | None:
    """Return the vertices of a cycle of negative length in order, and its length.

    Parameters
    ----------
    graph : EdgeMatrix
    tolerance : float
        An edge must lower its end by more than that. Cycles longer than n times its negative may
        go unseen.

    Returns
    -------
    tuple or None
        The length is the exact sum of the edges, rounded once. None: there is no such cycle.
    """
    n = graph.n
    integer = graph.dtype.kind == "i"
    distance: npt.NDArray[Any] = np.zeros(n, np.int64 if integer else np.float64)
    margin = int(tolerance) if integer else tolerance
    before = np.full(n, -1, np.int64)
    for _ in range(n + 1):
        lowered = False
        for y in range(0, n, SIDE):
            rows = slice(y, min(y + SIDE, n))
            for x in range(0, n, SIDE):
                columns = slice(x, min(x + SIDE, n))
                lengths = graph.block(rows, columns).astype(distance.dtype)
                if integer:
                    lengths[lengths >= BARRIER] = 2 * BARRIER
                sums = distance[rows, None] + lengths
                first = sums.argmin(axis=0)
                least = sums[first, np.arange(sums.shape[1])]
                better = least < distance[columns] - margin
                if better.any():
                    lowered = True
                    distance[columns][better] = least[better]
                    before[columns][better] = first[better] + y
        cycle = _cycle(before)
        if cycle is not None:
            length = length_of(graph, cycle)
            if length < 0:
                return cycle, length
        if not lowered:
            return None
    return None


def length_of(graph: EdgeMatrix, cycle: list[int]) -> float:
    """Return the sum of the edges of a cycle, rounded once; exact for integers."""
    edges = [
        graph.block(slice(u, u + 1), slice(v, v + 1))[0, 0]
        for u, v in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
    ]
    if graph.dtype.kind == "i":
        return sum(int(edge) for edge in edges)
    return math.fsum(float(edge) for edge in edges)


def _cycle(before: npt.NDArray[np.int64]) -> list[int] | None:
    """Return a cycle of the predecessors along its edges, from its least vertex on."""
    parent = before.tolist()
    seen = [-1] * len(parent)
    for start in range(len(parent)):
        v = start
        while v >= 0 and seen[v] < 0:
            seen[v] = start
            v = parent[v]
        if v >= 0 and seen[v] == start:
            cycle = [v]
            while parent[cycle[-1]] != v:
                cycle.append(parent[cycle[-1]])
            cycle.reverse()
            least = cycle.index(min(cycle))
            return cycle[least:] + cycle[:least]
    return None
