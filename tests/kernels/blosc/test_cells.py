"""Rasters whose tiles are decoded and encoded on a device, from store to store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from cuda_on_cpu.emulator import Emulator, find_compiler

import orograph as og
from orograph.engines import parts
from orograph.kernels.blosc import cells as on_device
from orograph.kernels.blosc.cells import Source, Target
from orograph.tiles.format.codec import compress
from orograph.tiles.format.crc32c import crc32c
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.mask import MaskRaster, ValidRaster, decode
from orograph.tiles.store.create import Layout, Variable, create_store
from orograph.tiles.store.raster import StoreRaster
from orograph.tiles.store.sink import StoreSink

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler; install g++")

Array = np.ndarray[Any, Any]
TILE = 32


def stored(path: Path, cells: Array, nodata: float | None = None, shard: int = TILE) -> StoreRaster:
    """A store of some cells, which are its raster."""
    variable = Variable("z", cells.dtype, nodata)
    create_store(path, cells.shape, Layout(TILE, shard), [variable])
    sink, layout = StoreSink(path), Layout(TILE, shard)
    for window in layout.windows(cells.shape):
        sink.write("z", window, cells[window.slices])
    return StoreRaster(path, "z", unfinished=True)


def terrain(shape: tuple[int, int], dtype: str, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.integers(-2, 3, shape), 1).astype(dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64", "int64"])
def test_a_window_of_tiles_is_decoded_to_a_place_in_a_larger_raster(
    dtype: str, tmp_path: Path
) -> None:
    """The last rows and columns have no whole tiles; shards hold one or several."""
    cells = terrain((150, 170), dtype)
    for shard in (TILE, 2 * TILE):
        raster, device = stored(tmp_path / f"{shard}.zarr", cells, shard=shard), Emulator("random")
        window = Window(32, 64, 118, 106)
        there = device.upload(np.full((200, 200), 5, dtype))
        assert decode(raster, window, Target(device, there, 7, 9))
        expected = np.full((200, 200), 5, dtype)
        expected[7:125, 9:115] = cells[window.slices]
        assert device.download(there).tobytes() == expected.tobytes()


def test_which_rasters_are_decoded_on_a_device(tmp_path: Path) -> None:
    """Not those of which a window cuts tiles, or that several others make."""
    cells = terrain((100, 100), "int32")
    raster, device = stored(tmp_path / "a.zarr", cells), Emulator()
    target = Target(device, device.upload(cells))
    assert decode(raster, Window(0, 0, 100, 100), target)
    assert not decode(raster, Window(1, 0, 32, 32), target)
    assert not decode(raster, Window(0, 0, 32, 33), target)
    assert not decode(ValidRaster(raster, (raster,)), Window(0, 0, 100, 100), target)
    assert not decode(og.tiles.raster.raster.open_raster(cells), Window(0, 0, 100, 100), target)


@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_a_mask_is_decoded_as_it_is_read(dtype: str, tmp_path: Path) -> None:
    """Zeros of both signs, subnormal numbers, what is not finite, and nodata."""
    rng = np.random.default_rng(1)
    values = [0, 1, -1, 7, 3]
    if dtype == "float32":
        values += [-0.0, 1e-40, np.nan, np.inf, -np.inf]
    cells = rng.choice(np.array(values, dtype), (70, 90))
    for nodata in (None, 7, 0):
        mask = MaskRaster(stored(tmp_path / f"{nodata}.zarr", cells, nodata))
        device, window = Emulator(), Window(0, 32, 70, 58)
        there = device.upload(np.full(window.shape, 9, np.uint8))
        assert decode(mask, window, Target(device, there))
        np.testing.assert_array_equal(device.download(there), mask.read(window))


def test_shards_that_are_not_there_and_frames_of_other_codecs(tmp_path: Path) -> None:
    cells = terrain((64, 64), "int32")
    path = tmp_path / "a.zarr"
    stored(path, cells, -5)
    (path / "z/c/0/1").unlink()
    # as zarr-python would write it with another compressor, which the metadata do not name
    shard = path / "z/c/1/0"
    frame = compress(np.ascontiguousarray(cells[32:, :32]), 5, 1, 0, "zstd")
    tile = frame + crc32c(frame).to_bytes(4, "little")
    index = np.array([0, len(tile)], "<u8").tobytes()
    shard.write_bytes(tile + index + crc32c(index).to_bytes(4, "little"))
    raster, device = StoreRaster(path, "z", unfinished=True), Emulator()
    there = device.upload(np.zeros((64, 64), np.int32))
    assert decode(raster, Window(0, 0, 64, 64), Target(device, there))
    cells[:32, 32:] = -5
    np.testing.assert_array_equal(device.download(there), cells)


def test_damage_is_named_as_when_the_cpu_reads(tmp_path: Path) -> None:
    """Of a checksum, and within a frame whose checksum is right."""
    cells = terrain((64, 64), "int32")
    path = tmp_path / "a.zarr"
    raster, window = stored(path, cells), Window(0, 0, 64, 64)
    shard = path / "z/c/1/1"
    whole = shard.read_bytes()
    frame = bytearray(whole[: -4 - 16 - 4])
    frame[16:20] = b"\xff\xff\xff\x7f"  # where its first block begins
    index = whole[-20:]
    for content in (
        whole[:50] + b"?" + whole[51:],
        bytes(frame) + crc32c(bytes(frame)).to_bytes(4, "little") + index,
    ):
        shard.write_bytes(content)
        device = Emulator()
        there = device.upload(np.zeros((64, 64), np.int32))
        with pytest.raises(og.DamagedStoreError) as ours:
            decode(raster, window, Target(device, there))
        with pytest.raises(og.DamagedStoreError) as theirs:
            raster.read(window)
        assert type(ours.value) is type(theirs.value)
        assert str(ours.value) == str(theirs.value)
        assert "shard (1, 1)" in str(ours.value)


@pytest.mark.parametrize("side", [32, 33])
def test_cells_of_a_device_are_written_as_those_of_the_host(side: int, tmp_path: Path) -> None:
    """Also where there is no kernel for tiles of a side, and at the edges of a grid."""
    cells, device = terrain((150, 130), "float32"), Emulator()
    layout = Layout(side, 2 * side)
    create_store(tmp_path / "a.zarr", cells.shape, layout, [Variable("z", cells.dtype, -1)])
    sink = StoreSink(tmp_path / "a.zarr")
    there = device.upload(np.pad(cells, 3))
    for window in layout.windows(cells.shape):
        inside = Window(window.y + 3, window.x + 3, *window.shape)
        writer = sink.writer("z", window)
        writer.put(window, Source(device, there, inside))
        writer.close()
        assert sink.intact("z", window)
    found = StoreRaster(tmp_path / "a.zarr", "z", unfinished=True).read(Window(0, 0, *cells.shape))
    assert found.tobytes() == cells.tobytes()


RUNS: dict[str, Callable[..., xr.Dataset]] = {
    "forest": og.minimum_spanning_forest,
    "components": lambda cells, **how: og.connected_components(
        cells, outputs=("labels", "component_size"), **how
    ),
    "filling": og.fill_depressions,
    "distances": lambda cells, **how: og.cost_distance(
        cells, [(1, 1)], cell_size=1, dtype="float32", **how
    ),
    "whole distances": lambda cells, **how: og.cost_distance(
        cells, [(1, 1)], cell_size=1, dtype="int64", connectivity=4, **how
    ),
    "hops": lambda cells, **how: og.hop_distance(cells, [(1, 1)], snap=True, **how),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_from_store_to_store(
    name: str, emulated_gpu: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same cells as on the CPU; the GPU has decoded and encoded each tile."""
    monkeypatch.setattr(parts, "PART", 64)  # that there are several
    rng = np.random.default_rng(5)
    cells = 2 * rng.integers(0 if name == "hops" else 1, 5, (150, 200)).astype(np.float32)
    cells[rng.random(cells.shape) < 0.05] = np.nan
    cells[1, 1] = 2
    og.ingest(cells, tmp_path / "in.zarr", tile=TILE)
    counts = {"decode": 0, "encode": 0}
    for kind in counts:
        function = getattr(on_device, f"{kind}_tiles")

        def counted(*given: Any, kind: str = kind, function: Any = function, **named: Any) -> Any:
            counts[kind] += 1
            return function(*given, **named)

        monkeypatch.setattr(on_device, f"{kind}_tiles", counted)
    run = RUNS[name]
    with og.config.set(field=2048):  # distances in one tile, which is read in parts
        expected = run(tmp_path / "in.zarr", out=tmp_path / "cpu.zarr", backend="numba")
        assert counts == {"decode": 0, "encode": 0}
        found = run(tmp_path / "in.zarr", out=tmp_path / "gpu.zarr", backend="cuda")
    assert counts["encode"] > 0
    # whole numbers are checked by a CPU
    assert (counts["decode"] > 0) == (name != "whole distances")
    for variable in expected:
        ours, theirs = found[variable].values, expected[variable].values
        assert ours.dtype == theirs.dtype
        assert ours.tobytes() == theirs.tobytes()
    og.verify(tmp_path / "gpu.zarr")


def test_costs_that_the_device_does_not_accept_are_named(
    emulated_gpu: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART", 64)
    cells = np.ones((150, 200), np.float32)
    cells[130, 17] = -1
    og.ingest(cells, tmp_path / "in.zarr", tile=TILE)
    there = og.config.set(field=2048)
    with there, pytest.raises(og.InputError, match="row 130, column 17"):
        og.cost_distance(
            tmp_path / "in.zarr", [(1, 1)], cell_size=1, out=tmp_path / "o.zarr", backend="cuda"
        )
