"""Build a distance index: one task for each shard of the rasters and the blocks in it.

A block's matrix comes by nested dissection (kernels/boundary/elimination.py): first of parts of
``block`` cells a side, which are then merged up the quadtree, ``levels`` times. Only the last ones
are kept: a query begins and ends by a relaxation inside a block, which is quicker than to read
what would save it. Tasks share nothing, and may be done again at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from dask._task_spec import Task

from orograph.arguments.barriers import BARRIERS
from orograph.distance.problem import Distance
from orograph.engines.sweep_graphs import TASKS_A_GRAPH, separate_graphs
from orograph.index.arguments import BuildSpec
from orograph.index.costs import as_stored, costs_of, record_of
from orograph.index.format import Form
from orograph.index.links import digest_of
from orograph.index.store import IndexStore
from orograph.kernels.backends import get_backend
from orograph.kernels.boundary.blocks import block_matrix
from orograph.kernels.boundary.dissection import Rectangle
from orograph.kernels.boundary.propagate import (
    leaving_costs,
    no_arrivals,
    no_costs,
    pack_panels,
    relax_edges,
    rounding,
    visit,
)
from orograph.kernels.boundary.sparsify import recover, sparsify_matrix
from orograph.kernels.stages import kernel
from orograph.run import shared_data
from orograph.run.cluster.compute import compute_graphs
from orograph.run.cluster.task_graph import Layers
from orograph.run.context import RunContext
from orograph.run.feedback import Progress
from orograph.run.job import Job
from orograph.run.monitor import begin_phase
from orograph.run.options import RunSpec
from orograph.run.run import Engine
from orograph.tiles.format.metadata import ArrayMetadata
from orograph.tiles.grid.quadtree import Node, Quadtree
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.interface import read_frame
from orograph.tiles.raster.raster import Raster
from orograph.tiles.storage import Storage
from orograph.tiles.store.sink import StoreSink

if TYPE_CHECKING:
    from distributed import Client

    from orograph.run.shared_data import Handle

T = TypeVar("T")


@dataclass(frozen=True)
class Build(Engine):
    """Engine that computes all blocks of an index from rasters."""

    store: IndexStore
    rasters: tuple[Raster, ...]
    problem: Distance
    """Distance problem on the rasters."""
    context: RunContext
    backend: str
    """Backend that eliminates the matrices of blocks: ``"numba"`` or ``"cuda"``."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the costs."""
        return np.dtype(self.store.form.dtype)

    def task_shard(self, node: Node) -> None:
        """Compute and store the blocks of a shard, then its part of each raster."""
        window = self.context.tree.window(node)
        if not self._written(window):
            self._make(window)
        # For `progress` alone: whether a shard is done is seen from its data.
        self.context.checkpoints.save("done", node, True)

    def _written(self, window: Window) -> bool:
        """Return whether an earlier run stored a shard and its blocks, and all are intact."""
        rasters, blocks = self.store.form.rasters, self.store.form.blocks_in(window)
        return all(self.context.sink.intact(name, window) for name in rasters) and all(
            map(self.store.intact, blocks)
        )

    def _make(self, window: Window) -> None:
        form, sink, names = self.store.form, self.context.sink, self.store.form.rasters
        grid = form.tree
        frame = grid.frame(window, 1)
        cells = [read_frame(raster, frame) for raster in self.rasters]
        self.problem.check(cells, frame)
        # Blocks that a killed task has written are not made again.
        todo = [block for block in form.blocks_in(window) if not self.store.intact(block)]
        places = [form.window(block) for block in todo]
        parts = [Rectangle(p.y - window.y, p.x - window.x, p.height, p.width) for p in places]
        costs = costs_of(self.problem, cells, window, frame, grid)
        self.context.stop_if_cancelled()
        # In any order: a GPU does blocks of one shape together.
        for i, matrix in kernel("solve_blocks", self.backend)(costs, parts, form.block):
            at = self.problem, cells, places[i], frame, grid
            self.store.write(todo[i], *record_of(matrix, costs_of(*at), *at))
            self.context.stop_if_cancelled()
        self.store.sync(todo)
        inner, barred = window.within(frame), self.problem.barred(cells)
        covered = None if barred is None else barred[inner]
        for name, raster in zip(names, cells, strict=False):  # of barriers nothing else is stored
            nodata = self.problem.nodata[name]
            sink.write(name, window, as_stored(raster[inner], nodata, self.dtype, covered))

    def run(self, client: Client | None, handle: Handle, cancelled: Event) -> dict[str, Any]:
        """Compute and store all blocks; an index has no attributes to return."""
        layers = Layers("distance-index", self.context.token)
        keys = (
            (layers.key("shard", node), node)
            for node in self.context.tree.nodes(self.context.shard_level)
        )
        tasks = (Task(key, _perform, handle, node) for key, node in keys)
        graphs = separate_graphs(tasks, on_threads=client is None)
        begin_phase("index")
        compute_graphs(graphs, None, client, cancelled, TASKS_A_GRAPH)
        return {}

    def progress(self) -> Progress:
        """Return the number of finished shards, and of all shards."""
        level = self.context.shard_level
        done = self.context.checkpoints.count("done", level)
        return Progress(done, self.context.tree.count(level))


