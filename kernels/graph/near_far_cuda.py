"""Shortest paths and hops of a graph on a GPU, by near_far.cu, many_sources.cu and between.cu."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.device import Buffer, Device, blocks_for, current_device
from orograph.kernels.device_rows import DeviceRows, as_word, upload_rows
from orograph.kernels.graph.spread import unreached
from orograph.tiles.arrays import Array

SOURCE = "graph/near_far.cu"
THREADS = 256
SPARSE_BLOCKS, DENSE_BLOCKS = 132, 528
"""Blocks that relax; more would take their turns to look whether there is work."""
SPLIT_BLOCKS = 1056
BATCH = 8
"""Buckets that are launched before the host looks whether a vertex is left."""
ROOM = 2
"""Vertices that near has room for, in vertices of the graph; at least 1."""
MOST_SOURCES, SHARE = 1056, 0.5
"""Searches from many sources at a time, and the share of the free memory that they take."""
HOPS_WIDTH = 64
"""Of a bucket, in hops."""
FEW, MANY = 64, 4
"""A bucket that takes less or more than these parts of the vertices changes the width."""
FIRST_HOPS, FURTHER = 64, 4
"""Hops of the first searches from two ends, and how many times as far the next ones go."""
SPARSE = 6
"""Mean degree up to which groups follow the chains of a graph."""
SMALL, SMALL_LANES = 2**21, 8
"""Vertices of a sparse graph for which there are more lanes than work."""
SPARSE_WIDTH, DENSE_WIDTH = 8, 32
"""Buckets of a sparse graph are so many times as wide as on a CPU; those of others are narrower,
by the square of their degree."""
# words of the state: see near_far.cu
FAR, LEAST, BOUND, WIDTH, OVER, WORDS = 80, 112, 128, 129, 130, 132


def lanes_for(n: int, degree: float) -> int:
    """Return how many lanes relax a vertex, given the number of vertices and the mean degree."""
    if degree <= SPARSE:
        return SMALL_LANES if n < SMALL else 1
    return next(lanes for lanes in (2, 4, 8, 16, 32) if lanes == 32 or degree <= 6 * lanes)


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
        Of a bucket on a CPU, from which those of the device follow, and the graph.
    most : number
        Greater costs are none: infinity, or 2**60 in integers.
    """
    device, empty, n = rows.device, rows.device.array_module.empty, rows.n
    # numbers that are not negative have the order of their bits
    none = int(unreached(costs.dtype).view(np.int64))
    degree = rows.arcs / n
    lanes, sparse = lanes_for(n, degree), degree <= SPARSE
    capacity = ROOM * n + rows.arcs // (32 * lanes)
    near, listed = empty(capacity, np.uint64), empty(n, np.uint32)
    lists = empty(n, rows.word), empty(n, rows.word)
    cost, relaxed = empty(n, np.int64), empty(n, np.int64)
    state = np.zeros(WORDS + 2 * starts.size, np.int64)  # and starts, and keys
    state[WORDS : WORDS + starts.size] = starts
    state[WORDS + starts.size :] = (costs + costs.dtype.type(0)).view(np.int64)
    state[FAR], state[LEAST] = starts.size, none
    width = float(width) * (SPARSE_WIDTH if sparse else DENSE_WIDTH / degree**2)
    unit = costs.dtype.type(min(int(width), none) if costs.dtype.kind == "i" else width)
    bound = costs.min() + unit
    state[WIDTH] = unit.view(np.int64)
    state[BOUND] = min(int(bound.view(np.int64)) + int(unit == 0), none)
    words, size, room = device.upload(state), np.int64(n), np.int64(capacity)
    defines = {**rows.defines, "LANES": lanes, "FOLLOW": int(sparse), "THREADS": THREADS}
    few, many = np.int64(n // FEW), np.int64(n // MANY)
    highest = costs.dtype.type(min(most, unreached(costs.dtype))).view(np.int64)
    blocks = min(blocks_for(n * lanes, THREADS)[0], SPARSE_BLOCKS if sparse else DENSE_BLOCKS)
    split_blocks = min(blocks_for(n, THREADS)[0], SPLIT_BLOCKS)

    def launch(kernel: str, count: int, *arguments: Any) -> None:
        device.launch(SOURCE, kernel, (count,), (THREADS,), arguments, defines=defines)

    launch(
        "clear", blocks_for(max(n, capacity), THREADS)[0], cost, relaxed, listed, size, near, room
    )
    first, keys = words[WORDS : WORDS + starts.size], words[WORDS + starts.size :]
    launch(
        "place_starts", blocks_for(starts.size, THREADS)[0], first, keys, np.int64(starts.size),
        cost, listed, lists[0],
    )  # fmt: skip
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
                room, following, listed, words, parity, highest, few, many,
            )  # fmt: skip
            bucket += 1
    return cost.view(costs.dtype)


