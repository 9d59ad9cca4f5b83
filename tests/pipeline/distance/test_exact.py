"""Cost distance over real rasters, against SciPy, GRASS GIS and Esri's worked example.

Costs are equal to the bit wherever the cost of a step is written in one obvious way, and within
1e-12 of SciPy's elsewhere: three additions may be made in several orders, `exp` is rounded as the
library likes, and files give the sides of a cell with their own last bits.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import oracle_distance as oracle
import pytest
import rasterio
import xarray as xr
from any_model import distance

import orograph as og

ALL = ("cost", "back_direction", "allocation")
FRICTION = {
    # name: (window or None for the whole, tile side: none of them divides its grid)
    "cc_resistances": (None, 200),
    "lm_resistances": (None, 256),
    "nc_fortbragg_mannings": (None, 100),
    "nc_fortbragg_landcover": (None, 64),
}
LARGER = ("cc_resistances", "lm_resistances")
START = (597420.5, 150805.5)  # of GRASS' runs at Fort Bragg


@functools.lru_cache(maxsize=4)
def read(path: Path) -> tuple[np.ndarray, tuple[float, float]]:
    """A raster as float64, NaN where there are no data, and the (y, x) sides of its cells."""
    with rasterio.open(path) as source:
        cells = source.read(1)
        nodata, transform = source.nodata, source.transform
    grid = cells.astype(np.float64)
    if nodata is not None:
        grid[cells == cells.dtype.type(nodata)] = np.nan
    return grid, (-transform.e, transform.a)


def friction(folder: Path, name: str, corner: int | None = None) -> np.ndarray:
    return read(folder / "friction" / f"{name}.tif")[0][:corner, :corner]


def some_sources(valid: np.ndarray, count: int) -> list[oracle.Source]:
    """Valid cells strewn over the grid, labelled 0, 1, ..."""
    cells = np.argwhere(valid)
    chosen = cells[np.random.default_rng(3).permutation(len(cells))[:count]].tolist()
    return [(y, x, label, 0.0) for label, (y, x) in enumerate(chosen)]


def points(sources: list[oracle.Source]) -> list[tuple[int, int]]:
    return [(x, y) for y, x, _, _ in sources]


def assert_close(result: xr.Dataset, expected: oracle.Message, steps: list[oracle.Steps]) -> None:
    """Within 1e-12; who serves and the way back are held against the result's own costs."""
    cost = result["cost"].values
    np.testing.assert_array_equal(np.isnan(cost), np.isnan(expected.cost))
    np.testing.assert_allclose(cost, expected.cost, rtol=1e-12, atol=0)
    served = expected.allocation >= 0
    allocation, code = result["allocation"].values, result["back_direction"].values
    np.testing.assert_array_equal(allocation, expected.allocation)
    assert (code[~served] == oracle.UNREACHED).all()
    root, _, total = oracle.follow(code, steps, np.where(code == 0, cost, 0.0))
    np.testing.assert_array_equal(allocation.ravel()[root][served.ravel()], allocation[served])
    np.testing.assert_allclose(total[served.ravel()], cost[served], rtol=1e-12, atol=0)


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("name", "connectivity"),
    [
        pytest.param(
            *(name, connectivity),
            id=f"{name}-{connectivity} neighbours",
            marks=pytest.mark.long if name in LARGER and connectivity == 4 else (),
        )
        for name in FRICTION
        for connectivity in (4, 8)
    ],
)
def test_cost_counted_in_cells_has_the_bits_of_scipys_dijkstra(
    shared_data: Path, name: str, connectivity: int
) -> None:
    grid = friction(shared_data, name)
    sources = some_sources(np.isfinite(grid), 5)
    steps = oracle.list_steps(grid, connectivity=connectivity)
    expected = oracle.cost_distance(steps, grid.shape, sources)
    result = og.cost_distance(
        grid,
        points(sources),
        connectivity=connectivity,
        cell_size=1,
        outputs=ALL,
        tile=FRICTION[name][1],
    )
    cost, code = result["cost"].values, result["back_direction"].values
    np.testing.assert_array_equal(cost, expected.cost)
    np.testing.assert_array_equal(result["allocation"].values, expected.allocation)
    root, hops, total = oracle.follow(code, steps, np.where(code == 0, cost, np.nan))
    np.testing.assert_array_equal(hops[expected.hops.ravel() >= 0], expected.hops[served(expected)])
    np.testing.assert_array_equal(
        total.reshape(cost.shape)[served(expected)], cost[served(expected)]
    )
    labels = {y * grid.shape[1] + x: label for y, x, label, _ in sources}
    reached = np.array([labels.get(cell, -1) for cell in root.tolist()]).reshape(grid.shape)
    np.testing.assert_array_equal(reached, expected.allocation)
    counts = {
        "reached_cells": int(served(expected).sum()),
        "unreached_cells": int((np.isfinite(grid) & ~served(expected)).sum()),
        "nodata_cells": int(np.isnan(grid).sum()),
    }
    assert {name: result.attrs[name] for name in counts} == counts


def served(expected: oracle.Message) -> np.ndarray:
    return expected.hops >= 0


