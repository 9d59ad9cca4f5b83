"""Query a distance index: points to block borders, propagation between blocks, borders to points.

*Up*: one relaxation inside a point's block gives what its border cells cost, and the cells of its
own block by paths that stay inside. *Over the borders*: a queue of blocks, kept by the least value
that is new in each; see `orograph.kernels.boundary.propagate`. Sources go through it some dozens
at a time, near ones together, and since their fronts cross, all blocks within a window above the
least key are swept from corner to corner: strict priority visits them half as often again. *Down*:
a way from the border to a point, or a relaxation of a block from its border.

The targets bound the propagation: once every target is known to cost no more than b, values from b
on are not passed on. So a question about near points touches the blocks near them.
"""

from __future__ import annotations

import heapq
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from orograph.index.costs import costs_of
from orograph.index.store import IndexStore
from orograph.kernels.boundary.dissection import border_cells
from orograph.kernels.boundary.elimination import BlockCosts
from orograph.kernels.boundary.interior import interior_distances
from orograph.kernels.boundary.propagate import (
    MOVES,
    BlockParts,
    lane_columns,
    no_arrivals,
    no_costs,
    pack_panels,
    relax_edges,
    relax_target,
    rounding,
    unreached,
    visit,
)
from orograph.tiles.arrays import Array, Indices
from orograph.tiles.raster.interface import read_frame

WINDOW = 0.5  # in which keys are swept together, in units of the most that a source begins with
GROUP = 64  # sources that one wave carries: a matrix is read once for all


Targets = dict[int, list[tuple[int, tuple[int, int], Array]]]
"""Targets in each block, by block number: target number, cell, and costs from the border."""


class Block(NamedTuple):
    """A block prepared for propagation: its matrix, and its steps to neighbouring blocks."""

    cells: int
    panels: Array
    edges: tuple[Indices, Array]
    parts: dict[int, slice]
    """Slice of the edges that lead to each neighbouring block, by block number."""
    limits: tuple[Any, Any]
    """Relative and absolute bound of rounding in the matrix, which limits propagation."""
    bytes: int
    """Number of bytes of the block that were read from disk."""


def border_numbers(rows: Array, columns: Array, height: Array, width: Array) -> Array:
    """Return the position of border cells in the order of `border_cells`, by row and column."""
    # Clockwise from the north-west corner: along the north side, down the east side, back along the
    # south side and up the west side. A later choice takes precedence; at corners both agree.
    south = width + height - 2 + (width - 1 - columns)
    west = 2 * (width - 1) + height - 1 + (height - 1 - rows)
    around = np.where(columns == 0, west, south)
    around = np.where(rows == height - 1, south, around)
    around = np.where(columns == width - 1, width - 1 + rows, around)
    numbers: Array = np.where((rows == 0) | (height == 1), columns, around)
    return np.where(width == 1, rows, numbers)


