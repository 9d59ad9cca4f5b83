"""Boundary matrices without the entries that are sums of two others, and whole again.

*What is left out.* An entry is left out only if the min-plus product of what is kept has its very
bits there. Let R be the product of the whole matrix D with itself, paths through their own ends not
counted. Where R and D differ in a bit the entry is kept: it is no sum of two others or, in floats,
a sum of two others is rounded to less than it. Where they agree, no sum of two entries is less; so
once some pair of kept entries has the sum D[i, j] there, the product of what is kept has the bits
of D[i, j], whatever else is kept. Where there is no way nothing need be kept: no sum is less than
infinity.

*Which are kept.* Cells are hubs in some order; an entry is kept for the one of its two cells that
comes first, unless a hub before that has kept entries to both of them whose sum it is: Akiba, Iwata
and Yoshida, "Fast exact shortest-path distance queries on large networks by pruned landmark
labeling", doi:10.1145/2463676.2465315. So what is left out rests on what is kept alone: never on
one another, not in a circle of zeros either. The next hub is each time the one by which most of
those entries are sums that are none by an earlier one (of a fixed sample of them): Cohen, Halperin,
Kaplan and Zwick, "Reachability and distance queries via 2-hop labels",
doi:10.1137/S0097539702403098. All this depends on nothing but the matrix.

*Arrays.* float64, float32 or int64, as in minplus.py; elements are not negative. Kept entries stand
one behind the other, row by row (of a symmetric matrix the lower half), and a bit for each entry
says whether it was kept, from the highest of a byte on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import uint64

from orograph.kernels.compiled import compiled
from orograph.kernels.minplus.lanes import BARRIER
from orograph.kernels.minplus.product import product

SAMPLE = 4096  # entries by which hubs are chosen
CHUNK = 64  # hubs that are looked at in one go

Array = npt.NDArray[Any]
Marks = npt.NDArray[np.uint8]


@compiled
def _order_hubs(d, turned, pairs, hubs):
    """Order cells by how many of the pairs they are between; ``turned``: d transposed."""
    n, m = d.shape[0], pairs.shape[0]
    between = np.empty((m, n), np.uint8)
    counts = np.zeros(n, np.int64)
    for p in range(m):
        row, column, own = d[pairs[p, 0]], turned[pairs[p, 1]], between[p]
        value = d[pairs[p, 0], pairs[p, 1]]
        for k in range(n):
            own[uint64(k)] = row[uint64(k)] + column[uint64(k)] == value
        own[pairs[p, 0]] = 0
        own[pairs[p, 1]] = 0
        for k in range(n):
            counts[uint64(k)] += own[uint64(k)]
    at_first = counts.copy()
    done = np.zeros(m, np.uint8)
    for place in range(n):
        hub = 0
        for k in range(1, n):
            better = counts[k] > counts[hub]
            hub = k if better or (counts[k] == counts[hub] and at_first[k] > at_first[hub]) else hub
        hubs[place] = hub
        for p in range(m):
            if between[p, hub] and not done[p]:
                done[p] = 1
                own = between[p]
                for k in range(n):
                    counts[uint64(k)] -= own[uint64(k)]
        counts[hub] = -1
        at_first[hub] = -1


@compiled
def _is_given(leaving, arriving, hubs, value):
    """Whether a pair of kept entries, by way of one of the first hubs, has a sum."""
    for start in range(0, hubs, CHUNK):
        given = False
        for k in range(start, min(start + CHUNK, hubs)):
            given |= leaving[uint64(k)] + arriving[uint64(k)] == value
        if given:
            return True
    return False


@compiled
def _take_needed(d, hubs, nothing, symmetric, leaving, arriving, dropped):
    """Take from what may be dropped what must be kept.

    ``leaving`` and, of a matrix that is not symmetric, ``arriving``: kept entries from each cell to
    the hubs in their order, and from these to it; at first ``nothing``, as where there is no way.
    """
    n = d.shape[0]
    for place in range(n):
        hub = hubs[place]
        for later in range(place + 1, n):
            cell = hubs[later]
            value = d[cell, hub]
            if value < nothing and not (
                dropped[cell, hub] and _is_given(leaving[cell], arriving[hub], place, value)
            ):
                dropped[cell, hub] = False
                leaving[cell, place] = value
                if symmetric:
                    dropped[hub, cell] = False
            if symmetric:
                continue
            value = d[hub, cell]
            if value < nothing and not (
                dropped[hub, cell] and _is_given(leaving[hub], arriving[cell], place, value)
            ):
                dropped[hub, cell] = False
                arriving[cell, place] = value


@compiled
def _gather(d, keep, symmetric, values, marks):
    """Set kept entries one behind the other; how many there are."""
    n = d.shape[0]
    count = 0
    entry = 0
    for i in range(n):
        for j in range(i + 1 if symmetric else n):
            if keep[i, j]:
                values[count] = d[i, j]
                count += 1
                marks[entry >> 3] |= np.uint8(128 >> (entry & 7))
            entry += 1
    return count


@compiled
def _scatter(values, marks, symmetric, kept):
    """Set kept entries where they belong in a matrix; how many there are."""
    n = kept.shape[0]
    count = 0
    entry = 0
    for i in range(n):
        for j in range(i + 1 if symmetric else n):
            if marks[entry >> 3] & np.uint8(128 >> (entry & 7)):
                kept[i, j] = values[count]
                if symmetric:
                    kept[j, i] = values[count]
                count += 1
            entry += 1
    return count


@compiled
def _join(values, marks, symmetric, sums, out):
    """All entries as they are stored: those kept, and the sums where none was."""
    n = sums.shape[0]
    count = 0
    entry = 0
    for i in range(n):
        for j in range(i + 1 if symmetric else n):
            if marks[entry >> 3] & np.uint8(128 >> (entry & 7)):
                out[uint64(entry)] = values[count]
                count += 1
            else:
                out[uint64(entry)] = sums[i, j]
            entry += 1


def _nothing(dtype: np.dtype[Any]) -> Any:
    return dtype.type(BARRIER if dtype.kind == "i" else np.inf)


def _sums(matrix: Array, symmetric: bool) -> Array:
    """The product of a matrix with itself; of a symmetric one what is on and below its diagonal."""
    n = len(matrix)
    out = np.full((n, n), _nothing(matrix.dtype), matrix.dtype)
    flat = matrix.reshape(-1)
    product(out.reshape(-1), 0, n, flat, 0, n, flat, 0, n, n, n, n, False, symmetric)
    return out


def _sums_of_others(matrix: Array, symmetric: bool) -> Array:
    """Which elements are the least sum of two others, to the bit, or stand for no way."""
    bits = f"i{matrix.itemsize}"
    others = matrix.copy()
    np.fill_diagonal(others, _nothing(matrix.dtype))
    sums = _sums(others, symmetric)
    # by bits: 0 and -0 are equal, but not the same; a sum of -0 is left alone
    found: Array = (sums.view(bits) == matrix.view(bits)) & (matrix.view(bits) >= 0)
    if symmetric:
        found &= np.tri(len(matrix), dtype=bool)
        found |= found.T
    np.fill_diagonal(found, False)
    return found


def _sample(which: Array, symmetric: bool) -> npt.NDArray[np.int64]:
    """Rows and columns of some of them, evenly spread."""
    n = len(which)
    found = np.flatnonzero(np.tril(which) if symmetric else which)
    return np.stack(np.divmod(found[:: len(found) // SAMPLE + 1], n), axis=1)


def entries_of(cells: int, symmetric: bool) -> int:
    """How many entries are stored of a matrix with so many rows, if none is left out."""
    return cells * (cells + 1) // 2 if symmetric else cells * cells


def sparsify_matrix(matrix: Array, *, symmetric: bool) -> tuple[Array, Marks]:
    """The entries that must be kept.

    Parameters
    ----------
    matrix : (n, n) float64, float32 or int64, C order
        Least costs of paths: not negative, with infinity (int64: ``BARRIER``) where there is no
        way.
    symmetric : bool
        Whether it is symmetric; then only its lower half is looked at and kept.

    Returns
    -------
    (m,)
        What is kept, row by row.
    (e,) uint8
        A bit for each entry: whether it is kept.
    """
    n, nothing = len(matrix), _nothing(matrix.dtype)
    if symmetric:
        matrix = np.where(np.tri(n, dtype=bool), matrix, matrix.T)
    droppable = _sums_of_others(matrix, symmetric)
    hubs = np.empty(n, np.int64)
    turned = matrix if symmetric else np.ascontiguousarray(matrix.T)
    _order_hubs(matrix, turned, _sample(droppable & (matrix < nothing), symmetric), hubs)
    leaving = np.full((n, n), nothing, matrix.dtype)
    arriving = leaving if symmetric else leaving.copy()
    _take_needed(matrix, hubs, nothing, symmetric, leaving, arriving, droppable)
    keep = ~droppable
    count = entries_of(n, symmetric)
    values = np.empty(count, matrix.dtype)
    marks = np.zeros(-(-count // 8), np.uint8)
    taken = _gather(matrix, keep, symmetric, values, marks)
    return values[:taken].copy(), marks


def recover(values: Array, marks: Marks, cells: int, *, symmetric: bool) -> Array:
    """All entries of a matrix again, to the bit.

    Parameters
    ----------
    values, marks
        As `thin` gives them; there may be more values than were kept.
    cells : int
        Rows of the matrix.
    symmetric : bool

    Returns
    -------
    (e,)
        Entries row by row: all, or those of the lower half.

    Raises
    ------
    ValueError
        If there are fewer values than marks say.
    """
    stored = int(np.bitwise_count(marks).sum())
    if stored > len(values):
        raise ValueError(f"{len(values)} entries where {stored} are marked as kept")
    kept = np.full((cells, cells), _nothing(values.dtype), values.dtype)
    _scatter(values, marks, symmetric, kept)
    out = np.empty(entries_of(cells, symmetric), values.dtype)
    _join(values, marks, symmetric, _sums(kept, symmetric), out)
    return out
