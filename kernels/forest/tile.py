"""Minimum spanning forest of one tile, compressed to its border.

*Kinds of component.* All edges of a component without a border cell lie in the tile, so the least
edge that leaves such a component is in the minimum spanning forest of the whole grid (cut
property). A component with a border cell may have a lighter edge outside the tile.

*Phase 1.* Only components without a border cell choose their least edge and hook to the component
at its other end. Every chosen edge is therefore final. A component with a border cell never hooks,
so two such components are never joined: each has exactly one border cell, which represents it.
Keys are distinct, so the only cycle that hooks can close is that of two components that choose the
same edge; the one with the smaller number stays the root. Each round divides the number of
components that choose by two or more, and the phase ends when none has an edge left.

*Phase 2.* Contract the components to a graph on border cells. An edge outside the minimum spanning
forest of this graph is the greatest edge of a cycle in the tile, and so in the grid: it is out
(cycle property). The edges of this forest are tentative; they are fewer than the border cells. The
neighbouring tiles decide them. The forest of the grid consists of the final edges and the minimum
spanning forest of the tentative edges and the seams, because contraction preserves minimum spanning
forests.

*Speed.* Round 1 works on cells, in vector registers, and drops most edges (first_round.py). The
remaining edges are listed with the components they join, and the later rounds run on that list
(boruvka.py).

Order of the edges: ``"max"``: (max, min, edge id); others: (weight, edge id); edge id = (row-major
index of the first end, direction). Indices are int32 and a direction is packed below them: a tile
with its halo holds at most 2**29 cells. Borůvka: doi:10.1016/S0012-365X(00)00224-7.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from orograph.kernels.forest.boruvka import (
    LOW_HALF,
    gather_edges,
    hook_rounds,
    mark_edges,
    pick_edges,
)
from orograph.kernels.forest.exact_sum import fold_sum, power_below, sum_highest, sum_rows
from orograph.kernels.forest.first_round import (
    ROOT,
    choose_lightest,
    choose_lowest,
    choose_lowest_of_four,
    follow_choices,
    keep_all_of_four,
    keep_stars,
    mark_choices,
)
from orograph.kernels.forest.keys import make_keys, native_values, pad_heights
from orograph.kernels.forest.nibbles import count_bits, pack_nibbles, unpack_nibbles
from orograph.kernels.forest.weights import find_weight, number_of
from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError

MAX_CELLS = 2**29
OVERFLOW = 2.0**1022


class TileForest(NamedTuple):
    """A tile's contribution to the minimum spanning forest of the whole grid."""

    packed: Array
    """(ceil(h * w / 2),) uint8: final edges, which lie inside the tile, two cells a byte."""
    shape: tuple[int, int]
    """(h, w)."""
    edge_count: int
    """Number of final edges."""
    vertex_count: int
    """Number of valid cells."""
    total: int
    """Exact sum of the float64 weights of the mask's edges, in units of 2**-1074."""
    first: Array
    """(k,) int32: first end of each tentative edge, row-major in the tile."""
    direction: Array
    """(k,) uint8: its direction; the list ascends in (first, direction)."""
    a: Array
    """(k,) int32: border cell of the component of the first end, row-major in the tile."""
    b: Array
    """(k,) int32: border cell of the component of the other end."""

    @property
    def mask(self) -> Array:
        """(h, w) uint8: final edges, a bit for each direction."""
        mask = np.empty(self.shape, np.uint8)
        unpack_nibbles(self.packed, mask)
        return mask


def _border(sides: tuple[bool, bool, bool, bool], h: int, w: int) -> Array:
    """Return the row-major indices of the cells on the sides that touch another tile."""
    row, column = np.arange(w), np.arange(h) * w
    lines = (row, row + (h - 1) * w, column, column + w - 1)
    on = [line for side, line in zip(sides, lines) if side]
    return np.unique(np.concatenate(on)) if on else np.empty(0, np.int64)


def check_arguments(values: Array, weight: str, connectivity: int) -> int:
    """Check the arguments of `tile_forest`; return the number of cells of a padded row."""
    find_weight(weight)
    if connectivity not in (4, 8):
        raise InputError(f"connectivity: {connectivity!r} is neither 4 nor 8; pass one of them")
    if values.ndim != 2 or values.size == 0:
        raise InputError(f"values: shape {values.shape} is not that of a tile; pass (h, w) cells")
    h, w = values.shape
    stride: int = (w + 9) // 8 * 8  # a multiple of 8, so that eight cells make a word
    if (h + 2) * stride > MAX_CELLS:
        raise InputError(
            f"values: {h} x {w} cells with their halo are more than 2**29; use smaller tiles"
        )
    return stride


def check_magnitude(greatest: float, weight: str) -> None:
    """Raise InputError if the weights of heights of this magnitude could overflow."""
    if greatest > OVERFLOW:
        raise InputError(
            f"values: magnitude {greatest} is beyond 2**1022, where weight {weight!r} may"
            " overflow float64; scale the values down"
        )


