"""Sparsification of boundary matrices by hub labels, and exact recovery of the whole matrix.

*Which entries may be dropped.* An entry is dropped only if the min-plus product of the kept entries
has exactly its bits. Let R be the product of the whole matrix D with itself, without paths through
their own ends. If R[i, j] and D[i, j] differ in a bit, the entry is kept: it is not a sum of two
others or, in floats, a sum of two others is rounded to less than it. If they agree, no sum of two
entries is less than D[i, j]. As soon as one pair of kept entries has the sum D[i, j], the product
of the kept entries has the bits of D[i, j], whichever others are kept. An entry without a path is
never kept, because no sum is less than infinity.

*Which entries are kept.* Cells are hubs in a fixed order. An entry belongs to the one of its two
cells that comes first. It is kept unless an earlier hub has kept entries to both cells with that
sum: Akiba, Iwata and Yoshida, "Fast exact shortest-path distance queries on large networks by
pruned landmark labeling", doi:10.1145/2463676.2465315. Dropped entries thus depend on kept entries
alone, never on each other, also along cycles of length zero. The next hub is the cell that covers
most entries not covered by an earlier hub (in a fixed sample of the entries that may be dropped):
Cohen, Halperin, Kaplan and Zwick, "Reachability and distance queries via 2-hop labels",
doi:10.1137/S0097539702403098. The result depends on the matrix alone.

*Arrays.* float64, float32 or int64, as in minplus/product.py; elements are not negative. Kept
entries are stored row by row (of a symmetric matrix those of the lower triangle). Marks hold one
bit per entry, set if it is kept, from the highest bit of a byte on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import uint64

from orograph.kernels.compiled import compiled
from orograph.kernels.minplus.lanes import BARRIER
from orograph.kernels.minplus.product import product
from orograph.tiles.arrays import Array

SAMPLE = 4096  # entries that decide the order of hubs
CHUNK = 64  # hubs that are compared without a branch between them

Marks = npt.NDArray[np.uint8]


@compiled
def _order_hubs(d, transposed, pairs, hubs):
    """Write the order of hubs: greedily by pairs newly covered; ``transposed``: d transposed."""
    n, m = d.shape[0], pairs.shape[0]
    between = np.empty((m, n), np.uint8)
    counts = np.zeros(n, np.int64)
    for p in range(m):
        row, column, own = d[pairs[p, 0]], transposed[pairs[p, 1]], between[p]
        value = d[pairs[p, 0], pairs[p, 1]]
        for k in range(n):
            own[uint64(k)] = row[uint64(k)] + column[uint64(k)] == value
        # A pair is not covered by its own ends.
        own[pairs[p, 0]] = 0
        own[pairs[p, 1]] = 0
        for k in range(n):
            counts[uint64(k)] += own[uint64(k)]
    at_first = counts.copy()
    done = np.zeros(m, np.uint8)
    for place in range(n):
        hub = 0
        for k in range(1, n):
            # Greedy: the cell between most pairs that are not covered yet. Of equals, the one that
            # was between more at first, then the first one.
            better = counts[k] > counts[hub]
            hub = k if better or (counts[k] == counts[hub] and at_first[k] > at_first[hub]) else hub
        hubs[place] = hub
        for p in range(m):
            if between[p, hub] and not done[p]:
                done[p] = 1
                own = between[p]
                for k in range(n):
                    counts[uint64(k)] -= own[uint64(k)]
        # It is not chosen again.
        counts[hub] = -1
        at_first[hub] = -1


@compiled
def _is_covered(leaving, arriving, hubs, value):
    """Return whether kept entries to and from one of the first hubs have the sum ``value``."""
    for start in range(0, hubs, CHUNK):
        covered = False
        # No branch within a chunk, so that it is done in vectors.
        for k in range(start, min(start + CHUNK, hubs)):
            covered |= leaving[uint64(k)] + arriving[uint64(k)] == value
        if covered:
            return True
    return False


@compiled
def _keep_needed(d, hubs, unreached, symmetric, leaving, arriving, dropped):
    """Clear ``dropped`` for the entries that must be kept.

    ``leaving``: kept entries from each cell to the hubs, in their order. ``arriving``, for a matrix
    that is not symmetric: kept entries from the hubs to each cell. Both are ``unreached`` at first.
    """
    n = d.shape[0]
    for place in range(n):
        hub = hubs[place]
        # An entry belongs to whichever of its two cells is the earlier hub, so only later cells are
        # left.
        for later in range(place + 1, n):
            cell = hubs[later]
            value = d[cell, hub]
            # Covered by one of the ``place`` hubs before this one, whose entries are decided.
            if value < unreached and not (
                dropped[cell, hub] and _is_covered(leaving[cell], arriving[hub], place, value)
            ):
                dropped[cell, hub] = False
                leaving[cell, place] = value
                if symmetric:
                    dropped[hub, cell] = False
            if symmetric:
                continue
            value = d[hub, cell]
            if value < unreached and not (
                dropped[hub, cell] and _is_covered(leaving[hub], arriving[cell], place, value)
            ):
                dropped[hub, cell] = False
                arriving[cell, place] = value


@compiled
def _gather(d, keep, symmetric, values, marks):
    """Write kept entries to ``values`` and their bits to ``marks``; return their number."""
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
    """Write kept entries to their positions in a matrix; return their number."""
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
    """Write all entries in stored order: kept entries, and sums in place of dropped ones."""
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


def _unreached(dtype: np.dtype[Any]) -> Any:
    return dtype.type(BARRIER if dtype.kind == "i" else np.inf)


def _sums(matrix: Array, symmetric: bool) -> Array:
    """Return the product of a matrix with itself; if symmetric, only its lower triangle."""
    n = len(matrix)
    out = np.full((n, n), _unreached(matrix.dtype), matrix.dtype)
    flat = matrix.reshape(-1)
    product(out.reshape(-1), 0, n, flat, 0, n, flat, 0, n, n, n, n, False, symmetric)
    return out


def _sums_of_others(matrix: Array, symmetric: bool) -> Array:
    """Return which elements have the bits of the least sum of two others, or are unreached."""
    bits = f"i{matrix.itemsize}"
    # Infinity on the diagonal excludes paths through an entry's own ends.
    others = matrix.copy()
    np.fill_diagonal(others, _unreached(matrix.dtype))
    sums = _sums(others, symmetric)
    # compare bits, because 0 and -0 are equal; -0 is never dropped
    found: Array = (sums.view(bits) == matrix.view(bits)) & (matrix.view(bits) >= 0)
    if symmetric:
        found &= np.tri(len(matrix), dtype=bool)
        found |= found.T
    np.fill_diagonal(found, False)
    return found


def _sample(which: Array, symmetric: bool) -> npt.NDArray[np.int64]:
    """Return rows and columns of an evenly spaced sample of the true elements."""
    n = len(which)
    found = np.flatnonzero(np.tril(which) if symmetric else which)
    return np.stack(np.divmod(found[:: len(found) // SAMPLE + 1], n), axis=1)


def entries_of(cells: int, symmetric: bool) -> int:
    """Return how many entries of a matrix of ``cells`` rows are stored if none is dropped."""
    return cells * (cells + 1) // 2 if symmetric else cells * cells


def sparsify_matrix(matrix: Array, *, symmetric: bool) -> tuple[Array, Marks]:
    """Return the entries that must be kept.

    Parameters
    ----------
    matrix : (n, n) float64, float32 or int64, C order
        Least costs of paths: not negative, with infinity (int64: ``BARRIER``) where there is no
        path.
    symmetric : bool
        Whether it is symmetric; then only its lower triangle is read and kept.

    Returns
    -------
    (m,)
        Kept entries, row by row.
    (ceil(e / 8),) uint8
        One bit for each of the e entries: whether it is kept.
    """
    n, unreached = len(matrix), _unreached(matrix.dtype)
    if symmetric:
        # Both triangles from the lower one, so that both are equal bit for bit.
        matrix = np.where(np.tri(n, dtype=bool), matrix, matrix.T)
    droppable = _sums_of_others(matrix, symmetric)
    hubs = np.empty(n, np.int64)
    transposed = matrix if symmetric else np.ascontiguousarray(matrix.T)
    _order_hubs(matrix, transposed, _sample(droppable & (matrix < unreached), symmetric), hubs)
    leaving = np.full((n, n), unreached, matrix.dtype)
    arriving = leaving if symmetric else leaving.copy()
    _keep_needed(matrix, hubs, unreached, symmetric, leaving, arriving, droppable)
    keep = ~droppable
    count = entries_of(n, symmetric)
    values = np.empty(count, matrix.dtype)
    marks = np.zeros(-(-count // 8), np.uint8)
    taken = _gather(matrix, keep, symmetric, values, marks)
    return values[:taken].copy(), marks


def recover(values: Array, marks: Marks, cells: int, *, symmetric: bool) -> Array:
    """Return all entries of a sparsified matrix, equal bit for bit.

    Parameters
    ----------
    values, marks
        From `sparsify_matrix`; values beyond the kept ones are ignored.
    cells : int
        Rows of the matrix.
    symmetric : bool

    Returns
    -------
    (e,)
        Entries row by row: all, or those of the lower triangle.

    Raises
    ------
    ValueError
        If there are fewer values than marked entries.
    """
    stored = int(np.bitwise_count(marks).sum())
    if stored > len(values):
        raise ValueError(f"{len(values)} entries where {stored} are marked as kept")
    kept = np.full((cells, cells), _unreached(values.dtype), values.dtype)
    _scatter(values, marks, symmetric, kept)
    out = np.empty(entries_of(cells, symmetric), values.dtype)
    _join(values, marks, symmetric, _sums(kept, symmetric), out)
    return out
