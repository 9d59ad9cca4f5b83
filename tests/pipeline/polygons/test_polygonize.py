"""Areas of equal labels as polygons: those of GDAL, valid, and the same for any tiling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pytest
import shapely
import xarray as xr
from affine import Affine
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pyproj import CRS
from rasterio import features
from terrain_cases import fractal, properties

import orograph as og

LABELS = hnp.arrays(
    st.sampled_from([np.int64, np.uint8, np.int16]),
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=14),
    elements=st.integers(0, 3),
)


def polygons_of_gdal(labels: np.ndarray) -> dict[int, list[shapely.Polygon]]:
    """The polygons of each label; cells are squares about their places."""
    found: dict[int, list[shapely.Polygon]] = {}
    half = Affine.translation(-0.5, -0.5)
    for shape, value in features.shapes(labels.astype(np.int32), connectivity=4, transform=half):
        found.setdefault(int(value), []).append(shapely.geometry.shape(shape))
    return found


@settings(properties, max_examples=80)
@given(LABELS, st.sampled_from([1, 2, 3, 7, 16]), st.sampled_from([None, 0]))
def test_any_tiling_gives_the_polygons_of_gdal(
    labels: np.ndarray, tile: int, nodata: int | None
) -> None:
    expected = polygons_of_gdal(labels)
    if nodata is not None:
        expected.pop(nodata, None)
    layer = og.polygonize(labels, parts=True, nodata=nodata, tile=tile)
    whole = og.polygonize(labels, parts=True, nodata=nodata)
    assert [area.wkb for area in layer.geometry] == [area.wkb for area in whole.geometry]
    np.testing.assert_array_equal(layer.columns["label"], whole.columns["label"])
    assert layer.columns["label"].dtype == labels.dtype
    assert shapely.is_valid(layer.geometry).all()
    found: dict[int, list[shapely.Polygon]] = {}
    for label, area in zip(layer.columns["label"].tolist(), layer.geometry, strict=True):
        assert area.exterior.is_ccw
        assert not any(ring.is_ccw for ring in area.interiors)
        found.setdefault(label, []).append(area)
    assert found.keys() == expected.keys()
    for label, areas in found.items():
        others = expected[label]
        assert len(areas) == len(others)
        for area in areas:  # GDAL's are invalid where a ring touches itself
            inner = shapely.point_on_surface(area)
            assert sum(shapely.make_valid(other).equals(area) for other in others) == 1, inner


@settings(properties, max_examples=20)
@given(LABELS)
def test_a_multipolygon_of_each_label_covers_its_cells(labels: np.ndarray) -> None:
    layer = og.polygonize(labels, tile=4)
    values, counts = np.unique(labels, return_counts=True)
    np.testing.assert_array_equal(layer.columns["label"], values)
    assert set(shapely.get_type_id(layer.geometry)) == {6}
    assert shapely.is_valid(layer.geometry).all()
    np.testing.assert_array_equal(shapely.area(layer.geometry), counts)
    # neighbours leave no gaps and do not overlap
    assert shapely.union_all(layer.geometry).equals(
        shapely.box(-0.5, -0.5, labels.shape[1] - 0.5, labels.shape[0] - 0.5)
    )


def test_a_region_around_regions_of_its_own_label() -> None:
    """Rings within rings, of which each hole belongs to the ring around it."""
    y, x = np.mgrid[-20:21, -20:21]
    labels = np.maximum(abs(y), abs(x)) // 3 % 2
    for tile in (5, 8, 64):
        layer = og.polygonize(labels, parts=True, tile=tile)
        assert len(layer) == 7
        areas = np.bincount(layer.columns["label"], shapely.area(layer.geometry))
        np.testing.assert_array_equal(areas, np.bincount(labels.ravel()))
        assert [len(area.interiors) for area in layer.geometry] == [1] * 6 + [0]


@pytest.mark.parametrize("flip", [1, -1])
def test_places_and_crs_are_those_of_the_raster(flip: int, tmp_path: Path) -> None:
    crs = xr.DataArray(0, attrs={"crs_wkt": CRS("EPSG:32633").to_wkt()})
    place = {"y": (5e6 + 20.0 * np.arange(3))[::flip], "x": 4e5 + 10.0 * np.arange(4)}
    labels = xr.DataArray(np.array([[7, 7, 1, 1], [7, 1, 1, 1], [7, 7, 1, 7]]), place, ("y", "x"))
    layer = og.polygonize(labels.assign_coords(spatial_ref=crs), tile=2)
    assert CRS(layer.crs) == CRS("EPSG:32633")
    assert all(part.exterior.is_ccw for area in layer.geometry for part in area.geoms)
    for label, area in zip(layer.columns["label"], layer.geometry, strict=True):
        assert area.area == 200 * (labels == label).sum()
    burnt = og.rasterize(layer, labels.assign_coords(spatial_ref=crs), label="label")
    np.testing.assert_array_equal(burnt, labels)
    layer.to_file(tmp_path / "areas.gpkg")


def test_coordinates_that_are_not_even_lie_between_cells() -> None:
    labels = xr.DataArray(np.array([[1, 2, 2]] * 2), {"y": [0, 1], "x": [0, 1, 10]}, ("y", "x"))
    bounds = shapely.bounds(og.polygonize(labels).geometry)
    np.testing.assert_array_equal(bounds[:, [0, 2]], [[-0.5, 0.5], [0.5, 14.5]])


def test_watersheds_on_a_cluster_and_in_memory(tmp_path: Path) -> None:
    flow = og.flow_direction(fractal(90), depressions="keep")
    sheds = og.watersheds(flow, tile=8, shard=32, out=tmp_path / "sheds.zarr")
    expected = og.polygonize(sheds["watershed"])
    with og.cluster(2, dashboard_address=None) as client:
        found = og.polygonize(tmp_path / "sheds.zarr", client=client)
    assert [area.wkb for area in found.geometry] == [area.wkb for area in expected.geometry]
    assert found.columns["label"].tolist() == list(range(1, len(found) + 1))


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (
            np.full((2, 3), 1.5, "f4"),
            r"labels: 1\.5 at row 0, column 0; .* whole numbers below 2\*\*62: round them first",
        ),
        (np.full((2, 3), 2.0**62), r"labels: 4\.6\d*e\+18 at row 0, column 0; .* below 2\*\*62"),
        (
            xr.DataArray(np.eye(1, 3, dtype=int), {"y": [0], "x": [0, 1, 2]}, ("y", "x")),
            "labels: a single row or column does not tell the size of its cells",
        ),
    ],
)
def test_what_has_no_areas_is_refused(labels: Any, sentence: str) -> None:
    with pytest.raises(og.InputError, match=sentence):
        og.polygonize(labels)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_whole_labels_may_be_floats(dtype: str, tmp_path: Path) -> None:
    labels = np.random.default_rng(4).integers(-3, 3, (30, 40))
    floats = np.where(labels == 0, np.nan, labels).astype(dtype)
    expected = og.polygonize(labels, nodata=0)
    lowest = np.nan_to_num(floats, nan=np.finfo(dtype).min)
    og.to_geotiff(xr.DataArray(floats), tmp_path / "a.tif")
    og.ingest(floats, tmp_path / "a.zarr", tile=8)
    for source, options in (
        (floats, {"tile": 7}),
        (lowest, {"nodata": float(np.finfo(dtype).min)}),
        (tmp_path / "a.tif", {}),
        (tmp_path / "a.zarr", {}),
    ):
        found = og.polygonize(source, **options)
        assert found.columns["label"].dtype == np.int64
        assert found.columns["label"].tolist() == expected.columns["label"].tolist()
        assert [area.wkb for area in found.geometry] == [area.wkb for area in expected.geometry]


def test_nothing_but_nodata_has_no_areas() -> None:
    assert len(og.polygonize(np.zeros((3, 4), int), nodata=0, tile=2)) == 0


def test_nodata_of_a_store_may_be_another(tmp_path: Path) -> None:
    cells = np.array([[0, 1, 1], [2, 0, 1]])
    og.ingest(cells, tmp_path / "a.zarr")
    found = og.polygonize(tmp_path / "a.zarr", nodata=0)
    assert found.columns["label"].tolist() == [1, 2]
    assert og.polygonize(tmp_path / "a.zarr").columns["label"].tolist() == [0, 1, 2]


def test_a_plan_is_of_the_raster_that_is_named(tmp_path: Path) -> None:
    both = xr.Dataset({name: (("y", "x"), np.eye(4, dtype=int)) for name in ("one", "other")})
    with pytest.raises(og.InputError, match="variable='one'"):
        og.polygonize.plan(both)
    assert og.polygonize.plan(both, variable="other").shape == (4, 4)


@pytest.mark.parametrize("count", [1, 3])
def test_names_of_labels(count: int, tmp_path: Path) -> None:
    """An allocation to named sources has their names, also from a store or a NetCDF file."""
    pytest.importorskip("netCDF4")
    names = ["north", "south", "east"][:count]
    points = geopandas.GeoDataFrame(
        {"village": names}, geometry=[shapely.Point(x, 2) for x in range(1, 1 + 2 * count, 2)]
    )
    outputs = ("time", "back_direction", "allocation")
    dem = xr.DataArray(np.zeros((4, 9)), {"y": np.arange(4.0), "x": np.arange(9.0)}, ("y", "x"))
    stored = og.walking_time(
        dem, points, label="village", outputs=outputs, cell_size=1, out=tmp_path / "walk.zarr"
    )
    og.to_file(stored, tmp_path / "walk.nc")
    with xr.open_dataset(tmp_path / "walk.nc", mask_and_scale=False) as from_file:
        for result in (stored, from_file):
            assert og.polygonize(result["allocation"]).columns["name"].tolist() == names
            (path,) = og.least_cost_path(result, [(1, 2)])
            assert path.source == names[0]
    apart = stored["allocation"].load().copy()
    apart[0, 0] = -1
    layer = og.polygonize(apart.drop_attrs().assign_attrs(source_names=names))
    assert layer.columns["name"].tolist() == [None, *names]
