"""Runs that continue without the session that began them.

A task of the cluster drives such a run. If the worker of that task is lost, another task continues
from the saved state. The scheduler keeps what is needed to find the run, under the address of its
target: the future of that task, and the last report. Anyone who can connect to the scheduler can
follow the run and cancel it.
"""

from __future__ import annotations

import contextvars
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

import dask
from dask.base import get_annotations

from orograph.run.cluster.clusters import LateClient, check_client, current_client
from orograph.run.cluster.compute import cluster_failures
from orograph.run.feedback import Progress
from orograph.run.file_target import file_target
from orograph.run.job import Job
from orograph.run.monitor import Planned
from orograph.run.run import Run
from orograph.run.workspace import check_unfinished, describe_left
from orograph.tiles.convert.overlap import refuse_overlap
from orograph.tiles.errors import InputError, StoreExistsError, own_errors
from orograph.tiles.extensions import check_extension
from orograph.tiles.open_storage import open_storage
from orograph.tiles.storage import Location, Storage
from orograph.tiles.store.lease import Lease
from orograph.tiles.store.publish import check_target, partial_storage

if TYPE_CHECKING:
    from distributed import Client, Future

T = TypeVar("T")
Launch = Callable[[Job[T], str, Planned], Run[T]]

ROOT = "orograph"
"""Key of the scheduler's metadata below which runs are kept."""
SECONDS_BETWEEN_REPORTS = 1.0


def submit_detached(job: Job[T], name: str, launch: Launch[T], planned: Planned) -> Run[T]:
    """Start a run that a task of the cluster drives, and attach to it.

    Parameters
    ----------
    job : Job
        Job with the option ``detach``.
    name : str
        Name of the operation.
    launch : callable
        Starts the run in that task.
    planned : callable
        That of `Record`.

    Raises
    ------
    InputError
        If there is no cluster that could continue the run, or no store that it would write.
    StoreExistsError
        If the store exists, or an unfinished or another run that writes it exists.
    """
    spec = job.spec
    if spec.storage is None:
        raise InputError(
            "detach: a run without out= has nowhere to leave its result; pass out=, a Zarr store"
        )
    if file_target(job, spec) is not None:
        raise InputError("detach: such a run writes a Zarr store; pass an out= that ends in .zarr")
    if isinstance(spec.client, LateClient):
        raise InputError(
            "detach: a cluster that ends with this process cannot go on; pass --scheduler"
        )
    client, out = _client(spec.client, "detach"), spec.storage
    for raster in job.rasters:
        refuse_overlap(raster, out)
    check_target(out, spec.overwrite or spec.resume)
    # Only for these checks: the task that drives the run takes the lease when it begins.
    with Lease(out, spec.takeover):  # refuses if another writer is at work
        if not (spec.overwrite or spec.resume):
            check_unfinished(out)
    before = _runs(client).get(str(out))
    taken = StoreExistsError(
        f"out: a detached run that writes {out} has begun already; orograph.attach finds it"
    )
    if before is not None and _Attached.find(client, before).status in ("waiting", "running"):
        raise taken
    token = uuid.uuid4().hex
    # Two sessions may have come this far. The scheduler answers one after the other, so one of them
    # gets the claim.
    if not client.run_on_scheduler(make_claim(), ROOT, str(out), before and before["token"], token):
        raise taken
    named = get_annotations()
    attached = replace(job, spec=replace(spec, client=None, detach=False))
    task = attached, name, token, launch, named, planned(1, 0)
    resources = {spec.detach: 1} if isinstance(spec.detach, str) else None
    # without the annotations of the run's own tasks, which the task gives them
    future = contextvars.Context().run(
        lambda: client.submit(
            _drive, *task, key=f"orograph-drive-{token}", pure=False, resources=resources
        )
    )
    # A published future outlives this session. It is there before the entry that leads to it.
    client.publish_dataset(future, name=_published(token), override=True)
    begun = datetime.now(UTC).isoformat(timespec="seconds")
    entry = {"out": str(out), "operation": name, "token": token, "begun": begun}
    client.set_metadata([ROOT, "runs", str(out)], entry)
    run: Run[T] = attach(out, client=client)
    return run


