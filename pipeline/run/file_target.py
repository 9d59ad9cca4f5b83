"""Write the result of a run as a file: compute a Zarr store next to it, then convert.

The extension of ``out`` says which: GeoTIFF, NetCDF, or for tables of points a vector file or CSV.
Vector layers are not stored, and are written as they are.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orograph.results.netcdf import netcdf_engine, open_netcdf, write_netcdf
from orograph.results.opening import CHUNK, read_geotiff
from orograph.results.tables import table_layer
from orograph.run.cluster.compute import load
from orograph.tiles.arguments import check_file
from orograph.tiles.convert.export import check_copy, to_geotiff
from orograph.tiles.errors import InputError, report_full_storage
from orograph.tiles.extensions import (
    GEOTIFF,
    LAYERS,
    NETCDF,
    RASTERS,
    RESULTS,
    STORE,
    TABLES,
    check_extension,
)
from orograph.tiles.files import sync_file
from orograph.tiles.local_storage import local_path
from orograph.tiles.storage import Storage
from orograph.tiles.store.dataset import open as open_dataset
from orograph.tiles.store.lease import Lease
from orograph.tiles.store.publish import mark_complete, partial_path
from orograph.tiles.system import make_link
from orograph.tiles.vector.write import check_vector_target, write_layer

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import DatasetJob, Job
    from orograph.run.options import RunSpec
    from orograph.tiles.vector.layer import VectorLayer

WHOLE = "whole"
"""Name of the finished file in the run's folder, from which the target is made."""


@dataclass(frozen=True)
class FileTarget:
    """The path of a file to write, and of the temporary Zarr store it is converted from."""

    path: Path
    job: DatasetJob
    """Job of the run; for a layer, which has no store, another kind of job."""

    @property
    def suffix(self) -> str:
        """Extension of the file, which tells its format."""
        return self.path.suffix.lower()

    @property
    def store(self) -> Path:
        """Path of the temporary Zarr store: a hidden file name next to the file."""
        return self.path.with_name(f".{self.path.name}.zarr")

    def write(self, result: Storage, lease: Lease) -> xr.Dataset:
        """Convert a finished result store to the file, and return the result, of rasters lazily.

        ``lease`` is that of the file, which the caller holds.
        """
        mark_complete(result)
        if not self.is_written():
            folder = local_path(result).parent
            whole, named = (folder / f"{name}{self.suffix}" for name in (WHOLE, "named"))
            for left in (whole, named):  # by a run that was killed
                left.unlink(missing_ok=True)
            with report_full_storage(self.path, whole):
                self._convert(result, whole)
            sync_file(whole)
            # A second name of the same file replaces the target, and ``whole`` stays. So a run that
            # was killed afterwards knows the target for its own (`is_written`).
            if not make_link(whole, named):
                shutil.copyfile(whole, named)
            # Looked at last of all before the file gets its name.
            lease.check()
            os.replace(named, self.path)
            sync_file(self.path.parent)
        if self.suffix in TABLES:
            return self.job.load(self.job.open(result))
        stored = open_dataset(result)
        opened = self._open(stored)
        stored.close()
        return opened

    def write_layer(self, layer: VectorLayer, lease: Lease) -> None:
        """Write the layer that a run has made; ``lease`` is that of the file."""
        lease.check()
        write_layer(layer, self.path, crs=self.job.spec.crs)

    def is_written(self) -> bool:
        """Return whether a run wrote the file but ended before removing its temporary folder."""
        kept = partial_path(self.store).glob(f"*/{WHOLE}{self.suffix}")
        return self.path.exists() and any(map(self.path.samefile, kept))

    def _convert(self, result: Storage, path: Path) -> None:
        """Write a finished store to a new file."""
        if self.suffix in GEOTIFF:
            plain = path.with_name("plain.tif")
            (variable,) = self.job.outputs
            to_geotiff(local_path(result), plain, variable=variable.name, overwrite=True)
            _write_optimised(plain, path)
        elif self.suffix in NETCDF:
            write_netcdf(self.job.open(result), path)
        else:
            layer = table_layer(self.job.open(result))
            assert layer is not None
            write_layer(layer, path, self.path.stem, self.job.spec.crs)

    def _open(self, stored: xr.Dataset) -> xr.Dataset:
        """Open the file lazily as a dataset, with the attributes that its Zarr store has."""
        if self.suffix in GEOTIFF:
            (variable,) = self.job.outputs
            return open_geotiff(self.path, variable.name, stored)
        dims = {dim for variable in self.job.outputs for dim in stored[variable.name].dims}
        opened = open_netcdf(self.path, {str(dim): CHUNK for dim in dims})
        for name in opened.variables:
            _describe_as(opened[name], stored[name])
        return opened[list(stored.data_vars)].assign_attrs(stored.attrs)


