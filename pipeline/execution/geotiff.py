"""Runs whose result is to be a GeoTIFF: a store beside it first, then one raster of that."""

from __future__ import annotations

import os
import shutil
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orograph.tiles.errors import InputError
from orograph.tiles.store.export import check_file, to_geotiff
from orograph.tiles.store.lease import Lease

if TYPE_CHECKING:
    import xarray as xr

    from orograph.execution.job import Job
    from orograph.execution.options import RunOptions

SUFFIXES = (".tif", ".tiff")


@dataclass(frozen=True)
class FileTarget:
    """A GeoTIFF that a run is to write, and the store where it works."""

    path: Path
    variable: str

    @property
    def store(self) -> Path:
        """Where the run works, and goes on if it was stopped."""
        return self.path.with_name(f".{self.path.name}.zarr")

    def write_after(self, work: Callable[[], Any], lease: Lease) -> Callable[[], Any]:
        """Return work that writes the file of what ``work`` returns, and opens it.

        ``lease`` is that of the file, which the caller holds.
        """

        def write() -> xr.Dataset:
            with lease.errors():
                stored: xr.Dataset = work()
                hidden = self.path.with_name(f".orograph-{uuid.uuid4().hex}.tif")
                try:
                    to_geotiff(self.store, hidden, variable=self.variable)
                    _write_optimised(hidden, self.path, lease)
                finally:
                    hidden.unlink(missing_ok=True)
            opened = open_file(self.path, self.variable, stored)
            stored.close()
            shutil.rmtree(self.store)
            return opened

        return write


def file_target(job: Job[Any], options: RunOptions) -> FileTarget | None:
    """Return the GeoTIFF that ``out`` names, or None if it names none.

    Raises
    ------
    InputError
        If the result has several rasters, or none.
    StoreExistsError
        If the file exists, and is not to be replaced.
    """
    if not str(options.out).lower().endswith(SUFFIXES):
        return None
    path = Path(os.path.abspath(str(options.out)))
    names = [variable.name for variable in getattr(job, "outputs", ())]
    if len(names) != 1:
        raise InputError(
            f"out: {options.out} is a GeoTIFF, which holds one raster, but there are "
            f"{len(names)} ({', '.join(names) or 'none'}); ask for one output, or give a store, "
            "such as out='x.zarr', and then og.to_geotiff(...)"
        )
    check_file(path, options.overwrite)
    return FileTarget(path, names[0])


def _write_optimised(source: Path, path: Path, lease: Lease) -> None:
    """Copy a GeoTIFF into one laid out for the cloud (COG), which takes its name when it is whole.

    Its overviews hold cells of the raster, no means: labels and codes cannot be averaged.
    """
    import rasterio.shutil

    whole = source.with_suffix(".cog.tif")
    form = {"COMPRESS": "DEFLATE", "PREDICTOR": "YES", "BIGTIFF": "IF_SAFER",
            "OVERVIEW_RESAMPLING": "NEAREST", "NUM_THREADS": "ALL_CPUS"}  # fmt: skip
    try:
        rasterio.shutil.copy(source, whole, driver="COG", **form)
        lease.check()
        os.replace(whole, path)
    finally:
        whole.unlink(missing_ok=True)


def open_file(path: Path, variable: str, stored: xr.Dataset) -> xr.Dataset:
    """Return the raster of a file lazily, with the attributes and tables of the stored result."""
    import rioxarray
    from rasterio.errors import NotGeoreferencedWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        opened: Any = rioxarray.open_rasterio(path, chunks={"x": 2048, "y": 2048}, masked=False)
    raster = opened.squeeze("band", drop=True)
    before = stored[variable]
    raster = raster.rename(dict(zip(raster.dims, before.dims, strict=True)))
    raster.attrs = dict(before.attrs)
    tables = {
        str(name): column.load()
        for name, column in stored.data_vars.items()
        if column.dims != before.dims
    }
    result: xr.Dataset = raster.to_dataset(name=variable).assign(tables)
    return result.assign_attrs(stored.attrs)
