"""Minimum spanning forest of one tile, compressed to its border.

*Kinds of component.* A tile sees every edge of a component that holds no border cell, so the least
edge that leaves such a component is in the minimum spanning forest of the whole grid (cut
property). A component that holds a border cell may have a lesser edge outside the tile.

*Phase 1.* Only components without a border cell choose their least edge and hook on to the
component at its other end. Every chosen edge is therefore final. A component that holds a border
cell never hooks, so it never meets another one: each component that can still leave holds exactly
one border cell, which names it. Distinct keys let hooks close no cycle but two components choosing
the same edge; the smaller number of the two stays the root. Each round halves the components that
choose, at least, and the phase ends when none finds an edge.

*Phase 2.* Contract the components. What is left is a graph on border cells; an edge outside its
minimum spanning forest is the greatest of some cycle, in the tile and so in the grid: out for good
(cycle property). The edges of that forest, at most one fewer than there are border cells, are
tentative; tiles around decide them. The forest of the grid is what the final edges are, plus the
forest of tentative edges and seams: contraction keeps minimum spanning forests.

*Speed.* Round 1 works on cells: each takes its least edge, a row at a time in vector registers. So
does a second filter: the four cells of a 2 x 2 block are all neighbours, and an edge that is the
greatest of a triangle is in no forest (cycle property). Of an 8-neighbour slope next to nothing is
left after both, of white noise 0.75 edges a cell. Then cells are led to their roots by sweeps
without branches (follow_choices), the edges that are left are listed with the components they join
(gather_edges), and the further rounds run on that list (hook_rounds). It stays in order of edge
id, so that a strict "less" on the key breaks ties by edge id.

Order of the edges: ``"max"``: (max, min, edge id); others: (weight, edge id); edge id = (row-major
index of the first end, direction). Indices are int32 and a direction is packed below them: a tile
with its halo holds at most 2**29 cells. Borůvka: doi:10.1016/S0012-365X(00)00224-7.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from orograph.kernels.compiled import compiled
from orograph.tiles.errors import InputError

Array = NDArray[Any]
WEIGHTS = ("max", "absolute_difference", "mean")
MAX_CELLS = 2**29
OVERFLOW = 2.0**1022
ROOT = np.uint8(8)  # choice of a cell that hooks on to no neighbour
BAND = 32  # rows whose pointers stay in the second-level cache
PIECE = 8192  # cells whose exact sum fits int64: 2**13 of them, 8 times 2**46 each
LOWER = 2.0**40  # how far below the first sum the second one reaches
FULL = np.uint64(0xFFFFFFFFFFFFFFFF)
LOW_HALF = np.uint64(0xFFFFFFFF)
ROOT_BITS = np.uint64(0x1010101010101010)
EDGE_BITS = np.uint64(0x0F0F0F0F0F0F0F0F)


class TileForest(NamedTuple):
    """What a tile knows of the forest of the whole grid."""

    mask: Array
    """(h, w) uint8: edges inside the tile that are in the forest for good."""
    vertex_count: int
    """Number of valid cells."""
    total: int
    """Exact sum of the float64 weights of the mask's edges, in units of 2**-1074."""
    first: Array
    """(k,) int32: first end of each tentative edge, row-major in the tile."""
    direction: Array
    """(k,) uint8: its direction; the list ascends in (first, direction)."""
    a: Array
    """(k,) int32: the border cell whose component holds the first end."""
    b: Array
    """(k,) int32: the border cell whose component holds the other end."""