def make_claim() -> Callable[..., bool]:
    """Return a function that registers with the scheduler which run is about to start for a target.

    The function returns True if the previous run is still the last one, or if the run that was
    about to follow it has not started for a minute. It is nested for the reason given in
    `make_look`.
    """

    def claim(
        root: str, out: str, before: str | None, token: str, dask_scheduler: Any = None
    ) -> bool:
        import time

        claims = dask_scheduler.task_metadata.setdefault(root, {}).setdefault("claims", {})
        last, since = claims.get(out, (before, 0.0))
        if last != before and time.monotonic() - since < 60:
            return False
        claims[out] = token, time.monotonic()
        return True

    return claim


@own_errors
def attach(out: Location, *, client: Client | None = None) -> Run[Any]:
    """Return the detached run that writes a store, whichever session started it.

    Parameters
    ----------
    out : path
        The store, as given by ``out`` of the operation.
    client : distributed.Client, optional
        Client of the cluster that runs it; by default the active client of the session.

    Returns
    -------
    Run
        The run, as returned by ``.submit``. Its `Run.cancel` cancels the run itself; the run
        continues if this session ends.

    Raises
    ------
    InputError
        If the cluster does not have such a run, or there is no client.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> from distributed import Client
    >>> client = Client(processes=False, dashboard_address=None)
    >>> run = og.hop_distance.submit(np.ones((9, 9)), [(4, 4)], out="hops.zarr", detach=True)
    >>> int(og.attach("hops.zarr").result()["hops"].max())
    4
    >>> client.close()
    """
    storage = open_storage(out, "out")
    check_extension("out", storage)
    client = _client(client, "client")
    found = _find(client, storage)
    return Run(found.result, lambda: found, found.cancelled, client, found.describe)


@own_errors
def runs(client: Client | None = None) -> list[dict[str, Any]]:
    """Return a summary of each detached run of a cluster, the latest last.

    Parameters
    ----------
    client : distributed.Client, optional
        Client of the cluster; by default the active client of the session.

    Returns
    -------
    list of dict
        Dicts with ``out``, ``operation``, ``begun`` (UTC), ``status`` (``"waiting"`` for a worker,
        ``"running"``, ``"finished"``, ``"failed"`` or ``"cancelled"``), ``done`` and ``total``
        tasks, and ``error``, a message or None. The list is lost when the scheduler ends.

    Raises
    ------
    InputError
        If there is no client.

    Examples
    --------
    >>> import orograph as og
    >>> from distributed import Client
    >>> client = Client(processes=False, dashboard_address=None)
    >>> og.runs()
    []
    >>> client.close()
    """
    client = _client(client, "client")
    found = []
    for entry in sorted(_runs(client).values(), key=lambda entry: str(entry["begun"])):
        run = _Attached.find(client, entry)
        progress, error = run.progress(), run.describe().get("error")
        found.append(
            {
                **{name: entry[name] for name in ("out", "operation", "begun")},
                "status": run.status,
                "done": progress.done,
                "total": progress.total,
                "error": error and error["message"],
            }
        )
    return found


def report_of(out: Location, client: Client) -> dict[str, Any]:
    """Return the last report of the detached run that writes a store; see `Run.report`.

    Raises
    ------
    InputError
        If the cluster does not have such a run.
    """
    run = _find(client, open_storage(out))
    return {**run.describe(), "status": run.status}


def _find(client: Client, out: Storage) -> _Attached:
    """Return the detached run that writes a store; raise InputError if there is none."""
    known = _runs(client)
    if str(out) not in known:
        # a scheduler that was started anew knows of no run that an earlier one had
        there = describe_left(out) or f"runs of it write: {', '.join(sorted(known)) or 'none'}"
        raise InputError(f"out: the cluster has no detached run that writes {out}; {there}")
    return _Attached.find(client, known[str(out)])


class _Cancellation(Event):
    """Event that asks a detached run to stop when it is set, before the session may end."""

    def __init__(self, client: Client, token: str) -> None:
        super().__init__()
        self._client, self._token = client, token

    def set(self) -> None:
        """Set the event, and send the request to the scheduler."""
        _write(self._client, self._token, "cancel", True)
        super().set()


