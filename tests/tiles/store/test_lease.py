"""Leases: of several writers one holds a target, the others are told who."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from memory_storage import BUCKET, MemoryStorage

import orograph as og
from orograph.tiles import local_storage
from orograph.tiles.errors import InputError, RunError, StoreExistsError
from orograph.tiles.local_storage import LocalStorage
from orograph.tiles.storage import Storage
from orograph.tiles.store import lease as leases
from orograph.tiles.store.lease import Holder, Lease


@pytest.fixture(params=["files", "memory"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """Where a store may be written."""
    BUCKET.objects.clear()
    BUCKET.die_before = None
    if request.param == "memory":
        yield MemoryStorage("memory://bucket/out.zarr")
    else:
        yield LocalStorage(tmp_path / "out.zarr")
    BUCKET.objects.clear()


def holder(target: Storage) -> Holder | None:
    found = leases._read(target.beside(leases.SUFFIX))
    return None if found is None else found[0]


def left_by(target: Storage, **changed: Any) -> Lease:
    """A lease as another process left it; ``changed`` are entries of its record."""
    lease = Lease(target)
    lease._started = leases._now()
    record = {**json.loads(lease._record()), **changed}
    target.beside(leases.SUFFIX).put("", json.dumps(record).encode())
    return lease


OTHER_HOST = {"host": "elsewhere", "machine": "other"}


def test_a_target_is_held_by_one_at_a_time(target: Storage) -> None:
    with Lease(target):
        with pytest.raises(StoreExistsError) as refused:
            Lease(target).acquire()
        for part in (str(target), f"process {os.getpid()} of", leases._user(), "takeover=True"):
            assert part in str(refused.value)
    assert holder(target) is None
    with Lease(target):
        pass


def test_of_many_threads_one_takes_it(target: Storage) -> None:
    def take(_: int) -> Lease | None:
        try:
            return Lease(target).acquire()
        except StoreExistsError:
            return None

    for _ in range(5):
        with ThreadPoolExecutor(8) as pool:
            (lease,) = filter(None, pool.map(take, range(8)))
        lease.check()
        lease.release()


@pytest.fixture
def short_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "WATCH_SECONDS", 0.05)


@pytest.mark.usefixtures("short_watch")
def test_of_many_that_take_a_stale_one_over_one_succeeds(target: Storage) -> None:
    def take(_: int) -> Lease | None:
        try:
            return Lease(target).acquire()
        except StoreExistsError:
            return None

    for _ in range(5):
        left_by(target, **OTHER_HOST, heartbeat=1.0)
        with ThreadPoolExecutor(8) as pool:
            (lease,) = filter(None, pool.map(take, range(8)))
        lease.check()
        lease.release()


@pytest.mark.usefixtures("short_watch")
@pytest.mark.parametrize("heartbeat", [1e6, -1e6, float("nan")], ids=["ahead", "behind", "none"])
def test_a_writer_of_another_host_is_gone_whatever_its_clock(
    target: Storage, heartbeat: float
) -> None:
    left_by(target, **OTHER_HOST, heartbeat=time.time() + heartbeat)
    with Lease(target) as lease:
        lease.check()


@pytest.mark.parametrize("ahead", [1e6, -1e6])
def test_a_heartbeat_keeps_a_lease_whatever_its_clock(
    target: Storage, ahead: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is seen while the lease is watched."""
    monkeypatch.setattr(leases, "_here", lambda: ("elsewhere", "other"))
    now, real = [0.0], time.sleep

    def sleep(seconds: float) -> None:
        monkeypatch.setattr(leases, "_here", lambda: ("elsewhere", "other"))
        now[0] += ahead
        assert lease.beat()
        now[0] -= ahead
        monkeypatch.setattr(leases, "_here", lambda: ("here", "this"))
        real(0)

    monkeypatch.setattr(leases, "_now", lambda: time.monotonic() + now[0])
    now[0] += ahead
    with Lease(target) as lease:
        now[0] -= ahead
        monkeypatch.setattr(leases, "_here", lambda: ("here", "this"))
        monkeypatch.setattr(leases.time, "sleep", sleep)
        with pytest.raises(StoreExistsError, match="on elsewhere"):
            Lease(target).acquire()
        monkeypatch.undo()


