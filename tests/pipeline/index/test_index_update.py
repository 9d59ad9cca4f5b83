"""An index is updated where geometries lie, by numbers or by a raster of the whole grid."""

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

EAST, NORTH = 500_000.0, 5_000_000.0


def placed(x: float, y: float) -> tuple[float, float]:
    return EAST + x, NORTH + y


POINTS = [placed(5, 5), placed(195, 145), placed(5, 145)]
BRIDGE = shapely.LineString([placed(62, 74), placed(138, 76)])
CLOSURE = shapely.Polygon([placed(21, 22), placed(72, 31), placed(41, 92)])


def friction() -> xr.DataArray:
    cells = np.random.default_rng(6).integers(1, 9, (15, 20)).astype(np.float64)
    cells[:, 9:11] = np.nan  # a river
    axes = {"y": NORTH + 5 + 10 * np.arange(15), "x": EAST + 5 + 10 * np.arange(20)}
    return xr.DataArray(cells, axes, ("y", "x")).rio.write_crs("EPSG:32633")


def changed(geometry: Any, value: Any) -> xr.DataArray:
    """The raster with new values where a geometry lies."""
    before = friction()
    return before.where((og.rasterize(geometry, before) < 0).values, value)


def layer(geometry: Any) -> Any:
    return geopandas.GeoSeries([geometry], crs="EPSG:32633").to_crs("EPSG:4326")


@pytest.mark.diagonal
@pytest.mark.parametrize("block", [4, 8])
@pytest.mark.parametrize("geometry", [BRIDGE, CLOSURE], ids=["a line", "an area"])
@pytest.mark.parametrize("value", ["a number", "a raster", "a barrier"])
def test_an_updated_index_is_one_of_the_changed_raster(
    geometry: Any, value: str, block: int, tmp_path: Path
) -> None:
    fresh = np.random.default_rng(2).integers(10, 20, (15, 20)).astype(np.float64)
    whole = friction().copy(data=fresh)
    given: Any = {"a number": 2, "a raster": whole, "a barrier": np.nan}[value]
    index = og.DistanceIndex.build(friction(), tmp_path / "index.zarr", block=block)
    before = index.query(POINTS[:1])["cost"]
    blocks = index.update(layer(geometry) if value == "a number" else geometry, given)
    assert 0 < blocks <= index.blocks
    expected = changed(geometry, fresh if value == "a raster" else given)
    built = og.DistanceIndex.build(expected, tmp_path / "built.zarr", block=block)
    after = index.distance_matrix(POINTS)
    assert np.array_equal(after, built.distance_matrix(POINTS))
    field = index.query(POINTS[:1])["cost"]
    assert np.array_equal(field, built.query(POINTS[:1])["cost"], equal_nan=True)
    on_river = value == "a barrier" and geometry is BRIDGE
    assert on_river or not np.array_equal(field, before, equal_nan=True)


def test_a_window_takes_a_number_and_the_whole_raster(tmp_path: Path) -> None:
    window, rows = (3, 4, 5, 6), (slice(3, 8), slice(4, 10))
    fresh = friction().copy(data=np.random.default_rng(2).integers(10, 20, (15, 20)) * 1.0)
    for number, given in enumerate([7.5, fresh]):
        index = og.DistanceIndex.build(friction(), tmp_path / f"{number}.zarr", block=8)
        index.update(window, given)
        expected = friction()
        expected[rows] = given if number == 0 else given[rows]
        built = og.DistanceIndex.build(expected, tmp_path / f"built {number}.zarr", block=8)
        assert np.array_equal(index.distance_matrix(POINTS), built.distance_matrix(POINTS))


def test_geometries_and_values_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    index = og.DistanceIndex.build(friction(), tmp_path / "index.zarr", block=8)
    before = index.fingerprint
    with pytest.raises(og.InputError, match=r"window: geometry 0, a Polygon .* outside the grid"):
        index.update(shapely.box(900, 900, 950, 950), 2.0)
    with pytest.raises(og.InputError, match="friction: 2 x 2 cells for a window of"):
        index.update(CLOSURE, np.ones((2, 2)))
    with pytest.raises(og.InputError, match="friction"):
        index.update(CLOSURE, -1.0)
    with pytest.raises(og.InputError, match="friction"):
        index.update(CLOSURE, friction().assign_coords(x=friction().x + 3))
    assert index.fingerprint == before
