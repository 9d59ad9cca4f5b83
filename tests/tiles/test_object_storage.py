"""Stores in object stores: the same bits as on disk, what the bucket holds, clear errors."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import Client
from object_server import S3Server
from scipy.sparse import coo_array
from watched_raster import Gate, WatchedRaster, wait_until

import orograph as og
from orograph.run.workspace import IDENTITY, Looked, is_whole
from orograph.tiles import object_storage
from orograph.tiles.convert.ingest import write_raster
from orograph.tiles.errors import InputError, RunError, StoreExistsError
from orograph.tiles.grid.window import Window
from orograph.tiles.local_storage import LocalStorage
from orograph.tiles.object_storage import TAIL_BYTES, ObjectStorage
from orograph.tiles.open_storage import open_storage
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.store.create import Layout
from orograph.tiles.store.lease import Lease
from orograph.tiles.store.publish import mark_complete, staged_store
from orograph.tiles.store.raster import StoreRaster
from orograph.tiles.store.shard import using
from orograph.tiles.store.sink import StoreSink

RNG = np.random.default_rng(3)
GRID = RNG.integers(1, 50, (45, 37)).astype(np.float32)
GRID[RNG.random(GRID.shape) < 0.1] = np.nan
OPTIONS: dict[str, Any] = {"tile": 8, "shard": 16}
SOURCES = [(20, 20), (3, 4)]


@pytest.fixture(params=["object_memory", "s3"])
def bucket(request: pytest.FixtureRequest) -> str:
    """Address of an empty bucket."""
    address: str = request.getfixturevalue(request.param)
    return address


def keys(storage: ObjectStorage) -> list[str]:
    """The keys of all objects in the bucket, as it holds them."""
    return [meta["path"] for meta in storage._list("")]


RUNS: dict[str, Callable[[Any, str], xr.Dataset]] = {
    "forest": lambda dem, out: og.minimum_spanning_forest(dem, out=out, **OPTIONS),
    "distance": lambda dem, out: og.cost_distance(dem, SOURCES, out=out, **OPTIONS),
    "components": lambda dem, out: og.connected_components(dem, out=out, **OPTIONS),
    "peaks": lambda dem, out: og.peaks(dem, out=out, **OPTIONS),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("run", RUNS)
def test_a_result_has_the_bits_of_that_on_disk(bucket: str, tmp_path: Path, run: str) -> None:
    found = []
    for place in (bucket, str(tmp_path)):
        og.ingest(GRID, f"{place}/dem.zarr", **OPTIONS)
        RUNS[run](f"{place}/dem.zarr", f"{place}/out.zarr")
        found.append(og.open(f"{place}/out.zarr").load())
    xr.testing.assert_identical(*found)
    for name in found[0].variables:
        assert found[0][name].values.tobytes() == found[1][name].values.tobytes()
    storage = ObjectStorage(f"{bucket}/out.zarr")
    assert og.verify(storage).ok
    versions = {key.split("out.zarr/")[-1].split("/")[0] for key in keys(storage)}
    assert len([version for version in versions if version.startswith("store-")]) == 1
    assert not [key for key in keys(storage) if ".partial" in key or ".lease" in key]


def test_an_index_and_a_graph_have_the_bits_of_those_on_disk(bucket: str, tmp_path: Path) -> None:
    friction = np.nan_to_num(GRID, nan=7)
    edges = coo_array(([1.0, 2.0, 3.0, 4.0], ([0, 1, 2, 3], [1, 2, 3, 0])), (4, 4))
    tables = []
    for place in (bucket, str(tmp_path)):
        index = og.DistanceIndex.build(friction, f"{place}/index", block=8, levels=0)
        before = index.distance_matrix(SOURCES).values
        index.update((3, 4, 6, 7), friction[3:9, 4:11] + 5)
        after = og.DistanceIndex.open(f"{place}/index").distance_matrix(SOURCES).values
        og.read_graph(edges, directed=True, store=f"{place}/graph")
        lengths = og.shortest_paths(og.read_graph(f"{place}/graph"), [0])
        tables.append([before, after, *(lengths[name].values for name in lengths)])
    for one, other in zip(*tables, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (tables[0][0] != tables[0][1]).any()


def test_a_store_is_written_where_it_stays_and_named_by_one_object(bucket: str) -> None:
    storage = ObjectStorage(f"{bucket}/dem.zarr")
    og.ingest(GRID, str(storage), **OPTIONS)
    first = storage._version(latest=True)
    group = json.loads(storage._fetch(storage._path("zarr.json"))[0])
    assert group["attributes"] == {"orograph_version": first}
    assert all(key.split("dem.zarr/")[1].startswith((first, "zarr.json")) for key in keys(storage))
    # what it names is a Zarr store for every program
    plain = xr.open_zarr(ObjectStorage(f"{storage}/{first}").zarr_store(), mask_and_scale=False)
    np.testing.assert_array_equal(plain["elevation"], GRID)
    with pytest.raises(StoreExistsError, match="overwrite=True"):
        og.ingest(GRID, str(storage), **OPTIONS)
    og.ingest(GRID + 1, str(storage), overwrite=True, **OPTIONS)
    second = storage._version(latest=True)
    assert second != first
    assert not [key for key in keys(storage) if first in key]
    np.testing.assert_array_equal(og.open(str(storage))["elevation"], GRID + 1)


def test_who_has_a_store_open_reads_what_replaced_it(bucket: str) -> None:
    address = f"{bucket}/dem.zarr"
    og.ingest(GRID, address, **OPTIONS)
    raster = pickle.loads(pickle.dumps(StoreRaster(address)))
    og.ingest(GRID + 1, address, overwrite=True, **OPTIONS)
    object_storage._versions[address] = f"store-{'0' * 32}"  # as it was in another process
    np.testing.assert_array_equal(raster.read(Window(0, 0, 45, 37)), GRID + 1)


def test_a_store_copied_to_a_bucket_is_read_and_replaced(bucket: str, tmp_path: Path) -> None:
    og.ingest(GRID, tmp_path / "dem.zarr", **OPTIONS)
    copy = ObjectStorage(f"{bucket}/dem.zarr")
    for key, _ in open_storage(tmp_path / "dem.zarr").objects():
        copy.put(key, open_storage(tmp_path / "dem.zarr").get(key))
    assert isinstance(open_raster(str(copy)), StoreRaster)
    np.testing.assert_array_equal(og.open(str(copy))["elevation"], GRID)
    og.ingest(GRID + 1, str(copy), overwrite=True, **OPTIONS)
    np.testing.assert_array_equal(og.open(str(copy))["elevation"], GRID + 1)
    version = copy._version(latest=True)
    assert {key.split("dem.zarr/")[1].split("/")[0] for key in keys(copy)} == {
        version,
        "zarr.json",
    }


def test_a_zarr_store_of_others_is_read(bucket: str) -> None:
    cells = np.nan_to_num(GRID, nan=3)
    storage = ObjectStorage(f"{bucket}/theirs.zarr")
    array = xr.DataArray(cells, dims=("y", "x"), name="z")
    array.to_dataset().to_zarr(storage.zarr_store(), zarr_format=3, consolidated=False)
    expected = og.minimum_spanning_forest(cells, **OPTIONS)
    found = og.minimum_spanning_forest(str(storage), **OPTIONS)
    np.testing.assert_array_equal(found["edges"], expected["edges"])


def test_a_large_object_is_read_from_one_version(bucket: str) -> None:
    place = ObjectStorage(f"{bucket}/place")
    content = np.arange(TAIL_BYTES, dtype=np.uint16).view(np.uint8)
    place.put("key", content)
    with place.open("key") as reader:
        np.testing.assert_array_equal(reader.range(3, 2000), content[3:2003])
        np.testing.assert_array_equal(reader.tail(100), content[-100:])
        np.testing.assert_array_equal(
            reader.range(TAIL_BYTES - 9, 20), content[TAIL_BYTES - 9 :][:20]
        )
        place.put("key", content[::-1].copy())
        np.testing.assert_array_equal(reader.tail(100), content[-100:])
        with pytest.raises(ValueError, match="replaced while it was read"):
            reader.range(3, 2000)


def test_a_second_writer_is_told_who_writes(bucket: str) -> None:
    with Lease(f"{bucket}/out.zarr"), pytest.raises(StoreExistsError, match="is being written by"):
        og.minimum_spanning_forest(GRID, out=f"{bucket}/out.zarr", **OPTIONS)
    og.minimum_spanning_forest(GRID, out=f"{bucket}/out.zarr", **OPTIONS)


def test_a_run_that_another_has_forestalled_leaves_its_place_as_it_was(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had looked before it got the lease, and nothing was there."""
    out = ObjectStorage(f"{bucket}/out.zarr")
    folder = out.beside(".partial")
    folder.claim()
    folder.put(IDENTITY, b"theirs")
    before = sorted(keys(out))
    monkeypatch.setattr("orograph.run.session.look_at", lambda *_: Looked(None, None, None))
    with pytest.raises(StoreExistsError, match="another run has begun to write"):
        og.minimum_spanning_forest(GRID, out=str(out), **OPTIONS)
    assert sorted(keys(out)) == before
    assert folder.get(IDENTITY) == b"theirs"


