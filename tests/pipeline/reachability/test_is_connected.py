"""Connectivity, hops and ways between cells against SciPy's breadth-first search, for every tiling.

The way is compared cell by cell with the one that the documentation promises (`oracle_reach`).
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import oracle_reach as oracle
import pytest
import shapely
import xarray as xr
from cuda_on_cpu.emulator import Emulator
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from watched_raster import Gate, WatchedRaster, called, read_tiles, wait_until

import orograph as og
from orograph.kernels.relax.resident import HostTile
from orograph.run.checkpoints import StoredCheckpoints

TILINGS = (1000, 7, 16, 64)
Cell = tuple[int, int]


def serpentine(shape: Cell) -> np.ndarray:
    """Corridors one cell wide, joined at alternate ends."""
    mask = np.ones(shape, bool)
    for number, row in enumerate(range(1, shape[0], 2)):
        mask[row] = False
        mask[row, -1 if number % 2 == 0 else 0] = True
    return mask


def spiral(side: int) -> np.ndarray:
    """One corridor that winds to the middle."""
    mask = np.zeros((side, side), bool)
    y, x, dy, dx = 0, -1, 0, 1
    length, turns = side, 0
    while length > 0:
        for _ in range(length):
            y, x = y + dy, x + dx
            mask[y, x] = True
        dy, dx = dx, -dy
        turns += 1
        length -= 2 if turns > 2 and turns % 2 == 1 else (1 if turns == 1 else 0)
    return mask


def noise(shape: Cell, share: float, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(shape) < share


def checkerboard(shape: Cell) -> np.ndarray:
    return np.indices(shape).sum(axis=0) % 2 == 0


def search(mask: Any, s: Cell, t: Cell, **options: Any) -> og.Reach:
    """`is_connected` for cells (row, column)."""
    return og.is_connected(mask, s[::-1], t[::-1], **options)


def assert_is(reach: og.Reach, mask: np.ndarray, s: Cell, t: Cell, connectivity: int) -> None:
    """One pair has the answer of SciPy, and the way that is promised."""
    expected = oracle.levels(mask, s, connectivity)[t]
    assert reach.hops is not None
    assert reach.paths is not None
    assert reach.hops.tolist() == [expected]
    assert reach.connected.tolist() == [expected >= 0]
    assert bool(reach) == (expected >= 0)
    (path,) = reach.paths
    if expected < 0:
        assert path is None
        return
    assert path is not None
    cells = path.cells
    assert path.cost == expected
    assert len(cells) == expected + 1
    assert (*cells[0],) == s
    assert (*cells[-1],) == t
    assert mask[tuple(cells.T)].all()
    steps = np.abs(np.diff(cells, axis=0))
    assert (steps.max(axis=1, initial=0) == 1).all()
    if connectivity == 4:
        assert (steps.sum(axis=1) == 1).all()
    assert cells.tolist() == oracle.way(mask, s, t, connectivity)


MAZES: dict[str, tuple[np.ndarray, Cell, Cell]] = {
    "an empty grid": (np.ones((70, 90), bool), (3, 4), (66, 80)),
    "an empty grid, neighbours across a corner": (np.ones((70, 90), bool), (15, 15), (16, 16)),
    "a serpentine": (serpentine((41, 37)), (0, 0), (40, 18)),
    "a spiral": (spiral(45), (0, 0), (22, 22)),
    "noise with ways through": (noise((90, 110), 0.66, 3), (0, 4), (89, 105)),
    "noise near the threshold of 4 neighbours": (noise((120, 120), 0.593, 10), (40, 7), (80, 100)),
    "noise near the threshold of 8 neighbours": (noise((120, 120), 0.407, 5), (40, 7), (80, 100)),
    "a checkerboard": (checkerboard((40, 50)), (2, 4), (35, 47)),
    "two halves": (np.arange(80) // 41 * np.ones((60, 1)) != 0.5, (30, 2), (31, 77)),
    "one cell": (np.ones((1, 1), bool), (0, 0), (0, 0)),
    "one row": (np.ones((1, 200), bool), (0, 190), (0, 3)),
    "one column, broken": (np.arange(150)[:, None] != 70, (3, 0), (149, 0)),
    "the same cell": (noise((50, 50), 0.5, 1), (20, 20), (20, 20)),
}
MAZES["two halves"][0][:, 40] = False


@pytest.mark.diagonal
@pytest.mark.parametrize("connectivity", [4, 8], ids=["4 nbrs", "8 nbrs"])
@pytest.mark.parametrize("name", MAZES)
def test_hops_and_way_are_the_same_for_every_tiling(name: str, connectivity: int) -> None:
    mask, s, t = MAZES[name]
    mask = mask.copy()
    mask[s] = mask[t] = True
    # tiles of 7 cells are three hundred of the largest
    for tile in TILINGS if mask.size < 9000 else (1000, 12, 16, 64):
        assert_is(
            search(mask, s, t, connectivity=connectivity, tile=tile), mask, s, t, connectivity
        )


@pytest.mark.diagonal
@pytest.mark.parametrize("connectivity", [4, 8], ids=["4 nbrs", "8 nbrs"])
@pytest.mark.parametrize("name", ["a serpentine", "noise with ways through", "two halves"])
def test_a_gpu_finds_the_same_way(
    name: str, connectivity: int, emulated_gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostTile, "exchange", None)
    mask, s, t = MAZES[name]
    mask = mask.copy()
    mask[s] = mask[t] = True
    options = {"connectivity": connectivity, "tile": 32, "backend": "cuda"}
    assert_is(search(mask, s, t, **options), mask, s, t, connectivity)
    launches = emulated_gpu.launches
    reach = og.is_connected(mask, s[::-1], [t[::-1], s[::-1]], **options)
    assert emulated_gpu.launches > launches
    assert reach.hops is not None
    assert reach.hops.tolist() == [oracle.levels(mask, s, connectivity)[t], 0]


def test_the_mazes_are_both_connected_and_not() -> None:
    found = {
        (name, connectivity): oracle.levels(mask | False, s, connectivity)[t] >= 0
        for name, (mask, s, t) in MAZES.items()
        for connectivity in (4, 8)
    }
    assert found["a checkerboard", 8]
    assert not found["a checkerboard", 4]
    assert found["a spiral", 4]
    assert found["a serpentine", 4]
    assert not found["two halves", 8]
    assert not found["one column, broken", 8]
    assert sum(found.values()) > len(found) // 2


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    shape=st.tuples(st.integers(1, 26), st.integers(1, 26)),
    tile=st.integers(1, 28),
    connectivity=st.sampled_from([4, 8]),
    share=st.sampled_from([0.45, 0.6, 0.75, 1.0]),
    seed=st.integers(0, 9999),
)
def test_any_tiling_gives_the_hops_of_a_breadth_first_search(
    shape: Cell, tile: int, connectivity: int, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random(shape) < share
    s, t = (tuple(end) for end in rng.integers(0, shape, (2, 2)).tolist())
    mask[s] = mask[t] = True
    assert_is(search(mask, s, t, connectivity=connectivity, tile=tile), mask, s, t, connectivity)


@pytest.mark.parametrize("threads", [*(pytest.param(n, marks=pytest.mark.long) for n in (1, 2)), 5])
def test_the_way_does_not_depend_on_the_number_of_threads(threads: int) -> None:
    mask, s, t = MAZES["noise with ways through"]
    mask[s] = mask[t] = True
    with og.config.set(threads=threads):
        for _ in range(3):
            assert_is(search(mask, s, t, tile=8), mask, s, t, 8)


def test_a_cluster_gives_the_same_of_arrays_and_stores(client: Client, tmp_path: Path) -> None:
    mask, s, t = MAZES["noise with ways through"]
    mask[s] = mask[t] = True
    store = tmp_path / "mask.zarr"
    og.ingest(mask.astype(np.uint8), store, tile=16)
    for raster in (mask, store):
        assert_is(search(raster, s, t, client=client, tile=16), mask, s, t, 8)
    one = og.is_connected(store, [s[::-1], t[::-1]], [t[::-1], s[::-1]], client=client)
    assert one.hops is not None
    assert one.hops.tolist() == [oracle.levels(mask, s, 8)[t]] * 2
    assert not list(tmp_path.glob("orograph-*"))


@pytest.mark.long  # distances have a quick one, by the same executor, in engines/test_workers.py
def test_a_worker_that_is_killed_costs_nothing_but_time(tmp_path: Path, gate: Gate) -> None:
    mask, s, t = MAZES["noise with ways through"]
    mask[s] = mask[t] = True
    store, diary = tmp_path / "mask.zarr", tmp_path / "diary"
    og.ingest(mask, store, tile=16)
    killed: list[int] = []

    def kill() -> None:
        wait_until(gate.until(lambda: len(read_tiles(diary)) >= 12))
        os.kill(victim, signal.SIGKILL)
        killed.append(victim)
        gate.open()

    with og.cluster(n_workers=2, dashboard_address=None) as client:
        victim = next(iter(client.run(os.getpid).values()))
        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        reach = search(WatchedRaster(store, diary, gate=gate), s, t, client=client)
        killer.join()
    assert killed
    assert_is(reach, mask, s, t, 8)


def test_near_points_on_a_large_grid_touch_few_tiles(tmp_path: Path) -> None:
    store, diary = tmp_path / "plain.zarr", tmp_path / "diary"
    og.ingest(np.ones((640, 640), np.uint8), store, tile=16)
    reach = search(WatchedRaster(store, diary), (328, 325), (328, 331))
    assert reach.hops is not None
    assert reach.hops.tolist() == [6]
    assert reach.tiles.tolist() == [1]
    # to see what lies under the two points, and the tile with its halo
    assert len(read_tiles(diary)) <= 2

    diary.unlink()
    reach = search(WatchedRaster(store, diary), (300, 300), (340, 310))
    assert reach.hops is not None
    assert reach.hops.tolist() == [40]
    assert reach.tiles[0] <= 24  # squares of 41 cells a side around the two, in tiles of 16
    searched = read_tiles(diary)
    assert searched.total() <= reach.tiles[0] + 2, "tiles were read more than once"
    assert all(250 < y < 390 and 250 < x < 390 for y, x in searched)


def test_the_smaller_side_is_exhausted_and_no_more(tmp_path: Path) -> None:
    mask = np.ones((640, 640), np.uint8)
    mask[300:322, 300:322] = 0
    mask[302:320, 302:320] = 1
    store, diary = tmp_path / "island.zarr", tmp_path / "diary"
    og.ingest(mask, store, tile=16)
    for s, t in (((310, 310), (20, 20)), ((20, 20), (310, 310))):
        reach = search(WatchedRaster(store, diary), s, t)
        assert not reach
        assert reach.tiles[0] <= 30


def test_a_long_serpentine_is_searched_from_both_ends() -> None:
    mask = serpentine((201, 200))
    for tile in (32, 200):
        reach = search(mask, (0, 0), (200, 199), connectivity=4, tile=tile)
        assert reach.hops is not None
        assert reach.hops.tolist() == [oracle.levels(mask, (0, 0), 4)[200, 199]]


@pytest.mark.parametrize("where", ["memory", "store"])
def test_many_pairs_are_each_answered_as_if_alone(where: str, tmp_path: Path) -> None:
    mask = noise((100, 120), 0.6, 9)
    rng = np.random.default_rng(4)
    cells = np.argwhere(mask)
    s, t = (cells[rng.integers(0, len(cells), 40)] for _ in range(2))
    t[7] = s[7]
    raster: Any = mask
    if where == "store":
        raster = tmp_path / "mask.zarr"
        og.ingest(mask.astype(np.int16) * 5, raster, tile=16)
    reach = og.is_connected(raster, s[:, ::-1], t[:, ::-1], connectivity=4, tile=16)
    assert reach.hops is not None
    assert reach.paths is not None
    expected = [oracle.levels(mask, tuple(a), 4)[tuple(b)] for a, b in zip(s, t, strict=True)]
    assert reach.hops.tolist() == expected
    assert 0 < reach.connected.sum() < 40
    np.testing.assert_array_equal(reach.connected, np.array(expected) >= 0)
    np.testing.assert_array_equal(reach.tiles > 0, reach.connected)
    for a, b, path in zip(s, t, reach.paths, strict=True):
        way = oracle.way(mask, tuple(a), tuple(b), 4)
        assert (None if path is None else path.cells.tolist()) == way
    with pytest.raises(ValueError, match=r"40 pairs are not simply true or false; use \.connected"):
        bool(reach)

    known = og.is_connected(raster, s[:, ::-1], t[:, ::-1], connectivity=4, tile=16, hops=False)
    np.testing.assert_array_equal(known.connected, reach.connected)
    assert known.hops is None
    assert known.paths is None
    assert not known.tiles.any(), "components were enough"


def test_one_point_may_be_paired_with_many() -> None:
    mask = serpentine((21, 20))
    field = oracle.levels(mask, (0, 0), 4)
    ends = [(5, 0), (19, 4), (0, 20)]
    reach = og.is_connected(mask, (0, 0), ends, connectivity=4, tile=6, path=False)
    assert reach.hops is not None
    assert reach.paths is None
    assert reach.hops.tolist() == [field[y, x] for x, y in ends]
    back = og.is_connected(mask, ends, (0, 0), connectivity=4, tile=6, path=False)
    assert back.hops is not None
    assert back.hops.tolist() == reach.hops.tolist()


@pytest.mark.parametrize("pairs", [1, 3])
def test_a_search_in_the_background_can_be_watched_and_stopped(
    pairs: int, tmp_path: Path, gate: Gate
) -> None:
    store = tmp_path / "plain.zarr"
    og.ingest(np.ones((80, 80), np.uint8), store, tile=8)
    ends = [(5, 5)] * pairs, [(70, 70)] * pairs
    run = og.is_connected.submit(store, *ends)
    assert isinstance(run, og.Run)
    reach: Any = run.result()
    assert reach.hops.tolist() == [65] * pairs
    assert run.status == "finished"
    assert str(run.progress()) == f"{pairs} of {pairs} tasks"
    assert run.statistics()["tiles_searched"] == reach.tiles.sum()

    watched = WatchedRaster(store, tmp_path / "diary", gate=gate)
    with og.config.set(threads=2, scratch=str(tmp_path)):
        run = called(gate, og.is_connected.submit, watched, *ends)
        assert isinstance(run, og.Run)
        begun = gate.until(lambda: len(read_tiles(tmp_path / "diary")) >= 10)
        wait_until(begun, lambda: run.status == "running")
        run.cancel()
        gate.open()
        with pytest.raises(og.Cancelled):
            run.result()
    assert run.status == "cancelled"
    assert {path.name for path in tmp_path.iterdir()} == {"plain.zarr", "diary"}


def test_a_task_that_ends_late_does_not_keep_the_folder_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster, tasks of a cancelled run go on for a while, and save what they have found."""
    og.ingest(np.ones((20, 20), np.uint8), tmp_path / "plain.zarr", tile=8)
    saved: list[tuple[Any, ...]] = []
    save, rmdir = StoredCheckpoints.save, os.rmdir

    def note(*entry: Any, **how: Any) -> None:
        saved.append(entry)
        save(*entry, **how)

    def save_again(*folder: Any, **options: Any) -> None:
        with suppress(FileNotFoundError):
            save(*saved[0])
        rmdir(*folder, **options)

    monkeypatch.setattr(StoredCheckpoints, "save", note)
    monkeypatch.setattr(os, "rmdir", save_again)
    with og.config.set(scratch=str(tmp_path)):
        reach = og.is_connected(tmp_path / "plain.zarr", [(5, 5)] * 2, [(9, 9)] * 2)
    assert reach.connected.all()
    assert saved
    assert [path.name for path in tmp_path.iterdir()] == ["plain.zarr"]


