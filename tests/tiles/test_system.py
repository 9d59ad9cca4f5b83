"""Where the system lacks calls that Linux has, the same results come by other ones."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
import xarray as xr
from lesser_system import take_away

import orograph as og
from orograph.run.cluster.clusters import memory_of_machine
from orograph.tiles import system
from orograph.tiles.local_storage import LocalStorage
from orograph.tiles.store import lease as leases

ROOT = Path(__file__).resolve().parents[2]


def test_ranges_are_read_by_many_threads_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_away(monkeypatch)
    content = np.random.default_rng(0).integers(0, 256, 100_000).astype(np.uint8)
    storage = LocalStorage(tmp_path)
    storage.put("a", content)
    with storage.open("a") as reader, ThreadPoolExecutor(8) as threads:
        starts = range(0, 90_000, 100)
        for start, part in zip(starts, threads.map(lambda s: reader.range(s, 500), starts)):
            np.testing.assert_array_equal(part, content[start : start + 500])


@pytest.mark.parametrize("operation", ["put_if", "delete_if"])
def test_one_of_many_changes_of_one_version_succeeds(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_away(monkeypatch)
    storage = LocalStorage(tmp_path)
    for _ in range(20):
        storage.put("a", b"old")
        state = storage.state("a")
        assert state is not None
        both = threading.Barrier(4)

        def change(number: int, state: object = state, both: threading.Barrier = both) -> bool:
            both.wait()
            new = (f"new {number}".encode(),) if operation == "put_if" else ()
            return getattr(storage, operation)("a", state, *new)

        with ThreadPoolExecutor(4) as threads:
            assert sum(threads.map(change, range(4))) == 1
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_a_lock_keeps_others_out_until_its_process_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = []

    def enter() -> None:
        with system.lock_file(tmp_path / "a"):
            order.append("other")

    with system.lock_file(tmp_path / "a"):
        other = threading.Thread(target=enter)
        other.start()
        other.join(0.1)
        order.append("first")
    other.join()
    assert order == ["first", "other"]
    (tmp_path / f".a{system.LOCK}").touch()  # of a process that was killed
    monkeypatch.setattr(system, "SECONDS_OF_A_LOCK", 0.05)
    enter()
    assert os.listdir(tmp_path) == []


def test_a_file_system_without_links_claims_names_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")  # as FAT says

    monkeypatch.setattr(os, "link", link)
    storage = LocalStorage(tmp_path)
    storage.create("a", b"one")
    with pytest.raises(FileExistsError, match="it exists already"):
        storage.create("a", b"two")
    assert (storage.get("a"), os.listdir(tmp_path)) == (b"one", ["a"])


def test_whether_a_process_has_ended_is_known_without_proc(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leases, "_first_line", lambda path: "")
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = leases._process_started(process.pid)
    assert started
    assert not leases._is_gone(process.pid, started)
    assert leases._is_gone(process.pid, "another time")  # its number has been given again
    process.communicate(b"\n")
    assert leases._is_gone(process.pid, started)


PROGRAM = """
import ctypes, errno, os, sys
sys.path.insert(0, sys.argv[1])
sys.modules["fcntl"] = None
for name in ("preadv", "sched_getaffinity", "O_CLOEXEC", "O_NONBLOCK"):
    delattr(os, name)  # zarr itself wants os.link, which each system has
del errno.EREMOTEIO
def no_library(*_, **__):
    raise TypeError
import numpy as np
import orograph as og
heights = np.load("heights.npy")
og.ingest(heights, "dem.zarr", tile=16, shard=32)
og.minimum_spanning_forest(heights * 0, out="forest.zarr", tile=16)
ctypes.CDLL = no_library
og.minimum_spanning_forest("dem.zarr", out="forest.zarr", overwrite=True)
og.cost_distance("dem.zarr", [(3, 4)], out="cost.tif")
og.connected_components(heights > 0.4, out="patches.zarr", tile=16)
"""


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
def test_runs_of_one_process_give_the_same_bits(tmp_path: Path) -> None:
    """In a process that has begun without those calls, and imported all without them."""
    heights = np.random.default_rng(5).random((70, 90)).astype(np.float32)
    np.save(tmp_path / "heights.npy", heights)
    program = [sys.executable, "-c", PROGRAM, ROOT / "tests"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    forest = og.minimum_spanning_forest(heights, tile=16, shard=32)
    xr.testing.assert_identical(og.open(tmp_path / "forest.zarr").load(), forest)
    patches = og.connected_components(heights > 0.4, tile=16)
    xr.testing.assert_identical(og.open(tmp_path / "patches.zarr").load(), patches)
    cost = og.cost_distance(heights, [(3, 4)], tile=16, shard=32)
    with xr.open_dataset(tmp_path / "cost.tif", engine="rasterio") as found:
        np.testing.assert_array_equal(found["cost"][0], cost["cost"])
    hidden = [name for name in os.listdir(tmp_path) if name.startswith(".")]
    assert hidden == []


def test_memory_is_what_the_process_may_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resource = pytest.importorskip("resource")
    total = psutil.virtual_memory().total
    monkeypatch.setattr(system, "_CONTROL_GROUPS", ())
    unlimited = {"getrlimit": lambda kind: (resource.RLIM_INFINITY,) * 2}
    monkeypatch.setattr(system.resource, "getrlimit", unlimited["getrlimit"])
    assert system.memory_limit() == total
    group = tmp_path / "memory.max"
    monkeypatch.setattr(system, "_CONTROL_GROUPS", (str(tmp_path / "none"), str(group)))
    for said, found in (("max\n", total), (f"{2**28}\n", 2**28)):
        group.write_text(said)
        assert system.memory_limit() == found
    monkeypatch.setattr(system.resource, "getrlimit", lambda kind: (2**27, 2**29))
    assert system.memory_limit() == 2**27
    assert memory_of_machine() == 2**27
