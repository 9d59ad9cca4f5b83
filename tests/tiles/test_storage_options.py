"""Options of object stores: they reach every request, and no one reads them anywhere."""

from __future__ import annotations

import ast
import io
import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from object_server import CREDENTIALS, S3Server, forget_connections
from scipy.sparse import coo_array

import orograph as og
from orograph.cli.main import main
from orograph.cli.parser import without_secrets
from orograph.run.options import RunSpec
from orograph.tiles.errors import InputError
from orograph.tiles.object_options import (
    AZURE,
    CLIENT,
    GOOGLE,
    S3,
    check_storage_options,
    use_storage_options,
)
from orograph.tiles.object_storage import ObjectStorage
from orograph.tiles.open_storage import open_storage

GRID = np.random.default_rng(6).integers(1, 50, (40, 30)).astype(np.float32)
OPTIONS: dict[str, Any] = {"tile": 8, "shard": 16}
LEFT_OUT_OF_S3 = {"bucket", "conditional_put", "copy_if_not_exists", "aws_endpoint_url_s3"}
KEY, SECRET = "key-of-this-test", "secret-of-this-test"


@pytest.fixture
def private(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Any]]:
    """Address of an empty bucket, and options without which no request is answered."""
    for name in (*CREDENTIALS, "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    options = {
        "region": "us-east-1",
        "endpoint": s3_server.url,
        "access_key_id": KEY,
        "secret_access_key": SECRET,
    }
    with forget_connections():
        bucket = s3_server.make_bucket()
        s3_server.access_key_id = KEY
        try:
            yield bucket, options
        finally:
            s3_server.access_key_id = None


