"""Write vector layers to files, in the format of their extension."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from orograph.tiles.arguments import check_file
from orograph.tiles.errors import InputError, OrographError, report_missing, unread_error
from orograph.tiles.files import new_file, new_files
from orograph.tiles.grid.crs import CRSLike, parse_crs, same_crs
from orograph.tiles.warn import warn_user

PARQUET = (".parquet", ".geoparquet")
CSV = (".csv",)
OF_PYOGRIO = {".gpkg": "GPKG", ".geojson": "GeoJSON", ".geojsonl": "GeoJSONSeq",
              ".fgb": "FlatGeobuf", ".shp": "ESRI Shapefile", ".gml": "GML"}  # fmt: skip
"""Drivers of GDAL by extension."""
OF_SHAPEFILE = (".shx", ".dbf", ".prj", ".cpg", ".qix", ".sbn", ".sbx", ".qpj")
"""Extensions of the files beside a ``.shp``, of which old ones must not stay beside a new one."""
GEOJSON = (".geojson", ".geojsonl")
WGS84 = "EPSG:4326"
OPTIONS = {
    ".geojson": {"RFC7946": "YES", "COORDINATE_PRECISION": "9"},
    ".geojsonl": {"COORDINATE_PRECISION": "9"},
    ".fgb": {"SPATIAL_INDEX": "NO"},  # it would put the geometries into another order
    ".gml": {"XSISCHEMA": "OFF"},  # another file
}
WITHOUT_INFINITY = (".geojson", ".geojsonl", ".shp", ".gml")
"""Extensions of formats without infinite numbers, which are written as empty values."""
GEOMETRY_TYPES = {0: "Point", 1: "LineString", 3: "Polygon", 4: "MultiPoint", 5: "MultiLineString",
                  6: "MultiPolygon"}  # fmt: skip


class Layer(Protocol):
    """A vector layer as far as it is written; see `VectorLayer`."""

    @property
    def geometry(self) -> Any:
        """Array of Shapely geometries."""

    @property
    def columns(self) -> Mapping[str, npt.NDArray[Any]]:
        """Attributes of the geometries, by name."""

    @property
    def crs(self) -> CRSLike | None:
        """CRS of the geometries."""

    def __len__(self) -> int: ...

    def in_crs(self, crs: CRSLike | None, name: str, whose: str = "") -> Layer:
        """Reproject the layer to a CRS."""

    def in_degrees(self, crs: CRSLike, name: str) -> Layer:
        """Reproject the layer to a geographic CRS, cut at the 180th meridian."""

    def to_geodataframe(self) -> Any:
        """Return the layer as a ``geopandas.GeoDataFrame``."""


def check_vector_target(
    path: Path,
    overwrite: bool,
    argument: str = "path",
    crs: CRSLike | None = None,
    own: CRSLike | None = WGS84,
) -> None:
    """Raise the error that `write_layer` would raise for a path, without writing.

    ``crs`` is the CRS in which a layer shall be written, and ``own`` the one that it has.
    """
    suffix = path.suffix.lower()
    if suffix not in (*OF_PYOGRIO, *PARQUET, *CSV):
        raise InputError(
            f"{argument}: {path} ends in none of the vector formats; use .gpkg, .geojson, .fgb, "
            ".shp, .parquet or .csv"
        )
    if suffix in PARQUET:
        import_parquet(argument)
    elif suffix in OF_PYOGRIO:
        import_pyogrio(argument)
    else:
        import_shapely(argument)
    check_file(path, overwrite)
    if crs is None:
        return
    target = parse_crs(crs, "crs")
    if own is None:
        raise InputError(
            f"crs: the layer has none itself, so it cannot be brought to {target.name}; set the "
            "CRS of what it was made from, or leave crs= out"
        )
    if suffix in GEOJSON and not same_crs(target, parse_crs(WGS84, "crs")):
        raise InputError(
            f"crs: {target.name}, but GeoJSON is in longitude and latitude of WGS 84 (RFC 7946); "
            f"leave crs= out, or name the file {path.stem}.gpkg"
        )


def write_layer(
    layer: Layer, path: Path, name: str | None = None, crs: CRSLike | None = None
) -> None:
    """Write a layer to a file, which gets its name when it is whole.

    A CSV file has points as columns ``x`` and ``y``, other geometries as well-known text. In other
    formats the layer is called ``name``, by default as the file. ``crs`` is the CRS to write, by
    default that of the layer; GeoJSON is in longitude and latitude.

    Raises
    ------
    InputError
        If the format cannot hold the layer, or a point has no place in the CRS.
    StorageFullError
        If there is no space left. An older file is then unchanged.
    """
    suffix, name = path.suffix.lower(), name or path.stem
    if (suffix in GEOJSON and layer.crs is not None) or crs is not None:
        crs = WGS84 if suffix in GEOJSON or crs is None else crs
        geographic = parse_crs(crs, "crs").is_geographic
        layer = layer.in_degrees(crs, "path") if geographic else layer.in_crs(crs, "path", "")
    try:
        if suffix == ".shp":
            with new_files(path, OF_SHAPEFILE) as temporary:
                _write_by_pyogrio(layer, temporary, suffix, name)
                _check_shapefile(temporary, len(layer), path)
            return
        with new_file(path) as temporary:
            if suffix in CSV:
                pd.DataFrame(_with_text(layer)).to_csv(temporary, index=False)
            elif suffix in PARQUET:
                import_parquet("path")
                layer.to_geodataframe().to_parquet(temporary, index=False)
            else:
                with temporary.open("wb") as file:
                    _write_by_pyogrio(layer, _Stream(file), suffix, name)
    except OrographError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:  # of pyogrio and pyarrow
        raise InputError(
            f"path: {path} cannot hold the layer ({error}); convert the column or the geometries, "
            "or use another format, such as .gpkg"
        ) from error
    if suffix in GEOJSON and layer.crs is None:
        warn_user(
            f"path: {path.name} is written with coordinates as they are, because the layer has no "
            "CRS, but GeoJSON is in longitude and latitude; set the CRS of what the layer was made "
            "from, or use another format, such as .gpkg",
            UserWarning,
        )


class _Stream(BytesIO):
    """A file that pyogrio writes at once, by the system's own call.

    GDAL keeps silent about a disk that is full when it closes a file.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file

    def write(self, content: Any) -> int:
        """Write the whole file."""
        return self._file.write(content)


