"""Lease: the right to write a store or a file, held by one writer at a time.

A lease is one object beside its target, ``<target>.lease``, which no publishing moves: there from
the moment at which a writer begins until it ends. It names the writer (host, process, user, when it
began), its token, and the time of its last heartbeat. It is created by a conditional put, and
renewed, taken over and deleted by calls that fail where another has been quicker
(`Storage.put_if`, `Storage.delete_if`); so of any number of writers one holds it.

A lease is stale when its process is gone, as can be seen on its own host, or when it has had no
heartbeat for `STALE_SECONDS`. Clocks of two hosts may differ, and a clock may be set: so a lease
that is stale by the clock is watched for `WATCH_SECONDS` first. Whoever takes it over need not wait
for the old writer, so a writer whose lease was taken must find out before it publishes:
`Lease.check`.
"""

from __future__ import annotations

import errno
import getpass
import json
import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from threading import Event, Thread
from typing import Any

from orograph.tiles.arguments import check_flag
from orograph.tiles.errors import InputError, RunError, StoreExistsError
from orograph.tiles.open_storage import open_storage
from orograph.tiles.storage import Location, State, Storage

SUFFIX = ".lease"
HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 60.0
WATCH_SECONDS = 2 * HEARTBEAT_SECONDS
"""Seconds for which a lease that is stale by the clock is watched for a heartbeat."""
RETRY_SECONDS = 1.0
"""Seconds for which creating a lease is tried while its object cannot be found or read."""

_held: dict[str, Lease] = {}
"""Leases that this process holds, by their tokens."""


@dataclass(frozen=True)
class Holder:
    """Holder of a lease: its process, host and user."""

    token: str
    host: str
    machine: str
    """Boot of the machine and its space of process ids, as several hosts may have one name."""
    pid: int
    process_started: str
    """Start of the process, which tells it from a later one of the same id."""
    user: str
    started: float
    heartbeat: float

    def __str__(self) -> str:
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.started))
        return f"process {self.pid} of {self.user} on {self.host}, since {began}"

    def is_gone(self) -> bool:
        """Return whether the process that holds the lease is known to have ended."""
        if self._is_us():
            return self.token not in _held
        return self._is_here() and _is_gone(self.pid, self.process_started)

    def has_stopped(self) -> bool:
        """Return whether the holder was a cancelled run of this process that has now ended.

        Its end is waited for, for `STALE_SECONDS` at most.
        """
        lease = _held.get(self.token)
        return lease is not None and lease._stop.is_set() and lease._released.wait(STALE_SECONDS)

    def is_silent(self) -> bool:
        """Return whether the last heartbeat is old, or in the future, by this clock."""
        recent = abs(_now() - self.heartbeat) <= STALE_SECONDS  # not if it is NaN
        return not (recent or self._is_us())

    def _is_here(self) -> bool:
        return (self.host, self.machine) == _here()

    def _is_us(self) -> bool:
        ours = os.getpid(), _process_started(os.getpid())
        return self._is_here() and (self.pid, self.process_started) == ours


