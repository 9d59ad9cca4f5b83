"""Sessions: execute a job from its last checks to its result, in memory or on disk.

Everything that can be known to be wrong is found before any task exists and before anything is
written: by the operation, which checks its arguments, and when its session is made.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import tempfile
import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dask.base import tokenize

from orograph._version import __version__
from orograph.arguments.settings import setting, thread_count
from orograph.run import shared_data
from orograph.run.backends import gpus_of
from orograph.run.base_session import Session
from orograph.run.checkpoints import CheckpointStore, MemoryCheckpoints
from orograph.run.cluster.clusters import (
    LateClient,
    memory_of_machine,
    memory_of_worker,
    threads_of_workers,
)
from orograph.run.cluster.first_worker import decide_backend
from orograph.run.cluster.workers import WITNESS, Witness, check_workers
from orograph.run.context import RunContext
from orograph.run.file_target import FileTarget, check_place
from orograph.run.job import DatasetJob, Job
from orograph.run.monitor import Record, begin_phase
from orograph.run.options import (
    shard_level,
    small_workers,
    task_level,
    too_many_shards,
    where_to_work,
)
from orograph.run.run import Engine
from orograph.run.scratch import store_computed
from orograph.run.workspace import Workspace, is_whole, look_at, refuse_unversioned
from orograph.tiles.concurrent_requests import at_once
from orograph.tiles.convert.ingest import write_raster
from orograph.tiles.convert.overlap import refuse_overlap
from orograph.tiles.errors import Cancelled, InputError, RunError
from orograph.tiles.format.metadata import REPORT, ArrayMetadata
from orograph.tiles.grid.quadtree import Quadtree
from orograph.tiles.open_storage import open_storage
from orograph.tiles.raster.mask import replace_sources, sources_of
from orograph.tiles.raster.raster import ArrayRaster, LazyRaster, Raster, StoreRaster
from orograph.tiles.raster.unchanged import refuse_changed, suppress_unreadable
from orograph.tiles.storage import Location, Storage
from orograph.tiles.store.create import ColumnsInTurns, add_table, update_attributes
from orograph.tiles.store.lease import Lease
from orograph.tiles.store.publish import mark_complete
from orograph.tiles.store.sink import ArraySink, Sink, StoreSink

if TYPE_CHECKING:
    from orograph.run.icechunk_target import IcechunkTarget

T = TypeVar("T")
LOG = logging.getLogger(__name__)


class MemorySession(Session[T]):
    """Execution by threads of this process, from rasters in memory to a result in memory."""

    def __init__(self, job: Job[T], name: str, record: Record) -> None:
        super().__init__(job, name, record)
        tree = Quadtree(job.shape, job.layout.tile, job.wraps, job.poles)
        gpus, record.gpu_memory = gpus_of(job.backend, None)
        self.sink = job.sink()
        context = RunContext(
            tree,
            task_level(tree) if job.spec.shard is None else shard_level(job.layout),
            MemoryCheckpoints(),
            self.sink,
            # Caches of this process are kept by it, so no two runs have the same.
            tokenize("memory", time.time_ns()),
            thread_count(),
            self.cancelled,
            gpus=gpus,
            gpu_memory=record.gpu_memory,
            tile_given=job.spec.tile is not None,
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
        self._backend = job.backend
        self._is_out_away = False
        self._witness: Witness | None = None
        """Witness by which workers that come later are seen to have the run's folder."""
        try:
            self._file_lease = self._take_file(target) if isinstance(target, FileTarget) else None
            self.space = self._make_space()
            # A cluster that is to be started starts here, after all checks and with the lease.
            found = where_to_work(job.rasters, job.spec)
            if isinstance(found, LateClient):
                cells = math.prod(job.shape) if job.rasters else math.inf
                found = found.start_for(cells)
            self.client = found
            if self.client is not None and job.rasters:
                excess = too_many_shards(job.shape, job.layout.shard, memory_of_machine())
                if excess:
                    warnings.warn(excess, RuntimeWarning, stacklevel=2)
                if small := small_workers(record.planned(1), memory_of_worker(self.client)):
                    warnings.warn(small, RuntimeWarning, stacklevel=2)
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
        identity, lease, looked = {}, None, None
        if not job.writes_store or spec.storage is None:
            out: Location = self._make_scratch()
        else:
            out = self.target.store if isinstance(self.target, FileTarget) else spec.storage
        self._refuse_overlap(out)
        if job.writes_store:
            # not for a folder that no other run can find: fingerprints may take reading all cells
            place = open_storage(out)
            # None of these waits for another. `Workspace` looks once more with the lease, unless
            # nothing unfinished was seen.
            identity, lease, looked = at_once(
                place,
                self._identity,
                lambda: self._take(out),
                lambda: look_at(place, spec.overwrite),
            )
        self._before = job.first_versions
        how = {"overwrite": spec.overwrite, "resume": spec.resume}
        return Workspace(out, identity, **how, lease=lease, looked=looked)

    def _identity(self) -> dict[str, Any]:
        """Return the description of the run by which it is recognized when it is resumed."""
        identity = {**self.job.identity(), "orograph": __version__}
        if self.job.spec.resume:
            refuse_unversioned(self.job.rasters)
        return identity

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
        if self.job.writes_store and not self._is_out_away:
            # Another run may have taken the place of this one and removed what it had, or the
            # cluster or the storage is gone: a report that fails does not replace the run's error.
            with suppress(Exception):
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
        checkpoints, known = self._open()
        sink: Sink = ArraySink({}) if self._has_columns_alone else StoreSink(space.result, known)
        engine, attributes = self._run_engine(checkpoints, sink)
        if isinstance(sink, ArraySink):
            self._refuse_changed()
            found: Any = job.collect(engine, sink, attributes)
            if isinstance(self.target, FileTarget) and self._file_lease is not None:
                begin_phase("publishing")
                self.target.write_layer(found, self._file_lease)
                self.bytes_written = self.target.path.stat().st_size
            return found  # type: ignore[no-any-return]
        begin_phase("publishing")
        # in an object store they are put with all that publishing adds
        if attributes and not (self.target is None and space.out.etags):
            update_attributes(space.result, None, attributes)
        table = engine.table()
        names = table.dimensions if isinstance(table, ColumnsInTurns) else table
        add_table(space.result, table, {name: job.column_attributes(name) for name in names})
        if self.target is None:
            return self._publish(sink, attributes)
        self._refuse_changed()
        if not isinstance(self.target, FileTarget):
            self.bytes_written = self._bytes_of_result()
            copied: Any = self.target.write(space.result, self.name, self.client, self.cancelled)
            return copied  # type: ignore[no-any-return]
        assert self._file_lease is not None
        written: Any = self.target.write(space.result, self._file_lease)
        space.clear()
        return written  # type: ignore[no-any-return]

    @property
    def _has_columns_alone(self) -> bool:
        """Whether the result is collected from the engine: it is in memory, without rasters."""
        job = self.job
        no_rasters = isinstance(job, DatasetJob) and not job.outputs
        return not job.stored or (no_rasters and job.spec.out is None and not self.keep)

    def _publish(self, sink: Sink, attributes: dict[str, Any]) -> T:
        """Give the finished result its name, and return it opened."""
        job, space, keep = self.job, self.space, self.keep and self.job.spec.out is None
        # An input that has changed refuses the result before anything gets its name.
        finished, _, self.bytes_written = at_once(
            space.out,
            lambda: space.finish(attributes, sink.known),
            self._refuse_changed,
            self._bytes_of_result,
        )
        report = self._written_report("finished") if job.writes_store else None
        result: Any = space.publish(finished, report, lambda: None if keep else job.open(space.out))
        if keep:
            # The folder is no longer `close`'s to remove: whoever reads the result removes it.
            result = space.out, self._held.pop_all().close
        elif job.spec.storage is None:
            result = job.load(result)
        return result  # type: ignore[no-any-return]

    def _bytes_of_result(self) -> int:
        return sum(state.size for _, state in self.space.result.objects())

    def _open(self) -> tuple[CheckpointStore, Mapping[str, ArrayMetadata]]:
        """Create what the run works in, and check that all workers see it."""
        job, space = self.job, self.space
        files = {REPORT: self._written_report("running")} if job.writes_store else {}
        if self.client is not None:
            self._witness = space.witness
            if self._witness.key == WITNESS:
                files[WITNESS] = self._witness.token.encode()
        try:
            return space.open(job.create_result, files, self._call_workers, job.tells_whole)
        except RunError:
            # Nothing has been computed yet. What an earlier run has left stays.
            if not space.resumed:
                space.clear()
            raise

    def _run_engine(
        self, checkpoints: CheckpointStore, sink: Sink
    ) -> tuple[Engine, dict[str, Any]]:
        """Run the engine to its end and return it with the attributes of the result."""
        job, client, space, backend = self.job, self.client, self.space, self._backend
        gpus, self.record.gpu_memory = gpus_of(backend, client)
        context = RunContext(
            Quadtree(job.shape, job.layout.tile, job.wraps, job.poles),
            shard_level(job.layout),
            checkpoints,
            sink,
            # names of tasks are never used twice: a result that the cluster still holds from an
            # earlier run would stand for work that this one has to do
            tokenize(space.token, time.time_ns()),
            0 if client else thread_count(),
            None if client else self.cancelled,
            gpus=gpus,
            gpu_memory=self.record.gpu_memory,
            cluster_threads=threads_of_workers(client) if client else 0,
            worker_memory=memory_of_worker(client) if client else 0,
            begun=self._begun.timestamp(),
            tile_given=job.spec.tile is not None,
        )
        try:
            self.engine = engine = job.engine(self._reachable(context), context, backend)
            with shared_data.shared(engine, client, self._witness) as handle:
                return engine, engine.run(client, handle, self.cancelled)
        except InputError:
            with suppress(RunError):  # whoever has taken the place of this run has its folder too
                space.check()
                space.clear()  # no run with this input can be finished, so none can go on from here
            raise

    def _call_workers(self) -> None:
        """Choose the backend, and check that all workers see the run's folder."""
        if self.client is None:
            return
        if self._backend == "auto":
            self._backend = decide_backend(self.client, self.cancelled)
        check_workers(self.client, self._witness)

    def _reachable(self, context: RunContext) -> tuple[Raster, ...]:
        """Return the input rasters as tasks read them: lazy ones, and for a cluster those in
        memory, from a store beside the checkpoints.
        """
        job, client = self.job, self.client
        layout, lazy = job.layout, dict[Storage, LazyRaster]()
        copies: dict[Raster, Storage] = {}
        made: list[Storage] = []
        # Each source once, though several rasters may be made of it.
        sources = dict.fromkeys(chain.from_iterable(map(sources_of, job.rasters)))
        for number, raster in enumerate(sources):
            is_lazy = isinstance(raster, LazyRaster) and raster.is_computed and job.reads_all
            if not is_lazy and (client is None or not isinstance(raster, ArrayRaster)):
                continue
            copies[raster] = copy = self.space.work.child(f"input-{number}.zarr")
            # A run that is resumed finds the copies of the earlier one.
            if is_whole(copy):
                continue
            copy.delete_all()
            if isinstance(raster, LazyRaster):
                lazy[copy] = raster
            else:
                write_raster(raster, copy, layout)
            made.append(copy)
        if lazy:
            begin_phase("input")
            store_computed(lazy, layout, context.token, client, self.cancelled)
        if made:
            # The folder is that of this run, unless another has taken over. A copy that is cut
            # short stays unfinished, and is made anew.
            self.space.check()
            for copy in made:
                mark_complete(copy)
        stored: dict[Raster, Raster] = {
            raster: StoreRaster(copy) for raster, copy in copies.items()
        }
        for raster in stored:
            for check in raster.checks if isinstance(raster, LazyRaster) else ():
                self.doubts.append(check(stored))
        return tuple(replace_sources(raster, stored) for raster in job.rasters)

    def _refuse_changed(self) -> None:
        """Raise RunError if an input file has changed since the run began."""
        refuse_changed(self._before, self.job.versions())

    def _explain(self, error: Exception) -> None:
        """Raise RunError if a failure was caused by someone changing the folder or the inputs.

        Also if an object store did not answer for as long as requests are repeated.
        """
        if isinstance(error, OSError) and error.errno == errno.EIO and "://" in str(error.filename):
            # nothing more is asked of it: each request would take as long again
            self._is_out_away = self.space.out.etags
            away = RunError(
                f"{error.filename}: the object store does not answer ({error.strerror}); when it "
                f"does, {self._next_step}; storage_options={{'retry_timeout': '5min'}} waits longer"
            )
            for note in getattr(error, "__notes__", ()):
                away.add_note(note)
            raise away from error
        try:
            # The lost folder comes first: without it any other error is its consequence.
            self.space.check(error)
        except RunError as lost:
            raise lost from error
        if isinstance(error, Cancelled):
            return
        try:
            # An input that has changed explains the failure better than the error that it led to.
            with suppress_unreadable():
                refuse_changed(self.job.first_versions, self.job.versions(), error)
        except RunError:
            self.space.clear()  # it holds parts of both inputs
            raise
