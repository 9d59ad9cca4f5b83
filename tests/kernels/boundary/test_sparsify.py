"""Matrices without entries that are sums of others: whole again to the bit, and none too many."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orograph.kernels.boundary.elimination import block_costs, boundary_matrix
from orograph.kernels.boundary.sparsify import entries_of, recover, sparsify_matrix
from orograph.kernels.minplus.lanes import BARRIER
from orograph.kernels.relax.models import CostModel

Array = npt.NDArray[Any]


def nothing(dtype: np.dtype[Any]) -> Any:
    return dtype.type(BARRIER if dtype.kind == "i" else np.inf)


def product(a: Array) -> Array:
    """The min-plus product of a matrix with itself, by NumPy; no way plus anything is no way.

    -0.0 counts as 0.0, as in the kernels.
    """
    n, none = len(a), nothing(a.dtype)
    a = np.where(a == 0, a.dtype.type(0), a)
    out = np.full((n, n), none, a.dtype)
    for k in range(n):
        through = a[:, k, None] + a[None, k, :]
        barred = (a[:, k, None] >= none) | (a[None, k, :] >= none)
        np.minimum(out, np.where(barred, none, through), out=out)
    return out


def closed(a: Array) -> Array:
    """Least costs of paths, by NumPy."""
    a = a.copy()
    np.fill_diagonal(a, 0)
    for k in range(len(a)):
        barred = (a[:, k, None] >= nothing(a.dtype)) | (a[None, k, :] >= nothing(a.dtype))
        through = np.where(barred, nothing(a.dtype), a[:, k, None] + a[None, k, :])
        np.minimum(a, through, out=a)
    return a


def stored(matrix: Array, symmetric: bool) -> Array:
    return matrix[np.tril_indices(len(matrix))] if symmetric else matrix.reshape(-1)


def unmarked(marks: Array, n: int, symmetric: bool) -> Array:
    """Which elements of a matrix are kept."""
    flat = np.unpackbits(marks)[: entries_of(n, symmetric)].astype(bool)
    if not symmetric:
        return flat.reshape(n, n)
    kept = np.zeros((n, n), bool)
    kept[np.tril_indices(n)] = flat
    return kept | kept.T


def assert_exact(matrix: Array, symmetric: bool) -> Array:
    """Check what is left out of a matrix against its own rules; which elements are kept."""
    n, none, bits = len(matrix), nothing(matrix.dtype), f"i{matrix.itemsize}"
    values, marks = sparsify_matrix(matrix, symmetric=symmetric)
    kept = unmarked(marks, n, symmetric)
    entries = stored(matrix, symmetric)
    flags = stored(kept, symmetric)
    np.testing.assert_array_equal(values.view(bits), entries[flags].view(bits))
    whole = recover(values, marks, n, symmetric=symmetric)
    np.testing.assert_array_equal(whole.view(bits), entries.view(bits))
    # by NumPy alone: one product of what is kept has the bits of what is not
    alone = np.where(kept, matrix, none)
    sums = product(alone)
    np.testing.assert_array_equal(sums[~kept].view(bits), matrix[~kept].view(bits))
    assert kept.diagonal().all()
    # so each of them is a sum of two others that are kept
    for i, j in np.argwhere(~kept & (matrix < none)).tolist():
        others = np.delete(np.arange(n), [i, j])
        assert (alone[i, others] + alone[others, j] == matrix[i, j]).any()
    return kept


DTYPES = ("int64", "float64", "float32")


@st.composite
def matrices(draw: st.DrawFn) -> tuple[Array, bool]:
    n = draw(st.integers(1, 40))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    most = draw(st.sampled_from([1, 3, 1000]))
    a = rng.integers(0, most + 1, (n, n)).astype(dtype)
    if dtype.kind == "f" and draw(st.booleans()):
        a *= rng.uniform(0.1, 1, (n, n)).astype(dtype)
    if dtype.kind == "f" and draw(st.booleans()):
        a[rng.random((n, n)) < 0.2] = -0.0
    a[rng.random((n, n)) < draw(st.sampled_from([0, 0.5, 0.9]))] = nothing(dtype)
    symmetric = draw(st.booleans())
    if symmetric:
        a = np.where(np.tri(n, dtype=bool), a, a.T)
    # any matrix will do, not only one of least costs
    return (closed(a) if draw(st.booleans()) else a), symmetric


@settings(max_examples=300, deadline=None)
@given(matrices())
def test_what_is_left_out_comes_again_to_the_bit(drawn: tuple[Array, bool]) -> None:
    assert_exact(*drawn)


def of_block(kind: str, dtype: str, side: int = 20) -> tuple[Array, bool]:
    rng = np.random.default_rng(5)
    halo = side + 2, side + 2
    if kind == "flat":
        heights = np.repeat(np.repeat(rng.integers(0, 3, (6, 6)), 4, axis=0), 4, axis=1)
        heights = np.ascontiguousarray(heights[: halo[0], : halo[1]].astype(dtype))
        costs = block_costs(elevation=heights, model=CostModel("absolute_difference"))
        return boundary_matrix(costs), True
    if kind == "tobler":
        heights = rng.uniform(0, 3, halo).astype(dtype)
        friction = np.ones(halo, dtype)
        costs = block_costs(friction, heights, model=CostModel("tobler"))
        return boundary_matrix(costs), False
    friction = rng.integers(0 if kind == "zeros" else 1, 9, halo).astype(dtype)
    if kind == "barriers":
        friction[rng.random(halo) < 0.35] = nothing(np.dtype(dtype))
    connectivity = 4 if dtype == "int64" else 8
    return boundary_matrix(block_costs(friction, connectivity=connectivity)), True


BLOCKS = [
    (kind, dtype)
    for kind in ("whole numbers", "zeros", "barriers", "flat", "tobler")
    for dtype in DTYPES
    if (kind, dtype) != ("tobler", "int64")
]


@pytest.mark.diagonal
@pytest.mark.parametrize(("kind", "dtype"), BLOCKS, ids=[f"{k}, {d}" for k, d in BLOCKS])
def test_matrices_of_blocks(kind: str, dtype: str) -> None:
    matrix, symmetric = of_block(kind, dtype)
    kept = assert_exact(matrix, symmetric)
    assert kept.mean() < 0.9
    if symmetric:
        # what is above the diagonal is not looked at
        other = np.where(np.tri(len(matrix), dtype=bool), matrix, 3)
        for one, two in zip(
            sparsify_matrix(matrix, symmetric=True), sparsify_matrix(other, symmetric=True)
        ):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("symmetric", [True, False])
def test_of_a_line_few_entries_are_kept(symmetric: bool, dtype: str) -> None:
    """All pairs of n cells in a row are sums of two of n log n."""
    n = 64
    place = np.arange(n, dtype=dtype)
    kept = assert_exact(np.abs(place[:, None] - place), symmetric)
    assert np.tril(kept, -1).sum() < n * np.log2(n)


@pytest.mark.parametrize("dtype", DTYPES)
def test_where_all_costs_nothing_a_star_is_kept(dtype: str) -> None:
    kept = assert_exact(np.zeros((30, 30), dtype), True)
    assert np.tril(kept, -1).sum() == 29


@pytest.mark.parametrize("dtype", DTYPES)
def test_where_there_is_no_way_nothing_is_kept(dtype: str) -> None:
    matrix = np.full((30, 30), nothing(np.dtype(dtype)))
    np.fill_diagonal(matrix, 0)
    np.testing.assert_array_equal(assert_exact(matrix, True), np.eye(30, dtype=bool))


def test_what_is_no_sum_of_two_others_is_kept() -> None:
    matrix = np.random.default_rng(1).uniform(1, 1.9, (50, 50))
    np.fill_diagonal(matrix, 0)
    assert assert_exact(matrix, False).all()


def test_a_sum_that_is_rounded_otherwise_is_kept() -> None:
    steps = np.array([0.1, 0.2, 0.3])
    exact = np.full((4, 4), np.inf)
    np.fill_diagonal(exact, 0)
    exact[[0, 1, 2], [1, 2, 3]] = steps
    exact[0, 2], exact[1, 3] = 0.1 + 0.2, 0.2 + 0.3
    exact[0, 3] = 0.1 + (0.2 + 0.3)
    assert exact[0, 3] < (0.1 + 0.2) + 0.3
    assert np.triu(assert_exact(exact, False), 1).sum() < 6
    # a little more than the least sum: no product gives it
    exact[0, 3] = (0.1 + 0.2) + 0.3
    assert assert_exact(exact, False)[0, 3]


def test_too_few_values_are_refused() -> None:
    values, marks = sparsify_matrix(np.eye(5), symmetric=True)
    with pytest.raises(ValueError, match=r"\d+ entries where \d+ are marked"):
        recover(values[:-1], marks, 5, symmetric=True)
