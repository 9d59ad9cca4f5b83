"""Start the run of a job, in memory or through a workspace on disk.

Everything that can be known to be wrong is found before any task exists and before anything is
written: by the operation, which checks its arguments, and here.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dask.base import tokenize

from orograph import __version__
from orograph.engines.task_graph import Layers
from orograph.execution import jobs
from orograph.execution.checkpoints import CheckpointStore, MemoryCheckpoints
from orograph.execution.clusters import LateClient, memory_of_worker, threads_of_workers
from orograph.execution.context import RunContext
from orograph.execution.first_worker import decide_backend
from orograph.execution.geotiff import check_place, file_target
from orograph.execution.job import DatasetJob, Engine, Job
from orograph.execution.options import (
    RunSpec,
    shard_level,
    stays_in_memory,
    task_level,
    where_to_work,
)
from orograph.execution.run import Run
from orograph.execution.workers import Witness, check_workers, leave_witness
from orograph.execution.workspace import Workspace
from orograph.kernels.backends import get_backend, may_use_numba
from orograph.settings import setting, thread_count
from orograph.tiles.convert.ingest import ingest
from orograph.tiles.convert.overlap import refuse_overlap
from orograph.tiles.errors import Cancelled, InputError, RunError
from orograph.tiles.grid.quadtree import Quadtree
from orograph.tiles.raster.raster import ArrayRaster, Raster, StoreRaster
from orograph.tiles.raster.unchanged import refuse_changed, suppress_unreadable
from orograph.tiles.raster.version import UNVERSIONED
from orograph.tiles.storage import Storage, open_storage
from orograph.tiles.store.create import add_table, update_attributes
from orograph.tiles.store.lease import Lease
from orograph.tiles.store.publish import check_target
from orograph.tiles.store.sink import ArraySink, Sink, StoreSink
from orograph.tiles.store.verify import verify

if TYPE_CHECKING:
    import xarray as xr
    from distributed import Client

T = TypeVar("T")


def launch(job: Job[T]) -> Run[T]:
    """Start a job and return its run.

    Rasters in memory without ``out`` and ``client`` are worked on by threads of this process, and
    the result is in memory. All else goes through a workspace on disk.

    Raises
    ------
    InputError
        If the options cannot be used together, or ``out`` would overwrite an input.
    StoreExistsError
        If ``out`` exists, or an unfinished run of it, and no option says what to do; or if another
        writer is at work on it.
    """
    spec = job.spec
    if spec.resume and spec.out is None:
        raise InputError("resume: a run without out= leaves nothing to go on with; pass out=")
    cancelled = Event()
    engines: list[Engine] = []
    held = ExitStack()  # leases and a folder, until the run ends or turns out not to begin
    try:
        work, client = _prepare(job, spec, cancelled, engines, held)

        def work_and_release() -> T:
            with held:
                result = work()
            if spec.out is None and isinstance(job, DatasetJob) and job.on_gpu:
                return cast("T", job.to_gpu(cast("xr.Dataset", result)))
            return result

        return Run(work_and_release, lambda: engines[0] if engines else None, cancelled, client)
    except BaseException:
        held.close()
        raise


def launch_later(job: Job[Any]) -> Any:
    """Return a Delayed that writes ``out``, or a Dataset of Dask arrays that all wait for one run.

    For a job whose result is not a store, return a Delayed of that. Attributes of the Dataset are
    those that are known beforehand; counts of cells are not.

    Raises
    ------
    InputError
        If the result has a table, whose length only the run can tell, and there is no ``out``.
    StoreExistsError
        If ``out`` exists, and is not to be replaced.
    """
    import dask.array as da
    from dask.delayed import delayed

    spec, run = job.spec, partial(_run_in_task, job)
    token = tokenize("later", time.time_ns())  # two results are of two runs
    name = Layers(job.identity()["operation"], token).name("run")
    # nothing is traversed: a raster may be of Dask arrays, which the run reads by itself
    result = delayed(run, name=f"{name}-function", traverse=False)(dask_key_name=name)
    if spec.out is not None:
        for raster in job.rasters:
            refuse_overlap(raster, spec.out)
        if file_target(job, spec) is None:
            check_target(open_storage(spec.out), spec.overwrite or spec.resume)
        return result
    if not job.stored:
        return result
    if not isinstance(job, DatasetJob) or not job.outputs:
        raise InputError(
            ".lazy: the result is a table, which is made in one piece; give a store, such as "
            "out='x.zarr'"
        )
    if job.has_table:
        raise InputError(
            ".lazy: the result has a table, whose length is known at the end alone; leave the "
            "table out of outputs=, or give a store, such as out='x.zarr'"
        )
    arrays = {
        v.name: da.from_delayed(result[v.name].data, job.shape, v.dtype).rechunk(job.layout.shard)
        for v in job.outputs
    }
    return job.dataset(arrays, {}, job.known_attributes)


def _run_in_task(job: Job[T]) -> T:
    """Return the result of a run that is itself a task of Dask.

    On a worker of a cluster it leaves its thread to other tasks, which may be those of the run.
    """
    if stays_in_memory(job.rasters, job.spec) or not _is_task_of_cluster():
        return launch(job).result()
    from distributed import worker_client

    with worker_client() as client:
        return launch(replace(job, spec=replace(job.spec, client=client))).result()


def _is_task_of_cluster() -> bool:
    """Return whether a worker of a cluster is running this thread."""
    if "distributed" not in sys.modules:
        return False
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


def _prepare(
    job: Job[T], spec: RunSpec, cancelled: Event, engines: list[Engine], held: ExitStack
) -> tuple[Callable[[], T], Client | None]:
    """Return the work of a run and the client that it uses; what it holds goes into ``held``."""
    target = file_target(job, spec)
    if target is None:
        if stays_in_memory(job.rasters, spec):
            return _in_memory(job, spec, cancelled, engines), None
        return _on_disk(job, spec, cancelled, engines, held)
    for raster in job.rasters:
        refuse_overlap(raster, target.path)
    lease = Lease(target.path, spec.takeover).acquire(cancelled)
    held.callback(lease.release)
    check_place(target, spec)  # another may have written it meanwhile
    spec = replace(spec, out=target.store)
    write = partial(target.write, lease=lease)
    work, client = _on_disk(job, spec, cancelled, engines, held, write)

    def work_and_explain() -> T:
        with lease.errors():
            return work()

    return work_and_explain, client


def _in_memory(
    job: Job[T], spec: RunSpec, cancelled: Event, engines: list[Engine]
) -> Callable[[], T]:
    sink = job.sink()
    tree = Quadtree(job.shape, job.layout.tile)
    level = task_level(tree) if spec.shard is None else shard_level(job.layout)
    token = tokenize("memory", time.time_ns())
    gpus, gpu_memory = _gpus(job.backend, None)
    context = RunContext(
        *(tree, level, MemoryCheckpoints(), sink, token, thread_count(), cancelled),
        gpus=gpus,
        gpu_memory=gpu_memory,
    )
    engine = job.engine(job.rasters, context, job.backend)
    engines.append(engine)

    def work() -> T:
        job.warm_up()
        return job.collect(engine, sink, engine.run(None, engine, cancelled))

    return work


def _gpus(backend: str, client: Client | None) -> tuple[int, int]:
    """Return how many GPUs do the work of a run, and the bytes that its tiles may take on each."""
    if may_use_numba(backend):
        return 0, 0
    if client is None:
        return 1, _memory_of_gpu(backend)
    found = client.run(_memory_of_gpu, backend, on_error="ignore").values()
    return max(len(found), 1), min(found, default=0)


def _memory_of_gpu(backend: str) -> int:
    """Return the bytes that tiles may take on the GPU of this process."""
    return get_backend(backend).tile_memory_limit() or 0


def _on_disk(
    job: Job[T],
    spec: RunSpec,
    cancelled: Event,
    engines: list[Engine],
    held: ExitStack,
    write: Callable[[Storage], Any] | None = None,
) -> tuple[Callable[[], T], Client | None]:
    """Return work and client of a run on disk; ``write``, if given, makes its result."""
    scratch, out, identity, lease = None, spec.out, {}, None
    if out is None:
        scratch = held.enter_context(
            tempfile.TemporaryDirectory(
                prefix="orograph-", dir=setting("scratch"), ignore_cleanup_errors=True
            )
        )
        # renamed first: tasks of a cluster that end after the run find nowhere to write
        held.callback(open_storage(scratch).delete_all)
        out = Path(scratch) / "result.zarr"
    else:
        # not for a folder that no other run can find: fingerprints may take reading all cells
        identity = {**job.identity(), "orograph": __version__}
        if spec.resume:
            _refuse_unversioned(job.rasters)
    for raster in job.rasters:
        refuse_overlap(raster, out)
    before = job.first_versions
    if scratch is None:
        lease = Lease(out, spec.takeover).acquire(cancelled)
        held.callback(lease.release)
    space = Workspace(out, identity, overwrite=spec.overwrite, resume=spec.resume, lease=lease)
    found = where_to_work(job.rasters, spec)
    client = found.start() if isinstance(found, LateClient) else found

    def run_in(checkpoints: CheckpointStore, sink: Sink) -> tuple[Engine, dict[str, Any]]:
        backend, witness = job.backend, None
        if client is not None and backend == "auto":
            backend = decide_backend(client, cancelled)
        if client is not None:
            witness = _call_workers(client, space)
        gpus, gpu_memory = _gpus(backend, client)
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
            gpus=gpus,
            gpu_memory=gpu_memory,
            cluster_threads=threads_of_workers(client) if client else 0,
            worker_memory=memory_of_worker(client) if client else 0,
        )
        engine = job.engine(_reachable(job, space, client), context, backend)
        engines.append(engine)
        try:
            with jobs.shared(engine, client, witness) as handle:
                return engine, engine.run(client, handle, cancelled)
        except InputError:
            with suppress(RunError):  # whoever has taken the place of this run has its folder too
                space.check()
                space.clear()  # no run with this input can be finished, so none can go on from here
            raise

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
            refuse_changed(before, job.versions())
            return job.collect(engine, nothing, attributes)
        engine, attributes = run_in(checkpoints, StoreSink(space.result))
        if attributes:
            update_attributes(space.result, None, attributes)
        table = engine.table()
        add_table(space.result, table, {name: job.column_attributes(name) for name in table})
        refuse_changed(before, job.versions())
        if write is not None:
            written: T = write(space.result)
            space.clear()
            return written
        space.publish()
        result = job.open(space.out)
        return result if scratch is None else job.load(result)

    def work() -> T:
        try:
            return do()
        except Exception as error:
            _explain(error, job, space)
            raise

    return work, client


def _explain(error: Exception, job: Job[Any], space: Workspace) -> None:
    """Raise RunError if a run has failed because of what others did to its folder or inputs."""
    try:
        space.check(error)
    except RunError as lost:
        raise lost from error
    if isinstance(error, Cancelled):
        return
    try:
        with suppress_unreadable():
            refuse_changed(job.first_versions, job.versions(), error)
    except RunError:
        space.clear()  # it holds parts of both inputs
        raise


def _refuse_unversioned(rasters: tuple[Raster, ...]) -> None:
    for raster in rasters:
        if raster.fingerprint().startswith(UNVERSIONED):
            raise InputError(
                f"resume: neither an ETag nor a time is known of the input {raster}, so nothing "
                "tells whether it is still the same; pass overwrite=True to start anew, or ingest "
                "it first"
            )


def _call_workers(client: Client, space: Workspace) -> Witness:
    """Check all workers, and return the witness for later ones; raise RunError if one fails."""
    witness = leave_witness(space.work, space.token)
    try:
        check_workers(client, witness)
    except RunError:
        if not space.resumed:
            space.clear()
        raise
    return witness


def _is_whole(copy: Storage) -> bool:
    """Return whether a copy of an input is there, and matches its checksums."""
    try:
        return verify(copy).ok
    except InputError:
        return False


def _reachable(job: Job[Any], space: Workspace, client: Client | None) -> tuple[Raster, ...]:
    """Return the rasters, with stored copies of those that only this process can read."""
    reachable: list[Raster] = []
    for number, raster in enumerate(job.rasters):
        if client is not None and isinstance(raster, ArrayRaster):
            copy = space.work.child(f"input-{number}.zarr")
            if not _is_whole(copy):
                copy.delete_all()
                # whoever began it is gone: this run holds the folder
                ingest(raster, copy, tile=job.layout.tile, shard=job.layout.shard, takeover=True)
            raster = StoreRaster(copy)
        reachable.append(raster)
    return tuple(reachable)
