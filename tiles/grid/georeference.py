"""Georeference of a grid: coordinates, coordinate reference system (CRS), cell size."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.errors import InputError
from orograph.tiles.grid.crs import report_crs_error
from orograph.tiles.grid.orientation import Orientation
from orograph.tiles.grid.units import (
    METRE,
    LengthUnit,
    in_unit_of_coordinates,
    parse_length_unit,
    unit_of_crs,
)

if TYPE_CHECKING:
    from affine import Affine
    from pyproj import CRS
    from rasterio.io import DatasetReader

GRID_MAPPING = "spatial_ref"
# Tolerance, in cells, between a coordinate and that of a regular grid. Wide enough for longitudes
# that were once stored as float32, narrow enough to detect a missing row.
REGULAR_WITHIN = 0.05

_DEGREE_NAMES = {"lat", "latitude", "lon", "longitude"}

GeoTransform = tuple[float, float, float, float, float, float]
IDENTITY: GeoTransform = (0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
"""Transform of what has no georeference, for GDAL and rioxarray."""


@dataclass(frozen=True, eq=False, repr=False)
class Georeference:
    """Coordinates and CRS of a grid.

    Parameters
    ----------
    y, x : float64 arrays of one dimension, or None
        Coordinates of the centres of rows and of columns. None: the grid has no coordinates, and
        is measured in cells.
    crs_wkt : str or None
        Coordinate reference system in well-known text.
    y_name, x_name : str
        Names of the two dimensions.
    geotransform : six floats or None
        Affine transform in GDAL's order, kept because cell centres determine it only up to
        rounding. It must agree with ``y`` and ``x``.
    y_attrs, x_attrs : mapping
        Attributes of the coordinates, such as units.

    Raises
    ------
    InputError
        If coordinates are not finite and strictly monotonic, or the transform is sheared.
    """

    y: NDArray[np.float64] | None = None
    x: NDArray[np.float64] | None = None
    crs_wkt: str | None = None
    y_name: str = "y"
    x_name: str = "x"
    geotransform: GeoTransform | None = None
    y_attrs: Mapping[str, Any] = field(default_factory=dict)
    x_attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.y is None) != (self.x is None):
            missing = self.y_name if self.y is None else self.x_name
            raise InputError(f"coordinates of {missing} are missing; give both axes or neither")
        for name, values in ((self.y_name, self.y), (self.x_name, self.x)):
            if values is not None:
                _check_axis(name, values)
        if self.geotransform is not None:
            check_upright(self.geotransform)

    @classmethod
    def from_geotransform(
        cls, transform: GeoTransform, shape: tuple[int, int], crs_wkt: str | None = None
    ) -> Georeference:
        """Return the georeference of a grid of ``shape`` with a transform in GDAL's order."""
        check_upright(transform)
        left, dx, _, top, _, dy = transform
        # The expression that rioxarray uses, so that coordinates are equal to the bit.
        y = np.arange(shape[0], dtype=np.float64) * dy + np.float64(dy * 0.5 + top)
        x = np.arange(shape[1], dtype=np.float64) * dx + np.float64(dx * 0.5 + left)
        return cls(y, x, crs_wkt, geotransform=transform)

    @classmethod
    def from_rasterio(cls, dataset: DatasetReader) -> Georeference:
        """Return the georeference of an open rasterio dataset.

        An identity transform without a CRS means that the grid is measured in cells.
        """
        wkt = dataset.crs.to_wkt() if dataset.crs else None
        transform = dataset.transform
        if transform.is_identity:
            points = len(dataset.gcps[0])
            by = f"{points} ground control points" if points else ""
            if dataset.rpcs is not None:
                by = by or "rational polynomial coefficients"
            if by or wkt is not None:
                reason = f"placed by {by}" if by else "it has a CRS, but no geotransform"
                raise InputError(
                    f"{dataset.name}: {reason}, so the place of its cells is not known; warp it to "
                    "a regular grid first (gdalwarp), or remove the CRS to measure in cells"
                )
            return cls()
        y_attrs, x_attrs = axes = _axes_of_netcdf(dataset)
        if wkt is not None:
            wkt = in_unit_of_coordinates(wkt, axes)
        try:
            place = cls.from_geotransform(transform.to_gdal(), dataset.shape, wkt)
            return replace(place, y_attrs=y_attrs, x_attrs=x_attrs)
        except InputError as error:
            raise InputError(f"{dataset.name}: {error}") from None

    @property
    def transform(self) -> Affine | None:
        """Affine transform from cell corners (column, row) to the CRS; None if irregular."""
        from affine import Affine

        six = self.geotransform or self._regular
        return None if six is None else Affine.from_gdal(*six)

    @cached_property
    def _regular(self) -> GeoTransform | None:
        if self.y is None or self.x is None or self.y.size < 2 or self.x.size < 2:
            return None
        steps = []
        for values in (self.y, self.x):
            step = (float(values[-1]) - float(values[0])) / (values.size - 1)
            even = float(values[0]) + step * np.arange(values.size)
            if np.abs(values - even).max() > REGULAR_WITHIN * abs(step):
                return None
            steps.append(step)
        dy, dx = steps
        # Coordinates are those of centres; a transform begins at the corner of the first cell.
        return float(self.x[0]) - dx / 2, dx, 0.0, float(self.y[0]) - dy / 2, 0.0, dy

    @property
    def _stated(self) -> GeoTransform | None:
        """Transform that is written beside coordinates; the identity only as it was given."""
        if self.geotransform is not None:
            return self.geotransform
        return None if self._regular == IDENTITY else self._regular

    @cached_property
    def orientation(self) -> Orientation:
        """Signs of rows and columns; without coordinates the first row lies in the north.

        So it does where coordinates only count cells: rioxarray gives files without a georeference
        the identity transform.
        """
        south, east = 1, 1
        if self.geotransform == IDENTITY and self.crs_wkt is None:
            return Orientation(south, east)
        if self.geotransform is not None:
            # The height of a cell is negative in GDAL's order if rows run south.
            south, east = -int(np.sign(self.geotransform[5])), int(np.sign(self.geotransform[1]))
        elif self.y is not None and self.x is not None:
            south = -1 if self.y[0] < self.y[-1] else 1
            east = -1 if self.x[0] > self.x[-1] else 1
        return Orientation(south, east)

    @property
    def cell_size(self) -> tuple[float, float] | None:
        """Height and width of a cell in units of the CRS, both positive; None if they vary."""
        six = self.geotransform or self._regular
        return None if six is None else (abs(six[5]), abs(six[1]))

    @property
    def side_lengths(self) -> tuple[float, float] | None:
        """`cell_size`; in one row or column without a transform the other side's, or 1."""
        size = self.cell_size
        if (
            size is not None
            or self.y is None
            or self.x is None
            or min(self.y.size, self.x.size) > 1
        ):
            return size
        dy, dx = (abs(float(a[1] - a[0])) if a.size > 1 else 0.0 for a in (self.y, self.x))
        return dy or dx or 1.0, dx or dy or 1.0

    @property
    def map_crs(self) -> str | None:
        """CRS of the coordinates, or None if the grid has no coordinates."""
        return None if self.x is None else self.crs_wkt

    @property
    def is_geographic(self) -> bool:
        """Whether coordinates are longitude and latitude in degrees."""
        return self.crs_wkt is not None and bool(parse_wkt(self.crs_wkt).is_geographic)

    @property
    def in_degrees(self) -> bool:
        """Whether coordinates are degrees: by the CRS, or without one by their names or units."""
        if self.x is None or self.crs_wkt is not None:
            return self.x is not None and self.is_geographic
        units = (str(attrs.get("units", "")).lower() for attrs in (self.y_attrs, self.x_attrs))
        named = {self.y_name.lower(), self.x_name.lower()} & _DEGREE_NAMES
        return bool(named) or any(unit.startswith("degree") for unit in units)

    def turns(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return by how many degrees spans of longitudes outside the grid are to be turned.

        360 or -360 where that brings a span to the grid, such as -60 to one of 0 to 360; else 0.
        """
        turn = np.zeros(len(low))
        if self.x is None or not self.in_degrees:
            return turn
        # The grid ends half a cell beyond the outer centres; cells of an irregular grid are taken
        # to be as wide as its widest step.
        half = (self.side_lengths or (0.0, float(np.abs(np.diff(self.x)).max())))[1] / 2
        left, right = float(self.x.min()) - half, float(self.x.max()) + half
        outside = (high < left) | (low > right)
        for by in (360.0, -360.0):
            turn[outside & (low + by <= right) & (high + by >= left)] = by
        return turn

    @cached_property
    def length_unit(self) -> LengthUnit | None:
        """Unit of the grid's lengths: of the CRS, else of the coordinates' attribute ``units``.

        Metres where coordinates are longitude and latitude. None if the grid is measured in cells,
        or if nothing tells the unit.
        """
        if self.y is None:
            return None
        if self.crs_wkt is not None:
            return unit_of_crs(parse_wkt(self.crs_wkt))
        units = {parse_length_unit(a.get("units", "")) for a in (self.y_attrs, self.x_attrs)}
        return units.pop() if len(units) == 1 else None

    @property
    def metres(self) -> float:
        """Metres in a unit of length; 1 if the unit is not known."""
        return (self.length_unit or METRE).metres

    def grid_mapping_attributes(self) -> dict[str, Any]:
        """Return the attributes of the CF grid mapping variable, as rioxarray writes them."""
        attributes: dict[str, Any] = {}
        if self.crs_wkt is not None:
            try:
                attributes = dict(parse_wkt(self.crs_wkt).to_cf())
            except KeyError:  # CF has no name for the projection
                attributes = {}
            # GDAL reads `spatial_ref`, programs that follow CF read `crs_wkt`.
            attributes["spatial_ref"] = attributes["crs_wkt"] = self.crs_wkt
        six = self._stated
        if six is not None:
            attributes["GeoTransform"] = " ".join(str(float(item)) for item in six)
        return attributes

    def coords(self) -> dict[str, Any]:
        """Return the xarray coordinates of the grid: both axes and the grid mapping."""
        import xarray as xr

        coords: dict[str, Any] = {}
        if self.y is not None and self.x is not None:
            coords[self.y_name] = xr.Variable((self.y_name,), self.y, dict(self.y_attrs))
            coords[self.x_name] = xr.Variable((self.x_name,), self.x, dict(self.x_attrs))
        attributes = self.grid_mapping_attributes()
        if attributes:
            coords[GRID_MAPPING] = xr.Variable((), 0, attributes)
        return coords

    @property
    def encoding(self) -> dict[str, str]:
        """Encoding of rasters on the grid, see `encoding_with`; empty without a grid mapping."""
        is_mapped = self.crs_wkt is not None or self._stated is not None
        return encoding_with(GRID_MAPPING) if is_mapped else {}

    def part(self, rows: slice, columns: slice) -> Georeference:
        """Return the georeference of some rows and columns."""
        six = self.geotransform or self._regular
        if six is not None:
            left, dx, _, top, _, dy = six
            six = left + columns.start * dx, dx, 0.0, top + rows.start * dy, 0.0, dy
        y, x = (None, None) if self.y is None or self.x is None else (self.y[rows], self.x[columns])
        return replace(self, y=y, x=x, geotransform=six)

    def check_crs(self) -> None:
        """Raise InputError if the CRS is not valid well-known text."""
        if self.crs_wkt is not None:
            parse_wkt(self.crs_wkt)

    def check_shape(self, shape: tuple[int, int], what: str) -> None:
        """Raise InputError unless there is one coordinate for each row and column."""
        if self.y is not None and self.x is not None and (self.y.size, self.x.size) != shape:
            raise InputError(
                f"{what}: {self.y.size} row and {self.x.size} column coordinates "
                f"for {shape[0]} rows and {shape[1]} columns"
            )

    @cached_property
    def token(self) -> str:
        """Hexadecimal digest of coordinates, CRS, transform and attributes."""
        digest = hashlib.blake2b(digest_size=16)
        plain = (self.crs_wkt, self.y_name, self.x_name, self.geotransform)
        digest.update(
            repr((plain, sorted(self.y_attrs.items()), sorted(self.x_attrs.items()))).encode()
        )
        for values in (self.y, self.x):
            digest.update(b"-" if values is None else np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        if self.y is None or self.x is None:
            return "Georeference(in cells)"
        return (
            f"Georeference({self.y_name} {self.y[0]} to {self.y[-1]}, "
            f"{self.x_name} {self.x[0]} to {self.x[-1]}, {(self.crs_wkt or 'no CRS')[:40]})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Georeference) and self.token == other.token

    def __hash__(self) -> int:
        return hash(self.token)


def encoding_with(name: str) -> dict[str, str]:
    """Return the encoding of a raster by which files state its grid mapping.

    It is listed with the coordinates too: xarray reads it as one only then, or if
    ``decode_coords="all"`` is passed.
    """
    return {"grid_mapping": name, "coordinates": name}


@lru_cache(maxsize=16)  # a call asks several times, and parsing takes half a millisecond
def parse_wkt(text: str) -> CRS:
    """Parse a CRS from well-known text; raise InputError if it is invalid."""
    from pyproj import CRS

    with report_crs_error("raster"):
        return CRS.from_wkt(text)


def _axes_of_netcdf(dataset: DatasetReader) -> tuple[dict[str, str], dict[str, str]]:
    """Return the attributes of coordinates, if they are those of a NetCDF file: their units."""
    tags = dataset.tags() if dataset.driver == "netCDF" else {}
    # GDAL names the attributes of a NetCDF file's variables `variable#attribute`. Coordinates of
    # projected grids are known by their standard names, others are called y and x.
    named = {
        value: key.removesuffix("#standard_name")
        for key, value in tags.items()
        if key.endswith("#standard_name")
    }
    y, x = (named.get(f"projection_{axis}_coordinate", axis) for axis in "yx")
    units = (tags.get(f"{axis}#units") for axis in (y, x))
    y_attrs, x_attrs = ({} if unit is None else {"units": unit} for unit in units)
    return y_attrs, x_attrs


def _check_axis(name: str, values: NDArray[np.float64]) -> None:
    if values.ndim != 1 or values.dtype != np.float64:
        raise InputError(
            f"coordinate {name}: {values.ndim} dimensions of {values.dtype}; "
            "it must be one dimension of float64"
        )
    if not np.isfinite(values).all():
        at = int(np.argmin(np.isfinite(values)))
        raise InputError(f"coordinate {name}[{at}] is {values[at]}; coordinates must be finite")
    steps = np.diff(values)
    if steps.size and not ((steps > 0).all() or (steps < 0).all()):
        # The message names the first repeated coordinate, or else the first that turns back.
        sign = steps[0] > 0
        at = int(np.argmax((steps > 0) != sign)) if steps[0] != 0 else 0
        at = at if (steps != 0).all() else int(np.argmax(steps == 0))
        raise InputError(
            f"coordinate {name} turns at index {at}: {values[at]} then {values[at + 1]}; "
            f"sort it first with .sortby({name!r})"
        )


def check_upright(six: GeoTransform) -> None:
    """Raise InputError if a transform rotates or shears the grid, or its cells have no size."""
    if six[2] != 0 or six[4] != 0:
        raise InputError(
            f"the transform is rotated or sheared by {six[2]} and {six[4]} (both must be 0); "
            "warp it to an upright grid first (gdalwarp, or rio.reproject)"
        )
    if not all(math.isfinite(item) for item in six) or six[1] == 0 or six[5] == 0:
        raise InputError(f"the transform {six} has no cell size; set one with rio.write_transform")
