"""The function `open_raster`, which opens any source as a raster."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.arguments import absolute_path, check_integer, check_path, is_number, shown
from orograph.tiles.errors import InputError, OptionMissingError
from orograph.tiles.extensions import FILE_EXTENSIONS, STORE
from orograph.tiles.format.metadata import is_store, read_group, read_metadata
from orograph.tiles.object_options import given_storage_options
from orograph.tiles.open_storage import is_object_address, open_storage
from orograph.tiles.raster.array import (
    ArrayRaster,
    DaskArray,
    DeviceArray,
    DLPackArray,
    LazyRaster,
    from_elsewhere,
)
from orograph.tiles.raster.file import FileRaster
from orograph.tiles.raster.from_xarray import (
    choose_variable,
    from_array,
    from_dataarray,
    from_dataset,
)
from orograph.tiles.raster.from_zarr import (
    folder_of,
    is_zarr_object,
    open_zarr,
    snapshot_of,
    store_of,
)
from orograph.tiles.raster.interface import Raster
from orograph.tiles.raster.marks import warn_of_nodata
from orograph.tiles.raster.outline import RasterOutline
from orograph.tiles.raster.version import absolute
from orograph.tiles.store.publish import partial_path, partial_storage
from orograph.tiles.store.raster import StoreRaster
from orograph.tiles.vector.layer import is_vector_path

if TYPE_CHECKING:
    import icechunk
    import xarray as xr
    import zarr
    from zarr.abc.store import Store

__all__ = ["ArrayRaster", "FileRaster", "LazyRaster", "Raster", "StoreRaster", "open_raster"]

CHOICE = ("nodata", "band", "variable")
"""Options that tell how a raster is read, or which of several."""
HEIGHTS = ("elevation", "surface")
"""Names of arguments that are heights."""
_NETCDF = {".nc", ".nc4", ".cdf", ".h5", ".hdf5", ".hdf"}


RasterLike = Union[
    str,
    os.PathLike[str],
    NDArray[Any],
    DaskArray,
    DeviceArray,
    DLPackArray,
    "xr.DataArray",
    "xr.Dataset",
    "zarr.Array[Any]",
    "zarr.Group",
    "Store",
    "icechunk.Repository",
    "icechunk.Session",
    Raster,
]
"""A raster: an array, an object of xarray, zarr or Icechunk, or the path of a store or a file."""


def open_raster(
    source: RasterLike,
    *,
    band: int | None = None,
    nodata: float | None = None,
    variable: str | None = None,
    usual: Sequence[str] = (),
    argument: str = "source",
    offers: Sequence[str] = (),
) -> Raster:
    """Open an array, DataArray, Dataset, store or raster file as a raster.

    Parameters
    ----------
    source : DataArray, Dataset, array, masked array, object of zarr or Icechunk, or path
        A path may name a store, a raster that GDAL reads, a NetCDF file or a Zarr store. Arrays
        may be on a GPU, or be tensors that speak DLPack. A leading band dimension of length 1 is
        dropped.
    band : int, optional
        Number of the band, from 1, if there are several.
    nodata : number, optional
        Value of cells that are not vertices; overrides the source's. Floats that are not finite
        are not vertices in any case.
    variable : str, optional
        Name of the variable, if there are several.
    usual : sequence of str
        Names of the variable if there are several and ``variable`` is None: the first that exists.
    argument : str
        Name of what the user has given as ``source``, for messages.
    offers : sequence of str
        Which of ``CHOICE`` the user could have given for it, for messages.

    Returns
    -------
    Raster
        Only metadata have been read.

    Raises
    ------
    InputError
        If the source cannot be used; the message states why, and the next step.
    """
    if band is not None:
        band = check_integer("band", band, 1)
    # a mask may have a truth value as nodata
    by_truth = isinstance(nodata, bool | np.bool_) and getattr(source, "dtype", None) == np.bool_
    if nodata is not None and not (is_number(nodata) or by_truth):
        raise InputError(f"nodata: {shown(nodata)}; it must be a number, or be left out")
    # names of a Dataset need not be text
    if isinstance(variable, bool) or not isinstance(variable, str | int | None):
        raise InputError(f"variable: {shown(variable)}; it must be a name, or be left out")
    if isinstance(source, str | os.PathLike):
        source = check_path(argument, source)
    try:
        try:
            raster = _open(source, band, nodata, variable)
        except OptionMissingError as error:
            known = [name for name in usual if name in error.names]
            if not known:
                raise
            raster = _open(source, band, nodata, known[0])
    except OptionMissingError as error:
        message = str(error) if error.option in offers else error.without
        raise InputError(f"{argument}: {message}") from None
    except InputError as error:
        raise InputError(f"{argument}: {error}") from None
    if argument in HEIGHTS and raster is not source:  # those who open it again have warned
        warn_of_nodata(raster, argument, "nodata" in offers)
    return raster


def _open(
    source: RasterLike, band: int | None, nodata: float | None, variable: str | None
) -> Raster:
    import xarray as xr

    if isinstance(source, ArrayRaster | FileRaster | LazyRaster | StoreRaster | RasterOutline):
        _check_name(type(source).__name__, source.name, variable)
        return source
    if isinstance(source, str):
        return _open_path(source, band, nodata, variable)
    if isinstance(source, xr.Dataset):
        return from_dataset(source, "Dataset", band, nodata, variable)
    if isinstance(source, xr.DataArray):
        _check_name("DataArray", source.name, variable)
        return from_dataarray(source, band, nodata)
    if not is_zarr_object(source):
        _check_name("array", None, variable)
    if hasattr(source, "dask") and hasattr(source, "chunks"):
        lazy = xr.DataArray(source)
        names = dict(zip(lazy.dims[::-1], ("x", "y", "band"), strict=False))
        return from_dataarray(lazy.rename(names), band, nodata)
    on_device = hasattr(source, "__cuda_array_interface__")
    if isinstance(source, np.ndarray) or (on_device and hasattr(source, "get")):  # CuPy
        return from_array(source, band, nodata)
    if is_zarr_object(source):
        return _open_zarr(source, band, nodata, variable)
    if on_device or hasattr(source, "__dlpack__"):
        return from_array(from_elsewhere(source), band, nodata)
    raise InputError(
        f"{shown(source)} is of type {type(source).__name__}; it must be a DataArray, a NumPy "
        "array, an array, group or store of zarr, or the path of a store or of a raster file"
    )


def _check_name(what: str, name: Hashable | None, variable: str | None) -> None:
    """Raise InputError if a single raster is not the variable that was asked for."""
    if variable is not None and (name is None or str(variable) != str(name)):
        known = "without a name" if name is None else f"called {shown(name)}"
        raise InputError(
            f"{what}: variable={variable!r}, but it is one raster {known}; leave variable= out"
        )


def _open_zarr(source: Any, band: int | None, nodata: float | None, variable: str | None) -> Raster:
    import xarray as xr

    source = store_of(source)
    folder = folder_of(source)
    if folder is not None and is_store(folder):
        return StoreRaster(folder, variable, nodata=nodata)
    # An array's folder lies in that of its store, and has its name.
    if folder is not None and variable is None and is_store(os.path.dirname(folder)):
        return StoreRaster(os.path.dirname(folder), os.path.basename(folder), nodata=nodata)
    opened = open_zarr(source, variable)
    if isinstance(opened, xr.Dataset):
        opened = opened[choose_variable(opened, type(source).__name__, variable)]
    raster = from_dataarray(opened, band, nodata)
    snapshot = snapshot_of(source)
    if snapshot and isinstance(raster, LazyRaster):
        # a snapshot never changes, so its cells need not be read for a fingerprint
        return replace(raster, origin=f"{snapshot} {raster.name} {band}")
    if folder is not None and isinstance(raster, LazyRaster):
        place = os.path.abspath(folder)
        return replace(raster, origin=f"{place} {raster.name} {band}", path=place)
    return raster


def _open_path(path: str, band: int | None, nodata: float | None, variable: str | None) -> Raster:
    # In an object store the extension tells files, which GDAL reads, from stores.
    of_file = Path(path).suffix.lower() in FILE_EXTENSIONS and is_object_address(path)
    if of_file and given_storage_options().items:
        raise InputError(
            f"{path}: storage_options= is of stores; GDAL reads a file with the credentials of the "
            "environment: set them there, or ingest the file first"
        )
    group = None if of_file else read_group(path)
    if group is not None:
        metadata = read_metadata(path, group=group)
        return StoreRaster(path, variable, nodata=nodata, metadata=metadata)
    if not of_file and is_object_address(path):
        _check_object(path)
    if "://" not in path and not path.startswith("/vsi") and not os.path.exists(path):
        if os.path.exists(partial_path(path)):
            return StoreRaster(path, variable)  # raises: the store was never finished
        if ":" not in path:  # GDAL interprets NETCDF:file.nc:z and the like
            known = os.path.isabs(path)
            where = "is the path right" if known else f"is it relative to {absolute_path('', '.')}"
            raise InputError(f"{path} does not exist; {where}?")
    tried = []
    by_xarray = Path(path).suffix.lower() in {*_NETCDF, *STORE} or os.path.isdir(path)
    for reader in (_by_xarray, _by_rasterio) if by_xarray else (_by_rasterio, _by_xarray):
        try:
            return reader(path, band, nodata, variable)
        except _CannotReadError as error:
            tried.append(str(error))
    if is_vector_path(path):
        raise InputError(
            f"{path}: a vector file, and no raster; burn it into one by og.rasterize({path!r}, "
            "like=...)"
        )
    raise InputError(
        f"{path} is not a raster that can be read; tried {'; '.join(tried)}. "
        "Convert it to GeoTIFF, or open it yourself and pass a DataArray"
    )


def _check_object(path: str) -> None:
    """Raise InputError if nothing is at the address of an object store, or it cannot be read."""
    if find_spec("obstore") is None:
        return  # whoever else can read it says what is wrong
    storage = open_storage(path)
    if storage.exists() or storage.state("") is not None:
        return
    if partial_storage(storage).exists():
        StoreRaster(path)  # raises: the store was never finished
    raise InputError(f"{path} does not exist; is the address right?")


class _CannotReadError(Exception):
    """Raised by a reader that does not support a file's format."""


