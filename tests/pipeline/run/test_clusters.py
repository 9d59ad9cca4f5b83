"""Starting a cluster: what is refused, where it listens, and scripts that workers would run."""

from __future__ import annotations

import gc
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import dask
import numpy as np
import psutil
import pytest
from distributed import LocalCluster
from distributed.scheduler import TaskGroup
from distributed.utils import LoopRunner

import orograph as og
from orograph.cli.main import main
from orograph.run.cluster import clusters


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "2"])
def test_a_number_of_workers_that_is_none_is_refused(workers: object) -> None:
    with pytest.raises(og.InputError, match=r"n_workers: .*whole number, 1 to 1024"):
        og.cluster(workers)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["foo", "workers"])
def test_unknown_options_are_refused(option: str) -> None:
    with pytest.raises(og.InputError, match=f"{option}: no option of LocalCluster or its workers"):
        og.cluster(1, **{option: 1})


@pytest.mark.parametrize("workers", ["0", "-1"])
def test_workers_below_one_are_refused_by_the_shell(
    workers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    og.ingest(np.ones((3, 3)), tmp_path / "a.zarr")
    made = main(["mst", str(tmp_path / "a.zarr"), str(tmp_path / "b.zarr"), "--workers", workers])
    assert made == 2
    assert f"n_workers: {workers}; it must be" in capsys.readouterr().err


def test_an_idle_worker_soon_takes_work_from_others() -> None:
    with og.cluster(1, processes=False, dashboard_address=None) as client:
        scheduler = client.cluster.scheduler  # type: ignore[union-attr]
        assert scheduler.periodic_callbacks["stealing"].callback_time == 100


def test_processes_seldom_look_at_themselves() -> None:
    def ticks(dask_worker: Any) -> tuple[float, float]:
        callbacks = dask_worker.periodic_callbacks
        return callbacks["tick"].callback_time, callbacks["profile"].callback_time

    with (
        dask.config.set({"distributed.worker.profile.enabled": True}),
        og.cluster(n_workers=1, dashboard_address=None) as client,
    ):
        assert list(client.run(ticks).values()) == [(500, 100)]
        scheduler = client.cluster.scheduler  # type: ignore[union-attr]
        assert scheduler.periodic_callbacks["tick"].callback_time == 500


def test_a_cluster_forgets_the_groups_of_tasks_that_are_done() -> None:
    """All but those of the last hundred computations, which Dask shows."""
    with og.cluster(1, processes=False, dashboard_address=None) as client:
        for number in range(250):
            client.submit(int, 3, key=(f"name-{number}", 0)).result()
        while client.cluster.scheduler.tasks:  # type: ignore[union-attr]
            time.sleep(0.001)
        gc.collect()
        # by their types: the class of a weak reference whose object has gone cannot be asked for
        kept = [one for one in gc.get_objects() if type(one) is TaskGroup]
        assert len({group.name for group in kept if group.name.startswith("name-")}) <= 110


def test_nothing_listens_beyond_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    class Started(Exception):
        pass

    class Cluster(LocalCluster):
        def __init__(self, **options: object) -> None:
            asked.update(options)
            raise Started

    for gpu in (None, "no GPU"):
        asked.clear()
        monkeypatch.setattr(clusters, "missing_gpu", lambda found=gpu: found)
        monkeypatch.setattr(clusters, "_gpu_threads", lambda n_workers: 4)
        monkeypatch.setitem(sys.modules, "dask_cuda", SimpleNamespace(LocalCUDACluster=Cluster))
        monkeypatch.setattr("distributed.LocalCluster", Cluster)
        with pytest.raises(Started):
            og.cluster(1)
        assert asked["dashboard_address"] == "127.0.0.1:8787"
        with pytest.raises(Started):
            og.cluster(1, dashboard_address=":8787")
        assert asked["dashboard_address"] == ":8787"


def test_a_second_cluster_says_nothing_of_a_port_that_nobody_asked_for() -> None:
    own: dict[str, Any] = {"processes": False, "memory_limit": "1GiB"}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", r"\s*Port \d+ is already in use")
        with og.cluster(1, **own) as one, og.cluster(1, **own) as other:
            assert one.dashboard_link != other.dashboard_link
            taken = one.dashboard_link.split("/")[2]
        with (
            og.cluster(1, dashboard_address=taken, **own),
            pytest.warns(UserWarning, match="is already in use"),
            og.cluster(1, dashboard_address=taken, **own),
        ):
            pass


def test_a_cluster_listens_on_the_loopback_address() -> None:
    with og.cluster(n_workers=1, memory_limit="1GiB") as client:
        assert client.dashboard_link.startswith("http://127.0.0.1:")
        here = psutil.Process()
        heard = {
            connection.laddr.ip
            for process in [here, *here.children(recursive=True)]
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
    assert heard == {"127.0.0.1"}


def test_a_closed_client_may_be_collected_where_dask_holds_its_lock() -> None:
    client = og.cluster(n_workers=1, memory_limit="1GiB", dashboard_address=None)
    client.close()
    collected = threading.Thread(target=client.__del__, daemon=True)
    with LoopRunner._lock:
        collected.start()
        collected.join(timeout=60)
        assert not collected.is_alive()


@pytest.mark.parametrize("also_the_next", [False, True])
def test_a_worker_that_dask_gives_up_is_replaced(also_the_next: bool) -> None:
    """As one that is killed again while it starts."""
    with og.cluster(1, dashboard_address=None) as client:
        workers: Any = client.cluster.workers  # type: ignore[union-attr]
        (first,) = client.run(os.getpid).values()
        with dask.config.set({"distributed.deploy.lost-worker-timeout": "1ms"}):
            os.kill(first, signal.SIGKILL)
            while client.scheduler_info()["workers"]:
                time.sleep(0.001)
            while workers:
                time.sleep(0.001)
        while not workers:
            time.sleep(0.001)
        if also_the_next:
            (nanny,) = workers.values()
            client.cluster.loop.add_callback(nanny.close)  # type: ignore[union-attr]
            while nanny in workers.values():
                time.sleep(0.001)
        client.wait_for_workers(1, timeout=60)
        assert client.submit(os.getpid).result(timeout=60) != first


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which Dask-CUDA finds two GPUs."""

    class Cluster(LocalCluster):
        def __init__(self, CUDA_VISIBLE_DEVICES: object = None, **options: object) -> None:
            raise ValueError(f"started with {options['threads_per_worker']} threads a worker")

    monkeypatch.setattr(clusters, "missing_gpu", lambda: None)
    utils = SimpleNamespace(
        cuda_visible_devices=lambda first: "0,1",
        get_n_gpus=lambda: 2,
        get_device_total_memory=lambda: 24 * 2**30,
    )
    monkeypatch.setitem(sys.modules, "dask_cuda", SimpleNamespace(LocalCUDACluster=Cluster))
    monkeypatch.setitem(sys.modules, "dask_cuda.utils", utils)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("workers", "options", "most"),
    [(9, {"dashboard_address": None}, 2), (2, {"CUDA_VISIBLE_DEVICES": "1"}, 1)],
)
def test_more_workers_than_gpus_are_refused(
    workers: int, options: dict[str, Any], most: int
) -> None:
    with pytest.raises(og.InputError, match=f"^n_workers: {workers}; .* pass {most} or fewer"):
        og.cluster(workers, **options)
    with pytest.raises(og.InputError, match="started"):
        og.cluster(most, **options)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("workers", "cores", "threads"),
    [(None, 2, 4), (None, 16, 8), (1, 11, 11), (1, 64, 12), (2, 64, 12)],
)
def test_threads_of_gpu_workers_follow_from_cores_and_memory(
    workers: int | None, cores: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "cores", lambda: cores)
    with pytest.raises(og.InputError, match=f"started with {threads} threads"):
        og.cluster(workers, dashboard_address=None)


UNGUARDED = """
import orograph as og

def start():
    return og.cluster(n_workers=1, dashboard_address=None)

print("begun")
"""
LOOKED_AT = 'if __name__ != "there":\n    '


def run(script: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def test_a_script_that_workers_would_run_ends_with_a_sentence(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED + "start()\n")
    ended = run(script)
    assert ended.returncode == 1
    assert ended.stdout == "begun\n"  # by no worker
    last = ended.stderr.splitlines()[-1]
    assert f"{script}: line 8: a worker runs the script" in last
    assert 'below `if __name__ == "__main__":`' in last


@pytest.mark.parametrize(
    ("text", "guarded"),
    [
        ("for _ in range(1):\n    if __name__ == '__main__':\n        start()\n", True),
        ("try:\n    if __name__ == '__main__':\n        start()\nfinally:\n    pass\n", True),
        ("start() if __name__ == '__main__' else None\n", True),
        ("def main():\n    if __name__ == '__main__':\n        pass\nstart()\n", False),
        ("print(__name__)\nstart()\n", False),
    ],
    ids=["in a loop", "in try", "an expression", "in a function that is not called", "no check"],
)
def test_a_check_of_the_name_is_found_where_it_stands(
    tmp_path: Path, text: str, guarded: bool
) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)
    line = 1 + text[: text.index("start()")].count("\n")
    assert clusters._guarded(str(script), line) == guarded


def test_workers_that_run_the_script_all_the_same_end_with_a_sentence(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED + LOOKED_AT + "start()\n")
    ended = run(script)
    assert ended.returncode == 1
    assert "RunError: a worker runs the script that starts it" in ended.stderr
    assert "RunError: the cluster did not start" in ended.stderr.splitlines()[-1]


def test_no_cluster_of_gpus_is_made_of_such_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cluster(LocalCluster):
        def __init__(self, **options: object) -> None:
            raise AssertionError("started")

    monkeypatch.setattr(clusters, "missing_gpu", lambda: None)
    monkeypatch.setattr(clusters, "_gpu_threads", lambda n_workers: 4)
    monkeypatch.setitem(sys.modules, "dask_cuda", SimpleNamespace(LocalCUDACluster=Cluster))
    script = tmp_path / "script.py"
    module = ModuleType("__main__")
    module.__file__ = str(script)
    monkeypatch.setitem(sys.modules, "__main__", module)
    script.write_text(UNGUARDED + "start()\n")
    with pytest.raises(og.RunError, match="line 8: a worker runs the script"):
        runpy.run_path(str(script))
    script.write_text(UNGUARDED + LOOKED_AT + "start()\n")
    with pytest.raises(AssertionError, match="started"):
        runpy.run_path(str(script))


def test_a_cluster_works_without_bokeh(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What needs bokeh is not imported, and whoever asks for a dashboard learns how to get one."""
    monkeypatch.setitem(sys.modules, "bokeh", None)
    cells = np.arange(400.0).reshape(20, 20)
    with og.cluster(n_workers=1, memory_limit=0, processes=False) as client:
        assert client.dashboard_link is None
        run = og.peaks.submit(cells, client=client, tile=8)
        assert run.dashboard_link is None
        assert run.result().sizes["peak"] == 1
    with pytest.raises(og.InputError, match=r"dashboard_address: .*'orograph\[dashboard\]'"):
        og.cluster(n_workers=1, dashboard_address=":0")
    og.ingest(cells, tmp_path / "dem.zarr", tile=8)
    words = ["peaks", str(tmp_path / "dem.zarr"), str(tmp_path / "p.csv"), "--workers", "1"]
    with og.config.set(progress=True):
        assert main(words) == 0
    assert "dashboard: none, as it needs bokeh: pip install" in capsys.readouterr().err
    assert main([*words, "--overwrite"]) == 0
    assert "dashboard" not in capsys.readouterr().err  # of what a log keeps