def import_shapely(what: str) -> Any:
    """Import and return Shapely, which makes geometries."""
    with report_missing(what, "shapely"):
        import shapely.geometry
    return shapely


def import_pyogrio(what: str) -> Any:
    """Import and return pyogrio, which reads and writes vector files."""
    with report_missing(what, "pyogrio"):
        import pyogrio
        import pyogrio.raw
    return pyogrio


def import_parquet(what: str) -> Any:
    """Import and return GeoPandas, which reads and writes GeoParquet by pyarrow."""
    with report_missing(what, "GeoPandas and pyarrow"):
        import geopandas
        import pyarrow  # noqa: F401
    return geopandas


def _write_by_pyogrio(layer: Layer, path: Path | BytesIO, suffix: str, name: str) -> None:
    from pyproj import CRS
    from shapely import get_type_id, to_wkb

    # -1 is the type of a missing geometry.
    kinds = {int(kind) for kind in get_type_id(layer.geometry)} - {-1}
    kind = GEOMETRY_TYPES.get(kinds.pop(), "Unknown") if len(kinds) == 1 else "Unknown"
    values = [_writable(column) for column in layer.columns.values()]
    empty = [
        np.isinf(column) if suffix in WITHOUT_INFINITY and column.dtype.kind == "f" else None
        for column in values
    ]
    write = import_pyogrio("to_file").raw.write
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "'crs' was not provided|No SRS set on layer")
        write(
            path,
            geometry=to_wkb(layer.geometry),
            field_data=values,
            field_mask=empty,
            fields=np.array(list(layer.columns), object),
            layer=name,
            driver=OF_PYOGRIO[suffix],
            geometry_type=kind,
            crs=None if layer.crs is None else CRS.from_user_input(layer.crs).to_wkt(),
            encoding="UTF-8",
            **({} if suffix in GEOJSON and layer.crs is None else OPTIONS.get(suffix, {})),
        )


def _check_shapefile(temporary: Path, count: int, path: Path) -> None:
    """Raise StorageFullError if files of a Shapefile end before the last of ``count`` records."""
    parts = [temporary.with_suffix(suffix) for suffix in (".shp", ".shx", ".dbf")]
    headers = []
    for part in parts:
        with part.open("rb") as file:
            headers.append(file.read(100).ljust(100, b"\0"))
    # In a .dbf: the number of records, the length of the header, and that of a record. In a .shp:
    # the length of the file in words of 16 bits. A .shx has 8 bytes a record after 100 of header.
    records, begin, size = struct.unpack("<IHH", headers[2][4:12])
    words = int.from_bytes(headers[0][24:28], "big")
    least = max(2 * words, 100), 100 + 8 * count, begin + records * size
    ends = [part.stat().st_size for part in parts]
    if records != count or any(end < size for end, size in zip(ends, least, strict=True)):
        raise unread_error(path)


def _writable(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column in a type that GDAL has, with the same values where there is one."""
    if column.dtype == np.float16:
        return column.astype(np.float32)
    if column.dtype == np.uint64:
        # GDAL has no unsigned integers of 64 bits in vector files.
        fits = not column.size or int(column.max()) < 2**63
        return column.astype(np.int64 if fits else np.float64)
    if column.dtype == object:
        column = column.copy()
        column[pd.isna(column)] = None
    return column


def _with_text(layer: Layer) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of a layer, and its geometries as coordinates or as well-known text."""
    from shapely import get_type_id, get_x, get_y, is_missing, to_wkt

    columns = dict(layer.columns)
    if (is_missing(layer.geometry) | (get_type_id(layer.geometry) == 0)).all():
        return columns | {"x": get_x(layer.geometry), "y": get_y(layer.geometry)}
    # A precision of -1 keeps all digits.
    return columns | {"geometry": to_wkt(layer.geometry, rounding_precision=-1)}
