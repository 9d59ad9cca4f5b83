"""Kernels of sweeps take cells that a GPU has decoded, and find in them what Numba finds."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.device_array import DeviceArray
from cuda_on_cpu.emulator import Emulator

import orograph as og
from orograph.engines.parts import read_cells
from orograph.engines.quadtree_pass import GPU_BYTES_A_CELL
from orograph.kernels.backends import get_backend
from orograph.kernels.device import TILES_AT_ONCE
from orograph.kernels.stages import kernel
from orograph.run.cluster.clusters import MOST_GPU_THREADS
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.mask import MaskRaster
from orograph.tiles.raster.raster import open_raster

DTYPES = ["bool", "int8", "uint16", "int32", "uint64", "float32", "float64"]
SHAPE = (70, 83)


def cells_of(dtype: str) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(7)
    cells = rng.integers(0, 2 if dtype == "bool" else 90, SHAPE).astype(dtype)
    if cells.dtype.kind == "f":
        cells *= np.finfo(dtype).smallest_subnormal
        cells[10:20, 30:50] = np.nan
    return cells


@pytest.mark.parametrize("dtype", DTYPES)
def test_cells_in_the_memory_of_a_gpu(dtype: str, emulated_gpu: Emulator) -> None:
    cells = cells_of(dtype)
    there = emulated_gpu.upload(cells)
    assert isinstance(there, DeviceArray)

    def both(stage: str, *arguments: Any) -> tuple[Any, Any]:
        found = kernel(stage, "cuda")(there, *arguments)
        return found, kernel(stage, "numba")(cells, *arguments)

    found, expected = both("find_components", 3, 8)
    for name in ("rows", "size", "box"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    first = (tile.labels.first_cells(tile.first) for tile in (found, expected))
    np.testing.assert_array_equal(*first)
    everywhere = np.arange(cells.size)
    np.testing.assert_array_equal(found.labels.at(everywhere), expected.labels.at(everywhere))
    if dtype == "bool":  # no heights
        return
    for stage, arguments in (
        ("tile_forest", (3, (True, False, True, True))),
        ("tile_basins", (3, 8)),
    ):
        found, expected = both(stage, *arguments)
        for one, other in zip(*(vars_of(tile) for tile in (found, expected)), strict=True):
            np.testing.assert_array_equal(one, other)
    basins = kernel("tile_basins", "numba")(cells, 3, 8)
    levels = np.arange(basins.pits.size + 1).astype(dtype)
    raised = kernel("raise_cells", "cuda")(there, basins.labels, levels)
    expected = kernel("raise_cells", "numba")(cells, basins.labels, levels)
    np.testing.assert_array_equal(get_backend("cuda").to_host(raised), expected)


def test_tiles_of_threads_take_no_more_memory_than_is_allowed(emulated_gpu: Emulator) -> None:
    """Each thread holds the cells that it has read, or cells and result; three compute."""
    heights = np.random.default_rng(2).random((512, 512))
    there = emulated_gpu.upload(heights)
    tracemalloc.start()
    try:

        def taken(stage: str, *arguments: Any) -> tuple[Any, float]:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            found = kernel(stage, "cuda")(*arguments)
            return found, (tracemalloc.get_traced_memory()[1] - before) / heights.size

        sides = (True, True, True, True)
        _, forest = taken("tile_forest", there, None, sides, "absolute_difference")
        basins, descent = taken("tile_basins", there, None, 8)
        levels = np.arange(basins.pits.size + 1.0)
        _, raising = taken("raise_cells", there, basins.labels, levels)
    finally:
        tracemalloc.stop()
    cell, threads, allowed = there.itemsize, MOST_GPU_THREADS, GPU_BYTES_A_CELL * MOST_GPU_THREADS
    assert raising > cell  # the result is among it
    for most in (
        threads * cell + TILES_AT_ONCE * max(forest, descent),
        threads * 2 * cell + TILES_AT_ONCE * (raising - cell),
    ):
        assert most < allowed


def vars_of(tile: Any) -> list[Any]:
    return list(tile) if isinstance(tile, tuple) else list(vars(tile).values())


def test_a_gpu_decodes_what_it_can(tmp_path: Any, emulated_gpu: Emulator) -> None:
    cells, window = cells_of("float32"), Window(16, 32, 32, 51)
    store = open_raster(og.ingest(cells, tmp_path / "cells.zarr", tile=16))
    cuda = get_backend("cuda")
    for raster in (store, MaskRaster(store)):
        found = read_cells(cuda, raster, window)
        assert isinstance(found, DeviceArray)
        np.testing.assert_array_equal(cuda.to_host(found), raster.read(window))
        some = np.array([5, 1000, 0])
        np.testing.assert_array_equal(cuda.values_at(found, some), raster.read(window).flat[some])
    for raster, part in ((open_raster(cells), window), (store, Window(1, 0, 16, 16))):
        found = read_cells(cuda, raster, part)
        assert not isinstance(found, DeviceArray)
        np.testing.assert_array_equal(found, raster.read(part))
