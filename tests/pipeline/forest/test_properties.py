"""The forest's bits do not depend on tiles, workers, storage or the way the grid came in.

Every expected mask is the independent oracle's (`oracle_forest`).
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import dask.array as da
import numpy as np
import oracle_forest as oracle
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
import zarr
from distributed import Client, get_task_stream
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import orograph as og

CONNECTIVITY = pytest.mark.parametrize("connectivity", [4, 8], ids=["4 nbrs", "8 nbrs"])
WEIGHT = pytest.mark.parametrize("weight", oracle.WEIGHTS)
COUNTS = ("total_weight", "vertex_count", "edge_count", "tree_count")
INTEGERS = [f"{sign}int{bits}" for sign in ("u", "") for bits in (8, 16, 32, 64)]
FLOATS = ["float32", "float64"]
ours = settings(
    deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)


def assert_is(result: xr.Dataset, expected: oracle.Forest) -> None:
    mask = result["edges"].values
    assert mask.dtype == np.uint8
    np.testing.assert_array_equal(mask, expected.mask)
    assert {k: result.attrs[k] for k in COUNTS} == {k: getattr(expected, k) for k in COUNTS}


# --- the oracle itself ---------------------------------------------------------------------


@pytest.mark.diagonal
@WEIGHT
@CONNECTIVITY
def test_the_oracle_agrees_with_textbook_kruskal_and_with_networkx(
    weight: str, connectivity: int
) -> None:
    rng = np.random.default_rng(20)
    for case in range(40):
        shape = rng.integers(1, 9, 2)
        dtype = rng.choice(INTEGERS + FLOATS)
        elevation = rng.integers(0, rng.integers(1, 30), shape).astype(dtype)
        if elevation.dtype.kind == "f":
            elevation[rng.random(shape) < 0.2] = np.nan
        how = {"weight": weight, "connectivity": connectivity, "nodata": [None, 0][case % 2]}
        forest = oracle.minimum_spanning_forest(elevation, **how)
        np.testing.assert_array_equal(forest.mask, oracle.kruskal(elevation, **how))
        np.testing.assert_array_equal(forest.mask, oracle.networkx_forest(elevation, **how))
        assert forest.edge_count == forest.vertex_count - forest.tree_count


# --- grids drawn by Hypothesis ---------------------------------------------------------------


def values(dtype: np.dtype) -> st.SearchStrategy:
    """One elevation: mostly from a handful that ties, sometimes from the ends of the dtype."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return st.integers(0, 4) | st.integers(int(info.min), int(info.max))
    wide = 2.0**100 if dtype.itemsize == 4 else 2.0**500
    return (
        st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.0, 0.5])
        | st.floats(-wide, wide, width=dtype.itemsize * 8)
        | st.sampled_from([np.nan, np.inf, -np.inf])
    )


