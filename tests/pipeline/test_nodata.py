"""Nodata of rasters that come in, and of results that go out, as GDAL and xarray mean it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401  (the accessor .rio)
import xarray as xr
from rasterio.transform import from_origin

import orograph as og
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.store.raster import StoreRaster

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*lie below the stream"),
    pytest.mark.filterwarnings("ignore:.*links have no line"),
]

LOWEST = float(np.finfo(np.float32).min)
HEIGHTS = np.random.default_rng(2).integers(1, 60, (8, 10)).astype(np.float64)
X, Y = 600_000 + 10.0 * np.arange(10), 5_000_000 - 10.0 * np.arange(8)
SOURCE = [(X[2], Y[3])]


def raster(cells: np.ndarray = HEIGHTS, **attrs: Any) -> xr.DataArray:
    found = xr.DataArray(cells, {"y": Y, "x": X}, ("y", "x"), "z", attrs)
    return found.rio.write_crs("EPSG:32632")


def near(value: float) -> np.ndarray:
    """Cells of float32 that differ from a value in their last digits, and others."""
    bits = np.float32(value).view(np.int32) + np.arange(-30, 30, dtype=np.int32)
    others = np.array([0, 1, -1, 5e-39, 10.5, -9998, 1e20, -1e30], np.float32)
    cells = np.concatenate([bits.view(np.float32), others, -others])
    return np.resize(cells[np.isfinite(cells)], (8, 10))


def write_tif(path: Path, cells: np.ndarray, nodata: float | None) -> Path:
    profile = {"driver": "GTiff", "count": 1, "height": 8, "width": 10, "dtype": cells.dtype}
    place = {"crs": "EPSG:32632", "transform": from_origin(X[0] - 5, Y[0] + 5, 10, 10)}
    with rasterio.open(path, "w", nodata=nodata, **profile, **place) as file:
        file.write(cells, 1)
    return path


def valid(source: Any, **choice: Any) -> np.ndarray:
    """Which cells of a raster count, by an operation: those that are not classes are 0."""
    labels = og.fill_depressions(source, **choice)["filled"].values
    opened = open_raster(source, **choice)
    return np.isfinite(labels) & (labels != (np.nan if opened.nodata is None else opened.nodata))


@pytest.mark.parametrize("nodata", [LOWEST, -9999.0, 1e20, -32768.0, 0.1, 1e-30])
def test_floats_in_a_file_are_nodata_where_gdal_says_so(nodata: float, tmp_path: Path) -> None:
    path = write_tif(tmp_path / "a.tif", near(nodata), nodata)
    with rasterio.open(path) as file:
        shown = file.read_masks(1) != 0
    assert (~shown).sum() > 3
    assert np.array_equal(valid(path), shown)
    og.ingest(path, tmp_path / "a.zarr")
    assert np.array_equal(valid(tmp_path / "a.zarr"), shown)
    assert np.array_equal(valid(raster(near(nodata), _FillValue=np.float32(nodata))), shown)
    lazy = raster(near(nodata), _FillValue=np.float32(nodata)).chunk(4)
    assert np.array_equal(valid(lazy), shown)


def test_text_with_fewer_digits_than_the_nodata_value(tmp_path: Path) -> None:
    (tmp_path / "a.asc").write_text(
        "ncols 3\nnrows 2\nxllcorner 0\nyllcorner 0\ncellsize 10\n"
        "NODATA_value -3.4028234663852886e+38\n10 -3.402823e+38 10\n10 10 10.5\n"
    )
    assert valid(tmp_path / "a.asc").tolist() == [[True, False, True], [True, True, True]]


@pytest.mark.filterwarnings("ignore:.*stands for nodata")
def test_float64_is_compared_in_full_but_beyond_1e30() -> None:
    cells = HEIGHTS.copy()
    cells[0, :3] = -9999.0, np.nextafter(-9999.0, 0), -3.402823e38
    assert valid(raster(cells, _FillValue=-9999.0))[0, :3].tolist() == [False, True, True]
    assert valid(raster(cells, _FillValue=float(np.float32(-3.402823e38))))[0, :3].tolist() == [
        *(True, True, False)
    ]


BOTH = {
    "xarray's own": {"_FillValue": np.nan, "missing_value": -9999.0},
    "of one kind": {"_FillValue": -1e30, "missing_value": -9999.0},
    "several missing values": {"missing_value": np.array([-1e30, -9999.0])},
}


@pytest.mark.filterwarnings("ignore:.*stands for nodata")
@pytest.mark.parametrize("place", ["array", "lazy", "nc", "zarr v2", "zarr v3"])
@pytest.mark.parametrize("attrs", BOTH.values(), ids=BOTH)
def test_both_fill_value_and_missing_value_are_nodata(
    attrs: dict[str, Any], place: str, tmp_path: Path
) -> None:
    cells = HEIGHTS.astype(np.float32)
    cells[2, 2], cells[5, 5], cells[6, 1] = -9999, -1e30, np.nan
    hides_both = -1e30 in np.concatenate([np.ravel(value) for value in attrs.values()])
    attrs = {key: np.asarray(value, np.float32)[()] for key, value in attrs.items()}
    given: Any = raster(cells, **attrs)
    if place == "lazy":
        given = given.chunk(4)
    elif place == "nc":
        given.to_netcdf(tmp_path / "a.nc", engine="scipy")
        given = tmp_path / "a.nc"
    elif place != "array":
        if np.ndim(attrs["missing_value"]):
            pytest.skip("Zarr's attributes hold one value")
        given = tmp_path / "a.zarr"
        attrs = {key: value.item() for key, value in attrs.items()}
        encoding = {"z": {"_FillValue": attrs.pop("_FillValue")}}
        version = int(place[-1])
        whole = raster(cells, **attrs).to_dataset()
        whole.to_zarr(given, zarr_format=version, consolidated=False, encoding=encoding)
    shown = np.isfinite(cells) & (cells != -9999)
    if hides_both:
        shown &= cells != np.float32(-1e30)
    assert np.array_equal(valid(given), shown)


def results() -> dict[str, Callable[[], xr.Dataset]]:
    """A result of each operation that returns rasters."""
    z, friction = raster(), raster(HEIGHTS + 1)
    classes = raster((HEIGHTS > 30).astype(np.uint8))
    outputs = ("cost", "back_direction", "allocation")
    flow = og.flow_direction(z)
    amount = og.flow_accumulation(flow)
    distance = og.cost_distance(friction, SOURCE, outputs=outputs)
    return {
        "cost_distance": lambda: distance,
        "cost_distance of integers": lambda: og.cost_distance(
            raster((HEIGHTS * 2).astype(np.int32)), SOURCE, dtype="int64", connectivity=4
        ),
        "walking_time": lambda: og.walking_time(z, SOURCE),
        "hop_distance": lambda: og.hop_distance(classes, [(X[0], Y[0])], snap=True),
        "eikonal": lambda: og.cost_distance(friction, SOURCE, cost="eikonal"),
        "flow_direction": lambda: flow,
        "angles": lambda: og.flow_direction(z, method="dinf"),
        "flow_accumulation": lambda: amount,
        "accumulation of areas": lambda: og.flow_accumulation(flow, weights="area"),
        "watersheds": lambda: og.watersheds(flow, SOURCE),
        "flow_distance": lambda: og.flow_distance(flow),
        "downstream": lambda: og.downstream(flow, z, statistics=["outlet", "mean", "min"]),
        "upstream": lambda: og.upstream(flow, z, statistics=["count", "mean", "min"]),
        "upstream_length": lambda: og.upstream_length(flow),
        "height_above_drainage": lambda: og.height_above_drainage(
            og.fill_depressions(z), flow, amount["accumulation"] > 5
        ),
        "streams": lambda: og.streams(flow, amount, 4),
        "fill_depressions": lambda: og.fill_depressions(
            z, outputs=("filled", "depth", "depression")
        ),
        "breach_depressions": lambda: og.breach_depressions(z),
        "flood_level": lambda: og.flood_level(z, SOURCE),
        "connected_components": lambda: og.connected_components(classes),
        "depressions": lambda: og.depressions(z, labels=True),
        "path_mask": lambda: og.path_mask(
            og.least_cost_path(distance, [(X[8], Y[5])]), distance
        ).to_dataset(),
        "minimum_spanning_forest": lambda: og.minimum_spanning_forest(z),
        "convert_units": lambda: og.convert_units(og.walking_time(z, SOURCE), "h"),
    }


RESULTS = list(results())


@pytest.fixture(scope="module")
def made() -> dict[str, xr.Dataset]:
    return {name: make() for name, make in results().items()}


def rasters_of(result: xr.Dataset) -> dict[str, xr.DataArray]:
    return {str(name): r for name, r in result.data_vars.items() if set(r.dims) == {"y", "x"}}


def check(array: xr.DataArray, folder: Path) -> None:
    """Use a raster as rioxarray's users do."""
    expected = None
    if array.dtype.kind == "f":
        assert "_FillValue" not in array.attrs or not math.isnan(array.attrs["_FillValue"])
    else:
        expected = array.attrs.get("_FillValue", array.attrs.get("nodata"))
        assert expected is not None
        assert "_FillValue" not in array.encoding
        if "nodata" in array.attrs:  # no cell has it: what is derived has no nodata cells
            assert expected not in array.values
    nodata = array.rio.nodata
    assert (nodata is None or math.isnan(nodata)) if expected is None else nodata == expected
    padded = array.rio.pad_box(X[0] - 35, Y[-1] - 25, X[-1] + 5, Y[0] + 5)
    assert padded.dtype == array.dtype
    assert np.array_equal(padded[-1, 0], np.nan if expected is None else expected, equal_nan=True)
    array.rio.to_raster(folder / "r.tif")
    with rasterio.open(folder / "r.tif") as file:
        assert np.array_equal(file.read(1), array.values, equal_nan=array.dtype.kind == "f")
        assert np.array_equal(file.nodata, nodata, equal_nan=True)
    (folder / "r.tif").unlink()


