"""Nothing lost: whatever is killed, damaged or full, the run ends with the same bits.

Processes are real and are really killed. The gates of `watched_raster` hold runs in the middle;
what a run has done is seen from its checkpoints, what it read from a diary.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial as bind
from pathlib import Path
from threading import Event
from typing import Any

import dask
import numpy as np
import oracle_forest as oracle
import pytest
import watched_raster
import xarray as xr
from distributed import Client, LocalCluster
from programs import run_script
from traps import PICKLED_ENTRY
from watched_raster import (
    SHARD,
    TILE,
    Gate,
    GatedSink,
    WatchedRaster,
    keys_held,
    kill_session,
    mortal_cluster,
    read_tiles,
    tasks_at_work,
    wait_until,
)

import orograph as og
from orograph.forest import forest as forest_module
from orograph.run import session
from orograph.tiles.grid.quadtree import Quadtree

SHAPE = (70, 90)
TREE = Quadtree(SHAPE, TILE)
SHARDS = TREE.count(1)
TILES = {TREE.window(node) for node in TREE.nodes(0)}
FIRST_CELLS = {(window.y, window.x) for window in TILES}
HERE = Path(__file__).parent
rng = np.random.default_rng(41)
GRID = rng.integers(0, 200, SHAPE).astype(np.float32)
GRID[rng.random(SHAPE) < 0.05] = np.nan


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return oracle.minimum_spanning_forest(GRID).mask


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ingested") / "dem.zarr"
    og.ingest(GRID, path, tile=TILE, shard=SHARD)
    return path


@pytest.fixture
def dem(tmp_path: Path, ingested: Path) -> Path:
    return Path(shutil.copytree(ingested, tmp_path / "dem.zarr"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with mortal_cluster(2) as local:
        yield local


@pytest.fixture(scope="module")
def module_client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def client(module_client: Client, cluster: LocalCluster) -> Client:
    module_client.wait_for_workers(2)
    return module_client


def forest(source: Any, out: Path, **options: Any) -> xr.Dataset:
    return og.minimum_spanning_forest(
        source, **{"tile": TILE, "shard": SHARD, "out": out, **options}
    )


def started(source: Any, out: Path, **options: Any) -> og.Run:
    return og.minimum_spanning_forest.submit(source, tile=TILE, shard=SHARD, out=out, **options)


def partial(out: Path) -> Path:
    return out.with_name(out.name + ".partial")


def work(out: Path) -> Path:
    """Where the run that is going on, or that can be resumed, keeps all it has."""
    folders = partial(out).glob("[!.]*/") if (partial(out) / "run.json").exists() else iter(())
    return next(folders, partial(out) / "none")


def checkpoints(out: Path) -> Path:
    return work(out) / "checkpoints"


def has(out: Path, kind: str) -> set[int]:
    """The shards that have a checkpoint of a kind."""
    try:
        names = os.listdir(checkpoints(out) / f"{kind}-1")
    except FileNotFoundError:
        return set()
    return {int(name) for name in names if name.isdigit()}


def going_on(run: og.Run) -> Callable[[], bool]:
    """For `wait_until`; a run that has failed says why."""
    return lambda: run.status == "running" or run.result() is None


def wait_for_stragglers(client: Client | None) -> None:
    """A task that has begun is not stopped by the end of its run."""
    if client is not None:
        # a worker that has just been killed cannot be asked, and has nothing at work
        wait_until(lambda: not any(client.run(tasks_at_work, on_error="ignore").values()))


def first_cells(shards: set[int]) -> set[tuple[int, int]]:
    """The tiles of some shards, by their first cells."""
    nodes = [node for node in TREE.nodes(1) if node.z in shards]
    places = [TREE.window(tile) for node in nodes for tile in TREE.nodes(0, node)]
    return {(window.y, window.x) for window in places}


def digest(folder: Path) -> str:
    """Of every name and every byte in a folder."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        whole.update(f"{path.relative_to(folder)}\0".encode())
        whole.update(path.read_bytes() if path.is_file() else b"")
    return whole.hexdigest()


