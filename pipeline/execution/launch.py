"""From a job to a run: in memory, or through a workspace on disk.

Everything that can be known to be wrong is found before any task exists and before anything is
written: by the operation, which checks its arguments, and here.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

from dask.base import tokenize

from orograph import __version__
from orograph.execution import jobs
from orograph.execution.checkpoints import CheckpointStore, MemoryCheckpoints
from orograph.execution.context import RunContext
from orograph.execution.first_worker import decide_backend
from orograph.execution.job import Engine, Job
from orograph.execution.options import (
    RunOptions,
    shard_level,
    stays_in_memory,
    task_level,
    where_to_work,
)
from orograph.execution.run import Run
from orograph.execution.workspace import Workspace
from orograph.settings import config, thread_count
from orograph.tiles.errors import InputError
from orograph.tiles.grid.quadtree import Quadtree
from orograph.tiles.raster.raster import ArrayRaster, Raster, StoreRaster
from orograph.tiles.store.create import add_table, update_attributes
from orograph.tiles.store.ingest import ingest
from orograph.tiles.store.overlap import refuse_overlap
from orograph.tiles.store.sink import ArraySink, Sink, StoreSink

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")


def launch(job: Job[T], options: RunOptions) -> Run[T]:
    """Start a job and return its run.

    Rasters in memory without ``out`` and ``client`` are worked on by threads of this process, and
    the result is in memory. All else goes through a workspace on disk.

    Raises
    ------
    InputError
        If the options cannot be used together, or ``out`` would overwrite an input.
    StoreExistsError
        If ``out`` exists, or an unfinished run of it, and no option says what to do.
    """
    client = where_to_work(job.rasters, options)
    if options.resume and options.out is None:
        raise InputError("resume: a run without out= leaves nothing to go on with; pass out=")
    cancelled = Event()
    engines: list[Engine] = []
    if stays_in_memory(job.rasters, options):
        work = _in_memory(job, options, cancelled, engines)
    else:
        work = _on_disk(job, options, client, cancelled, engines)
    return Run(work, lambda: engines[0] if engines else None, cancelled, client)


def _in_memory(
    job: Job[T], options: RunOptions, cancelled: Event, engines: list[Engine]
) -> Callable[[], T]:
    sink = job.sink()
    tree = Quadtree(job.shape, job.layout.tile)
    level = task_level(tree) if options.shard is None else shard_level(job.layout)
    token = tokenize("memory", time.time_ns())
    context = RunContext(tree, level, MemoryCheckpoints(), sink, token, thread_count(), cancelled)
    engine = job.engine(job.rasters, context, job.backend)
    engines.append(engine)

    def work() -> T:
        job.warm_up()
        return job.collect(engine, sink, engine.run(None, engine, cancelled))

    return work


def _on_disk(
    job: Job[T],
    options: RunOptions,
    client: Client | None,
    cancelled: Event,
    engines: list[Engine],
) -> Callable[[], T]:
    scratch, out, identity = None, options.out, {}
    if out is None:
        scratch = tempfile.TemporaryDirectory(
            prefix="orograph-", dir=config.get("scratch") or None, ignore_cleanup_errors=True
        )
        out = Path(scratch.name) / "result.zarr"
    else:
        # not for a folder that no other run can find: fingerprints may take reading all cells
        identity = {**job.identity(), "orograph": __version__}
    for raster in job.rasters:
        refuse_overlap(raster, out)
    space = Workspace(out, identity, overwrite=options.overwrite, resume=options.resume)

    def run_in(checkpoints: CheckpointStore, sink: Sink) -> tuple[Engine, dict[str, Any]]:
        backend = job.backend
        if client is not None and backend == "auto":
            backend = decide_backend(client, cancelled)
        context = RunContext(
            Quadtree(job.shape, job.layout.tile),
            shard_level(job.layout),
            checkpoints,
            sink,
            # names of tasks are never used twice: a result that the cluster still holds from an
            # earlier run would stand for work that this one has to do
            tokenize(space.token, time.time_ns()),
            0 if client else thread_count(),
            None if client else cancelled,
        )
        engine = job.engine(_reachable(job, space, client), context, backend)
        engines.append(engine)
        with jobs.shared(engine, client) as handle:
            return engine, engine.run(client, handle, cancelled)

    def do() -> T:
        if space.finished:
            # it was published, and killed before it could tidy up
            space.clear()
            return job.open(space.out)
        job.warm_up()
        checkpoints = space.open(job.create_result)
        if not job.stored:
            nothing = ArraySink({})
            engine, attributes = run_in(checkpoints, nothing)
            return job.collect(engine, nothing, attributes)
        engine, attributes = run_in(checkpoints, StoreSink(space.result))
        if attributes:
            update_attributes(space.result, None, attributes)
        add_table(space.result, engine.table())
        space.publish()
        result = job.open(space.out)
        return result if scratch is None else job.load(result)

    def work() -> T:
        try:
            return do()
        finally:
            if scratch is not None:
                scratch.cleanup()

    return work


def _reachable(job: Job[Any], space: Workspace, client: Client | None) -> tuple[Raster, ...]:
    """Return the rasters, with stored copies of those that only this process can read."""
    reachable: list[Raster] = []
    for number, raster in enumerate(job.rasters):
        if client is not None and isinstance(raster, ArrayRaster):
            copy = space.work.child(f"input-{number}.zarr")
            if not copy.exists():
                ingest(raster, copy, tile=job.layout.tile, shard=job.layout.shard)
            raster = StoreRaster(copy)
        reachable.append(raster)
    return tuple(reachable)
