"""Water flows as far as its steps are long, to its end or to the first stream cell it reaches."""

from __future__ import annotations

import math
from itertools import pairwise
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

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*no cell is a stream"),
    pytest.mark.filterwarnings("ignore:.*all cells are streams"),
]


@settings(properties, max_examples=50)
@given(
    cases(),
    st.integers(0, 2**16),
    st.sampled_from([None, 0.0, 0.02, 0.3]),
    st.sampled_from([(1.0, 1.0), (30.0, 25.0), (2.0**-40, 2.0**-41), (1e290, 3e290)]),
    st.sampled_from(tuple(oracle.CODES)),
)
def test_any_tiling_gives_the_lengths_of_plain_loops(
    case: Case, seed: int, share: float | None, size: tuple[float, float], encoding: str
) -> None:
    step, leaves = oracle.directions(case.elevation, case.valid)
    codes = oracle.encode(step, leaves, case.valid, encoding).astype(np.int16)
    rng = np.random.default_rng(seed)
    streams = None if share is None else case.valid & (rng.random(step.shape) < share)
    found = og.flow_distance(codes, streams, codes=encoding, cell_size=size, **case.cut)
    expected = oracle.lengths(step, leaves, streams, size)
    expected[~case.valid] = np.nan
    # each step is rounded, of at most as many as there are cells
    within = step.size * 2.0**-20 * min(1.0, max(size))
    np.testing.assert_allclose(found["distance"], expected, rtol=1e-12, atol=within)
    whole = og.flow_distance(codes, streams, codes=encoding, cell_size=size)
    np.testing.assert_array_equal(found["distance"], whole["distance"])


def test_steps_are_rounded_to_multiples_of_a_power_of_two() -> None:
    codes = np.full((40, 40), 8, np.uint8)  # south-east
    found = og.flow_distance(codes, codes="taudem", tile=16)["distance"].values
    steps = np.minimum(*np.mgrid[39:-1:-1, 39:-1:-1])
    np.testing.assert_array_equal(found, steps * (round(math.sqrt(2) * 2**20) / 2**20))


@pytest.mark.parametrize("tile", [5, 64])
def test_a_way_that_crosses_every_border_of_tiles_many_times(tile: int) -> None:
    surface = np.full((61, 80), np.nan)
    surface[::2] = 1
    surface[1::4, -1] = surface[3::4, 0] = 1
    hops = og.hop_distance(np.isfinite(surface), [(0, 0)], connectivity=4)["hops"].values
    surface = np.where(hops >= 0, hops.astype(float), np.nan)
    flow = og.flow_direction(surface, depressions="keep", tile=tile)
    found = og.flow_distance(flow, hops == 0, tile=tile)["distance"].values
    assert np.nanargmax(found) == np.argmax(hops)
    # at each corner a diagonal takes the place of two steps
    diagonals = (np.isin(flow["direction"].values, [2, 4, 6, 8]) & (hops > 0)).sum()
    shorter = diagonals * (2 - math.sqrt(2))
    assert np.nanmax(found) == pytest.approx(hops.max() - shorter, abs=1e-2)


@pytest.mark.parametrize("tile", [1, 3, None])
def test_lengths_on_geographic_grids_are_those_of_geodesics(tile: int | None) -> None:
    crs = xr.DataArray(0, attrs={"crs_wkt": CRS("EPSG:4326").to_wkt()})
    place = {"lat": [60.5, 59.5, 58.5, 57.5], "lon": [5.0, 6.0, 7.0]}
    codes = xr.DataArray(
        np.array([[1, 8, 7], [7, 5, 7], [8, 1, 3], [1, 1, 0]], np.uint8), place, ("lat", "lon")
    )
    codes[2, 2] = 7
    codes = codes.assign_coords(spatial_ref=crs)
    found = og.flow_distance(codes, codes="taudem", tile=tile)["distance"]
    way = [(0, 0), (0, 1), (1, 2), (2, 2), (3, 2)]
    points = [(place["lon"][x], place["lat"][y]) for y, x in way]
    globe = Geod(ellps="WGS84")
    legs = [globe.inv(*a, *b)[2] for a, b in pairwise(points)]
    for number, (y, x) in enumerate(way):
        assert float(found[y, x]) == pytest.approx(sum(legs[number:]), abs=1e-5)
    assert found.attrs["units"] == "m"
    leading_west = globe.inv(6.0, 59.5, 5.0, 59.5)[2]
    assert float(found[1, 1] - found[1, 0]) == pytest.approx(leading_west, abs=1e-5)


