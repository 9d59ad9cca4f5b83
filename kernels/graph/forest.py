"""The minimum spanning forest of a graph: Borůvka's algorithm.

Edges are totally ordered by weight, then by number, so the forest is unique. In a round each
component takes the least edge that leaves it, and edges whose ends have come together are dropped.
A round at least halves the components that have an edge left, so there are at most log2(n) rounds.

Rows: ``indptr`` (n + 1,), ``indices``, ``weight`` and ``edge`` (arcs,), each edge both ways with
the same weight and number; loops count for nothing. Union by linking to the smaller index, with
path halving. Serial.

Borůvka (1926); Nešetřil, Milková, Nešetřilová (2001), doi:10.1016/S0012-365X(00)00224-7.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled


@compiled
def _find(parent, vertex):
    while parent[vertex] != vertex:
        parent[vertex] = parent[parent[vertex]]
        vertex = parent[vertex]
    return vertex


@compiled
def _join(parent, a, b):
    """Join the components of two vertices; return whether they were two."""
    a, b = _find(parent, a), _find(parent, b)
    if a == b:
        return False
    if a < b:
        parent[b] = a
    else:
        parent[a] = b
    return True


@compiled
def _first_round(indptr, indices, weight, edge, parent, chosen):
    """Join each vertex along its least edge."""
    joined = 0
    for vertex in range(parent.size):
        best = -1
        for arc in range(np.int64(indptr[vertex]), np.int64(indptr[vertex + 1])):
            if indices[arc] == vertex:
                continue
            if (
                best < 0
                or weight[arc] < weight[best]
                or (weight[arc] == weight[best] and edge[arc] < edge[best])
            ):
                best = arc
        if best >= 0 and _join(parent, vertex, indices[best]):
            chosen[joined] = best
            joined += 1
    return joined


@compiled
def _remaining(indptr, indices, parent, a, b, arcs):
    """List the edges between components, once each; return how many there are."""
    count = 0
    for vertex in range(parent.size):
        here = parent[vertex]
        for arc in range(np.int64(indptr[vertex]), np.int64(indptr[vertex + 1])):
            if indices[arc] < vertex and parent[indices[arc]] != here:
                a[count], b[count], arcs[count] = here, parent[indices[arc]], arc
                count += 1
    return count


@compiled
def _round(a, b, arcs, count, weight, edge, parent, best, chosen, joined):
    """Join each component along its least edge; return how many edges are left and chosen."""
    for i in range(count):
        best[a[i]] = -1
        best[b[i]] = -1
    for i in range(count):
        w, e = weight[arcs[i]], edge[arcs[i]]
        for side in range(2):
            root = a[i] if side == 0 else b[i]
            held = best[root]
            if (
                held < 0
                or w < weight[arcs[held]]
                or (w == weight[arcs[held]] and e < edge[arcs[held]])
            ):
                best[root] = i
    for i in range(count):
        for side in range(2):
            if best[a[i] if side == 0 else b[i]] == i and _join(parent, a[i], b[i]):
                chosen[joined] = arcs[i]
                joined += 1
    left = 0
    for i in range(count):
        root_a, root_b = _find(parent, a[i]), _find(parent, b[i])
        if root_a != root_b:
            a[left], b[left], arcs[left] = root_a, root_b, arcs[i]
            left += 1
    return left, joined


@compiled
def spanning_forest(indptr: Any, indices: Any, weight: Any, edge: Any) -> Any:
    """Return the arcs of the forest, one an edge, int64."""
    n = indptr.size - 1
    parent = np.arange(n).astype(indices.dtype)
    chosen = np.empty(n, np.int64)
    joined = _first_round(indptr, indices, weight, edge, parent, chosen)
    for vertex in range(n):
        parent[vertex] = _find(parent, parent[vertex])
    most = indices.size // 2 + 1
    a = np.empty(most, indices.dtype)
    b = np.empty(most, indices.dtype)
    arcs = np.empty(most, np.int64)
    best = np.empty(n, np.int64)
    count = _remaining(indptr, indices, parent, a, b, arcs)
    while count:
        count, joined = _round(a, b, arcs, count, weight, edge, parent, best, chosen, joined)
    return chosen[:joined]
