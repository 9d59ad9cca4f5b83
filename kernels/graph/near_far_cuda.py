"""Shortest paths and hops of a graph on a GPU, by near_far.cu, many_sources.cu and between.cu."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
"""Width of a bucket, in hops."""
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
LEAST, WIDTH, OVER, RELAXED, WORDS = 112, 129, 130, 132, 133


def lanes_for(n: int, degree: float) -> int:
    """Return how many lanes relax a vertex, given the number of vertices and the mean degree."""
    if degree <= SPARSE:
        return SMALL_LANES if n < SMALL else 1
    return next(lanes for lanes in (2, 4, 8, 16, 32) if lanes == 32 or degree <= 6 * lanes)


class Search:
    """A search on a device, which goes on up to a cost, and from vertices lowered meanwhile.

    Parameters
    ----------
    rows : DeviceRows
        Weights are not negative.
    dtype : int64 or float64
        Of costs.
    width : number
        Of a bucket on a CPU, from which those of the device follow, and the graph.
    most : number
        Greater costs are none: infinity, or 2**60 in integers.
    own : int, optional
        How many vertices are in the lists; those behind have no arcs. By default all are.
    near : (capacity,) uint64 on the device, optional
        That of another search in the same rows, which does not go on meanwhile.
    """

    def __init__(
        self,
        rows: DeviceRows,
        dtype: np.dtype[Any],
        width: float,
        most: Any,
        own: int | None = None,
        near: Buffer | None = None,
    ) -> None:
        empty, n = rows.device.array_module.empty, rows.n
        self.rows, self.dtype = rows, dtype
        self._own = np.int64(n if own is None else own)
        degree = rows.arcs / n
        lanes, sparse = lanes_for(n, degree), degree <= SPARSE
        # A vertex of many arcs stands in the list once more for each 32 arcs a lane.
        capacity = ROOM * n + rows.arcs // (32 * lanes)
        self.near = empty(capacity, np.uint64) if near is None else near
        self._listed = empty(n, np.uint32)
        # The far vertices of this bucket and of the next one, which change places.
        self._lists = empty(n, rows.word), empty(n, rows.word)
        self._cost, self._relaxed = empty(n, np.int64), empty(n, np.int64)
        # numbers that are not negative have the order of their bits
        self._none = int(unreached(dtype).view(np.int64))
        width = float(width) * (SPARSE_WIDTH if sparse else DENSE_WIDTH / degree**2)
        # A width of integers is at most the cost that stands for no path.
        unit = dtype.type(min(int(width), self._none) if dtype.kind == "i" else width)
        state = np.zeros(WORDS, np.int64)
        state[LEAST], state[WIDTH] = self._none, unit.view(np.int64)
        self._state = rows.device.upload(state)
        self._parity = 0
        self._defines = {
            **rows.defines,
            "LANES": lanes,
            "FOLLOW": int(sparse),
            "OWN": int(own is not None),
            "THREADS": THREADS,
        }
        self._few, self._many = np.int64(n // FEW), np.int64(n // MANY)
        self._most = self._key(most)
        blocks = blocks_for(n * lanes, THREADS)[0]
        self._blocks = min(blocks, SPARSE_BLOCKS if sparse else DENSE_BLOCKS)
        self._split_blocks = min(blocks_for(n, THREADS)[0], SPLIT_BLOCKS)
        self._launch(
            "clear", blocks_for(max(n, capacity), THREADS)[0], self._cost, self._relaxed,
            self._listed, np.int64(n), self.near, np.int64(capacity),
        )  # fmt: skip

    def _launch(self, kernel: str, blocks: int, *arguments: Any) -> None:
        self.rows.device.launch(
            SOURCE, kernel, (blocks,), (THREADS,), arguments, defines=self._defines
        )

    def _key(self, cost: Any) -> np.int64:
        """Return a cost as a key below that of none."""
        key = self.dtype.type(min(cost, unreached(self.dtype))).view(np.int64)
        return np.int64(min(int(key), self._none - 1))

    @property
    def cost(self) -> Buffer:
        """The least cost of each vertex so far, (n,) on the device."""
        return self._cost.view(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes on the device, without ``near``."""
        arrays = self._cost, self._relaxed, self._listed, *self._lists
        return sum(array.nbytes for array in arrays)

    def lower(self, vertices: Array, costs: Array) -> None:
        """Lower vertices to costs, not negative, of which the lists hold what becomes less."""
        upload, count = self.rows.device.upload, vertices.size
        if count == 0:
            return
        keys = (costs + costs.dtype.type(0)).view(np.int64)  # + 0 makes -0 0
        # One transfer for both.
        given = upload(np.concatenate([vertices.astype(np.int64, copy=False), keys]))
        self._launch(
            "lower_vertices", blocks_for(count, THREADS)[0], given[:count], given[count:],
            np.int64(count), self._cost, self._listed, self._lists[self._parity], self._state,
            np.int32(self._parity),
        )  # fmt: skip

    def go_on(self, upto: Any) -> tuple[int, Any]:
        """Search until no vertex with a cost of at most ``upto`` waits.

        Returns how many vertices have been relaxed so far, and a cost below which none waits.
        """
        rows, least = self.rows, self._key(upto)
        self._launch("begin", 1, self._state, np.int32(self._parity), least)
        bucket, parity = 0, self._parity
        while True:
            for _ in range(BATCH):
                far, following = self._lists[parity], self._lists[1 - parity]
                turn = np.int32(parity)
                self._launch(
                    "split", self._split_blocks, far, following, self.near, self._cost,
                    self._relaxed, self._listed, self._state, turn,
                )  # fmt: skip
                self._launch(
                    "relax", self._blocks, rows.indptr, rows.indices, rows.weight, self._own,
                    self._cost, self._relaxed, self.near, np.int64(self.near.size), following,
                    self._listed, self._state, turn, self._most, self._few, self._many, least,
                )  # fmt: skip
                bucket, parity = bucket + 1, 1 - parity
            # The only wait for the device: once in BATCH buckets. Buckets behind the end find
            # nothing to do.
            words = rows.device.download(self._state[LEAST:])
            if words[OVER - LEAST]:
                self._parity = int(words[OVER - LEAST]) - 1
                return int(words[RELAXED - LEAST]), words[:1].view(self.dtype)[0]

    def waiting(self) -> Array:
        """Return the vertices that have been lowered and not been relaxed since."""
        own = int(self._own)
        waits = self._cost[:own] < self._relaxed[:own]
        return self.rows.device.download(self.rows.device.array_module.flatnonzero(waits))

    def restore(self, cost: Array, waiting: Array) -> None:
        """Continue a new search from the costs of another, and the vertices that wait in it."""
        relaxed = cost.view(np.int64).copy()
        # A vertex waits if its cost is below the one at which it was relaxed.
        relaxed[waiting] = self._none
        self._cost[:] = self._relaxed[:] = self.rows.device.upload(relaxed)
        self.lower(waiting, cost[waiting])


