"""Connected components of a graph given as a list of edges, by Rem's algorithm.

A vertex's *parent* is a vertex of its component that is not greater than the vertex; a vertex that
is its own parent is a *root*. Every step replaces a parent by a smaller vertex of the same
component, so every loop ends. One root per component remains, and it is the smallest vertex: the
result is the same for every order of edges, serial or parallel.

*join_edges* is Rem's algorithm with splicing. For each edge, *unite* climbs from both ends at once,
always on the side whose parent is greater. It links the vertex that it leaves to the other side's
parent, and ends when the parents are equal or a root has been linked. *compress_paths* then sets
each vertex's parent to its root.

Rem: Dijkstra (1976), "A Discipline of Programming", chapter 23; with splicing and as the fastest of
55 in Patwary, Blair, Manne (2010), doi:10.1007/978-3-642-13193-6_35. Parents (n,) and edges (m,)
and (m,) are unsigned words of one width: 32 bits while n is at most 2**32, else 64. Serial, no
atomics.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled

Roots = npt.NDArray[np.int64]
Ends = npt.NDArray[np.integer[Any]]


@compiled
def find_root(parent, vertex):
    """Return the root of a vertex's set; each vertex on the way skips its parent from now on."""
    while parent[vertex] != vertex:
        parent[vertex] = parent[parent[vertex]]
        vertex = parent[vertex]
    return vertex


@compiled
def unite(parent, a, b):
    """Join the sets of two vertices under the smaller root; return whether they were two.

    Rem's algorithm with splicing.
    """
    up_a = parent[a]
    up_b = parent[b]
    while up_a != up_b:
        if up_a < up_b:
            # From here on ``a`` is the vertex with the greater parent.
            a, b = b, a
            up_a, up_b = up_b, up_a
        # Splicing: the vertex moves to the other, smaller branch, whether it was a root or not. If
        # not, the climb goes on from its old parent, which has to be joined too.
        parent[a] = up_b
        if a == up_a:
            return True
        a = up_a
        up_a = parent[a]
    return False


@compiled
def join_edges(parent, a, b):
    """Join the components of each edge's ends by Rem's algorithm."""
    for e in range(a.size):
        unite(parent, a[e], b[e])


@compiled
def compress_paths(parent):
    """Make each vertex's parent its root."""
    for vertex in range(parent.size):
        # Vertices ascend and parents are smaller, so the parent leads to its root directly.
        root = parent[vertex]
        above = parent[root]
        while root != above:
            root = above
            above = parent[root]
        parent[vertex] = root


def check_ends(n: int, a: Ends, b: Ends) -> tuple[Ends, Ends]:
    """Return the ends as unsigned words of the width of parents; errors as `rem_components`."""
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"a, b: shapes {a.shape} and {b.shape}; pass two lists of one length")
    if a.dtype.kind not in "iu" or b.dtype.kind not in "iu":
        raise TypeError(f"a, b: dtypes {a.dtype} and {b.dtype}; vertices are integers, cast them")
    for name, ends in (("a", a), ("b", b)):
        if ends.size and not 0 <= int(ends.min()) <= int(ends.max()) < n:
            wrong = int(np.flatnonzero((ends < 0) | (ends >= n))[0])
            raise ValueError(
                f"{name}: edge {wrong} ends at {ends[wrong]}, which is none of the vertices 0 to"
                f" {n - 1}; correct it or raise n"
            )
    word = np.uint32 if n <= 2**32 else np.uint64
    return a.astype(word), b.astype(word)


def rem_components(n: int, a: Ends, b: Ends) -> Roots:
    """Return the connected component of each vertex, named by its smallest vertex.

    Parameters
    ----------
    n : int
        Number of vertices, which are 0 to n - 1.
    a, b : (m,) int32 or int64
        The two ends of each edge. Loops and repeated edges are allowed.

    Returns
    -------
    (n,) int64
        The smallest vertex of each vertex's component.

    Raises
    ------
    TypeError
        If the ends are not integers.
    ValueError
        If the ends are not two lists of equal length, or an end is not a vertex.

    Notes
    -----
    The result does not depend on the order of the edges. The time is almost linear on real graphs;
    no useful bound is known for Rem's algorithm on arbitrary graphs.

    References
    ----------
    Patwary, Blair, Manne (2010), doi:10.1007/978-3-642-13193-6_35.

    Examples
    --------
    >>> rem_components(5, np.array([4, 1]), np.array([1, 3]))
    array([0, 1, 2, 1, 1])
    """
    first, second = check_ends(n, a, b)
    parent = np.arange(n, dtype=first.dtype)
    join_edges(parent, first, second)
    compress_paths(parent)
    return parent.astype(np.int64)
