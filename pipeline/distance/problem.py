"""Least-cost distances as a problem of the frontier engine.

Each tile is brought to its fixpoint by `orograph.kernels.relax.tile`;
`orograph.engines.frontier.driver` sees to it that tiles tell one another until all are at rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from orograph.engines.frontier.bucket_width import CELLS_A_VISIT
from orograph.engines.frontier.driver import NEIGHBOURS, Border, Visit
from orograph.kernels.backends import kernel
from orograph.kernels.relax.border import halo_strips, probe_border
from orograph.kernels.relax.models import BARRIER, MODELS, CostModel
from orograph.kernels.relax.pad import ReadOut, first_outside
from orograph.kernels.relax.tile import TileState, relax, seed, tile_state, wake
from orograph.tiles.errors import InputError, RunError
from orograph.tiles.grid.quadtree import Node, Place, Sides
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.nodata import valid_cells
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    from orograph.kernels.relax.cuda import ResidentTile

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Sources:
    """Single cells from which distances are counted, one entry each."""

    rows: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    costs: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64]


@dataclass(slots=True)
class State:
    """A tile, its halo, and where it lies."""

    place: Place
    tile: TileState
    reach: int
    halo: list[Array]
    """The halo's distances: north and south with the corners, then west and east between them."""
    reached: int = -1
    """Cells that hold a value, once they have been counted."""
    resident: ResidentTile | None = None
    """Where a GPU does the work: there ``tile`` is in its memory, and the halo alone is here."""


