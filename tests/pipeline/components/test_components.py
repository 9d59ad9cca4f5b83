"""Connected components equal SciPy's, numbers included, however the raster is cut and worked on.

Every comparison is for equality, of labels, sizes and boxes (see `oracle_components`).
"""

from __future__ import annotations

import math
import re
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import oracle_components as oracle
import pytest
import rasterio
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
import zarr
from dask.callbacks import Callback
from distributed import Client, get_task_stream
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import ndimage
from verbs import call

import orograph as og
from orograph.components.components import Components, Message, Parts, Summary
from orograph.engines.quadtree_pass import QuadtreePass
from orograph.run.checkpoints import MemoryCheckpoints
from orograph.run.context import RunContext
from orograph.run.options import run_layout, task_level
from orograph.tiles.grid.border import border_cells
from orograph.tiles.grid.quadtree import Node, Place, Quadtree, Sides, morton_encode
from orograph.tiles.grid.window import Window
from orograph.tiles.store.sink import ArraySink

CONNECTIVITY = pytest.mark.parametrize("connectivity", [4, 8], ids=["4 nbrs", "8 nbrs"])
DTYPES = ["bool", *(f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64)), "float32", "float64"]
components_of = partial(
    call, og.connected_components, outputs=("labels", "component_size", "component_box")
)
ours = settings(
    deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)


def assert_is(
    result: xr.Dataset, expected: oracle.Components, connectivity: int = 8, min_size: int = 1
) -> None:
    labels = result["labels"].values
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(labels, expected.labels)
    table = {"component_size": expected.size, "component_box": expected.box}
    for name, column in table.items():
        assert result[name].dtype == np.int64
        np.testing.assert_array_equal(result[name].values, column, err_msg=name)
    assert result["component_size"].dims == result["component_box"].dims[:1]
    attributes = {"component_count", "connectivity", "min_size"}
    assert {name: result.attrs[name] for name in attributes} == {
        "component_count": expected.count,
        "connectivity": connectivity,
        "min_size": min_size,
    }


# --- the oracle itself ---------------------------------------------------------------------


@CONNECTIVITY
def test_the_oracle_agrees_with_a_graph_and_with_flooding_by_the_definition(
    connectivity: int,
) -> None:
    rng = np.random.default_rng(20)
    for case in range(60):
        shape = rng.integers(1, 13, 2)
        classes = rng.integers(0, 2 + case % 4, shape).astype(rng.choice(DTYPES))
        if classes.dtype.kind == "f":
            classes[rng.random(shape) < 0.2] = np.nan
        how = {
            "connectivity": connectivity,
            "min_size": 1 + case % 3,
            "nodata": [None, 2][case % 2],
        }
        found, other = oracle.connected_components(classes, **how), oracle.by_graph(classes, **how)
        np.testing.assert_array_equal(found.labels, oracle.by_flooding(classes, **how))
        for name in ("labels", "size", "box"):
            np.testing.assert_array_equal(getattr(found, name), getattr(other, name))


# --- masks: SciPy's own labels, with no oracle between -----------------------------------------


