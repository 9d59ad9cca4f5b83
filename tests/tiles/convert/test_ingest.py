"""Ingest: what goes in comes out, nothing half done is taken for done, memory stays bounded."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import rasterio
import rioxarray
import xarray as xr
from affine import Affine

from orograph.tiles.convert import ingest as ingesting
from orograph.tiles.convert.ingest import ingest
from orograph.tiles.errors import InputError, StorageFullError, StoreExistsError
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import FileRaster, StoreRaster, open_raster
from orograph.tiles.store.dataset import open as open_dataset
from orograph.tiles.store.publish import partial_path
from orograph.tiles.store.sink import StoreSink


def write_tiff(path: Path, cells: np.ndarray, **options: Any) -> Path:
    profile = {
        "driver": "GTiff",
        "count": 1,
        "height": cells.shape[0],
        "width": cells.shape[1],
        "dtype": cells.dtype,
        "transform": Affine(10, 0, 500, 0, -10, 900),
        "crs": "EPSG:32611",
    }
    with rasterio.open(path, "w", **(profile | options)) as target:
        target.write(cells, 1)
    return path


def terrain(shape: tuple[int, int], dtype: str = "f4") -> np.ndarray:
    return (np.random.default_rng(0).random(shape) * 200).astype(dtype)


def as_json(attrs: dict[str, Any]) -> dict[str, Any]:
    """Attributes as a store keeps them: tuples are lists."""
    return json.loads(json.dumps(attrs))


def assert_same_raster(ours: xr.DataArray, theirs: xr.DataArray) -> None:
    """Bit for bit, with the place on the map and the nodata value."""
    assert ours.dtype == theirs.dtype
    assert ours.values.tobytes() == np.ascontiguousarray(theirs.values).tobytes()
    assert ours.y.values.tobytes() == theirs.y.values.tobytes()
    assert ours.x.values.tobytes() == theirs.x.values.tobytes()
    assert as_json(ours.spatial_ref.attrs) == as_json(theirs.spatial_ref.attrs)
    assert ours.rio.crs == theirs.rio.crs
    assert ours.rio.transform() == theirs.rio.transform()
    np.testing.assert_equal(ours.rio.nodata, theirs.rio.nodata)


@pytest.mark.parametrize(
    "name",
    [
        "nc_eno",
        "nc_fortbragg_2012",
        "nc_fortbragg_2016",
        "srtm_bigtujunga30m_utm11",
        "med_01_01",
        "california_clipped_500x500",
    ],
)
def test_real_rasters_come_out_as_they_went_in(
    shared_data: Path, tmp_path: Path, name: str
) -> None:
    path = shared_data / "dem" / f"{name}.tif"
    theirs = rioxarray.open_rasterio(path).squeeze("band", drop=True)
    for source, store in ((path, "file"), (theirs, "array"), (theirs.chunk(200), "lazy")):
        ours = ingest(source, tmp_path / store, tile=64)
        assert ours.chunks == open_dataset(tmp_path / store)[ours.name].chunks
        assert_same_raster(ours, theirs)
        # And for a reader who knows nothing of us.
        raw = xr.open_zarr(tmp_path / store, mask_and_scale=False)[ours.name]
        assert_same_raster(raw, theirs)


def test_a_large_real_raster_comes_out_as_it_went_in(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "dem" / "moon_5120x5120.tif"
    ours = ingest(path, tmp_path / "moon.zarr")
    assert ours.name == "elevation"
    assert ours.chunks == ((4096, 1024), (4096, 1024))
    raster = StoreRaster(tmp_path / "moon.zarr")
    assert (raster.tile, raster.shard, raster.nodata) == (1024, 4096, -32768)
    with rasterio.open(path) as dataset:
        window = Window(0, 0, 5120, 5120)
        np.testing.assert_array_equal(raster.read(window), dataset.read(1))


def test_nodata_and_nan_stay_in_their_cells(tmp_path: Path) -> None:
    cells = terrain((20, 30))
    cells[3, 4], cells[5, 6], cells[7, 8], cells[9, 9] = np.nan, -3.4e38, np.inf, -0.0
    path = write_tiff(tmp_path / "a.tif", cells, nodata=float(np.float32(-3.4e38)))
    ours = ingest(path, tmp_path / "a.zarr", tile=8)
    assert ours.values.tobytes() == cells.tobytes()
    assert ours.attrs["_FillValue"] == np.float32(-3.4e38)


def test_a_raster_without_nodata_is_given_none(tmp_path: Path) -> None:
    ours = ingest(terrain((5, 5), "i2"), tmp_path / "a.zarr", tile=2)
    assert "_FillValue" not in ours.attrs
    assert ours.rio.nodata is None


def test_masked_cells_become_nodata_and_nothing_else_does(tmp_path: Path) -> None:
    heights = np.arange(-10, 20, dtype="i4").reshape(5, 6)
    masked = np.ma.masked_where(heights % 7 == 0, heights)
    ours = ingest(masked, tmp_path / "a.zarr", tile=2, nodata=-9999)
    np.testing.assert_array_equal(ours, np.where(heights % 7 == 0, -9999, heights))
    with pytest.raises(InputError, match="pass nodata="):
        ingest(masked, tmp_path / "b.zarr", tile=2)
    assert not (tmp_path / "b.zarr").exists()
    assert not partial_path(tmp_path / "b.zarr").exists()


def test_names_and_attributes_are_kept(tmp_path: Path) -> None:
    source = xr.DataArray(
        terrain((6, 5)),
        {"lat": np.arange(6.0), "lon": np.arange(5.0)},
        ("lat", "lon"),
        "height",
        {"units": "m", "levels": np.array([1, 2]), "standard_name": "surface_altitude"},
    )
    ours = ingest(source, tmp_path / "a.zarr", tile=2)
    assert ours.name == "height"
    assert ours.dims == ("lat", "lon")
    assert ours.attrs == {"units": "m", "levels": [1, 2], "standard_name": "surface_altitude"}
    again = ingest(tmp_path / "a.zarr", tmp_path / "b.zarr", tile=4)  # a store is a source too
    xr.testing.assert_identical(again.compute(), ours.compute())
    whole = xr.Dataset({"height": source, "depth": -source})
    depth = ingest(whole, tmp_path / "c.zarr", tile=4, variable="depth")
    np.testing.assert_array_equal(depth, -source)


def test_a_raster_without_a_name_is_elevation(tmp_path: Path) -> None:
    assert ingest(terrain((3, 3)), tmp_path / "a.zarr", tile=2).name == "elevation"
    chunked = xr.DataArray(da.from_array(terrain((3, 3))), dims=("y", "x"))
    assert ingest(chunked, tmp_path / "b.zarr", tile=2).name == "elevation"


@pytest.mark.parametrize(
    ("layout", "small", "expected"),
    [
        pytest.param({}, False, [(0, 0, 64, 100), (64, 0, 36, 100)], id="strips: whole rows"),
        pytest.param(
            {"tiled": True, "blockxsize": 16, "blockysize": 16},
            False,
            [(0, 0, 64, 64), (0, 64, 64, 36), (64, 0, 36, 64), (64, 64, 36, 36)],
            id="blocks: shards",
        ),
        pytest.param(
            {"tiled": True, "blockxsize": 16, "blockysize": 16},
            True,
            [(0, 0, 64, 100), (64, 0, 36, 100)],
            id="blocks of a small row: whole rows",
        ),
    ],
)
def test_each_cell_is_read_once_in_the_pieces_the_file_has(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layout: dict[str, Any],
    small: bool,
    expected: list[tuple[int, ...]],
) -> None:
    if not small:
        monkeypatch.setattr(ingesting, "BAND_BYTES", 0)
    cells = terrain((100, 100))
    path = write_tiff(tmp_path / "a.tif", cells, **layout)
    seen: list[Window] = []
    plain = FileRaster.read

    def read(self: FileRaster, window: Window) -> Any:
        seen.append(window)
        return plain(self, window)

    monkeypatch.setattr(FileRaster, "read", read)
    ours = ingest(path, tmp_path / "a.zarr", tile=16, shard=64)
    assert seen == [Window(*place) for place in expected]
    np.testing.assert_array_equal(ours, cells)


def test_blocks_of_a_lazy_source_are_computed_once(tmp_path: Path) -> None:
    cells = terrain((100, 70))
    computed: list[Any] = []

    def block(block_info: Any = None) -> np.ndarray:
        where = block_info[None]["array-location"]
        computed.append(where)
        return cells[tuple(slice(*ends) for ends in where)]

    chunks = ((16,) * 6 + (4,), (32, 32, 6))
    lazy = da.map_blocks(block, chunks=chunks, dtype="f4", meta=np.empty((0, 0), "f4"))
    ours = ingest(xr.DataArray(lazy, dims=("y", "x")), tmp_path / "a.zarr", tile=16, shard=32)
    assert len(computed) == 21
    np.testing.assert_array_equal(ours, cells)


PEAK = """
import resource, sys
import dask.array as da, numpy as np, xarray as xr
import orograph.tiles.store.lazy
from orograph.tiles.convert.ingest import ingest
side = int(sys.argv[2])
lazy = da.full((side, side), 1.5, chunks=500, dtype="f8")
lazy = xr.DataArray(lazy, dims=("y", "x"))
ingest(lazy[:2000, :2000], sys.argv[1] + "-small", tile=250, shard=500)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ingest(lazy, sys.argv[1], tile=250, shard=500)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_stays_far_below_the_raster(tmp_path: Path) -> None:
    side = 8000  # 512 MB; a row of shards is 32 MB
    done = subprocess.run(
        [sys.executable, "-c", PEAK, tmp_path / "a", str(side)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) * 1024 < side * side * 8 / 3
    assert float(open_dataset(tmp_path / "a").elevation[-1, -1]) == 1.5


KILLED = """
import os, signal, sys
import numpy as np
from orograph.tiles.convert import ingest as ingesting
from orograph.tiles.store.sink import StoreSink
class Dying(StoreSink):
    written = 0
    def write(self, *args):
        if Dying.written == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        Dying.written += 1
        super().write(*args)
ingesting.StoreSink = Dying
ingesting.ingest(np.load(sys.argv[1]), sys.argv[2], tile=8, shard=16, overwrite=True)
"""


@pytest.mark.parametrize("existing", [False, True], ids=["of a new store", "over an old store"])
def test_a_killed_ingest_is_never_taken_for_finished(tmp_path: Path, existing: bool) -> None:
    cells, store = terrain((50, 50)), tmp_path / "a.zarr"
    np.save(tmp_path / "cells.npy", cells)
    old = terrain((9, 9), "i2")
    if existing:
        ingest(old, store, tile=4)
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "cells.npy", store])
    assert done.returncode == -signal.SIGKILL
    partial = partial_path(store)
    (staged,) = partial.iterdir()
    assert len(list(staged.glob("elevation/c/*/*"))) == 5
    with pytest.raises(InputError, match="is unfinished"):
        open_raster(staged)
    if existing:
        np.testing.assert_array_equal(open_dataset(store).elevation, old)
    else:
        with pytest.raises(InputError, match=r"a\.zarr\.partial does: it was never finished"):
            open_raster(store)
    np.testing.assert_array_equal(ingest(cells, store, tile=8, overwrite=existing), cells)
    assert not partial.exists()


