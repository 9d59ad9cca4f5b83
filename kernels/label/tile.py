"""Connected components of one tile: run-based union-find, 64 cells a machine word.

*Find runs.* A run is a maximal sequence of cells of one foreground value in a row. Each row is
converted to keys: 0 for background, nodata and cells outside the tile; float values keep their
bits. Vectors of 64 keys are compared with the keys to the left and with those in the row above. The
results are words of 64 bits, and all later steps process set bits only: the starts of runs, and
the contacts of a run with a run of the same value in the row above. The contact of two runs that
share columns is the first shared column; that of two runs that touch at a corner only is the
corner. Each pair of adjacent runs thus has one contact. Runs are numbered in row-major order of
their first cells; a run's number is the number of starts before it, a population count.

*Unite.* The pairs of a row come in order. The parent of a run is set to the parent of the last run
that it touches above, without a find. Only the other pairs, of runs that touch several runs, are
collected in a list until the end of the row and united by Rem's algorithm (union_find.py). The
parent of a run is never after the run, so the root of a component is its first run, and a component
is numbered when the scan over the runs reaches its root.

*Write.* Runs and the components that they belong to are all that is kept of a tile: a quarter byte
a cell, and four a run, for any values. Labels are written from them, once, with whatever numbers
and type they are to have: 8 at a time from the start of a run on, over background, and the next run
overwrites the excess.

Runs as nodes: He, Chao, Suzuki (2008), "A run-based two-scan labeling algorithm",
doi:10.1109/TIP.2008.919369; Rem's algorithm: Patwary, Blair, Manne (2010),
doi:10.1007/978-3-642-13193-6_35. Classes (h, w) of unsigned 8, 16, 32 or 64-bit words, labels
(h, w) int32. Indices of cells and runs have 32 bits: a tile has fewer than 2**31 cells. They are
computed as unsigned integers, which avoids Numba's check for negative indices. Loops run over
cells, bits, or strictly decreasing run numbers, so they end. The work is serial and the numbering
by first cell is unique, so the result is deterministic.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.label.labels import RunLabels
from orograph.kernels.label.runs import WORD, find_runs, measure_runs, number_components

MAX_CELLS = 2**31 - 1


class TileLabels(NamedTuple):
    """The components of one tile, numbered by first cell in row-major order."""

    labels: npt.NDArray[np.int32] | npt.NDArray[np.uint16]
    """(h, w): 0 for background and nodata, else 1 to n."""
    first: npt.NDArray[np.int64]
    """(n,): row-major index of each component's first cell, ascending."""
    size: npt.NDArray[np.int64]
    """(n,): number of cells of each component."""
    box: npt.NDArray[np.int32]
    """(n, 4): bounding boxes: top, left, bottom, right; bottom and right are exclusive."""


class TileComponents(NamedTuple):
    """The components of one tile, numbered as in `TileLabels`; their labels are not written."""

    labels: Any
    """`RunLabels`, or what a GPU has with their functions."""
    first: npt.NDArray[np.integer[Any]]
    """(n,): first run or cell of each component, ascending: see ``labels.first_cells``."""
    rows: npt.NDArray[np.int64]
    """(h + 1,): number of components whose first cell is in a row above."""
    size: npt.NDArray[np.int64]
    """(n,) as in `TileLabels`, or (0,) where they are not measured."""
    box: npt.NDArray[np.int64]
    """(n, 4), or (0, 4)."""


def run_limits(dtype: np.dtype[Any], nodata: float | None) -> npt.NDArray[Any]:
    """Return the limits of `find_runs` that separate foreground from background and nodata."""
    word = np.dtype(f"u{dtype.itemsize}")
    full = int(np.iinfo(word).max)
    magnitude, limit, mark = full, full, 0
    if dtype.kind == "f":
        # The sign is left out: 0 and -0 are both background.
        magnitude = full >> 1
        limit = int(dtype.type(np.inf).view(word)) - 1
        if nodata is not None and math.isfinite(nodata):
            with np.errstate(over="ignore"):  # as in NumPy's comparison
                mark = int(dtype.type(nodata).view(word))
    elif nodata is not None and math.isfinite(nodata) and nodata == int(nodata):
        bounds = np.iinfo(dtype)
        if bounds.min <= nodata <= bounds.max:
            mark = int(dtype.type(int(nodata)).view(word))
    return np.array([[magnitude], [limit], [mark]], word)


