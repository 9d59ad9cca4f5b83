"""Results pass through xarray and rioxarray and back, and say what they are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import rasterio
import rioxarray
import xarray as xr

import orograph as og
from orograph.operations.operation import public_operations
from orograph.tiles.raster.raster import open_raster

ALL = ("cost", "back_direction", "allocation")
START, FAR = [(500_000, 5_000_000)], [(500_290, 4_999_910), (500_100, 4_999_950)]


def heights() -> xr.DataArray:
    cells = np.random.default_rng(4).integers(1, 9, (10, 30)).astype(float)
    axes = {"y": 5_000_000 - 10.0 * np.arange(10), "x": 500_000 + 10.0 * np.arange(30)}
    attrs = {"DataType": "Generic", "RepresentationType": "ATHEMATIC", "units": "m"}
    return xr.DataArray(cells, axes, ("y", "x"), "dem", attrs).rio.write_crs("EPSG:32633")


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    return og.cost_distance(heights(), START, outputs=ALL)


def zarr(result: xr.Dataset, folder: Path) -> xr.Dataset:
    result.to_zarr(folder / "r.zarr", consolidated=False)
    return xr.open_zarr(folder / "r.zarr", consolidated=False)


def netcdf(result: xr.Dataset, folder: Path) -> xr.Dataset:
    result.to_netcdf(folder / "r.nc")
    return xr.open_dataset(folder / "r.nc", decode_coords="all")


def undecoded(result: xr.Dataset, folder: Path) -> xr.Dataset:
    netcdf(result, folder).close()
    return xr.open_dataset(folder / "r.nc", mask_and_scale=False, decode_coords="all")


def one_by_one(result: xr.Dataset, folder: Path) -> xr.Dataset:
    arrays = {}
    for name in ("cost", "back_direction"):
        result[name].rio.to_raster(folder / f"{name}.tif")
        read: Any = rioxarray.open_rasterio(folder / f"{name}.tif")
        arrays[name] = read.squeeze("band", drop=True)
    return xr.Dataset(arrays)


def masked(result: xr.Dataset, folder: Path) -> xr.Dataset:
    one_by_one(result, folder)
    read: Any = {
        name: rioxarray.open_rasterio(folder / f"{name}.tif", masked=True).squeeze()
        for name in ("cost", "back_direction")
    }
    return xr.Dataset(read)


def stored(folder: Path) -> xr.Dataset:
    return og.cost_distance(heights(), START, outputs=ALL, out=folder / "own.zarr", tile=8)


WAYS: dict[str, Callable[[xr.Dataset, Path], xr.Dataset]] = {
    "to_zarr": zarr,
    "to_netcdf": netcdf,
    "to_netcdf, undecoded": undecoded,
    "rio.to_raster": one_by_one,
    "rio.to_raster, masked": masked,
    "isel": lambda result, _: result.isel(y=slice(0, 10), x=slice(0, 30)),
    "rio.clip_box": lambda result, _: result[["cost", "back_direction"]].rio.clip_box(
        499_990, 4_999_900, 500_400, 5_000_010
    ),
    "chunk": lambda result, _: result.chunk(4),
    "a stored result": lambda result, folder: stored(folder),
    "a stored result, opened by xarray": lambda result, folder: xr.open_zarr(
        stored(folder).encoding["source"]
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_result_can_still_be_traced(way: str, result: xr.Dataset, tmp_path: Path) -> None:
    expected = og.least_cost_path(result, FAR)
    back = WAYS[way](result, tmp_path)
    found = og.least_cost_path(back, FAR)
    for one, other in zip(found, expected, strict=True):
        assert one.cells.tolist() == other.cells.tolist()
        assert one.cost == other.cost
        assert one.crs is not None
        assert og.VectorLayer(np.array([]), {}, one.crs).crs == one.crs
    assert back.orograph.least_cost_path(FAR) == found
    assert np.array_equal(og.corridor(back, back), 2 * result["cost"]) or "raster" in way


def test_a_part_keeps_its_place(result: xr.Dataset, tmp_path: Path) -> None:
    part = zarr(result, tmp_path).isel(y=slice(0, 9), x=slice(0, 16))
    (path,) = og.least_cost_path(part, FAR[1:])
    (whole,) = og.least_cost_path(result, FAR[1:])
    assert path.coordinates.tolist() == whole.coordinates.tolist()


def test_results_speak_of_themselves_alone(result: xr.Dataset, tmp_path: Path) -> None:
    stored = og.cost_distance(heights(), START, out=tmp_path / "c.zarr", tile=8)
    for made in (result, stored):
        assert not {"DataType", "RepresentationType", "units"} & set(made.attrs)
        assert made.attrs["Conventions"] == "CF-1.10"
        assert made["cost"].attrs["long_name"] == "cost from the nearest source"
        assert "units" not in made["cost"].attrs
    lazy = og.cost_distance(heights().chunk(8), START)
    assert "source" not in lazy.encoding
    assert "source" not in lazy["cost"].encoding
    assert np.array_equal(lazy["cost"], result["cost"])


def test_what_netcdf_says_of_coordinates_does_not_keep_stores_from_being_opened(
    tmp_path: Path,
) -> None:
    """NaN as their fill value, which xarray cannot read back from the attributes of a store."""
    heights().to_netcdf(tmp_path / "dem.nc")
    made = og.connected_components(tmp_path / "dem.nc", out=tmp_path / "c.zarr")
    assert xr.open_zarr(tmp_path / "c.zarr")["labels"].shape == made.labels.shape
    assert "_FillValue" not in made["x"].attrs


@pytest.mark.parametrize("model", ["tobler", "walk"])
def test_times_are_seconds(model: str) -> None:
    for travel in ("from", "to"):
        time = og.walking_time(heights(), START, model=model, travel=travel)
        assert time["time"].attrs["units"] == "s"
        assert time["time"].attrs["long_name"] == f"time {travel} the nearest source"


# --- one raster of several ------------------------------------------------------------------


@pytest.fixture
def several(tmp_path: Path) -> dict[str, Any]:
    """The same raster as the second of two: in a file of bands, in NetCDF, in a Dataset."""
    wanted = heights()
    other = xr.zeros_like(wanted).rename("other")
    path = tmp_path / "two.tif"
    bands = xr.concat([other, wanted], "band")
    bands.rio.to_raster(path)
    both = xr.Dataset({"other": other, "dem": wanted})
    both.to_netcdf(tmp_path / "two.nc")
    return {"band": [path, bands], "variable": [tmp_path / "two.nc", both]}


OPERATIONS: dict[str, Callable[..., Any]] = {
    "cost_distance": lambda r, **which: og.cost_distance(r, START, **which)["cost"],
    "walking_time": lambda r, **which: og.walking_time(r, START, **which)["time"],
    "hop_distance": lambda r, **which: og.hop_distance(r, START, **which)["hops"],
    "forest": lambda r, **which: og.minimum_spanning_forest(r, **which)["edges"],
    "components": lambda r, **which: og.connected_components(r, **which)["labels"],
    "is_connected": lambda r, **which: og.is_connected(r, START, FAR, **which).hops,
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_one_raster_of_several(operation: str, several: dict[str, Any]) -> None:
    call = OPERATIONS[operation]
    expected = np.asarray(call(heights()))
    for source in several["band"]:
        assert np.array_equal(np.asarray(call(source, band=2)), expected)
        with pytest.raises(og.InputError, match="band"):
            call(source)
    for source in several["variable"]:
        assert np.array_equal(np.asarray(call(source, variable="dem")), expected)
        with pytest.raises(og.InputError, match="pass variable='other'"):
            call(source)


# --- the accessor ---------------------------------------------------------------------------


def test_the_accessor_calls_the_functions() -> None:
    raster = heights()
    assert raster.orograph.cost_distance(START).equals(og.cost_distance(raster, START))
    forest = raster.orograph.minimum_spanning_forest(weight="mean")
    assert forest.attrs["weight"] == "mean"
    assert len(forest.orograph.forest_lines()) == 299
    assert raster.orograph.fill_depressions().equals(og.fill_depressions(raster))
    result = raster.orograph.cost_distance(START)
    assert result.orograph.corridor(result).equals(og.corridor(result, result))
    assert "cost_distance" in dir(raster.orograph)
    assert "least cost" in raster.orograph.cost_distance.__doc__
    with pytest.raises(AttributeError, match="orograph has no 'fly' here; it has"):
        raster.orograph.fly()


# --- a result in a file ---------------------------------------------------------------------


def test_one_raster_goes_into_a_geotiff(result: xr.Dataset, tmp_path: Path) -> None:
    out = tmp_path / "cost.tif"
    found = og.cost_distance(heights(), START, out=out, tile=8)
    assert [path.name for path in tmp_path.iterdir()] == ["cost.tif"]
    assert np.array_equal(found["cost"], result["cost"])
    assert found["cost"].chunks is not None
    assert found.attrs["reached_cells"] == 300
    with rasterio.open(out) as written:
        assert written.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert np.array_equal(written.read(1), result["cost"])
        assert written.crs == "EPSG:32633"
        assert np.isnan(written.nodata)
    with pytest.raises(og.StoreExistsError, match="overwrite=True"):
        og.cost_distance(heights(), START, out=out)
    both = ("labels", "component_size")
    labels = og.connected_components(heights() > 4, outputs=both, out=out, overwrite=True)
    expected = og.connected_components(heights() > 4, outputs=both)
    assert np.array_equal(open_raster(out).read(open_raster_window(out)), expected["labels"])
    assert np.array_equal(labels["component_size"], expected["component_size"])


def test_a_file_that_is_laid_out_anew_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import rasterio.shutil

    copy = rasterio.shutil.copy

    def poorer(source: Path, path: Path, **form: Any) -> None:
        with rasterio.open(source, "r+") as written:
            written.write(np.full((1, 5, 5), 7.0), window=((3, 8), (3, 8)))
        copy(source, path, **form)
        og.to_geotiff(og.cost_distance(heights(), START)["cost"], source, overwrite=True)

    monkeypatch.setattr(rasterio.shutil, "copy", poorer)
    with pytest.raises(og.StorageFullError, match="does not read back as it was written"):
        og.cost_distance(heights(), START, out=tmp_path / "cost.tif", tile=8)
    assert not (tmp_path / "cost.tif").exists()


def open_raster_window(path: Path) -> Any:
    from orograph.tiles.grid.window import Window

    return Window(0, 0, *open_raster(path).shape)


def test_several_rasters_do_not(tmp_path: Path) -> None:
    with pytest.raises(og.InputError, match=r"c\.tif is a GeoTIFF, which holds one raster, but the"
                       r"re are 3 \(cost, back_direction, allocation\)"):  # fmt: skip
        og.cost_distance(heights(), START, outputs=ALL, out=tmp_path / "c.tif")
    with pytest.raises(og.InputError, match=r"folder .*nowhere does not exist"):
        og.cost_distance(heights(), START, out=tmp_path / "nowhere" / "c.tif")
    assert not list(tmp_path.iterdir())


def test_a_geotiff_that_is_read_is_not_written(tmp_path: Path) -> None:
    source = og.to_geotiff(heights(), tmp_path / "heights.tif")
    with pytest.raises(og.InputError, match="sources are never written"):
        og.connected_components(source, out=source, overwrite=True)
    assert list(tmp_path.iterdir()) == [source]


# --- tensors --------------------------------------------------------------------------------


class Tensor:
    """What another library's array offers."""

    def __init__(self, cells: np.ndarray) -> None:
        self.cells = cells

    def __dlpack__(self, **options: Any) -> Any:
        return self.cells.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.cells.__dlpack_device__()


