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

Borůvka (1926); Nešetřil, Milková, Nešetřilová (2001), doi:10.1016/S0012-365X(00)00224-7.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled


@compiled
def _least_arcs(indptr, indices, weight, edge, best, other):
    """Write the arc of each vertex's least edge, and where it leads; without one, to itself."""
    one = indices.dtype.type(1)
    for index in range(best.size):
        vertex = indices.dtype.type(index)
        taken, head = indptr[vertex], vertex
        for arc in range(indptr[vertex], indptr[vertex + one]):
            if indices[arc] != vertex and (
                head == vertex
                or weight[arc] < weight[taken]
                or (weight[arc] == weight[taken] and edge[arc] < edge[taken])
            ):
                taken, head = arc, indices[arc]
        best[vertex], other[vertex] = taken, head


@compiled
def _join_vertices(best, other, edge, parent, chosen):
    """Let each vertex lead along its least edge; return how many edges were chosen."""
    joined = 0
    for vertex in range(parent.size):
        head = other[vertex]
        same = edge[best[head]] == edge[best[vertex]] if head != vertex else True
        root = same & (vertex <= head)
        parent[vertex] = vertex if root else head
        chosen[joined] = best[vertex]
        joined += not root
    return joined


@compiled
def _number_roots(parent, number):
    """Put in the place of each parent the number of its root; return how many roots there are."""
    count = 0
    for vertex in range(parent.size):
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
def _remaining(indptr, indices, weight, parent, a, b, arcs, weights):
    """List the edges between components, once each; return how many there are."""
    one = indices.dtype.type(1)
    count = 0
    for index in range(parent.size):
        vertex = indices.dtype.type(index)
        here = parent[vertex]
        for arc in range(indptr[vertex], indptr[vertex + one]):
            if indices[arc] >= vertex:
                break
            there = parent[indices[arc]]
            a[count], b[count], arcs[count], weights[count] = here, there, arc, weight[arc]
            count += there != here
    return count


@compiled
def _round(a, b, arcs, weights, count, edge, parent, number, best, least, chosen, joined):
    """Join each component along its least edge; return edges and components left, and joins."""
    best[: parent.size] = count
    for i in range(count):
        best[a[i]] = best[b[i]] = i
        least[a[i]] = least[b[i]] = weights[i]
    for i in range(count):
        weight = weights[i]
        for component in (a[i], b[i]):  # a call for each end would be compiled to branches
            kept, known = best[component], least[component]
            less = weight < known
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
        joined += not root
    components = _number_roots(parent, number)
    left = 0
    for i in range(count):
        here, there = parent[a[i]], parent[b[i]]
        a[left], b[left], arcs[left], weights[left] = here, there, arcs[i], weights[i]
        left += here != there
    return left, components, joined


@compiled
def spanning_forest(indptr: Any, indices: Any, weight: Any, edge: Any) -> Any:
    """Return the arcs of the forest, one an edge, of the dtype of ``indptr``."""
    n = indptr.size - 1
    best = np.empty(n, indptr.dtype)
    number = np.empty(n, indices.dtype)
    parent = np.empty(n, indices.dtype)
    chosen = np.empty(n + 1, indptr.dtype)
    _least_arcs(indptr, indices, weight, edge, best, number)
    joined = _join_vertices(best, number, edge, parent, chosen)
    components = _number_roots(parent, number)
    most = indices.size // 2 + 2
    a = np.empty(most, indices.dtype)
    b = np.empty(most, indices.dtype)
    arcs = np.empty(most, indptr.dtype)
    weights = np.empty(most, weight.dtype)
    least = np.empty(components, weight.dtype)
    count = _remaining(indptr, indices, weight, parent, a, b, arcs, weights)
    while count:
        count, components, joined = _round(
            a, b, arcs, weights, count, edge, parent[:components], number, best, least, chosen,
            joined,
        )  # fmt: skip
    return chosen[:joined]


@compiled
def mark_edges(edge: Any, arcs: Any, in_forest: Any) -> None:
    """Set the mark of each arc's edge."""
    for arc in arcs:
        in_forest[edge[arc]] = True
