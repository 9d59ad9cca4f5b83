"""Tables of an index: written in parts, with a value for unreached pairs, and as lines."""

from __future__ import annotations

import heapq
import math
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from cuda_on_cpu.emulator import Emulator
from distributed import Client
from shapely import Point

import orograph as og
from orograph.cli.main import main
from orograph.index import points as points_module
from orograph.index import table as table_module

CASES = [
    *range(12),
    *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 200)),
]


def least_costs(friction: np.ndarray, start: tuple[int, int]) -> np.ndarray:
    """Dijkstra with 8 neighbours, one step after another."""
    found = np.full(friction.shape, math.inf)
    found[start] = 0
    heap = [(0.0, start)]
    while heap:
        cost, (y, x) = heapq.heappop(heap)
        for v, u in ((y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)):
            if not (0 <= v < friction.shape[0] and 0 <= u < friction.shape[1]):
                continue
            if not math.isfinite(friction[v, u]):
                continue
            total = cost + (friction[y, x] + friction[v, u]) / 2 * math.hypot(v - y, u - x)
            if total < found[v, u]:
                found[v, u] = total
                heapq.heappush(heap, (total, (v, u)))
    return found


def draw(seed: int) -> tuple[np.ndarray, list[tuple[int, int]], list[tuple[int, int]]]:
    """Friction with a wall that may cut the grid in two, points and targets as (x, y)."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(4, 20, 2))
    friction = rng.integers(1, 9, shape) * 2.0
    if seed % 2:
        friction[shape[0] // 2] = np.nan
    free = np.argwhere(np.isfinite(friction))
    chosen = free[rng.integers(0, len(free), (2, 7))]
    return friction, *([(int(x), int(y)) for y, x in cells] for cells in chosen)


@pytest.mark.parametrize("seed", CASES)
def test_a_written_table_is_that_of_plain_loops(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    friction, points, targets = draw(seed)
    index = og.DistanceIndex.build(friction, tmp_path / "i.zarr", block=4, levels=seed % 2)
    expected = np.array(
        [[least_costs(friction, (y, x))[v, u] for u, v in targets] for x, y in points]
    )
    value = [-1.0, math.nan, math.inf][seed % 3]
    tables = []
    for rows in (2, 512):
        monkeypatch.setattr(table_module, "MOST_ROWS", rows)
        out = tmp_path / f"{rows}.zarr"
        tables.append(index.distance_matrix(points, targets, unreachable=value, out=out))
    memory = index.distance_matrix(points, targets, unreachable=value)
    np.testing.assert_allclose(memory, np.where(np.isinf(expected), value, expected), rtol=1e-12)
    for table in tables:
        xr.testing.assert_equal(table.load(), memory)
        assert table.attrs.get("_FillValue", table.encoding.get("_FillValue")) == (
            -1 if value == -1 else None
        )


def test_integers_and_values_for_unreached_pairs(tmp_path: Path) -> None:
    friction = np.full((5, 7), 2)
    friction[2] = -9
    raster = xr.DataArray(friction, dims=("y", "x"), attrs={"_FillValue": -9})
    how: dict[str, Any] = {"dtype": "int64", "connectivity": 4, "cell_size": 1, "block": 4}
    index = og.DistanceIndex.build(raster, tmp_path / "i.zarr", **how)
    points = [(0, 0), (6, 0), (6, 4)]
    assert index.distance_matrix(points).values.tolist() == [[0, 12, -1], [12, 0, -1], [-1, -1, 0]]
    other = index.distance_matrix(points, unreachable=10**9, out=tmp_path / "t.zarr")
    assert other.values.tolist() == [[0, 12, 10**9], [12, 0, 10**9], [10**9, 10**9, 0]]
    for bad in (1.5, "x", True, math.nan, 2**62):
        with pytest.raises(og.InputError, match="unreachable: "):
            index.distance_matrix(points, unreachable=bad)


@pytest.fixture
def index(tmp_path: Path) -> og.DistanceIndex:
    rng = np.random.default_rng(2)
    place = {"y": np.arange(30.0)[::-1], "x": np.arange(40.0)}
    friction = xr.DataArray(rng.integers(1, 9, (30, 40)) * 2.0, place, ("y", "x")).rio.write_crs(
        "EPSG:32633"
    )
    return og.DistanceIndex.build(friction, tmp_path / "index.zarr", block=8)


@pytest.fixture
def towns() -> geopandas.GeoDataFrame:
    names = ["Elm", "Oak", "Ash", "Fir", "Yew"]
    points = [Point(2, 3), Point(38, 28), Point(20, 10), Point(5, 25), Point(30, 4)]
    return geopandas.GeoDataFrame({"town": names}, geometry=points, crs="EPSG:32633")


def test_names_and_lines(
    index: og.DistanceIndex, towns: geopandas.GeoDataFrame, tmp_path: Path
) -> None:
    memory = index.distance_matrix(towns, label="town")
    stored = index.distance_matrix(towns, label="town", out=tmp_path / "t.zarr")
    assert stored["to"].values.tolist() == towns["town"].tolist()
    np.testing.assert_allclose(stored, memory, rtol=1e-15)
    for table in (memory, stored, og.open(tmp_path / "t.zarr"), tmp_path / "t.zarr"):
        frame = og.to_geodataframe(table)
        assert frame.crs == "EPSG:32633"
        assert len(frame) == 25
        row = frame[(frame["from"] == "Elm") & (frame["to"] == "Fir")].iloc[0]
        assert row["cost"] == pytest.approx(float(memory[0, 3]))
        assert row.geometry.wkt == "LINESTRING (2 3, 5 25)"
    for name in ("t.gpkg", "t.parquet", "t.geojson"):
        og.to_file(memory, tmp_path / name)
        read = geopandas.read_parquet if name == "t.parquet" else geopandas.read_file
        assert sorted(read(tmp_path / name)["to"].unique()) == sorted(towns["town"])
    near = index.nearest(towns, k=2, label="town")
    frame = og.to_geodataframe(near)
    assert frame["rank"].tolist() == [1, 2] * 5
    assert frame["to"].tolist() == near["target_name"].values.ravel().tolist()
    assert frame["cost"].tolist() == near["cost"].values.ravel().tolist()
    og.to_file(near, tmp_path / "near.csv")


def test_an_interrupted_table_is_resumed(
    index: og.DistanceIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_module, "MOST_ROWS", 4)
    points = np.random.default_rng(1).integers(0, 30, (17, 2)).astype(float)
    expected = index.distance_matrix(points, points)
    out, whole, asked = tmp_path / "t.zarr", table_module.rows_of, []

    def failing(blocks: Any, starts: Any, *others: Any) -> Any:
        asked.append(len(starts))
        if len(asked) == 3:
            raise MemoryError("no more")
        return whole(blocks, starts, *others)

    monkeypatch.setattr(table_module, "rows_of", failing)
    with pytest.raises(og.RunError):
        index.distance_matrix(points, out=out)
    with pytest.raises(og.StoreExistsError):
        index.distance_matrix(points, out=out)
    with pytest.raises(og.InputError):  # another question
        index.distance_matrix(points[:-1], out=out, resume=True)
    asked.clear()
    asked.extend([0] * 3)
    found = index.distance_matrix(points, out=out, resume=True)
    assert asked[3:] == [4, 4, 1]
    xr.testing.assert_equal(found.load(), expected)
    with pytest.raises(og.StoreExistsError):
        index.distance_matrix(points, out=out)
    again = index.distance_matrix(points[:2], out=out, overwrite=True)
    xr.testing.assert_equal(again.load(), index.distance_matrix(points[:2], points[:2]))


def test_an_update_refuses_the_table(
    index: og.DistanceIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach = points_module.reach_borders

    def updated(*arguments: Any) -> Any:
        og.DistanceIndex.open(tmp_path / "index.zarr").update((3, 3, 2, 2), 9.0)
        return reach(*arguments)

    monkeypatch.setattr(table_module, "reach_borders", updated)
    with pytest.raises(og.RunError):
        index.distance_matrix([(2, 3), (20, 10)], out=tmp_path / "t.zarr")
    assert not (tmp_path / "t.zarr").exists()


def test_two_workers_give_the_same_bits(
    index: og.DistanceIndex, tmp_path: Path, client: Client
) -> None:
    points = np.random.default_rng(1).integers(0, 30, (80, 2)).astype(float)
    expected = index.distance_matrix(points, points)
    on_workers = og.DistanceIndex.open(tmp_path / "index.zarr", client=client)
    found = on_workers.distance_matrix(points, out=tmp_path / "t.zarr")
    xr.testing.assert_equal(found.load(), expected)
    assert on_workers.touched is not None


def test_commands(index: og.DistanceIndex, towns: geopandas.GeoDataFrame, tmp_path: Path) -> None:
    towns.to_file(tmp_path / "towns.gpkg")
    line = ["index", "matrix", str(tmp_path / "index.zarr")]
    line += ["--points", str(tmp_path / "towns.gpkg"), "--label", "town"]
    memory = index.distance_matrix(towns, label="town")
    for name in ("t.gpkg", "t.zarr"):
        assert main([*line, "--out", str(tmp_path / name)]) == 0
    assert len(geopandas.read_file(tmp_path / "t.gpkg")) == 25
    np.testing.assert_allclose(og.open(tmp_path / "t.zarr")["cost"], memory, rtol=1e-15)


def test_a_gpu_writes_the_same_bits(
    index: og.DistanceIndex, tmp_path: Path, emulated_gpu: Emulator
) -> None:
    points = [(2, 3), (38, 28), (20, 10)]
    on_gpu = og.DistanceIndex.open(tmp_path / "index.zarr", backend="cuda")
    found = on_gpu.distance_matrix(points, out=tmp_path / "t.zarr")
    xr.testing.assert_equal(found.load(), index.distance_matrix(points, points))
