"""Costs over the borders of blocks on a GPU: the host's side of propagate.cu.

Matrices stay in slots on the device, and the least recently used are replaced first, so a block is
uploaded once for many questions. A round of a propagation visits the blocks at which costs have
arrived, at most one a slot; the host reads which they are, uploads the missing ones, and launches
the next round. Costs are those of `orograph.kernels.boundary.propagate`, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.boundary.propagate import BlockParts, unreached
from orograph.kernels.device import Buffer, Device, blocks_for, current_device
from orograph.kernels.minplus.cuda import ELEMENTS
from orograph.tiles.arrays import Array
from orograph.tiles.errors import BackendError

SOURCE = "propagate/propagate.cu"
SOURCES = 32  # of a lane
TILE = 128  # cells
THREADS = 128
EDGES = 512  # that a thread block relaxes
SHARE_OF_MATRICES = 0.5  # of the memory that is free at first


class DeviceBlocks:
    """Blocks of an index whose matrices are kept in the memory of a device.

    Parameters
    ----------
    cells : (n,) int64
        Border cells of each block, and ends of links in it.
    edges : int
        The most edges out of a block.
    symmetric : bool
        Whether of a matrix the lower triangle is stored.
    read : callable
        Returns the parts of the blocks of some numbers.
    device : Device, optional
        By default this process's GPU.
    slots : int, optional
        Matrices that are kept; by default all that fit in half of the memory that is free.
    """

    def __init__(
        self,
        cells: npt.NDArray[np.int64],
        dtype: np.dtype[Any],
        edges: int,
        symmetric: bool,
        read: Callable[[list[int]], Sequence[BlockParts]],
        device: Device | None = None,
        slots: int | None = None,
    ) -> None:
        self.device = device = device or current_device()
        self.dtype, self._symmetric, self._read = dtype, symmetric, read
        self.count, self.most = len(cells), int(cells.max())
        self.width = -(-self.most // TILE) * TILE
        self.cells = cells
        self.total = int(cells.sum())
        self._room = max(edges, 1)
        # Every slot has room for the largest block, so that any block fits any slot.
        size = self.most * self.width * dtype.itemsize
        if slots is None:
            slots = min(self.count, int(SHARE_OF_MATRICES * device.free_bytes()) // size)
        if slots < 1:
            raise BackendError(
                f"a block's matrix takes {size} bytes, more than half of what is free on the GPU; "
                "end what else uses it, or use backend='numba'"
            )
        self._slots = slots
        empty = device.array_module.empty
        self._matrices = empty(slots * self.most * self.width, dtype)
        self._edges = empty((slots, 3 * self._room), np.int32)
        self._costs = empty((slots, self._room), dtype)
        self._edge_counts = np.zeros(slots, np.int32)
        self._limits = np.tile(np.array([1, 0], dtype), (self.count, 1))  # where none are known
        self._free = list(range(slots))[::-1]
        self._slot_of = np.full(self.count, -1, np.int32)
        self._used = np.zeros(self.count, np.int64)
        self._turn = 0
        self._first = device.upload(np.concatenate([[0], np.cumsum(cells)]))
        self._tables = self._upload_tables()

    def launch(self, kernel: str, grid: tuple[int, ...], threads: int, *arguments: Any) -> None:
        """Launch a kernel of propagate.cu."""
        defines = {"ELEMENT": ELEMENTS[self.dtype.name]}
        self.device.launch(SOURCE, kernel, grid, (threads,), arguments, defines=defines)

    def load(self, numbers: npt.NDArray[np.int32]) -> tuple[Buffer, ...]:
        """Upload the blocks that are missing; return where all lie.

        Returns
        -------
        slot of each block, edge counts by slot, limits by block : on the device
        """
        # The blocks of this round count as used before room is made, so none of them is evicted.
        self._turn += 1
        self._used[numbers] = self._turn
        missing = numbers[self._slot_of[numbers] < 0].tolist()
        if missing:
            self._make_room(len(missing))
            for number, parts in zip(missing, self._read(missing), strict=True):
                self._upload(number, self._free.pop(), parts)
            self._tables = self._upload_tables()
        return self._tables

    def _upload_tables(self) -> tuple[Buffer, ...]:
        tables = self._slot_of, self._edge_counts, self._limits.reshape(-1)
        return tuple(map(self.device.upload, tables))

    def _make_room(self, wanted: int) -> None:
        """Free slots of the blocks that have not been used for longest."""
        # Blocks that are used in this round are not evicted.
        held = np.flatnonzero((self._slot_of >= 0) & (self._used < self._turn))
        spare = wanted - len(self._free)
        for number in held[np.argsort(self._used[held], kind="stable")][: max(spare, 0)].tolist():
            self._free.append(int(self._slot_of[number]))
            self._slot_of[number] = -1

    def _upload(self, number: int, slot: int, parts: BlockParts) -> None:
        cells, count = int(self.cells[number]), len(parts.costs)
        stored = self.device.upload(parts.stored)
        self.launch(
            "lay_out",
            (min(blocks_for(cells * self.width, 1024)[0], 4096),),
            256,
            *(stored, np.int32(cells), np.int32(self._symmetric), self._matrices),
            *(np.int64(slot), np.int32(self.most), np.int32(self.width)),
        )
        # Slots have one size; the edges behind the block's own are not counted.
        edges = np.zeros((3, self._room), np.int32)
        edges[:, :count] = parts.edges.T
        self.device.upload_into(self._edges[slot : slot + 1], edges.reshape(1, -1))
        costs = np.zeros((1, self._room), self.dtype)
        costs[0, :count] = parts.costs
        self.device.upload_into(self._costs[slot : slot + 1], costs)
        self._edge_counts[slot] = count
        self._limits[number] = parts.limits
        self._slot_of[number] = slot

    def spread(
        self,
        sources: Sequence[tuple[int, Array]],
        targets: Sequence[tuple[int, Array]],
        costs: Array,
    ) -> tuple[Array, npt.NDArray[np.int64]]:
        """Return the least costs from sources to targets, by way of the borders of blocks.

        Parameters
        ----------
        sources : of (block, (n,) costs from the source to the cells of its border)
        targets : of (block, (n,) costs from the cells of its border to the target)
        costs : (targets, sources)
            The costs of the ways that stay inside a block.

        Returns
        -------
        (targets, sources)
        (n,) int64
            How often each block was visited.
        """
        lanes = -(-len(sources) // SOURCES)
        device, xp, dtype = self.device, self.device.array_module, self.dtype
        wide, count = lanes * SOURCES, np.int32(lanes)
        wanted = np.zeros((len(targets), wide), dtype)  # of a lane's spare sources nothing
        wanted[:, : len(sources)] = costs
        reached = device.upload(wanted.reshape(-1))
        bound = xp.empty(wide, dtype)
        held = xp.full(self.total * wide, unreached(dtype), dtype)
        arrived = xp.full(self.total * wide, unreached(dtype), dtype)
        fresh, lowered = (xp.zeros(self.total * lanes, np.uint8) for _ in range(2))
        listed = xp.empty(self.total * lanes, np.int32)
        counts = xp.zeros(self.count * lanes, np.int32)
        active = xp.zeros(self.count, np.uint8)
        visited = xp.zeros(self.count, np.int32)
        to_bound = (
            *("bound_sources", blocks_for(wide, THREADS), THREADS),
            *(reached, np.int32(len(targets)), np.int32(wide), bound),
        )
        self.launch(*to_bound)
        starts, ends = _tables(device, sources, dtype), _tables(device, targets, dtype)
        self.launch(
            "begin", (len(sources),), THREADS, *starts, self._first, count, arrived, fresh, active
        )
        visits = np.zeros(self.count, np.int64)
        turn = 0
        while True:
            todo = np.flatnonzero(device.download(active)).astype(np.int32)
            if not todo.size:
                break
            if todo.size > self._slots:  # those that wait for longest; others stay active
                todo = todo[np.argsort(self._used[todo], kind="stable")][: self._slots]
            turn += 1
            visits[todo] += 1
            slot_of, edge_counts, limits = self.load(todo)
            these, turned = device.upload(todo), np.int32(turn)
            where = these, self._first
            self.launch(
                *("list_arrived", (todo.size, lanes), THREADS, *where, count, fresh, lowered),
                *(active, turned, visited, listed, counts),
            )
            self.launch(
                *("multiply", (todo.size * (self.width // TILE), lanes), THREADS, *where, slot_of),
                *(self._matrices, np.int32(self.most), np.int32(self.width), count, listed),
                *(counts, arrived, held, lowered),
            )
            self.launch(
                # Targets and bounds before edges: what exceeds the bounds as lowered by this round
                # is not carried on.
                *("reach_targets", (len(targets), lanes), THREADS, *ends, visited, turned),
                *(counts, self._first, count, held, reached),
            )
            self.launch(*to_bound)
            parts = -(-self._room // EDGES)
            self.launch(
                *("relax_edges", (todo.size * parts, lanes), THREADS, these, np.int32(parts)),
                *(self._first, slot_of, self._edges, self._costs, edge_counts),
                *(np.int32(self._room), limits, count, counts, lowered, held, bound),
                *(arrived, fresh, active),
            )
        table = device.download(reached).reshape(len(targets), wide)
        # Sums of integers with a missing path may exceed the cost that stands for none.
        return np.minimum(table[:, : len(sources)], unreached(dtype)), visits


def _tables(
    device: Device, ends: Sequence[tuple[int, Array]], dtype: np.dtype[Any]
) -> tuple[Buffer, Buffer, Buffer]:
    """Return the blocks of sources or targets, where their costs begin, and the costs."""
    blocks = np.array([block for block, _ in ends], np.int32)
    sizes = [len(costs) for _, costs in ends]
    costs = np.concatenate([costs for _, costs in ends]).astype(dtype, copy=False)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return device.upload(blocks), device.upload(starts), device.upload(costs)
