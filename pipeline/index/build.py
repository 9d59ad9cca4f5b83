"""How a distance index is made: a task for each shard of the rasters, and the blocks in it.

A block's matrix comes by nested dissection (kernels/boundary/elimination.py): first of parts of
``block`` cells a side, which are then merged up the quadtree, ``levels`` times. Only the last ones
are kept: a query begins and ends by a relaxation inside a block, which is quicker than to read
what would save it. Tasks share nothing, and may be done again at any time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from dask._task_spec import Task
from dask.base import tokenize

from orograph import __version__
from orograph.distance.problem import Distance
from orograph.engines.task_graph import Layers
from orograph.execution import jobs
from orograph.execution.first_worker import decide_backend
from orograph.execution.run import compute
from orograph.execution.watch import Watch
from orograph.execution.workspace import Workspace
from orograph.index.arguments import BuildSpec
from orograph.index.store import IndexStore
from orograph.kernels.backends import kernel
from orograph.kernels.boundary.blocks import block_matrix
from orograph.kernels.boundary.dissection import Rectangle
from orograph.kernels.boundary.elimination import BlockCosts
from orograph.kernels.boundary.propagate import (
    leaving_costs,
    new_values,
    pack_panels,
    relax_edges,
    visit,
)
from orograph.kernels.boundary.sparsify import recover, sparsify_matrix
from orograph.kernels.device import host_memory
from orograph.kernels.relax.models import BARRIER
from orograph.tiles.errors import Cancelled
from orograph.tiles.grid.quadtree import Node, Place, Sides
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.nodata import valid_cells
from orograph.tiles.raster.raster import ArrayRaster, Raster, StoreRaster
from orograph.tiles.store.ingest import ingest
from orograph.tiles.store.sink import StoreSink
from orograph.tiles.store.storage import Location, Storage

if TYPE_CHECKING:
    from distributed import Client

Array = npt.NDArray[Any]


def with_halo(window: Window, shape: tuple[int, int]) -> Window:
    """A window and the cells around it that the grid has."""
    return Window(window.y - 1, window.x - 1, window.height + 2, window.width + 2).clip(shape)


def costs_of(
    problem: Distance, cells: Iterable[Array], window: Window, frame: Window, shape: tuple[int, int]
) -> BlockCosts:
    """What steps cost in a window of which, with more around it, ``frame``, cells are known."""
    part = with_halo(window, shape)
    place = Place(Node(0, 0), window, Sides(True, True, True, True), shape)
    state = problem.open(place, [raster[part.within(frame)] for raster in cells], part)
    return BlockCosts(state.tile.friction, state.tile.elevation, state.tile.rules)


def as_stored(cells: Array, nodata: float | int | None, dtype: np.dtype[Any]) -> Array:
    """Cells of a raster as an index keeps them: barriers where there is nothing."""
    stored = np.full(cells.shape, BARRIER if dtype.kind == "i" else np.nan, dtype)
    np.copyto(stored, cells, where=valid_cells(cells, nodata), casting="unsafe")
    return stored


@dataclass(frozen=True)
class Build:
    """Makes blocks of an index from rasters."""

    store: IndexStore
    rasters: tuple[Raster, ...]
    problem: Distance
    """Distances on them."""
    backend: str = "numba"
    """What eliminates: ``"numba"`` or ``"cuda"``."""
    cancelled: Event | None = field(default=None, compare=False)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of costs."""
        return np.dtype(self.store.form.dtype)

    def task_shard(self, window: Window) -> None:
        """Make the blocks of a shard, then the shard of each raster: that is the last thing."""
        form = self.store.form
        sink = StoreSink(self.store.storage)
        names = form.rasters
        if all(sink.written(name, window) for name in names):
            return
        frame = with_halo(window, form.shape)
        cells = [raster.read(frame) for raster in self.rasters]
        self.problem.check(cells, frame)
        todo = [block for block in form.blocks_in(window) if not self.store.has(block)]
        places = [form.window(block) for block in todo]
        parts = [Rectangle(p.y - window.y, p.x - window.x, p.height, p.width) for p in places]
        costs = costs_of(self.problem, cells, window, frame, form.shape)
        self._stop_if_cancelled()
        for i, matrix in kernel("solve_blocks", self.backend)(costs, parts, form.block):
            own = costs_of(self.problem, cells, places[i], frame, form.shape)
            self.store.write(todo[i], matrix, leaving_costs(own))
            self._stop_if_cancelled()
        for name, raster, nodata in zip(names, cells, self.problem.nodata, strict=True):
            sink.write(name, window, as_stored(raster[window.within(frame)], nodata, self.dtype))

    def _stop_if_cancelled(self) -> None:
        if self.cancelled is not None and self.cancelled.is_set():
            raise Cancelled("the build was cancelled")

    def make(self, block: int, costs: BlockCosts, pending: bool = False) -> None:
        """Make one block and keep it, ``pending`` as a part of an update."""
        part = Rectangle(0, 0, *costs.shape)
        matrix = block_matrix(costs, part, self.store.form.block)
        self.store.write(block, matrix, leaving_costs(costs), pending)

    def run(self, client: Client | None, token: str, cancelled: Event) -> None:
        """Make all blocks."""
        layers = Layers("distance-index", token)
        tasks = {}
        with jobs.shared(replace(self, cancelled=None) if client else self, client) as handle:
            for number, window in enumerate(self.store.form.layout.windows(self.store.form.shape)):
                key = layers.key("shard", Node(0, number))
                tasks[key] = Task(key, _perform, handle, window)
            compute(tasks, list(tasks), client, cancelled)


