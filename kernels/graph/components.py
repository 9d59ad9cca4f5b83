"""The connected components of a graph in compressed rows, by Rem's algorithm.

`orograph.kernels.label.union_find` describes it, and does the same for a list of edges. Each edge
stands in the rows both ways, heads in ascending order; one of them is enough. Parents have the
dtype of ``indices``. Serial.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.label.union_find import compress_paths, unite

Array = npt.NDArray[Any]


@compiled
def join_rows(indptr, indices, parent):
    """Join the components of each arc's ends."""
    one = indices.dtype.type(1)
    for vertex in range(parent.size):
        tail = indices.dtype.type(vertex)
        for arc in range(indptr[tail], indptr[tail + one]):
            if indices[arc] >= tail:  # heads ascend
                break
            unite(parent, tail, indices[arc])


@compiled
def number_components(root: Any, stored: Any, labels: Any) -> Any:
    """Number components from 1 by their first vertex in the source; return how large they are.

    `stored` is the stored vertex at each place of the source.
    """
    numbers = np.zeros(root.size, root.dtype)
    sizes = np.empty(root.size, np.int64)
    count, begin, latest = 0, 0, 0
    for place in range(stored.size):
        first = root[stored[place]]
        number = int(numbers[first])
        if number == 0:
            sizes[count] = 0
            count += 1
            number = np.int64(count)
            numbers[first] = count
        labels[place] = number
        if number != latest:  # runs are added at once
            if latest:
                sizes[latest - 1] += place - begin
            latest, begin = number, place
    if latest:
        sizes[latest - 1] += stored.size - begin
    return sizes[:count].copy()


def graph_components(rows: tuple[Array, Array, Array]) -> Array:
    """Return the smallest vertex of each vertex's component, (n,), of the dtype of ``indices``."""
    indptr, indices, _ = rows
    parent = np.arange(indptr.size - 1, dtype=indices.dtype)
    join_rows(indptr, indices, parent)
    compress_paths(parent)
    return parent
