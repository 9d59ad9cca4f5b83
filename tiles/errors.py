"""Exceptions that orograph raises; most of them also derive from builtin exceptions."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from orograph.tiles.addresses import without_secrets
from orograph.tiles.warn import warning_once

P = ParamSpec("P")
T = TypeVar("T")


class OrographError(Exception):
    """Base class of the exceptions that orograph raises.

    Examples
    --------
    >>> import orograph as og
    >>> issubclass(og.OrographError, Exception)
    True
    """

    def __init__(self, *args: object) -> None:
        # on one line, whatever a path or another library has
        super().__init__(
            *(
                without_secrets(re.sub(r"\s*[\r\n]+\s*", " ", arg)) if isinstance(arg, str) else arg
                for arg in args
            )
        )


class InputError(OrographError, ValueError):
    """An argument or an input raster cannot be used; no task has run.

    Examples
    --------
    >>> import orograph as og
    >>> try:
    ...     og.minimum_spanning_forest([[1, 2]])
    ... except ValueError as error:
    ...     print(type(error).__name__)
    InputError
    """


class OptionMissingError(InputError):
    """Raised if a source can only be read with an option that was not given.

    Parameters
    ----------
    message : str
        What is wrong.
    option : str
        The option: ``"nodata"``, ``"band"`` or ``"variable"``.
    advice : str
        How to pass it.
    otherwise : str
        What else can be done, by callers that do not have the option too.
    names : sequence of str
        Values of the option, if they are known.
    """

    def __init__(
        self, message: str, option: str, advice: str, otherwise: str, names: Sequence[str] = ()
    ) -> None:
        super().__init__(f"{message}; {advice}, or {otherwise}")
        self.option, self.names = option, tuple(names)
        self.without = f"{message}; {otherwise}"
        """Message for callers that do not have the option."""


class StoreExistsError(OrographError, FileExistsError):
    """Something exists where a store should be written.

    Examples
    --------
    >>> import orograph as og
    >>> issubclass(og.StoreExistsError, FileExistsError)
    True
    """


class DamagedStoreError(OrographError, OSError):
    """A store or its metadata are not as they were written; the message names the file.

    Examples
    --------
    >>> import orograph as og
    >>> issubclass(og.DamagedStoreError, OSError)
    True
    """


class DamagedChunkError(DamagedStoreError):
    """Stored values cannot be read: a checksum does not match, or a file is missing.

    Examples
    --------
    >>> import orograph as og
    >>> issubclass(og.DamagedChunkError, OSError)
    True
    """


class StorageError(OrographError, OSError):
    """A file or a store cannot be reached, read or written.

    Examples
    --------
    >>> import orograph as og
    >>> issubclass(og.StorageError, OSError)
    True
    """


class StorageFullError(StorageError):
    """A shard cannot be written: the device, a quota or a file size limit is full.

    Examples
    --------
    >>> import orograph as og
    >>> issubclass(og.StorageFullError, OSError)
    True
    """


class BackendError(OrographError, RuntimeError):
    """The requested backend cannot be used on this machine.

    Examples
    --------
    >>> import orograph as og
    >>> issubclass(og.BackendError, RuntimeError)
    True
    """


class RunError(OrographError, RuntimeError):
    """A run could not finish.

    Examples
    --------
    >>> import orograph as og
    >>> issubclass(og.RunError, RuntimeError)
    True
    """


class NegativeCycle(OrographError, ValueError):
    """A graph has a cycle of negative length, so no shortest path through it exists.

    Parameters
    ----------
    cycle
        Vertices of the cycle, in order; an edge leads from the last to the first.
    length
        Sum of the lengths of its edges.

    Examples
    --------
    >>> import orograph as og
    >>> try:
    ...     og.all_pairs([[0, 1], [-2, 0]])
    ... except og.NegativeCycle as error:
    ...     print(error.cycle, error.length)
    [0, 1] -1.0
    """

    def __init__(self, cycle: list[int], length: float) -> None:
        super().__init__(cycle, length)
        self.cycle = cycle
        self.length = length

    def __str__(self) -> str:
        shown = self.cycle if len(self.cycle) <= 20 else [*self.cycle[:10], "...", self.cycle[-1]]
        way = " -> ".join(str(vertex) for vertex in [*shown, self.cycle[0]])
        return (
            f"graph: the cycle {way} has length {self.length}, and going round it again makes any "
            "path through it shorter; remove one of its edges, or make it longer"
        )


class Cancelled(OrographError):
    """The user cancelled a run.

    Examples
    --------
    >>> import orograph as og
    >>> issubclass(og.Cancelled, og.OrographError)
    True
    """


_OF_PATHS = {errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.ENOTDIR, errno.EISDIR}
"""Numbers of the errors by which a system refuses a path."""


def own_error(error: Exception, what: str, began: bool = False) -> Exception:
    """Return the error of this package for an exception of another.

    Parameters
    ----------
    error
        What was raised. Own errors, and warnings that a filter raises, are returned as they are.
    what
        The name of the function.
    began
        Whether its arguments had been checked, and work had begun.
    """
    if isinstance(error, OrographError | Warning):
        return error
    said = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    if isinstance(error, OSError) and storage_error(error, "") is not error:
        own: OrographError = StorageFullError(
            error.errno, "no room to write; free some and try again", str(error.filename or "")
        )
    # Before the work has begun, a path that the system refuses is an argument that cannot be used.
    elif isinstance(error, OSError) and not (error.errno in _OF_PATHS and not began):
        own = StorageError(
            f"{what}: {said}; check that the path is right, and that it can be reached and used"
        )
        own.errno = error.errno
    elif began or isinstance(error, RuntimeError | MemoryError):
        own = RunError(f"{what} failed with {said}; the exception it came from says where")
    else:
        own = InputError(
            f"{what}: the arguments cannot be used ({said}); check them by "
            f"help(orograph.{what}), and report this if they are right"
        )
    for note in getattr(error, "__notes__", ()):
        own.add_note(note)
    return own


AFTER_CALLS: list[Callable[[], None]] = []
"""Functions that are called at the end of each call of a public function, in its thread."""


def own_errors(function: Callable[P, T], name: str = "") -> Callable[P, T]:
    """Wrap a public function so that all exceptions that leave it are errors of this package.

    A TypeError of the call itself, for an argument that is missing or unknown, stays one. A call
    issues each warning once, and closes the files that it has opened.
    """

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with warning_once() as is_outermost:
                try:
                    return function(*args, **kwargs)
                finally:
                    for clean_up in AFTER_CALLS if is_outermost else ():
                        clean_up()
        except Exception as error:
            # Without a further frame the call itself has failed, before the function began.
            within = error.__traceback__ and error.__traceback__.tb_next
            own = own_error(error, name or function.__qualname__)
            if own is error or (isinstance(error, TypeError) and within is None):
                raise
            raise own from error

    return wrapped


PROBED_BYTES = 2**20
"""Number of bytes that probe whether storage is full: more than a library buffers."""
_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}


def storage_error(error: OSError, path: str | os.PathLike[str]) -> OSError:
    """Return the error to raise for an ``error`` that occurred while writing ``path``.

    It is a `StorageFullError` if the system reports that there is no space, otherwise ``error``
    itself.
    """
    if isinstance(error, OrographError) or error.errno not in _FULL:
        return error
    return StorageFullError(
        error.errno,
        f"no room to write ({error.strerror}; {free_bytes(path)} bytes free on its file system, "
        "quotas aside); free some and resume, or delete the unfinished store",
        str(path),
    )


@contextmanager
def report_missing(what: str, packages: str, extra: str = "vector") -> Iterator[None]:
    """Raise `OrographError` if packages cannot be imported, naming the extra that installs them."""
    try:
        yield
    except ImportError as error:
        them = "them" if " and " in packages else "it"
        raise OrographError(
            f"{what}: it needs {packages}; install {them} with pip install 'orograph[{extra}]'"
        ) from error


@contextmanager
def report_full_storage(
    path: str | os.PathLike[str], unfinished: Path | None = None
) -> Iterator[None]:
    """Raise `StorageFullError` if there is no space while ``path`` is written.

    The system reports it, but libraries may not pass that on. ``unfinished`` is the file that such
    a library writes; if the library fails, a few bytes are appended to that file to see whether
    there is space.
    """
    try:
        yield
    except OrographError:
        raise
    except Exception as error:
        reported = storage_error(error, path) if isinstance(error, OSError) else error
        if reported is error and unfinished is not None:
            reported = _error_of_appending(unfinished, path) or error
        if reported is error:
            raise
        raise reported from error


def _error_of_appending(unfinished: Path, path: str | os.PathLike[str]) -> OSError | None:
    """Return the `StorageFullError` that appending to a file raises, if it does."""
    try:
        with open(unfinished, "ab") as file:
            file.write(bytes(PROBED_BYTES))
    except OSError as error:
        reported = storage_error(error, path)
        return reported if isinstance(reported, StorageFullError) else None
    return None


def unread_error(path: str | os.PathLike[str]) -> StorageFullError:
    """Return the error for a file that is not as it was written, though no write has failed."""
    return StorageFullError(
        f"{path} does not read back as it was written; most often the device, a quota or a file "
        f"size limit is full ({free_bytes(path)} bytes free on its file system): free some and "
        "write it again"
    )


def free_bytes(path: str | os.PathLike[str]) -> int:
    """Return the free bytes of the file system that holds, or would hold, ``path``."""
    folder = next(parent for parent in Path(path).absolute().parents if parent.exists())
    return shutil.disk_usage(folder).free