@dataclass(frozen=True)
class Distance:
    """Least-cost distance as a problem of the frontier engine.

    The rasters are, in this order, those of friction, elevation and sources that are there.
    """

    name = "cost-distance"
    by_mask = False
    """Whether cells only say where one may pass."""

    model: CostModel
    dtype: np.dtype[Any]
    connectivity: int
    max_cost: float
    lengths: npt.NDArray[np.float64]
    """(5, 1) where all rows are alike, else (5, rows of the grid + 1); see `edge_lengths`."""
    nodata: tuple[float | int | None, ...]
    has_friction: bool
    has_elevation: bool
    sources: Sources | None
    """Where they are cells; None where they are the last raster."""
    targets: tuple[float, ...] | None
    """Values of the raster of sources that count; None: all but 0 and nodata."""
    cells: int = 0
    """Cells of the grid: a path has no more."""
    backend: str = "numba"
    """What relaxes the tiles: ``"numba"`` or ``"cuda"``."""

    @property
    def reach(self) -> int:
        """How far an edge goes."""
        return 2 if self.connectivity == 16 else 1

    @property
    def cells_a_visit(self) -> int:
        """A millisecond's worth or so: halo and border, and on a GPU copies and many launches."""
        return CELLS_A_VISIT if self.backend == "numba" else 200 * CELLS_A_VISIT

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """What is written."""
        integer = self.dtype.kind == "i"
        attrs = {"long_name": "least cost from the nearest source"}
        return (Variable("cost", self.dtype, -1 if integer else math.nan, attrs),)

    def starts(self, tile: int) -> dict[tuple[int, int], float] | None:
        """The tiles of the sources, and their least initial cost there."""
        if self.sources is None:
            return None
        keys: dict[tuple[int, int], float] = {}
        for row, column, cost in zip(
            (self.sources.rows // tile).tolist(),
            (self.sources.columns // tile).tolist(),
            self.sources.costs.tolist(),
            strict=True,
        ):
            keys[row, column] = min(cost, keys.get((row, column), math.inf))
        return keys

    def check(self, cells: Sequence[Array], frame: Window) -> None:
        """Refuse friction that cannot be walked on, and fractions where all must be whole."""
        for i, name in enumerate(self._names):
            if name == "friction":
                longest = longest_step(self.lengths, self.connectivity)
                check_friction(cells[i], self.nodata[i], frame, self.dtype, self.cells, longest)
            else:
                check_heights(cells[i], self.nodata[i], frame, self.dtype)

    def open(self, place: Place, cells: Sequence[Array], frame: Window) -> State:
        """A tile that nothing has reached but the sources in it."""
        window, reach = place.window, self.reach
        rasters: dict[str, Any] = {
            name: self._padded(cells[i], self.nodata[i], window, frame)
            for i, name in enumerate(self._names)
        }
        self._bar_unknown_heights(rasters)
        unreached = BARRIER if self.dtype.kind == "i" else np.inf
        tile = tile_state(
            np.full_like(next(iter(rasters.values())), unreached),
            lengths=self._lengths(window),
            model=self.model,
            connectivity=self.connectivity,
            max_cost=self.max_cost,
            **rasters,
        )
        rows, columns, costs = self._sources_in(window, frame, cells)
        if self.sources is None:
            rows, columns = self._on_passable(tile, rows, columns)
        if self.backend == "cuda":
            from orograph.kernels.relax.cuda import ResidentTile

            shapes = [strip.shape for strip in halo_strips(tile.dist, reach)]
            halo = [np.full(shape, unreached, self.dtype) for shape in shapes]
            resident = ResidentTile(tile)
            resident.seed(rows, columns, costs)
            return State(place, resident.there, reach, halo, resident=resident)
        seed(tile, rows, columns, costs)
        return State(place, tile, reach, halo_strips(tile.dist, reach))

    def _on_passable(self, tile: TileState, rows: Array, columns: Array) -> tuple[Array, Array]:
        """Those cells that are no barriers: a raster of sources may reach into the sea."""
        there = np.ones(rows.size, bool)
        for raster in (tile.friction, tile.elevation):
            if raster.size:
                values = _here(raster[rows + self.reach, columns + self.reach])
                there &= values < BARRIER if self.dtype.kind == "i" else np.isfinite(values)
        return rows[there], columns[there]

    def _bar_unknown_heights(self, rasters: dict[str, Any]) -> None:
        """Where there is no height there is no way, for knights between two such cells either.

        Models that multiply or add friction know barriers by it; where there is none, by a neutral
        one.
        """
        neutral = MODELS[self.model.name].neutral_friction
        if neutral is not None:
            elevation = rasters["elevation"]
            friction = rasters.setdefault("friction", np.full_like(elevation, neutral))
            friction[np.isnan(elevation)] = np.nan

    @property
    def _names(self) -> list[str]:
        return ["friction"] * self.has_friction + ["elevation"] * self.has_elevation

    def _padded(
        self, cells: Array, nodata: float | int | None, window: Window, frame: Window
    ) -> Any:
        """A raster with its halo, barriers where there is nothing, where the work is done."""
        reach = self.reach
        shape = window.height + 2 * reach, window.width + 2 * reach
        corner = frame.y - window.y + reach, frame.x - window.x + reach
        pad = kernel("pad_costs", self.backend)
        return pad(cells, nodata, shape, corner, self.dtype, self.by_mask)

    def _lengths(self, window: Window) -> npt.NDArray[np.float64]:
        rows = window.height + 2 * self.reach
        if self.lengths.shape[1] == 1:
            return np.repeat(self.lengths, rows, axis=1)
        wanted = np.arange(window.y - self.reach, window.y - self.reach + rows)
        return np.ascontiguousarray(self.lengths[:, wanted.clip(0, self.lengths.shape[1] - 1)])

    def _sources_in(
        self, window: Window, frame: Window, cells: Sequence[Array]
    ) -> tuple[Array, Array, Array | float]:
        """The sources of a tile in its own frame, with their initial costs."""
        if self.sources is None:
            rows, columns = np.nonzero(
                is_source(cells[-1][window.within(frame)], self.nodata[-1], self.targets)
            )
            return rows, columns, 0.0
        rows, columns = self.sources.rows - window.y, self.sources.columns - window.x
        here = (rows >= 0) & (rows < window.height) & (columns >= 0) & (columns < window.width)
        return rows[here], columns[here], self.sources.costs[here]

    def visit(self, state: State, halo: Border, sent: Border, bound: float) -> Visit:
        """Take in the halo, relax up to the bound, and see what is new on the border."""
        tile = state.tile
        sides, changed = _take_in(state.halo, halo, state.reach, tile.unreached)
        if state.resident is not None:
            if changed:
                state.resident.wake(sides, state.halo)
            return self._visit_resident(state, state.resident, sent, bound)
        if sides:
            wake(tile, sides)
        stats = relax(tile, _beyond(bound, tile.dist.dtype))
        inner = inner_of(tile.dist, state.reach)
        border: Border = []
        known = []
        for k, own in enumerate(facing(inner, state.reach)):
            before = np.full(own.shape, tile.unreached, own.dtype) if sent[k] is None else sent[k]
            known.append(before)
            border.append(np.minimum(own, before) if (own < before).any() else None)
        outward = np.full(8, np.inf)
        if any(part is not None for part in border):
            outward = probe_border(tile, known[:4])
        if state.reached < 0:
            state.reached = int(np.count_nonzero(inner < tile.unreached))
        else:
            state.reached += stats.found
        return Visit(stats.pending, outward.tolist(), border, stats.settled, state.reached)

    def _visit_resident(
        self, state: State, tile: ResidentTile, sent: Border, bound: float
    ) -> Visit:
        """The same, on the GPU."""
        reach, dtype = state.reach, self.dtype
        stats, improved = tile.improve(_beyond(bound, dtype))
        shapes = [part.shape for part in facing(inner_of(state.tile.dist, reach), reach)]
        known = [
            np.full(shape, state.tile.unreached, dtype) if before is None else before
            for shape, before in zip(shapes, sent, strict=True)
        ]
        strips, outward = tile.probe_border(known[:4])
        # those that face a corner are the ends of the first rows and of the last
        corners = [strips[y][:, ends] for y in (0, 1) for ends in np.s_[:reach, -reach:]]
        border: Border = [
            np.minimum(own, before) if (own < before).any() else None
            for own, before in zip(strips + corners, known, strict=True)
        ]
        return Visit(stats.pending, outward.tolist(), border, improved, tile.reached)

    def pack(self, state: State) -> Any:
        """Distances and pending keys; costs are read again."""
        if state.resident is not None:
            return state.resident.pack()
        return state.tile.dist, state.tile.keys, state.tile.fresh

    def unpack(self, state: State, packed: Any) -> None:
        """Put distances and pending keys back."""
        dist, keys, fresh = packed
        if state.resident is not None:
            state.resident.unpack(dist, keys, fresh)
            for strip, known in zip(state.halo, halo_strips(dist, state.reach), strict=True):
                np.minimum(strip, known, out=strip)
            return
        np.minimum(state.tile.dist, dist, out=state.tile.dist)
        np.minimum(state.tile.keys, keys, out=state.tile.keys)
        np.maximum(state.tile.fresh, fresh, out=state.tile.fresh)

    def size(self, state: State) -> int:
        """Bytes of distances and costs."""
        if state.resident is not None:
            return state.resident.nbytes
        tile = state.tile
        return int(tile.dist.nbytes + tile.friction.nbytes + tile.elevation.nbytes)

    def memory(self) -> int | None:
        """Bytes that states may take in a process: on a GPU part of its own memory."""
        if self.backend != "cuda":
            return None
        from orograph.kernels.relax.cuda import memory_for_tiles

        return memory_for_tiles()

    def finish(self, state: State) -> tuple[dict[str, Array], dict[str, float]]:
        """The tile's distances, nodata where there are none."""
        (variable,) = self.outputs
        read_out = kernel("read_out", self.backend)
        found: ReadOut = read_out(state.tile, self.dtype, variable.fill_value)
        if found.cut_off and self.max_cost >= self._most:
            self._refuse_overflow(state, found.values)
        counts: dict[str, float] = {
            "reached_cells": found.reached,
            "nodata_cells": found.barriers,
            "unreached_cells": found.cut_off,
        }
        return {variable.name: found.values}, counts

    @property
    def _most(self) -> float:
        """The greatest distance that the dtype holds."""
        return BARRIER - 1 if self.dtype.kind == "i" else float(np.finfo(self.dtype).max)

    def _refuse_overflow(self, state: State, values: Array) -> None:
        """Raise if a cell without a value lies beside one that has one: the step's cost overflowed.

        Without a bound nothing else keeps a passable cell beside a reached one from being reached.
        (A knight's move passes between two cells, one of them beside either end.)
        """
        reach, tile = self.reach, state.tile
        height, width = values.shape
        reached = np.zeros((height + 2 * reach, width + 2 * reach), np.bool_)
        for there, known in zip(halo_strips(reached, reach), state.halo, strict=True):
            there[...] = known < tile.unreached
        inner_of(reached, reach)[...] = values >= 0  # neither NaN nor -1
        lost = ~inner_of(reached, reach)
        rasters = [_here(raster) for raster in (tile.friction, tile.elevation) if raster.size]
        for raster in rasters:
            cells = inner_of(raster, reach)
            lost &= cells < BARRIER if self.dtype.kind == "i" else np.isfinite(cells)
        for dy, dx in NEIGHBOURS[: 4 if self.connectivity == 4 else 8]:
            y, x = reach + dy, reach + dx
            beside = lost & reached[y : y + height, x : x + width]
            if not beside.any():
                continue
            row, column = (int(n) for n in np.argwhere(beside)[0])
            window = state.place.window
            heights = ""
            if self.has_elevation:
                z = rasters[-1]
                start, end = z[row + y, column + x], z[row + reach, column + reach]
                heights = f" (heights {start:g} and {end:g}: are they in the unit of coordinates?)"
            raise RunError(
                f"cost: at row {window.y + row}, column {window.x + column} it is more than "
                f"{self._most:g}, the most there is in {self.dtype}, by a step from row "
                f"{window.y + row + dy}, column {window.x + column + dx}{heights}; give smaller "
                f"costs, or max_cost= to leave out such cells"
            )

    def attributes(self, counts: dict[str, float]) -> dict[str, Any]:
        """What was asked, and how many cells were reached, or not, and why."""
        dx, dy = self.lengths[:2, 0].tolist()
        coefficients = list(self.model.coefficients)
        return {
            "cost_model": self.model.name,
            **({"coefficients": coefficients} if coefficients else {}),
            "direction": "to" if self.model.reverse else "from",
            "connectivity": self.connectivity,
            "max_cost": self.max_cost if math.isfinite(self.max_cost) else "infinite",
            "cell_size": [dy, dx] if self.lengths.shape[1] == 1 else "geodesic",
            "dtype": str(self.dtype),
            **{name: int(count) for name, count in counts.items()},
        }


def warm_up(problem: Any, dtypes: Sequence[npt.DTypeLike]) -> None:
    """Compile what a problem on such distances needs, by a tile of four cells a side.

    Done before workers start on a run: they find the kernels in Numba's cache then.
    """
    window = Window(0, 0, 4, 4)
    place = Place(Node(0, 0), window, Sides(False, False, False, False), window.shape)
    cells = [np.ones(window.shape, dtype) for dtype in dtypes]
    problem.check(cells, window)
    state = problem.open(place, cells, window)
    nothing: Border = [None] * len(NEIGHBOURS)
    problem.visit(state, nothing, nothing, math.inf)
    problem.finish(state)


def is_source(
    values: Array, nodata: float | int | None, targets: tuple[float, ...] | None
) -> npt.NDArray[np.bool_]:
    """Which cells of a raster of sources are sources."""
    # in the dtype of the cells: float64 takes 2**53 + 1 for 2**53
    wanted: npt.NDArray[np.bool_]
    if targets is None:
        wanted = values != 0
    elif values.dtype.kind in "iu":
        limits = np.iinfo(values.dtype)
        exact = [int(v) for v in targets if v == int(v) and limits.min <= v <= limits.max]
        wanted = np.isin(values, np.array(exact, values.dtype))
    else:
        wanted = np.isin(values, [float(v) for v in targets if v == float(v)])
    return wanted & valid_cells(values, nodata)


def longest_step(lengths: npt.NDArray[np.float64], connectivity: int) -> float:
    """Return the greatest length of a step, of a table of lengths."""
    return float(lengths[: {4: 2, 8: 3, 16: 5}[connectivity]].max())


def check_friction(
    cells: Array,
    nodata: float | int | None,
    frame: Window,
    dtype: np.dtype[Any],
    count: int,
    longest: float,
) -> None:
    """Refuse friction that is negative, infinite or too large to be summed, saying where.

    ``count`` is the number of cells of the grid: no path has more; ``longest`` is the length of
    its longest step.
    """
    if dtype.kind == "i":
        check_whole(cells, nodata, frame, "friction")
        # the friction of four cells times the length of a step stays below
        most: float = BARRIER // (8 * math.ceil(longest))
    else:
        most = float(np.finfo(dtype).max) / (8.0 * max(count, 1) * max(longest, 1.0))
    if cells.dtype.kind == "f":
        most = min(most, float(np.finfo(cells.dtype).max))
    bad = first_outside(cells, nodata, most)
    if bad >= 0:
        _refuse(
            bad,
            cells,
            frame,
            "friction",
            f"it must be 0 or more and finite, at most {most:g} in {dtype} where steps are up to "
            f"{longest:g} long: mark barriers as nodata (NaN)",
        )


def check_heights(
    cells: Array, nodata: float | int | None, frame: Window, dtype: np.dtype[Any]
) -> None:
    """Refuse heights whose differences the dtype of distances does not hold, saying where."""
    if dtype.kind == "i":
        check_whole(cells, nodata, frame, "elevation")
        most: float = BARRIER // 8
    else:
        most = float(np.finfo(dtype).max) / 8
    limits = np.iinfo(cells.dtype) if cells.dtype.kind in "iu" else np.finfo(cells.dtype)
    if max(-float(limits.min), float(limits.max)) <= most:
        return
    bad = valid_cells(cells, nodata) & ((cells > most) | (cells < -most))
    if bad.any():
        must = f"it must be {-most:g} to {most:g} in {dtype}: mark what is no height as nodata"
        _refuse(int(bad.argmax()), cells, frame, "elevation", must)


def check_whole(cells: Array, nodata: float | int | None, frame: Window, name: str) -> None:
    """Refuse fractions where distances are integers."""
    if cells.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            bad = np.isfinite(cells) & (cells != np.rint(cells))
        if nodata is not None and not math.isnan(nodata):
            bad &= cells != cells.dtype.type(nodata)
        if bad.any():
            _refuse(
                int(bad.argmax()),
                cells,
                frame,
                name,
                "with dtype='int64' it must be whole: use a float dtype",
            )


def _refuse(index: int, cells: Array, frame: Window, name: str, must: str) -> None:
    y, x = np.unravel_index(index, cells.shape)
    raise InputError(f"{name}: {cells[y, x]} at row {frame.y + y}, column {frame.x + x}; {must}")


def _beyond(bound: float, dtype: np.dtype[Any]) -> float:
    """The least number of a dtype above a bound: the kernel works strictly below it."""
    if math.isinf(bound):
        return math.inf
    if dtype.kind == "i":
        return math.floor(bound) + 1
    with np.errstate(over="ignore"):
        return float(np.nextafter(dtype.type(bound), dtype.type(np.inf)))


def inner_of(padded: Array, reach: int) -> Array:
    """A padded array without its halo."""
    return padded[reach:-reach, reach:-reach]


def facing(inner: Array, reach: int) -> list[Array]:
    """The parts of a tile that face each of its neighbours, in the order of `NEIGHBOURS`."""
    rows = {-1: slice(None, reach), 0: slice(None), 1: slice(-reach, None)}
    return [inner[rows[dy], rows[dx]] for dy, dx in NEIGHBOURS]


def _take_in(strips: list[Array], halo: Border, reach: int, unreached: Any) -> tuple[int, bool]:
    """Set the halo to what neighbours tell; the sides (bits) where it fell, and whether it changed.

    It may rise: a state may know of a visit to a neighbour whose result was lost with its worker.
    What such a visit found holds, but it must not be thought that the neighbour knows it.
    """
    sides, changed = 0, False
    for k, (dy, dx) in enumerate(NEIGHBOURS):
        strip = strips[{-1: 0, 1: 1}[dy] if dy else {-1: 2, 1: 3}[dx]]
        columns = {-1: np.s_[:reach], 0: np.s_[reach:-reach], 1: np.s_[-reach:]}[dx]
        mine = strip[:, columns] if dy else strip
        sent = halo[k]
        if sent is None:
            sent = unreached
        elif sent.shape != mine.shape:
            # a neighbour at the grid's end may be thinner than the halo; it lies against the tile
            y = mine.shape[0] - sent.shape[0] if dy < 0 else 0
            mine = mine[y : y + sent.shape[0], : sent.shape[1]]
        if (sent < mine).any():
            sides |= {-1: 1, 0: 0, 1: 2}[dy] | {-1: 4, 0: 0, 1: 8}[dx]
        if (sent != mine).any():
            mine[...] = sent
            changed = True
    return sides, changed


def _here(values: Any) -> Array:
    """An array of this process's memory, wherever it comes from."""
    from orograph.kernels.device import current_device

    return values if isinstance(values, np.ndarray) else current_device().download(values)
