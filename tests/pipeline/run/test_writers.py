"""Runs to one target, inputs and folders that others change, and workers that do not fit."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import oracle_forest as oracle
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from watched_raster import SHARD, TILE, Gate, WatchedRaster, wait_until

import orograph as og
from orograph.run import file_target, shared_data
from orograph.run.cluster import workers
from orograph.run.cluster.workers import WITNESS, Witness, check_workers, witness_in
from orograph.run.workspace import Workspace
from orograph.tiles.local_storage import LocalStorage
from orograph.tiles.storage import Storage
from orograph.tiles.store import create
from orograph.tiles.store.lease import Lease

GRID = np.random.default_rng(5).integers(1, 90, (50, 60)).astype(np.float32)
EDGES = pd.DataFrame({"source": [0, 1], "target": [1, 2], "weight": [3.0, 4.0]})
EXPECTED = oracle.minimum_spanning_forest(GRID).mask


@pytest.fixture
def dem(tmp_path: Path) -> Path:
    og.ingest(GRID, tmp_path / "dem.zarr", tile=TILE, shard=SHARD)
    return tmp_path / "dem.zarr"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None
        ) as local,
        Client(local, set_as_default=False) as connected,
    ):
        yield connected


def started(dem: Path, gate: Gate, name: str = "out.zarr", **options: Any) -> og.Run:
    """A run that has read a tile or two, and waits at the gate."""
    raster = WatchedRaster(dem, dem.with_name("diary.txt"), gate=gate)
    gate.shut(after=gate.arrived() + 2)
    with og.config.set(threads=2):
        run = og.minimum_spanning_forest.submit(
            raster, out=dem.with_name(name), tile=TILE, shard=SHARD, **options
        )
    wait_until(gate.held, lambda: run.status == "running" or run.result() is None)
    return run


def forest(dem: Path, name: str = "out.zarr", **options: Any) -> Any:
    out = dem.with_name(name)
    return og.minimum_spanning_forest(dem, out=out, tile=TILE, shard=SHARD, **options)


# --- two writers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"resume": True}], ids=str)
def test_a_second_run_is_told_who_is_at_work(
    dem: Path, gate: Gate, options: dict[str, Any]
) -> None:
    run = started(dem, gate)
    with pytest.raises(og.StoreExistsError, match=f"process {os.getpid()} of .*takeover=True"):
        forest(dem, **options)
    gate.open()
    np.testing.assert_array_equal(run.result()["edges"], EXPECTED)
    assert not list(dem.parent.glob("out.zarr.*"))


@pytest.mark.parametrize("how", ["overwrite", "resume"])
def test_a_run_whose_place_is_taken_ends_and_harms_nothing(dem: Path, gate: Gate, how: str) -> None:
    run = started(dem, gate)
    result = forest(dem, takeover=True, **{how: True})
    gate.open()
    with pytest.raises(og.RunError, match="while this process wrote there; nothing of"):
        run.result()
    np.testing.assert_array_equal(result["edges"], EXPECTED)
    np.testing.assert_array_equal(og.open(dem.with_name("out.zarr"))["edges"], EXPECTED)


@pytest.mark.parametrize("how", ["overwrite", "resume"])
def test_a_cancelled_run_of_this_process_is_waited_for(dem: Path, gate: Gate, how: str) -> None:
    run = started(dem, gate)
    run.cancel()
    opening = Timer(0.3, gate.open)
    opening.start()
    np.testing.assert_array_equal(forest(dem, **{how: True})["edges"], EXPECTED)
    with pytest.raises(og.Cancelled):
        run.result()
    opening.join()


def test_a_run_whose_place_is_taken_by_a_resume_writes_nothing_more(dem: Path, gate: Gate) -> None:
    out = dem.with_name("out.zarr")
    run = started(dem, gate)
    identity = json.loads((dem.parent / "out.zarr.partial/run.json").read_text())["identity"]
    with Lease(out, takeover=True) as lease:
        space = Workspace(out, identity, overwrite=False, resume=True, lease=lease)
        assert space.resumed
        before = states_below(space.folder)
        gate.open()
        with pytest.raises(og.RunError, match=f"process {os.getpid()} of .* has taken it over"):
            run.result()
        assert states_below(space.folder) == before
    np.testing.assert_array_equal(forest(dem, resume=True)["edges"], EXPECTED)


def states_below(folder: Storage) -> dict[str, Any]:
    return dict(folder.objects())


def test_a_taken_over_run_stops_at_its_next_heartbeat(dem: Path, gate: Gate) -> None:
    run = started(dem, gate)
    with Lease(dem.with_name("out.zarr"), takeover=True):
        gate.open()
        with pytest.raises(og.RunError, match=f"process {os.getpid()} of .* has taken it over"):
            run.result()
    assert not dem.with_name("out.zarr").exists()
    np.testing.assert_array_equal(forest(dem, resume=True)["edges"], EXPECTED)


@pytest.mark.parametrize(
    "write",
    [
        lambda out, **options: og.connected_components(GRID, out=out, **options),
        lambda out, **options: og.cost_distance(GRID, [(3, 4)], out=out, **options),
        lambda out, **options: og.all_pairs(np.ones((4, 4)), out=out, **options),
        lambda out, **options: og.DistanceIndex.build(GRID, out, **options),
        lambda out, **options: og.ingest(GRID, out, **options),
        lambda out, **options: og.shortest_paths(og.read_graph(EDGES, directed=True), 0, out=out),
        lambda out, **options: og.read_graph(EDGES, directed=True, store=out),
    ],
    ids=["components", "cost", "all pairs", "index", "ingest", "shortest paths", "graph"],
)
def test_every_operation_holds_its_target(tmp_path: Path, write: Callable[..., Any]) -> None:
    with Lease(tmp_path / "out"), pytest.raises(og.StoreExistsError, match="is being written by"):
        write(tmp_path / "out")
    assert os.listdir(tmp_path) == []


def test_the_place_of_a_writer_of_graphs_can_be_taken(tmp_path: Path) -> None:
    with Lease(tmp_path / "graph"), Lease(tmp_path / "out"):
        graph = og.read_graph(EDGES, directed=True, store=tmp_path / "graph", takeover=True)
        og.shortest_paths(graph, 0, out=tmp_path / "out", takeover=True)
    assert og.open(tmp_path / "out")["cost"].values.tolist() == [[0, 3, 7]]
    assert og.verify(tmp_path / "graph").ok
    assert sorted(os.listdir(tmp_path)) == ["graph", "out"]


def test_a_run_holds_the_geotiff_that_it_writes(
    dem: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, refusals = dem.with_name("out.tif"), []

    def others_are_refused() -> None:
        for write in (
            lambda: forest(dem, "out.tif", overwrite=True),
            lambda: og.to_geotiff(GRID, out, overwrite=True),
        ):
            with pytest.raises(og.StoreExistsError, match=r"out\.tif is being written by"):
                write()
            refusals.append(out)

    optimise = file_target._write_optimised

    def last_step(*given: Any) -> None:
        others_are_refused()
        optimise(*given)

    monkeypatch.setattr(file_target, "_write_optimised", last_step)
    run = started(dem, gate, "out.tif")
    others_are_refused()
    gate.open()
    np.testing.assert_array_equal(run.result()["edges"], EXPECTED)
    assert len(refusals) == 4
    assert sorted(os.listdir(dem.parent)) == ["dem.zarr", "diary.txt", "out.tif"]


def test_a_run_whose_geotiff_is_taken_ends_and_harms_nothing(dem: Path, gate: Gate) -> None:
    run = started(dem, gate, "out.tif")
    out = og.to_geotiff(GRID, dem.with_name("out.tif"), takeover=True)
    gate.open()
    with pytest.raises(og.RunError, match="while this process wrote there; nothing of"):
        run.result()
    np.testing.assert_array_equal(og.ingest(out, dem.with_name("copy.zarr")), GRID)


@pytest.mark.parametrize("name", ["out.zarr", "out.tif", None])
def test_a_run_that_cannot_begin_gives_back_what_it_holds(
    dem: Path, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(*_: Any, **__: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("orograph.run.launch.Run", no_thread)
    out = name and dem.with_name(name)
    with og.config.set(scratch=str(dem.parent)), pytest.raises(RuntimeError, match="new thread"):
        og.minimum_spanning_forest(dem, out=out)
    assert os.listdir(dem.parent) == ["dem.zarr"]


# --- what others do meanwhile --------------------------------------------------------------------


def test_an_input_replaced_meanwhile_is_named(dem: Path, gate: Gate) -> None:
    run = started(dem, gate)
    og.ingest(GRID + 1, dem, tile=TILE, shard=SHARD, overwrite=True)
    gate.open()
    with pytest.raises(og.RunError, match=r"dem\.zarr.* has changed .*nothing was published"):
        run.result()
    assert not list(dem.parent.glob("out*"))


def test_a_failure_by_a_replaced_input_says_so(dem: Path, gate: Gate) -> None:
    run = started(dem, gate)
    og.ingest(GRID[:20, :20], dem, tile=TILE, shard=SHARD, overwrite=True)
    gate.open()
    with pytest.raises(og.RunError, match=r"dem\.zarr.* has changed .*nothing was published"):
        run.result()
    assert not list(dem.parent.glob("out*"))


def test_an_ingest_of_a_replaced_source_publishes_nothing(dem: Path, gate: Gate) -> None:
    class Replaced(WatchedRaster):
        def read(self, window: Any) -> Any:
            cells = super().read(window)
            if not dem.with_name("replaced").exists():
                dem.with_name("replaced").touch()
                og.ingest(GRID + 1, dem, tile=TILE, shard=SHARD, overwrite=True)
            return cells

    source = Replaced(dem, dem.with_name("diary.txt"))
    with pytest.raises(og.RunError, match="has changed"):
        og.ingest(source, dem.with_name("copy.zarr"), tile=TILE)
    with pytest.raises(og.InputError, match="never finished"):
        og.minimum_spanning_forest(dem.with_name("copy.zarr"))


def test_a_folder_removed_under_a_run_is_named(dem: Path, gate: Gate) -> None:
    run = started(dem, gate)
    shutil.rmtree(dem.with_name("out.zarr.partial"))
    gate.open()
    with pytest.raises(og.RunError, match=r"out\.zarr\.partial/.* has been removed while"):
        run.result()
    assert not list(dem.parent.glob("out*"))


@pytest.mark.parametrize("part", ["checkpoints", "result.zarr"])
def test_a_folder_that_is_being_removed_under_a_run_is_named(
    dem: Path, gate: Gate, part: str
) -> None:
    """It is removed file by file, and still there when the run misses one."""
    run = started(dem, gate)
    (work,) = (p for p in dem.with_name("out.zarr.partial").iterdir() if p.is_dir())
    while (work / part).exists():  # the run writes on until it is at the gate
        shutil.rmtree(work / part, ignore_errors=True)
    gate.open()
    with pytest.raises(og.RunError, match=r"out\.zarr\.partial/.* has been removed while"):
        run.result()
    assert work.exists()


def test_a_store_removed_while_it_is_created_is_named(
    dem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressor = create._compressor

    def remove(*given: Any, **how: Any) -> Any:
        for path in dem.parent.rglob("*/result.zarr/zarr.json"):
            path.unlink()
        return compressor(*given, **how)

    monkeypatch.setattr(create, "_compressor", remove)
    with pytest.raises(og.DamagedStoreError, match=r"result\.zarr/zarr\.json: it has been removed"):
        forest(dem)


def test_a_folder_removed_under_an_ingest_is_named(dem: Path, gate: Gate) -> None:
    class Removed(WatchedRaster):
        def read(self, window: Any) -> Any:
            cells = super().read(window)
            shutil.rmtree(dem.with_name("copy.zarr.partial"), ignore_errors=True)
            return cells

    source = Removed(dem, dem.with_name("diary.txt"))
    with pytest.raises(og.RunError, match=r"copy\.zarr\.partial/.* has been removed while"):
        og.ingest(source, dem.with_name("copy.zarr"), tile=TILE)


# --- workers -------------------------------------------------------------------------------------


def test_a_worker_that_does_not_see_the_folder_is_named(client: Client, tmp_path: Path) -> None:
    folder, token = LocalStorage(tmp_path), "a" * 32
    folder.put(WITNESS, token.encode())
    witness = witness_in(folder, token)
    check_workers(client, witness)
    (address,) = client.scheduler_info()["workers"]
    name = f"{address} on {socket.gethostname()}"
    elsewhere = witness._replace(folder=str(tmp_path / "elsewhere"))
    with pytest.raises(og.RunError, match=f"{name} cannot read the run's folder .*elsewhere"):
        check_workers(client, elsewhere)
    with pytest.raises(og.RunError, match=f"{name} sees another folder at"):
        check_workers(client, witness._replace(token="b" * 32))


def test_a_run_on_a_worker_without_the_folder_starts_nothing(
    dem: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = workers.witness_in

    def unseen(folder: Any, token: str) -> Witness:
        return left(folder, token)._replace(folder=f"{folder}-of-another-host")

    monkeypatch.setattr("orograph.run.workspace.witness_in", unseen)
    with pytest.raises(og.RunError, match=r"another-host.* nothing has been started"):
        forest(dem, client=client)
    assert not list(dem.parent.glob("out*"))


def test_a_worker_that_comes_later_is_checked_too(client: Client) -> None:
    with shared_data.shared("run", client, Witness("0.0.1")) as handle:
        (address,) = client.scheduler_info()["workers"]
        with pytest.raises(og.RunError, match=f"{address} on .* this session 0.0.1"):
            client.submit(shared_data.load, handle, pure=False).result()


def test_a_worker_of_another_version_is_named(dem: Path, tmp_path: Path) -> None:
    fake = tmp_path / "path" / "orograph"
    fake.mkdir(parents=True)
    (fake / "__init__.py").touch()
    (fake / "_version.py").write_text("__version__ = '0.0.1'\n")
    with (
        LocalCluster(n_workers=0, processes=True, dashboard_address=None) as local,
        Client(local, set_as_default=False) as client,
    ):
        worker = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_worker", local.scheduler_address,
             "--no-dashboard", "--nworkers", "1", "--no-nanny"],
            env={**os.environ, "PYTHONPATH": str(fake.parent)},
            cwd=tmp_path,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            client.wait_for_workers(1)
            (address,) = client.scheduler_info()["workers"]
            named = rf"{address} on {socket.gethostname()} has orograph 0\.0\.1, this session"
            with pytest.raises(og.RunError, match=named):
                forest(dem, client=client)
            with pytest.raises(og.RunError, match=named):
                forest(dem, client=client, backend="numba")
        finally:
            worker.terminate()
            worker.wait()
    assert not list(dem.parent.glob("out*"))