@pytest.fixture
def client() -> Iterator[Client]:
    """A client of one worker, a process of its own, which has no credentials."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as found,
    ):
        yield found


def contents(bucket: str, options: Any) -> bytes:
    """All that a bucket holds, keys and objects."""
    with use_storage_options(options):
        place = ObjectStorage(f"{bucket}/x.partial")  # keys below it are those of the bucket
    paths = [meta["path"] for meta in place._list("")]
    assert paths
    return b"".join([path.encode() + place._fetch(path)[0] for path in paths])


def test_they_reach_workers_and_are_read_nowhere(
    private: tuple[str, Any], client: Client, caplog: pytest.LogCaptureFixture, s3_server: S3Server
) -> None:
    bucket, options = private
    caplog.set_level(logging.DEBUG)
    texts: list[Any] = []
    og.ingest(GRID, f"{bucket}/dem.zarr", storage_options=options, **OPTIONS)
    run = og.minimum_spanning_forest.submit(
        f"{bucket}/dem.zarr", out=f"{bucket}/out.zarr", client=client, storage_options=options
    )
    result = run.result()
    expected = og.minimum_spanning_forest(GRID, **OPTIONS)
    np.testing.assert_array_equal(result["edges"], expected["edges"])
    opened = og.open(f"{bucket}/dem.zarr", storage_options=options)
    # what was opened keeps them, also as an input and on workers
    out = f"{bucket}/cost.zarr"
    og.cost_distance(
        opened["elevation"], [(3, 4)], out=out, client=client, storage_options=options, **OPTIONS
    )
    raster = og.open(out, storage_options=options)
    costs = client.submit(lambda array: array.compute(scheduler="sync"), raster["cost"].data)
    expected = og.cost_distance(GRID, [(3, 4)], **OPTIONS)
    np.testing.assert_array_equal(costs.result(), expected["cost"])
    in_memory = og.cost_distance(opened["elevation"], [(3, 4)], client=client, **OPTIONS)
    np.testing.assert_array_equal(in_memory["cost"], expected["cost"])
    texts += [run, run.report(), run._repr_html_(), result, opened, raster.encoding]
    texts += [result["edges"].encoding, result["edges"].data.dask, opened["elevation"].encoding]
    spec = RunSpec(out=f"{bucket}/a.zarr", storage_options=options)
    texts += [spec, spec.out, og.verify(f"{bucket}/out.zarr", storage_options=options)]
    with pytest.raises(og.StoreExistsError) as failed:
        og.minimum_spanning_forest(GRID, out=f"{bucket}/out.zarr", storage_options=options)
    texts.append(failed.value)
    s3_server.access_key_id = "another"
    with pytest.raises(InputError, match="cannot be read") as denied:
        og.peaks(f"{bucket}/dem.zarr", storage_options=options)
    texts.append(denied.value)
    s3_server.access_key_id = KEY
    texts += [client.get_worker_logs(), client.get_scheduler_logs(), caplog.text]
    said = "\n".join(f"{text!r} {text!s}" for text in texts)
    assert "dem.zarr" in said
    kept = contents(bucket, options)
    for value in (KEY, SECRET):
        assert value not in said
        assert value.encode() not in kept


def test_a_worker_that_fails_logs_none(private: tuple[str, Any], client: Client) -> None:
    bucket, options = private
    friction = GRID.copy()
    friction[39, 29] = -1  # which only a task sees
    og.ingest(friction, f"{bucket}/dem.zarr", storage_options=options, **OPTIONS)
    out = f"{bucket}/out.zarr"
    run = og.cost_distance.submit(
        f"{bucket}/dem.zarr", [(0, 0)], out=out, client=client, storage_options=options
    )
    with pytest.raises(InputError, match="friction") as failed:
        run.result()
    logs = repr([client.get_worker_logs(), client.get_scheduler_logs()])
    for text in (logs, str(failed.value), repr(run.report()), repr(run)):
        assert KEY not in text
        assert SECRET not in text


def test_a_detached_run_has_them(private: tuple[str, Any], client: Client) -> None:
    bucket, options = private
    og.ingest(GRID, f"{bucket}/dem.zarr", storage_options=options, **OPTIONS)
    out = f"{bucket}/out.zarr"
    run = og.minimum_spanning_forest.submit(
        f"{bucket}/dem.zarr", out=out, client=client, storage_options=options, detach=True
    )
    expected = og.minimum_spanning_forest(GRID, **OPTIONS)["edges"]
    np.testing.assert_array_equal(run.result()["edges"], expected)
    np.testing.assert_array_equal(og.attach(out, client=client).result()["edges"], expected)
    said = repr([og.runs(client), run.report(), client.get_worker_logs()])
    assert KEY not in said
    assert SECRET not in said


def test_an_index_and_a_graph_have_them(private: tuple[str, Any]) -> None:
    bucket, options = private
    index = og.DistanceIndex.build(
        GRID, f"{bucket}/index", block=8, levels=0, storage_options=options
    )
    again = og.DistanceIndex.open(f"{bucket}/index", storage_options=options)
    index.update((3, 4, 6, 7), GRID[3:9, 4:11] + 5)
    points = [(2, 3), (20, 30)]
    expected = GRID.copy()
    expected[3:9, 4:11] += 5
    found = og.DistanceIndex.open(f"{bucket}/index", storage_options=options)
    lengths = og.cost_distance(expected, points[:1])["cost"].values[30, 20]
    np.testing.assert_allclose(found.distance_matrix(points).values[0, 1], lengths)
    assert again.shape == GRID.shape
    edges = coo_array(([1.0, 2.0], ([0, 1], [1, 2])), (3, 3))
    og.read_graph(edges, directed=True, store=f"{bucket}/graph", storage_options=options)
    graph = og.read_graph(f"{bucket}/graph", storage_options=options)
    out = f"{bucket}/paths"
    paths = og.shortest_paths(graph, [0], out=out, storage_options=options)
    assert paths["cost"].values.tolist() == [[0.0, 1.0, 3.0]]


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda a, **o: og.open(a, **o), id="open"),
        pytest.param(lambda a, **o: og.peaks(a, **o), id="an input"),
        pytest.param(lambda a, **o: og.peaks.plan(a, **o), id="a plan"),
        pytest.param(lambda a, **o: og.verify(a, **o), id="verify"),
    ],
)
def test_without_them_nothing_is_answered(
    private: tuple[str, Any], call: Callable[..., Any]
) -> None:
    bucket, options = private
    og.ingest(GRID, f"{bucket}/dem.zarr", storage_options=options, **OPTIONS)
    call(f"{bucket}/dem.zarr", storage_options=options)
    with pytest.raises((InputError, PermissionError), match=r"[dD]enied|cannot be read"):
        call(
            f"{bucket}/dem.zarr",
            storage_options=options | {"access_key_id": "another", "secret_access_key": "x"},
        )


def test_what_is_pickled_has_them_and_what_comes_after_a_call_has_none(
    private: tuple[str, Any],
) -> None:
    bucket, options = private
    with use_storage_options(options):
        storage = open_storage(f"{bucket}/dem.zarr")
        with use_storage_options(None):
            assert open_storage(f"{bucket}/dem.zarr") == storage
    child = pickle.loads(pickle.dumps(storage)).child("a").beside(".b")
    assert child.options == check_storage_options(options)
    assert open_storage(f"{bucket}/dem.zarr").options.items == ()
    assert open_storage(f"{bucket}/dem.zarr") != storage


def test_a_shell_has_them(private: tuple[str, Any], tmp_path: Path) -> None:
    bucket, options = private
    og.to_geotiff(GRID, tmp_path / "dem.tif")
    given = [w for name, value in options.items() for w in ("--storage-option", f"{name}={value}")]
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        dem, out = f"{bucket}/dem.zarr", f"{bucket}/out.zarr"
        assert main(["ingest", str(tmp_path / "dem.tif"), dem, *given]) == 0
        assert main(["mst", dem, out, "--workers", "1", *given]) == 0
        assert main(["verify", dem, out, *given]) == 0
        assert main(["mst", dem, out, *given]) == 2
    found = og.open(out, storage_options=options)["edges"]
    np.testing.assert_array_equal(found, og.minimum_spanning_forest(GRID)["edges"])
    assert "whole" in said.getvalue()
    assert KEY not in said.getvalue()
    assert SECRET not in said.getvalue()


def test_how_to_resume_is_told_without_secrets(
    private: tuple[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket, options = private
    og.ingest(GRID, f"{bucket}/dem.zarr", storage_options=options, **OPTIONS)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("orograph.operations.operation.launch", interrupt)
    words = ["mst", f"{bucket}/dem.zarr", f"{bucket}/out.zarr"]
    given = [f"--storage-option={name}={value}" for name, value in options.items()]
    assert main([*words, *given]) == 130
    said = capsys.readouterr().err
    assert "--storage-option=region=us-east-1" in said
    assert "--storage-option=secret_access_key=... --resume" in said
    assert KEY not in said
    assert SECRET not in said
    shown = without_secrets([*words, "--storage-option", f"session_token={SECRET}"])
    assert shown == [*words, "--storage-option", "session_token=..."]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("AWS_REGION", "region"),
        ("aws_endpoint_url", "endpoint"),
        ("google_service_account", "service_account"),
        ("azure_client_id", "client_id"),
        ("azure_storage_account_name", "account_name"),
        ("account_name", "account_name"),
    ],
)
def test_names_of_environments_are_those_of_options(name: str, plain: str) -> None:
    assert check_storage_options({name: "x"}) == check_storage_options({plain: "x"})


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1.5 min", 90), ("5m", 300), ("1h", 3600)]
)
def test_requests_are_repeated_for_a_time(text: str, seconds: float) -> None:
    retries = check_storage_options({"retry_timeout": text}).of_retries()
    assert retries["retry_timeout"] == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"acces_key_id": SECRET}, "'acces_key_id' .*did you mean 'access_key_id'"),
        ({"zebra": SECRET}, "'zebra' is not an option"),
        ({"skip_signature": SECRET}, "'skip_signature' is on or off"),
        ({"retry_timeout": SECRET}, "'retry_timeout' is a duration; write '90s'"),
        ({"retry_timeout": 300}, "'retry_timeout' is a duration; write '90s'"),
        ({"secret_access_key": SECRET.encode()}, "type bytes"),
        ({SECRET.encode(): "x"}, "names are text"),
    ],
)
def test_what_is_wrong_with_one_is_said_without_its_value(
    options: Any, says: str, tmp_path: Path
) -> None:
    for call in (
        lambda: og.open(tmp_path / "a.zarr", storage_options=options),
        lambda: og.peaks(GRID, out=tmp_path / "a.zarr", storage_options=options),
        lambda: og.peaks.plan(GRID, storage_options=options),
    ):
        with pytest.raises(InputError, match=f"^storage_options: .*{says}") as refused:
            call()
        assert SECRET not in str(refused.value)
        assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_what_a_server_says_is_told_without_secrets(
    private: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, options = private
    told = f"<Code>No</Code><Message>no {KEY} with {SECRET} here</Message>".encode()
    monkeypatch.setattr("object_server._DENIED", told)
    options["access_key_id"], options["secret_access_key"] = SECRET, f"{KEY}-not"
    with pytest.raises(InputError, match=r"no .* with \*\*\* here") as refused:
        og.peaks(f"{bucket}/dem.zarr", storage_options=options)
    assert SECRET not in str(refused.value)


def test_a_key_that_obstore_cannot_use_is_not_repeated() -> None:
    with (
        forget_connections(),
        pytest.raises(InputError, match="az://container: ") as refused,
    ):
        og.peaks(
            "az://container/a.zarr",
            storage_options={"account_name": "me", "account_key": f"!!{SECRET}"},
        )
    assert SECRET not in str(refused.value)


def test_a_file_that_gdal_reads_has_its_own() -> None:
    with pytest.raises(InputError, match=r"source: .*GDAL reads a file with the credentials of"):
        og.ingest("s3://bucket/a.tif", "a.zarr", storage_options={"region": "us-east-1"})


@pytest.mark.parametrize(
    ("stub", "kind", "listed", "without"),
    [
        ("_aws", "S3Config", S3, LEFT_OUT_OF_S3),
        ("_gcs", "GCSConfig", GOOGLE, {"bucket"}),
        ("_azure", "AzureConfig", AZURE, {"container_name"}),
        ("_client", "ClientConfig", CLIENT, {"default_content_type", "default_headers"}),
    ],
)
def test_they_are_those_of_obstore(
    stub: str, kind: str, listed: dict[str, type], without: set[str]
) -> None:
    (folder,) = find_spec("obstore").submodule_search_locations  # type: ignore[union-attr]
    tree = ast.parse(Path(folder, "_store", f"{stub}.pyi").read_text(encoding="utf-8"))
    (found,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == kind)
    stated = {n.target.id: ast.unparse(n.annotation) for n in found.body if hasattr(n, "target")}  # type: ignore[attr-defined]
    assert listed.keys() == stated.keys() - without
    for name, option in listed.items():
        assert (option is bool) == stated[name].startswith("bool"), name
