"""Watersheds as a problem of the quadtree sweep: label each cell by where its flow path ends.

*Numbering.* Without outlets ends are numbered in row-major order. So each node counts the ends in
each of its rows; an end is known in its tile by its row and by how many ends are left of it there,
and in the downward sweep each node is told the number of the first end in each of its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from orograph.arguments.cells import refuse_cell, whole_labels
from orograph.engines.quadtree_pass import QuadtreePass, TableMaker
from orograph.engines.sweep_problems import Table
from orograph.flow.flow_problem import FlowProblem, refuse_circle, stream_cells
from orograph.flow.paths import Junction, Paths, join_paths, paths_of_tile
from orograph.kernels.flow.codes import MISSING, OUT, SINK, STEPS, Codes, leave_at_border
from orograph.kernels.flow.ends import compile_kernels, label_ends, replace_labels
from orograph.run.problem import Bytes, CellCounts
from orograph.run.run import ResultTable
from orograph.terrain.basin_tree import cells_in, places_of
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.errors import InputError
from orograph.tiles.format.codec import stored
from orograph.tiles.grid.border import border_cells
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window
from orograph.tiles.store.create import Variable

NONE = -1

WATERSHED = Variable("watershed", np.dtype(np.int64), NONE, {"long_name": "label of the watershed"})


@stored("flow-watersheds")
class Summary:
    """Flow paths of a node's border cells, and the outlets at which they end inside the node."""

    paths: Paths
    ends: Integers
    """Label of the outlet, or place of the end, of each border cell's path that ends in the node.

    The place is its row in the grid times the grid's width, and how many ends are left of it in
    that row of the node; -1 if there is none.
    """
    starts: Integers
    """Number of path ends in each row of the node, if ends are numbered."""


@stored("flow-watersheds-leaf")
class LeafState:
    """Saved state of a tile: its labels, and the path ends that they stand for."""

    labels: npt.NDArray[np.int32]
    """Number of the path end to which each cell drains, from 1."""
    ends: Integers
    """Outlet label or place of each path end, as in `Summary`; -1 where water leaves the tile."""
    leaving: Integers
    """Index among the border cells of each path end where water leaves the tile, -1 of others."""
    outlets: Integers
    """Numbers of the outlets in the tile."""
    below: Integers
    """Cell below each outlet; `STAYS` without one, ``~place`` of a border cell where water
    leaves."""


STAYS = np.iinfo(np.int64).max


@stored("flow-watersheds-merge")
class MergeState:
    """Saved state of a node: paths between its children, and path ends in each of them."""

    junction: Junction
    ends: Integers
    starts: tuple[Integers, ...]
    """Number of path ends in each row, child by child, if ends are numbered."""


@dataclass(frozen=True)
class Message:
    """Labels of the water that leaves a node at each border cell, and numbers of its path ends."""

    labels: Integers
    base: Integers
    """Number of the first path end in each row of the node, if ends are numbered."""


