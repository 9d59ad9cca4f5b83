"""Flow accumulation as a problem of the quadtree sweep."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.arguments.cells import refuse_cell
from orograph.flow.flow_problem import FlowProblem, refuse_circle
from orograph.flow.paths import Junction, Paths, join_paths, paths_of_tile
from orograph.kernels.flow.accumulate import first_unfit, from_fixed, to_fixed
from orograph.kernels.flow.codes import MISSING, STEPS, Codes, leave_at_border
from orograph.kernels.flow.longest import join_longest, longest_paths
from orograph.kernels.flow.route import compile_kernels as compile_paths
from orograph.kernels.flow.route import route
from orograph.kernels.stages import kernel
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arrays import Array, Integers, Selection
from orograph.tiles.format.codec import stored
from orograph.tiles.grid.border import border_cells
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window
from orograph.tiles.store.create import Variable

NO_CELL = -1
MOST = 2**62
"""Greatest amount that a cell can have."""
NOTHING = np.iinfo(np.int64).min
"""Less than any number of which the greatest is accumulated."""
NO_LENGTHS = np.zeros((1, len(STEPS)), np.int64)


class Term(NamedTuple):
    """Quantity that is accumulated by itself: a sum, or the greatest of some numbers."""

    kind: str = "sum"
    """``"count"``, ``"sum"``, or what is kept: ``"max"``, or ``"min"``, inverted."""
    number: int = 0
    """Number of the class that is counted; power of the values that are summed."""
    place: int = 0
    """Place of a digit of the sum, as in `orograph.kernels.flow.upstream`."""

    @property
    def greatest(self) -> bool:
        """Whether the greatest number is kept, in whole units."""
        return self.kind in ("min", "max")


@stored("flow-amounts")
class Amounts:
    """Amounts of water as fixed-point numbers: whole units and fractions of 2**-62."""

    high: Integers
    low: Integers
    """Fractions of the amounts; empty if all amounts are whole."""

    def take(self, which: Selection) -> Amounts:
        """Return the amounts at some indices."""
        return Amounts(self.high[which], self.low[which] if self.low.size else self.low)

    @classmethod
    def joined(
        cls, count: int, places: Sequence[Integers], parts: Sequence[Amounts], nothing: int = 0
    ) -> Amounts:
        """Scatter several arrays of amounts to their places in one of ``count`` that has nothing
        else.
        """
        fractions = any(part.low.size for part in parts)
        joined = cls(np.full(count, nothing), np.zeros(count if fractions else 0, np.int64))
        for at, part in zip(places, parts, strict=True):
            joined.high[at] = part.high
            if part.low.size:
                joined.low[at] = part.low
        return joined


@stored("flow-accumulation")
class Summary:
    """Flow paths of a node, and the amounts of its own water that leave at each border cell."""

    paths: Paths
    amounts: tuple[Amounts, ...]


@stored("flow-accumulation-state")
class MergeState:
    """Flow paths between a node's children, and the amounts that leave the children."""

    junction: Junction
    amounts: tuple[Amounts, ...]