def classes_as_words(
    classes: npt.NDArray[Any], nodata: float | None, connectivity: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return a tile as unsigned words, and the limits of `find_runs`; errors as `label_tile`."""
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
    bits = classes.astype(native, order="C", copy=False).view(f"u{native.itemsize}")
    return bits, run_limits(native, nodata)


def find_components(
    classes: npt.NDArray[Any],
    nodata: float | None,
    connectivity: int = 8,
    *,
    measure: bool = True,
) -> TileComponents:
    """Return the connected components of one tile, before any label is written.

    Parameters and errors are those of `label_tile`; without ``measure`` the components have neither
    sizes nor boxes, which takes a third of the time.
    """
    bits, limits = classes_as_words(classes, nodata, connectivity)
    h, w = bits.shape
    bits = bits.view()
    bits.flags.writeable = False  # arrays from a store may be read-only: compile for one type
    words = -(-w // WORD)
    starts = np.empty((h, words), np.uint64)
    edges = np.empty((h, words), np.uint64)
    base = np.empty(h + 1, np.int64)
    parent = np.empty(h * w, np.uint32)  # of as many runs as there may be
    runs = find_runs(bits, limits, connectivity == 8, starts, edges, base, parent)
    first = number_components(parent, runs)
    component = parent[:runs].copy()
    n = first.size if measure else 0
    size, box = np.zeros(n + 1, np.int64), np.empty((n + 1, 4), np.int64)
    if measure:
        measure_runs(starts, edges, base, component, w, size, box)
    # A component begins in a row above if its first run has a number below those of the row.
    rows = np.searchsorted(first, base.astype(first.dtype))
    labels = RunLabels(w, starts, edges, base, component)
    return TileComponents(labels, first, rows, size[1:], box[1:])


def label_tile(
    classes: npt.NDArray[Any],
    nodata: float | None,
    connectivity: int = 8,
    *,
    narrow: bool = False,
) -> TileLabels:
    """Return the labels and measures of the connected components of one tile.

    Parameters
    ----------
    classes : (h, w) array of bool, an integer or a float of up to 64 bits
        Neighbouring cells of equal value connect. Cells that are 0, not finite, or equal to
        ``nodata`` are background.
    nodata : float or None
        The value that marks nodata.
    connectivity : {8, 4}
    narrow : bool
        Return the labels as uint16 if they fit, which halves the memory and the traffic.

    Returns
    -------
    TileLabels
        The labels, and the first cell, size and bounding box of each component.

    Raises
    ------
    TypeError
        If the dtype is not real or has more than 64 bits.
    ValueError
        If the tile has no cell or 2**31 or more, or if ``connectivity`` is neither 4 nor 8.

    Notes
    -----
    Components are numbered by first cell in row-major order, so the result is unique. Time is
    linear in the cells, plus the unions, which take almost linear time in the runs.

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
    found = find_components(classes, nodata, connectivity)
    labels = np.empty(classes.shape, np.int32)
    found.labels.write(np.arange(found.first.size + 1), labels)
    fitting = labels.astype(np.uint16) if narrow and found.first.size < 2**16 else labels
    first = found.labels.first_cells(found.first)
    return TileLabels(fitting, first, found.size, found.box.astype(np.int32))


def compile_kernels(dtype: Any, labels: Any = np.int32) -> None:
    """Compile, or load from the cache, the functions for tiles and labels of these dtypes."""
    found = find_components((np.arange(16).reshape(4, 4) % 3).astype(dtype), None)
    found.labels.at(found.labels.first_cells(found.first))
    found.labels.write(np.arange(found.first.size + 1), np.empty((4, 4), labels))
