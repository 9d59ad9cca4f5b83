"""Components of graphs by hook and compress, on a CPU and in the emulator, against SciPy's."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator, find_compiler
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from orograph.kernels.label.union_find import compress_paths, join_edges

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from papers import hook
from papers.hook import METHODS, hook_parents, hook_roots
from papers.hook_cuda import components, join_components

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: install g++")


def expected_roots(n: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """SciPy's components, named by their smallest vertex."""
    graph = coo_array((np.ones(a.size, np.int8), (a, b)), shape=(n, n))
    _, numbers = connected_components(graph, directed=False)
    _, smallest = np.unique(numbers, return_index=True)
    return smallest[numbers]


def shapes_of_graphs() -> dict[str, tuple[int, np.ndarray, np.ndarray]]:
    """Graphs that are hard on one of the methods."""
    n = 3000
    rng = np.random.default_rng(11)
    path = np.arange(n - 1), np.arange(1, n)
    mixed = rng.permutation(n)
    return {
        "a path": (n, *path),
        "a path from its end": (n, path[1][::-1], path[0][::-1]),
        "a path whose vertices are mixed": (n, mixed[:-1], mixed[1:]),
        "a star with the greatest in the middle": (n, np.full(n - 1, n - 1), path[0]),
        "a sparse random graph": (n, *rng.integers(0, n, (2, n // 2))),
        "a dense random graph": (n, *rng.integers(0, n, (2, 2 * n))),
        "the same edge again and again": (5, np.full(1000, 4), np.full(1000, 2)),
        "loops": (50, np.arange(50), np.arange(50)),
        "pairs": (n, np.arange(0, n, 2), np.arange(1, n, 2)),
    }


GRAPHS = shapes_of_graphs()


@pytest.mark.diagonal
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name: str, method: str, emulator: Emulator) -> None:
    n, a, b = GRAPHS[name]
    found = components(n, a, b, method, device=emulator)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected_roots(n, a, b))
    np.testing.assert_array_equal(found, hook.components(n, a, b, method))


@pytest.mark.diagonal
@pytest.mark.parametrize("method", METHODS)
def test_vertices_of_64_bits(method: str, emulator: Emulator) -> None:
    n, a, b = GRAPHS["a dense random graph"]
    ends = a[:1500].astype(np.uint64), b[:1500].astype(np.uint64)
    found = join_components(emulator, n, *ends, method)
    assert found.dtype == np.uint64
    np.testing.assert_array_equal(found, expected_roots(n, a[:1500], b[:1500]))


@needs_compiler
@settings(max_examples=150, deadline=None)
@given(
    n=st.integers(1, 40),
    edges=st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=60),
    method=st.sampled_from(METHODS),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_graph_in_any_order(
    n: int, edges: list[tuple[int, int]], method: str, seed: int
) -> None:
    ends = np.array(edges, np.int32).reshape(-1, 2) % n
    device = Emulator("random", seed)
    found = components(n, ends[:, 0], ends[:, 1], method, device=device)
    np.testing.assert_array_equal(found, expected_roots(n, ends[:, 0], ends[:, 1]))


@needs_compiler
def test_no_vertices_and_no_edges() -> None:
    nothing = np.empty(0, np.int64)
    for method in METHODS:
        assert components(0, nothing, nothing, method, device=Emulator()).tolist() == []
        assert components(3, nothing, nothing, method, device=Emulator()).tolist() == [0, 1, 2]


@settings(max_examples=200, deadline=None)
@given(
    n=st.integers(1, 40),
    edges=st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=60),
    seed=st.integers(0, 2**32 - 1),
)
def test_kernels_go_on_from_any_forest(n: int, edges: list[tuple[int, int]], seed: int) -> None:
    # Threads find parents that others have changed; what they leave must be mended by a last pass.
    ends = (np.array(edges, np.int64).reshape(-1, 2) % n).T
    expected = expected_roots(n, *ends)
    a, b = ends.astype(np.uint64)
    for join in (join_edges, hook_roots):
        parent = np.arange(n, dtype=np.uint64)
        order = np.random.default_rng(seed).permutation(a.size)
        half = order[: a.size // 2]
        hook_parents(parent, a[half], b[half])
        join(parent, a[order], b[order])
        assert (parent <= np.arange(n)).all()
        compress_paths(parent)
        np.testing.assert_array_equal(parent, expected)