@dataclass
class Blocks:
    """Cache of the blocks of an index, least recently used out first."""

    store: IndexStore
    memory: int
    """Number of bytes of blocks that may stay in memory."""
    _kept: OrderedDict[int, Block] = field(default_factory=OrderedDict)
    _size: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, number: int) -> Block:
        """Return a block, from memory or from disk."""
        with self._lock:
            block = self._kept.get(number)
            if block is not None:
                self._kept.move_to_end(number)
                return block
        # Without the lock: others go on meanwhile. If two threads read the same block, one of the
        # two is kept.
        block = self._read(number)
        with self._lock:
            if number not in self._kept:
                self._kept[number] = block
                self._size += block.panels.nbytes
            while self._size > self.memory and len(self._kept) > 1:
                self._size -= self._kept.popitem(last=False)[1].panels.nbytes
        return block

    def forget(self) -> None:
        """Drop all blocks from memory."""
        with self._lock:
            self._kept.clear()
            self._size = 0

    def cells(self, number: int) -> int:
        """Return the number of border cells and terminals of a block."""
        return self.store.cells(number)

    def _read(self, number: int) -> Block:
        (stored, edges, costs, limits), size = self.parts(number)
        # Edges that lead to one block stand together.
        near, first = np.unique(edges[:, 1], return_index=True)
        last = [*first.tolist()[1:], len(edges)]
        parts = {n: slice(*span) for n, span in zip(near.tolist(), zip(first.tolist(), last))}
        cells = self.cells(number)
        panels = pack_panels(stored, cells, self.store.form.symmetric)
        ends = np.ascontiguousarray(edges[:, [0, 2]])
        return Block(cells, panels, (ends, costs), parts, limits, size)

    def parts(self, number: int) -> tuple[BlockParts, int]:
        """Read what a visit of a block needs; return it, and its bytes on disk.

        Edges are in the order of the blocks in which they end.
        """
        form = self.store.form
        stored, leaving, size = self.store.read(number)
        window = form.window(number)
        cells = border_cells(window.height, window.width)
        move, start = np.nonzero(leaving < unreached(form.dtype))
        end = cells[start] + np.array(MOVES, np.int64)[move] + (window.y, window.x)
        end[:, 1] %= form.shape[1]  # over the seam of a grid that wraps
        other = form.block_of(end[:, 0], end[:, 1])
        costs = leaving[move, start]
        # First cells of the blocks in which the steps end. Blocks at the edge of the grid are
        # smaller.
        rows, columns = (end // form.side * form.side).T
        numbers = border_numbers(
            end[:, 0] - rows,
            end[:, 1] - columns,
            np.minimum(form.side, form.shape[0] - rows),
            np.minimum(form.side, form.shape[1] - columns),
        )
        if self.store.links is not None:
            # over links between terminals, numbered behind the border cells
            begins, there, ends_at, of_links = self.store.links.leaving(number)
            start, other = np.append(start, begins + len(cells)), np.append(other, there)
            before = [form.cells(near) for near in there.tolist()]
            numbers = np.append(numbers, ends_at + np.array(before, np.int64))
            costs = np.append(costs, of_links)
        order = np.argsort(other, kind="stable")
        edges = np.ascontiguousarray(np.stack([start, other, numbers], axis=1)[order])
        terminals = self.cells(number) - len(cells)
        limits = rounding(stored, window.height, window.width, terminals)
        return BlockParts(stored, edges, np.ascontiguousarray(costs[order]), limits), size

    def costs(self, number: int, *, reverse: bool = False) -> BlockCosts:
        """Return the step costs in a block, computed from the stored rasters."""
        form = self.store.form
        window = form.window(number)
        frame = form.tree.frame(window, 1)
        cells = [read_frame(raster, frame) for raster in self.store.rasters]
        problem = self.store.backward if reverse else self.store.problem
        return costs_of(problem, cells, window, frame, form.tree)


@dataclass
class BorderPropagation:
    """Propagation of costs over block borders from several sources at once."""

    blocks: Blocks
    lanes: int
    held: dict[int, Array] = field(default_factory=dict)
    arrived: dict[int, tuple[Array, Array]] = field(default_factory=dict)
    visits: int = 0
    read: dict[int, int] = field(default_factory=dict)
    """Size in bytes of each block that was visited, by block number."""

    def __post_init__(self) -> None:
        self.dtype = np.dtype(self.blocks.store.form.dtype)
        self.wide = lane_columns(self.dtype)
        self.bound = np.full((self.lanes, self.wide), unreached(self.dtype), self.dtype)
        self._keys: dict[int, float] = {}
        self._limits: dict[int, tuple[Any, Any]] = {}
        self._step = 0.0

    def start(self, source: int, number: int, border: Array) -> None:
        """Set the initial costs of a block's border cells from one of its sources."""
        arrived, fresh = self._arrivals(number)
        # Sources share vectors of ``wide`` columns.
        lane, column = divmod(source, self.wide)
        own = arrived[lane, : len(border), column]
        better = border < own
        own[better] = border[better]
        fresh[lane, better] = 1
        if better.any():
            self._new(number, float(border[better].min()))
            self._step = max(self._step, float(border[better].max()))

    def spread(self, arrived: Callable[[int, Array], None] | None = None) -> None:
        """Propagate until no cost below the bound changes any more.

        ``arrived`` is called at each visit with the block and its values; it may lower ``bound``.
        """
        turn = 0
        while self._keys:
            least = min(self._keys.values())
            # All sources have a bound at or below it, so nothing that waits can improve a target.
            if least >= self.bound.max():
                break
            self._sweep(least + WINDOW * self._step, turn, arrived)
            turn += 1

    def _sweep(self, limit: float, turn: int, arrived: Callable[[int, Array], None] | None) -> None:
        """Visit all blocks with changes up to ``limit`` in one pass over the grid.

        Blocks that change behind the sweep wait for the next one, from another corner.
        """
        across = self.blocks.store.form.grid[1]
        down, right = (1, 1, -1, -1)[turn % 4], (1, -1, 1, -1)[turn % 4]

        def place(number: int) -> tuple[int, int]:
            return number // across * down, number % across * right

        todo = [(place(number), number) for number, key in self._keys.items() if key <= limit]
        heapq.heapify(todo)
        queued = {number for _, number in todo}
        while todo:
            here, number = heapq.heappop(todo)
            queued.discard(number)
            del self._keys[number]
            for near in self._visit(number, arrived):
                ahead = near not in queued and place(near) > here
                if ahead and self._keys[near] <= limit:
                    queued.add(near)
                    heapq.heappush(todo, (place(near), near))

    def _visit(self, number: int, arrived: Callable[[int, Array], None] | None) -> list[int]:
        """Propagate costs through a block into its neighbours; return those it lowered."""
        block = self.blocks.get(number)
        self._limits[number] = block.limits
        held = self._costs(number)
        lowered = visit(block.panels, block.cells, held, *self.arrived[number])
        self.visits += 1
        self.read[number] = block.bytes
        if arrived is not None:
            arrived(number, held)
        reached = []
        for near, part in block.parts.items():
            least = relax_edges(
                held,
                lowered,
                block.edges,
                part,
                self.bound,
                # of a block that was not visited no cost is known
                self._limits.get(near, block.limits),
                self._costs(near),
                *self._arrivals(near),
            )
            if least < unreached(self.dtype):
                self._new(near, least)
                reached.append(near)
        return reached

    def border(self, number: int, source: int = 0) -> Array:
        """Return the costs of a block's border cells from a source."""
        cells = self.blocks.cells(number)
        if number not in self.held:
            return np.full(cells, unreached(self.dtype), self.dtype)
        lane, column = divmod(source, self.wide)
        return np.ascontiguousarray(self.held[number][lane, :cells, column])

    def _costs(self, number: int) -> Array:
        if number not in self.held:
            cells = self.blocks.cells(number)
            self.held[number] = no_costs(self.lanes, cells, self.dtype)
        return self.held[number]

    def _arrivals(self, number: int) -> tuple[Array, Array]:
        if number not in self.arrived:
            cells = self.blocks.cells(number)
            self.arrived[number] = no_arrivals(self.lanes, cells, self.dtype)
        return self.arrived[number]

    def _new(self, number: int, value: float) -> None:
        self._keys[number] = min(value, self._keys.get(number, np.inf))


class SourceBorder(NamedTuple):
    """Costs between a cell and the ends of its block, and to other cells of the block."""

    block: int
    border: Array
    """Costs from the cell to the block's border cells and terminals, or back; shape (n,)."""
    inside: dict[tuple[int, int], Any]
    """Costs to the requested cells of the block, by paths inside the block."""


def lift(
    blocks: Blocks, number: int, cells: Indices, wanted: Indices, reverse: bool
) -> dict[tuple[int, int], SourceBorder]:
    """Return the costs between some cells of a block and its border, by paths inside the block."""
    window = blocks.store.form.window(number)
    costs = blocks.costs(number, reverse=reverse)
    ends = tuple(costs.ends.T)
    corner = np.array([window.y, window.x], np.int64)
    found = {}
    for cell in cells:
        inner = interior_distances(costs, None, (cell - corner)[None])
        values = {(y, x): inner[y - window.y, x - window.x] for y, x in wanted.tolist()}
        found[int(cell[0]), int(cell[1])] = SourceBorder(number, inner[ends], values)
    return found


@dataclass
class Arrivals:
    """Costs from sources to targets, updated during a propagation, whose bound they set."""

    propagation: BorderPropagation
    rests: dict[int, list[tuple[int, Array]]]
    """Targets in each block, by block number: target number, and costs from the border."""
    costs: Array
    """Costs, shape (targets, lanes, columns); at the start by paths inside the sources' blocks."""
    nearest: int
    """Number of targets that each source needs: all of them, or the nearest ones."""
    sources: int
    _visits: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._limit()

    def __call__(self, number: int, held: Array) -> None:
        """Update the targets in a block that was visited, now and then, and the bound.

        Targets are updated at the first visit, the second, the fourth and so on: the bound need
        not be the best one.
        """
        if number in self.rests:
            self._visits[number] += 1
            if self._visits[number].bit_count() == 1:
                self._update_targets(number, held)
                self._limit()

    def _update_targets(self, number: int, held: Array) -> None:
        for target, rest in self.rests[number]:
            relax_target(held, rest, self.costs[target])

    def _limit(self) -> None:
        most = len(self.costs)
        if self.nearest < most:
            bound = np.partition(self.costs, self.nearest - 1, axis=0)[self.nearest - 1]
        else:
            bound = self.costs.max(axis=0)
        self.propagation.bound[...] = bound
        # The last vector may have more lanes than there are sources: nothing spreads in those.
        self.propagation.bound.reshape(-1)[self.sources :] = 0

    def table(self) -> Array:
        """Return the final costs, shape (sources, targets)."""
        # Not every visit has updated its targets: the last values are those that hold.
        for number in self._visits:
            self._update_targets(number, self.propagation.held[number])
        flat = self.costs.reshape(len(self.costs), -1)[:, : self.sources].T
        table: Array = np.minimum(flat, unreached(self.costs.dtype))
        return table


def group_near(blocks: Blocks, numbers: Array, most: int) -> list[Indices]:
    """Divide sources into groups of at most ``most``, with near blocks together."""
    rows, columns = np.divmod(numbers, blocks.store.form.grid[1])
    # Morton codes of the blocks: near blocks have near codes.
    code = np.zeros(len(numbers), np.int64)
    for bit in range(31):
        code |= (rows >> bit & 1) << 2 * bit | (columns >> bit & 1) << 2 * bit + 1
    order = np.argsort(code, kind="stable")
    count = -(-len(order) // most)
    return [np.asarray(part, np.int64) for part in np.array_split(order, count)]


def from_group(
    blocks: Blocks,
    sources: Iterable[SourceBorder],
    targets: Targets,
    count: int,
    nearest: int,
) -> tuple[Array, dict[int, int], int]:
    """Return the costs from a group of sources to targets, by one propagation.

    Parameters
    ----------
    blocks : Blocks
    sources : of SourceBorder
    targets : Targets
    count : int
        Targets.
    nearest : int
        How many of them each source wants.

    Returns
    -------
    (sources, count)
    dict
        Bytes of each block that was read.
    int
        Visits.
    """
    sources = list(sources)
    dtype = np.dtype(blocks.store.form.dtype)
    propagation = BorderPropagation(blocks, -(-len(sources) // lane_columns(dtype)))
    costs = np.full((count, propagation.lanes, propagation.wide), unreached(dtype), dtype)
    for i, source in enumerate(sources):
        lane, column = divmod(i, propagation.wide)
        # Targets in the block of a source begin with the cost of a path inside it.
        for target, cell, _ in targets.get(source.block, ()):
            costs[target, lane, column] = source.inside[cell]
        propagation.start(i, source.block, source.border)
    rests = {number: [(t, rest) for t, _, rest in near] for number, near in targets.items()}
    arrivals = Arrivals(propagation, rests, costs, nearest, len(sources))
    propagation.spread(arrivals)
    return arrivals.table(), propagation.read, propagation.visits
