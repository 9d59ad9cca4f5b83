"""The contract of a storage, held by files and by one that has no rename; stores on the latter."""

from __future__ import annotations

import errno
import itertools
import json
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import memory_storage
import numpy as np
import oracle_forest as oracle
import pytest
from lesser_system import take_away
from memory_storage import BUCKET, Killed, MemoryStorage

import orograph as og
from orograph.index.store import PENDING, IndexStore
from orograph.run import workspace
from orograph.run.workspace import Workspace
from orograph.tiles import local_storage
from orograph.tiles.errors import DamagedChunkError, InputError, StorageFullError, StoreExistsError
from orograph.tiles.files import TEMPORARY
from orograph.tiles.format.checksums import CHECKSUMS
from orograph.tiles.format.metadata import GROUP, MARK, read_document, write_group_metadata
from orograph.tiles.grid.window import Window
from orograph.tiles.local_storage import LocalStorage
from orograph.tiles.object_storage import ObjectStorage
from orograph.tiles.open_storage import SCHEMES, open_storage
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.storage import Storage
from orograph.tiles.store.create import Layout, Variable, create_store
from orograph.tiles.store.dataset import open as open_dataset
from orograph.tiles.store.publish import partial_storage, publish
from orograph.tiles.store.raster import StoreRaster
from orograph.tiles.store.sink import StoreSink


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address in an empty memory."""
    monkeypatch.setitem(SCHEMES, "memory", MemoryStorage)
    BUCKET.objects.clear()
    yield "memory://bucket"
    BUCKET.objects.clear()
    BUCKET.die_before = None


@pytest.fixture(params=["files", "files of a lesser system", "memory", "objects", "s3"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Storage:
    """A storage with nothing in it."""
    if "lesser" in request.param:
        take_away(monkeypatch)
    if request.param == "memory":
        return MemoryStorage(f"{request.getfixturevalue('memory')}/place")
    if request.param == "objects":
        return ObjectStorage(f"{request.getfixturevalue('object_memory')}/place")
    if request.param == "s3":
        return ObjectStorage(f"{request.getfixturevalue('s3')}/place")
    (tmp_path / "place").mkdir()
    return LocalStorage(tmp_path / "place")


def contents(storage: Storage) -> dict[str, bytes]:
    return {key: storage.get(key) for key, _ in storage.objects()}


# --- objects -------------------------------------------------------------------------------------


def test_an_object_is_what_was_put(place: Storage) -> None:
    assert place.state("a/b/c") is None
    place.put("a/b/c", b"one", np.frombuffer(b"two", np.uint8), memoryview(b"three"))
    assert place.get("a/b/c") == b"onetwothree"
    place.put("a/b/c")
    assert place.get("a/b/c") == b""


@pytest.mark.parametrize("key", ["none", "none/below", "there/below", "prefix"])
def test_what_is_no_object_is_not_found(place: Storage, key: str) -> None:
    place.put("there", b"1")
    place.put("prefix/of", b"1")
    for read in (place.get, place.open):
        with pytest.raises(FileNotFoundError):
            read(key)
    assert place.state(key) is None
    place.delete("none")
    place.delete("there/below")
    assert place.get("there") == b"1"


def test_parts_of_an_object_are_read_from_one_version(place: Storage) -> None:
    place.put("key", bytes(range(100)))
    with place.open("key") as reader:
        place.put("key", b"another")
        assert reader.tail(3).tolist() == [97, 98, 99]
        assert reader.range(10, 4).tolist() == [10, 11, 12, 13]
        assert reader.range(99, 1).tolist() == [99]
        assert len(reader.range(5, 0)) == len(reader.tail(0)) == 0
        assert reader.tail(1000).tolist() == list(range(100))
        assert reader.tail(100).dtype == np.uint8
        assert reader.state.size == 100
        assert reader.state != place.state("key")
        with pytest.raises(ValueError, match="ends at byte 100, not at 102"):
            reader.range(90, 12)
    with place.open("key") as reader:
        assert reader.state == place.state("key")
        assert reader.tail(7).tobytes() == b"another"


def test_every_put_makes_another_state(place: Storage) -> None:
    states = []
    for number, key in enumerate(("a", "b", "a", "a")):
        # an ETag of S3 follows from the content
        place.put(key, f"{number:04}".encode() if "s3://" in str(place) else b"same")
        state = place.state(key)
        assert state is not None
        assert state.size == 4
        assert state == place.state(key)
        states.append(state)
    assert len(set(states)) == 4
    assert pickle.loads(pickle.dumps(states[0])) == states[0]


def test_create_is_for_what_is_not_there(place: Storage) -> None:
    place.create("a/key", b"first")
    with pytest.raises(FileExistsError, match=r"exists already.*a/key"):
        place.create("a/key", b"second")
    assert place.get("a/key") == b"first"
    place.delete("a/key")
    place.create("a/key", b"third")
    assert contents(place) == {"a/key": b"third"}


def test_one_of_many_creates_succeeds(place: Storage) -> None:
    def create(number: int) -> bool:
        try:
            place.create("key", str(number).encode())
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(32)))
    assert sum(won) == 1
    assert contents(place) == {"key": str(won.index(True)).encode()}


def test_move_takes_the_place_of_what_is_there(place: Storage) -> None:
    place.put("new/a", b"new")
    place.put("b/c", b"old")
    place.move("new/a", "b/c")
    place.put("new/a", b"newer")
    place.move("new/a", "d/e/f")
    assert contents(place) == {"b/c": b"new", "d/e/f": b"newer"}
    with pytest.raises(FileNotFoundError):
        place.move("none", "b/c")
    assert place.get("b/c") == b"new"


# --- prefixes ------------------------------------------------------------------------------------


def test_objects_and_names_are_synchronised(place: Storage) -> None:
    place.put("a/b/c", b"1")
    place.sync("a/b/c", "a/b", "a", "")
    assert place.get("a/b/c") == b"1"


def test_names_and_objects_below_a_prefix(place: Storage) -> None:
    keys = ["a", "b/c", "b/d/e", "b/d/f", "bb/g", ".hidden/h"]
    for key in keys:
        place.put(key, key.encode())
    assert sorted(place.names()) == [".hidden", "a", "b", "bb"]
    assert sorted(place.names("b")) == ["c", "d"]
    assert place.names("none") == place.names("a") == []
    assert dict(place.objects()) == {key: place.state(key) for key in keys}
    assert sorted(key for key, _ in place.objects("b")) == keys[1:4]
    assert list(place.objects("none")) == []
    inner = place.child("b").child("d")
    assert contents(inner) == {"e": b"b/d/e", "f": b"b/d/f"}
    inner.put("e", b"other")
    assert place.get("b/d/e") == b"other"
    place.delete_all("b")
    assert sorted(key for key, _ in place.objects()) == [".hidden/h", "a", "bb/g"]
    place.delete_all("none")
    place.delete_all()
    assert not place.exists()
    place.delete_all()


# --- whole stores --------------------------------------------------------------------------------


def test_a_storage_is_its_address(place: Storage) -> None:
    again = pickle.loads(pickle.dumps(place))
    assert again == place == open_storage(str(place)) == open_storage(place)
    assert len({again, place, place.child("a")}) == 2
    assert len(pickle.dumps(place)) < 150 + len(str(place))
    assert place.name == "place"
    assert (place.child("a").name, place.beside(".b").name) == ("a", "place.b")
    assert str(place.child("a")) == f"{place}/a"


def test_where_storages_overlap(place: Storage) -> None:
    child = place.child("a")
    assert place.overlaps(place)
    assert place.overlaps(child)
    assert child.overlaps(place)
    assert not child.overlaps(place.child("ab"))
    assert not place.overlaps(place.beside("b"))


def test_a_place_is_claimed_once(place: Storage) -> None:
    free = place.child("free")
    free.check_place()
    assert not free.exists()
    free.claim()
    assert free.exists()
    assert free.entries() == set()
    assert free.names() == list(free.objects()) == []
    with pytest.raises(FileExistsError):
        free.claim()
    free.delete_all()
    assert not free.exists()
    free.claim()
    free.put("key", b"1")
    assert contents(place) == {"free/key": b"1"}


def test_a_commit_moves_a_whole_store(place: Storage) -> None:
    target, staged = place.child("store"), place.child("staged")
    old = {"zarr.json": b"old", "a/c/0/0": b"1", "a/c/0/1": b"2"}
    new = {"zarr.json": b"new", "a/c/0/0": b"3", "b/c/0/0": b"4"}
    for round_, whole in enumerate((old, new)):
        staged.claim()
        for key, content in whole.items():
            staged.put(key, content)
        if round_:
            with pytest.raises(FileExistsError):
                target.commit(staged)
            assert contents(target) == old
        target.commit(staged, replace=bool(round_))
        assert contents(target) == whole
        assert not staged.exists()
    assert place.names() == ["store"]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_commit_without_a_rename_that_is_killed_can_be_done_again(
    memory: str, replaced: bool
) -> None:
    target, staged = MemoryStorage(f"{memory}/a"), MemoryStorage(f"{memory}/b")
    old = {"zarr.json": b"old", "a": b"1", "b": b"2"} if replaced else {}
    new = {"zarr.json": b"new", "a": b"3", "c": b"4"}
    killed = 0
    while True:
        BUCKET.objects.clear()
        for storage, whole in ((target, old), (staged, new)):
            for key, content in whole.items():
                storage.put(key, content)
        BUCKET.die_before = BUCKET.changes + killed
        try:
            target.commit(staged, replaced)
        except Killed:
            pass
        else:
            break
        finally:
            BUCKET.die_before = None
        killed += 1
        if target.state("zarr.json") is not None:
            assert contents(target) in (old, new)
        else:
            assert not target.exists()
        if contents(target) != new:
            assert contents(staged) == new
            target.commit(staged, replaced)
        assert contents(target) == new
    assert killed > len(new) + len(old)
    assert set(BUCKET.objects) == {f"{target}/{key}" for key in new}


# --- files ---------------------------------------------------------------------------------------


def test_a_late_writer_does_not_bring_a_removed_store_back(tmp_path: Path) -> None:
    place = LocalStorage(tmp_path / "run" / "store")
    for write in (place.put, place.create):
        with pytest.raises(FileNotFoundError):
            write("a/b", b"late")
    assert os.listdir(tmp_path) == []


def test_files_that_are_not_whole_have_no_key(tmp_path: Path) -> None:
    place = LocalStorage(tmp_path / "a")
    place.claim()
    place.put("c/0", b"whole")
    (tmp_path / "a" / "c" / f".1.123-456{TEMPORARY}").write_bytes(b"half")
    assert contents(place) == {"c/0": b"whole"}
    assert place.names("c") == ["0"]


@pytest.mark.parametrize("write", ["put", "create"])
def test_a_write_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    place = LocalStorage(tmp_path)
    place.put("other", b"1")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setattr(os, "link", full)
    with pytest.raises(StorageFullError, match="bytes free") as caught:
        getattr(place, write)("key", b"2")
    assert caught.value.filename == str(tmp_path / "key")
    assert os.listdir(tmp_path) == ["other"]


def test_what_a_killed_removal_has_left_goes_with_the_next(tmp_path: Path) -> None:
    place = LocalStorage(tmp_path / "a")
    trash = tmp_path / f".a.{'0' * 32}"
    mine = tmp_path / ".a.notes"
    for folder in (trash, mine):
        folder.mkdir()
    place.delete_all()
    assert os.listdir(tmp_path) == [".a.notes"]


def test_links_and_files_are_no_stores_to_replace(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_bytes(b"")
    for name, tree in (("folder", True), ("link", False), ("broken", False), ("file", False)):
        place = LocalStorage(tmp_path / name)
        assert place.exists()
        assert (place.entries() == {"."}) is not tree
    assert LocalStorage(tmp_path / "link").overlaps(LocalStorage(tmp_path / "folder" / "a"))


# --- addresses -----------------------------------------------------------------------------------


def test_paths_and_file_urls_name_the_same_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = LocalStorage(tmp_path / "a b.zarr")
    url = (tmp_path / "a b.zarr").as_uri()
    assert "%20" in url
    for address in ("a b.zarr", tmp_path / "a b.zarr", url, url.replace("://", "://localhost")):
        assert open_storage(address) == expected
    og.ingest(np.eye(3), url, tile=2)
    np.testing.assert_array_equal(og.open(url).elevation, np.eye(3))
    assert open_raster(url).shape == (3, 3)
    for wrong in ("file://server/a.zarr", "file://"):
        with pytest.raises(InputError, match="names no file of this computer"):
            open_storage(wrong)
    for call in (og.open, lambda place: og.ingest(np.eye(3), place)):
        with pytest.raises(InputError, match="5 is not an address of a store; give a path"):
            call(5)


def test_other_addresses_are_refused_before_anything_is_done(tmp_path: Path) -> None:
    address = "ftp://server/a.zarr"
    index = og.DistanceIndex
    tried: list[Callable[[], Any]] = [
        lambda: open_storage(address),
        lambda: og.open(address),
        lambda: og.ingest(np.eye(3), address),
        lambda: og.minimum_spanning_forest(np.eye(3), out=address),
        lambda: og.all_pairs(np.eye(3), out=address),
        lambda: index.build(np.ones((4, 4)), address),
        lambda: index.open(address),
    ]
    for attempt in tried:
        with pytest.raises(InputError, match=r"ftp:// stores are not supported; give a path"):
            attempt()


def test_rasters_at_such_addresses_are_left_to_those_who_read_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def read(path: str, *_: Any) -> Any:
        asked.append(path)
        return open_raster(np.eye(3))

    monkeypatch.setattr("orograph.tiles.raster.raster._by_rasterio", read)
    assert open_raster("s3://bucket/dem.tif").shape == (3, 3)
    assert asked == ["s3://bucket/dem.tif"]


# --- stores without a file -----------------------------------------------------------------------

RNG = np.random.default_rng(3)
GRID = RNG.integers(0, 50, (45, 37)).astype(np.float32)
GRID[RNG.random(GRID.shape) < 0.1] = np.nan


def test_a_store_is_written_read_and_published_without_a_file(memory: str) -> None:
    final = MemoryStorage(f"{memory}/z.zarr")
    partial = partial_storage(final)
    create_store(partial, GRID.shape, Layout(8, 16), [Variable("z", "f4")])
    sink = pickle.loads(pickle.dumps(StoreSink(partial)))
    windows = list(Layout(8, 16).windows(GRID.shape))
    for window in windows[1:]:
        sink.write("z", window, GRID[window.slices])
    assert [sink.written("z", window) for window in windows] == [
        False,
        *[True] * (len(windows) - 1),
    ]
    with pytest.raises(InputError, match="never finished"):
        open_dataset(final)
    with pytest.raises(InputError, match="is unfinished"):
        StoreRaster(partial)
    unfinished = StoreRaster(partial, unfinished=True)
    assert np.isnan(unfinished.read(Window(0, 0, 16, 16))).all()
    sink.write("z", windows[0], GRID[windows[0].slices])
    publish(partial, final)
    raster = pickle.loads(pickle.dumps(StoreRaster(final)))
    np.testing.assert_array_equal(raster.read(Window(5, 6, 30, 20)), GRID[5:35, 6:26])
    with pytest.raises(StoreExistsError, match="overwrite=True"):
        create_store(final, GRID.shape, Layout(8, 16), [Variable("z", "f4")])
    final.delete("z/c/1/1")
    with pytest.raises(DamagedChunkError, match=r"bucket/z\.zarr/z/c/1/1 is missing"):
        raster.read(Window(5, 6, 30, 20))


def test_a_store_in_memory_is_the_same_as_on_disk(memory: str, tmp_path: Path) -> None:
    for place in (memory, str(tmp_path)):
        og.ingest(GRID, f"{place}/dem.zarr", tile=8, shard=16)
    one, two = (open_storage(f"{place}/dem.zarr") for place in (memory, str(tmp_path)))
    assert contents(one) == contents(two)
    assert StoreRaster(one).fingerprint() == StoreRaster(two).fingerprint()
    opened = og.open(f"{memory}/dem.zarr")
    assert isinstance(open_raster(opened.elevation), StoreRaster)
    np.testing.assert_array_equal(opened.elevation, GRID)


def test_a_shard_replaced_in_memory_is_decoded_again(memory: str) -> None:
    address = f"{memory}/dem.zarr"
    og.ingest(GRID, address, tile=8, shard=16)
    storage, window = open_storage(address), Window(1, 1, 5, 5)
    document = read_document(storage, GROUP)
    document["attributes"][MARK].pop(CHECKSUMS)  # what is finished is refused when it is replaced
    write_group_metadata(storage, document)
    raster = StoreRaster(address)
    np.testing.assert_array_equal(raster.read(window), GRID[window.slices])
    shard = Window(0, 0, 16, 16)
    StoreSink(address).write("elevation", shard, GRID[shard.slices] + 1)
    np.testing.assert_array_equal(raster.read(window), GRID[window.slices] + 1)


def test_a_forest_goes_from_memory_to_memory(memory: str) -> None:
    og.ingest(GRID, f"{memory}/dem.zarr", tile=8, shard=16)
    out = f"{memory}/forest.zarr"
    og.minimum_spanning_forest(f"{memory}/dem.zarr", tile=8, shard=16, out=out)
    expected = oracle.minimum_spanning_forest(GRID).mask
    np.testing.assert_array_equal(og.open(out)["edges"].values, expected)
    with pytest.raises(StoreExistsError, match="overwrite=True"):
        og.minimum_spanning_forest(f"{memory}/dem.zarr", tile=8, shard=16, out=out)
    again = og.minimum_spanning_forest(
        f"{memory}/dem.zarr", tile=8, shard=16, out=out, overwrite=True
    )
    np.testing.assert_array_equal(again["edges"].values, expected)
    assert {address.split("/")[3] for address in BUCKET.objects} == {"dem.zarr", "forest.zarr"}
    with pytest.raises(InputError, match="sources are never written"):
        og.minimum_spanning_forest(f"{memory}/dem.zarr", tile=8, out=f"{memory}/dem.zarr/a")


def test_a_run_need_not_wait_for_its_folder_to_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, remove = threading.Event(), local_storage._remove

    def held(folders: list[Path]) -> None:
        gate.wait()
        remove(folders)

    monkeypatch.setattr(local_storage, "_remove", held)
    monkeypatch.setattr(local_storage, "SECONDS_TO_DELETE", 0.0)
    out = tmp_path / "forest.zarr"
    cells = np.random.default_rng(0).random((30, 40))
    try:
        first = og.minimum_spanning_forest(cells, out=out).load()
        (left,) = (path.name for path in tmp_path.iterdir() if path != out)
        assert left.startswith(".forest.zarr.partial.")
        # what is not deleted yet is in nobody's way
        again = og.minimum_spanning_forest(cells, out=out, overwrite=True).load()
        np.testing.assert_array_equal(first["edges"], again["edges"])
    finally:
        gate.set()
    for thread in threading.enumerate():
        if thread.name == "orograph-delete":
            thread.join()
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_run_without_a_rename_is_resumed_wherever_it_is_killed(
    memory: str, replaced: bool, step: int
) -> None:
    """A result under its name is whole, the old one or the new, at every change."""
    cells = GRID[:20, :20]
    options: dict[str, Any] = {
        "tile": 8,
        "shard": 16,
        "out": f"{memory}/out.zarr",
        "overwrite": replaced,
    }
    expected = {
        weight: og.minimum_spanning_forest(cells, weight=weight) for weight in ("max", "mean")
    }

    def stored() -> bool:
        """Is there a result? It is one of the two."""
        if open_storage(options["out"]).state("zarr.json") is None:
            return False
        found = og.open(options["out"])["edges"].values
        return any(np.array_equal(found, whole["edges"].values) for whole in expected.values())

    def prepare() -> None:
        BUCKET.objects.clear()
        if replaced:
            og.minimum_spanning_forest(cells, weight="mean", **options)
            assert stored()

    for number in itertools.count(step // 2 * replaced, step):
        prepare()
        BUCKET.die_before = BUCKET.changes + number
        try:
            og.minimum_spanning_forest(cells, **options)
        except Killed:
            pass
        else:
            break
        finally:
            BUCKET.die_before = None
        there = open_storage(options["out"]).state("zarr.json") is not None
        assert stored() is there
        try:
            og.minimum_spanning_forest(cells, resume=True, **options)
        except StoreExistsError:
            # the result has got its name, and the run said so already: that was its end
            assert there
            assert not open_storage(f"{options['out']}.partial").state(workspace.IDENTITY)
            np.testing.assert_array_equal(
                og.open(options["out"])["edges"], expected["max"]["edges"]
            )
            og.minimum_spanning_forest(cells, **options | {"overwrite": True})
        np.testing.assert_array_equal(og.open(options["out"])["edges"], expected["max"]["edges"])
        assert {address.split("/")[3] for address in BUCKET.objects} == {"out.zarr"}
    assert number > 20


def test_runs_that_begin_at_once_are_told_apart(memory: str) -> None:
    def begin() -> Workspace:
        return Workspace(f"{memory}/out.zarr", {}, overwrite=False, resume=False)

    one, two = begin(), begin()
    one.open(lambda result, run: None)
    with pytest.raises(StoreExistsError, match="another run has begun to write"):
        two.open(lambda result, run: None)
    assert json.loads(one.folder.get(workspace.IDENTITY))["token"] == one.token


def test_an_update_of_an_index_needs_no_rename(memory: str) -> None:
    friction = np.random.default_rng(5).integers(1, 9, (20, 20)).astype(np.float32)
    changed = friction.copy()
    changed[3:9, 4:11] += 5
    points = [(0, 0), (19, 19), (5, 12)]
    address = f"{memory}/index"
    index = og.DistanceIndex.build(friction, address, block=4, levels=0)
    before = index.distance_matrix(points).values
    fresh = og.DistanceIndex.build(changed, f"{memory}/fresh", block=4, levels=0)
    after = fresh.distance_matrix(points).values
    assert (before != after).any()
    begun = dict(BUCKET.objects)
    killed = 0
    while True:
        BUCKET.objects.clear()
        BUCKET.objects.update(begun)
        index = og.DistanceIndex.open(address)
        BUCKET.die_before = BUCKET.changes + killed
        try:
            index.update((3, 4, 6, 7), changed[3:9, 4:11])
        except Killed:
            pass
        else:
            break
        finally:
            BUCKET.die_before = None
        committed = f"{address}/{PENDING}/committed.json" in BUCKET.objects
        settled = IndexStore.open(address).form.fingerprint.startswith("updated")
        assert settled or not committed
        found = og.DistanceIndex.open(address).distance_matrix(points).values
        np.testing.assert_array_equal(found, after if settled else before)
        killed += 1
    assert killed > 10
    assert MemoryStorage(address).names(PENDING) == []
    np.testing.assert_array_equal(index.distance_matrix(points).values, after)


def test_the_memory_has_no_file(memory: str) -> None:
    with pytest.raises(InputError, match="it is on no file system"):
        local_storage.local_path(MemoryStorage(memory))
    assert memory_storage.CLAIM.startswith(".")
