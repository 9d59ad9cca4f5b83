"""The merge tree of all basins of a raster, as a problem of the quadtree sweep.

A tile finds its basins and hands up those that reach its border, with the lowest saddles between
them; every node joins what its children hand up across their seams (`orograph.kernels.terrain`).
Pits and saddles are ordered by (height, index in the grid), and nothing is computed from heights.
So what is decided does not depend on how the grid is cut. Indices are row-major in the turned grid:
of equal heights that which comes first from the north-west counts as lower.

*Terminals* are vertices that are never decided: the outside, into which outlets drain, or points
between which passes are sought. They stand for a cell below all others, whose number is negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.engines.quadtree_pass import SweepProblem
from orograph.kernels.backends import get_backend
from orograph.kernels.forest.order_keys import order_keys
from orograph.kernels.stages import kernel
from orograph.kernels.terrain import basins, merge_tree, order
from orograph.kernels.terrain.basins import TileBasins, lowest_of_each
from orograph.kernels.terrain.order import order_cells
from orograph.run.problem import Bytes, CellCounts, bytes_written
from orograph.tiles.arrays import Array, Columns, Integers, Keys
from orograph.tiles.format.codec import stored
from orograph.tiles.grid.border import border_cells, join
from orograph.tiles.grid.orientation import NORTH_UP, Orientation
from orograph.tiles.grid.quadtree import Place, Sides
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.points import coordinates_of
from orograph.tiles.raster.raster import Raster

OUTSIDE = -1
"""Number of the terminal into which outlets drain."""


@stored("terrain-cells")
class Cells(Columns):
    """Cells of the grid with sortable keys of their heights; terminals have negative numbers."""

    key: Keys
    cell: Integers
    """Row-major index of each cell in the turned grid."""

    def order(self) -> Integers:
        """Return the indices that sort the cells by height, then by number."""
        return order_cells(self.key, self.cell)


@stored("terrain-summary")
class Summary:
    """Border of a node, and its undecided basins with the saddles between them."""

    border_values: Array
    border_vertex: Integers
    """Index in ``pits`` of the basin of each border cell, or -1 on nodata."""
    pits: Cells
    """Lowest cell of each basin."""
    first: Integers
    second: Integers
    saddles: Cells
    """Saddle at which the two basins of each edge meet."""


@stored("terrain-tree")
class Tree:
    """Decided part of a node's merge tree: basins that merge, where, and into which."""

    pits: Cells
    """Lowest cell of each basin of the node."""
    dead: Integers
    """Basins that merge into another within the node, in the order in which they merge."""
    heir: Integers
    """Basin into which each of the ``dead`` basins merges."""
    saddles: Cells
    """Saddle at which each of the ``dead`` basins merges."""
    kept: Integers
    """Basins that are undecided and were passed up to the parent."""


@stored("terrain-leaf-state")
class LeafState:
    """Saved state of a tile: the basin label of each cell, 0 for nodata, and its merge tree.

    No labels are saved where they are not needed, or a GPU finds them again.
    """

    labels: npt.NDArray[np.uint16] | npt.NDArray[np.int32]
    tree: Tree


NO_LABELS = np.empty((0, 0), np.uint16)


@stored("terrain-merge-state")
class MergeState:
    """Saved state of a node: its merge tree, and the places of its children's basins in it."""

    tree: Tree
    members: tuple[Integers, ...]


@dataclass(frozen=True)
class _Edges(Columns):
    first: Array
    second: Array
    saddles: Cells


# bytes of a pit while its tile is summarised, in the saved state of its shard, and on disk
PIT_OF_TILE, PIT_OF_SHARD, PIT_STORED = 240, 72, 48


