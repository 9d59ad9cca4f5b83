"""Damage: whatever file of a store is changed, cut, emptied or lost, it is named or has no effect.

Every kind of store is tried. What reading a store returns is compared to the bit with what it
returned before, so that "no effect" is seen and not assumed.
"""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from reseal import reseal

import orograph as og
from orograph.tiles.store import shard
from orograph.tiles.store.decoded_cache import DecodedTileCache

rng = np.random.default_rng(6)
GRID = rng.integers(1, 9, (21, 18)).astype(np.float32)
GRID[4, 5] = np.nan
LAYOUT: dict[str, Any] = {"tile": 4, "shard": 8}


def elevation() -> xr.DataArray:
    """A raster with coordinates, a CRS, nodata and attributes."""
    place = {"y": 100 - 2.0 * np.arange(21), "x": 3.0 * np.arange(18)}
    raster = xr.DataArray(GRID, place, ("y", "x"), "elevation", {"units": "m"})
    return raster.rio.write_crs("EPSG:32633").rio.write_nodata(-9999.0)


def ingested(path: Path) -> None:
    og.ingest(elevation(), path, **LAYOUT)


def forest(path: Path) -> None:
    og.minimum_spanning_forest(elevation(), out=path, **LAYOUT)


def components(path: Path) -> None:
    outputs = ("labels", "component_size", "component_box")
    og.connected_components((GRID > 4).astype(np.uint8), outputs=outputs, out=path, **LAYOUT)


def index(path: Path) -> None:
    og.DistanceIndex.build(elevation(), path, block=4, levels=0)


def all_pairs(path: Path) -> None:
    og.all_pairs(rng.random((9, 9)), out=path, tile=4, predecessors=True)


def graph(path: Path) -> None:
    edges = {"source": ["a", "b", "c"], "target": ["b", "c", "d"], "weight": [2, 3, 4]}
    where = rng.random((4, 2))
    og.read_graph(pd.DataFrame(edges), coordinates=where, directed=False, parts=2, store=path)


