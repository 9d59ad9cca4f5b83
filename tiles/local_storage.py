"""Storage in folders of a file system."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.arguments import absolute_path, check_name_length
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
from orograph.tiles.storage import Reader, State, Storage
from orograph.tiles.system import READ, WITHOUT_WAITING, read_at

SECONDS_TO_DELETE = 0.02
"""Seconds that a call waits for deletion: small stores are gone at its end, others soon after.

To delete 3 GB takes half a second, in which a run could have returned.
"""
THREADS_TO_DELETE = 8
_NOT_A_FILE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO}
"""Errors of opening a path at which there is no file: the last two of a link and a socket."""
LONGEST_SUFFIX = 48
"""Bytes by which names of unfinished and removed stores may be longer than the store's."""


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
            # Most folders exist, so they are created only after a write has failed. If the root is
            # missing, `mkdir` or the second write fails as well.
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
            # These are also the folders that calls before this one left when they were killed.
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
        # Folders are flushed before the rename, so that after a power cut the new name does not
        # lead to a folder that lacks files.
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
        # Here readers find a whole store under the name at any time.
        if exchange(source, target):
            sync_file(target.parent)
            staged.delete_all()
            return
        # Without an exchange, no store has this name between two renames. After a kill there,
        # the old one lies aside, whole, and the new one can be committed again.
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
        # An array, as its slices are views, and google_crc32c does not accept a memoryview.
        content = empty((length,), np.uint8)
        done = 0

        def read() -> int:
            rest = content.data[done:] if done else content.data
            return read_at(self._file, rest, offset + done)

        # A read may return fewer bytes than were asked for, of a network file system for instance.
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


def local_path(storage: Storage, argument: str | None = None) -> Path:
    """Return the folder of a storage as a path; raise InputError if it is not local."""
    if not isinstance(storage, LocalStorage):
        name = "" if argument is None else f"{argument}: "
        raise InputError(f"{name}{storage}: it is on no file system; give a path on one")
    return Path(storage.root)


def _state(status: os.stat_result) -> State:
    # A file that replaces another has an inode of its own. The time tells it from an earlier file
    # whose inode it has been given.
    return State(status.st_size, (status.st_dev, status.st_ino, status.st_mtime_ns))


def _has_state(state: State, status: os.stat_result) -> bool:
    return _state(status) == state


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