@pytest.mark.parametrize("name", RESULTS)
def test_rioxarray_knows_the_nodata_of_every_result(
    name: str, made: dict[str, xr.Dataset], tmp_path: Path
) -> None:
    found = rasters_of(made[name])
    assert found
    for array in found.values():
        check(array, tmp_path)


@pytest.mark.parametrize("suffix", [".zarr", ".nc", ".tif"])
@pytest.mark.parametrize(
    "name", ["cost_distance", "flow_direction", "fill_depressions", "connected_components"]
)
def test_rioxarray_knows_the_nodata_of_stored_results(
    name: str, suffix: str, tmp_path: Path
) -> None:
    calls: dict[str, Callable[..., xr.Dataset]] = {
        "cost_distance": lambda **o: og.cost_distance(raster(HEIGHTS + 1), SOURCE, **o),
        "flow_direction": lambda **o: og.flow_direction(raster(), **o),
        "connected_components": lambda **o: og.connected_components(raster() > 30, **o),
        "fill_depressions": lambda **o: og.fill_depressions(raster(_FillValue=7.0), **o),
    }
    result = calls[name](out=tmp_path / f"r{suffix}")
    for array in rasters_of(result).values():
        if name != "fill_depressions":
            check(array.load(), tmp_path)
        else:
            assert array.rio.nodata == 7


