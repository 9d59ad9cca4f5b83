"""Sources outside the raster are refused, or skipped and counted; the others keep their labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import shapely
import xarray as xr

import orograph as og

geopandas = pytest.importorskip("geopandas", reason="GeoPandas is not installed: orograph[vector]")

BOTH = ("cost", "allocation")
POINTS = np.array([(-5.0, 3), (2, 3), (30, 8), (12, 9), (7, 1e6)])
INSIDE = np.array([1, 3])


def friction() -> xr.DataArray:
    cells = np.random.default_rng(5).integers(1, 9, (12, 17)).astype(np.float64)
    axes = {"y": np.arange(12.0), "x": np.arange(17.0)}
    return xr.DataArray(cells, axes, ("y", "x")).rio.write_crs("EPSG:32633")


def expected_of(sources: Any, labels: np.ndarray[Any, Any], **options: Any) -> xr.Dataset:
    """The result of the sources inside alone, with the labels that they are to have."""
    found = og.cost_distance(friction(), sources, outputs=BOTH, **options)
    numbers = found["allocation"].values
    found["allocation"].values[numbers >= 0] = labels[numbers[numbers >= 0]]
    return found


def assert_same(found: xr.Dataset, expected: xr.Dataset, skipped: int) -> None:
    assert found.attrs["sources_outside"] == skipped
    for name in BOTH:
        assert np.array_equal(found[name], expected[name])


@pytest.mark.parametrize("tile", [4, 32])
def test_points_outside_are_skipped_and_counted(tile: int, tmp_path: Path) -> None:
    starts = np.array([9.0, 1, 9, 4, 9])
    given = {"outputs": BOTH, "initial_cost": starts, "outside": "skip"}
    expected = expected_of(POINTS[INSIDE], INSIDE, initial_cost=starts[INSIDE])
    assert_same(og.cost_distance(friction(), POINTS, tile=tile, **given), expected, 3)
    out = tmp_path / "cost.zarr"
    assert_same(og.cost_distance(friction(), POINTS, tile=tile, out=out, **given), expected, 3)
    assert og.open(out).attrs["sources_outside"] == 3
    layer = geopandas.GeoSeries(shapely.points(POINTS), crs="EPSG:32633")
    assert_same(og.cost_distance(friction(), layer, **given), expected, 3)


def test_every_operation_with_sources_skips_them() -> None:
    hops = og.hop_distance(friction(), POINTS, outside="skip")
    assert hops.attrs["sources_outside"] == 3
    assert np.array_equal(hops["hops"], og.hop_distance(friction(), POINTS[INSIDE])["hops"])
    walk = og.walking_time(friction(), POINTS, outside="skip")
    assert walk.attrs["sources_outside"] == 3
    assert np.array_equal(walk["time"], og.walking_time(friction(), POINTS[INSIDE])["time"])
    lazy = og.cost_distance.lazy(friction(), POINTS, outside="skip")
    assert lazy.attrs["sources_outside"] == 3


def test_areas_and_lines_outside_are_skipped_with_their_labels() -> None:
    areas = [
        shapely.box(40, 40, 50, 50),
        shapely.box(-3, -3, 1, 1),
        shapely.LineString([(-9, 5), (-2, 30)]),
        shapely.LineString([(9, 4), (20, 8)]),
    ]
    kept = np.array([1, 3])
    expected = expected_of([areas[1], areas[3]], kept)
    found = og.cost_distance(friction(), areas, outputs=BOTH, outside="skip")
    assert_same(found, expected, 2)
    frame = geopandas.GeoDataFrame({"kind": [5, 70, 6, 8]}, geometry=areas, crs="EPSG:32633")
    named = og.cost_distance(
        friction(), frame.to_crs("EPSG:4326"), label="kind", outputs=BOTH, outside="skip"
    )
    assert set(np.unique(named["allocation"])) == {70, 8}
    assert named.attrs["sources_outside"] == 2


def test_nothing_outside_is_counted_as_nothing() -> None:
    for sources in (POINTS[INSIDE], shapely.box(2, 2, 4, 4)):
        given = og.cost_distance(friction(), sources, outside="skip")
        usual = og.cost_distance(friction(), sources)
        assert given.attrs.pop("sources_outside") == 0
        assert given.identical(usual)


@pytest.mark.parametrize(
    ("sources", "outside", "said"),
    [
        (POINTS, "error", r"sources: point 0 .* outside the grid.*Or pass outside='skip'"),
        (POINTS[[0, 2]], "skip", r"sources: all 2 points lie outside the grid"),
        (
            [shapely.box(40, 40, 50, 50), shapely.box(2, 2, 4, 4)],
            "error",
            r"geometry 0, a Polygon of .* outside the grid; .*pass outside='skip'",
        ),
        ([shapely.box(40, 40, 50, 50)], "skip", "lies outside the grid; .*check its CRS"),
        (np.array([(3.0, 16)]), "error", r"as \(y, x\) they would be inside"),
    ],
    ids=["points", "all points", "an area", "all areas", "as (y, x)"],
)
def test_what_lies_outside_is_refused(sources: Any, outside: str, said: str) -> None:
    with pytest.raises(og.InputError, match=said):
        og.cost_distance(friction(), sources, outside=outside)
