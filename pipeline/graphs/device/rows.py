"""Graphs in the memory of a GPU, where they are kept from one call to the next.

The rows of a `Graph` are uploaded when a question first needs them, and dropped with the graph. So
a second question pays for its kernels and the copy of its result alone. Results come in the order
of the graph's source.
"""

from __future__ import annotations

from functools import cached_property
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from orograph.kernels.device import Buffer, Device, current_device
from orograph.kernels.device_rows import DeviceRows, as_word, upload_rows, with_weights
from orograph.kernels.graph.components_cuda import components_on_device, number_on_device
from orograph.kernels.graph.forest_cuda import forest_on_device
from orograph.kernels.graph.near_far_cuda import hops_on_device, search
from orograph.tiles.arrays import Array
from orograph.tiles.graph.graph import Graph


class DeviceGraph:
    """A graph on a device; what a question needs of it is uploaded once."""

    def __init__(self, graph: Graph, device: Device) -> None:
        # not the graph itself: it would never be dropped
        self._rows, self._stored, self.device = graph.rows, graph.stored, device
        self._edge: Buffer | None = None
        self._lock = Lock()

    def _upload(self, name: str) -> Any:
        """Return a cached property, which only one thread uploads."""
        with self._lock:
            return getattr(self, name)

    @cached_property
    def _links(self) -> DeviceRows:
        return upload_rows(self.device, *self._rows[:2], None)

    @cached_property
    def _weighted(self) -> DeviceRows:
        return with_weights(self._links, self._rows.weight)

    @cached_property
    def _order(self) -> Buffer:
        return self.device.upload(self._stored.astype(self._links.word))

    @property
    def links(self) -> DeviceRows:
        """Outgoing arcs of all stored vertices, without weights."""
        rows: DeviceRows = self._upload("_links")
        return rows

    @property
    def rows(self) -> DeviceRows:
        """Outgoing arcs of all stored vertices, with weights."""
        rows: DeviceRows = self._upload("_weighted")
        return rows

    def in_source_order(self, values: Buffer) -> Buffer:
        """Return values of stored vertices in the order of the source."""
        return values[self._upload("_order")]

    def paths(self, start: int, width: Any, most: Any) -> Buffer:
        """Return the cost of each stored vertex from one."""
        zero = np.zeros(1, width.dtype)
        return search(self.rows, np.array([start]), zero, width, most)

    def hops(self, starts: Array, most: int) -> Buffer:
        """Return the hops of each stored vertex from the nearest start, -1 beyond `most`."""
        return hops_on_device(self.links, starts, most)

    def components(self) -> tuple[Array, Array]:
        """Return the component at each place of the source, from 1, and how large they are."""
        root = components_on_device(self.links)
        labels, sizes = number_on_device(self.device, root, self._upload("_order"))
        return self.device.download(labels), self.device.download(sizes)

    def forest(self, graph: Graph) -> tuple[Array, Array]:
        """Return which edges of the graph are in its forest, and the weights of those."""
        with self._lock:
            if self._edge is None:
                self._edge = self.device.upload(as_word(graph.edge_both_ways, self._links.word))
        arcs = forest_on_device(self.rows, self._edge)
        in_forest = self.device.array_module.zeros(graph.edge_count, np.bool_)
        in_forest[self._edge[arcs]] = True
        weight = self.rows.weight
        assert weight is not None
        return self.device.download(in_forest), self.device.download(weight[arcs])


_held: WeakKeyDictionary[Graph, DeviceGraph] = WeakKeyDictionary()
_lock = Lock()


def on_gpu(graph: Graph) -> DeviceGraph:
    """Return the graph on this process's GPU, where it stays as long as it exists."""
    device = current_device()
    with _lock:
        held = _held.get(graph)
        if held is None or held.device is not device:
            held = _held[graph] = DeviceGraph(graph, device)
    return held
