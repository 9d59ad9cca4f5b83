"""All that falls passes the cells below it, exactly, whatever the tiling."""

from __future__ import annotations

from fractions import Fraction
from inspect import signature
from itertools import count
from pathlib import Path
from typing import Any

import flow_of_peers
import numpy as np
import oracle_flow as oracle
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from pyproj import CRS, Geod
from terrain_cases import Case, cases, fractal, properties

import orograph as og
from orograph.flow.accumulation import Accumulation
from orograph.flow.directions import Directions
from orograph.terrain.water import WaterLevel

KINDS = st.sampled_from(["cells", "whole", "tiny", "large"])


@settings(properties, max_examples=50)
@given(cases(), KINDS, st.sampled_from(tuple(oracle.CODES)), st.booleans())
def test_any_tiling_gives_the_sums_of_plain_loops(
    case: Case, kind: str, encoding: str, fill: bool
) -> None:
    step, leaves = oracle.directions(case.elevation, case.valid)
    if fill:
        filled = og.fill_depressions(case.elevation, nodata=case.nodata)["filled"].values
        step, leaves = oracle.directions(filled, case.valid)
    codes = oracle.encode(step, leaves, case.valid, encoding)
    rng = np.random.default_rng(case.elevation.size)
    weights = {
        "cells": None,
        "whole": rng.integers(0, 100, step.shape).astype(np.uint16),
        "tiny": rng.random(step.shape) * 1e-9,
        "large": (rng.random(step.shape) * 1e12).astype(np.float32),
    }[kind]
    result = og.flow_accumulation(
        codes.astype(np.int16), weights=weights, codes=encoding, **case.cut
    )["accumulation"]
    if kind in ("cells", "whole"):
        fell = np.ones(step.shape, int) if weights is None else weights.astype(int)
        expected = oracle.accumulate(step, leaves, fell)
        assert result.dtype == np.int64
        expected[~case.valid] = -1
    else:
        # multiples of 2**-62, added as fractions
        exact = [Fraction(round(Fraction(float(w)) * 2**62), 2**62) for w in weights.ravel()]
        sums = oracle.accumulate(step, leaves, np.array(exact, object).reshape(step.shape))
        whole = [int(n) + float((n - int(n)) * 2**62) * 2.0**-62 for n in sums.ravel()]
        expected = np.where(case.valid, np.array(whole).reshape(step.shape), np.nan)
        assert result.dtype == np.float64
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("tile", [5, 64])
def test_all_water_of_a_serpentine_comes_out_at_its_end(tile: int) -> None:
    """A way that crosses every border of tiles many times."""
    surface = np.full((61, 80), np.nan)
    surface[::2] = 1
    surface[1::4, -1] = surface[3::4, 0] = 1
    cells = int(np.isfinite(surface).sum())
    # from the first cell to the last along the way
    distance = og.hop_distance(np.isfinite(surface), [(0, 0)], connectivity=4)["hops"].values
    surface = np.where(distance >= 0, 1e4 - distance, np.nan)
    flow = og.flow_direction(surface, depressions="keep", tile=tile)
    count = og.flow_accumulation(flow, tile=tile)["accumulation"].values
    assert count.max() == cells
    assert count[distance == distance.max()] == cells
    beyond = og.flow_accumulation(flow, weights=np.ones(surface.shape), tile=tile)
    np.testing.assert_array_equal(beyond["accumulation"].values, np.where(count > 0, count, np.nan))


@pytest.mark.parametrize("noise", [False, True])
def test_what_leaves_is_what_fell(noise: bool) -> None:
    heights = fractal(120)
    if noise:
        heights = np.random.default_rng(2).integers(0, 4, heights.shape)
    for depressions in ("fill", "keep"):
        flow = og.flow_direction(heights, depressions=depressions, codes="ldd", tile=32)
        count = og.flow_accumulation(flow, tile=16)["accumulation"].values
        ends = flow["direction"].values == 5
        assert count[ends].sum() == heights.size
        edge = np.ones(heights.shape, bool)
        edge[1:-1, 1:-1] = False
        assert depressions == "keep" or not (ends & ~edge).any()