def tile_forest(
    values: Array,
    nodata: float | None,
    sides: tuple[bool, bool, bool, bool],
    weight: str = "max",
    connectivity: int = 8,
) -> TileForest:
    """Return the minimum spanning forest of one tile, compressed to its border.

    Parameters
    ----------
    values : (h, w) array of any integer or float dtype up to 64 bits
        Heights. Cells that are not finite, or equal to ``nodata``, are not vertices.
    nodata : float or None
        The value that marks nodata.
    sides : four bools
        Whether the tile touches another tile on its north, south, west and east side. The valid
        cells of those sides are its border cells.
    weight : str
        Weight of the edge between two cells, one of `WEIGHTS`.
    connectivity : {8, 4}

    Returns
    -------
    TileForest
        The final edges, which are in the forest of the grid, and the tentative edges between the
        components of border cells. All other edges of the tile are not in the forest of the grid.

    Raises
    ------
    TypeError
        If the dtype is not real or has more than 64 bits.
    InputError
        If the tile has no cell or more than 2**29, if ``weight`` or ``connectivity`` is unknown,
        or if a weight other than ``"max"`` could overflow float64.

    Notes
    -----
    The result is unique: edges are totally ordered, and ties are broken by edge id. Round 1 takes
    time linear in the cells; each later round takes half the time of the one before, or less.

    References
    ----------
    Nešetřil, Milková, Nešetřilová (2001), doi:10.1016/S0012-365X(00)00224-7.

    Examples
    --------
    >>> tile_forest(np.array([[1, 2], [3, 4]]), None, (False,) * 4).mask
    array([[13,  0],
           [ 0,  0]], dtype=uint8)
    """
    stride = check_arguments(values, weight, connectivity)
    h, w = values.shape
    values, mark = native_values(values, nodata)
    diagonal, mode = connectivity == 8, number_of(weight)
    by_height = find_weight(weight).formula is None
    choice = np.full((h + 2, stride), ROOT)
    kept = np.zeros((h + 2, stride), np.uint8)
    sums, bins = np.zeros(4, np.int64), np.zeros((2, 2, 2048), np.int64)
    if by_height:
        made = make_keys(values, mark, stride)
        keys, valid = made.keys, made.valid
        missing = keys[0, 0]
        (choose_lowest if diagonal else choose_lowest_of_four)(keys, h, w, choice)
        (keep_stars if diagonal else keep_all_of_four)(keys, h, w, kept)
    else:
        keys = np.full((h + 2, stride), np.inf)
        missing = keys[0, 0]
        valid, greatest = pad_heights(
            values, values.dtype.type(0) if mark is None else mark, mark is not None, keys
        )
        check_magnitude(greatest, weight)
        choose_lightest(keys, h, w, mode, diagonal, choice, kept)
    for side, line in zip(sides, (choice[1], choice[h], choice[:, 1], choice[:, w])):
        if side:
            line[:] = ROOT
    flat = keys.reshape(-1)
    border = _border(sides, h, w)
    padded = (border // w + 1) * stride + border % w + 1
    at = flat[padded] != missing
    border, padded = border[at].astype(np.int32), padded[at]

    mask = np.empty((h, w), np.uint8)
    size = mark_choices(choice, kept, mask)
    words = kept.reshape(-1).view(np.uint64)
    parent = np.zeros(choice.size, np.int32)
    steps = np.array([1, stride - 1, stride, stride + 1])
    ways = np.concatenate((-steps[::-1], steps, [0])).astype(np.int32)
    count = follow_choices(words, ways, choice.reshape(-1), padded, parent)
    pair, high, tag = np.empty(size, np.uint64), np.empty(size, np.uint64), np.empty(size, np.int32)
    low = np.empty(size if by_height and keys.itemsize == 8 else 0, np.uint64)
    m = gather_edges(
        words, steps, parent, flat.view(f"u{keys.itemsize}"), mode, pair, high, low, tag
    )
    chosen = np.empty(count, np.int32)
    best, scratch = np.empty(count, np.uint64), np.empty((3, count), np.int32)
    edges = pair[:m], high[:m], low[:m], tag[:m]
    m, taken = hook_rounds(*edges, count, border.size, chosen, best, scratch)
    mark_edges(chosen[:taken], stride, mask)

    # Phase 2: the remaining edges join components of border cells.
    pair, tag = pair[:m], tag[:m]
    ends, tags = pair.copy(), tag.copy()
    _, taken = hook_rounds(pair, high[:m], low[:m], tag, border.size, 0, chosen, best, scratch)
    picked = np.empty(taken, np.int64)
    pick_edges(tags, chosen[:taken], stride, mask, picked)
    picked = picked[np.argsort(tags[picked])]
    ends, tags = ends[picked], tags[picked]
    cell = tags >> 2

    if by_height:
        scale = power_below(made.greatest)
        rows, values = np.zeros((3, w + 2), np.uint8), np.empty(w)
        sum_highest(keys, mask, made.kind, made.bias, made.gap, scale, sums, bins, rows, values)
    else:
        scale = power_below(2 * greatest)
        sum_rows(keys, mask, mode, scale, sums, bins)
    return TileForest(
        pack_nibbles(mask),
        (h, w),
        count_bits(mask),
        int(valid),
        fold_sum(scale, sums, bins),
        ((cell // stride - 1) * w + cell % stride - 1).astype(np.int32),
        (tags & 3).astype(np.uint8),
        border[(ends >> np.uint64(32)).astype(np.int64)],
        border[(ends & LOW_HALF).astype(np.int64)],
    )


def compile_kernels(dtype: Any, weight: str = "max", connectivity: int = 8) -> None:
    """Compile, or load from the cache, the functions for tiles of this dtype and weight."""
    tile = np.arange(16).reshape(4, 4) % 5
    tile_forest(tile.astype(dtype), 3, (True, False, True, False), weight, connectivity)