@dataclass(frozen=True)
class Watersheds(FlowProblem):
    """Watersheds as a problem of the quadtree sweep."""

    outlet_rows: Integers | None
    """Rows of the outlets; None: each path end has its watershed."""
    outlet_columns: Integers | None
    labels: Integers | None
    names: list[str] | None = None
    """Names for which the integer labels stand; None: labels are plain numbers."""

    name = "watersheds"
    stage = "label_ends"

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk that a run takes, with the saved labels of each shard."""
        needs, label = self.flow_bytes(cells, 2 * 4), 4
        return replace(
            needs,
            shard_cell=needs.shard_cell + label,
            checkpoints=needs.checkpoints + cells.grid * label,
        )

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels of paths and of the labels of their ends."""
        compile_kernels()

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The raster of labels."""
        if self.names is None:
            return (WATERSHED,)
        return (replace(WATERSHED, attrs={**WATERSHED.attrs, "source_names": self.names}),)

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """Columns of the table of outlets; none if no outlets were given."""
        return {} if self.labels is None else {"number": ("outlet",), "parent": ("outlet",)}

    def table_maker(self, run: QuadtreePass) -> OutletTable | None:
        """Return the maker of the table of outlets, None if no outlets were given."""
        return OutletTable(run, self) if self.columns else None

    def prepare(self, numbers: Codes, others: Sequence[Array], window: Window) -> list[Array]:
        """Raise InputError if an outlet lies on a cell without a direction."""
        here, cells = self._outlets_in(window)
        dry = numbers.reshape(-1)[cells] == MISSING
        if dry.any():
            first = int(here[dry].min())
            y, x = divmod(int(cells[here == first][0]), window.width)
            raise InputError(
                f"outlets: point {first} at row {window.y + y}, column {window.x + x} lies on "
                "nodata of the directions; move it, or pass snap= and accumulation="
            )
        return []

    @property
    def numbered(self) -> bool:
        """Whether each path end has its own watershed, labelled by its number."""
        return self.labels is None

    def stops(self, window: Window, others: Sequence[Array]) -> tuple[Integers, Integers, Integers]:
        """Return the cells of a tile that are outlets, their numbers and their labels."""
        here, cells = self._outlets_in(window)
        return cells, here, here if self.labels is None else self.labels[here]

    def _outlets_in(self, window: Window) -> tuple[Integers, Integers]:
        """Return the numbers and the cells of the outlets in a window."""
        if self.outlet_rows is None or self.outlet_columns is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return cells_in(window, self.outlet_rows, self.outlet_columns)

    def leaf(self, place: Place, *cells: Array) -> tuple[Summary, LeafState]:
        """Follow all flow paths within a tile; return its border paths and its labels."""
        numbers, *others = cells
        window = place.window
        outlets, here, own = self.stops(window, others)
        tile = leave_at_border(numbers)
        # Before outlets become sinks, which end the paths that pass them.
        below = _cells_below(tile, outlets, place) if self.columns else here[:0]
        tile.reshape(-1)[outlets] = SINK
        labels, at, circle = label_ends(tile)
        refuse_circle(circle, window)
        border = border_cells(*window.shape, place.sides)
        leaves = tile.reshape(-1)[at] == OUT
        ends, starts = np.full(at.size, NONE), np.empty(0, np.int64)
        if self.numbered:
            # Ends are row-major, so the rank of an end in its row is its index less that of the
            # row's first.
            inside = at[~leaves].astype(np.int64)
            row = inside // window.width
            starts = np.bincount(row, minlength=window.height)
            rank = np.arange(inside.size) - (np.cumsum(starts) - starts)[row]
            ends[~leaves] = (row + window.y) * place.grid[1] + rank
        else:
            ends[np.searchsorted(at, outlets)] = own
        # -1 on nodata, which has label 0; such a cell counts as the last one of its own path.
        of_border = labels.reshape(-1)[border] - 1
        last = np.where(of_border >= 0, at[of_border] if at.size else 0, border)
        paths = paths_of_tile(place, numbers, tile, last)
        known = np.where(of_border >= 0, np.append(ends, NONE)[of_border], NONE)
        # Water leaves a tile at border cells alone, so an end of that kind is one of them.
        leaving = np.where(leaves, np.searchsorted(border, at), -1)
        listed = here if self.columns else here[:0]
        return Summary(paths, known, starts), LeafState(labels, ends, leaving, listed, below)

    def merge(
        self, place: Place, children: Sequence[tuple[Place, Summary]]
    ) -> tuple[Summary, MergeState]:
        """Follow flow paths across the children's borders to find where they end."""
        junction, paths = join_paths(place, children)
        places, summaries = [child for child, _ in children], [s for _, s in children]
        ends = np.full(junction.exits.size, NONE)
        shifted = ends.copy()
        starts = np.zeros(place.window.height if self.numbered else 0, np.int64)
        for child, member, summary in zip(places, junction.members, summaries, strict=True):
            ends[member] = shifted[member] = summary.ends
            if self.numbered:
                own = _rows_of(child, place)
                left = _left_of(child, places)
                if left is not None:
                    # Ends were counted from the left side of the child; those of its left sibling
                    # in the same row come before them. ``ends`` stays as the child knows it, for
                    # the way down.
                    known = member[summary.ends >= 0]
                    row = ends[known] // place.grid[1] - child.window.y
                    shifted[known] += summaries[left].starts[row]
                starts[own] += summary.starts
        # Where water leaves the node the label is not known yet: it comes with the message.
        _, label = junction.follow(shifted, np.full(junction.border.size, NONE))
        exits = junction.exits
        # A path that ends in its child has the label of that end, any other the label that the path
        # has from the cell where it leaves the child.
        label = np.where(exits < 0, shifted, label[exits])[junction.border]
        saved = MergeState(junction, ends, tuple(s.starts for s in summaries))
        return Summary(paths, label, starts), saved

    def root(self, summary: Summary) -> tuple[Message, dict[str, Any]]:
        """Return the number of the first path end in each row of the grid."""
        starts = summary.starts
        attributes = {} if not self.numbered else {"watershed_count": int(starts.sum())}
        # Numbers begin at 1, row by row.
        return Message(np.empty(0, np.int64), np.cumsum(starts) - starts + 1), attributes

    def down(
        self, place: Place, saved: MergeState, message: Message, children: Sequence[Place]
    ) -> list[Message]:
        """Return for each child the labels of the water leaving it, and its numbering."""
        junction, ends = saved.junction, saved.ends.copy()
        bases = []
        for number, child in enumerate(children):
            base = message.base
            if self.numbered:
                base = base[_rows_of(child, place)]
                left = _left_of(child, children)
                # In each row the ends of the left sibling are numbered first.
                base = base if left is None else base + saved.starts[left]
                member = junction.members[number]
                ends[member] = _numbers(ends[member], base, child)
            bases.append(base)
        _, label = junction.follow(ends, message.labels)
        return [
            Message(label[member], base)
            for member, base in zip(junction.members, bases, strict=True)
        ]

    def finish(self, place: Place, saved: LeafState, message: Message) -> dict[str, Array]:
        """Return the watershed label of each cell of a tile."""
        blocks = {WATERSHED.name: np.empty(saved.labels.shape, np.int64)}
        self.finish_into(place, saved, message, blocks)
        return blocks

    def finish_into(
        self, place: Place, saved: LeafState, message: Message, blocks: Mapping[str, Array]
    ) -> None:
        """Write the watershed label of each cell of a tile."""
        table = self._table(place, saved, message)
        replace_labels(saved.labels, table, blocks[WATERSHED.name])

    def rows_of_tile(self, place: Place, saved: LeafState, message: Message) -> Table:
        """Return each outlet of a tile with the label of the next watershed downstream."""
        table = self._table(place, saved, message)
        below, stays = saved.below, saved.below == STAYS
        inside = ~stays & (below >= 0)
        parent = np.full(below.size, NONE)
        parent[inside] = table[saved.labels.reshape(-1)[below[inside]]]
        # Water that leaves the tile below an outlet has the label of the message at that border
        # cell.
        beyond = ~stays & (below < 0)
        parent[beyond] = message.labels[~below[beyond]]
        return {"number": saved.outlets, "parent": parent}

    def rows_of_node(self, place: Place, saved: MergeState, message: Message) -> Table:
        """Return no rows: all outlets lie in tiles."""
        return {name: np.empty(0, np.int64) for name in self.columns}

    def join_rows(
        self, tables: Iterable[Table], column: str, rows: range | None = None, before: int = 0
    ) -> Array:
        """Return one column of the outlets whose cells lie in a range of grid rows."""
        assert self.outlet_rows is not None
        joined = []
        for table in tables:
            row = self.outlet_rows[table["number"]]
            here = slice(None) if rows is None else (row >= rows.start) & (row < rows.stop)
            joined.append(table[column][here])
        return np.concatenate(joined)

    def _table(self, place: Place, saved: LeafState, message: Message) -> Integers:
        """Return the watershed label of each path end of a tile, after an entry for nodata."""
        ends = saved.ends
        if self.numbered:
            ends = _numbers(ends, message.base, place)
        leaves = saved.leaving >= 0
        # -1, of ends that do not leave the tile, picks the NONE appended at the end.
        ends = np.where(leaves, np.append(message.labels, NONE)[saved.leaving], ends)
        return np.append(NONE, ends)


