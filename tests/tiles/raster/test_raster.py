"""Opening rasters: every kind of source, read by windows, and every refusal."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.array as da
import numpy as np
import pytest
import rasterio
import rioxarray
import xarray as xr
from affine import Affine
from rasterio.errors import RasterioIOError

from orograph.tiles.convert.ingest import ingest
from orograph.tiles.errors import DamagedChunkError, InputError
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import (
    CHOICE,
    ArrayRaster,
    FileRaster,
    LazyRaster,
    Raster,
    StoreRaster,
    open_raster,
)
from orograph.tiles.raster.unchanged import version_of
from orograph.tiles.store.create import Layout, Variable, create_store
from orograph.tiles.store.dataset import open as open_dataset
from orograph.tiles.store.publish import publish
from orograph.tiles.store.sink import StoreSink

CELLS = np.arange(35, dtype=np.float32).reshape(7, 5)
PART = Window(2, 1, 3, 4)
GRASS = """north: 30
south: 0
east: 40
west: 0
rows: 3
cols: 4
"""


def write_tiff(path: Path, cells: np.ndarray = CELLS, **options: Any) -> Path:
    bands = cells if cells.ndim == 3 else cells[None]
    profile = {
        "driver": "GTiff",
        "count": bands.shape[0],
        "height": bands.shape[1],
        "width": bands.shape[2],
        "dtype": bands.dtype,
        "transform": Affine(10, 0, 500, 0, -10, 900),
        "crs": "EPSG:32611",
    }
    with rasterio.open(path, "w", **(profile | options)) as target:
        target.write(bands)
    return path


def write_store(path: Path, cells: np.ndarray = CELLS) -> Path:
    create_store(path, cells.shape, Layout(2, 4), [Variable("z", cells.dtype)])
    for window in Layout(2, 4).windows(cells.shape):
        StoreSink(path).write("z", window, cells[window.slices])
    publish(path, path.with_suffix(".zarr"))
    return path.with_suffix(".zarr")


class OnGpu:
    """The face of a CuPy array: no implicit copies to the host, only ``get``."""

    __cuda_array_interface__: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, cells: np.ndarray) -> None:
        self.cells = cells
        self.shape, self.ndim, self.dtype = cells.shape, cells.ndim, cells.dtype

    def __array__(self, *args: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __getitem__(self, key: Any) -> OnGpu:
        return OnGpu(self.cells[key])

    def __array_function__(self, *args: Any) -> Any:
        raise NotImplementedError

    def __array_ufunc__(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError

    def get(self) -> np.ndarray:
        return self.cells


def as_netcdf(folder: Path) -> Path:
    path = folder / "a.nc"
    xr.DataArray(CELLS, dims=("y", "x"), name="z").to_netcdf(path)
    return path


def as_foreign_zarr(folder: Path) -> Path:
    path = folder / "foreign.zarr"
    xr.DataArray(CELLS, dims=("y", "x"), name="z").to_dataset().to_zarr(path, consolidated=False)
    return path


def as_esri_ascii(folder: Path) -> Path:
    path = folder / "a.asc"
    text = "\n".join(" ".join(str(value) for value in row) for row in CELLS)
    path.write_text(f"ncols 5\nnrows 7\nxllcorner 0\nyllcorner 0\ncellsize 10\n{text}\n")
    return path


SOURCES: list[tuple[str, type, Callable[[Path], Any]]] = [
    ("a NumPy array", ArrayRaster, lambda folder: CELLS),
    ("an array in Fortran order", ArrayRaster, lambda folder: np.asfortranarray(CELLS)),
    ("an array of the other byte order", ArrayRaster, lambda folder: CELLS.astype(">f4")),
    ("an array on a GPU", ArrayRaster, lambda folder: OnGpu(CELLS)),
    ("a DataArray", ArrayRaster, lambda folder: xr.DataArray(CELLS, dims=("y", "x"))),
    ("a DataArray on a GPU", ArrayRaster, lambda f: xr.DataArray(OnGpu(CELLS), dims=("y", "x"))),
    ("a Dask array", LazyRaster, lambda folder: da.from_array(CELLS, chunks=3)),
    (
        "a DataArray of Dask chunks",
        LazyRaster,
        lambda folder: xr.DataArray(da.from_array(CELLS[None], chunks=3), dims=("band", "y", "x")),
    ),
    ("a Dataset", ArrayRaster, lambda folder: xr.Dataset({"z": (("y", "x"), CELLS)})),
    ("a GeoTIFF", FileRaster, lambda folder: write_tiff(folder / "a.tif")),
    ("the name of a GeoTIFF", FileRaster, lambda folder: str(write_tiff(folder / "a.tif"))),
    (
        "a GeoTIFF opened by rioxarray",
        LazyRaster,
        lambda folder: rioxarray.open_rasterio(write_tiff(folder / "a.tif")),
    ),
    ("an Esri ASCII grid", FileRaster, as_esri_ascii),
    ("a NetCDF file", LazyRaster, as_netcdf),
    ("NetCDF opened by xarray", LazyRaster, lambda folder: xr.open_dataarray(as_netcdf(folder))),
    ("somebody else's Zarr store", LazyRaster, as_foreign_zarr),
    ("a store", StoreRaster, lambda folder: write_store(folder / "a")),
    ("a store opened", StoreRaster, lambda f: open_dataset(write_store(f / "a")).z),
    (
        "a store opened by tiles",
        StoreRaster,
        lambda f: open_dataset(write_store(f / "a"), chunks="tile").z,
    ),
]


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize(
    ("kind", "make"), [pytest.param(kind, make, id=name) for name, kind, make in SOURCES]
)
def test_every_source_reads_the_same_cells(
    tmp_path: Path, kind: type, make: Callable[[Path], Any]
) -> None:
    raster = open_raster(make(tmp_path))
    assert isinstance(raster, kind)
    assert raster.shape == (7, 5)
    assert raster.dtype == np.dtype("=f4")
    assert raster.bytes_per_cell == 4
    tiled = isinstance(raster, StoreRaster)
    assert (raster.tile, raster.shard) == ((2, 4) if tiled else (None, None))
    for window in (PART, Window(0, 0, 7, 5), Window(6, 4, 1, 1)):
        cells = raster.read(window)
        assert type(cells) is np.ndarray
        assert cells.flags.c_contiguous
        assert cells.dtype.isnative
        np.testing.assert_array_equal(cells, CELLS[window.slices])
    again = open_raster(raster)
    assert again is raster


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize(
    "make", [pytest.param(make, id=name) for name, _, make in SOURCES if "GPU" not in name]
)
def test_pickled_rasters_read_the_same_and_have_the_same_fingerprint(
    tmp_path: Path, make: Callable[[Path], Any]
) -> None:
    raster = open_raster(make(tmp_path))
    copy: Raster = pickle.loads(pickle.dumps(raster))
    np.testing.assert_array_equal(copy.read(PART), CELLS[PART.slices])
    assert copy.fingerprint() == raster.fingerprint()
    assert copy.georeference == raster.georeference


@pytest.mark.parametrize(
    "make", [pytest.param(make, id=name) for name, _, make in SOURCES if "GPU" not in name]
)
@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_windows_outside_the_grid_are_refused(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    raster = open_raster(make(tmp_path))
    for window in (Window(5, 0, 3, 2), Window(-1, 0, 2, 2), Window(1, 1, 0, 3)):
        with pytest.raises(InputError, match=r"not inside a grid of 7 x 5 cells; clip it"):
            raster.read(window)


def test_fingerprint_tells_other_cells_from_these(tmp_path: Path) -> None:
    changed = CELLS.copy()
    changed[3, 3] += 1
    assert open_raster(CELLS).fingerprint() == open_raster(CELLS.copy()).fingerprint()
    assert open_raster(CELLS).fingerprint() != open_raster(changed).fingerprint()
    assert open_raster(CELLS).fingerprint() != open_raster(CELLS, nodata=3).fingerprint()
    path = write_tiff(tmp_path / "a.tif")
    first = open_raster(path).fingerprint()
    assert first == open_raster(path).fingerprint()
    os.utime(path, ns=(1, 1))
    assert first != open_raster(path).fingerprint()
    lazy = rioxarray.open_rasterio(path)
    assert open_raster(lazy).fingerprint() != open_raster(lazy[:, ::-1]).fingerprint()
    chunked = xr.DataArray(da.from_array(CELLS, chunks=3), dims=("y", "x"))
    assert open_raster(chunked).fingerprint() != open_raster(chunked + 1).fingerprint()


def test_fingerprint_of_a_virtual_file_tells_its_parts(tmp_path: Path) -> None:
    part = write_tiff(tmp_path / "part.tif")
    vrt = tmp_path / "whole.vrt"
    vrt.write_text(
        '<VRTDataset rasterXSize="5" rasterYSize="7"><GeoTransform>0,1,0,0,0,-1</GeoTransform>'
        '<VRTRasterBand dataType="Float32" band="1"><SimpleSource>'
        '<SourceFilename relativeToVRT="1">part.tif</SourceFilename><SourceBand>1</SourceBand>'
        "</SimpleSource></VRTRasterBand></VRTDataset>"
    )
    first = open_raster(vrt).fingerprint()
    os.utime(part, ns=(1, 1))
    assert open_raster(vrt).fingerprint() != first


@pytest.mark.parametrize("make", [as_netcdf, as_foreign_zarr])
def test_fingerprint_of_a_path_that_xarray_reads_tells_its_files(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    path = make(tmp_path)
    first = open_raster(path).fingerprint()
    assert open_raster(path).fingerprint() == first
    chunk = path if path.is_file() else next(path.glob("z/c/*/*"))
    os.utime(chunk, ns=(1, 1))
    assert open_raster(path).fingerprint() != first


def test_lazy_sources_compute_only_the_window() -> None:
    computed: list[Any] = []

    def block(block_info: Any = None) -> np.ndarray:
        where = block_info[None]["array-location"]
        computed.append(where)
        return CELLS[tuple(slice(*ends) for ends in where)]

    chunks = ((3, 3, 1), (3, 2))
    lazy = da.map_blocks(block, chunks=chunks, dtype=CELLS.dtype, meta=np.empty((0, 0), "f4"))
    raster = open_raster(xr.DataArray(lazy, dims=("y", "x")))
    assert computed == []
    np.testing.assert_array_equal(raster.read(Window(3, 0, 2, 3)), CELLS[3:5, :3])
    assert computed == [[(3, 6), (0, 3)]]


def test_a_changed_array_of_a_store_is_not_taken_for_the_store(tmp_path: Path) -> None:
    opened = open_dataset(write_store(tmp_path / "a")).z
    assert isinstance(open_raster(opened), StoreRaster)
    for changed in (opened + 1, opened[1:], opened[::-1], opened.assign_attrs(_FillValue=3.0)):
        raster = open_raster(changed)
        assert isinstance(raster, LazyRaster)
        window = Window(0, 0, *raster.shape)
        np.testing.assert_array_equal(raster.read(window), changed.values)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        pytest.param("bool", "uint8", id="bool becomes uint8"),
        pytest.param("float16", "float32", id="float16 becomes float32"),
        *[
            pytest.param(name, name, id=f"{name} stays")
            for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
        ],
        pytest.param("float64", "float64", id="float64 stays"),
    ],
)
def test_types_of_cells(given: str, read: str) -> None:
    cells = (np.arange(6).reshape(2, 3) % 2).astype(given)
    for source in (cells, xr.DataArray(da.from_array(cells, chunks=2), dims=("y", "x"))):
        raster = open_raster(source)
        assert raster.dtype == np.dtype(read)
        window = Window(0, 0, 2, 3)
        assert raster.read(window).dtype == np.dtype(read)
        np.testing.assert_array_equal(raster.read(window), cells.astype(read))


# --- nodata ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "nodata", "expected"),
    [
        pytest.param(CELLS, None, None, id="none stated"),
        pytest.param(CELLS, -9999, -9999.0, id="given"),
        pytest.param(CELLS, np.nan, np.nan, id="NaN"),
        pytest.param(CELLS, -3.4028234663852886e38, float(np.finfo("f4").min), id="lowest float32"),
        pytest.param(CELLS, -9999.9, float(np.float32(-9999.9)), id="as float32 holds it"),
        pytest.param(CELLS.astype("i2"), -9999.0, -9999, id="a whole float for integers"),
        pytest.param(CELLS.astype("i8"), 2**53 + 1, 2**53 + 1, id="an integer beyond float64"),
    ],
)
def test_nodata_is_what_cells_hold(source: np.ndarray, nodata: Any, expected: Any) -> None:
    raster = open_raster(source, nodata=nodata)
    assert repr(raster.nodata) == repr(expected)


def test_nodata_of_a_dataarray_is_what_rioxarray_says(tmp_path: Path) -> None:
    path = write_tiff(tmp_path / "a.tif", nodata=-3.0)
    assert open_raster(path).nodata == -3.0
    assert open_raster(rioxarray.open_rasterio(path)).nodata == -3.0
    masked = open_raster(rioxarray.open_rasterio(path, masked=True))
    assert masked.nodata is None or np.isnan(masked.nodata)
    array = xr.DataArray(CELLS, dims=("y", "x"))
    assert open_raster(array.rio.set_nodata(4)).nodata == 4.0
    assert open_raster(array.rio.write_nodata(5)).nodata == 5.0
    assert open_raster(array.assign_attrs(missing_value=6)).nodata == 6.0
    assert open_raster(rioxarray.open_rasterio(path), nodata=7).nodata == 7.0


def test_masked_cells_become_nodata() -> None:
    masked = np.ma.masked_greater(CELLS.astype("i4"), 30)
    raster = open_raster(masked, nodata=-1)
    cells = raster.read(Window(0, 0, 7, 5))
    np.testing.assert_array_equal(cells, np.where(CELLS > 30, -1, CELLS))
    floats = open_raster(np.ma.masked_greater(CELLS, 30)).read(Window(0, 0, 7, 5))
    np.testing.assert_array_equal(floats, np.where(CELLS > 30, np.nan, CELLS))
    sent = da.ma.masked_greater(da.from_array(CELLS.astype("i4")), 30)
    if xr.Variable(("y", "x"), sent).dtype.kind == "i":  # of xarray that does not make it NaN
        with pytest.raises(InputError, match="4 masked cells of int32"):
            open_raster(sent).read(Window(0, 0, 7, 5))
        return
    np.testing.assert_array_equal(open_raster(sent).read(Window(0, 0, 7, 5)), floats)


def test_masked_blocks_of_an_array_that_says_nothing_of_masks_become_nodata() -> None:
    whole = da.from_array(CELLS.astype("i4"), chunks=4)
    blocks = whole.map_blocks(
        lambda block: np.ma.masked_greater(block, 30), meta=np.empty((0, 0), "i4")
    )
    untold = xr.DataArray(blocks, dims=("y", "x"))
    cells = open_raster(untold, nodata=-1).read(Window(0, 0, 7, 5))
    np.testing.assert_array_equal(cells, np.where(CELLS > 30, -1, CELLS))
    with pytest.raises(InputError, match="3 masked cells of int32"):
        open_raster(untold).read(Window(0, 0, 7, 5))  # of one block


@pytest.mark.parametrize(
    "dims",
    [("time", "y", "x"), ("y", "x", "time"), ("lat", "time", "lon"), ("plane", "rows", "columns")],
    ids="-".join,
)
def test_band_is_one_of_the_dimension_that_is_no_axis(dims: tuple[str, ...]) -> None:
    months = xr.DataArray(np.arange(24).reshape(2, 3, 4), dims=("time", "y", "x"))
    axes = [name for name in dims if name not in ("time", "plane")]
    layers = next(name for name in dims if name not in axes)
    named = months.rename({"time": layers, "y": axes[0], "x": axes[1]}).transpose(*dims)
    cells = open_raster(named, band=2).read(Window(0, 0, 3, 4))
    assert (cells == months.values[1]).all()
    with pytest.raises(InputError, match=rf"\({layers}\): 2 bands; pass band= "):
        open_raster(named, offers=CHOICE)
    with pytest.raises(InputError, match="band=3; it has bands 1 to 2"):
        open_raster(named, band=3)


def test_mask_bands_of_files_become_nodata(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    hidden = CELLS > 30
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(
            path,
            "w",
            driver="GTiff",
            count=1,
            height=7,
            width=5,
            dtype="uint8",
            transform=Affine(2, 0, 0, 0, -2, 0),
        ) as target,
    ):
        target.write(CELLS.astype("u1"), 1)
        target.write_mask(~hidden)
    with pytest.raises(InputError, match=r"a mask hides cells of uint8.*pass nodata="):
        open_raster(path, offers=CHOICE)
    raster = open_raster(path, nodata=255)
    expected = np.where(hidden, 255, CELLS)
    np.testing.assert_array_equal(raster.read(Window(0, 0, 7, 5)), expected)
    with pytest.raises(InputError, match="its nodata value 7 is also that of cells"):
        open_raster(path, nodata=7).read(Window(0, 0, 7, 5))


@pytest.mark.parametrize("kind", ["nc", "zarr"])
def test_a_variable_that_xarray_named_itself_has_no_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{kind}"
    cells = xr.DataArray(CELLS, dims=("y", "x"))
    cells.to_netcdf(path) if kind == "nc" else cells.to_zarr(path, consolidated=False)
    assert open_raster(path).name is None
    stored = ingest(path, tmp_path / "stored.zarr")
    assert stored.name == "elevation"
    np.testing.assert_array_equal(stored.values, CELLS)
    given = "__xarray_dataarray_variable__"
    assert open_raster(path, variable=given).shape == CELLS.shape


def test_packed_netcdf_is_unpacked_and_plain_integers_stay(tmp_path: Path) -> None:
    whole = xr.DataArray(CELLS.astype("i2"), dims=("y", "x"), name="z")
    whole.to_netcdf(tmp_path / "plain.nc", encoding={"z": {"_FillValue": -5}})
    raster = open_raster(tmp_path / "plain.nc")
    assert (raster.dtype, raster.nodata, raster.name) == (np.dtype("i2"), -5, "z")
    packing = {"z": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}}
    half = xr.DataArray(CELLS.astype("f8") / 2, dims=("y", "x"), name="z")
    half.to_netcdf(tmp_path / "packed.nc", encoding=packing)
    raster = open_raster(tmp_path / "packed.nc")
    np.testing.assert_array_equal(raster.read(PART), CELLS[PART.slices] / 2)


# --- ASCII grids -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "nodata"),
    [
        pytest.param(GRASS, -9999, id="which says nothing of unknown heights"),
        pytest.param(GRASS.replace(": ", ":"), -9999, id="without blanks"),
        pytest.param(GRASS + "null: -1\ntype: int\n", -1, id="which names its null"),
    ],
)
def test_grass_ascii_header(tmp_path: Path, header: str, nodata: int) -> None:
    path = tmp_path / "thesis.asc"
    path.write_text(header + "1 2 3 4\n5 -9999 7 8\n9 10 11 12\n")
    raster = open_raster(path)
    assert raster.nodata == nodata
    expected = [[1, 2, 3, 4], [5, -9999, 7, 8], [9, 10, 11, 12]]
    np.testing.assert_array_equal(raster.read(Window(0, 0, 3, 4)), expected)
    assert raster.georeference.transform == Affine(10, 0, 0, 0, -10, 30)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("-9999.0", -9999.0, id="unknown with a point"),
        pytest.param("1234.5", 1234.5, id="a height to a decimetre"),
        pytest.param("1234.123456789", 1234.123456789, id="more digits than float32 has"),
        pytest.param("16777217", 16777217, id="an integer that float32 rounds"),
        pytest.param("3000000000", 3000000000, id="an integer that int32 does not hold"),
    ],
)
@pytest.mark.parametrize("other", ["7", "7.5"], ids=["beside integers", "beside decimals"])
def test_ascii_numbers_are_not_rounded(tmp_path: Path, text: str, value: float, other: str) -> None:
    for name, header in (
        ("grass.asc", "north: 1\nsouth: 0\neast: 2\nwest: 0\nrows: 1\ncols: 2\n"),
        ("esri.asc", "ncols 2\nnrows 1\nxllcorner 0\nyllcorner 0\ncellsize 1\n"),
    ):
        (tmp_path / name).write_text(f"{header}{other} {text}\n")
        cells = open_raster(tmp_path / name).read(Window(0, 0, 1, 2))
        assert cells.tolist() == [[float(other), value]]


def test_a_decimal_far_down_in_an_ascii_grid_is_not_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a.asc"
    rows = ["12345 " * 500] * 2000 + ["7.75 " * 500]
    head = "ncols 500\nnrows 2001\nxllcorner 0\nyllcorner 0\ncellsize 10\n"
    path.write_text(head + "\n".join(rows) + "\n")
    assert open_raster(path).read(Window(2000, 0, 1, 2)).tolist() == [[7.75, 7.75]]


ESRI = "ncols 4\nnrows 3\nxllcorner 0\nyllcorner 0\ncellsize 10\nNODATA_value -9\n"
ROWS = "1 2 3 4\n5 -9 7 8\n9 10 11 12\n"


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        pytest.param(ESRI, ROWS.replace("7", "x"), "line 8: 'x' is not a number", id="a letter"),
        pytest.param(
            ESRI, ROWS.replace("7", "7-8"), "line 8: '7-8' is not a number", id="two in one"
        ),
        pytest.param(GRASS, ROWS.replace("7", "*"), "line 8: '.' is .*GRASS: null", id="a star"),
        pytest.param(ESRI.replace("-9", "abc"), ROWS, "line 6: nodata_value is 'abc'", id="nodata"),
        pytest.param(
            ESRI.replace("nrows 3", "nrows 2"),
            ROWS,
            "line 9: more numbers than the 2 x 4",
            id="few",
        ),
        pytest.param(
            ESRI.replace("ncols 4", "ncols 5"), ROWS, "line 10: .* after 12 .* 3 x 5", id="many"
        ),
        pytest.param(
            ESRI.replace("10", "-10"), ROWS, "line 5: cellsize is -10; it must be", id="negative"
        ),
        pytest.param(
            GRASS.replace("north: 30", "north: -30"), ROWS, "north is -30 and south 0", id="south"
        ),
        pytest.param(
            GRASS.replace("north: 30", "north: 30:30N"), ROWS, "line 1: north is '30:", id="degrees"
        ),
        pytest.param(
            ESRI.replace("ncols 4\nnrows 3", "ncols 100000\nnrows 100000"),
            ROWS,
            "line 10: .* its header declares 100000 x 100000 cells",
            id="a shape far beyond the file",
        ),
    ],
)
@pytest.mark.parametrize("opens", [True, False], ids=["GDAL opens it", "GDAL refuses it"])
def test_faulty_ascii_grids_are_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    header: str,
    rows: str,
    message: str,
    opens: bool,
) -> None:
    def refuse(path: str, **options: Any) -> None:
        raise RasterioIOError("shape far beyond the file")  # as of GDAL 3.11

    if not opens:
        monkeypatch.setattr(rasterio, "open", refuse)
    (tmp_path / "a.asc").write_text(header + rows)
    with pytest.raises(InputError, match=f"a.asc: {message}"):
        open_raster(tmp_path / "a.asc")


@pytest.mark.parametrize("tail", ["", "x"], ids=["whole", "with a letter at its end"])
def test_ascii_grids_longer_than_what_is_read_at_a_time(tmp_path: Path, tail: str) -> None:
    line = " ".join(["12345"] * 500) + "\n"
    head = "ncols 500\nnrows 2001\nxllcorner 0\nyllcorner 0\ncellsize 10\n"
    (tmp_path / "a.asc").write_text(head + line * 2000 + line.rstrip() + tail)
    if tail:
        with pytest.raises(InputError, match="line 2006: '12345x' is not a number"):
            open_raster(tmp_path / "a.asc")
    else:
        assert open_raster(tmp_path / "a.asc").read(Window(2000, 499, 1, 1)).tolist() == [[12345]]


def test_ascii_numbers_of_every_form(tmp_path: Path) -> None:
    (tmp_path / "a.asc").write_text(ESRI + "+1 -2.5 3. .5\n 1e3 -1E-2 nan 8\n\n9 10\n11 12 \r\n")
    cells = open_raster(tmp_path / "a.asc").read(Window(0, 0, 3, 4))
    expected = [[1, -2.5, 3, 0.5], [1000, -0.01, np.nan, 8], [9, 10, 11, 12]]
    np.testing.assert_allclose(cells, expected, rtol=1e-6)


AT_EXIT = """
import atexit, gc, sys

