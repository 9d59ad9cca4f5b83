"""Normalised corridors of links, and the least of them in each cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orograph.engines.map_overlap import LocalProblem
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.grid.window import Window
from orograph.tiles.store.create import Variable

NO_LINK = -1
LINK = Variable("link", np.dtype(np.int64), NO_LINK, {"long_name": "link of the best path"})
CORRIDOR = "corridor"


@dataclass(frozen=True)
class CorridorMosaic(LocalProblem):
    """The least normalised corridor in each cell, as a problem whose parts need no halo.

    The rasters are the costs from one end of links and their allocation, then those to the other
    end; last the mosaic of other links, if there is one. Each cell of a link's corridor is
    allocated to both of its ends.
    """

    name = "corridors"
    backend = "numba"
    halo = 0
    may_wrap = True

    dtype: np.dtype[Any]
    labels: Integers
    """(n, 2): ends of the links, no two of which have an end in common; in the order of the first.
    """
    numbers: Integers
    """(n,): numbers of the links."""
    least: Array
    """(n,): their costs."""
    threshold: float
    """Greatest extra cost of a cell."""

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The extra cost of the best path through a cell, and its link."""
        blank = -1 if self.dtype.kind == "i" else math.nan
        attrs = {"long_name": "extra cost of the best path"}
        return Variable(CORRIDOR, self.dtype, blank, attrs), LINK

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory of a run: both rasters as read and as written, and their sums."""
        return Bytes(2 * sum(dtype.itemsize for dtype in cells.dtypes) + 3 * 16)

    def solve(
        self, window: Window, frame: Window, cells: Sequence[Array], check: Callable[[], None]
    ) -> dict[str, Array]:
        """Return the mosaic of a part."""
        corridor, link = (np.full(window.shape, v.fill_value, v.dtype) for v in self.outputs)
        if len(cells) % 4 == 2:
            corridor[...], link[...] = cells[-2:]
        if len(self.labels):
            there, first, back, second = cells[:4]
            place = np.searchsorted(self.labels[:, 0], first).clip(max=len(self.labels) - 1)
            both = (self.labels[place, 0] == first) & (self.labels[place, 1] == second)
            at = np.flatnonzero(both.ravel())
            of = place.ravel()[at]
            # not below 0, as rounding may have it on the path
            extra = np.maximum(there.ravel()[at] + back.ravel()[at] - self.least[of], 0)
            known, number, before = corridor.ravel(), self.numbers[of], link.ravel()[at]
            less = (before == NO_LINK) | (extra < known[at])
            less |= (extra == known[at]) & (number < before)
            less &= extra <= self.threshold
            known[at[less]], link.reshape(-1)[at[less]] = extra[less], number[less]
        return {CORRIDOR: corridor, LINK.name: link}
