"""The few ways in which orograph fails, each also a builtin exception."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class OrographError(Exception):
    """Anything orograph raises on purpose.

    Examples
    --------
    >>> import orograph as og
    >>> issubclass(og.OrographError, Exception)
    True
    """


class InputError(OrographError, ValueError):
    """An argument or an input raster cannot be used; nothing has been started.

    Examples
    --------
    >>> import orograph as og
    >>> try:
    ...     og.minimum_spanning_forest([[1, 2]])
    ... except ValueError as error:
    ...     print(type(error).__name__)
    InputError
    """


class StoreExistsError(OrographError, FileExistsError):
    """The place where a store should be written is taken.

    Examples
    --------
    >>> import orograph as og
    >>> issubclass(og.StoreExistsError, FileExistsError)
    True
    """


class DamagedChunkError(OrographError, OSError):
    """Stored cells cannot be read back: a checksum does not match, or a shard is missing.

    Examples
    --------
    >>> import orograph as og
    >>> issubclass(og.DamagedChunkError, OSError)
    True
    """


class StorageFullError(OrographError, OSError):
    """There is no room left for a shard: the device, a quota or a file size limit is full.

    Examples
    --------
    >>> import orograph as og
    >>> issubclass(og.StorageFullError, OSError)
    True
    """


class BackendError(OrographError, RuntimeError):
    """The asked-for backend cannot be used here.

    Examples
    --------
    >>> import orograph as og
    >>> issubclass(og.BackendError, RuntimeError)
    True
    """


class RunError(OrographError, RuntimeError):
    """A run could not be carried to its end.

    Examples
    --------
    >>> import orograph as og
    >>> issubclass(og.RunError, RuntimeError)
    True
    """


class NegativeCycle(OrographError, ValueError):
    """A graph has a cycle of negative length, so that there are no shortest paths through it.

    Parameters
    ----------
    cycle
        Its vertices, in order; an edge leads from the last to the first.
    length
        The sum of its edges.

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
    """A run was cancelled by its owner.

    Examples
    --------
    >>> import orograph as og
    >>> issubclass(og.Cancelled, og.OrographError)
    True
    """


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def storage_error(error: OSError, path: str | os.PathLike[str]) -> OSError:
    """The error to raise for ``error``, met while writing ``path``.

    `StorageFullError` if the system says that there is no room; any other as it is.
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
def full_storage_reported(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn "no room" from the system, met while writing ``path``, into `StorageFullError`."""
    try:
        yield
    except OSError as error:
        sent = storage_error(error, path)
        if sent is error:
            raise
        raise sent from error


def free_bytes(path: str | os.PathLike[str]) -> int:
    """Bytes that are free where ``path`` is or would be."""
    folder = next(parent for parent in Path(path).absolute().parents if parent.exists())
    return shutil.disk_usage(folder).free
