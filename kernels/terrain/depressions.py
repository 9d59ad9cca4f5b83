"""Depressions of pits whose merges are decided, and the cells in them.

The water above a pit rises until it meets other water; then the depression is full, and a larger
one begins, which is that of the lower of the two pits. Waters that meet at one height make one
larger depression, however many they are. So a pit has a depression for each height at which others
yield to it, and one more, which ends where it yields itself.

Where pits are taken in the order in which they yield, those that yield to one pit come by height,
and a pit comes before the one to which it yields: so each function here is one loop over them. The
loops end because a pit yields at a later saddle, by (key, cell), than those that yield to it.

Keys are as `orograph.kernels.forest.order_keys` makes them. Serial, so deterministic.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.forest.keys import native_values, order_float
from orograph.tiles.arrays import Array, Indices, Keys


class Depressions(NamedTuple):
    """Depressions by pit; those of one pit are ordered from innermost to outermost."""

    first: Indices
    """(n + 1,): those of pit ``v`` are ``first[v]`` to ``first[v + 1]``."""
    level: Keys
    """(m,): where they end."""
    spill: Indices
    """(m,): the cell at which they spill."""
    parent: Indices
    """(m,): the depression in which each lies; -1: none; ``-2 - v``: that of the last of pit v."""
    spills_into: Indices
    """(m,): the depression into which each spills, likewise."""


class Water(NamedTuple):
    """The cells of a tile that are under water."""

    cells: npt.NDArray[np.int32]
    """Row-major in the tile, ascending."""
    pit: npt.NDArray[np.int32]
    """Lowest pit of the basins that are joined below the height of each of the cells."""
    key: Keys
    """Order keys of the heights of the cells."""


@compiled
def _count_up_to(levels: Any, start: int, stop: int, key: Any) -> int:
    """Return how many of some ascending levels are at most a key."""
    low, high = start, stop
    while low < high:
        middle = (low + high) // 2
        if levels[middle] <= key:
            low = middle + 1
        else:
            high = middle
    return low - start


@compiled
def _list_meetings(
    order: Any, own: Any, heir: Any, pit_key: Any, pit_cell: Any, key: Any, cell: Any, met: Any,
    group: Any, first: Any,
) -> int:  # fmt: skip
    """List for each pit and height the first that yields there; count the depressions of pits."""
    latest = np.full(own.size, -1)
    groups = 0
    for v in range(own.size):
        first[v + 1] = 1 if own[v] else 0
    for i in range(order.size):
        v = order[i]
        h = heir[v]
        if not own[v] or h < 0 or not own[h]:
            continue
        # Pits come by the height at which they yield, so those that yield to h at one height come
        # one after the other, and the latest group of h is the only one that can be theirs.
        g = latest[h]
        if g < 0 or key[met[g]] != key[v]:
            g = groups
            groups += 1
            latest[h] = g
            met[g] = v
            # A pit that yields at the same height as h adds no depression to h: that height ends
            # the last one anyway.
            if key[v] != key[h]:
                first[h + 1] += 1
        else:
            m = met[g]
            # at one saddle the lowest pit stands for all
            if cell[m] == cell[v] and (
                pit_key[v] < pit_key[m] or (pit_key[v] == pit_key[m] and pit_cell[v] < pit_cell[m])
            ):
                met[g] = v
        group[i] = g
    for v in range(own.size):
        first[v + 1] += first[v]
    return groups


@compiled
def _link_depressions(
    order: Any, own: Any, heir: Any, key: Any, cell: Any, met: Any, group: Any, first: Any,
    level: Any, spill: Any, parent: Any, into: Any,
) -> None:  # fmt: skip
    at_end = np.full(own.size, -1)
    place = first[:-1].copy()
    ending = np.empty(met.size, np.int64)
    # those that end where another yields
    for g in range(met.size):
        v = met[g]
        h = heir[v]
        d = place[h]
        ending[g] = d
        if d == first[h + 1] - 1:  # where the pit itself yields
            at_end[h] = v
            continue
        place[h] = d + 1
        level[d], spill[d] = key[v], cell[v]
        parent[d], into[d] = d + 1, first[v + 1] - 1
    # those that end where their own pit yields: in what is joined there in the end
    after = np.full(own.size, -1)
    for i in range(order.size - 1, -1, -1):
        v = order[i]
        if not own[v]:
            continue
        d = first[v + 1] - 1
        level[d], spill[d] = key[v], cell[v]
        h = heir[v]
        if h < 0:
            parent[d] = into[d] = -1
        elif not own[h]:
            parent[d] = into[d] = after[v] = -2 - v
        else:
            into[d] = ending[group[i]]
            if into[d] != first[h + 1] - 1:
                after[v], parent[d] = h, into[d] + 1
            else:  # the other yields at this height too
                a = after[h]
                after[v] = parent[d] = a
                if a >= 0:
                    parent[d] = first[a] + _count_up_to(level, first[a], first[a + 1] - 1, key[v])
        other = at_end[v]
        if (
            other >= 0 and cell[other] < cell[v]
        ):  # another yields at this height, at an earlier cell
            spill[d], into[d] = cell[other], first[other + 1] - 1


@compiled
def _find_outermost(heir: Any, outermost: Any) -> None:
    """Set to which pit each yields in the end: the last before the outside."""
    outermost[:] = -1
    for v in range(heir.size):
        top = v
        # Up to a pit that is known or yields to the outside; then all on the way are set.
        while outermost[top] < 0 and heir[top] >= 0:
            top = heir[top]
        if outermost[top] >= 0:
            top = outermost[top]
        below = v
        while outermost[below] < 0:
            outermost[below] = top
            if heir[below] >= 0:
                below = heir[below]


@compiled
def _find_water(
    values: Any, labels: Any, kind: int, died: Any, highest: Any, heir: Any, cells: Any, pit: Any,
    keys: Any,
) -> int:  # fmt: skip
    """List the cells under water, their keys, and the lowest pit that is joined below each.

    kind 0: heights are floats; 1: signed integers; 2: unsigned integers.
    """
    count = 0
    for i in range(values.size):
        z, p = values[i], np.int64(labels[i]) - 1
        if p >= 0 and z < highest[p]:
            # The water of the pit met another's no higher than here, so the cell lies in what they
            # made.
            while died[p] <= z:
                p = heir[p]
            cells[count], pit[count] = i, p
            if kind == 0:
                keys[count] = order_float(np.float64(z))
            elif kind == 1:
                # The order keys of `order_keys`: the sign bit is inverted, so that negative heights
                # come first.
                keys[count] = np.uint64(np.int64(z)) ^ (np.uint64(1) << np.uint64(63))
            else:
                keys[count] = np.uint64(z)
            count += 1
    return count


@compiled
def _renumber(links: Any, numbers: Any, elsewhere: Any, out: Any) -> None:
    for i in range(links.size):
        link = links[i]
        out[i] = numbers[link] if link >= 0 else elsewhere[-2 - link] if link < -1 else -1


@compiled
def _find_depressions(first: Any, level: Any, pit: Any, key: Any, found: Any) -> None:
    """Set the depressions of pits that hold cells of these heights; -1 where a pit has none."""
    for i in range(pit.size):
        start, stop = first[pit[i]], first[pit[i] + 1]
        found[i] = -1
        if stop > start:
            found[i] = start + _count_up_to(level, start, stop - 1, key[i])


def list_depressions(
    order: Indices,
    own: npt.NDArray[np.bool_],
    heir: Indices,
    pit_key: Keys,
    pit_cell: Indices,
    key: Keys,
    cell: Indices,
) -> Depressions:
    """Return the depressions of some pits.

    Parameters
    ----------
    order : (k,) int64
        Pits, those of them whose depressions are wanted among them, from the first that yields on.
    own : (n,) bool
        Whose depressions are wanted. All that yield to one of them are among them.
    heir : (n,) int64
        The pit to which each yields; -1: the outside.
    pit_key, pit_cell : (n,) uint64, (n,) int64
        The pits.
    key, cell : (n,) uint64, (n,) int64
        The saddles at which they yield.

    Examples
    --------
    >>> keys, cells = np.array([2, 3], np.uint64), np.arange(2)
    >>> died = np.array([7, 4], np.uint64)
    >>> found = list_depressions(
    ...     cells[::-1], cells >= 0, np.array([-1, 0]), keys, cells, died, np.array([9, 8])
    ... )
    >>> found.level, found.parent, found.spills_into
    (array([4, 7, 4], dtype=uint64), array([ 1, -1,  1]), array([ 2, -1,  0]))
    """
    met, group = np.empty((2, order.size), np.int64)
    first = np.zeros(own.size + 1, np.int64)
    groups = _list_meetings(order, own, heir, pit_key, pit_cell, key, cell, met, group, first)
    count = int(first[-1])
    level, (spill, parent, into) = np.empty(count, np.uint64), np.empty((3, count), np.int64)
    _link_depressions(
        order, own, heir, key, cell, met[:groups], group, first, level, spill, parent, into
    )
    return Depressions(first, level, spill, parent, into)


def find_outermost(heir: Indices) -> Indices:
    """Return to which pit each yields in the end, before the outside: (n,) int64."""
    outermost = np.empty_like(heir)
    _find_outermost(heir, outermost)
    return outermost


def find_water(values: Array, labels: Array, died: Array, highest: Array, heir: Indices) -> Water:
    """Return the cells of a tile under water, with the lowest pit that is joined below each.

    Parameters
    ----------
    values : (h, w)
        Heights.
    labels : (h, w) uint16 or int32
        The basin of each cell, from 1; 0: nodata.
    died, highest : (n,), of the dtype of the heights
        Where each pit yields, and where the last does to which it yields in the end.
    heir : (n,) int64
        To which it yields.
    """
    values, _ = native_values(values, None)
    died, highest = (levels.astype(values.dtype, copy=False) for levels in (died, highest))
    (cells, pit), keys = np.empty((2, values.size), np.int32), np.empty(values.size, np.uint64)
    flat, kind = np.ascontiguousarray(values).reshape(-1), "fiu".index(values.dtype.kind)
    count = _find_water(flat, labels.reshape(-1), kind, died, highest, heir, cells, pit, keys)
    return Water(cells[:count], pit[:count], keys[:count])


def find_depressions(found: Depressions, pit: Array, key: Keys) -> Indices:
    """Return the depressions of pits that hold cells of some heights; -1 if a pit has none."""
    numbers = np.empty(pit.size, np.int64)
    _find_depressions(found.first, found.level, pit, key, numbers)
    return numbers


def renumber(links: Indices, numbers: Indices, elsewhere: Indices) -> Indices:
    """Return the numbers of linked depressions: of ``-2 - v`` ``elsewhere[v]``, of -1 itself."""
    out = np.empty_like(links)
    _renumber(links, numbers, elsewhere, out)
    return out


def compile_kernels(dtype: Any) -> None:
    """Compile, or load from the cache, the functions for tiles of this dtype."""
    one, key = np.zeros(1, np.int64), np.ones(1, np.uint64)
    found = list_depressions(one, one == 0, one - 1, key - 1, one, key, one)
    find_outermost(one - 1)
    renumber(one, one, one)
    heights = np.zeros((1, 1), dtype)
    for labels in (np.ones((1, 1), np.uint16), np.ones((1, 1), np.int32)):
        _, pit, _ = find_water(heights, labels, heights[0] + 1, heights[0] + 1, one - 1)
    for pits in (pit, one):
        find_depressions(found, pits, key - 1)