def assert_resumes(dem: Path, out: Path, expected: np.ndarray, **options: Any) -> None:
    """A second run takes up what is there, reads only the rest, and gives the same bits."""
    kept = has(out, "summary") & (has(out, "downward-state") | has(out, "done"))
    times = {
        path.relative_to(work(out)): path.stat().st_mtime_ns
        for kind in ("summary", "done")
        for path in (checkpoints(out) / f"{kind}-1").glob("*")
    }
    survivors: set[Path] = set()

    def look(*_: Any) -> None:
        now = {name: work(out) / name for name in times}
        survivors.update(
            n for n, p in now.items() if p.exists() and p.stat().st_mtime_ns == times[n]
        )

    diary = dem.with_name("resumed.txt")
    original = session.Workspace.publish

    def publish(space: Any, *args: Any, **kwargs: Any) -> Any:
        look()
        return original(space, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session.Workspace, "publish", publish)
        result = forest(WatchedRaster(dem, diary), out, resume=True, **options)
    np.testing.assert_array_equal(result["edges"].values, expected)
    np.testing.assert_array_equal(og.open(out)["edges"].values, expected)
    again = read_tiles(diary)
    assert set(again) == FIRST_CELLS - first_cells(kept)
    assert set(again.values()) <= {1}
    assert survivors == set(times)
    assert not partial(out).exists()


