"""The distance index: equal to runs of cost_distance, whatever blocks, levels and workers."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import oracle_distance as oracle
import pytest
import rioxarray
import xarray as xr
import zarr
from any_model import build, distance
from distributed import Client, LocalCluster
from reseal import reseal
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import orograph as og
from orograph.arguments.settings import config
from orograph.cli.main import main
from orograph.index import distance_index
from orograph.index.distance_index import DistanceIndex
from orograph.index.query import border_numbers
from orograph.index.store import COMMITTED, PENDING, IndexStore
from orograph.kernels.boundary.dissection import border_cells
from orograph.kernels.boundary.elimination import block_costs, boundary_matrix
from orograph.tiles.local_storage import LocalStorage
from orograph.tiles.store.lease import Lease

Array = npt.NDArray[Any]

SHAPE = 45, 61


def rasters(
    seed: int = 0, shape: tuple[int, int] = SHAPE, gaps: float = 0.2
) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    friction = 2.0 * rng.integers(1, 11, shape)
    elevation = rng.integers(0, 40, shape) / 4.0
    gone = rng.random(shape) < gaps
    friction[gone] = elevation[gone] = np.nan
    return friction, elevation


def some_points(friction: Array, side: int, count: int = 14) -> Array:
    """Points everywhere: on corners of blocks, on their borders, two in one block, anywhere."""
    valid = np.isfinite(friction)
    rows, columns = np.nonzero(valid)
    corner = np.isin(rows % side, (0, side - 1)) & np.isin(columns % side, (0, side - 1))
    border = np.isin(rows % side, (0, side - 1))
    order = np.random.default_rng(1).permutation(len(rows))
    ranked = sorted(order.tolist(), key=lambda i: -2 * corner[i] - border[i])
    inside = [i for i in order.tolist() if rows[i] < side and columns[i] < side][:2]
    chosen = [*ranked[:5], *inside, *order[:count].tolist()][:count]
    return np.stack([columns[chosen], rows[chosen]], axis=1).astype(float)


def by_runs(points: Array, targets: Array, **options: Any) -> Array:
    """A table by a run of cost_distance from each point."""
    rows, columns = targets[:, 1].astype(int), targets[:, 0].astype(int)
    found = [distance(sources=[p], **options)["cost"].values for p in points]
    table = np.stack(found)[:, rows, columns]
    return table if table.dtype.kind == "i" else np.where(np.isnan(table), np.inf, table)


def assert_same(mine: Array, expected: Array) -> None:
    rtol = 0 if mine.dtype.kind == "i" else 1e-12
    np.testing.assert_allclose(mine, expected, rtol=rtol, atol=0)


CASES = {
    "friction, 8 neighbours": ("friction", "float64", 8, 8, 1),
    "friction, one block": ("friction", "float64", 8, 64, 0),
    "friction, integers, 4 neighbours": ("friction", "int64", 4, 7, 0),
    "friction, integers, three levels": ("friction", "int64", 4, 4, 3),
    "height differences": ("absolute_difference", "float64", 8, 5, 2),
    "height differences, 4 neighbours": ("absolute_difference", "float64", 4, 16, 0),
    "tobler": ("tobler", "float64", 8, 8, 1),
    "walk, 4 neighbours": ("walk", "float64", 4, 11, 0),
    "blocks of one cell": ("friction", "float64", 8, 1, 0),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_table_and_field(case: tuple[str, str, int, int, int], tmp_path: Path) -> None:
    cost, dtype, connectivity, block, levels = case
    shape = (9, 13) if block == 1 else SHAPE
    friction, elevation = rasters(shape=shape)
    options: dict[str, Any] = {
        "friction": None if cost == "absolute_difference" else friction,
        "elevation": None if cost == "friction" else elevation,
        "cost": cost,
        "dtype": dtype,
        "connectivity": connectivity,
        "cell_size": 1,
    }
    index = build(store=tmp_path / "i", block=block, levels=levels, **options)
    points = some_points(friction, block << levels)
    expected = by_runs(points, points, **options)
    table = index.distance_matrix(points)
    assert_same(table.values, expected)
    assert table.dims == ("from", "to")
    np.testing.assert_array_equal(table.from_x, points[:, 0])
    # to other points, and the other way round
    assert_same(index.distance_matrix(points[:3], points[2:]).values, expected[:3, 2:])
    # from the nearest of some, everywhere and in windows
    whole = distance(sources=points[:3], **options)["cost"].values
    assert_same(index.query(points[:3])["cost"].values, whole)
    for window in ((0, 0, 1, 1), (3, 5, 4, 7), (shape[0] - 2, 0, 2, shape[1])):
        y, x, height, width = window
        found = index.query(points[:3], window)["cost"]
        assert_same(found.values, whole[y : y + height, x : x + width])
    # a field of the index says what it is as a run does
    run, own = distance(sources=points[:3], **options), index.query(points[:3])
    assert set(own.data_vars) == {"cost"}
    assert own.attrs == {name: run.attrs[name] for name in own.attrs}
    assert {"cost_model", "travel", "connectivity", "cell_size", "dtype"} <= set(own.attrs)
    assert str(own["cost"].attrs) == str(run["cost"].attrs)  # NaN among them
    assert table.attrs.get("_FillValue") == (-1 if dtype == "int64" else None)


def test_an_index_is_not_made_by_its_class() -> None:
    for given in ((), ("index.zarr",)):
        with pytest.raises(
            og.InputError, match=r"^store: .*made by DistanceIndex\.build, or opened"
        ):
            og.DistanceIndex(np.ones((3, 3)), *given)  # type: ignore[arg-type]


def test_sources_of_a_raster(tmp_path: Path) -> None:
    friction, elevation = rasters(2)
    labels = np.zeros(SHAPE, np.int32)
    labels[[3, 3, 20, 44], [2, 3, 33, 60]] = 7
    elevation[3, 2] = np.nan
    options: dict[str, Any] = {"elevation": elevation, "cost": "tobler"}
    index = build(friction, tmp_path / "i", block=8, **options)
    expected = distance(friction, labels, **options)["cost"].values
    assert_same(index.query(labels)["cost"].values, expected)
    with pytest.raises(og.InputError, match="no source"):
        index.query(np.zeros(SHAPE, np.int32))


def test_map_coordinates_and_geodesic_lengths(tmp_path: Path) -> None:
    friction, _ = rasters(2, gaps=0.1)
    raster = xr.DataArray(
        friction,
        {"lat": 60 - np.arange(SHAPE[0]) * 0.01, "lon": 8 + np.arange(SHAPE[1]) * 0.02},
        ("lat", "lon"),
    ).rio.write_crs(4326)
    index = DistanceIndex.build(raster, tmp_path / "i", block=8)
    rows, columns = (a[::97] for a in np.nonzero(np.isfinite(friction)))
    points = np.stack([raster.lon.values[columns], raster.lat.values[rows]], axis=1)
    fields = [og.cost_distance(raster, [p])["cost"] for p in points[:3]]
    expected = np.stack([field.values[rows, columns] for field in fields])
    assert_same(index.distance_matrix(points).values[:3], expected)
    part = index.query(points[:1], (5, 6, 10, 20))["cost"]
    xr.testing.assert_allclose(part, fields[0][5:15, 6:26], rtol=1e-12)
    path = index.path(points[0], points[-1])
    np.testing.assert_allclose(path.cost, expected[0, -1], rtol=1e-12)


def test_table_against_scipy(tmp_path: Path) -> None:
    friction, _ = rasters(3)
    points = some_points(friction, 16)
    steps = oracle.list_steps(friction)
    tail, head, weight = (
        np.concatenate([getattr(step, part) for step in steps])
        for part in ("tail", "head", "weight")
    )
    graph = csr_array((weight, (tail, head)), shape=(friction.size, friction.size))
    cells = (points[:, 1] * SHAPE[1] + points[:, 0]).astype(int)
    expected = dijkstra(graph, indices=cells)[:, cells]
    index = DistanceIndex.build(friction, tmp_path / "i", block=8)
    assert_same(index.distance_matrix(points).values, expected)


SPARSE = {
    "friction": ("friction", "float64", 8),
    "friction, single precision": ("friction", "float32", 8),
    "friction, integers": ("friction", "int64", 4),
    "flat ground": ("absolute_difference", "float64", 8),
    "tobler": ("tobler", "float64", 8),
}


@pytest.mark.parametrize("case", SPARSE.values(), ids=SPARSE.keys())
def test_what_is_left_out_changes_no_bit(case: tuple[str, str, int], tmp_path: Path) -> None:
    cost, dtype, connectivity = case
    friction, elevation = rasters(17)
    elevation = np.floor(elevation / 4)
    options: dict[str, Any] = {"cost": cost, "dtype": dtype, "connectivity": connectivity}
    options |= {"cell_size": 1, "block": 8, "elevation": None if cost == "friction" else elevation}
    whole = build(friction, tmp_path / "whole", **options)
    sparse = build(friction, tmp_path / "sparse", sparsify=True, **options)
    points = some_points(friction, 16)
    changed = np.where(np.isfinite(friction), friction + 2, np.nan)
    heights = {} if cost == "friction" else {"elevation": elevation[10:30, 5:50] * 2}
    if cost == "absolute_difference":
        new: Any = None
    else:
        new = changed[10:30, 5:50]
    for _ in range(2):
        assert sparse.sparsified
        assert 0.05 < sparse.left_out() < 1
        assert (whole.sparsified, whole.left_out()) == (False, 0.0)
        assert sparse.nbytes < whole.nbytes
        assert repr(sparse) == repr(whole).replace(">", ", sparsified>")
        for one, two in (
            (whole.distance_matrix(points), sparse.distance_matrix(points)),
            (whole.nearest(points, 3), sparse.nearest(points, 3)),
            (whole.query(points[:2]), sparse.query(points[:2])),
            (whole.query(points[:2], (3, 5, 9, 9)), sparse.query(points[:2], (3, 5, 9, 9))),
        ):
            xr.testing.assert_identical(one, two)
        assert whole.path(*points[:2]).cells.tolist() == sparse.path(*points[:2]).cells.tolist()
        stores = IndexStore.open(tmp_path / "whole"), IndexStore.open(tmp_path / "sparse")
        for block in range(whole.blocks):
            for one, two in zip(*(store.read(block)[:2] for store in stores), strict=True):
                assert one.tobytes() == two.tobytes()
        assert whole.update((10, 5, 20, 45), new, **heights) == sparse.update(
            (10, 5, 20, 45), new, **heights
        )


def test_many_points_in_several_groups(tmp_path: Path) -> None:
    friction, _ = rasters(4, gaps=0.1)
    points = some_points(friction, 16, 150)
    index = DistanceIndex.build(friction, tmp_path / "i", block=8)
    table = index.distance_matrix(points).values
    assert_same(table[::17], by_runs(points[::17], points, friction=friction))
    with config.set(threads=1):
        np.testing.assert_array_equal(index.distance_matrix(points).values, table)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bits_do_not_depend_on_what_else_is_asked(dtype: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    # whole numbers and diagonals: many paths cost the same but for roundings
    friction = rng.integers(1, 4, SHAPE) / 10
    points = some_points(friction, 16, 40)
    index = DistanceIndex.build(friction, tmp_path / "i", block=4, levels=1, dtype=dtype)
    table = index.distance_matrix(points, points).values
    for i in (0, 7, 23, 39):
        np.testing.assert_array_equal(
            index.distance_matrix(points[[i]], points).values[0], table[i]
        )
    some = [3, 30, 9]
    np.testing.assert_array_equal(
        index.distance_matrix(points, points[some]).values, table[:, some]
    )


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_parts_that_nothing_joins(dtype: str, tmp_path: Path) -> None:
    friction = np.full((30, 30), 2.0)
    friction[:, 14] = np.nan
    options: dict[str, Any] = {"block": 8, "dtype": dtype, "connectivity": 4}
    index = DistanceIndex.build(friction, tmp_path / "i", **options)
    points = [(0.0, 0.0), (13.0, 29.0), (15.0, 0.0), (29.0, 29.0)]
    table = index.distance_matrix(points).values
    nowhere = -1 if dtype == "int64" else np.inf
    assert (table[:2, 2:] == nowhere).all()
    assert (table[2:, :2] == nowhere).all()
    assert (table[:2, :2] < 1000).all()
    assert (table[2:, 2:] >= 0).all()
    field = index.query([(0.0, 0.0)], (0, 10, 5, 10))["cost"].values
    lost = field == -1 if dtype == "int64" else np.isnan(field)
    assert lost[:, 4:].all()
    assert not lost[:, :4].any()
    near = index.nearest(points, 2)
    assert near.target.values.tolist() == [[1, -1], [0, -1], [3, -1], [2, -1]]
    with pytest.raises(og.InputError, match="no way"):
        index.path(points[0], points[2])


def test_float32_is_near(tmp_path: Path) -> None:
    friction, _ = rasters(5)
    points = some_points(friction, 16)
    index = DistanceIndex.build(friction, tmp_path / "i", block=8, dtype="float32")
    table = index.distance_matrix(points).values
    assert table.dtype == np.float32
    expected = by_runs(points, points, friction=friction)
    np.testing.assert_allclose(table, expected, rtol=1e-5)


def test_nearest(tmp_path: Path) -> None:
    friction, elevation = rasters(6, gaps=0.05)
    points = some_points(friction, 16, 40)
    for cost in ("friction", "tobler"):
        heights = None if cost == "friction" else elevation
        index = build(friction, tmp_path / cost, elevation=heights, cost=cost, block=8)
        table = index.distance_matrix(points[:25], points[25:]).values
        near = index.nearest(points[:25], 3, points[25:])
        assert_same(near.cost.values, np.sort(table, axis=1)[:, :3])
        found = np.take_along_axis(table, near.target.values, axis=1)
        assert_same(near.cost.values, found)
        own = index.nearest(points[:5], 1)
        assert (own.target.values[:, 0] != np.arange(5)).all()
    with pytest.raises(og.InputError, match="k: 0; it must be a whole number of targets, 1 to 4"):
        index.nearest(points[:5], 0)


def test_nearest_asks_again_if_an_update_comes_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = DistanceIndex.build(np.ones((24, 24)), tmp_path / "i", block=8, levels=0)
    count = distance_index.parse_places

    def updated(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(distance_index, "parse_places", count)
        DistanceIndex.open(tmp_path / "i").update((0, 0, 24, 24), np.full((24, 24), 2.0))
        raise og.DamagedChunkError("what was read belongs to two versions")

    monkeypatch.setattr(distance_index, "parse_places", updated)
    assert index.nearest([(3.0, 3.0), (9.0, 3.0)]).cost.values.tolist() == [[12], [12]]


def test_a_question_about_near_points_touches_few_blocks(tmp_path: Path) -> None:
    friction, _ = rasters(7, (128, 128), gaps=0.1)
    friction[20:24, 20:30] = 1
    index = DistanceIndex.build(friction, tmp_path / "i", block=8, levels=0)
    pair = [(21.0, 21.0), (26.0, 22.0)]
    table = index.distance_matrix(pair).values
    assert_same(table, by_runs(np.array(pair), np.array(pair), friction=friction))
    touched = index.touched
    assert touched is not None
    assert 0 < touched.bytes < 0.05 * touched.all_bytes
    assert 0 < touched.blocks < 0.05 * touched.all_blocks == 0.05 * index.blocks


@pytest.mark.parametrize("cost", ["friction", "tobler"])
def test_path(cost: str, tmp_path: Path) -> None:
    friction, elevation = rasters(8)
    heights = None if cost == "friction" else elevation
    options: dict[str, Any] = {"friction": friction, "elevation": heights, "cost": cost}
    index = build(store=tmp_path / "i", block=4, **options)
    points = some_points(friction, 8)
    table = index.distance_matrix(points).values
    for i, j in ((0, 1), (5, 6), (3, 9), (2, 2)):
        path = index.path(points[i], points[j])
        np.testing.assert_array_equal(path.coordinates[[0, -1]], points[[i, j]])
        assert (np.abs(np.diff(path.cells, axis=0)).max(axis=1, initial=0) == 1).all()
        np.testing.assert_allclose(path.cost, table[i, j], rtol=1e-12)


def test_update_is_a_fresh_build_to_the_bit(tmp_path: Path) -> None:
    friction, elevation = rasters(9)
    built = tmp_path / "i"
    for cost, dtype in (("friction", "int64"), ("walk", "float64")):
        options: dict[str, Any] = {"block": 4, "levels": 1, "cost": cost, "dtype": dtype}
        options |= {"cell_size": 1, "connectivity": 4, "overwrite": True}
        heights = None if cost == "friction" else elevation
        index = build(friction, built, elevation=heights, **options)
        changed = friction.copy()
        for window, blocks in (((10, 20, 3, 2), 1), ((8, 24, 1, 1), 4), ((0, 0, *SHAPE), 48)):
            y, x, height, width = window
            new = 2.0 * np.random.default_rng(y).integers(1, 9, (height, width))
            new[0, 0] = np.nan
            changed[y : y + height, x : x + width] = new
            index.distance_matrix(some_points(changed, 8, 3))
            assert index.update(window, new) == blocks
            build(changed, tmp_path / "fresh", elevation=heights, **options)
            for name in (*IndexStore.open(built).form.rasters, "matrices"):
                mine, fresh = (
                    zarr.open_array(path / name)[...] for path in (built, tmp_path / "fresh")
                )
                np.testing.assert_array_equal(mine, fresh)
            points = some_points(np.where(np.isfinite(changed), elevation, np.nan), 8)
            expected = DistanceIndex.open(tmp_path / "fresh").distance_matrix(points).values
            np.testing.assert_array_equal(index.distance_matrix(points).values, expected)
        assert index.fingerprint.startswith("updated ")


def test_a_killed_update_has_not_begun_or_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    friction, _ = rasters(10)
    points = some_points(friction, 8)
    index = DistanceIndex.build(friction, tmp_path / "i", block=8, levels=0)
    before = index.distance_matrix(points).values
    changed = friction.copy()
    changed[10:30, 10:30] *= 3
    fresh = DistanceIndex.build(changed, tmp_path / "fresh", block=8, levels=0)
    after = fresh.distance_matrix(points).values
    assert (before != after).any()

    def killed(self: IndexStore, *_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(IndexStore, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            index.update((10, 10, 20, 20), changed[10:30, 10:30])
    assert (tmp_path / "i" / PENDING).exists()
    again = DistanceIndex.open(tmp_path / "i")
    np.testing.assert_array_equal(again.distance_matrix(points).values, before)
    with monkeypatch.context() as patch:
        patch.setattr(IndexStore, "settle", killed)
        with pytest.raises(KeyboardInterrupt):
            again.update((10, 10, 20, 20), changed[10:30, 10:30])
    assert (tmp_path / "i" / PENDING / COMMITTED).exists()
    ended = DistanceIndex.open(tmp_path / "i")
    np.testing.assert_array_equal(ended.distance_matrix(points).values, after)
    assert not (tmp_path / "i" / PENDING).exists()


def twice_updated(tmp_path: Path) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """Points, two windows of new values, and the tables of the index before and after each."""
    friction, _ = rasters(10)
    points = some_points(friction, 8)
    new = [friction[10:30, 10:30] * 3, friction[20:40, 5:15] * 5]
    tables = []
    for number, (window, values) in enumerate(zip((None, *WINDOWS), (None, *new), strict=True)):
        if values is not None:
            row, column, rows, columns = window
            friction[row : row + rows, column : column + columns] = values
        fresh = DistanceIndex.build(friction, tmp_path / f"fresh-{number}", block=8, levels=0)
        tables.append(fresh.distance_matrix(points).values)
    return points, new, tables


WINDOWS = (10, 10, 20, 20), (20, 5, 20, 10)


def test_a_handle_notices_updates_by_others(tmp_path: Path) -> None:
    points, new, tables = twice_updated(tmp_path)
    old = DistanceIndex.build(rasters(10)[0], tmp_path / "i", block=8, levels=0)
    np.testing.assert_array_equal(old.distance_matrix(points).values, tables[0])
    DistanceIndex.open(tmp_path / "i").update(WINDOWS[0], new[0])
    np.testing.assert_array_equal(old.distance_matrix(points).values, tables[1])
    other = DistanceIndex.open(tmp_path / "i")
    old.update(WINDOWS[1], new[1])
    np.testing.assert_array_equal(other.distance_matrix(points).values, tables[2])
    DistanceIndex.build(np.ones((9, 9)), tmp_path / "i", block=4, overwrite=True)
    for use in (lambda: old.distance_matrix(points), lambda: old.update(WINDOWS[0], new[0])):
        with pytest.raises(og.InputError, match=r"another index has been built .* open it again"):
            use()


def test_a_handle_ends_what_a_killed_update_has_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, new, tables = twice_updated(tmp_path)
    index = DistanceIndex.build(rasters(10)[0], tmp_path / "i", block=8, levels=0)
    handles = [index, DistanceIndex.open(tmp_path / "i")]
    moved = LocalStorage.move

    def killed(self: LocalStorage, *keys: str) -> None:
        moved(self, *keys)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "move", killed)
        with pytest.raises(KeyboardInterrupt):
            DistanceIndex.open(tmp_path / "i").update(WINDOWS[0], new[0])
    shutil.copytree(tmp_path / "i", tmp_path / "half")
    np.testing.assert_array_equal(handles[0].distance_matrix(points).values, tables[1])
    shutil.rmtree(tmp_path / "i")
    (tmp_path / "half").rename(tmp_path / "i")
    handles[1].update(WINDOWS[1], new[1])
    np.testing.assert_array_equal(handles[1].distance_matrix(points).values, tables[2])


def test_a_question_is_asked_again_if_the_index_is_updated_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, new, tables = twice_updated(tmp_path)
    index = DistanceIndex.build(rasters(10)[0], tmp_path / "i", block=8, levels=0)
    other, read, reads = DistanceIndex.open(tmp_path / "i"), IndexStore.read, itertools.count()

    def updated(self: IndexStore, block: int) -> Any:
        if self is index._store and next(reads) == 3:
            other.update(WINDOWS[0], new[0])
        return read(self, block)

    monkeypatch.setattr(IndexStore, "read", updated)
    np.testing.assert_array_equal(index.distance_matrix(points).values, tables[1])


def test_a_second_update_is_told_who_is_at_work(tmp_path: Path) -> None:
    friction, _ = rasters(10)
    index = DistanceIndex.build(friction, tmp_path / "i", block=8, levels=0)
    with Lease(tmp_path / "i"), pytest.raises(og.StoreExistsError, match="is being written by"):
        index.update(WINDOWS[0], friction[10:30, 10:30] * 3)
    assert not (tmp_path / "i" / PENDING).exists()


def test_an_update_whose_place_is_taken_ends_and_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, new, tables = twice_updated(tmp_path)
    index = DistanceIndex.build(rasters(10)[0], tmp_path / "i", block=8, levels=0)
    commit, other = IndexStore.commit, DistanceIndex.open(tmp_path / "i")

    def taken(self: IndexStore, *arguments: Any) -> None:
        monkeypatch.undo()
        other.update(WINDOWS[0], new[0], takeover=True)
        commit(self, *arguments)

    monkeypatch.setattr(IndexStore, "commit", taken)
    with pytest.raises(og.RunError, match="nothing of this process was published"):
        index.update(WINDOWS[1], new[1])
    np.testing.assert_array_equal(index.distance_matrix(points).values, tables[1])
    assert not (tmp_path / "i" / PENDING).exists()


def test_a_killed_build_leaves_no_index_and_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    friction, _ = rasters(11)
    points = some_points(friction, 8)
    written = IndexStore.write
    count = 0

    def some(self: IndexStore, *arguments: Any) -> None:
        nonlocal count
        count += 1
        if count > 7:
            raise KeyboardInterrupt
        written(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(IndexStore, "write", some)
        with pytest.raises(KeyboardInterrupt), config.set(threads=1):
            DistanceIndex.build(friction, tmp_path / "i", block=8, levels=0)
    with pytest.raises(og.InputError, match="never finished"):
        DistanceIndex.open(tmp_path / "i")
    with pytest.raises(og.StoreExistsError, match="resume=True"):
        DistanceIndex.build(friction, tmp_path / "i", block=8, levels=0)
    index = DistanceIndex.build(friction, tmp_path / "i", block=8, levels=0, resume=True)
    assert_same(index.distance_matrix(points).values, by_runs(points, points, friction=friction))
    assert [entry.name for entry in tmp_path.iterdir()] == ["i"]


def test_another_process_opens_it(tmp_path: Path) -> None:
    friction, _ = rasters(12)
    points = some_points(friction, 8)
    table = DistanceIndex.build(friction, tmp_path / "i", block=8).distance_matrix(points).values
    code = (
        "import json, sys; from orograph.index.distance_index import DistanceIndex\n"
        "index = DistanceIndex.open(sys.argv[1])\n"
        "print(json.dumps(index.distance_matrix(json.loads(sys.argv[2])).values.tolist()))"
    )
    sent = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "i"), json.dumps(points.tolist())],
        check=True,
        capture_output=True,
        text=True,
    )
    np.testing.assert_array_equal(np.array(json.loads(sent.stdout)), table)


@pytest.mark.parametrize("sparsify", [pytest.param(False, marks=pytest.mark.long), True])
def test_workers_of_a_cluster(sparsify: bool, tmp_path: Path) -> None:
    friction, _ = rasters(13)
    points = some_points(friction, 8, 100)
    options: dict[str, Any] = {"block": 4, "levels": 1, "sparsify": sparsify}
    alone = DistanceIndex.build(friction, tmp_path / "alone", **options)
    expected = alone.distance_matrix(points).values
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    )
    with cluster, Client(cluster) as client:
        index = DistanceIndex.build(friction, tmp_path / "many", client=client, **options)
        np.testing.assert_array_equal(index.distance_matrix(points).values, expected)
        touched = index.touched
        changed = friction * 2
        index.update((0, 0, *SHAPE), changed)
        doubled = index.distance_matrix(points).values
    assert touched is not None
    assert touched.blocks > 1
    np.testing.assert_allclose(doubled, 2 * expected)
    for name in ("friction", "matrices"):
        one = zarr.open_array(tmp_path / "alone" / name)[...]
        DistanceIndex.build(friction, tmp_path / "again", overwrite=True, **options)
        two = zarr.open_array(tmp_path / "again" / name)[...]
        np.testing.assert_array_equal(one, two)


def test_zarr_reads_what_is_stored(tmp_path: Path) -> None:
    friction, _ = rasters(14)
    index = DistanceIndex.build(friction, tmp_path / "i", block=16, levels=0)
    padded = np.pad(friction, 1, constant_values=np.nan)
    costs = block_costs(np.ascontiguousarray(padded[:18, :18]))
    matrix = boundary_matrix(costs)
    stored = zarr.open_array(tmp_path / "i" / "matrices")
    assert stored.shape == (index.blocks, 60 * 61 // 2 + 8 * 60)
    np.testing.assert_array_equal(stored[0, : 60 * 61 // 2], matrix[np.tril_indices(60)])
    dataset = og.open(tmp_path / "i")
    np.testing.assert_array_equal(dataset["friction"].values, friction)
    cells = friction.size
    assert index.nbytes < 1.3 * cells * 8 * 9 + 40_000


def test_a_damaged_block_is_named(tmp_path: Path) -> None:
    friction, _ = rasters(15)
    index = DistanceIndex.build(friction, tmp_path / "i", block=16, levels=0)
    place = tmp_path / "i" / "matrices" / "c" / "0" / "0"
    content = bytearray(place.read_bytes())
    content[len(content) // 2] ^= 1
    place.write_bytes(content)
    points = some_points(friction, 16)
    with pytest.raises(og.DamagedChunkError, match=r"matrix of block 0 .*checksum"):
        index.distance_matrix(points)
    place.unlink()
    with pytest.raises(og.DamagedChunkError, match="matrix of block 0 "):
        index.distance_matrix(points)
    index.update((1, 1, 1, 1), friction[1:2, 1:2])
    assert_same(index.distance_matrix(points).values, by_runs(points, points, friction=friction))


def test_foreign_stores_are_refused(tmp_path: Path) -> None:
    with pytest.raises(og.InputError, match="is not a store"):
        DistanceIndex.open(tmp_path / "nothing")
    og.ingest(np.eye(4), tmp_path / "eye")
    with pytest.raises(og.InputError, match="holds no distance index"):
        DistanceIndex.open(tmp_path / "eye")
    with pytest.raises(og.StoreExistsError):
        DistanceIndex.build(np.ones((4, 4)), tmp_path / "eye")
    DistanceIndex.build(np.ones((4, 4)), tmp_path / "i", block=2)

    def state(form: dict[str, Any]) -> None:
        """Let the store state another form."""
        text = json.dumps(form)
        reseal(tmp_path / "i", lambda found: found["attributes"].update(distance_index=text))

    document = json.loads((tmp_path / "i" / "zarr.json").read_text())
    header = json.loads(document["attributes"]["distance_index"])
    state({name: value for name, value in header.items() if name != "sparsify"})
    with pytest.raises(og.DamagedStoreError, match=r"distance_index: .*sparsify"):
        DistanceIndex.open(tmp_path / "i")
    state(header | {"format": 99})
    with pytest.raises(og.InputError, match=r"format 99, .* reads 1; a newer one .* update"):
        DistanceIndex.open(tmp_path / "i")
    state(header | {"format": 0})
    with pytest.raises(og.InputError, match=r"format 0, .* an older one wrote it: build it again"):
        DistanceIndex.open(tmp_path / "i")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "16 neighbours": ({"connectivity": 16}, "connectivity: 16"),
    "no such cost": ({"cost": "energy"}, "cost: 'energy'"),
    "no such dtype": ({"dtype": "float16"}, "dtype: 'float16'"),
    "no dtype": ({"dtype": None}, "dtype: None"),
    "memory below 0": ({"memory": -1}, "memory: -1; it must be"),
    "memory in words": ({"memory": "x"}, "memory: 'x'; it must be"),
    "no memory": ({"memory": None}, "memory: None; it must be"),
    "blocks of nothing": ({"block": 0}, "block: 0; it must be"),
    "large blocks": ({"block": 512, "levels": 2}, "block: 512 with levels=2"),
    "half sparse": ({"sparsify": 0.5}, "sparsify: 0.5"),
    "levels below 0": ({"levels": -1}, "levels: -1"),
    "friction of friction": ({"friction": np.ones((8, 8))}, "friction: not used by the model 'f"),
    "integers, diagonals": ({"dtype": "int64"}, "'int64' needs steps of whole length"),
}


@pytest.mark.parametrize(("options", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_built_is_refused(
    options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(og.InputError, match=says):
        DistanceIndex.build(np.ones((8, 8)), tmp_path / "i", **options)
    assert not list(tmp_path.iterdir())


def test_negative_friction_is_refused(tmp_path: Path) -> None:
    friction = np.ones((8, 8))
    friction[3, 4] = -2
    with pytest.raises(og.InputError, match=r"-2.0 at row 3, column 4"):
        DistanceIndex.build(friction, tmp_path / "i")


def test_what_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    friction = np.ones((8, 8))
    friction[2, 3] = np.nan
    index = DistanceIndex.build(friction, tmp_path / "i", block=4)
    with pytest.raises(og.InputError, match=r"point 1 \(x=3, y=2\) lies on nodata"):
        index.distance_matrix([(0, 0), (3, 2)])
    assert index.distance_matrix([(0, 0), (3, 2)], snap=True).shape == (2, 2)
    with pytest.raises(og.InputError, match=r"targets: point 0 .* outside the grid"):
        index.distance_matrix([(0, 0)], [(9, 9)])
    for window in ((0, 0, 9, 1), (0, 0, 0, 3), (-1, 0, 2, 2)):
        with pytest.raises(og.InputError, match="leaves the raster of 8 x 8"):
            index.query([(0, 0)], window)
    with pytest.raises(og.InputError, match="give its first row"):
        index.query([(0, 0)], (1, 2))  # type: ignore[arg-type]
    with pytest.raises(og.InputError, match=r"\(0\.5, 0, 2, 2\).* whole numbers"):
        index.query([(0, 0)], (0.5, 0, 2, 2))  # type: ignore[arg-type]
    with pytest.raises(og.InputError, match="3 x 3 cells for a window of 2 x 2"):
        index.update((0, 0, 2, 2), np.ones((3, 3)))
    with pytest.raises(og.InputError, match="elevation given; costs of this index come from fric"):
        index.update((0, 0, 2, 2), elevation=np.ones((2, 2)))
    with pytest.raises(og.InputError, match=r"-1.0 at row 5, column 6"):
        index.update((5, 6, 1, 1), np.array([[-1.0]]))
    with pytest.raises(og.InputError, match="start: 2 points; give one"):
        index.path([(0, 0), (1, 1)], (2, 2))


def test_border_cells_are_numbered_as_in_matrices() -> None:
    for height, width in ((1, 1), (1, 5), (5, 1), (2, 2), (2, 5), (4, 3), (6, 6)):
        rows, columns = border_cells(height, width).T
        sides = np.full(rows.shape, height), np.full(rows.shape, width)
        numbers = border_numbers(rows, columns, *sides)
        np.testing.assert_array_equal(numbers, np.arange(len(rows)))


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    friction, _ = rasters(16)
    axes = {"y": -np.arange(SHAPE[0], dtype=float), "x": np.arange(SHAPE[1], dtype=float)}
    og.ingest(xr.DataArray(friction, axes, ("y", "x")), tmp_path / "friction")
    store = str(tmp_path / "i")
    options = ["--block", "8", "--levels", "0"]
    assert main(["index", "build", str(tmp_path / "friction"), store, *options]) == 0
    assert "48 blocks of 8" in capsys.readouterr().out
    points = some_points(friction, 8, 4)
    expected = by_runs(points, points, friction=friction)
    points[:, 1] *= -1
    np.savetxt(tmp_path / "points.csv", points, delimiter=",")
    assert main(["index", "matrix", store, "--points", str(tmp_path / "points.csv")]) == 0
    said = capsys.readouterr()
    table = np.loadtxt(said.out.splitlines(), delimiter=",", skiprows=1)[:, 1:]
    assert_same(table, expected)
    assert "the index has" in said.err
    sparse = [str(tmp_path / "friction"), str(tmp_path / "sparse"), *options, "--sparsify"]
    assert main(["index", "build", *sparse]) == 0
    sent = capsys.readouterr().out
    assert "48 blocks of 8, sparsified" in sent
    assert "entries left out: " in sent
    first = [str(value) for value in points[0]]
    for name in ("field.tif", "field.zarr"):
        out = str(tmp_path / name)
        assert main(["index", "query", store, out, "--point", *first]) == 0
    expected = og.cost_distance(friction, points[:1] * (1, -1))["cost"].values
    assert_same(og.open(tmp_path / "field.zarr")["cost"].values, expected)
    assert_same(rioxarray.open_rasterio(tmp_path / "field.tif").values[0], expected)
    assert main(["index", "matrix", str(tmp_path / "friction"), "--point", "0", "0"]) == 2
    assert "holds no distance index" in capsys.readouterr().err


# Its argument says whether vectors have 64 bytes or 32.
WITH_VECTORS = """
import sys
import numpy as np
from llvmlite import binding

