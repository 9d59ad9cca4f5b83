"""Search the cells within reach of each of many facilities.

A search relaxes one window of the grid, as if it were a tile, and enlarges it until no step out of
it costs little enough. So it is exact, and its time and memory are those of the reach. Searches are
tasks; what they find is used in the order of the facilities, in one process, so that neither tiles
nor workers change a bit.

People are counted in multiples of 2**-20, as int64: sums are exact in any order.
"""

from __future__ import annotations

import math
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from orograph.arguments.cells import refuse_cell
from orograph.arguments.settings import setting
from orograph.arguments.sources import Sources
from orograph.distance.links import TOO_FAR
from orograph.distance.problem import Distance
from orograph.kernels.relax.border import inner_of
from orograph.kernels.relax.tile import relax
from orograph.run.cluster.executors import executor
from orograph.run.context import RunContext, located
from orograph.run.feedback import Progress
from orograph.run.monitor import begin_phase
from orograph.run.problem import Bytes, CellCounts, ProblemFacts
from orograph.run.run import Engine, ResultTable
from orograph.run.shared_data import load
from orograph.tiles.arrays import Array, Integers, Reals
from orograph.tiles.errors import InputError
from orograph.tiles.grid.orientation import Orientation
from orograph.tiles.grid.quadtree import Node, Place, Sides
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.interface import Raster, read_frame
from orograph.tiles.store.create import Variable
from orograph.tiles.store.sink import ArraySink

if TYPE_CHECKING:
    from distributed import Client

    from orograph.run.shared_data import Handle

UNIT = 2.0**-20
"""Number of people of which all others are multiples."""
MOST = 2.0**33
"""Greatest number of people in all cells, so that float64 holds all sums exactly."""
FIRST_SIDE = 32  # cells around a facility that the first searches read
CELLS_A_TASK, CELLS_AHEAD = 2**17, 2**22
FACILITIES_A_TASK = 32


@dataclass(frozen=True)
class Reach:
    """Cells within reach of a facility."""

    window: Window
    """Window that holds them, of the turned grid, whose first cell is the north-western."""
    costs: Array
    """Costs of its cells, turned; `Distance.link_blank` beyond reach. Empty if tasks keep them."""
    people: int
    """Number of people in them, in units of 2**-20."""
    count: int
    farthest: float
    side: int
    """Number of rows or columns from the facility to the farthest of them."""


