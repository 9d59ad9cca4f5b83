"""Connected components of a graph given as a list of edges: Rem's algorithm, and hook and compress.

A vertex's *parent* is a vertex of its component that is not greater than the vertex; a vertex that
is its own parent is a *root*. Every step replaces a parent by a smaller vertex of the same
component, so every loop ends. One root per component remains, and it is the smallest vertex: the
result is the same for every order of edges, serial or parallel.

*join_edges* is Rem's algorithm with splicing. For each edge, *unite* climbs from both ends at once,
always on the side whose parent is greater. It links the vertex that it leaves to the other side's
parent, and ends when the parents are equal or a root has been linked.

*hook_roots* links the greater of the two ends' parents to the smaller one by an atomic minimum. The
minimum returns the old parent. If the old parent is the vertex itself, a root has been linked. If
not, the link to the old parent may be lost, so the old parent is joined next. One pass over the
edges suffices. *hook_parents* is a cheaper pass that may precede it: a plain store, which may split
a component; the next pass joins it again. *lower_roots* is one step of hook_roots an edge, repeated
until no edge joins two roots. *compress_paths* then sets each vertex's parent to its root. A GPU
runs these with one thread per edge or per vertex; here a loop takes the place of the threads, and a
read and a store that of the atomic.

Rem: Dijkstra (1976), "A Discipline of Programming", chapter 23; with splicing and as the fastest of
55 in Patwary, Blair, Manne (2010), doi:10.1007/978-3-642-13193-6_35. Hook and compress: Hellås,
"Connected components on several GPUs" (Bergen 2018), sections 4.2.1 to 4.2.3, after Groute,
doi:10.1145/3018743.3018756; its compare-and-swap is replaced by the minimum of Komura (2015),
doi:10.1016/j.cpc.2015.04.015, which needs no retry. Parents (n,) and edges (m,) and (m,) are
unsigned words of one width: 32 bits while n is at most 2**32, else 64. Serial, no atomics.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled

METHODS = ("rem", "hook", "hook-twice", "compress")

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


def check_ends(n: int, a: Ends, b: Ends, method: str) -> tuple[Ends, Ends]:
    """Return the ends as unsigned words of the width of parents; errors as `components`."""
    if method not in METHODS:
        raise ValueError(f"method: {method!r} is unknown; choose one of {', '.join(METHODS)}")
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


def components(n: int, a: Ends, b: Ends, method: str = "rem") -> Roots:
    """Return the connected component of each vertex, named by its smallest vertex.

    Parameters
    ----------
    n : int
        Number of vertices, which are 0 to n - 1.
    a, b : (m,) int32 or int64
        The two ends of each edge. Loops and repeated edges are allowed.
    method : {"rem", "hook", "hook-twice", "compress"}
        Rem's algorithm; hook and compress; hook and compress after one pass of cheaper hooks, some
        of which overwrite others; one hook an edge and compress, until all is joined.

    Returns
    -------
    (n,) int64
        The smallest vertex of each vertex's component.

    Raises
    ------
    TypeError
        If the ends are not integers.
    ValueError
        If ``method`` is unknown, the ends are not two lists of equal length, or an end is not a
        vertex.

    Notes
    -----
    The result does not depend on the method or on the order of the edges. Each method takes almost
    linear time on real graphs; no useful bound is known for Rem's algorithm on arbitrary graphs.

    References
    ----------
    Patwary, Blair, Manne (2010), doi:10.1007/978-3-642-13193-6_35.

    Examples
    --------
    >>> components(5, np.array([4, 1]), np.array([1, 3]))
    array([0, 1, 2, 1, 1])
    """
    first, second = check_ends(n, a, b, method)
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


def rem_components(n: int, a: Ends, b: Ends) -> Roots:
    """Return the smallest vertex of each vertex's component, (n,) int64, by Rem's algorithm.

    See Also
    --------
    components : The same with a choice of method; parameters and errors are equal.
    """
    return components(n, a, b)


def compile_kernels() -> None:
    """Compile, or load from the cache, every method for graphs of fewer than 2**32 vertices."""
    ends = np.array([1, 2]), np.array([2, 0])
    for method in METHODS:
        components(3, *ends, method)
