"""The class `Graph`: compressed rows, with vertices reordered for locality and cut into parts.

Users see vertices in the order of the source, with its ids. Internally they are *stored* in another
order (`orograph.tiles.graph.order`), in which a part is a range of vertices; all parts have about
the same number of arcs. An *arc* leads from one stored vertex to another. A directed edge is one
arc; an undirected edge is two arcs, or one if it is a loop.

Arrays, with one element for each vertex or arc:

- ``indptr`` (n + 1,), ``indices`` (arcs,), unsigned words of 32 bits while they suffice, else
  int64: the heads of the arcs of each stored vertex, in ascending order;
- ``weight`` (arcs,): int32, int64 or float64;
- ``edge`` (arcs,): the number of the edge in the source;
- ``position`` (n,): the position of each stored vertex in the source;
- ``ids`` (n,): the ids of the vertices, in the order of the source;
- ``x``, ``y`` (n,), optional: coordinates, in the order of the source;
- ``edge_both_ways`` (arcs,), for a stored directed graph in which every edge has a reverse: the
  smaller of the numbers of the two edges.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple, cast

import numpy as np

from orograph.tiles import html
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.errors import InputError
from orograph.tiles.graph.order import storage_order

MOST_WEIGHT = 2**59
WEIGHTS_AT_ONCE = 2**24
PART_ARCS = 2**25
"""Number of arcs of a part by default: some 600 MB."""
VERTEX_BYTES, EDGE_BYTES = 48, 160
"""Greatest number of bytes of a vertex and of an edge while a graph is made in memory; measured."""
JOINED_ARCS = 2**22
"""Number of arcs up to which parts of a graph are joined: they would not save their 100 MB."""


VerticesLike = Hashable | Iterable[Hashable] | Array
"""Vertices of a graph: the id of one, or the ids of some, as the graph's source has them."""