@atexit.register  # before all others, so that it is called last
def show():
    print([one.name for one in gc.get_objects() if isinstance(one, rasterio.DatasetReader)])

import rasterio
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import open_raster
print(open_raster(sys.argv[1]).read(Window(0, 0, 1, 1)).shape)
show()
"""


def test_no_file_is_open_when_python_ends(tmp_path: Path) -> None:
    """Closed later, when modules are gone, it can end in "Error in sys.excepthook"."""
    path = write_tiff(tmp_path / "dem.tif")
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["(1, 1)", str([str(path)]), "[]"]
    assert done.stderr == ""


def test_real_files_read_as_by_rasterio(shared_data: Path) -> None:
    paths = sorted((shared_data / "dem").glob("*.tif")) + sorted(
        (shared_data / "friction").glob("*.tif")
    )
    assert len(paths) >= 10
    for path in paths:
        raster = open_raster(path)
        with rasterio.open(path) as dataset:
            height, width = dataset.shape
            window = Window(height // 3, width // 4, min(300, height // 2), min(200, width // 2))
            part = rasterio.windows.Window(window.x, window.y, window.width, window.height)
            theirs = dataset.read(1, window=part)
            np.testing.assert_array_equal(raster.read(window), theirs)
            assert raster.nodata == dataset.nodata
            assert raster.dtype == theirs.dtype


def _two_bands(folder: Path) -> Path:
    return write_tiff(folder / "two.tif", np.stack([CELLS, CELLS]))


def _text(folder: Path) -> Path:
    (folder / "notes.txt").write_text("no raster\n")
    return folder / "notes.txt"


def _two_variables(folder: Path) -> Path:
    cells = (("y", "x"), CELLS)
    xr.Dataset({"height": cells, "depth": cells}).to_netcdf(folder / "two.nc")
    return folder / "two.nc"


def _scaled(folder: Path) -> Path:
    path = write_tiff(folder / "scaled.tif", CELLS.astype("i2"))
    with rasterio.open(path, "r+") as target:
        target.scales = (0.1,)
    return path


def _byte_with_odd_nodata(folder: Path) -> Path:
    path = folder / "odd.vrt"
    path.write_text(
        '<VRTDataset rasterXSize="5" rasterYSize="7"><GeoTransform>0,1,0,0,0,-1</GeoTransform>'
        '<VRTRasterBand dataType="Byte" band="1"><NoDataValue>-9999</NoDataValue>'
        "</VRTRasterBand></VRTDataset>"
    )
    return path


def _persisted(folder: Path) -> xr.DataArray:
    from dask.highlevelgraph import HighLevelGraph

    # What .persist() on a cluster leaves: a graph whose values are futures.
    future = type("Future", (), {"__module__": "distributed.client"})
    layer = {("held", 0, 0): future()}
    graph = HighLevelGraph.from_collections("held", layer, [])
    return xr.DataArray(da.Array(graph, "held", ((7,), (5,)), dtype="f4"), dims=("y", "x"))


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        pytest.param(
            lambda f: f / "none.tif",
            {},
            r"none\.tif does not exist; is the path right",
            id="a path that does not exist",
        ),
        pytest.param(
            _text,
            {},
            r"not a raster that can be read; tried rasterio .*; xarray .*GeoTIFF",
            id="a file that is no raster",
        ),
        pytest.param(lambda f: f, {}, r"tried xarray .*; rasterio ", id="a folder of other things"),
        pytest.param(_two_bands, {}, r"two\.tif: 2 bands; pass band= ", id="two bands"),
        pytest.param(_two_bands, {"band": 3}, r"band=3; it has bands 1 to 2", id="no such band"),
        pytest.param(
            _two_bands,
            {"band": "1"},
            r"band: '1'; it must be a whole number, at least 1",
            id="a band of a file as text",
        ),
        pytest.param(
            lambda f: np.zeros((3, 4, 5)),
            {"band": 1.0},
            r"band: 1\.0; it must be a whole number, at least 1",
            id="a band as a float",
        ),
        pytest.param(
            lambda f: np.zeros((3, 4, 5)), {}, r"array: 3 bands; pass band=", id="three layers"
        ),
        pytest.param(lambda f: CELLS, {"band": 2}, r"band=2, but it has one layer", id="one layer"),
        pytest.param(
            _two_variables,
            {},
            r"2 rasters \(height, depth\); .* variable='height'",
            id="two variables",
        ),
        pytest.param(
            _two_variables,
            {"variable": "z"},
            r"no raster 'z'; it has height, depth",
            id="no such variable",
        ),
        pytest.param(
            lambda f: write_tiff(f / "a.tif"),
            {"variable": "z"},
            r"but this file has bands; use band=",
            id="a variable of a GeoTIFF",
        ),
        *(
            pytest.param(make, {"variable": "misspelt"}, message, id=f"a name for {case}")
            for case, make, message in (
                ("an array", lambda f: CELLS, "array: variable='misspelt', but it is one raster"),
                (
                    "a DataArray",
                    lambda f: xr.DataArray(CELLS, dims=("y", "x"), name="z"),
                    "variable='misspelt', but it is one raster called 'z'; leave variable= out",
                ),
                (
                    "a DataArray without a name",
                    lambda f: xr.DataArray(CELLS, dims=("y", "x")),
                    "variable='misspelt', but it is one raster without a name",
                ),
                ("a Dask array", lambda f: da.from_array(CELLS), "one raster without a name"),
                ("an array on a GPU", lambda f: OnGpu(CELLS), "one raster without a name"),
                ("an open raster", lambda f: open_raster(write_store(f / "z")), "called 'z'"),
                ("a store", lambda f: write_store(f / "z"), "misspelt"),
                ("a NetCDF file", as_netcdf, "no raster 'misspelt'; it has z"),
            )
        ),
        pytest.param(
            lambda f: CELLS.astype(complex),
            {},
            r"dtype complex128; cells must be",
            id="complex cells",
        ),
        pytest.param(
            lambda f: write_tiff(f / "a.tif", CELLS.astype("c8"), dtype="complex_int16"),
            {},
            r"a\.tif: dtype complex_int16; cells must be",
            id="complex integers of GDAL",
        ),
        pytest.param(lambda f: CELLS.astype(str), {}, r"dtype <U.*; cells must be", id="text"),
        pytest.param(lambda f: CELLS.astype(object), {}, r"dtype object; cells", id="objects"),
        pytest.param(lambda f: CELLS.astype("M8[s]"), {}, r"dtype datetime64", id="dates"),
        pytest.param(
            lambda f: CELLS.astype(np.longdouble),
            {},
            r"dtype float128; cells",
            id="extended floats",
        ),
        pytest.param(lambda f: CELLS[:0], {}, r"0 x 5 cells; at least 1 x 1", id="no rows"),
        pytest.param(lambda f: CELLS[0], {}, r"1 dimensions \(5,\); a raster has 2", id="a line"),
        pytest.param(
            lambda f: xr.DataArray(np.zeros((2, 2, 3, 4))), {}, r"4 dimensions", id="a hypercube"
        ),
        pytest.param(
            lambda f: CELLS.astype("u1"),
            {"nodata": -9999},
            r"nodata=-9999 is no uint8 \(whole numbers 0 to 255\)",
            id="a negative in uint8",
        ),
        pytest.param(
            lambda f: CELLS.astype("i2"),
            {"nodata": np.nan},
            r"nodata=nan is no int16",
            id="NaN in integers",
        ),
        pytest.param(
            lambda f: CELLS.astype("i2"),
            {"nodata": 1.5},
            r"nodata=1\.5 is no int16",
            id="a fraction in integers",
        ),
        pytest.param(
            lambda f: CELLS,
            {"nodata": -1.7e308},
            r"nodata=-1\.7e\+308 does not fit float32",
            id="a float64 in float32",
        ),
        pytest.param(
            lambda f: CELLS, {"nodata": 10**400}, r"does not fit float32", id="beyond float64"
        ),
        pytest.param(
            lambda f: CELLS, {"nodata": "x"}, r"nodata: 'x'; it must be a number", id="a word"
        ),
        pytest.param(
            lambda f: np.ma.masked_less(CELLS.astype("i4"), 3),
            {},
            r"3 masked cells of int32, .* pass nodata=",
            id="masked integers without nodata",
        ),
        pytest.param(
            lambda f: np.ma.masked_less(CELLS.astype("i4"), 3),
            {"nodata": 8},
            r"nodata=8 is also the value of 1 cells that are not masked",
            id="a nodata in use",
        ),
        pytest.param(_scaled, {}, r"packed with scale 0\.1 .*-unscale", id="a packed GeoTIFF"),
        pytest.param(
            lambda f: rioxarray.open_rasterio(_scaled(f)),
            {},
            r"scale_factor is 0\.1: .*mask_and_scale=True",
            id="a packed DataArray",
        ),
        pytest.param(
            lambda f: xr.DataArray(CELLS, dims=("y", "x"), attrs={"add_offset": np.arange(2.0)}),
            {},
            r"add_offset is \[0\. 1\.\]",
            id="several offsets",
        ),
        pytest.param(_persisted, {}, r"held by a cluster \(\.persist\(\)\)", id="persisted chunks"),
        pytest.param(
            lambda f: 3.0,
            {},
            r"source: 3\.0 is of type float; it must be a DataArray",
            id="a number",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(
    tmp_path: Path, make: Callable[[Path], Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        open_raster(make(tmp_path), offers=CHOICE, **options)


def test_a_nodata_that_no_cell_of_a_file_can_have_is_none(tmp_path: Path) -> None:
    assert open_raster(_byte_with_odd_nodata(tmp_path)).nodata is None


def test_a_nodata_that_is_given_replaces_the_stores(tmp_path: Path) -> None:
    path = write_store(tmp_path / "a")
    plain, given = open_raster(path), open_raster(path, nodata=3)
    assert plain.nodata is None
    assert given.nodata == 3
    assert plain.fingerprint() != given.fingerprint()
    version = version_of(given)
    assert version is not None
    assert version.fingerprint == given.fingerprint()
    create_store(tmp_path / "b", (2, 2), Layout(2, 2), [Variable("z", "f4", np.nan)])
    publish(tmp_path / "b", tmp_path / "b.zarr")
    assert np.isnan(open_raster(tmp_path / "b.zarr", nodata=np.nan).nodata)
    assert open_raster(tmp_path / "b.zarr", nodata=-9999).nodata == -9999


def test_a_nodata_that_cells_of_a_store_cannot_hold_is_refused(tmp_path: Path) -> None:
    create_store(tmp_path / "a", (2, 2), Layout(2, 2), [Variable("z", "u1", None)])
    publish(tmp_path / "a", tmp_path / "a.zarr")
    with pytest.raises(InputError, match="nodata=300"):
        open_raster(tmp_path / "a.zarr", nodata=300)


def test_names_of_variables_need_not_be_text() -> None:
    dataset = xr.Dataset({3: (("y", "x"), CELLS), 4: (("y", "x"), CELLS + 1)})
    for variable in ("4", 4):
        raster = open_raster(dataset, variable=variable)  # type: ignore[arg-type]
        np.testing.assert_array_equal(raster.read(Window(0, 0, *CELLS.shape)), CELLS + 1)


def test_bands_are_chosen_from_one(tmp_path: Path) -> None:
    both = np.stack([CELLS, CELLS + 100])
    for source in (write_tiff(tmp_path / "a.tif", both), both, xr.DataArray(both)):
        np.testing.assert_array_equal(
            open_raster(source, band=2).read(PART), CELLS[PART.slices] + 100
        )


def test_a_file_that_breaks_off_is_reported(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).random((64, 64))
    path = write_tiff(
        tmp_path / "a.tif", noise, compress="deflate", tiled=True, blockxsize=16, blockysize=16
    )
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(DamagedChunkError, match=r"a\.tif: band 1, .* cannot be read"):
        open_raster(path).read(Window(0, 0, 64, 64))


def test_a_file_replaced_under_its_name_is_read_anew(tmp_path: Path) -> None:
    path = write_tiff(tmp_path / "a.tif")
    raster = open_raster(path)
    assert raster.read(PART)[0, 0] == CELLS[2, 1]
    os.replace(write_tiff(tmp_path / "b.tif", CELLS + 50), path)
    assert raster.read(PART)[0, 0] == CELLS[2, 1] + 50


def test_unknown_objects_with_an_array_interface_are_not_copied_to_the_host_unasked() -> None:
    with pytest.raises(InputError, match="SimpleNamespace"):
        open_raster(SimpleNamespace(shape=(2, 2)))


def test_a_comparison_does_not_take_the_nodata_of_what_it_compares() -> None:
    counted = xr.DataArray(np.array([[3, -1], [7, 5]]), dims=("y", "x"), attrs={"_FillValue": -1})
    compared = (counted > 4).assign_attrs(counted.attrs)  # as xarray does
    raster = open_raster(compared)
    assert raster.nodata is None
    assert raster.read(Window(0, 0, 2, 2)).tolist() == [[0, 0], [1, 1]]
