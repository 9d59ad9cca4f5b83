"""Where stores lie: objects by key, on a file system here, on an object store by the same protocol.

A key is a path of names relative to the root of a `Storage`, with ``/`` between them. Objects are
written whole or not at all. Nothing outside this file may assume that a folder exists because a key
has it in its path, or that an object or a whole store can be renamed: an object store has neither.
What takes the place of a rename are `Storage.commit`, for a whole store, and `Storage.move`, for an
object that is moved again if a kill came in between.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import stat
import threading
import time
import uuid
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.errors import InputError, report_full_storage
from orograph.tiles.memory import empty

TEMPORARY = ".tmp"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


class State(NamedTuple):
    """What tells an object from any that had or will have its key: a cache key, a fingerprint."""

    size: int
    """Bytes."""
    version: Hashable
    """Unique among all objects: device, inode and time of a file, address and ETag elsewhere."""


class Reader(Protocol):
    """An object as it was when it was opened, even if another is put under its key meanwhile."""

    @property
    def state(self) -> State:
        """Size and version."""

    def range(self, offset: int, length: int) -> NDArray[np.uint8]:
        """Return so many bytes from an offset on, in memory of `orograph.tiles.memory.empty`.

        Raises
        ------
        ValueError
            If the object ends before.
        """

    def tail(self, length: int) -> NDArray[np.uint8]:
        """Return the last bytes: all there are, if they are fewer than ``length``."""

    def __enter__(self) -> Reader: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Storage(Protocol):
    """Objects below one root: a store, or what a run keeps while it works.

    It is hashable and small when pickled: it holds the address of the root, and no connection. The
    text of it is that address. ``prefix`` is a key without a ``/`` at its end; the empty one is the
    root. Whatever the storage keeps for itself, such as files that are not yet whole, has no key.
    """

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str:
        """Last name of the root's address."""

    # -- objects -----------------------------------------------------------------------------------

    def get(self, key: str) -> bytes:
        """Return the bytes of an object; FileNotFoundError if there is none."""

    def open(self, key: str) -> Reader:
        """Open an object to read parts of it; FileNotFoundError if there is none."""

    def state(self, key: str) -> State | None:
        """Return size and version of an object; None if there is none."""

    def put(self, key: str, *parts: Any) -> None:
        """Write an object of parts, bytes or arrays of bytes: others see the old one or the new.

        Raises
        ------
        FileNotFoundError
            If the root is a folder that has been removed: a late writer must not bring it back.
        StorageFullError
            If there is no room. What was there before is as it was.
        """

    def create(self, key: str, *parts: Any) -> None:
        """Write an object as `put` does if there is none; FileExistsError if there is one.

        Of any number of writers at once, one succeeds.
        """

    def move(self, key: str, target: str) -> None:
        """Give an object another key, in place of what had it.

        ``target`` is whole at any time. After a kill the object may have both keys; to move it
        again does no harm.
        """

    def delete(self, key: str) -> None:
        """Remove an object if it is there."""

    # -- prefixes ----------------------------------------------------------------------------------

    def names(self, prefix: str = "") -> list[str]:
        """Return the names next after a prefix, of objects and of longer prefixes."""

    def objects(self, prefix: str = "") -> Iterator[tuple[str, State]]:
        """Yield keys and states of all objects below a prefix, in any order."""

    def delete_all(self, prefix: str = "") -> None:
        """Remove all objects below a prefix, and what earlier calls that were killed have left.

        If it is killed itself, some may remain.
        """

    def child(self, name: str) -> Storage:
        """Return the storage of what lies below one name."""

    def beside(self, suffix: str) -> Storage:
        """Return the storage whose root has the same address with a suffix."""

    # -- whole stores ------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Is there anything at the root that a writer would have to mind?"""

    def is_tree(self) -> bool:
        """Is it there, and of a kind that `commit` can replace? (A link or a file is not.)"""

    def check_place(self) -> None:
        """Refuse a root where nothing can be written, with an InputError."""

    def overlaps(self, other: Storage) -> bool:
        """Does one of the two lie in the other, or are they the same?"""

    def claim(self) -> None:
        """Take a root at which nothing lies, to write below it; FileExistsError if it is taken."""

    def commit(self, staged: Storage, replace: bool = False) -> None:
        """Make a finished store the one of this root, and remove it from where it was written.

        At any time one finds the old store whole, or none, or the new one whole; where the storage
        can exchange two names, always one of them. After a kill ``staged`` is still whole unless
        the new store is there, and may be committed again.

        Raises
        ------
        FileExistsError
            If something is there, and ``replace`` is false.
        """

    def zarr_store(self) -> Any:
        """Return what zarr-python and xarray take as a store."""


