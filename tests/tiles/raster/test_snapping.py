"""Points are moved to the nearest valid cell within cells or a length, as a search of all finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from pyproj import Geod

import orograph as og

GRIDS = {
    "metres": (32633, 100.0, 5_000_000.0),
    "US survey feet": (2277, 250.0, 10_000_000.0),
    "degrees": (4326, 0.01, 68.0),
}


def ground(name: str, ascending: bool = False) -> xr.DataArray:
    """Return a raster of which three quarters are nodata."""
    crs, side, low = GRIDS[name]
    cells = np.random.default_rng(3).random((40, 30)) + 1
    cells[cells < 1.75] = np.nan
    y = low + side * np.arange(40)[:: 1 if ascending else -1]
    raster = xr.DataArray(cells, {"y": y, "x": side * np.arange(30) + side}, ("y", "x"))
    return raster.rio.write_crs(crs)


def metres_from(raster: xr.DataArray, point: tuple[float, float]) -> Any:
    """Return the distance of each cell from a point."""
    x, y = np.broadcast_arrays(raster.x.values, raster.y.values[:, None])
    if raster.rio.crs.is_geographic:
        at = [np.full(x.shape, part) for part in point]
        return Geod(ellps="WGS84").inv(*at, x, y)[2]
    unit = {32633: 1.0, 2277: 1200 / 3937}[raster.rio.crs.to_epsg()]
    return np.hypot(x - point[0], y - point[1]) * unit


def centre_of_ground(raster: xr.DataArray) -> tuple[float, float]:
    """Return the centre of a cell that is no nodata."""
    row, column = np.argwhere(~np.isnan(raster.values))[0].tolist()
    return float(raster.x[column]), float(raster.y[row])


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("name", GRIDS)
def test_a_length_finds_the_nearest_cell_on_the_ground(name: str, ascending: bool) -> None:
    raster = ground(name, ascending)
    barred = np.argwhere(np.isnan(raster.values))
    lost = 0
    for row, column in barred[:: len(barred) // 60].tolist():
        point = float(raster.x[column]), float(raster.y[row])
        far = np.where(np.isnan(raster.values), np.inf, metres_from(raster, point))
        if far.min() > 150:
            lost += 1
            with pytest.raises(og.InputError, match="no valid cell within 150 m"):
                og.cost_distance(raster, [point], snap="150 m", cell_size=1)
            continue
        result = og.cost_distance(raster, [point], snap="150 m", cell_size=1)
        assert result.attrs["snap_distances"] == [pytest.approx(far.min())]
        (at,) = np.argwhere(result["cost"].values == 0).tolist()
        assert far[tuple(at)] == pytest.approx(far.min())
    assert lost


def test_the_same_length_in_another_unit_and_a_number_of_cells() -> None:
    raster = ground("metres")
    row, column = np.argwhere(np.isnan(raster.values))[50].tolist()
    point = float(raster.x[column]), float(raster.y[row])
    expected = og.cost_distance(raster, [point], snap="300 m")
    for snap in ("0.3 km", "984.3 ft", "300 metres", 3):
        xr.testing.assert_identical(og.cost_distance(raster, [point], snap=snap), expected)


def test_a_cell_just_as_far_away_as_the_length_is_within_it() -> None:
    raster = ground("US survey feet").fillna(1)
    for steps in range(1, 9):
        cells = raster.copy()
        cells[:, : steps + 3] = np.nan
        point = float(raster.x[3]), float(raster.y[9])
        found = og.cost_distance(cells, [point], snap=f"{250 * steps} us-ft", cell_size=1)
        assert found["cost"].values[9, steps + 3] == 0


@pytest.mark.parametrize(
    ("crs", "side", "snap"),
    [
        ("EPSG:32632", 30.48, (100, "ft")),
        ("EPSG:32632", 0.3048, (1, "ft")),
        ("EPSG:32632", 1200 / 3937, (1, "us-ft")),
        ("EPSG:32632", 1 / 3, (1 / 3000, "km")),
        ("EPSG:2263", 3937 / 1200, (1, "m")),
    ],
)
@pytest.mark.parametrize("steps", range(1, 8))
def test_coordinates_far_from_the_origin_may_be_rounded(
    crs: str, side: float, snap: tuple[float, str], steps: int
) -> None:
    along = side * np.arange(12)
    axes = {"y": 5_000_000.3 - along, "x": 700_000.7 + along}
    cells = xr.DataArray(np.ones((12, 12)), axes, ("y", "x")).rio.write_crs(crs)
    cells[:, : steps + 3] = np.nan
    point = float(cells.x[3]), float(cells.y[5])
    length, unit = snap
    found = og.hop_distance(cells, [point], snap=f"{steps * length:.15g} {unit}")
    assert found["hops"].values[5, steps + 3] == 0
    with pytest.raises(og.InputError, match="no valid cell within"):
        og.hop_distance(cells, [point], snap=f"{steps * length * (1 - 1e-6):.15g} {unit}")


def test_points_that_stay_are_moved_by_nothing() -> None:
    raster = ground("metres")
    row, column = np.argwhere(~np.isnan(raster.values))[0].tolist()
    point = float(raster.x[column]) + 20, float(raster.y[row]) + 20
    assert og.cost_distance(raster, [point], snap=True).attrs["snap_distances"] == [0.0]
    assert "snap_distances" not in og.cost_distance(raster, [point]).attrs


def test_paths_outlets_floods_and_passes_tell_how_far() -> None:
    raster = ground("metres")
    whole = raster.fillna(5.0)
    row, column = np.argwhere(np.isnan(raster.values))[50].tolist()
    point = float(raster.x[column]), float(raster.y[row])
    far = np.where(np.isnan(raster.values), np.inf, metres_from(raster, point)).min()
    outputs = ("cost", "back_direction")
    costs = og.cost_distance(raster, [point], snap=True, outputs=outputs)
    path = og.least_cost_path(costs, [point], snap="3 km")
    assert path[0].snap_distance == far > 0
    assert path.layer.columns["snap_distance"].tolist() == [far]
    assert path.layer.units["snap_distance"] == "m"
    assert og.flood_level(raster, [point], snap=True).attrs["snap_distances"] == [far]
    crossed = og.pass_elevation(raster, [point], [point], snap=True)
    assert crossed.attrs["snap_distances"] == crossed.attrs["target_snap_distances"] == [far]
    index = og.DistanceIndex.build(raster, "memory://snapped.zarr", block=16, overwrite=True)
    assert index.query([point], snap=True).attrs["snap_distances"] == [far]
    assert "snap_distances" not in index.query([centre_of_ground(raster)]).attrs
    there = centre_of_ground(raster)
    reach = og.is_connected(raster, [point, there], [there, there], snap=True)
    assert reach.snap_distances is not None
    assert reach.snap_distances.tolist() == [[far, 0.0], [0.0, 0.0]]
    assert og.is_connected(raster, there, there).snap_distances is None
    flow = og.flow_direction(whole)
    amounts = og.flow_accumulation(flow)["accumulation"]
    for snap, reach in (("400 m", 400.0), (3, np.inf)):
        basins = og.watersheds(flow, [point], snap=snap, accumulation=amounts)
        near = metres_from(raster, point) <= reach
        near[: max(row - 4, 0)] = near[row + 5 :] = False
        near[:, : max(column - 4, 0)] = near[:, column + 5 :] = False
        if snap == 3:
            near[:] = False
            near[max(row - 3, 0) : row + 4, max(column - 3, 0) : column + 4] = True
        most = np.where(near, amounts.values, -1)
        distances = metres_from(raster, point)[most == most.max()]
        assert basins.attrs["snap_distances"] == [distances.min()]


@pytest.mark.parametrize("snap", ["300", "m", "300 x", "-5 m", "", "1e3 m", "nan m"])
def test_what_is_no_length_is_refused(snap: str) -> None:
    with pytest.raises(og.InputError, match=r"snap: .* or a length with its unit, such as '300 m'"):
        og.cost_distance(ground("metres"), [(0, 0)], snap=snap)


def test_a_length_needs_a_unit_of_the_grid() -> None:
    with pytest.raises(og.InputError, match="nothing tells the unit of the grid"):
        og.cost_distance(np.ones((3, 3)), [(0, 0)], snap="3 m")
