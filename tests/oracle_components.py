"""An independent answer to "what are the connected components of this raster?".

Written from the contract alone, with NumPy and SciPy, whole rasters at a time and no tiles:

- `connected_components` lets `scipy.ndimage.label` label one class after the other and numbers
  what it finds by first cells;
- `by_graph` lists the edges between equal neighbours for SciPy's graph routine; for rasters of
  many classes, where a call a class takes too long;
- `by_flooding` fills in pure Python, cell by cell in row-major order; it checks the other two.

Sizes and boxes are always those of `numpy.bincount` and `scipy.ndimage.find_objects`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage
from scipy.sparse import coo_array, csgraph

STRUCTURE = {
    4: np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]]),
    8: np.ones((3, 3), np.int64),
}
STEPS = {4: ((0, 1), (1, 0)), 8: ((0, 1), (1, -1), (1, 0), (1, 1))}
"""(dy, dx) from a cell to those of its neighbours that come later in row-major order."""


@dataclass(frozen=True)
class Components:
    """Labels and the table beside them, one row a component."""

    labels: np.ndarray
    size: np.ndarray
    box: np.ndarray
    """Top, left, bottom, right; the last two not included."""

    @property
    def count(self) -> int:
        return self.size.size


def foreground(classes: np.ndarray, nodata: float | int | None = None) -> np.ndarray:
    """Which cells belong to a component: finite, not 0 and not nodata."""
    inside = classes != 0
    if classes.dtype.kind == "f":
        inside &= np.isfinite(classes)
    if nodata is not None:
        inside &= classes != nodata
    return inside


def tabulate(labels: np.ndarray) -> Components:
    """The table of labels 1..n."""
    count = int(labels.max(initial=0))
    found = ndimage.find_objects(labels, max_label=count)
    box = [(rows.start, columns.start, rows.stop, columns.stop) for rows, columns in found]
    return Components(
        labels,
        np.bincount(labels.ravel(), minlength=count + 1)[1:],
        np.array(box, np.int64).reshape(count, 4),
    )


def renumber(parts: np.ndarray, min_size: int = 1) -> Components:
    """Number parts (0 is background) by their first cells, without those that are too small."""
    names, first, place, size = np.unique(
        parts, return_index=True, return_inverse=True, return_counts=True
    )
    stays = (names > 0) & (size >= min_size)
    number = np.zeros(names.size, np.int64)
    number[stays] = 1 + np.argsort(np.argsort(first[stays]))
    return tabulate(number[place].reshape(parts.shape))


def connected_components(
    classes: np.ndarray,
    *,
    connectivity: int = 8,
    min_size: int = 1,
    nodata: float | int | None = None,
) -> Components:
    """One call of SciPy a class."""
    inside = foreground(classes, nodata)
    parts = np.zeros(classes.shape, np.int64)
    count = 0
    for value in np.unique(classes[inside]):
        labels, more = ndimage.label(inside & (classes == value), STRUCTURE[connectivity])
        parts[labels > 0] = labels[labels > 0] + count
        count += more
    return renumber(parts, min_size)


def by_graph(
    classes: np.ndarray,
    *,
    connectivity: int = 8,
    min_size: int = 1,
    nodata: float | int | None = None,
) -> Components:
    """Components of the graph of equal neighbours."""
    inside = foreground(classes, nodata)
    height, width = classes.shape
    cell = np.arange(classes.size).reshape(classes.shape)
    ends = []
    for dy, dx in STEPS[connectivity]:
        here = np.s_[: height - dy, max(-dx, 0) : width - max(dx, 0)]
        there = np.s_[dy:, max(dx, 0) : width + min(dx, 0)]
        joined = inside[here] & inside[there] & (classes[here] == classes[there])
        ends.append((cell[here][joined], cell[there][joined]))
    a, b = (np.concatenate(e) for e in zip(*ends))
    graph = coo_array((np.ones(a.size, np.int8), (a, b)), shape=(classes.size, classes.size))
    _, parts = csgraph.connected_components(graph, directed=False)
    return renumber(np.where(inside, parts.reshape(classes.shape) + np.int64(1), 0), min_size)


def by_flooding(
    classes: np.ndarray,
    *,
    connectivity: int = 8,
    min_size: int = 1,
    nodata: float | int | None = None,
) -> np.ndarray:
    """The labels alone, by the definition: scan, and flood from each cell not yet reached."""
    inside = foreground(classes, nodata).tolist()
    value = classes.tolist()
    height, width = classes.shape
    steps = [s for dy, dx in STEPS[connectivity] for s in ((dy, dx), (-dy, -dx))]
    labels = [[0] * width for _ in range(height)]
    seen: set[tuple[int, int]] = set()
    count = 0
    for start in np.ndindex(height, width):
        if start in seen or not inside[start[0]][start[1]]:
            continue
        seen.add(start)
        reached = [start]
        for y, x in reached:
            for dy, dx in steps:
                v, u = y + dy, x + dx
                if (v, u) in seen or not (0 <= v < height and 0 <= u < width):
                    continue
                if inside[v][u] and value[v][u] == value[y][x]:
                    seen.add((v, u))
                    reached.append((v, u))
        if len(reached) >= min_size:
            count += 1
            for y, x in reached:
                labels[y][x] = count
    return np.array(labels, np.int64)
