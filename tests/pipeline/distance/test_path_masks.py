"""Masks of paths have no gaps, and paths from unreached points are skipped on demand."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import shapely
import xarray as xr
from scipy import ndimage, sparse

import orograph as og
from orograph.cli.main import main

BOTH = ("cost", "back_direction")


def touched(cells: Any) -> set[tuple[int, int]]:
    """Cells that the straight lines between the centres of cells pass through."""
    found = {tuple(cell) for cell in cells.tolist()}
    for one, other in pairwise(cells):
        if sorted(np.abs(other - one)) == [1, 2]:
            for t in np.linspace(0, 1, 101):
                y, x = one + t * (other - one)
                if abs(y % 1 - 0.5) > 0.01 and abs(x % 1 - 0.5) > 0.01:
                    found.add((round(y), round(x)))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_knights_moves_mark_what_they_cross(seed: int) -> None:
    rng = np.random.default_rng(seed)
    friction = rng.uniform(1, 3, (25, 31))
    start, ends = (15, 12), rng.integers(0, 25, (8, 2)).tolist()
    result = og.cost_distance(friction, [start], connectivity=16, outputs=BOTH)
    paths = og.least_cost_path(result, ends)
    expected = np.zeros(friction.shape, int)
    for path in paths:
        for cell in touched(path.cells):
            expected[cell] += 1
        mask = og.path_mask([path], result).values > 0
        assert ndimage.label(mask, np.ones((3, 3)))[1] == 1
    assert (og.path_mask(paths, result) == expected).all()
    assert any(len(path.crossed) for path in paths)


@pytest.mark.parametrize("connectivity", [8, 16])
def test_links_cross_nothing(connectivity: int) -> None:
    """Also if their ends are a knight's move apart."""
    friction = np.full((4, 6), 50.0)
    bridge = sparse.coo_array(([0.1], ([1 * 6 + 1], [2 * 6 + 3])), shape=(24, 24))
    links = og.read_graph(bridge, directed=False)
    result = og.cost_distance(
        friction, [(1, 1)], connectivity=connectivity, links=links, outputs=BOTH
    )
    (path,) = og.least_cost_path(result, [(3, 2)])
    assert path.cells.tolist() == [[2, 3], [1, 1]]
    assert og.path_mask([path], result).values.sum() == 2


@pytest.mark.parametrize("like", ["array", "dataset"])
def test_like_of_three_dimensions_or_another_crs_is_refused(like: str) -> None:
    axes = {"y": [2.0, 1, 0], "x": [0.0, 1, 2, 3]}
    grid = xr.DataArray(np.ones((3, 4)), axes, ("y", "x"), "g").rio.write_crs(32632)
    paths = og.least_cost_path(og.cost_distance(grid, [(0, 0)], outputs=BOTH), [(3, 2)])

    def given(raster: xr.DataArray) -> Any:
        return raster if like == "array" else raster.to_dataset(name="cost")

    for dims in (["t"], ["t", "band"]):
        with pytest.raises(og.InputError, match=r"^like: it has \d dimensions \(.*y, x\)"):
            og.path_mask(paths, given(grid.expand_dims(dims)))
    with pytest.raises(og.InputError, match=r"^like: it has 1 dimensions"):
        og.path_mask(paths, given(grid[0]))
    for crs in (32633, "EPSG:4326"):
        with pytest.raises(og.InputError, match=r"^like: its CRS is WGS 84.* path 0 .*zone 32N"):
            og.path_mask(paths, given(grid.rio.write_crs(crs)))
    for fitting in (grid, grid.drop_vars("spatial_ref"), grid.rio.write_crs("EPSG:32632")):
        assert og.path_mask(paths, given(fitting)).sum() == len(paths[0].cells)


# --- points that no path reaches -------------------------------------------------------------


def split(**options: Any) -> tuple[Any, xr.Dataset]:
    friction = np.ones((9, 9))
    friction[:, 4] = np.nan
    return friction, og.cost_distance(friction, [(1, 4)], **{"outputs": BOTH, **options})


GIVEN: dict[str, tuple[Any, list[int]]] = {
    "points": ([(2, 4), (8, 4), (4, 2), (0, 0)], [0, 3]),
    "areas": ([shapely.box(2, 2, 3, 3), shapely.box(5, 5, 8, 8), shapely.box(3, 0, 6, 1)], [0, 2]),
    "lines": ([shapely.LineString([(8, 8), (6, 6)]), shapely.LineString([(0, 1), (8, 1)])], [1]),
    "none of them": ([(8, 4), (4, 2)], []),
}


@pytest.mark.parametrize("cost", ["friction", "eikonal"])
@pytest.mark.parametrize("kind", GIVEN)
def test_unreached_points_are_skipped_on_demand(kind: str, cost: str) -> None:
    points, reached = GIVEN[kind]
    eikonal = {"cost": "eikonal", "outputs": ("cost",)} if cost == "eikonal" else {}
    _, result = split(**eikonal)
    for given in ({}, {"unreachable": "error"}):
        with pytest.raises(og.InputError, match=r"^points: .*cells that were not reached"):
            og.least_cost_path(result, points, **given)
    paths = og.least_cost_path(result, points, unreachable="skip")
    assert paths.unreachable == len(points) - len(reached)
    assert paths.outside is None
    assert [path.point for path in paths] == reached
    alone = [og.least_cost_path(result, [points[place]])[0] for place in reached]
    assert list(paths) == alone
    assert og.least_cost_path(result, [points[n] for n in reached] or [(0, 0)]).unreachable is None


def test_names_snapping_and_points_outside_go_on(tmp_path: Path) -> None:
    geopandas = pytest.importorskip("geopandas")
    _, result = split()
    places = [(8, 4), (20, 3), (2, 4), (4, 2)]
    frame = geopandas.GeoDataFrame({"n": list("abcd")}, geometry=[*map(shapely.Point, places)])
    paths = og.least_cost_path(result, places, snap=1, outside="skip", unreachable="skip")
    assert (paths.outside, paths.unreachable) == (1, 1)
    assert [path.point for path in paths] == [2, 3]
    named = og.least_cost_path(
        result, list(frame.geometry), snap=1, outside="skip", unreachable="skip"
    )
    assert list(named) == list(paths)


def test_the_shell_skips_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    friction, _ = split()
    og.cost_distance(friction, [(1, 4)], outputs=BOTH, out=tmp_path / "cost.zarr")
    command = ["least_cost_path", str(tmp_path / "cost.zarr"), "--point", "2", "4"]
    command += ["--point", "8", "4"]
    assert main([*command, "--unreachable", "skip"]) in (0, None)
    told = capsys.readouterr()
    assert "unreachable points: 1" in told.err
    assert told.out.count("cost") == 1