@dataclass(frozen=True)
class AccumulationProblem(FlowProblem, ABC):
    """Base class of problems that accumulate one term or several along flow paths."""

    stage = "accumulate"

    @property
    def terms(self) -> tuple[Term, ...]:
        """Terms that are accumulated, one after the other."""
        return (Term(),)

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels of paths, which CPUs join whatever accumulates in tiles."""
        compile_paths()

    @abstractmethod
    def falls(self, term: Term, place: Place, others: Sequence[Array], room: Integers) -> Amounts:
        """Return the amount each cell of a tile contributes, using ``room`` as memory for it."""

    def leaf(self, place: Place, *cells: Array) -> tuple[Summary, Codes]:
        """Accumulate within a tile; return amounts and paths at its border, and its directions."""
        numbers, *others = cells
        tile = leave_at_border(numbers)
        border = border_cells(*place.window.shape, place.sides)
        if not border.size:  # a grid of one tile
            nothing = np.empty(0, np.int64)
            paths = paths_of_tile(place, numbers, tile, border)
            return Summary(paths, (Amounts(nothing, nothing),) * len(self.terms)), tile
        amounts = tuple(self._leaving(term, place, tile, others, border) for term in self.terms)
        ends = kernel("exits_of", self.backend)(tile, border)
        return Summary(paths_of_tile(place, numbers, tile, ends), amounts), tile

    def _leaving(
        self, term: Term, place: Place, tile: Codes, others: Sequence[Array], border: Integers
    ) -> Amounts:
        """Return the amounts that leave a tile at its border cells, of what falls on it."""
        falls = self.falls(term, place, others, np.empty(tile.size, np.int64))
        return self._accumulate(term, place, tile, falls).take(border)

    def merge(
        self, place: Place, children: Sequence[tuple[Place, Summary]]
    ) -> tuple[Summary, MergeState]:
        """Route the amounts leaving a node's children to the border of the node."""
        junction, paths = join_paths(place, children)
        of_terms = zip(*(summary.amounts for _, summary in children), strict=True)
        places = junction.exits.size, junction.members
        saved = MergeState(junction, tuple(Amounts.joined(*places, parts) for parts in of_terms))
        # In the upward sweep nothing enters the node: only what fell on it is routed.
        nothing = [amounts.take(slice(0)) for amounts in saved.amounts]
        routed = self._route(saved, np.empty(0, np.int64), nothing)
        return Summary(paths, tuple(one.take(junction.border) for one, _ in routed)), saved

    def root(self, summary: Summary) -> tuple[tuple[Amounts, ...], dict[str, Any]]:
        """Return empty amounts: no water enters the grid from outside."""
        return tuple(amounts.take(slice(0)) for amounts in summary.amounts), {}

    def down(
        self,
        place: Place,
        saved: MergeState,
        message: tuple[Amounts, ...],
        children: Sequence[Place],
    ) -> list[tuple[Amounts, ...]]:
        """Return the amounts of water that enter each child at its border cells."""
        entering = [own for _, own in self._route(saved, saved.junction.border, message)]
        return [tuple(own.take(member) for own in entering) for member in saved.junction.members]

    def _route(
        self, saved: MergeState, border: Integers, message: Sequence[Amounts]
    ) -> Iterator[tuple[Amounts, Amounts]]:
        """Yield the amounts leaving and entering the children, given those entering the node."""
        junction = saved.junction
        for term, own, given in zip(self.terms, saved.amounts, message, strict=True):
            leaving = Amounts(own.high.copy(), own.low.copy())
            nothing = NOTHING if term.greatest else 0
            entering = Amounts.joined(junction.exits.size, [border], [given], nothing)
            # No water enters from outside: its fractions are as many zeros as those that leave.
            if leaving.low.size and not entering.low.size:
                entering = Amounts(entering.high, np.zeros_like(leaving.low))
            paths = junction.order, junction.exits, junction.onward
            self._follow(term, paths, leaving, entering)
            yield leaving, entering

    def _follow(
        self,
        term: Term,
        paths: tuple[Integers, Integers, Integers],
        leaving: Amounts,
        entering: Amounts,
    ) -> None:
        """Pass on what leaves and enters along paths, in place; for them see `route`."""
        if term.greatest:
            join_longest(*paths, np.zeros_like(paths[1]), leaving.high, entering.high, NOTHING)
        else:
            route(*paths, leaving.high, leaving.low, entering.high, entering.low)

    def _accumulate(
        self,
        term: Term,
        place: Place,
        tile: Codes,
        amounts: Amounts,
        entering: Amounts | None = None,
    ) -> Amounts:
        """Accumulate amounts along a tile's directions, in place; refuse cyclic directions.

        Those that enter at its border cells are added to what falls there, if they are given.
        """
        if entering is not None:
            border = border_cells(*place.window.shape, place.sides)
            # Those that Dask brings may be read-only: compile for one type. Paths of no cell.
            given = Amounts(np.array(entering.high), np.array(entering.low))
            self._follow(term, (border[:0], border, border), amounts, given)
        if term.greatest:
            circle = longest_paths(tile, NO_LENGTHS, amounts.high)
        else:
            circle = kernel("accumulate", self.backend)(tile, amounts.high, amounts.low)
        refuse_circle(circle, place.window)
        return amounts


