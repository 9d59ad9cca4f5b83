"""The base class of sessions: executes a job, and writes its log and report."""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from threading import Event
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from orograph._version import __version__
from orograph.arguments.settings import thread_count
from orograph.run.job import Job
from orograph.run.monitor import Record, begin_phase
from orograph.tiles.addresses import without_secrets
from orograph.tiles.convert.icechunk_branch import REPOSITORY
from orograph.tiles.errors import Cancelled, InputError, RunError
from orograph.tiles.raster.file import close_files

if TYPE_CHECKING:
    from distributed import Client

    from orograph.run.run import Engine

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
    doubts
        What to warn of with the result: findings in inputs that Dask has computed.
    """

    def __init__(self, job: Job[T], name: str, record: Record) -> None:
        self.job = job
        self.name = name
        self.record = record
        self.cancelled = Event()
        self.client: Client | None = None
        self.engine: Engine | None = None
        self.bytes_written = 0
        self.doubts: list[str | None] = []
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
            with self._span(), self._dead_end():
                begin_phase("checks")
                found = self.work()
        except BaseException as error:
            self._error = error
            ended = f"{self.name} {self._status} after {_since(begin)}"
            if isinstance(error, Cancelled):
                LOG.info("%s; %s", ended, self._next_step)
            else:
                LOG.error("%s: %s; %s", ended, error, self._next_step)
            # While the lease is still held: `close` gives it back.
            self.leave_report()
            raise
        finally:
            self.close()
            close_files()
        LOG.info("%s is finished after %s", self.name, _since(begin))
        return found if self.job.spec.out is not None else self.job.like_input(found)

    def concerns(self, result: T) -> list[str]:
        """Return the warnings to issue with a result."""
        return [text for text in (*self.doubts, self.job.concern(result)) if text is not None]

    @contextmanager
    def _dead_end(self) -> Iterator[None]:
        """Raise RunError in place of Cancelled if the run was stopped as it could not go on."""
        try:
            yield
        except Cancelled:
            if self.record.dead_end:
                raise RunError(self.record.dead_end) from None
            raise

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
        report = {
            "operation": self.name,
            "inputs": [str(raster) for raster in job.rasters],
            # What JSON does not have becomes text.
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
        cleaned: dict[str, Any] = json.loads(without_secrets(json.dumps(report, default=str)))
        return cleaned

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
