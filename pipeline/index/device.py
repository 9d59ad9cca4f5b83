"""Tables of a distance index on this process's GPU, on which the blocks' matrices stay.

The ways between a point and the border of its block are found on the CPU, as always; between the
borders costs spread by `orograph.kernels.propagate.cuda`, one group of sources after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np

from orograph.arguments.settings import thread_count
from orograph.index.query import Blocks, SourceBorder, Targets
from orograph.kernels.boundary.propagate import MOVES, BlockParts, unreached
from orograph.kernels.device import Device, memory_reported
from orograph.kernels.propagate.cuda import DeviceBlocks
from orograph.tiles.arrays import Array


class BlocksOnDevice:
    """The blocks of an index on a GPU; see `DeviceBlocks` for ``slots``."""

    def __init__(
        self, blocks: Blocks, device: Device | None = None, slots: int | None = None
    ) -> None:
        self._blocks, self._device, self._slots = blocks, device, slots
        self._sizes: dict[int, int] = {}
        self._lock = threading.Lock()

    @cached_property
    def _held(self) -> DeviceBlocks:
        store = self._blocks.store
        numbers = range(store.form.count)
        cells = np.array([store.cells(number) for number in numbers], np.int64)
        links = 0
        if store.links is not None:
            links = max(len(store.links.leaving(number)[0]) for number in numbers)
        edges = len(MOVES) * int(cells.max()) + links
        dtype, symmetric = np.dtype(store.form.dtype), store.form.symmetric
        where = self._device, self._slots
        return DeviceBlocks(cells, dtype, edges, symmetric, self._read, *where)

    def _read(self, numbers: list[int]) -> list[BlockParts]:
        """Return parts of blocks, decoded by several threads; sum up what they take on disk."""
        with ThreadPoolExecutor(thread_count(), "orograph-index") as pool:
            found = list(pool.map(self._blocks.parts, numbers))
        for number, (_, size) in zip(numbers, found, strict=True):
            self._sizes[number] = size
        return [parts for parts, _ in found]

    def from_group(
        self, sources: Iterable[SourceBorder], targets: Targets, count: int
    ) -> tuple[Array, dict[int, int], int]:
        """Return the result of `orograph.index.query.from_group` for all targets, to the bit."""
        sources = list(sources)
        dtype = self._blocks.store.form.dtype
        costs = np.full((count, len(sources)), unreached(dtype), dtype)
        ends: dict[int, tuple[int, Array]] = {}
        for block, near in targets.items():
            for target, _, rest in near:
                ends[target] = block, rest
        for i, source in enumerate(sources):
            for target, cell, _ in targets.get(source.block, ()):
                costs[target, i] = source.inside[cell]
        starts = [(source.block, source.border) for source in sources]
        with self._lock, memory_reported():
            table, visits = self._held.spread(starts, [ends[n] for n in range(count)], costs)
            read = {n: self._sizes[n] for n in np.flatnonzero(visits).tolist()}
        return np.ascontiguousarray(table.T), read, int(visits.sum())
