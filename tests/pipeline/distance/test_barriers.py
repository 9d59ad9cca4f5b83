"""Barriers from rasters and layers: the same as nodata in the same cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from cuda_on_cpu.emulator import Emulator
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from shapely import LineString, Point, box

import orograph as og
from orograph.cli.main import main

SHAPE = (23, 31)
ALL = ("cost", "back_direction", "allocation")
START = [(2, 3), (28, 20)]


def field(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 9, SHAPE).astype(float) * 4


def walls(seed: int = 1) -> np.ndarray:
    """Barriers over a third of the cells, of several values, and none at the sources."""
    rng = np.random.default_rng(seed)
    cells = (rng.random(SHAPE) < 0.3) * rng.integers(1, 200, SHAPE).astype(np.uint8)
    for x, y in START:
        cells[y, x] = 0
    return cells


def barred(raster: np.ndarray, barriers: np.ndarray) -> np.ndarray:
    return np.where(barriers != 0, np.nan, raster)


def same(found: xr.Dataset, expected: xr.Dataset) -> None:
    for name, raster in expected.data_vars.items():
        np.testing.assert_array_equal(found[name], raster)
    assert found.attrs == expected.attrs


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 99),
    tile=st.sampled_from([2, 5, 8, 64]),
    connectivity=st.sampled_from([4, 8, 16]),
    dtype=st.sampled_from(["float64", "float32", "int64"]),
)
def test_barriers_are_as_nodata(seed: int, tile: int, connectivity: int, dtype: str) -> None:
    if dtype == "int64":
        connectivity = 4
    friction, barriers = field(seed), walls(seed + 1)
    how: dict[str, Any] = {"connectivity": connectivity, "dtype": dtype, "outputs": ALL}
    expected = og.cost_distance(barred(friction, barriers), START, **how)
    same(og.cost_distance(friction, START, barriers=barriers, tile=tile, **how), expected)


@pytest.mark.diagonal
@pytest.mark.parametrize("model", ["tobler", "walk"])
@pytest.mark.parametrize("with_friction", [False, True])
def test_barriers_of_walking_times(model: str, with_friction: bool) -> None:
    heights, barriers = field(), walls()
    friction = field(2) if with_friction else None
    outputs = ("time", *ALL[1:])
    how: dict[str, Any] = {"friction": friction, "model": model, "outputs": outputs}
    expected = og.walking_time(barred(heights, barriers), START, **how)
    same(og.walking_time(heights, START, barriers=barriers, tile=8, **how), expected)


def test_barriers_of_height_differences_and_hops() -> None:
    heights, barriers = field(), walls()
    how = {"cost": "absolute_difference", "tile": 8}
    expected = og.cost_distance(barred(heights, barriers), START, **how)
    same(og.cost_distance(heights, START, barriers=barriers, **how), expected)
    mask = heights > 8
    mask[[y for _, y in START], [x for x, _ in START]] = True
    hops = og.hop_distance(mask, START, barriers=barriers, tile=8)
    same(hops, og.hop_distance(mask & (barriers == 0), START))
    assert hops.attrs["impassable_cells"] == np.count_nonzero(~mask | (barriers != 0))


def test_barriers_with_a_raster_of_sources() -> None:
    friction, barriers = field(), walls()
    sources = np.zeros(SHAPE, np.int32)
    sources[3, 2], sources[20, 28] = 7, 9
    sources[np.nonzero(barriers)[0][:5], np.nonzero(barriers)[1][:5]] = 11
    expected = og.cost_distance(barred(friction, barriers), sources, outputs=ALL)
    found = og.cost_distance(friction, sources, barriers=barriers, outputs=ALL, tile=8)
    same(found, expected)
    assert set(np.unique(found["allocation"])) == {-1, 7, 9}


def test_no_path_slips_through_lines_and_areas() -> None:
    """A slanting river and a thin lake cover all cells that they touch, whatever is outside."""
    river = LineString([(-0.5, 4.2), (30.7, 17.9)])
    lake = box(10.1, -0.5, 10.2, 9.0)  # covers the centre of no cell
    far = LineString([(100, 100), (200, 200)])
    cut = np.zeros(SHAPE, bool)
    for geometry in (river, lake):
        for y, x in np.ndindex(SHAPE):
            cut[y, x] |= geometry.intersects(box(x - 0.5, y - 0.5, x + 0.5, y + 0.5))
    for connectivity in (4, 8, 16):
        found = og.cost_distance(
            np.ones(SHAPE), [(2, 2)], barriers=[river, lake, far], connectivity=connectivity
        )
        reached = np.isfinite(found["cost"].values)
        around, _ = ndimage.label(~cut, np.ones((3, 3)))
        assert np.array_equal(reached, around == around[2, 2])
        assert 0 < reached.sum() < (around > 0).sum()
    assert np.isnan(og.cost_distance(np.ones(SHAPE), [(2, 2)], barriers=Point(4, 3))["cost"][3, 4])


def test_a_source_on_a_barrier_is_refused_or_moved() -> None:
    barriers = np.zeros(SHAPE, np.uint8)
    barriers[3, 2] = 1
    with pytest.raises(og.InputError, match=r"sources: .*on nodata or on a barrier"):
        og.cost_distance(field(), START, barriers=barriers)
    moved = og.cost_distance(field(), START, barriers=barriers, snap=True)
    assert np.isnan(moved["cost"].values[3, 2])
    assert (moved["cost"].values[2:5, 1:4] == 0).sum() == 1
    with pytest.raises(og.InputError, match=r"sources: .*on cells that are not passable"):
        og.hop_distance(np.ones(SHAPE), START, barriers=barriers)


def test_a_link_leads_over_barriers() -> None:
    import pandas as pd

    barriers = np.zeros((3, 5), np.uint8)
    barriers[:, 2] = 1
    edges = pd.DataFrame({"source": [5], "target": [9], "weight": [3.0]})
    bridge = og.read_graph(edges, directed=False)
    flat = np.ones((3, 5))
    how: dict[str, Any] = {"barriers": barriers, "outputs": ("cost", "back_direction")}
    alone = og.cost_distance(flat, [(0, 1)], **how)
    assert np.isnan(alone["cost"].values[:, 2:]).all()
    linked = og.cost_distance(flat, [(0, 1)], links=bridge, **how)
    assert linked["cost"].values[1].tolist()[3:] == [4.0, 3.0]
    (path,) = og.least_cost_path(linked, [(3, 1)])
    assert path.cells.tolist() == [[1, 3], [1, 4], [1, 0]]
    on_it = og.read_graph(edges.assign(target=7), directed=False)
    with pytest.raises(og.InputError, match="links: "):
        og.cost_distance(flat, [(0, 1)], links=on_it, **how)


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_an_index_holds_barriers(dtype: str, tmp_path: Path) -> None:
    friction, barriers = field(), walls()
    whole = dtype == "int64"
    how: dict[str, Any] = {"connectivity": 4 if whole else 8, "dtype": dtype}
    build: dict[str, Any] = {"block": 4, "levels": 1, **how}
    index = og.DistanceIndex.build(friction, tmp_path / "a.zarr", barriers=barriers, **build)
    plain = barred(friction, barriers)
    same_index = og.DistanceIndex.build(plain, tmp_path / "b.zarr", **build)
    found = index.query(START)["cost"]
    assert np.array_equal(found, same_index.query(START)["cost"], equal_nan=True)
    expected = og.cost_distance(friction, START, barriers=barriers, **how)["cost"]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert index.fingerprint != same_index.fingerprint
    planned = og.DistanceIndex.build.plan(friction, barriers=barriers, **build)
    assert planned.bytes_written == index.bytes_uncompressed
    assert planned.bytes_read > og.DistanceIndex.build.plan(friction, **build).bytes_read
    window = (5, 5, 4, 6)
    index.update(window, friction[5:9, 5:11])
    plain[5:9, 5:11] = friction[5:9, 5:11]
    lifted = og.cost_distance(plain, START, **how)["cost"]
    np.testing.assert_allclose(index.query(START)["cost"], lifted, rtol=1e-12)


def test_barriers_in_files_and_on_workers(tmp_path: Path, client: Client) -> None:
    friction, barriers = field(), walls()
    expected = og.cost_distance(friction, START, barriers=barriers)
    axes = {"y": np.arange(23.0), "x": np.arange(31.0)}
    og.to_geotiff(xr.DataArray(barriers, axes, ("y", "x")), tmp_path / "walls.tif")
    og.to_geotiff(xr.DataArray(friction, axes, ("y", "x")), tmp_path / "friction.tif")
    found = og.cost_distance(
        str(tmp_path / "friction.tif"),
        START,
        barriers=str(tmp_path / "walls.tif"),
        tile=8,
        out=tmp_path / "cost.zarr",
        client=client,
    )
    assert np.array_equal(found["cost"], expected["cost"], equal_nan=True)
    layer = LineString([(0, 11), (30, 11)])
    on_workers = og.cost_distance(
        friction, START, barriers=layer, tile=8, out=tmp_path / "line.zarr", client=client
    )
    cut = friction.copy()
    cut[11] = np.nan
    assert np.array_equal(on_workers["cost"], og.cost_distance(cut, START)["cost"], equal_nan=True)


def test_the_command_takes_a_vector_file(tmp_path: Path) -> None:
    friction = field()
    axes = {"y": -np.arange(23.0), "x": np.arange(31.0)}
    placed = xr.DataArray(friction, axes, ("y", "x")).rio.write_crs("EPSG:4326")
    og.ingest(placed, tmp_path / "friction.zarr")
    wall = {"type": "LineString", "coordinates": [[0, -11], [30, -11]]}
    (tmp_path / "wall.geojson").write_text(json.dumps(wall))
    line = ["cost", str(tmp_path / "friction.zarr"), str(tmp_path / "cost.zarr"), "--workers", "1"]
    line += ["--point", "2", "-3", "--cell-size", "1"]
    line += ["--barriers", str(tmp_path / "wall.geojson")]
    with pytest.raises(og.InputError, match="barriers: "):
        og.cost_distance(friction, START, barriers=str(tmp_path / "none.geojson"))
    assert main(line) == 0
    friction[11] = np.nan
    expected = og.cost_distance(friction, START[:1])["cost"]
    assert np.array_equal(og.open(tmp_path / "cost.zarr")["cost"], expected, equal_nan=True)


def test_other_barriers_are_another_run(tmp_path: Path) -> None:
    """An unfinished run is not gone on with by other barriers."""
    friction, barriers = field(), walls()
    first = og.cost_distance.describe(friction, START, barriers=barriers)
    again = og.cost_distance.describe(friction, START, barriers=barriers.copy())
    other = og.cost_distance.describe(friction, START, barriers=walls(5))
    none = og.cost_distance.describe(friction, START)
    assert first.identity() == again.identity()
    assert len({str(job.identity()) for job in (first, other, none)}) == 3


@pytest.mark.diagonal
@pytest.mark.parametrize("kind", ["raster", "layer"])
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_a_gpu_gives_the_same_bits(kind: str, dtype: str, emulated_gpu: Emulator) -> None:
    barriers: Any = walls() if kind == "raster" else LineString([(0, 9), (30, 12)])
    how: dict[str, Any] = {"barriers": barriers, "connectivity": 4, "dtype": dtype, "tile": 8}
    expected = og.cost_distance(field(), START, outputs=ALL, backend="numba", **how)
    assert emulated_gpu.launches == 0
    same(og.cost_distance(field(), START, outputs=ALL, backend="cuda", **how), expected)
    assert emulated_gpu.launches > 0