@dataclass(frozen=True)
class Accumulation(AccumulationProblem):
    """Accumulation of cell counts or areas as a problem of the quadtree sweep."""

    row_areas: npt.NDArray[np.float64] | None
    """Area of a cell of each row; None: cells are counted."""
    unit: str

    name = "flow-accumulation"
    planned_on_gpus = True

    @property
    def gpu_bytes(self) -> int:
        """Bytes of GPU memory for each cell of a tile whose amounts are added."""
        return 25 if self.whole else 57  # see `orograph.kernels.flow.cuda.accumulate`

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk that a run takes; with weights all is read twice."""
        needs = self.flow_bytes(cells, 16 + 5)  # two words of an amount, and marks
        read = sum(dtype.itemsize for dtype in cells.dtypes) if len(cells.dtypes) > 1 else 0
        return replace(needs, read_again=cells.grid * read)

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The raster of accumulated amounts."""
        attrs = {"long_name": "flow accumulation", "units": self.unit}
        if self.whole:
            return (Variable("accumulation", np.dtype(np.int64), NO_CELL, attrs),)
        return (Variable("accumulation", np.dtype(np.float64), np.nan, attrs),)

    @property
    def whole(self) -> bool:
        """Whether all amounts are whole numbers, so that fractions are not stored."""
        return self.row_areas is None

    @property
    def counts(self) -> bool:
        """Whether cells are counted, all as 1."""
        return self.row_areas is None

    def _leaving(
        self, term: Term, place: Place, tile: Codes, others: Sequence[Array], border: Integers
    ) -> Amounts:
        if not self.counts:
            return super()._leaving(term, place, tile, others, border)
        found = np.empty(border.size, np.int64)
        self._count(place, tile, border, found[:0], found)
        return Amounts(found, found[:0])

    def _count(
        self, place: Place, tile: Codes, border: Integers, entering: Integers, found: Integers
    ) -> None:
        """Count cells; see `orograph.kernels.flow.accumulate.count_cells`."""
        count = kernel("count_cells", self.backend)
        refuse_circle(count(tile, border, entering, found), place.window)

    def falls(self, term: Term, place: Place, others: Sequence[Array], room: Integers) -> Amounts:
        """Return the amount each cell of a tile contributes, using ``room`` as memory for it."""
        if self.whole:
            room[:] = self.falling(place, others)
            return Amounts(room, np.empty(0, np.int64))
        high = np.empty(room.size, np.int64)
        to_fixed(self.falling(place, others), high, room)
        return Amounts(high, room)

    def falling(self, place: Place, others: Sequence[Array]) -> Any:
        """Return each cell's contribution."""
        assert self.row_areas is not None  # else cells are counted
        rows = self.row_areas[place.window.y : place.window.y + place.window.height]
        return np.repeat(rows, place.window.width)

    def finish(
        self,
        place: Place,
        saved: Codes | tuple[Codes, Sequence[Array]],
        message: tuple[Amounts, ...],
    ) -> dict[str, Array]:
        """Return the accumulated amount at each cell of a tile."""
        blocks = {v.name: np.empty(place.window.shape, v.dtype) for v in self.outputs}
        self.finish_into(place, saved, message, blocks)
        return blocks

    def finish_into(
        self,
        place: Place,
        saved: Codes | tuple[Codes, Sequence[Array]],
        message: tuple[Amounts, ...],
        blocks: Mapping[str, Array],
    ) -> None:
        """Write the accumulated amount at each cell of a tile."""
        tile, others = saved if isinstance(saved, tuple) else (saved, ())
        ((name, block),) = blocks.items()
        # Cells are summed in the memory of the block, which must be flat for that.
        if not block.flags.c_contiguous:
            block[...] = self.finish(place, saved, message)[name]
            return
        # int64 words and cells of the result both have eight bytes: no further array is needed.
        (term,) = self.terms
        flat = block.reshape(-1).view(np.int64)
        if self.counts:
            border = border_cells(*place.window.shape, place.sides)
            entering = message[0].high if message else flat[:0]
            self._count(place, tile, border, entering, flat)
        else:
            amounts = self.falls(term, place, others, flat)
            self._accumulate(term, place, tile, amounts, *message)
        if not self.whole:  # in the memory of the last word
            from_fixed(tile.reshape(-1), amounts.high, amounts.low, block.reshape(-1))
        elif (missing := tile == MISSING).any():
            block[missing] = NO_CELL


@dataclass(frozen=True)
class WeightedAccumulation(Accumulation):
    """Accumulation of a weights raster, which is read again in the downward sweep."""

    weights_dtype: str = "float64"
    weights_nodata: float | int | None = None
    most: int = MOST
    """Greatest weight of a cell, so that no sum overflows."""

    counts = False

    @property
    def whole(self) -> bool:
        """Whether all weights are whole numbers."""
        return np.dtype(self.weights_dtype).kind in "iu"

    def prepare(self, numbers: Codes, others: Sequence[Array], window: Window) -> list[Array]:
        """Return the weights of a window, 0 where the directions are nodata."""
        (weights,) = others
        kind, nodata = weights.dtype.type, self.weights_nodata
        # Compared in the dtype of the weights, which may be too small for the bound.
        most = kind(min(self.most, np.iinfo(kind).max) if self.whole else self.most)
        unfit = first_unfit(
            *(numbers, weights, kind(0 if nodata is None else nodata), nodata is not None, most)
        )
        if unfit >= 0:
            must = (
                f"; where there is a direction a weight must be 0 to {self.most:.4g}, and not "
                "nodata: put 0 where nothing falls"
            )
            refuse_cell("weights", weights, unfit, window, must)
        return [weights]

    def falling(self, place: Place, others: Sequence[Array]) -> Any:
        """Return the weight of each cell of a tile."""
        return others[0].reshape(-1)

    def reread(self, place: Place, saved: Codes, *cells: Array) -> tuple[Codes, Sequence[Array]]:
        """Return the saved directions of a tile and its weights, read again."""
        return saved, cells[1:]
