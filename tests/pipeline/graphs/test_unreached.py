"""What stands for "no path": -1 with ``_FillValue`` in integers, infinity in floats."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from oracle_graph import least_matrix, random_edges
from scipy.sparse import csgraph

import orograph as og
from orograph.tiles.graph import graph as graph_module
from orograph.tiles.graph.graph import make_graph

N = 60
EDGES = random_edges(7, N, 80)
EXPECTED = csgraph.dijkstra(least_matrix(N, *EDGES), indices=[0, 7])
GUIDE = Path(__file__).resolve().parents[3] / "docs/guides/graphs.md"


def as_xarray_decodes(found: xr.DataArray) -> np.ndarray:
    return xr.decode_cf(found.to_dataset(name="a"))["a"].values


@pytest.mark.diagonal
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("dtype", ["int64", "float64"])
@pytest.mark.parametrize("where", ["memory", "store"])
def test_shortest_paths_and_hops_say_where_there_is_no_path(
    parts: int, dtype: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_module, "JOINED_ARCS", 0)
    assert np.isinf(EXPECTED).sum() > 40
    weight = EDGES[2].astype(dtype)
    graph = make_graph(*EDGES[:2], weight, np.arange(N), directed=True, parts=parts)
    out: dict[str, Any] = {"out": tmp_path / "a.zarr"} if where == "store" else {}
    cost = og.shortest_paths(graph, [0, 7], **out)["cost"]
    none = -1 if dtype == "int64" else np.inf
    np.testing.assert_array_equal(cost, np.where(np.isinf(EXPECTED), none, EXPECTED))
    if dtype == "int64":
        assert cost.attrs["_FillValue"] == -1
        decoded = as_xarray_decodes(cost)
        np.testing.assert_array_equal(np.isnan(decoded), np.isinf(EXPECTED))
    else:
        assert "_FillValue" not in cost.attrs
    out = {"out": tmp_path / "b.zarr"} if out else {}
    hops = og.hop_distance(graph, [0], **out)["hops"]
    np.testing.assert_array_equal(hops.values < 0, np.isinf(EXPECTED[0]))
    assert hops.attrs["_FillValue"] == hops.values.min() == -1


def test_a_cost_of_minus_one_is_not_unreached() -> None:
    table = pd.DataFrame({"source": [0, 1, 3], "target": [1, 2, 2], "weight": [4, -5, 1]})
    graph = og.read_graph(table, directed=True)
    for name, found in (
        ("cost", og.shortest_paths(graph, 0, predecessors=True)),
        ("distance", og.all_pairs(graph, sources=0, dtype="int64", predecessors=True)),
        ("distance", og.all_pairs(graph, dtype="int64", predecessors=True)),
    ):
        assert found[name].values[0].tolist() == [0, 4, -1, 2**60]
        assert found[name].attrs["_FillValue"] == 2**60
        assert found["predecessor"].attrs["_FillValue"] == -9999


@pytest.mark.parametrize("method", ["floyd-warshall", "squaring", "dijkstra"])
def test_all_pairs_say_where_there_is_no_path(method: str, tmp_path: Path) -> None:
    matrix = least_matrix(N, *EDGES)
    expected = np.where(np.isinf(EXPECTED), -1, EXPECTED)
    for options in ({}, {"out": tmp_path / "a.zarr", "tile": 32}):
        found = og.all_pairs(matrix, dtype="int64", method=method, **options)["distance"]
        np.testing.assert_array_equal(found.values[[0, 7]], expected)
        assert found.attrs["_FillValue"] == -1
    rows = og.all_pairs(matrix, dtype="int64", sources=[0, 7])["distance"]
    np.testing.assert_array_equal(rows, expected)
    assert rows.attrs["_FillValue"] == -1


def test_hops_on_a_raster_and_index_tables_say_it_too(tmp_path: Path) -> None:
    mask = np.array([[1, 0, 1], [1, 0, 1]], np.uint8)
    for options in ({}, {"out": tmp_path / "hops.zarr"}):
        hops = og.hop_distance(mask, [(0, 0)], **options)["hops"]
        assert hops.values.tolist() == [[0, -1, -1], [1, -1, -1]]
        assert hops.attrs["_FillValue"] == -1
    places = [(0, 0), (2, 0)]
    for dtype, none in (("int64", -1), ("float64", np.inf)):
        index = og.DistanceIndex.build(
            np.array([[2, 0, 2], [2, 0, 2]], dtype), tmp_path / f"{dtype}.zarr", dtype=dtype,
            connectivity=4, cell_size=1, nodata=0,
        )  # fmt: skip
        for found in (index.distance_matrix(places), index.nearest(places)["cost"]):
            assert (found.values == none).any()
            assert found.attrs.get("_FillValue", np.inf) == none
    reach = og.is_connected(mask, (0, 0), (2, 0))
    assert reach.hops is not None
    assert reach.hops.tolist() == [-1]
    graph = make_graph(*EDGES, np.arange(N), directed=True)
    reach = og.is_connected(graph, 0, np.arange(N).tolist())
    assert reach.hops is not None
    np.testing.assert_array_equal(reach.hops < 0, np.isinf(EXPECTED[0]))


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_the_line_of_the_guide_finds_what_is_reached(dtype: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    (lines,) = (block for block in blocks if "found = og.shortest_paths(roads, start, p" in block)
    lines = lines.partition("\n")[2]  # without the choice of a place
    roads = make_graph(*EDGES[:2], EDGES[2].astype(dtype), np.arange(N), directed=True)
    names: dict[str, Any] = {"np": np, "og": og, "roads": roads, "start": 0}
    exec(lines, names)
    reached = np.flatnonzero(np.isfinite(EXPECTED[0]))
    assert reached.size > 5
    assert names["reached"]["vertex"].values.tolist() == reached.tolist()
    assert EXPECTED[0][names["far"]] == EXPECTED[0][reached].max()
