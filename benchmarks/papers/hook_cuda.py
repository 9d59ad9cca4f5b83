"""Components of a graph given as a list of edges, on a GPU: the host's side of hook.cu."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from orograph.kernels.device import Buffer, Device, blocks_for, current_device
from orograph.kernels.label.union_find import Ends, Roots, check_ends

THREADS = 256
SOURCE = str(Path(__file__).with_name("hook.cu"))


def join_components(device: Device, n: int, a: Buffer, b: Buffer, method: str) -> Buffer:
    """Return the smallest vertex of each vertex's component, (n,), for edges on the device.

    Parameters
    ----------
    a, b : (m,) uint32 on the device, or uint64 if n is more than 2**32
        The two ends of each edge, vertices from 0 to n - 1; not checked.
    method : {"rem", "hook", "hook-twice", "compress"}
    """
    word = np.dtype(a.dtype)
    defines = {"VERTEX_BITS": word.itemsize * 8}
    parent = device.array_module.empty(n, word)

    def over_vertices(kernel: str) -> None:
        if n:
            grid, arguments = blocks_for(n, THREADS), (parent, np.int64(n))
            device.launch(SOURCE, kernel, grid, (THREADS,), arguments, defines=defines)

    def over_edges(kernel: str) -> None:
        if a.size:
            grid, arguments = blocks_for(a.size, THREADS), (parent, a, b, np.int64(a.size))
            device.launch(SOURCE, kernel, grid, (THREADS,), arguments, defines=defines)

    over_vertices("start_parents")
    if method == "rem":
        over_edges("join_edges")
    elif method == "compress":
        # A pass lowers a root to one neighbour alone, so passes are repeated until all edges lie
        # within components.
        while bool((parent[a] != parent[b]).any()):
            over_edges("lower_roots")
            over_vertices("compress_paths")
    else:
        if method == "hook-twice":
            over_edges("hook_parents")
            over_vertices("compress_paths")
        over_edges("hook_roots")
    over_vertices("compress_paths")
    return parent


def components(n: int, a: Ends, b: Ends, method: str, *, device: Device | None = None) -> Roots:
    """Return the smallest vertex of each vertex's component, (n,) int64.

    Parameters and result are those of `papers.hook.components`; ``device`` is the process's GPU by
    default.
    """
    first, second = check_ends(n, a, b)
    where = device or current_device()
    parent = join_components(where, n, where.upload(first), where.upload(second), method)
    return where.download(parent).astype(np.int64)