class Rows(NamedTuple):
    """Adjacency in CSR form: the arcs that leave, or enter, each stored vertex."""

    indptr: Array
    indices: Array
    weight: Array


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """Graph with weighted edges, created by `read_graph`.

    Attributes
    ----------
    directed
        Whether edges are directed.
    edge_count
        Number of edges in the source, including parallel edges and loops.
    unit
        Unit of the weights, such as that of travel times by `roads`; None if it is not known.

    Examples
    --------
    >>> import scipy.sparse
    >>> import orograph as og
    >>> og.read_graph(scipy.sparse.coo_array([[0, 2], [0, 0]]), directed=True)
    <Graph: 2 vertices, 1 directed edges, 1 part>
    """

    arrays: Mapping[str, Any]
    """NumPy arrays, or Zarr arrays of a stored graph, by name."""
    directed: bool
    edge_count: int
    bounds: tuple[int, ...]
    """The first stored vertex of each part, and the number of vertices."""
    unit: str | None = field(default_factory=lambda: None, kw_only=True)

    def _repr_html_(self) -> str:
        rows = {
            "vertices": self.vertex_count,
            "edges": f"{self.edge_count}, {'directed' if self.directed else 'undirected'}",
            "parts": self.part_count,
        }
        return html.table("Graph", rows)

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        parts = f"{self.part_count} part{'s' * (self.part_count > 1)}"
        return f"<Graph: {self.vertex_count} vertices, {self.edge_count} {kind} edges, {parts}>"

    @property
    def vertex_count(self) -> int:
        """Number of vertices."""
        return int(self.arrays["position"].shape[0])

    @property
    def arc_count(self) -> int:
        """Number of arcs: an undirected edge counts as two."""
        return int(self.arrays["indices"].shape[0])

    @property
    def part_count(self) -> int:
        """Number of parts."""
        return len(self.bounds) - 1

    @cached_property
    def rows(self) -> Rows:
        """Outgoing arcs of all stored vertices in CSR form, in memory."""
        return Rows(*(np.asarray(self.arrays[name][:]) for name in Rows._fields))

    @cached_property
    def incoming(self) -> Rows:
        """Incoming arcs of all stored vertices in CSR form; ``indices`` are their tails."""
        if not self.directed:
            return self.rows
        # parallel arcs are in the order of their weights already
        (_, indices, weight), order = self.rows, self._by_head
        return Rows(_starts(indices, self.vertex_count), self.tails[order], weight[order])

    @cached_property
    def position(self) -> Integers:
        """Index in the source of each stored vertex."""
        return np.asarray(self.arrays["position"][:])

    @cached_property
    def stored(self) -> Integers:
        """Stored vertex of each index in the source; the inverse of ``position``."""
        return inverse(self.position)

    @cached_property
    def edge(self) -> Array:
        """Edge number in the source of each arc."""
        return np.asarray(self.arrays["edge"][:])

    @cached_property
    def ids(self) -> Array:
        """Ids of the vertices, in the order of the source."""
        return np.asarray(self.arrays["ids"][:])

    @cached_property
    def coordinates(self) -> dict[str, Array]:
        """Arrays ``x`` and ``y`` of the vertices in the order of the source, if known."""
        return {name: np.asarray(self.arrays[name][:]) for name in "xy" if name in self.arrays}

    @cached_property
    def weight_range(self) -> tuple[float, float]:
        """Least and greatest weight; (0, 0) without edges."""
        return self._weights[:2]

    @cached_property
    def mean_weight(self) -> float:
        """Mean weight of the arcs; 0 without arcs."""
        return self._weights[2] / max(self.arc_count, 1)

    @cached_property
    def _weights(self) -> tuple[float, float, float]:
        """Least weight, greatest weight, and approximate sum of weights."""
        if self.arc_count == 0:
            return 0, 0, 0.0
        found = []
        # Weights of a stored graph are read in pieces, since all may not fit into memory.
        for begin in range(0, self.arc_count, WEIGHTS_AT_ONCE):
            weight = np.asarray(self.arrays["weight"][begin : begin + WEIGHTS_AT_ONCE])
            found.append((weight.min().item(), weight.max().item(), weight.sum(dtype=np.float64)))
        least, greatest, total = zip(*found, strict=True)
        return min(least), max(greatest), float(sum(total))

    def joined(self) -> Graph:
        """Return the graph as a single part if it has few arcs, else unchanged.

        Small parts cost more than they save: the search enters each of them many times, and each
        entry costs as much as some thousand vertices.
        """
        few = self.arc_count <= JOINED_ARCS
        return self._in_one_part if few and self.part_count > 1 else self

    @cached_property
    def _in_one_part(self) -> Graph:
        """This graph as a single part, cached so that its arrays are read once."""
        return replace(self, bounds=(0, self.vertex_count))

    def part_rows(self, part: int, weighted: bool = True) -> Rows:
        """Return the outgoing arcs of a part's vertices in CSR form, counted from the part.

        Without ``weighted``, weights are not read and not returned.
        """
        indptr, indices = self.part_heads(part)
        begin = int(self.arrays["indptr"][self.bounds[part]]) if weighted else 0
        weight = np.asarray(self.arrays["weight"][begin : begin + weighted * indices.size])
        return Rows(indptr, indices, weight)

    def part_heads(self, part: int) -> tuple[Array, Array]:
        """Return ``indptr`` and ``indices`` of a part's outgoing arcs, counted from the part."""
        first, last = self.bounds[part : part + 2]
        indptr = np.asarray(self.arrays["indptr"][first : last + 1])
        indices = np.asarray(self.arrays["indices"][int(indptr[0]) : int(indptr[-1])])
        return indptr - indptr[0], indices

    def vertices(self, ids: VerticesLike, argument: str) -> Integers:
        """Return the stored vertices of one id or of a list of ids.

        Raises
        ------
        InputError
            If an id is not a vertex of the graph.
        """
        # A tuple may be the id of one vertex, or a list of ids: it is an id if the graph has it.
        one = self._place(ids) is not None or _is_scalar(ids)
        listed: list[object] = [ids] if one else list(cast("Iterable[Hashable]", ids))
        if not listed:
            raise InputError(f"{argument}: empty; name one vertex at least")
        if ids is None:
            raise InputError(f"{argument}: None; name one vertex at least")
        places = [self._place(label) for label in listed]
        if None in places:
            wrong, all_ids = listed[places.index(None)], self.ids
            known = f"{all_ids[0]} to {all_ids[-1]}" if all_ids.size else "none at all"
            raise InputError(
                f"{argument}: {wrong!s} is none of the graph's {self.vertex_count} vertices, "
                f"{known}; pass ids of the source"
            )
        return self.stored[np.array(places, np.int64)]

    def _place(self, label: object) -> int | None:
        """Return the index of a vertex id in the source, or None if there is no such id."""
        if isinstance(label, np.generic):
            label = label.item()
        # True is equal to 1, and would be taken for that id.
        if isinstance(label, bool) or not isinstance(label, Hashable):
            return None
        if self._numbers is not None:
            return self._numbers.get(label)
        place = label - int(self.ids[0]) if isinstance(label, int) and self.ids.size else -1
        return place if 0 <= place < self.vertex_count else None

    @cached_property
    def _numbers(self) -> dict[Any, int] | None:
        """Index in the source by id; None if ids are consecutive integers."""
        ids = self.ids
        if ids.dtype.kind in "iu" and (ids[1:] - ids[:-1] == 1).all():
            return None
        return {label: place for place, label in enumerate(ids.tolist())}

    @cached_property
    def tails(self) -> Array:
        """Tail of each arc."""
        return tails_of(self.rows)

    @cached_property
    def _by_head(self) -> Integers:
        """Indices that sort the arcs by head, then tail, weight and edge."""
        return np.argsort(self.rows.indices, kind="stable")

    @cached_property
    def edge_both_ways(self) -> Array:
        """Number of each arc's edge, or of its reverse if that is less."""
        if "edge_both_ways" in self.arrays:
            return np.asarray(self.arrays["edge_both_ways"][:])
        return self.edge if not self.directed else np.minimum(self.edge, self.edge[self._by_head])

    @cached_property
    def one_way(self) -> int | None:
        """First arc whose edge lacks a reverse of equal weight; None if there is none."""
        if not self.directed or "edge_both_ways" in self.arrays:
            return None
        (_, indices, weight), order = self.rows, self._by_head
        # If every arc has a reverse of its weight, the arcs sorted by tail and those sorted by head
        # are one list, with the two ends exchanged.
        different = (indices != self.tails[order]) | (weight != weight[order])
        different |= self.tails != indices[order]
        if not different.any():
            return None
        # Otherwise arcs are counted by tail, head and weight, as parallel edges may be alike. An
        # arc lacks a reverse if there are more of its kind than of the kind the other way.
        _, rank = np.unique(weight, return_inverse=True)
        there, back = (self.tails, indices, rank), (indices, self.tails, rank)
        arcs = np.concatenate([np.stack(ends, 1) for ends in (there, back)]).astype(np.int64)
        _, kind = np.unique(arcs, axis=0, return_inverse=True)
        kind = kind.reshape(-1)  # NumPy 2.0 gives it a second axis
        counts = [np.bincount(side, minlength=kind.max() + 1) for side in np.split(kind, 2)]
        lone = np.flatnonzero((counts[0] > counts[1])[kind[: weight.size]])
        return int(lone[self.edge[lone].argmin()])

    def with_both_ways(self) -> Graph:
        """Return the graph with the array ``edge_both_ways`` if all edges have reverses."""
        if not self.directed or self.one_way is not None:
            return self
        return replace(self, arrays={**self.arrays, "edge_both_ways": self.edge_both_ways})

    def __getstate__(self) -> dict[str, Any]:
        # not what has been read: tasks read their own parts
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def need_both_ways(self, operation: str) -> None:
        """Raise InputError if any edge lacks a reverse of equal weight.

        Raises
        ------
        InputError
            If there is such an edge; the error names it.
        """
        arc = self.one_way
        if arc is None:
            return
        rows = self.rows
        names = [self.ids[self.position[v]] for v in (self.tails[arc], rows.indices[arc])]
        raise InputError(
            f"graph: {operation} takes edges both ways, and edge {self.edge[arc]} ({names[0]} to "
            f"{names[1]}, weight {rows.weight[arc]}) or the one back is missing or has another "
            "weight; read the graph with directed=False to take each edge both ways"
        )


