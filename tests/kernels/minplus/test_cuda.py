"""Min-plus products and closures by minplus.cu, in the emulator, against Numba and SciPy."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator, find_compiler
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import johnson

from orograph.kernels.minplus import closure as minplus_closure
from orograph.kernels.minplus import closure_cuda
from orograph.kernels.minplus import cuda as minplus_cuda
from orograph.kernels.minplus import product as minplus
from orograph.kernels.minplus.lanes import BARRIER
from orograph.kernels.minplus.product import NO_VERTEX

DTYPES = ("float32", "float64", "int64")
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: install g++")


def nothing(dtype: str) -> float:
    return BARRIER if dtype == "int64" else np.inf


def matrix(rng: np.random.Generator, shape: tuple[int, int], dtype: str, gaps: float) -> np.ndarray:
    """Lengths of both signs that do not add exactly, and gaps."""
    values = rng.integers(-(2**58), 2**58, shape) if dtype == "int64" else rng.normal(size=shape)
    lengths = values.astype(dtype)
    lengths[rng.random(shape) < gaps] = nothing(dtype)
    return lengths


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found, expected)
    assert found.tobytes() == expected.tobytes()


def check_product(
    rng: np.random.Generator,
    shape: tuple[int, int, int],
    dtype: str,
    device: Emulator,
    signed: bool = True,
) -> None:
    n, m, depth = shape
    a, b = matrix(rng, (n, depth), dtype, 0.3), matrix(rng, (depth, m), dtype, 0.3)
    if not signed:
        a, b = np.abs(a), np.abs(b)
    c = matrix(rng, (n, m), dtype, 0.5)
    expected = minplus.minplus(a, b, c.copy())
    found = c.copy()
    assert minplus_cuda.minplus(a, b, found, device=device) is found
    assert_same_bits(found, expected)
    q = rng.integers(0, 99, (depth, m)).astype(np.int32)
    p = np.full((n, m), NO_VERTEX, np.int32)
    q_expected, p_expected = q.copy(), p.copy()
    minplus.minplus(a, b, c.copy(), before_b=q_expected, before=p_expected)
    found = c.copy()
    minplus_cuda.minplus(a, b, found, before_b=q, before=p, device=device)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(p, p_expected)


@pytest.mark.diagonal
@pytest.mark.parametrize("dtype", DTYPES)
def test_tiles_and_their_edges(dtype: str, emulator: Emulator) -> None:
    rng = np.random.default_rng(1)
    for shape in ((1, 1, 1), (130, 131, 17), (64, 128, 16), (3, 257, 5), (129, 2, 40)):
        check_product(rng, shape, dtype, emulator)


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@given(
    shape=st.tuples(st.integers(1, 70), st.integers(1, 140), st.integers(1, 40)),
    seed=st.integers(0, 2**32),
    signed=st.booleans(),
)
@settings(max_examples=10, deadline=None)
def test_any_shape(dtype: str, shape: tuple[int, int, int], seed: int, signed: bool) -> None:
    device = Emulator("random", seed=seed % 97)
    check_product(np.random.default_rng(seed), shape, dtype, device, signed)


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zeros_of_both_signs_and_what_is_no_number(dtype: str) -> None:
    rng = np.random.default_rng(2)
    a, b, c = (
        rng.choice(np.array([0.0, -0.0, 1.0, -1.0, np.inf], dtype), shape)
        for shape in ((60, 9), (9, 70), (60, 70))
    )
    a[3], b[:, 5] = -np.inf, np.nan
    expected, found = minplus.minplus(a, b, c.copy()), c.copy()
    minplus_cuda.minplus(a, b, found, device=Emulator())
    assert_same_bits(found, expected)
    assert np.signbit(c[expected == 0]).any()
    assert not np.isnan(found).any()


def graph(n: int, dtype: str) -> np.ndarray:
    """Lengths of both signs without a negative cycle; in floats, sums are rounded."""
    rng = np.random.default_rng(n)
    height = rng.integers(0, 100, n)
    length = rng.integers(1, 60, (n, n)) + height[None, :] - height[:, None].astype(np.float64)
    if dtype != "int64":
        length += rng.random((n, n))
    length[rng.random((n, n)) < max(0.3, 1 - 8 / n)] = np.inf
    np.fill_diagonal(length, 0)
    if dtype == "int64":
        return np.where(np.isinf(length), BARRIER, np.nan_to_num(length, posinf=0)).astype(dtype)
    return length.astype(dtype)


def check_closure(lengths: np.ndarray, device: Emulator, traced: bool = True) -> np.ndarray:
    dtype, n = lengths.dtype.name, len(lengths)
    edge = (lengths < nothing(dtype)) & ~np.eye(n, dtype=bool)
    before = np.where(edge, np.arange(n, dtype=np.int32)[:, None], NO_VERTEX).astype(np.int32)
    expected, p_expected = lengths.copy(), before.copy()
    found, p = lengths.copy(), before.copy()
    bad = minplus_closure.floyd_warshall_block(expected, before=p_expected if traced else None)
    mine = closure_cuda.floyd_warshall_block(found, before=p if traced else None, device=device)
    assert mine == bad
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(p, p_expected)
    return found


@pytest.mark.diagonal
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 7, 64, 65, 130])
def test_closure(n: int, dtype: str, emulator: Emulator) -> None:
    lengths = graph(n, dtype)
    found = check_closure(lengths, emulator)
    check_closure(lengths, emulator, traced=False)
    rows, columns = np.nonzero((lengths < nothing(dtype)) & ~np.eye(n, dtype=bool))
    values = lengths[rows, columns].astype(np.float64)
    expected = johnson(csr_array((values, (rows, columns)), shape=(n, n)))
    expected = np.where(np.isinf(expected), nothing(dtype), expected)
    tolerance = {"float32": 1e-3, "float64": 1e-11, "int64": 0}[dtype]
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@needs_compiler
def test_large_matrices_go_in_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter steps, in the order of the Numba kernel: integers do not depend on the steps."""
    monkeypatch.setattr(closure_cuda, "LARGE_STEP", 64)
    monkeypatch.setattr(closure_cuda, "STEP", 16)
    lengths = graph(150, "int64")
    expected = lengths.copy()
    minplus_closure.floyd_warshall_block(expected)
    closure_cuda.floyd_warshall_block(lengths, device=Emulator())
    np.testing.assert_array_equal(lengths, expected)


