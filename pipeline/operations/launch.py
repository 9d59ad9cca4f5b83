"""Start the run of a job: in the background now, or later as a Dask task."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from dask.base import tokenize

from orograph.engines.task_graph import Layers
from orograph.execution.options import stays_in_memory
from orograph.execution.run import Run
from orograph.operations.detached import submit_detached
from orograph.operations.geotiff import file_target
from orograph.operations.job import DatasetJob, Job
from orograph.operations.session import MemorySession, Session, StoredSession
from orograph.tiles.convert.overlap import refuse_overlap
from orograph.tiles.errors import InputError
from orograph.tiles.storage import open_storage
from orograph.tiles.store.publish import check_target

T = TypeVar("T")


def launch(job: Job[T], name: str) -> Run[T]:
    """Start a job and return its run; ``name`` is that of the operation.

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
    if spec.detach:
        return submit_detached(job, name, launch)
    if spec.resume and spec.out is None:
        raise InputError("resume: a run without out= leaves nothing to go on with; pass out=")
    target = file_target(job, spec)
    if target is None and stays_in_memory(job.rasters, spec):
        session: Session[T] = MemorySession(job, name)
    else:
        session = StoredSession(job, name, target)
    try:
        return Run(
            *(session.result, lambda: session.engine, session.cancelled, session.client),
            session.report,
        )
    except BaseException:
        session.close()
        raise


def launch_later(job: Job[Any]) -> Any:
    """Return a Delayed that writes ``out``, or a Dataset of Dask arrays computed by one run.

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

    spec, operation = job.spec, job.identity()["operation"]
    run = partial(_run_in_task, job, operation)
    token = tokenize("later", time.time_ns())  # two results are of two runs
    name = Layers(operation, token).name("run")
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


def _run_in_task(job: Job[T], name: str) -> T:
    """Execute a run inside a Dask task and return its result.

    On a worker of a cluster it leaves its thread to other tasks, which may be those of the run.
    """
    if stays_in_memory(job.rasters, job.spec) or not _is_task_of_cluster():
        return launch(job, name).result()
    from distributed import worker_client

    with worker_client() as client:
        return launch(replace(job, spec=replace(job.spec, client=client)), name).result()


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