def _is_scalar(label: Any) -> bool:
    try:
        return isinstance(label, (str, bytes)) or np.ndim(label) == 0
    except ValueError:  # lists of several lengths
        return False


def inverse(permutation: Integers) -> Integers:
    """Return the inverse of a permutation."""
    back = np.empty(permutation.size, np.int64)
    back[permutation] = np.arange(permutation.size)
    return back


def tails_of(rows: Rows) -> Array:
    """Return the tail of each arc of CSR rows."""
    n = rows.indptr.size - 1
    return np.repeat(np.arange(n, dtype=rows.indices.dtype), np.diff(rows.indptr))


def _starts(vertex: Array, n: int) -> Array:
    """Return the CSR index pointer of arcs sorted by vertex."""
    indptr = np.zeros(n + 1, _word(vertex.size + 1))
    np.cumsum(np.bincount(vertex, minlength=n), out=indptr[1:])
    return indptr


def _word(count: int) -> type[np.unsignedinteger[Any]] | type[np.int64]:
    return np.uint32 if count < 2**32 else np.int64


def refuse_large_graph(n: int, m: int, argument: str = "source") -> None:
    """Raise InputError if building a graph of this size needs more memory than is free.

    Raises
    ------
    InputError
        If the memory is not sufficient; the error names the numbers of vertices and edges, and the
        bytes.
    """
    import psutil

    needed, free = VERTEX_BYTES * n + EDGE_BYTES * m, psutil.virtual_memory().available
    if needed > free:
        few = "; leave out vertices without edges, or number the others anew" if n > 4 * m else ""
        raise InputError(
            f"{argument}: a graph of {n} vertices and {m} edges takes {needed} bytes, and {free} "
            f"are free{few or '; use a machine with more memory'}"
        )