class Elsewhere(Tensor):
    """In the memory of some other device."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("it is on a GPU")


class OnDevice(Tensor):
    """A tensor on a GPU, which copies itself to where it is asked for."""

    def __dlpack__(self, *, dl_device: Any = None, copy: Any = None, **options: Any) -> Any:
        if dl_device != (1, 0):
            raise BufferError("it is on a GPU")
        return self.cells.copy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


class Bare:
    """A device's array without DLPack."""

    __cuda_array_interface__: ClassVar[Any] = {}

    def __init__(self, cells: np.ndarray) -> None:
        self.cells = cells


class Plain(Bare):
    """The same, as Numba has it."""

    def copy_to_host(self) -> np.ndarray:
        return self.cells


class CuPyArray:
    """What this package, and xarray, ask of an array of CuPy."""

    __cuda_array_interface__: ClassVar[Any] = {}

    def __init__(self, cells: np.ndarray) -> None:
        self.cells = cells
        self.shape, self.ndim, self.dtype = cells.shape, cells.ndim, cells.dtype

    def get(self) -> np.ndarray:
        return self.cells

    def __getitem__(self, key: Any) -> CuPyArray:
        return CuPyArray(self.cells[key])

    def __array__(self, *given: Any, **named: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __array_function__(self, *given: Any) -> Any:
        return NotImplemented

    def __array_ufunc__(self, *given: Any, **named: Any) -> Any:
        return NotImplemented


CuPyArray.__module__ = "cupy"


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """CuPy, as far as this package uses it outside the kernels."""

    def asarray(cells: Any) -> CuPyArray:
        return CuPyArray(cells)

    module = SimpleNamespace(asarray=asarray)
    monkeypatch.setitem(sys.modules, "cupy", module)  # type: ignore[arg-type]
    return module


CUPY_CALLS: dict[str, Callable[..., xr.Dataset]] = {
    "cost_distance": lambda raster, **o: og.cost_distance(raster, [(0, 0)], cell_size=1, **o),
    "components": lambda raster, **o: og.connected_components(raster, **o),
    "fill_depressions": lambda raster, **o: og.fill_depressions(raster, **o),
}


@pytest.mark.parametrize("name", CUPY_CALLS)
def test_what_came_as_cupy_goes_as_cupy(name: str, cupy: Any, tmp_path: Path) -> None:
    cells = heights().values
    expected = CUPY_CALLS[name](cells, backend="numba")
    given = cupy.asarray(cells)
    found = CUPY_CALLS[name](given, backend="numba")
    wrapped = CUPY_CALLS[name](xr.DataArray(given, dims=("y", "x")), backend="numba")
    for result in (found, wrapped):
        for variable, array in expected.data_vars.items():
            assert isinstance(result[variable].data, CuPyArray)
            assert np.array_equal(result[variable].data.get(), array)
        assert result.attrs == expected.attrs
    stored = CUPY_CALLS[name](given, backend="numba", out=tmp_path / "r.zarr")
    xr.testing.assert_equal(stored, expected)
    run = og.connected_components.submit(found[next(iter(found))], backend="numba")
    assert isinstance(run.result()["labels"].data, CuPyArray)


def test_an_array_of_a_device_is_a_raster() -> None:
    cells = heights().values
    expected = og.connected_components(cells)["labels"]
    for array in (OnDevice(cells), Plain(cells)):
        made = og.connected_components(array)["labels"]
        assert isinstance(made.data, np.ndarray)
        assert np.array_equal(made, expected)
    with pytest.raises(og.InputError, match=r"classes: Bare, whose memory.*copy it to the CPU"):
        og.connected_components(Bare(cells))


def test_tensors_are_rasters() -> None:
    cells = heights().values
    made = og.connected_components(Tensor(cells))
    assert np.array_equal(made["labels"], og.connected_components(cells)["labels"])
    with pytest.raises(og.InputError, match=r"Elsewhere.*it is on a GPU.*copy it to the CPU first"):
        og.connected_components(Elsewhere(cells))


def test_each_operation_on_rasters_is_a_method() -> None:
    methods = {name for name in dir(heights().orograph) if not name.startswith("_")}
    taken = {name for name, operation in public_operations().items() if operation.takes_raster}
    others = {"all_pairs", "shortest_paths"}
    assert taken == public_operations().keys() - others
    assert (
        taken
        | {
            "convert_units",
            "explore",
            "forest_lines",
            "ingest",
            "plot",
            "rasterize",
            "to_file",
            "to_geotiff",
        }
        == methods
    )
    assert not taken & set(dir(heights().to_dataset(name="z").orograph))
    with pytest.raises(AttributeError, match=r"no 'all_pairs' here; it has .*walking_time"):
        heights().orograph.all_pairs  # noqa: B018
