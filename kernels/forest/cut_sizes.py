"""How many vertices hang on each edge of a forest, which tells its trunks from its twigs.

Leaves are peeled off; each hands the size of what hung on it to its last neighbour. Each vertex is
peeled once, so time is linear. Serial, so deterministic. Vertex and edge numbers are int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled


@compiled
def cut_sizes(first: Any, second: Any, count: int) -> Any:
    """Size of the smaller of the two trees that cutting each edge of a forest would leave.

    Parameters
    ----------
    first, second : (m,) int64
        The two vertices of each edge; the edges close no cycle.
    count : int
        Number of vertices.

    Returns
    -------
    (m,) int64
    """
    degree = np.zeros(count, np.int64)
    around = np.zeros(count, np.int64)  # xor of the numbers of the edges not yet peeled
    for edge in range(first.size):
        for end in (first[edge], second[edge]):
            degree[end] += 1
            around[end] ^= edge
    size = np.ones(count, np.int64)
    cut = np.zeros(first.size, np.int64)
    peeled = np.empty(first.size, np.int64)
    toward = np.empty(first.size, np.int64)
    done = 0
    for start in range(count):
        leaf = start
        while degree[leaf] == 1:
            edge = around[leaf]
            other = second[edge] if first[edge] == leaf else first[edge]
            cut[edge] = size[leaf]
            size[other] += size[leaf]
            degree[leaf] = 0
            degree[other] -= 1
            around[other] ^= edge
            peeled[done] = edge
            toward[done] = other
            done += 1
            if other > start and degree[other] == 1:
                break
            leaf = other
    # what is left of each tree is its last vertex, whose size is the tree's: hand it back
    tree = size.copy()
    for step in range(done - 1, -1, -1):
        edge = peeled[step]
        other = toward[step]
        leaf = first[edge] if second[edge] == other else second[edge]
        tree[leaf] = tree[other]
        cut[edge] = min(cut[edge], tree[leaf] - cut[edge])
    return cut