@pytest.mark.parametrize("hops", [True, False])
def test_connectivity_alone_ends_with_the_first_meeting(hops: bool) -> None:
    mask, s, t = MAZES["an empty grid"]
    reach = search(mask, s, t, hops=hops, tile=8)
    assert reach
    assert (reach.hops is None) == (not hops)
    mask, s, t = MAZES["two halves"]
    assert not search(mask, s, t, hops=hops, tile=8)


def test_points_are_map_coordinates_and_paths_too() -> None:
    values = np.array([[5.0, np.nan, 2.0], [1.0, 0.0, 3.0], [1.0, 9.0, 1.0]])
    axes = {"y": [30.0, 20.0, 10.0], "x": [100.0, 110.0, 120.0]}
    mask = xr.DataArray(values, axes, ("y", "x"))
    reach = og.is_connected(mask, (101, 29), (119, 31), connectivity=4)
    assert reach.paths is not None
    (path,) = reach.paths
    assert path is not None
    assert path.coordinates.tolist() == [
        [100, 30], [100, 20], [100, 10], [110, 10], [120, 10], [120, 20], [120, 30]
    ]  # fmt: skip
    assert og.path_mask([path], mask).values.sum() == 7
    moved = og.is_connected(mask, (110, 30), (119, 31), connectivity=4, snap=1)
    assert moved.hops is not None
    assert moved.hops.tolist() == [6]
    other = og.is_connected(mask, (100, 30), (120, 10), connectivity=4, nodata=9)
    assert not other


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"connectivity": 16}, "connectivity: 16 is unknown; use", id="knights"),
        pytest.param({"s": (9, 9)}, "s: point 0 .* outside the grid", id="a point outside"),
        pytest.param(
            {"t": [(0, 0), (1, 0), (0, 1)]},
            r"t: point 1 \(x=1, y=0\), point 2 \(x=0, y=1\) lie on cells that are not passable; "
            "move it or pass snap=True",
            id="points on barriers and nodata",
        ),
        pytest.param({"t": (0, 1), "mask": np.eye(1, 30), "s": (0, 0)}, "t: .* outside", id="row"),
        pytest.param({"snap": -2}, "snap: -2; it must be", id="snapping backwards"),
        pytest.param(
            {"s": [(0, 0)] * 2, "t": [(0, 0)] * 3}, "s, t: 2 and 3 points; give", id="odd pairs"
        ),
        pytest.param({"s": (0, np.nan)}, "s: point 0 is .* must be finite", id="no number"),
        pytest.param({"tile": 0}, "tile", id="a tile of 0"),
        pytest.param({"client": "tcp://here"}, "client: .* no Dask client", id="no client"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {
        "mask": np.array([[1, 0], [7, 1]], np.uint8),
        "s": (0, 0),
        "t": (1, 1),
        "nodata": 7,
        **changes,
    }
    with pytest.raises(og.InputError, match=message):
        og.is_connected(**options)


def test_states_that_do_not_fit_memory_are_spilled_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "orograph.engines.tile_states.room_for_states", lambda *_: 30_000
    )  # three tiles of 16 x 16 cells
    mask, s, t = MAZES["noise with ways through"]
    mask[s] = mask[t] = True
    og.ingest(mask, tmp_path / "mask.zarr", tile=16)
    with og.config.set(scratch=str(tmp_path)):
        assert_is(search(tmp_path / "mask.zarr", s, t), mask, s, t, 8)
    assert [path.name for path in tmp_path.iterdir()] == ["mask.zarr"]


