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
from orograph.distance.links import TOO_FAR, links_of_tile
from orograph.distance.problem import Distance
from orograph.kernels.relax.border import inner_of
from orograph.kernels.relax.pad import barrier_of
from orograph.kernels.relax.reach import Extent, measure_reach
from orograph.kernels.relax.tile import relax, seed
from orograph.kernels.stages import kernel
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
from orograph.tiles.raster.raster import Raster
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
CELLS_A_TASK, CELLS_AHEAD = 2**18, 2**22
FACILITIES_A_TASK = 64
CELLS_AT_ONCE = 2**17
"""Cells of the windows that are relaxed together, about what caches hold."""


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
    held_bytes: ClassVar[int] = 0
    """Bytes of each cell of the grid that are held until the result is written."""
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
        # with what lies around it: an octagon is two thirds of its square
        window, read = min(5 * reach // 3, cells.grid), sum(d.itemsize for d in cells.dtypes)
        ahead = 0 if self.keeps else min(max(CELLS_AHEAD, 4 * window), count * window) * itemsize
        return Bytes(
            cell=self.held_bytes,
            more=window * (self.distance.bytes(cells).cell + read + itemsize),
            checkpoints=count * window * self.kept_bytes if self.keeps else 0,
            table=ahead + count * 48,
            columns=count * 48,
            read_again=window * count * read,
        )

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels of distances."""
        here, dtype = np.zeros(1, np.int64), self.distance.dtype
        start = Sources(here, here, np.zeros(1, dtype), here)
        replace(self.distance, sources=start).compile_kernels(dtypes[:-1], True)
        cells, people = np.zeros((4, 4), dtype)[1:-1, 1:-1], np.zeros((2, 2), dtypes[-1])
        measure_reach(cells, 1.0, people, None, 1 / UNIT)

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
        window, costs, _ = self.context.checkpoints.load("reach", Node(0, number))
        return Window(*window), costs

    def search(self, numbers: Sequence[int], side: int) -> list[Reach]:
        """Return the reaches of some facilities; ``side`` is a guess of how far they go."""
        known: dict[int, Reach] = {}
        todo: list[tuple[int, Window]] = []
        for number in numbers:
            if self.problem.keeps:
                kept = self.context.checkpoints.load("reach", Node(0, number))
                if kept is not None:
                    known[number] = Reach(Window(*kept[0]), kept[1][:0], *kept[2])
                    continue
            box = _around(self._own(number))
            whole = math.isinf(self.problem.distance.max_cost)
            window = Window(0, 0, *self.shape) if whole else box.grow(side + 2).clip(self.shape)
            todo.append((number, window))
        while todo:
            self.context.stop_if_cancelled()
            many = 1 if self.problem.distance.links else max(CELLS_AT_ONCE // todo[0][1].size, 1)
            some, todo = todo[:many], todo[many:]
            for (number, window), (larger, dist) in zip(some, self._relax(some), strict=True):
                extent = self._extent(window, dist)
                # a path that leaves the window passes the cells at its edge, or goes along a link
                more = max(window.shape) // 2
                north, west = more * (extent.top == 0), more * (extent.left == 0)
                height = window.height + north + more * (extent.bottom == window.height - 1)
                width = window.width + west + more * (extent.right == window.width - 1)
                beyond = Window(window.y - north, window.x - west, height, width)
                larger = _joined(larger, beyond.clip(self.shape))
                if larger == window:
                    known[number] = self._reach(number, window, dist, extent)
                else:
                    todo.append((number, larger))
        return [known[number] for number in numbers]

    def _own(self, number: int) -> Integers:
        """Return the rows and columns of the cells of a facility."""
        first = self.problem.first
        last = first[number + 1] if number + 1 < len(first) else len(self.problem.cells)
        return self.problem.cells[first[number] : last]

    def _extent(self, window: Window, dist: Array) -> Extent:
        """Measure the cells and people within reach, given the distances in a window."""
        problem = self.problem
        people = np.empty((0, 0), self.rasters[-1].dtype)
        if problem.counts_people:
            people = self.rasters[-1].read(window)
        nodata = None if problem.nodata is None else float(problem.nodata)
        nothing = float(problem.distance.link_blank[0])
        return measure_reach(dist, nothing, people, nodata, 1 / UNIT)

    def _reach(self, number: int, window: Window, dist: Array, extent: Extent) -> Reach:
        """Return the reach of a facility, and save it if the problem keeps it."""
        problem, save = self.problem, self.context.checkpoints.save
        count, top, bottom, left, right, total, farthest = extent
        y, x = (self._own(number).mean(axis=0) - (window.y, window.x)).tolist()
        side = math.ceil(max(y - top, bottom - y, x - left, right - x))
        # only the rows and columns that are within reach
        costs = problem.orientation.turn(dist[top : bottom + 1, left : right + 1])
        window = self._turned(Window(window.y + top, window.x + left, *costs.shape))
        facts = total, count, farthest, side
        if problem.keeps:
            place, kept = (window.y, window.x, *window.shape), problem.kept_of(costs)
            packed = kept.dtype.itemsize == 1  # masks shrink, sums of floats do not
            save("reach", Node(0, number), (place, np.array(kept), facts), compressed=packed)
        sent = problem.lists_cells and not problem.keeps
        return Reach(window, np.array(costs) if sent else costs[:0].copy(), *facts)

    def _relax(self, some: Sequence[tuple[int, Window]]) -> list[tuple[Window, Array]]:
        """Return for each facility and window the window that is needed, and distances in this one.

        The windows are relaxed as one tile, one below the other, with barriers between them: to
        open a tile takes as long as to search a few thousand cells.
        """
        distance, rasters = self.problem.distance, self.rasters[:-1]
        halo, nothing = distance.halo_width, distance.link_blank[0]
        heights = [window.height + halo for _, window in some]
        tops = (np.cumsum(heights) - heights).tolist()
        shape = sum(heights) - halo, max(window.width for _, window in some)
        cells = [np.zeros(shape, raster.dtype) for raster in rasters] if len(some) > 1 else []
        rows = [np.arange(window.y, window.y + window.height + halo) for _, window in some]
        for (_, window), top in zip(some, tops, strict=True):
            with located(window):
                parts = [raster.read(window) for raster in rasters]
                distance.check(parts, window)
            for block, part in zip(cells, parts, strict=False):
                block[top : top + window.height, : window.width] = part
        cells = cells or parts
        if distance.lengths.shape[1] > 1:
            table = np.concatenate([*rows, rows[-1][-1:]]).clip(max=distance.lengths.shape[1] - 1)
            distance = replace(distance, lengths=distance.lengths[:, table])
        frame = Window(0, 0, *shape)
        place = Place(Node(0, 0), frame, Sides(False, False, False, False), shape)
        surface = distance.surface(place, cells, frame)
        for (_, window), top in zip(some, tops, strict=True):
            bottom = halo + top + window.height
            for raster in (surface.friction, surface.elevation):
                if raster.size:
                    raster[bottom : bottom + halo] = barrier_of(distance.dtype)
                    raster[halo + top : bottom, halo + window.width :] = barrier_of(distance.dtype)
        places = [
            self._own(number) - (window.y - top, window.x)
            for (number, window), top in zip(some, tops, strict=True)
        ]
        seed(surface, *np.concatenate(places).T)
        tile = kernel("open_tile", "numba")(surface)
        links = links_of_tile(distance.links, some[0][1])
        relax(surface)
        while links is not None and links.spread(tile):
            relax(surface)
        found = []
        for (_, window), top in zip(some, tops, strict=True):
            there = window
            dist = inner_of(surface.dist, halo)[top : top + window.height, : window.width]
            if links is not None and distance.links is not None:
                arrivals = links.outgoing(tile)
                heads = distance.links.head[distance.links.of_tile(window).leaving]
                heads = heads[(arrivals < nothing) & (arrivals != TOO_FAR)]
                there = _joined(window, _around(heads)) if len(heads) else window
            found.append((there, dist))
        return found


def _around(cells: Integers) -> Window:
    """Return the least window that holds some cells."""
    y, x = cells.min(axis=0).tolist()
    bottom, right = cells.max(axis=0).tolist()
    return Window(y, x, bottom - y + 1, right - x + 1)


def _joined(one: Window, other: Window) -> Window:
    """Return the least window that holds two others."""
    y, x = min(one.y, other.y), min(one.x, other.x)
    bottom = max(one.y + one.height, other.y + other.height)
    right = max(one.x + one.width, other.x + other.width)
    return Window(y, x, bottom - y, right - x)


def search_around(handle: Handle, numbers: Sequence[int], side: int) -> list[Reach]:
    """Return the reaches of some facilities; a task."""
    searches: Searches = load(handle)
    return searches.search(numbers, side)


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
