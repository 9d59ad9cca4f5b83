"""Filling of depressions to a surface that drains, as a problem of the frontier engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from orograph.arguments.cells import refuse_cell, refuse_inexact
from orograph.engines.frontier.bucket_width import BucketWidth
from orograph.engines.frontier.problem import FrontierProblem
from orograph.engines.frontier.protocol import Request, Visit
from orograph.kernels.flow.codes import STEPS, Codes
from orograph.kernels.relax.border import (
    facing,
    halo_strips,
    improved_parts,
    inner_of,
    last_sent,
    set_halo,
)
from orograph.kernels.stages import kernel
from orograph.kernels.terrain.epsilon_fill import first_level
from orograph.run.problem import Bytes, CellCounts, bytes_written
from orograph.terrain.water import Outlets
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.grid.neighbours import NEIGHBOURS
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.store.create import Variable

FIRST_WIDTH = 16.0
"""Width of the first buckets, in the unit of heights."""
FREE = np.uint8(len(STEPS))
"""Mark of the cells whose water takes any step."""


@dataclass(frozen=True)
class FixedSteps:
    """Steps that water takes from some cells, whatever the heights."""

    cells: Integers
    """Cells, row-major in the grid, ascending."""
    steps: Codes
    """Number of the step of each, as `orograph.kernels.flow.codes` has them; `FREE`: any."""
    width: int
    """Number of columns of the grid."""

    def within(self, window: Window) -> tuple[Integers, Integers, Integers]:
        """Return rows and columns in a window, and indices, of the cells that lie in it."""
        ends = np.array([window.y, window.y + window.height]) * self.width
        first, last = np.searchsorted(self.cells, ends).tolist()
        y, x = np.divmod(self.cells[first:last], self.width)
        inside = (x >= window.x) & (x < window.x + window.width)
        return y[inside] - window.y, x[inside] - window.x, first + np.flatnonzero(inside)


@dataclass(slots=True)
class State:
    """A tile: filled heights as they are known, and the cells to go on from."""

    window: Window
    filled: Array
    """Filled heights with a halo, infinite where nothing is known."""
    heights: Array
    """Heights in the dtype of the result with a halo, NaN there and on nodata."""
    ends: npt.NDArray[np.bool_]
    """Mask of the cells where water may leave, and of those without a height."""
    waiting: npt.NDArray[np.bool_]
    fixed: Codes
    """Steps that water takes, with a halo, `FREE` where it takes any; empty if there are none."""


@dataclass(frozen=True)
class EpsilonFill(FrontierProblem):
    """Depressions filled so that each cell that is raised lies a step above a neighbour."""

    name = "fill-with-gradient"
    stage = "epsilon_fill"
    may_wrap = True
    kept: ClassVar[tuple[str, ...]] = ("filled", "waiting")

    shape: tuple[int, int]
    nodata: float | int | None
    dtype: np.dtype[Any]
    """Dtype of the filled heights: float32 or float64."""
    connectivity: int
    step: float
    """Rise from cell to cell; 0: the spacing of floats."""
    outlets: Outlets | None
    """Cells where water leaves; None: those at the edge of the grid and beside nodata."""
    outputs: tuple[Variable, ...]
    """Rasters of the result: ``filled``, ``depth``."""
    fixed: FixedSteps | None = None
    """Steps that water takes; only by these it leaves a cell that has one."""
    backend: str = "numba"

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory of a run."""
        # Filled heights, heights, two masks; the heap, with a key and a place for each cell, and
        # two lists of cells.
        state = 2 * self.dtype.itemsize + 2 + 32 + self.dtype.itemsize
        return Bytes(state, bytes_written(self))

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels by a tile of one cell."""
        filled = np.full((3, 3), np.inf, self.dtype)
        ends = np.zeros((1, 1), np.bool_)
        flood = kernel("epsilon_fill", "numba")
        flood(
            filled,
            filled.copy(),
            np.zeros((3, 3), np.bool_),
            np.empty((0, 0), np.uint8),
            0.0,
            8,
            math.inf,
        )
        first_level(filled, ends, 8)

    def bucket_width(self, tile: int) -> BucketWidth:
        """Return the initial width of buckets."""
        return BucketWidth(tile**2, self.cells_a_visit, FIRST_WIDTH)

    def starts(self, tile: int) -> dict[tuple[int, int], float]:
        """Return all tiles with a key below any height: water may leave in each."""
        rows, columns = (-(-n // tile) for n in self.shape)
        return dict.fromkeys(np.ndindex(rows, columns), -math.inf)

    def check(self, cells: Sequence[Array], frame: Window) -> None:
        """Raise InputError at the first whole number that float64 does not hold."""
        valid = valid_cells(cells[0], self.nodata)
        refuse_inexact("elevation", cells[0], valid, frame, "with gradient= heights are float64")

    def open(self, place: Place, cells: Sequence[Array], frame: Window) -> State:
        """Return the initial state of a tile: the cells where water may leave have their height."""
        elevation, *marked = cells
        window = place.window
        there = valid_cells(elevation, self.nodata)
        heights = np.full((window.height + 2, window.width + 2), np.nan, self.dtype)
        known = np.where(there, elevation, np.nan)[window.within(frame)]
        inner_of(heights, 1)[...] = known
        # Cells beyond the grid lack heights too.
        ring = np.zeros(heights.shape, np.bool_)
        y, x = frame.y - window.y + 1, frame.x - window.x + 1
        ring[y : y + frame.height, x : x + frame.width] = there
        valid = inner_of(ring, 1)
        ends, fixed = np.zeros(window.shape, np.bool_), np.empty((0, 0), np.uint8)
        if self.outlets is None or not self.outlets.closed:
            for dy, dx in NEIGHBOURS[: self.connectivity]:
                beside = slice(1 + dy, 1 + dy + window.height)
                ends |= ~ring[beside, 1 + dx : 1 + dx + window.width]
        if self.fixed is not None:
            rows, columns, which = self.fixed.within(window)
            fixed = np.full(ring.shape, FREE)
            # Cells with a step off the grid lie at its edge, where water leaves anyway.
            fixed[rows + 1, columns + 1] = np.minimum(self.fixed.steps[which], FREE)
            ends &= inner_of(fixed, 1) == FREE
        if self.outlets is not None:
            given = self.outlets.within(window, frame, marked)
            ends |= given
            if fixed.size:
                inner_of(fixed, 1)[given] = FREE
        filled = np.full(ring.shape, np.inf, self.dtype)
        ends &= valid
        inner_of(filled, 1)[ends] = known[ends]
        return State(window, filled, heights, ends | ~valid, filled < np.inf, fixed)

    def visit(self, state: State, request: Request, bound: float) -> Visit:
        """Read the neighbours' borders, go on up to ``bound``, and return what changed."""
        filled, inner = state.filled, inner_of(state.filled, 1)
        strips = halo_strips(filled, 1)
        _, changed = set_halo(strips, request.halo, 1, np.inf)
        if changed:
            # Those that did not change wait too: they lower nothing again.
            for waiting, strip in zip(halo_strips(state.waiting, 1), strips, strict=True):
                waiting[...] = strip < np.inf
        pending, settled = kernel("epsilon_fill", self.backend)(
            *(filled, state.heights, state.waiting, state.fixed),
            *(self.step, self.connectivity, bound),
        )
        # Copies, since the tile's heights go on falling in later visits.
        own = [part.copy() for part in facing(inner, 1)]
        known = last_sent(request.sent, own, np.inf)
        # No height is below that from which it was raised.
        outward = [
            float(now.min(where=now < old, initial=np.inf))
            for now, old in zip(own, known, strict=True)
        ]
        reached = int(np.count_nonzero(inner < np.inf))
        return Visit(pending, outward, improved_parts(own, known), settled, reached)

    def finish(self, state: State) -> tuple[dict[str, Array], dict[str, float]]:
        """Return the rasters of a tile; refuse a cell that cannot lie above its neighbours."""
        drains = state.ends
        if state.fixed.size:
            drains = drains | (inner_of(state.fixed, 1) < FREE)
        inner, heights = inner_of(state.filled, 1), inner_of(state.heights, 1)
        at = first_level(state.filled, drains, self.connectivity)
        if at >= 0:
            why = f" is filled to no more than a neighbour, since {self.dtype} "
            if self.step:
                why += f"has no number a step of {self.step:g} above that; pass a greater gradient="
            else:
                why += "ends there; subtract an offset"
            refuse_cell("elevation", heights, at, state.window, why)
        filled = np.where(inner < np.inf, inner, heights)
        blocks, missing = {}, np.isnan(heights)
        for variable in self.outputs:
            block = filled.copy() if variable.name == "filled" else filled - heights.astype("f8")
            block[missing] = variable.fill_value
            blocks[variable.name] = block
        return blocks, {}

    @property
    def known_attributes(self) -> dict[str, Any]:
        """Dataset attributes that the arguments determine, before the run."""
        step = self.step or "spacing of floats"
        return {"connectivity": self.connectivity, "gradient": step}

    def attributes(self, counts: dict[str, float]) -> dict[str, Any]:
        """Return the arguments that decided the surface."""
        return self.known_attributes