def test_of_two_commits_one_succeeds(bucket: str) -> None:
    target = ObjectStorage(f"{bucket}/out.zarr")
    one, two = (target.staging(target, letter * 32) for letter in "ab")
    for staged in (one, two):
        staged.put("zarr.json", str(staged).encode())
    look = target.last_commit
    committed = []

    def late() -> Any:
        """Let the other commit after this one has looked."""
        try:
            return look()
        finally:
            if not committed:
                committed.append(True)
                ObjectStorage(str(target)).commit(two)

    object.__setattr__(target, "last_commit", late)
    with pytest.raises(FileExistsError, match="committed there meanwhile"):
        target.commit(one, replace=True)
    assert ObjectStorage(str(target)).get("zarr.json") == str(two).encode()


def test_what_a_late_writer_puts_is_in_nobodys_way(bucket: str) -> None:
    target = ObjectStorage(f"{bucket}/dem.zarr")
    staged = target.staging(target, "0" * 32)
    staged.put("elevation/c/0/0", b"of a writer that was killed")
    assert not target.exists()
    og.ingest(GRID, str(target), **OPTIONS)
    staged.put("elevation/c/0/0", b"late")
    np.testing.assert_array_equal(og.open(str(target))["elevation"], GRID)
    og.ingest(GRID + 1, str(target), overwrite=True, **OPTIONS)
    assert not [key for key in keys(target) if staged.name in key]


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_the_commit_is_deleted_first(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a request of its own where those of one call may be answered in any order."""
    requests: list[list[str]] = []
    monkeypatch.setattr(ObjectStorage, "_delete", lambda self, paths: requests.append(paths))
    ObjectStorage(f"{scheme}://bucket/some")._delete_in_order(["a", "b", "first"], "first")
    expected = [["first", "a", "b"]] if scheme == "s3" else [["first"], ["a", "b"]]
    assert requests == expected


def test_a_missing_object_keeps_no_other_from_being_deleted(
    object_memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Google Cloud and Azure report missing objects, and may have left others then."""
    import obstore

    storage, delete = ObjectStorage(f"{object_memory}/some"), obstore.delete

    def report(store: Any, paths: str | list[str]) -> None:
        for path in [paths] if isinstance(paths, str) else paths:
            obstore.head(store, path)  # raises if there is none
            delete(store, path)

    for key in ("a", "b", "c"):
        storage.put(key, b"some")
    paths = [storage._path(key) for key in ("a", "missing", "b", "c")]
    monkeypatch.setattr(obstore, "delete", report)
    storage._delete(paths)
    storage._delete(paths[1:2])
    assert not keys(storage)


def test_a_store_that_ignores_conditions_is_refused(s3: str, s3_server: S3Server) -> None:
    s3_server.without_conditions = True
    try:
        with pytest.raises(InputError, match=r"ignores the conditions.*write to another"):
            og.ingest(GRID, f"{s3}/dem.zarr", **OPTIONS)
    finally:
        s3_server.without_conditions = False
    assert keys(ObjectStorage(f"{s3}/dem.zarr")) == []


@pytest.mark.parametrize(
    ("address", "says"),
    [
        pytest.param("s3://absent-bucket/a.zarr", "NoSuchBucket", id="no such bucket"),
        pytest.param("s3://absent-bucket", "names no place in a bucket", id="a bucket"),
        pytest.param("s3://", "names no place in a bucket", id="nothing"),
        pytest.param("s3://b//a.zarr", "names no place in a bucket", id="an empty name"),
        pytest.param("s3://b/../a.zarr", "names no place in a bucket", id="a parent"),
        pytest.param("az://container/a.zarr", "ccount", id="no account"),
        pytest.param("memory://a.partial", "have such names", id="a name of ours"),
        pytest.param(f"memory://{'x' * 800}", "at most 700", id="a long name"),
    ],
)
@pytest.mark.usefixtures("s3", "object_memory")
def test_an_address_that_cannot_be_used_is_refused(address: str, says: str) -> None:
    for write in (
        lambda: og.ingest(GRID, address, **OPTIONS),
        lambda: og.minimum_spanning_forest(GRID, out=address, **OPTIONS),
    ):
        with pytest.raises(InputError, match=says):
            write()


@pytest.fixture(scope="module")
def threads_or_cluster() -> Iterator[dict[str, Client | None]]:
    """No client, and one of a worker in this process, which sees its ``memory://``."""
    with og.cluster(1, processes=False, dashboard_address=None) as client:
        yield {"threads": None, "cluster": client}


@pytest.mark.diagonal
@pytest.mark.parametrize("sources", ["points", "raster"])
@pytest.mark.parametrize("where", ["threads", "cluster"])
@pytest.mark.parametrize("place", ["tmp_path", "object_memory", "s3"])
@pytest.mark.parametrize("kind", ["array", "dask", "store"])
def test_any_input_gives_the_same_bits_in_any_place(
    kind: str,
    place: str,
    where: str,
    sources: str,
    threads_or_cluster: dict[str, Client | None],
    request: pytest.FixtureRequest,
) -> None:
    folder = request.getfixturevalue(place)
    marks = np.zeros(GRID.shape, np.uint8)
    for number, (x, y) in enumerate(SOURCES, 1):
        marks[y, x] = number
    inputs: list[Any] = [GRID, marks if sources == "raster" else SOURCES]
    expected = og.cost_distance(*inputs, **OPTIONS)
    for number, cells in enumerate(inputs[: 1 + (sources == "raster")]):
        if kind == "dask":
            inputs[number] = da.from_array(cells, 4) + 0
        if kind == "store":
            og.ingest(cells, f"{folder}/input-{number}.zarr", **OPTIONS)
            inputs[number] = f"{folder}/input-{number}.zarr"
    client = threads_or_cluster[where]
    found = og.cost_distance(*inputs, out=f"{folder}/out.zarr", client=client, **OPTIONS).load()
    xr.testing.assert_equal(found, expected)
    assert found["cost"].values.tobytes() == expected["cost"].values.tobytes()


def test_a_copy_that_was_cut_short_is_not_whole(tmp_path: Path) -> None:
    raster, copy = open_raster(GRID), LocalStorage(tmp_path / "copy.zarr")
    write_raster(raster, copy, Layout(4, 8))
    assert not is_whole(copy)
    mark_complete(copy)
    assert is_whole(copy)


def test_a_server_that_is_away_is_said(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    for attempt in (
        lambda: og.open(f"{s3}/dem.zarr"),
        lambda: og.peaks(f"{s3}/dem.zarr"),
        lambda: og.ingest(GRID, f"{s3}/dem.zarr"),
    ):
        with pytest.raises(InputError, match=r"cannot be read.*check its name, the region"):
            attempt()


@pytest.mark.parametrize("where", ["threads", "cluster"])
def test_a_run_survives_a_server_that_is_away_or_says_how_it_goes_on(
    where: str, s3: str, s3_server: S3Server, gate: Gate, tmp_path: Path
) -> None:
    og.ingest(np.nan_to_num(GRID, nan=7), tmp_path / "dem.zarr", **OPTIONS)
    raster = WatchedRaster(tmp_path / "dem.zarr", tmp_path / "diary.txt", gate=gate)
    run = partial(og.cost_distance.submit, raster, SOURCES, out=f"{s3}/out.zarr")
    clients = (
        nullcontext()
        if where == "threads"
        else og.cluster(1, processes=False, dashboard_address=None)
    )
    try:
        with clients as client:
            gate.shut(after=3)
            first = run(client=client)
            wait_until(gate.held, lambda: first.status == "running")
            s3_server.is_away = True
            gate.open()
            with pytest.raises(RunError, match=r"s3://.*not answer.*resume=True.*retry_timeout"):
                first.result()
            s3_server.is_away = False
            gate.shut(after=gate.arrived() + 3)
            again = run(client=client, resume=True, storage_options={"retry_timeout": "5min"})
            wait_until(gate.held, lambda: again.status == "running")
            s3_server.is_away, refused = True, s3_server.refused
            gate.open()
            wait_until(lambda: s3_server.refused > refused + 3, lambda: again.status == "running")
            s3_server.is_away = False
            costs = again.result()["cost"].values
            assert again.report()["resumed"]
    finally:
        s3_server.is_away = False
    expected = og.cost_distance(tmp_path / "dem.zarr", SOURCES)["cost"]
    np.testing.assert_array_equal(costs, expected)


def test_what_does_not_exist_is_said(bucket: str) -> None:
    with pytest.raises(InputError, match=r"none\.zarr does not exist; is the address right"):
        og.peaks(f"{bucket}/none.zarr")
    with pytest.raises(InputError, match="is not a store of orograph"):
        og.open(f"{bucket}/none.zarr")
    with pytest.raises(RuntimeError), staged_store(ObjectStorage(f"{bucket}/none.zarr")):
        raise RuntimeError
    with pytest.raises(InputError, match="was never finished"):
        og.peaks(f"{bucket}/none.zarr")


def test_a_worker_that_sees_another_memory_is_refused(object_memory: str) -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
        pytest.raises(RunError, match=r"cannot read the run's folder memory://"),
    ):
        og.minimum_spanning_forest(GRID, out=f"{object_memory}/a.zarr", client=client, **OPTIONS)


def test_without_obstore_it_is_said_what_to_install(
    object_memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
    with pytest.raises(InputError, match=r'pip install "orograph\[cloud\]"'):
        og.ingest(GRID, f"{object_memory}/dem.zarr")


# --- requests -------------------------------------------------------------------------------------


@contextmanager
def counted(server: S3Server) -> Iterator[list[tuple[str, str]]]:
    """Collect the requests that are made within the context."""
    first = len(server.requests)
    found: list[tuple[str, str]] = []
    yield found
    found += server.requests[first:]


def test_a_shard_is_read_by_two_requests_and_written_by_two(s3: str, s3_server: S3Server) -> None:
    cells = np.random.default_rng(2).random((512, 512))  # shards are longer than what is kept
    with counted(s3_server) as ingest:
        og.ingest(cells, f"{s3}/dem.zarr", tile=64, shard=128)
    shards = [Window(y, x, 128, 128) for y in range(0, 512, 128) for x in range(0, 512, 128)]
    written = [path for _, path in ingest if "/elevation/c/" in path]
    assert len(written) == 2 * len(shards)
    raster = StoreRaster(f"{s3}/dem.zarr")
    raster.read(Window(0, 0, 1, 1))
    # from then on its index and its tiles: the state of the metadata is not looked at again
    with counted(s3_server) as reads:
        for shard in shards:
            np.testing.assert_array_equal(raster.read(shard), cells[shard.slices])
    assert len(reads) == 2 * len(shards), reads


def test_a_small_shard_is_read_by_one_request(s3: str, s3_server: S3Server) -> None:
    og.ingest(GRID, f"{s3}/dem.zarr", **OPTIONS)
    raster = StoreRaster(f"{s3}/dem.zarr")
    raster.read(Window(0, 0, 1, 1))
    with counted(s3_server) as reads:
        np.testing.assert_array_equal(raster.read(Window(0, 0, 16, 16)), GRID[:16, :16])
    assert len(reads) == 1, reads


def test_a_reader_that_asks_nobody_notices_what_was_replaced(bucket: str) -> None:
    """Also below its own name, where no commit says so; and shards that were absent."""
    address = f"{bucket}/dem.zarr"
    og.ingest(GRID, address, **OPTIONS)
    one, other = StoreRaster(address), np.nan_to_num(GRID, nan=3) + 7
    cells = Window(0, 0, *GRID.shape)
    np.testing.assert_array_equal(one.read(cells), GRID)
    og.ingest(other, address, overwrite=True, **OPTIONS)
    np.testing.assert_array_equal(one.read(cells), other)
    version = ObjectStorage(f"{address}/{ObjectStorage(address)._version()}")
    plain = ObjectStorage(f"{bucket}/copied.zarr")
    for key, _ in version.objects():
        plain.put(key, version.get(key))
    copied = StoreRaster(plain)
    np.testing.assert_array_equal(copied.read(cells), other)
    og.ingest(GRID, f"{bucket}/next.zarr", **OPTIONS)
    following = ObjectStorage(f"{bucket}/next.zarr")
    for key, _ in following.objects():
        plain.put(key, following.get(key))
    np.testing.assert_array_equal(copied.read(cells), GRID)
    plain.delete("elevation/c/0/0")
    with pytest.raises(og.DamagedChunkError, match=r"elevation/c/0/0 is missing"):
        copied.read(cells)


def test_what_is_written_and_unchanged_is_found_by_listing(s3: str, s3_server: S3Server) -> None:
    """However many shards there are."""
    found = []
    for side in (64, 128):
        address = f"{s3}/{side}.zarr"
        og.ingest(np.ones((side, side)), address, tile=8, shard=8)
        windows = [Window(y, x, 8, 8) for y in range(0, side, 8) for x in range(0, side, 8)]
        raster, sink = StoreRaster(address), StoreSink(address)
        _ = raster.georeference
        with counted(s3_server) as requests:
            raster.fingerprint()
            raster.states()
            assert sink.count_written("elevation", windows) == len(windows)
        found.append(len(requests))
    assert found[0] == found[1] <= 12, found


def test_what_a_task_reads_is_fetched_by_two_requests_a_shard(s3: str, s3_server: S3Server) -> None:
    """One for the index, one for the tiles; also where the shard is replaced after that."""
    cells = np.random.default_rng(3).random((256, 256))
    og.ingest(cells, f"{s3}/dem.zarr", tile=32, shard=128)
    raster = StoreRaster(f"{s3}/dem.zarr")
    window = Window(128, 64, 64, 128)  # of four shards, in z-order in each
    tiles = [Window(y, x, 32, 32) for y in (128, 160) for x in range(64, 192, 32)]
    with counted(s3_server) as requests:
        fetched = raster.fetch(window)
        with using(fetched):
            for tile in tiles:
                np.testing.assert_array_equal(raster.read(tile), cells[tile.slices])
    assert len(fetched) == 2
    assert len(requests) == 4, requests
    og.ingest(cells + 1, f"{s3}/dem.zarr", tile=32, shard=128, overwrite=True)
    with using(fetched):  # what has been fetched is of one version, as is a shard that was opened
        np.testing.assert_array_equal(raster.read(tiles[0]), cells[tiles[0].slices])
        # the part that was not: of another shard, and of this one
        other = Window(0, 0, 32, 32)
        np.testing.assert_array_equal(raster.read(other), cells[other.slices] + 1)
        rest = Window(192, 64, 32, 32)
        np.testing.assert_array_equal(raster.read(rest), cells[rest.slices] + 1)


def test_no_more_is_fetched_than_is_allowed(s3: str, s3_server: S3Server) -> None:
    cells = np.random.default_rng(3).random((128, 128))
    og.ingest(cells, f"{s3}/dem.zarr", tile=64, shard=128)
    raster, whole = StoreRaster(f"{s3}/dem.zarr"), Window(0, 0, 128, 128)
    fetched = raster.fetch(whole, 2 * 64 * 64 * 8)
    first, last = Window(0, 0, 64, 64), Window(64, 64, 64, 64)
    for tile, asked in ((first, 0), (last, 0), (Window(64, 0, 64, 64), 1)):
        # the last bytes of a shard are read with its index
        with counted(s3_server) as requests, using(fetched):
            np.testing.assert_array_equal(raster.read(tile), cells[tile.slices])
        assert len(requests) <= (1 if tile == last else asked), (tile, requests)
    with using(fetched):
        np.testing.assert_array_equal(raster.read(whole), cells)


def test_a_sweep_reads_a_shard_by_two_requests_and_writes_it_by_two(
    s3: str, s3_server: S3Server
) -> None:
    """And by one for what an earlier run may have saved of it."""
    cells = np.random.default_rng(6).random((256, 256))
    og.ingest(cells, f"{s3}/dem.zarr", tile=64, shard=128)
    options: dict[str, Any] = {"tile": 64, "shard": 128}
    with counted(s3_server) as requests:
        og.minimum_spanning_forest(f"{s3}/dem.zarr", out=f"{s3}/out.zarr", **options)
    of_input = [one for one in requests if "/dem.zarr/" in one[1] and "/elevation/c/" in one[1]]
    assert len(of_input) == 2 * 4, of_input
    of_result = [one for one in requests if "/edges/c/" in one[1] and "?" not in one[1]]
    assert Counter(method for method, _ in of_result) == {"PUT": 4, "GET": 4}, of_result
    of_summaries = [one for one in requests if "/summary-1/" in one[1]]
    assert Counter(method for method, _ in of_summaries) == {"PUT": 4, "GET": 4}, of_summaries
    expected = og.minimum_spanning_forest(cells, **options)
    np.testing.assert_array_equal(og.open(f"{s3}/out.zarr")["edges"], expected["edges"])


def test_tiles_of_a_shard_are_read_by_one_request_each_and_one_for_the_index(
    s3: str, s3_server: S3Server
) -> None:
    """One tile after the other, as sweeps read them; also where the shard is replaced between."""
    cells = np.random.default_rng(4).random((256, 256))
    og.ingest(cells, f"{s3}/dem.zarr", tile=64, shard=128)
    raster = StoreRaster(f"{s3}/dem.zarr")
    raster.read(Window(0, 0, 1, 1))
    tiles = [Window(y, x, 64, 64) for y in (128, 192) for x in (128, 192)]
    with counted(s3_server) as reads:
        for tile in tiles:
            np.testing.assert_array_equal(raster.read(tile), cells[tile.slices])
    # the last of them lies in part in what is read with the index
    assert len(reads) == 1 + len(tiles), reads
    raster.read(tiles[0])
    og.ingest(cells + 1, f"{s3}/dem.zarr", tile=64, shard=128, overwrite=True)
    for tile in tiles:
        np.testing.assert_array_equal(raster.read(tile), cells[tile.slices] + 1)
