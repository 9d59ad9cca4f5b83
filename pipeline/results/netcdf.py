"""Write datasets to NetCDF files, some chunks at a time."""

from __future__ import annotations

import gc
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orograph.tiles.errors import InputError, OrographError
from orograph.tiles.grid.georeference import GRID_MAPPING

if TYPE_CHECKING:
    import xarray as xr

ENGINES = {"netcdf4": "netCDF4", "h5netcdf": "h5netcdf"}
"""Engines of xarray that write NetCDF 4, and the packages that they need."""


def netcdf_engine(argument: str) -> Any:
    """Return the engine by which xarray writes and reads NetCDF 4 here.

    Raises
    ------
    OrographError
        If none is installed.
    """
    for engine, package in ENGINES.items():
        if find_spec(package) is not None:
            return engine
    raise OrographError(
        f"{argument}: NetCDF needs netCDF4 or h5netcdf; install one with pip install "
        "'orograph[netcdf]'"
    )


def write_netcdf(dataset: xr.Dataset, path: Path) -> None:
    """Write a dataset to a compressed NetCDF file with its CRS, cells and attributes as they are.

    Lazy rasters are read and written chunk by chunk.
    """
    import dask

    dataset = dataset.copy()
    for variable in dataset.variables.values():
        # a raster in memory has none, one of a store that of Zarr
        fill = variable.encoding.get("_FillValue")
        variable.encoding = {}
        if variable.dtype.kind in "iufb" and variable.ndim:
            variable.encoding |= {"zlib": True, "complevel": 1, "shuffle": True}
            if variable.chunks is not None:
                # Chunks of Dask may differ at the edges, those of NetCDF may not.
                variable.encoding["chunksizes"] = tuple(map(max, variable.chunks))
        if variable.dtype.kind in "iu" and "_FillValue" in variable.attrs:
            limits = np.iinfo(variable.dtype)
            # one that no cell can hold means none: casts keep attributes
            if not limits.min <= variable.attrs["_FillValue"] <= limits.max:
                del variable.attrs["_FillValue"]
        if variable.dtype.kind == "f" and "_FillValue" not in variable.attrs:
            variable.encoding["_FillValue"] = fill
        if GRID_MAPPING in dataset.coords and variable.ndim == 2:
            variable.encoding["grid_mapping"] = GRID_MAPPING
    # in this thread: neither by a cluster, which may not reach the file, nor out of order
    with dask.config.set(scheduler="synchronous"):
        try:
            dataset.to_netcdf(path, engine=netcdf_engine("path"))
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(
                f"result: NetCDF cannot hold it ({said}); give other names, attributes or dtypes "
                "(.rename, .drop_attrs, .astype), or write a .zarr"
            ) from error
        except Exception as error:
            # A file that could not be closed, as the disk is full, is closed again when it is
            # collected. That must not be in another thread: HDF5 allows one at a time.
            traceback.clear_frames(error.__traceback__)
            gc.collect()
            raise


def open_netcdf(path: Path, chunks: dict[str, int]) -> xr.Dataset:
    """Open a NetCDF file lazily with the values that are stored, nodata among them."""
    import xarray as xr

    return xr.open_dataset(
        path,
        engine=netcdf_engine("path"),
        chunks=chunks,
        mask_and_scale=False,
        decode_times=False,
        decode_coords="all",
    )
