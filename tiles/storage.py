"""Storage interface: objects addressed by key, in a local folder or an object store.

A key is a path of names relative to the root of a `Storage`, separated by ``/``. Objects are
written whole or not at all. An object store has no folders and cannot rename, so no code outside
this file may assume that the folders of a key exist, or that an object or a store can be renamed.
In place of a rename there are `Storage.commit`, for a whole store, and `Storage.move`, for an
object; both can be repeated after a kill.

One idea, long: what a storage promises, and the file system that keeps it.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.arguments import absolute_path, check_name_length, check_path, shown
from orograph.tiles.arrays import empty
from orograph.tiles.errors import InputError, report_full_storage
from orograph.tiles.files import (
    Part,
    create_file,
    delete_temporaries,
    exchange,
    is_internal,
    is_temporary,
    is_token,
    locked,
    replace_file,
    sync_file,
)
from orograph.tiles.patience import patient, patiently
from orograph.tiles.system import READ, WITHOUT_WAITING, read_at

SECONDS_TO_DELETE = 0.02
"""For which deleting is waited for: small stores are gone when a call returns, others soon after.

To delete 3 GB takes half a second, in which a run could have returned.
"""
THREADS_TO_DELETE = 8
_NOT_A_FILE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO}
"""Errors of opening a path at which there is no file: the last two of a link and a socket."""
LONGEST_SUFFIX = 48
"""Bytes, of what names of unfinished and of removed stores have more than the store's."""


class State(NamedTuple):
    """Size and version of an object, which identify its content."""

    size: int
    """Size in bytes."""
    version: Hashable
    """Device, inode and time of a file, or address and ETag: no other content ever has the same."""


