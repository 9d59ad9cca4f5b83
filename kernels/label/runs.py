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
LANES = 8  # labels written at once
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
            # Aligned as a single element: the 64 keys may begin at any cell.
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
        # Without a sign 0 wraps to the greatest word, so one comparison excludes 0, infinity and
        # NaN.
        ok = ((v & magnitude[0]) - one) < limit[0]
        out[x] = v if ok & (v != nodata[0]) else v ^ v  # 0 of the same dtype


@compiled
def find_runs(bits, limits, diagonal, starts, edges, base, parent):
    """Find the runs of all rows and unite runs that touch; return the number of runs.

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
    # Key 0 is the cell west of the row, and keys behind the row fill its last word: background all
    # of them, so runs end at both ends of the row.
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
        # Each run is its own parent until a contact with the row above is found.
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
            # Each bit of ``pairs`` is a place where a run of this row touches one of the row above.
            # The starts up to it, counted, are the numbers of the two: a here, b above. A west or
            # east bit belongs to a corner, where one of the two begins just beside.
            while pairs:
                under = pairs & (pairs - ONE)  # without the lowest bit
                bit = pairs ^ under
                reach = bit | (bit - ONE)
                a = at + count_bits(start & (reach ^ (bit & east))) - ONE
                b = up + count_bits(up_start & (reach ^ (bit & west))) - ONE
                # A run can take only one parent above. If it touches a second run, the pair before
                # is kept for `unite`: it is always written, but counted only then, with no branch.
                deferred[m, 0] = last_a
                deferred[m, 1] = last_b
                m += np.uint64(a == last_a)
                last_a = a
                last_b = b
                parent[a] = parent[parent[b]]
                pairs = under
            # Corners where both diagonals touch: a second pair at the same place.
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
            # United only now that all runs of the row have their first parents.
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
        # Runs before r hold numbers by now. A parent comes before its run, so it has its own
        # already.
        p = parent[r]
        if p == r:
            first[n] = r
            n += 1
            parent[r] = n
        else:
            parent[r] = parent[p]
    return first


@compiled
def find_cells(starts, base, width, runs, cells):
    """Write the row-major indices of the first cells of some runs, which are in ascending order."""
    # Runs ascend: row, word and the rest of the word go on from one run to the next.
    y = -1
    k = 0
    at = 0  # number of the first run that remains in the word
    word = ZERO
    for n in range(runs.size):
        r = runs[n]
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
        # The runs before it in the word are taken off, one bit each.
        while at < r:
            word &= word - ONE
            at += 1
        cells[n] = y * width + k * 64 + np.int64(trailing_zeros(word))


@compiled
def read_labels(starts, edges, base, component, width, cells, labels):
    """Write the components of some cells, given by their row-major indices; 0 for background."""
    for n in range(cells.size):
        y = cells[n] // width
        x = cells[n] % width
        k = x >> 6
        bit = ONE << np.uint64(x & 63)
        reach = bit | (bit - ONE)
        last = k  # word of the last change of value up to the cell
        while last > 0 and edges[y, last] & reach == ZERO:
            last -= 1
            reach = ~ZERO
        start = starts[y, last] & reach
        if start <= (edges[y, last] & reach) ^ start:  # it is an end, or there is none
            labels[n] = 0
            continue
        run = base[y] - 1 + np.int64(count_bits(start))
        for i in range(last):
            run += np.int64(count_bits(starts[y, i]))
        labels[n] = component[run]


@compiled
def measure_runs(starts, edges, base, component, width, size, box):
    """Measure the components.

    size, box : (n + 1,), zeros, and (n + 1, 4), out: row 0 unused.
    """
    h, words = starts.shape
    for y in range(h):
        run = np.uint64(base[y])
        begin = np.int64(0)
        label = np.uint32(0)
        for k in range(words + 1):
            # the end of the row ends a run too
            edge = edges[y, k] if k < words else ONE
            start = starts[y, k] if k < words else ZERO
            while edge:
                x = min(np.int64(k * 64) + np.int64(trailing_zeros(edge)), width)
                if label:
                    # Rows come from the top, so the first run of a component sets the top of its
                    # box and the last one its bottom.
                    if size[label] == 0:
                        box[label, 0] = y
                        box[label, 1] = begin
                        box[label, 3] = x
                    else:
                        box[label, 1] = min(box[label, 1], begin)
                        box[label, 3] = max(box[label, 3], x)
                    box[label, 2] = y + 1
                    size[label] += x - begin
                begin = x
                bit = edge & (~edge + ONE)
                inside = (start & bit) != 0
                label = component[run] if inside else np.uint32(0)
                run += np.uint64(inside)
                edge ^= bit


@compiled
def write_runs(starts, edges, base, component, width, table, out, pitch):
    """Write the labels of all cells: ``table[component]`` of their run, or 0.

    out : from the first cell of the first row on; the next row begins ``pitch`` cells further.
    """
    h, words = starts.shape
    row = np.empty(words * 64 + LANES, out.dtype)
    background = row.dtype.type(0)
    for y in range(h):
        row[:] = background
        run = np.uint64(base[y])
        begin = ZERO
        label = background
        for k in range(words + 1):
            # the end of the row ends a run too
            edge = edges[y, k] if k < words else ONE
            start = starts[y, k] if k < words else ZERO
            left = np.uint64(k * 64)
            while edge:
                x = left + trailing_zeros(edge)
                bit = edge & (~edge + ONE)
                edge ^= bit
                if label != background:
                    # The first LANES cells were written when the run began.
                    begin += np.uint64(LANES)
                    while begin < x:
                        for i in range(LANES):
                            row[begin + np.uint64(i)] = label
                        begin += np.uint64(LANES)
                begin = x
                label = background
                if start & bit:
                    label = row.dtype.type(table[component[run]])
                    run += ONE
                for i in range(LANES):
                    row[x + np.uint64(i)] = label
        to = np.uint64(y * pitch)
        for i in range(width):
            out[to + np.uint64(i)] = row[i]
