"""Base class of the problems that the frontier engine solves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from orograph.engines.frontier.driver import Frontier
from orograph.engines.frontier.field import join_tiles, usual_gpu_bytes
from orograph.engines.frontier.protocol import Border, FrontierDefaults, Request
from orograph.kernels.backends import may_use_numba
from orograph.kernels.relax.border import facing
from orograph.run.context import RunContext
from orograph.run.problem import ProblemFacts
from orograph.tiles.grid.neighbours import NEIGHBOURS
from orograph.tiles.grid.quadtree import Node, Place, Sides
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import Raster


class FrontierProblem(FrontierDefaults, ProblemFacts):
    """Base class of problems whose tiles improve one another; see `FrontierInterface`."""

    formula = "frontier"
    backend: Any

    tiled_for_cpus: ClassVar[bool] = False
    """Whether tiles are those for CPUs on a GPU too, because CPUs do most of the work."""

    @property
    def least_tile(self) -> int:
        """Cells a side that a tile must have: its steps reach no tile beyond its neighbours."""
        return self.halo_width

    def gpu_bytes(self, cells: int) -> int:
        """Return the peak bytes of GPU memory of a tile, given its number of cells."""
        return usual_gpu_bytes(cells)

    def tiled(self, context: RunContext) -> RunContext:
        """Return a run context with the tiles that are quickest for the problem."""
        # of several stages CPUs may do one that follows on what GPUs have computed
        if self.tiled_for_cpus or may_use_numba(self.backend):
            context = replace(context, gpus=0)
        return join_tiles(context, self.gpu_bytes)

    def on_tiles(self, context: RunContext) -> Any:
        """Return the problem as the tiles of a run are computed quickest."""
        return self

    def engine(self, rasters: tuple[Raster, ...], context: RunContext) -> Frontier:
        """Return the engine of the problem."""
        context = self.tiled(context)
        return Frontier(self.on_tiles(context), rasters, context)


def solve_trial_tile(
    problem: Any, dtypes: Sequence[np.dtype[Any]], values: Sequence[int], several: bool
) -> None:
    """Compile the kernels of a problem by solving it on a tile of four by four cells.

    ``values`` are what the cells of each raster hold. With ``several`` tiles a run also needs the
    kernels for borders.
    """
    window = Window(0, 0, 4, 4)
    side = 4 + problem.halo_width
    frame = Window(0, 0, side, side) if several else window
    place = Place(Node(0, 0), window, Sides(False, False, False, False), frame.shape)
    cells = [
        np.full(frame.shape, value, dtype) for value, dtype in zip(values, dtypes, strict=True)
    ]
    problem.check(cells, frame)
    state = problem.open(place, cells, frame)
    nothing: Border = [None] * len(NEIGHBOURS)
    halo = nothing
    if several:
        # A halo that is reached on all sides, so that all kernels that take in borders are
        # compiled.
        halo = facing(np.zeros(window.shape, problem.dtype), problem.halo_width)
    problem.visit(state, Request((0, 0), 0.0, halo, nothing), math.inf)
    problem.finish(state)
