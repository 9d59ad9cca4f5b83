"""Outlines of rasters: what plans have in place of cells."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from orograph.tiles.errors import RunError
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.outline import RasterOutline
from orograph.tiles.raster.raster import open_raster


@pytest.mark.parametrize("nodata", [None, 0, 1, 2, -9999])
def test_all_cells_of_an_outline_are_valid(nodata: int | None) -> None:
    place = {"y": [3.0, 2.0, 1.0], "x": [10.0, 11.0]}
    cells = xr.DataArray(np.zeros((3, 2), np.int16), place, ("y", "x"), "z", {"units": "m"})
    raster = open_raster(cells, nodata=nodata)
    outline = RasterOutline.of(raster)
    for name in ("shape", "dtype", "nodata", "name", "attrs", "tile", "shard", "bytes_per_cell"):
        assert getattr(outline, name) == getattr(raster, name)
    assert outline.georeference is raster.georeference
    read = outline.read(Window(1, 0, 2, 2))
    assert (read.shape, read.dtype) == ((2, 2), np.int16)
    assert valid_cells(read, nodata).all()
    assert open_raster(outline) is outline


def test_an_outline_cannot_be_run_on() -> None:
    with pytest.raises(RunError, match="a raster to plan for has no cells"):
        RasterOutline((3, 4), np.dtype(np.uint8)).fingerprint()
