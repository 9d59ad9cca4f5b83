"""Accumulation of water that splits, as a problem of the frontier engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.arguments.cells import refuse_cell
from orograph.engines.frontier.problem import FrontierProblem
from orograph.engines.frontier.protocol import Border, Request, Visit
from orograph.flow.directions import turn_steps
from orograph.kernels.flow.codes import ENCODINGS, MISSING, Codes, decode
from orograph.kernels.flow.split import (
    METHODS,
    add_up,
    compile_kernels,
    count_waiting,
    split,
    take_in,
)
from orograph.kernels.relax.border import facing, inner_of
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arrays import Array, Reals
from orograph.tiles.grid.neighbours import NEIGHBOURS
from orograph.tiles.grid.orientation import NORTH_UP, Orientation
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.store.create import Variable

# A cell beside the tile flows into it by shares that depend on all neighbours of that cell.
RING = 2
"""Number of cells around a tile on which the flow into it depends."""


@dataclass(slots=True)
class State:
    """A tile; arrays as `orograph.kernels.flow.split` has them."""

    heights: Reals
    reciprocals: Reals
    kinds: Codes
    shares: Reals
    receivers: Codes
    givers: Codes
    weights: Reals
    sums: Reals
    waiting: Codes
    queue: npt.NDArray[np.int64]
    ready: int

    @property
    def cells(self) -> tuple[Reals, Reals, Codes, Reals, Codes, Codes]:
        """The arrays that tell how water splits."""
        return (
            *(self.heights, self.reciprocals, self.kinds),
            *(self.shares, self.receivers, self.givers),
        )


@dataclass(frozen=True)
class SplitAccumulation(FrontierProblem):
    """Accumulation along several directions; the rasters are a filled surface and its D8 steps."""

    shape: tuple[int, int]
    nodata: float | int | None
    reciprocals: Reals
    """Reciprocals of the lengths of the eight steps, for each row or for all; (rows or 1, 8)."""
    method: str
    row_areas: Reals | None
    unit: str
    weights_nodata: float | int | None = None
    orientation: Orientation = NORTH_UP
    """Orientation of the grid; arrays of a state are turned, since sums go in compass order."""
    backend: str = "numba"

    name = "flow-accumulation"
    stage = "split"
    may_wrap = True
    least_tile = 1  # the ring is read with the surface; only neighbours exchange sums
    kept = ("sums",)

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory of a run; weights are read again."""
        # of `State`: five arrays of eight bytes a cell, and four of one
        return Bytes(5 * 8 + 4, 8)

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels of water that splits."""
        compile_kernels()

    @property
    def codes(self) -> str:
        """Name of the direction codes."""
        return "taudem"

    @property
    def halo_width(self) -> int:
        """Width of the halo that is read."""
        return RING

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The raster of accumulated amounts."""
        attrs = {"long_name": "flow accumulation", "units": self.unit}
        return (Variable("accumulation", np.dtype(np.float64), np.nan, attrs),)

    def starts(self, tile: int) -> dict[tuple[int, int], float]:
        """Return all tiles: each has cells into which nothing flows."""
        rows, columns = (-(-n // tile) for n in self.shape)
        return dict.fromkeys(np.ndindex(rows, columns), 0.0)

    def open(self, place: Place, cells: Sequence[Array], frame: Window) -> State:
        """Return a tile of which no sum is known."""
        surface, codes, *others = cells
        window, turn = place.window, self.orientation.turn
        padded = window.height + 2 * RING, window.width + 2 * RING
        inside = frame.within(Window(window.y - RING, window.x - RING, *padded))
        heights = np.full(padded, np.inf)
        heights[inside] = np.where(valid_cells(surface, self.nodata), surface, np.inf)
        numbers = np.full(padded, MISSING, np.uint8)
        # of turned cells steps by the compass are those by rows and columns
        numbers[inside] = turn(decode(turn(codes), ENCODINGS[self.codes], None)[0])
        heights, numbers = (np.ascontiguousarray(turn(array)) for array in (heights, numbers))
        reciprocals = self.reciprocals
        if len(reciprocals) > 1:
            # Shares are computed for the ring of one cell too. Its rows beyond the grid are nodata.
            rows = np.arange(window.y - 1, window.y + window.height + 1)
            reciprocals = reciprocals[np.clip(rows, 0, len(reciprocals) - 1)]
        reciprocals = turn_steps(reciprocals, self.orientation)
        ring = window.height + 2, window.width + 2
        kinds, receivers, givers, waiting = np.zeros((4, *ring), np.uint8)
        shares, sums = np.empty(ring), np.full(ring, np.nan)
        method = METHODS[self.method]
        split(heights, numbers, reciprocals, method, kinds, shares, receivers)
        weights = self._weights(window, turn(kinds), [c[window.within(frame)] for c in others])
        weights = np.ascontiguousarray(turn(weights))
        queue = np.empty(window.size, np.int64)
        ready = count_waiting(receivers, kinds, sums, givers, waiting, queue)
        cells = heights, reciprocals, kinds, shares, receivers, givers
        return State(*cells, weights, sums, waiting, queue, ready)

    def _weights(self, window: Window, kinds: Codes, others: Sequence[Array]) -> Reals:
        """Return the amount that falls on each cell of a tile; refuse weights that are none."""
        if self.row_areas is not None:
            rows = self.row_areas[window.y : window.y + window.height]
            return np.repeat(rows[:, None], window.width, axis=1)
        if not others:
            return np.ones(window.shape)
        weights = others[0].astype(np.float64)
        unfit = ~(weights >= 0) | np.isinf(weights) | ~valid_cells(others[0], self.weights_nodata)
        # Weights count only where there is a height.
        unfit &= inner_of(kinds, 1) != MISSING
        if unfit.any():
            must = (
                "; where there is a height a weight must be 0 or more, finite and not nodata: put "
                "0 where nothing falls"
            )
            refuse_cell("weights", others[0], int(unfit.argmax()), window, must)
        return weights

    def visit(self, state: State, request: Request, bound: float) -> Visit:
        """Add up all that is ready, given what is known around the tile."""
        end, sums = state.ready, state.sums
        arrived = self._take_in(sums, request.halo)
        end = take_in(state.receivers, state.waiting, arrived, state.queue, end)
        settled = add_up(*state.cells, state.weights, sums, state.waiting, state.queue, end)
        # All that was ready is added up: the queue begins anew with what the next visit brings.
        state.ready = 0
        border: Border = []
        outward = []
        inner = self.orientation.turn(inner_of(sums, 1))
        for own, known in zip(facing(inner, 1), request.sent, strict=True):
            # NaN stands for a sum that is not known. A known one never changes.
            new = np.isfinite(own) if known is None else np.isfinite(own) & np.isnan(known)
            some = bool(new.any())
            # All keys are 0: each cell is added up once, in whatever order tiles are visited.
            outward.append(0.0 if some else math.inf)
            border.append(own.copy() if some else None)
        reached = int(np.count_nonzero(np.isfinite(inner_of(sums, 1))))
        return Visit(math.inf, outward, border, settled, reached)

    def unpack(self, state: State, packed: tuple[Array]) -> None:
        """Restore the sums that were known; count anew what the others wait for."""
        (state.sums,) = packed
        state.ready = count_waiting(
            *(state.receivers, state.kinds, state.sums),
            *(state.givers, state.waiting, state.queue),
        )

    def finish(self, state: State) -> tuple[dict[str, Array], dict[str, float]]:
        """Return the sums of a tile."""
        return {"accumulation": self.orientation.turn(inner_of(state.sums, 1)).copy()}, {}

    def _take_in(self, sums: Reals, halo: Border) -> npt.NDArray[np.int64]:
        """Write what has become known around a tile; return its cells, row-major."""
        before, as_stored = np.isnan(sums), self.orientation.turn(sums)
        rows = {-1: slice(0, 1), 0: slice(1, -1), 1: slice(-1, None)}
        for (dy, dx), arrived in zip(NEIGHBOURS, halo, strict=True):
            if arrived is not None:
                ring = as_stored[rows[dy], rows[dx]]
                # What the ring knows already stays: ``arrived`` is NaN where the neighbour's sum is
                # unknown.
                np.copyto(ring, arrived, where=np.isnan(ring))
        return np.flatnonzero(before & ~np.isnan(sums))
