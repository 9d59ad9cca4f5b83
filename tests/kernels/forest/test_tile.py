"""The tile kernel of the minimum spanning forest, against Kruskal in plain Python."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orograph.kernels.forest.exact_sum import add_row, exact_sum, fold_sum, power_below
from orograph.kernels.forest.tile import TileForest, compile_kernels, tile_forest
from orograph.kernels.forest.weights import WEIGHTS

STEPS = ((0, 1), (1, -1), (1, 0), (1, 1))
DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
INSIDE = (False, False, False, False)


def is_valid(z: Any, nodata: float | None) -> bool:
    """A vertex: finite and not nodata."""
    return math.isfinite(z) and (nodata is None or z != nodata)


def edge_key(p: Any, q: Any, weight: str) -> tuple[Any, ...]:
    """Place of an edge in the order, but for its id."""
    if weight == "max":
        low, high = sorted((p.item(), q.item()))
        return (high, low)
    if weight == "mean":
        return ((float(p) + float(q)) / 2,)
    return (abs(float(p) - float(q)),)


def find(parent: dict[int, int], x: int) -> int:
    """Root of x."""
    while parent.setdefault(x, x) != x:
        x = parent[x]
    return x


def grid_edges(
    values: np.ndarray, nodata: float | None, weight: str, connectivity: int
) -> list[tuple[tuple[Any, ...], tuple[int, int], int]]:
    """All edges of a grid as (key, (first end, direction), other end), in order."""
    h, w = values.shape
    edges = []
    for y in range(h):
        for x in range(w):
            for d, (dy, dx) in enumerate(STEPS):
                v, u = y + dy, x + dx
                if v >= h or not 0 <= u < w or (connectivity == 4 and d % 2):
                    continue
                p, q = values[y, x], values[v, u]
                if is_valid(p, nodata) and is_valid(q, nodata):
                    edges.append((edge_key(p, q, weight), (y * w + x, d), v * w + u))
    return sorted(edges)


def kruskal_mask(
    values: np.ndarray, nodata: float | None, weight: str, connectivity: int
) -> np.ndarray:
    """The forest of a whole grid."""
    mask = np.zeros(values.size, np.uint8)
    parent: dict[int, int] = {}
    for _, (first, d), other in grid_edges(values, nodata, weight, connectivity):
        p, q = find(parent, first), find(parent, other)
        if p != q:
            parent[p] = q
            mask[first] |= 1 << d
    return mask.reshape(values.shape)


def mask_total(values: np.ndarray, mask: np.ndarray, weight: str) -> Fraction:
    """Exact sum of the float64 weights of a mask's edges."""
    total = Fraction(0)
    for y, x in np.argwhere(mask):
        for d, (dy, dx) in enumerate(STEPS):
            if mask[y, x] >> d & 1:
                key = edge_key(values[y, x], values[y + dy, x + dx], weight)
                total += Fraction(float(key[0]))
    return total


def border_cells(
    values: np.ndarray, nodata: float | None, sides: tuple[bool, bool, bool, bool]
) -> set[int]:
    """Valid cells on the open sides of a tile."""
    h, w = values.shape
    return {
        y * w + x
        for y in range(h)
        for x in range(w)
        if is_valid(values[y, x], nodata)
        and any((s and at) for s, at in zip(sides, (y == 0, y == h - 1, x == 0, x == w - 1)))
    }


def check_tile(
    tile: TileForest,
    values: np.ndarray,
    nodata: float | None,
    sides: tuple[bool, bool, bool, bool],
    weight: str,
) -> None:
    """What the contract says of one tile alone."""
    assert tile.mask.dtype == np.uint8
    assert tile.mask.shape == values.shape
    assert tile.vertex_count == sum(is_valid(z, nodata) for z in values.ravel())
    assert Fraction(tile.total, 2**1074) == mask_total(values, tile.mask, weight)
    border = border_cells(values, nodata, sides)
    assert tile.edge_count == sum(bits.bit_count() for bits in tile.mask.ravel().tolist())
    assert [column.dtype for column in tile[-4:]] == ["i4", "u1", "i4", "i4"]
    assert len({column.size for column in tile[-4:]}) == 1
    assert tile.first.size <= max(len(border) - 1, 0)
    ids = list(zip(tile.first.tolist(), tile.direction.tolist()))
    assert ids == sorted(set(ids))
    assert {*tile.a.tolist(), *tile.b.tolist()} <= border
    # Final edges tie each end to the border cell that stands for its component, and to no other.
    w = values.shape[1]
    parent: dict[int, int] = {}
    for y, x in np.argwhere(tile.mask):
        for d, (dy, dx) in enumerate(STEPS):
            if tile.mask[y, x] >> d & 1:
                p, q = find(parent, int(y * w + x)), find(parent, int((y + dy) * w + x + dx))
                assert p != q
                parent[p] = q
    assert len({find(parent, cell) for cell in border}) == len(border)
    for first, d, a, b in zip(*(column.tolist() for column in tile[-4:])):
        dy, dx = STEPS[d]
        assert not tile.mask.ravel()[first] >> d & 1
        assert find(parent, first) == find(parent, a)
        assert find(parent, first + dy * w + dx) == find(parent, b)
        assert a != b


