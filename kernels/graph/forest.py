"""The minimum spanning forest of a graph: Borůvka's algorithm.

Edges are totally ordered by weight, then by number, so the forest is unique. In a round each
component takes the least edge that leaves it, and edges whose ends have come together are dropped.
A round at least halves the components that have an edge left, so there are at most log2(n) rounds.

Rows: ``indptr`` (n + 1,), ``indices``, ``weight`` and ``edge`` (arcs,), each edge both ways with
the same weight and number, heads ascending; loops count for nothing. Union by Rem's algorithm, see
`orograph.kernels.label.union_find`. What is kept of a list is written always, and its length grows
or not: a branch would often be guessed wrong. Serial.

Borůvka (1926); Nešetřil, Milková, Nešetřilová (2001), doi:10.1016/S0012-365X(00)00224-7.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.label.union_find import compress_paths, unite


@compiled
def _find(parent, vertex):
    while parent[vertex] != vertex:
        parent[vertex] = parent[parent[vertex]]
        vertex = parent[vertex]
    return vertex


@compiled
def _first_round(indptr, indices, weight, edge, parent, chosen):
    """Join each vertex along its least edge; return how many edges were chosen."""
    one = indices.dtype.type(1)
    joined = 0
    for index in range(parent.size):
        vertex = indices.dtype.type(index)
        best = indptr[vertex]
        found = False
        for arc in range(indptr[vertex], indptr[vertex + one]):
            if indices[arc] == vertex:
                continue
            if (
                not found
                or weight[arc] < weight[best]
                or (weight[arc] == weight[best] and edge[arc] < edge[best])
            ):
                best = arc
                found = True
        if found and unite(parent, vertex, indices[best]):
            chosen[joined] = best
            joined += 1
    return joined


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
def _less(weights, edge, arcs, i, k):
    return weights[i] < weights[k] or (weights[i] == weights[k] and edge[arcs[i]] < edge[arcs[k]])


@compiled
def _round(a, b, arcs, weights, count, edge, parent, best, chosen, joined):
    """Join each component along its least edge; return how many edges are left and chosen."""
    for i in range(count):
        best[a[i]] = i
        best[b[i]] = i
    for i in range(count):
        if _less(weights, edge, arcs, i, best[a[i]]):
            best[a[i]] = i
        if _less(weights, edge, arcs, i, best[b[i]]):
            best[b[i]] = i
    for i in range(count):
        if (best[a[i]] == i or best[b[i]] == i) and unite(parent, a[i], b[i]):
            chosen[joined] = arcs[i]
            joined += 1
    left = 0
    for i in range(count):
        root_a, root_b = _find(parent, a[i]), _find(parent, b[i])
        a[left], b[left], arcs[left], weights[left] = root_a, root_b, arcs[i], weights[i]
        left += root_a != root_b
    return left, joined


@compiled
def spanning_forest(indptr: Any, indices: Any, weight: Any, edge: Any) -> Any:
    """Return the arcs of the forest, one an edge, of the dtype of ``indptr``."""
    n = indptr.size - 1
    parent = np.arange(n).astype(indices.dtype)
    chosen = np.empty(n, indptr.dtype)
    joined = _first_round(indptr, indices, weight, edge, parent, chosen)
    compress_paths(parent)
    most = indices.size // 2 + 2
    a = np.empty(most, indices.dtype)
    b = np.empty(most, indices.dtype)
    arcs = np.empty(most, indptr.dtype)
    weights = np.empty(most, weight.dtype)
    best = np.empty(n, indptr.dtype)
    count = _remaining(indptr, indices, weight, parent, a, b, arcs, weights)
    while count:
        count, joined = _round(a, b, arcs, weights, count, edge, parent, best, chosen, joined)
    return chosen[:joined]
