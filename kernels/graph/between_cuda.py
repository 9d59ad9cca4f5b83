"""A shortest path between two vertices of a graph on a GPU, by searches from both ends."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orograph.kernels.device import Buffer
from orograph.kernels.device_rows import DeviceRows
from orograph.kernels.graph.near_far_cuda import hops_on_device
from orograph.tiles.arrays import Array

FIRST_HOPS, FURTHER = 64, 4
"""Hops of the first two searches, and how many times as far the next ones go."""
THREADS = 256


def between(
    rows: DeviceRows, incoming: DeviceRows, position: Buffer, s: int, t: int
) -> npt.NDArray[np.int64]:
    """Return a shortest path from s to t, both included; empty if there is none.

    The result is that of `orograph.kernels.graph.hops.between`: the same meeting point and steps.

    Parameters
    ----------
    rows, incoming : DeviceRows
        Arcs by tail and by head.
    position : (n,) words on the device
        The place of each vertex in the source.
    s, t : int
        Stored vertices.
    """
    device, xp, ends = rows.device, rows.device.array_module, ((rows, s), (incoming, t))
    most, met = FIRST_HOPS, False
    while not met:
        hops = [hops_on_device(links, np.array([start]), most) for links, start in ends]
        both = (hops[0] >= 0) & (hops[1] >= 0)
        met = bool(device.download(both.any().reshape(1))[0])
        if not met:
            reached = [int(device.download(found.max().reshape(1))[0]) for found in hops]
            if min(reached) < most:  # one side has no further vertices
                return np.empty(0, np.int64)
            most = min(FURTHER * most, rows.n)
    # a vertex halfway has at most so many hops from either end, so the least sum is the length
    total = int(device.download((hops[0] + hops[1])[both].min().reshape(1))[0])
    if total > most:  # one side may go further than halfway
        hops = [hops_on_device(links, np.array([start]), total) for links, start in ends]
    from_s, from_t = _meeting(ends, hops, total)
    places = xp.flatnonzero((hops[0] == from_s) & (hops[1] == from_t))
    middle = places[position[places].argmin()]
    way = xp.empty(total + 1, np.int64)
    way[from_s] = middle
    for links, found, steps, by in (
        (incoming, hops[0], from_s, -1),
        (rows, hops[1], total - from_s, 1),
    ):
        device.launch(
            "graph/between.cu", "walk", (1,), (THREADS,),
            (links.indptr, links.indices, position, found, way, np.int64(from_s), np.int64(steps),
             np.int64(by)),
            defines={
                "WORD_BITS": links.defines["WORD_BITS"],
                "HOP_BITS": 8 * found.dtype.itemsize,
                "THREADS": THREADS,
            },
        )  # fmt: skip
    return device.download(way)


def _meeting(
    ends: tuple[tuple[DeviceRows, int], ...], hops: list[Array], total: int
) -> tuple[int, int]:
    """Return the hops from s and from t at which a search from both ends meets.

    The side whose vertices have fewer arcs goes on, as in `orograph.kernels.graph.hops.between`.
    """
    arcs = []
    for (rows, _), found in zip(ends, hops, strict=True):
        device, xp = rows.device, rows.device.array_module
        inside = (found >= 0) & (found <= total)
        degree = (rows.indptr[1:] - rows.indptr[:-1])[inside]
        counts = xp.bincount(found[inside], weights=degree, minlength=total + 1)
        arcs.append(device.download(counts))
    from_s = from_t = 0
    while from_s + from_t < total:
        if arcs[0][from_s] <= arcs[1][from_t]:
            from_s += 1
        else:
            from_t += 1
    return from_s, from_t
