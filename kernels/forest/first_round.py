"""Round 1 of Borůvka's algorithm on the cells of a tile, and pruning of edges by triangles.

Each cell chooses its least edge, one row at a time in vector registers. The four cells of a 2 x 2
block are all neighbours, so their edges form triangles. The greatest edge of a triangle is in no
minimum spanning forest (cycle property). After both steps almost no edge remains on a slope with 8
neighbours, and 0.75 edges per cell remain on white noise. Sweeps without branches then compress the
paths from cells to roots.

Arrays have a halo of one cell and rows of ``stride`` cells, a multiple of 8. ``choice`` is uint8: 0
to 7 for NW N NE W E SW S SE, or `ROOT`; ``kept`` uint8, bits 0 to 3 for E SW S SE, bit 4 at roots.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.bits import trailing_zeros
from orograph.kernels.compiled import compiled
from orograph.kernels.forest.keys import weigh_row

ROOT = np.uint8(8)  # choice of a cell that chooses no edge
BAND = 32  # rows whose parents fit in the L2 cache
ROOT_BITS = np.uint64(0x1010101010101010)


@compiled
def choose_lowest(keys, h, w, choice):
    """Set the choice of each cell to its lowest neighbour: its least edge under (max, min, id).

    Neighbours are compared in the order of their edges' ids (NW N NE W E SW S SE are 0 to 7).
    """
    full = keys[0, 0]  # the greatest key: nodata, and the halo beyond the grid
    for y in range(h):
        # One slice of w cells for each neighbour, all read at the same x: LLVM turns such a loop
        # into vector code.
        out = choice[y + 1, 1 : w + 1]
        c = keys[y + 1, 1 : w + 1]
        nw, nn, ne = keys[y, 0:w], keys[y, 1 : w + 1], keys[y, 2 : w + 2]
        ww, ee = keys[y + 1, 0:w], keys[y + 1, 2 : w + 2]
        sw, ss, se = keys[y + 2, 0:w], keys[y + 2, 1 : w + 1], keys[y + 2, 2 : w + 2]
        for x in range(w):
            # b is the least key so far and d its neighbour. A later one must be less, not equal:
            # of equal edges that of the lower id is chosen. Written out, since a loop over the
            # eight would not be unrolled, nor the loop over x become vector code.
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


@compiled
def choose_lowest_of_four(keys, h, w, choice):
    """Do as `choose_lowest`, with 4 neighbours: only one of the two is compiled."""
    full = keys[0, 0]
    for y in range(h):
        out = choice[y + 1, 1 : w + 1]
        c = keys[y + 1, 1 : w + 1]
        nn, ss = keys[y, 1 : w + 1], keys[y + 2, 1 : w + 1]
        ww, ee = keys[y + 1, 0:w], keys[y + 1, 2 : w + 2]
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
def keep_stars(keys, h, w, kept):
    """Set the bits of the edges that are the greatest edge of no triangle.

    Under (max, min) the minimum spanning tree of a 2 x 2 block is the star of its lowest cell. An
    edge is therefore kept if its lower end is the lowest cell of every block that contains it. At
    equal heights an edge is dropped if the other two edges of the triangle have lower ids; ids
    ascend as ab ac ad bc bd cd in a block ab/cd.
    """
    full = keys[0, 0]
    for y in range(h):
        out = kept[y + 1, 1 : w + 1]
        u1, u2 = keys[y, 1 : w + 1], keys[y, 2 : w + 2]
        c0, c1, c2 = keys[y + 1, 0:w], keys[y + 1, 1 : w + 1], keys[y + 1, 2 : w + 2]
        d0, d1, d2 = keys[y + 2, 0:w], keys[y + 2, 1 : w + 1], keys[y + 2, 2 : w + 2]
        for x in range(w):
            # The cell p and its neighbours v p e / sw s se, below u1 u2. The other cells of both
            # blocks of an edge are compared with its lower end: those before p must be higher, as
            # of equal cells the first counts as the lower; those after p may be equal.
            p, e, s, v, sw, se = c1[x], c2[x], d1[x], c0[x], d0[x], d2[x]
            lo = min(p, e)  # east: the blocks u1 u2 / p e and p e / s se
            bit = (max(p, e) != full) & (min(u1[x], u2[x]) > lo) & (min(s, se) >= lo)
            r = np.uint8(bit)
            lo = min(p, sw)  # south-west: the block v p / sw s
            bit = (max(p, sw) != full) & (v > lo) & (s >= lo)
            r |= np.uint8(np.uint8(bit) << 1)
            lo = min(p, s)  # south: the blocks v p / sw s and p e / s se
            bit = (max(p, s) != full) & (v > lo) & (min(sw, min(e, se)) >= lo)
            r |= np.uint8(np.uint8(bit) << 2)
            lo = min(p, se)  # south-east: the block p e / s se
            bit = (max(p, se) != full) & (min(e, s) >= lo)
            out[x] = np.uint8(r | np.uint8(np.uint8(bit) << 3))


@compiled
def keep_all_of_four(keys, h, w, kept):
    """Set the bits of all edges between 4 neighbours, which form no triangle."""
    full = keys[0, 0]
    for y in range(h):
        out = kept[y + 1, 1 : w + 1]
        c1, c2, d1 = keys[y + 1, 1 : w + 1], keys[y + 1, 2 : w + 2], keys[y + 2, 1 : w + 1]
        for x in range(w):
            p = c1[x]
            r = np.uint8(max(p, c2[x]) != full)
            out[x] = np.uint8(r | np.uint8(np.uint8(max(p, d1[x]) != full) << 2))


@compiled
def choose_lightest(heights, h, w, mode, diagonal, choice, kept):
    """Set the choice of each cell, and the edges that are greatest in no triangle, for any weight.

    Edges are ordered by (weight, id); ids ascend as ab ac ad bc bd cd in a block ab/cd.
    """
    # Weights of the edges E SW S SE (0 to 3) from the cells of three rows in turn; cell x is at
    # x + 1, and the columns at both ends stay infinite: no edge leads there.
    ring = np.full((3, 4, w + 2), np.inf)
    weigh_row(heights, 1, w, mode, diagonal, ring[0])
    for y in range(h):
        up, at, down = ring[(y + 2) % 3], ring[y % 3], ring[(y + 1) % 3]
        if y + 1 < h:
            weigh_row(heights, y + 2, w, mode, diagonal, down)
        else:
            down[:] = np.inf
        out = choice[y + 1, 1 : w + 1]
        # An edge is kept at its upper or left end: that to NW is the SE edge of the cell there.
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
        # A name with 2 is of the cell to the east, with 0 of that to the west; u and d are of the
        # rows above and below.
        sw2, ss2, de = at[1, 2 : w + 2], at[2, 2 : w + 2], down[0, 1 : w + 1]
        ss0, se0, de0 = at[2, 0:w], at[3, 0:w], down[0, 0:w]
        for x in range(w):
            ab, ac, ad, bc, bd, cd = ee[x], ss[x], se[x], sw2[x], ss2[x], de[x]
            # The block whose first cell this is. An edge goes if both others of a triangle come
            # before it: >= for those with a lower id, > for those with a higher one.
            east = ((ab > ac) & (ab > bc)) | ((ab > ad) & (ab > bd))
            south = ((ac >= ab) & (ac > bc)) | ((ac > ad) & (ac > cd))
            south_east = ((ad >= ab) & (ad > bd)) | ((ad >= ac) & (ad > cd))
            # The block above: this cell's east edge is its edge cd.
            cd = ab
            ab, ac, ad, bc, bd = ue[x], us[x], use[x], usw[x], us2[x]
            east |= ((cd >= ac) & (cd >= ad)) | ((cd >= bc) & (cd >= bd))
            # The block to the west: the south edge is its bd, the south-west edge its bc.
            ab, ac, ad, bc, bd, cd = ww[x], ss0[x], se0[x], sw[x], ss[x], de0[x]
            south |= ((bd >= ab) & (bd >= ad)) | ((bd >= bc) & (bd > cd))
            south_west = ((bc >= ab) & (bc >= ac)) | ((bc > bd) & (bc > cd))
            r = np.uint8((ee[x] < np.inf) & (not east))
            r |= np.uint8(np.uint8((sw[x] < np.inf) & (not south_west)) << 1)
            r |= np.uint8(np.uint8((ss[x] < np.inf) & (not south)) << 2)
            stay[x] = np.uint8(r | np.uint8(np.uint8((se[x] < np.inf) & (not south_east)) << 3))


@compiled
def mark_choices(choice, kept, mask):
    """Set the chosen edges in mask and return the number of edges that remain in kept.

    kept loses the chosen edges and gets bit 4 at roots. If two cells choose the same edge, the one
    with the smaller index is the root.
    """
    h, w = mask.shape
    left = 0
    for y in range(h):
        c, ee = choice[y + 1, 1 : w + 1], choice[y + 1, 2 : w + 2]
        sw, ss, se = choice[y + 2, 0:w], choice[y + 2, 1 : w + 1], choice[y + 2, 2 : w + 2]
        out = mask[y]
        rest = kept[y + 1, 1 : w + 1]
        for x in range(w):
            # What this cell chose (d, f.), and which later neighbours chose this cell (e s sx sy).
            # Only the bits of E SW S SE: an edge to an earlier cell is marked there.
            d = c[x]
            e, s, sx, sy = ee[x] == 3, ss[x] == 1, sw[x] == 2, se[x] == 0
            fe, fs, fx, fy = d == 4, d == 6, d == 5, d == 7
            r = np.uint8(e | fe) | np.uint8(np.uint8(sx | fx) << 1)
            r |= np.uint8(np.uint8(s | fs) << 2) | np.uint8(np.uint8(sy | fy) << 3)
            # both ends chose the edge, and this is the first of them
            root = (e & fe) | (s & fs) | (sx & fx) | (sy & fy)
            out[x] = np.uint8(r)
            k = np.uint8(rest[x] & (r ^ 15))  # without the chosen ones
            left += np.int64((k & 1) + ((k >> 1) & 1) + ((k >> 2) & 1) + (k >> 3))
            rest[x] = np.uint8(k | np.uint8(np.uint8(root) << 4))
    return left


@compiled
def follow_choices(words, step, choice, border, parent):
    """Number the components of round 1, border cells first; return the number of components.

    words : (n,) uint64, eight cells of ``kept`` each; bit 4 of a byte marks a root.
    step : (9,) int32, from a cell to the one that each choice names; 0 for ROOT.
    choice : flat padded array; set to ROOT at roots.
    border : padded indices of the border cells.
    parent : flat int32; set to ~number at roots and most cells, and to an ancestor elsewhere.

    Paths are compressed by one sweep down and one sweep up each band of rows, in which each cell
    takes its parent's parent. A path that runs in one of these two directions reaches its root in
    one sweep. The sweeps have no branch that could be mispredicted.
    """
    for i in range(border.size):
        parent[border[i]] = ~i
    count = border.size
    for i in range(words.size):
        word = words[i] & ROOT_BITS
        while word != 0:
            x = 8 * i + np.int64(trailing_zeros(word) >> np.uint64(3))
            word &= word - np.uint64(1)
            parent[x] = ~count
            choice[x] = ROOT
            count += 1
    stride = step[6]
    one = np.int32(31)  # shifted by it, a negative number is all ones, any other is 0
    for start in range(0, choice.size, BAND * stride):
        end = np.int32(min(choice.size, start + BAND * stride))
        for i in range(start, end):
            d = choice[i]
            t = np.int32(i + step[d])
            # parent[t] if t < i or i is a root (then t == i). Masks, because LLVM compiles a
            # select to a branch.
            earlier = np.int32((t - np.int32(i) - np.int32(d >> 3)) >> one)
            parent[i] = np.int32(t ^ ((t ^ parent[t]) & earlier))
        for i in range(end - 1, start - 1, -1):
            # Go on from t only if it is a cell (not ~number, which is negative) of this band or
            # one above; of a number the read is of cell 0, in bounds, and its result masked out.
            t = parent[i]
            go = np.int32(((t - end) & ~t) >> one)
            q = parent[t & ~(t >> one)]
            parent[i] = np.int32(t ^ ((t ^ q) & go))
    return count
