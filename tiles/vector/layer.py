"""Vector layers: geometries with columns and a CRS."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from orograph.tiles import html
from orograph.tiles.arguments import check_flag, check_path, shown
from orograph.tiles.errors import InputError, own_errors, report_missing
from orograph.tiles.grid.crs import CRSLike, reproject
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.open_storage import file_path
from orograph.tiles.vector.degrees import in_degrees
from orograph.tiles.vector.write import (
    CSV,
    PARQUET,
    check_vector_target,
    import_parquet,
    import_pyogrio,
    import_shapely,
    write_layer,
)

SUFFIXES = {
    ".shp", ".gpkg", ".geojson", ".fgb", ".kml", ".kmz", ".gml", ".gpx", ".parquet",
    ".geoparquet", ".dxf", ".geojsonl", ".topojson", ".csv",
}  # fmt: skip
CSV_POINTS = (("x", "y", None), ("lon", "lat", "EPSG:4326"), ("longitude", "latitude", "EPSG:4326"),
              ("field_1", "field_2", None))  # fmt: skip
"""Names of columns with the coordinates of points, and their CRS; None: that of the raster.

The last are what GDAL calls two columns without a line of names.
"""
CSV_GEOMETRIES = ("geometry", "wkt")
NO_LABEL = -1
GEOMETRIES = ("Point", "LineString", "LinearRing", "Polygon", "MultiPoint", "MultiLineString",
              "MultiPolygon", "GeometryCollection")  # fmt: skip
"""Names of shapely's type ids."""

Geometries = npt.NDArray[np.object_]


class HasGeoInterface(Protocol):
    """A geometry or a layer of another library, such as shapely or GeoPandas."""

    @property
    def __geo_interface__(self) -> Mapping[str, Any]:
        """The object as GeoJSON."""


