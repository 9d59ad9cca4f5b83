"""Basins of a tile, and the saddles at which they meet.

A cell is *lower* than another by (key, row-major index). A pit has no lower neighbour. Every other
cell leads to one of its lower neighbours, and so down to a pit; the cells that lead to one pit are
its basin. Along the way down no cell is higher than the first. So the least greatest height on any
path between two cells is that between their pits, or the height of one of the two cells.

Basins meet at saddles. The lower neighbours of a cell fall into groups, connected among themselves
by steps between two of them. Only a cell with two groups or more joins what is not joined below it,
and one edge from the cell to each group suffices: any other edge is the highest of a cycle. Almost
no cell of a slope is a saddle; of white noise about one in four.

Source: the lower link of discrete Morse theory, as in H. Edelsbrunner, J. Harer, A. Zomorodian,
"Hierarchical Morse-Smale complexes", doi:10.1007/s00454-003-2926-5.

Keys are as `orograph.kernels.forest.keys` makes them, in a halo of one cell. Indices are int32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from orograph.kernels.bits import trailing_zeros
from orograph.kernels.compiled import compiled
from orograph.kernels.forest.keys import make_keys, native_values
from orograph.tiles.arrays import Array


def _first_of_groups(lower: int, connectivity: int) -> int:
    """Return a set of neighbours, one bit each: the first of each group of lower neighbours.

    Bits 0 to 7 are W NW N NE E SE S SW. The first four precede the cell in row-major order.
    """
    bits = [i for i in range(8) if lower >> i & 1]
    group = {i: i for i in bits}
    # Twice round the ring, so that a group which goes on over its end becomes one.
    for i in 2 * bits:
        # next in the ring; and two sides of the cell touch at a corner
        for j in ((i + 1) % 8, (i + 2) % 8)[: 2 if connectivity == 8 and i % 2 == 0 else 1]:
            if j in group:
                old, new = max(group[i], group[j]), min(group[i], group[j])
                group = {k: new if g == old else g for k, g in group.items()}
    # with 4 neighbours corners join two sides, and are not neighbours themselves
    own = [i for i in bits if connectivity == 8 or i % 2 == 0]
    return sum(1 << i for i in own if i == min(j for j in own if group[j] == group[i]))


FIRST_OF_GROUPS = {
    connectivity: np.array([_first_of_groups(m, connectivity) for m in range(256)], np.uint8)
    for connectivity in (4, 8)
}
"""The first neighbour of each group, one bit each, by connectivity and set of lower neighbours."""


@compiled
def _find_lower(keys, y, w, out):
    """Set a bit for each lower neighbour of the cells of a row."""
    c = keys[y + 1, 1 : w + 1]
    nw, nn, ne = keys[y, 0:w], keys[y, 1 : w + 1], keys[y, 2 : w + 2]
    ww, ee = keys[y + 1, 0:w], keys[y + 1, 2 : w + 2]
    sw, ss, se = keys[y + 2, 0:w], keys[y + 2, 1 : w + 1], keys[y + 2, 2 : w + 2]
    for x in range(w):
        k = c[x]
        # Of equal heights the earlier cell is the lower one, so the four neighbours before the cell
        # are compared by "not higher", those behind it by "lower". No branch depends on the
        # heights.
        r = np.uint8(1) if ww[x] <= k else np.uint8(0)
        r |= np.uint8(2) if nw[x] <= k else np.uint8(0)
        r |= np.uint8(4) if nn[x] <= k else np.uint8(0)
        r |= np.uint8(8) if ne[x] <= k else np.uint8(0)
        r |= np.uint8(16) if ee[x] < k else np.uint8(0)
        r |= np.uint8(32) if se[x] < k else np.uint8(0)
        r |= np.uint8(64) if ss[x] < k else np.uint8(0)
        r |= np.uint8(128) if sw[x] < k else np.uint8(0)
        out[x] = r


@compiled
def _label_basins(keys, groups, labels, pits, saddles, ways):
    """Label each cell with the number of its pit, from 1; return the numbers of pits and saddles.

    labels : (h, w) int32; 0 where there is no cell.
    pits, saddles, ways : (h * w,); what there is, in row-major order. ways are the groups of the
        saddles' lower neighbours.
    """
    h, w = labels.shape
    missing = keys[0, 0]
    step = np.array([-1, -w - 1, -w, 1 - w, 1, w + 1, w, w - 1])
    lower = np.empty(w, np.uint8)
    flat = labels.reshape(-1)
    pit, saddle = 0, 0
    for y in range(h):
        _find_lower(keys, y, w, lower)
        row = keys[y + 1, 1 : w + 1]
        for x in range(w):
            first = np.uint64(groups[lower[x]])
            i = y * w + x
            if row[x] == missing:
                flat[i] = 0
            elif first == 0:
                pits[pit] = i
                pit += 1
                flat[i] = pit
            else:
                d = trailing_zeros(first)
                t = i + step[d]
                # an earlier neighbour's label, or where that one leads; or ~t of a later one
                flat[i] = flat[t] if d < 4 else ~t
                # More than one group of lower neighbours.
                if first & (first - np.uint64(1)):
                    saddles[saddle] = i
                    ways[saddle] = first
                    saddle += 1
    # Cells that lead to later ones. Each step goes to a lower cell, so it ends at a pit.
    for i in range(h * w - 1, -1, -1):
        t = flat[i]
        if t < 0:
            while t < 0:
                t = flat[~t]
            j = i
            # All cells on the way get the label too, so each is passed twice at most.
            while flat[j] < 0:
                after = ~flat[j]
                flat[j] = t
                j = after
    return pit, saddle


@compiled
def _link_basins(labels, saddles, ways, first, second, cell):
    """List the pairs of basins that meet at saddles, in the order of these; return their number."""
    w = labels.shape[1]
    step = np.array([-1, -w - 1, -w, 1 - w, 1, w + 1, w, w - 1])
    flat = labels.reshape(-1)
    m = 0
    for s in range(saddles.size):
        i = saddles[s]
        rest = np.uint64(ways[s])
        rest &= rest - np.uint64(1)  # the saddle itself leads to the first
        while rest != 0:
            other = flat[i + step[trailing_zeros(rest)]]
            rest &= rest - np.uint64(1)
            if other != flat[i]:
                first[m] = flat[i] - 1
                second[m] = other - 1
                cell[m] = i
                m += 1
    return m


@compiled
def _lowest_of_each(cells, keys, labels, lowest):
    """Set for each basin the position of the lowest of some of its cells; the others are -1."""
    lowest[:] = -1
    for i in range(cells.size):
        basin = labels[cells[i]] - 1
        best = lowest[basin]
        if best < 0 or keys[i] < keys[best]:
            lowest[basin] = i


@compiled
def _raise_cells(values, labels, levels, out):
    """Copy values, raising those below the level of their label to that level."""
    h, w = values.shape
    for y in range(h):
        for x in range(w):
            # Not the maximum: a comparison with NaN is false, so NaN stays.
            level = levels[labels[y, x]]
            z = values[y, x]
            out[y, x] = level if level > z else z


class TileBasins(NamedTuple):
    """Basins of a tile, and the edges between adjacent basins."""

    labels: Array
    """(h, w) uint16 or int32: number of the basin, from 1; 0 where there is no cell."""
    pits: Array
    """(n,) int32: lowest cell of each basin, row-major in the tile, ascending."""
    first: Array
    """(m,) int32: one basin of each edge, from 0."""
    second: Array
    """(m,) int32: the other."""
    cell: Array
    """(m,) int32: the saddle, the higher end of the edge; ascending."""


def tile_basins(
    values: Array, nodata: float | None, connectivity: int, upside_down: bool = False
) -> TileBasins:
    """Return the basins of a tile, and the edges at its saddles.

    Parameters
    ----------
    values : (h, w) array of any integer or float dtype up to 64 bits
        Heights. Cells that are not finite, or equal to ``nodata``, are in no basin.
    nodata : float or None
        The value that marks nodata.
    connectivity : {8, 4}
    upside_down : bool
        Order heights from high to low; of equal heights the first cell is still the lower.

    Returns
    -------
    TileBasins
        A minimum spanning forest of the edges, by the order of their saddles, joins the basins as
        one of all edges of the tile does, weighted by the higher of their two cells.

    Examples
    --------
    >>> basins = tile_basins(np.array([[1, 9, 2]]), None, 8)
    >>> basins.labels, basins.pits, basins.cell
    (array([[1, 1, 2]], dtype=uint16), array([0, 2], dtype=int32), array([1], dtype=int32))
    """
    h, w = values.shape
    values, mark = native_values(values, nodata)
    keys = make_keys(values, mark, (w + 9) // 8 * 8).keys
    if upside_down:
        missing = keys[0, 0]
        # Reverses the order of valid cells; missing cells keep the greatest key.
        np.subtract(missing - 1, keys, out=keys, where=keys != missing)
    labels = np.empty((h, w), np.int32)
    pits, saddles = np.empty((2, h * w), np.int32)
    ways = np.empty(h * w, np.uint8)
    count, m = _label_basins(keys, FIRST_OF_GROUPS[connectivity], labels, pits, saddles, ways)
    edges = np.empty((3, 3 * m), np.int32)  # a saddle has at most four groups
    m = _link_basins(labels, saddles[:m], ways[:m], *edges)
    first, second, cell = edges[:, :m].copy()
    if count < 2**16:
        labels = labels.astype(np.uint16)
    return TileBasins(labels, pits[:count].copy(), first, second, cell)


def lowest_of_each(cells: Array, keys: Array, labels: Array, count: int) -> Array:
    """Return the positions of the lowest of some cells in each of ``count`` basins.

    ``cells`` are row-major indices, ascending, with their ``keys``; of equal keys the first counts.
    Basins without one of them are left out.
    """
    lowest = np.empty(count, np.int64)
    _lowest_of_each(cells, keys, labels.reshape(-1), lowest)
    found: Array = lowest[lowest >= 0]
    return found


def raise_cells(values: Array, labels: Array, levels: Array) -> Array:
    """Return values raised to at least ``levels[label]``; all arrays have the same dtype.

    Cells that are NaN stay what they are.
    """
    values, _ = native_values(values, None)
    out = np.empty_like(values)
    _raise_cells(values, labels, levels, out)
    return out


def compile_kernels(dtype: Any) -> None:
    """Compile, or load from the cache, the functions for tiles of this dtype."""
    values = (np.arange(16).reshape(4, 4) % 5).astype(dtype)
    tile = tile_basins(values, 3, 8)
    cells = np.arange(1)
    for labels in (tile.labels, tile.labels.astype(np.int32)):
        lowest_of_each(cells, cells.astype(np.uint64), labels, tile.pits.size)
        raise_cells(values, labels, np.zeros(tile.pits.size + 1, values.dtype))
