"""Parse the points and sources of a query of an index, and divide it into tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from dask.base import tokenize

from orograph.arguments.settings import thread_count
from orograph.arguments.sources import SourcesLike, SourceSpec, is_source, parse_sources
from orograph.index.query import (
    GROUP,
    Blocks,
    BorderPropagation,
    SourceBorder,
    Targets,
    from_group,
    group_near,
    lift,
)
from orograph.index.store import IndexStore
from orograph.kernels.boundary.interior import interior_distances
from orograph.kernels.boundary.propagate import unreached
from orograph.run.cluster.compute import cluster_failures
from orograph.run.cluster.task_graph import Layers
from orograph.run.monitor import Watch
from orograph.tiles.arrays import Array, Indices
from orograph.tiles.errors import InputError
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import fill_value_in_xarray, valid_cells
from orograph.tiles.raster.points import PointsLike, as_points, cells_of
from orograph.tiles.raster.snapping import SnapLike, parse_snap, snap_to_valid
from orograph.tiles.raster.wrap import WRAPS
from orograph.tiles.storage import State, Storage

if TYPE_CHECKING:
    import xarray as xr
    from distributed import Client

    from orograph.index.device import BlocksOnDevice


@dataclass
class QueryContext:
    """Client and statistics of one query."""

    client: Client | None = None
    on_device: BlocksOnDevice | None = None
    """Blocks on the GPU that computes tables of costs; None: CPUs compute them."""
    read: dict[int, int] = field(default_factory=dict)
    """Size in bytes of each block whose matrix was used, by block number."""
    visits: int = 0

    def count(self, read: dict[int, int], visits: int) -> None:
        """Add the blocks read and visited by one propagation to the statistics."""
        self.read |= read
        self.visits += visits

    def share(self, blocks: Blocks, function: Callable[..., Any], tasks: list[Any]) -> list[Any]:
        """Call ``function(blocks, *task)`` for each task, in threads or on the cluster."""
        if self.client is None:
            with _threads() as pool:
                return list(pool.map(lambda task: function(blocks, *task), tasks))
        handle = blocks.store.storage, blocks.memory, _version(blocks.store)
        token = tokenize(str(blocks.store.storage), time.time_ns())
        name = Layers("distance-index", token).name("query")
        with cluster_failures(), Watch(self.client):
            futures = [
                self.client.submit(_perform, function, handle, task, key=(name, number), pure=False)
                for number, task in enumerate(tasks)
            ]
            results: list[Any] = self.client.gather(futures)
            return results


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_count(), "orograph-index")


def _version(store: IndexStore) -> State | None:
    """Return the state of the index's metadata, so that workers notice updates."""
    return store.storage.state("zarr.json")


def _perform(
    function: Callable[..., Any], handle: tuple[Storage, int, State | None], task: tuple[Any, ...]
) -> Any:
    return function(_opened(*handle), *task)


@lru_cache(maxsize=2)
def _opened(storage: Storage, memory: int, version: State | None) -> Blocks:
    """Open the blocks of an index, once in each worker and for each version."""
    return Blocks(IndexStore.open(storage), memory)


def cells_of_points(
    store: IndexStore, points: PointsLike, snap: SnapLike, name: str = "points"
) -> tuple[Indices, npt.NDArray[np.float64]]:
    """Return the cells of points, (n, 2), snapped to passable ones, and their coordinates."""
    raster = store.rasters[0]
    reach = parse_snap(snap, raster.georeference)
    where = as_points(points, name, raster.georeference)
    rows, columns = cells_of(where, raster.georeference, raster.shape, name)
    rows, columns = snap_to_valid(rows, columns, raster, where, reach, name)
    return np.stack([rows, columns], axis=1), where


def cells_of_sources(
    store: IndexStore, sources: SourcesLike, snap: SnapLike, all_touched: bool, outside: str
) -> tuple[Indices, dict[str, Any]]:
    """Return the passable cells that sources cover, (n, 2), and attributes of the result.

    They are those of `Origin.notes`.
    """
    first = store.rasters[0]
    given = SourceSpec(all_touched=all_touched, snap=snap, outside=outside)
    origin = parse_sources(sources, first, given)
    points, raster, targets = origin.cells, origin.raster, origin.targets
    if points is not None:
        return np.stack([points.rows, points.columns], axis=1), origin.notes
    assert raster is not None
    found: list[Indices] = [np.empty((0, 2), np.int64)]
    for window in store.form.layout.windows(store.form.shape):
        wanted = is_source(raster.read(window), raster.nodata, targets)
        for walked in store.rasters:
            # Sources on barriers do not count.
            wanted &= valid_cells(walked.read(window), walked.nodata)
        found.append(np.argwhere(wanted) + np.array([window.y, window.x]))
    cells = np.concatenate(found)
    if not len(cells):
        raise InputError("sources: the raster has no source on a passable cell; give one at least")
    return cells, origin.notes