@dataclass(frozen=True, eq=False)
class VectorLayer:
    """Geometries with columns and a CRS.

    Attributes
    ----------
    geometry
        Shapely geometries, shape (n,).
    columns
        Columns by name, arrays of n values.
    crs
        Coordinate reference system in any form that pyproj accepts; None if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> from shapely import Point
    >>> og.VectorLayer(np.array([Point(7, 46)]), {"name": np.array(["spring"])}, "EPSG:4326")
    <orograph.VectorLayer: 1 geometries, WGS 84>
    """

    geometry: Geometries
    columns: Mapping[str, npt.NDArray[Any]]
    crs: CRSLike | None
    bare: bool = field(default=False, repr=False)
    """Whether the layer is of a kind without a CRS: its coordinates are those of the raster."""
    units: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Units of columns, by name, as far as they are known."""
    places: tuple[str, ...] = field(default=(), repr=False)
    """Prefixes of pairs of columns, ``x`` and ``y``, that are coordinates in the CRS."""

    def __len__(self) -> int:
        return len(self.geometry)

    def __repr__(self) -> str:
        from pyproj import CRS

        crs = "no CRS" if self.crs is None else CRS.from_user_input(self.crs).name
        return f"<orograph.VectorLayer: {len(self)} geometries, {crs}>"

    def _repr_html_(self) -> str:
        from pyproj import CRS
        from shapely import get_type_id

        kinds = sorted({GEOMETRIES[int(kind)] for kind in get_type_id(self.geometry)})
        rows = {
            "geometries": f"{len(self)} ({', '.join(kinds)})",
            "CRS": "none" if self.crs is None else CRS.from_user_input(self.crs).name,
            "columns": ", ".join(map(str, self.columns)) or "none",
        }
        return html.table("Vector layer", rows)

    @property
    def __geo_interface__(self) -> dict[str, Any]:
        """The layer as a GeoJSON FeatureCollection, in its own CRS."""
        from shapely.geometry import mapping

        names = list(self.columns)
        rows = zip(*(self.columns[name].tolist() for name in names)) if names else None
        features = [
            {
                "type": "Feature",
                "properties": dict(zip(names, next(rows))) if rows else {},
                "geometry": mapping(geometry),
            }
            for geometry in self.geometry
        ]
        return {"type": "FeatureCollection", "features": features}

    def to_geodataframe(self) -> Any:
        """Return the layer as a ``geopandas.GeoDataFrame``.

        ``attrs["units"]`` holds the known units of columns.

        Raises
        ------
        OrographError
            If GeoPandas is not installed.
        """
        with report_missing("to_geodataframe", "GeoPandas"):
            from geopandas import GeoDataFrame
        frame = GeoDataFrame(dict(self.columns), geometry=self.geometry, crs=self.crs)
        if self.units:
            frame.attrs["units"] = dict(self.units)
        return frame

    @own_errors
    def to_file(
        self,
        path: str | os.PathLike[str],
        *,
        crs: CRSLike | None = None,
        overwrite: bool = False,
    ) -> Path:
        """Write the layer to a vector file, in the format of its extension.

        Parameters
        ----------
        path
            The file to write: ``.gpkg``, ``.geojson``, ``.fgb``, ``.shp``, ``.parquet``
            (GeoParquet), or ``.csv`` with points as columns ``x`` and ``y`` and other geometries
            as well-known text. GeoJSON is in longitude and latitude (RFC 7946), cut at the 180th
            meridian.
        crs
            CRS in which to write the layer, in any form that pyproj accepts; by default its own.
        overwrite
            Replace an existing file of that name once the new one is complete.

        Raises
        ------
        InputError
            If the extension is not that of a vector format, the folder does not exist, or the
            layer cannot be brought to the CRS.
        StoreExistsError
            If the file exists and ``overwrite`` is false.
        OrographError
            If the package that writes such files is not installed.
        """
        target = file_path("path", path)
        check_vector_target(target, check_flag("overwrite", overwrite), crs=crs, own=self.crs)
        write_layer(self, target, crs=crs)
        return target

    def points(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return the coordinates of all geometries, and the geometry index of each."""
        from shapely import get_coordinates

        points, number = get_coordinates(self.geometry, return_index=True)
        return points, number

    def has_extent(self) -> bool:
        """Return whether any geometry is a line or an area."""
        from shapely import get_dimensions

        return bool((get_dimensions(self.geometry) > 0).any())

    def on_grid(self, place: Georeference, name: str) -> VectorLayer:
        """Reproject the layer to the CRS of a grid, and turn longitudes to those of the grid."""
        from shapely import bounds, set_coordinates

        moved = self.in_crs(place.map_crs, name)
        low, _, high, _ = bounds(moved.geometry).T
        turn = place.turns(low, high)
        if not turn.any():
            return moved
        points, number = moved.points()
        points[:, 0] += turn[number]
        # shapely changes the array that it is given.
        return replace(moved, geometry=set_coordinates(moved.geometry.copy(), points))

    def in_crs(self, crs: CRSLike | None, name: str, whose: str = "the raster's ") -> VectorLayer:
        """Reproject the layer to a CRS; ``whose`` says of whom it is, for messages."""
        if self.bare:
            return self
        from shapely import set_coordinates

        points, number = self.points()
        moved = reproject(points, self.crs, crs, name, number, whose)
        if moved is points:
            return self
        return self._moved(set_coordinates(self.geometry.copy(), moved), crs, name)

    def in_degrees(self, crs: CRSLike, name: str) -> VectorLayer:
        """Reproject the layer to a geographic CRS, cut at the 180th meridian."""
        assert self.crs is not None
        return self._moved(in_degrees(self.geometry, self.crs, crs, name), crs, name)

    def _moved(self, geometry: Geometries, crs: CRSLike | None, name: str) -> VectorLayer:
        """Return the layer with geometries that were reprojected, and its columns of places too."""
        columns, units = dict(self.columns), dict(self.units)
        for prefix in self.places:
            pair = f"{prefix}x", f"{prefix}y"
            points = np.stack([columns[axis] for axis in pair], axis=1)
            known = np.isfinite(points).all(axis=1)
            points[known] = reproject(points[known], self.crs, crs, name, whose="")
            columns |= dict(zip(pair, points.T, strict=True))
            units = {column: unit for column, unit in units.items() if column not in pair}
        return replace(self, geometry=geometry, crs=crs, columns=columns, units=units)

    def numbered(self, column: str, name: str) -> tuple[VectorLayer, str, list[str] | None]:
        """Return the layer with numbers in place of names, their column, and the names.

        They are numbered from 0 as they first occur; a column of numbers stays as it is.
        """
        values = column_of(self, column, name).tolist()
        text = [isinstance(value, str) for value in values]
        if not any(text):
            return self, column, None
        if not all(text):
            number = text.index(False)
            raise InputError(
                f"label: {column} of geometry {number} is {shown(values[number])}, others are "
                "text; make all text or all whole numbers"
            )
        numbers = {text: number for number, text in enumerate(dict.fromkeys(values))}
        labels = np.array([numbers[text] for text in values], np.int64)
        return replace(self, columns={"label": labels}), "label", list(numbers)

    def labels(self, column: str | None, name: str) -> npt.NDArray[np.int64]:
        """Return integer labels of the geometries: from a column, or numbers from 0.

        Raises
        ------
        InputError
            If there is no such column, or one of its values is not an integer, too large, or
            `NO_LABEL`.
        """
        if column is None:
            return np.arange(len(self), dtype=np.int64)
        labels = np.empty(len(self), np.int64)
        for number, value in enumerate(column_of(self, column, name).tolist()):
            try:
                whole = int(value)
                fits = whole == value and -(2**63) <= whole < 2**62 and whole != NO_LABEL
            except (TypeError, ValueError, OverflowError):
                fits = False
            if not fits:
                raise InputError(
                    f"label: {column} of geometry {number} is {shown(value)}; labels must be whole "
                    f"numbers below {2**62}, and not {NO_LABEL}, which marks cells without a "
                    "source: fill or renumber the column, or leave label= out to number geometries "
                    "from 0"
                )
            labels[number] = whole
        return labels


