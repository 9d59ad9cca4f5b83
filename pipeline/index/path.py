"""Find a least-cost path by a distance index: first the blocks it may cross, then its cells."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from orograph.arguments.sources import Sources
from orograph.distance.distance_and_allocation import DistanceAndAllocation
from orograph.distance.paths import least_cost_path
from orograph.index.costs import problem_of
from orograph.index.links import links_within
from orograph.index.query import Arrivals, Blocks, BorderPropagation, lift
from orograph.index.store import IndexStore
from orograph.kernels.boundary.propagate import unreached
from orograph.results.paths import LeastCostPath
from orograph.run.job import raster_job
from orograph.run.launch import launch
from orograph.run.options import RunSpec
from orograph.tiles.arrays import Indices
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.points import coordinates_of
from orograph.tiles.raster.raster import ArrayRaster
from orograph.tiles.raster.wrap import turn_of
from orograph.tiles.vector.turns import unwound

if TYPE_CHECKING:
    from orograph.index.points import QueryContext


def corridor_of(blocks: Blocks, start: Indices, end: Indices, context: QueryContext) -> list[int]:
    """Return the blocks that a least-cost path between two cells may cross; none: no path."""
    number_a, number_b = (int(n) for n in blocks.store.form.block_of(*np.stack([start, end]).T))
    rest = lift(blocks, number_b, end[None], np.empty((0, 2), np.int64), True)
    (arriving,) = rest.values()
    # A path between two cells of one block may stay inside it.
    (leaving,) = lift(blocks, number_a, start[None], end[None] if number_a == number_b else
                      np.empty((0, 2), np.int64), False).values()  # fmt: skip
    nothing = unreached(blocks.store.form.dtype)
    propagation = BorderPropagation(blocks, 1)
    costs = np.full((1, 1, propagation.wide), nothing, propagation.dtype)
    for value in leaving.inside.values():
        costs[0, 0, 0] = value
    propagation.start(0, number_a, leaving.border)
    arrivals = Arrivals(propagation, {number_b: [(0, arriving.border)]}, costs, 1, 1)
    propagation.spread(arrivals)
    context.count(propagation.read, propagation.visits)
    least = float(arrivals.table()[0, 0])
    if least >= nothing:
        return []
    # Blocks whose border is reached at no more than the cost of the whole path, with room for
    # rounding: an index adds in another order than a path does.
    most = least * (1 + 1e-9)
    near = [n for n, held in propagation.held.items() if held[0, :, 0].min() <= most]
    return sorted({number_a, number_b, *near})


def trace_in(store: IndexStore, blocks: list[int], start: Indices, end: Indices) -> LeastCostPath:
    """Return the least-cost path between two cells that stays within some blocks."""
    form = store.form
    windows = [form.window(number) for number in blocks]
    top, left = min(w.y for w in windows), min(w.x for w in windows)
    bottom = max(w.y + w.height for w in windows)
    right = max(w.x + w.width for w in windows)
    around = Window(top, left, bottom - top, right - left)
    barrier = np.dtype(form.dtype).type(np.nan if form.barrier is None else form.barrier)
    place = store.rasters[0].georeference
    # counted in cells, in the orientation of the grid: ties are broken in compass order
    south, east = place.orientation
    rows, columns = np.arange(float(around.height)), np.arange(float(around.width))
    part = Georeference(rows * -float(south), columns * float(east))
    rasters = []
    for raster in store.rasters:
        # Cells around the corridor that belong to none of its blocks are barriers.
        cells = np.full(around.shape, barrier, form.dtype)
        for window in windows:
            cells[window.within(around)] = raster.read(window)
        rasters.append(ArrayRaster(cells, cells.dtype, form.barrier, part))
    lengths = store.lengths
    # The table has a row above the grid and one below it, so the window's rows begin at ``top``.
    if lengths.shape[1] > 1:
        lengths = np.ascontiguousarray(lengths[:, top : bottom + 2])
    source = Sources(
        np.array([start[0] - top]), np.array([start[1] - left]), np.zeros(1), np.ones(1, np.int64)
    )
    links = links_within(store.problem.links, blocks, form, around)
    problem = replace(problem_of(form, lengths, links), sources=source)
    outputs = "cost", "back_direction"
    both = DistanceAndAllocation(problem, outputs, orientation=place.orientation)
    wraps = form.wraps and around.width == form.shape[1]
    job = raster_job(both, tuple(rasters), RunSpec(backend="numba", wrap=wraps))
    result = launch(job, "DistanceIndex.path").result()
    (path,) = least_cost_path(result, [(east * (end[1] - left), -south * (end[0] - top))])
    # Back directions lead from the end to the start.
    cells = path.cells[::-1] + np.array([top, left])
    coordinates = coordinates_of(cells[:, 0], cells[:, 1], place)
    turn = turn_of(store.rasters[0]) if form.wraps else None
    line = unwound(coordinates, turn)
    return LeastCostPath(cells, coordinates, path.cost, place.map_crs, line, turn=turn)
