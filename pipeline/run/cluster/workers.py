"""Check a cluster's workers before a run, and filter what they log of the run's errors.

Before a run they must have this orograph and see the run's folder.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from orograph._version import __version__
from orograph.run.cluster.clusters import Restrictions, workers_of
from orograph.tiles import errors
from orograph.tiles.errors import OrographError, RunError
from orograph.tiles.object_options import StorageOptions
from orograph.tiles.storage import Storage

if TYPE_CHECKING:
    from distributed import Client, Worker

WITNESS = "witness"
NAMED = 3  # workers in a message
SECONDS_TO_ANSWER = 10.0
SECONDS_TO_FORGET_TURNS = 5.0  # of a run that has said nothing
TRIM_THRESHOLD_OF_DASK = "65536"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of <malloc.h>
MOST_BYTES_KEPT = 2**28
LIMIT_OVER_KEPT = 16
"""Ratio of a worker's memory limit to the freed memory that it keeps at most."""
MOST_BYTES_OF_AN_ARRAY = 2**26
"""Size in bytes above which a freed array is given back to the system."""


PlainWitness = tuple[str, str | None, str, str]
seen: set[PlainWitness] = set()
"""Witnesses that this process has found to be right."""


class Witness(NamedTuple):
    """Version, folder and token that each worker must see the same as the client."""

    version: str
    """Version of orograph."""
    folder: str | None = None
    """Folder of the run, or the storage that holds the object alone; None: nothing is checked."""
    token: str = ""
    """Content of the object in the run's folder."""
    options: StorageOptions = StorageOptions()
    """Options by which the folder is opened, if it is in an object store."""
    key: str = WITNESS
    """Key of the object in the run's folder."""

    @property
    def plain(self) -> PlainWitness:
        """Version, folder, token and key, for `make_look`, which is given the options apart."""
        return self.version, self.folder, self.token, self.key


def witness_in(folder: Storage, token: str, key: str = WITNESS) -> Witness:
    """Return the witness of a folder in which an object holds a token."""
    options = getattr(folder, "options", StorageOptions())
    return Witness(__version__, str(folder), token, options, key)


def make_look(
    options: Mapping[str, str | bool],
) -> Callable[..., tuple[str, str]]:
    """Return a function that reports a worker's host and why it cannot take part, or "".

    ``options`` are those of the folder's object store. The function does not take them as an
    argument, since Dask may log arguments. It is a nested function because Dask sends those by
    their code, so that workers without orograph, or with another version, can call it.
    """

    def look(witness: tuple[str, str | None, str, str], dask_worker: Any = None) -> tuple[str, str]:
        import socket

        version, folder, token, key = witness
        host = socket.gethostname()
        try:
            from orograph._version import __version__ as found
        except Exception as error:
            return host, f"cannot import orograph ({error!r}); install {version} there"
        if found != version:
            return host, f"has orograph {found}, this session {version}; install the same on all"
        if folder is None:
            return host, ""
        try:
            from orograph.tiles.object_options import use_storage_options
            from orograph.tiles.open_storage import open_storage

            with use_storage_options(options):
                # In an object store this is the lease, which holds more than the token.
                same = token.encode() in open_storage(folder).get(key)
        except Exception as error:
            return host, (
                f"cannot read the run's folder {folder} ({error!r}); take one for out= (or "
                "config['scratch']) that all workers see"
            )
        if not same:
            return host, (
                f"sees another folder at {folder}; take one for out= (or config['scratch']) that "
                "all workers see"
            )
        # By an import: the function was sent by its code, so ``seen`` would be a copy.
        from orograph.run.cluster import workers

        workers.seen.add((version, folder, token, key))
        workers.keep_freed_memory(dask_worker and dask_worker.memory_manager.memory_limit)
        return host, ""

    return look


def check_workers(client: Client, witness: Witness | None = None) -> None:
    """Raise RunError if a worker has another version or cannot see the run's folder.

    Parameters
    ----------
    client : Client
        Of the cluster; its workers of this moment are asked. One that does not answer will look by
        itself before its first task.
    witness : Witness, optional
        What they must find; by default this version of orograph.

    Raises
    ------
    RunError
        It names the workers, their hosts and what is wrong.
    """
    wanted = witness or Witness(__version__)
    look = make_look(dict(wanted.options.items))
    answers = ask_workers(client, look, wanted.plain, on_error="return")
    # a worker that dies meanwhile takes no part in the run
    troubles = [
        f"the worker {address} on {answer[0]} {answer[1]}"
        for address, answer in sorted(answers.items())
        if isinstance(answer, tuple) and answer[1]
    ]
    if troubles:
        more = len(troubles) - NAMED
        raise RunError(
            "; ".join(troubles[:NAMED])
            + (f"; and {more} more" if more > 0 else "")
            + "; nothing has been started"
        )


