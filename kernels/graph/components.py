"""The connected components of a graph in compressed rows.

In the order in which vertices are stored, most have a neighbour that comes later. So joining each
to its last neighbour leaves few trees, or one (*join_last*). If one of them holds most vertices,
these are not looked at again: what belongs to it is found from the other side, as in Afforest
(*join_others*). Else each edge is looked at once (*join_rows*).

`orograph.kernels.label.union_find` describes Rem's algorithm, and does the same for a list of
edges. Each edge stands in the rows both ways, heads in ascending order. Parents have the dtype of
``indices``. A parent is never greater than its vertex, so the root of a component is its smallest
vertex, whatever the order in which it was joined. Serial.

Afforest: Sutton, Ben-Nun, Barak (2018), doi:10.1109/IPDPS.2018.00012.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.label.union_find import compress_paths, unite

SAMPLE = 1024
"""Vertices that are asked for the tree in which most are."""

Array = npt.NDArray[Any]


@compiled
def join_last(indptr, indices, parent):
    """Make trees of each vertex and its last neighbour if that is greater; all lead to the root."""
    one = indices.dtype.type(1)
    n = parent.size
    for i in range(n):
        vertex = indices.dtype.type(n - 1 - i)
        begin, end = indptr[vertex], indptr[vertex + one]
        last = indices[end - indptr.dtype.type(1)] if begin < end else vertex
        parent[vertex] = parent[last] if last > vertex else vertex
    smallest = np.full(n, n, parent.dtype)
    for vertex in range(n):  # of those that lead to one vertex the first comes first
        greatest = parent[vertex]
        smallest[greatest] = min(smallest[greatest], parent.dtype.type(vertex))
        parent[vertex] = smallest[greatest]


@compiled
def join_others(indptr, indices, parent, root):
    """Join the components of the ends of all arcs that leave vertices of other trees than one.

    A vertex whose parent is `root` is in its component. So no edge is left out: if it is looked at
    from neither end, both are in that component.
    """
    one = indices.dtype.type(1)
    for vertex in range(parent.size):
        tail = indices.dtype.type(vertex)
        if parent[tail] != root:
            for arc in range(indptr[tail], indptr[tail + one]):
                unite(parent, tail, indices[arc])


@compiled
def join_rows(indptr, indices, parent):
    """Join the components of each edge's ends."""
    one = indices.dtype.type(1)
    for vertex in range(parent.size):
        tail = indices.dtype.type(vertex)
        for arc in range(indptr[tail], indptr[tail + one]):
            if indices[arc] >= tail:  # heads ascend
                break
            unite(parent, tail, indices[arc])


@compiled
def number_components(root: Any, stored: Any, labels: Any) -> Any:
    """Number components from 1 by their first vertex in the source; return how large they are.

    `stored` is the stored vertex at each place of the source.
    """
    numbers = np.zeros(root.size, root.dtype)
    sizes = np.empty(root.size, np.int64)
    count, begin, latest = 0, 0, 0
    for place in range(stored.size):
        first = root[stored[place]]
        number = int(numbers[first])
        if number == 0:
            sizes[count] = 0
            count += 1
            number = count
            numbers[first] = count
        labels[place] = number
        if number != latest:  # runs are added at once
            if latest:
                sizes[latest - 1] += place - begin
            latest, begin = number, place
    if latest:
        sizes[latest - 1] += stored.size - begin
    return sizes[:count].copy()


def graph_components(rows: tuple[Array, Array, Array]) -> Array:
    """Return the smallest vertex of each vertex's component, (n,), of the dtype of ``indices``."""
    indptr, indices, _ = rows
    parent = np.empty(indptr.size - 1, indices.dtype)
    join_last(indptr, indices, parent)
    roots, counts = np.unique(parent[:: parent.size // SAMPLE + 1], return_counts=True)
    if 2 * counts.max(initial=0) > counts.sum():
        join_others(indptr, indices, parent, roots[counts.argmax()])
    else:
        join_rows(indptr, indices, parent)
    compress_paths(parent)
    return parent
