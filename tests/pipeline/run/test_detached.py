"""Runs that one leaves and finds again: driven by a task of the cluster."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster, Nanny, Scheduler, SpecCluster
from programs import start_program
from watched_raster import Gate, WatchedRaster, mortal_cluster, wait_until

import orograph as og
from orograph.cli.main import main
from orograph.run import detached

FRICTION = np.random.default_rng(5).uniform(1, 9, (60, 70))
START = [(3, 3)]


@pytest.fixture(scope="module")
def friction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("input") / "friction.zarr"
    og.ingest(FRICTION, store, tile=8, shard=16)
    return store


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    folder = tmp_path / "gate"
    folder.mkdir()
    gate = Gate(folder)
    yield gate
    gate.open()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        resources={"driver": 1},
    ) as cluster:
        yield cluster


def expected() -> Any:
    return og.cost_distance(FRICTION, START)["cost"].values


def test_a_run_is_left_and_found_by_another_session(
    cluster: LocalCluster, friction: Path, gate: Gate, tmp_path: Path
) -> None:
    out = tmp_path / "cost.zarr"
    raster = WatchedRaster(friction, tmp_path / "diary.txt", gate=gate)
    gate.shut(after=5)
    with Client(cluster, set_as_default=False) as first:
        run = og.cost_distance.submit(raster, START, out=out, detach=True, client=first)
        assert isinstance(run, og.Run)
        wait_until(gate.held)
    with Client(cluster, set_as_default=False) as second:
        run = og.attach(out, client=second)
        wait_until(lambda: run.progress().total)
        (entry,) = [entry for entry in og.runs(second) if entry["out"] == str(out)]
        assert entry["operation"] == "cost_distance"
        assert (entry["status"], entry["error"]) == ("running", None)
        assert run.status == "running"
        wait_until(lambda: run.progress().phase == "cost-distance")
        assert run.report()["memory"]["planned"]["worker"] > 2**20
        with pytest.raises(og.StoreExistsError, match=r"being written|orograph\.attach"):
            og.cost_distance.submit(
                friction, START, out=out, detach=True, client=second, overwrite=True
            )
        gate.open()
        np.testing.assert_array_equal(run.result()["cost"].values, expected())
        (entry,) = [entry for entry in og.runs(second) if entry["out"] == str(out)]
        assert entry["status"] == "finished"
        assert 0 < entry["done"] == entry["total"]
        report = run.report()
        assert (report["operation"], report["status"]) == ("cost_distance", "finished")
        # and once more, by whoever comes
        assert og.attach(str(out), client=second).result().attrs["reached_cells"] == FRICTION.size


def test_of_two_sessions_that_leave_a_run_at_once_one_is_told(
    cluster: LocalCluster, friction: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen that there is no run before either begins one."""
    out, read = tmp_path / "cost.zarr", detached._runs
    begun: list[og.Run[Any]] = []
    with (
        Client(cluster, set_as_default=False) as one,
        Client(cluster, set_as_default=False) as other,
    ):

        def leave(client: Client, travel: str) -> og.Run[Any]:
            return og.cost_distance.submit(
                friction, START, travel=travel, out=out, detach=True, client=client
            )

        def let_the_other_begin(client: Client) -> Any:
            found = read(client)
            if client is one and not begun:
                monkeypatch.setattr(detached, "_runs", read)
                begun.append(leave(other, "to"))
            return found

        monkeypatch.setattr(detached, "_runs", let_the_other_begin)
        with pytest.raises(og.StoreExistsError, match=r"has begun already; orograph\.attach finds"):
            leave(one, "from")
        expected_to = og.cost_distance(FRICTION, START, travel="to")["cost"].values
        np.testing.assert_array_equal(begun[0].result()["cost"].values, expected_to)
        np.testing.assert_array_equal(og.attach(out, client=one).result()["cost"], expected_to)
        assert [e["status"] for e in og.runs(one) if e["out"] == str(out)] == ["finished"]
        # and one that comes after it is not refused for that
        again = og.cost_distance.submit(
            friction, START, out=out, detach=True, client=one, overwrite=True
        )
        np.testing.assert_array_equal(again.result()["cost"].values, expected())


