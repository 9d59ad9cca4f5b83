"""The forest of a tile on a GPU: equal to that of the Numba kernel for any size of squares."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.emulator import ORDERS, Emulator, find_compiler
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import minimum_spanning_tree

import orograph as og
from orograph.kernels.forest import cuda
from orograph.kernels.forest import tile as host
from orograph.kernels.forest.cuda import SQUARES, Squares, border_cell, tile_forest
from orograph.kernels.forest.tile import TileForest
from orograph.kernels.forest.weights import WEIGHTS

Array = np.ndarray[Any, Any]
Sides = tuple[bool, bool, bool, bool]
INSIDE: Sides = (False, False, False, False)
ALL_OPEN: Sides = (True, True, True, True)
# A warp a square, so that much happens between squares, and lists that are soon full.
SMALL = Squares(side=8, rows=2, capacity=72)
DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
STEPS = ((0, 1), (1, -1), (1, 0), (1, 1))

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler; install g++")


def assert_same(found: TileForest, expected: TileForest) -> None:
    """All fields, their dtypes and shapes."""
    for name, ours, theirs in zip(TileForest._fields, found, expected):
        if isinstance(theirs, np.ndarray):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), name
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
        else:
            assert ours == theirs, name


def check(
    values: Array,
    nodata: float | None = None,
    sides: Sides = INSIDE,
    weight: str = "max",
    connectivity: int = 8,
    *,
    device: Emulator | None = None,
    squares: Squares = SMALL,
) -> TileForest:
    """Compare the forest with that of the Numba kernel."""
    arguments = (values, nodata, sides, weight, connectivity)
    found = tile_forest(*arguments, device=device or Emulator("random", 1), squares=squares)
    assert_same(found, host.tile_forest(*arguments))
    return found


def fractal(h: int, w: int) -> Array:
    """Terrain-like heights: sums of coarser and coarser noise."""
    rng = np.random.default_rng(3)
    heights = np.zeros((h, w))
    for size in (1, 2, 4, 8, 16, 32):
        coarse = rng.normal(0, size, (h // size + 2, w // size + 2))
        heights += np.kron(coarse, np.ones((size, size)))[:h, :w]
    return heights


def spiral(n: int) -> Array:
    """A valley that winds to the middle and falls all the way, between walls."""
    heights = np.full((n, n), 1e6)
    y = x = 0
    dy, dx = 0, 1
    for height in range(n * n, 0, -1):
        heights[y, x] = height

        def free(y: int, x: int) -> bool:
            return 0 <= y < n and 0 <= x < n and heights[y, x] == 1e6

        if not (
            free(y + dy, x + dx)
            and (free(y + 2 * dy, x + 2 * dx) or not (0 <= y + 2 * dy < n and 0 <= x + 2 * dx < n))
        ):
            dy, dx = dx, -dy
            if not free(y + dy, x + dx) or not free(y + 2 * dy, x + 2 * dx):
                break
        y, x = y + dy, x + dx
    return heights


def islands(h: int, w: int) -> Array:
    heights = fractal(h, w)
    heights[np.sin(np.arange(h) / 3)[:, None] * np.cos(np.arange(w) / 4) < 0.1] = np.nan
    return heights


def slope(h: int, w: int) -> Array:
    return np.add.outer(np.arange(h) * 100.0, np.arange(w))


NOISE = np.random.default_rng(0).uniform(-500, 1000, (37, 51))
GRIDS = {
    "noise": NOISE,
    "terrain": fractal(45, 38),
    "plateaus": np.floor(fractal(41, 43) / 20),
    "two heights": np.floor(NOISE / 800),
    "all equal": np.ones((29, 30)),
    "a slope": slope(33, 40),
    "a slope the other way": slope(33, 40)[::-1, ::-1].copy(),
    "a spiral": spiral(39),
    "islands": islands(48, 40),
    "all nodata": np.full((20, 21), np.nan),
    "one row": NOISE[:1],
    "one column": NOISE[:, :1],
    "two by two": NOISE[:2, :2],
    "one cell": NOISE[:1, :1],
    "a row and a column too many": NOISE[:17, :25],
}


@pytest.mark.diagonal
@pytest.mark.parametrize("sides", [INSIDE, ALL_OPEN], ids=["one tile", "a tile among others"])
@pytest.mark.parametrize("name", GRIDS)
def test_a_tile_has_the_forest_of_the_numba_kernel(
    emulator: Emulator, name: str, sides: Sides
) -> None:
    check(GRIDS[name].astype(np.float32), None, sides, device=emulator)


@pytest.mark.diagonal
@pytest.mark.parametrize("connectivity", [8, 4])
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("name", ["noise", "plateaus", "islands", "all equal"])
def test_weights_and_neighbours(name: str, weight: str, connectivity: int) -> None:
    for sides in (INSIDE, ALL_OPEN, (False, True, True, False)):
        check(GRIDS[name].astype(np.float32), 1.0, sides, weight, connectivity)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype: str) -> None:
    rng = np.random.default_rng(5)
    values = rng.integers(0, 120, (21, 27)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        limits = np.finfo(np.dtype(dtype))
        special = [-0.0, np.nan, np.inf, -np.inf, limits.smallest_subnormal, limits.max, limits.min]
    else:
        info = np.iinfo(dtype)
        special = [info.min, info.min + 1, info.max - 1, info.max]
    where = rng.random(values.shape) < 0.1
    values[where] = rng.choice(np.array(special, dtype), where.sum())
    for nodata in (None, 7, values.flat[np.flatnonzero(where)[0]].item()):
        check(values, nodata, (True, False, False, True))


@pytest.mark.parametrize("squares", [SQUARES, Squares(64, 16)], ids=["as on a GPU", "many rows"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [130, 136], ids=["any width", "rows of whole words"])
def test_squares_of_the_usual_size(dtype: str, squares: Squares, width: int) -> None:
    heights = np.random.default_rng(8).uniform(0, 9, (70, width))
    heights[:, 60:] = fractal(70, width - 60)
    check(heights.astype(dtype), None, (False, True, False, True), squares=squares)


@pytest.mark.diagonal
@pytest.mark.parametrize("sides", [INSIDE, ALL_OPEN], ids=["one tile", "a tile among others"])
def test_paths_between_squares_are_compressed(
    sides: Sides, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "LARGE", 1)  # as in large tiles
    check(NOISE.astype(np.float32), None, sides, device=emulator)


def test_weights_of_zero_beside_great_ones() -> None:
    rng = np.random.default_rng(6)
    heights = np.ldexp(rng.uniform(0, 1, (35, 41)), rng.integers(-40, 30, (35, 41)))
    heights[rng.random(heights.shape) < 0.3] = 0
    check(heights.astype(np.float32), None, ALL_OPEN, "absolute_difference")
    check(heights.astype(np.float32), None, ALL_OPEN, "absolute_difference", squares=SQUARES)


def test_a_square_of_the_usual_size_with_a_formula() -> None:
    heights = np.random.default_rng(8).uniform(0, 9, (70, 130)).astype(np.float32)
    check(heights, None, ALL_OPEN, "absolute_difference", squares=SQUARES)


@st.composite
def tiles(draw: st.DrawFn) -> tuple[Array, float | None]:
    """Small tiles, often with few distinct heights, with NaN and nodata."""
    dtype = draw(st.sampled_from(["float32", "int16"]))
    h, w = draw(st.integers(1, 27)), draw(st.integers(1, 27))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    levels = draw(st.sampled_from([1, 2, 5, 30_000]))
    values = rng.integers(-levels, levels, (h, w)).astype(dtype)
    if draw(st.booleans()):
        values = np.sort(values, axis=draw(st.integers(0, 1)))
    if dtype == "float32":
        values[rng.random((h, w)) < draw(st.sampled_from([0, 0.1, 0.5]))] = np.nan
    return values, draw(st.sampled_from([None, 0, -1]))


@settings(deadline=None, max_examples=60)
@given(
    tiles(),
    st.tuples(*[st.booleans()] * 4),
    st.sampled_from(tuple(WEIGHTS)),
    st.sampled_from([8, 4]),
    st.sampled_from(ORDERS),
    st.integers(0, 2**32),
)
def test_any_tile_in_any_order(
    tile: tuple[Array, float | None],
    sides: Sides,
    weight: str,
    connectivity: int,
    order: str,
    seed: int,
) -> None:
    check(*tile, sides, weight, connectivity, device=Emulator(order, seed))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int32", 2**31 - 1), ("int64", 2**63 - 1), ("uint32", 2**32 - 1), ("uint64", 2**64 - 1)],
)
def test_a_value_with_the_key_of_nodata_makes_room(dtype: str, value: int) -> None:
    values = np.random.default_rng(2).integers(0, 9, (11, 12)).astype(dtype)
    values[3, 4:7] = value
    values[5, 5] = np.iinfo(dtype).min
    check(values, None, ALL_OPEN)
    check(values, 4, INSIDE)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_sums_are_exact_over_the_whole_range(weight: str) -> None:
    rng = np.random.default_rng(5)
    exponent = rng.integers(-1074, 1000, (20, 30))
    values = np.ldexp(rng.uniform(-1, 1, exponent.shape), exponent)
    assert check(values, None, INSIDE, weight).total
    check(values * 2.0**-900, None, INSIDE, weight)


def test_the_weight_is_that_of_scipy() -> None:
    values = np.random.default_rng(4).integers(0, 500, (40, 50)).astype(np.int16)
    h, w = values.shape
    cell = np.arange(h * w).reshape(h, w)
    first, second = [], []
    for dy, dx in STEPS:
        near = (slice(0, h - dy), slice(max(-dx, 0), w - max(dx, 0)))
        far = (slice(dy, h), slice(max(dx, 0), w + min(dx, 0)))
        first.append(cell[near].ravel())
        second.append(cell[far].ravel())
    u, v = np.concatenate(first), np.concatenate(second)
    weight = np.maximum(values.flat[u], values.flat[v]).astype(np.int64) + 1  # it drops zeros
    tree = minimum_spanning_tree(csr_array((weight, (u, v)), shape=(h * w, h * w)))
    found = tile_forest(values, None, INSIDE, device=Emulator(), squares=SMALL)
    assert int(np.bitwise_count(found.mask).sum()) == tree.nnz == h * w - 1
    assert found.total == (int(tree.sum()) - tree.nnz) * 2**1074


def test_a_block_fits_every_supported_gpu() -> None:
    turing, hopper = 64 * 1024, 227 * 1024
    shared = {}
    listed = {(4, turing): 464, (8, turing): 248, (4, hopper): 464, (8, hopper): 464}
    for case, edges in listed.items():
        assert SQUARES.edges_per_warp(*case) == edges
        shared[case] = SQUARES.shared_bytes(case[0], edges)
        assert shared[case] <= case[1]
    assert SQUARES.threads <= 1024
    narrow, wide = shared[4, hopper], shared[8, hopper]
    cases = (narrow, 32), (narrow, 40), (wide, 32)
    resident = [SQUARES.blocks_per_multiprocessor(*case) for case in cases]
    assert resident == [4, 3, 3]


def test_border_cells_have_numbers() -> None:
    h, w = 3, 5
    north, south = np.arange(w), np.arange(w) + (h - 1) * w
    west, east = np.arange(h) * w, np.arange(h) * w + w - 1
    np.testing.assert_array_equal(
        border_cell(np.arange(2 * (h + w)), h, w), np.concatenate([north, south, west, east])
    )


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (np.zeros((0, 3)), {}, "shape"),
        (np.zeros((2, 2), complex), {}, "complex128"),
        (np.zeros((2, 2)), {"weight": "min"}, "min"),
        (np.zeros((2, 2)), {"connectivity": 6}, "6"),
        (np.full((9, 9), 1e308), {"weight": "mean"}, "1e\\+308"),
        (np.array([[1e308, -1e308]]), {"weight": "absolute_difference"}, "1e\\+308"),
        (np.broadcast_to(np.uint8(0), (2**15, 2**15)), {}, "smaller tiles"),
    ],
)
def test_bad_input_is_refused_as_by_the_numba_kernel(
    values: Array, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as theirs:
        host.tile_forest(values, None, INSIDE, **options)
    with pytest.raises(theirs.type, match=message) as ours:
        tile_forest(values, None, INSIDE, **options, device=Emulator(), squares=SMALL)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.usefixtures("emulated_gpu")
def test_a_run_on_a_gpu_has_the_forest_of_one_on_a_cpu() -> None:
    values = fractal(100, 90).astype(np.float32)
    values[30:40, 20:60] = np.nan
    ours = og.minimum_spanning_forest(values, tile=64, backend="cuda")
    theirs = og.minimum_spanning_forest(values, tile=64, backend="numba")
    assert ours.attrs["total_weight"] == theirs.attrs["total_weight"]
    np.testing.assert_array_equal(ours.edges.values, theirs.edges.values)
    assert math.isfinite(ours.attrs["total_weight"])


@example((3, 5))
@settings(deadline=None, max_examples=10)
@given(st.tuples(st.integers(1, 20), st.integers(1, 20)))
def test_heights_stored_in_any_way(shape: tuple[int, int]) -> None:
    values = np.random.default_rng(2).integers(0, 9, shape)
    expected = host.tile_forest(values, None, ALL_OPEN)
    for other in (np.asfortranarray(values), values.astype(">i8"), np.repeat(values, 2, 1)[:, ::2]):
        assert_same(tile_forest(other, None, ALL_OPEN, device=Emulator(), squares=SMALL), expected)