@intrinsic
def _trailing_zeros(typingctx: Any, word: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


@compiled
def pad_keys(bits, limits, has_nodata, keys):
    """Map values to ordered unsigned keys inside a halo of nodata (all ones).

    limits : of the keys' dtype: what to flip below and from the sign bit on, the sign bit, -0.0 (or
        0), the least and the greatest key of a valid cell, and that of nodata.
    Returns the numbers of valid cells and of those whose key is all ones too, and the least and
    greatest valid keys.
    """
    h, w = bits.shape
    low, high, sign, minus_zero, least, greatest, nodata = limits
    full = keys[0, 0]
    key_type = keys.dtype.type
    valid = 0
    clash = 0
    bottom = full
    top = key_type(0)
    for y in range(h):
        row = bits[y]
        out = keys[y + 1, 1 : w + 1]
        for x in range(w):
            v = key_type(row[x])
            v = key_type(0) if v == minus_zero else v
            k = key_type(v ^ (high if v >= sign else low))
            ok = (k >= least) & (k <= greatest) & ((k != nodata) | (not has_nodata))
            valid += ok
            clash += ok & (k == full)
            top = max(top, k if ok else key_type(0))
            k = k if ok else full
            bottom = min(bottom, k)
            out[x] = k
    return valid, clash, bottom, top


@compiled
def choose_lowest(keys, h, w, diagonal, choice):
    """Let each cell take its lowest neighbour: its least edge under (max, min, id).

    The neighbours are tried in the order of their edges' ids (NW N NE W E SW S SE are 0 to 7).
    """
    full = keys[0, 0]
    for y in range(h):
        out = choice[y + 1, 1 : w + 1]
        c = keys[y + 1, 1 : w + 1]
        nw, nn, ne = keys[y, 0:w], keys[y, 1 : w + 1], keys[y, 2 : w + 2]
        ww, ee = keys[y + 1, 0:w], keys[y + 1, 2 : w + 2]
        sw, ss, se = keys[y + 2, 0:w], keys[y + 2, 1 : w + 1], keys[y + 2, 2 : w + 2]
        if diagonal:
            for x in range(w):
                b = nw[x]
                d = np.uint8(0)
                k = nn[x]
                d = np.uint8(1) if k < b else d
                b = min(k, b)
                k = ne[x]
                d = np.uint8(2) if k < b else d
                b = min(k, b)
                k = ww[x]
                d = np.uint8(3) if k < b else d
                b = min(k, b)
                k = ee[x]
                d = np.uint8(4) if k < b else d
                b = min(k, b)
                k = sw[x]
                d = np.uint8(5) if k < b else d
                b = min(k, b)
                k = ss[x]
                d = np.uint8(6) if k < b else d
                b = min(k, b)
                k = se[x]
                d = np.uint8(7) if k < b else d
                b = min(k, b)
                out[x] = d if (b != full) & (c[x] != full) else ROOT
        else:
            for x in range(w):
                b = nn[x]
                d = np.uint8(1)
                k = ww[x]
                d = np.uint8(3) if k < b else d
                b = min(k, b)
                k = ee[x]
                d = np.uint8(4) if k < b else d
                b = min(k, b)
                k = ss[x]
                d = np.uint8(6) if k < b else d
                b = min(k, b)
                out[x] = d if (b != full) & (c[x] != full) else ROOT


@compiled
def keep_stars(keys, h, w, diagonal, kept):
    """Set the bits of the edges that no triangle rules out.

    Under (max, min) the forest of a 2 x 2 block is the star of its lowest cell, so an edge stays
    if its lower end is the lowest cell of every block the edge is in. Equal heights: the edge goes
    if the triangle's other two have lower ids; ids ascend as ab ac ad bc bd cd in a block ab/cd.
    """
    full = keys[0, 0]
    for y in range(h):
        out = kept[y + 1, 1 : w + 1]
        u1, u2 = keys[y, 1 : w + 1], keys[y, 2 : w + 2]
        c0, c1, c2 = keys[y + 1, 0:w], keys[y + 1, 1 : w + 1], keys[y + 1, 2 : w + 2]
        d0, d1, d2 = keys[y + 2, 0:w], keys[y + 2, 1 : w + 1], keys[y + 2, 2 : w + 2]
        if diagonal:
            for x in range(w):
                p, e, s, v, sw, se = c1[x], c2[x], d1[x], c0[x], d0[x], d2[x]
                lo = min(p, e)
                bit = (max(p, e) != full) & (min(u1[x], u2[x]) > lo) & (min(s, se) >= lo)
                r = np.uint8(bit)
                lo = min(p, sw)
                bit = (max(p, sw) != full) & (v > lo) & (s >= lo)
                r |= np.uint8(np.uint8(bit) << 1)
                lo = min(p, s)
                bit = (max(p, s) != full) & (v > lo) & (min(sw, min(e, se)) >= lo)
                r |= np.uint8(np.uint8(bit) << 2)
                lo = min(p, se)
                bit = (max(p, se) != full) & (min(e, s) >= lo)
                out[x] = np.uint8(r | np.uint8(np.uint8(bit) << 3))
        else:
            for x in range(w):
                p = c1[x]
                r = np.uint8(max(p, c2[x]) != full)
                out[x] = np.uint8(r | np.uint8(np.uint8(max(p, d1[x]) != full) << 2))


@compiled
def pad_heights(values, nodata, has_nodata, heights):
    """Copy values as float64 into a halo of inf; return the valid and the greatest magnitude."""
    h, w = values.shape
    valid = 0
    greatest = 0.0
    for y in range(h):
        row = values[y]
        out = heights[y + 1, 1 : w + 1]
        for x in range(w):
            z = np.float64(row[x])
            ok = (abs(z) < np.inf) & ((row[x] != nodata) | (not has_nodata))
            z = z + 0.0 if ok else np.inf
            valid += ok
            greatest = max(greatest, abs(z) if ok else 0.0)
            out[x] = z
    return valid, greatest


@compiled
def weigh_row(heights, y, w, mean, diagonal, out):
    """Weights (4, w + 2) of the edges of padded row y by direction; inf where there is none."""
    for d in range(4):
        row = out[d]
        if d % 2 == 1 and not diagonal:
            row[:] = np.inf
            continue
        row[0] = np.inf
        row[w + 1] = np.inf
        first = heights[y, 1 : w + 1]
        if d == 0:
            other = heights[y, 2 : w + 2]
        else:
            other = heights[y + 1, d - 1 : w - 1 + d]
        target = row[1 : w + 1]
        if mean:
            for x in range(w):
                target[x] = (first[x] + other[x]) / 2
        else:
            for x in range(w):
                t = abs(first[x] - other[x])
                target[x] = t if t == t else np.inf


@compiled
def choose_lightest(heights, h, w, mean, diagonal, choice, kept):
    """For any weight: each cell's least edge, and the edges that no triangle rules out.

    Edges go by (weight, id); ids ascend as ab ac ad bc bd cd in a block ab/cd.
    """
    ring = np.full((3, 4, w + 2), np.inf)
    weigh_row(heights, 1, w, mean, diagonal, ring[0])
    for y in range(h):
        up, at, down = ring[(y + 2) % 3], ring[y % 3], ring[(y + 1) % 3]
        if y + 1 < h:
            weigh_row(heights, y + 2, w, mean, diagonal, down)
        else:
            down[:] = np.inf
        out = choice[y + 1, 1 : w + 1]
        nw, nn, ne = up[3, 0:w], up[2, 1 : w + 1], up[1, 2 : w + 2]
        ww, ee = at[0, 0:w], at[0, 1 : w + 1]
        sw, ss, se = at[1, 1 : w + 1], at[2, 1 : w + 1], at[3, 1 : w + 1]
        for x in range(w):
            b = nw[x]
            d = np.uint8(0)
            k = nn[x]
            d = np.uint8(1) if k < b else d
            b = k if k < b else b
            k = ne[x]
            d = np.uint8(2) if k < b else d
            b = k if k < b else b
            k = ww[x]
            d = np.uint8(3) if k < b else d
            b = k if k < b else b
            k = ee[x]
            d = np.uint8(4) if k < b else d
            b = k if k < b else b
            k = sw[x]
            d = np.uint8(5) if k < b else d
            b = k if k < b else b
            k = ss[x]
            d = np.uint8(6) if k < b else d
            b = k if k < b else b
            k = se[x]
            d = np.uint8(7) if k < b else d
            b = k if k < b else b
            out[x] = d if b < np.inf else ROOT
        stay = kept[y + 1, 1 : w + 1]
        ue, us, use, usw, us2 = (
            up[0, 1 : w + 1],
            up[2, 1 : w + 1],
            up[3, 1 : w + 1],
            up[1, 2 : w + 2],
            up[2, 2 : w + 2],
        )
        sw2, ss2, de = at[1, 2 : w + 2], at[2, 2 : w + 2], down[0, 1 : w + 1]
        ss0, se0, de0 = at[2, 0:w], at[3, 0:w], down[0, 0:w]
        for x in range(w):
            ab, ac, ad, bc, bd, cd = ee[x], ss[x], se[x], sw2[x], ss2[x], de[x]
            east = ((ab > ac) & (ab > bc)) | ((ab > ad) & (ab > bd))
            south = ((ac >= ab) & (ac > bc)) | ((ac > ad) & (ac > cd))
            south_east = ((ad >= ab) & (ad > bd)) | ((ad >= ac) & (ad > cd))
            # The block above, of which this cell's east edge is cd.
            cd = ab
            ab, ac, ad, bc, bd = ue[x], us[x], use[x], usw[x], us2[x]
            east |= ((cd >= ac) & (cd >= ad)) | ((cd >= bc) & (cd >= bd))
            # The block to the west, of which the south edge is bd and the south-west one bc.
            ab, ac, ad, bc, bd, cd = ww[x], ss0[x], se0[x], sw[x], ss[x], de0[x]
            south |= ((bd >= ab) & (bd >= ad)) | ((bd >= bc) & (bd > cd))
            south_west = ((bc >= ab) & (bc >= ac)) | ((bc > bd) & (bc > cd))
            r = np.uint8((ee[x] < np.inf) & (not east))
            r |= np.uint8(np.uint8((sw[x] < np.inf) & (not south_west)) << 1)
            r |= np.uint8(np.uint8((ss[x] < np.inf) & (not south)) << 2)
            stay[x] = np.uint8(r | np.uint8(np.uint8((se[x] < np.inf) & (not south_east)) << 3))


@compiled
def mark_choices(choice, kept, mask):
    """Set the chosen edges in mask; leave in kept those not chosen, and bit 4 at roots.

    Two cells that choose the same edge: the one with the smaller index is the root.
    Returns the number of edges left in kept.
    """
    h, w = mask.shape
    left = 0
    for y in range(h):
        c, ee = choice[y + 1, 1 : w + 1], choice[y + 1, 2 : w + 2]
        sw, ss, se = choice[y + 2, 0:w], choice[y + 2, 1 : w + 1], choice[y + 2, 2 : w + 2]
        out = mask[y]
        rest = kept[y + 1, 1 : w + 1]
        for x in range(w):
            d = c[x]
            e, s, sx, sy = ee[x] == 3, ss[x] == 1, sw[x] == 2, se[x] == 0
            fe, fs, fx, fy = d == 4, d == 6, d == 5, d == 7
            r = np.uint8(e | fe) | np.uint8(np.uint8(sx | fx) << 1)
            r |= np.uint8(np.uint8(s | fs) << 2) | np.uint8(np.uint8(sy | fy) << 3)
            root = (e & fe) | (s & fs) | (sx & fx) | (sy & fy)
            out[x] = np.uint8(r)
            k = np.uint8(rest[x] & (r ^ 15))
            left += np.int64((k & 1) + ((k >> 1) & 1) + ((k >> 2) & 1) + (k >> 3))
            rest[x] = np.uint8(k | np.uint8(np.uint8(root) << 4))
    return left


@compiled
def follow_choices(words, stride, choice, border, parent):
    """Number the components of round 1, border cells first, and lead cells towards them.

    words : (n,) uint64, eight cells of ``kept`` each; bit 4 of a byte marks a root.
    choice : flat padded array; becomes ROOT at roots.
    border : padded indices of the border cells.
    parent : flat int32; becomes ~number at roots and most cells, elsewhere a cell to go on from.
    Returns the number of components.

    Going down a band of rows and up again, each cell takes its parent's parent: chains that keep
    to one of the two ways end at their root at once, and without a branch to mispredict.
    """
    for i in range(border.size):
        parent[border[i]] = ~i
    count = border.size
    for i in range(words.size):
        word = words[i] & ROOT_BITS
        while word != 0:
            x = 8 * i + np.int64(_trailing_zeros(word) >> np.uint64(3))
            word &= word - np.uint64(1)
            parent[x] = ~count
            choice[x] = ROOT
            count += 1
    step = np.array([-stride - 1, -stride, 1 - stride, -1, 1, stride - 1, stride, stride + 1, 0])
    step = step.astype(np.int32)
    one = np.int32(31)
    for start in range(0, choice.size, BAND * stride):
        end = np.int32(min(choice.size, start + BAND * stride))
        for i in range(start, end):
            d = choice[i]
            t = np.int32(i + step[d])
            # parent[t] if t < i or i is a root (then t == i); selects as masks, as LLVM branches.
            earlier = np.int32((t - np.int32(i) - np.int32(d >> 3)) >> one)
            parent[i] = np.int32(t ^ ((t ^ parent[t]) & earlier))
        for i in range(end - 1, start - 1, -1):
            t = parent[i]
            go = np.int32(((t - end) & ~t) >> one)
            q = parent[t & ~(t >> one)]
            parent[i] = np.int32(t ^ ((t ^ q) & go))
    return count


@compiled
def _order_float(weight):
    """Key of a float64 that is not NaN; -0.0 as 0.0."""
    word = np.float64(weight + 0.0).view(np.uint64)
    top = np.uint64(1) << np.uint64(63)
    return word ^ (FULL if word >= top else top)


@compiled
def gather_edges(words, stride, parent, keys, mode, pair, high, low, tag):
    """List the kept edges between different components in order of id; return how many.

    words : (n,) uint64, eight cells of ``kept`` each; bits 0 to 3 of a byte mark edges.
    parent : what follow_choices left.
    keys : flat padded keys, or the bits of heights.
    mode : place in WEIGHTS.
    pair, high, low, tag : the list. pair has the number of the first end above the other's, high
        and low the key (low of size 0: high alone), tag the first end's padded index * 4 +
        direction.

    Of edges between the same two components that follow each other only the least is listed.
    """
    offset = np.array([1, stride - 1, stride, stride + 1])
    wide = low.size > 0
    m = 0
    last, last_key, last_least, last_tag = FULL, FULL, FULL, np.int32(0)
    for i in range(words.size):
        word = words[i] & EDGE_BITS
        while word != 0:
            bit = np.int64(_trailing_zeros(word))
            word &= word - np.uint64(1)
            u = 8 * i + (bit >> 3)
            v = u + offset[bit & 7]
            p = parent[u]
            if p >= 0:
                while p >= 0:
                    p = parent[p]
                parent[u] = p
            q = parent[v]
            if q >= 0:
                while q >= 0:
                    q = parent[q]
                parent[v] = q
            if p == q:
                continue
            zu, zv = np.uint64(keys[u]), np.uint64(keys[v])
            least = np.uint64(0)
            if mode == 0:
                key = max(zu, zv)
                if wide:
                    least = min(zu, zv)
                else:
                    key = (key << np.uint64(32)) | min(zu, zv)
            else:
                fu, fv = zu.view(np.float64), zv.view(np.float64)
                key = _order_float((fu + fv) / 2 if mode == 2 else abs(fu - fv))
            both = (np.uint64(~p) << np.uint64(32)) | np.uint64(~q)
            turned = (np.uint64(~q) << np.uint64(32)) | np.uint64(~p)
            again = (both == last) | (turned == last)
            stay = again & (
                (last_key < key) | ((last_key == key) & ((not wide) | (last_least <= least)))
            )
            # Selects as masks: LLVM makes branches of conditions, and these are coin flips.
            old = np.uint64(-np.int64(stay))
            m -= np.int64(again)
            last = both ^ ((both ^ last) & old)
            last_key = key ^ ((key ^ last_key) & old)
            t = np.int32((u << 2) | (bit & 7))
            last_tag = np.int32(t ^ ((t ^ last_tag) & np.int32(-np.int64(stay))))
            pair[m] = last
            high[m] = last_key
            tag[m] = last_tag
            if wide:
                last_least = least ^ ((least ^ last_least) & old)
                low[m] = last_least
            m += 1
    return m


@compiled
def hook_rounds(pair, high, low, tag, count, fixed, chosen):
    """Boruvka rounds on a list of edges in order of id, between ``count`` components.

    Components below ``fixed`` never choose. The list shrinks in place to the edges that still
    join different components; tags of the chosen edges go to ``chosen``. Returns the numbers of
    edges left and of edges chosen.
    """
    m = pair.size
    wide = low.size > 0
    best = np.empty(count, np.uint64)
    edge = np.empty(count, np.int32)
    parent = np.empty(count, np.int32)
    number = np.empty(count, np.int32)
    taken = 0
    while True:
        # Each component's least edge. Of equal keys the first one seen stays: the lesser id.
        best[:count] = FULL
        edge[:count] = -1
        for e in range(m):
            key = high[e]
            p, q = np.int64(pair[e] >> np.uint64(32)), np.int64(pair[e] & LOW_HALF)
            if wide:
                for c in (p, q):
                    if key < best[c] or (key == best[c] and low[e] < low[edge[c]]):
                        best[c] = key
                        edge[c] = e
                        parent[c] = p + q - c
            else:
                if key < best[p]:
                    best[p] = key
                    edge[p] = e
                    parent[p] = q
                if key < best[q]:
                    best[q] = key
                    edge[q] = e
                    parent[q] = p
        before = taken
        for c in range(count):
            e = edge[c]
            other = parent[c]
            # Of two that choose the same edge the lesser stays; one below fixed is the lesser.
            if c >= fixed and e >= 0 and (edge[other] != e or other < c):
                chosen[taken] = tag[e]
                taken += 1
            else:
                parent[c] = c
        if taken == before:
            return m, taken
        # Number the roots in order, the fixed ones first, and each component as its root.
        roots = 0
        for c in range(count):
            if parent[c] == c:
                number[c] = roots
                roots += 1
            else:
                number[c] = -1
        for c in range(fixed, count):
            x = c
            while number[x] < 0:
                x = parent[x]
            r = number[x]
            x = c
            while number[x] < 0:
                number[x] = r
                x = parent[x]
        count = roots
        # Rename, and drop inner edges: write all, and go on to the next place where it counts.
        k = 0
        for e in range(m):
            p = number[np.int64(pair[e] >> np.uint64(32))]
            q = number[np.int64(pair[e] & LOW_HALF)]
            pair[k] = (np.uint64(p) << np.uint64(32)) | np.uint64(q)
            high[k] = high[e]
            tag[k] = tag[e]
            if wide:
                low[k] = low[e]
            k += p != q
        m = k


@compiled
def mark_edges(tags, stride, mask):
    """Set edges in mask."""
    for i in range(tags.size):
        cell = np.int64(tags[i]) >> 2
        y, x = cell // stride - 1, cell % stride - 1
        mask[y, x] |= np.uint8(1 << (tags[i] & 3))


@compiled
def pick_edges(tags, chosen, stride, mask):
    """Where tags (none of them in mask) are among the chosen."""
    mark_edges(chosen, stride, mask)
    where = np.empty(chosen.size, np.int64)
    k = 0
    for i in range(tags.size):
        cell = np.int64(tags[i]) >> 2
        y, x = cell // stride - 1, cell % stride - 1
        bit = np.uint8(1 << (tags[i] & 3))
        if mask[y, x] & bit:
            mask[y, x] ^= bit
            where[k] = i
            k += 1
    return where[:k]


@compiled
def add_row(values, count, scale, sums, bins):
    """Add values * count exactly: to sums in units of 1 / scale and 2**-40 / scale, else to bins.

    scale is 0 or brings all values below 2**46; bins (2, 2, 2048) hold halves of mantissas by
    sign, half and exponent. A piece of a row adds at most 2**62 to a number.
    """
    n = values.size
    for start in range(0, n, PIECE):
        end = min(start + PIECE, n)
        if scale > 0:
            first = 0
            second = 0
            lost = 0
            v, c = values[start:end], count[start:end]
            for x in range(end - start):
                t = v[x] * scale
                whole = np.int64(t)
                t = (t - whole) * LOWER
                rest = np.int64(t)
                times = np.int64(c[x])
                first += whole * times
                second += rest * times
                lost |= np.int64((t != rest) & (times > 0))
            if lost == 0:
                sums[0] += first >> 32
                sums[1] += first & 0xFFFFFFFF
                sums[2] += second >> 32
                sums[3] += second & 0xFFFFFFFF
                continue
        for x in range(start, end):
            times = np.int64(count[x])
            if times > 0:
                word = np.float64(values[x]).view(np.uint64)
                sign = np.int64(word >> np.uint64(63))
                exponent = np.int64((word >> np.uint64(52)) & np.uint64(2047))
                mantissa = np.int64(word & np.uint64(0xFFFFFFFFFFFFF))
                if exponent > 0:
                    mantissa |= np.int64(1) << np.int64(52)
                bins[sign, 0, exponent] += (mantissa & 0x3FFFFFF) * times
                bins[sign, 1, exponent] += (mantissa >> 26) * times


@compiled
def decode_row(keys, kind, bias, gap, out):
    """Values of keys as float64. kind 0: floats; 1: integers + bias; 2: uint64 (see make_keys)."""
    if kind == 0 and keys.itemsize == 4:
        sign, full = np.uint32(0x80000000), np.uint32(0xFFFFFFFF)
        for x in range(out.size):
            k = np.uint32(keys[x])
            out[x] = np.uint32(k ^ (sign if k >= sign else full)).view(np.float32)
    elif kind == 0:
        top, ones = np.uint64(1) << np.uint64(63), FULL
        for x in range(out.size):
            j = np.uint64(keys[x])
            out[x] = np.uint64(j ^ (top if j >= top else ones)).view(np.float64)
    elif kind == 1:
        for x in range(out.size):
            i = np.int64(keys[x]) + np.int64(keys[x] >= gap)
            out[x] = np.float64(i - bias)
    else:
        for x in range(out.size):
            out[x] = np.float64(np.uint64(keys[x]) + np.uint64(keys[x] >= gap))


@compiled
def sum_highest(keys, mask, kind, bias, gap, scale, sums, bins):
    """Sum the greater ends of the mask's edges: each cell as often as it is the greater end."""
    h, w = mask.shape
    padded = np.zeros((2, w + 2), np.uint8)
    count = np.empty(w, np.uint8)
    values = np.empty(w)
    for y in range(h):
        above, row = padded[(y + 1) % 2], padded[y % 2]
        row[1 : w + 1] = mask[y]
        u0, u1, u2 = keys[y, 0:w], keys[y, 1 : w + 1], keys[y, 2 : w + 2]
        c0, c1, c2 = keys[y + 1, 0:w], keys[y + 1, 1 : w + 1], keys[y + 1, 2 : w + 2]
        d0, d1, d2 = keys[y + 2, 0:w], keys[y + 2, 1 : w + 1], keys[y + 2, 2 : w + 2]
        m1, m0 = row[1 : w + 1], row[0:w]
        a0, a1, a2 = above[0:w], above[1 : w + 1], above[2 : w + 2]
        for x in range(w):
            k = c1[x]
            m = m1[x]
            n = np.uint8((m & 1) & np.uint8(k >= c2[x]))
            n += np.uint8((m >> 1 & 1) & np.uint8(k >= d0[x]))
            n += np.uint8((m >> 2 & 1) & np.uint8(k >= d1[x]))
            n += np.uint8((m >> 3) & np.uint8(k >= d2[x]))
            n += np.uint8((m0[x] & 1) & np.uint8(k > c0[x]))
            n += np.uint8((a2[x] >> 1 & 1) & np.uint8(k > u2[x]))
            n += np.uint8((a1[x] >> 2 & 1) & np.uint8(k > u1[x]))
            n += np.uint8((a0[x] >> 3) & np.uint8(k > u0[x]))
            count[x] = n
        decode_row(c1, kind, bias, gap, values)
        # Nodata decodes to anything; NaN times nothing is not nothing.
        for x in range(w):
            values[x] = values[x] if count[x] > 0 else 0.0
        add_row(values, count, scale, sums, bins)


@compiled
def sum_rows(heights, mask, mean, scale, sums, bins):
    """Sum the weights of the mask's edges."""
    h, w = mask.shape
    rows = np.empty((4, w + 2))
    count = np.empty(w, np.uint8)
    for y in range(h):
        weigh_row(heights, y + 1, w, mean, True, rows)
        for d in range(4):
            row = rows[d, 1 : w + 1]
            for x in range(w):
                count[x] = (mask[y, x] >> d) & 1
                row[x] = row[x] if count[x] > 0 else 0.0
            add_row(row, count, scale, sums, bins)


def _scale(greatest: float) -> float:
    """A power of two that brings magnitudes up to ``greatest`` below 2**46 exactly, or 0."""
    exponent = 46 - math.frexp(greatest)[1]
    return 2.0 ** min(exponent, 1000) if exponent >= 0 else 0.0


def fold_sum(scale: float, sums: Array, bins: Array) -> int:
    """One exact number of what add_row added, in units of 2**-1074; any power of two or 0."""
    total = 0
    for sign, half, exponent in np.argwhere(bins):
        part = int(bins[sign, half, exponent]) << (max(int(exponent) - 1, 0) + 26 * int(half))
        total += -part if sign else part
    if scale:
        s = [int(part) for part in sums]
        small = (((s[0] << 32) + s[1]) << 40) + (s[2] << 32) + s[3]
        total += small << (1074 - 40 - (math.frexp(scale)[1] - 1))
    return total


def exact_sum(weights: Array) -> int:
    """Exact sum of finite float64 weights in units of 2**-1074."""
    weights = np.ascontiguousarray(weights, np.float64).reshape(-1)
    scale = _scale(float(abs(weights).max(initial=0.0)))
    sums, bins = np.zeros(4, np.int64), np.zeros((2, 2, 2048), np.int64)
    add_row(weights, np.ones(weights.size, np.uint8), scale, sums, bins)
    return fold_sum(scale, sums, bins)


def native_values(values: Array, nodata: float | None) -> tuple[Array, Any]:
    """The values as one of ten native dtypes, and nodata in it (None if no value equals it)."""
    dtype = values.dtype
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        raise TypeError(
            f"values: dtype {dtype} has no order-preserving 64-bit key; cast to an integer,"
            " float32 or float64"
        )
    mark = None
    if nodata is not None and dtype.kind == "f":
        # As NumPy compares: nodata is first rounded to the dtype of the values.
        with np.errstate(over="ignore"):
            mark = dtype.newbyteorder("=").type(nodata)
        mark = mark if np.isfinite(mark) else None
    elif nodata is not None and math.isfinite(nodata) and nodata == int(nodata):
        limits = np.iinfo(dtype)
        mark = dtype.type(int(nodata)) if limits.min <= nodata <= limits.max else None
    native = np.dtype(np.float32) if dtype == np.float16 else dtype.newbyteorder("=")
    values = np.ascontiguousarray(values, native).view()
    values.flags.writeable = False  # as arrays from a store may be: one type for the compiler
    return values, None if mark is None else native.type(mark)


class Keys(NamedTuple):
    """Padded keys of a tile and how to read them."""

    keys: Array
    valid: int
    kind: int
    bias: int
    gap: Any
    greatest: float
    """Greatest magnitude."""


def key_limits(dtype: Any, nodata: Any) -> tuple[Any, ...]:
    """How pad_keys maps values of a native dtype; ``nodata`` in that dtype, or None."""
    word = np.dtype(f"u{dtype.itemsize}")
    key = np.uint64 if dtype.itemsize == 8 else np.uint32
    full, top = int(np.iinfo(key).max), 1 << (8 * dtype.itemsize - 1)
    low = 0 if dtype.kind == "u" else top
    high = full if dtype.kind == "f" else low
    least, greatest, zero = 0, full, 0
    if dtype.kind == "f":
        zero = top
        least = (full ^ int(dtype.type(-np.inf).view(word))) + 1
        greatest = (int(dtype.type(np.inf).view(word)) ^ top) - 1
    mark = 0
    if nodata is not None:
        mark = int((nodata + dtype.type(0)).view(word))
        mark ^= high if mark >= top else low
    return tuple(key(k) for k in (low, high, top, zero, least, greatest, mark))


def unused_key(used: Array) -> int:
    """The least key that is none of the used ones, which ascend."""
    if int(used[0]) > 0:
        return 0
    return int(used[np.flatnonzero(np.diff(used) > 1)[0]]) + 1


def _make_keys(values: Array, nodata: Any, stride: int) -> Keys:
    """Ordered unsigned keys of the values in a halo; all ones is nodata."""
    h, w = values.shape
    dtype = values.dtype
    bits = values.view(f"u{dtype.itemsize}")
    key = np.uint64 if dtype.itemsize == 8 else np.uint32
    full, top = int(np.iinfo(key).max), 1 << (8 * dtype.itemsize - 1)
    keys = np.empty((h + 2, stride), key)
    for halo in (keys[0], keys[-1], keys[:, 0], keys[:, w + 1 :]):
        halo[...] = full
    limits = key_limits(dtype, nodata)
    valid, clash, first, last = pad_keys(bits, limits, nodata is not None, keys)
    gap = full
    if clash:
        # A valid value has the key of nodata: close a gap among the keys to make room.
        inside = np.ones(values.shape, bool) if nodata is None else values != nodata
        part = keys[1 : h + 1, 1 : w + 1]
        gap = unused_key(np.unique(part[inside]))
        part[inside & (part > gap)] -= key(1)
    kind = 0 if dtype.kind == "f" else 2 if dtype == np.uint64 else 1
    bias = top if dtype.kind == "i" and dtype.itemsize < 8 else -top if dtype.kind == "i" else 0
    ends = np.empty(2)
    # A greatest key of all ones would decode to the least; one less has the same exponent.
    decode_row(np.array([first, min(last, full - 1)], key), kind, bias, key(full), ends)
    magnitude = float(abs(ends).max()) if valid else 0.0
    return Keys(keys, int(valid), kind, bias, key(gap), magnitude)


def _border(sides: tuple[bool, bool, bool, bool], h: int, w: int) -> Array:
    """Row-major indices of the cells on the sides that touch another tile."""
    row, column = np.arange(w), np.arange(h) * w
    lines = (row, row + (h - 1) * w, column, column + w - 1)
    on = [line for side, line in zip(sides, lines) if side]
    return np.unique(np.concatenate(on)) if on else np.empty(0, np.int64)


def check_arguments(values: Array, weight: str, connectivity: int) -> int:
    """Refuse what no tile can be; return the cells of a padded row."""
    if weight not in WEIGHTS:
        raise InputError(f"weight: {weight!r} is unknown; choose one of {', '.join(WEIGHTS)}")
    if connectivity not in (4, 8):
        raise InputError(f"connectivity: {connectivity!r} is neither 4 nor 8; pass one of them")
    if values.ndim != 2 or values.size == 0:
        raise InputError(f"values: shape {values.shape} is not that of a tile; pass (h, w) cells")
    h, w = values.shape
    stride: int = (w + 9) // 8 * 8  # a multiple of 8 cells, which then make whole words
    if (h + 2) * stride > MAX_CELLS:
        raise InputError(
            f"values: {h} x {w} cells with their halo are more than 2**29; use smaller tiles"
        )
    return stride


def check_magnitude(greatest: float, weight: str) -> None:
    """Refuse heights whose weights could overflow."""
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
    """Minimum spanning forest of one tile, compressed to its border.

    Parameters
    ----------
    values : (h, w) array of any integer or float dtype up to 64 bits
        Heights. Cells that are not finite, or equal to ``nodata``, are no vertices.
    nodata : float or None
        The value that marks nodata.
    sides : four bools
        Whether the tile touches another tile in the north, south, west and east. The valid cells
        of those sides are its border cells.
    weight : {"max", "absolute_difference", "mean"}
        Weight of the edge between two cells.
    connectivity : {8, 4}

    Returns
    -------
    TileForest
        The edges that are in the forest of the grid for good, and the tentative ones between
        the components of border cells. All other edges of the tile are out for good.

    Raises
    ------
    TypeError
        If the dtype is not real or has more than 64 bits.
    InputError
        If the tile holds no cell or more than 2**29, if ``weight`` or ``connectivity`` is unknown,
        or if a weight other than ``"max"`` could overflow float64.

    Notes
    -----
    The answer is the only one: edges are totally ordered, ties go by edge id. Time is linear in
    the cells for the first round and falls by half or more in each one after it.

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
    diagonal, mean = connectivity == 8, weight == "mean"
    choice = np.full((h + 2, stride), ROOT)
    kept = np.zeros((h + 2, stride), np.uint8)
    sums, bins = np.zeros(4, np.int64), np.zeros((2, 2, 2048), np.int64)
    if weight == "max":
        made = _make_keys(values, mark, stride)
        keys, valid = made.keys, made.valid
        missing = keys[0, 0]
        choose_lowest(keys, h, w, diagonal, choice)
        keep_stars(keys, h, w, diagonal, kept)
    else:
        keys = np.full((h + 2, stride), np.inf)
        missing = keys[0, 0]
        valid, greatest = pad_heights(
            values, values.dtype.type(0) if mark is None else mark, mark is not None, keys
        )
        check_magnitude(greatest, weight)
        choose_lightest(keys, h, w, mean, diagonal, choice, kept)
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
    count = follow_choices(words, stride, choice.reshape(-1), padded, parent)
    mode = WEIGHTS.index(weight)
    pair, high, tag = np.empty(size, np.uint64), np.empty(size, np.uint64), np.empty(size, np.int32)
    low = np.empty(size if weight == "max" and keys.itemsize == 8 else 0, np.uint64)
    m = gather_edges(
        words, stride, parent, flat.view(f"u{keys.itemsize}"), mode, pair, high, low, tag
    )
    chosen = np.empty(count, np.int32)
    m, taken = hook_rounds(pair[:m], high[:m], low[:m], tag[:m], count, border.size, chosen)
    mark_edges(chosen[:taken], stride, mask)

    # Phase 2: the edges that are left join border cells.
    pair, tag = pair[:m], tag[:m]
    ends, tags = pair.copy(), tag.copy()
    _, taken = hook_rounds(pair, high[:m], low[:m], tag, border.size, 0, chosen)
    picked = pick_edges(tags, chosen[:taken], stride, mask)
    picked = picked[np.argsort(tags[picked])]
    ends, tags = ends[picked], tags[picked]
    cell = tags >> 2

    if weight == "max":
        scale = _scale(made.greatest)
        sum_highest(keys, mask, made.kind, made.bias, made.gap, scale, sums, bins)
    else:
        scale = _scale(2 * greatest)
        sum_rows(keys, mask, mean, scale, sums, bins)
    return TileForest(
        mask,
        int(valid),
        fold_sum(scale, sums, bins),
        ((cell // stride - 1) * w + cell % stride - 1).astype(np.int32),
        (tags & 3).astype(np.uint8),
        border[(ends >> np.uint64(32)).astype(np.int64)],
        border[(ends & LOW_HALF).astype(np.int64)],
    )


def compile_kernels(dtype: Any, weight: str = "max") -> None:
    """Compile, or load from the cache, what tiles of this dtype and weight need."""
    tile = np.arange(16).reshape(4, 4) % 5
    tile_forest(tile.astype(dtype), 3, (True, False, True, False), weight)
