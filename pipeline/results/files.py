"""Write results to files, in the format of their extension."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import xarray as xr

from orograph.results.netcdf import netcdf_engine, write_netcdf
from orograph.results.tables import has_rasters, table_layer
from orograph.tiles.arguments import check_file, check_flag, check_path, shown
from orograph.tiles.convert.export import attributes_of_result, write_geotiff
from orograph.tiles.convert.ingest import NAME, ingest
from orograph.tiles.errors import InputError, own_errors
from orograph.tiles.extensions import GEOTIFF, NETCDF, RASTERS, check_extension
from orograph.tiles.files import new_file
from orograph.tiles.grid.crs import CRSLike
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import fill_value_in_xarray
from orograph.tiles.open_storage import file_path, open_storage
from orograph.tiles.raster.raster import Raster, RasterLike, open_raster
from orograph.tiles.store.dataset import open as open_dataset
from orograph.tiles.store.publish import check_target
from orograph.tiles.vector.layer import VectorLike
from orograph.tiles.vector.write import check_vector_target, write_layer

if TYPE_CHECKING:
    from orograph.tiles.graph.tables import Table


@own_errors
def to_file(
    result: RasterLike | VectorLike | Table,
    path: str | os.PathLike[str],
    *,
    variable: str | None = None,
    crs: CRSLike | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a result to a file, in the format of its extension.

    Parameters
    ----------
    result : result, raster, vector layer or path
        Rasters or their store, tables as for `to_geodataframe`, layers such as a GeoDataFrame, or
        paths.
    path : path
        The file to write. Rasters: ``.tif`` (one raster, see `to_geotiff`), ``.nc`` or ``.zarr``.
        Tables, layers and paths: ``.gpkg``, ``.geojson``, ``.fgb``, ``.parquet`` (GeoParquet) or
        ``.csv``. Layers and paths also ``.shp``; tables also ``.nc``. GeoJSON is in longitude and
        latitude (RFC 7946), cut at the 180th meridian.
    variable : str, optional
        Name of the raster to write, if there are several and the file holds one.
    crs : CRS, optional
        CRS in which to write a table, a layer or paths, such as ``"EPSG:4326"``; by default their
        own.
    overwrite : bool
        Replace an existing file of that name once the new one is complete.

    Returns
    -------
    Path
        ``path``.

    Raises
    ------
    InputError
        If the file cannot hold the result.
    OrographError
        If the package that writes such files is not installed.
    StoreExistsError
        If the file exists and ``overwrite`` is false.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> og.to_file(og.peaks(np.array([[5, 2, 9, 4, 7]])), "peaks.csv").name
    'peaks.csv'
    >>> og.to_file(og.cost_distance(np.ones((2, 3)), [(0, 0)]), "cost.nc").name
    'cost.nc'
    """
    text, overwrite = check_path("path", path), check_flag("overwrite", overwrite)
    suffix = Path(text).suffix.lower()
    # lines of streams are not made where their rasters alone are written
    of_rasters = suffix in RASTERS and has_rasters(result)
    layer = None if of_rasters else table_layer(result)
    if layer is not None and suffix not in RASTERS:
        target = file_path("path", text)
        check_vector_target(target, overwrite, crs=crs, own=layer.crs)
        write_layer(layer, target, crs=crs)
        return target
    if crs is not None:
        raise InputError(
            f"crs: {shown(crs)} is for tables, layers and paths; leave it out, and reproject a "
            "raster first, such as by .rio.reproject(...)"
        )
    check_raster_target(text, overwrite, "path")
    if suffix in NETCDF and (layer is None or _in_dataset(result)):
        dataset, target = _as_dataset(cast("RasterLike", result), variable), file_path("path", text)
        with new_file(target) as temporary:
            write_netcdf(dataset, temporary)
        return target
    if layer is not None:
        raise InputError(
            f"path: {text} is for rasters, but the result is a table or a layer; name it .gpkg, "
            ".geojson, .fgb, .parquet or .csv"
        )
    raster = _open(cast("RasterLike", result), variable)
    if suffix in GEOTIFF:
        attributes = attributes_of_result(result, raster)
        return write_geotiff(raster, file_path("path", text), attributes, overwrite)
    ingest(raster, text, overwrite=overwrite)
    return Path(text)


def check_raster_target(out: str, overwrite: bool, argument: str = "out") -> None:
    """Raise the error that writing a raster to ``out`` would raise, without writing."""
    suffix = Path(out).suffix.lower()
    if suffix in (*GEOTIFF, *NETCDF):
        check_file(file_path(argument, out), overwrite)
        if suffix in NETCDF:
            netcdf_engine(argument)
        return
    target = open_storage(out, argument)
    written = "a Zarr store, or a GeoTIFF or NetCDF file"
    check_extension(argument, target, written, RASTERS)
    check_target(target, overwrite)


def _in_dataset(result: object) -> bool:
    """Return whether a result is a Dataset or its store."""
    is_path = isinstance(result, str | os.PathLike)
    return os.path.isdir(cast("str", result)) if is_path else isinstance(result, xr.Dataset)


def _open(result: RasterLike, variable: str | None) -> Raster:
    return open_raster(result, variable=variable, argument="result", offers=("variable",))


def _as_dataset(result: RasterLike, variable: str | None) -> xr.Dataset:
    """Return a result as a dataset, of the named variable or of all variables."""
    if isinstance(result, str | os.PathLike) and os.path.isdir(result):
        result = open_dataset(open_storage(result, "result"))
    if isinstance(result, xr.Dataset) and variable is None:
        return result
    raster = _open(result, variable)
    if isinstance(result, xr.Dataset):
        return result[[raster.name]]
    if isinstance(result, xr.DataArray):
        return result.to_dataset(name=result.name or NAME)
    place = raster.georeference
    cells = raster.read(Window(0, 0, *raster.shape))
    dims = place.y_name, place.x_name
    # Nodata stays in the cells, and is named as xarray expects it.
    marked = xr.Variable(dims, cells, *fill_value_in_xarray(raster.nodata, raster.dtype))
    array = xr.DataArray(marked, place.coords())
    return array.to_dataset(name=raster.name or NAME)
