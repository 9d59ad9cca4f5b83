"""The minimum spanning forest of a graph: Borůvka's algorithm.

Edges are totally ordered by weight, then by number, so the forest is unique. In a round each
component takes the least edge that leaves it, and leads to the component at the other end. Two that
take the same edge lead to each other; the smaller of them becomes a root instead. There are no
longer cycles, because the order is total. Components get the numbers of their roots, counted from
0, so what is known of them lies close together. Edges whose ends have come together are dropped. A
round at least halves the components that have an edge left, so there are at most log2(n) rounds. In
the first, components are vertices and their edges stand in rows; then each edge is listed once.

Rows: ``indptr`` (n + 1,), ``indices``, ``weight`` and ``edge`` (arcs,), each edge both ways with
the same weight and number, heads ascending; loops count for nothing. What is kept of a list is
written always, and its length grows or not: a branch would often be guessed wrong. Serial.

In a part of a graph the forest of the edges between its vertices is found: no other edge between
them is in the forest of the graph. A *border* vertex has arcs to other parts. An edge to a subtree
without border vertices is in the forest of the graph: all edges that leave the subtree are known.

Borůvka (1926); Nešetřil, Milková, Nešetřilová (2001), doi:10.1016/S0012-365X(00)00224-7.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.tiles.arrays import Array


@compiled
def _least_arcs(indptr, indices, weight, edge, first, best, other):
    """Write the arc of each vertex's least edge, and where it leads; without one, to itself.

    Vertices count from `first`, and arcs to others than these are left out.
    """
    one = indices.dtype.type(1)
    low, n = np.uint64(first), np.uint64(best.size)
    for index in range(best.size):
        vertex = indices.dtype.type(index)
        # ``least`` is the vertex itself as long as no arc has been chosen.
        taken, least = indptr[vertex], np.uint64(index)
        for arc in range(indptr[vertex], indptr[vertex + one]):
            # Without a sign: heads before the part become numbers beyond it.
            head = np.uint64(indices[arc]) - low
            if (
                head != vertex
                and head < n
                and (
                    least == vertex
                    or weight[arc] < weight[taken]
                    or (weight[arc] == weight[taken] and edge[arc] < edge[taken])
                )
            ):
                taken, least = arc, head
        best[vertex], other[vertex] = taken, least


@compiled
def _join_vertices(best, other, edge, parent, chosen, chosen_tails):
    """Let each vertex lead along its least edge; return how many edges were chosen."""
    joined = 0
    for vertex in range(parent.size):
        head = other[vertex]
        # Both have chosen the same edge: the smaller one is the root, and the edge is listed once.
        same = edge[best[head]] == edge[best[vertex]] if head != vertex else True
        root = same & (vertex <= head)
        parent[vertex] = vertex if root else head
        chosen[joined] = best[vertex]
        if chosen_tails is not None:
            chosen_tails[joined] = vertex
        joined += not root
    return joined


@compiled
def _number_roots(parent, number):
    """Put in the place of each parent the number of its root; return how many roots there are."""
    count = 0
    for vertex in range(parent.size):
        # Each vertex gets the number of roots before it, which is a root's own number.
        number[vertex] = count
        count += parent[vertex] == vertex
    for vertex in range(parent.size):
        root = parent[vertex]
        while parent[root] != root:
            root = parent[root]
        # all that lies between, too: the way along a chain is gone once, not from each vertex
        below = parent.dtype.type(vertex)
        while parent[below] != root:
            above = parent[below]
            parent[below] = root
            below = above
    for vertex in range(parent.size):
        parent[vertex] = number[parent[vertex]]
    return count


@compiled
def _remaining(indptr, indices, weight, first, parent, a, b, arcs, weights, tails):
    """List the edges between components, once each; return how many there are."""
    one = indices.dtype.type(1)
    low = np.uint64(first)
    count = 0
    for index in range(parent.size):
        vertex = indices.dtype.type(index)
        here = parent[vertex]
        for arc in range(indptr[vertex], indptr[vertex + one]):
            head = np.uint64(indices[arc])
            # Heads ascend. An edge is listed at its greater end, where the other one comes first.
            if head >= low + np.uint64(index):
                break
            if head < low:
                continue
            there = parent[head - low]
            a[count], b[count], arcs[count], weights[count] = here, there, arc, weight[arc]
            if tails is not None:
                tails[count] = vertex
            count += there != here
    return count


@compiled
def _round(
    a, b, arcs, weights, tails, count, edge, parent, number, best, least, chosen, chosen_tails,
    joined,
):  # fmt: skip
    """Join each component along its least edge; return edges and components left, and joins."""
    # Any edge of each component to begin with, here its last one, so that the comparisons below
    # always have one to compare with. ``count`` stands for a component without an edge.
    best[: parent.size] = count
    for i in range(count):
        best[a[i]] = best[b[i]] = i
        least[a[i]] = least[b[i]] = weights[i]
    for i in range(count):
        weight = weights[i]
        for component in (a[i], b[i]):  # a call for each end would be compiled to branches
            kept, known = best[component], least[component]
            less = weight < known
            # The total order: of equal weights the lower number, whatever the order of the list.
            if weight == known:
                less = edge[arcs[i]] < edge[arcs[kept]]
            best[component] = i if less else kept
            least[component] = weight if less else known
    for one in range(parent.size):
        kept = best[one]
        if kept == count:  # it has no edge left
            parent[one] = one
            continue
        other = a[kept] if b[kept] == one else b[kept]
        root = (best[other] == kept) & (one < other)
        parent[one] = one if root else other
        chosen[joined] = arcs[kept]
        if chosen_tails is not None:
            chosen_tails[joined] = tails[kept]
        joined += not root
    components = _number_roots(parent, number)
    # Edges within a component are dropped. The list shrinks in place, as an edge is read before its
    # place is written again.
    left = 0
    for i in range(count):
        here, there = parent[a[i]], parent[b[i]]
        a[left], b[left], arcs[left], weights[left] = here, there, arcs[i], weights[i]
        if tails is not None:
            tails[left] = tails[i]
        left += here != there
    return left, components, joined


@compiled
def _forest(indptr, indices, weight, edge, first, tails, chosen_tails):
    """Return the arcs of the forest of the edges between the vertices from `first` on.

    If they are not None, the tails of these arcs are written to `chosen_tails` (n + 1,), and
    `tails` (arcs // 2 + 2,) is scratch.
    """
    n = indptr.size - 1
    best = np.empty(n, indptr.dtype)
    number = np.empty(n, indices.dtype)
    parent = np.empty(n, indices.dtype)
    # A forest has fewer than n edges. Arcs are written before they count, hence the place more.
    chosen = np.empty(n + 1, indptr.dtype)
    _least_arcs(indptr, indices, weight, edge, first, best, number)
    joined = _join_vertices(best, number, edge, parent, chosen, chosen_tails)
    components = _number_roots(parent, number)
    most = indices.size // 2 + 2
    a = np.empty(most, indices.dtype)
    b = np.empty(most, indices.dtype)
    arcs = np.empty(most, indptr.dtype)
    weights = np.empty(most, weight.dtype)
    least = np.empty(components, weight.dtype)
    count = _remaining(indptr, indices, weight, first, parent, a, b, arcs, weights, tails)
    while count:
        count, components, joined = _round(
            a, b, arcs, weights, tails, count, edge, parent[:components], number, best, least,
            chosen, chosen_tails, joined,
        )  # fmt: skip
    return chosen[:joined]


@compiled
def spanning_forest(indptr: Any, indices: Any, weight: Any, edge: Any) -> Any:
    """Return the arcs of the forest, one an edge, of the dtype of ``indptr``."""
    return _forest(indptr, indices, weight, edge, 0, None, None)


@compiled
def strip_dead_ends(a: Any, b: Any, border: Any, kept: Any) -> None:
    """Unmark the edges of a forest, from a to b, that lead to subtrees without a border vertex.

    A vertex with one edge left and no border loses it. The exclusive or of a vertex's edges is the
    last one when the others are gone.
    """
    degree = np.zeros(border.size, np.uint32)
    edges = np.zeros(border.size, a.dtype)
    for edge in range(a.size):
        degree[a[edge]] += 1
        degree[b[edge]] += 1
        edges[a[edge]] ^= edge
        edges[b[edge]] ^= edge
    for start in range(border.size):
        vertex = np.int64(start)
        while degree[vertex] == 1 and not border[vertex]:
            edge = edges[vertex]
            kept[edge] = False
            degree[vertex] = 0
            # The other end of the edge, which may have become a dead end itself.
            vertex = np.int64(a[edge]) ^ np.int64(b[edge]) ^ vertex
            degree[vertex] -= 1
            edges[vertex] ^= edge


def part_forest(
    indptr: Array, heads: Array, weight: Array, edge: Array, first: int, border: Array
) -> tuple[Array, Array, Array]:
    """Return the forest of the edges between the vertices of a part of a graph.

    Parameters
    ----------
    indptr : (n + 1,)
        Where the arcs of each vertex begin, from 0 in the part.
    heads, weight, edge : (arcs,)
        Of the part's arcs; heads are vertices of the whole graph.
    first : int
        The part's first vertex.
    border : (n,) bool
        Whether arcs lead from a vertex to other parts.

    Returns
    -------
    arcs : (k,)
        An arc for each edge of the forest.
    tails : (k,)
        Their tails, from 0 in the part.
    undecided : (k,) bool
        Whether other parts may rule that the edge is not in the forest of the graph.
    """
    n = border.size
    scratch, tails = np.empty(heads.size // 2 + 2, heads.dtype), np.empty(n + 1, heads.dtype)
    arcs = _forest(indptr, heads, weight, edge, first, scratch, tails)
    tails = tails[: arcs.size]
    undecided = np.ones(arcs.size, np.bool_)
    strip_dead_ends(tails, heads[arcs] - heads.dtype.type(first), border, undecided)
    return arcs, tails, undecided


@compiled
def mark_edges(edge: Any, arcs: Any, in_forest: Any) -> None:
    """Set the mark of each arc's edge."""
    for arc in arcs:
        in_forest[edge[arc]] = True
