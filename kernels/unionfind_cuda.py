"""The host's side of unionfind.cu: components of a graph given as a list of edges, on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.cuda import Buffer, Device, blocks_for, current_device
from orograph.kernels.unionfind import METHODS, Ends, Roots

THREADS = 256
SOURCE = "unionfind.cu"


def join_components(device: Device, n: int, a: Buffer, b: Buffer, method: str = "rem") -> Buffer:
    """The smallest vertex of each vertex's component, (n,), of an edge list on the device.

    Parameters
    ----------
    a, b : (m,) uint32 on the device, or uint64 if n is more than 2**32
        The two ends of each edge, vertices from 0 to n - 1; not checked.
    method : {"rem", "hook", "hook-twice"}
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
    else:
        if method == "hook-twice":
            over_edges("hook_parents")
            over_vertices("compress_paths")
        over_edges("hook_roots")
    over_vertices("compress_paths")
    return parent


def components(
    n: int, a: Ends, b: Ends, method: str = "rem", *, device: Device | None = None
) -> Roots:
    """The connected component of each vertex, named by its smallest vertex.

    The same as `orograph.kernels.unionfind.components`, whose parameters, errors and answer it has;
    ``device`` is where it runs, the process's GPU by default.

    References
    ----------
    Komura (2015), doi:10.1016/j.cpc.2015.04.015.
    """
    if method not in METHODS:
        raise ValueError(f"method: {method!r} is unknown; choose one of {', '.join(METHODS)}")
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"a, b: shapes {a.shape} and {b.shape}; pass two lists of one length")
    if a.dtype.kind not in "iu" or b.dtype.kind not in "iu":
        raise TypeError(f"a, b: dtypes {a.dtype} and {b.dtype}; vertices are integers, cast them")
    for name, ends in (("a", a), ("b", b)):
        if ends.size and not 0 <= int(ends.min()) <= int(ends.max()) < n:
            wrong = int(np.flatnonzero((ends < 0) | (ends >= n))[0])
            raise ValueError(
                f"{name}: edge {wrong} ends at {ends[wrong]}, which is none of the vertices 0 to"
                f" {n - 1}; correct it or raise n"
            )
    where = device or current_device()
    word: Any = np.uint32 if n <= 2**32 else np.uint64
    ends = (where.upload(a.astype(word)), where.upload(b.astype(word)))
    return where.download(join_components(where, n, *ends, method)).astype(np.int64)
