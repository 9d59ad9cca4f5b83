"""Start the run of a job: in the background now, or later as a Dask task."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from multiprocessing import parent_process
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from dask.base import tokenize

from orograph.run.base_session import Session
from orograph.run.cluster.task_graph import Layers
from orograph.run.detached import submit_detached
from orograph.run.file_target import FileTarget, file_target
from orograph.run.icechunk_target import IcechunkTarget, icechunk_target
from orograph.run.job import DatasetJob, Job
from orograph.run.monitor import Planned, Record, unplanned
from orograph.run.options import RunSpec, stays_in_memory
from orograph.run.run import Run
from orograph.run.scratch import ScratchResult
from orograph.run.session import MemorySession, StoredSession
from orograph.tiles.convert.overlap import refuse_overlap
from orograph.tiles.errors import InputError
from orograph.tiles.grid.window import Window
from orograph.tiles.store.publish import check_target

T = TypeVar("T")


def launch(
    job: Job[T], name: str, planned: Planned = unplanned, *, keep: bool = False, wait: bool = False
) -> Run[T]:
    """Start a job and return its run; ``name`` is that of the operation.

    For ``planned`` see `Record`, for ``keep`` `StoredSession`. With ``wait`` brief work in
    memory is done when this returns.

    Rasters in memory without ``out`` and ``client`` are worked on by threads of this process, and
    the result is in memory. All else goes through a workspace on disk.

    Raises
    ------
    InputError
        If the options cannot be used together, or ``out`` would overwrite an input.
    StoreExistsError
        If ``out`` exists, or an unfinished run of it, and no option says what to do; or if another
        writer is working on it.
    """
    spec = job.spec
    if spec.detach:
        return submit_detached(job, name, launch, planned)
    if spec.resume and spec.storage is None:
        raise InputError("resume: a run without out= leaves nothing to go on with; pass out=")
    target, record = _target(job, spec), Record(planned)
    in_memory = target is None and stays_in_memory(job.rasters, spec)
    if in_memory:
        session: Session[T] = MemorySession(job, name, record)
    else:
        session = StoredSession(job, name, record, target, keep)
    try:
        return Run(
            *(session.result, lambda: session.engine, session.cancelled, session.client),
            session.report,
            record,
            here=wait and in_memory and job.is_brief,
            concerns=session.concerns,
        )
    except BaseException:
        # The thread of the run closes the session, but there is none if the run could not start.
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
    if spec.storage is not None:
        # Checked now, as the run begins only when Dask computes the result.
        for raster in job.rasters:
            refuse_overlap(raster, spec.storage)
    if spec.out is not None:
        if _target(job, spec) is None and spec.storage is not None:
            check_target(spec.storage, spec.overwrite or spec.resume)
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
    chunks = da.core.normalize_chunks(job.layout.shard, job.shape)
    arrays = {
        v.name: da.map_blocks(
            _read_piece,
            chunks=chunks,
            meta=np.empty((0, 0), v.dtype),
            # Names of layers are words and hyphens.
            name=Layers(operation, token).name(v.name.replace("_", "-")),
            result=result,
            variable=v.name,
        )
        for v in job.outputs
    }
    return job.dataset(arrays, {}, job.known_attributes)


def _target(job: Job[Any], spec: RunSpec) -> FileTarget | IcechunkTarget | None:
    """Return the file or the repository that ``out`` names; None if it is a store or missing."""
    return icechunk_target(job, spec) or file_target(job, spec)


def _read_piece(result: Any, variable: str, block_info: Any = None) -> npt.NDArray[Any]:
    """Return one chunk of a raster of a result, which is in memory or in a temporary store."""
    (top, bottom), (left, right) = block_info[None]["array-location"]
    window = Window(top, left, bottom - top, right - left)
    if isinstance(result, ScratchResult):
        return result.read(variable, window)
    cells: npt.NDArray[Any] = result[variable].data[window.slices]
    return cells


def _run_in_task(job: Job[Any], name: str) -> Any:
    """Execute a run inside a Dask task and return its result, or a `ScratchResult` of it.

    On a worker of a cluster it leaves its thread to other tasks, which may be those of the run.
    Its result is then in memory, as those of tasks in other processes are: whoever has a copy of
    it would not know when the store can go.
    """
    if stays_in_memory(job.rasters, job.spec) or not _is_task_of_cluster():
        keep = isinstance(job, DatasetJob) and parent_process() is None
        found: Any = launch(job, name, keep=keep).result()
        # made here, as the run holds what it has returned for longer than Dask does
        return ScratchResult(*found) if isinstance(found, tuple) else found
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
