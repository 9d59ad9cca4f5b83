"""What types the verbs of an operation have: read by mypy alone, see `.ci/types`."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import numpy as np
import xarray as xr
import zarr

import orograph as og
from orograph.typing import BarriersLike, CRSLike, PointsLike, RasterLike, SourcesLike, VectorLike

GRID = np.ones((3, 4))


def typed() -> None:
    """Call each verb; a wrong type is an error, and so is an accepted call that must not be."""
    assert_type(og.cost_distance(GRID, [(0, 0)], max_cost=3, tile=8), xr.Dataset)
    assert_type(og.cost_distance.submit(GRID, [(0, 0)], out="x.zarr"), og.Run[xr.Dataset])
    assert_type(og.cost_distance.plan(GRID, workers=2), og.Plan)
    assert_type(og.is_connected(GRID, (0, 0), (1, 1)), og.Reach)
    assert_type(og.is_connected.submit(GRID, (0, 0), (1, 1)), og.Run[og.Reach])
    assert_type(og.DistanceIndex.build(GRID, "i.zarr"), og.DistanceIndex)
    assert_type(og.DistanceIndex.build.submit(GRID, "i.zarr"), og.Run[og.DistanceIndex])
    og.cost_distance(GRID, [(0, 0)], max_costs=3)  # type: ignore[call-arg]
    og.cost_distance(GRID, [(0, 0)], tile="8")  # type: ignore[arg-type]
    og.cost_distance.submit(GRID)  # type: ignore[call-arg]


def passed_on(
    raster: RasterLike,
    points: PointsLike,
    sources: SourcesLike,
    layer: VectorLike,
    crs: CRSLike,
    barriers: BarriersLike | None = None,
) -> None:
    """Pass arguments on; a call that must not be accepted is an error."""
    og.cost_distance(raster, sources, barriers=barriers)
    og.cost_distance(raster, points, barriers=layer)
    og.cost_distance(raster, raster, barriers=raster)
    og.pass_elevation(raster, points)
    og.roads(layer, like=raster)
    og.cost_distance(points, raster)  # type: ignore[arg-type]
    og.pass_elevation(raster, raster)  # type: ignore[arg-type]
    og.VectorLayer(np.empty(0, object), {}, crs)


def given(array: xr.DataArray, group: zarr.Group, path: Path) -> None:
    """Give arguments of each kind; a wrong one is an error."""
    for raster in (GRID, array, group, path, "dem.tif"):
        og.flow_direction(raster)
    og.flow_direction(3.5)  # type: ignore[arg-type]
    og.flow_direction(None)  # type: ignore[arg-type]
    og.flow_direction([[1, 2], [3, 4]])  # type: ignore[arg-type]
    og.pass_elevation(GRID, (0, 0))
    og.pass_elevation(GRID, [(0, 0), (1.5, 2)], targets=GRID[:, :2])
    og.pass_elevation(GRID, None)  # type: ignore[arg-type]
    og.walking_time(array, "huts.gpkg", barriers={"type": "Point", "coordinates": (0, 0)})
    og.walking_time(array, [(0, 0)], barriers=1)  # type: ignore[arg-type]