Location = str | os.PathLike[str] | Storage
"""What users and callers name a place by."""


@dataclass(frozen=True)
class LocalStorage:
    """Files below a folder, of a local file system or one that all workers see."""

    root: str

    def __init__(self, root: str | os.PathLike[str]) -> None:
        object.__setattr__(self, "root", os.path.abspath(root))

    def __str__(self) -> str:
        return self.root

    def _path(self, key: str) -> str:
        return f"{self.root}/{key}" if key else self.root

    @property
    def name(self) -> str:
        return os.path.basename(self.root)

    def get(self, key: str) -> bytes:
        try:
            with open(self._path(key), "rb") as file:
                return file.read()
        except (IsADirectoryError, NotADirectoryError):
            raise _missing(self._path(key)) from None

    def open(self, key: str) -> Reader:
        try:
            file = os.open(self._path(key), os.O_RDONLY | os.O_CLOEXEC)
        except NotADirectoryError:
            raise _missing(self._path(key)) from None
        status = os.fstat(file)
        if stat.S_ISDIR(status.st_mode):
            os.close(file)
            raise _missing(self._path(key))
        return _FileReader(file, _state(status))

    def state(self, key: str) -> State | None:
        try:
            status = os.stat(self._path(key))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return None if stat.S_ISDIR(status.st_mode) else _state(status)

    def put(self, key: str, *parts: Any) -> None:
        path = Path(self._path(key))
        with report_full_storage(path):
            self._in_folder(key, lambda: replace_file(path, *parts))

    def create(self, key: str, *parts: Any) -> None:
        path = Path(self._path(key))
        with report_full_storage(path):
            self._in_folder(key, lambda: create_file(path, *parts))

    def move(self, key: str, target: str) -> None:
        self._in_folder(target, lambda: os.replace(self._path(key), self._path(target)))

    def _in_folder(self, key: str, write: Callable[[], None]) -> None:
        """Write a file, and make the folders of its key if they were missing, but never the root:
        if that is gone, so is the run."""
        try:
            write()
        except FileNotFoundError:
            folder = self.root
            for name in key.split("/")[:-1]:
                folder = f"{folder}/{name}"
                with suppress(FileExistsError):
                    os.mkdir(folder)
            write()

    def delete(self, key: str) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self._path(key))

    def names(self, prefix: str = "") -> list[str]:
        try:
            found = os.listdir(self._path(prefix))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [name for name in found if not _is_temporary(name)]

    def objects(self, prefix: str = "") -> Iterator[tuple[str, State]]:
        for folder, _, names in os.walk(self._path(prefix)):
            for name in names:
                key = os.path.join(folder, name)[len(self.root) :].lstrip("/")
                state = None if _is_temporary(name) else self.state(key)
                if state is not None:
                    yield key, state

    def delete_all(self, prefix: str = "") -> None:
        # Under another name first, so that no half of it is taken for something, and no late writer
        # finds it.
        path = Path(self._path(prefix))
        hidden = f".{path.name}."
        with suppress(FileNotFoundError, NotADirectoryError):
            path.rename(path.with_name(hidden + uuid.uuid4().hex))
        with suppress(FileNotFoundError, NotADirectoryError):
            for trash in path.parent.iterdir():
                if trash.name.startswith(hidden) and is_token(trash.name.removeprefix(hidden)):
                    shutil.rmtree(trash, ignore_errors=True)

    def child(self, name: str) -> LocalStorage:
        return LocalStorage(self._path(name))

    def beside(self, suffix: str) -> LocalStorage:
        return LocalStorage(self.root + suffix)

    def exists(self) -> bool:
        return os.path.lexists(self.root)

    def is_tree(self) -> bool:
        return os.path.isdir(self.root) and not os.path.islink(self.root)

    def check_place(self) -> None:
        parent = os.path.dirname(self.root)
        if not os.path.isdir(parent):
            raise InputError(f"{self}: the folder {parent} does not exist; create it first")

    def overlaps(self, other: Storage) -> bool:
        if not isinstance(other, LocalStorage):
            return False
        one, two = os.path.realpath(self.root), os.path.realpath(other.root)
        return os.path.commonpath([one, two]) in (one, two)

    def claim(self) -> None:
        with report_full_storage(self.root):
            os.mkdir(self.root)

    def commit(self, staged: Storage, replace: bool = False) -> None:
        source, target = local_path(staged), Path(self.root)
        for folder, _, names in os.walk(source):
            for name in filter(_is_temporary, names):  # of writers that were killed
                os.unlink(os.path.join(folder, name))
        if not self.exists():
            os.rename(source, target)
            return
        if not replace:
            raise FileExistsError(errno.EEXIST, "it exists already", self.root)
        if _exchange(source, target):
            staged.delete_all()
            return
        aside = target.with_name(f".{target.name}.{os.getpid()}-{time.time_ns()}")
        os.rename(target, aside)
        os.rename(source, target)
        shutil.rmtree(aside)

    def zarr_store(self) -> Any:
        return self.root  # a path, so that xarray names arrays by the time of its files