def _by_block(blocks: Blocks, cells: Indices) -> dict[int, Indices]:
    """Group cells by block: return the indices of the cells in each."""
    numbers = blocks.store.form.block_of(cells[:, 0], cells[:, 1])
    return {int(n): np.flatnonzero(numbers == n) for n in np.unique(numbers)}


class Reached(NamedTuple):
    """Costs from the starts of a table to the borders of their blocks, and from there to its ends.

    By cell; those of the ends are in `Targets`.
    """

    leaving: dict[tuple[int, int], SourceBorder]
    targets: Targets


def reach_borders(blocks: Blocks, starts: Indices, ends: Indices, context: QueryContext) -> Reached:
    """Return the costs between the cells of a table and the borders of their blocks."""
    form = blocks.store.form
    from_block, to_block = _by_block(blocks, starts), _by_block(blocks, ends)
    nowhere = np.empty((0, 2), np.int64)
    tasks = [
        (number, np.unique(starts[here], axis=0), ends[to_block[number]] if number in to_block else
         nowhere, False)
        for number, here in from_block.items()
    ]  # fmt: skip
    cells_towards = {number: np.unique(ends[here], axis=0) for number, here in to_block.items()}
    if form.symmetric:
        # the way from a start to the border is as long as the one back
        known = {tuple(cell) for cell in starts.tolist()}
        for number, cells in cells_towards.items():
            fresh = [tuple(cell) not in known for cell in cells.tolist()]
            cells_towards[number] = cells[fresh]
    back = [
        (number, cells, nowhere, not form.symmetric)
        for number, cells in cells_towards.items()
        if len(cells)
    ]
    # Both directions in one round of tasks.
    found = context.share(blocks, lift, tasks + back)
    leaving: dict[tuple[int, int], SourceBorder] = {}
    arriving: dict[tuple[int, int], SourceBorder] = {}
    for part in found[: len(tasks)]:
        leaving |= part
    for part in found[len(tasks) :]:
        arriving |= part
    if form.symmetric:
        arriving = {**leaving, **arriving}
    targets: Targets = {}
    for number, here in to_block.items():
        for target in here.tolist():
            cell = int(ends[target, 0]), int(ends[target, 1])
            targets.setdefault(number, []).append((target, cell, arriving[cell].border))
    return Reached(leaving, targets)


def rows_of(
    blocks: Blocks, starts: Indices, ends: Indices, reached: Reached, context: QueryContext
) -> Array:
    """Return rows of a table of least costs, for some of its starts, shape (starts, ends).

    A pair has the same bits whatever other rows there are.
    """
    leaving, targets = reached
    form = blocks.store.form
    groups = group_near(blocks, form.block_of(starts[:, 0], starts[:, 1]), GROUP)
    count = len(ends)
    work = [
        ([leaving[int(starts[i, 0]), int(starts[i, 1])] for i in group], targets, count, count)
        for group in groups
    ]
    table = np.empty((len(starts), count), form.dtype)
    if context.on_device is None:
        results = context.share(blocks, from_group, work)
    else:
        results = [context.on_device.from_group(*task[:3]) for task in work]
    for group, (rows, read, visits) in zip(groups, results, strict=True):
        table[group] = rows
        context.count(read, visits)
    return table


def table_of(
    blocks: Blocks, starts: Indices, ends: Indices, nearest: int | None, context: QueryContext
) -> Array:
    """Return the least costs from some cells to others, shape (starts, ends).

    With ``nearest``, only that many of each row, the least ones, are exact; others may be too high.
    """
    form = blocks.store.form
    leaving, targets = reach_borders(blocks, starts, ends, context)
    # groups do not depend on who does them: of a pair both ways may differ in the last bit
    groups = group_near(blocks, form.block_of(starts[:, 0], starts[:, 1]), GROUP)
    # where both ways cost the same, a pair is left to the group that comes first: later waves have
    # fewer targets, and end sooner
    halved = form.symmetric and starts is ends and nearest is None
    columns = [np.arange(len(ends))] * len(groups)
    if halved:
        columns = [np.concatenate(groups[n:]) for n in range(len(groups))]
    work = [
        (
            [leaving[int(starts[i, 0]), int(starts[i, 1])] for i in group.tolist()],
            _renumbered(targets, wanted),
            len(wanted),
            len(wanted) if nearest is None else nearest,
        )
        for group, wanted in zip(groups, columns, strict=True)
    ]
    table = np.empty((len(starts), len(ends)), form.dtype)
    if context.on_device is None or nearest is not None:
        results = context.share(blocks, from_group, work)
    else:
        results = [context.on_device.from_group(*task[:3]) for task in work]
    for group, wanted, (rows, read, visits) in zip(groups, columns, results, strict=True):
        table[np.ix_(group, wanted)] = rows
        if halved:
            others = wanted[len(group) :]
            # The way back, which costs the same, was left out of the later groups.
            table[np.ix_(others, group)] = rows[:, len(group) :].T
        context.count(read, visits)
    return table


