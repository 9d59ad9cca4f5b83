"""Hop distance as a problem of the frontier engine.

A hop is a step of cost one, so this is `orograph.distance.problem.Distance` in exact integers, on a
surface of friction one with barriers where the mask says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orograph.arguments.barriers import BARRIERS
from orograph.distance.problem import Distance, State
from orograph.kernels.relax.models import CostModel
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arrays import Array
from orograph.tiles.grid.window import Window
from orograph.tiles.store.create import Variable

# a tile of a mask holds ones, of which a step adds those of both ends
PER_HOP = 2


@dataclass(frozen=True)
class Hops(Distance):
    """Hop distance as a problem of the frontier engine; a mask takes the place of friction."""

    name = "hop-distance"
    by_mask = True

    @classmethod
    def on_mask(
        cls,
        shape: tuple[int, int],
        nodata: Mapping[str, float | int | None],
        connectivity: int,
        max_hops: int | None = None,
        **options: Any,
    ) -> Hops:
        """Return the problem on a mask; ``options`` set further fields of `Distance`."""
        return cls(
            model=CostModel("friction"),
            dtype=np.dtype(np.int64),
            connectivity=connectivity,
            lengths=np.ones((5, 1)),
            nodata=nodata,
            cells=shape[0] * shape[1],
            max_cost=math.inf if max_hops is None else float(PER_HOP * max_hops),
            **options,
        )

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory of a run."""
        return Bytes(2 * 8, 4)

    @property
    def trial_values(self) -> list[int]:
        """Values of the cells of each raster in a trial: all passable, under no barrier."""
        return [int(name != BARRIERS) for name in self.nodata]

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The raster of hops."""
        dtype = np.dtype(np.int32 if self.cells < 2**31 else np.int64)
        attrs = {"long_name": "steps from the nearest source"}
        return (Variable("hops", dtype, -1, attrs, by_bits=True),)

    def check(self, cells: Sequence[Array], frame: Window) -> None:
        """Accept any mask: each value is passable or not."""

    @property
    def accept(self) -> Callable[[Sequence[Any], Window], bool]:
        """A function that accepts any mask."""
        return lambda cells, part: True

    def finish(self, state: State) -> tuple[dict[str, Array], dict[str, float]]:
        """Return the hops of a tile's cells, and counts of reached and unreached cells."""
        (variable,) = self.outputs
        found = state.tile.read_out(variable.dtype, -1, PER_HOP)
        counts: dict[str, float] = {
            "reached_cells": found.reached,
            "unreached_cells": found.cut_off,
            "impassable_cells": found.barriers,
        }
        return {variable.name: found.values}, counts

    def attributes(self, counts: dict[str, float]) -> dict[str, Any]:
        """Return the numbers of cells reached and not reached."""
        return {
            "connectivity": self.connectivity,
            **{name: int(count) for name, count in counts.items()},
        }
