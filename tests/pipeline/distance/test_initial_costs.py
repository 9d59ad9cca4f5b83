"""Initial costs of sources by their labels: as one run for each source says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import oracle_distance as oracle
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from cuda_on_cpu.emulator import Emulator

import orograph as og

ALL = ("cost", "back_direction", "allocation")
STARTS = {1: 30, 2: 0, 3: 7, 5: 400}
Array = np.ndarray[Any, Any]


def landscape() -> tuple[Array, Array]:
    """Whole frictions with barriers, and areas of five sources; 4 has no initial cost."""
    rng = np.random.default_rng(6)
    friction = 2.0 * rng.integers(1, 9, (24, 33))
    friction[rng.random(friction.shape) < 0.15] = np.nan
    sources = np.zeros(friction.shape, np.int16)
    for label, (y, x) in enumerate([(2, 3), (20, 30), (11, 15), (3, 28), (12, 16)], 1):
        sources[y : y + 2, x : x + 3] = label
    return friction, sources


@pytest.mark.diagonal
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
@pytest.mark.parametrize("tile", [5, 64])
def test_costs_by_label_are_the_least_of_one_run_for_each_source(tile: int, dtype: str) -> None:
    friction, sources = landscape()
    how = {"connectivity": 4, "cell_size": 1, "dtype": dtype, "tile": tile}
    found = og.cost_distance(friction, sources, initial_cost=STARTS, outputs=ALL, **how)
    alone = [
        og.cost_distance(
            friction, sources, source_values=[label], initial_cost=STARTS.get(label, 0), **how
        )["cost"].values
        for label in range(1, 6)
    ]
    large = np.where([field >= 0 for field in alone], alone, np.inf)
    least = large.min(axis=0)
    reached = np.isfinite(least)
    np.testing.assert_array_equal(found["cost"].values[reached], least[reached])
    assert not (found["cost"].values[~reached] >= 0).any()
    nearest = np.where(reached, large.argmin(axis=0) + 1, -1)
    np.testing.assert_array_equal(found["allocation"].values, nearest)
    # 5 lies beside 3, which reaches it at less
    assert (found["cost"].values[sources == 5] < 400)[~np.isnan(friction[sources == 5])].all()

    steps = oracle.list_steps(friction, connectivity=4)
    cells = [
        (y, x, int(sources[y, x]), STARTS.get(int(sources[y, x]), 0))
        for y, x in np.argwhere((sources > 0) & ~np.isnan(friction)).tolist()
    ]
    expected = oracle.heap_distance(steps, friction.shape, cells)
    np.testing.assert_array_equal(found["cost"].values[reached], expected[reached])
    path = og.least_cost_path(found, [(16, 12)])[0]
    assert sources[tuple(path.cells[-1])] == 3


def test_one_number_is_added_to_all() -> None:
    friction, sources = landscape()
    how = {"connectivity": 4, "cell_size": 1}
    plain = og.cost_distance(friction, sources, **how)["cost"].values
    later = og.cost_distance(friction, sources, initial_cost=5, **how)["cost"].values
    np.testing.assert_array_equal(later, plain + 5)


def test_points_and_areas_take_costs_by_label_too() -> None:
    geopandas = pytest.importorskip("geopandas", reason="GeoPandas is not installed")
    from shapely import box

    friction, sources = landscape()
    points = [(3, 2), (30, 20), (15, 11)]
    by_label = og.cost_distance(friction, points, initial_cost={0: 30, 2: 7}, snap=True)
    listed = og.cost_distance(friction, points, initial_cost=[30, 0, 7], snap=True)
    assert by_label.equals(listed)
    ground = xr.DataArray(
        friction, {"y": -np.arange(24.0), "x": np.arange(33.0)}, ("y", "x")
    ).rio.write_crs("EPSG:32633")
    boxes = [box(x - 0.4, -y - 1.4, x + 2.4, 0.4 - y) for x, y in points]
    frame = geopandas.GeoDataFrame({"name": [1, 2, 3]}, geometry=boxes, crs="EPSG:32633")
    areas = og.cost_distance(ground, frame, label="name", initial_cost={1: 30, 3: 7})
    drawn = np.where(np.isin(sources, [1, 2]), sources, 0)
    drawn[11:13, 15:18] = 3
    raster = og.cost_distance(ground, ground.copy(data=drawn), initial_cost={1: 30, 3: 7})
    np.testing.assert_array_equal(areas["cost"], raster["cost"])


def test_stored_sources_and_a_gpu(tmp_path: Path, emulated_gpu: Emulator) -> None:
    friction, sources = landscape()
    expected = og.cost_distance(friction, sources, initial_cost=STARTS, outputs=ALL)
    og.ingest(friction, tmp_path / "friction.zarr", tile=8)
    og.ingest(sources, tmp_path / "sources.zarr", tile=4)
    for backend in ("numba", "cuda"):
        found = og.cost_distance(
            tmp_path / "friction.zarr", tmp_path / "sources.zarr", initial_cost=STARTS,
            outputs=ALL, out=tmp_path / f"{backend}.zarr", backend=backend,
        )  # fmt: skip
        for name in ALL:
            np.testing.assert_array_equal(found[name].values, expected[name].values, name)
    assert emulated_gpu.launches > 0