def _perform(handle: Any, window: Window) -> None:
    """Do one task: the only function that Dask sees."""
    build: Build = jobs.load(handle)
    with host_memory(build.backend):
        build.task_shard(window)


def warm_up(problem: Distance, rasters: int, sparsify: bool) -> None:
    """Compile the kernels before several threads or workers want them."""
    shape = 4, 8
    whole = Window(0, 0, *shape)
    costs = costs_of(problem, [np.ones(shape)] * rasters, whole, whole, shape)
    matrix = block_matrix(costs, Rectangle(0, 0, *shape), 4)
    panels = pack_panels(matrix.reshape(-1), len(matrix), symmetric=False)
    if sparsify:
        for symmetric in (False, True):
            recover(*sparsify_matrix(matrix, symmetric=symmetric), len(matrix), symmetric=symmetric)
    leaving_costs(costs)
    held, fresh = new_values(1, len(matrix), problem.dtype)
    visit(panels, len(matrix), held, fresh)
    edges = np.zeros((1, 2), np.int64), np.zeros(1, problem.dtype)
    bound = np.zeros((1, held.shape[2]), problem.dtype)
    relax_edges(held, edges, slice(0, 1), bound, held, fresh)


def build_index(
    wanted: BuildSpec,
    out: Location,
    overwrite: bool,
    resume: bool,
    backend: str,
    client: Client | None,
) -> None:
    """Make the store of an index and give it its name."""
    rasters, problem = wanted.rasters, wanted.problem
    fingerprint = " ".join(raster.fingerprint() for raster in rasters)
    form = replace(wanted.form, fingerprint=fingerprint)
    identity = {"operation": "distance-index", "form": repr(form), "orograph": __version__}
    identity["lengths"] = repr(problem.lengths.tolist())
    space = Workspace(out, identity, overwrite=overwrite, resume=resume)
    if space.finished:
        space.clear()
        return
    warm_up(problem, len(rasters), form.sparsify)
    place = rasters[0].georeference

    def create(result: Storage, run: str) -> None:
        IndexStore.create(result, form, problem.lengths, place, run)

    space.open(create)
    reachable: list[Raster] = []
    for number, raster in enumerate(rasters):
        if client is not None and isinstance(raster, ArrayRaster):
            copy = space.work.child(f"input-{number}.zarr")
            if not copy.exists():
                ingest(raster, copy, tile=form.layout.tile, shard=form.layout.shard)
            raster = StoreRaster(copy)
        reachable.append(raster)
    cancelled = Event()
    store = IndexStore(space.result, form, unfinished=True)
    with Watch(client):
        if client is not None and backend == "auto":
            backend = decide_backend(client, cancelled)
        build = Build(store, tuple(reachable), problem, backend, cancelled)
        build.run(client, tokenize(space.token, time.time_ns()), cancelled)
    space.publish()