@dataclass(frozen=True)
class LabelledWatersheds(Watersheds):
    """Watersheds of outlets that a raster labels, such as sub-basins of links."""

    outlets_nodata: float | int | None = None

    numbered = False
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk that a run takes, with the labels of outlets."""
        needs = super().bytes(cells)
        return replace(needs, cell=needs.cell + cells.dtypes[1].itemsize + 8 + 1)

    def prepare(self, numbers: Codes, others: Sequence[Array], window: Window) -> list[Array]:
        """Return the labels of outlets, 0 elsewhere; refuse those without a direction."""
        (given,) = others
        outlets = stream_cells("outlets", given, self.outlets_nodata, numbers, window)
        labels = whole_labels(given, outlets, window, "outlets")
        if (labels < 0).any():
            why = "; labels of outlets must be 1 or more"
            refuse_cell("outlets", labels, int((labels < 0).argmax()), window, why)
        return [labels]

    def stops(self, window: Window, others: Sequence[Array]) -> tuple[Integers, Integers, Integers]:
        """Return the cells of outlets in a tile, and their labels."""
        labels = others[0].reshape(-1)
        cells = np.flatnonzero(labels)
        return cells, cells, labels[cells]


class OutletTable(TableMaker):
    """Makes the table of outlets, in the order in which they were given."""

    def __init__(self, run: QuadtreePass, problem: Watersheds) -> None:
        super().__init__(run)
        self.problem = problem

    def table(self) -> ResultTable:
        """Return the label and coordinates of each outlet, and the next watershed downstream."""
        problem, raster = self.problem, self.run.rasters[0]
        assert problem.outlet_rows is not None
        assert problem.outlet_columns is not None
        assert problem.labels is not None
        pieces = {
            name: np.concatenate(list(column)) for name, (_, column) in self.run.columns().items()
        }
        cells = problem.outlet_rows * raster.shape[1] + problem.outlet_columns
        places = places_of(cells, raster)
        columns = {
            "label": problem.labels,
            # Rows come tile by tile; outlets are listed in the order in which they were given.
            "parent": pieces["parent"][np.argsort(pieces["number"])],
            "outlet_y": places[:, 1],
            "outlet_x": places[:, 0],
        }
        return {name: (("outlet",), [values]) for name, values in columns.items()}


def _cells_below(tile: Codes, cells: Integers, place: Place) -> Integers:
    """Return the cell downstream of each given cell, encoded as in `LeafState.below`."""
    numbers = tile.reshape(-1)[cells]
    below = np.full(cells.size, STAYS)
    flows, leaves = numbers < SINK, numbers == OUT
    dy, dx = np.array(STEPS)[numbers[flows]].T
    below[flows] = cells[flows] + dy * tile.shape[1] + dx
    border = border_cells(*place.window.shape, place.sides)
    below[leaves] = ~np.searchsorted(border, cells[leaves])
    return below


def _numbers(ends: Integers, base: Integers, place: Place) -> Integers:
    """Return the numbers of path ends from their positions and the first number in each row."""
    row, rank = np.divmod(np.maximum(ends, 0), place.grid[1])
    row = np.where(ends >= 0, row - place.window.y, 0)
    numbers: Integers = np.where(ends >= 0, base[row] + rank, NONE)
    return numbers


def _rows_of(child: Place, place: Place) -> slice:
    """Return the slice of a node's rows that a child covers."""
    first = child.window.y - place.window.y
    return slice(first, first + child.window.height)


def _left_of(place: Place, siblings: Sequence[Place]) -> int | None:
    """Return the index of the sibling to the left of a child, or None."""
    for index, other in enumerate(siblings):
        if other.window.y == place.window.y and other.window.x < place.window.x:
            return index
    return None
