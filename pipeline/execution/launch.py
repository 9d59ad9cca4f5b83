"""From the arguments of an operation to a run: the door, where bad input is refused.

Everything that can be known to be wrong is found here, before any task exists and before
anything is written.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import xarray as xr
from dask.base import tokenize

from orograph import __version__
from orograph.execution import jobs
from orograph.execution.checkpoints import MemoryCheckpoints
from orograph.execution.clusters import current_client
from orograph.execution.context import RunContext
from orograph.execution.first_worker import decide_backend
from orograph.execution.run import Progress, Run
from orograph.execution.workspace import Workspace
from orograph.settings import config
from orograph.tiles.errors import InputError
from orograph.tiles.grid.quadtree import Node, Quadtree
from orograph.tiles.raster.raster import ArrayRaster, Raster, StoreRaster
from orograph.tiles.store.create import Layout, Variable, add_table, create_store, update_attributes
from orograph.tiles.store.dataset import open_dataset
from orograph.tiles.store.overlap import refuse_overlap
from orograph.tiles.store.sink import ArraySink, StoreSink
from orograph.tiles.store.storage import Location, Storage

if TYPE_CHECKING:
    from distributed import Client

# attributes of a raster that speak of its values, and so not of the result's
_OF_VALUES = {
    "_FillValue", "missing_value", "scale_factor", "add_offset", "units", "long_name",
    "standard_name", "valid_min", "valid_max", "valid_range", "actual_range", "grid_mapping",
    "flag_values", "flag_masks", "flag_meanings", "AREA_OR_POINT", "dtype",
}  # fmt: skip


@dataclass(frozen=True)
class RunOptions:
    """How a run is done, as against what it computes: the arguments every operation has."""

    tile: int | None = None
    out: Location | None = None
    overwrite: bool = False
    resume: bool = False
    wait: bool = True
    client: Client | None = None


def check_choice(name: str, value: Any, known: tuple[Any, ...]) -> None:
    """Refuse a value that is not one of the known ones."""
    if value not in known:
        listed = ", ".join(repr(k) for k in known)
        raise InputError(f"{name}: {value!r} is unknown; use one of {listed}")


class Engine(Protocol):
    """A run of one of the two engines: `QuadtreePass` or `Frontier`."""

    def run(self, client: Client | None, handle: Any, cancelled: Event) -> dict[str, Any]:
        """Do all the work; the attributes of the result."""

    def table(self) -> Mapping[str, tuple[tuple[str, ...], Iterable[npt.NDArray[Any]]]]:
        """What the result has beside its rasters: names, dimensions and columns, in pieces."""

    def progress(self) -> Progress:
        """How far the work is; called from any thread."""

    def statistics(self) -> dict[str, int]:
        """How much work it was, where that depends on the order in which it was done."""


@dataclass(frozen=True)
class RunSpec:
    """What is to be done: a problem, on which rasters, by which engine."""

    engine: Callable[..., Engine]
    problem: Any
    rasters: tuple[Raster, ...]
    parameters: Mapping[str, Any]
    """What beside the rasters decides the result, in JSON types."""
    warm_up: Callable[[], None] | None
    """Compiles the kernels, so that workers find them in the cache; None: no Numba kernels."""
    least_tile: int = 1
    """Cells a side that a tile must have, so that no edge goes beyond its neighbours."""


def launch(order: RunSpec, options: RunOptions) -> xr.Dataset | Run:
    """Start a run.

    Rasters in memory without ``out`` and ``client`` are worked on by threads of this process, and
    the result is in memory. All else goes through a workspace on disk.
    """
    first = order.rasters[0]
    tile = options.tile if options.tile is not None else first.tile or config.get("tile")
    layout = run_layout(first.shape, max(Layout(tile, tile).tile, order.least_tile))
    client = where_to_work(order.rasters, options)
    if stays_in_memory(order.rasters, options):
        if options.resume:
            raise InputError("resume: a run in memory leaves nothing to go on with; pass out=")
        work, engine, cancelled = _in_memory(order, layout)
    else:
        work, engine, cancelled = _on_disk(order, layout, options, client)
    run = Run(work, engine, cancelled, client)
    return run.result() if options.wait else run


def stays_in_memory(rasters: tuple[Raster, ...], options: RunOptions) -> bool:
    """Does a run have no workspace on disk?"""
    in_memory = all(isinstance(raster, ArrayRaster) for raster in rasters)
    return options.out is None and options.client is None and in_memory


def where_to_work(rasters: tuple[Raster, ...], options: RunOptions) -> Client | None:
    """The client of the cluster that will do a run's work; None: threads of this process."""
    client = options.client
    if client is not None and not hasattr(client, "scheduler_info"):
        raise InputError(f"client: {client!r} is no Dask client; pass a distributed.Client")
    return None if stays_in_memory(rasters, options) else client or current_client()


def run_layout(shape: tuple[int, int], tile: int) -> Layout:
    """Tiles, and the shards that one task does: some 2048 cells a side, 16 tiles at the most."""
    side = Layout(tile, tile).tile
    side = min(side, max(shape))
    shard = side
    while shard < min(2048, max(shape)) and shard < 16 * side:
        shard *= 2
    return Layout(side, shard)


