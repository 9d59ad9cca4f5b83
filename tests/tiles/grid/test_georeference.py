"""Georeferences: what rioxarray, rasterio and pyproj say of the same grid."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import pytest
import rasterio
import rioxarray
import xarray as xr
from affine import Affine
from rasterio.crs import CRS

import orograph as og
from orograph.tiles.errors import InputError
from orograph.tiles.grid.cf import georeference_of
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.lengths import step_lengths

UTM = Affine(30.0, 0.0, 376313.6554542635, 0.0, -30.0, 3807917.8276283755)
DEGREES = Affine(1 / 10800, 0.0, -79.1561403493824, 0.0, -1 / 10800, 36.23914490223779)


def write_tiff(path: Path, transform: Affine, crs: str | None, shape: tuple[int, int] = (7, 5)):
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        height=shape[0],
        width=shape[1],
        count=1,
        dtype="float32",
        transform=transform,
        crs=crs,
    ) as target:
        target.write(np.arange(shape[0] * shape[1], dtype="f4").reshape(shape), 1)
    return path


def georeference_of_file(path: Path) -> Georeference:
    with rasterio.open(path) as dataset:
        return Georeference.from_rasterio(dataset)


def assert_as_rioxarray(place: Georeference, theirs: xr.DataArray) -> None:
    ours = xr.DataArray(theirs.values, dims=("y", "x"), coords=place.coords())
    assert ours.y.values.tobytes() == theirs.y.values.tobytes()
    assert ours.x.values.tobytes() == theirs.x.values.tobytes()
    assert ours.spatial_ref.attrs == theirs.spatial_ref.attrs
    assert ours.rio.crs == theirs.rio.crs
    assert ours.rio.transform() == theirs.rio.transform()


@pytest.mark.parametrize(
    ("transform", "crs"),
    [
        pytest.param(UTM, "EPSG:32611", id="projected"),
        pytest.param(DEGREES, "EPSG:4269", id="in degrees, where rounding shows"),
        pytest.param(UTM, None, id="without a CRS"),
        pytest.param(Affine(10.0, 0, 0.1, 0, 20.0, 0.3), "EPSG:3857", id="rows going north"),
    ],
)
def test_file_is_placed_as_by_rioxarray(tmp_path: Path, transform: Affine, crs: str) -> None:
    path = write_tiff(tmp_path / "a.tif", transform, crs)
    theirs = rioxarray.open_rasterio(path).squeeze("band", drop=True)
    place = georeference_of_file(path)
    assert place.transform == transform
    assert_as_rioxarray(place, theirs)
    assert_as_rioxarray(georeference_of(theirs), theirs)
    assert place.cell_size == (abs(transform.e), abs(transform.a))


def test_real_files_are_placed_as_by_rioxarray(shared_data: Path) -> None:
    names = sorted(path for path in (shared_data / "dem").glob("*.tif"))
    assert len(names) >= 6
    for path in names:
        theirs = rioxarray.open_rasterio(path).squeeze("band", drop=True)
        if theirs.size > 10**7:
            theirs = theirs.copy(data=np.broadcast_to(np.int16(0), theirs.shape))
        assert_as_rioxarray(georeference_of_file(path), theirs)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_file_without_place_is_in_cells(tmp_path: Path) -> None:
    path = write_tiff(tmp_path / "a.tif", Affine.identity(), None)
    place = georeference_of_file(path)
    assert place == Georeference()
    assert place.coords() == {}
    assert place.transform is None
    assert place.cell_size is None
    assert not place.is_geographic


def test_transform_left_behind_by_a_slice_is_computed_anew(tmp_path: Path) -> None:
    path = write_tiff(tmp_path / "a.tif", UTM, "EPSG:32611")
    sliced = rioxarray.open_rasterio(path).squeeze("band", drop=True)[3:, 2:]
    assert sliced.spatial_ref.attrs["GeoTransform"].startswith("376313.")  # the stale one
    place = georeference_of(sliced)
    expected = UTM @ Affine.translation(2, 3)
    assert place.transform is not None
    assert place.transform.almost_equals(expected, precision=1e-6)
    assert place.cell_size == pytest.approx((30.0, 30.0))


def test_coordinates_are_made_from_the_transform_where_they_are_left_out(tmp_path: Path) -> None:
    path = write_tiff(tmp_path / "a.tif", UTM, "EPSG:32611")
    bare = rioxarray.open_rasterio(path, parse_coordinates=False).squeeze("band", drop=True)
    assert "y" not in bare.coords
    assert georeference_of(bare) == georeference_of_file(path)


def test_crs_of_a_cf_grid_mapping_without_wkt_is_found() -> None:
    array = xr.DataArray(
        np.zeros((3, 4)),
        dims=("lat", "lon"),
        coords={"lat": [3.0, 2.0, 1.0], "lon": [5.0, 6.0, 7.0, 8.0]},
        attrs={"grid_mapping": "crs"},
    ).assign_coords(
        crs=xr.Variable(
            (),
            0,
            {
                "grid_mapping_name": "latitude_longitude",
                "semi_major_axis": 6378137.0,
                "inverse_flattening": 298.257223563,
            },
        )
    )
    place = georeference_of(array)
    assert (place.y_name, place.x_name) == ("lat", "lon")
    assert place.is_geographic


@pytest.mark.filterwarnings("ignore:It is recommended to use 'rio.write_crs:FutureWarning")
def test_crs_set_in_the_accessor_of_rioxarray_is_found() -> None:
    array = xr.DataArray(np.zeros((3, 4)), {"y": [9, 8, 7], "x": [1, 2, 3, 4]}, ("y", "x"))
    assert georeference_of(array).crs_wkt is None
    array.rio.set_crs("EPSG:3358")
    assert georeference_of(array).crs_wkt == CRS.from_epsg(3358).to_wkt()


@pytest.mark.parametrize(
    ("coordinate", "regular"),
    [
        pytest.param(np.arange(5) * 2.0, True, id="even"),
        pytest.param(np.array([0.0, 1.0, 2.0, 4.0, 5.0]), False, id="a row left out"),
        pytest.param(
            np.linspace(179, 180, 3600).astype(np.float32).astype(float), True, id="once float32"
        ),
    ],
)
def test_transform_is_given_only_for_even_coordinates(coordinate, regular: bool) -> None:
    place = Georeference(coordinate, np.arange(4.0))
    assert (place.transform is not None) == regular
    assert (place.cell_size is not None) == regular
    assert ("GeoTransform" in place.grid_mapping_attributes()) == regular


@pytest.mark.parametrize(
    ("y", "message"),
    [
        pytest.param([0.0, 1.0, 1.0, 2.0], r"y turns at index 1: 1.0 then 1.0", id="repeated"),
        pytest.param([0.0, 2.0, 1.0, 3.0], r"y turns at index 1: 2.0 then 1.0", id="to and fro"),
        pytest.param([0.0, np.nan, 1.0, 3.0], r"y\[1\] is nan", id="not finite"),
    ],
)
def test_coordinates_that_place_no_grid_are_refused(y: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Georeference(np.array(y), np.arange(3.0))


def test_one_axis_alone_is_refused() -> None:
    with pytest.raises(InputError, match="coordinates of x are missing"):
        Georeference(np.arange(3.0), None)


def test_number_of_coordinates_must_fit_the_grid() -> None:
    with pytest.raises(InputError, match="3 row and 4 column coordinates for 3 rows and 5 columns"):
        Georeference(np.arange(3.0), np.arange(4.0)).check_shape((3, 5), "a raster")


@pytest.mark.parametrize("rotation", [Affine.rotation(20.0), Affine.shear(10.0)])
def test_rotated_files_are_refused(tmp_path: Path, rotation: Affine) -> None:
    path = write_tiff(tmp_path / "turned.tif", UTM @ rotation, "EPSG:32611")
    with pytest.raises(InputError, match=r"turned\.tif.*rotated or sheared.*gdalwarp"):
        georeference_of_file(path)
    theirs = rioxarray.open_rasterio(path).squeeze("band", drop=True)
    with pytest.raises(InputError, match=r"rotated or sheared"):
        georeference_of(theirs)


def test_columns_before_rows_are_refused() -> None:
    array = xr.DataArray(np.zeros((3, 4)), dims=("lon", "lat"))
    with pytest.raises(InputError, match=r"\.transpose\('lat', 'lon'\)"):
        georeference_of(array)


@pytest.mark.parametrize(
    "attributes", [{"crs_wkt": "none"}, {"crs_wkt": "\ud800"}, {"grid_mapping_name": "none"}]
)
def test_a_crs_that_is_not_understood_is_refused(
    attributes: dict[str, str], tmp_path: Path
) -> None:
    axes = {"y": [1.0, 2.0], "x": [1.0, 2.0], "spatial_ref": ((), 0, attributes)}
    array = xr.DataArray(np.ones((2, 2)), axes, ("y", "x"))
    with pytest.raises(InputError, match=r"raster: its CRS is not understood .*; set another"):
        og.ingest(array, tmp_path / "a")
    with pytest.raises(InputError, match=r"raster: its CRS is not understood .*; set another"):
        og.cost_distance(array, [(1, 1)])
    with pytest.raises(InputError, match=r"CRS .*; set another"):
        og.to_geotiff(array, tmp_path / "a.tif")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", ["x", 1j, [(1, 2), 3], [1, 2, 3]])
def test_a_cell_size_of_other_things_than_numbers_is_refused(size: Any) -> None:
    with pytest.raises(InputError, match=r"cell_size: .*; give one side, or two: \(y, x\)"):
        step_lengths(Georeference(), (2, 2), size)


def test_coordinates_of_text_are_refused() -> None:
    array = xr.DataArray(np.zeros((2, 2)), {"y": ["a", "b"], "x": [1, 2]}, ("y", "x"))
    with pytest.raises(InputError, match=r"coordinate y .*\.drop_vars\('y'\)"):
        georeference_of(array)


def test_equal_places_are_equal_after_pickling() -> None:
    one = Georeference(np.arange(3.0), np.arange(4.0), None, y_attrs={"units": "m"})
    other = pickle.loads(pickle.dumps(one))
    assert one == other
    assert hash(one) == hash(other)
    assert one != Georeference(np.arange(3.0), np.arange(4.0))
    assert one != Georeference(np.arange(3.0) + 1e-9, np.arange(4.0), None, y_attrs={"units": "m"})


def test_a_crs_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    crs = {"crs_wkt": CRS.from_epsg(25833).to_wkt()}
    axes = {"y": [2.0, 1.0], "x": [1.0, 2.0], "spatial_ref": ((), 0, crs)}
    array = xr.DataArray(np.zeros((2, 2)), dims=("y", "x"), coords=axes)
    first = georeference_of(array)
    assert not first.in_degrees

    def refuse(*args: Any) -> None:
        raise AssertionError("parsed again")

    monkeypatch.setattr(pyproj.CRS, "from_user_input", refuse)
    again = georeference_of(array)
    assert again == first
    assert not again.in_degrees
    assert again.length_unit == first.length_unit
    assert again.grid_mapping_attributes() == first.grid_mapping_attributes()
