"""The distance problem brings the rasters of a cost model into tiles."""

from __future__ import annotations

import re
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from cuda_on_cpu.emulator import Emulator

import orograph as og
from orograph.distance.problem import Distance
from orograph.engines.frontier.field import cells_on_gpu
from orograph.kernels.backends import get_backend
from orograph.kernels.relax import cuda
from orograph.kernels.relax.models import MODELS, CostModel, edge_lengths
from orograph.kernels.vectors.lanes import LANES
from orograph.run.context import RunContext
from orograph.tiles.grid.quadtree import Node, Quadtree
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import open_raster


@pytest.mark.parametrize("backend", ["numba", "cuda"])
def test_cells_without_a_further_raster_are_barriers(
    backend: str, emulated_gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = replace(MODELS["walk"], needs=("elevation", "cover", "wind"), vectors=None)
    monkeypatch.setitem(MODELS, "walk", row)
    rng = np.random.default_rng(1)
    elevation, wind = rng.random((2, 7, 9))
    cover = rng.integers(1, 5, (7, 9)).astype(np.uint8)
    cover[2, 3], wind[4, 5] = 0, np.nan
    rasters = {
        "elevation": open_raster(elevation),
        "cover": open_raster(cover, nodata=0),
        "wind": open_raster(wind),
    }
    problem = Distance.on_rasters(
        rasters, CostModel("walk"), np.dtype(np.float64), 8, edge_lengths(1), backend=backend
    )
    whole = Window(0, 0, 7, 9)
    place = Quadtree((7, 9), 16).place(Node(0, 0))
    tile = problem.surface(place, [raster.read(whole) for raster in rasters.values()], whole)
    to_host = get_backend(backend).to_host
    inner = np.s_[1:-1, 1:-1]
    barred = (cover == 0) | np.isnan(wind)
    assert np.array_equal(np.isnan(to_host(tile.elevation)[inner]), barred)
    assert np.array_equal(np.isnan(to_host(tile.friction)[inner]), barred)
    for found, expected in zip(tile.further, (np.where(cover, cover, np.nan), wind), strict=True):
        padded = to_host(found)
        assert padded.shape == tile.dist.shape
        assert np.array_equal(padded[inner], expected, equal_nan=True)
        assert np.isnan(padded[0]).all()


def test_further_rasters_are_those_that_the_model_names(monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(MODELS["walk"], needs=("elevation", "cover", "wind"), vectors=None)
    monkeypatch.setitem(MODELS, "walk", row)
    grid = np.ones((3, 4))
    for rasters, says in (
        ({}, "rasters: the model 'walk' needs cover, wind; pass rasters={'cover': ...}"),
        ({"cover": grid, "wind": None}, "rasters: the model 'walk' needs wind; pass"),
        ({"rain": grid}, "rasters: rain unknown for the model 'walk'; it needs cover, wind"),
        ([grid], "it must be a dict of rasters by name"),
        ({"cover": grid, "wind": np.ones((2, 2))}, "wind: 2 x 2 cells, but the first raster has"),
        ({"cover": grid, "wind": grid * 1e308}, "wind: 1e+308 at row 0, column 0; it must be"),
    ):
        with pytest.raises(og.InputError, match=re.escape(says)):
            og.walking_time(grid, [(0, 0)], model="walk", rasters=rasters)
    with pytest.raises(og.InputError, match=r"rasters: wind unknown .*; it needs none"):
        og.walking_time(grid, [(0, 0)], rasters={"wind": grid})
    with pytest.raises(og.InputError, match="cost: 'walk' needs further rasters, cover, wind, "):
        og.DistanceIndex.build(grid, "index.zarr", cost="walk")
    plans = [og.walking_time.plan(og.RasterSpec((64, 64)), model=m) for m in ("walk", "tobler")]
    assert plans[0].memory_kept == plans[1].memory_kept + 2 * 8 * 64 * 64


@pytest.mark.diagonal
@pytest.mark.parametrize("shape", [(256, 256), (8, 2048), (2048, 3), (36, 1024)])
@pytest.mark.parametrize(
    "problem", ["cost_distance", "hop_distance", "walking_time", "walking_time without weights"]
)
def test_a_tile_takes_no_more_gpu_memory_than_is_planned(
    problem: str, shape: tuple[int, int], emulated_gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[int] = []
    before, taken = [], []
    problem, _, few_weights = problem.partition(" ")
    count = cells_on_gpu(Window(0, 0, *shape))

    def watched(name: str, kind: type) -> None:
        function = getattr(kind, name)

        def call(*arguments: Any) -> Any:
            tracemalloc.reset_peak()
            before.append(tracemalloc.get_traced_memory()[0])
            found = function(*arguments)
            taken.append(tracemalloc.get_traced_memory()[1])
            return found

        monkeypatch.setattr(kind, name, call)

    choose = Distance.on_tiles

    def chosen(distance: Distance, context: RunContext) -> Distance:
        if few_weights:
            kept = replace(distance, keep_weights=True).gpu_bytes(count)
            context = replace(context, gpu_memory=kept - 1)
        distance = choose(distance, context)
        planned.append(distance.gpu_bytes(count))
        return distance

    watched("relax", cuda.DeviceTile)
    watched("read_out", cuda.DeviceTile)
    watched("surface", Distance)
    monkeypatch.setattr(Distance, "on_tiles", chosen)
    # four warps at work, so that there are more blocks than have weights
    monkeypatch.setattr(cuda, "AT_WORK", (4, 4))
    monkeypatch.setattr("orograph.distance.problem.MOST_REWEIGHED", 4 * LANES**2)
    cells = np.random.default_rng(0).uniform(1, 5, shape)
    run = getattr(og, problem)
    run(cells[:32, :32], [(2, 3)], backend="cuda")  # imports, and compiles
    before.clear(), taken.clear()
    tracemalloc.start()
    try:
        run(cells, [(shape[1] // 2, shape[0] // 2)], backend="cuda", tile=max(shape))
    finally:
        tracemalloc.stop()
    assert len(taken) >= 3
    # the cells are a view of the array until they are copied to the GPU, to make the surface
    found = max(taken) - before[0]
    # costs from friction are computed where they are needed, not kept for whole blocks
    least = planned[-1] / 2 if min(shape) > 2 * LANES or problem == "walking_time" else 0
    assert least < found < planned[-1]


def test_another_crs_is_named_before_another_shape() -> None:
    """Two rasters of different CRS seldom have the same shape; the CRS is what must be mended."""
    axes = {"y": 5_000_000 - 30.0 * np.arange(6), "x": 600_000 + 30.0 * np.arange(8)}
    dem = xr.DataArray(np.zeros((6, 8)), axes, ("y", "x")).rio.write_crs("EPSG:32632")
    friction = (dem + 1).rio.reproject("EPSG:4326")
    with pytest.raises(og.InputError, match=r"friction: its CRS is WGS 84, .*rio\.reproject_match"):
        og.walking_time(dem, [(600_090, 4_999_940)], friction=friction)