VectorLike = (
    str
    | os.PathLike[str]
    | VectorLayer
    | HasGeoInterface
    | Mapping[str, Any]
    | Sequence[HasGeoInterface | Mapping[str, Any]]
    | Geometries
)
"""A vector layer: a file, a GeoDataFrame, GeoJSON, one geometry or several."""


def column_of(layer: VectorLayer, column: object, name: str) -> npt.NDArray[Any]:
    """Return a column of a layer; raise InputError if it, or a value of it, is missing.

    ``name`` is the name of the argument that is the layer.
    """
    if not isinstance(column, str) or column not in layer.columns:
        listed = ", ".join(map(str, layer.columns)) or "none"
        raise InputError(f"label: {name} has no column {shown(column)}; its columns are {listed}")
    values = layer.columns[column]
    items = values.tolist()
    missing = pd.isna(_objects(items))
    if missing.any():
        number = int(missing.argmax())
        more = f" (and of {missing.sum() - 1} more)" if missing.sum() > 1 else ""
        raise InputError(
            f"label: {column} of geometry {number}{more} is missing ({shown(items[number])}); "
            "fill the column, leave such geometries out, or leave label= out to number them from 0"
        )
    return values


def is_vector_path(given: object) -> bool:
    """Return whether a value is a path with the extension of a vector format."""
    return isinstance(given, str | os.PathLike) and (
        Path(given).suffix.lower() in SUFFIXES or str(given).lower().endswith(".shp.zip")
    )


def read_layer(given: object, name: str) -> VectorLayer | None:
    """Read a vector layer from a file or from objects; None if the value is something else.

    Parameters
    ----------
    given
        A GeoDataFrame, a GeoSeries, a shapely geometry, an object or mapping in GeoJSON form
        (``__geo_interface__``), a sequence of such objects, or the path of a vector file.
    name
        Name of the argument, for messages.

    Raises
    ------
    InputError
        If the layer is empty, a geometry is missing, empty or not finite, or a file cannot be read.
    """
    layer = as_layer(given, name)
    if layer is None:
        return None
    if not len(layer):
        raise InputError(f"{name}: the layer is empty; give at least one geometry")
    for number, geometry in enumerate(layer.geometry):
        if geometry is None or geometry.is_empty:
            state = "missing" if geometry is None else "empty"
            raise InputError(f"{name}: geometry {number} is {state}; leave it out")
    points, of = layer.points()
    finite = np.isfinite(points).all(axis=1)
    if not finite.all():
        at = int(finite.argmin())
        raise InputError(
            f"{name}: geometry {of[at]} has the point {tuple(points[at].tolist())}; coordinates "
            "must be finite"
        )
    return layer


