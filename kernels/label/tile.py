"""Connected components of one tile: run-based union-find, 64 cells a machine word.

*Find runs.* A run is a longest stretch of one foreground value in a row. Each row is brought into
keys (background, nodata and what lies outside: 0; float values keep their bits), and vectors of 64
keys are compared with those to the left and in the row above. The answers come back as words of
64 bits, so that everything after this looks at set bits only: where a run starts, and where a run
meets a run of the same value in the row above. Two runs that share columns meet at the first one
they share; two that touch at corners only, at the corner. Each pair of runs that meet is thus
named once. Runs are numbered in row-major order of their first cells; a run's number is the
number of starts before it, a population count.

*Unite.* The pairs of a row come in order. A run takes the parent of the last run it meets above
as its own, without asking; only the other pairs, of runs that meet several, wait in a list until
the row is done, and are united by Rem's algorithm (kernels/label/union_find.py has it alone). The
parent of a run is never after it, so a component's root is its first run, and a component is
numbered when the pass over the runs comes to its root.

*Write.* Rows are written from last to first, because the runs' labels lie where the answer will be:
run r in the place of cell r, and no run comes before its first cell. So a tile takes the answer and
a quarter byte a cell, whatever it holds. Stretches of cells are written by whole vectors, and what
is too much is overwritten by the next stretch.

Runs as nodes: He, Chao, Suzuki (2008), "A run-based two-scan labeling algorithm",
doi:10.1109/TIP.2008.919369; Rem's algorithm: Patwary, Blair, Manne (2010),
doi:10.1007/978-3-642-13193-6_35. Classes (h, w) of unsigned 8, 16, 32 or 64-bit words, labels
(h, w) int32. Indices of cells and runs are 32 bits wide: a tile holds fewer than 2**31 cells. They
are computed unsigned, which spares Numba's test for negative ones. Loops are over cells, bits, or
strictly falling run numbers, so they end. Serial, and numbering by first cell leaves no choice.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from orograph.kernels.compiled import compiled

MAX_CELLS = 2**31 - 1
WORD = 64  # cells whose answers make one word
SHORT = 8  # labels written at once where a stretch begins
LONG = 32  # and further on
ONE = np.uint64(1)
NOTHING = np.uint64(0)
NONE = np.uint64(0xFFFFFFFF)  # no run has this number


class TileLabels(NamedTuple):
    """The components of one tile, numbered by first cell in row-major order."""

    labels: npt.NDArray[np.int32] | npt.NDArray[np.uint16]
    """(h, w): 0 for background and nodata, else 1 to n."""
    first: npt.NDArray[np.int32]
    """(n,): row-major index of each component's first cell, ascending."""
    size: npt.NDArray[np.int64]
    """(n,): cells."""
    box: npt.NDArray[np.int32]
    """(n, 4): top, left, bottom, right; bottom and right are one past the last."""


