"""Components of a graph given as a list of edges: Rem's algorithm beside hook and compress.

*hook_roots* links the greater of the two ends' parents to the smaller one by an atomic minimum. The
minimum returns the old parent. If the old parent is the vertex itself, a root has been linked. If
not, the link to the old parent may be lost, so the old parent is joined next. One pass over the
edges suffices. *hook_parents* is a cheaper pass that may precede it: a plain store, which may split
a component; the next pass joins it again. *lower_roots* is one step of hook_roots per edge,
repeated until no edge joins two roots. A GPU runs these with one thread per edge or per vertex;
here a loop takes the place of the threads, and a read and a store that of the atomic.

Parents and edges are those of `orograph.kernels.label.union_find`, and so is the result, whatever
the method and the order of the edges.

Hellås, "Connected components on several GPUs" (Bergen 2018), sections 4.2.1 to 4.2.3, after Groute,
doi:10.1145/3018743.3018756; its compare-and-swap is replaced by the minimum of Komura (2015),
doi:10.1016/j.cpc.2015.04.015, which needs no retry.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.label.union_find import Ends, Roots, check_ends, compress_paths, join_edges

METHODS = ("rem", "hook", "hook-twice", "compress")


@compiled(inline=True)
def _parents(parent, a, b):
    """Return the parents of two vertices, the greater first."""
    high = parent[a]
    low = parent[b]
    if high < low:
        return low, high
    return high, low


@compiled
def hook_parents(parent, a, b):
    """Link the greater of each edge's two parents to the smaller one, replacing its parent."""
    for e in range(a.size):
        high, low = _parents(parent, a[e], b[e])
        parent[high] = low


@compiled
def lower_roots(parent, a, b):
    """Link the greater of each edge's two parents to the smaller one if that is below its own."""
    for e in range(a.size):
        high, low = _parents(parent, a[e], b[e])
        parent[high] = min(parent[high], low)  # atomicMin(parent + high, low)


@compiled
def hook_roots(parent, a, b):
    """Join the components of each edge's ends."""
    for e in range(a.size):
        high = parent[a[e]]
        low = parent[b[e]]
        while high != low:
            if high < low:
                high, low = low, high
            old = parent[high]  # atomicMin(parent + high, low)
            parent[high] = min(old, low)
            if old == high:
                break
            high = old


def components(n: int, a: Ends, b: Ends, method: str) -> Roots:
    """Return the smallest vertex of each vertex's component, (n,) int64.

    Parameters
    ----------
    n : int
        Number of vertices, which are 0 to n - 1.
    a, b : (m,) integers
        The two ends of each edge.
    method : {"rem", "hook", "hook-twice", "compress"}
        Rem's algorithm; hook and compress; hook and compress after one pass of cheaper hooks, some
        of which overwrite others; one hook per edge and compress, until all is joined.
    """
    first, second = check_ends(n, a, b)
    parent = np.arange(n, dtype=first.dtype)
    if method == "rem":
        join_edges(parent, first, second)
    elif method == "compress":
        while (parent[first] != parent[second]).any():
            lower_roots(parent, first, second)
            compress_paths(parent)
    else:
        if method == "hook-twice":
            hook_parents(parent, first, second)
            compress_paths(parent)
        hook_roots(parent, first, second)
    compress_paths(parent)
    return parent.astype(np.int64)