def test_a_full_disk_leaves_only_a_partial_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = os.replace

    def full(source: Any, target: Any) -> None:
        if "c/1" in str(target):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        plain(source, target)

    cells, store = terrain((20, 20)), tmp_path / "a.zarr"
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(StorageFullError, match="bytes free"):
            ingest(cells, store, tile=4, shard=8)
    assert os.listdir(tmp_path) == ["a.zarr.partial"]
    np.testing.assert_array_equal(ingest(cells, store, tile=4, shard=8), cells)


def test_an_existing_store_is_replaced_only_on_demand(tmp_path: Path) -> None:
    store = tmp_path / "a.zarr"
    first, second = terrain((9, 9)), terrain((12, 5), "i4")
    ingest(first, store, tile=4)
    with pytest.raises(StoreExistsError, match="overwrite=True"):
        ingest(second, store, tile=4)
    np.testing.assert_array_equal(open_dataset(store).elevation, first)
    np.testing.assert_array_equal(ingest(second, store, tile=4, overwrite=True), second)
    assert os.listdir(tmp_path) == ["a.zarr"]


def test_something_else_under_the_partial_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.zarr.partial").mkdir()
    (tmp_path / "a.zarr.partial" / "notes.txt").write_text("mine")
    with pytest.raises(StoreExistsError, match="no unfinished store; move it away"):
        ingest(terrain((3, 3)), tmp_path / "a.zarr", tile=2)
    assert (tmp_path / "a.zarr.partial" / "notes.txt").read_text() == "mine"


