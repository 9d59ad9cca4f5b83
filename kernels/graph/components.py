"""The connected components of a graph in compressed rows.

In the order in which vertices are stored, most have a neighbour that comes later. So joining each
to its last neighbour leaves few trees, or one (*join_last*). If one of them holds most vertices,
these are not looked at again: what belongs to it is found from the other side, as in Afforest
(*join_others*). Else each edge is looked at once (*join_rows*).

`orograph.kernels.label.union_find` describes Rem's algorithm, and does the same for a list of
edges. Each edge stands in the rows both ways, heads in ascending order. Of a part of a graph, whose
rows are a range of the graph's, only edges between its vertices are joined. Parents have the dtype
of ``indices``. A parent is never greater than its vertex, so the root of a component is its
smallest vertex, whatever the order in which it was joined. Serial.

Afforest: Sutton, Ben-Nun, Barak (2018), doi:10.1109/IPDPS.2018.00012.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.label.union_find import compress_paths, unite
from orograph.tiles.arrays import Array

SAMPLE = 1024
"""Vertices that are asked for the tree in which most are."""


@compiled
def join_last(indptr, indices, parent):
    """Make trees of each vertex and its last neighbour if that is greater; all lead to the root."""
    one = indices.dtype.type(1)
    n = parent.size
    for i in range(n):
        # From the last vertex down: the last neighbour, if it comes later, already leads to the
        # greatest vertex of its tree.
        vertex = indices.dtype.type(n - 1 - i)
        begin, end = indptr[vertex], indptr[vertex + one]
        last = indices[end - indptr.dtype.type(1)] if begin < end else vertex
        parent[vertex] = parent[last] if last > vertex else vertex
    # A parent must not be greater than its vertex, so trees are renamed after their smallest
    # vertex.
    smallest = np.full(n, n, parent.dtype)
    for vertex in range(n):  # of those that lead to one vertex the first comes first
        greatest = parent[vertex]
        smallest[greatest] = min(smallest[greatest], parent.dtype.type(vertex))
        parent[vertex] = smallest[greatest]


@compiled
def join_last_inside(indptr, indices, first, parent):
    """Do as `join_last` in a part beginning with vertex `first`; return how many arcs leave it."""
    n = parent.size
    past = first + n
    leaving = 0
    for i in range(n):
        vertex = n - 1 - i
        begin, end = indptr[vertex], indptr[vertex + 1]
        # Heads ascend in a row, so the arcs that leave the part stand at its ends.
        while begin < end and indices[end - 1] >= past:
            end -= 1
            leaving += 1
        last = np.int64(indices[end - 1]) - first if begin < end else vertex
        while begin < end and indices[begin] < first:
            begin += 1
            leaving += 1
        parent[vertex] = parent[last] if last > vertex else vertex
    smallest = np.full(n, n, parent.dtype)
    for vertex in range(n):
        greatest = parent[vertex]
        smallest[greatest] = min(smallest[greatest], parent.dtype.type(vertex))
        parent[vertex] = smallest[greatest]
    return leaving


@compiled
def join_inside(indptr, indices, first, parent, root):
    """Do as `join_others` in a part that begins with vertex `first`.

    With `root` = n no tree is left out.
    """
    n = parent.size
    for vertex in range(n):
        if parent[vertex] != root:
            tail = parent.dtype.type(vertex)
            for arc in range(indptr[vertex], indptr[vertex + 1]):
                head = np.int64(indices[arc]) - first
                if 0 <= head < n:
                    unite(parent, tail, parent.dtype.type(head))


@compiled
def join_last_of_part(indptr, indices, first, parent, crossing):
    """Do as `join_last` for the vertices of a part, and heads in it, among parents of the graph.

    `indptr` counts from the first arc of the graph. The vertices from which arcs lead to earlier
    parts are written to `crossing`, from 0 in the part; returns how many there are.
    """
    one = np.uint64(1)
    base = np.uint64(indptr[0])
    n = np.uint64(indptr.size - 1)
    low, past = np.uint64(first), np.uint64(first) + n
    count = np.uint64(0)
    end = np.uint64(indptr[n]) - base
    for i in range(n):
        # Rows are visited from the last one back: where one begins, the one that is visited next
        # ends.
        own = n - one - i
        vertex = low + own
        begin = np.uint64(indptr[own]) - base
        last, crosses = vertex, False
        if begin < end:
            crosses = indices[begin] < low
            arc = end - one
            last = np.uint64(indices[arc])
            while last >= past and arc > begin:
                arc -= one
                last = np.uint64(indices[arc])
            last = vertex if last >= past else last
        end = begin
        parent[vertex] = parent[last] if last > vertex else vertex
        # Written always; counted if an arc leads to an earlier part.
        crossing[count] = own
        count += np.uint64(crosses)
    smallest = np.full(n, past, parent.dtype)
    for own in range(n):
        greatest = np.uint64(parent[low + own]) - low
        smallest[greatest] = min(smallest[greatest], parent.dtype.type(low + own))
        parent[low + own] = smallest[greatest]
    return count


@compiled
def join_part(indptr, indices, first, parent, root, crossing):
    """Join the ends of the arcs of a part that do not lead to later parts.

    As in `join_others` arcs within the part are left out where the parent is `root`; if that is no
    vertex, each edge is looked at once. `crossing` are vertices from which arcs lead to earlier
    parts.
    """
    base = np.int64(indptr[0])
    n = indptr.size - 1
    low = parent.dtype.type(first)
    past = parent.dtype.type(first + n)
    for own in range(n):
        tail = parent.dtype.type(first + own)
        if parent[tail] != root:
            # With a tree left out, an edge may be visited from one end only, so all arcs within the
            # part are visited. Otherwise each edge is visited once, from its greater end.
            end = past if root < parent.size else tail
            for arc in range(np.int64(indptr[own]) - base, np.int64(indptr[own + 1]) - base):
                if indices[arc] >= end:  # heads ascend
                    break
                if indices[arc] >= low:
                    unite(parent, tail, indices[arc])
    # Edges between parts are joined by the later part, when the parents of the earlier one are set.
    for own in crossing:
        tail = parent.dtype.type(first + own)
        for arc in range(np.int64(indptr[own]) - base, np.int64(indptr[own + 1]) - base):
            if indices[arc] >= low:
                break
            unite(parent, tail, indices[arc])


@compiled
def leaving_arcs(indptr, indices, first, arcs):
    """Write tail and head of each arc that leaves a part, of which there are as many as columns."""
    n = indptr.size - 1
    count = 0
    for vertex in range(n):
        begin, end = indptr[vertex], indptr[vertex + 1]
        # Heads ascend: the ends of the row tell whether an arc leaves.
        if begin == end or (indices[begin] >= first and indices[end - 1] < first + n):
            continue
        for arc in range(begin, end):
            if not first <= indices[arc] < first + n:
                arcs[0, count] = first + vertex
                arcs[1, count] = indices[arc]
                count += 1


@compiled
def number_roots(root, position, member, firsts, sizes):
    """Number the roots from 0 in place of naming them; return how many there are.

    `member` is the number of each vertex's root. Of each root `firsts` is the first place in the
    source, and `sizes` how many vertices lead to it.
    """
    count = 0
    begin, latest = 0, 0
    for vertex in range(root.size):
        above = root[vertex]
        place = position[vertex]
        if above == vertex:
            number = count
            firsts[count] = place
            sizes[count] = 0
            count += 1
        else:  # a root comes before all that it is the root of
            number = np.int64(member[above])
            firsts[number] = min(firsts[number], place)
        member[vertex] = number
        if number != latest:  # runs are added at once
            sizes[latest] += vertex - begin
            begin, latest = vertex, number
    if count:
        sizes[latest] += root.size - begin
    return count


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


@compiled
def number_places(first: Any) -> None:
    """Replace the first place of each place's component by the component's number, from 1."""
    count = 0
    for place in range(first.size):
        if first[place] == place:
            count += 1
            first[place] = count
        else:  # it comes before, and has its number already
            first[place] = first[first[place]]


@compiled
def write_firsts(place: Any, member: Any, firsts: Any, labels: Any) -> None:
    """Write for each vertex of a part, at its place in the source, that of its component."""
    for vertex in range(place.size):
        labels[place[vertex]] = firsts[member[vertex]]


def part_components(
    indptr: Array, indices: Array, first: int, position: Array
) -> tuple[Array, Array, Array, Array]:
    """Return the components of a part of a graph, joined by edges between its vertices.

    Parameters
    ----------
    indptr : (n + 1,)
        Where the arcs of each vertex begin, from 0 in the part.
    indices : (arcs,)
        The heads of the part's arcs, as vertices of the whole graph.
    first : int
        The part's first vertex.
    position : (n,) int64
        The place in the source of each of its vertices.

    Returns
    -------
    member : (n,) of the dtype of ``indices``
        The component of each vertex, from 0.
    firsts : (components,) int64
        The least place in the source of each component.
    sizes : (components,) int64
        The number of vertices of each component.
    leaving : (2, k) int64
        Tails and heads of the arcs that lead to other parts, tails in ascending order.
    """
    n = indptr.size - 1
    parent, member = np.empty((2, n), indices.dtype)
    leaving = np.empty((2, join_last_inside(indptr, indices, first, parent)), np.int64)
    join_inside(indptr, indices, first, parent, _largest_tree(parent, n))
    compress_paths(parent)
    leaving_arcs(indptr, indices, first, leaving)
    firsts, sizes = np.empty((2, n), np.int64)
    count = number_roots(parent, position, member, firsts, sizes)
    return member, firsts[:count].copy(), sizes[:count].copy(), leaving


def _largest_tree(parent: Array, otherwise: int) -> int:
    """Return the root to which most of a sample of vertices lead, if more than half of them do."""
    roots, counts = np.unique(parent[:: parent.size // SAMPLE + 1], return_counts=True)
    most = 2 * counts.max(initial=0) > counts.sum()
    return int(roots[counts.argmax()]) if most else otherwise


def join_parts(parts: Iterable[tuple[int, tuple[Array, Array]]], parent: Array) -> None:
    """Write the smallest vertex of each vertex's component, given the parts of a graph in order.

    Parameters
    ----------
    parts
        The first vertex of each part, and its rows: ``indptr`` (own + 1,), which counts from the
        first arc of the graph, and ``indices``. Edges lead both ways.
    parent : (n,) of the dtype of ``indices``
    """
    for first, (indptr, indices) in parts:
        n = indptr.size - 1
        crossing = np.empty(n + 1, np.uint32)
        count = join_last_of_part(indptr, indices, first, parent, crossing)
        root = _largest_tree(parent[first : first + n], parent.size)
        join_part(indptr, indices, first, parent, root, crossing[:count])
    compress_paths(parent)


def graph_components(rows: tuple[Array, Array, Array]) -> Array:
    """Return the smallest vertex of each vertex's component, (n,), of the dtype of ``indices``."""
    indptr, indices, _ = rows
    n = indptr.size - 1
    parent = np.empty(n, indices.dtype)
    join_last(indptr, indices, parent)
    root = _largest_tree(parent, n)
    if root < n:
        join_others(indptr, indices, parent, indices.dtype.type(root))
    else:
        join_rows(indptr, indices, parent)
    compress_paths(parent)
    return parent
