"""All pairs of graphs with names, of some rows, with cycles masked, and of too many vertices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import psutil
import pytest
from oracle_graph import as_floats, least_matrix, random_edges
from scipy import sparse
from scipy.sparse import csgraph

import orograph as og

N = 40


def named_graph() -> Any:
    graph = nx.DiGraph()
    tail, head, weight = random_edges(3, N, 120)
    graph.add_nodes_from(f"v{i}" for i in range(N))
    for u, v, w in zip(tail.tolist(), head.tolist(), weight.tolist(), strict=True):
        graph.add_edge(f"v{u}", f"v{v}", weight=w)
    return graph


def test_labels_are_kept() -> None:
    graph = named_graph()
    expected = dict(nx.all_pairs_dijkstra_path_length(graph))
    frame = nx.to_pandas_adjacency(graph, nonedge=np.inf)
    for given in (graph, og.read_graph(graph), frame):
        found = og.all_pairs(given, no_edge=np.inf, method="floyd-warshall")["distance"]
        for u, v in (("v0", "v9"), ("v7", "v3"), ("v12", "v12")):
            assert found.sel(source=u, target=v).item() == expected[u].get(v, np.inf)
    with pytest.raises(og.InputError, match="give them one order"):
        og.all_pairs(frame.iloc[::-1])


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_some_rows(dtype: str, negative: bool, tmp_path: Path) -> None:
    edges = random_edges(4, N, 150, negative=negative)
    matrix = least_matrix(N, *edges)
    whole = og.all_pairs(matrix, dtype=dtype, predecessors=True)
    rows = og.all_pairs(matrix, dtype=dtype, sources=[3, 30], predecessors=True)
    np.testing.assert_array_equal(rows["distance"], whole["distance"][[3, 30]])
    assert rows["distance"].dtype == dtype
    assert rows["predecessor"].dtype == np.int32
    there = og.all_pairs(matrix, dtype=dtype, sources=[3, 30], out=tmp_path / "a.zarr")
    np.testing.assert_array_equal(there["distance"], rows["distance"])
    assert there["source"].values.tolist() == [3, 30]
    named = og.all_pairs(named_graph(), sources="v3")
    assert named["distance"].sel(target="v3").item() == 0


def walks_through(matrix: Any) -> Any:
    """Which pairs have a walk that meets a negative cycle: by powers of a dense matrix."""
    n = matrix.shape[0]
    length = np.full((n, n), np.inf)
    entries = matrix.tocoo()
    length[entries.row, entries.col] = entries.data
    np.fill_diagonal(length, np.minimum(length.diagonal(), 0))
    for k in range(n):
        length = np.minimum(length, length[:, k, None] + length[None, k])
    reach = np.isfinite(length)
    on_cycle = length.diagonal() < 0
    return reach[:, on_cycle].astype(int) @ reach[on_cycle].astype(int) > 0


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_pairs_that_a_negative_cycle_can_touch_are_masked(dtype: str) -> None:
    touched = 0
    for seed in range(8):
        tail, head, weight = random_edges(seed, N, 70)
        weight = np.where(np.arange(70) % 9 == 0, weight - 12, weight)
        matrix = least_matrix(N, tail, head, weight)
        masked = walks_through(matrix)
        found = og.all_pairs(matrix, dtype=dtype, negative_cycles="mask", predecessors=True)
        distance = as_floats(found["distance"]).astype(float)
        distance[distance == -(2**60)] = -np.inf
        np.testing.assert_array_equal(distance == -np.inf, masked)
        assert (found["predecessor"].values[masked] == -9999).all()
        good = np.flatnonzero(~masked.diagonal())
        rest = csgraph.johnson(sparse.csr_array(matrix[good][:, good]))
        here = distance[np.ix_(good, good)]
        np.testing.assert_array_equal(here[np.isfinite(here)], rest[np.isfinite(here)])
        touched += masked.any() and not masked.all()
        if masked.any():
            with pytest.raises(og.NegativeCycle):
                og.all_pairs(matrix, dtype=dtype)
    assert touched > 3


def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = least_matrix(N, *random_edges(1, N, 50))
    large = sparse.csr_array((264346, 264346))
    for call, message in (
        (
            lambda: og.all_pairs(large),
            r"has 559030461728 bytes \(520.6 GiB\).*pass out= .*sources=",
        ),
        (lambda: og.all_pairs(matrix, sources=N), f"sources: {N} is none of the graph's {N} vert"),
        (lambda: og.all_pairs(matrix, sources=0, method="squaring"), "'squaring' is for all rows"),
        (lambda: og.all_pairs(matrix, sources=0, dtype="float32"), "'float32' is for all rows"),
        (
            lambda: og.all_pairs(matrix, negative_cycles="skip"),
            "negative_cycles: 'skip' is unknown",
        ),
        (
            lambda: og.all_pairs(matrix, negative_cycles="mask", out=tmp_path / "a.zarr"),
            "'mask' is for results in memory",
        ),
        (lambda: og.all_pairs(matrix, sources=0, negative_cycles="mask"), "'mask' is for all rows"),
    ):
        with pytest.raises(og.InputError, match=message):
            call()
    little: Any = type("Memory", (), {"available": 12_000})
    monkeypatch.setattr(psutil, "virtual_memory", lambda: little)
    with pytest.raises(og.InputError, match=r"12800 bytes .* 12000 bytes are free"):
        og.all_pairs(matrix)


class Declared:
    """A dense matrix that nobody has: to look at its lengths is an error."""

    dtype, ndim = np.dtype("f8"), 2

    def __init__(self, n: int) -> None:
        self.shape = n, n

    def __getitem__(self, key: Any) -> Any:
        raise AssertionError("no length is looked at")


def test_a_declared_matrix_is_refused_before_its_lengths_are_read() -> None:
    for options, message in (
        ({}, r"the table of 1000000 x 1000000 pairs has 8000000000000 bytes"),
        ({"sources": 0}, r"to search a dense matrix of 1000000 x 1000000 lengths .* takes"),
    ):
        with pytest.raises(og.InputError, match=message):
            og.all_pairs(Declared(10**6), **options)


def test_an_array_of_cupy_is_refused() -> None:
    def on_host(self: Any, *arguments: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    kind = type("ndarray", (Declared,), {"__module__": "cupy", "__array__": on_host})
    with pytest.raises(
        og.InputError, match=r"an array of CuPy.*; pass graph.get\(\), and backend="
    ):
        og.all_pairs(kind(3))


def test_a_frame_keeps_working() -> None:
    assert og.all_pairs(pd.DataFrame([[0, 3], [0, 0]]))["distance"].values[0, 1] == 3
