"""System calls that not every system has, and what stands in for them.

Linux has all of them. Without `os.preadv` files are read one range at a time, without `flock` or
hard links a file is locked by another one beside it.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# Files with the limit of a control group, of version 2 and of version 1.
_CONTROL_GROUPS = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"
READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""Flags to open a file for reading."""
SYNC = READ if hasattr(os, "O_DIRECTORY") else READ | os.O_RDWR
"""Flags to open a file to flush it, which Windows does only for those who may write."""
WITHOUT_WAITING = getattr(os, "O_NONBLOCK", 0)
"""Flag to open a named pipe without waiting for its writer."""
LOCK = ".lock.tmp"
SECONDS_OF_A_LOCK = 10.0
"""Seconds after which the process of a file lock is taken as killed; it takes milliseconds."""
PAUSE = 0.005
_one_at_a_time = Lock()


def known_errors(*names: str) -> set[int]:
    """Return the numbers of errors; those that this system does not have are left out."""
    return {getattr(errno, name) for name in names if hasattr(errno, name)}


_NO_LINKS = known_errors("EPERM", "ENOSYS", "ENOTSUP", "EOPNOTSUPP")


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_limit() -> int:
    """Return the bytes of memory that this process may use.

    They are those of the machine, or less where a control group (a container, a job) or a limit
    of the process says so.
    """
    import psutil

    least = int(psutil.virtual_memory().total)
    for file in _CONTROL_GROUPS:
        with suppress(OSError, ValueError):  # not there, or "max"
            least = min(least, int(Path(file).read_text(encoding="ascii")))
    if resource is not None:
        for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
            soft = resource.getrlimit(kind)[0]
            least = least if soft == resource.RLIM_INFINITY else min(least, soft)
    return least


def read_at(file: int, buffer: memoryview, offset: int) -> int:
    """Read from an offset of an open file into a buffer; return how many bytes were read."""
    if hasattr(os, "preadv"):
        return os.preadv(file, [buffer], offset)
    with _one_at_a_time:  # the position belongs to the file, not to the thread
        os.lseek(file, offset, os.SEEK_SET)
        content = os.read(file, len(buffer))
    buffer[: len(content)] = content
    return len(content)


def make_link(file: Path, name: Path) -> bool:
    """Give a file another name; return False if the system or the file system has no hard links.

    Raises
    ------
    FileExistsError
        If something has that name.
    """
    if not hasattr(os, "link"):
        return False
    try:
        os.link(file, name)
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    return True


def lock_descriptor(file: int) -> bool:
    """Lock an open file until it is closed; return False if that is not supported."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:  # not every file system has locks
        return False
    return True


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold the lock of a name, which is a file beside it that only one process can create.

    It is for systems without `flock`. The lock of a process that is killed stays, so those who have
    seen one lock for `SECONDS_OF_A_LOCK` delete it.
    """
    lock = path.with_name(f".{path.name}{LOCK}")
    seen: os.stat_result | None = None
    since = time.monotonic()
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            pass
        except PermissionError:  # of Windows too, while another process deletes it
            if not lock.exists():
                raise
        try:
            found = os.stat(lock)
        except FileNotFoundError:
            continue
        # The age of a lock is the time for which this process has seen it unchanged. Times of files
        # on a shared file system may be by another machine's clock.
        if seen is None or (found.st_ino, found.st_mtime_ns) != (seen.st_ino, seen.st_mtime_ns):
            seen, since = found, time.monotonic()
        elif time.monotonic() - since > SECONDS_OF_A_LOCK:
            lock.unlink(missing_ok=True)
        time.sleep(PAUSE)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