def merged_mask(
    values: np.ndarray, nodata: float | None, weight: str, connectivity: int, cut_y: int, cut_x: int
) -> np.ndarray:
    """The forest of a grid from its tiles, cut before row cut_y and column cut_x (0: uncut)."""
    h, w = values.shape
    ys = [0, h] if cut_y == 0 else [0, cut_y, h]
    xs = [0, w] if cut_x == 0 else [0, cut_x, w]
    mask = np.zeros((h, w), np.uint8)
    edges = []
    of_tile = np.empty((h, w), int)
    for i, (y0, y1) in enumerate(pairwise(ys)):
        for j, (x0, x1) in enumerate(pairwise(xs)):
            part = values[y0:y1, x0:x1].copy()
            sides = (y0 > 0, y1 < h, x0 > 0, x1 < w)
            tile = tile_forest(part, nodata, sides, weight, connectivity)
            check_tile(tile, part, nodata, sides, weight)
            mask[y0:y1, x0:x1] = tile.mask
            of_tile[y0:y1, x0:x1] = 2 * i + j

            def lift(cell: int, y0: int = y0, x0: int = x0, width: int = x1 - x0) -> int:
                return int((y0 + cell // width) * w + x0 + cell % width)

            for first, d, a, b in zip(*(column.tolist() for column in tile[-4:])):
                u = lift(first)
                y, x = divmod(u, w)
                v = values[y + STEPS[d][0], x + STEPS[d][1]]
                key = edge_key(values[y, x], v, weight)
                edges.append((key, (u, d), lift(a), lift(b)))
    for key, (u, d), v in grid_edges(values, nodata, weight, connectivity):
        if of_tile.flat[u] != of_tile.flat[v]:
            edges.append((key, (u, d), u, v))
    parent: dict[int, int] = {}
    for _, (u, d), a, b in sorted(edges):
        p, q = find(parent, a), find(parent, b)
        if p != q:
            parent[p] = q
            mask.flat[u] |= 1 << d
    return mask


@st.composite
def grids(draw: st.DrawFn, max_side: int = 9) -> tuple[np.ndarray, float | None]:
    """Grids of all dtypes, often with few distinct values, nodata, NaN and extremes."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    h, w = draw(st.integers(1, max_side)), draw(st.integers(1, max_side))
    many: st.SearchStrategy[Any]
    if dtype.kind == "f":
        special = [-0.0, 0.0, np.nan, np.inf, -np.inf, float(np.finfo(dtype).smallest_subnormal)]
        few: st.SearchStrategy[Any] = st.sampled_from([*special, 1.0, -1.5, 2.0, -9999.0])
        limit = float(np.finfo(dtype).max) / 8
        many = st.floats(-limit, limit).map(dtype.type)
    else:
        info = np.iinfo(dtype.name)
        few = st.sampled_from([info.min, info.min + 1, 0, 1, 2, 3, info.max - 1, info.max])
        many = st.integers(int(info.min), int(info.max))
    flat = st.sampled_from([1, 2, 3])
    cell = draw(st.sampled_from([few, many, flat, st.one_of(few, many)]))
    values = np.array(draw(st.lists(cell, min_size=h * w, max_size=h * w)), dtype).reshape(h, w)
    chosen = draw(st.sampled_from(["none", "cell", "-9999", "0"]))
    nodata = {"none": None, "-9999": -9999.0, "0": 0, "cell": values[0, 0].item()}[chosen]
    return values, nodata


@settings(deadline=None, max_examples=300)
@given(grids(), st.sampled_from(tuple(WEIGHTS)), st.sampled_from([4, 8]))
@example((np.full((3, 3), 2**63 - 1), None), "max", 8)
@example((np.array([[2**63 - 1, -(2**63)], [0, 2**63 - 2]]), 0), "max", 8)
@example((np.array([[2**64 - 1, 0, 5], [7, 2**64 - 1, 2]], np.uint64), None), "max", 8)
@example(
    (
        np.array([[2**32 - 1, 0, 5], [7, 2**32 - 1, 2]], np.uint32),
        5,
    ),
    "max",
    4,
)
@example((np.array([[-0.0, 0.0], [0.0, -0.0]]), None), "absolute_difference", 8)
@example((np.full((4, 5), np.nan, np.float32), None), "max", 8)
def test_one_tile_has_the_edges_of_kruskal(
    grid: tuple[np.ndarray, float | None], weight: str, connectivity: int
) -> None:
    values, nodata = grid
    tile = tile_forest(values, nodata, INSIDE, weight, connectivity)
    np.testing.assert_array_equal(tile.mask, kruskal_mask(values, nodata, weight, connectivity))
    assert tile.first.size == 0
    check_tile(tile, values, nodata, INSIDE, weight)


@settings(deadline=None, max_examples=300)
@given(grids(), st.sampled_from(tuple(WEIGHTS)), st.sampled_from([4, 8]), st.data())
def test_tiles_merge_to_the_edges_of_the_grid(
    grid: tuple[np.ndarray, float | None], weight: str, connectivity: int, data: st.DataObject
) -> None:
    values, nodata = grid
    cut_y = data.draw(st.integers(0, values.shape[0] - 1))
    cut_x = data.draw(st.integers(0, values.shape[1] - 1))
    np.testing.assert_array_equal(
        merged_mask(values, nodata, weight, connectivity, cut_y, cut_x),
        kruskal_mask(values, nodata, weight, connectivity),
    )


@pytest.mark.diagonal
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("levels", [2, 7, 10**6], ids=["two heights", "seven heights", "noise"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint16"])
def test_larger_grids_merge_too(weight: str, connectivity: int, levels: int, dtype: str) -> None:
    rng = np.random.default_rng([levels, connectivity])
    values = (rng.integers(0, levels, (53, 71)) % 60_000).astype(dtype)
    values[rng.random(values.shape) < 0.1] = 1
    np.testing.assert_array_equal(
        merged_mask(values, 1, weight, connectivity, 24, 37),
        kruskal_mask(values, 1, weight, connectivity),
    )


@pytest.mark.parametrize("connectivity", [4, 8])
def test_a_mean_that_rounds_to_minus_zero_equals_zero(connectivity: int) -> None:
    values = np.random.default_rng(1).choice([0.0, -5e-324, 5e-324], (40, 40))
    np.testing.assert_array_equal(
        tile_forest(values, None, INSIDE, "mean", connectivity).mask,
        kruskal_mask(values, None, "mean", connectivity),
    )


def test_a_slope_with_basins_merges_too() -> None:
    y, x = np.mgrid[0:90, 0:110]
    values = (np.sin(y / 9) * np.cos(x / 7) * 40 + y + x / 3).astype(np.float32)
    np.testing.assert_array_equal(
        merged_mask(values, None, "max", 8, 40, 64), kruskal_mask(values, None, "max", 8)
    )


@pytest.mark.diagonal
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("sides", [INSIDE, (True,) * 4, (False, True, True, False)])
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (2, 2), (70, 1)])
def test_thin_tiles_and_nodata_keep_the_contract(
    weight: str, sides: tuple[bool, bool, bool, bool], shape: tuple[int, int]
) -> None:
    values = (np.arange(math.prod(shape), dtype=np.int32) * 7 % 5).reshape(shape)
    check_tile(tile_forest(values, None, sides, weight), values, None, sides, weight)
    values[:] = 3
    empty = tile_forest(values, 3, sides, weight)
    assert (empty.vertex_count, empty.total, empty.first.size) == (0, 0, 0)
    assert not empty.mask.any()


def test_the_whole_range_of_float32_is_summed_exactly() -> None:
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**32, (40, 300), dtype=np.uint64).astype(np.uint32)
    values = bits.view(np.float32)
    tile = tile_forest(values, None, INSIDE)
    assert Fraction(tile.total, 2**1074) == mask_total(values, tile.mask, "max")


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_sums_are_exact(weights: list[float]) -> None:
    total = sum((Fraction(weight) for weight in weights), Fraction(0))
    values = np.array(weights, np.float64)
    assert Fraction(exact_sum(values), 2**1074) == total
    scale = power_below(float(abs(values).max(initial=0.0)))
    sums, bins = np.zeros(4, np.int64), np.zeros((2, 2, 2048), np.int64)
    add_row(values, np.ones(values.size, np.uint8), scale, sums, bins)
    assert Fraction(fold_sum(scale, sums, bins), 2**1074) == total


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (np.zeros((0, 3)), {}, "shape"),
        (np.zeros(3), {}, "shape"),
        (np.zeros((2, 2), complex), {}, "complex128"),
        (np.zeros((2, 2)), {"weight": "min"}, "min"),
        (np.zeros((2, 2)), {"connectivity": 6}, "6"),
        (np.full((2, 2), 1e308), {"weight": "mean"}, "1e\\+308"),
        (np.broadcast_to(np.uint8(0), (2**15, 2**15)), {}, "smaller tiles"),
    ],
)
def test_bad_input_is_refused(values: np.ndarray, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        tile_forest(values, None, INSIDE, **options)


def test_strides_and_byte_order_do_not_matter() -> None:
    values = np.random.default_rng(2).integers(0, 9, (12, 10))
    expected = tile_forest(values, None, INSIDE).mask
    for other in (np.asfortranarray(values), values.astype(">i8"), np.repeat(values, 2, 1)[:, ::2]):
        np.testing.assert_array_equal(tile_forest(other, None, INSIDE).mask, expected)


def test_compile_kernels_runs_for_every_dtype() -> None:
    for dtype in ("uint8", "float32", "float64"):
        compile_kernels(dtype)
