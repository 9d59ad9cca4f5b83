"""Tasks of analysts with files, one call a step, against oracles."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import rasterio.mask
import rioxarray
import shapely
import xarray as xr
from matplotlib import pyplot
from oracle_distance import cost_distance as expected_costs
from oracle_distance import list_steps, planar
from rasterio import features
from scipy import ndimage
from scipy.ndimage import label as label_components
from skimage.measure import find_contours

import orograph as og

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*lie below the stream"),
    pytest.mark.filterwarnings("ignore:.*links have no line"),
]

geopandas = pytest.importorskip("geopandas", reason="GeoPandas is not installed: orograph[vector]")
pytest.importorskip("pyogrio", reason="pyogrio is not installed: orograph[vector]")

CELL = 30.0
SHAPE = (24, 31)
VILLAGES = {"village": ["Au", "Egg", "Rain"]}
CELLS = [(2, 3), (20, 8), (12, 27)]


@pytest.fixture
def dem(tmp_path: Path) -> Path:
    """A GeoTIFF of heights."""
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    heights = 400 + 90 * np.sin(x / 5) * np.cos(y / 4)
    heights += np.random.default_rng(1).integers(0, 8, SHAPE)
    axes = {
        "y": 5_100_000 - CELL * np.arange(SHAPE[0]),
        "x": 600_000 + CELL * np.arange(SHAPE[1]),
    }
    raster = xr.DataArray(heights, axes, ("y", "x"), "elevation").rio.write_crs("EPSG:32632")
    return og.to_geotiff(raster, tmp_path / "dem.tif")


@pytest.fixture
def villages(dem: Path, tmp_path: Path) -> Path:
    """A GeoPackage of named points in another CRS."""
    grid: Any = rioxarray.open_rasterio(dem).squeeze()
    places = [(float(grid.x[column]), float(grid.y[row])) for row, column in CELLS]
    frame = geopandas.GeoDataFrame(VILLAGES, geometry=shapely.points(places), crs="EPSG:32632")
    frame.to_crs("EPSG:4326").to_file(tmp_path / "villages.gpkg")
    return tmp_path / "villages.gpkg"


def heights_of(dem: Path) -> Any:
    with rioxarray.open_rasterio(dem) as opened:
        return opened.values[0].copy()


def walking_seconds(heights: Any) -> Any:
    steps = list_steps(None, heights, cost="tobler", lengths=planar((CELL, CELL)))
    sources = [(row, column, number, 0.0) for number, (row, column) in enumerate(CELLS)]
    return expected_costs(steps, SHAPE, sources)


def test_walking_times_from_points_of_another_crs(
    dem: Path, villages: Path, tmp_path: Path
) -> None:
    walk = og.walking_time(dem, villages, out=tmp_path / "walk.nc")
    expected = walking_seconds(heights_of(dem)).cost
    np.testing.assert_allclose(walk["time"], expected, rtol=1e-13)
    with xr.open_dataset(tmp_path / "walk.nc", decode_coords="all") as found:
        assert found.rio.crs == "EPSG:32632"
        np.testing.assert_allclose(found["time"], expected, rtol=1e-13)
    axes = og.plot(walk["time"], sources=villages, basemap=dem)
    axes.figure.savefig(tmp_path / "walk.png")
    marked = next(line for line in axes.lines if line.get_label() == "source")
    places = geopandas.read_file(villages).to_crs("EPSG:32632").get_coordinates()
    np.testing.assert_allclose(marked.get_xydata(), places, rtol=0, atol=1e-3)
    colours: Any = next(image for image in axes.images if image.colorbar is not None)
    left, right, bottom, top = colours.get_extent()
    grid: Any = walk.rio.bounds()
    np.testing.assert_allclose((left, bottom, right, top), grid, rtol=0, atol=1e-6)
    np.testing.assert_allclose(colours.get_array().max(), expected.max(), rtol=1e-6)
    pyplot.close("all")


def test_allocation_of_areas_and_statistics_by_zone(dem: Path, tmp_path: Path) -> None:
    x, y = 600_000 + CELL * np.array([4, 15, 27]), 5_100_000 - CELL * np.array([5, 18, 9])
    areas = shapely.box(x - 70, y - 50, x + 55, y + 65)
    frame = geopandas.GeoDataFrame({"park": [70, 5, 12]}, geometry=areas, crs="EPSG:32632")
    frame.to_crs("EPSG:4326").to_file(tmp_path / "parks.fgb")
    outputs = ("time", "allocation")
    walk = og.walking_time(dem, tmp_path / "parks.fgb", label="park", outputs=outputs)
    zones = og.polygonize(walk["allocation"], out=tmp_path / "zones.gpkg")
    grid: Any = rioxarray.open_rasterio(dem).squeeze(drop=True)
    of_zones = xr.Dataset({"height": grid, "time": walk["time"]}).groupby(walk["allocation"])
    means, most = of_zones.mean(), of_zones.max()
    # GDAL burns the areas, SciPy finds the ways and sums up
    burnt = features.rasterize(
        list(zip(areas, frame["park"], strict=True)), SHAPE, transform=grid.rio.transform()
    )
    cells = np.argwhere(burnt)
    sources = [(*cell, int(burnt[tuple(cell)]), 0.0) for cell in cells.tolist()]
    steps = list_steps(None, heights_of(dem), cost="tobler", lengths=planar((CELL, CELL)))
    expected = expected_costs(steps, SHAPE, sources)
    assert np.array_equal(walk["allocation"], expected.allocation)
    labels = [5, 12, 70]
    for name, values in (("height", heights_of(dem)), ("time", expected.cost)):
        found = means[name].sel(allocation=labels)
        np.testing.assert_allclose(found, ndimage.mean(values, expected.allocation, labels))
        found = most[name].sel(allocation=labels)
        np.testing.assert_allclose(found, ndimage.maximum(values, expected.allocation, labels))
    stored = geopandas.read_file(tmp_path / "zones.gpkg").set_index("label")
    assert len(zones) == 3
    cells_in = np.bincount(expected.allocation.ravel())[labels]
    np.testing.assert_allclose(stored.area.loc[labels], cells_in * CELL**2)


def test_cut_clip_reproject_and_go_on(dem: Path, villages: Path, tmp_path: Path) -> None:
    grid: Any = rioxarray.open_rasterio(dem, masked=True).squeeze(drop=True)
    box = grid.rio.clip_box(600_100, 5_099_400, 600_800, 5_099_950)
    area = shapely.Point(600_450, 5_099_700).buffer(260)
    clipped = box.rio.clip([area])
    start = [(600_450, 5_099_700)]
    walk = og.walking_time(clipped, start)
    # the same cut by GDAL
    with rasterio.open(dem) as opened:
        cut, transform = rasterio.mask.mask(opened, [area], crop=True, nodata=np.nan)
    column, row = (int(number) for number in ~transform * start[0])
    steps = list_steps(None, cut[0], cost="tobler", lengths=planar((CELL, CELL)))
    inside = expected_costs(steps, cut[0].shape, [(row, column, 0, 0.0)]).cost
    count = int(np.isfinite(cut[0]).sum())
    assert walk["time"].count() == count > 100
    np.testing.assert_allclose(
        np.sort(walk["time"].values, axis=None)[:count],
        np.sort(inside, axis=None)[:count],
        rtol=1e-12,
    )
    moved = walk["time"].rio.reproject("EPSG:25833", resolution=25.0)
    og.to_file(moved, tmp_path / "moved.tif")
    bands = og.isochrones(moved, [60, 120], out=tmp_path / "bands.gpkg")
    with rasterio.open(tmp_path / "moved.tif") as opened:
        assert opened.crs == "EPSG:25833"
        assert opened.transform.almost_equals(moved.rio.transform())
        assert np.array_equal(opened.read(1), moved, equal_nan=True)
    near = geopandas.read_file(tmp_path / "bands.gpkg")
    assert near.crs == "EPSG:25833"
    # scikit-image follows the same line
    (line, *_) = sorted(find_contours(moved.values, 60.0), key=len, reverse=True)
    x, y = moved.rio.transform() * (line[:, ::-1].T + 0.5)
    distance = shapely.distance(near.geometry[0].boundary, shapely.points(x, y))
    assert len(line) > 15
    assert distance.max() < 1e-6
    axes = og.plot(moved, sources=villages)
    og.plot(bands, ax=axes)
    assert "x [m]" in axes.get_xlabel() or "easting" in axes.get_xlabel()
    pyplot.close("all")
    frictions = moved * 0 + 1
    again = og.cost_distance(frictions, list(near.geometry[0].representative_point().coords))
    steps = list_steps(frictions.values, lengths=planar((25.0, 25.0)))
    (cell,) = np.argwhere(again["cost"].values == 0).tolist()
    expected = expected_costs(steps, moved.shape, [(*cell, 0, 0.0)]).cost
    np.testing.assert_allclose(again["cost"], np.where(np.isfinite(expected), expected, np.nan))


def test_roads_from_a_geopackage_lead_over_terrain(
    dem: Path, villages: Path, tmp_path: Path
) -> None:
    grid: Any = rioxarray.open_rasterio(dem).squeeze(drop=True)
    row = [(float(x), float(grid.y[12])) for x in grid.x[[3, 27]]]
    column = [(float(grid.x[15]), float(y)) for y in grid.y[[2, 21]]]
    roads = geopandas.GeoDataFrame(
        {"highway": ["secondary", "track"], "kmh": [60.0, 20.0]},
        geometry=[shapely.LineString(row), shapely.LineString(column)],
        crs="EPSG:32632",
    )
    roads.to_file(tmp_path / "roads.gpkg")
    links = og.roads(tmp_path / "roads.gpkg", like=dem, speed="kmh")
    drive = og.walking_time(dem, villages, links=links)
    # networkx: steps over the ground, and along the roads from cell to cell
    network = networkx.DiGraph()
    for steps in list_steps(None, heights_of(dem), cost="tobler", lengths=planar((CELL, CELL))):
        ends = zip(steps.tail.tolist(), steps.head.tolist(), steps.weight.tolist(), strict=True)
        network.add_weighted_edges_from(ends)
    along = [(12, c) for c in range(3, 28)], [(r, 15) for r in range(2, 22)]
    for cells, kmh in zip(along, (60.0, 20.0), strict=True):
        seconds = CELL / (kmh / 3.6)
        for one, other in pairwise(row * SHAPE[1] + column for row, column in cells):
            for edge in ((one, other), (other, one)):
                known = network.edges[edge]["weight"]
                network.add_edge(*edge, weight=min(seconds, known))
    starts = {row * SHAPE[1] + column for row, column in CELLS}
    expected = networkx.multi_source_dijkstra_path_length(network, starts)
    found = drive["time"].values.ravel()
    np.testing.assert_allclose(found, [expected[cell] for cell in range(found.size)], rtol=1e-12)
    assert (drive["time"] < og.walking_time(dem, villages)["time"]).sum() > 100


def test_paths_go_into_a_geopackage_with_the_names_of_both_ends(
    dem: Path, villages: Path, tmp_path: Path
) -> None:
    outputs = ("time", "back_direction", "allocation")
    walk = og.walking_time(dem, villages, label="village", outputs=outputs)
    paths = og.least_cost_path(walk, villages, label="village")
    og.to_file(paths, tmp_path / "own.gpkg")
    own = geopandas.read_file(tmp_path / "own.gpkg")
    assert own["point"].tolist() == own["source"].tolist() == VILLAGES["village"]
    huts = geopandas.read_file(villages).to_crs("EPSG:32632")
    huts["geometry"] = huts.translate(5 * CELL, 0).where(huts["village"] != "Rain", huts.geometry)
    og.to_file(og.least_cost_path(walk, huts, label="village"), tmp_path / "huts.gpkg")
    found = geopandas.read_file(tmp_path / "huts.gpkg")
    served = walking_seconds(heights_of(dem)).allocation
    for (row, column), source, village in zip(CELLS, found["source"], found["point"], strict=True):
        aside = 0 if village == "Rain" else 5
        assert source == VILLAGES["village"][served[row, column + aside]]
    assert found.crs == "EPSG:32632"


def test_hours_and_isochrones(dem: Path, villages: Path, tmp_path: Path) -> None:
    walk = og.walking_time(dem, villages, out=tmp_path / "walk.zarr")
    seconds = walking_seconds(heights_of(dem)).cost
    hours = og.convert_units(tmp_path / "walk.zarr", "h")
    np.testing.assert_allclose(hours["time"], seconds / 3600, rtol=1e-13)
    assert hours["time"].attrs["units"] == "h"
    bands = og.isochrones(walk["time"], [0.05, 0.1, 0.2], unit="h")
    og.to_file(bands, tmp_path / "bands.gpkg")
    found = geopandas.read_file(tmp_path / "bands.gpkg")
    assert found["upper"].tolist() == [0.05, 0.1, 0.2]
    grid: Any = walk["time"]
    inside = (seconds < 0.2 * 3600 * 0.98) | (seconds > 0.2 * 3600 * 1.02)
    x, y = np.meshgrid(grid.x, grid.y)
    covered = shapely.intersects_xy(shapely.union_all(found.geometry), x, y)
    assert np.array_equal(covered[inside], (seconds < 0.2 * 3600)[inside])


LARGE = """
import resource, sys
import dask.array as da, numpy as np, xarray as xr
import orograph as og

