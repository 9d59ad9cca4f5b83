"""Write the result of a run as a GeoTIFF: compute a Zarr store next to it, then convert."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orograph.tiles.arguments import check_file
from orograph.tiles.convert.export import check_copy, to_geotiff
from orograph.tiles.errors import InputError
from orograph.tiles.extensions import GEOTIFF
from orograph.tiles.files import sync_file
from orograph.tiles.storage import Storage, local_path
from orograph.tiles.store.dataset import open as open_dataset
from orograph.tiles.store.lease import Lease
from orograph.tiles.store.publish import mark_complete, partial_path

if TYPE_CHECKING:
    import xarray as xr

    from orograph.execution.options import RunSpec
    from orograph.operations.job import Job

WHOLE = "whole.tif"
"""The finished file in the folder of the run, and another name of the file that has its own."""


@dataclass(frozen=True)
class FileTarget:
    """The path of a GeoTIFF to write, and of the temporary Zarr store it is converted from."""

    path: Path
    variable: str

    @property
    def store(self) -> Path:
        """Path of the temporary Zarr store: a hidden file name next to the GeoTIFF."""
        return self.path.with_name(f".{self.path.name}.zarr")

    def write(self, result: Storage, lease: Lease) -> xr.Dataset:
        """Convert a finished result store to the GeoTIFF, and return it opened lazily.

        ``lease`` is that of the file, which the caller holds.
        """
        mark_complete(result)
        if not self.is_written():
            store = local_path(result)
            folder = store.parent
            whole, named = folder / WHOLE, folder / "named.tif"
            for left in (whole, named):  # by a run that was killed
                left.unlink(missing_ok=True)
            plain = to_geotiff(store, folder / "plain.tif", variable=self.variable, overwrite=True)
            _write_optimised(plain, whole)
            os.link(whole, named)
            lease.check()
            os.replace(named, self.path)
            sync_file(self.path.parent)
        stored = open_dataset(result)
        opened = open_file(self.path, self.variable, stored)
        stored.close()
        return opened

    def is_written(self) -> bool:
        """Return whether a run wrote the file but ended before removing its temporary folder."""
        kept = partial_path(self.store).glob(f"*/{WHOLE}")
        return self.path.exists() and any(map(self.path.samefile, kept))


def file_target(job: Job[Any], spec: RunSpec) -> FileTarget | None:
    """Return the GeoTIFF that ``out`` asks for, or None if ``out`` is a store or missing.

    Raises
    ------
    InputError
        If the result has several rasters, or none.
    StoreExistsError
        If the file exists, and is not to be replaced.
    """
    if not str(spec.out).lower().endswith(GEOTIFF):
        return None
    path = Path(os.path.abspath(str(spec.out)))
    names = [variable.name for variable in getattr(job, "outputs", ())]
    if len(names) != 1:
        raise InputError(
            f"out: {spec.out} is a GeoTIFF, which holds one raster, but there are "
            f"{len(names)} ({', '.join(names) or 'none'}); ask for one output, or give a store, "
            "such as out='x.zarr', and then og.to_geotiff(...)"
        )
    target = FileTarget(path, names[0])
    check_place(target, spec)
    return target


def check_place(target: FileTarget, spec: RunSpec) -> None:
    """Raise StoreExistsError if the GeoTIFF exists and may not be overwritten."""
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


def open_file(path: Path, variable: str, stored: xr.Dataset) -> xr.Dataset:
    """Open a GeoTIFF lazily as a dataset, with the attributes and tables of its Zarr store."""
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
