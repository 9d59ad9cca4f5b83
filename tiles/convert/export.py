"""Write rasters to GeoTIFF, a few blocks at a time."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orograph.tiles.arguments import (
    check_file,
    check_flag,
    shown,
)
from orograph.tiles.errors import (
    InputError,
    own_errors,
    report_full_storage,
    unread_error,
)
from orograph.tiles.extensions import GEOTIFF, check_extension
from orograph.tiles.files import TEMPORARY, is_token, sync_file
from orograph.tiles.format.metadata import read_metadata
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.open_storage import file_path
from orograph.tiles.raster.raster import (
    CHOICE,
    FileRaster,
    Raster,
    RasterLike,
    StoreRaster,
    open_raster,
)
from orograph.tiles.raster.tags import NAME, colour_table, tags_of
from orograph.tiles.raster.unchanged import unchanged
from orograph.tiles.store.lease import Lease

BLOCK = 512
READ_SIDE = 4096
EXACT_IN_FLOAT = 2**53
EXACT_PLACE = 1e-6  # of a cell: the corner of "Point" rasters is stored half a cell off


@own_errors
def to_geotiff(
    source: RasterLike,
    path: str | os.PathLike[str],
    *,
    nodata: float | int | None = None,
    band: int | None = None,
    variable: str | None = None,
    overwrite: bool = False,
    takeover: bool = False,
) -> Path:
    """Write a raster to a tiled, compressed GeoTIFF (BigTIFF if its size may require it).

    Parameters
    ----------
    source : DataArray, Dataset, array, or path
        Anything `open_raster` accepts.
    path : path
        The file to write, or its ``file://`` URL. Until it is complete, it has a hidden name in the
        same folder.
    nodata : number, optional
        Nodata value, in place of the source's own.
    band : int, optional
        Number of the band, from 1, if there are several.
    variable : str, optional
        Name of the variable, if there are several.
    overwrite : bool
        Replace an existing file of that name once the new one is complete.
    takeover : bool
        Take over from another writer that is working on the file; that writer ends with an error.

    Returns
    -------
    Path
        ``path``.

    Raises
    ------
    InputError
        If the source cannot be used, its cells are not evenly spaced, or the file cannot keep its
        CRS, position or nodata value.
    StoreExistsError
        If the file exists and ``overwrite`` is false, the path is not a plain file, or another
        writer is working on it.
    RunError
        If another writer has taken over, or the source has changed in the meantime.
    StorageFullError
        If there is no space left.

    Notes
    -----
    The file is read again before it gets its name. The long name of the raster is the description
    of the band, its units are those of the band, and its name and all other attributes, those of
    its result too, are tags. So operations know the codes of directions, the names of labels and
    the cost model of costs again, also from what rioxarray opens. Cells of uint8 with
    ``flag_values`` get a table of colours.

    A GeoTIFF identifies a CRS by its EPSG code, and its columns lie along x, the longitude,
    whatever the order of the axes. So OGC:CRS84, CRS83 and CRS27, which only differ from EPSG:4326,
    4269 and 4267 in that order, read back as the latter.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> forest = og.minimum_spanning_forest(np.array([[1, 2], [3, 4]]))
    >>> og.to_geotiff(forest["edges"], "edges.tif").name
    'edges.tif'
    """
    path = file_path("path", path)
    check_extension("path", path, "a GeoTIFF", GEOTIFF)
    overwrite = check_flag("overwrite", overwrite)
    check_file(path, overwrite)
    raster = open_raster(source, nodata=nodata, band=band, variable=variable, offers=CHOICE)
    return write_geotiff(raster, path, attributes_of_result(source, raster), overwrite, takeover)


def attributes_of_result(source: Any, raster: Raster) -> Mapping[str, Any]:
    """Return the attributes that a raster shares with others of its result, such as counts."""
    if isinstance(raster, StoreRaster):
        return read_metadata(raster.storage).attributes
    if hasattr(raster, "shared_attrs"):
        return dict(raster.shared_attrs)
    return getattr(source, "attrs", {}) if hasattr(source, "data_vars") else {}


def write_geotiff(
    raster: Raster,
    path: Path,
    attributes: Mapping[str, Any],
    overwrite: bool,
    takeover: bool = False,
) -> Path:
    """Write a raster to a GeoTIFF as `to_geotiff` does; ``attributes`` are those of its result."""
    _check_raster(path, raster)
    with Lease(path, takeover) as lease, lease.errors():
        check_file(path, overwrite)  # another may have written it meanwhile
        hidden = f".{path.name}."
        for other in path.absolute().parent.iterdir():  # of writers that were killed
            token = other.name.removeprefix(hidden).removesuffix(TEMPORARY)
            if other.name == f"{hidden}{token}{TEMPORARY}" and is_token(token):
                other.unlink(missing_ok=True)
        partial = path.with_name(f"{hidden}{lease.token}{TEMPORARY}")
        try:
            with report_full_storage(path):
                with unchanged(raster):
                    sums = _write(raster, partial, attributes)
                check_written(partial, raster, sums)
                sync_file(partial)  # a file that it replaces is gone from then on
                lease.check()
                os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    return path


def _check_raster(path: Path, raster: Raster) -> None:
    for name in getattr(raster, "files", ()):
        if path.exists() and os.path.samefile(name, path):
            raise InputError(f"{path} is the source itself; choose another path")
    place = raster.georeference
    if place.y is not None and place.transform is None and min(raster.shape) > 1:
        raise InputError(
            f"{path}: coordinates of {place.y_name} and {place.x_name} are not evenly spaced, "
            "which a GeoTIFF cannot say; regrid first, or drop them with .drop_vars"
        )


def _write(raster: Raster, path: Path, attributes: Mapping[str, Any]) -> dict[Window, int]:
    """Write the cells to a GeoTIFF; return the checksum of each window."""
    import warnings

    import rasterio
    from rasterio.errors import CRSError, NotGeoreferencedWarning
    from rasterio.windows import Window as RasterioWindow

    sums: dict[Window, int] = {}
    place = raster.georeference
    shape: dict[str, Any] = {
        "height": raster.shape[0],
        "width": raster.shape[1],
        "count": 1,
        "dtype": raster.dtype.name,
        "nodata": raster.nodata,
    }
    form: dict[str, Any] = {
        "driver": "GTiff",
        "tiled": True,
        "blockxsize": BLOCK,
        "blockysize": BLOCK,
        "compress": "deflate",
        # Predictors of TIFF: 2 stores differences of neighbours, 3 those of the bytes of floats.
        "predictor": 3 if raster.dtype.kind == "f" else 2,
        "BIGTIFF": "IF_SAFER",
        "NUM_THREADS": "ALL_CPUS",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        # rasterio passes a nodata value on as float64, which does not hold every such integer.
        if raster.dtype.kind in "iu" and abs(raster.nodata or 0) > EXACT_IN_FLOAT:
            _create_blank(raster, path, form)
            opened = rasterio.open(path, "r+", NUM_THREADS="ALL_CPUS")
        else:
            opened = rasterio.open(path, "w", **form, **shape)
        with opened as target:
            if place.crs_wkt is not None:
                try:
                    target.crs = rasterio.CRS.from_wkt(place.crs_wkt)
                except CRSError as error:
                    raise InputError(
                        f"source: GDAL cannot write its CRS ({error}); set another"
                    ) from None
            if place.transform is not None:
                target.transform = place.transform
            title = raster.attrs.get("long_name") or raster.name
            if title:
                target.set_band_description(1, str(title))
            if raster.attrs.get("units"):
                target.units = (str(raster.attrs["units"]),)
            if raster.attrs.get("AREA_OR_POINT"):
                target.update_tags(AREA_OR_POINT=raster.attrs["AREA_OR_POINT"])
            target.update_tags(**tags_of(attributes))
            named = {} if raster.name is None else {NAME: raster.name}
            target.update_tags(1, **tags_of(raster.attrs), **named)
            colours = colour_table(raster.attrs, raster.dtype)
            if colours is not None:
                target.write_colormap(1, colours)
            for window in _windows(raster):
                place_in = RasterioWindow(window.x, window.y, window.width, window.height)
                cells = raster.read(window)
                # Of the cells as they were read: `check_written` compares with them what is in the
                # file.
                sums[window] = zlib.crc32(cells.data)
                target.write(cells, 1, window=place_in)
    return sums


def _create_blank(raster: Raster, path: Path, form: dict[str, Any]) -> None:
    """Create an empty GeoTIFF with an exact integer nodata value.

    rasterio passes nodata values to GDAL as float64. GDAL itself copies an integer from a VRT.
    """
    import rasterio.shutil

    height, width = raster.shape
    kind = {"i": "Int64", "u": "UInt64"}[raster.dtype.kind]
    empty = (
        f'<VRTDataset rasterXSize="{width}" rasterYSize="{height}">'
        f'<VRTRasterBand dataType="{kind}" band="1"><NoDataValue>{raster.nodata}</NoDataValue>'
        "</VRTRasterBand></VRTDataset>"
    )
    with rasterio.open(empty) as source:
        rasterio.shutil.copy(source, path, SPARSE_OK=True, **form)


def check_copy(path: Path, source: Path) -> None:
    """Verify that a copy of a GeoTIFF has the same cells and georeference."""
    raster = FileRaster(source)
    sums = {window: zlib.crc32(raster.read(window).data) for window in _windows(raster)}
    check_written(path, raster, sums)


def check_written(path: Path, raster: Raster, sums: dict[Window, int]) -> None:
    """Read a written file again; verify its checksums, georeference and nodata value.

    GDAL reports a full disk on the standard error stream only, and continues.
    """
    try:
        written = FileRaster(path)
        whole = all(zlib.crc32(written.read(window).data) == held for window, held in sums.items())
    except (OSError, InputError):  # rasterio's own error is an OSError
        whole = False
    # compare representations, since NaN is not equal to itself
    if whole and repr(written.nodata) != repr(raster.nodata):
        raise InputError(
            f"source: nodata={raster.nodata} of {raster.dtype} reads back from a GeoTIFF as "
            f"{written.nodata}; give the cells another nodata value first, between -2**53 and "
            "2**53 if they are integers"
        )
    if whole:
        _check_place(raster.georeference, written.georeference)
    if not whole:
        raise unread_error(path)


def _check_place(place: Georeference, written: Georeference) -> None:
    """Raise InputError if a GeoTIFF did not keep the CRS or coordinates of its source."""
    if place.crs_wkt is not None and written.crs_wkt is None:
        raise InputError(
            f"source: a GeoTIFF does not keep its CRS ({shown(place.crs_wkt)}); set another"
        )
    one, other = place.transform, written.transform
    # what says that cells are counted from 0 is left out of the file
    if one is None or one.is_identity:
        return
    near = EXACT_PLACE * min(abs(one.a), abs(one.e))
    if other is None or max(abs(a - b) for a, b in zip(one, other, strict=True)) > near:
        raise InputError(
            f"source: its coordinates {tuple(one)[:6]} read back from a GeoTIFF as "
            f"{other and tuple(other)[:6]}; shift or regrid it first"
        )


def _windows(raster: Raster) -> Iterator[Window]:
    """Yield windows to write: whole blocks of the file and, if possible, tiles of the source."""
    # Blocks that are written in parts would be compressed more than once, and tiles that are read
    # in parts decoded more than once.
    side = math.lcm(BLOCK, raster.tile or BLOCK)
    side = side * (READ_SIDE // side) if side <= READ_SIDE else READ_SIDE
    for y in range(0, raster.shape[0], side):
        for x in range(0, raster.shape[1], side):
            yield Window(y, x, side, side).clip(raster.shape)
