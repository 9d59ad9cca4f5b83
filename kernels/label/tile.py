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

from orograph.kernels.label.runs import (
    WORD,
    find_runs,
    number_components,
    place_firsts,
    write_labels,
)

MAX_CELLS = 2**31 - 1


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