@pytest.mark.usefixtures("short_watch")
def test_a_writer_of_another_host_is_gone_after_a_minute_without_heartbeat(
    target: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    left_by(target, **OTHER_HOST, heartbeat=now)
    monkeypatch.setattr(leases, "_now", lambda: now + 59.0)
    with pytest.raises(StoreExistsError, match="on elsewhere"):
        Lease(target).acquire()
    monkeypatch.setattr(leases, "_now", lambda: now + 61.0)
    with Lease(target) as lease:
        lease.check()


def test_a_heartbeat_keeps_a_lease(target: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(leases, "_here", lambda: ("elsewhere", "other"))
    with Lease(target) as lease:
        monkeypatch.setattr(leases, "_now", lambda: now + 1000.0)
        assert lease.beat()
        monkeypatch.setattr(leases, "_here", lambda: ("here", "this"))
        monkeypatch.setattr(leases, "_now", lambda: now + 1050.0)
        with pytest.raises(StoreExistsError, match="on elsewhere"):
            Lease(target).acquire()


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "alive"])
def test_a_process_of_this_host_is_gone_at_once(target: Storage, killed: bool) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    left_by(target, pid=process.pid, process_started=leases._process_started(process.pid))
    if killed:
        process.kill()
    try:
        if killed:  # also while nobody has waited for it
            while leases._process_started(process.pid) not in ("ended", ""):
                time.sleep(0.002)
            with Lease(target):
                pass
        else:
            with pytest.raises(StoreExistsError, match=f"process {process.pid} of"):
                Lease(target).acquire()
    finally:
        process.kill()
        process.communicate()


def test_another_process_of_the_same_number_is_not_the_owner(target: Storage) -> None:
    left_by(target, process_started="1")
    with Lease(target):
        pass


def test_an_end_that_could_not_be_written_holds_nobody_up(target: Storage) -> None:
    left_by(target)  # of this process, which does not hold it any more
    with Lease(target):
        pass


def test_who_is_taken_over_notices(target: Storage) -> None:
    lost = Event()
    first = Lease(target).acquire(lost)
    with Lease(target, takeover=True) as second:
        second.check()
        with pytest.raises(RunError, match=r"has taken it over.*nothing of this process"):
            first.check()
        with pytest.raises(RunError, match="taken it over") as raised, first.errors():
            raise FileNotFoundError("what the other has cleared")
        assert isinstance(raised.value.__cause__, FileNotFoundError)
        assert not first.beat()
        assert lost.is_set()
        first.release()
        second.check()
    assert holder(target) is None


def test_an_ended_lease_is_not_renewed(target: Storage) -> None:
    lease = Lease(target).acquire()
    lease.release()
    assert not lease.beat()
    assert holder(target) is None


def test_errors_of_a_writer_that_holds_its_lease_stay(target: Storage) -> None:
    with Lease(target) as lease, pytest.raises(ValueError, match="mine"), lease.errors():
        raise ValueError("mine")


def test_what_a_power_cut_left_empty_is_no_lease(target: Storage) -> None:
    target.beside(leases.SUFFIX).put("")
    with Lease(target) as lease:
        lease.check()


@pytest.mark.parametrize("content", [b"mine", b"{}", b'{"token": 1}', b"[]", b"\xff"])
def test_something_else_in_its_place_is_left_alone(target: Storage, content: bytes) -> None:
    place = target.beside(leases.SUFFIX)
    place.put("", content)
    with pytest.raises(StoreExistsError, match=r"lease is in the way .*; move it away"):
        Lease(target, takeover=True).acquire()
    assert place.get("") == content


def make_link(path: Path) -> None:
    path.symlink_to("/nonexistent/folder/file")