# --- a worker is killed ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "number"),
    [("summary", SHARDS // 2), ("done", 1), ("done", SHARDS // 2)],
    ids=["on the way up", "at the turn", "on the way down"],
)
def test_a_worker_killed_changes_nothing(
    dem: Path,
    client: Client,
    expected: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    number: int,
    gate: Gate,
) -> None:
    reading = gate if kind == "summary" else None
    if not reading:
        monkeypatch.setattr(session, "StoreSink", bind(GatedSink, gate))
    diary, out = dem.with_name("diary.txt"), dem.with_name("forest.zarr")
    victim = next(iter(client.run(os.getpid).values()))
    run = started(WatchedRaster(dem, diary, gate=reading), out, client=client)
    wait_until(gate.until(lambda: len(has(out, kind)) >= number), going_on(run))
    os.kill(victim, signal.SIGKILL)
    gate.open()
    result = run.result()
    wait_until(lambda: victim not in client.run(os.getpid, on_error="ignore").values())
    np.testing.assert_array_equal(result["edges"].values, expected)
    read = read_tiles(diary)
    assert set(read) == FIRST_CELLS
    # only what was in the victim's hands is read again, and Dask hands out a task or two ahead
    assert sum(read.values()) <= len(FIRST_CELLS) + 3 * 4


def test_a_task_that_always_kills_its_worker_is_an_error_and_no_loop(
    dem: Path, client: Client, cluster: LocalCluster, expected: np.ndarray
) -> None:
    out = dem.with_name("forest.zarr")
    allowed, cluster.scheduler.allowed_failures = cluster.scheduler.allowed_failures, 0
    try:
        run = started(WatchedRaster(dem, dem.with_name("d.txt"), deadly=True), out, client=client)
        with pytest.raises(og.RunError, match="killed its workers"):
            run.result()
    finally:
        cluster.scheduler.allowed_failures = allowed
    wait_for_stragglers(client)
    assert_resumes(dem, out, expected)


# --- the whole process is killed ------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "kind", "number", "alone"),
    [
        pytest.param(0, "done", 10, True, id="threads, down"),
        pytest.param(2, "done", SHARDS // 3, False, id="cluster, down, all at once"),
        pytest.param(
            *(2, "summary", SHARDS // 2, True),
            id="cluster, up, driver first",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_session_killed_is_resumed(
    dem: Path,
    expected: np.ndarray,
    workers: int,
    kind: str,
    number: int,
    alone: bool,
    tmp_path: Path,
    gate: Gate,
) -> None:
    out = dem.with_name("forest.zarr")
    before = digest(dem)
    gates = (gate.folder, tmp_path) if kind == "summary" else (tmp_path, gate.folder)
    arguments = [dem, out, dem.with_name("d.txt"), workers, *gates]
    program = Path(watched_raster.__file__).read_text(encoding="utf-8")
    kill_session(
        program, arguments, gate, lambda: len(has(out, kind)) >= number, workers, alone=alone
    )
    assert not out.exists()
    assert_resumes(dem, out, expected)
    assert digest(dem) == before


@pytest.fixture(scope="module", params=[4, pytest.param(1, marks=pytest.mark.long)])
def crashes(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, Any]:
    script = HERE / "crash_everywhere.py"
    folder, step = tmp_path_factory.mktemp("crashes"), request.param
    sent: dict[str, Any] = run_script(script, folder, folder, step)
    return sent


@pytest.mark.parametrize("scenario", ["nothing", "GeoTIFF", "finished", "unfinished"])
def test_a_run_killed_before_any_change_on_disk_can_be_resumed(
    scenario: str, crashes: dict[str, Any]
) -> None:
    """From nothing, to a store and to a file; over a finished result; over an unfinished one."""
    sent = crashes[scenario]
    assert sent["killed"] > 5
    assert not sent["wrong"], "\n".join(sent["wrong"])


# --- a run that was interrupted, and what may have happened to its folder since ----------------


@pytest.fixture(scope="module")
def stopped(ingested: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``out`` of a run that was cancelled when a third of its shards was written."""
    out = ingested.with_name("forest.zarr")
    gate = Gate(tmp_path_factory.mktemp("gate"))
    gate.shut()
    with pytest.MonkeyPatch.context() as patch, og.config.set(threads=1):
        patch.setattr(session, "StoreSink", bind(GatedSink, gate))
        run = started(WatchedRaster(ingested, ingested.with_name("first.txt")), out)
        try:
            wait_until(gate.until(lambda: len(has(out, "done")) >= SHARDS // 3), going_on(run))
        finally:
            run.cancel()
            gate.open()
        with pytest.raises(og.Cancelled):
            run.result()
    assert run.status == "cancelled"
    assert SHARDS // 3 <= len(has(out, "done")) < SHARDS
    return out


@pytest.fixture
def interrupted(dem: Path, stopped: Path) -> Path:
    """A copy of what a cancelled run has left: all of it can be moved elsewhere."""
    out = dem.with_name("forest.zarr")
    shutil.copytree(partial(stopped), partial(out))
    return out


def test_a_cancelled_run_is_resumed(dem: Path, interrupted: Path, expected: np.ndarray) -> None:
    assert_resumes(dem, interrupted, expected)


def test_a_run_is_resumed_on_a_cluster(
    dem: Path, interrupted: Path, client: Client, expected: np.ndarray
) -> None:
    assert_resumes(dem, interrupted, expected, client=client)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"weight": "mean"}, "weight = 'max'.*'mean'"),
        ({"connectivity": 4}, "connectivity = 8.*4"),
        ({"tile": 5, "shard": 10}, "shard = 16.*10"),
    ],
    ids=["weight", "connectivity", "tile"],
)
def test_another_run_is_not_resumed(
    dem: Path, interrupted: Path, changed: dict[str, Any], said: str
) -> None:
    before = digest(partial(interrupted))
    with pytest.raises(og.InputError, match=said):
        forest(dem, interrupted, resume=True, **changed)
    assert digest(partial(interrupted)) == before


def test_a_changed_input_is_not_resumed(dem: Path, interrupted: Path) -> None:
    changed = GRID.copy()
    changed[0, 0] += 1
    og.ingest(changed, dem, tile=TILE, shard=SHARD, overwrite=True)
    with pytest.raises(og.InputError, match="input = "):
        forest(dem, interrupted, resume=True)


def test_neither_resume_nor_overwrite_asks_which(dem: Path, interrupted: Path) -> None:
    before = digest(partial(interrupted))
    with pytest.raises(og.StoreExistsError, match=r"resume=True.*overwrite=True"):
        forest(dem, interrupted)
    assert digest(partial(interrupted)) == before


def test_overwrite_starts_anew(dem: Path, interrupted: Path) -> None:
    diary = dem.with_name("anew.txt")
    result = forest(WatchedRaster(dem, diary), interrupted, overwrite=True, weight="mean")
    mean = oracle.minimum_spanning_forest(GRID, weight="mean").mask
    np.testing.assert_array_equal(result["edges"].values, mean)
    assert set(read_tiles(diary)) == FIRST_CELLS


DAMAGE: dict[str, Callable[[Path], object]] = {
    "flipped": lambda p: p.write_bytes(p.read_bytes()[:-1] + bytes([p.read_bytes()[-1] ^ 1])),
    "truncated": lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]),
    "emptied": lambda p: p.write_bytes(b""),
    "deleted": lambda p: p.unlink(),
    "pickled": lambda p: p.write_bytes(PICKLED_ENTRY),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_checkpoints_are_made_good(
    dem: Path, interrupted: Path, expected: np.ndarray, damage: str
) -> None:
    victims = [p for p in checkpoints(interrupted).rglob("*") if p.is_file()]
    for victim in victims[:: 1 if damage == "deleted" else 3]:
        DAMAGE[damage](victim)
    result = forest(dem, interrupted, resume=True)
    np.testing.assert_array_equal(result["edges"].values, expected)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_shard_lost_from_an_unfinished_result_is_not_taken_for_written(
    dem: Path, interrupted: Path, expected: np.ndarray, damage: str
) -> None:
    """What is not there, or does not match its checksums, is made again."""
    shards = work(interrupted).rglob("edges/c/*/*")
    DAMAGE[damage](min(p for p in shards if p.is_file()))
    result = forest(dem, interrupted, resume=True)
    np.testing.assert_array_equal(result["edges"].values, expected)


def test_a_run_on_a_cluster_leaves_nothing_that_a_worker_would_run(
    dem: Path, client: Client, expected: np.ndarray, gate: Gate
) -> None:
    """What tasks must know comes to workers by the scheduler, and is gone from there at the end."""
    out = dem.with_name("forest.zarr")
    run = started(WatchedRaster(dem, dem.with_name("d.txt"), gate=gate), out, client=client)
    wait_until(gate.until(lambda: len(has(out, "summary")) > 5), going_on(run))
    run.cancel()
    with pytest.raises(og.Cancelled):
        run.result()
    gate.open()
    wait_for_stragglers(client)
    assert not list(work(out).glob("job-*"))
    files = [path for path in partial(out).rglob("*") if path.is_file()]
    assert len(files) > 10
    # with which pickles begin
    assert not [path for path in files if path.read_bytes()[:1] == b"\x80"]
    kept = client.run_on_scheduler(lambda dask_scheduler: dict(dask_scheduler.task_metadata))
    assert not [name for name in kept if str(name).startswith("orograph-run-")]
    assert_resumes(dem, out, expected, client=client)


def test_a_run_of_another_format_is_not_resumed(dem: Path, interrupted: Path) -> None:
    said = json.loads((partial(interrupted) / "run.json").read_text())
    for found in (0, 2):
        sent = {name: said[name] for name in ("identity", "token")} | {"format": found}
        (partial(interrupted) / "run.json").write_text(json.dumps(sent))
        before = digest(partial(interrupted))
        with pytest.raises(og.InputError, match=r"checkpoints of format [02].*overwrite=True"):
            forest(dem, interrupted, resume=True)
        assert digest(partial(interrupted)) == before
    forest(dem, interrupted, overwrite=True)


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"overwrite": True}], ids=str)
@pytest.mark.parametrize("token", ["../victim", "/", "", ".", "a" * 31 + "/", "A" * 32, 7])
def test_a_token_that_is_none_leads_nowhere(
    dem: Path, interrupted: Path, token: str | int, options: dict[str, bool]
) -> None:
    said = json.loads((partial(interrupted) / "run.json").read_text())
    shutil.move(work(interrupted), interrupted.with_name("victim"))
    (partial(interrupted) / "run.json").write_text(json.dumps({**said, "token": token}))
    before = digest(interrupted.parent)
    with pytest.raises(og.StoreExistsError, match="no unfinished run"):
        forest(dem, interrupted, **options)
    assert digest(interrupted.parent) == before


# --- what is not ours -----------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"overwrite": True}], ids=str)
@pytest.mark.parametrize("what", ["a file", "a folder", "a store"])
def test_a_partial_that_no_run_has_left_is_refused_and_untouched(
    dem: Path, what: str, options: dict[str, bool]
) -> None:
    out = dem.with_name("forest.zarr")
    theirs = partial(out)
    if what == "a file":
        theirs.write_text("mine")
    elif what == "a folder":
        (theirs / "result.zarr").mkdir(parents=True)
        (theirs / "notes.txt").write_text("mine")
    else:
        shutil.copytree(dem, theirs)
    before = digest(theirs.parent)
    with pytest.raises(og.StoreExistsError, match="move it away"):
        forest(dem, out, **options)
    assert digest(theirs.parent) == before


@pytest.mark.parametrize("suffix", [".old", ".tmp", ".bak"])
def test_a_backup_beside_the_result_is_left_alone(dem: Path, suffix: str) -> None:
    out = dem.with_name("forest.zarr")
    forest(dem, out)
    backup = out.with_name(out.name + suffix)
    shutil.copytree(out, backup)
    before = digest(backup)
    forest(dem, out, overwrite=True, weight="mean")
    assert backup.is_dir()
    assert digest(backup) == before


@pytest.mark.parametrize("place", ["dem.zarr", "dem.zarr/forest.zarr", "other/../dem.zarr"])
def test_the_input_is_never_written(dem: Path, place: str) -> None:
    dem.with_name("other").mkdir()
    before = digest(dem)
    with pytest.raises(og.InputError, match="never written"):
        forest(dem, dem.parent / place, overwrite=True)
    assert digest(dem) == before


# --- one run after another, and two at once ---------------------------------------------------


def test_two_runs_on_one_cluster_both_compute(
    dem: Path, client: Client, expected: np.ndarray
) -> None:
    """Results that the cluster still holds from the first would stand for shards not written."""
    out = dem.with_name("forest.zarr")
    for number in range(2):
        diary = dem.with_name(f"{number}.txt")
        result = forest(WatchedRaster(dem, diary), out, client=client, overwrite=True)
        np.testing.assert_array_equal(result["edges"].values, expected)
        assert set(read_tiles(diary)) == FIRST_CELLS


@pytest.mark.parametrize("where", ["threads", "cluster"])
def test_what_a_stopped_run_still_does_does_not_reach_the_next(
    dem: Path, client: Client, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task cannot be stopped in the middle: it may end when another run has begun."""
    options = {"client": client} if where == "cluster" else {}
    out = dem.with_name("forest.zarr")
    run = started(WatchedRaster(dem, dem.with_name("d.txt"), 0.3), out, **options)
    wait_until(lambda: read_tiles(dem.with_name("d.txt")), going_on(run))
    run.cancel()
    with pytest.raises(og.Cancelled):
        run.result()
    # the next run finds the stopped one's tasks at work: it waits for none of them
    slow = WatchedRaster(dem, dem.with_name("e.txt"), 0.02)
    result = forest(slow, out, overwrite=True, weight="mean", **options)
    mean = oracle.minimum_spanning_forest(GRID, weight="mean").mask
    np.testing.assert_array_equal(result["edges"].values, mean)
    wait_for_stragglers(options.get("client"))
    assert not partial(out).exists(), "a task of the stopped run came back to it"


def test_two_runs_to_one_place_do_not_destroy_each_other(
    dem: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is called before the first has made its folder, and gets to it after."""
    out = dem.with_name("forest.zarr")
    both_called = Event()
    begun = bind(wait_until, lambda: partial(out).exists() or out.exists())
    turns = iter([both_called.wait, begun])
    monkeypatch.setattr(forest_module.Forest, "compile_kernels", lambda *_: next(turns)())
    runs: list[og.Run] = []
    refused = 0
    for number in range(2):
        try:
            diary = dem.with_name(f"{number}.txt")
            runs.append(started(WatchedRaster(dem, diary, 0.02), out))
        except og.StoreExistsError:
            refused += 1
    both_called.set()
    for run in runs:
        try:
            run.result()
        except og.StoreExistsError:
            refused += 1
    assert refused == 1
    np.testing.assert_array_equal(og.open(out)["edges"].values, expected)


def test_a_cancelled_run_leaves_the_client_and_its_other_results_alone(
    dem: Path, client: Client, gate: Gate
) -> None:
    mine = client.submit(sum, [1, 2])
    assert mine.result() == 3
    diary = dem.with_name("d.txt")
    run = started(WatchedRaster(dem, diary, gate=gate), dem.with_name("forest.zarr"), client=client)
    wait_until(lambda: read_tiles(diary), going_on(run))
    connection = client.scheduler_comm
    run.cancel()
    with pytest.raises(og.Cancelled):
        run.result()
    gate.open()
    wait_for_stragglers(client)
    assert client.scheduler_comm is connection
    assert not connection.comm.closed()
    assert mine.status == "finished"
    assert mine.result() == 3
    # nothing of the run goes on, and nothing of it is kept
    wait_until(lambda: set(client.run_on_scheduler(keys_held)) == {mine.key})


# --- damage to the input, a full disk, a scheduler that is gone ---------------------------------


def flip_a_byte(dem: Path) -> Path:
    shard = dem / "elevation" / "c" / "2" / "3"
    content = bytearray(shard.read_bytes())
    content[len(content) // 4] ^= 1
    shard.write_bytes(content)
    return shard


@pytest.mark.parametrize("where", ["threads", "cluster"])
@pytest.mark.parametrize("copy", [shutil.copy2, shutil.copy], ids=["with its time", "as it comes"])
def test_a_flipped_byte_is_named_and_the_run_goes_on_when_it_is_mended(
    dem: Path, client: Client, expected: np.ndarray, where: str, copy: Callable[..., Any]
) -> None:
    options = {"client": client} if where == "cluster" else {}
    out, backup = dem.with_name("forest.zarr"), dem.with_name("backup")
    shard = dem / "elevation" / "c" / "2" / "3"
    shutil.copy2(shard, backup)
    assert flip_a_byte(dem) == shard
    os.utime(shard, ns=(backup.stat().st_atime_ns, backup.stat().st_mtime_ns))  # as bits rot
    with pytest.raises(og.DamagedChunkError) as raised:
        forest(dem, out, **options)
    assert str(shard) in str(raised.value)
    assert "shard (2, 3)" in str(raised.value)
    assert not out.exists()
    wait_for_stragglers(options.get("client"))
    copy(backup, shard)
    assert_resumes(dem, out, expected, **options)


@pytest.mark.parametrize("wrapped", [0, 1, 2, 3, 20, 80])
def test_a_full_disk_is_said_and_the_run_goes_on_when_there_is_room(
    dem: Path, expected: np.ndarray, wrapped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full from some write on."""
    out, written = dem.with_name("forest.zarr"), 0
    real = Path.open

    def open_file(self: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
        nonlocal written
        written += mode == "wb"
        if mode == "wb" and written > wrapped:
            raise OSError(28, "No space left on device", str(self))
        return real(self, mode, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_file)
        with pytest.raises(og.StorageFullError, match="No space left"):
            forest(dem, out)
    assert not out.exists()
    result = forest(dem, out, resume=True)
    np.testing.assert_array_equal(result["edges"].values, expected)


FILE_LIMIT = """
import resource, signal, sys
from pathlib import Path
import orograph as og
from orograph.forest import forest as forest_module
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
try:
    og.minimum_spanning_forest(sys.argv[1], tile=8, shard=16, out=sys.argv[2])
except og.StorageFullError as error:
    print("full:", error)
"""


def test_a_file_size_limit_is_said(dem: Path, expected: np.ndarray) -> None:
    out = dem.with_name("forest.zarr")
    sent = subprocess.run(
        [sys.executable, "-c", FILE_LIMIT, str(dem), str(out), "300"],
        env={**os.environ, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "full:" in sent.stdout, sent.stderr
    assert "File too large" in sent.stdout
    np.testing.assert_array_equal(forest(dem, out, resume=True)["edges"].values, expected)


def test_a_scheduler_that_is_gone_is_an_error_in_bounded_time(
    dem: Path, expected: np.ndarray, gate: Gate
) -> None:
    out = dem.with_name("forest.zarr")
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        local = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
        lone = Client(local, set_as_default=False)
        try:
            run = started(WatchedRaster(dem, dem.with_name("d.txt"), gate=gate), out, client=lone)
            wait_until(gate.until(lambda: len(has(out, "summary")) > 5), going_on(run))
            local.close()
            with pytest.raises(og.RunError, match="resume=True"):
                run.result()
        finally:
            lone.close()
            local.close()
    assert run.status == "failed"
    assert_resumes(dem, out, expected)


def test_a_run_leaves_its_input_as_it_was(dem: Path, client: Client) -> None:
    before = digest(dem)
    times = {p: p.stat().st_mtime_ns for p in dem.rglob("*")}
    forest(dem, dem.with_name("a.zarr"))
    forest(dem, dem.with_name("b.zarr"), client=client)
    forest(dem, dem.with_name("b.zarr"), client=client, overwrite=True)
    assert digest(dem) == before
    assert {p: p.stat().st_mtime_ns for p in dem.rglob("*")} == times


def test_errors_survive_the_way_between_processes() -> None:
    full = og.StorageFullError(28, "no room", "/there")
    again = pickle.loads(pickle.dumps(full))
    assert (again.errno, again.filename) == (28, "/there")