def _by_rasterio(path: str, band: int | None, nodata: float | None, variable: str | None) -> Raster:
    from rasterio.errors import RasterioIOError

    try:
        raster = FileRaster(path, band, nodata)
    except RasterioIOError as error:
        raise _CannotReadError(f"rasterio ({error})") from None
    if variable is not None:
        raise OptionMissingError(
            *(f"{path}: variable={variable!r}, but this file has bands", "band", "use band="),
            "leave variable= out",
        )
    return raster


def _by_xarray(path: str, band: int | None, nodata: float | None, variable: str | None) -> Raster:
    import xarray as xr

    place: Any = path
    options: dict[str, Any] = {}
    if is_object_address(path) and Path(path).suffix.lower() in STORE and find_spec("obstore"):
        # Through a storage of ours, which has the options of the call.
        place, options = open_storage(path).zarr_store(), {"engine": "zarr"}

    def load(mask_and_scale: bool) -> xr.Dataset:
        with warnings.catch_warnings():  # that the metadata of a Zarr store are not consolidated
            warnings.filterwarnings("ignore", ".*consolidated metadata", RuntimeWarning)
            return xr.open_dataset(
                place, mask_and_scale=mask_and_scale, decode_coords="all", **options
            )

    try:
        dataset = load(mask_and_scale=False)
    except Exception as error:  # each backend raises exceptions of its own
        reason = (
            "no backend of it knows the format" if "did not find a match" in str(error) else error
        )
        raise _CannotReadError(f"xarray ({reason})") from None
    name = choose_variable(dataset, path, variable, f"xarray.open_dataset({path!r})")
    packed = {"scale_factor", "add_offset", "_Unsigned"} & set(dataset[name].attrs)
    if packed:
        dataset = load(mask_and_scale=True)  # packed cells must be unpacked
    raster = from_dataarray(dataset[name], band, nodata)
    if isinstance(raster, LazyRaster):
        place = absolute(path)
        raster = replace(raster, origin=f"{place} {name}", path=place)
    return raster
