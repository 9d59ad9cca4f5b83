"""Graphs from files and from memory: what is read, how it is stored, what is refused."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from oracle_graph import random_edges
from scipy import sparse

import orograph as og
from orograph.tiles.graph.graph import make_graph

GR = "c a graph\np sp 4 5\na 1 2 7\na 2 1 7\na 2 3 2\na 4 4 0\na 1 3 9\n"
MTX = "%%MatrixMarket matrix coordinate {} {}\n% a graph\n3 3 2\n2 1 5\n3 2 6\n"


def edges_of(graph: og.Graph) -> list[tuple[Any, Any, Any]]:
    """The arcs as the source calls their ends, in order of edges."""
    order = np.argsort(graph.edge, kind="stable")
    ends = (graph.ids[graph.position[axis]][order].tolist()
            for axis in (graph.tails, graph.rows.indices))  # fmt: skip
    return list(zip(*ends, graph.rows.weight[order].tolist(), strict=True))


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [(".gr", None), (".gr.gz", gzip.compress), (".gr.xz", lzma.compress)],
)
def test_dimacs(suffix: str, pack: Callable[[bytes], bytes] | None, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(pack(GR.encode()) if pack else GR.encode())
    graph = og.read_graph(path)
    assert graph.directed
    assert edges_of(graph) == [(1, 2, 7), (2, 1, 7), (2, 3, 2), (4, 4, 0), (1, 3, 9)]
    both = og.read_graph(path, directed=False)
    assert (both.edge_count, both.arc_count) == (5, 9)


def test_pace_has_no_weights_and_no_directions(tmp_path: Path) -> None:
    path = tmp_path / "a.gr"
    path.write_text("p tw 3 2\n1 2\n3 2\n")
    graph = og.read_graph(path)
    assert not graph.directed
    assert sorted(edges_of(graph)) == [(1, 2, 1), (2, 1, 1), (2, 3, 1), (3, 2, 1)]


@pytest.mark.parametrize(
    ("field", "symmetry", "dtype"),
    [
        ("integer", "symmetric", np.int32),
        ("real", "general", np.int32),
        ("pattern", "general", None),
    ],
)
def test_matrix_market(field: str, symmetry: str, dtype: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.mtx"
    text = MTX.format(field, symmetry)
    path.write_text(text.replace(" 5\n", "\n").replace(" 6\n", "\n") if dtype is None else text)
    graph = og.read_graph(path)
    assert graph.directed == (symmetry == "general")
    expected = {(2, 1): 5, (3, 2): 6} if dtype else {(2, 1): 1, (3, 2): 1}
    assert {(u, v): w for u, v, w in edges_of(graph) if u > v} == expected


def test_coordinates_decide_where_vertices_lie(tmp_path: Path) -> None:
    (tmp_path / "a.gr").write_text("p sp 4 1\na 1 4 1\n")
    (tmp_path / "a.co").write_text("c\np aux sp co 4\nv 1 0 0\nv 3 1 9\nv 2 9 9\nv 4 1 0\n")
    graph = og.read_graph(tmp_path / "a.gr", coordinates=tmp_path / "a.co")
    assert graph.ids[graph.position].tolist() == [1, 4, 3, 2]
    assert graph.coordinates["x"].tolist() == [0, 9, 1, 1]
    given = og.read_graph(tmp_path / "a.gr", coordinates=[(0, 0), (9, 9), (1, 9), (1, 0)])
    assert given.position.tolist() == graph.position.tolist()


def test_labels_of_networkx_and_of_tables_are_kept(tmp_path: Path) -> None:
    roads = nx.grid_2d_graph(2, 2)
    nx.set_edge_attributes(roads, 3, "length")
    graph = og.read_graph(roads, store=tmp_path / "a.zarr")
    assert graph.ids.tolist() == list(roads)
    paths = og.shortest_paths(graph, (0, 0))
    assert paths["cost"].sel(vertex=[(1, 1)]).item() == 6
    table = pd.DataFrame({"u": ["b", "a"], "v": ["c", "b"]})
    assert edges_of(og.read_graph(table, directed=True)) == [("b", "c", 1), ("a", "b", 1)]


def test_a_stored_graph_is_the_same(tmp_path: Path) -> None:
    tail, head, weight = random_edges(1, floats=True)
    where = np.random.default_rng(2).random((2, 60))
    kept = make_graph(
        tail, head, weight, np.arange(60), directed=False, coordinates=tuple(where), parts=4
    )
    matrix = sparse.coo_array((weight, (tail, head)), shape=(60, 60))
    path = tmp_path / "a.zarr"
    opened = og.read_graph(matrix, coordinates=where.T, directed=False, parts=4, store=path)
    for graph in (opened, og.read_graph(path)):
        assert (graph.bounds, graph.directed, graph.edge_count) == (kept.bounds, False, 150)
        for name, values in kept.arrays.items():
            np.testing.assert_array_equal(graph.arrays[name][:], values)
    with pytest.raises(og.StoreExistsError):
        og.read_graph(matrix, directed=True, store=path)


@pytest.mark.parametrize("parts", [1, 2, 7, 60])
def test_parts_have_about_as_many_arcs_each(parts: int) -> None:
    tail, head, weight = random_edges(3, m=600)
    graph = make_graph(tail, head, weight, np.arange(60), directed=True, parts=parts)
    assert graph.part_count == parts
    assert (np.diff(graph.bounds) >= 1).all()
    arcs = np.diff(graph.rows.indptr.astype(np.int64)[list(graph.bounds)])
    assert arcs.sum() == 600
    assert arcs.max() <= 600 / parts + 2 * np.diff(graph.rows.indptr.astype(int)).max()


REFUSED_FILES = {
    "cut short": ("a.gr", GR.rsplit("a", 1)[0], "line 2 says 5 edges, and there are 4; it is cut"),
    "a line cut short": ("a.gr", GR[:-3], r"line 7: 'a 1 3'; it must have 3 numbers.*cut short"),
    "a vertex beyond": (
        "a.gr",
        GR.replace("2 3 2", f"2 {2**40} 2"),
        rf"line 5: {2**40} is not a v",
    ),
    "no vertex 0": (
        "a.gr",
        GR.replace("2 3 2", "0 3 2"),
        "line 5: 0 is not a vertex; they are 1 to",
    ),
    "a word": ("a.gr", GR.replace("2 3 2", "2 x 2"), "line 5: 'a 2 x 2'; it must have 3 numbers"),
    "a NaN": ("a.gr", GR.replace("2 3 2", "2 3 nan"), r"edge 2 \(2 to 3\) has weight nan"),
    "no p line": ("a.gr", GR.replace("p sp", "c sp"), "no line begins with 'p'"),
    "an odd line": ("a.gr", GR + "e 1 2\n", "line 8: 'e 1 2'; lines begin with 'a', 'c' or 'p'"),
    "no header": ("a.mtx", "2 1\n3 1\n", "line 1: '2 1'; a Matrix Market file of a graph begins"),
    "not square": ("a.mtx", MTX.format("real", "general").replace("3 3 2", "3 4 2"), "a square"),
    "complex": ("a.mtx", MTX.format("complex", "general"), "it must be real, integer or pattern"),
    "no graph": ("a.txt", "1 2\n", "suffix '.txt'; known are .gr, .mtx"),
}


@pytest.mark.parametrize("name", REFUSED_FILES)
def test_refused_files(name: str, tmp_path: Path) -> None:
    file, text, message = REFUSED_FILES[name]
    (tmp_path / file).write_text(text)
    with pytest.raises(og.InputError, match=message):
        og.read_graph(tmp_path / file)


def test_a_packed_file_cut_short_is_refused(tmp_path: Path) -> None:
    for suffix, pack in ((".gz", gzip.compress), (".xz", lzma.compress)):
        path = tmp_path / f"a.gr{suffix}"
        path.write_bytes(pack(GR.encode())[:-10])
        with pytest.raises(og.InputError, match="end too early or are damaged"):
            og.read_graph(path)


def test_refused_sources(tmp_path: Path) -> None:
    matrix = sparse.eye_array(3)
    for source, arguments, message in (
        (matrix, {}, "directed: this source does not say"),
        (matrix, {"directed": True, "parts": 0}, "parts: 0; it must be a whole number, 1 to 3"),
        (matrix, {"directed": True, "coordinates": np.zeros((2, 2))}, r"coordinates: shape \(2, 2"),
        (sparse.eye_array(3, 4), {"directed": True}, r"source: shape \(3, 4\)"),
        (matrix * 2**60, {"directed": True}, None),
        (matrix.astype(np.int64) * 2**60, {"directed": True}, r"edge 0 \(0 to 0\) has weight"),
        (pd.DataFrame({"a": [1], "b": [2]}), {"directed": True}, "table with columns a, b"),
        (pd.DataFrame({"u": [1.0, np.nan], "v": [2, 3]}), {"directed": True}, "row 1: u is nan"),
        (3, {}, "source: int is not a graph"),
        (tmp_path / "no.gr", {}, "is neither a file nor a stored graph"),
    ):
        if message is None:
            og.read_graph(source, **arguments)
            continue
        with pytest.raises(og.InputError, match=message):
            og.read_graph(source, **arguments)
