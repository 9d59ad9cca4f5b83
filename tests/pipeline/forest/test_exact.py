"""The forest of real terrain, against SciPy and against what TauDEM computed.

Every comparison is for equality: of the mask bit by bit, of the float64 total, of elevations.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import oracle_forest as oracle
import pytest
import rasterio
import xarray as xr
import zarr
from scipy.sparse import coo_array
from scipy.sparse.csgraph import (
    breadth_first_order,
    connected_components,
    minimum_spanning_tree,
)

import orograph as og

DEMS = {
    # name: (window or None for the whole, tile side: none of them divides its grid)
    "california_clipped_500x500": (None, 96),
    "med_01_01": (None, 128),
    "moon_5120x5120": ((slice(1000, 1900), slice(700, 1600)), 256),
    "nc_eno": (None, 200),
    "nc_fortbragg_2012": (None, 64),
    "nc_fortbragg_2016": (None, 451),
    "srtm_bigtujunga30m_utm11": (None, 256),
}
SMALLEST = "california_clipped_500x500"
USUAL = "max", 8
LARGER = ("med_01_01", "moon_5120x5120", "nc_eno", "srtm_bigtujunga30m_utm11")


def larger_ones_long(names: Iterable[str]) -> list[Any]:
    """As parameters, the larger rasters as long proofs."""
    return [pytest.param(n, marks=pytest.mark.long if n in LARGER else ()) for n in names]


@functools.lru_cache(maxsize=2)
def read(path: Path) -> tuple[np.ndarray, float | None]:
    with rasterio.open(path) as source:
        return source.read(1), source.nodata


def dem(folder: Path, name: str) -> tuple[np.ndarray, float | None]:
    elevation, nodata = read(folder / "dem" / f"{name}.tif")
    window = DEMS[name][0]
    return (elevation if window is None else elevation[window]), nodata


def assert_same(result: xr.Dataset, expected: oracle.Forest) -> None:
    mask = result["edges"].values
    assert mask.dtype == np.uint8
    assert mask.shape == expected.mask.shape
    different = np.argwhere(mask != expected.mask)
    assert different.size == 0, (
        f"{len(different)} cells differ, the first at {different[0].tolist()}"
    )
    found = {name: result.attrs[name] for name in COUNTS}
    assert found == {name: getattr(expected, name) for name in COUNTS}


COUNTS = ("total_weight", "vertex_count", "edge_count", "tree_count")


def cell_components(mask: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
    """Components of the cells under a mask's edges, and the ends of these edges."""
    first, second = oracle.ends_of(mask)
    graph = coo_array((np.ones(first.size, np.int8), (first, second)), shape=(mask.size, mask.size))
    count, _ = connected_components(graph, directed=False)
    return count, first, second


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("name", "weight", "connectivity"),
    [
        pytest.param(
            *(name, weight, connectivity),
            id=f"{name}-{weight}-{connectivity} neighbours",
            marks=[] if name == SMALLEST or (weight, connectivity) == USUAL else pytest.mark.long,
        )
        for name in DEMS
        for weight in oracle.WEIGHTS
        for connectivity in (4, 8)
    ],
)
def test_forest_of_a_real_dem_equals_kruskals(
    shared_data: Path, name: str, weight: str, connectivity: int
) -> None:
    elevation, nodata = dem(shared_data, name)
    result = og.minimum_spanning_forest(
        elevation, weight=weight, connectivity=connectivity, tile=DEMS[name][1], nodata=nodata
    )
    expected = oracle.minimum_spanning_forest(
        elevation, weight=weight, connectivity=connectivity, nodata=nodata
    )
    assert_same(result, expected)
    assert result.attrs["weight"] == weight
    assert result.attrs["connectivity"] == connectivity

    # A forest that spans, shown without the oracle: as many edges as vertices less components,
    # and no fewer components than the neighbourhood itself has.
    mask = result["edges"].values
    valid = oracle.valid_cells(elevation, nodata)
    count, first, second = cell_components(mask)
    assert valid.ravel()[first].all()
    assert valid.ravel()[second].all()
    assert first.size == mask.size - count, "the chosen edges close a cycle"
    assert count - (~valid).sum() == result.attrs["tree_count"]


