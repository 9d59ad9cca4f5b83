"""A cell is as high above its stream as above the first stream cell that its water reaches."""

from __future__ import annotations

from typing import Any

import flow_of_peers
import numpy as np
import oracle_flow as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from terrain_cases import WIDE, Case, cases, fractal, properties

import orograph as og

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*lie below the stream"),
    pytest.mark.filterwarnings("ignore:.*no cell is a stream"),
    pytest.mark.filterwarnings("ignore:.*all cells are streams"),
]


@settings(properties, max_examples=40)
@given(cases(), st.integers(0, 2**16), st.sampled_from([0.02, 0.3]))
def test_any_tiling_gives_the_heights_of_plain_loops(case: Case, seed: int, share: float) -> None:
    elevation = case.elevation.copy()
    if elevation.dtype.name in WIDE:
        elevation[elevation == np.iinfo(elevation.dtype).max] -= 1
    step, leaves = oracle.directions(elevation, case.valid)
    codes = oracle.encode(step, leaves, case.valid, "esri").astype(np.int16)
    rng = np.random.default_rng(seed)
    streams = case.valid & (rng.random(step.shape) < share)
    cells = list(map(tuple, np.argwhere(streams).tolist()))
    first = oracle.ends(step, leaves, {cell: n for n, cell in enumerate(cells)})
    expected = np.full(step.shape, np.nan)
    for cell in zip(*np.nonzero(case.valid & (first >= 0)), strict=True):
        below = elevation[cells[first[cell]]]
        expected[cell] = elevation[cell].item() - below.item()
    found = og.height_above_drainage(
        elevation, codes, streams, codes="esri", nodata=case.nodata, **case.cut
    )["height"]
    np.testing.assert_array_equal(found, expected)


def test_ground_below_its_stream_is_kept_or_not() -> None:
    heights = np.array([[9.0, 3.0, 1.0, 5.0], [9.0, 8.0, 9.0, 4.0]])
    codes = np.array([[7, 7, 7, 7], [1, 1, 1, 1]], np.uint8)
    streams = np.array([[0, 0, 0, 0], [0, 0, 1, 0]], bool)
    kept, zero, gone = (
        og.height_above_drainage(heights, codes, streams, codes="taudem", below=below)["height"]
        for below in ("keep", "zero", "nodata")
    )
    np.testing.assert_array_equal(kept, [[0, -6, -8, np.nan], [0, -1, 0, np.nan]])
    np.testing.assert_array_equal(zero, kept.where(~(kept < 0), 0))
    np.testing.assert_array_equal(gone, kept.where(kept >= 0))


def test_heights_of_pyflwdir() -> None:
    pyflwdir = pytest.importorskip("pyflwdir")
    heights, codes = fractal(150), flow_of_peers.esri_codes()
    network = pyflwdir.from_array(codes, ftype="d8")
    streams = network.upstream_area("cell") > 60
    found = og.height_above_drainage(heights, codes, streams, codes="esri", tile=32)["height"]
    theirs = network.hand(streams, heights)
    reached = ~np.isnan(found.values)
    assert reached.mean() > 0.5
    np.testing.assert_allclose(found.values[reached], theirs[reached], rtol=1e-6)


GOOD = np.full((20, 20), 7, np.uint8)
HOLE = GOOD.copy()
HOLE[[6, 15], [13, 1]] = 255
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "no direction": (HOLE, GOOD, "streams: the cell at row 6, column 13 is one, and has no direc"),
}


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_the_greatest_integer_is_refused(dtype: type) -> None:
    heights = np.full((20, 20), np.iinfo(dtype).max - 1, dtype)
    found = og.height_above_drainage(heights, GOOD, GOOD, codes="taudem", tile=8)
    assert (found["height"] == 0).all()
    heights[17, 4] += 1
    with pytest.raises(og.InputError, match=r"elevation: \d+ at row 17, column 4 is the g"):
        og.height_above_drainage(heights, GOOD, GOOD, codes="taudem", tile=8)


@pytest.mark.parametrize(("codes", "streams", "says"), REFUSED.values(), ids=[*REFUSED.keys()])
def test_what_has_no_height_above_streams_is_refused(codes: Any, streams: Any, says: str) -> None:
    with pytest.raises(og.InputError, match=says):
        og.height_above_drainage(np.eye(20), codes, streams, codes="taudem", tile=8)
