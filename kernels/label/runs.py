"""Runs of equal cells in the rows of a tile: finding, uniting, numbering and writing them.

tile.py describes the method.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from orograph.kernels.bits import count_bits, trailing_zeros
from orograph.kernels.compiled import compiled
from orograph.kernels.label.union_find import unite

WORD = 64  # cells whose comparisons make one word
SHORT = 8  # labels written at once at the start of a sequence of equal labels
LONG = 32  # labels written at once after that
ONE = np.uint64(1)
ZERO = np.uint64(0)
NO_RUN = np.uint64(0xFFFFFFFF)  # no run has this number


@intrinsic
def _equal(typingctx: Any, row: Any, at: Any, other: Any, beside: Any) -> Any:
    """Return a bit mask of the equal keys among 64 of ``row`` and 64 of ``other``.

    Bit k compares ``row[at + k]`` with ``other[beside + k]``. LLVM splits the vectors to the
    machine's width. A loop compiled by Numba cannot return a bit mask.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        element = context.get_data_type(signature.args[0].dtype)
        kind = ir.VectorType(element, WORD)
        sides = []
        for k in (0, 2):
            array = context.make_array(signature.args[k])(context, builder, args[k])
            place = builder.bitcast(builder.gep(array.data, [args[k + 1]]), kind.as_pointer())
            sides.append(builder.load(place, align=element.width // 8))
        return builder.bitcast(builder.icmp_unsigned("==", *sides), ir.IntType(WORD))

    return types.uint64(row, types.int64, other, types.int64), codegen


@compiled
def _read_keys(row, key, magnitude, limit, nodata):
    """Write the keys of a row from key[1] on: 0 for background and nodata, else the value."""
    w = row.size
    out = key[1 : w + 1]
    one = limit.dtype.type(1)
    for x in range(w):
        v = row[x]
        ok = ((v & magnitude[0]) - one) < limit[0]
        out[x] = v if ok & (v != nodata[0]) else v ^ v


@compiled
def find_runs(bits, limits, diagonal, starts, edges, base, parent):
    """Find the runs of all rows and unite those that touch; return the number of runs.

    bits : (h, w) classes as unsigned words.
    limits : (3, 1) of their dtype: mask of the magnitude bits; the greatest finite magnitude, as a
        word; nodata or 0.
    starts, edges : (h, words) uint64, out: bits of cells where a run starts; where the value
        changes.
    base : (h + 1,), out: number of runs before each row.
    parent : (cells,), out: parent of each run.
    """
    h, w = bits.shape
    words = starts.shape[1]
    above = np.zeros(words * 64 + 1, bits.dtype)
    here = np.zeros(words * 64 + 1, bits.dtype)
    zeros = np.zeros(64, bits.dtype)
    deferred = np.empty((2 * w + 2, 2), np.uint32)
    before = np.uint64(0)
    total = np.uint64(0)
    for y in range(h):
        _read_keys(bits[y], here, limits[0], limits[1], limits[2])
        base[y] = total
        up = before  # number of runs before the word, in the row above; at: in this row
        at = total
        before = total
        for k in range(words):
            x = k * 64 + 1
            edge = ~_equal(here, x, here, x - 1)
            start = edge & ~_equal(here, x, zeros, 0)
            edges[y, k] = edge
            starts[y, k] = start
            total += count_bits(start)
        ids = parent[at:total]
        for i in range(ids.size):
            ids[i] = np.uint32(at + np.uint64(i))
        if y == 0:
            above, here = here, above
            continue
        m = np.uint64(0)
        last_a = NO_RUN
        last_b = NO_RUN
        for k in range(words):
            x = k * 64 + 1
            edge = edges[y, k]
            start = starts[y, k]
            up_edge = edges[y - 1, k]
            up_start = starts[y - 1, k]
            pairs = (edge | up_edge) & _equal(here, x, above, x) & ~_equal(here, x, zeros, 0)
            # If both rows change value here, runs may touch at a corner only: this cell and the one
            # to the north-west, or the west neighbour and the one to the north.
            west = ZERO
            east = ZERO
            if diagonal and edge & up_edge:
                west = start & up_edge & _equal(here, x, above, x - 1)
                east = edge & up_start & _equal(here, x - 1, above, x)
            crossed = west & east
            east ^= crossed
            pairs |= west | east
            while pairs:
                under = pairs & (pairs - ONE)
                bit = pairs ^ under
                reach = bit | (bit - ONE)
                a = at + count_bits(start & (reach ^ (bit & east))) - ONE
                b = up + count_bits(up_start & (reach ^ (bit & west))) - ONE
                deferred[m, 0] = last_a
                deferred[m, 1] = last_b
                m += np.uint64(a == last_a)
                last_a = a
                last_b = b
                parent[a] = parent[parent[b]]
                pairs = under
            while crossed:
                under = crossed & (crossed - ONE)
                bit = crossed ^ under
                deferred[m, 0] = at + count_bits(start & (bit - ONE)) - ONE
                deferred[m, 1] = up + count_bits(up_start & (bit | (bit - ONE))) - ONE
                m += ONE
                crossed = under
            up += count_bits(up_start)
            at += count_bits(start)
        for i in range(m):
            unite(parent, deferred[i, 0], deferred[i, 1])
        above, here = here, above
    base[h] = total
    return total


@compiled
def number_components(parent, runs):
    """Replace each run's parent by its component's number; return the components' first runs."""
    count = 0
    for r in range(runs):
        count += parent[np.uint64(r)] == r
    first = np.empty(count, np.int32)
    n = 0
    for r in range(runs):
        p = parent[r]
        if p == r:
            first[n] = r
            n += 1
            parent[r] = n
        else:
            parent[r] = parent[p]
    return first


@compiled
def place_firsts(starts, base, width, first, box):
    """Replace the number of each component's first run by the row-major index of its first cell.

    box : (n + 1, 4), out: row and column of that cell; bottom and right are 0, to be raised.
    """
    y = -1
    k = 0
    at = 0  # number of the first run that remains in the word
    word = ZERO
    for n in range(first.size):
        r = first[n]
        if base[y + 1] <= r:
            while base[y + 1] <= r:
                y += 1
            k = 0
            at = base[y]
            word = starts[y, 0]
        ends = at + np.int64(count_bits(word))
        while ends <= r:
            at = ends
            k += 1
            word = starts[y, k]
            ends += np.int64(count_bits(word))
        while at < r:
            word &= word - ONE
            at += 1
        x = k * 64 + np.int64(trailing_zeros(word))
        first[n] = y * width + x
        box[n + 1, 0] = y
        box[n + 1, 1] = x
        box[n + 1, 2] = 0
        box[n + 1, 3] = 0


@compiled
def write_rest(row, begin, end, label):
    """Write a sequence after its first SHORT labels, and at most LONG - 1 cells beyond its end."""
    x = begin + np.uint64(SHORT)
    while x < end:
        for i in range(LONG):
            row[x + np.uint64(i)] = np.int32(label)
        x += np.uint64(LONG)


@compiled
def measure(size, box, label, begin, end, bottom):
    """Add a run to the size and the bounding box of its component."""
    size[label] += np.int64(end - begin)
    if begin < box[label, 1]:
        box[label, 1] = begin
    if bottom > box[label, 2]:
        box[label, 2] = bottom
    if end > box[label, 3]:
        box[label, 3] = end


@compiled
def write_labels(starts, edges, base, labels, size, box):
    """Replace the runs' components by the cells' labels, last row first; measure the components.

    size, box : (n + 1,) and (n + 1, 4), row 0 unused; box as from place_firsts.
    """
    h, w = labels.shape
    flat = labels.reshape(-1)
    words = starts.shape[1]
    row = np.empty(words * 64 + 64, np.int32)
    names = np.empty(w + 1, np.int32)
    width = np.uint64(w)
    for y in range(h - 1, -1, -1):
        runs = base[y + 1] - base[y]
        for i in range(runs):  # assigning slices compiles for seconds: their error message
            names[i] = flat[base[y] + i]
        run = ZERO
        begin = ZERO
        label = np.uint32(0)
        bottom = np.int32(y + 1)
        row[:SHORT] = 0
        for k in range(words):
            edge = edges[y, k]
            start = starts[y, k]
            left = np.uint64(k * 64)
            while edge:
                x = left + trailing_zeros(edge)
                write_rest(row, begin, x, label)
                if label:
                    measure(size, box, label, begin, x, bottom)
                begin = x
                bit = edge & (~edge + ONE)
                inside = (start & bit) != 0
                label = np.uint32(names[run]) if inside else np.uint32(0)
                run += np.uint64(inside)
                for i in range(SHORT):
                    row[x + np.uint64(i)] = np.int32(label)
                edge ^= bit
        if begin < width:
            write_rest(row, begin, width, label)
            if label:
                measure(size, box, label, begin, width, bottom)
        for i in range(w):
            labels[y, i] = row[i]