KINDS: dict[str, Callable[[Path], None]] = {
    "ingested raster": ingested,
    "forest": forest,
    "components": components,
    "distance index": index,
    "all pairs": all_pairs,
    "graph": graph,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A store of a kind, made once."""
    folder = tmp_path_factory.mktemp("whole")

    def made(kind: str) -> Path:
        path = folder / f"{kind}.zarr"
        if not path.exists():
            KINDS[kind](path)
        return path

    return made


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files change here faster than the clock of the file system ticks."""
    monkeypatch.setattr(shard, "TILE_CACHE", DecodedTileCache(0))


@pytest.fixture
def store(kind: str, whole: Callable[[str], Path], tmp_path: Path) -> Path:
    """A store of a kind, to be damaged; its path is the same in every test of the module."""
    return Path(shutil.copytree(whole(kind), tmp_path / "store.zarr"))


def read(path: Path) -> list[Any]:
    """Everything that a user can read of a store."""
    dataset = og.open(path).load(scheduler="synchronous")
    found = [
        (str(name), variable.dims, str(variable.dtype), variable.values.tobytes(), variable.attrs)
        for name, variable in sorted(dataset.variables.items(), key=lambda item: str(item[0]))
    ]
    found.append(dataset.attrs)
    if "distance_index" in dataset.attrs:
        table = og.DistanceIndex.open(path).distance_matrix([(0, 100), (51, 60)])
        found.append(table.values.tobytes())
    if "orograph_graph" in dataset.attrs:
        opened = og.read_graph(path)
        found += [opened.bounds, [list(values[:]) for values in opened.arrays.values()]]
        found.append(og.shortest_paths(opened, "a")["cost"].values.tobytes())
    return found


def attempt(function: Callable[[Path], Any], path: Path) -> tuple[str | None, Any]:
    """Return the message of an error of orograph, or the result; other errors are raised."""
    try:
        return None, function(path)
    except og.OrographError as error:
        return str(error), None


def outcome(path: Path, file: Path, before: list[Any]) -> str:
    """Return what a damage led to: ``"named"`` or ``"no effect"``; fail for anything else."""
    error, after = attempt(read, path)
    if error is not None:
        assert str(path) in error, f"{error}: it does not name the store"
        of_the_store = "is not a store of orograph" in error or " has format " in error
        assert of_the_store or str(file) in error, f"{error}: it does not name {file}"
        return "named"
    assert repr(after) == repr(before), f"{file}: other values, and no error"
    assert file.name == "zarr.json", f"{file}: values are damaged, and nobody says so"
    return "no effect"


def files_of(path: Path) -> list[Path]:
    """Every file of a store but the report of its run, which no reader looks at."""
    files = (file for file in path.rglob("*") if file.is_file())
    return sorted(file for file in files if file.name != "report.json")


def damages(content: bytes, flips: int) -> Iterator[tuple[str, bytes | None]]:
    """Yield names of damages, and what is left of a file; None: the file is lost."""
    yield "lost", None
    yield "emptied", b""
    yield "zeros", bytes(len(content))
    yield "not text", b"\xff\xfe" + content
    for cut in {1, len(content) // 2, len(content) - 1}:
        yield f"cut to {cut}", content[:cut]
    step = max(1, len(content) // flips)
    for at in range(step // 2, len(content), step):
        flipped = bytearray(content)
        flipped[at] ^= 1 << (at % 8)
        yield f"bit {at % 8} of byte {at}", bytes(flipped)


def damage_all(path: Path, flips: int) -> dict[str, int]:
    """Damage one file after the other in every way; count what it led to."""
    before = read(path)
    count = {"named": 0, "no effect": 0}
    for file in files_of(path):
        content = file.read_bytes()
        for _, left in damages(content, flips):
            if left == content:
                continue
            if left is None:
                file.unlink()
            else:
                file.write_bytes(left)
            try:
                count[outcome(path, file, before)] += 1
                check_verify(path, file)
            finally:
                file.write_bytes(content)
    assert repr(read(path)) == repr(before)
    return count


def check_verify(path: Path, file: Path) -> None:
    """`verify` names every damaged file of values."""
    error, report = attempt(og.verify, path)
    if error is not None:
        assert file == path / "zarr.json"
    elif file.name != "zarr.json":
        assert not report.ok
        assert all(str(file) in problem for problem in report.problems)


@pytest.mark.parametrize("kind", KINDS)
def test_any_damage_to_any_file_is_named_or_has_no_effect(store: Path) -> None:
    assert og.verify(store).ok
    count = damage_all(store, flips=1)
    assert count["named"] > 5 * len(files_of(store))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_any_damage_at_many_places_is_named_or_has_no_effect(store: Path) -> None:
    count = damage_all(store, flips=60)
    print(store, count)
    assert count["named"] > 20 * len(files_of(store))


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_array_that_is_lost_or_replaced_is_named(store: Path) -> None:
    before = read(store)
    arrays = [file.parent for file in files_of(store) if file.parent.parent == store]
    arrays = sorted(folder for folder in set(arrays) if (folder / "zarr.json").exists())
    assert arrays
    for folder in arrays:
        folder.rename(store.with_name("aside"))
        with pytest.raises(og.DamagedStoreError, match=rf"{folder.name}/zarr\.json: it is missing"):
            og.open(store)
        assert [str(folder) in problem for problem in og.verify(store).problems] == [True]
        metadata = (store.with_name("aside") / "zarr.json").read_bytes()
        others = (other for other in arrays if other != folder)
        other = next((o for o in others if (o / "zarr.json").read_bytes() != metadata), None)
        if other is not None:
            shutil.copytree(other, folder)
            with pytest.raises(og.DamagedStoreError, match=rf"{folder.name}/zarr\.json: it is not"):
                og.open(store)
            shutil.rmtree(folder)
        store.with_name("aside").rename(folder)
    assert repr(read(store)) == repr(before)


@pytest.mark.parametrize("kind", KINDS)
def test_files_in_the_places_of_others_are_named(store: Path) -> None:
    """Each file of values matches its own checksum, wherever it is."""
    before = read(store)
    files = [file for file in files_of(store) if file.name != "zarr.json"]
    pairs = [pair for pair in combinations(files, 2) if len({f.read_bytes() for f in pair}) == 2]
    assert pairs
    for one, other in pairs[:: max(1, len(pairs) // 40)]:
        content = one.read_bytes(), other.read_bytes()
        one.write_bytes(content[1])
        other.write_bytes(content[0])
        error, _ = attempt(read, store)
        assert error is not None, f"{one} and {other} were exchanged, and nobody says so"
        assert str(one) in error or str(other) in error
        problems = " ".join(og.verify(store).problems)
        assert f"{one}:" in problems
        assert f"{other}:" in problems
        one.write_bytes(content[0])
        other.write_bytes(content[1])
    assert repr(read(store)) == repr(before)


def test_an_older_file_of_the_same_place_is_named(tmp_path: Path) -> None:
    og.ingest(GRID, tmp_path / "one.zarr", **LAYOUT)
    og.ingest(GRID + 1, tmp_path / "two.zarr", **LAYOUT)
    shard = tmp_path / "two.zarr/elevation/c/1/0"
    shutil.copy(tmp_path / "one.zarr/elevation/c/1/0", shard)
    with pytest.raises(og.DamagedChunkError, match=rf"{shard}: .*not the file that the store sta"):
        og.open(tmp_path / "two.zarr").load()


def test_a_raster_that_is_open_is_read_from_the_store_that_takes_its_name(tmp_path: Path) -> None:
    og.ingest(GRID, tmp_path / "a.zarr", **LAYOUT)
    opened = og.open(tmp_path / "a.zarr")["elevation"]
    og.ingest(GRID + 1, tmp_path / "a.zarr", **LAYOUT, overwrite=True)
    np.testing.assert_array_equal(opened.values, GRID + 1)


# --- hostile metadata ----------------------------------------------------------------------------

WRONG: tuple[Any, ...] = (
    *(None, True, -1, 0, 5, 10**30, 1.5, math.nan, math.inf, "x", "", "../x", "\ud800"),
    *([], [[]], [1, "x"], {}, {"a": 1}),
)
DELETED = object()


def places_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every key and every item of a JSON document."""
    if path:
        yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from places_in(item, (*path, key))


def put(document: Any, path: tuple[Any, ...], value: Any) -> None:
    """Replace a part of a JSON document, or delete it."""
    for key in path[:-1]:
        document = document[key]
    if value is DELETED:
        del document[path[-1]]
    else:
        document[path[-1]] = copy.deepcopy(value)


def hostile(path: Path, changes: list[tuple[tuple[Any, ...], Any]]) -> int:
    """Make each change to the metadata of a store, with a checksum that agrees; count errors."""
    saved = {file: file.read_bytes() for file in files_of(path) if file.name == "zarr.json"}
    errors = 0
    for place, value in changes:
        reseal(path, lambda document, place=place, value=value: put(document, place, value))
        for function in (read, og.verify):
            try:
                error, _ = attempt(function, path)
            except Exception as raw:
                raise AssertionError(f"{place} = {value!r}: {type(raw)} {raw}") from raw
            assert error is None or str(path) in error, f"{place} = {value!r}: {error}"
            errors += error is not None
        for file, content in saved.items():
            file.write_bytes(content)
    return errors


def changes_to(path: Path) -> list[tuple[tuple[Any, ...], Any]]:
    """Return every deletion and every wrong value of the metadata of a store."""
    document = json.loads((path / "zarr.json").read_text())
    return [(place, wrong) for place in places_in(document) for wrong in (DELETED, *WRONG)]


@pytest.mark.parametrize("kind", KINDS)
def test_metadata_of_wrong_type_or_range_are_refused(store: Path) -> None:
    every = changes_to(store)
    some = [every[i] for i in np.random.default_rng(0).permutation(len(every))[:60]]
    assert hostile(store, some) > 20


@pytest.mark.parametrize(
    ("kind", "place", "value"),
    [
        ("ingested raster", ("elevation", "dimension_names", 1), ""),
        ("components", ("component_box", "shape", 0), 0),
        ("distance index", ("friction", "codecs", 0, "configuration", "index_codecs", 1), DELETED),
    ],
    ids=["a dimension without coordinates", "lengths that differ", "an index without checksum"],
)
def test_metadata_that_contradict_the_rest_are_refused(
    store: Path, place: tuple[Any, ...], value: Any
) -> None:
    assert hostile(store, [(("consolidated_metadata", "metadata", *place), value)])


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_all_metadata_of_wrong_type_or_range_are_refused(store: Path) -> None:
    every = changes_to(store)
    print(store, len(every), hostile(store, every))


@pytest.mark.parametrize("kind", ["ingested raster"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is no JSON"),
        (b"\xff\xff\xff", "it is no JSON"),
        (b"[" * 100_000, "it is no JSON"),
        (b'{"a":' * 3000 + b"1" + b"}" * 3000, "it is n"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "it is nested too deeply, in more than 100 levels"),
        (b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}", "it is nested too deeply, in more than 100"),
        (b"[1, 2]", r"it holds \[1, 2\], no JSON object"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "it is no JSON"),
    ],
    ids=[
        *("empty", "no text", "too deep", "deep", "objects in objects", "lists in lists"),
        *("a list", "a long number"),
    ],
)
@pytest.mark.parametrize("file", ["zarr.json", "elevation/zarr.json", "y/zarr.json"])
def test_a_file_that_holds_no_metadata_is_named(
    store: Path, file: str, content: bytes, message: str
) -> None:
    (store / file).write_bytes(content)
    for function in (og.open, og.minimum_spanning_forest):
        with pytest.raises(og.DamagedStoreError, match=rf"store\.zarr/{file}: {message}"):
            function(store)
