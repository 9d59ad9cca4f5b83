"""Filled depressions are those of a priority flood, of TauDEM and of scikit-image, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import oracle_terrain as oracle
import pytest
import rasterio
import xarray as xr
from cuda_on_cpu.emulator import Emulator
from hypothesis import given
from hypothesis import strategies as st
from skimage.morphology import reconstruction
from terrain_cases import Case, cases, fractal, properties

import orograph as og

ALL = ("filled", "depth", "depression")
BOWL = np.array([[9, 9, 9, 9], [9, 2, 5, 7], [9, 9, 9, 9]], np.float32)


def assert_bits(found: Any, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    if expected.dtype.kind == "f":
        real = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found)[real], np.signbit(expected)[real])


@properties
@given(cases())
def test_any_tiling_fills_as_a_priority_flood_does(case: Case) -> None:
    result = og.fill_depressions(case.elevation, **case.how, **case.cut, outputs=ALL)
    filled, reached = oracle.flood(case.elevation, None, **case.how)
    assert np.array_equal(reached, case.valid)
    # a raised cell at height zero is 0.0, whichever zero its outlet has
    assert_bits(result["filled"].values, np.where(filled > case.elevation, filled + 0, filled))
    numbers, _ = oracle.depressions(case.elevation, filled, case.connectivity)
    np.testing.assert_array_equal(result["depression"], numbers)
    depth = np.full(case.elevation.shape, np.nan)
    depth[case.valid] = [
        oracle.difference(*both)
        for both in zip(filled[case.valid], case.elevation[case.valid], strict=True)
    ]
    np.testing.assert_array_equal(result["depth"], depth)


@properties
@given(cases(), st.integers(0, 2**16), st.booleans())
def test_outlets_are_where_they_are_said_to_be(case: Case, seed: int, as_raster: bool) -> None:
    cells = np.argwhere(case.valid)
    if not cells.size:
        return
    rng = np.random.default_rng(seed)
    chosen = [tuple(cell) for cell in rng.choice(cells, rng.integers(1, 4)).tolist()]
    outlets: Any = [(x, y) for y, x in chosen]
    if as_raster:
        outlets = np.zeros(case.elevation.shape, np.uint8)
        outlets[tuple(np.array(chosen).T)] = 7
        # what is marked on nodata does not count
        outlets[~case.valid] = rng.integers(0, 2)
    result = og.fill_depressions(case.elevation, outlets=outlets, **case.how, **case.cut)
    filled, _ = oracle.flood(case.elevation, chosen, **case.how)
    np.testing.assert_array_equal(result["filled"], filled)


@properties
@given(cases(), st.sampled_from([0, 1, 2.5, 8, 1e30]))
def test_deeper_depressions_stay(case: Case, most: float) -> None:
    result = og.fill_depressions(
        case.elevation, max_depth=most, outputs=ALL, **case.how, **case.cut
    )
    filled, _ = oracle.flood(case.elevation, None, **case.how)
    numbers, depths = oracle.depressions(case.elevation, filled, case.connectivity)
    deeper = np.isin(numbers, [n for n, depth in depths.items() if depth > most])
    np.testing.assert_array_equal(result["filled"], np.where(deeper, case.elevation, filled))
    np.testing.assert_array_equal(result["depression"], np.where(deeper, 0, numbers))


def test_depths_beyond_2_to_the_53_are_compared_exactly() -> None:
    heights = np.full((3, 3), 2**53 + 1)
    heights[1, 1] = 0
    for most, filled in ((2**53, 0), (2**53 + 2, 2**53 + 1)):
        assert og.fill_depressions(heights, max_depth=most)["filled"].values[1, 1] == filled


@pytest.mark.parametrize("name", ["nc_eno", "med_01_01"])
def test_a_real_raster_is_filled_as_taudem_fills_it(name: str, shared_data: Path) -> None:
    with rasterio.open(shared_data / f"reference/{name}_filled_taudem.tif") as source:
        expected = source.read(1)
        valid = source.dataset_mask() > 0
    filled = og.fill_depressions(shared_data / f"dem/{name}.tif", tile=128)["filled"].values
    assert valid.any()
    assert np.abs(filled[valid].astype(np.float64) - expected[valid]).max() == 0


@pytest.mark.parametrize("tile", [64, None])
def test_terrain_is_filled_as_scikit_image_reconstructs_it(tile: int | None) -> None:
    heights = fractal(300)
    seed = np.full_like(heights, heights.max())
    for line in ((0, slice(None)), (-1, slice(None)), (slice(None), 0), (slice(None), -1)):
        seed[line] = heights[line]
    expected = reconstruction(seed, heights, method="erosion", footprint=np.ones((3, 3)))
    filled = og.fill_depressions(heights, tile=tile)["filled"]
    assert (filled > heights).sum() > 1000
    np.testing.assert_array_equal(filled, expected.astype(np.float32))


def test_a_serpentine_is_filled_to_its_end() -> None:
    """One way through all of a grid, with an outlet at its end: no fixed number of sweeps do."""
    heights = np.full((241, 240), 100.0, np.float32)
    heights[1:-1:2, 1:-1] = np.random.default_rng(2).uniform(0, 90, (120, 238))
    for row in range(2, 239, 2):
        heights[row, -2 if row % 4 else 1] = 50
    heights[-2, 0] = 0
    expected, _ = oracle.flood(heights, None, 4)
    assert (expected < 100).sum() > 28_000
    in_8_chunks = da.from_array(heights, (31, 240))
    assert in_8_chunks.npartitions == 8
    for source, tile in ((heights, None), (heights, 30), (in_8_chunks, 120), (in_8_chunks, 31)):
        filled = og.fill_depressions(source, connectivity=4, tile=tile)["filled"].values
        assert (filled != expected).sum() == 0


def test_a_stored_raster_is_filled_by_a_cluster(tmp_path: Path) -> None:
    heights = fractal(90)
    heights[20:30, 40:60] = np.nan
    og.ingest(heights, tmp_path / "dem.zarr", tile=16, shard=32)
    expected = og.fill_depressions(heights, outputs=ALL, max_depth=30)
    with og.cluster(n_workers=2, dashboard_address=None) as client:
        found = og.fill_depressions(
            tmp_path / "dem.zarr",
            outputs=ALL,
            max_depth=30,
            out=tmp_path / "filled.zarr",
            client=client,
        )
        for name in ALL:
            np.testing.assert_array_equal(found[name], expected[name])
    assert np.isnan(found["filled"].encoding["_FillValue"])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "neighbours": ({"connectivity": 6}, "connectivity: 6 is unknown; use one of 4, 8"),
    "an unknown output": ({"outputs": ["filled", "flow"]}, "outputs: 'flow' is unknown"),
    "no output": ({"outputs": []}, "outputs: none; give at least one of filled"),
    "a negative depth": ({"max_depth": -1.0}, r"max_depth: -1.0; it must be a number, at least 0"),
    "no depth": ({"max_depth": np.nan}, "max_depth: nan"),
    "a depth in words": ({"max_depth": "deep"}, "max_depth: 'deep'"),
    "an outlet on nodata": (
        {"outlets": [(0, 0), (3, 1)], "nodata": 7},
        r"outlets: point 1 \(x=3, y=1\) lies on nodata; move it",
    ),
    "an outlet outside": ({"outlets": (9, 1)}, r"outlets: point 0 \(x=9, y=1\) lies outside"),
    "another grid": ({"outlets": np.ones((3, 5))}, "outlets: shape .* is neither that of the grid"),
    "no outlet": ({"outlets": np.zeros((3, 4))}, "outlets: the raster has no outlet"),
}


@pytest.mark.parametrize(("options", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_filled_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(og.InputError, match=says):
        og.fill_depressions(BOWL, **options)


@pytest.mark.parametrize("nodata", [None, 5.0])
def test_a_gpu_fills_alike_though_it_saves_no_labels(
    nodata: float | None, emulated_gpu: Emulator, tmp_path: Path
) -> None:
    heights = np.round(fractal(96)[:, :80] * 3).astype(np.float32)
    given: dict[str, Any] = {"nodata": nodata, "tile": 32}
    for operation, how in (
        (og.fill_depressions, {"outputs": ALL}),
        (og.flood_level, {"sources": [(0, 0)]}),
        (og.depressions, {"labels": True}),
    ):
        expected = operation(heights, **how, **given, backend="numba")
        launches = emulated_gpu.launches
        found = operation(
            heights, **how, **given, backend="cuda", out=tmp_path / operation.__name__
        )
        assert emulated_gpu.launches > launches
        xr.testing.assert_identical(
            found.drop_attrs(deep=False).load(), expected.drop_attrs(deep=False)
        )


def test_a_plan_tells_what_is_written(tmp_path: Path) -> None:
    heights = fractal(256)
    plan = og.fill_depressions.plan(heights, tile=32, outputs=ALL)
    assert plan.bytes_written == heights.size * 20
    assert plan.bytes_read == 2 * heights.nbytes
    assert plan.memory_total > og.fill_depressions.plan(heights, pits=0).memory_total
    run = og.fill_depressions.submit(heights, tile=32, out=tmp_path / "f")
    run.result()
    assert run.progress().total == 2 * 1 + 0  # a shard: up and down
    with pytest.raises(og.InputError, match="pits: -1; it must be a whole number, 0 to 65536"):
        og.fill_depressions.plan(heights, pits=-1)
