"""Icechunk: snapshots as inputs, and results as one change of a branch."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from distributed import Client, LocalCluster
from object_server import S3Server

import orograph as og
from orograph.run import icechunk_target
from orograph.run.cluster.executors import _Threads
from orograph.tiles.convert.icechunk_branch import IcechunkBranch, copy_chunks
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import LazyRaster, open_raster

RNG = np.random.default_rng(7)
GRID = RNG.integers(1, 50, (45, 37)).astype(np.float32)
PLACED = xr.DataArray(
    GRID, {"y": 90.0 - np.arange(45) * 2, "x": np.arange(37) * 2.0}, ("y", "x"), "z", {"units": "m"}
)
OPTIONS: dict[str, Any] = {"tile": 8, "shard": 16}

icechunk.set_logs_filter("error")  # that a folder is not safe for two writers


def repository_at(server: S3Server, bucket: str) -> icechunk.Repository:
    """Create a repository in a bucket."""
    storage = icechunk.s3_storage(
        bucket=bucket.removeprefix("s3://"),
        prefix="repository",
        region="us-east-1",
        endpoint_url=server.url,
        allow_http=True,
        access_key_id="test",
        secret_access_key="test",
        force_path_style=True,
    )
    return icechunk.Repository.open_or_create(storage)


@pytest.fixture(params=["folder", "s3"])
def repository(
    request: pytest.FixtureRequest, tmp_path: Path, s3_server: S3Server
) -> icechunk.Repository:
    """An empty repository, in a folder and in a bucket."""
    if request.param == "folder":
        return icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "ice")))
    return repository_at(s3_server, s3_server.make_bucket())


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of two workers, each a process."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as found,
    ):
        yield found


def put(repository: icechunk.Repository, raster: xr.DataArray, branch: str = "main") -> str:
    """Commit a raster; return the snapshot."""
    session = repository.writable_session(branch)
    raster.to_dataset().to_zarr(session.store, zarr_format=3, consolidated=False, mode="w")
    return session.commit("a raster")


# --- inputs ---------------------------------------------------------------------------------------


READ_FROM = {
    "folder": ("repository", "array"),
    "s3": ("repository", "session", "store", "group", "array"),
}


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("repository", "what"),
    [(place, what) for place, kinds in READ_FROM.items() for what in kinds],
    indirect=["repository"],
)
def test_a_snapshot_is_read_by_workers(
    repository: icechunk.Repository, client: Client, what: str
) -> None:
    put(repository, PLACED)
    session = repository.readonly_session("main")
    source = {
        "repository": lambda: repository,
        "session": lambda: session,
        "store": lambda: session.store,
        "group": lambda: zarr.open_group(session.store, mode="r"),
        "array": lambda: zarr.open_group(session.store, mode="r")["z"],
    }[what]()
    raster = open_raster(source)
    assert raster.georeference == open_raster(PLACED).georeference
    assert raster.attrs["units"] == "m"
    again = pickle.loads(pickle.dumps(raster))
    np.testing.assert_array_equal(again.read(Window(2, 1, 7, 5)), GRID[2:9, 1:6])
    found = og.cost_distance(source, [(4, 80)], client=client, **OPTIONS)
    expected = og.cost_distance(PLACED, [(4, 80)], **OPTIONS)
    xr.testing.assert_identical(found.load().drop_encoding(), expected)


def test_a_fingerprint_is_of_the_snapshot(
    repository: icechunk.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = put(repository, PLACED)

    def refuse(*_: Any) -> None:
        raise AssertionError("cells are read")

    monkeypatch.setattr(LazyRaster, "read", refuse)
    before = open_raster(repository).fingerprint()
    assert before == open_raster(repository.readonly_session(snapshot_id=first)).fingerprint()
    put(repository, PLACED + 1)
    assert open_raster(repository).fingerprint() != before
    assert open_raster(repository.readonly_session(snapshot_id=first)).fingerprint() == before


def test_a_run_from_a_snapshot_is_resumed(repository: icechunk.Repository, tmp_path: Path) -> None:
    put(repository, PLACED)
    out = tmp_path / "out.zarr"
    run = og.minimum_spanning_forest.submit(repository, out=out, **OPTIONS)
    expected = run.result()["edges"].values
    with pytest.raises(og.StoreExistsError):
        og.minimum_spanning_forest(repository, out=out, resume=True, **OPTIONS)
    assert (expected == og.minimum_spanning_forest(PLACED, **OPTIONS)["edges"].values).all()


def test_a_writable_session_is_refused(repository: icechunk.Repository, tmp_path: Path) -> None:
    put(repository, PLACED)
    session = repository.writable_session("main")
    for source in (session, session.store, zarr.open_group(session.store)["z"]):
        with pytest.raises(og.InputError, match=r"elevation: a writable .*readonly_session"):
            og.peaks(source)
    with pytest.raises(og.InputError, match=r"out: a session of Icechunk; pass its repository"):
        og.peaks(GRID, out=session)


# --- results --------------------------------------------------------------------------------------

RUNS: dict[str, Callable[..., xr.Dataset]] = {
    "forest": lambda **o: og.minimum_spanning_forest(PLACED, **OPTIONS, **o),
    "distance": lambda **o: og.cost_distance(
        PLACED, [(4, 80)], outputs=("cost", "back_direction"), **OPTIONS, **o
    ),
    "components": lambda **o: og.connected_components(PLACED > 20, **OPTIONS, **o),
    "peaks": lambda **o: og.peaks(PLACED, **OPTIONS, **o),
}
NATURAL = {("folder", "threads"), ("s3", "workers")}


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("repository", "by", "run"),
    [
        pytest.param(
            *(place, by, run),
            # each operation by threads and by workers, in one of both places; one in both
            marks=[] if (place, by) in NATURAL or run == "distance" else pytest.mark.long,
        )
        for place in ("folder", "s3")
        for by in ("threads", "workers")
        for run in RUNS
    ],
    indirect=["repository"],
)
def test_a_result_has_the_bits_of_a_store(
    repository: icechunk.Repository, client: Client, tmp_path: Path, run: str, by: str
) -> None:
    chosen = {"client": client} if by == "workers" else {}
    found = RUNS[run](out=repository, **chosen)
    stored = RUNS[run](out=tmp_path / "out.zarr", **chosen)
    assert found.attrs == stored.attrs
    assert dict(found.sizes) == dict(stored.sizes)
    assert set(found.variables) == set(stored.variables)
    for name in stored.variables:
        assert found[name].dtype == stored[name].dtype, name
        assert found[name].values.tobytes() == stored[name].values.tobytes(), name
    assert repository.list_branches() == {"main"}
    opened = xr.open_zarr(repository.readonly_session("main").store, consolidated=False)
    assert set(opened.data_vars) == set(found.data_vars)
    messages = [snapshot.message for snapshot in repository.ancestry(branch="main")]
    assert len(messages) == 3
    assert messages[0].startswith("orograph ")


def test_what_is_there_is_replaced_if_that_is_said(repository: icechunk.Repository) -> None:
    first = put(repository, PLACED)
    with pytest.raises(og.StoreExistsError, match=r"holds .*z.*overwrite=True"):
        og.minimum_spanning_forest(GRID, out=repository, **OPTIONS)
    with pytest.raises(og.InputError, match="resume: "):
        og.minimum_spanning_forest(GRID, out=repository, resume=True, **OPTIONS)
    with pytest.raises(og.InputError, match="detach: "):
        og.minimum_spanning_forest.submit(GRID, out=repository, detach=True, **OPTIONS)
    og.minimum_spanning_forest(GRID, out=repository, overwrite=True, **OPTIONS)
    now = zarr.open_group(repository.readonly_session("main").store, mode="r")
    names = {name for name, _ in now.members()}
    assert "edges" in names
    assert "z" not in names
    old = zarr.open_group(repository.readonly_session(snapshot_id=first).store, mode="r")
    np.testing.assert_array_equal(old["z"][:], GRID)


def test_another_commit_meanwhile_is_told(
    repository: icechunk.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = IcechunkBranch.begin
    committed: list[str] = []

    def commit_first(self: IcechunkBranch, *rest: Any) -> Any:
        committed.append(put(repository, PLACED))
        return begin(self, *rest)

    monkeypatch.setattr(IcechunkBranch, "begin", commit_first)
    with pytest.raises(og.StoreExistsError, match="another has committed to branch main"):
        og.minimum_spanning_forest(GRID, out=repository, **OPTIONS)
    assert repository.lookup_branch("main") == committed[0]
    assert repository.list_branches() == {"main"}


@pytest.mark.diagonal
@pytest.mark.parametrize("place", ["begin", "copy", "move"])
def test_a_run_that_fails_leaves_all_as_it_was(
    repository: icechunk.Repository, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Whatever it had written is found by no name, and the next run begins anew."""
    first = put(repository, PLACED)
    calls: list[int] = []

    def fail(*arguments: Any) -> Any:
        calls.append(1)
        if place == "copy" and len(calls) < 2:
            return copy_chunks(*arguments)
        raise KeyboardInterrupt if place == "move" else OSError("no more")

    monkeypatch.setattr(icechunk_target, "CHUNKS_A_TASK", 2)
    with monkeypatch.context() as patch:
        if place == "copy":
            patch.setattr(icechunk_target, "copy_chunks", fail)
        else:
            patch.setattr(IcechunkBranch, place, fail)
        with pytest.raises((OSError, og.OrographError, KeyboardInterrupt)):
            og.minimum_spanning_forest(GRID, out=repository, overwrite=True, **OPTIONS)
    assert calls
    assert repository.lookup_branch("main") == first
    assert repository.list_branches() == {"main"}
    found = og.minimum_spanning_forest(GRID, out=repository, overwrite=True, **OPTIONS)
    expected = og.minimum_spanning_forest(GRID, **OPTIONS)
    np.testing.assert_array_equal(found["edges"], expected["edges"])


