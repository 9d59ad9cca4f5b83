"""Graphs that are too large, empty or damaged: refused with a sentence, before memory is taken."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import psutil
import pytest
from scipy import sparse

import orograph as og
from orograph.tiles.graph import lines

MTX = "%%MatrixMarket matrix coordinate {} general\n{}\n"
REFUSED = {
    "superscripts": ("a.gr", "p sp ² 1\na 1 2 3\n", "line 1: 'p sp ² 1'; it must be 'p sp n m'"),
    "superscripts of a matrix": ("a.mtx", MTX.format("real", "² ² 1"), "line 2: '² ² 1'; a graph"),
    "digits without end": ("a.gr", f"p sp {'9' * 5000} 1\na 1 2 3\n", "line 1: .*it must be 'p sp"),
    "halves of integers": (
        "a.mtx", MTX.format("integer", "2 2 2\n1 2 3\n2 1 1.5"),
        "line 4: 1.5 is not an integer of 64 bits, and line 1 says 'integer'; write 'real'",
    ),
    "an integer beyond 64 bits": (
        "a.mtx", MTX.format("integer", "2 2 1\n1 2 1e30"), r"line 3: 1e\+30 is not an integer of",
    ),
    "a large integer beside a half": (
        "a.gr", f"p sp 2 2\na 1 2 {2**53 + 1}\na 2 1 0.5\n",
        f"line 2: {2**53 + 1} would be rounded to float64, since numbers of the file are not whole",
    ),
    "the same of a matrix": (
        "a.mtx", MTX.format("real", f"2 2 2\n1 2 0.5\n2 1 -{2**60 + 1}"),
        f"line 4: -{2**60 + 1} would be rounded",
    ),
    "an integer of 70 bits": ("a.gr", f"p sp 2 1\na 1 2 {2**70 + 1}\n", "line 2: .* be rounded"),
    "one edge more": (
        "a.gr", "p sp 2 1\na 1 2 3\na 2 1 3\n", "line 1 says 1 edges, and line 3 is one more",
    ),
    "no vertex": ("a.gr", "p sp 0 0\n", "no vertices; a graph has one vertex at least"),
    "no vertex in a matrix": ("a.mtx", MTX.format("real", "0 0 0"), "no vertices"),
    "an empty file": ("a.gr", "", "no line begins with 'p'; a .gr file has one first"),
    "an empty matrix": ("a.mtx", "", "line 1: ''; a Matrix Market file of a graph begins"),
    "edges first": ("a.gr", "a 1 2 3\np sp 2 1\n", "no line begins with 'p' before line 1, 'a 1 2"),
    "a line without end": (
        "a.gr", "p sp 2 1\na 1 2 " + " " * lines.BLOCK + "3\n",
        "line 2: 'a 1 2 .*has more than 4096 characters",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_text_that_is_no_graph_is_refused(name: str, tmp_path: Path) -> None:
    file, text, message = REFUSED[name]
    (tmp_path / file).write_text(text)
    with pytest.raises(og.InputError, match=message):
        og.read_graph(tmp_path / file)


def test_large_integers_stay_exact_where_all_are_whole(tmp_path: Path) -> None:
    (tmp_path / "a.gr").write_text(f"p sp 2 2\na 1 2 {2**53 + 1}\na 2 1 7\n")
    assert og.read_graph(tmp_path / "a.gr").weight_range == (7, 2**53 + 1)
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([("a", "b", 2**53 + 1), ("b", "a", 0.5)])
    with pytest.raises(og.InputError, match=f"edge a to b has weight {2**53 + 1}, which would be"):
        og.read_graph(graph)


@pytest.mark.parametrize("dtype", ["gr", "mtx"])
def test_declared_vertices_that_do_not_fit_are_refused_before_memory_is_taken(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little: Any = type("Memory", (), {"available": 10**9})
    monkeypatch.setattr(psutil, "virtual_memory", lambda: little)
    n = 10**9
    text = f"p sp {n} 1\na 1 2 3\n" if dtype == "gr" else MTX.format("real", f"{n} {n} 1\n1 2 3")
    path = tmp_path / f"a.{dtype}"
    path.write_text(text)
    matrix = sparse.coo_array(([3.0], ([0], [1])), shape=(n, n))
    tracemalloc.start()
    for call in (
        lambda: og.read_graph(path),
        lambda: og.read_graph(matrix, directed=True),
        lambda: og.all_pairs(matrix),
        lambda: og.all_pairs(matrix, sources=0),
    ):
        with pytest.raises(
            og.InputError,
            match=f"a graph of {n} vertices and 1 edges takes 480000001.. bytes, and 1000000000 "
            "are free; leave out vertices without edges",
        ):
            call()
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_a_bomb_of_edges_stops_at_the_number_that_it_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "BLOCK", 2**17)
    path = tmp_path / "a.gr.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b"p sp 9 1000\n")
        for _ in range(40):
            file.write(b"a 1 2 3\n" * 2**16)
    assert path.stat().st_size < 2**18
    tracemalloc.start()
    with pytest.raises(og.InputError, match="line 1 says 1000 edges, and line 1002 is one more"):
        og.read_graph(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * lines.BLOCK < 40 * 8 * 2**16


def test_decompression_stops_at_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_TEXT", 2**23)
    path = tmp_path / "a.mtx.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b"%%MatrixMarket matrix coordinate real general\n")
        for _ in range(20):
            file.write(b"% nothing\n" * 2**16)
    with pytest.raises(og.InputError, match=r"beyond 8388608 characters of text, at which reading"):
        og.read_graph(path)


def test_reading_takes_at_most_the_stated_multiple_of_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 60_000
    path = tmp_path / "a.gr"
    path.write_text(f"p tw 1000 {count}\n" + "1 2\n" * count)
    og.read_graph(sparse.coo_array(([1], ([0], [1])), shape=(3, 3)), directed=False)  # imports
    monkeypatch.setattr(lines, "BLOCK", 2**14)  # a block counts little beside the text
    tracemalloc.start()
    assert og.read_graph(path).edge_count == count
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * path.stat().st_size


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (pd.DataFrame({"source": [], "target": []}), "the table has no rows; a graph has one vert"),
        (pd.DataFrame({"u": [], "v": []}, dtype=int), "the table has no rows"),
        (nx.Graph(), "it has no vertices; a graph has one vertex at least"),
        (sparse.coo_array((0, 0)), "it has no vertices"),
        (
            pd.DataFrame([[1, 2, 3]], columns=["source", "target", "source"]),
            "2 columns are called 'source'; leave one of them",
        ),
        (
            pd.DataFrame([[1, 2, 3, 4]], columns=["u", "v", "cost", "cost"]),
            "2 columns are called 'cost'",
        ),
    ],
)
def test_empty_and_ambiguous_sources_are_refused(source: Any, message: str) -> None:
    with pytest.raises(og.InputError, match=message):
        og.read_graph(source, directed=True)


def damaged(name: str, place: int, value: int) -> Any:
    matrix = sparse.csr_array(np.ones((3, 3)))
    if name == "row":
        matrix = matrix.tocoo()
    getattr(matrix, name)[place] = value
    return matrix


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [("indices", 1, 7), ("indices", 1, -1), ("indptr", 1, 7), ("indptr", 3, 99), ("row", 0, 3)],
)
def test_sparse_arrays_with_bad_indices_are_refused(name: str, place: int, value: int) -> None:
    for argument, call in (
        ("source", lambda matrix: og.read_graph(matrix, directed=True)),
        ("graph", og.all_pairs),
    ):
        with pytest.raises(
            og.InputError, match=rf"{argument}: a c.. array of shape \(3, 3\) whose indices do not"
        ):
            call(damaged(name, place, value))


@pytest.mark.parametrize("kind", ["table", "networkx"])
def test_large_ids_stay_apart(kind: str, tmp_path: Path) -> None:
    ids = [2**60 + 1, 2**60, 2**63 + 5]
    table = pd.DataFrame({"source": np.array(ids, "u8"), "target": [5, 6, 5], "weight": [1, 9, 2]})
    source: Any = table
    if kind == "networkx":
        source = nx.from_pandas_edgelist(table, edge_attr="weight", create_using=nx.DiGraph)
    graph = og.read_graph(source, directed=True)
    assert sorted(graph.ids.tolist()) == [5, 6, *sorted(ids)]
    stored = og.read_graph(source, directed=True, store=tmp_path / "a.zarr")
    for found in (graph, stored, og.read_graph(tmp_path / "a.zarr")):
        cost = og.shortest_paths(found, ids)["cost"]
        assert cost.sel(source=2**60 + 1, vertex=5) == 1
        assert cost.sel(source=2**60, vertex=5) == -1
        assert cost.sel(source=2**63 + 5, vertex=5) == 2
        assert cost["source"].values.tolist() == ids


def test_ids_that_no_integer_of_64_bits_holds_are_kept() -> None:
    table = pd.DataFrame({"u": np.array([2**64 - 1], "u8"), "v": [-1]})
    assert og.read_graph(table, directed=True).ids.tolist() == [-1, 2**64 - 1]
    assert og.read_graph(nx.Graph([(2**70, 1)])).ids.tolist() == [2**70, 1]
