"""Least-cost distances as a problem of the frontier engine.

Each tile is brought to its fixpoint by a backend's `orograph.kernels.relax.resident.ResidentTile`;
`orograph.engines.frontier.driver` visits tiles until none can improve another.

One idea, long: all that the engine asks of a distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.arguments.barriers import BARRIERS
from orograph.arguments.sources import Sources, Targets, is_source
from orograph.distance.costs.checks import (
    check_friction,
    check_heights,
    longest_step,
    most_friction,
    most_height,
)
from orograph.distance.links import TileLinks, links_of_tile, visit_with_links
from orograph.engines.frontier.field import bytes_held
from orograph.engines.frontier.links import Links
from orograph.engines.frontier.problem import FrontierProblem, solve_trial_tile
from orograph.engines.frontier.protocol import RefusedCell, Request, Visit
from orograph.kernels.backends import get_backend, may_use_numba
from orograph.kernels.relax.border import Border, facing, halo_strips, inner_of
from orograph.kernels.relax.definitions import MOST_REWEIGHED, weights_a_cell
from orograph.kernels.relax.models import (
    BARRIER,
    MODELS,
    CostModel,
    friction_unit,
    lacking_on_gpu,
)
from orograph.kernels.relax.pad import barrier_of
from orograph.kernels.relax.pad_cuda import are_within
from orograph.kernels.relax.resident import ResidentTile
from orograph.kernels.relax.tile import TileState, tile_state
from orograph.kernels.stages import kernel
from orograph.kernels.vectors.lanes import LANES, STEPS
from orograph.results.costs import COST
from orograph.run.context import RunContext
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arrays import Array
from orograph.tiles.grid.neighbours import NEIGHBOURS
from orograph.tiles.grid.quadtree import Place, Sides
from orograph.tiles.grid.units import LengthUnit
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import Raster
from orograph.tiles.store.create import Variable

TRIAL_COST = 1e9
"""Bound of costs of a trial tile, which no dtype of costs is too small for."""
NEXT_STEP = "give smaller costs, or max_cost= to leave out such cells"


@dataclass(slots=True)
class State:
    """A tile being relaxed, its place in the grid, and its links."""

    place: Place
    tile: ResidentTile
    links: TileLinks | None = None
    passable: list[Array] | None = None
    """Masks of the passable cells on the four sides of the tile; None until they are needed."""


@dataclass(frozen=True)
class Distance(FrontierProblem):
    """Least-cost distance as a problem of the frontier engine."""

    name = "cost-distance"
    irrelevant = ("backend", "keep_weights")
    stage = "open_tile"
    may_wrap = True
    by_mask = False
    """Whether the raster only tells which cells are passable, and all steps cost alike."""

    model: CostModel
    dtype: np.dtype[Any]
    connectivity: int
    lengths: npt.NDArray[np.float64]
    """Lengths of steps, shape (5, 1) if all rows are alike, else (5, rows + 2); see
    `step_lengths`."""
    nodata: Mapping[str, float | int | None]
    """Nodata values of the run's rasters by name, in their order: those that the model takes,
    ``"barriers"`` if there are any, last ``"sources"`` where a raster gives them."""
    cells: int
    """Number of cells of the grid; no path has more cells."""
    max_cost: float = math.inf
    sources: Sources | None = None
    """Sources given as cells; None where a raster gives them."""
    targets: Targets = None
    """Values of the raster of sources that count; None: all but 0 and nodata."""
    initial: float | Mapping[int, float] = 0.0
    """Initial cost at the sources of a raster: one for all, or by label, 0 at other labels."""
    backend: str = "numba"
    """Backend that relaxes the tiles: ``"numba"`` or ``"cuda"``."""
    links: Links | None = None
    may_start_nowhere: bool = False
    """Whether other runs have further sources, so that this one need have none."""
    length_unit: LengthUnit | None = None
    """Unit of the grid's lengths; None if it is not known."""
    length_scale: float = 1.0
    """Factor contained in ``lengths``: metres per unit of length where costs are times, else 1."""
    variable: str = COST
    """Name of the raster of costs."""
    keep_weights: bool = False
    """Whether a GPU keeps the costs of all steps, rather than compute them again."""

    @classmethod
    def on_rasters(
        cls,
        rasters: Mapping[str, Raster],
        model: CostModel,
        dtype: np.dtype[Any],
        connectivity: int,
        lengths: npt.NDArray[np.float64],
        **options: Any,
    ) -> Distance:
        """Return the problem on named rasters; ``options`` set the fields with defaults."""
        height, width = next(iter(rasters.values())).shape
        nodata = {name: raster.nodata for name, raster in rasters.items()}
        return cls(model, dtype, connectivity, lengths, nodata, height * width, **options)

    planned_on_gpus = True

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory of a run: the costs that the model reads, and the distance."""
        row, itemsize = MODELS[self.model.name], self.dtype.itemsize
        # Models that go without friction may have two rasters of costs: heights and friction.
        planes = 2 if row.neutral_friction is not None else 1
        return Bytes((1 + planes) * itemsize + 8 * len(self.model.further), itemsize)

    @property
    def lacking(self) -> str:
        """The cost model, if it has no CUDA kernel."""
        return lacking_on_gpu(self.model.name)

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels by solving a tile of four by four cells, if CPUs may do it."""
        if may_use_numba(self.backend):
            # With a bound, `finish` does not take an unreached trial cell for an overflow.
            cheap = replace(self, backend="numba", max_cost=min(self.max_cost, TRIAL_COST))
            solve_trial_tile(cheap, dtypes, self.trial_values, several)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the rasters of the run."""
        return tuple(self.nodata)

    @property
    def trial_values(self) -> list[int]:
        """Values of the cells of each raster in a trial, by which costs of all steps are whole."""
        # classes of further rasters are in a table; and whatever it costs there, nothing overflows
        zero = *self.model.further, BARRIERS
        return [0 if name in zero else 4 for name in self.nodata]

    @property
    def backward(self) -> Distance:
        """The problem in which each step and each link leads the other way."""
        model = self.model._replace(reverse=not self.model.reverse)
        return replace(self, model=model, links=self.links and self.links.backward)

    @property
    def halo_width(self) -> int:
        """Number of rows and columns that the longest step crosses, 1 or 2."""
        return 2 if self.connectivity == 16 else 1

    def gpu_bytes(self, cells: int) -> int:
        """Return the peak bytes of GPU memory of a tile: costs and distances."""
        row, itemsize = MODELS[self.model.name], self.dtype.itemsize
        planes = (2 if row.neutral_friction is not None else 1) + 2 * len(self.model.further)
        more = 8 * len(self.nodata) * cells
        if row.formula is not None or self.model.crossing:
            # weights are there when no raster as read is left
            # warps come in pairs: maybe one more than blocks
            weighed = cells if self.keep_weights else min(cells, MOST_REWEIGHED) + LANES**2
            weights = weights_a_cell(len(STEPS[self.connectivity])) * weighed
            more = max(more, (weights + cells) * itemsize)
        return more + ((planes + 2) * itemsize + 4) * cells

    def on_tiles(self, context: RunContext) -> Distance:
        """Return the problem, with kept weights if GPUs hold all tiles so."""
        keeping = replace(self, keep_weights=True)
        fits = context.gpus and bytes_held(context, keeping.gpu_bytes) <= context.gpu_memory
        return keeping if fits else self

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The raster of least costs."""
        integer = self.dtype.kind == "i"
        way = "to" if self.model.reverse else "from"
        units = MODELS[self.model.name].units
        attrs = {
            "long_name": f"{'time' if units == 's' else 'cost'} {way} the nearest source",
            **({"units": units} if units else {}),
        }
        return (Variable(self.variable, self.dtype, -1 if integer else math.nan, attrs),)

    def starts(self, tile: int) -> dict[tuple[int, int], float] | None:
        """Return the tiles that contain sources, and the least initial cost in each."""
        if self.sources is None:
            return None
        rows, columns = self.sources.rows // tile, self.sources.columns // tile
        # Sorted by tile, then by cost, the first source of each tile is its cheapest.
        order = np.lexsort((self.sources.costs, columns, rows))
        rows, columns, costs = rows[order], columns[order], self.sources.costs[order]
        least = np.ones(order.size, bool)
        least[1:] = (np.diff(rows) != 0) | (np.diff(columns) != 0)
        tiles = zip(rows[least].tolist(), columns[least].tolist(), strict=True)
        return dict(zip(tiles, costs[least].tolist(), strict=True))

    def check(self, cells: Sequence[Array], frame: Window) -> None:
        """Raise InputError for cells of friction or elevation that cannot be used."""
        for name, raster in self._costs(cells).items():
            nodata = self.nodata[name]
            if name == "friction":
                longest = longest_step(self.lengths, self.connectivity)
                unit = self._unit(name)
                check_friction(raster, nodata, frame, self.dtype, self.cells, longest, unit)
            else:
                check_heights(raster, nodata, frame, self.dtype, name)

    @property
    def accept(self) -> Callable[[Sequence[Any], Window], bool] | None:
        """A check of cells on a GPU; None where distances are integers, whose costs must be too."""
        return None if self.dtype.kind == "i" else self._accept

    def _accept(self, cells: Sequence[Any], part: Window) -> bool:
        """Return whether all cells of a part on a GPU are within the limits of `check`."""
        longest, most = longest_step(self.lengths, self.connectivity), most_height(self.dtype)
        for name, raster in self._costs(cells).items():
            limits = -most, most
            if name == "friction":
                own = np.dtype(raster.dtype)
                limits = 0.0, most_friction(own, self.dtype, self.cells, longest)
            if not are_within(raster, part, limits, self.nodata[name], self.dtype):
                return False
        return True

    def open(self, place: Place, cells: Sequence[Any], frame: Window) -> State:
        """Return the initial state of a tile: only its sources are reached."""
        return self.open_on(self.surface(place, cells, frame), place, cells, frame)

    def open_on(
        self, surface: TileState, place: Place, cells: Sequence[Any], frame: Window
    ) -> State:
        """Return the initial state of a tile on a prepared surface; see `open`."""
        rows, columns, costs = self._sources_in(place.window, frame, cells)
        if self.sources is None:
            # Sources given as cells were checked before the run; those of a raster may lie on
            # barriers.
            there = self._on_passable(surface, rows, columns)
            rows, columns, costs = rows[there], columns[there], costs[there]
        how = {} if may_use_numba(self.backend) else {"keep_weights": self.keep_weights}
        tile = kernel("open_tile", self.backend)(surface, **how)
        tile.seed(rows, columns, costs)
        return State(place, tile, links_of_tile(self.links, place.window))

    def surface(self, place: Place, cells: Sequence[Any], frame: Window) -> TileState:
        """Return a tile's costs in the backend's memory, with all distances unreached."""
        window = place.window
        padded: dict[tuple[int, int], Any] = {}  # a raster that has two parts is padded once
        rasters: dict[str, Any] = {}
        for name, raster in self._costs(cells).items():
            unit = self._unit(name)
            if (id(raster), unit) not in padded:
                padded[id(raster), unit] = self._padded(
                    raster, self.nodata[name], window, frame, unit, self.by_mask
                )
            rasters[name] = padded[id(raster), unit]
        self._bar_unknown_heights(rasters)
        self._bar_covered(rasters, cells, window, frame)
        unreached = BARRIER if self.dtype.kind == "i" else np.inf
        return tile_state(
            np.full_like(next(iter(rasters.values())), unreached),
            lengths=self._lengths(window),
            model=self.model,
            connectivity=self.connectivity,
            max_cost=self.max_cost,
            **rasters,
        )

    def _on_passable(
        self, surface: TileState, rows: Array, columns: Array
    ) -> npt.NDArray[np.bool_]:
        """Return which source cells do not lie on barriers."""
        there = np.ones(rows.size, bool)
        at = rows + self.halo_width, columns + self.halo_width
        for raster in (surface.friction, surface.elevation):
            if raster.size:
                values = get_backend(self.backend).to_host(raster[at])
                there &= values < BARRIER if self.dtype.kind == "i" else np.isfinite(values)
        return there

    def _bar_unknown_heights(self, rasters: dict[str, Any]) -> None:
        """Make cells without elevation, or without a further raster's value, barriers.

        Models that multiply or add friction know barriers by it; where there is none, by a neutral
        one.
        """
        neutral = MODELS[self.model.name].neutral_friction
        for name in MODELS[self.model.name].further:
            rasters["elevation"][np.isnan(rasters[name])] = np.nan
        if neutral is not None:
            elevation = rasters["elevation"]
            if "friction" in rasters:
                rasters["friction"][np.isnan(elevation)] = np.nan
            else:
                rasters["friction"] = elevation - elevation  # 0 or NaN
                rasters["friction"] += neutral

    def _bar_covered(
        self, rasters: dict[str, Any], cells: Sequence[Any], window: Window, frame: Window
    ) -> None:
        """Make the cells of padded rasters impassable that barriers cover."""
        if BARRIERS not in self.nodata:
            return
        barriers, nodata = self._cells_of(BARRIERS, cells), self.nodata[BARRIERS]
        # Read as a mask, the raster is passable exactly where a barrier covers a cell.
        padded = self._padded(barriers, nodata, window, frame, 1, True)
        covered = padded < BARRIER if self.dtype.kind == "i" else np.isfinite(padded)
        for raster in rasters.values():
            raster[covered] = barrier_of(self.dtype)

    def barred(self, cells: Sequence[Array]) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the cells that barriers cover."""
        if BARRIERS not in self.nodata:
            return None
        return is_source(self._cells_of(BARRIERS, cells), self.nodata[BARRIERS], None)

    def _cells_of(self, name: str, cells: Sequence[Any]) -> Any:
        """Return the cells of the raster of a name."""
        return cells[list(self.nodata).index(name)]

    def _costs(self, cells: Sequence[Array]) -> dict[str, Array]:
        """Return the cells of the rasters of the cost model, by name."""
        named = zip(self.nodata, cells, strict=True)
        return {name: raster for name, raster in named if name not in (BARRIERS, "sources")}

    def _unit(self, name: str) -> int:
        """Return the integer of which all cells of a raster must be multiples."""
        if name != "friction" or self.by_mask:
            return 1
        return friction_unit(self.model.name, self.dtype, self.connectivity)

    def _padded(
        self,
        cells: Any,
        nodata: float | int | None,
        window: Window,
        frame: Window,
        unit: int,
        by_mask: bool,
    ) -> Any:
        """Return a tile with its halo in the backend's memory, with barriers outside the grid."""
        halo = self.halo_width
        shape = window.height + 2 * halo, window.width + 2 * halo
        corner = frame.y - window.y + halo, frame.x - window.x + halo
        pad = kernel("pad_costs", self.backend)
        return pad(cells, nodata, shape, corner, self.dtype, by_mask, unit)

    def _lengths(self, window: Window) -> npt.NDArray[np.float64]:
        rows = window.height + 2 * self.halo_width
        if self.lengths.shape[1] == 1:
            return np.repeat(self.lengths, rows, axis=1)
        # Rows of the halo beyond the table repeat its outermost lengths: no step reaches their
        # cells, which are barriers.
        wanted = np.arange(rows) + window.y - self.halo_width
        return np.ascontiguousarray(self.lengths[:, wanted.clip(0, self.lengths.shape[1] - 1)])

    def _sources_in(
        self, window: Window, frame: Window, cells: Sequence[Any]
    ) -> tuple[Array, Array, Array]:
        """Return rows and columns of the sources in a tile, and their initial costs."""
        if self.sources is None:
            values = get_backend(self.backend).to_host(cells[-1][window.within(frame)])
            rows, columns = np.nonzero(is_source(values, self.nodata["sources"], self.targets))
            return rows, columns, self.initial_costs(values[rows, columns])
        rows, columns = self.sources.rows - window.y, self.sources.columns - window.x
        here = (rows >= 0) & (rows < window.height) & (columns >= 0) & (columns < window.width)
        return rows[here], columns[here], self.sources.costs[here]

    def initial_costs(self, labels: Array) -> Array:
        """Return the initial costs of source cells of a raster, given their values."""
        if not isinstance(self.initial, Mapping):
            return np.full(labels.size, self.initial, self.dtype)
        known = np.array(sorted(self.initial), np.int64)
        costs = np.array([self.initial[label] for label in known.tolist()], self.dtype)
        # A label that is not a whole number is truncated here and must not match (``own ==
        # labels``); searchsorted returns the size of ``known`` for labels beyond its last, hence
        # the clip.
        own = labels.astype(np.int64)
        found = np.searchsorted(known, own).clip(max=known.size - 1)
        same = (own == labels) & (known[found] == own) if known.size else np.zeros(own.size, bool)
        starts: Array = np.zeros(own.size, self.dtype)
        starts[same] = costs[found[same]]
        return starts

    @property
    def link_blank(self) -> list[Any]:
        """The unreached distance, as the initial value along links."""
        return [np.int64(BARRIER) if self.dtype.kind == "i" else self.dtype.type(np.inf)]

    def visit(self, state: State, request: Request, bound: float) -> Visit:
        """Read the neighbours' borders, relax the tile up to ``bound``; return what changed."""
        halo, sent = request.halo, request.sent
        if state.links is None or request.links is None:
            found = state.tile.exchange(halo, sent, bound)
            visit = Visit(*found, final_at=self._final_at(state, found.border, sent))
            if bound == math.inf:
                self._look_at_grid_end(state.place.sides, visit)
            return visit
        changed, news = visit_with_links(state.tile, state.links, request.links, halo, sent, bound)
        return Visit(*changed, links=news)

    def _final_at(self, state: State, border: Border, sent: Border) -> float:
        """Return the greatest distance on the tile's sides that have a neighbour.

        Whatever improves the tile enters it there. Infinite where a cell is yet to be reached.
        """
        most, sides = 0.0, state.place.sides
        # The first four strips of a border are its sides. Those of the corners hold no other cells.
        for k, there in enumerate((sides.north, sides.south, sides.west, sides.east)):
            known = sent[k] if border[k] is None else border[k]
            if not there:
                continue
            if known is not None and known.max() < state.tile.state.unreached:
                most = max(most, float(known.max()))
                continue
            # Some cell of this side is unreached, or nothing was ever sent from it: only now is the
            # mask needed that tells barriers from cells which are yet to be reached.
            passable = self._passable_border(state)[k]
            if known is None:
                most = math.inf if passable.any() else most
            else:
                most = max(most, float(known[passable].max(initial=0)))
        return most

    def _passable_border(self, state: State) -> list[Array]:
        """Return masks of the passable cells on the four sides of a tile."""
        if state.passable is None:
            tile, halo = state.tile.state, self.halo_width
            rasters = [raster for raster in (tile.friction, tile.elevation) if raster.size]
            state.passable = []
            for strips in zip(*(facing(inner_of(r, halo), halo)[:4] for r in rasters), strict=True):
                cells = map(get_backend(self.backend).to_host, strips)
                known = [c < BARRIER if self.dtype.kind == "i" else np.isfinite(c) for c in cells]
                state.passable.append(np.logical_and.reduce(known))
        return state.passable

    def _look_at_grid_end(self, sides: Sides, visit: Visit) -> None:
        """Estimate keys for missing neighbours beyond the grid, to guess the bucket width.

        The first visit shows how wide buckets are to be, and a source may lie beside all the
        neighbours that there are. A quarter of the way, since then the front is soon in all.
        """
        least = [math.inf if part is None else float(part.min()) for part in visit.border]
        for k, (dy, dx) in enumerate(NEIGHBOURS):
            beyond = (dy < 0 and not sides.north) or (dy > 0 and not sides.south)
            beyond = beyond or (dx < 0 and not sides.west) or (dx > 0 and not sides.east)
            if beyond and least[k] < self.link_blank[0]:
                visit.outward[k] = min(least) + (least[k] - min(least)) / 4

    def pack(self, state: State) -> Any:
        """Return distances and pending keys to save; costs are read again."""
        return state.tile.pack()

    def unpack(self, state: State, packed: tuple[Any, ...]) -> None:
        """Restore distances and pending keys."""
        state.tile.unpack(*packed)

    def size(self, state: State) -> int:
        """Return the bytes of memory that a tile's state occupies."""
        return state.tile.nbytes

    def finish(self, state: State) -> tuple[dict[str, Array], dict[str, float]]:
        """Return the distances of a tile, nodata where unreached, and counts of cells."""
        (variable,) = self.outputs
        blank: Any = variable.fill_value
        # before the distances become the result
        lost_link = None if state.links is None else state.links.lost(state.tile)
        found = state.tile.read_out(self.dtype, blank)
        bars = self.model.bars
        # A bound leaves cells unreached, and so do models that bar steps; without either, only
        # barriers or an overflow can.
        if found.cut_off and self.max_cost >= self._most and not bars:
            values = get_backend(self.backend).to_host(found.values)
            self._refuse_overflow(state, values, lost_link)
        counts: dict[str, float] = {
            "reached_cells": found.reached,
            "nodata_cells": found.barriers,
            "unreached_cells": found.cut_off,
        }
        return {variable.name: found.values}, counts

    @property
    def _most(self) -> float:
        """The greatest distance that the dtype can hold."""
        return BARRIER - 1 if self.dtype.kind == "i" else float(np.finfo(self.dtype).max)

    def _refuse_overflow(
        self, state: State, values: Array, lost_link: tuple[int, int, int] | None
    ) -> None:
        """Raise RefusedCell if a cell stayed unreached because the cost of a step overflowed.

        Without a bound nothing else keeps a passable cell beside a reached one from being reached.
        (A knight's move passes between two cells, one of them beside either end.)
        """
        halo, tile = self.halo_width, state.tile.state
        height, width = values.shape
        reached = np.zeros((height + 2 * halo, width + 2 * halo), np.bool_)
        # A cell may have been within reach of a neighbouring tile alone, so the halo counts as
        # well.
        for there, known in zip(halo_strips(reached, halo), state.tile.halo, strict=True):
            there[...] = known < tile.unreached
        inner_of(reached, halo)[...] = values >= 0  # neither NaN nor -1
        lost = ~inner_of(reached, halo)
        to_host = get_backend(self.backend).to_host
        rasters = [to_host(raster) for raster in (tile.friction, tile.elevation) if raster.size]
        for raster in rasters:
            cells = inner_of(raster, halo)
            lost &= cells < BARRIER if self.dtype.kind == "i" else np.isfinite(cells)
        first: list[tuple[int, int, int]] = []
        neighbours = NEIGHBOURS[: 4 if self.connectivity == 4 else 8]
        for k, (dy, dx) in enumerate(neighbours):
            y, x = halo + dy, halo + dx
            beside = lost & reached[y : y + height, x : x + width]
            # of each direction the first in the order of the raster
            first += [(int(row), int(column), k) for row, column in np.argwhere(beside)[:1]]
        window = state.place.window
        found = [(window.y + row, window.x + column) for row, column, _ in sorted(first)[:1]]
        if lost_link is not None and min(found, default=lost_link) >= lost_link[:2]:
            at = "at row {}, column {} it is more than".format(*lost_link)
            by = "over the pole" if lost_link[2] < 0 else f"along the link of edge {lost_link[2]}"
            raise RefusedCell(
                f"cost: {at} {self._most:g}, the most there is in {self.dtype}, {by}; {NEXT_STEP}",
                *lost_link[:2],
            )
        if not first:
            return
        row, column, k = min(first)
        dy, dx = neighbours[k]
        heights = ""
        if "elevation" in self.nodata:
            z = rasters[-1]
            # Heights in other units than lengths are the usual reason for such costs.
            start, end = z[row + halo + dy, column + halo + dx], z[row + halo, column + halo]
            heights = f" (heights {start:g} and {end:g}: are they in the unit of coordinates?)"
        raise RefusedCell(
            f"cost: at row {window.y + row}, column {window.x + column} it is more than "
            f"{self._most:g}, the most there is in {self.dtype}, by a step from row "
            f"{window.y + row + dy}, column {window.x + column + dx}{heights}; {NEXT_STEP}",
            window.y + row,
            window.x + column,
        )

    @property
    def known_attributes(self) -> dict[str, Any]:
        """Dataset attributes that the arguments determine, before the run."""
        return self.attributes({})

    def attributes(self, counts: dict[str, float]) -> dict[str, Any]:
        """Return the arguments, and the numbers of reached, unreached and impassable cells."""
        dx, dy = (self.lengths[:2, 0] / self.length_scale).tolist()
        coefficients = list(self.model.coefficients)
        return {
            "cost_model": self.model.name,
            **({"coefficients": coefficients} if coefficients else {}),
            **self.model.extra_attributes,
            "travel": "to" if self.model.reverse else "from",
            "connectivity": self.connectivity,
            "max_cost": self.max_cost if math.isfinite(self.max_cost) else "infinite",
            "cell_size": [dy, dx] if self.lengths.shape[1] == 1 else "geodesic",
            **({} if self.length_unit is None else {"length_unit": self.length_unit.name}),
            "dtype": str(self.dtype),
            **(
                {"links": int((self.links.edge >= 0).sum())}
                if self.links is not None and self.links.of_graph
                else {}
            ),
            **{name: int(count) for name, count in counts.items()},
        }