def task_level(tree: Quadtree) -> int:
    """The level whose nodes one task does in memory: some quarter to one million cells each.

    Above it each node makes two tasks more, so that there are at most four a tile; along a grid one
    such node wide as many nodes lie above as in it, and up to 2 log2(nodes) tasks come on top.
    """
    level = 0
    while level < tree.root.level and tree.window(Node(level, 0)).size <= 2**18:
        level += 1
    return level


_Parts = tuple[Callable[[], xr.Dataset], Callable[[], Engine | None], Event]


def _in_memory(order: RunSpec, layout: Layout) -> _Parts:
    first, outputs = order.rasters[0], order.problem.outputs
    arrays = {v.name: np.empty(first.shape, v.dtype) for v in outputs}
    cancelled = Event()
    tree = Quadtree(first.shape, layout.tile)
    engine = order.engine(
        problem=order.problem,
        rasters=order.rasters,
        context=RunContext(
            tree,
            task_level(tree),
            MemoryCheckpoints(),
            ArraySink(arrays),
            tokenize("memory", time.time_ns()),
            cancelled,
        ),
    )

    def work() -> xr.Dataset:
        if order.warm_up is not None:
            order.warm_up()
        attributes = engine.run(None, engine, cancelled)
        place = first.georeference
        dims = (place.y_name, place.x_name)
        variables: dict[str, Any] = {v.name: (dims, arrays[v.name], _stated(v)) for v in outputs}
        for name, (table_dims, column) in engine.table().items():
            variables[name] = table_dims, np.concatenate(list(column))
        header = {**_inherited(first), "Conventions": "CF-1.10", **attributes}
        return xr.Dataset(variables, coords=place.coords(), attrs=header)

    return work, lambda: engine, cancelled


def _on_disk(order: RunSpec, layout: Layout, options: RunOptions, client: Client | None) -> _Parts:
    first = order.rasters[0]
    identity = {
        "operation": order.problem.name,
        **order.parameters,
        "input": [raster.fingerprint() for raster in order.rasters],
        "tile": layout.tile,
        "shard": layout.shard,
        "orograph": __version__,
    }
    scratch = None
    out = options.out
    if out is None:
        scratch = tempfile.TemporaryDirectory(
            prefix="orograph-", dir=config.get("scratch") or None, ignore_cleanup_errors=True
        )
        out = Path(scratch.name) / "result.zarr"
    for raster in order.rasters:
        refuse_overlap(raster, out)
    space = Workspace(out, identity, overwrite=options.overwrite, resume=options.resume)
    cancelled = Event()
    engines: list[Engine] = []

    def create_result(result: Storage, run: str) -> None:
        place, attrs = first.georeference, _inherited(first)
        create_store(result, first.shape, layout, order.problem.outputs, place, attrs, run)

    def work() -> xr.Dataset:
        if space.finished:
            # it was published, and killed before it could tidy up
            space.clear()
            return open_dataset(space.out)
        problem = order.problem
        if client is not None and problem.backend == "auto":
            problem = replace(problem, backend=decide_backend(client, cancelled))
        if order.warm_up is not None:
            order.warm_up()
        checkpoints = space.open(create_result)
        # names of tasks are never used twice: a result that the cluster still holds from an
        # earlier run would stand for work that this one has to do
        token = tokenize(space.token, time.time_ns())
        engine = order.engine(
            problem=problem,
            rasters=_reachable(order.rasters, space, layout, client),
            context=RunContext(
                Quadtree(first.shape, layout.tile),
                (layout.shard // layout.tile).bit_length() - 1,
                checkpoints,
                StoreSink(space.result),
                token,
                None if client else cancelled,
            ),
        )
        engines.append(engine)
        with jobs.shared(engine, client) as handle:
            attributes = engine.run(client, handle, cancelled)
        update_attributes(space.result, None, attributes)
        add_table(space.result, engine.table())
        space.publish()
        result = open_dataset(space.out)
        if scratch is not None:
            result = result.load()
            result.close()
            scratch.cleanup()
        return result

    return work, lambda: engines[0] if engines else None, cancelled


def _reachable(
    rasters: tuple[Raster, ...], space: Workspace, layout: Layout, client: Client | None
) -> tuple[Raster, ...]:
    """The rasters, stored copies in place of those that live in this process's memory only."""
    from orograph.tiles.store.ingest import ingest

    reachable: list[Raster] = []
    for number, raster in enumerate(rasters):
        if client is not None and isinstance(raster, ArrayRaster):
            copy = space.work.child(f"input-{number}.zarr")
            if not copy.exists():
                ingest(raster, copy, tile=layout.tile, shard=layout.shard)
            raster = StoreRaster(copy)
        reachable.append(raster)
    return tuple(reachable)


def _stated(variable: Variable) -> dict[str, Any]:
    """The attributes of a variable in memory: as `open_dataset` shows those of a stored one."""
    fill = {} if variable.fill_value is None else {"_FillValue": variable.fill_value}
    return {**variable.attrs, **fill}


def _inherited(raster: Raster) -> dict[str, Any]:
    return {name: value for name, value in raster.attrs.items() if name not in _OF_VALUES}
