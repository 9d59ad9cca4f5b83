"""Streams as a problem of the quadtree sweep: pieces go up, and the links they belong to come down.

A tile cuts streams into pieces (`orograph.kernels.flow.streams`). What goes up is a few numbers for
each piece, so the root has as many as the grid has links and borders have crossings, and numbers
and orders the links. Lines are made of the cells that tiles have kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.engines.quadtree_pass import QuadtreePass, TableMaker
from orograph.engines.sweep_problems import Table
from orograph.flow.drainage.lengths import StepLengths
from orograph.flow.flow_problem import FlowProblem, FlowSweep, refuse_circle, stream_cells
from orograph.kernels.flow.codes import MISSING, SINK, Codes
from orograph.kernels.flow.streams import (
    NONE,
    compile_kernels,
    join_pieces,
    order_links,
    trace_pieces,
)
from orograph.results.tables import OF_LINKS
from orograph.run.context import RunContext
from orograph.run.problem import Bytes, CellCounts
from orograph.run.run import ResultTable
from orograph.terrain.basin_tree import places_of
from orograph.tiles.arguments import as_text
from orograph.tiles.arrays import Array, Integers, Reals
from orograph.tiles.format.codec import stored
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.raster import Raster
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    import xarray as xr

LINK = Variable("link", np.dtype(np.int64), 0, {"long_name": "link of the stream network"})
ORDER = Variable("order", np.dtype(np.uint8), 0, {"long_name": "Strahler order of the stream"})


@stored("stream-pieces")
class Pieces:
    """Pieces of streams; arrays with an element for each."""

    first: Integers
    """First cell of each piece, row-major in the grid."""
    onward: Integers
    """Cell into which each piece flows, the first of another piece; -1 where the stream ends."""
    starts: npt.NDArray[np.bool_]
    """Whether each piece begins a link."""
    sizes: Integers
    """Number of cells of each piece."""
    lengths: Integers
    """Length of each piece's steps, with the step to the next piece."""
    amounts: Reals
    """Flow accumulation at the last cell of each piece."""
    top: Reals
    """Elevation of the first cell of each piece; empty without an elevation raster."""
    bottom: Reals
    """Elevation of the last cell of each piece; empty without an elevation raster."""

    @classmethod
    def joined(cls, parts: Sequence[Pieces]) -> Pieces:
        """Return the pieces of several nodes, one node after the other."""
        names = cls.__dataclass_fields__
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


class Message(NamedTuple):
    """Message to a node about its pieces; arrays with an element for each."""

    link: Integers
    position: Integers
    """Number of cells of the link that precede each piece."""
    columns: dict[str, Array]
    """Columns `OF_LINKS` of the link to which each piece belongs, by name."""

    def take(self, part: slice) -> Message:
        """Return the message about some of the pieces."""
        columns = {name: column[part] for name, column in self.columns.items()}
        return Message(self.link[part], self.position[part], columns)


@stored("stream-cells")
class LeafState:
    """The stream cells of a tile, piece by piece, row-major in the tile."""

    cells: Integers
    sizes: Integers
    starts: npt.NDArray[np.bool_]


PIECE, VERTEX, WRITTEN = 64, 120, 24
"""Bytes of a cell of a stream in a piece, in the table, and in the store."""


