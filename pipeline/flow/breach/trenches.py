"""Trenches from pits to lower ground, as a problem on a part of the grid and a halo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.arguments.cells import refuse_inexact
from orograph.engines.map_overlap import LocalProblem
from orograph.kernels.flow.breach import compile_kernels, find_pits
from orograph.kernels.stages import kernel
from orograph.run.problem import Bytes, CellCounts
from orograph.terrain.water import Outlets
from orograph.tiles.arrays import Array
from orograph.tiles.grid.neighbours import NEIGHBOURS
from orograph.tiles.grid.orientation import Orientation
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.store.create import Variable

PITS_AT_ONCE = 4096
"""Number of pits between two checks of whether the run was cancelled."""


@dataclass(frozen=True)
class Trenches(LocalProblem):
    """The breached surface as a problem of `MapOverlap`."""

    nodata: float | int | None
    reach: int
    """Greatest distance from a pit to a cell of its trench, in rows or columns."""
    deepest: float
    orientation: Orientation
    shape: tuple[int, int]
    """Numbers of rows and columns of the grid."""
    outlets: Outlets | None = None
    """Cells where water leaves or ends; None: it leaves at the edge and into nodata alone."""
    backend: str = "numba"

    name = "breach-depressions"
    stage = "dig_trenches"
    may_wrap = True

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory of a run: of parts, and of the window of a pit."""
        window = (2 * self.reach + 1) ** 2 * (4 + 1 + 8 + 8)
        # the surface, with its marks, cells that drain and pits
        return Bytes(cells.itemsize + 8 + 2 + 2 + 2, 2 * 8, window)

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels that find pits and dig trenches."""
        compile_kernels()

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The raster of the breached surface."""
        attrs = {"long_name": "breached elevation"}
        return (Variable("breached", np.dtype(np.float64), np.nan, attrs),)

    @property
    def halo(self) -> int:
        """Width of the halo: two windows' reach, and a neighbour."""
        return 2 * self.reach + 1

    def solve(
        self, window: Window, frame: Window, cells: Sequence[Array], check: Callable[[], None]
    ) -> dict[str, Array]:
        """Return the breached surface of a part, given its heights with their halo."""
        surface = self._surface(cells[0], frame)
        drains = self._drains(surface, frame, cells[1:])
        # ties go by position: from the north-west cell, in any orientation of the grid
        turn = self.orientation.turn
        surface, drains = (np.ascontiguousarray(turn(array)) for array in (surface, drains))
        window, frame = (self.orientation.turn_window(w, self.shape) for w in (window, frame))
        part = window.within(frame)
        # The surface itself stays as it is: no trench depends on another, whatever their order.
        breached = surface[1:-1, 1:-1][part].copy()
        # pits whose trenches may lead into this part; the surface begins a cell before the frame
        top, left = part[0].start + 1, part[1].start + 1
        first = max(top - self.reach, 1), max(left - self.reach, 1)
        last = (
            min(top + window.height + self.reach, frame.height + 1),
            min(left + window.width + self.reach, frame.width + 1),
        )
        # Two pits are never neighbours, so two rows by two columns hold one at most.
        room = -(-(last[0] - first[0]) // 2) * -(-(last[1] - first[1]) // 2)
        pits = np.empty(room, np.int64)
        count = find_pits(surface, drains, pits, first, last, self.reach)
        dig = kernel("dig_trenches", self.backend)
        for start in range(0, count, PITS_AT_ONCE):
            # Raises if the run was cancelled.
            check()
            some = pits[start : min(start + PITS_AT_ONCE, count)]
            dig(surface, drains, some, self.reach, self.deepest, breached, (top, left))
        return {"breached": turn(breached)}

    def _surface(self, heights: Array, frame: Window) -> npt.NDArray[np.float64]:
        """Return heights as float64 within a ring of NaN, which nodata are too."""
        valid = valid_cells(heights, self.nodata)
        refuse_inexact("elevation", heights, valid, frame, "trenches are dug in float64")
        # A ring of NaN, so that kernels need not look whether a neighbour is in the array.
        surface = np.full((frame.height + 2, frame.width + 2), np.nan)
        surface[1:-1, 1:-1] = heights
        surface[1:-1, 1:-1][~valid] = np.nan
        return surface

    def _drains(
        self, surface: npt.NDArray[np.float64], frame: Window, marked: Sequence[Array]
    ) -> npt.NDArray[np.bool_]:
        """Return the cells where water may leave, with the ring of a surface."""
        drains = np.zeros(surface.shape, np.bool_)
        inner = drains[1:-1, 1:-1]
        outlets = self.outlets
        if outlets is None or not outlets.closed:
            missing = np.isnan(surface)
            for dy, dx in NEIGHBOURS:
                inner |= missing[1 + dy :, 1 + dx :][: frame.height, : frame.width]
        if outlets is not None:
            inner |= outlets.within(frame, frame, marked)
            # a frame that goes around has columns beyond the grid, where points stand too
            for x in (frame.x - self.shape[1], frame.x + self.shape[1]):
                around = replace(frame, x=x)
                inner |= replace(outlets, marked=()).within(around, around, ())
        return drains