@settings(properties, max_examples=30)
@given(cases(), st.booleans(), st.sampled_from([1.0, (2.0, 0.5)]))
def test_heights_have_the_sums_of_their_directions(
    case: Case, weighted: bool, size: float | tuple[float, float]
) -> None:
    weights = np.random.default_rng(5).random(case.elevation.shape) if weighted else None
    with_size: dict[str, Any] = {"nodata": case.nodata, "cell_size": size}
    codes = og.flow_direction(case.elevation, **with_size)
    expected = og.flow_accumulation(codes, weights=weights)
    found = og.flow_accumulation(
        case.elevation, method="d8", weights=weights, **with_size, **case.cut
    )
    xr.testing.assert_identical(found.drop_attrs(), expected.drop_attrs())


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("problem", "method"),
    [(WaterLevel, "leaf"), (WaterLevel, "finish"), (Directions, "finish"), (Accumulation, "leaf")],
)
def test_a_run_that_fails_in_any_stage_goes_on_from_there(
    problem: type, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heights, weights = fractal(100), fractal(100) + 1
    options: dict[str, Any] = {"method": "d8", "weights": weights, "tile": 16}
    expected = og.flow_accumulation(heights, **options)
    options |= {"shard": 32, "out": tmp_path / "sums.zarr"}
    whole, calls = getattr(problem, method), count()

    def fail(*args: Any) -> Any:
        if next(calls) == 20:
            raise ZeroDivisionError
        return whole(*args)

    monkeypatch.setattr(problem, method, fail)
    with pytest.raises(og.RunError, match="ZeroDivisionError"):
        og.flow_accumulation(heights, **options)
    found = og.flow_accumulation(heights, **options, resume=True)
    xr.testing.assert_identical(found.load(), expected)
    assert [path.name for path in tmp_path.iterdir()] == ["sums.zarr"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"method": "d8", "codes": "esri"}, "codes: heights have none"),
        ({"codes": "esri", "cell_size": 2}, "cell_size: 2; only heights need it"),
    ],
)
def test_what_only_heights_or_only_directions_have_is_refused(
    more: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(og.InputError, match=sentence):
        og.flow_accumulation(GOOD, **more)


def test_directions_are_not_taken_for_heights() -> None:
    with pytest.raises(og.InputError, match="method: the raster holds directions"):
        og.flow_accumulation(og.flow_direction(fractal(9)), method="d8")


def test_areas_of_a_geographic_grid_are_those_of_the_ellipsoid() -> None:
    crs = xr.DataArray(0, attrs={"crs_wkt": CRS("EPSG:4326").to_wkt()})
    place = {"lat": [60.5, 59.5, 58.5], "lon": [5.0, 6.0]}
    codes = xr.DataArray(np.full((3, 2), 7, np.uint8), place, ("lat", "lon"))
    found = og.flow_accumulation(
        codes.assign_coords(spatial_ref=crs), weights="area", codes="taudem", tile=1
    )["accumulation"]
    lons, lats = [0, 1, 1, 0], [58, 58, 61, 61]
    area = abs(Geod(ellps="WGS84").polygon_area_perimeter(lons, lats)[0])
    np.testing.assert_allclose(found[-1], area, rtol=1e-4)
    assert found.attrs["units"] == "m²"


@pytest.mark.parametrize(
    "parts",
    [
        (1.0, 0.5, 2.0**-53, 2.0**-62),
        (2.0**53, 1.0, 2.0**-62),
        (2.0**61, 2.0**61),
        (2.0**62,),
        (2.0**59, 2.0**6, 2.0**-62),
    ],
)
def test_a_sum_is_rounded_once(parts: tuple[float, ...]) -> None:
    codes = np.full((1, len(parts)), 1, np.uint8)
    found = og.flow_accumulation(codes, weights=np.array([parts]), codes="taudem", tile=2)
    assert found["accumulation"].values[0, -1] == float(sum(map(Fraction, parts)))


def test_areas_that_could_add_up_to_too_much_are_refused() -> None:
    codes = xr.DataArray(np.ones((2, 2), np.uint8), {"y": [1e10, 0], "x": [0, 1e10]}, ("y", "x"))
    with pytest.raises(og.InputError, match=r"direction: cells of up to 1e\+20 .*, of which 4"):
        og.flow_accumulation(codes, weights="area", codes="taudem")


def test_nodata_between_codes_is_none_of_them() -> None:
    codes = np.array([[1, 0]], np.float32)
    found = og.flow_accumulation(codes, codes="taudem", nodata=0.5)
    assert found["accumulation"].values.tolist() == [[1, 2]]


@pytest.mark.parametrize("stated", [["taudem"], {}, 3, "d8"])
def test_an_attribute_that_names_no_encoding_is_left_aside(stated: object) -> None:
    codes = xr.DataArray(GOOD, dims=("y", "x"), attrs={"flow_codes": stated})
    with pytest.raises(og.InputError, match="codes: the directions do not say theirs"):
        og.flow_accumulation(codes)


READ_DIRECTIONS = {
    "flow_accumulation": (),
    "flow_distance": (),
    "downstream": (np.ones((4, 5)),),
    "upstream": (np.ones((4, 5)),),
    "upstream_length": (),
    "watersheds": ([(1, 1)],),
    "streams": (np.ones((4, 5)), 2),
    "height_above_drainage": (np.ones((4, 5)), np.ones((4, 5))),
}


def test_heights_in_place_of_directions_are_told_by_their_values(tmp_path: Path) -> None:
    found = {
        name
        for name in og.__all__
        if "codes" in getattr(getattr(og, name), "__signature__", signature(print)).parameters
    }
    assert found - {"flow_direction", "drainage_network"} == set(READ_DIRECTIONS)
    heights = np.linspace(250, 2295, 20).reshape(4, 5)
    og.to_geotiff(xr.DataArray(heights, dims=("y", "x")), tmp_path / "dem.tif")
    told = r"^direction: .*250 to 2295, are not codes of directions; .*og\.flow_direction"
    for name, others in READ_DIRECTIONS.items():
        place = [p.name for p in getattr(og, name).own].index("direction")
        for raster in (heights, heights.astype("int16"), tmp_path / "dem.tif"):
            with pytest.raises(og.InputError, match=told):
                getattr(og, name)(*others[:place], raster, *others[place:])
    codes = np.full((4, 5), 3.0)  # of a file of floats
    with pytest.raises(og.InputError, match="codes: the directions do not say theirs"):
        og.flow_accumulation(codes)


def test_a_store_and_an_array_have_the_same_sums(tmp_path: Path) -> None:
    heights = fractal(100)
    flow = og.flow_direction(heights, tile=16, shard=32, out=tmp_path / "flow.zarr")
    weights = np.random.default_rng(0).random(heights.shape)
    expected = og.flow_accumulation(og.flow_direction(heights), weights=weights)
    found = og.flow_accumulation(flow, weights=weights, out=tmp_path / "sum.zarr")
    np.testing.assert_array_equal(found["accumulation"], expected["accumulation"])
    by_path = og.flow_accumulation(tmp_path / "flow.zarr", weights=weights)
    np.testing.assert_array_equal(by_path["accumulation"], expected["accumulation"])


def test_sums_of_pyflwdir() -> None:
    pyflwdir = pytest.importorskip("pyflwdir")
    esri = flow_of_peers.esri_codes()
    network = pyflwdir.from_array(esri, ftype="d8")
    found = og.flow_accumulation(esri, codes="esri", tile=32)["accumulation"]
    np.testing.assert_array_equal(found, network.upstream_area("cell"))
    weights = np.random.default_rng(1).random(esri.shape)
    found = og.flow_accumulation(esri, weights=weights, codes="esri", tile=32)["accumulation"]
    np.testing.assert_allclose(found, network.accuflux(weights), rtol=1e-10)


def test_sums_of_pysheds() -> None:
    recorded = np.load(flow_of_peers.RECORD)
    found = og.flow_accumulation(recorded["codes"], codes="esri", tile=32)
    np.testing.assert_array_equal(found["accumulation"], recorded["sums"])


@pytest.mark.long
def test_the_record_is_what_pysheds_gives() -> None:
    pytest.importorskip("pysheds.sgrid")
    recorded = np.load(flow_of_peers.RECORD)
    np.testing.assert_array_equal(recorded["codes"], flow_of_peers.filled_by_pyflwdir())
    sums = flow_of_peers.sums(recorded["codes"].astype(np.int64))
    np.testing.assert_array_equal(recorded["sums"], sums)
    directions = flow_of_peers.directions(flow_of_peers.steep_heights())
    np.testing.assert_array_equal(recorded["directions"], directions)


GOOD = np.full((20, 20), 7, np.uint8)
CIRCLE = GOOD.copy()
CIRCLE[9, 7:9] = 1, 5
FAR_CIRCLE = GOOD.copy()
FAR_CIRCLE[4, 5:12], FAR_CIRCLE[4:12, 12], FAR_CIRCLE[12, 6:13], FAR_CIRCLE[5:13, 5] = 1, 7, 5, 3
UNKNOWN = GOOD.copy()
UNKNOWN[[3, 11], [17, 2]] = 77, 66


def weights_with(value: float) -> np.ndarray:
    weights = np.ones(GOOD.shape)
    weights[[6, 15], [13, 1]] = value
    return weights


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a circle": (CIRCLE, {}, "direction: the water of row 9, column 7 comes back to it"),
    "a circle over tiles": (FAR_CIRCLE, {}, "direction: the water of row 4, column .* comes back"),
    "a code": (UNKNOWN, {}, "direction: 77 at row 3, column 17 is not a code of 'taudem'"),
    "no codes": (GOOD, {"codes": None}, "codes: the directions do not say theirs"),
    "NaN": (GOOD, {"weights": weights_with(np.nan)}, "weights: nan at row 6, column 13; where"),
    "negative": (GOOD, {"weights": weights_with(-2)}, "weights: -2.0 at row 6, column 13; where"),
    "too large": (GOOD, {"weights": weights_with(2.0**55)}, "weights: .* must be 0 to 1.153e"),
}


