"""The examples for SLURM run on a SLURM of one node, whose daemons listen on loopback alone."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import orograph as og

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "srun")
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
MinJobAge=3600
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={host} NodeAddr=127.0.0.1 NodeHostname={host} CPUs=8 RealMemory=32000 State=UNKNOWN
PartitionName=cpu Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Slurm:
    """Commands of a SLURM of one node."""

    def __init__(self, folder: Path) -> None:
        self.environment = {
            **os.environ,
            "SLURM_CONF": f"{folder}/slurm.conf",
            "ORO_BIN": os.path.dirname(sys.executable),
            "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
            "ORO_INTERFACE": "lo",
        }

    def call(self, *command: object, cwd: Path | None = None, **environment: str) -> str:
        done = subprocess.run(
            [str(part) for part in command],
            env={**self.environment, **environment},
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def state(self, job: str) -> str:
        """Return the state of a job, such as COMPLETED."""
        shown = self.call("scontrol", "--oneliner", "show", "job", job)
        return shown.split("JobState=")[1].split()[0]

    def wait_for(self, job: str, *states: str) -> str:
        while (state := self.state(job)) not in states:
            time.sleep(0.2)
        return state


ENDED = "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"SLURM absent: no {', '.join(missing)}; install slurm-wlm")
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    text = CONFIGURATION.format(
        host=socket.gethostname().split(".")[0],
        ports=free_ports(2),
        user=getpass.getuser(),
        folder=folder,
    )
    (folder / "slurm.conf").write_text(text)
    node = Slurm(folder)
    daemons = [
        subprocess.Popen([name, "-D"], env=node.environment, stderr=subprocess.DEVNULL)
        for name in ("slurmctld", "slurmd")
    ]
    try:
        shown = ""
        while "idle" not in shown:
            assert [daemon.poll() for daemon in daemons] == [None, None], "a daemon has ended"
            time.sleep(0.2)
            done = subprocess.run(
                ["sinfo", "--noheader", "--format=%t"],
                env=node.environment,
                capture_output=True,
                text=True,
                check=False,
            )
            shown = done.stdout
        yield node
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            daemon.wait()


@pytest.fixture
def elevation(tmp_path: Path) -> np.ndarray:
    heights = np.random.default_rng(3).random((96, 80), np.float32)
    og.ingest(heights, tmp_path / "dem.zarr", tile=16, shard=32)
    return heights


def same_forest(out: Path, elevation: np.ndarray) -> None:
    expected = og.minimum_spanning_forest(elevation, tile=16, shard=32)
    xr.testing.assert_identical(og.open(out).load(), expected)


def test_the_batch_script_makes_a_forest(
    slurm: Slurm, tmp_path: Path, elevation: np.ndarray
) -> None:
    command = ("mst", "dem.zarr", "forest.zarr", "--resume")
    job = slurm.call(
        *("sbatch", "--parsable", "--ntasks=3", "--mem-per-cpu=2G", "--output=job.log"),
        *(ROOT / "deploy/slurm.sh", *command),
        cwd=tmp_path,
    ).strip()
    state = slurm.wait_for(job, *ENDED)
    log = (tmp_path / "job.log").read_text()
    assert state == "COMPLETED", log
    assert log.count("Registered to") == 2, log  # as many workers as tasks but one
    assert "2.00 GiB" in log
    same_forest(tmp_path / "forest.zarr", elevation)
    assert not list(tmp_path.glob(".orograph-scheduler-*"))


@pytest.mark.long
def test_a_wrong_command_fails_the_job(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.call(
        *("sbatch", "--parsable", "--ntasks=2", "--mem-per-cpu=2G", "--output=job.log"),
        *(ROOT / "deploy/slurm.sh", "mst", "nothing.zarr", "forest.zarr"),
        cwd=tmp_path,
    ).strip()
    assert slurm.wait_for(job, *ENDED) == "FAILED"
    assert "orograph: elevation: " in (tmp_path / "job.log").read_text()


def test_a_job_whose_time_is_over_queues_itself_again(slurm: Slurm, tmp_path: Path) -> None:
    """With a command that waits to be terminated, and then ends with orograph's exit status."""
    command = tmp_path / "orograph"
    command.write_text(
        "#!/bin/bash\ntrap 'exit 143' TERM\ntouch begun\nwhile :; do sleep 0.1; done\n"
    )
    command.chmod(0o755)
    job = slurm.call(
        *("sbatch", "--parsable", "--ntasks=2", "--mem-per-cpu=2G", "--output=job.log"),
        *(ROOT / "deploy/slurm.sh", "mst", "dem.zarr", "forest.zarr", "--resume"),
        cwd=tmp_path,
        ORO_BIN=str(tmp_path),
    ).strip()
    while not (tmp_path / "begun").exists():
        assert slurm.state(job) in ("PENDING", "CONFIGURING", "RUNNING")
        time.sleep(0.2)
    # what --signal=B:TERM@120 does two minutes before the end
    slurm.call("scancel", "--batch", "--signal=TERM", job)
    slurm.wait_for(job, "PENDING", *ENDED)
    assert "Restarts=1" in slurm.call("scontrol", "show", "job", job)
    slurm.call("scancel", job)
    slurm.wait_for(job, "CANCELLED")


@pytest.mark.long
def test_workers_that_are_jobs_make_a_forest(
    slurm: Slurm, tmp_path: Path, elevation: np.ndarray
) -> None:
    for package in ("dask_jobqueue", "cryptography"):
        pytest.importorskip(package)
    said = slurm.call(
        *(sys.executable, ROOT / "deploy/slurm_jobqueue.py", "dem.zarr", "forest.zarr"),
        *("--jobs=2", "--workers=1", "--memory=2GiB", "--interface=lo"),
        cwd=tmp_path,
    )
    assert "tree_count" in said
    same_forest(tmp_path / "forest.zarr", elevation)
