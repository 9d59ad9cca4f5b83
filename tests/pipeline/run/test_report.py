"""Reports of runs: what was asked for, how far it is, what went wrong and what to do."""

from __future__ import annotations

import json
import time
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster, span

import orograph as og
from orograph.cli.main import main
from orograph.flow.directions import Directions
from orograph.run.cluster.clusters import memory_of_worker, threads_of_workers
from orograph.run.feedback import Progress
from orograph.run.run import Run
from orograph.run.session import StoredSession

ASKED = {
    "operation", "inputs", "parameters", "shape", "tile", "shard", "out", "workers", "backend",
    "versions", "bytes",
}  # fmt: skip
STATE = {
    "begun", "resumed", "status", "seconds", "tasks", "phase", "left", "waiting", "statistics",
    "phases", "memory", "error", "next",
}  # fmt: skip


def left_in(folder: Path) -> dict[str, Any]:
    """The report of a run that is not finished."""
    (path,) = folder.glob("*.partial/*/report.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("stored", [False, True])
def test_a_finished_run_reports_what_it_did(stored: bool, tmp_path: Path) -> None:
    out = {"out": tmp_path / "cost.zarr"} if stored else {}
    run = og.cost_distance.submit(np.ones((20, 30)), [(4, 4)], tile=8, **out)
    run.result()
    report = run.report()
    assert report.keys() == ASKED | STATE
    assert json.loads(json.dumps(report)) == report
    assert (report["operation"], report["status"]) == ("cost_distance", "finished")
    assert (report["shape"], report["tile"]) == ([20, 30], 8)
    assert report["out"] == (str(tmp_path / "cost.zarr") if stored else None)
    assert report["tasks"]["done"] == report["tasks"]["total"] > 0
    assert report["error"] is report["next"] is None
    assert {"checks", "cost-distance", "cost-distance: last shards"} <= report["phases"].keys()
    assert sum(report["phases"].values()) <= report["seconds"] + 0.01  # each is rounded
    assert report["memory"]["client"] > 2**20
    assert report["memory"]["planned"]["client"] > 2**20
    if stored:
        files = [path for path in (tmp_path / "cost.zarr").rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files if path.name != "report.json")
        assert report["bytes"] == pytest.approx(size, abs=100)  # publishing edits the metadata
        left = json.loads((tmp_path / "cost.zarr" / "report.json").read_text())
        same = ASKED | {"status", "statistics", "resumed", "error", "next", "begun"}
        assert {name: left[name] for name in same} == {name: report[name] for name in same}
        assert left["memory"]["planned"] == report["memory"]["planned"]
        assert {"checks", "cost-distance", "publishing"} <= left["phases"].keys()
    assert report["seconds"] > 0
    assert report["versions"]["orograph"] == og.__version__
    assert report["statistics"] == run.statistics() != {}
    assert not [path for path in tmp_path.iterdir() if path.name != "cost.zarr"]


def test_a_run_that_failed_leaves_its_report_until_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "flow.zarr"

    def fail(*arguments: object) -> None:
        begun = left_in(tmp_path)
        assert (begun["status"], begun["error"]) == ("running", None)
        raise ZeroDivisionError("in a tile")

    with monkeypatch.context() as change:
        change.setattr(Directions, "finish", fail)
        run = og.flow_direction.submit(np.eye(20), tile=8, out=out)
        with pytest.raises(og.RunError, match="ZeroDivisionError: in a tile"):
            run.result()
    left = left_in(tmp_path)
    assert left["error"]["type"] == "ZeroDivisionError"
    assert left["error"]["message"] == "in a tile"
    assert left["error"]["where"].startswith("in rows 0 to 19 and columns 0 to 19")
    assert left["status"] == run.report()["status"] == "failed"
    assert "resume=True" in left["next"]
    assert left["parameters"]["routing"]["directions"]["codes"] == "taudem"
    assert 0 < left["tasks"]["done"] <= left["tasks"]["total"]
    assert main(["status", str(out)]) == 0
    told = capsys.readouterr().out
    assert f"where: {left['error']['where']}" in told
    assert f"next: {left['next']}" in told
    again = og.flow_direction.submit(np.eye(20), tile=8, out=out, resume=True)
    again.result()
    assert again.report()["resumed"]
    assert [path.name for path in tmp_path.iterdir()] == ["flow.zarr"]
    assert main(["status", str(out)]) == 0
    assert "status: finished" in capsys.readouterr().out
    assert main(["status", str(tmp_path / "other.zarr")]) == 2
    assert "no run has left a report" in capsys.readouterr().err


def test_a_report_that_fails_does_not_replace_the_error_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    friction = np.ones((20, 20))
    friction[9, 9] = -1  # which only a task sees
    og.ingest(friction, tmp_path / "friction.zarr", tile=8)
    report = StoredSession._written_report

    def fail(session: StoredSession[Any], status: str) -> bytes:
        if status == "failed":
            raise KeyError("workers")  # as Dask's client of a scheduler that is gone
        return report(session, status)

    monkeypatch.setattr(StoredSession, "_written_report", fail)
    with pytest.raises(og.InputError, match=r"^friction: -1"):
        og.cost_distance(tmp_path / "friction.zarr", [(0, 0)], out=tmp_path / "cost.zarr")


def test_a_run_that_was_cancelled_says_so(tmp_path: Path) -> None:
    out = tmp_path / "flow.zarr"
    run = og.flow_direction.submit(np.random.default_rng(1).random((900, 900)), tile=16, out=out)
    run.cancel()
    with pytest.raises(og.Cancelled):
        run.result()
    assert run.report()["error"]["type"] == "Cancelled"
    assert "resume=True" in run.report()["next"]


def test_tasks_on_a_cluster_belong_to_a_span_of_the_operation(tmp_path: Path) -> None:
    local = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    with local as cluster, Client(cluster) as client:
        with span("mine"):
            og.fill_depressions(np.eye(20), tile=8, out=tmp_path / "a.zarr", client=client)
            og.hop_distance(np.eye(20), [(0, 0)], tile=8, out=tmp_path / "b.zarr", client=client)
        spans = cluster.scheduler.extensions["spans"].spans.values()
        found = {each.name for each in spans if each.groups}
    assert found == {("mine", "orograph.fill_depressions"), ("mine", "orograph.hop_distance")}


def test_a_run_leaves_no_metadata_in_the_scheduler(tmp_path: Path) -> None:
    with (
        LocalCluster(
            n_workers=1, processes=False, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        og.hop_distance(np.eye(20), [(0, 0)], tile=8, out=tmp_path / "a.zarr", client=client)
        kept = {*cluster.scheduler.task_metadata} - {"cluster-manager-info"}  # of Dask itself
        assert kept == set()


def test_a_client_that_has_lost_its_scheduler_knows_no_workers() -> None:
    lost: Any = SimpleNamespace(scheduler_info=lambda n_workers: {})  # as Dask's then answers
    assert threads_of_workers(lost) == 0
    assert memory_of_worker(lost) == memory_of_worker(None)


def test_the_report_of_a_run_on_a_cluster_names_the_worker_that_failed(tmp_path: Path) -> None:
    friction = np.ones((40, 40))
    friction[25, 30] = -1.0
    og.ingest(friction, tmp_path / "friction.zarr", tile=8, shard=8)
    with (
        LocalCluster(
            n_workers=1, processes=False, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        run = og.cost_distance.submit(
            tmp_path / "friction.zarr", [(4, 4)], out=tmp_path / "cost.zarr", client=client
        )
        with pytest.raises(og.InputError) as raised:
            run.result()
        (address,) = client.scheduler_info(n_workers=-1)["workers"]
        report = run.report()
    assert report["error"]["where"] == (
        f"in rows 24 to 31 and columns 24 to 31, on the worker {address}"
    )
    assert report["error"]["where"] in raised.value.__notes__
    assert report["memory"]["planned"]["worker"] > 2**20


def test_progress_tells_the_phase_the_rate_and_the_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter([0.0, 0.0, 10.0, 20.0, 30.0])
    run = Run(lambda: None, lambda: None, Event(), None)
    run.result()
    latest = iter([Progress(2, 10), Progress(6, 10)])
    monkeypatch.setattr(run, "_ended", Event())
    monkeypatch.setattr(run, "_now", lambda: next(latest))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    run._record.begin("front")
    assert str(run.progress()) == "front: 2 of 10 tasks"
    assert str(run.progress()) == "front: 6 of 10 tasks, 0.4 a second, about 10 s left"
