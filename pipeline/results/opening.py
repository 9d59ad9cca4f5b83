"""Open results: a Dataset, or what it was written to, a store or files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from orograph.results.netcdf import open_netcdf
from orograph.tiles.arguments import absolute_path, check_path, shown
from orograph.tiles.errors import InputError, OptionMissingError
from orograph.tiles.extensions import GEOTIFF, NETCDF
from orograph.tiles.grid.cf import encoding_of_place
from orograph.tiles.nodata import fill_value_in_xarray
from orograph.tiles.open_storage import open_storage
from orograph.tiles.raster.raster import FileRaster
from orograph.tiles.raster.tags import parse_tag
from orograph.tiles.store.dataset import open as open_dataset

if TYPE_CHECKING:
    import xarray as xr

ResultLike = Union["xr.Dataset", "xr.DataArray", str, os.PathLike[str]]
"""A result, one raster of it as it was read from a file, or the path of a store or a file."""
FILES = (*GEOTIFF, *NETCDF)
CHUNK = 2048


def open_result(
    result: ResultLike | Sequence[ResultLike], operation: str, argument: str = "result"
) -> xr.Dataset:
    """Return a result as a Dataset, lazily if it is read from a store or a file.

    Parameters
    ----------
    result
        A Dataset, a DataArray with the attributes of a file, the path of a store, a GeoTIFF or a
        NetCDF file, or a list of those whose rasters make up one result.
    operation
        What returns such results, for messages.
    argument
        Name of what the user has given.

    Raises
    ------
    InputError
        If it is nothing of this kind, or cannot be read.
    """
    import xarray as xr

    if isinstance(result, list | tuple) and result:
        first, *others = (open_result(part, operation, argument) for part in result)
        for other in others:
            if dict(first.sizes) != dict(other.sizes):
                raise InputError(
                    f"{argument}: rasters of {dict(first.sizes)} and {dict(other.sizes)} cells are "
                    "not of one result; give those of one call"
                )
            # the data alone, as coordinates may differ in the last bit
            parts = {name: array.variable for name, array in other.data_vars.items()}
            first = first.assign(parts).assign_attrs(other.attrs | first.attrs)
        return first
    if isinstance(result, str | os.PathLike):
        path = check_path(argument, result)
        suffix = Path(path).suffix.lower()
        if suffix in FILES and not os.path.isdir(path):
            if not os.path.exists(path):
                where = absolute_path(argument, path)
                raise InputError(f"{argument}: {where} does not exist; is the path right?")
            opener = _open_geotiff if suffix in GEOTIFF else _open_netcdf
            return opener(path, argument)
        storage = open_storage(result, argument)
        try:
            return open_dataset(storage)
        except InputError as error:
            raise InputError(f"{argument}: {error}") from None
    if isinstance(result, xr.DataArray):
        # Tags of a GeoTIFF are texts, numbers and lists among them.
        attributes = {name: parse_tag(value) for name, value in result.attrs.items()}
        # rioxarray opens a GeoTIFF with a dimension for its single band.
        if result.sizes.get("band", 1) > 1:
            raise InputError(
                f"{argument}: it has {result.sizes['band']} bands; give one, such as by "
                ".isel(band=0)"
            )
        array = result.squeeze("band", drop=True) if "band" in result.dims else result
        name = _name_of(result, operation, argument)
        if name in array.coords and name not in array.dims:  # the time of the data, beside times
            array = array.drop_vars([name])
        return array.to_dataset(name=name, promote_attrs=False).assign_attrs(attributes)
    if not isinstance(result, xr.Dataset):
        raise InputError(f"{argument}: {shown(result)}; give what {operation} returns, or its path")
    return result


def _name_of(array: xr.DataArray, operation: str, argument: str) -> Hashable:
    """Return the name of a raster; one without a name is called as the file it was opened from.

    rioxarray writes no names, so that what it writes and opens again has none.
    """
    if array.name is not None:
        return array.name
    source = array.encoding.get("source")
    if not isinstance(source, str):
        raise InputError(
            f"{argument}: a DataArray without a name, which tells what its cells are; name it as "
            f"{operation} does, such as by .rename('cost'), or give the path of its file"
        )
    return Path(source).stem


def is_table_path(path: str | os.PathLike[str]) -> bool:
    """Return whether a path may be that of a result with a table: a store or a NetCDF file."""
    is_file = Path(path).suffix.lower() in NETCDF and os.path.isfile(path)
    return is_file or os.path.isdir(path)


def read_geotiff(path: str | os.PathLike[str]) -> xr.DataArray:
    """Open a GeoTIFF of one band lazily, with the cells that are stored."""
    import rioxarray
    from rasterio.errors import NotGeoreferencedWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        opened: Any = rioxarray.open_rasterio(path, chunks={"x": CHUNK, "y": CHUNK}, masked=False)
    raster: xr.DataArray = opened.squeeze("band", drop=True)
    if opened.rio.crs is None and opened.rio.transform().is_identity:
        # measured in cells, as `FileRaster` does: rioxarray counts rows from a corner, northwards
        raster = raster.drop_vars(["y", "x", "spatial_ref"])
        # The variable that it names was dropped with the coordinates.
        raster.encoding.pop("grid_mapping", None)
    raster.encoding |= encoding_of_place(raster)
    return raster


def _open_geotiff(path: str, argument: str) -> xr.Dataset:
    """Open a GeoTIFF as a result; a raster without a name is called as its file."""
    from rasterio.errors import RasterioIOError

    try:
        raster = FileRaster(path)
    except OptionMissingError as error:
        raise InputError(f"{argument}: {error.without}") from None
    except RasterioIOError as error:
        raise InputError(
            f"{argument}: {path} is not a GeoTIFF that can be read ({error}); give what an "
            "operation has written"
        ) from None
    array = read_geotiff(path)
    fill, encoding = fill_value_in_xarray(raster.nodata, raster.dtype)
    array.attrs, array.encoding = {**raster.attrs, **fill}, {**array.encoding, **encoding}
    name = raster.name or Path(path).stem
    return array.to_dataset(name=name).assign_attrs(raster.shared_attrs)


def _open_netcdf(path: str, argument: str) -> xr.Dataset:
    try:
        return open_netcdf(Path(path), {})
    except (OSError, ValueError) as error:
        raise InputError(
            f"{argument}: {path} is not a NetCDF file that can be read ({error}); give what "
            "an operation has written"
        ) from None