class Reader(Protocol):
    """An open object, which keeps reading the same version if the object is replaced."""

    @property
    def state(self) -> State:
        """Size and version of the open object."""

    def range(self, offset: int, length: int) -> NDArray[np.uint8]:
        """Read ``length`` bytes from ``offset`` into an array.

        Raises
        ------
        ValueError
            If the object ends before.
        """

    def tail(self, length: int) -> NDArray[np.uint8]:
        """Read the last ``length`` bytes, or all if there are fewer."""

    def only_tail(self, length: int) -> Reader | None:
        """Return a reader that keeps the last ``length`` bytes and asks for all others.

        It reads the same version, or raises ValueError where that has been replaced. None if the
        object need not be opened again for its tail, or is closed with its context.
        """

    def holding(self, ranges: Sequence[tuple[int, int]]) -> Reader | None:
        """Return a reader that has read some ranges, each an offset and a length, already.

        It reads the same version, as that of `only_tail`. None where nothing is saved by that.
        """

    def __enter__(self) -> Reader: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Storage(Protocol):
    """Interface to the objects below one root, such as a store or the files of a run.

    A storage is hashable and small when pickled: it holds the address of the root, and no
    connection. ``str`` returns that address. ``prefix`` is a key without a ``/`` at its end; the
    empty one is the root. Internal files of the storage, such as unfinished ones, have no key.
    """

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str:
        """Last component of the root's path."""

    # -- objects -----------------------------------------------------------------------------------

    def get(self, key: str) -> bytes:
        """Read an object; raise FileNotFoundError if there is none."""

    def fetch(self, key: str) -> tuple[bytes, State]:
        """Read an object and its state; raise FileNotFoundError if there is none."""

    def open(self, key: str) -> Reader:
        """Open an object to read parts of it; FileNotFoundError if there is none."""

    def state(self, key: str) -> State | None:
        """Return size and version of an object; None if there is none."""

    def put(self, key: str, *parts: Part) -> None:
        """Write an object, given in parts (bytes or arrays of bytes), atomically.

        Readers see the old object or the new one.

        Raises
        ------
        FileNotFoundError
            If the root is a folder that has been removed: a late writer must not create it again.
        StorageFullError
            If there is no room. The old object is then unchanged.
        """

    def create(self, key: str, *parts: Part) -> None:
        """Write an object as `put` does, or raise FileExistsError if there is one.

        Of any number of concurrent writers one succeeds.
        """

    def put_if(self, key: str, state: State, *parts: Part) -> bool:
        """Replace an object atomically if its version is still ``state``; return whether it was.

        Of any number of concurrent calls with one ``state``, of this and of `delete_if`, one
        returns True.
        """

    def delete_if(self, key: str, state: State) -> bool:
        """Delete an object if its version is still ``state``; return whether it was."""

    def move(self, key: str, target: str) -> None:
        """Rename an object, replacing the object at the new key.

        ``target`` is whole at any time. After a kill the object may have both keys; the move can
        then be repeated.
        """

    def delete(self, key: str) -> None:
        """Delete an object if it exists."""

    def sync(self, *keys: str) -> None:
        """Flush objects to disk.

        Of a prefix, the names after it would survive. For use before anything is deleted because
        of them.
        """

    # -- prefixes ----------------------------------------------------------------------------------

    def names(self, prefix: str = "") -> list[str]:
        """Return the names directly below a prefix, as listing a folder does."""

    def objects(self, prefix: str = "") -> Iterator[tuple[str, State]]:
        """Yield key and state of every object below a prefix, in any order."""

    def inventory(self) -> Any:
        """List all below the root for a later `delete_all`; return None where it needs no list."""

    def delete_all(self, prefix: str = "", first: str = "", listed: Any = None) -> None:
        """Delete all objects below a prefix, also what killed deletions have left.

        If this call is killed, some objects may remain, but not ``first`` alone. Many are deleted
        in the background: after the call none is found by its key. ``listed`` is an `inventory`:
        nothing else is deleted then.
        """

    def child(self, name: str) -> Storage:
        """Return the storage whose root is ``name`` below this root."""

    def beside(self, suffix: str) -> Storage:
        """Return the storage at this root's address with a suffix appended."""

    # -- whole stores ------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether anything exists at the root, including files and broken links."""

    def entries(self) -> set[str] | None:
        """Return the names directly below the root; None if nothing exists there.

        ``.`` alone stands for what `commit` cannot replace, such as a file or a link.
        """

    def check_place(self) -> None:
        """Raise InputError if a store cannot be written at the root."""

    def check_conditions(self, key: str) -> None:
        """Raise InputError if `create` or `put_if` would replace any object.

        ``key`` is that of an object that the caller has created, and which may be replaced.
        """

    def overlaps(self, other: Storage) -> bool:
        """Return whether two roots are equal or one lies within the other."""

    def claim(self, looked: bool = False) -> None:
        """Create the root; raise FileExistsError if it exists.

        ``looked``: the caller knows that it does not exist, unless another claims it now.
        """

    @property
    def renames(self) -> bool:
        """Whether `commit` renames a folder at once instead of moving its objects."""

    @property
    def etags(self) -> bool:
        """Whether `objects` is quicker than to open a few of them, and its states are ETags."""

    def staging(self, place: Storage, name: str) -> Storage:
        """Return the storage in which to write a store that will be committed to this root.

        It is ``place`` if that can be renamed. Else it lies below this root, where the objects
        stay, and ``name`` tells it from others.

        Raises
        ------
        InputError
            If no store can be committed to this root.
        """

    def delete_unfinished(self) -> None:
        """Delete what writers that were killed have left below this root, at `staging`."""

    def last_commit(self) -> Any:
        """Return the last commit, by which `commit` notices that another came after it."""

    def commit(self, staged: Storage, replace: bool = False, last: Any = None) -> None:
        """Rename a finished store to this root, replacing an older one if allowed.

        At any time readers find the old store whole, or none, or the new one whole; if the storage
        can exchange two names, always one of them. After a kill either ``staged`` is still whole,
        and can be committed again, or the new store is complete.

        Parameters
        ----------
        staged : Storage
            The finished store.
        replace : bool
            Whether there may be an older one.
        last : optional
            The `last_commit`, looked at before; the caller then calls `delete_replaced`.

        Raises
        ------
        FileExistsError
            If the root exists, and ``replace`` is false; or if another has been committed since
            ``last``, where that can be told.
        """

    def delete_replaced(self, last: Any) -> None:
        """Delete what the commit after ``last`` has replaced, as far as it is there."""

    def zarr_store(self) -> Any:
        """Return the storage as a store object for zarr-python and xarray."""


