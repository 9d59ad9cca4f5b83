"""Cells of an index as it stores them, and the costs of steps between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.distance.problem import Distance
from orograph.engines.frontier.links import Links
from orograph.index.format import Form
from orograph.kernels.boundary.elimination import BlockCosts
from orograph.kernels.boundary.links import block_links
from orograph.kernels.boundary.propagate import leaving_costs
from orograph.kernels.boundary.terminals import with_terminals
from orograph.kernels.relax.models import BARRIER, CostModel
from orograph.tiles.arrays import Array
from orograph.tiles.grid.quadtree import Node, Place, Quadtree, Sides
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells


def problem_of(form: Form, lengths: Array, links: Links | None) -> Distance:
    """Return the distance problem on the rasters and links that an index stores."""
    return Distance(
        model=CostModel(
            form.cost,
            False,
            form.coefficients,
            math.inf if form.max_slope is None else form.max_slope,
        ),
        dtype=np.dtype(form.dtype),
        connectivity=form.connectivity,
        lengths=lengths,
        nodata=dict.fromkeys(form.rasters, form.barrier),
        cells=form.shape[0] * form.shape[1],
        links=links,
    )


def costs_of(
    problem: Distance, cells: Iterable[Array], window: Window, frame: Window, grid: Quadtree
) -> BlockCosts:
    """Return the costs of steps and links in a window, given the cells in a larger ``frame``."""
    part = grid.frame(window, 1)
    place = Place(Node(0, 0), window, Sides(True, True, True, True), grid.shape)
    surface = problem.surface(place, [raster[part.within(frame)] for raster in cells], part)
    own = None
    if problem.links is not None:
        links, corner = problem.links, (window.y, window.x)
        numbers = np.concatenate(links.of_tile(window))
        own = block_links(
            links.tail[numbers] - corner,
            links.head[numbers] - corner,
            links.cost[numbers],
            window.shape,
            steps=surface.rules.steps,
            symmetric=links.symmetric,
        )
    return BlockCosts(surface.friction, surface.elevation, surface.rules, own)


def record_of(
    matrix: Array,
    costs: BlockCosts,
    problem: Distance,
    cells: Sequence[Array],
    window: Window,
    frame: Window,
    grid: Quadtree,
) -> tuple[Array, Array]:
    """Return the matrix of a block with its links, and the costs of steps out of the block.

    ``matrix`` is that of its border cells, from its ``costs``, and `costs_of` has these from the
    others.
    """
    back = None
    if costs.links is not None and not costs.symmetric:
        back = costs_of(problem.backward, cells, window, frame, grid)
    return with_terminals(matrix, costs, back), leaving_costs(costs)


def as_stored(
    cells: Array,
    nodata: float | int | None,
    dtype: np.dtype[Any],
    barred: npt.NDArray[np.bool_] | None = None,
) -> Array:
    """Convert a raster's cells to the form an index stores: its dtype, nodata as barriers.

    So are the cells that are ``barred``.
    """
    valid = valid_cells(cells, nodata)
    if barred is not None:
        valid &= ~barred
    stored = np.full(cells.shape, BARRIER if dtype.kind == "i" else np.nan, dtype)
    np.copyto(stored, cells, where=valid, casting="unsafe")
    return stored
