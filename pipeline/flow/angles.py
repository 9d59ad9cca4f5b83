"""D-infinity directions as angles, as a problem on a part of the grid and a halo of one cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.engines.map_overlap import LocalProblem
from orograph.flow.directions import turn_steps
from orograph.kernels.flow.codes import ENCODINGS, LOWEST, MISSING
from orograph.kernels.flow.split import compile_kernels, find_angles
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arrays import Array
from orograph.tiles.grid.orientation import Orientation
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.store.create import Variable


@dataclass(frozen=True)
class Angles(LocalProblem):
    """The angles of D-infinity; the rasters are a surface and its D8 steps as TauDEM codes."""

    nodata: float | int | None
    reciprocals: npt.NDArray[np.float64]
    """Reciprocals of the lengths of the eight steps, for each row or for all; (rows or 1, 8)."""
    orientation: Orientation
    backend: str = "numba"

    name = "flow-angles"
    stage = "split"
    halo = 1
    may_wrap = True

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory of a run."""
        # its code, height and step, marks, and the angle
        return Bytes(cells.itemsize + 1 + 8 + 1 + 2 + 4, 2 * 4)

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels of water that splits, of which angles are some."""
        compile_kernels()

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The raster of angles."""
        attrs = {
            "long_name": "flow angle from east",
            "units": "radian",
            "flow_method": "dinf",
        }
        return (Variable("direction", np.dtype(np.float32), np.nan, attrs),)

    def solve(
        self, window: Window, frame: Window, cells: Sequence[Array], check: Callable[[], None]
    ) -> dict[str, Array]:
        """Return the angles of a part, given its heights and steps with their halo."""
        surface, codes = cells
        around = window.grow(1)
        inside = frame.within(around)
        heights = np.full(around.shape, np.inf)
        # No facet leads down to nodata, which is as high as can be.
        heights[inside] = np.where(valid_cells(surface, self.nodata), surface, np.inf)
        numbers = np.full(around.shape, MISSING, np.uint8)
        # not decoded: where water leaves, the step has an angle too; of turned cells steps by the
        # compass are those by rows and columns
        numbers[inside] = ENCODINGS["taudem"].numbers()[codes.astype(np.int16) - LOWEST]
        reciprocals = self.reciprocals
        if len(reciprocals) > 1:
            reciprocals = reciprocals[window.y : window.y + window.height]
        angles = np.empty(window.shape, np.float32)
        turn = self.orientation.turn
        heights, numbers = np.ascontiguousarray(turn(heights)), np.ascontiguousarray(turn(numbers))
        find_angles(heights, numbers, turn_steps(reciprocals, self.orientation), angles)
        return {"direction": turn(angles)}
