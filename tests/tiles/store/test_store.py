"""Stores: their layout on disk, damage, full disks, and who may write what at once."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reseal import reseal

from orograph.kernels import device as cuda
from orograph.tiles import local_storage
from orograph.tiles.arrays import use_allocator
from orograph.tiles.convert.ingest import ingest
from orograph.tiles.errors import (
    BackendError,
    DamagedChunkError,
    InputError,
    StorageFullError,
    StoreExistsError,
)
from orograph.tiles.files import TEMPORARY
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import StoreRaster
from orograph.tiles.store.create import (
    Layout,
    TableWriter,
    Variable,
    create_store,
    update_attributes,
)
from orograph.tiles.store.dataset import open as open_dataset
from orograph.tiles.store.publish import check_target, partial_path, publish
from orograph.tiles.store.sink import ArraySink, StoreSink

NOWHERE = 2**64 - 1


def fill(path: Path, layout: Layout, arrays: dict[str, np.ndarray]) -> None:
    sink = StoreSink(path)
    for name, cells in arrays.items():
        for window in layout.windows(cells.shape):
            sink.write(name, window, cells[window.slices])


def make_store(
    path: Path, cells: np.ndarray, layout: Layout, nodata: Any = None, **options: Any
) -> Path:
    partial = partial_path(path)
    create_store(partial, cells.shape, layout, [Variable("z", cells.dtype, nodata)], **options)
    fill(partial, layout, {"z": cells})
    publish(partial, path)
    return path


def noise(shape: tuple[int, int], dtype: str = "f4", seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random(shape) * 200).astype(dtype)


# --- layout --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "dtype", "tile", "expected"),
    [
        pytest.param((100_000, 90_000), "f4", 1024, (1024, 4096), id="large"),
        pytest.param((100_000, 90_000), "f8", 1024, (1024, 2048), id="large, of 8 bytes"),
        pytest.param((100_000, 90_000), "f4", 4096, (4096, 4096), id="large tiles"),
        pytest.param((100_000, 90_000), "f4", 8192, (8192, 8192), id="tiles beyond a shard"),
        pytest.param((100_000, 90_000), "f4", 1000, (1000, 4000), id="tiles of 1000"),
        pytest.param((100_000, 90_000), "f4", 64, (64, 1024), id="small tiles, 16 a side"),
        pytest.param((1500, 900), "f4", 1024, (1024, 2048), id="no larger than the grid needs"),
        pytest.param((500, 900), "f4", 1024, (1024, 1024), id="a grid smaller than a tile"),
        pytest.param((1, 3000), "f4", 1024, (1024, 4096), id="a line"),
    ],
)
def test_default_layout(shape, dtype: str, tile: int, expected: tuple[int, int]) -> None:
    layout = Layout.default(shape, dtype, tile)
    assert (layout.tile, layout.shard) == expected


@pytest.mark.parametrize(
    ("tile", "shard", "message"),
    [
        (0, 4, "tile=0: it must be 1 to 8192"),
        (-1, None, "tile=-1: it must be 1 to 8192"),
        (4, 12, r"shard=12: it must be tile=4 times a power of two, such as 4, 8 or 16"),
        (4, 6, "shard=6"),
        (4, 2, "shard=2"),
        (4, 0, "shard=0"),
        (20_000, None, "tile=20000: it must be 1 to 8192"),
        (2.5, None, "tile=2.5: it must be a whole number"),
    ],
)
def test_layouts_that_are_none_are_refused(tile: int, shard: int | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Layout.default((10, 10), "f4", tile, shard)


def shard_index(path: Path, tiles_a_side: int) -> np.ndarray:
    """Offset and length of every inner chunk, decoded by the specification of the format."""
    tail = path.read_bytes()[-(16 * tiles_a_side**2 + 4) :]
    index, checksum = tail[:-4], tail[-4:]
    assert google_crc32c.value(index) == int.from_bytes(checksum, "little")
    return np.frombuffer(index, "<u8").reshape(tiles_a_side, tiles_a_side, 2)


def morton(row: int, column: int) -> int:
    return sum(
        ((row >> bit) & 1) << (2 * bit) | ((column >> bit) & 1) << (2 * bit + 1)
        for bit in range(16)
    )


def test_tiles_lie_in_a_shard_in_morton_order_without_gaps(tmp_path: Path) -> None:
    make_store(tmp_path / "a.zarr", noise((40, 40)), Layout(4, 32))
    index = shard_index(tmp_path / "a.zarr/z/c/0/0", 8)
    order = sorted(np.ndindex(8, 8), key=lambda at: index[at][0])
    assert order == sorted(np.ndindex(8, 8), key=lambda at: morton(*at))
    offsets = [int(index[at][0]) for at in order]
    ends = [int(index[at].sum()) for at in order]
    assert offsets == [0, *ends[:-1]]
    # The four quarters of the shard, and the quarters of those, are each in one piece.
    for side in (2, 4):
        for y in range(0, 8, side):
            for x in range(0, 8, side):
                ranks = [order.index((y + i, x + j)) for i, j in np.ndindex(side, side)]
                assert max(ranks) - min(ranks) == side * side - 1


def test_shards_at_the_edge_hold_only_tiles_that_meet_the_grid(tmp_path: Path) -> None:
    make_store(tmp_path / "a.zarr", noise((40, 37)), Layout(4, 32))
    index = shard_index(tmp_path / "a.zarr/z/c/1/1", 8)
    present = index[..., 0] != NOWHERE
    assert present[:2, :2].all()
    assert present.sum() == 4


def test_shards_of_nothing_but_fill_values_are_written_too(tmp_path: Path) -> None:
    path = make_store(tmp_path / "a.zarr", np.zeros((8, 8), "u1"), Layout(2, 4))
    assert (shard_index(path / "z/c/1/1", 2)[..., 0] != NOWHERE).all()


def test_every_tile_is_followed_by_its_crc32c(tmp_path: Path) -> None:
    make_store(tmp_path / "a.zarr", noise((8, 8)), Layout(4, 8))
    content = (tmp_path / "a.zarr/z/c/0/0").read_bytes()
    for offset, length in shard_index(tmp_path / "a.zarr/z/c/0/0", 2).reshape(-1, 2).astype(int):
        chunk = content[offset : offset + length]
        assert google_crc32c.value(chunk[:-4]) == int.from_bytes(chunk[-4:], "little")


# --- what others see -----------------------------------------------------------------------------


def test_xarray_opens_a_store_without_a_warning(tmp_path: Path) -> None:
    place = Georeference(
        np.arange(10, 0, -1.0), np.arange(9.0), crs_wkt=None, y_attrs={"units": "m"}
    )
    cells = noise((10, 9))
    cells[2, 3] = -9999
    path = make_store(
        tmp_path / "a.zarr", cells, Layout(4, 8), -9999, georeference=place, attrs={"title": "t"}
    )
    theirs = xr.open_zarr(path)  # a warning would be an error here
    np.testing.assert_array_equal(theirs.z, np.where(cells == -9999, np.nan, cells))
    np.testing.assert_array_equal(theirs.y, place.y)
    assert theirs.y.attrs == {"units": "m"}
    assert theirs.z.dims == ("y", "x")
    assert theirs.attrs["title"] == "t"
    assert "spatial_ref" in theirs.coords
    assert theirs.z.encoding["chunks"] == (4, 4)
    assert theirs.z.encoding["shards"] == (8, 8)
    raw = xr.open_zarr(path, mask_and_scale=False)
    assert raw.z.attrs["_FillValue"] == -9999
    assert zarr.open_group(path, mode="r")["z"].metadata.zarr_format == 3


@pytest.mark.parametrize(
    ("dtype", "nodata"),
    [
        pytest.param("f4", -3.4028234663852886e38, id="the lowest float32"),
        pytest.param("f8", np.nan, id="NaN"),
        pytest.param("f4", -np.inf, id="an infinity"),
        pytest.param("i2", -32768, id="an int16"),
        pytest.param("i8", -(2**63), id="the lowest int64"),
        pytest.param("u8", 2**64 - 1, id="the highest uint64"),
        pytest.param("u1", 0, id="zero"),
        pytest.param("i4", None, id="none"),
    ],
)
def test_fill_values_are_kept_exactly(tmp_path: Path, dtype: str, nodata: Any) -> None:
    cells = np.arange(12).reshape(3, 4).astype(dtype)
    path = make_store(tmp_path / "a.zarr", cells, Layout(2, 2), nodata)
    assert repr(StoreRaster(path).nodata) == repr(nodata)
    ours = open_dataset(path).z
    assert ours.dtype == dtype
    theirs = xr.open_zarr(path, mask_and_scale=False).z
    if nodata is None:
        assert "_FillValue" not in ours.attrs
        assert "_FillValue" not in theirs.attrs
        assert ours.rio.nodata is None
    else:
        found = {**ours.encoding, **ours.attrs}  # NaN is in the encoding
        np.testing.assert_equal(found["_FillValue"], np.dtype(dtype).type(nodata))
        np.testing.assert_equal(theirs.attrs["_FillValue"], nodata)
        np.testing.assert_equal(ours.rio.nodata, np.dtype(dtype).type(nodata))


def test_datasets_are_lazy_and_chunked_by_shards_or_tiles(tmp_path: Path) -> None:
    cells = noise((20, 11))
    path = make_store(tmp_path / "a.zarr", cells, Layout(4, 8))
    assert open_dataset(path).z.chunks == ((8, 8, 4), (8, 3))
    tiles = open_dataset(path, chunks="tile").z
    assert tiles.chunks == ((4,) * 5, (4, 4, 3))
    for opened in (open_dataset(path).z, tiles):
        np.testing.assert_array_equal(opened, cells)
        np.testing.assert_array_equal(opened[::-2, 3], cells[::-2, 3])
        np.testing.assert_array_equal(opened[5:2, :], cells[5:2, :])
        np.testing.assert_array_equal(opened[[7, 0, 19], -1], cells[[7, 0, 19], -1])
        again = pickle.loads(pickle.dumps(opened))
        np.testing.assert_array_equal(again, cells)
    assert open_dataset(path).z.data.name == open_dataset(path).z.data.name
    with pytest.raises(InputError, match="chunks='rows': it must be 'shard' or 'tile'"):
        open_dataset(path, chunks="rows")


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_window_of_any_layout_reads_what_was_written(tmp_path_factory, data) -> None:
    shape = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 40)), "shape")
    tile = data.draw(st.integers(1, 12), "tile")
    shard = tile * 2 ** data.draw(st.integers(0, 2), "k")
    while 5 * shard < max(shape):  # few files, for the sake of time
        shard *= 2
    layout = Layout(tile, shard)
    dtype = data.draw(st.sampled_from(["u1", "i2", "f4", "f8", "i8"]), "dtype")
    blank = data.draw(st.booleans(), "blank")
    cells = np.zeros(shape, dtype) if blank else noise(shape, dtype)
    path = make_store(tmp_path_factory.mktemp("store") / "a.zarr", cells, layout)
    raster = StoreRaster(path)
    for _ in range(4):
        y, x = data.draw(st.integers(0, shape[0] - 1)), data.draw(st.integers(0, shape[1] - 1))
        window = Window(
            y,
            x,
            data.draw(st.integers(1, shape[0] - y)),
            data.draw(st.integers(1, shape[1] - x)),
        )
        read = raster.read(window)
        assert read.flags.c_contiguous
        np.testing.assert_array_equal(read, cells[window.slices])
    np.testing.assert_array_equal(xr.open_zarr(path, mask_and_scale=False).z, cells)


# --- names and attributes ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["y", "x", "spatial_ref", "a/b", "", ".hidden", "__x"])
def test_names_that_cannot_be_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="rename it"):
        create_store(tmp_path / "a", (2, 2), Layout(2, 2), [Variable(name, "f4")])
    assert not (tmp_path / "a").exists()


def test_two_variables_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'z' is taken"):
        create_store(tmp_path / "a", (2, 2), Layout(2, 2), [Variable("z", "f4")] * 2)


def test_empty_grids_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="0 x 2 cells; at least 1 x 1"):
        create_store(tmp_path / "a", (0, 2), Layout(2, 2), [Variable("z", "f4")])


def test_attributes_can_be_added_to_a_finished_store(tmp_path: Path) -> None:
    path = make_store(tmp_path / "a.zarr", noise((4, 4)), Layout(2, 2), -1.0)
    before = StoreRaster(path).fingerprint()
    update_attributes(path, "z", {"total_weight": np.float64(1.5), "trees": np.int64(7)})
    update_attributes(path, None, {"history": ("made", "changed")})
    theirs = xr.open_zarr(path, mask_and_scale=False)
    assert theirs.z.attrs == {"_FillValue": -1.0, "total_weight": 1.5, "trees": 7}
    assert theirs.attrs["history"] == ["made", "changed"]
    assert open_dataset(path).z.attrs["trees"] == 7
    assert StoreRaster(path).fingerprint() == before
    with pytest.raises(InputError, match=r"the store itself keeps \['_FillValue'\]"):
        update_attributes(path, "z", {"_FillValue": 3})
    with pytest.raises(InputError, match="no w there"):
        update_attributes(path, "w", {"a": 1})


def test_a_store_of_several_variables_asks_for_one(tmp_path: Path) -> None:
    partial = partial_path(tmp_path / "a")
    variables = [Variable("cost", "f8", np.nan), Variable("allocation", "i4", 0)]
    create_store(partial, (5, 5), Layout(2, 4), variables)
    arrays = {"cost": noise((5, 5), "f8"), "allocation": noise((5, 5), "i4")}
    fill(partial, Layout(2, 4), arrays)
    publish(partial, tmp_path / "a")
    with pytest.raises(InputError, match="cost, allocation; pass variable='cost'"):
        StoreRaster(tmp_path / "a")
    with pytest.raises(InputError, match="no variable 'z'; it has cost, allocation"):
        StoreRaster(tmp_path / "a", "z")
    for name, cells in arrays.items():
        np.testing.assert_array_equal(
            StoreRaster(tmp_path / "a", name).read(Window(0, 0, 5, 5)), cells
        )
        np.testing.assert_array_equal(open_dataset(tmp_path / "a")[name], cells)


# --- writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "message"),
    [
        pytest.param(Window(0, 0, 2, 2), r"not one whole shard of 4 x 4", id="a tile"),
        pytest.param(Window(0, 0, 8, 4), r"not one whole shard", id="two shards"),
        pytest.param(Window(2, 0, 4, 4), r"not one whole shard", id="across shards"),
        pytest.param(
            Window(8, 4, 4, 4),
            r"the one at its corner is .*height=2, width=3",
            id="beyond the grid's edge",
        ),
        pytest.param(Window(12, 0, 4, 4), r"not one whole shard", id="outside"),
    ],
)
def test_only_whole_shards_can_be_written(tmp_path: Path, window: Window, message: str) -> None:
    path = create_store(tmp_path / "a", (10, 7), Layout(2, 4), [Variable("z", "f4")])
    with pytest.raises(InputError, match=message):
        StoreSink(path).write("z", window, np.zeros(window.shape, "f4"))
    assert not (path / "z" / "c").exists()


def test_cells_must_fit_window_and_type(tmp_path: Path) -> None:
    path = create_store(tmp_path / "a", (4, 4), Layout(2, 4), [Variable("z", "f4")])
    with pytest.raises(InputError, match=r"shape \(3, 4\) for a window of \(4, 4\)"):
        StoreSink(path).write("z", Window(0, 0, 4, 4), np.zeros((3, 4), "f4"))
    with pytest.raises(InputError, match="cells of float64 for float32; convert first"):
        StoreSink(path).write("z", Window(0, 0, 4, 4), np.zeros((4, 4)))
    with pytest.raises(FileNotFoundError, match=r"w/zarr\.json"):
        StoreSink(path).write("w", Window(0, 0, 4, 4), np.zeros((4, 4), "f4"))


def test_writing_again_replaces_even_a_damaged_shard(tmp_path: Path) -> None:
    path = create_store(tmp_path / "a", (4, 4), Layout(2, 4), [Variable("z", "f4")])
    sink = pickle.loads(pickle.dumps(StoreSink(path)))
    window = Window(0, 0, 4, 4)
    assert not sink.written("z", window)
    sink.write("z", window, np.zeros((4, 4), "f4"))
    assert sink.written("z", window)
    first = (path / "z/c/0/0").read_bytes()
    (path / "z/c/0/0").write_bytes(b"rubbish")
    sink.write("z", window, np.zeros((4, 4), "f4"))
    assert (path / "z/c/0/0").read_bytes() == first
    sink.write("z", window, np.full((4, 4), 3, ">f4"))
    assert (StoreRaster(path, unfinished=True).read(window) == 3).all()


def test_an_array_sink_keeps_windows() -> None:
    cells = noise((7, 5))
    sink = ArraySink({"z": np.zeros((7, 5), "f4")})
    for window in Layout(1, 2).windows((7, 5)):
        sink.write("z", window, cells[window.slices])
    np.testing.assert_array_equal(sink.arrays["z"], cells)


def _write_every_other(path: Path, layout: Layout, cells: np.ndarray, first: int) -> None:
    for window in list(layout.windows(cells.shape))[first::2]:
        StoreSink(path).write("z", window, cells[window.slices])


def test_processes_write_shards_side_by_side(tmp_path: Path) -> None:
    cells, layout = noise((40, 37)), Layout(4, 8)
    partial = create_store(tmp_path / "a.partial", cells.shape, layout, [Variable("z", "f4")])
    context = multiprocessing.get_context("spawn")
    writers = [
        context.Process(target=_write_every_other, args=(partial, layout, cells, first))
        for first in (0, 1)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    publish(partial, tmp_path / "a")
    np.testing.assert_array_equal(open_dataset(tmp_path / "a").z, cells)


def test_threads_write_and_read_side_by_side(tmp_path: Path) -> None:
    cells, layout = noise((64, 64)), Layout(4, 8)
    partial = create_store(tmp_path / "a.partial", cells.shape, layout, [Variable("z", "f4")])
    windows = list(layout.windows(cells.shape)) * 2  # each shard twice: the same cells
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda w: StoreSink(partial).write("z", w, cells[w.slices]), windows))
        publish(partial, tmp_path / "a")
        raster = StoreRaster(tmp_path / "a")
        parts = list(pool.map(raster.read, windows))
    for window, part in zip(windows, parts, strict=True):
        np.testing.assert_array_equal(part, cells[window.slices])


def _sum_of(raster: StoreRaster, window: Window, messages: Any) -> None:
    messages.put(float(raster.read(window).astype(float).sum()))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_rasters_read_in_child_processes(tmp_path: Path, method: str) -> None:
    cells = noise((16, 16))
    raster = StoreRaster(make_store(tmp_path / "a", cells, Layout(4, 8)))
    raster.read(Window(0, 0, 16, 16))  # the array is open in the parent
    context = multiprocessing.get_context(method)
    messages = context.Queue()
    child = context.Process(target=_sum_of, args=(raster, Window(1, 2, 9, 9), messages))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert messages.get() == cells[1:10, 2:11].astype(float).sum()


# --- publishing ----------------------------------------------------------------------------------


def test_an_unfinished_store_is_never_taken_for_finished(tmp_path: Path) -> None:
    final = tmp_path / "a.zarr"
    partial = partial_path(final)
    assert partial.name == "a.zarr.partial"
    create_store(partial, (4, 4), Layout(2, 4), [Variable("z", "f4")])
    for open_it in (open_dataset, StoreRaster):
        with pytest.raises(InputError, match=r"a\.zarr\.partial does: it was never finished"):
            open_it(final)
        with pytest.raises(InputError, match="is unfinished; resume"):
            open_it(partial)


def test_other_things_are_no_stores(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    xr.Dataset({"z": (("y", "x"), noise((3, 3)))}).to_zarr(tmp_path / "zarr", consolidated=False)
    for name in ("folder", "zarr", "nothing"):
        with pytest.raises(InputError, match=f"{name} is not a store of orograph; make one with"):
            open_dataset(tmp_path / name)


@pytest.mark.parametrize("exchange", [True, False], ids=["by exchange", "by two renames"])
def test_overwriting_swaps_whole_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(local_storage, "exchange", lambda one, other: False)
    final = make_store(tmp_path / "a", noise((4, 4), seed=1), Layout(2, 4))
    old = StoreRaster(final)
    assert old.read(Window(0, 0, 4, 4)).shape == (4, 4)
    partial = partial_path(final)
    create_store(partial, (6, 6), Layout(2, 2), [Variable("z", "i2")])
    fill(partial, Layout(2, 2), {"z": noise((6, 6), "i2")})
    with pytest.raises(StoreExistsError, match="pass overwrite=True to replace it"):
        publish(partial, final)
    np.testing.assert_array_equal(open_dataset(final).z, noise((4, 4), seed=1))
    publish(partial, final, overwrite=True)
    np.testing.assert_array_equal(StoreRaster(final).read(Window(0, 0, 6, 6)), noise((6, 6), "i2"))
    assert os.listdir(tmp_path) == ["a"]


def test_folders_and_files_of_the_user_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("more")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    partial = create_store(tmp_path / "a.partial", (2, 2), Layout(2, 2), [Variable("z", "f4")])
    for name in ("precious", "file", "link"):
        for overwrite in (False, True):
            with pytest.raises(StoreExistsError, match="no Zarr store; it is never overwritten"):
                publish(partial, tmp_path / name, overwrite)
    assert (tmp_path / "precious" / "thesis.txt").read_text() == "years of work"
    assert (tmp_path / "file").read_text() == "more"


def test_targets_are_checked_before_anything_is_done(tmp_path: Path) -> None:
    check_target(tmp_path / "new", overwrite=False)
    with pytest.raises(InputError, match=r"the folder .*missing does not exist; create it first"):
        check_target(tmp_path / "missing" / "new", overwrite=False)
    with pytest.raises(FileNotFoundError, match="nothing to publish"):
        publish(tmp_path / "none.partial", tmp_path / "none")


def test_debris_of_killed_writers_is_swept_away(tmp_path: Path) -> None:
    partial = create_store(tmp_path / "a.partial", (4, 4), Layout(2, 2), [Variable("z", "f4")])
    fill(partial, Layout(2, 2), {"z": noise((4, 4))})
    debris = partial / "z" / "c" / "1" / f".0.123-456{TEMPORARY}"
    debris.write_bytes(b"half a shard")
    publish(partial, tmp_path / "a")
    assert sorted(os.listdir(tmp_path / "a" / "z" / "c" / "1")) == ["0", "1"]


# --- damage --------------------------------------------------------------------------------------


def test_a_flipped_byte_is_reported_with_the_place_of_its_tile(tmp_path: Path) -> None:
    cells = noise((40, 37))
    path = make_store(tmp_path / "a.zarr", cells, Layout(4, 16))
    shard = path / "z/c/1/2"
    offset, length = shard_index(shard, 4)[2, 1].astype(int)
    content = bytearray(shard.read_bytes())
    content[offset + length // 2] ^= 1
    shard.write_bytes(content)
    raster = StoreRaster(path)
    sent = (
        rf"{shard}: tile \(6, 9\) of z, chunk \(2, 1\) of shard \(1, 2\), "
        r"rows 24 to 27, columns 36 to 36, cannot be read: .*checksum.*; restore"
    )
    for window in (Window(24, 36, 1, 1), Window(0, 0, 40, 37), Window(20, 30, 8, 7)):
        with pytest.raises(DamagedChunkError, match=sent):
            raster.read(window)
    with pytest.raises(DamagedChunkError, match=sent):
        open_dataset(path).z.compute(scheduler="synchronous")
    np.testing.assert_array_equal(raster.read(Window(0, 0, 24, 37)), cells[:24])


def test_no_byte_of_a_shard_can_change_unnoticed(tmp_path: Path) -> None:
    path = make_store(tmp_path / "a.zarr", noise((4, 4), "u1"), Layout(2, 4))
    shard = path / "z/c/0/0"
    whole = shard.read_bytes()
    raster = StoreRaster(path)
    for at in range(len(whole)):
        content = bytearray(whole)
        content[at] ^= 0x10
        shard.write_bytes(content)
        with pytest.raises(DamagedChunkError, match="c/0/0"):
            raster.read(Window(0, 0, 4, 4))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        pytest.param(
            Path.unlink,
            r"c/0/1 is missing: shard \(0, 1\) of z, rows 0 to 7, columns 8",
            id="a lost file",
        ),
        pytest.param(lambda shard: os.truncate(shard, 0), r"c/0/1 is empty", id="an empty file"),
        pytest.param(
            lambda shard: os.truncate(shard, 40),
            r"c/0/1: tile \(0, 2\) of z",
            id="a file cut short",
        ),
    ],
)
def test_lost_shards_are_reported(
    tmp_path: Path, harm: Callable[[Path], None], message: str
) -> None:
    cells = noise((20, 20))
    path = make_store(tmp_path / "a.zarr", cells, Layout(4, 8))
    harm(path / "z/c/0/1")
    raster = StoreRaster(path)
    for window in (Window(0, 0, 20, 20), Window(0, 8, 2, 2)):
        with pytest.raises(DamagedChunkError, match=message):
            raster.read(window)
    np.testing.assert_array_equal(raster.read(Window(8, 0, 12, 20)), cells[8:])


def test_shards_never_written_read_as_fill_values(tmp_path: Path) -> None:
    partial = create_store(tmp_path / "a.partial", (8, 8), Layout(2, 4), [Variable("z", "i2", -7)])
    StoreSink(partial).write("z", Window(4, 0, 4, 4), np.ones((4, 4), "i2"))
    publish(partial, tmp_path / "a")
    expected = np.full((8, 8), -7)
    expected[4:, :4] = 1
    np.testing.assert_array_equal(StoreRaster(tmp_path / "a").read(Window(0, 0, 8, 8)), expected)
    (tmp_path / "a/z/c/1/0").unlink()
    with pytest.raises(DamagedChunkError, match=r"c/1/0 is missing"):
        StoreRaster(tmp_path / "a").read(Window(0, 0, 8, 8))


class _Full:
    """A CuPy whose device and driver have no memory left."""

    class cuda:
        @staticmethod
        def alloc_pinned_memory(size: int) -> None:
            raise RuntimeError("cudaErrorMemoryAllocation: out of memory")

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: Any) -> None:
        raise MemoryError("Out of memory allocating")


def test_a_gpu_without_memory_is_not_taken_for_a_damaged_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "SMALL", 1)
    device = cuda.CupyDevice.__new__(cuda.CupyDevice)
    device._cupy = _Full
    cells = noise((20, 20))
    raster = StoreRaster(make_store(tmp_path / "a.zarr", cells, Layout(4, 8)))
    message = r"bytes of .* could not be had \(.*; give workers fewer threads, .* backend='numba'"
    with use_allocator(device.host_array), pytest.raises(BackendError, match=message):
        raster.read(Window(0, 0, 20, 20))
    with pytest.raises(BackendError, match=message):
        device.upload(cells)
    np.testing.assert_array_equal(raster.read(Window(0, 0, 20, 20)), cells)


def test_page_locked_memory_is_reused_for_arrays_of_like_sizes() -> None:
    taken: list[int] = []

    class Recorded:
        class cuda:
            @staticmethod
            def alloc_pinned_memory(size: int) -> bytearray:
                taken.append(size)
                return bytearray(size)

    device = cuda.CupyDevice.__new__(cuda.CupyDevice)
    device._cupy = Recorded
    sizes = range(cuda.SMALL, 2 * cuda.SMALL, 65_537)
    for size in sizes:
        assert device.host_array((size // 4,), np.float32).nbytes == size // 4 * 4
    assert all(size // 4 * 4 <= got <= 1.25 * size for size, got in zip(sizes, taken, strict=True))
    assert len(set(taken)) <= 5


# --- full disks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT], ids=errno.errorcode.get)
def test_a_full_disk_is_reported_and_leaves_the_shard_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = create_store(tmp_path / "a.partial", (4, 4), Layout(2, 4), [Variable("z", "f4")])
    sink, window = StoreSink(path), Window(0, 0, 4, 4)
    sink.write("z", window, np.zeros((4, 4), "f4"))
    before = (path / "z/c/0/0").read_bytes()

    def full(source: Any, target: Any) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(StorageFullError, match=r"\d+ bytes free.*resume, or delete") as caught:
            sink.write("z", window, np.ones((4, 4), "f4"))
    assert caught.value.errno == code
    assert caught.value.filename == str(path / "z/c/0/0")
    assert os.listdir(path / "z/c/0") == ["0"]
    assert (path / "z/c/0/0").read_bytes() == before
    sink.write("z", window, np.ones((4, 4), "f4"))
    assert (StoreRaster(path, unfinished=True).read(window) == 1).all()


def test_other_troubles_of_the_disk_keep_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = create_store(tmp_path / "a.partial", (4, 4), Layout(2, 4), [Variable("z", "f4")])

    def denied(source: Any, target: Any) -> None:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(os, "replace", denied)
    with pytest.raises(PermissionError):
        StoreSink(path).write("z", Window(0, 0, 4, 4), np.zeros((4, 4), "f4"))


LIMITED = """
import resource, sys
import numpy as np
from orograph.tiles.errors import StorageFullError
from orograph.tiles.grid.window import Window
from orograph.tiles.store.create import Layout, Variable, create_store
from orograph.tiles.store.sink import StoreSink
path = create_store(sys.argv[1], (256, 512), Layout(128, 256), [Variable("z", "f8")])
sink = StoreSink(path)
cells = np.random.default_rng(0).random((256, 256))
sink.write("z", Window(0, 0, 256, 256), cells)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    sink.write("z", Window(0, 256, 256, 256), cells)
except StorageFullError as error:
    print(error)
