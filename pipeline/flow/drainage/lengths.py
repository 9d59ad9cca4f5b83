"""Lengths of steps between cells as whole numbers, whose sums do not depend on their order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.flow.directions import lengths_of_steps
from orograph.kernels.flow.lengths import NONE
from orograph.tiles.arrays import Integers
from orograph.tiles.grid.lengths import step_lengths
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import Raster

BITS = 20
"""Number of binary digits of a length after the point."""
ROOM = 62
"""Number of binary digits of the longest path."""


@dataclass(frozen=True)
class StepLengths:
    """Lengths of the eight steps in units of 2**-bits."""

    whole: Integers
    """Lengths of the steps in units of ``2**-bits``, for each row or for all; (rows or 1, 8)."""
    bits: int
    unit: str
    """Unit of the lengths in floating point, empty if it is not known."""

    @classmethod
    def of_raster(
        cls, raster: Raster, cell_size: float | tuple[float, float] | None, wraps: bool = False
    ) -> StepLengths:
        """Return the lengths of the steps of a raster, rounded to multiples of a power of two.

        They are in metres if the unit of the grid's lengths is known. A path through all cells
        fits into `ROOM` binary digits.
        """
        place = raster.georeference
        known = place.length_unit is not None
        lengths = step_lengths(place, raster.shape, cell_size, wraps=wraps)
        steps = lengths_of_steps(lengths * place.metres)
        _, exponent = math.frexp(float(steps.max()))
        cells = raster.shape[0] * raster.shape[1]
        # The longest step is below 2**exponent: where that is less than 1, more digits keep its
        # precision. The sum over all cells must still fit into `ROOM` digits.
        bits = min(BITS + max(0, 1 - exponent), ROOM - exponent - cells.bit_length())
        unit = "m" if known else "cells" if place.y is None and cell_size is None else ""
        return cls(np.rint(np.ldexp(steps, bits)).astype(np.int64), bits, unit)

    def of_rows(self, window: Window) -> Integers:
        """Return the lengths of each row of a window, or of all rows."""
        if len(self.whole) == 1:
            return self.whole
        return np.ascontiguousarray(self.whole[window.y : window.y + window.height])

    def rounded(self, lengths: Integers) -> npt.NDArray[np.float64]:
        """Return lengths as floating point numbers, NaN where there is none."""
        found: npt.NDArray[np.float64] = lengths.astype(np.float64)
        np.ldexp(found, -self.bits, out=found)
        found[lengths == NONE] = np.nan
        return found

    def attributes(self, long_name: str) -> dict[str, Any]:
        """Return the attributes of a raster or column of lengths."""
        return {"long_name": long_name} | ({"units": self.unit} if self.unit else {})