def test_a_store_and_an_array_have_the_same_distances(tmp_path: Path) -> None:
    heights = fractal(100)
    flow = og.flow_direction(heights, tile=16, shard=32, out=tmp_path / "flow.zarr")
    streams = og.flow_accumulation(flow)["accumulation"].values > 50
    expected = og.flow_distance(og.flow_direction(heights), streams)
    found = og.flow_distance(tmp_path / "flow.zarr", streams, out=tmp_path / "distance.zarr")
    np.testing.assert_array_equal(found["distance"], expected["distance"])


@pytest.mark.parametrize("streams", [False, True])
def test_distances_of_pyflwdir(streams: bool) -> None:
    pyflwdir = pytest.importorskip("pyflwdir")
    codes = flow_of_peers.esri_codes()
    network = pyflwdir.from_array(codes, ftype="d8")
    to = network.upstream_area("cell") > 60 if streams else None
    found = og.flow_distance(codes, to, codes="esri", cell_size=1, tile=32)["distance"].values
    network.transform = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)  # its kernels take a tuple alone
    theirs = network.stream_distance(mask=to, unit="m")
    reached = ~np.isnan(found)
    assert reached.mean() > (0.5 if streams else 0.999)
    np.testing.assert_allclose(found[reached], theirs[reached], rtol=1e-5, atol=1e-4)


GOOD = np.full((20, 20), 7, np.uint8)
HOLE = GOOD.copy()
HOLE[[6, 15], [13, 1]] = 255
CIRCLE = GOOD.copy()
CIRCLE[9, 7:9] = 1, 5
FAR_CIRCLE = GOOD.copy()
FAR_CIRCLE[4, 5:12], FAR_CIRCLE[4:12, 12], FAR_CIRCLE[12, 6:13], FAR_CIRCLE[5:13, 5] = 1, 7, 5, 3
REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a circle": (CIRCLE, {}, "direction: the water of row 9, column 7 comes back to it"),
    "a circle over tiles": (FAR_CIRCLE, {}, "direction: the water of row 4, column .* comes back"),
    "no direction": (HOLE, {"to": GOOD}, "to: the cell at row 6, column 13 is one, and has no dir"),
    "no codes": (GOOD, {"codes": None}, "codes: the directions do not say theirs"),
    "too large": (GOOD, {"cell_size": 1.7e308}, "cell_size: the longest step is inf"),
    "too small": (GOOD, {"cell_size": 1e-320}, "cell_size: the longest step is 1.4"),
    "no size": (GOOD, {"cell_size": 0}, "cell_size: 0; give one side"),
}


@pytest.mark.parametrize("tile", [8, None])
@pytest.mark.parametrize(("codes", "options", "says"), REFUSED.values(), ids=[*REFUSED.keys()])
def test_what_has_no_distance_is_refused(
    codes: Any, options: dict[str, Any], says: str, tile: int | None
) -> None:
    with pytest.raises(og.InputError, match=says):
        og.flow_distance(codes, **{"codes": "taudem", "tile": tile, **options})


def test_a_stream_ends_a_circle() -> None:
    to = np.zeros(GOOD.shape)
    to[9, 8] = 1
    found = og.flow_distance(CIRCLE, to, codes="taudem", tile=8)["distance"].values
    assert found[9, 7] == 1
    assert found[9, 8] == 0
    assert np.isnan(found[10, 8])
