"""What types the verbs of an operation have: read by mypy alone, see `.ci/types`."""

from __future__ import annotations

from typing import assert_type

import numpy as np
import xarray as xr

import orograph as og

GRID = np.ones((3, 4))


def typed() -> None:
    """Call each verb; a wrong type is an error, and so is an accepted call that must not be."""
    assert_type(og.cost_distance(GRID, [(0, 0)], max_cost=3, tile=8), xr.Dataset)
    assert_type(og.cost_distance.submit(GRID, [(0, 0)], out="x.zarr"), og.Run[xr.Dataset])
    assert_type(og.cost_distance.plan(GRID, workers=2), og.Plan)
    assert_type(og.st_connected(GRID, (0, 0), (1, 1)), og.Reach)
    assert_type(og.st_connected.submit(GRID, (0, 0), (1, 1)), og.Run[og.Reach])
    assert_type(og.DistanceIndex.build(GRID, "i.zarr"), og.DistanceIndex)
    assert_type(og.DistanceIndex.build.submit(GRID, "i.zarr"), og.Run[og.DistanceIndex])
    og.cost_distance(GRID, [(0, 0)], max_costs=3)  # type: ignore[call-arg]
    og.cost_distance(GRID, [(0, 0)], tile="8")  # type: ignore[arg-type]
    og.cost_distance.submit(GRID)  # type: ignore[call-arg]
