"""Graphs in the memory of a GPU, where they are kept from one call to the next.

The rows of a `Graph` are uploaded when a question first needs them, and dropped with the graph. So
a second question pays for its kernels and the copy of its result alone. A stored graph is read in
pieces, of which this process holds one at a time. Results come in the order of the graph's source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from orograph.kernels.device import Buffer, Device, memory_reported, shared_device
from orograph.kernels.device_rows import DeviceRows, as_word, with_weights, word_for
from orograph.kernels.graph.components_cuda import components_on_device, number_on_device
from orograph.kernels.graph.forest_cuda import forest_on_device, tails_of
from orograph.kernels.graph.near_far_cuda import (
    between,
    hops_on_device,
    search,
    search_many,
    sources_at_once,
)
from orograph.tiles.arrays import Array
from orograph.tiles.graph.graph import Graph

MANY_SOURCES = 8
"""Number of sources from which each GPU block takes one; with fewer, all blocks take the same."""
PIECE = 2**24
"""Number of elements of a stored array that are uploaded at once."""


class DeviceGraph:
    """A graph on a device; what a question needs of it is uploaded once."""

    def __init__(self, graph: Graph, device: Device) -> None:
        # not the graph itself: it would never be dropped
        self._arrays: Mapping[str, Any] = graph.arrays
        self._stored, self._directed, self.device = graph.stored, graph.directed, device
        self._word = word_for(graph.vertex_count + 1, graph.arc_count)
        # Properties ask for one another, in the same thread.
        self._lock = RLock()

    def _get(self, name: str) -> Any:
        """Return a cached property, which only one thread computes."""
        with self._lock:
            known = name in self.__dict__
            found = getattr(self, name)
            if not known:  # other threads have streams of their own
                self.device.synchronize()
            return found

    def _upload(self, name: str) -> Buffer:
        """Return an array of the graph on the device; numbers of vertices and arcs as words."""
        array = self._arrays[name]
        if isinstance(array, np.ndarray):
            return self.device.upload(self._converted(name, array))
        kind = self._converted(name, np.empty(0, array.dtype)).dtype
        buffer = self.device.array_module.empty(array.shape, kind)
        for begin in range(0, array.shape[0], PIECE):
            piece = self._converted(name, np.asarray(array[begin : begin + PIECE]))
            buffer[begin : begin + piece.size] = self.device.upload(piece)
        return buffer

    def _converted(self, name: str, values: Array) -> Array:
        return values if name == "weight" else as_word(values, self._word)

    @cached_property
    def _links(self) -> DeviceRows:
        return DeviceRows(self.device, self._upload("indptr"), self._upload("indices"), None)

    @cached_property
    def _rows(self) -> DeviceRows:
        return with_weights(self._links, self._upload("weight"))

    @cached_property
    def _order(self) -> Buffer:
        return self.device.upload(as_word(self._stored, self._word))

    @cached_property
    def _position(self) -> Buffer:
        """The place of each stored vertex in the source."""
        order = self._get("_order")
        position = self.device.array_module.empty_like(order)
        position[order] = self.device.array_module.arange(order.size, dtype=order.dtype)
        return position

    @cached_property
    def _by_head(self) -> Buffer:
        """Indices that sort the arcs by head; those of one head stay in their order."""
        xp, indices = self.device.array_module, self._links.indices
        if self._word.itemsize > 4:
            return xp.argsort(indices, kind="stable")
        arcs = xp.arange(indices.size, dtype=np.uint64)
        # Head and arc as one key: sorting it is stable, and the lower 32 bits of it are the arc.
        return xp.sort(indices.astype(np.uint64) << np.uint64(32) | arcs).astype(self._word)

    @cached_property
    def _incoming(self) -> DeviceRows:
        rows = self._rows
        if not self._directed:
            return rows
        order, vertex = self._by_head, self.device.array_module.arange(rows.n + 1, dtype=self._word)
        indptr = self.device.array_module.searchsorted(rows.indices[order], vertex)
        assert rows.weight is not None
        return DeviceRows(
            self.device,
            indptr.astype(self._word),
            rows.kept("tails", tails_of)[order],
            rows.weight[order],
        )

    @cached_property
    def _reversible(self) -> bool:
        """Whether the arcs by head mirror those by tail, so that each has its reverse."""
        if not self._directed or "edge_both_ways" in self._arrays:
            return True
        rows, order = self._rows, self._by_head
        tails = rows.kept("tails", tails_of)
        different = (rows.indices != tails[order]) | (tails != rows.indices[order])
        assert rows.weight is not None
        different |= rows.weight != rows.weight[order]
        return not bool(self.device.download(different.any().reshape(1))[0])

    @cached_property
    def _edge_both_ways(self) -> Buffer:
        if "edge_both_ways" in self._arrays:
            return self._upload("edge_both_ways")
        edge = self._upload("edge")
        both = self._directed
        # The arcs by head are the reverses of the arcs by tail, so both directions of an edge get
        # the less of their numbers.
        return self.device.array_module.minimum(edge, edge[self._by_head]) if both else edge

    @property
    def links(self) -> DeviceRows:
        """Outgoing arcs of all stored vertices, without weights."""
        rows: DeviceRows = self._get("_links")
        return rows

    @property
    def rows(self) -> DeviceRows:
        """Outgoing arcs of all stored vertices, with weights."""
        rows: DeviceRows = self._get("_rows")
        return rows

    @property
    def incoming(self) -> DeviceRows:
        """Incoming arcs of all stored vertices, with weights; ``indices`` are their tails."""
        rows: DeviceRows = self._get("_incoming")
        return rows

    @property
    def reversible(self) -> bool:
        """Whether each arc has its reverse for certain; if not, `Graph.one_way` tells."""
        return bool(self._get("_reversible"))

    def in_source_order(self, values: Buffer) -> Buffer:
        """Return values of stored vertices in the order of the source."""
        return values[self._get("_order")]

    def paths(self, start: int, width: Any, most: Any) -> Buffer:
        """Return the cost of each stored vertex from one."""
        return search(self.rows, np.array([start]), np.zeros(1, width.dtype), width, most)

    def paths_from_many(self, starts: Array, width: Any, most: Any) -> Iterator[Buffer]:
        """Yield the costs from some starts after the other, (k, n), in the order of the source."""
        rows = self.rows
        at_once = sources_at_once(rows)
        if starts.size < MANY_SOURCES or not at_once:
            for start in starts.tolist():
                yield self.in_source_order(self.paths(start, width, most))[np.newaxis]
            return
        # As many searches at a time as the memory of the GPU holds.
        for first in range(0, starts.size, at_once):
            costs = search_many(rows, starts[first : first + at_once], width, most)
            yield costs[:, self._get("_order")]

    def hops(self, starts: Array, most: int) -> Buffer:
        """Return the hops of each stored vertex from the nearest start, -1 beyond `most`."""
        return hops_on_device(self.links, starts, most)

    def between(self, pairs: Array) -> Iterator[Array]:
        """Yield a shortest path for each pair of stored vertices; empty if there is none."""
        with memory_reported():
            for s, t in pairs.tolist():
                yield between(self.links, self.incoming, self._get("_position"), s, t)

    def components(self) -> tuple[Array, Array]:
        """Return the component at each place of the source, from 1, and how large they are."""
        root = components_on_device(self.links)
        labels, sizes = number_on_device(self.device, root, self._get("_order"))
        return self.device.download(labels), self.device.download(sizes)

    def forest(self, edge_count: int) -> tuple[Array, Array]:
        """Return which edges of the graph are in its forest, and the weights of those."""
        rows, edge = self.rows, self._get("_edge_both_ways")
        arcs = forest_on_device(rows, edge)
        in_forest = self.device.array_module.zeros(edge_count, np.bool_)
        in_forest[edge[arcs]] = True
        assert rows.weight is not None
        return self.device.download(in_forest), self.device.download(rows.weight[arcs])


_held: WeakKeyDictionary[Graph, DeviceGraph] = WeakKeyDictionary()
_lock = RLock()


def on_gpu(graph: Graph) -> DeviceGraph:
    """Return the graph on this process's GPU, where it stays as long as it exists."""
    device = shared_device()
    with _lock:
        held = _held.get(graph)
        if held is None or held.device is not device:
            held = _held[graph] = DeviceGraph(graph, device)
    return held


def is_on_gpu(graph: Graph) -> bool:
    """Return whether the graph's rows are on this process's GPU."""
    with _lock:
        return graph in _held


def forget_all() -> None:
    """Drop all graphs from this process's GPU; the next question uploads its graph again."""
    with _lock:
        _held.clear()