# --- sets of cells ----------------------------------------------------------------------------

SETS = np.random.default_rng(8).random((40, 50)) > 0.38
SQUARES = [shapely.box(x - 0.4, y - 0.4, x + 5.4, y + 3.4) for x, y in ((2, 3), (40, 30), (20, 10))]
RIVER = shapely.LineString([(0, 38), (22, 33), (49, 39)])
ISLANDS = shapely.MultiPoint([(1, 1), (25, 20), (48, 2)])
ENDS = {
    "an area and a line": ([SQUARES[0]], [RIVER]),
    "an area and itself": ([SQUARES[0]], [SQUARES[0]]),
    "one area and many": ([SQUARES[0]], [*SQUARES[1:], RIVER]),
    "a multipoint and areas": ([ISLANDS], SQUARES),
    "pairs": ([SQUARES[0], RIVER], [SQUARES[1], ISLANDS]),
}


def cells_of_set(geometry: Any) -> np.ndarray:
    """Whether each passable cell is of a geometry."""
    if geometry is ISLANDS:
        inside = np.zeros(SETS.shape, bool)
        for point in ISLANDS.geoms:
            inside[int(point.y), int(point.x)] = True
    else:
        inside = og.rasterize([geometry], SETS).values >= 0
    found: np.ndarray = inside & SETS
    return found


