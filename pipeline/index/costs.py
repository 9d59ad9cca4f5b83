"""Cells of an index as it stores them, and the costs of steps between them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.boundary.elimination import BlockCosts
from orograph.kernels.relax.models import BARRIER
from orograph.tiles.grid.quadtree import Node, Place, Sides
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells

if TYPE_CHECKING:
    from orograph.distance.problem import Distance

Array = npt.NDArray[Any]


def with_halo(window: Window, shape: tuple[int, int]) -> Window:
    """Return a window grown by one cell on each side, clipped to the grid."""
    return Window(window.y - 1, window.x - 1, window.height + 2, window.width + 2).clip(shape)


def costs_of(
    problem: Distance, cells: Iterable[Array], window: Window, frame: Window, shape: tuple[int, int]
) -> BlockCosts:
    """Return the step costs in a window, given the rasters' cells in a larger ``frame``."""
    part = with_halo(window, shape)
    place = Place(Node(0, 0), window, Sides(True, True, True, True), shape)
    surface = problem.surface(place, [raster[part.within(frame)] for raster in cells], part)
    return BlockCosts(surface.friction, surface.elevation, surface.rules)


def as_stored(cells: Array, nodata: float | int | None, dtype: np.dtype[Any]) -> Array:
    """Convert a raster's cells to the form an index stores: its dtype, nodata as barriers."""
    stored = np.full(cells.shape, BARRIER if dtype.kind == "i" else np.nan, dtype)
    np.copyto(stored, cells, where=valid_cells(cells, nodata), casting="unsafe")
    return stored
