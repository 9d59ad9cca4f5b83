"""Min-plus products and closures against plain NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import johnson

from orograph.kernels.minplus import product as minplus
from orograph.kernels.minplus.closure import LARGE_STEP, floyd_warshall_block
from orograph.kernels.minplus.lanes import BARRIER, TILE_ROWS, VECTOR_BYTES
from orograph.kernels.minplus.product import COLUMNS, DEPTH, NO_VERTEX, ROWS

Array = npt.NDArray[np.generic]
DTYPES = ("float64", "float32", "int64")


def nothing(dtype: str) -> float:
    return BARRIER if dtype == "int64" else np.inf


def random_matrix(
    rng: np.random.Generator, shape: tuple[int, int], dtype: str, *, signed: bool, gaps: float
) -> Array:
    """Multiples of 1/64 that every dtype adds exactly, here and there no path."""
    values = rng.integers(-500 if signed else 0, 500, shape).astype(np.float64)
    matrix = (values if dtype == "int64" else values / 64).astype(dtype)
    matrix[rng.random(shape) < gaps] = nothing(dtype)
    return matrix


def reference(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """The product by NumPy, and the first k that lowers each element, or -1."""
    dtype = a.dtype.name
    sums = a[:, :, None] + b[None, :, :]
    barred = (a >= nothing(dtype))[:, :, None] | (b >= nothing(dtype))[None, :, :]
    sums[barred] = nothing(dtype)
    first = sums.argmin(axis=1)
    least = sums.min(axis=1)
    return np.minimum(c, least), np.where(least < c, first, -1)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_product_of_any_shape(dtype: str, data: st.DataObject) -> None:
    side = st.integers(1, 70)
    n, depth, m = data.draw(st.tuples(side, side, side))
    signed = data.draw(st.booleans())
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    a = random_matrix(rng, (n, depth), dtype, signed=signed, gaps=0.3)
    b = random_matrix(rng, (depth, m), dtype, signed=signed, gaps=0.3)
    c = random_matrix(rng, (n, m), dtype, signed=True, gaps=0.5)
    expected, first = reference(a, b, c)
    before_b = rng.integers(0, 1000, (depth, m)).astype(np.int32)
    before = np.full((n, m), NO_VERTEX, np.int32)
    traced = c.copy()
    assert minplus.minplus(a, b, c) is c
    np.testing.assert_array_equal(c, expected)
    minplus.minplus(a, b, traced, before_b=before_b, before=before)
    np.testing.assert_array_equal(traced, expected)
    through = np.take_along_axis(before_b, np.maximum(first, 0), axis=0)
    np.testing.assert_array_equal(before, np.where(first >= 0, through, NO_VERTEX))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "columns", "depth"),
    [
        pytest.param(1, 1, DEPTH + 1, id="one element, panels deeper than one"),
        pytest.param(ROWS + 1, 3, 5, id="a row more than is packed at once"),
        pytest.param(3, COLUMNS + 1, 2, id="a column more than is packed at once"),
        pytest.param(TILE_ROWS, 16, 1, id="exactly one tile"),
        pytest.param(ROWS + TILE_ROWS, 2 * 16 + 1, DEPTH + 7, id="all at once"),
    ],
)
def test_product_past_the_sizes_of_its_blocks(
    dtype: str, rows: int, columns: int, depth: int
) -> None:
    rng = np.random.default_rng(3)
    a = random_matrix(rng, (rows, depth), dtype, signed=True, gaps=0.2)
    b = random_matrix(rng, (depth, columns), dtype, signed=True, gaps=0.2)
    none = np.full((rows, columns), nothing(dtype), dtype)
    expected, _ = reference(a, b, none)
    np.testing.assert_array_equal(minplus.minplus(a, b), expected)


def test_lower_triangle_alone() -> None:
    rng = np.random.default_rng(4)
    n, m = 150, 20
    a = random_matrix(rng, (n, m), "float64", signed=False, gaps=0.0)
    b = np.ascontiguousarray(a.T)
    c = np.full((n, n), np.inf)
    minplus.product(
        c.reshape(-1), 0, n, a.reshape(-1), 0, m, b.reshape(-1), 0, n, n, n, m, False, True
    )
    whole = minplus.minplus(a, b)
    below = np.tri(n, dtype=bool)
    np.testing.assert_array_equal(c[below], whole[below])
    # whole tiles above the diagonal are left alone
    assert np.isinf(c[0, 2 * VECTOR_BYTES // 8 + TILE_ROWS :]).all()


def test_infinities_of_both_signs_make_no_number() -> None:
    a = np.array([[np.inf, 1.0], [-np.inf, np.inf]])
    b = np.array([[-np.inf, np.inf], [2.0, np.nan]])
    np.testing.assert_array_equal(minplus.minplus(a, b), [[3.0, np.inf], [-np.inf, np.inf]])


def test_barriers_stay_barriers_whatever_is_added() -> None:
    big = BARRIER // 2 - 1
    a = np.array([[BARRIER, -big], [BARRIER + 5, big]])
    b = np.array([[-big], [BARRIER]])
    np.testing.assert_array_equal(minplus.minplus(a, b), [[BARRIER], [BARRIER]])


def random_graph(rng: np.random.Generator, n: int, dtype: str, *, signed: bool) -> Array:
    """Edge lengths without a negative cycle: of random heights, and lengths that are not less."""
    length = rng.integers(0, 60, (n, n)).astype(np.float64)
    if signed:
        height = rng.integers(0, 100, n)
        length += height[None, :] - height[:, None]
    length[rng.random((n, n)) < max(0.3, 1 - 8 / n)] = np.inf
    np.fill_diagonal(length, 0)
    if dtype == "int64":
        return np.where(np.isinf(length), BARRIER, np.nan_to_num(length, posinf=0)).astype(dtype)
    return length.astype(dtype)


def as_graph(matrix: Array) -> csr_array:
    """For SciPy: explicit zeros, so that edges of length 0 are kept."""
    none = nothing(matrix.dtype.name)
    places = np.nonzero((matrix < none) & ~np.eye(len(matrix), dtype=bool))
    rows, columns = (place.astype(np.int32) for place in places)  # all that SciPy 1.14 takes
    values = matrix[rows, columns].astype(np.float64)
    return csr_array((values, (rows, columns)), shape=matrix.shape)


@pytest.mark.diagonal
@pytest.mark.parametrize("signed", [False, True], ids=["lengths", "some negative"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 7, 64, 65, 129, 2 * LARGE_STEP + 3])
def test_closure_equals_johnson(dtype: str, n: int, signed: bool) -> None:
    matrix = random_graph(np.random.default_rng(n), n, dtype, signed=signed)
    expected = johnson(as_graph(matrix))
    if dtype == "int64":
        expected = np.where(np.isinf(expected), BARRIER, expected)
    closed = matrix.copy()
    assert floyd_warshall_block(closed) is None
    np.testing.assert_array_equal(closed, expected)

    edge = (matrix < nothing(dtype)) & ~np.eye(n, dtype=bool)
    before = np.where(edge, np.arange(n, dtype=np.int32)[:, None], NO_VERTEX).astype(np.int32)
    traced = matrix.copy()
    assert floyd_warshall_block(traced, before=before) is None
    np.testing.assert_array_equal(traced, expected)
    i, j = np.nonzero((closed < nothing(dtype)) & ~np.eye(n, dtype=bool))
    k = before[i, j]
    assert (k >= 0).all()
    np.testing.assert_array_equal(closed[i, k] + matrix[k, j], closed[i, j])
    assert (before[closed >= nothing(dtype)] == NO_VERTEX).all()
    assert (before.diagonal() == NO_VERTEX).all()


@pytest.mark.diagonal
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [3, 100, 600])
def test_a_negative_cycle_stops_the_closure(dtype: str, n: int) -> None:
    matrix = random_graph(np.random.default_rng(n), n, dtype, signed=True)
    cycle = [0, n // 2, n - 1]
    for u, v in zip(cycle, [*cycle[1:], cycle[0]]):
        matrix[u, v] = -1
    vertex = floyd_warshall_block(matrix)
    assert vertex is not None
    assert matrix[vertex, vertex] < 0


def test_a_cycle_within_the_tolerance_has_no_length() -> None:
    matrix = np.array([[0.0, 0.3], [-0.3 - 1e-12, 0.0]])
    assert floyd_warshall_block(matrix.copy()) == 1
    assert floyd_warshall_block(matrix, tolerance=1e-9) is None


def test_what_does_not_fit_is_refused() -> None:
    a = np.zeros((2, 3))
    with pytest.raises(ValueError, match=r"a is float64 of shape \(2, 3\).*\(2, 2\)"):
        minplus.minplus(np.zeros((2, 3)), np.zeros((2, 2)), np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"b is float32.*must be float64"):
        minplus.minplus(a, np.zeros((3, 2), np.float32))
    with pytest.raises(ValueError, match="in C order"):
        minplus.minplus(np.zeros((3, 2)).T, np.zeros((3, 2)))
    with pytest.raises(ValueError, match="elements are int32"):
        minplus.minplus(a.astype(np.int32), a.T.astype(np.int32))
    with pytest.raises(ValueError, match="before is int64"):
        floyd_warshall_block(np.zeros((2, 2)), before=np.zeros((2, 2), np.int64))