def as_layer(given: Any, name: str) -> VectorLayer | None:
    """Return a vector layer as `read_layer` does, whatever its geometries are."""
    given = getattr(given, "layer", given) if isinstance(given, list) else given
    if isinstance(given, VectorLayer):
        return given
    if isinstance(given, str | os.PathLike):
        path = check_path(name, given)
        return _read_file(path, name) if is_vector_path(path) else None
    if hasattr(given, "dims"):  # a DataArray, whatever its coordinates are called
        return None
    geometry = getattr(given, "geometry", given)
    # Of one geometry `geom_type` is text; of a GeoSeries, or the geometry of a GeoDataFrame, it is
    # a series.
    kind = getattr(geometry, "geom_type", None)
    if kind is not None and not isinstance(kind, str):
        columns = {}
        if geometry is not given:
            own = getattr(geometry, "name", "geometry")
            columns = {str(c): np.asarray(given[c]) for c in getattr(given, "columns", ())
                       if c != own}  # fmt: skip
        return VectorLayer(_objects(list(geometry)), columns, geometry.crs)
    if kind is not None:
        bare = not hasattr(given, "crs")
        return VectorLayer(_objects([geometry]), {}, getattr(given, "crs", None), bare)
    if isinstance(given, Mapping) or hasattr(given, "__geo_interface__"):
        spoken = given if isinstance(given, Mapping) else given.__geo_interface__
        return _of_geojson(spoken, name) if isinstance(spoken.get("type"), str) else None
    objects = isinstance(given, np.ndarray) and given.dtype == object and given.ndim == 1
    return _of_sequence(list(given), name) if objects or isinstance(given, Sequence) else None


def _of_sequence(items: list[Any], name: str) -> VectorLayer | None:
    """Combine a sequence of geometries into a layer; None if it is something else."""
    first = items[0] if items else None
    spoken = (isinstance(first, Mapping) and "type" in first) or hasattr(first, "__geo_interface__")
    if not (hasattr(first, "geom_type") or spoken):
        return None
    parts = [None if item is None else as_layer(item, name) for item in items]
    for number, (item, part) in enumerate(zip(items, parts)):
        if item is not None and (part is None or len(part) != 1):
            raise InputError(
                f"{name}: item {number}, {shown(item)}, is not a geometry as the first is; give "
                "geometries alone"
            )
    known = [part for part in parts if part is not None]
    texts = {None if part.crs is None else _wkt(part.crs) for part in known}
    if len(texts) > 1:
        raise InputError(f"{name}: the geometries have {len(texts)} CRSs; bring them to one first")
    geometry = _objects([part and part.geometry[0] for part in parts])
    return VectorLayer(geometry, {}, texts.pop(), all(part.bare for part in known))


def _of_geojson(spoken: Mapping[str, Any], name: str) -> VectorLayer:
    shape = import_shapely(name).geometry.shape
    features: Iterator[Mapping[str, Any]] | list[Mapping[str, Any]] = [spoken]
    if spoken["type"] == "FeatureCollection":
        features = list(spoken.get("features") or [])
    bodies = [part.get("geometry") if part["type"] == "Feature" else part for part in features]
    try:
        geometry = _objects([body and shape(body) for body in bodies])
    except Exception as error:  # shapely has an exception for each way in which it may be wrong
        raise InputError(f"{name}: no GeoJSON that shapely understands ({error})") from None
    rows = [part.get("properties") or {} for part in features]
    columns = {str(key): _objects([row.get(key) for row in rows]) for row in rows for key in row}
    # The member `crs` is of GeoJSON before RFC 7946, and still written by GDAL and GeoPandas.
    crs = (spoken.get("crs") or {}).get("properties", {}).get("name")
    return VectorLayer(geometry, columns, crs, crs is None)