@pytest.fixture(scope="module", autouse=True)
def _ends_of_multipoints() -> None:
    for point in ISLANDS.geoms:
        SETS[int(point.y), int(point.x)] = True


@pytest.mark.parametrize("name", ENDS)
def test_lines_and_areas_are_ends_as_wholes(name: str) -> None:
    s, t = ENDS[name]
    reaches = [og.is_connected(SETS, s, t, tile=tile) for tile in (7, 64)]
    count = max(len(s), len(t))
    for pair, (one, other) in enumerate(zip(s * (count // len(s)), t * (count // len(t)))):
        start, end = cells_of_set(one), cells_of_set(other)
        hops = og.hop_distance(SETS, start)["hops"].values[end]
        expected = int(hops[hops >= 0].min()) if (hops >= 0).any() else -1
        for reach in reaches:
            assert reach.hops is not None
            assert reach.hops[pair] == expected
            assert reach.connected[pair] == (expected >= 0)
            assert reach.paths is not None
            path = reach.paths[pair]
            assert (path is not None) == (expected >= 0)
            if path is not None:
                cells = path.cells
                assert start[tuple(cells[0])]
                assert end[tuple(cells[-1])]
                assert SETS[tuple(cells.T)].all()
                assert len(cells) == expected + 1
                assert (np.abs(np.diff(cells, axis=0)).max(axis=1) == 1).all()
                first = reaches[0].paths
                assert first is not None
                assert path == first[pair]


def test_sets_that_no_way_joins() -> None:
    mask = np.ones((6, 9), bool)
    mask[:, 4] = False
    left, right = shapely.box(0, 0, 3.4, 3.4), shapely.box(6, 0, 8, 3)
    assert og.is_connected(mask, left, right).hops.tolist() == [-1]
    assert og.is_connected(mask, left, [right, shapely.box(2, 2, 8, 3)]).hops.tolist() == [-1, 0]
    both = og.is_connected(mask, left, [right, shapely.box(2, 2, 8, 3)], hops=False)
    assert both.connected.tolist() == [False, True]


def test_a_set_without_a_passable_cell_is_refused() -> None:
    mask = np.ones((6, 9), bool)
    mask[:, 4] = False
    wall = shapely.box(3.6, 0, 4.4, 5)
    with pytest.raises(og.InputError, match="t: geometry 1 covers no passable cell"):
        og.is_connected(mask, (0, 0), [shapely.box(0, 0, 2, 2), wall])
    with pytest.raises(og.InputError, match=r"s: geometry 0, .* lies outside"):
        og.is_connected(mask, shapely.box(20, 20, 22, 22), (0, 0))
