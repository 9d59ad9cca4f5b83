"""Reports of runs: what was asked for, how far it is, what went wrong and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster, span

import orograph as og
from orograph.flow.directions import Directions

ASKED = {
    "operation", "inputs", "parameters", "shape", "tile", "shard", "out", "workers", "backend",
    "versions",
}  # fmt: skip
STATE = {"begun", "resumed", "status", "seconds", "tasks", "waiting", "statistics", "error", "next"}


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
    assert report["seconds"] > 0
    assert report["versions"]["orograph"] == og.__version__
    assert report["statistics"] == run.statistics() != {}
    assert not [path for path in tmp_path.iterdir() if path.name != "cost.zarr"]


def test_a_run_that_failed_leaves_its_report_until_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "flow.zarr"

    def fail(*arguments: object) -> None:
        begun = left_in(tmp_path)
        assert (begun["status"], begun["error"]) == ("running", None)
        raise ZeroDivisionError("in a tile")

    with monkeypatch.context() as change:
        change.setattr(Directions, "finish", fail)
        run = og.flow_direction.submit(np.eye(20), tile=8, out=out)
        with pytest.raises(ZeroDivisionError):
            run.result()
    left = left_in(tmp_path)
    assert left["error"] == {"type": "ZeroDivisionError", "message": "in a tile"}
    assert left["status"] == run.report()["status"] == "failed"
    assert "resume=True" in left["next"]
    assert left["parameters"]["method"] == "d8"
    again = og.flow_direction.submit(np.eye(20), tile=8, out=out, resume=True)
    again.result()
    assert again.report()["resumed"]
    assert [path.name for path in tmp_path.iterdir()] == ["flow.zarr"]


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