@st.composite
def grids(
    draw: st.DrawFn, longest: int = 40, shortest: int = 1
) -> tuple[np.ndarray, float | int | None]:
    """A grid and its nodata value, if any."""
    dtype = np.dtype(draw(st.sampled_from(INTEGERS + FLOATS)))
    shape = draw(
        st.tuples(st.integers(shortest, longest), st.integers(shortest, longest))
        | st.tuples(st.just(1), st.integers(shortest, longest))
        | st.tuples(st.integers(shortest, longest), st.just(1))
    )
    palette = np.array(draw(st.lists(values(dtype), min_size=1, max_size=6)), dtype)
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    y, x = np.indices(shape)
    pattern = draw(st.sampled_from(["scatter", "checkerboard", "stripes", "cone", "distinct"]))
    if pattern == "scatter":
        index = rng.integers(0, palette.size, shape)
    elif pattern == "checkerboard":
        index = (y + x) % 2
    elif pattern == "stripes":
        index = y // 2
    elif pattern == "cone":
        index = np.maximum(abs(y - shape[0] // 2), abs(x - shape[1] // 2))
    else:
        index = rng.permutation(y.size).reshape(shape)
    if pattern == "distinct" and dtype.itemsize > 1:
        grid = index.astype(dtype)
    else:
        grid = palette[index % palette.size]
    nodata = None
    gaps = draw(st.sampled_from(["none", "value", "border", "all but one"]))
    if gaps != "none":
        nodata = palette[0].item() if dtype.kind in "iu" or np.isfinite(palette[0]) else None
        gap = palette[0] if dtype.kind in "iu" else dtype.type(np.nan)
        if gaps == "border":
            grid[[0, -1]] = gap
            grid[:, [0, -1]] = gap
        elif gaps == "all but one":
            keep = (shape[0] // 2, shape[1] // 2)
            kept = grid[keep]
            grid[:] = gap
            grid[keep] = kept
    return grid, nodata


@given(st.data())
@settings(ours, max_examples=150)
def test_any_tiling_of_any_grid_gives_the_oracles_forest(data: st.DataObject) -> None:
    grid, nodata = data.draw(grids(), label="grid, nodata")
    how = {
        "weight": data.draw(st.sampled_from(oracle.WEIGHTS), label="weight"),
        "connectivity": data.draw(st.sampled_from([4, 8]), label="connectivity"),
        "nodata": nodata,
    }
    # a tile of 1 is drawn too; on the largest grids it is 3 or more, to keep the suite short
    least = 1 + int((grid.size / 250) ** 0.5)
    side = max(grid.shape)
    tile = data.draw(st.integers(min(least, side), side), label="tile")
    expected = oracle.minimum_spanning_forest(grid, **how)
    assert_is(og.minimum_spanning_forest(grid, tile=tile, **how), expected)
    assert_is(og.minimum_spanning_forest(grid, tile=side, **how), expected)


@given(st.data())
@settings(ours, max_examples=15)
def test_any_number_of_tasks_gives_the_oracles_forest(data: st.DataObject) -> None:
    """Written to disk, 16 by 16 tiles are one task: with tiles of one cell these are several."""
    grid, nodata = data.draw(grids(longest=35, shortest=17), label="grid, nodata")
    how = {
        "weight": data.draw(st.sampled_from(oracle.WEIGHTS), label="weight"),
        "connectivity": data.draw(st.sampled_from([4, 8]), label="connectivity"),
        "nodata": nodata,
    }
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "forest.zarr"
        result = og.minimum_spanning_forest(grid, tile=1, out=out, **how)
        assert_is(result, oracle.minimum_spanning_forest(grid, **how))
        assert shards_of(out) > 1


@given(grids(longest=16), st.integers(1, 16), st.sampled_from([4, 8]))
@settings(ours, max_examples=30)
def test_a_strictly_rising_change_of_height_leaves_the_forest_of_maxima(
    drawn: tuple[np.ndarray, float | int | None], tile: int, connectivity: int
) -> None:
    """Which edges are least depends on the order of the heights only, so ranks give the same."""
    grid, nodata = drawn
    valid = oracle.valid_cells(grid, nodata)
    ranks = np.full(grid.shape, -1, np.int32)
    ranks[valid] = np.unique(grid[valid], return_inverse=True)[1] * 3 + 1
    before = og.minimum_spanning_forest(grid, tile=tile, connectivity=connectivity, nodata=nodata)
    after = og.minimum_spanning_forest(ranks, tile=tile, connectivity=connectivity, nodata=-1)
    np.testing.assert_array_equal(before["edges"].values, after["edges"].values)


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), st.integers(0, 2**16))
@settings(ours, max_examples=30)
def test_transposing_a_grid_without_ties_transposes_its_forest(
    height: int, width: int, tile: int, seed: int
) -> None:
    """No oracle at all: with distinct heights no edge id is asked, so geometry decides alone."""
    grid = np.random.default_rng(seed).permutation(height * width).reshape(height, width)
    straight = og.minimum_spanning_forest(grid, tile=tile)["edges"].values
    turned = og.minimum_spanning_forest(grid.T.copy(), tile=tile)["edges"].values
    assert edge_set(straight) == {frozenset((x, y) for y, x in edge) for edge in edge_set(turned)}


def edge_set(mask: np.ndarray) -> set[frozenset[tuple[int, int]]]:
    width = mask.shape[1]
    return {
        frozenset((divmod(int(a), width), divmod(int(b), width)))
        for a, b in zip(*oracle.ends_of(mask))
    }


# --- grids worth naming ------------------------------------------------------------------------


def noise(shape: tuple[int, int], most: int, dtype: str) -> np.ndarray:
    return np.random.default_rng(7).integers(0, most, shape).astype(dtype)


def with_gaps(grid: np.ndarray, share: float) -> np.ndarray:
    grid = grid.astype(np.float64)
    grid[np.random.default_rng(8).random(grid.shape) < share] = np.nan
    return grid


def one_cell(shape: tuple[int, int], place: tuple[int, int]) -> np.ndarray:
    grid = np.full(shape, np.nan)
    grid[place] = 5.0
    return grid


def frame(grid: np.ndarray) -> np.ndarray:
    grid = grid.astype(np.float32)
    grid[:3] = grid[-2:] = np.nan
    grid[:, :1] = grid[:, -5:] = np.nan
    return grid


def checkerboard(shape: tuple[int, int], dark: float, light: float, dtype: str) -> np.ndarray:
    return np.where(np.indices(shape).sum(0) % 2, light, dark).astype(dtype)


def spiral(side: int) -> np.ndarray:
    """A corridor one cell wide that winds through every tile many times."""
    grid = np.full((side, side), np.nan)
    y, x, dy, dx = 0, 0, 0, 1
    grid[0, 0] = 0
    step = 1
    for run in range(side):
        for _ in range(side - 1 - max(0, 2 * ((run - 1) // 2))):
            if not (0 <= y + dy < side and 0 <= x + dx < side):
                break
            y, x = y + dy, x + dx
            grid[y, x] = step % 11
            step += 1
        dy, dx = dx, -dy
    return grid


NAMED = {
    "a constant grid": np.full((37, 29), 3, np.int16),
    "a constant grid of zeros": np.zeros((16, 33), np.float32),
    "a constant grid of negative zeros and zeros": checkerboard((13, 14), -0.0, 0.0, "float64"),
    "a checkerboard of two heights": checkerboard((31, 33), 1, 0, "uint8"),
    "a checkerboard of cells and nodata": checkerboard((18, 23), 1, np.nan, "float32"),
    "noise of two heights": noise((40, 40), 2, "uint8"),
    "noise of five heights in int8": noise((33, 40), 5, "int8") - np.int8(2),
    "noise of many heights": noise((40, 39), 2**31, "int64"),
    "a grid one row high": noise((1, 40), 4, "float32"),
    "a grid one column wide": noise((40, 1), 4, "uint16"),
    "a single cell": np.array([[7]], np.int32),
    "two cells": np.array([[7, 6]], np.int32),
    "all nodata": np.full((20, 21), np.nan),
    "a single cell of nodata": np.array([[np.nan]], np.float32),
    "one valid cell in a corner": one_cell((20, 21), (19, 20)),
    "one valid cell in the middle": one_cell((20, 21), (8, 8)),
    "a border of nodata": frame(noise((40, 40), 6, "float32")),
    "half of the cells nodata": with_gaps(noise((40, 38), 9, "float64"), 0.5),
    "nine tenths of the cells nodata": with_gaps(noise((40, 38), 9, "float64"), 0.9),
    "infinities between finite cells": np.where(
        noise((24, 24), 5, "float64") == 0, np.inf, noise((24, 24), 5, "float64")
    ),
    "negative infinities between finite cells": np.where(
        noise((24, 24), 5, "float32") == 1, -np.inf, noise((24, 24), 5, "float32")
    ).astype(np.float32),
    "a slope to the south-east": np.add.outer(np.arange(30), np.arange(34)).astype(np.int32),
    "a slope to the north-west": -np.add.outer(np.arange(30), np.arange(34)).astype(np.int16),
    "a ridge between two valleys": np.tile(20 - abs(np.arange(39) - 19), (30, 1)).astype("i8"),
    "a winding corridor": spiral(39),
    "uint64 above 2 to the 63": noise((20, 20), 9, "uint64") + np.uint64(2**64 - 9),
    "int64 at both of its ends": np.where(
        noise((20, 20), 2, "int64"), np.iinfo("i8").max, np.iinfo("i8").min
    ),
    "int64 that float64 cannot tell apart": noise((20, 20), 5, "int64") + 2**60,
    "float64 a last bit apart": 1.0 + noise((20, 20), 4, "float64") * np.finfo("f8").eps,
    "subnormal float32": noise((20, 20), 5, "float32") * np.float32(1e-45),
    "a small height beside a huge one": np.where(
        noise((24, 24), 2, "float64"), 1e16, noise((24, 24), 7, "float64") / 7
    ),
}


@pytest.mark.diagonal
@WEIGHT
@pytest.mark.parametrize("grid", NAMED.values(), ids=NAMED.keys())
def test_every_tile_size_gives_the_forest_of(grid: np.ndarray, weight: str) -> None:
    # weights give edges their order before tiles of any size join them
    tiles_of = {8: (1, 3, 16, 17, 40), 4: (2, 7, 64)} if weight == "max" else {8: (3, 17), 4: (7,)}
    for connectivity, tiles in tiles_of.items():
        how = {"weight": weight, "connectivity": connectivity}
        expected = oracle.minimum_spanning_forest(grid, **how)
        for tile in tiles:
            if grid.size > 420 and tile == 1:
                continue
            assert_is(og.minimum_spanning_forest(grid, tile=tile, **how), expected)


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_the_same_heights_in_another_dtype_give_the_same_forest(dtype: str) -> None:
    heights = noise((37, 35), 12, "uint8")
    expected = oracle.minimum_spanning_forest(heights, nodata=3)
    assert_is(
        og.minimum_spanning_forest(heights.astype(dtype), tile=9, nodata=3),
        expected,
    )


@pytest.mark.parametrize("tile", [1, 2, 3, 5, 8, 13, 20, 21, 100])
def test_arrays_that_are_not_contiguous_or_not_native_give_the_same_forest(tile: int) -> None:
    grid = noise((20, 21), 6, "int16")
    expected = oracle.minimum_spanning_forest(grid)
    wide = np.repeat(np.repeat(grid, 2, 0), 3, 1)
    for same in (np.asfortranarray(grid), wide[::2, ::3], grid.astype(">i2")):
        assert_is(og.minimum_spanning_forest(same, tile=tile), expected)
    assert not grid[::-1].flags["C_CONTIGUOUS"]
    assert_is(
        og.minimum_spanning_forest(grid[::-1], tile=tile),
        oracle.minimum_spanning_forest(grid[::-1].copy()),
    )


def test_the_input_is_left_as_it_was() -> None:
    grid = with_gaps(noise((30, 30), 9, "float64"), 0.2)
    grid[0, 0] = -0.0
    before = grid.tobytes()
    og.minimum_spanning_forest(grid, tile=7)
    assert grid.tobytes() == before


@pytest.mark.parametrize("weight", ["absolute_difference", "mean"])
def test_a_total_that_no_order_of_float_additions_gives(weight: str) -> None:
    """Heights from 1e-8 to 1e16: each partial sum rounds; the total is rounded once."""
    rng = np.random.default_rng(3)
    grid = 10.0 ** rng.uniform(-8, 16, (40, 40)) * rng.choice([-1.0, 1.0], (40, 40))
    expected = oracle.minimum_spanning_forest(grid, weight=weight)
    totals = {
        og.minimum_spanning_forest(grid, tile=tile, weight=weight).attrs["total_weight"]
        for tile in (3, 8, 11, 40)
    }
    assert totals == {expected.total_weight}


# --- what the result carries --------------------------------------------------------------------


def georeferenced(grid: np.ndarray, chunks: tuple[int, int] | None = None) -> xr.DataArray:
    data = grid if chunks is None else da.from_array(grid, chunks=chunks)
    return xr.DataArray(
        data,
        dims=("y", "x"),
        coords={
            "y": 4000.0 - 10 * np.arange(grid.shape[0]),
            "x": 500.0 + 10 * np.arange(grid.shape[1]),
        },
        name="height",
    ).rio.write_crs("EPSG:32611")


def test_the_result_names_its_bits_and_keeps_coordinates_and_crs() -> None:
    result = og.minimum_spanning_forest(georeferenced(noise((9, 8), 5, "int16")), tile=4)
    edges = result["edges"]
    assert edges.dims == ("y", "x")
    assert np.asarray(edges.attrs["flag_masks"]).tolist() == [1, 2, 4, 8]
    meanings = edges.attrs["flag_meanings"].replace("-", "_").split()
    assert meanings == ["east", "south_west", "south", "south_east"]
    np.testing.assert_array_equal(edges["y"], 4000.0 - 10 * np.arange(9))
    np.testing.assert_array_equal(edges["x"], 500.0 + 10 * np.arange(8))
    assert edges.rio.crs.to_epsg() == 32611
    assert result.attrs["weight"] == "max"
    assert result.attrs["connectivity"] == 8
    kinds = {name: type(result.attrs[name]) for name in COUNTS}
    assert kinds == {
        "total_weight": float,
        "vertex_count": int,
        "edge_count": int,
        "tree_count": int,
    }


def test_all_nodata_is_a_forest_of_nothing() -> None:
    result = og.minimum_spanning_forest(np.full((5, 6), -1, np.int16), nodata=-1)
    assert not result["edges"].values.any()
    assert {k: result.attrs[k] for k in COUNTS} == {
        "total_weight": 0.0,
        "vertex_count": 0,
        "edge_count": 0,
        "tree_count": 0,
    }


def test_xarray_alone_reads_the_stored_result_as_the_same_integers(tmp_path: Path) -> None:
    """No fill value may turn a cell without edges into NaN and the mask into floats."""
    grid = noise((21, 30), 5, "int16")
    og.minimum_spanning_forest(georeferenced(grid), tile=8, out=tmp_path / "forest.zarr")
    with pytest.warns(UserWarning, match=r"report\.json is not"):
        opened = xr.open_zarr(tmp_path / "forest.zarr", consolidated=False)
    with opened as plain:
        assert plain["edges"].dtype == np.uint8
        np.testing.assert_array_equal(
            plain["edges"].values, oracle.minimum_spanning_forest(grid).mask
        )


@pytest.mark.diagonal
@WEIGHT
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_lowest_float_of_all_may_mark_nodata(dtype: str, weight: str) -> None:
    """GDAL's habit; no weight may be made of it, or it overflows."""
    lowest = float(np.finfo(dtype).min)
    grid = noise((30, 31), 40, dtype)
    grid[grid > 30] = lowest
    expected = oracle.minimum_spanning_forest(grid, weight=weight, nodata=lowest)
    result = og.minimum_spanning_forest(grid, weight=weight, nodata=lowest, tile=7)
    assert_is(result, expected)


# --- stores, Dask, workers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "tile", "shard"),
    [
        ((40, 37), 2, 4),
        ((40, 37), 2, 2),
        ((17, 97), 3, 12),
        ((33, 20), 1, 16),
        ((16, 16), 16, 16),
        ((1, 50), 1, 2),
        ((50, 1), 1, 1),
        ((40, 40), 100, 200),
    ],
    ids=[
        "shards of 2 by 2 tiles, ragged on both sides",
        "every tile a shard, ragged on both sides",
        "shards of 4 by 4 odd tiles, much wider than high",
        "a last row of shards one cell high",
        "exactly one tile",
        "one row high, tiles of one cell",
        "one column wide, tiles of one cell",
        "smaller than one tile",
    ],
)
def test_a_store_on_disk_gives_the_forest_of_the_array(
    tmp_path: Path, shape: tuple[int, int], tile: int, shard: int
) -> None:
    grid = noise(shape, 6, "int16")
    expected = oracle.minimum_spanning_forest(grid, nodata=2)
    lazy = og.ingest(grid, tmp_path / "dem.zarr", tile=tile, shard=shard, nodata=2)
    for number, source in enumerate((str(tmp_path / "dem.zarr"), lazy)):
        out = tmp_path / f"forest-{number}.zarr"
        assert_is(og.minimum_spanning_forest(source, out=out), expected)
        assert_is(og.open(out), expected)


@pytest.mark.parametrize("tile", [1, 2, 5])
def test_a_store_read_with_another_tile_gives_the_same_forest(tmp_path: Path, tile: int) -> None:
    grid = with_gaps(noise((33, 50), 6, "float64"), 0.1)
    og.ingest(grid, tmp_path / "dem.zarr", tile=16, shard=32)
    out = tmp_path / "forest.zarr"
    result = og.minimum_spanning_forest(tmp_path / "dem.zarr", tile=tile, out=out)
    assert_is(result, oracle.minimum_spanning_forest(grid))


@pytest.mark.parametrize(
    "connectivity", [pytest.param(4, marks=pytest.mark.long), 8], ids=["4 nbrs", "8 nbrs"]
)
@pytest.mark.parametrize(
    "chunks", [(7, 13), (41, 1), (41, 50)], ids=["odd chunks", "columns", "one chunk"]
)
def test_a_dask_backed_dataarray_gives_the_forest_of_the_array(
    tmp_path: Path, chunks: tuple[int, int], connectivity: int
) -> None:
    grid = noise((41, 50), 6, "float32")
    expected = oracle.minimum_spanning_forest(grid, connectivity=connectivity)
    result = og.minimum_spanning_forest(
        georeferenced(grid, chunks),
        connectivity=connectivity,
        tile=2,
        out=tmp_path / "forest.zarr",
    )
    assert_is(result, expected)


@pytest.fixture(
    scope="module",
    params=[pytest.param(1, marks=pytest.mark.long), 2, pytest.param(4, marks=pytest.mark.long)],
    ids=["1 worker", "2 workers", "4 workers"],
)
def client(request: pytest.FixtureRequest, clients: Callable[[int], Client]) -> Client:
    return clients(request.param)


@pytest.mark.parametrize(
    "weight",
    [pytest.param(w, marks=() if w == "max" else pytest.mark.long) for w in oracle.WEIGHTS],
)
def test_any_number_of_workers_gives_the_same_forest(
    client: Client, tmp_path: Path, weight: str
) -> None:
    grid = with_gaps(noise((130, 129), 8, "float64"), 0.1)
    expected = oracle.minimum_spanning_forest(grid, weight=weight)
    og.ingest(grid, tmp_path / "dem.zarr", tile=4)
    out = tmp_path / "forest.zarr"
    workers = client.scheduler_info(n_workers=-1)["workers"]
    with get_task_stream(client) as stream:
        result = og.minimum_spanning_forest(
            tmp_path / "dem.zarr", weight=weight, out=out, client=client
        )
    assert_is(result, expected)
    assert_is(og.open(out), expected)
    assert {task["worker"] for task in stream.data} == set(workers), "a worker had no part in it"
    assert shards_of(out) == 3 * 3


def shards_of(store: Path) -> int:
    """Shards are written by a task each: one shard alone would prove nothing about seams."""
    edges = zarr.open_array(store / "edges", mode="r")
    return math.prod(-(-n // side) for n, side in zip(edges.shape, edges.shards))
