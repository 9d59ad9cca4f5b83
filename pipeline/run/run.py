"""A run: work in the background that can be watched, awaited and cancelled."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import replace
from threading import TIMEOUT_MAX, Event, Thread
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from orograph.run.feedback import (
    SECONDS_OF_SILENCE,
    Progress,
    compilations,
    duration,
    in_notebook,
    show_live,
    show_progress,
    shows_progress,
)
from orograph.run.monitor import Record, Watch, recorded
from orograph.tiles import html
from orograph.tiles.arguments import check_number
from orograph.tiles.errors import Cancelled, own_error
from orograph.tiles.store.create import Columns, ColumnsInTurns
from orograph.tiles.warn import warn_user

if TYPE_CHECKING:
    from distributed import Client

    from orograph.run.shared_data import Handle

T = TypeVar("T")
logging.getLogger("orograph").addHandler(logging.NullHandler())  # nothing, unless one asks for it
ResultTable = Columns | ColumnsInTurns


class Watched(Protocol):
    """Interface of objects that report the progress of a run."""

    def progress(self) -> Progress:
        """Return the progress of the work; may be called from any thread."""

    def statistics(self) -> dict[str, int]:
        """Return counts of the work done, where they depend on the order of execution."""
        return {}


class Engine(Watched, Protocol):
    """Interface of the engine of a run: `QuadtreePass`, `Frontier`, or an operation's own.

    One that derives from it has no table and no statistics unless it says so.
    """

    def run(self, client: Client | None, handle: Handle, cancelled: Event) -> dict[str, Any]:
        """Do all the work, writing the output rasters; return the attributes of the result."""

    def table(self) -> ResultTable:
        """Return the table columns of the result, in pieces."""
        return {}


class Run(Generic[T]):
    """A run in the background, as returned by ``.submit`` of every operation.

    ``T`` is the type that the operation returns.

    Parameters
    ----------
    work
        Does all the work; called in its own thread.
    engine
        Returns the active engine, or None before there is one.
    cancelled
        Event that tells the work to stop.
    client
        The Dask client that runs the tasks, or None for threads of this process.
    describe
        Returns the part of the report that does not change during the run.
    record
        Record of the phases that the work names, and of memory.
    here
        Do the work now, in this thread.
    concerns
        Returns what to warn of with the result, once, where it is asked for.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> run = og.minimum_spanning_forest.submit(np.eye(4))
    >>> run.result().attrs["edge_count"], run.status
    (15, 'finished')
    """

    def __init__(
        self,
        work: Callable[[], T],
        engine: Callable[[], Watched | None],
        cancelled: Event,
        client: Client | None,
        describe: Callable[[], dict[str, Any]] = dict,
        record: Record | None = None,
        *,
        here: bool = False,
        concerns: Callable[[T], list[str]] = lambda _: [],
    ) -> None:
        self._work = work
        self._describe = describe
        self._concerns: Callable[[T], list[str]] | None = concerns
        self._engine = engine
        self._cancelled = cancelled
        self._client = client
        self._record = record or Record()
        self._watch = Watch(client, self._record, cancelled.set)
        self._result: T | None = None
        self._error: BaseException | None = None
        self._latest = Progress(0, 0)
        self._pace = ("", 0.0, 0)
        self._ended = Event()
        self._began, self._seconds = time.monotonic(), 0.0
        compilations()
        if here:
            self._do()
            return
        # with the annotations that Dask has where the run is begun
        whole = copy_context().run
        Thread(target=whole, args=(self._do,), name="orograph-run", daemon=True).start()

    def _do(self) -> None:
        try:
            with self._watch, recorded(self._record):
                self._result = self._work()
        except Exception as error:
            self._error = own_error(error, "the run", began=True)
            if self._error is not error:
                self._error.__cause__ = error
        except BaseException as error:
            self._error = error
        finally:
            self._seconds = time.monotonic() - self._began
            # Last, so that whoever waits for the end finds the result or the error.
            self._ended.set()

    @property
    def status(self) -> str:
        """``"running"``, ``"finished"``, ``"failed"`` or ``"cancelled"``."""
        if not self._ended.is_set():
            return "running"
        if self._error is None:
            return "finished"
        return "cancelled" if isinstance(self._error, Cancelled) else "failed"

    def progress(self) -> Progress:
        """Return the progress; what an earlier run saved counts as done.

        If no worker of the cluster is active, because there is none or all are paused, ``waiting``
        says so, and a warning is issued.
        """
        if not self._ended.is_set():
            now = self._now()
            # while the run tidies up, what it counts is going away
            if now.total != self._latest.total or now.done >= self._latest.done:
                self._latest = now
        # A finished run has done all, although its checkpoints may be gone.
        elif self._error is None:
            total = self._latest.total or self._now().total
            self._latest = Progress(total, total)
        waiting = self._watch.trouble or self._latest.waiting
        if not waiting and not self._latest.done and compilations().running:
            waiting = "kernels are compiled, once"
        if self._ended.is_set():
            return self._latest
        return replace(self._latest, waiting=waiting, **self._speed())

    def _speed(self) -> dict[str, Any]:
        """Return the current phase, and its rate since it was first seen."""
        # for a run that is watched from elsewhere, the last report names the phase
        phase = self._record.current or self._latest.phase
        now, done = time.monotonic(), self._latest.done
        # In a new phase, and where the count begins anew, the rate is measured from now on.
        if self._pace[0] != phase or done < self._pace[2]:
            self._pace = phase, now, done
        _, since, before = self._pace
        if done == before:
            return {"phase": phase}
        rate = (done - before) / (now - since)
        return {"phase": phase, "rate": rate, "eta": (self._latest.total - done) / rate}

    def _now(self) -> Progress:
        engine = self._engine()
        return Progress(0, 0) if engine is None else engine.progress()

    def statistics(self) -> dict[str, int]:
        """Return counts of the work done, where they depend on the order of execution.

        For distances: ``tile_visits``, and ``cells_settled``, which counts a cell once for each
        visit that lowers it. The result does not depend on these counts and does not contain them.
        """
        engine = self._engine()
        return {} if engine is None else engine.statistics()

    def report(self) -> dict[str, Any]:
        """Return a summary of the run and of its progress, in types that JSON has.

        Returns
        -------
        dict
            ``operation``, ``inputs``, ``parameters``, ``shape``, ``tile``, ``shard``, ``out``,
            ``workers``, ``backend`` and ``versions``: as at the start of the run. ``begun`` (UTC),
            ``seconds``, ``status``, ``tasks`` (``done`` and ``total``), ``phase``, ``left``
            (seconds until it ends, or None), ``waiting``, ``statistics`` and ``resumed``: the
            progress. ``phases``: the seconds of each phase. ``memory``: the peak of this process
            since it began, and of the worker with the largest peak, sampled every two seconds;
            ``planned`` holds the values of the plan. ``bytes``: the size of the result on disk.
            ``error`` (``type``, ``message``, and ``where``: the tile and the worker) and ``next``,
            what to do about it: None unless the run has failed or was cancelled. A run to ``out``
            leaves its report in ``out/report.json``, and until it is finished in
            ``out.partial/*/report.json``.

        Examples
        --------
        >>> import numpy as np
        >>> import orograph as og
        >>> run = og.hop_distance.submit(np.ones((9, 9)), [(4, 4)])
        >>> _ = run.result()
        >>> report = run.report()
        >>> report["operation"], report["status"], report["shape"], report["error"]
        ('hop_distance', 'finished', [9, 9], None)
        """
        progress = self.progress()
        return {
            "phases": self._record.seconds(),
            "memory": self._record.memory(int(self._client is not None)),
            "seconds": round(self._seconds or time.monotonic() - self._began, 3),
            **self._describe(),
            "waiting": progress.waiting,
            "status": self.status,
            "tasks": {"done": progress.done, "total": progress.total},
            "phase": progress.phase,
            "left": None if math.isnan(progress.eta) else round(progress.eta, 1),
            "statistics": self.statistics(),
        }

    @property
    def dashboard_link(self) -> str | None:
        """Address of Dask's dashboard, or None if the run does not use a cluster."""
        return None if self._client is None else self._client.dashboard_link

    def result(self, timeout: float | None = None) -> T:
        """Wait for the run and return its result.

        On a terminal and in a notebook, a progress bar appears if this takes more than two seconds
        and the setting ``progress`` is not False.

        Parameters
        ----------
        timeout
            Maximum number of seconds to wait; None waits without a limit.

        Raises
        ------
        TimeoutError
            If the run is not finished after ``timeout``; this does not stop the run.
        InputError
            If ``timeout`` is not a number of seconds.
        Cancelled
            If the run was cancelled.
        OrographError
            The error that made the run fail; its cause is the exception of another library.
        """
        if timeout is not None:
            timeout = check_number("timeout", timeout, 0, TIMEOUT_MAX, "seconds, or None for ever")
        try:
            if timeout is None and not self._ended.wait(SECONDS_OF_SILENCE) and shows_progress():
                show_progress(self.progress, self._ended)
            ended = self._ended.wait(timeout)
        # Without this the run would go on in its thread.
        except KeyboardInterrupt:
            self.cancel()
            raise
        if not ended:
            raise TimeoutError(f"the run is not finished after {timeout} s ({self.progress()})")
        if self._error is not None:
            raise self._error
        result = cast("T", self._result)
        concerns, self._concerns = self._concerns, None
        for text in concerns(result) if concerns is not None else ():
            warn_user(text)
        return result

    def cancel(self) -> None:
        """Stop the run; its saved state stays, and ``resume=True`` continues from there."""
        self._cancelled.set()

    def __repr__(self) -> str:
        return f"<orograph.Run: {self.status}, {self.progress()}>"

    def _ipython_display_(self) -> None:
        if in_notebook():
            show_live(self._repr_html_, self._ended)
        else:
            print(repr(self))

    def _repr_html_(self) -> str:
        progress = self.progress()
        seconds = self._seconds or time.monotonic() - self._began
        rows: dict[str, Any] = {"status": self.status, "seconds": f"{seconds:.1f}"}
        if progress.waiting:
            rows["waiting"] = progress.waiting
        if progress.phase:
            rows["phase"] = progress.phase
        if progress.rate:
            rows["tasks a second"] = f"{progress.rate:.3g}"
        if not math.isnan(progress.eta):
            rows["time left"] = f"about {duration(progress.eta)}"
        rows |= {name.replace("_", " "): f"{n:,}" for name, n in self.statistics().items()}
        address = self.dashboard_link
        above = (
            "<br>"
            + html.bar(progress.done, progress.total)
            + (html.link(address) if address else "")
        )
        return html.table("Run", rows, above)
