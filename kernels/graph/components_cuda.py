"""The connected components of a graph in compressed rows, on a GPU."""

from __future__ import annotations

import numpy as np

from orograph.kernels.device import Device, current_device
from orograph.kernels.label.union_find_cuda import join_components
from orograph.tiles.arrays import Array


def graph_components(rows: tuple[Array, Array, Array], *, device: Device | None = None) -> Array:
    """Return the smallest vertex of each vertex's component, (n,) uint32 or uint64.

    Parameters and result are those of `orograph.kernels.graph.components.graph_components`. Each
    edge stands in the rows both ways; one of them goes to the GPU.
    """
    indptr, indices, _ = rows
    where = device or current_device()
    n = indptr.size - 1
    word = np.uint32 if n <= 2**32 else np.uint64
    degrees: Array = np.diff(indptr.astype(np.int64))
    tails = np.repeat(np.arange(n, dtype=word), degrees)
    one = indices < tails
    ends = tails[one], indices[one].astype(word)
    return where.download(join_components(where, n, *map(where.upload, ends)))