@pytest.mark.parametrize("name", FRICTION)
def test_knights_moves_equal_scipys_dijkstra(shared_data: Path, name: str) -> None:
    grid = friction(shared_data, name, 300)
    sources = some_sources(np.isfinite(grid), 3)
    steps = oracle.list_steps(grid, connectivity=16)
    expected = oracle.cost_distance(steps, grid.shape, sources)
    result = og.cost_distance(grid, points(sources), connectivity=16, outputs=ALL, tile=77)
    assert_close(result, expected, steps)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n in LARGER else ()) for n in FRICTION]
)
def test_a_file_gives_its_own_nodata_and_cell_sizes(
    shared_data: Path, tmp_path: Path, name: str
) -> None:
    """Points are in the file's coordinates; nearly half a cell off they mean the same."""
    path = shared_data / "friction" / f"{name}.tif"
    grid, sides = read(path)
    sources = some_sources(np.isfinite(grid), 2)
    with rasterio.open(path) as source:
        places = [source.xy(y, x) for y, x, _, _ in sources]
    steps = oracle.list_steps(grid, lengths=oracle.planar(sides))
    expected = oracle.cost_distance(steps, grid.shape, sources)
    shifted = [(x + 0.4 * sides[1], y - 0.4 * sides[0]) for x, y in places]
    result = og.cost_distance(path, shifted, outputs=ALL, tile=150, out=tmp_path / "cost.zarr")
    assert_close(result, expected, steps)


SLOPES = {
    "height differences": ("absolute_difference", "from", {}),
    "walking from the sources": ("walk", "from", {}),
    "walking to the sources": ("walk", "to", {}),
    "walking with other coefficients": ("walk", "from", {"lambda": 2.5, "a": 1.0, "b": 4.0}),
    "Tobler from the sources": ("tobler", "from", {}),
    "Tobler to the sources, slower": ("tobler", "to", {"pace": 0.9}),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("connectivity", [4, 8, 16], ids=lambda n: f"{n} neighbours")
@pytest.mark.parametrize("case", SLOPES)
def test_costs_of_slopes_equal_scipys_dijkstra(
    shared_data: Path, case: str, connectivity: int
) -> None:
    cost, travel, coefficients = SLOPES[case]
    corner = {4: 450, 8: 450, 16: 250}[connectivity]
    elevation = read(shared_data / "dem" / "nc_fortbragg_2016.tif")[0][:corner, :corner]
    mannings = friction(shared_data, "nc_fortbragg_mannings", corner)
    rasters = {"friction": None if cost == "absolute_difference" else mannings}
    sources = some_sources(np.isfinite(elevation), 3)
    steps = oracle.list_steps(
        rasters["friction"],
        elevation,
        cost=cost,
        connectivity=connectivity,
        travel=travel,
        coefficients=coefficients,
    )
    expected = oracle.cost_distance(steps, elevation.shape, sources)
    result = distance(
        rasters["friction"],
        points(sources),
        elevation=elevation,
        cost=cost,
        **({"coefficients": coefficients} if coefficients else {}),
        travel=travel,
        connectivity=connectivity,
        outputs=ALL,
        tile=123,
    )
    assert_close(result, expected, steps)


# --- what other programs computed ------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "connectivity", "cost"),
    [
        ("nc_fortbragg_rcost_8nbr", 8, "friction"),
        ("nc_fortbragg_rcost_knight", 16, "friction"),
        ("nc_fortbragg_rwalk_8nbr", 8, "walk"),
    ],
    ids=["r.cost", "r.cost -k", "r.walk"],
)
@pytest.mark.parametrize("tile", [53, 450])
def test_fort_bragg_equals_grass(
    shared_data: Path, reference: str, connectivity: int, cost: str, tile: int
) -> None:
    elevation = shared_data / "dem" / "nc_fortbragg_2016.tif"
    result = distance(
        shared_data / "friction" / "nc_fortbragg_mannings.tif",
        [START],
        elevation=elevation if cost == "walk" else None,
        cost=cost,
        connectivity=connectivity,
        tile=tile,
    )
    expected, _ = read(shared_data / "reference" / f"{reference}.tif")
    assert (expected > 0).sum() > 200_000
    np.testing.assert_allclose(result["cost"].values, expected, rtol=1e-12, atol=0)


def test_distance_from_a_habitat_core_equals_grass_in_cells(shared_data: Path) -> None:
    """Many cells are one source, chosen among six cores by `source_values`."""
    grid = friction(shared_data, "lm_resistances")
    cores, _ = read(shared_data / "reference" / "lm_cores_rasterised.tif")
    labels = np.where(np.isnan(cores), 0, cores).astype(np.int16)
    assert set(np.unique(labels)) == set(range(7))
    result = og.cost_distance(grid, labels, source_values=[1], cell_size=1, outputs=ALL, tile=190)
    expected, _ = read(shared_data / "reference" / "lm_cwd_from_core1.tif")
    np.testing.assert_allclose(result["cost"].values, expected, rtol=1e-12, atol=0)
    reached = np.isfinite(expected)
    np.testing.assert_array_equal(result["allocation"].values, np.where(reached, 1, -1))
    np.testing.assert_array_equal(result["back_direction"].values[labels == 1], 0)


@pytest.mark.parametrize("tile", [1, 2, 4, 6])
def test_esris_worked_example(shared_data: Path, tile: int) -> None:
    example = json.loads((shared_data / "reference" / "esri_cost_distance_6x6.json").read_text())
    result = og.cost_distance(
        np.array(example["cost"], np.int16),
        np.array(example["sources"], np.int16),
        nodata=example["cost_nodata"],
        outputs=ALL,
        tile=tile,
    )
    expected = np.array(example["cost_distance"])
    expected[expected < 0] = np.nan
    np.testing.assert_allclose(result["cost"].values, expected, rtol=0, atol=5e-9)
    nearest = np.array(example["allocation"])
    nearest[nearest == 0] = -1  # Esri's sign for no source
    np.testing.assert_array_equal(result["allocation"].values, nearest)
