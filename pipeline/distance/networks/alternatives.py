"""Ground that costs more near paths, and the costs of paths on the ground as it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.distance.problem import Distance
from orograph.kernels.relax.path_costs import add_steps
from orograph.tiles.arrays import Integers, Reals
from orograph.tiles.grid.quadtree import Node, Place, Sides
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.interface import read_frame
from orograph.tiles.raster.mask import MaskRaster
from orograph.tiles.raster.raster import Raster
from orograph.tiles.vector.turns import turns_of

STEPS_AT_ONCE = 256
SLACK = 1e-9
"""Share of a cell by which a centre may lie beyond a width, as by rounding."""


@dataclass(frozen=True, eq=False)
class PenalisedRaster(MaskRaster):
    """A raster of friction, some cells of which cost more; -1 where it is nodata.

    With ``is_elevation`` the raster is one of heights, on which the friction is 1.
    """

    cells: Integers
    """Row-major indices of the cells that cost more, ascending."""
    penalty: float
    is_elevation: bool
    dtype: np.dtype[Any]

    nodata = -1
    bytes_per_cell = 8

    def read(self, window: Window) -> npt.NDArray[Any]:
        """Return the friction in ``window``."""
        known, width = self.raster.read(window), self.shape[1]
        friction = known.astype(self.dtype)
        if self.is_elevation:
            friction[...] = 1
        ends = np.searchsorted(self.cells, [window.y * width, (window.y + window.height) * width])
        rows, columns = np.divmod(self.cells[slice(*ends)], width)
        here = (columns >= window.x) & (columns < window.x + window.width)
        friction[rows[here] - window.y, columns[here] - window.x] *= self.dtype.type(self.penalty)
        friction[~valid_cells(known, self.raster.nodata)] = self.nodata
        return friction

    def fingerprint(self) -> str:
        """Return an identifier of the content, which is that of one run alone."""
        return f"penalised-{self.raster.fingerprint()}"


def penalised(
    rasters: Mapping[str, Raster], problem: Distance, cells: Integers, penalty: float
) -> tuple[dict[str, Raster], Distance]:
    """Return the rasters of a distance problem with some cells that cost more, and the problem."""
    is_elevation = "friction" not in rasters
    raster = rasters["elevation" if is_elevation else "friction"]
    dtype = np.dtype(np.int64 if problem.dtype.kind == "i" else np.float64)
    friction = PenalisedRaster(raster, cells, penalty, is_elevation, dtype)
    first, *others = rasters
    names = dict.fromkeys([first, "friction", *others])
    found = {name: friction if name == "friction" else rasters[name] for name in names}
    nodata = {name: friction.nodata if name == "friction" else problem.nodata[name]
              for name in names}  # fmt: skip
    return found, replace(problem, nodata=nodata)


def cells_near(
    path: Integers, width: float, lengths: Reals, shape: tuple[int, int], wraps: bool
) -> Integers:
    """Return the row-major indices of the cells whose centres are within a width of a path's.

    ``lengths`` are those of steps, as of `step_lengths`: the sides of a cell in its row.
    """
    height, columns = shape
    alike = lengths.shape[1] == 1
    found = []
    for row in np.unique(path[:, 0]).tolist():
        at = path[path[:, 0] == row, 1]
        across, along = lengths[:2, 0 if alike else row].tolist()
        down = math.floor(width / along + SLACK)
        for y in range(max(row - down, 0), min(row + down, height - 1) + 1):
            left = math.sqrt(max(width**2 - ((y - row) * along) ** 2, 0))
            reach = math.floor(left / across + SLACK)
            x = np.unique(at[:, None] + np.arange(-reach, reach + 1))
            x = np.unique(x % columns) if wraps else x[(x >= 0) & (x < columns)]
            found.append(y * columns + x)
    return np.unique(np.concatenate(found))


def path_cost(
    problem: Distance,
    rasters: Mapping[str, Raster],
    cells: Integers,
    shape: tuple[int, int],
    wraps: bool,
) -> Any:
    """Return the cost of a path, given its cells in the order of travel."""
    if wraps:
        columns = cells[:, 1] + shape[1] * turns_of(cells[:, 1], shape[1])
        cells = np.stack([cells[:, 0], columns], axis=1)
    total: Any = problem.dtype.type(0)
    sides = Sides(False, False, False, False)
    for begin in range(0, len(cells) - 1, STEPS_AT_ONCE):
        part = cells[begin : begin + STEPS_AT_ONCE + 1]
        corner, end = part.min(axis=0), part.max(axis=0) + 1
        window = Window(*corner.tolist(), *(end - corner).tolist())
        # A knight's move passes cells between its ends, which lie in the same window.
        read = [read_frame(rasters[name], window) for name in problem.nodata]
        tile = problem.surface(Place(Node(0, 0), window, sides, shape), read, window)
        total = add_steps(tile, part - corner + problem.halo_width, total)
    return total