def _perform(handle: Handle, node: Node) -> None:
    """Execute one task of a build: the only function that Dask calls."""
    build: Build = shared_data.load(handle)
    with get_backend(build.backend).array_memory():
        build.task_shard(node)


def warm_up(problem: Distance, sparsify: bool) -> None:
    """Compile the kernels of builds and queries by working on a tiny block."""
    shape = 4, 8
    whole = Window(0, 0, *shape)
    # Passable everywhere: 1 in rasters of costs, 0 in that of barriers.
    cells = [np.full(shape, float(name != BARRIERS)) for name in problem.nodata]
    costs = costs_of(problem, cells, whole, whole, Quadtree(shape, max(shape)))
    matrix = block_matrix(costs, Rectangle(0, 0, *shape), 4)
    panels = pack_panels(matrix.reshape(-1), len(matrix), symmetric=False)
    if sparsify:
        for symmetric in (False, True):
            recover(*sparsify_matrix(matrix, symmetric=symmetric), len(matrix), symmetric=symmetric)
    leaving_costs(costs)
    held = no_costs(1, len(matrix), problem.dtype)
    there = no_arrivals(1, len(matrix), problem.dtype)
    lowered = visit(panels, len(matrix), held, *there)
    edges = np.zeros((1, 2), np.int64), np.zeros(1, problem.dtype)
    bound = np.zeros((1, held.shape[2]), problem.dtype)
    limits = rounding(matrix.reshape(-1), *shape, 0)
    relax_edges(held, lowered, edges, slice(0, 1), bound, limits, held, *there)


@dataclass(frozen=True)
class IndexJob(Job[T]):
    """Job of building a distance index."""

    form: Form
    problem: Distance
    open_index: Callable[[Storage], T]

    def identity(self) -> dict[str, Any]:
        """Return the index's form, which includes the input's fingerprint, and step lengths."""
        return {
            "operation": "distance-index",
            "form": repr(self.form),
            "lengths": repr(self.problem.lengths.tolist()),
        }

    def warm_up(self) -> None:
        """Compile the kernels of builds and queries."""
        warm_up(self.problem, self.form.sparsify)

    def engine(self, rasters: tuple[Raster, ...], context: RunContext, backend: str) -> Build:
        """Return the engine that computes the blocks."""
        assert isinstance(context.sink, StoreSink)
        store = IndexStore(context.sink.storage, self.form, unfinished=True)
        return Build(store, rasters, self.problem, context, backend)

    def create_result(self, result: Storage, token: str) -> Mapping[str, ArrayMetadata]:
        """Create the empty store of the index."""
        place = self.rasters[0].georeference
        problem = self.problem
        IndexStore.create(result, self.form, problem.lengths, problem.links, place, token)
        return {}

    def open(self, out: Storage) -> T:
        """Open the finished index."""
        return self.open_index(out)


def index_job(
    wanted: BuildSpec, backend: str, open_index: Callable[[Storage], T], spec: RunSpec
) -> IndexJob[T]:
    """Return the job of building an index; reads all cells of the rasters for a fingerprint."""
    fingerprint = " ".join(raster.fingerprint() for raster in wanted.rasters)
    if wanted.problem.links is not None:
        fingerprint += f" {digest_of(wanted.problem.links)}"
    form = replace(wanted.form, fingerprint=fingerprint)
    of_grid = wanted.rasters, form.shape, form.layout
    problem, wraps = wanted.problem, form.wraps
    return IndexJob(*of_grid, backend, form, problem, open_index, spec=spec, wraps=wraps)