@pytest.mark.diagonal
@pytest.mark.parametrize("place", ["begin", "copy_chunks", "move"])
def test_a_run_that_is_killed_leaves_all_as_it_was(
    repository: icechunk.Repository, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Its own branch is left, which is in nobody's way."""
    first = put(repository, PLACED)

    class Killed(BaseException):
        """The process was killed."""

    def kill(*_: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        where = icechunk_target if place == "copy_chunks" else IcechunkBranch
        patch.setattr(where, place, kill)
        patch.setattr(icechunk.Repository, "delete_branch", kill)
        with pytest.raises(Killed):
            og.minimum_spanning_forest(GRID, out=repository, overwrite=True, **OPTIONS)
    assert repository.lookup_branch("main") == first
    left = repository.list_branches() - {"main"}
    assert [name[:9] for name in left] == ["orograph-"]
    found = og.minimum_spanning_forest(GRID, out=repository, overwrite=True, **OPTIONS)
    expected = og.minimum_spanning_forest(GRID, **OPTIONS)
    np.testing.assert_array_equal(found["edges"], expected["edges"])
    assert repository.list_branches() - {"main"} == left


def test_chunks_are_copied_by_many_tasks(
    repository: icechunk.Repository, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(icechunk_target, "CHUNKS_A_TASK", 1)
    copied: list[int] = []
    submit = _Threads.submit

    def count(self: Any, worker: Any, stage: str, *rest: Any) -> Any:
        copied.append(stage == "copy")
        return submit(self, worker, stage, *rest)

    monkeypatch.setattr(_Threads, "submit", count)
    expected = og.minimum_spanning_forest(GRID, **OPTIONS)["edges"]
    for chosen in ({}, {"client": client}):
        found = og.minimum_spanning_forest(
            GRID, out=repository, overwrite=True, **OPTIONS, **chosen
        )
        np.testing.assert_array_equal(found["edges"], expected)
    assert sum(copied) >= 9


def test_a_lazy_result_is_written_when_it_is_computed(repository: icechunk.Repository) -> None:
    before = repository.lookup_branch("main")
    later = og.minimum_spanning_forest.lazy(GRID, out=repository, **OPTIONS)
    assert repository.lookup_branch("main") == before
    found = later.compute(scheduler="sync")
    expected = og.minimum_spanning_forest(GRID, **OPTIONS)["edges"]
    np.testing.assert_array_equal(found["edges"], expected)
    assert repository.lookup_branch("main") != before


def test_a_report_says_where_it_went(repository: icechunk.Repository) -> None:
    run = og.minimum_spanning_forest.submit(GRID, out=repository, **OPTIONS)
    run.result()
    assert run.report()["out"] == "branch main of an Icechunk repository"