real = binding.get_host_cpu_features
binding.get_host_cpu_features = lambda: {"avx512f": sys.argv[1] == "wide"}
from orograph.kernels.minplus import lanes
binding.get_host_cpu_features = real
assert lanes.VECTOR_BYTES == (64 if sys.argv[1] == "wide" else 32)

import orograph as og

rng = np.random.default_rng(0)
friction = rng.uniform(1, 10, (150, 170))
points = rng.integers(0, 150, (90, 2)).astype(float)
found = {}
for dtype in ("float64", "float32"):
    index = og.DistanceIndex.build(friction, dtype, block=16, levels=1, dtype=dtype)
    found[dtype] = index.distance_matrix(points).values
    found[dtype + " to others"] = index.distance_matrix(points[:40], points[30:]).values
    found[dtype + " of a field"] = index.query(points[:3])["cost"].values
np.savez("tables.npz", **found)
"""


@pytest.mark.long  # two processes that compile all that an index needs
def test_tables_do_not_depend_on_the_length_of_vectors(tmp_path: Path) -> None:
    found = []
    for width in ("wide", "narrow"):
        folder = tmp_path / width
        folder.mkdir()
        # the cache does not know what the program pretends
        env = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache")}
        subprocess.run([sys.executable, "-c", WITH_VECTORS, width], env=env, cwd=folder, check=True)
        found.append(dict(np.load(folder / "tables.npz")))
    wide, narrow = found
    assert len(wide) == 6
    assert wide.keys() == narrow.keys()
    for name, table in wide.items():
        assert np.isfinite(table).all()
        assert table.tobytes() == narrow[name].tobytes(), name