@dataclass(frozen=True)
class BasinTree(SweepProblem):
    """Merge tree of basins as a sweep problem; subclasses define its terminals and results."""

    nodata: float | int | None
    connectivity: int
    backend: str = field(default="numba", kw_only=True)
    orientation: Orientation = field(default=NORTH_UP, kw_only=True)
    """Orientation of the grid."""

    stage = "tile_basins"
    may_wrap = True
    takes_device_cells: ClassVar[bool] = True
    upside_down: ClassVar[bool] = False
    """Whether heights are ordered from high to low."""

    planned_on_gpus = True
    counted_for_plans = ("pits",)
    read_twice: ClassVar[bool] = True
    """Whether cells are read again on the way down, where trees are saved for that."""
    saves_trees: ClassVar[bool] = True
    """Whether the trees of tiles are saved for the way down."""

    def pits(self, cells: CellCounts) -> int:
        """Return the number of pits that is planned for: that of white noise, if none is given."""
        # more than terrain has: one cell in each neighbourhood is the lowest
        return cells.count("pits", cells.grid // (self.connectivity + 1))

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk that a run takes, but for a table."""
        pits, saves = self.pits(cells), self.saves_trees
        in_tile, in_shard = (cells.share(pits, part) for part in (cells.tile, cells.shard))
        written = bytes_written(self)
        # in 16 bits where they can be counted
        label = 2 if in_tile < 2**16 else 4
        labels = label if self.read_twice else 0
        cell, shard_cell = 2 * max(cells.itemsize, 4) + 4 + label + written, labels + 2 * written
        if cells.on_gpu:  # where cells are decoded, and levels encoded
            cell, shard_cell = cells.itemsize + label, labels + written
        return Bytes(
            cell,
            shard_cell,
            in_tile * PIT_OF_TILE + (in_shard * PIT_OF_SHARD if saves else 0),
            border=(200, 60),
            checkpoints=cells.grid * labels + (pits * PIT_STORED if saves else 0),
            read_again=cells.grid * cells.itemsize if self.read_twice else 0,
        )

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels of merge trees, which CPUs make of what a GPU finds, too."""
        basins.compile_kernels(dtypes[0])
        merge_tree.compile_kernels()
        order.compile_kernels()

    @property
    def nodata_drains(self) -> bool:
        """Whether cells beside nodata drain into the outside."""
        return False

    def terminals(self, place: Place, labels: Array, others: Sequence[Array]) -> Terminals:
        """Return the cells of a turned tile that lead to terminals, with the terminals' numbers."""
        raise NotImplementedError

    def turn(self, cells: Array) -> Array:
        """Return the cells of a tile turned, in memory of their own unless north is up."""
        return cells if self.orientation == NORTH_UP else self.orientation.turn(cells).copy()

    def cells_in(
        self, place: Place, rows: Integers, columns: Integers
    ) -> tuple[Integers, Integers]:
        """Return which of some grid cells lie in a turned tile, and their indices in it."""
        window = self.orientation.turn_window(place.window, place.grid)
        here, cells = cells_in(window, rows, columns)
        return here, self.orientation.turn_cells(cells, window.shape)

    def leaf(self, place: Place, *cells: Array) -> tuple[Summary, LeafState]:
        """Find a tile's basins and their saddles; basins that reach its border stay undecided."""
        border = border_cells(*place.window.shape, place.sides)
        # Borders keep the order of the grid as it is stored, by which `join` matches them; only the
        # cells that they name are turned.
        border = self.orientation.turn_cells(border, place.window.shape)
        place = self.orientation.turn_place(place)
        heights, *others = map(self.turn, cells)
        tile = self._basins(heights)
        heights_at = partial(get_backend(self.backend).values_at, heights)
        labels, window = tile.labels, place.window
        ends = self.terminals(place, labels, others)
        basins = tile.pits.size
        # the outside is there in every tile: a seam may lead to it
        numbers = np.unique(np.append(ends.number, OUTSIDE) if self.nodata_drains else ends.number)
        # A basin merges with the outside at its lowest outlet; others of the basin decide nothing.
        if ends.number.size > numbers.size:  # many cells drain into the outside
            keys = self.keys(heights_at(ends.cell))
            lowest = lowest_of_each(ends.cell, keys, labels, basins)
            ends = Terminals(ends.cell[lowest], ends.number[lowest])
        at = np.concatenate([tile.cell, ends.cell])
        # Terminals are vertices after the basins; edges to them lead over the cells that drain.
        edges = _Edges(
            np.concatenate([tile.first, labels.ravel()[ends.cell].astype(np.int32) - 1]),
            np.concatenate([tile.second, basins + np.searchsorted(numbers, ends.number)]),
            Cells(self.keys(heights_at(at)), _in_grid(at, window, place.grid)),
        )
        pits = _with_terminals(
            Cells(self.keys(heights_at(tile.pits)), _in_grid(tile.pits, window, place.grid)),
            numbers,
        )
        border_vertex = labels.ravel()[border].astype(np.int64) - 1
        summary, tree = _decide(pits, edges, heights_at(border), border_vertex)
        # A GPU finds labels again sooner than they are read from a checkpoint.
        again = get_backend(self.backend).finds_again
        return summary, LeafState(NO_LABELS if again else labels, tree)

    def with_labels(self, saved: LeafState, heights: Array) -> LeafState:
        """Return the saved state of a tile with its labels, found again if they were not saved.

        ``heights`` are turned.
        """
        if saved.labels.shape == heights.shape:
            return saved
        return replace(saved, labels=self._basins(heights).labels)

    def _basins(self, heights: Array) -> TileBasins:
        find = kernel("tile_basins", self.backend)
        found: TileBasins = find(heights, self.nodata, self.connectivity, self.upside_down)
        return found

    def merge(
        self, place: Place, children: Sequence[tuple[Place, Summary]]
    ) -> tuple[Summary, MergeState]:
        """Join the children's merge trees across the borders between them."""
        summaries = [summary for _, summary in children]
        pits, members = _join_vertices(summaries)
        borders = join(
            place,
            [child for child, _ in children],
            [s.border_values for s in summaries],
            self.connectivity,
        )
        # From basins of the children to those of the node; nodata stays -1.
        vertex = np.full(borders.cells.size, -1, np.int64)
        for s, position, member in zip(summaries, borders.positions, members, strict=True):
            vertex[position] = np.where(
                s.border_vertex >= 0, np.append(member, -1)[s.border_vertex], -1
            )
        keys = self.keys(borders.values)
        valid = valid_cells(borders.values, self.nodata)
        in_grid = _in_grid(borders.cells, place.window, place.grid)
        cells = Cells(keys, self.orientation.turn_cells(in_grid, place.grid))
        a, b = borders.a, borders.b
        real = valid[a] & valid[b]
        # Two cells of a seam join when water covers both: the saddle is the higher one.
        later = cells.cell[a] > cells.cell[b]  # and so the higher one of equals
        higher = np.where((keys[a] > keys[b]) | ((keys[a] == keys[b]) & later), a, b)[real]
        parts = [_Edges(m[s.first], m[s.second], s.saddles) for s, m in zip(summaries, members)]
        parts.append(_Edges(vertex[a[real]], vertex[b[real]], cells.take(higher)))
        if self.nodata_drains:
            # Only the seam shows that a cell drains into nodata of the other child.
            ends = np.concatenate([a[valid[a] & ~valid[b]], b[valid[b] & ~valid[a]]])
            outside = np.full(ends.size, np.flatnonzero(pits.cell == OUTSIDE)[0])
            parts.append(_Edges(vertex[ends], outside, cells.take(ends)))
        edges = _Edges.concatenate(parts)
        own = borders.border
        summary, tree = _decide(pits, edges, borders.values[own], vertex[own])
        return summary, MergeState(tree, members)

    def keys(self, values: Array) -> Keys:
        """Convert heights to integer keys that sort in the order in which water rises."""
        keys = order_keys(values)
        return ~keys if self.upside_down else keys


class Terminals(NamedTuple):
    """Cells that lead to terminals, and the number of the terminal of each."""

    cell: Integers
    """Row-major indices of the cells in the tile, ascending for each terminal."""
    number: Integers


def _decide(
    pits: Cells, edges: _Edges, border_values: Array, border_vertex: Integers
) -> tuple[Summary, Tree]:
    """Split a node's basins into undecided ones, for its parent, and the decided merge tree."""
    # Terminals are never decided. A basin that reaches the border may have a lower saddle beyond
    # it, so its fate is left to the parent.
    open_ = pits.cell < 0
    open_[border_vertex[border_vertex >= 0]] = True
    merged = merge_tree.merge_tree(
        edges.first, edges.second, edges.saddles.order(), pits.order(), open_
    )
    number = np.full(open_.size + 1, -1, np.int64)  # and -1 of nodata stays what it is
    number[merged.kept] = np.arange(merged.kept.size)
    summary = Summary(
        border_values,
        number[border_vertex],
        pits.take(merged.kept),
        number[merged.ends[:, 0]],
        number[merged.ends[:, 1]],
        edges.saddles.take(merged.up),
    )
    saddles = edges.saddles.take(merged.saddle)
    return summary, Tree(pits, merged.dead, merged.heir, saddles, merged.kept)


def _join_vertices(summaries: Sequence[Summary]) -> tuple[Cells, tuple[Integers, ...]]:
    """Concatenate the basins of all children, with each terminal once, and index each child's."""
    pits = Cells.concatenate([s.pits for s in summaries])
    terminal = pits.cell < 0
    numbers = np.unique(pits.cell[terminal])
    count = int(terminal.size - terminal.sum())
    # Real basins keep their order; each terminal stands once, after them.
    places = np.cumsum(~terminal) - 1
    places[terminal] = count + np.searchsorted(numbers, pits.cell[terminal])
    joined = _with_terminals(pits.take(~terminal), numbers)
    return joined, tuple(np.split(places, np.cumsum([s.pits.cell.size for s in summaries])[:-1]))


def _with_terminals(pits: Cells, numbers: Integers) -> Cells:
    # The least key and a negative number: a terminal sorts before every cell.
    return Cells.concatenate([pits, Cells(np.zeros(numbers.size, np.uint64), numbers)])


def cells_at_edge(place: Place, labels: Array, connectivity: int) -> Integers:
    """Return the cells of a tile at the edge of the grid or next to nodata, ascending."""
    sides, (height, width) = place.sides, labels.shape
    if labels.min() > 0:  # most tiles, and nothing is beside nodata
        # Sides on which the grid ends, instead of those on which it continues.
        at_edge = Sides(not sides.north, not sides.south, not sides.west, not sides.east)
        return border_cells(height, width, at_edge)
    valid = labels > 0
    padded = np.pad(~valid, 1)
    lines = (padded[0], padded[-1], padded[:, 0], padded[:, -1])
    for line, beyond in zip(lines, (sides.north, sides.south, sides.west, sides.east), strict=True):
        # What lies beyond the grid drains; beyond a border within the grid, the parent looks.
        line[:] |= not beyond
    beside = np.zeros_like(valid)
    steps = [(0, 1), (1, 0), (1, 2), (2, 1)]
    if connectivity == 8:
        steps += [(0, 0), (0, 2), (2, 0), (2, 2)]
    for y, x in steps:
        beside |= padded[y : y + height, x : x + width]
    return np.flatnonzero(beside & valid)


def places_of(cells: Integers, raster: Raster) -> npt.NDArray[np.float64]:
    """Return the map coordinates (x, y) of cells given by row-major index, shape (n, 2)."""
    rows, columns = np.divmod(cells, raster.shape[1])
    places: npt.NDArray[np.float64] = coordinates_of(rows, columns, raster.georeference)
    return places


def cells_in(window: Window, rows: Integers, columns: Integers) -> tuple[Integers, Integers]:
    """Return which of the given grid cells lie in a window, and their indices in the window."""
    y, x = rows - window.y, columns - window.x
    inside = (y >= 0) & (y < window.height) & (x >= 0) & (x < window.width)
    here = np.flatnonzero(inside)
    return here, y[here] * window.width + x[here]


def _in_grid(cells: Array, window: Window, grid: tuple[int, int]) -> Integers:
    """Convert row-major indices in a window to row-major indices in the grid."""
    y, x = np.divmod(cells.astype(np.int64), window.width)
    indices: Integers = (y + window.y) * grid[1] + (x + window.x)
    return indices
