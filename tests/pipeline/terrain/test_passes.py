"""Passes are those of a bottleneck search over cells, whatever the tiling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import oracle_terrain as oracle
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from terrain_cases import Case, cases, fractal, properties

import orograph as og

RIDGE = np.array([[1, 8, 2], [1, 9, 2], [1, 6, 2]])


def chosen(case: Case, rng: np.random.Generator, count: int) -> list[tuple[int, int]]:
    return [tuple(cell) for cell in rng.choice(np.argwhere(case.valid), count).tolist()]


def points(cells: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(x, y) for y, x in cells]


@properties
@given(cases(), st.integers(0, 2**16))
def test_any_tiling_gives_the_passes_of_a_bottleneck_search(case: Case, seed: int) -> None:
    if not case.valid.any():
        return
    rng = np.random.default_rng(seed)
    starts, ends = chosen(case, rng, 3), chosen(case, rng, 2)
    for targets in (None, ends):
        result = og.pass_elevation(
            case.elevation,
            points(starts),
            None if targets is None else points(targets),
            **case.how,
            **case.cut,
        )
        expected = [oracle.passes(case.elevation, start, **case.how) for start in starts]
        for i, found in enumerate(expected):
            for j, end in enumerate(starts if targets is None else targets):
                at = result.isel(point=i, target=j)
                if end in found:
                    cell = found[end]
                    assert (at["pass_y"], at["pass_x"]) == cell
                    assert at["elevation"] == float(case.elevation[cell])
                else:
                    assert np.isinf(at["elevation"])
                    assert np.isnan(at["pass_y"])
                    assert np.isnan(at["pass_x"])


def test_many_points_of_a_stored_raster_with_coordinates(tmp_path: Path) -> None:
    heights = fractal(90)
    axes = {"y": 1000.0 - 10 * np.arange(90), "x": 5.0 + 10 * np.arange(90)}
    raster = xr.DataArray(heights, axes, ("y", "x"))
    og.ingest(raster, tmp_path / "dem.zarr", tile=16, shard=32)
    cells = np.random.default_rng(4).integers(0, 90, (20, 2))
    where = np.stack([axes["x"][cells[:, 1]], axes["y"][cells[:, 0]]], axis=1)
    with og.cluster(n_workers=2, dashboard_address=None) as client:
        found = og.pass_elevation(tmp_path / "dem.zarr", where, client=client)
    xr.testing.assert_identical(found, og.pass_elevation(raster, where))
    np.testing.assert_array_equal(found["elevation"], found["elevation"].T)
    np.testing.assert_array_equal(found["point_x"], where[:, 0])
    np.testing.assert_array_equal(found["target_y"], where[:, 1])
    levels, _ = oracle.flood(heights, [tuple(cells[0])])
    np.testing.assert_array_equal(found["elevation"][0], levels[tuple(cells.T)])
    at = raster.sel(y=found["pass_y"], x=found["pass_x"])
    np.testing.assert_array_equal(at, found["elevation"])
    assert og.pass_elevation.plan(tmp_path / "dem.zarr").bytes_written == 0


def steps_between(start: Any, end: Any, cells: set[Any], connectivity: int) -> int:
    """Return the fewest steps through some cells, by a plain search breadth first."""
    steps = [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if y * x == 0 or connectivity == 8]
    front, seen, count = {start}, {start}, 0
    while end not in front:
        front = {(y + b, x + a) for y, x in front for b, a in steps} & cells - seen
        seen |= front
        count += 1
    return count


@properties
@given(cases(12), st.integers(0, 2**16), st.booleans())
def test_paths_cross_their_passes_and_rise_nowhere_above(
    case: Case, seed: int, to_targets: bool
) -> None:
    if not case.valid.any():
        return
    rng = np.random.default_rng(seed)
    starts, ends = chosen(case, rng, 2), chosen(case, rng, 1)
    targets = points(ends) if to_targets else None
    found = og.pass_elevation(
        case.elevation, points(starts), targets, paths=True, **case.how, **case.cut
    )
    stops = np.cumsum(found["path_cells"].values)
    ways = np.split(np.stack([found["path_y"], found["path_x"]], axis=1).astype(int), stops[:-1])
    assert stops[-1] == found.sizes["vertex"]
    order = {cell: (case.elevation[cell] + 0, cell) for cell in np.ndindex(case.elevation.shape)}
    for i, start in enumerate(starts):
        for j, end in enumerate(ends if to_targets else starts):
            way = ways[i * found.sizes["target"] + j]
            at = found.isel(point=i, target=j)
            if np.isinf(at["elevation"]):
                assert not len(way)
                continue
            cells = [tuple(cell) for cell in way.tolist()]
            assert (cells[0], cells[-1]) == (start, end)
            assert max(cells, key=order.__getitem__) == (at["pass_y"], at["pass_x"])
            top = max(order[cell] for cell in cells)
            below = {cell for cell in order if case.valid[cell] and order[cell] <= top}
            assert len(way) - 1 == steps_between(start, end, below, case.connectivity)


def test_passes_with_paths_are_stored_and_opened_again(tmp_path: Path) -> None:
    heights = fractal(60)
    heights[:, 30:33] = np.nan
    og.ingest(heights, tmp_path / "dem.zarr", tile=16, shard=32)
    where = [(2, 3), (25, 50), (20, 8), (50, 50)]
    expected = og.pass_elevation(heights, where, paths=True)
    assert np.isinf(expected["elevation"]).sum() == 6
    with og.cluster(n_workers=2, dashboard_address=None) as client:
        found = og.pass_elevation(
            tmp_path / "dem.zarr", where, paths=True, client=client, out=tmp_path / "passes.zarr"
        )
    xr.testing.assert_identical(found.load(), expected)
    assert found["point_x"].values.tolist() == [2, 25, 20, 50]
    assert og.verify(tmp_path / "passes.zarr").ok
    with pytest.raises(og.StoreExistsError):
        og.pass_elevation(heights, where, out=tmp_path / "passes.zarr")


REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "neighbours": (((0, 0),), {"connectivity": 6}, "connectivity: 6 is unknown"),
    "a point on nodata": (((1, 0),), {"nodata": 8}, r"points: point 0 \(x=1, y=0\) lies on nodata"),
    "a target on nodata": (
        ((0, 0), (1, 0)), {"nodata": 8}, r"targets: point 0 \(x=1, y=0\) lies on nodata; move it",
    ),
    "outside": (((0, 7),), {}, r"points: point 0 \(x=0, y=7\) lies outside the grid"),
    "no points": (([],), {}, "points: shape .*; give at least one point"),
    "no flag": (((0, 0),), {"paths": 1}, "paths: 1; it must be True or False"),
    "no such snap": (((0, 0),), {"snap": -1}, "snap: -1; it must be True, False, a whole"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "options", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_what_has_no_pass_is_refused(
    given: tuple[Any, ...], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(og.InputError, match=says):
        og.pass_elevation(RIDGE, *given, **options)
