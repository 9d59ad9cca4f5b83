"""Shortest paths and hops of a graph on a GPU: the host's side of near_far.cu."""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.device import Buffer, Device, blocks_for, current_device
from orograph.kernels.device_rows import DeviceRows, upload_rows
from orograph.kernels.graph.spread import unreached
from orograph.tiles.arrays import Array

SOURCE = "graph/near_far.cu"
THREADS = 256
SPARSE_BLOCKS, DENSE_BLOCKS = 264, 1056
"""Blocks that relax; more would take their turns to look whether there is work."""
SPLIT_BLOCKS = 1056
BATCH = 8
"""Buckets that are launched before the host looks whether a vertex is left."""
ROOM = 2
"""Vertices that near has room for, in vertices of the graph; at least 1."""
HOPS_WIDTH = 64
"""Of a bucket, in hops."""
FEW, MANY = 64, 8
"""A bucket that takes less or more than these parts of the vertices changes the width."""
# words of the state: see near_far.cu
FAR, LEAST, BOUND, WIDTH, OVER, WORDS = 80, 112, 128, 129, 130, 133


def lanes_for(rows: DeviceRows) -> int:
    """Return how many lanes relax a vertex: a quarter of the mean degree, as a power of two."""
    degree = rows.arcs / max(rows.n, 1)
    return next(lanes for lanes in (1, 2, 4, 8, 16, 32) if lanes == 32 or degree <= 6 * lanes)


def search(rows: DeviceRows, starts: Array, costs: Array, width: float, most: Any) -> Buffer:
    """Return the least cost of each vertex from any start, (n,) int64 or float64 on the device.

    Parameters
    ----------
    rows : DeviceRows
        Weights are not negative.
    starts : (k,) integers
        Different vertices.
    costs : (k,) int64 or float64
        What each of them costs, not negative.
    width : number
        Of the first bucket; the others follow the graph.
    most : number
        Greater costs are none: infinity, or 2**60 in integers.
    """
    device, xp, n = rows.device, rows.device.array_module, rows.n
    # numbers that are not negative have the order of their bits
    none = int(unreached(costs.dtype).view(np.int64))
    lanes = lanes_for(rows)
    capacity = ROOM * n + rows.arcs // (32 * lanes)
    near = xp.full(capacity, 2**64 - 1, np.uint64)
    lists = xp.empty(n, rows.word), xp.empty(n, rows.word)
    listed = xp.zeros(n, np.uint32)
    cost, relaxed = xp.full(n, none, np.int64), xp.full(n, none, np.int64)
    first = device.upload(starts.astype(rows.word))
    lists[0][: starts.size] = first
    listed[first] = 1
    cost[first] = device.upload((costs + costs.dtype.type(0)).view(np.int64))
    state = np.zeros(WORDS, np.int64)
    state[FAR], state[LEAST] = starts.size, none
    unit = costs.dtype.type(min(width, none) if costs.dtype.kind == "i" else width)
    bound = costs.min() + unit
    state[WIDTH] = unit.view(np.int64)
    state[BOUND] = min(int(bound.view(np.int64)) + int(unit == 0), none)
    words = device.upload(state)
    defines = {**rows.defines, "LANES": lanes, "FOLLOW": int(lanes == 1), "THREADS": THREADS}
    few, many = np.int64(n // FEW), np.int64(n // MANY)
    highest = costs.dtype.type(min(most, unreached(costs.dtype))).view(np.int64)
    blocks = min(blocks_for(n * lanes, THREADS)[0], SPARSE_BLOCKS if lanes == 1 else DENSE_BLOCKS)
    split_blocks = min(blocks_for(n, THREADS)[0], SPLIT_BLOCKS)

    def launch(kernel: str, count: int, *arguments: Any) -> None:
        device.launch(SOURCE, kernel, (count,), (THREADS,), arguments, defines=defines)

    bucket = 0
    while not device.download(words[OVER : OVER + 1])[0]:
        for _ in range(BATCH):
            far, following = lists[bucket % 2], lists[1 - bucket % 2]
            parity = np.int32(bucket % 2)
            launch(
                "split", split_blocks, far, following, near, cost, relaxed, listed, words, parity
            )
            launch(
                "relax", blocks, rows.indptr, rows.indices, rows.weight, cost, relaxed, near,
                np.int64(capacity), following, listed, words, parity, highest, few, many,
            )  # fmt: skip
            bucket += 1
    return cost.view(costs.dtype)


def hops_on_device(rows: DeviceRows, starts: Array, most: int) -> Buffer:
    """Return the least number of hops from any start, (n,) int32 or int64 on the device."""
    first = np.unique(starts)
    found = search(rows.unweighted(), first, np.zeros(first.size, np.int64), HOPS_WIDTH, most)
    found[found == unreached(np.dtype(np.int64))] = -1
    return found.astype(np.int32 if rows.n < 2**31 else np.int64)


def graph_hops(
    rows: tuple[Array, Array, Array], starts: Array, most: int, *, device: Device | None = None
) -> Array:
    """Return the least number of hops from any start, (n,) int32 or int64; -1 beyond `most`.

    Parameters and result are those of `orograph.kernels.graph.hops.graph_hops`.
    """
    where = device or current_device()
    return where.download(hops_on_device(upload_rows(where, *rows[:2], None), starts, most))


def graph_paths(
    rows: tuple[Array, Array, Array],
    start: int,
    width: Any,
    most: Any,
    *,
    device: Device | None = None,
) -> Array:
    """Return the least cost of each vertex from a start, (n,), of the dtype of `width`.

    Parameters and result are those of `orograph.kernels.graph.near_far.graph_paths`.
    """
    where = device or current_device()
    zero = np.zeros(1, width.dtype)
    found = search(upload_rows(where, *rows), np.array([start]), zero, width, most)
    return where.download(found)