@pytest.mark.parametrize("name", larger_ones_long(DEMS))
def test_total_weight_equals_scipys_on_shifted_weights(shared_data: Path, name: str) -> None:
    """The ready-made way, without ranks: shift all weights above zero, take SciPy's tree.

    Which of several equal edges SciPy takes is its own affair; the multiset of weights is not.
    """
    elevation, nodata = dem(shared_data, name)
    valid = oracle.valid_cells(elevation, nodata)
    edges = oracle.list_edges(elevation, valid, "max", 8)
    shift = 1.0 - math.floor(edges.weight.min())
    graph = coo_array(
        (edges.weight + shift, (edges.first, edges.second)), shape=(edges.size, edges.size)
    )
    tree = minimum_spanning_tree(graph.tocsr())
    # every shifted weight below is exact: integers, or float32 with room to spare in float64
    assert np.array_equal((edges.weight + shift) - shift, edges.weight)
    result = og.minimum_spanning_forest(elevation, tile=300, nodata=nodata)
    assert result.attrs["edge_count"] == tree.nnz
    assert result.attrs["total_weight"] == math.fsum((tree.data - shift).tolist())


@pytest.mark.long
def test_forest_of_the_moon_over_six_million_cells(shared_data: Path) -> None:
    elevation, nodata = read(shared_data / "dem" / "moon_5120x5120.tif")
    part = elevation[2560:, 2560:]
    result = og.minimum_spanning_forest(part, tile=1024, nodata=nodata)
    assert_same(result, oracle.minimum_spanning_forest(part, nodata=nodata))


STORED = {
    # name: (read from, tile, weight, connectivity); a task takes 16 by 16 tiles
    "california_clipped_500x500": ("file", 20, "max", 8),
    "med_01_01": ("store", 16, "absolute_difference", 8),
    "nc_eno": ("store", 28, "mean", 4),
    "nc_fortbragg_2012": ("file", 18, "absolute_difference", 4),
    "nc_fortbragg_2016": ("store", 25, "mean", 8),
    "srtm_bigtujunga30m_utm11": ("file", 24, "max", 4),
}


@pytest.mark.parametrize("name", larger_ones_long(STORED))
def test_forest_of_a_file_or_its_store_equals_kruskals_across_shards(
    shared_data: Path, tmp_path: Path, name: str
) -> None:
    """The nodata value comes from the file here; nobody tells it."""
    path = shared_data / "dem" / f"{name}.tif"
    kind, tile, weight, connectivity = STORED[name]
    how = {"weight": weight, "connectivity": connectivity}
    elevation, nodata = read(path)
    expected = oracle.minimum_spanning_forest(elevation, nodata=nodata, **how)
    out = tmp_path / "forest.zarr"
    source = path
    if kind == "store":
        source = tmp_path / "dem.zarr"
        og.ingest(path, source, tile=tile)
    result = og.minimum_spanning_forest(source, tile=tile, out=out, **how)
    assert_same(result, expected)
    assert_same(og.open(out), expected)
    shards = zarr.open_array(out / "edges", mode="r").shards
    assert shards[0] < elevation.shape[0], "only one row of shards"
    assert shards[1] < elevation.shape[1], "only one column of shards"


@pytest.mark.parametrize("name", ["med_01_01", "nc_eno"])
def test_minimax_elevations_over_the_forest_equal_taudems_filled_dem(
    shared_data: Path, name: str
) -> None:
    """A minimum spanning forest holds a minimax path between any two cells, and to the outside.

    Filling pits raises each cell to the lowest pass on its way out of the grid. The way out is
    an edge from each border cell to one outside vertex; the spanning tree of (forest and these
    edges) is that of (grid and these edges), so the forest alone must give TauDEM's answer.
    """
    elevation, nodata = read(shared_data / "dem" / f"{name}.tif")
    filled, _ = read(shared_data / "reference" / f"{name}_filled_taudem.tif")
    result = og.minimum_spanning_forest(elevation, tile=150, nodata=nodata)
    first, second = oracle.ends_of(result["edges"].values)

    z = elevation.astype(np.float64).ravel()
    outside = z.size
    on_border = np.ones(elevation.shape, bool)
    on_border[1:-1, 1:-1] = False
    exits = np.flatnonzero(on_border)
    u = np.concatenate([first, exits])
    v = np.concatenate([second, np.full(exits.size, outside)])
    weight = np.concatenate([np.maximum(z[first], z[second]), z[exits]])
    rank = np.empty(weight.size)
    rank[np.argsort(weight, kind="stable")] = np.arange(1, weight.size + 1)
    tree = minimum_spanning_tree(coo_array((rank, (u, v)), shape=(outside + 1,) * 2).tocsr())
    _, above = breadth_first_order(tree, outside, directed=False)

    # the maximum along the way to the outside, by doubling the length of the step
    highest = np.append(z, -np.inf)
    step = np.append(above[:outside], outside)
    while (step != outside).any():
        highest = np.maximum(highest, highest[step])
        step = step[step]
    difference = highest[:outside].reshape(elevation.shape) - filled
    assert np.abs(difference).max() == 0.0
    assert (filled > elevation).any(), "nothing was filled: this would prove nothing"