"""


def test_a_file_size_limit_is_reported_as_no_room(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path / "a"], capture_output=True, text=True, check=True
    )
    assert "no room to write (File too large" in done.stdout
    assert "z/c/0/1" in done.stdout
    assert os.listdir(tmp_path / "a/z/c/0") == ["0"]
    assert (
        json.loads((tmp_path / "a/zarr.json").read_text())["attributes"]["orograph"]["complete"]
        is False
    )


def test_importing_the_store_loads_nothing_heavy() -> None:
    code = (
        "import sys, orograph.tiles.store.create, orograph.tiles.raster.raster, "
        "orograph.tiles.convert.ingest, orograph.tiles.convert.export\n"
        # not xarray, to which the package itself adds its accessor
        "print({'dask', 'distributed', 'rasterio', 'rioxarray', 'zarr', 'pyproj', "
        "'cupy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_shard_is_written_tile_by_tile_or_not_at_all(tmp_path: Path) -> None:
    path = create_store(tmp_path / "s.zarr", (7, 9), Layout(2, 4), [Variable("z", "f4")])
    cells = np.arange(63, dtype="f4").reshape(7, 9)
    for window in Layout(2, 4).windows((7, 9)):
        writer = StoreSink(path).writer("z", window)
        half = Window(window.y, window.x, window.height, min(2, window.width))
        writer.put(half, cells[half.slices])
        assert not StoreSink(path).written("z", window)
        rest = Window(window.y, window.x + 2, window.height, window.width - 2)
        if rest.width > 0:
            with pytest.raises(InputError, match="were not given"):
                writer.close()
            with pytest.raises(InputError, match="whole tiles"):
                writer.put(Window(window.y, window.x + 1, window.height, 2), cells[:, :2])
            writer.put(rest, cells[rest.slices])
        writer.close()
    np.testing.assert_array_equal(
        StoreRaster(path, unfinished=True).read(Window(0, 0, 7, 9)), cells
    )


@pytest.mark.parametrize(
    ("found", "step"),
    [(99, "a newer one wrote it: update orograph"), (0, "an older one"), (None, "an older one")],
)
def test_a_store_of_another_format_is_refused(found: Any, step: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    ingest(np.eye(3), path)
    reseal(path, lambda document: document["attributes"]["orograph"].update(format=found))
    for read in (open_dataset, StoreRaster):
        with pytest.raises(InputError, match=rf"format {found}, this version .* reads 1; {step}"):
            read(path)


def test_columns_written_in_turns_are_what_zarr_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orograph.tiles.store.create.TABLE_ROWS", 8)
    path = create_store(tmp_path / "a", (4, 4), Layout(2, 4), [Variable("z", "f4")])
    columns = {
        "number": np.arange(21),
        "other": np.arange(21)[::-1],
        "box": np.arange(84).reshape(21, 4) * 3,
        "flag": np.arange(21) % 2 == 0,
        "none": np.empty(0),
    }
    dims = {name: ("row", "side")[: column.ndim] for name, column in columns.items()}
    dims["none"] = ("no",)
    writer = TableWriter(path, dims, {"other": {"units": "m"}})
    for start in range(0, 21, 5):
        for name, column in columns.items():
            writer.append(name, column[start : start + 5])
    for name in columns:
        writer.close(name)
    writer.finish()
    for name, column in columns.items():
        written = zarr.open_array(path / name)
        expected = zarr.create_array(
            tmp_path / "zarr" / name,
            shape=column.shape,
            chunks=(min(8, max(len(column), 1)), *column.shape[1:]),
            dtype=column.dtype,
            compressors=written.compressors,
            fill_value=0,
            dimension_names=dims[name],
            attributes={"units": "m"} if name == "other" else {},
            config={"write_empty_chunks": True},
        )
        expected[...] = column
        assert written.metadata == expected.metadata
        contents = [
            {
                str(f.relative_to(place)): f.read_bytes()
                for f in place.rglob("c/**/*")
                if f.is_file()
            }
            for place in (path / name, tmp_path / "zarr" / name)
        ]
        assert contents[0] == contents[1]
        np.testing.assert_array_equal(written[...], column)