def search_many(rows: DeviceRows, starts: Array, width: Any, most: Any) -> Buffer:
    """Return the least cost of each vertex from each start, (k, n) of the dtype of `width`.

    It is on the device, where a block searches from each start. Weights are not negative; greater
    costs than `most` are none, and `width` is that of a bucket.
    """
    device, empty, shape = rows.device, rows.device.array_module.empty, (starts.size, rows.n)
    degree = rows.arcs / rows.n
    lanes = next(lanes for lanes in (4, 8, 16, 32) if lanes == 32 or degree <= 2 * lanes)
    costs, marks = empty(shape, np.int64), empty(shape, np.uint32)
    lists = empty((starts.size, 4, rows.n), rows.word)
    highest = width.dtype.type(min(most, unreached(width.dtype))).view(np.int64)
    first = device.upload(starts.astype(np.int64))
    device.launch(
        "graph/many_sources.cu", "search_sources", (starts.size,), (THREADS,),
        (rows.indptr, rows.indices, rows.weight, first, np.int64(rows.n), width, highest, costs,
         lists, marks),
        defines={**rows.defines, "LANES": lanes, "THREADS": THREADS},
    )  # fmt: skip
    return costs.view(width.dtype)


def sources_at_once(rows: DeviceRows) -> int:
    """Return how many starts `search_many` has memory for at a time."""
    a_source = rows.n * (12 + 4 * rows.word.itemsize)
    return int(min(MOST_SOURCES, SHARE * rows.device.free_bytes() // a_source))


def hops_on_device(rows: DeviceRows, starts: Array, most: int) -> Buffer:
    """Return the least number of hops from any start, (n,) int32 or int64 on the device."""
    first = np.unique(starts)
    found = search(rows.unweighted(), first, np.zeros(first.size, np.int64), HOPS_WIDTH, most)
    found[found == unreached(np.dtype(np.int64))] = -1
    return found.astype(np.int32 if rows.n < 2**31 else np.int64)


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
    # a vertex halfway along a shortest path is within ``most`` hops of both ends, if any vertex is
    total = int(device.download((hops[0] + hops[1])[both].min().reshape(1))[0])
    if total > most:  # one side may go further than halfway
        hops = [hops_on_device(links, np.array([start]), total) for links, start in ends]
    from_s, from_t = _midway(ends, hops, total)
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


def _midway(
    ends: tuple[tuple[DeviceRows, int], ...], hops: list[Buffer], total: int
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


def graph_between(
    rows: tuple[Array, Array, Array],
    incoming: tuple[Array, Array, Array],
    position: Array,
    pairs: Array,
    *,
    device: Device | None = None,
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield a shortest path for each pair of vertices (k, 2), both included; empty without one.

    Parameters and results are those of `orograph.kernels.graph.hops.graph_between`.
    """
    where = device or current_device()
    held, back = (upload_rows(where, *of[:2], None) for of in (rows, incoming))
    places = where.upload(as_word(position, held.word))
    for s, t in pairs.tolist():
        yield between(held, back, places, s, t)


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
