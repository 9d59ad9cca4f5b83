"""Cells on the outlines of regions, and the straight distances between regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from orograph.distance.allocation import AllocationProblem
from orograph.engines.sweep_problems import Table
from orograph.polygons.job import TracingProblem
from orograph.results.paths import line_lengths
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arrays import Array, Integers, Reals
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.points import coordinates_of
from orograph.tiles.vector.turns import Turn


@dataclass(frozen=True)
class Outlines(TracingProblem):
    """Cells on the outlines of regions, as a problem whose parts need a halo.

    The rasters are those of distances from the regions.
    """

    name = "outlines"
    backend = "numba"
    halo = 1
    may_wrap = True

    regions: AllocationProblem

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory of a run: the labels, and those of a window around."""
        return Bytes(3 * 8)

    def solve(
        self, window: Window, frame: Window, cells: Sequence[Array], check: Callable[[], None]
    ) -> Table:
        """Return the cells of regions with another region, none, or the grid's end beside them."""
        rows, columns, _, labels = self.regions.sources_in(frame, frame, cells)
        passable, nodata = np.ones(rows.size, np.bool_), self.regions.distance.nodata
        for (name, blank), raster in zip(nodata.items(), cells, strict=True):
            if name != "sources":
                passable &= valid_cells(raster[rows, columns], blank)
        rows, columns, labels = rows[passable], columns[passable], labels[passable]
        known, ring = np.unique(labels), np.zeros((frame.height + 2, frame.width + 2), np.int64)
        at = np.searchsorted(known, labels) + 1
        # Of several regions in a cell each is kept, as all but one differ from what is written.
        ring[rows + 1, columns + 1] = at
        alike = np.ones(rows.size, np.bool_)
        for dy, dx in ((0, 1), (1, 0), (1, 2), (2, 1), (1, 1)):
            alike &= ring[rows + dy, columns + dx] == at
        rows, columns = rows + frame.y, columns + frame.x
        own = (rows >= window.y) & (rows < window.y + window.height)
        own &= (columns >= window.x) & (columns < window.x + window.width)
        kept = np.flatnonzero(own & ~alike)
        return {"label": labels[kept], "cell": np.stack([rows[kept], columns[kept]], axis=1)}


def straight_distances(
    tables: Sequence[Table], pairs: Integers, place: Georeference, turn: Turn | None
) -> Reals:
    """Return the distances between pairs of regions: of the nearest centres of their cells.

    In metres if there is a CRS, else in units of the coordinates. On a grid that wraps, of a
    ``turn``, either way around.
    """
    from scipy.spatial import KDTree

    labels = np.concatenate([table["label"] for table in tables])
    cells = np.concatenate([table["cell"] for table in tables])
    points = coordinates_of(cells[:, 0], cells[:, 1], place)
    # which parts they come from, and how the raster lies, does not matter
    order = np.lexsort((*points.T, labels))
    labels, points = labels[order], points[order]
    space, around = points, [0.0] if turn is None else [0.0, turn[1], -turn[1]]
    if place.is_geographic:  # the nearest points in space are nearest on the sphere
        x, y = np.radians(points).T
        space = np.stack([np.cos(y) * np.cos(x), np.cos(y) * np.sin(x), np.sin(y)], axis=1)
        around = [0.0]
    lines, trees = np.empty((len(pairs), 2, 2)), dict[int, KDTree]()
    for line, (one, other) in zip(lines, pairs.tolist(), strict=True):
        if one not in trees:  # pairs come in the order of their first regions
            trees = {one: KDTree(space[slice(*np.searchsorted(labels, [one, one + 1]))])}
        first, last = np.searchsorted(labels, [other, other + 1]).tolist()
        shifted = [space[first:last] + np.eye(1, space.shape[1]) * shift for shift in around]
        distance, near = trees[one].query(np.concatenate(shifted))
        turns, end = np.divmod(int(distance.argmin()), last - first)
        start = np.searchsorted(labels, one) + near[distance.argmin()]
        line[:] = points[start], points[first + end] + [around[turns], 0]
    counts = np.full(len(pairs), 2, np.int64)
    return line_lengths(lines.reshape(-1, 2), counts, place.map_crs)