def ask_workers(
    client: Client,
    function: Callable[..., Any],
    *arguments: object,
    on_error: Literal["raise", "return", "ignore"] = "ignore",
) -> dict[str, Any]:
    """Call a function on each worker of a cluster; return the results by address.

    Dask asks all at once, and waits for the last. If one has not answered after
    `SECONDS_TO_ANSWER`, each is asked by itself, for a tenth of that time. Where Dask's annotations
    restrict tasks to some workers, others are not asked.
    """
    restrictions = Restrictions.current()
    able: list[str] | None = None
    if any(restrictions):
        reply: Any = client.run_on_scheduler(make_roll_call(), None, *restrictions)
        able = [*reply[1]]
    with suppress(TimeoutError):
        found: dict[str, Any] = client.run(
            function,
            *arguments,
            workers=able,
            on_error=on_error,
            callback_timeout=SECONDS_TO_ANSWER,
        )
        return found
    answers: dict[str, Any] = {}
    for worker in able or workers_of(client):
        with suppress(TimeoutError):
            answers |= client.run(
                function,
                *arguments,
                workers=[worker],
                on_error=on_error,
                callback_timeout=SECONDS_TO_ANSWER / 10,
            )
    return answers


Turns = dict[str, tuple[float, float]]
"""Time of submission and progress of each run of a cluster, by its token."""


def make_roll_call() -> Callable[..., tuple[int, dict[str, int] | None, Turns]]:
    """Return a function that reports each worker's threads from the scheduler, if changed.

    Only of workers that may do the tasks, and as many threads as have what these take of resources.
    It reports the turns of runs too, and notes that of the run that asks, ``(token, begun, now)``:
    one that begins, without ``now``, is put where the last of the others is, and one that ends, at
    infinity, is forgotten.
    It is a function in a function for the reason that `make_look` gives.
    """

    def roll_call(
        known: int | None,
        resources: Iterable[tuple[str, float]] = (),
        workers: list[str] | None = None,
        turn: tuple[str, float, float | None] | None = None,
        dask_scheduler: Any = None,
    ) -> tuple[int, dict[str, int] | None, Turns]:
        # An attribute of the scheduler, which all clients share and which ends with it.
        noted = vars(dask_scheduler).setdefault("orograph_turns", {})
        oldest = time.monotonic() - SECONDS_TO_FORGET_TURNS
        for token in [token for token, (_, _, seen) in noted.items() if seen < oldest]:
            del noted[token]
        if turn is not None:
            token, begun, now = turn
            if now is None:
                now = min((others for _, others, _ in noted.values()), default=0.0)
            noted[token] = begun, now, time.monotonic()
            if now == math.inf:
                del noted[token]
        turns = {token: (begun, now) for token, (begun, now, _) in noted.items()}
        every = dask_scheduler.workers
        named = every if workers is None else dask_scheduler.workers_list(workers)
        threads = {}
        for address in named:
            if address in every:
                its = every[address]
                needed = dict(resources).items()
                at_once = [its.resources.get(name, 0) // n for name, n in needed if n]
                if count := int(min([its.nthreads, *at_once])):
                    threads[address] = count
        # A number of this process, which is compared with its own earlier ones only.
        version = hash(frozenset(threads.items()))
        return version, None if version == known else threads, turns

    return roll_call


def keep_freed_memory(limit: int | None = None) -> None:
    """Let this worker keep freed memory for the next arrays, unless its user has said otherwise.

    It keeps less where its memory has a small ``limit``.

    By Dask's default a worker returns it to the system at once, which then has to clear the pages
    of each new array: a quarter to a half of the processor's time of runs that do little else.
    """
    if os.environ.get("MALLOC_TRIM_THRESHOLD_") != TRIM_THRESHOLD_OF_DASK:
        return
    with suppress(AttributeError, OSError, TypeError):  # it is one of glibc
        mallopt = ctypes.CDLL(None).mallopt
        most = min(MOST_BYTES_KEPT, (limit or math.inf) // LIMIT_OVER_KEPT)
        mallopt(M_TRIM_THRESHOLD, int(most))
        mallopt(M_MMAP_THRESHOLD, MOST_BYTES_OF_AN_ARRAY)


def return_freed_memory() -> None:
    """Return the memory that this process has freed and keeps to the system."""
    with suppress(AttributeError, OSError, TypeError):  # it is one of glibc
        ctypes.CDLL(None).malloc_trim(0)


def keep_log_short() -> None:
    """Filter from a worker's log the errors that the run itself raises.

    Dask logs the traceback of each task that fails. An error of ours says in one sentence all that
    is to be said, and is raised where the run is waited for. Of a lost worker, whose data Dask
    fetches elsewhere or makes anew, one line stays.
    """
    logging.getLogger("distributed.worker").addFilter(_is_news)
    logging.getLogger("distributed.worker").addFilter(_without_traceback)
    logging.getLogger("distributed.worker.state_machine").addFilter(_is_news)


def dask_setup(_: Worker) -> None:
    """Filter a worker's log from its start, where Dask preloads this module."""
    keep_log_short()


_OWN = tuple(
    f"{name}("
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, OrographError)
)

# what a worker says that is stopped at work, or whose scheduler has ended
_OF_AN_END = "Async instruction for", "Failed to communicate with scheduler during heartbeat"


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a worker's log record says something that the run does not report itself."""
    if str(record.msg).startswith("Compute Failed"):
        return not any(str(part).startswith(_OWN) for part in record.args or ())
    return not str(record.msg).startswith(_OF_AN_END)


def _without_traceback(record: logging.LogRecord) -> bool:
    """Remove the traceback from a record about a lost worker; return True."""
    if str(record.msg).startswith("Worker stream died during communication"):
        record.exc_info = record.exc_text = None
    return True