@pytest.mark.parametrize("tile", [8, None])
@pytest.mark.parametrize(("codes", "options", "says"), REFUSED.values(), ids=[*REFUSED.keys()])
def test_what_cannot_be_accumulated_is_refused(
    codes: Any, options: dict[str, Any], says: str, tile: int | None
) -> None:
    with pytest.raises(og.InputError, match=says):
        og.flow_accumulation(codes, **{"codes": "taudem", "tile": tile, **options})


def test_weights_are_not_wanted_where_there_is_no_direction() -> None:
    codes = GOOD.copy()
    codes[6, 13] = codes[15, 1] = 255
    found = og.flow_accumulation(codes, weights=weights_with(np.nan), codes="taudem", tile=8)
    assert np.isnan(found["accumulation"].values[6, 13])
    assert found["accumulation"].values[5, 13] == 6
    assert found["accumulation"].values[19, 13] == 13


@pytest.mark.parametrize("name", ["srtm_bigtujunga30m_utm11", "nc_eno"])
def test_all_water_of_real_terrain_leaves_it(name: str, shared_data: Path) -> None:
    pyflwdir = pytest.importorskip("pyflwdir")
    elevation = shared_data / "dem" / f"{name}.tif"
    flow = og.flow_direction(elevation, codes="esri", tile=256)
    assert flow.attrs["sink_count"] == 0
    codes = flow["direction"].values
    count = og.flow_accumulation(flow, tile=256)["accumulation"].values
    theirs = pyflwdir.from_array(codes, ftype="d8", check_ftype=False).upstream_area("cell")
    valid = codes != 255
    np.testing.assert_array_equal(count[valid], theirs[valid])
    sheds = og.watersheds(flow, tile=256)
    sizes = np.bincount(sheds["watershed"].values[valid])
    assert sizes[0] == 0
    assert sizes.size == sheds.attrs["watershed_count"] + 1
    assert sizes.max() == count.max()
