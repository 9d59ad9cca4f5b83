"""Distances by the eikonal equation as a problem of the frontier engine.

Values are whole numbers of 1 / SCALE of a cell's side at a friction of 1; see
`orograph.kernels.eikonal.march`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from orograph.arguments.barriers import BARRIERS
from orograph.arguments.cells import refuse_cell
from orograph.arguments.sources import Sources, is_source
from orograph.engines.frontier.problem import FrontierProblem
from orograph.engines.frontier.protocol import Request, Visit
from orograph.kernels.backends import get_backend, may_use_numba
from orograph.kernels.eikonal.march import FAR, MOST_COST
from orograph.kernels.relax.border import (
    facing,
    halo_strips,
    improved_parts,
    inner_of,
    last_sent,
    set_halo,
)
from orograph.kernels.stages import kernel
from orograph.run.context import RunContext
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arrays import Array
from orograph.tiles.errors import RunError
from orograph.tiles.grid.neighbours import NEIGHBOURS
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.store.create import Variable

SCALE = 2**20
LEAST_COST = 2  # so that each value is above the least around it
SIDES = 4  # neighbours that a cell is computed from: north, south, west, east


@dataclass(slots=True)
class State:
    """A tile: the values that are known, the costs of cells, and the cells to go on from."""

    values: npt.NDArray[np.int64]
    costs: npt.NDArray[np.int64]
    waiting: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Eikonal(FrontierProblem):
    """Distances by the eikonal equation as a problem of the frontier engine."""

    name = "eikonal-distance"
    stage = "march"
    planned_on_gpus = True
    tiled_for_cpus = True  # states stay in the memory of the process
    kept: ClassVar[tuple[str, ...]] = ("values", "waiting")

    nodata: Mapping[str, float | int | None]
    """Nodata values of the run's rasters by name, in their order: friction, ``"barriers"`` if there
    are any, last ``"sources"`` where a raster gives them."""
    side: float
    """Length of a cell's side."""
    dtype: np.dtype[Any]
    """Dtype of the result: float64 or float32."""
    max_cost: float = math.inf
    sources: Sources | None = None
    """Sources given as cells; None where a raster gives them."""
    targets: tuple[float, ...] | None = None
    """Values of the raster of sources that count; None: all but 0 and nodata."""
    backend: str = "numba"
    """Backend that marches the tiles: ``"numba"`` or ``"cuda"``."""
    length_unit: str | None = None
    """Name of the unit of the grid's lengths; None if it is not known."""

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory of a run."""
        # value, cost, whether it waits; and its place in the heap
        return Bytes(8 + 8 + 1 + 24, self.dtype.itemsize)

    def memory(self) -> int | None:
        """Return None: states take a share of the process's memory, also where a GPU marches."""
        return None

    def tiled(self, context: RunContext) -> RunContext:
        """Return a context in which tiles stay as they are stored, in the process's memory."""
        return replace(context, gpus=0)

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernel by a tile of one cell, if CPUs may march."""
        if may_use_numba(self.backend):
            values, waiting = np.zeros((3, 3), np.int64), np.zeros((3, 3), np.bool_)
            kernel("march", "numba")(values, np.ones((1, 1), np.int64), waiting, math.inf, 1)

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The raster of distances."""
        attrs = {"long_name": "cost from the nearest source"}
        return (Variable("cost", self.dtype, math.nan, attrs),)

    @property
    def limit(self) -> int:
        """The greatest value of interest."""
        # `FAR` marks unreached cells, so values stay below it whatever the bound.
        return int(min(self.max_cost / self.side * SCALE, FAR - 1))

    def starts(self, tile: int) -> dict[tuple[int, int], float] | None:
        """Return the tiles that contain sources, and the least initial value in each."""
        if self.sources is None:
            return None
        keys: dict[tuple[int, int], float] = {}
        tiles = zip(self.sources.rows // tile, self.sources.columns // tile, strict=True)
        for (row, column), value in zip(tiles, self._initial(self.sources.costs), strict=True):
            place = int(row), int(column)
            keys[place] = min(float(value), keys.get(place, math.inf))
        return keys

    def _initial(self, costs: Array) -> npt.NDArray[np.int64]:
        """Return initial costs as values."""
        found: npt.NDArray[np.int64] = np.rint(costs / self.side * SCALE).astype(np.int64)
        return found

    def check(self, cells: Sequence[Array], frame: Window) -> None:
        """Raise InputError at the first cell whose friction has no whole cost within its bounds."""
        friction = cells[0]
        there = valid_cells(friction, self.nodata["friction"])
        least, most = LEAST_COST / SCALE, MOST_COST / SCALE
        with np.errstate(invalid="ignore"):
            bad = there & ~((friction >= least) & (friction <= most))
        if bad.any():
            must = (
                f"; with cost='eikonal' it must be {least:.3g} to {most:g}: multiply all by a "
                "number, and divide costs by it, or mark barriers as nodata"
            )
            refuse_cell("friction", friction, int(bad.argmax()), frame, must)

    def open(self, place: Place, cells: Sequence[Any], frame: Window) -> State:
        """Return the initial state of a tile: only its sources are reached."""
        window = place.window
        inner = window.within(frame)
        to_host = get_backend(self.backend).to_host
        parts = (to_host(part[inner]) for part in cells)
        named = dict(zip(self.nodata, parts, strict=True))
        passable = valid_cells(named["friction"], self.nodata["friction"])
        if BARRIERS in named:
            passable &= ~is_source(named[BARRIERS], self.nodata[BARRIERS], None)
        costs = np.zeros(window.shape, np.int64)
        friction = named["friction"][passable].astype(np.float64)
        # Cells that are not passable keep the cost 0, by which the kernel knows barriers.
        costs[passable] = np.rint(friction * SCALE).astype(np.int64)
        values = np.full((window.height + 2, window.width + 2), FAR)
        if self.sources is None:
            found = is_source(named["sources"], self.nodata["sources"], self.targets) & passable
            inner_of(values, 1)[found] = 0
        else:
            rows, columns = self.sources.rows - window.y, self.sources.columns - window.x
            here = (rows >= 0) & (rows < window.height) & (columns >= 0) & (columns < window.width)
            at = rows[here] + 1, columns[here] + 1
            np.minimum.at(values, at, self._initial(self.sources.costs[here]))
        # Sources that begin above the bound reach nothing.
        values[values > self.limit] = FAR
        return State(values, costs, values < FAR)

    def visit(self, state: State, request: Request, bound: float) -> Visit:
        """Read the neighbours' borders, go on up to ``bound``, and return what changed."""
        values, inner = state.values, inner_of(state.values, 1)
        strips = halo_strips(values, 1)
        _, changed = set_halo(strips, request.halo, 1, FAR)
        if changed:
            # All reached cells of the halo wait, not only those that changed: to update their
            # neighbours again lowers nothing.
            for waiting, strip in zip(halo_strips(state.waiting, 1), strips, strict=True):
                waiting[...] = strip < FAR
        pending, settled = kernel("march", self.backend)(
            values, state.costs, state.waiting, bound, self.limit
        )
        # Values flow over sides alone, so nothing is sent to the tiles at the corners. Copies,
        # since the tile's values go on falling in later visits.
        own = [part.copy() for part in facing(inner, 1)[:SIDES]]
        known = last_sent(request.sent[:SIDES], own, FAR)
        # A value is above the least of those that it is computed from, so the least one that
        # changed on a side bounds what it can improve across.
        outward = [
            float(now.min(where=now < old, initial=FAR))
            for now, old in zip(own, known, strict=True)
        ]
        corners = len(NEIGHBOURS) - SIDES
        return Visit(
            pending,
            [key if key < FAR else math.inf for key in outward] + [math.inf] * corners,
            [*improved_parts(own, known), *([None] * corners)],
            settled,
            int(np.count_nonzero(inner < FAR)),
        )

    def finish(self, state: State) -> tuple[dict[str, Array], dict[str, float]]:
        """Return the distances of a tile, NaN where unreached, and counts of cells."""
        values = inner_of(state.values, 1)
        reached, passable = values < FAR, state.costs > 0
        # Only without ``max_cost`` does an unreached cell beside a reached one show an overflow.
        if self.limit == FAR - 1:
            self._refuse_overflow(state, passable & ~reached)
        cost = np.where(reached, values * (self.side / SCALE), np.nan).astype(self.dtype)
        counts: dict[str, float] = {
            "reached_cells": int(reached.sum()),
            "nodata_cells": int((~passable).sum()),
            "unreached_cells": int((passable & ~reached).sum()),
        }
        return {"cost": cost}, counts

    def _refuse_overflow(self, state: State, lost: npt.NDArray[np.bool_]) -> None:
        """Raise RunError if a cell is unreached beside a reached one: its value is too large."""
        known = state.values < FAR
        beside = known[:-2, 1:-1] | known[2:, 1:-1] | known[1:-1, :-2] | known[1:-1, 2:]
        if (lost & beside).any():
            raise RunError(
                f"cost: more than {FAR / SCALE * self.side:g}, the most there is with "
                "cost='eikonal'; give smaller frictions, or max_cost= to leave out such cells"
            )

    @property
    def known_attributes(self) -> dict[str, Any]:
        """Dataset attributes that the arguments determine, before the run."""
        return self.attributes({})

    def attributes(self, counts: dict[str, float]) -> dict[str, Any]:
        """Return the arguments, and the numbers of reached, unreached and impassable cells."""
        return {
            "cost_model": "eikonal",
            "scale": SCALE,
            "max_cost": self.max_cost if math.isfinite(self.max_cost) else "infinite",
            "cell_size": [self.side, self.side],
            **({} if self.length_unit is None else {"length_unit": self.length_unit}),
            "dtype": str(self.dtype),
            **{name: int(count) for name, count in counts.items()},
        }
