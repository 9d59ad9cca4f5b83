"""Sessions: execute a job from its last checks to its result, in memory or on disk.

Everything that can be known to be wrong is found before any task exists and before anything is
written: by the operation, which checks its arguments, and when its session is made.
"""

from __future__ import annotations

import json
import logging
import math
import tempfile
import time
import warnings
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dask.base import tokenize

from orograph import __version__
from orograph.execution import jobs
from orograph.execution.backends import gpus_of
from orograph.execution.checkpoints import CheckpointStore, MemoryCheckpoints
from orograph.execution.clusters import (
    LateClient,
    memory_of_machine,
    memory_of_worker,
    threads_of_workers,
)
from orograph.execution.context import RunContext
from orograph.execution.options import shard_level, task_level, too_many_shards, where_to_work
from orograph.execution.run import Engine
from orograph.execution.settings import setting, thread_count
from orograph.execution.watch import Record, begin_phase
from orograph.execution.workers import Witness, check_workers, leave_witness
from orograph.operations.file_target import FileTarget, check_place
from orograph.operations.first_worker import decide_backend
from orograph.operations.job import Job
from orograph.operations.workspace import Workspace, is_whole, refuse_unversioned
from orograph.tiles.convert.icechunk_branch import REPOSITORY
from orograph.tiles.convert.ingest import ingest
from orograph.tiles.convert.overlap import refuse_overlap
from orograph.tiles.errors import Cancelled, InputError, OrographError, RunError
from orograph.tiles.format.metadata import REPORT
from orograph.tiles.grid.quadtree import Quadtree
from orograph.tiles.raster.raster import ArrayRaster, Raster, StoreRaster
from orograph.tiles.raster.unchanged import refuse_changed, suppress_unreadable
from orograph.tiles.storage import Location, open_storage
from orograph.tiles.store.create import ColumnsInTurns, add_table, update_attributes
from orograph.tiles.store.lease import Lease
from orograph.tiles.store.sink import ArraySink, Sink, StoreSink

if TYPE_CHECKING:
    from distributed import Client

    from orograph.operations.icechunk_target import IcechunkTarget

T = TypeVar("T")
LOG = logging.getLogger(__name__)
PACKAGES = ("dask", "distributed", "numba", "numpy", "xarray", "zarr")
"""Packages whose versions a report names."""


