"""Rasters that a flow operation takes together must lie on one grid."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr

import orograph as og

CALLS: dict[str, Callable[[xr.DataArray, xr.DataArray], object]] = {
    "weights": lambda codes, other: og.flow_accumulation(codes, weights=other, codes="taudem"),
    "to": lambda codes, other: og.flow_distance(codes, other, codes="taudem"),
    "elevation": lambda codes, other: og.height_above_drainage(
        other, codes, codes == 0, codes="taudem"
    ),
    "streams": lambda codes, other: og.height_above_drainage(
        codes, codes, other == 0, codes="taudem"
    ),
    "accumulation": lambda codes, other: og.watersheds(
        codes, [(1, 9)], accumulation=other, snap=True, codes="taudem"
    ),
}


def raster(first_y: float, cells: int = 4) -> xr.DataArray:
    y = first_y - np.arange(float(cells))
    return xr.DataArray(
        np.full((cells, 4), 7, np.uint8), dims=("y", "x"), coords={"y": y, "x": np.arange(4.0)}
    )


@pytest.mark.parametrize("name", CALLS)
def test_rasters_at_other_places_are_refused(name: str) -> None:
    with pytest.raises(og.InputError, match=f"{name}: its y coordinate 0 is"):
        CALLS[name](raster(10), raster(11))


@pytest.mark.parametrize("name", CALLS)
def test_rasters_of_other_shapes_are_refused(name: str) -> None:
    with pytest.raises(og.InputError, match=f"{name}: . x 4 cells, but the first raster has"):
        CALLS[name](raster(10), raster(10, cells=3))
