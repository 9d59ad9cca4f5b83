"""Vector files and NetCDF are written whole or not at all: full disks and kills."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401
import xarray as xr
from programs import start_program

import orograph as og
from orograph.run.file_target import FileTarget

pytest.importorskip("pyogrio", reason="pyogrio is not installed: orograph[vector]")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: orograph[vector]")
geopandas = pytest.importorskip("geopandas", reason="GeoPandas is not installed: orograph[vector]")

LAYERS = ["gpkg", "geojson", "geojsonl", "fgb", "shp", "gml", "parquet", "csv"]
LABELS = np.random.default_rng(0).integers(0, 9, (60, 60))


def labels(cells: Any) -> xr.DataArray:
    axes = {"y": 46 - 0.001 * np.arange(len(cells)), "x": 7 + 0.001 * np.arange(len(cells[0]))}
    return xr.DataArray(cells, axes, ("y", "x"), "labels").rio.write_crs("EPSG:4326")


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """What the system says of a full disk, of any file of more bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    compiled, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = compiled


@pytest.mark.parametrize("suffix", [*LAYERS, "nc", "tif"])
def test_a_full_disk_is_said_and_keeps_the_old_file(suffix: str, tmp_path: Path) -> None:
    """Wherever it happens, also while a library closes the file."""
    raster = suffix in ("nc", "tif")
    large, small = labels(LABELS), labels([[1, 2], [3, 4]])
    if raster:
        large = large + np.random.default_rng(1).normal(size=large.shape)
    first, second = (c if raster else og.polygonize(c, parts=True) for c in (small, large))
    path = tmp_path / f"x.{suffix}"
    og.to_file(second, path)
    complete = content(tmp_path)
    size = max(map(len, complete.values()))
    og.to_file(first, path, overwrite=True)
    before = content(tmp_path)
    for limit in (0, 10, 1000, size // 2, size - 4096, size - 200, size - 1):
        with largest_file(limit), pytest.raises(og.StorageFullError, match="bytes free"):
            og.to_file(second, path, overwrite=True)
        assert content(tmp_path) == before
    og.to_file(second, path, overwrite=True)
    assert {name: len(c) for name, c in content(tmp_path).items()} == {
        name: len(c) for name, c in complete.items()
    }


@pytest.mark.parametrize("suffix", [*LAYERS, "nc"])
def test_a_full_disk_is_said_by_runs(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it is the file for which there is no space."""
    path, writer = tmp_path / f"x.{suffix}", "write" if suffix == "nc" else "write_layer"
    write: Callable[..., None] = getattr(FileTarget, writer)

    def run(**options: Any) -> None:
        if suffix == "nc":
            og.fill_depressions(np.random.default_rng(1).normal(size=(60, 60)), **options)
        else:
            og.polygonize(labels(LABELS), parts=True, **options)

    def on_a_full_disk(*given: Any) -> None:
        with largest_file(20_000):
            write(*given)

    with monkeypatch.context() as patch:
        patch.setattr(FileTarget, writer, on_a_full_disk)
        with pytest.raises(og.StorageFullError):
            run(out=path)
    assert not path.exists()
    run(out=path, **({"resume": True} if suffix == "nc" else {}))
    assert {other.stem for other in tmp_path.iterdir()} == {"x"}


def test_what_a_format_cannot_hold_is_refused(tmp_path: Path) -> None:
    areas = og.polygonize(labels([[1, 2], [3, 4]]))
    mixed = np.array([areas.geometry[0], areas.geometry[1].centroid], object)
    with pytest.raises(og.InputError, match=r"x\.shp cannot hold the layer .*such as \.gpkg"):
        og.VectorLayer(mixed, {}, areas.crs).to_file(tmp_path / "x.shp")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("suffix", ["shp", "SHP", "gml"])
def test_a_format_leaves_no_other_files(suffix: str, tmp_path: Path) -> None:
    og.polygonize(labels([[1, 2], [1, 2]])).to_file(tmp_path / f"x.{suffix}")
    others = set() if suffix == "gml" else {"x.shx", "x.dbf", "x.prj", "x.cpg"}
    assert set(os.listdir(tmp_path)) == {f"x.{suffix}"} | others


def areas_of(path: Path) -> list[int]:
    return sorted(geopandas.read_file(path)["label"])


KILLED_AT_A_MOVE = """
import os, sys
from test_write import labels
import orograph as og

path, moves = sys.argv[1], int(sys.argv[2])
new = og.polygonize(labels([[3, 4, 5], [3, 4, 5]]))
move, made = os.replace, 0

def replace(source, target):
    global made
    if made == moves:
        os._exit(9)
    made += 1
    move(source, target)

os.replace = replace
new.to_file(path, overwrite=True)
"""


@pytest.mark.parametrize("moves", range(12))
def test_a_shapefile_is_replaced_whole(
    moves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error after any move brings the old files back; a kill leaves no mixture."""
    folder = tmp_path / "layer"
    folder.mkdir()
    path = folder / "x.shp"
    og.polygonize(labels([[1, 2], [1, 2]])).to_file(path)
    (folder / "x.qix").write_bytes(b"index of the old one")
    before, made = content(folder), 0
    new = og.polygonize(labels([[3, 4, 5], [3, 4, 5]]))
    move: Any = os.replace

    def replace(source: Any, target: Any) -> None:
        nonlocal made
        here = folder in Path(target).parents  # other threads of this process may move files too
        made += here
        if here and made == moves + 1:
            raise KeyboardInterrupt
        move(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace)
        if moves < 11:  # 6 old files, 5 new ones
            with pytest.raises(KeyboardInterrupt):
                new.to_file(path, overwrite=True)
            assert content(folder) == before
    if moves < 11:
        program = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})"
        killed = start_program(
            program + KILLED_AT_A_MOVE, Path(__file__), tmp_path, tmp_path / "said", path, moves
        )
        killed.join()
        assert killed.exitcode == 9, (tmp_path / "said").read_text()
        assert not path.exists() or areas_of(path) == [1, 2]
        hidden = [kept for kept in folder.iterdir() if kept.is_dir()]
        assert path.exists() or any(kept.rglob("*.shp") for kept in hidden)
    new.to_file(path, overwrite=True)
    assert areas_of(path) == [3, 4, 5]
    assert not (folder / "x.qix").exists()


def test_an_old_projection_does_not_stay_beside_a_shapefile_without_one(tmp_path: Path) -> None:
    og.polygonize(labels([[1, 2], [1, 2]])).to_file(tmp_path / "x.shp")
    og.polygonize(np.array([[1, 2]])).to_file(tmp_path / "x.shp", overwrite=True)
    assert geopandas.read_file(tmp_path / "x.shp").crs is None