Location = str | os.PathLike[str] | Storage
"""Path, URL or storage of a store."""


@dataclass(frozen=True)
class LocalStorage:
    """Storage in a folder of a local or shared file system."""

    root: str

    def __init__(self, root: str | os.PathLike[str]) -> None:
        object.__setattr__(self, "root", absolute_path("path", root))

    def __str__(self) -> str:
        return self.root

    def _path(self, key: str) -> str:
        return f"{self.root}/{key}" if key else self.root

    @property
    def name(self) -> str:
        return os.path.basename(self.root)

    def get(self, key: str) -> bytes:
        return self.fetch(key)[0]

    @patient
    def fetch(self, key: str) -> tuple[bytes, State]:
        with os.fdopen(self._open(key), "rb") as file:
            return file.read(), _state(os.fstat(file.fileno()))

    @patient
    def open(self, key: str) -> Reader:
        file = self._open(key)
        return _FileReader(self._path(key), file, _state(os.fstat(file)))

    def _open(self, key: str) -> int:
        """Open a file for reading and return its descriptor."""
        path = self._path(key)
        try:
            # not blocking: to open a named pipe would wait for a writer
            file = os.open(path, READ | WITHOUT_WAITING)
        except OSError as error:
            if error.errno not in _NOT_A_FILE:
                raise
            raise _missing(path) from None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise _missing(path)
        return file

    @patient
    def state(self, key: str) -> State | None:
        try:
            status = os.stat(self._path(key))
        except OSError as error:
            if error.errno not in _NOT_A_FILE:
                raise
            return None
        return _state(status) if stat.S_ISREG(status.st_mode) else None

    @patient
    def put(self, key: str, *parts: Part) -> None:
        path = Path(self._path(key))
        with report_full_storage(path):
            self._in_folder(key, lambda: replace_file(path, *parts))

    @patient
    def create(self, key: str, *parts: Part) -> None:
        path = Path(self._path(key))
        with report_full_storage(path):
            self._in_folder(key, lambda: create_file(path, *parts))

    def put_if(self, key: str, state: State, *parts: Part) -> bool:
        path = Path(self._path(key))
        with (
            report_full_storage(path),
            locked(path, lambda status: _state(status) == state) as same,
        ):
            if same:
                replace_file(path, *parts)
            return same

    def delete_if(self, key: str, state: State) -> bool:
        path = Path(self._path(key))
        with locked(path, partial(_has_state, state)) as same:
            if same:
                path.unlink()
                delete_temporaries(path)  # of writers that were killed
            return same

    @patient
    def move(self, key: str, target: str) -> None:
        self._in_folder(target, lambda: os.replace(self._path(key), self._path(target)))

    def _in_folder(self, key: str, write: Callable[[], None]) -> None:
        """Write a file, creating missing folders of its key but not the root.

        A missing root means that its run has been removed.
        """
        try:
            write()
        except FileNotFoundError:
            folder = self.root
            for name in key.split("/")[:-1]:
                folder = f"{folder}/{name}"
                with suppress(FileExistsError):
                    os.mkdir(folder)
            write()

    @patient
    def delete(self, key: str) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self._path(key))

    def sync(self, *keys: str) -> None:
        for key in keys:
            sync_file(self._path(key))

    @patient
    def names(self, prefix: str = "") -> list[str]:
        try:
            found = os.listdir(self._path(prefix))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [name for name in found if not is_internal(name)]

    def objects(self, prefix: str = "") -> Iterator[tuple[str, State]]:
        for folder, folders, names in os.walk(self._path(prefix)):
            folders[:] = [name for name in folders if not is_internal(name)]
            for name in names:
                key = os.path.relpath(os.path.join(folder, name), self.root).replace(os.sep, "/")
                state = None if is_internal(name) else self.state(key)
                if state is not None:
                    yield key, state

    def inventory(self) -> None:
        """Return None: a folder is deleted as a whole."""

    def delete_all(self, prefix: str = "", first: str = "", listed: Any = None) -> None:
        if first:
            self.delete(first)
        # Rename first: no reader then sees a part of it, and no late writer finds it.
        path = Path(self._path(prefix))
        hidden = f".{path.name}."
        with suppress(FileNotFoundError, NotADirectoryError):
            path.rename(path.with_name(hidden + uuid.uuid4().hex))
        with suppress(FileNotFoundError, NotADirectoryError):
            found = [trash for trash in path.parent.iterdir() if trash.name.startswith(hidden)]
            trash = [one for one in found if is_token(one.name.removeprefix(hidden))]
            if trash:
                # the process does not end before this thread has
                thread = Thread(target=_remove, args=[trash], name="orograph-delete", daemon=False)
                try:
                    thread.start()
                except RuntimeError:  # no thread can be started while Python ends
                    _remove(trash)
                else:
                    thread.join(SECONDS_TO_DELETE)

    def child(self, name: str) -> LocalStorage:
        return LocalStorage(self._path(name))

    def beside(self, suffix: str) -> LocalStorage:
        return LocalStorage(self.root + suffix)

    def exists(self) -> bool:
        return os.path.lexists(self.root)

    def entries(self) -> set[str] | None:
        if not self.exists():
            return None
        if os.path.islink(self.root) or not os.path.isdir(self.root):
            return {"."}
        return set(self.names())

    def check_place(self) -> None:
        parent = os.path.dirname(self.root)
        if not os.path.isdir(parent):
            raise InputError(f"{self}: the folder {parent} does not exist; create it first")
        check_name_length(self.root, LONGEST_SUFFIX)

    def check_conditions(self, key: str) -> None:
        """Do nothing: files are created and locked by one."""

    def overlaps(self, other: Storage) -> bool:
        if not isinstance(other, LocalStorage):
            return False
        one, two = os.path.realpath(self.root), os.path.realpath(other.root)
        return os.path.commonpath([one, two]) in (one, two)

    def claim(self, looked: bool = False) -> None:
        with report_full_storage(self.root):
            os.mkdir(self.root)

    @property
    def renames(self) -> bool:
        return True

    @property
    def etags(self) -> bool:
        return False

    def staging(self, place: Storage, name: str) -> Storage:
        return place

    def delete_unfinished(self) -> None:
        """Do nothing: all that is unfinished lies beside the root."""

    def last_commit(self) -> None:
        """Return None: whoever has the lease commits."""

    def delete_replaced(self, last: Any) -> None:
        """Do nothing: `commit` does it."""

    def commit(self, staged: Storage, replace: bool = False, last: Any = None) -> None:
        source, target = local_path(staged), Path(self.root)
        for folder, _, names in os.walk(source):
            for name in filter(is_temporary, names):  # of writers that were killed
                Path(folder, name).unlink(missing_ok=True)
            sync_file(folder)
        if not self.exists():
            os.rename(source, target)
            sync_file(target.parent)
            return
        if not replace:
            raise FileExistsError(errno.EEXIST, "it exists already", self.root)
        if exchange(source, target):
            sync_file(target.parent)
            staged.delete_all()
            return
        aside = target.with_name(f".{target.name}.{os.getpid()}-{time.time_ns()}")
        os.rename(target, aside)
        os.rename(source, target)
        sync_file(target.parent)
        shutil.rmtree(aside)

    def zarr_store(self) -> Any:
        return self.root  # a path: xarray then includes the time of its files in names of arrays