class Lease:
    """Exclusive right to write a target, acquired by ``with`` and renewed by a thread.

    Parameters
    ----------
    target : path or Storage
        The store or file that is to be written.
    takeover : bool
        Whether to take the lease from a writer that is at work.

    Raises
    ------
    InputError
        If ``takeover`` is neither True nor False.
    """

    def __init__(self, target: Location, takeover: bool = False) -> None:
        self.target = open_storage(target)
        self.place = self.target.beside(SUFFIX)
        """Place of the object that is the lease."""
        self._takeover = check_flag("takeover", takeover)
        self.token = uuid.uuid4().hex
        self._started = 0.0
        self._pid = 0
        self._released = Event()
        self._stop = Event()
        self._seen: State | None = None
        """State of the lease when it was last seen to be held."""

    def acquire(self, stop: Event | None = None) -> Lease:
        """Acquire the lease and return it.

        A writer of this process that has been told to stop is waited for.

        Parameters
        ----------
        stop : Event, optional
            Set when the writer is to stop, and by this lease if another takes it over.

        Raises
        ------
        StoreExistsError
            If another writer holds it; the message names that writer.
        InputError
            If nothing can be written beside the target, or its name is too long for that.
        """
        self._stop, self._started, self._pid = stop or Event(), _now(), os.getpid()
        # Before the object exists: another thread of this process that reads it must not take its
        # holder for one that has ended, see `Holder.is_gone`.
        _held[self.token] = self
        try:
            self._take()
        except BaseException:
            del _held[self.token]
            raise
        # A daemon, so that a lease that is never released does not keep the process alive.
        Thread(target=self._keep, name="orograph-lease", daemon=True).start()
        return self

    def release(self) -> None:
        """Release the lease if it is still held; do nothing in a forked process, or again."""
        if self._pid != os.getpid() or self._released.is_set():
            return
        # First the heartbeat is stopped, then the object is deleted.
        self._released.set()
        _held.pop(self.token, None)
        with suppress(OSError):  # the folder may be gone; a lease that stays is stale
            if self._seen is not None and self.place.delete_if("", self._seen):
                return
            # A heartbeat has replaced the object since it was seen, or another writer has. It is
            # deleted only in a version that names this lease.
            while (found := _read(self.place)) is not None:
                holder, state = found
                if holder is None or holder.token != self.token:
                    return
                if self.place.delete_if("", state):
                    return

    def holder(self) -> Holder | None:
        """Return the current holder of the lease."""
        found = _read(self.place)
        return None if found is None else found[0]

    def check(self) -> None:
        """Raise RunError if another writer has taken over or removed the lease."""
        found = _read(self.place)
        holder, state = found or (None, None)
        if holder is not None and holder.token == self.token:
            self._seen = state
            return
        by = f"{holder} has" if holder else "another writer, which has ended, has"
        raise RunError(
            f"{self.target}: {by} taken it over while this process wrote there; nothing of this "
            "process was published"
        )

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Replace errors raised in the context by RunError if the lease was taken over."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, RunError):
                try:
                    self.check()
                except RunError as lost:
                    raise lost from error
            raise

    def __enter__(self) -> Lease:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _take(self) -> None:
        end = time.monotonic() + RETRY_SECONDS
        while not self._try_to_take():
            if time.monotonic() > end:
                if self.place.exists():
                    raise _in_the_way(self.place)
                raise InputError(
                    f"{self.target}: no file can be created beside it; choose another path"
                )
            time.sleep(RETRY_SECONDS / 100)

    def _try_to_take(self) -> bool:
        """Try to acquire the lease; return False if the caller should try again."""
        try:
            self.place.create("", self._record())
            # A server that ignores conditions would let several writers have the lease.
            self.place.check_conditions("")
            return True
        except FileExistsError:
            pass
        except (FileNotFoundError, NotADirectoryError):
            self.target.check_place()
            return False  # another writer has cleared the temporary file
        except OSError as error:
            denied = error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
            if denied or self.place.etags:  # of an object store: credentials, bucket, server
                raise InputError(
                    f"{self.target}: nothing can be written beside it ({error.strerror}); choose "
                    "another path, or get the right to write there"
                ) from None
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise InputError(
                f"{self.target}: its name is too long for files beside it; choose a shorter one"
            ) from None
        found = _read(self.place)
        # The lease for which `create` failed has been released since.
        if found is None:
            return False
        holder, state = found
        if holder is not None and holder.token == self.token:
            return True  # the storage has reported a failure after it had succeeded
        # An object store deletes a lease in two steps, of which the first empties it.
        if holder is None and self.place.etags and not self._stays(state, RETRY_SECONDS / 2):
            return False  # it was being deleted
        if not (holder is None or self._takeover or holder.is_gone()):
            silent = holder.is_silent() and self._stays(state, WATCH_SECONDS)
            # While it was watched, the lease may have been released, or taken over by a third
            # writer.
            now = holder if silent else self.holder()
            if now is None or now.token != holder.token:
                return False
            if not silent and now.has_stopped():
                return self._try_to_take()
            if not silent:
                raise StoreExistsError(
                    f"{self.target} is being written by {holder}; wait for it (a process that was "
                    f"killed on another host is gone after {STALE_SECONDS:g} s), or pass "
                    "takeover=True to take its place"
                )
        try:
            return self.place.put_if("", state, self._record())
        except FileNotFoundError:
            return False

    def _stays(self, state: State, seconds: float) -> bool:
        """Return whether the lease file is unchanged after some seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(seconds / 20)
            if self.place.state("") != state:
                return False
        return True

    def _record(self) -> bytes:
        host, machine = _here()
        started = _process_started(os.getpid())
        holder = Holder(
            self.token, host, machine, os.getpid(), started, _user(), self._started, _now()
        )
        return json.dumps(asdict(holder)).encode()

    def _keep(self) -> None:
        while not self._released.wait(HEARTBEAT_SECONDS):
            if not self.beat():
                return

    def beat(self) -> bool:
        """Renew the heartbeat; return whether the lease is still held."""
        with suppress(OSError):  # the storage may be away: the next heartbeat may succeed
            found = _read(self.place)
            # It may have been released while it was read; then nothing is lost.
            if self._released.is_set():
                return False
            if found is None or found[0] is None or found[0].token != self.token:
                # The writer is told that another one has its place.
                self._stop.set()
                return False
            # If this fails, the next heartbeat reads who has replaced the object.
            self.place.put_if("", found[1], self._record())
        return True


def _read(place: Storage) -> tuple[Holder | None, State] | None:
    """Read a lease; return its holder and file version, or None without a lease.

    The holder is None if the object is empty, as a power cut may leave it.

    Raises
    ------
    StoreExistsError
        If it is not a lease.
    """
    while True:
        try:
            with place.open("") as reader:
                content, state = reader.tail(reader.state.size).tobytes(), reader.state
            break
        except FileNotFoundError:
            return None
        except ValueError:  # it was replaced while it was read
            continue
    if not content:
        return None, state
    try:
        stated: dict[str, Any] = json.loads(content)
        holder = Holder(**stated)
        # JSON may state other types in these fields, which a dataclass does not check.
        kinds = [type(value) for value in asdict(holder).values()]
        if kinds != [str, str, str, int, str, str, float, float]:
            raise TypeError
        str(holder)  # its time may be beyond all calendars
    except (ValueError, TypeError, RecursionError, OverflowError, OSError):
        raise _in_the_way(place) from None
    return holder, state


def _in_the_way(place: Storage) -> StoreExistsError:
    return StoreExistsError(f"{place} is in the way and is not a lease of orograph; move it away")


def _now() -> float:
    return time.time()


@lru_cache(maxsize=1)
def _here() -> tuple[str, str]:
    """Return the host name, and an identifier of this boot and process namespace."""
    return socket.gethostname(), _first_line("/proc/sys/kernel/random/boot_id") + _process_ids()


def _process_ids() -> str:
    """Return the identifier of this process's PID namespace, or ""."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _is_gone(pid: int, started: str) -> bool:
    """Return whether the local process of this id and start time has ended."""
    import psutil

    if not psutil.pid_exists(pid):
        return True
    # one of another user may be hidden
    return _process_started(pid) not in ("", started)


def _process_started(pid: int) -> str:
    """Return the start time of a local process in clock ticks, or "" if unknown."""
    # the name of a process, in parentheses, may hold spaces and parentheses
    fields = _first_line(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if not fields:
        return _process_created(pid)
    # Fields 3 and 22 of proc(5): the state (Z, X: zombie, dead), and the time of the start in clock
    # ticks since the machine was booted.
    return "ended" if fields[0] in "ZX" else fields[19]


def _process_created(pid: int) -> str:
    """Return when a local process started, for systems without ``/proc``; "" if unknown."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return "ended"
        return str(process.create_time())
    except (psutil.Error, OSError):
        return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid()) if hasattr(os, "getuid") else "someone"
