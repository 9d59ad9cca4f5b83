"""Shards as bytes: the same as zarr-python's, and read back by themselves, tile by tile."""

from __future__ import annotations

import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numcodecs import Blosc

from orograph.tiles.errors import DamagedChunkError
from orograph.tiles.grid.window import Window
from orograph.tiles.local_storage import LocalStorage
from orograph.tiles.store import shard, sink
from orograph.tiles.store.create import Layout, Variable, create_store
from orograph.tiles.store.decoded_cache import DecodedTileCache
from orograph.tiles.store.publish import publish
from orograph.tiles.store.raster import StoreRaster
from orograph.tiles.store.shard import (
    ShardEncoder,
    ShardFormat,
    read_tiles,
    shard_format,
    stored_format,
)
from orograph.tiles.store.sink import StoreSink

DTYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]
FILLS = {"u": [None, 0, 7, "max"], "i": [None, -7, "min"], "f": [None, np.nan, -9999.0, -0.0]}


def metadata(path: Path) -> dict[str, Any]:
    return json.loads((path / "z/zarr.json").read_bytes())


def form_of(path: Path) -> ShardFormat:
    form = shard_format(metadata(path))
    assert form is not None
    return form


def cells_of(shape: tuple[int, int], dtype: str, seed: int = 0) -> np.ndarray:
    """Noise beside plains, so that some tiles shrink and some do not; NaN of its own among them."""
    random = np.random.default_rng(seed)
    cells = random.integers(0, 256, (*shape, np.dtype(dtype).itemsize), "u1").view(dtype)[..., 0]
    cells[: shape[0] // 2] = cells[0, 0]
    return np.ascontiguousarray(cells)


def by_zarr(
    monkeypatch: pytest.MonkeyPatch, path: Path, window: Window, cells: np.ndarray
) -> bytes:
    """The bytes that zarr-python makes of a shard."""
    side = form_of(path).shard
    key = f"c/{window.y // side}/{window.x // side}"
    with monkeypatch.context() as patch:
        patch.setattr(sink, "shard_format", lambda document: None)
        document = json.loads((path / "z/zarr.json").read_bytes())
        return b"".join(sink.encode_shard(document, window, key, cells, "z"))


def encode(cells: np.ndarray, form: ShardFormat) -> bytes:
    """The bytes of a shard, its tiles given in the order of another curve."""
    encoder, side = ShardEncoder(form), form.tile
    for x in range(0, cells.shape[1], side):
        for y in reversed(range(0, cells.shape[0], side)):
            encoder.put(y // side, x // side, cells[y : y + side, x : x + side])
    return b"".join(encoder.parts())


def make(
    path: Path, cells: np.ndarray, layout: Layout, fill: Any = None, finished: bool = True
) -> Path:
    partial = path.with_name(path.name + ".partial")
    create_store(partial, cells.shape, layout, [Variable("z", cells.dtype, fill)])
    for window in layout.windows(cells.shape):
        StoreSink(partial).write("z", window, cells[window.slices])
    if not finished:
        return partial
    publish(partial, path)
    return path


@pytest.fixture
def no_zarr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens an array with zarr-python fails."""

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("zarr-python was asked")

    monkeypatch.setattr(zarr, "open_array", refuse)


# --- writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_shards_are_those_of_zarr_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    bounds = np.iinfo(dtype) if dtype[0] != "f" else None
    for number, fill in enumerate(FILLS[dtype[0]]):
        if bounds is not None and isinstance(fill, str):
            fill = getattr(bounds, fill)
        # Several tiles a shard, ragged at both edges; the last column of shards is one tile wide.
        cells, layout = cells_of((70, 41), dtype, number), Layout(9, 36)
        path = create_store(
            tmp_path / str(number), cells.shape, layout, [Variable("z", dtype, fill)]
        )
        form = form_of(path)
        for window in layout.windows(cells.shape):
            part = cells[window.slices]
            expected = by_zarr(monkeypatch, path, window, part)
            assert encode(part, form) == expected, (fill, window)
            assert encode(np.asfortranarray(part), form) == expected
            assert encode(part.astype(part.dtype.newbyteorder(">")), form) == expected


@pytest.mark.parametrize("tiles", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_shards_of_any_number_of_tiles_are_those_of_zarr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiles: int, dtype: str
) -> None:
    layout = Layout(5, 5 * tiles)
    for number, shape in enumerate([(5 * tiles, 5 * tiles), (5 * tiles - 1, 3), (1, 5 * tiles)]):
        cells = cells_of(shape, dtype, number)
        path = create_store(tmp_path / str(number), shape, layout, [Variable("z", dtype, 1)])
        window = Window(0, 0, *shape)
        assert encode(cells, form_of(path)) == by_zarr(monkeypatch, path, window, cells)


def test_large_tiles_and_tiles_of_nothing_but_fill_values_are_those_of_zarr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(512, 1024)  # Blosc cuts them into several blocks
    smooth = np.add.outer(np.arange(1024.0), np.arange(900.0)).astype("f4")
    arrays = [smooth, np.full((1024, 900), -1, "f4"), cells_of((1024, 900), "f4")]
    path = create_store(tmp_path / "a", (1024, 900), layout, [Variable("z", "f4", -1)])
    for cells in arrays:
        window = Window(0, 0, 1024, 900)
        content = encode(cells, form_of(path))
        assert content == by_zarr(monkeypatch, path, window, cells)
        index = np.frombuffer(content[-68:-4], "<u8")
        assert (index != shard.ABSENT).all()  # fill values or not


def test_stores_are_written_and_read_without_zarr(tmp_path: Path, no_zarr: None) -> None:
    cells = cells_of((40, 37), "i4")
    path = make(tmp_path / "a", cells, Layout(4, 16))
    np.testing.assert_array_equal(StoreRaster(path).read(Window(0, 0, 40, 37)), cells)


# --- reading -------------------------------------------------------------------------------------


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_window_reads_the_bits_that_zarr_reads(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    tile = data.draw(st.integers(1, 9), "tile")
    layout = Layout(tile, tile * 2 ** data.draw(st.integers(0, 3), "k"))
    most = 3 * layout.shard
    shape = data.draw(st.tuples(st.integers(1, most), st.integers(1, most)), "shape")
    dtype = data.draw(st.sampled_from(DTYPES), "dtype")
    fill = data.draw(st.sampled_from([None, 3]), "fill")
    cells = cells_of(shape, dtype)
    path = create_store(
        tmp_path_factory.mktemp("store") / "a", shape, layout, [Variable("z", dtype, fill)]
    )
    # By zarr-python and as it likes: shards and tiles of nothing but fill values are left out.
    array = zarr.open_array(path / "z", mode="r+")
    blank = data.draw(st.integers(0, most), "blank")
    cells[:blank] = array.fill_value
    array[...] = cells
    raster = StoreRaster(path, unfinished=True)
    for _ in range(4):
        y, x = data.draw(st.integers(0, shape[0] - 1)), data.draw(st.integers(0, shape[1] - 1))
        height = data.draw(st.integers(1, shape[0] - y))
        window = Window(y, x, height, data.draw(st.integers(1, shape[1] - x)))
        with monkeypatch.context() as patch:
            patch.setattr(zarr, "open_array", None)  # none of it by zarr-python
            patch.setattr(shard, "RANGE_BYTES", data.draw(st.sampled_from([0, 100, 2**23])))
            read = raster.read(window)
        assert read.flags.c_contiguous
        assert read.dtype == np.dtype(dtype)
        assert read.tobytes() == cells[window.slices].tobytes()


def test_only_the_index_and_the_tiles_of_the_window_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "a", cells_of((64, 64), "f4"), Layout(8, 64))
    file = path / "z/c/0/0"
    size = file.stat().st_size
    index = np.frombuffer(file.read_bytes()[-(16 * 64 + 4) : -4], "<u8").reshape(8, 8, 2)
    asked: list[tuple[int, int]] = []
    preadv = os.preadv

    def watched(fd: int, buffers: list[np.ndarray], offset: int) -> int:
        asked.append((offset, buffers[0].nbytes))
        return preadv(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", watched)
    monkeypatch.setattr(shard, "TILE_CACHE", DecodedTileCache(0))
    raster = StoreRaster(path)
    end = (size - 16 * 64 - 8, 16 * 64 + 8)  # with the checksum of the last tile
    raster.read(Window(17, 33, 2, 3))
    assert asked == [end, tuple(index[2, 4])]
    asked.clear()
    raster.read(Window(0, 0, 64, 64))  # tiles without gaps: one read of all
    assert asked == [end, (0, end[0] + 4)]
    asked.clear()
    raster.read(Window(32, 0, 32, 32))  # a quarter of a shard is one piece along the curve
    assert asked == [end, (int(index[4, 0, 0]), int(index[4:, :4, 1].sum()))]
    asked.clear()
    raster.read(Window(0, 0, 1, 32))  # after each of these tiles lies one of the next row
    pairs = [(int(index[0, at, 0]), int(index[0, at, 1])) for at in range(4)]
    assert asked == [end, *pairs]
    asked.clear()
    monkeypatch.setattr(shard, "RANGE_BYTES", int(index[:2, :2, 1].sum()))
    raster.read(Window(0, 0, 32, 32))  # at most so many bytes at a time
    assert asked[:2] == [end, (0, shard.RANGE_BYTES)]
    assert max(length for _, length in asked[1:]) <= shard.RANGE_BYTES


def test_short_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = cells_of((20, 20), "i2")
    path = make(tmp_path / "a", cells, Layout(4, 32))
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, b, offset: preadv(fd, [b[0][:7]], offset))
    np.testing.assert_array_equal(StoreRaster(path).read(Window(0, 0, 20, 20)), cells)


def test_a_shard_without_a_file_reads_as_fill_values(tmp_path: Path) -> None:
    path = create_store(tmp_path / "a", (8, 8), Layout(4, 8), [Variable("z", "i2", -7)])
    form = pickle.loads(pickle.dumps(form_of(path)))
    out = np.zeros((3, 2), "i2")
    assert read_tiles(LocalStorage(path), "z/c/0/0", form, Window(2, 3, 3, 2), out) is out
    assert (out == -7).all()
    assert (read_tiles(LocalStorage(path), "z/c/0/0", form, Window(0, 0, 8, 8)) == -7).all()


def test_threads_read_one_shard_side_by_side(tmp_path: Path) -> None:
    cells = cells_of((256, 256), "f8")
    raster = StoreRaster(make(tmp_path / "a", cells, Layout(64, 256)))
    windows = [Window(y, x, 50, 60) for y in range(0, 200, 20) for x in range(0, 190, 20)]
    with ThreadPoolExecutor(8) as pool:
        for window, read in zip(windows, pool.map(raster.read, windows), strict=True):
            assert read.tobytes() == cells[window.slices].tobytes()


# --- damage --------------------------------------------------------------------------------------


def rewritten(path: Path, change: Any, row: int, column: int) -> None:
    """Change a tile or its place in the index of 2 x 2, and make every checksum good again."""
    content = path.read_bytes()
    body, index = content[:-68], np.frombuffer(content[-68:-4], "<u8").reshape(2, 2, 2).copy()
    body = change(body, index[row, column])
    checksum = google_crc32c.value(index.tobytes()).to_bytes(4, "little")
    path.write_bytes(body + index.tobytes() + checksum)


def _other_cells(body: bytes, place: np.ndarray) -> bytes:
    tile = Blosc("lz4", 5).encode(np.zeros(15, "f4"))
    tile += google_crc32c.value(tile).to_bytes(4, "little")
    place[:] = len(body), len(tile)
    return body + tile


def _no_blosc(body: bytes, place: np.ndarray) -> bytes:
    tile = b"short" + google_crc32c.value(b"short").to_bytes(4, "little")
    place[:] = len(body), len(tile)
    return body + tile


def _beyond(body: bytes, place: np.ndarray) -> bytes:
    place[1] += 10_000
    return body


def _nowhere(body: bytes, place: np.ndarray) -> bytes:
    place[0] = shard.ABSENT
    return body


def _of_three_bytes(body: bytes, place: np.ndarray) -> bytes:
    place[1] = 3
    return body


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(_other_cells, "decode to 60, not to 64", id="a tile of other cells"),
        pytest.param(_no_blosc, "5 bytes are no Blosc chunk", id="a tile that is no Blosc chunk"),
        pytest.param(_beyond, "beyond the .* bytes of tiles", id="a tile beyond the end"),
        pytest.param(_nowhere, "beyond the .* bytes of tiles", id="a tile half absent"),
        pytest.param(_of_three_bytes, "3 bytes, fewer than its checksum", id="a tile too short"),
    ],
)
def test_shards_with_good_checksums_and_bad_contents_are_reported(
    tmp_path: Path, change: Any, message: str
) -> None:
    cells = cells_of((8, 8), "f4")
    # a finished store states its checksums, and another shard is refused before it is read
    path = make(tmp_path / "a", cells, Layout(4, 8), finished=False)
    rewritten(path / "z/c/0/0", change, 1, 0)
    raster = StoreRaster(path, unfinished=True)
    sent = rf"c/0/0: tile \(1, 0\) of z, chunk \(1, 0\) of shard .* cannot be read: .*{message}"
    with pytest.raises(DamagedChunkError, match=sent):
        raster.read(Window(0, 0, 8, 8))
    assert raster.read(Window(0, 0, 4, 8)).tobytes() == cells[:4].tobytes()


def test_a_damaged_index_and_a_shard_cut_short_are_told_apart(tmp_path: Path) -> None:
    path = make(tmp_path / "a", cells_of((8, 8), "f4"), Layout(4, 8))
    file = path / "z/c/0/0"
    content = file.read_bytes()
    file.write_bytes(content[:-30] + b"?" + content[-29:])
    with pytest.raises(DamagedChunkError, match="checksum of the index do not match"):
        StoreRaster(path).read(Window(0, 0, 1, 1))
    file.write_bytes(content[:50])
    with pytest.raises(DamagedChunkError, match="50 bytes, fewer than its index, 68: cut short"):
        StoreRaster(path).read(Window(0, 0, 1, 1))


# --- which rasters -------------------------------------------------------------------------------


def decodings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the tiles that are decoded from now on, as they are."""
    from numcodecs import blosc

    sizes: list[int] = []
    decompress = blosc.decompress

    def watched(content: np.ndarray, out: np.ndarray) -> Any:
        sizes.append(out.nbytes)
        return decompress(content, out)

    monkeypatch.setattr(blosc, "decompress", watched)
    return sizes


def test_tiles_read_with_a_halo_are_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = cells_of((64, 64), "f4")
    raster = StoreRaster(make(tmp_path / "a", cells, Layout(8, 32)))
    monkeypatch.setattr(shard, "TILE_CACHE", DecodedTileCache(2**22))
    sizes = decodings(monkeypatch)
    for y in range(0, 64, 8):
        for x in range(0, 64, 8):
            frame = Window(y - 1, x - 1, 10, 10).clip((64, 64))
            assert raster.read(frame).tobytes() == cells[frame.slices].tobytes()
    assert len(sizes) == 64


def test_tiles_at_a_ragged_edge_are_not_kept_when_they_are_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []

    class Watched(DecodedTileCache):
        def put(self, state: Any, begin: int, cells: np.ndarray) -> None:
            kept.append(begin)

    monkeypatch.setattr(shard, "TILE_CACHE", Watched(2**22))
    cells = cells_of((61, 43), "f4")
    raster = StoreRaster(make(tmp_path / "a", cells, Layout(8, 32)))
    for y in range(0, 61, 8):
        for x in range(0, 43, 8):
            frame = Window(y, x, 8, 8).clip((61, 43))
            assert raster.read(frame).tobytes() == cells[frame.slices].tobytes()
    assert kept == []
    for part in (Window(56, 40, 5, 2), Window(57, 40, 4, 3), Window(55, 39, 6, 4)):
        kept.clear()
        raster.read(part)
        assert kept, part


def test_a_shard_replaced_under_its_name_is_decoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "TILE_CACHE", DecodedTileCache(2**20))
    first = cells_of((64, 64), "f4")
    second = np.ascontiguousarray(first[::-1])
    path = make(tmp_path / "a", first, Layout(8, 32), finished=False)
    other = make(tmp_path / "b", second, Layout(8, 32), finished=False)
    window = Window(3, 3, 20, 20)
    raster = StoreRaster(path, unfinished=True)
    assert raster.read(window).tobytes() == first[window.slices].tobytes()
    os.replace(other / "z/c/0/0", path / "z/c/0/0")
    assert raster.read(window).tobytes() == second[window.slices].tobytes()


def test_sides_of_large_tiles_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one decoding of a tile for itself, and one for those around it."""
    cells = cells_of((256, 256), "f8")
    raster = StoreRaster(make(tmp_path / "a", cells, Layout(64, 128)))
    monkeypatch.setattr(shard, "TILE_CACHE", DecodedTileCache(15 * 64 * 64 * 8))
    sizes = decodings(monkeypatch)
    for y in range(0, 256, 64):
        for x in range(0, 256, 64):
            frame = Window(y - 2, x - 2, 68, 68).clip((256, 256))
            assert raster.read(frame).tobytes() == cells[frame.slices].tobytes()
    assert len(sizes) < 2 * 16


def test_decoded_tiles_are_kept_up_to_a_limit_the_latest_longest() -> None:
    tiles = DecodedTileCache(64 * 288)  # room for 48 of them, and for the sides of 32
    state, part = (1, 2, 3, 4), Window(2, 2, 2, 3)
    cells = [np.full((6, 6), n, np.int64) for n in range(50)]
    for n in range(48):
        tiles.put(state, n, cells[n])

    def known(n: int) -> bool:
        found = tiles.get(state, n, 6, part)
        return found is not None and found.shape == (2, 3) and bool((found == n).all())

    assert known(0)  # used now, so it outlives its elders
    tiles.put(state, 48, cells[48])
    assert [n for n in range(49) if known(n)] == [0, *range(2, 49)]
    assert tiles.get((1, 2, 3, 5), 0, 6, part) is None
    assert tiles.get(state, 1, 6, Window(4, 0, 2, 6)) is None
    last = tiles.get(state, 48, 6, Window(4, 0, 2, 6))
    assert last is not None
    assert (last == 48).all()


def test_of_a_large_tile_its_sides_are_known_and_nothing_else() -> None:
    tiles, state = DecodedTileCache(2**12), (1, 2, 3, 4)
    cells = np.arange(64, dtype=np.int64).reshape(8, 8)
    tiles.put(state, 0, cells)
    for part in (Window(0, 3, 1, 5), Window(6, 0, 2, 8), Window(2, 0, 5, 2), Window(7, 7, 1, 1)):
        found = tiles.get(state, 0, 8, part)
        assert found is not None
        assert np.array_equal(found, cells[part.slices])
    assert tiles.get(state, 0, 8, Window(3, 3, 1, 1)) is None
    assert tiles.get(state, 0, 8, Window(0, 0, 3, 8)) is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_rasters_of_a_store_are_read_here(tmp_path: Path, dtype: str) -> None:
    path = create_store(tmp_path / "a", (9, 7), Layout(2, 4), [Variable("z", dtype, 5)])
    form = stored_format(LocalStorage(path), "z")
    assert form is not None
    assert (form.shape, form.tile, form.shard, form.tiles) == ((9, 7), 2, 4, 2)
    assert form.dtype == np.dtype(dtype)
    assert form.fill == 5


def test_a_raster_replaced_under_its_name_is_looked_at_again(tmp_path: Path) -> None:
    folder = create_store(tmp_path / "a", (9, 7), Layout(2, 4), [Variable("z", "f4")]) / "z"
    assert stored_format(LocalStorage(folder.parent), "z") is not None
    document = json.loads((folder / "zarr.json").read_bytes())
    document["codecs"][0]["configuration"]["index_location"] = "start"
    (folder / "new.json").write_text(json.dumps(document))
    os.replace(folder / "new.json", folder / "zarr.json")
    assert stored_format(LocalStorage(folder.parent), "z") is None


def _sharding(document: dict[str, Any]) -> dict[str, Any]:
    return document["codecs"][0]["configuration"]


ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
TRANSPOSE = {"name": "transpose", "configuration": {"order": [1, 0]}}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda d: _sharding(d)["codecs"].__setitem__(1, ZSTD), id="zstd"),
        pytest.param(lambda d: _sharding(d)["codecs"].__setitem__(0, BIG), id="big endian"),
        pytest.param(lambda d: _sharding(d)["codecs"].insert(0, TRANSPOSE), id="transposed"),
        pytest.param(lambda d: _sharding(d)["codecs"].pop(), id="tiles without a checksum"),
        pytest.param(lambda d: _sharding(d)["codecs"].pop(1), id="no compression"),
        pytest.param(lambda d: _sharding(d)["index_codecs"].pop(), id="no checksum of the index"),
        pytest.param(lambda d: _sharding(d).update(index_location="start"), id="index at start"),
        pytest.param(lambda d: _sharding(d).update(chunk_shape=[4, 2]), id="oblong tiles"),
        pytest.param(
            lambda d: d.update(codecs=_sharding(d)["codecs"]), id="no shards, tiles in files"
        ),
        pytest.param(lambda d: d.update(fill_value="0x7fc00001"), id="another NaN"),
        pytest.param(
            lambda d: d["chunk_key_encoding"]["configuration"].update(separator="."), id="flat keys"
        ),
        pytest.param(lambda d: d.update(chunk_key_encoding={"name": "v2"}), id="keys of version 2"),
    ],
)
def test_whatever_is_encoded_otherwise_is_left_to_zarr(tmp_path: Path, change: Any) -> None:
    path = create_store(tmp_path / "a", (8, 8), Layout(2, 4), [Variable("z", "f4", 1)])
    document = metadata(path)
    assert shard_format(document) is not None
    change(document)
    (path / "z/zarr.json").write_text(json.dumps(document))
    assert shard_format(document) is None
    # Zarr itself knows every one of them.
    cells = cells_of((8, 8), "f4")
    zarr.open_array(path / "z", mode="r+")[...] = cells
    assert zarr.open_array(path / "z", mode="r")[...].tobytes() == cells.tobytes()


@pytest.mark.parametrize("change", [ZSTD, None], ids=["zstd", "no compression"])
def test_a_store_with_another_codec_is_written_and_read_by_zarr(
    tmp_path: Path, change: Any
) -> None:
    cells, layout = cells_of((20, 13), "f4"), Layout(4, 8)
    path = create_store(tmp_path / "a.partial", cells.shape, layout, [Variable("z", "f4", 1)])
    document = metadata(path)
    _sharding(document)["codecs"][1:2] = [] if change is None else [change]
    (path / "z/zarr.json").write_text(json.dumps(document))
    for window in layout.windows(cells.shape):
        StoreSink(path).write("z", window, cells[window.slices])
    publish(path, tmp_path / "a")
    raster = StoreRaster(tmp_path / "a")
    for window in (Window(0, 0, 20, 13), Window(3, 5, 9, 7)):
        assert raster.read(window).tobytes() == cells[window.slices].tobytes()
    file = tmp_path / "a/z/c/1/0"
    content = bytearray(file.read_bytes())
    content[3] ^= 1
    file.write_bytes(content)
    sent = r"c/1/0: tile \(2, 0\) of z, chunk \(0, 0\) of shard \(1, 0\), rows 8 .*checksum"
    with pytest.raises(DamagedChunkError, match=sent):
        raster.read(Window(0, 0, 20, 13))