class Session(ABC, Generic[T]):
    """Execution of one job, holding its leases and temporary folders until `close`.

    To make it, all that can be checked before the work has been checked.

    Attributes
    ----------
    name
        The name of the operation, for the log.
    cancelled
        The event by which the work learns that it is to stop.
    client
        The client of the cluster that does the work; None for threads of this process.
    engine
        The engine that is at work; None before there is one.
    record
        Of the phases and the memory of the run.
    """

    def __init__(self, job: Job[T], name: str, record: Record) -> None:
        self.job = job
        self.name = name
        self.record = record
        self.cancelled = Event()
        self.client: Client | None = None
        self.engine: Engine | None = None
        self.bytes_written = 0
        self._begun = datetime.now(UTC)
        self._error: BaseException | None = None

    @abstractmethod
    def work(self) -> T:
        """Execute the job and return its result; subclasses implement this."""

    def close(self) -> None:
        """Release leases and remove temporary folders."""

    def result(self) -> T:
        """Execute the job, release all resources, and return the result."""
        begin, out = time.monotonic(), self._out
        place = "into memory" if out is None else f"to {out}"
        LOG.info("%s of %s begins, %s, %s", self.name, self._subject(), self._workers, place)
        try:
            with self._span():
                begin_phase("checks")
                found = self.work()
        except BaseException as error:
            self._error = error
            ended = f"{self.name} {self._status} after {_since(begin)}"
            if isinstance(error, Cancelled):
                LOG.info("%s; %s", ended, self._next_step)
            else:
                LOG.error("%s: %s; %s", ended, error, self._next_step)
            self.leave_report()
            raise
        finally:
            self.close()
        LOG.info("%s is finished after %s", self.name, _since(begin))
        return found if self.job.spec.out is not None else self.job.like_input(found)

    def _span(self) -> AbstractContextManager[Any]:
        """Return a context in which tasks belong to a span of Dask named for the operation."""
        if self.client is None:
            return nullcontext()
        from distributed import span

        return span(f"orograph.{self.name}")

    @property
    def resumed(self) -> bool:
        """Whether the run goes on from what an earlier one has left."""
        return False

    def report(self) -> dict[str, Any]:
        """Return the arguments of the run and the error that ended it; see `Run.report`."""
        job, error = self.job, self._error
        return {
            "operation": self.name,
            "inputs": [str(raster) for raster in job.rasters],
            "parameters": json.loads(json.dumps(getattr(job, "parameters", {}), default=str)),
            "shape": list(job.shape),
            "tile": job.layout.tile,
            "shard": job.layout.shard,
            "out": self._out,
            "workers": self._workers.removeprefix("on "),
            "backend": job.backend,
            "versions": {"orograph": __version__, **{name: version(name) for name in PACKAGES}},
            "begun": self._begun.isoformat(timespec="seconds"),
            "resumed": self.resumed,
            "bytes": self.bytes_written,
            "error": error
            and {
                "type": type(error).__name__,
                "message": str(error),
                "where": "; ".join(getattr(error, "__notes__", [])),
            },
            "next": error and self._next_step,
        }

    def leave_report(self) -> None:
        """Write the report to where the run can be resumed from, if it can."""

    @property
    def _status(self) -> str:
        if self._error is None:
            return "running"
        return "cancelled" if isinstance(self._error, Cancelled) else "failed"

    @property
    def _next_step(self) -> str:
        """Say what to do about a run that has ended without a result."""
        if self.job.writes_store and not isinstance(self._error, InputError):
            return "call it again with resume=True (--resume), which goes on from there"
        return "call it again"

    @property
    def _out(self) -> str | None:
        """Name what the result is written to, for the log and reports."""
        spec = self.job.spec
        if spec.out is None:
            return None
        return REPOSITORY if spec.storage is None else str(spec.storage)

    def _subject(self) -> str:
        """Describe the input and how it is cut, for the log."""
        rows, columns = self.job.shape
        if not self.job.rasters:
            return f"a graph of {rows} vertices"
        layout = self.job.layout
        return f"{rows} x {columns} cells in tiles of {layout.tile} and shards of {layout.shard}"

    @cached_property
    def _workers(self) -> str:
        """Words for what does the work, asked for while the cluster is there."""
        if self.client is None:
            return f"on {thread_count()} threads"
        return f"on the cluster at {self.client.scheduler.address}"  # type: ignore[union-attr]


def _since(begin: float) -> str:
    """Return the seconds since a moment as text."""
    return f"{time.monotonic() - begin:.1f} s"


class MemorySession(Session[T]):
    """Execution by threads of this process, from rasters in memory to a result in memory."""

    def __init__(self, job: Job[T], name: str, record: Record) -> None:
        super().__init__(job, name, record)
        tree = Quadtree(job.shape, job.layout.tile)
        gpus, gpu_memory = gpus_of(job.backend, None)
        self.sink = job.sink()
        context = RunContext(
            tree,
            task_level(tree) if job.spec.shard is None else shard_level(job.layout),
            MemoryCheckpoints(),
            self.sink,
            tokenize("memory", time.time_ns()),
            thread_count(),
            self.cancelled,
            gpus=gpus,
            gpu_memory=gpu_memory,
        )
        self.engine = job.engine(job.rasters, context, job.backend)

    def work(self) -> T:
        """Run the engine and build the result from the arrays it filled."""
        engine = self.engine
        assert engine is not None
        self.job.warm_up()
        return self.job.collect(engine, self.sink, engine.run(None, engine, self.cancelled))