def make_loop(path: Path) -> None:
    path.symlink_to(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize(
    "make",
    [make_link, make_loop, os.mkfifo, Path.mkdir, make_socket],
    ids=["a dangling link", "a link to itself", "a named pipe", "a folder", "a socket"],
)
@pytest.mark.parametrize("takeover", [False, True])
@pytest.mark.timeout(20)
def test_what_is_not_a_file_in_its_place_is_refused_at_once(
    tmp_path: Path, make: Any, takeover: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    make(Path("out.lease"))
    begin = time.monotonic()
    with pytest.raises(StoreExistsError, match=r"out\.lease is in the way .*; move it away"):
        og.ingest(CELLS, "out", takeover=takeover)
    assert time.monotonic() - begin < 2
    assert os.listdir(tmp_path) == ["out.lease"]


@pytest.mark.timeout(20)
def test_a_folder_in_which_no_file_can_be_created_is_refused_at_once() -> None:
    begin = time.monotonic()
    with pytest.raises(InputError, match=r"/proc/out\.zarr: no file can be created beside it"):
        og.minimum_spanning_forest(CELLS, out="/proc/out.zarr")
    assert time.monotonic() - begin < 2


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number), "a temporary name")

    monkeypatch.setattr(local_storage, "create_file", refuse)
    for write in (og.ingest, og.to_geotiff):
        with pytest.raises(InputError, match=rf"{tmp_path}/out: nothing can be written beside it"):
            write(np.eye(3), tmp_path / "out")
    assert os.listdir(tmp_path) == []


def test_a_time_beyond_all_calendars_is_that_of_no_lease(target: Storage) -> None:
    left_by(target, **OTHER_HOST, started=1e300)
    with pytest.raises(StoreExistsError, match="not a lease of orograph"):
        Lease(target).acquire()


def test_a_name_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too long"):
        Lease(tmp_path / ("n" * 250)).acquire()


def test_what_killed_writers_left_beside_it_is_cleared(tmp_path: Path) -> None:
    (tmp_path / ".out.zarr.lease.1-2.tmp").write_bytes(b"half")
    with Lease(tmp_path / "out.zarr"):
        pass
    assert os.listdir(tmp_path) == []


# --- writers of tiles ----------------------------------------------------------------------------

CELLS = np.arange(48.0).reshape(6, 8)


def write_store(folder: Path, **options: Any) -> None:
    og.ingest(CELLS, folder / "out", tile=4, **options)


def write_file(folder: Path, **options: Any) -> None:
    og.to_geotiff(CELLS, folder / "out", **options)


@pytest.mark.parametrize("write", [write_store, write_file], ids=["ingest", "export"])
def test_a_second_writer_is_told_who_writes(tmp_path: Path, write: Any) -> None:
    with Lease(tmp_path / "out"), pytest.raises(StoreExistsError, match="is being written by"):
        write(tmp_path)
    assert not (tmp_path / "out").exists()
    write(tmp_path)
    with Lease(tmp_path / "out"), pytest.raises(StoreExistsError, match="is being written by"):
        write(tmp_path, overwrite=True)
    first = Lease(tmp_path / "out").acquire()
    write(tmp_path, overwrite=True, takeover=True)
    with pytest.raises(RunError, match="another writer, which has ended, has taken it over"):
        first.check()
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize(
    "debris",
    [
        [],
        ["zarr." + "0a" * 16 + ".partial"],
        ["a" * 32, "b" * 32],
        [f".{'a' * 32}.{'b' * 32}"],
        ["zarr.json"],
    ],
    ids=[
        "nothing",
        "unfinished metadata",
        "two writers",
        "an old store half deleted",
        "a store of an earlier version",
    ],
)
def test_what_a_killed_ingest_left_is_cleared(tmp_path: Path, debris: list[str]) -> None:
    partial = tmp_path / "out.partial"
    partial.mkdir()
    for name in debris:
        (partial / name).write_text('{"node_type": "group", "attributes": {"orograph": {}}}')
    write_store(tmp_path)
    assert os.listdir(tmp_path) == ["out"]


def test_what_a_killed_export_left_is_cleared(tmp_path: Path) -> None:
    (tmp_path / f".out.{'0a' * 16}.tmp").write_bytes(b"half")
    (tmp_path / ".out.mine.tmp").write_bytes(b"mine")
    write_file(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".out.mine.tmp", "out"]
