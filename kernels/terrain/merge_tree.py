"""Merge tree of basins: which basin joins which, and at which saddle.

Vertices are basins, edges the saddles at which they meet. Kruskal's algorithm takes the edges from
the lowest up, so it joins components as rising water does. Where two components meet, the one with
the higher pit yields to the other. A component is *open* if it may be joined by lower edges that
are not here: it reaches the border of the node, or holds a terminal. Then

- if the component that yields is closed, all its edges are known, and none is lower: its pit is
  decided, and yields here, whatever else the other component holds;
- if it is open, it may meet something lower first. The edge is passed up, between the lowest
  vertices of the two components.

Those lowest vertices and the open ones are kept for the parent. A closed vertex is kept only if
its pit is lower than all that is known of an open component that it joins: few of them are.

Sources: the elder rule of persistence, H. Edelsbrunner, D. Letscher, A. Zomorodian,
doi:10.1007/s00454-002-2885-2; the binary partition tree by altitude, L. Najman, J. Cousty,
B. Perret, doi:10.1007/978-3-642-38294-9_12. Serial, so deterministic.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.label.union_find import find_root
from orograph.tiles.arrays import Indices


class Merged(NamedTuple):
    """Result of merging a graph: decided vertices, their saddles, and what the parent needs."""

    dead: Indices
    """Vertices that are decided, in the order in which they yielded."""
    heir: Indices
    """Lowest vertex here of the component to which each decided vertex yielded."""
    saddle: Indices
    """Edge along which each decided vertex yielded."""
    kept: Indices
    """Vertices kept for the parent, ascending."""
    up: Indices
    """Edges that are passed up."""
    ends: Indices
    """(k, 2): the two vertices between which they are passed up."""


@compiled
def _merge(
    first: Any, second: Any, order: Any, rank: Any, open_: Any, keep: Any, died: Any, up: Any
) -> tuple[int, int]:
    """Merge; vertices are numbered by rank here, so of two the lower number has the lower pit."""
    parent = np.arange(rank.size).astype(np.int32)
    # a loop without branches waits less for memory
    ends = np.empty((order.size, 2), np.int32)
    for i in range(order.size):
        ends[i, 0], ends[i, 1] = rank[first[order[i]]], rank[second[order[i]]]
    dead, passed = 0, 0
    for i in range(order.size):
        edge = order[i]
        a = find_root(parent, ends[i, 0])
        b = find_root(parent, ends[i, 1])
        if a == b:
            continue
        if b < a:
            a, b = b, a
        # Component a has the lower pit, so b yields. Vertices are numbered by their pits, so the
        # smallest vertex of a component is its root and its lowest pit.
        parent[b] = a
        if open_[b]:
            # The component that yields may have lower edges outside, so from now on the union may,
            # too.
            open_[a] = True
            keep[a] = True
            up[passed, 0], up[passed, 1], up[passed, 2] = edge, a, b
            passed += 1
        else:
            died[dead, 0], died[dead, 1], died[dead, 2] = b, a, edge
            dead += 1
    return dead, passed


@compiled
def _spread_levels(
    dead: Any, heir: Any, weight: Any, level: Any, reached: Any, pit_key: Any, pit_cell: Any
) -> None:
    for i in range(dead.size - 1, -1, -1):
        v, a = dead[i], heir[i]
        # In reverse order, so that the level of the vertex to which this one yielded is known: it
        # yielded later, or is kept. A basin fills up to its saddle; where the water beyond stands
        # higher, both are one.
        reached[v] = reached[a]
        if weight[i] >= level[a]:
            level[v] = weight[i]
        else:
            level[v] = level[a]
            pit_key[v] = pit_key[a]
            pit_cell[v] = pit_cell[a]


@compiled
def _find_heirs(dead: Any, met: Any, key: Any, cell: Any, heir: Any) -> None:
    for i in range(dead.size - 1, -1, -1):
        # In reverse order: the heirs of the other component are known.
        v, a = dead[i], met[i]
        # of all that meet at one saddle only the lowest lives on
        while key[a] < key[v] or (key[a] == key[v] and cell[a] <= cell[v]):
            a = heir[a]
        heir[v] = a


def merge_tree(
    first: npt.NDArray[Any],
    second: npt.NDArray[Any],
    order: Indices,
    pits: Indices,
    open_: npt.NDArray[np.bool_],
) -> Merged:
    """Return which vertices yield to which, and what is passed up to the parent.

    Parameters
    ----------
    first, second : (m,) int
        The two vertices of each edge, fewer than 2**31.
    order : (m,) int64
        The edges, from the lowest up.
    pits : (n,) int64
        The vertices, from that with the lowest pit up.
    open_ : (n,) bool
        Which vertices may have lower edges elsewhere.
    """
    count = pits.size
    rank = np.empty(count, np.int32)
    rank[pits] = np.arange(count, dtype=np.int32)
    died, up = np.empty((count, 3), np.int64), np.empty((count, 3), np.int64)
    keep = open_[pits]
    ends = first.astype(np.int32, copy=False), second.astype(np.int32, copy=False)
    dead, passed = _merge(*ends, order, rank, keep.copy(), keep, died, up)
    gone, heir, saddle = died[:dead].T.copy()
    return Merged(
        pits[gone], pits[heir], saddle, np.sort(pits[keep]), up[:passed, 0], pits[up[:passed, 1:]]
    )


def spread_levels(
    dead: Indices,
    heir: Indices,
    weight: npt.NDArray[np.uint64],
    level: npt.NDArray[np.uint64],
    reached: npt.NDArray[np.bool_],
    pit_key: npt.NDArray[np.uint64],
    pit_cell: Indices,
) -> None:
    """Set the water levels of decided vertices, from those of the kept ones, in place.

    Parameters
    ----------
    dead, heir
        As in `Merged`.
    weight : (k,) uint64
        Keys of the heights at which they yielded.
    level, reached : (n,) uint64, (n,) bool
        Key of the level at which water stands in each basin, and whether it comes from a terminal.
    pit_key, pit_cell : (n,) uint64, (n,) int64
        Lowest cell of the depression that is under water with the basin. Given are the basins' own.
    """
    _spread_levels(dead, heir, weight, level, reached, pit_key, pit_cell)


def find_heirs(
    dead: Indices,
    met: Indices,
    key: npt.NDArray[np.uint64],
    cell: Indices,
    heir: Indices,
) -> None:
    """Set to which vertex each decided one yields, from those of the kept ones, in place.

    Parameters
    ----------
    dead, met
        As ``dead`` and ``heir`` in `Merged`: the lowest vertex *here* of the component that it met.
    key, cell : (n,) uint64, (n,) int64
        Saddle at which each vertex yields; that of one that does not is after all others.
    heir : (n,) int64
        The lowest vertex of all that it met.
    """
    _find_heirs(dead, met, key, cell, heir)


def compile_kernels() -> None:
    """Compile, or load from the cache."""
    one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
    keys = np.zeros(2, np.uint64)
    tree = merge_tree(zero, one, zero, np.arange(2), np.zeros(2, np.bool_))
    spread_levels(tree.dead, tree.heir, keys[:1], keys, keys > 0, keys, np.arange(2))
    find_heirs(tree.dead, tree.heir, np.arange(1, -1, -1).astype(np.uint64), one, np.full(2, -1))
