"""A run: work going on in the background, to be watched, waited for or cancelled."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from orograph.settings import config
from orograph.tiles.errors import Cancelled, RunError

if TYPE_CHECKING:
    import xarray as xr
    from distributed import Client


@dataclass(frozen=True)
class Progress:
    """How far a run is, in tasks that leave something behind: those done, and all of them."""

    done: int
    total: int

    def __str__(self) -> str:
        return f"{self.done} of {self.total} tasks"


class Run:
    """A run that goes on in the background; returned by every operation with ``wait=False``.

    Parameters
    ----------
    work
        Does it all; called in a thread of its own.
    progress
        Says how far the work is; called from any thread.
    cancelled
        The event by which the work learns that it is to stop.
    client
        The Dask client that runs the tasks, or None for threads of this process.
    """

    def __init__(
        self,
        work: Callable[[], xr.Dataset],
        progress: Callable[[], Progress],
        cancelled: Event,
        client: Client | None,
    ) -> None:
        self._work = work
        self._progress = progress
        self._cancelled = cancelled
        self._client = client
        self._result: xr.Dataset | None = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._do, name="orograph-run", daemon=True)
        self._thread.start()

    def _do(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error

    @property
    def status(self) -> str:
        """``"running"``, ``"finished"``, ``"failed"`` or ``"cancelled"``."""
        if self._thread.is_alive():
            return "running"
        if self._error is None:
            return "finished"
        return "cancelled" if isinstance(self._error, Cancelled) else "failed"

    def progress(self) -> Progress:
        """Tasks done and all tasks; what an earlier run left counts as done."""
        progress = self._progress()
        return Progress(progress.total, progress.total) if self._result is not None else progress

    @property
    def dashboard_link(self) -> str | None:
        """Where to watch the run, or None if it has no cluster."""
        return None if self._client is None else self._client.dashboard_link

    def result(self, timeout: float | None = None) -> xr.Dataset:
        """Wait for the run and return its result.

        Parameters
        ----------
        timeout
            Seconds to wait at most; None waits for ever.

        Raises
        ------
        TimeoutError
            If the run is still going on after ``timeout``; it is not stopped by that.
        Cancelled
            If the run was cancelled.
        Exception
            Whatever made the run fail.
        """
        try:
            self._thread.join(timeout)
        except KeyboardInterrupt:
            self.cancel()
            raise
        if self._thread.is_alive():
            raise TimeoutError(f"the run is not finished after {timeout} s ({self.progress()})")
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def cancel(self) -> None:
        """Stop the run; what it has written stays, and ``resume=True`` goes on from there."""
        self._cancelled.set()

    def __repr__(self) -> str:
        return f"<orograph.Run: {self.status}, {self.progress()}>"


def compute(
    tasks: dict[Any, Any], keys: Sequence[Hashable], client: Client | None, cancelled: Event
) -> Any:
    """Do all ``tasks``; return the result of ``keys[0]``.

    Raises
    ------
    Cancelled
        If ``cancelled`` is set before the end.
    RunError
        If the cluster fails; tasks' own exceptions come through as they are.
    """
    if client is None:
        from dask.threaded import get

        return get(tasks, list(keys), num_workers=config.get("threads") or None)[0]

    from distributed import wait
    from distributed.scheduler import KilledWorker

    futures = client.get(tasks, list(keys), sync=False)
    try:
        finished = False
        while not finished:
            try:
                wait(futures, timeout=0.5)
                finished = True
            except TimeoutError:
                pass
            for future in futures:
                if future.status == "error":
                    future.result()
                if future.status in ("cancelled", "lost"):
                    raise RunError("the cluster has lost the run's tasks; resume=True continues it")
            if cancelled.is_set():
                raise Cancelled("the run was cancelled")
        return futures[0].result()
    except KilledWorker as error:
        raise RunError(
            f"a task has killed its workers again and again ({error}); most often they run out of "
            "memory: give them more or take smaller tiles, then resume=True continues the run"
        ) from error
    finally:
        client.cancel([future for future in futures if not future.done()])