class StoredSession(Session[T]):
    """Execution through a workspace on disk, by threads or by a cluster.

    Attributes
    ----------
    target
        The file or repository that is to be written; None where the result is a store.
    keep
        Whether a result without ``out`` stays in its temporary store: `work` then returns the
        store, and a function that removes it.
    space
        Where the run works.
    """

    def __init__(
        self,
        job: Job[T],
        name: str,
        record: Record,
        target: FileTarget | IcechunkTarget | None,
        keep: bool = False,
    ) -> None:
        super().__init__(job, name, record)
        self.target = target
        self.keep = keep
        self._held = ExitStack()
        try:
            self._file_lease = self._take_file(target) if isinstance(target, FileTarget) else None
            self.space = self._make_space()
            found = where_to_work(job.rasters, job.spec)
            if isinstance(found, LateClient):
                cells = math.prod(job.shape) if job.rasters else math.inf
                found = found.start_for(cells)
            self.client = found
            if self.client is not None and job.rasters:
                excess = too_many_shards(job.shape, job.layout.shard, memory_of_machine())
                if excess:
                    warnings.warn(excess, RuntimeWarning, stacklevel=2)
        except BaseException:
            self.close()
            raise

    def _take_file(self, target: FileTarget) -> Lease:
        """Acquire and return the lease of the file to write."""
        self._refuse_overlap(target.path)
        lease = self._take(target.path)
        check_place(target, self.job.spec)  # another may have written it meanwhile
        return lease

    def _make_space(self) -> Workspace:
        """Create the workspace of the run, with a lease if ``out`` is given."""
        job, spec = self.job, self.job.spec
        identity, lease = {}, None
        if not job.writes_store or spec.storage is None:
            out: Location = self._make_scratch()
        else:
            out = self.target.store if isinstance(self.target, FileTarget) else spec.storage
            # not for a folder that no other run can find: fingerprints may take reading all cells
            identity = {**job.identity(), "orograph": __version__}
            if spec.resume:
                refuse_unversioned(job.rasters)
        self._refuse_overlap(out)
        self._before = job.first_versions
        if job.writes_store:
            lease = self._take(out)
        return Workspace(out, identity, overwrite=spec.overwrite, resume=spec.resume, lease=lease)

    def _make_scratch(self) -> Path:
        """Create a temporary folder, removed by `close`, and return a path in it for the result."""
        scratch = self._held.enter_context(
            tempfile.TemporaryDirectory(
                prefix="orograph-", dir=setting("scratch"), ignore_cleanup_errors=True
            )
        )
        # renamed first: tasks of a cluster that end after the run find nowhere to write
        self._held.callback(open_storage(scratch).delete_all)
        return Path(scratch) / "result.zarr"

    def _refuse_overlap(self, out: Location) -> None:
        for raster in self.job.rasters:
            refuse_overlap(raster, out)

    def _take(self, place: Location) -> Lease:
        """Acquire the lease of a location and hold it until `close`."""
        lease = Lease(place, self.job.spec.takeover).acquire(self.cancelled)
        self._held.callback(lease.release)
        return lease

    @property
    def resumed(self) -> bool:
        """Whether the run goes on from what an earlier one has left."""
        return self.space.resumed

    def leave_report(self) -> None:
        """Write the report to where the run can be resumed from, if it can."""
        if self.job.writes_store:
            # another run may have taken the place of this one, and removed what it had
            with suppress(OSError, OrographError):
                if self._error is not None:
                    self.space.check()
                self.space.leave(REPORT, self._written_report(self._status))

    def _written_report(self, status: str) -> bytes:
        """Return the report as the content of a file; a run that begins is not planned for it."""
        record, engine = self.record, self.engine
        report = {**self.report(), "status": status, "phases": record.seconds()}
        report["seconds"] = round((datetime.now(UTC) - self._begun).total_seconds(), 3)
        report["memory"] = record.peaks()
        if status != "running":
            report["memory"] = record.memory(int(self.client is not None))
        if engine is not None:
            report["statistics"] = engine.statistics()
            if self._error is not None:  # to count tasks takes requests
                progress = engine.progress()
                report["tasks"] = {"done": progress.done, "total": progress.total}
        return json.dumps(report, indent=1).encode()

    def close(self) -> None:
        """Release the leases and remove the temporary folder."""
        self._held.close()

    def work(self) -> T:
        """Run the engine, move the result to its final name, and open it."""
        with ExitStack() as stack:
            if self._file_lease is not None:
                stack.enter_context(self._file_lease.errors())
            try:
                return self._work()
            except Exception as error:
                self._explain(error)
                raise

    def _work(self) -> T:
        job, space = self.job, self.space
        if space.resumed:
            LOG.info("%s goes on from what an earlier run has left", self.name)
        if space.finished:
            # it was published, and killed before it could tidy up
            space.clear()
            return job.open(space.out)
        job.warm_up()
        checkpoints = space.open(job.create_result)
        self.leave_report()
        if not job.stored:
            nothing = ArraySink({})
            engine, attributes = self._run_engine(checkpoints, nothing)
            self._refuse_changed()
            found: Any = job.collect(engine, nothing, attributes)
            if isinstance(self.target, FileTarget) and self._file_lease is not None:
                begin_phase("publishing")
                self.target.write_layer(found, self._file_lease)
                self.bytes_written = self.target.path.stat().st_size
            return found  # type: ignore[no-any-return]
        engine, attributes = self._run_engine(checkpoints, StoreSink(space.result))
        begin_phase("publishing")
        if attributes:
            update_attributes(space.result, None, attributes)
        table = engine.table()
        names = table.dimensions if isinstance(table, ColumnsInTurns) else table
        add_table(space.result, table, {name: job.column_attributes(name) for name in names})
        self._refuse_changed()
        if not (self.target is None or isinstance(self.target, FileTarget)):
            self.bytes_written = sum(state.size for _, state in space.result.objects())
            copied: Any = self.target.write(space.result, self.name, self.client, self.cancelled)
            return copied  # type: ignore[no-any-return]
        if self.target is not None and self._file_lease is not None:
            written: Any = self.target.write(space.result, self._file_lease)
            space.clear()
            return written  # type: ignore[no-any-return]
        self.bytes_written = sum(state.size for _, state in space.result.objects())
        space.publish(self._written_report("finished") if job.writes_store else None)
        if self.keep and job.spec.out is None:
            kept: Any = space.out, self._held.pop_all().close
            return kept  # type: ignore[no-any-return]
        result = job.open(space.out)
        return result if job.spec.storage is not None else job.load(result)

    def _run_engine(
        self, checkpoints: CheckpointStore, sink: Sink
    ) -> tuple[Engine, dict[str, Any]]:
        """Run the engine to its end and return it with the attributes of the result."""
        job, client, space = self.job, self.client, self.space
        backend, witness = job.backend, None
        if client is not None:
            if backend == "auto":
                backend = decide_backend(client, self.cancelled)
            witness = self._call_workers(client)
        gpus, gpu_memory = gpus_of(backend, client)
        context = RunContext(
            Quadtree(job.shape, job.layout.tile),
            shard_level(job.layout),
            checkpoints,
            sink,
            # names of tasks are never used twice: a result that the cluster still holds from an
            # earlier run would stand for work that this one has to do
            tokenize(space.token, time.time_ns()),
            0 if client else thread_count(),
            None if client else self.cancelled,
            gpus=gpus,
            gpu_memory=gpu_memory,
            cluster_threads=threads_of_workers(client) if client else 0,
            worker_memory=memory_of_worker(client) if client else 0,
        )
        self.engine = engine = job.engine(self._reachable(), context, backend)
        try:
            with jobs.shared(engine, client, witness) as handle:
                return engine, engine.run(client, handle, self.cancelled)
        except InputError:
            with suppress(RunError):  # whoever has taken the place of this run has its folder too
                space.check()
                space.clear()  # no run with this input can be finished, so none can go on from here
            raise

    def _call_workers(self, client: Client) -> Witness:
        """Check that all workers see the run's folder; return the evidence late workers check."""
        witness = leave_witness(self.space.work, self.space.token)
        try:
            check_workers(client, witness)
        except RunError:
            if not self.space.resumed:
                self.space.clear()
            raise
        return witness

    def _reachable(self) -> tuple[Raster, ...]:
        """Return the input rasters; in-memory ones are stored on disk for the cluster."""
        reachable: list[Raster] = []
        layout = self.job.layout
        for number, raster in enumerate(self.job.rasters):
            if self.client is not None and isinstance(raster, ArrayRaster):
                copy = self.space.work.child(f"input-{number}.zarr")
                if not is_whole(copy):
                    copy.delete_all()
                    # whoever began it is gone: this run holds the folder
                    ingest(raster, copy, tile=layout.tile, shard=layout.shard, takeover=True)
                raster = StoreRaster(copy)
            reachable.append(raster)
        return tuple(reachable)

    def _refuse_changed(self) -> None:
        """Raise RunError if an input file has changed since the run began."""
        refuse_changed(self._before, self.job.versions())

    def _explain(self, error: Exception) -> None:
        """Raise RunError if a failure was caused by someone changing the folder or the inputs."""
        try:
            self.space.check(error)
        except RunError as lost:
            raise lost from error
        if isinstance(error, Cancelled):
            return
        try:
            with suppress_unreadable():
                refuse_changed(self.job.first_versions, self.job.versions(), error)
        except RunError:
            self.space.clear()  # it holds parts of both inputs
            raise