@pytest.mark.parametrize("name", ["connected_components", "depressions", "forest", "depression"])
def test_labels_stay_whole_numbers_in_stores_and_files(name: str, tmp_path: Path) -> None:
    calls: dict[str, Callable[..., xr.Dataset]] = {
        "connected_components": lambda **o: og.connected_components(raster() > 30, **o),
        "depressions": lambda **o: og.depressions(raster(), labels=True, **o),
        "forest": lambda **o: og.minimum_spanning_forest(raster(), **o),
        "depression": lambda **o: og.fill_depressions(raster(), outputs="depression", **o),
    }
    calls[name](out=tmp_path / "r.nc")
    opened = calls[name](out=tmp_path / "r.zarr")
    (array,) = rasters_of(opened).values()
    assert isinstance(open_raster(array), StoreRaster)  # read without Dask
    with (
        xr.open_dataset(tmp_path / "r.nc", decode_coords="all") as file,
        xr.open_zarr(tmp_path / "r.zarr") as store,
    ):
        for found in (array, file[array.name], store[array.name]):
            assert found.dtype.kind in "iu"
            check(found.load(), tmp_path)


CASTS = {
    "uint8": lambda r: (r < 3).astype(np.uint8),
    "int16": lambda r: r.fillna(0).astype(np.int16) if r.dtype.kind == "f" else r.astype(np.int16),
    "uint32": lambda r: (r > 1).astype(np.uint32),
    "bool": lambda r: r < 3,
    "int64": lambda r: (r > 2).astype(np.int64),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("name", RESULTS)
def test_results_can_be_cast_to_integers_and_used_again(
    name: str, cast: str, made: dict[str, xr.Dataset], tmp_path: Path
) -> None:
    for array in rasters_of(made[name]).values():
        mask = CASTS[cast](array)
        og.connected_components(mask)
        og.polygonize(mask)
        og.to_geotiff(mask, tmp_path / "m.tif", overwrite=True)
        og.ingest(mask, tmp_path / "m.zarr", overwrite=True)
        og.fill_depressions(mask)
        og.cost_distance(raster(HEIGHTS + 1), SOURCE, barriers=mask * 0)


MASKS: dict[str, Callable[[dict[str, xr.Dataset]], xr.DataArray]] = {
    "streams": lambda made: made["streams"]["order"] > 0,
    "one link": lambda made: made["streams"]["link"] == 1,
    "labels": lambda made: made["connected_components"]["labels"] > 0,
    "labels as numbers": lambda made: (made["connected_components"]["labels"] > 0).astype("u1"),
    "codes": lambda made: made["flow_direction"]["direction"] == 1,
    "forest as numbers": lambda made: (made["minimum_spanning_forest"]["edges"] > 2).astype("u1"),
}
USES: dict[str, Callable[[xr.DataArray, xr.Dataset], Any]] = {
    "upstream": lambda mask, flow: og.upstream(flow, mask, statistics=["count", "mean"]),
    "weights": lambda mask, flow: og.flow_accumulation(flow, weights=mask),
    "values of zones": lambda mask, _: og.zonal(raster((HEIGHTS > 30).astype("u1")), mask),
    "zones": lambda mask, _: og.zonal(mask, raster()),
    "polygonize": lambda mask, _: og.polygonize(mask).columns["label"],
    "friction": lambda mask, _: og.cost_distance(mask, SOURCE, connectivity=4),
    "outlets": lambda mask, _: og.fill_depressions(raster(), outlets=mask),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", MASKS)
def test_masks_of_results_mean_what_the_same_cells_mean(
    name: str, use: str, made: dict[str, xr.Dataset]
) -> None:
    mask = MASKS[name](made)
    assert 0 < mask.sum() < mask.size
    found, expected = (USES[use](m, made["flow_direction"]) for m in (mask, raster(mask.values)))
    if isinstance(found, xr.Dataset):
        xr.testing.assert_equal(found, expected)
    else:
        assert repr(found) == repr(expected)


@pytest.mark.parametrize("nodata", [math.nan, -1, 300, 0.5, 1e30, math.inf, 2**70])
def test_a_declared_nodata_that_no_cell_can_have_means_none(nodata: float) -> None:
    declared = raster(HEIGHTS.astype(np.uint8), _FillValue=nodata)
    if isinstance(nodata, int) and nodata > 2**64:
        declared = raster(HEIGHTS.astype(np.uint8), missing_value=float(nodata))
    assert open_raster(declared).nodata is None
    with pytest.raises(og.InputError, match="nodata"):
        og.connected_components(raster(HEIGHTS.astype(np.uint8)), nodata=nodata)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cost", ["friction", "eikonal"])
@pytest.mark.parametrize("infinity", [np.inf, -np.inf])
def test_infinite_friction_is_a_barrier(infinity: float, cost: str, dtype: Any) -> None:
    friction = (HEIGHTS + 1).astype(dtype)
    barred = friction.copy()
    friction[:, 5] = infinity
    barred[:, 5] = np.nan
    found, expected = (
        og.cost_distance(f, [(1, 1)], cost=cost)["cost"].values for f in (friction, barred)
    )
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.isnan(found[:, 5:]).all()