class _FileReader:
    """A file, open: what replaces it has another inode."""

    def __init__(self, file: int, state: State) -> None:
        self._file = file
        self.state = state

    def range(self, offset: int, length: int) -> NDArray[np.uint8]:
        # An array and no bytes: slices of it are no copies, and google_crc32c takes no memoryview.
        content = empty((length,), np.uint8)
        done = 0
        while done < length:
            rest = content.data[done:] if done else content.data
            count = os.preadv(self._file, [rest], offset + done)
            if count == 0:
                raise ValueError(f"the file ends at byte {offset + done}, not at {offset + length}")
            done += count
        return content

    def tail(self, length: int) -> NDArray[np.uint8]:
        length = min(length, self.state.size)
        return self.range(self.state.size - length, length)

    def __enter__(self) -> _FileReader:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _from_file_url(url: str) -> LocalStorage:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise InputError(f"{url}: it names no file of this computer; write file:///folder/name")
    return LocalStorage(unquote(parts.path))


SCHEMES: dict[str, Callable[[str], Storage]] = {"file": _from_file_url}
"""What opens the addresses of a scheme."""


def open_storage(place: Location) -> Storage:
    """Return the storage at a path or URL; one that is open already as it is.

    Raises
    ------
    InputError
        If stores cannot be kept at such addresses.
    """
    if not isinstance(place, str | os.PathLike):
        return place
    address = os.fspath(place)
    scheme = re.match("([A-Za-z][A-Za-z0-9+.-]*)://", address)
    if scheme is None:
        return LocalStorage(address)
    if scheme[1].lower() not in SCHEMES:
        raise InputError(
            f"{address}: {scheme[1]}:// stores are not supported yet; give a path on a file system "
            "(rasters at such addresses can be read where rasterio or xarray can)"
        )
    return SCHEMES[scheme[1].lower()](address)


def local_path(storage: Storage) -> Path:
    """Return the folder of a storage, for what needs one; InputError if it has none."""
    if not isinstance(storage, LocalStorage):
        raise InputError(f"{storage}: it is on no file system; give a path on one")
    return Path(storage.root)


def replace_file(path: Path, *parts: Any) -> None:
    """Write a whole file or nothing: readers and a kill at any moment see old or new bytes.

    ``parts``, bytes or arrays of bytes, come one behind the other.
    """
    _write_beside(path, parts, os.replace)


def create_file(path: Path, *parts: Any) -> None:
    """Write a whole file as `replace_file` does, or raise FileExistsError if there is one."""

    def link(temporary: Path, path: Path) -> None:
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise FileExistsError(errno.EEXIST, "it exists already", str(path)) from None
        temporary.unlink()

    _write_beside(path, parts, link)


def _write_beside(path: Path, parts: tuple[Any, ...], name: Callable[[Path, Path], None]) -> None:
    """Write a file under a name of its own, then let ``name`` give it its name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}{TEMPORARY}")
    try:
        with temporary.open("wb") as file:
            file.writelines(parts)
        name(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def is_token(name: str) -> bool:
    """Is this a name that `uuid.uuid4` has drawn?"""
    return len(name) == 32 and set(name) <= set("0123456789abcdef")


def _is_temporary(name: str) -> bool:
    """Is this a file that `replace_file` had not finished?"""
    return name.startswith(".") and name.endswith(TEMPORARY)


def _state(status: os.stat_result) -> State:
    return State(status.st_size, (status.st_dev, status.st_ino, status.st_mtime_ns))


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names atomically (Linux ``renameat2``); False where that is not to be had."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    names = os.fsencode(one), os.fsencode(other)
    return bool(rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)