def test_sources_are_never_written(tmp_path: Path) -> None:
    source = tmp_path / "source.zarr"
    ingest(terrain((9, 9)), source, tile=4)
    file = write_tiff(source / "inside.tif", terrain((4, 4)))
    (tmp_path / "link").symlink_to(source)
    for given, store in (
        (source, source),
        (source, tmp_path / "link" / "inner.zarr"),
        (open_dataset(source).elevation, source),
        (open_dataset(source).elevation[1:], source / "inner.zarr"),
        (file, source),
        (rioxarray.open_rasterio(file), source),
    ):
        with pytest.raises(InputError, match="sources are never written"):
            ingest(given, store, tile=2, overwrite=True)
    np.testing.assert_array_equal(open_dataset(source).elevation, terrain((9, 9)))
    # What is computed from a store lies in memory or in new files, and may replace it.
    doubled = open_dataset(source).elevation * 2
    again = ingest(doubled, source, tile=4, overwrite=True)
    np.testing.assert_array_equal(again, 2 * terrain((9, 9)))


@pytest.mark.diagonal
@pytest.mark.parametrize("shape", [(1, 1), (1, 37), (37, 1), (3, 50)], ids=str)
@pytest.mark.parametrize("tile", [1, 4, 64])
def test_thin_and_tiny_grids(tmp_path: Path, shape: tuple[int, int], tile: int) -> None:
    cells = terrain(shape, "f8")
    ours = ingest(cells, tmp_path / "a.zarr", tile=tile)
    np.testing.assert_array_equal(ours, cells)
    window = Window(0, 0, *shape)
    np.testing.assert_array_equal(StoreRaster(tmp_path / "a.zarr").read(window), cells)


def test_a_layout_that_cannot_be_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="shard=6: it must be tile=4 times a power of two"):
        ingest(terrain((9, 9)), tmp_path / "a.zarr", tile=4, shard=6)
    assert os.listdir(tmp_path) == []


def test_the_sink_of_an_ingest_is_told_of_trouble_in_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiff(tmp_path / "a.tif", terrain((64, 64)), compress="deflate")
    os.truncate(path, path.stat().st_size // 2)
    written: list[Window] = []
    monkeypatch.setattr(StoreSink, "write", lambda self, name, window, _: written.append(window))
    with pytest.raises(OSError, match=r"a\.tif: band 1.*cannot be read"):
        ingest(path, tmp_path / "a.zarr", tile=4, shard=64)
    assert written == []
    assert not (tmp_path / "a.zarr").exists()
