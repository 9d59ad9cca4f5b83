"""Sizes of the two trees that removing an edge of a forest leaves, for each edge.

The sizes tell main branches from short side branches. Leaves are removed one by one; each adds the
size of its subtree to its last neighbour. Each vertex is removed once, so time is linear. Serial,
so deterministic. Vertex and edge numbers are int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled


@compiled
def cut_sizes(first: Any, second: Any, count: int) -> Any:
    """Return the size of the smaller of the two trees that removing each edge leaves.

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
    around = np.zeros(count, np.int64)  # xor of the indices of the edges not yet removed
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
            # A vertex that is still to come as a start is a leaf then, too.
            if other > start and degree[other] == 1:
                break
            leaf = other
    # one vertex remains of each tree, and its size is that of the tree: pass it to the others
    tree = size.copy()
    for step in range(done - 1, -1, -1):
        edge = peeled[step]
        other = toward[step]
        leaf = first[edge] if second[edge] == other else second[edge]
        tree[leaf] = tree[other]
        cut[edge] = min(cut[edge], tree[leaf] - cut[edge])
    return cut
