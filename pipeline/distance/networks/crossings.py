"""Find the least crossings between the zones of regions, and trace the links that they belong to.

The grid is cut into parts, each read with a halo as wide as a step. A part gives the least crossing
of each pair of labels in it; the client takes the least of all parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from orograph.distance.allocation import (
    ALLOCATION,
    BACK_DIRECTION,
    NO_SOURCE,
    AllocationProblem,
)
from orograph.distance.distance_and_allocation import DistanceAndAllocation
from orograph.distance.trace import PathReader
from orograph.engines.stages import Stage, StagedProblem, Stages
from orograph.engines.sweep_problems import Table
from orograph.kernels.relax.models import BARRIER
from orograph.kernels.shortest_path_tree.crossings import (
    Crossings,
    find_crossings,
    least_of,
    spanning_tree,
)
from orograph.polygons.job import TracedParts, TracingProblem
from orograph.results.paths import line_lengths
from orograph.run.context import RunContext
from orograph.run.problem import Bytes, CellCounts, on_backend
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.errors import RunError
from orograph.tiles.grid.quadtree import Node, Place, Sides
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.points import coordinates_of
from orograph.tiles.raster.raster import Raster
from orograph.tiles.raster.wrap import turn_of
from orograph.tiles.store.create import Variable
from orograph.tiles.vector.layer import VectorLayer
from orograph.tiles.vector.turns import Turn, lines_of, unwound


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
        orientation, width = self.allocation.orientation, self.shape[1]
        corner = int(orientation.turn_cells(window.y * width + window.x, self.shape))
        down, right = orientation.south * width, orientation.east
        found = find_crossings(tile, labels, NO_SOURCE, corner, down, right, window.x)
        rows, columns, _, own = self.allocation.sources_in(window, frame, surface)
        at = rows + self.halo, columns + self.halo
        merged = _merged(own, labels[at], corner + rows * down + columns * right, tile.dist[at])
        if merged.cost.size:
            found = least_of([found, merged])
        return found._asdict()


def _merged(own: Integers, labels: Integers, cells: Integers, cost: Array) -> Crossings:
    """Return crossings to the zones that took source cells of others, over ground of no cost.

    Sources of equal cost are allocated to the smaller label. The two cells of such a crossing are
    the source cell itself.
    """
    taken = np.flatnonzero((own != labels) & (labels != NO_SOURCE))
    pairs = np.stack([labels[taken], own[taken]], axis=1)
    return Crossings(pairs, cost[taken], np.stack([cells[taken]] * 2, axis=1))


@dataclass(frozen=True)
class CrossingParts(TracedParts):
    """Engine that finds the crossings in all parts; it knows where paths lead back."""

    directions: Raster


@dataclass(frozen=True)
class RegionNetwork(StagedProblem):
    """A network of regions in stages: distances and allocation, then crossings, then links."""

    distances: DistanceAndAllocation
    shape: tuple[int, int]
    tree: bool
    """Whether to return the minimum spanning tree alone."""
    max_cost: float
    """Greatest cost of a link."""
    backend: str = "numba"

    name = "region-network"
    outputs: ClassVar[tuple[Variable, ...]] = ()

    @property
    def leading(self) -> DistanceAndAllocation:
        """The problem of the distances."""
        return self.distances

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the rasters of the distances."""
        return self.distances.inputs

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages of distances and allocation, and of crossings, which CPUs find."""
        distances = on_backend(self.distances, self.backend)
        (cost,) = self.distances.distance.outputs
        on_cpu = on_backend(self.distances, "numba").allocation
        reads = *self.inputs, cost.name, ALLOCATION.name, BACK_DIRECTION.name
        return (
            Stage(distances, self.inputs, "distances", between=True),
            Stage(ZoneCrossings(on_cpu, self.shape), reads, "result"),
        )

    def links(self, engine: Stages, like: Raster) -> VectorLayer:
        """Return the links as lines on the grid of a raster."""
        parts: Any = engine[1]
        crossings = least_of([Crossings(**table) for table in parts.tables()])
        turn = turn_of(like) if parts.context.quadtree.wraps else None
        return links_of(self._chosen(crossings), parts.directions, like, turn)

    def _chosen(self, crossings: Crossings) -> Crossings:
        """Return the crossings of the links that were requested."""
        most: Any = np.float64(self.max_cost)
        if crossings.cost.dtype.kind == "i":
            most = math.floor(min(self.max_cost, 2.0**62))
        chosen = np.flatnonzero(crossings.cost <= most)
        crossings = Crossings(*(array[chosen] for array in crossings))
        if crossings.cost.dtype.kind == "i" and (crossings.cost >= BARRIER).any():
            one, other = crossings.labels[int(crossings.cost.argmax())].tolist()
            raise RunError(
                f"cost: the link of regions {one} and {other} costs more than {BARRIER - 1}, the "
                "most there is in int64; give smaller costs, or max_cost= to leave it out"
            )
        kept = spanning_tree(crossings) if self.tree else slice(None)
        return Crossings(*(array[kept] for array in crossings))


def links_of(
    crossings: Crossings, directions: Raster, like: Raster, turn: Turn | None
) -> VectorLayer:
    """Return the link over each crossing as a line from the smaller label to the greater one.

    ``turn`` is that of a grid that wraps, at whose seam lines are cut.
    """
    import xarray as xr

    place, width = like.georeference, like.shape[1]
    # Cells were numbered from the north-west; turned again, they are those of the raster.
    numbers = place.orientation.turn_cells(crossings.cells, like.shape)
    ends = np.stack(np.divmod(numbers, width), axis=2)
    reader = PathReader(directions, xr.Dataset(), place.orientation, wraps=turn is not None)
    cells, counts = reader.trace_all(ends.reshape(-1, 2))
    first = (np.cumsum(counts) - counts).reshape(-1, 2)
    back, onward = counts.reshape(-1, 2).T
    # a cell that is both ends belongs to the other region, and may be all there is
    onward = np.where((ends[:, 0] == ends[:, 1]).all(axis=1), back == 1, onward)
    # from the last cell of the way back to the first one, then onward from the other end
    pieces = np.stack([back, onward], axis=1).reshape(-1)
    begin = np.stack([first[:, 0] + back - 1, first[:, 1]], axis=1).reshape(-1)
    step = np.tile([-1, 1], len(ends))
    within = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    cells = cells[np.repeat(begin, pieces) + np.repeat(step, pieces) * within]
    points, counts = coordinates_of(cells[:, 0], cells[:, 1], place), back + onward
    columns = {
        "from": crossings.labels[:, 0],
        "to": crossings.labels[:, 1],
        "cost": crossings.cost,
        "length": line_lengths(unwound(points, turn), counts, place.map_crs),
        "from_row": ends[:, 0, 0],
        "from_col": ends[:, 0, 1],
        "to_row": ends[:, 1, 0],
        "to_col": ends[:, 1, 1],
    }
    units = {"length": "m"} if place.map_crs is not None else {}
    return VectorLayer(lines_of(points, counts, turn), columns, place.map_crs, units=units)
