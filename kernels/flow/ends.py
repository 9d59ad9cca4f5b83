"""Ends of the paths of all cells of a tile.

Each cell takes the label of the cell to which its water flows, if that comes before it in row-major
order, or else leads there; a second pass in the reverse order resolves these. Indices are int32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from orograph.kernels.compiled import compiled
from orograph.kernels.flow.accumulate import find_circle
from orograph.kernels.flow.codes import MISSING, SINK, steps_in_rows
from orograph.kernels.flow.route import compile_kernels as compile_paths
from orograph.tiles.arrays import Array


@compiled
def _label_ends(numbers, steps, labels, ends):
    """Label each cell with the number of its end, from 1; return how many ends, or -1."""
    count = 0
    for i in range(numbers.size):
        number = numbers[i]
        if number < SINK:
            target = i + steps[number]
            # An earlier cell's entry is copied, be it a label or where it leads; ~target is
            # negative.
            labels[i] = labels[target] if target < i else ~target
        elif number == MISSING:
            labels[i] = 0
        else:
            ends[count] = i
            count += 1
            labels[i] = count
    # Every walk labels its cells, so that without circles no cell is passed more than twice:
    # further steps would go round.
    left = 2 * numbers.size
    for i in range(numbers.size - 1, -1, -1):
        label = labels[i]
        if label < 0:
            while label < 0 and left:
                label = labels[~label]
                left -= 1
            if label < 0:
                return -1
            j = i
            while labels[j] < 0:
                following = ~labels[j]
                labels[j] = label
                j = following
    return count


def label_ends(
    numbers: Array,
) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    """Return for each cell the number of its path's end, from 1, the ends, and a cell on a circle.

    Parameters
    ----------
    numbers : (h, w) uint8
        As `orograph.kernels.flow.codes` has them; no step leads out of the array.

    Returns
    -------
    labels : (h, w) int32
        0 at nodata.
    ends : int32 array
        Cells, ascending.
    circle : int
        The first of the cells on circles, or -1. If there is one, labels are not complete.
    """
    labels, ends = np.empty((2, numbers.size), np.int32)
    flat = numbers.reshape(-1)
    count = _label_ends(flat, steps_in_rows(numbers.shape[1]), labels, ends)
    circle = -1
    if count < 0:
        circle = find_circle(numbers)
    return labels.reshape(numbers.shape), ends[: max(count, 0)].copy(), circle


@compiled
def replace_labels(labels: Array, table: Array, found: Array) -> None:
    """Write the entry of a table for each label."""
    for y in range(labels.shape[0]):
        for x in range(labels.shape[1]):
            found[y, x] = table[labels[y, x]]


def compile_kernels() -> None:
    """Compile, or load from the cache, the functions for tiles and nodes."""
    compile_paths()
    labels, ends, _ = label_ends(np.full((2, 2), SINK, np.uint8))
    for found in (np.empty((2, 2), np.int64), np.empty((2, 3), np.int64)[:, :2]):
        replace_labels(labels, np.zeros(ends.size + 1, np.int64), found)
