"""What results carry, by every way out of every operation: place, units, order of variables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray
import xarray as xr
from shapely import box
from verbs import call

import orograph as og
from orograph.operations.operation import public_operations

Make = Callable[..., Any]
SIDE, TOP, LEFT = 10.0, 5_000_000.0, 600_000.0
START, END = (LEFT, TOP), (LEFT + 7 * SIDE, TOP - 4 * SIDE)


def raster(cells: Any, **attrs: str) -> xr.DataArray:
    axes = {"y": TOP - SIDE * np.arange(12), "x": LEFT + SIDE * np.arange(14)}
    return xr.DataArray(cells, axes, ("y", "x"), attrs=attrs).rio.write_crs("EPSG:32632")


RNG = np.random.default_rng(9)
HEIGHTS = raster(RNG.integers(1, 9, (12, 14)).astype(float), units="m")
FLOW = og.flow_direction(HEIGHTS)
COUNT = og.flow_accumulation(FLOW)["accumulation"]
COSTS = [og.cost_distance(HEIGHTS, [end]) for end in (START, END)]

OPERATIONS: dict[str, Make] = {
    "minimum_spanning_forest": lambda **o: call(og.minimum_spanning_forest, HEIGHTS, **o),
    "cost_distance": lambda **o: call(og.cost_distance, HEIGHTS, [START], **o),
    "cost_distance, all outputs": lambda **o: call(
        og.cost_distance, HEIGHTS, [START], outputs=("cost", "back_direction", "allocation"), **o
    ),
    "cost_distance, eikonal": lambda **o: call(
        og.cost_distance, HEIGHTS, [START], cost="eikonal", **o
    ),
    "walking_time": lambda **o: call(og.walking_time, HEIGHTS, [START], **o),
    "hop_distance": lambda **o: call(og.hop_distance, HEIGHTS, [START], **o),
    "connected_components": lambda **o: call(
        og.connected_components, HEIGHTS > 4, outputs=("labels", "component_size"), **o
    ),
    "fill_depressions": lambda **o: call(
        og.fill_depressions, HEIGHTS, outputs=("filled", "depth", "depression"), **o
    ),
    "flood_level": lambda **o: call(og.flood_level, HEIGHTS, [START], **o),
    "breach_depressions": lambda **o: call(og.breach_depressions, HEIGHTS, **o),
    "flow_direction": lambda **o: call(og.flow_direction, HEIGHTS, **o),
    "flow_direction, grass": lambda **o: call(og.flow_direction, HEIGHTS, encoding="grass", **o),
    "flow_direction, dinf": lambda **o: call(og.flow_direction, HEIGHTS, method="dinf", **o),
    "flow_accumulation": lambda **o: call(og.flow_accumulation, FLOW, **o),
    "flow_accumulation, area": lambda **o: call(og.flow_accumulation, FLOW, weights="area", **o),
    "flow_accumulation, mfd": lambda **o: call(og.flow_accumulation, HEIGHTS, method="mfd", **o),
    "flow_distance": lambda **o: call(og.flow_distance, FLOW, COUNT > 4, **o),
    "upstream_length": lambda **o: call(og.upstream_length, FLOW, **o),
    "height_above_drainage": lambda **o: call(
        og.height_above_drainage, HEIGHTS, FLOW, COUNT > 4, **o
    ),
    "streams": lambda **o: call(og.streams, FLOW, COUNT, 4, elevation=HEIGHTS, **o),
    "watersheds": lambda **o: call(og.watersheds, FLOW, [END], **o),
    "depressions": lambda **o: call(og.depressions, HEIGHTS, labels=True, **o),
}
NO_RASTERS = {
    "all_pairs", "isochrones", "pass_elevation", "peaks", "polygonize", "region_network",
    "shortest_paths", "st_connected",
}  # fmt: skip
FUNCTIONS: dict[str, Callable[[Path], xr.DataArray | xr.Dataset]] = {
    "corridor": lambda folder: og.corridor(*COSTS),
    "corridor of three": lambda folder: og.corridor([*COSTS, COSTS[0]], normalize=True),
    "corridor of stores": lambda folder: og.corridor(
        *(og.cost_distance(HEIGHTS, [end], out=folder / f"{end}.zarr") for end in (START, END))
    ),
    "path_mask": lambda folder: og.path_mask([], like=COSTS[0]),
    "rasterize": lambda folder: og.rasterize([box(LEFT, TOP - 50, LEFT + 60, TOP)], HEIGHTS),
    "ingest": lambda folder: og.ingest(HEIGHTS, folder / "dem.zarr"),
    "convert_units": lambda folder: og.convert_units(og.walking_time(HEIGHTS, [START]), "h"),
    "query of an index": lambda folder: og.DistanceIndex.build(
        HEIGHTS, folder / "index.zarr", block=4
    ).query([START]),
}


def rasters_of(result: xr.Dataset) -> list[xr.DataArray]:
    return [array for array in result.data_vars.values() if array.dims == ("y", "x")]


def check_place(array: xr.DataArray, *, part: tuple[slice, slice] = np.s_[:, :]) -> None:
    whole = HEIGHTS[part]
    assert array.rio.crs == "EPSG:32632", array.name
    assert array.rio.transform() == whole.rio.transform(recalc=True), array.name
    assert array["x"].equals(whole["x"]), array.name
    assert array["y"].equals(whole["y"]), array.name
    stated = array.encoding | array.attrs  # where xarray leaves it without decode_coords="all"
    assert stated["grid_mapping"] == "spatial_ref", array.name


def written_by_hand(suffix: str) -> Callable[[Make, Path], xr.Dataset]:
    def write(make: Make, folder: Path) -> xr.Dataset:
        result = make()
        arrays = {}
        for array in rasters_of(result) if suffix != ".nc" else [None]:
            path = folder / f"{'all' if array is None else array.name}{suffix}"
            og.to_file(result if array is None else array, path)
            if array is None:
                return xr.open_dataset(path, decode_coords="all", mask_and_scale=False)
            if suffix == ".tif":
                read: Any = rioxarray.open_rasterio(path)
                arrays[array.name] = read.squeeze("band", drop=True)
                arrays[array.name].encoding.setdefault("grid_mapping", "spatial_ref")
            else:
                arrays[array.name] = og.open(path)[array.name]
        return result.assign(arrays)

    return write


def lazily(make: Make, folder: Path) -> xr.Dataset:
    try:
        return make(verb="lazy").compute()  # type: ignore[no-any-return]
    except og.InputError:  # it has a table
        return make(verb="lazy", out=folder / "lazy.zarr").compute()  # type: ignore[no-any-return]


WAYS: dict[str, Callable[[Make, Path], xr.Dataset]] = {
    "in memory": lambda make, folder: make(),
    "lazily": lazily,
    "store": lambda make, folder: make(out=folder / "r.zarr"),
    "store, by xarray": lambda make, folder: xr.open_zarr(
        make(out=folder / "r.zarr").encoding["source"], mask_and_scale=False
    ),
    "store in object storage": lambda make, folder: make(out=f"memory://{folder.parent.name}.zarr"),
    "NetCDF": lambda make, folder: make(out=folder / "r.nc"),
    "to_file, NetCDF": written_by_hand(".nc"),
    "to_file, GeoTIFF": written_by_hand(".tif"),
    "to_file, Zarr": written_by_hand(".zarr"),
}


def test_every_operation_with_rasters_is_here() -> None:
    assert {name.partition(",")[0] for name in OPERATIONS} | NO_RASTERS == set(public_operations())


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.usefixtures("object_memory")
def test_every_way_out_keeps_place_units_and_order(name: str, tmp_path: Path) -> None:
    expected = OPERATIONS[name]()
    assert rasters_of(expected)
    for way, take in WAYS.items():
        (folder := tmp_path / way).mkdir()
        found = take(OPERATIONS[name], folder)
        assert list(found.data_vars) == list(expected.data_vars), way
        for array in rasters_of(found):
            check_place(array)
            same = expected[array.name]
            assert array.dtype == same.dtype, (way, array.name)
            assert np.array_equal(array, same, equal_nan=same.dtype.kind == "f"), way
            for key in ("units", "long_name"):
                assert array.attrs.get(key) == same.attrs.get(key), (way, array.name, key)
        if "file" not in way:
            for column in expected.data_vars.values():
                units = found[column.name].attrs.get("units")
                assert units == column.attrs.get("units"), (way, column.name)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_keep_the_place(name: str, tmp_path: Path) -> None:
    found = FUNCTIONS[name](tmp_path)
    arrays = [found] if isinstance(found, xr.DataArray) else rasters_of(found)
    assert arrays
    for array in arrays:
        check_place(array)
        og.to_geotiff(array, tmp_path / "out.tif", overwrite=True)
        with rioxarray.open_rasterio(tmp_path / "out.tif") as read:  # type: ignore[union-attr]
            assert read.rio.crs == "EPSG:32632"


def test_a_window_of_an_index_has_a_place_of_its_own(tmp_path: Path) -> None:
    index = og.DistanceIndex.build(HEIGHTS, tmp_path / "index.zarr", block=4)
    found = index.query([START], (3, 5, 4, 6))
    check_place(found["cost"], part=np.s_[3:7, 5:11])


def test_results_in_units_of_the_elevation_say_so() -> None:
    outputs = ("filled", "depth", "depression")
    found = og.fill_depressions(HEIGHTS, outputs=outputs)
    assert [found[name].attrs.get("units") for name in outputs] == ["m", "m", None]
    assert og.flood_level(HEIGHTS, [START])["level"].attrs["units"] == "m"
    assert og.breach_depressions(HEIGHTS)["breached"].attrs["units"] == "m"
    above = og.height_above_drainage(HEIGHTS, FLOW, COUNT > 4)
    assert above["height"].attrs["units"] == "m"
    assert og.streams(FLOW, COUNT, 4, elevation=HEIGHTS)["drop"].attrs["units"] == "m"
    assert og.peaks(HEIGHTS)["prominence"].attrs["units"] == "m"
    assert og.pass_elevation(HEIGHTS, [START, END])["elevation"].attrs["units"] == "m"
    assert og.depressions(HEIGHTS)["spill_elevation"].attrs["units"] == "m"
    unknown = HEIGHTS.drop_attrs(deep=False)
    assert "units" not in og.fill_depressions(unknown)["filled"].attrs
