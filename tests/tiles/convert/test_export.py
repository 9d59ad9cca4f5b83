"""GeoTIFF export, read back by rasterio and rioxarray."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rioxarray
import xarray as xr
from affine import Affine
from rasterio.crs import CRS

from orograph.tiles.convert import export as exporting
from orograph.tiles.convert.export import to_geotiff
from orograph.tiles.convert.ingest import ingest
from orograph.tiles.errors import InputError, StoreExistsError
from orograph.tiles.grid.crs import parse_crs, same_crs
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.store.create import Layout, Variable, create_store
from orograph.tiles.store.dataset import open as open_dataset
from orograph.tiles.store.publish import partial_path, publish
from orograph.tiles.store.sink import StoreSink

NOT_PLACED = "ignore::rasterio.errors.NotGeoreferencedWarning"


def crs_written_by_rasterio(crs: CRS) -> CRS:
    """GDAL may know a CRS by another text once it has been in a GeoTIFF."""
    with rasterio.MemoryFile() as file:
        shape = {"height": 1, "width": 1, "count": 1, "dtype": "uint8"}
        place = Affine(2, 0, 0, 0, -2, 0)
        with file.open(driver="GTiff", crs=crs, transform=place, **shape) as target:
            target.write(np.zeros((1, 1, 1), "u1"))
        with file.open() as written:
            return written.crs


@pytest.mark.parametrize(
    "name",
    ["nc_eno", "nc_fortbragg_2012", "srtm_bigtujunga30m_utm11", "california_clipped_500x500"],
)
def test_real_rasters_make_the_round_trip(shared_data: Path, tmp_path: Path, name: str) -> None:
    source = shared_data / "dem" / f"{name}.tif"
    ingest(source, tmp_path / "a.zarr", tile=100)
    assert to_geotiff(tmp_path / "a.zarr", tmp_path / "a.tif") == tmp_path / "a.tif"
    with rasterio.open(source) as theirs, rasterio.open(tmp_path / "a.tif") as ours:
        assert ours.read().tobytes() == theirs.read().tobytes()
        assert ours.crs == crs_written_by_rasterio(theirs.crs)
        assert ours.transform == theirs.transform
        assert ours.nodata == theirs.nodata
        assert ours.dtypes == theirs.dtypes
        assert ours.profile["tiled"]
        assert ours.compression.name == "deflate"
        assert ours.descriptions[0] == theirs.descriptions[0] or theirs.descriptions[0] is None


@pytest.mark.parametrize(
    ("given", "read"),
    [
        *[("OGC:CRS84", "EPSG:4326"), ("OGC:CRS83", "EPSG:4269"), ("OGC:CRS27", "EPSG:4267")],
        *[("EPSG:4326", "EPSG:4326"), ("EPSG:3035", "EPSG:3035"), ("ESRI:54009", "ESRI:54009")],
    ],
)
def test_all_of_a_raster_is_read_back(tmp_path: Path, given: str, read: str) -> None:
    cells = np.random.default_rng(0).random((5, 7)).astype("f4")
    # x and y of different size: an order of axes that is turned would show
    place = Georeference.from_geotransform((-84.5, 0.25, 0.0, 36.75, 0.0, -0.125), cells.shape)
    array = xr.DataArray(cells, place.coords(), ("y", "x"), attrs={"_FillValue": -9999.0})
    array = array.rio.write_crs(given)
    to_geotiff(array, tmp_path / "a.tif")
    with rasterio.open(tmp_path / "a.tif") as ours:
        assert ours.crs == CRS.from_string(read)
        assert ours.transform == Affine(0.25, 0, -84.5, 0, -0.125, 36.75)
        assert (ours.dtypes, ours.nodata) == (("float32",), -9999.0)
        np.testing.assert_array_equal(ours.read(1), cells)
    back = open_raster(tmp_path / "a.tif")
    assert same_crs(*(parse_crs(crs, "crs") for crs in (back.georeference.crs_wkt, given)))
    again = open_raster(to_geotiff(back, tmp_path / "b.tif"))
    assert again.georeference.crs_wkt == back.georeference.crs_wkt


@pytest.mark.parametrize(
    ("lost", "says"),
    [
        ({"crs_wkt": None}, r"does not keep its CRS \('PROJCS.*set another"),
        (
            {"geotransform": None, "x": np.arange(3.0) + 9},
            r"coordinates \(10.0, .* read back from a GeoTIFF as \(1.0, ",
        ),
    ],
)
def test_a_place_that_the_file_does_not_keep_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: dict[str, Any], says: str
) -> None:
    place = Georeference.from_geotransform((500.0, 10.0, 0.0, 900.0, 0.0, -10.0), (3, 3))
    array = xr.DataArray(np.zeros((3, 3)), place.coords(), ("y", "x")).rio.write_crs("EPSG:32633")
    opened = exporting.FileRaster

    def poorer(path: Path) -> Any:
        raster = opened(path)
        raster.georeference = replace(raster.georeference, **lost)
        return raster

    monkeypatch.setattr(exporting, "FileRaster", poorer)
    with pytest.raises(InputError, match=says):
        to_geotiff(array, tmp_path / "a.tif")
    assert os.listdir(tmp_path) == []


@pytest.mark.filterwarnings(NOT_PLACED)
def test_a_file_url_names_a_file(tmp_path: Path) -> None:
    assert to_geotiff(np.ones((3, 3)), (tmp_path / "a b.tif").as_uri()) == tmp_path / "a b.tif"
    assert open_raster(tmp_path / "a b.tif").read(Window(0, 0, 3, 3)).all()
    with pytest.raises(StoreExistsError, match="pass overwrite=True"):
        to_geotiff(np.ones((3, 3)), (tmp_path / "a b.tif").as_uri())
    for url, says in (
        ("s3://b/a.tif", "it is on no file system"),
        ("file://far/a.tif", "no file of"),
    ):
        with pytest.raises(InputError, match=says):
            to_geotiff(np.ones((3, 3)), url)


@pytest.mark.filterwarnings(NOT_PLACED)
@pytest.mark.parametrize(
    ("dtype", "nodata"),
    [
        ("uint8", 255),
        ("int8", -128),
        ("int16", None),
        ("uint16", 0),
        ("int32", -1),
        ("uint32", 7),
        ("int64", 0),
        ("int64", -(2**53) - 1),
        ("int64", 10**17),
        ("int64", -(2**63)),
        ("int64", 2**63 - 1),
        ("uint64", 0),
        ("uint64", 2**64 - 1),
        ("float32", np.nan),
        ("float64", -9999.0),
    ],
)
def test_every_type_of_cell(tmp_path: Path, dtype: str, nodata: Any) -> None:
    cells = (np.random.default_rng(0).random((70, 33)) * 100).astype(dtype)
    array = xr.DataArray(cells, dims=("y", "x"), name="z", attrs={"units": "m"})
    if nodata is not None:
        array.attrs["_FillValue"] = np.dtype(dtype).type(nodata)
    to_geotiff(array, tmp_path / "a.tif")
    with rasterio.open(tmp_path / "a.tif") as ours:
        assert ours.dtypes == (dtype,)
        np.testing.assert_array_equal(ours.read(1), cells)
        assert ours.descriptions == ("z",)
        assert ours.units == ("m",)
    # rasterio tells nodata as a float64
    np.testing.assert_equal(open_raster(tmp_path / "a.tif").nodata, nodata)
    again = to_geotiff(tmp_path / "a.tif", tmp_path / "b.tif")
    np.testing.assert_equal(open_raster(again).nodata, nodata)


def test_a_nodata_value_that_integers_hold_exactly_hides_the_same_cells(tmp_path: Path) -> None:
    cells = np.array([[-(2**63), 1, -9], [5, -9, 3], [1, 7, 4]], np.int64)
    place = Georeference.from_geotransform((500.0, 10.0, 0.0, 900.0, 0.0, -10.0), cells.shape)
    array = xr.DataArray(cells, place.coords(), ("y", "x"), attrs={"_FillValue": cells[0, 0]})
    array = array.rio.write_crs("EPSG:32633")
    ours = open_raster(to_geotiff(array, tmp_path / "a.tif"))
    np.testing.assert_array_equal(ours.read(Window(0, 0, 3, 3)), cells)
    assert ours.nodata == -(2**63)
    with rasterio.open(tmp_path / "a.tif") as written:
        assert written.crs == CRS.from_epsg(32633)
        assert written.transform == Affine(10, 0, 500, 0, -10, 900)
        assert written.profile["tiled"]
        assert written.compression.name == "deflate"


def test_a_nodata_value_that_the_file_does_not_keep_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "EXACT_IN_FLOAT", 2**63)  # as rasterio would write it
    array = xr.DataArray(np.zeros((3, 3), "i8"), dims=("y", "x"), attrs={"_FillValue": 10**17})
    with pytest.raises(InputError, match=f"nodata={10**17} of int64 reads back .* as 1; give"):
        to_geotiff(array, tmp_path / "a.tif")
    assert os.listdir(tmp_path) == []


@pytest.mark.filterwarnings(NOT_PLACED)
def test_files_beside_the_one_to_write_are_left_alone(tmp_path: Path) -> None:
    beside = tmp_path / "z.tif.partial"
    to_geotiff(np.ones((3, 3)), beside)
    to_geotiff(beside, tmp_path / "z.tif")
    assert open_raster(beside).read(Window(0, 0, 3, 3)).all()
    assert open_raster(tmp_path / "z.tif").read(Window(0, 0, 3, 3)).all()
    # what a writer that was killed has left stands in nobody's way
    (tmp_path / "z.tif.partial").write_bytes(b"II*\0half")
    to_geotiff(np.zeros((3, 3)), tmp_path / "z.tif", overwrite=True)
    assert beside.read_bytes() == b"II*\0half"
    assert sorted(os.listdir(tmp_path)) == ["z.tif", "z.tif.partial"]


@pytest.mark.filterwarnings(NOT_PLACED)
def test_of_writers_of_one_file_one_writes(tmp_path: Path) -> None:
    def write(value: int) -> str | int:
        try:
            to_geotiff(np.full((700, 700), value), tmp_path / "z.tif", overwrite=True)
        except StoreExistsError as error:
            return str(error)
        return value

    with ThreadPoolExecutor(4) as pool:
        ends = list(pool.map(write, range(1, 9)))
    wrote = {end for end in ends if isinstance(end, int)}
    assert all("is being written by process" in end for end in ends if isinstance(end, str))
    cells = open_raster(tmp_path / "z.tif").read(Window(0, 0, 700, 700))
    assert cells.min() == cells.max()
    assert cells[0, 0] in wrote
    assert os.listdir(tmp_path) == ["z.tif"]


@pytest.mark.parametrize("side", [512, 1024])
def test_rasters_larger_than_what_is_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: int
) -> None:
    monkeypatch.setattr(exporting, "READ_SIDE", side)
    cells = np.random.default_rng(0).integers(0, 30, (1100, 1300)).astype("i2")
    place = Georeference.from_geotransform((500.0, 10.0, 0.0, 900.0, 0.0, 10.0), cells.shape)
    array = xr.DataArray(cells, dims=("y", "x"), coords=place.coords())
    to_geotiff(array, tmp_path / "a.tif")
    theirs = rioxarray.open_rasterio(tmp_path / "a.tif").squeeze("band", drop=True)
    np.testing.assert_array_equal(theirs, cells)
    np.testing.assert_array_equal(theirs.y, array.y)  # rows going north stay as they are
    np.testing.assert_array_equal(theirs.x, array.x)


@pytest.mark.filterwarnings(NOT_PLACED)
def test_one_variable_of_several(tmp_path: Path) -> None:
    partial = partial_path(tmp_path / "a.zarr")
    create_store(partial, (4, 4), Layout(2, 4), [Variable("a", "u1"), Variable("b", "f8")])
    for name, dtype in (("a", "u1"), ("b", "f8")):
        cells = np.arange(16).reshape(4, 4).astype(dtype)
        StoreSink(partial).write(name, Window(0, 0, 4, 4), cells)
    publish(partial, tmp_path / "a.zarr")
    with pytest.raises(InputError, match="variables a, b; pass variable='a'"):
        to_geotiff(tmp_path / "a.zarr", tmp_path / "a.tif")
    to_geotiff(tmp_path / "a.zarr", tmp_path / "a.tif", variable="b")
    with pytest.raises(InputError, match=r"2 rasters \(a, b\)"):
        to_geotiff(open_dataset(tmp_path / "a.zarr"), tmp_path / "c.tif")
    to_geotiff(open_dataset(tmp_path / "a.zarr"), tmp_path / "c.tif", variable="a")
    with rasterio.open(tmp_path / "a.tif") as b, rasterio.open(tmp_path / "c.tif") as a:
        assert (a.dtypes, b.dtypes) == (("uint8",), ("float64",))
        np.testing.assert_array_equal(a.read(1), b.read(1))


@pytest.mark.filterwarnings(NOT_PLACED)
def test_files_are_replaced_only_on_demand(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    to_geotiff(np.zeros((3, 3)), path)
    with pytest.raises(StoreExistsError, match="pass overwrite=True"):
        to_geotiff(np.ones((3, 3)), path)
    to_geotiff(np.ones((3, 3)), path, overwrite=True)
    with rasterio.open(path) as ours:
        assert (ours.read(1) == 1).all()
    with pytest.raises(InputError, match="path: 5; it must be a path"):
        to_geotiff(np.ones((3, 3)), 5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="is the source itself"):
        to_geotiff(path, path, overwrite=True)
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreExistsError, match="is not a file"):
        to_geotiff(np.ones((3, 3)), tmp_path / "folder", overwrite=True)
    with pytest.raises(InputError, match="missing does not exist; create it"):
        to_geotiff(np.ones((3, 3)), tmp_path / "missing" / "a.tif")
    assert sorted(os.listdir(tmp_path)) == ["a.tif", "folder"]


def test_cells_that_are_not_evenly_spaced_are_refused(tmp_path: Path) -> None:
    array = xr.DataArray(np.zeros((3, 3)), {"y": [1.0, 2.0, 9.0], "x": [1.0, 2.0, 3.0]}, ("y", "x"))
    with pytest.raises(InputError, match="not evenly spaced, which a GeoTIFF cannot say"):
        to_geotiff(array, tmp_path / "a.tif")
    assert os.listdir(tmp_path) == []


LIMITED = """
import resource, sys
import numpy as np
from orograph.tiles.errors import StorageFullError
from orograph.tiles.convert.export import to_geotiff
cells = np.random.default_rng(0).random((600, 600))
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
try:
    to_geotiff(cells, sys.argv[1])
except StorageFullError as error:
    print(error)
"""


def test_a_file_cut_short_by_a_limit_is_not_taken_for_whole(tmp_path: Path) -> None:
    # GDAL itself reports this on the standard error stream alone.
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path / "a.tif"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "does not read back as it was written" in done.stdout
    assert os.listdir(tmp_path) == []
