"""Write files atomically, and lock them while they are replaced."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from orograph.tiles.errors import InputError, report_full_storage
from orograph.tiles.system import (
    LOCK,
    READ,
    SYNC,
    known_errors,
    lock_descriptor,
    lock_file,
    make_link,
)

Part = bytes | NDArray[Any]
"""Part of the content of a file: bytes, or an array, of which the bytes in memory are meant."""

TEMPORARY = ".tmp"
_NOT_SYNCED = known_errors("EINVAL", "ENOTSUP")  # file systems that do without, for folders
# Constants of Linux: paths are relative to the working directory, and two names are swapped.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def replace_file(path: Path, *parts: Part) -> None:
    """Write a file atomically, replacing an older one.

    ``parts``, bytes or arrays of bytes, are concatenated.
    """
    _write_beside(path, parts, os.replace)


def create_file(path: Path, *parts: Part) -> None:
    """Write a file atomically, or raise FileExistsError if it exists."""

    def link(temporary: Path, path: Path) -> None:
        # A rename would replace what has the name already; a hard link fails then. Where there are
        # no links, the lock keeps others from taking the name between the look and the rename.
        taken = FileExistsError(errno.EEXIST, "it exists already", str(path))
        try:
            if make_link(temporary, path):
                temporary.unlink()
                return
        except FileExistsError:
            raise taken from None
        with lock_file(path):
            if os.path.lexists(path):
                raise taken
            os.rename(temporary, path)

    _write_beside(path, parts, link)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a hidden path next to ``path`` to write to; rename it to ``path`` if all went well.

    It has the extension of ``path``, by which writers choose the format.
    """
    temporary = _hidden(path)
    try:
        with report_full_storage(path, temporary):
            _try_to_create(temporary, path)
            yield temporary
        sync_file(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_files(path: Path, extensions: Sequence[str]) -> Iterator[Path]:
    """Yield a path in a hidden folder next to ``path``; move what was written if all went well.

    For a format of several files that differ in their extensions. ``path`` is the main one: readers
    find none of them without it, so it is removed first and added last. A kill in between leaves
    the old and the new files in the hidden folder; after an error the old ones are back.
    """
    folder = _hidden(path)
    old = folder / "old"
    try:
        with report_full_storage(path, folder / path.name):
            _try_to_create(folder, path)
            old.mkdir(parents=True)
            yield folder / path.name
        written = [part for part in folder.iterdir() if part != old]
        for part in written:
            sync_file(part)
        with ExitStack() as restore:
            for extension in (path.suffix, *extensions):
                before, kept = path.with_suffix(extension), old / f"old{extension}"
                if os.path.lexists(before):
                    os.replace(before, kept)
                    restore.callback(os.replace, kept, before)
            main = path.suffix.lower()
            # False sorts before True, so the main file is moved last.
            for part in sorted(written, key=lambda part: part.suffix == main):
                os.replace(part, path if part.suffix == main else path.with_name(part.name))
            # All new files have their names: the old ones are not put back.
            restore.pop_all()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _hidden(path: Path) -> Path:
    """Return a hidden path next to ``path`` that no other thread uses."""
    return path.with_name(f".{os.getpid()}-{threading.get_ident()}.{path.name}")


def _try_to_create(temporary: Path, path: Path) -> None:
    """Raise InputError if the folder of ``path`` does not take files: libraries say it worse."""
    try:
        temporary.touch()
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT):
            raise
        raise InputError(
            f"{path}: no file can be created beside it; choose another path"
        ) from error
    temporary.unlink()


def _write_beside(path: Path, parts: tuple[Any, ...], name: Callable[[Path, Path], None]) -> None:
    """Write a temporary file next to ``path``, then call ``name`` to rename it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}{TEMPORARY}")
    try:
        # The content is not flushed to disk: most objects are caches, and for others `Storage.sync`
        # is called before something is deleted because of them.
        with temporary.open("wb") as file:
            file.writelines(parts)
        name(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def is_token(name: str) -> bool:
    """Return whether a name consists of 32 hexadecimal digits, as of `uuid.uuid4`."""
    return len(name) == 32 and set(name) <= set("0123456789abcdef")


def is_temporary(name: str) -> bool:
    """Return whether a name is that of a temporary file of `replace_file`."""
    return name.startswith(".") and name.endswith(TEMPORARY)


def is_internal(name: str) -> bool:
    """Return whether a name is that of a temporary file or of a folder being deleted."""
    return is_temporary(name) or (name.startswith(".") and is_token(name.rpartition(".")[2]))


def delete_temporaries(path: Path) -> None:
    """Delete the temporary files that `replace_file` may have left for a path."""
    for other in path.parent.iterdir():
        own = other.name.startswith(f".{path.name}.") and is_temporary(other.name)
        if own and not other.name.endswith(LOCK):  # who calls this may hold that
            other.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, is_same: Callable[[os.stat_result], bool]) -> Iterator[bool]:
    """Lock a file and yield whether it still ``is_same``, keeping others from replacing it.

    The version itself is locked, not its name: who waited for the lock finds another file under
    the name. The system lets go of the lock of a process that is killed. Where it has no such
    locks, the name is locked by `lock_file`.
    """
    try:
        # Network file systems lock a file exclusively only if it is open for writing.
        file = os.open(path, READ | os.O_RDWR)
    except PermissionError:
        file = os.open(path, READ)
    except FileNotFoundError:
        yield False
        return
    with ExitStack() as stack:
        stack.callback(os.close, file)
        by_system = lock_descriptor(file)
        if not by_system:
            stack.close()  # Windows replaces no file that is open
            stack.enter_context(lock_file(path))
        try:
            # Another process may have replaced the file while this one waited for the lock. Then
            # the name leads to another version than the one that is locked.
            same = is_same(os.stat(path)) and (not by_system or is_same(os.fstat(file)))
        except FileNotFoundError:
            same = False
        yield same


def exchange(one: Path, other: Path) -> bool:
    """Swap two paths atomically (Linux ``renameat2``); return False if not supported."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):  # the last on Windows
        return False
    names = os.fsencode(one), os.fsencode(other)
    return bool(rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)


def sync_file(path: str | Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    with report_full_storage(path):
        try:
            file = os.open(path, SYNC)
        except PermissionError:
            if os.path.isdir(path) and not hasattr(os, "O_DIRECTORY"):
                return  # Windows opens no folders
            raise
        try:
            os.fsync(file)
        except OSError as error:
            if error.errno not in _NOT_SYNCED:
                raise
        finally:
            os.close(file)