@dataclass(frozen=True)
class StreamNetwork(FlowProblem):
    """Links of streams and their orders as a problem of the quadtree sweep."""

    shape: tuple[int, int]
    steps: StepLengths
    threshold: float
    nodata: tuple[float | int | None, ...]
    """Nodata values of the accumulation, and of the elevation if there is one."""

    name = "streams"
    stage = "trace_pieces"
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = dict.fromkeys(OF_LINKS, ("links",))
    as_lines = "; stream_lines writes the links of a result as lines"

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk that a run takes, where a share of all cells are streams."""
        others, streams = sum(dtype.itemsize for dtype in cells.dtypes[1:]), cells.grid // 10
        needs = self.flow_bytes(cells, 2 * others + 1 + round(PIECE / 10))
        return replace(
            needs,
            checkpoints=needs.checkpoints + streams * PIECE,
            table=streams * VERTEX,
            columns=streams * WRITTEN,
        )

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels of paths and of the pieces of streams."""
        compile_kernels()

    def engine(self, rasters: tuple[Raster, ...], context: RunContext) -> StreamSweep:
        """Return the engine of the problem."""
        problem: Any = self
        return StreamSweep(problem, rasters, self.tiled(context))

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The link and the order of each stream cell."""
        return LINK, ORDER

    def prepare(self, numbers: Codes, others: Sequence[Array], window: Window) -> list[Array]:
        """Return which cells are streams, the amounts, and the heights if there are any."""
        amounts, *heights = others
        streams = valid_cells(amounts, self.nodata[0]) & (amounts >= self.threshold)
        streams = stream_cells("accumulation", streams, None, numbers, window)
        known = [
            np.where(valid_cells(cells, nodata), cells, np.nan)
            for cells, nodata in zip(heights, self.nodata[1:], strict=True)
        ]
        return [streams, amounts, *known]

    def leaf(self, place: Place, *cells: Array) -> tuple[Pieces, LeafState]:
        """Return the pieces of streams in a tile; save their cells."""
        numbers, streams, amounts, *heights = cells
        window, width = place.window, numbers.shape[1]
        found, pieces, onward, starts = trace_pieces(numbers, streams)
        self._refuse_circle(streams, found, window)
        first, last, sizes = found[pieces[:-1]], found[pieces[1:] - 1], np.diff(pieces)
        # ``found`` has the cells of all pieces, one piece after the other; ``pieces`` is where each
        # begins.
        flat = numbers.reshape(-1)[found]
        # Tiles have a ring of cells around them (`StreamSweep`), so rows of the window begin at 1.
        lengths = self.steps.of_rows(window)
        rows = found // width - 1 if len(lengths) > 1 else 0
        gone = np.where(flat < SINK, lengths[rows, np.minimum(flat, SINK - 1)], 0)
        # Where a stream ends, its last cell has no step within the network.
        gone[pieces[1:][onward < 0] - 1] = 0
        # Lengths are whole numbers, so differences of prefix sums are exact.
        total = np.concatenate([[0], np.cumsum(gone)])
        levels = [cells.reshape(-1) for cells in heights] or [np.empty(0)]
        ends = (first, last) if heights else (np.empty(0, np.int64),) * 2
        summary = Pieces(
            self._in_grid(first, window, width),
            np.where(onward < 0, NONE, self._in_grid(onward, window, width)),
            starts,
            sizes,
            total[pieces[1:]] - total[pieces[:-1]],
            amounts.reshape(-1)[last].astype(np.float64),
            *(levels[0][end].astype(np.float64) for end in ends),
        )
        y, x = np.divmod(found, width)
        return summary, LeafState((y - 1) * window.width + x - 1, sizes, starts)

    def _in_grid(self, cells: Integers, window: Window, width: int) -> Integers:
        """Return the indices in the grid of cells of a tile with a ring around it."""
        y, x = np.divmod(cells, width)
        # Where the grid wraps, a stream may go on in the first or last column.
        x = (x - 1 + window.x) % self.shape[1]
        found: Integers = (y - 1 + window.y) * self.shape[1] + x
        return found

    def _refuse_circle(self, streams: Array, found: Integers, window: Window) -> None:
        """Raise InputError if some stream cells of a tile belong to no piece."""
        inner = streams[1:-1, 1:-1]
        if np.count_nonzero(inner) > found.size:
            left = streams.copy()
            left.reshape(-1)[found] = False
            refuse_circle(int(np.flatnonzero(left[1:-1, 1:-1])[0]), window)

    def merge(
        self, place: Place, children: Sequence[tuple[Place, Pieces]]
    ) -> tuple[Pieces, Integers]:
        """Return the pieces of a node; save how many each child has."""
        parts = [pieces for _, pieces in children]
        return Pieces.joined(parts), np.array([part.first.size for part in parts])

    def concern(self, result: xr.Dataset) -> str | None:
        """Return a warning if no cell is a stream."""
        if result.attrs.get("link_count") != 0:
            return None
        return (
            f"no link was found: no accumulation is {as_text(self.threshold)} or more; pass a "
            "lower threshold"
        )

    def root(self, summary: Pieces) -> tuple[Message, dict[str, Any]]:
        """Return the link of each piece and the columns of the links."""
        # Row-major by first cells: links are numbered by their heads, in the same way for any
        # tiling.
        order = np.argsort(summary.first)
        first = summary.first[order]
        onward = np.searchsorted(first, summary.onward[order])
        onward[summary.onward[order] < 0] = NONE
        starts = summary.starts[order]
        link, position = np.full((2, first.size), NONE)
        last = np.empty(int(starts.sum()), np.int64)
        sizes = summary.sizes[order]
        # Pieces that belong to no link after all are joined lie on a circle.
        if join_pieces(onward, starts, sizes, link, position, last) < first.size:
            refuse_circle(int(first[link < 0].min()), Window(0, 0, *self.shape))
        columns = self._columns(summary, order, first, link, onward, last)
        # The inverse permutation: messages are in the order in which the children's pieces were
        # joined.
        back = np.empty(order.size, np.int64)
        back[order] = np.arange(order.size)
        message = Message(
            link[back] + 1,
            position[back],
            {name: column[link[back]] for name, column in columns.items()},
        )
        attributes = {"link_count": last.size, "threshold": self.threshold}
        return message, attributes

    def _columns(
        self,
        summary: Pieces,
        order: Integers,
        first: Integers,
        link: Integers,
        onward: Integers,
        last: Integers,
    ) -> dict[str, Array]:
        """Return the columns of the links, whose pieces are in the order of their first cells."""
        heads = np.flatnonzero(summary.starts[order])
        # The piece into which the last piece of each link flows begins the link downstream, or lies
        # on it.
        after = onward[last]
        downstream = np.where(after < 0, NONE, link[after])
        strahler, shreve, upstream = np.empty((3, last.size), np.int64)
        amounts = summary.amounts[order][last]
        # of equal amounts the link counts that begins first from the north-west
        begins = self.orientation.turn_cells(first[heads], self.shape)
        links = np.argsort(begins, kind="stable")
        if order_links(downstream, amounts, links, strahler, shreve, upstream) < last.size:
            cell = first[heads[_link_on_circle(downstream, strahler == 0)]]
            refuse_circle(int(cell), Window(0, 0, *self.shape))
        lengths = np.zeros(last.size, np.int64)
        np.add.at(lengths, link, summary.lengths[order])
        columns: dict[str, Array] = {
            "strahler": strahler.astype(np.uint8),
            "shreve": shreve,
            "length": self.steps.rounded(lengths),
            "downstream": downstream + 1,
            "upstream": upstream + 1,
        }
        if summary.top.size:
            top, bottom = summary.top[order], summary.bottom[order]
            # Measured to the first cell of the next link, with which the line of a link ends.
            columns["drop"] = top[heads] - np.where(after < 0, bottom[last], top[after])
        return columns

    def down(
        self, place: Place, saved: Integers, message: Message, children: Sequence[Place]
    ) -> list[Message]:
        """Return for each child the part of the message about its pieces."""
        ends = np.cumsum(saved)
        return [message.take(slice(*part)) for part in zip(ends - saved, ends, strict=True)]

    def finish(self, place: Place, saved: LeafState, message: Message) -> dict[str, Array]:
        """Return the link and the order of each cell of a tile."""
        blocks = {}
        for variable, values in ((LINK, message.link), (ORDER, message.columns["strahler"])):
            block = np.zeros(place.window.shape, variable.dtype)
            block.reshape(-1)[saved.cells] = np.repeat(values, saved.sizes)
            blocks[variable.name] = block
        return blocks

    def column_attributes(self, name: str) -> dict[str, Any]:
        """Return the attributes of a column of the table of links."""
        return self.steps.attributes("length of the link") if name == "length" else {}

    def rows_of_tile(self, place: Place, saved: LeafState, message: Message) -> Table:
        """Return the links that begin in a tile, and the cells of all that pass it."""
        # A link is listed by the tile in which it begins, its cells by all tiles that it passes.
        rows = {name: column[saved.starts] for name, column in message.columns.items()}
        ends = np.cumsum(saved.sizes)
        rank = np.arange(saved.cells.size) - np.repeat(ends - saved.sizes, saved.sizes)
        y, x = np.divmod(saved.cells, place.window.width)
        return rows | {
            "number": message.link[saved.starts],
            "vertex_link": np.repeat(message.link, saved.sizes),
            "vertex_position": np.repeat(message.position, saved.sizes) + rank,
            "vertex_cell": (y + place.window.y) * self.shape[1] + x + place.window.x,
        }

    def rows_of_node(self, place: Place, saved: Integers, message: Message) -> Table:
        """Return no rows: all cells lie in tiles."""
        return {}

    def join_rows(
        self, tables: Iterable[Table], column: str, rows: range | None = None, before: int = 0
    ) -> Array:
        """Return one column of the links and cells of some tiles."""
        return np.concatenate([table[column] for table in tables if table])

    def table_maker(self, run: QuadtreePass) -> NetworkTable:
        """Return the builder of the tables of links and of their cells."""
        return NetworkTable(run)


def _link_on_circle(downstream: Integers, left: npt.NDArray[np.bool_]) -> int:
    """Return a link on a circle, given which links are on one or below it."""
    # Every link that is left has another upstream that is left as well, so a walk up of as many
    # steps as there are such links ends on a circle.
    above = np.empty(downstream.size, np.int64)
    into = np.flatnonzero(left & (downstream >= 0))
    above[downstream[into]] = into
    link = int(np.flatnonzero(left)[0])
    for _ in range(into.size):
        link = int(above[link])
    return link


class NetworkTable(TableMaker):
    """Builder of the tables of links and of their cells."""

    def table(self) -> ResultTable:
        """Return the columns of the links in their order, and the cells of each from its head."""
        parts: dict[str, list[Array]] = {}
        for table in self.run.all_rows():
            for name, column in table.items():
                parts.setdefault(name, []).append(column)
        whole = {name: np.concatenate(column) for name, column in parts.items()}
        number = np.argsort(whole["number"])
        # Link by link, from the head of each downstream.
        order = np.lexsort((whole["vertex_position"], whole["vertex_link"]))
        places = places_of(whole["vertex_cell"][order], self.run.rasters[0])
        columns = {name: whole[name][number] for name in OF_LINKS if name in whole}
        vertices = {
            "vertex_link": whole["vertex_link"][order],
            "vertex_y": places[:, 1],
            "vertex_x": places[:, 0],
        }
        return {
            name: ((dimension,), [values])
            for dimension, table in (("links", columns), ("vertices", vertices))
            for name, values in table.items()
        }


class StreamSweep(FlowSweep):
    """Quadtree sweep over flow directions with a ring of cells around each tile."""

    def read(self, window: Window) -> list[Array]:
        """Return directions, streams, amounts and heights of a window with a ring around it.

        Beyond the grid the ring is nodata.
        """
        ring = window.grow(1)
        frame = self.context.quadtree.frame(window, 1)
        return list(self._with_ring(super().read(frame), frame.within(ring), ring.shape))

    def _with_ring(
        self, cells: Sequence[Array], inside: tuple[slice, slice], shape: tuple[int, int]
    ) -> Iterator[Array]:
        """Yield arrays of the shape of a ring, with the cells inside the grid filled in."""
        numbers, *others = cells
        for array, fill in ((numbers, MISSING), *((other, 0) for other in others)):
            padded = np.full(shape, fill, array.dtype)
            padded[inside] = array
            yield padded