class _Attached:
    """A detached run, as the scheduler knows it."""

    def __init__(self, client: Client, token: str, future: Future[Any]) -> None:
        self._client, self._token, self._future = client, token, future
        self._last: dict[str, Any] = {}
        self.cancelled = _Cancellation(client, token)

    @classmethod
    def find(cls, client: Client, entry: dict[str, Any]) -> _Attached:
        """Return the run of one of the scheduler's entries."""
        token = entry["token"]
        return cls(client, token, client.get_dataset(_published(token)))

    def result(self) -> Any:
        """Wait for the run, and open its result."""
        with cluster_failures():
            opener, out = self._future.result()
        return opener(out)

    def describe(self) -> dict[str, Any]:
        """Return the last report of the run, and the address of the worker that drives it."""
        with suppress(OSError):  # of a scheduler that is gone the last report stays
            report = _read(self._client, self._token, "report", {})
            self._last = {**report, "driver": _read(self._client, self._token, "driver", None)}
        return self._last

    @property
    def status(self) -> str:
        """``"waiting"`` for a worker, or a status of `Run`."""
        status: str = self.describe().get("status", "waiting")
        if status in ("waiting", "running") and self._future.done():
            # it has ended without a word: its worker is lost, and so were those before
            return "finished" if self._future.status == "finished" else "failed"
        return status

    def progress(self) -> Progress:
        """Return the progress from the last report."""
        report = self.describe()
        tasks = report.get("tasks", {"done": 0, "total": 0})
        return Progress(
            tasks["done"],
            tasks["total"],
            waiting=report.get("waiting", ""),
            phase=report.get("phase", ""),
        )

    def statistics(self) -> dict[str, int]:
        """Return the counts from the last report."""
        return dict(self.describe().get("statistics", {}))


def _drive(
    job: Job[T],
    name: str,
    token: str,
    launch: Launch[T],
    annotations: dict[str, Any],
    planned: dict[str, int] | None,
) -> tuple[Callable[[Storage], T], Storage]:
    """Run a job to its end in a task of the cluster; return how to open its result, and its place.

    ``planned`` is the memory that the run takes by its plan. If the worker of an earlier attempt
    was lost, the run continues from its saved state.
    """
    from distributed import get_worker, worker_client

    assert job.spec.storage is not None
    out = job.spec.storage
    opener = replace(job, rasters=()).open
    # The task gives its thread to other tasks, which may be those of the run.
    with worker_client() as client:
        before = _read(client, token, "driver", None)
        _write(client, token, "driver", get_worker().address)
        spec = replace(job.spec, client=client)
        if before is not None:
            status = _read(client, token, "report", {}).get("status")
            written = not spec.overwrite and out.exists() and not partial_storage(out).exists()
            if status == "finished" or written:  # it was lost when it had done all
                return opener, out
            # one that was cut off from the scheduler may be at work still
            spec = replace(spec, resume=True, takeover=True)
        with dask.annotate(**annotations):  # type: ignore[attr-defined]
            # The annotations of the session, such as priority and resources, are for the tasks of
            # the run.
            run = launch(replace(job, spec=spec), name, lambda *_: planned)
        try:
            while run.status == "running":
                _write(client, token, "report", run.report())
                if _read(client, token, "cancel", False):
                    run.cancel()
                with suppress(TimeoutError):
                    run.result(timeout=SECONDS_BETWEEN_REPORTS)
            run.result()
        finally:
            _write(client, token, "report", run.report())
    return opener, out


def _client(client: Client | None, argument: str) -> Client:
    """Return a client, by default the active one; raise InputError if there is none."""
    check_client(client)
    found: Client | None = client or current_client()
    if found is None:
        raise InputError(
            f"{argument}: a detached run needs a cluster that goes on without this session; "
            "connect to its scheduler: distributed.Client(address)"
        )
    return found


def _runs(client: Client) -> dict[str, dict[str, Any]]:
    """Return the scheduler's entries of all detached runs, by target."""
    found: dict[str, dict[str, Any]] = client.get_metadata([ROOT, "runs"], {})
    return found


def _published(token: str) -> str:
    return f"orograph-run-{token}"


def _read(client: Client, token: str, name: str, default: object) -> Any:
    return client.get_metadata([ROOT, token, name], default)


def _write(client: Client, token: str, name: str, value: object) -> None:
    client.set_metadata([ROOT, token, name], value)
