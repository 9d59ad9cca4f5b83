"""Files of inputs are closed once a result is there and the input is dropped."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray
import shapely
import xarray as xr
from programs import run_program

import orograph as og
from orograph.operations.operation import public_operations

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="open files are in /proc"),
    pytest.mark.filterwarnings("ignore:.*lie below the stream"),
]

Inputs = Mapping[str, Any]
RNG = np.random.default_rng(4)
Y, X = 5_000_000 - 10.0 * np.arange(9), 600_000 + 10.0 * np.arange(11)
START, END = [(X[1], Y[1])], [(X[9], Y[7])]
LINE = [shapely.LineString([*START, *END])]


def raster(cells: Any, name: str) -> xr.DataArray:
    found = xr.DataArray(cells, {"y": Y, "x": X}, ("y", "x"), name, {"units": "m"})
    return found.rio.write_crs("EPSG:32632")


OPERATIONS: dict[str, Callable[[Inputs], Any]] = {
    "breach_depressions": lambda i: og.breach_depressions(i["z"]),
    "catchments": lambda i: og.catchments(i["z"], START, population=i["classes"]),
    "connected_components": lambda i: og.connected_components(i["classes"]),
    "cost_distance": lambda i: og.cost_distance(i["z"], i["classes"], barriers=i["none"]),
    "depressions": lambda i: og.depressions(i["z"], labels=True),
    "downstream": lambda i: og.downstream(i["codes"], i["z"], i["classes"]),
    "drainage_network": lambda i: og.drainage_network(i["z"], 3),
    "fill_depressions": lambda i: og.fill_depressions(i["z"]),
    "floating_catchments": lambda i: og.floating_catchments(
        i["z"], START, population=i["classes"], within=99
    ),
    "flood_level": lambda i: og.flood_level(i["z"], START),
    "flow_accumulation": lambda i: og.flow_accumulation(i["codes"], weights=i["z"]),
    "flow_direction": lambda i: og.flow_direction(i["z"]),
    "flow_distance": lambda i: og.flow_distance(i["codes"]),
    "height_above_drainage": lambda i: og.height_above_drainage(i["z"], i["codes"], i["classes"]),
    "hop_distance": lambda i: og.hop_distance(i["z"], START),
    "is_connected": lambda i: og.is_connected(i["z"], START, END),
    "isochrones": lambda i: og.isochrones(i["z"], [20.0]),
    "linkages": lambda i: og.linkages(i["z"], START + END, threshold=9),
    "minimum_spanning_forest": lambda i: og.minimum_spanning_forest(i["z"]),
    "pass_elevation": lambda i: og.pass_elevation(i["z"], START + END),
    "peaks": lambda i: og.peaks(i["z"]),
    "polygonize": lambda i: og.polygonize(i["classes"]),
    "region_network": lambda i: og.region_network(i["z"], START + END),
    "site": lambda i: og.site(i["z"], START, population=i["classes"], within=99),
    "streams": lambda i: og.streams(i["codes"], i["z"], 5, elevation=i["z"]),
    "upstream": lambda i: og.upstream(i["codes"], i["z"]),
    "upstream_length": lambda i: og.upstream_length(i["codes"]),
    "walking_time": lambda i: og.walking_time(i["z"], START),
    "watersheds": lambda i: og.watersheds(i["codes"], outlets=i["classes"]),
    "zonal": lambda i: og.zonal(i["classes"], i["z"]),
    "a run in the background": lambda i: og.fill_depressions.submit(i["z"]).result(),
    "a lazy result, computed": lambda i: og.fill_depressions.lazy(i["z"]).compute(),
    "a plan": lambda i: og.fill_depressions.plan(i["z"]),
    "convert_units": lambda i: og.convert_units(xr.DataArray(i["z"]), "ft"),
    "path_mask": lambda i: og.path_mask([], like=xr.DataArray(i["z"])),
    "rasterize": lambda i: og.rasterize(LINE, like=i["z"]),
    "roads": lambda i: og.roads(LINE, like=i["z"], speed=5),
    "ingest": lambda i: og.ingest(i["z"], "z.zarr", overwrite=True),
    "to_file": lambda i: og.to_file(i["z"], "z.nc"),
    "to_geotiff": lambda i: og.to_geotiff(i["z"], "again.tif"),
    "DistanceIndex": lambda i: og.DistanceIndex.build(i["z"], "i.zarr", block=4),
    "component_table": lambda i: og.component_table(og.connected_components(i["codes"])),
    "plot": lambda i: og.plot(i["z"]),
}
OF_GRAPHS = {"all_pairs", "shortest_paths"}
ARRAYS = {"convert_units", "path_mask"}
"""Functions of what xarray has opened, not of a path."""


def in_netcdf(inputs: xr.Dataset, folder: Path) -> Inputs:
    inputs.to_netcdf(folder / "all.nc")
    opened = xr.open_dataset(folder / "all.nc", decode_coords="all")
    return {str(name): array for name, array in opened.data_vars.items()}


def in_geotiffs(inputs: xr.Dataset, folder: Path) -> Inputs:
    for name, array in inputs.data_vars.items():
        array.rio.to_raster(folder / f"{name}.tif")
    return {str(name): folder / f"{name}.tif" for name in inputs.data_vars}


def by_rioxarray(inputs: xr.Dataset, folder: Path) -> Inputs:
    paths: Any = in_geotiffs(inputs, folder).items()
    opened: Any = {name: rioxarray.open_rasterio(path) for name, path in paths}
    return {name: array.squeeze("band", drop=True) for name, array in opened.items()}


WAYS = {"NetCDF": in_netcdf, "GeoTIFF": by_rioxarray, "path of a GeoTIFF": in_geotiffs}


@pytest.fixture(scope="module")
def inputs() -> xr.Dataset:
    heights = RNG.random((9, 11)) * 30 + 1
    z = raster(heights, "z")
    classes = (z > 16).astype("u1")
    codes = og.flow_direction(z)["direction"]
    return xr.Dataset({"z": z, "classes": classes, "none": classes * 0, "codes": codes})


def open_files(folder: Path) -> set[str]:
    """Return the names of the files in a folder that this process holds open."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(Path(os.readlink(f"/proc/self/fd/{number}")))
        except FileNotFoundError:  # that of the list itself
            continue
    return {link.name for link in links if link.parent == folder}


def test_all_operations_are_here() -> None:
    assert OPERATIONS.keys() | OF_GRAPHS >= set(public_operations())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_no_input_stays_open(
    name: str, way: str, inputs: xr.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in ARRAYS and way == "path of a GeoTIFF":
        pytest.skip("takes no path")
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path / "results")
    given = WAYS[way](inputs, tmp_path)
    result = OPERATIONS[name](given)
    del given
    gc.collect()
    assert not open_files(tmp_path)
    del result


FIRST_RUN = """
import gc, os
import xarray as xr
import orograph as og
opened = xr.open_dataset("all.nc", decode_coords="all", chunks={})
result = og.zonal(opened.classes, opened.z)  # through a store, so that Zarr's thread begins
del opened
gc.collect()
links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
print([os.readlink(link) for link in links if os.path.exists(link) and ".nc" in os.readlink(link)])
"""


def test_no_thread_that_begins_during_a_run_keeps_its_inputs(
    inputs: xr.Dataset, tmp_path: Path
) -> None:
    in_netcdf(inputs, tmp_path)
    assert run_program(FIRST_RUN, Path("first.py"), tmp_path).splitlines()[-1] == "[]"