def file_target(job: Job[Any], spec: RunSpec) -> FileTarget | None:
    """Return the file that ``out`` names by its extension, or None if it is a store or missing.

    Raises
    ------
    InputError
        If such a file cannot hold the result.
    OrographError
        If what writes such files is not installed.
    StoreExistsError
        If the file exists, and is not to be replaced.
    """
    of_datasets: Any = job
    if spec.storage is None:
        return None
    own = job.rasters[0].georeference.map_crs if job.rasters else None
    if job.is_layer:
        path = local_path(spec.storage, "out")
        check_vector_target(path, spec.overwrite, "out", spec.crs, own)
        return FileTarget(path, of_datasets)
    suffix = Path(str(spec.storage)).suffix.lower()
    if suffix not in (*RESULTS, *LAYERS) or suffix in STORE:
        return None
    path = local_path(spec.storage, "out")
    rasters = [variable.name for variable in getattr(job, "outputs", ())]
    is_table = job.is_table and not rasters
    written = "a Zarr store, or a GeoTIFF, NetCDF, vector or CSV file"
    check_extension("out", path, written, (*TABLES, *RASTERS) if is_table else RESULTS)
    if not (rasters or is_table):
        raise InputError(
            f"out: {spec.storage} ends in {suffix}, but this result is written to a Zarr store "
            f"alone; name it {path.stem}.zarr"
        )
    listed = f"{len(rasters)} ({', '.join(rasters) or 'none'})"
    if suffix in GEOTIFF and len(rasters) != 1:
        instead = "a table goes into .gpkg, .geojson, .fgb, .parquet or .csv"
        raise InputError(
            f"out: {spec.storage} is a GeoTIFF, which holds one raster, but there are {listed}; "
            + (instead if is_table else "ask for one output, or name it .nc or .zarr")
        )
    if suffix in TABLES and not is_table:
        raise InputError(
            f"out: {spec.storage} is a file of points, lines or rows, but the result has rasters, "
            f"{listed}; name it .tif (of one raster), .nc or .zarr"
            + (job.as_lines or "; og.polygonize makes areas of labels")
        )
    if suffix in NETCDF:
        netcdf_engine("out")
    if suffix in TABLES:
        check_vector_target(path, True, "out", spec.crs, own)
    target = FileTarget(path, of_datasets)
    check_place(target, spec)
    return target


def check_place(target: FileTarget, spec: RunSpec) -> None:
    """Raise StoreExistsError if the file exists and may not be overwritten."""
    check_file(target.path, spec.overwrite or (spec.resume and target.is_written()))


def _write_optimised(source: Path, path: Path) -> None:
    """Copy a GeoTIFF to a cloud-optimized GeoTIFF (COG), and verify the copy.

    Its overviews hold cells of the raster, no means: labels and codes cannot be averaged.
    """
    import rasterio.shutil

    form = {"COMPRESS": "DEFLATE", "PREDICTOR": "YES", "BIGTIFF": "IF_SAFER",
            "OVERVIEW_RESAMPLING": "NEAREST", "NUM_THREADS": "ALL_CPUS"}  # fmt: skip
    rasterio.shutil.copy(source, path, driver="COG", **form)
    check_copy(path, source)
    sync_file(path)


def _describe_as(raster: xr.DataArray, stored: xr.DataArray) -> None:
    """Give a raster of a file the attributes and the nodata value of its Zarr store."""
    raster.attrs = dict(stored.attrs)
    if "_FillValue" in stored.encoding:
        raster.encoding["_FillValue"] = stored.encoding["_FillValue"]


def open_geotiff(path: Path, variable: str, stored: xr.Dataset) -> xr.Dataset:
    """Open a GeoTIFF lazily as a dataset, with the attributes and tables of its Zarr store."""
    raster = read_geotiff(path)
    before = stored[variable]
    raster = raster.rename(dict(zip(raster.dims, before.dims, strict=True)))
    _describe_as(raster, before)
    tables = {
        str(name): load(column)
        for name, column in stored.data_vars.items()
        if column.dims != before.dims
    }
    result: xr.Dataset = raster.to_dataset(name=variable).assign(tables)
    return result.assign_attrs(stored.attrs)
