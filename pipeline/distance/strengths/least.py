"""The least of the accumulated costs of several runs, cell by cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orograph.distance.strengths.growth import Growth
from orograph.engines.map_overlap import LocalProblem
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arrays import Array
from orograph.tiles.errors import RunError
from orograph.tiles.grid.window import Window
from orograph.tiles.store.create import Variable

ALLOCATION, REACHED = "allocation", "reached_cells"


@dataclass(frozen=True)
class LeastOfRuns(LocalProblem):
    """The least of two sets of rasters, as a problem whose parts need no halo.

    The rasters are the cost of the first set, what belongs to it, then those of the second. Of
    equal costs that of the smaller label counts, then that of the first set.
    """

    name = "least-of-runs"
    backend = "numba"
    halo = 0
    may_wrap = True
    counted = (REACHED,)

    written: tuple[Variable, ...]
    """Rasters of each set; the first is the cost."""
    growths: tuple[Growth | None, ...]
    """Growth of the costs of each set along paths; None: its costs are accumulated already."""
    outputs: tuple[Variable, ...]
    """Rasters of a set that the result keeps."""

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory of a run: of both sets as read, and of the least."""
        return Bytes(2 * sum(dtype.itemsize for dtype in cells.dtypes))

    def solve(
        self, window: Window, frame: Window, cells: Sequence[Array], check: Callable[[], None]
    ) -> dict[str, Array]:
        """Return the least cost of a part, and what belongs to it."""
        names, count = [v.name for v in self.written], len(self.written)
        cost = names[0]
        best: dict[str, Array] = {}
        for place, growth in enumerate(self.growths):
            part = dict(zip(names, cells[place * count : (place + 1) * count], strict=True))
            part[cost] = self._accumulated(part[cost], growth, window)
            if not best:
                best = {name: values.copy() for name, values in part.items()}
                continue
            better = part[cost] < best[cost]
            if ALLOCATION in part:
                better |= (part[cost] == best[cost]) & (part[ALLOCATION] < best[ALLOCATION])
            for name, values in best.items():
                np.copyto(values, part[name], where=better)
        unreached = best[cost] == self._nothing
        for variable in self.outputs:
            best[variable.name][unreached] = variable.fill_value
        return {variable.name: best[variable.name] for variable in self.outputs}

    def counts(self, blocks: dict[str, Array]) -> dict[str, int]:
        """Return the number of reached cells."""
        return {REACHED: int(np.count_nonzero(blocks[self.written[0].name] >= 0))}

    @property
    def _nothing(self) -> Any:
        """The cost of unreached cells while costs are compared."""
        dtype = np.dtype(self.written[0].dtype)
        return np.iinfo(dtype).max if dtype.kind == "i" else dtype.type(np.inf)

    def _accumulated(self, cost: Array, growth: Growth | None, window: Window) -> Array:
        """Return accumulated costs with ``_nothing`` where none is reached."""
        reached = cost >= 0  # neither NaN nor -1
        found = cost
        if growth is not None:
            if not growth.plain:
                with np.errstate(over="ignore"):
                    grown = growth.apply(np.where(reached, cost, 0).astype(np.float64))
                    found = grown.astype(cost.dtype)
            lost = reached & (found == self._nothing)
            if math.isinf(growth.most) and lost.any():
                row, column = np.argwhere(lost)[0] + (window.y, window.x)
                raise RunError(
                    f"cost: at row {row}, column {column} it is more than {cost.dtype} holds; give "
                    "smaller multipliers and rates in source_cost, or max_cost= to leave out such "
                    "cells"
                )
            # as exact as the costs
            integer = cost.dtype.kind == "i" and math.isfinite(growth.most)
            reached &= found <= (math.floor(growth.most) if integer else growth.most)
        return np.where(reached, found, self._nothing).astype(cost.dtype, copy=False)