def make_graph(
    tail: Integers,
    head: Integers,
    weight: Array,
    ids: Array,
    *,
    directed: bool,
    coordinates: tuple[Array, Array] | None = None,
    parts: int | None = None,
) -> Graph:
    """Build a graph from a list of edges.

    Parameters
    ----------
    tail, head : (m,) int64
        The ends of each edge: positions of vertices in ``ids``; checked by the caller.
    weight : (m,)
        Real numbers; checked here.
    ids : (n,)
        Ids of the vertices.
    directed
        Whether edges only lead from tail to head.
    coordinates
        x and y of the vertices.
    parts
        Number of parts; by default one for each 2**25 arcs.

    Raises
    ------
    InputError
        If there are no vertices, a weight is not finite, or an integer one is not below 2**59 in
        magnitude.
    """
    n, m = ids.size, tail.size
    if not n:
        raise InputError("source: it has no vertices; a graph has one vertex at least")
    weight = _checked_weights(weight, tail, head, ids)
    position = storage_order(n, tail, head, coordinates)
    stored = inverse(position)
    first, second = stored[tail], stored[head]
    edge = np.arange(m)
    if not directed:
        # A loop needs no second arc.
        back = np.flatnonzero(first != second)
        first, second = np.append(first, second[back]), np.append(second, first[back])
        weight, edge = np.append(weight, weight[back]), np.append(edge, edge[back])
    # By tail, then head, and parallel arcs by weight, on which `incoming` relies.
    order = np.lexsort((weight, second, first))
    indptr = _starts(first, n)
    arrays = {
        "indptr": indptr,
        "indices": second[order].astype(_word(n)),
        "weight": weight[order],
        "edge": edge[order].astype(_word(m)),
        "position": position,
        "ids": ids,
    }
    if coordinates is not None:
        arrays |= dict(zip("xy", coordinates, strict=True))
    count = max(1, -(-first.size // PART_ARCS)) if parts is None else parts
    return Graph(arrays, directed, m, _part_bounds(indptr, count))


def _checked_weights(weight: Array, tail: Integers, head: Integers, ids: Array) -> Array:
    """Return weights as int32, int64 or float64; refuse unusable values."""
    if weight.dtype.kind not in "iufb":
        raise InputError(f"weight: {weight.dtype} are no weights; use integers or floats")
    if weight.dtype.kind == "f":
        wrong = np.flatnonzero(~np.isfinite(weight))
        bound, kept = "finite; leave out edges that are not there", weight.astype(np.float64)
    else:
        wrong = np.flatnonzero((weight >= MOST_WEIGHT) | (weight <= -MOST_WEIGHT))
        bound = "between -2**59 and 2**59 in integers; pass floats, or a larger unit"
        # By Python's integers: the absolute value of the least int64 is beyond int64.
        small = not weight.size or max(abs(int(weight.min())), int(weight.max())) < 2**31
        kept = weight.astype(np.int32 if small else np.int64)
    if wrong.size:
        e = int(wrong[0])
        raise InputError(
            f"weight: edge {e} ({ids[tail[e]]} to {ids[head[e]]}) has weight {weight[e]}; weights "
            f"are {bound}"
        )
    return kept


def _part_bounds(indptr: Array, parts: int) -> tuple[int, ...]:
    """Divide the vertices into ranges with about equally many arcs; return their bounds."""
    n = indptr.size - 1
    if isinstance(parts, bool) or not isinstance(parts, Integral) or not 1 <= parts <= max(n, 1):
        raise InputError(f"parts: {parts!r}; it must be a whole number, 1 to {n}, the vertices")
    # `indptr` counts the arcs before each vertex, so a bound is where it reaches the part's share.
    shares = np.arange(1, parts) * (int(indptr[-1]) / parts)
    inner: Sequence[int] = np.searchsorted(indptr, shares).tolist()
    bounds = [0]
    for number, bound in enumerate(inner, 1):  # a vertex at least in each part
        bounds.append(min(max(bound, bounds[-1] + 1), n - (parts - number)))
    return (*bounds, n)
