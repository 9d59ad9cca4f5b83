"""What an unfinished run has left is verified before it is counted as done.

Each run is stopped when all of its work is done and before its result is published: that is when
most is taken over. Then what it has left is damaged, and the run is resumed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import orograph as og
from orograph.engines import tile_states
from orograph.graphs.dense_paths import all_pairs as all_pairs_module
from orograph.run import workspace
from orograph.tiles import local_storage
from orograph.tiles.store.sink import StoreSink

rng = np.random.default_rng(7)
GRID = rng.integers(1, 9, (27, 22)).astype(np.float32)
EDGES = rng.random((13, 13))
LAYOUT: dict[str, Any] = {"tile": 4, "shard": 8}


def forest(**options: Any) -> xr.Dataset:
    return og.minimum_spanning_forest(GRID, **LAYOUT, **options)


def components(**options: Any) -> xr.Dataset:
    return og.connected_components((GRID > 4).astype(np.uint8), **LAYOUT, **options)


def cost(**options: Any) -> xr.Dataset:
    outputs = ("cost", "back_direction", "allocation")
    return og.cost_distance(GRID, [(0, 0), (20, 9)], outputs=outputs, **LAYOUT, **options)


def all_pairs(**options: Any) -> xr.Dataset:
    return og.all_pairs(EDGES, tile=4, predecessors=True, method="floyd-warshall", **options)


def squaring(**options: Any) -> xr.Dataset:
    return og.all_pairs(EDGES, tile=4, method="squaring", **options)


def dijkstra(**options: Any) -> xr.Dataset:
    return og.all_pairs(EDGES, tile=4, predecessors=True, method="dijkstra", **options)


def index(out: Path, **options: Any) -> xr.Dataset:
    og.DistanceIndex.build(GRID, out, block=4, levels=0, **options)
    return og.open(out)


RUNS: dict[str, Callable[..., xr.Dataset]] = {
    "forest": forest,
    "components": components,
    "cost": cost,
    "Floyd-Warshall": all_pairs,
    "squaring": squaring,
    "Dijkstra": dijkstra,
    "index": index,
}


class Stopped(og.OrographError):
    """The run was stopped."""


def stop(*_: Any, **__: Any) -> None:
    raise Stopped


def stopped(run: Callable[..., Any], out: Path, where: Any, name: str) -> Path:
    """Begin a run that stops where a function is called; return the folder of its work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, stop)
        with pytest.raises(Stopped):
            run(out=out)
    (work,) = (p for p in out.with_name(f"{out.name}.partial").iterdir() if p.is_dir())
    return work


def same(one: xr.Dataset, other: xr.Dataset) -> bool:
    return one.keys() == other.keys() and all(
        one[name].values.tobytes() == other[name].values.tobytes() for name in one
    )


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "flipped": flip,
    "cut": lambda path: os.truncate(path, path.stat().st_size * 2 // 3),
    "emptied": lambda path: os.truncate(path, 0),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "lost": Path.unlink,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], xr.Dataset]:
    """The result of a run that nothing has disturbed."""
    folder = tmp_path_factory.mktemp("whole")

    def made(kind: str) -> xr.Dataset:
        out = folder / kind
        if not out.exists():
            RUNS[kind](out=out)
        return og.open(out)

    return made


EACH = [
    pytest.param(
        *(damage, kind),
        marks=[] if kind == "forest" or damage in ("flipped", "lost") else pytest.mark.long,
    )
    for damage in DAMAGE
    for kind in RUNS
]


@pytest.mark.diagonal
@pytest.mark.parametrize(("damage", "kind"), EACH)
def test_what_is_damaged_in_an_unfinished_result_is_made_again(
    kind: str, damage: str, whole: Callable[[str], xr.Dataset], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = stopped(RUNS[kind], out, workspace.Workspace, "publish") / "result.zarr"
    files = sorted(p for p in result.rglob("*") if p.is_file() and p.name != "zarr.json")
    assert len(files) > 5
    for file in files[::2]:
        DAMAGE[damage](file)
    assert same(RUNS[kind](out=out, resume=True), whole(kind))
    assert og.verify(out).ok
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.diagonal
@pytest.mark.parametrize(("damage", "kind"), EACH)
def test_damaged_checkpoints_and_metadata_are_made_again(
    kind: str, damage: str, whole: Callable[[str], xr.Dataset], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    work = stopped(RUNS[kind], out, workspace.Workspace, "publish")
    files = [p for p in (work / "checkpoints").rglob("*") if p.is_file()]
    assert files
    if damage in ("flipped", "lost"):
        files.append(work / "result.zarr/zarr.json")
    for file in files:
        DAMAGE[damage](file)
    assert same(RUNS[kind](out=out, resume=True), whole(kind))
    assert og.verify(out).ok


@pytest.mark.parametrize("kind", ["forest", "components", "cost", "Floyd-Warshall"])
def test_exchanged_checkpoints_are_not_taken_for_one_another(
    kind: str,
    whole: Callable[[str], xr.Dataset],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        tile_states, "room_for_states", lambda *_: 0
    )  # all states of tiles are spilled
    out = tmp_path / "out"
    where: tuple[Any, str] = (StoreSink, "writer")
    if kind == "Floyd-Warshall":
        where = all_pairs_module, "write"
    work = stopped(RUNS[kind], out, *where)
    files = sorted(p for p in (work / "checkpoints").rglob("*") if p.is_file())
    assert len(files) > 8
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, contents[1:] + contents[:1], strict=True):
        file.write_bytes(content)
    assert same(RUNS[kind](out=out, resume=True), whole(kind))


# --- what is relied on is on the device ----------------------------------------------------------


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Every file and folder that was synchronised, since it was written."""
    found: set[str] = set()
    sync, replace = local_storage.sync_file, os.replace

    def note(path: str | Path) -> None:
        sync(path)
        found.add(str(path))

    def write(source: Any, target: Any) -> None:
        replace(source, target)
        found.discard(str(target))

    monkeypatch.setattr(local_storage, "sync_file", note)
    monkeypatch.setattr(os, "replace", write)
    return found


@pytest.mark.parametrize("kind", RUNS)
def test_a_result_is_on_the_device_before_its_checkpoints_are_removed(
    kind: str, synced: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    leave = workspace.Workspace._leave
    checked: list[bool] = []

    def check(space: workspace.Workspace, inventory: Any) -> None:
        result = str(space.result)
        below = [p for p in (tmp_path / "out").rglob("*") if "c" in p.parts or p.is_file()]
        missing = [str(p) for p in below if str(p).replace(str(space.out), result) not in synced]
        checked.append(missing == [] and str(tmp_path) in synced)
        assert missing == []
        leave(space, inventory)

    monkeypatch.setattr(workspace.Workspace, "_leave", check)
    RUNS[kind](out=tmp_path / "out")
    assert checked == [True]


def test_a_generation_is_on_the_device_before_the_last_is_dropped(
    synced: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    unlink = os.unlink
    generations: set[int] = set()

    def check(path: Any, **options: Any) -> None:
        folder = Path(path).parent
        if folder.name.startswith("generation-"):
            number = int(folder.name.split("-")[1])
            later = folder.with_name(f"generation-{number + 1}-0")
            files = [str(file) for file in later.iterdir()]
            assert len(files) == 16
            assert synced.issuperset([*files, str(later)])
            generations.add(number)
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", check)
    all_pairs(out=tmp_path / "out")
    assert generations == {0, 1, 2, 3}
