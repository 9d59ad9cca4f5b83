"""Rasters on the grid of a map: north up, in another CRS, with uneven axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from pyproj import Transformer
from rasterio.transform import from_bounds
from rasterio.warp import Resampling, reproject

import orograph as og
from orograph.plotting.sampled_raster import read_picture
from orograph.tiles.raster.raster import open_raster


def raster(y: Any, x: Any, crs: Any = 32633) -> xr.DataArray:
    cells = np.arange(1.0, 1 + len(y) * len(x)).reshape(len(y), len(x))
    cells[0, 0] = np.nan
    array = xr.DataArray(cells, {"y": y, "x": x}, ("y", "x"), "dem")
    return array if crs is None else array.rio.write_crs(crs)


NORTHINGS, EASTINGS = 5_000_000 - 100.0 * np.arange(20), 500_000 + 100.0 * np.arange(30)


@pytest.mark.parametrize("crs", [4326, 3857, 32632, 3035])
def test_as_gdal_resamples_to_the_nearest(crs: int) -> None:
    given = raster(NORTHINGS, EASTINGS)
    cells, known, (left, right, bottom, top) = read_picture(open_raster(given), crs, 2000)
    height, width = cells.shape
    expected = np.full(cells.shape, np.nan)
    reproject(
        given.values,
        expected,
        src_transform=given.rio.transform(),
        src_crs=given.rio.crs,
        dst_transform=from_bounds(left, bottom, right, top, width, height),
        dst_crs=crs,
        src_nodata=np.nan,
        dst_nodata=np.nan,
        resampling=Resampling.nearest,
        tolerance=0,
    )
    back = Transformer.from_crs(crs, 32633, always_xy=True)
    x, y = back.transform(*np.meshgrid(
        left + (np.arange(width) + 0.5) * (right - left) / width,
        top - (np.arange(height) + 0.5) * (top - bottom) / height,
    ))  # fmt: skip
    parts = np.stack([(x - 499_950) / 100 % 1, (y - 4_998_050) / 100 % 1])
    within = (np.abs(parts - 0.5) < 0.49).all(axis=0)  # not on a side, where rounding decides
    assert within.mean() > 0.9
    found = np.where(known, cells, np.nan)
    np.testing.assert_array_equal(found[within], expected[within])
    assert known.mean() > 0.5
    assert set(found[known].tolist()) == set(given.values[np.isfinite(given.values)].tolist())


@pytest.mark.parametrize("max_pixels", [7, 2000])
def test_cells_are_where_their_coordinates_say(max_pixels: int) -> None:
    """For each pixel the cell with the nearest centre of those read, by the definition."""
    given = raster(NORTHINGS, EASTINGS)
    cells, known, (left, right, bottom, top) = read_picture(open_raster(given), 4326, max_pixels)
    height, width = cells.shape
    there = Transformer.from_crs(4326, 32633, always_xy=True)
    step = -(-30 // max_pixels)
    rows, columns = np.arange(20), np.arange(30)
    rows, columns = (np.clip(i // step * step + step // 2, 0, n - 1) for i, n in
                     ((rows, 20), (columns, 30)))  # fmt: skip
    for row in range(0, height, max(height // 12, 1)):
        for column in range(0, width, max(width // 12, 1)):
            x, y = there.transform(
                left + (column + 0.5) * (right - left) / width,
                top - (row + 0.5) * (top - bottom) / height,
            )
            i, j = round((5_000_000 - y) / 100), round((x - 500_000) / 100)
            inside = 0 <= i < 20 and 0 <= j < 30
            value = given.values[rows[i], columns[j]] if inside else np.nan
            assert known[row, column] == np.isfinite(value)
            assert not known[row, column] or cells[row, column] == value


@pytest.mark.parametrize("flip", ["y", "x", "both"])
def test_north_is_up_and_east_is_right(flip: str) -> None:
    given = raster(NORTHINGS, EASTINGS)
    turned = given[:: -1 if flip != "x" else 1, :: -1 if flip != "y" else 1]
    for crs in (32633, 4326):
        upright, found = (read_picture(open_raster(one), crs, 2000) for one in (given, turned))
        assert found.extent == pytest.approx(upright.extent)
        np.testing.assert_array_equal(found.cells, upright.cells)
        np.testing.assert_array_equal(found.known, upright.known)
    assert read_picture(open_raster(given), 32633, 2000).extent == (
        499_950, 502_950, 4_998_050, 5_000_050,
    )  # fmt: skip


def test_uneven_rows_keep_their_places() -> None:
    given = raster(np.array([100.0, 90, 50, 0]), np.array([0.0, 10, 20]), None)
    cells, _, extent = read_picture(open_raster(given), None, 2000)
    assert extent == (-5, 25, -25, 105)
    heights = [(cells[:, -1] == value).mean() for value in given.values[:, -1]]
    np.testing.assert_allclose(heights, np.array([10, 25, 45, 50]) / 130, atol=0.01)


def test_a_map_over_the_180th_meridian() -> None:
    given = raster(NORTHINGS, 720_000 + 1000.0 * np.arange(30), "EPSG:32660")
    _, known, (left, right, _, _) = read_picture(open_raster(given), 4326, 2000)
    assert left < 180 < right < 184
    assert known.mean() > 0.6  # turned, between white corners


def test_what_has_no_place_in_a_crs_is_refused() -> None:
    behind = raster(np.linspace(10, -10, 9), np.linspace(170, 190, 9), 4326)
    with pytest.raises(og.InputError, match=r"result: .* CRS of the axes"):
        read_picture(open_raster(behind), "+proj=ortho +lat_0=0 +lon_0=0", 100)