def _renumbered(targets: Targets, wanted: Indices) -> Targets:
    """Return the targets that are wanted, renumbered from 0."""
    places = {number: place for place, number in enumerate(wanted.tolist())}
    kept = {
        block: [(places[n], cell, rest) for n, cell, rest in near if n in places]
        for block, near in targets.items()
    }
    return {block: near for block, near in kept.items() if near}


def field_of(blocks: Blocks, sources: Indices, window: Window, context: QueryContext) -> xr.Dataset:
    """Return the least cost of each cell of a window from the nearest source, as a dataset."""
    import xarray as xr

    form, store = blocks.store.form, blocks.store
    nothing = unreached(form.dtype)
    local = {
        number: sources[here] - np.array([form.window(number).y, form.window(number).x])
        for number, here in _by_block(blocks, sources).items()
    }
    propagation = BorderPropagation(blocks, 1)
    # All sources share the first lane; in the others nothing spreads.
    propagation.bound.reshape(-1)[1:] = 0
    for number, cells in local.items():
        own = blocks.costs(number)
        propagation.start(0, number, interior_distances(own, None, cells)[tuple(own.ends.T)])
    wanted = form.blocks_in(window)
    costs = {}
    if len(wanted) < form.count:
        costs = {number: blocks.costs(number) for number in wanted}
        propagation.spread(
            _Limit(propagation, {n: _passable_border(blocks, c) for n, c in costs.items()})
        )
    else:
        propagation.spread()
    context.count(propagation.read, propagation.visits)
    problem = store.problem
    (cost,) = problem.outputs
    blank = nothing.dtype.type(cost.fill_value)
    out = np.empty(window.shape, form.dtype)

    def fill(number: int) -> None:
        # Threads write to ``out`` at the same time: windows of blocks do not overlap.
        own = costs.get(number) or blocks.costs(number)
        inner = interior_distances(own, propagation.border(number), local.get(number))
        part = form.window(number)
        y, x = max(part.y, window.y), max(part.x, window.x)
        bottom = min(part.y + part.height, window.y + window.height)
        right = min(part.x + part.width, window.x + window.width)
        both = Window(y, x, bottom - y, right - x)
        values = inner[both.within(part)]
        out[both.within(window)] = np.where(values < nothing, values, blank)

    with _threads() as pool:
        _each(pool.map(fill, wanted))
    place = store.rasters[0].georeference.part(*window.slices)
    fill_value, encoding = fill_value_in_xarray(cost.fill_value, out.dtype)
    around = WRAPS if form.wraps and window.width == form.shape[1] else {}
    attrs, dims = {**cost.attrs, **around, **fill_value}, (place.y_name, place.x_name)
    field = xr.Variable(dims, out, attrs, {**encoding, **place.encoding})
    return xr.Dataset({cost.name: field}, place.coords(), problem.attributes({}))


def _each(results: Iterable[None]) -> None:
    for _ in results:
        pass


def _passable_border(blocks: Blocks, costs: Any) -> npt.NDArray[np.bool_]:
    """Return a mask of the passable cells among the ends of a block."""
    cells = tuple(costs.ends.T)
    passable = np.ones(len(cells[0]), bool)
    for raster in (costs.friction, costs.elevation):
        if raster.size:
            values = raster[1:-1, 1:-1][cells]
            passable &= values < unreached(costs.dtype)
    return passable


@dataclass
class _Limit:
    """Callback that bounds a propagation by the costs on the borders of the wanted blocks.

    What comes into a block later comes over a border cell or by a link, and costs no less than its
    end.
    """

    propagation: BorderPropagation
    passable: dict[int, npt.NDArray[np.bool_]]

    def __call__(self, number: int, held: Array) -> None:
        if number not in self.passable:
            return
        most = max(
            float(self.propagation.border(near)[cells].max(initial=0))
            for near, cells in self.passable.items()
        )
        self.propagation.bound[0, 0] = min(most, float(self.propagation.bound[0, 0]))