@pytest.mark.parametrize("n", [3, 90])
def test_a_negative_cycle_stops_it(n: int, emulator: Emulator) -> None:
    for dtype in DTYPES:
        lengths = graph(n, dtype)
        lengths[0, n // 2], lengths[n // 2, n - 1], lengths[n - 1, 0] = -1, -1, -1
        check_closure(lengths, emulator)


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_on_two_devices_have_the_bits_of_one(dtype: str) -> None:
    n, side = 150, 40
    lengths = graph(n, dtype)
    before = np.arange(n, dtype=np.int32)[:, None].repeat(n, 1)

    def closed(cuts: list[int]) -> tuple[int | None, np.ndarray, np.ndarray]:
        held = []
        for first, last in itertools.pairwise(cuts):
            rows = lengths[first:last].flatten(), before[first:last].flatten()
            held.append(closure_cuda.HeldRows(Emulator("random", first), first, last, *rows))
        bad = closure_cuda.close_rows(held, n, side, 0.0, signed=True)
        return bad, *(np.concatenate([getattr(rows, x) for rows in held]) for x in ("a", "before"))

    expected, found = closed([0, n]), closed([0, 80, n])
    assert found[0] is expected[0] is None
    assert_same_bits(found[1], expected[1])
    assert_same_bits(found[2], expected[2])
    lengths[n - 1, 0], lengths[0, n - 1] = 1, -2
    assert None not in (closed([0, n])[0], closed([0, 80, n])[0])


@needs_compiler
def test_a_cycle_within_the_tolerance_has_no_length() -> None:
    lengths = np.array([[0.0, 0.3], [-0.3 - 1e-12, 0.0]])
    expected = lengths.copy()
    assert minplus_closure.floyd_warshall_block(expected, tolerance=1e-9) is None
    device = Emulator()
    assert closure_cuda.floyd_warshall_block(lengths, tolerance=1e-9, device=device) is None
    np.testing.assert_array_equal(lengths, expected)


@needs_compiler
def test_what_does_not_fit_is_refused() -> None:
    device = Emulator()
    with pytest.raises(ValueError, match="elements are int32"):
        minplus_cuda.minplus(np.zeros((1, 1), np.int32), np.zeros((1, 1), np.int32), device=device)
    with pytest.raises(ValueError, match=r"b is float64 of shape \(3, 2\)|a is float64"):
        minplus_cuda.minplus(np.zeros((2, 2)), np.zeros((3, 2)), device=device)
    before = np.zeros((2, 2), np.int64)
    with pytest.raises(ValueError, match="before is int64"):
        closure_cuda.floyd_warshall_block(np.zeros((2, 2)), before=before, device=device)


def test_both_files_agree_on_tiles_and_steps() -> None:
    source = Path(minplus_cuda.__file__).with_name("minplus.cu").read_text(encoding="utf-8")
    values = dict(re.findall(r"^ *#define (\w+) (\d+)\b", source, re.MULTILINE))
    lanes, across = int(values["LANES"]), int(values["ACROSS"])
    assert int(values["STEP"]) == minplus_closure.STEP
    assert lanes * lanes == minplus_cuda.THREADS
    assert lanes * across == minplus_cuda.TILE_COLUMNS
    down = [int(d) for d in re.findall(r"#define DOWN (\d+)", source)]
    traced = [int(d) for d in re.findall(r"#define DOWN_TRACED (\d+)", source)]
    assert [lanes * d for d in down] == [minplus_cuda.TILE_ROWS[4], minplus_cuda.TILE_ROWS[8]]
    assert [2 * d for d in traced] == down
