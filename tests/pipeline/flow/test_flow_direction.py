"""Water takes the steepest step, and over a flat the fewest to where it drains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flow_of_peers
import numpy as np
import oracle_flow as oracle
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_breach import breach
from oracle_forest import valid_cells
from pyproj import CRS
from terrain_cases import Case, cases, fractal, properties

import orograph as og
from orograph.arguments.settings import config

ENCODINGS = st.sampled_from(tuple(oracle.CODES))
SIDES = st.sampled_from([(1.0, 1.0), (3.0, 1.0), (0.25, 30.0)])


@settings(properties, max_examples=40)
@given(cases(), ENCODINGS, SIDES, st.booleans())
def test_any_tiling_gives_the_directions_of_plain_loops(
    case: Case, encoding: str, size: tuple[float, float], fill: bool
) -> None:
    result = og.flow_direction(
        case.elevation,
        depressions="fill" if fill else "keep",
        codes=encoding,
        cell_size=size,
        nodata=case.nodata,
        **case.cut,
    )
    surface = case.elevation
    if fill:
        surface = og.fill_depressions(surface, nodata=case.nodata)["filled"].values
    step, leaves = oracle.directions(surface, case.valid, size)
    expected = oracle.encode(step, leaves, case.valid, encoding)
    np.testing.assert_array_equal(result["direction"].values.astype(int), expected)
    assert result.attrs["sink_count"] == int((case.valid & (step == 8)).sum())
    if fill:
        assert result.attrs["sink_count"] == 0


@settings(properties, max_examples=30)
@given(cases(), st.sampled_from([1, 3, 64]), st.sampled_from([None, 0, 30]))
def test_breached_then_filled_as_plain_loops_do(
    case: Case, length: int, depth: float | None
) -> None:
    elevation = case.elevation
    if elevation.dtype.itemsize == 8 and elevation.dtype.kind != "f":
        elevation = elevation.astype(np.int64) % 500
    valid = valid_cells(elevation, case.nodata)
    result = og.flow_direction(
        elevation,
        depressions="breach",
        max_length=length,
        max_depth=depth,
        nodata=case.nodata,
        **case.cut,
    )
    surface = breach(elevation, valid, length, np.inf if depth is None else depth)
    surface = og.fill_depressions(surface)["filled"].values
    step, leaves = oracle.directions(surface, valid)
    expected = oracle.encode(step, leaves, valid, "taudem")
    np.testing.assert_array_equal(result["direction"].values.astype(int), expected)
    assert result.attrs["sink_count"] == 0


@settings(properties, max_examples=40)
@given(cases(), SIDES, st.sampled_from(["fill", "keep", "breach"]))
def test_gradients_over_flats_are_those_of_plain_loops(
    case: Case, size: tuple[float, float], depressions: str
) -> None:
    elevation, valid = case.elevation, case.valid
    if depressions == "breach":
        wide = elevation.dtype.itemsize == 8 and elevation.dtype.kind != "f"
        elevation = elevation.astype(np.int64) % 500 if wide else elevation
        valid = valid_cells(elevation, case.nodata)
    how = {"depressions": depressions, "cell_size": size, "nodata": case.nodata}
    result = og.flow_direction(elevation, flats="gradient", **how, **case.cut)
    surface = elevation
    if depressions == "breach":
        surface = breach(elevation, valid, 64, np.inf)
    if depressions != "keep":
        nodata = None if depressions == "breach" else case.nodata
        surface = og.fill_depressions(surface, nodata=nodata)["filled"].values
    step, leaves = oracle.with_gradients(surface, valid, size)
    expected = oracle.encode(step, leaves, valid, "taudem")
    np.testing.assert_array_equal(result["direction"].values.astype(int), expected)
    assert result.attrs["sink_count"] == int((valid & (step == 8)).sum())


@pytest.mark.diagonal
@pytest.mark.parametrize("field", [0, 64])
@pytest.mark.parametrize("cut", [{}, {"tile": 8, "shard": 32}, {"tile": 32}])
def test_gradients_over_large_flats(field: int, cut: dict[str, int], tmp_path: Path) -> None:
    heights = np.round(fractal(100) / 60).astype(np.int16)
    valid = np.ones(heights.shape, bool)
    surface = og.fill_depressions(heights)["filled"].values
    step, leaves = oracle.with_gradients(surface, valid)
    assert (step != oracle.directions(surface, valid)[0]).mean() > 0.05
    expected = oracle.encode(step, leaves, valid, "taudem")
    with config.set(field=field):
        found = og.flow_direction(heights, flats="gradient", **cut)
        stored = og.flow_direction(heights, flats="gradient", out=tmp_path / "flow.zarr", **cut)
    np.testing.assert_array_equal(found["direction"], expected)
    np.testing.assert_array_equal(stored["direction"], expected)
    assert not list((tmp_path / "flow.zarr").glob("**/away*"))


def test_steps_go_down_the_mask_of_the_published_algorithm() -> None:
    """The mask of a bowl with one outlet, as a test of another implementation of it has it."""
    bowl = np.zeros((7, 7), int)
    bowl[[0, -1]] = bowl[:, [0, -1]] = 1
    bowl[6, 2] = -1
    mask = np.full((7, 7), 99)
    mask[1:6, 1:6] = [
        [12, 12, 12, 12, 12],
        [10, 9, 9, 9, 10],
        [8, 7, 6, 7, 8],
        [6, 5, 5, 5, 8],
        [2, 2, 2, 6, 8],
    ]
    found = og.flow_direction(bowl, flats="gradient", depressions="keep")["direction"].values
    assert found[5, 1:4].tolist() == [8, 7, 6]
    for y, x in np.argwhere((mask > 2) & (mask < 99)).tolist():
        around = [int(mask[y + dy, x + dx]) for dy, dx in oracle.STEPS]
        assert found[y, x] == 1 + around.index(min(around))


def test_gradients_lead_the_water_of_a_valley_to_its_middle() -> None:
    valley = np.full((9, 30), 9)
    valley[1:8, 1:] = 5
    valley[4, 29] = 4
    found = og.flow_direction(valley, flats="gradient", depressions="keep")["direction"].values
    # two flats apart from the edge: by the fewest steps water would go straight or aslant
    assert (found[4, 4:27] == 1).all()
    assert np.isin(found[2:4, 3:22], (7, 8)).all()
    assert np.isin(found[5:7, 3:22], (2, 3)).all()


@pytest.mark.parametrize("tile", [16, 64])
def test_a_flat_over_many_tiles_drains_by_the_fewest_steps(tile: int) -> None:
    rng = np.random.default_rng(5)
    flat = np.where(rng.random((90, 110)) < 0.35, 9, 2).astype(np.int16)
    flat[0] = flat[-1] = flat[:, 0] = flat[:, -1] = 9
    flat[40, 0] = 1
    step, leaves = oracle.directions(flat, np.ones(flat.shape, bool))
    expected = oracle.encode(step, leaves, np.ones(flat.shape, bool), "taudem")
    found = og.flow_direction(flat, depressions="keep", tile=tile)["direction"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.diagonal
@pytest.mark.parametrize("depressions", ["fill", "breach"])
@pytest.mark.parametrize("field", [0, 64])
def test_a_store_and_an_array_have_the_same_directions(
    field: int, depressions: str, tmp_path: Path
) -> None:
    heights = np.round(fractal(150), -1)
    og.ingest(heights, tmp_path / "dem.zarr", tile=16, shard=32)
    how = {"depressions": depressions}
    with config.set(field=field):
        stored = og.flow_direction(tmp_path / "dem.zarr", out=tmp_path / "flow.zarr", **how)
    expected = og.flow_direction(heights, **how)
    np.testing.assert_array_equal(stored["direction"], expected["direction"])
    assert stored["direction"].attrs["flow_codes"] == "taudem"
    assert stored.attrs == expected.attrs
    assert sorted(stored.data_vars) == ["direction"]
    assert not (tmp_path / "flow.zarr.partial").exists()
    assert not list((tmp_path / "flow.zarr").glob("**/filled*"))
    assert not list((tmp_path / "flow.zarr").glob("**/breached*"))


def test_cells_of_a_geographic_grid_are_as_wide_as_their_latitude_makes_them() -> None:
    # towards the east one falls by 5, towards the south by 6: at 75 degrees a cell is four times
    # as high as wide
    heights = np.array([[9.0, 9, 9], [9, 8, 3], [9, 2, 9]])
    raster = xr.DataArray(
        heights, {"lat": [75.1, 75.0, 74.9], "lon": [5.0, 5.1, 5.2]}, ("lat", "lon")
    )
    raster = raster.assign_coords(
        spatial_ref=xr.DataArray(0, attrs={"crs_wkt": CRS("EPSG:4326").to_wkt()})
    )
    assert og.flow_direction(raster)["direction"].values[1, 1] == 1
    assert og.flow_direction(heights)["direction"].values[1, 1] == 7


def test_slopes_that_underflow_lead_down_all_the_same() -> None:
    least = np.nextafter(0.0, 1)
    heights = np.array([[1.0, 1, 1, 1], [1, least, 0, 1], [1, 1, 1, 1]])
    found = og.flow_direction(heights, depressions="keep", cell_size=1e9)["direction"].values
    assert found[1].tolist() == [1, 1, 0, 5]


@pytest.mark.parametrize("tile", [1, 3, 8])
def test_flats_of_the_greatest_height_beside_nodata(tile: int) -> None:
    for seed in range(0, 20, 5 if tile == 1 else 1):  # 775 tiles take a second
        rng = np.random.default_rng(seed)
        heights = np.where(rng.random((25, 31)) < 0.02 * seed, 0, 255).astype(np.uint8)
        step, leaves = oracle.directions(heights, heights > 0)
        found = og.flow_direction(heights, nodata=0, depressions="keep", tile=tile)
        expected = oracle.encode(step, leaves, heights > 0, "taudem")
        np.testing.assert_array_equal(found["direction"], expected)


def test_directions_of_pysheds_where_one_slope_is_the_steepest() -> None:
    heights, theirs = flow_of_peers.steep_heights(), np.load(flow_of_peers.RECORD)["directions"]
    ours = og.flow_direction(heights, depressions="keep", codes="esri")["direction"].values
    inner = np.s_[1:-1, 1:-1]
    known = theirs[inner] > 0
    assert known.mean() > 0.8
    np.testing.assert_array_equal(ours[inner][known], theirs[inner][known])
    assert not ours[inner][~known].any()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "depressions": ({"depressions": "carve"}, "depressions: 'carve' is unknown"),
    "length": ({"max_length": 9}, "max_length: of no use for depressions='fill'; leave it out"),
    "depth": ({"depressions": "keep", "max_depth": 0}, "max_depth: of no use for depressions='ke"),
    "no length": ({"depressions": "breach", "max_length": 0}, "max_length: 0; it must be a whole"),
    "flats": ({"flats": "steepest"}, "flats: 'steepest' is unknown"),
    "codes": ({"codes": "d8"}, "codes: 'd8' is unknown; use .*taudem"),
    "neighbours": ({"cell_size": 0}, "cell_size: 0; give one side"),
    "long steps": ({"cell_size": 1.7e308}, "cell_size: the longest step is inf"),
}


@pytest.mark.parametrize(("options", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_what_has_no_directions_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(og.InputError, match=says):
        og.flow_direction(np.eye(3), **options)
