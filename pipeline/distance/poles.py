"""Steps over the poles, as links between cells half a turn apart in a row that touches a pole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from orograph.distance.problem import Distance
from orograph.engines.frontier.links import Links
from orograph.kernels.relax.models import BARRIER, NORTH_SOUTH
from orograph.kernels.relax.tile import costs_north
from orograph.kernels.shortest_path_tree.tile import CODES
from orograph.tiles.arrays import Array
from orograph.tiles.grid.lengths import length_over_pole
from orograph.tiles.grid.quadtree import Node, Place, Sides
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import Raster

D = TypeVar("D", bound=Distance)

NORTH, SOUTH = CODES[-1, 0], CODES[1, 0]
"""Codes of back directions over the poles."""


def over_poles(problem: D, rasters: Sequence[Raster], poles: tuple[bool, bool]) -> D:
    """Return a problem in which cells of the first and last row are joined over the poles.

    Of each of ``rasters``, the rasters of the problem, the first and the last row are read.
    ``poles`` is what `orograph.tiles.raster.wrap.poles_of` returns.
    """
    place, (height, width) = rasters[0].georeference, rasters[0].shape
    northward = place.orientation.south > 0
    for row, code, joined in (
        (0, NORTH if northward else SOUTH, poles[0]),
        (height - 1, SOUTH if northward else NORTH, poles[1]),
    ):
        if joined:
            # Where all rows are alike, lengths are not those on the globe: of hops, or `cell_size`.
            length = float(problem.lengths[NORTH_SOUTH, 0])
            if problem.lengths.shape[1] > 1:
                length = problem.length_scale * length_over_pole(place, row)
            cells = [raster.read(Window(row, 0, 1, width)) for raster in rasters]
            cost = _costs(problem, cells, length)
            whole = cost < BARRIER if cost.dtype.kind == "i" else np.isfinite(cost)
            columns = np.flatnonzero(whole)
            tail = np.stack([np.full(columns.size, row), columns], axis=1)
            head = np.stack([tail[:, 0], (columns + width // 2) % width], axis=1)
            steps = Links(tail, head, cost[columns], np.full(columns.size, -code))
            problem = replace(problem, links=_joined(problem.links, steps))
    return problem


def _joined(links: Links | None, steps: Links) -> Links:
    """Return links of a graph, if there are any, and steps over a pole as one."""
    if links is None:
        return steps
    tail, head, cost, edge = (
        np.concatenate([getattr(links, name), getattr(steps, name)])
        for name in ("tail", "head", "cost", "edge")
    )
    order = np.argsort(tail[:, 0], kind="stable")
    points = links.points
    if points is not None:
        points = np.concatenate([points, np.zeros((steps.edge.size, 2, 2))])[order]
    return Links(tail[order], head[order], cost[order], edge[order], points)


def _costs(problem: Distance, cells: Sequence[Array], length: float) -> Array:
    """Return the cost of the step from each cell of a row over the pole."""
    # A grid of two rows, in which the cell half a turn away lies beyond the pole.
    width = cells[0].shape[1]
    pairs = [np.concatenate([np.roll(row, width // 2, axis=1), row]) for row in cells]
    window = Window(0, 0, 2, width)
    grid = replace(
        problem, backend="numba", connectivity=4, lengths=np.full((5, 1), length), links=None
    )
    place = Place(Node(0, 0), window, Sides(False, False, False, False), window.shape)
    return costs_north(grid.surface(place, pairs, window))