def _remove(folders: list[Path]) -> None:
    """Delete folders: first the files of several at a time, as it takes long to free large ones."""
    within = [parent for folder in folders for parent, _, names in os.walk(folder) if names]
    # while Python ends, no thread can be started
    with suppress(RuntimeError), ThreadPoolExecutor(THREADS_TO_DELETE) as pool:
        for _ in pool.map(_remove_files, within):
            pass
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_files(folder: str) -> None:
    with suppress(OSError):
        for name in os.listdir(folder):
            with suppress(OSError):  # a folder
                os.unlink(os.path.join(folder, name))


class _FileReader:
    """Reader of an open file, which notices if the file is replaced."""

    def __init__(self, path: str, file: int, state: State) -> None:
        self._path = path
        self._file = file
        self.state = state

    def _open_again(self) -> None:
        """Reopen the same version of a file whose handle has become stale."""
        file = os.open(self._path, READ)
        if _state(os.fstat(file)) != self.state:
            os.close(file)
            raise ValueError("the file has been replaced while it was read")
        os.close(self._file)
        self._file = file

    def range(self, offset: int, length: int) -> NDArray[np.uint8]:
        # An array: its slices are no copies, and google_crc32c does not accept a memoryview.
        content = empty((length,), np.uint8)
        done = 0

        def read() -> int:
            rest = content.data[done:] if done else content.data
            return read_at(self._file, rest, offset + done)

        while done < length:
            count = patiently(read, self._open_again)
            if count == 0:
                raise ValueError(f"the file ends at byte {offset + done}, not at {offset + length}")
            done += count
        return content

    def tail(self, length: int) -> NDArray[np.uint8]:
        length = min(length, self.state.size)
        return self.range(self.state.size - length, length)

    def only_tail(self, length: int) -> None:
        """Return None: what is open here is read at no cost."""

    def holding(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Return None: each range is read when it is needed."""

    def __enter__(self) -> _FileReader:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _from_file_url(url: str) -> LocalStorage:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise InputError(f"{url}: it names no file of this computer; write file:///folder/name")
    return LocalStorage(unquote(parts.path))


def _from_object_url(url: str) -> Storage:
    from orograph.tiles.object_storage import ObjectStorage  # which needs this module

    return ObjectStorage(url)


OBJECT_SCHEMES = ("s3", "gs", "az", "memory")
SCHEMES: dict[str, Callable[[str], Storage]] = {
    "file": _from_file_url,
    **dict.fromkeys(OBJECT_SCHEMES, _from_object_url),
}
"""Function that opens URLs, by their scheme."""


def open_storage(place: Location, argument: str = "path") -> Storage:
    """Return the storage at a path or URL.

    ``argument`` is the name of what the user has given, for messages.

    Raises
    ------
    InputError
        If it is none of them, or the scheme of the URL is not supported.
    """
    if not isinstance(place, str | os.PathLike):
        if not hasattr(place, "zarr_store"):
            raise InputError(
                f"{argument}: {shown(place)} is no address of a store; give a path or a URL"
            )
        return place
    address = check_path(argument, place)
    scheme = re.match("([A-Za-z][A-Za-z0-9+.-]*)://", address)
    if scheme is None:
        return LocalStorage(absolute_path(argument, address))
    if scheme[1].lower() not in SCHEMES:
        raise InputError(
            f"{argument}: {address}: {scheme[1]}:// stores are not supported; give a path on a "
            f"file system, or an address of {', '.join(f'{one}://' for one in OBJECT_SCHEMES)} "
            "(rasters at other addresses can be read where rasterio or xarray can)"
        )
    return SCHEMES[scheme[1].lower()](address)


def is_object_address(path: str) -> bool:
    """Return whether a path is the URL of an object store."""
    return path.partition("://")[0].lower() in OBJECT_SCHEMES and "://" in path


def local_path(storage: Storage, argument: str | None = None) -> Path:
    """Return the folder of a storage as a path; raise InputError if it is not local."""
    if not isinstance(storage, LocalStorage):
        name = "" if argument is None else f"{argument}: "
        raise InputError(f"{name}{storage}: it is on no file system; give a path on one")
    return Path(storage.root)


def file_path(argument: str, value: object) -> Path:
    """Return the path of a file to write, given as a path or a ``file://`` URL.

    Raises
    ------
    InputError
        If it is the address of an object store, where only stores are written.
    """
    text = check_path(argument, value)
    return local_path(open_storage(text, argument), argument) if "://" in text else Path(text)


def is_missing_below(folder: Storage, error: BaseException | None) -> bool:
    """Return whether an error reports a missing file below a storage's root."""
    return isinstance(error, FileNotFoundError) and str(error.filename).startswith(f"{folder}/")


def _state(status: os.stat_result) -> State:
    return State(status.st_size, (status.st_dev, status.st_ino, status.st_mtime_ns))


def _has_state(state: State, status: os.stat_result) -> bool:
    return _state(status) == state


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
