"""Check file extensions, so that no output is named as a format that it is not written in."""

from __future__ import annotations

from pathlib import Path

from orograph.tiles.errors import InputError

STORE = (".zarr",)
GEOTIFF = (".tif", ".tiff")
NETCDF = (".nc",)
RASTERS = (*STORE, *GEOTIFF, *NETCDF)
"""Extensions of the files and stores that rasters are written to."""
TABLES = (".gpkg", ".geojson", ".fgb", ".parquet", ".csv")
"""Extensions of the files that tables of points and lines are written to."""
RESULTS = (*RASTERS, *TABLES)
LAYERS = (*TABLES, ".geoparquet", ".geojsonl", ".shp", ".gml")
"""Extensions of the files that vector layers are written to."""

_FILES = {
    "rasters": ".asc .bil .grb .grb2 .grib .hgt .img .jp2 .nc .nc4 .netcdf .tif .tiff .vrt",
    "pictures and pages": ".bmp .gif .html .jpeg .jpg .pdf .png .svg .webp",
    "vectors": ".fgb .geojson .geojsonl .gml .gpkg .gpx .kml .kmz .shp .topojson",
    "tables": ".arrow .csv .feather .geoparquet .json .parquet .pq .tsv .txt .xls .xlsx",
    "databases": ".db .duckdb .gdb .sqlite",
    "arrays and graphs": ".gr .graphml .h5 .hdf .hdf5 .mat .mtx .npy .npz .pickle .pkl",
    "archives": ".7z .bz2 .gz .rar .tar .tgz .xz .zip .zst",
}
FILE_EXTENSIONS = frozenset(" ".join(_FILES.values()).split())


def check_extension(
    argument: str, path: object, written: str = "a Zarr store", extensions: tuple[str, ...] = STORE
) -> None:
    """Raise InputError if a path has the extension of a format that is not written there.

    Parameters
    ----------
    argument
        Name of the user's argument, for the message.
    path
        A path, or a storage, whose text is its address.
    written
        What is written there, for the message.
    extensions
        Extensions of the formats that are written. Names without an extension, and with one that
        is not in ``FILE_EXTENSIONS`` (``dem_1.5m``), can be given too.
    """
    name = Path(str(path))
    suffix = name.suffix.lower()
    if suffix in FILE_EXTENSIONS and suffix not in extensions:
        better = name.stem.removesuffix(extensions[0]) + extensions[0]
        raise InputError(
            f"{argument}: {path} ends in {name.suffix}, but what is written is {written}; name it "
            f"{better} and convert the result"
        )