@dataclass(frozen=True)
class AccessProblem(ProblemFacts, ABC):
    """Base class of problems of facilities and of the people within their reach.

    The rasters are those of the distance, then the population.
    """

    distance: Distance
    cells: Integers
    """Rows and columns of the cells of the facilities, shape (n, 2)."""
    first: Integers
    """Index of the first cell of each facility."""
    labels: Integers
    """Number of each facility in the result."""
    points: Reals
    """Coordinates of each facility, shape (n, 2)."""
    nodata: float | int | None
    """Nodata value of the population."""
    orientation: Orientation

    formula = "searches"
    counted_for_plans = ("reach",)
    backend: ClassVar[str] = "numba"
    counts_people: ClassVar[bool] = True
    """Whether tasks count the people within reach."""
    lists_cells: ClassVar[bool] = True
    """Whether the cells within reach are used, rather than their number alone."""
    kept_bytes: ClassVar[int] = 0
    """Bytes that are kept of each cell of a window, if tasks keep what they find."""

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Rasters of the result."""
        return ()

    @property
    def keeps(self) -> bool:
        """Whether tasks save what they find in the checkpoints, rather than return it."""
        return False

    @abstractmethod
    def solve(self, searches: Searches, found: Iterator[tuple[int, Reach]]) -> Result:
        """Return the result, given the reach of each facility in turn."""

    @property
    def order(self) -> Integers:
        """Facilities in the order in which their reaches are used."""
        return np.arange(len(self))

    def kept_of(self, costs: Array) -> Array:
        """Return the array that tasks keep of a window, given its costs."""
        return costs

    def table(
        self, columns: Mapping[str, Array], row: str = "facility", chosen: Any = slice(None)
    ) -> dict[str, tuple[tuple[str], list[Array]]]:
        """Return columns of the chosen facilities, behind their labels and coordinates."""
        x, y = self.points[chosen].T
        place = {row: self.labels[chosen], f"{row}_x": x, f"{row}_y": y}
        return {name: ((row,), [values]) for name, values in {**place, **columns}.items()}

    def __len__(self) -> int:
        return len(self.first)

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk of a run, with reaches that add up to five times the grid."""
        count, itemsize = len(self), self.distance.dtype.itemsize
        reach = cells.count("reach", min(cells.grid, -(-5 * cells.grid // max(count, 1))))
        # with what lies around it
        window = min(2 * reach, cells.grid)
        search = window * (self.distance.bytes(cells).cell + 2 * itemsize + 4 * 8)
        ahead = 0 if self.keeps else min(max(CELLS_AHEAD, 8 * window), count * window) * itemsize
        return Bytes(
            more=search,
            checkpoints=count * window * self.kept_bytes if self.keeps else 0,
            table=ahead + count * 48,
            columns=count * 48,
            read_again=window * count * sum(dtype.itemsize for dtype in cells.dtypes),
        )

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels of distances."""
        here = np.zeros(1, np.int64)
        start = Sources(here, here, np.zeros(1, self.distance.dtype), here)
        replace(self.distance, sources=start).compile_kernels(dtypes[:-1], True)

    def engine(self, rasters: tuple[Raster, ...], context: RunContext) -> Searches:
        """Return the engine of the problem."""
        return Searches(self, rasters, context)


Rasters = dict[str, tuple[Array, Callable[[Array], Array]]]
"""Numbers of all cells of the turned grid, and what makes the values of a raster of them."""


@dataclass(frozen=True)
class Result:
    """Result of a problem of facilities."""

    rasters: Rasters
    columns: ResultTable
    attributes: dict[str, Any]


class Searches(Engine):
    """Engine that searches around each facility."""

    def __init__(
        self, problem: AccessProblem, rasters: tuple[Raster, ...], context: RunContext
    ) -> None:
        self.problem, self.rasters, self.context = problem, rasters, context
        self.shape = context.quadtree.shape
        self._done = 0
        self._columns: ResultTable = {}

    def run(self, client: Client | None, handle: Handle, cancelled: Event) -> dict[str, Any]:
        """Search around all facilities, and write the rasters that follow."""
        begin_phase("search")
        result = self.problem.solve(self, self._found(client, handle, cancelled))
        self._columns = result.columns
        begin_phase("write")
        for window in self._shards():
            there = self._valid(window)
            for variable in self.problem.outputs:
                numbers, values_of = result.rasters[variable.name]
                part = values_of(numbers[self._turned(window).slices])
                block = np.ascontiguousarray(self.problem.orientation.turn(part))
                if variable.dtype.kind == "f":
                    block[~there] = np.nan
                writer = self.context.sink.writer(variable.name, window)
                writer.put(window, block)
                writer.close()
        return result.attributes

    def table(self) -> ResultTable:
        """Return the table of the facilities."""
        return self._columns

    def progress(self) -> Progress:
        """Return the number of facilities whose reach was used, and of all."""
        return Progress(self._done, len(self.problem))

    def room(self, dtype: npt.DTypeLike) -> Array:
        """Return zeros for all cells of the turned grid; on disk if results are."""
        if isinstance(self.context.sink, ArraySink):
            return np.zeros(self.shape, dtype)
        with tempfile.TemporaryFile(prefix="orograph-", dir=setting("scratch")) as file:
            return np.memmap(file, dtype, "w+", shape=self.shape)

    def people(self) -> Integers:
        """Return the people in all cells of the turned grid, checked, in units of 2**-20."""
        left = self.room(np.int64)
        for window, people in self._checked():
            left[self._turned(window).slices] = people
        return left

    def count_people(self) -> int:
        """Return the number of all people, checked, in units of 2**-20."""
        return sum(int(people.sum()) for _, people in self._checked())

    def _checked(self) -> Iterator[tuple[Window, Integers]]:
        """Yield the people in each shard, turned; raise InputError if they do not fit."""
        total = 0
        for window in self._shards():
            self.context.stop_if_cancelled()
            people = people_in(self.rasters[-1], self.problem.nodata, window)
            total = check_total(total, people)
            yield window, self.problem.orientation.turn(people)

    def _shards(self) -> Iterator[Window]:
        tree = self.context.tree
        return (tree.window(node) for node in tree.nodes(self.context.shard_level))

    def _turned(self, window: Window) -> Window:
        return self.problem.orientation.turn_window(window, self.shape)

    def _valid(self, window: Window) -> npt.NDArray[np.bool_]:
        valid: npt.NDArray[np.bool_] = valid_cells(
            self.rasters[-1].read(window), self.problem.nodata
        )
        return valid

    def _found(
        self, client: Client | None, handle: Handle, cancelled: Event
    ) -> Iterator[tuple[int, Reach]]:
        """Yield each facility and its reach, in the order of the problem, searched by tasks."""
        order = self.problem.order.tolist()
        with executor(client, self.problem.name, self.context.token) as workers:
            slots = sum(1 for _ in workers.idle())
            arrived: dict[int, Reach] = {}
            away: dict[Any, list[int]] = {}
            begun, side, size = 0, FIRST_SIDE, CELLS_A_TASK
            while self._done < len(order):
                for worker in workers.idle():
                    many = max(min(FACILITIES_A_TASK, CELLS_A_TASK // size), 1)
                    ahead = max(2 * slots * many, CELLS_AHEAD // size)
                    mine = order[begun : begun + many]
                    if not mine or begun - self._done >= ahead:  # lists wait for their turn here
                        break
                    ticket = workers.submit(worker, "search", search_around, handle, mine, side)
                    away[ticket] = mine
                    begun += len(mine)
                for ticket, reaches in workers.next_done(cancelled):
                    arrived.update(zip(away.pop(ticket), reaches, strict=True))
                    side = max(reach.side for reach in reaches)
                    size = max(sum(reach.count for reach in reaches) // len(reaches), 1)
                while self._done < len(order) and order[self._done] in arrived:
                    self.context.stop_if_cancelled()
                    number = order[self._done]
                    yield number, arrived.pop(number)
                    self._done += 1

    def kept(self, number: int) -> tuple[Window, Array]:
        """Return the window of a facility's reach, and what the problem keeps of its costs."""
        window, costs = self.context.checkpoints.load("reach", Node(0, number))
        return Window(*window), costs

    def reach(self, number: int, side: int) -> Reach:
        """Return the reach of a facility; ``side`` is a guess of how far it goes."""
        problem, context = self.problem, self.context
        turn, nothing = problem.orientation.turn, problem.distance.link_blank[0]
        known = context.checkpoints.load("found", Node(0, number)) if problem.keeps else None
        if known is not None:
            return Reach(Window(0, 0, 0, 0), np.empty((0, 0)), *known)
        last = [*problem.first[1:].tolist(), len(problem.cells)][number]
        own = problem.cells[problem.first[number] : last]
        whole, costs = self._search(own, side)
        within = costs < nothing
        # only the rows and columns that are within reach
        down, across = (np.flatnonzero(within.any(axis))[[0, -1]] for axis in (1, 0))
        part = np.s_[down[0] : down[1] + 1, across[0] : across[1] + 1]
        costs, within = costs[part], within[part]
        window = Window(whole.y + int(down[0]), whole.x + int(across[0]), *costs.shape)
        middle = own.mean(axis=0) - (whole.y, whole.x)
        farther = int(np.abs(np.stack([down, across], axis=1) - middle).max())
        people = 0
        if problem.counts_people:
            given = self.rasters[-1].read(window)[within]
            people = int(in_units(given, problem.nodata).sum())
        reached = costs[within]
        found = people, reached.size, float(reached.max()), farther
        costs, window = turn(costs), self._turned(window)
        if problem.keeps:
            saved = (window.y, window.x, *window.shape), problem.kept_of(costs)
            context.checkpoints.save("reach", Node(0, number), saved)
            context.checkpoints.save("found", Node(0, number), found)
        sent = problem.lists_cells and not problem.keeps
        return Reach(window, np.ascontiguousarray(costs) if sent else costs[:0], *found)

    def _search(self, own: Integers, side: int) -> tuple[Window, Array]:
        """Return the window around some cells that holds all within reach, and the distances."""
        (top, left), (bottom, right) = own.min(axis=0).tolist(), own.max(axis=0).tolist()
        box = Window(top, left, bottom - top + 1, right - left + 1)
        window, most = box.grow(side + 2).clip(self.shape), self.problem.distance.max_cost
        if math.isinf(most):
            window = Window(0, 0, *self.shape)
        labels = np.zeros(len(own), np.int64)
        start = Sources(own[:, 0], own[:, 1], labels.astype(self.problem.distance.dtype), labels)
        distance = replace(self.problem.distance, sources=start)
        while True:
            with located(window):
                larger, dist = self._relax(distance, window)
            if larger == window:
                return window, dist
            window = larger

    def _relax(self, distance: Distance, window: Window) -> tuple[Window, Array]:
        """Return the window that is needed as far as is known, and distances within this one."""
        self.context.stop_if_cancelled()
        frame = self.context.quadtree.frame(window, distance.halo_width)
        cells = [read_frame(raster, frame) for raster in self.rasters[:-1]]
        distance.check(cells, frame)
        # as if it were alone: what lies around it is looked at below
        place = Place(Node(0, 0), window, Sides(False, False, False, False), self.shape)
        state = distance.open(place, cells, frame)
        relax(state.tile.state)
        while state.links is not None and state.links.spread(state.tile):
            relax(state.tile.state)
        halo, nothing = distance.halo_width, distance.link_blank[0]
        dist = inner_of(state.tile.state.dist, halo)
        # a path that leaves the window passes the cells at its edge, or goes along a link
        ends = dist[:halo], dist[-halo:], dist[:, :halo], dist[:, -halo:]
        larger = self._enlarged(window, [bool((end < nothing).any()) for end in ends])
        if state.links is not None and distance.links is not None:
            arrivals = state.links.outgoing(state.tile)
            heads = distance.links.head[distance.links.of_tile(window).leaving]
            larger = _around(larger, heads[(arrivals < nothing) & (arrivals != TOO_FAR)])
        return larger, dist

    def _enlarged(self, window: Window, reached: Sequence[bool]) -> Window:
        """Return a window with more cells on those of its four sides that are within reach."""
        more = max(window.height, window.width) // 2
        north, south, west, east = (more * side for side in reached)
        height, width = window.height + north + south, window.width + west + east
        return Window(window.y - north, window.x - west, height, width).clip(self.shape)


def _around(window: Window, cells: Integers) -> Window:
    """Return the least window that holds another one and some cells."""
    if not len(cells):
        return window
    y, x = np.minimum(cells.min(axis=0), (window.y, window.x)).tolist()
    ends = window.y + window.height, window.x + window.width
    bottom, right = np.maximum(cells.max(axis=0) + 1, ends).tolist()
    return Window(y, x, bottom - y, right - x)


def search_around(handle: Handle, numbers: Sequence[int], side: int) -> list[Reach]:
    """Return the reaches of some facilities; a task."""
    searches: Searches = load(handle)
    found = []
    for number in numbers:
        found.append(searches.reach(number, side))
        side = found[-1].side
    return found


def people_of(numbers: Any) -> Reals:
    """Return people, given in units of 2**-20, as floats: exactly."""
    people: Reals = np.asarray(numbers) * UNIT
    return people


def in_units(people: Array, nodata: float | int | None = None) -> Reals:
    """Return numbers of people in units of 2**-20, rounded to whole ones; 0 where nodata."""
    known: Reals = np.where(valid_cells(people, nodata), people, 0).astype(np.float64)
    return np.rint(known / UNIT)


def people_in(raster: Raster, nodata: float | int | None, window: Window) -> Integers:
    """Return the people in the cells of a window, in units of 2**-20, checked."""
    given = raster.read(window)
    people = in_units(given, nodata)
    wrong = (people < 0) | (people > MOST / UNIT)
    if wrong.any():
        must = f"; it must be 0 to {MOST:.0f} people (2**33): mark other cells as nodata"
        refuse_cell("population", given, int(wrong.argmax()), window, must)
    return people.astype(np.int64)


def check_total(total: int, people: Integers) -> int:
    """Return a number of people and those in some cells; raise InputError if they are too many."""
    # of more cells than 2**10 the sum may not fit int64, so it is rounded first
    if total * UNIT + float(people.sum(dtype=np.float64)) * UNIT <= 2 * MOST:
        total += int(people.sum())
        if total * UNIT <= MOST:
            return total
    raise InputError(
        f"population: its cells have more than {MOST:.0f} people (2**33) together, the most whose "
        "sums float64 holds exactly; divide all by a number, and capacities by the same"
    )