@pytest.mark.diagonal
@CONNECTIVITY
@pytest.mark.parametrize("share", [0.02, 0.4, 0.6, 0.95])
def test_labels_of_a_mask_are_scipys_own(share: float, connectivity: int) -> None:
    mask = np.random.default_rng(5).random((211, 197)) < share
    labels, count = ndimage.label(mask, ndimage.generate_binary_structure(2, connectivity // 4))
    boxes = [(s.start, t.start, s.stop, t.stop) for s, t in ndimage.find_objects(labels)]
    for tile in (10, 33, 64, 211):
        result = components_of(mask, connectivity=connectivity, tile=tile)
        np.testing.assert_array_equal(result["labels"].values, labels)
        np.testing.assert_array_equal(
            result["component_size"].values, np.bincount(labels.ravel())[1:]
        )
        assert result["component_box"].values.tolist() == [list(box) for box in boxes]
        assert result.attrs["component_count"] == count


# --- rasters drawn by Hypothesis ---------------------------------------------------------------


@st.composite
def rasters(draw: st.DrawFn, longest: int = 40) -> tuple[np.ndarray, float | int | None]:
    """A raster and its nodata value, if any."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    side = st.integers(1, longest)
    shape = draw(
        st.tuples(side, side) | st.tuples(st.just(1), side) | st.tuples(side, st.just(1)),
        label="shape",
    )
    palette = [0, 1, 1, 2, 3]
    if dtype.kind in "iu":
        palette += [np.iinfo(dtype).min, np.iinfo(dtype).max]
    elif dtype.kind == "f":
        palette += [np.nan, np.inf, -np.inf, -0.0, 0.5, float(np.finfo(dtype).min)]
    kinds = draw(st.lists(st.sampled_from(palette), min_size=1, max_size=5), label="classes")
    values = np.array(kinds, dtype)
    y, x = np.indices(shape)
    rng = np.random.default_rng(draw(st.integers(0, 2**16), label="seed"))
    pattern = draw(st.sampled_from(["scatter", "patches", "stripes", "rings", "board"]))
    if pattern == "scatter":
        index = rng.integers(0, values.size, shape)
    elif pattern == "patches":
        index = rng.integers(0, values.size, (longest, longest))[y // 3, x // 4]
    elif pattern == "stripes":
        index = (y + 2 * x) // 3
    elif pattern == "rings":
        index = np.maximum(abs(y - shape[0] // 2), abs(x - shape[1] // 2))
    else:
        index = y + x
    classes = values[index % values.size]
    holes = draw(st.sampled_from([0.0, 0.1, 0.6]), label="share of background")
    classes[rng.random(shape) < holes] = 0
    nodata = draw(st.none() | st.sampled_from(values.tolist()), label="nodata")
    if isinstance(nodata, float) and not np.isfinite(nodata):
        nodata = None
    return classes, nodata


@given(st.data())
@settings(ours, max_examples=200)
def test_any_tiling_of_any_raster_gives_the_oracles_components(data: st.DataObject) -> None:
    classes, nodata = data.draw(rasters(), label="classes, nodata")
    how = {
        "connectivity": data.draw(st.sampled_from([4, 8]), label="connectivity"),
        "min_size": data.draw(st.sampled_from([1, 1, 2, 3, 7, 2000]), label="min_size"),
    }
    side = max(classes.shape)
    # a tile of 1 is drawn too; on the largest grids it is 2 or more, to keep the suite short
    least = min(1 + classes.size // 700, side)
    tile = data.draw(st.integers(least, side), label="tile")
    expected = oracle.connected_components(classes, nodata=nodata, **how)
    result = components_of(classes, tile=tile, nodata=nodata, **how)
    assert_is(result, expected, **how)


@given(st.data())
@settings(ours, max_examples=10)
def test_any_store_gives_the_oracles_components_on_disk(data: st.DataObject) -> None:
    classes, nodata = data.draw(rasters(30), label="classes, nodata")
    tile = data.draw(st.integers(1, 9), label="tile")
    expected = oracle.connected_components(classes, nodata=nodata, min_size=2)
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "classes.zarr", Path(folder) / "labels.zarr"
        data_tile = data.draw(st.integers(1, 16), label="tile of the store")
        if classes.dtype == bool:
            classes = classes.astype(np.uint8)
        og.ingest(classes, source, tile=data_tile, nodata=nodata)
        result = components_of(source, tile=tile, out=out, min_size=2)
        assert_is(result, expected, min_size=2)
        result.close()


# --- rasters worth naming -------------------------------------------------------------------


def noise(shape: tuple[int, int], share: float, classes: int = 1, dtype: str = "u1") -> np.ndarray:
    rng = np.random.default_rng(7)
    return (rng.integers(1, classes + 1, shape) * (rng.random(shape) < share)).astype(dtype)


def spiral(side: int) -> np.ndarray:
    """One arm, a cell wide, through every tile many times; what is not arm is its mirror image."""
    y, x = np.indices((side, side))
    ring = np.minimum.reduce([y, x, side - 1 - y, side - 1 - x])
    arm = ring % 2 == 0
    gate = (x == ring) & (y == ring + 1)  # each ring opens into the next one below its corner
    return (arm ^ gate).astype(np.uint8)


def comb(height: int, width: int) -> np.ndarray:
    """Teeth that only the last row joins: each is a component until then."""
    cells = np.zeros((height, width), np.uint8)
    cells[:, ::2] = 1
    cells[-1] = 1
    return cells


def two_combs(height: int, width: int) -> np.ndarray:
    """Two classes whose teeth lie between each other's; their first cells are neighbours."""
    cells = np.tile((np.arange(width) % 2 + 1).astype(np.uint8), (height, 1))
    cells[0, 1:], cells[-1] = 1, 2
    return cells


def speckles(height: int, width: int) -> np.ndarray:
    """As many components as there can be."""
    cells = np.zeros((height, width), np.uint8)
    cells[::2, ::2] = 1
    return cells


def nested_hooks(side: int) -> np.ndarray:
    """L shapes within each other: all start in one row, each ends farther down and left."""
    y, x = np.indices((side, side))
    return (np.maximum(y, side - 1 - x) % 2).astype(np.uint8)


def staircases(side: int) -> np.ndarray:
    """Diagonals: one component each by 8 neighbours, one a cell by 4."""
    y, x = np.indices((side, side))
    return ((y + x) % 3 == 0).astype(np.uint8)


BOARD = (np.indices((33, 30)).sum(0) % 2).astype(np.uint8)
NAMED = {
    "all ones": np.ones((37, 29), bool),
    "all zeros": np.zeros((16, 33), np.uint8),
    "all of one class": np.full((20, 31), 7, np.int16),
    "all nodata": np.full((19, 20), np.nan),
    "a checkerboard": BOARD,
    "a checkerboard of two classes": BOARD + np.uint8(1),
    "every other cell of every other row": speckles(31, 34),
    "single cells": noise((40, 41), 0.06),
    "noise at 60 %": noise((41, 40), 0.6),
    "noise at 45 %": noise((40, 40), 0.45),
    "noise of two classes and no background": noise((40, 37), 1.0, 2),
    "noise of five classes": noise((40, 40), 0.9, 5),
    "every cell a class of its own": np.arange(1, 901, dtype=np.int32).reshape(30, 30),
    "a spiral": spiral(39),
    "what a spiral leaves": 1 - spiral(39),
    "a comb": comb(33, 40),
    "a comb with its teeth down": comb(33, 40)[::-1].copy(),
    "a comb on its side": comb(40, 33).T.copy(),
    "two combs in each other": two_combs(30, 35),
    "hooks in each other": nested_hooks(36),
    "diagonals": staircases(34),
    "diagonals the other way": staircases(34)[:, ::-1].copy(),
    "one row": noise((1, 60), 0.7, 2),
    "one column": noise((60, 1), 0.7, 2),
    "one cell": np.ones((1, 1), bool),
    "one cell of background": np.zeros((1, 1), np.float32),
    "one cell in the last corner": np.pad(np.ones((1, 1), np.uint8), ((30, 0), (28, 0))),
    "floats with NaN between them": np.where(
        noise((35, 35), 0.2) > 0, np.nan, noise((35, 35), 0.8, 3).astype(np.float32)
    ),
    "floats a last bit apart": 1.0 + np.finfo("f8").eps * noise((30, 30), 0.7, 1),
    "zeros of both signs": np.where(BOARD, -0.0, noise((33, 30), 0.8)).astype(np.float32),
    "negative classes": -noise((30, 33), 0.8, 3, "i8"),
    "int64 that float64 cannot tell apart": 2**60 + noise((30, 30), 0.5, 2, "i8"),
    "uint64 above 2 to the 63": np.uint64(2**64 - 4) + noise((30, 30), 0.5, 3, "u8"),
}


@pytest.mark.diagonal
@CONNECTIVITY
@pytest.mark.parametrize("classes", NAMED.values(), ids=NAMED.keys())
def test_every_tile_size_gives_the_components_of(classes: np.ndarray, connectivity: int) -> None:
    for min_size in (1, 4):
        how = {"connectivity": connectivity, "min_size": min_size}
        expected = oracle.connected_components(classes, **how)
        # the test of every single size has tiles of one cell and two too, for both connectivities
        tiles = ((2, 8, 17, 64) if connectivity == 8 else (3, 8, 40)) if min_size == 1 else (5, 16)
        for tile in tiles:
            assert_is(components_of(classes, tile=tile, **how), expected, **how)


def test_a_named_raster_is_what_its_name_says() -> None:
    counts = {
        name: [oracle.connected_components(NAMED[name], connectivity=c).count for c in (4, 8)]
        for name in ("a spiral", "what a spiral leaves", "a comb", "two combs in each other")
    }
    assert counts == {
        "a spiral": [1, 1],
        "what a spiral leaves": [1, 1],
        "a comb": [1, 1],
        "two combs in each other": [2, 2],
    }


@CONNECTIVITY
def test_every_single_tile_size_from_one_cell_to_the_whole(connectivity: int) -> None:
    classes = noise((19, 26), 0.85, 2)
    expected = oracle.connected_components(classes, connectivity=connectivity)
    for tile in range(1, 28):
        result = components_of(classes, connectivity=connectivity, tile=tile)
        assert_is(result, expected, connectivity)


@pytest.mark.parametrize(
    "min_size",
    [1, 2, *(pytest.param(n, marks=pytest.mark.long) for n in (3, 10, 100, 1000)), 10**12],
)
def test_small_components_leave_no_gap_in_the_numbers(min_size: int) -> None:
    classes = noise((60, 70), 0.75, 2)
    expected = oracle.connected_components(classes, min_size=min_size)
    for tile in (4, 9, 32, 70):
        result = components_of(classes, min_size=min_size, tile=tile)
        assert_is(result, expected, min_size=min_size)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_classes_in_another_dtype_give_the_same_components(dtype: str) -> None:
    classes = noise((37, 35), 0.8, 1 if dtype == "bool" else 3)
    expected = oracle.connected_components(classes, nodata=3)
    result = components_of(classes.astype(dtype), tile=9, nodata=3)
    assert_is(result, expected)


def test_arrays_that_are_not_contiguous_or_not_native_give_the_same_components() -> None:
    classes = noise((20, 21), 0.8, 3, "i2")
    expected = oracle.connected_components(classes)
    wide = np.repeat(np.repeat(classes, 2, 0), 3, 1)
    for same in (np.asfortranarray(classes), wide[::2, ::3], classes.astype(">i2")):
        assert_is(components_of(same, tile=6), expected)
    turned = oracle.connected_components(classes[::-1].copy())
    assert_is(components_of(classes[::-1], tile=6), turned)


@pytest.mark.parametrize("threads", [*(pytest.param(n, marks=pytest.mark.long) for n in (1, 2)), 5])
def test_any_number_of_threads_gives_the_same_components(threads: int) -> None:
    classes = noise((150, 149), 0.8, 2)
    before = classes.tobytes()
    expected = oracle.connected_components(classes, min_size=2)
    with og.config.set(threads=threads):
        for _ in range(3):
            result = components_of(classes, tile=11, min_size=2)
            assert_is(result, expected, min_size=2)
    assert classes.tobytes() == before, "the input was changed"


# --- real rasters ----------------------------------------------------------------------------


def read(path: Path) -> tuple[np.ndarray, float | None]:
    with rasterio.open(path) as source:
        return source.read(1), source.nodata


@CONNECTIVITY
@pytest.mark.parametrize("min_size", [1, 9], ids=["all", "9 cells and more"])
def test_land_cover_of_a_file(
    shared_data: Path, tmp_path: Path, connectivity: int, min_size: int
) -> None:
    path = shared_data / "friction" / "nc_fortbragg_landcover.tif"
    classes, nodata = read(path)
    how = {"connectivity": connectivity, "min_size": min_size}
    expected = oracle.connected_components(classes, nodata=nodata, **how)
    assert expected.count > 10
    result = components_of(path, tile=20, out=tmp_path / "labels.zarr", **how)
    assert_is(result, expected, **how)
    assert_is(components_of(classes, nodata=nodata, tile=64, **how), expected, **how)


@pytest.mark.diagonal
@CONNECTIVITY
@pytest.mark.parametrize(
    ("name", "tile"),
    [("med_01_01", 100), ("moon_5120x5120", 512), ("nc_eno", 97), ("nc_fortbragg_2016", 33)],
)
def test_high_ground_of_a_dem(shared_data: Path, name: str, tile: int, connectivity: int) -> None:
    elevation, nodata = read(shared_data / "dem" / f"{name}.tif")
    elevation = elevation[:2000, :1900]
    level = np.median(elevation)
    valid = oracle.foreground(elevation + 0.0, nodata)
    high = (elevation > level) & valid
    result = components_of(high, tile=tile, connectivity=connectivity)
    assert_is(result, oracle.connected_components(high, connectivity=connectivity), connectivity)

    # two classes, and the lower of them small pools only
    classes = np.where(valid, np.where(high, np.float32(level), np.float32(-1.5)), np.nan)
    how = {"connectivity": connectivity, "min_size": 20}
    result = components_of(classes, tile=tile + 1, **how)
    assert_is(result, oracle.connected_components(classes, **how), **how)


@pytest.mark.parametrize("name", ["med_01_01", "nc_eno", "california_clipped_500x500"])
def test_flats_of_a_dem_where_every_height_is_a_class(shared_data: Path, name: str) -> None:
    elevation, nodata = read(shared_data / "dem" / f"{name}.tif")
    expected = oracle.by_graph(elevation, nodata=nodata, min_size=2)
    assert expected.count > 20
    result = components_of(elevation, nodata=nodata, min_size=2, tile=61)
    assert_is(result, expected, min_size=2)


# --- stores, Dask, workers ----------------------------------------------------------------------


def georeferenced(classes: np.ndarray, chunks: tuple[int, int] | None = None) -> xr.DataArray:
    return xr.DataArray(
        classes if chunks is None else da.from_array(classes, chunks=chunks),
        dims=("y", "x"),
        coords={
            "y": 4000.0 - 10 * np.arange(classes.shape[0]),
            "x": 500.0 + 10 * np.arange(classes.shape[1]),
        },
        name="cover",
    ).rio.write_crs("EPSG:32611")


@pytest.mark.parametrize(
    ("shape", "tile", "shard"),
    [
        ((23, 22), 2, 4),
        ((17, 61), 3, 12),
        ((33, 5), 1, 16),
        ((16, 16), 16, 16),
        ((1, 50), 1, 2),
        ((50, 1), 1, 1),
    ],
    ids=[
        "shards of 2 by 2 tiles, ragged on both sides",
        "shards of 4 by 4 odd tiles, much wider than high",
        "a last row of shards one cell high",
        "exactly one tile",
        "one row high, tiles of one cell",
        "one column wide, tiles of one cell",
    ],
)
def test_a_store_gives_the_components_of_the_array(
    tmp_path: Path, shape: tuple[int, int], tile: int, shard: int
) -> None:
    classes = noise(shape, 0.8, 3, "i2")
    expected = oracle.connected_components(classes, nodata=2)
    lazy = og.ingest(classes, tmp_path / "cover.zarr", tile=tile, shard=shard, nodata=2)
    for number, source in enumerate((str(tmp_path / "cover.zarr"), lazy)):
        out = tmp_path / f"labels-{number}.zarr"
        assert_is(components_of(source, out=out), expected)
        assert_is(og.open(out), expected)
        with xr.open_zarr(out) as plain:
            assert_is(plain, expected)
    assert not [p for p in tmp_path.iterdir() if p.suffix != ".zarr"], "a run left its scraps"


@pytest.mark.diagonal
@CONNECTIVITY
@pytest.mark.parametrize("chunks", [(7, 13), (31, 1), (31, 40)], ids=["odd", "columns", "one"])
@pytest.mark.parametrize("where", ["in memory", "on disk"])
def test_a_dask_backed_dataarray_gives_the_components_of_the_array(
    tmp_path: Path, chunks: tuple[int, int], connectivity: int, where: str
) -> None:
    classes = noise((31, 40), 0.8, 2, "f4")
    expected = oracle.connected_components(classes, connectivity=connectivity)
    result = components_of(
        georeferenced(classes, chunks),
        connectivity=connectivity,
        tile=4,
        out=tmp_path / "labels.zarr" if where == "on disk" else None,
    )
    assert_is(result, expected, connectivity)
    np.testing.assert_array_equal(result["labels"]["y"], 4000.0 - 10 * np.arange(31))
    np.testing.assert_array_equal(result["labels"]["x"], 500.0 + 10 * np.arange(40))
    assert result["labels"].rio.crs.to_epsg() == 32611


def test_a_run_in_the_background_gives_the_same_components(tmp_path: Path) -> None:
    classes = noise((90, 80), 0.8, 2)
    out = tmp_path / "labels.zarr"
    run = components_of(classes, tile=4, out=out, verb="submit")
    assert isinstance(run, og.Run)
    assert_is(run.result(120), oracle.connected_components(classes))
    assert run.status == "finished"
    assert run.progress().done == run.progress().total > 1


@pytest.fixture(scope="module", params=[1, 2], ids=["1 worker", "2 workers"])
def client(request: pytest.FixtureRequest, clients: Callable[[int], Client]) -> Client:
    return clients(request.param)


@pytest.mark.parametrize(
    ("client", "connectivity"),
    [
        pytest.param(1, 4, id="1 worker-4 nbrs", marks=pytest.mark.long),
        pytest.param(2, 8, id="2 workers-8 nbrs"),
        pytest.param(1, 8, id="1 worker-8 nbrs", marks=pytest.mark.long),
        pytest.param(2, 4, id="2 workers-4 nbrs", marks=pytest.mark.long),
    ],
    indirect=["client"],
)
def test_any_number_of_workers_gives_the_same_components(
    client: Client, tmp_path: Path, connectivity: int
) -> None:
    classes = noise((200, 139), 0.75, 2, "f8")
    classes[noise((200, 139), 0.1) > 0] = np.nan
    how = {"connectivity": connectivity, "min_size": 2}
    expected = oracle.connected_components(classes, **how)
    og.ingest(classes, tmp_path / "cover.zarr", tile=4)
    out = tmp_path / "labels.zarr"
    workers = client.scheduler_info(n_workers=-1)["workers"]
    with get_task_stream(client) as stream:
        result = components_of(tmp_path / "cover.zarr", out=out, client=client, **how)
    assert_is(result, expected, **how)
    assert_is(og.open(out), expected, **how)
    assert {task["worker"] for task in stream.data} == set(workers), "a worker had no part in it"
    shards = zarr.open_array(out / "labels", mode="r").shards
    assert max(shards) <= 64, "one shard alone would prove nothing about seams"


def test_an_array_goes_to_workers_too(client: Client) -> None:
    classes = noise((150, 139), 0.6, 1, "?")
    result = components_of(classes, tile=16, client=client)
    assert_is(result, oracle.connected_components(classes))


# --- more ids than 32 bits hold -----------------------------------------------------------------
#
# The problem's functions on places of a grid too large to exist. Where nothing is of interest
# stands a stub that tells only its border, all background, and how many components start in each
# of its rows: one in four columns, as many as single cells could be.

HUGE = (200_000, 300_000)
TREE = Quadtree(HUGE, 256)
NONE = np.zeros(0, np.int64)
OPEN, CLOSED = Sides(True, True, True, True), Sides(False, False, False, False)


class World:
    """A run over a huge grid of stubs, but for some tiles whose cells are given."""

    def __init__(
        self, problem: Components, cells: dict[Place, np.ndarray], firsts: list[tuple[int, int]]
    ) -> None:
        self.problem, self.cells, self.firsts = problem, cells, sorted(firsts)
        self.stubs: dict[Place, np.ndarray] = {}
        self.labels: dict[Place, np.ndarray] = {}
        self.tables: list[dict[str, np.ndarray]] = []
        summary, saved = self.climb(TREE.root)
        message, self.attributes = problem.root(summary)
        self.descend(TREE.root, saved, message)

    def climb(self, node: Node) -> tuple[Summary, Any]:
        place = TREE.place(node)
        if place in self.cells:
            return self.problem.leaf(place, self.cells[place])
        if not any(starts_in(other.window, place.window) for other in self.cells):
            border = border_cells(*place.window.shape, place.sides).size
            starts = np.full(place.window.height, (place.window.width - 2) // 4)
            starts[[0, -1]] = 0
            self.stubs[place] = np.concatenate([[0], np.cumsum(starts)])
            blank = np.zeros(border, np.uint8)
            parts = Parts(NONE, NONE, NONE, NONE.reshape(0, 4))
            return Summary(blank, np.full(border, -1), parts, starts), None
        below = [(TREE.place(child), *self.climb(child)) for child in TREE.children(node)]
        summary, saved = self.problem.merge(place, [(p, s) for p, s, _ in below])
        return summary, (saved, [r for _, _, r in below])

    def descend(self, node: Node, saved: Any, message: Message) -> None:
        place = TREE.place(node)
        if place in self.stubs:
            for row in (0, place.window.height // 2, place.window.height - 1):
                first_of_row = 1 + self.before(place.window.y + row, place.window.x)
                assert int(message.base[row]) == first_of_row
        elif place in self.cells:
            self.labels[place] = self.problem.finish(place, saved, message)["labels"]
            self.tables.append(self.problem.rows_of_tile(place, saved, message))
        else:
            own, below = saved
            self.tables.append(self.problem.rows_of_node(place, own, message))
            children = TREE.children(node)
            messages = self.problem.down(place, own, message, [TREE.place(c) for c in children])
            for child, its_residue, its_answer in zip(children, below, messages, strict=True):
                self.descend(child, its_residue, its_answer)

    def before(self, row: int, column: int) -> int:
        """How many components start before a cell, in Python's integers and without a tree."""
        count = bisect_left(self.firsts, (row, column))
        for place, starts in self.stubs.items():
            y = min(max(row - place.window.y, 0), place.window.height)
            count += int(starts[y])
            if 0 <= row - place.window.y < place.window.height and place.window.x < column:
                count += int(starts[y + 1] - starts[y])
        return count


def starts_in(inner: Window, outer: Window) -> bool:
    y, x = inner.y - outer.y, inner.x - outer.x
    return 0 <= y < outer.height and 0 <= x < outer.width


def first_cells(labels: np.ndarray) -> list[tuple[int, int]]:
    """Row and column of the first cell of each component, in the order of the labels."""
    numbers, first = np.unique(labels, return_index=True)
    y, x = np.divmod(first[numbers > 0], labels.shape[1])
    return list(zip(y.tolist(), x.tolist()))


@CONNECTIVITY
def test_labels_and_cells_beyond_32_bits_are_exact(connectivity: int) -> None:
    """Four tiles about a corner where seams of high levels cross, and the last tile of the grid."""
    side = TREE.tile
    middle, end = (131_072 - side, 262_144 - side), (781 * side, 1171 * side)
    blocks = {
        middle: noise((2 * side, 2 * side), 0.6 if connectivity == 4 else 0.45),
        end: noise((HUGE[0] - end[0], HUGE[1] - end[1]), 0.6, 2),
    }
    how = {"connectivity": connectivity, "min_size": 2}
    expected = {c: oracle.connected_components(block, **how) for c, block in blocks.items()}
    firsts = [
        (y + i, x + j)
        for (y, x), message in expected.items()
        for i, j in first_cells(message.labels)
    ]
    cells, windows = {}, {}
    for (y, x), block in blocks.items():
        for i, j in np.ndindex(*(-(-n // side) for n in block.shape)):
            node = Node(0, morton_encode(y // side + i, x // side + j))
            place = TREE.place(node)
            windows[place] = np.s_[i * side : (i + 1) * side, j * side : (j + 1) * side]
            cells[place] = np.ascontiguousarray(block[windows[place]])
            assert (place.window.y, place.window.x) == (y + i * side, x + j * side)

    world = World(Components(None, connectivity, 2, "numba"), cells, firsts)

    numbers = np.array([1 + world.before(y, x) for y, x in firsts])
    assert numbers.min() > 2**32
    assert HUGE[1] * middle[0] + middle[1] > 2**32
    top, left, bottom, right = expected[middle].box.T
    across = (left < side) & (right > side)
    assert (across & (top < side) & (bottom > side)).any(), "nothing goes over both seams"
    for corner, number in zip(blocks, np.split(numbers, [expected[middle].count])):
        whole = np.concatenate([[0], number])[expected[corner].labels]
        for place, labels in world.labels.items():
            if starts_in(place.window, Window(*corner, *whole.shape)):
                assert labels.dtype == np.int64
                np.testing.assert_array_equal(labels, whole[windows[place]])

    label = np.concatenate([table["label"] for table in world.tables])
    np.testing.assert_array_equal(np.sort(label), numbers)
    table = joined(world.problem, world.tables)
    sizes = np.concatenate([message.size for message in expected.values()])
    np.testing.assert_array_equal(table["component_size"], sizes)
    boxes = [message.box + np.array([*corner, *corner]) for corner, message in expected.items()]
    np.testing.assert_array_equal(table["component_box"], np.concatenate(boxes))
    count = sum(int(starts[-1]) for starts in world.stubs.values()) + len(firsts)
    assert world.attributes["component_count"] == count > 2**33


def joined(problem: Components, tables: list[dict[str, Any]]) -> dict[str, Any]:
    """The table of some of a grid's components, as if there were no others."""
    labels = np.sort(np.concatenate([table["label"] for table in tables]))
    alone = [{**t, "label": np.searchsorted(labels, t["label"]) + 1} for t in tables]
    return {name: problem.join_rows(alone, name) for name in problem.columns}


def test_one_component_of_sixty_thousand_million_cells() -> None:
    """A grid of ones, told of in six pieces: sizes and boxes add up without wrapping."""
    problem = Components(None, 8, 2**35, "numba")
    told_at = TREE.root.level - 2
    pieces = list(TREE.nodes(told_at))
    assert len(pieces) == 6

    def climb(node: Node) -> tuple[Summary, Any]:
        place = TREE.place(node)
        w = place.window
        if node.level > told_at:
            below = [(TREE.place(child), *climb(child)) for child in TREE.children(node)]
            summary, saved = problem.merge(place, [(p, s) for p, s, _ in below])
            return summary, (saved, [r for _, _, r in below])
        border = border_cells(*w.shape, place.sides).size
        one = Parts(
            np.array([w.y * HUGE[1] + w.x]),
            np.zeros(1, np.int64),
            np.array([w.size]),
            np.array([[w.y, w.x, w.y + w.height, w.x + w.width]]),
        )
        values, parts = np.ones(border, np.uint8), np.zeros(border, np.int64)
        return Summary(values, parts, one, np.zeros(w.height, np.int64)), None

    messages: list[Message] = []
    tables: list[dict[str, np.ndarray]] = []

    def descend(node: Node, saved: Any, message: Message) -> None:
        if node.level == told_at:
            messages.append(message)
            return
        place, children = TREE.place(node), TREE.children(node)
        tables.append(problem.rows_of_node(place, saved[0], message))
        sent = problem.down(place, saved[0], message, [TREE.place(c) for c in children])
        for child, its_residue, its_answer in zip(children, saved[1], sent, strict=True):
            descend(child, its_residue, its_answer)

    summary, saved = climb(TREE.root)
    message, attributes = problem.root(summary)
    descend(TREE.root, saved, message)
    assert attributes["component_count"] == 1
    assert [a.labels.tolist() for a in messages] == [[1]] * 6
    assert [a.owned.tolist() for a in messages] == [[True]] + [[False]] * 5
    table = joined(problem, tables)
    assert table["component_size"].tolist() == [HUGE[0] * HUGE[1]]
    assert table["component_box"].tolist() == [[0, 0, *HUGE]]


@CONNECTIVITY
@given(corner=st.tuples(*2 * [st.integers(2**31, 2_999_999_900)]), seed=st.integers(0, 2**16))
@settings(ours, max_examples=15)
def test_tiles_near_the_last_cell_that_63_bits_can_name(
    connectivity: int, corner: tuple[int, int], seed: int
) -> None:
    grid, (top, left) = (3_000_000_000, 3_000_000_000), corner
    classes = np.random.default_rng(seed).integers(0, 3, (20, 18)).astype(np.uint8)
    expected = oracle.connected_components(classes, connectivity=connectivity)
    problem = Components(None, connectivity, 1, "numba")
    cuts = [Window(0, 0, 11, 10), Window(11, 0, 9, 10), Window(0, 10, 11, 8), Window(11, 10, 9, 8)]
    places = [
        Place(Node(0, z), Window(top + w.y, left + w.x, *w.shape), OPEN, grid)
        for z, w in enumerate(cuts)
    ]
    leaves = [problem.leaf(p, classes[w.slices].copy()) for p, w in zip(places, cuts)]
    for place, cut, (_, saved) in zip(places, cuts, leaves):
        own = oracle.connected_components(classes[cut.slices], connectivity=connectivity)
        names = [
            (place.window.y + y) * grid[1] + place.window.x + x for y, x in first_cells(own.labels)
        ]
        assert saved.rows[-1] == len(names)
        assert min(names) > 2**62
    # nothing but background lies about the four, so that all is known here
    place = Place(Node(1, 0), Window(top, left, 20, 18), CLOSED, grid)
    sent = [(p, summary) for p, (summary, _) in zip(places, leaves)]
    summary, saved = problem.merge(place, sent)
    rows = [y for y, _ in first_cells(expected.labels)]
    assert summary.starts.tolist() == [rows.count(y) for y in range(20)]
    base = 2**62 + 10**9 * np.arange(20)
    message = Message(base, NONE, np.zeros(0, bool))
    number = np.array([0] + [int(base[y]) + rows[:k].count(y) for k, y in enumerate(rows)])
    messages = problem.down(place, saved, message, places)
    tables = [problem.rows_of_node(place, saved, message)]
    for child, cut, (_, own), its_answer in zip(places, cuts, leaves, messages):
        labels = problem.finish(child, own, its_answer)["labels"]
        np.testing.assert_array_equal(labels, number[expected.labels][cut.slices])
        tables.append(problem.rows_of_tile(child, own, its_answer))
    table = joined(problem, tables)
    np.testing.assert_array_equal(table["component_size"], expected.size)
    offset = np.array([top, left, top, left])
    np.testing.assert_array_equal(table["component_box"], expected.box + offset)


# --- tasks -------------------------------------------------------------------------------------


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("where", "shape"),
    [
        *(("memory", shape) for shape in ((1024, 1024), (8192, 8192), (5000, 7100))),
        *(("disk", shape) for shape in ((1024, 1024), (8192, 8192), (5000, 7100))),
        *(("disk", shape) for shape in ((90_000, 3), (1, 90_000), (20_000, 30_000))),
        *(("memory", shape) for shape in ((90_000, 3), (1, 90_000), (250, 70_000))),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value[0]} by {value[1]}",
)
def test_a_run_takes_at_most_four_tasks_a_tile(where: str, shape: tuple[int, int]) -> None:
    count, tiles = tasks_and_tiles(where, shape)
    assert count <= 4 * tiles, f"{count} tasks for {tiles} tiles"


@pytest.mark.parametrize("tiles", [2, 9, 88, 1000])
def test_along_a_grid_one_full_tile_wide_a_few_tasks_come_on_top(tiles: int) -> None:
    # half as many nodes a level, rounded up: at most log2(tiles) more than the tiles themselves
    count, found = tasks_and_tiles("memory", (1024 * tiles, 1024))
    assert found == tiles
    assert count <= 4 * tiles + 2 * math.ceil(math.log2(tiles)) + 1


def tasks_and_tiles(where: str, shape: tuple[int, int]) -> tuple[int, int]:
    """How many tasks a run has, and its grid tiles of 1024 cells a side."""
    tile = 1024
    layout, tree = run_layout(shape, tile), Quadtree(shape, tile)
    assert layout.tile == tile
    on_disk = (layout.shard // tile).bit_length() - 1
    run = QuadtreePass(
        problem=Components(None, 8, 1, "numba"),
        rasters=(),
        context=RunContext(
            tree,
            on_disk if where == "disk" else task_level(tree),
            MemoryCheckpoints(),
            ArraySink({}),
            "0" * 32,
        ),
    )
    tasks, root, writes = run.graph("handle")
    assert {root, *writes} <= tasks.keys()
    return len(tasks), tree.count(0)


def test_a_table_is_written_in_whole_chunks_a_row_of_shards_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orograph.tiles.store.create.TABLE_ROWS", 64)
    classes = noise((117, 90), 0.4, 8)
    expected = oracle.connected_components(classes, connectivity=4)
    assert expected.count > 10 * 64
    result = components_of(classes, connectivity=4, tile=8, shard=16, out=tmp_path / "labels.zarr")
    assert_is(result, expected, connectivity=4)
    for name in ("component_size", "component_box"):
        column = zarr.open_array(tmp_path / "labels.zarr" / name)
        assert column.chunks[0] == 64
    empty = components_of(np.zeros((30, 40)), tile=8, out=tmp_path / "none.zarr")
    assert_is(empty, oracle.connected_components(np.zeros((30, 40))))


@pytest.mark.parametrize("where", ["memory", "store"])
def test_labels_alone_of_32_bits_are_the_same(where: str, tmp_path: Path) -> None:
    classes = noise((70, 61), 0.6, 2)
    expected = oracle.connected_components(classes, connectivity=4, min_size=2)
    for tile in (None, 16):
        out = None if where == "memory" else tmp_path / f"{tile}.zarr"
        how = {"connectivity": 4, "min_size": 2, "tile": tile, "out": out}
        found = og.connected_components(classes, dtype="int32", **how)
        assert list(found.data_vars) == ["labels"]
        assert found["labels"].dtype == np.int32
        np.testing.assert_array_equal(found["labels"].values, expected.labels)
        assert found.attrs["component_count"] == expected.count


@pytest.mark.parametrize(("count", "fits"), [(2**31 - 1, True), (2**31, False)])
def test_more_components_than_32_bits_number_are_refused_before_labels_are_written(
    count: int, fits: bool
) -> None:
    nothing = Parts(NONE, NONE, NONE, NONE.reshape(0, 4))
    summary = Summary(NONE, NONE, nothing, np.array([count - 1, 1]))
    problem = Components(None, 8, 1, "numba", ("labels",), "int32")
    if fits:
        assert problem.root(summary)[1]["component_count"] == count
        return
    with pytest.raises(og.InputError, match="dtype: int32 holds labels up to 2147483647"):
        problem.root(summary)


def test_tiles_are_joined_in_memory_where_none_are_asked_for() -> None:
    from orograph.engines.quadtree_pass import join_tiles

    def joined(threads: int, sink: Any, side: int = 4096) -> int:
        tree = Quadtree((side, side), 1024)
        context = RunContext(tree, 0, MemoryCheckpoints(), sink, "0" * 32, threads)
        return join_tiles(context).quadtree.tile

    assert joined(1, ArraySink({})) == 4096
    assert joined(2, ArraySink({})) == 1024
    assert joined(2, ArraySink({}), 8192) == 2048
    assert joined(1, ArraySink({}), 32_768) == 8192
    assert joined(1, None) == 1024


# --- bad input ---------------------------------------------------------------------------------


def never_read(block: np.ndarray) -> np.ndarray:
    raise AssertionError("a block was computed before the input was refused")


def unreadable(dtype: str = "uint8", dims: str = "yx", shape: tuple[int, ...] = (20, 30)) -> Any:
    """A lazy raster that fails as soon as anyone looks at a cell of it."""
    blocks = da.zeros(shape, dtype=dtype, chunks=10).map_blocks(never_read, dtype=dtype)
    return xr.DataArray(blocks, dims=list(dims))


@contextmanager
def refused(folder: Path, kind: type[Exception], *says: str) -> Iterator[None]:
    """Expect an error whose message has all of `says`; no task run, no file made or changed."""
    tasks: list[object] = []
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    with (
        Callback(pretask=lambda key, graph, state: tasks.append(key)),
        pytest.raises(kind) as caught,
    ):
        yield
    missing = [part for part in says if not re.search(part, str(caught.value))]
    assert not missing, f"the message lacks {missing}: {caught.value}"
    assert not tasks, f"{len(tasks)} tasks ran before the refusal"
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before


KEYWORDS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a connectivity of 6": ({"connectivity": 6}, ("connectivity", r"\b6\b", r"use.*\b4\b.*\b8\b")),
    "a connectivity of 0": ({"connectivity": 0}, ("connectivity", r"\b0\b", r"use.*\b4\b.*\b8\b")),
    "a connectivity by name": ({"connectivity": "rook"}, ("connectivity", "'rook'", r"use.*\b4\b")),
    "no connectivity": ({"connectivity": None}, ("connectivity", "None", r"use.*\b4\b")),
    "a min_size of 0": ({"min_size": 0}, ("min_size: 0", "must be", r"\b1 to")),
    "a min_size of -3": ({"min_size": -3}, ("min_size: -3", "must be", r"\b1 to")),
    "a min_size of 1.5": ({"min_size": 1.5}, (r"min_size: 1\.5", "must be a whole number")),
    "a min_size of 2.0": ({"min_size": 2.0}, (r"min_size: 2\.0", "must be a whole number")),
    "a min_size of True": ({"min_size": True}, ("min_size: True", "must be a whole number")),
    "a min_size in words": ({"min_size": "few"}, ("min_size: 'few'", "must be a whole number")),
    "no min_size": ({"min_size": None}, ("min_size: None", "must be a whole number")),
    "a tile of 0": ({"tile": 0}, ("tile", r"\b0\b")),
    "a tile of 2.5": ({"tile": 2.5}, ("tile", r"2\.5")),
    "nodata in words": ({"nodata": "none"}, ("nodata", "'none'")),
    "an unknown backend": ({"backend": "fortran"}, ("'fortran'", "numba", "cuda")),
    "a client that is none": ({"client": "tcp://here"}, ("client", "distributed.Client")),
}


@pytest.mark.parametrize(("keywords", "says"), KEYWORDS.values(), ids=KEYWORDS.keys())
def test_refuses(keywords: dict[str, Any], says: tuple[str, ...], tmp_path: Path) -> None:
    for out in (None, tmp_path / "labels.zarr"):
        with refused(tmp_path, og.InputError, *says):
            components_of(unreadable(), out=out, **keywords)


SOURCES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "complex numbers": (np.ones((4, 5), np.complex64), ("complex64", "integer", "float")),
    "complex numbers, lazy": (unreadable("complex128"), ("complex128", "integer", "float")),
    "words": (np.full((4, 5), "lake"), ("integer", "float")),
    "dates": (np.zeros((4, 5), "datetime64[s]"), ("datetime64", "integer", "float")),
    "three dimensions": (np.ones((3, 4, 5), bool), (r"\b3\b", "band|dim")),
    "no cells": (np.ones((0, 5), bool), (r"\(0, 5\)|0 x 5",)),
    "columns first": (unreadable(dims="xy"), ("x, y", "transpose")),
    "a list": ([[1, 0], [0, 1]], ("list", "must be")),
}


@pytest.mark.parametrize(("source", "says"), SOURCES.values(), ids=SOURCES.keys())
def test_refuses_a_raster_of(source: Any, says: tuple[str, ...], tmp_path: Path) -> None:
    with refused(tmp_path, og.InputError, *says):
        components_of(source, out=tmp_path / "labels.zarr")


def test_refuses_to_overwrite_a_result_unless_told_to(tmp_path: Path) -> None:
    out = tmp_path / "labels.zarr"
    classes = noise((21, 30), 0.7, 2)
    components_of(classes, tile=8, out=out)
    with refused(tmp_path, og.StoreExistsError, re.escape(str(out)), "overwrite=True"):
        components_of(unreadable(), tile=8, out=out)
    other = classes[::-1].copy()
    components_of(other, tile=8, out=out, overwrite=True)
    assert_is(og.open(out), oracle.connected_components(other))


def test_refuses_to_write_labels_over_their_own_classes(tmp_path: Path) -> None:
    store = tmp_path / "cover.zarr"
    og.ingest(noise((21, 30), 0.7, 2), store, tile=8)
    with refused(tmp_path, og.InputError, re.escape(str(store))):
        components_of(store, out=store, overwrite=True)
