"""Lines and areas as ends of paths and targets of an index; what lies outside is skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import shapely
import xarray as xr
from oracle_distance import cost_distance as expected_costs
from oracle_distance import list_steps
from rasterio.features import rasterize

import orograph as og

geopandas = pytest.importorskip("geopandas", reason="GeoPandas is not installed: orograph[vector]")

SHAPE = (23, 31)
BOTH = ("cost", "back_direction", "allocation")
STARTS = np.array([(2.0, 3), (25, 20), (14, 1)])
AREAS = [
    shapely.box(5.6, 8.6, 11.4, 14.4),
    shapely.LineString([(17, 3), (26, 9)]),
    shapely.Polygon([(8.7, 11.6), (20.4, 12.3), (20.3, 19.7), (9.4, 20.3)]),  # over the first
    shapely.box(28.6, 0.6, 29.4, 1.4),
]
BEYOND = shapely.box(60, 60, 70, 70)


def friction() -> xr.DataArray:
    cells = np.random.default_rng(9).integers(1, 30, SHAPE).astype(np.float64)
    cells[10, 7:9] = np.nan
    axes = {"y": np.arange(float(SHAPE[0])), "x": np.arange(float(SHAPE[1]))}
    return xr.DataArray(cells, axes, ("y", "x")).rio.write_crs("EPSG:32633")


def layer(*geometries: Any) -> Any:
    """Geometries in another CRS, with names."""
    names = [f"area {number}" for number in range(len(geometries))]
    frame = geopandas.GeoDataFrame({"name": names}, geometry=list(geometries), crs="EPSG:32633")
    return frame.to_crs("EPSG:3857")


def covered(geometry: Any) -> Any:
    """The cells of a geometry by GDAL, of lines by the cells they pass."""
    transform = friction().rio.transform()
    if geometry.geom_type == "LineString":
        cells = shapely.box(*(np.indices(SHAPE)[::-1] - 0.5), *(np.indices(SHAPE)[::-1] + 0.5))
        return shapely.intersects(cells, geometry)
    return rasterize([geometry], SHAPE, transform=transform).astype(bool)


def least(start: Any, geometry: Any) -> float:
    """The least cost from a point to the cells of a geometry, by SciPy."""
    column, row = (int(number) for number in start)
    steps = list_steps(friction().values)
    cost = expected_costs(steps, SHAPE, [(row, column, 0, 0.0)]).cost
    return float(np.nanmin(cost[covered(geometry)]))


@pytest.mark.parametrize("tile", [4, 32])
def test_from_an_area_leads_the_path_of_its_nearest_cell(tile: int, tmp_path: Path) -> None:
    out = tmp_path / "cost.zarr"
    result = og.cost_distance(friction(), STARTS, outputs=BOTH, tile=tile, out=out)
    paths = og.least_cost_path(out, layer(*AREAS), label="name")
    assert [path.point for path in paths] == [f"area {number}" for number in range(4)]
    for path, area in zip(paths, AREAS, strict=True):
        assert path.cost == pytest.approx(min(least(start, area) for start in STARTS))
        assert covered(area)[tuple(path.cells[0])]
        x, y = STARTS[path.source]
        assert path.cells[-1].tolist() == [y, x]
    bare = og.least_cost_path(result, AREAS)
    assert bare == paths
    assert bare.outside is None
    smooth = og.cost_distance(friction(), STARTS, cost="eikonal")
    for path, area in zip(og.least_cost_path(smooth, AREAS), AREAS, strict=True):
        assert path.cost == np.nanmin(smooth["cost"].values[covered(area)])


@pytest.mark.parametrize("block", [5, 64])
def test_targets_of_an_index_are_areas(block: int, tmp_path: Path) -> None:
    index = og.DistanceIndex.build(friction(), tmp_path / "index.zarr", block=block)
    expected = np.array([[least(start, area) for area in AREAS] for start in STARTS])
    table = index.distance_matrix(STARTS, layer(*AREAS))
    np.testing.assert_allclose(table, expected, rtol=1e-12)
    found = index.nearest(STARTS, 2, AREAS)
    assert np.array_equal(found["target"], np.argsort(expected, axis=1, kind="stable")[:, :2])
    np.testing.assert_allclose(found["cost"], np.sort(expected, axis=1)[:, :2], rtol=1e-12)
    more = index.nearest(STARTS, 1, layer(shapely.box(27.3, 0.6, 29.4, 1.4)), all_touched=True)
    wide = shapely.box(26.6, 0.6, 29.4, 1.4)
    np.testing.assert_allclose(more["cost"][:, 0], [least(start, wide) for start in STARTS])


def test_what_lies_outside_is_skipped_and_counted(tmp_path: Path) -> None:
    result = og.cost_distance(friction(), STARTS, outputs=BOTH)
    points = np.array([(-4.0, 2), (3, 5), (8, 99), (30, 22)])
    kept = [1, 3]
    paths = og.least_cost_path(result, points, outside="skip")
    assert paths == og.least_cost_path(result, points[kept])
    assert (paths.outside, [path.point for path in paths]) == (2, kept)
    smooth = og.cost_distance(friction(), STARTS, cost="eikonal")
    down = og.least_cost_path(smooth, points, outside="skip")
    assert down == og.least_cost_path(smooth, points[kept])
    ends = og.least_cost_path(result, layer(BEYOND, AREAS[0]), label="name", outside="skip")
    assert (ends.outside, [path.point for path in ends]) == (1, ["area 1"])
    index = og.DistanceIndex.build(friction(), tmp_path / "index.zarr", block=7)
    table = index.distance_matrix(points, [BEYOND, AREAS[0], AREAS[1]], outside="skip")
    assert (table.attrs["points_outside"], table.attrs["targets_outside"]) == (2, 1)
    assert (table["from"].values.tolist(), table["to"].values.tolist()) == (kept, [1, 2])
    assert np.array_equal(table, index.distance_matrix(points[kept], AREAS[:2]))
    near = index.nearest(points, 1, [BEYOND, AREAS[0], AREAS[1]], outside="skip")
    assert set(near["target"].values.ravel().tolist()) <= {1, 2}
    assert (near.attrs["points_outside"], near.attrs["targets_outside"]) == (2, 1)
    among = index.nearest(points, 1, outside="skip")
    assert among["target"].values.ravel().tolist() == kept[::-1]
    field = index.query(points, outside="skip")
    assert field.attrs["sources_outside"] == 2
    assert np.array_equal(field["cost"], index.query(points[kept])["cost"], equal_nan=True)
    assert "sources_outside" not in index.query(points[kept]).attrs


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda r, i: og.least_cost_path(r, [(99, 1)]), r"points: point 0 .*pass outside='skip'"),
        (lambda r, i: og.least_cost_path(r, [BEYOND, AREAS[0]]), "points: geometry 0, a Polygon"),
        (
            lambda r, i: og.least_cost_path(r, [AREAS[0], shapely.box(6.6, 9.6, 8.4, 10.4)]),
            r"points: geometry 1 covers only cells that were not reached",
        ),
        (lambda r, i: i.nearest(STARTS, 1, [BEYOND], outside="skip"), "targets: geometry 0"),
        (lambda r, i: i.query([(99, 1)], outside="skip"), "sources: all 1 points lie outside"),
        (lambda r, i: i.distance_matrix([(99, 1)]), "points: .*pass outside='skip'"),
        (lambda r, i: i.distance_matrix(AREAS), "points: geometry 0 is a Polygon; give points"),
    ],
    ids=[
        *("a point", "an area", "an area on nodata", "all areas", "all sources"),
        *("a point of an index", "areas as points of an index"),
    ],
)
def test_what_cannot_be_an_end_is_refused(ask: Any, said: str, tmp_path: Path) -> None:
    result = og.cost_distance(friction(), STARTS, outputs=BOTH)
    index = og.DistanceIndex.build(friction(), tmp_path / "index.zarr", block=7)
    with pytest.raises(og.InputError, match=said):
        ask(result, index)