class DevicePart:
    """Searches from several sources in a part of a graph, on a device.

    Parameters are those of `orograph.kernels.graph.near_far.HostPart`.
    """

    def __init__(
        self,
        rows: tuple[Array, Array, Array],
        own: int,
        sources: Sequence[Array],
        dtype: np.dtype[Any],
        width: Any,
        most: Any,
        *,
        device: Device | None = None,
    ) -> None:
        self._rows, self._own = upload_rows(device or current_device(), *rows), own
        self._searches: list[Search] = []
        self._arrived: list[Array] = []
        self._relaxed = [0] * len(sources)
        for starts in sources:
            # The searches take turns, so they share the largest of their arrays.
            near = self._searches[0].near if self._searches else None
            search = Search(self._rows, dtype, width, most, own, near)
            search.lower(starts, np.zeros(starts.size, dtype))
            self._searches.append(search)

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        rows = self._rows.indptr, self._rows.indices, self._rows.weight, self._searches[0].near
        return sum(array.nbytes for array in (*rows, *self._searches) if array is not None)

    def go_on(self, number: int, vertices: Array, costs: Array, upto: Any) -> tuple[int, Any]:
        """Lower vertices, and search up to a cost; see `HostPart.go_on`."""
        search = self._searches[number]
        if not self._arrived:  # what has arrived before lowers nothing
            blank = np.full(vertices.size, unreached(search.dtype))
            self._arrived = [blank] * len(self._searches)
        news = costs < self._arrived[number]
        search.lower(vertices[news], costs[news])
        self._arrived[number] = np.minimum(costs, self._arrived[number])
        before = self._relaxed[number]
        self._relaxed[number], least = search.go_on(upto)
        return self._relaxed[number] - before, least

    @property
    def cost(self) -> Array:
        """The costs from each source, (sources, n)."""
        return np.stack([self._rows.device.download(search.cost) for search in self._searches])

    def beyond(self) -> Array:
        """Return the costs of the vertices without arcs, (sources, n - own)."""
        download, own = self._rows.device.download, self._own
        return np.stack([download(search.cost[own:]) for search in self._searches])

    def reached(self) -> int:
        """Return how many of the vertices with arcs have costs, from all sources together."""
        count = self._rows.device.array_module.count_nonzero
        found = 0
        for search in self._searches:
            there = search.cost[: self._own] < unreached(search.dtype)
            found += int(self._rows.device.download(count(there).reshape(1))[0])
        return found

    def save(self) -> tuple[Array, list[Array]]:
        """Return all costs, and for each source the vertices that wait to be relaxed."""
        return self.cost, [search.waiting() for search in self._searches]

    def restore(self, cost: Array, waiting: Sequence[Array]) -> None:
        """Continue from what another part has saved."""
        for search, own, vertices in zip(self._searches, cost, waiting, strict=True):
            search.restore(own, vertices)


def search(rows: DeviceRows, starts: Array, costs: Array, width: float, most: Any) -> Buffer:
    """Return the least cost of each vertex from any start, (n,) int64 or float64 on the device.

    Parameters
    ----------
    rows, width, most
        See `Search`.
    starts : (k,) integers
        Vertices.
    costs : (k,) int64 or float64
        What each of them costs, not negative.
    """
    searched = Search(rows, costs.dtype, width, most)
    searched.lower(starts, costs)
    searched.go_on(most)
    return searched.cost


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
    # Cost and mark, and four lists of vertices.
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
    # Searches of limited depth from both ends, further and further until they overlap: near pairs
    # need no search of the whole graph.
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
