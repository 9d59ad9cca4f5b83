"""The workers of a cluster: their check before a run, and what they log of its errors.

Before a run they must have this orograph and see the run's folder.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from orograph import __version__
from orograph.tiles import errors
from orograph.tiles.errors import OrographError, RunError
from orograph.tiles.storage import Storage

if TYPE_CHECKING:
    from distributed import Client

WITNESS = "witness"
NAMED = 3  # workers in a message


class Witness(NamedTuple):
    """Evidence that every worker of a run must find: the version, and a token in its folder."""

    version: str
    """Of orograph."""
    folder: str | None = None
    """The run's folder; None: no file of it is looked at."""
    token: str = ""
    """What the object `WITNESS` there holds."""


def leave_witness(folder: Storage, token: str) -> Witness:
    """Put an object into the folder of a run, by which workers see that it is the same folder."""
    folder.put(WITNESS, token.encode())
    return Witness(__version__, str(folder), token)


def make_look() -> Callable[[Witness | tuple[str, str | None, str]], tuple[str, str]]:
    """Return a function that tells the host of a worker, and why it cannot take part, if so.

    It is a function in a function, since Dask sends those by their code: so it can be called where
    there is no orograph, or another one.
    """

    def look(witness: Witness | tuple[str, str | None, str]) -> tuple[str, str]:
        import socket

        version, folder, token = witness
        host = socket.gethostname()
        try:
            import orograph

            found = orograph.__version__
        except Exception as error:
            return host, f"cannot import orograph ({error!r}); install {version} there"
        if found != version:
            return host, f"has orograph {found}, this session {version}; install the same on all"
        if folder is None:
            return host, ""
        try:
            from orograph.tiles.storage import open_storage

            same = open_storage(folder).get("witness") == token.encode()
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
        return host, ""

    return look


def check_workers(client: Client, witness: Witness | None = None) -> None:
    """Raise RunError if a worker of a cluster cannot take part in a run.

    Parameters
    ----------
    client : Client
        Of the cluster; its workers of this moment are asked.
    witness : Witness, optional
        What they must find; by default this version of orograph.

    Raises
    ------
    RunError
        It names the workers, their hosts and what is wrong.
    """
    plain = tuple(witness or Witness(__version__))
    answers = client.run(make_look(), plain, on_error="return")
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


def keep_log_short() -> None:
    """Keep errors that the run itself raises, and the end of its cluster, out of a worker's log.

    Dask logs the traceback of each task that fails. An error of ours says in one sentence all that
    is to be said, and is raised where the run is waited for.
    """
    logging.getLogger("distributed.worker").addFilter(_is_news)
    logging.getLogger("distributed.worker.state_machine").addFilter(_is_news)


_OWN = tuple(
    f"{name}("
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, OrographError)
)


# what a worker says that is stopped at work, or whose scheduler has ended
_OF_AN_END = "Async instruction for", "Failed to communicate with scheduler during heartbeat"


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a record of a worker's log says what the run does not say itself."""
    if str(record.msg).startswith("Compute Failed"):
        return not any(str(part).startswith(_OWN) for part in record.args or ())
    return not str(record.msg).startswith(_OF_AN_END)