GATE = 100  # the one way through a wall across the middle


def friction(block_info=None):
    (top, bottom), (left, right) = block_info[None]["array-location"]
    cells, wall = np.ones((bottom - top, right - left)), side // 2
    if top <= wall < bottom:
        cells[wall - top] = np.nan
        if left <= GATE < right:
            cells[wall - top, GATE - left] = 1
    return cells


def is_right(cost, block_info=None):
    (top, bottom), (left, right) = block_info[0]["array-location"]
    y, x = np.arange(top, bottom)[:, None], np.arange(left, right)
    near, far = y + (side - 1 - x), (side - 1 - GATE) + y + abs(x - GATE)
    wanted = np.where(y < side // 2, near, far).astype(float)
    wanted[(y == side // 2) & (x != GATE)] = np.nan
    return np.array([[np.array_equal(cost, wanted, equal_nan=True)]])


def all_right():
    chunks = da.core.normalize_chunks(1024, (side, side))
    raster = da.map_blocks(friction, chunks=chunks, dtype=np.float64)
    raster = xr.DataArray(raster, dims=("y", "x"))
    later = og.cost_distance.lazy(
        raster, [(side - 1, 0)], connectivity=4, tile=256, shard=1024
    )["cost"].data
    ones = tuple((1,) * len(part) for part in later.chunks)
    return bool(da.map_blocks(is_right, later, dtype=bool, chunks=ones).all().compute())


side = 1500  # imports and compiles
assert all_right()
(used,) = [int(line.split()[1]) for line in open("/proc/self/status") if line[:6] == "VmData"]
limit = used * 1024 + 600 * 2**20
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
side = int(sys.argv[1])
assert limit < side**2 * 8, (limit, side)
print(all_right())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces a limit of memory")
def test_a_raster_larger_than_memory_lazily() -> None:
    small = {"OROGRAPH_FIELD": "512", "OROGRAPH_THREADS": "2", "MALLOC_ARENA_MAX": "2"}
    done = subprocess.run(
        [sys.executable, "-c", LARGE, "13500"],
        env={**os.environ, **small},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "True\n", done.stderr


def test_filled_ground_and_peaks(dem: Path, tmp_path: Path) -> None:
    from skimage.morphology import reconstruction

    og.fill_depressions(dem, out=tmp_path / "filled.tif")
    og.peaks(dem, min_prominence=50, out=tmp_path / "peaks.geojson")
    heights = heights_of(dem)
    seed = np.full(SHAPE, heights.max())
    seed[[0, -1]], seed[:, [0, -1]] = heights[[0, -1]], heights[:, [0, -1]]
    assert np.array_equal(
        heights_of(tmp_path / "filled.tif"), reconstruction(seed, heights, method="erosion")
    )
    found = geopandas.read_file(tmp_path / "peaks.geojson").to_crs("EPSG:32632")
    # where no higher ground is reached without going down by 50
    lowered = reconstruction(heights - 50, heights)
    high = lowered + 50 == heights
    tops, count = label_components(high & (heights > lowered), np.ones((3, 3)))
    assert count == len(found) > 2
    columns = ((found.geometry.x - 600_000) / CELL).round().astype(int)
    rows = ((5_100_000 - found.geometry.y) / CELL).round().astype(int)
    assert sorted(tops[rows, columns]) == list(range(1, count + 1))


def test_components_as_a_table_and_as_polygons(dem: Path, tmp_path: Path) -> None:
    high = (heights_of(dem) > 430).astype(np.uint8)
    grid: Any = rioxarray.open_rasterio(dem).squeeze(drop=True)
    classes = grid.copy(data=high)
    found = og.connected_components(classes, out=tmp_path / "parts.zarr")
    og.to_file(og.component_table(found), tmp_path / "parts.csv")
    areas = og.polygonize(found["labels"], nodata=0).to_geodataframe().set_index("label")
    expected, count = label_components(high, np.ones((3, 3)))
    table = og.to_geodataframe(og.component_table(found)).set_index("label")
    assert len(areas) == len(table) == count
    assert sorted(table["cells"]) == sorted(np.bincount(expected.ravel())[1:])
    assert np.array_equal(areas.area, table["area"])
    assert np.array_equal(table["area"], table["cells"] * CELL**2)


def test_an_index_of_named_villages_and_a_bridge(dem: Path, tmp_path: Path) -> None:
    cells = np.random.default_rng(4).permutation(SHAPE[0] * SHAPE[1])
    places = [divmod(int(cell), SHAPE[1]) for cell in cells if cell % SHAPE[1] != 15][:50]
    names = [f"Village {number}" for number in range(50)]
    friction: Any = rioxarray.open_rasterio(dem).squeeze(drop=True)
    friction = friction.copy(data=np.ones(SHAPE))
    friction[:, 15] = np.nan  # a river
    index = og.DistanceIndex.build(friction, tmp_path / "index.zarr", block=8)
    at = [(float(friction.x[column]), float(friction.y[row])) for row, column in places]
    frame = geopandas.GeoDataFrame(
        {"village": names}, geometry=shapely.points(at), crs="EPSG:32632"
    )
    frame.to_crs("EPSG:4326").to_file(tmp_path / "fifty.gpkg")
    before = index.distance_matrix(tmp_path / "fifty.gpkg", label="village")
    west = np.array([column < 15 for _, column in places])
    assert 10 < west.sum() < 40
    assert np.array_equal(np.isinf(before), west[:, None] != west)
    x, y = float(friction.x[15]), float(friction.y[12])
    bridge = shapely.LineString([(x - CELL, y), (x + CELL, y)])
    index.update(bridge, 0.5)
    after = index.distance_matrix(tmp_path / "fifty.gpkg", label="village")
    friction[12, 14:17] = 0.5
    steps = list_steps(friction.values, lengths=planar((CELL, CELL)))
    rows, columns = np.array(places).T
    for name, (row, column) in zip(names, places, strict=True):
        expected = expected_costs(steps, SHAPE, [(row, column, 0, 0.0)]).cost
        found = after.sel({"from": name}).sel(to=names)
        np.testing.assert_allclose(found, expected[rows, columns], rtol=1e-12)