@pytest.mark.timeout(300)
def test_a_run_whose_driver_is_lost_goes_on(friction: Path, gate: Gate, tmp_path: Path) -> None:
    out = tmp_path / "cost.zarr"
    raster = WatchedRaster(friction, tmp_path / "diary.txt", gate=gate)
    with mortal_cluster(2) as cluster, Client(cluster, set_as_default=False) as client:
        gate.shut(after=9)
        run = og.cost_distance.submit(raster, START, out=out, detach=True, client=client)
        wait_until(gate.held, lambda: run.status == "running")
        wait_until(lambda: run.report().get("driver") and run.progress().total)
        driver = run.report()["driver"]
        name = client.scheduler_info(n_workers=-1)["workers"][driver]["name"]
        os.kill(cluster.workers[name].pid, signal.SIGKILL)
        gate.open()  # the other worker may be held there, and be given the driver
        np.testing.assert_array_equal(run.result()["cost"].values, expected())
        assert run.report()["resumed"]
        assert run.report()["driver"] != driver


SCHEDULER = """
import asyncio, sys
from pathlib import Path
from distributed import Scheduler, Worker

async def serve():
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
        async with Worker(scheduler.address, nthreads=2, dashboard=False):
            Path("new").write_text(scheduler.address)
            Path("new").rename(sys.argv[1])
            await scheduler.finished()

asyncio.run(serve())
"""


@contextmanager
def mortal_scheduler(folder: Path, name: str) -> Iterator[tuple[BaseProcess, Client]]:
    """A process that holds a scheduler and a worker, to be killed, and a client of it."""
    file = folder / name
    process = start_program(SCHEDULER, folder / "serve.py", folder, folder / f"{name}.txt", file)
    try:
        wait_until(file.exists, process.is_alive)
        # else a client looks for a scheduler that is gone for half a minute
        with (
            dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
            Client(file.read_text(), set_as_default=False) as client,
        ):
            yield process, client
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize("detach", [False, True], ids=["attended", "detached"])
@pytest.mark.timeout(300)
def test_a_run_whose_scheduler_is_killed_says_how_it_goes_on(
    friction: Path, gate: Gate, tmp_path: Path, detach: bool
) -> None:
    out = tmp_path / "cost.zarr"
    raster = WatchedRaster(friction, tmp_path / "diary.txt", gate=gate)
    gate.shut(after=9)
    with mortal_scheduler(tmp_path, "first") as (process, client):
        run = og.cost_distance.submit(raster, START, out=out, detach=detach, client=client)
        wait_until(gate.held, lambda: run.status == "running")
        process.kill()
        with pytest.raises(og.RunError, match=r"the cluster is gone.*resume=True continues"):
            run.result()
        assert (run.status, run.report()["status"]) == ("failed", "failed")
    gate.open()
    with mortal_scheduler(tmp_path, "second") as (_, client):
        with pytest.raises(og.InputError, match=rf"run of cost_distance is in {out}\.partial.*res"):
            og.attach(out, client=client)
        again = og.cost_distance.submit(
            raster, START, out=out, detach=detach, client=client, resume=True, takeover=True
        )
        np.testing.assert_array_equal(again.result()["cost"].values, expected())
        assert again.report()["resumed"]
        if not detach:  # of which the cluster knows nothing
            with pytest.raises(og.InputError, match=r"the store is there: og\.open"):
                og.attach(out, client=client)


def test_a_detached_run_is_cancelled_and_resumed(
    cluster: LocalCluster, friction: Path, gate: Gate, tmp_path: Path
) -> None:
    out = tmp_path / "cost.zarr"
    raster = WatchedRaster(friction, tmp_path / "diary.txt", gate=gate)
    gate.shut(after=9)
    with Client(cluster, set_as_default=False) as client:
        options: dict[str, Any] = {"out": out, "detach": True, "client": client}
        run = og.cost_distance.submit(raster, START, **options)
        wait_until(gate.held, lambda: run.status == "running")
        with Client(cluster, set_as_default=False) as brief:
            og.attach(out, client=brief).cancel()  # and that session ends at once
        other = og.attach(out, client=client)
        ended = gate.until(lambda: other.status != "running")
        # one read after the other, so slowly that the driver hears of it before the end
        wait_until(lambda: time.sleep(0.2) or ended())
        gate.open()
        with pytest.raises(og.Cancelled):
            other.result()
        with pytest.raises(og.Cancelled):
            run.result()
        assert (run.status, other.status) == ("cancelled", "cancelled")
        assert [e["status"] for e in og.runs(client) if e["out"] == str(out)] == ["cancelled"]
        with pytest.raises(og.StoreExistsError, match="unfinished run"):
            og.cost_distance.submit(friction, START, **options)
        run = og.cost_distance.submit(raster, START, resume=True, **options)
        np.testing.assert_array_equal(run.result()["cost"].values, expected())
        assert run.report()["resumed"]


