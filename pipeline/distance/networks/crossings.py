"""Find the least crossings between the zones of regions, and least costs of reaching regions.

The grid is cut into parts, each read with a halo as wide as a step. A part gives the least crossing
of each pair of labels in it; the client takes the least of all parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orograph.distance.allocation import NO_SOURCE, AllocationProblem
from orograph.engines.sweep_problems import Table
from orograph.kernels.shortest_path_tree.crossings import (
    Crossings,
    find_crossings,
    least_of,
    spanning_tree,
)
from orograph.polygons.job import TracedParts, TracingProblem
from orograph.run.context import RunContext
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arrays import Array
from orograph.tiles.grid.quadtree import Node, Place, Sides
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.interface import read_frame
from orograph.tiles.raster.raster import Raster


@dataclass(frozen=True)
class ZoneCrossings(TracingProblem):
    """Least crossings between allocation zones, as a problem whose parts need a halo.

    The rasters are those of the allocation, then the distances, and the labels.
    """

    name = "region-network"
    backend = "numba"
    may_wrap = True

    allocation: AllocationProblem
    shape: tuple[int, int]
    regions: AllocationProblem | None = None
    """Problem that knows the cells of all regions, where the allocation is to some of them."""

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory of a run: costs and steps, and labels in three forms."""
        return Bytes(2 * cells.itemsize + 4 * self.allocation.distance.dtype.itemsize + 3 * 8)

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels by a part of four by four cells."""
        *surface, cost, _, _ = dtypes
        cells = [
            *(np.full((4, 4), 4, dtype) for dtype in surface),
            np.ones((4, 4), cost),
            # A zone for each cell, so that there are crossings by which the kernels are compiled.
            np.arange(16).reshape(4, 4),
        ]
        whole = Window(0, 0, 4, 4)
        spanning_tree(least_of([Crossings(**self.solve(whole, whole, cells, lambda: None))]))

    def engine(self, rasters: tuple[Raster, ...], context: RunContext) -> CrossingParts:
        """Return the engine of the problem, whose last raster is that of back directions."""
        *read, directions = rasters
        return CrossingParts(self, tuple(read), context, directions)

    @property
    def halo(self) -> int:
        """Number of rows and columns that the longest step crosses."""
        return self.allocation.halo_width

    def solve(
        self, window: Window, frame: Window, cells: Sequence[Array], check: Callable[[], None]
    ) -> Table:
        """Return the least crossing of each pair of labels in a part."""
        *surface, cost, zones = cells
        # Only the window of the place is used here: a part is not a node of the tree.
        place = Place(Node(0, 0), window, Sides(False, False, False, False), self.shape)
        tile = self.allocation.distance.surface(place, surface, frame)
        ring = window.grow(self.halo)
        inside = frame.within(ring)
        labels = np.full(ring.shape, NO_SOURCE, np.int64)
        labels[inside] = zones
        # unreached cells have no label, so what their cost is does not matter
        tile.dist[inside] = cost
        # cells are numbered from the north-west, by which ties are broken
        corner, down, right = self._numbering(window)
        found = find_crossings(tile, labels, NO_SOURCE, corner, down, right, window.x)
        # Over ground of no cost, sources are allocated to the smaller label.
        merged = self._taken_sources(window, frame, cells)
        if merged.cost.size:
            found = least_of([found, merged])
        return found._asdict()

    def _numbering(self, window: Window) -> tuple[int, int, int]:
        """Return the number of a part's first cell, and what numbers grow by to the next row and
        the next cell.
        """
        orientation, width = self.allocation.orientation, self.shape[1]
        corner = int(orientation.turn_cells(window.y * width + window.x, self.shape))
        return corner, orientation.south * width, orientation.east

    def _taken_sources(self, window: Window, frame: Window, cells: Sequence[Array]) -> Crossings:
        """Return crossings from zones to each source cell of other labels in them.

        The two cells of such a crossing are the source cell itself.
        """
        *surface, cost, zones = cells
        rows, columns, _, own = (self.regions or self.allocation).sources_in(window, frame, surface)
        corner, down, right = self._numbering(window)
        at = rows + window.y - frame.y, columns + window.x - frame.x
        labels, numbers = zones[at], corner + rows * down + columns * right
        taken = np.flatnonzero((own != labels) & (labels != NO_SOURCE))
        pairs = np.stack([labels[taken], own[taken]], axis=1)
        return Crossings(pairs, cost[at][taken], np.stack([numbers[taken]] * 2, axis=1))


@dataclass(frozen=True)
class CrossingParts(TracedParts):
    """Engine that finds the crossings in all parts; it knows where paths lead back."""

    directions: Raster

    def _solve(self, window: Window) -> dict[str, Array]:
        """Return the crossings of a part, which is not read where no cell is in a zone."""
        frame = self.context.quadtree.frame(window, self.problem.halo)
        if (read_frame(self.rasters[-1], frame) != NO_SOURCE).any():
            return super()._solve(window)
        none = np.empty((0, 2), np.int64)
        return Crossings(none, np.empty(0, self.rasters[-2].dtype), none)._asdict()