def _read_file(path: str, name: str) -> VectorLayer:
    if "://" not in path and not path.startswith("/vsi") and not os.path.exists(path):
        raise InputError(f"{name}: {shown(path)} does not exist; is the path right?")
    if Path(path).suffix.lower() in PARQUET:
        return _read_parquet(path, name)
    csv = Path(path).suffix.lower() in CSV
    from_wkb, reader = import_shapely(name).from_wkb, import_pyogrio(name)
    try:
        options, crs = (
            _csv_options(reader.read_info(path)["fields"], path, name) if csv else ({}, None)
        )
        # A layer without a type of geometry is a table.
        layers = [str(found) for found, kind in reader.list_layers(path) if kind is not None]
        if len(layers) > 1:
            raise InputError(
                f"{name}: {path} has {len(layers)} layers ({', '.join(layers)}); pass one, such as "
                f"geopandas.read_file({path!r}, layer={layers[0]!r})"
            )
        meta, _, geometry, values = reader.raw.read(path, **options)
    except reader.errors.DataSourceError as error:
        raise InputError(
            f"{name}: {path} is not a vector file that can be read ({error})"
        ) from None
    if geometry is None:
        raise InputError(f"{name}: {path} is a table without geometries; give a layer")
    columns = {str(field): column for field, column in zip(meta["fields"], values)}
    # Geometries that are not valid become None here. They are read again, one by one, for the
    # reason.
    made = from_wkb(geometry, on_invalid="ignore")
    for number, (known, body) in enumerate(zip(made, geometry, strict=True)):
        if known is None and body is not None:
            try:
                from_wkb(body)
            except Exception as error:  # of GEOS, such as a ring that is not closed
                raise InputError(
                    f"{name}: {path}: geometry {number} is not valid ({error}); mend it, or leave "
                    "it out"
                ) from None
    if csv:
        places = options.values()
        columns = {field: values for field, values in columns.items() if field not in places}
        return VectorLayer(made, columns, crs, crs is None)
    return VectorLayer(made, columns, meta["crs"])


def _csv_options(
    fields: npt.NDArray[Any], path: str, name: str
) -> tuple[dict[str, str], str | None]:
    """Return GDAL's options to read geometries from columns of a CSV file, and their CRS."""
    known = {str(field).lower(): str(field) for field in fields}
    options = {"AUTODETECT_TYPE": "YES"}
    for column in CSV_GEOMETRIES:
        if column in known:
            return {**options, "GEOM_POSSIBLE_NAMES": known[column]}, None
    for x, y, crs in CSV_POINTS:
        if x in known and y in known and (x != "field_1" or len(fields) == 2):
            return {**options, "X_POSSIBLE_NAMES": known[x], "Y_POSSIBLE_NAMES": known[y]}, crs
    raise InputError(
        f"{name}: {path} has the columns {', '.join(known.values())}; name those of points x and y "
        "(in the raster's CRS) or lon and lat, or one of well-known text geometry"
    )


def _read_parquet(path: str, name: str) -> VectorLayer:
    """Read a GeoParquet file, which only some builds of GDAL can read."""
    geopandas = import_parquet(name)
    try:
        layer = as_layer(geopandas.read_parquet(path), name)
    except (ValueError, OSError) as error:  # pyarrow's and GeoPandas' own are ValueErrors
        raise InputError(
            f"{name}: {path} is not a vector file that can be read ({error})"
        ) from None
    assert layer is not None
    return layer


def _wkt(crs: CRSLike) -> str:
    from pyproj import CRS

    return str(CRS.from_user_input(crs).to_wkt())


def _objects(items: list[Any]) -> Geometries:
    """Return an object array of the items, which NumPy would otherwise unpack."""
    array = np.empty(len(items), object)
    array[:] = items
    return array
