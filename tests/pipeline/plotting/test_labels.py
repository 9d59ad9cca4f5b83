"""Pictures of components, and of rasters larger than the picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from watched_raster import WatchedRaster, read_tiles

import orograph as og
from orograph.plotting.labels import components_picture
from orograph.plotting.sampled_raster import every
from orograph.tiles.raster.raster import open_raster


def test_background_is_transparent_and_nodata_grey(tmp_path: Path) -> None:
    classes = np.array([[1, 1, 0], [0, 0, -9], [2, 0, 2]], np.int16)
    result = og.connected_components(classes, nodata=-9, connectivity=4)
    raster = open_raster(classes, nodata=-9)
    picture = components_picture(result, tmp_path / "labels.png", classes=raster)
    pixels = imread(picture)
    factor = 512 // 3
    assert pixels.shape == (3 * factor, 3 * factor, 4)
    cells = pixels[factor // 2 :: factor, factor // 2 :: factor]
    np.testing.assert_array_equal(cells[..., 3], [[1, 1, 0], [0, 0, 1], [1, 0, 1]])
    np.testing.assert_allclose(cells[1, 2, :3], 0.6, atol=0.01)
    shown = {tuple(cells[at]) for at in ((0, 0), (0, 1), (2, 0), (2, 2), (1, 2))}
    assert len(shown) == 4
    assert components_picture(result["labels"], tmp_path / "labels.jpg").stat().st_size > 500


@pytest.mark.parametrize("shape", [(130, 170), (3, 400), (400, 1)])
@pytest.mark.parametrize("step", [1, 2, 7, 40])
def test_of_larger_rasters_every_kth_cell_is_drawn(shape: tuple[int, int], step: int) -> None:
    cells = np.arange(shape[0] * shape[1]).reshape(shape)
    found = every(open_raster(cells), step)
    rows, columns = (np.arange(min(step // 2, (n - 1) // 2), n, step) for n in shape)
    np.testing.assert_array_equal(found, cells[np.ix_(rows, columns)])


def test_tiles_without_a_drawn_cell_are_not_read(tmp_path: Path) -> None:
    og.ingest(np.ones((128, 96), np.uint8), tmp_path / "m.zarr", tile=8)
    found = every(WatchedRaster(tmp_path / "m.zarr", tmp_path / "diary"), 32)
    assert found.shape == (4, 3)
    assert len(read_tiles(tmp_path / "diary")) == 12


def test_a_picture_has_no_more_pixels_than_asked(tmp_path: Path) -> None:
    mask = np.random.default_rng(0).random((300, 900)) < 0.5
    og.ingest(mask, tmp_path / "mask.zarr", tile=64)
    og.connected_components(tmp_path / "mask.zarr", out=tmp_path / "labels.zarr", connectivity=4)
    picture = components_picture(tmp_path / "labels.zarr", tmp_path / "l.png", max_pixels=600)
    assert imread(picture).shape[:2] == (150, 450)
