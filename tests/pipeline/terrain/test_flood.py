"""Flood levels are the least greatest heights on the way to a source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import oracle_terrain as oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from terrain_cases import Case, cases, fractal, properties

import orograph as og


@pytest.mark.filterwarnings("ignore:.*all cells are sources")
@properties
@given(cases(), st.integers(0, 2**16), st.booleans())
def test_any_tiling_floods_as_a_priority_flood_does(case: Case, seed: int, as_raster: bool) -> None:
    cells = np.argwhere(case.valid)
    if not cells.size:
        return
    rng = np.random.default_rng(seed)
    chosen = [tuple(cell) for cell in rng.choice(cells, rng.integers(1, 4)).tolist()]
    sources: Any = [(x, y) for y, x in chosen]
    if as_raster:
        sources = np.full(case.elevation.shape, np.nan)
        sources[tuple(np.array(chosen).T)] = 0.5
    result = og.flood_level(case.elevation, sources, **case.how, **case.cut)["level"]
    expected, reached = oracle.flood(case.elevation, chosen, **case.how)
    nodata = case.nodata
    if nodata is None and case.elevation.dtype.kind in "iu":
        nodata = np.iinfo(case.elevation.dtype).max
    expected[~reached] = np.nan if nodata is None else nodata
    assert result.dtype == case.elevation.dtype
    np.testing.assert_array_equal(result, expected)
    found = {**result.encoding, **result.attrs}  # NaN is in the encoding
    np.testing.assert_equal(found["_FillValue"], np.nan if nodata is None else nodata)


def test_the_edge_as_source_gives_the_filling(tmp_path: Path) -> None:
    heights = fractal(80)
    edge = np.ones(heights.shape, np.uint8)
    edge[1:-1, 1:-1] = 0
    filled = og.fill_depressions(heights)["filled"]
    og.ingest(heights, tmp_path / "dem.zarr", tile=16)
    level = og.flood_level(tmp_path / "dem.zarr", edge, out=tmp_path / "level.zarr")["level"]
    np.testing.assert_array_equal(level, filled)
    planned = og.flood_level.plan(tmp_path / "dem.zarr")
    assert planned.bytes_written == heights.nbytes


REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "neighbours": (((0, 0),), {"connectivity": 16}, "connectivity: 16 is unknown"),
    "on nodata": (((1, 0),), {"nodata": 9}, r"sources: point 0 \(x=1, y=0\) lies on nodata; move"),
    "outside": (((0, -1),), {}, r"sources: point 0 \(x=0, y=-1\) lies outside the grid"),
    "a raster of nothing": ((np.zeros((2, 3)),), {}, "sources: the raster has no source"),
    "no points": (([],), {}, "sources: shape .*; give at least one point"),
}


@pytest.mark.parametrize(("sources", "options", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_flooded_is_refused(
    sources: tuple[Any, ...], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(og.InputError, match=says):
        og.flood_level(np.array([[1, 9, 2], [1, 9, 3]]), *sources, **options)


def test_a_source_on_nodata_is_moved_where_that_is_wanted() -> None:
    level = og.flood_level(np.array([[1, 9, 2], [1, 9, 3]]), (1, 0), nodata=9, snap=True)["level"]
    assert level.values.tolist() == [[1, 9, 9], [1, 9, 9]]