@intrinsic
def _trailing_zeros(typingctx: Any, word: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


@intrinsic
def _count_bits(typingctx: Any, word: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


@intrinsic
def _equal(typingctx: Any, row: Any, at: Any, other: Any, beside: Any) -> Any:
    """Which of the 64 keys from ``row[at]`` on equal those from ``other[beside]`` on: bit k, key k.

    LLVM splits the vectors to what the machine has; Numba's own loops cannot return a bit mask.
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
def _unite(parent, a, b):
    """Rem's algorithm with splicing: join the sets of two runs under the smaller root."""
    up_a = parent[a]
    up_b = parent[b]
    while up_a != up_b:
        if up_a < up_b:
            a, b = b, a
            up_a, up_b = up_b, up_a
        parent[a] = up_b
        if a == up_a:
            return
        a = up_a
        up_a = parent[a]


@compiled
def _read_keys(row, key, magnitude, limit, nodata):
    """Bring a row into keys, 0 where a cell is background or nodata; key[1] is the first cell's."""
    w = row.size
    out = key[1 : w + 1]
    one = limit.dtype.type(1)
    for x in range(w):
        v = row[x]
        ok = ((v & magnitude[0]) - one) < limit[0]
        out[x] = v if ok & (v != nodata[0]) else v ^ v


@compiled
def find_runs(bits, limits, diagonal, starts, edges, base, parent):
    """Find the runs of all rows and unite those that meet.

    bits : (h, w) classes as unsigned words. limits : (3, 1) of their dtype: the bits of the
        magnitude; one less than the least magnitude that is no number, and one; nodata or 0.
    starts, edges : (h, words) uint64: where a run starts; where the value changes.
    base : (h + 1,): number of runs before each row. parent : (cells,), in: anything.
    """
    h, w = bits.shape
    words = starts.shape[1]
    above = np.zeros(words * 64 + 1, bits.dtype)
    here = np.zeros(words * 64 + 1, bits.dtype)
    zeros = np.zeros(64, bits.dtype)
    late = np.empty((2 * w + 2, 2), np.uint32)
    before = np.uint64(0)
    total = np.uint64(0)
    for y in range(h):
        _read_keys(bits[y], here, limits[0], limits[1], limits[2])
        base[y] = total
        up = before  # runs before the word: in the row above, and in this row
        at = total
        before = total
        for k in range(words):
            x = k * 64 + 1
            edge = ~_equal(here, x, here, x - 1)
            start = edge & ~_equal(here, x, zeros, 0)
            edges[y, k] = edge
            starts[y, k] = start
            total += _count_bits(start)
        ids = parent[at:total]
        for i in range(ids.size):
            ids[i] = np.uint32(at + np.uint64(i))
        if y == 0:
            above, here = here, above
            continue
        m = np.uint64(0)
        last_a = NONE
        last_b = NONE
        for k in range(words):
            x = k * 64 + 1
            edge = edges[y, k]
            start = starts[y, k]
            up_edge = edges[y - 1, k]
            up_start = starts[y - 1, k]
            pairs = (edge | up_edge) & _equal(here, x, above, x) & ~_equal(here, x, zeros, 0)
            # Where both rows change, runs may touch at the corner of four cells only: this cell the
            # one to the north-west, or its west neighbour the one to the north.
            west = NOTHING
            east = NOTHING
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
                a = at + _count_bits(start & (reach ^ (bit & east))) - ONE
                b = up + _count_bits(up_start & (reach ^ (bit & west))) - ONE
                late[m, 0] = last_a
                late[m, 1] = last_b
                m += np.uint64(a == last_a)
                last_a = a
                last_b = b
                parent[a] = parent[parent[b]]
                pairs = under
            while crossed:
                under = crossed & (crossed - ONE)
                bit = crossed ^ under
                late[m, 0] = at + _count_bits(start & (bit - ONE)) - ONE
                late[m, 1] = up + _count_bits(up_start & (bit | (bit - ONE))) - ONE
                m += ONE
                crossed = under
            up += _count_bits(up_start)
            at += _count_bits(start)
        for i in range(m):
            _unite(parent, late[i, 0], late[i, 1])
        above, here = here, above
    base[h] = total
    return total


@compiled
def number_components(parent, runs):
    """Turn each run's parent into its component's number; return the components' first runs."""
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
    """Turn the number of each component's first run into the row-major index of its first cell.

    box : (n + 1, 4), out: top and left of that cell, and 0 for what is to be raised.
    """
    y = -1
    k = 0
    at = 0  # number of the first run left in the word
    word = NOTHING
    for n in range(first.size):
        r = first[n]
        if base[y + 1] <= r:
            while base[y + 1] <= r:
                y += 1
            k = 0
            at = base[y]
            word = starts[y, 0]
        ends = at + np.int64(_count_bits(word))
        while ends <= r:
            at = ends
            k += 1
            word = starts[y, k]
            ends += np.int64(_count_bits(word))
        while at < r:
            word &= word - ONE
            at += 1
        x = k * 64 + np.int64(_trailing_zeros(word))
        first[n] = y * width + x
        box[n + 1, 0] = y
        box[n + 1, 1] = x
        box[n + 1, 2] = 0
        box[n + 1, 3] = 0


@compiled
def fill_rest(row, begin, end, label):
    """Write what is over SHORT of a stretch, and at most LONG - 1 cells too many."""
    x = begin + np.uint64(SHORT)
    while x < end:
        for i in range(LONG):
            row[x + np.uint64(i)] = np.int32(label)
        x += np.uint64(LONG)


@compiled
def measure(size, box, label, begin, end, bottom):
    """Add a run to its component's size and box."""
    size[label] += np.int64(end - begin)
    if begin < box[label, 1]:
        box[label, 1] = begin
    if bottom > box[label, 2]:
        box[label, 2] = bottom
    if end > box[label, 3]:
        box[label, 3] = end


@compiled
def write_labels(starts, edges, base, labels, size, box):
    """Write the labels over the runs' components, last row first; measure the components.

    size, box : (n + 1,) and (n + 1, 4), slot 0 left alone; box as from place_firsts.
    """
    h, w = labels.shape
    flat = labels.reshape(-1)
    words = starts.shape[1]
    row = np.empty(words * 64 + 64, np.int32)
    names = np.empty(w + 1, np.int32)
    width = np.uint64(w)
    for y in range(h - 1, -1, -1):
        runs = base[y + 1] - base[y]
        names[:runs] = flat[base[y] : base[y + 1]]
        run = NOTHING
        begin = NOTHING
        label = np.uint32(0)
        bottom = np.int32(y + 1)
        row[:SHORT] = 0
        for k in range(words):
            edge = edges[y, k]
            start = starts[y, k]
            left = np.uint64(k * 64)
            while edge:
                x = left + _trailing_zeros(edge)
                fill_rest(row, begin, x, label)
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
            fill_rest(row, begin, width, label)
            if label:
                measure(size, box, label, begin, width, bottom)
        labels[y] = row[:w]


def run_limits(dtype: np.dtype[Any], nodata: float | None) -> npt.NDArray[Any]:
    """What find_runs needs to know of a dtype to tell foreground from background and nodata."""
    word = np.dtype(f"u{dtype.itemsize}")
    full = int(np.iinfo(word).max)
    magnitude, limit, mark = full, full, 0
    if dtype.kind == "f":
        magnitude = full >> 1
        limit = int(dtype.type(np.inf).view(word)) - 1
        if nodata is not None and math.isfinite(nodata):
            with np.errstate(over="ignore"):  # as NumPy compares: rounded to the classes' dtype
                mark = int(dtype.type(nodata).view(word))
    elif nodata is not None and math.isfinite(nodata) and nodata == int(nodata):
        bounds = np.iinfo(dtype)
        if bounds.min <= nodata <= bounds.max:
            mark = int(dtype.type(int(nodata)).view(word))
    return np.array([[magnitude], [limit], [mark]], word)


def classes_as_words(
    classes: npt.NDArray[Any], nodata: float | None, connectivity: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """A tile as unsigned words, and what tells background from them; errors as `label_tile`."""
    if connectivity not in (4, 8):
        raise ValueError(f"connectivity: {connectivity!r} is neither 4 nor 8; pass one of them")
    if classes.ndim != 2 or classes.size == 0:
        raise ValueError(f"classes: shape {classes.shape} is not that of a tile; pass (h, w) cells")
    h, w = classes.shape
    if classes.size > MAX_CELLS:
        raise ValueError(f"classes: {h} x {w} cells are 2**31 or more; use smaller tiles")
    dtype = classes.dtype
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise TypeError(
            f"classes: dtype {dtype} is not a bool, an integer or a float of up to 64 bits;"
            " convert with .astype(...)"
        )
    native = np.dtype(np.uint8) if dtype.kind == "b" else dtype.newbyteorder("=")
    bits = np.ascontiguousarray(classes, native).view(f"u{native.itemsize}")
    return bits, run_limits(native, nodata)


def label_tile(
    classes: npt.NDArray[Any],
    nodata: float | None,
    connectivity: int = 8,
    *,
    narrow: bool = False,
) -> TileLabels:
    """Label the connected components of one tile.

    Parameters
    ----------
    classes : (h, w) array of bool, an integer or a float of up to 64 bits
        Neighbouring cells of equal value connect. Cells that are 0, not finite, or equal to
        ``nodata`` are background.
    nodata : float or None
        The value that marks nodata.
    connectivity : {8, 4}
    narrow : bool
        Give the labels as uint16 where they fit: half as much to move and to keep.

    Returns
    -------
    TileLabels
        Labels, and first cell, size and bounding box of each component.

    Raises
    ------
    TypeError
        If the dtype is not real or has more than 64 bits.
    ValueError
        If the tile holds no cell or 2**31 or more, or if ``connectivity`` is neither 4 nor 8.

    Notes
    -----
    Numbered by first cell in row-major order, so there is one answer only. Time is linear in the
    cells but for the unions, which are all but linear in the runs. Takes 4.25 bytes a cell, of
    which 4 are the answer.

    References
    ----------
    He, Chao, Suzuki (2008), doi:10.1109/TIP.2008.919369.

    Examples
    --------
    >>> label_tile(np.array([[1, 1, 0], [0, 2, 0], [0, 2, 1]]), None).labels
    array([[1, 1, 0],
           [0, 2, 0],
           [0, 2, 3]], dtype=int32)
    """
    bits, limits = classes_as_words(classes, nodata, connectivity)
    h, w = bits.shape
    bits.flags.writeable = False  # as arrays from a store may be: one type for the compiler
    words = -(-w // WORD)
    starts = np.empty((h, words), np.uint64)
    edges = np.empty((h, words), np.uint64)
    base = np.empty(h + 1, np.int64)
    labels = np.empty((h, w), np.int32)
    parent = labels.reshape(-1).view(np.uint32)
    runs = find_runs(bits, limits, connectivity == 8, starts, edges, base, parent)
    first = number_components(parent, runs)
    size = np.zeros(first.size + 1, np.int64)
    box = np.empty((first.size + 1, 4), np.int32)
    place_firsts(starts, base, w, first, box)
    write_labels(starts, edges, base, labels, size, box)
    fitting = labels.astype(np.uint16) if narrow and first.size < 2**16 else labels
    return TileLabels(fitting, first, size[1:], box[1:])


def compile_kernels(dtype: Any) -> None:
    """Compile, or load from the cache, what tiles of this dtype need."""
    label_tile((np.arange(16).reshape(4, 4) % 3).astype(dtype), None)