def test_the_driver_is_placed_by_a_resource_and_the_work_by_annotations(
    friction: Path, tmp_path: Path
) -> None:
    workers = {
        name: {"cls": Nanny, "options": {"nthreads": 1, "resources": {resource: 1}}}
        for name, resource in (("driver", "driver"), ("worker", "muscle"))
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "port": 0}}
    with (
        SpecCluster(workers, scheduler) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(2)
        with dask.annotate(resources={"muscle": 1}):
            run = og.minimum_spanning_forest.submit(
                friction, out=tmp_path / "forest.zarr", detach="driver", client=client
            )
        assert run.result().attrs["edge_count"] == FRICTION.size - 1
        driver = run.report()["driver"]
        known = client.scheduler_info(n_workers=-1)["workers"]
        assert known[driver]["name"] == "driver"


def test_results_of_other_kinds_are_opened(
    cluster: LocalCluster, friction: Path, tmp_path: Path
) -> None:
    with Client(cluster, set_as_default=False) as client:
        store = tmp_path / "index.zarr"
        run = og.DistanceIndex.build.submit(
            friction, store, block=8, levels=1, detach=True, client=client
        )
        index = run.result()
        assert isinstance(index, og.DistanceIndex)
        assert index.distance_matrix([(0, 0), (9, 9)]).values[0, 1] > 0
        filled = og.fill_depressions.submit(
            FRICTION, out=tmp_path / "filled.zarr", detach=True, client=client
        )
        same = og.fill_depressions(FRICTION)["filled"].values
        np.testing.assert_array_equal(filled.result()["filled"].values, same)


def test_what_cannot_be_detached_is_refused(
    cluster: LocalCluster, friction: Path, tmp_path: Path
) -> None:
    with pytest.raises(og.InputError, match=r"^detach: .*needs a cluster"):
        og.cost_distance.submit(friction, START, out=tmp_path / "a.zarr", detach=True)
    for function in (og.attach, lambda out: og.runs()):
        with pytest.raises(og.InputError, match=r"^client: .*needs a cluster"):
            function(tmp_path / "a.zarr")
    with Client(cluster, set_as_default=False) as client:
        submit, given = og.cost_distance.submit, {"detach": True, "client": client}
        with pytest.raises(og.InputError, match=r"^detach: .*pass out="):
            submit(friction, START, **given)
        with pytest.raises(og.InputError, match=r"^detach: .*ends in \.zarr"):
            submit(friction, START, out=tmp_path / "a.tif", **given)
        og.ingest(FRICTION, tmp_path / "there.zarr")
        with pytest.raises(og.StoreExistsError, match="exists"):
            submit(friction, START, out=tmp_path / "there.zarr", **given)
        with pytest.raises(og.InputError, match="the source"):
            submit(friction, START, out=friction, **given)
        with pytest.raises(og.InputError, match=r"^out: the cluster has no detached run"):
            og.attach(tmp_path / "never.zarr", client=client)
        for verb in (og.cost_distance, og.cost_distance.lazy):
            with pytest.raises(og.InputError, match=r"^detach: .*use \.submit"):
                verb(friction, START, out=tmp_path / "a.zarr", detach=True)  # type: ignore[operator]
        # what tasks alone find out ends the run, and is told
        og.ingest(-FRICTION, tmp_path / "negative.zarr", tile=8, shard=16)
        run = submit(tmp_path / "negative.zarr", START, out=tmp_path / "b.zarr", **given)
        with pytest.raises(og.InputError, match=r"^friction: -"):
            run.result()
        entry = og.runs(client)[-1]
        assert entry["status"] == "failed"
        assert entry["error"].startswith("friction: -")
    assert not list(tmp_path.glob("*.partial"))


def test_from_the_shell(
    cluster: LocalCluster, friction: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, scheduler = str(tmp_path / "cost.zarr"), ["--scheduler", cluster.scheduler_address]
    command = ["cost", str(friction), out, "--point", "3", "3", "--detach"]
    assert main([*command, *scheduler]) == 0
    assert "detached" in capsys.readouterr().out
    with Client(cluster, set_as_default=False) as client:
        og.attach(out, client=client).result()
    assert main(["runs", *scheduler]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if out in line]
    assert "cost_distance" in line
    assert "finished" in line
    assert main(["status", out, *scheduler]) == 0
    told = capsys.readouterr().out
    assert "status: finished" in told
    assert f"out: {out}" in told
    assert main(["status", out]) == 0  # without the scheduler, by the report in the store
    assert "status: finished" in capsys.readouterr().out
    assert main(["cancel", out, *scheduler]) == 0
    assert "finished before" in capsys.readouterr().out
    assert main(["status", str(tmp_path / "other.zarr"), *scheduler]) == 2
    assert "no detached run" in capsys.readouterr().err
    assert main([*command[:2], str(tmp_path / "d.zarr"), *command[3:]]) == 2
    assert "--scheduler" in capsys.readouterr().err
